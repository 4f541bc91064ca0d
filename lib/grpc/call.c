/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <mbedtls/base64.h>

#include <base/assert.h>
#include <base/log.h>
#include "server_priv.h"

#define NV(n, v, l)                                                                    \
	(nghttp2_nv)                                                                   \
	{                                                                              \
		.name = (uint8_t *)(n), .namelen = strlen(n), .value = (uint8_t *)(v), \
		.valuelen = (l)                                                        \
	}

#define CALL_GZIP_BYTES_MIN 1024
#define CALL_TEXT_FULL "grpc: too many bytes of answers not read by the client"

static struct rp_grpc_call *call_of(struct grpc_stream *s)
{
	return RP_CONTAINER_OF(s, struct rp_grpc_call, stream);
}

static struct rp_grpc_conn *call_conn(const struct rp_grpc_call *call)
{
	return RP_CONTAINER_OF(call->stream.h2, struct rp_grpc_conn, h2);
}

static void call_on_deadline(void *ctx)
{
	struct rp_grpc_call *call = ctx;

	call_conn(call)->server->stats.calls_deadline++;
	call->reset_code = NGHTTP2_CANCEL;
	grpc_call_abort(call, RP_GRPC_DEADLINE_EXCEEDED, "context deadline exceeded",
		RP_GRPC_CANCEL_DEADLINE);
}

struct rp_grpc_call *grpc_call_new(struct rp_grpc_conn *conn, int32_t id)
{
	struct rp_grpc_call *call = calloc(1, sizeof(*call));

	if (!call)
		return NULL;
	grpc_stream_init(&call->stream, &conn->h2, id);
	call->stream.message_bytes_max = conn->server->config.limits.message_bytes;
	call->id = ++conn->server->next_call_id;
	call->deadline_ns = RP_NEVER;
	call->reset_code = NGHTTP2_NO_ERROR;
	rp_list_init(&call->due_node);
	rp_loop_timer_setup(&call->deadline, call_on_deadline, call);
	conn->server->stats.calls_open++;
	return call;
}

void grpc_call_free(struct rp_grpc_call *call)
{
	call_conn(call)->server->stats.calls_open--;
	grpc_http_free(call->http);
	rp_loop_timer_cancel(&call->deadline);
	rp_list_unlink(&call->due_node);
	grpc_stream_release(&call->stream);
	grpc_headers_free(&call->headers);
	free(call->message);
	free(call);
}

/* Answers. */

struct call_status {
	char code[4];
	char message[GRPC_MESSAGE_BYTES];
	size_t message_length;
};

static size_t call_status_fill(
	struct call_status *st, nghttp2_nv *nv, enum rp_grpc_code code, const char *message)
{
	size_t n = 0;

	snprintf(st->code, sizeof(st->code), "%d", (int)code);
	nv[n++] = NV("grpc-status", st->code, strlen(st->code));
	if (message && message[0]) {
		st->message_length = rp_grpc_message_encode(
			st->message, sizeof(st->message), message, strlen(message));
		nv[n++] = NV("grpc-message", st->message, st->message_length);
	}
	return n;
}

static nghttp2_nv call_content_type(const struct rp_grpc_call *call)
{
	static const char plain[] = "application/grpc";
	size_t length;
	const char *type = grpc_headers_get(&call->headers, "content-type", &length);

	if (!type || strncmp(type, plain, sizeof(plain) - 1) != 0)
		return NV("content-type", plain, sizeof(plain) - 1);
	return NV("content-type", type, length);
}

void grpc_call_submit_headers(struct rp_grpc_call *call)
{
	struct rp_grpc_conn *conn = call_conn(call);
	nghttp2_data_provider source = {
		.source.ptr = &call->stream, .read_callback = grpc_stream_read};
	nghttp2_nv nv[4] = {NV(":status", "200", 3), call_content_type(call)};
	size_t n = 2;

	if (call->answered || conn->h2.dead)
		return;
	call->answered = true;
	rp_list_unlink(&call->due_node);
	if (conn->server->config.accept_gzip)
		nv[n++] = NV("grpc-accept-encoding", "gzip", 4);
	if (call->gzip)
		nv[n++] = NV("grpc-encoding", "gzip", 4);
	(void)nghttp2_submit_response(conn->h2.session, call->stream.id, nv, n, &source);
	grpc_h2_post_flush(&conn->h2);
}

