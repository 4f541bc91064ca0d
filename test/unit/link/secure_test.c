/* SPDX-License-Identifier: Apache-2.0 */

/* Links over TLS: both certificates, what is refused, and the channel binding in the proof. */

#include "nodes.h"

#include "../tls/test_certs.h"

#define COUNTERS(i) rp_links_counters(nodes[i].links)

static struct test_cert ca, other_ca, cert_a, cert_b, cert_other;
static struct rp_tls_config *made[16];
static unsigned made_count;

static struct rp_tls_config *tls_of(
	const struct test_cert *cert, const struct test_cert *authority, bool server)
{
	struct rp_tls_params p = {
		.server = server,
		.cert = test_span(cert->cert),
		.key = test_span(cert->key),
		.ca = test_span(authority->cert),
		.require_peer_cert = true,
	};
	char error[200];

	made[made_count] = rp_tls_config_new(&p, error, sizeof(error));
	assert_non_null(made[made_count]);
	return made[made_count++];
}

static struct rp_links_config secure_config(int i, const struct test_cert *cert)
{
	struct rp_links_config c = node_config(i);

	c.tls_client = tls_of(cert, cert == &cert_other ? &other_ca : &ca, false);
	c.tls_server = tls_of(cert, cert == &cert_other ? &other_ca : &ca, true);
	return c;
}

static void secure_end(void)
{
	world_end();
	while (made_count > 0)
		rp_tls_config_unref(made[--made_count]);
}

static void frames_cross(void **state)
{
	const uint32_t pieces[] = {1, 100, 1460, FAKE_WINDOW};

	for (size_t k = 0; k < RP_ARRAY_SIZE(pieces); k++) {
		const uint32_t want = pieces[k] == 1 ? 12 : 200;
		struct rp_links_config a = secure_config(0, &cert_a);
		struct rp_links_config b = secure_config(1, &cert_b);
		uint32_t sent[2] = {0, 0};

		world_start(&a, &b);
		net.piece = pieces[k];
		for (int i = 0; i < 20000 && (!nodes[0].bundle || !nodes[1].bundle); i++)
			turn();
		assert_true(nodes[0].bundle != 0 && nodes[1].bundle != 0);
		for (uint32_t i = 0;
			i < 400000 && (nodes[0].frames < want || nodes[1].frames < want); i++) {
			for (int j = 0; j < 2 && sent[j] < want; j++) {
				struct rte_mbuf *m = frame_make(sent[j]);

				if (rp_links_send(nodes[j].links, nodes[j].peer, nodes[j].bundle, 0,
					    m) == 0)
					sent[j]++;
				else
					rte_pktmbuf_free(m);
			}
			turn();
		}
		for (int j = 0; j < 2; j++) {
			assert_int_equal(nodes[j].frames, want);
			assert_int_equal(nodes[j].frame_bad, 0);
			assert_int_equal(nodes[j].ups, 1);
		}
		secure_end();
	}
}

static void heartbeats_and_cuts(void **state)
{
	struct rp_links_config a = secure_config(0, &cert_a), b = secure_config(1, &cert_b);

	world_start(&a, &b);
	run_for(2 * RP_NS_PER_S);
	assert_true(nodes[0].answered >= 3);
	net.hole = true;
	run_for(3500 * RP_NS_PER_MS);
	assert_int_equal(nodes[0].why, RP_LINK_DOWN_DEAD);
	assert_int_equal(nodes[1].bundle, 0);
	net.hole = false;
	run_for(3 * RP_NS_PER_S);
	assert_true(nodes[0].bundle && nodes[1].bundle);
	rp_links_stop(nodes[0].links, now);
	run_for(100 * RP_NS_PER_MS);
	assert_int_equal(nodes[1].why, RP_LINK_DOWN_CLOSED);
	secure_end();
}

static void bad_certificates_are_refused(void **state)
{
	struct rp_links_config a = secure_config(0, &cert_other), b = secure_config(1, &cert_b);

	world_start(&a, &b);
	run_for(RP_NS_PER_S);
	assert_int_equal(nodes[0].ups + nodes[1].ups, 0);
	assert_true(COUNTERS(0)->refused_out[RP_LINK_REFUSAL_TLS] > 0);
	assert_true(COUNTERS(1)->refused[RP_LINK_REFUSAL_TLS] +
			    COUNTERS(1)->refused[RP_LINK_REFUSAL_GONE] >
		    0);
	assert_int_equal(COUNTERS(1)->handshakes_done, 0);
	secure_end();
}

