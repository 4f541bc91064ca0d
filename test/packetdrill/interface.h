/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The table of functions through which a conformance tool drives a stack that lives in a shared
 * object. The order of the members is the tool's; each function takes `userdata` first and gives
 * what the system call of its name gives, errno included.
 */

#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

struct packetdrill_interface {
	void *userdata;
	void (*free)(void *userdata);
	int (*socket)(void *userdata, int domain, int type, int protocol);
	int (*bind)(void *userdata, int fd, const struct sockaddr *addr, socklen_t length);
	int (*listen)(void *userdata, int fd, int backlog);
	int (*accept)(void *userdata, int fd, struct sockaddr *addr, socklen_t *length);
	int (*connect)(void *userdata, int fd, const struct sockaddr *addr, socklen_t length);
	ssize_t (*read)(void *userdata, int fd, void *buf, size_t count);
	ssize_t (*readv)(void *userdata, int fd, const struct iovec *iov, int iovcnt);
	ssize_t (*recv)(void *userdata, int fd, void *buf, size_t length, int flags);
	ssize_t (*recvfrom)(void *userdata, int fd, void *buf, size_t length, int flags,
		struct sockaddr *addr, socklen_t *addr_length);
	ssize_t (*recvmsg)(void *userdata, int fd, struct msghdr *msg, int flags);
	ssize_t (*write)(void *userdata, int fd, const void *buf, size_t count);
	ssize_t (*writev)(void *userdata, int fd, const struct iovec *iov, int iovcnt);
	ssize_t (*send)(void *userdata, int fd, const void *buf, size_t length, int flags);
	ssize_t (*sendto)(void *userdata, int fd, const void *buf, size_t length, int flags,
		const struct sockaddr *addr, socklen_t addr_length);
	ssize_t (*sendmsg)(void *userdata, int fd, const struct msghdr *msg, int flags);
	int (*fcntl)(void *userdata, int fd, int cmd, ...);
	int (*ioctl)(void *userdata, int fd, unsigned long request, ...);
	int (*close)(void *userdata, int fd);
	int (*shutdown)(void *userdata, int fd, int how);
	int (*getsockopt)(
		void *userdata, int fd, int level, int name, void *value, socklen_t *length);
	int (*setsockopt)(
		void *userdata, int fd, int level, int name, const void *value, socklen_t length);
	int (*poll)(void *userdata, struct pollfd *fds, nfds_t n, int timeout_ms);
	/** A packet into the stack. 0 or -1. */
	int (*netdev_send)(void *userdata, const void *buf, size_t count);
	/** The next packet out of the stack: *count is the room, then the length. 0 or -1. */
	int (*netdev_receive)(void *userdata, void *buf, size_t *count, long long *time_us);
	int (*usleep)(void *userdata, useconds_t us);
	int (*gettimeofday)(void *userdata, struct timeval *tv, struct timezone *tz);
	int (*epoll_create)(void *userdata, int size);
	int (*epoll_ctl)(void *userdata, int epfd, int op, int fd, struct epoll_event *event);
	int (*epoll_wait)(
		void *userdata, int epfd, struct epoll_event *events, int max, int timeout_ms);
	int (*pipe)(void *userdata, int fds[2]);
	ssize_t (*splice)(void *userdata, int fd_in, loff_t *off_in, int fd_out, loff_t *off_out,
		size_t length, unsigned flags);
};

/** Fills the table. `flags` is `profile=linux|classic`, `local=ADDRESS`, `mtu=N`, by commas. */
void packetdrill_interface_init(const char *flags, struct packetdrill_interface *interface);
