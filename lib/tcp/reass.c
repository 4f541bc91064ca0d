/* SPDX-License-Identifier: Apache-2.0 */
#include <tcp/hot_priv.h>

#define ooo_of(l) rp_list_entry(l, struct tcp_ooo, link)
#define DATA_GAP_ACKS 16u

static void ooo_mbufs_gone(struct tcp_conn *c, uint32_t n)
{
	c->ooo_mbufs -= n;
	tcp_stack_of(c)->ooo_mbufs -= n;
}

static bool ooo_has_room(const struct tcp_conn *c, uint32_t n)
{
	const struct rp_tcp_stack *s = tcp_stack_of(c);
	uint32_t left = s->config.ooo_mbufs_total - RP_MIN(s->ooo_mbufs, s->config.ooo_mbufs_total);

	return c->ooo_mbufs + n <= RP_MIN(s->config.ooo_mbufs_max, left);
}

static void ooo_drop(struct tcp_conn *c, struct tcp_ooo *o)
{
	struct rp_tcp_stack *s = tcp_stack_of(c);

	c->ooo_count--;
	c->ooo_bytes -= o->end - o->start;
	ooo_mbufs_gone(c, o->chain.mbufs);
	tcp_chain_free(&o->chain);
	rp_list_unlink(&o->link);
	rp_list_push_front(&s->ooo_free, &o->link);
	s->ooo_count--;
}

void tcp_ooo_free(struct tcp_conn *c)
{
	while (!rp_list_empty(&c->ooo))
		ooo_drop(c, ooo_of(c->ooo.next));
}

uint32_t tcp_ooo_end(const struct tcp_conn *c)
{
	return ooo_of(c->ooo.prev)->end;
}

static struct tcp_ooo *ooo_new(struct tcp_conn *c, struct tcp_ooo *after)
{
	struct rp_tcp_stack *s = tcp_stack_of(c);
	struct rp_list *l;

	if (c->ooo_count >= s->config.ooo_ranges_max)
		return NULL;
	l = rp_list_pop_front(&s->ooo_free);
	if (!l)
		return NULL;
	s->ooo_count++;
	c->ooo_count++;
	ooo_of(l)->chain = (struct tcp_chain){0};
	ooo_of(l)->collapse_at = TCP_COLLAPSE_MIN;
	rp_list_push_front(after ? &after->link : &c->ooo, l);
	return ooo_of(l);
}

/* `a` ends where `b` begins: one range less. */
static void ooo_merge(struct tcp_conn *c, struct tcp_ooo *a, struct tcp_ooo *b)
{
	struct rp_tcp_stack *s = tcp_stack_of(c);

	tcp_chain_join(&a->chain, &b->chain);
	a->end = b->end;
	a->stamp = RP_MAX(a->stamp, b->stamp);
	a->collapse_at = RP_MAX(a->collapse_at, b->collapse_at);
	c->ooo_count--;
	s->ooo_count--;
	rp_list_unlink(&b->link);
	rp_list_push_front(&s->ooo_free, &b->link);
}

/*
 * A peer that sends a few bytes a segment would have each of them hold a buffer. Not looked at
 * again before there are twice as many: some cannot be put together.
 */
static void ooo_collapse(struct tcp_conn *c, struct tcp_ooo *o)
{
	uint32_t mbufs = o->chain.mbufs;

	if (mbufs < o->collapse_at || !tcp_chain_sparse(&o->chain, c->rcv_mss))
		return;
	tcp_chain_collapse(&o->chain);
	ooo_mbufs_gone(c, mbufs - o->chain.mbufs);
	o->collapse_at = TCP_COLLAPSE_MIN + 2 * o->chain.mbufs;
}

/*
 * Puts bytes [start, start + m->pkt_len) that no range holds behind `prev` (NULL: in front). Take.
 * Returns the range they are in now, or NULL where there is no record.
 */
static struct tcp_ooo *ooo_insert(
	struct tcp_conn *c, struct tcp_ooo *prev, uint32_t start, struct rte_mbuf *m)
{
	struct tcp_ooo *o = prev, *next;
	uint32_t bytes = m->pkt_len, mbufs;

	if (!prev || prev->end != start) {
		o = ooo_new(c, prev);
		if (!o) {
			rte_pktmbuf_free(m);
			return NULL;
		}
		o->start = o->end = start;
	}
	mbufs = o->chain.mbufs;
	tcp_chain_append(&o->chain, m);
	c->ooo_mbufs += o->chain.mbufs - mbufs;
	tcp_stack_of(c)->ooo_mbufs += o->chain.mbufs - mbufs;
	c->ooo_bytes += bytes;
	o->end += bytes;
	o->stamp = ++c->ooo_stamp;
	next = o->link.next == &c->ooo ? NULL : ooo_of(o->link.next);
	if (next && next->start == o->end)
		ooo_merge(c, o, next);
	ooo_collapse(c, o);
	return o;
}

