/* SPDX-License-Identifier: Apache-2.0 */

/* Bytes one way over each connection; any host that reads is a peer. What the transport takes is
 * counted: a peer that does not read stops it. */

#include "conns.h"

/** Messages of one turn. */
#define TURN_MAX 64u

static void stream_close(struct conns_conn *c, enum rp_close_reason why, uint64_t now_ns)
{
	struct conns *cs = c->conns;

	if (!cs->started)
		return;
	cs->run->why = "a connection is lost";
	cs->run->finished = true;
}

static const struct conns_ops stream_ops = {.on_close = stream_close};

static int stream_begin(struct perf_run *r, uint64_t now_ns)
{
	return conns_begin(r, &stream_ops, false, false, now_ns);
}

static bool stream_turn(struct perf_run *r, uint64_t now_ns)
{
	struct conns *cs = r->state;
	unsigned sent = 0, full = 0;

	if (!cs->ops || !conns_ready(cs, now_ns))
		return false;
	while (sent < TURN_MAX && full < cs->count && perf_pace_due(&r->pace, now_ns)) {
		struct conns_conn *c = &cs->all[cs->turn++ % cs->count];
		uint64_t planned_ns = perf_pace_take(&r->pace, now_ns);

		if (c->c->transport->ops->send_space(c->c) < r->options->size ||
			!conns_send(c, r->options->size, now_ns)) {
			perf_pace_untake(&r->pace, planned_ns);
			full++;
			continue;
		}
		sent++;
		perf_pace_done(&r->pace, planned_ns, now_ns, r->options->size, now_ns);
	}
	conns_finish(cs, now_ns);
	return sent > 0;
}

const struct perf_mode perf_mode_tcp_stream = {
	.name = "tcp-stream",
	.text = "bytes one way",
	.needs = PERF_NEEDS_TRANSPORT,
	.unit = "bytes",
	.begin = stream_begin,
	.turn = stream_turn,
	.end = conns_end,
};
