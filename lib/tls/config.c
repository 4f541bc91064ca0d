/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <mbedtls/error.h>

#include <base/assert.h>
#include <base/bytes.h>
#include "tls_priv.h"

/* What RFC 9113 leaves of TLS 1.2: ephemeral key exchange with an AEAD. */
static const int config_suites[] = {
	MBEDTLS_TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
	MBEDTLS_TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
	MBEDTLS_TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
	MBEDTLS_TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
	MBEDTLS_TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
	MBEDTLS_TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
	0,
};

static int config_entropy(void *ctx, unsigned char *out, size_t length)
{
	struct rp_tls_config *c = ctx;

	return c->entropy_fn(c->entropy_ctx, out, length) == 0 ? 0
							       : MBEDTLS_ERR_ENTROPY_SOURCE_FAILED;
}

/* Joins "what: why" into the caller's text, cut to its size. */
static void config_error(char *error, size_t size, const char *what, int code)
{
	struct rp_writer w;
	char why[128] = "";

	if (!error || size == 0)
		return;
	mbedtls_strerror(code, why, sizeof(why));
	w = rp_writer_of(error, size - 1);
	rp_write_bytes(&w, what, strlen(what));
	rp_write_bytes(&w, ": ", 2);
	rp_write_bytes(&w, why, RP_MIN(strlen(why), (size_t)(w.end - w.pos)));
	*w.pos = 0;
}

/* mbedtls wants a PEM with its terminator counted; spans have none. */
static char *config_text(struct rp_span pem)
{
	char *text = malloc(pem.length + 1);

	if (text) {
		memcpy(text, pem.data, pem.length);
		text[pem.length] = 0;
	}
	return text;
}

static int config_parse_crt(mbedtls_x509_crt *crt, struct rp_span pem)
{
	char *text = config_text(pem);
	int ret;

	if (!text)
		return MBEDTLS_ERR_X509_ALLOC_FAILED;
	ret = mbedtls_x509_crt_parse(crt, (const unsigned char *)text, pem.length + 1);
	free(text);
	/* A positive result counts the certificates of a chain that were not understood. */
	return ret > 0 ? MBEDTLS_ERR_X509_INVALID_FORMAT : ret;
}

static int config_parse_crl(mbedtls_x509_crl *crl, struct rp_span pem)
{
	char *text;
	int ret;

	if (pem.length == 0)
		return 0;
	text = config_text(pem);
	if (!text)
		return MBEDTLS_ERR_X509_ALLOC_FAILED;
	/* A list in DER ends where it ends; PEM wants its terminator. */
	if (memmem(pem.data, pem.length, "-----BEGIN", 10))
		ret = mbedtls_x509_crl_parse(crl, (const unsigned char *)text, pem.length + 1);
	else
		ret = mbedtls_x509_crl_parse_der(crl, pem.data, pem.length);
	free(text);
	return ret;
}

/* As etcd: a list that has had its time still says who is revoked, and refuses nobody else. */
static int config_stale_crl(void *ctx, mbedtls_x509_crt *crt, int depth, uint32_t *flags)
{
	*flags &= ~(uint32_t)(MBEDTLS_X509_BADCRL_EXPIRED | MBEDTLS_X509_BADCRL_FUTURE);
	return 0;
}

static int config_parse_key(mbedtls_pk_context *key, struct rp_span pem)
{
	char *text = config_text(pem);
	int ret;

	if (!text)
		return MBEDTLS_ERR_PK_ALLOC_FAILED;
	ret = mbedtls_pk_parse_key(key, (const unsigned char *)text, pem.length + 1, NULL, 0);
	explicit_bzero(text, pem.length);
	free(text);
	return ret;
}

static int config_set_alpn(struct rp_tls_config *c, const char *const *alpn)
{
	size_t count = 0, bytes = 0;
	char *text;

	if (!alpn)
		return 0;
	for (; alpn[count]; count++)
		bytes += strlen(alpn[count]) + 1;
	c->alpn = malloc((count + 1) * sizeof(*c->alpn) + bytes);
	if (!c->alpn)
		return MBEDTLS_ERR_SSL_ALLOC_FAILED;
	text = (char *)(c->alpn + count + 1);
	for (size_t i = 0; i < count; i++) {
		c->alpn[i] = text;
		text = stpcpy(text, alpn[i]) + 1;
	}
	c->alpn[count] = NULL;
	return mbedtls_ssl_conf_alpn_protocols(&c->ssl, c->alpn);
}

/* Ours that are named, or all; IANA's names have '_' where mbedtls has '-'. */
static int config_set_suites(struct rp_tls_config *c, const char *const *names)
{
	unsigned count = 0;

	for (unsigned i = 0; config_suites[i] != 0; i++) {
		const char *ours = mbedtls_ssl_get_ciphersuite_name(config_suites[i]);
		bool wanted = names == NULL;

		for (unsigned j = 0; !wanted && names[j]; j++) {
			const char *a = names[j], *b = ours;

			while (*a && (*a == *b || (*a == '_' && *b == '-')))
				a++, b++;
			/* Go leaves the hash of CHACHA20's out. */
			wanted = *a == 0 && (*b == 0 || strcmp(b, "-SHA256") == 0);
		}
		if (wanted && count < TLS_SUITES_MAX)
			c->suites[count++] = config_suites[i];
	}
	mbedtls_ssl_conf_ciphersuites(&c->ssl, c->suites);
	return count > 0 ? 0 : MBEDTLS_ERR_SSL_NO_USABLE_CIPHERSUITE;
}

