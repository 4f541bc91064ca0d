/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include <tcp/hot_priv.h>

/* Below this, a piece is copied into the room behind its predecessor. */
#define SENDQ_COPY_MAX 512
/* References to so many pieces cost what one more segment does. */
#define SENDQ_WHOLE_MIN 5

/* The caller puts it into a queue. */
static inline struct tseg *tseg_new(struct rp_tcp_stack *s)
{
	struct rp_list *l = s->tseg_free.next;
	struct tseg *t = tseg_of_link(l);

	if (l == &s->tseg_free)
		return NULL;
	s->tseg_count++;
	rp_list_remove(l);
	*t = (struct tseg){0};
	rp_list_init(&t->xmit);
	return t;
}

static void tseg_free(struct rp_tcp_stack *s, struct tseg *t)
{
	if (t->flags & TSEG_OWNED) {
		t->flags = 0; /* of a SYN or a FIN: no payload */
		return;
	}
	rp_mbuf_free(t->payload);
	s->tseg_count--;
	rp_list_push_front(&s->tseg_free, &t->link);
}

static bool tseg_partial(const struct tseg *t)
{
	return t->offset != 0 || t->length != t->payload->pkt_len;
}

/* The last segment, where more may be put into it. */
static struct tseg *sendq_open_tail(struct tcp_conn *c)
{
	struct tseg *t;

	if (rp_list_empty(&c->segs))
		return NULL;
	t = tseg_of_link(c->segs.prev);
	if (t->flags & (TSEG_SENT | TSEG_FIN | TSEG_SYN | TSEG_SUM) || t->length >= c->mss ||
		tseg_partial(t))
		return NULL;
	return t;
}

static struct tseg *sendq_new_tail(struct tcp_conn *c)
{
	struct tseg *t = tseg_new(tcp_stack_of(c));

	RP_ASSERT(t); /* counted before */
	t->seq = c->queue_end;
	rp_list_push_back(&c->segs, &t->link);
	if (!c->next_unsent)
		c->next_unsent = t;
	return t;
}

static void sendq_grow(struct tcp_conn *c, struct tseg *t, uint32_t bytes)
{
	t->length += bytes;
	c->queue_end += bytes;
}

/*
 * A segment that is full is summed now: who sends has mostly just written the bytes, or read them,
 * so that they are near; when the segment goes out, a whole window of others may lie between.
 */
static RP_APART void sendq_sum_full(struct tcp_conn *c, struct tseg *t)
{
	const struct rp_tcp_stack *s = tcp_stack_of(c);

	/* A super-segment's sums are its port's. */
	if (!s->net_config.iface.tx_tso)
		tcp_tseg_sum(s, t);
}

static void sendq_link(struct tcp_conn *c, struct tseg *t, struct rte_mbuf *m)
{
	/* It may get its headers there. */
	if (!t->payload && m->data_len > SENDQ_COPY_MAX)
		tcp_prefetch_write(rte_pktmbuf_mtod_offset(m, uint8_t *, -TCP_OUT_HEADERS));
	sendq_grow(c, t, m->data_len);
	rp_mbuf_append(&t->payload, m);
	if (t->length >= c->mss)
		sendq_sum_full(c, t);
}

/* Copies up to `want` bytes from the front of m behind the segment's last mbuf; how many. */
static uint32_t sendq_copy(
	struct tcp_conn *c, struct tseg *t, const struct rte_mbuf *m, uint32_t want)
{
	struct rte_mbuf *last;

	if (want > SENDQ_COPY_MAX || !t->payload)
		return 0;
	last = rte_pktmbuf_lastseg(t->payload);
	if (!RTE_MBUF_DIRECT(last) || rte_mbuf_refcnt_read(last) != 1 ||
		rte_pktmbuf_tailroom(last) < want)
		return 0;
	memcpy(rte_pktmbuf_mtod_offset(last, uint8_t *, last->data_len),
		rte_pktmbuf_mtod(m, const uint8_t *), want);
	last->data_len = (uint16_t)(last->data_len + want);
	t->payload->pkt_len += want;
	sendq_grow(c, t, want);
	if (t->length >= c->mss)
		sendq_sum_full(c, t);
	return want;
}