static void call_trailers_only(
	struct rp_grpc_call *call, int http_status, enum rp_grpc_code code, const char *message)
{
	struct rp_grpc_conn *conn = call_conn(call);
	struct call_status st;
	char status[16];
	nghttp2_nv nv[4];
	size_t n = 2;

	call->answered = true;
	rp_list_unlink(&call->due_node);
	if (conn->h2.dead)
		return;
	snprintf(status, sizeof(status), "%d", http_status);
	nv[0] = NV(":status", status, strlen(status));
	nv[1] = call_content_type(call);
	n += call_status_fill(&st, nv + n, code, message);
	(void)nghttp2_submit_response(conn->h2.session, call->stream.id, nv, n, NULL);
	grpc_h2_post_flush(&conn->h2);
}

void grpc_call_on_trailers(struct grpc_stream *s)
{
	struct rp_grpc_call *call = call_of(s);
	struct call_status st;
	nghttp2_nv nv[2];
	size_t n = call_status_fill(&st, nv, call->code, call->message);

	(void)nghttp2_submit_trailer(s->h2->session, s->id, nv, n);
}

/* The output side of an end: what is queued, then the status. */
static void call_end_output(struct rp_grpc_call *call, enum rp_grpc_code code, const char *message)
{
	struct grpc_stream *s = &call->stream;

	rp_loop_timer_cancel(&call->deadline);
	rp_list_unlink(&s->room_node);
	grpc_stream_discard_input(s);
	if (!call->answered && rp_list_empty(&s->out)) {
		call_trailers_only(call, 200, code, message);
		return;
	}
	call->code = code;
	/* Without memory for the text the code goes alone. */
	call->message = message && message[0] ? strdup(message) : NULL;
	grpc_call_submit_headers(call);
	grpc_stream_end_output(s);
}

void grpc_call_reset(struct rp_grpc_call *call, uint32_t error_code)
{
	struct grpc_stream *s = &call->stream;

	call->done = true;
	call->answered = true;
	call->reset = true;
	grpc_stream_discard_input(s);
	(void)nghttp2_submit_rst_stream(s->h2->session, NGHTTP2_FLAG_NONE, s->id, error_code);
	grpc_h2_post_flush(s->h2);
}

void grpc_call_abort(struct rp_grpc_call *call, enum rp_grpc_code code, const char *message,
	enum rp_grpc_cancel why)
{
	if (call->done)
		return;
	call->done = true;
	grpc_stream_drop_output(&call->stream);
	call_end_output(call, code, message);
	if (!call->visible)
		return;
	call_conn(call)->server->stats.calls_cancelled++;
	call->counts->handled[code]++;
	if (call->method->ops->on_cancel)
		call->method->ops->on_cancel(call, why, call->method->ctx);
}

/* Answers a request that the service does not get to see. */
static void call_refuse(
	struct rp_grpc_call *call, int http_status, enum rp_grpc_code code, const char *message)
{
	call->done = true;
	grpc_stream_discard_input(&call->stream);
	call_trailers_only(call, http_status, code, message);
}

/* Requests. */

bool grpc_call_length_wrong(const struct rp_grpc_call *call)
{
	uint64_t told;

	return grpc_headers_content_length(&call->headers, &told) && told != RP_NEVER &&
	       told != call->stream.in_total;
}

void grpc_call_refuse_malformed(struct rp_grpc_call *call)
{
	call_conn(call)->server->stats.calls_refused_header++;
	grpc_call_abort(call, RP_GRPC_INTERNAL, "malformed request", RP_GRPC_CANCEL_REFUSED);
	grpc_call_reset(call, NGHTTP2_PROTOCOL_ERROR);
}

static bool call_is_grpc(const char *type)
{
	static const char prefix[] = "application/grpc";
	size_t n = sizeof(prefix) - 1;

	return type && strncmp(type, prefix, n) == 0 &&
	       (type[n] == 0 || type[n] == '+' || type[n] == ';');
}

static bool call_set_deadline(struct rp_grpc_call *call)
{
	size_t length;
	const char *text = grpc_headers_get(&call->headers, "grpc-timeout", &length);
	struct rp_loop *loop = call->stream.h2->loop;
	char message[128];
	const char *why = "transport: timeout unit is not recognized";
	uint64_t ns, now = rp_loop_now_ns(loop);

	if (!text)
		return true;
	if (rp_grpc_timeout_parse(text, length, &ns) < 0) {
		if (length < 2)
			why = "transport: timeout string is too short";
		else if (length > 9)
			why = "transport: timeout string is too long";
		snprintf(message, sizeof(message), "malformed grpc-timeout: %s: \"%.32s\"", why,
			text);
		call_refuse(call, 400, RP_GRPC_INTERNAL, message);
		return false;
	}
	call->deadline_ns = ns < RP_NEVER - now ? now + ns : RP_NEVER;
	rp_loop_timer_at(loop, &call->deadline, call->deadline_ns);
	return true;
}

