/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What ringperf can do in its lcore, one file a mode: testpmd's forwarding modes, and traffic of
 * TCP, of Deliver and of etcd.
 *
 *   1. The host (host.h) makes what a mode needs, and its lcore calls begin() at `start`.
 *   2. Each turn: what the ports received goes to frames(), then turn().
 *   3. finished, or `stop`: end(), which frees what begin() made.
 *
 * All of it on the lcore.
 */

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "options.h"
#include "pace.h"
#include "worker.h"

/** Frames that a mode has forwarded, and what became of them; testpmd's forward statistics. */
struct perf_forward {
	uint64_t rx_packets, tx_packets, tx_dropped;
	uint64_t bursts, bursts_max; /**< rx bursts that had some; the largest */
	uint64_t rx_bytes, tx_bytes;
};

/** What an end with a data plane had to do for its messages. */
#define PERF_LOADS(X)                                         \
	X(messages, "put here, or come to a consumer here")   \
	X(turns, "of the lcore")                              \
	X(busy_turns, "of these, those with something to do") \
	X(busy_ns, "time of these")                           \
	X(idle_ns, "time of the others")                      \
	X(frames_out, "of Deliver, to the other end")         \
	X(frames_in, "from it")                               \
	X(sends, "chains of frames given to the transport")   \
	X(segments_out, "of our TCP, to the other end")       \
	X(segments_in, "from it")                             \
	X(acks_out, "segments without payload")

struct perf_load {
#define X(name, text) uint64_t name;
	PERF_LOADS(X)
#undef X
};

#define PERF_PERCENTS 9
extern const double perf_percents[PERF_PERCENTS];

/** A histogram, as far as it is told by another end. */
struct perf_times {
	uint64_t count, mean_ns;
	uint64_t ns[PERF_PERCENTS]; /**< at perf_percents */
};

/** What the other end of a one-way mode has seen. */
struct perf_far {
	bool known;	/**< it has told all this */
	bool same_host; /**< its clock is ours: the times mean something */
	struct perf_times corrected, raw;
	struct perf_load load;
};

struct perf_run {
	const struct perf_mode *mode;
	const struct perf_options *options;
	struct perf_worker *worker;
	double rate; /**< of this run; options->rate, or what the search tries */
	bool tx_first;
	/* The lcore's. */
	void *state;
	struct perf_pace pace;
	struct perf_forward forward[PERF_PORTS_MAX];
	struct perf_load load; /**< of a mode with an engine, since its pace began */
	struct perf_far far;
	uint64_t begun_ns, ended_ns;
	uint64_t faults;  /**< answers that are not what was asked for */
	const char *why;  /**< NULL, or why it ended early */
	char reason[160]; /**< where that is no constant */
	bool finished;	  /**< by itself */
	/* Control thread tells it to end; the lcore says that it has. */
	atomic_bool stop, ended;
};

enum perf_needs {
	PERF_NEEDS_FRAMES,    /**< ports, their frames as they are */
	PERF_NEEDS_TRANSPORT, /**< a byte stream: our TCP on a port, or kernel sockets */
	PERF_NEEDS_ENGINE,    /**< the same, and a node's data plane on it */
	PERF_NEEDS_SOCKETS,   /**< the kernel's network alone */
};

struct perf_mode {
	const char *name, *text;
	enum perf_needs needs;
	const char *measures; /**< what a time is of: "round trip", ...; NULL: none is taken */
	const char *one_way;  /**< what those of perf_far are of; NULL: there are none */
	const char *unit;     /**< what units count: "bytes"; NULL: they are not shown */
	bool fan_out;	      /**< one that is planned ends for each of the watchers */
	/** 0, or -errno with run->why. */
	int (*begin)(struct perf_run *run, uint64_t now_ns);
	/** FRAMES and ENGINE. take: the frames. */
	void (*frames)(struct perf_run *run, unsigned port, struct rte_mbuf **burst, unsigned n,
		uint64_t now_ns);
	/** True when it did something. */
	bool (*turn)(struct perf_run *run, uint64_t now_ns);
	void (*end)(struct perf_run *run, uint64_t now_ns);
};

extern const struct perf_mode perf_mode_io, perf_mode_echo, perf_mode_tcp_stream, perf_mode_tcp_rr,
	perf_mode_tcp_crr, perf_mode_deliver, perf_mode_rr, perf_mode_etcd_put,
	perf_mode_etcd_range, perf_mode_etcd_watch, perf_mode_grpc, perf_mode_nats_rr,
	perf_mode_nats, perf_mode_process;

/** Begins the run's time, by its options. */
void perf_run_pace(struct perf_run *run, uint64_t now_ns);
/** NULL: there is none of that name. */
const struct perf_mode *perf_mode_find(const char *name);
/** The nth; NULL: there are no more. */
const struct perf_mode *perf_mode_at(unsigned n);
