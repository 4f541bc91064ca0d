/* SPDX-License-Identifier: Apache-2.0 */
#include <net/net_priv.h>

#define ICMP_ECHO_REPLY 0
#define ICMP_UNREACHABLE 3
#define ICMP_ECHO_REQUEST 8
#define ICMP_TIME_EXCEEDED 11
#define ICMP_CODE_PROTOCOL 2
#define ICMP_CODE_PORT 3
#define ICMP_CODE_TOO_BIG 4
#define ICMP_CODE_PROHIBITED 13
#define ICMP_ECHO_BURST 64

bool icmp_echo_allowed(struct rp_net *net, uint64_t now_ns)
{
	uint64_t gap_ns = RP_NS_PER_S / net->config.icmp_echo_per_s;
	uint64_t earliest_ns = now_ns - RP_MIN(now_ns, ICMP_ECHO_BURST * gap_ns);

	net->echo_tokens_ns = RP_MAX(net->echo_tokens_ns, earliest_ns);
	if (net->echo_tokens_ns > now_ns)
		return false;
	net->echo_tokens_ns += gap_ns;
	return true;
}

/* The data of the request goes back from where it is, behind headers of our own. */
void icmp_echo_data(struct rte_mbuf *h, struct rte_mbuf *m, uint32_t from)
{
	if (m->pkt_len <= from) {
		rte_pktmbuf_free(m);
		return;
	}
	rte_pktmbuf_adj(m, (uint16_t)from);
	m->ol_flags &= ~(RTE_MBUF_F_RX_IP_CKSUM_MASK | RTE_MBUF_F_RX_L4_CKSUM_MASK);
	if (m->data_len == 0) {
		struct rte_mbuf *rest = m->next;

		rest->pkt_len = m->pkt_len;
		rest->nb_segs = (uint16_t)(m->nb_segs - 1);
		m->next = NULL;
		m->nb_segs = 1;
		rte_pktmbuf_free_seg(m);
		m = rest;
	}
	rp_mbuf_append(&h, m);
}

static void icmp_echo(struct rp_net *net, struct rte_mbuf *m, uint16_t offset, uint16_t length,
	uint32_t local, uint32_t src, uint64_t now_ns)
{
	const struct net_icmp *request =
		rte_pktmbuf_mtod_offset(m, const struct net_icmp *, offset);
	const uint16_t headers = NET_ETH_BYTES + sizeof(struct net_ip4) + sizeof(*request);
	union rp_ip remote = net_ip_from32(src);
	struct rp_neigh *n;
	struct net_icmp *reply;
	struct rte_mbuf *h;

	if (!icmp_echo_allowed(net, now_ns)) {
		net->counters->drop_icmp_rate++;
		rte_pktmbuf_free(m);
		return;
	}
	h = net_alloc_control(net, headers);
	n = h ? neigh_towards(net, &remote, now_ns) : NULL;
	if (!n) {
		if (h)
			net->counters->drop_neigh_full++;
		rte_pktmbuf_free(h);
		rte_pktmbuf_free(m);
		return;
	}
	reply = rte_pktmbuf_mtod_offset(h, struct net_icmp *, headers - sizeof(*reply));
	*reply = *request;
	reply->type = ICMP_ECHO_REPLY;
	/* The request's sum is right, and one word has changed (RFC 1624). */
	reply->checksum = (uint16_t)~rp_csum_fold((uint64_t)(uint16_t)~request->checksum +
						  (uint16_t)~RTE_BE16(ICMP_ECHO_REQUEST << 8));
	ip_fill(net, rte_pktmbuf_mtod_offset(h, struct net_ip4 *, NET_ETH_BYTES), NET_PROTO_ICMP, 0,
		net_ip4_of(&net->addrs[local].ip), src,
		(uint16_t)(sizeof(struct net_ip4) + length));
	if (net->iface.tx_csum_ip) {
		h->l2_len = NET_ETH_BYTES;
		h->l3_len = sizeof(struct net_ip4);
		h->ol_flags |= RTE_MBUF_F_TX_IPV4 | RTE_MBUF_F_TX_IP_CKSUM;
	}
	icmp_echo_data(h, m, (uint32_t)(offset + sizeof(*request)));
	net->counters->icmp_echo_replies++;
	neigh_output(net, n, h, true, now_ns);
}

