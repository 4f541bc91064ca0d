/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Lease service (spec/etcd-semantics.md section 5). Grant and revoke are writes; a keepalive at
 * the node that owns the lease writes nothing. At another node it first takes the lease over, so
 * that its client is served where it is.
 */
#include <stdlib.h>

#include <base/assert.h>

#include <etcdserverpb/lease.pb-c.h>
#include <kv/lease.h>

#include "etcd_priv.h"

void etcd_propose_system(struct etcd_call *c, struct rp_kv_system_op op, rp_etcd_done_fn done)
{
	struct rp_kv_system_op *ops = etcd_arena_get(&c->arena, sizeof(*ops));
	struct rp_kv_txn *t = etcd_arena_get(&c->arena, sizeof(*t));

	*ops = op;
	t->system = ops;
	t->system_count = 1;
	c->e->backend->propose(c->e->backend->ctx, t, done, c);
}

/* True: the write failed, and its call has been answered. */
static bool write_failed(
	struct etcd_call *c, int status, const char *message, const struct rp_kv_result *r)
{
	if (status != RP_GRPC_OK)
		etcd_call_fail(c, status, message);
	else if (r->error)
		etcd_call_fail(c, etcd_kv_code(r->error), rp_kv_error_text(r->error));
	else
		return false;
	return true;
}

/* ---- LeaseGrant ---- */

static void grant_done(
	void *done_ctx, int status, const char *message, const struct rp_kv_result *r)
{
	struct etcd_call *c = done_ctx;
	const Etcdserverpb__LeaseGrantRequest *request = (const void *)c->request;
	Etcdserverpb__LeaseGrantResponse m = ETCDSERVERPB__LEASE_GRANT_RESPONSE__INIT;

	if (write_failed(c, status, message, r))
		return;
	m.header = etcd_header_in(&c->arena, c->e, r->revision);
	m.id = c->lease;
	m.ttl = RP_MAX(request->ttl, (int64_t)RP_KV_LEASE_TTL_MIN_S);
	etcd_call_reply(c, &m.base);
}

static void on_grant(struct rp_grpc_call *call, const uint8_t *data, size_t length, void *ctx)
{
	struct rp_etcd *e = ctx;
	Etcdserverpb__LeaseGrantRequest *m =
		etcd_unpack(e, call, &etcdserverpb__lease_grant_request__descriptor, data, length);
	struct etcd_call *c;

	if (!m)
		return;
	e->stats.lease_grants++;
	if (etcd_stopped(e, call)) {
		etcd_unpacked_free(&m->base);
		return;
	}
	c = etcd_call_new(e, call, ETCD_CALL_LEASE, &m->base);
	if (!c)
		return;
	c->lease = m->id != 0 ? m->id : rp_kv_lease_id_new(e->kv);
	etcd_propose_system(c,
		(struct rp_kv_system_op){
			.type = RP_KV_SYSTEM_GRANT, .lease = c->lease, .ttl_s = m->ttl},
		grant_done);
}

const struct rp_grpc_call_ops etcd_lease_grant_ops = {
	.on_message = on_grant, .on_cancel = etcd_call_on_cancel};

/* May the caller do that to all keys of the lease? */
static int lease_access(struct rp_etcd *e, struct rp_grpc_call *call, enum rp_etcd_access access,
	int64_t id, const char **message)
{
	struct rp_etcd_caller caller = etcd_caller_of(e, call);

	return etcd_auth_check_lease(e, access, id, &caller, message);
}

/* ---- LeaseRevoke ---- */

static void revoke_done(
	void *done_ctx, int status, const char *message, const struct rp_kv_result *r)
{
	struct etcd_call *c = done_ctx;
	Etcdserverpb__LeaseRevokeResponse m = ETCDSERVERPB__LEASE_REVOKE_RESPONSE__INIT;

	if (write_failed(c, status, message, r))
		return;
	m.header = etcd_header_in(&c->arena, c->e, r->revision);
	etcd_call_reply(c, &m.base);
}

