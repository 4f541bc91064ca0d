/* SPDX-License-Identifier: Apache-2.0 */
#include <net/net_priv.h>

/* RFC 4443. */
#define ICMP6_UNREACHABLE 1
#define ICMP6_TOO_BIG 2
#define ICMP6_TIME_EXCEEDED 3
#define ICMP6_PARAMETER 4
#define ICMP6_ECHO_REQUEST 128
#define ICMP6_ECHO_REPLY 129
#define ICMP6_LISTENER_QUERY 130
#define ICMP6_ROUTER_SOLICITATION 133 /* first of RFC 4861 */
#define ICMP6_ADVERTISEMENT 136
#define ICMP6_REDIRECT 137 /* last of it */
#define ICMP6_CODE_PROHIBITED 1
#define ICMP6_CODE_PORT 4
#define ICMP6_CODE_NEXT_HEADER 1
#define ND_HOP_LIMIT 255

struct rte_mbuf *icmp6_new(struct rp_net *net, const union rp_ip *src, const union rp_ip *dst,
	uint16_t length, uint8_t **message)
{
	const uint16_t headers = NET_ETH_BYTES + NET_IP6_BYTES;
	struct rte_mbuf *m = net_alloc_control(net, (uint16_t)(headers + length));
	struct ip6_meta meta = {.next_header = NET_PROTO_ICMP6, .hop_limit = ND_HOP_LIMIT};

	if (!m)
		return NULL;
	ip6_fill(rte_pktmbuf_mtod_offset(m, struct net_ip6 *, NET_ETH_BYTES), &meta, src, dst,
		length);
	*message = rte_pktmbuf_mtod_offset(m, uint8_t *, headers);
	memset(*message, 0, length);
	return m;
}

void icmp6_send(struct rp_net *net, struct rte_mbuf *m, const uint8_t *mac)
{
	struct net_eth *eth = rte_pktmbuf_mtod(m, struct net_eth *);
	struct net_ip6 *ip = (struct net_ip6 *)(eth + 1);
	/* One of ours may have the extension header of 8 bytes of MLD. */
	uint16_t extension = ip->next_header == NET_PROTO_ICMP6 ? 0 : 8;
	struct net_icmp *icmp = (struct net_icmp *)((uint8_t *)(ip + 1) + extension);
	uint16_t length = (uint16_t)(rte_be_to_cpu_16(ip->payload_length) - extension);
	union rp_ip src = net_ip_from_bytes(ip->src), dst = net_ip_from_bytes(ip->dst);

	if (mac) {
		memcpy(eth->dst, mac, 6);
	} else { /* RFC 2464 7 */
		eth->dst[0] = eth->dst[1] = 0x33;
		memcpy(eth->dst + 2, &ip->dst[12], 4);
	}
	memcpy(eth->src, net->iface.mac, 6);
	eth->type = RTE_BE16(NET_ETHERTYPE_IP6);
	icmp->checksum = (uint16_t)~rp_csum_fold(
		ip6_pseudo(&src, &dst, NET_PROTO_ICMP6, length) + rp_csum_bytes(icmp, length));
	net_tx_own(net, m);
}

/* The data of the request goes back from where it is, behind headers of our own. */
static void icmp6_echo(struct rp_net *net, struct icmp6_in *in, uint64_t now_ns)
{
	const struct net_icmp *request =
		rte_pktmbuf_mtod_offset(in->m, const struct net_icmp *, in->offset);
	const uint16_t headers = NET_ETH_BYTES + NET_IP6_BYTES + sizeof(*request);
	struct ip6_meta meta = {.next_header = NET_PROTO_ICMP6, .hop_limit = net->iface.ttl};
	/* A group was asked: each answers as itself (RFC 4443 4.2). */
	int local = in->local < 0 ? rp_net_source(net, &in->src) : in->local;
	struct rte_mbuf *h = NULL;
	struct rp_neigh *n = NULL;
	struct net_icmp *reply;
	uint64_t sum;

	if (local < 0 || net->addrs[local].state != NET_ADDR_VALID || in->src.q[0] == 0) {
		net->counters->drop_not_for_us++;
		goto drop;
	}
	if (!icmp_echo_allowed(net, now_ns)) {
		net->counters->drop_icmp_rate++;
		goto drop;
	}
	h = net_alloc_control(net, headers);
	if (!h)
		goto drop;
	n = neigh_towards(net, &in->src, now_ns);
	if (!n) {
		net->counters->drop_neigh_full++;
		goto drop;
	}
	ip6_fill(rte_pktmbuf_mtod_offset(h, struct net_ip6 *, NET_ETH_BYTES), &meta,
		&net->addrs[local].ip, &in->src, in->length);
	reply = rte_pktmbuf_mtod_offset(h, struct net_icmp *, headers - sizeof(*reply));
	*reply = *request;
	reply->type = ICMP6_ECHO_REPLY;
	/* The request's sum is right; the type has changed, and the group became an address (RFC
	 * 1624). */
	sum = (uint64_t)(uint16_t)~request->checksum +
	      RTE_BE16((ICMP6_ECHO_REPLY - ICMP6_ECHO_REQUEST) << 8);
	if (in->local < 0)
		sum += (uint64_t)(uint16_t)~rp_csum_bytes(&in->dst, 16) +
		       rp_csum_bytes(&net->addrs[local].ip, 16);
	reply->checksum = (uint16_t)~rp_csum_fold(sum);
	icmp_echo_data(h, in->m, (uint32_t)(in->offset + sizeof(*request)));
	net->counters->icmp_echo_replies++;
	neigh_output(net, n, h, true, now_ns);
	return;

drop:
	rte_pktmbuf_free(h);
	rte_pktmbuf_free(in->m);
}

