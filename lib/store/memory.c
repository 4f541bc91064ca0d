/* SPDX-License-Identifier: Apache-2.0 */

/* The storage in memory: of this process, and gone with it. */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <base/hmap.h>
#include <store/store_priv.h>

#define MEMORY_BITS 12
/** What an item costs besides its bytes. */
#define OVERHEAD 96
/** Values whose time is over are looked for so many at each new one. */
#define SWEEP 4

struct item {
	struct rp_list node;
	uint64_t id; /**< of one that is held */
	size_t length;
	uint8_t bytes[];
};

struct list {
	struct rp_hmap_node by_name;
	char *name;
	struct rp_list items; /**< struct item, oldest first */
	uint64_t count;
	uint32_t takers;
};

struct value {
	struct rp_hmap_node by_key;
	struct rp_list node; /**< memory->sweep */
	char *key;
	uint64_t end_ms;
	size_t length;
	uint8_t bytes[];
};

struct memory;

struct taker {
	struct rp_list node; /**< memory->takers, the one served last at the back */
	struct memory *m;
	struct list *list;
	struct rp_list held; /**< struct item */
	uint32_t want;
	rp_store_entry_fn entry;
	void *ctx;
};

struct memory {
	struct store_init init;
	struct rp_hmap lists, values;
	struct rp_list sweep, takers;
	uint64_t bytes, id_last;
	struct rp_loop_task task;
};

static struct rp_hmap map_new(void)
{
	return (struct rp_hmap){.chains = store_alloc(sizeof(struct rp_hmap_node *) << MEMORY_BITS),
		.bits = MEMORY_BITS};
}

static void answer(store_done_fn done, void *ctx, enum rp_store_status status, uint64_t count)
{
	const struct store_answer a = {.status = status, .text = "", .count = count};

	done(ctx, &a);
}

/* ---- lists ---- */

static struct list *list_find(struct memory *m, const char *name)
{
	struct rp_hmap_node *n = rp_hmap_find(&m->lists, store_hash(name, strlen(name)));

	for (; n; n = n->next) {
		struct list *l = RP_CONTAINER_OF(n, struct list, by_name);

		if (strcmp(l->name, name) == 0)
			return l;
	}
	return NULL;
}

static struct list *list_get(struct memory *m, const char *name)
{
	struct list *l = list_find(m, name);

	if (l)
		return l;
	l = store_alloc(sizeof(*l));
	l->name = store_text("%s", name);
	rp_list_init(&l->items);
	rp_hmap_insert(&m->lists, &l->by_name, store_hash(name, strlen(name)));
	return l;
}

static void item_free(struct memory *m, struct item *i)
{
	m->bytes -= i->length + OVERHEAD;
	free(i);
}

static void list_tidy(struct memory *m, struct list *l)
{
	if (l->count > 0 || l->takers > 0)
		return;
	rp_hmap_remove(&m->lists, &l->by_name);
	free(l->name);
	free(l);
}

static void list_add(struct memory *m, struct list *l, struct rp_span bytes)
{
	struct item *i = store_alloc(sizeof(*i) + bytes.length);

	i->length = bytes.length;
	if (bytes.length > 0)
		memcpy(i->bytes, bytes.data, bytes.length);
	m->bytes += i->length + OVERHEAD;
	rp_list_push_back(&l->items, &i->node);
	l->count++;
}

static uint64_t list_trim(struct memory *m, struct list *l, uint32_t max)
{
	uint64_t gone = 0;

	for (; l->count > max; gone++) {
		struct rp_list *n = rp_list_pop_front(&l->items);

		l->count--;
		item_free(m, rp_list_entry(n, struct item, node));
	}
	return gone;
}

static bool has_room(const struct memory *m, size_t length)
{
	return m->bytes + length + OVERHEAD <= m->init.memory_bytes_max;
}

static void memory_push(void *b, const char *name, struct rp_span value, uint32_t max,
	enum store_full full, store_done_fn done, void *ctx)
{
	struct memory *m = b;
	struct list *l = list_find(m, name);
	uint64_t gone = 0;

	if (!has_room(m, value.length) ||
		(l && max > 0 && full == STORE_FULL_REFUSE && l->count >= max)) {
		answer(done, ctx, RP_STORE_FULL, 0);
		return;
	}
	l = list_get(m, name);
	list_add(m, l, value);
	if (full == STORE_FULL_TRIM && max > 0)
		gone = list_trim(m, l, max);
	rp_loop_task_post(m->init.loop, &m->task);
	answer(done, ctx, RP_STORE_OK, gone);
}

