/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client_priv.h"
#include <base/assert.h>

#define CALL_FIXED_HEADERS 8
#define CALL_HEADERS_MAX 64

static struct rp_grpc_client_call *call_of(struct grpc_stream *s)
{
	return RP_CONTAINER_OF(s, struct rp_grpc_client_call, stream);
}

static void call_free(struct rp_grpc_client_call *call)
{
	rp_loop_timer_cancel(&call->deadline);
	grpc_stream_release(&call->stream);
	free(call->answer);
	free(call);
}

/* Tells the caller, once. */
static void call_finish(
	struct rp_grpc_client_call *call, enum rp_grpc_code code, const char *message)
{
	if (call->done)
		return;
	call->done = true;
	rp_loop_timer_cancel(&call->deadline);
	rp_list_unlink(&call->stream.room_node);
	grpc_stream_discard_input(&call->stream);
	if (call->unary && code == RP_GRPC_OK && !call->answered) {
		code = RP_GRPC_INTERNAL;
		message = "grpc: the server sent no message";
	}
	if (call->unary)
		call->unary(call->ctx, code, message, code == RP_GRPC_OK ? call->answer : NULL,
			code == RP_GRPC_OK ? call->answer_length : 0);
	else
		call->ops->on_finish(call, code, message, call->ctx);
}

/* Ends the stream; its memory goes when nghttp2 has closed it, or by the task when it has none. */
static void call_reset(struct rp_grpc_client_call *call, uint32_t error_code)
{
	struct grpc_h2 *h2 = &call->channel->h2;
	struct grpc_stream *s = &call->stream;

	grpc_stream_drop_output(s);
	if (s->id < 0 || call->detached)
		rp_loop_task_post(call->channel->loop, &call->channel->fail_task);
	else if (h2->session && !h2->dead)
		(void)nghttp2_submit_rst_stream(h2->session, NGHTTP2_FLAG_NONE, s->id, error_code);
	grpc_h2_post_flush(h2);
}

static void call_fail(struct rp_grpc_client_call *call, enum rp_grpc_code code, const char *message)
{
	if (call->done)
		return;
	call_reset(call, NGHTTP2_CANCEL);
	call_finish(call, code, message);
}

static void call_on_deadline(void *ctx)
{
	struct rp_grpc_client_call *call = ctx;
	struct grpc_h2 *h2 = &call->channel->h2;

	grpc_h2_enter(h2);
	call_fail(call, RP_GRPC_DEADLINE_EXCEEDED, "context deadline exceeded");
	grpc_h2_leave(h2);
}

/*
 * Within enter and leave a callback frees no call, so walking on from one is safe; what it starts
 * comes behind `last` and is not walked over.
 */
void grpc_channel_end_calls(
	struct rp_grpc_channel *channel, enum rp_grpc_code code, const char *message)
{
	struct rp_list *head = &channel->h2.streams, *last = head->prev, *n;

	RP_ASSERT(channel->h2.busy > 0);
	for (n = head->next; n != head; n = n->next) {
		call_finish(call_of(rp_list_entry(n, struct grpc_stream, node)), code, message);
		if (n == last)
			break;
	}
}

/* Calls without a stream: told here, since not within the function that started them. */
void grpc_client_fail_task(void *ctx)
{
	struct rp_grpc_channel *channel = ctx;
	struct rp_list *head = &channel->h2.streams, *last = head->prev, *n, *next;
	bool more = !rp_list_empty(head);

	grpc_h2_enter(&channel->h2);
	for (n = head->next; more; n = next) {
		struct rp_grpc_client_call *call =
			call_of(rp_list_entry(n, struct grpc_stream, node));

		if (call->stream.id < 0)
			call_finish(call, RP_GRPC_UNAVAILABLE,
				channel->reason[0] ? channel->reason : "grpc: not connected");
		more = n != last;
		next = n->next;
		if (call->stream.id < 0 || (call->detached && call->done))
			call_free(call);
	}
	grpc_h2_leave(&channel->h2);
}

/* What the server's answer says. */

