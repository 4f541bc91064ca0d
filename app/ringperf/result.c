/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "result.h"
#include "result_json.h"

const double perf_percents[PERF_PERCENTS] = {50, 75, 90, 95, 99, 99.9, 99.99, 99.999, 100};

static double us(uint64_t ns)
{
	return (double)ns / 1000.0;
}

static bool measures(const struct perf_run *r)
{
	return r->mode->measures && !r->options->server;
}

/* ---- text ---- */

void perf_trial_text(const struct perf_trial *t)
{
	printf("%12.0f/s  %12.0f/s done, %" PRIu64 " open  %s\n", t->rate, t->verdict.achieved,
		t->verdict.open, t->good ? "good" : "too much");
	fflush(stdout);
}

static void times_text(
	const char *of, const struct perf_times *corrected, const struct perf_times *raw)
{
	printf("  us of %s\n  %-10s %12s %12s\n", of, "percentile", "corrected", "raw");
	for (unsigned i = 0; i < PERF_PERCENTS; i++) {
		char name[16] = "max";

		if (perf_percents[i] < 100)
			snprintf(name, sizeof(name), "%g", perf_percents[i]);
		printf("  %-10s %12.2f %12.2f\n", name, us(corrected->ns[i]), us(raw->ns[i]));
	}
}

void perf_times_of(const struct rp_hist *h, struct perf_times *t)
{
	t->count = h->count;
	t->mean_ns = rp_hist_mean(h);
	for (unsigned i = 0; i < PERF_PERCENTS; i++)
		t->ns[i] = rp_hist_percentile(h, perf_percents[i]);
}

static void percentiles_text(const struct perf_run *r)
{
	struct perf_times corrected, raw;

	perf_times_of(&r->pace.corrected, &corrected);
	perf_times_of(&r->pace.raw, &raw);
	times_text(r->mode->measures, &corrected, &raw);
}

const char *perf_far_without(const struct perf_far *far)
{
	if (!far->known)
		return "the other end has not told it";
	if (!far->same_host)
		return "the ends do not read the same clock";
	return far->corrected.count == 0 ? "no message had room for its time" : NULL;
}

static void one_way_text(const struct perf_run *r)
{
	const char *why = perf_far_without(&r->far);

	if (why)
		printf("  us of %s: not available, %s\n", r->mode->one_way, why);
	else
		times_text(r->mode->one_way, &r->far.corrected, &r->far.raw);
}

static void load_text(const char *end, const struct perf_load *l)
{
	double messages = (double)RP_MAX(l->messages, 1u);
	double turns = (double)RP_MAX(l->busy_turns, 1u);
	double ns = (double)RP_MAX(l->busy_ns + l->idle_ns, 1u);

	if (l->messages == 0)
		return;
	printf("  %s: busy %.0f %% of the time, %.1f messages a busy turn; of a message %.0f ns, "
	       "frames %.2f out, %.2f in",
		end, 100 * (double)l->busy_ns / ns, messages / turns, (double)l->busy_ns / messages,
		(double)l->frames_out / messages, (double)l->frames_in / messages);
	if (l->segments_out > 0)
		printf(", segments %.3f out (%.3f of them without payload), %.3f in",
			(double)l->segments_out / messages, (double)l->acks_out / messages,
			(double)l->segments_in / messages);
	printf("\n");
}

static void rate_text(const struct perf_run *r)
{
	struct perf_verdict v;

	perf_pace_verdict(&r->pace, &v);
	printf("  %.0f/s", v.achieved);
	if (v.wanted > 0)
		printf(" of %.0f/s: %s", v.wanted, v.met ? "met" : "NOT MET");
	if (v.open > 0 || r->pace.lost > 0)
		printf(", %" PRIu64 " not over, %" PRIu64 " lost", v.open, r->pace.lost);
	if (r->faults > 0)
		printf(", %" PRIu64 " WRONG", r->faults);
	if (r->mode->unit)
		printf(", %.0f %s/s", (double)r->pace.units * 1e9 / (double)r->pace.config.run_ns,
			r->mode->unit);
	printf("\n");
}

void perf_forward_text(const struct perf_run *r, unsigned ports)
{
	for (unsigned i = 0; i < ports; i++) {
		const struct perf_forward *f = &r->forward[i];

		printf("  ---------------------- Forward statistics for port %-2u ----------------------\n"
		       "  RX-packets: %-14" PRIu64 " RX-bytes: %-16" PRIu64 " RX-bursts: %" PRIu64
		       "\n"
		       "  TX-packets: %-14" PRIu64 " TX-dropped: %-14" PRIu64 " TX-bytes: %" PRIu64
		       "\n",
			i, f->rx_packets, f->rx_bytes, f->bursts, f->tx_packets, f->tx_dropped,
			f->tx_bytes);
		if (f->bursts > 0)
			printf("  frames a burst: %.1f, most %" PRIu64 "\n",
				(double)f->rx_packets / (double)f->bursts, f->bursts_max);
	}
}

