/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <base/assert.h>
#include <base/log.h>
#include "server_priv.h"

/* A persistent HTTP/1.1 connection without a request. */
#define CONN_HTTP1_IDLE_NS (75 * RP_NS_PER_S)
/* Without a call, etcd's strict rule allows a PING each two hours. */
#define CONN_PING_IDLE_NS (7200 * RP_NS_PER_S)
#define CONN_PING_STRIKES_MAX 2
#define CONN_OUTBOUND_ACKS_MAX 100000
/* How long a peer may take to end a connection that we have ended. */
#define CONN_LINGER_NS RP_NS_PER_S
/* How long the last output of a connection may take. */
#define CONN_FINISH_NS (10 * RP_NS_PER_S)

static struct rp_grpc_conn *conn_of(struct grpc_h2 *h2)
{
	return RP_CONTAINER_OF(h2, struct rp_grpc_conn, h2);
}

static struct rp_grpc_call *conn_call(nghttp2_session *session, int32_t id)
{
	struct grpc_stream *s = nghttp2_session_get_stream_user_data(session, id);

	return s ? RP_CONTAINER_OF(s, struct rp_grpc_call, stream) : NULL;
}

/* HTTP/2 events. */

static int conn_on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
	struct grpc_h2 *h2 = user;
	struct rp_grpc_call *call;

	if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST)
		return 0;
	call = grpc_call_new(conn_of(h2), frame->hd.stream_id);
	if (!call)
		return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
	(void)nghttp2_session_set_stream_user_data(session, frame->hd.stream_id, &call->stream);
	return 0;
}

static int conn_on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
	size_t name_length, const uint8_t *value, size_t value_length, uint8_t flags, void *user)
{
	struct rp_grpc_call *call = conn_call(session, frame->hd.stream_id);
	struct rp_grpc_server *server = conn_of(user)->server;
	bool trailer;
	int error;

	if (!call || frame->hd.type != NGHTTP2_HEADERS || call->overflow)
		return 0;
	trailer = frame->headers.cat != NGHTTP2_HCAT_REQUEST;
	/* Our own checks in place of nghttp2's: those know no :authority of gRPC clients. */
	if (!nghttp2_check_header_name(name, name_length) ||
		!nghttp2_check_header_value(value, value_length) ||
		(trailer && name_length > 0 && name[0] == ':'))
		call->malformed = true;
	if (trailer || call->malformed)
		return 0;
	error = grpc_headers_add(&call->headers, (const char *)name, name_length,
		(const char *)value, value_length, server->config.limits.header_bytes);
	if (error == -ENOMEM)
		return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
	if (error == -E2BIG)
		call->overflow = true;
	return 0;
}

static void conn_on_client_ping(struct rp_grpc_conn *conn)
{
	static const char text[] = "too_many_pings";
	const struct rp_grpc_server_config *config = &conn->server->config;
	uint64_t now = rp_loop_now_ns(conn->h2.loop), least = config->client_ping_min_ns;
	uint64_t last = conn->client_ping_ns;

	conn->client_ping_ns = now;
	if (least == 0)
		return;
	if (config->client_ping_needs_call && conn->h2.stream_count == 0)
		least = CONN_PING_IDLE_NS;
	if (last == 0 || now - last >= least || ++conn->ping_strikes <= CONN_PING_STRIKES_MAX)
		return;
	conn->pinged_out = true;
	(void)nghttp2_submit_goaway(conn->h2.session, NGHTTP2_FLAG_NONE,
		nghttp2_session_get_last_proc_stream_id(conn->h2.session),
		NGHTTP2_ENHANCE_YOUR_CALM, (const uint8_t *)text, sizeof(text) - 1);
	grpc_conn_finish(conn);
}

static void conn_arm_keepalive(struct rp_grpc_conn *conn)
{
	uint64_t interval = conn->server->config.ping_interval_ns;

	if (interval > 0)
		rp_loop_timer_at(conn->h2.loop, &conn->timer, conn->h2.heard_ns + interval);
	else
		rp_loop_timer_cancel(&conn->timer);
}

static void conn_on_ping(struct rp_grpc_conn *conn, bool ack)
{
	if (!ack) {
		conn_on_client_ping(conn);
		return;
	}
	if (conn->ping_sent_ns != 0) {
		conn->ping_sent_ns = 0;
		conn_arm_keepalive(conn);
	}
	if (!conn->server->draining || conn->going)
		return;
	/* The client has seen the first GOAWAY: what it sent before is here. */
	conn->going = true;
	(void)nghttp2_submit_goaway(conn->h2.session, NGHTTP2_FLAG_NONE,
		nghttp2_session_get_last_proc_stream_id(conn->h2.session), NGHTTP2_NO_ERROR, NULL,
		0);
}

