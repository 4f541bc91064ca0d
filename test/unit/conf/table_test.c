/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The table as a whole: every knob by its flag and by the file, at random, and back through the
 * dump.
 */

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <base/rand.h>

#include "../../../lib/conf/conf_priv.h"

#define ARGS_MAX 512

static struct rp_conf conf_a, conf_b;

/* A text that the knob takes. */
static void make_value(struct rp_rand *r, const struct conf_entry *e, char *text, size_t size)
{
	static const char *const samples[CONF_T_COUNT][3] = {
		[CONF_T_STR] = {"a", "x y: #z", "\xc3\xb6\t\"\\\xe2\x80\xa8"},
		[CONF_T_UUID] = {"", "00000000-0000-0000-0000-000000000001",
			"0123456789abcdef0123456789abcde0"},
		[CONF_T_CPUS] = {"auto", "0-3", "1, 5"},
		[CONF_T_IP4NETS] = {"10.0.0.1/24", "192.168.1.1/32", "1.2.3.4/1"},
		[CONF_T_IP6NETS] = {"fd00::1/64", "fd00:1::1/128", "fe80::1/10"},
		[CONF_T_IPS] = {"10.0.0.9", "fd00::9", "10.0.0.8"},
		[CONF_T_NEIGHS] = {"10.0.0.9=02:00:00:00:00:09", "fd00::9=0A:bb:cc:dd:ee:ff",
			"10.0.0.8=02:00:00:00:00:08"},
		[CONF_T_IMPAIR] = {"", "drop=0.5", "delay_us=3,cut=1"},
		[CONF_T_ENDPOINT] = {"", "localhost:1", "[::1]:9"},
		[CONF_T_LIST] = {"", "/a", "/a, /b/c"},
		[CONF_T_URLS] = {"a:1", "http://b:2,[::1]:3", "unix:///x"},
		[CONF_T_ZONES] = {"", "a=b", "a:1=b,c=d"},
		[CONF_T_LEVELS] = {"", "tcp=info", "queue=debug,link=error"},
		[CONF_T_ARGS] = {"", "-d", "--vdev=a,b"},
		[CONF_T_BOOL] = {"true", "off", "No"},
		[CONF_T_LOGLEVEL] = {"error", "trace", "debug"},
	};
	const struct conf_type_info *info = conf_type_info(e->type);
	uint64_t span = e->max - e->min + 1;

	if (info->choices)
		snprintf(text, size, "%s", info->choices[rp_rand_below(r, info->choices_count)]);
	else if (samples[e->type][0])
		snprintf(text, size, "%s", samples[e->type][rp_rand_below(r, 3)]);
	else
		snprintf(text, size, "%llu", (unsigned long long)(e->min + rp_rand_below(r, span)));
}

static char *dump_of(const struct rp_conf *conf)
{
	char *text = NULL;
	size_t length;
	FILE *f = open_memstream(&text, &length);

	rp_conf_dump(conf, f);
	fclose(f);
	return text;
}

static void expect_equal_one(struct rp_conf *a, struct conf_at at, void *arg)
{
	char path[128];

	conf_path(at, path, sizeof(path));
	if (!conf_value_equal(at.entry, conf_field(a, at), conf_field(arg, at)))
		fail_msg("%s differs", path);
}

/* Each flag is understood as the knob it is made from, and no two knobs share one. */
static void test_flags_unique(void **state)
{
	char names[256][160];
	unsigned count = 0;

	for (unsigned i = 0; i < conf_entries_count; i++) {
		const struct conf_entry *e = &conf_entries[i];

		if (e->kind == CONF_KNOB)
			conf_flag_name((struct conf_at){.entry = e}, names[count++], 160);
		for (unsigned j = 0; e->kind == CONF_LIST && j < conf_item_entries_count; j++) {
			if (strcmp(conf_item_entries[j].section, e->item) == 0)
				conf_flag_name(conf_at_item(e, 0, &conf_item_entries[j]),
					names[count++], 160);
		}
	}
	for (unsigned i = 0; i < count; i++) {
		for (unsigned j = 0; j < i; j++)
			assert_string_not_equal(names[i], names[j]);
	}
	assert_true(count > 90);
}

