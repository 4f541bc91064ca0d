/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>

#include <base/assert.h>
#include <base/units.h>
#include "h2_priv.h"

/* A frame that nghttp2 hands out at once: 16 KiB and its header. */
#define H2_CHUNK_BYTES ((16u << 10) + 64)

static void h2_flush_task(void *ctx);
static void h2_read_task(void *ctx);

void grpc_h2_init(struct grpc_h2 *h2, struct rp_loop *loop, const struct grpc_h2_ops *ops)
{
	*h2 = (struct grpc_h2){.loop = loop, .ops = ops};
	h2->wire.watch.fd = -1;
	h2->heard_ns = rp_loop_now_ns(loop);
	h2->read_bytes = GRPC_READ_BYTES_FIRST;
	rp_list_init(&h2->streams);
	rp_list_init(&h2->room_waiters);
	rp_list_init(&h2->unmarked);
	rp_list_init(&h2->written);
	rp_loop_task_setup(&h2->flush_task, h2_flush_task, h2);
	rp_loop_task_setup(&h2->read_task, h2_read_task, h2);
}

void grpc_h2_release(struct grpc_h2 *h2)
{
	RP_ASSERT(rp_list_empty(&h2->streams));
	h2->dead = true;
	rp_loop_task_cancel(&h2->flush_task);
	rp_loop_task_cancel(&h2->read_task);
	nghttp2_session_del(h2->session);
	h2->session = NULL;
	grpc_wire_close(&h2->wire);
}

void grpc_h2_close_streams(struct grpc_h2 *h2, uint32_t error_code)
{
	while (!rp_list_empty(&h2->streams)) {
		struct rp_list *n = h2->streams.next;

		h2->ops->stream_closed(rp_list_entry(n, struct grpc_stream, node), error_code);
		RP_ASSERT(h2->streams.next != n);
	}
}

void grpc_h2_lost(struct grpc_h2 *h2, int error, const char *reason)
{
	if (h2->dead)
		return;
	h2->dead = true;
	h2->ops->lost(h2, error, reason);
}

void grpc_h2_post_flush(struct grpc_h2 *h2)
{
	if (!h2->dead)
		rp_loop_task_post_late(h2->loop, &h2->flush_task);
}

void grpc_h2_terminate(struct grpc_h2 *h2, uint32_t error)
{
	if (h2->session)
		(void)nghttp2_session_terminate_session(h2->session, error);
	h2->closing = true;
	grpc_h2_post_flush(h2);
}

size_t grpc_h2_queued_bytes(const struct grpc_h2 *h2)
{
	return h2->out_bytes + (h2->wire.watch.fd >= 0 ? grpc_wire_left_bytes(&h2->wire) : 0);
}

void grpc_h2_leave(struct grpc_h2 *h2)
{
	RP_ASSERT(h2->busy > 0);
	if (--h2->busy == 0 && h2->orphan)
		h2->ops->orphaned(h2);
}

/* Output. */

/* Messages whose last byte is in what was just collected end there. */
static void h2_mark(struct grpc_h2 *h2, uint64_t position)
{
	struct rp_list *n;

	while ((n = rp_list_pop_front(&h2->unmarked)) != NULL) {
		rp_list_entry(n, struct grpc_msg, node)->mark = position;
		rp_list_push_back(&h2->written, n);
	}
}

static void h2_report_written(struct grpc_h2 *h2)
{
	while (!rp_list_empty(&h2->written)) {
		struct grpc_msg *m = rp_list_entry(h2->written.next, struct grpc_msg, node);
		struct grpc_stream *s = m->stream;
		uint64_t cookie = m->cookie;

		if (m->mark > h2->wire.plain_sent)
			return;
		rp_list_unlink(&m->node);
		grpc_msg_free(m);
		s->unwritten--;
		h2->ops->written(s, cookie);
	}
}

/* Collects frames and writes them at once. 0, -errno; *more: there may be more to send. */
static int h2_write_batch(struct grpc_h2 *h2, bool *more)
{
	uint8_t buf[GRPC_WRITE_BYTES];
	const uint8_t *chunk;
	size_t n = 0;
	ssize_t length;
	int error;

	*more = false;
	while ((length = nghttp2_session_mem_send(h2->session, &chunk)) > 0) {
		if ((size_t)length > sizeof(buf) - n) {
			error = grpc_wire_write(&h2->wire, buf, n);
			if (error < 0)
				return error;
			n = 0;
		}
		if ((size_t)length > sizeof(buf)) {
			error = grpc_wire_write(&h2->wire, chunk, (size_t)length);
			if (error < 0)
				return error;
		} else {
			memcpy(buf + n, chunk, (size_t)length);
			n += (size_t)length;
		}
		h2_mark(h2, h2->wire.plain_total + n);
		if (n > sizeof(buf) - H2_CHUNK_BYTES) {
			*more = true;
			break;
		}
	}
	if (length < 0)
		return -ENOMEM;
	return grpc_wire_write(&h2->wire, buf, n);
}

