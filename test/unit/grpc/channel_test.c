/* SPDX-License-Identifier: Apache-2.0 */

/* Connections: made, lost, watched over, ended, with and without TLS. */

#include <tls/tls.h>

#include "../tls/test_certs.h"
#include "client_fixture.h"

static void test_lost(void **state)
{
	struct rp_grpc_client_call *call;

	start();
	unary("/t.S/Echo", "x", 1);
	call = bidi("/t.S/Bidi");
	got.finished = 0;
	rp_grpc_conn_close(rp_grpc_call_conn(seen.call));
	turn_until(is_lost);
	assert_int_equal(seen.why, RP_GRPC_CANCEL_LOST);
	assert_int_equal(seen.conns_closed, 1);
	assert_int_equal(got.finished, 1);
	assert_int_equal(got.code, RP_GRPC_UNAVAILABLE);
	(void)call;
	/* Calls without a connection fail, but not within the call. */
	unary("/t.S/Echo", "x", 1);
	assert_int_equal(got.code, RP_GRPC_UNAVAILABLE);
	got.finished = 0;
	call = rp_grpc_channel_call(channel, "/t.S/Bidi", NULL, 0, RP_NEVER, &client_ops, NULL);
	assert_int_equal(rp_grpc_client_call_send(call, "x", 1), -EPIPE);
	turn_until(is_finished);
	assert_int_equal(got.code, RP_GRPC_UNAVAILABLE);
	call = rp_grpc_channel_call(channel, "/t.S/Bidi", NULL, 0, RP_NEVER, &client_ops, NULL);
	rp_grpc_client_call_cancel(call);
	turns(3);
}

/* A peer that takes bytes and says nothing is dead within interval + timeout. */
static void test_keepalive(void **state)
{
	uint64_t before;
	int fds[2];

	channel_config.ping_interval_ns = 40 * RP_NS_PER_MS;
	channel_config.ping_timeout_ns = 500 * RP_NS_PER_MS; /* a busy machine stalls */
	server_config.client_ping_min_ns = 0;
	start();
	for (uint64_t end = rp_loop_now_ns(loop) + 300 * RP_NS_PER_MS; rp_loop_now_ns(loop) < end;)
		turns(1);
	assert_int_equal(got.state, RP_GRPC_CHANNEL_READY); /* pings are answered */
	rp_grpc_channel_disconnect(channel);
	assert_int_equal(rp_grpc_channel_state(channel), RP_GRPC_CHANNEL_IDLE);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
	assert_int_equal(rp_grpc_channel_attach(channel, fds[0]), 0);
	/* SETTINGS, and then silence. */
	assert_int_equal(write(fds[1], "\0\0\0\4\0\0\0\0\0", 9), 9);
	got.state = RP_GRPC_CHANNEL_IDLE;
	turn_until(is_ready);
	before = rp_loop_now_ns(loop);
	turn_until(is_lost);
	assert_string_equal(got.reason, "keepalive ping not answered");
	assert_true(rp_loop_now_ns(loop) - before >= 500 * RP_NS_PER_MS);
	assert_true(rp_loop_now_ns(loop) - before < 5 * RP_NS_PER_S);
	close(fds[1]);
}

/* A client that pings more often than allowed is sent away, with the reason. */
static void test_too_many_pings(void **state)
{
	channel_config.ping_interval_ns = 20 * RP_NS_PER_MS;
	start();
	turn_until(is_lost);
	assert_string_equal(got.reason, "grpc: the server is going away: too_many_pings");
	for (int i = 0; i < 200 && rp_grpc_server_stats(server).conns_open > 0; i++)
		turns(1);
	assert_int_equal(rp_grpc_server_stats(server).conns_closed_pings, 1);
}

