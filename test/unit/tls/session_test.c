/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include <base/rand.h>
#include <tls/tls.h>

#include "test_certs.h"

static const uint8_t address[4] = {127, 0, 0, 1}, other_address[4] = {127, 0, 0, 2};
static struct test_cert ca, server_cert, client_cert, stranger_ca, stranger_cert;
static const char *const alpn_both[] = {"h2", "http/1.1", NULL};
static const char *const alpn_h2[] = {"h2", NULL};
static const char *const alpn_old[] = {"http/1.1", NULL};

static int setup(void **state)
{
	test_cert_make(&ca, NULL, "authority", NULL, NULL);
	test_cert_make(&server_cert, &ca, "server", "node.test", address);
	test_cert_make(&client_cert, &ca, "root", NULL, NULL);
	test_cert_make(&stranger_ca, NULL, "stranger", NULL, NULL);
	test_cert_make(&stranger_cert, &stranger_ca, "root", "node.test", address);
	return 0;
}

static struct rp_tls_config *make(bool server, const struct test_cert *cert,
	const struct test_cert *trust, const char *const *alpn)
{
	struct rp_tls_params p = {
		.server = server,
		.cert = test_span(cert ? cert->cert : ""),
		.key = test_span(cert ? cert->key : ""),
		.ca = test_span(trust ? trust->cert : ""),
		.require_peer_cert = server && trust,
		.skip_verify = !server && !trust,
		.alpn = alpn,
	};
	char error[128] = "";
	struct rp_tls_config *c = rp_tls_config_new(&p, error, sizeof(error));

	if (!c)
		fail_msg("%s", error);
	return c;
}

/* Moves at most `piece` bytes; true when something moved. */
static bool carry(struct rp_tls_session *from, struct rp_tls_session *to, size_t piece)
{
	struct rp_span out = rp_tls_pending(from);
	size_t n = rp_tls_feed(to, out.data, RP_MIN(out.length, piece));

	rp_tls_sent(from, n);
	return n > 0;
}

/* Both ends until nothing moves: the last result of either's read. */
static void shake(
	struct rp_tls_session *a, struct rp_tls_session *b, size_t piece, ssize_t *ra, ssize_t *rb)
{
	uint8_t buf[64];
	bool moved = true;

	while (moved) {
		*ra = rp_tls_read(a, buf, sizeof(buf));
		moved = carry(a, b, piece);
		*rb = rp_tls_read(b, buf, sizeof(buf));
		moved |= carry(b, a, piece);
	}
}

struct pair {
	struct rp_tls_config *client_config, *server_config;
	struct rp_tls_session *client, *server;
	ssize_t client_result, server_result;
};

static void pair_open(struct pair *p, struct rp_tls_config *client_config,
	struct rp_tls_config *server_config, const char *name, const uint8_t *ip, size_t piece)
{
	struct rp_span span = {.data = ip, .length = ip ? 4 : 0};

	p->client_config = client_config;
	p->server_config = server_config;
	p->client = rp_tls_session_new(client_config, name, span);
	p->server = rp_tls_session_new(server_config, NULL, (struct rp_span){0});
	assert_non_null(p->client);
	assert_non_null(p->server);
	shake(p->client, p->server, piece, &p->client_result, &p->server_result);
}

static void pair_close(struct pair *p)
{
	rp_tls_session_destroy(p->client);
	rp_tls_session_destroy(p->server);
	rp_tls_config_unref(p->client_config);
	rp_tls_config_unref(p->server_config);
}

static void test_handshake(void **state)
{
	static const size_t pieces[] = {1, 7, 1000, 100000};
	struct pair p;

	for (size_t i = 0; i < RP_ARRAY_SIZE(pieces); i++) {
		pair_open(&p, make(false, &client_cert, &ca, alpn_h2),
			make(true, &server_cert, &ca, alpn_both), "node.test", NULL, pieces[i]);
		assert_true(rp_tls_open(p.client));
		assert_true(rp_tls_open(p.server));
		assert_string_equal(rp_tls_alpn(p.client), "h2");
		assert_string_equal(rp_tls_alpn(p.server), "h2");
		assert_string_equal(rp_tls_peer_cn(p.server), "root");
		assert_string_equal(rp_tls_peer_cn(p.client), "server");
		assert_non_null(strstr(rp_tls_suite(p.client), "ECDHE"));
		assert_string_equal(rp_tls_error(p.client), "");
		pair_close(&p);
	}
}

