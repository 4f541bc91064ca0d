/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The prefix policy as tables: which keys and ranges each rule meets.
 */

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include <route/policy.h>

#define UUID "0f8c6a1e-8f1d-4c65-9d3c-1b2a3c4d5e6f"
#define LIST(...)                                                                    \
	{                                                                            \
		.items = (const char *const[]){__VA_ARGS__},                         \
		.count = sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *) \
	}

static struct rp_span span_of(const char *text)
{
	return (struct rp_span){(const uint8_t *)text, strlen(text)};
}

/* "\0" as etcd's word for no end cannot be written as a text. */
#define NO_END "(no end)"

static struct rp_span end_of(const char *text)
{
	static const uint8_t zero;

	return strcmp(text, NO_END) == 0 ? (struct rp_span){&zero, 1} : span_of(text);
}

static enum rp_policy_verdict ask(
	const struct rp_policy *p, bool write, const char *key, const char *end, bool loopback)
{
	return rp_policy_check(p, write, span_of(key), end_of(end), loopback);
}

static void test_nothing(void **state)
{
	struct rp_policy *p = rp_policy_create(&(struct rp_policy_config){0});

	assert_non_null(p);
	assert_int_equal(ask(p, true, "a", "", false), RP_POLICY_ALLOWED);
	assert_int_equal(ask(p, true, "", NO_END, false), RP_POLICY_ALLOWED);
	assert_true(rp_policy_may_leave(p, span_of("a"), false));
	assert_false(rp_policy_limits_calls(p));
	assert_false(rp_policy_limits_leaving(p));
	assert_false(rp_policy_has_zones(p));
	rp_policy_destroy(p);
	rp_policy_destroy(NULL);
}

static void test_calls(void **state)
{
	struct rp_policy *p = rp_policy_create(&(struct rp_policy_config){
		.local_only = LIST("/secret/", "/s2"),
		.local_only_except = LIST("/secret/public/"),
		.readonly = LIST("/secret/", "/ro\xff"),
	});
	static const struct {
		const char *key, *end;
		bool write, loopback;
		enum rp_policy_verdict verdict;
	} rows[] = {
		{"/secret/a", "", false, true, RP_POLICY_ALLOWED},
		{"/secret/a", "", false, false, RP_POLICY_LOCAL_ONLY},
		{"/secret/a", "", true, true, RP_POLICY_READONLY},
		{"/secret/a", "", true, false, RP_POLICY_LOCAL_ONLY},
		{"/secret/", "", false, false, RP_POLICY_LOCAL_ONLY},
		{"/secret", "", false, false, RP_POLICY_ALLOWED},
		{"/secret0", "", false, false, RP_POLICY_ALLOWED},
		{"/s2", "", false, false, RP_POLICY_LOCAL_ONLY},
		{"/s2x", "", false, false, RP_POLICY_LOCAL_ONLY},
		{"/s3", "", true, false, RP_POLICY_ALLOWED},
		{"/secret/public/a", "", false, false, RP_POLICY_ALLOWED},
		{"/secret/public", "", false, false, RP_POLICY_LOCAL_ONLY},
		/* An exception of one rule is none of another. */
		{"/secret/public/a", "", true, false, RP_POLICY_READONLY},
		/* Ranges: any key in them counts. */
		{"/", "0", false, false, RP_POLICY_LOCAL_ONLY},
		{"/", "0", true, true, RP_POLICY_READONLY},
		{"", NO_END, false, false, RP_POLICY_LOCAL_ONLY},
		{"/secret0", NO_END, false, true, RP_POLICY_ALLOWED},
		{"/a", "/b", true, false, RP_POLICY_ALLOWED},
		{"/s3", "/secret/", true, false, RP_POLICY_ALLOWED},
		{"/s3", "/secret/\x01", false, false, RP_POLICY_LOCAL_ONLY},
		{"/secret0", "/sf", false, false, RP_POLICY_ALLOWED},
		{"/secret/public/", "/secret/public0", false, false, RP_POLICY_ALLOWED},
		{"/secret/public/", "/secret/public1", false, false, RP_POLICY_LOCAL_ONLY},
		{"/secret/public/x", NO_END, false, false, RP_POLICY_LOCAL_ONLY},
		/* An end at or below the key holds nothing. */
		{"/secret/b", "/secret/a", true, false, RP_POLICY_ALLOWED},
		/* The last byte of a prefix may have none after it. */
		{"/ro\xff", "", true, true, RP_POLICY_READONLY},
		{"/ro\xff\xff", "", true, true, RP_POLICY_READONLY},
		{"/rp", "", true, true, RP_POLICY_ALLOWED},
		{"/ro", "", true, true, RP_POLICY_ALLOWED},
	};

	assert_non_null(p);
	for (size_t i = 0; i < RP_ARRAY_SIZE(rows); i++) {
		enum rp_policy_verdict v =
			ask(p, rows[i].write, rows[i].key, rows[i].end, rows[i].loopback);

		if (v != rows[i].verdict)
			fail_msg("row %zu, %s..%s: %d, expected %d", i, rows[i].key, rows[i].end, v,
				rows[i].verdict);
	}
	assert_true(rp_policy_limits_calls(p));
	rp_policy_destroy(p);
	/* What a client is told names the rule. */
	assert_non_null(strstr(rp_policy_text(RP_POLICY_LOCAL_ONLY), "local_only_prefix"));
	assert_non_null(strstr(rp_policy_text(RP_POLICY_READONLY), "readonly_prefix"));
	assert_string_equal(rp_policy_text(RP_POLICY_ALLOWED), "");
}

