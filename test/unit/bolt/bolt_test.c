/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include <base/rand.h>
#include <bolt/bolt.h>

/* Pairs made of their number: a key that sorts like it, a value of any size. */
struct pairs {
	uint64_t seed, count;
	uint32_t value_max;
	uint64_t seen;
};

static uint32_t value_length(const struct pairs *p, uint64_t i)
{
	struct rp_rand r;

	r.state = p->seed + i;
	/* Most are small, a few are much larger than a page. */
	return (uint32_t)(rp_rand_u64(&r) %
			  ((rp_rand_u64(&r) & 31) == 0 ? p->value_max : p->value_max / 50 + 1));
}

static void pair_size(void *ctx, uint64_t i, uint32_t *key, uint32_t *value)
{
	*key = 8 + (uint32_t)(i % 5);
	*value = value_length(ctx, i);
}

static void pair_key(void *ctx, uint64_t i, uint8_t *key)
{
	memset(key, 'k', 8 + i % 5);
	for (unsigned j = 0; j < 8; j++)
		key[j] = (uint8_t)(i >> (56 - 8 * j));
}

static void pair_fill(void *ctx, uint64_t i, uint8_t *key, uint8_t *value)
{
	pair_key(ctx, i, key);
	memset(value, (int)(i * 7), value_length(ctx, i));
}

static bool pair_check(void *ctx, struct rp_span key, struct rp_span value)
{
	struct pairs *p = ctx;
	uint32_t key_length, length;
	uint8_t expected[16];

	pair_size(p, p->seen, &key_length, &length);
	pair_key(p, p->seen, expected);
	assert_int_equal(key.length, key_length);
	assert_memory_equal(key.data, expected, key_length);
	assert_int_equal(value.length, length);
	for (uint32_t i = 0; i < length; i++)
		assert_int_equal(value.data[i], (uint8_t)(p->seen * 7));
	p->seen++;
	return true;
}

static bool pair_stop(void *ctx, struct rp_span key, struct rp_span value)
{
	return ++*(unsigned *)ctx < 3;
}

static struct rp_bolt_bucket bucket(const char *name, struct pairs *p)
{
	return (struct rp_bolt_bucket){.name = name,
		.count = p->count,
		.size = pair_size,
		.fill = pair_fill,
		.key = pair_key,
		.ctx = p};
}

static uint8_t *written(
	const struct rp_bolt_bucket *buckets, uint32_t count, size_t step, size_t *length)
{
	struct rp_bolt_writer *w = rp_bolt_writer_new(buckets, count);
	uint64_t bytes = rp_bolt_writer_bytes(w);
	uint8_t *file = malloc(bytes + step);
	ssize_t n;

	*length = 0;
	while ((n = rp_bolt_write(w, file + *length, step)) > 0) {
		*length += (size_t)n;
		assert_true(*length <= bytes);
	}
	assert_int_equal(n, 0);
	assert_int_equal(*length, bytes);
	assert_int_equal(bytes % RP_BOLT_PAGE_BYTES, 0);
	rp_bolt_writer_free(w);
	return file;
}

static void round_trip(uint64_t seed, uint64_t count, uint32_t value_max, size_t step)
{
	struct pairs few = {.seed = seed, .count = 3, .value_max = 60}, none = {0};
	struct pairs many = {.seed = seed, .count = count, .value_max = value_max};
	struct rp_bolt_bucket buckets[] = {
		bucket("few", &few), bucket("many", &many), bucket("none", &none)};
	struct rp_bolt_file f;
	const char *why = "";
	size_t length;
	uint8_t *file = written(buckets, 3, step, &length);
	struct rp_span bytes = {.data = file, .length = length};
	unsigned calls = 0;

	assert_int_equal(rp_bolt_open(&f, bytes, &why), 0);
	assert_int_equal(rp_bolt_each(&f, "few", pair_check, &few, &why), 0);
	assert_int_equal(few.seen, few.count);
	if (rp_bolt_each(&f, "many", pair_check, &many, &why) != 0)
		fail_msg("seed %llu, %llu pairs: %s", (unsigned long long)seed,
			(unsigned long long)count, why);
	assert_int_equal(many.seen, many.count);
	assert_int_equal(rp_bolt_each(&f, "none", pair_check, &none, &why), 0);
	assert_int_equal(none.seen, 0);
	assert_int_equal(rp_bolt_each(&f, "nothing", pair_check, &none, &why), -ENOENT);
	if (count >= 3) {
		assert_int_equal(rp_bolt_each(&f, "many", pair_stop, &calls, &why), -ECANCELED);
		assert_int_equal(calls, 3);
	}
	free(file);
}

