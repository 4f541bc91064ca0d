/* SPDX-License-Identifier: Apache-2.0 */
#include "link_priv.h"
#include "nodes.h"

/*
 * A dialer made of bytes against node B: what it says wrong, when it is told so, and that it never
 * disturbs the bundle between A and B.
 */

#define COUNTERS(i) rp_links_counters(nodes[i].links)

struct raw {
	struct rp_conn *conn;
	bool open, closed, fin;
	uint8_t in[4096];
	uint32_t in_length;
};

static void raw_open(void *ctx, struct rp_conn *c, uint64_t t)
{
	((struct raw *)ctx)->open = true;
}

static void raw_data(void *ctx, struct rp_conn *c, struct rte_mbuf *m, uint64_t t)
{
	struct raw *r = ctx;

	c->transport->ops->consume(c, m->pkt_len, t);
	r->in_length += rp_mbuf_copy_out(
		m, 0, r->in + r->in_length, RP_MIN(m->pkt_len, sizeof(r->in) - r->in_length));
	rte_pktmbuf_free(m);
}

static void raw_writable(void *ctx, struct rp_conn *c, uint64_t t)
{
}

static void raw_fin(void *ctx, struct rp_conn *c, uint64_t t)
{
	((struct raw *)ctx)->fin = true;
	c->transport->ops->close(c, t);
}

static void raw_close(void *ctx, struct rp_conn *c, enum rp_close_reason why, uint64_t t)
{
	((struct raw *)ctx)->closed = true;
}

static const struct rp_conn_events raw_events = {
	.on_open = raw_open,
	.on_data = raw_data,
	.on_writable = raw_writable,
	.on_peer_fin = raw_fin,
	.on_close = raw_close,
};

static void raw_dial(struct raw *r)
{
	const struct rp_conn_options options = {0};

	*r = (struct raw){0};
	r->conn = fake_dial(&net.side[0].transport, NULL, &options, &raw_events, r, now);
	turn();
	assert_true(r->open);
}

static void raw_send(struct raw *r, const void *bytes, size_t n)
{
	struct rte_mbuf *m = rp_mbuf_from(pool, bytes, n);

	if (r->closed || fake_send(r->conn, m, now) != 0)
		rte_pktmbuf_free(m);
	for (int i = 0; i < 4; i++)
		turn();
}

static struct link_hello hello_of(uint64_t dialer, uint64_t boot, uint64_t epoch)
{
	struct link_hello h = {
		.cluster_uuid = "cluster",
		.dialer = dialer,
		.acceptor = NODE_B,
		.dialer_boot = boot,
		.epoch = epoch,
		.dialer_nonce = "nonce",
		.k = 1,
	};

	return h;
}

/* Plays `h` up to the finish, with the secret; the verdict, or -1 when there was none. */
static int raw_shake(struct raw *r, struct link_hello *h, const uint8_t *secret)
{
	const struct link_preamble p = {.version = LINK_VERSION,
		.mode = h->mode,
		.link = h->link,
		.k = h->k,
		.node = h->dialer};
	uint8_t out[LINK_PREAMBLE_BYTES + LINK_HELLO_BYTES], mac[LINK_MAC_BYTES], verdict;
	uint64_t acceptor;

	raw_dial(r);
	link_preamble_write(&p, out);
	link_hello_write(h, out + LINK_PREAMBLE_BYTES);
	raw_send(r, out, sizeof(out));
	if (r->in_length < LINK_CHALLENGE_BYTES)
		return -1;
	assert_true(link_challenge_read(h, &acceptor, mac, r->in));
	assert_true(link_mac(h, LINK_FROM_DIALER, secret, 32, mac));
	link_finish_write(mac, out);
	raw_send(r, out, LINK_FINISH_BYTES);
	if (r->in_length < LINK_CHALLENGE_BYTES + LINK_VERDICT_BYTES)
		return -1;
	assert_true(link_verdict_read(&verdict, r->in + LINK_CHALLENGE_BYTES));
	return verdict;
}

static uint64_t seed = 42;

static void only_b(void)
{
	const struct rp_links_config b = node_config(1);

	world_start(NULL, &b);
}

static void raw_done(struct raw *r)
{
	if (!r->closed)
		fake_abort(r->conn, now);
	world_end();
}

