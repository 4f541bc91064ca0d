/* SPDX-License-Identifier: Apache-2.0 */

/* Calls: a client against a server in one process. */

#include "client_fixture.h"

static void test_unary(void **state)
{
	static const size_t sizes[] = {0, 1, 5, 16379, 16384, 100000, 2u << 20};
	struct rp_grpc_header token = {"token", "secret"};
	uint8_t *data = malloc(2u << 20);

	for (size_t i = 0; i < 2u << 20; i++)
		data[i] = (uint8_t)(i * 131 >> 4);
	start();
	for (size_t i = 0; i < RP_ARRAY_SIZE(sizes); i++) {
		unary("/t.S/Echo", data, sizes[i]);
		assert_int_equal(got.code, RP_GRPC_OK);
		assert_int_equal(got.length, sizes[i]);
		assert_true(sizes[i] == 0 || memcmp(got.data, data, sizes[i]) == 0);
	}
	got.finished = 0;
	rp_grpc_channel_unary(channel, "/t.S/Echo", &token, 1, RP_NEVER, "x", 1, on_done, NULL);
	turn_until(is_finished);
	assert_string_equal(seen.text, "secret");
	free(data);
	assert_int_equal(rp_grpc_server_stats(server).in_bytes_held, 0);
	assert_int_equal(rp_grpc_channel_queued_bytes(channel), 0);
	assert_true(rp_grpc_channel_heard_ns(channel) > 0);
}

static void test_errors(void **state)
{
	uint8_t *data = calloc(1, (2u << 20) + 1);

	start();
	unary("/t.S/Fail", "x", 1);
	expect(RP_GRPC_OUT_OF_RANGE, "50% of \"\xc3\xa4\"\n");
	unary("/t.S/Nope", "x", 1);
	expect(RP_GRPC_UNIMPLEMENTED, "unknown method Nope for service t.S");
	unary("/t.X/Nope", "x", 1);
	expect(RP_GRPC_UNIMPLEMENTED, "unknown service t.X");
	unary("/nothing", "x", 1);
	expect(RP_GRPC_UNIMPLEMENTED, "malformed method name: \"/nothing\"");
	unary("/t.S/Echo", data, (2u << 20) + 1);
	expect(RP_GRPC_RESOURCE_EXHAUSTED,
		"grpc: received message larger than max (2097153 vs. 2097152)");
	unary("/t.S/Echo", data, 2u << 20);
	assert_int_equal(got.code, RP_GRPC_OK);
	free(data);
}

static void test_small_limit(void **state)
{
	struct rp_grpc_client_call *call;
	uint8_t data[1001] = {0};

	start();
	call = bidi("/t.S/Small");
	assert_int_equal(rp_grpc_client_call_send(call, data, 1000), 0);
	assert_int_equal(rp_grpc_client_call_send(call, data, 1001), 0);
	turn_until(is_finished);
	assert_int_equal(seen.messages, 1);
	expect(RP_GRPC_RESOURCE_EXHAUSTED,
		"grpc: received message larger than max (1001 vs. 1000)");
	assert_int_equal(seen.why, RP_GRPC_CANCEL_REFUSED);
	assert_int_equal(rp_grpc_server_stats(server).calls_refused_size, 1);
}

/* An answer that is too large for the client. */
static void test_answer_limit(void **state)
{
	uint8_t data[2000] = {0};

	channel_config.message_bytes_max = 1999;
	start();
	unary("/t.S/Echo", data, 2000);
	expect(RP_GRPC_RESOURCE_EXHAUSTED,
		"grpc: received message larger than max (2000 vs. 1999)");
	unary("/t.S/Echo", data, 1999);
	assert_int_equal(got.code, RP_GRPC_OK);
}

static void test_late_answer(void **state)
{
	start();
	rp_grpc_channel_unary(channel, "/t.S/Unary", NULL, 0, RP_NEVER, "ask", 3, on_done, NULL);
	turn_until(is_started);
	turns(5);
	assert_int_equal(got.finished, 0);
	assert_int_equal(seen.messages, 1);
	assert_true(rp_grpc_call_deadline_ns(seen.call) == RP_NEVER);
	rp_grpc_call_set_user(seen.call, &got);
	assert_ptr_equal(rp_grpc_call_user(seen.call), &got);
	rp_grpc_call_reply(seen.call, "late", 4);
	turn_until(is_finished);
	assert_int_equal(got.code, RP_GRPC_OK);
	assert_memory_equal(got.data, "late", 4);
	assert_int_equal(seen.cancels, 0);
	/* Without a message an OK is no answer. */
	got.finished = seen.starts = 0;
	rp_grpc_channel_unary(channel, "/t.S/Unary", NULL, 0, RP_NEVER, "ask", 3, on_done, NULL);
	turn_until(is_started);
	rp_grpc_call_finish(seen.call, RP_GRPC_OK, NULL);
	turn_until(is_finished);
	expect(RP_GRPC_INTERNAL, "grpc: the server sent no message");
}

