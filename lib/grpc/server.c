/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <base/assert.h>
#include <base/log.h>
#include "server_priv.h"

#define SERVER_BACKLOG 1024
#define SERVER_ACCEPTS_MAX 64
/* With port 0 the second address of a name must find the first one's port free. */
#define SERVER_PORT_TRIES_MAX 16
#define SERVER_RETRY_NS (100 * RP_NS_PER_MS)
/* After the grace period: time for the last words to be written. */
#define SERVER_LAST_WORDS_NS RP_NS_PER_S

struct rp_grpc_server_config rp_grpc_server_config_default(void)
{
	return (struct rp_grpc_server_config){
		.limits =
			{
				.connections = 10000,
				.streams = 10000,
				.header_bytes = 64u << 10,
				.message_bytes = 2u << 20,
				.http_body_bytes = 4u << 20,
				.stream_window_bytes = 1u << 20,
				.conn_window_bytes = 16u << 20,
				.conn_in_bytes = 256u << 20,
				.in_bytes = 512u << 20,
				.call_out_bytes = 4u << 20,
				.conn_out_bytes = 128u << 20,
				.stream_resets_burst = 100000,
				.stream_resets_rate = 10000,
			},
		.ping_interval_ns = 7200 * RP_NS_PER_S,
		.ping_timeout_ns = 20 * RP_NS_PER_S,
		.client_ping_min_ns = RP_NS_PER_S,
		.handshake_timeout_ns = 10 * RP_NS_PER_S,
	};
}

static void server_on_drained(void *ctx)
{
	struct rp_grpc_server *server = ctx;

	server->on_drained(server->drained_ctx);
}

static void server_on_drain_timer(void *ctx)
{
	struct rp_grpc_server *server = ctx;
	struct rp_list *n, *t;

	if (!server->stopped) {
		server->stopped = true;
		rp_list_foreach_safe (n, t, &server->conns)
			grpc_conn_stop(
				rp_list_entry(n, struct rp_grpc_conn, node), server->drain_text);
		rp_loop_timer_in(server->loop, &server->drain_timer, SERVER_LAST_WORDS_NS);
		return;
	}
	rp_list_foreach_safe (n, t, &server->conns)
		grpc_conn_destroy(
			rp_list_entry(n, struct rp_grpc_conn, node), RP_GRPC_CANCEL_STOPPED);
}

struct rp_grpc_server *rp_grpc_server_new(
	struct rp_loop *loop, const struct rp_grpc_server_config *config)
{
	struct rp_grpc_server *server = calloc(1, sizeof(*server));

	if (!server)
		return NULL;
	server->loop = loop;
	server->config = *config;
	rp_list_init(&server->conns);
	rp_loop_timer_setup(&server->drain_timer, server_on_drain_timer, server);
	rp_loop_task_setup(&server->drained_task, server_on_drained, server);
	return server;
}

void rp_grpc_server_set_limits(struct rp_grpc_server *server, uint32_t connections,
	uint32_t streams, uint32_t message_bytes)
{
	server->config.limits.connections = connections;
	server->config.limits.streams = streams;
	server->config.limits.message_bytes = message_bytes;
}

static void listener_destroy(struct grpc_listener *l)
{
	for (unsigned i = 0; i < l->socket_count; i++) {
		rp_loop_fd_remove(&l->sockets[i]);
		close(l->sockets[i].fd);
	}
	l->socket_count = 0;
	rp_loop_timer_cancel(&l->retry);
	if (l->unlink_path)
		(void)unlink(l->unlink_path);
	free(l->unlink_path);
	l->unlink_path = NULL;
	rp_tls_config_unref(l->tls);
	l->tls = NULL;
}

