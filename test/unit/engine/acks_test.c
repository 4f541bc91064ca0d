/* SPDX-License-Identifier: Apache-2.0 */

/* Acknowledges that come together: each is settled as one alone would be, and one answer does. */

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include <rte_eal.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>

#include "small.h"

#define POOL_ROOM 2048
#define MESSAGES 200
#define CONSUMER (1ull << 63 | 7)
#define NAME "jobs"

static struct rte_mempool *pool;
static uint64_t delivered[MESSAGES];
static unsigned delivered_count, answers;
static struct rp_xmsg answer;

static int post(void *ctx, unsigned to, const struct rp_xmsg *m)
{
	if (m->type == RP_XMSG_DELIVERY)
		delivered[delivered_count++] = m->idx;
	if (m->type == RP_XMSG_ANSWER) {
		answer = *m;
		answers++;
	}
	rte_pktmbuf_free(m->m);
	return 0;
}

static void no_random(void *ctx, void *out, size_t length)
{
	memset(out, 1, length);
}

static const struct rp_engine_ops ops = {.post = post, .random = no_random};

static struct rte_mbuf *chain(const void *data, size_t length)
{
	struct rte_mbuf *m = rte_pktmbuf_alloc(pool);

	assert_non_null(m);
	memcpy(rte_pktmbuf_append(m, strlen(NAME)), NAME, strlen(NAME));
	if (length > 0)
		memcpy(rte_pktmbuf_append(m, (uint16_t)length), data, length);
	return m;
}

static void say(struct rp_engine *e, struct rp_xmsg m, const void *data, size_t length)
{
	m.name_length = strlen(NAME);
	m.hash = rp_queue_hash((const uint8_t *)NAME, strlen(NAME));
	m.m = chain(data, length);
	rp_engine_on_xmsg(e, RP_ENGINE_CONTROL, &m, 2000);
	for (unsigned i = 0; i < 100 && rp_engine_poll(e, 2000); i++)
		;
}

static void acks(struct rp_engine *e, const uint64_t *idx, unsigned count, uint8_t who)
{
	struct rp_xmsg m = {.type = RP_XMSG_ACKS, .token = 99, .count = count};

	memset(m.uuid, who, sizeof(m.uuid));
	answers = 0;
	say(e, m, idx, count * sizeof(*idx));
	assert_int_equal(answers, 1);
	assert_int_equal(answer.token, 99);
	assert_int_equal(answer.flags, 1);
	for (unsigned i = 0; i < RP_XMSG_ACKS_OPEN_MAX; i++)
		assert_int_equal(e->acks[i].open, 0);
}

static uint32_t held(struct rp_engine *e)
{
	struct rp_queue_totals t;

	rp_queue_get_totals(e->queues, &t);
	return t.held;
}

static struct rp_engine *engine_create(void)
{
	struct rp_engine_config c = engine_small(pool, 512);
	struct rp_engine *e = rp_engine_create(&c, &ops, NULL, 0);

	assert_non_null(e);
	rp_engine_on_xmsg(e, RP_ENGINE_CONTROL,
		&(struct rp_xmsg){.type = RP_XMSG_SET_NODE, .node = 1, .value = RP_NODE_ONLINE},
		1000);
	return e;
}

static void test_together(void **state)
{
	struct rp_xmsg open = {.type = RP_XMSG_CONSUMER_OPEN, .token = CONSUMER};
	struct rp_engine *e;
	uint64_t some[4];
	char tail[16];

	pool = rte_pktmbuf_pool_create_by_ops(
		"pool", 1023, 0, 0, RTE_PKTMBUF_HEADROOM + POOL_ROOM, SOCKET_ID_ANY, "ring_mp_mc");
	assert_non_null(pool);
	e = engine_create();
	memset(open.uuid, 3, sizeof(open.uuid));
	say(e, open, ";prefetch=250", 13);
	for (unsigned i = 0; i < MESSAGES; i++) {
		struct rp_xmsg put = {.type = RP_XMSG_PUT, .token = 1000 + i};

		put.tail_length = (uint16_t)snprintf(tail, sizeof(tail), "t%u", i);
		say(e, put, tail, put.tail_length);
	}
	assert_int_equal(delivered_count, MESSAGES);
	assert_int_equal(held(e), MESSAGES);

	/* Another one's: refused, and nothing goes. */
	acks(e, delivered, 4, 4);
	assert_int_equal(answer.status, RP_Q_NOT_HOLDER);
	assert_int_equal(answer.count, 0);
	assert_int_equal(held(e), MESSAGES);
	/* What is unknown is none; what is said twice went once. */
	some[0] = some[3] = delivered[0];
	some[1] = delivered[MESSAGES - 1];
	some[2] = delivered[MESSAGES - 1] + 1000;
	acks(e, some, 4, 3);
	assert_int_equal(answer.status, RP_Q_OK);
	assert_int_equal(answer.count, 2);
	assert_int_equal(held(e), MESSAGES - 2);
	/* As many as one carries, and the rest. */
	acks(e, delivered + 1, RP_XMSG_ACKS_MAX, 3);
	assert_int_equal(answer.count, RP_XMSG_ACKS_MAX);
	acks(e, delivered + 1 + RP_XMSG_ACKS_MAX, MESSAGES - 2 - RP_XMSG_ACKS_MAX, 3);
	assert_int_equal(held(e), 0);
	rp_engine_destroy(e);
	assert_int_equal(rte_mempool_avail_count(pool), 1023);
	rte_mempool_free(pool);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_together),
	};
	char *args[] = {"test", "--no-huge", "-m", "64", "--no-pci", "--no-telemetry",
		"--no-shconf", "-l", "0", "--log-level", "error"};

	if (rte_eal_init((int)(sizeof(args) / sizeof(args[0])), args) < 0)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
