/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Client against server in one process and one loop, over a socket pair or loopback.
 */

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include <grpc/client.h>
#include <grpc/server.h>
#include <tls/tls.h>

#include "../tls/test_certs.h"

static struct rp_loop *loop;
static struct rp_grpc_server *server;
static struct rp_grpc_channel *channel;

/* What the server's side saw. */
static struct {
	struct rp_grpc_call *call; /* the last that the manual methods got */
	unsigned starts, messages, half_closes, cancels, rooms, conns_closed;
	enum rp_grpc_cancel why;
	size_t bytes;
	uint64_t written;
	char text[256];
} seen;

/* What the client's side saw. */
static struct {
	enum rp_grpc_channel_state state;
	unsigned states;
	char reason[200];
	unsigned finished, messages, rooms;
	enum rp_grpc_code code;
	char message[256];
	uint8_t *data;
	size_t length, bytes;
} got;

static void turn_until(bool (*cond)(void))
{
	for (int i = 0; i < 20000 && !cond(); i++)
		assert_true(rp_loop_run_once(loop, 10 * RP_NS_PER_MS) >= 0);
	assert_true(cond());
}

static void turns(int n)
{
	for (int i = 0; i < n; i++)
		assert_true(rp_loop_run_once(loop, RP_NS_PER_MS) >= 0);
}

#define UNTIL(name, expr)      \
	static bool name(void) \
	{                      \
		return expr;   \
	}
UNTIL(is_ready, got.state == RP_GRPC_CHANNEL_READY)
UNTIL(is_lost, got.state == RP_GRPC_CHANNEL_LOST)
UNTIL(is_finished, got.finished > 0)
UNTIL(is_started, seen.starts > 0)
UNTIL(is_cancelled, seen.cancels > 0)
UNTIL(is_half_closed, seen.half_closes > 0)

/* Server methods. */

static void on_conn_close(void *user)
{
	seen.conns_closed++;
}

static void echo_message(struct rp_grpc_call *call, const uint8_t *data, size_t length, void *ctx)
{
	const char *token = rp_grpc_call_metadata(call, "token", NULL);

	snprintf(seen.text, sizeof(seen.text), "%s", token ? token : "");
	rp_grpc_conn_set_user(rp_grpc_call_conn(call), &seen, on_conn_close);
	rp_grpc_call_reply(call, data, length);
}

static void fail_message(struct rp_grpc_call *call, const uint8_t *data, size_t length, void *ctx)
{
	rp_grpc_call_finish(call, RP_GRPC_OUT_OF_RANGE, "50% of \"\xc3\xa4\"\n");
}

static void manual_start(struct rp_grpc_call *call, void *ctx)
{
	seen.starts++;
	seen.call = call;
	assert_ptr_equal(ctx, &seen);
}

static void manual_message(struct rp_grpc_call *call, const uint8_t *data, size_t length, void *ctx)
{
	seen.messages++;
	seen.bytes += length;
}

static void manual_half_close(struct rp_grpc_call *call, void *ctx)
{
	seen.half_closes++;
}

static void manual_cancel(struct rp_grpc_call *call, enum rp_grpc_cancel why, void *ctx)
{
	seen.cancels++;
	seen.why = why;
	seen.call = NULL;
}

static void manual_room(struct rp_grpc_call *call, void *ctx)
{
	seen.rooms++;
}

static void manual_written(struct rp_grpc_call *call, uint64_t cookie, void *ctx)
{
	assert_int_equal(cookie, seen.written + 1); /* in order, each once */
	seen.written = cookie;
}

static const struct rp_grpc_call_ops echo_ops = {.on_message = echo_message};
static const struct rp_grpc_call_ops fail_ops = {.on_message = fail_message};
static const struct rp_grpc_call_ops manual_ops = {
	.on_start = manual_start,
	.on_message = manual_message,
	.on_half_close = manual_half_close,
	.on_cancel = manual_cancel,
	.on_room = manual_room,
	.on_written = manual_written,
};
static const struct rp_grpc_method methods[] = {
	{"/t.S/Echo", RP_GRPC_UNARY, &echo_ops},
	{"/t.S/Fail", RP_GRPC_UNARY, &fail_ops},
	{"/t.S/Unary", RP_GRPC_UNARY, &manual_ops, &seen},
	{"/t.S/Bidi", RP_GRPC_BIDI, &manual_ops, &seen},
	{"/t.S/Small", RP_GRPC_BIDI, &manual_ops, &seen, 1000},
};

