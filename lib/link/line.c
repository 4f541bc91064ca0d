/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>

#include <base/assert.h>
#include <base/log.h>
#include <base/mbuf.h>

#include <link/chain.h>
#include "link_priv.h"

#define PING_BODY_BYTES 8
#define HEARTBEAT_BYTES (RP_FRAME_HEADER_BYTES + PING_BODY_BYTES)
/* Larger frames have mbufs of their own. */
#define LINE_APPEND_BYTES_MAX 512

static struct link_line *line_create(struct link_peer *p, uint8_t link)
{
	struct link_line *line = calloc(1, sizeof(*line));
	uint32_t slots = 1;

	if (!line)
		return NULL;
	while (slots < p->links->config.posted_frames)
		slots *= 2;
	line->ring = calloc(slots, sizeof(struct rte_mbuf *));
	if (!line->ring) {
		free(line);
		return NULL;
	}
	line->ring_mask = slots - 1;
	line->peer = p;
	line->link = link;
	rp_list_init(&line->dirty);
	return line;
}

struct link_line *link_line_get(struct link_peer *p, uint8_t link)
{
	if (!p->lines[link])
		p->lines[link] = line_create(p, link);
	return p->lines[link];
}

void link_line_drop(struct link_line *line)
{
	line->peer->links->counters.frames_dropped += line->waiting;
	line->waiting = 0;
	line->open = NULL;
	while (line->head != line->tail)
		rte_pktmbuf_free(line->ring[line->head++ & line->ring_mask]);
	rte_pktmbuf_free(line->pending);
	line->pending = NULL;
	rp_list_unlink(&line->dirty);
}

void link_line_free(struct link_line *line)
{
	if (!line)
		return;
	link_line_drop(line);
	free(line->ring);
	free(line);
}

void link_line_attach(struct link_line *line, struct link_conn *c, uint32_t bundle, uint64_t now_ns)
{
	if (line->conn)
		link_conn_abort(line->conn, now_ns);
	link_line_drop(line);
	line->blocked = line->room_wanted = false;
	line->ping_due = line->pong_due = line->pinged = false;
	line->last_ping_ns = line->rtt_ns = 0;
	line->answered_ns = 0;
	line->frames_sent = line->frames_received = 0;
	line->bytes_sent = line->bytes_received = 0;
	line->conn = c;
	c->line = line;
	c->bundle = bundle;
}

void link_line_mark(struct link_line *line)
{
	if (rp_list_empty(&line->dirty))
		rp_list_push_back(&line->peer->links->dirty, &line->dirty);
}

