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
static const union rp_ip all_nodes = {.b = {0xff, 2, [15] = 1}}, nobody;
static const uint8_t moved[6] = {2, 0, 0, 0, 0, 9};

#define SOLICITED 0x40
#define OVERRIDE 0x20

static void solicitation(
	struct bench *b, const union rp_ip *src, const union rp_ip *dst, const uint8_t *mac)
{
	bench_rx(b, f, frame_nd(f, 135, 0, src, dst, &our_ip6, mac), 0, &p);
}

static void advertisement(struct bench *b, uint8_t flags, const uint8_t *mac)
{
	bench_rx(b, f, frame_nd(f, 136, flags, &peer_ip6, &our_ip6, &peer_ip6, mac), 0, &p);
}

static const char *state_of(struct bench *b)
{
	static const char *names[] = {
#define X(name, text) [NEIGH_##name] = text,
		NEIGH_STATES(X)
#undef X
	};
	struct rp_neigh *n = neigh_find(b->net, &peer_ip6);

	return n ? names[n->state] : "none";
}

static struct rp_neigh *ref(struct bench *b, struct rp_list *user)
{
	rp_list_init(user);
	return rp_neigh_ref(b->net, &peer_ip6, user, b->now_ns);
}

static void put(struct bench *b, struct rp_neigh *n)
{
	uint16_t sum;
	struct rte_mbuf *m = bench_packet(b, 0, &sum);

	bench_output(b, n, m, &peer_ip6, 0);
}

/* Checks that `out` is a well formed message of ours. */
static void check_nd(uint8_t type, uint8_t flags, const union rp_ip *src, const union rp_ip *dst,
	const union rp_ip *target, uint32_t n)
{
	assert_int_equal(out[12] << 8 | out[13], 0x86dd);
	assert_memory_equal(out + 6, our_mac, 6);
	assert_int_equal(out[20], 58);
	assert_int_equal(out[21], 255);
	assert_memory_equal(out + 22, src, 16);
	assert_memory_equal(out + 38, dst, 16);
	assert_int_equal(out[54], type);
	assert_int_equal(out[58], flags);
	assert_memory_equal(out + 62, target, 16);
	memcpy(f, out, n);
	frame_seal6(f, 0, 58);
	assert_memory_equal(f, out, n);
}

static void announces_each_address_twice(void **state)
{
	const union rp_ip *ours[] = {&our_ip6, &our_local6};
	struct bench b;

	bench_start6(&b);
	rp_net_destroy(b.net);
	b.config.iface.addresses[0] = b.config.iface.addresses[2]; /* no IPv4 */
	b.config.iface.addresses[2] = (struct rp_net_address){0};
	b.config.iface.gateway4 = nobody;
	b.net = rp_net_create(&b.config, b.now_ns);
	for (unsigned i = 0; i < 2; i++) {
		for (unsigned k = 0; k < 2; k++) {
			assert_int_equal(bench_tx(&b, out), 86);
			check_nd(136, OVERRIDE, ours[1 - k], &all_nodes, ours[1 - k], 86);
			assert_memory_equal(out, "\x33\x33\0\0\0\1", 6);
			assert_memory_equal(out + 80, our_mac, 6);
		}
		assert_int_equal(bench_tx(&b, out), 0);
		b.now_ns += 2 * RP_NS_PER_S;
		rp_net_poll(b.net, b.now_ns);
	}
	assert_int_equal(rp_net_next_deadline(b.net), RP_NEVER);
	assert_int_equal(b.counters.nd_unsolicited, 4);
	bench_end(&b);
}