/* Is the chain worth a segment that is not full in front of it, since its pieces are segments? */
static bool sendq_whole(const struct tcp_conn *c, const struct rte_mbuf *chain)
{
	unsigned whole = 0;

	if (chain->pkt_len < SENDQ_WHOLE_MIN * (uint32_t)c->mss)
		return false;
	for (; chain && whole < SENDQ_WHOLE_MIN; chain = chain->next)
		whole += chain->data_len == c->mss;
	return whole == SENDQ_WHOLE_MIN;
}

/* Puts one single-segment mbuf into the queue, cut at the borders of segments. */
static void sendq_push_mbuf(struct tcp_conn *c, struct rte_mbuf *m)
{
	struct rp_tcp_stack *s = tcp_stack_of(c);

	for (;;) {
		struct tseg *t = sendq_open_tail(c);
		struct rte_mbuf *front;
		uint32_t room, n;

		if (t && t->payload->nb_segs >= TCP_CHAIN_MAX && m->data_len > SENDQ_COPY_MAX)
			t = NULL;
		if (!t)
			t = sendq_new_tail(c);
		room = c->mss - t->length;
		n = RP_MIN(room, (uint32_t)m->data_len);
		if (sendq_copy(c, t, m, n) == n) {
			if (n == m->data_len) {
				rte_pktmbuf_free_seg(m);
				return;
			}
			rte_pktmbuf_adj(m, (uint16_t)n);
			continue;
		}
		if (t->payload && t->payload->nb_segs >= TCP_CHAIN_MAX) {
			t = sendq_new_tail(c);
			room = c->mss;
		}
		if (m->data_len <= room) {
			sendq_link(c, t, m);
			return;
		}
		front = tcp_mbuf_slice(s->net_config.payload_pool, m, 0, room);
		if (!front) {
			/* Too long for one segment now; it is cut when it is sent. */
			s->counters->alloc_failed++;
			sendq_link(c, t, m);
			return;
		}
		sendq_link(c, t, front);
		rte_pktmbuf_adj(m, (uint16_t)room);
	}
}

/* A chain others refer to cannot be relinked: it gets mbufs of its own. */
static struct rte_mbuf *sendq_unshare(struct rp_tcp_stack *s, struct rte_mbuf *chain)
{
	const struct rte_mbuf *m = chain;

	while (m && rte_mbuf_refcnt_read(m) == 1)
		m = m->next;
	return m ? tcp_mbuf_slice(s->net_config.payload_pool, chain, 0, chain->pkt_len) : chain;
}

/* The common case: one mbuf, nobody else's, that begins a segment of its own. False: it is not. */
static inline bool sendq_push_plain(struct tcp_conn *c, struct rte_mbuf *m)
{
	const struct rp_tcp_stack *s = tcp_stack_of(c);

	if (m->next || rte_mbuf_refcnt_read(m) != 1 || m->data_len == 0 || m->data_len > c->mss ||
		s->config.segments_max - s->tseg_count < 4 || sendq_open_tail(c))
		return false;
	m->ol_flags &= RTE_MBUF_F_INDIRECT | RTE_MBUF_F_EXTERNAL;
	sendq_link(c, sendq_new_tail(c), m);
	return true;
}

static RP_APART int sendq_push_chain(struct tcp_conn *c, struct rte_mbuf *chain)
{
	struct rp_tcp_stack *s = tcp_stack_of(c);
	uint32_t need = 2 + chain->pkt_len / c->mss + chain->nb_segs;
	struct rte_mbuf *own;
	bool whole;

	if (s->config.segments_max - s->tseg_count < need) {
		s->starved = true;
		return -EAGAIN;
	}
	own = sendq_unshare(s, chain);
	if (!own) {
		s->counters->alloc_failed++;
		return -ENOBUFS;
	}
	if (own != chain)
		rte_pktmbuf_free(chain);
	whole = sendq_whole(c, own);
	while (own) {
		struct rte_mbuf *next = own->next;

		own->next = NULL;
		own->nb_segs = 1;
		own->pkt_len = own->data_len;
		own->ol_flags &= RTE_MBUF_F_INDIRECT | RTE_MBUF_F_EXTERNAL;
		if (whole && own->data_len == c->mss)
			sendq_link(c, sendq_new_tail(c), own);
		else if (own->data_len > 0)
			sendq_push_mbuf(c, own);
		else
			rte_pktmbuf_free_seg(own);
		own = next;
	}
	return 0;
}

