/* SPDX-License-Identifier: Apache-2.0 */
/* ringpost.v1.Peer, server side. */
#include <errno.h>
#include <stdlib.h>

#include <base/assert.h>
#include <kv/lease.h>
#include <ringpost/v1/peer.pb-c.h>

#include "etcd_priv.h"

static void on_conn_close(void *user)
{
	struct etcd_conn *conn = user;
	const struct rp_etcd_peer_backend *p = conn->e->backend->peer;

	/* An answer to Prove that comes later finds no connection to mark. */
	for (uint32_t i = 0; i < conn->e->calls.size; i++)
		for (struct etcd_node *n = conn->e->calls.slots[i]; n; n = n->next) {
			struct etcd_call *c = RP_CONTAINER_OF(n, struct etcd_call, node);

			if (c->conn == conn)
				c->conn = NULL;
		}
	if (p && p->connection_closed)
		p->connection_closed(p->ctx, conn->id);
	free(conn);
}

static struct etcd_conn *conn_of(struct rp_etcd *e, struct rp_grpc_call *call)
{
	struct rp_grpc_conn *conn = rp_grpc_call_conn(call);
	struct etcd_conn *c = rp_grpc_conn_user(conn);

	if (c)
		return c;
	c = calloc(1, sizeof(*c));
	RP_ASSERT(c != NULL);
	c->e = e;
	c->id = ++e->connection_last;
	rp_grpc_conn_set_user(conn, c, on_conn_close);
	return c;
}

static void on_prove(struct rp_grpc_call *call, const uint8_t *data, size_t length, void *ctx)
{
	struct rp_etcd *e = ctx;
	const struct rp_etcd_peer_backend *p = e->backend->peer;
	struct rp_etcd_peer_prove prove;
	struct etcd_call *c;

	if (rp_etcd_peer_decode_prove((struct rp_span){.data = data, .length = length}, &prove)) {
		etcd_refuse_malformed(e, call, "ProveRequest");
		return;
	}
	c = etcd_call_new(e, call, ETCD_CALL_PROVE, NULL);
	if (!c)
		return;
	c->conn = conn_of(e, call);
	prove.address = rp_grpc_conn_peer(rp_grpc_call_conn(call));
	p->prove(p->ctx, c->node.key, c->conn->id, &prove);
}

/* The connection has proved itself; NULL: refused. */
const struct etcd_conn *etcd_peer_is_proved(struct rp_etcd *e, struct rp_grpc_call *call)
{
	struct etcd_conn *conn = rp_grpc_conn_user(rp_grpc_call_conn(call));

	if (conn && conn->proved)
		return conn;
	e->stats.peer_unproved++;
	etcd_refuse(call, RP_GRPC_PERMISSION_DENIED,
		"peer: the connection has not proved the cluster secret");
	return NULL;
}

static struct etcd_call *peer_call(
	struct rp_etcd *e, struct rp_grpc_call *call, enum etcd_call_kind kind, uint64_t *node)
{
	const struct etcd_conn *conn = etcd_peer_is_proved(e, call);

	if (!conn)
		return NULL;
	*node = conn->node;
	return etcd_call_new(e, call, kind, NULL);
}

static void on_apply(struct rp_grpc_call *call, const uint8_t *data, size_t length, void *ctx)
{
	struct rp_etcd *e = ctx;
	const struct rp_etcd_peer_backend *p = e->backend->peer;
	uint64_t node;
	struct etcd_call *c = peer_call(e, call, ETCD_CALL_APPLY, &node);

	if (c)
		p->apply(p->ctx, c->node.key, node,
			(struct rp_span){.data = data, .length = length});
}

static void on_sync(struct rp_grpc_call *call, const uint8_t *data, size_t length, void *ctx)
{
	struct rp_etcd *e = ctx;
	const struct rp_etcd_peer_backend *p = e->backend->peer;
	uint64_t node;
	struct etcd_call *c = peer_call(e, call, ETCD_CALL_SYNC, &node);

	if (c)
		p->sync(p->ctx, c->node.key, node,
			(struct rp_span){.data = data, .length = length});
}

static void on_deliver_one(struct rp_grpc_call *call, const uint8_t *data, size_t length, void *ctx)
{
	struct rp_etcd *e = ctx;
	const struct rp_etcd_peer_backend *p = e->backend->peer;
	struct rp_span frame;
	struct etcd_call *c;
	uint64_t node;

	if (rp_etcd_peer_decode_frame((struct rp_span){.data = data, .length = length}, &frame)) {
		etcd_refuse_malformed(e, call, "Frame");
		return;
	}
	c = peer_call(e, call, ETCD_CALL_DELIVER_ONE, &node);
	if (c)
		p->deliver_one(p->ctx, c->node.key, node, frame);
}

