/* SPDX-License-Identifier: Apache-2.0 */

/* `queues`, `consumers` and `streams`: tables that may be long, asked for page by page. */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ringpost/v1/admin.pb-c.h>

#include <base/units.h>

#include "client.h"
#include "json.h"
#include "table.h"

/** One of the three commands. */
struct list {
	const char *path, *kind, *rows; /**< rows: the field with them */
	const ProtobufCMessageDescriptor *answer;
	const char *const *heads;
	uint32_t right;
	void (*row)(char (*cells)[TABLE_CELL_SIZE], const ProtobufCMessage *message);
};

static void text_id(char *cell, uint64_t node)
{
	if (node)
		snprintf(cell, TABLE_CELL_SIZE, "%" PRIu64, node);
	else
		snprintf(cell, TABLE_CELL_SIZE, "-");
}

static void text_age(char *cell, uint64_t ns)
{
	if (ns)
		text_ns(cell, ns);
	else
		snprintf(cell, TABLE_CELL_SIZE, "-");
}

static void text_count(char *cell, uint64_t count)
{
	snprintf(cell, TABLE_CELL_SIZE, "%" PRIu64, count);
}

static void text_name(char *cell, const char *name)
{
	/* A long name is cut, and JSON has the whole. */
	snprintf(cell, TABLE_CELL_SIZE, strlen(name) < TABLE_CELL_SIZE ? "%s" : "%.60s...", name);
}

/* ---- pages ---- */

static const void *field_at(const ProtobufCMessage *m, const char *name, size_t *count)
{
	const ProtobufCFieldDescriptor *f =
		protobuf_c_message_descriptor_get_field_by_name(m->descriptor, name);

	if (count)
		*count = *(const size_t *)((const char *)m + f->quantifier_offset);
	return *(void *const *)((const char *)m + f->offset);
}

/* Counters and times are one queue's: `queue show`. */
static json_t *row_json(const ProtobufCMessage *m)
{
	json_t *o = json_message(m);

	json_object_del(o, "counters");
	json_object_del(o, "wait_times");
	json_object_del(o, "accept_times");
	return o;
}

static void page_rows(
	const struct list *l, const ProtobufCMessage *m, struct table *t, json_t *rows)
{
	size_t count;
	ProtobufCMessage *const *items = field_at(m, l->rows, &count);

	for (size_t i = 0; i < count; i++) {
		if (rows)
			json_array_append_new(rows, row_json(items[i]));
		else
			l->row(table_row(t), items[i]);
	}
}

static int list_print(const struct list *l, uint64_t node, struct table *t, json_t *rows)
{
	json_t *root;

	if (!rows) {
		table_print(t);
		return 0;
	}
	table_free(t);
	root = json_head(l->kind, node);
	json_object_set_new(root, l->rows, rows);
	return json_print(root);
}

static int list_run(struct client *c, const struct list *l, int argc, char **argv)
{
	Ringpost__V1__ListRequest q = RINGPOST__V1__LIST_REQUEST__INIT;
	Ringpost__V1__Page page = RINGPOST__V1__PAGE__INIT;
	uint64_t node = 0;
	struct options o;
	json_t *rows;
	struct table t;
	bool more;

	if (options_take(&o, "jx", 0, 1, argc, argv) != 0)
		return 2;
	if (o.exact && o.argc == 0)
		return bad_usage("--exact: of which queue?");
	if (o.argc > 0)
		q.queue = o.argv[0];
	q.exact = o.exact;
	table_init(&t, l->heads, l->right);
	rows = o.json ? json_array() : NULL;
	do {
		ProtobufCMessage *m = ask(c, l->path, &q.base, l->answer);
		const Ringpost__V1__Page *next = m ? field_at(m, "page", NULL) : NULL;

		if (!m) {
			table_free(&t);
			json_decref(rows);
			return 1;
		}
		page_rows(l, m, &t, rows);
		/* The first field of all three, as it is of every answer. */
		node = ((const Ringpost__V1__QueuesReply *)m)->node;
		more = next && next->more;
		if (more) {
			page.shard = next->shard;
			page.cursor = next->cursor;
			q.page = &page;
		}
		protobuf_c_message_free_unpacked(m, NULL);
	} while (more);
	return list_print(l, node, &t, rows);
}

/* ---- the three ---- */

