/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include <base/assert.h>
#include <base/log.h>
#include <base/mbuf.h>

#include <link/chain.h>
#include "link_priv.h"

#define PING_BODY_BYTES 8

void link_bundle_up(struct link_conn *c, struct link_peer *p, uint64_t boot, uint64_t now_ns)
{
	struct rp_links *l = c->links;

	RP_ASSERT(!p->up);
	RP_ASSERT(p->conn == NULL || p->conn == c);
	if (c->state == LINK_FINISH) {
		rp_list_unlink(&c->entry);
		l->handshake_count--;
	}
	c->state = LINK_UP;
	c->peer = p;
	p->conn = c;
	p->up = true;
	p->boot = boot;
	if (++l->bundle_last == 0)
		l->bundle_last = 1;
	p->bundle = l->bundle_last;
	p->up_since_ns = p->answered_ns = p->ping_at_ns = now_ns;
	p->last_ping_ns = p->rtt_ns = 0;
	p->ping_due = p->pong_due = p->pinged = p->blocked = p->room_wanted = false;
	p->redial_wait_ns = l->config.redial_ns_min;
	p->last_refusal = RP_LINK_REFUSAL_NONE;
	if (p->dial_since_ns != 0)
		l->counters.time_to_up_ns += now_ns - p->dial_since_ns;
	p->dial_since_ns = 0;
	l->counters.handshakes_done++;
	l->counters.ups++;
	l->up_count++;
	link_arm(l, now_ns);
	RP_LOG(RP_LOG_LINK, RP_LOG_INFO, "up to node %llu over %s", (unsigned long long)p->node,
		c->conn->transport->name);
	l->ops.on_up(l->ctx, p->node, p->bundle, boot, now_ns);
}

static void queue_drop(struct link_peer *p)
{
	p->links->counters.frames_dropped += p->tail - p->head;
	while (p->head != p->tail)
		rte_pktmbuf_free(p->ring[p->head++ & p->ring_mask]);
	rte_pktmbuf_free(p->pending);
	p->pending = NULL;
}

void link_bundle_down(struct link_peer *p, enum rp_link_down why, bool orderly, uint64_t now_ns)
{
	struct rp_links *l = p->links;
	struct link_conn *c = p->conn;
	uint64_t node = p->node;

	RP_ASSERT(p->up && c);
	p->up = false;
	l->up_count--;
	l->counters.downs[why]++;
	queue_drop(p);
	rp_list_unlink(&p->dirty);
	if (orderly && c->conn)
		link_conn_close(c, now_ns);
	else
		link_conn_abort(c, now_ns);
	link_schedule_dial(p, now_ns);
	RP_LOG(RP_LOG_LINK, why == RP_LINK_DOWN_STOPPED ? RP_LOG_INFO : RP_LOG_WARNING,
		"down to node %llu: %s", (unsigned long long)node, rp_link_down_text(why));
	/* Last: the callee may remove the peer. */
	l->ops.on_down(l->ctx, node, why, now_ns);
}

void rp_links_violation(struct rp_links *l, uint64_t node, uint64_t now_ns)
{
	struct link_peer *p = link_peer_of(l, node);

	if (p && p->up)
		link_bundle_down(p, RP_LINK_DOWN_VIOLATION, false, now_ns);
}

static bool header_ok(const struct rp_frame_header *h)
{
	switch (rp_frame_routing(h->type)) {
	case RP_FRAME_ROUTE_LINK:
		return h->length == PING_BODY_BYTES;
	case RP_FRAME_ROUTE_HASH:
	case RP_FRAME_ROUTE_STREAM:
		return h->length <= RP_FRAME_LENGTH_MAX;
	case RP_FRAME_ROUTE_NONE:
	case RP_FRAME_ROUTE_RESERVED:
		break;
	}
	return false;
}

/* PING and PONG; false: an answer to what was never asked. */
static bool heartbeat_frame(
	struct link_peer *p, const struct rp_frame_header *h, uint64_t value, uint64_t now_ns)
{
	struct rp_links *l = p->links;