static void memory_length(void *b, const char *name, store_done_fn done, void *ctx)
{
	struct list *l = list_find(b, name);

	answer(done, ctx, RP_STORE_OK, l ? l->count : 0);
}

/* ---- values ---- */

static void value_free(struct memory *m, struct value *v)
{
	rp_hmap_remove(&m->values, &v->by_key);
	rp_list_unlink(&v->node);
	m->bytes -= v->length + OVERHEAD;
	free(v->key);
	free(v);
}

static struct value *value_find(struct memory *m, const char *key)
{
	struct rp_hmap_node *n = rp_hmap_find(&m->values, store_hash(key, strlen(key)));

	for (; n; n = n->next) {
		struct value *v = RP_CONTAINER_OF(n, struct value, by_key);

		if (strcmp(v->key, key) == 0)
			return v;
	}
	return NULL;
}

/* Round by round through all: each new value pays for the end of some old ones. */
static void sweep(struct memory *m)
{
	uint64_t now_ms = m->init.wall_ms(m->init.ctx);

	for (unsigned i = 0; i < SWEEP && !rp_list_empty(&m->sweep); i++) {
		struct value *v = rp_list_entry(m->sweep.next, struct value, node);

		if (v->end_ms <= now_ms) {
			value_free(m, v);
			continue;
		}
		rp_list_unlink(&v->node);
		rp_list_push_back(&m->sweep, &v->node);
	}
}

static void value_set(struct memory *m, const char *key, struct rp_span bytes, uint64_t end_ms)
{
	struct value *v = value_find(m, key);

	if (v)
		value_free(m, v);
	v = store_alloc(sizeof(*v) + bytes.length);
	v->key = store_text("%s", key);
	v->end_ms = end_ms;
	v->length = bytes.length;
	memcpy(v->bytes, bytes.data, bytes.length);
	m->bytes += v->length + OVERHEAD;
	rp_hmap_insert(&m->values, &v->by_key, store_hash(key, strlen(key)));
	rp_list_push_back(&m->sweep, &v->node);
}

static void memory_get(void *b, const char *key, store_done_fn done, void *ctx)
{
	struct memory *m = b;
	struct value *v = value_find(m, key);
	struct store_answer a = {.status = RP_STORE_OK, .text = ""};

	if (v && v->end_ms <= m->init.wall_ms(m->init.ctx)) {
		value_free(m, v);
		v = NULL;
	}
	if (!v) {
		answer(done, ctx, RP_STORE_NONE, 0);
		return;
	}
	a.value = (struct rp_span){v->bytes, v->length};
	done(ctx, &a);
}

static void memory_forward(void *b, const struct store_forward *f, store_done_fn done, void *ctx)
{
	struct memory *m = b;
	uint64_t now_ms = m->init.wall_ms(m->init.ctx);
	size_t bytes = f->value.length + f->sender.length + 2 * OVERHEAD;
	struct list *l;

	sweep(m);
	for (uint32_t i = 0; i < f->entry_count; i++)
		bytes += strlen(f->entries[i]) + OVERHEAD;
	if (!has_room(m, bytes)) {
		answer(done, ctx, RP_STORE_FULL, 0);
		return;
	}
	value_set(m, f->key, f->value, now_ms + f->ttl_ms);
	value_set(m, f->sender_key, f->sender, now_ms + f->sender_ttl_ms);
	l = list_get(m, f->list);
	for (uint32_t i = 0; i < f->entry_count; i++)
		list_add(m, l,
			(struct rp_span){(const uint8_t *)f->entries[i], strlen(f->entries[i])});
	rp_loop_task_post(m->init.loop, &m->task);
	answer(done, ctx, RP_STORE_OK, 0);
}

/* ---- takers ---- */

static struct taker *taker_with_work(struct memory *m)
{
	struct rp_list *n;

	rp_list_foreach (n, &m->takers) {
		struct taker *t = rp_list_entry(n, struct taker, node);

		if (t->want > 0 && t->list->count > 0)
			return t;
	}
	return NULL;
}

