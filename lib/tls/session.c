/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <mbedtls/asn1.h>
#include <mbedtls/error.h>
#include <mbedtls/oid.h>

#include "tls_priv.h"

#define SESSION_CN_BYTES 256
/* Output space kept between flushes. */
#define SESSION_OUT_KEEP_BYTES (8u << 10)

struct rp_tls_session {
	struct rp_tls_config *config;
	mbedtls_ssl_context ssl;
	bool open, failed, closed, no_memory, bound;
	uint8_t binding[RP_TLS_BINDING_BYTES];
	int failure; /* -errno of a failed session */
	uint8_t address[16];
	size_t address_length; /* the peer must show this address; 0: none */
	uint8_t *out;
	size_t out_head, out_tail, out_size;
	uint8_t in[RP_TLS_IN_BYTES];
	size_t in_head, in_tail;
	char cn[SESSION_CN_BYTES];
	char error[160];
};

static int session_bio_send(void *ctx, const unsigned char *data, size_t length)
{
	struct rp_tls_session *s = ctx;

	if (s->out_head == s->out_tail)
		s->out_head = s->out_tail = 0;
	if (s->out_size - s->out_tail < length) {
		size_t size = RP_MAX(s->out_size * 2, s->out_tail + length + 1024);
		uint8_t *out = realloc(s->out, size);

		if (!out) {
			s->no_memory = true;
			return MBEDTLS_ERR_SSL_ALLOC_FAILED;
		}
		s->out = out;
		s->out_size = size;
	}
	memcpy(s->out + s->out_tail, data, length);
	s->out_tail += length;
	return (int)length;
}

static int session_bio_recv(void *ctx, unsigned char *out, size_t size)
{
	struct rp_tls_session *s = ctx;
	size_t n = RP_MIN(size, s->in_tail - s->in_head);

	if (n == 0)
		return MBEDTLS_ERR_SSL_WANT_READ;
	memcpy(out, s->in + s->in_head, n);
	s->in_head += n;
	return (int)n;
}

/* A name is verified, and sent as SNI, by mbedtls; an address we compare ourselves. */
static int session_set_peer(struct rp_tls_session *s, const char *name, struct rp_span address)
{
	if (address.length > sizeof(s->address))
		return -EINVAL;
	if (address.length > 0)
		memcpy(s->address, address.data, address.length);
	s->address_length = address.length;
	return name ? mbedtls_ssl_set_hostname(&s->ssl, name) : 0;
}

struct rp_tls_session *rp_tls_session_new(
	struct rp_tls_config *config, const char *server_name, struct rp_span server_address)
{
	struct rp_tls_session *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->config = rp_tls_config_ref(config);
	mbedtls_ssl_init(&s->ssl);
	if (mbedtls_ssl_setup(&s->ssl, &config->ssl) != 0 ||
		(!config->server && session_set_peer(s, server_name, server_address) != 0)) {
		rp_tls_session_destroy(s);
		errno = ENOMEM;
		return NULL;
	}
	mbedtls_ssl_set_bio(&s->ssl, s, session_bio_send, session_bio_recv, NULL);
	return s;
}

void rp_tls_session_destroy(struct rp_tls_session *s)
{
	if (!s)
		return;
	mbedtls_ssl_free(&s->ssl);
	rp_tls_config_unref(s->config);
	free(s->out);
	free(s);
}

size_t rp_tls_feed(struct rp_tls_session *s, const void *data, size_t length)
{
	size_t n;

	if (s->in_head > 0) {
		memmove(s->in, s->in + s->in_head, s->in_tail - s->in_head);
		s->in_tail -= s->in_head;
		s->in_head = 0;
	}
	n = RP_MIN(length, sizeof(s->in) - s->in_tail);
	if (n > 0)
		memcpy(s->in + s->in_tail, data, n);
	s->in_tail += n;
	return n;
}

static int session_fail(struct rp_tls_session *s, int code)
{
	s->failed = true;
	s->failure = -EPROTO;
	if (code == MBEDTLS_ERR_X509_CERT_VERIFY_FAILED ||
		code == MBEDTLS_ERR_SSL_NO_CLIENT_CERTIFICATE)
		s->failure = -EACCES;
	if (s->no_memory)
		s->failure = -ENOMEM;
	mbedtls_strerror(code, s->error, sizeof(s->error));
	return s->failure;
}

static void session_read_cn(struct rp_tls_session *s, const mbedtls_x509_crt *crt)
{
	for (const mbedtls_x509_name *n = &crt->subject; n; n = n->next) {
		if (n->oid.p == NULL || MBEDTLS_OID_CMP(MBEDTLS_OID_AT_CN, &n->oid) != 0)
			continue;
		/* A cut name, or one with a zero in it, could be taken for another user's. */
		if (n->val.len < sizeof(s->cn) && !memchr(n->val.p, 0, n->val.len)) {
			memcpy(s->cn, n->val.p, n->val.len);
			s->cn[n->val.len] = 0;
		}
		return;
	}
}

static bool session_has_address(const struct rp_tls_session *s, const mbedtls_x509_crt *crt)
{
	for (const mbedtls_x509_sequence *n = &crt->subject_alt_names; n; n = n->next) {
		if (n->buf.tag == (MBEDTLS_ASN1_CONTEXT_SPECIFIC | 7) &&
			n->buf.len == s->address_length &&
			memcmp(n->buf.p, s->address, s->address_length) == 0)
			return true;
	}
	return false;
}