/* The first part of a segment that is there already is reported (RFC 2883 4). */
static void ooo_duplicate(struct tcp_conn *c, uint32_t start, uint32_t end)
{
	if (start == end || c->flags & TCPF_DSACK)
		return;
	c->dsack = (struct tcp_range){start, end};
	c->flags |= TCPF_DSACK;
}

/* What of the segment nobody has yet is kept; the bytes that came first stay. Takes m. */
static bool ooo_add(struct tcp_conn *c, uint32_t start, struct rte_mbuf *m)
{
	struct rp_tcp_stack *s = tcp_stack_of(c);
	struct tcp_ooo *prev = NULL, *next;
	struct rp_list *l;
	bool added = false;

	rp_list_foreach (l, &c->ooo) {
		if (rp_seq_gt(ooo_of(l)->start, start))
			break;
		prev = ooo_of(l);
	}
	while (m) {
		uint32_t end = start + m->pkt_len, skip = 0, take;
		struct rte_mbuf *piece = m;

		if (prev && rp_seq_gt(prev->end, start))
			skip = RP_MIN(prev->end - start, m->pkt_len);
		ooo_duplicate(c, start, start + skip);
		m = tcp_mbuf_cut(m, skip, m->pkt_len - skip);
		if (!m)
			break;
		start += skip;
		l = prev ? prev->link.next : c->ooo.next;
		next = l == &c->ooo ? NULL : ooo_of(l);
		take = next ? rp_seq_min(end, next->start) - start : end - start;
		piece = m;
		m = NULL;
		if (take < piece->pkt_len) {
			ooo_duplicate(c, next->start, rp_seq_min(end, next->end));
			/* The rest begins within what is there; only if it goes on behind is it
			 * wanted. */
			if (rp_seq_gt(end, next->end))
				m = tcp_mbuf_slice(s->net_config.payload_pool, piece,
					next->end - start, end - next->end);
			piece = tcp_mbuf_cut(piece, 0, take);
		}
		prev = ooo_insert(c, prev, start, piece);
		if (!prev) {
			rte_pktmbuf_free(m);
			return added;
		}
		added = true;
		/* The piece reached up to `next`, so that is part of `prev` now. */
		if (m)
			start = end - m->pkt_len;
	}
	return added;
}

/* In order now: what was waiting behind the gap that has closed. */
static void ooo_drain(struct tcp_conn *c)
{
	while (!rp_list_empty(&c->ooo)) {
		struct tcp_ooo *o = ooo_of(c->ooo.next);
		uint32_t skip;

		if (rp_seq_gt(o->start, c->rcv_nxt))
			return;
		skip = c->rcv_nxt - o->start;
		if (skip < o->end - o->start) {
			uint32_t mbufs = o->chain.mbufs;
			struct rte_mbuf *m = tcp_chain_take(&o->chain);

			ooo_mbufs_gone(c, mbufs);
			c->rcv_nxt = o->end;
			if (skip > 0)
				m = tcp_mbuf_cut(m, skip, m->pkt_len - skip);
			tcp_chain_append(&c->rx, m);
		}
		ooo_drop(c, o);
	}
}

/*
 * The part of an in-order segment that lies before the first range; what reaches beyond is put
 * between the ranges, since their bytes came first.
 */
static struct rte_mbuf *data_before_ranges(struct tcp_conn *c, uint32_t start, struct rte_mbuf *m)
{
	uint32_t front = ooo_of(c->ooo.next)->start - start;
	struct rte_mbuf *rest;

	if (front >= m->pkt_len)
		return m;
	rest = tcp_mbuf_slice(
		tcp_stack_of(c)->net_config.payload_pool, m, front, m->pkt_len - front);
	if (rest)
		ooo_add(c, start + front, rest);
	return tcp_mbuf_cut(m, 0, front);
}

void tcp_note_duplicate(struct tcp_conn *c, uint32_t start, uint32_t end, uint64_t now_ns)
{
	if (!(c->flags & TCPF_SACK) || start == end)
		return;
	if (c->flags & TCPF_DSACK) {
		if (c->dsack.end == start) {
			c->dsack.end = end;
			return;
		}
		/* Each duplicate is worth telling: the sender counts them to undo a false recovery.
		 */
		tcp_send_control(c, c->snd_nxt, TCP_ACK, now_ns);
	}
	c->flags |= TCPF_DSACK;
	c->dsack = (struct tcp_range){start, end};
}

/*
 * Something is missing, or was until now: an acknowledgement goes at once (RFC 5681 4.2). Between
 * appliances those of the next segments do as well, each: where segments are lost windows are a few
 * segments, and with every second one the last of an odd number waits for a round trip.
 */
