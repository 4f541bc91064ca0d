/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What the queues of a connection are made of: segments to be sent or acknowledged, bytes received
 * in order and out of order.
 */

#include <stdbool.h>
#include <stdint.h>

#include <rte_mbuf.h>

#include <base/list.h>

/* Sending. */

enum {
	TSEG_SYN = 1,
	TSEG_FIN = 2,
	TSEG_SENT = 4,
	TSEG_SACKED = 8,
	TSEG_LOST = 16,
	TSEG_RTX = 32,	  /* was retransmitted: no round trip is measured with it (Karn) */
	TSEG_SUM = 64,	  /* `sum` is right */
	TSEG_OWNED = 128, /* lies in the connection, not in the slab */
};

/**
 * A piece of the send queue, sent or not. The queue is one list in the order of sequence numbers;
 * the connection points at the first that was not sent yet. The payload is the bytes
 * [offset, offset + length) of a chain that is never changed once the segment was sent, since
 * packets in flight refer to it.
 */
struct tseg {
	struct rp_list link;
	struct rp_list
		xmit; /* in flight: by time of transmission; LOST: the lost list; else unlinked */
	struct rte_mbuf *payload;
	uint64_t xmit_ns; /* of the last transmission */
	uint32_t seq, length, offset;
	uint16_t sum;
	uint8_t flags, retransmits;
};
_Static_assert(sizeof(struct tseg) == 64, "one cache line");

static inline uint32_t tseg_span(const struct tseg *t)
{
	return t->length + ((t->flags & TSEG_SYN) != 0) + ((t->flags & TSEG_FIN) != 0);
}

static inline uint32_t tseg_end(const struct tseg *t)
{
	return t->seq + tseg_span(t);
}

/** Counts towards pipe: sent, and neither acknowledged nor judged lost. */
static inline bool tseg_in_pipe(const struct tseg *t)
{
	return (t->flags & (TSEG_SENT | TSEG_SACKED | TSEG_LOST)) == TSEG_SENT;
}

#define tseg_of_link(l) rp_list_entry(l, struct tseg, link)
#define tseg_of_xmit(l) rp_list_entry(l, struct tseg, xmit)

/* Receiving. */

/** A chain under construction. */
struct tcp_chain {
	struct rte_mbuf *head, *tail;
	uint32_t bytes, mbufs;
};

/** Bytes received out of order, without a hole: [start, end). */
struct tcp_ooo {
	struct rp_list link;
	uint32_t start, end;
	uint32_t stamp; /* when it last grew: the most recent is reported first (RFC 2018 4) */
	uint32_t collapse_at; /* so many mbufs are looked at whether they could be fewer */
	struct tcp_chain chain;
};
