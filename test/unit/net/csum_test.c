/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <rte_mbuf.h>

#include <base/rand.h>
#include <base/units.h>
#include <net/csum.h>

/* Sums by vectors and by parts against RFC 1071 taken literally. */

static uint64_t seed = 1;

static uint16_t plain_sum(const uint8_t *p, size_t n)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < n; i++)
		sum += i & 1 ? (uint64_t)p[i] << 8 : p[i]; /* little endian words */
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)sum;
}

static void fill(uint8_t *p, size_t n, uint8_t constant)
{
	struct rp_rand r = {.state = seed};

	for (size_t i = 0; i < n; i++)
		p[i] = constant ? constant : (uint8_t)rp_rand_u64(&r);
}

/* 0 and 0xffff are the same number, and both come out of either way of adding. */
static void assert_same(uint16_t a, uint16_t b, size_t n, size_t at)
{
	if (a == b || (a == 0xffff && b == 0) || (a == 0 && b == 0xffff))
		return;
	fail_msg("seed %llu: %zu bytes at %zu: %04x, not %04x", (unsigned long long)seed, n, at, a,
		b);
}

static void every_length_and_alignment(void **state)
{
	static uint8_t data[1700];

	for (unsigned constant = 0; constant < 256; constant += 255) {
		fill(data, sizeof(data), (uint8_t)constant);
		for (size_t n = 0; n <= 1600; n += n < 320 ? 1 : 7)
			for (size_t at = 0; at < 33; at += n < 320 ? 1 : 8)
				assert_same(rp_csum_bytes(data + at, n), plain_sum(data + at, n), n,
					at);
	}
}

/* The processor at hand takes one of them. */
static void every_way(void **state)
{
	static uint8_t data[66000];
	uint16_t sum;

	for (unsigned constant = 0; constant < 256; constant += 255) {
		fill(data, sizeof(data), (uint8_t)constant);
		for (enum csum_way way = CSUM_PLAIN; way <= CSUM_BY_MASKS; way++)
			for (size_t n = 0; n <= 65536; n += n < 700 ? 1 : n < 1600 ? 7 : 12787)
				for (size_t at = 0; at < 33; at += n < 320 ? 3 : 16)
					if (csum_by(way, data + at, n, &sum))
						assert_same(sum, plain_sum(data + at, n), n, at);
	}
	assert_true(csum_by(CSUM_PLAIN, data, 10, &sum));
	assert_false(csum_by(CSUM_PLAIN, data, 65537, &sum));
}

static void carries_of_a_long_one(void **state)
{
	size_t n = 1 << 20;
	uint8_t *data = malloc(n);

	assert_non_null(data);
	fill(data, n, 0xff);
	assert_int_equal(rp_csum_bytes(data, n), 0xffff);
	fill(data, n, 0);
	assert_same(rp_csum_bytes(data, n), plain_sum(data, n), n, 0);
	free(data);
}

static void headers(void **state)
{
	uint8_t data[60];

	fill(data, sizeof(data), 0);
	for (unsigned n = 0; n <= sizeof(data); n += 4)
		assert_same(rp_csum_fold(rp_csum_header(data, n)), plain_sum(data, n), n, 0);
}

/* A chain cut at odd places has the sum of its bytes in a row. */
static void chains(void **state)
{
	struct rp_rand r = {.state = seed + 1};
	static uint8_t data[4096];
	struct rte_mbuf m[8];

	fill(data, sizeof(data), 0);
	for (unsigned round = 0; round < 20000; round++) {
		unsigned segments = 1 + (unsigned)rp_rand_below(&r, RP_ARRAY_SIZE(m));
		size_t total = 0, offset, length;

		for (unsigned i = 0; i < segments; i++) {
			m[i] = (struct rte_mbuf){
				.buf_addr = data + total,
				.data_len = (uint16_t)rp_rand_below(&r, 300),
				.next = i + 1 < segments ? &m[i + 1] : NULL,
			};
			total += m[i].data_len;
		}
		offset = rp_rand_below(&r, total + 1);
		length = rp_rand_below(&r, total - offset + 1);
		assert_same(rp_csum_fold(rp_csum_chain(m, offset, length)),
			plain_sum(data + offset, length), length, offset);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_length_and_alignment),
		cmocka_unit_test(every_way),
		cmocka_unit_test(carries_of_a_long_one),
		cmocka_unit_test(headers),
		cmocka_unit_test(chains),
	};
	const char *text = getenv("RP_SEED");

	if (text)
		seed = strtoull(text, NULL, 10);
	print_message("seed %llu (RP_SEED)\n", (unsigned long long)seed);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
