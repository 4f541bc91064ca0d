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

/* Turns a frame into one of a VLAN. */
static uint32_t tag(uint8_t *frame, uint32_t n, uint16_t vlan)
{
	memmove(frame + 16, frame + 12, n - 12);
	frame[12] = 0x81;
	frame[13] = 0;
	frame[14] = (uint8_t)(0x60 | vlan >> 8); /* with a priority */
	frame[15] = (uint8_t)vlan;
	return n + 4;
}

static void vlan_in(void **state)
{
	struct bench b;

	bench_start6(&b);
	b.config.iface.vlan = 100;
	bench_restart(&b);
	while (bench_tx(&b, out))
		;
	for (uint32_t piece = 0; piece < 40; piece += 3) {
		assert_true(bench_rx(&b, f, tag(f, frame_tcp(f, 9), 100), piece, &p));
		assert_int_equal(p.l4_offset, 20);
		assert_int_equal(p.m->pkt_len, 49);
		rte_pktmbuf_free(p.m);
	}
	assert_false(bench_rx(&b, f, tag(f, frame_tcp(f, 9), 101), 0, &p));
	assert_false(bench_rx(&b, f, frame_tcp(f, 9), 0, &p));
	assert_false(bench_rx(&b, f, tag(f, frame_tcp(f, 9), 0), 0, &p));
	assert_false(
		bench_rx(&b, f, tag(f, frame_tcp(f, 9), 100), 0, &p) && bench_rx(&b, f, 16, 0, &p));
	if (p.m)
		rte_pktmbuf_free(p.m);
	assert_int_equal(b.counters.drop_vlan, 4);
	bench_end(&b);
}

static void a_tag_that_the_device_took_off(void **state)
{
	struct bench b;

	bench_start(&b);
	for (unsigned tagged = 0; tagged < 2; tagged++) {
		b.config.iface.vlan = tagged ? 100 : 0;
		bench_restart(&b);
		for (unsigned vlan = 0; vlan < 2; vlan++) {
			struct rte_mbuf *m = rp_mbuf_from(b.pool, f, frame_tcp(f, 9));
			bool taken;

			m->ol_flags |= RTE_MBUF_F_RX_VLAN | RTE_MBUF_F_RX_VLAN_STRIPPED;
			m->vlan_tci = vlan ? 0x2000 | 100 : 0;
			taken = rp_net_rx(b.net, &m, 1, &p, b.now_ns) == 1;
			assert_int_equal(taken, vlan == tagged);
			if (taken)
				rte_pktmbuf_free(p.m);
		}
		/* A tag of priority only is none. */
		if (!tagged) {
			assert_true(bench_rx(&b, f, tag(f, frame_tcp(f, 9), 0), 0, &p));
			rte_pktmbuf_free(p.m);
		}
	}
	bench_end(&b);
}

/* All that is sent has the tag: what waits for a neighbour as well. */
static void vlan_out(void **state)
{
	const union rp_ip peer4 = rp_ip_from4(peer_ip), *peers[] = {&peer4, &peer_ip6};
	struct bench b;

	bench_start6(&b);
	b.config.iface.vlan = 0x123;
	b.config.iface.tx_csum_tcp = true;
	bench_restart(&b);
	for (unsigned i = 0; i < 2; i++) {
		struct rp_list user;
		struct rp_neigh *n;
		struct rte_mbuf *m;
		uint16_t sum;
		unsigned frames = 0;

		rp_list_init(&user);
		n = rp_neigh_ref(b.net, peers[i], &user, b.now_ns);
		bench_output(&b, n, bench_packet(&b, 50, &sum), peers[i], 0);
		rp_net_neigh_learn(b.net, peers[i], peer_mac, true, b.now_ns);
		bench_output(&b, n, bench_packet(&b, 50, &sum), peers[i], 0);
		while (rp_net_tx(b.net, &m, 1)) {
			const uint8_t *q = rte_pktmbuf_mtod(m, const uint8_t *);
			uint16_t type = (uint16_t)(q[16] << 8 | q[17]);

			assert_memory_equal(q + 6, our_mac, 6);
			assert_memory_equal(q + 12, "\x81\x00\x01\x23", 4);
			assert_true(type == 0x0800 || type == 0x86dd || type == 0x0806);
			if (m->l4_len) {
				assert_int_equal(m->l2_len, 18);
				assert_memory_equal(q, peer_mac, 6);
				assert_int_equal(m->pkt_len, (i ? 54 : 34) + 4 + 20 + 50);
				frames++;
			}
			rte_pktmbuf_free(m);
		}
		assert_int_equal(frames, 2);
		rp_neigh_unref(b.net, n, &user);
	}
	bench_end(&b);
}

