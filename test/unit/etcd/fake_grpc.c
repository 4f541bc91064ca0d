/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <base/assert.h>

#include "fake_grpc.h"

bool fake_has_leader;
const char *fake_token, *fake_authorization, *fake_cn, *fake_version;

struct rp_grpc_server *fake_server_new(void)
{
	return calloc(1, sizeof(struct rp_grpc_server));
}

void fake_server_free(struct rp_grpc_server *s)
{
	free(s);
}

int rp_grpc_server_add_methods(
	struct rp_grpc_server *s, const struct rp_grpc_method *methods, size_t count)
{
	s->methods = methods;
	s->method_count = count;
	return 0;
}

int rp_grpc_server_add_http(
	struct rp_grpc_server *s, const struct rp_http_handler *handlers, size_t count)
{
	s->handlers = handlers;
	s->handler_count = count;
	return 0;
}

struct rp_grpc_conn *fake_conn_new(bool remote)
{
	struct rp_grpc_conn *c = calloc(1, sizeof(*c));

	c->remote = remote;
	return c;
}

void fake_conn_free(struct rp_grpc_conn *c)
{
	if (c->on_close)
		c->on_close(c->user);
	free(c);
}

struct rp_grpc_call *fake_call_new(
	struct rp_grpc_server *s, const char *path, struct rp_grpc_conn *conn)
{
	struct rp_grpc_call *c = calloc(1, sizeof(*c));

	for (size_t i = 0; i < s->method_count; i++)
		if (strcmp(s->methods[i].path, path) == 0)
			c->method = &s->methods[i];
	RP_ASSERT(c->method != NULL);
	c->own_conn = !conn;
	c->conn = conn ? conn : fake_conn_new(false);
	c->window = SIZE_MAX;
	if (c->method->ops->on_start)
		c->method->ops->on_start(c, c->method->ctx);
	return c;
}

void fake_call_send(struct rp_grpc_call *c, const void *data, size_t length)
{
	RP_ASSERT(!c->over);
	c->method->ops->on_message(c, data, length, c->method->ctx);
}

void fake_call_half_close(struct rp_grpc_call *c)
{
	RP_ASSERT(!c->over);
	if (c->method->ops->on_half_close)
		c->method->ops->on_half_close(c, c->method->ctx);
}

const struct fake_answer *fake_call_next(struct rp_grpc_call *c)
{
	return c->answer_next < c->answer_count ? &c->answers[c->answer_next++] : NULL;
}

void fake_call_window(struct rp_grpc_call *c, size_t window)
{
	c->window = window;
	if (c->over || !c->wants_room || window == 0)
		return;
	c->wants_room = false;
	c->method->ops->on_room(c, c->method->ctx);
}

void fake_call_written(struct rp_grpc_call *c)
{
	c->queued = 0;
	for (uint32_t i = 0; i < c->answer_count; i++) {
		uint64_t cookie = c->answers[i].cookie;

		c->answers[i].cookie = 0;
		if (cookie && !c->over)
			c->method->ops->on_written(c, cookie, c->method->ctx);
	}
}

void fake_call_cancel(struct rp_grpc_call *c, enum rp_grpc_cancel why)
{
	if (c->over)
		return;
	if (c->method->ops->on_cancel)
		c->method->ops->on_cancel(c, why, c->method->ctx);
	c->over = true;
}

void fake_call_free(struct rp_grpc_call *c)
{
	fake_call_cancel(c, RP_GRPC_CANCEL_LOST);
	for (uint32_t i = 0; i < c->answer_count; i++)
		free(c->answers[i].data);
	if (c->own_conn)
		fake_conn_free(c->conn);
	free(c);
}

static int answer_add(struct rp_grpc_call *c, const void *data, size_t length, uint64_t cookie)
{
	struct fake_answer *a;

	RP_ASSERT(!c->over);
	if (c->refuse_sends || c->answer_count == FAKE_ANSWERS)
		return -ENOBUFS;
	a = &c->answers[c->answer_count++];
	a->data = malloc(length + 1);
	a->length = length;
	a->cookie = cookie;
	if (length > 0)
		memcpy(a->data, data, length);
	c->queued += length;
	if (c->window != SIZE_MAX)
		c->window -= length < c->window ? length : c->window;
	return 0;
}

