/* SPDX-License-Identifier: Apache-2.0 */

/* The bus upon a storage: ids, lives, turns between forward and reply, who is told. */

#include <store/store.h>

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <base/assert.h>
#include <base/fnv.h>
#include <store/bus_priv.h>

/** For so long after its end it is known who sent a message. */
#define SENDER_MORE_MS 60000ull

/* ---- helpers ---- */

void *store_alloc(size_t size)
{
	void *p = calloc(1, size);

	RP_ASSERT(p != NULL);
	return p;
}

char *store_text(const char *format, ...)
{
	va_list args;
	char *text;
	int n;

	va_start(args, format);
	n = vasprintf(&text, format, args);
	va_end(args);
	RP_ASSERT(n >= 0);
	return text;
}

uint64_t store_hash(const void *data, size_t length)
{
	return rp_fnv1a(RP_FNV1A_BASIS, data, length);
}

const char *rp_store_status_text(enum rp_store_status status)
{
	static const char *const texts[] = {
#define X(name, text) text,
		RP_STORE_STATUSES(X)
#undef X
	};

	return texts[status];
}

static uint64_t system_wall_ms(void *ctx)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / RP_NS_PER_MS;
}

uint64_t store_now_ms(struct rp_store *s)
{
	return s->wall_ms(s->wall_ctx);
}

/* ---- calls ---- */

struct call *store_call_new(
	struct rp_store *s, enum call_kind kind, rp_store_done_fn done, void *ctx)
{
	struct call *c = store_alloc(sizeof(*c));

	c->s = s;
	c->kind = kind;
	c->done = done;
	c->ctx = ctx;
	rp_list_push_back(&s->open, &c->node);
	return c;
}

static void call_free(struct call *c)
{
	rp_list_unlink(&c->node);
	rp_bus_message_free(c->result.message);
	free(c);
}

/* take: message, which may be NULL. */
void store_call_finish(struct call *c, enum rp_store_status status, const char *text,
	struct rp_bus_message *message)
{
	struct rp_store *s = c->s;

	if (status == RP_STORE_OK)
		c->text[0] = '\0';
	else if (text && text[0])
		snprintf(c->text, sizeof(c->text), "%s: %s", rp_store_status_text(status), text);
	else
		snprintf(c->text, sizeof(c->text), "%s", rp_store_status_text(status));
	c->result.status = status;
	c->result.text = c->text;
	c->result.message = message;
	s->counters.failed += status == RP_STORE_FULL || status == RP_STORE_UNAVAILABLE ||
			      status == RP_STORE_TIMEOUT || status == RP_STORE_REFUSED;
	s->counters.refused_expired += status == RP_STORE_EXPIRED;
	s->counters.refused_invalid += status == RP_STORE_INVALID;
	rp_list_unlink(&c->node);
	rp_list_push_back(&s->finished, &c->node);
	rp_loop_task_post(s->loop, &s->task);
}

static void on_finished(void *ctx)
{
	struct rp_store *s = ctx;
	struct rp_list batch, *n;

	/* What these begin ends in a turn of its own. */
	rp_list_init(&batch);
	rp_list_splice_back(&batch, &s->finished);
	while ((n = rp_list_pop_front(&batch))) {
		struct call *c = rp_list_entry(n, struct call, node);

		if (c->done)
			c->done(c->ctx, &c->result);
		if (c->from)
			rp_store_settle(c->from->taker, c->from_id);
		call_free(c);
	}
}

static void on_pushed(void *ctx, const struct store_answer *a)
{
	struct call *c = ctx;

	c->result.count = a->count;
	store_call_finish(c, a->status, a->text, NULL);
}

static void on_run(void *ctx, const struct store_answer *a)
{
	struct call *c = ctx;

	c->s->counters.commands_dropped += a->count;
	on_pushed(ctx, a);
}

/* ---- get, run, forward, reply ---- */

