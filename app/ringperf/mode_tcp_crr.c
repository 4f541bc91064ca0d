/* SPDX-License-Identifier: Apache-2.0 */

/* A connection for each request: opened, one request, its reply, closed. */

#include "conns.h"

static void crr_open(struct conns_conn *c, uint64_t now_ns)
{
	struct perf_run *r = c->conns->run;

	if (!conns_send(c, r->options->size, now_ns)) {
		perf_pace_lost(&r->pace, c->planned_ns);
		c->busy = false;
		c->c->transport->ops->close(c->c, now_ns);
	}
}

static void crr_bytes(struct conns_conn *c, uint32_t bytes, uint64_t now_ns)
{
	if (conns_reply(c, bytes))
		c->c->transport->ops->close(c->c, now_ns);
}

static void crr_close(struct conns_conn *c, enum rp_close_reason why, uint64_t now_ns)
{
	if (c->busy)
		perf_pace_lost(&c->conns->run->pace, c->planned_ns);
	c->busy = false;
	conns_put_idle(c);
}

static const struct conns_ops crr_ops = {
	.on_open = crr_open, .on_bytes = crr_bytes, .on_close = crr_close};

static int crr_begin(struct perf_run *r, uint64_t now_ns)
{
	return conns_begin(r, &crr_ops, true, true, now_ns);
}

static bool crr_turn(struct perf_run *r, uint64_t now_ns)
{
	struct conns *cs = r->state;
	bool worked = false;

	if (!cs->ops)
		return false;
	while (!r->finished && cs->idle < cs->count && perf_pace_due(&r->pace, now_ns)) {
		struct conns_conn *c = conns_take_idle(cs);

		c->planned_ns = perf_pace_take(&r->pace, now_ns);
		c->got = 0;
		c->busy = true;
		conns_dial(c, now_ns);
		worked = true;
	}
	conns_finish(cs, now_ns);
	return worked;
}

const struct perf_mode perf_mode_tcp_crr = {
	.name = "tcp-crr",
	.text = "a connection for each request and its reply",
	.needs = PERF_NEEDS_TRANSPORT,
	.measures = "round trip, the handshake in it",
	.begin = crr_begin,
	.turn = crr_turn,
	.end = conns_end,
};
