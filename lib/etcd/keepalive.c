/* SPDX-License-Identifier: Apache-2.0 */
/*
 * LeaseKeepAlive (spec/etcd-semantics.md section 5, spec/cluster.md): at the node that counts the
 * lease it writes nothing, another node asks that one. One answer a request, in order. A request
 * that asks, or needs a write, or whose answer finds no room, stops the reading of the stream until
 * that is over; so nothing queues up here.
 */
#include <stdlib.h>

#include <base/assert.h>

#include <etcdserverpb/lease.pb-c.h>
#include <kv/lease.h>

#include "etcd_priv.h"

/* etcd's bound of a request (section 0): longer than it takes to adopt a dead node's leases. */
#define KEEPALIVE_MAX_NS (7 * RP_NS_PER_S)
#define KEEPALIVE_AGAIN_NS (200 * RP_NS_PER_MS)

struct etcd_keepalive {
	struct rp_list link;	    /**< on e->keepalives */
	struct rp_list unsent_link; /**< on e->keepalives_unsent: the answer found no room */
	struct rp_list wait_link;   /**< on e->keepalives_waiting: no node could be asked */
	struct rp_etcd *e;
	struct rp_grpc_call *call; /**< NULL: gone, and a write or a question is still out */
	int64_t id, ttl, revision; /**< of the request in hand */
	uint64_t until_ns;	   /**< and how long it may take */
	uint64_t again_ns;	   /**< waiting: when the node is asked again */
	bool out;		   /**< a write or a question is out */
	bool half_closed;
	struct rp_kv_system_op op; /**< of that write */
	struct rp_kv_txn txn;
};

static void keepalive_free(struct etcd_keepalive *k)
{
	rp_list_unlink(&k->link);
	rp_list_unlink(&k->unsent_link);
	rp_list_unlink(&k->wait_link);
	k->e->stats.lease_streams--;
	free(k);
}

static void keepalive_finish(struct etcd_keepalive *k, int code, const char *message)
{
	struct rp_grpc_call *call = k->call;

	rp_grpc_call_set_user(call, NULL);
	k->call = NULL;
	if (!k->out)
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

static void keepalive_written(
	void *done_ctx, int status, const char *message, const struct rp_kv_result *r)
{
	struct etcd_keepalive *k = done_ctx;

	k->out = false;
	if (!k->call) {
		keepalive_free(k);
	} else if (status != RP_GRPC_OK) {
		keepalive_finish(k, status, message);
	} else {
		/* Revoked now, or by another before. */
		rp_grpc_call_resume_reading(k->call);
		keepalive_answer(k, 0);
	}
}

/* Its time is over: the answer says so when its keys are gone (section 5). */
static void keepalive_revoke(struct etcd_keepalive *k)
{
	k->op = (struct rp_kv_system_op){.type = RP_KV_SYSTEM_REVOKE, .lease = k->id};
	k->txn = (struct rp_kv_txn){.system = &k->op, .system_count = 1};
	k->out = true;
	rp_grpc_call_pause_reading(k->call);
	k->e->backend->propose(k->e->backend->ctx, &k->txn, keepalive_written, k);
}

/*
 * No node that counts the lease has answered. It may be on its way back, or another about to adopt
 * its leases: asked again until the client has waited long enough.
 */
static void keepalive_wait(struct etcd_keepalive *k)
{
	uint64_t now_ns = etcd_now_ns(k->e);

	if (now_ns >= k->until_ns) {
		keepalive_finish(k, RP_GRPC_UNAVAILABLE, ETCD_TEXT_TIMED_OUT);
		return;
	}
	k->again_ns = now_ns + KEEPALIVE_AGAIN_NS;
	rp_list_push_back(&k->e->keepalives_waiting, &k->wait_link);
}

static void keepalive_told(void *done_ctx, const struct rp_etcd_lease_time *t)
{
	struct etcd_keepalive *k = done_ctx;

	k->out = false;
	if (!k->call) {
		keepalive_free(k);
		return;
	}
	switch (t->state) {
	case RP_ETCD_LEASE_COUNTED:
	case RP_ETCD_LEASE_NONE:
		rp_grpc_call_resume_reading(k->call);
		keepalive_answer(k, t->state == RP_ETCD_LEASE_COUNTED ? t->ttl_s : 0);
		break;
	case RP_ETCD_LEASE_OVER:
		keepalive_revoke(k);
		break;
	case RP_ETCD_LEASE_MOVED:
	case RP_ETCD_LEASE_NO_ANSWER:
		keepalive_wait(k);
		break;
	}
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
		keepalive_revoke(k);
		break;
	case RP_KV_LEASE_ELSEWHERE:
		rp_kv_lease_get(e->kv, k->id, 0, &lease);
		k->out = true;
		rp_grpc_call_pause_reading(k->call);
		etcd_lease_ask(e, &lease, true, keepalive_told, k);
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
	rp_list_init(&k->wait_link);
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
	k->until_ns = etcd_now_ns(e) + KEEPALIVE_MAX_NS;
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
	if (!k->out && rp_list_empty(&k->unsent_link) && rp_list_empty(&k->wait_link))
		keepalive_finish(k, RP_GRPC_OK, NULL);
}

static void keepalive_cancel(struct rp_grpc_call *call, enum rp_grpc_cancel why, void *ctx)
{
	struct etcd_keepalive *k = rp_grpc_call_user(call);

	if (!k)
		return;
	k->call = NULL;
	rp_list_unlink(&k->unsent_link);
	rp_list_unlink(&k->wait_link);
	if (!k->out)
		keepalive_free(k);
}

const struct rp_grpc_call_ops etcd_lease_keepalive_ops = {
	.on_start = keepalive_start,
	.on_message = keepalive_message,
	.on_half_close = keepalive_half_close,
	.on_cancel = keepalive_cancel,
};

static void keepalives_ask_again(struct rp_etcd *e)
{
	struct rp_list waiting, *n;

	rp_list_init(&waiting);
	rp_list_splice_back(&waiting, &e->keepalives_waiting);
	while ((n = rp_list_pop_front(&waiting))) {
		struct etcd_keepalive *k = rp_list_entry(n, struct etcd_keepalive, wait_link);

		if (k->again_ns > e->now_ns) {
			rp_list_push_back(&e->keepalives_waiting, n);
			continue;
		}
		rp_grpc_call_resume_reading(k->call);
		keepalive_run(k);
	}
}

uint64_t etcd_keepalives_next_ns(const struct rp_etcd *e)
{
	/* All wait equally long, so the first is the first. */
	return rp_list_empty(&e->keepalives_waiting)
		       ? RP_NEVER
		       : rp_list_entry(e->keepalives_waiting.next, struct etcd_keepalive, wait_link)
				 ->again_ns;
}

void etcd_keepalives_run(struct rp_etcd *e)
{
	struct rp_list *n, *t;

	keepalives_ask_again(e);
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

	/* Only those are left whose write or question the backend still had. */
	while ((n = rp_list_pop_front(&e->keepalives)))
		keepalive_free(rp_list_entry(n, struct etcd_keepalive, link));
}