static void on_got(void *ctx, const struct store_answer *a)
{
	struct call *c = ctx;
	struct rp_bus_message *m;
	uint64_t ttl_ms;

	if (a->status != RP_STORE_OK) {
		store_call_finish(c, a->status, a->text, NULL);
		return;
	}
	m = rp_bus_message_parse(a->value);
	if (m && rp_bus_message_ttl(m, store_now_ms(c->s), &ttl_ms) && ttl_ms == 0) {
		rp_bus_message_free(m);
		store_call_finish(c, RP_STORE_NONE, NULL, NULL);
		return;
	}
	store_call_finish(c, m ? RP_STORE_OK : RP_STORE_MALFORMED, NULL, m);
}

void rp_store_get(struct rp_store *s, const char *id, rp_store_done_fn done, void *ctx)
{
	struct call *c = store_call_new(s, CALL_GET, done, ctx);
	char *key = store_text(RP_STORE_PREFIX "backlog.%s", id);

	s->counters.gets++;
	if (id[0])
		s->ops->get(s->backend, key, on_got, c);
	else
		store_call_finish(c, RP_STORE_INVALID, NULL, NULL);
	free(key);
}

/* Its JSON; what has no time of its making gets one, or its life would begin anew at each step. */
static char *format(struct rp_store *s, const struct rp_bus_message *m, size_t *length)
{
	struct rp_bus_message dated = *m;

	if (m->now <= 0)
		dated.now = (int64_t)(store_now_ms(s) / 1000);
	return rp_bus_message_format(&dated, length);
}

/* Names that are the bus's own, of which no program's queue may be. */
static bool command_ok(const char *command)
{
	static const char *const own[] = {"system.", "backlog.", "sender.", "held."};

	for (size_t i = 0; i < RP_ARRAY_SIZE(own); i++)
		if (strncmp(command, own[i], strlen(own[i])) == 0)
			return false;
	return command[0] != '\0';
}

bool store_is_over(struct rp_store *s, const struct rp_bus_message *m)
{
	uint64_t ttl_ms;

	return rp_bus_message_ttl(m, store_now_ms(s), &ttl_ms) && ttl_ms == 0;
}

void rp_store_run(
	struct rp_store *s, const struct rp_bus_message *m, rp_store_done_fn done, void *ctx)
{
	struct call *c = store_call_new(s, CALL_PUSH, done, ctx);
	struct rp_span value;
	char *list, *json;

	s->counters.runs++;
	if (m->id[0] == '\0' || !command_ok(m->command)) {
		store_call_finish(c, RP_STORE_INVALID, NULL, NULL);
		return;
	}
	if (store_is_over(s, m)) {
		store_call_finish(c, RP_STORE_EXPIRED, NULL, NULL);
		return;
	}
	json = format(s, m, &value.length);
	value.data = (const uint8_t *)json;
	list = store_text(RP_STORE_PREFIX "%s", m->command);
	if (json)
		s->ops->push(s->backend, list, value, s->commands_max, STORE_FULL_TRIM, on_run, c);
	else
		store_call_finish(c, RP_STORE_INVALID, "a text is no UTF-8", NULL);
	free(list);
	free(json);
}

void rp_store_reply(
	struct rp_store *s, const struct rp_bus_message *m, rp_store_done_fn done, void *ctx)
{
	struct call *c = store_call_new(s, CALL_PUSH, done, ctx);
	struct rp_span value;
	char *json;

	s->counters.replies++;
	if (m->id[0] == '\0' || m->reply[0] == '\0') {
		store_call_finish(c, RP_STORE_INVALID, NULL, NULL);
		return;
	}
	json = format(s, m, &value.length);
	value.data = (const uint8_t *)json;
	if (json)
		s->ops->push(s->backend, m->reply, value, 0, STORE_FULL_REFUSE, on_pushed, c);
	else
		store_call_finish(c, RP_STORE_INVALID, "a text is no UTF-8", NULL);
	free(json);
}