static void on_revoke(struct rp_grpc_call *call, const uint8_t *data, size_t length, void *ctx)
{
	struct rp_etcd *e = ctx;
	Etcdserverpb__LeaseRevokeRequest *m =
		etcd_unpack(e, call, &etcdserverpb__lease_revoke_request__descriptor, data, length);
	const char *message = NULL;
	struct rp_kv_lease lease;
	struct etcd_call *c;
	int code;

	if (!m)
		return;
	e->stats.lease_revokes++;
	if (etcd_stopped(e, call)) {
		etcd_unpacked_free(&m->base);
		return;
	}
	c = etcd_call_new(e, call, ETCD_CALL_LEASE, &m->base);
	if (!c)
		return;
	code = lease_access(e, call, RP_ETCD_WRITE, m->id, &message);
	if (code != RP_GRPC_OK) {
		etcd_call_fail(c, code, message);
		return;
	}
	/* Keys whose lease has no record are no lease that a client can name. */
	if (!rp_kv_lease_get(e->kv, m->id, 0, &lease)) {
		etcd_call_fail(c, etcd_kv_code(RP_KV_LEASE_NOT_FOUND),
			rp_kv_error_text(RP_KV_LEASE_NOT_FOUND));
		return;
	}
	etcd_propose_system(c,
		(struct rp_kv_system_op){.type = RP_KV_SYSTEM_REVOKE, .lease = m->id}, revoke_done);
}

const struct rp_grpc_call_ops etcd_lease_revoke_ops = {
	.on_message = on_revoke, .on_cancel = etcd_call_on_cancel};

/* ---- LeaseTimeToLive, LeaseLeases ---- */

struct key_list {
	struct etcd_arena *arena;
	ProtobufCBinaryData *keys;
	size_t count;
};

static void key_list_add(void *ctx, struct rp_span key)
{
	struct key_list *l = ctx;

	l->keys[l->count++] = etcd_bytes(key);
}

static void on_time_to_live(
	struct rp_grpc_call *call, const uint8_t *data, size_t length, void *ctx)
{
	struct rp_etcd *e = ctx;
	Etcdserverpb__LeaseTimeToLiveRequest *request = etcd_unpack(
		e, call, &etcdserverpb__lease_time_to_live_request__descriptor, data, length);
	Etcdserverpb__LeaseTimeToLiveResponse m = ETCDSERVERPB__LEASE_TIME_TO_LIVE_RESPONSE__INIT;
	struct etcd_arena a = {0};
	struct key_list keys = {.arena = &a};
	const char *message = NULL;
	struct rp_kv_lease lease;
	int code;

	if (!request)
		return;
	code = request->keys ? lease_access(e, call, RP_ETCD_READ, request->id, &message) : 0;
	if (code != RP_GRPC_OK) {
		etcd_refuse(call, code, message);
		etcd_unpacked_free(&request->base);
		return;
	}
	m.header = etcd_header_in(&a, e, rp_kv_revision(e->kv));
	m.id = request->id;
	m.ttl = -1;
	if (rp_kv_lease_get(e->kv, request->id, etcd_now_ns(e), &lease)) {
		m.ttl = lease.left_s;
		m.grantedttl = lease.ttl_s;
		if (request->keys && lease.key_count > 0) {
			keys.keys = etcd_arena_get(&a, lease.key_count * sizeof(keys.keys[0]));
			rp_kv_lease_keys(e->kv, request->id, key_list_add, &keys);
			m.keys = keys.keys;
			m.n_keys = keys.count;
		}
	}
	etcd_reply(call, &m.base);
	etcd_arena_free(&a);
	etcd_unpacked_free(&request->base);
}

const struct rp_grpc_call_ops etcd_lease_time_to_live_ops = {
	.on_message = on_time_to_live, .on_cancel = etcd_call_on_cancel};

static void on_leases(struct rp_grpc_call *call, const uint8_t *data, size_t length, void *ctx)
{
	struct rp_etcd *e = ctx;
	Etcdserverpb__LeaseLeasesRequest *request =
		etcd_unpack(e, call, &etcdserverpb__lease_leases_request__descriptor, data, length);
	Etcdserverpb__LeaseLeasesResponse m = ETCDSERVERPB__LEASE_LEASES_RESPONSE__INIT;
	Etcdserverpb__LeaseStatus *list;
	const char *message = NULL;
	struct etcd_arena a = {0};
	int code = RP_GRPC_OK;
	uint32_t count;
	int64_t *ids;

	if (!request)
		return;
	ids = rp_kv_lease_list(e->kv, &count);
	for (uint32_t i = 0; code == RP_GRPC_OK && i < count; i++)
		code = lease_access(e, call, RP_ETCD_READ, ids[i], &message);
	if (code != RP_GRPC_OK) {
		etcd_refuse(call, code, message);
		free(ids);
		etcd_unpacked_free(&request->base);
		return;
	}
	m.header = etcd_header_in(&a, e, rp_kv_revision(e->kv));
	m.leases = etcd_arena_get(&a, count * sizeof(m.leases[0]));
	list = etcd_arena_get(&a, count * sizeof(list[0]));
	for (uint32_t i = 0; i < count; i++) {
		etcdserverpb__lease_status__init(&list[i]);
		list[i].id = ids[i];
		m.leases[m.n_leases++] = &list[i];
	}
	etcd_reply(call, &m.base);
	free(ids);
	etcd_arena_free(&a);
	etcd_unpacked_free(&request->base);
}