void grpc_call_deliver_headers(struct rp_grpc_client_call *call, const uint8_t *name,
	size_t name_length, const uint8_t *value, size_t value_length)
{
	static const char type[] = "application/grpc";
	const char *v = (const char *)value;
	size_t n;

#define IS(text) (name_length == sizeof(text) - 1 && memcmp(name, text, sizeof(text) - 1) == 0)
	if (IS(":status")) {
		call->http_status = 0;
		for (size_t i = 0; i < value_length && i < 3 && v[i] >= '0' && v[i] <= '9'; i++)
			call->http_status = call->http_status * 10 + (v[i] - '0');
	} else if (IS("content-type")) {
		call->grpc_type =
			value_length >= sizeof(type) - 1 && memcmp(v, type, sizeof(type) - 1) == 0;
	} else if (IS("grpc-status")) {
		call->code = (int)rp_grpc_code_parse(v, value_length);
	} else if (IS("grpc-message")) {
		n = rp_grpc_message_decode(
			call->message, sizeof(call->message) - 1, v, value_length);
		call->message[n] = 0;
	}
#undef IS
}

static void call_conclude(struct rp_grpc_client_call *call, uint32_t error_code)
{
	char text[160];

	if (call->done)
		return;
	if (call->code >= 0) {
		call_finish(call, (enum rp_grpc_code)call->code, call->message);
		return;
	}
	if (call->http_status != 0 && (call->http_status != 200 || !call->grpc_type)) {
		snprintf(text, sizeof(text), "unexpected HTTP status code received from server: %d",
			call->http_status);
		call_finish(call,
			call->http_status == 200 ? RP_GRPC_UNKNOWN
						 : rp_grpc_code_from_http(call->http_status),
			text);
		return;
	}
	snprintf(text, sizeof(text), "stream terminated by RST_STREAM with error code: %s",
		nghttp2_http2_strerror(error_code));
	switch (error_code) {
	case NGHTTP2_NO_ERROR:
		call_finish(call, RP_GRPC_INTERNAL,
			"server closed the stream without sending trailers");
		break;
	case NGHTTP2_REFUSED_STREAM:
		call_finish(call, RP_GRPC_UNAVAILABLE, text);
		break;
	case NGHTTP2_CANCEL:
		call_finish(call, RP_GRPC_CANCELLED, text);
		break;
	case NGHTTP2_ENHANCE_YOUR_CALM:
		call_finish(call, RP_GRPC_RESOURCE_EXHAUSTED, text);
		break;
	case NGHTTP2_INADEQUATE_SECURITY:
		call_finish(call, RP_GRPC_PERMISSION_DENIED, text);
		break;
	default:
		call_finish(call, RP_GRPC_INTERNAL, text);
	}
}

void grpc_client_on_message(
	struct grpc_stream *s, bool compressed, const uint8_t *data, size_t length)
{
	struct rp_grpc_client_call *call = call_of(s);

	if (call->done)
		return;
	if (compressed) {
		call_fail(call, RP_GRPC_INTERNAL,
			"grpc: compressed message, and no encoding was offered");
		return;
	}
	if (!call->unary) {
		if (call->ops->on_message)
			call->ops->on_message(call, data, length, call->ctx);
		return;
	}
	if (call->answered) {
		call_fail(call, RP_GRPC_INTERNAL, "grpc: more than one message in answer");
		return;
	}
	call->answer = malloc(length + 1);
	if (!call->answer) {
		call_fail(call, RP_GRPC_RESOURCE_EXHAUSTED, "grpc: no memory for the answer");
		return;
	}
	memcpy(call->answer, data, length);
	call->answer_length = length;
	call->answered = true;
}

void grpc_client_on_half_closed(struct grpc_stream *s)
{
	struct rp_grpc_client_call *call = call_of(s);
	nghttp2_session *session = s->h2->session;
	bool detached = call->detached;
	/* Our half, when it is open still, is of no use any more. */
	bool open = nghttp2_session_get_stream_local_close(session, s->id) == 0;

	call_conclude(call, NGHTTP2_NO_ERROR);
	if (detached)
		call_free(call);
	else if (open)
		call_reset(call, NGHTTP2_CANCEL);
}

