/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <time.h>

#include <rte_cycles.h>
#include <rte_mbuf.h>

#include <base/log.h>
#include <port/park.h>
#include <port/tap.h>
#include <shard/shard.h>

#include "load_priv.h"
#include "rest_priv.h"

#define BURST 32
/** Messages of the rings in one turn. */
#define XMSG_BUDGET 64
/** Bursts that one port may bring in one turn, before the others have theirs. */
#define RX_BURSTS_MAX 4
/** Floor of retransmission towards appliances, and how long a loop gap is remembered. */
#define RTO_FLOOR_NS (5 * RP_NS_PER_MS)
#define RTO_FLOOR_NS_MAX (200 * RP_NS_PER_MS)
#define GAP_WINDOW_NS (10 * RP_NS_PER_S)

struct rp_shard {
	struct rp_engine *engine;
	struct rp_xcore_end *end;
	struct rp_clock_reader clock;
	struct rp_port_queue *ports[RP_ENGINE_PORTS_MAX]; /* NULL: another shard's queue is used */
	uint32_t port_count;
	bool polls; /* some queue is ours */
	struct rp_ktcp *ktcp;
	bool poll;
	uint64_t idle_spin_ns, idle_since_ns;
	int64_t wall_offset_ns;
	struct rp_park_slot *park;
	struct rp_tap tap;
	/* Loop gaps: two windows, so that the worst of the last ten seconds is always known. */
	uint64_t gap_ns_max[2], gap_window_ns, rto_floor_ns;
	struct shard_load load;
	/* Written by any thread. */
	_Alignas(RP_CACHE_LINE) atomic_bool stop;
	struct rp_xcore *xcore;
};

/* ---- the engine's callbacks ---- */

static int shard_post(void *ctx, unsigned to, const struct rp_xmsg *m)
{
	struct rp_shard *s = ctx;

	return rp_xcore_post(s->end, to == RP_ENGINE_CONTROL ? RP_XCORE_CONTROL : to, m);
}

static void shard_random(void *ctx, void *out, size_t length)
{
	uint8_t *p = out;

	while (length > 0) {
		ssize_t n = getrandom(p, length, 0);

		if (n > 0) {
			p += n;
			length -= (size_t)n;
		}
	}
}

static int shard_tapped(void *ctx, struct rte_mbuf *block)
{
	struct rp_xmsg m = {.type = RP_XMSG_TAPPED, .m = block};

	return shard_post(ctx, RP_ENGINE_CONTROL, &m);
}

static const struct rp_engine_ops shard_engine_ops = {
	.post = shard_post,
	.random = shard_random,
};

/* ---- life ---- */

struct rp_shard *rp_shard_create(const struct rp_shard_config *config)
{
	struct rp_engine_config engine = config->engine;
	struct rp_shard *s = aligned_alloc(RP_CACHE_LINE, sizeof(*s));

	if (!s)
		return NULL;
	*s = (struct rp_shard){
		.end = rp_xcore_end(config->xcore, engine.shard),
		.port_count = engine.port_count,
		.ktcp = config->ktcp,
		.poll = config->poll,
		.idle_spin_ns = config->idle_spin_ns,
		.xcore = config->xcore,
	};
	s->tap = (struct rp_tap){.post = shard_tapped, .ctx = s};
	rp_clock_reader_init(&s->clock, config->clock);
	engine.ports_foreign = 0;
	for (uint32_t i = 0; i < s->port_count; i++) {
		s->ports[i] = config->ports[i];
		s->polls |= s->ports[i] != NULL;
		engine.ports_foreign |= (uint32_t)(s->ports[i] == NULL) << i;
	}
	engine.ktcp = config->ktcp ? rp_ktcp_transport(config->ktcp) : NULL;
	s->engine = rp_engine_create(&engine, &shard_engine_ops, s, rp_clock_now(&s->clock));
	if (s->engine)
		return s;
	free(s);
	return NULL;
}

void rp_shard_destroy(struct rp_shard *s)
{
	if (!s)
		return;
	/* Control has gone: what the tap still has goes nowhere. */
	rte_pktmbuf_free(s->tap.block);
	rp_engine_destroy(s->engine);
	free(s);
}

void rp_shard_request_stop(struct rp_shard *s)
{
	atomic_store(&s->stop, true);
	rp_xcore_wake(s->xcore, rp_xcore_end_id(s->end));
}

/* ---- one turn ---- */

static void on_impair(struct rp_shard *s, const struct rp_xmsg *m)
{
	struct rp_xmsg done = {.type = RP_XMSG_SNAPSHOT_DONE, .token = m->token};
	const struct rp_impair_spec *spec = m->pointer;

	if (m->value < s->port_count && s->ports[m->value])
		rp_port_impair_set(s->ports[m->value], true, spec);
	shard_post(s, RP_ENGINE_CONTROL, &done);
}

