/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Sockets over one TCP stack on a virtual clock.
 *
 *   knobs.c   flags, $STACK_KNOBS, the stack's configuration
 *   clock.c   the lock, time, who waits, packets in and out
 *   sock.c    descriptors, events of the stack, what is sent when (Nagle, cork)
 *   calls.c   socket, bind, listen, accept, connect, close, shutdown
 *   io.c      read and write in all their forms, splice
 *   option.c  getsockopt, setsockopt, fcntl, ioctl
 *   errqueue.c  the error queue: MSG_ZEROCOPY, SO_TIMESTAMPING
 *   info.c    TCP_INFO
 *   poll.c    poll and epoll
 *   init.c    the table
 *
 * A call may block on a thread of its own: it waits on a condition until a call of another thread
 * (a packet, the passing of time) has made it ready, and is finished before that one goes on. A
 * call that would block the thread that made the table lets the virtual clock run instead.
 */

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>

#include "rig.h"

#define PD_SOCKS_MAX 512
#define PD_FDS_MAX 4096
#define PD_BACKLOG_MAX 128
#define PD_WATCHES_MAX 64
#define PD_RECORDS_MAX 64
#define PD_EVER UINT64_MAX

enum pd_state { PD_FREE, PD_NEW, PD_LISTEN, PD_CONNECTING, PD_CONNECTED, PD_ENDED, PD_EPOLL };

enum pd_spent { PD_SPENT_IDLE, PD_SPENT_BUSY, PD_SPENT_WINDOW, PD_SPENT_BUFFER, PD_SPENT_COUNT };

/** What passed by on the wire, for TCP_INFO. */
struct pd_wire {
	uint32_t segs_in, segs_out, data_in, data_out;
	uint64_t bytes_out, bytes_again;
	uint32_t end; /* behind the last byte that was sent */
	bool end_known;
	enum pd_spent spent; /* with what, since counted_ns */
	uint64_t counted_ns, spent_ns[PD_SPENT_COUNT];
	uint64_t opened_ns, last_data_out_ns, last_data_in_ns, last_ack_in_ns;
};

struct pd_options {
	int rcvbuf, sndbuf; /* as set, 0: default; getsockopt() gives the double */
	int reuse, keepalive, nodelay, cork, maxseg, user_timeout_ms, quickack;
	int keep_idle, keep_interval, keep_count;
	int linger_on, linger_s, rcvlowat, no_check, priority, tos, ttl, hops, defer_accept,
		syn_count;
	int linger2, window_clamp, v6only, mark, broadcast, timestamp, zerocopy, notsent_lowat, inq;
	int timestamping, mtu_discover, kept; /* kept: given back, and nothing else */
	uint64_t rcvtimeo_ns, sndtimeo_ns;    /* 0: none */
	char congestion[16];
};

struct pd_watch {
	int fd;
	struct epoll_event event;
	uint64_t seen; /* edge triggered: the socket's `changes` when it was reported */
	bool disabled; /* EPOLLONESHOT has fired */
};

/* What the error queue tells, and what it waits for until then. */
enum pd_notice_kind { PD_NOTICE_ZEROCOPY, PD_NOTICE_SCHED, PD_NOTICE_SENT, PD_NOTICE_ACKED };

struct pd_notice {
	enum pd_notice_kind kind;
	uint32_t lo, hi;
	uint64_t at_ns;
};

struct pd_pending {
	enum pd_notice_kind kind;
	uint32_t id;
	uint64_t end; /* of the stream */
};

