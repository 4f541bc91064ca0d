/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <rte_mbuf.h>
#include <rte_mbuf_pool_ops.h>
#include <rte_mempool.h>

#include "sim.h"

/*
 * Class 29: each allocation fails once, alone and together with those behind it. Of mbufs in a
 * conversation from its first SYN to its last ACK: it ends as it should, a little later. Of memory
 * at the creation of a stack: none is kept.
 */

#define MS RP_NS_PER_MS

/* A mempool that fails when it is told to: mbufs in a stack. */
struct pile {
	void **objects;
	unsigned count;
};

static bool armed;
static uint64_t allocations, fail_at, fail_count;

static int pile_alloc(struct rte_mempool *mp)
{
	struct pile *p = calloc(1, sizeof(*p));

	p->objects = calloc(mp->size, sizeof(void *));
	mp->pool_data = p;
	return 0;
}

static void pile_free(struct rte_mempool *mp)
{
	struct pile *p = mp->pool_data;

	free(p->objects);
	free(p);
}

static int pile_enqueue(struct rte_mempool *mp, void *const *objects, unsigned n)
{
	struct pile *p = mp->pool_data;

	memcpy(p->objects + p->count, objects, n * sizeof(void *));
	p->count += n;
	return 0;
}

static int pile_dequeue(struct rte_mempool *mp, void **objects, unsigned n)
{
	struct pile *p = mp->pool_data;

	/* The pools of the stacks: the wire's own ("r") is not what is tested. */
	if (armed && mp->name[0] != 'r') {
		allocations++;
		if (allocations >= fail_at && allocations < fail_at + fail_count)
			return -ENOBUFS;
	}
	if (p->count < n)
		return -ENOBUFS;
	p->count -= n;
	memcpy(objects, p->objects + p->count, n * sizeof(void *));
	return 0;
}

static unsigned pile_count(const struct rte_mempool *mp)
{
	return ((const struct pile *)mp->pool_data)->count;
}

static const struct rte_mempool_ops pile_ops = {
	.name = "pile",
	.alloc = pile_alloc,
	.free = pile_free,
	.enqueue = pile_enqueue,
	.dequeue = pile_dequeue,
	.get_count = pile_count,
};
RTE_MEMPOOL_REGISTER_OPS(pile_ops);

/* True: the conversation got as far as the allocation that fails. */
static bool conversation(struct sim_config *c, uint64_t at, uint64_t count)
{
	struct app a[2];
	struct sim *s;
	uint64_t until;

	/* The last ACK may be what had no buffer: who waits for it asks after a second. */
	c->tcp[0].time_wait_ns = c->tcp[1].time_wait_ns = 20 * RP_NS_PER_S;
	c->header_mbufs = c->payload_mbufs = 511;
	s = sim_new(c);
	until = s->now_ns + 300 * RP_NS_PER_S;

	fail_at = at;
	fail_count = count;
	allocations = 0;
	armed = true;
	for (unsigned i = 0; i < 2; i++) {
		app_init(&a[i], s, i, 11 + i, 12 - i);
		a[i].to_send = 9000;
		a[i].chunk = 900;
		a[i].rand.state = 5 + i;
	}
	SIM_CHECK(s, app_listen(&a[1], 7, NULL) == 0);
	SIM_CHECK(s, app_dial(&a[0], 7, NULL) == 0);
	while (!a[0].closed || !a[1].closed) {
		SIM_CHECK(s, s->now_ns < until);
		/* Who found no buffer for what he sends asks again. */
		if (!sim_step(s, s->now_ns + MS))
			for (unsigned i = 0; i < 2; i++)
				if (a[i].opened && !a[i].closed && a[i].sent < a[i].to_send)
					app_pump(&a[i]);
	}
	armed = false;
	for (unsigned i = 0; i < 2; i++) {
		SIM_CHECK(s, a[i].received == 9000);
		SIM_CHECK(s, a[i].reason == RP_CLOSE_FIN);
	}
	/* Nothing is kept: it looks at each pool. */
	sim_free(s);
	return allocations >= at;
}

