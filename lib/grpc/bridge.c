/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <base/assert.h>
#include <grpc/bridge.h>
#include "server_priv.h"

#define BRIDGE_METADATA_PREFIX "grpc-metadata-"

static struct rp_grpc_conn *bridge_conn(const struct rp_grpc_call *call)
{
	return RP_CONTAINER_OF(call->stream.h2, struct rp_grpc_conn, h2);
}

static void bridge_free(struct rp_grpc_call *call)
{
	bridge_conn(call)->server->stats.calls_open--;
	rp_loop_timer_cancel(&call->deadline);
	rp_loop_task_cancel(&call->stream.resume_task);
	grpc_headers_free(&call->headers);
	free(call);
}

/* The server ends it: the service is told why, the request the rest. */
static void bridge_abort(struct rp_grpc_call *call, enum rp_grpc_code code, const char *text,
	enum rp_grpc_cancel why)
{
	const struct rp_grpc_method *m = call->method;

	call->done = true;
	bridge_conn(call)->server->stats.calls_cancelled++;
	call->counts->handled[code]++;
	if (m->ops->on_cancel)
		m->ops->on_cancel(call, why, m->ctx);
	call->bridge->finish(call->bridge_ctx, code, text);
	bridge_free(call);
}

static void bridge_on_deadline(void *ctx)
{
	struct rp_grpc_call *call = ctx;

	bridge_conn(call)->server->stats.calls_deadline++;
	bridge_abort(call, RP_GRPC_DEADLINE_EXCEEDED, "context deadline exceeded",
		RP_GRPC_CANCEL_DEADLINE);
}

static void bridge_on_resume(void *ctx)
{
	struct rp_grpc_call *call = ctx;

	call->bridge->resumed(call->bridge_ctx);
}

/* What the service shall see of the request's headers. 0 or -errno. */
static int bridge_headers(struct rp_grpc_call *call, const struct rp_http_request *r)
{
	const struct grpc_headers *from = r->headers;
	size_t skip = sizeof(BRIDGE_METADATA_PREFIX) - 1;

	for (uint32_t i = 0; i < from->count; i++) {
		const struct grpc_header_entry *e = &from->entries[i];
		const char *name = from->text + e->name;
		size_t length = e->name_length;
		int error;

		if (strncmp(name, BRIDGE_METADATA_PREFIX, skip) == 0 && length > skip) {
			name += skip;
			length -= skip;
		} else if (strcmp(name, "authorization") != 0) {
			continue;
		}
		error = grpc_headers_add(&call->headers, name, length, from->text + e->value,
			e->value_length, r->conn->server->config.limits.header_bytes);
		if (error < 0)
			return error;
	}
	return 0;
}

static int bridge_deadline(struct rp_grpc_call *call, const struct rp_http_request *r)
{
	struct rp_loop *loop = r->conn->h2.loop;
	uint64_t now = rp_loop_now_ns(loop), ns;
	size_t length;
	const char *text = grpc_headers_get(r->headers, "grpc-timeout", &length);

	if (!text)
		return 0;
	if (rp_grpc_timeout_parse(text, length, &ns) < 0)
		return -EINVAL;
	call->deadline_ns = ns < RP_NEVER - now ? now + ns : RP_NEVER;
	rp_loop_timer_at(loop, &call->deadline, call->deadline_ns);
	return 0;
}

const struct rp_grpc_method *rp_grpc_server_find(
	const struct rp_grpc_server *server, const char *path)
{
	const struct grpc_method_entry *entry = grpc_server_method(server, path);

	return entry ? entry->method : NULL;
}

struct rp_grpc_call *rp_grpc_bridge_open(struct rp_http_request *r,
	const struct rp_grpc_method *method, const struct rp_grpc_bridge_ops *ops, void *ctx)
{
	struct rp_grpc_server *server = r->conn->server;
	struct rp_grpc_call *call = calloc(1, sizeof(*call));
	bool gone = false;
	int error;

	if (!call) {
		errno = ENOMEM;
		return NULL;
	}
	server->stats.calls_open++;
	call->stream.h2 = &r->conn->h2;
	rp_list_init(&call->stream.out);
	rp_loop_task_setup(&call->stream.resume_task, bridge_on_resume, call);
	rp_list_init(&call->due_node);
	rp_loop_timer_setup(&call->deadline, bridge_on_deadline, call);
	call->deadline_ns = RP_NEVER;
	call->id = ++server->next_call_id;
	call->method = method;
	call->counts = &grpc_server_method(server, method->path)->stats;
	call->bridge = ops;
	call->bridge_ctx = ctx;
	call->bridge_request = r;
	call->bridge_gone = &gone;
	error = bridge_headers(call, r);
	if (error == 0)
		error = bridge_deadline(call, r);
	if (error < 0) {
		bridge_free(call);
		errno = -error;
		return NULL;
	}
	server->stats.calls_started++;
	call->counts->started++;
	call->visible = true;
	if (method->ops->on_start)
		method->ops->on_start(call, method->ctx);
	if (gone) {
		errno = 0;
		return NULL;
	}
	call->bridge_gone = NULL;
	return call;
}

void rp_grpc_bridge_message(struct rp_grpc_call *call, const uint8_t *data, size_t length)
{
	const struct rp_grpc_method *m = call->method;
	struct rp_grpc_server *server = bridge_conn(call)->server;
	size_t max = m->message_bytes_max > 0 ? m->message_bytes_max
					      : server->config.limits.message_bytes;
	char text[96];

	if (length > max) {
		server->stats.calls_refused_size++;
		snprintf(text, sizeof(text), "grpc: received message larger than max (%zu vs. %zu)",
			length, max);
		bridge_abort(call, RP_GRPC_RESOURCE_EXHAUSTED, text, RP_GRPC_CANCEL_REFUSED);
		return;
	}
	server->stats.messages_in++;
	call->counts->messages_in++;
	if (m->ops->on_message)
		m->ops->on_message(call, data, length, m->ctx);
}

void rp_grpc_bridge_half_close(struct rp_grpc_call *call)
{
	const struct rp_grpc_method *m = call->method;

	if (m->kind != RP_GRPC_UNARY && m->kind != RP_GRPC_SERVER_STREAM && m->ops->on_half_close)
		m->ops->on_half_close(call, m->ctx);
}

bool rp_grpc_bridge_paused(const struct rp_grpc_call *call)
{
	return call->stream.paused;
}

void rp_grpc_bridge_room(struct rp_grpc_call *call)
{
	if (call->method->ops->on_room)
		call->method->ops->on_room(call, call->method->ctx);
}

void rp_grpc_bridge_written(struct rp_grpc_call *call, uint64_t cookie)
{
	if (call->method->ops->on_written)
		call->method->ops->on_written(call, cookie, call->method->ctx);
}

void rp_grpc_bridge_cancel(struct rp_grpc_call *call)
{
	const struct rp_grpc_method *m = call->method;

	call->done = true;
	bridge_conn(call)->server->stats.calls_cancelled++;
	call->counts->handled[RP_GRPC_CANCELLED]++;
	if (m->ops->on_cancel)
		m->ops->on_cancel(call, bridge_conn(call)->cancel_why, m->ctx);
	bridge_free(call);
}

void grpc_bridge_finish(struct rp_grpc_call *call, enum rp_grpc_code code, const char *text)
{
	call->done = true;
	bridge_conn(call)->server->stats.calls_finished++;
	call->counts->handled[code]++;
	if (call->bridge_gone)
		*call->bridge_gone = true;
	call->bridge->finish(call->bridge_ctx, code, text ? text : "");
	bridge_free(call);
}
