/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Lease service (spec/etcd-semantics.md section 5) but for keepalives (keepalive.c). Grant and
 * revoke are writes, on whichever node. The time of a lease is asked of the node that counts it.
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

void etcd_lease_ask(struct rp_etcd *e, const struct rp_kv_lease *lease, bool renew,
	rp_etcd_lease_fn done, void *done_ctx)
{
	static const struct rp_etcd_lease_time nobody = {.state = RP_ETCD_LEASE_NO_ANSWER};

	if (e->backend->lease_ask)
		e->backend->lease_ask(
			e->backend->ctx, lease->owner, lease->id, renew, done, done_ctx);
	else
		done(done_ctx, &nobody);
}

static void time_reply(struct etcd_call *c, bool there, int64_t ttl_s, int64_t left_s)
{
	const Etcdserverpb__LeaseTimeToLiveRequest *request = (const void *)c->request;
	Etcdserverpb__LeaseTimeToLiveResponse m = ETCDSERVERPB__LEASE_TIME_TO_LIVE_RESPONSE__INIT;
	struct key_list keys = {.arena = &c->arena};
	struct rp_kv_lease lease;

	m.header = etcd_header_in(&c->arena, c->e, rp_kv_revision(c->e->kv));
	m.id = request->id;
	m.ttl = there ? left_s : -1;
	m.grantedttl = there ? ttl_s : 0;
	if (there && request->keys && rp_kv_lease_get(c->e->kv, request->id, 0, &lease) &&
		lease.key_count > 0) {
		keys.keys = etcd_arena_get(&c->arena, lease.key_count * sizeof(keys.keys[0]));
		rp_kv_lease_keys(c->e->kv, request->id, key_list_add, &keys);
		m.keys = keys.keys;
		m.n_keys = keys.count;
	}
	etcd_call_reply(c, &m.base);
}

static void time_told(void *done_ctx, const struct rp_etcd_lease_time *t)
{
	struct etcd_call *c = done_ctx;

	switch (t->state) {
	case RP_ETCD_LEASE_COUNTED:
		time_reply(c, true, t->ttl_s, t->left_s);
		break;
	case RP_ETCD_LEASE_NONE:
	case RP_ETCD_LEASE_OVER:
		time_reply(c, false, 0, 0);
		break;
	case RP_ETCD_LEASE_MOVED:
	case RP_ETCD_LEASE_NO_ANSWER:
		etcd_call_fail(c, RP_GRPC_UNAVAILABLE, ETCD_TEXT_TIMED_OUT);
		break;
	}
}

static void on_time_to_live(
	struct rp_grpc_call *call, const uint8_t *data, size_t length, void *ctx)
{
	struct rp_etcd *e = ctx;
	Etcdserverpb__LeaseTimeToLiveRequest *request = etcd_unpack(
		e, call, &etcdserverpb__lease_time_to_live_request__descriptor, data, length);
	const char *message = NULL;
	struct rp_kv_lease lease;
	struct etcd_call *c;
	int code;

	if (!request)
		return;
	c = etcd_call_new(e, call, ETCD_CALL_LEASE, &request->base);
	if (!c)
		return;
	code = request->keys ? lease_access(e, call, RP_ETCD_READ, request->id, &message) : 0;
	if (code != RP_GRPC_OK)
		etcd_call_fail(c, code, message);
	else if (!rp_kv_lease_get(e->kv, request->id, etcd_now_ns(e), &lease))
		time_reply(c, false, 0, 0);
	else if (lease.expiry_ns == RP_NEVER)
		etcd_lease_ask(e, &lease, false, time_told, c);
	else
		time_reply(c, true, lease.ttl_s, lease.left_s);
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
