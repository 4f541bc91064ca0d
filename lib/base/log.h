/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * One line an event, the subject first: "[queue] ...". Cores get a sink and a context at creation
 * through nothing at all: they do not log on the fast path; what they have to say is rare (a claim,
 * a link that closes) and goes through rp_log(), whose sink the process installs once at start.
 *
 *   1. rp_log_set_sink() in main, or never: the default sink writes to stderr.
 *   2. rp_log_set_level() per subject or for all.
 *   3. RP_LOG(RP_LOG_QUEUE, RP_LOG_INFO, "claimed %s", name).
 */

#include <stdbool.h>
#include <stdint.h>

enum rp_log_level {
	RP_LOG_CRIT,
	RP_LOG_ERROR,
	RP_LOG_WARNING,
	RP_LOG_INFO,
	RP_LOG_DEBUG,
	RP_LOG_TRACE,
};

#define RP_LOG_SUBJECTS(X) \
	X(NODE, node)      \
	X(ETCD, etcd)      \
	X(QUEUE, queue)    \
	X(ROUTE, route)    \
	X(LINK, link)      \
	X(TCP, tcp)        \
	X(PORT, port)      \
	X(REPL, repl)      \
	X(GRPC, grpc)      \
	X(CONF, conf)

enum rp_log_subject {
#define X(upper, lower) RP_LOG_##upper,
	RP_LOG_SUBJECTS(X)
#undef X
		RP_LOG_SUBJECT_COUNT,
};

/** Called with a finished text without newline; any thread. */
typedef void (*rp_log_sink_fn)(
	enum rp_log_subject subject, enum rp_log_level level, const char *text);

void rp_log_set_sink(rp_log_sink_fn sink);
void rp_log_set_level(enum rp_log_level level);
void rp_log_set_subject_level(enum rp_log_subject subject, enum rp_log_level level);
enum rp_log_level rp_log_subject_level(enum rp_log_subject subject);
bool rp_log_enabled(enum rp_log_subject subject, enum rp_log_level level);
const char *rp_log_subject_name(enum rp_log_subject subject);
const char *rp_log_level_name(enum rp_log_level level);

__attribute__((format(printf, 3, 4))) void rp_log(
	enum rp_log_subject subject, enum rp_log_level level, const char *format, ...);

#define RP_LOG(subject, level, ...)                          \
	do {                                                 \
		if (rp_log_enabled(subject, level))          \
			rp_log(subject, level, __VA_ARGS__); \
	} while (0)
