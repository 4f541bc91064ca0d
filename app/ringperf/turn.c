/* SPDX-License-Identifier: Apache-2.0 */
#include <poll.h>
#include <time.h>

#include "worker.h"

/** Longest sleep of an adaptive lcore that nothing can wake. */
#define SLEEP_NS_MAX (20 * RP_NS_PER_US)
/** The same where a descriptor wakes it: it only has to see that it shall stop. */
#define SLEEP_NS_FD (10 * RP_NS_PER_MS)
/** Between two appliances; it also has to outlast a turn that was preempted. */
#define RTO_MIN_NS (5 * RP_NS_PER_MS)

uint64_t perf_turn_begin(struct perf_worker *w)
{
	uint64_t now_ns = rp_clock_now(&w->reader), gap_ns = now_ns - w->turn_ns;

	rp_park_point(w->slot);
	if (w->turn_ns > 0 && gap_ns > w->gap_ns) {
		w->gap_ns = gap_ns;
		if (w->stack && 2 * gap_ns > RTO_MIN_NS)
			rp_tcp_set_rto_floor(w->stack, 2 * gap_ns);
	}
	w->turn_ns = now_ns;
	return now_ns;
}

void perf_turn_paused(struct perf_worker *w, struct perf_session *s)
{
	if (!s->paused)
		return;
	s->paused = false;
	w->turn_ns = 0;
}

bool perf_turn_end(struct perf_worker *w, bool worked, uint64_t now_ns)
{
	if (worked)
		w->busy_ns = now_ns;
	return !worked && w->options->adaptive && now_ns - w->busy_ns >= w->options->spin_ns;
}

void perf_turn_sleep(struct perf_worker *w, uint64_t now_ns, uint64_t next_ns)
{
	uint64_t most_ns = w->ktcp ? SLEEP_NS_FD : SLEEP_NS_MAX;
	struct timespec ts = {0};
	struct pollfd fd = {.events = POLLIN};
	/* What waits for a device without room looks due at all times, as lib/shard has it too. */
	bool full = w->queue && rp_port_tx_room(w->queue) < RP_PORT_TX_PENDING_MAX;

	if (next_ns <= now_ns && !full)
		return;
	ts.tv_nsec = (long)(full ? SLEEP_NS_MAX : RP_MIN(next_ns - now_ns, most_ns));
	w->sleeps++;
	rp_park_rest_begin(w->slot);
	if (w->ktcp) {
		fd.fd = rp_ktcp_fd(w->ktcp);
		ppoll(&fd, 1, &ts, NULL);
	} else {
		nanosleep(&ts, NULL);
	}
	rp_park_rest_end(w->slot);
}

bool perf_served(struct perf_worker *w)
{
	w->served++;
	return w->options->sessions > 0 && w->served >= w->options->sessions;
}
