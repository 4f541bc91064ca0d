/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Connections of the tcp modes, over our TCP or kernel sockets. A client's mode gives them work; a
 * server's connections echo what comes, or drop it.
 */

#include "mode.h"

struct conns;

struct conns_conn {
	struct conns *conns;
	struct rp_conn *c; /**< NULL: none */
	bool open, busy;   /**< busy: a client's operation is under way on it */
	bool is_down;	   /**< the peer ended it: nothing is dialled in its place */
	uint32_t got;	   /**< bytes of the answer that came */
	uint64_t planned_ns, begun_ns;
	struct rte_mbuf *held; /**< server: to be echoed, when there is room */
	unsigned next_idle;
};

struct conns_ops {
	void (*on_open)(struct conns_conn *c, uint64_t now_ns);
	void (*on_bytes)(struct conns_conn *c, uint32_t bytes, uint64_t now_ns);
	/** Its pointer c is NULL already. */
	void (*on_close)(struct conns_conn *c, enum rp_close_reason why, uint64_t now_ns);
};

struct conns {
	struct perf_run *run;
	const struct conns_ops *ops; /**< NULL: a server */
	bool echo;		     /**< server */
	unsigned count;		     /**< a client's connections; a server's places */
	unsigned open;
	unsigned idle; /**< first of a list, `count` = none */
	unsigned turn; /**< of a mode that goes round */
	bool started;  /**< the client's pace has begun */
	struct conns_conn *all;
};

/** Opens a client's connections (`lazy`: the mode dials), or listens. 0 or -errno. */
int conns_begin(
	struct perf_run *r, const struct conns_ops *ops, bool echo, bool lazy, uint64_t now_ns);
void conns_end(struct perf_run *r, uint64_t now_ns);
/** A client: dials what is missing, begins the pace when all are open; true: it has. */
bool conns_ready(struct conns *cs, uint64_t now_ns);
/** Dials; false: the run has failed. */
bool conns_dial(struct conns_conn *c, uint64_t now_ns);
/** Of `size` bytes; true: the transport has it. */
bool conns_send(struct conns_conn *c, uint32_t size, uint64_t now_ns);
/** An idle one, which is none any more; NULL: none. */
struct conns_conn *conns_take_idle(struct conns *cs);
void conns_put_idle(struct conns_conn *c);
/** So much more of the reply to what was sent; true: it is whole, and its time is counted. */
bool conns_reply(struct conns_conn *c, uint32_t bytes);
/** Ends the run when its time is over and nothing is open, or the wait for that is. */
void conns_finish(struct conns *cs, uint64_t now_ns);
