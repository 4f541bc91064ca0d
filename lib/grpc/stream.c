/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <base/assert.h>
#include <base/units.h>
#include "h2_priv.h"

static void stream_resume_task(void *ctx);

void grpc_stream_init(struct grpc_stream *s, struct grpc_h2 *h2, int32_t id)
{
	s->h2 = h2;
	s->id = id;
	rp_list_init(&s->out);
	rp_list_init(&s->room_node);
	rp_list_push_back(&h2->streams, &s->node);
	h2->stream_count++;
	rp_loop_task_setup(&s->resume_task, stream_resume_task, s);
}

void grpc_msg_free(struct grpc_msg *m)
{
	if (m->owned)
		free(m->data);
	free(m);
}

/* Messages of this stream on a list of the connection. */
static void stream_drop_listed(struct grpc_stream *s, struct rp_list *list)
{
	struct rp_list *n, *t;

	rp_list_foreach_safe (n, t, list) {
		struct grpc_msg *m = rp_list_entry(n, struct grpc_msg, node);

		if (m->stream != s)
			continue;
		rp_list_unlink(n);
		grpc_msg_free(m);
		s->unwritten--;
	}
}

static void stream_free_held(struct grpc_stream *s)
{
	s->h2->in_bytes -= s->held_tail - s->held_head;
	free(s->held);
	s->held = NULL;
	s->held_head = s->held_tail = s->held_size = 0;
}

static void stream_free_body(struct grpc_stream *s)
{
	s->h2->in_bytes -= s->body_have;
	free(s->body);
	s->body = NULL;
	s->body_have = s->body_size = 0;
}

static void stream_repay(struct grpc_stream *s)
{
	if (s->owed > 0 && s->h2->session)
		(void)nghttp2_session_consume_connection(s->h2->session, s->owed);
	s->owed = 0;
}

void grpc_stream_release(struct grpc_stream *s)
{
	struct grpc_h2 *h2 = s->h2;
	struct rp_list *n;

	while ((n = rp_list_pop_front(&s->out)) != NULL)
		grpc_msg_free(rp_list_entry(n, struct grpc_msg, node));
	h2->out_bytes -= s->out_bytes;
	s->out_bytes = 0;
	if (s->unwritten > 0) {
		stream_drop_listed(s, &h2->unmarked);
		stream_drop_listed(s, &h2->written);
	}
	stream_free_held(s);
	stream_free_body(s);
	stream_repay(s);
	rp_loop_task_cancel(&s->resume_task);
	rp_list_unlink(&s->room_node);
	rp_list_unlink(&s->node);
	h2->stream_count--;
}

/* Output. */

int grpc_stream_push(
	struct grpc_stream *s, const void *data, size_t length, bool take, uint64_t cookie)
{
	struct grpc_h2 *h2 = s->h2;
	struct grpc_msg *m = malloc(sizeof(*m) + (take ? 0 : length));
	size_t bytes = length + (s->raw ? 0 : GRPC_PREFIX_BYTES);

	if (!m || length > UINT32_MAX) {
		free(m);
		if (take)
			free((void *)data);
		return -ENOMEM;
	}
	m->stream = s;
	m->cookie = cookie;
	m->length = length;
	m->offset = s->raw ? GRPC_PREFIX_BYTES : 0;
	m->owned = take;
	m->data = take ? (uint8_t *)data : (uint8_t *)(m + 1);
	if (!take && length > 0)
		memcpy(m->data, data, length);
	m->prefix[0] = s->compressed;
	for (unsigned i = 0; i < 4; i++)
		m->prefix[1 + i] = (uint8_t)(length >> (24 - 8 * i));
	rp_list_init(&m->node);
	rp_list_push_back(&s->out, &m->node);
	s->out_bytes += bytes;
	h2->out_bytes += bytes;
	h2->fresh_bytes += bytes;
	if (s->deferred && !h2->dead) {
		s->deferred = false;
		(void)nghttp2_session_resume_data(h2->session, s->id);
	}
	grpc_h2_post_flush(h2);
	return 0;
}

void grpc_stream_end_output(struct grpc_stream *s)
{
	s->out_eof = true;
	if (s->deferred && !s->h2->dead) {
		s->deferred = false;
		(void)nghttp2_session_resume_data(s->h2->session, s->id);
	}
	grpc_h2_post_flush(s->h2);
}

