/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mode.h"
#include "wire.h"

const char *const perf_test_names[PERF_TEST_COUNT] = {
#define X(upper, lower, text) #lower,
	PERF_TESTS(X)
#undef X
};
const char *const perf_transport_names[3] = {"tcp", "ktcp", "raw"};

/* X(letter, name, argument, text) */
#define OPTIONS(X)                                                                                 \
	X('t', "transport", "tcp|ktcp|raw", "our stack on a port, a kernel socket, bare frames")   \
	X('d', "device", "TEXT",                                                                   \
		"the port, as in port.device: net_memif0,role=server,socket=/run/x")               \
	X('D', "driver-config", "FILE", "values of its driver; built in")                          \
	X('a', "ipv4", "ADDRESS[/LENGTH]", "our address; a kernel server listens on it")           \
	X('g', "gateway", "ADDRESS", "next hop off the subnet")                                    \
	X('p', "peer", "ADDRESS", "client: the server's address")                                  \
	X('P', "port", "NUMBER", "TCP port; 7117")                                                 \
	X('T', "test", "NAME[,NAME]", "client: rate, rr, bulk; all three")                         \
	X('z', "size", "BYTES", "of a message of rate and rr; 64")                                 \
	X('Z', "bulk-size", "BYTES", "of a message of bulk; 16384; raw: a full frame")             \
	X('s', "seconds", "NUMBER", "client: time of each test, as 0.25; 1")                       \
	X('r', "repeat", "NUMBER", "client: the tests, in their order, so many times; 1")          \
	X('w', "warmup-ms", "NUMBER", "client: each test runs so long before it counts; 200")      \
	X('c', "connect-s", "NUMBER", "client: how long to wait for the server; 10")               \
	X('n', "sessions", "NUMBER", "server: ends after so many clients; 0: at a signal; 0")      \
	X('i', "idle", "poll|adaptive", "what a turn without work does; poll")                     \
	X('k', "connections", "NUMBER", "tcp: bulk goes over so many in turn; at both ends; 1")    \
	X('I', "idle-spin-us", "NUMBER", "adaptive: how long it spins before it sleeps; 50")       \
	X('C', "cpu", "NUMBER", "of the polling lcore; server 0, client 1; adaptive: any")         \
	X('N', "near", "CPU", "client: say how near that CPU is, before and after each test")      \
	X('H', "hugepages", "auto|on|off", "auto")                                                 \
	X('S', "checksum", "auto|hw|sw", "who makes checksums; auto")                              \
	X('O', "tso", "auto|on|off",                                                               \
		"who cuts segments: the device, the port (on), our stack; auto")                   \
	X('m', "mtu", "BYTES", "1500")                                                             \
	X('j', "json", NULL, "client: the results as JSON")                                        \
	X('v', "verbose", NULL, "log what the port says")                                          \
	X('M', "rate", "NUMBER", "run: operations a second, open loop; 0: one after the other; 0") \
	X('W', "window", "NUMBER", "run: under way at once, of grpc and etcd on each connection")  \
	X('e', "cool-ms", "NUMBER", "run: the end of it that does not count; 100")                 \
	X('F', "search", "NUMBER", "run: bisection for the highest rate without loss, up to this") \
	X('f', "search-steps", "NUMBER", "runs of the search; 8")                                  \
	X('G', "hgrm", "FILE", "run: percentiles, as HdrHistogram's plotter reads them")           \
	X('Q', "csv", "FILE", "run: percentiles and time series")                                  \
	X('J', "json-file", "FILE", "run: the result as JSON, docs/schema/ringperf.schema.json")   \
	X('R', "serve", NULL, "run: the other end, until a signal")                                \
	X('B', "burst", "NUMBER", "frames of a receive burst; 32")                                 \
	X('K', "keys", "NUMBER", "etcd: over so many; 10000")                                      \
	X('V', "watchers", "NUMBER", "etcd-watch: so many; 100")                                   \
	X('l', "outputs", "NUMBER", "process --serve: of each job; 3")                             \
	X('q', "queues", "NUMBER",                                                                 \
		"deliver: over so many in turn, a stream each; at both ends; 1")                   \
	X('1', "tx-first", NULL, "io, echo: begin with a burst of our own")                        \
	X('A', "auto-start", NULL, "shell: start at once")                                         \
	X('U', "stats-period", "SECONDS", "shell: show port stats all so often")                   \
	X('x', "cmdline-file", "FILE", "shell: its commands first; an error ends it")              \
	X('y', "keep-going", NULL, "shell: an error in the file does not")                         \
	X('o', "mode", "NAME", "shell: as set fwd")                                                \
	X('h', "help", NULL, "this")

