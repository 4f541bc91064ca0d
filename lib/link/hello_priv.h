/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The bytes of the handshake and its MAC, without any state: preamble, hello (dialer), challenge
 * (acceptor, with its MAC), finish (dialer's MAC), verdict (acceptor). docs/protocol.md.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <base/units.h>

#define LINK_VERSION 1
#define LINK_MODE_PLAIN 0
#define LINK_MODE_TLS 1
#define LINK_NONCE_BYTES 32
#define LINK_MAC_BYTES 32
#define LINK_BINDING_BYTES 32

#define LINK_PREAMBLE_BYTES 16
#define LINK_HELLO_BYTES 88
#define LINK_CHALLENGE_BYTES 84
#define LINK_FINISH_BYTES 36
#define LINK_VERDICT_BYTES 8
#define LINK_MESSAGE_BYTES_MAX 192

enum link_message {
	LINK_MESSAGE_HELLO = 1,
	LINK_MESSAGE_CHALLENGE = 2,
	LINK_MESSAGE_FINISH = 3,
	LINK_MESSAGE_VERDICT = 4,
};

struct link_preamble {
	uint8_t version, mode, link, k;
	uint64_t node;
};

/** Everything both ends say before the finish; the MAC covers all of it. */
struct link_hello {
	uint8_t cluster_uuid[RP_UUID_BYTES];
	uint64_t dialer, acceptor;
	uint64_t dialer_boot, acceptor_boot;
	uint64_t epoch;
	uint8_t dialer_nonce[LINK_NONCE_BYTES], acceptor_nonce[LINK_NONCE_BYTES];
	uint8_t k, link, mode;
	uint8_t binding[LINK_BINDING_BYTES]; /**< of the TLS channel; zeros: plain */
};

enum link_direction {
	LINK_FROM_DIALER = 0,
	LINK_FROM_ACCEPTOR = 1,
};

void link_preamble_write(const struct link_preamble *p, uint8_t out[LINK_PREAMBLE_BYTES]);
/** False: not a preamble (its magic is wrong). An unknown version is read all the same. */
bool link_preamble_read(struct link_preamble *p, const uint8_t in[LINK_PREAMBLE_BYTES]);

void link_hello_write(const struct link_hello *h, uint8_t out[LINK_HELLO_BYTES]);
bool link_hello_read(struct link_hello *h, const uint8_t in[LINK_HELLO_BYTES]);
void link_challenge_write(const struct link_hello *h, const uint8_t mac[LINK_MAC_BYTES],
	uint8_t out[LINK_CHALLENGE_BYTES]);
/** Fills the acceptor's half of `h`; `acceptor` is what the challenge says it is. */
bool link_challenge_read(struct link_hello *h, uint64_t *acceptor, uint8_t mac[LINK_MAC_BYTES],
	const uint8_t in[LINK_CHALLENGE_BYTES]);
void link_finish_write(const uint8_t mac[LINK_MAC_BYTES], uint8_t out[LINK_FINISH_BYTES]);
bool link_finish_read(uint8_t mac[LINK_MAC_BYTES], const uint8_t in[LINK_FINISH_BYTES]);
void link_verdict_write(uint8_t refusal, uint8_t out[LINK_VERDICT_BYTES]);
bool link_verdict_read(uint8_t *refusal, const uint8_t in[LINK_VERDICT_BYTES]);

/** HMAC-SHA-256 of tag, `h`, the channel binding (zeros: plain) and the direction; false: no
 * memory. */
bool link_mac(const struct link_hello *h, enum link_direction direction, const void *key,
	size_t key_length, uint8_t mac[LINK_MAC_BYTES]);
/** In constant time. */
bool link_mac_equal(const uint8_t a[LINK_MAC_BYTES], const uint8_t b[LINK_MAC_BYTES]);
