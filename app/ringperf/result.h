/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What runs showed: text, JSON, HdrHistogram's .hgrm, CSV. */

#include "host.h"

/** One run of a search. */
struct perf_trial {
	double rate;
	bool good;
	struct perf_verdict verdict;
};

#define PERF_TRIALS_MAX 64

struct perf_result_set {
	struct perf_host *host;
	struct perf_run *run;	/**< the one that counts; of a search the best that went well */
	struct perf_run *spare; /**< of the search */
	bool found;		/**< by the search */
	struct perf_trial trials[PERF_TRIALS_MAX];
	unsigned trial_count;
};

void perf_times_of(const struct rp_hist *h, struct perf_times *t);
/** Why it has no times of a way; NULL: it has. */
const char *perf_far_without(const struct perf_far *far);
void perf_trial_text(const struct perf_trial *t);
/** Nothing was lost or wrong, and the rate was met. */
bool perf_result_good_set(const struct perf_result_set *s);
/** All that the options ask for. True: it went well, and the rate was met. */
bool perf_result_report(const struct perf_result_set *s);
/** Of a run that is under way or over, for the shell. */
void perf_result_text(const struct perf_run *r);
/** What went through the ports. */
void perf_forward_text(const struct perf_run *r, unsigned ports);