/* Client callbacks. */

static void on_state(
	struct rp_grpc_channel *c, enum rp_grpc_channel_state state, const char *reason, void *ctx)
{
	got.state = state;
	got.states++;
	snprintf(got.reason, sizeof(got.reason), "%s", reason);
	assert_int_equal(rp_grpc_channel_state(c), state);
}

static void keep(enum rp_grpc_code code, const char *message)
{
	got.finished++;
	got.code = code;
	snprintf(got.message, sizeof(got.message), "%s", message);
}

static void on_done(
	void *ctx, enum rp_grpc_code code, const char *message, const uint8_t *data, size_t length)
{
	keep(code, message);
	free(got.data);
	got.data = NULL;
	got.length = length;
	assert_true(code == RP_GRPC_OK || length == 0);
	if (length > 0) {
		got.data = malloc(length);
		memcpy(got.data, data, length);
	}
}

static void on_message(
	struct rp_grpc_client_call *call, const uint8_t *data, size_t length, void *ctx)
{
	got.messages++;
	got.bytes += length;
}

static void on_client_room(struct rp_grpc_client_call *call, void *ctx)
{
	got.rooms++;
}

static void on_finish(
	struct rp_grpc_client_call *call, enum rp_grpc_code code, const char *message, void *ctx)
{
	keep(code, message);
}

static const struct rp_grpc_client_ops client_ops = {
	.on_message = on_message, .on_room = on_client_room, .on_finish = on_finish};

/* Set-up. */

static struct rp_grpc_server_config server_config;
static struct rp_grpc_channel_config channel_config;

static int setup(void **state)
{
	memset(&seen, 0, sizeof(seen));
	memset(&got, 0, sizeof(got));
	loop = rp_loop_new();
	server_config = rp_grpc_server_config_default();
	channel_config = rp_grpc_channel_config_default();
	channel_config.on_state = on_state;
	return loop ? 0 : -1;
}

static void start_server(void)
{
	server = rp_grpc_server_new(loop, &server_config);
	assert_non_null(server);
	assert_int_equal(rp_grpc_server_add_methods(server, methods, RP_ARRAY_SIZE(methods)), 0);
}

static void start(void)
{
	int fds[2];

	start_server();
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
	assert_int_equal(rp_grpc_server_attach(server, fds[0], NULL), 0);
	channel = rp_grpc_channel_new(loop, "test:1", &channel_config);
	assert_non_null(channel);
	assert_int_equal(rp_grpc_channel_attach(channel, fds[1]), 0);
	turn_until(is_ready);
}

static int teardown(void **state)
{
	rp_grpc_channel_destroy(channel);
	channel = NULL;
	rp_grpc_server_destroy(server);
	server = NULL;
	rp_loop_destroy(loop);
	free(got.data);
	got.data = NULL;
	return 0;
}

static void unary(const char *path, const void *data, size_t length)
{
	got.finished = 0;
	assert_non_null(rp_grpc_channel_unary(
		channel, path, NULL, 0, RP_NEVER, data, length, on_done, NULL));
	assert_int_equal(got.finished, 0);
	turn_until(is_finished);
	assert_int_equal(got.finished, 1);
}

static void expect(enum rp_grpc_code code, const char *message)
{
	assert_int_equal(got.code, code);
	assert_string_equal(got.message, message);
}

static struct rp_grpc_client_call *bidi(const char *path)
{
	struct rp_grpc_client_call *call =
		rp_grpc_channel_call(channel, path, NULL, 0, RP_NEVER, &client_ops, NULL);

	assert_non_null(call);
	turn_until(is_started);
	return call;
}

/* Tests. */

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

