/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include <link/frame.h>

static void header_golden(void **state)
{
	static const uint8_t golden[RP_FRAME_HEADER_BYTES] = {0x09, 0x44, 0x08, 0x06, 0x78, 0x56,
		0x34, 0x12, 0x00, 0x40, 0x00, 0x00, 0x05, 0, 0, 0, 0x88, 0x77, 0x66, 0x55, 0x44,
		0x33, 0x22, 0x11};
	const struct rp_frame_header h = {
		.type = RP_FRAME_FORWARD,
		.flags = RP_FRAME_MORE | RP_QMSG_REPEAT,
		.fields = 0x0608,
		.handle = 0x12345678,
		.length = RP_FRAME_CHUNK_BYTES,
		.epoch = 5,
		.dispatcher = 0x1122334455667788,
	};
	struct rp_frame_header back;
	uint8_t bytes[RP_FRAME_HEADER_BYTES];

	rp_frame_header_write(&h, bytes);
	assert_memory_equal(bytes, golden, sizeof(golden));
	rp_frame_header_read(&back, golden);
	assert_int_equal(back.type, h.type);
	assert_int_equal(back.flags, h.flags);
	assert_int_equal(back.fields, h.fields);
	assert_int_equal(back.handle, h.handle);
	assert_int_equal(back.length, h.length);
	assert_int_equal(back.epoch, h.epoch);
	assert_true(back.dispatcher == h.dispatcher);
}

static void every_frame_has_its_shard(void **state)
{
	struct rp_frame_header h = {.type = RP_FRAME_QACK, .handle = 0xffffffff};

	assert_int_equal(rp_frame_shard(&h, 4), 3);
	h.type = RP_FRAME_REPLY;
	h.handle = 0x40000000;
	assert_int_equal(rp_frame_shard(&h, 4), 1);
	assert_int_equal(rp_frame_shard(&h, 8), 2);
	h.type = RP_FRAME_DELIVER;
	h.handle = 0x02000007;
	assert_int_equal(rp_frame_shard(&h, 3), 2);
	assert_int_equal(rp_frame_shard(&h, 2), -EINVAL);
	for (unsigned type = 0; type < 256; type++) {
		h.type = (uint8_t)type;
		h.handle = 0;
		if (type < RP_FRAME_OPEN ||
			(type > RP_FRAME_RESUME && type != RP_FRAME_CANCEL &&
				type != RP_FRAME_CLAIM && type != RP_FRAME_HANDOVER))
			assert_int_equal(rp_frame_shard(&h, 1), -EINVAL);
		else
			assert_int_equal(rp_frame_shard(&h, 1), 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(header_golden),
		cmocka_unit_test(every_frame_has_its_shard),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