/* The client's END_STREAM: its content-length was right (RFC 9113, 8.1.1), its trailers are none of
 * a request (8.1). */
static void conn_request_ended(struct rp_grpc_call *call)
{
	if (!call->reset && (call->malformed || grpc_call_length_wrong(call))) {
		grpc_call_refuse_malformed(call);
		return;
	}
	grpc_stream_input_end(&call->stream);
}

static int conn_on_frame_recv(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
	struct rp_grpc_conn *conn = conn_of(user);
	struct rp_grpc_call *call = conn_call(session, frame->hd.stream_id);
	bool end = frame->hd.flags & NGHTTP2_FLAG_END_STREAM;

	switch (frame->hd.type) {
	case NGHTTP2_HEADERS:
		if (!call)
			break;
		if (frame->headers.cat == NGHTTP2_HCAT_REQUEST)
			grpc_call_begin(call);
		else if (!end)
			grpc_call_abort(call, RP_GRPC_INTERNAL, "grpc: headers inside a stream",
				RP_GRPC_CANCEL_REFUSED);
		if (end)
			conn_request_ended(call);
		break;
	case NGHTTP2_DATA:
		if (call && end)
			conn_request_ended(call);
		break;
	case NGHTTP2_PING:
		conn_on_ping(conn, frame->hd.flags & NGHTTP2_FLAG_ACK);
		break;
	default:
		break;
	}
	return 0;
}

static int conn_on_frame_send(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
	struct rp_grpc_conn *conn = conn_of(user);
	int32_t id = frame->hd.stream_id;
	struct rp_grpc_call *call = conn_call(session, id);

	if (frame->hd.type == NGHTTP2_GOAWAY && frame->goaway.error_code != NGHTTP2_NO_ERROR &&
		frame->goaway.error_code != NGHTTP2_ENHANCE_YOUR_CALM)
		conn->h2.end_error = -EPROTO;
	if (frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA)
		return 0;
	conn->ping_strikes = 0;
	/* An end before the client's own: it shall send no more (RFC 9113, 8.1). HTTP clients are
	 * let finish: curl drops an answer that a reset follows. */
	if (call && !call->http && (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) &&
		nghttp2_session_get_stream_remote_close(session, id) == 0)
		(void)nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, id, call->reset_code);
	return 0;
}

static int conn_session_new(struct rp_grpc_conn *conn)
{
	const struct rp_grpc_limits *limits = &conn->server->config.limits;
	nghttp2_session_callbacks *callbacks;
	nghttp2_option *option;
	int error;

	if (nghttp2_option_new(&option) != 0)
		return -ENOMEM;
	if (nghttp2_session_callbacks_new(&callbacks) != 0) {
		nghttp2_option_del(option);
		return -ENOMEM;
	}
	nghttp2_option_set_no_http_messaging(option, 1);
	nghttp2_option_set_no_auto_window_update(option, 1);
	nghttp2_option_set_no_closed_streams(option, 1);
	nghttp2_option_set_max_outbound_ack(option, CONN_OUTBOUND_ACKS_MAX);
	nghttp2_option_set_stream_reset_rate_limit(
		option, limits->stream_resets_burst, limits->stream_resets_rate);
	grpc_h2_set_callbacks(callbacks);
	nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, conn_on_begin_headers);
	nghttp2_session_callbacks_set_on_header_callback(callbacks, conn_on_header);
	nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, conn_on_frame_recv);
	nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, conn_on_frame_send);
	error = nghttp2_session_server_new2(&conn->h2.session, callbacks, &conn->h2, option);
	nghttp2_session_callbacks_del(callbacks);
	nghttp2_option_del(option);
	return error != 0 ? -ENOMEM : 0;
}

static void conn_open_h2(struct rp_grpc_conn *conn)
{
	const struct rp_grpc_limits *limits = &conn->server->config.limits;
	nghttp2_settings_entry settings[] = {
		{NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, limits->streams},
		{NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, limits->stream_window_bytes},
		{NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, limits->header_bytes},
	};

	conn->mode = GRPC_CONN_H2;
	if (conn_session_new(conn) < 0 ||
		grpc_h2_submit_settings(&conn->h2, settings, RP_ARRAY_SIZE(settings),
			limits->conn_window_bytes) != 0) {
		grpc_h2_lost(&conn->h2, -ENOMEM, "no memory");
		return;
	}
	conn_arm_keepalive(conn);
	grpc_h2_post_flush(&conn->h2);
}