/* RFC 5705 4, RFC 9266 3: the exporter without a context, of the master secret and both randoms. */
int tls_session_keys(void *config, const unsigned char *master, const unsigned char *keys,
	size_t mac_length, size_t key_length, size_t iv_length,
	const unsigned char client_random[32], const unsigned char server_random[32],
	mbedtls_tls_prf_types prf)
{
	struct rp_tls_session *s = ((struct rp_tls_config *)config)->shaking;
	uint8_t seed[64];

	(void)keys, (void)mac_length, (void)key_length, (void)iv_length;
	if (!s)
		return 0;
	memcpy(seed, client_random, 32);
	memcpy(seed + 32, server_random, 32);
	s->bound = mbedtls_ssl_tls_prf(prf, master, 48, "EXPORTER-Channel-Binding", seed,
			   sizeof(seed), s->binding, sizeof(s->binding)) == 0;
	return 0;
}

static int session_handshake(struct rp_tls_session *s)
{
	const mbedtls_x509_crt *crt;
	int ret;

	s->config->shaking = s;
	ret = mbedtls_ssl_handshake(&s->ssl);
	s->config->shaking = NULL;

	if (ret == MBEDTLS_ERR_SSL_WANT_READ || ret == MBEDTLS_ERR_SSL_WANT_WRITE)
		return -EAGAIN;
	if (ret != 0)
		return session_fail(s, ret);
	crt = mbedtls_ssl_get_peer_cert(&s->ssl);
	if (s->config->verify && s->address_length > 0 && (!crt || !session_has_address(s, crt))) {
		(void)mbedtls_ssl_send_alert_message(
			&s->ssl, MBEDTLS_SSL_ALERT_LEVEL_FATAL, MBEDTLS_SSL_ALERT_MSG_BAD_CERT);
		return session_fail(s, MBEDTLS_ERR_X509_CERT_VERIFY_FAILED);
	}
	if (s->config->verify && crt)
		session_read_cn(s, crt);
	s->open = true;
	return 0;
}

ssize_t rp_tls_read(struct rp_tls_session *s, void *out, size_t size)
{
	int ret;

	if (s->failed)
		return s->failure;
	if (s->closed)
		return 0;
	if (!s->open) {
		ret = session_handshake(s);
		if (ret < 0)
			return ret;
	}
	ret = mbedtls_ssl_read(&s->ssl, out, RP_MIN(size, (size_t)INT32_MAX));
	if (ret > 0)
		return ret;
	if (ret == MBEDTLS_ERR_SSL_WANT_READ || ret == MBEDTLS_ERR_SSL_WANT_WRITE)
		return -EAGAIN;
	if (ret == 0 || ret == MBEDTLS_ERR_SSL_PEER_CLOSE_NOTIFY) {
		s->closed = true;
		return 0;
	}
	return session_fail(s, ret);
}

ssize_t rp_tls_write(struct rp_tls_session *s, const void *data, size_t length)
{
	const uint8_t *p = data;
	size_t done = 0;

	if (s->failed)
		return s->failure;
	if (!s->open)
		return -EAGAIN;
	while (done < length) {
		int ret = mbedtls_ssl_write(&s->ssl, p + done, length - done);

		if (ret <= 0)
			return session_fail(s, ret);
		done += (size_t)ret;
	}
	return (ssize_t)done;
}

void rp_tls_close(struct rp_tls_session *s)
{
	if (s->open && !s->failed)
		(void)mbedtls_ssl_close_notify(&s->ssl);
}

struct rp_span rp_tls_pending(const struct rp_tls_session *s)
{
	if (s->out_head == s->out_tail)
		return (struct rp_span){0};
	return (struct rp_span){.data = s->out + s->out_head, .length = s->out_tail - s->out_head};
}

void rp_tls_sent(struct rp_tls_session *s, size_t length)
{
	s->out_head += RP_MIN(length, s->out_tail - s->out_head);
	if (s->out_head == s->out_tail && s->out_size > SESSION_OUT_KEEP_BYTES) {
		free(s->out);
		s->out = NULL;
		s->out_head = s->out_tail = s->out_size = 0;
	}
}

bool rp_tls_open(const struct rp_tls_session *s)
{
	return s->open;
}

const char *rp_tls_alpn(const struct rp_tls_session *s)
{
	return mbedtls_ssl_get_alpn_protocol(&s->ssl);
}

const char *rp_tls_peer_cn(const struct rp_tls_session *s)
{
	return s->cn[0] ? s->cn : NULL;
}

const char *rp_tls_suite(const struct rp_tls_session *s)
{
	return s->open ? mbedtls_ssl_get_ciphersuite(&s->ssl) : NULL;
}

bool rp_tls_binding(const struct rp_tls_session *s, uint8_t out[RP_TLS_BINDING_BYTES])
{
	if (!s->open || !s->bound)
		return false;
	memcpy(out, s->binding, RP_TLS_BINDING_BYTES);
	return true;
}

const char *rp_tls_error(const struct rp_tls_session *s)
{
	return s->error;
}
