/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The server against peers that break rules: each costs its own connection or stream at most.
 */

#include <arpa/inet.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include <grpc/http.h>
#include <grpc/server.h>

#include "raw_client.h"

static struct rp_loop *loop;
static struct rp_grpc_server *server;
static struct rp_grpc_server_config config;
static struct raw_client *client, *other;
static struct raw_buf *out;
static unsigned messages, cancels;
static size_t message_bytes;
static struct rp_grpc_call *last_call;

static void echo_message(struct rp_grpc_call *call, const uint8_t *data, size_t length, void *ctx)
{
	messages++;
	message_bytes += length;
	rp_grpc_call_reply(call, data, length);
}

static void hold_start(struct rp_grpc_call *call, void *ctx)
{
	last_call = call;
}

static void hold_message(struct rp_grpc_call *call, const uint8_t *data, size_t length, void *ctx)
{
	messages++;
	message_bytes += length;
}

static void on_cancel(struct rp_grpc_call *call, enum rp_grpc_cancel why, void *ctx)
{
	cancels++;
}

static const struct rp_grpc_call_ops echo_ops = {
	.on_message = echo_message, .on_cancel = on_cancel};
static const struct rp_grpc_call_ops hold_ops = {
	.on_start = hold_start, .on_message = hold_message, .on_cancel = on_cancel};
static const struct rp_grpc_method methods[] = {
	{"/t.S/Echo", RP_GRPC_UNARY, &echo_ops},
	{"/t.S/Hold", RP_GRPC_BIDI, &hold_ops},
	{"/t.S/HoldUnary", RP_GRPC_UNARY, &hold_ops},
};

static void http_echo(struct rp_http_request *r, void *ctx)
{
	size_t length;
	const uint8_t *body = rp_http_body(r, &length);
	const char *value;
	size_t value_length;

	if (rp_http_query_get(r, "key", &value, &value_length))
		rp_http_reply(r, 200, "text/plain", value, value_length);
	else
		rp_http_reply(r, 200, "text/plain", body, length);
}

static const struct rp_http_handler handlers[] = {{.path = "/echo", .on_request = http_echo}};