static void test_server_keepalive(void **state)
{
	int fds[2];

	server_config.ping_interval_ns = 30 * RP_NS_PER_MS;
	server_config.ping_timeout_ns = 500 * RP_NS_PER_MS;
	server_config.handshake_timeout_ns = 500 * RP_NS_PER_MS;
	start();
	for (uint64_t end = rp_loop_now_ns(loop) + 200 * RP_NS_PER_MS; rp_loop_now_ns(loop) < end;)
		turns(1);
	assert_int_equal(got.state, RP_GRPC_CHANNEL_READY);
	assert_int_equal(rp_grpc_server_stats(server).conns_open, 1);
	/* One that is silent after its preface, and one from the start. */
	for (int i = 0; i < 2; i++) {
		assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
		assert_int_equal(rp_grpc_server_attach(server, fds[0], NULL), 0);
		if (i == 0)
			assert_int_equal(write(fds[1],
						 "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
						 "\0\0\0\4\0\0\0\0\0",
						 33),
				33);
		for (int j = 0; j < 2000 && rp_grpc_server_stats(server).conns_open > 1; j++)
			turns(1);
		assert_int_equal(
			rp_grpc_server_stats(server).conns_closed_timeout, (unsigned)i + 1);
		close(fds[1]);
	}
}

static void test_connect(void **state)
{
	char address[32];
	uint16_t port;

	start_server();
	assert_int_equal(rp_grpc_server_listen(server, "localhost:0", NULL, &port), 0);
	snprintf(address, sizeof(address), "localhost:%u", port);
	channel = rp_grpc_channel_new(loop, address, &channel_config);
	assert_int_equal(rp_grpc_channel_connect(channel), 0);
	assert_int_equal(rp_grpc_channel_connect(channel), 0);
	turn_until(is_ready);
	unary("/t.S/Echo", "hello", 5);
	assert_int_equal(got.code, RP_GRPC_OK);
	/* The listener's end is not the connection's; a new attempt is refused. */
	rp_grpc_server_close_listeners(server);
	unary("/t.S/Echo", "hello", 5);
	rp_grpc_channel_disconnect(channel);
	assert_int_equal(rp_grpc_channel_connect(channel), 0);
	turn_until(is_lost);
	assert_string_equal(got.reason, strerror(ECONNREFUSED));
	assert_int_equal(rp_grpc_server_listen(server, address, NULL, NULL), 1);
	assert_int_equal(rp_grpc_channel_connect(channel), 0);
	turn_until(is_ready);
	unary("/t.S/Echo", "again", 5);
	assert_int_equal(got.code, RP_GRPC_OK);
}

static void test_resolve(void **state)
{
	channel = rp_grpc_channel_new(loop, "no-such-name.invalid:1", &channel_config);
	assert_int_equal(rp_grpc_channel_connect(channel), 0);
	turn_until(is_lost);
	assert_string_equal(got.reason, "no address for the name");
	/* Given up while the thread is at it. */
	assert_int_equal(rp_grpc_channel_connect(channel), 0);
	turns(1);
	rp_grpc_channel_disconnect(channel);
	turns(3);
	assert_null(rp_grpc_channel_new(loop, "nonsense", &channel_config));
	assert_int_equal(errno, EINVAL);
	assert_null(rp_grpc_channel_new(loop, "a:b:1", &channel_config));
	assert_null(rp_grpc_channel_new(loop, "host:70000", &channel_config));
}

static void test_connect_timeout(void **state)
{
	int fds[2];

	channel_config.connect_timeout_ns = 30 * RP_NS_PER_MS;
	channel = rp_grpc_channel_new(loop, "test:1", &channel_config);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
	assert_int_equal(rp_grpc_channel_attach(channel, fds[0]), 0);
	turn_until(is_lost);
	assert_string_equal(got.reason, "no connection in time");
	close(fds[1]);
}

static void test_drain(void **state)
{
	struct rp_grpc_client_call *call;

	start();
	call = bidi("/t.S/Bidi");
	rp_grpc_server_drain(server, 500 * RP_NS_PER_MS, "etcdserver: server stopped", NULL, NULL);
	rp_grpc_client_call_send(call, "x", 1);
	turn_until(is_finished);
	assert_int_equal(seen.messages, 1);
	expect(RP_GRPC_UNAVAILABLE, "etcdserver: server stopped");
	assert_int_equal(seen.why, RP_GRPC_CANCEL_STOPPED);
	turn_until(is_lost);
	assert_non_null(strstr(got.reason, "going away"));
	for (int i = 0; i < 2000 && rp_grpc_server_stats(server).conns_open > 0; i++)
		turns(1);
	assert_int_equal(rp_grpc_server_stats(server).conns_open, 0);
}