static int fault(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	fputs("ringperf: ", stderr);
	vfprintf(stderr, format, args);
	fputs("; --help lists the options\n", stderr);
	va_end(args);
	return -1;
}

static void help(void)
{
	printf("usage: ringperf [OPTION]...\n"
	       "       ringperf run MODE [OPTION]...\n"
	       "       ringperf server|client [OPTION]...\n"
	       "       ringperf line [CPU CPU]\n\n"
	       "Without a word in front: a shell with testpmd's commands; help lists them.\n"
	       "run: one mode, at a set rate or as fast as it goes, and its report.\n"
	       "server, client: the same messages between two processes over any transport. Start "
	       "the\nserver first. line: the time of a cache line between two CPUs and back, in "
	       "ns.\n\n");
#define X(letter, name, argument, text)                                                         \
	printf("  --%s%s%-*s %s\n", name, argument ? " " : "", (int)(34 - sizeof("  --" name)), \
		argument ? argument : (const char *)"", text);
	OPTIONS(X)
#undef X
	printf("\ntests:\n");
#define X(upper, lower, text) printf("  %-6s %s\n", #lower, text);
	PERF_TESTS(X)
#undef X
	printf("\nmodes:\n");
	for (unsigned i = 0; perf_mode_at(i); i++)
		printf("  %-11s %s\n", perf_mode_at(i)->name, perf_mode_at(i)->text);
	printf("\nStatus: 0; 1 a test failed, or a rate was not met; 2 usage; 15 no port or no "
	       "memory.\n");
}

/* ---- the man page, for scdoc ---- */

/* A backslash before what scdoc would read as markup. */
static void man_text(const char *text)
{
	for (; *text; text++) {
		if (strchr("_*\\<>#[]|~", *text))
			putchar('\\');
		putchar(*text);
	}
}

static void man_entry(const char *name, const char *argument, const char *text)
{
	printf("\n*");
	man_text(name);
	printf("*");
	if (argument) {
		printf(" _");
		man_text(argument);
		printf("_");
	}
	printf("\n\t");
	man_text(text);
	printf("\n");
}

static void man(void)
{
	printf("ringperf(1)\n\n# NAME\n\nringperf - measures TCP, Deliver and etcd over DPDK "
	       "ports and kernel sockets\n\n"
	       "# SYNOPSIS\n\n*ringperf* [_OPTION_]...++\n*ringperf run* _MODE_ [_OPTION_]...++\n"
	       "*ringperf server*|*client* [_OPTION_]...++\n*ringperf line* [_CPU_ _CPU_]\n\n"
	       "# DESCRIPTION\n\n"
	       "Without a word in front it is a shell with the commands of testpmd; *help* lists "
	       "them.\n\n"
	       "*run* does one mode and reports. With *--rate* it is an open loop: each operation has "
	       "its time whatever became of those before, and latencies are from that time "
	       "(corrected) and from when it was begun (raw). Warm-up and cool-down do not "
	       "count.\n\n"
	       "*server* and *client* carry the same messages over any transport, and agree on what "
	       "was sent and received. *line* says how long a cache line takes between two CPUs and "
	       "back, in ns.\n\n# MODES\n");
	for (unsigned i = 0; perf_mode_at(i); i++)
		man_entry(perf_mode_at(i)->name, NULL, perf_mode_at(i)->text);
	printf("\n# TESTS OF SERVER AND CLIENT\n");
#define X(upper, lower, text) man_entry(#lower, NULL, text);
	PERF_TESTS(X)
#undef X
	printf("\n# OPTIONS\n");
#define X(letter, name, argument, text) man_entry("--" name, argument, text);
	OPTIONS(X)
#undef X
	printf("\n# EXIT STATUS\n\n0 in order; 1 a test failed, something was lost, or a rate was "
	       "not met; 2 wrong usage; 15 no port or no memory.\n\n"
	       "# SEE ALSO\n\n*ringpostd*(8), *ringpostctl*(1)\n");
}

