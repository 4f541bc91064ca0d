/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>

#include <base/log.h>

/* Written at start and on reload by the control thread, read by all. */
static _Atomic int levels[RP_LOG_SUBJECT_COUNT] = {
#define X(upper, lower) [RP_LOG_##upper] = RP_LOG_INFO,
	RP_LOG_SUBJECTS(X)
#undef X
};

static const char *const subject_names[RP_LOG_SUBJECT_COUNT] = {
#define X(upper, lower) [RP_LOG_##upper] = #lower,
	RP_LOG_SUBJECTS(X)
#undef X
};

static const char *const level_names[] = {"critical", "error", "warning", "info", "debug", "trace"};

static void stderr_sink(enum rp_log_subject subject, enum rp_log_level level, const char *text)
{
	fprintf(stderr, "[%s] %s: %s\n", subject_names[subject], level_names[level], text);
}

static _Atomic(rp_log_sink_fn) current_sink = stderr_sink;

void rp_log_set_sink(rp_log_sink_fn sink)
{
	atomic_store(&current_sink, sink ? sink : stderr_sink);
}

void rp_log_set_level(enum rp_log_level level)
{
	for (int s = 0; s < RP_LOG_SUBJECT_COUNT; s++)
		atomic_store_explicit(&levels[s], level, memory_order_relaxed);
}

void rp_log_set_subject_level(enum rp_log_subject subject, enum rp_log_level level)
{
	atomic_store_explicit(&levels[subject], level, memory_order_relaxed);
}

enum rp_log_level rp_log_subject_level(enum rp_log_subject subject)
{
	return (enum rp_log_level)atomic_load_explicit(&levels[subject], memory_order_relaxed);
}

bool rp_log_enabled(enum rp_log_subject subject, enum rp_log_level level)
{
	return (int)level <= atomic_load_explicit(&levels[subject], memory_order_relaxed);
}

const char *rp_log_subject_name(enum rp_log_subject subject)
{
	return subject_names[subject];
}

const char *rp_log_level_name(enum rp_log_level level)
{
	return level_names[level];
}

void rp_log(enum rp_log_subject subject, enum rp_log_level level, const char *format, ...)
{
	char text[1024];
	va_list ap;

	va_start(ap, format);
	vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	atomic_load (&current_sink)(subject, level, text);
}
