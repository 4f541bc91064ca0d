/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

#include <rte_byteorder.h>
#include <rte_thash.h>

#include <base/rand.h>
#include <base/units.h>
#include <net/place.h>

/* The Toeplitz hash against published values and DPDK's, and the search against trying each port.
 */

static uint64_t seed = 1;

/* The key and the flows of Microsoft's "Verifying the RSS Hash Calculation". */
static const uint8_t published_key[RP_PLACE_KEY_BYTES] = {0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e,
	0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b,
	0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe,
	0xac, 0x01, 0xfa};

static void spread(uint8_t *table, uint32_t size, unsigned shards)
{
	for (uint32_t i = 0; i < size; i++)
		table[i] = (uint8_t)(i % shards);
}

static struct rp_place *place_of(const uint8_t *key, uint32_t size, unsigned shards)
{
	struct rp_place *p = malloc(sizeof(*p));
	uint8_t table[RP_PLACE_TABLE_MAX];

	spread(table, size, shards);
	assert_int_equal(rp_place_init(p, key, table, size), 0);
	return p;
}

static void published_hashes(void **state)
{
	struct rp_place *p = place_of(published_key, 128, 4);
	const union rp_ip a4 = RP_IP4(66, 9, 149, 187), b4 = RP_IP4(161, 142, 100, 80);
	const union rp_ip b6 = {.b = {0x3f, 0xfe, 0x25, 0x01, 2, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 1}};
	const union rp_ip a6 = {
		.b = {0x3f, 0xfe, 0x25, 0x01, 2, 0, 0x1f, 0xff, 0, 0, 0, 0, 0, 0, 0, 7}};

	assert_int_equal(
		rp_place_hash(p, &(struct rp_place_flow){&a4, &b4, 2794, 1766}), 0x51ccc178);
	assert_int_equal(
		rp_place_hash(p, &(struct rp_place_flow){&a6, &b6, 2794, 1766}), 0x40207d3d);
	free(p);
}

static void random_ip(struct rp_rand *r, union rp_ip *ip, bool six)
{
	if (six) {
		ip->q[0] = rp_rand_u64(r) | 1;
		ip->q[1] = rp_rand_u64(r);
	} else {
		*ip = (union rp_ip)RP_IP4((uint8_t)rp_rand_u64(r), (uint8_t)rp_rand_u64(r),
			(uint8_t)rp_rand_u64(r), (uint8_t)rp_rand_u64(r));
	}
}

static void like_dpdk(void **state)
{
	struct rp_rand r = {.state = seed};

	for (unsigned i = 0; i < 400; i++) {
		uint8_t key[RP_PLACE_KEY_BYTES];
		union rp_ip src, dst;
		struct rp_place_flow f = {
			&src, &dst, (uint16_t)rp_rand_u64(&r), (uint16_t)rp_rand_u64(&r)};
		struct rp_place *p;
		uint32_t words[9], n = 0, want;
		bool six = i & 1;

		for (unsigned k = 0; k < sizeof(key); k++)
			key[k] = (uint8_t)rp_rand_u64(&r);
		random_ip(&r, &src, six);
		random_ip(&r, &dst, six);
		for (unsigned w = six ? 0 : 3; w < 4; w++)
			words[n++] = rte_be_to_cpu_32(src.w[w]);
		for (unsigned w = six ? 0 : 3; w < 4; w++)
			words[n++] = rte_be_to_cpu_32(dst.w[w]);
		words[n++] = (uint32_t)f.src_port << 16 | f.dst_port;
		want = rte_softrss(words, n, key);
		p = place_of(key, 64, 3);
		assert_int_equal(rp_place_hash(p, &f), want);
		assert_int_equal(rp_place_shard_of(p, &f), want % 64 % 3);
		free(p);
	}
}

static void tables_that_cannot_be(void **state)
{
	static struct rp_place p;
	uint8_t table[RP_PLACE_TABLE_MAX] = {0};

	assert_int_equal(rp_place_init(&p, rp_place_key_default, table, 0), -EINVAL);
	assert_int_equal(rp_place_init(&p, rp_place_key_default, table, 96), -EINVAL);
	assert_int_equal(rp_place_init(&p, rp_place_key_default, table, 1024), -EINVAL);
	table[5] = RP_PLACE_SHARDS_MAX;
	assert_int_equal(rp_place_init(&p, rp_place_key_default, table, 8), -EINVAL);
	assert_int_equal(rp_place_init(&p, rp_place_key_default, table, 4), 0);
	assert_int_equal(rp_place_shards(&p), 1);
	assert_int_equal(rp_place_init_spread(&p, rp_place_key_default, 8, 0), -EINVAL);
	assert_int_equal(rp_place_init_spread(&p, rp_place_key_default, 8, 0x8000000000000016), 0);
	assert_memory_equal(p.table, ((uint8_t[]){1, 2, 4, 63, 1, 2, 4, 63}), 8);
}

