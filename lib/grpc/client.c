/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client_priv.h"
#include <base/assert.h>
#include <base/log.h>

#define CHANNEL_STREAM_WINDOW_BYTES (1u << 20)
#define CHANNEL_CONN_WINDOW_BYTES (16u << 20)
#define CHANNEL_IN_BYTES (256u << 20)
#define CHANNEL_OUTBOUND_ACKS_MAX 100000

struct rp_grpc_channel_config rp_grpc_channel_config_default(void)
{
	return (struct rp_grpc_channel_config){
		.connect_timeout_ns = 5 * RP_NS_PER_S,
		.ping_interval_ns = 0,
		.ping_timeout_ns = 3 * RP_NS_PER_S,
		.message_bytes_max = 64u << 20,
		.out_bytes_max = 64u << 20,
	};
}

/* The end of a connection, or of an attempt, is told by a task: never within what caused it. */

static void channel_lost(struct rp_grpc_channel *c, const char *reason)
{
	if (c->state != RP_GRPC_CHANNEL_CONNECTING && c->state != RP_GRPC_CHANNEL_READY)
		return;
	c->state = RP_GRPC_CHANNEL_LOST;
	c->h2.dead = true;
	/* A server that has said why it goes has said it. */
	if (!c->going_away)
		snprintf(c->reason, sizeof(c->reason), "%s", reason);
	rp_loop_timer_cancel(&c->timer);
	rp_loop_task_post(c->loop, &c->lost_task);
}

static void channel_on_wire_lost(struct grpc_h2 *h2, int error, const char *reason)
{
	channel_lost(grpc_channel_of(h2), reason);
}

static void channel_close_sockets(struct rp_grpc_channel *c)
{
	grpc_resolve_cancel(c->resolve);
	c->resolve = NULL;
	if (c->connecting.fd >= 0) {
		rp_loop_fd_remove(&c->connecting);
		close(c->connecting.fd);
		c->connecting.fd = -1;
	}
	if (c->attach_fd >= 0)
		close(c->attach_fd);
	c->attach_fd = -1;
}

static const struct grpc_h2_ops channel_ops;

/*
 * Frees the connection and its calls; every one has been told its end before. Calls that were
 * started since, without a connection, stay: the task tells them.
 */
static void channel_release(struct rp_grpc_channel *c)
{
	struct rp_list keep, *n, *t;
	size_t kept = 0;

	rp_list_init(&keep);
	rp_list_foreach_safe (n, t, &c->h2.streams) {
		struct grpc_stream *s = rp_list_entry(n, struct grpc_stream, node);

		if (s->id >= 0 || RP_CONTAINER_OF(s, struct rp_grpc_client_call, stream)->done)
			continue;
		rp_list_unlink(n);
		rp_list_push_back(&keep, n);
		kept++;
	}
	c->h2.dead = true;
	grpc_h2_close_streams(&c->h2, NGHTTP2_CANCEL);
	grpc_h2_release(&c->h2);
	grpc_h2_init(&c->h2, c->loop, &channel_ops);
	rp_list_splice_back(&c->h2.streams, &keep);
	c->h2.stream_count = kept;
}

static void channel_free(struct rp_grpc_channel *c)
{
	channel_release(c);
	rp_loop_timer_cancel(&c->timer);
	rp_loop_task_cancel(&c->start_task);
	rp_loop_task_cancel(&c->lost_task);
	rp_loop_task_cancel(&c->fail_task);
	rp_tls_config_unref(c->config.tls);
	free(c->server_name);
	free(c->user_agent);
	free(c);
}

static void channel_on_orphaned(struct grpc_h2 *h2)
{
	struct rp_grpc_channel *c = grpc_channel_of(h2);

	if (c->destroyed)
		channel_free(c);
	else
		channel_release(c);
}

static void channel_lost_task(void *ctx)
{
	struct rp_grpc_channel *c = ctx;
	char reason[sizeof(c->reason)];

	channel_close_sockets(c);
	grpc_h2_enter(&c->h2);
	c->h2.orphan = true;
	memcpy(reason, c->reason, sizeof(reason));
	grpc_channel_end_calls(c, RP_GRPC_UNAVAILABLE, reason);
	if (c->config.on_state && !c->destroyed && c->state == RP_GRPC_CHANNEL_LOST)
		c->config.on_state(c, RP_GRPC_CHANNEL_LOST, reason, c->config.ctx);
	grpc_h2_leave(&c->h2);
}

/* HTTP/2 events. */

static int channel_on_header(nghttp2_session *session, const nghttp2_frame *frame,
	const uint8_t *name, size_t name_length, const uint8_t *value, size_t value_length,
	uint8_t flags, void *user)
{
	struct grpc_stream *s = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);

	if (s && frame->hd.type == NGHTTP2_HEADERS)
		grpc_call_deliver_headers(RP_CONTAINER_OF(s, struct rp_grpc_client_call, stream),
			name, name_length, value, value_length);
	return 0;
}

