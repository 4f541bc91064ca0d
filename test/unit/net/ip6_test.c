/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>

#include "frames.h"

static uint8_t f[4096], out[10000];
static struct rp_net_packet p;

static const uint8_t plain_tcp[20] = {0, 80, 4, 0, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x10, 1, 0};

static uint32_t tcp6(uint32_t payload)
{
	uint8_t tcp[2000];
	uint32_t n;

	memcpy(tcp, plain_tcp, 20);
	for (uint32_t i = 0; i < payload; i++)
		tcp[20 + i] = (uint8_t)(i * 3 + 1);
	n = frame_ip6(f, 6, tcp, 20 + payload);
	frame_seal6(f, 0, 6);
	return n;
}

/* A TCP packet behind `n` bytes of extension headers, the first of which is `first`. */
static uint32_t extended(uint8_t first, const uint8_t *headers, uint32_t n)
{
	uint8_t b[1000];
	uint32_t length;

	memcpy(b, headers, n);
	memcpy(b + n, plain_tcp, 20);
	length = frame_ip6(f, first, b, n + 20);
	frame_seal6(f, n, 6);
	return length;
}

static void whole_segments_are_handed_up(void **state)
{
	struct bench b;

	bench_start6(&b);
	for (uint32_t piece = 0; piece < 60; piece++)
		for (uint32_t payload = 0; payload < 40; payload += 13) {
			uint32_t n = tcp6(payload);

			f[14] |= 0x00;
			f[15] = 0x30;		/* ECN: CE */
			memset(f + n, 0xee, 9); /* padding of Ethernet */
			assert_true(bench_rx(&b, f, n + 9, piece, &p));
			assert_int_equal(p.kind, RP_NET_TCP);
			assert_int_equal(p.l4_offset, 40);
			assert_int_equal(p.l4_length, 20 + payload);
			assert_int_equal(p.m->pkt_len, 60 + payload);
			assert_true(p.m->data_len >= 60);
			assert_true(rp_ip_equal(&p.remote, &peer_ip6));
			assert_true(rp_ip_equal(rp_net_local(b.net, p.local), &our_ip6));
			assert_int_equal(p.ecn, RP_NET_ECN_CE);
			rte_pktmbuf_free(p.m);
		}
	bench_end(&b);
}

static void extension_headers(void **state)
{
	static const uint8_t hop[] = {6, 0, 1, 4, 0, 0, 0, 0};
	static const uint8_t three[] = {60, 0, 5, 2, 0, 0, 1, 0,  /* hop by hop: router alert */
		43, 1, 1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, /* destination */
		6, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
		0}; /* routing */
	static const uint8_t atomic[] = {6, 0, 0, 0, 1, 2, 3, 4};
	struct bench b;

	bench_start6(&b);
	for (uint32_t piece = 0; piece < 90; piece += 7) {
		assert_true(bench_rx(&b, f, extended(0, hop, sizeof(hop)), piece, &p));
		assert_int_equal(p.l4_offset, 48);
		rte_pktmbuf_free(p.m);
		assert_true(bench_rx(&b, f, extended(0, three, sizeof(three)), piece, &p));
		assert_int_equal(p.l4_offset, 40 + sizeof(three));
		assert_int_equal(p.l4_length, 20);
		rte_pktmbuf_free(p.m);
		assert_true(bench_rx(&b, f, extended(44, atomic, sizeof(atomic)), piece, &p));
		rte_pktmbuf_free(p.m);
	}
	bench_end(&b);
}

#define DROPS(counter, make, edit)                                \
	do {                                                      \
		uint64_t before = b.counters.counter;             \
		uint32_t n = make;                                \
		edit;                                             \
		assert_false(bench_rx(&b, f, n, 0, &p));          \
		assert_int_equal(b.counters.counter, before + 1); \
		drops++;                                          \
	} while (0)
#define EXTENSION(...) extended(0, (const uint8_t[]){__VA_ARGS__}, 8)
#define DESTINATION(...) extended(60, (const uint8_t[]){__VA_ARGS__}, 8)

