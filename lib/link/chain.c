/* SPDX-License-Identifier: Apache-2.0 */
#include <base/assert.h>
#include <base/mbuf.h>

#include <link/chain.h>

/* Below this a copy is cheaper than an indirect mbuf and its reference count. */
#define CHAIN_COPY_BYTES_MAX 512

void rp_chain_skip(struct rte_mbuf **chain, uint32_t n)
{
	struct rte_mbuf *m = *chain;
	uint32_t left = m ? m->pkt_len : 0;
	uint16_t segments = m ? m->nb_segs : 0;

	RP_ASSERT(n <= left);
	left -= n;
	while (m && n >= m->data_len) {
		struct rte_mbuf *next = m->next;

		n -= m->data_len;
		m->next = NULL;
		m->nb_segs = 1;
		rte_pktmbuf_free_seg(m);
		segments--;
		m = next;
	}
	if (m) {
		m->data_off = (uint16_t)(m->data_off + n);
		m->data_len = (uint16_t)(m->data_len - n);
		m->pkt_len = left;
		m->nb_segs = segments;
	}
	*chain = m;
}

/* A copy of, or a reference to, the first `n` bytes of one segment. */
static struct rte_mbuf *chain_part(struct rte_mempool *pool, struct rte_mbuf *segment, uint32_t n)
{
	struct rte_mbuf *part = rte_pktmbuf_alloc(pool);

	if (!part)
		return NULL;
	if (n <= CHAIN_COPY_BYTES_MAX && n <= rte_pktmbuf_tailroom(part)) {
		memcpy(rte_pktmbuf_mtod(part, void *), rte_pktmbuf_mtod(segment, const void *), n);
	} else {
		rte_pktmbuf_attach(part, segment);
		part->next = NULL;
		part->nb_segs = 1;
	}
	part->data_len = (uint16_t)n;
	part->pkt_len = n;
	return part;
}

/* Puts a segment with the first `n` bytes, which lie in several, in front of the chain. */
static bool chain_gather(struct rte_mempool *pool, struct rte_mbuf **chain, uint32_t n)
{
	struct rte_mbuf *head = rte_pktmbuf_alloc(pool);

	if (!head)
		return false;
	RP_ASSERT(n <= rte_pktmbuf_tailroom(head));
	head->data_len = (uint16_t)rp_mbuf_copy_out(*chain, 0, rte_pktmbuf_mtod(head, void *), n);
	head->pkt_len = head->data_len;
	rp_chain_skip(chain, n);
	if (*chain)
		rp_mbuf_append(&head, *chain);
	*chain = head;
	return true;
}

struct rte_mbuf *rp_chain_cut(
	struct rte_mempool *pool, struct rte_mbuf **chain, uint32_t n, uint32_t contiguous)
{
	struct rte_mbuf *first = *chain, *m, *last = NULL, *part = NULL, *rest;
	uint32_t total = first->pkt_len, left = n;
	uint16_t segments = 0;

	RP_ASSERT(n > 0 && n <= total);
	/* Most often: small, and there is more behind it in its segment. */
	if (n < first->data_len && n <= CHAIN_COPY_BYTES_MAX) {
		part = chain_part(pool, first, n);
		if (!part)
			return NULL;
		first->data_off = (uint16_t)(first->data_off + n);
		first->data_len = (uint16_t)(first->data_len - n);
		first->pkt_len = total - n;
		return part;
	}
	if (first->data_len < RP_MIN(contiguous, n)) {
		if (!chain_gather(pool, chain, RP_MIN(contiguous, n)))
			return NULL;
		first = *chain;
	}
	m = first;
	while (m && left >= m->data_len) {
		left -= m->data_len;
		segments++;
		last = m;
		m = m->next;
	}
	if (left > 0) {
		part = chain_part(pool, m, left);
		if (!part)
			return NULL;
	}
	rest = m;
	if (rest) {
		rest->data_off = (uint16_t)(rest->data_off + left);
		rest->data_len = (uint16_t)(rest->data_len - left);
		rest->pkt_len = total - n;
		rest->nb_segs = (uint16_t)((*chain)->nb_segs - segments);
	}
	*chain = rest;
	if (!last)
		return part;
	last->next = part;
	first->nb_segs = (uint16_t)(segments + (part ? 1 : 0));
	first->pkt_len = n;
	return first;
}

void rp_chain_join(struct rp_chain_batch *batch, struct rte_mbuf *frame)
{
	struct rte_mbuf *last = batch->last;

	if (last && frame->nb_segs == 1 && frame->data_len <= CHAIN_COPY_BYTES_MAX &&
		RTE_MBUF_DIRECT(last) && rte_mbuf_refcnt_read(last) == 1 &&
		rte_pktmbuf_tailroom(last) >= frame->data_len) {
		memcpy(rte_pktmbuf_mtod_offset(last, uint8_t *, last->data_len),
			rte_pktmbuf_mtod(frame, const void *), frame->data_len);
		last->data_len = (uint16_t)(last->data_len + frame->data_len);
		batch->first->pkt_len += frame->data_len;
		rte_pktmbuf_free(frame);
		return;
	}
	batch->last = rte_pktmbuf_lastseg(frame);
	if (!last) {
		batch->first = frame;
		return;
	}
	last->next = frame;
	batch->first->nb_segs = (uint16_t)(batch->first->nb_segs + frame->nb_segs);
	batch->first->pkt_len += frame->pkt_len;
}
