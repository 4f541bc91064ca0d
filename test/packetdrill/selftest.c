/* SPDX-License-Identifier: Apache-2.0 */
#include "selftest.h"

#include <dlfcn.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/wait.h>

/* Plays against the shared object as a conformance tool would; packets are compared whole. */

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
	fputs("-w /proc/sys/net/ipv4/tcp_timestamps=0 -w net.ipv4.tcp_fin_timeout=30\n", f);
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

static int begin_small(void **state)
{
	return begin_with("profile=classic,local=192.168.7.9,mtu=640");
}

static void small_mtu(void **state)
{
	static const uint8_t mss[4] = {2, 4, 600 >> 8, 600 & 255};

	listening();
	in(.flags = SYN, .options = opt_mss, .options_length = 4);
	out(.flags = SYN | ACK, .ack = 1, .options = mss, .options_length = 4);
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
	int fd = t.socket(U, AF_INET6, SOCK_STREAM, IPPROTO_TCP), c, hops = 7, class = 0x28;
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
	assert_int_equal(
		t.setsockopt(U, c, IPPROTO_IPV6, IPV6_UNICAST_HOPS, &hops, sizeof(hops)), 0);
	assert_int_equal(t.setsockopt(U, c, IPPROTO_IPV6, IPV6_TCLASS, &class, sizeof(class)), 0);
	assert_int_equal(t.close(U, c), 0);
	out(.flags = FIN | ACK, .seq = 4, .ack = 4, .ttl = 7, .tos = 0x28);
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
		TEST(windows_that_limit),
		TEST(marks_that_reduce),
		TEST(ttl_and_tos),
		TEST(listener_told_later),
		TEST(records_end_segments),
		cmocka_unit_test_setup_teardown(small_mtu, begin_small, finish),
		TEST(options),
		TEST(pipes),
		TEST(told_what_is_free),
		TEST(told_when_it_went),
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
