/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include <conf/conf.h>

static void test_uuid(void **state)
{
	uint8_t a[16], b[16];
	char text[37];

	assert_int_equal(rp_conf_uuid_parse("00112233-4455-6677-8899-aabbccddeeff", a), 0);
	assert_int_equal(rp_conf_uuid_parse("00112233445566778899AABBCCDDEEFF", b), 0);
	assert_memory_equal(a, b, 16);
	/* 0011223344556677 xor 8899aabbccddeeff */
	assert_true(rp_conf_uuid_id(a) == 0x8888888888888888ull);
	rp_conf_uuid_format(a, text);
	assert_string_equal(text, "00112233-4455-6677-8899-aabbccddeeff");
	assert_true(rp_conf_uuid_parse("", a) < 0);
	assert_true(rp_conf_uuid_parse("00112233-4455-6677-8899-aabbccddeef", a) < 0);
	assert_true(rp_conf_uuid_parse("0011223304455-6677-8899-aabbccddeeff", a) < 0);
	assert_true(rp_conf_uuid_parse("g0112233445566778899AABBCCDDEEFF", a) < 0);
}

static void test_uuid_random(void **state)
{
	uint8_t random[16], uuid[16];
	char text[37];

	memset(random, 0xff, sizeof(random));
	assert_true(rp_conf_uuid_or_random("", random, uuid));
	rp_conf_uuid_format(uuid, text);
	assert_string_equal(text, "ffffffff-ffff-4fff-bfff-ffffffffffff");
	assert_false(rp_conf_uuid_or_random("00000000-0000-0000-0000-000000000001", random, uuid));
	assert_true(rp_conf_uuid_id(uuid) == 1);
}

static void test_endpoint(void **state)
{
	static const struct {
		const char *text, *back; /* NULL: refused */
	} rows[] = {
		{"localhost:2379", "localhost:2379"},
		{"http://10.0.0.1:1", "10.0.0.1:1"},
		{"HTTPS://a-b.example/", "a-b.example:7"},
		{"http://a:65535/", "a:65535"},
		{"[::1]:80", "[::1]:80"},
		{"[fd00::1]", "[fd00::1]:7"},
		{"unix:///run/x.sock", "unix:///run/x.sock"},
		{"", NULL},
		{"/", NULL},
		{":80", NULL},
		{"a:", NULL},
		{"a:0", NULL},
		{"a:65536", NULL},
		{"a:1x", NULL},
		{"a/b:1", NULL},
		{"::1", NULL},
		{"[::1", NULL},
		{"[::1]x", NULL},
		{"[10.0.0.1]:1", NULL},
		{"ftp://a:1", NULL},
		{"unix://", NULL},
		{"a\n:1", NULL},
	};

	for (unsigned i = 0; i < RP_ARRAY_SIZE(rows); i++) {
		struct rp_conf_endpoint e;
		char back[300];
		int rc = rp_conf_endpoint_parse(rows[i].text, 7, &e);

		if (rows[i].back == NULL) {
			if (rc == 0)
				fail_msg("%s was taken", rows[i].text);
			continue;
		}
		assert_int_equal(rc, 0);
		rp_conf_endpoint_format(&e, back, sizeof(back));
		assert_string_equal(back, rows[i].back);
	}
}

static void test_endpoint_long(void **state)
{
	struct rp_conf_endpoint e;
	char text[600];

	for (unsigned n = 1; n < sizeof(text); n++) {
		memset(text, 'a', n);
		text[n] = '\0';
		assert_int_equal(rp_conf_endpoint_parse(text, 1, &e) == 0, n < sizeof(e.host));
	}
}

static unsigned peers_of(const char *text, struct rp_conf_endpoint *peers)
{
	static struct rp_conf conf;
	struct rp_conf_report report;
	char *argv[] = {(char *)"ringpostd"};
	unsigned n;

	assert_int_equal(rp_conf_load_text("t", text, strlen(text), 1, argv, &conf, &report), 0);
	n = rp_conf_peers(&conf, peers, 8);
	rp_conf_free(&conf);
	rp_conf_report_free(&report);
	return n;
}