static union rp_ip source(struct bench *b, const char *text)
{
	union rp_ip ip = ip6_of(text);
	int local = rp_net_source(b->net, &ip);

	return local < 0 ? (union rp_ip){0} : *rp_net_local(b->net, (uint32_t)local);
}

static void assert_ip(union rp_ip ip, const char *text)
{
	union rp_ip wanted = ip6_of(text);

	assert_memory_equal(&ip, &wanted, 16);
}

static int hop_of(struct bench *b, const char *text, union rp_ip *hop)
{
	union rp_ip ip = ip6_of(text);

	return net_next_hop(b->net, &ip, hop);
}

static void several_addresses(void **state)
{
	static const char *const addresses[][2] = {{"fd00::1", "64"}, {"::ffff:10.0.0.1", "24"},
		{"2001:db8:1::1", "48"}, {"::ffff:10.1.0.1", "16"}, {"::ffff:192.0.2.1", "31"}};
	union rp_ip hop;
	struct bench b;

	bench_start(&b);
	for (unsigned i = 0; i < RP_ARRAY_SIZE(addresses); i++)
		b.config.iface.addresses[i] = (struct rp_net_address){
			ip6_of(addresses[i][0]), (uint8_t)atoi(addresses[i][1])};
	b.config.iface.gateway4 = ip6_of("::ffff:10.1.0.254");
	b.config.iface.gateway6 = ip6_of("fe80::99");
	bench_restart(&b);
	while (bench_tx(&b, out))
		;
	/* Of the peer's own prefix, else of the gateway's; IPv6: of the longest common part. */
	assert_ip(source(&b, "::ffff:10.0.0.9"), "::ffff:10.0.0.1");
	assert_ip(source(&b, "::ffff:10.1.7.9"), "::ffff:10.1.0.1");
	assert_ip(source(&b, "::ffff:8.8.8.8"), "::ffff:10.1.0.1");
	assert_ip(source(&b, "fd00::9"), "fd00::1");
	assert_ip(source(&b, "2001:db8:1:2::9"), "2001:db8:1::1");
	assert_ip(source(&b, "2001:db8:2::9"), "2001:db8:1::1");
	assert_ip(source(&b, "fe80::9"), "fe80::ff:fe00:1"); /* made from 02:00:00:00:00:01 */
	/* On the link or by the gateway. */
	assert_int_equal(hop_of(&b, "::ffff:10.0.0.9", &hop), 0);
	assert_ip(hop, "::ffff:10.0.0.9");
	assert_int_equal(hop_of(&b, "::ffff:192.0.2.0", &hop), 0); /* RFC 3021 */
	assert_ip(hop, "::ffff:192.0.2.0");
	assert_int_equal(hop_of(&b, "::ffff:10.2.0.9", &hop), 0);
	assert_ip(hop, "::ffff:10.1.0.254");
	assert_int_equal(hop_of(&b, "fd00::9", &hop), 0);
	assert_ip(hop, "fd00::9");
	assert_int_equal(hop_of(&b, "fd01::9", &hop), 0);
	assert_ip(hop, "fe80::99");
	assert_int_equal(hop_of(&b, "fe80::1234", &hop), 0);
	assert_ip(hop, "fe80::1234");
	assert_int_equal(hop_of(&b, "ff02::1", &hop), -EADDRNOTAVAIL);
	assert_int_equal(hop_of(&b, "fd00::1", &hop), -EADDRNOTAVAIL);
	assert_int_equal(hop_of(&b, "::ffff:10.1.255.255", &hop), -EADDRNOTAVAIL);
	/* Each is answered for, and takes TCP. */
	frame_tcp(f, 0);
	memcpy(f + 30, (const uint8_t[]){10, 1, 0, 1}, 4);
	frame_seal(f);
	assert_true(bench_rx(&b, f, 54, 0, &p));
	assert_int_equal(p.local, 1);
	rte_pktmbuf_free(p.m);
	bench_rx(&b, f,
		frame_arp(f, 1, peer_mac, (const uint8_t[]){10, 1, 0, 9},
			(const uint8_t[]){10, 1, 0, 1}),
		0, &p);
	assert_int_equal(bench_tx(&b, out), 42);
	assert_memory_equal(out + 28, ((const uint8_t[]){10, 1, 0, 1}), 4);
	bench_end(&b);
}