void grpc_stream_drop_output(struct grpc_stream *s)
{
	struct rp_list *n, *t;

	rp_list_foreach_safe (n, t, &s->out) {
		struct grpc_msg *m = rp_list_entry(n, struct grpc_msg, node);
		size_t bytes = m->length + (s->raw ? 0 : GRPC_PREFIX_BYTES);

		if (m->offset > (s->raw ? GRPC_PREFIX_BYTES : 0))
			continue;
		rp_list_unlink(n);
		s->out_bytes -= bytes;
		s->h2->out_bytes -= bytes;
		grpc_msg_free(m);
	}
}

/* Copies what fits of one message; true when it is complete. */
static bool stream_read_message(struct grpc_msg *m, uint8_t *buf, size_t size, size_t *done)
{
	size_t total = GRPC_PREFIX_BYTES + m->length;

	if (m->offset < GRPC_PREFIX_BYTES) {
		size_t n = RP_MIN(GRPC_PREFIX_BYTES - m->offset, size);

		memcpy(buf, m->prefix + m->offset, n);
		m->offset += n;
		buf += n;
		size -= n;
		*done += n;
	}
	if (m->offset >= GRPC_PREFIX_BYTES && m->offset < total) {
		size_t n = RP_MIN(total - m->offset, size);

		memcpy(buf, m->data + (m->offset - GRPC_PREFIX_BYTES), n);
		m->offset += n;
		*done += n;
	}
	return m->offset == total;
}

ssize_t grpc_stream_read(nghttp2_session *session, int32_t id, uint8_t *buf, size_t length,
	uint32_t *flags, nghttp2_data_source *source, void *user)
{
	struct grpc_stream *s = source->ptr;
	struct grpc_h2 *h2 = s->h2;
	size_t n = 0;

	while (n < length && !rp_list_empty(&s->out)) {
		struct grpc_msg *m = rp_list_entry(s->out.next, struct grpc_msg, node);

		if (!stream_read_message(m, buf + n, length - n, &n))
			break;
		rp_list_unlink(&m->node);
		h2->messages_out++;
		if (m->cookie != 0) {
			s->unwritten++;
			rp_list_push_back(&h2->unmarked, &m->node);
		} else {
			grpc_msg_free(m);
		}
	}
	s->out_bytes -= n;
	h2->out_bytes -= n;
	if (!rp_list_empty(&s->out))
		return (ssize_t)n;
	if (s->out_eof) {
		*flags |= NGHTTP2_DATA_FLAG_EOF;
		if (h2->ops->trailers && !s->raw) {
			*flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
			h2->ops->trailers(s);
		}
		return (ssize_t)n;
	}
	if (n > 0)
		return (ssize_t)n;
	s->deferred = true;
	return NGHTTP2_ERR_DEFERRED;
}

static size_t stream_left(int32_t window, size_t queued)
{
	return window > 0 && (size_t)window > queued ? (size_t)window - queued : 0;
}

size_t grpc_stream_room(const struct grpc_stream *s)
{
	const struct grpc_h2 *h2 = s->h2;
	int32_t stream_window, conn_window;
	size_t room;

	if (h2->dead || h2->wire.blocked || !h2->session || s->out_eof)
		return 0;
	stream_window = nghttp2_session_get_stream_remote_window_size(h2->session, s->id);
	conn_window = nghttp2_session_get_remote_window_size(h2->session);
	/* Bytes of other streams that wait for their own window take none of the connection's. */
	room = RP_MIN(stream_left(stream_window, s->out_bytes),
		stream_left(conn_window, h2->fresh_bytes));
	room = RP_MIN(room, stream_left(GRPC_ROOM_BYTES, h2->fresh_bytes));
	return room > GRPC_PREFIX_BYTES ? room - GRPC_PREFIX_BYTES : 0;
}

