/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <string.h>

#include <rte_byteorder.h>
#include <rte_mbuf.h>

#include <base/mbuf.h>
#include <base/units.h>
#include <net/csum.h>
#include <net/net.h>

#define NET_ETH_BYTES 14
#define NET_TAG_BYTES 4
#define NET_ETHERTYPE_IP4 0x0800
#define NET_ETHERTYPE_ARP 0x0806
#define NET_ETHERTYPE_VLAN 0x8100
#define NET_ETHERTYPE_IP6 0x86dd
#define NET_PROTO_ICMP 1
#define NET_PROTO_TCP 6
#define NET_PROTO_ICMP6 58
#define NET_TTL_DEFAULT 64
#define NET_IP_DF 0x4000
#define NET_SOURCES_BITS 7

struct net_eth {
	uint8_t dst[6], src[6];
	uint16_t type; /* network order */
} __attribute__((packed, aligned(2)));

struct net_ip4 {
	uint8_t version_ihl, tos;
	uint16_t total_length, id, fragment;
	uint8_t ttl, protocol;
	uint16_t checksum;
	uint8_t src[4], dst[4];
} __attribute__((packed, aligned(2)));

struct net_ip6 {
	uint32_t version_class_label;
	uint16_t payload_length;
	uint8_t next_header, hop_limit;
	uint8_t src[16], dst[16];
} __attribute__((packed, aligned(2)));

struct net_arp {
	uint16_t hardware, protocol;
	uint8_t hardware_length, protocol_length;
	uint16_t operation;
	uint8_t sender_mac[6], sender_ip[4], target_mac[6], target_ip[4];
} __attribute__((packed, aligned(2)));

struct net_icmp {
	uint8_t type, code;
	uint16_t checksum;
	uint8_t rest[4];
} __attribute__((packed, aligned(2)));

#define NEIGH_STATES(X)                                 \
	/* no entry */                                  \
	X(FREE, "free")                                 \
	/* asked by broadcast; packets wait */          \
	X(INCOMPLETE, "incomplete")                     \
	/* known to be right a moment ago */            \
	X(REACHABLE, "reachable")                       \
	/* right once; the next use asks again */       \
	X(STALE, "stale")                               \
	/* in use while it is asked again by unicast */ \
	X(PROBE, "probe")                               \
	/* did not answer; the next use starts over */  \
	X(FAILED, "failed")

enum neigh_state {
#define X(name, text) NEIGH_##name,
	NEIGH_STATES(X)
#undef X
};

struct rp_neigh {
	struct net_eth eth; /* ready to be copied in front of a packet */
	uint8_t state;
	bool fixed; /* configured */
	uint8_t tries;
	uint16_t next; /* of the hash chain or the free list, index + 1; 0 ends it */
	uint16_t pending_count;
	uint16_t pending_first; /* ring of neighbour_pending_max */
	uint32_t user_count;
	union rp_ip ip;
	uint64_t deadline_ns, confirmed_ns, used_ns;
	struct rp_list users;
	struct rte_mbuf **pending;
};

enum net_addr_state { NET_ADDR_VALID, NET_ADDR_TENTATIVE, NET_ADDR_DUPLICATE };

/** An address of ours. */
struct net_addr {
	union rp_ip ip;
	uint64_t mask[2];      /* of the prefix; IPv4: of ::ffff:a.b.c.d */
	uint8_t prefix_length; /* of its family */
	uint8_t state, announces;
	uint64_t due_ns; /* of the next announcement, or the end of its being tentative */
} __attribute__((aligned(64)));

struct rp_net {
	struct rp_net_front front;
	struct rp_net_interface iface;
	uint32_t addr; /* the first IPv4 address, index 0; 0: there is none. Network order */
	uint32_t addr_count, addr4_count; /* IPv4 comes first */
	bool plain4;			  /* there is an IPv4 address, and no tag is expected */
	struct net_addr addrs[RP_NET_ADDRESSES_MAX + 1];
	uint64_t label_secret;
	/* Senders of TCP packets, by a hash of their IPv4 address: they are no address of ours, no
	 * broadcast and no group. */
	uint32_t sources[1 << NET_SOURCES_BITS];
	uint64_t mld_due_ns; /* of the next report of groups */
	uint8_t mld_unsolicited;
	struct rte_mempool *header_pool, *control_pool, *payload_pool;
	struct rp_net_counters *counters;

