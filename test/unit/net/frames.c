/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>

#include <rte_eal.h>

#include "frames.h"

const uint8_t our_mac[6] = {2, 0, 0, 0, 0, 1}, peer_mac[6] = {2, 0, 0, 0, 0, 2};
const uint8_t our_ip[4] = {10, 0, 0, 1}, peer_ip[4] = {10, 0, 0, 2};

int bench_eal(void)
{
	static char *argv[] = {"test", "--no-huge", "-m", "64", "--no-pci", "--no-telemetry",
		"--no-shconf", "-l", "0", "--log-level", "error", NULL};

	return rte_eal_init(11, argv) < 0 ? -1 : 0;
}

static void on_neigh(void *ctx, const union rp_ip *ip, const uint8_t mac[6], bool confirmed)
{
	((struct bench *)ctx)->learned++;
}

static void on_failed(void *ctx, struct rp_list *user, uint64_t now_ns)
{
	((struct bench *)ctx)->failed++;
}

void bench_restart(struct bench *b)
{
	uint8_t frame[2048];

	rp_net_destroy(b->net);
	b->config.header_pool = b->pool;
	b->config.counters = &b->counters;
	b->config.on_neigh = on_neigh;
	b->config.on_neigh_failed = on_failed;
	b->config.ctx = b;
	b->net = rp_net_create(&b->config, b->now_ns);
	if (!b->net || bench_tx(b, frame) == 0)
		abort();
	b->counters = (struct rp_net_counters){0};
}

void bench_start(struct bench *b)
{
	static unsigned serial;
	char name[16];

	*b = (struct bench){.now_ns = 1000 * RP_NS_PER_S};
	snprintf(name, sizeof(name), "net%u", serial++);
	b->pool = rte_pktmbuf_pool_create(name, 255, 0, 0, 2048, SOCKET_ID_ANY);
	if (!b->pool)
		abort();
	memcpy(b->config.iface.mac, our_mac, 6);
	b->config.iface.addresses[0] =
		(struct rp_net_address){.ip = rp_ip_from4(our_ip), .prefix_length = 24};
	b->config.iface.gateway4 = (union rp_ip)RP_IP4(10, 0, 0, 254);
	b->config.iface.mtu = 9000;
	bench_restart(b);
}

void bench_end(struct bench *b)
{
	rp_net_destroy(b->net);
	if (rte_mempool_in_use_count(b->pool)) {
		fprintf(stderr, "%u mbufs are missing\n", rte_mempool_in_use_count(b->pool));
		abort();
	}
	rte_mempool_free(b->pool);
}

bool bench_rx(struct bench *b, const uint8_t *frame, uint32_t n, uint32_t piece,
	struct rp_net_packet *out)
{
	struct rte_mbuf *first = NULL;

	do {
		uint32_t k = piece ? RP_MIN(piece, n) : n;

		rp_mbuf_append(&first, rp_mbuf_from(b->pool, frame, k));
		frame += k;
		n -= k;
	} while (n > 0);
	return rp_net_rx(b->net, &first, 1, out, b->now_ns) == 1;
}

uint32_t bench_tx(struct bench *b, uint8_t *out)
{
	struct rte_mbuf *m;
	uint32_t n;

	if (rp_net_tx(b->net, &m, 1) == 0)
		return 0;
	n = m->pkt_len;
	if (rp_mbuf_copy_out(m, 0, out, n) != n)
		abort();
	rte_pktmbuf_free(m);
	return n;
}

static void head(uint8_t *f, const uint8_t *dst, const uint8_t *src, uint8_t low)
{
	memcpy(f, dst, 6);
	memcpy(f + 6, src, 6);
	f[12] = 8;
	f[13] = low;
}

uint32_t frame_arp(uint8_t *f, uint16_t operation, const uint8_t *mac, const uint8_t *sender,
	const uint8_t *target)
{
	static const uint8_t fixed[7] = {0, 1, 8, 0, 6, 4, 0};

	head(f, our_mac, mac, 6);
	memcpy(f + 14, fixed, 7);
	f[21] = (uint8_t)operation;
	memcpy(f + 22, mac, 6);
	memcpy(f + 28, sender, 4);
	memset(f + 32, 0, 6);
	memcpy(f + 38, target, 4);
	return 42;
}

void frame_seal(uint8_t *f)
{
	uint32_t total = (uint32_t)f[16] << 8 | f[17], ihl = (f[14] & 15) * 4u;
	uint8_t *l4 = f + 14 + ihl, *at = l4 + (f[23] == 6 ? 16 : 2);
	uint64_t sum = 0;

	memset(f + 24, 0, 2);
	memcpy(f + 24, &(uint16_t){(uint16_t)~rp_csum_bytes(f + 14, ihl)}, 2);
	memset(at, 0, 2);
	if (f[23] == 6)
		sum = rp_csum_bytes(f + 26, 8) + RTE_BE16(6) +
		      rte_cpu_to_be_16((uint16_t)(total - ihl));
	sum += rp_csum_bytes(l4, total - ihl);
	memcpy(at, &(uint16_t){(uint16_t)~rp_csum_fold(sum)}, 2);
}

uint32_t frame_ip(uint8_t *f, uint8_t protocol, const void *payload, uint32_t n)
{
	head(f, our_mac, peer_mac, 0);
	memset(f + 14, 0, 20);
	f[14] = 0x45;
	f[16] = (uint8_t)((20 + n) >> 8);
	f[17] = (uint8_t)(20 + n);
	f[20] = 0x40;
	f[22] = 64;
	f[23] = protocol;
	memcpy(f + 26, peer_ip, 4);
	memcpy(f + 30, our_ip, 4);
	memcpy(f + 34, payload, n);
	frame_seal(f);
	return 34 + n;
}

