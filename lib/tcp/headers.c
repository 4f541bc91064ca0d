/* SPDX-License-Identifier: Apache-2.0 */
#include <tcp/hot_priv.h>

/* Header mbufs of segments with data, kept ready. */

/* Some at once cost less; where there are so few no more, one will do. */
RP_APART void tcp_headers_more(struct rp_tcp_stack *s)
{
	struct rte_mempool *pool = s->net_config.header_pool;
	struct rte_mbuf *more[TCP_HEADERS_AHEAD / 2];
	unsigned n = RP_ARRAY_SIZE(more);

	if (rte_pktmbuf_alloc_bulk(pool, more, n)) {
		more[0] = s->header_count == 0 ? rte_pktmbuf_alloc(pool) : NULL;
		n = more[0] != NULL;
	}
	for (unsigned i = 0; i < n; i++) {
		const uint8_t *p = rte_pktmbuf_mtod(more[i], const uint8_t *);

		tcp_prefetch_write(p);
		tcp_prefetch_write(p + TCP_OUT_HEADERS + TCP_TS_BYTES - 1);
		s->headers[(s->header_first + s->header_count++) % TCP_HEADERS_AHEAD] = more[i];
	}
}

void tcp_headers_free(struct rp_tcp_stack *s)
{
	for (; s->header_count > 0; s->header_count--) {
		rte_pktmbuf_free(s->headers[s->header_first]);
		s->header_first = (s->header_first + 1) % TCP_HEADERS_AHEAD;
	}
}
