/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include <base/rand.h>

#include "codec_priv.h"

static uint64_t seed = 1;

static void assert_hex(const uint8_t *bytes, size_t n, const char *want)
{
	char hex[2 * DL_HEAD_BYTES_MAX + 1];

	for (size_t i = 0; i < n; i++)
		snprintf(hex + 2 * i, 3, "%02x", bytes[i]);
	assert_string_equal(hex, want);
}

/* The frames that docs/protocol.md shows. */
static void golden_frames(void **state)
{
	uint8_t out[DL_HEAD_BYTES_MAX];
	struct rp_qmsg m = {
		.type = RP_QMSG_FORWARD,
		.epoch = 483840,
		.dispatcher = 20,
		.producer_node = 10,
		.producer_boot = 0x1122334455667788,
		.producer_seq = 7,
		.tail_length = 5,
	};
	struct rp_frame_header h = {.handle = 0x00800003, .length = 10};
	struct dl_extra extra = {.has_total = true, .total = 10};
	const struct dl_open open = {.kind = RP_FRAME_FORWARD,
		.handle = 2,
		.name = (const uint8_t *)"jobs",
		.name_length = 4};
	const struct dl_opened opened = {.handle = 0x00800003, .messages = 256, .bytes = 65536};
	const struct dl_credit credit = {.messages = 384, .bytes = 98304};
	const struct dl_refused refused = {.seq = 9, .status = RP_Q_MOVED};
	const struct dl_control_took took = {
		.seq = 41, .shards = 4, .shard = 3, .links = 2, .link = 1};
	uint32_t n;

	assert_int_equal(rp_queue_hash("jobs", 4), 0xd256d3bc);
	n = dl_encode(&h, &m, &extra, false, out);
	assert_hex(out, n,
		"09000806"
		"03008000"
		"27000000"
		"00620700"
		"1400000000000000"
		"0a00000000000000"
		"8877665544332211"
		"0700000000000000"
		"05"
		"0a000000");
	m = (struct rp_qmsg){
		.type = RP_QMSG_ACCEPTED,
		.name = (const uint8_t *)"jobs",
		.name_length = 4,
		.epoch = 483840,
		.dispatcher = 20,
		.idx = (uint64_t)483840 << 40 | 1,
		.alloc_node = 20,
		.uuid = {0xa0, 0xa1, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6, 0xa7, 0xa8, 0xa9, 0xaa, 0xab,
			0xac, 0xad, 0xae, 0xaf},
		.mod_revision = 1000,
	};
	h = (struct rp_frame_header){.handle = 0xd256d3bc};
	extra = (struct dl_extra){.has_seq = true, .seq_shard = 1, .seq = 41};
	n = dl_encode(&h, &m, &extra, true, out);
	assert_hex(out, n,
		"0b002718"
		"bcd356d2"
		"32000000"
		"00620700"
		"1400000000000000"
		"0100000000006207"
		"1400000000000000"
		"a0a1a2a3a4a5a6a7a8a9aaabacadaeaf"
		"e803000000000000"
		"0129000000"
		"046a6f6273");
	n = dl_open_write(&open, out);
	assert_hex(out, n,
		"0904000002000000"
		"6a6f6273");
	n = dl_opened_write(&opened, out);
	assert_hex(out, n,
		"03008000"
		"00010000"
		"0000010000000000"
		"00000000");
	n = dl_credit_write(&credit, out);
	assert_hex(out, n,
		"80010000"
		"00000000"
		"0080010000000000");
	n = dl_refused_write(&refused, out);
	assert_hex(out, n,
		"09000000"
		"08000000");
	n = dl_took_write(9, out);
	assert_hex(out, n, "09000000");
	n = dl_control_took_write(&took, out);
	assert_hex(out, n,
		"29000000"
		"04030201");
}

static uint64_t maybe(struct rp_rand *r, uint64_t max)
{
	uint64_t x = rp_rand_u64(r);

	return x % 3 == 0 ? 0 : x % 3 == 1 ? max : x & max;
}

static void assert_same(const struct rp_qmsg *a, const struct rp_qmsg *b)
{
	assert_int_equal(a->type, b->type);
	assert_int_equal(a->flags, b->flags);
	assert_int_equal(a->status, b->status);
	assert_int_equal(a->tail_length, b->tail_length);
	assert_int_equal(a->epoch, b->epoch);
	assert_int_equal(a->attempt, b->attempt);
	assert_int_equal(a->count, b->count);
	assert_true(a->dispatcher == b->dispatcher && a->idx == b->idx);
	assert_true(a->alloc_node == b->alloc_node && a->token == b->token);
	assert_true(a->producer_node == b->producer_node && a->producer_boot == b->producer_boot);
	assert_true(a->producer_seq == b->producer_seq && a->mod_revision == b->mod_revision);
	assert_memory_equal(a->uuid, b->uuid, RP_UUID_BYTES);
}

