/* SPDX-License-Identifier: Apache-2.0 */
#include "selftest.h"

void (*interface_init)(const char *flags, struct packetdrill_interface *interface);
int (*exported_getsockopt)(int fd, int level, int name, void *value, socklen_t *length);
struct packetdrill_interface t;

const uint8_t addr_stack[4] = {192, 168, 7, 9}, addr_peer[4] = {192, 0, 2, 1};
const uint8_t addr6_stack[16] = {0xfd, 0x3d, [15] = 9},
	      addr6_peer[16] = {0x20, 1, 0xd, 0xb8, [15] = 1};
const uint8_t opt_mss[4] = {2, 4, 5, 0xb4};

uint16_t port_stack, port_peer;
uint32_t iss, irs;
bool irs_known, v6;

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

/* The IP header; returns its length, and the sum of the pseudo header. */
static size_t build_ip(uint8_t *p, size_t l4, bool out, const struct segment *g, uint32_t *sum)
{
	uint8_t ttl = g->ttl ? g->ttl : 64;

	memset(p, 0, 40);
	if (v6) {
		p[0] = (uint8_t)(0x60 | g->tos >> 4);
		p[1] = (uint8_t)(g->tos << 4);
		put16(p + 4, (uint32_t)l4);
		p[6] = 6;
		p[7] = ttl;
		memcpy(p + 8, out ? addr6_stack : addr6_peer, 16);
		memcpy(p + 24, out ? addr6_peer : addr6_stack, 16);
		*sum = sum16(p + 8, 32, (uint32_t)(6 + l4));
		return 40;
	}
	p[0] = 0x45;
	put16(p + 2, (uint32_t)(20 + l4));
	p[6] = 0x40;
	p[1] = g->tos;
	p[8] = ttl;
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

	ip = build_ip(p, l4, out, g, &sum);
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

void in_segment(struct segment g)
{
	uint8_t p[2000];

	assert_int_equal(t.netdev_send(U, p, build(p, &g, false)), 0);
}

long long out_segment(struct segment g)
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

long long now_us(void)
{
	struct timeval tv;

	assert_int_equal(t.gettimeofday(U, &tv, NULL), 0);
	return tv.tv_sec * 1000000ll + tv.tv_usec;
}

int begin_with(const char *flags)
{
	interface_init(flags, &t);
	port_stack = 8080;
	port_peer = 40000;
	iss = 0xfffffff0;
	irs = 0;
	irs_known = v6 = false;
	return 0;
}

int begin(void **state)
{
	return begin_with("profile=classic,local=192.168.7.9");
}

int finish(void **state)
{
	t.free(U);
	return 0;
}

struct sockaddr_in address(const uint8_t a[4], uint16_t port)
{
	struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(port)};

	memcpy(&in.sin_addr, a, 4);
	return in;
}

int listening(void)
{
	struct sockaddr_in a = address(addr_stack, 8080);
	int fd = t.socket(U, AF_INET, SOCK_STREAM, IPPROTO_TCP), one = 1;

	assert_true(fd >= 0);
	assert_int_equal(t.setsockopt(U, fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)), 0);
	assert_int_equal(t.bind(U, fd, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(t.listen(U, fd, 1), 0);
	return fd;
}

int accepted(int *listener)
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

struct tcp_info info_of(int fd)
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