static void proven_dialers_are_told_the_reason(void **state)
{
	struct raw r;
	struct link_hello h;
	const struct {
		enum rp_link_refusal want;
		uint8_t k, link, cluster;
		uint64_t dialer, acceptor;
	} cases[] = {
		{RP_LINK_REFUSAL_NONE, 1, 0, 'c', NODE_A, NODE_B},
		{RP_LINK_REFUSAL_K, 2, 0, 'c', NODE_A, NODE_B},
		{RP_LINK_REFUSAL_K, 0, 0, 'c', NODE_A, NODE_B},
		{RP_LINK_REFUSAL_RANGE, 1, 1, 'c', NODE_A, NODE_B},
		{RP_LINK_REFUSAL_CLUSTER, 1, 0, 'd', NODE_A, NODE_B},
		{RP_LINK_REFUSAL_WRONG_NODE, 1, 0, 'c', NODE_A, NODE_B + 1},
		{RP_LINK_REFUSAL_DIRECTION, 1, 0, 'c', NODE_B + 9, NODE_B},
		{RP_LINK_REFUSAL_DIRECTION, 1, 0, 'c', NODE_B, NODE_B},
		{RP_LINK_REFUSAL_UNKNOWN_PEER, 1, 0, 'c', NODE_A + 1, NODE_B},
	};

	for (size_t i = 0; i < RP_ARRAY_SIZE(cases); i++) {
		for (int proves = 0; proves < 2; proves++) {
			only_b();
			h = hello_of(cases[i].dialer, 5, 1);
			h.k = cases[i].k;
			h.link = cases[i].link;
			h.cluster_uuid[0] = cases[i].cluster;
			h.acceptor = cases[i].acceptor;
			assert_int_equal(raw_shake(&r, &h, proves ? secret_1 : secret_2),
				proves ? (int)cases[i].want : -1);
			assert_int_equal(nodes[1].bundle != 0,
				proves && cases[i].want == RP_LINK_REFUSAL_NONE);
			if (!proves) {
				assert_int_equal(r.in_length, LINK_CHALLENGE_BYTES);
				assert_true(r.closed);
				assert_int_equal(COUNTERS(1)->refused[RP_LINK_REFUSAL_MAC], 1);
			} else if (cases[i].want != RP_LINK_REFUSAL_NONE) {
				assert_true(r.closed);
				assert_int_equal(COUNTERS(1)->refused[cases[i].want], 1);
			}
			assert_int_equal(rp_links_handshakes(nodes[1].links), 0);
			raw_done(&r);
		}
	}
}

static void replays_and_old_epochs_are_refused(void **state)
{
	struct raw r, again;
	struct link_hello h = hello_of(NODE_A, 5, 7), old = hello_of(NODE_A, 5, 7);
	struct link_hello replay;
	const struct link_preamble p = {.version = LINK_VERSION, .k = 1, .node = NODE_A};
	uint8_t out[LINK_PREAMBLE_BYTES + LINK_HELLO_BYTES + LINK_FINISH_BYTES];
	uint8_t mac[LINK_MAC_BYTES];

	only_b();
	replay = h;
	assert_int_equal(raw_shake(&r, &h, secret_1), RP_LINK_REFUSAL_NONE);
	assert_int_equal(nodes[1].ups, 1);
	/* The same bytes again: the acceptor's nonce is another, so the old MAC proves nothing. */
	assert_true(link_mac(&h, LINK_FROM_DIALER, secret_1, 32, mac));
	link_preamble_write(&p, out);
	link_hello_write(&replay, out + LINK_PREAMBLE_BYTES);
	link_finish_write(mac, out + LINK_PREAMBLE_BYTES + LINK_HELLO_BYTES);
	raw_dial(&again);
	raw_send(&again, out, sizeof(out));
	assert_true(again.closed);
	assert_int_equal(COUNTERS(1)->refused[RP_LINK_REFUSAL_MAC], 1);
	/* The acceptor's own MAC sent back is not the dialer's. */
	raw_dial(&again);
	raw_send(&again, out, LINK_PREAMBLE_BYTES + LINK_HELLO_BYTES);
	assert_int_equal(again.in_length, LINK_CHALLENGE_BYTES);
	link_finish_write(again.in + LINK_CHALLENGE_BYTES - LINK_MAC_BYTES, out);
	raw_send(&again, out, LINK_FINISH_BYTES);
	assert_true(again.closed);
	assert_int_equal(COUNTERS(1)->refused[RP_LINK_REFUSAL_MAC], 2);
	/* A proven dialer with an epoch that is not newer. */
	assert_int_equal(raw_shake(&again, &old, secret_1), RP_LINK_REFUSAL_OLD_EPOCH);
	assert_int_equal(nodes[1].ups, 1);
	assert_int_equal(nodes[1].downs, 0);
	old = hello_of(NODE_A, 5, 8);
	assert_int_equal(raw_shake(&again, &old, secret_1), RP_LINK_REFUSAL_NONE);
	assert_int_equal(nodes[1].why, RP_LINK_DOWN_SUPERSEDED);
	assert_int_equal(nodes[1].ups, 2);
	raw_done(&again);
}