/* Whom to tell of its end: the message without what it carries. */
static char *format_sender(struct rp_store *s, const struct rp_bus_message *m, size_t *length)
{
	struct rp_bus_message sender = *m;
	char empty[] = "";

	sender.data = empty;
	sender.rest = NULL;
	return format(s, &sender, length);
}

static void forward_send(
	struct rp_store *s, const struct rp_bus_message *m, uint64_t ttl_ms, struct call *c)
{
	struct store_forward f = {
		.ttl_ms = ttl_ms,
		.sender_ttl_ms = ttl_ms + SENDER_MORE_MS,
		.list = RP_STORE_FORWARD,
		.entry_count = m->destination_count,
	};
	char *key = store_text(RP_STORE_PREFIX "backlog.%s", m->id);
	char *sender_key = store_text(RP_STORE_PREFIX "sender.%s", m->id);
	char *json = format(s, m, &f.value.length);
	char *sender = json ? format_sender(s, m, &f.sender.length) : NULL;
	char **entries = store_alloc(m->destination_count * sizeof(char *));

	for (uint32_t i = 0; i < m->destination_count; i++)
		entries[i] = store_text("%s.%" PRIu32, m->id, m->destinations[i]);
	f.key = key;
	f.sender_key = sender_key;
	f.value.data = (const uint8_t *)json;
	f.sender.data = (const uint8_t *)sender;
	f.entries = (const char *const *)entries;
	if (json && sender)
		s->ops->forward(s->backend, &f, on_pushed, c);
	else
		store_call_finish(c, RP_STORE_INVALID, "a text is no UTF-8", NULL);
	for (uint32_t i = 0; i < m->destination_count; i++)
		free(entries[i]);
	free(entries);
	free(sender);
	free(json);
	free(sender_key);
	free(key);
}

void rp_store_forward(
	struct rp_store *s, const struct rp_bus_message *m, rp_store_done_fn done, void *ctx)
{
	struct call *c = store_call_new(s, CALL_PUSH, done, ctx);
	uint64_t ttl_ms;

	s->counters.forwards++;
	if (m->id[0] == '\0' || m->destination_count == 0) {
		store_call_finish(c, RP_STORE_INVALID, NULL, NULL);
		return;
	}
	if (!rp_bus_message_ttl(m, store_now_ms(s), &ttl_ms))
		ttl_ms = RP_STORE_TTL_DEFAULT_MS;
	if (ttl_ms == 0)
		store_call_finish(c, RP_STORE_EXPIRED, NULL, NULL);
	else
		forward_send(s, m, ttl_ms, c);
}

/* ---- taking ---- */

static void on_taken(void *ctx, uint64_t id, struct rp_span entry)
{
	struct rp_store_taker *t = ctx;

	t->s->counters.taken++;
	t->entry(t->ctx, id, entry);
}

struct rp_store_taker *rp_store_take(
	struct rp_store *s, const char *queue, rp_store_entry_fn entry, void *ctx)
{
	struct rp_store_taker *t = store_alloc(sizeof(*t));
	size_t n = strlen(RP_STORE_PREFIX);
	char *held = store_text(RP_STORE_PREFIX "held.%s.%s", s->owner,
		strncmp(queue, RP_STORE_PREFIX, n) == 0 ? queue + n : queue);

	t->s = s;
	t->entry = entry;
	t->ctx = ctx;
	rp_list_push_back(&s->takers, &t->node);
	t->taker = s->ops->take(s->backend, queue, held, on_taken, t);
	free(held);
	return t;
}

void rp_store_want(struct rp_store_taker *t, uint32_t more)
{
	if (more > 0)
		t->s->ops->want(t->taker, more);
}

void rp_store_settle(struct rp_store_taker *t, uint64_t id)
{
	t->s->counters.settled++;
	t->s->ops->settle(t->taker, id);
}

void rp_store_give_back(struct rp_store_taker *t, uint64_t id)
{
	t->s->counters.returned++;
	t->s->ops->give_back(t->taker, id);
}

void rp_store_take_end(struct rp_store_taker *t)
{
	if (!t)
		return;
	t->s->ops->take_end(t->taker);
	rp_list_unlink(&t->node);
	free(t);
}