const struct rp_grpc_call_ops etcd_lease_leases_ops = {
	.on_message = on_leases, .on_cancel = etcd_call_on_cancel};

/* ---- LeaseKeepAlive ---- */

/*
 * One answer a request, in order. A request that needs a write, or whose answer finds no room,
 * stops the reading of the stream until that is over; so nothing queues up here.
 */
struct etcd_keepalive {
	struct rp_list link;	    /**< on e->keepalives */
	struct rp_list unsent_link; /**< on e->keepalives_unsent: the answer found no room */
	struct rp_etcd *e;
	struct rp_grpc_call *call; /**< NULL: gone, and a write is still out */
	int64_t id, ttl, revision; /**< of the request in hand */
	bool writing;		   /**< a write is out */
	bool half_closed;
	struct rp_kv_system_op op; /**< of that write */
	struct rp_kv_txn txn;
};

static void keepalive_free(struct etcd_keepalive *k)
{
	rp_list_unlink(&k->link);
	rp_list_unlink(&k->unsent_link);
	k->e->stats.lease_streams--;
	free(k);
}

static void keepalive_finish(struct etcd_keepalive *k, int code, const char *message)
{
	struct rp_grpc_call *call = k->call;

	rp_grpc_call_set_user(call, NULL);
	k->call = NULL;
	if (!k->writing)
		keepalive_free(k);
	rp_grpc_call_finish(call, (enum rp_grpc_code)code, message);
}

/* True: the answer is on its way. */
static bool keepalive_send(struct etcd_keepalive *k)
{
	Etcdserverpb__LeaseKeepAliveResponse m = ETCDSERVERPB__LEASE_KEEP_ALIVE_RESPONSE__INIT;
	Etcdserverpb__ResponseHeader h = etcd_header(k->e, k->revision);
	uint8_t data[128];
	size_t length;

	m.header = &h;
	m.id = k->id;
	m.ttl = k->ttl;
	length = etcdserverpb__lease_keep_alive_response__get_packed_size(&m);
	RP_ASSERT(length <= sizeof(data));
	etcdserverpb__lease_keep_alive_response__pack(&m, data);
	return rp_grpc_call_queued_bytes(k->call) <= ETCD_STREAM_OUT_BYTES &&
	       rp_grpc_call_send(k->call, data, length, 0) == 0;
}

/* May end the stream, and free `k`. */
static void keepalive_answer(struct etcd_keepalive *k, int64_t ttl)
{
	k->ttl = ttl;
	if (!keepalive_send(k)) {
		rp_list_push_back(&k->e->keepalives_unsent, &k->unsent_link);
		rp_grpc_call_pause_reading(k->call);
	} else if (k->half_closed) {
		keepalive_finish(k, RP_GRPC_OK, NULL);
	}
}

static void keepalive_run(struct etcd_keepalive *k);

static void keepalive_written(
	void *done_ctx, int status, const char *message, const struct rp_kv_result *r)
{
	struct etcd_keepalive *k = done_ctx;

	k->writing = false;
	if (!k->call) {
		keepalive_free(k);
	} else if (status != RP_GRPC_OK) {
		keepalive_finish(k, status, message);
	} else {
		/* Taken: it counts here now. Revoked, or lost to another: it is not there. */
		rp_grpc_call_resume_reading(k->call);
		if (r->error || k->op.type == RP_KV_SYSTEM_REVOKE)
			keepalive_answer(k, 0);
		else
			keepalive_run(k);
	}
}

static void keepalive_write(struct etcd_keepalive *k, enum rp_kv_system_type type)
{
	k->op = (struct rp_kv_system_op){.type = type, .lease = k->id};
	k->txn = (struct rp_kv_txn){.system = &k->op, .system_count = 1};
	k->writing = true;
	rp_grpc_call_pause_reading(k->call);
	k->e->backend->propose(k->e->backend->ctx, &k->txn, keepalive_written, k);
}

