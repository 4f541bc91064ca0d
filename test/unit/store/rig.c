/* SPDX-License-Identifier: Apache-2.0 */
#include "rig.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#define WAIT_MS 20000

static uint64_t wall_ms(void *ctx)
{
	return ((struct rig *)ctx)->wall_ms;
}

void rig_create(struct rig *r, bool redis)
{
	signal(SIGPIPE, SIG_IGN); /* as the node does */
	*r = (struct rig){.redis = redis, .wall_ms = 1700000000000ull};
	r->loop = rp_loop_new();
	if (redis) {
		redis_server_create(&r->server);
		redis_server_start(&r->server, NULL);
	}
	r->config = (struct rp_store_config){
		.loop = r->loop,
		.url = redis ? r->server.url : "",
		.owner = "11",
		.commands_max = 10,
		.cache_entries = 4,
		.timeout_ms = 5000,
		.wall_ms = wall_ms,
		.ctx = r,
	};
	r->s = rp_store_create(&r->config);
	assert_non_null(r->s);
}

void rig_restart(struct rig *r)
{
	rp_store_destroy(r->s);
	r->s = rp_store_create(&r->config);
	assert_non_null(r->s);
}

void rig_destroy(struct rig *r)
{
	rp_store_destroy(r->s);
	rp_loop_destroy(r->loop);
	if (r->redis)
		redis_server_destroy(&r->server);
}

bool rig_wait(struct rig *r, const bool *done, unsigned ms)
{
	uint64_t end_ns = rp_loop_clock_ns() + ms * RP_NS_PER_MS;

	while (!*done && rp_loop_clock_ns() < end_ns)
		assert_true(rp_loop_run_once(r->loop, RP_NS_PER_MS) >= 0);
	return *done;
}

void rig_pass(struct rig *r, unsigned ms)
{
	bool never = false;

	r->wall_ms += ms;
	/* In memory nothing takes longer than a few turns. */
	for (unsigned i = 0; !r->redis && i < 4; i++)
		assert_true(rp_loop_run_once(r->loop, 0) >= 0);
	if (r->redis)
		rig_wait(r, &never, ms);
}

void rig_done(void *ctx, const struct rp_store_result *result)
{
	struct outcome *o = ctx;

	assert_false(o->done);
	o->done = true;
	o->status = result->status;
	o->kind = result->kind;
	o->count = result->count;
	snprintf(o->text, sizeof(o->text), "%s", result->text);
	o->message = result->message ? rp_bus_message_copy(result->message) : NULL;
}

void outcome_clear(struct outcome *o)
{
	rp_bus_message_free(o->message);
	*o = (struct outcome){0};
}

static enum rp_store_status finish(struct rig *r, struct outcome *mine, struct outcome *o)
{
	enum rp_store_status status;

	if (!rig_wait(r, &mine->done, WAIT_MS))
		fail_msg("a call was not answered");
	status = mine->status;
	if (o)
		*o = *mine;
	else
		outcome_clear(mine);
	return status;
}

enum rp_store_status rig_get(struct rig *r, const char *id, struct outcome *o)
{
	struct outcome mine = {0};

	rp_store_get(r->s, id, rig_done, &mine);
	assert_false(mine.done);
	return finish(r, &mine, o);
}

enum rp_store_status rig_run(struct rig *r, const struct rp_bus_message *m, struct outcome *o)
{
	struct outcome mine = {0};

	rp_store_run(r->s, m, rig_done, &mine);
	assert_false(mine.done);
	return finish(r, &mine, o);
}

enum rp_store_status rig_forward(struct rig *r, const struct rp_bus_message *m, struct outcome *o)
{
	struct outcome mine = {0};

	rp_store_forward(r->s, m, rig_done, &mine);
	assert_false(mine.done);
	return finish(r, &mine, o);
}

enum rp_store_status rig_reply(struct rig *r, const struct rp_bus_message *m, struct outcome *o)
{
	struct outcome mine = {0};

	rp_store_reply(r->s, m, rig_done, &mine);
	assert_false(mine.done);
	return finish(r, &mine, o);
}

enum rp_store_status rig_push(struct rig *r, const char *queue, const char *entry, uint32_t max)
{
	struct outcome mine = {0};

	rp_store_push(r->s, queue, (struct rp_span){(const uint8_t *)entry, strlen(entry)}, max,
		rig_done, &mine);
	return finish(r, &mine, NULL);
}

uint64_t rig_length(struct rig *r, const char *queue)
{
	struct outcome mine = {0}, o;

	rp_store_length(r->s, queue, rig_done, &mine);
	assert_int_equal(finish(r, &mine, &o), RP_STORE_OK);
	return o.count;
}

struct popped {
	bool done;
	uint64_t id;
	char text[2048];
};

static void on_popped(void *ctx, uint64_t id, struct rp_span entry)
{
	struct popped *p = ctx;

	p->done = true;
	p->id = id;
	snprintf(p->text, sizeof(p->text), "%.*s", (int)entry.length, (const char *)entry.data);
}

const char *rig_pop(struct rig *r, const char *queue)
{
	static struct popped p;
	struct rp_store_taker *t;

	p = (struct popped){0};
	if (rig_length(r, queue) == 0)
		return "";
	t = rp_store_take(r->s, queue, on_popped, &p);
	rp_store_want(t, 1);
	if (rig_wait(r, &p.done, WAIT_MS))
		rp_store_settle(t, p.id);
	rp_store_take_end(t);
	return p.text;
}

struct rp_bus_message *rig_message(struct rig *r, const char *id, uint64_t ttl_ms)
{
	struct rp_bus_message *m = rp_bus_message_new();
	/* Its life ends at a whole second and some: `now` has seconds only. */
	uint64_t life_s = ttl_ms / 1000 + 1000;
	uint64_t end_ms = r->wall_ms + ttl_ms;

	r->wall_ms += 1000 - end_ms % 1000;
	end_ms = r->wall_ms + ttl_ms;
	m->expiration = (int64_t)life_s;
	m->now = (int64_t)(end_ms / 1000 - life_s);
	rp_bus_text_set(&m->id, id);
	rp_bus_text_set(&m->command, "calc.add");
	rp_bus_text_set(&m->reply, "answers");
	rp_bus_message_set_data(m, (struct rp_span){(const uint8_t *)"hello", 5});
	rp_bus_message_set_destination(m, 7);
	m->source = 3;
	return m;
}
