/* SPDX-License-Identifier: Apache-2.0 */

/* Nodes that come and go leave nothing behind: their places are used again. */

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <rte_eal.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>

#include "small.h"

#define POOL_ROOM 2048

static int post(void *ctx, unsigned to, const struct rp_xmsg *m)
{
	rte_pktmbuf_free(m->m);
	return 0;
}

static void no_random(void *ctx, void *out, size_t length)
{
}

static const struct rp_engine_ops ops = {.post = post, .random = no_random};

static void say(struct rp_engine *e, enum rp_xmsg_type type, uint64_t node, uint32_t value)
{
	struct rp_xmsg m = {.type = (uint8_t)type, .node = node, .value = value};

	rp_engine_on_xmsg(e, RP_ENGINE_CONTROL, &m, 1000);
}

static void test_come_and_go(void **state)
{
	struct rte_mempool *pool = rte_pktmbuf_pool_create_by_ops(
		"pool", 1023, 0, 0, RTE_PKTMBUF_HEADROOM + POOL_ROOM, SOCKET_ID_ANY, "ring_mp_mc");
	struct rp_engine_config c = engine_small(pool, 16);
	struct rp_engine *e;

	assert_non_null(pool);
	e = rp_engine_create(&c, &ops, NULL, 0);
	assert_non_null(e);
	/* As control tells it: a way to the node, then it is none of ours any more. */
	for (uint64_t node = 2; node < 2 * RP_PEERS_MAX; node++) {
		say(e, RP_XMSG_SET_UNARY, node, 1);
		assert_true(engine_peer_get(e, node)->unary);
		assert_true(rp_deliver_reachable(e->deliver, node));
		say(e, RP_XMSG_SET_NODE, node, RP_NODE_ONLINE);
		say(e, RP_XMSG_SET_NODE, node, RP_NODE_GONE);
		say(e, RP_XMSG_SET_UNARY, node, 0);
		assert_false(rp_deliver_reachable(e->deliver, node));
	}
	/* Those that are there keep their places, and one too many gets none. */
	for (uint64_t node = 10000; node < 10000 + RP_PEERS_MAX; node++)
		engine_peer_get(e, node)->lost = false;
	assert_null(engine_peer_get(e, 9999));
	assert_non_null(engine_peer_get(e, 10000));
	rp_engine_destroy(e);
	assert_int_equal(rte_mempool_avail_count(pool), 1023);
	rte_mempool_free(pool);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_come_and_go),
	};
	char *args[] = {"test", "--no-huge", "-m", "64", "--no-pci", "--no-telemetry",
		"--no-shconf", "-l", "0", "--log-level", "error"};

	if (rte_eal_init((int)(sizeof(args) / sizeof(args[0])), args) < 0)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
