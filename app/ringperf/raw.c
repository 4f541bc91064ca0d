/* SPDX-License-Identifier: Apache-2.0 */
#include <sys/prctl.h>

#include <rte_ether.h>

#include "worker.h"

_Static_assert(sizeof(struct rte_ether_hdr) == PERF_ETHER_BYTES, "as on the wire");

#define LINGER_NS (50 * RP_NS_PER_MS)

/* Each message is a frame: an Ethernet header in front is all there is. */
struct raw {
	struct perf_channel channel;
	struct perf_worker *worker;
	struct rte_ether_hdr eth;
	struct perf_session session;
};

static int raw_send(struct perf_channel *c, unsigned lane, struct rte_mbuf *m, uint64_t now_ns)
{
	struct raw *r = RP_CONTAINER_OF(c, struct raw, channel);

	memcpy(rte_pktmbuf_prepend(m, PERF_ETHER_BYTES), &r->eth, PERF_ETHER_BYTES);
	rp_port_tx(r->worker->queue, m, now_ns);
	return 0;
}

static uint32_t raw_room(struct perf_channel *c, unsigned lane, uint32_t bytes)
{
	return rp_port_tx_room(RP_CONTAINER_OF(c, struct raw, channel)->worker->queue);
}

static void raw_input(struct raw *r, struct rte_mbuf *m, uint64_t now_ns)
{
	const struct rte_ether_hdr *e = rte_pktmbuf_mtod(m, const struct rte_ether_hdr *);

	if (m->data_len >= PERF_ETHER_BYTES && e->ether_type == r->eth.ether_type) {
		rte_pktmbuf_adj(m, PERF_ETHER_BYTES);
		perf_session_input(&r->session, m, now_ns);
	}
	rte_pktmbuf_free(m);
}

static void start_session(struct raw *r)
{
	struct perf_worker *w = r->worker;

	perf_session_init(&r->session, w->options, &r->channel, w->pool, &w->reader, w->results);
}

static void turn_raw(struct perf_worker *w, struct raw *r)
{
	struct rte_mbuf *burst[RP_PORT_BURST_MAX];
	uint64_t now_ns = perf_turn_begin(w);
	uint16_t n = rp_port_rx(w->queue, burst, RP_PORT_BURST_MAX, now_ns);
	bool worked = n > 0;

	for (uint16_t i = 0; i < n && i < 4; i++)
		rte_prefetch0(rte_pktmbuf_mtod(burst[i], void *));
	for (uint16_t i = 0; i < n; i++) {
		if (i + 4 < n)
			rte_prefetch0(rte_pktmbuf_mtod(burst[i + 4], void *));
		raw_input(r, burst[i], now_ns);
	}
	worked |= perf_session_turn(&r->session, now_ns);
	perf_turn_paused(w, &r->session);
	rp_port_tx_flush(w->queue, now_ns);
	if (perf_turn_end(w, worked, now_ns))
		perf_turn_sleep(w, now_ns, rp_port_next_ns(w->queue));
}

/* True when the loop has to end. */
static bool is_over(struct perf_worker *w, struct raw *r)
{
	if (!r->session.finished)
		return false;
	if (!w->options->server) {
		w->why = r->session.why;
		return true;
	}
	perf_session_fini(&r->session);
	start_session(r);
	return perf_served(w);
}

/* What was sent last has to be read by the peer before the port, and its memory, goes. */
static void linger(struct perf_worker *w)
{
	uint64_t now_ns = perf_turn_begin(w), until_ns = now_ns + LINGER_NS;

	for (; now_ns < until_ns; now_ns = perf_turn_begin(w)) {
		rp_port_tx_flush(w->queue, now_ns);
		if (perf_turn_end(w, false, now_ns))
			perf_turn_sleep(w, now_ns, until_ns);
	}
}

int perf_raw_loop(void *arg)
{
	struct perf_worker *w = arg;
	struct raw r = {
		.worker = w,
		.channel = {.send = raw_send,
			.room = raw_room,
			.overhead = PERF_ETHER_BYTES,
			.lossy = true},
		.eth = {.ether_type = RTE_BE16(PERF_ETHER_TYPE)},
	};

	prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
	memset(&r.eth.dst_addr, 0xff, sizeof(r.eth.dst_addr));
	memcpy(&r.eth.src_addr, w->mac, sizeof(w->mac));
	w->slot = rp_park_join();
	rp_clock_reader_init(&w->reader, &w->clock);
	start_session(&r);
	while (!is_over(w, &r) && !atomic_load_explicit(&w->stop, memory_order_relaxed))
		turn_raw(w, &r);
	linger(w);
	perf_session_fini(&r.session);
	rp_park_leave(w->slot);
	atomic_store_explicit(&w->ended, true, memory_order_release);
	return 0;
}