static int h2_flush_session(struct grpc_h2 *h2)
{
	bool more = true;
	int error;

	for (int i = 0; more && !h2->wire.blocked; i++) {
		if (i == GRPC_WRITES_MAX) {
			/* Others' turn; the rest follows in the next one. */
			grpc_h2_post_flush(h2);
			return 0;
		}
		error = h2_write_batch(h2, &more);
		if (error < 0)
			return error;
	}
	if (!h2->wire.blocked)
		h2->fresh_bytes = 0;
	return 0;
}

static void h2_tell_room(struct grpc_h2 *h2)
{
	struct rp_list waiting, *n;

	if (rp_list_empty(&h2->room_waiters) || h2->wire.blocked)
		return;
	rp_list_init(&waiting);
	rp_list_splice_back(&waiting, &h2->room_waiters);
	while ((n = rp_list_pop_front(&waiting)) != NULL) {
		struct grpc_stream *s = rp_list_entry(n, struct grpc_stream, room_node);

		if (grpc_stream_room(s) >= s->room_wanted)
			h2->ops->room(s);
		else
			rp_list_push_back(&h2->room_waiters, n);
	}
}

/*
 * The session is at its end when nghttp2 wants nothing any more. Closing a socket that has unread
 * input resets it, and the reset may overtake our last words: so what still comes is read and
 * dropped until the peer ends too.
 */
static void h2_check_end(struct grpc_h2 *h2)
{
	bool over = h2->closing;

	if (h2->session) {
		bool writes = nghttp2_session_want_write(h2->session);

		over = !writes && (over || !nghttp2_session_want_read(h2->session));
	}
	if (!over || h2->lingering || grpc_wire_left_bytes(&h2->wire) > 0)
		return;
	h2->closing = true;
	if (!h2->ops->linger) {
		grpc_h2_lost(h2, h2->end_error, "connection ended");
		return;
	}
	h2->lingering = true;
	grpc_wire_hold_input(&h2->wire, false);
	grpc_wire_shutdown(&h2->wire);
	h2->ops->linger(h2);
}

static void h2_flush(struct grpc_h2 *h2)
{
	int error = 0;

	if (h2->dead)
		return;
	if (h2->ops->before_flush)
		h2->ops->before_flush(h2);
	if (!h2->wire.blocked)
		error = grpc_wire_flush(&h2->wire);
	if (error == 0 && h2->session && (!h2->wire.tls || rp_tls_open(h2->wire.tls)))
		error = h2_flush_session(h2);
	if (error < 0) {
		grpc_h2_lost(h2, error, strerror(-error));
		return;
	}
	h2_report_written(h2);
	if (h2->session && !h2->closing) {
		size_t waiting = nghttp2_session_get_outbound_queue_size(h2->session);

		grpc_wire_hold_input(
			&h2->wire, h2->wire.blocked && waiting > GRPC_FRAMES_WAITING_MAX);
	}
	h2_tell_room(h2);
	h2_check_end(h2);
}

static void h2_flush_task(void *ctx)
{
	struct grpc_h2 *h2 = ctx;

	grpc_h2_enter(h2);
	h2_flush(h2);
	if (!h2->dead && h2->ops->after_flush)
		h2->ops->after_flush(h2);
	grpc_h2_leave(h2);
}

/* Input. */

void grpc_h2_input(struct grpc_h2 *h2, const uint8_t *data, size_t length)
{
	ssize_t n = nghttp2_session_mem_recv(h2->session, data, length);

	if (n < 0) {
		/* What nghttp2 wants to say to it (a GOAWAY at a flood) goes out before the end. */
		h2->closing = true;
		h2->end_error = -EPROTO;
		if (n == NGHTTP2_ERR_NOMEM || n == NGHTTP2_ERR_CALLBACK_FAILURE ||
			n == NGHTTP2_ERR_BAD_CLIENT_MAGIC)
			grpc_h2_lost(h2, -EPROTO, nghttp2_strerror((int)n));
	}
	grpc_h2_post_flush(h2);
}

/* Sizes the next read by what this one of n bytes cost; returns the time. */
static uint64_t h2_measure(struct grpc_h2 *h2, size_t n, uint64_t before)
{
	uint64_t now = rp_loop_clock_ns(), cost = now - before;

	if (cost > GRPC_READ_NS)
		h2->read_bytes = RP_MAX(n * GRPC_READ_NS / cost, (size_t)GRPC_READ_BYTES_MIN);
	else if (cost < GRPC_READ_NS / 4 && n == h2->read_bytes)
		h2->read_bytes = RP_MIN(n * 2, (size_t)GRPC_READ_BYTES);
	return now;
}

