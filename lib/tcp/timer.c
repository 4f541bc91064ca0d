/* SPDX-License-Identifier: Apache-2.0 */
#include <tcp/tcp_priv.h>

#define KEEPALIVE_INTERVAL_NS (75 * RP_NS_PER_S)
#define KEEPALIVE_PROBES 9u
#define PROBES_MAX 5

const char *tcp_timer_name(unsigned timer)
{
	static const char *const names[] = {
		[TCP_TIMER_NONE] = "none",
		[TCP_TIMER_RTO] = "rto",
		[TCP_TIMER_TLP] = "tlp",
		[TCP_TIMER_REORDER] = "reorder",
		[TCP_TIMER_PROBE] = "probe",
		[TCP_TIMER_PERSIST] = "persist",
	};

	return names[timer];
}

static inline uint64_t timer_rto(const struct tcp_conn *c)
{
	uint64_t max_ns = tcp_stack_of(c)->config.rto_max_ns;
	/*
	 * RFC 6298 2.3, with the floor in the place of its G: a path of constant delay has no
	 * variance, and the peer may still acknowledge late. So the floor holds for any round trip.
	 */
	uint64_t rto_ns = RP_MAX(c->rto_ns, c->srtt_ns + RP_MAX(c->rto_min_ns, RP_WHEEL_TICK_NS));

	if (c->backoff > 0)
		rto_ns = RP_MIN(rto_ns << RP_MIN(c->backoff, 20), RP_MAX(max_ns, rto_ns));
	return rto_ns;
}

uint64_t tcp_rto_now(const struct tcp_conn *c)
{
	return timer_rto(c);
}

/* Nothing is known to be missing, and no probe is out. */
static inline bool timer_calm(const struct tcp_conn *c)
{
	return !(c->flags & TCPF_TLP_OUT) && c->ca_state == TCP_CA_OPEN && c->sacked_count == 0;
}

/* RFC 8985 7.2: where a probe would help, and when. */
static inline uint64_t timer_tlp_ns(const struct tcp_conn *c)
{
	uint64_t pto_ns;

	if (c->srtt_ns == 0 || !tcp_synchronized(c) || tcp_stack_of(c)->config.no_tail_probes)
		return RP_NEVER;
	pto_ns = RP_MAX(2 * c->srtt_ns, TCP_PTO_MIN_NS);
	/* Less than two full segments may be acknowledged late (RFC 5681 4.2). */
	if (c->pipe < 2u * c->mss)
		pto_ns += c->peer_ack_delay_ns;
	return c->tlp_start_ns + pto_ns;
}

/*
 * In recovery, and after its one probe, RFC 8985 has none: what went again and is lost once more,
 * with nothing sent after it, takes a timeout. Where that is long after a round trip, and the peer
 * is known to answer soon, it is asked as QUIC does (RFC 9002 6.2), with a doubled time each.
 */
static RP_APART uint64_t timer_probe_ns(const struct tcp_conn *c)
{
	uint64_t pto_ns;

	if (c->ca_state == TCP_CA_LOSS || c->pipe + c->lost_bytes == 0 || c->probes >= PROBES_MAX ||
		c->srtt_ns == 0 || !tcp_synchronized(c) || !tcp_is_near(c) ||
		tcp_stack_of(c)->config.no_tail_probes)
		return RP_NEVER;
	pto_ns = RP_MAX(2 * c->srtt_ns, TCP_PTO_MIN_NS) << c->probes;
	return RP_MAX(c->tlp_start_ns, c->sent_ns) + pto_ns + tcp_reo_window_ns(c);
}

/* Since when nothing moves though something should. */
static uint64_t timer_stalled_since(const struct tcp_conn *c)
{
	/*
	 * A closed window is no fault while the peer answers (RFC 9293 3.8.6.1, MUST-37), unless
	 * the owner set a limit for it.
	 */
	if (c->snd_wnd == 0 && tcp_synchronized(c) && !(c->flags & TCPF_OPTION_TIMEOUT))
		return RP_MAX(c->progress_ns, c->heard_ns);
	return c->progress_ns;
}

/* Nothing is out: either the window forbids it, or a buffer is missing. */
static RP_APART void timer_set_unsent(struct tcp_conn *c, uint64_t now_ns)
{
	if (c->flags & TCPF_BLOCKED || !rp_list_empty(&c->dirty)) {
		c->timer = TCP_TIMER_NONE;
		c->timer_ns = RP_NEVER;
		return;
	}
	if (c->timer != TCP_TIMER_PERSIST) {
		c->timer = TCP_TIMER_PERSIST;
		c->rto_start_ns = now_ns;
		c->backoff = 0;
	}
	c->timer_ns = RP_MIN(
		c->rto_start_ns + tcp_rto_now(c), timer_stalled_since(c) + c->user_timeout_ns);
}

