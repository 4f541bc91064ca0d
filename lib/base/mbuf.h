/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Small operations on mbuf chains that several cores need. This header is the one place of base/
 * that touches DPDK: mbufs are data here, and pools come in as arguments. Chains carry pkt_len and
 * nb_segs in their first segment, as DPDK has it.
 */

#include <errno.h>
#include <stdint.h>
#include <string.h>

#include <rte_mbuf.h>

#include <base/units.h>

/** Appends `b` (take) behind `*a`; *a may be NULL. Works past DPDK's limit of segments a packet. */
static inline void rp_mbuf_append(struct rte_mbuf **a, struct rte_mbuf *b)
{
	if (!*a) {
		*a = b;
		return;
	}
	rte_pktmbuf_lastseg(*a)->next = b;
	(*a)->nb_segs = (uint16_t)((*a)->nb_segs + b->nb_segs);
	(*a)->pkt_len += b->pkt_len;
}

/** One mbuf with a buffer of its own that nobody else refers to: it may go straight to its pool. */
static inline bool rp_mbuf_is_plain(const struct rte_mbuf *m)
{
	return m && !m->next && RTE_MBUF_DIRECT(m) && rte_mbuf_refcnt_read(m) == 1 &&
	       m->nb_segs == 1;
}

/** rte_pktmbuf_free() of what is mostly one mbuf that nobody else refers to, or NULL. */
static inline void rp_mbuf_free(struct rte_mbuf *m)
{
	if (rp_mbuf_is_plain(m))
		rte_mbuf_raw_free(m);
	else
		rte_pktmbuf_free(m);
}

/** A chain from `pool` with a copy of the bytes, `headroom` kept in front; NULL when the pool is
 * empty. */
static inline struct rte_mbuf *rp_mbuf_from(
	struct rte_mempool *pool, const void *data, size_t length)
{
	const uint8_t *p = data;
	struct rte_mbuf *first = rte_pktmbuf_alloc(pool), *last = first;

	if (!first)
		return NULL;
	for (;;) {
		size_t n = RP_MIN(length, (size_t)rte_pktmbuf_tailroom(last));

		if (n > 0)
			memcpy(rte_pktmbuf_mtod_offset(last, uint8_t *, last->data_len), p, n);
		last->data_len = (uint16_t)(last->data_len + n);
		first->pkt_len += (uint32_t)n;
		p += n;
		length -= n;
		if (length == 0)
			return first;
		last->next = rte_pktmbuf_alloc(pool);
		if (!last->next) {
			rte_pktmbuf_free(first);
			return NULL;
		}
		last = last->next;
		first->nb_segs++;
	}
}

/** Copies `length` bytes from offset `offset` of the chain to `out`; how many there were. */
static inline size_t rp_mbuf_copy_out(
	const struct rte_mbuf *m, size_t offset, void *out, size_t length)
{
	uint8_t *p = out;
	size_t done = 0;

	for (; m && length > 0; m = m->next) {
		size_t n;

		if (offset >= m->data_len) {
			offset -= m->data_len;
			continue;
		}
		n = RP_MIN(length, (size_t)m->data_len - offset);
		memcpy(p + done, rte_pktmbuf_mtod_offset(m, const uint8_t *, offset), n);
		offset = 0;
		done += n;
		length -= n;
	}
	return done;
}