/* ---- any queue ---- */

void rp_store_push(struct rp_store *s, const char *queue, struct rp_span entry, uint32_t max,
	rp_store_done_fn done, void *ctx)
{
	s->ops->push(s->backend, queue, entry, max, STORE_FULL_REFUSE, on_pushed,
		store_call_new(s, CALL_PUSH, done, ctx));
}

void rp_store_length(struct rp_store *s, const char *queue, rp_store_done_fn done, void *ctx)
{
	s->ops->length(s->backend, queue, on_pushed, store_call_new(s, CALL_PUSH, done, ctx));
}

/* ---- creation, state ---- */

struct rp_store *rp_store_create(const struct rp_store_config *config)
{
	struct rp_store *s = store_alloc(sizeof(*s));
	bool redis = config->url && config->url[0];
	struct store_init init = {
		.loop = config->loop,
		.url = config->url,
		.timeout_ms = config->timeout_ms ? config->timeout_ms : 3000,
		.memory_bytes_max =
			config->memory_bytes_max ? config->memory_bytes_max : 256ull << 20,
		.wall_ms = config->wall_ms ? config->wall_ms : system_wall_ms,
		.ctx = config->ctx,
		.counters = &s->counters,
	};

	s->loop = config->loop;
	s->ops = redis ? &store_redis : &store_memory;
	s->backend = redis ? store_redis_new(&init) : store_memory_new(&init);
	if (!s->backend) {
		int error = errno;

		free(s);
		errno = error;
		return NULL;
	}
	s->wall_ms = init.wall_ms;
	s->wall_ctx = config->ctx;
	s->owner = store_text("%s", config->owner && config->owner[0] ? config->owner : "0");
	s->commands_max = config->commands_max ? config->commands_max : 500;
	s->cache = store_cache_new(config->cache_entries ? config->cache_entries : 1000);
	rp_list_init(&s->open);
	rp_list_init(&s->finished);
	rp_list_init(&s->lookups);
	rp_list_init(&s->takers);
	rp_list_init(&s->want_local);
	rp_list_init(&s->want_queued);
	store_source_init(s, &s->local, RP_STORE_LOCAL);
	store_source_init(s, &s->forward, RP_STORE_FORWARD);
	store_source_init(s, &s->reply, RP_STORE_REPLY);
	rp_loop_task_setup(&s->task, on_finished, s);
	return s;
}

static void calls_free(struct rp_list *calls)
{
	while (!rp_list_empty(calls))
		call_free(rp_list_entry(calls->next, struct call, node));
}

void rp_store_destroy(struct rp_store *s)
{
	struct rp_list *n;

	if (!s)
		return;
	rp_loop_task_cancel(&s->task);
	s->ops->destroy(s->backend);
	while ((n = rp_list_pop_front(&s->takers)))
		free(rp_list_entry(n, struct rp_store_taker, node));
	while ((n = rp_list_pop_front(&s->lookups)))
		free(rp_list_entry(n, struct lookup, node));
	calls_free(&s->open);
	calls_free(&s->finished);
	calls_free(&s->want_local);
	calls_free(&s->want_queued);
	store_source_free(&s->local);
	store_source_free(&s->forward);
	store_source_free(&s->reply);
	store_cache_free(s->cache);
	free(s->owner);
	free(s);
}

void rp_store_set_limits(
	struct rp_store *s, uint32_t commands_max, uint32_t cache_entries, uint32_t timeout_ms)
{
	s->commands_max = commands_max;
	store_cache_set_max(s->cache, cache_entries);
	s->ops->set_timeout(s->backend, timeout_ms);
}

void rp_store_state_get(struct rp_store *s, struct rp_store_state *state)
{
	*state = (struct rp_store_state){0};
	s->ops->state(s->backend, state);
	state->bytes += store_cache_bytes(s->cache);
}

const struct rp_store_counters *rp_store_counters(const struct rp_store *s)
{
	return &s->counters;
}