/* Other certificates in running nodes: what stands stays, what comes shows the new ones. */
static void certificates_change_in_place(void **state)
{
	struct rp_links_config a = secure_config(0, &cert_a), b = secure_config(1, &cert_b);
	struct rp_tls_config *client, *server;

	world_start(&a, &b);
	run_for(RP_NS_PER_S);
	assert_true(nodes[0].bundle && nodes[1].bundle);
	client = tls_of(&cert_other, &other_ca, false);
	server = tls_of(&cert_other, &other_ca, true);
	rp_links_set_tls(nodes[0].links, rp_tls_config_ref(client), rp_tls_config_ref(server));
	run_for(RP_NS_PER_S);
	assert_int_equal(nodes[0].downs + nodes[1].downs, 0);
	rp_links_violation(nodes[0].links, NODE_B, now);
	run_for(RP_NS_PER_S);
	assert_false(nodes[0].bundle || nodes[1].bundle);
	assert_true(COUNTERS(0)->refused_out[RP_LINK_REFUSAL_TLS] > 0);
	/* And the other node follows. */
	rp_links_set_tls(nodes[1].links, rp_tls_config_ref(client), rp_tls_config_ref(server));
	run_for(3 * RP_NS_PER_S);
	assert_true(nodes[0].bundle && nodes[1].bundle);
	secure_end();
	/* Where links are plain they stay plain. */
	a = node_config(0);
	world_start(&a, NULL);
	client = tls_of(&cert_a, &ca, false);
	rp_links_set_tls(nodes[0].links, rp_tls_config_ref(client), rp_tls_config_ref(client));
	secure_end();
}

static void plain_and_tls_do_not_mix(void **state)
{
	for (int i = 0; i < 2; i++) {
		struct rp_links_config a = i ? secure_config(0, &cert_a) : node_config(0);
		struct rp_links_config b = i ? node_config(1) : secure_config(1, &cert_b);

		world_start(&a, &b);
		run_for(RP_NS_PER_S);
		assert_int_equal(nodes[0].ups + nodes[1].ups, 0);
		assert_true(COUNTERS(1)->refused[RP_LINK_REFUSAL_MODE] > 0);
		secure_end();
	}
}

/* ---- a dialer made of bytes, with TLS of its own ---- */

struct raw {
	struct rp_conn *conn;
	struct rp_tls_session *tls;
	bool open, closed;
	uint8_t in[1024];
	size_t in_length;
};

static void raw_flush(struct raw *r)
{
	struct rp_span out = rp_tls_pending(r->tls);
	struct rte_mbuf *m;

	if (out.length == 0 || r->closed)
		return;
	m = rp_mbuf_from(pool, out.data, out.length);
	rp_tls_sent(r->tls, out.length);
	if (fake_send(r->conn, m, now) != 0)
		rte_pktmbuf_free(m);
}

static void raw_read(struct raw *r)
{
	ssize_t n;

	while ((n = rp_tls_read(r->tls, r->in + r->in_length, sizeof(r->in) - r->in_length)) > 0)
		r->in_length += (size_t)n;
	raw_flush(r);
}

static void raw_open(void *ctx, struct rp_conn *c, uint64_t t)
{
	((struct raw *)ctx)->open = true;
}

static void raw_data(void *ctx, struct rp_conn *c, struct rte_mbuf *m, uint64_t t)
{
	static uint8_t bytes[FAKE_WINDOW];
	struct raw *r = ctx;
	size_t n = rp_mbuf_copy_out(m, 0, bytes, sizeof(bytes));

	c->transport->ops->consume(c, m->pkt_len, t);
	rte_pktmbuf_free(m);
	assert_int_equal(rp_tls_feed(r->tls, bytes, n), n);
	raw_read(r);
}

static void raw_writable(void *ctx, struct rp_conn *c, uint64_t t)
{
}