struct pd_sock {
	enum pd_state state;
	int fd; /* -1: not accepted yet, or closed */
	int domain;
	bool nonblock;
	struct rp_endpoint local, peer; /* family 0: not bound, not connected */
	struct rp_conn *conn;
	int error; /* SO_ERROR */
	bool peer_fin, rd_shut, wr_shut;
	bool fin_wanted; /* the end follows when everything was pushed */
	bool orphan;	 /* close() was called */
	bool opened;	 /* it was a connection, not just an attempt */
	uint64_t changes;
	uint8_t *rx, *tx;
	size_t rx_length, rx_size, tx_length, tx_size;
	uint64_t pushed;     /* bytes given to the stack */
	uint64_t small_end;  /* `pushed` after the last segment that was not full */
	uint64_t cork_ns;    /* until then what is no full segment waits */
	bool more;	     /* MSG_MORE */
	bool flush;	     /* what waits goes now, once */
	uint64_t more_acked; /* of the stream, when that write was made */
	/* Where sends with MSG_EOR ended that were not sent yet: no segment reaches beyond. */
	uint64_t records[PD_RECORDS_MAX];
	unsigned record_count;
	bool full; /* a write found no room: EPOLLOUT is news when there is some */
	struct pd_options opt;
	struct pd_wire wire;
	struct pd_pending *pending;
	struct pd_notice *notices;
	uint32_t pending_count, notice_count, zerocopy_next;
	uint64_t timestamp_base; /* of the stream, when SOF_TIMESTAMPING_OPT_ID was asked for */
	/* A listener. */
	int backlog;
	struct pd_sock *queue[PD_BACKLOG_MAX];
	unsigned queued;
	/* An epoll. */
	struct pd_watch *watches;
	unsigned watch_count;
};

struct pd_packet {
	struct pd_packet *next;
	uint64_t at_ns;
	uint32_t length;
	uint8_t data[];
};

struct pd_waiter {
	struct pd_waiter *next;
	bool (*ready)(void *ctx);
	void *ctx;
	uint64_t deadline_ns;
	bool woken;
};

struct pd_knobs {
	bool classic;
	struct rp_endpoint local4, local6;
	uint16_t mtu;
	struct rp_tcp_config tcp;
	int rmem[3], wmem[3];
	int retries2;
	char congestion[16];
	int ecn, keep_idle, keep_interval, keep_count;
	bool read;
};

struct pd {
	pthread_mutex_t lock;
	pthread_cond_t changed, finished;
	pthread_t main_thread;
	struct pd_waiter *waiters;
	struct pd_knobs knobs;
	struct rig *rig;
	uint64_t now_ns; /* before there is a stack */
	struct pd_packet *out_first, **out_last;
	struct pd_sock socks[PD_SOCKS_MAX];
	struct pd_sock *by_fd[PD_FDS_MAX];
};

extern struct pd pd;

/* knobs.c */

void pd_knobs_init(const char *flags);
/** Reads $STACK_KNOBS, once. */
void pd_knobs_read(void);
/** Makes the stack, where there is none yet, for a socket's options and addresses. 0 or -errno. */
int pd_stack(const struct pd_sock *s, const struct rp_endpoint *local);
struct rp_conn_options pd_conn_options(const struct pd_sock *s);
/** What SO_KEEPALIVE would mean, by the socket's options and the knobs. */
void pd_keepalive(
	const struct pd_sock *s, uint64_t *idle_ns, uint64_t *interval_ns, uint32_t *probes);

/* clock.c */

uint64_t pd_now(void);
/** Lets time pass, the stack's timers and those of sockets included. */
void pd_run(uint64_t until_ns);
/** After anything that may have changed a socket: output, and whoever waited goes on. */
void pd_settle(void);
/** Waits; false: the deadline passed. */
bool pd_block(bool (*ready)(void *ctx), void *ctx, uint64_t deadline_ns);
/** Counts the time until now as what it was spent with; the socket has a connection. */
void pd_chrono(struct pd_sock *s);
void pd_on_packet(void *ctx, const uint8_t *packet, uint32_t length);
int pd_netdev_send(void *u, const void *buf, size_t count);
int pd_netdev_receive(void *u, void *buf, size_t *count, long long *time_us);
int pd_usleep(void *u, useconds_t us);
int pd_gettimeofday(void *u, struct timeval *tv, struct timezone *tz);

/* sock.c */

