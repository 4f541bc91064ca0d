/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A server with handlers of plain bytes, for clients of other makes. Prints "port <n>" per
 * listener, serves until its input ends, then prints its counters.
 *
 *   echo_server [--tls cert key] [--ca file] [--gzip] [--ping-min-ms n] address...
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <grpc/credentials.h>
#include <grpc/http.h>
#include <grpc/server.h>
#include <tls/tls.h>

struct echo {
	struct rp_loop *loop;
	struct rp_grpc_server *server;
	unsigned cancels, deadlines;
	uint64_t most_queued;
};

static struct echo echo;

static void unary_message(struct rp_grpc_call *call, const uint8_t *data, size_t length, void *ctx)
{
	rp_grpc_call_reply(call, data, length);
}

/* "<code> <text>": ends the call so. */
static void fail_message(struct rp_grpc_call *call, const uint8_t *data, size_t length, void *ctx)
{
	char text[4096];

	snprintf(text, sizeof(text), "%.*s", (int)length, (const char *)data);
	rp_grpc_call_finish(call, (enum rp_grpc_code)atoi(text), strchr(text, ' ') + 1);
}

static void count_cancel(struct rp_grpc_call *call, enum rp_grpc_cancel why, void *ctx)
{
	if (why == RP_GRPC_CANCEL_DEADLINE)
		echo.deadlines++;
	else
		echo.cancels++;
}

static void counters_message(
	struct rp_grpc_call *call, const uint8_t *data, size_t length, void *ctx)
{
	char text[128];
	int n = snprintf(text, sizeof(text), "%u %u %llu", echo.cancels, echo.deadlines,
		(unsigned long long)echo.most_queued);

	rp_grpc_call_reply(call, text, (size_t)n);
}

static void meta_message(struct rp_grpc_call *call, const uint8_t *data, size_t length, void *ctx)
{
	const char *token = rp_grpc_call_metadata(call, "token", NULL);
	uint8_t bin[64];
	ssize_t n = rp_grpc_call_metadata_bin(call, "data-bin", bin, sizeof(bin));
	const char *cn = rp_grpc_conn_peer_cn(rp_grpc_call_conn(call));
	char text[256];
	int m = snprintf(text, sizeof(text), "%s|%.*s|%d|%s", token ? token : "-",
		n > 0 ? (int)n : 0, (const char *)bin,
		rp_grpc_conn_is_local(rp_grpc_call_conn(call)), cn ? cn : "-");

	rp_grpc_call_reply(call, text, (size_t)m);
}

static void bidi_message(struct rp_grpc_call *call, const uint8_t *data, size_t length, void *ctx)
{
	if (rp_grpc_call_send(call, data, length, 0) < 0)
		rp_grpc_call_finish(call, RP_GRPC_RESOURCE_EXHAUSTED, "not read");
}

static void bidi_half_close(struct rp_grpc_call *call, void *ctx)
{
	rp_grpc_call_finish(call, RP_GRPC_OK, NULL);
}

struct down {
	size_t size, left;
	char *data;
};

static void down_pump(struct rp_grpc_call *call, void *ctx)
{
	struct down *d = rp_grpc_call_user(call);

	while (d->left > 0 && rp_grpc_call_fits(call, d->size)) {
		(void)rp_grpc_call_send(call, d->data, d->size, 0);
		echo.most_queued = RP_MAX(echo.most_queued, rp_grpc_call_queued_bytes(call));
		d->left--;
	}
	if (d->left > 0)
		return;
	free(d->data);
	free(d);
	rp_grpc_call_finish(call, RP_GRPC_OK, NULL);
}

/* "<count> <size>": so many messages of that size, as the client has room for them. */
static void down_message(struct rp_grpc_call *call, const uint8_t *data, size_t length, void *ctx)
{
	struct down *d = calloc(1, sizeof(*d));
	char text[64];

	snprintf(text, sizeof(text), "%.*s", (int)length, (const char *)data);
	sscanf(text, "%zu %zu", &d->left, &d->size);
	d->data = malloc(d->size + 1);
	memset(d->data, 'd', d->size);
	rp_grpc_call_set_user(call, d);
	down_pump(call, ctx);
}

static void down_cancel(struct rp_grpc_call *call, enum rp_grpc_cancel why, void *ctx)
{
	struct down *d = rp_grpc_call_user(call);

	count_cancel(call, why, ctx);
	if (d)
		free(d->data);
	free(d);
}

static void up_message(struct rp_grpc_call *call, const uint8_t *data, size_t length, void *ctx)
{
	rp_grpc_call_set_user(call, (char *)rp_grpc_call_user(call) + length);
}

static void up_half_close(struct rp_grpc_call *call, void *ctx)
{
	char text[32];
	int n = snprintf(text, sizeof(text), "%zu", (size_t)rp_grpc_call_user(call));

	rp_grpc_call_reply(call, text, (size_t)n);
}

static void early_start(struct rp_grpc_call *call, void *ctx)
{
	rp_grpc_call_finish(call, RP_GRPC_FAILED_PRECONDITION, "too early");
}

static const struct rp_grpc_call_ops unary_ops = {.on_message = unary_message};
static const struct rp_grpc_call_ops fail_ops = {.on_message = fail_message};
static const struct rp_grpc_call_ops counters_ops = {.on_message = counters_message};
static const struct rp_grpc_call_ops meta_ops = {.on_message = meta_message};
static const struct rp_grpc_call_ops never_ops = {.on_cancel = count_cancel};
static const struct rp_grpc_call_ops early_ops = {.on_start = early_start};
static const struct rp_grpc_call_ops bidi_ops = {
	.on_message = bidi_message, .on_half_close = bidi_half_close, .on_cancel = count_cancel};
