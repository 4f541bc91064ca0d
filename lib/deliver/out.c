/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include <base/assert.h>
#include <base/mbuf.h>
#include <link/chain.h>

#include "deliver_priv.h"

/* True: the frame is gone from here, sent or dropped. */
static bool frame_try(struct dl_peer *p, uint32_t hash, struct rte_mbuf *frame)
{
	struct rp_deliver *d = p->d;
	int rc = p->up && !p->gone ? d->ops.frame_out(d->ctx, p->node, p->bundle, hash, frame)
				   : -ENOTCONN;

	if (rc == 0) {
		d->counters.frames_out++;
		return true;
	}
	if (rc == -EAGAIN)
		return false;
	/* The bundle is gone: peer_down() is on its way, and what matters is sent again. */
	p->gone = true;
	d->counters.frames_unsent++;
	rte_pktmbuf_free(frame);
	return true;
}

void dl_emit(struct dl_peer *p, uint32_t hash, struct rte_mbuf *frame)
{
	if (!p->blocked && frame_try(p, hash, frame))
		return;
	p->blocked = true;
	RP_ASSERT(p->backlog_count < RP_ARRAY_SIZE(p->backlog));
	p->backlog[p->backlog_count++] = (struct dl_held_frame){frame, hash};
}

void dl_backlog_flush(struct dl_peer *p)
{
	uint32_t done = 0;

	while (done < p->backlog_count &&
		frame_try(p, p->backlog[done].hash, p->backlog[done].frame))
		done++;
	memmove(p->backlog, p->backlog + done, (p->backlog_count - done) * sizeof(p->backlog[0]));
	p->backlog_count -= done;
	p->blocked = p->backlog_count > 0;
}

void dl_backlog_drop(struct dl_peer *p)
{
	p->d->counters.frames_unsent += p->backlog_count;
	while (p->backlog_count > 0)
		rte_pktmbuf_free(p->backlog[--p->backlog_count].frame);
	p->blocked = false;
}

/* Where a small frame may be written for the link; NULL: it goes as an mbuf of its own. */
static uint8_t *frame_room(struct dl_peer *p, uint32_t hash, uint32_t bytes)
{
	struct rp_deliver *d = p->d;
	uint8_t *room;

	if (!d->ops.frame_room || p->blocked || !p->up || p->gone)
		return NULL;
	room = d->ops.frame_room(d->ctx, p->node, p->bundle, hash, bytes);
	d->counters.frames_out += room != NULL;
	return room;
}

bool dl_emit_small(struct dl_peer *p, uint32_t hash, struct rp_frame_header *h, const void *body,
	uint32_t length)
{
	uint8_t bytes[DL_HEAD_BYTES_MAX], *room;
	struct rte_mbuf *frame;

	RP_ASSERT(length <= RP_FRAME_FIELDS_BYTES_MAX);
	h->length = length;
	room = frame_room(p, hash, RP_FRAME_HEADER_BYTES + length);
	if (room) {
		rp_frame_header_write(h, room);
		if (length > 0)
			memcpy(room + RP_FRAME_HEADER_BYTES, body, length);
		return true;
	}
	rp_frame_header_write(h, bytes);
	if (length > 0)
		memcpy(bytes + RP_FRAME_HEADER_BYTES, body, length);
	frame = rp_mbuf_from(p->d->config.pool, bytes, RP_FRAME_HEADER_BYTES + length);
	if (!frame) {
		p->d->counters.no_buffers++;
		return false;
	}
	dl_emit(p, hash, frame);
	return true;
}

static void cursor_settle(struct dl_cursor *c)
{
	while (c->segment && c->offset == c->segment->data_len) {
		c->segment = c->segment->next;
		c->offset = 0;
	}
}

/* The next piece of payload within one segment, as a reference. */
static struct rte_mbuf *cursor_reference(struct rp_deliver *d, struct dl_cursor *c, uint32_t n)
{
	struct rte_mbuf *m = rte_pktmbuf_alloc(d->config.pool);

	if (!m)
		return NULL;
	rte_pktmbuf_attach(m, c->segment);
	m->next = NULL;
	m->nb_segs = 1;
	m->data_off = (uint16_t)(m->data_off + c->offset);
	m->data_len = (uint16_t)n;
	m->pkt_len = n;
	return m;
}

struct rte_mbuf *dl_frame_build(struct rp_deliver *d, const uint8_t *head, uint32_t head_length,
	struct dl_cursor *cursor, uint32_t n)
{
	struct rte_mbuf *frame = rp_mbuf_from(d->config.pool, head, head_length), *last = frame;
	struct dl_cursor c = *cursor;
	bool copy = n <= DL_COPY_BYTES_MAX;

	if (!frame) {
		d->counters.no_buffers++;
		return NULL;
	}
	c.left -= n;
	while (n > 0) {
		struct rte_mbuf *part;
		uint32_t take;

		cursor_settle(&c);
		RP_ASSERT(c.segment);
		take = RP_MIN(n, c.segment->data_len - c.offset);
		if (copy && take <= rte_pktmbuf_tailroom(last)) {
			memcpy(rte_pktmbuf_mtod_offset(last, uint8_t *, last->data_len),
				rte_pktmbuf_mtod_offset(c.segment, const uint8_t *, c.offset),
				take);
			last->data_len = (uint16_t)(last->data_len + take);
		} else {
			part = cursor_reference(d, &c, take);
			if (!part) {
				d->counters.no_buffers++;
				rte_pktmbuf_free(frame);
				return NULL;
			}
			last->next = part;
			last = part;
			frame->nb_segs++;
			copy = false;
		}
		frame->pkt_len += take;
		c.offset += take;
		n -= take;
	}
	*cursor = c;
	return frame;
}

