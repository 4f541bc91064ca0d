/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>

#include "frames.h"

static uint8_t f[2048], out[10000];
static struct rp_net_packet packet;

/* Lets time pass, polling where it is due; counts the ARP requests sent, broadcast and unicast. */
static unsigned wait(struct bench *b, uint64_t ns, unsigned *unicast)
{
	uint64_t end_ns = b->now_ns + ns;
	unsigned broadcast = 0;

	for (;;) {
		uint32_t n;

		while ((n = bench_tx(b, out))) {
			if (out[13] != 6 || out[21] != 1 || !memcmp(out + 28, out + 38, 4))
				continue;
			if (out[0] == 0xff)
				broadcast++;
			else
				(*unicast)++;
		}
		if (rp_net_next_deadline(b->net) > end_ns)
			break;
		b->now_ns = RP_MAX(b->now_ns, rp_net_next_deadline(b->net));
		rp_net_poll(b->net, b->now_ns);
	}
	b->now_ns = end_ns;
	return broadcast;
}

static struct rp_neigh *ref(struct bench *b, uint8_t last, struct rp_list *user)
{
	union rp_ip ip = rp_ip_from4((const uint8_t[]){10, 0, 0, last});

	rp_list_init(user);
	return rp_neigh_ref(b->net, &ip, user, b->now_ns);
}

static void put(struct bench *b, struct rp_neigh *n)
{
	union rp_ip ip = n->ip;
	uint16_t sum;
	struct rte_mbuf *m = bench_packet(b, 100, &sum);

	bench_output(b, n, m, &ip, sum);
}

static void reply(struct bench *b, const uint8_t *mac)
{
	bench_rx(b, f, frame_arp(f, 2, mac, peer_ip, our_ip), 0, &packet);
}

static void announces_itself_twice(void **state)
{
	struct bench b;
	struct rte_mbuf *m;

	bench_start(&b);
	rp_net_destroy(b.net);
	b.net = rp_net_create(&b.config, b.now_ns);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(bench_tx(&b, out), 42);
		assert_int_equal(out[0], 0xff);
		assert_memory_equal(out + 28, our_ip, 4);
		assert_memory_equal(out + 38, our_ip, 4);
		assert_int_equal(bench_tx(&b, out), 0);
		if (i == 0)
			assert_int_equal(rp_net_next_deadline(b.net), b.now_ns + 2 * RP_NS_PER_S);
		b.now_ns += 2 * RP_NS_PER_S;
		rp_net_poll(b.net, b.now_ns);
	}
	assert_int_equal(rp_net_tx(b.net, &m, 1), 0);
	assert_int_equal(rp_net_next_deadline(b.net), RP_NEVER);
	bench_end(&b);
}

static void answers_for_itself_only(void **state)
{
	static const uint8_t zero[4], other[4] = {10, 0, 0, 3};
	struct bench b;

	bench_start(&b);
	bench_rx(&b, f, frame_arp(f, 1, peer_mac, peer_ip, our_ip), 20, &packet);
	assert_int_equal(bench_tx(&b, out), 42);
	assert_memory_equal(out, peer_mac, 6);
	assert_int_equal(out[21], 2);
	assert_memory_equal(out + 22, our_mac, 6);
	assert_memory_equal(out + 28, our_ip, 4);
	assert_memory_equal(out + 32, peer_mac, 6);
	assert_memory_equal(out + 38, peer_ip, 4);
	bench_rx(&b, f, frame_arp(f, 1, peer_mac, peer_ip, other), 0, &packet);
	assert_int_equal(bench_tx(&b, out), 0);
	bench_rx(&b, f, frame_arp(f, 1, peer_mac, zero, our_ip), 0, &packet); /* RFC 5227 probe */
	assert_int_equal(bench_tx(&b, out), 42);
	bench_rx(&b, f, frame_arp(f, 1, peer_mac, our_ip, our_ip), 0, &packet);
	assert_int_equal(b.counters.address_conflicts, 1);
	frame_arp(f, 1, peer_mac, peer_ip, our_ip);
	f[18] = 7;
	bench_rx(&b, f, 42, 0, &packet);
	frame_arp(f, 3, peer_mac, peer_ip, our_ip);
	bench_rx(&b, f, 42, 0, &packet);
	bench_rx(&b, f, 41, 0, &packet);
	assert_int_equal(b.counters.drop_arp_malformed, 2);
	assert_int_equal(b.counters.drop_short, 1);
	bench_end(&b);
}