static const struct rp_grpc_call_ops down_ops = {
	.on_message = down_message, .on_cancel = down_cancel, .on_room = down_pump};
static const struct rp_grpc_call_ops up_ops = {
	.on_message = up_message, .on_half_close = up_half_close, .on_cancel = count_cancel};

static const struct rp_grpc_method methods[] = {
	{"/test.Echo/Unary", RP_GRPC_UNARY, &unary_ops},
	{"/test.Echo/Fail", RP_GRPC_UNARY, &fail_ops},
	{"/test.Echo/Counters", RP_GRPC_UNARY, &counters_ops},
	{"/test.Echo/Meta", RP_GRPC_UNARY, &meta_ops},
	{"/test.Echo/Never", RP_GRPC_UNARY, &never_ops},
	{"/test.Echo/NeverBidi", RP_GRPC_BIDI, &never_ops},
	{"/test.Echo/Early", RP_GRPC_BIDI, &early_ops},
	{"/test.Echo/Bidi", RP_GRPC_BIDI, &bidi_ops},
	{"/test.Echo/Down", RP_GRPC_SERVER_STREAM, &down_ops},
	{"/test.Echo/Up", RP_GRPC_CLIENT_STREAM, &up_ops},
};

static void health(struct rp_http_request *r, void *ctx)
{
	static const char text[] = "{\"health\":\"true\"}";

	rp_http_reply(r, 200, "application/json", text, sizeof(text) - 1);
}

static void mirror(struct rp_http_request *r, void *ctx)
{
	size_t length;
	const uint8_t *body = rp_http_body(r, &length);

	rp_http_reply(r, 200, "application/octet-stream", body, length);
}

/* In pieces, of a length not known before. */
static void pieces(struct rp_http_request *r, void *ctx)
{
	rp_http_begin(r, 200, "text/plain");
	(void)rp_http_write(r, "one\n", 4, 0);
	(void)rp_http_write(r, rp_http_query(r), strlen(rp_http_query(r)), 0);
	rp_http_end(r);
}

static const struct rp_http_handler handlers[] = {
	{.path = "/health", .on_request = health},
	{.path = "/mirror", .on_request = mirror},
	{.path = "/pieces/", .on_request = pieces},
};

static void on_input(void *ctx, uint32_t events)
{
	char text[64];
	ssize_t n = read(0, text, sizeof(text));

	if (n <= 0)
		rp_loop_stop(echo.loop);
	else if (text[0] == 'd')
		rp_grpc_server_drain(
			echo.server, 2 * RP_NS_PER_S, "etcdserver: server stopped", NULL, NULL);
}

static void print_stats(void)
{
	struct rp_grpc_server_stats st = rp_grpc_server_stats(echo.server);

#define X(name, help) printf(#name " %llu\n", (unsigned long long)st.name);
	RP_GRPC_SERVER_STATS(X)
#undef X
}

int main(int argc, char **argv)
{
	struct rp_grpc_server_config config = rp_grpc_server_config_default();
	struct rp_grpc_tls_files files = {0};
	struct rp_tls_config *tls = NULL;
	struct rp_loop_fd input;
	char error[256];
	int i;

	for (i = 1; i < argc && argv[i][0] == '-'; i++) {
		if (strcmp(argv[i], "--tls") == 0 && i + 2 < argc) {
			files.cert = argv[++i];
			files.key = argv[++i];
		} else if (strcmp(argv[i], "--ca") == 0 && i + 1 < argc) {
			files.ca = argv[++i];
			files.require_client_cert = true;
		} else if (strcmp(argv[i], "--gzip") == 0) {
			config.accept_gzip = true;
		} else if (strcmp(argv[i], "--ping-min-ms") == 0 && i + 1 < argc) {
			config.client_ping_min_ns = (uint64_t)atoi(argv[++i]) * RP_NS_PER_MS;
		}
	}
	if (files.cert) {
		tls = rp_grpc_tls_server(&files, error, sizeof(error));
		if (!tls) {
			fprintf(stderr, "%s\n", error);
			return 1;
		}
	}
	echo.loop = rp_loop_new();
	echo.server = rp_grpc_server_new(echo.loop, &config);
	rp_grpc_server_add_methods(echo.server, methods, RP_ARRAY_SIZE(methods));
	rp_grpc_server_add_http(echo.server, handlers, RP_ARRAY_SIZE(handlers));
	for (; i < argc; i++) {
		uint16_t port = 0;
		int result = rp_grpc_server_listen(echo.server, argv[i], tls, &port);

		if (result < 0) {
			fprintf(stderr, "%s: %s\n", argv[i], strerror(-result));
			return 1;
		}
		printf("port %u\n", port);
	}
	fflush(stdout);
	rp_loop_fd_setup(&input, on_input, NULL);
	rp_loop_fd_add(echo.loop, &input, 0, EPOLLIN);
	rp_loop_run(echo.loop);
	rp_loop_fd_remove(&input);
	print_stats();
	rp_grpc_server_destroy(echo.server);
	rp_tls_config_unref(tls);
	rp_loop_destroy(echo.loop);
	return 0;
}