/* Reconnecting, calling, cancelling and destroying from within callbacks. */
static unsigned nested;

static void nested_done(
	void *ctx, enum rp_grpc_code code, const char *message, const uint8_t *data, size_t length)
{
	nested++;
	if (ctx)
		rp_grpc_channel_destroy(channel);
	else if (channel)
		rp_grpc_channel_unary(
			channel, "/t.S/Echo", NULL, 0, RP_NEVER, "y", 1, nested_done, &nested);
	if (ctx)
		channel = NULL;
}

static void test_nested_destroy(void **state)
{
	start();
	for (int i = 0; i < 5; i++)
		rp_grpc_channel_unary(
			channel, "/t.S/Echo", NULL, 0, RP_NEVER, "x", 1, nested_done, NULL);
	for (int i = 0; i < 200 && channel; i++)
		turns(1);
	assert_null(channel);
	assert_int_equal(nested, 10); /* each ended once, the last five by the destroy */
	turns(5);
}

static void destroying_message(
	struct rp_grpc_client_call *call, const uint8_t *data, size_t length, void *ctx)
{
	got.messages++;
	rp_grpc_channel_destroy(channel);
	channel = NULL;
}

static const struct rp_grpc_client_ops destroying_ops = {
	.on_message = destroying_message, .on_finish = on_finish};

static void test_destroy_in_message(void **state)
{
	start();
	rp_grpc_channel_call(channel, "/t.S/Bidi", NULL, 0, RP_NEVER, &destroying_ops, NULL);
	turn_until(is_started);
	for (int i = 0; i < 10; i++)
		rp_grpc_call_send(seen.call, "x", 1, 0);
	turn_until(is_finished);
	assert_int_equal(got.messages, 1);
	assert_int_equal(got.code, RP_GRPC_CANCELLED);
	turn_until(is_cancelled);
}

static void reconnecting_state(
	struct rp_grpc_channel *c, enum rp_grpc_channel_state state, const char *reason, void *ctx)
{
	on_state(c, state, reason, ctx);
	if (state == RP_GRPC_CHANNEL_LOST)
		assert_int_equal(rp_grpc_channel_connect(c), 0);
	if (state == RP_GRPC_CHANNEL_READY)
		rp_grpc_channel_unary(c, "/t.S/Echo", NULL, 0, RP_NEVER, "x", 1, on_done, NULL);
}

static void test_reconnect(void **state)
{
	char address[32];
	uint16_t port;

	channel_config.on_state = reconnecting_state;
	start_server();
	rp_grpc_server_listen(server, "127.0.0.1:0", NULL, &port);
	snprintf(address, sizeof(address), "127.0.0.1:%u", port);
	channel = rp_grpc_channel_new(loop, address, &channel_config);
	rp_grpc_channel_connect(channel);
	for (unsigned i = 1; i <= 5; i++) {
		turn_until(is_finished);
		assert_int_equal(got.code, RP_GRPC_OK);
		got.finished = seen.starts = 0;
		(void)bidi("/t.S/Bidi");
		rp_grpc_conn_close(rp_grpc_call_conn(seen.call));
		turn_until(is_finished);
		assert_int_equal(got.code, RP_GRPC_UNAVAILABLE);
		got.finished = 0;
	}
	turn_until(is_finished);
	assert_int_equal(got.states, 11);
}

static void test_backoff(void **state)
{
	struct rp_rand rand = {3};

	for (unsigned i = 0; i < 1000; i++) {
		uint64_t ns = rp_grpc_backoff_ns(&rand, i % 20, RP_NS_PER_MS, RP_NS_PER_S);

		assert_true(ns >= 800 * RP_NS_PER_US && ns <= 1200 * RP_NS_PER_MS);
		if (i % 20 == 19)
			assert_true(ns >= 800 * RP_NS_PER_MS);
	}
}

