/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include <conf/conf.h>

static struct rp_conf conf;
static struct rp_conf_host host;
static struct rp_conf_plan plan;
static struct rp_conf_report report;

static int resolve(const char *text)
{
	char *argv[] = {(char *)"ringpostd"};

	rp_conf_free(&conf);
	rp_conf_report_free(&report);
	rp_conf_load_text("t", text, strlen(text), 1, argv, &conf, &report);
	if (report.errors)
		rp_conf_report_print(&report, stderr);
	assert_int_equal(report.errors, 0);
	return rp_conf_resolve(&conf, &host, &plan, &report);
}

static void host_is(unsigned cpus, uint64_t hugepages_free)
{
	memset(&host, 0, sizeof(host));
	for (unsigned i = 0; i < cpus; i++)
		host.cpus[host.cpus_count++] = i;
	host.hugepage_bytes = 2 << 20;
	host.hugepages_free = hugepages_free;
	host.memory_free_bytes = 8ull << 30;
}

static bool said(const char *path, const char *part)
{
	for (unsigned i = 0; i < report.count; i++) {
		if (strcmp(report.messages[i].path, path) == 0 &&
			strstr(report.messages[i].text, part))
			return true;
	}
	return false;
}

/* No configuration: one shard that sleeps, no hugepages, kernel sockets, on any machine. */
static void test_nothing(void **state)
{
	for (unsigned cpus = 1; cpus <= 64; cpus *= 4) {
		host_is(cpus, 0);
		assert_int_equal(resolve(""), 0);
		assert_int_equal(plan.shards_count, 1);
		assert_int_equal(plan.control_cpu, -1);
		assert_false(plan.poll);
		assert_false(plan.hugepages);
		assert_false(plan.over_tcp);
		assert_int_equal(conf.links.transport, RP_CONF_TRANSPORT_KTCP);
		assert_int_equal(conf.shards.idle, RP_CONF_IDLE_ADAPTIVE);
		assert_int_equal(plan.memory_mib, conf.dpdk.memory_mib);
		assert_int_equal(plan.memory_mib, 128);
	}
}

static void test_virtual_port(void **state)
{
	host_is(4, 1024);
	assert_int_equal(resolve("ports: [{device: net_memif0, ipv4: 10.0.0.1/24}]\n"), 0);
	assert_int_equal(plan.shards_count, 1);
	assert_false(plan.poll);
	assert_true(plan.hugepages && plan.hugepages_chosen);
	assert_true(plan.over_tcp);
	assert_int_equal(conf.ports[0].rings, 1);
	assert_int_equal(plan.memory_mib, 416);
	host_is(4, 10);
	assert_int_equal(resolve("ports: [{device: net_memif0, ipv4: 10.0.0.1/24}]\n"), 0);
	assert_false(plan.hugepages);
}

static void test_hardware_port(void **state)
{
	host_is(4, 4096);
	assert_int_equal(resolve("ports: [{device: '0000:01:00.0', ipv4: 10.0.0.1/24}]\n"), 0);
	assert_int_equal(plan.shards_count, 3);
	assert_int_equal(plan.shard_cpus[0], 1);
	assert_int_equal(plan.shard_cpus[2], 3);
	assert_true(plan.poll);
	assert_int_equal(conf.ports[0].rings, 3);
	assert_int_equal(resolve("ports: [{device: '0000:01:00.0', ipv4: 10.0.0.1/24}]\n"
				 "shards: {control_cpu: 2}\n"),
		0);
	assert_int_equal(plan.shard_cpus[0], 0);
	assert_int_equal(plan.shard_cpus[1], 1);
	assert_int_equal(plan.shard_cpus[2], 3);
	assert_int_equal(plan.control_cpu, 2);
	assert_string_equal(conf.shards.cpus, "0,1,3");
	host_is(1, 4096);
	assert_int_equal(resolve("ports: [{device: '0000:01:00.0', ipv4: 10.0.0.1/24}]\n"), 0);
	assert_int_equal(plan.shards_count, 1);
}

static void test_refusals(void **state)
{
	host_is(2, 100);
	assert_int_equal(resolve("dpdk: {hugepages: on, memory_mib: 64}\n"), 0);
	assert_true(plan.hugepages && !plan.hugepages_chosen);
	host_is(2, 10);
	assert_true(resolve("shards: {cpus: 5}\n") < 0);
	assert_int_equal(report.exit_code, RP_EXIT_HOST);
	assert_true(said("shards.cpus", "CPU 5"));
	assert_true(resolve("shards: {control_cpu: 9}\n") < 0);
	assert_true(said("shards.control_cpu", "CPU 9"));
	assert_true(resolve("dpdk: {hugepages: on, memory_mib: 64}\n") < 0);
	assert_true(said("dpdk.hugepages", "64 MiB wanted, 20 MiB free"));
	assert_true(resolve("links: {per_peer: 2}\n") < 0);
	assert_true(said("links.per_peer", "2 links of a bundle on 1 shards"));
	assert_true(resolve("shards: {cpus: [0, 0], idle: poll}\n") < 0);
	assert_true(said("shards.cpus", "two shards that poll"));
	assert_int_equal(resolve("shards: {cpus: [0, 0]}\n"), 0);
	assert_int_equal(plan.shards_count, 2);
	host.memory_free_bytes = 64 << 20;
	assert_true(resolve("") < 0);
	assert_true(said("dpdk.memory_mib", "64 MiB available"));
}

/* What was resolved stays itself on a reload of the same file. */
static void test_reload_same(void **state)
{
	static struct rp_conf again;
	struct rp_conf_report r;
	char *argv[] = {(char *)"ringpostd"};

	host_is(4, 1024);
	assert_int_equal(resolve(""), 0);
	rp_conf_load_text("t", "", 0, 1, argv, &again, &r);
	assert_int_equal(rp_conf_keep_fixed(&conf, &again, &r, NULL), 0);
	assert_int_equal(again.dpdk.memory_mib, conf.dpdk.memory_mib);
	assert_string_equal(again.shards.cpus, conf.shards.cpus);
	rp_conf_free(&again);
	rp_conf_report_free(&r);
}

static void test_host(void **state)
{
	assert_int_equal(rp_conf_host_read(&host), 0);
	assert_true(host.cpus_count >= 1);
	assert_true(host.memory_free_bytes > 0);
}

static int clean(void **state)
{
	rp_conf_free(&conf);
	rp_conf_report_free(&report);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nothing),
		cmocka_unit_test(test_virtual_port),
		cmocka_unit_test(test_hardware_port),
		cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_reload_same),
		cmocka_unit_test(test_host),
	};

	return cmocka_run_group_tests(tests, NULL, clean);
}
