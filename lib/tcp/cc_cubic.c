/* SPDX-License-Identifier: Apache-2.0 */
#include <tcp/tcp_priv.h>

/*
 * CUBIC (RFC 9438) in integers. Windows are bytes. Time is in units of 2^20 ns, about a
 * millisecond: a round trip shorter than that lies in the region where Reno's growth is the faster
 * one, which does not depend on time.
 *
 *   W(t) = C (t - K)^3 + W_max,  C = 0.4 MSS a second cubed = MSS * 1014 / 2^41 a unit cubed
 */

#define CUBIC_UNIT_SHIFT 20
#define CUBIC_C_FACTOR 1014u
#define CUBIC_C_SHIFT 41
#define CUBIC_T_MAX (1u << 20) /* 18 minutes: its cube fits, and the window is long full */

__extension__ typedef unsigned __int128 cubic_wide;

static uint32_t cubic_beta(uint32_t bytes)
{
	return (uint32_t)((uint64_t)bytes * 7 / 10);
}

uint32_t tcp_cubic_root(uint64_t x)
{
	uint64_t root = 0;

	/* A bit at a time, from the highest whose cube fits. */
	for (int bit = 20; bit >= 0; bit--) {
		uint64_t next = root | 1ull << bit;

		if (next * next * next <= x)
			root = next;
	}
	return (uint32_t)root;
}

static void cubic_init(struct tcp_conn *c)
{
}

/* How far W is from W_max, `t` units before or after K. */
static uint64_t cubic_distance(const struct tcp_conn *c, uint64_t t)
{
	t = RP_MIN(t, (uint64_t)CUBIC_T_MAX);
	return (uint64_t)((cubic_wide)(t * t * t) * (c->mss * CUBIC_C_FACTOR) >> CUBIC_C_SHIFT);
}

static uint64_t cubic_window(const struct tcp_conn *c, uint64_t t_ns)
{
	const struct tcp_cubic *q = &c->cc_state.cubic;
	uint64_t t = t_ns >> CUBIC_UNIT_SHIFT, distance;

	if (t >= q->k)
		return q->w_max + cubic_distance(c, t - q->k);
	distance = cubic_distance(c, q->k - t);
	return q->w_max > distance ? q->w_max - distance : 0;
}

/* Congestion avoidance begins: 4.2, and 4.8 after a timeout. */
static void cubic_epoch(struct tcp_conn *c, uint64_t now_ns)
{
	struct tcp_cubic *q = &c->cc_state.cubic;

	q->epoch_ns = q->last_ns = now_ns;
	q->w_est = c->cwnd;
	q->est_acked = 0;
	q->grow = 0;
	if (q->after_timeout || c->cwnd >= q->w_max) {
		q->w_max = c->cwnd;
		q->k = 0;
	} else {
		uint64_t up = ((uint64_t)(q->w_max - c->cwnd) << 31) / (c->mss * CUBIC_C_FACTOR);

		q->k = tcp_cubic_root(up << (CUBIC_C_SHIFT - 31));
	}
	q->after_timeout = false;
}

/* 4.3: what Reno with the same reduction would have; alpha is 9/17 until it is where it was. */
static void cubic_friendly(struct tcp_conn *c, uint32_t acked)
{
	struct tcp_cubic *q = &c->cc_state.cubic;
	uint64_t step = c->cwnd, grow;

	if (q->w_est < q->cwnd_prior)
		step += step * 8 / 9;
	/* In bytes: a small window is reduced again before it has grown by a whole segment. */
	q->est_acked += acked;
	grow = (uint64_t)q->est_acked * c->mss / step;
	q->est_acked -= (uint32_t)(grow * step / c->mss);
	q->w_est += (uint32_t)grow;
}

static void cubic_on_ack(struct tcp_conn *c, uint32_t acked, uint64_t now_ns)
{
	struct tcp_cubic *q = &c->cc_state.cubic;
	uint64_t target, steps;

	acked = tcp_cc_slow_start(c, acked);
	if (acked == 0)
		return;
	if (q->epoch_ns == 0)
		cubic_epoch(c, now_ns);
	/* 5.8: time in which the window was not the limit does not count. */
	if (now_ns - q->last_ns > RP_MAX(2 * c->srtt_ns, c->rto_ns))
		q->epoch_ns += now_ns - q->last_ns - c->srtt_ns;
	q->last_ns = now_ns;
	cubic_friendly(c, acked);
	if (cubic_window(c, now_ns - q->epoch_ns) < q->w_est) {
		c->cwnd = RP_MAX(c->cwnd, q->w_est);
	} else {
		/* 4.4, 4.5. */
		target = cubic_window(c, now_ns - q->epoch_ns + c->srtt_ns);
		target = RP_MIN(target, (uint64_t)c->cwnd + c->cwnd / 2);
		if (target <= c->cwnd)
			return;
		q->grow += (target - c->cwnd) * acked;
		steps = q->grow / c->cwnd;
		q->grow -= steps * c->cwnd;
		c->cwnd += (uint32_t)RP_MIN(steps, (uint64_t)c->cwnd / 2);
	}
	c->cwnd = RP_MIN(c->cwnd, tcp_cc_window_max(c));
}

static uint32_t cubic_reduce(struct tcp_conn *c, enum tcp_congestion why)
{
	struct tcp_cubic *q = &c->cc_state.cubic;
	/* More than was in use was never tried; less than a segment of it cannot be used. */
	uint32_t flight = tcp_cc_flight(c), window;

	if (flight + c->mss > c->cwnd)
		flight = c->cwnd;
	window = RP_MAX(flight, 2u * c->mss);
	if (!c->undo_chained) {
		q->undo_w_max = q->w_max;
		q->undo_k = q->k;
		q->undo_epoch_ns = q->epoch_ns;
	}
	q->cwnd_prior = window;
	/* 4.7, fast convergence: a window that did not get back to where it was makes room. */
	q->w_max = window < q->w_max ? (uint32_t)((uint64_t)window * 17 / 20) : window;
	q->epoch_ns = 0;
	q->after_timeout = why == TCP_CONGESTION_RTO;
	return RP_MAX(cubic_beta(flight), 2u * c->mss); /* 4.6 */
}

/* 4.9. */
static void cubic_on_undo(struct tcp_conn *c)
{
	struct tcp_cubic *q = &c->cc_state.cubic;

	q->w_max = q->undo_w_max;
	q->k = q->undo_k;
	q->epoch_ns = q->undo_epoch_ns;
	q->after_timeout = false;
}

const struct tcp_cc_ops tcp_cc_cubic = {
	.name = "cubic",
	.init = cubic_init,
	.on_ack = cubic_on_ack,
	.reduce = cubic_reduce,
	.on_undo = cubic_on_undo,
};
