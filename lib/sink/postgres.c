/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Values into PostgreSQL: of each entry one at a time, in their order, on a connection of its own.
 * What is on the connection is in postgres_conn.c.
 */

#include <sink/postgres.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <base/assert.h>
#include <base/log.h>
#include <sink/postgres_conn_priv.h>

#define PREFETCH 256
/** Values of a prefix that wait here; the rest stays in the store's history. */
#define PREFIX_MAX 256
#define RETRY_NS RP_NS_PER_S

static void want_run(struct rp_postgres *p)
{
	rp_loop_task_post(p->loop, &p->task);
}

static uint64_t now_ns(const struct rp_postgres *p)
{
	return rp_loop_now_ns(p->loop);
}

/* ---- values ---- */

static void value_free(struct pg_value *v)
{
	rp_list_unlink(&v->node);
	v->e->value_count--;
	free(v);
}

static struct pg_value *value_add(
	struct pg_entry *e, uint64_t idx, struct rp_span name, struct rp_span value)
{
	struct pg_value *v = pg_alloc(sizeof(*v) + name.length + value.length + 2);

	v->e = e;
	v->idx = idx;
	v->life = e->life;
	v->attempt = 1;
	v->name_length = name.length;
	memcpy(v->name, name.data, name.length);
	v->value = v->name + name.length + 1;
	v->length = value.length;
	if (value.length > 0)
		memcpy(v->value, value.data, value.length);
	rp_list_push_back(&e->values, &v->node);
	e->value_count++;
	want_run(e->p);
	return v;
}

static bool is_ours(const struct pg_value *v)
{
	return v->e->spec.is_prefix || (v->e->consumer && v->life == v->e->life && !v->withdrawn);
}

static void told_room(struct pg_entry *e)
{
	if (!e->starved || e->value_count > PREFIX_MAX / 2)
		return;
	e->starved = false;
	if (e->p->room)
		e->p->room(e->p->ctx, e->index);
}

static void on_acked(void *ctx, int status, const char *message, int64_t result)
{
	struct pg_value *v = ctx;
	struct pg_entry *e = v->e;

	v->under_way = false;
	if (status == RP_SINK_STATUS_UNAVAILABLE && is_ours(v)) {
		v->again_ns = now_ns(e->p) + RETRY_NS;
	} else {
		e->p->counters.acks_late += status != 0 || result == 0;
		value_free(v);
	}
	want_run(e->p);
}

/* Done with: a message is acknowledged, a put just goes. */
static void value_ack(struct pg_value *v)
{
	struct pg_entry *e = v->e;

	if (!is_ours(v) || e->spec.is_prefix) {
		e->p->counters.acks_late += !e->spec.is_prefix;
		value_free(v);
		told_room(e);
		return;
	}
	v->state = PG_VALUE_ACKED;
	v->under_way = true;
	rp_list_unlink(&v->node);
	rp_list_push_back(&e->settling, &v->node);
	e->p->host->ack(e->consumer, v->idx, on_acked, v);
}

/* ---- values that can never go in ---- */

static void on_lettered(void *ctx, int status, const char *message, int64_t result)
{
	struct pg_value *v = ctx;
	struct pg_entry *e = v->e;

	v->under_way = false;
	if (status == 0) {
		e->p->counters.letters++;
		value_ack(v);
	} else {
		e->p->counters.letters_failed++;
		v->again_ns = now_ns(e->p) + RETRY_NS;
		snprintf(e->error, sizeof(e->error), "dead letters: %s", message);
	}
	want_run(e->p);
}

static void letter_send(struct pg_value *v)
{
	struct rp_postgres *p = v->e->p;
	char tail[RP_TAIL_BYTES_MAX + 1];
	struct rp_span name = {v->name, v->name_length}, letter;
	char *text = pg_letter(v, &letter.length);

	if (v->e->spec.is_prefix) {
		pg_tail_of_key(name, tail);
		name = (struct rp_span){(const uint8_t *)tail, strlen(tail)};
	}
	letter.data = (const uint8_t *)text;
	v->under_way = true;
	p->host->send(p->host->ctx,
		(struct rp_span){(const uint8_t *)p->dead_letter, strlen(p->dead_letter)}, name,
		letter, on_lettered, v);
	free(text);
}