struct pair {
	union rp_ip local, remote;
	uint16_t remote_port;
};

/* Does the port put the flow where both ends want it? By the hashes themselves. */
static bool fits(const struct rp_place_search_config *c, uint16_t port)
{
	struct rp_place_flow in = {c->remote, c->local, c->remote_port, port};
	struct rp_place_flow out = {c->local, c->remote, port, c->remote_port};

	return (!c->near.place || c->near.shards >> rp_place_shard_of(c->near.place, &in) & 1) &&
	       (!c->far.place || c->far.shards >> rp_place_shard_of(c->far.place, &out) & 1);
}

/* Each port that fits exactly once, and no other. */
static void check_search(const struct rp_place_search_config *c)
{
	static uint8_t seen[65536];
	struct rp_place_search s;
	uint32_t want = 0, got = 0;
	uint16_t port;

	memset(seen, 0, sizeof(seen));
	for (uint32_t p = c->port_first; p <= c->port_last; p++)
		want += fits(c, (uint16_t)p);
	rp_place_search_begin(&s, c);
	while ((port = rp_place_search_next(&s)) != 0) {
		if (port < c->port_first || port > c->port_last || seen[port] || !fits(c, port))
			fail_msg("seed %llu: port %u", (unsigned long long)seed, port);
		seen[port] = 1;
		got++;
	}
	assert_int_equal(got, want);
	assert_int_equal(rp_place_search_next(&s), 0);
}

static void every_port_that_fits_once(void **state)
{
	static const uint16_t ranges[][2] = {
		{32768, 60999}, {1024, 65535}, {40000, 40000}, {40000, 40001}, {1, 65535}, {5, 6}};
	struct rp_rand r = {.state = seed};

	for (unsigned i = 0; i < 24; i++) {
		struct rp_place *near = place_of(rp_place_key_default, 1u << i % 10, 1 + i % 7),
				*far = place_of(published_key, 128, 1 + i % 5);
		struct pair p;
		struct rp_place_search_config c = {
			.local = &p.local,
			.remote = &p.remote,
			.remote_port = (uint16_t)rp_rand_u64(&r),
			.port_first = ranges[i % 6][0],
			.port_last = ranges[i % 6][1],
			.salt = (uint32_t)rp_rand_u64(&r),
			.step = (uint32_t)rp_rand_u64(&r),
		};

		random_ip(&r, &p.local, i & 1);
		random_ip(&r, &p.remote, i & 1);
		if (i & 2)
			c.near = (struct rp_place_end){near, rp_rand_u64(&r)};
		if (i & 4)
			c.far = (struct rp_place_end){far, rp_rand_u64(&r)};
		check_search(&c);
		free(near);
		free(far);
	}
}

/* Any shard of either end is reached from the ports there are, and each about as often. */
static void every_pair_of_shards(void **state)
{
	struct rp_place *near = place_of(rp_place_key_default, 128, 8),
			*far = place_of(rp_place_key_default, 128, 8);
	struct rp_rand r = {.state = seed};
	uint64_t steps = 0, searches = 0;

	for (unsigned i = 0; i < 4; i++) {
		struct pair p;

		random_ip(&r, &p.local, i & 1);
		random_ip(&r, &p.remote, i & 1);
		for (unsigned a = 0; a < 8; a++) {
			for (unsigned b = 0; b < 8; b++) {
				struct rp_place_search_config c = {
					.local = &p.local,
					.remote = &p.remote,
					.remote_port = 7400,
					.port_first = 32768,
					.port_last = 60999,
					.salt = (uint32_t)rp_rand_u64(&r),
					.near = {near, 1ull << a},
					.far = {far, 1ull << b},
				};
				struct rp_place_search s;
				uint32_t n = 0;

				rp_place_search_begin(&s, &c);
				while (rp_place_search_next(&s))
					n++;
				/* 28232 ports over 64 pairs: 441 each. */
				assert_in_range(n, 400, 480);
				rp_place_search_begin(&s, &c);
				rp_place_search_next(&s);
				steps += 32768 - s.left;
				searches++;
			}
		}
	}
	/* Half as many tries as there are pairs, and some for ports that are out of range. */
	assert_in_range(steps / searches, 20, 80);
	print_message("steps a search for one of 8 x 8: %.1f\n", (double)steps / (double)searches);
	free(near);
	free(far);
}