static void test_alpn(void **state)
{
	struct pair p;

	pair_open(&p, make(false, NULL, &ca, alpn_old), make(true, &server_cert, NULL, alpn_both),
		"node.test", NULL, 4096);
	assert_string_equal(rp_tls_alpn(p.server), "http/1.1");
	assert_null(rp_tls_peer_cn(p.server));
	pair_close(&p);
	/* None offered: none agreed on, and no failure. */
	pair_open(&p, make(false, NULL, &ca, NULL), make(true, &server_cert, NULL, alpn_both),
		"node.test", NULL, 4096);
	assert_true(rp_tls_open(p.server));
	assert_null(rp_tls_alpn(p.server));
	pair_close(&p);
	/* Nothing in common fails. */
	pair_open(&p, make(false, NULL, &ca, alpn_old), make(true, &server_cert, NULL, alpn_h2),
		"node.test", NULL, 4096);
	assert_int_equal(p.server_result, -EPROTO);
	assert_int_equal(p.client_result, -EPROTO);
	pair_close(&p);
}

static void expect_refused(const struct test_cert *client, const struct test_cert *client_trust,
	const struct test_cert *server, const struct test_cert *server_trust, const char *name,
	const uint8_t *ip, bool by_server)
{
	struct pair p;

	pair_open(&p, make(false, client, client_trust, alpn_h2),
		make(true, server, server_trust, alpn_h2), name, ip, 4096);
	assert_int_equal(by_server ? p.server_result : p.client_result, -EACCES);
	assert_int_not_equal(rp_tls_error(by_server ? p.server : p.client)[0], 0);
	assert_true(rp_tls_write(by_server ? p.server : p.client, "x", 1) < 0);
	pair_close(&p);
}

static void test_certificates(void **state)
{
	struct pair p;

	expect_refused(NULL, &ca, &server_cert, &ca, "node.test", NULL, true);
	expect_refused(&stranger_cert, &ca, &server_cert, &ca, "node.test", NULL, true);
	expect_refused(NULL, &ca, &stranger_cert, NULL, "node.test", NULL, false);
	expect_refused(NULL, &ca, &server_cert, NULL, "other.test", NULL, false);
	expect_refused(NULL, &ca, &server_cert, NULL, NULL, other_address, false);
	pair_open(&p, make(false, NULL, &ca, alpn_h2), make(true, &server_cert, NULL, alpn_h2),
		NULL, address, 4096);
	assert_true(rp_tls_open(p.client));
	pair_close(&p);
	/* Not verified when the caller says so. */
	pair_open(&p, make(false, NULL, NULL, alpn_h2), make(true, &stranger_cert, NULL, alpn_h2),
		"other.test", NULL, 4096);
	assert_true(rp_tls_open(p.client));
	assert_null(rp_tls_peer_cn(p.client));
	pair_close(&p);
}

static void test_bad_parameters(void **state)
{
	char error[128];
	struct rp_tls_params p = {.server = true};

	assert_null(rp_tls_config_new(&p, error, sizeof(error)));
	p.cert = test_span("-----BEGIN CERTIFICATE-----\nnonsense\n-----END CERTIFICATE-----\n");
	p.key = test_span(server_cert.key);
	assert_null(rp_tls_config_new(&p, error, sizeof(error)));
	assert_non_null(strstr(error, "certificate: "));
	p.cert = test_span(server_cert.cert);
	p.key = test_span(client_cert.key);
	assert_null(rp_tls_config_new(&p, error, sizeof(error)));
	assert_non_null(strstr(error, "key: "));
	p.key = test_span(server_cert.key);
	p.require_peer_cert = true;
	assert_null(rp_tls_config_new(&p, error, 8));
	assert_int_equal(strlen(error), 7);
	assert_null(rp_tls_config_new(&p, NULL, 0));
}

/* Random sizes both ways, in random pieces, the content checked. */
static void test_bytes(void **state)
{
	const char *text = getenv("RP_SEED");
	struct rp_rand rand = {text ? strtoull(text, NULL, 0) : (uint64_t)time(NULL)};
	uint64_t sent[2] = {0}, received[2] = {0};
	static uint8_t buf[70000];
	struct pair p;

	print_message("seed %llu\n", (unsigned long long)rand.state);
	pair_open(&p, make(false, NULL, &ca, alpn_h2), make(true, &server_cert, NULL, alpn_h2),
		"node.test", NULL, 4096);
	for (int round = 0; round < 3000; round++) {
		int way = (int)rp_rand_below(&rand, 2);
		struct rp_tls_session *from = way ? p.server : p.client;
		struct rp_tls_session *to = way ? p.client : p.server;
		size_t n = (size_t)rp_rand_below(&rand, rp_rand_below(&rand, 10) ? 500 : 70000);
		ssize_t got;

		for (size_t i = 0; i < n; i++)
			buf[i] = (uint8_t)((sent[way] + i) * 31);
		assert_int_equal(rp_tls_write(from, buf, n), n);
		sent[way] += n;
		while (rp_tls_pending(from).length > 0) {
			(void)carry(from, to, 1 + (size_t)rp_rand_below(&rand, 40000));
			while ((got = rp_tls_read(to, buf, sizeof(buf))) > 0) {
				for (ssize_t i = 0; i < got; i++)
					assert_int_equal(buf[i],
						(uint8_t)((received[way] + (uint64_t)i) * 31));
				received[way] += (uint64_t)got;
			}
			assert_int_equal(got, -EAGAIN);
		}
		assert_int_equal(received[way], sent[way]);
	}
	rp_tls_close(p.client);
	(void)carry(p.client, p.server, 4096);
	assert_int_equal(rp_tls_read(p.server, buf, sizeof(buf)), 0);
	assert_int_equal(rp_tls_read(p.server, buf, sizeof(buf)), 0);
	pair_close(&p);
}