	if (h->type == RP_FRAME_PING) {
		/* One answer a turn, to the newest: a flood of PINGs cannot grow a queue. */
		l->counters.pings_received++;
		p->pong_due = true;
		p->pong_value = value;
		link_mark_dirty(p);
		return true;
	}
	l->counters.pongs_received++;
	if (!p->pinged || value > p->last_ping_ns)
		return false;
	if (value >= p->answered_ns) {
		p->answered_ns = value;
		p->rtt_ns = now_ns > value ? now_ns - value : 0;
		if (l->ops.on_answered)
			l->ops.on_answered(l->ctx, p->node, value, now_ns);
	}
	return true;
}

void link_bundle_receive(struct link_conn *c, uint64_t now_ns)
{
	struct rp_links *l = c->links;

	c->rx_starved = false;
	while (c->state == LINK_UP && c->rx && c->rx->pkt_len >= RP_FRAME_HEADER_BYTES) {
		uint8_t bytes[RP_FRAME_HEADER_BYTES + PING_BODY_BYTES];
		struct rp_frame_header h;
		struct rte_mbuf *frame;
		uint32_t n;

		rp_mbuf_copy_out(c->rx, 0, bytes, sizeof(bytes));
		rp_frame_header_read(&h, bytes);
		if (!header_ok(&h)) {
			link_bundle_down(c->peer, RP_LINK_DOWN_VIOLATION, false, now_ns);
			return;
		}
		n = RP_FRAME_HEADER_BYTES + h.length;
		if (c->rx->pkt_len < n)
			return;
		if (rp_frame_routing(h.type) == RP_FRAME_ROUTE_LINK) {
			struct rp_reader r =
				rp_reader_of(bytes + RP_FRAME_HEADER_BYTES, PING_BODY_BYTES);

			rp_chain_skip(&c->rx, n);
			c->conn->transport->ops->consume(c->conn, n, now_ns);
			if (!heartbeat_frame(c->peer, &h, rp_read_le64(&r), now_ns) &&
				c->state == LINK_UP)
				link_bundle_down(c->peer, RP_LINK_DOWN_VIOLATION, false, now_ns);
			continue;
		}
		frame = rp_chain_cut(l->config.pool, &c->rx, n, RP_FRAME_HEADER_BYTES);
		if (!frame) {
			l->counters.no_buffers++;
			c->rx_starved = true;
			link_arm(l, now_ns + LINK_RETRY_NS);
			return;
		}
		c->conn->transport->ops->consume(c->conn, n, now_ns);
		l->counters.frames_received++;
		l->ops.on_frame(l->ctx, c->peer->node, frame, now_ns);
	}
}

static int bundle_send(struct rp_links *l, uint64_t node, uint32_t bundle, struct rte_mbuf *frame,
	uint32_t frames_max)
{
	struct link_peer *p = link_peer_of(l, node);

	if (!p || !p->up || p->bundle != bundle) {
		l->counters.stale_frames++;
		return -ENOTCONN;
	}
	if (p->tail - p->head >= frames_max) {
		l->counters.queue_full++;
		p->room_wanted = true;
		return -EAGAIN;
	}
	p->ring[p->tail++ & p->ring_mask] = frame;
	link_mark_dirty(p);
	return 0;
}

int rp_links_send(struct rp_links *l, uint64_t node, uint32_t bundle, struct rte_mbuf *frame)
{
	return bundle_send(l, node, bundle, frame, l->config.peer_queue_frames);
}

int rp_links_send_posted(struct rp_links *l, uint64_t node, uint32_t bundle, struct rte_mbuf *frame)
{
	return bundle_send(l, node, bundle, frame, l->config.posted_frames);
}

uint32_t rp_links_room(const struct rp_links *l, uint64_t node)
{
	const struct link_peer *p = link_peer_of(l, node);

	if (!p || !p->up || p->tail - p->head >= l->config.peer_queue_frames)
		return 0;
	return l->config.peer_queue_frames - (p->tail - p->head);
}

