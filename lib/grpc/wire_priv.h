/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * One socket with or without TLS: plain bytes in and out, what the kernel does not take kept, and
 * how far plain bytes have got, so that a message can be told to be written.
 */

#include <sys/types.h>

#include <grpc/loop.h>
#include <tls/tls.h>

struct grpc_wire {
	struct rp_loop_fd watch; /* fd -1 when closed; its owner sets the function */
	struct rp_tls_session *tls;
	uint8_t *left; /* not yet taken by the kernel, without TLS */
	size_t left_head, left_tail;
	bool blocked;  /* the kernel takes no more until EPOLLOUT */
	bool no_input; /* reading is held back */
	uint64_t plain_total, plain_sent;
	uint64_t bytes_in, bytes_out, writes;
};

/** Takes `fd` (non-blocking set here), also on failure, and `tls`. 0 or -errno. */
int grpc_wire_open(struct grpc_wire *w, struct rp_loop *loop, int fd, uint32_t events,
	struct rp_tls_session *tls, rp_loop_fd_fn fn, void *ctx);
/** Idempotent. */
void grpc_wire_close(struct grpc_wire *w);
/** Plain bytes: > 0; 0 at the end; -EAGAIN; -errno. May leave TLS output: flush after reading. */
ssize_t grpc_wire_read(struct grpc_wire *w, uint8_t *out, size_t size);
/** Sends, or keeps what the kernel does not take. 0 or -errno. */
int grpc_wire_write(struct grpc_wire *w, const uint8_t *data, size_t length);
/** Sends what is kept. 0 or -errno; `blocked` says whether some is left. */
int grpc_wire_flush(struct grpc_wire *w);
/** Holds reading back, or goes on with it. */
void grpc_wire_hold_input(struct grpc_wire *w, bool hold);
/** Best effort at the end: close_notify, and no more output. */
void grpc_wire_shutdown(struct grpc_wire *w);
static inline size_t grpc_wire_left_bytes(const struct grpc_wire *w)
{
	return w->tls ? rp_tls_pending(w->tls).length : w->left_tail - w->left_head;
}
