/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>

#include "frames.h"

static void whole_segments_are_handed_up(void **state)
{
	static const uint32_t pieces[] = {0, 1, 7, 14, 15, 34, 40, 54, 55, 100};
	uint8_t f[2048];
	struct rp_net_packet p;
	struct bench b;

	bench_start(&b);
	for (unsigned i = 0; i < RP_ARRAY_SIZE(pieces); i++) {
		uint8_t out[2048];
		uint32_t n = frame_tcp(f, 101);

		memset(f + n, 0x77, 9); /* padding */
		assert_true(bench_rx(&b, f, n + 9, pieces[i], &p));
		assert_int_equal(p.kind, RP_NET_TCP);
		assert_int_equal(p.l4_offset, 20);
		assert_int_equal(p.l4_length, 121);
		assert_memory_equal(&p.remote.b[12], peer_ip, 4);
		assert_int_equal(p.m->pkt_len, 141);
		assert_true(p.m->data_len >= 40);
		assert_int_equal(rp_mbuf_copy_out(p.m, 0, out, sizeof(out)), 141);
		assert_memory_equal(out, f + 14, 141);
		rte_pktmbuf_free(p.m);
	}
	assert_int_equal(b.counters.rx_tcp, RP_ARRAY_SIZE(pieces));
	assert_int_equal(b.counters.csum_sw_rx, RP_ARRAY_SIZE(pieces));
	bench_end(&b);
}

static void options_of_the_header(void **state)
{
	uint8_t f[2048], g[2048];
	struct rp_net_packet p;
	struct bench b;
	uint32_t n;

	bench_start(&b);
	n = frame_tcp(f, 30);
	memcpy(g, f, 34);
	memset(g + 34, 1, 12);
	memcpy(g + 46, f + 34, n - 34);
	g[14] = 0x48;
	g[17] = (uint8_t)(g[17] + 12);
	frame_seal(g);
	for (uint32_t piece = 0; piece < 60; piece += 11) {
		assert_true(bench_rx(&b, g, n + 12, piece, &p));
		assert_int_equal(p.l4_offset, 32);
		assert_int_equal(p.l4_length, 50);
		rte_pktmbuf_free(p.m);
	}
	bench_end(&b);
}

#define DROPS(counter, edit, seal)                                 \
	do {                                                       \
		uint64_t before = b->counters.counter;             \
		n = frame_tcp(f, 10);                              \
		edit;                                              \
		if (seal)                                          \
			frame_seal(f);                             \
		assert_false(bench_rx(b, f, n, 0, &p));            \
		assert_int_equal(b->counters.counter, before + 1); \
		drops++;                                           \
	} while (0)

static uint64_t drop_each(struct bench *b)
{
	uint8_t f[2048];
	struct rp_net_packet p;
	uint64_t drops = 0;
	uint32_t n;

	DROPS(drop_not_for_us, f[5] = 9, false);
	DROPS(drop_not_for_us, f[33] = 9, true);
	DROPS(drop_ethertype, (f[12] = 0x88, f[13] = 0xcc), false);
	DROPS(drop_ethertype, (f[12] = 0x86, f[13] = 0xdd), false); /* without an address of it */
	DROPS(drop_vlan, (f[12] = 0x81, f[13] = 0), false);
	DROPS(drop_short, n = 13, false);
	DROPS(drop_short, n = 30, false);
	DROPS(drop_ip_header, f[14] = 0x65, false);
	DROPS(drop_ip_header, f[14] = 0x44, false);
	DROPS(drop_ip_header, f[17] = 0xff, false);
	DROPS(drop_ip_header, f[17] = 10, false);
	DROPS(drop_ip_csum, f[24] ^= 1, false);
	DROPS(drop_l4_csum, f[60] ^= 1, false);
	DROPS(drop_l4_csum, f[50] ^= 1, false);
	DROPS(drop_ip_fragment, f[20] = 0x20, true);
	DROPS(drop_ip_fragment, f[21] = 1, true);
	DROPS(drop_ip_protocol, f[23] = 17, true);
	DROPS(drop_ip_source, f[26] = 0, true);
	DROPS(drop_ip_source, f[26] = 127, true);
	DROPS(drop_ip_source, f[26] = 224, true);
	DROPS(drop_ip_source, memcpy(f + 26, our_ip, 4), true);
	DROPS(drop_ip_source, f[29] = 255, true);
	DROPS(drop_l4_short, f[46] = 0x40, true);
	DROPS(drop_l4_short, f[46] = 0xf0, true);
	DROPS(drop_l4_short, f[17] = 39, true);
	return drops;
}