static void groups(void **state)
{
	union rp_ip ip;
	struct bench b;

	bench_start6(&b);
	ip = ip6_of("ff02::1");
	assert_true(net_in_group(b.net, &ip));
	ip = ip6_of("ff02::1:ff00:1");
	assert_true(net_in_group(b.net, &ip));
	ip = ip6_of("ff02::1:ff00:2");
	assert_false(net_in_group(b.net, &ip));
	ip = ip6_of("ff02::2"); /* all routers */
	assert_false(net_in_group(b.net, &ip));
	bench_end(&b);
}

static void bad_addresses(void **state)
{
	struct rp_net_neighbour wrong[] = {
		{ip6_of("fd01::2"), {2}}, {ip6_of("fd00::2"), {3}}, {ip6_of("fd00::1"), {2}}};
	struct bench b;

#define REFUSED(edit)                              \
	do {                                       \
		struct rp_net_config c = b.config; \
                                                   \
		edit;                              \
		assert_null(rp_net_create(&c, 0)); \
		assert_int_equal(errno, EINVAL);   \
	} while (0)
	bench_start6(&b);
	REFUSED(c.iface.addresses[1].ip = ip6_of("ff02::9"));
	REFUSED(c.iface.addresses[1].ip = ip6_of("::9"));
	REFUSED(c.iface.addresses[1].prefix_length = 129);
	REFUSED(c.iface.addresses[0].ip = ip6_of("::ffff:127.0.0.1"));
	REFUSED(c.iface.addresses[2] = c.iface.addresses[1]);
	REFUSED(c.iface.gateway6 = ip6_of("fd01::1"));
	REFUSED(c.iface.gateway6 = our_ip6);
	REFUSED(c.iface.gateway4 = ip6_of("fd00::9"));
	REFUSED(c.iface.mtu = 1279);
	REFUSED(c.iface.vlan = 4095);
	for (unsigned i = 0; i < RP_ARRAY_SIZE(wrong); i++)
		REFUSED((c.static_neighbours = &wrong[i], c.static_neighbour_count = 1));
	bench_end(&b);
}

static void configured_neighbours(void **state)
{
	static const uint8_t other[6] = {2, 0, 0, 0, 0, 9};
	struct rp_net_neighbour two[2] = {{.ip = peer_ip6}, {.ip = rp_ip_from4(peer_ip)}};
	struct rp_list user;
	struct rp_neigh *n;
	struct bench b;
	uint16_t sum;

	bench_start6(&b);
	memcpy(two[0].mac, peer_mac, 6);
	memcpy(two[1].mac, peer_mac, 6);
	b.config.static_neighbours = two;
	b.config.static_neighbour_count = 2;
	bench_restart(&b);
	while (bench_tx(&b, out))
		;
	for (unsigned i = 0; i < 2; i++) {
		rp_list_init(&user);
		n = rp_neigh_ref(b.net, &two[i].ip, &user, b.now_ns);
		/* Whatever is said of it. */
		bench_rx(&b, f, frame_nd(f, 136, 0x60, &peer_ip6, &our_ip6, &peer_ip6, other), 0,
			&p);
		bench_rx(&b, f, frame_arp(f, 2, other, peer_ip, our_ip), 0, &p);
		rp_net_neigh_learn(b.net, &two[i].ip, other, true, b.now_ns);
		rp_neigh_suspect(b.net, n, b.now_ns);
		b.now_ns += 1000 * RP_NS_PER_S;
		rp_net_poll(b.net, b.now_ns);
		while (bench_tx(&b, out))
			;
		bench_output(&b, n, bench_packet(&b, 0, &sum), &two[i].ip, 0);
		assert_int_equal(bench_tx(&b, out), i ? 54 : 74);
		assert_memory_equal(out, peer_mac, 6);
		assert_int_equal(bench_tx(&b, out), 0);
		rp_neigh_unref(b.net, n, &user);
	}
	assert_int_equal(b.counters.neigh_moved, 0);
	bench_end(&b);
}

