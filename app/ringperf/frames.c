/* SPDX-License-Identifier: Apache-2.0 */
#include <rte_ether.h>
#include <rte_mbuf.h>

#include "frames.h"

void frames_count(struct perf_run *r, unsigned port, struct rte_mbuf *const *burst, unsigned n)
{
	struct perf_forward *f = &r->forward[port];

	f->rx_packets += n;
	f->bursts++;
	f->bursts_max = RP_MAX(f->bursts_max, (uint64_t)n);
	for (unsigned i = 0; i < n; i++)
		f->rx_bytes += burst[i]->pkt_len;
}

void frames_send(
	struct perf_run *r, unsigned port, struct rte_mbuf **burst, unsigned n, uint64_t now_ns)
{
	struct rp_port_queue *q = r->worker->queues[port];
	struct perf_forward *f = &r->forward[port];

	for (unsigned i = 0; i < n; i++) {
		if (rp_port_tx_room(q) == 0)
			rp_port_tx_flush(q, now_ns);
		if (rp_port_tx_room(q) == 0) {
			rte_pktmbuf_free(burst[i]);
			f->tx_dropped++;
			continue;
		}
		f->tx_packets++;
		f->tx_bytes += burst[i]->pkt_len;
		rp_port_tx(q, burst[i], now_ns);
	}
}

unsigned frames_pair(const struct perf_run *r, unsigned port)
{
	unsigned other = port ^ 1;

	return other < r->worker->port_count ? other : port;
}

/* A burst of broadcasts that any other end takes. */
static void first_burst(struct perf_run *r, unsigned port, uint64_t now_ns)
{
	const struct perf_options *o = r->options;

	for (unsigned i = 0; i < o->burst; i++) {
		struct rte_mbuf *m = rte_pktmbuf_alloc(r->worker->pool);
		struct rte_ether_hdr *e;

		if (!m)
			return;
		e = (struct rte_ether_hdr *)rte_pktmbuf_append(
			m, (uint16_t)RP_MAX(o->size, (uint32_t)RTE_ETHER_MIN_LEN));
		if (!e) {
			rte_pktmbuf_free(m);
			return;
		}
		memset(&e->dst_addr, 0xff, sizeof(e->dst_addr));
		memcpy(&e->src_addr, r->worker->mac, sizeof(e->src_addr));
		e->ether_type = RTE_BE16(PERF_ETHER_TYPE);
		frames_send(r, port, &m, 1, now_ns);
	}
}

int frames_begin(struct perf_run *r, uint64_t now_ns)
{
	if (r->worker->port_count == 0) {
		r->why = "frames need a port: --device";
		return -1;
	}
	for (unsigned p = 0; r->tx_first && p < r->worker->port_count; p++)
		first_burst(r, p, now_ns);
	return 0;
}

bool frames_turn(struct perf_run *r, uint64_t now_ns)
{
	if (r->options->run_set && now_ns - r->begun_ns >= r->options->run_ns)
		r->finished = true;
	return false;
}

void frames_end(struct perf_run *r, uint64_t now_ns)
{
}