static void sizes(void **state)
{
	static const uint64_t counts[] = {0, 1, 2, 3, 50, 200, 5000, 40000};

	for (size_t i = 0; i < RP_ARRAY_SIZE(counts); i++) {
		round_trip(i, counts[i], 100, 32768);
		round_trip(i, counts[i], counts[i] > 5000 ? 400 : 20000, 1000);
	}
}

static void random_files(void **state)
{
	const char *given = getenv("RP_SEED");
	uint64_t seed = given ? strtoull(given, NULL, 0) : (uint64_t)time(NULL);
	struct rp_rand r;

	printf("RP_SEED=%llu\n", (unsigned long long)seed);
	r.state = seed;
	for (unsigned i = 0; i < 100; i++)
		round_trip(rp_rand_u64(&r), rp_rand_u64(&r) % 600,
			1 + (uint32_t)(rp_rand_u64(&r) % 9000), 1 + rp_rand_u64(&r) % 9000);
}

/* A file with any byte of its structure changed is read or refused, never beyond its end. */
static void broken(void **state)
{
	struct pairs p = {.seed = 1, .count = 300, .value_max = 10};
	struct rp_bolt_bucket b = bucket("p", &p);
	const char *why = NULL;
	struct rp_bolt_file f;
	size_t length;
	uint8_t *file = written(&b, 1, 4096, &length), *copy = malloc(length);
	struct rp_span bytes = {.data = copy, .length = length};
	unsigned calls;

	for (size_t at = 0; at < length; at += 1 + (at % 4096 > 200 ? 61 : 0)) {
		memcpy(copy, file, length);
		copy[at] ^= 0xff;
		calls = 0;
		if (rp_bolt_open(&f, bytes, &why) == 0)
			(void)rp_bolt_each(&f, "p", pair_stop, &calls, &why);
		else
			assert_non_null(why);
	}
	for (size_t cut = 0; cut < length; cut += 1000) {
		bytes.length = cut;
		memcpy(copy, file, length);
		calls = 0;
		if (rp_bolt_open(&f, bytes, &why) == 0)
			assert_true(rp_bolt_each(&f, "p", pair_stop, &calls, &why) == -EINVAL);
	}
	free(copy);
	free(file);
}

/* Either meta alone is enough: bbolt writes them in turn. */
static void one_meta(void **state)
{
	struct pairs p = {.seed = 1, .count = 300, .value_max = 10};
	struct rp_bolt_bucket b = bucket("p", &p);
	const char *why = NULL;
	struct rp_bolt_file f;
	size_t length;
	uint8_t *file = written(&b, 1, 4096, &length);
	struct rp_span bytes = {.data = file, .length = length};

	for (unsigned which = 0; which < 2; which++) {
		uint8_t *magic = file + which * RP_BOLT_PAGE_BYTES + 16;

		magic[0] ^= 1;
		assert_int_equal(rp_bolt_open(&f, bytes, &why), 0);
		p.seen = 0;
		assert_int_equal(rp_bolt_each(&f, "p", pair_check, &p, &why), 0);
		assert_int_equal(p.seen, p.count);
		magic[0] ^= 1;
	}
	file[16] ^= 1;
	file[RP_BOLT_PAGE_BYTES + 16] ^= 1;
	assert_int_equal(rp_bolt_open(&f, bytes, &why), -EINVAL);
	free(file);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sizes),
		cmocka_unit_test(random_files),
		cmocka_unit_test(broken),
		cmocka_unit_test(one_meta),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