static void channel_arm_keepalive(struct rp_grpc_channel *c)
{
	uint64_t interval = c->config.ping_interval_ns;

	if (interval > 0)
		rp_loop_timer_at(c->loop, &c->timer, c->h2.heard_ns + interval);
	else
		rp_loop_timer_cancel(&c->timer);
}

static void channel_on_settings(struct rp_grpc_channel *c)
{
	if (c->state != RP_GRPC_CHANNEL_CONNECTING)
		return;
	c->state = RP_GRPC_CHANNEL_READY;
	channel_arm_keepalive(c);
	if (c->config.on_state)
		c->config.on_state(c, RP_GRPC_CHANNEL_READY, "", c->config.ctx);
}

static int channel_on_frame_recv(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
	struct rp_grpc_channel *c = grpc_channel_of(user);
	struct grpc_stream *s = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);

	switch (frame->hd.type) {
	case NGHTTP2_SETTINGS:
		if (!(frame->hd.flags & NGHTTP2_FLAG_ACK))
			channel_on_settings(c);
		break;
	case NGHTTP2_GOAWAY:
		c->going_away = true;
		snprintf(c->reason, sizeof(c->reason), "grpc: the server is going away: %.*s",
			(int)RP_MIN(frame->goaway.opaque_data_len, 64u),
			(const char *)frame->goaway.opaque_data);
		break;
	case NGHTTP2_PING:
		if ((frame->hd.flags & NGHTTP2_FLAG_ACK) && c->ping_sent_ns != 0) {
			c->ping_sent_ns = 0;
			channel_arm_keepalive(c);
		}
		break;
	case NGHTTP2_HEADERS:
	case NGHTTP2_DATA:
		if (s && (frame->hd.flags & NGHTTP2_FLAG_END_STREAM))
			grpc_client_input_end(
				RP_CONTAINER_OF(s, struct rp_grpc_client_call, stream));
		break;
	default:
		break;
	}
	return c->h2.dead ? NGHTTP2_ERR_CALLBACK_FAILURE : 0;
}

static int channel_session_new(struct rp_grpc_channel *c)
{
	nghttp2_settings_entry settings[] = {
		{NGHTTP2_SETTINGS_ENABLE_PUSH, 0},
		{NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, CHANNEL_STREAM_WINDOW_BYTES},
	};
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
	nghttp2_option_set_max_outbound_ack(option, CHANNEL_OUTBOUND_ACKS_MAX);
	grpc_h2_set_callbacks(callbacks);
	nghttp2_session_callbacks_set_on_header_callback(callbacks, channel_on_header);
	nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, channel_on_frame_recv);
	error = nghttp2_session_client_new2(&c->h2.session, callbacks, &c->h2, option);
	nghttp2_session_callbacks_del(callbacks);
	nghttp2_option_del(option);
	if (error == 0)
		error = grpc_h2_submit_settings(
			&c->h2, settings, RP_ARRAY_SIZE(settings), CHANNEL_CONN_WINDOW_BYTES);
	return error != 0 ? -ENOMEM : 0;
}

static void channel_input(struct grpc_h2 *h2, const uint8_t *data, size_t length)
{
}

/* With TLS the peer must have agreed on HTTP/2 before anything is said. */
static void channel_before_flush(struct grpc_h2 *h2)
{
	struct rp_grpc_channel *c = grpc_channel_of(h2);
	const char *alpn;

	if (!h2->wire.tls || c->alpn_checked || !rp_tls_open(h2->wire.tls))
		return;
	c->alpn_checked = true;
	alpn = rp_tls_alpn(h2->wire.tls);
	if (!alpn || strcmp(alpn, "h2") != 0)
		grpc_h2_lost(h2, -EPROTO, "the server does not speak HTTP/2 over TLS");
}

static const struct grpc_h2_ops channel_ops = {
	.message = grpc_client_on_message,
	.half_closed = grpc_client_on_half_closed,
	.bad = grpc_client_on_bad,
	.room = grpc_client_on_room,
	.written = grpc_client_on_written,
	.stream_closed = grpc_client_on_closed,
	.before_flush = channel_before_flush,
	.input = channel_input,
	.lost = channel_on_wire_lost,
	.orphaned = channel_on_orphaned,
};

/* Connecting. */

static struct rp_tls_session *channel_tls_new(struct rp_grpc_channel *c)
{
	const char *name = c->server_name ? c->server_name : c->target.host;
	uint8_t address[16];
	struct rp_span span = {.data = address};

