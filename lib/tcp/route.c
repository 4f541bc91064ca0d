/* SPDX-License-Identifier: Apache-2.0 */
#include <tcp/tcp_priv.h>

/* How a connection's attributes follow from its peer. */

#define QUICK_ACKS 16

static bool route_fits(const struct rp_tcp_route *r, const union rp_ip *peer)
{
	unsigned bytes = r->prefix_length / 8, bits = r->prefix_length % 8;

	return memcmp(r->prefix.b, peer->b, bytes) == 0 &&
	       (bits == 0 || (r->prefix.b[bytes] ^ peer->b[bytes]) >> (8 - bits) == 0);
}

static const struct rp_conn_options *route_find(
	const struct rp_tcp_stack *s, const union rp_ip *peer)
{
	static const struct rp_conn_options none;
	const struct rp_tcp_route *best = NULL;

	for (uint32_t i = 0; i < s->config.route_count; i++) {
		const struct rp_tcp_route *r = &s->config.routes[i];

		if (route_fits(r, peer) && (!best || r->prefix_length > best->prefix_length))
			best = r;
	}
	return best ? &best->options : &none;
}

#define PICK(field) (o->field ? o->field : r->field)

uint16_t tcp_route_mss(const struct rp_tcp_stack *s, const struct flow_key *key,
	const struct rp_conn_options *options)
{
	const struct rp_conn_options *r = route_find(s, &key->remote), *o = options ? options : r;
	uint32_t mtu = PICK(mtu), mss = tcp_mss_of(s, key);

	if (mtu)
		mss = RP_MIN(mss, RP_MAX(mtu, tcp_mtu_min(key)) - rp_net_overhead(&key->remote));
	return (uint16_t)mss;
}

void tcp_conn_options(struct tcp_conn *c, const struct rp_conn_options *options)
{
	struct rp_tcp_stack *s = tcp_stack_of(c);
	const struct rp_conn_options *r = route_find(s, &c->key.remote), *o = options ? options : r;
	const struct rp_tcp_config *config = &s->config;
	uint64_t timeout_ns = PICK(user_timeout_ns);
	enum rp_ecn ecn = PICK(ecn);

	c->rto_min_own_ns = PICK(rto_min_ns) ? PICK(rto_min_ns) : config->rto_min_ns;
	c->rto_min_ns = RP_MAX(c->rto_min_own_ns, s->rto_floor_ns);
	c->ack_delay_max_ns =
		PICK(ack_delay_max_ns) ? PICK(ack_delay_max_ns) : config->ack_delay_max_ns;
	/* RFC 9293 3.8.6.3, MUST-40. */
	c->ack_delay_max_ns = RP_MIN(c->ack_delay_max_ns, 499 * RP_NS_PER_MS);
	c->peer_ack_delay_ns =
		PICK(peer_ack_delay_ns) ? PICK(peer_ack_delay_ns) : c->ack_delay_max_ns;
	c->user_timeout_ns = timeout_ns ? timeout_ns : config->user_timeout_ns;
	if (timeout_ns)
		c->flags |= TCPF_OPTION_TIMEOUT;
	tcp_keepalive_set(
		c, PICK(keepalive_idle_ns), PICK(keepalive_interval_ns), PICK(keepalive_probes));
	c->cc_wanted = PICK(congestion);
	c->ecn = 0;
	if (ecn != RP_ECN_OFF)
		c->ecn |= TCP_ECN_ACCEPT;
	if (ecn == RP_ECN_ASK || ecn == RP_ECN_INSIST)
		c->ecn |= TCP_ECN_ASK | TCP_ECN_ASKED;
	c->ecn_insist = ecn == RP_ECN_INSIST;
	c->ack_second = PICK(ack_profile) == RP_ACK_SECOND;
	c->quick_acks = PICK(ack_profile) == RP_ACK_QUICK ? QUICK_ACKS : 0;
	c->mss_max = tcp_route_mss(s, &c->key, options);
	c->mss = (uint16_t)(c->mss_max - TCP_TS_BYTES);
	c->rcv_mss = RP_MIN(536, c->mss);
	c->cwnd = tcp_initial_window(c);
}
