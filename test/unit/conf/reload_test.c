/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A configuration that is read again: what differs by kind of knob, and what makes all of it no
 * good.
 */

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "../../../lib/conf/conf_priv.h"

static struct rp_conf running, next;
static struct rp_conf_report report;
static struct rp_conf_changes changes;
static struct rp_conf_plan plan;
static const struct rp_conf_host host = {
	.cpus = {0, 1}, .cpus_count = 2, .memory_free_bytes = 8ull << 30};

static void file_is(const char *text)
{
	FILE *f = fopen("config.yml", "w");

	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

static void results_free(void)
{
	rp_conf_free(&next);
	rp_conf_report_free(&report);
	rp_conf_changes_free(&changes);
}

static int enter_folder(void **state)
{
	static char folder[] = "/tmp/rp_reload_testXXXXXX";

	*state = mkdtemp(folder);
	return *state && chdir(*state) == 0 ? 0 : -1;
}

static int leave_folder(void **state)
{
	results_free();
	rp_conf_free(&running);
	unlink("config.yml");
	return chdir("/") == 0 && rmdir(*state) == 0 ? 0 : -1;
}

static struct rp_conf_source source_of(char **argv)
{
	struct rp_conf_source s = {.argv = argv};

	while (argv[s.argc])
		s.argc++;
	return s;
}

static char *no_flags[] = {(char *)"ringpostd", NULL};

/* As a node starts: loaded, and with each auto resolved. */
static bool start_is(const char *text, char **argv)
{
	struct rp_conf_source s = source_of(argv);
	struct rp_conf_report r;
	bool good;

	file_is(text);
	rp_conf_free(&running);
	good = rp_conf_load(s.argc, s.argv, &running, &r) == 0 && r.errors == 0 &&
	       rp_conf_resolve(&running, &host, &plan, &r) == 0;
	rp_conf_report_free(&r);
	return good;
}

static void start_with(const char *text, char **argv)
{
	assert_true(start_is(text, argv));
}

static int reload(char **argv)
{
	struct rp_conf_source s = source_of(argv);

	results_free();
	return rp_conf_reload(&running, &s, &next, &report, &changes);
}

static const struct rp_conf_change *change_of(const char *path)
{
	for (unsigned i = 0; i < changes.count; i++)
		if (strcmp(changes.items[i].path, path) == 0)
			return &changes.items[i];
	return NULL;
}

static void assert_change(const char *path, const char *was, const char *is, bool fixed)
{
	const struct rp_conf_change *c = change_of(path);

	if (!c)
		fail_msg("no change of %s", path);
	assert_string_equal(c->was, was);
	assert_string_equal(c->is, is);
	assert_int_equal(c->fixed, fixed);
}

static void test_same(void **state)
{
	start_with("term: 3\ndpdk: {memory_mib: auto}\n", no_flags);
	assert_int_equal(reload(no_flags), 0);
	assert_int_equal(changes.count, 0);
	assert_int_equal(changes.live + changes.fixed, 0);
	assert_true(changes.same > 50);
	/* Written or not, auto is the wish that was resolved at start. */
	file_is("term: 3\nshards: {idle: auto, cpus: auto}\n");
	assert_int_equal(reload(no_flags), 0);
	assert_int_equal(changes.count, 0);
	assert_int_equal(next.dpdk.memory_mib, running.dpdk.memory_mib);
}

static void test_kinds(void **state)
{
	start_with("name: a\nlog_levels: [tcp=debug]\nlinks: {listen: 7401}\n", no_flags);
	file_is("name: b\nlinks: {listen: 7402, ecn: false}\nqueues: {resume_ms: 5}\n"
		"limits: {queue_bytes: 64 MiB}\ndata_dir: x\n");
	assert_int_equal(reload(no_flags), 0);
	assert_change("name", "a", "b", false);
	assert_change("log_levels", "[\"tcp=debug\"]", "[]", false);
	assert_change("queues.resume_ms", "1000", "5", false);
	assert_change("limits.queue_bytes", "256 MiB", "64 MiB", false);
	assert_change("links.listen", "7401", "7402", true);
	assert_change("links.ecn", "true", "false", true);
	/* What has no effect does not change; that it is set is said as at start. */
	assert_null(change_of("data_dir"));
	assert_int_equal(changes.count, 6);
	assert_int_equal(changes.live, 4);
	assert_int_equal(changes.fixed, 2);
	assert_string_equal(next.name, "b");
	assert_int_equal(next.log_levels.count, 0);
	assert_int_equal(next.links.listen, 7401);
	assert_true(next.links.ecn);
}

static void test_ports(void **state)
{
	start_with("ports:\n  - {device: a, ipv4: 10.0.0.1/24}\n"
		   "  - {device: b, ipv4: 10.0.1.1/24}\n",
		no_flags);
	file_is("ports:\n  - {device: a, ipv4: 10.0.0.1/24, mtu: 9000}\n");
	assert_int_equal(reload(no_flags), 0);
	assert_change("ports", "2 entries", "1 entries", true);
	assert_change("ports[0].mtu", "1500", "9000", true);
	assert_int_equal(changes.count, 2);
	assert_int_equal(next.ports_count, 2);
	assert_string_equal(next.ports[1].device, "b");
	assert_int_equal(next.ports[0].mtu, 1500);
	file_is("ports:\n  - {device: a, ipv4: 10.0.0.1/24}\n"
		"  - {device: b, ipv4: 10.0.1.1/24}\n  - {device: c, ipv4: 10.0.2.1/24}\n");
	assert_int_equal(reload(no_flags), 0);
	assert_change("ports", "2 entries", "3 entries", true);
	assert_int_equal(changes.count, 1);
	assert_int_equal(next.ports_count, 2);
}

static void test_routes(void **state)
{
	start_with("tcp: {routes: [{peers: 10.0.0.0/8, mtu: 1400}]}\n", no_flags);
	file_is("tcp: {routes: [{peers: 10.0.0.0/8, mtu: 1500}, {peers: 11.0.0.0/8}]}\n");
	assert_int_equal(reload(no_flags), 0);
	assert_change("tcp.routes", "1 entries", "2 entries", true);
	assert_change("tcp.routes[0].mtu", "1400", "1500", true);
	assert_int_equal(changes.count, 2);
	assert_int_equal(next.tcp.routes_count, 1);
	assert_int_equal(next.tcp.routes[0].mtu, 1400);
	file_is("term: 2\n");
	assert_int_equal(reload(no_flags), 0);
	assert_change("tcp.routes", "1 entries", "0 entries", true);
	assert_int_equal(next.tcp.routes_count, 1);
	assert_string_equal(next.tcp.routes[0].peers, "10.0.0.0/8");
}

/* ---- every knob of the table ---- */

/** What a knob wants: another value, one at the start, others beside it in both files. */
static const struct {
	const char *section, *name, *was, *value, *same, *top;
} wants[] = {
	{"links", "previous_secret_file", "", "b", "secret_file: a", ""},
	/* Where auto came to tcp. */
	{"links", "transport", "", "ktcp", "", "ports: [{device: a, ipv4: 10.0.0.1/24}]\n"},
	{"links", "tls", "", "true", "",
		"tls: {peer_cert_file: a, peer_key_file: b, peer_ca_file: c}\n"},
	{"tls", "client_cert_auth", "", "true", "cert_file: a, key_file: b, ca_file: c", ""},
	{"tls", "cert_file", "a", "c", "key_file: b", ""},
	{"tls", "key_file", "b", "c", "cert_file: a", ""},
	{"tls", "peer_cert_file", "a", "c", "peer_key_file: b", ""},
	{"tls", "peer_key_file", "b", "c", "peer_cert_file: a", ""},
};

static const char *value_for(const struct conf_entry *e)
{
	static const char *const samples[CONF_T_COUNT][2] = {
		[CONF_T_STR] = {"one", "two"},
		[CONF_T_SECRET] = {"http://a:1", "http://b:1"},
		[CONF_T_UUID] = {"00000000-0000-0000-0000-000000000001", ""},
		[CONF_T_CPUS] = {"\"0,1\"", "\"1\""},
		[CONF_T_IP4NETS] = {"10.9.0.1/24", ""},
		[CONF_T_IP6NETS] = {"fd09::1/64", ""},
		[CONF_T_IPS] = {"10.0.0.9", ""},
		[CONF_T_NEIGHS] = {"[\"10.0.0.9=02:00:00:00:00:09\"]", ""},
		[CONF_T_IMPAIR] = {"\"drop=0.5\"", ""},
		[CONF_T_ENDPOINT] = {"\"localhost:1\"", ""},
		[CONF_T_LIST] = {"[/a]", "[/b]"},
		[CONF_T_URLS] = {"[\"h:1\"]", "[\"h:2\"]"},
		[CONF_T_ZONES] = {"[a=b]", ""},
		[CONF_T_LEVELS] = {"[tcp=error]", ""},
		[CONF_T_ARGS] = {"[-d]", ""},
		[CONF_T_LOGLEVEL] = {"error", "trace"},
	};
	const struct conf_type_info *info = conf_type_info(e->type);
	static char text[32];

	for (unsigned i = 0; info->choices && i < info->choices_count; i++)
		if (strcmp(info->choices[i], e->text) != 0)
			return info->choices[i];
	if (samples[e->type][0])
		return samples[e->type][0];
	if (e->type == CONF_T_BOOL)
		return strcmp(e->text, "true") == 0 || strcmp(e->text, "on") == 0 ? "false"
										  : "true";
	if (e->type == CONF_T_BYTES && strchr(e->text, ' '))
		return "64 MiB";
	/* The default, one up; or where that is too much, or no number, the least. */
	snprintf(text, sizeof(text), "%llu",
		strtoull(e->text, NULL, 10) + 1 >= e->min &&
				strtoull(e->text, NULL, 10) + 1 <= e->max && e->text[0] != 'a' &&
				!strchr(e->text, ' ')
			? strtoull(e->text, NULL, 10) + 1
			: (unsigned long long)e->min);
	return text;
}

/** The files of the start and of the reload, which differ in the one knob. */
static void files_for(const struct conf_entry *e, char *before, char *after, size_t size)
{
	const char *was = "", *value = value_for(e), *same = "", *top = "";
	char was_text[100] = "";

	for (size_t i = 0; i < RP_ARRAY_SIZE(wants); i++) {
		if (strcmp(wants[i].section, e->section) != 0 ||
			strcmp(wants[i].name, e->name) != 0)
			continue;
		was = wants[i].was;
		value = wants[i].value;
		same = wants[i].same;
		top = wants[i].top;
	}
	if (e->section[0] == '\0') {
		snprintf(before, size, "%s", top);
		snprintf(after, size, "%s%s: %s\n", top, e->name, value);
		return;
	}
	if (was[0])
		snprintf(was_text, sizeof(was_text), ", %s: %s", e->name, was);
	snprintf(before, size, "%s%s: {%s%s}\n", top, e->section, same, was_text);
	snprintf(after, size, "%s%s: {%s%s%s: %s}\n", top, e->section, same, same[0] ? ", " : "",
		e->name, value);
}

static bool warned_of(const char *path)
{
	for (unsigned i = 0; i < report.count; i++)
		if (report.messages[i].severity == RP_CONF_WARNING &&
			strstr(report.messages[i].text, path))
			return true;
	return false;
}

static void say_report(const char *path, const char *file)
{
	char line[400];

	for (unsigned i = 0; i < report.count; i++) {
		rp_conf_message_format(&report.messages[i], line, sizeof(line));
		print_message("%s: %s\n", path, line);
	}
	fail_msg("%s: not taken:\n%s", path, file);
}

/* What a knob's line in the table says of it is what a reload does with it. */
static void follows_the_table(struct conf_at at, const char *before, const char *after)
{
	const struct rp_conf_change *c;
	char path[128];
	bool equal;

	conf_path(at, path, sizeof(path));
	if (!start_is(before, no_flags))
		fail_msg("%s: not taken at the start:\n%s", path, before);
	file_is(after);
	if (reload(no_flags) != 0)
		say_report(path, after);
	c = change_of(path);
	equal = conf_value_equal(at.entry, conf_field(&running, at), conf_field(&next, at));
	if (at.entry->change == CONF_UNUSED) {
		if (c || !warned_of(path))
			fail_msg("%s: no effect, and not said so", path);
	} else if (!c) {
		fail_msg("%s: not told of:\n%s", path, after);
	} else if (c->fixed != (at.entry->change == CONF_FIXED) || equal != c->fixed) {
		fail_msg("%s: %s -> %s, fixed %d, kept %d", path, c->was, c->is, c->fixed, equal);
	}
}

static void test_each_knob(void **state)
{
	char before[400], after[400];
	unsigned live = 0, fixed = 0;

	for (unsigned i = 0; i < conf_entries_count; i++) {
		const struct conf_entry *e = &conf_entries[i];

		if (e->kind != CONF_KNOB)
			continue;
		files_for(e, before, after, sizeof(after));
		follows_the_table((struct conf_at){.entry = e}, before, after);
		live += e->change == CONF_LIVE;
		fixed += e->change == CONF_FIXED;
	}
	print_message("%u live, %u fixed\n", live, fixed);
	assert_true(live > 30 && fixed > 20);
}

static void test_each_item_knob(void **state)
{
	static const struct {
		const char *section, *name, *required;
	} lists[] = {
		{"", "ports", "device: a, ipv4: 10.0.0.1/24"},
		{"tcp", "routes", "peers: 10.0.0.0/8"},
		{"queues", "policies", "match: a"},
	};
	char before[400], after[400], item[200];

	for (size_t k = 0; k < RP_ARRAY_SIZE(lists); k++) {
		const struct conf_entry *list = conf_find(lists[k].section, lists[k].name);
		const char *open = lists[k].section[0] ? ": {" : "";
		const char *close = lists[k].section[0] ? "}" : "";

		assert_non_null(list);
		for (unsigned i = 0; i < conf_item_entries_count; i++) {
			const struct conf_entry *e = &conf_item_entries[i];
			const char *value = value_for(e);

			if (strcmp(e->section, list->item) != 0)
				continue;
			if (strcmp(e->name, "peers") == 0)
				value = "11.0.0.0/8";
			if (strcmp(e->name, "mtu") == 0)
				value = "1400";
			/* What auto has come to at the start is no change. */
			if (strcmp(e->name, "rings") == 0)
				value = "7";
			snprintf(before, sizeof(before), "%s%s%s: [{%s}]%s\n", lists[k].section,
				open, list->name, lists[k].required, close);
			/* What is required is changed, all else comes beside it. */
			snprintf(item, sizeof(item), "%s: %s", e->name, value);
			if (strcmp(e->name, "device") == 0)
				snprintf(item, sizeof(item), "device: b, ipv4: 10.0.0.1/24");
			else if (strcmp(e->name, "ipv4") == 0)
				snprintf(item, sizeof(item), "device: a, ipv4: 10.9.0.1/24");
			else if (strncmp(lists[k].required, e->name, strlen(e->name)) != 0)
				snprintf(item, sizeof(item), "%s, %s: %s", lists[k].required,
					e->name, value);
			snprintf(after, sizeof(after), "%s%s%s: [{%s}]%s\n", lists[k].section, open,
				list->name, item, close);
			follows_the_table(conf_at_item(list, 0, e), before, after);
		}
	}
}

static void test_flags_win(void **state)
{
	char *argv[] = {(char *)"ringpostd", (char *)"--term=9", NULL};

	start_with("term: 3\n", argv);
	file_is("term: 4\nname: n\n");
	assert_int_equal(reload(argv), 0);
	assert_int_equal(next.term, 9);
	assert_null(change_of("term"));
	assert_change("name", "default", "n", false);
}

static void test_errors(void **state)
{
	char line[200];

	start_with("term: 3\n", no_flags);
	file_is("term: many\nname: x\nnonsense: 1\nlimits: {queue_depth: 0}\n");
	assert_true(reload(no_flags) < 0);
	assert_int_equal(report.errors, 3);
	assert_int_equal(changes.count, 0);
	rp_conf_message_format(&report.messages[0], line, sizeof(line));
	assert_non_null(strstr(line, "config.yml:1:"));
	assert_non_null(strstr(line, "error: term: got \"many\""));
}

/* What is fine in itself, and not with what cannot change. */
static void test_together(void **state)
{
	start_with("cluster: 6d0f4ad0-9f3b-4f0e-8c4e-0b7f8f2f1a01\nlimits: {peers: 1}\n"
		   "initial_advertise_peer_urls: [h1:1]\n",
		no_flags);
	file_is("cluster: 6d0f4ad0-9f3b-4f0e-8c4e-0b7f8f2f1a01\nlimits: {peers: 2}\n"
		"initial_advertise_peer_urls: [h1:1, h2:1]\n");
	assert_true(reload(no_flags) < 0);
	assert_int_equal(report.errors, 1);
	assert_string_equal(report.messages[report.count - 1].path, "initial_advertise_peer_urls");
	assert_non_null(strstr(report.messages[report.count - 1].text, "limits.peers = 1"));
}

static void test_file_gone(void **state)
{
	start_with("term: 3\n", no_flags);
	unlink("config.yml");
	assert_true(reload(no_flags) < 0);
	assert_int_equal(report.errors, 1);
	assert_non_null(strstr(report.messages[report.count - 1].text, "no such file"));
	/* Without one at the start there may be one later. */
	rp_conf_free(&running);
	results_free();
	rp_conf_load(1, no_flags, &running, &report);
	file_is("term: 4\n");
	assert_int_equal(reload(no_flags), 0);
	assert_change("term", "1", "4", false);
}

static void test_hidden(void **state)
{
	char *text = NULL;
	size_t size;
	FILE *f;

	start_with("clickhouse_url: http://u:hush@h:1\nname: seen\n", no_flags);
	f = open_memstream(&text, &size);
	rp_conf_dump_hidden(&running, f);
	fclose(f);
	assert_null(strstr(text, "hush"));
	assert_non_null(strstr(text, "clickhouse_url: \"(hidden)\" # config.yml:1"));
	assert_non_null(strstr(text, "name: seen # config.yml:2"));
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_same),
		cmocka_unit_test(test_kinds),
		cmocka_unit_test(test_ports),
		cmocka_unit_test(test_routes),
		cmocka_unit_test(test_each_knob),
		cmocka_unit_test(test_each_item_knob),
		cmocka_unit_test(test_flags_win),
		cmocka_unit_test(test_errors),
		cmocka_unit_test(test_together),
		cmocka_unit_test(test_file_gone),
		cmocka_unit_test(test_hidden),
	};

	return cmocka_run_group_tests(tests, enter_folder, leave_folder);
}