void pg_value_dead(struct pg_value *v, const char *why)
{
	struct pg_entry *e = v->e;
	struct rp_postgres *p = e->p;

	p->counters.refused++;
	snprintf(v->error, sizeof(v->error), "%s", why);
	snprintf(e->error, sizeof(e->error), "%s", why);
	RP_LOG(RP_LOG_QUEUE, RP_LOG_WARNING, "postgres %s: %.*s can never go in: %s", e->spec.event,
		(int)v->name_length, (const char *)v->name, why);
	if (p->dead_letter[0] && is_ours(v)) {
		v->state = PG_VALUE_LETTER;
		rp_list_unlink(&v->node);
		rp_list_push_back(&e->settling, &v->node);
		letter_send(v);
		return;
	}
	p->counters.kept++;
	/* The queue keeps it, or has dead letters of its own; a key is in the store. */
	if (!e->spec.is_prefix && is_ours(v))
		p->host->reject(e->consumer, v->idx, NULL, NULL);
	value_free(v);
	told_room(e);
}

void pg_value_done(struct pg_value *v, uint64_t rows)
{
	struct pg_entry *e = v->e;

	e->p->counters.values++;
	e->p->counters.rows += rows;
	e->failures = 0;
	e->error[0] = '\0';
	value_ack(v);
}

void pg_value_empty(struct pg_value *v)
{
	v->e->p->counters.values_empty++;
	value_ack(v);
}

void pg_entry_failed(struct pg_entry *e, const char *why)
{
	uint64_t wait_ns;

	e->failures++;
	wait_ns = rp_sink_backoff_ns(e->failures);
	e->next_ns = now_ns(e->p) + wait_ns;
	snprintf(e->error, sizeof(e->error), "%.*s", (int)strcspn(why, "\r\n"), why);
	RP_LOG(RP_LOG_QUEUE, e->failures == 1 ? RP_LOG_WARNING : RP_LOG_INFO,
		"postgres %s: %s; again in %" PRIu64 " s", e->spec.event, e->error,
		(uint64_t)(wait_ns / RP_NS_PER_S));
	want_run(e->p);
}

struct pg_value *pg_entry_next(struct pg_entry *e)
{
	while (!rp_list_empty(&e->values)) {
		struct pg_value *v = rp_list_entry(e->values.next, struct pg_value, node);

		if (is_ours(v) || v == e->current)
			return v;
		value_free(v);
	}
	return NULL;
}

/* ---- what comes ---- */

static void on_message(void *ctx, const struct rp_sink_message *m)
{
	struct pg_entry *e = ctx;
	struct rp_list *n;

	/* It is committed, or dead, and its acknowledge is not through yet. */
	rp_list_foreach (n, &e->settling)
		if (rp_list_entry(n, struct pg_value, node)->idx == m->idx)
			return;
	value_add(e, m->idx, m->tail, m->value)->attempt = m->attempt;
}

static void on_withdrawn(void *ctx, uint64_t idx)
{
	struct pg_entry *e = ctx;
	struct rp_list *lists[3] = {&e->values, &e->group, &e->settling}, *n;

	for (unsigned i = 0; i < 3; i++)
		rp_list_foreach (n, lists[i])
			if (rp_list_entry(n, struct pg_value, node)->idx == idx)
				rp_list_entry(n, struct pg_value, node)->withdrawn = true;
}

static void on_end(void *ctx, const char *reason)
{
	struct pg_entry *e = ctx;

	RP_LOG(RP_LOG_QUEUE, RP_LOG_INFO, "postgres %s: %s", e->spec.event, reason);
	e->consumer = NULL;
	e->next_ns = RP_MAX(e->next_ns, now_ns(e->p) + RETRY_NS);
	want_run(e->p);
}

