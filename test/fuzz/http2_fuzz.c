/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Bytes from a client into a server: HTTP/2 with gRPC calls, or HTTP/1.1. The first byte says in
 * pieces of what size they come and what the methods do. Whatever it was, nothing stays behind when
 * the client is gone.
 */

#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <base/assert.h>
#include <grpc/http.h>
#include <grpc/server.h>

#define TURNS_MAX 200
#define HELD_MAX 16

struct held {
	struct rp_grpc_call *calls[HELD_MAX];
	unsigned count;
	bool pause;
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void unary_message(struct rp_grpc_call *call, const uint8_t *data, size_t length, void *ctx)
{
	rp_grpc_call_reply(call, data, length);
}

static void bidi_message(struct rp_grpc_call *call, const uint8_t *data, size_t length, void *ctx)
{
	struct held *held = ctx;

	if (rp_grpc_call_fits(call, length))
		(void)rp_grpc_call_send(call, data, length, 1);
	if (held->pause) {
		rp_grpc_call_pause_reading(call);
		if (length % 2)
			rp_grpc_call_resume_reading(call);
	}
	if (length == 7)
		rp_grpc_call_finish(call, RP_GRPC_ABORTED, (const char[]){"seven \x01%"});
}

static void bidi_half_close(struct rp_grpc_call *call, void *ctx)
{
	rp_grpc_call_finish(call, RP_GRPC_OK, NULL);
}

static void bidi_cancel(struct rp_grpc_call *call, enum rp_grpc_cancel why, void *ctx)
{
}

static void bidi_room(struct rp_grpc_call *call, void *ctx)
{
	(void)rp_grpc_call_send(call, "room", 4, 2);
}

static void bidi_written(struct rp_grpc_call *call, uint64_t cookie, void *ctx)
{
	RP_ASSERT(cookie == 1 || cookie == 2);
}

static void held_start(struct rp_grpc_call *call, void *ctx)
{
	struct held *held = ctx;

	if (held->count == HELD_MAX) {
		rp_grpc_call_finish(call, RP_GRPC_RESOURCE_EXHAUSTED, "enough");
		return;
	}
	rp_grpc_call_set_user(call, (void *)(uintptr_t)held->count);
	held->calls[held->count++] = call;
}

static void held_cancel(struct rp_grpc_call *call, enum rp_grpc_cancel why, void *ctx)
{
	struct held *held = ctx;
	size_t i = (uintptr_t)rp_grpc_call_user(call);

	RP_ASSERT(held->calls[i] == call);
	held->calls[i] = held->calls[--held->count];
	rp_grpc_call_set_user(held->calls[i], (void *)(uintptr_t)i);
}

static void http_request(struct rp_http_request *r, void *ctx)
{
	size_t length;
	const uint8_t *body = rp_http_body(r, &length);

	if (length % 2) {
		rp_http_reply(r, 200, "text/plain", body, length);
		return;
	}
	rp_http_begin(r, 200, "text/plain");
	(void)rp_http_write(r, rp_http_path(r), strlen(rp_http_path(r)), 0);
	(void)rp_http_write(r, rp_http_query(r), strlen(rp_http_query(r)), 0);
	rp_http_end(r);
}

static const struct rp_grpc_call_ops unary_ops = {.on_message = unary_message};
static const struct rp_grpc_call_ops bidi_ops = {
	.on_message = bidi_message,
	.on_half_close = bidi_half_close,
	.on_cancel = bidi_cancel,
	.on_room = bidi_room,
	.on_written = bidi_written,
};
static const struct rp_grpc_call_ops held_ops = {.on_start = held_start, .on_cancel = held_cancel};
static const struct rp_http_handler handlers[] = {{.path = "/h/", .on_request = http_request}};

static void read_all(int fd)
{
	uint8_t waste[65536];

	while (recv(fd, waste, sizeof(waste), MSG_DONTWAIT) > 0)
		;
}

static void feed(
	struct rp_loop *loop, int fd, const uint8_t *data, size_t size, size_t piece, bool reads)
{
	while (size > 0) {
		ssize_t n = send(fd, data, RP_MIN(size, piece), MSG_NOSIGNAL | MSG_DONTWAIT);

		(void)rp_loop_run_once(loop, 0);
		if (n <= 0)
			break;
		data += n;
		size -= (size_t)n;
		if (reads)
			read_all(fd);
	}
	for (int i = 0; i < 4; i++)
		(void)rp_loop_run_once(loop, 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const size_t pieces[] = {1, 3, 17, 100, 1000, 10000, 100000, 100000};
	struct rp_grpc_server_config config = rp_grpc_server_config_default();
	struct held held = {.pause = size > 0 && (data[0] & 8)};
	const struct rp_grpc_method methods[] = {
		{"/f.F/Unary", RP_GRPC_UNARY, &unary_ops, &held},
		{"/f.F/Bidi", RP_GRPC_BIDI, &bidi_ops, &held},
		{"/f.F/Held", RP_GRPC_UNARY, &held_ops, &held},
	};
	struct rp_loop *loop = rp_loop_new();
	struct rp_grpc_server_stats st;
	struct rp_grpc_server *server;
	int fds[2];

	if (size == 0) {
		rp_loop_destroy(loop);
		return 0;
	}
	config.accept_gzip = data[0] & 16;
	config.limits.message_bytes = 4096;
	config.limits.conn_in_bytes = 16384;
	config.limits.conn_out_bytes = 65536;
	config.limits.call_out_bytes = 16384;
	server = rp_grpc_server_new(loop, &config);
	RP_ASSERT(server != NULL);
	RP_ASSERT(rp_grpc_server_add_methods(server, methods, RP_ARRAY_SIZE(methods)) == 0);
	RP_ASSERT(rp_grpc_server_add_http(server, handlers, RP_ARRAY_SIZE(handlers)) == 0);
	RP_ASSERT(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
	RP_ASSERT(rp_grpc_server_attach(server, fds[0], NULL) == 0);
	feed(loop, fds[1], data + 1, size - 1, pieces[data[0] & 7], data[0] & 32);
	while (held.count > 0 && (data[0] & 64))
		rp_grpc_call_finish(held.calls[--held.count], RP_GRPC_NOT_FOUND, "held");
	st = rp_grpc_server_stats(server);
	RP_ASSERT(st.in_bytes_held <= config.limits.conn_in_bytes);
	close(fds[1]);
	for (int i = 0; i < TURNS_MAX && st.conns_open > 0; i++) {
		(void)rp_loop_run_once(loop, 0);
		st = rp_grpc_server_stats(server);
	}
	RP_ASSERT(st.conns_open == 0 && st.calls_open == 0 && held.count == 0);
	RP_ASSERT(st.in_bytes_held == 0 && st.out_bytes_held == 0);
	rp_grpc_server_destroy(server);
	rp_loop_destroy(loop);
	return 0;
}