static int word(const char *text, const char *const *words, int count)
{
	for (int i = 0; i < count; i++)
		if (strcmp(text, words[i]) == 0)
			return i;
	return -1;
}

/* True when `text` is a decimal number from `min` to `max`. */
static bool number(const char *text, uint64_t min, uint64_t max, uint64_t *value)
{
	char *end;

	errno = 0;
	*value = strtoull(text, &end, 10);
	return *text >= '0' && *text <= '9' && *end == '\0' && errno == 0 && *value >= min &&
	       *value <= max;
}

static bool real(const char *text, double most, double *value)
{
	char *end;

	*value = strtod(text, &end);
	return *text >= '0' && *text <= '9' && *end == '\0' && *value <= most;
}

static bool seconds(const char *text, uint64_t *ns)
{
	char *end;
	double value = strtod(text, &end);

	if (*text < '0' || *text > '9' || *end != '\0' || !(value >= 0.01 && value <= 3600))
		return false;
	*ns = (uint64_t)(value * (double)RP_NS_PER_S);
	return true;
}

static bool address(const char *text, uint8_t addr[4], uint8_t *prefix_length)
{
	char host[INET_ADDRSTRLEN];
	const char *slash = strchr(text, '/');
	size_t length = slash ? (size_t)(slash - text) : strlen(text);
	uint64_t bits = 24;

	if (length >= sizeof(host) ||
		(slash && (!prefix_length || !number(slash + 1, 1, 32, &bits))))
		return false;
	memcpy(host, text, length);
	host[length] = '\0';
	if (prefix_length)
		*prefix_length = (uint8_t)bits;
	return inet_pton(AF_INET, host, addr) == 1;
}

static bool tests(char *text, struct perf_options *o)
{
	char *rest = NULL;

	o->test_count = 0;
	for (char *t = strtok_r(text, ",", &rest); t; t = strtok_r(NULL, ",", &rest)) {
		int test = word(t, perf_test_names, PERF_TEST_COUNT);

		if (test < 0 || o->test_count >= PERF_RUNS_MAX)
			return false;
		o->tests[o->test_count++] = (enum perf_test)test;
	}
	return o->test_count > 0;
}

/* Words that choose one of an enum; false when it is none of them. */
static bool choice(int letter, const char *text, struct perf_options *o)
{
	static const char *const idle[] = {"poll", "adaptive"};
	static const char *const pages[] = {"auto", "on", "off"};
	static const char *const sums[] = {"auto", "hw", "sw"};
	int i;

	switch (letter) {
	case 't':
		i = word(text, perf_transport_names, 3);
		o->transport = (enum perf_transport)i;
		return i >= 0;
	case 'i':
		i = word(text, idle, 2);
		o->adaptive = i == 1;
		return i >= 0;
	case 'H':
		i = word(text, pages, 3);
		o->hugepages = (enum rp_eal_hugepages)i;
		return i >= 0;
	case 'O':
		i = word(text, pages, 3);
		o->tso = (enum rp_port_choice)i;
		return i >= 0;
	default:
		i = word(text, sums, 3);
		o->checksum = (enum rp_port_checksum)i;
		return i >= 0;
	}
}