static void answers_for_itself_only(void **state)
{
	union rp_ip group = net_solicited_node(&our_ip6);
	struct bench b;

	bench_start6(&b);
	solicitation(&b, &peer_ip6, &group, peer_mac);
	assert_int_equal(bench_tx(&b, out), 86);
	check_nd(136, SOLICITED | OVERRIDE, &our_ip6, &peer_ip6, &our_ip6, 86);
	assert_memory_equal(out, peer_mac, 6);
	assert_string_equal(state_of(&b), "stale");  /* what it says of itself is used */
	solicitation(&b, &peer_ip6, &our_ip6, NULL); /* by unicast, without an option */
	assert_int_equal(bench_tx(&b, out), 86);
	assert_memory_equal(out, peer_mac, 6);
	/* Somebody asks whether he may have our address: all are told. */
	solicitation(&b, &nobody, &group, NULL);
	assert_int_equal(bench_tx(&b, out), 86);
	check_nd(136, OVERRIDE, &our_ip6, &all_nodes, &our_ip6, 86);
	/* A target that is not ours. */
	bench_rx(&b, f, frame_nd(f, 135, 0, &peer_ip6, &group, &peer_ip6, peer_mac), 0, &p);
	assert_int_equal(b.counters.drop_nd_target, 1);
	assert_int_equal(bench_tx(&b, out), 0);
	bench_end(&b);
}

#define MALFORMED(make, edit)                                            \
	do {                                                             \
		uint32_t n = make;                                       \
		edit;                                                    \
		frame_seal6(f, 0, 58);                                   \
		bench_rx(&b, f, n, 0, &p);                               \
		assert_int_equal(b.counters.drop_nd_malformed, ++count); \
	} while (0)
#define NS(src, dst, mac) frame_nd(f, 135, 0, src, dst, &our_ip6, mac)
#define NA(flags, dst, mac) frame_nd(f, 136, flags, &peer_ip6, dst, &peer_ip6, mac)

/* RFC 4861 7.1.1 and 7.1.2, rule by rule. */
static void what_is_to_be_ignored(void **state)
{
	union rp_ip group = net_solicited_node(&our_ip6);
	uint8_t router[16] = {134};
	uint64_t count = 0;
	struct bench b;

	bench_start6(&b);
	MALFORMED(NS(&peer_ip6, &group, peer_mac), f[21] = 254);
	MALFORMED(NS(&peer_ip6, &group, peer_mac), f[55] = 1);
	MALFORMED(NS(&peer_ip6, &group, NULL), (f[19] -= 1, n--));
	MALFORMED(NS(&peer_ip6, &group, peer_mac), f[62] = 0xff);
	MALFORMED(NS(&peer_ip6, &group, peer_mac), f[79] = 0); /* option of no length */
	MALFORMED(NS(&peer_ip6, &group, peer_mac), f[79] = 2); /* longer than the message */
	MALFORMED(NS(&nobody, &our_ip6, NULL), );
	MALFORMED(NS(&nobody, &group, peer_mac), );
	MALFORMED(NS(&peer_ip6, &group, all_nodes.b), ); /* a group's hardware address */
	MALFORMED(NA(0, &our_ip6, peer_mac), f[21] = 1);
	MALFORMED(NA(SOLICITED, &all_nodes, peer_mac), );
	MALFORMED(NA(0, &our_ip6, peer_mac), memset(f + 22, 0, 16));
	MALFORMED(NA(0, &our_ip6, peer_mac), f[79] = 0);
	assert_string_equal(state_of(&b), "none");
	assert_int_equal(bench_tx(&b, out), 0);
	/* Unknown options are passed over. */
	frame_nd(f, 135, 0, &peer_ip6, &group, &our_ip6, peer_mac);
	f[78] = 14;
	frame_seal6(f, 0, 58);
	bench_rx(&b, f, 86, 0, &p);
	assert_int_equal(bench_tx(&b, out), 86);
	/* Routers are configured. */
	bench_rx(&b, f, frame_icmp6(f, &peer_ip6, &all_nodes, router, 16), 0, &p);
	router[0] = 133;
	bench_rx(&b, f, frame_icmp6(f, &peer_ip6, &our_ip6, router, 16), 0, &p);
	assert_int_equal(b.counters.drop_nd_router, 2);
	router[0] = 137;
	bench_rx(&b, f, frame_icmp6(f, &peer_ip6, &our_ip6, router, 16), 0, &p);
	assert_int_equal(b.counters.drop_nd_redirect, 1);
	assert_int_equal(b.counters.drop_nd_malformed, count);
	bench_end(&b);
}

