/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * One stack (host 0 of a simulation) against segments written by hand. What it sends is caught;
 * host 1 answers its ARP only.
 *
 *   1. wire_new(); an app on host 0 listens or dials.
 *   2. wire_send() gives it a segment, as from 10.0.0.2; then it is polled.
 *   3. wire_take() is the next segment it sent, in order; NULL: none.
 *   4. wire_wait() lets time pass; wire_free().
 */

#include "sim.h"

#define FIN 0x01
#define SYN 0x02
#define RST 0x04
#define PSH 0x08
#define ACK 0x10
#define ECE 0x40
#define CWR 0x80

#define WIRE_OUT_MAX 512

struct wire_out {
	uint64_t now_ns;
	uint32_t seq, ack, length;
	uint8_t flags, ecn;
	uint16_t window;
	/* Options. */
	bool has_mss, has_shift, has_sack, has_ts;
	uint16_t mss;
	uint8_t shift;
	uint32_t ts_value, ts_echo;
	unsigned blocks;
	uint32_t block[4][2];
	uint8_t data[9000];
};

struct wire {
	struct sim *sim;
	struct app app;
	uint16_t local_port, remote_port; /* of the stack, of us */
	uint32_t iss, irs;		  /* ours, the stack's, after wire_accept() */
	uint32_t ts;			  /* our next timestamp; 0: none is sent */
	struct wire_out *out;
	unsigned out_count, out_next;
	uint8_t arp_done;
};

struct wire_segment {
	uint8_t flags;
	uint32_t seq, ack;
	uint16_t window;
	const void *data;
	uint32_t length;
	const uint8_t *options;
	unsigned options_length; /* multiple of 4 */
	bool bad_checksum;
	uint8_t ecn; /* of the IP header */
};

struct wire *wire_new(const struct sim_config *config);
void wire_free(struct wire *w);
void wire_send(struct wire *w, const struct wire_segment *s);
/** A plain one: flags, sequence numbers relative to ours and the stack's initial ones. */
void wire_put(struct wire *w, uint8_t flags, uint32_t seq, uint32_t ack, const void *data,
	uint32_t length);
/** Raw IPv4 or IPv6 packet. */
void wire_ip(struct wire *w, const void *packet, uint32_t length);
/**
 * An ICMP error about a segment of the stack's with this sequence number: type and code of ICMP,
 * which for IPv6 are translated; `mtu` where it says one.
 */
void wire_icmp(struct wire *w, uint8_t type, uint8_t code, uint16_t mtu, uint32_t seq);
struct wire_out *wire_take(struct wire *w);
/** Nothing more was sent. */
void wire_none(struct wire *w);
/** Takes the next one and checks flags and numbers, relative as in wire_put(). */
struct wire_out *wire_expect(
	struct wire *w, uint8_t flags, uint32_t seq, uint32_t ack, uint32_t length);
void wire_wait(struct wire *w, uint64_t ns);
/** The app listens on port 80 and we connect: MSS, and with `rich` timestamps, SACK, scale 7. */
void wire_accept(struct wire *w, bool rich);
