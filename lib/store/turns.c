/* SPDX-License-Identifier: Apache-2.0 */

/* What is taken for who asks: local messages, and those to be forwarded or answered by turns. */

#include <stdlib.h>
#include <string.h>

#include <base/assert.h>
#include <store/bus_priv.h>

/** Entries of a system queue that are taken ahead of who asks for them. */
#define AHEAD 8

static void pump_queued(struct rp_store *s);
static void pump_local(struct rp_store *s);

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

void store_source_init(struct rp_store *s, struct source *from, const char *list)
{
	from->s = s;
	from->list = list;
	rp_list_init(&from->ahead);
}

void store_source_free(struct source *from)
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
	store_call_finish(c, RP_STORE_OK, NULL, m);
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
			m->now = (int64_t)(store_now_ms(s) / 1000);
		s->counters.locals++;
		hand_over(pop_call(&s->want_local), &s->local, a->id, m);
		free(a);
	}
}

void rp_store_local(struct rp_store *s, rp_store_done_fn done, void *ctx)
{
	struct call *c = store_call_new(s, CALL_LOCAL, done, ctx);

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
		store_call_finish(l->call, a->status, a->text, NULL);
		lookup_free(l);
		return;
	}
	if (a->status == RP_STORE_OK)
		m = rp_bus_message_parse(a->value);
	if (m && !store_is_over(s, m)) {
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
	if (m && store_is_over(s, m)) {
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
	struct call *c = store_call_new(s, CALL_QUEUED, done, ctx);

	rp_list_unlink(&c->node);
	rp_list_push_back(&s->want_queued, &c->node);
	source_open(&s->forward);
	source_open(&s->reply);
	pump_queued(s);
}