bool grpc_stream_fits(struct grpc_stream *s, size_t length)
{
	struct grpc_h2 *h2 = s->h2;
	size_t half = GRPC_ROOM_BYTES, wanted;

	if (h2->session && !h2->dead) {
		int32_t now = nghttp2_session_get_remote_window_size(h2->session);

		h2->window_seen = RP_MAX(h2->window_seen, now);
		half = RP_MIN(half, nghttp2_session_get_remote_settings(
					    h2->session, NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE));
		half = RP_MIN(half, (size_t)h2->window_seen);
	}
	half = half / 2 > GRPC_PREFIX_BYTES ? half / 2 - GRPC_PREFIX_BYTES : 0;
	wanted = RP_MAX(RP_MIN(length, half), 1u);
	if (grpc_stream_room(s) >= wanted) {
		rp_list_unlink(&s->room_node);
		return true;
	}
	s->room_wanted = wanted;
	if (rp_list_empty(&s->room_node))
		rp_list_push_back(&h2->room_waiters, &s->room_node);
	return false;
}

/* Input. */

static void stream_bad(struct grpc_stream *s, enum grpc_bad why, size_t length)
{
	grpc_stream_discard_input(s);
	s->h2->ops->bad(s, why, length);
}

static bool stream_admit(struct grpc_stream *s, size_t more)
{
	struct grpc_h2 *h2 = s->h2;

	return h2->in_bytes + more <= h2->in_bytes_max &&
	       (!h2->ops->admit || h2->ops->admit(h2, more));
}

static void stream_deliver(struct grpc_stream *s, const uint8_t *data, size_t length)
{
	s->prefix_have = 0;
	s->h2->messages_in++;
	s->h2->ops->message(s, s->prefix[0] == 1, data, length);
}

static bool stream_read_prefix(
	struct grpc_stream *s, const uint8_t *data, size_t length, size_t *used)
{
	size_t n = RP_MIN(length, GRPC_PREFIX_BYTES - s->prefix_have);

	memcpy(s->prefix + s->prefix_have, data, n);
	s->prefix_have += (unsigned)n;
	*used += n;
	if (s->prefix_have < GRPC_PREFIX_BYTES)
		return false;
	s->body_length = (size_t)s->prefix[1] << 24 | (size_t)s->prefix[2] << 16 |
			 (size_t)s->prefix[3] << 8 | s->prefix[4];
	if (s->prefix[0] > 1)
		stream_bad(s, GRPC_BAD_FLAG, s->body_length);
	else if (s->body_length > s->message_bytes_max)
		stream_bad(s, GRPC_BAD_SIZE, s->body_length);
	else if (s->body_length == 0)
		stream_deliver(s, s->prefix, 0);
	return true;
}

/* Adds a piece of a message in parts; memory grows with what came, not with what was announced. */
static void stream_add_body(struct grpc_stream *s, const uint8_t *data, size_t length)
{
	if (s->body_have + length > s->body_size) {
		size_t size = RP_MAX(s->body_size * 2, s->body_have + length);
		uint8_t *body;

		size = RP_MIN(RP_MAX(size, 1024u), s->body_length);
		body = stream_admit(s, length) ? realloc(s->body, size) : NULL;
		if (!body) {
			stream_bad(s, GRPC_BAD_MEMORY, s->body_length);
			return;
		}
		s->body = body;
		s->body_size = size;
	}
	memcpy(s->body + s->body_have, data, length);
	s->body_have += length;
	s->h2->in_bytes += length;
	if (s->body_have == s->body_length) {
		uint8_t *body = s->body;
		size_t have = s->body_have;

		s->h2->in_bytes -= have;
		s->body = NULL;
		s->body_have = s->body_size = 0;
		stream_deliver(s, body, have);
		free(body);
	}
}

/* Hands out what is whole; returns how much was used, less than `length` only when paused. */
static size_t stream_deframe(struct grpc_stream *s, const uint8_t *data, size_t length)
{
	size_t used = 0;

	while (used < length && !s->paused && !s->in_discard) {
		size_t n;

		if (s->prefix_have < GRPC_PREFIX_BYTES) {
			(void)stream_read_prefix(s, data + used, length - used, &used);
			continue;
		}
		n = RP_MIN(length - used, s->body_length - s->body_have);
		used += n;
		if (s->body_have == 0 && n == s->body_length)
			stream_deliver(s, data + used - n, n);
		else
			stream_add_body(s, data + used - n, n);
	}
	return s->in_discard ? length : used;
}

