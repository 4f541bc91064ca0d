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

struct perf_options {
	bool server, json;
	enum perf_transport transport;
	const char *device, *driver_config;
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
	bool line; /**< measure how near these CPUs are, and nothing else */
	uint32_t line_cpus[2];
	bool near; /**< client: measure how near near_cpu is, around each run */
	uint32_t near_cpu;
};

extern const char *const perf_test_names[PERF_TEST_COUNT];
extern const char *const perf_transport_names[3];

/** 0: go on; 1: help was printed; -1: what is wrong was said on stderr. */
int perf_options_read(int argc, char **argv, struct perf_options *o);