static void conn_open_http1(struct rp_grpc_conn *conn)
{
	conn->mode = GRPC_CONN_HTTP1;
	if (grpc_http1_open(conn) < 0)
		grpc_h2_lost(&conn->h2, -ENOMEM, "no memory");
	else
		rp_loop_timer_in(conn->h2.loop, &conn->timer, CONN_HTTP1_IDLE_NS);
}

/* ops of the wire and the session */

static void conn_input(struct grpc_h2 *h2, const uint8_t *data, size_t length);

/* Decides by ALPN, else by the first bytes, which protocol is spoken. */
static void conn_sniff(struct rp_grpc_conn *conn, const uint8_t *data, size_t length)
{
	const char *alpn = conn->h2.wire.tls ? rp_tls_alpn(conn->h2.wire.tls) : NULL;
	size_t n = RP_MIN(length, sizeof(conn->sniff) - conn->sniff_have), have;
	uint8_t first[sizeof(conn->sniff)];

	memcpy(conn->sniff + conn->sniff_have, data, n);
	conn->sniff_have += n;
	have = conn->sniff_have;
	memcpy(first, conn->sniff, have);
	if (alpn && strcmp(alpn, "h2") == 0)
		conn_open_h2(conn);
	else if (alpn || memcmp(first, GRPC_PREFACE, have) != 0)
		conn_open_http1(conn);
	else if (have == GRPC_PREFACE_BYTES)
		conn_open_h2(conn);
	else
		return;
	if (!conn->h2.dead)
		conn_input(&conn->h2, first, have);
	if (length > n && !conn->h2.dead)
		conn_input(&conn->h2, data + n, length - n);
}

static void conn_input(struct grpc_h2 *h2, const uint8_t *data, size_t length)
{
	struct rp_grpc_conn *conn = conn_of(h2);

	switch (conn->mode) {
	case GRPC_CONN_SNIFF:
		conn_sniff(conn, data, length);
		break;
	case GRPC_CONN_H2:
		grpc_h2_input(h2, data, length);
		break;
	case GRPC_CONN_HTTP1:
		rp_loop_timer_in(h2->loop, &conn->timer, CONN_HTTP1_IDLE_NS);
		grpc_http1_input(conn, data, length);
		break;
	}
}

static bool conn_ended(struct grpc_h2 *h2)
{
	struct rp_grpc_conn *conn = conn_of(h2);

	return conn->mode == GRPC_CONN_HTTP1 && grpc_http1_ended(conn);
}

void grpc_conn_count(struct rp_grpc_conn *conn)
{
	struct rp_grpc_server_stats *st = &conn->server->stats;
	struct grpc_h2 *h2 = &conn->h2;
	uint64_t out = h2->wire.watch.fd >= 0 ? grpc_h2_queued_bytes(h2) : 0;

	st->bytes_in += h2->wire.bytes_in - conn->wire_in;
	st->bytes_out += h2->wire.bytes_out - conn->wire_out;
	st->socket_writes += h2->wire.writes - conn->wire_writes;
	st->messages_in += h2->messages_in - conn->messages_in;
	st->messages_out += h2->messages_out - conn->messages_out;
	conn->wire_in = h2->wire.bytes_in;
	conn->wire_out = h2->wire.bytes_out;
	conn->wire_writes = h2->wire.writes;
	conn->messages_in = h2->messages_in;
	conn->messages_out = h2->messages_out;
	conn->server->in_bytes += h2->in_bytes - conn->in_reported;
	conn->in_reported = h2->in_bytes;
	st->out_bytes_held += out - conn->out_reported;
	conn->out_reported = out;
}

static bool conn_admit(struct grpc_h2 *h2, size_t more)
{
	struct rp_grpc_conn *conn = conn_of(h2);
	struct rp_grpc_server *server = conn->server;

	return server->in_bytes - conn->in_reported + h2->in_bytes + more <=
	       server->config.limits.in_bytes;
}

static void conn_before_flush(struct grpc_h2 *h2)
{
	struct rp_grpc_conn *conn = conn_of(h2);
	struct rp_list *n;

	while ((n = rp_list_pop_front(&conn->headers_due)) != NULL)
		grpc_call_submit_headers(rp_list_entry(n, struct rp_grpc_call, due_node));
	if (conn->mode == GRPC_CONN_HTTP1)
		grpc_http1_flush(conn);
}

static void conn_after_flush(struct grpc_h2 *h2)
{
	struct rp_grpc_conn *conn = conn_of(h2);

	if (conn->mode == GRPC_CONN_HTTP1 && conn->http1)
		grpc_http1_flushed(conn);
	grpc_conn_count(conn);
}