/* Numbers; false when it is out of range. */
static bool quantity(int letter, const char *text, struct perf_options *o)
{
	uint64_t value = 0;
	bool ok;

	switch (letter) {
	case 'P':
		ok = number(text, 1, 65535, &value);
		o->tcp_port = (uint16_t)value;
		return ok;
	case 'z':
		ok = number(text, PERF_MESSAGE_MIN, PERF_MESSAGE_MAX, &value);
		o->size = (uint32_t)value;
		return ok;
	case 'Z':
		ok = number(text, PERF_MESSAGE_MIN, PERF_MESSAGE_MAX, &value);
		o->bulk_size = (uint32_t)value;
		return ok;
	case 'r':
		ok = number(text, 1, PERF_RUNS_MAX, &value);
		o->repeat = (unsigned)value;
		return ok;
	case 'N':
		ok = number(text, 0, CPU_SETSIZE - 1, &value);
		o->near_cpu = (uint32_t)value;
		o->near = true;
		return ok;
	case 'w':
		ok = number(text, 0, 60000, &value);
		o->warmup_ns = value * RP_NS_PER_MS;
		return ok;
	case 'c':
		ok = number(text, 1, 3600, &value);
		o->connect_ns = value * RP_NS_PER_S;
		return ok;
	case 'n':
		ok = number(text, 0, UINT32_MAX, &value);
		o->sessions = (uint32_t)value;
		return ok;
	case 'k':
		ok = number(text, 1, PERF_CONNECTIONS_MAX, &value);
		o->connections = (uint32_t)value;
		return ok;
	case 'I':
		ok = number(text, 0, 1000000, &value);
		o->spin_ns = value * RP_NS_PER_US;
		return ok;
	case 'C':
		ok = number(text, 0, CPU_SETSIZE - 1, &value);
		o->cpu = (uint32_t)value;
		return ok;
	default:
		ok = number(text, 576, 9000, &value);
		o->mtu = (uint16_t)value;
		return ok;
	}
}

/* What only run and the shell know. True: it is one of these, and `ok` says whether it can be. */
static bool set_run(int letter, char *text, struct perf_options *o, bool *ok)
{
	uint64_t value = 0;

	*ok = true;
	switch (letter) {
	case 'M':
		*ok = real(text, 1e9, &o->rate);
		return true;
	case 'F':
		*ok = real(text, 1e9, &o->search) && o->search > 0;
		return true;
	case 'f':
		*ok = number(text, 1, 64, &value);
		o->search_steps = (uint32_t)value;
		return true;
	case 'W':
		*ok = number(text, 1, 16384, &value);
		o->window = (uint32_t)value;
		return true;
	case 'e':
		*ok = number(text, 0, 60000, &value);
		o->cool_ns = value * RP_NS_PER_MS;
		return true;
	case 'B':
		*ok = number(text, 1, RP_PORT_BURST_MAX, &value);
		o->burst = (uint32_t)value;
		return true;
	case 'K':
		*ok = number(text, 1, 10000000, &value);
		o->keys = (uint32_t)value;
		return true;
	case 'V':
		*ok = number(text, 1, 100000, &value);
		o->watchers = (uint32_t)value;
		return true;
	case 'q':
		*ok = number(text, 1, 16384, &value);
		o->queues = (uint32_t)value;
		return true;
	case 'l':
		*ok = number(text, 0, 1000, &value);
		o->outputs = (uint32_t)value;
		return true;
	case 'U':
		*ok = number(text, 1, 3600, &value);
		o->stats_period_s = (uint32_t)value;
		return true;
	case 'o':
		o->mode = text;
		*ok = perf_mode_find(text) != NULL;
		return true;
	default:
		return false;
	}
}

static bool set_file(int letter, char *text, struct perf_options *o)
{
	switch (letter) {
	case 'G':
		o->hgrm = text;
		return true;
	case 'Q':
		o->csv = text;
		return true;
	case 'J':
		o->json_file = text;
		return true;
	case 'x':
		o->cmdline_file = text;
		return true;
	case 'R':
		o->server = true;
		return true;
	case '1':
		o->tx_first = true;
		return true;
	case 'A':
		o->auto_start = true;
		return true;
	case 'y':
		o->keep_going = true;
		return true;
	default:
		return false;
	}
}

