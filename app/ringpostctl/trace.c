/* SPDX-License-Identifier: Apache-2.0 */

/* `trace`: what became of a message, step by step. */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ringpost/v1/admin.pb-c.h>

#include <base/units.h>

#include "client.h"
#include "json.h"
#include "table.h"

#define WAIT_S 10
/** As many as a node keeps. */
#define TRACES_MAX 64u
#define ASK_NS (50 * RP_NS_PER_MS)

static Ringpost__V1__TraceReply *trace_ask(struct client *c, const Ringpost__V1__TraceRequest *q)
{
	return ask(c, "/ringpost.v1.Admin/Trace", &q->base, &ringpost__v1__trace_reply__descriptor);
}

static void text_us(char *cell, uint64_t ns)
{
	snprintf(cell, TABLE_CELL_SIZE, "%.1f", (double)ns / RP_NS_PER_US);
}

static void trace_print(const Ringpost__V1__Trace *t)
{
	static const char *const heads[] = {
		"AT us", "AFTER us", "STEP", "OFFER", "NODE", "CONSUMER", NULL};
	struct table table;
	uint64_t before_ns = 0;

	printf("message %" PRIu64 ", tail %s, %" PRIu64 " bytes: ", t->idx, t->tail, t->size);
	printf(t->ended ? "ended %.1f us after its put\n" : "put %.1f us ago\n",
		(double)t->age_ns / RP_NS_PER_US);
	if (t->omitted)
		puts("  what was before its last offers is left out");
	table_init(&table, heads, 0x0b);
	for (size_t i = 0; i < t->n_steps; i++) {
		const Ringpost__V1__TraceStep *s = t->steps[i];
		char(*row)[TABLE_CELL_SIZE] = table_row(&table);

		text_us(row[0], s->at_ns);
		if (i > 0)
			text_us(row[1], s->at_ns - RP_MIN(before_ns, s->at_ns));
		snprintf(row[2], TABLE_CELL_SIZE, "%s%s%.40s", s->step, s->why[0] ? ": " : "",
			s->why);
		if (s->attempt)
			snprintf(row[3], TABLE_CELL_SIZE, "%u", s->attempt);
		if (s->node)
			snprintf(row[4], TABLE_CELL_SIZE, "%" PRIu64, s->node);
		snprintf(row[5], TABLE_CELL_SIZE, "%s", s->consumer);
		before_ns = s->at_ns;
	}
	table_print(&table);
}

static int reply_print(const Ringpost__V1__TraceReply *r, bool json)
{
	json_t *root, *list;

	if (!json) {
		for (size_t i = 0; i < r->n_traces; i++) {
			if (i > 0)
				putchar('\n');
			trace_print(r->traces[i]);
		}
		return 0;
	}
	root = json_head("ringpost.trace", r->node);
	list = json_array();
	for (size_t i = 0; i < r->n_traces; i++)
		json_array_append_new(list, json_message(&r->traces[i]->base));
	json_object_set_new(root, "queue", json_text(r->queue));
	json_object_set_new(root, "traces", list);
	return json_print(root);
}

static bool is_over(const Ringpost__V1__TraceReply *r, uint32_t count)
{
	uint32_t ended = 0;

	for (size_t i = 0; i < r->n_traces; i++)
		ended += r->traces[i]->ended;
	return ended >= count;
}

/* Those that come from now on, when they have ended, or what there is of them in that time. */
static Ringpost__V1__TraceReply *trace_wait(
	struct client *c, Ringpost__V1__TraceRequest *q, double seconds)
{
	uint64_t end_ns = rp_loop_now_ns(c->loop) + (uint64_t)(seconds * 1e9);
	uint32_t count = q->next;
	Ringpost__V1__TraceReply *r;

	q->for_ns = (uint64_t)(seconds * 1e9);
	r = trace_ask(c, q);
	if (!r)
		return NULL;
	q->above = r->above;
	q->next = 0;
	while (r && !is_over(r, count) && rp_loop_now_ns(c->loop) < end_ns) {
		ringpost__v1__trace_reply__free_unpacked(r, NULL);
		pause_for(c, ASK_NS, NULL);
		r = trace_ask(c, q);
	}
	if (r && r->n_traces > 0)
		return r;
	if (r)
		fprintf(stderr, "ringpostctl: no message came to queue \"%s\" in %g s\n", q->queue,
			seconds);
	ringpost__v1__trace_reply__free_unpacked(r, NULL);
	return NULL;
}

static bool index_take(const char *text, uint64_t *idx)
{
	char *end;

	*idx = strtoull(text, &end, 10);
	return text[0] >= '1' && text[0] <= '9' && *end == '\0';
}

int trace(struct client *c, int argc, char **argv)
{
	Ringpost__V1__TraceRequest q = RINGPOST__V1__TRACE_REQUEST__INIT;
	Ringpost__V1__TraceReply *r;
	struct options o;
	int rc;

	if (options_take(&o, "jnt", 1, 2, argc, argv) != 0)
		return 2;
	q.queue = o.argv[0];
	if (o.argc > 1 && !index_take(o.argv[1], &q.idx))
		return bad_usage("\"%s\" is no index of a message", o.argv[1]);
	if (q.idx && (o.count || o.seconds >= 0))
		return bad_usage("--count and --seconds are for messages that are to come");
	if (o.count > TRACES_MAX)
		return bad_usage("--count: %u at most", TRACES_MAX);
	q.next = q.idx ? 0 : RP_MAX(o.count, 1u);
	r = q.idx ? trace_ask(c, &q) : trace_wait(c, &q, o.seconds >= 0 ? o.seconds : WAIT_S);
	if (!r)
		return 1;
	rc = reply_print(r, o.json);
	ringpost__v1__trace_reply__free_unpacked(r, NULL);
	return rc;
}
