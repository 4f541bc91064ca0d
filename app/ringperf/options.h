/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The command line of ringperf, checked. */

#include <stdbool.h>
#include <stdint.h>

#include <base/transport.h>
#include <port/port.h>

/** What may be measured. */
#define PERF_TESTS(X)                                             \
	X(RATE, rate, "messages one way, as many as go")          \
	X(RR, rr, "one request in flight, the time to its reply") \
	X(BULK, bulk, "large messages, their bytes summed by both ends")

enum perf_test {
#define X(upper, lower, text) PERF_##upper,
	PERF_TESTS(X)
#undef X
		PERF_TEST_COUNT,
};

#define PERF_RUNS_MAX 256
#define PERF_CONNECTIONS_MAX 16384

enum perf_transport {
	PERF_TCP,  /**< our stack on a port */
	PERF_KTCP, /**< a kernel socket */
	PERF_RAW,  /**< Ethernet frames on a port, no TCP */
};

/** What the first argument says. */
enum perf_command {
	PERF_BATCH, /**< server, client: the tests above between two ringperfs */
	PERF_LINE,  /**< measure how near two CPUs are, and nothing else */
	PERF_RUN,   /**< one mode, once or as a search */
	PERF_SHELL, /**< commands */
};

#define PERF_PORTS_MAX 8

struct perf_options {
	enum perf_command command;
	bool server, json;
	enum perf_transport transport;
	const char *devices[PERF_PORTS_MAX], *driver_config;
	unsigned device_count;
	uint8_t addr[4];       /**< ours */
	uint8_t prefix_length; /**< of our subnet */
	uint8_t gateway[4];
	uint8_t peer[4];
	bool has_addr, has_peer;
	uint16_t tcp_port;
	enum perf_test tests[PERF_RUNS_MAX]; /**< in order; a test may be there many times */
	unsigned test_count;
	unsigned repeat;    /**< the whole list, so many times; in test_count already */
	uint32_t size;	    /**< of a message of rate and rr, bytes */
	uint32_t bulk_size; /**< of a message of bulk, bytes */
	uint64_t run_ns, warmup_ns, connect_ns;
	uint32_t connections; /**< that the messages of bulk go over in turn */
	uint32_t sessions;    /**< a server ends after so many clients; 0: when it is told */
	bool adaptive;
	uint64_t spin_ns;
	uint32_t cpu; /**< RP_EAL_CPU_ANY: any */
	enum rp_eal_hugepages hugepages;
	enum rp_port_checksum checksum;
	enum rp_port_choice tso;
	uint16_t mtu;
	bool verbose;
	uint32_t line_cpus[2];
	bool near; /**< client: measure how near near_cpu is, around each run */
	uint32_t near_cpu;

	/* Of run and of the shell. */
	const char *mode;
	double rate;	  /**< operations a second; 0: a closed loop */
	uint32_t window;  /**< under way at once; 0: as the mode has it */
	uint64_t cool_ns; /**< at the end, not counted */
	bool run_set;	  /**< --seconds was given */
	double search;	  /**< look for the highest rate up to this one; 0: no */
	uint32_t search_steps;
	const char *hgrm, *csv, *json_file;
	uint32_t burst;
	uint32_t keys, watchers; /**< etcd */
	uint32_t outputs;	 /**< process: of each job */
	uint32_t queues;	 /**< deliver: in turn */
	bool tx_first;
	bool auto_start, keep_going;
	uint32_t stats_period_s;
	const char *cmdline_file;
};

extern const char *const perf_test_names[PERF_TEST_COUNT];
extern const char *const perf_transport_names[3];

/** 0: go on; 1: help was printed; -1: what is wrong was said on stderr. */
int perf_options_read(int argc, char **argv, struct perf_options *o);