static bool set(int letter, char *text, struct perf_options *o)
{
	bool ok;

	if (set_run(letter, text, o, &ok))
		return ok;
	if (set_file(letter, text, o))
		return true;
	switch (letter) {
	case 'd':
		if (o->device_count == PERF_PORTS_MAX)
			return false;
		o->devices[o->device_count++] = text;
		return true;
	case 'D':
		o->driver_config = text;
		return true;
	case 'a':
		o->has_addr = address(text, o->addr, &o->prefix_length);
		return o->has_addr;
	case 'g':
		return address(text, o->gateway, NULL);
	case 'p':
		o->has_peer = address(text, o->peer, NULL);
		return o->has_peer;
	case 'T':
		return tests(text, o);
	case 'j':
		o->json = true;
		return true;
	case 'v':
		o->verbose = true;
		return true;
	case 's':
		o->run_set = true;
		return seconds(text, &o->run_ns);
	case 't':
	case 'i':
	case 'H':
	case 'O':
	case 'S':
		return choice(letter, text, o);
	default:
		return quantity(letter, text, o);
	}
}

static bool cpu_usable(uint32_t cpu)
{
	cpu_set_t set;

	return sched_getaffinity(0, sizeof(set), &set) == 0 && CPU_ISSET(cpu, &set);
}

/* Of run and of the shell: the transport is what there is. */
static int check_run(struct perf_options *o)
{
	const struct perf_mode *m = o->mode ? perf_mode_find(o->mode) : NULL;
	uint32_t wish = o->server ? 0 : 1;

	o->transport = o->device_count > 0 ? PERF_TCP : PERF_KTCP;
	if (o->cpu == RP_EAL_CPU_ANY && !o->adaptive && cpu_usable(wish))
		o->cpu = wish;
	if (o->command == PERF_SHELL)
		return 0;
	if (m->needs == PERF_NEEDS_FRAMES && o->device_count == 0)
		return fault("%s needs a --device", m->name);
	if (m->needs != PERF_NEEDS_FRAMES && m->needs != PERF_NEEDS_SOCKETS &&
		o->device_count > 0 && !o->has_addr)
		return fault("--ipv4 is needed");
	if (m->needs == PERF_NEEDS_TRANSPORT && !o->server && !o->has_peer)
		return fault("--peer is needed");
	if (m->needs == PERF_NEEDS_ENGINE && !o->has_peer)
		return fault("--peer is needed, at both ends");
	if (o->search > 0 && (o->server || !m->measures))
		return fault("--search is for a client of a mode that measures");
	return 0;
}

/* What belongs together. */
static int check(struct perf_options *o)
{
	bool raw = o->transport == PERF_RAW;
	uint32_t frame_max = o->mtu + PERF_ETHER_BYTES;
	uint32_t wish = o->server ? 0 : 1;

	if (o->transport == PERF_KTCP && o->device_count > 0)
		return fault("--device is of no use with ktcp");
	if (o->transport != PERF_KTCP && o->device_count != 1)
		return fault("--device is needed with %s", perf_transport_names[o->transport]);
	if (!o->has_addr && (o->transport == PERF_TCP || (o->server && !raw)))
		return fault("--ipv4 is needed");
	if (!o->server && !raw && !o->has_peer)
		return fault("--peer is needed");
	if (raw && o->bulk_size == 0)
		o->bulk_size = frame_max;
	if (o->bulk_size == 0)
		o->bulk_size = 16384;
	if (raw && (o->size > frame_max || o->bulk_size > frame_max ||
			   o->size < PERF_MESSAGE_MIN + PERF_ETHER_BYTES ||
			   o->bulk_size < PERF_MESSAGE_MIN + PERF_ETHER_BYTES))
		return fault("a frame has %d to %u bytes", PERF_MESSAGE_MIN + PERF_ETHER_BYTES,
			frame_max);
	if (o->connections > 1 && o->transport != PERF_TCP)
		return fault("--connections is of no use but with tcp");
	if (o->test_count * o->repeat > PERF_RUNS_MAX)
		return fault("%d runs at most", PERF_RUNS_MAX);
	for (unsigned i = o->test_count; i < o->test_count * o->repeat; i++)
		o->tests[i] = o->tests[i - o->test_count];
	o->test_count *= o->repeat;
	if (o->cpu == RP_EAL_CPU_ANY && !o->adaptive && cpu_usable(wish))
		o->cpu = wish;
	return 0;
}

