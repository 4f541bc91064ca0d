/* SPDX-License-Identifier: Apache-2.0 */

/* Unary calls between two ringperfs, whose answer is the request: what gRPC itself costs. */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include <grpc/server.h>

#include "calls.h"

#define PATH "/ringperf.v1.Echo/Unary"

struct grpc_server {
	struct rp_loop *loop;
	struct rp_grpc_server *server;
	struct rp_grpc_method method;
};

static void echo_message(struct rp_grpc_call *call, const uint8_t *data, size_t length, void *ctx)
{
	struct perf_run *r = ctx;

	r->pace.ended_in_window++;
	rp_grpc_call_reply(call, data, length);
}

static int serve(struct perf_run *r)
{
	static const struct rp_grpc_call_ops ops = {.on_message = echo_message};
	struct rp_grpc_server_config config = rp_grpc_server_config_default();
	const struct perf_options *o = r->options;
	struct grpc_server *s = calloc(1, sizeof(*s));
	char address[64];
	int rc;

	if (!s)
		return -ENOMEM;
	r->state = s;
	s->method =
		(struct rp_grpc_method){.path = PATH, .kind = RP_GRPC_UNARY, .ops = &ops, .ctx = r};
	s->loop = rp_loop_new();
	s->server = s->loop ? rp_grpc_server_new(s->loop, &config) : NULL;
	if (!s->server)
		return -ENOMEM;
	snprintf(address, sizeof(address), "%u.%u.%u.%u:%u", o->addr[0], o->addr[1], o->addr[2],
		o->addr[3], o->tcp_port);
	rc = rp_grpc_server_add_methods(s->server, &s->method, 1);
	if (rc == 0)
		rc = rp_grpc_server_listen(s->server, address, NULL, NULL);
	if (rc < 0)
		r->why = "the address cannot be listened on";
	return rc < 0 ? rc : 0;
}

static size_t grpc_request(struct calls *c, uint64_t n, const uint8_t **data)
{
	*data = c->buffer;
	return c->run->options->size;
}

static int grpc_begin(struct perf_run *r, uint64_t now_ns)
{
	static const struct calls_ops ops = {.path = PATH, .request = grpc_request};

	return r->options->server ? serve(r) : calls_begin(r, &ops);
}

static bool grpc_turn(struct perf_run *r, uint64_t now_ns)
{
	struct grpc_server *s = r->state;

	if (!r->options->server)
		return calls_turn(r, now_ns);
	return rp_loop_run_once(s->loop, 10 * RP_NS_PER_MS) > 0;
}

static void grpc_end(struct perf_run *r, uint64_t now_ns)
{
	struct grpc_server *s = r->state;

	if (!r->options->server) {
		calls_end(r, now_ns);
		return;
	}
	if (s) {
		rp_grpc_server_destroy(s->server);
		rp_loop_destroy(s->loop);
	}
	free(s);
	r->state = NULL;
}

const struct perf_mode perf_mode_grpc = {
	.name = "grpc",
	.text = "unary calls whose answer is the request",
	.needs = PERF_NEEDS_SOCKETS,
	.measures = "round trip",
	.begin = grpc_begin,
	.turn = grpc_turn,
	.end = grpc_end,
};
