/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "wire_priv.h"

int grpc_wire_open(struct grpc_wire *w, struct rp_loop *loop, int fd, uint32_t events,
	struct rp_tls_session *tls, rp_loop_fd_fn fn, void *ctx)
{
	int flags = fcntl(fd, F_GETFL), error;

	*w = (struct grpc_wire){.tls = tls};
	rp_loop_fd_setup(&w->watch, fn, ctx);
	if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
		error = -errno;
	else
		error = rp_loop_fd_add(loop, &w->watch, fd, events);
	if (error < 0) {
		w->watch.fd = fd;
		grpc_wire_close(w);
	}
	return error;
}

void grpc_wire_close(struct grpc_wire *w)
{
	if (w->watch.fd < 0)
		return;
	rp_loop_fd_remove(&w->watch);
	close(w->watch.fd);
	w->watch.fd = -1;
	rp_tls_session_destroy(w->tls);
	w->tls = NULL;
	free(w->left);
	w->left = NULL;
	w->left_head = w->left_tail = 0;
}

static void wire_watch(struct grpc_wire *w)
{
	uint32_t events = (w->no_input ? 0 : EPOLLIN) | (w->blocked ? EPOLLOUT : 0);

	rp_loop_fd_modify(&w->watch, events);
}

void grpc_wire_hold_input(struct grpc_wire *w, bool hold)
{
	if (w->no_input == hold || !w->watch.loop)
		return;
	w->no_input = hold;
	wire_watch(w);
}

static void wire_set_blocked(struct grpc_wire *w, bool blocked)
{
	if (w->blocked == blocked)
		return;
	w->blocked = blocked;
	wire_watch(w);
}

/* How many bytes the kernel took, or -errno. */
static ssize_t wire_send(struct grpc_wire *w, const uint8_t *data, size_t length)
{
	size_t done = 0;

	while (done < length) {
		ssize_t n = send(w->watch.fd, data + done, length - done, MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
			break;
		if (n < 0)
			return -errno;
		w->writes++;
		done += (size_t)n;
	}
	w->bytes_out += done;
	return (ssize_t)done;
}

static int wire_flush_tls(struct grpc_wire *w)
{
	struct rp_span out = rp_tls_pending(w->tls);
	ssize_t n;

	if (out.length > 0) {
		n = wire_send(w, out.data, out.length);
		if (n < 0)
			return (int)n;
		rp_tls_sent(w->tls, (size_t)n);
		if ((size_t)n < out.length) {
			wire_set_blocked(w, true);
			return 0;
		}
	}
	wire_set_blocked(w, false);
	w->plain_sent = w->plain_total;
	return 0;
}

int grpc_wire_flush(struct grpc_wire *w)
{
	size_t length = w->left_tail - w->left_head;
	ssize_t n;

	if (w->tls)
		return wire_flush_tls(w);
	if (length > 0) {
		n = wire_send(w, w->left + w->left_head, length);
		if (n < 0)
			return (int)n;
		w->left_head += (size_t)n;
		w->plain_sent += (size_t)n;
		if ((size_t)n < length)
			return 0;
		free(w->left);
		w->left = NULL;
		w->left_head = w->left_tail = 0;
	}
	wire_set_blocked(w, false);
	return 0;
}

static int wire_keep(struct grpc_wire *w, const uint8_t *data, size_t length)
{
	size_t have = w->left_tail - w->left_head;
	uint8_t *left = malloc(have + length);

	if (!left)
		return -ENOMEM;
	if (have > 0)
		memcpy(left, w->left + w->left_head, have);
	memcpy(left + have, data, length);
	free(w->left);
	w->left = left;
	w->left_head = 0;
	w->left_tail = have + length;
	wire_set_blocked(w, true);
	return 0;
}

int grpc_wire_write(struct grpc_wire *w, const uint8_t *data, size_t length)
{
	ssize_t n = 0;

	if (length == 0)
		return 0;
	w->plain_total += length;
	if (w->tls) {
		n = rp_tls_write(w->tls, data, length);
		if (n < 0)
			return (int)n;
		return w->blocked ? 0 : wire_flush_tls(w);
	}
	if (!w->blocked) {
		n = wire_send(w, data, length);
		if (n < 0)
			return (int)n;
		w->plain_sent += (size_t)n;
	}
	return (size_t)n < length ? wire_keep(w, data + n, length - (size_t)n) : 0;
}

ssize_t grpc_wire_read(struct grpc_wire *w, uint8_t *out, size_t size)
{
	uint8_t cipher[RP_TLS_IN_BYTES / 2];

	for (;;) {
		bool tls = w->tls != NULL;
		ssize_t n;

		if (tls) {
			n = rp_tls_read(w->tls, out, size);
			if (n != -EAGAIN)
				return n;
		}
		do
			n = recv(w->watch.fd, tls ? cipher : out, tls ? sizeof(cipher) : size, 0);
		while (n < 0 && errno == EINTR);
		if (n < 0)
			return errno == EWOULDBLOCK ? -EAGAIN : -errno;
		w->bytes_in += (uint64_t)n;
		if (!tls || n == 0)
			return n;
		/* Reading until -EAGAIN has emptied the session's buffer, so all of it is taken. */
		(void)rp_tls_feed(w->tls, cipher, (size_t)n);
	}
}

void grpc_wire_shutdown(struct grpc_wire *w)
{
	if (w->watch.fd < 0)
		return;
	if (w->tls) {
		rp_tls_close(w->tls);
		(void)wire_flush_tls(w);
	}
	(void)shutdown(w->watch.fd, SHUT_WR);
}
