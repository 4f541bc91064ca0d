/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The runs of a client against a server, over any channel that carries messages in order.
 *
 *   1. perf_session_init() with a channel that is open.
 *   2. perf_session_input() with what came: a piece of a stream, or one message of a lossy channel.
 *   3. perf_session_turn() once a turn of the loop: what a client sends.
 *   4. `finished` says that all runs are over, or that it failed; `why` is then the reason.
 *
 * Used by one lcore.
 */

#include <stdbool.h>
#include <stdint.h>

#include <rte_mbuf.h>

#include <stats/hist.h>
#include <xcore/clock.h>

#include "line.h"
#include "options.h"
#include "sum.h"
#include "wire.h"

/**
 * What a client makes a turn, at most: about a burst of full frames. More at once would only leave
 * the cache before it is sent.
 */
#define PERF_TURN_BYTES 65536u
#define PERF_CACHE_MBUFS 64

struct perf_channel {
	/** Takes the message on 0; else it is the caller's still. */
	int (*send)(
		struct perf_channel *c, unsigned lane, struct rte_mbuf *message, uint64_t now_ns);
	/** How many messages of so many bytes each it takes now. */
	uint32_t (*room)(struct perf_channel *c, unsigned lane, uint32_t bytes);
	/** The messages of bulk take so many ways in turn, 0: one; all else goes over the first. */
	unsigned lanes;
	uint32_t overhead; /**< bytes that it puts in front of a message */
	uint32_t piece;	   /**< fill buffers so far, 0: as far as they go */
	bool lossy;	   /**< what is not answered is asked again */
};

/** What one run showed. Bytes are of messages, without the channel's overhead. */
struct perf_result {
	enum perf_test test;
	uint32_t size;
	uint64_t elapsed_ns;
	uint64_t sent, received; /**< messages; rr: requests and replies */
	uint64_t bytes_sent, bytes_received;
	uint64_t sum_sent, sum_received; /**< bulk */
	uint64_t faults;		 /**< messages out of order, or of a wrong size */
	uint64_t lost;			 /**< rr over a lossy channel: requests without a reply */
	struct rp_hist rtt;		 /**< rr */
	double near_ns[2]; /**< how near the other CPU was, before and after; 0: not measured */
};

enum perf_phase {
	PERF_PHASE_NEAR,     /**< at rest: how near the other CPU is */
	PERF_PHASE_START,    /**< START has to go out */
	PERF_PHASE_STARTING, /**< until STARTED comes */
	PERF_PHASE_RUN,
	PERF_PHASE_DONE,    /**< DONE has to go out */
	PERF_PHASE_ENDING,  /**< until RESULT comes */
	PERF_PHASE_BYE,	    /**< BYE has to go out */
	PERF_PHASE_LEAVING, /**< lossy: until it is answered */
	PERF_PHASE_SERVE,   /**< the server's */
};

/** The message that is coming in by one lane; what its bytes touch comes first. */
struct perf_input {
	uint32_t head_bytes, body_left, body_bytes;
	uint16_t run;
	bool summing;
	struct perf_header in;
	struct perf_sum sum;
	uint64_t seq; /**< of the next one */
	uint8_t head[PERF_HEADER_BYTES];
	uint8_t body[PERF_BODY_BYTES];
};

struct perf_session {
	const struct perf_options *options;
	struct perf_channel *channel;
	struct rte_mempool *pool;
	struct rp_clock_reader *clock;
	struct perf_result *results; /**< options->test_count of them; client */
	bool finished;
	const char *why; /**< NULL: it did not fail */

	/* The run. */
	enum perf_phase phase;
	enum perf_test test;
	bool warmup;
	unsigned test_index;
	uint16_t run;
	uint32_t message_bytes;
	uint64_t begin_ns, end_ns, asked_ns;
	uint64_t messages, bytes, faults, lost, seq;
	uint64_t sum;		/**< of the sums of messages */
	uint64_t done_messages; /**< the result is due when so many are there; 0: not asked for */
	unsigned lane;		/**< of the next message */
	bool request_due;
	bool paused; /**< the session held the lcore up, and no turn; its loop clears it */
	uint64_t requested_ns;
	unsigned byes;

	struct perf_input input; /**< of the first lane */

	struct rte_mbuf *cache[PERF_CACHE_MBUFS];
	uint32_t cache_count;
	uint32_t segment_bytes;
};

/** Borrows all. `results` is NULL for a server. */
void perf_session_init(struct perf_session *s, const struct perf_options *options,
	struct perf_channel *channel, struct rte_mempool *pool, struct rp_clock_reader *clock,
	struct perf_result *results);
/** Frees the buffers that it keeps. */
void perf_session_fini(struct perf_session *s);

/** Borrows the chain. Over a lossy channel it is one message. */
void perf_session_input(struct perf_session *s, const struct rte_mbuf *chain, uint64_t now_ns);
/** The same by another lane than the first. */
void perf_session_input_lane(struct perf_session *s, struct perf_input *lane,
	const struct rte_mbuf *chain, uint64_t now_ns);
/** True when it sent something. */
bool perf_session_turn(struct perf_session *s, uint64_t now_ns);

/** The session is over with the first reason that was given. */
void perf_session_fail(struct perf_session *s, const char *why);
