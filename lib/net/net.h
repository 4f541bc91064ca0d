/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Ethernet, VLAN, ARP, IPv4, ICMP, IPv6, neighbour discovery and ICMPv6 of one port on one lcore.
 * Pure: frames, time and seeds come in, frames go out through a queue that the owner of the port
 * empties.
 *
 *   1. rp_net_create() with the interface and the pools. It announces its addresses, by gratuitous
 *      ARP and by neighbour advertisements.
 *   2. rp_net_rx() sorts a received burst: ARP, ICMP and neighbour discovery are dealt with inside,
 *      TCP segments are handed back, parsed and with their checksums verified.
 *   3. rp_net_source() gives our address towards a destination, rp_neigh_ref() the next hop, once a
 *      flow; rp_net_output_tcp() sends a packet through it, or keeps it while the address is being
 *      resolved.
 *   4. rp_net_poll() runs the timers; rp_net_next_deadline() says when it is due.
 *   5. rp_net_tx() hands out the frames that are ready.
 *
 * The TCP stack (tcp/tcp.h) owns one of these and does all of this by itself: who uses the stack
 * needs from here the configuration and the counters only.
 *
 * Every call is made on the lcore that owns the object.
 */

#include <stdbool.h>
#include <stdint.h>

#include <base/list.h>
#include <base/rand.h>
#include <base/transport.h>

struct rte_mbuf;
struct rte_mempool;
struct rp_net;
struct rp_neigh;

struct rp_net_counters {
#define X(name, text) uint64_t name;
#include <net/net_counters.def>
#undef X
};

#define RP_NET_MTU_MIN 576
#define RP_NET_MTU6_MIN 1280 /* RFC 8200 5 */
#define RP_NET_MTU_MAX 9000
/** Of one interface, both families together. */
#define RP_NET_ADDRESSES_MAX 16

/**
 * An address of either family; IPv4 is held as ::ffff:a.b.c.d. Network byte order. ::/64 holds no
 * other address that a packet could have, so that its first half tells the families apart.
 */
union rp_ip {
	uint8_t b[16];
	uint32_t w[4];
	uint64_t q[2];
};

/** Initializer of an IPv4 address. */
#define RP_IP4(a, b1, c, d)                                                                \
	{                                                                                  \
		.b = { [10] = 0xff, [11] = 0xff, [12] = a, [13] = b1, [14] = c, [15] = d } \
	}

static inline bool rp_ip_is4(const union rp_ip *ip)
{
	return ip->q[0] == 0;
}

/** Of fe80::/10: known on its link only. */
static inline bool rp_ip_is_link_local(const union rp_ip *ip)
{
	return ip->b[0] == 0xfe && (ip->b[1] & 0xc0) == 0x80;
}

static inline bool rp_ip_equal(const union rp_ip *a, const union rp_ip *b)
{
	return a->q[0] == b->q[0] && a->q[1] == b->q[1];
}

/** 4 bytes in network order. */
union rp_ip rp_ip_from4(const uint8_t addr[4]);
/** 16 bytes in network order. */
union rp_ip rp_ip_from6(const uint8_t addr[16]);
/** 0, or -EAFNOSUPPORT for an endpoint of no family, or of IPv6 in ::/64. */
int rp_ip_from_endpoint(union rp_ip *ip, const struct rp_endpoint *e);
struct rp_endpoint rp_ip_to_endpoint(const union rp_ip *ip, uint16_t port);

struct rp_net_address {
	union rp_ip ip;
	uint8_t prefix_length; /**< of its family: 0..32, 0..128 */
};

/** A neighbour that is configured: never asked, never changed by what others say. */
struct rp_net_neighbour {
	union rp_ip ip;
	uint8_t mac[6];
};

/** The interface as the layers above see it. Addresses in network byte order. */
struct rp_net_interface {
	uint8_t mac[6];
	uint16_t
		mtu; /**< bytes of an IP packet, RP_NET_MTU_MIN (with IPv6: 1280)..RP_NET_MTU_MAX */
	/**
	 * 802.1Q tag of what is sent and taken, 1..4094; then nothing else is taken. 0: untagged,
	 * and frames of any VLAN are dropped.
	 */
	uint16_t vlan;
	/**
	 * Ours: the first with an address of all zeros ends the list. Where IPv6 addresses are
	 * given and none of them is of fe80::/10, the one made from the MAC (RFC 4291, EUI-64) is
	 * added.
	 */
	struct rp_net_address addresses[RP_NET_ADDRESSES_MAX];
	union rp_ip gateway4; /**< next hop of what is in no prefix of ours; zeros: none */
	union rp_ip gateway6; /**< may be link-local; zeros: none */
	/**
	 * The device's word about received checksums (mbuf ol_flags) counts: GOOD and NONE are
	 * believed, UNKNOWN is checked in software. Off: everything is checked in software. BAD is
	 * dropped in both.
	 */
	bool rx_csum;
	bool tx_csum_ip;  /**< the device fills in the IPv4 header checksum */
	bool tx_csum_tcp; /**< the device completes the TCP checksum from the pseudo header's */
	bool tx_tso;  /**< the port cuts packets of which the mbuf has TCP_SEG set, and tso_segsz */
	uint8_t ttl;  /**< of what is sent, and hop limit (RFC 9293 MUST-49); 0 = 64 */
	uint8_t dscp; /**< differentiated services of TCP (MUST-48), 0..63 */
};

