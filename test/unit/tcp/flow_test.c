/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <base/rand.h>
#include <tcp/flow.h>
#include <tcp/siphash.h>

static uint64_t seed = 1;

/* Two kinds of records, as in the stack. */
struct small {
	struct flow_key key;
	bool in;
};
struct large {
	struct flow_key key;
	bool in;
	char rest[100];
};

#define A 500
#define B 300

static struct small a[A];
static struct large b[B];

static struct flow_key *key_of(uint32_t i)
{
	return i < A ? &a[i].key : &b[i - A].key;
}

static bool *in_of(uint32_t i)
{
	return i < A ? &a[i].in : &b[i - A].in;
}

static void finds_what_is_there(void **state)
{
	struct flow_table f;
	struct rp_rand r = {seed};

	assert_int_equal(flow_init(&f, A + B, (const uint64_t[]){1, 2}), 0);
	f.a = (const uint8_t *)a;
	f.a_stride = sizeof(a[0]);
	f.b = (const uint8_t *)b;
	f.b_stride = sizeof(b[0]);
	f.split = A;
	for (uint32_t i = 0; i < A + B; i++) {
		/* Keys that differ in one field only. */
		*key_of(i) =
			(struct flow_key){.remote = {.b = {[10] = 0xff, [11] = 0xff, [12] = 10}},
				.local_port = 80,
				.remote_port = 5};
		if (i % 3 == 0)
			key_of(i)->remote_port = (uint16_t)(1000 + i);
		else if (i % 3 == 1)
			key_of(i)->local_port = (uint16_t)(1000 + i);
		else
			key_of(i)->remote.w[3] = i;
	}
	for (unsigned step = 0; step < 200000; step++) {
		uint32_t i = (uint32_t)rp_rand_below(&r, A + B);
		uint32_t hash = flow_hash(&f, key_of(i));

		assert_int_equal(flow_find(&f, key_of(i), hash), *in_of(i) ? i : FLOW_NONE);
		if (*in_of(i))
			flow_remove(&f, hash, i);
		else
			flow_insert(&f, hash, i);
		*in_of(i) = !*in_of(i);
	}
	for (uint32_t i = 0; i < A + B; i++) {
		uint32_t hash = flow_hash(&f, key_of(i));

		assert_int_equal(flow_find(&f, key_of(i), hash), *in_of(i) ? i : FLOW_NONE);
		if (*in_of(i))
			flow_remove(&f, hash, i);
	}
	assert_int_equal(f.count, 0);
	for (uint32_t i = 0; i <= f.mask; i++)
		assert_int_equal(f.slots[i].index, FLOW_NONE);
	flow_free(&f);
}

static void collisions_and_replacement(void **state)
{
	struct flow_table f;

	flow_init(&f, 32, (const uint64_t[]){1, 2});
	f.a = (const uint8_t *)a;
	f.a_stride = sizeof(a[0]);
	f.b = (const uint8_t *)b;
	f.b_stride = sizeof(b[0]);
	f.split = A;
	for (uint32_t i = 0; i < 10; i++) {
		a[i].key = (struct flow_key){.local_port = (uint16_t)i};
		flow_insert(&f, 62, i); /* at the end: they wrap around */
	}
	for (uint32_t i = 0; i < 10; i += 2)
		flow_remove(&f, 62, i);
	for (uint32_t i = 0; i < 10; i++)
		assert_int_equal(flow_find(&f, &a[i].key, 62), i % 2 ? i : FLOW_NONE);
	b[3].key = a[5].key;
	flow_replace(&f, 62, 5, A + 3);
	assert_int_equal(flow_find(&f, &a[5].key, 62), A + 3);
	flow_free(&f);
}

static void siphash_is_the_published_one(void **state)
{
	static const uint64_t expected[] = {0x726fdb47dd0e0e31ull, 0x74f839c593dc67fdull,
		0x0d6c8009d9a94f5aull, 0x85676696d7fb7e2dull};
	uint8_t key[16], data[16];

	for (unsigned i = 0; i < 16; i++)
		key[i] = data[i] = (uint8_t)i;
	for (unsigned i = 0; i < RP_ARRAY_SIZE(expected); i++)
		assert_true(siphash24(key, data, i) == expected[i]);
	assert_true(siphash24(key, data, 15) == 0xa129ca6149be45e5ull);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(finds_what_is_there),
		cmocka_unit_test(collisions_and_replacement),
		cmocka_unit_test(siphash_is_the_published_one),
	};

	if (argc > 1)
		seed = strtoull(argv[1], NULL, 0);
	printf("seed %llu\n", (unsigned long long)seed);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