static void keepalive_run(struct etcd_keepalive *k)
{
	struct rp_etcd *e = k->e;
	struct rp_kv_lease lease;

	k->revision = rp_kv_revision(e->kv);
	switch (rp_kv_lease_keepalive(e->kv, k->id, etcd_now_ns(e))) {
	case RP_KV_LEASE_NONE:
		keepalive_answer(k, 0);
		break;
	case RP_KV_LEASE_RENEWED:
		rp_kv_lease_get(e->kv, k->id, 0, &lease);
		keepalive_answer(k, lease.ttl_s);
		break;
	case RP_KV_LEASE_OVER:
		keepalive_write(k, RP_KV_SYSTEM_REVOKE);
		break;
	case RP_KV_LEASE_ELSEWHERE:
		keepalive_write(k, RP_KV_SYSTEM_TAKE);
		break;
	}
}

static void keepalive_start(struct rp_grpc_call *call, void *ctx)
{
	struct rp_etcd *e = ctx;
	struct etcd_keepalive *k;

	if (etcd_stopped(e, call))
		return;
	if (etcd_leader_missing(e, call)) {
		rp_grpc_call_finish(call, RP_GRPC_UNAVAILABLE, "etcdserver: no leader");
		return;
	}
	k = calloc(1, sizeof(*k));
	RP_ASSERT(k != NULL);
	k->e = e;
	k->call = call;
	rp_list_init(&k->unsent_link);
	rp_list_push_back(&e->keepalives, &k->link);
	e->stats.lease_streams++;
	rp_grpc_call_set_user(call, k);
}

static void keepalive_message(
	struct rp_grpc_call *call, const uint8_t *data, size_t length, void *ctx)
{
	struct rp_etcd *e = ctx;
	struct etcd_keepalive *k = rp_grpc_call_user(call);
	Etcdserverpb__LeaseKeepAliveRequest *m =
		etcdserverpb__lease_keep_alive_request__unpack(NULL, length, data);
	struct rp_etcd_caller caller;
	const char *message = NULL;
	int code;

	if (!m) {
		e->stats.malformed++;
		keepalive_finish(k, RP_GRPC_INTERNAL,
			"grpc: error unmarshalling request: LeaseKeepAliveRequest does not decode");
		return;
	}
	e->stats.lease_keepalives++;
	k->id = m->id;
	etcd_unpacked_free(&m->base);
	caller = etcd_caller_of(e, call);
	code = etcd_auth_require(e, &caller, false, &message);
	if (code == RP_GRPC_OK)
		code = etcd_auth_check_lease(e, RP_ETCD_WRITE, k->id, &caller, &message);
	if (code != RP_GRPC_OK)
		keepalive_finish(k, code, message);
	else
		keepalive_run(k);
}

static void keepalive_half_close(struct rp_grpc_call *call, void *ctx)
{
	struct etcd_keepalive *k = rp_grpc_call_user(call);

	if (!k)
		return;
	k->half_closed = true;
	if (!k->writing && rp_list_empty(&k->unsent_link))
		keepalive_finish(k, RP_GRPC_OK, NULL);
}

static void keepalive_cancel(struct rp_grpc_call *call, enum rp_grpc_cancel why, void *ctx)
{
	struct etcd_keepalive *k = rp_grpc_call_user(call);

	if (!k)
		return;
	k->call = NULL;
	rp_list_unlink(&k->unsent_link);
	if (!k->writing)
		keepalive_free(k);
}

const struct rp_grpc_call_ops etcd_lease_keepalive_ops = {
	.on_start = keepalive_start,
	.on_message = keepalive_message,
	.on_half_close = keepalive_half_close,
	.on_cancel = keepalive_cancel,
};

void etcd_keepalives_run(struct rp_etcd *e)
{
	struct rp_list *n, *t;

	rp_list_foreach_safe (n, t, &e->keepalives_unsent) {
		struct etcd_keepalive *k = rp_list_entry(n, struct etcd_keepalive, unsent_link);

		if (!keepalive_send(k))
			continue;
		rp_list_unlink(&k->unsent_link);
		rp_grpc_call_resume_reading(k->call);
		if (k->half_closed)
			keepalive_finish(k, RP_GRPC_OK, NULL);
	}
}

void etcd_keepalives_stop(struct rp_etcd *e)
{
	struct rp_list *n, *t;

	rp_list_foreach_safe (n, t, &e->keepalives) {
		struct etcd_keepalive *k = rp_list_entry(n, struct etcd_keepalive, link);

		if (k->call)
			keepalive_finish(k, RP_GRPC_UNAVAILABLE, ETCD_TEXT_STOPPED);
	}
}

void etcd_keepalives_free(struct rp_etcd *e)
{
	struct rp_list *n;

	/* Only those are left whose write the backend still had. */
	while ((n = rp_list_pop_front(&e->keepalives)))
		keepalive_free(rp_list_entry(n, struct etcd_keepalive, link));
}
