/* SPDX-License-Identifier: Apache-2.0 */
#include "codec_priv.h"
#include "world.h"

/* Frames that a peer must not send, against node B; each is named and counted. */

static uint32_t remote; /* B's handle of the stream that was opened */

static void feed(uint8_t type, uint8_t flags, uint16_t fields, uint32_t handle, const void *body,
	uint32_t length)
{
	uint8_t bytes[2048];
	const struct rp_frame_header h = {
		.type = type, .flags = flags, .fields = fields, .handle = handle, .length = length};

	rp_frame_header_write(&h, bytes);
	memcpy(bytes + RP_FRAME_HEADER_BYTES, body, length);
	rp_deliver_on_frame(tnodes[1].d[0], 100,
		rp_mbuf_from(pool, bytes, RP_FRAME_HEADER_BYTES + length), now);
}

static void open_stream(void)
{
	struct rp_deliver_config c = world_config();
	const struct flow_model *f = &tnodes[0].flows[0];
	uint8_t body[64], bytes[64];
	struct rp_frame_header h;
	uint32_t n;

	c.window_messages = 4;
	c.window_bytes = 1000;
	c.message_bytes_max = 4000;
	world_start(&c, 1, 1);
	world_up();
	n = dl_open_write(
		&(struct dl_open){
			.kind = RP_FRAME_FORWARD,
			.handle = 5,
			.name = (const uint8_t *)f->name,
			.name_length = (uint8_t)strlen(f->name),
		},
		body);
	feed(RP_FRAME_OPEN, 0, 0, f->hash, body, n);
	rp_deliver_poll(tnodes[1].d[0], now);
	assert_int_equal(tnodes[1].out.tail - tnodes[1].out.head, 1);
	rp_mbuf_copy_out(tnodes[1].out.frames[0], 0, bytes, sizeof(bytes));
	rp_frame_header_read(&h, bytes);
	assert_int_equal(h.type, RP_FRAME_OPENED);
	assert_int_equal(h.handle, 5);
	memcpy(&remote, bytes + RP_FRAME_HEADER_BYTES, 4);
	assert_int_equal(tnodes[1].violations, 0);
}

static void expect(enum rp_deliver_violation why)
{
	assert_int_equal(tnodes[1].violations, 1);
	assert_int_equal(tnodes[1].why, why);
	assert_int_equal(rp_deliver_counters(tnodes[1].d[0])->violations[why], 1);
	world_down();
	failures = 0; /* messages of no known sequence */
	world_end();
}

static const uint8_t zeros[2000];
static const uint8_t total_100[] = {100, 0, 0, 0};

static void streams(void **state)
{
	const uint8_t took[] = {1, 0, 0, 0};
	uint8_t big[1100] = {0x10, 0x0e};

	open_stream();
	feed(RP_FRAME_FORWARD, 0, 0, remote + 1, zeros, 0);
	expect(RP_DELIVER_VIOLATION_HANDLE);
	open_stream();
	feed(RP_FRAME_DELIVER, 0, 0, remote, zeros, 0);
	expect(RP_DELIVER_VIOLATION_HANDLE);
	open_stream();
	feed(RP_FRAME_TOOK, 0, 0, 5, took, 4);
	expect(RP_DELIVER_VIOLATION_HANDLE);
	open_stream();
	feed(RP_FRAME_FORWARD, RP_FRAME_CONT, 0, remote, zeros, 10);
	expect(RP_DELIVER_VIOLATION_ORDER);
	open_stream();
	feed(RP_FRAME_FORWARD, RP_FRAME_MORE, DL_FIELD_TOTAL, remote, total_100, 4);
	assert_int_equal(tnodes[1].violations, 0);
	feed(RP_FRAME_FORWARD, 0, 0, remote, zeros, 0);
	expect(RP_DELIVER_VIOLATION_ORDER);
	open_stream();
	feed(RP_FRAME_FORWARD, RP_FRAME_MORE, DL_FIELD_TOTAL, remote, total_100, 4);
	feed(RP_FRAME_FORWARD, RP_FRAME_CONT, 0, remote, zeros, 101);
	expect(RP_DELIVER_VIOLATION_LENGTH);
	open_stream();
	feed(RP_FRAME_FORWARD, RP_FRAME_MORE, DL_FIELD_TOTAL, remote, total_100, 4);
	feed(RP_FRAME_FORWARD, RP_FRAME_CONT, 0, remote, zeros, 99);
	expect(RP_DELIVER_VIOLATION_LENGTH);
	open_stream();
	feed(RP_FRAME_FORWARD, 0, 0, remote, zeros, 5);
	expect(RP_DELIVER_VIOLATION_LENGTH);
	open_stream();
	feed(RP_FRAME_FORWARD, 0, 0x8000, remote, zeros, 5);
	expect(RP_DELIVER_VIOLATION_FIELDS);
	open_stream();
	feed(RP_FRAME_FORWARD, RP_FRAME_MORE, DL_FIELD_TOTAL, remote, big, 1005);
	expect(RP_DELIVER_VIOLATION_CREDIT);
	open_stream();
	tnodes[1].hold_queue = 0;
	for (int i = 0; i < 4; i++)
		feed(RP_FRAME_FORWARD, 0, 0, remote, zeros, 0);
	assert_int_equal(tnodes[1].violations, 0);
	feed(RP_FRAME_FORWARD, 0, 0, remote, zeros, 0);
	expect(RP_DELIVER_VIOLATION_CREDIT);
	open_stream();
	feed(RP_FRAME_FORWARD, RP_FRAME_MORE, DL_FIELD_TOTAL, remote, total_100, 4);
	feed(RP_FRAME_CLOSE, 0, 0, remote, zeros, 0);
	expect(RP_DELIVER_VIOLATION_ORDER);
	open_stream();
	feed(RP_FRAME_CLOSE, 0, 0, remote, zeros, 1);
	expect(RP_DELIVER_VIOLATION_FIELDS);
}

