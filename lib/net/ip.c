/* SPDX-License-Identifier: Apache-2.0 */
#include <net/net_priv.h>

#define IP_MF_AND_OFFSET 0x3fff
#define TCP_HEADER_BYTES 20

/* RFC 1122 3.2.1.3: addresses that nobody can send from. */
static bool ip_source_ok(const struct rp_net *net, const uint8_t src[4])
{
	uint32_t a = net_load32(src);

	if (src[0] == 0 || src[0] == 127 || src[0] >= 224)
		return false;
	for (const struct net_addr *own = net->addrs; own < net->addrs + net->addr4_count; own++) {
		uint32_t other = a ^ net_ip4_of(&own->ip), mask = (uint32_t)(own->mask[1] >> 32);

		if (other == 0)
			return false;
		if (__builtin_expect(((a & ~mask) == 0 || (a & ~mask) == ~mask) &&
					     !(other & mask) && own->prefix_length < 31,
			    0))
			return false;
	}
	return true;
}

/* The index of an address of ours; -1: it is none. */
static int ip_local(const struct rp_net *net, const uint8_t dst[4])
{
	uint32_t a = net_load32(dst);

	if (__builtin_expect(a == net->addr && a != 0, 1))
		return 0;
	for (uint32_t i = 1; i < net->addr4_count; i++)
		if (a == net_ip4_of(&net->addrs[i].ip))
			return (int)i;
	return -1;
}

__attribute__((always_inline)) static inline bool ip_csum_bad(
	struct rp_net *net, const struct rte_mbuf *m, const void *ip, unsigned ihl)
{
	uint64_t flag = m->ol_flags & RTE_MBUF_F_RX_IP_CKSUM_MASK;

	if (flag == RTE_MBUF_F_RX_IP_CKSUM_BAD)
		return true;
	if (net->iface.rx_csum && flag != RTE_MBUF_F_RX_IP_CKSUM_UNKNOWN)
		return false;
	return rp_csum_fold(ihl == sizeof(struct net_ip4) ? rp_csum_20(ip)
							  : rp_csum_header(ip, ihl)) != 0xffff;
}

__attribute__((always_inline)) static inline bool ip_tcp_csum_bad(struct rp_net *net,
	const struct rte_mbuf *m, uint64_t pseudo, uint16_t offset, uint16_t length)
{
	uint64_t flag = m->ol_flags & RTE_MBUF_F_RX_L4_CKSUM_MASK;

	if (flag == RTE_MBUF_F_RX_L4_CKSUM_BAD)
		return true;
	if (net->iface.rx_csum && flag != RTE_MBUF_F_RX_L4_CKSUM_UNKNOWN)
		return false;
	net->counters->csum_sw_rx++;
	return rp_csum_fold(rp_csum_add(pseudo, rp_csum_chain(m, offset, length))) != 0xffff;
}

/* `whole`: m is one mbuf. */
__attribute__((always_inline)) static inline bool ip_tcp(struct rp_net *net, struct rte_mbuf *m,
	uint16_t ihl, uint16_t length, uint64_t pseudo, struct rp_net_packet *out, bool whole)
{
	uint16_t header;

	if (length < TCP_HEADER_BYTES)
		goto short_header;
	if (!whole && !(m = net_pull(net, m, (uint32_t)ihl + TCP_HEADER_BYTES)))
		return false;
	header = (uint16_t)((*rte_pktmbuf_mtod_offset(m, uint8_t *, ihl + 12) >> 4) * 4);
	if (header < TCP_HEADER_BYTES || header > length)
		goto short_header;
	if (!whole && !(m = net_pull(net, m, (uint32_t)ihl + header)))
		return false;
	if (ip_tcp_csum_bad(net, m, pseudo, ihl, length)) {
		net->counters->drop_l4_csum++;
		rte_pktmbuf_free(m);
		return false;
	}
	net->counters->rx_tcp++;
	out->kind = RP_NET_TCP;
	out->handed_over = false;
	out->m = m;
	out->l4_offset = ihl;
	out->l4_length = length;
	return true;

short_header:
	net->counters->drop_l4_short++;
	rte_pktmbuf_free(m);
	return false;
}

bool ip_tcp_input(struct rp_net *net, struct rte_mbuf *m, uint16_t offset, uint16_t length,
	uint64_t pseudo, struct rp_net_packet *out)
{
	return ip_tcp(net, m, offset, length, pseudo, out, false);
}

/* Hash of an address into net->sources. */
static uint32_t *ip_source_slot(struct rp_net *net, uint32_t src)
{
	return &net->sources[(src * 0x9e3779b1u) >> (32 - NET_SOURCES_BITS)];
}

/*
 * The common packet: no options, no fragment, TCP to our first address, from one whose packets were
 * looked at before. Whatever differs takes the long way, which knows what to count.
 */
static inline bool ip_plain(struct rp_net *net, const struct rte_mbuf *m, const struct net_ip4 *ip)
{
	uint32_t src = net_load32(ip->src), total = rte_be_to_cpu_16(ip->total_length);

	return ip->version_ihl == 0x45 && ip->protocol == NET_PROTO_TCP &&
	       !(ip->fragment & RTE_BE16(IP_MF_AND_OFFSET)) && total >= sizeof(*ip) &&
	       total + NET_ETH_BYTES <= m->data_len && src != 0 &&
	       *ip_source_slot(net, src) == src && net_load32(ip->dst) == net->addr &&
	       !ip_csum_bad(net, m, ip, sizeof(*ip));
}

