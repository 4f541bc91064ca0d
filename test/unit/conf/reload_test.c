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

#include <conf/conf.h>

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
static void start_with(const char *text, char **argv)
{
	struct rp_conf_source s = source_of(argv);
	struct rp_conf_report r;

	file_is(text);
	rp_conf_free(&running);
	assert_int_equal(rp_conf_load(s.argc, s.argv, &running, &r), 0);
	assert_int_equal(rp_conf_resolve(&running, &host, &plan, &r), 0);
	rp_conf_report_free(&r);
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
		"limits: {queue_bytes: 64 MiB}\nclickhouse_db: x\n");
	assert_int_equal(reload(no_flags), 0);
	assert_change("name", "a", "b", false);
	assert_change("log_levels", "[\"tcp=debug\"]", "[]", false);
	assert_change("queues.resume_ms", "1000", "5", false);
	assert_change("limits.queue_bytes", "256 MiB", "64 MiB", false);
	assert_change("links.listen", "7401", "7402", true);
	assert_change("links.ecn", "true", "false", true);
	/* What has no effect does not change; that it is set is said as at start. */
	assert_null(change_of("clickhouse_db"));
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
		cmocka_unit_test(test_flags_win),
		cmocka_unit_test(test_errors),
		cmocka_unit_test(test_together),
		cmocka_unit_test(test_file_gone),
		cmocka_unit_test(test_hidden),
	};

	return cmocka_run_group_tests(tests, enter_folder, leave_folder);
}
