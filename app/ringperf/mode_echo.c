/* SPDX-License-Identifier: Apache-2.0 */

/* Frames back where they came from, with their hardware addresses changed over: testpmd's macswap
 * on one port. */

#include <rte_ether.h>
#include <rte_mbuf.h>

#include "frames.h"

static void swap_addresses(struct rte_mbuf *m)
{
	struct rte_ether_hdr *e = rte_pktmbuf_mtod(m, struct rte_ether_hdr *);
	struct rte_ether_addr a = e->src_addr;

	e->src_addr = e->dst_addr;
	e->dst_addr = a;
}

static void echo_frames(
	struct perf_run *r, unsigned port, struct rte_mbuf **burst, unsigned n, uint64_t now_ns)
{
	frames_count(r, port, burst, n);
	for (unsigned i = 0; i < n; i++) {
		if (i + 1 < n)
			rte_prefetch0(rte_pktmbuf_mtod(burst[i + 1], void *));
		if (burst[i]->data_len >= sizeof(struct rte_ether_hdr))
			swap_addresses(burst[i]);
	}
	frames_send(r, port, burst, n, now_ns);
}

const struct perf_mode perf_mode_echo = {
	.name = "echo",
	.text = "frames back to who sent them",
	.needs = PERF_NEEDS_FRAMES,
	.begin = frames_begin,
	.frames = echo_frames,
	.turn = frames_turn,
	.end = frames_end,
};