static void each_fault_has_its_counter(void **state)
{
	uint8_t f[2048];
	struct rp_net_packet p;
	struct bench b;
	uint64_t drops, counted = 0;

	bench_start(&b);
	drops = drop_each(&b);
	/* The same of a sender that is known. */
	assert_true(bench_rx(&b, f, frame_tcp(f, 100), 0, &p));
	rte_pktmbuf_free(p.m);
	drops += drop_each(&b);
#define X(name, text)                    \
	if (!strncmp(#name, "drop_", 5)) \
		counted += b.counters.name;
#include <net/net_counters.def>
#undef X
	assert_int_equal(counted, drops); /* each in exactly one */
	bench_end(&b);
}

static void the_device_is_believed(void **state)
{
	static const struct {
		uint64_t flags;
		bool trust, wrong, taken;
	} cases[] = {
		{RTE_MBUF_F_RX_L4_CKSUM_GOOD, true, true, true},
		{RTE_MBUF_F_RX_L4_CKSUM_NONE, true, true, true},
		{RTE_MBUF_F_RX_L4_CKSUM_UNKNOWN, true, true, false},
		{RTE_MBUF_F_RX_L4_CKSUM_BAD, true, false, false},
		{RTE_MBUF_F_RX_L4_CKSUM_GOOD, false, true, false},
		{RTE_MBUF_F_RX_L4_CKSUM_BAD, false, false, false},
		{RTE_MBUF_F_RX_L4_CKSUM_UNKNOWN, false, false, true},
		{RTE_MBUF_F_RX_IP_CKSUM_BAD, true, false, false},
	};
	uint8_t f[2048];
	struct rp_net_packet p;
	struct bench b;

	bench_start(&b);
	for (unsigned i = 0; i < RP_ARRAY_SIZE(cases); i++) {
		uint32_t n = frame_tcp(f, 10);
		struct rte_mbuf *m;

		if (cases[i].wrong)
			f[60] ^= 1;
		b.config.iface.rx_csum = cases[i].trust;
		bench_restart(&b);
		m = rp_mbuf_from(b.pool, f, n);
		m->ol_flags = cases[i].flags;
		assert_int_equal(rp_net_rx(b.net, &m, 1, &p, b.now_ns), cases[i].taken);
		if (cases[i].taken)
			rte_pktmbuf_free(p.m);
	}
	bench_end(&b);
}

static void output_with_and_without_a_device(void **state)
{
	union rp_ip peer = rp_ip_from4(peer_ip);
	struct rp_net_packet p;
	struct bench b;

	bench_start(&b);
	for (unsigned hw = 0; hw < 4; hw++) {
		uint8_t f[2048];
		struct rp_neigh *neigh;
		struct rp_list user;
		struct rte_mbuf *m;
		uint16_t sum;

		b.config.iface.tx_csum_ip = hw & 1;
		b.config.iface.tx_csum_tcp = hw & 2;
		bench_restart(&b);
		assert_int_equal(rp_net_needs_sum(b.net), !(hw & 2));
		rp_net_neigh_learn(b.net, &peer, peer_mac, true, b.now_ns);
		rp_list_init(&user);
		neigh = rp_neigh_ref(b.net, &peer, &user, b.now_ns);
		m = bench_packet(&b, 777, &sum);
		b.ecn = (uint8_t)hw;
		bench_output(&b, neigh, m, &peer, sum);
		assert_int_equal(rp_net_tx(b.net, &m, 1), 1);
		assert_int_equal(!!(m->ol_flags & RTE_MBUF_F_TX_IP_CKSUM), hw & 1);
		assert_int_equal((m->ol_flags & RTE_MBUF_F_TX_L4_MASK) == RTE_MBUF_F_TX_TCP_CKSUM,
			!!(hw & 2));
		if (hw)
			assert_true(m->l2_len == 14 && m->l3_len == 20 &&
				    m->ol_flags & RTE_MBUF_F_TX_IPV4);
		if (hw & 2)
			assert_int_equal(m->l4_len, 20);
		rp_mbuf_copy_out(m, 0, f, sizeof(f));
		/* What a device would do, from what it was given. */
		if (hw & 1)
			memcpy(f + 24, &(uint16_t){(uint16_t)~rp_csum_bytes(f + 14, 20)}, 2);
		if (hw & 2)
			memcpy(f + 50, &(uint16_t){(uint16_t)~rp_csum_bytes(f + 34, 797)}, 2);
		assert_memory_equal(f, peer_mac, 6);
		assert_memory_equal(f + 6, our_mac, 6);
		rte_pktmbuf_free(m);
		rp_neigh_unref(b.net, neigh, &user);
		/* It is taken by one like us, the addresses exchanged. */
		memcpy(f, our_mac, 6);
		memcpy(f + 26, peer_ip, 4);
		memcpy(f + 30, our_ip, 4);
		assert_true(bench_rx(&b, f, 14 + 20 + 797, 0, &p));
		assert_int_equal(p.ecn, hw); /* each of the four codepoints, both ways */
		rte_pktmbuf_free(p.m);
	}
	bench_end(&b);
}

static void segments_shared_with_the_sender(void **state)
{
	uint8_t f[2048];
	struct rp_net_packet p;
	struct rte_mbuf *m;
	struct bench b;

	bench_start(&b);
	m = rp_mbuf_from(b.pool, f, frame_tcp(f, 100));
	rte_mbuf_refcnt_update(m, 1);
	assert_int_equal(rp_net_rx(b.net, &(struct rte_mbuf *){m}, 1, &p, b.now_ns), 1);
	assert_ptr_not_equal(p.m, m);
	assert_int_equal(m->pkt_len, 154); /* untouched */
	assert_int_equal(p.m->pkt_len, 140);
	assert_int_equal(b.counters.rx_cloned, 1);
	rte_pktmbuf_free(p.m);
	rte_pktmbuf_free(m);
	bench_end(&b);
}

static void bad_configurations(void **state)
{
	struct bench b;
	struct rp_net_config c;

	bench_start(&b);
	c = b.config;
	c.iface.mtu = 500;
	assert_null(rp_net_create(&c, 0));
	c = b.config;
	c.iface.mtu = 9001;
	assert_null(rp_net_create(&c, 0));
	c = b.config;
	c.iface.addresses[0].prefix_length = 33;
	assert_null(rp_net_create(&c, 0));
	c = b.config;
	c.tx_queue_packets = 1000;
	assert_null(rp_net_create(&c, 0));
	c = b.config;
	c.header_pool = NULL;
	assert_null(rp_net_create(&c, 0));
	c = b.config;
	memset(&c.iface.addresses[0].ip, 0, 16);
	assert_null(rp_net_create(&c, 0));
	bench_end(&b);
	rp_net_destroy(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(whole_segments_are_handed_up),
		cmocka_unit_test(options_of_the_header),
		cmocka_unit_test(each_fault_has_its_counter),
		cmocka_unit_test(the_device_is_believed),
		cmocka_unit_test(output_with_and_without_a_device),
		cmocka_unit_test(segments_shared_with_the_sender),
		cmocka_unit_test(bad_configurations),
	};

	if (bench_eal())
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