static void packets_wait_for_the_answer(void **state)
{
	union rp_ip group = net_solicited_node(&peer_ip6);
	struct rp_list user;
	struct rp_neigh *n;
	struct bench b;

	bench_start6(&b);
	n = ref(&b, &user);
	assert_int_equal(bench_tx(&b, out), 86);
	check_nd(135, 0, &our_ip6, &group, &peer_ip6, 86);
	assert_memory_equal(out, "\x33\x33\xff\0\0\2", 6);
	for (unsigned i = 0; i < 20; i++)
		put(&b, n);
	assert_int_equal(bench_tx(&b, out), 0);
	assert_int_equal(b.counters.drop_neigh_full, 4); /* 16 wait, the newest */
	advertisement(&b, SOLICITED | OVERRIDE, NULL);	 /* says nothing */
	assert_string_equal(state_of(&b), "incomplete");
	advertisement(&b, SOLICITED, peer_mac);
	assert_string_equal(state_of(&b), "reachable");
	for (unsigned i = 0; i < 16; i++) {
		assert_int_equal(bench_tx(&b, out), 74);
		assert_memory_equal(out, peer_mac, 6);
	}
	assert_int_equal(bench_tx(&b, out), 0);
	rp_neigh_unref(b.net, n, &user);
	bench_end(&b);
}

/* RFC 4861 appendix C. */
static void an_answer_counts_by_its_flags(void **state)
{
	static const struct {
		const char *from;
		uint8_t flags;
		const uint8_t *mac;
		const char *to;
		bool follows;
	} cases[] = {
		{"reachable", 0, moved, "stale", false},
		{"stale", 0, moved, "stale", false},
		{"reachable", OVERRIDE, moved, "stale", true},
		{"reachable", SOLICITED | OVERRIDE, moved, "reachable", true},
		{"stale", SOLICITED, peer_mac, "reachable", false},
		{"stale", SOLICITED, NULL, "reachable", false},
		{"stale", SOLICITED, moved, "stale", false},
		{"stale", SOLICITED | OVERRIDE, moved, "reachable", true},
		{"reachable", OVERRIDE, peer_mac, "reachable", false},
		{"reachable", 0, NULL, "reachable", false},
	};

	for (unsigned i = 0; i < RP_ARRAY_SIZE(cases); i++) {
		struct rp_list user;
		struct rp_neigh *n;
		struct bench b;

		bench_start6(&b);
		n = ref(&b, &user);
		advertisement(&b, strcmp(cases[i].from, "stale") ? SOLICITED : 0, peer_mac);
		assert_string_equal(state_of(&b), cases[i].from);
		advertisement(&b, cases[i].flags, cases[i].mac);
		assert_string_equal(state_of(&b), cases[i].to);
		assert_memory_equal(n->eth.dst, cases[i].follows ? moved : peer_mac, 6);
		rp_neigh_unref(b.net, n, &user);
		bench_end(&b);
	}
}

static void it_is_asked_again(void **state)
{
	struct rp_list user;
	struct rp_neigh *n;
	struct bench b;
	unsigned unicast = 0, multicast = 0;

	bench_start6(&b);
	n = ref(&b, &user);
	advertisement(&b, SOLICITED, peer_mac);
	b.now_ns += 60 * RP_NS_PER_S;
	rp_net_poll(b.net, b.now_ns);
	assert_string_equal(state_of(&b), "stale");
	while (bench_tx(&b, out))
		;
	put(&b, n);
	assert_string_equal(state_of(&b), "probe");
	assert_int_equal(bench_tx(&b, out), 74); /* used meanwhile */
	for (unsigned i = 0; i < 60 && strcmp(state_of(&b), "failed"); i++) {
		b.now_ns += 250 * RP_NS_PER_MS;
		rp_net_poll(b.net, b.now_ns);
		while (bench_tx(&b, out)) {
			unicast += out[54] == 135 && out[0] == 2;
			multicast += out[54] == 135 && out[0] == 0x33;
		}
	}
	assert_string_equal(state_of(&b), "failed");
	assert_int_equal(unicast, 4);
	assert_int_equal(multicast, 4);
	assert_int_equal(b.failed, 1);
	rp_neigh_unref(b.net, n, &user);
	bench_end(&b);
}

