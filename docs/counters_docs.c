/* SPDX-License-Identifier: Apache-2.0 */

/* Writes docs/counters.md from the list of metrics. */

#include <stdio.h>

#include <telem/metrics.h>

int main(void)
{
	fputs("# Metrics\n\n"
	      "This page is made from `lib/telem/metrics.def` and the lists of counters that it "
	      "names (`counters_docs` writes it, a\n"
	      "test compares it). What they are good for is in [monitoring.md](monitoring.md).\n\n"
	      "`/metrics` of a node's client port has them as Prometheus text, and as OpenMetrics "
	      "for who asks for that (Accept:\n"
	      "application/openmetrics-text). A name keeps its meaning; new ones may come. A "
	      "counter only grows, from the start of the\n"
	      "process. `ringpostctl stats` leaves out `_total`; of a histogram it shows the "
	      "number of values as `_count`.\n\n"
	      "| name | type | unit | labels | what it is |\n"
	      "|---|---|---|---|---|\n",
		stdout);
	rp_metrics_markdown(stdout);
	return fflush(stdout) == 0 ? 0 : 1;
}