static void sweep(struct sim_config c, uint64_t count)
{
	uint64_t at = 1;

	for (; conversation(&c, at, count); at++)
		assert_true(at < 5000);
	print_message("%llu allocations, %llu failing at a time\n", (unsigned long long)at - 1,
		(unsigned long long)count);
	assert_true(at > 30);
}

static void each_mbuf(void **state)
{
	sweep((struct sim_config){.seed = 3, .rtt_ns = MS}, 1);
	sweep((struct sim_config){.seed = 3, .rtt_ns = MS}, 7);
}

static void each_mbuf_on_a_bad_wire(void **state)
{
	struct sim_config c = {
		.seed = 4, .rtt_ns = MS, .impair = {.drop = 0.1, .reorder = 0.2, .reorder_ns = MS}};

	sweep(c, 1);
	sweep(c, 5);
}

static void each_mbuf_of_super_segments(void **state)
{
	struct sim_config c = {.seed = 5, .rtt_ns = MS, .impair = {.drop = 0.05}};

	c.tcp[0].net.iface.tx_tso = c.tcp[1].net.iface.tx_tso = true;
	sweep(c, 1);
	sweep(c, 5);
}

static void each_mbuf_with_cookies(void **state)
{
	struct sim_config c = {.seed = 6, .rtt_ns = MS};

	c.tcp[1].syn_cookies = RP_SYN_COOKIES_ALWAYS;
	sweep(c, 1);
}

/* Memory of the system, by --wrap. */

void *__real_calloc(size_t n, size_t size);
void *__real_malloc(size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
void __real_free(void *p);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);
void __wrap_free(void *p);

static bool counting;
static int64_t held, calls, fail_call;

static bool fails(void)
{
	if (!counting || ++calls != fail_call)
		return false;
	errno = ENOMEM;
	return true;
}

static void *gave(void *p)
{
	held += counting && p;
	return p;
}

void *__wrap_calloc(size_t n, size_t size)
{
	return fails() ? NULL : gave(__real_calloc(n, size));
}

void *__wrap_malloc(size_t size)
{
	return fails() ? NULL : gave(__real_malloc(size));
}

void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
	return fails() ? NULL : gave(__real_aligned_alloc(alignment, size));
}

void __wrap_free(void *p)
{
	held -= counting && p;
	__real_free(p);
}

static void each_allocation_of_a_creation(void **state)
{
	struct rte_mempool *pool = rte_pktmbuf_pool_create("header", 63, 0, 0, 512, SOCKET_ID_ANY);
	struct rp_tcp_config c = {
		.net = {.iface = {.mac = {2, 0, 0, 0, 0, 1},
				.mtu = 1500,
				.addresses = {{.ip = RP_IP4(10, 0, 0, 1), .prefix_length = 24}}},
			.header_pool = pool},
	};
	struct rp_tcp_stack *s = NULL;

	assert_non_null(pool);
	for (fail_call = 1; !s; fail_call++) {
		calls = held = 0;
		errno = 0;
		counting = true;
		s = rp_tcp_create(&c, 1000);
		if (!s) {
			counting = false;
			assert_int_equal(held, 0);
			assert_int_equal(errno, ENOMEM);
			assert_int_equal(rte_mempool_avail_count(pool), 63);
		}
	}
	assert_true(fail_call > 8);
	rp_tcp_destroy(s);
	counting = false;
	assert_int_equal(held, 0);
	assert_int_equal(rte_mempool_avail_count(pool), 63);
	rte_mempool_free(pool);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_mbuf),
		cmocka_unit_test(each_mbuf_on_a_bad_wire),
		cmocka_unit_test(each_mbuf_of_super_segments),
		cmocka_unit_test(each_mbuf_with_cookies),
		cmocka_unit_test(each_allocation_of_a_creation),
	};

	if (sim_eal() < 0 || rte_mbuf_set_user_mempool_ops("pile") != 0)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