static void conn_linger(struct grpc_h2 *h2)
{
	rp_loop_timer_in(h2->loop, &conn_of(h2)->timer, CONN_LINGER_NS);
}

static void conn_lost(struct grpc_h2 *h2, int error, const char *reason)
{
	struct rp_grpc_conn *conn = conn_of(h2);
	struct rp_grpc_server_stats *st = &conn->server->stats;

	if (error == -EACCES || (error == -EPROTO && h2->wire.tls && !h2->session))
		st->conns_closed_tls++;
	else if (error == -EPROTO)
		st->conns_closed_protocol++;
	else if (error == -ETIMEDOUT)
		st->conns_closed_timeout++;
	else if (conn->pinged_out)
		st->conns_closed_pings++;
	else if (conn->finishing)
		st->conns_closed_here++;
	else
		st->conns_closed_peer++;
	RP_LOG(RP_LOG_GRPC, RP_LOG_DEBUG, "connection of %s closed: %s", conn->peer, reason);
	rp_loop_task_post(h2->loop, &conn->close_task);
}

const struct grpc_h2_ops grpc_conn_ops = {
	.message = grpc_call_on_message,
	.body = grpc_call_on_body,
	.half_closed = grpc_call_on_half_closed,
	.bad = grpc_call_on_bad,
	.trailers = grpc_call_on_trailers,
	.room = grpc_call_on_room,
	.written = grpc_call_on_written,
	.stream_closed = grpc_call_on_closed,
	.before_flush = conn_before_flush,
	.after_flush = conn_after_flush,
	.input = conn_input,
	.ended = conn_ended,
	.linger = conn_linger,
	.lost = conn_lost,
	.admit = conn_admit,
};

/* Life. */

static void conn_on_timer(void *ctx)
{
	struct rp_grpc_conn *conn = ctx;
	const struct rp_grpc_server_config *config = &conn->server->config;
	uint64_t now = rp_loop_now_ns(conn->h2.loop);

	if (conn->h2.closing) {
		grpc_h2_lost(&conn->h2, conn->h2.end_error, "connection ended");
		return;
	}
	if (conn->mode == GRPC_CONN_SNIFF || (conn->mode == GRPC_CONN_HTTP1 && !conn->http1) ||
		(conn->mode == GRPC_CONN_HTTP1 && !grpc_http1_answering(conn))) {
		grpc_h2_lost(&conn->h2, -ETIMEDOUT, "no request in time");
		return;
	}
	if (conn->mode == GRPC_CONN_HTTP1) {
		rp_loop_timer_in(conn->h2.loop, &conn->timer, CONN_HTTP1_IDLE_NS);
		return;
	}
	if (conn->ping_sent_ns != 0 && conn->h2.heard_ns < conn->ping_sent_ns) {
		grpc_h2_lost(&conn->h2, -ETIMEDOUT, "keepalive ping not answered");
		return;
	}
	conn->ping_sent_ns = 0;
	if (now - conn->h2.heard_ns < config->ping_interval_ns) {
		conn_arm_keepalive(conn);
		return;
	}
	conn->ping_sent_ns = now;
	(void)nghttp2_submit_ping(conn->h2.session, NGHTTP2_FLAG_NONE, NULL);
	grpc_h2_post_flush(&conn->h2);
	rp_loop_timer_in(conn->h2.loop, &conn->timer, config->ping_timeout_ns);
}

static void conn_on_close(void *ctx)
{
	grpc_conn_destroy(ctx, RP_GRPC_CANCEL_LOST);
}

int grpc_conn_new(struct rp_grpc_server *server, int fd, const struct grpc_addr *peer,
	struct grpc_listener *listener, struct rp_tls_config *tls)
{
	struct rp_grpc_conn *conn = calloc(1, sizeof(*conn));
	struct rp_tls_session *session =
		tls ? rp_tls_session_new(tls, NULL, (struct rp_span){0}) : NULL;
	int error, one = 1;