/* A seed's key that is also a section or a knob of ours must be meant as such. */
static void test_other_keys_apart(void **state)
{
	for (unsigned i = 0; i < conf_entries_count; i++) {
		const struct conf_entry *e = &conf_entries[i];

		if (e->section[0] == '\0' && e->kind == CONF_KNOB && conf_other_find(e->name))
			fail_msg("%s is a knob and said not to be used", e->name);
	}
	assert_non_null(conf_other_find("snapshot-count"));
	assert_non_null(conf_other_find("experimental_anything"));
	assert_null(conf_other_find("experimenta"));
}

/* Defaults are values that a user could write, and in range. */
static void test_defaults(void **state)
{
	char *argv[] = {(char *)"ringpostd"};
	struct rp_conf_report r;

	assert_int_equal(rp_conf_load_text("t", "", 0, 1, argv, &conf_a, &r), 0);
	assert_int_equal(r.exit_code, 0);
	assert_int_equal(r.warnings, 1);
	assert_int_equal(conf_a.links.listen, 7400);
	assert_int_equal(conf_a.links.dead_after_ms, 3000);
	assert_int_equal(conf_a.limits.queue_bytes, 256 << 20);
	assert_int_equal(conf_a.limits.message_bytes, 1572864);
	assert_int_equal(rp_conf_message_bytes(&conf_a), 1572864);
	assert_int_equal(conf_a.dpdk.memory_mib, RP_CONF_AUTO_U32);
	assert_true(conf_a.kv.initial_revision == RP_CONF_AUTO_U64);
	assert_int_equal(conf_a.listen_client_urls.count, 1);
	assert_string_equal(conf_a.listen_client_urls.items[0], "localhost:2379");
	assert_int_equal(conf_a.log_level, RP_LOG_INFO);
	assert_true(conf_a.deliver.unary_fallback);
	assert_int_equal(conf_a.ports_count, 0);
	rp_conf_free(&conf_a);
	rp_conf_report_free(&r);
}

struct args {
	char *argv[ARGS_MAX];
	int argc;
};

static void args_add(struct args *a, const char *flag, const char *value)
{
	char *text = NULL;

	assert_true(a->argc < ARGS_MAX);
	assert_true(asprintf(&text, "%s=%s", flag, value) > 0);
	a->argv[a->argc++] = text;
}

static void args_free(struct args *a)
{
	for (int i = 1; i < a->argc; i++)
		free(a->argv[i]);
}

/* What conf_check() wants of values together is not what this test is about. */
static bool crossed(const struct conf_entry *e)
{
	static const char *const names[] = {"per_peer", "heartbeat_ms", "dead_after_ms",
		"transport", "secret_file", "previous_secret_file", "cert_file", "key_file",
		"ca_file", "client_cert_auth", "peer_cert_file", "peer_key_file", "message_bytes",
		"queue_bytes", "max_request_bytes", "tombstone_s", "tombstone_max_s", "gateway",
		"ipv4", "ipv6", "device", "match", "dead_letter", "node", "peers", "mtu",
		"neighbours", "tls", "backend"};

	for (unsigned i = 0; i < RP_ARRAY_SIZE(names); i++) {
		if (strcmp(e->name, names[i]) == 0)
			return true;
	}
	return false;
}