static void each_fault_has_its_counter(void **state)
{
	static const uint8_t first[] = {6, 0, 0, 1, 0, 0, 0, 1}, later[] = {6, 0, 1, 0, 0, 0, 0, 1};
	static const uint8_t routing[] = {6, 0, 0, 1, 0, 0, 0, 0};
	uint8_t chain[80], large[520] = {6, 64, 1, 0};
	uint64_t drops = 0, counted = 0;
	struct bench b;

	bench_start6(&b);
	for (unsigned i = 0; i < 10; i++)
		memcpy(chain + 8 * i, (const uint8_t[]){60, 0, 1, 4, 0, 0, 0, 0}, 8);
	DROPS(drop_short, tcp6(0), n = 53);
	DROPS(drop_ip_header, tcp6(0), f[14] = 0x50);
	DROPS(drop_ip_header, tcp6(0), f[19]++);
	DROPS(drop_not_for_us, tcp6(0), f[53] = 9);
	DROPS(drop_not_for_us, tcp6(0), f[5] = 9);
	DROPS(drop_multicast, tcp6(0), (memcpy(f, "\x33\x33\0\0\1\2", 6)));
	DROPS(drop_multicast, tcp6(0), (f[38] = 0xff, f[39] = 2, f[53] = 2));
	DROPS(drop_not_for_us, tcp6(0), (f[38] = 0xff, f[39] = 2)); /* all nodes: not by TCP */
	DROPS(drop_ip_source, tcp6(0), memset(f + 22, 0, 16));
	DROPS(drop_ip_source, tcp6(0), (memset(f + 22, 0, 16), f[37] = 1));
	DROPS(drop_ip_source, tcp6(0), f[22] = 0xff);
	DROPS(drop_ip_source, tcp6(0), memcpy(f + 22, &our_ip6, 16));
	/* An IPv4 address in IPv6's clothes is nobody's. */
	DROPS(drop_ip_source, tcp6(0), (memset(f + 22, 0, 16), f[32] = f[33] = 0xff, f[34] = 10));
	DROPS(drop_ip_protocol, tcp6(0), f[20] = 17);
	DROPS(drop_ip_protocol, tcp6(0), f[20] = 59);
	DROPS(drop_l4_csum, tcp6(9), f[70]++);
	DROPS(drop_l4_short, tcp6(0), (f[19] = 19, n--));
	DROPS(drop_l4_short, tcp6(0), f[66] = 0x40);
	DROPS(drop_l4_short, tcp6(0), f[66] = 0x60);
	DROPS(drop_ip_fragment, extended(44, first, 8), );
	DROPS(drop_ip_fragment, extended(44, later, 8), );
	DROPS(drop_ip6_extension, extended(43, routing, 8), );
	DROPS(drop_ip6_extension, EXTENSION(6, 9, 1, 4, 0, 0, 0, 0), ); /* longer than the packet */
	DROPS(drop_ip6_extension, EXTENSION(0, 0, 1, 4, 0, 0, 0, 0), ); /* twice */
	DROPS(drop_ip6_extension, DESTINATION(6, 0, 1, 5, 0, 0, 0, 0), ); /* option too long */
	DROPS(drop_ip6_extension, DESTINATION(6, 0, 0, 0, 0, 0, 0, 1), ); /* option cut */
	DROPS(drop_ip6_extension, DESTINATION(6, 0, 0x41, 4, 0, 0, 0, 0), );
	DROPS(drop_ip6_extension, DESTINATION(6, 0, 0xc2, 4, 0, 0, 0, 0), ); /* jumbo */
	DROPS(drop_ip6_extension, extended(60, chain, sizeof(chain)), );
	DROPS(drop_ip6_extension, extended(60, large, sizeof(large)), );
	DROPS(drop_ip6_extension, extended(60, chain, 8), (f[19] = 4, n = 58));
#define X(name, text)                    \
	if (!strncmp(#name, "drop_", 5)) \
		counted += b.counters.name;
#include <net/net_counters.def>
#undef X
	assert_int_equal(counted, drops); /* each exactly once */
	bench_end(&b);
}

/* What options that are not known say of themselves counts: 00 may be passed over. */
static void an_option_may_be_skipped(void **state)
{
	struct bench b;

	bench_start6(&b);
	assert_true(bench_rx(&b, f, DESTINATION(6, 0, 0x1e, 2, 9, 9, 0, 0), 0, &p));
	rte_pktmbuf_free(p.m);
	bench_end(&b);
}

static uint32_t flow_label(const uint8_t *frame)
{
	return (frame[15] & 15u) << 16 | (uint32_t)frame[16] << 8 | frame[17];
}

static void output(struct bench *b, uint32_t payload, unsigned port)
{
	struct rp_list user;
	struct rp_neigh *n;
	uint16_t sum;
	struct rte_mbuf *m = bench_packet(b, payload, &sum);

	rte_pktmbuf_mtod_offset(m, uint8_t *, RP_NET_HEADROOM)[3] = (uint8_t)port;
	rp_list_init(&user);
	n = rp_neigh_ref(b->net, &peer_ip6, &user, b->now_ns);
	bench_output(b, n, m, &peer_ip6, sum);
	rp_neigh_unref(b->net, n, &user);
}

static void output_with_and_without_a_device(void **state)
{
	struct bench b;
	uint32_t label = 0;

	bench_start6(&b);
	for (unsigned hw = 0; hw < 4; hw++) {
		uint32_t n;

		b.config.iface.tx_csum_tcp = hw & 1;
		b.config.seed = 5;
		bench_restart(&b);
		while (bench_tx(&b, out))
			;
		rp_net_neigh_learn(b.net, &peer_ip6, peer_mac, true, b.now_ns);
		b.ecn = (uint8_t)hw;
		output(&b, 777, 7);
		if (hw & 1) {
			struct rte_mbuf *m;

			assert_int_equal(rp_net_tx(b.net, &m, 1), 1);
			assert_int_equal(m->l2_len, 14);
			assert_int_equal(m->l3_len, 40);
			assert_int_equal(m->l4_len, 20);
			assert_true(
				(m->ol_flags & RTE_MBUF_F_TX_L4_MASK) == RTE_MBUF_F_TX_TCP_CKSUM);
			assert_true(m->ol_flags & RTE_MBUF_F_TX_IPV6);
			rte_pktmbuf_free(m);
			continue;
		}
		n = bench_tx(&b, out);
		assert_int_equal(n, 54 + 797);
		assert_memory_equal(out, peer_mac, 6);
		assert_int_equal(out[12] << 8 | out[13], 0x86dd);
		assert_int_equal(out[14] >> 4, 6);
		assert_int_equal(out[15] >> 4, hw);
		assert_int_equal(out[21], 64);
		if (hw == 0)
			label = flow_label(out);
		assert_int_equal(flow_label(out), label);
		/* What we send we take: swapped addresses have the same sum. */
		memcpy(out, our_mac, 6);
		memcpy(out + 22, &peer_ip6, 16);
		memcpy(out + 38, &our_ip6, 16);
		assert_true(bench_rx(&b, out, n, 0, &p));
		assert_int_equal(p.ecn, hw);
		rte_pktmbuf_free(p.m);
		output(&b, 777, 8);
		assert_int_equal(bench_tx(&b, out), n);
		assert_int_not_equal(flow_label(out), label);
	}
	bench_end(&b);
}

static void echoes(void **state)
{
	static const union rp_ip all_nodes = {.b = {0xff, 2, [15] = 1}};
	uint8_t m[600] = {128, 0, 0, 0, 1, 2, 3, 4};
	struct bench b;

	bench_start6(&b);
	rp_net_neigh_learn(b.net, &peer_ip6, peer_mac, true, b.now_ns);
	for (unsigned i = 8; i < sizeof(m); i++)
		m[i] = (uint8_t)i;
	for (unsigned k = 0; k < 24; k++) {
		const union rp_ip *dst = k % 2 ? &all_nodes : &our_ip6;
		uint32_t size = k % 3 == 0 ? 8 : k % 3 == 1 ? 9 : 600, n;

		n = frame_icmp6(f, &peer_ip6, dst, m, size);
		assert_false(bench_rx(&b, f, n, k / 6 * 20, &p));
		assert_int_equal(bench_tx(&b, out), n);
		assert_memory_equal(out + 22, &our_ip6, 16);
		assert_memory_equal(out + 38, &peer_ip6, 16);
		assert_int_equal(out[54], 129);
		assert_memory_equal(out + 58, m + 4, size - 4);
		memcpy(f, out, n);
		frame_seal6(f, 0, 58);
		assert_memory_equal(f, out, n);
	}
	assert_int_equal(b.counters.icmp_echo_replies, 24);
	bench_rx(&b, f, frame_icmp6(f, &our_ip6, &our_ip6, m, 8), 0, &p);
	assert_int_equal(b.counters.drop_ip_source, 1);
	frame_icmp6(f, &peer_ip6, &our_ip6, m, 8);
	f[57]++;
	bench_rx(&b, f, 62, 0, &p);
	assert_int_equal(b.counters.drop_l4_csum, 1);
	bench_rx(&b, f, frame_icmp6(f, &peer_ip6, &our_ip6, m, 7), 0, &p);
	assert_int_equal(b.counters.drop_l4_short, 1);
	bench_end(&b);
}

static void errors_about_our_segments(void **state)
{
	static const struct {
		uint8_t type, code;
		enum rp_net_icmp_error error;
	} cases[] = {
		{1, 0, RP_NET_ICMP_SOFT},
		{1, 1, RP_NET_ICMP_HARD},
		{1, 3, RP_NET_ICMP_SOFT},
		{1, 4, RP_NET_ICMP_HARD},
		{2, 0, RP_NET_ICMP_TOO_BIG},
		{3, 0, RP_NET_ICMP_SOFT},
		{4, 1, RP_NET_ICMP_HARD},
		{4, 0, RP_NET_ICMP_SOFT},
	};
	uint8_t m[8 + 40 + 20] = {0, 0, 0, 0, 0, 0, 0x05, 0x78, 0x60, [8 + 5] = 20, [8 + 6] = 6,
		[8 + 7] = 64, [48] = 0x12, 0x34, 0, 80, 1, 2, 3, 4};
	struct bench b;

	bench_start6(&b);
	memcpy(m + 16, &our_ip6, 16);
	memcpy(m + 32, &peer_ip6, 16);
	for (unsigned i = 0; i < RP_ARRAY_SIZE(cases); i++) {
		union rp_ip router = ip6_of("fd99::1");

		m[0] = cases[i].type;
		m[1] = cases[i].code;
		assert_true(bench_rx(&b, f, frame_icmp6(f, &router, &our_ip6, m, sizeof(m)),
			i % 2 ? 30 : 0, &p));
		assert_int_equal(p.kind, RP_NET_ICMP_ERROR);
		assert_int_equal(p.error, cases[i].error);
		assert_true(rp_ip_equal(&p.remote, &peer_ip6));
		assert_true(rp_ip_equal(rp_net_local(b.net, p.local), &our_ip6));
		assert_int_equal(p.local_port, 0x1234);
		assert_int_equal(p.remote_port, 80);
		assert_int_equal(p.seq, 0x01020304);
		assert_int_equal(p.mtu, 1400);
	}
	m[16 + 15] = 7; /* not ours */
	assert_false(bench_rx(&b, f, frame_icmp6(f, &peer_ip6, &our_ip6, m, sizeof(m)), 0, &p));
	m[16 + 15] = 1;
	m[8 + 6] = 17;
	assert_false(bench_rx(&b, f, frame_icmp6(f, &peer_ip6, &our_ip6, m, sizeof(m)), 0, &p));
	m[8 + 6] = 6;
	assert_false(bench_rx(&b, f, frame_icmp6(f, &peer_ip6, &our_ip6, m, 55), 0, &p));
	assert_int_equal(b.counters.drop_icmp_embedded, 3);
	m[0] = 200;
	assert_false(bench_rx(&b, f, frame_icmp6(f, &peer_ip6, &our_ip6, m, 55), 0, &p));
	assert_int_equal(b.counters.drop_icmp_type, 1);
	bench_end(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(whole_segments_are_handed_up),
		cmocka_unit_test(extension_headers),
		cmocka_unit_test(each_fault_has_its_counter),
		cmocka_unit_test(an_option_may_be_skipped),
		cmocka_unit_test(output_with_and_without_a_device),
		cmocka_unit_test(echoes),
		cmocka_unit_test(errors_about_our_segments),
	};

	return bench_eal() < 0 ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
}