	if (!conn || (tls && !session)) {
		rp_tls_session_destroy(session);
		free(conn);
		close(fd);
		return -ENOMEM;
	}
	conn->server = server;
	conn->listener = listener ? listener->number : -1;
	conn->cancel_why = RP_GRPC_CANCEL_RESET;
	rp_list_init(&conn->headers_due);
	rp_loop_timer_setup(&conn->timer, conn_on_timer, conn);
	rp_loop_task_setup(&conn->close_task, conn_on_close, conn);
	conn->local = grpc_addr_is_local(peer);
	conn->is_unix = peer->sa.ss_family == AF_UNIX;
	grpc_addr_format(peer, conn->peer);
	grpc_h2_init(&conn->h2, server->loop, &grpc_conn_ops);
	conn->h2.in_bytes_max = server->config.limits.conn_in_bytes;
	conn->h2.in_window_bytes = server->config.limits.conn_window_bytes;
	/* Writes are collected already; waiting for more would only delay (not a TCP socket: no
	 * matter). */
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	error = grpc_wire_open(
		&conn->h2.wire, server->loop, fd, EPOLLIN, session, grpc_h2_on_events, &conn->h2);
	if (error < 0) {
		free(conn);
		return error;
	}
	rp_list_push_back(&server->conns, &conn->node);
	server->stats.conns_accepted++;
	server->stats.conns_open++;
	rp_loop_timer_in(server->loop, &conn->timer, server->config.handshake_timeout_ns);
	return 0;
}

void grpc_conn_destroy(struct rp_grpc_conn *conn, enum rp_grpc_cancel why)
{
	struct rp_grpc_server *server = conn->server;

	conn->cancel_why = why;
	conn->h2.dead = true;
	grpc_h2_close_streams(&conn->h2, NGHTTP2_CANCEL);
	grpc_http1_close(conn);
	grpc_conn_count(conn);
	grpc_h2_release(&conn->h2);
	grpc_conn_count(conn); /* what was held is not any more */
	rp_loop_timer_cancel(&conn->timer);
	rp_loop_task_cancel(&conn->close_task);
	rp_list_unlink(&conn->node);
	server->stats.conns_open--;
	if (conn->on_close)
		conn->on_close(conn->user);
	free(conn);
	grpc_server_conn_gone(server);
}

void grpc_conn_finish(struct rp_grpc_conn *conn)
{
	conn->finishing = true;
	conn->h2.closing = true;
	rp_loop_timer_in(conn->h2.loop, &conn->timer, CONN_FINISH_NS);
	grpc_h2_post_flush(&conn->h2);
}

void grpc_conn_drain(struct rp_grpc_conn *conn)
{
	if (conn->h2.dead)
		return;
	switch (conn->mode) {
	case GRPC_CONN_SNIFF:
		grpc_conn_finish(conn);
		break;
	case GRPC_CONN_H2:
		(void)nghttp2_submit_shutdown_notice(conn->h2.session);
		(void)nghttp2_submit_ping(conn->h2.session, NGHTTP2_FLAG_NONE, NULL);
		grpc_h2_post_flush(&conn->h2);
		break;
	case GRPC_CONN_HTTP1:
		if (grpc_http1_idle(conn))
			grpc_conn_finish(conn);
		break;
	}
}

void grpc_conn_stop(struct rp_grpc_conn *conn, const char *text)
{
	struct rp_list *n, *t;

	if (conn->h2.dead)
		return;
	rp_list_foreach_safe (n, t, &conn->h2.streams) {
		struct grpc_stream *s = rp_list_entry(n, struct grpc_stream, node);

		grpc_call_abort(RP_CONTAINER_OF(s, struct rp_grpc_call, stream),
			RP_GRPC_UNAVAILABLE, text, RP_GRPC_CANCEL_STOPPED);
	}
	if (conn->mode == GRPC_CONN_H2)
		(void)nghttp2_submit_goaway(conn->h2.session, NGHTTP2_FLAG_NONE,
			nghttp2_session_get_last_proc_stream_id(conn->h2.session), NGHTTP2_NO_ERROR,
			NULL, 0);
	grpc_conn_finish(conn);
}

/* Accessors. */

void rp_grpc_conn_set_user(struct rp_grpc_conn *conn, void *user, void (*on_close)(void *user))
{
	conn->user = user;
	conn->on_close = on_close;
}

void *rp_grpc_conn_user(const struct rp_grpc_conn *conn)
{
	return conn->user;
}

const char *rp_grpc_conn_peer(const struct rp_grpc_conn *conn)
{
	return conn->peer;
}

bool rp_grpc_conn_is_local(const struct rp_grpc_conn *conn)
{
	return conn->local;
}

bool rp_grpc_conn_is_unix(const struct rp_grpc_conn *conn)
{
	return conn->is_unix;
}

const char *rp_grpc_conn_peer_cn(const struct rp_grpc_conn *conn)
{
	return conn->h2.wire.tls ? rp_tls_peer_cn(conn->h2.wire.tls) : NULL;
}

int rp_grpc_conn_listener(const struct rp_grpc_conn *conn)
{
	return conn->listener;
}

void rp_grpc_conn_close(struct rp_grpc_conn *conn)
{
	/* By a task: the caller may be within the connection's own input. */
	conn->finishing = true;
	grpc_h2_lost(&conn->h2, 0, "closed here");
}