static void any_message_comes_back(void **state)
{
	struct rp_rand r = {seed};
	uint8_t name[RP_NAME_BYTES_MAX], out[DL_HEAD_BYTES_MAX];

	for (int i = 0; i < 20000; i++) {
		struct rp_qmsg m = {.type = (enum rp_qmsg_type)rp_rand_below(
					    &r, RP_QMSG_TYPE_COUNT)},
			       b;
		struct dl_extra extra = {0}, bextra;
		struct rp_frame_header h = {.handle = (uint32_t)rp_rand_u64(&r)}, bh;
		struct rp_reader reader;
		uint32_t n;

		m.flags = (uint8_t)rp_rand_below(&r, 16);
		m.status = (enum rp_qstatus)rp_rand_below(&r, RP_QSTATUS_COUNT);
		m.name = name;
		m.name_length = (uint16_t)(1 + rp_rand_below(&r, RP_NAME_BYTES_MAX));
		for (int j = 0; j < m.name_length; j++)
			name[j] = (uint8_t)rp_rand_u64(&r);
		m.epoch = (uint32_t)maybe(&r, UINT32_MAX);
		m.dispatcher = maybe(&r, UINT64_MAX);
		m.idx = maybe(&r, UINT64_MAX);
		m.alloc_node = maybe(&r, UINT64_MAX);
		for (int j = 0; j < RP_UUID_BYTES && i % 2; j++)
			m.uuid[j] = (uint8_t)rp_rand_u64(&r);
		m.producer_node = maybe(&r, UINT64_MAX);
		m.producer_boot = maybe(&r, UINT64_MAX);
		m.producer_seq = maybe(&r, UINT64_MAX);
		m.token = maybe(&r, UINT64_MAX);
		m.mod_revision = maybe(&r, UINT64_MAX);
		m.attempt = (uint32_t)maybe(&r, UINT32_MAX);
		m.count = (uint32_t)maybe(&r, UINT32_MAX);
		extra.has_total = i % 3;
		extra.total = extra.has_total ? (uint32_t)(255 + rp_rand_below(&r, 1000)) : 0;
		m.tail_length = extra.has_total ? (uint16_t)rp_rand_below(&r, 256) : 0;
		extra.has_seq = i % 5;
		extra.seq_shard = extra.has_seq ? (uint8_t)rp_rand_u64(&r) : 0;
		extra.seq = extra.has_seq ? (uint32_t)rp_rand_u64(&r) : 0;
		n = dl_encode(&h, &m, &extra, true, out);
		assert_true(n <= DL_HEAD_BYTES_MAX);
		rp_frame_header_read(&bh, out);
		assert_int_equal(bh.length, n - RP_FRAME_HEADER_BYTES);
		reader = rp_reader_of(out + RP_FRAME_HEADER_BYTES, n - RP_FRAME_HEADER_BYTES);
		assert_true(dl_decode(&bh, &reader, &b, &bextra));
		assert_int_equal(rp_reader_left(&reader), 0);
		assert_int_equal(b.name_length, m.name_length);
		assert_memory_equal(b.name, m.name, m.name_length);
		assert_same(&b, &m);
		assert_int_equal(bextra.total, extra.total);
		assert_int_equal(bextra.has_total, extra.has_total);
		assert_int_equal(bextra.has_seq, extra.has_seq);
		assert_int_equal(bextra.seq, extra.seq);
		assert_int_equal(bextra.seq_shard, extra.seq_shard);
		/* Every shorter one is refused, and no byte past its end is read. */
		for (uint32_t k = RP_FRAME_HEADER_BYTES; k < n; k += 1 + n / 20) {
			uint8_t *shorter = malloc(k);

			memcpy(shorter, out, k);
			reader = rp_reader_of(
				shorter + RP_FRAME_HEADER_BYTES, k - RP_FRAME_HEADER_BYTES);
			assert_false(dl_decode(&bh, &reader, &b, &bextra));
			free(shorter);
		}
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(golden_frames),
		cmocka_unit_test(any_message_comes_back),
	};

	if (argc > 1)
		seed = strtoull(argv[1], NULL, 0);
	printf("seed %llu\n", (unsigned long long)seed);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