void grpc_client_on_bad(struct grpc_stream *s, enum grpc_bad why, size_t length)
{
	struct rp_grpc_client_call *call = call_of(s);
	char text[96];

	switch (why) {
	case GRPC_BAD_FLAG:
		snprintf(text, sizeof(text), "grpc: received unexpected payload format %u",
			(unsigned)s->prefix[0]);
		call_fail(call, RP_GRPC_INTERNAL, text);
		break;
	case GRPC_BAD_SIZE:
		snprintf(text, sizeof(text), "grpc: received message larger than max (%zu vs. %zu)",
			length, s->message_bytes_max);
		call_fail(call, RP_GRPC_RESOURCE_EXHAUSTED, text);
		break;
	case GRPC_BAD_TRUNCATED:
		/* With a status of its own the server has said why it ended early. */
		if (call->code > 0)
			call_conclude(call, NGHTTP2_NO_ERROR);
		call_fail(call, RP_GRPC_INTERNAL, "unexpected EOF");
		break;
	case GRPC_BAD_MEMORY:
		call_fail(call, RP_GRPC_RESOURCE_EXHAUSTED,
			"grpc: too many bytes of unfinished answers");
		break;
	}
}

void grpc_client_on_room(struct grpc_stream *s)
{
	struct rp_grpc_client_call *call = call_of(s);

	if (!call->done && call->ops && call->ops->on_room)
		call->ops->on_room(call, call->ctx);
}

void grpc_client_on_written(struct grpc_stream *s, uint64_t cookie)
{
}

void grpc_client_on_closed(struct grpc_stream *s, uint32_t error_code)
{
	struct rp_grpc_client_call *call = call_of(s);

	/* What is held comes first; the end follows when the caller reads on. */
	if (!call->done && s->in_eof && !s->in_done && !s->in_discard && !s->h2->dead) {
		call->detached = true;
		return;
	}
	call_conclude(call, error_code);
	call_free(call);
}

void grpc_client_input_end(struct rp_grpc_client_call *call)
{
	grpc_stream_input_end(&call->stream);
}

/* Starting. */

static nghttp2_nv call_nv(const char *name, const char *value)
{
	return (nghttp2_nv){.name = (uint8_t *)name,
		.namelen = strlen(name),
		.value = (uint8_t *)value,
		.valuelen = strlen(value)};
}

static int call_submit(struct rp_grpc_client_call *call, const char *path,
	const struct rp_grpc_header *headers, size_t header_count, uint64_t deadline_ns)
{
	struct rp_grpc_channel *channel = call->channel;
	nghttp2_data_provider source = {
		.source.ptr = &call->stream, .read_callback = grpc_stream_read};
	nghttp2_nv nv[CALL_HEADERS_MAX];
	uint64_t now = rp_loop_now_ns(channel->loop);
	char timeout[16];
	int32_t id;
	size_t n = 0;

	if (header_count > CALL_HEADERS_MAX - CALL_FIXED_HEADERS)
		return -E2BIG;
	nv[n++] = call_nv(":method", "POST");
	nv[n++] = call_nv(":scheme", channel->config.tls ? "https" : "http");
	nv[n++] = call_nv(":path", path);
	nv[n++] = call_nv(":authority", channel->authority);
	nv[n++] = call_nv("content-type", "application/grpc");
	nv[n++] = call_nv("te", "trailers");
	nv[n++] = call_nv("user-agent", channel->user_agent);
	if (deadline_ns != RP_NEVER) {
		rp_grpc_timeout_format(timeout, deadline_ns > now ? deadline_ns - now : 1);
		nv[n++] = call_nv("grpc-timeout", timeout);
	}
	for (size_t i = 0; i < header_count; i++)
		nv[n++] = call_nv(headers[i].name, headers[i].value);
	id = nghttp2_submit_request(channel->h2.session, NULL, nv, n, &source, &call->stream);
	if (id == NGHTTP2_ERR_STREAM_ID_NOT_AVAILABLE)
		grpc_h2_lost(&channel->h2, 0, "stream numbers are used up");
	if (id < 0)
		return -EPIPE;
	call->stream.id = id;
	grpc_h2_post_flush(&channel->h2);
	return 0;
}