/* Its last block goes before the answer: control has all of it then. */
static void on_tap(struct rp_shard *s, const struct rp_xmsg *m)
{
	struct rp_xmsg done = {.type = RP_XMSG_SNAPSHOT_DONE, .token = m->token};

	if (m->pointer)
		rp_tap_start(&s->tap, m->pointer);
	else
		rp_tap_stop(&s->tap);
	shard_post(s, RP_ENGINE_CONTROL, &done);
}

/* Frames of one turn differ in time, which a capture is read for. */
static uint64_t tap_now(struct rp_shard *s)
{
	uint64_t now_ns = rp_clock_now(&s->clock);

	return now_ns + (uint64_t)s->clock.wall_offset_ns;
}

static void fill_snapshot(struct rp_shard *s, struct rp_engine_snapshot *snap)
{
	snap->loop = s->load.loop;
	snap->loop.gap_ns_max = RP_MAX(s->gap_ns_max[0], s->gap_ns_max[1]);
	_Static_assert(sizeof(struct rp_ktcp_counters) <= sizeof(snap->ktcp), "they fit");
	snap->has_ktcp = s->ktcp != NULL;
	if (s->ktcp)
		memcpy(snap->ktcp, rp_ktcp_counters(s->ktcp), sizeof(struct rp_ktcp_counters));
}

static bool turn_rings(struct rp_shard *s, uint64_t now_ns)
{
	struct rp_xmsg m[XMSG_BUDGET];
	uint8_t from[XMSG_BUDGET];
	unsigned n = rp_xcore_recv_any(s->end, m, from, XMSG_BUDGET);

	if (n > 0)
		shard_load_burst(&s->load, &s->load.loop.ring_bursts, n);
	for (unsigned i = 0; i < n; i++) {
		if (m[i].type == RP_XMSG_IMPAIR) {
			on_impair(s, &m[i]);
			continue;
		}
		if (m[i].type == RP_XMSG_TAP) {
			on_tap(s, &m[i]);
			continue;
		}
		if (m[i].type == RP_XMSG_SNAPSHOT)
			fill_snapshot(s, m[i].pointer);
		if (m[i].type == RP_XMSG_SET_LIMITS)
			s->idle_spin_ns = m[i].node;
		rp_engine_on_xmsg(s->engine,
			from[i] == RP_XCORE_CONTROL ? RP_ENGINE_CONTROL : from[i], &m[i], now_ns);
	}
	return n > 0;
}

static bool turn_receive(struct rp_shard *s, uint64_t now_ns)
{
	struct rte_mbuf *burst[BURST];
	bool busy = false;

	for (uint32_t p = 0; p < s->port_count; p++) {
		for (unsigned i = 0; s->ports[p] && i < RX_BURSTS_MAX; i++) {
			uint16_t n = rp_port_rx(s->ports[p], burst, BURST, now_ns);

			if (n == 0)
				break;
			shard_load_burst(&s->load, &s->load.loop.rx_bursts, n);
			if (rp_tap_is_on(&s->tap))
				rp_tap_frames(&s->tap, p, false, burst, n, tap_now(s));
			rp_engine_rx(s->engine, p, burst, n, now_ns);
			busy = true;
			if (n < BURST)
				break;
		}
	}
	if (s->ktcp)
		busy |= rp_ktcp_poll(s->ktcp, now_ns) > 0;
	return busy;
}

/* Frames stay with the stack while the port has no room, so that none is dropped for want of it. */
static bool turn_transmit(struct rp_shard *s, uint64_t now_ns)
{
	struct rte_mbuf *out[BURST];
	bool busy = false;

	for (uint32_t p = 0; p < s->port_count; p++) {
		if (!s->ports[p])
			continue;
		for (;;) {
			unsigned room = rp_port_tx_room(s->ports[p]);
			unsigned n = rp_engine_tx(s->engine, p, out, RP_MIN(room, BURST));

			if (rp_tap_is_on(&s->tap))
				rp_tap_frames(&s->tap, p, true, out, n, tap_now(s));
			for (unsigned i = 0; i < n; i++)
				rp_port_tx(s->ports[p], out[i], now_ns);
			busy |= n > 0;
			if (n < BURST)
				break;
		}
		busy |= rp_port_tx_flush(s->ports[p], now_ns);
	}
	return busy;
}

static bool turn(struct rp_shard *s, uint64_t now_ns)
{
	bool busy = turn_rings(s, now_ns);

	busy |= turn_receive(s, now_ns);
	busy |= rp_engine_poll(s->engine, now_ns);
	busy |= turn_transmit(s, now_ns);
	if (rp_tap_is_on(&s->tap))
		rp_tap_flush(&s->tap, !busy, tap_now(s));
	busy |= rp_xcore_flush(s->end) > 0;
	return busy;
}