/** NULL and errno (ENFILE, EMFILE). Without a descriptor where `fd` is false. */
struct pd_sock *pd_sock_new(enum pd_state state, bool fd);
/** 0 or -1 and errno. */
int pd_sock_open(struct pd_sock *s);
/** NULL: not ours. */
struct pd_sock *pd_sock_of(int fd);
void pd_sock_free(struct pd_sock *s);
/** The socket of a descriptor that must be one; NULL and errno. */
struct pd_sock *pd_sock_get(int fd);
void pd_changed(struct pd_sock *s);
/** Gives the stack what may go. */
void pd_push(struct pd_sock *s);
/** Bytes written that the peer has not acknowledged. */
uint32_t pd_outstanding(const struct pd_sock *s);
/** Bytes of the stream that the peer has acknowledged. */
uint64_t pd_acked(const struct pd_sock *s);
bool pd_writable(const struct pd_sock *s);
extern const struct rp_conn_events pd_events;
int pd_on_accept(void *ctx, struct rp_conn *c, const struct rp_endpoint *peer,
	const struct rp_conn_events **events, void **conn_ctx, uint64_t now_ns);
/** Takes the error that waits. */
int pd_take_error(struct pd_sock *s);
/** -1 and errno. */
int pd_fail(int error);

/* calls.c */

int pd_socket(void *u, int domain, int type, int protocol);
int pd_bind(void *u, int fd, const struct sockaddr *addr, socklen_t length);
int pd_listen(void *u, int fd, int backlog);
int pd_accept(void *u, int fd, struct sockaddr *addr, socklen_t *length);
int pd_connect(void *u, int fd, const struct sockaddr *addr, socklen_t length);
int pd_close(void *u, int fd);
int pd_shutdown(void *u, int fd, int how);
/** A listener's options have changed: those who dial next get them. */
void pd_relisten(struct pd_sock *s);
void pd_address(const struct pd_sock *s, const struct rp_endpoint *e, struct sockaddr *addr,
	socklen_t *length);

/* io.c */

ssize_t pd_read(void *u, int fd, void *buf, size_t count);
ssize_t pd_readv(void *u, int fd, const struct iovec *iov, int iovcnt);
ssize_t pd_recv(void *u, int fd, void *buf, size_t length, int flags);
ssize_t pd_recvfrom(void *u, int fd, void *buf, size_t length, int flags, struct sockaddr *addr,
	socklen_t *addr_length);
ssize_t pd_recvmsg(void *u, int fd, struct msghdr *msg, int flags);
ssize_t pd_write(void *u, int fd, const void *buf, size_t count);
ssize_t pd_writev(void *u, int fd, const struct iovec *iov, int iovcnt);
ssize_t pd_send(void *u, int fd, const void *buf, size_t length, int flags);
ssize_t pd_sendto(void *u, int fd, const void *buf, size_t length, int flags,
	const struct sockaddr *addr, socklen_t addr_length);
ssize_t pd_sendmsg(void *u, int fd, const struct msghdr *msg, int flags);
ssize_t pd_splice(void *u, int fd_in, loff_t *off_in, int fd_out, loff_t *off_out, size_t length,
	unsigned flags);

/* option.c */

int pd_getsockopt(void *u, int fd, int level, int name, void *value, socklen_t *length);
int pd_setsockopt(void *u, int fd, int level, int name, const void *value, socklen_t length);
int pd_fcntl(void *u, int fd, int cmd, ...);
int pd_ioctl(void *u, int fd, unsigned long request, ...);

/* errqueue.c */

void pd_errqueue_free(struct pd_sock *s);
/** A send has given all bytes of the stream before `end`. */
void pd_errqueue_sent(struct pd_sock *s, uint64_t end, int flags);
/** Tells what has come to pass. */
void pd_errqueue_look(struct pd_sock *s);
/** recvmsg() with MSG_ERRQUEUE: 0, or -1 and EAGAIN. */
ssize_t pd_errqueue_read(struct pd_sock *s, struct msghdr *msg);

/* info.c */

/** Fills up to `room` bytes; returns how many. */
size_t pd_tcp_info(struct pd_sock *s, void *out, size_t room);

/* poll.c */

/** POLLIN ... of a socket, as tcp_poll() of Linux gives them. */
uint32_t pd_poll_mask(const struct pd_sock *s);
int pd_poll(void *u, struct pollfd *fds, nfds_t n, int timeout_ms);
int pd_epoll_create(void *u, int size);
int pd_epoll_ctl(void *u, int epfd, int op, int fd, struct epoll_event *event);
int pd_epoll_wait(void *u, int epfd, struct epoll_event *events, int max, int timeout_ms);
