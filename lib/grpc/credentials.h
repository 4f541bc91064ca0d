/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * TLS configuration from files. Reading files blocks: at start and on reload only.
 */

#include <stdbool.h>
#include <stddef.h>

struct rp_tls_config;

/** PEM files; NULL or "" where there is none. */
struct rp_grpc_tls_files {
	const char *cert, *key;
	const char *ca;
	const char *crl;	   /* of certificates that `ca` has taken back */
	const char *const *suites; /* see rp_tls_params */
	bool require_client_cert;
	bool skip_verify;
};

/**
 * A server's configuration, ALPN h2 and http/1.1. One reference (rp_tls_config_unref()), or NULL
 * with a text in `error` that names the file.
 */
struct rp_tls_config *rp_grpc_tls_server(
	const struct rp_grpc_tls_files *files, char *error, size_t error_size);
/** A client's, ALPN h2. */
struct rp_tls_config *rp_grpc_tls_client(
	const struct rp_grpc_tls_files *files, char *error, size_t error_size);