static void raw_fin(void *ctx, struct rp_conn *c, uint64_t t)
{
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

static void raw_say(struct raw *r, const uint8_t *bytes, size_t n)
{
	assert_int_equal(rp_tls_write(r->tls, bytes, n), (ssize_t)n);
	raw_flush(r);
	for (int i = 0; i < 8; i++)
		turn();
}

/*
 * The whole handshake, its MAC over the binding of its own channel but for one bit where `wrong`.
 * The verdict, or -1: silence.
 */
static int raw_shake(struct raw *r, bool wrong)
{
	const struct link_preamble p = {
		.version = LINK_VERSION, .mode = LINK_MODE_TLS, .k = 1, .node = NODE_A};
	struct link_hello h = {.cluster_uuid = "cluster",
		.dialer = NODE_A,
		.acceptor = NODE_B,
		.dialer_boot = 5,
		.epoch = 1,
		.dialer_nonce = "nonce",
		.k = 1,
		.mode = LINK_MODE_TLS};
	uint8_t out[LINK_MESSAGE_BYTES_MAX], mac[LINK_MAC_BYTES], want[LINK_MAC_BYTES], verdict;
	const struct rp_conn_options options = {0};
	uint64_t acceptor;

	r->conn = fake_dial(&net.side[0].transport, NULL, &options, &raw_events, r, now);
	turn();
	assert_true(r->open);
	link_preamble_write(&p, out);
	assert_int_equal(fake_send(r->conn, rp_mbuf_from(pool, out, LINK_PREAMBLE_BYTES), now), 0);
	raw_read(r);
	for (int i = 0; i < 20 && !rp_tls_open(r->tls); i++)
		turn();
	assert_true(rp_tls_open(r->tls));
	link_hello_write(&h, out);
	raw_say(r, out, LINK_HELLO_BYTES);
	assert_int_equal(r->in_length, LINK_CHALLENGE_BYTES);
	assert_true(link_challenge_read(&h, &acceptor, mac, r->in));
	assert_true(rp_tls_binding(r->tls, h.binding));
	/* The acceptor proves itself over the same channel. */
	assert_true(link_mac(&h, LINK_FROM_ACCEPTOR, secret_1, 32, want));
	assert_true(link_mac_equal(want, mac));
	if (wrong)
		h.binding[7] ^= 1;
	assert_true(link_mac(&h, LINK_FROM_DIALER, secret_1, 32, mac));
	link_finish_write(mac, out);
	raw_say(r, out, LINK_FINISH_BYTES);
	if (r->in_length < LINK_CHALLENGE_BYTES + LINK_VERDICT_BYTES)
		return -1;
	assert_true(link_verdict_read(&verdict, r->in + LINK_CHALLENGE_BYTES));
	return verdict;
}

static void another_channel_proves_nothing(void **state)
{
	for (int wrong = 0; wrong < 2; wrong++) {
		struct rp_links_config b = secure_config(1, &cert_b);
		struct raw r = {0};

		world_start(NULL, &b);
		r.tls = rp_tls_session_new(tls_of(&cert_a, &ca, false), NULL, (struct rp_span){0});
		assert_non_null(r.tls);
		assert_int_equal(raw_shake(&r, wrong), wrong ? -1 : RP_LINK_REFUSAL_NONE);
		assert_int_equal(nodes[1].bundle != 0, !wrong);
		assert_int_equal(COUNTERS(1)->refused[RP_LINK_REFUSAL_MAC], wrong);
		assert_int_equal(r.closed, wrong);
		if (!r.closed)
			fake_abort(r.conn, now);
		rp_tls_session_destroy(r.tls);
		secure_end();
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(frames_cross),
		cmocka_unit_test(heartbeats_and_cuts),
		cmocka_unit_test(bad_certificates_are_refused),
		cmocka_unit_test(certificates_change_in_place),
		cmocka_unit_test(plain_and_tls_do_not_mix),
		cmocka_unit_test(another_channel_proves_nothing),
	};

	test_cert_make(&ca, NULL, "the cluster's authority", NULL, NULL);
	test_cert_make(&other_ca, NULL, "another authority", NULL, NULL);
	test_cert_make(&cert_a, &ca, "a", NULL, NULL);
	test_cert_make(&cert_b, &ca, "b", NULL, NULL);
	test_cert_make(&cert_other, &other_ca, "a", NULL, NULL);
	if (world_setup() < 0)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