static bool batch_heartbeat(
	struct link_peer *p, struct rp_chain_batch *batch, enum rp_frame_type type, uint64_t value)
{
	uint8_t bytes[RP_FRAME_HEADER_BYTES + PING_BODY_BYTES];
	struct rp_writer w = rp_writer_of(bytes + RP_FRAME_HEADER_BYTES, PING_BODY_BYTES);
	const struct rp_frame_header h = {.type = (uint8_t)type, .length = PING_BODY_BYTES};
	struct rte_mbuf *m;

	rp_frame_header_write(&h, bytes);
	rp_write_le64(&w, value);
	m = rp_mbuf_from(p->links->config.pool, bytes, sizeof(bytes));
	if (!m) {
		p->links->counters.no_buffers++;
		link_mark_dirty(p);
		return false;
	}
	rp_chain_join(batch, m);
	return true;
}

/* Heartbeats go ahead of what waits, so that a long queue does not look like a dead peer. */
static void batch_heartbeats(struct link_peer *p, struct rp_chain_batch *batch, uint64_t now_ns)
{
	struct rp_links *l = p->links;

	if (p->ping_due && batch_heartbeat(p, batch, RP_FRAME_PING, now_ns)) {
		p->ping_due = false;
		p->pinged = true;
		p->last_ping_ns = now_ns;
		l->counters.pings_sent++;
	}
	if (p->pong_due && batch_heartbeat(p, batch, RP_FRAME_PONG, p->pong_value)) {
		p->pong_due = false;
		if (l->ops.on_ping)
			l->ops.on_ping(l->ctx, p->node, now_ns);
	}
}

/* The next chain for the transport: at least one frame, and not more than it has space for. */
static struct rte_mbuf *batch_make(struct link_peer *p, uint64_t now_ns)
{
	struct rp_chain_batch batch = {NULL, NULL};
	uint32_t space = p->conn->conn->transport->ops->send_space(p->conn->conn);
	uint32_t bytes_max = RP_MIN(space, LINK_BATCH_BYTES_MAX);

	batch_heartbeats(p, &batch, now_ns);
	while (p->head != p->tail) {
		struct rte_mbuf *frame = p->ring[p->head & p->ring_mask];

		if (batch.first &&
			(batch.first->pkt_len + frame->pkt_len > bytes_max ||
				batch.first->nb_segs + frame->nb_segs > LINK_BATCH_SEGMENTS_MAX))
			break;
		p->head++;
		p->links->counters.frames_sent++;
		rp_chain_join(&batch, frame);
	}
	return batch.first;
}

void link_bundle_flush(struct link_peer *p, uint64_t now_ns)
{
	struct rp_links *l = p->links;
	struct rp_conn *conn = p->conn->conn;

	while (!p->blocked) {
		uint32_t n;
		int rc;

		if (!p->pending)
			p->pending = batch_make(p, now_ns);
		if (!p->pending)
			break;
		n = p->pending->pkt_len;
		rc = conn->transport->ops->send(conn, p->pending, now_ns);
		if (rc != 0) {
			/* -EPIPE: on_close() is on its way, and drops what waits. */
			p->blocked = true;
			break;
		}
		p->pending = NULL;
		l->counters.sends_batched++;
		l->counters.bytes_sent += n;
	}
	if (p->room_wanted && p->tail - p->head <= l->config.peer_queue_frames / 2) {
		p->room_wanted = false;
		l->ops.on_room(l->ctx, p->node, now_ns);
	}
}

void link_bundle_heartbeat(struct link_peer *p, uint64_t now_ns)
{
	struct rp_links *l = p->links;
	struct link_conn *c = p->conn;

	if (now_ns >= p->answered_ns + l->config.dead_after_ns) {
		link_bundle_down(p, RP_LINK_DOWN_DEAD, false, now_ns);
		return;
	}
	if (now_ns >= p->ping_at_ns) {
		p->ping_due = true;
		p->ping_at_ns = now_ns + l->config.heartbeat_ns;
		link_mark_dirty(p);
	}
	link_arm(l, RP_MIN(p->ping_at_ns, p->answered_ns + l->config.dead_after_ns));
	if (c->rx_starved) {
		c->depth++;
		link_bundle_receive(c, now_ns);
		c->depth--;
		if (c->depth == 0 && c->state == LINK_FREE)
			rp_list_push_back(&l->conns_free, &c->entry);
	}
}
