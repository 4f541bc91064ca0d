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
#include <store/store_priv.h>

/** Entries of a system queue that are taken ahead of who asks for them. */
#define AHEAD 8
/** For so long after its end it is known who sent a message. */
#define SENDER_MORE_MS 60000ull
#define TEXT_SIZE 256

enum call_kind { CALL_GET, CALL_PUSH, CALL_LOCAL, CALL_QUEUED };

/** An entry that was taken ahead. */
struct ahead {
	struct rp_list node;
	uint64_t id;
	size_t length;
	uint8_t bytes[];
};

/** A queue of the bus from which entries are taken for who asks. */
struct source {
	struct rp_store *s;
	const char *list;
	struct rp_store_taker *taker; /**< NULL: nobody has asked yet */
	struct rp_list ahead;	      /**< struct ahead, oldest first */
};

struct call {
	struct rp_list node; /**< s->open, s->finished, or one of those who wait */
	struct rp_store *s;
	rp_store_done_fn done;
	void *ctx;
	enum call_kind kind;
	struct rp_store_result result;
	char text[TEXT_SIZE];
	struct source *from; /**< settled when it is done */
	uint64_t from_id;
};

/** A forward entry whose message is asked of the backlog, or one whose sender is told. */
struct lookup {
	struct rp_list node; /**< s->lookups */
	struct rp_store *s;
	struct call *call; /**< who gets it; NULL: the sender is looked for */
	uint64_t entry_id;
	uint32_t destination;
	char id[];
};

struct rp_store_taker {
	struct rp_list node; /**< s->takers */
	struct rp_store *s;
	void *taker;
	rp_store_entry_fn entry;
	void *ctx;
};

struct rp_store {
	struct rp_loop *loop;
	const struct store_backend *ops;
	void *backend;
	struct store_cache *cache;
	char *owner;
	uint32_t commands_max;
	uint64_t (*wall_ms)(void *ctx);
	void *wall_ctx;
	struct rp_list open, finished, lookups, takers;
	struct rp_list want_local, want_queued; /**< calls, in the order in which they came */
	struct source local, forward, reply;
	bool reply_is_next;
	struct rp_loop_task task;
	struct rp_store_counters counters;
};

static void pump_queued(struct rp_store *s);
static void pump_local(struct rp_store *s);

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
	const uint8_t *p = data;
	uint64_t h = 0xcbf29ce484222325ull;

	for (size_t i = 0; i < length; i++)
		h = (h ^ p[i]) * 0x100000001b3ull;
	return h;
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

static uint64_t wall_ms(struct rp_store *s)
{
	return s->wall_ms(s->wall_ctx);
}

/* ---- calls ---- */

static struct call *call_new(
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
static void finish(struct call *c, enum rp_store_status status, const char *text,
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
	finish(c, a->status, a->text, NULL);
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
		finish(c, a->status, a->text, NULL);
		return;
	}
	m = rp_bus_message_parse(a->value);
	if (m && rp_bus_message_ttl(m, wall_ms(c->s), &ttl_ms) && ttl_ms == 0) {
		rp_bus_message_free(m);
		finish(c, RP_STORE_NONE, NULL, NULL);
		return;
	}
	finish(c, m ? RP_STORE_OK : RP_STORE_MALFORMED, NULL, m);
}

void rp_store_get(struct rp_store *s, const char *id, rp_store_done_fn done, void *ctx)
{
	struct call *c = call_new(s, CALL_GET, done, ctx);
	char *key = store_text(RP_STORE_PREFIX "backlog.%s", id);

	s->counters.gets++;
	if (id[0])
		s->ops->get(s->backend, key, on_got, c);
	else
		finish(c, RP_STORE_INVALID, NULL, NULL);
	free(key);
}