static void test_lost(void **state)
{
	struct rp_grpc_client_call *call;

	start();
	unary("/t.S/Echo", "x", 1);
	call = bidi("/t.S/Bidi");
	got.finished = 0;
	rp_grpc_conn_close(rp_grpc_call_conn(seen.call));
	turn_until(is_lost);
	assert_int_equal(seen.why, RP_GRPC_CANCEL_LOST);
	assert_int_equal(seen.conns_closed, 1);
	assert_int_equal(got.finished, 1);
	assert_int_equal(got.code, RP_GRPC_UNAVAILABLE);
	(void)call;
	/* Calls without a connection fail, but not within the call. */
	unary("/t.S/Echo", "x", 1);
	assert_int_equal(got.code, RP_GRPC_UNAVAILABLE);
	got.finished = 0;
	call = rp_grpc_channel_call(channel, "/t.S/Bidi", NULL, 0, RP_NEVER, &client_ops, NULL);
	assert_int_equal(rp_grpc_client_call_send(call, "x", 1), -EPIPE);
	turn_until(is_finished);
	assert_int_equal(got.code, RP_GRPC_UNAVAILABLE);
	call = rp_grpc_channel_call(channel, "/t.S/Bidi", NULL, 0, RP_NEVER, &client_ops, NULL);
	rp_grpc_client_call_cancel(call);
	turns(3);
}

/* A peer that takes bytes and says nothing is dead within interval + timeout. */
static void test_keepalive(void **state)
{
	uint64_t before;
	int fds[2];

	channel_config.ping_interval_ns = 40 * RP_NS_PER_MS;
	channel_config.ping_timeout_ns = 30 * RP_NS_PER_MS;
	server_config.client_ping_min_ns = 0;
	start();
	for (uint64_t end = rp_loop_now_ns(loop) + 300 * RP_NS_PER_MS; rp_loop_now_ns(loop) < end;)
		turns(1);
	assert_int_equal(got.state, RP_GRPC_CHANNEL_READY); /* pings are answered */
	rp_grpc_channel_disconnect(channel);
	assert_int_equal(rp_grpc_channel_state(channel), RP_GRPC_CHANNEL_IDLE);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
	assert_int_equal(rp_grpc_channel_attach(channel, fds[0]), 0);
	/* SETTINGS, and then silence. */
	assert_int_equal(write(fds[1], "\0\0\0\4\0\0\0\0\0", 9), 9);
	got.state = RP_GRPC_CHANNEL_IDLE;
	turn_until(is_ready);
	before = rp_loop_now_ns(loop);
	turn_until(is_lost);
	assert_string_equal(got.reason, "keepalive ping not answered");
	assert_true(rp_loop_now_ns(loop) - before >= 60 * RP_NS_PER_MS);
	assert_true(rp_loop_now_ns(loop) - before < 5 * RP_NS_PER_S);
	close(fds[1]);
}

/* A client that pings more often than allowed is sent away, with the reason. */
static void test_too_many_pings(void **state)
{
	channel_config.ping_interval_ns = 20 * RP_NS_PER_MS;
	start();
	turn_until(is_lost);
	assert_string_equal(got.reason, "grpc: the server is going away: too_many_pings");
	assert_int_equal(rp_grpc_server_stats(server).conns_closed_pings, 1);
}

static void test_server_keepalive(void **state)
{
	int fds[2];

	server_config.ping_interval_ns = 30 * RP_NS_PER_MS;
	server_config.ping_timeout_ns = 30 * RP_NS_PER_MS;
	server_config.handshake_timeout_ns = 50 * RP_NS_PER_MS;
	start();
	for (uint64_t end = rp_loop_now_ns(loop) + 200 * RP_NS_PER_MS; rp_loop_now_ns(loop) < end;)
		turns(1);
	assert_int_equal(got.state, RP_GRPC_CHANNEL_READY);
	assert_int_equal(rp_grpc_server_stats(server).conns_open, 1);
	/* One that is silent after its preface, and one from the start. */
	for (int i = 0; i < 2; i++) {
		assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
		assert_int_equal(rp_grpc_server_attach(server, fds[0], NULL), 0);
		if (i == 0)
			assert_int_equal(write(fds[1],
						 "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
						 "\0\0\0\4\0\0\0\0\0",
						 33),
				33);
		for (int j = 0; j < 2000 && rp_grpc_server_stats(server).conns_open > 1; j++)
			turns(1);
		assert_int_equal(
			rp_grpc_server_stats(server).conns_closed_timeout, (unsigned)i + 1);
		close(fds[1]);
	}
}