/* ---- between turns ---- */

static void follow_wall_clock(struct rp_shard *s)
{
	if (s->wall_offset_ns == s->clock.wall_offset_ns)
		return;
	s->wall_offset_ns = s->clock.wall_offset_ns;
	rp_engine_set_wall_offset(s->engine, s->wall_offset_ns);
}

/* A loop that was held up for g ns cannot acknowledge for as long: no timer may be shorter. */
static void note_gap(struct rp_shard *s, uint64_t gap_ns, uint64_t now_ns)
{
	uint64_t floor_ns;

	if (now_ns - s->gap_window_ns > GAP_WINDOW_NS) {
		s->gap_window_ns = now_ns;
		s->gap_ns_max[1] = s->gap_ns_max[0];
		s->gap_ns_max[0] = 0;
	}
	if (gap_ns <= s->gap_ns_max[0])
		return;
	s->gap_ns_max[0] = gap_ns;
	floor_ns = 2 * RP_MAX(s->gap_ns_max[0], s->gap_ns_max[1]);
	floor_ns = RP_MIN(RP_MAX(floor_ns, RTO_FLOOR_NS), RTO_FLOOR_NS_MAX);
	if (floor_ns != s->rto_floor_ns) {
		s->rto_floor_ns = floor_ns;
		rp_engine_set_rto_floor(s->engine, floor_ns);
	}
}

static uint64_t wake_at(const struct rp_shard *s)
{
	uint64_t at = rp_engine_next_deadline(s->engine);

	for (uint32_t p = 0; p < s->port_count; p++)
		if (s->ports[p])
			at = RP_MIN(at, rp_port_next_ns(s->ports[p]));
	return at;
}

static bool is_full(const struct rp_shard *s)
{
	for (uint32_t p = 0; p < s->port_count; p++)
		if (s->ports[p] && rp_port_tx_room(s->ports[p]) < RP_PORT_TX_PENDING_MAX)
			return true;
	return false;
}

static void rest(struct rp_shard *s, uint64_t now_ns)
{
	uint64_t sleep_ns = shard_rest_ns(wake_at(s), now_ns, s->polls, is_full(s));
	struct pollfd fds[2] = {{.fd = rp_xcore_fd(s->end), .events = POLLIN}};
	struct timespec ts;

	if (sleep_ns == 0 || (s->ktcp && rp_ktcp_pending(s->ktcp)))
		return;
	if (s->ktcp)
		fds[1] = (struct pollfd){.fd = rp_ktcp_fd(s->ktcp), .events = POLLIN};
	if (!rp_xcore_sleep_begin(s->end))
		return;
	ts = (struct timespec){.tv_sec = (time_t)(sleep_ns / RP_NS_PER_S),
		.tv_nsec = (long)(sleep_ns % RP_NS_PER_S)};
	s->load.loop.sleeps++;
	if (s->park)
		rp_park_rest_begin(s->park);
	ppoll(fds, s->ktcp ? 2 : 1, &ts, NULL);
	if (s->park)
		rp_park_rest_end(s->park);
	rp_xcore_sleep_end(s->end);
}

/* What was put here, or sent here to be dispatched. */
static uint64_t messages_of(const struct rp_shard *s)
{
	struct rp_queue_totals t;

	rp_queue_get_totals(rp_engine_queues(s->engine), &t);
	return t.counters.puts + t.counters.forwards_received;
}

int rp_shard_main(void *arg)
{
	struct rp_shard *s = arg;
	uint64_t now_ns = rp_clock_now(&s->clock), next_ns;

	prctl(PR_SET_TIMERSLACK, 1);
	s->park = s->polls ? rp_park_join() : NULL;
	s->idle_since_ns = s->gap_window_ns = now_ns;
	shard_load_init(&s->load, rte_get_tsc_hz(), now_ns);
	while (!atomic_load_explicit(&s->stop, memory_order_relaxed)) {
		bool busy;

		follow_wall_clock(s);
		busy = turn(s, now_ns);
		if (s->park)
			rp_park_point(s->park);
		next_ns = rp_clock_now(&s->clock);
		note_gap(s, next_ns - now_ns, next_ns);
		shard_load_turn(&s->load, busy, next_ns - now_ns);
		if (shard_load_due(&s->load, next_ns))
			shard_load_second(&s->load, messages_of(s), next_ns);
		now_ns = next_ns;
		if (busy) {
			s->idle_since_ns = now_ns;
		} else if (!s->poll && now_ns - s->idle_since_ns >= s->idle_spin_ns) {
			rest(s, now_ns);
			next_ns = rp_clock_now(&s->clock);
			s->load.loop.idle_ns += next_ns - now_ns;
			now_ns = next_ns;
		}
	}
	rp_park_leave(s->park);
	s->park = NULL;
	return 0;
}
