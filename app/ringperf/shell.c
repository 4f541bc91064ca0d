/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmdline_parse.h>
#include <cmdline_parse_num.h>
#include <cmdline_parse_string.h>
#include <cmdline_rdline.h>
#include <cmdline_socket.h>

#include "result.h"
#include "shell.h"

#define STATUS_FAILED 1
#define STATUS_NO_PORT 15
#define LOOK_MS 20
#define LINE_MAX_BYTES 512
#define LOAD_DEPTH_MAX 8

static struct perf_shell shell;
static unsigned load_depth;

__attribute__((format(printf, 2, 3))) static void wrong(struct cmdline *cl, const char *format, ...)
{
	char text[256];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	cmdline_printf(cl, "%s\n", text);
	shell.failed = true;
}

/* ---- start and stop ---- */

static bool prepare(struct cmdline *cl)
{
	const struct perf_options *o = shell.options;

	if (shell.mode->needs == PERF_NEEDS_SOCKETS || shell.host->made)
		return true;
	/* With what every mode needs: EAL starts once in a process. */
	if (perf_host_make(shell.host, o, true) == 0)
		return true;
	wrong(cl, "%s", shell.host->error);
	return false;
}

static void start(struct cmdline *cl, bool tx_first)
{
	if (shell.running) {
		wrong(cl, "Packet forwarding already started");
		return;
	}
	if (!prepare(cl))
		return;
	if (shell.mode->needs == PERF_NEEDS_TRANSPORT && !shell.host->worker.transport) {
		wrong(cl, "%s needs --ipv4", shell.mode->name);
		return;
	}
	free(shell.run);
	shell.run = calloc(1, sizeof(*shell.run));
	if (!shell.run) {
		wrong(cl, "no memory");
		return;
	}
	shell.run->mode = shell.mode;
	shell.run->rate = shell.options->rate;
	shell.run->tx_first = tx_first;
	memset(shell.cleared, 0, sizeof(shell.cleared));
	if (perf_host_run(shell.host, shell.run) != 0) {
		wrong(cl, "no thread for it");
		return;
	}
	shell.running = true;
	cmdline_printf(cl, "%s forwarding started\n", shell.mode->name);
}

static void tell_end(struct cmdline *cl)
{
	shell.running = false;
	cmdline_printf(cl, "\n");
	if (shell.run->why)
		wrong(cl, "%s", shell.run->why);
	shell_show_forward(&shell, cl);
}

static bool is_over(void)
{
	return atomic_load_explicit(&shell.run->ended, memory_order_acquire);
}

static void stop(struct cmdline *cl)
{
	if (!shell.running) {
		wrong(cl, "Packet forwarding not started");
		return;
	}
	cmdline_printf(cl, "Telling cores to stop...\nWaiting for lcores to finish...\n");
	atomic_store(&shell.run->stop, true);
	while (!is_over())
		perf_host_look(shell.host);
	tell_end(cl);
	cmdline_printf(cl, "Done.\n");
}

/* ---- words ---- */

struct words {
	cmdline_fixed_string_t a, b, c, d;
	uint32_t number;
};

#define WORD(name, field, text)                    \
	static cmdline_parse_token_string_t name = \
		TOKEN_STRING_INITIALIZER(struct words, field, text)

WORD(w_simple, a, "help#start#stop#quit");
WORD(w_start, a, "start");
WORD(w_tx_first, b, "tx_first");
WORD(w_show, a, "show");
WORD(w_clear, a, "clear");
WORD(w_set, a, "set");
WORD(w_load, a, "load");
WORD(w_port, b, "port");
WORD(w_fwd, b, "fwd");
WORD(w_config, b, "config");
WORD(w_show_what, c, "info#stats#xstats");
WORD(w_clear_what, c, "stats#xstats");
WORD(w_stats, c, "stats");
WORD(w_all, d, "all");
WORD(w_quantity, b, "burst#size#window#connections#tcp_port#keys#watchers#queues");
WORD(w_real, b, "rate#seconds");
WORD(w_peer, b, "peer");
WORD(w_role, b, "role");
WORD(w_roles, c, "server#client");
WORD(w_mode, c,
	"io#echo#tcp-stream#tcp-rr#tcp-crr#deliver#rr#process#etcd-put#etcd-range#etcd-watch#grpc#nats-rr#nats");