int tcp_sendq_push(struct tcp_conn *c, struct rte_mbuf *chain)
{
	return sendq_push_plain(c, chain) ? 0 : sendq_push_chain(c, chain);
}

void tcp_sendq_flag(struct tcp_conn *c, uint8_t flag)
{
	struct tseg *t = NULL;

	if (flag == TSEG_FIN && !rp_list_empty(&c->segs)) {
		t = tseg_of_link(c->segs.prev);
		if (t->flags & (TSEG_SENT | TSEG_SYN))
			t = NULL;
	}
	if (!t) {
		if (c->fin_seg.flags & TSEG_OWNED) {
			/* It still holds our SYN. */
			c->flags |= TCPF_FIN_PENDING;
			return;
		}
		t = &c->fin_seg;
		*t = (struct tseg){.flags = TSEG_OWNED, .seq = c->queue_end};
		rp_list_init(&t->xmit);
		rp_list_push_back(&c->segs, &t->link);
		if (!c->next_unsent)
			c->next_unsent = t;
	}
	t->flags |= flag;
	c->queue_end++;
	c->flags &= ~TCPF_FIN_PENDING;
}

bool tcp_sendq_split(struct tcp_conn *c, struct tseg *t, uint32_t length)
{
	struct rp_tcp_stack *s = tcp_stack_of(c);
	struct tseg *rest = tseg_new(s);

	RP_ASSERT(length > 0 && length < t->length);
	if (!rest) {
		s->counters->alloc_failed++;
		return false;
	}
	rest->payload = t->payload;
	tcp_mbuf_ref(t->payload);
	rest->xmit_ns = t->xmit_ns;
	rest->seq = t->seq + length;
	rest->length = t->length - length;
	rest->offset = t->offset + length;
	rest->flags = t->flags & ~(TSEG_SUM | TSEG_OWNED);
	rest->retransmits = t->retransmits;
	t->length = length;
	t->flags &= ~(TSEG_SUM | TSEG_FIN);
	rp_list_push_front(&t->link, &rest->link);
	if (!rp_list_empty(&t->xmit))
		rp_list_push_front(&t->xmit, &rest->xmit);
	if (rest->flags & TSEG_SACKED)
		c->sacked_count++;
	return true;
}

/* Takes `bytes` of the segment out of the sum that it is part of. */
static void sendq_discount(struct tcp_conn *c, const struct tseg *t, uint32_t bytes)
{
	if (t->flags & TSEG_SACKED)
		c->sacked_bytes -= bytes;
	else if (t->flags & TSEG_LOST)
		c->lost_bytes -= bytes;
	else if (t->flags & TSEG_SENT)
		c->pipe -= bytes;
}

void tcp_sendq_drop(struct tcp_conn *c, struct tseg *t)
{
	sendq_discount(c, t, tseg_span(t));
	if (t->flags & TSEG_SACKED)
		c->sacked_count--;
	if (c->next_unsent == t)
		c->next_unsent = t->link.next == &c->segs ? NULL : tseg_of_link(t->link.next);
	if (c->sack_hint == t)
		c->sack_hint = NULL;
	rp_list_unlink(&t->link);
	rp_list_unlink(&t->xmit);
	tseg_free(tcp_stack_of(c), t);
}

void tcp_sendq_trim(struct tcp_conn *c, struct tseg *t, uint32_t bytes)
{
	RP_ASSERT(bytes < tseg_span(t));
	sendq_discount(c, t, bytes);
	bytes = RP_MIN(bytes, t->length);
	t->seq += bytes;
	t->offset += bytes;
	t->length -= bytes;
	t->flags &= ~TSEG_SUM;
}

void tcp_sendq_free(struct tcp_conn *c)
{
	while (!rp_list_empty(&c->segs))
		tcp_sendq_drop(c, tseg_of_link(c->segs.next));
}
