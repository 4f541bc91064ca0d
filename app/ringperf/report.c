/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>

#include "report.h"

bool perf_result_good(const struct perf_result *r)
{
	return r->sent == r->received && r->bytes_sent == r->bytes_received && r->faults == 0 &&
	       r->lost == 0 && r->elapsed_ns > 0 &&
	       (r->test != PERF_BULK || r->sum_sent == r->sum_received);
}

static double seconds(const struct perf_result *r)
{
	return r->elapsed_ns > 0 ? (double)r->elapsed_ns / (double)RP_NS_PER_S : 1.0;
}

static double us(const struct perf_result *r, double percent)
{
	return (double)rp_hist_percentile(&r->rtt, percent) / 1000.0;
}

static void text_of(const struct perf_result *r)
{
	printf("%-5s %7" PRIu32 " B  %12.0f messages/s  %7.3f Gbit/s", perf_test_names[r->test],
		r->size, (double)r->received / seconds(r),
		(double)r->bytes_received * 8e-9 / seconds(r));
	if (r->test == PERF_RR)
		printf("  round trip us: p50 %.2f  p99 %.2f  p99.9 %.2f  max %.2f", us(r, 50),
			us(r, 99), us(r, 99.9), us(r, 100));
	if (r->test == PERF_BULK)
		printf("  sums %016" PRIx64 " %s", r->sum_sent,
			r->sum_sent == r->sum_received ? "equal" : "DIFFER");
	if (r->near_ns[0] > 0)
		printf("  CPU at %.0f, %.0f ns", r->near_ns[0], r->near_ns[1]);
	if (!perf_result_good(r))
		printf("  WRONG: %" PRIu64 " sent, %" PRIu64 " received, %" PRIu64
		       " out of order, %" PRIu64 " lost",
			r->sent, r->received, r->faults, r->lost);
	printf("\n");
}

void perf_report_text(const struct perf_setting *s)
{
	const struct perf_options *o = s->options;

	printf("ringperf %s: %s", RP_VERSION, perf_transport_names[o->transport]);
	if (s->port)
		printf(" on %s, mtu %u", s->port->driver, s->port->mtu);
	printf(", %s, hugepages %s\n", o->adaptive ? "adaptive" : "poll",
		s->eal->hugepages ? "yes" : "no");
	for (unsigned i = 0; i < s->done; i++)
		text_of(&s->worker->results[i]);
}

static void json_of(const struct perf_result *r)
{
	printf("{\"test\":\"%s\",\"size\":%" PRIu32 ",\"seconds\":%.6f,\"messages_sent\":%" PRIu64
	       ",\"messages_received\":%" PRIu64 ",\"bytes_received\":%" PRIu64
	       ",\"messages_per_s\":%.1f,\"goodput_bit_per_s\":%.0f",
		perf_test_names[r->test], r->size, seconds(r), r->sent, r->received,
		r->bytes_received, (double)r->received / seconds(r),
		(double)r->bytes_received * 8 / seconds(r));
	if (r->test == PERF_RR)
		printf(",\"rtt_us\":{\"p50\":%.3f,\"p90\":%.3f,\"p99\":%.3f,\"p99.9\":%.3f,"
		       "\"mean\":%.3f,\"max\":%.3f}",
			us(r, 50), us(r, 90), us(r, 99), us(r, 99.9),
			(double)rp_hist_mean(&r->rtt) / 1000.0, us(r, 100));
	if (r->test == PERF_BULK)
		printf(",\"sum_sent\":\"%016" PRIx64 "\",\"sum_received\":\"%016" PRIx64 "\"",
			r->sum_sent, r->sum_received);
	if (r->near_ns[0] > 0)
		printf(",\"near_ns\":[%.1f,%.1f]", r->near_ns[0], r->near_ns[1]);
	printf(",\"faults\":%" PRIu64 ",\"lost\":%" PRIu64 ",\"good\":%s}", r->faults, r->lost,
		perf_result_good(r) ? "true" : "false");
}

static void json_tcp(const struct rp_tcp_counters *n)
{
	const char *separator = "";

	printf(",\"tcp\":{");
#define X(name, text)                                                   \
	if (n->name > 0) {                                              \
		printf("%s\"" #name "\":%" PRIu64, separator, n->name); \
		separator = ",";                                        \
	}
#include <tcp/tcp_counters.def>
#undef X
	printf("}");
}

void perf_report_json(const struct perf_setting *s)
{
	const struct perf_options *o = s->options;
	const struct perf_worker *w = s->worker;

	printf("{\"ringperf\":\"%s\",\"transport\":\"%s\"", RP_VERSION,
		perf_transport_names[o->transport]);
	if (s->port)
		printf(",\"driver\":\"%s\",\"mtu\":%u,\"checksum_by_device\":%s", s->port->driver,
			s->port->mtu, s->port->flags & RP_PORT_TX_TCP_CKSUM ? "true" : "false");
	printf(",\"idle\":\"%s\",\"hugepages\":%s,\"cpu\":%d,\"longest_turn_us\":%.1f,"
	       "\"sleeps\":%" PRIu64 ",\"tests\":[",
		o->adaptive ? "adaptive" : "poll", s->eal->hugepages ? "true" : "false",
		o->cpu == RP_EAL_CPU_ANY ? -1 : (int)o->cpu, (double)w->gap_ns / 1000.0, w->sleeps);
	for (unsigned i = 0; i < s->done; i++) {
		if (i > 0)
			printf(",");
		json_of(&w->results[i]);
	}
	printf("]");
	if (w->stack)
		json_tcp(rp_tcp_counters(w->stack));
	printf("}\n");
}
