/* SPDX-License-Identifier: Apache-2.0 */

/* `top`: looks at the node again and again, and what changed meanwhile. */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <base/assert.h>

#include "json.h"
#include "top.h"

#define DELAY_S 2.0
/** The first rates are of so long. */
#define FIRST_S 0.5
/** Pages of a table that one look takes: 512 rows each. */
#define PAGES_MAX 64
/** Rows of a snapshot that is no screen. */
#define ROWS_TEXT 40

static void *grown(void *array, size_t count, size_t item)
{
	array = realloc(array, (count + 1) * item);
	RP_ASSERT(array != NULL);
	return array;
}

static void look_free(struct top_look *l)
{
	for (size_t i = 0; i < l->page_count; i++)
		protobuf_c_message_free_unpacked(l->pages[i], NULL);
	if (l->status)
		ringpost__v1__status_reply__free_unpacked(l->status, NULL);
	free(l->pages);
	free(l->queues);
	free(l->consumers);
	*l = (struct top_look){0};
}

static void rows_add(struct top_look *l, const Ringpost__V1__QueuesReply *q,
	const Ringpost__V1__ConsumersReply *k)
{
	for (size_t i = 0; q && i < q->n_queues; i++) {
		l->queues = grown(l->queues, l->queue_count, sizeof(*l->queues));
		l->queues[l->queue_count++] =
			(struct top_queue){.v = q->queues[i], .at_ns = q->at_ns};
	}
	for (size_t i = 0; k && i < k->n_consumers; i++) {
		l->consumers = grown(l->consumers, l->consumer_count, sizeof(*l->consumers));
		l->consumers[l->consumer_count++] =
			(struct top_consumer){.v = k->consumers[i], .at_ns = k->at_ns};
	}
}

/* All pages of a table, as far as one look goes. False: the node does not answer. */
static bool pages_take(struct client *c, struct top_look *l, const char *prefix, bool consumers)
{
	Ringpost__V1__ListRequest q = RINGPOST__V1__LIST_REQUEST__INIT;
	Ringpost__V1__Page page = RINGPOST__V1__PAGE__INIT;

	q.queue = (char *)prefix;
	for (unsigned n = 0; n < PAGES_MAX; n++) {
		ProtobufCMessage *m = ask(c,
			consumers ? "/ringpost.v1.Admin/Consumers" : "/ringpost.v1.Admin/Queues",
			&q.base,
			consumers ? &ringpost__v1__consumers_reply__descriptor
				  : &ringpost__v1__queues_reply__descriptor);
		const Ringpost__V1__ConsumersReply *k = consumers ? (void *)m : NULL;
		const Ringpost__V1__QueuesReply *r = consumers ? NULL : (void *)m;
		const Ringpost__V1__Page *next;

		if (!m)
			return false;
		l->pages = grown(l->pages, l->page_count, sizeof(*l->pages));
		l->pages[l->page_count++] = m;
		rows_add(l, r, k);
		next = consumers ? k->page : r->page;
		if (!next || !next->more)
			return true;
		page.shard = next->shard;
		page.cursor = next->cursor;
		q.page = &page;
	}
	l->more = true;
	return true;
}

/* ---- rates ---- */

static int by_name(const void *a, const void *b)
{
	const struct top_queue *x = a, *y = b;

	return strcmp(x->v->name, y->v->name);
}

static int by_uuid(const void *a, const void *b)
{
	const struct top_consumer *x = a, *y = b;
	int d = strcmp(x->v->queue, y->v->queue);

	return d ? d : strcmp(x->v->uuid, y->v->uuid);
}

/* A second's part of what was counted; 0 where it began anew. */
static double rate(uint64_t now, uint64_t before, uint64_t ns)
{
	return now > before && ns > 0 ? (double)(now - before) * RP_NS_PER_S / (double)ns : 0;
}

static void rates_fill(struct top_look *l, const struct top_look *before)
{
	for (size_t i = 0; i < l->queue_count; i++) {
		struct top_queue *x = &l->queues[i];
		const struct top_queue *was =
			before->queue_count ? bsearch(x, before->queues, before->queue_count,
						      sizeof(*x), by_name)
					    : NULL;
		uint64_t ns = was ? x->at_ns - was->at_ns : 0;

		if (!was)
			continue;
		x->puts = rate(top_puts(x->v), top_puts(was->v), ns);
		x->accepts = rate(x->v->accepts, was->v->accepts, ns);
		x->acks = rate(x->v->acks, was->v->acks, ns);
		l->sum.puts += x->puts;
		l->sum.accepts += x->accepts;
		l->sum.acks += x->acks;
	}
	for (size_t i = 0; i < l->consumer_count; i++) {
		struct top_consumer *x = &l->consumers[i];
		const struct top_consumer *was =
			before->consumer_count
				? bsearch(x, before->consumers, before->consumer_count, sizeof(*x),
					  by_uuid)
				: NULL;

		if (!was)
			continue;
		x->offers = rate(x->v->offers, was->v->offers, x->at_ns - was->at_ns);
		x->acks = rate(x->v->acks, was->v->acks, x->at_ns - was->at_ns);
	}
}

