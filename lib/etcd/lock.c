/* SPDX-License-Identifier: Apache-2.0 */
/* The Lock service (spec/etcd-semantics.md section 8). */
#include <v3lockpb/v3lock.pb-c.h>

#include "contest_priv.h"

static void lock_won(struct etcd_contest *c)
{
	V3lockpb__LockResponse m = V3LOCKPB__LOCK_RESPONSE__INIT;

	m.header = etcd_header_in(&c->arena, c->e, c->header_revision);
	m.key = etcd_bytes(c->key);
	etcd_contest_reply(c, &m.base);
}

static const struct etcd_contest_ops lock_ops = {
	.won = lock_won, .lost_text = "mutex: session is expired"};

static void on_lock(struct rp_grpc_call *call, const uint8_t *data, size_t length, void *ctx)
{
	struct rp_etcd *e = ctx;
	V3lockpb__LockRequest *m =
		etcd_unpack(e, call, &v3lockpb__lock_request__descriptor, data, length);

	if (!m)
		return;
	e->stats.locks++;
	etcd_contest_begin(e, call, &lock_ops, etcd_span(m->name), (struct rp_span){0}, m->lease);
	etcd_unpacked_free(&m->base);
}

const struct rp_grpc_call_ops etcd_lock_ops = {
	.on_message = on_lock, .on_cancel = etcd_contest_on_cancel};

static void unlock_done(
	void *done_ctx, int status, const char *message, const struct rp_kv_result *r)
{
	struct etcd_call *c = done_ctx;
	V3lockpb__UnlockResponse m = V3LOCKPB__UNLOCK_RESPONSE__INIT;

	if (status != RP_GRPC_OK || r->error) {
		etcd_call_fail(c, RP_GRPC_UNKNOWN,
			status != RP_GRPC_OK ? message : rp_kv_error_text(r->error));
		return;
	}
	m.header = etcd_header_in(&c->arena, c->e, r->revision);
	etcd_call_reply(c, &m.base);
}

static void on_unlock(struct rp_grpc_call *call, const uint8_t *data, size_t length, void *ctx)
{
	struct rp_etcd *e = ctx;
	V3lockpb__UnlockRequest *m =
		etcd_unpack(e, call, &v3lockpb__unlock_request__descriptor, data, length);
	struct rp_kv_txn *t;
	struct rp_kv_op *op;
	struct etcd_call *c;

	if (!m)
		return;
	if (m->key.len == 0) {
		etcd_refuse(call, RP_GRPC_UNKNOWN, rp_kv_error_text(RP_KV_KEY_EMPTY));
	} else if (!etcd_stopped(e, call) && !etcd_contest_refused(e, call, RP_ETCD_WRITE,
						     etcd_span(m->key), (struct rp_span){0})) {
		c = etcd_call_new(e, call, ETCD_CALL_LEASE, &m->base);
		if (!c)
			return;
		op = etcd_arena_get(&c->arena, sizeof(*op));
		t = etcd_arena_get(&c->arena, sizeof(*t));
		*op = (struct rp_kv_op){.type = RP_KV_OP_DELETE, .del = {.key = etcd_span(m->key)}};
		t->success = op;
		t->success_count = 1;
		e->backend->propose(e->backend->ctx, t, unlock_done, c);
		return;
	}
	etcd_unpacked_free(&m->base);
}

const struct rp_grpc_call_ops etcd_unlock_ops = {
	.on_message = on_unlock, .on_cancel = etcd_call_on_cancel};
