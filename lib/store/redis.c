/* SPDX-License-Identifier: Apache-2.0 */

/* The storage in Redis: values and lists. Taking from lists is in redis_take.c. */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <hiredis/hiredis.h>

#include <store/redis_take_priv.h>

/* A list that holds as many as it may takes no more. Each script writes nothing, or all. */
#define SCRIPT_PUSH_BOUNDED                                                    \
	"if redis.call('llen',KEYS[1])>=tonumber(ARGV[2]) then return -1 end " \
	"redis.call('rpush',KEYS[1],ARGV[1]) return 0"
#define SCRIPT_PUSH_TRIM                                                 \
	"local n=redis.call('rpush',KEYS[1],ARGV[1])-tonumber(ARGV[2]) " \
	"if n<=0 then return 0 end redis.call('ltrim',KEYS[1],n,-1) return n"
/* The list is looked at first: a key of another type must not leave the values behind alone. */
#define SCRIPT_FORWARD                                    \
	"redis.call('llen',KEYS[3]) "                     \
	"redis.call('set',KEYS[1],ARGV[1],'px',ARGV[2]) " \
	"redis.call('set',KEYS[2],ARGV[3],'px',ARGV[4]) " \
	"for i=5,#ARGV do redis.call('rpush',KEYS[3],ARGV[i]) end return 0"
struct request {
	struct rp_list node; /**< redis->requests */
	struct redis *r;
	store_done_fn done;
	void *ctx;
	bool is_get;
	uint32_t parts; /**< answers that are to come */
	enum rp_store_status status;
	char text[160];
	uint64_t count;
};

/* ---- answers ---- */

enum rp_store_status redis_status(
	struct redis_link *l, const struct redisReply *reply, char *text, size_t size)
{
	text[0] = '\0';
	if (!reply) {
		snprintf(text, size, "%s%s", redis_link_error(l),
			l->in_doubt ? ": it may have been done or not" : "");
		return l->timed_out && l->in_doubt ? RP_STORE_TIMEOUT : RP_STORE_UNAVAILABLE;
	}
	if (reply->type != REDIS_REPLY_ERROR)
		return RP_STORE_OK;
	snprintf(text, size, "%s", reply->str);
	if (strstr(reply->str, "OOM "))
		return RP_STORE_FULL;
	if (strncmp(reply->str, "LOADING", 7) == 0 || strncmp(reply->str, "MASTERDOWN", 10) == 0)
		return RP_STORE_UNAVAILABLE;
	return RP_STORE_REFUSED;
}

static void request_end(struct request *q, struct rp_span value)
{
	const struct store_answer a = {
		.status = q->status, .text = q->text, .count = q->count, .value = value};

	q->done(q->ctx, &a);
	rp_list_unlink(&q->node);
	free(q);
}

static void on_answer(void *ctx, const struct redisReply *reply)
{
	struct request *q = ctx;
	struct rp_span value = {0};
	char text[160];
	enum rp_store_status status = redis_status(&q->r->main, reply, text, sizeof(text));

	if (status == RP_STORE_OK && q->is_get && reply->type != REDIS_REPLY_STRING)
		status = RP_STORE_NONE;
	if (status == RP_STORE_OK && q->is_get)
		value = (struct rp_span){(const uint8_t *)reply->str, reply->len};
	if (status == RP_STORE_OK && reply->type == REDIS_REPLY_INTEGER) {
		if (reply->integer < 0)
			status = RP_STORE_FULL;
		else
			q->count = (uint64_t)reply->integer;
	}
	if (status != RP_STORE_OK && q->status == RP_STORE_OK) {
		q->status = status;
		snprintf(q->text, sizeof(q->text), "%s", text);
	}
	if (--q->parts == 0)
		request_end(q, value);
}

static struct request *request_new(struct redis *r, store_done_fn done, void *ctx)
{
	struct request *q = store_alloc(sizeof(*q));

	q->r = r;
	q->done = done;
	q->ctx = ctx;
	q->parts = 1;
	rp_list_push_back(&r->requests, &q->node);
	return q;
}

struct rp_span redis_text(const char *text)
{
	return (struct rp_span){(const uint8_t *)text, strlen(text)};
}

/* ---- calls ---- */

static void redis_get(void *b, const char *key, store_done_fn done, void *ctx)
{
	struct redis *r = b;
	struct request *q = request_new(r, done, ctx);
	const struct rp_span argv[2] = {redis_text("GET"), redis_text(key)};

	q->is_get = true;
	redis_link_command(&r->main, on_answer, q, 2, argv);
}

static void redis_push(void *b, const char *list, struct rp_span value, uint32_t max,
	enum store_full full, store_done_fn done, void *ctx)
{
	struct redis *r = b;
	struct request *q = request_new(r, done, ctx);
	char number[16];
	const struct rp_span plain[3] = {redis_text("RPUSH"), redis_text(list), value};
	struct rp_span script[6] = {redis_text("EVAL"),
		redis_text(full == STORE_FULL_TRIM ? SCRIPT_PUSH_TRIM : SCRIPT_PUSH_BOUNDED),
		redis_text("1"), redis_text(list), value, {0}};