/* The node now; `before` is used up. False: it does not answer. */
static bool look_take(struct client *c, struct top_look *l, const char *prefix)
{
	Ringpost__V1__StatusRequest q = RINGPOST__V1__STATUS_REQUEST__INIT;
	struct top_look before = *l;
	bool done;

	*l = (struct top_look){0};
	l->status = ask(
		c, "/ringpost.v1.Admin/Status", &q.base, &ringpost__v1__status_reply__descriptor);
	done = l->status && pages_take(c, l, prefix, false) && pages_take(c, l, prefix, true);
	if (done && before.status) {
		l->interval_s = (double)(l->status->uptime_ns - before.status->uptime_ns) / 1e9;
		if (before.queue_count)
			qsort(before.queues, before.queue_count, sizeof(*before.queues), by_name);
		if (before.consumer_count)
			qsort(before.consumers, before.consumer_count, sizeof(*before.consumers),
				by_uuid);
		rates_fill(l, &before);
	}
	look_free(&before);
	return done;
}

/* ---- JSON ---- */

static json_t *queue_json(const struct top_queue *x)
{
	json_t *o = json_message(&x->v->base);

	json_object_del(o, "counters");
	json_object_del(o, "wait_times");
	json_object_del(o, "accept_times");
	json_object_set_new(o, "puts_per_s", json_real(x->puts));
	json_object_set_new(o, "deliveries_per_s", json_real(x->accepts));
	json_object_set_new(o, "acks_per_s", json_real(x->acks));
	return o;
}

static json_t *consumer_json(const struct top_consumer *x)
{
	json_t *o = json_message(&x->v->base);

	json_object_set_new(o, "deliveries_per_s", json_real(x->offers));
	json_object_set_new(o, "acks_per_s", json_real(x->acks));
	return o;
}

static int look_json(const struct top_look *l)
{
	json_t *root = json_head("ringpost.top", l->status->node);
	json_t *queues = json_array(), *consumers = json_array();
	int rc;

	for (size_t i = 0; i < l->queue_count; i++)
		json_array_append_new(queues, queue_json(&l->queues[i]));
	for (size_t i = 0; i < l->consumer_count; i++)
		json_array_append_new(consumers, consumer_json(&l->consumers[i]));
	json_object_set_new(root, "interval_s", json_real(l->interval_s));
	json_object_set_new(root, "status", json_message(&l->status->base));
	json_object_set_new(root, "puts_per_s", json_real(l->sum.puts));
	json_object_set_new(root, "deliveries_per_s", json_real(l->sum.accepts));
	json_object_set_new(root, "acks_per_s", json_real(l->sum.acks));
	json_object_set_new(root, "more", json_boolean(l->more));
	json_object_set_new(root, "queues", queues);
	json_object_set_new(root, "consumers", consumers);
	rc = json_dumpf(root, stdout, JSON_COMPACT | JSON_REAL_PRECISION(9));
	json_decref(root);
	putchar('\n');
	return rc != 0 || fflush(stdout) != 0 ? 1 : 0;
}

/* ---- the command ---- */

static int run_text(struct client *c, const struct options *o, struct top_look *l,
	const char *prefix, double delay)
{
	struct top_choice choice = {.sort = 'p'};
	uint32_t shown = 0;

	pause_for(c, (uint64_t)(RP_MIN(delay, FIRST_S) * 1e9), NULL);
	while (look_take(c, l, prefix)) {
		top_sort(l, &choice);
		if (o->json && look_json(l) != 0)
			return 1;
		if (!o->json && shown > 0)
			putchar('\n');
		if (!o->json)
			top_write(stdout, l, &choice, ROWS_TEXT);
		if (fflush(stdout) != 0)
			return 1;
		if (++shown == o->count)
			return 0;
		pause_for(c, (uint64_t)(delay * 1e9), NULL);
	}
	return 1;
}

static int run_screen(struct client *c, const struct options *o, struct top_look *l,
	const char *prefix, double delay)
{
	struct top_choice choice = {.sort = 'p'};
	struct top_screen s;
	uint32_t shown = 0;
	uint64_t next_ns = rp_loop_now_ns(c->loop) + (uint64_t)(RP_MIN(delay, FIRST_S) * 1e9);
	int rc = top_screen_begin(&s, c->loop, &choice);

	if (rc < 0) {
		fprintf(stderr, "ringpostctl: the terminal: %s\n", strerror(-rc));
		return 1;
	}
	top_screen_draw(&s, l);
	while (!choice.quit && (o->count == 0 || shown < o->count)) {
		uint64_t now_ns = rp_loop_now_ns(c->loop);

		if (now_ns < next_ns && !choice.now) {
			s.woken = false;
			pause_for(c, next_ns - now_ns, &s.woken);
		} else if (look_take(c, l, prefix)) {
			next_ns = rp_loop_now_ns(c->loop) + (uint64_t)(delay * 1e9);
			choice.now = false;
			shown++;
		} else {
			/* What it says of that stays on the screen that was before. */
			rc = 1;
			break;
		}
		if (!choice.quit)
			top_screen_draw(&s, l);
	}
	top_screen_end(&s);
	if (rc)
		fprintf(stderr, "ringpostctl: %s does not answer any more\n", c->endpoint);
	return rc;
}

int top(struct client *c, int argc, char **argv)
{
	struct top_look l = {0};
	const char *prefix;
	struct options o;
	double delay;
	int rc = 1;

	if (options_take(&o, "jnd", 0, 1, argc, argv) != 0)
		return 2;
	prefix = o.argc > 0 ? o.argv[0] : "";
	delay = o.delay >= 0 ? o.delay : DELAY_S;
	if (delay < 0.05)
		return bad_usage("--delay: 0.05 s at least");
	if (look_take(c, &l, prefix))
		rc = o.json || !isatty(STDOUT_FILENO) || !isatty(STDIN_FILENO)
			     ? run_text(c, &o, &l, prefix, delay)
			     : run_screen(c, &o, &l, prefix, delay);
	look_free(&l);
	return rc;
}
