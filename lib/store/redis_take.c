/* SPDX-License-Identifier: Apache-2.0 */

#include <store/redis_take_priv.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <hiredis/hiredis.h>

#include <base/assert.h>
#include <base/log.h>

/** A server that says nothing for so long besides the call's limit is not there any more. */
#define BLOCK_TEXT "5"
#define BLOCK_NS (5 * RP_NS_PER_S)
/** Commands at once: enough to fill a network's round trip. */
#define MOVES_MAX 64
#define PAUSE_NS (100 * RP_NS_PER_MS)
#define LENGTH_MAX_TEXT "99999"

/* For a server without room, which refuses LMOVE though it needs none. */
#define SCRIPT_MOVE                           \
	"local v=redis.call('lpop',KEYS[1]) " \
	"if v then redis.call('rpush',KEYS[2],v) end return v"
/* Twice is once: what is not held is not put back. */
#define SCRIPT_BACK                                                     \
	"if redis.call('lrem',KEYS[1],1,ARGV[1])==0 then return 0 end " \
	"return redis.call('lpush',KEYS[2],ARGV[1])"

enum held_state {
	HELD_FOUND, /**< of before, not shown yet */
	HELD_SHOWN,
	HELD_SETTLED, /**< to be removed */
	HELD_BACK,    /**< to be put back */
};

struct redis_held {
	struct rp_list node;
	struct redis_taker *t;
	enum held_state state;
	bool sent; /**< the server was told, and has not answered */
	uint64_t id, hash;
	size_t length;
	uint8_t bytes[];
};

static void go_on(struct redis_taker *t);
static void look(struct redis_taker *t);

static void held_free(struct redis_held *h)
{
	struct redis_taker *t = h->t;

	rp_list_unlink(&h->node);
	t->held_count--;
	t->held_bytes -= sizeof(*h) + h->length;
	free(h);
}

static struct redis_held *held_new(struct redis_taker *t, const char *bytes, size_t length)
{
	struct redis_held *h = store_alloc(sizeof(*h) + length);

	rp_list_init(&h->node);
	h->t = t;
	h->id = ++t->id_last;
	h->length = length;
	h->hash = store_hash(bytes, length);
	memcpy(h->bytes, bytes, length);
	t->held_count++;
	t->held_bytes += sizeof(*h) + length;
	return h;
}

static struct redis_held *held_find(struct redis_taker *t, uint64_t id)
{
	struct rp_list *n;

	rp_list_foreach (n, &t->entries)
		if (rp_list_entry(n, struct redis_held, node)->id == id)
			return rp_list_entry(n, struct redis_held, node);
	return NULL;
}

/* ---- settling, by the main connection ---- */

static void on_settled(void *ctx, const struct redisReply *reply)
{
	struct redis_held *h = ctx;
	struct redis_taker *t = h->t;

	h->sent = false;
	t->settling--;
	if (reply && reply->type == REDIS_REPLY_ERROR) {
		RP_LOG(RP_LOG_NODE, RP_LOG_WARNING, "redis: %s is not settled: %s", t->held,
			reply->str);
		rp_loop_timer_in(t->r->init.loop, &t->pause, PAUSE_NS);
	} else if (reply) {
		held_free(h);
	} /* else it is said again when the connection is there */
	look(t);
	if (reply && reply->type != REDIS_REPLY_ERROR && t->ended)
		go_on(t);
}

static void held_tell(struct redis_held *h)
{
	struct redis_taker *t = h->t;
	struct rp_span bytes = {h->bytes, h->length};
	const struct rp_span remove[4] = {
		redis_text("LREM"), redis_text(t->held), redis_text("1"), bytes};
	const struct rp_span back[6] = {redis_text("EVAL"), redis_text(SCRIPT_BACK),
		redis_text("2"), redis_text(t->held), redis_text(t->list), bytes};

	if (h->sent || h->state < HELD_SETTLED || t->looking)
		return;
	h->sent = true;
	t->settling++;
	if (h->state == HELD_SETTLED)
		redis_link_command(&t->r->main, on_settled, h, 4, remove);
	else
		redis_link_command(&t->r->main, on_settled, h, 6, back);
}