static void dad_start(struct bench *b)
{
	bench_start6(b);
	rp_net_destroy(b->net);
	b->config.dad = true;
	b->counters = (struct rp_net_counters){0};
	b->net = rp_net_create(&b->config, b->now_ns);
	assert_int_equal(bench_tx(b, out), 78);
	assert_int_equal(bench_tx(b, out), 78);
	assert_int_equal(bench_tx(b, out), 42); /* IPv4 is announced at once */
	assert_int_equal(bench_tx(b, out), 0);
	assert_int_equal(b->counters.nd_probes, 2);
}

static const char *address_state;

static void find_state(void *ctx, const struct rp_net_address_info *info)
{
	if (rp_ip_equal(&info->ip, ctx))
		address_state = info->state;
}

static const char *our_state(struct bench *b)
{
	union rp_ip ip = our_ip6;

	rp_net_address_foreach(b->net, find_state, &ip);
	return address_state;
}

static void an_address_is_used_when_nobody_has_it(void **state)
{
	union rp_ip group = net_solicited_node(&our_ip6);
	struct bench b;

	dad_start(&b);
	assert_string_equal(our_state(&b), "tentative");
	assert_int_equal(rp_net_source(b.net, &peer_ip6), -EADDRNOTAVAIL);
	solicitation(&b, &peer_ip6, &group, peer_mac); /* not answered yet (RFC 4862 5.4.3) */
	assert_int_equal(bench_tx(&b, out), 0);
	/* Our own probe that came back is nobody else's. */
	frame_nd(f, 135, 0, &nobody, &group, &our_ip6, NULL);
	memcpy(f + 6, our_mac, 6);
	bench_rx(&b, f, 78, 0, &p);
	assert_string_equal(our_state(&b), "tentative");
	b.now_ns += RP_NS_PER_S;
	rp_net_poll(b.net, b.now_ns);
	assert_string_equal(our_state(&b), "valid");
	assert_int_equal(rp_net_source(b.net, &peer_ip6), 1);
	assert_int_equal(bench_tx(&b, out), 86);
	check_nd(136, OVERRIDE, &our_ip6, &all_nodes, &our_ip6, 86);
	bench_end(&b);
}

static void an_address_that_is_taken_is_not_used(void **state)
{
	union rp_ip group = net_solicited_node(&our_ip6);

	for (unsigned how = 0; how < 2; how++) {
		struct bench b;

		dad_start(&b);
		if (how == 0) /* somebody has it */
			bench_rx(&b, f,
				frame_nd(
					f, 136, OVERRIDE, &our_ip6, &all_nodes, &our_ip6, peer_mac),
				0, &p);
		else /* somebody wants it */
			solicitation(&b, &nobody, &group, NULL);
		assert_string_equal(our_state(&b), "duplicate");
		assert_int_equal(b.counters.nd_duplicates, 1);
		b.now_ns += 10 * RP_NS_PER_S;
		rp_net_poll(b.net, b.now_ns);
		assert_string_equal(our_state(&b), "duplicate");
		assert_int_equal(rp_net_source(b.net, &peer_ip6), -EADDRNOTAVAIL);
		while (bench_tx(&b, out))
			assert_memory_not_equal(out + 62, &our_ip6, 16);
		solicitation(&b, &peer_ip6, &group, peer_mac);
		assert_int_equal(bench_tx(&b, out), 0);
		bench_end(&b);
	}
}