static void packets_wait_for_the_answer(void **state)
{
	struct rp_list user;
	struct rp_neigh *n;
	struct bench b;
	unsigned unicast = 0;

	bench_start(&b);
	b.config.neighbour_pending_max = 4;
	bench_restart(&b);
	n = ref(&b, 2, &user);
	assert_non_null(n);
	for (unsigned i = 0; i < 6; i++)
		put(&b, n);
	assert_int_equal(b.counters.drop_neigh_full, 2);
	assert_int_equal(wait(&b, 100 * RP_NS_PER_MS, &unicast), 1);
	reply(&b, peer_mac);
	for (unsigned i = 0; i < 4; i++) {
		assert_int_equal(bench_tx(&b, out), 14 + 20 + 20 + 100);
		assert_memory_equal(out, peer_mac, 6);
	}
	assert_int_equal(bench_tx(&b, out), 0);
	assert_int_equal(b.learned, 1);
	rp_neigh_unref(b.net, n, &user);
	bench_end(&b);
}

static void failure_is_told(void **state)
{
	struct rp_list user[2];
	struct rp_neigh *n;
	struct bench b;
	unsigned unicast = 0;

	bench_start(&b);
	n = ref(&b, 2, &user[0]);
	assert_ptr_equal(ref(&b, 2, &user[1]), n);
	put(&b, n);
	/* 250 ms, then twice as long each time. */
	assert_int_equal(wait(&b, 249 * RP_NS_PER_MS, &unicast), 1);
	assert_int_equal(wait(&b, 2 * RP_NS_PER_MS, &unicast), 1);
	assert_int_equal(wait(&b, 500 * RP_NS_PER_MS, &unicast), 1);
	assert_int_equal(wait(&b, 1000 * RP_NS_PER_MS, &unicast), 1);
	assert_int_equal(b.failed, 0);
	assert_int_equal(wait(&b, 2000 * RP_NS_PER_MS, &unicast), 0);
	assert_int_equal(b.failed, 2);
	assert_int_equal(b.counters.neigh_failed, 1);
	assert_int_equal(b.counters.drop_neigh_failed, 1);
	put(&b, n); /* the next use starts over */
	assert_int_equal(wait(&b, 0, &unicast), 1);
	reply(&b, peer_mac);
	assert_int_equal(bench_tx(&b, out), 154);
	rp_neigh_unref(b.net, n, &user[0]);
	rp_neigh_unref(b.net, n, &user[1]);
	bench_end(&b);
}

static void used_entries_are_asked_again(void **state)
{
	struct rp_list user;
	struct rp_neigh *n;
	struct bench b;
	unsigned unicast = 0;

	bench_start(&b);
	n = ref(&b, 2, &user);
	reply(&b, peer_mac);
	wait(&b, 100 * RP_NS_PER_S, &unicast); /* unused: nobody asks */
	assert_int_equal(unicast, 0);
	put(&b, n);
	assert_int_equal(bench_tx(&b, out), 154); /* it goes at once, to where it was */
	wait(&b, 300 * RP_NS_PER_MS, &unicast);
	assert_int_equal(unicast, 1);
	reply(&b, peer_mac);
	wait(&b, 10 * RP_NS_PER_S, &unicast);
	assert_int_equal(unicast, 1);
	/* What TCP sees counts as well. */
	for (unsigned i = 0; i < 100; i++) {
		rp_neigh_confirm(b.net, n, b.now_ns);
		put(&b, n);
		wait(&b, 2 * RP_NS_PER_S, &unicast);
	}
	assert_int_equal(unicast, 1);
	/* A black hole: by unicast, then by broadcast, then it has failed. */
	rp_neigh_suspect(b.net, n, b.now_ns);
	assert_int_equal(wait(&b, 20 * RP_NS_PER_S, &unicast), 4);
	assert_int_equal(unicast, 5);
	assert_int_equal(b.failed, 1);
	rp_neigh_unref(b.net, n, &user);
	bench_end(&b);
}

static void traffic_follows_the_address(void **state)
{
	static const uint8_t moved[6] = {2, 0, 0, 0, 0, 0x33};
	union rp_ip ip = rp_ip_from4(peer_ip);
	struct rp_list user;
	struct rp_neigh *n;
	struct bench b;

	bench_start(&b);
	n = ref(&b, 2, &user);
	bench_tx(&b, out);
	reply(&b, peer_mac);
	/* Gratuitous. */
	bench_rx(&b, f, frame_arp(f, 1, moved, peer_ip, peer_ip), 0, &packet);
	put(&b, n);
	assert_int_equal(bench_tx(&b, out), 154);
	assert_memory_equal(out, moved, 6);
	assert_int_equal(b.counters.neigh_moved, 1);
	assert_int_equal(b.learned, 2);
	/* Another lcore's word is not told on. */
	rp_net_neigh_learn(b.net, &ip, peer_mac, false, b.now_ns);
	rp_net_neigh_learn(b.net, &ip, peer_mac, false, b.now_ns);
	assert_int_equal(b.learned, 2);
	put(&b, n);
	assert_int_equal(bench_tx(&b, out), 154);
	assert_memory_equal(out, peer_mac, 6);
	rp_neigh_unref(b.net, n, &user);
	bench_end(&b);
}