void link_line_up(struct link_line *line, uint64_t now_ns)
{
	struct rp_links *l = line->peer->links;

	RP_ASSERT(line->conn && line->conn->state == LINK_PROVEN);
	line->conn->state = LINK_UP;
	line->answered_ns = line->ping_at_ns = now_ns;
	link_arm(l, now_ns);
	link_line_mark(line);
	RP_LOG(RP_LOG_LINK, RP_LOG_DEBUG, "link %u to node %llu is up over %s", line->link,
		(unsigned long long)line->peer->node, line->conn->conn->transport->name);
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

/* The lead is told: the last PING that was answered, by whichever side, is on any of the links. */
static void pings_told(struct link_line *line, uint64_t now_ns)
{
	struct link_peer *p = line->peer;
	struct rp_links *l = p->links;
	struct rp_link_msg m = {.type = LINK_MSG_PING,
		.node = p->node,
		.sent_ns = p->ping_sent_ns,
		.answered_ns = p->ping_answered_ns};

	if (!link_is_lead(l))
		link_post(l, l->config.lead, &m, now_ns);
}

/* PING and PONG; false: an answer to what was never asked. */
static bool heartbeat_frame(
	struct link_line *line, const struct rp_frame_header *h, uint64_t value, uint64_t now_ns)
{
	struct link_peer *p = line->peer;
	struct rp_links *l = p->links;

	if (h->type == RP_FRAME_PING) {
		/* One answer a turn, to the newest: a flood of PINGs cannot grow a queue. */
		l->counters.pings_received++;
		line->pong_due = true;
		line->pong_value = value;
		link_line_mark(line);
		return true;
	}
	l->counters.pongs_received++;
	if (!line->pinged || value > line->last_ping_ns)
		return false;
	if (value < line->answered_ns)
		return true;
	line->answered_ns = value;
	line->rtt_ns = now_ns > value ? now_ns - value : 0;
	if (value > p->ping_sent_ns) {
		p->ping_sent_ns = value;
		pings_told(line, now_ns);
		if (l->ops.on_answered)
			l->ops.on_answered(l->ctx, p->node, value, now_ns);
	}
	return true;
}

/* TLS gives the window back as it decrypts. */
static void consumed(struct link_conn *c, uint32_t n, uint64_t now_ns)
{
	if (!c->tls)
		c->conn->transport->ops->consume(c->conn, n, now_ns);
}

/* False: the link is over. */
static bool decrypted(struct link_conn *c, uint64_t now_ns)
{
	int rc = link_secure_pump(c, now_ns);

	if (rc == -ENOBUFS) {
		c->rx_starved = true;
		link_arm(c->links, now_ns + LINK_RETRY_NS);
	} else if (rc != 0) {
		link_member_lost(
			c, rc == -EPIPE ? RP_LINK_DOWN_CLOSED : RP_LINK_DOWN_VIOLATION, now_ns);
		return false;
	}
	return true;
}

/* Why no more frames were cut from what has come. */
enum line_stop {
	LINE_ALL,	/* there is no whole one left */
	LINE_FULL,	/* there may be */
	LINE_HEARTBEAT, /* the next one is the link's own */
	LINE_STARVED,	/* no buffer */
	LINE_BAD,	/* what comes next is no frame */
};

/* Frames that go up together, so that what they are about can be fetched meanwhile. */
struct line_burst {
	struct rte_mbuf *frames[RP_LINK_BURST];
	unsigned count;
	uint32_t bytes;
};

/* Header and a heartbeat's body of what comes next, in place or in `copy`; NULL: it is not there.
 */
static const uint8_t *next_head(const struct rte_mbuf *rx, uint8_t copy[HEARTBEAT_BYTES])
{
	if (!rx || rx->pkt_len < RP_FRAME_HEADER_BYTES)
		return NULL;
	if (rx->data_len >= HEARTBEAT_BYTES)
		return rte_pktmbuf_mtod(rx, const uint8_t *);
	rp_mbuf_copy_out(rx, 0, copy, HEARTBEAT_BYTES);
	return copy;
}

static enum line_stop burst_cut(struct link_conn *c, struct line_burst *b)
{
	struct rte_mempool *pool = c->links->config.pool;
	uint8_t copy[HEARTBEAT_BYTES];
	const uint8_t *head;

	while ((head = next_head(c->rx, copy)) != NULL) {
		struct rp_frame_header h;
		uint32_t n;

		rp_frame_header_read(&h, head);
		if (!header_ok(&h))
			return LINE_BAD;
		n = RP_FRAME_HEADER_BYTES + h.length;
		if (c->rx->pkt_len < n)
			break;
		if (rp_frame_routing(h.type) == RP_FRAME_ROUTE_LINK)
			return LINE_HEARTBEAT;
		if (b->count == RP_LINK_BURST)
			return LINE_FULL;
		b->frames[b->count] = rp_chain_cut(pool, &c->rx, n, RP_FRAME_HEADER_BYTES);
		if (!b->frames[b->count])
			return LINE_STARVED;
		b->count++;
		b->bytes += n;
	}
	return LINE_ALL;
}

/* A whole one is there. */
static void heartbeat_receive(struct link_conn *c, uint64_t now_ns)
{
	uint8_t copy[HEARTBEAT_BYTES];
	const uint8_t *head = next_head(c->rx, copy);
	struct rp_reader r = rp_reader_of(head + RP_FRAME_HEADER_BYTES, PING_BODY_BYTES);
	struct rp_frame_header h;
	uint64_t value = rp_read_le64(&r);

	rp_frame_header_read(&h, head);
	rp_chain_skip(&c->rx, HEARTBEAT_BYTES);
	consumed(c, HEARTBEAT_BYTES, now_ns);
	if (!heartbeat_frame(c->line, &h, value, now_ns) && c->state == LINK_UP)
		link_member_lost(c, RP_LINK_DOWN_VIOLATION, now_ns);
}

static void burst_up(struct link_conn *c, struct line_burst *b, uint64_t now_ns)
{
	struct rp_links *l = c->links;

	consumed(c, b->bytes, now_ns);
	l->counters.frames_received += b->count;
	c->line->frames_received += b->count;
	l->ops.on_frames(l->ctx, c->line->peer->node, b->frames, b->count, now_ns);
}

void link_line_receive(struct link_conn *c, uint64_t now_ns)
{
	struct rp_links *l = c->links;
	enum line_stop stop = LINE_FULL;

	c->rx_starved = false;
	if (c->tls && !decrypted(c, now_ns))
		return;
	/* What goes up may end the link. */
	while (c->state == LINK_UP && (stop == LINE_FULL || stop == LINE_HEARTBEAT)) {
		struct line_burst b;

		b.count = 0;
		b.bytes = 0;
		stop = burst_cut(c, &b);
		if (b.count > 0)
			burst_up(c, &b, now_ns);
		if (stop == LINE_HEARTBEAT && c->state == LINK_UP)
			heartbeat_receive(c, now_ns);
	}
	if (c->state != LINK_UP)
		return;
	if (stop == LINE_BAD) {
		link_member_lost(c, RP_LINK_DOWN_VIOLATION, now_ns);
	} else if (stop == LINE_STARVED) {
		l->counters.no_buffers++;
		c->rx_starved = true;
		link_arm(l, now_ns + LINK_RETRY_NS);
	}
}

/* The line of a hash, while its connection is one of `bundle`. */
static struct link_line *line_for(
	const struct rp_links *l, uint64_t node, uint32_t bundle, uint32_t hash)
{
	const struct link_peer *p = link_peer_of(l, node);
	struct link_line *line = p ? p->lines[rp_hash_pick(hash, l->config.per_peer)] : NULL;

	if (!line || !line->conn || line->conn->bundle != bundle ||
		(line->conn->state != LINK_UP && line->conn->state != LINK_PROVEN))
		return NULL;
	return line;
}

static int line_send(struct rp_links *l, uint64_t node, uint32_t bundle, uint32_t hash,
	struct rte_mbuf *frame, uint32_t frames_max)
{
	struct link_line *line = line_for(l, node, bundle, hash);

	if (!line) {
		l->counters.stale_frames++;
		return -ENOTCONN;
	}
	if (line->waiting >= frames_max) {
		l->counters.queue_full++;
		line->room_wanted = true;
		return -EAGAIN;
	}
	frame->LINK_FRAMES = 1;
	line->open = NULL;
	line->waiting++;
	line->ring[line->tail++ & line->ring_mask] = frame;
	link_line_mark(line);
	return 0;
}

/* An mbuf at the end of what waits, that small frames are written into; false: no buffer. */
static bool line_open(struct link_line *line)
{
	struct rte_mbuf *m = rte_pktmbuf_alloc(line->peer->links->config.pool);

	if (!m)
		return false;
	m->LINK_FRAMES = 0;
	line->open = m;
	line->ring[line->tail++ & line->ring_mask] = m;
	link_line_mark(line);
	return true;
}

uint8_t *rp_links_append(
	struct rp_links *l, uint64_t node, uint32_t bundle, uint32_t hash, uint32_t bytes)
{
	struct link_line *line = line_for(l, node, bundle, hash);
	struct rte_mbuf *m;
	uint8_t *at;

	if (!line || bytes > LINE_APPEND_BYTES_MAX || line->waiting >= l->config.peer_queue_frames)
		return NULL;
	if ((!line->open || rte_pktmbuf_tailroom(line->open) < bytes) && !line_open(line))
		return NULL;
	m = line->open;
	at = rte_pktmbuf_mtod_offset(m, uint8_t *, m->data_len);
	m->data_len = (uint16_t)(m->data_len + bytes);
	m->pkt_len = m->data_len;
	m->LINK_FRAMES++;
	line->waiting++;
	return at;
}

int rp_links_send(
	struct rp_links *l, uint64_t node, uint32_t bundle, uint32_t hash, struct rte_mbuf *frame)
{
	return line_send(l, node, bundle, hash, frame, l->config.peer_queue_frames);
}

int rp_links_send_posted(
	struct rp_links *l, uint64_t node, uint32_t bundle, uint32_t hash, struct rte_mbuf *frame)
{
	return line_send(l, node, bundle, hash, frame, l->config.posted_frames);
}

int rp_links_owner(const struct rp_links *l, uint64_t node, uint32_t hash)
{
	const struct link_peer *p = link_peer_of(l, node);

	return p && p->up ? p->owners[rp_hash_pick(hash, l->config.per_peer)] : -ENOTCONN;
}

uint32_t rp_links_room(const struct rp_links *l, uint64_t node, uint32_t hash)
{
	const struct link_peer *p = link_peer_of(l, node);
	const struct link_line *line = p && p->up ? line_for(l, node, p->bundle, hash) : NULL;

	if (!line || line->waiting >= l->config.peer_queue_frames)
		return 0;
	return l->config.peer_queue_frames - line->waiting;
}

static bool batch_heartbeat(struct link_line *line, struct rp_chain_batch *batch,
	enum rp_frame_type type, uint64_t value)
{
	uint8_t bytes[HEARTBEAT_BYTES];
	struct rp_writer w = rp_writer_of(bytes + RP_FRAME_HEADER_BYTES, PING_BODY_BYTES);
	const struct rp_frame_header h = {.type = (uint8_t)type, .length = PING_BODY_BYTES};
	struct rte_mbuf *m;

	rp_frame_header_write(&h, bytes);
	rp_write_le64(&w, value);
	m = rp_mbuf_from(line->peer->links->config.pool, bytes, sizeof(bytes));
	if (!m) {
		line->peer->links->counters.no_buffers++;
		link_line_mark(line);
		return false;
	}
	rp_chain_join(batch, m);
	return true;
}

/* Heartbeats go ahead of what waits, so that a long queue does not look like a dead peer. */
static void batch_heartbeats(struct link_line *line, struct rp_chain_batch *batch, uint64_t now_ns)
{
	struct link_peer *p = line->peer;
	struct rp_links *l = p->links;

	if (line->ping_due && batch_heartbeat(line, batch, RP_FRAME_PING, now_ns)) {
		line->ping_due = false;
		line->pinged = true;
		line->last_ping_ns = now_ns;
		l->counters.pings_sent++;
	}
	if (line->pong_due && batch_heartbeat(line, batch, RP_FRAME_PONG, line->pong_value)) {
		line->pong_due = false;
		if (now_ns > p->ping_answered_ns) {
			p->ping_answered_ns = now_ns;
			pings_told(line, now_ns);
			if (l->ops.on_ping)
				l->ops.on_ping(l->ctx, p->node, now_ns);
		}
	}
}

/* The next chain for the transport: at least one frame, and not more than it has space for. */
static struct rte_mbuf *batch_make(struct link_line *line, uint64_t now_ns)
{
	struct rp_chain_batch batch = {NULL, NULL};
	struct rp_conn *conn = line->conn->conn;
	uint32_t space = conn->transport->ops->send_space(conn);
	uint32_t bytes_max = RP_MIN(space, LINK_BATCH_BYTES_MAX);

	batch_heartbeats(line, &batch, now_ns);
	/* What is appended from now on is behind this. */
	line->open = NULL;
	while (line->head != line->tail) {
		struct rte_mbuf *frame = line->ring[line->head & line->ring_mask];

		if (batch.first &&
			(batch.first->pkt_len + frame->pkt_len > bytes_max ||
				batch.first->nb_segs + frame->nb_segs > LINK_BATCH_SEGMENTS_MAX))
			break;
		line->head++;
		line->waiting -= frame->LINK_FRAMES;
		line->peer->links->counters.frames_sent += frame->LINK_FRAMES;
		line->frames_sent += frame->LINK_FRAMES;
		rp_chain_join(&batch, frame);
	}
	return batch.first;
}

void link_line_flush(struct link_line *line, uint64_t now_ns)
{
	struct rp_links *l = line->peer->links;
	struct rp_conn *conn = line->conn->conn;

	while (!line->blocked) {
		bool fresh = !line->pending;
		uint32_t n;
		int rc;

		if (fresh)
			line->pending = batch_make(line, now_ns);
		if (!line->pending)
			break;
		if (fresh && line->conn->tls) {
			line->pending = link_secure_seal(line->conn, line->pending);
			/* What is sealed has its number: without a buffer there is a gap. */
			if (!line->pending) {
				link_member_lost(line->conn, RP_LINK_DOWN_NOMEM, now_ns);
				return;
			}
		}
		n = line->pending->pkt_len;
		rc = conn->transport->ops->send(conn, line->pending, now_ns);
		if (rc != 0) {
			/* -EPIPE: on_close() is on its way, and drops what waits. */
			line->blocked = true;
			break;
		}
		line->pending = NULL;
		l->counters.sends_batched++;
		l->counters.bytes_sent += n;
		line->bytes_sent += n;
	}
	if (line->room_wanted && line->waiting <= l->config.peer_queue_frames / 2) {
		line->room_wanted = false;
		l->ops.on_room(l->ctx, line->peer->node, now_ns);
	}
}

static void heartbeat(struct link_line *line, uint64_t now_ns)
{
	struct rp_links *l = line->peer->links;
	struct link_conn *c = line->conn;

	if (now_ns >= line->answered_ns + l->config.dead_after_ns) {
		link_member_lost(c, RP_LINK_DOWN_DEAD, now_ns);
		return;
	}
	if (now_ns >= line->ping_at_ns) {
		line->ping_due = true;
		line->ping_at_ns = now_ns + l->config.heartbeat_ns;
		link_line_mark(line);
	}
	link_arm(l, RP_MIN(line->ping_at_ns, line->answered_ns + l->config.dead_after_ns));
	if (c->rx_starved) {
		link_conn_enter(c);
		link_line_receive(c, now_ns);
		link_conn_leave(c);
	}
}

void link_line_poll(struct link_line *line, uint64_t now_ns)
{
	struct link_conn *c = line->conn;

	if (c->state == LINK_UP)
		heartbeat(line, now_ns);
	else if (c->state == LINK_PROVEN)
		return; /* the lead has a deadline for the whole bundle */
	else if (c->deadline_ns <= now_ns)
		link_handshake_fail(c, RP_LINK_REFUSAL_TIMEOUT, now_ns);
	else
		link_arm(line->peer->links, c->deadline_ns);
}
