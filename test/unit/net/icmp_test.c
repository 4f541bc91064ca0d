/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>

#include "frames.h"

static void learn_peer(struct bench *b)
{
	union rp_ip peer = rp_ip_from4(peer_ip);

	rp_net_neigh_learn(b->net, &peer, peer_mac, true, b->now_ns);
}

static void echoes_of_any_size(void **state)
{
	static const uint32_t sizes[] = {0, 1, 2, 56, 57, 1472, 4000, 8972};
	static uint8_t f[10000], out[10000], icmp[9000];
	struct rp_net_packet p;
	struct bench b;

	bench_start(&b);
	learn_peer(&b);
	for (unsigned i = 0; i < RP_ARRAY_SIZE(sizes); i++)
		for (uint32_t piece = 1024; piece >= 32; piece -= 331) {
			uint32_t n = 8 + sizes[i], length;

			memset(icmp, 0, 8);
			icmp[0] = 8;
			icmp[5] = 0x12;
			icmp[7] = (uint8_t)i;
			for (uint32_t k = 8; k < n; k++)
				icmp[k] = (uint8_t)(k * 11 + 3);
			length = frame_ip(f, 1, icmp, n);
			assert_false(bench_rx(&b, f, length, piece, &p));
			assert_int_equal(bench_tx(&b, out), length);
			assert_memory_equal(out, peer_mac, 6);
			assert_memory_equal(out + 26, our_ip, 4);
			assert_memory_equal(out + 30, peer_ip, 4);
			assert_int_equal(out[34], 0);
			assert_memory_equal(out + 38, icmp + 4, n - 4);
			assert_int_equal(rp_csum_bytes(out + 34, n), 0xffff);
			assert_int_equal(rp_csum_bytes(out + 14, 20), 0xffff);
			b.now_ns += RP_NS_PER_MS;
		}
	bench_end(&b);
}

static void echoes_are_limited(void **state)
{
	uint8_t f[2048], out[2048], icmp[16] = {8};
	struct rp_net_packet p;
	struct bench b;
	unsigned n = 0;

	bench_start(&b);
	b.config.icmp_echo_per_s = 100;
	bench_restart(&b);
	learn_peer(&b);
	for (unsigned i = 0; i < 1000; i++) {
		bench_rx(&b, f, frame_ip(f, 1, icmp, sizeof(icmp)), 0, &p);
		while (bench_tx(&b, out))
			n++;
		b.now_ns += RP_NS_PER_MS;
	}
	assert_in_range(n, 100, 170); /* a second of them, and a burst */
	assert_int_equal(b.counters.drop_icmp_rate, 1000 - n);
	bench_end(&b);
}

static void what_is_not_for_us(void **state)
{
	uint8_t f[2048], icmp[64] = {0};
	struct rp_net_packet p;
	struct bench b;

	bench_start(&b);
	learn_peer(&b);
	icmp[0] = 13;
	assert_false(bench_rx(&b, f, frame_ip(f, 1, icmp, 20), 0, &p));
	assert_int_equal(b.counters.drop_icmp_type, 1);
	icmp[0] = 3;
	assert_false(bench_rx(&b, f, frame_ip(f, 1, icmp, 20), 0, &p)); /* nothing quoted */
	assert_int_equal(b.counters.drop_icmp_embedded, 1);
	assert_false(bench_rx(&b, f, frame_ip(f, 1, icmp, 7), 0, &p));
	assert_int_equal(b.counters.drop_l4_short, 1);
	frame_ip(f, 1, icmp, 20);
	f[36] ^= 1;
	assert_false(bench_rx(&b, f, 54, 0, &p));
	assert_int_equal(b.counters.drop_l4_csum, 1);
	bench_end(&b);
}

static void errors_name_their_connection(void **state)
{
	static const struct {
		uint8_t type, code;
		enum rp_net_icmp_error error;
	} cases[] = {{3, 0, RP_NET_ICMP_SOFT}, {3, 1, RP_NET_ICMP_SOFT}, {3, 2, RP_NET_ICMP_HARD},
		{3, 3, RP_NET_ICMP_HARD}, {3, 13, RP_NET_ICMP_HARD}, {3, 4, RP_NET_ICMP_TOO_BIG},
		{11, 0, RP_NET_ICMP_SOFT}};
	uint8_t f[2048], icmp[36] = {0};
	struct rp_net_packet p;
	struct bench b;

	bench_start(&b);
	icmp[6] = 0x05;
	icmp[7] = 0x78;
	icmp[8] = 0x45;
	icmp[17] = 6;
	memcpy(icmp + 20, our_ip, 4);
	memcpy(icmp + 24, peer_ip, 4);
	memcpy(icmp + 28, (const uint8_t[]){0x12, 0x34, 0, 80, 1, 2, 3, 4}, 8);
	for (unsigned i = 0; i < RP_ARRAY_SIZE(cases); i++)
		for (uint32_t piece = 0; piece < 60; piece += 19) {
			icmp[0] = cases[i].type;
			icmp[1] = cases[i].code;
			assert_true(bench_rx(&b, f, frame_ip(f, 1, icmp, 36), piece, &p));
			assert_int_equal(p.kind, RP_NET_ICMP_ERROR);
			assert_int_equal(p.error, cases[i].error);
			assert_int_equal(p.local_port, 0x1234);
			assert_int_equal(p.remote_port, 80);
			assert_int_equal(p.seq, 0x01020304);
			assert_int_equal(p.mtu, 1400);
			assert_memory_equal(&p.remote.b[12], peer_ip, 4);
		}
	icmp[23] = 9; /* about a packet that was not ours */
	assert_false(bench_rx(&b, f, frame_ip(f, 1, icmp, 36), 0, &p));
	assert_int_equal(b.counters.drop_icmp_embedded, 1);
	bench_end(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(echoes_of_any_size),
		cmocka_unit_test(echoes_are_limited),
		cmocka_unit_test(what_is_not_for_us),
		cmocka_unit_test(errors_name_their_connection),
	};

	if (bench_eal())
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