/* A flipped bit anywhere ends the session, and nothing wrong is handed out. */
static void test_tampering(void **state)
{
	uint8_t buf[64], wire[2048];
	struct rp_span out;
	struct pair p;
	size_t n;

	pair_open(&p, make(false, NULL, &ca, alpn_h2), make(true, &server_cert, NULL, alpn_h2),
		"node.test", NULL, 4096);
	assert_int_equal(rp_tls_write(p.client, "secret", 6), 6);
	out = rp_tls_pending(p.client);
	n = RP_MIN(out.length, sizeof(wire));
	memcpy(wire, out.data, n);
	assert_null(memmem(wire, n, "secret", 6));
	wire[n - 1] ^= 1;
	assert_int_equal(rp_tls_feed(p.server, wire, n), n);
	assert_int_equal(rp_tls_read(p.server, buf, sizeof(buf)), -EPROTO);
	assert_int_equal(rp_tls_read(p.server, buf, sizeof(buf)), -EPROTO);
	pair_close(&p);
}

static void test_garbage(void **state)
{
	struct rp_tls_config *config = make(true, &server_cert, &ca, alpn_both);
	struct rp_rand rand = {7};
	uint8_t buf[512];

	for (int i = 0; i < 300; i++) {
		struct rp_tls_session *s = rp_tls_session_new(config, NULL, (struct rp_span){0});
		ssize_t result;

		for (size_t j = 0; j < sizeof(buf); j++)
			buf[j] = (uint8_t)rp_rand_u64(&rand);
		if (i % 2) {
			buf[0] = 0x16; /* a handshake record, so that it gets further */
			buf[1] = buf[2] = 3;
			buf[3] = 0;
			buf[4] = (uint8_t)(i % 200);
			buf[5] = 1;
		}
		(void)rp_tls_feed(s, buf, 1 + (size_t)rp_rand_below(&rand, sizeof(buf)));
		result = rp_tls_read(s, buf, sizeof(buf));
		assert_true(result == -EAGAIN || result == -EPROTO);
		rp_tls_session_destroy(s);
	}
	rp_tls_config_unref(config);
}

/* Sessions live on with the configuration they began with. */
static void test_reload(void **state)
{
	struct rp_tls_config *old = make(true, &server_cert, NULL, alpn_h2);
	uint8_t buf[16];
	struct pair p;

	pair_open(&p, make(false, NULL, &ca, alpn_h2), old, "node.test", NULL, 4096);
	rp_tls_config_unref(old); /* ours; the session's stays */
	p.server_config = make(true, &stranger_cert, NULL, alpn_h2);
	assert_int_equal(rp_tls_write(p.server, "still", 5), 5);
	(void)carry(p.server, p.client, 4096);
	assert_int_equal(rp_tls_read(p.client, buf, sizeof(buf)), 5);
	pair_close(&p);
}

static int broken_entropy(void *ctx, uint8_t *out, size_t length)
{
	return -1;
}

static void test_entropy(void **state)
{
	struct rp_tls_params p = {.skip_verify = true, .entropy = broken_entropy};
	char error[128];

	assert_null(rp_tls_config_new(&p, error, sizeof(error)));
	assert_non_null(strstr(error, "entropy: "));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_handshake),
		cmocka_unit_test(test_alpn),
		cmocka_unit_test(test_certificates),
		cmocka_unit_test(test_bad_parameters),
		cmocka_unit_test(test_bytes),
		cmocka_unit_test(test_tampering),
		cmocka_unit_test(test_garbage),
		cmocka_unit_test(test_reload),
		cmocka_unit_test(test_entropy),
	};

	return cmocka_run_group_tests(tests, setup, NULL);
}