/* One that is older than the bundle's own is refused, and changes nothing. */
static void an_older_epoch_changes_nothing(void **state)
{
	struct raw r, late;
	struct link_hello h = hello_of(NODE_A, 5, 7), old = hello_of(NODE_A, 5, 6);

	only_b();
	assert_int_equal(raw_shake(&r, &h, secret_1), RP_LINK_REFUSAL_NONE);
	assert_int_equal(raw_shake(&late, &old, secret_1), RP_LINK_REFUSAL_OLD_EPOCH);
	assert_true(late.closed && !r.closed);
	assert_int_equal(nodes[1].ups, 1);
	assert_int_equal(nodes[1].downs, 0);
	raw_done(&r);
}

/* Of k links each is there once: the second of the same index is late, from whatever dial. */
static void each_link_is_admitted_once(void **state)
{
	struct rp_links_config b = node_config(1);
	struct raw r[3];
	struct link_hello h[3] = {
		hello_of(NODE_A, 5, 7), hello_of(NODE_A, 5, 7), hello_of(NODE_A, 5, 7)};

	b.per_peer = 2;
	world_start(NULL, &b);
	h[0].k = h[1].k = h[2].k = 2;
	h[2].link = 1;
	assert_int_equal(raw_shake(&r[0], &h[0], secret_1), RP_LINK_REFUSAL_NONE);
	assert_int_equal(raw_shake(&r[1], &h[1], secret_1), RP_LINK_REFUSAL_OLD_EPOCH);
	assert_true(r[1].closed && !r[0].closed);
	assert_int_equal(nodes[1].ups, 0);
	assert_int_equal(raw_shake(&r[2], &h[2], secret_1), RP_LINK_REFUSAL_NONE);
	assert_int_equal(nodes[1].ups, 1);
	fake_abort(r[0].conn, now);
	raw_done(&r[2]);
}

/* The acceptor waits for the other links as long as for a handshake, whoever would tell it more. */
static void an_incomplete_bundle_is_given_up(void **state)
{
	struct rp_links_config b = node_config(1);
	struct link_hello h = hello_of(NODE_A, 5, 7);
	struct raw r;

	b.per_peer = 2;
	world_start(NULL, &b);
	h.k = 2;
	assert_int_equal(raw_shake(&r, &h, secret_1), RP_LINK_REFUSAL_NONE);
	run_for(9900 * RP_NS_PER_MS);
	assert_false(r.closed);
	run_for(200 * RP_NS_PER_MS);
	assert_true(r.closed);
	assert_int_equal(COUNTERS(1)->incomplete, 1);
	assert_int_equal(nodes[1].ups, 0);
	raw_done(&r);
}

/* The lead of a dialer: two links of one bundle have proved themselves, each by another life of the
 * peer. That is no bundle. */
static void two_lives_are_no_bundle(void **state)
{
	struct rp_links_config a = node_config(0);
	struct rp_link_msg m = {.type = LINK_MSG_PROVEN, .node = NODE_B};

	a.per_peer = 2;
	for (uint64_t other = 0; other < 2; other++) {
		world_start(&a, NULL);
		turn();
		m.bundle = 1;
		m.link = 0;
		m.boot = 5;
		rp_links_on_msg(nodes[0].links, 0, &m, now);
		assert_int_equal(COUNTERS(0)->incomplete, 0);
		m.link = 1;
		m.boot = 5 + other;
		if (other) {
			rp_links_on_msg(nodes[0].links, 0, &m, now);
			assert_int_equal(nodes[0].ups, 0);
		}
		assert_int_equal(COUNTERS(0)->incomplete, other);
		world_end();
	}
}

