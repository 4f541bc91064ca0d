/* SPDX-License-Identifier: Apache-2.0 */
#include <net/net_priv.h>

#define IP6_HOP_BY_HOP 0
#define IP6_ROUTING 43
#define IP6_FRAGMENT 44
#define IP6_DESTINATION 60
/* Hosts may bound what they look through (RFC 8504 5.3). */
#define IP6_EXTENSIONS_MAX 8
#define IP6_EXTENSION_BYTES_MAX 256
#define IP6_OPTIONS_MAX 16

void ip6_fill(struct net_ip6 *ip, const struct ip6_meta *meta, const union rp_ip *src,
	const union rp_ip *dst, uint16_t payload_length)
{
	uint8_t *p = (uint8_t *)ip;

	/* In whole words, as rp_csum and the device are going to read them. */
	net_store32(p, rte_cpu_to_be_32(6u << 28 | (uint32_t)meta->traffic_class << 20 |
					(meta->flow_label & 0xfffff)));
	net_store32(p + 4, rte_cpu_to_be_32((uint32_t)payload_length << 16 |
					    (uint32_t)meta->next_header << 8 | meta->hop_limit));
	memcpy(p + 8, src, sizeof(*src));
	memcpy(p + 24, dst, sizeof(*dst));
}

uint64_t ip6_pseudo(
	const union rp_ip *src, const union rp_ip *dst, uint8_t next_header, uint16_t length)
{
	uint64_t sum = (uint64_t)rte_cpu_to_be_16(length) + rte_cpu_to_be_16(next_header);

	for (unsigned i = 0; i < 4; i++)
		sum += (uint64_t)src->w[i] + dst->w[i];
	return sum;
}

/* Options of which the two top bits of the type say that a packet may not be taken without knowing
 * them end it (RFC 8200 4.2). */
static bool ip6_options_ok(const uint8_t *p, unsigned length)
{
	for (unsigned i = 0; length > 0; i++) {
		unsigned n;

		if (p[0] == 0) { /* Pad1 */
			p++;
			length--;
			continue;
		}
		if (i >= IP6_OPTIONS_MAX || length < 2 || p[1] + 2u > length || p[0] >> 6)
			return false;
		n = p[1] + 2u;
		p += n;
		length -= n;
	}
	return true;
}

/* Where the walk over the headers stands. */
struct ip6_walk {
	const struct rte_mbuf *m; /* begins with the Ethernet header */
	uint32_t at, end;	  /* from there; end: behind the packet */
	uint8_t next_header;
};

/* One extension header: NULL, or what counts why the packet is dropped. */
static uint64_t *ip6_extension(struct rp_net *net, struct ip6_walk *w, bool first)
{
	struct rp_net_counters *c = net->counters;
	uint8_t h[IP6_EXTENSION_BYTES_MAX], kind = w->next_header;
	unsigned bytes;

	if (w->end - w->at < 8 || rp_mbuf_copy_out(w->m, w->at, h, 8) < 8)
		return &c->drop_ip6_extension;
	bytes = kind == IP6_FRAGMENT ? 8 : (h[1] + 1u) * 8;
	if (bytes > sizeof(h) || bytes > w->end - w->at)
		return &c->drop_ip6_extension;
	rp_mbuf_copy_out(w->m, w->at, h, bytes);
	w->next_header = h[0];
	w->at += bytes;
	switch (kind) {
	case IP6_HOP_BY_HOP:
	case IP6_DESTINATION:
		if ((kind == IP6_HOP_BY_HOP && !first) || !ip6_options_ok(h + 2, bytes - 2))
			return &c->drop_ip6_extension;
		return NULL;
	case IP6_FRAGMENT:
		/* One that is the whole packet is none (RFC 6946). */
		return h[2] == 0 && (h[3] & 0xf9) == 0 ? NULL : &c->drop_ip_fragment;
	default: /* routing: of use to nobody where no segment is left (RFC 8200 4.4) */
		return h[3] == 0 ? NULL : &c->drop_ip6_extension;
	}
}

