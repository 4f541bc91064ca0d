/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include <base/mbuf.h>
#include <base/rand.h>

#include <link/chain.h>
#include "eal.h"

static struct rte_mempool *pool;
static unsigned pool_start;

/* A chain over bytes[0..n) in segments of the given size. */
static struct rte_mbuf *chain_of(const uint8_t *bytes, uint32_t n, uint32_t segment)
{
	struct rte_mbuf *chain = NULL;

	for (uint32_t at = 0; at < n; at += segment)
		rp_mbuf_append(&chain, rp_mbuf_from(pool, bytes + at, RP_MIN(segment, n - at)));
	return chain;
}

static void check_chain(struct rte_mbuf *m, const uint8_t *bytes, uint32_t n)
{
	static uint8_t out[65536];
	const char *why;
	uint32_t sum = 0;

	if (n == 0) {
		assert_null(m);
		return;
	}
	assert_non_null(m);
	assert_int_equal(rte_mbuf_check(m, 1, &why), 0);
	for (struct rte_mbuf *s = m; s; s = s->next)
		sum += s->data_len;
	assert_int_equal(sum, m->pkt_len);
	assert_int_equal(m->pkt_len, n);
	assert_int_equal(rp_mbuf_copy_out(m, 0, out, n), n);
	assert_memory_equal(out, bytes, n);
}

static uint8_t bytes[20000];

static void every_cut(uint32_t total, uint32_t segment, uint32_t step)
{
	for (uint32_t n = 1; n <= total; n += step) {
		struct rte_mbuf *rest = chain_of(bytes, total, segment);
		struct rte_mbuf *cut = rp_chain_cut(pool, &rest, n, 24);

		check_chain(cut, bytes, n);
		check_chain(rest, bytes + n, total - n);
		assert_true(cut->data_len >= RP_MIN(24u, n));
		rte_pktmbuf_free(cut);
		if (rest)
			check_chain(rest, bytes + n, total - n);
		rte_pktmbuf_free(rest);
		assert_int_equal(rte_mempool_avail_count(pool), pool_start);
	}
}

static void cut_at_every_byte(void **state)
{
	for (uint32_t segment = 1; segment < 64; segment++)
		every_cut(100, segment, 1);
	every_cut(3000, 700, 1);
	every_cut(20000, 2000, 37);
}

static void skip_at_every_byte(void **state)
{
	for (uint32_t segment = 1; segment < 40; segment++) {
		for (uint32_t n = 0; n <= 90; n++) {
			struct rte_mbuf *m = chain_of(bytes, 90, segment);

			rp_chain_skip(&m, n);
			check_chain(m, bytes + n, 90 - n);
			rte_pktmbuf_free(m);
		}
	}
	assert_int_equal(rte_mempool_avail_count(pool), pool_start);
}

static void cut_without_buffers_changes_nothing(void **state)
{
	static struct rte_mbuf *all[8192];
	struct rte_mbuf *m = chain_of(bytes, 100, 10), *big = chain_of(bytes, 1500, 1500);
	unsigned n = 0;

	while ((all[n] = rte_pktmbuf_alloc(pool)) != NULL)
		n++;
	assert_null(rp_chain_cut(pool, &m, 55, 24));
	check_chain(m, bytes, 100);
	assert_null(rp_chain_cut(pool, &big, 1000, 24));
	check_chain(big, bytes, 1500);
	for (unsigned i = 0; i < n; i++)
		rte_pktmbuf_free(all[i]);
	rte_pktmbuf_free(m);
	rte_pktmbuf_free(big);
	assert_int_equal(rte_mempool_avail_count(pool), pool_start);
}

static void join_keeps_the_bytes(void **state)
{
	struct rp_chain_batch batch = {NULL, NULL};
	uint32_t at = 0, frames = 0;

	for (uint32_t n = 1; at + n < 12000; n = n * 5 % 1801 + 1, frames++) {
		rp_chain_join(&batch, chain_of(bytes + at, n, 900));
		at += n;
	}
	check_chain(batch.first, bytes, at);
	assert_ptr_equal(batch.last, rte_pktmbuf_lastseg(batch.first));
	assert_true(batch.first->nb_segs < frames);
	rte_pktmbuf_free(batch.first);
	assert_int_equal(rte_mempool_avail_count(pool), pool_start);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(cut_at_every_byte),
		cmocka_unit_test(skip_at_every_byte),
		cmocka_unit_test(cut_without_buffers_changes_nothing),
		cmocka_unit_test(join_keeps_the_bytes),
	};
	struct rp_rand rand = {1};

	if (test_eal_init() < 0)
		return 1;
	pool = rte_pktmbuf_pool_create(
		"chain", 4095, 0, 0, RTE_MBUF_DEFAULT_BUF_SIZE, SOCKET_ID_ANY);
	pool_start = rte_mempool_avail_count(pool);
	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)rp_rand_u64(&rand);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
