/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The polling lcore of ringperf, and what it works with. The control thread makes everything,
 * starts perf_stream_loop() or perf_raw_loop() on the lcore, waits for it, and reads the results.
 */

#include <stdatomic.h>

#include <ktcp/ktcp.h>
#include <port/park.h>
#include <port/port.h>
#include <tcp/tcp.h>
#include <xcore/clock.h>

#include "session.h"

/** A connection that was refused is dialled again after so long, while the run has not begun. */
#define PERF_DIAL_AGAIN_NS (100 * RP_NS_PER_MS)

struct conns;

struct perf_worker {
	/* Of the control thread; fixed while the lcore runs. */
	const struct perf_options *options;
	struct rp_port *ports[PERF_PORTS_MAX];
	struct rp_port_queue *queues[PERF_PORTS_MAX];
	unsigned port_count;
	struct rp_port *port;	     /**< the first; NULL: kernel sockets */
	struct rp_port_queue *queue; /**< of the port */
	struct rp_tcp_config tcp_config;
	struct rp_tcp_stack *stack;	/**< on the first port, where that has an address */
	struct rp_ktcp *ktcp;		/**< where there is no port */
	struct rte_mempool *frame_pool; /**< of modes with an engine */
	struct rp_transport *transport;
	struct rte_mempool *pool; /**< of messages */
	struct rp_clock clock;
	struct perf_result *results; /**< client */
	uint8_t mac[6];

	/* Control thread tells the lcore to end; the lcore says that it did. */
	atomic_bool stop, ended;

	/* Of the lcore; read by the control thread when it has ended. */
	struct rp_clock_reader reader;
	struct rp_park_slot *slot;
	uint64_t busy_ns; /**< when there was work last */
	uint64_t gap_ns;  /**< longest turn seen */
	uint64_t turn_ns; /**< begin of the last turn */
	uint64_t sleeps;
	uint32_t served;     /**< clients that came and went */
	const char *why;     /**< NULL, or why it ended early */
	struct conns *conns; /**< of the run that serves; NULL: none does */
	bool listening;
};

/** Body of the lcore, for rte_eal_remote_launch(): a stream transport, tcp or ktcp. */
int perf_stream_loop(void *worker);
/** Body of the lcore: frames on a port. */
int perf_raw_loop(void *worker);

/** Begins a turn; its time. */
uint64_t perf_turn_begin(struct perf_worker *w);
/** The session held the lcore up: that is no gap of the loop. */
void perf_turn_paused(struct perf_worker *w, struct perf_session *s);
/**
 * Ends a turn. True: by the idle policy it is to sleep now, until the next deadline, by
 * perf_turn_sleep().
 */
bool perf_turn_end(struct perf_worker *w, bool worked, uint64_t now_ns);
/** Sleeps, until `next_ns` at most. */
void perf_turn_sleep(struct perf_worker *w, uint64_t now_ns, uint64_t next_ns);
/** A client's end. True: the server shall end, too. */
bool perf_served(struct perf_worker *w);
