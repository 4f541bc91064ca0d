/* SPDX-License-Identifier: Apache-2.0 */

/* The wire format in place, held against what protobuf-c makes of the same schema. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <ringpost/v1/repl.pb-c.h>

#include <base/rand.h>
#include <repl/repl_priv.h>

static struct rp_rand rnd = {.state = 42};

static uint64_t some_number(void)
{
	return rp_rand_u64(&rnd) >> rp_rand_below(&rnd, 64);
}

/** Random bytes, sometimes none. */
static struct rp_span some_bytes(void)
{
	static uint8_t pool[4][300];
	static unsigned next;
	uint8_t *p = pool[next++ % 4];
	size_t n = rp_rand_below(&rnd, 4) ? rp_rand_below(&rnd, 300) : 0;

	for (size_t i = 0; i < n; i++)
		p[i] = (uint8_t)rp_rand_u64(&rnd);
	return (struct rp_span){.data = p, .length = n};
}

static void same_bytes(struct rp_span a, ProtobufCBinaryData b)
{
	assert_int_equal(a.length, b.len);
	if (a.length > 0)
		assert_memory_equal(a.data, b.data, a.length);
}

static ProtobufCBinaryData theirs(struct rp_span s)
{
	return (ProtobufCBinaryData){.data = (uint8_t *)(uintptr_t)s.data, .len = s.length};
}

static void messages_read_by_protobuf(void **state)
{
	(void)state;
	for (unsigned round = 0; round < 2000; round++) {
		struct repl_hello hello = {.node = some_number(),
			.cluster_high = some_number(),
			.cluster_low = some_number(),
			.wall_us = some_number(),
			.ready = rp_rand_below(&rnd, 2)};
		struct repl_record record = {.epoch = (uint32_t)some_number()};
		struct repl_buf b = {0};
		Ringpost__V1__ReplApply *apply;

		record.kv.key = some_bytes();
		record.kv.deleted = rp_rand_below(&rnd, 2);
		record.kv.lease = (int64_t)rp_rand_u64(&rnd);
		record.kv.stamp = some_number();
		record.kv.node = some_number();
		if (!record.kv.deleted)
			record.kv.value = some_bytes();
		repl_put_hello(&b, REPL_F_HELLO, &hello);
		repl_put_record(&b, REPL_F_APPLY_RECORDS, &record);
		repl_put_record(&b, REPL_F_APPLY_RECORDS, &record);
		apply = ringpost__v1__repl_apply__unpack(NULL, b.length, b.data);
		assert_non_null(apply);
		assert_int_equal(apply->hello->node, hello.node);
		assert_int_equal(apply->hello->cluster_high, hello.cluster_high);
		assert_int_equal(apply->hello->cluster_low, hello.cluster_low);
		assert_int_equal(apply->hello->ready, hello.ready);
		assert_int_equal(apply->hello->wall_us, hello.wall_us);
		assert_int_equal(apply->n_records, 2);
		same_bytes(record.kv.key, apply->records[1]->key);
		same_bytes(record.kv.value, apply->records[1]->value);
		assert_int_equal(apply->records[1]->deleted, record.kv.deleted);
		assert_int_equal(apply->records[1]->lease, record.kv.lease);
		assert_int_equal(apply->records[1]->stamp, record.kv.stamp);
		assert_int_equal(apply->records[1]->node, record.kv.node);
		assert_int_equal(apply->records[1]->epoch, record.epoch);
		/* The canonical form: what protobuf-c packs is the same bytes. */
		{
			size_t n = ringpost__v1__repl_apply__get_packed_size(apply);
			uint8_t *packed = malloc(n);

			ringpost__v1__repl_apply__pack(apply, packed);
			assert_int_equal(n, b.length);
			assert_memory_equal(packed, b.data, n);
			free(packed);
		}
		ringpost__v1__repl_apply__free_unpacked(apply, NULL);
		repl_buf_free(&b);
	}
}

static void messages_of_protobuf_are_read(void **state)
{
	(void)state;
	for (unsigned round = 0; round < 2000; round++) {
		Ringpost__V1__ReplMeta meta = RINGPOST__V1__REPL_META__INIT, *metas[] = {&meta};
		Ringpost__V1__ReplRange range = RINGPOST__V1__REPL_RANGE__INIT;
		Ringpost__V1__ReplSync sync = RINGPOST__V1__REPL_SYNC__INIT;
		struct rp_span key = some_bytes(), begin = some_bytes(), end = some_bytes();
		struct repl_range got_range = {0};
		struct repl_meta got_meta = {0};
		uint8_t bytes[2048];
		struct rp_reader r;
		struct repl_field f;
		unsigned fields = 0;

		meta.key = theirs(key);
		meta.stamp = some_number();
		meta.node = some_number();
		meta.deleted = (int)rp_rand_below(&rnd, 2);
		meta.epoch = (uint32_t)some_number();
		meta.dispatcher = some_number();
		range.begin = theirs(begin);
		range.end = theirs(end);
		range.count = (uint32_t)some_number();
		range.digest = some_number();
		sync.listed = &range;
		sync.n_list = 1;
		sync.list = metas;
		r = rp_reader_of(bytes, ringpost__v1__repl_sync__pack(&sync, bytes));
		while (repl_field_next(&r, &f)) {
			fields++;
			if (f.number == REPL_F_SYNC_LISTED)
				assert_true(repl_get_range(f.bytes, &got_range));
			else if (f.number == REPL_F_SYNC_LIST)
				assert_true(repl_get_meta(f.bytes, &got_meta));
		}
		assert_false(r.bad);
		assert_int_equal(fields, 2);
		same_bytes(got_range.begin, range.begin);
		same_bytes(got_range.end, range.end);
		assert_int_equal(got_range.count, range.count);
		assert_int_equal(got_range.digest, range.digest);
		same_bytes(got_meta.key, meta.key);
		assert_int_equal(got_meta.rank.stamp, meta.stamp);
		assert_int_equal(got_meta.rank.node, meta.node);
		assert_int_equal(got_meta.rank.epoch, meta.epoch);
		assert_int_equal(got_meta.rank.dispatcher, meta.dispatcher);
		assert_int_equal(got_meta.deleted, meta.deleted);
	}
}

static void malformed_bytes_are_seen(void **state)
{
	static const struct {
		const char *bytes;
		size_t length;
	} bad[] = {
		{"\x0a\x05", 2},				      /* longer than what is left */
		{"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11}, /* far longer */
		{"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 12}, /* varint of 11 bytes */
		{"\x29\x01\x02", 3},					  /* half a fixed64 */
		{"\x00\x00", 2},					  /* field 0 */
		{"\x0b", 1},						  /* a group */
		{"\x80", 1},						  /* half a tag */
	};

	(void)state;
	for (size_t i = 0; i < RP_ARRAY_SIZE(bad); i++) {
		struct rp_reader r = rp_reader_of(bad[i].bytes, bad[i].length);
		struct repl_record record;
		struct repl_field f;

		while (repl_field_next(&r, &f))
			;
		assert_true(r.bad);
		assert_false(repl_get_record((struct rp_span){.data = (const uint8_t *)bad[i].bytes,
						     .length = bad[i].length},
			&record));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(messages_read_by_protobuf),
		cmocka_unit_test(messages_of_protobuf_are_read),
		cmocka_unit_test(malformed_bytes_are_seen),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