/* The first 4^j ports of a search have each pair of j bits of either end's hash once. */
static void the_default_key(void **state)
{
	const uint16_t first = 32768, last = 65535;
	struct rp_rand r = {.state = seed};

	for (unsigned i = 0; i < 14; i++) {
		unsigned j = 1 + i / 2;
		struct rp_place *place = place_of(rp_place_key_default, 1u << j, 1);
		static uint8_t seen[1u << 14];
		struct pair p;
		struct rp_place_search_config c = {
			.local = &p.local,
			.remote = &p.remote,
			.remote_port = (uint16_t)rp_rand_u64(&r),
			.port_first = first,
			.port_last = last,
			.salt = (uint32_t)rp_rand_u64(&r),
		};
		struct rp_place_search s;

		memset(seen, 0, sizeof(seen));
		random_ip(&r, &p.local, i & 1);
		random_ip(&r, &p.remote, i & 1);
		rp_place_search_begin(&s, &c);
		for (uint32_t n = 0; n < 1u << 2 * j; n++) {
			uint16_t port = rp_place_search_next(&s);
			struct rp_place_flow in = {&p.remote, &p.local, c.remote_port, port};
			struct rp_place_flow out = {&p.local, &p.remote, port, c.remote_port};
			uint32_t mask = (1u << j) - 1, a = rp_place_hash(place, &in) & mask,
				 b = rp_place_hash(place, &out) & mask;

			assert_in_range(port, first, last);
			assert_int_equal(seen[a << j | b]++, 0);
		}
		free(place);
	}
}

/* Consecutive searches go on from where the last one stopped. */
static void searches_go_on(void **state)
{
	struct rp_place *near = place_of(rp_place_key_default, 128, 4);
	const union rp_ip local = RP_IP4(10, 0, 0, 1), remote = RP_IP4(10, 0, 0, 2);
	struct rp_place_search_config c = {
		.local = &local,
		.remote = &remote,
		.remote_port = 7400,
		.port_first = 32768,
		.port_last = 60999,
		.salt = 12345,
		.near = {near, 1},
	};
	struct rp_place_search whole, s;

	rp_place_search_begin(&whole, &c);
	for (unsigned i = 0; i < 100; i++) {
		rp_place_search_begin(&s, &c);
		assert_int_equal(rp_place_search_next(&s), rp_place_search_next(&whole));
		c.step = s.step;
	}
	/* Another salt is another order. */
	c.salt = 54321;
	c.step = 0;
	rp_place_search_begin(&s, &c);
	c.salt = 12345;
	rp_place_search_begin(&whole, &c);
	assert_int_not_equal(rp_place_search_next(&s), rp_place_search_next(&whole));
	free(near);
}

/* What a step costs is printed: the spec has 1.7 cycles for one end, 220 for a search of 8 x 8. */
static void what_it_costs(void **state)
{
	struct rp_place *near = place_of(rp_place_key_default, 128, 8);
	const union rp_ip local = RP_IP4(10, 0, 0, 1), remote = RP_IP4(10, 0, 0, 2);
	struct rp_place_search_config c = {
		.local = &local,
		.remote = &remote,
		.remote_port = 7400,
		.port_first = 32768,
		.port_last = 65535,
		.near = {near, 0}, /* none: the whole walk */
	};
	struct timespec a, b;
	struct rp_place_search s;
	double ns = 1e9;

	for (unsigned i = 0; i < 20; i++) {
		double took;

		rp_place_search_begin(&s, &c);
		clock_gettime(CLOCK_MONOTONIC, &a);
		assert_int_equal(rp_place_search_next(&s), 0);
		clock_gettime(CLOCK_MONOTONIC, &b);
		took = (double)(b.tv_sec - a.tv_sec) * 1e9 + (double)(b.tv_nsec - a.tv_nsec);
		ns = took < ns ? took : ns;
	}
	print_message("a step: %.2f ns\n", ns / 32768);
	c.near.shards = 1;
	c.far = (struct rp_place_end){near, 1};
	clock_gettime(CLOCK_MONOTONIC, &a);
	for (unsigned i = 0; i < 10000; i++) {
		c.salt = i * 0x9e3779b9u;
		rp_place_search_begin(&s, &c);
		assert_int_not_equal(rp_place_search_next(&s), 0);
	}
	clock_gettime(CLOCK_MONOTONIC, &b);
	ns = (double)(b.tv_sec - a.tv_sec) * 1e9 + (double)(b.tv_nsec - a.tv_nsec);
	print_message("a search for one of 8 x 8: %.0f ns\n", ns / 10000);
	free(near);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(published_hashes),
		cmocka_unit_test(like_dpdk),
		cmocka_unit_test(tables_that_cannot_be),
		cmocka_unit_test(every_port_that_fits_once),
		cmocka_unit_test(every_pair_of_shards),
		cmocka_unit_test(the_default_key),
		cmocka_unit_test(searches_go_on),
		cmocka_unit_test(what_it_costs),
	};

	if (getenv("RP_SEED"))
		seed = strtoull(getenv("RP_SEED"), NULL, 0);
	printf("RP_SEED=%llu\n", (unsigned long long)seed);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