	snprintf(number, sizeof(number), "%" PRIu32, max);
	script[5] = redis_text(number);
	if (max == 0)
		redis_link_command(&r->main, on_answer, q, 3, plain);
	else
		redis_link_command(&r->main, on_answer, q, 6, script);
}

static void redis_length(void *b, const char *list, store_done_fn done, void *ctx)
{
	struct redis *r = b;
	const struct rp_span argv[2] = {redis_text("LLEN"), redis_text(list)};

	redis_link_command(&r->main, on_answer, request_new(r, done, ctx), 2, argv);
}

static void redis_forward(void *b, const struct store_forward *f, store_done_fn done, void *ctx)
{
	struct redis *r = b;
	char ttl[24], sender_ttl[24];
	struct rp_span head[10] = {redis_text("EVAL"), redis_text(SCRIPT_FORWARD), redis_text("3"),
		redis_text(f->key), redis_text(f->sender_key), redis_text(f->list), f->value, {0},
		f->sender, {0}};
	struct rp_span *argv = store_alloc(sizeof(head) + f->entry_count * sizeof(*argv));

	snprintf(ttl, sizeof(ttl), "%" PRIu64, f->ttl_ms);
	snprintf(sender_ttl, sizeof(sender_ttl), "%" PRIu64, f->sender_ttl_ms);
	head[7] = redis_text(ttl);
	head[9] = redis_text(sender_ttl);
	memcpy(argv, head, sizeof(head));
	for (uint32_t i = 0; i < f->entry_count; i++)
		argv[10 + i] = redis_text(f->entries[i]);
	redis_link_command(
		&r->main, on_answer, request_new(r, done, ctx), 10 + f->entry_count, argv);
	free(argv);
}

/* ---- creation ---- */

static void on_up(void *ctx)
{
	struct redis *r = ctx;
	struct rp_list *n;

	rp_list_foreach (n, &r->takers)
		redis_taker_settle_again(rp_list_entry(n, struct redis_taker, node));
}

void *store_redis_new(const struct store_init *init)
{
	struct redis *r = store_alloc(sizeof(*r));

	if (redis_address_parse(&r->address, init->url) != 0) {
		free(r);
		errno = EINVAL;
		return NULL;
	}
	r->init = *init;
	rp_list_init(&r->requests);
	rp_list_init(&r->takers);
	r->main = (struct redis_link){
		.loop = init->loop,
		.address = &r->address,
		.timeout_ns = init->timeout_ms * RP_NS_PER_MS,
		.up = on_up,
		.ctx = r,
		.connects = &init->counters->connects,
		.disconnects = &init->counters->disconnects,
	};
	redis_link_start(&r->main);
	return r;
}

static void redis_destroy(void *b)
{
	struct redis *r = b;
	struct rp_list *n, *t;

	redis_link_stop(&r->main);
	rp_list_foreach_safe (n, t, &r->takers)
		redis_taker_free(rp_list_entry(n, struct redis_taker, node));
	rp_list_foreach_safe (n, t, &r->requests)
		free(rp_list_entry(n, struct request, node));
	redis_address_free(&r->address);
	free(r);
}

static void redis_set_timeout(void *b, uint32_t timeout_ms)
{
	struct redis *r = b;
	struct rp_list *n;

	r->init.timeout_ms = timeout_ms;
	r->main.timeout_ns = timeout_ms * RP_NS_PER_MS;
	rp_list_foreach (n, &r->takers)
		redis_taker_set_timeout(rp_list_entry(n, struct redis_taker, node), timeout_ms);
}

static void redis_state(void *b, struct rp_store_state *state)
{
	struct redis *r = b;
	struct rp_list *n;

	state->redis = true;
	state->connected = r->main.state == REDIS_LINK_UP;
	if (r->address.port)
		snprintf(state->address, sizeof(state->address), "%s port %u database %u",
			r->address.host, r->address.port, r->address.database);
	else
		snprintf(state->address, sizeof(state->address), "%s database %u", r->address.host,
			r->address.database);
	snprintf(state->error, sizeof(state->error), "%s", r->main.error);
	state->calls = r->main.count;
	rp_list_foreach (n, &r->takers) {
		const struct redis_taker *t = rp_list_entry(n, struct redis_taker, node);

		state->takers += !t->ended;
		state->held += t->held_count;
		state->bytes += t->held_bytes;
	}
}

const struct store_backend store_redis = {
	.destroy = redis_destroy,
	.set_timeout = redis_set_timeout,
	.get = redis_get,
	.push = redis_push,
	.forward = redis_forward,
	.length = redis_length,
	.take = redis_take,
	.want = redis_want,
	.settle = redis_settle,
	.give_back = redis_give_back,
	.take_end = redis_take_end,
	.state = redis_state,
};