void perf_result_text(const struct perf_run *r)
{
	printf("%s%s, %u B", r->mode->name, r->options->server ? " server" : "", r->options->size);
	if (measures(r))
		printf(", %s", r->rate > 0 ? "open loop" : "closed loop");
	printf("\n");
	if (r->mode->needs == PERF_NEEDS_FRAMES)
		perf_forward_text(r, r->worker->port_count);
	else if (r->options->server)
		printf("  %" PRIu64 " received\n", r->pace.ended_in_window);
	else if (r->pace.begin_ns > 0)
		rate_text(r);
	if (measures(r) && r->pace.done > 0)
		percentiles_text(r);
	if (measures(r) && r->pace.done > 0 && r->mode->one_way)
		one_way_text(r);
	if (measures(r)) {
		load_text("this end", &r->load);
		load_text("the other", &r->far.load);
	}
}

/* ---- files ---- */

static double deviation_ns(const struct rp_hist *h)
{
	double mean = (double)rp_hist_mean(h), sum = 0;

	for (unsigned i = 0; i < RP_HIST_BUCKETS; i++) {
		double middle, d;

		if (h->buckets[i] == 0)
			continue;
		middle = ((double)rp_hist_bucket_low(i) + (double)rp_hist_bucket_high(i)) / 2;
		d = RP_MIN(middle, (double)h->max_ns) - mean;
		sum += d * d * (double)h->buckets[i];
	}
	return h->count > 0 ? sqrt(sum / (double)h->count) : 0;
}

/* Five lines for each halving of what is left, as HdrHistogram's own output has them. */
static void hgrm_write(FILE *f, const struct rp_hist *h)
{
	double q = 0;

	fputs("       Value     Percentile TotalCount 1/(1-Percentile)\n\n", f);
	for (;;) {
		uint64_t ns = rp_hist_percentile(h, 100 * q), count = 0;
		double left = 1 - q;

		for (unsigned i = 0; i <= rp_hist_bucket_of(ns); i++)
			count += h->buckets[i];
		if (ns >= h->max_ns || left < 1e-9)
			break;
		fprintf(f, "%12.3f %2.12f %10" PRIu64 " %14.2f\n", us(ns), q, count, 1 / left);
		q += 1 / (pow(2, floor(log2(1 / left)) + 1) * 5);
	}
	fprintf(f, "%12.3f %2.12f %10" PRIu64 "\n", us(h->max_ns), 1.0, h->count);
	fprintf(f,
		"#[Mean    = %12.3f, StdDeviation   = %12.3f]\n"
		"#[Max     = %12.3f, Total count    = %12" PRIu64 "]\n"
		"#[Buckets = %12d, SubBuckets     = %12d]\n",
		us(rp_hist_mean(h)), deviation_ns(h) / 1000, us(h->max_ns), h->count,
		RP_HIST_VALUE_BITS - RP_HIST_SUB_BITS + 1, 1 << RP_HIST_SUB_BITS);
}

static void csv_write(FILE *f, const struct perf_run *r)
{
	const struct perf_pace *p = &r->pace;

	fprintf(f, "# us of %s\nkind,at,corrected_us,raw_us,count,max_us\n", r->mode->measures);
	for (unsigned i = 0; i < PERF_PERCENTS; i++)
		fprintf(f, "percentile,%g,%.3f,%.3f,,\n", perf_percents[i],
			us(rp_hist_percentile(&p->corrected, perf_percents[i])),
			us(rp_hist_percentile(&p->raw, perf_percents[i])));
	for (unsigned i = 0; i < PERF_SERIES_MAX; i++) {
		const struct perf_pace_slot *s = &p->series[i];

		if (s->count > 0)
			fprintf(f, "ms,%.1f,%.3f,,%" PRIu64 ",%.3f\n",
				(double)(i * p->slot_ns) / 1e6, us(s->sum_ns / s->count), s->count,
				us(s->max_ns));
	}
}

static bool to_file(const char *path, const struct perf_result_set *s,
	bool (*write)(FILE *f, const struct perf_result_set *s))
{
	FILE *f = fopen(path, "w");
	bool good = f && write(f, s);

	if (!f || fclose(f) != 0 || !good) {
		fprintf(stderr, "ringperf: %s: %s\n", path, strerror(errno));
		return false;
	}
	return true;
}

static bool write_hgrm(FILE *f, const struct perf_result_set *s)
{
	hgrm_write(f, &s->run->pace.corrected);
	return true;
}

static bool write_csv(FILE *f, const struct perf_result_set *s)
{
	csv_write(f, s->run);
	return true;
}

/* ---- all of it ---- */

bool perf_result_good_set(const struct perf_result_set *s)
{
	const struct perf_run *r = s->run;
	struct perf_verdict v;

	if (r->why || r->faults > 0 || (s->trial_count > 0 && !s->found))
		return false;
	if (!r->mode->measures && !r->mode->unit)
		return true;
	perf_pace_verdict(&r->pace, &v);
	return v.met;
}

bool perf_result_report(const struct perf_result_set *s)
{
	const struct perf_options *o = s->host->options;
	bool good = perf_result_good_set(s);

	if (s->trial_count > 0 && !s->found) {
		fprintf(stderr, "ringperf: no rate that was tried went without loss\n");
		return false;
	}
	if (o->json)
		good &= perf_json_write(stdout, s);
	else
		perf_result_text(s->run);
	if (o->json_file)
		good &= to_file(o->json_file, s, perf_json_write);
	if (o->hgrm && measures(s->run))
		good &= to_file(o->hgrm, s, write_hgrm);
	if (o->csv && measures(s->run))
		good &= to_file(o->csv, s, write_csv);
	return good;
}
