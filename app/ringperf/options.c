/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "options.h"
#include "wire.h"

const char *const perf_test_names[PERF_TEST_COUNT] = {
#define X(upper, lower, text) #lower,
	PERF_TESTS(X)
#undef X
};
const char *const perf_transport_names[3] = {"tcp", "ktcp", "raw"};

/* X(letter, name, argument, text) */
#define OPTIONS(X)                                                                               \
	X('t', "transport", "tcp|ktcp|raw", "our stack on a port, a kernel socket, bare frames") \
	X('d', "device", "TEXT",                                                                 \
		"the port, as in port.device: net_memif0,role=server,socket=/run/x")             \
	X('D', "driver-config", "FILE", "values of its driver; built in")                        \
	X('a', "ipv4", "ADDRESS[/LENGTH]", "our address; a kernel server listens on it")         \
	X('g', "gateway", "ADDRESS", "next hop off the subnet")                                  \
	X('p', "peer", "ADDRESS", "client: the server's address")                                \
	X('P', "port", "NUMBER", "TCP port; 7117")                                               \
	X('T', "test", "NAME[,NAME]", "client: rate, rr, bulk; all three")                       \
	X('z', "size", "BYTES", "of a message of rate and rr; 64")                               \
	X('Z', "bulk-size", "BYTES", "of a message of bulk; 16384; raw: a full frame")           \
	X('s', "seconds", "NUMBER", "client: time of each test, as 0.25; 1")                     \
	X('r', "repeat", "NUMBER", "client: the tests, in their order, so many times; 1")        \
	X('w', "warmup-ms", "NUMBER", "client: each test runs so long before it counts; 200")    \
	X('c', "connect-s", "NUMBER", "client: how long to wait for the server; 10")             \
	X('n', "sessions", "NUMBER", "server: ends after so many clients; 0: at a signal; 0")    \
	X('i', "idle", "poll|adaptive", "what a turn without work does; poll")                   \
	X('k', "connections", "NUMBER", "tcp: bulk goes over so many in turn; at both ends; 1")  \
	X('I', "idle-spin-us", "NUMBER", "adaptive: how long it spins before it sleeps; 50")     \
	X('C', "cpu", "NUMBER", "of the polling lcore; server 0, client 1; adaptive: any")       \
	X('N', "near", "CPU", "client: say how near that CPU is, before and after each test")    \
	X('H', "hugepages", "auto|on|off", "auto")                                               \
	X('S', "checksum", "auto|hw|sw", "who makes checksums; auto")                            \
	X('O', "tso", "auto|on|off",                                                             \
		"who cuts segments: the device, the port (on), our stack; auto")                 \
	X('m', "mtu", "BYTES", "1500")                                                           \
	X('j', "json", NULL, "client: the results as JSON")                                      \
	X('v', "verbose", NULL, "log what the port says")                                        \
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
	printf("usage: ringperf server|client [OPTION]...\n"
	       "       ringperf line [CPU CPU]\n\n"
	       "Measures messages between two processes over one transport. Start the server "
	       "first.\nline: the time of a cache line between two CPUs and back, in ns.\n\n");
#define X(letter, name, argument, text)                                                         \
	printf("  --%s%s%-*s %s\n", name, argument ? " " : "", (int)(34 - sizeof("  --" name)), \
		argument ? argument : (const char *)"", text);
	OPTIONS(X)
#undef X
	printf("\ntests:\n");
#define X(upper, lower, text) printf("  %-6s %s\n", #lower, text);
	PERF_TESTS(X)
#undef X
	printf("\nStatus: 0; 1 a test failed; 2 usage; 15 no port or no memory.\n");
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

static bool set(int letter, char *text, struct perf_options *o)
{
	switch (letter) {
	case 'd':
		o->device = text;
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

/* What belongs together. */
static int check(struct perf_options *o)
{
	bool raw = o->transport == PERF_RAW;
	uint32_t frame_max = o->mtu + PERF_ETHER_BYTES;
	uint32_t wish = o->server ? 0 : 1;

	if (o->transport == PERF_KTCP && o->device)
		return fault("--device is of no use with ktcp");
	if (o->transport != PERF_KTCP && !o->device)
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
	o->line = true;
	o->line_cpus[0] = (uint32_t)cpus[0];
	o->line_cpus[1] = (uint32_t)cpus[1];
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

	*o = (struct perf_options){
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
	};
	if (argc < 2)
		return fault("say server or client");
	if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
		help();
		return 1;
	}
	if (strcmp(argv[1], "line") == 0)
		return line(argc, argv, o);
	if (strcmp(argv[1], "server") != 0 && strcmp(argv[1], "client") != 0)
		return fault("the first argument is server or client, not %s", argv[1]);
	o->server = argv[1][0] == 's';
	optind = 2;
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
	return check(o);
}
