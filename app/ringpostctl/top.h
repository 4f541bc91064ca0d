/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What `top` knows of a moment, and the screen that shows it. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <ringpost/v1/admin.pb-c.h>

#include "client.h"

/** A queue, and what went through it in a second, since the look before. */
struct top_queue {
	const Ringpost__V1__QueueView *v;
	uint64_t at_ns;
	double puts, accepts, acks;
};

struct top_consumer {
	const Ringpost__V1__ConsumerView *v;
	uint64_t at_ns;
	double offers, acks;
};

/** Pages of one look at the node, and rows that point into them. */
struct top_look {
	Ringpost__V1__StatusReply *status;
	ProtobufCMessage **pages;
	size_t page_count;
	struct top_queue *queues;
	struct top_consumer *consumers;
	size_t queue_count, consumer_count;
	bool more;	      /**< there is more than was looked at */
	double interval_s;    /**< since the look before; 0: there is none, and no rates */
	struct top_queue sum; /**< rates of all queues together */
};

/** What a queue took in: where it is dispatched, all that was indexed. */
static inline uint64_t top_puts(const Ringpost__V1__QueueView *v)
{
	return v->here ? v->indexed : v->puts;
}

/** What the keys chose. */
struct top_choice {
	bool consumers, reversed, help, quit;
	bool now;  /**< a new look is wanted at once */
	char sort; /**< the key of the column */
};

/** Rows in the order that is chosen. */
void top_sort(struct top_look *l, const struct top_choice *choice);
/** Heads and rows as text: `rows` of them, as wide as the terminal. */
void top_write(FILE *out, const struct top_look *l, const struct top_choice *choice, size_t rows);

struct top_screen {
	struct top_choice *choice;
	struct rp_loop *loop;
	struct rp_loop_fd keys;
	struct rp_loop_signals signals;
	bool woken; /**< a key, or a new size: draw */
};

/** The terminal is ours from now on. 0 or -errno. */
int top_screen_begin(struct top_screen *s, struct rp_loop *loop, struct top_choice *choice);
void top_screen_draw(struct top_screen *s, struct top_look *l);
/** As it was. */
void top_screen_end(struct top_screen *s);