static void test_peers(void **state)
{
	struct rp_conf_endpoint p[8];

	assert_int_equal(peers_of("", p), 0);
	assert_int_equal(
		peers_of("initial_advertise_peer_urls: localhost:2379,b:1,http://B:1\n", p), 1);
	assert_string_equal(p[0].host, "b");
	assert_int_equal(p[0].port, 1);
	/* The scheme does not hide this node from itself, loopback names are one, ports tell nodes
	 * apart. */
	assert_int_equal(
		peers_of("listen_client_urls: 127.0.0.1:1\n"
			 "initial_advertise_peer_urls: [\"http://localhost:1\", \"[::1]:1\","
			 " \"localhost:2\", \"127.0.0.2:1\"]\n",
			p),
		2);
	assert_int_equal(p[0].port, 2);
	assert_string_equal(p[1].host, "127.0.0.2");
	assert_int_equal(peers_of("listen_client_urls: 0.0.0.0:1\n"
				  "initial_advertise_peer_urls: localhost:1,localhost:2\n",
				 p),
		1);
}

static void test_cpus(void **state)
{
	unsigned cpus[8];

	assert_int_equal(rp_conf_cpus_parse("3", cpus, 8), 1);
	assert_int_equal(cpus[0], 3);
	assert_int_equal(rp_conf_cpus_parse("4-6, 1,1", cpus, 8), 5);
	assert_int_equal(cpus[0], 4);
	assert_int_equal(cpus[2], 6);
	assert_int_equal(cpus[4], 1);
	assert_int_equal(rp_conf_cpus_parse("0-7", cpus, 8), 8);
	assert_true(rp_conf_cpus_parse("0-8", cpus, 8) < 0);
	assert_true(rp_conf_cpus_parse("", cpus, 8) < 0);
	assert_true(rp_conf_cpus_parse("1,", cpus, 8) < 0);
	assert_true(rp_conf_cpus_parse("2-1", cpus, 8) < 0);
	assert_true(rp_conf_cpus_parse("1-", cpus, 8) < 0);
	assert_true(rp_conf_cpus_parse("-1", cpus, 8) < 0);
	assert_true(rp_conf_cpus_parse("1024", cpus, 8) < 0);
	assert_true(rp_conf_cpus_parse("99999999999999", cpus, 8) < 0);
}

static void test_nets(void **state)
{
	uint8_t a4[4], a6[16], bits;

	assert_int_equal(rp_conf_ip4net_parse("10.1.2.3/24", a4, &bits), 0);
	assert_int_equal(a4[3], 3);
	assert_int_equal(bits, 24);
	assert_true(rp_conf_ip4net_parse("10.1.2.3", a4, &bits) < 0);
	assert_true(rp_conf_ip4net_parse("10.1.2.3/0", a4, &bits) < 0);
	assert_true(rp_conf_ip4net_parse("10.1.2.3/33", a4, &bits) < 0);
	assert_true(rp_conf_ip4net_parse("10.1.2/24", a4, &bits) < 0);
	assert_int_equal(rp_conf_ip6net_parse("fd00::9/128", a6, &bits), 0);
	assert_int_equal(a6[15], 9);
	assert_int_equal(bits, 128);
	assert_true(rp_conf_ip6net_parse("fd00::9/129", a6, &bits) < 0);
}

static void test_levels(void **state)
{
	enum rp_log_subject s;
	enum rp_log_level l;

	assert_int_equal(rp_conf_level_parse("tcp=trace", &s, &l), 0);
	assert_int_equal(s, RP_LOG_TCP);
	assert_int_equal(l, RP_LOG_TRACE);
	assert_true(rp_conf_level_parse("tcp", &s, &l) < 0);
	assert_true(rp_conf_level_parse("tc=info", &s, &l) < 0);
	assert_true(rp_conf_level_parse("tcp=critical", &s, &l) < 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_uuid),
		cmocka_unit_test(test_uuid_random),
		cmocka_unit_test(test_endpoint),
		cmocka_unit_test(test_endpoint_long),
		cmocka_unit_test(test_peers),
		cmocka_unit_test(test_cpus),
		cmocka_unit_test(test_nets),
		cmocka_unit_test(test_levels),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
