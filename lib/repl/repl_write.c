/* SPDX-License-Identifier: Apache-2.0 */

/* Commits on their way out: encoded once, queued for each connected peer within its bound, sent in
 * batches; and the client writes that wait until a majority has taken them. */

#include <errno.h>
#include <stdlib.h>

#include <base/assert.h>
#include <repl/repl_priv.h>
#include <route/record.h>

/* ---- blobs and waiting writes ---- */

static struct repl_blob *repl_blob_make(struct rp_span bytes)
{
	struct repl_blob *b = malloc(sizeof(*b) + bytes.length);

	RP_ASSERT(b);
	b->references = 1;
	b->length = (uint32_t)bytes.length;
	memcpy(b->bytes, bytes.data, bytes.length);
	return b;
}

static void repl_blob_unref(struct repl_blob *b)
{
	if (--b->references == 0)
		free(b);
}

static void repl_write_unref(struct repl_write *w)
{
	RP_ASSERT(w->references > 0);
	if (--w->references == 0)
		free(w);
}

static void repl_write_answer(struct rp_repl *r, struct repl_write *w, bool confirmed)
{
	RP_ASSERT(!w->answered);
	w->answered = true;
	rp_list_unlink(&w->node);
	r->write_count--;
	if (confirmed)
		REPL_COUNT(r, writes_confirmed, 1);
	else
		REPL_COUNT(r, writes_unconfirmed, 1);
	r->config.ops->write_done(r->config.ctx, w->token, confirmed);
	repl_write_unref(w);
}

/** More than half of the eligible peers have it, or that cannot happen any more. */
static void repl_write_judge(struct rp_repl *r, struct repl_write *w)
{
	if (w->answered || w == r->proposing)
		return;
	if (2 * w->taken > w->eligible)
		repl_write_answer(r, w, true);
	else if (2 * (w->taken + w->open) <= w->eligible)
		repl_write_answer(r, w, false);
}

void repl_writes_tick(struct rp_repl *r)
{
	while (!rp_list_empty(&r->writes)) {
		struct repl_write *w = rp_list_entry(r->writes.next, struct repl_write, node);

		if (w->deadline_ns > r->now.ns)
			return;
		repl_write_answer(r, w, false);
	}
}

void repl_writes_free(struct rp_repl *r)
{
	struct rp_list *n;

	while ((n = rp_list_pop_front(&r->writes)))
		repl_write_unref(rp_list_entry(n, struct repl_write, node));
}

/* ---- queues ---- */

static void repl_enqueue(struct rp_repl *r, struct repl_peer *p, struct repl_blob *b, bool of_sync)
{
	struct repl_item *item;

	if (p->fall != REPL_FALL_NONE)
		return;
	if (p->queued_writes >= r->config.queue_writes ||
		p->queued_bytes + (uint64_t)b->length > r->config.queue_bytes) {
		/* One commit larger than the bound goes alone. */
		if (p->queued_writes > 0) {
			p->fall = REPL_FALL_OVERFLOW;
			return;
		}
	}
	item = calloc(1, sizeof(*item));
	RP_ASSERT(item);
	item->blob = b;
	b->references++;
	item->of_sync = of_sync;
	if (of_sync)
		p->run.items_open++;
	if (r->proposing && !of_sync && p->state == RP_REPL_ONLINE) {
		item->write = r->proposing;
		item->write->references++;
		item->write->eligible++;
		item->write->open++;
	}
	p->queued_writes++;
	p->queued_bytes += b->length;
	rp_list_push_back(&p->queue, &item->node);
}

void repl_items_end(struct rp_repl *r, struct repl_peer *p, struct rp_list *items, bool taken)
{
	struct rp_list *n;

	while ((n = rp_list_pop_front(items))) {
		struct repl_item *item = rp_list_entry(n, struct repl_item, node);

		RP_ASSERT(p->queued_writes > 0 && p->queued_bytes >= item->blob->length);
		p->queued_writes--;
		p->queued_bytes -= item->blob->length;
		if (item->of_sync && p->run.items_open > 0)
			p->run.items_open--;
		repl_blob_unref(item->blob);
		if (item->write) {
			item->write->open--;
			item->write->taken += taken;
			repl_write_judge(r, item->write);
			repl_write_unref(item->write);
		}
		free(item);
	}
}

void repl_queue_drop(struct rp_repl *r, struct repl_peer *p)
{
	repl_items_end(r, p, &p->queue, false);
}

void repl_pump(struct rp_repl *r, struct repl_peer *p)
{
	while (p->connected && p->fall == REPL_FALL_NONE && !rp_list_empty(&p->queue) &&
		p->apply_calls < r->config.calls_max) {
		struct rp_list items;
		struct repl_hello hello;

		rp_list_init(&items);
		r->out.length = 0;
		repl_hello_make(r, &hello);
		repl_put_hello(&r->out, REPL_F_HELLO, &hello);
		while (!rp_list_empty(&p->queue)) {
			struct repl_item *item =
				rp_list_entry(p->queue.next, struct repl_item, node);

			if (!rp_list_empty(&items) &&
				r->out.length + item->blob->length > r->config.message_bytes)
				break;
			/* The fields of one message may be put together from pieces. */
			repl_buf_append(&r->out, item->blob->bytes, item->blob->length);
			rp_list_unlink(&item->node);
			rp_list_push_back(&items, &item->node);
		}
		REPL_COUNT(r, applies_sent, 1);
		if (!repl_call(r, p, REPL_FOR_APPLY, repl_buf_span(&r->out), &items))
			return;
	}
}