static void a_claim_of_our_address_is_counted(void **state)
{
	struct bench b;

	bench_start6(&b);
	bench_rx(
		&b, f, frame_nd(f, 136, OVERRIDE, &our_ip6, &all_nodes, &our_ip6, peer_mac), 0, &p);
	assert_int_equal(b.counters.address_conflicts, 1);
	frame_nd(f, 136, OVERRIDE, &our_ip6, &all_nodes, &our_ip6, our_mac);
	memcpy(f + 6, our_mac, 6);
	bench_rx(&b, f, 86, 0, &p); /* our own, come back */
	assert_int_equal(b.counters.address_conflicts, 1);
	bench_end(&b);
}

static unsigned reports(struct bench *b, uint8_t type)
{
	unsigned n = 0;
	uint32_t length;

	while ((length = bench_tx(b, out))) {
		if (out[12] != 0x86 || out[20] != 0)
			continue;
		assert_int_equal(length, 90);
		assert_memory_equal(out, "\x33\x33\0\0\0\x16", 6);
		assert_int_equal(out[21], 1);
		assert_memory_equal(out + 22, &our_local6, 16);
		assert_memory_equal(out + 54, "\x3a\0\5\2\0\0\1\0", 8);
		assert_int_equal(out[62], 143);
		assert_int_equal(out[69], 1);
		assert_int_equal(out[70], type);
		assert_memory_equal(out + 74, "\xff\2\0\0\0\0\0\0\0\0\0\1\xff\0\0\1", 16);
		memcpy(f, out, length);
		frame_seal6(f, 8, 58);
		assert_memory_equal(f, out, length);
		n++;
	}
	return n;
}

static void switches_are_told_of_groups(void **state)
{
	const union rp_ip querier = ip6_of("fe80::77");
	uint8_t query[28] = {130, [4] = 3, [5] = 0xe8};
	struct bench b;

	bench_start6(&b);
	rp_net_destroy(b.net);
	b.config.mld = true;
	b.net = rp_net_create(&b.config, b.now_ns);
	/* Both addresses have the same group. */
	assert_int_equal(reports(&b, 4), 1);
	b.now_ns += RP_NS_PER_S;
	rp_net_poll(b.net, b.now_ns);
	assert_int_equal(reports(&b, 4), 1);
	b.now_ns += 5 * RP_NS_PER_S;
	rp_net_poll(b.net, b.now_ns);
	assert_int_equal(reports(&b, 4), 0);
	frame_icmp6(f, &querier, &all_nodes, query, sizeof(query));
	bench_rx(&b, f, 82, 0, &p); /* from beyond the link: ignored */
	f[21] = 1;
	bench_rx(&b, f, 82, 0, &p);
	assert_int_equal(b.counters.mld_queries, 1);
	assert_int_equal(b.counters.drop_icmp_type, 1);
	assert_true(rp_net_next_deadline(b.net) <= b.now_ns + RP_NS_PER_S);
	b.now_ns += RP_NS_PER_S;
	rp_net_poll(b.net, b.now_ns);
	assert_int_equal(reports(&b, 2), 1);
	assert_int_equal(rp_net_next_deadline(b.net), RP_NEVER);
	bench_end(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(announces_each_address_twice),
		cmocka_unit_test(answers_for_itself_only),
		cmocka_unit_test(what_is_to_be_ignored),
		cmocka_unit_test(packets_wait_for_the_answer),
		cmocka_unit_test(an_answer_counts_by_its_flags),
		cmocka_unit_test(it_is_asked_again),
		cmocka_unit_test(an_address_is_used_when_nobody_has_it),
		cmocka_unit_test(an_address_that_is_taken_is_not_used),
		cmocka_unit_test(a_claim_of_our_address_is_counted),
		cmocka_unit_test(switches_are_told_of_groups),
	};

	return bench_eal() < 0 ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
}
