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
#define NET_ETHERTYPE_IP4 0x0800
#define NET_ETHERTYPE_ARP 0x0806
#define NET_PROTO_ICMP 1
#define NET_PROTO_TCP 6
#define NET_TTL 64

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

struct rp_net {
	struct rp_net_interface iface;
	uint32_t addr, mask, gateway; /* network order */
	struct rte_mempool *header_pool, *control_pool, *payload_pool;
	struct rp_net_counters *counters;

	struct rte_mbuf **txq;
	uint32_t tx_head, tx_tail, tx_mask;

	struct rp_neigh *neighs;
	struct rte_mbuf **pending_slots;
	uint16_t *hash; /* index + 1 */
	uint32_t hash_mask;
	uint16_t neigh_free;
	uint64_t deadline_ns; /* no neighbour is due before; may be early */

	uint8_t announce_left;
	uint64_t announce_ns;
	uint64_t echo_tokens_ns; /* token bucket: the time up to which tokens are used */
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

static inline union rp_ip net_ip_from32(uint32_t addr)
{
	return (union rp_ip){.w = {0, 0, rte_cpu_to_be_32(0xffff), addr}};
}

/* net.c */

/** Queues a finished frame; take. False: full, dropped and counted. */
bool net_tx_push(struct rp_net *net, struct rte_mbuf *m, bool control);
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

/* neigh.c */

int neigh_table_init(struct rp_net *net);
void neigh_table_free(struct rp_net *net);
/** The entry of a next hop (not of a destination), or NULL. */
struct rp_neigh *neigh_find(struct rp_net *net, const union rp_ip *ip);
/** The next hop's entry towards `remote`, made where there is none. NULL and errno. */
struct rp_neigh *neigh_towards(struct rp_net *net, const union rp_ip *remote, uint64_t now_ns);
/**
 * What an ARP packet said. `solicited`: it answers us. `create`: worth an entry where there is
 * none.
 */
void neigh_learn(struct rp_net *net, const union rp_ip *ip, const uint8_t mac[6], bool solicited,
	bool create, uint64_t now_ns);
/** Sends `m`, complete but for the Ethernet header's content, or keeps it. Take. */
void neigh_output(
	struct rp_net *net, struct rp_neigh *n, struct rte_mbuf *m, bool control, uint64_t now_ns);
void neigh_poll(struct rp_net *net, uint64_t now_ns);
/** Is the address in our subnet, neither its network nor its broadcast address? */
bool neigh_on_link(const struct rp_net *net, uint32_t addr);

/* arp.c */

void arp_input(struct rp_net *net, struct rte_mbuf *m, uint64_t now_ns);
/** Broadcast where `mac` is NULL. */
void arp_request(struct rp_net *net, uint32_t target, const uint8_t *mac);
void arp_announce(struct rp_net *net);

/* ip.c */

/** Takes an IPv4 frame. True: *out is for the layer above. */
bool ip_input(struct rp_net *net, struct rte_mbuf *m, struct rp_net_packet *out, uint64_t now_ns);
/** Writes a header without options, its checksum made unless the device does. */
void ip_fill(struct rp_net *net, struct net_ip4 *ip, uint8_t protocol, uint8_t ecn, uint32_t dst,
	uint16_t total_length);

/* icmp.c */

/** m: the IP packet, its header verified, the ICMP part `length` bytes from `offset`. */
bool icmp_input(struct rp_net *net, struct rte_mbuf *m, uint16_t offset, uint16_t length,
	uint32_t src, struct rp_net_packet *out, uint64_t now_ns);
