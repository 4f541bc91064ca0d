/* SPDX-License-Identifier: Apache-2.0 */

/* `queue` and `dead-letters`: one queue and its messages. */

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ringpost/v1/admin.pb-c.h>

#include <base/units.h>

#include "client.h"
#include "json.h"
#include "table.h"

#define PEEK_COUNT 10
#define RATES_S 0.5
#define LETTERS_COUNT 100
/** Of a value, in a table. */
#define VALUE_SHOWN 60

/* ---- show ---- */

static void line_count(const char *name, uint64_t count)
{
	printf("%-22s %" PRIu64 "\n", name, count);
}

static void line_ns(const char *name, uint64_t ns)
{
	char text[TABLE_CELL_SIZE];

	printf("%-22s %s\n", name, ns ? text_ns(text, ns) : "-");
}

/* The bound of the bucket that the part of all lies in. */
static void line_times(const char *name, Ringpost__V1__TimesBucket *const *list, size_t count)
{
	static const unsigned parts[] = {50, 99};
	uint64_t all = 0, sum;
	char text[TABLE_CELL_SIZE];

	for (size_t i = 0; i < count; i++)
		all += list[i]->count;
	printf("%-22s ", name);
	for (unsigned p = 0; all > 0 && p < RP_ARRAY_SIZE(parts); p++) {
		size_t i = 0;

		for (sum = list[0]->count; i + 1 < count && sum * 100 < all * parts[p];
			sum += list[i]->count)
			i++;
		printf("%s%u %% at most %s", p ? ", " : "", parts[p],
			list[i]->le_us ? text_ns(text, list[i]->le_us * RP_NS_PER_US)
				       : "very long");
	}
	puts(all > 0 ? "" : "-");
}

static void show_print(const Ringpost__V1__QueueView *q)
{
	char text[TABLE_CELL_SIZE];

	printf("%-22s %s\n", "queue", q->name);
	if (q->here)
		printf("%-22s this node, epoch %u, shard %u\n", "dispatcher", q->epoch, q->shard);
	else if (q->dispatcher)
		printf("%-22s %" PRIu64 ", epoch %u\n", "dispatcher", q->dispatcher, q->epoch);
	else
		printf("%-22s none is known\n", "dispatcher");
	line_count("messages", q->messages);
	line_count("  waiting", q->waiting);
	line_count("  held by consumers", q->in_flight);
	line_count("  delayed", q->delayed);
	line_count("  ending", q->ending);
	printf("%-22s %s\n", "bytes", text_bytes(text, q->bytes));
	line_ns("oldest waiting", q->waiting_oldest_ns);
	line_ns("longest held", q->in_flight_oldest_ns);
	line_count("on their way elsewhere", q->forwards);
	printf("%-22s %u here, %u on other nodes\n", "consumers", q->consumers_local,
		q->consumers_remote);
	line_count("taken in", q->indexed);
	line_count("acknowledged", q->acks);
	line_count("delivered again", q->redeliveries);
	line_count("ended undelivered", q->ended);
	line_count("  dead letters", q->dead_letters);
	line_count("refused", q->refused);
	line_ns("waited, mean", q->wait_mean_ns);
	line_ns("waited, longest", q->wait_max_ns);
	line_ns("offer to client, mean", q->accept_mean_ns);
	line_times("waited", q->wait_times, q->n_wait_times);
	line_times("offer to client", q->accept_times, q->n_accept_times);
}

/** A queue and its consumers, looked at once. */
struct look {
	Ringpost__V1__QueuesReply *queues;
	Ringpost__V1__ConsumersReply *consumers;
};

static void look_free(struct look *l)
{
	ringpost__v1__queues_reply__free_unpacked(l->queues, NULL);
	ringpost__v1__consumers_reply__free_unpacked(l->consumers, NULL);
	*l = (struct look){0};
}

/* 0; 1: there is no such queue, or no answer, which is told. */
static int look_take(struct client *c, struct look *l, char *name)
{
	Ringpost__V1__ListRequest q = RINGPOST__V1__LIST_REQUEST__INIT;

	q.queue = name;
	q.exact = true;
	l->queues = ask(
		c, "/ringpost.v1.Admin/Queues", &q.base, &ringpost__v1__queues_reply__descriptor);
	if (l->queues && l->queues->n_queues == 0)
		fprintf(stderr, "ringpostctl: this node knows no queue \"%s\"\n", name);
	else if (l->queues)
		l->consumers = ask(c, "/ringpost.v1.Admin/Consumers", &q.base,
			&ringpost__v1__consumers_reply__descriptor);
	if (l->consumers)
		return 0;
	look_free(l);
	return 1;
}