/* However a client spells a key of a queue, and however the prefix is spelled. */
static void test_queues(void **state)
{
	static const char *const prefixes[] = {"/q/jobs/", "/queue/jobs/"};
	static const struct {
		const char *key, *end;
		bool met;
	} rows[] = {
		{"/q/jobs/p/1", "", true},
		{"/queue/jobs/producer/1", "", true},
		{"/q/jobs/c/" UUID, "", true},
		{"/queue/jobs/consumer/" UUID, "", true},
		{"/q/jobs/17/tail", "", true},
		{"/q/jobs", "", true},
		{"/queue/jobs", "", true},
		{"/q/jobs2", "", false},
		{"/queue/jobs2/p/1", "", false},
		{"/q/job", "", false},
		{"/q/", "/q0", true},
		{"/queue/", "/queue0", true},
		{"/q/a", "/q/b", false},
	};

	for (size_t k = 0; k < RP_ARRAY_SIZE(prefixes); k++) {
		struct rp_policy *p = rp_policy_create(&(struct rp_policy_config){
			.readonly = LIST(prefixes[k]), .local = LIST(prefixes[k])});

		assert_non_null(p);
		for (size_t i = 0; i < RP_ARRAY_SIZE(rows); i++) {
			bool met = ask(p, true, rows[i].key, rows[i].end, true) != 0;

			if (met != rows[i].met)
				fail_msg("%s on %s..%s", prefixes[k], rows[i].key, rows[i].end);
			if (rows[i].end[0] == '\0')
				assert_int_equal(
					rp_policy_may_leave(p, span_of(rows[i].key), true), !met);
		}
		rp_policy_destroy(p);
	}
}