WORD(w_any_b, b, NULL);
WORD(w_any_c, c, NULL);
static cmdline_parse_token_num_t n_number = TOKEN_NUM_INITIALIZER(struct words, number, RTE_UINT32);

static cmdline_parse_ctx_t commands[];

static void on_help(struct cmdline *cl)
{
	for (unsigned i = 0; commands[i]; i++)
		cmdline_printf(cl, "%s\n", ((cmdline_parse_inst_t *)commands[i])->help_str);
	cmdline_printf(cl, "modes:\n");
	for (unsigned i = 0; perf_mode_at(i); i++)
		cmdline_printf(cl, "  %-11s %s\n", perf_mode_at(i)->name, perf_mode_at(i)->text);
}

static void on_simple(void *parsed, struct cmdline *cl, void *data)
{
	struct words *w = parsed;

	if (strcmp(w->a, "help") == 0) {
		on_help(cl);
	} else if (strcmp(w->a, "start") == 0) {
		start(cl, false);
	} else if (strcmp(w->a, "stop") == 0) {
		stop(cl);
	} else {
		shell.quit = true;
		cmdline_quit(cl);
	}
}

static void on_start_first(void *parsed, struct cmdline *cl, void *data)
{
	start(cl, true);
}

static void on_show(void *parsed, struct cmdline *cl, void *data)
{
	struct words *w = parsed;

	if (strcmp(w->b, "fwd") == 0)
		shell_show_forward(&shell, cl);
	else if (strcmp(w->b, "config") == 0)
		shell_show_config(&shell, cl);
	else if (strcmp(w->c, "info") == 0)
		shell_show_info(&shell, cl);
	else if (strcmp(w->c, "stats") == 0)
		shell_show_stats(&shell, cl);
	else
		shell_show_xstats(&shell, cl);
}

static void on_clear(void *parsed, struct cmdline *cl, void *data)
{
	struct words *w = parsed;

	if (strcmp(w->b, "fwd") == 0)
		shell_clear_forward(&shell);
	else if (strcmp(w->c, "stats") == 0)
		shell_clear_stats(&shell);
	else
		shell_clear_xstats(&shell);
}

static bool is_idle(struct cmdline *cl)
{
	if (shell.running)
		wrong(cl, "Please stop forwarding first");
	return !shell.running;
}

static void on_set_mode(void *parsed, struct cmdline *cl, void *data)
{
	struct words *w = parsed;

	if (!is_idle(cl))
		return;
	shell.mode = perf_mode_find(w->c);
	cmdline_printf(cl, "Set %s packet forwarding mode\n", shell.mode->name);
}

static void on_set_number(void *parsed, struct cmdline *cl, void *data)
{
	struct words *w = parsed;
	struct perf_options *o = shell.options;
	const struct {
		const char *name;
		uint32_t *at;
		uint32_t least, most;
	} numbers[] = {
		{"burst", &o->burst, 1, RP_PORT_BURST_MAX},
		{"size", &o->size, PERF_MESSAGE_MIN, PERF_MESSAGE_MAX},
		{"window", &o->window, 0, 16384},
		{"connections", &o->connections, 1, PERF_CONNECTIONS_MAX},
		{"keys", &o->keys, 1, 10000000},
		{"watchers", &o->watchers, 1, 100000},
		{"queues", &o->queues, 1, 16384},
	};

	if (!is_idle(cl))
		return;
	if (strcmp(w->b, "tcp_port") == 0 && w->number > 0 && w->number < 65536) {
		o->tcp_port = (uint16_t)w->number;
		return;
	}
	for (unsigned i = 0; i < RP_ARRAY_SIZE(numbers); i++)
		if (strcmp(w->b, numbers[i].name) == 0 && w->number >= numbers[i].least &&
			w->number <= numbers[i].most) {
			*numbers[i].at = w->number;
			return;
		}
	wrong(cl, "%s cannot be %u", w->b, w->number);
}