static double per_second(uint64_t now, uint64_t before, uint64_t ns)
{
	return now > before && ns > 0 ? (double)(now - before) * RP_NS_PER_S / (double)ns : 0;
}

/* The same consumer, a while before; NULL: it is new. */
static const Ringpost__V1__ConsumerView *consumer_before(
	const struct look *before, const Ringpost__V1__ConsumerView *x)
{
	for (size_t i = 0; before->consumers && i < before->consumers->n_consumers; i++)
		if (strcmp(before->consumers->consumers[i]->uuid, x->uuid) == 0)
			return before->consumers->consumers[i];
	return NULL;
}

/** What went through in a second; nothing without a look before. */
struct rates {
	double interval_s, puts, accepts, acks;
};

static struct rates queue_rates(const struct look *l, const struct look *before)
{
	const Ringpost__V1__QueueView *x, *was;
	uint64_t ns;

	if (!before->queues)
		return (struct rates){0};
	x = l->queues->queues[0];
	was = before->queues->queues[0];
	ns = l->queues->at_ns - before->queues->at_ns;
	return (struct rates){
		.interval_s = (double)ns / RP_NS_PER_S,
		/* Where it is dispatched, all that was taken in. */
		.puts = x->here == was->here ? per_second(x->here ? x->indexed : x->puts,
						       was->here ? was->indexed : was->puts, ns)
					     : 0,
		.accepts = per_second(x->accepts, was->accepts, ns),
		.acks = per_second(x->acks, was->acks, ns),
	};
}

static struct rates consumer_rates(
	const struct look *l, const struct look *before, const Ringpost__V1__ConsumerView *x)
{
	const Ringpost__V1__ConsumerView *was = consumer_before(before, x);
	uint64_t ns = was ? l->consumers->at_ns - before->consumers->at_ns : 0;

	return (struct rates){
		.accepts = was ? per_second(x->offers, was->offers, ns) : 0,
		.acks = was ? per_second(x->acks, was->acks, ns) : 0,
	};
}

static void rates_print(const struct look *l, const struct look *before)
{
	static const char *const heads[] = {
		"CONSUMER", "NODE", "STATE", "DELIVERIES/s", "ACKS/s", "OFFERED", "HELD FOR", NULL};
	struct rates r = queue_rates(l, before);
	struct table t;

	if (before->queues)
		printf("%-22s puts %.1f, deliveries %.1f, acknowledges %.1f, over %.1f s\n",
			"a second", r.puts, r.accepts, r.acks, r.interval_s);
	if (l->consumers->n_consumers == 0)
		return;
	table_init(&t, heads, 0x78);
	for (size_t i = 0; i < l->consumers->n_consumers; i++) {
		const Ringpost__V1__ConsumerView *x = l->consumers->consumers[i];
		char(*row)[TABLE_CELL_SIZE] = table_row(&t);

		r = consumer_rates(l, before, x);
		snprintf(row[0], TABLE_CELL_SIZE, "%s", x->uuid);
		if (x->here)
			snprintf(row[1], TABLE_CELL_SIZE, "this node");
		else
			snprintf(row[1], TABLE_CELL_SIZE, "%" PRIu64, x->node);
		snprintf(row[2], TABLE_CELL_SIZE, "%s", x->state);
		if (before->queues) {
			snprintf(row[3], TABLE_CELL_SIZE, "%.1f", r.accepts);
			snprintf(row[4], TABLE_CELL_SIZE, "%.1f", r.acks);
		}
		snprintf(row[5], TABLE_CELL_SIZE, "%u", RP_MAX(x->outstanding, x->holds));
		if (x->oldest_ns)
			text_ns(row[6], x->oldest_ns);
		else
			snprintf(row[6], TABLE_CELL_SIZE, "-");
	}
	putchar('\n');
	table_print(&t);
}