static inline void timer_set_sent(struct tcp_conn *c)
{
	uint64_t timer_ns = c->rto_start_ns + timer_rto(c), probe_ns;
	enum tcp_timer timer = TCP_TIMER_RTO;

	if (c->flags & TCPF_SACK && timer_calm(c)) {
		/* Where a probe may be sent, it is sent in the place of the timeout. */
		probe_ns = timer_tlp_ns(c);
		if (probe_ns != RP_NEVER) {
			timer = TCP_TIMER_TLP;
			timer_ns = RP_MIN(probe_ns, timer_ns);
		}
	} else if (c->flags & TCPF_SACK) {
		probe_ns = timer_probe_ns(c);
		if (probe_ns < timer_ns || (probe_ns != RP_NEVER && c->probes == 0)) {
			timer = TCP_TIMER_PROBE;
			timer_ns = RP_MIN(probe_ns, timer_ns);
		}
	}
	/* What is late is found by then, and goes again; that begins the timeout anew. */
	if (c->reo_ns != RP_NEVER) {
		timer = TCP_TIMER_REORDER;
		timer_ns = c->reo_ns;
	}
	c->timer = (uint8_t)timer;
	c->timer_ns = RP_MIN(timer_ns, timer_stalled_since(c) + c->user_timeout_ns);
}

static inline void timer_set_xmit(struct tcp_conn *c, uint64_t now_ns)
{
	const struct tseg *head = tcp_head(c);

	if (!head) {
		c->timer = TCP_TIMER_NONE;
		c->timer_ns = RP_NEVER;
	} else if (head->flags & TSEG_SENT) {
		timer_set_sent(c);
	} else {
		timer_set_unsent(c, now_ns);
	}
}

static inline uint64_t timer_deadline(const struct tcp_conn *c)
{
	uint64_t d = RP_MIN(c->timer_ns, c->life_ns);

	return c->flags & TCPF_ACK_DELAYED ? RP_MIN(d, c->ack_deadline_ns) : d;
}

uint64_t tcp_deadline(const struct tcp_conn *c)
{
	return timer_deadline(c);
}

void tcp_arm(struct tcp_conn *c, uint64_t now_ns)
{
	struct rp_tcp_stack *s = tcp_stack_of(c);
	uint64_t d;

	timer_set_xmit(c, now_ns);
	d = timer_deadline(c);
	/*
	 * Later than what is in the wheel: that fires in vain, and is put back then. Of many
	 * connections each is idle most of the time, and to come back to it costs more.
	 */
	if (rp_wheel_armed(&c->wheel) && c->wheel.deadline_ns <= d &&
		(d != RP_NEVER || s->conn_count <= TCP_CONNS_NEAR))
		return;
	rp_wheel_del(&s->wheel, &c->wheel);
	if (d != RP_NEVER)
		rp_wheel_add(&s->wheel, &c->wheel, d);
}

static void timer_persist(struct tcp_conn *c, uint64_t now_ns)
{
	struct tseg *t = c->next_unsent;
	uint32_t room = c->snd_una + c->snd_wnd - c->snd_nxt;

	c->backoff = (uint8_t)RP_MIN(c->backoff + 1, 30);
	c->rto_start_ns = now_ns;
	if (t && (int32_t)room > 0 && t->length > 0) {
		/* The override of RFC 9293 3.8.6.2.1: what fits, though it is little. */
		room = RP_MIN(room, c->mss);
		if (t->length > room && !tcp_sendq_split(c, t, room))
			return;
		tcp_xmit(c, t, now_ns);
		return;
	}
	/*
	 * One byte before what the peer expects, and none with it: whoever follows RFC 9293
	 * answers, and nothing changes here.
	 */
	tcp_stack_of(c)->counters->probes++;
	tcp_send_control(c, c->snd_una - 1, TCP_ACK, now_ns);
}

static bool timer_gave_up(struct tcp_conn *c, uint64_t now_ns)
{
	if (now_ns < timer_stalled_since(c) + c->user_timeout_ns)
		return false;
	if (c->state == TCPS_SYN_SENT && c->flags & TCPF_SOFT_ERROR)
		tcp_conn_close(c, RP_CLOSE_UNREACHABLE);
	else
		tcp_conn_close(c, RP_CLOSE_TIMEOUT);
	return true;
}