/* ---- commits ---- */

/** The tombstone of a dispatcher record stands at the epoch of the record that it ended. */
static void repl_note_epochs(struct rp_repl *r, const struct rp_kv_event *events, uint32_t count)
{
	for (const struct rp_kv_event *e = events; e < events + count; e++) {
		struct rp_dispatcher_record d = {0};
		struct rp_span key = rp_kv_version_key(e->kv), value;

		if (!e->kv->deleted || !e->prev || e->prev->deleted || !repl_key_is_dispatcher(key))
			continue;
		value = rp_kv_version_value(e->prev);
		rp_route_dispatcher_parse(&d, value.data, value.length);
		repl_epoch_set(r, key, d.epoch);
	}
}

static bool repl_any_connected(const struct rp_repl *r)
{
	for (const struct repl_peer *p = r->peers; p < r->peers + r->slots; p++)
		if (p->connected)
			return true;
	return false;
}

/** Only the last of several changes of one key in a commit is the state of the key. */
static bool repl_event_record(
	struct rp_repl *r, const struct rp_kv_event *e, struct repl_record *record)
{
	if (!repl_record_find(r, rp_kv_version_key(e->kv), record))
		return false;
	return record->kv.stamp == e->kv->stamp && record->kv.deleted == e->kv->deleted;
}

/** Encodes the events that may go to `node` (0: all). How many there were. */
static uint32_t repl_commit_encode(struct rp_repl *r, const struct rp_kv_event *events,
	uint32_t count, uint64_t node, struct repl_buf *out)
{
	uint32_t n = 0;

	out->length = 0;
	for (uint32_t i = 0; i < count; i++) {
		struct repl_record record;

		if (node != 0 && !repl_eligible(r, node, rp_kv_version_key(events[i].kv)))
			continue;
		if (!repl_event_record(r, &events[i], &record))
			continue;
		repl_put_record(out, REPL_F_APPLY_RECORDS, &record);
		n++;
	}
	return n;
}

void repl_hook(void *ctx, int64_t revision, const struct rp_kv_event *events, uint32_t count,
	uint64_t origin)
{
	struct rp_repl *r = ctx;
	struct repl_buf *encoded = &r->scratch[0];
	struct repl_blob *all;
	uint32_t total;

	(void)revision;
	if (origin == REPL_ORIGIN_PEER)
		return;
	repl_note_epochs(r, events, count);
	if (!repl_any_connected(r))
		return;
	total = repl_commit_encode(r, events, count, 0, encoded);
	if (total == 0)
		return;
	REPL_COUNT(r, writes, 1);
	all = repl_blob_make(repl_buf_span(encoded));
	for (struct repl_peer *p = r->peers; p < r->peers + r->slots; p++) {
		uint32_t n = total;

		if (!p->connected)
			continue;
		if (r->config.ops->eligible)
			n = repl_commit_encode(r, events, count, p->node, encoded);
		if (n == total) {
			repl_enqueue(r, p, all, false);
		} else if (n > 0) {
			struct repl_blob *part = repl_blob_make(repl_buf_span(encoded));

			repl_enqueue(r, p, part, false);
			repl_blob_unref(part);
		}
		repl_pump(r, p);
	}
	repl_blob_unref(all);
}

static struct repl_blob *repl_record_blob(struct rp_repl *r, const struct repl_record *record)
{
	r->scratch[0].length = 0;
	repl_put_record(&r->scratch[0], REPL_F_APPLY_RECORDS, record);
	return repl_blob_make(repl_buf_span(&r->scratch[0]));
}

void repl_broadcast_record(struct rp_repl *r, const struct repl_record *record)
{
	struct repl_blob *b = repl_record_blob(r, record);

	for (struct repl_peer *p = r->peers; p < r->peers + r->slots; p++) {
		if (!p->connected || !repl_eligible(r, p->node, record->kv.key))
			continue;
		repl_enqueue(r, p, b, false);
		repl_pump(r, p);
	}
	repl_blob_unref(b);
}

void repl_enqueue_sync(struct rp_repl *r, struct repl_peer *p, const struct repl_record *record)
{
	struct repl_blob *b = repl_record_blob(r, record);

	repl_enqueue(r, p, b, true);
	repl_blob_unref(b);
}

enum rp_repl_outcome rp_repl_propose(struct rp_repl *r, const struct rp_kv_txn *txn, uint64_t token,
	struct rp_kv_result *out, struct rp_repl_now now)
{
	struct rp_kv_writer writer = {.wall_us = now.wall_us, .now_ns = now.ns};
	struct repl_write *w;

	r->now = now;
	if (!r->ready) {
		REPL_COUNT(r, refused_not_ready, 1);
		return RP_REPL_REFUSED;
	}
	w = calloc(1, sizeof(*w));
	RP_ASSERT(w);
	w->references = 1;
	w->token = token;
	w->deadline_ns = now.ns + r->config.ack_ms * RP_NS_PER_MS;
	rp_list_init(&w->node);
	r->proposing = w;
	if (rp_kv_apply(r->kv, txn, &writer, out) != RP_KV_OK)
		RP_ASSERT(w->eligible == 0);
	r->proposing = NULL;
	if (w->eligible == 0 || r->write_count >= r->config.waiting_max) {
		if (w->eligible > 0)
			REPL_COUNT(r, writes_not_waited, 1);
		w->answered = true;
		repl_write_unref(w);
		return RP_REPL_DONE;
	}
	rp_list_push_back(&r->writes, &w->node);
	r->write_count++;
	return RP_REPL_WAITING;
}
