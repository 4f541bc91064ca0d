/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <mbedtls/ctr_drbg.h>
#include <mbedtls/entropy.h>
#include <mbedtls/pk.h>
#include <mbedtls/ssl.h>
#include <mbedtls/x509_crl.h>
#include <mbedtls/x509_crt.h>

#include <tls/tls.h>

#define TLS_SUITES_MAX 8

/* mbedtls_ssl_export_keys_ext_t; the context is the configuration. */
int tls_session_keys(void *config, const unsigned char *master, const unsigned char *keys,
	size_t mac_length, size_t key_length, size_t iv_length,
	const unsigned char client_random[32], const unsigned char server_random[32],
	mbedtls_tls_prf_types prf);

struct rp_tls_config {
	unsigned refs;
	bool server;
	bool verify; /* the peer's certificate was asked for and must be good */
	mbedtls_ssl_config ssl;
	mbedtls_x509_crt cert, ca;
	mbedtls_x509_crl crl;
	mbedtls_pk_context key;
	mbedtls_entropy_context entropy;
	mbedtls_ctr_drbg_context drbg;
	int (*entropy_fn)(void *ctx, uint8_t *out, size_t length);
	void *entropy_ctx;
	int suites[TLS_SUITES_MAX + 1];
	const char **alpn;		/* one block: pointers, then texts */
	struct rp_tls_session *shaking; /* whose handshake runs now: mbedtls tells no session */
};
