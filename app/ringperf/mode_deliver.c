/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Messages one way: a producer here, the queue and its consumer at the other end. A message is over
 * when its dispatcher has answered that it has it. When it came to its consumer only the other end
 * knows: it keeps those times, and at the end of a run the client asks for them, by queues as well.
 * They mean something where both ends read the same clock.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <base/fnv.h>

#include "end.h"
#include "result.h"

/** Puts of one turn. */
#define TURN_MAX 64u
#define DRAIN_NS RP_NS_PER_S
/** The server reads its clock for so many messages at once. */
#define CLOCK_MESSAGES 8u
/** Where the client asks, and where it is told. */
#define ASK_QUEUE "ringperf-ask"
#define TELL_QUEUE "ringperf-tell"

/** What a message begins with, as far as it is so long; of the client's machine's kind. */
struct head {
	uint64_t run;
	uint64_t planned_ns; /**< 0: it does not count */
	uint64_t begun_ns;
};

struct question {
	uint64_t run, clock;
};

struct told {
	uint64_t run, same_clock;
	struct perf_times corrected, raw;
	struct perf_load load;
};
_Static_assert(sizeof(struct told) <= END_HEAD_BYTES, "it lies in one piece");

struct slot {
	uint64_t planned_ns, begun_ns;
	uint32_t next; /**< of the free ones */
};

/** Those under way; a token is END_TOKEN_MIN and its index. The one behind them is the question's.
 */
struct window {
	uint64_t run;
	uint32_t size, first_free, turn;
	bool asked;
	uint64_t asked_ns;
	char (*names)[32];
	struct slot slots[];
};

/** The server's. */
struct served {
	uint64_t run, now_ns;
	unsigned clocked;
};

static const char *queue_name(char name[32], uint32_t n)
{
	snprintf(name, 32, "ringperf-%u", n);
	return name;
}

/* What names the clock that CLOCK_MONOTONIC is here: this start of the machine, and the time
 * namespace. 0: not known. */
static uint64_t clock_name(void)
{
	char text[128] = "";
	FILE *f = fopen("/proc/sys/kernel/random/boot_id", "r");
	ssize_t n = f && fgets(text, 64, f) ? (ssize_t)strlen(text) : 0, m = 0;

	if (f)
		fclose(f);
	if (n > 0)
		m = readlink("/proc/self/ns/time", text + n, sizeof(text) - (size_t)n);
	if (n == 0)
		return 0;
	return rp_fnv1a(RP_FNV1A_BASIS, text, (size_t)(n + RP_MAX(m, 0))) | 1;
}

/* ---- the server ---- */

static void served_begin(struct end *e, uint64_t run)
{
	struct perf_pace *p = &e->run->pace;
	struct served *s = e->mode;

	s->run = run;
	rp_hist_init(&p->corrected);
	rp_hist_init(&p->raw);
	end_load_begin(e);
}

static void served_asked(struct end *e, const struct end_message *m, uint64_t now_ns)
{
	const struct perf_pace *p = &e->run->pace;
	const struct served *s = e->mode;
	struct question q = {0};
	struct told t = {0};

	if (m->length < sizeof(q))
		return;
	memcpy(&q, m->value, sizeof(q));
	if (q.run != s->run)
		return;
	t.run = q.run;
	t.same_clock = q.clock != 0 && q.clock == clock_name();
	perf_times_of(&p->corrected, &t.corrected);
	perf_times_of(&p->raw, &t.raw);
	end_load(e, &t.load);
	/* Without a buffer the client waits for it in vain, and says so. */
	end_put(e, TELL_QUEUE, END_TOKEN_MIN, &t, sizeof(t), now_ns);
}

static uint64_t elapsed(uint64_t from_ns, uint64_t to_ns)
{
	return to_ns > from_ns ? to_ns - from_ns : 0;
}

static void served_message(struct end *e, const struct end_message *m, uint64_t now_ns)
{
	struct perf_pace *p = &e->run->pace;
	struct served *s = e->mode;
	struct head h;

	p->units += 1;
	p->ended_in_window++;
	if (m->length < sizeof(h))
		return;
	memcpy(&h, m->value, sizeof(h));
	if (h.run != s->run)
		served_begin(e, h.run);
	if (h.planned_ns == 0)
		return;
	/* That the turn's other messages came first is part of the time. */
	if (now_ns > s->now_ns || ++s->clocked >= CLOCK_MESSAGES) {
		s->clocked = 0;
		s->now_ns = rp_clock_now(&e->run->worker->reader);
	}
	rp_hist_record(&p->corrected, elapsed(h.planned_ns, s->now_ns));
	rp_hist_record(&p->raw, elapsed(h.begun_ns, s->now_ns));
}

/* ---- the client ---- */

static void told(struct end *e, const struct end_message *m)
{
	struct perf_far *far = &e->run->far;
	const struct window *w = e->mode;
	struct told t = {0};

	memcpy(&t, m->value, RP_MIN(sizeof(t), (size_t)m->length));
	if (m->length < sizeof(t) || t.run != w->run)
		return;
	*far = (struct perf_far){.known = true,
		.same_host = t.same_clock != 0,
		.corrected = t.corrected,
		.raw = t.raw,
		.load = t.load};
}

static void deliver_answered(struct end *e, uint64_t token, bool good, uint64_t now_ns)
{
	struct window *w = e->mode;
	uint32_t i = (uint32_t)(token - END_TOKEN_MIN);

	if (e->run->options->server || i == w->size)
		return;
	if (good)
		perf_pace_done(
			&e->run->pace, w->slots[i].planned_ns, w->slots[i].begun_ns, 1, now_ns);
	else
		perf_pace_lost(&e->run->pace, w->slots[i].planned_ns);
	w->slots[i].next = w->first_free;
	w->first_free = i;
}