static enum rp_net_icmp_error icmp6_classify(const struct net_icmp *icmp)
{
	if (icmp->type == ICMP6_TOO_BIG)
		return RP_NET_ICMP_TOO_BIG;
	if (icmp->type == ICMP6_UNREACHABLE &&
		(icmp->code == ICMP6_CODE_PORT || icmp->code == ICMP6_CODE_PROHIBITED))
		return RP_NET_ICMP_HARD;
	if (icmp->type == ICMP6_PARAMETER && icmp->code == ICMP6_CODE_NEXT_HEADER)
		return RP_NET_ICMP_HARD;
	return RP_NET_ICMP_SOFT;
}

/* An error quotes the packet it is about (RFC 4443 2.4); ours have no extension headers. */
static bool icmp6_error(struct rp_net *net, const struct icmp6_in *in, struct rp_net_packet *out)
{
	struct net_icmp icmp;
	struct net_ip6 ip;
	union rp_ip src;
	uint8_t l4[8];
	uint32_t mtu;
	int local;

	if (in->length < sizeof(icmp) + sizeof(ip) + sizeof(l4))
		return false;
	rp_mbuf_copy_out(in->m, in->offset, &icmp, sizeof(icmp));
	rp_mbuf_copy_out(in->m, in->offset + sizeof(icmp), &ip, sizeof(ip));
	rp_mbuf_copy_out(in->m, in->offset + sizeof(icmp) + sizeof(ip), l4, sizeof(l4));
	src = net_ip_from_bytes(ip.src);
	local = net_addr_find(net, &src);
	if ((ip.version_class_label & RTE_BE32(0xf0000000)) != RTE_BE32(0x60000000) ||
		ip.next_header != NET_PROTO_TCP || local < 0 || (uint32_t)local < net->addr4_count)
		return false;
	mtu = rte_be_to_cpu_32(net_load32(icmp.rest));
	*out = (struct rp_net_packet){
		.kind = RP_NET_ICMP_ERROR,
		.remote = net_ip_from_bytes(ip.dst),
		.local = (uint32_t)local,
		.error = icmp6_classify(&icmp),
		.mtu = (uint16_t)RP_MIN(mtu, (uint32_t)UINT16_MAX),
	};
	icmp_quoted(l4, out);
	return true;
}

static bool icmp6_sum_ok(struct rp_net *net, const struct icmp6_in *in)
{
	net->counters->csum_sw_rx++;
	uint64_t sum = ip6_pseudo(&in->src, &in->dst, NET_PROTO_ICMP6, in->length);

	return rp_csum_fold(rp_csum_add(sum, rp_csum_chain(in->m, in->offset, in->length))) ==
	       0xffff;
}

bool icmp6_input(
	struct rp_net *net, struct icmp6_in *in, struct rp_net_packet *out, uint64_t now_ns)
{
	struct rp_net_counters *c = net->counters;
	struct net_icmp icmp;
	bool up = false;

	c->rx_icmp6++;
	if (in->length < sizeof(icmp)) {
		c->drop_l4_short++;
	} else if (!icmp6_sum_ok(net, in)) {
		c->drop_l4_csum++;
	} else {
		in->m = net_pull(net, in->m, (uint32_t)in->offset + sizeof(icmp));
		if (!in->m)
			return false;
		icmp = *rte_pktmbuf_mtod_offset(in->m, const struct net_icmp *, in->offset);
		if (in->from_us && icmp.type != ICMP6_ADVERTISEMENT) {
			c->drop_ip_source++;
			rte_pktmbuf_free(in->m);
			return false;
		}
		if (icmp.type == ICMP6_ECHO_REQUEST && icmp.code == 0) {
			icmp6_echo(net, in, now_ns);
			return false;
		}
		if (icmp.type >= ICMP6_ROUTER_SOLICITATION && icmp.type <= ICMP6_REDIRECT) {
			nd_input(net, in, icmp.type, now_ns);
		} else if (icmp.type == ICMP6_LISTENER_QUERY) {
			mld_query(net, in, now_ns);
		} else if (icmp.type >= ICMP6_UNREACHABLE && icmp.type <= ICMP6_PARAMETER) {
			up = icmp6_error(net, in, out);
			if (up)
				c->icmp_errors++;
			else
				c->drop_icmp_embedded++;
		} else {
			c->drop_icmp_type++;
		}
	}
	rte_pktmbuf_free(in->m);
	return up;
}