	struct rp_neigh *neighs;
	struct rte_mbuf **pending_slots;
	uint16_t *hash; /* index + 1 */
	uint32_t hash_mask;
	uint16_t neigh_free;

	/* Token buckets: the time up to which tokens are used. */
	uint64_t echo_tokens_ns, tell_tokens_ns;
	struct rp_rand rand;
	struct rp_net_config config;
	struct rp_net_counters own_counters;
};

static inline uint32_t net_load32(const uint8_t *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

static inline void net_store32(uint8_t *p, uint32_t v)
{
	memcpy(p, &v, sizeof(v));
}

/** The IPv4 address in `ip`, network order. */
static inline uint32_t net_ip4_of(const union rp_ip *ip)
{
	return ip->w[3];
}

/** The addresses of a header of IPv6, which may lie at any even place. */
static inline union rp_ip net_ip_from_bytes(const uint8_t *p)
{
	union rp_ip ip;

	memcpy(&ip, p, sizeof(ip));
	return ip;
}

static inline bool net_is_multicast6(const union rp_ip *ip)
{
	return ip->b[0] == 0xff;
}

static inline bool net_in_prefix(const struct net_addr *a, const union rp_ip *ip)
{
	return !((a->ip.q[0] ^ ip->q[0]) & a->mask[0]) && !((a->ip.q[1] ^ ip->q[1]) & a->mask[1]);
}

static inline union rp_ip net_ip_from32(uint32_t addr)
{
	return (union rp_ip){.w = {0, 0, rte_cpu_to_be_32(0xffff), addr}};
}

/* net.c */

/** Queues a finished frame; take. False: full, dropped and counted. */
static inline bool net_tx_push(struct rp_net *net, struct rte_mbuf *m, bool control)
{
	if (__builtin_expect(rp_net_tx_room(net, control) == 0, 0)) {
		net->counters->drop_tx_full++;
		rte_pktmbuf_free(m);
		return false;
	}
	net->counters->tx_packets++;
	net->counters->tx_bytes += m->pkt_len;
	net->front.frames[net->front.tail++ & net->front.mask] = m;
	return true;
}
/** The same for a frame with its Ethernet header, which gets the tag: ARP, neighbour discovery. */
bool net_tx_own(struct rp_net *net, struct rte_mbuf *m);
/** Room for the tag in front, where there is one; before the packet may have to wait. */
static inline void net_tag_room(const struct rp_net *net, struct rte_mbuf *m)
{
	if (__builtin_expect(net->iface.vlan, 0)) {
		rte_pktmbuf_prepend(m, NET_TAG_BYTES);
		if (m->l2_len)
			m->l2_len += NET_TAG_BYTES;
	}
}
/** Writes Ethernet header and tag. */
static inline void net_link_header(
	const struct rp_net *net, struct rte_mbuf *m, const struct net_eth *eth)
{
	uint8_t *p = rte_pktmbuf_mtod(m, uint8_t *);

	memcpy(p, eth, NET_ETH_BYTES);
	if (__builtin_expect(net->iface.vlan, 0)) {
		net_store32(p + 12,
			rte_cpu_to_be_32((uint32_t)NET_ETHERTYPE_VLAN << 16 | net->iface.vlan));
		memcpy(p + 16, &eth->type, 2);
	}
}
/** A control mbuf with `length` bytes appended and room in front, or NULL, counted. */
struct rte_mbuf *net_alloc_control(struct rp_net *net, uint16_t length);
struct rte_mbuf *net_pull_chain(struct rp_net *net, struct rte_mbuf *m, uint32_t length);
/** Makes the first `length` bytes lie in the first segment. NULL: freed and counted. */
static inline struct rte_mbuf *net_pull(struct rp_net *net, struct rte_mbuf *m, uint32_t length)
{
	return __builtin_expect(m->data_len >= length, 1) ? m : net_pull_chain(net, m, length);
}
/** Cuts the chain behind `length` bytes; `length` is at most what it has and not 0. */
void net_trim_to(struct rte_mbuf *m, uint32_t length);

/* addr.c */

/** Takes the addresses out of net->iface. False: one is wrong, or there is none. */
bool net_addrs_init(struct rp_net *net);
/** Begins to announce, or to watch for duplicates. */
void net_addrs_start(struct rp_net *net, uint64_t now_ns);
void net_addrs_poll(struct rp_net *net, uint64_t now_ns);
/** Sets addr_due_ns anew. */
void net_addrs_due(struct rp_net *net);
/** Its index, whatever its state; -1: not ours. */
int net_addr_find(const struct rp_net *net, const union rp_ip *ip);
/** All nodes, or solicited node of an address of ours: a group that we are in. */
bool net_in_group(const struct rp_net *net, const union rp_ip *ip);
union rp_ip net_solicited_node(const union rp_ip *ip);
/** In a prefix of ours, and an address that a host can have. */
bool net_on_link(const struct rp_net *net, const union rp_ip *ip);
/** RFC 1122 3.3.1, RFC 4861 5.2. 0, -EADDRNOTAVAIL or -ENETUNREACH. */
int net_next_hop(const struct rp_net *net, const union rp_ip *remote, union rp_ip *hop);

/* neigh.c */

int neigh_table_init(struct rp_net *net);
void neigh_table_free(struct rp_net *net);
/** The entry of a next hop (not of a destination), or NULL. */
struct rp_neigh *neigh_find(struct rp_net *net, const union rp_ip *ip);
/** The next hop's entry towards `remote`, made where there is none. NULL and errno. */
struct rp_neigh *neigh_towards(struct rp_net *net, const union rp_ip *remote, uint64_t now_ns);
/** What an ARP packet or a message of neighbour discovery said. */
struct neigh_news {
	const union rp_ip *ip;
	const uint8_t *mac; /* NULL: it did not say */
	bool solicited;	    /* it answers somebody here */
	bool override;	    /* it counts against what is known (RFC 4861 7.2.5) */
	bool create;	    /* worth an entry where there is none */
	bool announced;	    /* said to all: of interest to other lcores where there is none here */
};
void neigh_learn(struct rp_net *net, const struct neigh_news *news, uint64_t now_ns);
/** Configured ones. -ENOSPC, -EINVAL. */
int neigh_set_static(struct rp_net *net, const struct rp_net_neighbour *neighbour);
/** The neighbour's address is not known for certain: asks for it. True: m (take) waits for it. */
bool neigh_unsure(struct rp_net *net, struct rp_neigh *n, struct rte_mbuf *m, uint64_t now_ns);
/** Sends `m`, complete but for the Ethernet header's content, or keeps it. Take. */
static inline void neigh_output(
	struct rp_net *net, struct rp_neigh *n, struct rte_mbuf *m, bool control, uint64_t now_ns)
{
	net_tag_room(net, m);
	if (__builtin_expect(n->state != NEIGH_REACHABLE, 0) && neigh_unsure(net, n, m, now_ns))
		return;
	n->used_ns = now_ns;
	net_link_header(net, m, &n->eth);
	net_tx_push(net, m, control);
}
void neigh_poll(struct rp_net *net, uint64_t now_ns);

/* arp.c */

void arp_input(struct rp_net *net, struct rte_mbuf *m, uint64_t now_ns);
/** Broadcast where `mac` is NULL. */
void arp_request(struct rp_net *net, const union rp_ip *target, const uint8_t *mac);
void arp_announce(struct rp_net *net, const union rp_ip *ip);

/* ip.c */

/** Takes an IPv4 frame. True: *out is for the layer above. */
bool ip_input(struct rp_net *net, struct rte_mbuf *m, struct rp_net_packet *out, uint64_t now_ns);
/** The same of one mbuf, nobody else's, that holds both headers. */
bool ip_input_plain(
	struct rp_net *net, struct rte_mbuf *m, struct rp_net_packet *out, uint64_t now_ns);
/**
 * Writes a header without options, its checksum made unless the device does. Whole words are
 * stored, and the sum is made of values: reading back what was just written in other sizes would
 * wait for the stores.
 */
static inline void ip_fill(const struct rp_net *net, struct net_ip4 *ip, uint8_t protocol,
	uint8_t tos, uint32_t src, uint32_t dst, uint16_t total_length)
{
	/* DF is set, so the identification may be anything (RFC 6864 4.1). */
	uint32_t first = rte_cpu_to_be_32(0x45u << 24 | (uint32_t)tos << 16 | total_length);
	uint32_t second = RTE_BE32(NET_IP_DF);
	uint32_t third =
		rte_cpu_to_be_32((uint32_t)net->iface.ttl << 24 | (uint32_t)protocol << 16);
	uint64_t sum = (uint64_t)first + second + third + src + dst;
	uint8_t *p = (uint8_t *)ip;

	net_store32(p, first);
	net_store32(p + 4, second);
	net_store32(p + 8, third);
	net_store32(p + 12, src);
	net_store32(p + 16, dst);
	if (!net->iface.tx_csum_ip)
		ip->checksum = (uint16_t)~rp_csum_fold(sum);
}
/**
 * The checks of a TCP header that IPv4 and IPv6 share. m begins with the IP header; the TCP part is
 * `length` bytes from `offset`. Take; true: *out has it. `pseudo`: sum of the pseudo header.
 */
bool ip_tcp_input(struct rp_net *net, struct rte_mbuf *m, uint16_t offset, uint16_t length,
	uint64_t pseudo, struct rp_net_packet *out);

/* icmp.c */

/** m: the IP packet, its header verified, the ICMP part `length` bytes from `offset`. */
bool icmp_input(struct rp_net *net, struct rte_mbuf *m, uint16_t offset, uint16_t length,
	uint32_t local, uint32_t src, struct rp_net_packet *out, uint64_t now_ns);
/** May one more echo be answered now? */
bool icmp_echo_allowed(struct rp_net *net, uint64_t now_ns);
/** The echo reply's headers are in h: appends the request's data, which begins at `from` in m. */
void icmp_echo_data(struct rte_mbuf *h, struct rte_mbuf *m, uint32_t from);
/** Addresses aside, what an ICMP error says of the TCP segment that it quotes from byte l4. */
void icmp_quoted(const uint8_t l4[8], struct rp_net_packet *out);

/* ip6.c */

#define NET_IP6_BYTES sizeof(struct net_ip6)

/** Takes an IPv6 frame, whose sender's hardware address is `mac`. */
bool ip6_input(struct rp_net *net, struct rte_mbuf *m, const uint8_t mac[6],
	struct rp_net_packet *out, uint64_t now_ns);
/** What an IPv6 header says beyond addresses and length. */
struct ip6_meta {
	uint8_t next_header, hop_limit, traffic_class;
	uint32_t flow_label;
};
void ip6_fill(struct net_ip6 *ip, const struct ip6_meta *meta, const union rp_ip *src,
	const union rp_ip *dst, uint16_t payload_length);
/** Sum of the pseudo header (RFC 8200 8.1). */
uint64_t ip6_pseudo(
	const union rp_ip *src, const union rp_ip *dst, uint8_t next_header, uint16_t length);

/* icmp6.c */

/** A received ICMPv6 message: where it is and what the headers around it said. */
struct icmp6_in {
	struct rte_mbuf *m; /* begins with the IP header */
	uint16_t offset, length;
	uint8_t hop_limit;
	union rp_ip src, dst;
	int local;	    /* index of dst; -1: a multicast group */
	bool from_us;	    /* src is an address of ours: somebody else may claim it */
	const uint8_t *mac; /* who sent the frame */
};
/** Takes in->m. True: *out is for the layer above. */
bool icmp6_input(
	struct rp_net *net, struct icmp6_in *in, struct rp_net_packet *out, uint64_t now_ns);
/**
 * A control mbuf with Ethernet and IPv6 headers for an ICMPv6 message of `length` bytes, which is
 * at *message, all zeros. NULL: none. To be finished by icmp6_send().
 */
struct rte_mbuf *icmp6_new(struct rp_net *net, const union rp_ip *src, const union rp_ip *dst,
	uint16_t length, uint8_t **message);
/** Makes the checksum and sends to a hardware address; NULL: to that of the group dst. */
void icmp6_send(struct rp_net *net, struct rte_mbuf *m, const uint8_t *mac);

/* nd.c */

void nd_input(struct rp_net *net, const struct icmp6_in *in, uint8_t type, uint64_t now_ns);
/** By multicast where `mac` is NULL. */
void nd_solicit(struct rp_net *net, const union rp_ip *target, const uint8_t *mac);
/** Is anybody else `ip`? (RFC 4862 5.4.2) */
void nd_probe(struct rp_net *net, const union rp_ip *ip);
void nd_announce(struct rp_net *net, const union rp_ip *ip);

/* mld.c */

void mld_start(struct rp_net *net, uint64_t now_ns);
/** Sends what is due. */
void mld_poll(struct rp_net *net, uint64_t now_ns);
void mld_query(struct rp_net *net, const struct icmp6_in *in, uint64_t now_ns);