static void deliver_message(struct end *e, const struct end_message *m, uint64_t now_ns)
{
	if (!e->run->options->server)
		told(e, m);
	else if (m->consumer > e->run->options->queues)
		served_asked(e, m, now_ns);
	else
		served_message(e, m, now_ns);
}

static const struct end_ops deliver_ops = {
	.answered = deliver_answered, .message = deliver_message};

static int serve_begin(struct perf_run *r, struct end *e)
{
	char name[32];

	e->mode = calloc(1, sizeof(struct served));
	if (!e->mode)
		return -1;
	for (uint32_t q = 0; q < r->options->queues; q++)
		end_consume(e, queue_name(name, q));
	end_consume(e, ASK_QUEUE);
	end_dispatcher(e, TELL_QUEUE, END_CLIENT);
	return 0;
}

static int deliver_begin(struct perf_run *r, uint64_t now_ns)
{
	uint32_t size = r->options->window > 0 ? r->options->window : 1024;
	struct window *w;
	int rc = end_begin(r, &deliver_ops, now_ns);
	struct end *e = r->state;

	if (rc)
		return rc;
	if (r->options->server)
		return serve_begin(r, e);
	w = malloc(sizeof(*w) + size * sizeof(w->slots[0]));
	if (!w)
		return -1;
	e->mode = w;
	*w = (struct window){.size = size, .run = now_ns | 1};
	for (uint32_t i = 0; i < size; i++)
		w->slots[i].next = i + 1;
	w->names = calloc(r->options->queues, sizeof(w->names[0]));
	if (!w->names)
		return -1;
	for (uint32_t q = 0; q < r->options->queues; q++)
		end_dispatcher(e, queue_name(w->names[q], q), END_SERVER);
	end_dispatcher(e, ASK_QUEUE, END_SERVER);
	end_consume(e, TELL_QUEUE);
	return 0;
}

static bool send_one(struct perf_run *r, struct end *e, uint64_t now_ns)
{
	struct window *w = e->mode;
	uint32_t i = w->first_free, next = w->slots[i].next;
	struct slot *s = &w->slots[i];
	struct head h = {.run = w->run, .begun_ns = now_ns};

	s->planned_ns = perf_pace_take(&r->pace, now_ns);
	s->begun_ns = now_ns;
	if (perf_pace_in_window(&r->pace, s->planned_ns))
		h.planned_ns = s->planned_ns;
	w->first_free = next;
	if (end_put(e, w->names[w->turn], i + END_TOKEN_MIN, &h,
		    RP_MIN((uint32_t)sizeof(h), r->options->size), now_ns)) {
		w->turn = w->turn + 1 < r->options->queues ? w->turn + 1 : 0;
		return true;
	}
	perf_pace_untake(&r->pace, s->planned_ns);
	s->next = next;
	w->first_free = i;
	return false;
}

static bool send_some(struct perf_run *r, struct end *e, uint64_t now_ns)
{
	struct window *w = e->mode;
	unsigned n = 0;

	while (n < TURN_MAX && w->first_free < w->size && perf_pace_due(&r->pace, now_ns) &&
		send_one(r, e, now_ns))
		n++;
	return n > 0;
}

/* False: there is no buffer. */
static bool ask(struct end *e, uint64_t now_ns)
{
	struct window *w = e->mode;
	const struct question q = {.run = w->run, .clock = clock_name()};

	w->asked_ns = now_ns;
	w->asked = end_put(e, ASK_QUEUE, w->size + END_TOKEN_MIN, &q, sizeof(q), now_ns);
	return w->asked;
}

/* The other end is asked what it saw when all is answered, or after a while. */
static void finish(struct perf_run *r, struct end *e, uint64_t now_ns)
{
	const struct perf_pace_config *c = &r->pace.config;
	uint64_t end_ns = r->pace.begin_ns + c->warmup_ns + c->run_ns + c->cool_ns;
	const struct window *w = e->mode;

	if (w->asked)
		r->finished |= r->far.known || now_ns - w->asked_ns >= DRAIN_NS;
	else if (e->open == 0 || now_ns - end_ns >= DRAIN_NS)
		r->finished |= !ask(e, now_ns);
}

static bool deliver_turn(struct perf_run *r, uint64_t now_ns)
{
	struct end *e = r->state;
	bool worked = false;

	if (!r->options->server && end_is_up(e, now_ns)) {
		if (r->pace.begin_ns == 0) {
			perf_run_pace(r, now_ns);
			end_load_begin(e);
		}
		worked = send_some(r, e, now_ns);
		if (perf_pace_over(&r->pace, now_ns))
			finish(r, e, now_ns);
	}
	return end_turn(r, now_ns) || worked;
}

static void deliver_end(struct perf_run *r, uint64_t now_ns)
{
	struct end *e = r->state;

	if (e && e->mode && !r->options->server)
		free(((struct window *)e->mode)->names);
	end_end(r, now_ns);
}

const struct perf_mode perf_mode_deliver = {
	.name = "deliver",
	.text = "messages to a queue of the other end, and its consumer there",
	.needs = PERF_NEEDS_ENGINE,
	.measures = "put to its answer, round trip",
	.one_way = "put to its consumer, one way",
	.begin = deliver_begin,
	.frames = end_frames,
	.turn = deliver_turn,
	.end = deliver_end,
};