static void test_queue_words(void **state)
{
	static const struct {
		const char *prefix, *key;
		bool met;
	} rows[] = {
		{"/q/jobs/p/", "/queue/jobs/producer/1", true},
		{"/q/jobs/p/", "/q/jobs/p/1", true},
		{"/q/jobs/p/", "/q/jobs/c/" UUID, false},
		{"/queue/jobs/producer/a", "/q/jobs/p/a1", true},
		{"/queue/jobs/producer/a", "/q/jobs/p/b", false},
		{"/queue/jobs/prod", "/q/jobs/p/b", true},
		{"/queue/jobs/prod", "/q/jobs/producer/b", true},
		{"/queue/jobs/prod", "/q/jobs/17/b", false},
		{"/q/jobs/consumer/", "/q/jobs/c/" UUID, true},
		{"/q/jobs/consumer/" UUID, "/queue/jobs/c/" UUID "/3/t", true},
		{"/q/", "/queue/x", true},
		{"/q", "/queue/x", true},
		{"/que", "/q/x", true},
		{"/queue", "/q/x", true},
		{"/", "/q/x", true},
		{"/queuex", "/q/x", false},
	};

	for (size_t i = 0; i < RP_ARRAY_SIZE(rows); i++) {
		struct rp_policy *p = rp_policy_create(
			&(struct rp_policy_config){.readonly = LIST(rows[i].prefix)});

		assert_non_null(p);
		if ((ask(p, true, rows[i].key, "", true) != 0) != rows[i].met)
			fail_msg("%s on %s", rows[i].prefix, rows[i].key);
		rp_policy_destroy(p);
	}
}

static void test_leaving(void **state)
{
	struct rp_policy *p = rp_policy_create(&(struct rp_policy_config){
		.local = LIST("/local/"),
		.local_except = LIST("/local/shared/"),
		.zone = LIST("/zone/", "/local/shared/zone/"),
	});
	static const struct {
		const char *key;
		bool in_zone, outside;
	} rows[] = {
		{"/a", true, true},
		{"/local/a", false, false},
		{"/local/shared/a", true, true},
		{"/zone/a", true, false},
		{"/local/shared/zone/a", true, false},
		{"/local", true, true},
	};

	assert_non_null(p);
	for (size_t i = 0; i < RP_ARRAY_SIZE(rows); i++) {
		assert_int_equal(
			rp_policy_may_leave(p, span_of(rows[i].key), true), rows[i].in_zone);
		assert_int_equal(
			rp_policy_may_leave(p, span_of(rows[i].key), false), rows[i].outside);
	}
	assert_true(rp_policy_has_zones(p));
	assert_true(rp_policy_limits_leaving(p));
	assert_false(rp_policy_limits_calls(p));
	/* What may not leave may still be read and written here. */
	assert_int_equal(ask(p, true, "/local/a", "", false), RP_POLICY_ALLOWED);
	rp_policy_destroy(p);
}

/* All keys of a queue, or it is parted; and a policy has as many owners as took it. */
static void test_queue_leaving(void **state)
{
	static const struct {
		const char *local, *zone, *name;
		bool in_zone, outside;
	} rows[] = {
		{"/local/", "/zone/", "jobs", true, true},
		{"/local/", "/q/", "jobs", true, false},
		{"/local/", "/queue/jobs/", "jobs", true, false},
		{"/local/", "/queue/jobs/", "jobs2", true, true},
		{"/q/jobs/p/", "/zone/", "jobs", false, false},
		{"/queue/jobs/consumer/", "/zone/", "jobs", false, false},
		{"/queue/jobs/consumer/", "/zone/", "job", true, true},
		{"/q/jobs", "/zone/", "jobs", false, false},
	};

	for (size_t i = 0; i < RP_ARRAY_SIZE(rows); i++) {
		struct rp_policy *p = rp_policy_create(&(struct rp_policy_config){
			.local = LIST(rows[i].local), .zone = LIST(rows[i].zone)});

		assert_non_null(p);
		assert_ptr_equal(rp_policy_ref(p), p);
		rp_policy_destroy(p);
		assert_int_equal(
			rp_policy_queue_may_leave(p, span_of(rows[i].name), true), rows[i].in_zone);
		assert_int_equal(rp_policy_queue_may_leave(p, span_of(rows[i].name), false),
			rows[i].outside);
		rp_policy_destroy(p);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nothing),
		cmocka_unit_test(test_calls),
		cmocka_unit_test(test_queues),
		cmocka_unit_test(test_queue_words),
		cmocka_unit_test(test_leaving),
		cmocka_unit_test(test_queue_leaving),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
