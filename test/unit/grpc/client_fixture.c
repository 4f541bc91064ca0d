/* SPDX-License-Identifier: Apache-2.0 */
#include "client_fixture.h"

struct rp_loop *loop;
struct rp_grpc_server *server;
struct rp_grpc_channel *channel;

struct seen seen;

struct got got;

void turn_until(bool (*cond)(void))
{
	for (int i = 0; i < 20000 && !cond(); i++)
		assert_true(rp_loop_run_once(loop, 10 * RP_NS_PER_MS) >= 0);
	assert_true(cond());
}

void turns(int n)
{
	for (int i = 0; i < n; i++)
		assert_true(rp_loop_run_once(loop, RP_NS_PER_MS) >= 0);
}

#define UNTIL(name, expr)    \
	bool name(void)      \
	{                    \
		return expr; \
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

void manual_start(struct rp_grpc_call *call, void *ctx)
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

void manual_half_close(struct rp_grpc_call *call, void *ctx)
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

void on_state(
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

void on_done(
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

void on_finish(
	struct rp_grpc_client_call *call, enum rp_grpc_code code, const char *message, void *ctx)
{
	keep(code, message);
}

const struct rp_grpc_client_ops client_ops = {
	.on_message = on_message, .on_room = on_client_room, .on_finish = on_finish};

/* Set-up. */

struct rp_grpc_server_config server_config;
struct rp_grpc_channel_config channel_config;

int setup(void **state)
{
	memset(&seen, 0, sizeof(seen));
	memset(&got, 0, sizeof(got));
	loop = rp_loop_new();
	server_config = rp_grpc_server_config_default();
	channel_config = rp_grpc_channel_config_default();
	channel_config.on_state = on_state;
	return loop ? 0 : -1;
}

void start_server(void)
{
	server = rp_grpc_server_new(loop, &server_config);
	assert_non_null(server);
	assert_int_equal(rp_grpc_server_add_methods(server, methods, RP_ARRAY_SIZE(methods)), 0);
}

void start(void)
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

int teardown(void **state)
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

void unary(const char *path, const void *data, size_t length)
{
	got.finished = 0;
	assert_non_null(rp_grpc_channel_unary(
		channel, path, NULL, 0, RP_NEVER, data, length, on_done, NULL));
	assert_int_equal(got.finished, 0);
	turn_until(is_finished);
	assert_int_equal(got.finished, 1);
}

void expect(enum rp_grpc_code code, const char *message)
{
	assert_int_equal(got.code, code);
	assert_string_equal(got.message, message);
}

struct rp_grpc_client_call *bidi(const char *path)
{
	struct rp_grpc_client_call *call =
		rp_grpc_channel_call(channel, path, NULL, 0, RP_NEVER, &client_ops, NULL);

	assert_non_null(call);
	turn_until(is_started);
	return call;
}