static void call_refuse_path(struct rp_grpc_call *call, const char *path)
{
	struct rp_grpc_server *server = call_conn(call)->server;
	const char *slash = path[0] == '/' ? strrchr(path + 1, '/') : NULL;
	char message[512];

	server->stats.calls_refused_method++;
	if (!slash)
		snprintf(message, sizeof(message), "malformed method name: \"%.200s\"", path);
	else if (grpc_server_has_service(server, path, (size_t)(slash - path)))
		snprintf(message, sizeof(message), "unknown method %.200s for service %.*s",
			slash + 1, (int)RP_MIN(slash - path - 1, 200), path + 1);
	else
		snprintf(message, sizeof(message), "unknown service %.*s",
			(int)RP_MIN(slash - path - 1, 400), path + 1);
	call_refuse(call, 200, RP_GRPC_UNIMPLEMENTED, message);
}

/* A request that is not gRPC goes to the HTTP handlers when one has its path. */
static void call_begin_http(struct rp_grpc_call *call, const char *method, const char *path)
{
	struct rp_grpc_conn *conn = call_conn(call);
	bool posted = strcmp(method, "POST") == 0 && grpc_server_method(conn->server, path);

	call->done = true;
	call->stream.raw = true;
	call->http = grpc_http_new(conn, &call->headers, method, path);
	if (!call->http) {
		grpc_call_reset(call, NGHTTP2_INTERNAL_ERROR);
		return;
	}
	call->http->call = call;
	if (posted)
		grpc_http_refuse(call->http, 415);
}

/* Answers are compressed for a client that compresses its requests and says that it takes it. */
static bool call_wants_gzip(const struct rp_grpc_call *call)
{
	const char *sent = grpc_headers_get(&call->headers, "grpc-encoding", NULL);
	const char *taken = grpc_headers_get(&call->headers, "grpc-accept-encoding", NULL);

	return call_conn(call)->server->config.accept_gzip && sent && strcmp(sent, "gzip") == 0 &&
	       taken && strstr(taken, "gzip");
}

static void call_start(struct rp_grpc_call *call)
{
	struct rp_grpc_conn *conn = call_conn(call);
	const struct rp_grpc_method *m = call->method;

	if (m->message_bytes_max > 0)
		call->stream.message_bytes_max = m->message_bytes_max;
	call->gzip = call_wants_gzip(call);
	conn->server->stats.calls_started++;
	call->counts->started++;
	call->visible = true;
	/* Streams answer with HEADERS before any message, unless they end first. */
	if (m->kind == RP_GRPC_SERVER_STREAM || m->kind == RP_GRPC_BIDI) {
		rp_list_push_back(&conn->headers_due, &call->due_node);
		grpc_h2_post_flush(&conn->h2);
	}
	if (m->ops->on_start)
		m->ops->on_start(call, m->ctx);
}

void grpc_call_begin(struct rp_grpc_call *call)
{
	struct rp_grpc_server *server = call_conn(call)->server;
	const char *method = grpc_headers_get(&call->headers, ":method", NULL);
	const char *path = grpc_headers_get(&call->headers, ":path", NULL);
	struct grpc_method_entry *entry;
	char text[160];

	if (call->overflow) {
		server->stats.calls_refused_header++;
		call_refuse(call, 200, RP_GRPC_RESOURCE_EXHAUSTED,
			"grpc: header list larger than the limit");
		return;
	}
	if (call->malformed || !method || !path || !grpc_headers_check_request(&call->headers)) {
		server->stats.calls_refused_header++;
		grpc_call_reset(call, NGHTTP2_PROTOCOL_ERROR);
		return;
	}
	if (!call_is_grpc(grpc_headers_get(&call->headers, "content-type", NULL))) {
		call_begin_http(call, method, path);
		return;
	}
	if (strcmp(method, "POST") != 0) {
		server->stats.calls_refused_header++;
		snprintf(text, sizeof(text),
			"Received a HEADERS frame with :method \"%.32s\" which should be POST",
			method);
		call_refuse(call, 405, RP_GRPC_INTERNAL, text);
		return;
	}
	entry = grpc_server_method(server, path);
	if (entry) {
		call->method = entry->method;
		call->counts = &entry->stats;
	}
	if (!entry)
		call_refuse_path(call, path);
	else if (server->stopped)
		call_refuse(call, 200, RP_GRPC_UNAVAILABLE, server->drain_text);
	else if (call_set_deadline(call))
		call_start(call);
}