static void test_connect(void **state)
{
	char address[32];
	uint16_t port;

	start_server();
	assert_int_equal(rp_grpc_server_listen(server, "localhost:0", NULL, &port), 0);
	snprintf(address, sizeof(address), "localhost:%u", port);
	channel = rp_grpc_channel_new(loop, address, &channel_config);
	assert_int_equal(rp_grpc_channel_connect(channel), 0);
	assert_int_equal(rp_grpc_channel_connect(channel), 0);
	turn_until(is_ready);
	unary("/t.S/Echo", "hello", 5);
	assert_int_equal(got.code, RP_GRPC_OK);
	/* The listener's end is not the connection's; a new attempt is refused. */
	rp_grpc_server_close_listeners(server);
	unary("/t.S/Echo", "hello", 5);
	rp_grpc_channel_disconnect(channel);
	assert_int_equal(rp_grpc_channel_connect(channel), 0);
	turn_until(is_lost);
	assert_string_equal(got.reason, strerror(ECONNREFUSED));
	assert_int_equal(rp_grpc_server_listen(server, address, NULL, NULL), 1);
	assert_int_equal(rp_grpc_channel_connect(channel), 0);
	turn_until(is_ready);
	unary("/t.S/Echo", "again", 5);
	assert_int_equal(got.code, RP_GRPC_OK);
}

static void test_resolve(void **state)
{
	channel = rp_grpc_channel_new(loop, "no-such-name.invalid:1", &channel_config);
	assert_int_equal(rp_grpc_channel_connect(channel), 0);
	turn_until(is_lost);
	assert_string_equal(got.reason, "no address for the name");
	/* Given up while the thread is at it. */
	assert_int_equal(rp_grpc_channel_connect(channel), 0);
	turns(1);
	rp_grpc_channel_disconnect(channel);
	turns(3);
	assert_null(rp_grpc_channel_new(loop, "nonsense", &channel_config));
	assert_int_equal(errno, EINVAL);
	assert_null(rp_grpc_channel_new(loop, "a:b:1", &channel_config));
	assert_null(rp_grpc_channel_new(loop, "host:70000", &channel_config));
}

static void test_connect_timeout(void **state)
{
	int fds[2];

	channel_config.connect_timeout_ns = 30 * RP_NS_PER_MS;
	channel = rp_grpc_channel_new(loop, "test:1", &channel_config);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
	assert_int_equal(rp_grpc_channel_attach(channel, fds[0]), 0);
	turn_until(is_lost);
	assert_string_equal(got.reason, "no connection in time");
	close(fds[1]);
}

static void test_drain(void **state)
{
	struct rp_grpc_client_call *call;

	start();
	call = bidi("/t.S/Bidi");
	rp_grpc_server_drain(server, 50 * RP_NS_PER_MS, "etcdserver: server stopped", NULL, NULL);
	rp_grpc_client_call_send(call, "x", 1);
	turn_until(is_finished);
	assert_int_equal(seen.messages, 1);
	expect(RP_GRPC_UNAVAILABLE, "etcdserver: server stopped");
	assert_int_equal(seen.why, RP_GRPC_CANCEL_STOPPED);
	turn_until(is_lost);
	assert_non_null(strstr(got.reason, "going away"));
	for (int i = 0; i < 2000 && rp_grpc_server_stats(server).conns_open > 0; i++)
		turns(1);
	assert_int_equal(rp_grpc_server_stats(server).conns_open, 0);
}

/* Reconnecting, calling, cancelling and destroying from within callbacks. */
static unsigned nested;

