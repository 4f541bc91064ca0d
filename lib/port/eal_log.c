/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DPDK's log, sent to ours. Its last lines are kept, since most of what DPDK knows of a failure is
 * in its log only: the return codes say little.
 */
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <rte_log.h>

#include <base/log.h>
#include <base/units.h>

#include "port_priv.h"

#define LINES_KEPT 32
#define LINE_BYTES 240
/** How many lines port_log_since() joins at most: the first ones name the cause. */
#define LINES_JOINED 3

static struct {
	pthread_mutex_t lock;
	FILE *stream;
	char line[LINE_BYTES]; /* the line being written */
	size_t length;
	uint32_t level;
	char kept[LINES_KEPT][LINE_BYTES];
	uint32_t kept_level[LINES_KEPT];
	uint64_t count; /* lines that were ever kept */
	bool quiet;
} logs = {.lock = PTHREAD_MUTEX_INITIALIZER};

int port_fail(char *error, size_t error_size, int code, const char *format, ...)
{
	va_list args;

	if (error && error_size > 0) {
		va_start(args, format);
		vsnprintf(error, error_size, format, args);
		va_end(args);
	}
	return code;
}

static enum rp_log_level level_of(uint32_t rte_level)
{
	if (rte_level <= RTE_LOG_ERR)
		return RP_LOG_WARNING;
	if (rte_level <= RTE_LOG_NOTICE)
		return RP_LOG_INFO;
	return RP_LOG_DEBUG;
}

/* logs.lock is held. */
static void end_line(void)
{
	unsigned i = (unsigned)(logs.count % LINES_KEPT);

	if (logs.length == 0)
		return;
	logs.line[logs.length] = '\0';
	memcpy(logs.kept[i], logs.line, logs.length + 1);
	logs.kept_level[i] = logs.level;
	logs.count++;
	logs.length = 0;
	RP_LOG(RP_LOG_PORT, logs.quiet ? RP_LOG_DEBUG : level_of(logs.level), "dpdk: %s",
		logs.kept[i]);
}

static ssize_t on_write(void *cookie, const char *text, size_t size)
{
	int level = rte_log_cur_msg_loglevel();

	pthread_mutex_lock(&logs.lock);
	logs.level = level < 0 ? RTE_LOG_INFO : (uint32_t)level;
	for (size_t i = 0; i < size; i++) {
		if (text[i] == '\n' || text[i] == '\r')
			end_line();
		else if (logs.length + 1 < sizeof(logs.line))
			logs.line[logs.length++] = text[i];
	}
	pthread_mutex_unlock(&logs.lock);
	return (ssize_t)size;
}

int port_log_open(void)
{
	cookie_io_functions_t io = {.write = on_write};

	if (logs.stream)
		return 0;
	logs.stream = fopencookie(NULL, "w", io);
	if (!logs.stream)
		return -ENOMEM;
	setvbuf(logs.stream, NULL, _IOLBF, 0);
	rte_openlog_stream(logs.stream);
	return 0;
}

void port_log_close(void)
{
	if (!logs.stream)
		return;
	fflush(logs.stream);
	rte_openlog_stream(NULL);
	fclose(logs.stream);
	logs.stream = NULL;
}

void port_log_quiet(bool quiet)
{
	pthread_mutex_lock(&logs.lock);
	logs.quiet = quiet;
	pthread_mutex_unlock(&logs.lock);
}

uint64_t port_log_mark(void)
{
	uint64_t count;

	pthread_mutex_lock(&logs.lock);
	count = logs.count;
	pthread_mutex_unlock(&logs.lock);
	return count;
}

void port_log_since(uint64_t mark, char *text, size_t text_size)
{
	size_t length = 0;
	unsigned joined = 0;

	text[0] = '\0';
	pthread_mutex_lock(&logs.lock);
	if (logs.count > LINES_KEPT && mark < logs.count - LINES_KEPT)
		mark = logs.count - LINES_KEPT;
	for (uint64_t i = mark; i < logs.count && joined < LINES_JOINED; i++) {
		int n;

		/* Chatter below a notice is not what a failure is made of. */
		if (logs.kept_level[i % LINES_KEPT] > RTE_LOG_WARNING)
			continue;
		n = snprintf(text + length, text_size - length, "%s%s", length > 0 ? "; " : "",
			logs.kept[i % LINES_KEPT]);
		if (n < 0 || (size_t)n >= text_size - length)
			break;
		length += (size_t)n;
		joined++;
	}
	pthread_mutex_unlock(&logs.lock);
}