/* The bytes before TLS and those after them say the same. */
static void hello_is_as_the_preamble_has_it(void **state)
{
	for (unsigned i = 0; i < 4; i++) {
		struct link_hello h = hello_of(NODE_A, 5, 1);
		const struct link_preamble p = {.version = LINK_VERSION, .k = 1, .node = NODE_A};
		uint8_t out[LINK_PREAMBLE_BYTES + LINK_HELLO_BYTES];
		struct raw r;

		h.dialer += i == 0;
		h.k += i == 1;
		h.link += i == 2;
		h.mode = i == 3 ? LINK_MODE_TLS : LINK_MODE_PLAIN;
		only_b();
		raw_dial(&r);
		link_preamble_write(&p, out);
		link_hello_write(&h, out + LINK_PREAMBLE_BYTES);
		raw_send(&r, out, sizeof(out));
		assert_true(r.closed);
		assert_int_equal(r.in_length, 0);
		assert_int_equal(COUNTERS(1)->refused[RP_LINK_REFUSAL_MALFORMED], 1);
		raw_done(&r);
	}
}

static void slow_dialers_meet_one_deadline(void **state)
{
	struct raw r;
	struct link_hello h = hello_of(NODE_A, 5, 1);
	const struct link_preamble p = {.version = LINK_VERSION, .k = 1, .node = NODE_A};
	uint8_t out[LINK_PREAMBLE_BYTES + LINK_HELLO_BYTES];
	const size_t cuts[] = {0, 1, 15, 16, 17, 103, 104};

	link_preamble_write(&p, out);
	link_hello_write(&h, out + LINK_PREAMBLE_BYTES);
	for (size_t i = 0; i < RP_ARRAY_SIZE(cuts); i++) {
		only_b();
		raw_dial(&r);
		/* One byte at a time does not move the deadline. */
		run_for(6 * RP_NS_PER_S);
		for (size_t j = 0; j < cuts[i]; j++)
			raw_send(&r, out + j, 1);
		assert_false(r.closed);
		assert_int_equal(rp_links_handshakes(nodes[1].links), 1);
		run_for(3900 * RP_NS_PER_MS);
		assert_false(r.closed);
		run_for(200 * RP_NS_PER_MS);
		assert_true(r.closed);
		assert_int_equal(COUNTERS(1)->refused[RP_LINK_REFUSAL_TIMEOUT], 1);
		assert_int_equal(r.in_length, cuts[i] < 104 ? 0 : LINK_CHALLENGE_BYTES);
		assert_int_equal(rp_links_handshakes(nodes[1].links), 0);
		raw_done(&r);
	}
}

static void oldest_unproven_makes_room(void **state)
{
	static struct raw r[12];

	only_b();
	for (int i = 0; i < 12; i++)
		raw_dial(&r[i]);
	turn();
	for (int i = 0; i < 12; i++)
		assert_int_equal(r[i].closed, i < 4);
	assert_int_equal(rp_links_handshakes(nodes[1].links), 8);
	assert_int_equal(COUNTERS(1)->refused[RP_LINK_REFUSAL_CAP], 4);
	for (int i = 4; i < 12; i++)
		fake_abort(r[i].conn, now);
	turn();
	assert_int_equal(rp_links_handshakes(nodes[1].links), 0);
	assert_int_equal(COUNTERS(1)->refused[RP_LINK_REFUSAL_GONE], 8);
	world_end();
}

static void random_bytes_close_only_that_one(void **state)
{
	const struct rp_links_config a = node_config(0), b = node_config(1);
	struct rp_rand rand = {seed};
	uint8_t bytes[300];

	world_start(&a, &b);
	run_for(50 * RP_NS_PER_MS);
	assert_true(nodes[0].bundle && nodes[1].bundle);
	for (int i = 0; i < 200; i++) {
		struct raw r;
		size_t n = LINK_PREAMBLE_BYTES + rp_rand_below(&rand, 200);

		for (size_t j = 0; j < n; j++)
			bytes[j] = (uint8_t)rp_rand_u64(&rand);
		if (i % 3 == 1)
			memcpy(bytes, "RPLK\1\0\0\1", 8);
		raw_dial(&r);
		raw_send(&r, bytes, n);
		if (!r.closed) {
			assert_int_equal(i % 3, 1);
			fake_abort(r.conn, now);
		}
		assert_int_equal(r.in_length, 0);
		turn();
	}
	assert_true(COUNTERS(1)->refused[RP_LINK_REFUSAL_MALFORMED] > 100);
	memcpy(bytes, "RPLK\2\0\0\1", 8);
	struct raw r;
	raw_dial(&r);
	raw_send(&r, bytes, LINK_PREAMBLE_BYTES);
	assert_int_equal(COUNTERS(1)->refused[RP_LINK_REFUSAL_VERSION], 1);
	memcpy(bytes, "RPLK\1\1\0\1", 8);
	raw_dial(&r);
	raw_send(&r, bytes, LINK_PREAMBLE_BYTES);
	assert_int_equal(COUNTERS(1)->refused[RP_LINK_REFUSAL_MODE], 1);
	assert_int_equal(nodes[0].downs + nodes[1].downs, 0);
	assert_int_equal(rp_links_handshakes(nodes[1].links), 0);
	world_end();
}

