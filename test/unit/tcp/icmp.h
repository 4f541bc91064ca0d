/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* ICMP errors about segments that the stack of a struct wire sent. */

#include <string.h>

#include "wire.h"

#define ICMP_UNREACHABLE 3
#define ICMP_QUENCH 4
#define ICMP_TIME_EXCEEDED 11

static inline uint32_t icmp_sum(const uint8_t *p, unsigned n)
{
	uint32_t sum = 0;

	for (unsigned i = 0; i < n; i += 2)
		sum += (uint32_t)p[i] << 8 | p[i + 1];
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return ~sum & 0xffff;
}

/** From 10.0.0.2: an error that quotes a segment of ours with sequence number `seq`. */
static inline void wire_icmp(struct wire *w, uint8_t type, uint8_t code, uint16_t mtu, uint32_t seq)
{
	uint8_t p[56] = {0x45, 0, 0, 56, 0, 0, 0, 0, 64, 1, 0, 0, 10, 0, 0, 2, 10, 0, 0, 1, type,
		code, 0, 0, 0, 0, (uint8_t)(mtu >> 8), (uint8_t)mtu, 0x45, 0, 0, 40, 0, 0, 0x40, 0,
		64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2};
	uint32_t sum;

	p[48] = (uint8_t)(w->local_port >> 8);
	p[49] = (uint8_t)w->local_port;
	p[50] = (uint8_t)(w->remote_port >> 8);
	p[51] = (uint8_t)w->remote_port;
	for (unsigned i = 0; i < 4; i++)
		p[52 + i] = (uint8_t)(seq >> (24 - 8 * i));
	sum = icmp_sum(p, 20);
	p[10] = (uint8_t)(sum >> 8);
	p[11] = (uint8_t)sum;
	sum = icmp_sum(p + 20, 36);
	p[22] = (uint8_t)(sum >> 8);
	p[23] = (uint8_t)sum;
	wire_ip(w, p, sizeof(p));
}
