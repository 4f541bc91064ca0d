/* SPDX-License-Identifier: Apache-2.0 */

/*
 * ringpost.v1.Peer.Deliver, server side: frames by a stream, for peers that have no link. Each
 * frame is answered by one with its id, in whatever order the shards are done with them.
 */
#include <stdlib.h>

#include <base/assert.h>
#include <ringpost/v1/peer.pb-c.h>

#include "etcd_priv.h"

/** Frames of one stream that are not answered; more is too fast for this node. */
#define OPEN_MAX 4096

struct deliver_stream {
	struct rp_etcd *e;
	struct rp_grpc_call *call;
	struct rp_list items;
	uint64_t node;
	uint32_t open;
	bool half_closed;
};

struct deliver_item {
	struct etcd_node node; /**< e->delivers, by its token */
	struct rp_list link;   /**< of the stream */
	struct deliver_stream *stream;
	uint64_t id;
};

static void item_free(struct deliver_item *x)
{
	x->stream->open--;
	rp_list_unlink(&x->link);
	etcd_table_remove(&x->stream->e->delivers, &x->node);
	free(x);
}

static void stream_free(struct deliver_stream *s)
{
	while (!rp_list_empty(&s->items))
		item_free(rp_list_entry(s->items.next, struct deliver_item, link));
	free(s);
}

static void on_start(struct rp_grpc_call *call, void *ctx)
{
	struct rp_etcd *e = ctx;
	const struct etcd_conn *conn = etcd_peer_is_proved(e, call);
	struct deliver_stream *s;

	if (!conn)
		return;
	s = calloc(1, sizeof(*s));
	RP_ASSERT(s != NULL);
	s->e = e;
	s->call = call;
	s->node = conn->node;
	rp_list_init(&s->items);
	rp_grpc_call_set_user(call, s);
}

static void stream_end(struct deliver_stream *s, int code, const char *text)
{
	struct rp_grpc_call *call = s->call;

	rp_grpc_call_set_user(call, NULL);
	stream_free(s);
	rp_grpc_call_finish(call, (enum rp_grpc_code)code, text);
}

static void on_message(struct rp_grpc_call *call, const uint8_t *data, size_t length, void *ctx)
{
	struct deliver_stream *s = rp_grpc_call_user(call);
	const struct rp_etcd_peer_backend *p = s->e->backend->peer;
	Ringpost__V1__Frame *m = ringpost__v1__frame__unpack(NULL, length, data);
	struct deliver_item *x;

	if (!m) {
		s->e->stats.malformed++;
		stream_end(s, RP_GRPC_INTERNAL, "peer: Frame does not decode");
		return;
	}
	if (s->open == OPEN_MAX) {
		stream_end(s, RP_GRPC_RESOURCE_EXHAUSTED, "peer: too many frames not answered");
	} else {
		x = calloc(1, sizeof(*x));
		RP_ASSERT(x != NULL);
		x->stream = s;
		x->id = m->id;
		s->open++;
		rp_list_push_back(&s->items, &x->link);
		etcd_table_add(&s->e->delivers, &x->node, ETCD_DELIVER_FLAG | ++s->e->deliver_last);
		p->deliver_one(p->ctx, x->node.key, s->node,
			(struct rp_span){m->frame.data, m->frame.len});
	}
	ringpost__v1__frame__free_unpacked(m, NULL);
}

static void on_half_close(struct rp_grpc_call *call, void *ctx)
{
	struct deliver_stream *s = rp_grpc_call_user(call);

	s->half_closed = true;
	if (s->open == 0)
		stream_end(s, RP_GRPC_OK, "");
}

static void on_cancel(struct rp_grpc_call *call, enum rp_grpc_cancel why, void *ctx)
{
	struct deliver_stream *s = rp_grpc_call_user(call);

	if (s)
		stream_free(s);
}

bool etcd_deliver_answer(
	struct rp_etcd *e, uint64_t token, struct rp_span answer, int status, const char *text)
{
	Ringpost__V1__Frame m = RINGPOST__V1__FRAME__INIT;
	struct etcd_node *n;
	struct deliver_stream *s;
	struct deliver_item *x;
	uint8_t *data;
	size_t length;

	if (!(token & ETCD_DELIVER_FLAG))
		return false;
	n = etcd_table_find(&e->delivers, token);
	if (!n) {
		e->stats.answers_dropped++;
		return true;
	}
	x = RP_CONTAINER_OF(n, struct deliver_item, node);
	s = x->stream;
	m.id = x->id;
	m.frame = etcd_bytes(answer);
	m.status = (uint32_t)status;
	m.message = (char *)text;
	item_free(x);
	length = ringpost__v1__frame__get_packed_size(&m);
	data = malloc(length + 1);
	RP_ASSERT(data != NULL);
	ringpost__v1__frame__pack(&m, data);
	if (rp_grpc_call_send_take(s->call, data, length, 0) != 0)
		stream_end(s, RP_GRPC_RESOURCE_EXHAUSTED, "peer: answers are not read");
	else if (s->half_closed && s->open == 0)
		stream_end(s, RP_GRPC_OK, "");
	return true;
}

const struct rp_grpc_call_ops etcd_deliver_ops = {
	.on_start = on_start,
	.on_message = on_message,
	.on_half_close = on_half_close,
	.on_cancel = on_cancel,
};
