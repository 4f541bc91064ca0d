/* SPDX-License-Identifier: Apache-2.0 */

/* One mode from start to end, and the search for the highest rate at which nothing is lost. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "result.h"
#include "runs.h"

#define STATUS_FAILED 1
#define STATUS_NO_PORT 15
#define SLACK_NS (10 * RP_NS_PER_S)
/** Between two runs of a search. */
#define PAUSE_NS (200 * RP_NS_PER_MS)

static bool has_ended(void *ctx)
{
	struct perf_run *r = ctx;

	return atomic_load_explicit(&r->ended, memory_order_acquire);
}

static bool link_is_up(void *ctx)
{
	return perf_host_link_is_up(ctx);
}

static bool never(void *ctx)
{
	return false;
}

/* True: it ran to its end. */
static bool run_once(struct perf_host *h, struct perf_run *r, double rate)
{
	const struct perf_options *o = h->options;
	uint64_t until_ns = RP_NEVER;
	bool ended;

	memset(r, 0, sizeof(*r));
	r->mode = perf_mode_find(o->mode);
	r->rate = rate;
	r->tx_first = o->tx_first;
	if (!o->server && (r->mode->measures || r->mode->unit || o->run_set))
		until_ns = perf_now_ns() + o->connect_ns + o->warmup_ns + o->run_ns + o->cool_ns +
			   SLACK_NS;
	if (perf_host_run(h, r) != 0)
		return false;
	ended = perf_host_watch(h, until_ns, has_ended, r);
	atomic_store(&r->stop, true);
	/* The lcore sees it within a turn. */
	while (!has_ended(r))
		perf_host_look(h);
	return ended && !r->why;
}

/* Rates between one that went well and one that did not. */
static void search(struct perf_host *h, struct perf_result_set *s)
{
	const struct perf_options *o = h->options;
	double low = 0, high = o->search, rate = high;

	for (uint32_t i = 0; i < o->search_steps && !atomic_load(&perf_told_to_stop); i++) {
		struct perf_trial *t = &s->trials[s->trial_count++];
		struct perf_run *r = s->spare;

		t->rate = rate;
		t->good = run_once(h, r, rate);
		if (!t->good && r->why)
			fprintf(stderr, "ringperf: at %.0f/s: %s\n", rate, r->why);
		perf_pace_verdict(&r->pace, &t->verdict);
		t->good = t->good && t->verdict.met && r->faults == 0;
		if (!o->json)
			perf_trial_text(t);
		if (t->good) {
			low = rate;
			s->spare = s->run;
			s->run = r;
			s->found = true;
		} else {
			high = rate;
		}
		if (low == o->search)
			break;
		rate = (low + high) / 2;
		(void)perf_host_watch(h, perf_now_ns() + PAUSE_NS, never, NULL);
	}
}

static int measure(struct perf_host *h)
{
	const struct perf_options *o = h->options;
	struct perf_result_set s = {.host = h};
	bool good;

	s.run = calloc(1, sizeof(*s.run));
	s.spare = calloc(1, sizeof(*s.spare));
	if (!s.run || !s.spare) {
		fprintf(stderr, "ringperf: no memory\n");
		return STATUS_FAILED;
	}
	if (o->search > 0) {
		search(h, &s);
		good = s.found;
	} else {
		good = run_once(h, s.run, o->rate);
		if (s.run->why)
			fprintf(stderr, "ringperf: %s\n", s.run->why);
	}
	good = perf_result_report(&s) && good;
	free(s.run);
	free(s.spare);
	return good ? 0 : STATUS_FAILED;
}

static int serve(struct perf_host *h)
{
	struct perf_run *r = calloc(1, sizeof(*r));
	bool failed;

	if (!r)
		return STATUS_FAILED;
	printf("ready\n");
	fflush(stdout);
	run_once(h, r, 0);
	failed = r->why != NULL;
	if (failed)
		fprintf(stderr, "ringperf: %s\n", r->why);
	free(r);
	return failed ? STATUS_FAILED : 0;
}

int perf_runs(struct perf_host *h, struct perf_options *o)
{
	const struct perf_mode *m = perf_mode_find(o->mode);
	int status = STATUS_NO_PORT;

	h->options = o;
	h->worker.options = o;
	if (m->needs == PERF_NEEDS_SOCKETS)
		return o->server ? serve(h) : measure(h);
	if (perf_host_make(h, o, m->needs == PERF_NEEDS_ENGINE) < 0) {
		fprintf(stderr, "ringperf: %s\n", h->error);
	} else if (o->server || m->needs == PERF_NEEDS_FRAMES) {
		status = o->server ? serve(h) : measure(h);
		perf_host_end(h);
	} else if (!perf_host_watch(h, perf_now_ns() + o->connect_ns, link_is_up, h)) {
		fprintf(stderr, "ringperf: nobody is at the other end of %s\n", o->devices[0]);
		status = STATUS_FAILED;
	} else {
		status = measure(h);
		perf_host_end(h);
	}
	perf_host_destroy(h);
	return status;
}
