/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Any segments, calls and passing of time against live connections. The input is a row of
 * operations, two bytes each and what the operation reads; sequence numbers are relative to what
 * the stack last sent, so that they mean something. After each, everything that is kept twice is
 * recounted (rp_tcp_check); the events must come in order; at the end no mbuf may be missing.
 */

#include <stdlib.h>
#include <string.h>

#include <rte_eal.h>
#include <rte_mbuf.h>

#include <base/assert.h>
#include <base/bytes.h>
#include <base/mbuf.h>
#include <net/csum.h>
#include <tcp/tcp.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define OPS_MAX 400
#define CONNS 3

static struct rte_mempool *headers, *payloads, *received;
static const uint8_t our_mac[6] = {2, 0, 0, 0, 0, 1}, peer_mac[6] = {2, 0, 0, 0, 0, 2};

struct fuzz_conn {
	struct rp_conn *conn;
	bool fin, in_use;
	uint32_t held;
	uint16_t local_port, remote_port;
	uint32_t seq, ack; /* the stack's, as last sent */
};

struct fuzz {
	struct rp_tcp_stack *stack;
	struct rp_transport *t;
	struct fuzz_conn c[CONNS];
	unsigned current;
	uint64_t now_ns;
	struct rp_reader r;
	struct rte_mbuf *hog[256]; /* headers that the stack does not get */
	unsigned hogged;
};

static void start(void)
{
	static char *argv[] = {"fuzz", "--no-huge", "-m", "64", "--no-pci", "--no-telemetry",
		"--no-shconf", "-l", "0", "--log-level", "error", NULL};

	RP_ASSERT(rte_eal_init(11, argv) >= 0);
	headers = rte_pktmbuf_pool_create("fuzz_h", 255, 0, 0, 384, SOCKET_ID_ANY);
	payloads = rte_pktmbuf_pool_create("fuzz_p", 127, 0, 0, 2048, SOCKET_ID_ANY);
	received = rte_pktmbuf_pool_create("fuzz_r", 1023, 0, 0, 2048, SOCKET_ID_ANY);
	RP_ASSERT(headers && payloads && received);
}

static void on_open(void *ctx, struct rp_conn *c, uint64_t now_ns)
{
	struct fuzz_conn *f = ctx;

	RP_ASSERT(f->conn == c && !f->fin);
}

static void on_data(void *ctx, struct rp_conn *c, struct rte_mbuf *chain, uint64_t now_ns)
{
	struct fuzz_conn *f = ctx;

	RP_ASSERT(f->conn == c && !f->fin && chain->pkt_len > 0);
	f->held += chain->pkt_len;
	rte_pktmbuf_free(chain);
}

static void on_peer_fin(void *ctx, struct rp_conn *c, uint64_t now_ns)
{
	struct fuzz_conn *f = ctx;

	RP_ASSERT(f->conn == c && !f->fin);
	f->fin = true;
}

static void on_writable(void *ctx, struct rp_conn *c, uint64_t now_ns)
{
	struct fuzz_conn *f = ctx;

	RP_ASSERT(f->conn == c);
}

static void on_close(void *ctx, struct rp_conn *c, enum rp_close_reason why, uint64_t now_ns)
{
	struct fuzz_conn *f = ctx;

	RP_ASSERT(f->conn == c);
	f->conn = NULL;
}

static const struct rp_conn_events events = {
	.on_open = on_open,
	.on_data = on_data,
	.on_peer_fin = on_peer_fin,
	.on_writable = on_writable,
	.on_close = on_close,
};

static int on_accept(void *ctx, struct rp_conn *c, const struct rp_endpoint *peer,
	const struct rp_conn_events **ev, void **conn_ctx, uint64_t now_ns)
{
	struct fuzz *z = ctx;

	for (unsigned i = 0; i < CONNS; i++) {
		struct fuzz_conn *f = &z->c[i];

		if (f->conn)
			continue;
		f->conn = c;
		f->fin = false;
		f->held = 0;
		*ev = &events;
		*conn_ctx = f;
		return 0;
	}
	return -1;
}

