/* SPDX-License-Identifier: Apache-2.0 */
/* What the configuration says of our TCP stack arrives there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include <conf/conf.h>
#include <node/node_priv.h>

static struct rp_conf conf;

static void read_text(const char *text)
{
	static char *argv[] = {"test"};
	struct rp_conf_report report;
	int rc = rp_conf_load_text("test", text, strlen(text), 1, argv, &conf, &report);

	if (rc != 0)
		rp_conf_report_print(&report, stderr);
	assert_int_equal(rc, 0);
	rp_conf_report_free(&report);
}

static void nothing_said(void **state)
{
	struct rp_tcp_config t = {0};

	read_text("ports:\n  - {device: net_ring0, ipv4: 10.0.0.1/24}\n");
	node_tcp_config(&conf, 0, &t);
	assert_int_equal(t.syn_cookies, RP_SYN_COOKIES_AUTO);
	assert_false(t.pmtu_blackhole);
	/* What holds for links holds for all. */
	assert_int_equal(t.route_count, 1);
	assert_int_equal(t.routes[0].prefix_length, 0);
	assert_int_equal(t.routes[0].options.congestion, RP_CONGESTION_DCTCP);
	assert_int_equal(t.routes[0].options.ecn, RP_ECN_INSIST);
	assert_int_equal(t.routes[0].options.rto_min_ns, 5 * RP_NS_PER_MS);
	assert_int_equal(t.routes[0].options.ack_delay_max_ns, RP_NS_PER_MS);
	assert_int_equal(t.net.iface.addresses[0].prefix_length, 24);
	assert_int_equal(t.net.iface.ttl, 64);
	assert_int_equal(t.net.iface.dscp, 0);
	rp_conf_free(&conf);
}

static void all_of_it(void **state)
{
	struct rp_tcp_config t = {0};
	const struct rp_conn_options *o;
	static const union rp_ip four = RP_IP4(10, 1, 0, 0);

	read_text("ports:\n"
		  "  - {device: net_ring0, ipv4: 10.0.0.1/24, ttl: 5, dscp: 46}\n"
		  "links: {congestion: reno, mtu: 8000}\n"
		  "tcp:\n"
		  "  syn_cookies: always\n"
		  "  pmtu_blackhole: true\n"
		  "  routes:\n"
		  "    - {peers: 10.1.0.0/16, congestion: cubic, ecn: accept, rto_min_ms: 200,\n"
		  "       ack_delay_us: 40000, mtu: 1400, ack_profile: quick}\n"
		  "    - {peers: 'fd00:1::/32', ecn: off}\n");
	node_tcp_config(&conf, 0, &t);
	assert_int_equal(t.syn_cookies, RP_SYN_COOKIES_ALWAYS);
	assert_true(t.pmtu_blackhole);
	assert_int_equal(t.net.iface.ttl, 5);
	assert_int_equal(t.net.iface.dscp, 46);
	assert_int_equal(t.route_count, 3);
	o = &t.routes[1].options;
	assert_true(rp_ip_equal(&t.routes[1].prefix, &four));
	assert_int_equal(t.routes[1].prefix_length, 96 + 16);
	assert_int_equal(o->congestion, RP_CONGESTION_CUBIC);
	assert_int_equal(o->ecn, RP_ECN_ACCEPT);
	assert_int_equal(o->rto_min_ns, 200 * RP_NS_PER_MS);
	assert_int_equal(o->ack_delay_max_ns, 40 * RP_NS_PER_MS);
	assert_int_equal(o->mtu, 1400);
	assert_int_equal(o->ack_profile, RP_ACK_QUICK);
	/* What a route does not say, the links' section does. */
	o = &t.routes[2].options;
	assert_int_equal(t.routes[2].prefix_length, 32);
	assert_int_equal(o->congestion, RP_CONGESTION_RENO);
	assert_int_equal(o->ecn, RP_ECN_OFF);
	assert_int_equal(o->mtu, 8000);
	assert_int_equal(o->ack_profile, RP_ACK_DEFAULT);
	rp_conf_free(&conf);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_said),
		cmocka_unit_test(all_of_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