static void nested_done(
	void *ctx, enum rp_grpc_code code, const char *message, const uint8_t *data, size_t length)
{
	nested++;
	if (ctx)
		rp_grpc_channel_destroy(channel);
	else if (channel)
		rp_grpc_channel_unary(
			channel, "/t.S/Echo", NULL, 0, RP_NEVER, "y", 1, nested_done, &nested);
	if (ctx)
		channel = NULL;
}

static void test_nested_destroy(void **state)
{
	start();
	for (int i = 0; i < 5; i++)
		rp_grpc_channel_unary(
			channel, "/t.S/Echo", NULL, 0, RP_NEVER, "x", 1, nested_done, NULL);
	for (int i = 0; i < 200 && channel; i++)
		turns(1);
	assert_null(channel);
	assert_int_equal(nested, 10); /* each ended once, the last five by the destroy */
	turns(5);
}

static void destroying_message(
	struct rp_grpc_client_call *call, const uint8_t *data, size_t length, void *ctx)
{
	got.messages++;
	rp_grpc_channel_destroy(channel);
	channel = NULL;
}

static const struct rp_grpc_client_ops destroying_ops = {
	.on_message = destroying_message, .on_finish = on_finish};

static void test_destroy_in_message(void **state)
{
	start();
	rp_grpc_channel_call(channel, "/t.S/Bidi", NULL, 0, RP_NEVER, &destroying_ops, NULL);
	turn_until(is_started);
	for (int i = 0; i < 10; i++)
		rp_grpc_call_send(seen.call, "x", 1, 0);
	turn_until(is_finished);
	assert_int_equal(got.messages, 1);
	assert_int_equal(got.code, RP_GRPC_CANCELLED);
	turn_until(is_cancelled);
}

static void reconnecting_state(
	struct rp_grpc_channel *c, enum rp_grpc_channel_state state, const char *reason, void *ctx)
{
	on_state(c, state, reason, ctx);
	if (state == RP_GRPC_CHANNEL_LOST)
		assert_int_equal(rp_grpc_channel_connect(c), 0);
	if (state == RP_GRPC_CHANNEL_READY)
		rp_grpc_channel_unary(c, "/t.S/Echo", NULL, 0, RP_NEVER, "x", 1, on_done, NULL);
}

static void test_reconnect(void **state)
{
	char address[32];
	uint16_t port;

	channel_config.on_state = reconnecting_state;
	start_server();
	rp_grpc_server_listen(server, "127.0.0.1:0", NULL, &port);
	snprintf(address, sizeof(address), "127.0.0.1:%u", port);
	channel = rp_grpc_channel_new(loop, address, &channel_config);
	rp_grpc_channel_connect(channel);
	for (unsigned i = 1; i <= 5; i++) {
		turn_until(is_finished);
		assert_int_equal(got.code, RP_GRPC_OK);
		got.finished = seen.starts = 0;
		(void)bidi("/t.S/Bidi");
		rp_grpc_conn_close(rp_grpc_call_conn(seen.call));
		turn_until(is_finished);
		assert_int_equal(got.code, RP_GRPC_UNAVAILABLE);
		got.finished = 0;
	}
	turn_until(is_finished);
	assert_int_equal(got.states, 11);
}

static void test_backoff(void **state)
{
	struct rp_rand rand = {3};

	for (unsigned i = 0; i < 1000; i++) {
		uint64_t ns = rp_grpc_backoff_ns(&rand, i % 20, RP_NS_PER_MS, RP_NS_PER_S);

		assert_true(ns >= 800 * RP_NS_PER_US && ns <= 1200 * RP_NS_PER_MS);
		if (i % 20 == 19)
			assert_true(ns >= 800 * RP_NS_PER_MS);
	}
}

/* TLS: the same calls, then certificates that do not do, then a reload. */
static const uint8_t loopback[4] = {127, 0, 0, 1};