static struct rp_grpc_client_call *call_start(struct rp_grpc_channel *channel, const char *path,
	const struct rp_grpc_header *headers, size_t header_count, uint64_t deadline_ns)
{
	struct rp_grpc_client_call *call = channel->destroyed ? NULL : calloc(1, sizeof(*call));

	if (!call) {
		errno = channel->destroyed ? ESHUTDOWN : ENOMEM;
		return NULL;
	}
	call->channel = channel;
	call->code = -1;
	grpc_stream_init(&call->stream, &channel->h2, -1);
	call->stream.message_bytes_max = channel->config.message_bytes_max;
	rp_loop_timer_setup(&call->deadline, call_on_deadline, call);
	if (channel->state != RP_GRPC_CHANNEL_READY || channel->going_away || channel->h2.dead ||
		call_submit(call, path, headers, header_count, deadline_ns) < 0) {
		rp_loop_task_post(channel->loop, &channel->fail_task);
		return call;
	}
	rp_loop_timer_at(channel->loop, &call->deadline, deadline_ns);
	return call;
}

struct rp_grpc_client_call *rp_grpc_channel_call(struct rp_grpc_channel *channel, const char *path,
	const struct rp_grpc_header *headers, size_t header_count, uint64_t deadline_ns,
	const struct rp_grpc_client_ops *ops, void *ctx)
{
	struct rp_grpc_client_call *call =
		call_start(channel, path, headers, header_count, deadline_ns);

	if (call) {
		call->ops = ops;
		call->ctx = ctx;
	}
	return call;
}

struct rp_grpc_client_call *rp_grpc_channel_unary(struct rp_grpc_channel *channel, const char *path,
	const struct rp_grpc_header *headers, size_t header_count, uint64_t deadline_ns,
	const void *data, size_t length, rp_grpc_unary_fn done, void *ctx)
{
	struct rp_grpc_client_call *call =
		call_start(channel, path, headers, header_count, deadline_ns);
	int error;

	if (!call)
		return NULL;
	call->unary = done;
	call->ctx = ctx;
	error = call->stream.id < 0 ? 0 : rp_grpc_client_call_send(call, data, length);
	if (error == 0) {
		rp_grpc_client_call_half_close(call);
		return call;
	}
	/* Told later, as any failure: the stream is reset, and the code stands for its end. */
	call->code = RP_GRPC_RESOURCE_EXHAUSTED;
	snprintf(call->message, sizeof(call->message), "grpc: too many bytes queued");
	call_reset(call, NGHTTP2_CANCEL);
	return call;
}

int rp_grpc_client_call_send(struct rp_grpc_client_call *call, const void *data, size_t length)
{
	struct rp_grpc_channel *channel = call->channel;
	size_t queued = grpc_h2_queued_bytes(&channel->h2);

	if (call->ended || call->done || call->stream.id < 0 || channel->h2.dead)
		return -EPIPE;
	if (queued > 0 && queued + length > channel->config.out_bytes_max)
		return -ENOBUFS;
	return grpc_stream_push(&call->stream, data, length, false, 0);
}

void rp_grpc_client_call_half_close(struct rp_grpc_client_call *call)
{
	if (call->ended || call->done)
		return;
	call->ended = true;
	if (call->stream.id >= 0)
		grpc_stream_end_output(&call->stream);
}

void rp_grpc_client_call_cancel(struct rp_grpc_client_call *call)
{
	if (call->done)
		return;
	call->done = true;
	rp_loop_timer_cancel(&call->deadline);
	rp_list_unlink(&call->stream.room_node);
	grpc_stream_discard_input(&call->stream);
	call_reset(call, NGHTTP2_CANCEL);
}

size_t rp_grpc_client_call_room(const struct rp_grpc_client_call *call)
{
	return call->done ? 0 : grpc_stream_room(&call->stream);
}

bool rp_grpc_client_call_fits(struct rp_grpc_client_call *call, size_t length)
{
	return !call->done && grpc_stream_fits(&call->stream, length);
}

void rp_grpc_client_call_pause_reading(struct rp_grpc_client_call *call)
{
	grpc_stream_pause(&call->stream);
}

void rp_grpc_client_call_resume_reading(struct rp_grpc_client_call *call)
{
	grpc_stream_resume(&call->stream);
}
