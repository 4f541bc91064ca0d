/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The command line and files on disk; what files say is shown by test/conf.
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

static struct rp_conf conf;
static struct rp_conf_report report;

#define LOAD(...) load((char *[]){(char *)"ringpostd", ##__VA_ARGS__, NULL})

static int load(char *argv[])
{
	int argc = 0;

	while (argv[argc])
		argc++;
	rp_conf_free(&conf);
	rp_conf_report_free(&report);
	return rp_conf_load(argc, argv, &conf, &report);
}

static int enter_folder(void **state)
{
	static char folder[] = "/tmp/rp_conf_testXXXXXX";

	*state = mkdtemp(folder);
	return *state && chdir(*state) == 0 ? 0 : -1;
}

static int leave_folder(void **state)
{
	rp_conf_free(&conf);
	rp_conf_report_free(&report);
	unlink("config.yml");
	unlink("other.yml");
	unlink("large.yml");
	return chdir("/") == 0 && rmdir(*state) == 0 ? 0 : -1;
}

static void file_is(const char *name, const char *text)
{
	FILE *f = fopen(name, "w");

	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

static void test_missing_file(void **state)
{
	assert_int_equal(LOAD(), 0);
	assert_int_equal(report.exit_code, 0);
	assert_int_equal(report.request, RP_CONF_RUN);
	assert_int_equal(LOAD("--config", "none.yml"), 0);
	assert_int_equal(report.warnings, 2);
	assert_string_equal(report.messages[0].origin, "none.yml");
}

static void test_default_file(void **state)
{
	file_is("config.yml", "term: 4\nlinks: {listen: 1}\n");
	file_is("other.yml", "term: 5\n");
	assert_int_equal(LOAD(), 0);
	assert_int_equal(conf.term, 4);
	assert_int_equal(LOAD("--config=other.yml", "--links-listen", "9"), 0);
	assert_int_equal(conf.term, 5);
	assert_int_equal(conf.links.listen, 9);
	assert_int_equal(LOAD("--term=6"), 0);
	assert_int_equal(conf.term, 6);
	assert_int_equal(conf.links.listen, 1);
	/* The last flag of a single value counts. */
	assert_int_equal(LOAD("--term=6", "--term=7"), 0);
	assert_int_equal(conf.term, 7);
}

static void test_unreadable(void **state)
{
	FILE *f;

	assert_true(LOAD("--config", "/") < 0);
	assert_int_equal(report.exit_code, RP_EXIT_CONF);
	f = fopen("large.yml", "w");
	for (unsigned i = 0; i < 200000; i++)
		fputs("# large\n", f);
	fclose(f);
	assert_true(LOAD("--config", "large.yml") < 0);
	assert_int_equal(report.exit_code, RP_EXIT_CONF);
}

static void test_requests(void **state)
{
	file_is("config.yml", "nonsense: 1\n");
	assert_int_equal(LOAD("--help"), 0);
	assert_int_equal(report.request, RP_CONF_HELP);
	assert_int_equal(LOAD("--version"), 0);
	assert_int_equal(report.request, RP_CONF_VERSION);
	assert_true(LOAD("--check-config") < 0);
	assert_int_equal(report.request, RP_CONF_CHECK);
	assert_int_equal(report.exit_code, RP_EXIT_CONF);
	file_is("config.yml", "term: 4\n");
	assert_int_equal(LOAD("--dump-config"), 0);
	assert_int_equal(report.request, RP_CONF_DUMP);
	assert_int_equal(LOAD("--dry-run"), 0);
	assert_int_equal(report.request, RP_CONF_DRY_RUN);
	assert_true(LOAD("--dry-run", "--help") < 0);
	assert_int_equal(report.exit_code, RP_EXIT_USAGE);
	assert_true(LOAD("--help=yes") < 0);
	assert_true(LOAD("--config") < 0);
	assert_true(LOAD("--config", "a", "--config", "b") < 0);
	assert_true(LOAD("-h") < 0);
	assert_true(LOAD("--") < 0);
	assert_int_equal(report.exit_code, RP_EXIT_USAGE);
}

static void test_switches(void **state)
{
	file_is("config.yml", "deliver: {unary_fallback: true}\ntcp: {pmtu_blackhole: true}\n");
	assert_int_equal(LOAD("--deliver-unary-fallback", "off", "--tcp-pmtu-blackhole=no"), 0);
	assert_false(conf.deliver.unary_fallback);
	assert_false(conf.tcp.pmtu_blackhole);
	/* A switch that stands alone does not eat what follows. */
	assert_int_equal(LOAD("--tcp-pmtu-blackhole", "--term", "3"), 0);
	assert_true(conf.tcp.pmtu_blackhole);
	assert_int_equal(conf.term, 3);
	assert_true(LOAD("--tcp-pmtu-blackhole", "3") < 0);
	assert_int_equal(report.exit_code, RP_EXIT_USAGE);
}

static void test_lists(void **state)
{
	file_is("config.yml",
		"local_prefix: [/x, /y]\nports: [{device: a, ipv4: 10.0.0.1/8, mtu: 600}]\n");
	assert_int_equal(LOAD("--local-prefix=/a,/b", "--local-prefix", "/c"), 0);
	assert_int_equal(conf.local_prefix.count, 3);
	assert_string_equal(conf.local_prefix.items[2], "/c");
	assert_int_equal(LOAD("--local-prefix="), 0);
	assert_int_equal(conf.local_prefix.count, 0);
	assert_int_equal(
		LOAD("--ports-device=b", "--ports-device=c", "--ports-1-ipv4=10.0.0.2/8"), 0);
	assert_int_equal(conf.ports_count, 2);
	assert_string_equal(conf.ports[0].device, "b");
	assert_int_equal(conf.ports[0].mtu, 600);
	assert_string_equal(conf.ports[1].device, "c");
	assert_int_equal(conf.ports[1].mtu, 1500);
	assert_int_equal(LOAD("--dpdk-extra-args=--vdev=a,b", "--dpdk-extra-args=-d"), 0);
	assert_int_equal(conf.dpdk.extra_args.count, 2);
	assert_string_equal(conf.dpdk.extra_args.items[0], "--vdev=a,b");
	assert_true(LOAD("--ports-16-device=b") < 0);
	assert_true(LOAD("--ports-99999999999999999999-device=b") < 0);
	assert_true(LOAD("--ports-x-device=b") < 0);
	assert_int_equal(report.exit_code, RP_EXIT_USAGE);
}

static void test_policies(void **state)
{
	file_is("config.yml",
		"queues: {policies: [{match: jobs-*, ttl_ms: 5}, {match: '*', priority: 3}]}\n");
	assert_int_equal(LOAD(), 0);
	assert_int_equal(conf.queues.policies_count, 2);
	assert_string_equal(conf.queues.policies[0].match, "jobs-*");
	assert_int_equal(conf.queues.policies[0].ttl_ms, 5);
	assert_int_equal(conf.queues.policies[1].priority, 3);
	file_is("config.yml", "");
	assert_int_equal(LOAD(), 0);
	assert_int_equal(conf.queues.policies_count, 0);
}

static int secret_of(const char *text, unsigned mode, char *why)
{
	uint8_t secret[RP_CONF_SECRET_BYTES_MAX];

	unlink("secret");
	file_is("secret", text);
	assert_int_equal(chmod("secret", mode), 0);
	return rp_conf_secret_read("secret", secret, why, 200);
}

static void test_secret(void **state)
{
	char why[200], large[400];

	assert_int_equal(secret_of("0123456789abcdef0123456789abcdef", 0600, why), 32);
	assert_int_equal(secret_of("0123456789abcdef0123456789abcdef\r\n", 0400, why), 32);
	assert_true(secret_of("0123456789abcdef0123456789abcde\n", 0600, why) < 0);
	assert_non_null(strstr(why, "31 bytes"));
	assert_true(secret_of("0123456789abcdef0123456789abcdef", 0640, why) < 0);
	assert_non_null(strstr(why, "mode 640"));
	memset(large, 'x', sizeof(large));
	large[256] = '\0';
	assert_int_equal(secret_of(large, 0600, why), 256);
	large[256] = 'x';
	large[257] = '\0';
	assert_true(secret_of(large, 0600, why) < 0);
	assert_true(rp_conf_secret_read("/", (uint8_t *)large, why, sizeof(why)) < 0);
	assert_true(rp_conf_secret_read("none", (uint8_t *)large, why, sizeof(why)) < 0);
	assert_non_null(strstr(why, "No such file"));
	unlink("secret");
}

/* A file that is wrong in every line: the first thousand are told, all are counted. */
static void test_many_errors(void **state)
{
	char *text = NULL, *printed = NULL, *argv[] = {(char *)"ringpostd"};
	size_t length;
	FILE *f = open_memstream(&text, &length);

	for (unsigned i = 0; i < 1500; i++)
		fprintf(f, "wrong%u: 1\n", i);
	fclose(f);
	rp_conf_free(&conf);
	rp_conf_report_free(&report);
	assert_true(rp_conf_load_text("t", text, length, 1, argv, &conf, &report) < 0);
	free(text);
	assert_int_equal(report.errors, 1500);
	assert_int_equal(report.count, 1000);
	f = open_memstream(&printed, &length);
	rp_conf_report_print(&report, f);
	fclose(f);
	assert_non_null(strstr(printed, "t:1000:1: error: wrong999: unknown key"));
	assert_null(strstr(printed, "wrong1000"));
	/* The warning about the node is among those that are only counted. */
	assert_non_null(strstr(printed, "and 501 more"));
	free(printed);
	/* What cannot be a configuration ends soon. */
	f = open_memstream(&text, &length);
	for (unsigned i = 0; i < 200000; i++)
		fputs("a:\n", f);
	fclose(f);
	rp_conf_free(&conf);
	rp_conf_report_free(&report);
	assert_true(rp_conf_load_text("t", text, length, 1, argv, &conf, &report) < 0);
	assert_int_equal(report.errors, 1);
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_missing_file),
		cmocka_unit_test(test_default_file),
		cmocka_unit_test(test_unreadable),
		cmocka_unit_test(test_requests),
		cmocka_unit_test(test_switches),
		cmocka_unit_test(test_lists),
		cmocka_unit_test(test_policies),
		cmocka_unit_test(test_secret),
		cmocka_unit_test(test_many_errors),
	};

	return cmocka_run_group_tests(tests, enter_folder, leave_folder);
}
