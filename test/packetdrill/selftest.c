/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <stdbool.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/wait.h>

#include "interface.h"

/* Plays against the shared object as a conformance tool would; packets are compared whole. */

#define FIN 0x01
#define SYN 0x02
#define RST 0x04
#define PSH 0x08
#define ACK 0x10

static void (*interface_init)(const char *flags, struct packetdrill_interface *interface);
static int (*exported_getsockopt)(int fd, int level, int name, void *value, socklen_t *length);
static struct packetdrill_interface t;

static const uint8_t addr_stack[4] = {192, 168, 7, 9}, addr_peer[4] = {192, 0, 2, 1};
static const uint8_t addr6_stack[16] = {0xfd, 0x3d, [15] = 9},
		     addr6_peer[16] = {0x20, 1, 0xd, 0xb8, [15] = 1};
static const uint8_t opt_mss[4] = {2, 4, 5, 0xb4};

/* The one connection of a test: ports and initial sequence numbers. */
static uint16_t port_stack, port_peer;
static uint32_t iss, irs;
static bool irs_known, v6;

#define U t.userdata

static uint32_t sum16(const uint8_t *p, size_t n, uint32_t sum)
{
	for (size_t i = 0; i < n; i++)
		sum += i & 1 ? p[i] : (uint32_t)p[i] << 8;
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

static void put16(uint8_t *p, uint32_t v)
{
	p[0] = (uint8_t)(v >> 8);
	p[1] = (uint8_t)v;
}

static void put32(uint8_t *p, uint32_t v)
{
	put16(p, v >> 16);
	put16(p + 2, v);
}

static uint32_t get32(const uint8_t *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

struct segment {
	uint8_t flags;
	uint32_t seq, ack; /* relative */
	uint16_t window;
	const uint8_t *options;
	size_t options_length;
	const char *data;
	size_t length;
};

/* The IP header; returns its length, and the sum of the pseudo header. */
static size_t build_ip(uint8_t *p, size_t l4, bool out, uint32_t *sum)
{
	memset(p, 0, 40);
	if (v6) {
		p[0] = 0x60;
		put16(p + 4, (uint32_t)l4);
		p[6] = 6;
		p[7] = 64;
		memcpy(p + 8, out ? addr6_stack : addr6_peer, 16);
		memcpy(p + 24, out ? addr6_peer : addr6_stack, 16);
		*sum = sum16(p + 8, 32, (uint32_t)(6 + l4));
		return 40;
	}
	p[0] = 0x45;
	put16(p + 2, (uint32_t)(20 + l4));
	p[6] = 0x40;
	p[8] = 64;
	p[9] = 6;
	memcpy(p + 12, out ? addr_stack : addr_peer, 4);
	memcpy(p + 16, out ? addr_peer : addr_stack, 4);
	put16(p + 10, ~sum16(p, 20, 0));
	*sum = sum16(p + 12, 8, (uint32_t)(6 + l4));
	return 20;
}

static size_t build(uint8_t *p, const struct segment *g, bool out)
{
	size_t header = 20 + g->options_length, l4 = header + g->length, ip;
	uint8_t *tcp;
	uint32_t sum;

	ip = build_ip(p, l4, out, &sum);
	tcp = p + ip;
	memset(tcp, 0, header);
	put16(tcp, out ? port_stack : port_peer);
	put16(tcp + 2, out ? port_peer : port_stack);
	put32(tcp + 4, g->seq + (out ? irs : iss));
	put32(tcp + 8, g->flags & ACK ? g->ack + (out ? iss : irs) : 0);
	tcp[12] = (uint8_t)(header / 4 << 4);
	tcp[13] = g->flags;
	put16(tcp + 14, g->window);
	if (g->options_length)
		memcpy(tcp + 20, g->options, g->options_length);
	if (g->length && g->data)
		memcpy(tcp + header, g->data, g->length);
	else
		memset(tcp + header, 0, g->length);
	put16(tcp + 16, ~sum16(tcp, l4, sum));
	return ip + l4;
}

static void in_segment(struct segment g)
{
	uint8_t p[2000];

	assert_int_equal(t.netdev_send(U, p, build(p, &g, false)), 0);
}
#define in(...) in_segment((struct segment){.window = 65535, __VA_ARGS__})

/* The next packet has to be exactly this one; where `window` is 0 there, any. Returns its time. */
static long long out_segment(struct segment g)
{
	uint8_t want[2000], got[9300];
	size_t n = sizeof(got), length;
	const uint8_t *tcp;
	long long us;

	assert_int_equal(t.netdev_receive(U, got, &n, &us), 0);
	tcp = got + (v6 ? 40 : 20);
	assert_true(n >= (v6 ? 60 : 40));
	if (g.flags & SYN && !irs_known) {
		irs = get32(tcp + 4);
		port_stack = (uint16_t)(tcp[0] << 8 | tcp[1]);
		irs_known = true;
	}
	if (!g.window && !(g.flags & RST && !(g.flags & ACK)))
		g.window = (uint16_t)(tcp[14] << 8 | tcp[15]);
	length = build(want, &g, true);
	if (v6) {
		/* The flow label is the stack's choice (RFC 6437). */
		want[1] |= got[1] & 0x0f;
		memcpy(want + 2, got + 2, 2);
	}
	if (n != length || memcmp(got, want, n) != 0) {
		for (size_t i = 0; i < n || i < length; i++)
			if (i >= n || i >= length || got[i] != want[i])
				fprintf(stderr, "byte %zu: got %02x, want %02x\n", i,
					i < n ? got[i] : 0, i < length ? want[i] : 0);
		fail_msg("the packet is different: %zu bytes, not %zu; flags %02x seq %d ack %d", n,
			length, tcp[13], (int)(get32(tcp + 4) - irs), (int)(get32(tcp + 8) - iss));
	}
	return us;
}
#define out(...) out_segment((struct segment){__VA_ARGS__})

static long long now_us(void)
{
	struct timeval tv;

	assert_int_equal(t.gettimeofday(U, &tv, NULL), 0);
	return tv.tv_sec * 1000000ll + tv.tv_usec;
}

static int begin_with(const char *flags)
{
	interface_init(flags, &t);
	port_stack = 8080;
	port_peer = 40000;
	iss = 0xfffffff0;
	irs = 0;
	irs_known = v6 = false;
	return 0;
}

static int begin(void **state)
{
	return begin_with("profile=classic,local=192.168.7.9");
}

static int finish(void **state)
{
	t.free(U);
	return 0;
}

static struct sockaddr_in address(const uint8_t a[4], uint16_t port)
{
	struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(port)};

	memcpy(&in.sin_addr, a, 4);
	return in;
}

static int listening(void)
{
	struct sockaddr_in a = address(addr_stack, 8080);
	int fd = t.socket(U, AF_INET, SOCK_STREAM, IPPROTO_TCP), one = 1;

	assert_true(fd >= 0);
	assert_int_equal(t.setsockopt(U, fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)), 0);
	assert_int_equal(t.bind(U, fd, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(t.listen(U, fd, 1), 0);
	return fd;
}

/* The handshake, with MSS alone; the round trip takes 100 ms. */
static int accepted(int *listener)
{
	struct sockaddr_in a;
	socklen_t length = sizeof(a);
	int fd;

	*listener = listening();
	in(.flags = SYN, .options = opt_mss, .options_length = 4);
	out(.flags = SYN | ACK, .ack = 1, .window = 65535, .options = opt_mss, .options_length = 4);
	t.usleep(U, 100000);
	in(.flags = ACK, .seq = 1, .ack = 1);
	fd = t.accept(U, *listener, (struct sockaddr *)&a, &length);
	assert_true(fd >= 0 && fd != *listener);
	assert_int_equal(length, sizeof(a));
	assert_memory_equal(&a.sin_addr, addr_peer, 4);
	assert_int_equal(ntohs(a.sin_port), port_peer);
	return fd;
}

static struct tcp_info info_of(int fd)
{
	struct tcp_info i, j;
	socklen_t length = sizeof(i), again = sizeof(j);

	memset(&i, 0, sizeof(i));
	memset(&j, 0, sizeof(j));
	assert_int_equal(exported_getsockopt(fd, IPPROTO_TCP, TCP_INFO, &i, &length), 0);
	assert_int_equal(length, sizeof(i));
	assert_int_equal(t.getsockopt(U, fd, IPPROTO_TCP, TCP_INFO, &j, &again), 0);
	assert_memory_equal(&i, &j, sizeof(i));
	return i;
}

#define assert_errno(call, error)                 \
	do {                                      \
		errno = 0;                        \
		assert_int_equal((call), -1);     \
		assert_int_equal(errno, (error)); \
	} while (0)

static void data_both_ways(void **state)
{
	int listener, fd = accepted(&listener), n;
	char buf[5000];
	static const char text[] = "0123456789";

	in(.flags = PSH | ACK, .seq = 1, .ack = 1, .data = text, .length = 10);
	assert_int_equal(t.ioctl(U, fd, SIOCINQ, &n), 0);
	assert_int_equal(n, 10);
	assert_int_equal(t.recv(U, fd, buf, 4, MSG_PEEK), 4);
	assert_int_equal(t.recv(U, fd, buf, 3, MSG_TRUNC), 3);
	assert_int_equal(t.read(U, fd, buf, sizeof(buf)), 7);
	assert_memory_equal(buf, "3456789", 7);
	assert_errno(t.recv(U, fd, buf, 1, MSG_DONTWAIT), EAGAIN);
	/* Delayed by 40 ms (RFC 5681 4.2), unless data takes it along. */
	memset(buf, 0, sizeof(buf));
	assert_int_equal(t.write(U, fd, buf, 1000), 1000);
	out(.flags = PSH | ACK, .seq = 1, .ack = 11, .length = 1000);
	assert_int_equal(t.ioctl(U, fd, SIOCOUTQ, &n), 0);
	assert_int_equal(n, 1000);
	in(.flags = ACK, .seq = 11, .ack = 1001);
	assert_int_equal(t.ioctl(U, fd, SIOCOUTQ, &n), 0);
	assert_int_equal(n, 0);
	assert_int_equal(t.send(U, fd, buf, 3000, 0), 3000);
	out(.flags = ACK, .seq = 1001, .ack = 11, .length = 1460);
	out(.flags = ACK, .seq = 2461, .ack = 11, .length = 1460);
	/* A rest of 80 bytes may go, since no other small one is on its way. */
	out(.flags = PSH | ACK, .seq = 3921, .ack = 11, .length = 80);
	in(.flags = ACK, .seq = 11, .ack = 4001);
	in(.flags = PSH | ACK, .seq = 11, .ack = 4001, .data = text, .length = 10);
	n = (int)(now_us() % 1000000);
	out(.flags = ACK, .seq = 4001, .ack = 21);
	n = (int)(now_us() % 1000000) - n;
	assert_in_range(n, 39000, 41000);
}

static void retransmission(void **state)
{
	int listener, fd = accepted(&listener);
	struct tcp_info i;
	long long sent, again;

	assert_int_equal(t.write(U, fd, "abcde", 5), 5);
	sent = out(.flags = PSH | ACK, .seq = 1, .ack = 1, .data = "abcde", .length = 5);
	i = info_of(fd);
	assert_int_equal(i.tcpi_state, 1);
	assert_in_range(i.tcpi_rtt, 99000, 101000);
	assert_int_equal(i.tcpi_unacked, 1);
	assert_int_equal(i.tcpi_snd_cwnd, 10);
	assert_int_equal(i.tcpi_snd_mss, 1460);
	assert_int_equal(i.tcpi_ca_state, 0);
	t.usleep(U, 290000);
	t.usleep(U, 200000);
	again = out(.flags = PSH | ACK, .seq = 1, .ack = 1, .data = "abcde", .length = 5);
	assert_in_range(again - sent, i.tcpi_rto, i.tcpi_rto + 1000);
	i = info_of(fd);
	assert_int_equal(i.tcpi_ca_state, 4);
	assert_int_equal(i.tcpi_retransmits, 1);
	assert_int_equal(i.tcpi_backoff, 1);
	assert_int_equal(i.tcpi_retrans, 1);
	assert_int_equal(i.tcpi_total_retrans, 1);
	assert_int_equal(i.tcpi_snd_cwnd, 1);
	assert_int_equal(i.tcpi_bytes_retrans, 5);
	in(.flags = ACK, .seq = 1, .ack = 6);
	i = info_of(fd);
	assert_int_equal(i.tcpi_unacked, 0);
	assert_int_equal(i.tcpi_bytes_acked, 5);
	assert_int_equal(i.tcpi_ca_state, 0);
}

static void close_first(void **state)
{
	int listener, fd = accepted(&listener);

	assert_int_equal(t.close(U, fd), 0);
	out(.flags = FIN | ACK, .seq = 1, .ack = 1);
	in(.flags = ACK, .seq = 1, .ack = 2);
	in(.flags = FIN | ACK, .seq = 1, .ack = 2);
	out(.flags = ACK, .seq = 2, .ack = 2);
	assert_errno(t.close(U, fd), EBADF);
	/* TIME-WAIT answers a FIN that comes again. */
	in(.flags = FIN | ACK, .seq = 1, .ack = 2);
	out(.flags = ACK, .seq = 2, .ack = 2);
}

static void close_second(void **state)
{
	int listener, fd = accepted(&listener);
	char buf[10];

	in(.flags = FIN | PSH | ACK, .seq = 1, .ack = 1, .data = "xyz", .length = 3);
	out(.flags = ACK, .seq = 1, .ack = 5);
	assert_int_equal(t.read(U, fd, buf, sizeof(buf)), 3);
	assert_int_equal(t.read(U, fd, buf, sizeof(buf)), 0);
	assert_int_equal(info_of(fd).tcpi_state, 8);
	assert_int_equal(t.write(U, fd, "ab", 2), 2);
	out(.flags = PSH | ACK, .seq = 1, .ack = 5, .data = "ab", .length = 2);
	assert_int_equal(t.close(U, fd), 0);
	out(.flags = FIN | ACK, .seq = 3, .ack = 5);
	in(.flags = ACK, .seq = 5, .ack = 4);
	/* Gone: what still comes is reset. */
	in(.flags = ACK, .seq = 5, .ack = 4);
	out(.flags = RST, .seq = 4);
}

static void close_at_once(void **state)
{
	int listener, fd = accepted(&listener);

	assert_int_equal(t.close(U, fd), 0);
	out(.flags = FIN | ACK, .seq = 1, .ack = 1);
	in(.flags = FIN | ACK, .seq = 1, .ack = 1);
	out(.flags = ACK, .seq = 2, .ack = 2);
	in(.flags = ACK, .seq = 2, .ack = 2);
}

static void half_close(void **state)
{
	int listener, fd = accepted(&listener);
	char buf[10];

	assert_int_equal(t.shutdown(U, fd, SHUT_WR), 0);
	out(.flags = FIN | ACK, .seq = 1, .ack = 1);
	in(.flags = ACK, .seq = 1, .ack = 2);
	assert_int_equal(info_of(fd).tcpi_state, 5);
	assert_errno(t.write(U, fd, "a", 1), EPIPE);
	/* It reads on for as long as it likes (RFC 9293 3.6). */
	t.usleep(U, 90000000);
	t.usleep(U, 90000000);
	in(.flags = PSH | ACK, .seq = 1, .ack = 2, .data = "late", .length = 4);
	assert_int_equal(t.read(U, fd, buf, sizeof(buf)), 4);
	out(.flags = ACK, .seq = 2, .ack = 5);
	in(.flags = FIN | ACK, .seq = 5, .ack = 2);
	out(.flags = ACK, .seq = 2, .ack = 6);
	assert_int_equal(t.read(U, fd, buf, sizeof(buf)), 0);
	assert_int_equal(t.close(U, fd), 0);
}

static void shut_both(void **state)
{
	int listener, fd = accepted(&listener);
	char buf[4];

	/* What came before can be read after SHUT_RD, and what comes after it too. */
	in(.flags = PSH | ACK, .seq = 1, .ack = 1, .data = "ab", .length = 2);
	assert_int_equal(t.shutdown(U, fd, SHUT_RD), 0);
	assert_int_equal(t.read(U, fd, buf, 4), 2);
	assert_int_equal(t.read(U, fd, buf, 4), 0);
	assert_int_equal(t.shutdown(U, fd, SHUT_RDWR), 0);
	out(.flags = FIN | ACK, .seq = 1, .ack = 3);
	in(.flags = ACK, .seq = 3, .ack = 2);
	in(.flags = PSH | ACK, .seq = 3, .ack = 2, .data = "c", .length = 1);
	out(.flags = RST, .seq = 2);
	assert_errno(t.read(U, fd, buf, 4), ECONNRESET);
}

static void close_resets(void **state)
{
	struct linger l = {1, 0};
	int listener, fd = accepted(&listener);

	/* Data that nobody read. */
	in(.flags = PSH | ACK, .seq = 1, .ack = 1, .data = "xyz", .length = 3);
	assert_int_equal(t.close(U, fd), 0);
	out(.flags = RST | ACK, .seq = 1, .ack = 4);
	/* SO_LINGER of no time. */
	irs_known = false;
	in(.flags = SYN, .options = opt_mss, .options_length = 4);
	out(.flags = SYN | ACK, .ack = 1, .window = 65535, .options = opt_mss, .options_length = 4);
	in(.flags = ACK, .seq = 1, .ack = 1);
	fd = t.accept(U, listener, NULL, NULL);
	assert_int_equal(t.setsockopt(U, fd, SOL_SOCKET, SO_LINGER, &l, sizeof(l)), 0);
	assert_int_equal(t.close(U, fd), 0);
	out(.flags = RST | ACK, .seq = 1, .ack = 1);
	/* Data for a socket that is closed. */
	irs_known = false;
	in(.flags = SYN, .options = opt_mss, .options_length = 4);
	out(.flags = SYN | ACK, .ack = 1, .window = 65535, .options = opt_mss, .options_length = 4);
	in(.flags = ACK, .seq = 1, .ack = 1);
	fd = t.accept(U, listener, NULL, NULL);
	assert_int_equal(t.close(U, fd), 0);
	out(.flags = FIN | ACK, .seq = 1, .ack = 1);
	in(.flags = PSH | ACK, .seq = 1, .ack = 2, .data = "x", .length = 1);
	out(.flags = RST, .seq = 2);
}

static void reset_by_peer(void **state)
{
	int listener, fd = accepted(&listener), error = 7;
	socklen_t length = sizeof(error);
	struct pollfd p = {.fd = fd, .events = POLLIN | POLLOUT | POLLRDHUP};
	char buf[4];

	in(.flags = RST, .seq = 1);
	assert_int_equal(t.poll(U, &p, 1, 0), 1);
	assert_int_equal(p.revents, POLLIN | POLLOUT | POLLRDHUP | POLLERR | POLLHUP);
	assert_errno(t.read(U, fd, buf, 4), ECONNRESET);
	assert_int_equal(t.read(U, fd, buf, 4), 0);
	assert_errno(t.write(U, fd, buf, 4), EPIPE);
	assert_int_equal(t.getsockopt(U, fd, SOL_SOCKET, SO_ERROR, &error, &length), 0);
	assert_int_equal(error, 0);
	assert_int_equal(info_of(fd).tcpi_state, 7);
	assert_int_equal(t.close(U, fd), 0);
}

static int connecting(void)
{
	struct sockaddr_in a = address(addr_peer, 8080);
	int fd = t.socket(U, AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	/* The options of a SYN without timestamps, which differ from run to run. */

	port_peer = 8080;
	assert_int_equal(t.fcntl(U, fd, F_GETFL), O_RDWR | O_NONBLOCK);
	assert_errno(t.connect(U, fd, (struct sockaddr *)&a, sizeof(a)), EINPROGRESS);
	assert_errno(t.connect(U, fd, (struct sockaddr *)&a, sizeof(a)), EALREADY);
	return fd;
}

static const uint8_t opt_syn[12] = {2, 4, 5, 0xb4, 1, 1, 4, 2, 1, 3, 3, 7};

static int begin_knobs(void **state)
{
	FILE *f = fopen("packetdrill_selftest.knobs", "w");

	assert_non_null(f);
	fputs("-w net.ipv4.tcp_timestamps=0 -w net.ipv4.tcp_fin_timeout=30\n", f);
	/* As a shell leaves them, with quotes and without. */
	fputs("-q net.ipv4.tcp_rmem=4096 131072 6291456 net.ipv4.tcp_ecn=0\n", f);
	fputs("-w net.ipv4.tcp_wmem=\"4096 16384 4194304\" -q\n", f);
	fclose(f);
	setenv("STACK_KNOBS", "packetdrill_selftest.knobs", 1);
	return begin(state);
}

static int finish_knobs(void **state)
{
	unsetenv("STACK_KNOBS");
	remove("packetdrill_selftest.knobs");
	return finish(state);
}

static int begin6(void **state)
{
	return begin_with("profile=classic,local=fd3d::9");
}

static int begin6_knobs(void **state)
{
	begin_knobs(state);
	t.free(U);
	return begin6(state);
}

static void connect_later(void **state)
{
	int fd = connecting(), error = 7;
	socklen_t length = sizeof(error);
	struct sockaddr_in a = address(addr_peer, 8080);
	struct pollfd p = {.fd = fd, .events = POLLIN | POLLOUT};

	out(.flags = SYN, .window = 65535, .options = opt_syn, .options_length = 12);
	assert_int_equal(info_of(fd).tcpi_state, 2);
	assert_int_equal(t.poll(U, &p, 1, 0), 0);
	assert_errno(t.write(U, fd, "a", 1), EAGAIN);
	in(.flags = SYN | ACK, .ack = 1, .options = opt_syn, .options_length = 12);
	out(.flags = ACK, .seq = 1, .ack = 1);
	assert_int_equal(t.poll(U, &p, 1, -1), 1);
	assert_int_equal(p.revents, POLLOUT);
	assert_int_equal(t.getsockopt(U, fd, SOL_SOCKET, SO_ERROR, &error, &length), 0);
	assert_int_equal(error, 0);
	assert_errno(t.connect(U, fd, (struct sockaddr *)&a, sizeof(a)), EISCONN);
	assert_int_equal(info_of(fd).tcpi_options, TCPI_OPT_SACK | TCPI_OPT_WSCALE);
	assert_int_equal(info_of(fd).tcpi_rcv_wscale, 7);
	assert_int_equal(t.close(U, fd), 0);
	out(.flags = FIN | ACK, .seq = 1, .ack = 1);
}

static void connect_refused(void **state)
{
	int fd = connecting(), error = 0;
	socklen_t length = sizeof(error);
	struct pollfd p = {.fd = fd, .events = POLLOUT};

	out(.flags = SYN, .window = 65535, .options = opt_syn, .options_length = 12);
	in(.flags = RST | ACK, .ack = 1);
	assert_int_equal(t.poll(U, &p, 1, -1), 1);
	assert_int_equal(p.revents, POLLOUT | POLLERR | POLLHUP);
	assert_int_equal(t.getsockopt(U, fd, SOL_SOCKET, SO_ERROR, &error, &length), 0);
	assert_int_equal(error, ECONNREFUSED);
	assert_int_equal(t.close(U, fd), 0);
}

static void connect_from_port(void **state)
{
	struct sockaddr_in a = address(addr_stack, 0), b = address(addr_stack, 4242);
	struct sockaddr_in peer = address(addr_peer, 8080);
	int fd = t.socket(U, AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	int any = t.socket(U, AF_INET, SOCK_STREAM, 0);

	assert_int_equal(t.bind(U, any, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(t.bind(U, fd, (struct sockaddr *)&b, sizeof(b)), 0);
	assert_errno(t.bind(U, fd, (struct sockaddr *)&b, sizeof(b)), EINVAL);
	assert_errno(t.connect(U, fd, (struct sockaddr *)&peer, sizeof(peer)), EINPROGRESS);
	port_peer = 8080;
	out(.flags = SYN, .window = 65535, .options = opt_syn, .options_length = 12);
	assert_int_equal(port_stack, 4242);
	assert_int_equal(t.close(U, fd), 0);
	assert_int_equal(t.close(U, any), 0);
}

static void mapped_addresses(void **state)
{
	struct sockaddr_in6 a = {.sin6_family = AF_INET6, .sin6_port = htons(8080)};
	socklen_t length = sizeof(a);
	int fd = t.socket(U, AF_INET6, SOCK_STREAM, IPPROTO_TCP), c;

	a.sin6_addr.s6_addr[10] = a.sin6_addr.s6_addr[11] = 0xff;
	memcpy(&a.sin6_addr.s6_addr[12], addr_stack, 4);
	assert_int_equal(t.bind(U, fd, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(t.listen(U, fd, 1), 0);
	in(.flags = SYN, .options = opt_mss, .options_length = 4);
	out(.flags = SYN | ACK, .ack = 1, .window = 65535, .options = opt_mss, .options_length = 4);
	in(.flags = ACK, .seq = 1, .ack = 1);
	c = t.accept(U, fd, (struct sockaddr *)&a, &length);
	assert_true(c >= 0);
	assert_int_equal(length, sizeof(a));
	assert_int_equal(a.sin6_family, AF_INET6);
	assert_memory_equal(&a.sin6_addr.s6_addr[12], addr_peer, 4);
}

static void over_ipv6(void **state)
{
	struct sockaddr_in6 a = {.sin6_family = AF_INET6, .sin6_port = htons(8080)};
	static const uint8_t mss[4] = {2, 4, 5, 0xa0}; /* 1440 */
	socklen_t length = sizeof(a);
	int fd = t.socket(U, AF_INET6, SOCK_STREAM, IPPROTO_TCP), c;
	char buf[10];

	v6 = true;
	memcpy(&a.sin6_addr, addr6_stack, 16);
	assert_int_equal(t.bind(U, fd, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(t.listen(U, fd, 1), 0);
	in(.flags = SYN, .options = mss, .options_length = 4);
	out(.flags = SYN | ACK, .ack = 1, .window = 65535, .options = mss, .options_length = 4);
	in(.flags = ACK, .seq = 1, .ack = 1);
	c = t.accept(U, fd, (struct sockaddr *)&a, &length);
	assert_true(c >= 0);
	assert_int_equal(a.sin6_family, AF_INET6);
	assert_memory_equal(&a.sin6_addr, addr6_peer, 16);
	in(.flags = PSH | ACK, .seq = 1, .ack = 1, .data = "six", .length = 3);
	assert_int_equal(t.read(U, c, buf, 10), 3);
	assert_int_equal(t.write(U, c, "abc", 3), 3);
	out(.flags = PSH | ACK, .seq = 1, .ack = 4, .data = "abc", .length = 3);
	assert_int_equal(info_of(c).tcpi_snd_mss, 1440);
	assert_int_equal(t.close(U, c), 0);
	out(.flags = FIN | ACK, .seq = 4, .ack = 4);
}

static void connect_ipv6(void **state)
{
	struct sockaddr_in6 a = {.sin6_family = AF_INET6, .sin6_port = htons(8080)};
	static const uint8_t syn[12] = {2, 4, 5, 0xa0, 1, 1, 4, 2, 1, 3, 3, 7};
	int fd = t.socket(U, AF_INET6, SOCK_STREAM | SOCK_NONBLOCK, 0);

	v6 = true;
	port_peer = 8080;
	memcpy(&a.sin6_addr, addr6_peer, 16);
	assert_errno(t.connect(U, fd, (struct sockaddr *)&a, sizeof(a)), EINPROGRESS);
	out(.flags = SYN, .window = 65535, .options = syn, .options_length = 12);
	in(.flags = SYN | ACK, .ack = 1, .options = syn, .options_length = 12);
	out(.flags = ACK, .seq = 1, .ack = 1);
	assert_int_equal(info_of(fd).tcpi_state, 1);
}

static void keepalive(void **state)
{
	int listener, fd = accepted(&listener), one = 1, idle = 5, interval = 2, count = 2;
	long long start;

	assert_int_equal(t.setsockopt(U, fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle)), 0);
	assert_int_equal(
		t.setsockopt(U, fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof(interval)), 0);
	assert_int_equal(t.setsockopt(U, fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof(count)), 0);
	assert_int_equal(t.setsockopt(U, fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one)), 0);
	start = now_us();
	assert_in_range(out(.flags = ACK, .seq = 0, .ack = 1) - start, 4990000, 5001000);
	assert_in_range(out(.flags = ACK, .seq = 0, .ack = 1) - start, 6990000, 7001000);
	out(.flags = RST | ACK, .seq = 1, .ack = 1);
	assert_errno(t.read(U, fd, &one, 1), ETIMEDOUT);
}

static void classic_acks(void **state)
{
	int listener;

	accepted(&listener);
	in(.flags = ACK, .seq = 1, .ack = 1, .length = 1);
	in(.flags = ACK, .seq = 2, .ack = 1, .length = 2);
	out(.flags = ACK, .seq = 1, .ack = 4);
	in(.flags = ACK, .seq = 8, .ack = 1, .length = 8);
	out(.flags = ACK, .seq = 1, .ack = 4);
	in(.flags = ACK, .seq = 4, .ack = 1, .length = 4);
	out(.flags = ACK, .seq = 1, .ack = 16);
}

static int begin_linux(void **state)
{
	return begin_with("profile=linux,local=192.168.7.9");
}

static void linux_acks(void **state)
{
	int listener;
	long long start;

	accepted(&listener);
	for (unsigned i = 0; i < 16; i++) {
		in(.flags = ACK, .seq = 1 + i, .ack = 1, .length = 1);
		start = now_us();
		assert_true(out(.flags = ACK, .seq = 1, .ack = 2 + i) <= start);
	}
}

/* Blocking calls, on a thread of their own. */

struct blocked {
	int fd;
	char buf[64];
	ssize_t result;
	long long end_us;
	_Atomic int tid, ended;
};

static void *blocked_read(void *arg)
{
	struct blocked *b = arg;

	b->tid = gettid();
	b->result = t.recv(U, b->fd, b->buf, 20, MSG_WAITALL);
	b->end_us = now_us();
	b->ended = 1;
	return NULL;
}

/* Until the thread sleeps: in its call, since nothing else holds it up. */
static void await_sleep(const struct blocked *b)
{
	char path[64], line[256] = "";

	while (!b->tid)
		sched_yield();
	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", b->tid);
	while (!strstr(line, ") S ")) {
		FILE *f = fopen(path, "r");

		assert_non_null(f);
		if (!fgets(line, sizeof(line), f))
			line[0] = '\0';
		fclose(f);
		sched_yield();
	}
}

static void blocked_on_a_thread(void **state)
{
	int listener;
	struct blocked b = {.fd = accepted(&listener)};
	long long start = now_us();
	pthread_t thread;

	pthread_create(&thread, NULL, blocked_read, &b);
	await_sleep(&b);
	t.usleep(U, 1000000);
	assert_false(b.ended);
	in(.flags = PSH | ACK, .seq = 1, .ack = 1, .data = "0123456789", .length = 10);
	t.usleep(U, 1000000);
	assert_false(b.ended);
	in(.flags = PSH | ACK, .seq = 11, .ack = 1, .data = "0123456789", .length = 10);
	/* The call has ended before this one goes on, and at its own time. */
	t.usleep(U, 3000000);
	pthread_join(thread, NULL);
	assert_int_equal(b.result, 20);
	assert_memory_equal(b.buf, "01234567890123456789", 20);
	assert_in_range(b.end_us - start, 2000000, 2000100);
}

static void blocked_here(void **state)
{
	int listener, fd = accepted(&listener);
	struct timeval tv = {2, 0};
	struct pollfd p = {.fd = fd, .events = POLLIN};
	long long start;
	char buf[4];

	/* Nobody else can let time pass: the call does. */
	start = now_us();
	assert_int_equal(t.poll(U, &p, 1, 500), 0);
	assert_in_range(now_us() - start, 500000, 500100);
	assert_int_equal(t.setsockopt(U, fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)), 0);
	start = now_us();
	assert_errno(t.read(U, fd, buf, 4), EAGAIN);
	assert_in_range(now_us() - start, 2000000, 2000100);
}

static void epolls(void **state)
{
	struct epoll_event e = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.u32 = 5}, got[2];
	int listener, fd = accepted(&listener), ep = t.epoll_create(U, 1), v;
	static char large[20000];
	char buf[16];

	assert_true(ep >= 0);
	assert_errno(t.epoll_ctl(U, ep, EPOLL_CTL_MOD, fd, &e), ENOENT);
	assert_int_equal(t.epoll_ctl(U, ep, EPOLL_CTL_ADD, fd, &e), 0);
	assert_errno(t.epoll_ctl(U, ep, EPOLL_CTL_ADD, fd, &e), EEXIST);
	assert_int_equal(t.epoll_wait(U, ep, got, 2, 0), 1);
	assert_int_equal(got[0].events, EPOLLOUT);
	assert_int_equal(got[0].data.u32, 5);
	/* Edge triggered: not again before something happens. */
	assert_int_equal(t.epoll_wait(U, ep, got, 2, 0), 0);
	in(.flags = PSH | ACK, .seq = 1, .ack = 1, .data = "abcd", .length = 4);
	assert_int_equal(t.epoll_wait(U, ep, got, 2, -1), 1);
	assert_int_equal(got[0].events, EPOLLIN | EPOLLOUT);
	assert_int_equal(t.epoll_wait(U, ep, got, 2, 0), 0);
	/* Room again after a write found none. */
	v = 4096;
	assert_int_equal(t.setsockopt(U, fd, SOL_SOCKET, SO_SNDBUF, &v, sizeof(v)), 0);
	assert_int_equal(t.send(U, fd, large, sizeof(large), MSG_DONTWAIT), 8192);
	assert_int_equal(t.epoll_wait(U, ep, got, 2, 0), 0);
	in(.flags = ACK, .seq = 5, .ack = 8193);
	assert_int_equal(t.epoll_wait(U, ep, got, 2, 0), 1);
	assert_int_equal(got[0].events, EPOLLIN | EPOLLOUT);
	/* Level triggered, once. */
	e.events = EPOLLIN | EPOLLONESHOT;
	assert_int_equal(t.epoll_ctl(U, ep, EPOLL_CTL_MOD, fd, &e), 0);
	assert_int_equal(t.epoll_wait(U, ep, got, 2, 0), 1);
	assert_int_equal(t.epoll_wait(U, ep, got, 2, 0), 0);
	e.events = EPOLLIN;
	assert_int_equal(t.epoll_ctl(U, ep, EPOLL_CTL_MOD, fd, &e), 0);
	assert_int_equal(t.epoll_wait(U, ep, got, 2, 0), 1);
	assert_int_equal(t.epoll_wait(U, ep, got, 2, 0), 1);
	assert_int_equal(t.read(U, fd, buf, 16), 4);
	assert_int_equal(t.epoll_wait(U, ep, got, 2, 0), 0);
	in(.flags = FIN | ACK, .seq = 5, .ack = 8193);
	e.events = EPOLLIN | EPOLLRDHUP;
	assert_int_equal(t.epoll_ctl(U, ep, EPOLL_CTL_MOD, fd, &e), 0);
	assert_int_equal(t.epoll_wait(U, ep, got, 2, 0), 1);
	assert_int_equal(got[0].events, EPOLLIN | EPOLLRDHUP);
	assert_int_equal(t.epoll_ctl(U, ep, EPOLL_CTL_DEL, fd, NULL), 0);
	assert_int_equal(t.epoll_wait(U, ep, got, 2, 0), 0);
	assert_int_equal(t.close(U, ep), 0);
}

static void nagle_and_cork(void **state)
{
	int listener, fd = accepted(&listener), one = 1, zero = 0;

	assert_int_equal(t.write(U, fd, "a", 1), 1);
	out(.flags = PSH | ACK, .seq = 1, .ack = 1, .data = "a", .length = 1);
	assert_int_equal(t.write(U, fd, "b", 1), 1);
	assert_int_equal(t.write(U, fd, "c", 1), 1);
	in(.flags = ACK, .seq = 1, .ack = 2);
	out(.flags = PSH | ACK, .seq = 2, .ack = 1, .data = "bc", .length = 2);
	assert_int_equal(t.setsockopt(U, fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)), 0);
	assert_int_equal(t.write(U, fd, "d", 1), 1);
	out(.flags = PSH | ACK, .seq = 4, .ack = 1, .data = "d", .length = 1);
	in(.flags = ACK, .seq = 1, .ack = 5);
	assert_int_equal(t.setsockopt(U, fd, IPPROTO_TCP, TCP_CORK, &one, sizeof(one)), 0);
	assert_int_equal(t.write(U, fd, "e", 1), 1);
	assert_int_equal(t.write(U, fd, "f", 1), 1);
	assert_int_equal(t.setsockopt(U, fd, IPPROTO_TCP, TCP_CORK, &zero, sizeof(zero)), 0);
	out(.flags = PSH | ACK, .seq = 5, .ack = 1, .data = "ef", .length = 2);
	in(.flags = ACK, .seq = 1, .ack = 7);
	assert_int_equal(t.send(U, fd, "g", 1, MSG_MORE), 1);
	assert_int_equal(t.send(U, fd, "h", 1, 0), 1);
	out(.flags = PSH | ACK, .seq = 7, .ack = 1, .data = "gh", .length = 2);
}

static void held_back(void **state)
{
	int listener, fd = accepted(&listener), one = 1;
	long long start;

	/* MSG_MORE holds for a timeout at most: 300 ms here. */
	assert_int_equal(t.setsockopt(U, fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)), 0);
	assert_int_equal(t.send(U, fd, "a", 1, MSG_MORE), 1);
	start = now_us();
	assert_in_range(
		out(.flags = PSH | ACK, .seq = 1, .ack = 1, .data = "a", .length = 1) - start,
		298000, 302000);
	/* Or until the next ACK. */
	assert_int_equal(t.send(U, fd, "bc", 2, MSG_MORE), 2);
	in(.flags = ACK, .seq = 1, .ack = 2);
	out(.flags = PSH | ACK, .seq = 2, .ack = 1, .data = "bc", .length = 2);
	in(.flags = ACK, .seq = 1, .ack = 4);
	/* TCP_NODELAY pushes what is corked. */
	assert_int_equal(t.setsockopt(U, fd, IPPROTO_TCP, TCP_CORK, &one, sizeof(one)), 0);
	assert_int_equal(t.write(U, fd, "de", 2), 2);
	assert_int_equal(t.setsockopt(U, fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)), 0);
	out(.flags = PSH | ACK, .seq = 4, .ack = 1, .data = "de", .length = 2);
}

static int inq_of(int fd, size_t want)
{
	static char buf[4096];
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec iov = {buf, want};
	struct msghdr m = {.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control.bytes,
		.msg_controllen = sizeof(control.bytes)};
	struct cmsghdr *c;
	int left;

	assert_int_equal(t.recvmsg(U, fd, &m, 0), want);
	c = CMSG_FIRSTHDR(&m);
	assert_non_null(c);
	assert_int_equal(c->cmsg_level, IPPROTO_TCP);
	assert_int_equal(c->cmsg_type, TCP_CM_INQ);
	memcpy(&left, CMSG_DATA(c), sizeof(left));
	return left;
}

static void left_in_queue(void **state)
{
	int listener, fd = accepted(&listener), one = 1;

	assert_int_equal(t.setsockopt(U, fd, IPPROTO_TCP, TCP_INQ, &one, sizeof(one)), 0);
	in(.flags = PSH | ACK, .seq = 1, .ack = 1, .length = 1000);
	assert_int_equal(inq_of(fd, 200), 800);
	assert_int_equal(inq_of(fd, 800), 0);
	in(.flags = FIN | ACK, .seq = 1001, .ack = 1, .length = 100);
	assert_int_equal(inq_of(fd, 100), 1); /* the end can be read */
}

static void bad_addresses(void **state)
{
	int listener, fd = accepted(&listener);

	assert_errno(t.write(U, fd, NULL, 1000), EFAULT);
	assert_errno(t.send(U, fd, NULL, 1000, 0), EFAULT);
	in(.flags = PSH | ACK, .seq = 1, .ack = 1, .length = 10);
	assert_errno(t.read(U, fd, NULL, 1000), EFAULT);
	assert_errno(t.recv(U, fd, NULL, 1000, 0), EFAULT);
	assert_int_equal(t.recv(U, fd, NULL, 1000, MSG_TRUNC), 10);
}

static void times_of_sending(void **state)
{
	static char data[8000];
	int listener, fd = accepted(&listener), size = 4096, one = 1;
	struct tcp_info i;

	assert_int_equal(t.setsockopt(U, fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)), 0);
	assert_int_equal(t.setsockopt(U, fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size)), 0);
	t.usleep(U, 50000);
	assert_int_equal(t.send(U, fd, data, 8000, MSG_DONTWAIT), 8000);
	t.usleep(U, 20000);
	assert_int_equal(t.send(U, fd, data, 8000, MSG_DONTWAIT), 192);
	t.usleep(U, 30000);
	in(.flags = ACK, .seq = 1, .ack = 8193);
	t.usleep(U, 50000);
	i = info_of(fd);
	assert_in_range(i.tcpi_busy_time, 49900, 50100);
	assert_in_range(i.tcpi_sndbuf_limited, 29900, 30100);
	assert_int_equal(i.tcpi_rwnd_limited, 0);
}

static void options(void **state)
{
	int listener, fd = accepted(&listener), v = 30000;
	socklen_t length = sizeof(v);

	assert_int_equal(t.setsockopt(U, fd, SOL_SOCKET, SO_SNDBUF, &v, sizeof(v)), 0);
	assert_int_equal(t.getsockopt(U, fd, SOL_SOCKET, SO_SNDBUF, &v, &length), 0);
	assert_int_equal(v, 60000); /* as Linux tells it */
	assert_int_equal(t.getsockopt(U, fd, IPPROTO_TCP, TCP_MAXSEG, &v, &length), 0);
	assert_int_equal(v, 1460);
	assert_int_equal(t.getsockopt(U, listener, SOL_SOCKET, SO_ACCEPTCONN, &v, &length), 0);
	assert_int_equal(v, 1);
	v = 0;
	assert_errno(t.setsockopt(U, fd, IPPROTO_TCP, TCP_KEEPIDLE, &v, sizeof(v)), EINVAL);
	v = 11;
	assert_int_equal(t.setsockopt(U, fd, IPPROTO_TCP, TCP_KEEPIDLE, &v, sizeof(v)), 0);
	v = 0;
	assert_int_equal(t.getsockopt(U, fd, IPPROTO_TCP, TCP_KEEPIDLE, &v, &length), 0);
	assert_int_equal(v, 11);
	assert_errno(t.setsockopt(U, fd, IPPROTO_TCP, 9999, &v, sizeof(v)), ENOPROTOOPT);
	assert_errno(t.getsockopt(U, 1000, SOL_SOCKET, SO_ERROR, &v, &length), EBADF);
	/* A descriptor that is not ours goes to the system. */
	assert_errno(exported_getsockopt(0, SOL_SOCKET, SO_ERROR, &v, &length), ENOTSOCK);
	/* 3 s without an answer. */
	v = 3000;
	assert_int_equal(t.setsockopt(U, fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &v, sizeof(v)), 0);
	assert_int_equal(t.write(U, fd, "a", 1), 1);
	t.usleep(U, 2900000);
	assert_int_equal(info_of(fd).tcpi_state, 1);
	t.usleep(U, 200000);
	assert_errno(t.read(U, fd, &v, 1), ETIMEDOUT);
}

static void pipes(void **state)
{
	int listener, fd = accepted(&listener), fds[2];
	char buf[8];

	assert_int_equal(t.pipe(U, fds), 0);
	in(.flags = PSH | ACK, .seq = 1, .ack = 1, .data = "spliced", .length = 7);
	assert_int_equal(t.splice(U, fd, NULL, fds[1], NULL, 100, 0), 7);
	assert_int_equal(t.read(U, fds[0], buf, 8), 7);
	assert_memory_equal(buf, "spliced", 7);
	assert_int_equal(t.write(U, fds[1], "back", 4), 4);
	assert_int_equal(t.splice(U, fds[0], NULL, fd, NULL, 4, 0), 4);
	out(.flags = PSH | ACK, .seq = 1, .ack = 8, .data = "back", .length = 4);
	assert_int_equal(t.close(U, fds[0]), 0);
	assert_int_equal(t.close(U, fds[1]), 0);
}

static void nobody_listens(void **state)
{
	in(.flags = SYN, .options = opt_mss, .options_length = 4);
	irs_known = true;
	out(.flags = RST | ACK, .ack = 1);
}

static void nothing_ever(void **state)
{
	int listener, status;
	pid_t child;

	accepted(&listener);
	child = fork();
	if (child == 0) {
		uint8_t buf[2000];
		size_t n = sizeof(buf);
		long long us;

		fclose(stderr);
		t.netdev_receive(U, buf, &n, &us);
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, finish)
#define TEST_KNOBS(name) cmocka_unit_test_setup_teardown(name, begin_knobs, finish_knobs)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(data_both_ways),
		TEST(retransmission),
		TEST(close_first),
		TEST(close_second),
		TEST(close_at_once),
		TEST(half_close),
		TEST(shut_both),
		TEST(close_resets),
		TEST(reset_by_peer),
		TEST_KNOBS(connect_later),
		TEST_KNOBS(connect_refused),
		TEST_KNOBS(connect_from_port),
		TEST(mapped_addresses),
		cmocka_unit_test_setup_teardown(over_ipv6, begin6, finish),
		cmocka_unit_test_setup_teardown(connect_ipv6, begin6_knobs, finish_knobs),
		TEST(keepalive),
		TEST(classic_acks),
		cmocka_unit_test_setup_teardown(linux_acks, begin_linux, finish),
		TEST(blocked_on_a_thread),
		TEST(blocked_here),
		TEST(epolls),
		TEST(nagle_and_cork),
		TEST(held_back),
		TEST(left_in_queue),
		TEST(bad_addresses),
		TEST(times_of_sending),
		TEST(options),
		TEST(pipes),
		TEST(nobody_listens),
		TEST(nothing_ever),
	};
	int how = RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE;
	void *object;

#ifndef __SANITIZE_ADDRESS__
	how |= RTLD_DEEPBIND; /* as the tool does; sanitizers refuse it */
#endif
	object = argc > 1 ? dlopen(argv[1], how) : NULL;
	if (!object) {
		fprintf(stderr, "%s\n", argc > 1 ? dlerror() : "which object?");
		return 2;
	}
	*(void **)&interface_init = dlsym(object, "packetdrill_interface_init");
	*(void **)&exported_getsockopt = dlsym(object, "getsockopt");
	if (!interface_init || !exported_getsockopt)
		return 2;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