/* Once an answer has found no room, until half of what waits has been read. */
static bool call_answers_full(struct rp_grpc_conn *conn)
{
	if (conn->answers_full)
		conn->answers_full = grpc_h2_queued_bytes(&conn->h2) >
				     conn->server->config.limits.conn_out_bytes / 2;
	return conn->answers_full;
}

static void call_message(struct rp_grpc_call *call, const uint8_t *data, size_t length)
{
	const struct rp_grpc_method *m = call->method;
	bool one = m->kind == RP_GRPC_UNARY || m->kind == RP_GRPC_SERVER_STREAM;

	/* Of a method that takes one message, further ones are not looked at. */
	if (one && call->got_message)
		return;
	call->got_message = true;
	call->counts->messages_in++;
	/* An answer that nobody reads is not worked for. */
	if (one && !call->bridge && call_answers_full(call_conn(call))) {
		call_conn(call)->server->stats.calls_refused_memory++;
		grpc_call_abort(
			call, RP_GRPC_RESOURCE_EXHAUSTED, CALL_TEXT_FULL, RP_GRPC_CANCEL_REFUSED);
		return;
	}
	if (m->ops->on_message)
		m->ops->on_message(call, data, length, m->ctx);
}

static void call_refuse_framing(
	struct rp_grpc_call *call, enum rp_grpc_code code, const char *message)
{
	call_conn(call)->server->stats.calls_refused_framing++;
	grpc_call_abort(call, code, message, RP_GRPC_CANCEL_REFUSED);
}

static void call_refuse_size(struct rp_grpc_call *call, size_t length, size_t max)
{
	char text[96];

	call_conn(call)->server->stats.calls_refused_size++;
	snprintf(text, sizeof(text), "grpc: received message larger than max (%zu vs. %zu)", length,
		max);
	grpc_call_abort(call, RP_GRPC_RESOURCE_EXHAUSTED, text, RP_GRPC_CANCEL_REFUSED);
}

static void call_compressed(struct rp_grpc_call *call, const uint8_t *data, size_t length)
{
	size_t max = call->stream.message_bytes_max, inflated;
	const char *encoding = grpc_headers_get(&call->headers, "grpc-encoding", NULL);
	uint8_t *out;
	char text[128];
	int error;

	if (!encoding || !encoding[0] || strcmp(encoding, "identity") == 0) {
		call_refuse_framing(call, RP_GRPC_INTERNAL,
			"grpc: compressed flag set with identity or empty encoding");
		return;
	}
	if (strcmp(encoding, "gzip") != 0 || !call_conn(call)->server->config.accept_gzip) {
		snprintf(text, sizeof(text),
			"grpc: Decompressor is not installed for grpc-encoding \"%.32s\"",
			encoding);
		call_refuse_framing(call, RP_GRPC_UNIMPLEMENTED, text);
		return;
	}
	error = grpc_gzip_inflate(data, length, max, &out, &inflated);
	if (error == -E2BIG) {
		call_refuse_size(call, max + 1, max);
	} else if (error < 0) {
		call_refuse_framing(
			call, RP_GRPC_INTERNAL, "grpc: failed to decompress the received message");
	} else {
		call_message(call, out, inflated);
		free(out);
	}
}

void grpc_call_on_message(
	struct grpc_stream *s, bool compressed, const uint8_t *data, size_t length)
{
	struct rp_grpc_call *call = call_of(s);

	if (call->done)
		return;
	if (compressed)
		call_compressed(call, data, length);
	else
		call_message(call, data, length);
}

void grpc_call_on_body(struct grpc_stream *s, const uint8_t *data, size_t length)
{
	struct rp_http_request *r = call_of(s)->http;

	if (!r->done && grpc_http_add_body(r, data, length) < 0)
		grpc_http_refuse(r, 413);
}