bool rp_postgres_has_room(struct rp_postgres *p, unsigned entry)
{
	struct pg_entry *e = &p->entries[entry];

	RP_ASSERT(entry < p->entry_count && e->spec.is_prefix);
	if (e->value_count < PREFIX_MAX)
		return true;
	e->starved = true;
	p->counters.prefix_waits++;
	return false;
}

void rp_postgres_put(
	struct rp_postgres *p, unsigned entry, struct rp_span key, struct rp_span value)
{
	RP_ASSERT(entry < p->entry_count && p->entries[entry].spec.is_prefix);
	p->counters.prefix_puts++;
	value_add(&p->entries[entry], 0, key, value);
}

void rp_postgres_deleted(struct rp_postgres *p, unsigned entry)
{
	p->counters.prefix_deletes++;
}

void rp_postgres_missed(struct rp_postgres *p, unsigned entry)
{
	p->counters.prefix_missed++;
	RP_LOG(RP_LOG_QUEUE, RP_LOG_ERROR,
		"postgres %s: history was compacted before it was applied: puts are missing",
		p->entries[entry].spec.event);
}

/* ---- the turn ---- */

static void entry_open(struct pg_entry *e)
{
	static const struct rp_sink_consumer_ops ops = {
		.message = on_message, .withdrawn = on_withdrawn, .end = on_end};
	struct rp_postgres *p = e->p;

	e->life++;
	e->consumer = p->host->consume(p->host->ctx,
		(struct rp_span){(const uint8_t *)e->spec.event, strlen(e->spec.event)}, PREFETCH,
		&ops, e);
	if (!e->consumer)
		e->next_ns = now_ns(p) + RETRY_NS;
}

static bool entry_busy(const struct pg_entry *e)
{
	return e->state >= PG_PREPARE || !rp_list_empty(&e->settling);
}

static void entry_close(struct pg_entry *e)
{
	e->p->host->close(e->consumer);
	e->consumer = NULL;
	e->life++;
}

/* Acknowledges and letters that were not taken. Returns when the next is due. */
static uint64_t settle_again(struct pg_entry *e)
{
	uint64_t next_ns = RP_NEVER;
	struct rp_list *n, *t;

	rp_list_foreach_safe (n, t, &e->settling) {
		struct pg_value *v = rp_list_entry(n, struct pg_value, node);

		if (v->under_way)
			continue;
		if (!is_ours(v)) {
			value_free(v);
		} else if (v->again_ns > now_ns(e->p)) {
			next_ns = RP_MIN(next_ns, v->again_ns);
		} else if (v->state == PG_VALUE_LETTER) {
			letter_send(v);
		} else {
			v->under_way = true;
			e->p->host->ack(e->consumer, v->idx, on_acked, v);
		}
	}
	return next_ns;
}

static uint64_t entry_run(struct pg_entry *e)
{
	struct rp_postgres *p = e->p;
	uint64_t next_ns = settle_again(e);

	if (!e->spec.is_prefix && (!e->on || p->paused)) {
		if (e->consumer && !entry_busy(e))
			entry_close(e);
		return next_ns;
	}
	if (p->paused)
		return next_ns;
	if (e->next_ns > now_ns(p))
		return RP_MIN(next_ns, e->next_ns);
	if (!e->spec.is_prefix && !e->consumer) {
		entry_open(e);
		if (!e->consumer)
			next_ns = RP_MIN(next_ns, e->next_ns);
	}
	if (pg_entry_next(e))
		pg_conn_run(e);
	return next_ns;
}

static void on_run(void *ctx)
{
	struct rp_postgres *p = ctx;
	uint64_t next_ns = RP_NEVER;

	for (unsigned i = 0; i < p->entry_count; i++)
		next_ns = RP_MIN(next_ns, entry_run(&p->entries[i]));
	/* An entry that failed in this turn has a time of its own. */
	for (unsigned i = 0; i < p->entry_count; i++)
		if (p->entries[i].next_ns > now_ns(p))
			next_ns = RP_MIN(next_ns, p->entries[i].next_ns);
	rp_loop_timer_at(p->loop, &p->timer, next_ns);
}