static void on_task(void *ctx)
{
	struct memory *m = ctx;
	struct taker *t;

	while ((t = taker_with_work(m))) {
		struct item *i =
			rp_list_entry(rp_list_pop_front(&t->list->items), struct item, node);

		t->list->count--;
		t->want--;
		i->id = ++m->id_last;
		rp_list_push_back(&t->held, &i->node);
		rp_list_unlink(&t->node);
		rp_list_push_back(&m->takers, &t->node);
		t->entry(t->ctx, i->id, (struct rp_span){i->bytes, i->length});
	}
}

static void *memory_take(
	void *b, const char *name, const char *held, rp_store_entry_fn entry, void *ctx)
{
	struct memory *m = b;
	struct taker *t = store_alloc(sizeof(*t));

	t->m = m;
	t->list = list_get(m, name);
	t->list->takers++;
	t->entry = entry;
	t->ctx = ctx;
	rp_list_init(&t->held);
	rp_list_push_back(&m->takers, &t->node);
	return t;
}

static void memory_want(void *taker, uint32_t more)
{
	struct taker *t = taker;

	t->want += more;
	rp_loop_task_post(t->m->init.loop, &t->m->task);
}

static struct item *held_find(struct taker *t, uint64_t id)
{
	struct rp_list *n;

	rp_list_foreach (n, &t->held)
		if (rp_list_entry(n, struct item, node)->id == id)
			return rp_list_entry(n, struct item, node);
	return NULL;
}

static void memory_settle(void *taker, uint64_t id)
{
	struct taker *t = taker;
	struct item *i = held_find(t, id);

	if (!i)
		return;
	rp_list_unlink(&i->node);
	item_free(t->m, i);
}

static void back(struct taker *t, struct item *i)
{
	rp_list_unlink(&i->node);
	rp_list_push_front(&t->list->items, &i->node);
	t->list->count++;
	rp_loop_task_post(t->m->init.loop, &t->m->task);
}

static void memory_give_back(void *taker, uint64_t id)
{
	struct taker *t = taker;
	struct item *i = held_find(t, id);

	if (i)
		back(t, i);
}

static void memory_take_end(void *taker)
{
	struct taker *t = taker;

	/* From the youngest on, so that the oldest is at the head again. */
	while (!rp_list_empty(&t->held))
		back(t, rp_list_entry(t->held.prev, struct item, node));
	rp_list_unlink(&t->node);
	t->list->takers--;
	list_tidy(t->m, t->list);
	free(t);
}

/* ---- creation ---- */

void *store_memory_new(const struct store_init *init)
{
	struct memory *m = store_alloc(sizeof(*m));

	m->init = *init;
	m->lists = map_new();
	m->values = map_new();
	rp_list_init(&m->sweep);
	rp_list_init(&m->takers);
	rp_loop_task_setup(&m->task, on_task, m);
	return m;
}

static void memory_destroy(void *b)
{
	struct memory *m = b;

	rp_loop_task_cancel(&m->task);
	while (!rp_list_empty(&m->takers))
		memory_take_end(rp_list_entry(m->takers.next, struct taker, node));
	rp_loop_task_cancel(&m->task);
	while (!rp_list_empty(&m->sweep))
		value_free(m, rp_list_entry(m->sweep.next, struct value, node));
	for (unsigned i = 0; i < 1u << MEMORY_BITS; i++)
		while (m->lists.chains[i]) {
			struct list *l = RP_CONTAINER_OF(m->lists.chains[i], struct list, by_name);

			list_trim(m, l, 0);
			list_tidy(m, l);
		}
	free(m->lists.chains);
	free(m->values.chains);
	free(m);
}

static void memory_set_timeout(void *b, uint32_t timeout_ms)
{
}

static void memory_state(void *b, struct rp_store_state *state)
{
	struct memory *m = b;
	struct rp_list *n, *i;

	state->connected = true;
	strcpy(state->address, "memory");
	state->bytes = m->bytes;
	rp_list_foreach (n, &m->takers) {
		state->takers++;
		rp_list_foreach (i, &rp_list_entry(n, struct taker, node)->held)
			state->held++;
	}
}

const struct store_backend store_memory = {
	.destroy = memory_destroy,
	.set_timeout = memory_set_timeout,
	.get = memory_get,
	.push = memory_push,
	.forward = memory_forward,
	.length = memory_length,
	.take = memory_take,
	.want = memory_want,
	.settle = memory_settle,
	.give_back = memory_give_back,
	.take_end = memory_take_end,
	.state = memory_state,
};