/* Those that are not 0: what few queues count is only noise in the others. */
static void counters_print(const Ringpost__V1__QueueView *q)
{
	puts("\ncounted here:");
	for (size_t i = 0; i < q->n_counters; i++)
		if (q->counters[i]->value > 0)
			printf("  %-20s %-12" PRIu64 " %s\n", q->counters[i]->name,
				q->counters[i]->value, q->counters[i]->text);
}

static json_t *queue_json(const Ringpost__V1__QueueView *q)
{
	json_t *o = json_message(&q->base), *counters = json_object();

	for (size_t i = 0; i < q->n_counters; i++)
		json_object_set_new(counters, q->counters[i]->name,
			json_integer((json_int_t)q->counters[i]->value));
	json_object_set_new(o, "counters", counters);
	return o;
}

static int show_json(const struct look *l, const struct look *before)
{
	json_t *root = json_head("ringpost.queue_show", l->queues->node), *list = json_array();
	struct rates r = queue_rates(l, before);

	json_object_set_new(root, "queue", queue_json(l->queues->queues[0]));
	if (before->queues)
		json_object_set_new(root, "rates",
			json_pack("{s:f, s:f, s:f, s:f}", "interval_s", r.interval_s, "puts_per_s",
				r.puts, "deliveries_per_s", r.accepts, "acks_per_s", r.acks));
	for (size_t i = 0; i < l->consumers->n_consumers; i++) {
		const Ringpost__V1__ConsumerView *x = l->consumers->consumers[i];
		json_t *o = json_message(&x->base);

		r = consumer_rates(l, before, x);
		if (before->queues) {
			json_object_set_new(o, "deliveries_per_s", json_real(r.accepts));
			json_object_set_new(o, "acks_per_s", json_real(r.acks));
		}
		json_array_append_new(list, o);
	}
	json_object_set_new(root, "consumers", list);
	return json_print(root);
}

int queue_show(struct client *c, int argc, char **argv)
{
	struct look before = {0}, l = {0};
	struct options o;
	double delay;
	int rc;

	if (options_take(&o, "jd", 1, 1, argc, argv) != 0)
		return 2;
	delay = o.delay >= 0 ? o.delay : RATES_S;
	rc = look_take(c, &l, o.argv[0]);
	if (rc == 0 && delay > 0) {
		before = l;
		l = (struct look){0};
		pause_for(c, (uint64_t)(delay * 1e9), NULL);
		rc = look_take(c, &l, o.argv[0]);
	}
	if (rc == 0 && o.json) {
		rc = show_json(&l, &before);
	} else if (rc == 0) {
		show_print(l.queues->queues[0]);
		rates_print(&l, &before);
		counters_print(l.queues->queues[0]);
	}
	look_free(&before);
	look_free(&l);
	return rc;
}

/* ---- messages ---- */

/** A command that prints messages. */
struct peek {
	const char *const *heads;
	uint32_t right;
	void (*row)(char (*cells)[TABLE_CELL_SIZE], const Ringpost__V1__QueueMessage *m);
	bool jobs; /**< process requests only */
};

static void text_value(char *cell, const uint8_t *data, size_t length, bool whole)
{
	size_t n = RP_MIN(length, (size_t)VALUE_SHOWN);

	for (size_t i = 0; i < n; i++)
		cell[i] = (char)(isprint(data[i]) ? data[i] : '.');
	cell[n] = '\0';
	if (!whole || n < length)
		memcpy(cell + RP_MIN(n, (size_t)VALUE_SHOWN - 3), "...", 4);
}

static void text_cell(char *cell, const char *text)
{
	snprintf(cell, TABLE_CELL_SIZE, strlen(text) < TABLE_CELL_SIZE ? "%s" : "%.60s...", text);
}

static void peek_row(char (*cells)[TABLE_CELL_SIZE], const Ringpost__V1__QueueMessage *m)
{
	snprintf(cells[0], TABLE_CELL_SIZE, "%" PRIu64, m->idx);
	text_cell(cells[1], m->tail);
	text_cell(cells[2], m->state);
	text_ns(cells[3], m->age_ns);
	snprintf(cells[4], TABLE_CELL_SIZE, "%u", m->attempt);
	text_bytes(cells[5], m->size);
	text_value(cells[6], m->value.data, m->value.len, m->value.len == m->size);
	text_cell(cells[7], m->holder[0] ? m->holder : "-");
}