static void test_deadline(void **state)
{
	start();
	rp_grpc_channel_unary(channel, "/t.S/Unary", NULL, 0,
		rp_loop_now_ns(loop) + 30 * RP_NS_PER_MS, "ask", 3, on_done, NULL);
	turn_until(is_finished);
	expect(RP_GRPC_DEADLINE_EXCEEDED, "context deadline exceeded");
	turn_until(is_cancelled);
	assert_true(seen.why == RP_GRPC_CANCEL_DEADLINE || seen.why == RP_GRPC_CANCEL_RESET);
	assert_int_equal(seen.cancels, 1);
	unary("/t.S/Echo", "x", 1);
	assert_int_equal(got.code, RP_GRPC_OK);
}

static void test_cancel(void **state)
{
	struct rp_grpc_client_call *call;

	start();
	call = bidi("/t.S/Bidi");
	rp_grpc_client_call_cancel(call);
	turn_until(is_cancelled);
	assert_int_equal(seen.why, RP_GRPC_CANCEL_RESET);
	/* Before the request has left. */
	call = rp_grpc_channel_call(channel, "/t.S/Bidi", NULL, 0, RP_NEVER, &client_ops, NULL);
	rp_grpc_client_call_cancel(call);
	unary("/t.S/Echo", "x", 1);
	assert_int_equal(got.finished, 1);
	assert_int_equal(rp_grpc_server_stats(server).calls_open, 0);
}

static void test_bidi(void **state)
{
	struct rp_grpc_client_call *call;

	start();
	call = bidi("/t.S/Bidi");
	for (int i = 0; i < 100; i++)
		assert_int_equal(rp_grpc_client_call_send(call, "12345", 5), 0);
	rp_grpc_client_call_half_close(call);
	assert_int_equal(rp_grpc_client_call_send(call, "x", 1), -EPIPE);
	turn_until(is_half_closed);
	assert_int_equal(seen.messages, 100);
	assert_int_equal(seen.bytes, 500);
	for (uint64_t i = 1; i <= 100; i++)
		assert_int_equal(rp_grpc_call_send(seen.call, "1234567", 7, i), 0);
	turns(5);
	assert_int_equal(seen.written, 100);
	assert_int_equal(got.messages, 100);
	assert_int_equal(got.bytes, 700);
	rp_grpc_call_finish(seen.call, RP_GRPC_ABORTED, "enough");
	turn_until(is_finished);
	expect(RP_GRPC_ABORTED, "enough");
}

/* Many messages of one turn leave in one write. */
static void test_batch(void **state)
{
	uint64_t writes;

	start();
	(void)bidi("/t.S/Bidi");
	turns(3);
	writes = rp_grpc_server_stats(server).socket_writes;
	for (uint64_t i = 1; i <= 1000; i++)
		assert_int_equal(rp_grpc_call_send(seen.call, "12345678901234567890", 20, i), 0);
	rp_loop_run_once(loop, 0);
	assert_int_equal(seen.written, 1000);
	turns(3);
	assert_int_equal(got.messages, 1000);
	/* One for the batch, one for a SETTINGS or a WINDOW_UPDATE at most. */
	assert_true(rp_grpc_server_stats(server).socket_writes - writes <= 2);
}

/* Server ends while the client still sends: it is told, and the stream goes. */
static void test_early_end(void **state)
{
	struct rp_grpc_client_call *call;

	start();
	call = bidi("/t.S/Bidi");
	rp_grpc_client_call_send(call, "x", 1);
	rp_grpc_call_finish(seen.call, RP_GRPC_NOT_FOUND, "gone");
	turn_until(is_finished);
	expect(RP_GRPC_NOT_FOUND, "gone");
	turns(5);
	assert_int_equal(rp_grpc_server_stats(server).calls_open, 0);
}

