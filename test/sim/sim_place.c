/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Who dispatches (spec/queues.md, "Election, epoch and placement"), by the records of nine
 * simulated nodes: a pair of queues that is linked, a pin that holds and then follows its consumer,
 * and what an election keeps of a record.
 */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <base/assert.h>
#include <base/log.h>
#include <route/key.h>

#include "sim.h"

#define NODES 9
#define SEC RP_NS_PER_S

struct run {
	struct sim *sim;
	unsigned delivered, answered;
	uint64_t consumer_last, idx;
	char fault[256];
};

#define CHECK(r, condition)                                                                     \
	do {                                                                                    \
		if (!(condition) && (r)->fault[0] == '\0')                                      \
			snprintf((r)->fault, sizeof((r)->fault), "line %d, %" PRIu64 " ms: %s", \
				__LINE__, sim_now((r)->sim) / 1000000, #condition);             \
	} while (0)

static void on_answered(void *ctx, unsigned node, uint64_t token, const struct rp_control_answer *a)
{
	struct run *r = ctx;

	CHECK(r, a->status == RP_Q_OK);
	r->answered++;
}

static void on_delivered(void *ctx, unsigned node, uint64_t consumer,
	const struct rp_control_delivery *d, const uint8_t *value, size_t value_length)
{
	struct run *r = ctx;

	r->delivered++;
	r->idx = d->idx;
	sim_consumer_accepted(r->sim, node, consumer, d->idx);
}

static bool is_joined(void *ctx)
{
	return sim_joined(((struct run *)ctx)->sim);
}

static void wait(struct run *r, uint64_t ns)
{
	sim_run_until(r->sim, sim_now(r->sim) + ns, NULL, NULL);
}

static struct rp_span span_of(const char *text)
{
	return (struct rp_span){(const uint8_t *)text, strlen(text)};
}

static struct rp_repl_now now_of(struct run *r)
{
	return (struct rp_repl_now){
		.ns = sim_now(r->sim), .wall_us = 1800000000000000ull + sim_now(r->sim) / 1000};
}

/* The dispatcher's record as that node has it; `text` keeps what it points at. */
static struct rp_dispatcher_record record(
	struct run *r, unsigned node, const char *queue, char text[RP_RECORD_BYTES_MAX + 1])
{
	uint8_t key[RP_REGISTRY_KEY_BYTES_MAX];
	int length = rp_route_key_dispatcher(span_of(queue), key, sizeof(key));
	struct rp_dispatcher_record d;
	struct rp_kv_record k;

	text[0] = '\0';
	if (rp_kv_record_get(rp_control_kv(sim_control(r->sim, node)),
		    (struct rp_span){key, (size_t)length}, &k) &&
		!k.deleted) {
		memcpy(text, k.value.data, k.value.length);
		text[k.value.length] = '\0';
	}
	rp_route_dispatcher_parse(&d, text, strlen(text));
	return d;
}

/* All nodes have the same record, which names that one. */
static bool is_at(struct run *r, const char *queue, unsigned node, bool pinned)
{
	char text[RP_RECORD_BYTES_MAX + 1];

	for (unsigned i = 0; i < NODES; i++) {
		struct rp_dispatcher_record d;

		if (sim_is_down(r->sim, i))
			continue;
		d = record(r, i, queue, text);
		if (d.node != sim_node_id(node) || d.pinned != pinned)
			return false;
	}
	return true;
}

static void write_fields(struct run *r, unsigned node, const char *queue, const char *fields)
{
	uint8_t key[RP_REGISTRY_KEY_BYTES_MAX];
	int length = rp_route_key_dispatcher(span_of(queue), key, sizeof(key));
	struct rp_route_key k;
	const char *message;

	rp_route_key_parse(&k, key, (size_t)length);
	CHECK(r, rp_control_record_write(sim_control(r->sim, node), &k, span_of(fields), 0, false,
			 1, &message, now_of(r)) == 0);
	wait(r, SEC / 10);
}

static void put(struct run *r, unsigned node, const char *queue, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		CHECK(r, sim_put(r->sim, node, queue, "t", "x", 1, 7) == 0);
	wait(r, SEC / 2);
}

static uint64_t consumer(
	struct run *r, unsigned node, const char *queue, uint8_t uuid[RP_UUID_BYTES])
{
	memset(uuid, 0, RP_UUID_BYTES);
	uuid[0] = 1;
	uuid[15] = (uint8_t)++r->consumer_last;
	CHECK(r, sim_consumer_open(r->sim, node, queue, uuid, r->consumer_last) == 0);
	wait(r, SEC / 2);
	return r->consumer_last;
}

static void queue_link(struct run *r, unsigned node, const char *request, const char *reply)
{
	CHECK(r, rp_control_queue_link(sim_control(r->sim, node), span_of(request), span_of(reply),
			 now_of(r)) == 0);
	/* The tick of the control thread, which a call of the embedding program asks for. */
	wait(r, 2 * SEC);
}

/* What nobody dispatches is claimed, and what one without consumers does is taken over. */
static void play_link(struct run *r)
{
	char text[RP_RECORD_BYTES_MAX + 1];
	uint8_t uuid[RP_UUID_BYTES];
	uint64_t handle;
	struct rp_dispatcher_record d;

	put(r, 0, "ask", 1);
	write_fields(r, 4, "ask", ";future=kept");
	CHECK(r, is_at(r, "ask", 0, false));
	queue_link(r, 2, "ask", "tell");
	CHECK(r, is_at(r, "tell", 2, true));
	CHECK(r, is_at(r, "ask", 0, false));
	d = record(r, 8, "ask", text);
	CHECK(r, d.reply_to.length == 4 && memcmp(d.reply_to.data, "tell", 4) == 0);
	CHECK(r, strstr(text, ";future=kept") != NULL);

	put(r, 1, "told", 20);
	CHECK(r, is_at(r, "told", 1, false));
	queue_link(r, 2, "ask", "told");
	CHECK(r, is_at(r, "told", 2, true));
	/* All of the backlog came along: a consumer at the pinned node is shown it. */
	r->delivered = 0;
	handle = consumer(r, 2, "told", uuid);
	CHECK(r, r->delivered == 20);
	sim_consumer_close(r->sim, 2, handle);
	wait(r, 2 * SEC);
}

/* The consumer of the pair's reply queue goes elsewhere. */
static void play_pin(struct run *r)
{
	uint8_t uuid[RP_UUID_BYTES];
	uint64_t handle = consumer(r, 6, "tell", uuid);

	(void)handle;
	r->delivered = 0;
	put(r, 0, "tell", 1);
	CHECK(r, r->delivered == 1);
	wait(r, 25 * SEC);
	CHECK(r, is_at(r, "tell", 2, true));
	wait(r, 10 * SEC);
	/* It is not acknowledged yet. */
	CHECK(r, is_at(r, "tell", 2, true));
	CHECK(r, sim_ack(r->sim, 6, "tell", r->idx, uuid, 9) == 0);
	wait(r, SEC);
	CHECK(r, is_at(r, "tell", 6, false));
}

/* Its node dies: elected anew, at a higher epoch; what clients wrote stays. */
static void play_election(struct run *r)
{
	char text[RP_RECORD_BYTES_MAX + 1];
	struct rp_dispatcher_record d = record(r, 1, "ask", text);
	uint32_t epoch = d.epoch;

	sim_crash(r->sim, 0);
	wait(r, 8 * SEC);
	r->answered = 0;
	put(r, 5, "ask", 1);
	CHECK(r, r->answered == 1);
	CHECK(r, is_at(r, "ask", 5, false));
	d = record(r, 1, "ask", text);
	CHECK(r, d.epoch > epoch && strstr(text, ";future=kept") != NULL);
	CHECK(r, d.reply_to.length == 4 && memcmp(d.reply_to.data, "told", 4) == 0);
	sim_restart(r->sim, 0);
	wait(r, 20 * SEC);
	CHECK(r, is_at(r, "ask", 5, false));
}

int main(int argc, char **argv)
{
	struct run r = {0};
	struct sim_options options = {.nodes = NODES,
		.shards = 1,
		.seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 1,
		.call_delay_ns = 200000,
		.message_bytes_max = 65536,
		.buffers = 2047};
	const struct sim_hooks hooks = {
		.ctx = &r, .answered = on_answered, .delivered = on_delivered};
	const char *left;

	sim_eal_start();
	rp_log_set_level(RP_LOG_ERROR);
	r.sim = sim_create(&options, &hooks);
	RP_ASSERT(sim_run_until(r.sim, 60 * SEC, is_joined, &r));
	play_link(&r);
	play_pin(&r);
	play_election(&r);
	left = sim_destroy(r.sim);
	if (left || r.fault[0])
		printf("%s\n", left ? left : r.fault);
	return r.fault[0] || left ? 1 : 0;
}