/* The time in which it waited here is taken off as well. */
static uint32_t process_head(struct rp_deliver *d, const struct dl_msg *m,
	struct rp_frame_header *h, const struct dl_extra *extra, bool with_name, uint8_t *head)
{
	struct rp_qmsg q = m->q;

	q.process.left_us = rp_process_left_us(q.process.left_us, q.process.left_ns, d->now_ns);
	return dl_encode(h, &q, extra, with_name, head);
}

/* Header and fields of a message's next frame, with `n` of its bytes that are left; their length.
 */
static uint32_t head_write(struct rp_deliver *d, const struct dl_msg *m, struct rp_frame_header *h,
	bool started, uint32_t n, uint32_t left, const struct dl_extra *extra, bool with_name,
	uint8_t *head)
{
	RP_ASSERT(n <= left);
	h->flags = n < left ? RP_FRAME_MORE : 0;
	h->length = n;
	if (!started && m->q.process.kind)
		return process_head(d, m, h, extra, with_name, head);
	if (!started)
		return dl_encode(h, &m->q, extra, with_name, head);
	h->type = dl_frame_type(m->q.type);
	h->flags |= RP_FRAME_CONT;
	h->epoch = m->q.epoch;
	h->dispatcher = m->q.dispatcher;
	rp_frame_header_write(h, head);
	return RP_FRAME_HEADER_BYTES;
}

static struct dl_cursor cursor_of(
	const struct dl_msg *m, const struct dl_cursor *cursor, bool started)
{
	if (started)
		return *cursor;
	return (struct dl_cursor){.segment = m->q.payload, .left = m->bytes};
}

static void cursor_copy(struct dl_cursor *c, uint8_t *out, uint32_t n)
{
	c->left -= n;
	while (n > 0) {
		uint32_t take;

		cursor_settle(c);
		RP_ASSERT(c->segment);
		take = RP_MIN(n, c->segment->data_len - c->offset);
		memcpy(out, rte_pktmbuf_mtod_offset(c->segment, const uint8_t *, c->offset), take);
		c->offset += take;
		out += take;
		n -= take;
	}
}

bool dl_frame_send(struct dl_peer *p, const struct dl_msg *m, struct rp_frame_header *h,
	struct dl_cursor *cursor, bool *started, uint32_t n, const struct dl_extra *extra,
	bool with_name)
{
	uint8_t head[DL_HEAD_BYTES_MAX], *room = NULL;
	struct dl_cursor c = cursor_of(m, cursor, *started);
	uint32_t length = head_write(p->d, m, h, *started, n, c.left, extra, with_name, head);
	struct rte_mbuf *frame;

	if (n <= DL_COPY_BYTES_MAX)
		room = frame_room(p, m->q.hash, length + n);
	if (room) {
		memcpy(room, head, length);
		cursor_copy(&c, room + length, n);
	} else {
		frame = dl_frame_build(p->d, head, length, &c, n);
		if (!frame)
			return false;
		dl_emit(p, m->q.hash, frame);
	}
	*cursor = c;
	*started = true;
	return true;
}

bool dl_payload_move(struct rp_deliver *d, struct rte_mbuf **to, struct rte_mbuf *from)
{
	struct rte_mbuf *first = NULL, *last = NULL;

	for (struct rte_mbuf *s = from; s; s = s->next) {
		for (uint32_t at = 0; at < s->data_len;) {
			uint32_t n;

			if (!last || rte_pktmbuf_tailroom(last) == 0) {
				struct rte_mbuf *m = rte_pktmbuf_alloc(d->config.payload_pool);

				if (!m) {
					d->counters.no_buffers++;
					rte_pktmbuf_free(first);
					return false;
				}
				last = m;
				rp_mbuf_append(&first, m);
			}
			n = RP_MIN((uint32_t)rte_pktmbuf_tailroom(last), s->data_len - at);
			memcpy(rte_pktmbuf_mtod_offset(last, uint8_t *, last->data_len),
				rte_pktmbuf_mtod_offset(s, const uint8_t *, at), n);
			last->data_len = (uint16_t)(last->data_len + n);
			first->pkt_len += n;
			at += n;
		}
	}
	if (first)
		rp_mbuf_append(to, first);
	return true;
}

bool dl_payload_gather(struct rp_deliver *d, struct rte_mbuf **payload, uint32_t n)
{
	struct rte_mbuf *head;

	if (n == 0 || (*payload)->data_len >= n)
		return true;
	head = rte_pktmbuf_alloc(d->config.payload_pool);
	if (!head) {
		d->counters.no_buffers++;
		return false;
	}
	head->data_len = (uint16_t)rp_mbuf_copy_out(*payload, 0, rte_pktmbuf_mtod(head, void *), n);
	head->pkt_len = head->data_len;
	rp_chain_skip(payload, n);
	if (*payload)
		rp_mbuf_append(&head, *payload);
	*payload = head;
	return true;
}