/* What is counted here, in the enum's terms. */
static struct rp_etcd_lease_time lease_time(struct rp_etcd *e, int64_t id, bool renew)
{
	struct rp_etcd_lease_time t = {.state = RP_ETCD_LEASE_NONE};
	uint64_t now_ns = etcd_now_ns(e);
	struct rp_kv_lease l;

	if (rp_kv_lease_get(e->kv, id, 0, &l)) {
		if (l.expiry_ns == RP_NEVER)
			t.state = RP_ETCD_LEASE_MOVED;
		else if (l.expiry_ns <= now_ns)
			t.state = RP_ETCD_LEASE_OVER;
		else
			t.state = RP_ETCD_LEASE_COUNTED;
	}
	if (t.state != RP_ETCD_LEASE_COUNTED)
		return t;
	if (renew)
		(void)rp_kv_lease_keepalive(e->kv, id, now_ns);
	if (rp_kv_lease_get(e->kv, id, now_ns, &l)) {
		t.ttl_s = l.ttl_s;
		t.left_s = l.left_s;
	}
	return t;
}

static void on_lease(struct rp_grpc_call *call, const uint8_t *data, size_t length, void *ctx)
{
	struct rp_etcd *e = ctx;
	Ringpost__V1__LeaseTime answer = RINGPOST__V1__LEASE_TIME__INIT;
	Ringpost__V1__LeaseAsk *m =
		etcd_unpack(e, call, &ringpost__v1__lease_ask__descriptor, data, length);
	struct rp_etcd_lease_time t;

	if (!m)
		return;
	if (etcd_peer_is_proved(e, call)) {
		t = lease_time(e, m->lease, m->renew);
		answer.state = (Ringpost__V1__LeaseState)t.state;
		answer.ttl_s = t.ttl_s;
		answer.left_s = t.left_s;
		etcd_reply(call, &answer.base);
	}
	etcd_unpacked_free(&m->base);
}

const struct rp_grpc_call_ops etcd_prove_ops = {
	.on_message = on_prove, .on_cancel = etcd_call_on_cancel};
const struct rp_grpc_call_ops etcd_apply_ops = {
	.on_message = on_apply, .on_cancel = etcd_call_on_cancel};
const struct rp_grpc_call_ops etcd_sync_ops = {
	.on_message = on_sync, .on_cancel = etcd_call_on_cancel};
const struct rp_grpc_call_ops etcd_deliver_one_ops = {
	.on_message = on_deliver_one, .on_cancel = etcd_call_on_cancel};
const struct rp_grpc_call_ops etcd_peer_lease_ops = {.on_message = on_lease};

/* The answer goes out as it is. */
static void answer_bytes(struct etcd_call *c, const void *data, size_t length)
{
	if (c->call)
		rp_grpc_call_reply(c->call, data, length);
	else
		c->e->stats.answers_dropped++;
	etcd_call_free(c);
}

static struct etcd_call *peer_find(struct rp_etcd *e, uint64_t token)
{
	struct etcd_call *c = etcd_call_find(e, token);

	RP_ASSERT(!c || c->kind >= ETCD_CALL_PROVE);
	return c;
}

void rp_etcd_peer_answer(struct rp_etcd *e, uint64_t token, struct rp_span answer)
{
	struct etcd_call *c;
	size_t length;
	void *message;

	if (etcd_deliver_answer(e, token, answer, 0, ""))
		return;
	c = peer_find(e, token);
	if (!c)
		return;
	if (c->kind != ETCD_CALL_DELIVER_ONE) {
		answer_bytes(c, answer.data, answer.length);
		return;
	}
	message = rp_etcd_peer_encode_frame(answer, &length);
	answer_bytes(c, message, length);
	free(message);
}

void rp_etcd_peer_fail(struct rp_etcd *e, uint64_t token, int grpc_status, const char *text)
{
	struct etcd_call *c;

	if (etcd_deliver_answer(e, token, (struct rp_span){0}, grpc_status, text))
		return;
	c = peer_find(e, token);
	if (c)
		etcd_call_fail(c, grpc_status, text);
}

void rp_etcd_peer_proved(struct rp_etcd *e, uint64_t token, uint64_t peer_node,
	const struct rp_etcd_peer_prove_reply *reply)
{
	struct etcd_call *c = peer_find(e, token);
	size_t length;
	void *message;

	if (!c)
		return;
	if (reply->proved && c->conn) {
		c->conn->proved = true;
		c->conn->node = peer_node;
	}
	message = rp_etcd_peer_encode_prove_reply(reply, &length);
	answer_bytes(c, message, length);
	free(message);
}