void redis_taker_settle_again(struct redis_taker *t)
{
	struct rp_list *n;

	rp_list_foreach (n, &t->entries)
		held_tell(rp_list_entry(n, struct redis_held, node));
}

static void held_end(struct redis_taker *t, uint64_t id, enum held_state state)
{
	struct redis_held *h = held_find(t, id);

	if (!h || h->state != HELD_SHOWN)
		return;
	h->state = state;
	if (t->r->main.state != REDIS_LINK_IDLE)
		held_tell(h);
}

void redis_settle(void *taker, uint64_t id)
{
	held_end(taker, id, HELD_SETTLED);
}

void redis_give_back(void *taker, uint64_t id)
{
	held_end(taker, id, HELD_BACK);
}

/* ---- taking ---- */

static void show(struct redis_taker *t, struct redis_held *h)
{
	rp_list_unlink(&h->node);
	rp_list_push_back(&t->entries, &h->node);
	h->state = HELD_SHOWN;
	if (t->ended)
		held_end(t, h->id, HELD_BACK);
	else
		t->entry(t->ctx, h->id, (struct rp_span){h->bytes, h->length});
}

static void pause_for(struct redis_taker *t)
{
	if (!rp_loop_timer_armed(&t->pause))
		rp_loop_timer_in(t->r->init.loop, &t->pause, PAUSE_NS);
}

static void on_scripted(void *ctx, const struct redisReply *reply);

static void move_by_script(struct redis_taker *t)
{
	const struct rp_span argv[5] = {redis_text("EVAL"), redis_text(SCRIPT_MOVE),
		redis_text("2"), redis_text(t->list), redis_text(t->held)};

	t->moves++;
	redis_link_command(&t->link, on_scripted, t, 5, argv);
}

/* An answer to a move of either kind. */
static void moved(struct redis_taker *t, const struct redisReply *reply, bool script)
{
	if (!reply) {
		t->want++;
	} else if (reply->type == REDIS_REPLY_STRING) {
		t->empty = false;
		show(t, held_new(t, reply->str, reply->len));
	} else if (reply->type == REDIS_REPLY_ERROR) {
		t->want++;
		if (strstr(reply->str, "OOM ") && !script && !t->ended) {
			t->want--;
			move_by_script(t);
			return;
		}
		RP_LOG(RP_LOG_NODE, RP_LOG_WARNING, "redis: nothing taken from %s: %s", t->list,
			reply->str);
		pause_for(t);
	} else {
		t->want++;
		t->empty = true;
		/* A full server is asked now and then: it does not let wait. */
		if (script)
			pause_for(t);
	}
	if (reply)
		go_on(t);
}

static void on_moved(void *ctx, const struct redisReply *reply)
{
	struct redis_taker *t = ctx;

	t->moves--;
	moved(t, reply, false);
}

static void on_scripted(void *ctx, const struct redisReply *reply)
{
	struct redis_taker *t = ctx;

	t->moves--;
	moved(t, reply, true);
}

static void on_waited(void *ctx, const struct redisReply *reply)
{
	struct redis_taker *t = ctx;

	t->blocking = false;
	moved(t, reply, false);
}

static void move_waiting(struct redis_taker *t)
{
	const struct rp_span argv[6] = {redis_text("BLMOVE"), redis_text(t->list),
		redis_text(t->held), redis_text("LEFT"), redis_text("RIGHT"),
		redis_text(BLOCK_TEXT)};

	t->want--;
	t->blocking = true;
	redis_link_command(&t->link, on_waited, t, 6, argv);
}

