/* SPDX-License-Identifier: Apache-2.0 */

/* A request through a queue of the other end, its reply through one of this. */

#include <stdlib.h>
#include <string.h>

#include "end.h"

#define REQUESTS "ringperf-requests"
#define REPLIES "ringperf-replies"
#define DRAIN_NS RP_NS_PER_S

/** What a request, and its reply, begin with; of this machine's kind at both ends. */
struct head {
	uint64_t number, planned_ns, begun_ns;
};

struct rr {
	uint64_t asked, replied;
	uint64_t seen; /**< of the latter, in earlier turns */
};

static void rr_answered(struct end *e, uint64_t token, bool good, uint64_t now_ns)
{
	struct rr *rr = e->mode;

	if (good)
		return;
	if (e->run->options->server) {
		e->run->faults++;
		return;
	}
	perf_pace_lost(&e->run->pace, token - END_TOKEN_MIN);
	rr->replied++;
}

static void on_request(struct end *e, const uint8_t *value)
{
	e->run->pace.units += 1;
	e->run->pace.ended_in_window++;
	if (!end_put(e, REPLIES, END_TOKEN_MIN, value, sizeof(struct head), e->now_ns))
		e->run->faults++;
}

static void rr_message(struct end *e, const struct end_message *m, uint64_t now_ns)
{
	struct rr *rr = e->mode;
	struct head h;

	if (e->run->options->server) {
		on_request(e, m->value);
		return;
	}
	memcpy(&h, m->value, sizeof(h));
	if (h.number != rr->replied)
		e->run->faults++;
	rr->replied++;
	perf_pace_done(
		&e->run->pace, h.planned_ns, h.begun_ns, 1, rp_clock_now(&e->run->worker->reader));
}

static bool ask(struct perf_run *r, struct end *e, uint64_t now_ns);

/* Who has its reply asks again at once, and does not wait for the next turn. */
static void rr_told(struct end *e, uint64_t now_ns)
{
	struct perf_run *r = e->run;
	struct rr *rr = e->mode;

	if (!r->options->server && r->pace.begin_ns > 0 && rr->replied > rr->seen)
		ask(r, e, rp_clock_now(&r->worker->reader));
	rr->seen = rr->replied;
}

static const struct end_ops rr_ops = {
	.answered = rr_answered, .message = rr_message, .told = rr_told};

static int rr_begin(struct perf_run *r, uint64_t now_ns)
{
	bool server = r->options->server;
	struct end *e;
	int rc;

	if (r->options->size < sizeof(struct head)) {
		r->why = "a request has 24 bytes at least";
		return -1;
	}
	rc = end_begin(r, &rr_ops, now_ns);
	e = r->state;
	if (rc)
		return rc;
	e->mode = calloc(1, sizeof(struct rr));
	if (!e->mode)
		return -1;
	end_consume(e, server ? REQUESTS : REPLIES);
	end_dispatcher(e, server ? REPLIES : REQUESTS, server ? END_CLIENT : END_SERVER);
	return 0;
}

static bool ask(struct perf_run *r, struct end *e, uint64_t now_ns)
{
	uint64_t window = r->options->window > 0 ? r->options->window : 1;
	struct rr *rr = e->mode;
	bool asked = false;

	while (rr->asked - rr->replied < window && perf_pace_due(&r->pace, now_ns)) {
		struct head h = {.number = rr->asked, .begun_ns = now_ns};

		h.planned_ns = perf_pace_take(&r->pace, now_ns);
		if (!end_put(e, REQUESTS, h.planned_ns + END_TOKEN_MIN, &h, sizeof(h), now_ns)) {
			perf_pace_untake(&r->pace, h.planned_ns);
			break;
		}
		rr->asked++;
		asked = true;
	}
	return asked;
}

static bool rr_turn(struct perf_run *r, uint64_t now_ns)
{
	const struct perf_pace_config *c = &r->pace.config;
	struct end *e = r->state;
	struct rr *rr = e->mode;
	bool worked = false;

	if (!r->options->server && end_is_up(e, now_ns)) {
		if (r->pace.begin_ns == 0) {
			perf_run_pace(r, now_ns);
			end_load_begin(e);
		}
		worked = ask(r, e, now_ns);
		if (perf_pace_over(&r->pace, now_ns))
			r->finished |=
				rr->asked == rr->replied ||
				now_ns - r->pace.begin_ns - c->warmup_ns - c->run_ns - c->cool_ns >=
					DRAIN_NS;
	}
	return end_turn(r, now_ns) || worked;
}

const struct perf_mode perf_mode_rr = {
	.name = "rr",
	.text = "a request through a queue of the other end, its reply through one of this",
	.needs = PERF_NEEDS_ENGINE,
	.measures = "round trip, put of the request to the reply's consumer",
	.begin = rr_begin,
	.frames = end_frames,
	.turn = rr_turn,
	.end = end_end,
};
