/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The shared object from the tool's side, for its tests: packets are built and compared whole.
 *
 *   1. begin() and finish() around each test: one stack, one connection at a time.
 *   2. in() gives the stack a segment, out() is the next that it must have sent.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <stdbool.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/tcp.h>
#include <netinet/in.h>

#include "interface.h"

#define FIN 0x01
#define SYN 0x02
#define RST 0x04
#define PSH 0x08
#define ACK 0x10
#define ECE 0x40
#define CWR 0x80

extern void (*interface_init)(const char *flags, struct packetdrill_interface *interface);
extern int (*exported_getsockopt)(int fd, int level, int name, void *value, socklen_t *length);
extern struct packetdrill_interface t;
#define U t.userdata

extern const uint8_t addr_stack[4], addr_peer[4], addr6_stack[16], addr6_peer[16];
extern const uint8_t opt_mss[4];
/* The one connection of a test: ports and initial sequence numbers. */
extern uint16_t port_stack, port_peer;
extern uint32_t iss, irs;
extern bool irs_known, v6;

struct segment {
	uint8_t flags;
	uint32_t seq, ack; /* relative */
	uint16_t window;
	const uint8_t *options;
	size_t options_length;
	const char *data;
	size_t length;
	uint8_t ttl, tos; /* ttl 0: 64 */
};

void in_segment(struct segment g);
#define in(...) in_segment((struct segment){.window = 65535, __VA_ARGS__})
/** The next packet has to be exactly this one; where `window` is 0 there, any. Returns its time. */
long long out_segment(struct segment g);
#define out(...) out_segment((struct segment){__VA_ARGS__})

long long now_us(void);
int begin_with(const char *flags);
int begin(void **state);
int finish(void **state);
struct sockaddr_in address(const uint8_t a[4], uint16_t port);
int listening(void);
/** The handshake, with MSS alone; the round trip takes 100 ms. */
int accepted(int *listener);
struct tcp_info info_of(int fd);

#define assert_errno(call, error)                 \
	do {                                      \
		errno = 0;                        \
		assert_int_equal((call), -1);     \
		assert_int_equal(errno, (error)); \
	} while (0)

/* selftest_calls.c */

void blocked_on_a_thread(void **state);
void blocked_here(void **state);
void epolls(void **state);
void nagle_and_cork(void **state);
void held_back(void **state);
void left_in_queue(void **state);
void bad_addresses(void **state);
void times_of_sending(void **state);
void windows_that_limit(void **state);
void marks_that_reduce(void **state);
void ttl_and_tos(void **state);
void records_end_segments(void **state);
void listener_told_later(void **state);
void options(void **state);
void pipes(void **state);

/* selftest_errqueue.c */

void told_what_is_free(void **state);
void told_when_it_went(void **state);