void rp_grpc_server_destroy(struct rp_grpc_server *server)
{
	if (!server)
		return;
	server->on_drained = NULL;
	rp_grpc_server_close_listeners(server);
	while (!rp_list_empty(&server->conns))
		grpc_conn_destroy(rp_list_entry(server->conns.next, struct rp_grpc_conn, node),
			RP_GRPC_CANCEL_STOPPED);
	rp_loop_timer_cancel(&server->drain_timer);
	rp_loop_task_cancel(&server->drained_task);
	for (int i = 0; i < server->listener_count; i++)
		free(server->listeners[i]);
	free(server->listeners);
	grpc_server_methods_free(server);
	free(server->handlers);
	free(server->drain_text);
	free(server);
}

/* HTTP handlers: few, so a list. */

const struct rp_http_handler *grpc_server_http(
	const struct rp_grpc_server *server, const char *path, size_t length)
{
	const struct rp_http_handler *best = NULL;
	size_t best_length = 0;

	for (size_t i = 0; i < server->handler_count; i++) {
		const struct rp_http_handler *h = server->handlers[i];
		size_t n = strlen(h->path);

		if (n == length && memcmp(h->path, path, n) == 0)
			return h;
		if (h->path[n - 1] == '/' && n < length && memcmp(h->path, path, n) == 0 &&
			n > best_length) {
			best = h;
			best_length = n;
		}
	}
	return best;
}

int rp_grpc_server_add_http(
	struct rp_grpc_server *server, const struct rp_http_handler *handlers, size_t count)
{
	const struct rp_http_handler **grown;

	for (size_t i = 0; i < count; i++) {
		for (size_t j = 0; j < server->handler_count; j++) {
			if (strcmp(server->handlers[j]->path, handlers[i].path) == 0)
				return -EEXIST;
		}
	}
	grown = realloc(server->handlers, (server->handler_count + count) * sizeof(*grown));
	if (!grown)
		return -ENOMEM;
	server->handlers = grown;
	for (size_t i = 0; i < count; i++)
		server->handlers[server->handler_count++] = &handlers[i];
	return 0;
}

/* Listening. */

static void listener_retry(void *ctx)
{
	struct grpc_listener *l = ctx;

	for (unsigned i = 0; i < l->socket_count; i++)
		rp_loop_fd_modify(&l->sockets[i], EPOLLIN);
}

/* Out of descriptors the backlog stays: a pause, or the loop would spin on it. */
static void listener_pause(struct grpc_listener *l, int error)
{
	RP_LOG(RP_LOG_GRPC, RP_LOG_WARNING, "accept: %s", strerror(error));
	for (unsigned i = 0; i < l->socket_count; i++)
		rp_loop_fd_modify(&l->sockets[i], 0);
	rp_loop_timer_in(l->server->loop, &l->retry, SERVER_RETRY_NS);
}

static void listener_accept(struct grpc_listener *l, int listen_fd)
{
	struct rp_grpc_server *server = l->server;

	for (int i = 0; i < SERVER_ACCEPTS_MAX && l->socket_count > 0; i++) {
		struct grpc_addr peer = {.length = sizeof(peer.sa)};
		int fd = accept4(listen_fd, (struct sockaddr *)&peer.sa, &peer.length,
			SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd < 0) {
			if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS ||
				errno == ENOMEM)
				listener_pause(l, errno);
			if (errno == ECONNABORTED || errno == EINTR)
				continue;
			return;
		}
		if (server->stats.conns_open >= server->config.limits.connections) {
			server->stats.conns_refused_limit++;
			close(fd);
			continue;
		}
		if (grpc_conn_new(server, fd, &peer, l, l->tls) < 0)
			server->stats.conns_refused_limit++;
	}
}

#define LISTENER_READY(i)                                          \
	static void listener_ready_##i(void *ctx, uint32_t events) \
	{                                                          \
		struct grpc_listener *l = ctx;                     \
                                                                   \
		listener_accept(l, l->sockets[i].fd);              \
	}
LISTENER_READY(0)
LISTENER_READY(1)
LISTENER_READY(2)
LISTENER_READY(3)
LISTENER_READY(4)
LISTENER_READY(5)
LISTENER_READY(6)
LISTENER_READY(7)