static void data_gap(struct tcp_conn *c)
{
	c->flags |= TCPF_ACK_NOW;
	if (c->ack_delay_max_ns <= TCP_NEAR_DELAY_NS)
		c->quick_acks = RP_MAX(c->quick_acks, DATA_GAP_ACKS);
}

/* rcv_nxt has moved: is an acknowledgement due, now or later? (RFC 5681 4.2) */
static inline void data_ack(struct tcp_conn *c, uint64_t now_ns)
{
	if (c->rcv_nxt - c->last_ack_sent >= 2u * c->rcv_mss) {
		c->flags |= TCPF_ACK_NOW;
	} else if (c->quick_acks > 0) {
		c->quick_acks--;
		c->flags |= TCPF_ACK_NOW;
	}
	if (c->flags & TCPF_ACK_DELAYED) {
		if (c->ack_second)
			c->flags |= TCPF_ACK_NOW;
	} else {
		c->flags |= TCPF_ACK_DELAYED;
		c->ack_deadline_ns = now_ns + c->ack_delay_max_ns;
	}
}

/* Everything but: one mbuf, in order, while nothing is out of order. Takes m. */
static RP_APART void data_other(
	struct tcp_conn *c, struct tcp_segment_in *in, struct rte_mbuf *m, uint64_t now_ns)
{
	struct rp_tcp_stack *s = tcp_stack_of(c);
	uint32_t start = in->seq, skip = 0, length = in->length;

	if (rp_seq_lt(start, c->rcv_nxt)) {
		skip = RP_MIN(c->rcv_nxt - start, length);
		tcp_note_duplicate(c, start, start + skip, now_ns);
		c->flags |= TCPF_ACK_NOW;
	}
	m = tcp_mbuf_cut(m, in->header_bytes + skip, length - skip);
	if (!m) {
		s->counters->drop_duplicate++;
		return;
	}
	start += skip;
	if (c->rx.mbufs + m->nb_segs > UINT16_MAX - s->config.ooo_mbufs_max) {
		s->counters->drop_ooo_limit++; /* nobody has polled for a long time */
		rte_pktmbuf_free(m);
		return;
	}
	if (start != c->rcv_nxt) {
		data_gap(c);
		if (!ooo_has_room(c, m->nb_segs)) {
			s->counters->drop_ooo_limit++;
			rte_pktmbuf_free(m);
			return;
		}
		if (ooo_add(c, start, m))
			s->counters->ooo_segments++;
		else if (c->flags & TCPF_DSACK)
			s->counters->drop_duplicate++;
		else
			s->counters->drop_ooo_limit++;
		return;
	}
	if (c->ooo_count > 0) {
		data_gap(c); /* it fills it, or a part */
		m = data_before_ranges(c, start, m);
	}
	c->rcv_nxt += m->pkt_len;
	tcp_chain_append(&c->rx, m);
	ooo_drain(c);
	data_ack(c, now_ns);
}

void tcp_data(struct tcp_conn *c, struct tcp_segment_in *in, uint64_t now_ns)
{
	const struct rp_tcp_config *config = &tcp_stack_of(c)->config;
	struct rte_mbuf *m = in->m;

	in->m = NULL;
	if (in->length > c->rcv_mss)
		c->rcv_mss = (uint16_t)RP_MIN(in->length, config->net.iface.mtu - 40u);
	if (in->seq != c->rcv_nxt || c->ooo_count > 0 || m->next ||
		c->rx.mbufs >= UINT16_MAX - config->ooo_mbufs_max) {
		data_other(c, in, m, now_ns);
		return;
	}
	m->data_off = (uint16_t)(m->data_off + in->header_bytes);
	m->data_len = (uint16_t)in->length;
	m->pkt_len = in->length;
	m->ol_flags &= RTE_MBUF_F_INDIRECT | RTE_MBUF_F_EXTERNAL;
	c->rcv_nxt += in->length;
	tcp_chain_push(&c->rx, m);
	data_ack(c, now_ns);
}

unsigned tcp_sack_blocks(const struct tcp_conn *c, struct tcp_range *out, unsigned max)
{
	uint32_t below = UINT32_MAX;
	unsigned n = 0;

	if (c->flags & TCPF_DSACK && max > 0)
		out[n++] = c->dsack;
	/* The most recent ones, by stamps that all differ. */
	while (n < max) {
		const struct tcp_ooo *best = NULL;
		const struct rp_list *l;

		rp_list_foreach (l, &c->ooo) {
			const struct tcp_ooo *o = ooo_of(l);

			if (o->stamp < below && (!best || o->stamp > best->stamp))
				best = o;
		}
		if (!best)
			break;
		below = best->stamp;
		out[n++] = (struct tcp_range){best->start, best->end};
	}
	return n;
}
