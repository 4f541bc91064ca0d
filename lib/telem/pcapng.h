/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * pcapng blocks (draft-ietf-opsawg-pcapng), as Wireshark reads them: little-endian, Ethernet, times
 * in nanoseconds since 1970.
 *
 *   1. rp_pcapng_section(), then rp_pcapng_interface() for each interface: their ids count from 0.
 *   2. rp_pcapng_packet() for each packet, and rp_pcapng_statistics() where there is news: of
 *      several of an interface the last one counts.
 *
 * Each writes one block to `out` and returns its bytes, or 0 where `size` is too small; then
 * nothing of `out` counts. Pure.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rp_pcapng_interface {
	const char *name, *description; /**< NULL: none */
	const uint8_t *mac;		/**< six bytes; NULL: none */
	uint32_t snaplen;
};

struct rp_pcapng_packet {
	uint32_t interface;
	uint64_t wall_ns;
	const uint8_t *data;
	uint32_t captured, length; /**< bytes of `data`, bytes of the packet */
	bool sent;
};

struct rp_pcapng_statistics {
	uint32_t interface;
	uint64_t start_ns, now_ns; /**< wall clock */
	uint64_t received;	   /**< packets seen, both ways */
	uint64_t accepted;	   /**< of these, by the filter */
	uint64_t dropped;	   /**< of these, for want of room: not in the file */
};

size_t rp_pcapng_section(uint8_t *out, size_t size, const char *application);
size_t rp_pcapng_interface(uint8_t *out, size_t size, const struct rp_pcapng_interface *i);
size_t rp_pcapng_packet(uint8_t *out, size_t size, const struct rp_pcapng_packet *p);
size_t rp_pcapng_statistics(uint8_t *out, size_t size, const struct rp_pcapng_statistics *s);

/** Bytes of a packet's block beyond its `captured` ones, padding included, at most. */
#define RP_PCAPNG_PACKET_OVERHEAD 48
/** Bytes of rp_pcapng_statistics(). */
#define RP_PCAPNG_STATISTICS_BYTES 88