/* Room and acceptance: what fits is written at once; a reader that stops makes it not fit. */
static void test_room(void **state)
{
	struct rp_grpc_client_call *call;
	static uint8_t data[10000];
	uint64_t sent = 0;
	unsigned before;

	start();
	call = bidi("/t.S/Bidi");
	turns(3);
	assert_true(rp_grpc_call_room(seen.call) > 100000);
	rp_grpc_client_call_pause_reading(call);
	for (int i = 0; i < 2000 && seen.rooms == 0; i++) {
		while (rp_grpc_call_fits(seen.call, sizeof(data))) {
			assert_int_equal(
				rp_grpc_call_send(seen.call, data, sizeof(data), ++sent), 0);
			before = rp_grpc_call_queued_bytes(seen.call);
			assert_true(before <= 300000);
		}
		turns(1);
		if (seen.rooms > 0)
			seen.rooms = 0;
		if (seen.written == sent && !rp_grpc_call_fits(seen.call, sizeof(data)))
			break;
	}
	/* All that fitted is written though nobody reads; the client holds one window of it. */
	assert_int_equal(seen.written, sent);
	assert_true(sent * sizeof(data) <= (1u << 20));
	assert_true(sent * sizeof(data) > (1u << 20) - 3 * sizeof(data));
	assert_int_equal(got.messages, 0);
	turns(20);
	assert_int_equal(seen.rooms, 0);
	assert_false(rp_grpc_call_fits(seen.call, sizeof(data)));
	rp_grpc_client_call_resume_reading(call);
	turns(20);
	assert_int_equal(got.messages, sent);
	assert_int_equal(seen.rooms, 1);
	assert_true(rp_grpc_call_fits(seen.call, sizeof(data)));
	/* A message larger than the whole window fits when half of the window is free. */
	assert_true(rp_grpc_call_fits(seen.call, 10u << 20));
}

/* One stream that is not read takes nothing from the others of its connection. */
static void test_room_of_others(void **state)
{
	struct rp_grpc_client_call *call;
	struct rp_grpc_call *stuck;
	static uint8_t data[100000];

	start();
	call = bidi("/t.S/Bidi");
	stuck = seen.call;
	rp_grpc_client_call_pause_reading(call);
	while (rp_grpc_call_send(stuck, data, sizeof(data), 0) == 0)
		;
	assert_true(rp_grpc_call_queued_bytes(stuck) <= server_config.limits.call_out_bytes);
	turns(20);
	assert_int_equal(rp_grpc_call_room(stuck), 0);
	seen.starts = 0;
	(void)bidi("/t.S/Bidi");
	turns(5);
	assert_true(rp_grpc_call_room(seen.call) > 100000);
	rp_grpc_client_call_cancel(call);
	turn_until(is_cancelled);
	assert_int_equal(rp_grpc_server_stats(server).out_bytes_held, 0);
}

static void test_out_bounds(void **state)
{
	static uint8_t data[100000];
	int n = 0;

	server_config.limits.call_out_bytes = 1u << 20;
	start();
	(void)bidi("/t.S/Bidi");
	while (rp_grpc_call_send(seen.call, data, sizeof(data), 0) == 0)
		n++;
	assert_int_equal(n, 10);
	assert_int_equal(rp_grpc_call_send(seen.call, data, sizeof(data), 0), -ENOBUFS);
	turns(20);
	/* What is over any limit is taken when nothing else waits. */
	uint8_t *large = calloc(1, 3u << 20);
	assert_int_equal(rp_grpc_call_send_take(seen.call, large, 3u << 20, 0), 0);
	assert_int_equal(rp_grpc_call_send_take(seen.call, calloc(1, 10), 10, 0), -ENOBUFS);
	turns(50);
	assert_int_equal(got.messages, 11);
	assert_int_equal(got.bytes, 10 * sizeof(data) + (3u << 20));
}

/* A server that reads no more: the client's sends are bounded, nothing is lost when it goes on. */
static void test_pause(void **state)
{
	struct rp_grpc_client_call *call;
	static uint8_t data[100000];
	unsigned n = 0;

	channel_config.out_bytes_max = 1u << 20;
	start();
	call = bidi("/t.S/Bidi");
	rp_grpc_call_pause_reading(seen.call);
	for (int i = 0; i < 200; i++) {
		if (rp_grpc_client_call_send(call, data, sizeof(data)) == 0)
			n++;
		turns(1);
	}
	/* One window at the server, out_bytes_max here. */
	assert_true(n >= 19 && n <= 22);
	assert_int_equal(seen.messages, 0);
	assert_true(rp_grpc_server_stats(server).in_bytes_held <= 1u << 20);
	assert_false(rp_grpc_client_call_fits(call, 1));
	unary("/t.S/Echo", "others", 6);
	rp_grpc_client_call_half_close(call);
	rp_grpc_call_resume_reading(seen.call);
	turn_until(is_half_closed);
	assert_int_equal(seen.messages, n);
	assert_int_equal(seen.bytes, n * sizeof(data));
	assert_int_equal(rp_grpc_server_stats(server).in_bytes_held, 0);
	turns(3);
	assert_int_equal(got.rooms, 0); /* half-closed: nothing to tell */
}