/* The first line of a dead letter; NULL: it is none. */
static json_t *letter_head(const Ringpost__V1__QueueMessage *m, size_t *head_length)
{
	const uint8_t *end = m->value.len > 0 ? memchr(m->value.data, '\n', m->value.len) : NULL;
	json_t *head = NULL, *letter;

	if (end)
		head = json_loadb(
			(const char *)m->value.data, (size_t)(end - m->value.data), 0, NULL);
	letter = json_incref(json_object_get(head, "dead_letter"));
	json_decref(head);
	*head_length = letter ? (size_t)(end - m->value.data) + 1 : 0;
	return letter;
}

static const char *string_of(const json_t *o, const char *name)
{
	const char *text = json_string_value(json_object_get(o, name));

	return text ? text : "-";
}

static void letter_row(char (*cells)[TABLE_CELL_SIZE], const Ringpost__V1__QueueMessage *m)
{
	size_t head;
	json_t *letter = letter_head(m, &head);

	snprintf(cells[0], TABLE_CELL_SIZE, "%" PRIu64, m->idx);
	text_cell(cells[1], string_of(letter, "queue"));
	text_cell(cells[2], m->tail);
	text_cell(cells[3], letter ? string_of(letter, "reason") : "no letter");
	if (letter) {
		text_ns(cells[4], (uint64_t)json_integer_value(json_object_get(letter, "age_ms")) *
					  RP_NS_PER_MS);
		snprintf(cells[5], TABLE_CELL_SIZE, "%" JSON_INTEGER_FORMAT,
			json_integer_value(json_object_get(letter, "deliveries")));
	}
	text_ns(cells[6], m->age_ns);
	text_bytes(cells[7], m->size - head);
	text_value(cells[8], m->value.data + head, m->value.len - head, m->value.len == m->size);
	json_decref(letter);
}

static json_t *message_json(const Ringpost__V1__QueueMessage *m)
{
	json_t *o = json_message(&m->base);
	size_t head;
	json_t *letter = letter_head(m, &head);

	if (letter)
		json_object_set_new(o, "dead_letter", letter);
	return o;
}

/* A page's messages, as many as are still wanted. */
static void peek_page(const struct peek *p, const Ringpost__V1__MessagesReply *r, uint32_t *left,
	struct table *t, json_t *rows)
{
	for (size_t i = 0; i<r->n_messages && * left> 0; i++) {
		if (p->jobs && !r->messages[i]->request)
			continue;
		--*left;
		if (rows)
			json_array_append_new(rows, message_json(r->messages[i]));
		else
			p->row(table_row(t), r->messages[i]);
	}
}

static int peek_run(struct client *c, const struct peek *p, uint32_t count, int argc, char **argv)
{
	Ringpost__V1__ListRequest q = RINGPOST__V1__LIST_REQUEST__INIT;
	Ringpost__V1__Page page = RINGPOST__V1__PAGE__INIT;
	json_t *rows, *root;
	struct options o;
	struct table t;
	bool more = true;
	uint64_t node = 0;

	if (options_take(&o, "jn", 1, 1, argc, argv) != 0)
		return 2;
	q.queue = o.argv[0];
	q.exact = true;
	count = o.count ? o.count : count;
	rows = o.json ? json_array() : NULL;
	table_init(&t, p->heads, p->right);
	while (more && count > 0) {
		Ringpost__V1__MessagesReply *r = ask(c, "/ringpost.v1.Admin/Messages", &q.base,
			&ringpost__v1__messages_reply__descriptor);

		if (!r) {
			table_free(&t);
			json_decref(rows);
			return 1;
		}
		node = r->node;
		peek_page(p, r, &count, &t, rows);
		more = r->page && r->page->more;
		if (more) {
			page.shard = r->page->shard;
			page.cursor = r->page->cursor;
			q.page = &page;
		}
		ringpost__v1__messages_reply__free_unpacked(r, NULL);
	}
	if (!rows) {
		table_print(&t);
		return 0;
	}
	table_free(&t);
	root = json_head(p->jobs ? "ringpost.jobs" : "ringpost.queue_peek", node);
	json_object_set_new(root, "queue", json_text(o.argv[0]));
	json_object_set_new(root, p->jobs ? "jobs" : "messages", rows);
	return json_print(root);
}