uint32_t frame_tcp(uint8_t *f, uint32_t payload)
{
	uint8_t tcp[2000] = {0, 80, 4, 0, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x10, 1, 0};

	for (uint32_t i = 0; i < payload; i++)
		tcp[20 + i] = (uint8_t)(i * 3 + 1);
	return frame_ip(f, 6, tcp, 20 + payload);
}

struct rte_mbuf *bench_packet(struct bench *b, uint32_t payload, uint16_t *sum)
{
	uint8_t data[4000];
	struct rte_mbuf *m = rte_pktmbuf_alloc(b->pool);
	uint8_t *tcp = (uint8_t *)rte_pktmbuf_append(m, RP_NET_HEADROOM + 20) + RP_NET_HEADROOM;

	for (uint32_t i = 0; i < payload; i++)
		data[i] = (uint8_t)(i * 5 + 1);
	memset(tcp, 0, 20);
	tcp[12] = 0x50;
	tcp[13] = 0x10;
	*sum = 0;
	if (payload > 0) {
		struct rte_mbuf *p = rp_mbuf_from(b->pool, data, payload);

		*sum = rp_csum_chain(p, 0, payload);
		rp_mbuf_append(&m, p);
	}
	return m;
}

void bench_output(struct bench *b, struct rp_neigh *n, struct rte_mbuf *m,
	const union rp_ip *remote, uint32_t sum)
{
	struct rp_net_segment s = {.remote = remote, .tcp_length = 20, .ecn = b->ecn};
	int local = rp_net_source(b->net, remote);

	s.local = local < 0 ? 0 : (uint32_t)local;
	s.sum = sum + rp_csum_header(rte_pktmbuf_mtod_offset(m, void *, RP_NET_HEADROOM), 20);
	rp_net_output_tcp(b->net, n, m, &s, b->now_ns);
}

const union rp_ip our_ip6 = {.b = {0xfd, [15] = 1}}, our_local6 = {.b = {0xfe, 0x80, [15] = 1}},
		  peer_ip6 = {.b = {0xfd, [15] = 2}};

union rp_ip ip6_of(const char *text)
{
	union rp_ip ip;

	if (inet_pton(AF_INET6, text, ip.b) != 1)
		abort();
	return ip;
}

void bench_start6(struct bench *b)
{
	uint8_t frame[2048];

	bench_start(b);
	b->config.iface.addresses[1] = (struct rp_net_address){.ip = our_ip6, .prefix_length = 64};
	b->config.iface.addresses[2] =
		(struct rp_net_address){.ip = our_local6, .prefix_length = 64};
	bench_restart(b);
	while (bench_tx(b, frame))
		;
	b->counters = (struct rp_net_counters){0};
}

void frame_seal6(uint8_t *f, uint32_t offset, uint8_t protocol)
{
	uint32_t length = ((uint32_t)f[18] << 8 | f[19]) - offset;
	uint8_t *l4 = f + 54 + offset, *at = l4 + (protocol == 6 ? 16 : 2);
	uint64_t sum = rp_csum_bytes(f + 22, 32) + (uint64_t)rte_cpu_to_be_16(protocol) +
		       rte_cpu_to_be_16((uint16_t)length);

	memset(at, 0, 2);
	sum += rp_csum_bytes(l4, length);
	memcpy(at, &(uint16_t){(uint16_t)~rp_csum_fold(sum)}, 2);
}

static uint32_t ip6(uint8_t *f, uint8_t next_header, uint8_t hop_limit, const union rp_ip *src,
	const union rp_ip *dst, const void *payload, uint32_t n)
{
	head(f, our_mac, peer_mac, 0xdd);
	f[12] = 0x86;
	if (dst->b[0] == 0xff) {
		f[0] = f[1] = 0x33;
		memcpy(f + 2, dst->b + 12, 4);
	}
	memset(f + 14, 0, 40);
	f[14] = 0x60;
	f[18] = (uint8_t)(n >> 8);
	f[19] = (uint8_t)n;
	f[20] = next_header;
	f[21] = hop_limit;
	memcpy(f + 22, src, 16);
	memcpy(f + 38, dst, 16);
	memcpy(f + 54, payload, n);
	return 54 + n;
}

uint32_t frame_ip6(uint8_t *f, uint8_t next_header, const void *payload, uint32_t n)
{
	return ip6(f, next_header, 64, &peer_ip6, &our_ip6, payload, n);
}

uint32_t frame_icmp6(
	uint8_t *f, const union rp_ip *src, const union rp_ip *dst, const void *message, uint32_t n)
{
	uint32_t length = ip6(f, 58, 255, src, dst, message, n);

	frame_seal6(f, 0, 58);
	return length;
}

uint32_t frame_nd(uint8_t *f, uint8_t type, uint8_t flags, const union rp_ip *src,
	const union rp_ip *dst, const union rp_ip *target, const uint8_t *mac)
{
	uint8_t m[32] = {type, [4] = flags, [24] = type == 135 ? 1 : 2, [25] = 1};

	memcpy(m + 8, target, 16);
	if (mac)
		memcpy(m + 26, mac, 6);
	return frame_icmp6(f, src, dst, m, mac ? 32 : 24);
}
