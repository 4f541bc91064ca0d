/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * One TCP stack alone on a virtual clock: bare IP packets go in, TCP packets come out. What is
 * below (Ethernet, the gateway that every packet goes to) is dealt with here. For the script runner
 * and for the packetdrill adapter.
 *
 *   1. rig_eal() once, rig_new() with a configuration; what is zero there has a default.
 *   2. rig_packet() gives the stack a packet, now. Calls of the transport are followed by
 *      rig_turn().
 *   3. rig_step() and rig_run() let time pass; each packet that leaves is shown to on_packet().
 *   4. rig_free() says what was not given back.
 */

#include <stdbool.h>
#include <stdint.h>

#include <tcp/tcp.h>

#define RIG_PACKET_MAX 65535

struct rig_config {
	struct rp_tcp_config tcp;
	uint64_t start_ns;     /**< what the clock begins with */
	uint32_t header_mbufs; /**< 0: 1023 */
	uint32_t payload_mbufs;
	uint32_t rx_mbufs;
	/** Borrows the packet, from its IP header on; its checksums were found right. */
	void (*on_packet)(void *ctx, const uint8_t *packet, uint32_t length);
	/** A packet was wrong in itself: a text, valid for the call. */
	void (*on_fault)(void *ctx, const char *what);
	void *ctx;
};

struct rig {
	struct rig_config config;
	struct rp_tcp_stack *stack;
	struct rte_mempool *header_pool, *payload_pool, *rx_pool;
	uint32_t header_free, payload_free, rx_free;
	uint64_t now_ns;
};

/** 0 or -1. `megabytes` of memory, nothing of it shared with another process. */
int rig_eal(unsigned megabytes);
/** NULL and errno. */
struct rig *rig_new(const struct rig_config *config);
/** Destroys the stack. NULL, or what is missing afterwards. */
const char *rig_free(struct rig *rig);

/** A packet for the stack, from its IP header on, then a turn. False: no buffer. */
bool rig_packet(struct rig *rig, const void *packet, uint32_t length);
/** Events and output of what is due now. */
void rig_turn(struct rig *rig);
/** To the next deadline, at most to `until_ns`. False: it stands there, nothing was due. */
bool rig_step(struct rig *rig, uint64_t until_ns);
void rig_run(struct rig *rig, uint64_t until_ns);

/** The Internet checksum of the bytes, added to `sum`, folded; it shares nothing with lib/net. */
uint32_t rig_sum(const uint8_t *p, uint32_t n, uint32_t sum);