static void stream_hold(struct grpc_stream *s, const uint8_t *data, size_t length)
{
	size_t have = s->held_tail - s->held_head;

	if (have + length > s->held_size) {
		size_t size = RP_MAX(s->held_size * 2, have + length);
		uint8_t *held = stream_admit(s, length) ? malloc(size) : NULL;

		if (!held) {
			stream_bad(s, GRPC_BAD_MEMORY, length);
			return;
		}
		if (have > 0)
			memcpy(held, s->held + s->held_head, have);
		free(s->held);
		s->held = held;
		s->held_size = size;
		s->held_head = 0;
		s->held_tail = have;
	} else if (s->held_tail + length > s->held_size) {
		memmove(s->held, s->held + s->held_head, have);
		s->held_head = 0;
		s->held_tail = have;
	}
	memcpy(s->held + s->held_tail, data, length);
	s->held_tail += length;
	s->h2->in_bytes += length;
}

static void stream_consume(struct grpc_stream *s, size_t n)
{
	if (n > 0)
		(void)nghttp2_session_consume_stream(s->h2->session, s->id, n);
}

void grpc_stream_input(struct grpc_stream *s, const uint8_t *data, size_t length)
{
	struct grpc_h2 *h2 = s->h2;
	size_t used = length;

	s->in_total += length;
	/* Past the connection's window in held bytes, paused streams stop renewing it. */
	if (s->paused && h2->in_bytes > h2->in_window_bytes)
		s->owed += length;
	else
		(void)nghttp2_session_consume_connection(h2->session, length);
	if (!s->in_discard && s->raw) {
		h2->ops->body(s, data, length);
	} else if (!s->in_discard) {
		if (s->held_tail == s->held_head)
			used = stream_deframe(s, data, length);
		else
			used = 0;
		if (used < length)
			stream_hold(s, data + used, length - used);
		if (s->in_discard)
			used = length;
	}
	stream_consume(s, used);
}

static void stream_finish_input(struct grpc_stream *s)
{
	if (s->in_done || s->in_discard)
		return;
	s->in_done = true;
	if (s->prefix_have > 0 && !s->raw)
		stream_bad(s, GRPC_BAD_TRUNCATED, s->body_length);
	else
		s->h2->ops->half_closed(s);
}

void grpc_stream_input_end(struct grpc_stream *s)
{
	s->in_eof = true;
	if (!s->paused && s->held_tail == s->held_head)
		stream_finish_input(s);
}

void grpc_stream_discard_input(struct grpc_stream *s)
{
	size_t held = s->held_tail - s->held_head;

	s->in_discard = true;
	if (held > 0 && s->h2->session)
		stream_consume(s, held);
	stream_repay(s);
	/* Freed by a task: this may be called while the bytes are being read. */
	rp_loop_task_post(s->h2->loop, &s->resume_task);
}

void grpc_stream_pause(struct grpc_stream *s)
{
	s->paused = true;
}

void grpc_stream_resume(struct grpc_stream *s)
{
	if (!s->paused)
		return;
	s->paused = false;
	rp_loop_task_post(s->h2->loop, &s->resume_task);
}

static void stream_continue(struct grpc_stream *s)
{
	struct grpc_h2 *h2 = s->h2;
	size_t have = s->held_tail - s->held_head, used;

	if (h2->dead || s->paused)
		return;
	if (s->in_discard) {
		stream_free_held(s);
		stream_free_body(s);
		return;
	}
	if (have > 0) {
		used = stream_deframe(s, s->held + s->held_head, have);
		/* What was discarded meanwhile has been given back already. */
		if (!s->in_discard) {
			s->held_head += used;
			h2->in_bytes -= used;
			stream_consume(s, used);
		}
		if (s->held_head == s->held_tail || s->in_discard)
			stream_free_held(s);
		stream_repay(s);
	}
	if (s->in_eof && !s->paused && s->held_tail == s->held_head)
		stream_finish_input(s);
	grpc_h2_post_flush(h2);
}

static void stream_resume_task(void *ctx)
{
	struct grpc_stream *s = ctx;
	struct grpc_h2 *h2 = s->h2;

	grpc_h2_enter(h2);
	stream_continue(s);
	grpc_h2_leave(h2);
}