void rp_postgres_queue(struct rp_postgres *p, unsigned entry, bool on)
{
	RP_ASSERT(entry < p->entry_count && !p->entries[entry].spec.is_prefix);
	if (p->entries[entry].on == on)
		return;
	p->entries[entry].on = on;
	want_run(p);
}

void rp_postgres_pause(struct rp_postgres *p, bool on)
{
	p->paused = on;
	want_run(p);
}

bool rp_postgres_busy(const struct rp_postgres *p)
{
	for (unsigned i = 0; i < p->entry_count; i++)
		if (entry_busy(&p->entries[i]))
			return true;
	return false;
}

/* ---- creation ---- */

struct rp_postgres *rp_postgres_create(
	const struct rp_postgres_config *config, char *error, size_t error_size)
{
	struct rp_postgres *p = pg_alloc(sizeof(*p));
	struct pg_spec *specs = pg_alloc(RP_POSTGRES_ENTRIES_MAX * sizeof(*specs));
	int count = pg_specs_parse(config->upsert, config->dead_letter ? config->dead_letter : "",
		specs, error, error_size);

	for (int i = 0; i < count; i++) {
		struct pg_entry *e = &p->entries[i];

		e->p = p;
		e->index = (unsigned)i;
		e->spec = specs[i];
		rp_list_init(&e->values);
		rp_list_init(&e->group);
		rp_list_init(&e->settling);
		pg_conn_init(e);
	}
	free(specs);
	if (count < 0) {
		free(p);
		return NULL;
	}
	p->entry_count = (unsigned)count;
	p->loop = config->loop;
	p->host = config->host;
	p->url = pg_format("%s", config->url);
	p->dead_letter = pg_format("%s", config->dead_letter ? config->dead_letter : "");
	p->room = config->room;
	p->ctx = config->ctx;
	rp_loop_timer_setup(&p->timer, on_run, p);
	rp_loop_task_setup(&p->task, on_run, p);
	return p;
}

void rp_postgres_destroy(struct rp_postgres *p)
{
	if (!p)
		return;
	rp_loop_timer_cancel(&p->timer);
	rp_loop_task_cancel(&p->task);
	for (unsigned i = 0; i < p->entry_count; i++) {
		struct pg_entry *e = &p->entries[i];
		struct rp_list *lists[2] = {&e->values, &e->settling};

		if (e->consumer)
			entry_close(e);
		pg_conn_drop(e);
		for (unsigned k = 0; k < 2; k++)
			while (!rp_list_empty(lists[k]))
				value_free(rp_list_entry(lists[k]->next, struct pg_value, node));
		pg_spec_free(&e->spec);
	}
	explicit_bzero(p->url, strlen(p->url));
	free(p->url);
	free(p->dead_letter);
	free(p);
}

unsigned rp_postgres_entry_count(const struct rp_postgres *p)
{
	return p->entry_count;
}

struct rp_span rp_postgres_event(const struct rp_postgres *p, unsigned entry, bool *is_prefix)
{
	const struct pg_spec *s = &p->entries[entry].spec;

	*is_prefix = s->is_prefix;
	return (struct rp_span){(const uint8_t *)s->event, strlen(s->event)};
}

const struct rp_postgres_counters *rp_postgres_counters(const struct rp_postgres *p)
{
	return &p->counters;
}

void rp_postgres_each(struct rp_postgres *p,
	void (*fn)(void *ctx, const struct rp_postgres_state *state), void *ctx)
{
	for (unsigned i = 0; i < p->entry_count; i++) {
		const struct pg_entry *e = &p->entries[i];
		const struct rp_postgres_state state = {
			.event = {(const uint8_t *)e->spec.event, strlen(e->spec.event)},
			.is_prefix = e->spec.is_prefix,
			.consuming = e->consumer != NULL,
			.connected = e->state >= PG_READY,
			.table = e->spec.table,
			.held = e->value_count,
			.failures = e->failures,
			.error = e->error,
		};

		fn(ctx, &state);
	}
}