static void move_now(struct redis_taker *t)
{
	const struct rp_span argv[5] = {redis_text("LMOVE"), redis_text(t->list),
		redis_text(t->held), redis_text("LEFT"), redis_text("RIGHT")};

	while (t->want > 0 && t->moves < MOVES_MAX) {
		t->want--;
		t->moves++;
		redis_link_command(&t->link, on_moved, t, 5, argv);
	}
}

/* Nothing of it is left on the way: it goes. */
static void tidy(struct redis_taker *t)
{
	if (t->moves == 0 && !t->blocking && rp_list_empty(&t->entries) && rp_list_empty(&t->found))
		redis_taker_free(t);
}

/* What can be done next is done. */
static void go_on(struct redis_taker *t)
{
	if (t->ended) {
		tidy(t);
		return;
	}
	if (!rp_list_empty(&t->found)) {
		rp_loop_task_post(t->r->init.loop, &t->show);
		return;
	}
	if (t->link.state != REDIS_LINK_UP || !t->known || t->want == 0 || t->blocking ||
		rp_loop_timer_armed(&t->pause))
		return;
	if (!t->empty)
		move_now(t);
	else if (t->moves == 0)
		move_waiting(t);
}

static void on_show(void *ctx)
{
	struct redis_taker *t = ctx;

	while (t->want > 0 && !rp_list_empty(&t->found)) {
		t->want--;
		t->r->init.counters->taken_again++;
		show(t, rp_list_entry(t->found.next, struct redis_held, node));
	}
	if (rp_list_empty(&t->found))
		go_on(t);
}

static void on_pause(void *ctx)
{
	struct redis_taker *t = ctx;

	if (t->r->main.state == REDIS_LINK_UP)
		redis_taker_settle_again(t);
	/* Something may have come meanwhile. */
	t->empty = false;
	go_on(t);
}

/* ---- what was held before ---- */

static bool is_known(struct redis_taker *t, uint64_t hash, const redisReply *e, bool *used)
{
	struct rp_list *lists[2] = {&t->entries, &t->found}, *n;
	size_t at = 0;

	for (unsigned i = 0; i < 2; i++)
		rp_list_foreach (n, lists[i]) {
			struct redis_held *h = rp_list_entry(n, struct redis_held, node);

			if (!used[at] && h->hash == hash && h->length == e->len &&
				memcmp(h->bytes, e->str, e->len) == 0) {
				used[at] = true;
				return true;
			}
			at++;
		}
	return false;
}

static void on_held(void *ctx, const struct redisReply *reply)
{
	struct redis_taker *t = ctx;
	bool *used;
	struct rp_list unknown;

	t->looking = false;
	if (t->r->main.state == REDIS_LINK_UP)
		redis_taker_settle_again(t);
	if (!reply)
		return;
	if (reply->type != REDIS_REPLY_ARRAY) {
		RP_LOG(RP_LOG_NODE, RP_LOG_WARNING, "redis: %s cannot be read: %s", t->held,
			reply->type == REDIS_REPLY_ERROR ? reply->str : "no list");
		t->known = true;
		pause_for(t);
		return;
	}
	rp_list_init(&unknown);
	used = store_alloc(t->held_count + 1);
	for (size_t i = 0; i < reply->elements; i++) {
		const redisReply *e = reply->element[i];

		if (e->type == REDIS_REPLY_STRING &&
			!is_known(t, store_hash(e->str, e->len), e, used))
			rp_list_push_back(&unknown, &held_new(t, e->str, e->len)->node);
	}
	free(used);
	rp_list_splice_back(&t->found, &unknown);
	t->known = true;
	if (t->ended)
		while (!rp_list_empty(&t->found))
			show(t, rp_list_entry(t->found.next, struct redis_held, node));
	go_on(t);
}

/*
 * Settling goes over another connection: an entry that is settled while the list is read would be
 * in the list, and no more among those that are known here, and so be shown again.
 */