static void assert_hex(const uint8_t *bytes, size_t n, const char *want)
{
	char hex[2 * LINK_MESSAGE_BYTES_MAX + 1];

	for (size_t i = 0; i < n; i++)
		snprintf(hex + 2 * i, 3, "%02x", bytes[i]);
	assert_string_equal(hex, want);
}

/* docs/protocol.md shows these bytes. */
static void golden_bytes(void **state)
{
	static const char *const preamble_hex = "52504c4b010000010a00000000000000";
	static const char *const hello_hex =
		"01015800"
		"636c7573746572000000000000000000"
		"0a00000000000000"
		"1400000000000000"
		"6400000000000000"
		"0100000000000000"
		"4141414141414141414141414141414141414141414141414141414141414141"
		"01000000";
	/* The MACs were computed with another implementation of HMAC-SHA-256. */
	static const char *const challenge_hex =
		"02015400"
		"1400000000000000"
		"6500000000000000"
		"4242424242424242424242424242424242424242424242424242424242424242"
		"5197a7fe682245cdd93f61b7f77e9808e7b615d894218c949d185a38b6e5e0d9";
	static const char *const finish_hex =
		"03012400"
		"3ec717907080bb6ac7967d9e3a69e1b167f1fa2ab8622cad8db3a55e5877a49a";
	static const char *const verdict_hex = "0401080004000000";
	struct link_hello h = hello_of(NODE_A, 100, 1), back;
	const struct link_preamble p = {.version = LINK_VERSION, .k = 1, .node = NODE_A};
	uint8_t out[LINK_MESSAGE_BYTES_MAX], mac[LINK_MAC_BYTES];

	memset(h.dialer_nonce, 0x41, LINK_NONCE_BYTES);
	memset(h.acceptor_nonce, 0x42, LINK_NONCE_BYTES);
	h.acceptor_boot = 101;
	link_preamble_write(&p, out);
	assert_hex(out, LINK_PREAMBLE_BYTES, preamble_hex);
	link_hello_write(&h, out);
	assert_hex(out, LINK_HELLO_BYTES, hello_hex);
	assert_true(link_hello_read(&back, out));
	assert_true(back.epoch == 1 && back.dialer_boot == 100 && back.acceptor == NODE_B);
	assert_true(link_mac(&h, LINK_FROM_ACCEPTOR, secret_1, 32, mac));
	link_challenge_write(&h, mac, out);
	assert_hex(out, LINK_CHALLENGE_BYTES, challenge_hex);
	assert_true(link_mac(&h, LINK_FROM_DIALER, secret_1, 32, mac));
	link_finish_write(mac, out);
	assert_hex(out, LINK_FINISH_BYTES, finish_hex);
	link_verdict_write(RP_LINK_REFUSAL_K, out);
	assert_hex(out, LINK_VERDICT_BYTES, verdict_hex);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(golden_bytes),
		cmocka_unit_test(proven_dialers_are_told_the_reason),
		cmocka_unit_test(replays_and_old_epochs_are_refused),
		cmocka_unit_test(an_older_epoch_changes_nothing),
		cmocka_unit_test(each_link_is_admitted_once),
		cmocka_unit_test(an_incomplete_bundle_is_given_up),
		cmocka_unit_test(two_lives_are_no_bundle),
		cmocka_unit_test(hello_is_as_the_preamble_has_it),
		cmocka_unit_test(slow_dialers_meet_one_deadline),
		cmocka_unit_test(oldest_unproven_makes_room),
		cmocka_unit_test(random_bytes_close_only_that_one),
	};

	if (argc > 1)
		seed = strtoull(argv[1], NULL, 0);
	printf("seed %llu\n", (unsigned long long)seed);
	if (world_setup() < 0)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