/* Walks to the header of a protocol that we speak. */
static uint64_t *ip6_walk(struct rp_net *net, struct ip6_walk *w)
{
	uint32_t begin = w->at;

	for (unsigned i = 0; w->next_header != NET_PROTO_TCP && w->next_header != NET_PROTO_ICMP6;
		i++) {
		uint64_t *fault;

		if (w->next_header != IP6_HOP_BY_HOP && w->next_header != IP6_ROUTING &&
			w->next_header != IP6_FRAGMENT && w->next_header != IP6_DESTINATION)
			return &net->counters->drop_ip_protocol;
		if (i >= IP6_EXTENSIONS_MAX)
			return &net->counters->drop_ip6_extension;
		fault = ip6_extension(net, w, i == 0);
		if (fault)
			return fault;
		if (w->at - begin > IP6_EXTENSION_BYTES_MAX)
			return &net->counters->drop_ip6_extension;
	}
	return NULL;
}

/* Addresses: whether the packet is for us, and its source somebody's. */
static uint64_t *ip6_addresses(struct rp_net *net, struct icmp6_in *in, uint8_t next_header)
{
	struct rp_net_counters *c = net->counters;
	bool unspecified = in->src.q[0] == 0 && in->src.q[1] == 0;

	in->local = net_addr_find(net, &in->dst);
	if (in->local < 0) {
		if (!net_is_multicast6(&in->dst))
			return &c->drop_not_for_us;
		if (!net_in_group(net, &in->dst))
			return &c->drop_multicast;
	} else if (net->addrs[in->local].state != NET_ADDR_VALID && next_header == NET_PROTO_TCP) {
		return &c->drop_not_for_us;
	}
	/* Only who has no address yet has none: neighbour discovery decides. */
	if (unspecified && next_header == NET_PROTO_ICMP6)
		return NULL;
	in->from_us = net_addr_find(net, &in->src) >= 0;
	if (in->src.q[0] == 0 || net_is_multicast6(&in->src) ||
		(in->from_us && next_header == NET_PROTO_TCP))
		return &c->drop_ip_source;
	/* TCP is of one with one (RFC 9293 MUST-57). */
	if (in->local < 0 && next_header == NET_PROTO_TCP)
		return &c->drop_not_for_us;
	return NULL;
}

static uint64_t *ip6_fault(
	struct rp_net *net, const struct net_ip6 *ip, struct ip6_walk *w, struct icmp6_in *in)
{
	uint32_t length = rte_be_to_cpu_16(ip->payload_length);
	uint64_t *fault;

	if ((ip->version_class_label & RTE_BE32(0xf0000000)) != RTE_BE32(0x60000000) ||
		length > w->m->pkt_len - w->at)
		return &net->counters->drop_ip_header;
	w->end = w->at + length;
	fault = ip6_walk(net, w);
	return fault ? fault : ip6_addresses(net, in, w->next_header);
}

bool ip6_input(struct rp_net *net, struct rte_mbuf *m, const uint8_t mac[6],
	struct rp_net_packet *out, uint64_t now_ns)
{
	struct rp_net_counters *c = net->counters;
	struct ip6_walk w = {.at = NET_ETH_BYTES + NET_IP6_BYTES};
	struct icmp6_in in = {.mac = mac};
	const struct net_ip6 *ip;
	uint64_t *fault;

	if (m->pkt_len < w.at) {
		c->drop_short++;
		rte_pktmbuf_free(m);
		return false;
	}
	m = net_pull(net, m, w.at);
	if (!m)
		return false;
	ip = rte_pktmbuf_mtod_offset(m, const struct net_ip6 *, NET_ETH_BYTES);
	in.src = net_ip_from_bytes(ip->src);
	in.dst = net_ip_from_bytes(ip->dst);
	in.hop_limit = ip->hop_limit;
	w.m = m;
	w.next_header = ip->next_header;
	fault = ip6_fault(net, ip, &w, &in);
	if (fault) {
		(*fault)++;
		rte_pktmbuf_free(m);
		return false;
	}
	out->ecn = (uint8_t)(rte_be_to_cpu_32(ip->version_class_label) >> 20 & RP_NET_ECN_CE);
	/* Ethernet pads short packets. */
	net_trim_to(m, w.end);
	rte_pktmbuf_adj(m, NET_ETH_BYTES);
	in.m = m;
	in.offset = (uint16_t)(w.at - NET_ETH_BYTES);
	in.length = (uint16_t)(w.end - w.at);
	if (w.next_header == NET_PROTO_ICMP6)
		return icmp6_input(net, &in, out, now_ns);
	out->remote = in.src;
	out->local = (uint32_t)in.local;
	return ip_tcp_input(net, m, in.offset, in.length,
		ip6_pseudo(&in.src, &in.dst, NET_PROTO_TCP, in.length), out);
}