int queue_peek(struct client *c, int argc, char **argv)
{
	static const char *const heads[] = {
		"INDEX", "TAIL", "STATE", "AGE", "OFFERS", "BYTES", "VALUE", "HOLDER", NULL};
	static const struct peek p = {.heads = heads, .right = 0x39, .row = peek_row};

	return peek_run(c, &p, PEEK_COUNT, argc, argv);
}

int dead_letters_list(struct client *c, int argc, char **argv)
{
	static const char *const heads[] = {"INDEX", "FROM", "TAIL", "REASON", "AGE THEN",
		"DELIVERIES", "HERE FOR", "BYTES", "VALUE", NULL};
	static const struct peek p = {.heads = heads, .right = 0xf1, .row = letter_row};

	return peek_run(c, &p, LETTERS_COUNT, argc, argv);
}

/* ---- jobs ---- */

static void job_row(char (*cells)[TABLE_CELL_SIZE], const Ringpost__V1__QueueMessage *m)
{
	snprintf(cells[0], TABLE_CELL_SIZE, "%" PRIu64, m->request);
	text_cell(cells[1], m->tail);
	text_cell(cells[2], m->state);
	text_ns(cells[3], m->age_ns);
	text_ns(cells[4], m->left_us * RP_NS_PER_US);
	snprintf(cells[5], TABLE_CELL_SIZE, "%u", m->priority);
	snprintf(cells[6], TABLE_CELL_SIZE, "%u", m->attempt);
	text_bytes(cells[7], m->size);
	text_cell(cells[8], m->holder[0] ? m->holder : "-");
}

int job_list(struct client *c, int argc, char **argv)
{
	static const char *const heads[] = {"REQUEST", "TAIL", "STATE", "AGE", "LEFT", "PRIORITY",
		"OFFERS", "BYTES", "WORKER", NULL};
	static const struct peek p = {.heads = heads, .right = 0xf9, .row = job_row, .jobs = true};

	return peek_run(c, &p, LETTERS_COUNT, argc, argv);
}

int job_cancel(struct client *c, int argc, char **argv)
{
	Ringpost__V1__CancelRequest q = RINGPOST__V1__CANCEL_REQUEST__INIT;
	Ringpost__V1__CancelReply *r;
	struct options o;
	char *end;
	int rc = 0;

	if (options_take(&o, "j", 2, 3, argc, argv) != 0)
		return 2;
	q.queue = o.argv[0];
	q.tail = o.argv[1];
	if (o.argc > 2) {
		q.request = strtoull(o.argv[2], &end, 10);
		if (*end != '\0' || q.request == 0)
			return bad_usage("\"%s\" is no request", o.argv[2]);
	}
	r = ask(c, "/ringpost.v1.Admin/Cancel", &q.base, &ringpost__v1__cancel_reply__descriptor);
	if (!r)
		return 1;
	if (o.json)
		rc = json_answer("ringpost.job_cancel", &r->base);
	else
		printf("%u requests cancelled\n", r->requests);
	ringpost__v1__cancel_reply__free_unpacked(r, NULL);
	return rc;
}

/* ---- clearing ---- */

static int clear_run(struct client *c, const char *act, const char *what, int argc, char **argv)
{
	Ringpost__V1__ClearRequest q = RINGPOST__V1__CLEAR_REQUEST__INIT;
	Ringpost__V1__ClearReply *r;
	struct options o;
	int rc = 0;

	if (options_take(&o, "jn", 1, 1, argc, argv) != 0)
		return 2;
	q.queue = o.argv[0];
	q.act = (char *)act;
	q.max = o.count;
	r = ask(c, "/ringpost.v1.Admin/Clear", &q.base, &ringpost__v1__clear_reply__descriptor);
	if (!r)
		return 1;
	if (o.json)
		rc = json_answer("ringpost.clear", &r->base);
	else
		printf("%u %s\n", r->messages, what);
	ringpost__v1__clear_reply__free_unpacked(r, NULL);
	return rc;
}

int queue_purge(struct client *c, int argc, char **argv)
{
	return clear_run(c, "purge", "messages removed", argc, argv);
}

int dead_letters_replay(struct client *c, int argc, char **argv)
{
	return clear_run(c, "replay", "messages on their way back", argc, argv);
}

int dead_letters_drop(struct client *c, int argc, char **argv)
{
	return clear_run(c, "purge", "dead letters removed", argc, argv);
}
