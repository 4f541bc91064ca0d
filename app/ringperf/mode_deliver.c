/* SPDX-License-Identifier: Apache-2.0 */

/* Messages one way: a producer here, the queue and its consumer at the other end. A message is over
 * when its dispatcher has answered that it has it. */

#include <stdio.h>
#include <stdlib.h>

#include "end.h"

/** Puts of one turn. */
#define TURN_MAX 64u
#define DRAIN_NS RP_NS_PER_S

struct slot {
	uint64_t planned_ns, begun_ns;
	uint32_t next; /**< of the free ones */
};

/** Those under way; a token is END_TOKEN_MIN and its index. */
struct window {
	uint32_t size, first_free, turn;
	char (*names)[32];
	struct slot slots[];
};

static const char *queue_name(char name[32], uint32_t n)
{
	snprintf(name, 32, "ringperf-%u", n);
	return name;
}

static void deliver_answered(struct end *e, uint64_t token, bool good, uint64_t now_ns)
{
	struct window *w = e->mode;
	struct slot *s = &w->slots[token - END_TOKEN_MIN];

	if (good)
		perf_pace_done(&e->run->pace, s->planned_ns, s->begun_ns, 1, now_ns);
	else
		perf_pace_lost(&e->run->pace, s->planned_ns);
	s->next = w->first_free;
	w->first_free = (uint32_t)(token - END_TOKEN_MIN);
}

static void deliver_message(struct end *e, const uint8_t *value, uint32_t length, uint64_t now_ns)
{
	e->run->pace.units += 1;
	e->run->pace.ended_in_window++;
}

static const struct end_ops deliver_ops = {
	.answered = deliver_answered, .message = deliver_message};

static int deliver_begin(struct perf_run *r, uint64_t now_ns)
{
	uint32_t size = r->options->window > 0 ? r->options->window : 1024;
	struct window *w;
	int rc = end_begin(r, &deliver_ops, now_ns);
	struct end *e = r->state;
	char name[32];

	if (rc)
		return rc;
	if (r->options->server) {
		for (uint32_t q = 0; q < r->options->queues; q++)
			end_consume(e, queue_name(name, q));
		return 0;
	}
	/* The names lie behind the slots. */
	w = malloc(
		sizeof(*w) + size * sizeof(w->slots[0]) + r->options->queues * sizeof(w->names[0]));
	if (!w)
		return -1;
	e->mode = w;
	*w = (struct window){.size = size};
	for (uint32_t i = 0; i < size; i++)
		w->slots[i].next = i + 1;
	/* Those that the server consumes; a name is the same at both ends. */
	w->names = (char(*)[32]) & w->slots[size];
	for (uint32_t q = 0; q < r->options->queues; q++)
		end_dispatcher(e, queue_name(w->names[q], q), END_SERVER);
	return 0;
}

static bool send_some(struct perf_run *r, struct end *e, uint64_t now_ns)
{
	struct window *w = e->mode;
	unsigned n;

	for (n = 0; n < TURN_MAX && w->first_free < w->size && perf_pace_due(&r->pace, now_ns);
		n++) {
		uint32_t i = w->first_free, next = w->slots[i].next;

		w->slots[i].planned_ns = perf_pace_take(&r->pace, now_ns);
		w->slots[i].begun_ns = now_ns;
		w->first_free = next;
		if (!end_put(e, w->names[w->turn++ % r->options->queues], i + END_TOKEN_MIN,
			    &now_ns, sizeof(now_ns), now_ns)) {
			perf_pace_untake(&r->pace, w->slots[i].planned_ns);
			w->slots[i].next = next;
			w->first_free = i;
			break;
		}
	}
	return n > 0;
}

static void finish(struct perf_run *r, struct end *e, uint64_t now_ns)
{
	const struct perf_pace_config *c = &r->pace.config;
	uint64_t end_ns = r->pace.begin_ns + c->warmup_ns + c->run_ns + c->cool_ns;

	if (perf_pace_over(&r->pace, now_ns))
		r->finished |= e->open == 0 || now_ns - end_ns >= DRAIN_NS;
}

static bool deliver_turn(struct perf_run *r, uint64_t now_ns)
{
	struct end *e = r->state;
	bool worked = false;

	if (!r->options->server && end_is_up(e, now_ns)) {
		if (r->pace.begin_ns == 0)
			perf_run_pace(r, now_ns);
		worked = send_some(r, e, now_ns);
		finish(r, e, now_ns);
	}
	return end_turn(r, now_ns) || worked;
}

const struct perf_mode perf_mode_deliver = {
	.name = "deliver",
	.text = "messages to a queue of the other end, and its consumer there",
	.needs = PERF_NEEDS_ENGINE,
	.measures = "put to its answer, round trip",
	.begin = deliver_begin,
	.frames = end_frames,
	.turn = deliver_turn,
	.end = end_end,
};