static struct raw_client *connect_raw(void)
{
	struct raw_client *c = malloc(sizeof(*c));
	int fds[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
	assert_int_equal(rp_grpc_server_attach(server, fds[0], NULL), 0);
	raw_open(c, loop, fds[1]);
	return c;
}

static void disconnect(struct raw_client **c)
{
	if (*c) {
		raw_close(*c);
		free(*c);
	}
	*c = NULL;
}

static int setup(void **state)
{
	messages = cancels = 0;
	message_bytes = 0;
	loop = rp_loop_new();
	config = rp_grpc_server_config_default();
	out = calloc(1, sizeof(*out));
	return 0;
}

static void start(void)
{
	server = rp_grpc_server_new(loop, &config);
	assert_int_equal(rp_grpc_server_add_methods(server, methods, RP_ARRAY_SIZE(methods)), 0);
	assert_int_equal(rp_grpc_server_add_methods(server, methods, 1), -EEXIST);
	assert_int_equal(rp_grpc_server_add_http(server, handlers, 1), 0);
	assert_int_equal(rp_grpc_server_add_http(server, handlers, 1), -EEXIST);
	client = connect_raw();
	other = connect_raw();
}

static int teardown(void **state)
{
	disconnect(&client);
	disconnect(&other);
	rp_grpc_server_destroy(server);
	rp_loop_destroy(loop);
	free(out);
	return 0;
}

/* The other connection works as if nothing had been. */
static void other_works(void)
{
	static uint32_t stream;
	struct raw_buf *b = calloc(1, sizeof(*b));

	if (other->frames[NGHTTP2_SETTINGS] == 0) {
		raw_preface(b);
		stream = 1;
	}
	other->grpc_status = -1;
	raw_request(b, stream, "/t.S/Echo", false);
	raw_message(b, stream, "fine", 4, true);
	stream += 2;
	assert_true(raw_send(other, b));
	raw_settle(other);
	assert_int_equal(other->grpc_status, 0);
	free(b);
}

static void test_bytewise(void **state)
{
	struct raw_buf *piece = calloc(1, sizeof(*piece));

	start();
	raw_preface(out);
	raw_request(out, 1, "/t.S/Echo", false);
	raw_message(out, 1, "slowly", 6, true);
	for (size_t i = 0; i < out->length; i++) {
		piece->data[0] = out->data[i];
		piece->length = 1;
		assert_true(raw_send(client, piece));
		rp_loop_run_once(loop, 0);
	}
	raw_settle(client);
	assert_int_equal(client->grpc_status, 0);
	assert_string_equal(client->http_status, "200");
	assert_string_equal(client->content_type, "application/grpc");
	assert_int_equal(client->data_bytes, 11);
	assert_int_equal(client->stream_ends, 1);
	assert_int_equal(client->frames[NGHTTP2_RST_STREAM], 0);
	free(piece);
}

/* One message over many DATA frames, and many messages in one. */
static void test_borders(void **state)
{
	uint8_t body[400];
	size_t length = 0;

	start();
	for (int i = 0; i < 40; i++) {
		memcpy(body + length, "\0\0\0\0\3abc", 8);
		length += 8;
	}
	for (size_t cut = 1; cut < 60; cut++) {
		out->length = 0;
		messages = 0;
		if (cut == 1)
			raw_preface(out);
		raw_request(out, (uint32_t)cut * 2 - 1, "/t.S/Hold", false);
		for (size_t i = 0; i < length; i += cut)
			raw_frame(out, NGHTTP2_DATA, 0, (uint32_t)cut * 2 - 1, body + i,
				RP_MIN(cut, length - i));
		assert_true(raw_send(client, out));
		raw_settle(client);
		assert_int_equal(messages, 40);
	}
}

/* The connection's end at each byte of a session leaves nothing behind. */
static void test_truncated(void **state)
{
	struct raw_buf *whole = calloc(1, sizeof(*whole));

	start();
	raw_preface(whole);
	raw_request(whole, 1, "/t.S/Hold", false);
	raw_request(whole, 3, "/t.S/Echo", false);
	raw_message(whole, 1, "first", 5, false);
	raw_message(whole, 3, "second", 6, true);
	for (size_t cut = 0; cut <= whole->length; cut++) {
		struct raw_client *c = connect_raw();

		memcpy(out->data, whole->data, cut);
		out->length = cut;
		assert_true(raw_send(c, out));
		raw_settle(c);
		disconnect(&c);
		for (int i = 0; i < 5; i++)
			rp_loop_run_once(loop, 0);
		assert_int_equal(rp_grpc_server_stats(server).calls_open, 0);
		assert_int_equal(rp_grpc_server_stats(server).conns_open, 2);
		assert_int_equal(rp_grpc_server_stats(server).in_bytes_held, 0);
	}
	free(whole);
	other_works();
}

/* A wrong frame after the preface, and the error that ends the connection. */
static void expect_goaway(uint32_t error)
{
	disconnect(&client);
	client = connect_raw();
	assert_true(raw_send(client, out));
	raw_settle(client);
	assert_int_equal(client->goaway_error, error);
	assert_true(client->ended);
	other_works();
	out->length = 0;
	raw_preface(out);
}

static void test_connection_errors(void **state)
{
	static uint8_t big[16385];
	uint8_t settings[6] = {0, NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 0x80, 0, 0, 0};

	start();
	raw_preface(out);
	raw_frame(out, NGHTTP2_DATA, 0, 0, "x", 1);
	expect_goaway(NGHTTP2_PROTOCOL_ERROR);
	raw_frame(out, NGHTTP2_DATA, 0, 1, big, sizeof(big));
	expect_goaway(NGHTTP2_FRAME_SIZE_ERROR);
	raw_frame(out, NGHTTP2_WINDOW_UPDATE, 0, 0, "\0\0\0\0", 4);
	expect_goaway(NGHTTP2_PROTOCOL_ERROR);
	raw_frame(out, NGHTTP2_WINDOW_UPDATE, 0, 0, "\x7f\xff\xff\xff", 4);
	expect_goaway(NGHTTP2_FLOW_CONTROL_ERROR);
	raw_frame(out, NGHTTP2_SETTINGS, 0, 0, "abc", 3);
	expect_goaway(NGHTTP2_FRAME_SIZE_ERROR);
	raw_frame(out, NGHTTP2_SETTINGS, 0, 0, settings, 6);
	expect_goaway(NGHTTP2_FLOW_CONTROL_ERROR);
	raw_frame(out, NGHTTP2_HEADERS, NGHTTP2_FLAG_END_HEADERS, 1, "\xff\xff\xff\xff\xff", 5);
	expect_goaway(NGHTTP2_COMPRESSION_ERROR);
	raw_request(out, 2, "/t.S/Echo", true);
	expect_goaway(NGHTTP2_PROTOCOL_ERROR);
	raw_frame(out, NGHTTP2_CONTINUATION, NGHTTP2_FLAG_END_HEADERS, 1, "x", 1);
	expect_goaway(NGHTTP2_PROTOCOL_ERROR);
	raw_frame(out, NGHTTP2_PUSH_PROMISE, NGHTTP2_FLAG_END_HEADERS, 1, "\0\0\0\2", 4);
	expect_goaway(NGHTTP2_PROTOCOL_ERROR);
	raw_frame(out, NGHTTP2_RST_STREAM, 0, 1, "\0\0\0\0", 4);
	expect_goaway(NGHTTP2_PROTOCOL_ERROR);
	raw_frame(out, NGHTTP2_PING, 0, 0, "short", 5);
	expect_goaway(NGHTTP2_FRAME_SIZE_ERROR);
	/* A frame that nobody knows is ignored. */
	raw_frame(out, 0xf7, 0x5a, 0, "whatever", 8);
	raw_request(out, 1, "/t.S/Echo", false);
	raw_message(out, 1, "x", 1, true);
	disconnect(&client);
	client = connect_raw();
	assert_true(raw_send(client, out));
	raw_settle(client);
	assert_int_equal(client->grpc_status, 0);
	assert_int_equal(rp_grpc_server_stats(server).conns_closed_protocol, 12);
}

struct header {
	const char *name, *value;
};

static void send_headers(uint32_t stream, const struct header *h, size_t count)
{
	struct raw_buf *block = calloc(1, sizeof(*block));

	out->length = 0;
	if (stream == 1)
		raw_preface(out);
	for (size_t i = 0; i < count && h[i].name; i++)
		raw_header(block, h[i].name, h[i].value);
	raw_frame(
		out, NGHTTP2_HEADERS, NGHTTP2_FLAG_END_HEADERS, stream, block->data, block->length);
	raw_message(out, stream, "x", 1, true);
	client->grpc_status = -1;
	client->http_status[0] = 0;
	client->reset_error = UINT32_MAX;
	assert_true(raw_send(client, out));
	raw_settle(client);
	free(block);
}

#define BASE                                      \
	{":method", "POST"}, {":scheme", "http"}, \
	{                                         \
		":path", "/t.S/Echo"              \
	}
#define TYPE                                       \
	{                                          \
		"content-type", "application/grpc" \
	}

static void test_header_errors(void **state)
{
	static const struct header bad[][6] = {
		{{":method", "POST"}, {":scheme", "http"}, TYPE},
		{{":method", "POST"}, {":path", "/t.S/Echo"}, TYPE},
		{{":scheme", "http"}, {":path", "/t.S/Echo"}, TYPE},
		{BASE, {":method", "POST"}, TYPE},
		{BASE, TYPE, {":authority", "late"}},
		{BASE, {":strange", "x"}, TYPE},
		{BASE, TYPE, {"Upper", "x"}},
		{BASE, TYPE, {"sp ace", "x"}},
		{BASE, TYPE, {"value", "a\nb"}},
		{BASE, TYPE, {"", "x"}},
	};
	static const struct header good[][7] = {
		{BASE, TYPE},
		{{":path", "/t.S/Echo"}, {":method", "POST"}, {":scheme", "http"}, TYPE},
		{BASE, {":authority", "#initially=[127.0.0.1:2379;127.0.0.1:2380]"}, TYPE},
		{BASE, {":authority", "/run/some.sock"}, TYPE},
		{BASE, {"content-type", "application/grpc+proto"}, {"te", "trailers"}},
		{BASE, {"content-type", "application/grpc;charset=utf-8"}, {"unknown", ""}},
		{BASE, TYPE, {"grpc-encoding", "identity"}, {"value", "\xff\xfe"}},
	};
	uint32_t stream = 1;

	start();
	for (size_t i = 0; i < RP_ARRAY_SIZE(bad); i++, stream += 2) {
		send_headers(stream, bad[i], 6);
		assert_int_equal(client->reset_error, NGHTTP2_PROTOCOL_ERROR);
		assert_int_equal(client->reset_stream, stream);
	}
	for (size_t i = 0; i < RP_ARRAY_SIZE(good); i++, stream += 2) {
		send_headers(stream, good[i], 7);
		assert_int_equal(client->grpc_status, 0);
	}
	assert_int_equal(client->goaway_error, UINT32_MAX);
	assert_string_equal(client->content_type, "application/grpc");
	assert_int_equal(rp_grpc_server_stats(server).calls_refused_header, RP_ARRAY_SIZE(bad));
}

static void test_content_types(void **state)
{
	static const struct header other_type[] = {BASE, {"content-type", "application/grpcx"}};
	static const struct header get[] = {
		{":method", "GET"}, {":scheme", "http"}, {":path", "/t.S/Echo"}, TYPE};
	static const struct header http[] = {
		{":method", "POST"}, {":scheme", "http"}, {":path", "/echo?a=1&key=value&b"}};
	static const struct header timeout[] = {BASE, TYPE, {"grpc-timeout", "5x"}};

	start();
	send_headers(1, other_type, 4);
	assert_string_equal(client->http_status, "415");
	send_headers(3, get, 4);
	assert_string_equal(client->http_status, "405");
	assert_int_equal(client->grpc_status, RP_GRPC_INTERNAL);
	client->data_bytes = 0;
	send_headers(5, http, 3);
	assert_string_equal(client->http_status, "200");
	assert_int_equal(client->data_bytes, 5);
	send_headers(7, timeout, 5);
	assert_string_equal(client->http_status, "400");
	assert_int_equal(client->grpc_status, RP_GRPC_INTERNAL);
}

static void test_header_list(void **state)
{
	struct header h[8] = {BASE, TYPE, {"big", NULL}};
	char *big = malloc(10001);

	config.limits.header_bytes = 8192;
	start();
	memset(big, 'b', 10000);
	big[10000] = 0;
	h[4].value = big;
	send_headers(1, h, 5);
	assert_int_equal(client->grpc_status, RP_GRPC_RESOURCE_EXHAUSTED);
	big[5000] = 0;
	send_headers(3, h, 5);
	assert_int_equal(client->grpc_status, 0);
	free(big);
}

/* Few bytes that stand for many: one entry of the table, named a thousand times. */
static void test_header_bomb(void **state)
{
	struct raw_buf *block = calloc(1, sizeof(*block));
	char *big = malloc(3001);

	start();
	memset(big, 'b', 3000);
	big[3000] = 0;
	raw_preface(out);
	raw_header(block, "bomb", big);
	block->data[0] = 0x40; /* into the table */
	for (int i = 0; i < 8000; i++)
		raw_put(block, "\xbe", 1);
	raw_frame(out, NGHTTP2_HEADERS, NGHTTP2_FLAG_END_HEADERS | NGHTTP2_FLAG_END_STREAM, 1,
		block->data, block->length);
	raw_send(client, out);
	raw_settle(client);
	assert_true(client->grpc_status == RP_GRPC_RESOURCE_EXHAUSTED ||
		    client->reset_error != UINT32_MAX || client->goaway_error != UINT32_MAX);
	other_works();
	/* CONTINUATION without an end. */
	disconnect(&client);
	client = connect_raw();
	out->length = 0;
	raw_preface(out);
	raw_frame(out, NGHTTP2_HEADERS, 0, 1, block->data, 3000);
	for (int i = 0; i < 200; i++)
		raw_frame(out, NGHTTP2_CONTINUATION, 0, 1, block->data, 3000);
	raw_send(client, out);
	raw_settle(client);
	assert_true(client->ended);
	other_works();
	free(block);
	free(big);
}

/* Streams over the limit, from a peer that may not have seen the limit yet. */
static void test_stream_limit(void **state)
{
	config.limits.streams = 10;
	start();
	raw_preface(out);
	for (uint32_t i = 0; i < 12; i++)
		raw_request(out, 1 + 2 * i, "/t.S/Hold", false);
	raw_send(client, out);
	raw_settle(client);
	assert_int_equal(client->reset_error, NGHTTP2_REFUSED_STREAM);
	assert_int_equal(client->frames[NGHTTP2_RST_STREAM], 2);
	assert_int_equal(rp_grpc_server_stats(server).calls_open, 10);
	assert_int_equal(client->goaway_error, UINT32_MAX);
}

static int connect_port(uint16_t port)
{
	struct sockaddr_in sa = {.sin_family = AF_INET,
		.sin_port = htons(port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	assert_int_equal(connect(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
	return fd;
}

static void test_conn_limit(void **state)
{
	uint16_t port;
	char byte;
	int fd;

	config.limits.connections = 2; /* those of start() */
	start();
	assert_true(rp_grpc_server_listen(server, "127.0.0.1:0", NULL, &port) >= 0);
	fd = connect_port(port);
	for (int i = 0; i < 5; i++)
		rp_loop_run_once(loop, 10 * RP_NS_PER_MS);
	assert_int_equal(rp_grpc_server_stats(server).conns_refused_limit, 1);
	assert_int_equal(recv(fd, &byte, 1, 0), 0);
	close(fd);
	disconnect(&client);
	for (int i = 0; i < 5; i++)
		rp_loop_run_once(loop, 0);
	fd = connect_port(port);
	for (int i = 0; i < 5; i++)
		rp_loop_run_once(loop, 10 * RP_NS_PER_MS);
	assert_int_equal(rp_grpc_server_stats(server).conns_refused_limit, 1);
	assert_int_equal(rp_grpc_server_stats(server).conns_open, 2);
	close(fd);
	assert_int_equal(rp_grpc_server_listen(server, "127.0.0.1", NULL, NULL), -EINVAL);
	assert_true(rp_grpc_server_listen(server, "192.0.2.1:0", NULL, NULL) < 0);
}

/* Requests that are taken back at once: thousands are a busy client, not an attack. */
static void test_resets(void **state)
{
	start();
	raw_preface(out);
	for (uint32_t i = 0; i < 3000; i++) {
		raw_request(out, 1 + 2 * i, "/t.S/Hold", false);
		raw_frame(out, NGHTTP2_RST_STREAM, 0, 1 + 2 * i, "\0\0\0\10", 4);
	}
	assert_true(raw_send(client, out));
	raw_settle(client);
	assert_int_equal(client->goaway_error, UINT32_MAX);
	assert_int_equal(cancels, 3000);
	assert_int_equal(rp_grpc_server_stats(server).calls_open, 0);
	rp_grpc_server_destroy(server);
	disconnect(&client);
	disconnect(&other);
	config.limits.stream_resets_burst = 100;
	config.limits.stream_resets_rate = 10;
	start();
	raw_send(client, out);
	raw_settle(client);
	assert_true(client->ended);
	assert_int_not_equal(client->goaway_error, UINT32_MAX);
	other_works();
}

/* SETTINGS and PINGs without end from a peer that reads nothing. */
static void test_floods(void **state)
{
	config.client_ping_min_ns = 0;
	start();
	raw_preface(out);
	for (int kind = 0; kind < 2; kind++) {
		uint64_t held = 0;
		bool open = true;

		while (out->length < sizeof(out->data) - 20) {
			if (kind)
				raw_frame(out, NGHTTP2_PING, 0, 0, "12345678", 8);
			else
				raw_frame(out, NGHTTP2_SETTINGS, 0, 0, "\0\4\0\1\0\0", 6);
		}
		for (int i = 0; i < 30 && open; i++) {
			for (size_t done = 0; done < out->length && open;) {
				ssize_t n = send(client->fd, out->data + done, out->length - done,
					MSG_NOSIGNAL);

				for (int j = 0; j < 10; j++)
					rp_loop_run_once(loop, 0);
				if (n < 0 && errno == EAGAIN)
					break;
				open = n > 0;
				done += n > 0 ? (size_t)n : 0;
			}
			held = RP_MAX(held, rp_grpc_server_stats(server).out_bytes_held);
		}
		assert_true(held < 4u << 20);
		other_works();
		disconnect(&client);
		client = connect_raw();
		out->length = 0;
		raw_preface(out);
	}
}

/* A peer that asks much and reads nothing. */
static void test_no_reader(void **state)
{
	static uint8_t body[16000];
	uint64_t held = 0;
	uint32_t stream = 1;

	config.limits.conn_out_bytes = 4u << 20;
	start();
	raw_preface(out);
	raw_frame(out, NGHTTP2_WINDOW_UPDATE, 0, 0, "\x7f\0\0\0", 4);
	raw_frame(out, NGHTTP2_SETTINGS, 0, 0, "\0\4\x7f\xff\xff\xff", 6);
	for (int round = 0; round < 40; round++) {
		for (int i = 0; i < 30; i++, stream += 2) {
			raw_request(out, stream, "/t.S/Echo", false);
			raw_message(out, stream, body, sizeof(body) - 5, true);
		}
		for (size_t done = 0; done < out->length;) {
			ssize_t n = send(
				client->fd, out->data + done, out->length - done, MSG_NOSIGNAL);

			for (int j = 0; j < 5; j++)
				rp_loop_run_once(loop, 0);
			if (n <= 0)
				break;
			done += (size_t)n;
		}
		held = RP_MAX(held, rp_grpc_server_stats(server).out_bytes_held);
		out->length = 0;
	}
	assert_true(held > 1u << 20);
	assert_true(held < (4u << 20) + (1u << 20));
	other_works();
	disconnect(&client);
	for (int i = 0; i < 10; i++)
		rp_loop_run_once(loop, 0);
	assert_int_equal(rp_grpc_server_stats(server).out_bytes_held, 0);
}

/* Parts of messages that are never finished are bounded, whatever their number. */
static void test_unfinished(void **state)
{
	static uint8_t body[16000];
	uint64_t most = 0;

	config.limits.conn_in_bytes = 1u << 20;
	start();
	raw_preface(out);
	memcpy(body, "\0\0\x10\0\0", 5); /* a MiB is announced, 16 KB come */
	for (uint32_t i = 0; i < 120; i++) {
		raw_request(out, 1 + 2 * i, "/t.S/HoldUnary", false);
		raw_frame(out, NGHTTP2_DATA, 0, 1 + 2 * i, body, sizeof(body));
		assert_true(raw_send(client, out));
		raw_settle(client);
		most = RP_MAX(most, rp_grpc_server_stats(server).in_bytes_held);
		out->length = 0;
	}
	assert_true(most <= 1u << 20);
	assert_true(most > (1u << 20) - 2 * sizeof(body));
	assert_int_equal(client->grpc_status, RP_GRPC_RESOURCE_EXHAUSTED);
	assert_true(rp_grpc_server_stats(server).calls_refused_memory > 50);
	other_works();
}

/* More than the window on a stream whose reader has stopped. */
static void test_window_overflow(void **state)
{
	static uint8_t body[16000];

	start();
	raw_preface(out);
	raw_request(out, 1, "/t.S/Hold", false);
	assert_true(raw_send(client, out));
	raw_settle(client);
	rp_grpc_call_pause_reading(last_call);
	for (int i = 0; i < 70; i++) {
		out->length = 0;
		raw_frame(out, NGHTTP2_DATA, 0, 1, body, sizeof(body));
		raw_send(client, out);
		raw_settle(client);
	}
	assert_true(client->goaway_error == NGHTTP2_FLOW_CONTROL_ERROR ||
		    client->reset_error == NGHTTP2_FLOW_CONTROL_ERROR);
	assert_int_equal(cancels, 1);
	assert_true(rp_grpc_server_stats(server).in_bytes_held <= 1u << 20);
	other_works();
}

/* HTTP/1.1: what is sent, and how the answer starts. */
static void expect_http(const char *request, const char *start_of_answer)
{
	char text[4096];
	size_t length = 0;
	ssize_t n;

	disconnect(&client);
	client = connect_raw();
	assert_int_equal(send(client->fd, request, strlen(request), 0), strlen(request));
	for (int i = 0; i < 10; i++) {
		rp_loop_run_once(loop, 0);
		n = recv(client->fd, text + length, sizeof(text) - 1 - length, 0);
		length += n > 0 ? (size_t)n : 0;
	}
	text[length] = 0;
	if (strncmp(text, start_of_answer, strlen(start_of_answer)) != 0)
		fail_msg("%s\ngave\n%s", request, text);
	if (start_of_answer[0] == 0)
		assert_int_equal(length, 0);
}

static void test_http1(void **state)
{
	config.limits.header_bytes = 2000;
	config.limits.http_body_bytes = 100;
	start();
	expect_http("GET /echo?key=v HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP/1.1 200 OK\r\n");
	expect_http("\r\n\r\nGET /echo HTTP/1.1\r\n\r\n", "HTTP/1.1 200 OK\r\n");
	expect_http("GET http://host/echo HTTP/1.0\r\n\r\n", "HTTP/1.1 200 OK\r\n");
	expect_http("GET /none HTTP/1.1\r\n\r\n", "HTTP/1.1 404 Not Found\r\n");
	expect_http("OPTIONS * HTTP/1.1\r\n\r\n", "HTTP/1.1 200 OK\r\n");
	expect_http("GET /echo HTTP/1.1\r\nHost", "");
	expect_http("GET /echo HTTP/3.0\r\n\r\n", "HTTP/1.1 505 ");
	expect_http("GET /echo FTP/1.0\r\n\r\n", "HTTP/1.1 400 ");
	expect_http("GET echo HTTP/1.1\r\n\r\n", "HTTP/1.1 400 ");
	expect_http("GET /echo\r\n\r\n", "HTTP/1.1 400 ");
	expect_http("GET /echo HTTP/1.1\r\nbad header\r\n\r\n", "HTTP/1.1 400 ");
	expect_http("GET /echo HTTP/1.1\r\nbad : x\r\n\r\n", "HTTP/1.1 400 ");
	expect_http("\x16\x03\x01\x02", "HTTP/1.1 400 ");
	expect_http("PRI * HTTP/2.0\r\n\r\nXX", "HTTP/1.1 505 ");
	expect_http("POST /echo HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", "HTTP/1.1 200 OK\r\n");
	expect_http("POST /echo HTTP/1.1\r\nContent-Length: 5\r\n\r\nhell", "");
	expect_http("POST /echo HTTP/1.1\r\nContent-Length: 101\r\n\r\n", "HTTP/1.1 413 ");
	expect_http("POST /echo HTTP/1.1\r\nContent-Length: -1\r\n\r\n", "HTTP/1.1 400 ");
	expect_http(
		"POST /echo HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
		"HTTP/1.1 400 ");
	expect_http("POST /echo HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n", "HTTP/1.1 501 ");
	expect_http("POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
		    "5;x=y\r\nhello\r\n1\r\n!\r\n0\r\nTrailer: x\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 6\r\n");
	expect_http(
		"POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "HTTP/1.1 400 ");
	expect_http("POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhelloX", "");
	expect_http("POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhelloX\r\n",
		"HTTP/1.1 400 ");
	expect_http("POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nffffffffff\r\n", "");
	expect_http("POST /echo HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n",
		"HTTP/1.1 100 Continue\r\n\r\n");
	other_works();
}

static void test_http1_large_head(void **state)
{
	char request[3000];

	config.limits.header_bytes = 2000;
	start();
	memset(request, 'A', sizeof(request));
	memcpy(request, "GET /", 5);
	request[sizeof(request) - 1] = 0;
	expect_http(request, "HTTP/1.1 431 ");
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(test_bytewise),
		T(test_borders),
		T(test_truncated),
		T(test_connection_errors),
		T(test_header_errors),
		T(test_content_types),
		T(test_header_list),
		T(test_header_bomb),
		T(test_stream_limit),
		T(test_conn_limit),
		T(test_resets),
		T(test_floods),
		T(test_no_reader),
		T(test_unfinished),
		T(test_window_overflow),
		T(test_http1),
		T(test_http1_large_head),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
