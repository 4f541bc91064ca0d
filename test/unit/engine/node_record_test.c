/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include <engine/node_record.h>

static void a_record_comes_back_as_it_was(void **state)
{
	struct rp_node_record r = {.node = 7,
				      .boot = 99,
				      .tcp = {.family = 4, .port = 7400, .addr = {10, 0, 0, 1}},
				      .ktcp = {.family = 6, .port = 7401, .addr = {0xfd, [15] = 1}},
				      .per_peer = 1,
				      .shards = 4,
				      .rss_key = {1, 0xab, [39] = 0xff},
				      .rss_table_size = 128,
				      .rss_shards = 0xe,
				      .rings = 3,
				      .draining = true,
				      .name = "a;b",
				      .zone = "east",
				      .client_url = "http://10.0.0.1:2379"},
			      back = {.node = 7};
	char text[RP_NODE_RECORD_BYTES_MAX];
	int n = rp_node_record_format(&r, text, sizeof(text));

	assert_true(n > 0);
	assert_int_equal(rp_node_record_parse(&back, text, (size_t)n), 0);
	assert_int_equal(back.boot, 99);
	assert_int_equal(back.shards, 4);
	assert_memory_equal(back.rss_key, r.rss_key, sizeof(r.rss_key));
	assert_int_equal(back.rss_table_size, 128);
	assert_int_equal(back.rss_shards, 0xe);
	assert_int_equal(back.rings, 3);
	assert_true(back.draining);
	assert_memory_equal(&back.tcp, &r.tcp, sizeof(r.tcp));
	assert_memory_equal(&back.ktcp, &r.ktcp, sizeof(r.ktcp));
	assert_string_equal(back.name, "a_b");
	assert_string_equal(back.zone, "east");
	assert_string_equal(back.client_url, r.client_url);
	assert_string_equal(back.version, RP_VERSION);
	assert_int_equal(rp_node_record_format(&r, text, 20), -ENOSPC);
}

static void what_does_not_parse_is_absent(void **state)
{
	static const char text[] = "1;boot=5;tcp=10.0.0.1;ktcp=nonsense:1;k=x;new=field;;shards=2";
	struct rp_node_record r = {.node = 3};

	assert_int_equal(rp_node_record_parse(&r, text, sizeof(text) - 1), 0);
	assert_int_equal(r.tcp.family, 0);
	assert_int_equal(r.ktcp.family, 0);
	assert_int_equal(r.per_peer, 0);
	assert_int_equal(r.shards, 2);
	assert_false(r.draining);
	assert_int_equal(r.node, 3);
	assert_int_equal(rp_node_record_parse(&r, "2;boot=5", 8), -EINVAL);
	assert_int_equal(rp_node_record_parse(&r, "1;tcp=1.2.3.4:5", 15), -EINVAL);
	assert_int_equal(rp_node_record_parse(&r, "", 0), -EINVAL);
}

static void a_spread_that_does_not_parse_is_absent(void **state)
{
	static const char *const bad[] = {"", "00,128,3", "%s", "%s,128", "%s,127,3", "%s,1024,3",
		"%s,0,3", "%s,128,0", "%s,128,3x", "%sf,128,3", "%.79s,128,3"};
	char key[81], text[200], record[240];
	struct rp_node_record r = {.node = 3};

	memset(key, 'a', 80);
	key[80] = 0;
	for (size_t i = 0; i < RP_ARRAY_SIZE(bad); i++) {
		snprintf(text, sizeof(text), bad[i], key);
		snprintf(record, sizeof(record), "1;boot=5;rss=%s", text);
		assert_int_equal(rp_node_record_parse(&r, record, strlen(record)), 0);
		assert_int_equal(r.rss_table_size, 0);
	}
}

static void endpoints(void **state)
{
	static const char *const bad[] = {"", ":", "1.2.3.4", "1.2.3.4:", "1.2.3.4:0",
		"1.2.3.4:70000", "1.2.3.4:5x", "[::1:5", "[::1]5", "name:5", "1.2.3:5", "[]:5"};
	struct rp_endpoint e;
	char text[64];

	for (size_t i = 0; i < RP_ARRAY_SIZE(bad); i++)
		assert_int_equal(rp_endpoint_parse(&e, bad[i]), -EINVAL);
	assert_int_equal(rp_endpoint_parse(&e, "[fd00::2]:65535"), 0);
	rp_endpoint_format(&e, text, sizeof(text));
	assert_string_equal(text, "[fd00::2]:65535");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_record_comes_back_as_it_was),
		cmocka_unit_test(what_does_not_parse_is_absent),
		cmocka_unit_test(a_spread_that_does_not_parse_is_absent),
		cmocka_unit_test(endpoints),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
