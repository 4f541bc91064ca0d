/* SPDX-License-Identifier: Apache-2.0 */
/* The bursts: what a polling lcore does with a port. */
#include <rte_ethdev.h>
#include <rte_mbuf.h>

#include <base/assert.h>

#include "port_priv.h"

/** Frames that rp_port_tx() gathers before it bothers the device. */
#define TX_BURST 32
/** How often an idle queue asks the device to give sent mbufs back. */
#define CLEAN_NS (1 * RP_NS_PER_MS)
#define PENDING_MASK (RP_PORT_TX_PENDING_MAX - 1)

_Static_assert((RP_PORT_TX_PENDING_MAX & PENDING_MASK) == 0, "a power of 2");

static void count_rx(struct rp_port_queue *q, struct rte_mbuf **burst, uint16_t n)
{
	uint64_t bytes = 0, chains = 0;

	for (uint16_t i = 0; i < n; i++) {
		bytes += burst[i]->pkt_len;
		chains += burst[i]->nb_segs > 1;
	}
	if (chains > 0)
		PORT_COUNT(&q->counters, rx_chains, chains);
	PORT_COUNT(&q->counters, rx_packets, n);
	PORT_COUNT(&q->counters, rx_bytes, bytes);
}

/* What came goes into the hold, what is due comes out. */
static RP_SELDOM uint16_t impair_rx(
	struct rp_port_queue *q, struct rte_mbuf **burst, uint16_t n, uint16_t max, uint64_t now_ns)
{
	for (uint16_t i = 0; i < n; i++)
		port_hold_push(&q->rx_hold, burst[i], q->pool, &q->counters, true, now_ns);
	for (n = 0; n < max; n++) {
		burst[n] = port_hold_pop(&q->rx_hold, now_ns);
		if (!burst[n])
			break;
	}
	return n;
}

uint16_t rp_port_rx(struct rp_port_queue *q, struct rte_mbuf **burst, uint16_t max, uint64_t now_ns)
{
	uint16_t n = 0;

	max = RP_MIN(max, RP_PORT_BURST_MAX);
	if (q->running)
		n = rte_eth_rx_burst(q->ethdev_id, q->index, burst, max);
	PORT_COUNT(&q->counters, rx_polls, 1);
	if (n == 0)
		PORT_COUNT(&q->counters, rx_polls_empty, 1);
	if (__builtin_expect(q->rx_hold.active, 0))
		n = impair_rx(q, burst, n, max, now_ns);
	if (n > 0)
		count_rx(q, burst, n);
	if (__builtin_expect(n > 0 && (q->to_check > 0 || q->distrust), 0))
		port_check_rx(q, burst, n);
	return n;
}

/* Sends what is pending until the device refuses. True when a frame went out. */
static bool send_pending(struct rp_port_queue *q)
{
	bool sent_some = false;

	while (q->pending_count > 0) {
		struct rte_mbuf **burst = &q->pending[q->pending_head];
		uint32_t n = RP_MIN(q->pending_count, RP_PORT_TX_PENDING_MAX - q->pending_head);
		uint64_t bytes = 0;
		uint16_t sent;

		n = RP_MIN(n, (uint32_t)RP_PORT_BURST_MAX);
		sent = rte_eth_tx_burst(q->ethdev_id, q->index, burst, (uint16_t)n);
		for (uint32_t i = 0; i < sent; i++) {
			bytes += q->pending_bytes[q->pending_head + i];
			/* Few, mostly: what vectors take to begin would be most of it. */
			__asm__("" : "+r"(bytes));
		}
		q->pending_head = (q->pending_head + sent) & PENDING_MASK;
		q->pending_count -= sent;
		PORT_COUNT(&q->counters, tx_packets, sent);
		PORT_COUNT(&q->counters, tx_bytes, bytes);
		sent_some |= sent > 0;
		if (sent < n) {
			PORT_COUNT(&q->counters, tx_full, 1);
			q->stalled = true;
			break;
		}
	}
	return sent_some;
}

/* The frame in one buffer, or NULL (freed and counted). Offload flags go along. */
static RP_APART struct rte_mbuf *linearise(struct rp_port_queue *q, struct rte_mbuf *frame)
{
	struct rte_mbuf *copy = rte_pktmbuf_copy(frame, q->linear_pool, 0, UINT32_MAX);

	rte_pktmbuf_free(frame);
	if (copy && copy->nb_segs == 1) {
		PORT_COUNT(&q->counters, tx_linearised, 1);
		return copy;
	}
	rte_pktmbuf_free(copy);
	PORT_COUNT(&q->counters, tx_nomem_drops, 1);
	return NULL;
}

/* As the device takes it: in one buffer where it wants that, offloads prepared. NULL: dropped. */
static struct rte_mbuf *finish(struct rp_port_queue *q, struct rte_mbuf *frame)
{
	if (frame->nb_segs > 1 && !q->chains) {
		frame = linearise(q, frame);
		if (!frame)
			return NULL;
	}
	if (q->prepare && rte_eth_tx_prepare(q->ethdev_id, q->index, &frame, 1) != 1) {
		PORT_COUNT(&q->counters, tx_refused_drops, 1);
		rte_pktmbuf_free(frame);
		return NULL;
	}
	return frame;
}