static void everything_else(void **state)
{
	const uint8_t took[] = {9, 0, 0, 0, 1, 0, 1, 0}, shard[] = {9, 0, 0, 0, 1, 1, 1, 0};
	const uint8_t link[] = {9, 0, 0, 0, 1, 0, 2, 2};
	const uint8_t name[] = {2, 'a', 'b'};
	const uint8_t numbered[] = {0, 1, 0, 0, 0, 2, 'a', 'b'};
	const uint8_t foreign[] = {200, 1, 0, 0, 0, 2, 'a', 'b'};
	const uint32_t hash = rp_queue_hash("ab", 2);

	open_stream();
	feed(RP_FRAME_BATCH, 0, 0, 0, zeros, 0);
	expect(RP_DELIVER_VIOLATION_TYPE);
	open_stream();
	feed(0, 0, 0, 0, zeros, 0);
	expect(RP_DELIVER_VIOLATION_TYPE);
	open_stream();
	feed(RP_FRAME_TOOK, 0, 0, 1 << 24, zeros, 4);
	expect(RP_DELIVER_VIOLATION_ROUTE);
	open_stream();
	feed(RP_FRAME_TOOK, 0, 0, DL_SLOT_CONTROL, took, 8);
	expect(RP_DELIVER_VIOLATION_SEQUENCE);
	open_stream();
	feed(RP_FRAME_TOOK, 0, 0, DL_SLOT_CONTROL, shard, 8);
	expect(RP_DELIVER_VIOLATION_FIELDS);
	open_stream();
	feed(RP_FRAME_TOOK, 0, 0, DL_SLOT_CONTROL, link, 8);
	expect(RP_DELIVER_VIOLATION_FIELDS);
	open_stream();
	feed(RP_FRAME_OPEN, 0, 0, 1, zeros, 8);
	expect(RP_DELIVER_VIOLATION_FIELDS);
	open_stream();
	feed(RP_FRAME_QACK, 0, DL_FIELD_NAME, hash, name, sizeof(name));
	expect(RP_DELIVER_VIOLATION_FIELDS);
	open_stream();
	feed(RP_FRAME_QACK, 0, DL_FIELD_NAME | DL_FIELD_SEQ, hash, numbered, sizeof(numbered));
	assert_int_equal(tnodes[1].violations, 0);
	feed(RP_FRAME_QACK, 0, DL_FIELD_NAME | DL_FIELD_SEQ, hash + 1, numbered, sizeof(numbered));
	expect(RP_DELIVER_VIOLATION_FIELDS);
	open_stream();
	feed(RP_FRAME_QACK, 0, DL_FIELD_NAME | DL_FIELD_SEQ, hash, foreign, sizeof(foreign));
	expect(RP_DELIVER_VIOLATION_FIELDS);
	open_stream();
	feed(RP_FRAME_REPLY, RP_FRAME_CONT, 0, hash, zeros, 5);
	expect(RP_DELIVER_VIOLATION_ORDER);
}

static void random_frames_are_survived(void **state)
{
	struct rp_rand r = {seed};
	uint8_t body[300];

	for (int i = 0; i < 3000; i++) {
		open_stream();
		for (int k = 0; k < 20 && tnodes[1].violations == 0; k++) {
			for (size_t j = 0; j < sizeof(body); j++)
				body[j] = rp_rand_below(&r, 3) ? 0 : (uint8_t)rp_rand_u64(&r);
			feed((uint8_t)rp_rand_below(&r, 20), (uint8_t)rp_rand_u64(&r) & 0xf0,
				(uint16_t)rp_rand_below(&r, 1 << 13),
				rp_rand_below(&r, 2) ? remote : tnodes[0].flows[0].hash, body,
				(uint32_t)rp_rand_below(&r, sizeof(body)));
			rp_deliver_poll(tnodes[1].d[0], now);
		}
		world_down();
		failures = 0;
		world_end();
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(streams),
		cmocka_unit_test(everything_else),
		cmocka_unit_test(random_frames_are_survived),
	};

	if (world_setup(argc, argv) < 0)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
