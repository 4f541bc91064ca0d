/* SPDX-License-Identifier: Apache-2.0 */

/* Frames from port to port as they are, testpmd's io; with one port, back where they came from. */

#include <rte_ether.h>
#include <rte_mbuf.h>

#include "frames.h"

static void io_frames(
	struct perf_run *r, unsigned port, struct rte_mbuf **burst, unsigned n, uint64_t now_ns)
{
	frames_count(r, port, burst, n);
	frames_send(r, frames_pair(r, port), burst, n, now_ns);
}

const struct perf_mode perf_mode_io = {
	.name = "io",
	.text = "frames from port to port, as they are",
	.needs = PERF_NEEDS_FRAMES,
	.begin = frames_begin,
	.frames = io_frames,
	.turn = frames_turn,
	.end = frames_end,
};
