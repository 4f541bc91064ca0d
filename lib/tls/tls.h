/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * TLS 1.2 by mbedtls over memory buffers: bytes in, bytes out, no socket. For gRPC connections and
 * for links.
 *
 *   1. rp_tls_config_new() from PEM texts; one object serves any number of sessions.
 *   2. rp_tls_session_new() per connection.
 *   3. rp_tls_feed() what came from the network; rp_tls_read() the plain bytes, until -EAGAIN.
 *   4. rp_tls_write() plain bytes; rp_tls_pending() and rp_tls_sent() move what is to go out.
 *      Reading drives the handshake: after feed and read there may be something to send.
 *   5. Reload: make a new configuration and use it for new sessions; unref the old one. Sessions
 *      hold a reference to the one they began with.
 *
 * Suites: ECDHE with AES-GCM or CHACHA20-POLY1305, TLS 1.2 only, no renegotiation (spec page
 * etcd-semantics, 12.4; RFC 9113, 9.2). One thread at a time per configuration and its sessions.
 * Memory is allocated at creation and by mbedtls while shaking hands; a session's own buffers are
 * bounded by RP_TLS_IN_BYTES and by what rp_tls_write() was given.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <base/units.h>

struct rp_tls_config;
struct rp_tls_session;

/** Ciphertext a session holds undecrypted at most: one record and its header, and then some. */
#define RP_TLS_IN_BYTES (32u << 10)
/** Most plain bytes of one record. */
#define RP_TLS_RECORD_BYTES (16u << 10)

struct rp_tls_params {
	bool server;
	/** PEM; certificate chain and key. A client may have none. Borrowed for the call. */
	struct rp_span cert, key;
	/** PEM of the authorities that the other side's certificate must come from. */
	struct rp_span ca;
	/** PEM or DER of certificates of `ca` that are not good any more; may be empty. */
	struct rp_span crl;
	/** Server: the client must show a certificate of `ca`. Without it one is not asked for. */
	bool require_peer_cert;
	/** Client: accept any certificate (etcdctl's --insecure-skip-tls-verify). */
	bool skip_verify;
	/** Protocol names in order of preference, NULL-terminated; NULL: no ALPN. Copied. */
	const char *const *alpn;
	/** Names of suites (IANA's), NULL-terminated, of those above; NULL: all of them. */
	const char *const *suites;
	/** Source of entropy, 0 on success; NULL: the system's. */
	int (*entropy)(void *ctx, uint8_t *out, size_t length);
	void *entropy_ctx;
};

/** One reference. NULL, and a text in `error`, when a PEM does not parse or key and cert differ. */
struct rp_tls_config *rp_tls_config_new(
	const struct rp_tls_params *params, char *error, size_t error_size);
struct rp_tls_config *rp_tls_config_ref(struct rp_tls_config *config);
/** unref(NULL) is fine. */
void rp_tls_config_unref(struct rp_tls_config *config);

/**
 * Takes a reference to `config`. For a client, what the peer's certificate must carry:
 * `server_name`, a DNS name that is also sent as SNI, or NULL; `server_address`, 4 or 16 bytes of
 * an IP address, or empty. NULL and errno.
 */
struct rp_tls_session *rp_tls_session_new(
	struct rp_tls_config *config, const char *server_name, struct rp_span server_address);
void rp_tls_session_destroy(struct rp_tls_session *session);

/** Copies ciphertext in; returns how much was taken (less when the buffer is full: read first). */
size_t rp_tls_feed(struct rp_tls_session *session, const void *data, size_t length);
/**
 * Plain bytes, also drives the handshake. > 0: bytes; -EAGAIN: feed more; 0: the peer closed
 * (close_notify); -EPROTO, -EACCES (certificate): failed, see rp_tls_error(); an alert may be
 * pending.
 */
ssize_t rp_tls_read(struct rp_tls_session *session, void *out, size_t size);
/** Encrypts; > 0: plain bytes taken (whole records); -EAGAIN while shaking hands; -EPROTO, -ENOMEM.
 */
ssize_t rp_tls_write(struct rp_tls_session *session, const void *data, size_t length);
/** Sends close_notify into the pending bytes. */
void rp_tls_close(struct rp_tls_session *session);
/** Ciphertext to be sent, borrowed until the next call of any function of the session. */
struct rp_span rp_tls_pending(const struct rp_tls_session *session);
/** The first `length` bytes of pending are sent. */
void rp_tls_sent(struct rp_tls_session *session, size_t length);

/** The handshake is complete. */
bool rp_tls_open(const struct rp_tls_session *session);
/** Protocol agreed on, NULL without. */
const char *rp_tls_alpn(const struct rp_tls_session *session);
/** Common name of the verified peer certificate, NULL without one; borrowed. */
const char *rp_tls_peer_cn(const struct rp_tls_session *session);
/** "TLS-ECDHE-..." once open. */
const char *rp_tls_suite(const struct rp_tls_session *session);
#define RP_TLS_BINDING_BYTES 32
/**
 * What only the two ends of this connection know (RFC 9266, the exporter with the label
 * "EXPORTER-Channel-Binding"), once open. False: not open, or there is none.
 */
bool rp_tls_binding(const struct rp_tls_session *session, uint8_t out[RP_TLS_BINDING_BYTES]);
/** Why it failed, "" while it has not. */
const char *rp_tls_error(const struct rp_tls_session *session);