int rp_grpc_call_send(struct rp_grpc_call *c, const void *data, size_t length, uint64_t cookie)
{
	return answer_add(c, data, length, cookie);
}

int rp_grpc_call_send_take(struct rp_grpc_call *c, void *data, size_t length, uint64_t cookie)
{
	int status = answer_add(c, data, length, cookie);

	free(data);
	return status;
}

void rp_grpc_call_finish(struct rp_grpc_call *c, enum rp_grpc_code code, const char *message)
{
	RP_ASSERT(!c->over);
	c->over = true;
	c->code = (int)code;
	snprintf(c->message, sizeof(c->message), "%s", message ? message : "");
}

void rp_grpc_call_reply(struct rp_grpc_call *c, const void *data, size_t length)
{
	answer_add(c, data, length, 0);
	rp_grpc_call_finish(c, RP_GRPC_OK, NULL);
}

bool rp_grpc_call_fits(struct rp_grpc_call *c, size_t length)
{
	if (length <= c->window)
		return true;
	c->wants_room = true;
	return false;
}

size_t rp_grpc_call_queued_bytes(const struct rp_grpc_call *c)
{
	return c->queued;
}

void rp_grpc_call_pause_reading(struct rp_grpc_call *c)
{
	c->paused = true;
}

void rp_grpc_call_resume_reading(struct rp_grpc_call *c)
{
	c->paused = false;
}

void rp_grpc_call_set_user(struct rp_grpc_call *c, void *user)
{
	c->user = user;
}

void *rp_grpc_call_user(const struct rp_grpc_call *c)
{
	return c->user;
}

struct rp_grpc_conn *rp_grpc_call_conn(const struct rp_grpc_call *c)
{
	return c->conn;
}

static const char *metadata_find(const struct rp_grpc_call *c, const char *name)
{
	if (strcmp(name, "hasleader") == 0)
		return fake_has_leader ? "true" : NULL;
	if (strcmp(name, "token") == 0)
		return c->token ? c->token : fake_token;
	if (strcmp(name, "authorization") == 0)
		return fake_authorization;
	if (strcmp(name, "client-api-version") == 0)
		return fake_version;
	return c->x_peer && strcmp(name, "x-peer") == 0 ? "1" : NULL;
}

const char *rp_grpc_call_metadata(const struct rp_grpc_call *c, const char *name, size_t *length)
{
	const char *value = metadata_find(c, name);

	if (value && length)
		*length = strlen(value);
	return value;
}

const char *rp_grpc_call_peer_cn(const struct rp_grpc_call *c)
{
	return fake_cn;
}

void rp_grpc_conn_set_user(struct rp_grpc_conn *c, void *user, void (*on_close)(void *user))
{
	c->user = user;
	c->on_close = on_close;
}

void *rp_grpc_conn_user(const struct rp_grpc_conn *c)
{
	return c->user;
}

const char *rp_grpc_conn_peer(const struct rp_grpc_conn *c)
{
	return "127.0.0.1:4711";
}

bool rp_grpc_conn_is_local(const struct rp_grpc_conn *c)
{
	return !c->remote;
}

void fake_http(struct rp_grpc_server *s, struct rp_http_request *r, const char *method,
	const char *path, const char *query)
{
	*r = (struct rp_http_request){.method = method, .query = query};
	for (size_t i = 0; i < s->handler_count; i++)
		if (strcmp(s->handlers[i].path, path) == 0)
			s->handlers[i].on_request(r, s->handlers[i].ctx);
}

const char *rp_http_method(const struct rp_http_request *r)
{
	return r->method;
}

bool rp_http_query_get(
	const struct rp_http_request *r, const char *name, const char **value, size_t *length)
{
	size_t n = strlen(name);

	if (strncmp(r->query, name, n) != 0 || (r->query[n] != '=' && r->query[n] != 0))
		return false;
	n += r->query[n] == '=';
	if (value)
		*value = r->query + n;
	if (length)
		*length = strlen(r->query + n);
	return true;
}

void rp_http_reply(struct rp_http_request *r, int status, const char *content_type,
	const void *body, size_t length)
{
	r->status = status;
	snprintf(r->body, sizeof(r->body), "%.*s", (int)length, (const char *)body);
}