static int config_setup(struct rp_tls_config *c, const struct rp_tls_params *p, const char **what)
{
	int ret;

	*what = "entropy";
	if (p->entropy)
		ret = mbedtls_ctr_drbg_seed(&c->drbg, config_entropy, c, NULL, 0);
	else
		ret = mbedtls_ctr_drbg_seed(&c->drbg, mbedtls_entropy_func, &c->entropy, NULL, 0);
	if (ret != 0)
		return ret;
	*what = "configuration";
	ret = mbedtls_ssl_config_defaults(&c->ssl,
		p->server ? MBEDTLS_SSL_IS_SERVER : MBEDTLS_SSL_IS_CLIENT,
		MBEDTLS_SSL_TRANSPORT_STREAM, MBEDTLS_SSL_PRESET_DEFAULT);
	if (ret != 0)
		return ret;
	mbedtls_ssl_conf_rng(&c->ssl, mbedtls_ctr_drbg_random, &c->drbg);
	mbedtls_ssl_conf_min_version(
		&c->ssl, MBEDTLS_SSL_MAJOR_VERSION_3, MBEDTLS_SSL_MINOR_VERSION_3);
	mbedtls_ssl_conf_max_version(
		&c->ssl, MBEDTLS_SSL_MAJOR_VERSION_3, MBEDTLS_SSL_MINOR_VERSION_3);
	*what = "cipher suites";
	ret = config_set_suites(c, p->suites);
	if (ret != 0)
		return ret;
	*what = "configuration";
	mbedtls_ssl_conf_export_keys_ext_cb(&c->ssl, tls_session_keys, c);
	mbedtls_ssl_conf_renegotiation(&c->ssl, MBEDTLS_SSL_RENEGOTIATION_DISABLED);
	ret = config_set_alpn(c, p->alpn);
	if (ret != 0)
		return ret;
	*what = "ca";
	if (p->ca.length > 0) {
		ret = config_parse_crt(&c->ca, p->ca);
		if (ret != 0)
			return ret;
		*what = "crl";
		ret = config_parse_crl(&c->crl, p->crl);
		if (ret != 0)
			return ret;
		mbedtls_ssl_conf_verify(&c->ssl, config_stale_crl, NULL);
		mbedtls_ssl_conf_ca_chain(&c->ssl, &c->ca, p->crl.length > 0 ? &c->crl : NULL);
	}
	if (p->cert.length == 0)
		return p->server ? MBEDTLS_ERR_SSL_BAD_INPUT_DATA : 0;
	*what = "certificate";
	ret = config_parse_crt(&c->cert, p->cert);
	if (ret != 0)
		return ret;
	*what = "key";
	ret = config_parse_key(&c->key, p->key);
	if (ret == 0)
		ret = mbedtls_pk_check_pair(&c->cert.pk, &c->key);
	return ret != 0 ? ret : mbedtls_ssl_conf_own_cert(&c->ssl, &c->cert, &c->key);
}

struct rp_tls_config *rp_tls_config_new(
	const struct rp_tls_params *p, char *error, size_t error_size)
{
	struct rp_tls_config *c = calloc(1, sizeof(*c));
	const char *what;
	int ret;

	if (!c) {
		config_error(error, error_size, "memory", MBEDTLS_ERR_SSL_ALLOC_FAILED);
		return NULL;
	}
	c->refs = 1;
	c->server = p->server;
	c->verify = p->server ? p->require_peer_cert : !p->skip_verify;
	c->entropy_fn = p->entropy;
	c->entropy_ctx = p->entropy_ctx;
	mbedtls_ssl_config_init(&c->ssl);
	mbedtls_x509_crt_init(&c->cert);
	mbedtls_x509_crt_init(&c->ca);
	mbedtls_x509_crl_init(&c->crl);
	mbedtls_pk_init(&c->key);
	mbedtls_entropy_init(&c->entropy);
	mbedtls_ctr_drbg_init(&c->drbg);
	ret = config_setup(c, p, &what);
	if (ret == 0 && c->verify && p->ca.length == 0) {
		what = "ca";
		ret = MBEDTLS_ERR_SSL_CA_CHAIN_REQUIRED;
	}
	if (ret != 0) {
		config_error(error, error_size, what, ret);
		rp_tls_config_unref(c);
		return NULL;
	}
	mbedtls_ssl_conf_authmode(
		&c->ssl, c->verify ? MBEDTLS_SSL_VERIFY_REQUIRED : MBEDTLS_SSL_VERIFY_NONE);
	return c;
}

struct rp_tls_config *rp_tls_config_ref(struct rp_tls_config *c)
{
	c->refs++;
	return c;
}

void rp_tls_config_unref(struct rp_tls_config *c)
{
	if (!c)
		return;
	RP_ASSERT(c->refs > 0);
	if (--c->refs > 0)
		return;
	mbedtls_ssl_config_free(&c->ssl);
	mbedtls_x509_crt_free(&c->cert);
	mbedtls_x509_crt_free(&c->ca);
	mbedtls_x509_crl_free(&c->crl);
	mbedtls_pk_free(&c->key);
	mbedtls_ctr_drbg_free(&c->drbg);
	mbedtls_entropy_free(&c->entropy);
	free(c->alpn);
	free(c);
}