/* What counts what is wrong with the header in `ip` of `available` bytes; NULL: nothing is. */
static uint64_t *ip_fault(struct rp_net *net, const struct rte_mbuf *m, const struct net_ip4 *ip,
	uint32_t available, int *local)
{
	struct rp_net_counters *c = net->counters;
	unsigned ihl = (ip->version_ihl & 15) * 4u;
	unsigned total = rte_be_to_cpu_16(ip->total_length);

	if (ip->version_ihl >> 4 != 4 || ihl < sizeof(*ip) || total < ihl || total > available)
		return &c->drop_ip_header;
	if (ip_csum_bad(net, m, ip, ihl))
		return &c->drop_ip_csum;
	*local = ip_local(net, ip->dst);
	if (*local < 0)
		return &c->drop_not_for_us;
	if (!ip_source_ok(net, ip->src))
		return &c->drop_ip_source;
	if (ip->fragment & RTE_BE16(IP_MF_AND_OFFSET))
		return &c->drop_ip_fragment;
	if (ip->protocol != NET_PROTO_TCP && ip->protocol != NET_PROTO_ICMP)
		return &c->drop_ip_protocol;
	return NULL;
}

/* The IP part of a TCP packet is right: its TCP part. m begins with the IP header. */
__attribute__((always_inline)) static inline bool ip_to_tcp(struct rp_net *net, struct rte_mbuf *m,
	const struct net_ip4 *ip, uint16_t ihl, int local, struct rp_net_packet *out, bool whole)
{
	uint16_t length = (uint16_t)(m->pkt_len - ihl);
	uint32_t src = net_load32(ip->src);
	uint64_t pseudo = (uint64_t)src + net_load32(ip->dst) + RTE_BE16(NET_PROTO_TCP) +
			  rte_cpu_to_be_16(length);

	out->ecn = ip->tos & RP_NET_ECN_CE;
	out->remote = net_ip_from32(src);
	out->local = (uint32_t)local;
	return ip_tcp(net, m, ihl, length, pseudo, out, whole);
}

static RP_APART bool ip_input_other(
	struct rp_net *net, struct rte_mbuf *m, struct rp_net_packet *out, uint64_t now_ns)
{
	struct rp_net_counters *c = net->counters;
	const struct net_ip4 *ip;
	uint16_t ihl;
	uint64_t *fault;
	int local = 0;
	uint32_t available = m->pkt_len - NET_ETH_BYTES;

	ip = rte_pktmbuf_mtod_offset(m, const struct net_ip4 *, NET_ETH_BYTES);
	ihl = (uint16_t)((ip->version_ihl & 15) * 4);
	if (ihl > sizeof(*ip) && ihl <= available) {
		m = net_pull(net, m, NET_ETH_BYTES + (uint32_t)ihl);
		if (!m)
			return false;
		ip = rte_pktmbuf_mtod_offset(m, const struct net_ip4 *, NET_ETH_BYTES);
	}
	fault = ihl <= available ? ip_fault(net, m, ip, available, &local) : &c->drop_ip_header;
	if (fault) {
		(*fault)++;
		rte_pktmbuf_free(m);
		return false;
	}
	/* Ethernet pads short packets. */
	net_trim_to(m, NET_ETH_BYTES + (uint32_t)rte_be_to_cpu_16(ip->total_length));
	rte_pktmbuf_adj(m, NET_ETH_BYTES);
	if (ip->protocol != NET_PROTO_TCP)
		return icmp_input(net, m, ihl, (uint16_t)(m->pkt_len - ihl), (uint32_t)local,
			net_load32(ip->src), out, now_ns);
	*ip_source_slot(net, net_load32(ip->src)) = net_load32(ip->src);
	return ip_to_tcp(net, m, ip, ihl, local, out, false);
}

__attribute__((always_inline)) inline bool ip_input_plain(
	struct rp_net *net, struct rte_mbuf *m, struct rp_net_packet *out, uint64_t now_ns)
{
	const struct net_ip4 *ip =
		rte_pktmbuf_mtod_offset(m, const struct net_ip4 *, NET_ETH_BYTES);

	if (!ip_plain(net, m, ip))
		return ip_input_other(net, m, out, now_ns);
	m->data_off += NET_ETH_BYTES;
	m->data_len = rte_be_to_cpu_16(ip->total_length); /* Ethernet pads short packets */
	m->pkt_len = m->data_len;
	return ip_to_tcp(net, m, ip, sizeof(*ip), 0, out, true);
}

bool ip_input(struct rp_net *net, struct rte_mbuf *m, struct rp_net_packet *out, uint64_t now_ns)
{
	if (m->pkt_len < NET_ETH_BYTES + sizeof(struct net_ip4)) {
		net->counters->drop_short++;
		rte_pktmbuf_free(m);
		return false;
	}
	m = net_pull(net, m, NET_ETH_BYTES + sizeof(struct net_ip4));
	return m && ip_input_other(net, m, out, now_ns);
}