static enum rp_net_icmp_error icmp_classify(const struct net_icmp *icmp)
{
	if (icmp->type == ICMP_UNREACHABLE) {
		if (icmp->code == ICMP_CODE_TOO_BIG)
			return RP_NET_ICMP_TOO_BIG;
		if (icmp->code == ICMP_CODE_PROTOCOL || icmp->code == ICMP_CODE_PORT ||
			icmp->code == ICMP_CODE_PROHIBITED)
			return RP_NET_ICMP_HARD;
	}
	return RP_NET_ICMP_SOFT;
}

void icmp_quoted(const uint8_t l4[8], struct rp_net_packet *out)
{
	out->local_port = (uint16_t)(l4[0] << 8 | l4[1]);
	out->remote_port = (uint16_t)(l4[2] << 8 | l4[3]);
	out->seq = rte_be_to_cpu_32(net_load32(l4 + 4));
}

/* An error quotes the header of the packet it is about and 8 bytes behind it (RFC 792). */
static bool icmp_error(struct rp_net *net, const struct rte_mbuf *m, uint16_t offset,
	uint16_t length, struct rp_net_packet *out)
{
	struct net_icmp icmp;
	struct net_ip4 ip;
	union rp_ip src;
	uint8_t l4[8];
	unsigned ihl;
	int local;

	rp_mbuf_copy_out(m, offset, &icmp, sizeof(icmp));
	if (length < sizeof(icmp) + sizeof(ip) + sizeof(l4))
		return false;
	rp_mbuf_copy_out(m, offset + sizeof(icmp), &ip, sizeof(ip));
	ihl = (ip.version_ihl & 15) * 4u;
	if (ip.version_ihl >> 4 != 4 || ihl < sizeof(ip) ||
		length < sizeof(icmp) + ihl + sizeof(l4) || ip.protocol != NET_PROTO_TCP ||
		ip.fragment & RTE_BE16(0x1fff))
		return false;
	src = rp_ip_from4(ip.src);
	local = net_addr_find(net, &src);
	if (local < 0)
		return false;
	rp_mbuf_copy_out(m, offset + sizeof(icmp) + ihl, l4, sizeof(l4));
	*out = (struct rp_net_packet){
		.kind = RP_NET_ICMP_ERROR,
		.remote = rp_ip_from4(ip.dst),
		.local = (uint32_t)local,
		.error = icmp_classify(&icmp),
		.mtu = (uint16_t)(icmp.rest[2] << 8 | icmp.rest[3]),
	};
	icmp_quoted(l4, out);
	return true;
}

bool icmp_input(struct rp_net *net, struct rte_mbuf *m, uint16_t offset, uint16_t length,
	uint32_t local, uint32_t src, struct rp_net_packet *out, uint64_t now_ns)
{
	struct rp_net_counters *c = net->counters;
	const struct net_icmp *icmp;
	bool up = false;

	c->rx_icmp++;
	if (length < sizeof(*icmp)) {
		c->drop_l4_short++;
		goto out;
	}
	c->csum_sw_rx++;
	if (rp_csum_fold(rp_csum_chain(m, offset, length)) != 0xffff) {
		c->drop_l4_csum++;
		goto out;
	}
	m = net_pull(net, m, (uint32_t)offset + sizeof(*icmp));
	if (!m)
		return false;
	icmp = rte_pktmbuf_mtod_offset(m, const struct net_icmp *, offset);
	if (icmp->type == ICMP_ECHO_REQUEST && icmp->code == 0) {
		icmp_echo(net, m, offset, length, local, src, now_ns);
		return false;
	}
	if (icmp->type == ICMP_UNREACHABLE || icmp->type == ICMP_TIME_EXCEEDED) {
		up = icmp_error(net, m, offset, length, out);
		if (up)
			c->icmp_errors++;
		else
			c->drop_icmp_embedded++;
	} else {
		c->drop_icmp_type++;
	}
out:
	rte_pktmbuf_free(m);
	return up;
}