static void on_set_real(void *parsed, struct cmdline *cl, void *data)
{
	struct words *w = parsed;
	char *end;
	double value = strtod(w->c, &end);
	bool rate = strcmp(w->b, "rate") == 0;

	if (!is_idle(cl))
		return;
	if (w->c[0] < '0' || w->c[0] > '9' || *end != '\0' || value > (rate ? 1e9 : 3600) ||
		(!rate && value < 0.01)) {
		wrong(cl, "%s cannot be %s", w->b, w->c);
	} else if (rate) {
		shell.options->rate = value;
	} else {
		shell.options->run_ns = (uint64_t)(value * (double)RP_NS_PER_S);
		shell.options->run_set = true;
	}
}

static void on_set_text(void *parsed, struct cmdline *cl, void *data)
{
	struct words *w = parsed;

	if (!is_idle(cl))
		return;
	if (strcmp(w->b, "role") == 0)
		shell.options->server = strcmp(w->c, "server") == 0;
	else if (inet_pton(AF_INET, w->c, shell.options->peer) == 1)
		shell.options->has_peer = true;
	else
		wrong(cl, "%s is no IPv4 address", w->c);
}

/* ---- files ---- */

static bool run_line(struct cmdline *cl, const char *path, unsigned number, const char *line)
{
	int rc;

	shell.failed = false;
	cmdline_printf(cl, "%s", line);
	rc = cmdline_parse(cl, line);
	if (rc >= 0 && !shell.failed)
		return true;
	cmdline_printf(cl, "%s:%u: %s\n", path, number,
		rc == CMDLINE_PARSE_AMBIGUOUS  ? "ambiguous"
		: rc == CMDLINE_PARSE_BAD_ARGS ? "bad arguments"
		: rc == CMDLINE_PARSE_NOMATCH  ? "no such command"
					       : "failed");
	return false;
}

/* Stops at the first error, unless it was told not to. */
static void load(struct cmdline *cl, const char *path)
{
	FILE *f = load_depth < LOAD_DEPTH_MAX ? fopen(path, "r") : NULL;
	char line[LINE_MAX_BYTES];
	bool good = true;

	if (!f) {
		wrong(cl, "%s: %s", path,
			load_depth < LOAD_DEPTH_MAX ? strerror(errno) : "loads itself");
		return;
	}
	load_depth++;
	for (unsigned n = 1; !shell.quit && fgets(line, sizeof(line) - 1, f); n++) {
		size_t length = strcspn(line, "\n");

		strcpy(line + length, "\n");
		if (line[strspn(line, " \t")] == '\n' || line[strspn(line, " \t")] == '#')
			continue;
		if (run_line(cl, path, n, line))
			continue;
		good = false;
		if (!shell.options->keep_going)
			break;
	}
	load_depth--;
	fclose(f);
	shell.failed = !good && !shell.options->keep_going;
}

static void on_load(void *parsed, struct cmdline *cl, void *data)
{
	struct words *w = parsed;

	load(cl, w->b);
}

/* ---- the list ---- */

#define COMMAND(name, fn, help, ...)           \
	static cmdline_parse_inst_t name = {   \
		.f = fn,                       \
		.help_str = help,              \
		.tokens = {__VA_ARGS__, NULL}, \
	}

COMMAND(c_simple, on_simple, "help, start, stop, quit", (void *)&w_simple);
COMMAND(c_first, on_start_first, "start tx_first: with a burst of our own", (void *)&w_start,
	(void *)&w_tx_first);
COMMAND(c_show_port, on_show, "show port info|stats|xstats all", (void *)&w_show, (void *)&w_port,
	(void *)&w_show_what, (void *)&w_all);
COMMAND(c_show_fwd, on_show, "show fwd stats all: the mode's figures", (void *)&w_show,
	(void *)&w_fwd, (void *)&w_stats, (void *)&w_all);
COMMAND(c_show_config, on_show, "show config", (void *)&w_show, (void *)&w_config);
COMMAND(c_clear_port, on_clear, "clear port stats|xstats all", (void *)&w_clear, (void *)&w_port,
	(void *)&w_clear_what, (void *)&w_all);
COMMAND(c_clear_fwd, on_clear, "clear fwd stats all", (void *)&w_clear, (void *)&w_fwd,
	(void *)&w_stats, (void *)&w_all);
