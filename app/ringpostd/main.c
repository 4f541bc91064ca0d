/* SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <base/log.h>
#include <conf/conf.h>
#include <node/node.h>

/** Written at start and by a reload, read by whichever thread logs. */
static _Atomic enum rp_conf_log_format log_format;

static void log_sink(enum rp_log_subject subject, enum rp_log_level level, const char *text)
{
	struct timespec ts;
	struct tm tm;
	char when[40];

	clock_gettime(CLOCK_REALTIME, &ts);
	gmtime_r(&ts.tv_sec, &tm);
	strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%S", &tm);
	if (log_format == RP_CONF_LOG_FORMAT_TEXT) {
		fprintf(stderr, "%s.%06ldZ [%s] %s: %s\n", when, ts.tv_nsec / 1000,
			rp_log_subject_name(subject), rp_log_level_name(level), text);
		return;
	}
	flockfile(stderr);
	fprintf(stderr, "{\"ts\":\"%s.%06ldZ\",\"subject\":\"%s\",\"level\":\"%s\",\"msg\":\"",
		when, ts.tv_nsec / 1000, rp_log_subject_name(subject), rp_log_level_name(level));
	for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
		if (*p == '"' || *p == '\\')
			fprintf(stderr, "\\%c", *p);
		else if (*p < 0x20)
			fprintf(stderr, "\\u%04x", *p);
		else
			fputc(*p, stderr);
	}
	fputs("\"}\n", stderr);
	funlockfile(stderr);
}

static void set_levels(const struct rp_conf *conf)
{
	log_format = conf->log_format;
	rp_log_set_sink(log_sink);
	rp_conf_levels_use(conf);
}

static void print_plan(const struct rp_conf *conf, const struct rp_conf_plan *plan)
{
	struct rp_node_sizes s;

	rp_node_sizes(conf, plan, &s);
	printf("shards          %u on CPU", plan->shards_count);
	for (unsigned i = 0; i < plan->shards_count; i++)
		printf("%s%u", i ? "," : " ", plan->shard_cpus[i]);
	printf(", %s\n", plan->poll ? "poll" : "adaptive");
	if (plan->control_cpu < 0)
		printf("control thread  floats over all CPUs\n");
	else
		printf("control thread  CPU %d\n", plan->control_cpu);
	printf("memory          %u MiB %s\n", plan->memory_mib,
		plan->hugepages ? "of hugepages" : "without hugepages");
	printf("ports           %u, %.1f MiB of receive buffers and devices\n", conf->ports_count,
		(double)s.ports_bytes / (1 << 20));
	printf("message buffers %u of 2048 bytes\n", s.queue_mbufs);
	printf("frame buffers   %u of 640 bytes\n", s.frame_mbufs);
	if (s.tap_blocks > 0)
		printf("capture blocks  %u of 16384 bytes\n", s.tap_blocks);
	printf("links           over %s, port %u\n", plan->over_tcp ? "tcp" : "ktcp",
		conf->links.listen);
}

static int serve(const struct rp_conf *conf, const struct rp_conf_plan *plan,
	const struct rp_node_process *process, bool shards_float)
{
	char error[RP_NODE_ERROR_SIZE];
	struct rp_node *node;
	int exit_code;

	signal(SIGPIPE, SIG_IGN);
	node = rp_node_create(conf, plan, process, shards_float, &exit_code, error, sizeof(error));
	if (!node) {
		fprintf(stderr, "ringpostd: %s\n", error);
		return exit_code;
	}
	exit_code = rp_node_run(node);
	rp_node_destroy(node);
	return exit_code;
}

static int answer(struct rp_conf *conf, struct rp_conf_report *report, int argc, char **argv)
{
	const struct rp_node_process process = {
		.source = {.argc = argc, .argv = argv},
		.reconfigured = set_levels,
	};
	bool shards_float = strcmp(conf->shards.cpus, "auto") == 0;
	struct rp_conf_host host;
	struct rp_conf_plan plan;
	unsigned told = report->count;

	switch (report->request) {
	case RP_CONF_VERSION:
		printf("ringpostd " RP_VERSION "\n");
		return RP_EXIT_OK;
	case RP_CONF_HELP:
		rp_conf_help(stdout);
		return RP_EXIT_OK;
	case RP_CONF_CHECK:
		if (report->exit_code == RP_EXIT_OK)
			printf("ok\n");
		return report->exit_code;
	case RP_CONF_DUMP:
	case RP_CONF_DRY_RUN:
	case RP_CONF_RUN:
		break;
	}
	if (report->exit_code != RP_EXIT_OK)
		return report->exit_code;
	rp_conf_host_read(&host);
	if (rp_conf_resolve(conf, &host, &plan, report) != 0 && report->request != RP_CONF_DUMP) {
		for (unsigned i = told; i < report->count; i++)
			fprintf(stderr, "ringpostd: %s: %s\n", report->messages[i].path,
				report->messages[i].text);
		return report->exit_code;
	}
	if (report->request == RP_CONF_DUMP) {
		rp_conf_dump(conf, stdout);
		return RP_EXIT_OK;
	}
	if (report->request == RP_CONF_DRY_RUN) {
		print_plan(conf, &plan);
		return RP_EXIT_OK;
	}
	/* Adaptive shards that nobody pinned may run anywhere: two nodes of one host share it. */
	return serve(conf, &plan, &process, shards_float && !plan.poll);
}

int main(int argc, char **argv)
{
	struct rp_conf_report report;
	struct rp_conf conf;
	int exit_code;

	rp_conf_load(argc, argv, &conf, &report);
	rp_conf_report_print(&report, stderr);
	set_levels(&conf);
	exit_code = answer(&conf, &report, argc, argv);
	rp_conf_report_free(&report);
	rp_conf_free(&conf);
	return exit_code;
}