	if (inet_pton(AF_INET, name, address) == 1)
		span.length = 4;
	else if (inet_pton(AF_INET6, name, address) == 1)
		span.length = 16;
	return rp_tls_session_new(c->config.tls, span.length > 0 ? NULL : name, span);
}

/* Speaks HTTP/2 on a connected socket, which is taken. */
static void channel_open(struct rp_grpc_channel *c, int fd)
{
	struct rp_tls_session *tls = NULL;
	int error, one = 1;

	if (c->config.tls) {
		tls = channel_tls_new(c);
		if (!tls) {
			close(fd);
			channel_lost(c, "no memory for TLS");
			return;
		}
	}
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	c->h2.in_bytes_max = CHANNEL_IN_BYTES;
	c->h2.in_window_bytes = CHANNEL_CONN_WINDOW_BYTES;
	c->h2.heard_ns = rp_loop_now_ns(c->loop);
	c->alpn_checked = false;
	c->ping_sent_ns = 0;
	c->reason[0] = 0;
	error = grpc_wire_open(&c->h2.wire, c->loop, fd, EPOLLIN, tls, grpc_h2_on_events, &c->h2);
	if (error == 0)
		error = channel_session_new(c);
	if (error < 0) {
		channel_lost(c, strerror(-error));
		return;
	}
	grpc_h2_post_flush(&c->h2);
	/* Reading is what starts a handshake. */
	if (tls)
		grpc_h2_on_events(&c->h2, EPOLLIN);
}

static void channel_try_next(struct rp_grpc_channel *c, int error);

static void channel_on_connected(void *ctx, uint32_t events)
{
	struct rp_grpc_channel *c = ctx;
	int fd = c->connecting.fd, error = 0;
	socklen_t length = sizeof(error);

	rp_loop_fd_remove(&c->connecting);
	c->connecting.fd = -1;
	if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) < 0)
		error = errno;
	if (error == 0) {
		channel_open(c, fd);
		return;
	}
	close(fd);
	channel_try_next(c, error);
}