struct rp_net_config {
	struct rp_net_interface iface;
	/** Borrowed for the life of the object. Headers, ARP, ICMP; indirect mbufs. */
	struct rte_mempool *header_pool;
	/** Control packets: never used for data, so that they find a buffer. NULL: header_pool. */
	struct rte_mempool *control_pool;
	/** Room for payloads (echo replies). NULL: header_pool. */
	struct rte_mempool *payload_pool;
	uint32_t neighbours_max;	/**< 0 = 256 */
	uint32_t neighbour_pending_max; /**< packets waiting for one neighbour; 0 = 16 */
	uint32_t tx_queue_packets;	/**< power of two; 0 = 1024 */
	uint64_t neigh_reachable_ns;	/**< 0 = 30 s: then it is asked again when used */
	uint64_t neigh_retry_ns;	/**< first retry; doubles. 0 = 250 ms */
	uint32_t neigh_tries;		/**< requests before a neighbour counts as failed; 0 = 4 */
	uint32_t icmp_echo_per_s;	/**< echo replies a second; 0 = 10000 */
	/**
	 * IPv6 addresses are used one second after creation, when nobody has claimed them (RFC
	 * 4862 5.4). Off: at once.
	 */
	bool dad;
	/**
	 * Switches are told of the multicast groups of our IPv6 addresses, at the start and when a
	 * querier asks (RFC 3810).
	 */
	bool mld;
	/** Read at creation only; at most half of neighbours_max. */
	const struct rp_net_neighbour *static_neighbours;
	uint32_t static_neighbour_count;
	uint64_t seed;			  /**< jitter of refreshes */
	struct rp_net_counters *counters; /**< borrowed; NULL: kept inside */

	/**
	 * A neighbour's address was learned or has changed, or an answer came that somebody else
	 * asked for: for the copies on other lcores, whose rp_net_neigh_learn() takes these
	 * arguments. May be NULL; must not call back into the object.
	 */
	void (*on_neigh)(void *ctx, const union rp_ip *ip, const uint8_t mac[6], bool confirmed);
	/** A neighbour did not answer: called for each user that rp_neigh_ref() registered. */
	void (*on_neigh_failed)(void *ctx, struct rp_list *user, uint64_t now_ns);
	void *ctx;
};

/** NULL and errno: EINVAL for a bad configuration, ENOMEM. Copies the configuration. */
struct rp_net *rp_net_create(const struct rp_net_config *config, uint64_t now_ns);
/** Frees all that waits or is queued. NULL is fine. */
void rp_net_destroy(struct rp_net *net);

const struct rp_net_interface *rp_net_interface(const struct rp_net *net);
const struct rp_net_counters *rp_net_counters(const struct rp_net *net);

/** What each object begins with: asked each segment and each turn of the loop, without a call. */
struct rp_net_front {
	struct rte_mbuf **frames; /**< the transmit queue, a ring */
	uint32_t head, tail, mask;
	uint64_t addr_due_ns, neigh_due_ns; /**< nothing is due before; may be early */
};

/* Receive. */

enum rp_net_kind {
	RP_NET_TCP,
	RP_NET_ICMP_ERROR,
};

/** Kinds of ICMP errors, as TCP tells them apart (RFC 1122 4.2.3.9). */
enum rp_net_icmp_error {
	RP_NET_ICMP_SOFT,    /**< net or host unreachable, source route failed, time exceeded */
	RP_NET_ICMP_HARD,    /**< protocol or port unreachable, administratively prohibited */
	RP_NET_ICMP_TOO_BIG, /**< fragmentation needed: `mtu` */
};