static void routes(void **state)
{
	static const uint8_t nowhere[][4] = {{10, 0, 0, 1}, {10, 0, 0, 0}, {10, 0, 0, 255},
		{127, 0, 0, 1}, {224, 0, 0, 1}, {255, 255, 255, 255}, {0, 0, 0, 0}};
	union rp_ip far = rp_ip_from4((const uint8_t[]){192, 0, 2, 1});
	struct rp_list user;
	struct rp_neigh *n;
	struct bench b;

	bench_start(&b);
	rp_list_init(&user);
	for (unsigned i = 0; i < RP_ARRAY_SIZE(nowhere); i++) {
		union rp_ip ip = rp_ip_from4(nowhere[i]);

		assert_null(rp_neigh_ref(b.net, &ip, &user, b.now_ns));
		assert_int_equal(errno, EADDRNOTAVAIL);
	}
	n = rp_neigh_ref(b.net, &far, &user, b.now_ns);
	assert_non_null(n);
	assert_int_equal(n->ip.b[15], 254); /* by the gateway */
	rp_neigh_unref(b.net, n, &user);
	memset(&b.config.iface.gateway4, 0, 16);
	bench_restart(&b);
	assert_null(rp_neigh_ref(b.net, &far, &user, b.now_ns));
	assert_int_equal(errno, ENETUNREACH);
	bench_end(&b);
}

static void the_table_is_bounded(void **state)
{
	struct rp_list users[4], user;
	struct bench b;

	bench_start(&b);
	b.config.neighbours_max = 4;
	bench_restart(&b);
	/* Those that ask us come and go. */
	for (unsigned i = 0; i < 100; i++) {
		uint8_t mac[6] = {2, 0, 0, 0, 1, (uint8_t)i};

		bench_rx(&b, f,
			frame_arp(
				f, 1, mac, (const uint8_t[]){10, 0, 0, (uint8_t)(10 + i)}, our_ip),
			0, &packet);
		assert_int_equal(bench_tx(&b, out), 42);
		b.now_ns += 1000;
	}
	for (unsigned i = 0; i < 4; i++)
		assert_non_null(ref(&b, (uint8_t)(200 + i), &users[i]));
	assert_null(ref(&b, 2, &user));
	assert_int_equal(errno, ENOBUFS);
	while (bench_tx(&b, out))
		;
	for (unsigned i = 0; i < 4; i++) {
		struct rp_neigh *n = ref(&b, (uint8_t)(200 + i), &user);

		rp_neigh_unref(b.net, n, &user);
		rp_neigh_unref(b.net, n, &users[i]);
	}
	bench_end(&b);
}

static void a_full_queue_drops(void **state)
{
	struct rp_list user;
	struct rp_neigh *n;
	struct bench b;

	bench_start(&b);
	b.config.tx_queue_packets = 128;
	bench_restart(&b);
	n = ref(&b, 2, &user);
	bench_tx(&b, out);
	reply(&b, peer_mac);
	assert_int_equal(rp_net_tx_room(b.net, false), 128 - RP_NET_TX_RESERVE);
	for (unsigned i = 0; i < 120; i++) {
		uint16_t sum;
		union rp_ip ip = n->ip;

		bench_output(&b, n, bench_packet(&b, 0, &sum), &ip, 0);
	}
	assert_int_equal(rp_net_tx_room(b.net, false), 0);
	assert_int_equal(rp_net_tx_room(b.net, true), 8);
	for (unsigned i = 0; i < 10; i++) {
		uint16_t sum;
		union rp_ip ip = n->ip;

		bench_output(&b, n, bench_packet(&b, 0, &sum), &ip, 0);
	}
	assert_int_equal(b.counters.drop_tx_full, 2);
	rp_neigh_unref(b.net, n, &user);
	bench_end(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(announces_itself_twice),
		cmocka_unit_test(answers_for_itself_only),
		cmocka_unit_test(packets_wait_for_the_answer),
		cmocka_unit_test(failure_is_told),
		cmocka_unit_test(used_entries_are_asked_again),
		cmocka_unit_test(traffic_follows_the_address),
		cmocka_unit_test(routes),
		cmocka_unit_test(the_table_is_bounded),
		cmocka_unit_test(a_full_queue_drops),
	};

	if (bench_eal())
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