/* Tries the addresses one after the other; `error` is why the one before did not do. */
static void channel_try_next(struct rp_grpc_channel *c, int error)
{
	while (c->addr_next < c->addr_count) {
		const struct grpc_addr *a = &c->addrs[c->addr_next++];
		int fd = socket(a->sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

		if (fd < 0) {
			error = errno;
			continue;
		}
		if (connect(fd, (const struct sockaddr *)&a->sa, a->length) == 0) {
			channel_open(c, fd);
			return;
		}
		if (errno == EINPROGRESS &&
			rp_loop_fd_add(c->loop, &c->connecting, fd, EPOLLOUT) == 0)
			return;
		error = errno;
		close(fd);
	}
	channel_lost(c, strerror(error));
}

static void channel_on_resolved(void *ctx, const struct grpc_addr *addrs, int count)
{
	struct rp_grpc_channel *c = ctx;

	c->resolve = NULL;
	if (count <= 0) {
		channel_lost(c, "no address for the name");
		return;
	}
	memcpy(c->addrs, addrs, (size_t)count * sizeof(*addrs));
	c->addr_count = count;
	channel_try_next(c, EADDRNOTAVAIL);
}

static void channel_start(void *ctx)
{
	struct rp_grpc_channel *c = ctx;
	int fd = c->attach_fd;

	if (c->state != RP_GRPC_CHANNEL_CONNECTING)
		return;
	rp_loop_timer_in(c->loop, &c->timer, c->config.connect_timeout_ns);
	if (fd >= 0) {
		c->attach_fd = -1;
		channel_open(c, fd);
		return;
	}
	c->addr_next = 0;
	c->addr_count = grpc_target_addresses(&c->target, c->addrs);
	if (c->addr_count > 0) {
		channel_try_next(c, EADDRNOTAVAIL);
		return;
	}
	c->resolve = grpc_resolve_start(c->loop, &c->target, channel_on_resolved, c);
	if (!c->resolve)
		channel_lost(c, strerror(errno));
}

static void channel_on_timer(void *ctx)
{
	struct rp_grpc_channel *c = ctx;
	uint64_t now = rp_loop_now_ns(c->loop);

	if (c->state == RP_GRPC_CHANNEL_CONNECTING) {
		channel_lost(c, "no connection in time");
		return;
	}
	if (c->ping_sent_ns != 0 && c->h2.heard_ns < c->ping_sent_ns) {
		channel_lost(c, "keepalive ping not answered");
		return;
	}
	c->ping_sent_ns = 0;
	if (now - c->h2.heard_ns < c->config.ping_interval_ns) {
		channel_arm_keepalive(c);
		return;
	}
	c->ping_sent_ns = now;
	(void)nghttp2_submit_ping(c->h2.session, NGHTTP2_FLAG_NONE, NULL);
	grpc_h2_post_flush(&c->h2);
	rp_loop_timer_in(c->loop, &c->timer, c->config.ping_timeout_ns);
}

int rp_grpc_channel_connect(struct rp_grpc_channel *c)
{
	if (c->state == RP_GRPC_CHANNEL_CONNECTING || c->state == RP_GRPC_CHANNEL_READY)
		return 0;
	c->state = RP_GRPC_CHANNEL_CONNECTING;
	c->going_away = false;
	/* By a task: what is left of a connection before is gone by then. */
	rp_loop_task_post(c->loop, &c->start_task);
	return 0;
}

int rp_grpc_channel_attach(struct rp_grpc_channel *c, int fd)
{
	if (c->state == RP_GRPC_CHANNEL_CONNECTING || c->state == RP_GRPC_CHANNEL_READY) {
		close(fd);
		return -EISCONN;
	}
	c->attach_fd = fd;
	return rp_grpc_channel_connect(c);
}

/* Ends calls and closes; within a callback, memory goes when that has returned. */
static void channel_end(struct rp_grpc_channel *c, enum rp_grpc_code code, const char *message)
{
	grpc_h2_enter(&c->h2);
	c->state = RP_GRPC_CHANNEL_IDLE;
	channel_close_sockets(c);
	rp_loop_timer_cancel(&c->timer);
	rp_loop_task_cancel(&c->start_task);
	rp_loop_task_cancel(&c->lost_task);
	c->h2.dead = true;
	c->h2.orphan = true;
	grpc_channel_end_calls(c, code, message);
	grpc_h2_leave(&c->h2);
}

void rp_grpc_channel_disconnect(struct rp_grpc_channel *c)
{
	snprintf(c->reason, sizeof(c->reason), "grpc: disconnected");
	channel_end(c, RP_GRPC_UNAVAILABLE, "grpc: disconnected");
}

/* Life. */

struct rp_grpc_channel *rp_grpc_channel_new(
	struct rp_loop *loop, const char *address, const struct rp_grpc_channel_config *config)
{
	struct rp_grpc_channel *c = calloc(1, sizeof(*c));
	bool v6;

	if (!c)
		return NULL;
	if (grpc_target_parse(&c->target, address) < 0) {
		free(c);
		errno = EINVAL;
		return NULL;
	}
	c->loop = loop;
	c->config = *config;
	c->config.tls = config->tls ? rp_tls_config_ref(config->tls) : NULL;
	v6 = strchr(c->target.host, ':') != NULL;
	snprintf(c->authority, sizeof(c->authority), v6 ? "[%s]:%s" : "%s:%s",
		c->target.is_unix ? "localhost" : c->target.host,
		c->target.is_unix ? "0" : c->target.port);
	c->user_agent = strdup(config->user_agent ? config->user_agent : "ringpost/" RP_VERSION);
	c->server_name = config->server_name ? strdup(config->server_name) : NULL;
	c->attach_fd = -1;
	rp_loop_fd_setup(&c->connecting, channel_on_connected, c);
	rp_loop_timer_setup(&c->timer, channel_on_timer, c);
	rp_loop_task_setup(&c->start_task, channel_start, c);
	rp_loop_task_setup(&c->lost_task, channel_lost_task, c);
	rp_loop_task_setup(&c->fail_task, grpc_client_fail_task, c);
	grpc_h2_init(&c->h2, loop, &channel_ops);
	if (!c->user_agent || (config->server_name && !c->server_name)) {
		channel_free(c);
		errno = ENOMEM;
		return NULL;
	}
	return c;
}

void rp_grpc_channel_destroy(struct rp_grpc_channel *c)
{
	if (!c || c->destroyed)
		return;
	c->destroyed = true;
	channel_end(c, RP_GRPC_CANCELLED, "grpc: the channel is closed");
}

enum rp_grpc_channel_state rp_grpc_channel_state(const struct rp_grpc_channel *c)
{
	return c->state;
}

uint64_t rp_grpc_channel_heard_ns(const struct rp_grpc_channel *c)
{
	return c->h2.session ? c->h2.heard_ns : 0;
}

size_t rp_grpc_channel_queued_bytes(const struct rp_grpc_channel *c)
{
	return grpc_h2_queued_bytes(&c->h2);
}

uint64_t rp_grpc_backoff_ns(
	struct rp_rand *rand, unsigned attempt, uint64_t base_ns, uint64_t max_ns)
{
	double delay = (double)base_ns;

	for (unsigned i = 0; i < attempt && delay < (double)max_ns; i++)
		delay *= 1.6;
	delay = RP_MIN(delay, (double)max_ns);
	return (uint64_t)(delay * (0.8 + 0.4 * rp_rand_unit(rand)));
}
