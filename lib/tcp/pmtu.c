/* SPDX-License-Identifier: Apache-2.0 */
#include <tcp/tcp_priv.h>

/*
 * The path MTU (RFC 1191, RFC 8201): learned from ICMP after the checks of RFC 5927, remembered for
 * a while by peer, tried again later.
 */

#define PMTU_AGE_NS (600 * RP_NS_PER_S) /* RFC 1191 6.3 */
#define PMTU_GAP_NS (1 * RP_NS_PER_S)	/* one a second, of a connection */
#define PMTU_BURST 4
#define PMTU_GUESS 1024u /* what passes where 1500 vanish */
#define PMTU_TIMEOUTS 2	 /* backoff at the third timeout in a row */

static uint32_t pmtu_overhead(const struct tcp_conn *c)
{
	return rp_net_overhead(&c->key.remote) + (c->flags & TCPF_TS ? TCP_TS_BYTES : 0);
}

static struct tcp_pmtu *pmtu_slot(struct rp_tcp_stack *s, const union rp_ip *remote)
{
	uint64_t h = (remote->q[0] ^ remote->q[1] ^ s->flows.secret[0]) * 0x9e3779b97f4a7c15ull;

	return &s->pmtu[h >> 58];
}

void tcp_pmtu_learn(struct tcp_conn *c, uint16_t mtu, uint64_t now_ns)
{
	struct rp_list *l, *next;

	c->mss = (uint16_t)(mtu - pmtu_overhead(c));
	c->pmtu_ns = now_ns;
	c->flags |= TCPF_PMTU;
	*pmtu_slot(tcp_stack_of(c), &c->key.remote) =
		(struct tcp_pmtu){.remote = c->key.remote, .learned_ns = now_ns, .mtu = mtu};
	rp_list_foreach_safe (l, next, &c->xmit)
		if (tseg_of_xmit(l)->length > c->mss)
			tcp_mark_lost(c, tseg_of_xmit(l));
}

void tcp_pmtu_apply(struct tcp_conn *c, uint64_t now_ns)
{
	const struct tcp_pmtu *p = pmtu_slot(tcp_stack_of(c), &c->key.remote);

	if (p->learned_ns == 0 || now_ns - p->learned_ns > PMTU_AGE_NS ||
		!rp_ip_equal(&p->remote, &c->key.remote) || p->mtu - pmtu_overhead(c) >= c->mss)
		return;
	c->mss = (uint16_t)(p->mtu - pmtu_overhead(c));
	c->pmtu_ns = p->learned_ns;
	c->flags |= TCPF_PMTU;
}

/* Is there a segment in flight that holds `seq` and is too large? */
static bool pmtu_plausible(const struct tcp_conn *c, uint32_t seq, uint32_t mss)
{
	const struct rp_list *l;

	rp_list_foreach (l, &c->segs) {
		const struct tseg *t = tseg_of_link(l);

		if (!(t->flags & TSEG_SENT) || rp_seq_gt(t->seq, seq))
			return false;
		if (rp_seq_gt(tseg_end(t), seq))
			return t->length > mss;
	}
	return false;
}

void tcp_pmtu_too_big(struct tcp_conn *c, uint32_t seq, uint16_t mtu, uint64_t now_ns)
{
	struct rp_tcp_counters *n = tcp_stack_of(c)->counters;
	uint32_t overhead = pmtu_overhead(c);

	/* Smaller ones are more likely an attack than a path (RFC 5927 7.2). */
	if (mtu < tcp_mtu_min(&c->key) || mtu - overhead >= c->mss || !tcp_synchronized(c)) {
		n->drop_icmp_invalid++;
		return;
	}
	/* The search below is long, and each one that is true makes everything go again. */
	if (!tcp_bucket_take(&c->pmtu_bucket, now_ns, PMTU_GAP_NS, PMTU_BURST)) {
		n->drop_icmp_rate++;
		return;
	}
	if (!pmtu_plausible(c, seq, mtu - overhead)) {
		n->drop_icmp_invalid++;
		return;
	}
	n->icmp_too_big++;
	tcp_pmtu_learn(c, mtu, now_ns);
}

void tcp_pmtu_age(struct tcp_conn *c, uint64_t now_ns)
{
	if (now_ns - c->pmtu_ns <= PMTU_AGE_NS)
		return;
	c->flags &= ~TCPF_PMTU;
	c->mss = c->mss_full;
}

void tcp_pmtu_suspect(struct tcp_conn *c, uint64_t now_ns)
{
	struct rp_tcp_stack *s = tcp_stack_of(c);
	const struct tseg *head = tcp_head(c);
	uint32_t guess = RP_MAX(PMTU_GUESS, tcp_mtu_min(&c->key));

	if (!s->config.pmtu_blackhole || c->backoff != PMTU_TIMEOUTS || !tcp_synchronized(c) ||
		head->length <= guess - pmtu_overhead(c))
		return;
	s->counters->pmtu_blackhole++;
	tcp_pmtu_learn(c, (uint16_t)guess, now_ns);
}