static void h2_pump(struct grpc_h2 *h2)
{
	uint8_t buf[GRPC_READ_BYTES];

	uint64_t begin = rp_loop_clock_ns(), before = begin;

	for (int i = 0; i < GRPC_READS_MAX && before - begin < GRPC_READ_NS; i++) {
		ssize_t n = grpc_wire_read(&h2->wire, buf, h2->read_bytes);

		/* A handshake goes on, or has ended and lets the session's frames out. */
		if (h2->wire.tls)
			grpc_h2_post_flush(h2);
		if (n == -EAGAIN)
			return;
		if (n <= 0 && h2->lingering) {
			grpc_h2_lost(h2, h2->end_error, "connection ended");
			return;
		}
		if (n <= 0) {
			const char *why = n == 0 ? "closed by peer" : strerror((int)-n);

			if (h2->wire.tls && (n == -EPROTO || n == -EACCES)) {
				why = rp_tls_error(h2->wire.tls);
				(void)grpc_wire_flush(&h2->wire); /* the alert */
			}
			if (n == 0 && h2->ops->ended && h2->ops->ended(h2))
				return;
			grpc_h2_lost(h2, (int)n, why);
			return;
		}
		h2->heard_ns = rp_loop_now_ns(h2->loop);
		if (h2->session && !h2->closing)
			grpc_h2_input(h2, buf, (size_t)n);
		else if (!h2->closing)
			h2->ops->input(h2, buf, (size_t)n);
		if (h2->dead || h2->wire.no_input)
			return;
		before = h2_measure(h2, (size_t)n, before);
	}
	/* Bytes that TLS has decrypted already wake no epoll. */
	rp_loop_task_post_late(h2->loop, &h2->read_task);
}

static void h2_read_task(void *ctx)
{
	struct grpc_h2 *h2 = ctx;

	grpc_h2_enter(h2);
	if (!h2->dead && !h2->wire.no_input)
		h2_pump(h2);
	grpc_h2_leave(h2);
}

static void h2_on_events(struct grpc_h2 *h2, uint32_t events)
{
	if (h2->dead)
		return;
	if (events & EPOLLOUT) {
		int error = grpc_wire_flush(&h2->wire);

		if (error < 0) {
			grpc_h2_lost(h2, error, strerror(-error));
			return;
		}
		grpc_h2_post_flush(h2);
	}
	if (h2->wire.no_input && (events & (EPOLLERR | EPOLLHUP)))
		grpc_h2_lost(h2, -ECONNRESET, strerror(ECONNRESET));
	else if (!h2->wire.no_input && (events & ~(uint32_t)EPOLLOUT))
		h2_pump(h2);
}

void grpc_h2_on_events(void *ctx, uint32_t events)
{
	struct grpc_h2 *h2 = ctx;

	grpc_h2_enter(h2);
	h2_on_events(h2, events);
	grpc_h2_leave(h2);
}

/* nghttp2's events that mean the same on both sides. */

static int h2_on_data_chunk(nghttp2_session *session, uint8_t flags, int32_t id,
	const uint8_t *data, size_t length, void *user)
{
	struct grpc_stream *s = nghttp2_session_get_stream_user_data(session, id);

	if (s)
		grpc_stream_input(s, data, length);
	else
		(void)nghttp2_session_consume(session, id, length);
	return ((struct grpc_h2 *)user)->dead ? NGHTTP2_ERR_CALLBACK_FAILURE : 0;
}

static int h2_on_stream_close(nghttp2_session *session, int32_t id, uint32_t error_code, void *user)
{
	struct grpc_stream *s = nghttp2_session_get_stream_user_data(session, id);
	struct grpc_h2 *h2 = user;

	if (s)
		h2->ops->stream_closed(s, error_code);
	return 0;
}

void grpc_h2_set_callbacks(nghttp2_session_callbacks *callbacks)
{
	nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, h2_on_data_chunk);
	nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, h2_on_stream_close);
}

int grpc_h2_submit_settings(struct grpc_h2 *h2, const nghttp2_settings_entry *entries, size_t count,
	uint32_t conn_window_bytes)
{
	int error = nghttp2_submit_settings(h2->session, NGHTTP2_FLAG_NONE, entries, count);

	if (error == 0)
		error = nghttp2_session_set_local_window_size(
			h2->session, NGHTTP2_FLAG_NONE, 0, (int32_t)conn_window_bytes);
	return error;
}