/* TLS: the same calls, then certificates that do not do, then a reload. */
static const uint8_t loopback[4] = {127, 0, 0, 1};

static struct rp_tls_config *tls_config(
	bool is_server, const struct test_cert *cert, const struct test_cert *trust)
{
	static const char *const alpn[] = {"h2", "http/1.1", NULL};
	struct rp_tls_params p = {
		.server = is_server,
		.cert = test_span(cert ? cert->cert : ""),
		.key = test_span(cert ? cert->key : ""),
		.ca = test_span(trust ? trust->cert : ""),
		.require_peer_cert = is_server && trust,
		.alpn = alpn,
	};

	return rp_tls_config_new(&p, NULL, 0);
}

static void tls_connect(uint16_t port, struct rp_tls_config *tls)
{
	char address[32];

	rp_grpc_channel_destroy(channel);
	got.state = RP_GRPC_CHANNEL_IDLE;
	channel_config.tls = tls;
	snprintf(address, sizeof(address), "127.0.0.1:%u", port);
	channel = rp_grpc_channel_new(loop, address, &channel_config);
	rp_tls_config_unref(tls);
	assert_int_equal(rp_grpc_channel_connect(channel), 0);
}

static void test_tls(void **state)
{
	struct test_cert ca, first, second, client, stranger;
	struct rp_tls_config *tls;
	static uint8_t data[300000];
	struct rp_grpc_client_call *call;
	uint16_t port;
	int listener;

	test_cert_make(&ca, NULL, "ca", NULL, NULL);
	test_cert_make(&first, &ca, "first", NULL, loopback);
	test_cert_make(&second, &ca, "second", "node.test", NULL);
	test_cert_make(&client, &ca, "someone", NULL, NULL);
	test_cert_make(&stranger, NULL, "stranger", NULL, NULL);
	start_server();
	tls = tls_config(true, &first, &ca);
	listener = rp_grpc_server_listen(server, "127.0.0.1:0", tls, &port);
	rp_tls_config_unref(tls);
	tls_connect(port, tls_config(false, &client, &ca));
	turn_until(is_ready);
	unary("/t.S/Echo", data, sizeof(data));
	assert_int_equal(got.code, RP_GRPC_OK);
	assert_int_equal(got.length, sizeof(data));
	call = bidi("/t.S/Bidi");
	assert_string_equal(rp_grpc_conn_peer_cn(rp_grpc_call_conn(seen.call)), "someone");
	assert_true(rp_grpc_conn_is_local(rp_grpc_call_conn(seen.call)));
	for (uint64_t i = 1; i <= 50; i++)
		assert_int_equal(rp_grpc_call_send(seen.call, data, 10000, i), 0);
	for (int i = 0; i < 200 && got.messages < 50; i++)
		turns(1);
	assert_int_equal(got.messages, 50);
	assert_int_equal(seen.written, 50);
	(void)call;
	/* Reload: the open connection stays, a new one sees the new certificate, whose name
	 * differs. */
	tls = tls_config(true, &second, &ca);
	rp_grpc_server_set_tls(server, listener, tls);
	rp_tls_config_unref(tls);
	unary("/t.S/Echo", "x", 1);
	assert_int_equal(got.code, RP_GRPC_OK);
	tls_connect(port, tls_config(false, &client, &ca));
	turn_until(is_lost);
	channel_config.server_name = "node.test";
	tls_connect(port, tls_config(false, &client, &ca));
	turn_until(is_ready);
	tls_connect(port, tls_config(false, &stranger, &ca));
	turn_until(is_lost);
	tls_connect(port, tls_config(false, &client, &stranger));
	turn_until(is_lost);
	assert_int_equal(rp_grpc_server_stats(server).conns_closed_protocol, 0);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(test_lost),
		T(test_keepalive),
		T(test_too_many_pings),
		T(test_server_keepalive),
		T(test_connect),
		T(test_resolve),
		T(test_connect_timeout),
		T(test_drain),
		T(test_nested_destroy),
		T(test_destroy_in_message),
		T(test_reconnect),
		T(test_backoff),
		T(test_tls),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