static int line(int argc, char **argv, struct perf_options *o)
{
	uint64_t cpus[2] = {0, 1};

	if (argc != 2 && argc != 4)
		return fault("line: two CPUs, or none for 0 and 1");
	for (int i = 0; i < argc - 2; i++)
		if (!number(argv[2 + i], 0, CPU_SETSIZE - 1, &cpus[i]))
			return fault("line: %s is no CPU", argv[2 + i]);
	o->command = PERF_LINE;
	o->line_cpus[0] = (uint32_t)cpus[0];
	o->line_cpus[1] = (uint32_t)cpus[1];
	return 0;
}

static const struct perf_options defaults = {
	.prefix_length = 24,
	.tcp_port = 7117,
	.tests = {PERF_RATE, PERF_RR, PERF_BULK},
	.test_count = PERF_TEST_COUNT,
	.size = 64,
	.repeat = 1,
	.connections = 1,
	.run_ns = RP_NS_PER_S,
	.warmup_ns = 200 * RP_NS_PER_MS,
	.connect_ns = 10 * RP_NS_PER_S,
	.spin_ns = 50 * RP_NS_PER_US,
	.cpu = RP_EAL_CPU_ANY,
	.mtu = 1500,
	.cool_ns = 100 * RP_NS_PER_MS,
	.search_steps = 8,
	.burst = 32,
	.keys = 10000,
	.watchers = 100,
	.queues = 1,
	.outputs = 3,
};

static int first_word(int argc, char **argv, struct perf_options *o)
{
	o->server = strcmp(argv[1], "server") == 0;
	optind = 2;
	if (argv[1][0] == '-') {
		o->command = PERF_SHELL;
		optind = 1;
	} else if (strcmp(argv[1], "run") == 0) {
		o->command = PERF_RUN;
		o->mode = argc > 2 ? argv[2] : "";
		optind = 3;
		if (!perf_mode_find(o->mode))
			return fault("run: there is no mode \"%s\"", o->mode);
	} else if (!o->server && strcmp(argv[1], "client") != 0) {
		return fault("the first argument is run, server, client or line, not %s", argv[1]);
	}
	return 0;
}

int perf_options_read(int argc, char **argv, struct perf_options *o)
{
	static const struct option options[] = {
#define X(letter, name, argument, text) {name, (argument) != NULL, NULL, letter},
		OPTIONS(X)
#undef X
			{NULL, 0, NULL, 0},
	};
	int letter, index = 0;

	*o = defaults;
	if (argc < 2) {
		o->command = PERF_SHELL;
		return check_run(o);
	}
	if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
		help();
		return 1;
	}
	if (strcmp(argv[1], "man") == 0) {
		man();
		return 1;
	}
	if (strcmp(argv[1], "line") == 0)
		return line(argc, argv, o);
	if (first_word(argc, argv, o) < 0)
		return -1;
	while ((letter = getopt_long(argc, argv, "h", options, &index)) != -1) {
		if (letter == '?')
			return -1;
		if (letter == 'h') {
			help();
			return 1;
		}
		if (!set(letter, optarg, o))
			return fault("--%s: %s cannot be", options[index].name, optarg);
	}
	if (optind < argc)
		return fault("what is %s", argv[optind]);
	return o->command == PERF_BATCH ? check(o) : check_run(o);
}