static void enqueue_one(struct rp_port_queue *q, struct rte_mbuf *frame)
{
	uint32_t slot;

	if (frame->pkt_len > q->frame_bytes_max && !(frame->ol_flags & RTE_MBUF_F_TX_TCP_SEG)) {
		PORT_COUNT(&q->counters, tx_size_drops, 1);
		rte_pktmbuf_free(frame);
		return;
	}
	frame = finish(q, frame);
	if (!frame)
		return;
	if (q->pending_count >= RP_PORT_TX_PENDING_MAX) {
		PORT_COUNT(&q->counters, tx_full_drops, 1);
		rte_pktmbuf_free(frame);
		return;
	}
	/* The device may free a frame as soon as it has it: its length is kept beside it. */
	slot = (q->pending_head + q->pending_count++) & PENDING_MASK;
	q->pending[slot] = frame;
	q->pending_bytes[slot] = frame->pkt_len;
	/* A device that refused is asked again once a loop only. */
	if (q->pending_count >= TX_BURST && !q->stalled)
		send_pending(q);
}

/* A super-segment: the device's, where it can have it as it is. */
static void enqueue_super(struct rp_port_queue *q, struct rte_mbuf *frame)
{
	struct rte_mbuf *out[PORT_GSO_SEGMENTS_MAX];
	uint64_t keep = q->port->flags & RP_PORT_TX_TCP_CKSUM ? RTE_MBUF_F_TX_TCP_CKSUM : 0;
	unsigned n;

	if (q->tso && frame->nb_segs < q->tx_segments_max) {
		PORT_COUNT(&q->counters, tx_tso, 1);
		enqueue_one(q, frame);
		return;
	}
	keep |= q->port->flags & RP_PORT_TX_IPV4_CKSUM ? RTE_MBUF_F_TX_IP_CKSUM : 0;
	n = port_gso(q->gso_pool, frame, q->chains, keep, out);
	if (n == 0) {
		PORT_COUNT(&q->counters, tx_nomem_drops, 1);
		return;
	}
	PORT_COUNT(&q->counters, tx_gso, 1);
	PORT_COUNT(&q->counters, tx_gso_segments, n);
	for (unsigned i = 0; i < n; i++)
		enqueue_one(q, out[i]);
}

static void enqueue(struct rp_port_queue *q, struct rte_mbuf *frame)
{
	if (!q->running) {
		PORT_COUNT(&q->counters, tx_down_drops, 1);
		rte_pktmbuf_free(frame);
		return;
	}
	if (__builtin_expect((frame->ol_flags & RTE_MBUF_F_TX_TCP_SEG) != 0, 0))
		enqueue_super(q, frame);
	else
		enqueue_one(q, frame);
}

void rp_port_tx(struct rp_port_queue *q, struct rte_mbuf *frame, uint64_t now_ns)
{
	if (__builtin_expect(q->tx_hold.active, 0))
		port_hold_push(&q->tx_hold, frame, q->pool, &q->counters, false, now_ns);
	else
		enqueue(q, frame);
}

static RP_SELDOM void drop_pending(struct rp_port_queue *q)
{
	PORT_COUNT(&q->counters, tx_down_drops, q->pending_count);
	for (; q->pending_count > 0; q->pending_count--) {
		rte_pktmbuf_free(q->pending[q->pending_head]);
		q->pending_head = (q->pending_head + 1) & PENDING_MASK;
	}
}

bool rp_port_tx_flush(struct rp_port_queue *q, uint64_t now_ns)
{
	bool worked = false;

	q->stalled = false;
	if (__builtin_expect(q->tx_hold.active, 0)) {
		struct rte_mbuf *frame;

		for (unsigned i = 0; i < RP_PORT_TX_PENDING_MAX; i++) {
			frame = port_hold_pop(&q->tx_hold, now_ns);
			if (!frame)
				break;
			enqueue(q, frame);
		}
	}
	if (q->pending_count > 0) {
		worked = q->running && send_pending(q);
		/* Frames to a peer that is away are of no use when it comes back. */
		if (q->pending_count > 0 && !worked &&
			(!q->running ||
				!atomic_load_explicit(&q->port->link_up, memory_order_relaxed)))
			drop_pending(q);
	} else if (q->cleanup && q->running && now_ns - q->cleaned_ns >= CLEAN_NS) {
		q->cleaned_ns = now_ns;
		worked = rte_eth_tx_done_cleanup(q->ethdev_id, q->index, 0) > 0;
	}
	return worked;
}

uint16_t rp_port_tx_room(const struct rp_port_queue *q)
{
	return (uint16_t)(RP_PORT_TX_PENDING_MAX - q->pending_count);
}

uint64_t rp_port_next_ns(const struct rp_port_queue *q)
{
	if (q->pending_count > 0)
		return 0;
	return RP_MIN(port_hold_next_ns(&q->rx_hold), port_hold_next_ns(&q->tx_hold));
}

void rp_port_impair_set(struct rp_port_queue *q, bool rx, const struct rp_impair_spec *spec)
{
	port_hold_set(rx ? &q->rx_hold : &q->tx_hold, spec);
}