/** What rp_net_rx() hands up. */
struct rp_net_packet {
	enum rp_net_kind kind;
	/**
	 * TCP: take; the chain holds exactly the IP packet, in segments that nobody else shares,
	 * its TCP header within the first. ICMP error: NULL.
	 */
	struct rte_mbuf *m;
	uint16_t l4_offset; /**< of the TCP header from the start of m's data */
	uint16_t l4_length; /**< TCP header and payload, bytes */
	uint8_t ecn;	    /**< TCP: the ECN field of the IP header, RP_NET_ECN_* */
	bool handed_over;   /**< another lcore received it */
	union rp_ip remote; /**< source of a segment; destination of the packet an error is about */
	uint32_t local;	    /**< index of our address, the other end */
	/* ICMP errors only (RFC 5927: the sequence number is to be checked). */
	enum rp_net_icmp_error error;
	uint16_t local_port, remote_port; /**< host byte order */
	uint32_t seq;
	uint16_t mtu;
};

/** The ECN field (RFC 3168 5). */
#define RP_NET_ECN_NONE 0
#define RP_NET_ECN_ECT1 1
#define RP_NET_ECN_ECT0 2
#define RP_NET_ECN_CE 3

/** Frames a call of rp_net_rx() takes at most. */
#define RP_NET_BURST 64

/**
 * Takes `n` <= RP_NET_BURST frames and writes what concerns the layer above to `out`, which has
 * room for n entries. Returns how many. TCP checksums are verified here.
 */
unsigned rp_net_rx(struct rp_net *net, struct rte_mbuf **frames, unsigned n,
	struct rp_net_packet *out, uint64_t now_ns);

/**
 * What rp_net_rx() of another lcore made of a TCP segment, once more: takes `m` as it gave it, with
 * l4_offset in m->l3_len. False: the address it was sent to is none of ours; dropped, counted.
 */
bool rp_net_rx_handed(struct rp_net *net, struct rte_mbuf *m, struct rp_net_packet *out);

/* Send. */

/**
 * Bytes in front of the TCP header that rp_net_output_tcp() writes. What IPv6 and VLAN need beyond
 * is taken out of the mbuf's headroom: up to RP_NET_HEADROOM_MORE.
 */
#define RP_NET_HEADROOM (14 + 20)
#define RP_NET_HEADROOM_MORE (20 + 4)
/** So many bytes of the headroom. */
static inline uint16_t rp_net_headroom_more(
	const struct rp_net_interface *iface, const union rp_ip *remote)
{
	return (uint16_t)((rp_ip_is4(remote) ? 0 : 20) + (iface->vlan ? 4 : 0));
}
/** Headers of IP and TCP without options: what an MTU has less of payload. */
static inline uint16_t rp_net_overhead(const union rp_ip *remote)
{
	return rp_ip_is4(remote) ? 40 : 60;
}
/** Frames of the transmit queue that are kept for control packets. */
#define RP_NET_TX_RESERVE 64

/**
 * The index of our address to talk to `remote` from: of the prefix that both are in, else of the
 * longest common one (RFC 1122 3.3.4.3, RFC 6724 5). -EADDRNOTAVAIL: none, or none that may be used
 * yet.
 */
int rp_net_source(const struct rp_net *net, const union rp_ip *remote);
/** The way to `remote`, of several interfaces the best one's: on its link, or by its gateway. */
enum rp_net_reach { RP_NET_UNREACHABLE, RP_NET_BY_GATEWAY, RP_NET_ON_LINK };
enum rp_net_reach rp_net_reach(const struct rp_net *net, const union rp_ip *remote);
/** Our address by its index. */
const union rp_ip *rp_net_local(const struct rp_net *net, uint32_t local);

/**
 * The next hop towards `remote`; creates and begins to resolve it where it is not known. `user` is
 * an unlinked node of the caller's, on which on_neigh_failed() reports until rp_neigh_unref(). NULL
 * and errno: ENETUNREACH (off-link, no gateway), EADDRNOTAVAIL (our own, multicast or broadcast),
 * ENOBUFS (no slot).
 */
struct rp_neigh *rp_neigh_ref(
	struct rp_net *net, const union rp_ip *remote, struct rp_list *user, uint64_t now_ns);
void rp_neigh_unref(struct rp_net *net, struct rp_neigh *neigh, struct rp_list *user);
/** The layer above saw the neighbour answer (new data acknowledged): no need to ask it. */
void rp_neigh_confirm(struct rp_net *net, struct rp_neigh *neigh, uint64_t now_ns);
/** Data gets no answer through this neighbour: ask it again, soon. */
void rp_neigh_suspect(struct rp_net *net, struct rp_neigh *neigh, uint64_t now_ns);

/**
 * A neighbour's address as another lcore's copy learned it; `confirmed`: from an answer, which is
 * worth an entry of its own. Traffic moves at once. It is not told on.
 */
