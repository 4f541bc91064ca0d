/* SPDX-License-Identifier: Apache-2.0 */
#include <tcp/hot_priv.h>

void tcp_chain_append(struct tcp_chain *chain, struct rte_mbuf *m)
{
	while (m) {
		struct rte_mbuf *next = m->next;

		if (next) {
			m->next = NULL;
			m->nb_segs = 1;
		}
		m->pkt_len = m->data_len;
		if (m->data_len > 0)
			tcp_chain_push(chain, m);
		else
			rte_pktmbuf_free_seg(m);
		m = next;
	}
}

void tcp_chain_join(struct tcp_chain *to, struct tcp_chain *from)
{
	if (!from->head)
		return;
	if (to->tail)
		to->tail->next = from->head;
	else
		to->head = from->head;
	to->tail = from->tail;
	to->bytes += from->bytes;
	to->mbufs += from->mbufs;
	*from = (struct tcp_chain){0};
}

/* May bytes be put behind those of the mbuf? */
static bool chain_is_own(struct rte_mbuf *m)
{
	return RTE_MBUF_DIRECT(m) && rte_mbuf_refcnt_read(m) == 1;
}

void tcp_chain_collapse(struct tcp_chain *chain)
{
	struct rte_mbuf *m = chain->head, *next;

	while (m && (next = m->next)) {
		if (!chain_is_own(m) || next->data_len > rte_pktmbuf_tailroom(m)) {
			m = next;
			continue;
		}
		memcpy(rte_pktmbuf_mtod_offset(m, uint8_t *, m->data_len),
			rte_pktmbuf_mtod(next, const uint8_t *), next->data_len);
		m->data_len = (uint16_t)(m->data_len + next->data_len);
		m->pkt_len = m->data_len;
		m->next = next->next;
		next->next = NULL;
		rte_pktmbuf_free_seg(next);
		chain->mbufs--;
	}
	chain->tail = m;
}

struct rte_mbuf *tcp_chain_take(struct tcp_chain *chain)
{
	struct rte_mbuf *m = chain->head;

	if (m) {
		m->pkt_len = chain->bytes;
		m->nb_segs = (uint16_t)chain->mbufs;
	}
	*chain = (struct tcp_chain){0};
	return m;
}

void tcp_chain_free(struct tcp_chain *chain)
{
	rte_pktmbuf_free(tcp_chain_take(chain));
}

struct rte_mbuf *tcp_mbuf_cut(struct rte_mbuf *m, uint32_t from, uint32_t length)
{
	struct rte_mbuf *s;
	uint32_t left = length;
	uint16_t segs = 1;

	if (length == 0) {
		rte_pktmbuf_free(m);
		return NULL;
	}
	if (!m->next) {
		m->data_off = (uint16_t)(m->data_off + from);
		m->data_len = (uint16_t)length;
		m->pkt_len = length;
		m->ol_flags &= RTE_MBUF_F_INDIRECT | RTE_MBUF_F_EXTERNAL;
		return m;
	}
	while (m->data_len <= from) {
		struct rte_mbuf *next = m->next;

		from -= m->data_len;
		m->next = NULL;
		m->nb_segs = 1;
		rte_pktmbuf_free_seg(m);
		m = next;
	}
	m->data_off = (uint16_t)(m->data_off + from);
	m->data_len = (uint16_t)(m->data_len - from);
	for (s = m; s->data_len < left; s = s->next) {
		left -= s->data_len;
		segs++;
	}
	s->data_len = (uint16_t)left;
	if (s->next) {
		rte_pktmbuf_free(s->next);
		s->next = NULL;
	}
	m->nb_segs = segs;
	m->pkt_len = length;
	m->ol_flags &= RTE_MBUF_F_INDIRECT | RTE_MBUF_F_EXTERNAL;
	return m;
}

/* A new mbuf that refers to `length` bytes from `from` of one segment; NULL: pool empty. */
static struct rte_mbuf *mbuf_piece(
	struct rte_mempool *pool, struct rte_mbuf *m, uint32_t from, uint32_t length)
{
	struct rte_mbuf *piece = rte_pktmbuf_alloc(pool);

	if (!piece)
		return NULL;
	rte_pktmbuf_attach(piece, m);
	piece->data_off = (uint16_t)(m->data_off + from);
	piece->data_len = (uint16_t)length;
	piece->pkt_len = length;
	piece->ol_flags &= RTE_MBUF_F_INDIRECT | RTE_MBUF_F_EXTERNAL;
	return piece;
}

struct rte_mbuf *tcp_mbuf_slice(
	struct rte_mempool *pool, struct rte_mbuf *m, uint32_t from, uint32_t length)
{
	struct tcp_chain out = {0};

	if (from + length <= m->data_len && length > 0)
		return mbuf_piece(pool, m, from, length);
	for (; length > 0; m = m->next) {
		struct rte_mbuf *piece;
		uint32_t n;

		if (from >= m->data_len) {
			from -= m->data_len;
			continue;
		}
		n = RP_MIN(length, m->data_len - from);
		piece = mbuf_piece(pool, m, from, n);
		if (!piece) {
			tcp_chain_free(&out);
			return NULL;
		}
		tcp_chain_push(&out, piece);
		from = 0;
		length -= n;
	}
	return tcp_chain_take(&out);
}

void tcp_mbuf_ref(struct rte_mbuf *m)
{
	for (; m; m = m->next)
		rte_mbuf_refcnt_update(m, 1);
}
