/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <tcp/tcp_priv.h>

#include "sim.h"

static struct rte_mempool *pool;
static uint8_t bytes[1000];

/* bytes[from, from + n) in mbufs of `piece`. */
static struct rte_mbuf *make(uint32_t from, uint32_t n, uint32_t piece)
{
	struct rte_mbuf *first = NULL;

	for (uint32_t done = 0; done < n;) {
		uint32_t k = RP_MIN(piece, n - done);

		rp_mbuf_append(&first, rp_mbuf_from(pool, bytes + from + done, k));
		done += k;
	}
	return first;
}

static void is(struct rte_mbuf *m, uint32_t from, uint32_t n)
{
	uint8_t out[1000];
	uint32_t segs = 0;

	assert_int_equal(m->pkt_len, n);
	for (struct rte_mbuf *s = m; s; s = s->next, segs++)
		assert_true(s->data_len > 0);
	assert_int_equal(m->nb_segs, segs);
	assert_int_equal(rp_mbuf_copy_out(m, 0, out, sizeof(out)), n);
	assert_memory_equal(out, bytes + from, n);
}

static void cutting(void **state)
{
	for (uint32_t from = 0; from < 100; from += 7)
		for (uint32_t n = 1; n <= 100 - from; n += 3) {
			struct rte_mbuf *m = tcp_mbuf_cut(make(50, 100, 13), from, n);

			is(m, 50 + from, n);
			rte_pktmbuf_free(m);
		}
	assert_null(tcp_mbuf_cut(make(0, 100, 13), 20, 0));
	assert_int_equal(rte_mempool_in_use_count(pool), 0);
}

static void slicing_shares(void **state)
{
	struct rte_mbuf *m = make(0, 100, 13), *a, *b;

	a = tcp_mbuf_slice(pool, m, 20, 50);
	is(a, 20, 50);
	b = tcp_mbuf_slice(pool, a, 5, 40); /* of a slice */
	is(b, 25, 40);
	rte_pktmbuf_free(m);
	is(a, 20, 50);
	rte_pktmbuf_free(a);
	is(b, 25, 40);
	tcp_mbuf_ref(b);
	rte_pktmbuf_free(b);
	is(b, 25, 40);
	rte_pktmbuf_free(b);
	assert_int_equal(rte_mempool_in_use_count(pool), 0);
}

static void joining(void **state)
{
	struct tcp_chain a = {0}, b = {0};
	struct rte_mbuf *empty = rte_pktmbuf_alloc(pool), *m;

	assert_null(tcp_chain_take(&a));
	tcp_chain_append(&a, make(0, 30, 10));
	tcp_chain_append(&a, empty);
	tcp_chain_join(&a, &b);
	tcp_chain_append(&b, make(30, 20, 20));
	tcp_chain_join(&a, &b);
	assert_true(b.head == NULL && b.bytes == 0);
	assert_true(a.bytes == 50 && a.mbufs == 4);
	m = tcp_chain_take(&a);
	is(m, 0, 50);
	tcp_chain_append(&b, m);
	tcp_chain_free(&b);
	assert_int_equal(rte_mempool_in_use_count(pool), 0);
}

static void slicing_without_buffers(void **state)
{
	struct rte_mbuf *m = make(0, 100, 13), *hog[128];
	unsigned n = 0;

	while ((hog[n] = rte_pktmbuf_alloc(pool)))
		n++;
	rte_pktmbuf_free(hog[--n]);
	assert_null(tcp_mbuf_slice(pool, m, 0, 100)); /* eight are needed */
	assert_int_equal(rte_mempool_avail_count(pool), 1);
	is(m, 0, 100);
	rte_pktmbuf_free_bulk(hog, n);
	rte_pktmbuf_free(m);
	assert_int_equal(rte_mempool_in_use_count(pool), 0);
}

/* Pieces are put together in the room of buffers that are nobody else's. */
static void collapsing(void **state)
{
	struct rte_mbuf *shared = make(300, 20, 20), *m;
	struct tcp_chain chain = {0};

	tcp_chain_append(&chain, make(0, 300, 10));
	assert_int_equal(chain.mbufs, 30);
	assert_true(tcp_chain_sparse(&chain, 128) && !tcp_chain_sparse(&chain, 20));
	tcp_mbuf_ref(shared);
	tcp_chain_append(&chain, shared);
	tcp_chain_append(&chain, make(320, 100, 10));
	tcp_chain_collapse(&chain);
	/* 120, 120, 60 with the 20 of the shared one and 40, 60. */
	assert_int_equal(chain.mbufs, 4);
	assert_int_equal(chain.bytes, 420);
	assert_null(chain.tail->next);
	assert_int_equal(chain.tail->data_len, 60);
	assert_int_equal(rte_mbuf_refcnt_read(shared), 1);
	rte_pktmbuf_free(shared);
	m = tcp_chain_take(&chain);
	is(m, 0, 420);
	rte_pktmbuf_free(m);
	/* What is appended behind one that is shared: a buffer of its own. */
	tcp_mbuf_ref(shared = make(0, 10, 10));
	tcp_chain_append(&chain, shared);
	tcp_chain_append(&chain, make(10, 40, 10));
	tcp_chain_collapse(&chain);
	assert_int_equal(chain.mbufs, 2);
	assert_int_equal(shared->data_len, 10);
	rte_pktmbuf_free(shared);
	m = tcp_chain_take(&chain);
	is(m, 0, 50);
	rte_pktmbuf_free(m);
	assert_int_equal(rte_mempool_in_use_count(pool), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(cutting),
		cmocka_unit_test(slicing_shares),
		cmocka_unit_test(joining),
		cmocka_unit_test(slicing_without_buffers),
		cmocka_unit_test(collapsing),
	};

	if (sim_eal())
		return 1;
	pool = rte_pktmbuf_pool_create("chain", 63, 0, 0, 256, SOCKET_ID_ANY);
	for (unsigned i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)(i * 7 + i / 256);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