static void random_items(struct rp_rand *r, struct args *a, const struct conf_entry *list)
{
	unsigned count = (unsigned)rp_rand_below(r, 4);
	char flag[200], value[200];

	for (unsigned n = 0; n < count; n++) {
		for (unsigned j = 0; j < conf_item_entries_count; j++) {
			const struct conf_entry *e = &conf_item_entries[j];

			if (strcmp(e->section, list->item) != 0)
				continue;
			if (crossed(e))
				snprintf(value, sizeof(value),
					strcmp(e->name, "gateway") == 0 ||
							strcmp(e->name, "neighbours") == 0
						? ""
					: strcmp(e->name, "mtu") == 0	  ? "1500"
					: strcmp(e->name, "backend") == 0 ? "memory"
					: strcmp(e->name, "ipv6") == 0	  ? "fd00::%u/64"
					: strcmp(e->name, "ipv4") == 0	  ? "10.0.%u.1/24"
					: strcmp(e->name, "peers") == 0	  ? "10.%u.0.0/16"
					: strcmp(e->name, "device") == 0  ? "net_null%u"
									  : "x%u",
					n + 1);
			else
				make_value(r, e, value, sizeof(value));
			conf_flag_name(conf_at_item(list, n, e), flag, sizeof(flag));
			args_add(a, flag, value);
		}
	}
}

/* Random flags for all knobs; the dump must load to the same values, and so must its dump. */
static void test_random_round_trip(void **state)
{
	uint64_t seed = getenv("RP_SEED") ? strtoull(getenv("RP_SEED"), NULL, 0) : 7;
	struct rp_rand r = {seed};

	print_message("seed %llu (RP_SEED)\n", (unsigned long long)seed);
	for (unsigned round = 0; round < 200; round++) {
		struct args a = {.argv = {(char *)"ringpostd"}, .argc = 1};
		struct rp_conf_report ra, rb;
		char *text;

		for (unsigned i = 0; i < conf_entries_count; i++) {
			const struct conf_entry *e = &conf_entries[i];
			char flag[200], value[200];

			if (e->kind == CONF_LIST)
				random_items(&r, &a, e);
			if (e->kind != CONF_KNOB || crossed(e) || rp_rand_below(&r, 4) == 0)
				continue;
			make_value(&r, e, value, sizeof(value));
			conf_flag_name((struct conf_at){.entry = e}, flag, sizeof(flag));
			args_add(&a, flag, value);
		}
		rp_conf_load_text("t", "", 0, a.argc, a.argv, &conf_a, &ra);
		if (ra.errors)
			rp_conf_report_print(&ra, stderr);
		assert_int_equal(ra.errors, 0);
		text = dump_of(&conf_a);
		rp_conf_load_text("dump", text, strlen(text), 1, a.argv, &conf_b, &rb);
		if (rb.errors)
			rp_conf_report_print(&rb, stderr);
		assert_int_equal(rb.errors, 0);
		assert_int_equal(conf_a.ports_count, conf_b.ports_count);
		assert_int_equal(conf_a.queues.policies_count, conf_b.queues.policies_count);
		assert_int_equal(conf_a.tcp.routes_count, conf_b.tcp.routes_count);
		conf_visit(&conf_a, expect_equal_one, &conf_b);
		free(text);
		args_free(&a);
		rp_conf_free(&conf_a);
		rp_conf_free(&conf_b);
		rp_conf_report_free(&ra);
		rp_conf_report_free(&rb);
	}
}

/* One below and one above each range is refused, the ends are taken. */
static void test_ranges(void **state)
{
	unsigned checked = 0;

	for (unsigned i = 0; i < conf_entries_count; i++) {
		const struct conf_entry *e = &conf_entries[i];
		struct rp_conf_memory *m = conf_memory_new();
		uint64_t values[4] = {e->min, e->max, e->max + 1, e->min - 1};
		uint64_t field;
		char text[32], why[100];

		for (unsigned v = 0; v < 4 && e->kind == CONF_KNOB && e->max > 0; v++) {
			if (v == 3 && e->min == 0)
				continue;
			snprintf(text, sizeof(text), "%llu", (unsigned long long)values[v]);
			field = 0;
			assert_int_equal(
				conf_value_parse(e, text, &field, m, why, sizeof(why)), v < 2);
			checked++;
		}
		free(m->origins);
		free(m);
	}
	assert_true(checked > 100);
}