/* Messages one by one, by a pause in each. */
static void stepping_message(
	struct rp_grpc_call *call, const uint8_t *data, size_t length, void *ctx)
{
	seen.messages++;
	assert_int_equal(data[0], (uint8_t)seen.messages);
	rp_grpc_call_pause_reading(call);
	if (seen.messages % 2)
		rp_grpc_call_resume_reading(call);
}

static const struct rp_grpc_call_ops stepping_ops = {.on_start = manual_start,
	.on_message = stepping_message,
	.on_half_close = manual_half_close};
static const struct rp_grpc_method stepping[] = {
	{"/t.S/Step", RP_GRPC_CLIENT_STREAM, &stepping_ops, &seen}};

static void test_pause_steps(void **state)
{
	struct rp_grpc_client_call *call;
	uint8_t data[300] = {0};

	start();
	assert_int_equal(rp_grpc_server_add_methods(server, stepping, 1), 0);
	call = bidi("/t.S/Step");
	for (int i = 1; i <= 20; i++) {
		data[0] = (uint8_t)i;
		assert_int_equal(rp_grpc_client_call_send(call, data, sizeof(data)), 0);
	}
	rp_grpc_client_call_half_close(call);
	for (unsigned i = 2; i <= 20; i += 2) {
		turns(5);
		assert_int_equal(seen.messages, i);
		assert_int_equal(seen.half_closes, 0);
		rp_grpc_call_resume_reading(seen.call);
	}
	turn_until(is_half_closed);
	rp_grpc_call_reply(seen.call, "ok", 2);
	turn_until(is_finished);
	assert_int_equal(got.code, RP_GRPC_OK);
}

/* The stream is over on the wire, and the client still holds messages. */
static void test_detached(void **state)
{
	struct rp_grpc_client_call *call;

	start();
	call = bidi("/t.S/Bidi");
	rp_grpc_client_call_pause_reading(call);
	rp_grpc_client_call_half_close(call);
	turn_until(is_half_closed);
	for (int i = 0; i < 10; i++)
		rp_grpc_call_send(seen.call, "held", 4, 0);
	rp_grpc_call_finish(seen.call, RP_GRPC_ABORTED, "over");
	turns(20);
	assert_int_equal(got.messages, 0);
	assert_int_equal(got.finished, 0);
	rp_grpc_client_call_resume_reading(call);
	turn_until(is_finished);
	assert_int_equal(got.messages, 10);
	expect(RP_GRPC_ABORTED, "over");
	/* The same, cancelled in place of read. */
	seen.starts = seen.half_closes = 0;
	call = bidi("/t.S/Bidi");
	rp_grpc_client_call_pause_reading(call);
	rp_grpc_client_call_half_close(call);
	turn_until(is_half_closed);
	rp_grpc_call_send(seen.call, "held", 4, 0);
	rp_grpc_call_finish(seen.call, RP_GRPC_OK, NULL);
	turns(20);
	rp_grpc_client_call_cancel(call);
	turns(5);
	assert_int_equal(got.finished, 1);
}

/* A thousand calls at once, and as many again that wait for the stream limit. */
static unsigned many_ok;

static void many_done(
	void *ctx, enum rp_grpc_code code, const char *message, const uint8_t *data, size_t length)
{
	many_ok += code == RP_GRPC_OK && length == 4;
}

static bool is_many(void)
{
	return many_ok == 2000;
}

static void test_many(void **state)
{
	server_config.limits.streams = 1000;
	start();
	many_ok = 0;
	for (int i = 0; i < 2000; i++)
		rp_grpc_channel_unary(
			channel, "/t.S/Echo", NULL, 0, RP_NEVER, "many", 4, many_done, NULL);
	turn_until(is_many);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(test_unary),
		T(test_errors),
		T(test_small_limit),
		T(test_answer_limit),
		T(test_late_answer),
		T(test_deadline),
		T(test_cancel),
		T(test_bidi),
		T(test_batch),
		T(test_early_end),
		T(test_room),
		T(test_room_of_others),
		T(test_out_bounds),
		T(test_pause),
		T(test_pause_steps),
		T(test_detached),
		T(test_many),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
