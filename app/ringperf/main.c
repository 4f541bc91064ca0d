/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ringperf: messages between two processes over our TCP on a port, over a kernel socket, or as bare
 * frames on a port. The same messages, the same code at both ends, so that the figures compare.
 */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include <rte_launch.h>
#include <rte_lcore.h>

#include <base/log.h>

#include "host.h"
#include "line.h"
#include "report.h"
#include "runs.h"
#include "shell.h"

#define STATUS_FAILED 1
#define STATUS_USAGE 2
#define STATUS_NO_PORT 15

/** A client gives up when its runs take so much longer than they should, each, and in all. */
#define RUN_SLACK_NS (1 * RP_NS_PER_S)
#define SLACK_NS (5 * RP_NS_PER_S)

static void on_signal(int number)
{
	atomic_store(&perf_told_to_stop, true);
}

static void on_log(enum rp_log_subject subject, enum rp_log_level level, const char *text)
{
	fprintf(stderr, "ringperf: %s\n", text);
}

static bool link_is_up(void *ctx)
{
	return perf_host_link_is_up(ctx);
}

static bool has_ended(void *ctx)
{
	const struct perf_host *p = ctx;

	return atomic_load_explicit(&p->worker.ended, memory_order_acquire);
}

static uint64_t deadline(const struct perf_host *p)
{
	const struct perf_options *o = p->options;

	if (o->server)
		return RP_NEVER;
	return perf_now_ns() + o->connect_ns +
	       o->test_count * (o->run_ns + o->warmup_ns + RUN_SLACK_NS) + SLACK_NS;
}

static int report(struct perf_host *p)
{
	struct perf_setting s = {
		.options = p->options,
		.port = p->worker.port ? &p->port_infos[0] : NULL,
		.eal = &p->eal,
		.worker = &p->worker,
	};
	bool good = true;

	while (s.done < p->options->test_count && p->worker.results[s.done].elapsed_ns > 0)
		good &= perf_result_good(&p->worker.results[s.done++]);
	if (p->options->json)
		perf_report_json(&s);
	else
		perf_report_text(&s);
	return good && s.done == p->options->test_count ? 0 : STATUS_FAILED;
}

/* Polls on the lcore until all is done. */
static int run(struct perf_host *p)
{
	struct perf_worker *w = &p->worker;
	unsigned lcore = perf_host_lcore();
	bool ended;

	if (p->options->server) {
		printf("ready\n");
		fflush(stdout);
	} else if (!perf_host_watch(p, perf_now_ns() + p->options->connect_ns, link_is_up, p)) {
		fprintf(stderr, "ringperf: nobody is at the other end of %s\n",
			p->options->devices[0]);
		return STATUS_FAILED;
	}
	rte_eal_remote_launch(
		p->options->transport == PERF_RAW ? perf_raw_loop : perf_stream_loop, w, lcore);
	ended = perf_host_watch(p, deadline(p), has_ended, p);
	atomic_store(&w->stop, true);
	rte_eal_wait_lcore(lcore);
	if (w->why)
		fprintf(stderr, "ringperf: %s\n", w->why);
	if (p->options->server)
		return w->why ? STATUS_FAILED : 0;
	if (!ended)
		fprintf(stderr, "ringperf: the server does not answer\n");
	return report(p) == 0 && ended && !w->why ? 0 : STATUS_FAILED;
}

static int make(struct perf_host *p, const struct perf_options *o)
{
	int rc = perf_host_make(p, o, false);

	if (rc == 0 && !o->server) {
		p->worker.results = calloc(o->test_count, sizeof(*p->worker.results));
		rc = p->worker.results ? 0 : -ENOMEM;
	}
	return rc;
}

static int measure_line(const uint32_t cpus[2])
{
	double ns = perf_line_pin(cpus[0]) == 0 ? perf_line_ns(cpus[1]) : 0;

	if (ns <= 0) {
		fprintf(stderr, "ringperf: CPUs %u and %u cannot be measured\n", cpus[0], cpus[1]);
		return STATUS_FAILED;
	}
	printf("%.1f\n", ns);
	return 0;
}

/* Tests between a server and a client, as tools/bench has them. */
static int batch(struct perf_host *p, const struct perf_options *o)
{
	int status = STATUS_NO_PORT;

	if (make(p, o) < 0)
		fprintf(stderr, "ringperf: %s\n", p->error);
	else
		status = run(p);
	perf_host_destroy(p);
	return status;
}

int main(int argc, char **argv)
{
	static struct perf_options options;
	static struct perf_host host;
	struct sigaction action = {.sa_handler = on_signal};
	int status = perf_options_read(argc, argv, &options);

	if (status != 0)
		return status > 0 ? 0 : STATUS_USAGE;
	if (options.command == PERF_LINE)
		return measure_line(options.line_cpus);
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	rp_log_set_sink(on_log);
	rp_log_set_level(options.verbose ? RP_LOG_DEBUG : RP_LOG_CRIT);
	switch (options.command) {
	case PERF_SHELL:
		return perf_shell(&host, &options);
	case PERF_RUN:
		return perf_runs(&host, &options);
	case PERF_BATCH:
	case PERF_LINE:
		break;
	}
	return batch(&host, &options);
}