static const rp_loop_fd_fn listener_ready[GRPC_ADDR_MAX] = {listener_ready_0, listener_ready_1,
	listener_ready_2, listener_ready_3, listener_ready_4, listener_ready_5, listener_ready_6,
	listener_ready_7};

/* A socket file that nobody listens on any more is in the way of a new one. */
static void listener_remove_stale(const struct grpc_addr *a)
{
	const struct sockaddr_un *un = (const struct sockaddr_un *)&a->sa;
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return;
	if (connect(fd, (const struct sockaddr *)&a->sa, a->length) < 0 && errno == ECONNREFUSED)
		(void)unlink(un->sun_path);
	close(fd);
}

static int listener_bind(struct grpc_listener *l, const struct grpc_addr *a)
{
	struct rp_loop_fd *w = &l->sockets[l->socket_count];
	int one = 1, zero = 0, error;
	int fd = socket(a->sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return -errno;
	if (a->sa.ss_family == AF_INET6) {
		const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)&a->sa;
		bool any = IN6_IS_ADDR_UNSPECIFIED(&v6->sin6_addr);

		(void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, any ? &zero : &one, sizeof(one));
	}
	(void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(fd, (const struct sockaddr *)&a->sa, a->length) < 0 ||
		listen(fd, SERVER_BACKLOG) < 0) {
		error = -errno;
		close(fd);
		return error;
	}
	rp_loop_fd_setup(w, listener_ready[l->socket_count], l);
	error = rp_loop_fd_add(l->server->loop, w, fd, EPOLLIN);
	if (error < 0) {
		close(fd);
		return error;
	}
	l->socket_count++;
	return 0;
}

static uint16_t listener_port(const struct grpc_listener *l)
{
	struct sockaddr_storage sa;
	socklen_t length = sizeof(sa);

	if (getsockname(l->sockets[0].fd, (struct sockaddr *)&sa, &length) < 0)
		return 0;
	if (sa.ss_family == AF_INET)
		return ntohs(((struct sockaddr_in *)&sa)->sin_port);
	if (sa.ss_family == AF_INET6)
		return ntohs(((struct sockaddr_in6 *)&sa)->sin6_port);
	return 0;
}

/* The family, or the address, is not there on this host: others of the name may be. */
static bool listener_absent(int error)
{
	return error == -EAFNOSUPPORT || error == -EADDRNOTAVAIL;
}

static int listener_bind_all(struct grpc_listener *l, struct grpc_addr *addrs, int count)
{
	uint16_t port = 0;
	int error = -EADDRNOTAVAIL;

	for (int i = 0; i < count; i++) {
		int result;

		if (port != 0 && addrs[i].sa.ss_family == AF_INET)
			((struct sockaddr_in *)&addrs[i].sa)->sin_port = htons(port);
		else if (port != 0 && addrs[i].sa.ss_family == AF_INET6)
			((struct sockaddr_in6 *)&addrs[i].sa)->sin6_port = htons(port);
		result = listener_bind(l, &addrs[i]);
		if (result < 0 && !listener_absent(result))
			return result;
		if (result == 0 && port == 0)
			port = listener_port(l);
		if (result < 0 && l->socket_count == 0)
			error = result;
	}
	return l->socket_count > 0 ? 0 : error;
}

static int listener_open(struct grpc_listener *l, const struct grpc_target *t)
{
	bool free_port = strcmp(t->port, "0") == 0;
	struct grpc_target any = *t;
	int error = -EADDRINUSE;

	for (int i = 0; i < SERVER_PORT_TRIES_MAX; i++) {
		struct grpc_addr addrs[GRPC_ADDR_MAX];
		int count = grpc_target_addresses(t, addrs);

		if (count < 0)
			count = grpc_target_resolve(t, addrs);
		if (count < 0)
			return count;
		if (t->is_unix && t->host[0] != '@')
			listener_remove_stale(&addrs[0]);
		error = listener_bind_all(l, addrs, count);
		if (listener_absent(error) && !t->is_unix && !t->host[0]) {
			strcpy(any.host, "0.0.0.0");
			(void)grpc_target_addresses(&any, addrs);
			error = listener_bind_all(l, addrs, 1);
		}
		if (error != -EADDRINUSE || !free_port)
			break;
		listener_destroy(l);
	}
	return error;
}

