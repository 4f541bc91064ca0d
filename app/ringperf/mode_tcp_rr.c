/* SPDX-License-Identifier: Apache-2.0 */

/* A request and its reply, one under way on each connection; any host that echoes is a peer. */

#include "conns.h"

static void rr_bytes(struct conns_conn *c, uint32_t bytes, uint64_t now_ns)
{
	if (conns_reply(c, bytes))
		conns_put_idle(c);
}

static void rr_close(struct conns_conn *c, enum rp_close_reason why, uint64_t now_ns)
{
	struct conns *cs = c->conns;

	if (!cs->started)
		return;
	cs->run->why = "a connection is lost";
	cs->run->finished = true;
}

static const struct conns_ops rr_ops = {.on_bytes = rr_bytes, .on_close = rr_close};

static int rr_begin(struct perf_run *r, uint64_t now_ns)
{
	return conns_begin(r, &rr_ops, true, false, now_ns);
}

static bool rr_turn(struct perf_run *r, uint64_t now_ns)
{
	struct conns *cs = r->state;
	bool worked = false;

	if (!cs->ops || !conns_ready(cs, now_ns))
		return false;
	while (cs->idle < cs->count && perf_pace_due(&r->pace, now_ns)) {
		struct conns_conn *c = conns_take_idle(cs);
		uint64_t planned_ns = perf_pace_take(&r->pace, now_ns);

		if (!conns_send(c, r->options->size, now_ns)) {
			perf_pace_untake(&r->pace, planned_ns);
			conns_put_idle(c);
			break;
		}
		c->busy = true;
		c->got = 0;
		c->planned_ns = planned_ns;
		c->begun_ns = now_ns;
		worked = true;
	}
	conns_finish(cs, now_ns);
	return worked;
}

const struct perf_mode perf_mode_tcp_rr = {
	.name = "tcp-rr",
	.text = "a request and its reply, one under way on each connection",
	.needs = PERF_NEEDS_TRANSPORT,
	.measures = "round trip",
	.begin = rr_begin,
	.turn = rr_turn,
	.end = conns_end,
};