static void queue_row(char (*cells)[TABLE_CELL_SIZE], const ProtobufCMessage *m)
{
	const Ringpost__V1__QueueView *q = (const Ringpost__V1__QueueView *)m;

	text_name(cells[0], q->name);
	if (q->here)
		snprintf(cells[1], TABLE_CELL_SIZE, "this node");
	else
		text_id(cells[1], q->dispatcher);
	text_count(cells[2], q->messages);
	text_count(cells[3], q->waiting);
	text_count(cells[4], q->in_flight);
	text_bytes(cells[5], q->bytes);
	snprintf(cells[6], TABLE_CELL_SIZE, "%u+%u", q->consumers_local, q->consumers_remote);
	text_age(cells[7], q->waiting_oldest_ns);
	text_age(cells[8], q->in_flight_oldest_ns);
	text_count(cells[9], q->forwards);
	text_count(cells[10], q->refused);
	text_count(cells[11], q->shard);
}

int queues(struct client *c, int argc, char **argv)
{
	static const char *const heads[] = {"QUEUE", "DISPATCHER", "MESSAGES", "WAITING", "HELD",
		"BYTES", "CONSUMERS", "OLDEST", "HELD FOR", "FORWARDS", "REFUSED", "SHARD", NULL};
	static const struct list l = {
		.path = "/ringpost.v1.Admin/Queues",
		.kind = "ringpost.queues",
		.rows = "queues",
		.answer = &ringpost__v1__queues_reply__descriptor,
		.heads = heads,
		.right = 0xffc,
		.row = queue_row,
	};

	return list_run(c, &l, argc, argv);
}

static void consumer_row(char (*cells)[TABLE_CELL_SIZE], const ProtobufCMessage *m)
{
	const Ringpost__V1__ConsumerView *x = (const Ringpost__V1__ConsumerView *)m;

	text_name(cells[0], x->queue);
	snprintf(cells[1], TABLE_CELL_SIZE, "%s", x->uuid);
	if (x->here)
		snprintf(cells[2], TABLE_CELL_SIZE, "this node");
	else
		text_id(cells[2], x->node);
	snprintf(cells[3], TABLE_CELL_SIZE, "%s", x->state);
	text_count(cells[4], x->outstanding);
	text_count(cells[5], x->holds);
	text_count(cells[6], x->prefetch);
	text_name(cells[7], x->match);
}

int consumers(struct client *c, int argc, char **argv)
{
	static const char *const heads[] = {
		"QUEUE", "CONSUMER", "NODE", "STATE", "OFFERED", "HELD", "PREFETCH", "MATCH", NULL};
	static const struct list l = {
		.path = "/ringpost.v1.Admin/Consumers",
		.kind = "ringpost.consumers",
		.rows = "consumers",
		.answer = &ringpost__v1__consumers_reply__descriptor,
		.heads = heads,
		.right = 0x70,
		.row = consumer_row,
	};

	return list_run(c, &l, argc, argv);
}

static void stream_row(char (*cells)[TABLE_CELL_SIZE], const ProtobufCMessage *m)
{
	const Ringpost__V1__StreamView *x = (const Ringpost__V1__StreamView *)m;

	text_name(cells[0], x->queue);
	snprintf(cells[1], TABLE_CELL_SIZE, "%s %s", x->direction, x->kind);
	text_id(cells[2], x->node);
	snprintf(cells[3], TABLE_CELL_SIZE, "%s", x->state);
	text_count(cells[4], x->messages);
	text_count(cells[5], x->answered);
	text_count(cells[6], x->credit_messages);
	text_bytes(cells[7], x->credit_bytes);
	text_age(cells[8], x->quiet_ns);
	text_count(cells[9], x->shard);
}

int streams(struct client *c, int argc, char **argv)
{
	static const char *const heads[] = {"QUEUE", "STREAM", "NODE", "STATE", "MESSAGES",
		"ANSWERED", "CREDIT", "BYTES", "QUIET", "SHARD", NULL};
	static const struct list l = {
		.path = "/ringpost.v1.Admin/Streams",
		.kind = "ringpost.streams",
		.rows = "streams",
		.answer = &ringpost__v1__streams_reply__descriptor,
		.heads = heads,
		.right = 0x3f0,
		.row = stream_row,
	};

	return list_run(c, &l, argc, argv);
}