static uint32_t load32(const uint8_t *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void store16(uint8_t *p, uint16_t v)
{
	p[0] = (uint8_t)(v >> 8);
	p[1] = (uint8_t)v;
}

static void store32(uint8_t *p, uint32_t v)
{
	store16(p, (uint16_t)(v >> 16));
	store16(p + 2, (uint16_t)v);
}

/* Notes where the connection stands, by what the stack sends. */
static void watch(struct fuzz *z, const struct rte_mbuf *m)
{
	uint8_t h[54];
	struct fuzz_conn *f = NULL;
	uint16_t local, remote;

	if (rp_mbuf_copy_out(m, 0, h, sizeof(h)) < sizeof(h) || h[12] != 8 || h[13] || h[23] != 6)
		return;
	local = (uint16_t)(h[34] << 8 | h[35]);
	remote = (uint16_t)(h[36] << 8 | h[37]);
	for (unsigned i = 0; i < CONNS && !f; i++)
		if (z->c[i].local_port == local && z->c[i].remote_port == remote)
			f = &z->c[i];
	if (!f || h[47] & 4)
		return;
	f->seq = load32(h + 38) + m->pkt_len - 34 - (h[46] >> 4) * 4u + ((h[47] & 3) != 0);
	if (h[47] & 16)
		f->ack = load32(h + 42);
}

static void turn(struct fuzz *z)
{
	struct rte_mbuf *out[32];
	const char *fault;
	unsigned n;

	rp_tcp_poll(z->stack, z->now_ns);
	while ((n = rp_tcp_tx(z->stack, out, 32)) > 0)
		for (unsigned i = 0; i < n; i++) {
			watch(z, out[i]);
			rte_pktmbuf_free(out[i]);
		}
	fault = rp_tcp_check(z->stack);
	if (fault) {
		fprintf(stderr, "%s\n", fault);
		abort();
	}
}

static void packet(struct fuzz *z, uint8_t *p, uint32_t n, bool tcp)
{
	struct rte_mbuf *m;

	memcpy(p, our_mac, 6);
	memcpy(p + 6, peer_mac, 6);
	p[12] = 8;
	p[13] = 0;
	if (tcp) {
		uint64_t sum;
		uint16_t v = 0;

		memcpy(p + 24, &v, 2);
		v = (uint16_t)~rp_csum_bytes(p + 14, 20);
		memcpy(p + 24, &v, 2);
		v = 0;
		memcpy(p + 50, &v, 2);
		sum = rp_csum_bytes(p + 26, 8) + __builtin_bswap16(6) +
		      __builtin_bswap16((uint16_t)(n - 34)) + rp_csum_bytes(p + 34, n - 34);
		v = (uint16_t)~rp_csum_fold(sum);
		memcpy(p + 50, &v, 2);
	}
	m = rp_mbuf_from(received, p, n);
	if (m)
		rp_tcp_rx(z->stack, &m, 1, z->now_ns);
}

static void op_segment(struct fuzz *z, uint8_t how)
{
	static const uint8_t ip[20] = {
		0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 2, 10, 0, 0, 1};
	struct fuzz_conn *f = &z->c[z->current];
	uint8_t p[4096] = {0};
	uint8_t flags = rp_read_u8(&z->r), shape = rp_read_u8(&z->r);
	int32_t seq = (int16_t)rp_read_le16(&z->r), ack = (int16_t)rp_read_le16(&z->r);
	uint16_t window = rp_read_le16(&z->r);
	uint32_t options = (shape & 15) % 11 * 4, length = (uint32_t)(shape >> 4) * 97, n;

	/* Far away as well as near. */
	seq *= how & 16 ? 4001 : 1;
	ack *= how & 32 ? 4001 : 1;
	memcpy(p + 14, ip, 20);
	store16(p + 34, f->remote_port);
	store16(p + 36, f->local_port);
	store32(p + 38, how & 64 ? f->ack : f->ack + (uint32_t)seq);
	store32(p + 42, how & 128 ? f->seq : f->seq + (uint32_t)ack);
	p[46] = (uint8_t)((5 + options / 4) << 4);
	p[15] = how & 3; /* ECN */
	p[47] = flags;
	store16(p + 48, window);
	for (uint32_t i = 0; i < options; i++)
		p[54 + i] = rp_read_u8(&z->r);
	/* Blocks relative to what was sent. */
	if (options >= 12 && p[54] == 5)
		for (uint32_t i = 2; i + 4 <= options && i < p[55]; i += 4)
			store32(p + 54 + i, f->seq + (uint32_t)(int16_t)load32(p + 54 + i));
	n = 54 + options + length;
	store16(p + 16, (uint16_t)(n - 14));
	packet(z, p, n, true);
}

static void op_raw(struct fuzz *z)
{
	uint8_t p[600] = {0};
	uint32_t n = rp_read_u8(&z->r) * 2u;

	for (uint32_t i = 0; i < n; i++)
		p[14 + i] = rp_read_u8(&z->r);
	packet(z, p, 14 + n, n >= 40 && p[23] == 6);
}

static void op_send(struct fuzz *z, uint32_t bytes)
{
	struct fuzz_conn *f = &z->c[z->current];
	static const uint8_t data[6000];
	struct rte_mbuf *m;

	if (!f->conn)
		return;
	m = rp_mbuf_from(payloads, data, bytes % sizeof(data) + 1);
	if (m && f->conn->transport->ops->send(f->conn, m, z->now_ns))
		rte_pktmbuf_free(m);
}

static void op_dial(struct fuzz *z)
{
	static const struct rp_endpoint peer = {.family = 4, .port = 99, .addr = {10, 0, 0, 2}};
	struct fuzz_conn *f = &z->c[z->current];
	struct rp_tcp_info info;

	if (f->conn)
		return;
	f->fin = false;
	f->held = 0;
	f->conn = z->t->ops->dial(z->t, &peer, NULL, &events, f, z->now_ns);
	if (!f->conn)
		return;
	rp_tcp_conn_info(f->conn, &info);
	f->local_port = info.local.port;
	f->remote_port = 99;
}

static void op_hog(struct fuzz *z, unsigned left)
{
	struct rte_mempool *p = left & 1 ? headers : payloads;

	if (z->hogged > 0) {
		rte_pktmbuf_free_bulk(z->hog, z->hogged);
		z->hogged = 0;
		return;
	}
	while (z->hogged < 256 && rte_mempool_avail_count(p) > left / 8)
		z->hog[z->hogged++] = rte_pktmbuf_alloc(p);
}

static void op_icmp(struct fuzz *z)
{
	static const uint8_t ip[20] = {
		0x45, 0, 0, 56, 0, 0, 0x40, 0, 64, 1, 0, 0, 10, 0, 0, 2, 10, 0, 0, 1};
	struct fuzz_conn *f = &z->c[z->current];
	uint8_t p[14 + 56] = {0};
	uint16_t v;

	memcpy(p + 14, ip, 20);
	p[34] = 3;
	p[35] = rp_read_u8(&z->r) % 16;
	store16(p + 40, rp_read_le16(&z->r));
	memcpy(p + 42, ip, 20);
	p[51] = 6;
	memcpy(p + 54, ip + 16, 4);
	memcpy(p + 58, ip + 12, 4);
	store16(p + 62, f->local_port);
	store16(p + 64, f->remote_port);
	store32(p + 66, f->seq - rp_read_le16(&z->r));
	v = (uint16_t)~rp_csum_bytes(p + 14, 20);
	memcpy(p + 24, &v, 2);
	v = (uint16_t)~rp_csum_bytes(p + 34, 36);
	memcpy(p + 36, &v, 2);
	packet(z, p, sizeof(p), false);
}

static void op_call(struct fuzz *z, uint8_t how, uint8_t arg)
{
	struct fuzz_conn *f = &z->c[z->current];
	uint32_t n;

	switch (how % 8) {
	case 0:
	case 1:
		op_send(z, arg * 23u);
		break;
	case 2:
		n = RP_MIN(f->held, arg * 64u);
		if (f->conn && n > 0) {
			f->held -= n;
			f->conn->transport->ops->consume(f->conn, n, z->now_ns);
		}
		break;
	case 3:
		if (f->conn)
			f->conn->transport->ops->close(f->conn, z->now_ns);
		break;
	case 4:
		if (f->conn && arg < 32) {
			f->conn->transport->ops->abort(f->conn, z->now_ns);
			f->conn = NULL;
		} else if (arg >= 128) {
			op_hog(z, arg - 128u);
		}
		break;
	case 5:
		op_dial(z);
		break;
	case 6: /* as if a peer of ours dialled: the segments that follow are of this pair */
		f->local_port = 80;
		f->remote_port = (uint16_t)(1000 + arg % 4);
		break;
	default:
		z->current = arg % CONNS;
		break;
	}
}

static void run(struct fuzz *z)
{
	for (unsigned i = 0; i < OPS_MAX && rp_reader_left(&z->r) >= 2; i++) {
		uint8_t op = rp_read_u8(&z->r), arg = rp_read_u8(&z->r);

		if (op % 16 < 9)
			op_segment(z, arg);
		else if (op % 16 < 13)
			op_call(z, op >> 4, arg);
		else if (op % 16 < 15)
			/* Without a turn: what comes next and what is due now come in one. */
			z->now_ns += (uint64_t)(arg | 1) << (op >> 4) * 2;
		else if (arg & 1)
			op_icmp(z);
		else
			op_raw(z);
		if (op % 16 < 13 || op % 16 == 15 || arg & 1)
			turn(z);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz z = {.now_ns = 1000 * RP_NS_PER_S, .r = rp_reader_of(data, size)};
	struct rp_tcp_config config = {
		.net = {.iface = {.mtu = 1500}, .neighbours_max = 4},
		.connections_max = 8,
		.listeners_max = 2,
		.time_wait_max = 4,
		.segments_max = 64,
		.reassembly_max = 16,
		.backlog = 4,
		.send_buffer_bytes = 16384,
		.receive_buffer_bytes = 32768,
		.ooo_ranges_max = 8,
		.ooo_mbufs_max = 40,
		.pmtu_blackhole = true,
		.syn_cookies = size % 3 ? RP_SYN_COOKIES_AUTO : RP_SYN_COOKIES_ALWAYS,
		.routes = {{.options = {.congestion = size % 2 ? RP_CONGESTION_DCTCP
							       : RP_CONGESTION_CUBIC,
				    .ecn = RP_ECN_ASK,
				    .ack_profile = size % 5 ? RP_ACK_DELAYED : RP_ACK_QUICK,
				    .keepalive_idle_ns = 5 * RP_NS_PER_S,
				    .keepalive_interval_ns = RP_NS_PER_S}}},
		.route_count = 1,
	};
	unsigned free_headers, free_payloads, free_received;
	union rp_ip peer = rp_ip_from4((const uint8_t[4]){10, 0, 0, 2});

	if (!headers)
		start();
	free_headers = rte_mempool_avail_count(headers);
	free_payloads = rte_mempool_avail_count(payloads);
	free_received = rte_mempool_avail_count(received);
	config.net.header_pool = headers;
	config.net.payload_pool = payloads;
	config.rx_pool = size % 4 ? NULL : headers; /* which runs short at times */
	memcpy(config.net.iface.mac, our_mac, 6);
	config.net.iface.addresses[0] =
		(struct rp_net_address){.ip = RP_IP4(10, 0, 0, 1), .prefix_length = 24};
	z.stack = rp_tcp_create(&config, z.now_ns);
	RP_ASSERT(z.stack);
	z.t = rp_tcp_transport(z.stack);
	for (unsigned i = 0; i < CONNS; i++)
		z.c[i] = (struct fuzz_conn){.local_port = 80, .remote_port = (uint16_t)(1000 + i)};
	RP_ASSERT(z.t->ops->listen(z.t, 80, NULL, on_accept, &z) == 0);
	rp_net_neigh_learn(rp_tcp_net(z.stack), &peer, peer_mac, true, z.now_ns);
	run(&z);
	rte_pktmbuf_free_bulk(z.hog, z.hogged);
	rp_tcp_destroy(z.stack);
	RP_ASSERT(rte_mempool_avail_count(headers) == free_headers);
	RP_ASSERT(rte_mempool_avail_count(payloads) == free_payloads);
	RP_ASSERT(rte_mempool_avail_count(received) == free_received);
	return 0;
}
