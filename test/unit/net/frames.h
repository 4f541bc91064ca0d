/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A network layer with one pool, and frames by hand, for the tests of this folder. */

#include <rte_mbuf.h>

#include <base/mbuf.h>
#include <net/net_priv.h>

struct bench {
	struct rte_mempool *pool;
	struct rp_net_config config;
	uint8_t ecn; /* of what bench_output() sends */
	struct rp_net_counters counters;
	struct rp_net *net;
	uint64_t now_ns;
	unsigned failed, learned; /* calls of on_neigh_failed, on_neigh */
};

extern const uint8_t our_mac[6], peer_mac[6];
extern const uint8_t our_ip[4], peer_ip[4];

int bench_eal(void);
/** 10.0.0.1/24, gateway 10.0.0.254; the announcement is taken out of the queue already. */
void bench_start(struct bench *b);
/** Applies b->config again, with the pool. */
void bench_restart(struct bench *b);
/** Checks that no mbuf is missing. */
void bench_end(struct bench *b);
/** Gives it a frame cut into mbufs of `piece` bytes (0: one); true: *out is set. */
bool bench_rx(struct bench *b, const uint8_t *frame, uint32_t n, uint32_t piece,
	struct rp_net_packet *out);
/** The next frame sent, linear in `out`; its length, or 0. */
uint32_t bench_tx(struct bench *b, uint8_t *out);

/** Each returns the length of the frame. `mac`: the sender's. */
uint32_t frame_arp(uint8_t *f, uint16_t operation, const uint8_t *mac, const uint8_t *sender,
	const uint8_t *target);
uint32_t frame_ip(uint8_t *f, uint8_t protocol, const void *payload, uint32_t n);
uint32_t frame_tcp(uint8_t *f, uint32_t payload);
/** Makes the IP header's and the TCP or ICMP checksum right. */
void frame_seal(uint8_t *f);
/* IPv6: fd00::1/64 and fe80::1/64 are ours, fd00::2 the peer. */

extern const union rp_ip our_ip6, our_local6, peer_ip6;
union rp_ip ip6_of(const char *text);
/** Adds our IPv6 addresses to a bench and starts it anew; announcements are taken out. */
void bench_start6(struct bench *b);
/** An IPv6 packet from the peer to us. */
uint32_t frame_ip6(uint8_t *f, uint8_t next_header, const void *payload, uint32_t n);
/** With other addresses, hop limit 255, as ICMPv6 has it; the checksum is made. */
uint32_t frame_icmp6(uint8_t *f, const union rp_ip *src, const union rp_ip *dst,
	const void *message, uint32_t n);
/** Makes the checksum of TCP or ICMPv6 that is `offset` behind the IPv6 header. */
void frame_seal6(uint8_t *f, uint32_t offset, uint8_t protocol);
/** A solicitation or an advertisement with an option of the sender's address, unless NULL. */
uint32_t frame_nd(uint8_t *f, uint8_t type, uint8_t flags, const union rp_ip *src,
	const union rp_ip *dst, const union rp_ip *target, const uint8_t *mac);

/** Sends a packet of bench_packet(). */
void bench_output(struct bench *b, struct rp_neigh *n, struct rte_mbuf *m,
	const union rp_ip *remote, uint32_t sum);
/** A TCP packet of ours, ready for rp_net_output_tcp(), with `payload` bytes behind in a second
 * mbuf. */
struct rte_mbuf *bench_packet(struct bench *b, uint32_t payload, uint16_t *sum);
