/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The interactive ringperf: testpmd's words over librte_cmdline, which has history and completion.
 */

#include <cmdline.h>

#include "host.h"

struct perf_shell {
	struct perf_host *host;
	struct perf_options *options;
	const struct perf_mode *mode;
	struct perf_run *run; /**< the last; NULL: none was started */
	bool running;	      /**< it is under way */
	bool failed;	      /**< the last command */
	bool quit;
	struct perf_forward cleared[PERF_PORTS_MAX]; /**< what was there at `clear` */
	uint64_t cleared_port[PERF_PORTS_MAX][64];
};

/** An exit status. */
int perf_shell(struct perf_host *host, struct perf_options *options);

/* shell_show.c */
void shell_show_info(struct perf_shell *s, struct cmdline *cl);
void shell_show_stats(struct perf_shell *s, struct cmdline *cl);
void shell_show_xstats(struct perf_shell *s, struct cmdline *cl);
void shell_show_forward(struct perf_shell *s, struct cmdline *cl);
void shell_show_config(struct perf_shell *s, struct cmdline *cl);
void shell_clear_stats(struct perf_shell *s);
void shell_clear_xstats(struct perf_shell *s);
void shell_clear_forward(struct perf_shell *s);