COMMAND(c_set_mode, on_set_mode, "set fwd MODE", (void *)&w_set, (void *)&w_fwd, (void *)&w_mode);
COMMAND(c_set_number, on_set_number,
	"set burst|size|window|connections|tcp_port|keys|watchers|queues NUMBER", (void *)&w_set,
	(void *)&w_quantity, (void *)&n_number);
COMMAND(c_set_real, on_set_real, "set rate|seconds NUMBER: operations a second; how long",
	(void *)&w_set, (void *)&w_real, (void *)&w_any_c);
COMMAND(c_set_peer, on_set_text, "set peer ADDRESS", (void *)&w_set, (void *)&w_peer,
	(void *)&w_any_c);
COMMAND(c_set_role, on_set_text, "set role server|client", (void *)&w_set, (void *)&w_role,
	(void *)&w_roles);
COMMAND(c_load, on_load, "load FILE: commands of a file", (void *)&w_load, (void *)&w_any_b);

static cmdline_parse_ctx_t commands[] = {
	&c_simple,
	&c_first,
	&c_show_port,
	&c_show_fwd,
	&c_show_config,
	&c_clear_port,
	&c_clear_fwd,
	&c_set_mode,
	&c_set_number,
	&c_set_real,
	&c_set_peer,
	&c_set_role,
	&c_load,
	NULL,
};

/* ---- the loop ---- */

/* What was typed; false: there is no more. */
static bool take_input(struct cmdline *cl)
{
	struct pollfd p = {.fd = STDIN_FILENO, .events = POLLIN};
	char text[256];
	ssize_t n;

	if (poll(&p, 1, LOOK_MS) <= 0)
		return true;
	n = read(STDIN_FILENO, text, sizeof(text));
	if (n < 0)
		return errno == EINTR || errno == EAGAIN;
	return n > 0 && cmdline_in(cl, text, (int)n) >= 0;
}

static void show_period(struct cmdline *cl)
{
	static uint64_t shown_ns;
	uint64_t now_ns = perf_now_ns();

	if (shell.options->stats_period_s == 0 ||
		now_ns - shown_ns < shell.options->stats_period_s * RP_NS_PER_S)
		return;
	if (shown_ns > 0) {
		shell_show_stats(&shell, cl);
		if (shell.run)
			shell_show_forward(&shell, cl);
	}
	shown_ns = now_ns;
}

/* Goes on without input until a signal, as testpmd does with a period. */
static void interact(struct cmdline *cl)
{
	bool input = true;

	while (!shell.quit && !atomic_load(&perf_told_to_stop)) {
		if (input && !take_input(cl)) {
			input = false;
			shell.quit = shell.options->stats_period_s == 0 &&
				     !(shell.running && shell.options->auto_start);
		}
		if (!input)
			poll(NULL, 0, LOOK_MS);
		perf_host_look(shell.host);
		if (shell.running && is_over()) {
			tell_end(cl);
			shell.quit |= !input && shell.options->stats_period_s == 0;
		}
		show_period(cl);
	}
}

int perf_shell(struct perf_host *host, struct perf_options *options)
{
	struct cmdline *cl;
	bool failed = false;

	shell = (struct perf_shell){.host = host, .options = options};
	shell.mode = perf_mode_find(options->mode ? options->mode : "io");
	host->options = options;
	host->worker.options = options;
	cl = cmdline_stdin_new(commands, "ringperf> ");
	if (!cl) {
		fprintf(stderr, "ringperf: no command line\n");
		return STATUS_FAILED;
	}
	if (options->device_count > 0 && !prepare(cl))
		shell.quit = failed = true;
	if (!shell.quit && options->cmdline_file) {
		load(cl, options->cmdline_file);
		failed = shell.failed;
		shell.quit |= failed;
	}
	if (!shell.quit && options->auto_start && !shell.running)
		start(cl, options->tx_first);
	interact(cl);
	if (shell.running)
		stop(cl);
	perf_host_end(host);
	cmdline_stdin_exit(cl);
	if (host->made)
		perf_host_destroy(host);
	free(shell.run);
	return failed ? (host->error[0] ? STATUS_NO_PORT : STATUS_FAILED) : 0;
}