static void timer_xmit_fired(struct tcp_conn *c, uint64_t now_ns)
{
	enum tcp_timer timer = c->timer;

	if (timer_gave_up(c, now_ns))
		return;
	switch (timer) {
	case TCP_TIMER_NONE:
		break;
	case TCP_TIMER_RTO:
		tcp_on_rto(c, now_ns);
		break;
	case TCP_TIMER_TLP:
		tcp_on_tlp(c, now_ns);
		break;
	case TCP_TIMER_REORDER:
		tcp_on_reorder_timer(c, now_ns);
		break;
	case TCP_TIMER_PROBE:
		tcp_on_probe(c, now_ns);
		break;
	case TCP_TIMER_PERSIST:
		timer_persist(c, now_ns);
		break;
	}
}

void tcp_keepalive_set(struct tcp_conn *c, uint64_t idle_ns, uint64_t interval_ns, uint32_t probes)
{
	c->keepalive_idle_ns = idle_ns;
	c->keepalive_interval_ns = interval_ns ? interval_ns : KEEPALIVE_INTERVAL_NS;
	c->keepalive_probes = (uint8_t)RP_MIN(probes ? probes : KEEPALIVE_PROBES, UINT8_MAX);
	c->keepalive_sent = 0;
}

void tcp_keepalive_start(struct tcp_conn *c, uint64_t now_ns)
{
	/* FIN-WAIT-2 after close() has a limit already. */
	if (!tcp_synchronized(c) || (c->state == TCPS_FIN_WAIT_2 && !c->half_closed))
		return;
	c->life_ns = c->keepalive_idle_ns ? RP_MAX(c->heard_ns + c->keepalive_idle_ns, now_ns)
					  : RP_NEVER;
}

/* RFC 9293 3.8.4. False: the connection is over. */
static bool timer_keepalive(struct tcp_conn *c, uint64_t now_ns)
{
	struct rp_tcp_stack *s = tcp_stack_of(c);
	bool gave_up = c->keepalive_sent >= c->keepalive_probes;

	/* What is queued asks by itself: by retransmission, or by probes of the window. */
	if (tcp_head(c) || c->heard_ns + c->keepalive_idle_ns > now_ns) {
		c->keepalive_sent = 0;
		c->life_ns = (tcp_head(c) ? now_ns : c->heard_ns) + c->keepalive_idle_ns;
		return true;
	}
	/* RFC 5482 4: the owner's limit, where there is one, is the shorter. */
	if (c->flags & TCPF_OPTION_TIMEOUT && c->keepalive_sent > 0 &&
		now_ns - c->heard_ns >= c->user_timeout_ns)
		gave_up = true;
	if (gave_up) {
		s->counters->closed_keepalive++;
		tcp_send_control(c, c->snd_nxt, TCP_RST | TCP_ACK, now_ns);
		tcp_conn_close(c, RP_CLOSE_TIMEOUT);
		return false;
	}
	/* One byte before what the peer expects: it has to answer, and nothing is taken from it. */
	if (tcp_send_control(c, c->snd_nxt - 1, TCP_ACK, now_ns)) {
		s->counters->keepalive_probes++;
		c->keepalive_sent++;
	}
	c->life_ns = now_ns + c->keepalive_interval_ns;
	return true;
}

void tcp_timer_fired(struct tcp_conn *c, uint64_t now_ns)
{
	if (c->flags & TCPF_PMTU)
		tcp_pmtu_age(c, now_ns);
	/* What was set for this time may have been answered in this very turn, before the poll. */
	timer_set_xmit(c, now_ns);
	if (tcp_deadline(c) > now_ns) {
		tcp_arm(c, now_ns);
		return;
	}
	if (c->flags & TCPF_ACK_DELAYED && c->ack_deadline_ns <= now_ns) {
		c->flags |= TCPF_ACK_NOW;
		tcp_stack_of(c)->counters->acks_delayed++;
	}
	if (c->life_ns <= now_ns) {
		if (c->state == TCPS_FIN_WAIT_2 && !c->half_closed) {
			tcp_conn_close(c, RP_CLOSE_TIMEOUT);
			return;
		}
		if (!timer_keepalive(c, now_ns))
			return;
	}
	if (c->timer_ns <= now_ns)
		timer_xmit_fired(c, now_ns);
	if (c->state != TCPS_CLOSED)
		tcp_mark_dirty(c);
}