static void load_or_fail(struct rp_conf *c, const char *text)
{
	char *argv[] = {(char *)"ringpostd"};
	struct rp_conf_report r;

	rp_conf_load_text("t", text, strlen(text), 1, argv, c, &r);
	assert_int_equal(r.errors, 0);
	rp_conf_report_free(&r);
}

static void test_keep_fixed(void **state)
{
	struct rp_conf_report r = {0};

	load_or_fail(&conf_a,
		"name: old\nlinks: {listen: 1}\nports:\n"
		"  - {device: a, ipv4: 10.0.0.1/24}\n  - {device: b, ipv4: 10.0.1.1/24}\n");
	load_or_fail(&conf_b, "name: new\nlinks: {listen: 2}\nlimits: {queue_depth: 3}\nports:\n"
			      "  - {device: c, ipv4: 10.0.0.1/24}\n");
	/* listen, ports, and the first port's device; the second port comes back whole */
	rp_conf_keep_fixed(&conf_a, &conf_b, &r, NULL);
	assert_string_equal(conf_b.name, "new");
	assert_int_equal(conf_b.limits.queue_depth, 3);
	assert_int_equal(conf_b.links.listen, 1);
	assert_int_equal(conf_b.ports_count, 2);
	assert_string_equal(conf_b.ports[0].device, "a");
	assert_string_equal(conf_b.ports[1].device, "b");
	assert_string_equal(conf_b.ports[1].ipv4.items[0], "10.0.1.1/24");
	assert_int_equal(r.errors, 0);
	assert_true(r.warnings >= 3);
	rp_conf_report_free(&r);
	rp_conf_free(&conf_a);
	/* Texts were copied, not borrowed. */
	assert_string_equal(conf_b.ports[1].device, "b");
	rp_conf_free(&conf_b);
}

static void test_nearest(void **state)
{
	char text[100];

	assert_int_equal(conf_edit_distance("abc", "abc"), 0);
	assert_int_equal(conf_edit_distance("abc", "acb"), 1);
	assert_int_equal(conf_edit_distance("", "abc"), 3);
	assert_int_equal(conf_edit_distance("kitten", "sitting"), 3);
	conf_nearest("links", false, "secretfile", text, sizeof(text));
	assert_string_equal(text, "secret_file");
	conf_nearest("links", false, "zzzzzz", text, sizeof(text));
	assert_string_equal(text, "");
}

/* scdoc's markup characters are escaped. */
static void cut_backslashes(char *text)
{
	char *to = text;

	for (; *text; text++) {
		if (*text != '\\')
			*to++ = *text;
	}
	*to = '\0';
}

/* The help names every knob, and so do the pages made from the table. */
static void test_help(void **state)
{
	void (*const makers[])(FILE *) = {rp_conf_help, rp_conf_help_markdown, rp_conf_help_man};

	for (unsigned m = 0; m < RP_ARRAY_SIZE(makers); m++) {
		char *text = NULL;
		size_t length;
		FILE *f = open_memstream(&text, &length);

		makers[m](f);
		fclose(f);
		cut_backslashes(text);
		for (unsigned i = 0; i < conf_entries_count; i++)
			assert_non_null(strstr(text, conf_entries[i].help));
		for (unsigned i = 0; i < conf_item_entries_count; i++)
			assert_non_null(strstr(text, conf_item_entries[i].help));
		free(text);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_flags_unique),
		cmocka_unit_test(test_other_keys_apart),
		cmocka_unit_test(test_defaults),
		cmocka_unit_test(test_random_round_trip),
		cmocka_unit_test(test_ranges),
		cmocka_unit_test(test_keep_fixed),
		cmocka_unit_test(test_nearest),
		cmocka_unit_test(test_help),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