void grpc_call_on_half_closed(struct grpc_stream *s)
{
	struct rp_grpc_call *call = call_of(s);
	const struct rp_grpc_method *m = call->method;

	if (call->http) {
		if (!call->http->done)
			grpc_http_dispatch(call->http);
		return;
	}
	if (call->done)
		return;
	if (m->kind == RP_GRPC_UNARY || m->kind == RP_GRPC_SERVER_STREAM) {
		if (!call->got_message)
			call_refuse_framing(call, RP_GRPC_UNIMPLEMENTED,
				"grpc: the method takes one request message, got none");
	} else if (m->ops->on_half_close) {
		m->ops->on_half_close(call, m->ctx);
	}
}

void grpc_call_on_bad(struct grpc_stream *s, enum grpc_bad why, size_t length)
{
	struct rp_grpc_call *call = call_of(s);
	char text[96];

	switch (why) {
	case GRPC_BAD_FLAG:
		snprintf(text, sizeof(text), "grpc: received unexpected payload format %u",
			(unsigned)s->prefix[0]);
		call_refuse_framing(call, RP_GRPC_INTERNAL, text);
		break;
	case GRPC_BAD_SIZE:
		call_refuse_size(call, length, s->message_bytes_max);
		break;
	case GRPC_BAD_TRUNCATED:
		call_refuse_framing(call, RP_GRPC_INTERNAL, "unexpected EOF");
		break;
	case GRPC_BAD_MEMORY:
		call_conn(call)->server->stats.calls_refused_memory++;
		grpc_call_abort(call, RP_GRPC_RESOURCE_EXHAUSTED,
			"grpc: too many bytes of unfinished requests", RP_GRPC_CANCEL_REFUSED);
		break;
	}
}

void grpc_call_on_room(struct grpc_stream *s)
{
	struct rp_grpc_call *call = call_of(s);

	if (call->http)
		grpc_http_room(call->http);
	else if (!call->done && call->visible && call->method->ops->on_room)
		call->method->ops->on_room(call, call->method->ctx);
}

void grpc_call_on_written(struct grpc_stream *s, uint64_t cookie)
{
	struct rp_grpc_call *call = call_of(s);

	if (call->http)
		grpc_http_written(call->http, cookie);
	else if (!call->done && call->visible && call->method->ops->on_written)
		call->method->ops->on_written(call, cookie, call->method->ctx);
}

void grpc_call_on_closed(struct grpc_stream *s, uint32_t error_code)
{
	struct rp_grpc_call *call = call_of(s);
	struct rp_grpc_conn *conn = call_conn(call);

	if (!call->done) {
		call->done = true;
		if (call->visible) {
			conn->server->stats.calls_cancelled++;
			call->counts->handled[RP_GRPC_CANCELLED]++;
			if (call->method->ops->on_cancel)
				call->method->ops->on_cancel(
					call, conn->cancel_why, call->method->ctx);
		}
	}
	grpc_call_free(call);
}

/* The service's side. */

/* Small answers gain nothing, and what does not shrink goes as it is. */
static int call_push(
	struct rp_grpc_call *call, void *data, size_t length, bool take, uint64_t cookie)
{
	struct grpc_stream *s = &call->stream;
	uint8_t *small;
	size_t small_length;
	int error;

	if (!call->gzip || length < CALL_GZIP_BYTES_MIN ||
		grpc_gzip_deflate(data, length, &small, &small_length) < 0)
		return grpc_stream_push(s, data, length, take, cookie);
	if (small_length >= length) {
		free(small);
		return grpc_stream_push(s, data, length, take, cookie);
	}
	s->compressed = true;
	error = grpc_stream_push(s, small, small_length, true, cookie);
	s->compressed = false;
	if (take)
		free(data);
	return error;
}

static int call_send(
	struct rp_grpc_call *call, void *data, size_t length, bool take, uint64_t cookie)
{
	struct rp_grpc_conn *conn = call_conn(call);
	const struct rp_grpc_limits *limits = &conn->server->config.limits;
	struct grpc_stream *s = &call->stream;
	bool streaming =
		call->method->kind == RP_GRPC_SERVER_STREAM || call->method->kind == RP_GRPC_BIDI;
	size_t queued = grpc_h2_queued_bytes(&conn->h2);
	int error;