/* Its JSON; what has no time of its making gets one, or its life would begin anew at each step. */
static char *format(struct rp_store *s, const struct rp_bus_message *m, size_t *length)
{
	struct rp_bus_message dated = *m;

	if (m->now <= 0)
		dated.now = (int64_t)(wall_ms(s) / 1000);
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

static bool is_over(struct rp_store *s, const struct rp_bus_message *m)
{
	uint64_t ttl_ms;

	return rp_bus_message_ttl(m, wall_ms(s), &ttl_ms) && ttl_ms == 0;
}

void rp_store_run(
	struct rp_store *s, const struct rp_bus_message *m, rp_store_done_fn done, void *ctx)
{
	struct call *c = call_new(s, CALL_PUSH, done, ctx);
	struct rp_span value;
	char *list, *json;

	s->counters.runs++;
	if (m->id[0] == '\0' || !command_ok(m->command)) {
		finish(c, RP_STORE_INVALID, NULL, NULL);
		return;
	}
	if (is_over(s, m)) {
		finish(c, RP_STORE_EXPIRED, NULL, NULL);
		return;
	}
	json = format(s, m, &value.length);
	value.data = (const uint8_t *)json;
	list = store_text(RP_STORE_PREFIX "%s", m->command);
	if (json)
		s->ops->push(s->backend, list, value, s->commands_max, STORE_FULL_TRIM, on_run, c);
	else
		finish(c, RP_STORE_INVALID, "a text is no UTF-8", NULL);
	free(list);
	free(json);
}

void rp_store_reply(
	struct rp_store *s, const struct rp_bus_message *m, rp_store_done_fn done, void *ctx)
{
	struct call *c = call_new(s, CALL_PUSH, done, ctx);
	struct rp_span value;
	char *json;

	s->counters.replies++;
	if (m->id[0] == '\0' || m->reply[0] == '\0') {
		finish(c, RP_STORE_INVALID, NULL, NULL);
		return;
	}
	json = format(s, m, &value.length);
	value.data = (const uint8_t *)json;
	if (json)
		s->ops->push(s->backend, m->reply, value, 0, STORE_FULL_REFUSE, on_pushed, c);
	else
		finish(c, RP_STORE_INVALID, "a text is no UTF-8", NULL);
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
		finish(c, RP_STORE_INVALID, "a text is no UTF-8", NULL);
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
	struct call *c = call_new(s, CALL_PUSH, done, ctx);
	uint64_t ttl_ms;

	s->counters.forwards++;
	if (m->id[0] == '\0' || m->destination_count == 0) {
		finish(c, RP_STORE_INVALID, NULL, NULL);
		return;
	}
	if (!rp_bus_message_ttl(m, wall_ms(s), &ttl_ms))
		ttl_ms = RP_STORE_TTL_DEFAULT_MS;
	if (ttl_ms == 0)
		finish(c, RP_STORE_EXPIRED, NULL, NULL);
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

/* ---- local and queued ---- */

static void on_source(void *ctx, uint64_t id, struct rp_span entry)
{
	struct source *from = ctx;
	struct ahead *a = store_alloc(sizeof(*a) + entry.length);

	a->id = id;
	a->length = entry.length;
	memcpy(a->bytes, entry.data, entry.length);
	rp_list_push_back(&from->ahead, &a->node);
	if (from == &from->s->local)
		pump_local(from->s);
	else
		pump_queued(from->s);
}

static void source_open(struct source *from)
{
	if (from->taker)
		return;
	from->taker = rp_store_take(from->s, from->list, on_source, from);
	rp_store_want(from->taker, AHEAD);
}

static void source_init(struct rp_store *s, struct source *from, const char *list)
{
	from->s = s;
	from->list = list;
	rp_list_init(&from->ahead);
}

static void source_free(struct source *from)
{
	struct rp_list *n;

	while ((n = rp_list_pop_front(&from->ahead)))
		free(rp_list_entry(n, struct ahead, node));
}

static struct ahead *source_next(struct source *from)
{
	struct rp_list *n = rp_list_pop_front(&from->ahead);

	rp_store_want(from->taker, 1);
	return rp_list_entry(n, struct ahead, node);
}

static struct rp_bus_message *parse_ahead(const struct ahead *a)
{
	return rp_bus_message_parse((struct rp_span){a->bytes, a->length});
}

/* What is no message is dropped, counted, and the next one's turn. */
static void drop_malformed(struct source *from, uint64_t id)
{
	from->s->counters.malformed_dropped++;
	rp_store_settle(from->taker, id);
}

static struct call *pop_call(struct rp_list *waiting)
{
	return rp_list_entry(rp_list_pop_front(waiting), struct call, node);
}

static void hand_over(struct call *c, struct source *from, uint64_t id, struct rp_bus_message *m)
{
	c->from = from;
	c->from_id = id;
	finish(c, RP_STORE_OK, NULL, m);
}

static void pump_local(struct rp_store *s)
{
	while (!rp_list_empty(&s->want_local) && !rp_list_empty(&s->local.ahead)) {
		struct ahead *a = source_next(&s->local);
		struct rp_bus_message *m = parse_ahead(a);
		char id[RP_BUS_ID_SIZE];

		if (!m) {
			drop_malformed(&s->local, a->id);
			free(a);
			continue;
		}
		if (m->id[0] == '\0') {
			rp_bus_id_new(id);
			rp_bus_text_set(&m->id, id);
		}
		if (m->now <= 0)
			m->now = (int64_t)(wall_ms(s) / 1000);
		s->counters.locals++;
		hand_over(pop_call(&s->want_local), &s->local, a->id, m);
		free(a);
	}
}

void rp_store_local(struct rp_store *s, rp_store_done_fn done, void *ctx)
{
	struct call *c = call_new(s, CALL_LOCAL, done, ctx);

	rp_list_unlink(&c->node);
	rp_list_push_back(&s->want_local, &c->node);
	source_open(&s->local);
	pump_local(s);
}

/* <id>.<destination>, split at the last dot. False: it is none. */
static bool parse_forward(const struct ahead *a, char *id, uint32_t *destination)
{
	uint64_t value = 0;
	size_t dot = a->length;

	while (dot > 0 && a->bytes[dot - 1] != '.')
		dot--;
	if (dot < 2 || dot == a->length || a->length - dot > 10 || memchr(a->bytes, 0, a->length))
		return false;
	for (size_t i = dot; i < a->length; i++) {
		if (a->bytes[i] < '0' || a->bytes[i] > '9')
			return false;
		value = value * 10 + (uint64_t)(a->bytes[i] - '0');
	}
	memcpy(id, a->bytes, dot - 1);
	id[dot - 1] = '\0';
	*destination = (uint32_t)value;
	return value <= UINT32_MAX;
}

static void lookup_free(struct lookup *l)
{
	rp_list_unlink(&l->node);
	free(l);
}

/* ---- a message whose time was over ---- */

static void on_told(void *ctx, const struct store_answer *a)
{
	struct lookup *l = ctx;

	l->s->counters.senders_told += a->status == RP_STORE_OK;
	lookup_free(l);
}

static void tell(struct lookup *l, struct rp_bus_message *m)
{
	struct rp_span value = {0};
	char *json;

	rp_bus_text_set(&m->error, rp_store_status_text(RP_STORE_EXPIRED));
	rp_bus_text_set(&m->data, "");
	rp_bus_message_set_destination(m, m->source);
	m->source = l->destination;
	json = rp_bus_message_format(m, &value.length);
	value.data = (const uint8_t *)json;
	if (json && m->reply[0])
		l->s->ops->push(l->s->backend, m->reply, value, 0, STORE_FULL_REFUSE, on_told, l);
	else
		lookup_free(l);
	free(json);
}

static void on_sender(void *ctx, const struct store_answer *a)
{
	struct lookup *l = ctx;
	struct rp_bus_message *m = a->status == RP_STORE_OK ? rp_bus_message_parse(a->value) : NULL;

	if (m)
		tell(l, m);
	else
		lookup_free(l);
	rp_bus_message_free(m);
}

/* take: l, whose call has been served otherwise. */
static void expired(struct lookup *l)
{
	char *key = store_text(RP_STORE_PREFIX "sender.%s", l->id);

	l->s->counters.forwards_expired_dropped++;
	store_cache_remove(l->s->cache, l->id);
	rp_store_settle(l->s->forward.taker, l->entry_id);
	l->s->ops->get(l->s->backend, key, on_sender, l);
	free(key);
}

static void forward_found(struct lookup *l, struct rp_bus_message *m)
{
	struct rp_store *s = l->s;
	struct call *c = l->call;

	rp_bus_message_set_destination(m, l->destination);
	s->counters.queued_forwards++;
	c->result.kind = RP_STORE_KIND_FORWARD;
	hand_over(c, &s->forward, l->entry_id, m);
	lookup_free(l);
}

/* The call goes back to the head of those who wait. */
static void call_again(struct lookup *l)
{
	rp_list_unlink(&l->call->node);
	rp_list_push_front(&l->s->want_queued, &l->call->node);
	l->call = NULL;
}

static void on_backlog(void *ctx, const struct store_answer *a)
{
	struct lookup *l = ctx;
	struct rp_store *s = l->s;
	struct rp_bus_message *m = NULL;

	if (a->status != RP_STORE_OK && a->status != RP_STORE_NONE) {
		/* It stays this owner's, and its turn comes again. */
		rp_store_give_back(s->forward.taker, l->entry_id);
		finish(l->call, a->status, a->text, NULL);
		lookup_free(l);
		return;
	}
	if (a->status == RP_STORE_OK)
		m = rp_bus_message_parse(a->value);
	if (m && !is_over(s, m)) {
		store_cache_put(s->cache, m);
		forward_found(l, m);
		return;
	}
	call_again(l);
	if (a->status == RP_STORE_OK && !m) {
		drop_malformed(&s->forward, l->entry_id);
		lookup_free(l);
	} else {
		rp_bus_message_free(m);
		expired(l);
	}
	pump_queued(s);
}

static void look_up(struct rp_store *s, const struct ahead *a)
{
	struct lookup *l = store_alloc(sizeof(*l) + a->length + 1);
	const struct rp_bus_message *m;
	char *key;

	if (!parse_forward(a, l->id, &l->destination)) {
		free(l);
		drop_malformed(&s->forward, a->id);
		return;
	}
	l->s = s;
	l->entry_id = a->id;
	rp_list_push_back(&s->lookups, &l->node);
	m = store_cache_get(s->cache, l->id);
	if (m && is_over(s, m)) {
		expired(l);
		return;
	}
	l->call = pop_call(&s->want_queued);
	rp_list_push_back(&s->open, &l->call->node);
	if (m) {
		s->counters.cache_hits++;
		forward_found(l, rp_bus_message_copy(m));
		return;
	}
	s->counters.cache_misses++;
	key = store_text(RP_STORE_PREFIX "backlog.%s", l->id);
	s->ops->get(s->backend, key, on_backlog, l);
	free(key);
}

static void take_reply(struct rp_store *s, const struct ahead *a)
{
	struct rp_bus_message *m = parse_ahead(a);
	struct call *c;

	if (!m) {
		drop_malformed(&s->reply, a->id);
		return;
	}
	c = pop_call(&s->want_queued);
	s->counters.queued_replies++;
	c->result.kind = RP_STORE_KIND_REPLY;
	hand_over(c, &s->reply, a->id, m);
}

/* By turns while both have some: a flood of one leaves the other every second place. */
static void pump_queued(struct rp_store *s)
{
	while (!rp_list_empty(&s->want_queued)) {
		bool forward = !rp_list_empty(&s->forward.ahead);
		bool reply = !rp_list_empty(&s->reply.ahead);
		struct ahead *a;

		if (!forward && !reply)
			return;
		reply = reply && (!forward || s->reply_is_next);
		s->reply_is_next = !reply;
		a = source_next(reply ? &s->reply : &s->forward);
		if (reply)
			take_reply(s, a);
		else
			look_up(s, a);
		free(a);
	}
}

void rp_store_queued(struct rp_store *s, rp_store_done_fn done, void *ctx)
{
	struct call *c = call_new(s, CALL_QUEUED, done, ctx);

	rp_list_unlink(&c->node);
	rp_list_push_back(&s->want_queued, &c->node);
	source_open(&s->forward);
	source_open(&s->reply);
	pump_queued(s);
}

/* ---- any queue ---- */

void rp_store_push(struct rp_store *s, const char *queue, struct rp_span entry, uint32_t max,
	rp_store_done_fn done, void *ctx)
{
	s->ops->push(s->backend, queue, entry, max, STORE_FULL_REFUSE, on_pushed,
		call_new(s, CALL_PUSH, done, ctx));
}

void rp_store_length(struct rp_store *s, const char *queue, rp_store_done_fn done, void *ctx)
{
	s->ops->length(s->backend, queue, on_pushed, call_new(s, CALL_PUSH, done, ctx));
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
	source_init(s, &s->local, RP_STORE_LOCAL);
	source_init(s, &s->forward, RP_STORE_FORWARD);
	source_init(s, &s->reply, RP_STORE_REPLY);
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
	source_free(&s->local);
	source_free(&s->forward);
	source_free(&s->reply);
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