int rp_grpc_server_listen(struct rp_grpc_server *server, const char *address,
	struct rp_tls_config *tls, uint16_t *port)
{
	struct grpc_listener *l, **grown;
	struct grpc_target target;
	int error = grpc_target_parse(&target, address);

	if (error < 0)
		return error;
	grown = realloc(server->listeners,
		(size_t)(server->listener_count + 1) * sizeof(struct grpc_listener *));
	l = calloc(1, sizeof(*l));
	if (grown)
		server->listeners = grown;
	if (!grown || !l) {
		free(l);
		return -ENOMEM;
	}
	l->server = server;
	l->number = server->listener_count;
	rp_loop_timer_setup(&l->retry, listener_retry, l);
	error = listener_open(l, &target);
	if (error == 0 && target.is_unix && target.host[0] != '@') {
		l->unlink_path = strdup(target.host);
		error = l->unlink_path ? 0 : -ENOMEM;
	}
	if (error < 0) {
		listener_destroy(l);
		free(l);
		return error;
	}
	l->tls = tls ? rp_tls_config_ref(tls) : NULL;
	if (port)
		*port = listener_port(l);
	server->listeners[server->listener_count] = l;
	return server->listener_count++;
}

void rp_grpc_server_set_tls(struct rp_grpc_server *server, int listener, struct rp_tls_config *tls)
{
	struct grpc_listener *l = server->listeners[listener];
	struct rp_tls_config *old = l->tls;

	l->tls = tls ? rp_tls_config_ref(tls) : NULL;
	rp_tls_config_unref(old);
}

void rp_grpc_server_close_listeners(struct rp_grpc_server *server)
{
	for (int i = 0; i < server->listener_count; i++)
		listener_destroy(server->listeners[i]);
}

int rp_grpc_server_attach(struct rp_grpc_server *server, int fd, struct rp_tls_config *tls)
{
	struct grpc_addr peer = {.length = sizeof(peer.sa)};

	if (getpeername(fd, (struct sockaddr *)&peer.sa, &peer.length) < 0) {
		int error = -errno;

		close(fd);
		return error;
	}
	return grpc_conn_new(server, fd, &peer, NULL, tls);
}

/* Stopping. */

void grpc_server_conn_gone(struct rp_grpc_server *server)
{
	if (!server->draining || server->drained || !rp_list_empty(&server->conns))
		return;
	server->drained = true;
	rp_loop_timer_cancel(&server->drain_timer);
	if (server->on_drained)
		rp_loop_task_post(server->loop, &server->drained_task);
}

void rp_grpc_server_drain(struct rp_grpc_server *server, uint64_t grace_ns, const char *text,
	rp_loop_fn on_drained, void *ctx)
{
	struct rp_list *n, *t;

	if (server->draining)
		return;
	server->draining = true;
	server->on_drained = on_drained;
	server->drained_ctx = ctx;
	server->drain_text = strdup(text);
	rp_grpc_server_close_listeners(server);
	rp_loop_timer_in(server->loop, &server->drain_timer, grace_ns);
	rp_list_foreach_safe (n, t, &server->conns)
		grpc_conn_drain(rp_list_entry(n, struct rp_grpc_conn, node));
	grpc_server_conn_gone(server);
}

struct rp_grpc_server_stats rp_grpc_server_stats(const struct rp_grpc_server *server)
{
	struct rp_grpc_server_stats st = server->stats;

	st.in_bytes_held = server->in_bytes;
	return st;
}