static struct rp_tls_config *tls_config(
	bool is_server, const struct test_cert *cert, const struct test_cert *trust)
{
	static const char *const alpn[] = {"h2", "http/1.1", NULL};
	struct rp_tls_params p = {
		.server = is_server,
		.cert = test_span(cert ? cert->cert : ""),
		.key = test_span(cert ? cert->key : ""),
		.ca = test_span(trust ? trust->cert : ""),
		.require_peer_cert = is_server && trust,
		.alpn = alpn,
	};

	return rp_tls_config_new(&p, NULL, 0);
}

static void tls_connect(uint16_t port, struct rp_tls_config *tls)
{
	char address[32];

	rp_grpc_channel_destroy(channel);
	got.state = RP_GRPC_CHANNEL_IDLE;
	channel_config.tls = tls;
	snprintf(address, sizeof(address), "127.0.0.1:%u", port);
	channel = rp_grpc_channel_new(loop, address, &channel_config);
	rp_tls_config_unref(tls);
	assert_int_equal(rp_grpc_channel_connect(channel), 0);
}

static void test_tls(void **state)
{
	struct test_cert ca, first, second, client, stranger;
	struct rp_tls_config *tls;
	static uint8_t data[300000];
	struct rp_grpc_client_call *call;
	uint16_t port;
	int listener;

	test_cert_make(&ca, NULL, "ca", NULL, NULL);
	test_cert_make(&first, &ca, "first", NULL, loopback);
	test_cert_make(&second, &ca, "second", "node.test", NULL);
	test_cert_make(&client, &ca, "someone", NULL, NULL);
	test_cert_make(&stranger, NULL, "stranger", NULL, NULL);
	start_server();
	tls = tls_config(true, &first, &ca);
	listener = rp_grpc_server_listen(server, "127.0.0.1:0", tls, &port);
	rp_tls_config_unref(tls);
	tls_connect(port, tls_config(false, &client, &ca));
	turn_until(is_ready);
	unary("/t.S/Echo", data, sizeof(data));
	assert_int_equal(got.code, RP_GRPC_OK);
	assert_int_equal(got.length, sizeof(data));
	call = bidi("/t.S/Bidi");
	assert_string_equal(rp_grpc_conn_peer_cn(rp_grpc_call_conn(seen.call)), "someone");
	assert_true(rp_grpc_conn_is_local(rp_grpc_call_conn(seen.call)));
	for (uint64_t i = 1; i <= 50; i++)
		assert_int_equal(rp_grpc_call_send(seen.call, data, 10000, i), 0);
	for (int i = 0; i < 200 && got.messages < 50; i++)
		turns(1);
	assert_int_equal(got.messages, 50);
	assert_int_equal(seen.written, 50);
	(void)call;
	/* Reload: the open connection stays, a new one sees the new certificate, whose name
	 * differs. */
	tls = tls_config(true, &second, &ca);
	rp_grpc_server_set_tls(server, listener, tls);
	rp_tls_config_unref(tls);
	unary("/t.S/Echo", "x", 1);
	assert_int_equal(got.code, RP_GRPC_OK);
	tls_connect(port, tls_config(false, &client, &ca));
	turn_until(is_lost);
	channel_config.server_name = "node.test";
	tls_connect(port, tls_config(false, &client, &ca));
	turn_until(is_ready);
	tls_connect(port, tls_config(false, &stranger, &ca));
	turn_until(is_lost);
	tls_connect(port, tls_config(false, &client, &stranger));
	turn_until(is_lost);
	assert_int_equal(rp_grpc_server_stats(server).conns_closed_protocol, 0);
}

/* A thousand calls at once, and as many again that wait for the stream limit. */
static unsigned many_ok;

static void many_done(
	void *ctx, enum rp_grpc_code code, const char *message, const uint8_t *data, size_t length)
{
	many_ok += code == RP_GRPC_OK && length == 4;
}

UNTIL(is_many, many_ok == 2000)

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
		T(test_lost),
		T(test_keepalive),
		T(test_too_many_pings),
		T(test_server_keepalive),
		T(test_connect),
		T(test_resolve),
		T(test_connect_timeout),
		T(test_drain),
		T(test_nested_destroy),
		T(test_destroy_in_message),
		T(test_reconnect),
		T(test_backoff),
		T(test_tls),
		T(test_many),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
