/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Segments as they are on the wire, and as they came in. */

#include <stdbool.h>
#include <stdint.h>

struct rte_mbuf;

#define TCP_FIN 0x01
#define TCP_SYN 0x02
#define TCP_RST 0x04
#define TCP_PSH 0x08
#define TCP_ACK 0x10
#define TCP_URG 0x20
#define TCP_ECE 0x40
#define TCP_CWR 0x80

#define TCP_HEADER_BYTES 20
#define TCP_OPTIONS_MAX 40
#define TCP_TS_BYTES 12 /* with its padding */
#define TCP_SACK_BLOCKS_MAX 4
#define TCP_SHIFT_MAX 14 /* RFC 7323 2.3 */

/* Of an outgoing packet, without options: Ethernet and IP are filled in by the network layer. */
#define TCP_OUT_HEADERS (RP_NET_HEADROOM + TCP_HEADER_BYTES)

struct tcp_header {
	uint16_t src_port, dst_port;
	uint32_t seq, ack;
	uint8_t offset, flags; /* offset: in the high half, in words */
	uint16_t window, checksum, urgent;
} __attribute__((packed, aligned(2)));

struct tcp_range {
	uint32_t start, end; /* end is behind the last byte */
};

struct tcp_options {
	bool has_mss, has_shift, has_sack_permitted, has_ts;
	uint8_t shift, sack_count;
	uint16_t mss;
	uint32_t ts_value, ts_echo;
	struct tcp_range sack[TCP_SACK_BLOCKS_MAX];
};

/** A segment as it came in. */
struct tcp_segment_in {
	struct rte_mbuf *m;    /* the IP packet; NULL once somebody took it */
	uint16_t header_bytes; /* of IP and TCP: the payload begins there */
	uint8_t flags;
	uint8_t ecn;		   /* of the IP header, RP_NET_ECN_* */
	uint16_t window;	   /* as on the wire */
	uint32_t seq, ack, length; /* length: of the payload that is left after trimming */
	struct tcp_options opt;
};

static inline uint32_t tcp_seg_in_end(const struct tcp_segment_in *in)
{
	return in->seq + in->length + ((in->flags & TCP_SYN) != 0) + ((in->flags & TCP_FIN) != 0);
}