static void look(struct redis_taker *t)
{
	const struct rp_span argv[4] = {redis_text("LRANGE"), redis_text(t->held), redis_text("0"),
		redis_text(LENGTH_MAX_TEXT)};

	if (!t->look_due || t->settling > 0 || t->link.state != REDIS_LINK_UP)
		return;
	t->look_due = false;
	t->looking = true;
	redis_link_command(&t->link, on_held, t, 4, argv);
}

static void on_up(void *ctx)
{
	struct redis_taker *t = ctx;

	t->known = t->empty = false;
	t->look_due = true;
	look(t);
}

/* ---- life ---- */

static struct redis_taker *taker_find(struct redis *r, const char *held)
{
	struct rp_list *n;

	rp_list_foreach (n, &r->takers)
		if (strcmp(rp_list_entry(n, struct redis_taker, node)->held, held) == 0)
			return rp_list_entry(n, struct redis_taker, node);
	return NULL;
}

void *redis_take(void *b, const char *list, const char *held, rp_store_entry_fn entry, void *ctx)
{
	struct redis *r = b;
	struct redis_taker *t = taker_find(r, held);

	if (t) {
		/* What is on its way to the one before comes to this one. */
		RP_ASSERT(t->ended);
		t->ended = false;
		t->want = 0;
		t->entry = entry;
		t->ctx = ctx;
		return t;
	}
	t = store_alloc(sizeof(*t));
	t->r = r;
	t->list = store_text("%s", list);
	t->held = store_text("%s", held);
	t->entry = entry;
	t->ctx = ctx;
	rp_list_init(&t->entries);
	rp_list_init(&t->found);
	rp_loop_timer_setup(&t->pause, on_pause, t);
	rp_loop_task_setup(&t->show, on_show, t);
	rp_list_push_back(&r->takers, &t->node);
	t->link = (struct redis_link){
		.loop = r->init.loop,
		.address = &r->address,
		.by_progress = true,
		.timeout_ns = BLOCK_NS + r->init.timeout_ms * RP_NS_PER_MS,
		.up = on_up,
		.ctx = t,
		.connects = &r->init.counters->connects,
		.disconnects = &r->init.counters->disconnects,
	};
	redis_link_start(&t->link);
	return t;
}

void redis_taker_set_timeout(struct redis_taker *t, uint32_t timeout_ms)
{
	t->link.timeout_ns = BLOCK_NS + timeout_ms * RP_NS_PER_MS;
}

void redis_want(void *taker, uint32_t more)
{
	struct redis_taker *t = taker;

	t->want += more;
	rp_loop_task_post(t->r->init.loop, &t->show);
}

/* It lives on, unseen, until all that it holds is back. */
void redis_take_end(void *taker)
{
	struct redis_taker *t = taker;
	struct rp_list *n, *s;

	t->ended = true;
	rp_loop_task_cancel(&t->show);
	while (!rp_list_empty(&t->found)) {
		struct redis_held *h = rp_list_entry(t->found.next, struct redis_held, node);

		rp_list_unlink(&h->node);
		h->state = HELD_SHOWN;
		rp_list_push_back(&t->entries, &h->node);
	}
	/* From the youngest on, so that the oldest is at the head again. */
	for (n = t->entries.prev, s = n->prev; n != &t->entries; n = s, s = n->prev)
		held_end(t, rp_list_entry(n, struct redis_held, node)->id, HELD_BACK);
	tidy(t);
}

void redis_taker_free(struct redis_taker *t)
{
	redis_link_stop(&t->link);
	rp_loop_timer_cancel(&t->pause);
	rp_loop_task_cancel(&t->show);
	while (!rp_list_empty(&t->entries))
		held_free(rp_list_entry(t->entries.next, struct redis_held, node));
	while (!rp_list_empty(&t->found))
		held_free(rp_list_entry(t->found.next, struct redis_held, node));
	rp_list_unlink(&t->node);
	free(t->list);
	free(t->held);
	free(t);
}