/* Two lcores' stacks of one port: the device gives ARP and neighbour discovery to one of them. */

static struct rp_net *shared[2];
static unsigned told;

static void tell_other(void *ctx, const union rp_ip *ip, const uint8_t mac[6], bool confirmed)
{
	struct bench *b = ctx;

	told++;
	rp_net_neigh_learn(shared[shared[0] == b->net], ip, mac, confirmed, b->now_ns);
}

static void an_answer_reaches_who_asked(void **state)
{
	struct bench b[2];
	struct rp_list user;
	struct rp_neigh *n;
	uint16_t sum;

	for (unsigned i = 0; i < 2; i++) {
		bench_start6(&b[i]);
		b[i].now_ns = b[0].now_ns;
		rp_net_destroy(b[i].net);
		b[i].config.on_neigh = tell_other;
		b[i].net = shared[i] = rp_net_create(&b[i].config, b[i].now_ns);
		while (bench_tx(&b[i], out))
			;
	}
	told = 0;
	rp_list_init(&user);
	/* The second asks, the first gets the answer: the first packet is not lost. */
	n = rp_neigh_ref(b[1].net, &peer_ip6, &user, b[1].now_ns);
	bench_output(&b[1], n, bench_packet(&b[1], 0, &sum), &peer_ip6, 0);
	assert_int_equal(bench_tx(&b[1], out), 86);
	assert_int_equal(bench_tx(&b[1], out), 0);
	bench_rx(&b[0], f, frame_nd(f, 136, 0x60, &peer_ip6, &our_ip6, &peer_ip6, peer_mac), 0, &p);
	assert_int_equal(bench_tx(&b[1], out), 74);
	assert_memory_equal(out, peer_mac, 6);
	assert_int_equal(told, 1); /* and not back again */
	assert_int_equal(n->state, NEIGH_REACHABLE);
	/* It is asked again later, and the answer confirms it again. */
	b[0].now_ns = b[1].now_ns += 60 * RP_NS_PER_S;
	rp_net_poll(b[1].net, b[1].now_ns);
	bench_output(&b[1], n, bench_packet(&b[1], 0, &sum), &peer_ip6, 0);
	assert_int_equal(n->state, NEIGH_PROBE);
	bench_rx(&b[0], f, frame_nd(f, 136, 0x60, &peer_ip6, &our_ip6, &peer_ip6, peer_mac), 0, &p);
	assert_int_equal(n->state, NEIGH_REACHABLE);
	/* A neighbour that moves: both follow at once. */
	bench_rx(&b[0], f, frame_arp(f, 1, (const uint8_t[]){2, 0, 0, 0, 0, 9}, peer_ip, our_ip), 0,
		&p);
	frame_nd(f, 136, 0x20, &peer_ip6, &our_ip6, &peer_ip6, (const uint8_t[]){2, 0, 0, 0, 0, 9});
	bench_rx(&b[0], f, 86, 0, &p);
	while (bench_tx(&b[1], out))
		;
	bench_output(&b[1], n, bench_packet(&b[1], 0, &sum), &peer_ip6, 0);
	assert_int_equal(bench_tx(&b[1], out), 74);
	assert_int_equal(out[5], 9);
	/* Answers that nobody asked for do not flood the rings. */
	told = 0;
	for (unsigned i = 0; i < 1000; i++) {
		union rp_ip ip = peer_ip6;

		ip.b[14] = (uint8_t)(1 + i / 200);
		ip.b[15] = (uint8_t)(1 + i % 200);
		bench_rx(&b[0], f, frame_nd(f, 136, 0x60, &ip, &our_ip6, &ip, peer_mac), 0, &p);
	}
	assert_in_range(told, 1, 66);
	assert_int_equal(told + b[0].counters.neigh_untold, 1000);
	rp_neigh_unref(b[1].net, n, &user);
	bench_end(&b[0]);
	bench_end(&b[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(vlan_in),
		cmocka_unit_test(a_tag_that_the_device_took_off),
		cmocka_unit_test(vlan_out),
		cmocka_unit_test(several_addresses),
		cmocka_unit_test(groups),
		cmocka_unit_test(bad_addresses),
		cmocka_unit_test(configured_neighbours),
		cmocka_unit_test(an_answer_reaches_who_asked),
	};

	return bench_eal() < 0 ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
}