void rp_net_neigh_learn(struct rp_net *net, const union rp_ip *ip, const uint8_t mac[6],
	bool confirmed, uint64_t now_ns);

/** Frames that the transmit queue takes now, less the reserve where `control` is false. */
static inline uint32_t rp_net_tx_room(const struct rp_net *net, bool control)
{
	const struct rp_net_front *f = (const struct rp_net_front *)net;
	uint32_t room = f->mask + 1 - (f->tail - f->head);

	if (control)
		return room;
	return room > RP_NET_TX_RESERVE ? room - RP_NET_TX_RESERVE : 0;
}

/** What rp_net_output_tcp() has to know of a segment. */
struct rp_net_segment {
	const union rp_ip *remote;
	uint32_t local;	     /**< index of our address */
	uint64_t sum;	     /**< raw, of the TCP header and all behind it (net/csum.h) */
	uint16_t tcp_length; /**< of the TCP header with its options */
	uint8_t ecn;	     /**< RP_NET_ECN_*, of the traffic class */
};

/**
 * Completes and sends a TCP packet. Take. `m` is the packet from its Ethernet header on: the first
 * RP_NET_HEADROOM bytes are unwritten, the TCP header follows, its checksum field zero; payload may
 * follow in further segments; the mbuf has its headroom. `sum` is used where the device makes no
 * checksums. The packet may be kept until the neighbour is resolved; what cannot be sent
 * is dropped, counted. The flow label of IPv6 is a keyed hash of addresses and ports (RFC 6437).
 */
void rp_net_output_tcp(struct rp_net *net, struct rp_neigh *neigh, struct rte_mbuf *m,
	const struct rp_net_segment *segment, uint64_t now_ns);

/**
 * What is in front of TCP in segments of one length that follow each other: made once for all. The
 * checksum of each is that of `pseudo`, the TCP header and the payload.
 */
struct rp_net_template {
	uint8_t headers[RP_NET_HEADROOM];
	uint64_t pseudo; /**< raw sum of the pseudo header */
};
/**
 * For segments of so many bytes of TCP and payload; segment->sum does not count. False: each has to
 * go by rp_net_output_tcp(), since the neighbour has to be asked, the device makes sums, there is a
 * tag, or it is IPv6.
 */
bool rp_net_template_make(struct rp_net *net, const struct rp_neigh *neigh,
	const struct rp_net_segment *segment, uint16_t length, struct rp_net_template *t);
/** Sends a packet that is complete, by a template of the same turn. Take. */
void rp_net_output_made(
	struct rp_net *net, struct rp_neigh *neigh, struct rte_mbuf *m, uint64_t now_ns);

/** True where the sum of TCP header and payload has to be given to rp_net_output_tcp(). */
bool rp_net_needs_sum(const struct rp_net *net);

/** Hands out up to `max` ready frames, in order. The caller owns them. Returns how many. */
unsigned rp_net_tx(struct rp_net *net, struct rte_mbuf **out, unsigned max);

/**
 * Each address is announced twice, two seconds apart (RFC 5227 2.3, RFC 4861 7.2.6), as at
 * creation: after a link came back.
 */
void rp_net_announce(struct rp_net *net, uint64_t now_ns);

/* Time. */

void rp_net_poll_due(struct rp_net *net, uint64_t now_ns);
static inline void rp_net_poll(struct rp_net *net, uint64_t now_ns)
{
	const struct rp_net_front *f = (const struct rp_net_front *)net;

	if (now_ns >= f->addr_due_ns || now_ns >= f->neigh_due_ns)
		rp_net_poll_due(net, now_ns);
}
/** RP_NEVER where nothing is due; a time in the past where frames wait to be taken. */
uint64_t rp_net_next_deadline(const struct rp_net *net);

/** For `show arp`: state "incomplete", "reachable", "stale", "probe", "failed" or "static". */
struct rp_neigh_info {
	union rp_ip ip;
	uint8_t mac[6];
	const char *state;
	uint32_t pending, users;
	uint64_t confirmed_ns; /**< when it was last known to be right */
};
/** Calls `cb` for each neighbour. */
void rp_net_neigh_foreach(const struct rp_net *net,
	void (*cb)(void *ctx, const struct rp_neigh_info *info), void *ctx);

/** Our addresses: state "valid", "tentative" or "duplicate". */
struct rp_net_address_info {
	union rp_ip ip;
	uint8_t prefix_length;
	const char *state;
};
void rp_net_address_foreach(const struct rp_net *net,
	void (*cb)(void *ctx, const struct rp_net_address_info *info), void *ctx);