	RP_ASSERT(!call->done);
	if (call->bridge) {
		error = call->bridge->message(call->bridge_ctx, data, length, cookie);
		call->counts->messages_out += error == 0;
		if (take)
			free(data);
		return error;
	}
	if ((streaming && s->out_bytes > 0 && s->out_bytes + length > limits->call_out_bytes) ||
		(queued > 0 && queued + length > limits->conn_out_bytes)) {
		conn->answers_full |= queued + length > limits->conn_out_bytes;
		if (take)
			free(data);
		return -ENOBUFS;
	}
	error = call_push(call, data, length, take, cookie);
	if (error == 0) {
		call->counts->messages_out++;
		grpc_call_submit_headers(call);
	}
	return error;
}

int rp_grpc_call_send(struct rp_grpc_call *call, const void *data, size_t length, uint64_t cookie)
{
	return call_send(call, (void *)data, length, false, cookie);
}

int rp_grpc_call_send_take(struct rp_grpc_call *call, void *data, size_t length, uint64_t cookie)
{
	return call_send(call, data, length, true, cookie);
}

void rp_grpc_call_finish(struct rp_grpc_call *call, enum rp_grpc_code code, const char *message)
{
	RP_ASSERT(!call->done);
	if (call->bridge) {
		grpc_bridge_finish(call, code, message);
		return;
	}
	call->done = true;
	call_conn(call)->server->stats.calls_finished++;
	call->counts->handled[code]++;
	call_end_output(call, code, message);
}

void rp_grpc_call_reply(struct rp_grpc_call *call, const void *data, size_t length)
{
	int error = rp_grpc_call_send(call, data, length, 0);

	if (error < 0)
		rp_grpc_call_finish(call, RP_GRPC_RESOURCE_EXHAUSTED, CALL_TEXT_FULL);
	else
		rp_grpc_call_finish(call, RP_GRPC_OK, NULL);
}

size_t rp_grpc_call_room(const struct rp_grpc_call *call)
{
	if (call->bridge)
		return rp_http_room(call->bridge_request);
	return grpc_stream_room(&call->stream);
}

bool rp_grpc_call_fits(struct rp_grpc_call *call, size_t length)
{
	/* As JSON it grows: base64, names. */
	if (call->bridge)
		return rp_http_fits(call->bridge_request, length * 2);
	return grpc_stream_fits(&call->stream, length);
}

size_t rp_grpc_call_queued_bytes(const struct rp_grpc_call *call)
{
	if (call->bridge)
		return rp_http_queued_bytes(call->bridge_request);
	return call->stream.out_bytes;
}

void rp_grpc_call_pause_reading(struct rp_grpc_call *call)
{
	grpc_stream_pause(&call->stream);
}

void rp_grpc_call_resume_reading(struct rp_grpc_call *call)
{
	grpc_stream_resume(&call->stream);
}

void rp_grpc_call_set_user(struct rp_grpc_call *call, void *user)
{
	call->user = user;
}

void *rp_grpc_call_user(const struct rp_grpc_call *call)
{
	return call->user;
}

struct rp_grpc_conn *rp_grpc_call_conn(const struct rp_grpc_call *call)
{
	return call_conn(call);
}

const struct rp_grpc_method *rp_grpc_call_method(const struct rp_grpc_call *call)
{
	return call->method;
}

const char *rp_grpc_call_peer_cn(const struct rp_grpc_call *call)
{
	return call->bridge ? NULL : rp_grpc_conn_peer_cn(call_conn(call));
}

uint64_t rp_grpc_call_id(const struct rp_grpc_call *call)
{
	return call->id;
}

uint64_t rp_grpc_call_deadline_ns(const struct rp_grpc_call *call)
{
	return call->deadline_ns;
}

const char *rp_grpc_call_metadata(const struct rp_grpc_call *call, const char *name, size_t *length)
{
	return grpc_headers_get(&call->headers, name, length);
}

ssize_t rp_grpc_call_metadata_bin(
	const struct rp_grpc_call *call, const char *name, uint8_t *out, size_t size)
{
	size_t length, done;
	const char *text = grpc_headers_get(&call->headers, name, &length);
	char padded[8192];
	int ret;

	if (!text)
		return -ENOENT;
	/* Padding may be left out on the wire; the decoder wants it. */
	if (length + 3 > sizeof(padded))
		return -EINVAL;
	memcpy(padded, text, length);
	while (length % 4 != 0)
		padded[length++] = '=';
	ret = mbedtls_base64_decode(out, size, &done, (const unsigned char *)padded, length);
	if (ret == MBEDTLS_ERR_BASE64_BUFFER_TOO_SMALL)
		return -ENOSPC;
	return ret != 0 ? -EINVAL : (ssize_t)done;
}
