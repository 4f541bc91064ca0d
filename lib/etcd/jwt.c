/* SPDX-License-Identifier: Apache-2.0 */
/* JSON Web Tokens (RFC 7519) with HS256 or RS256 (RFC 7518), as etcd's token provider makes them:
 * claims username, revision, exp. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include <jansson.h>
#include <mbedtls/base64.h>
#include <mbedtls/md.h>
#include <mbedtls/pk.h>
#include <mbedtls/x509_crt.h>

#include <base/assert.h>
#include <base/log.h>

#include "auth_priv.h"

#define SIGNATURE_BYTES_MAX 1024
#define KEY_BYTES_MAX 65536
#define TOKEN_BYTES_MAX 16384

struct auth_jwt {
	const char *alg;
	bool rsa, can_sign;
	uint8_t *secret; /* HS256 */
	size_t secret_length;
	mbedtls_pk_context sign_key, verify_key;
};

static int random_bytes(void *ctx, unsigned char *out, size_t length)
{
	return getrandom(out, length, 0) == (ssize_t)length ? 0 : -1;
}

/* ---- keys ---- */

static uint8_t *file_read(const char *path, size_t *length)
{
	FILE *f = fopen(path, "rb");
	uint8_t *data = NULL;

	*length = 0;
	if (f) {
		data = calloc(1, KEY_BYTES_MAX + 1);
		RP_ASSERT(data != NULL);
		*length = fread(data, 1, KEY_BYTES_MAX, f);
		fclose(f);
	}
	if (*length > 0)
		return data;
	free(data);
	RP_LOG(RP_LOG_ETCD, RP_LOG_ERROR, "auth: the key %s cannot be read, or is empty", path);
	return NULL;
}

/* The public key of a certificate, which etcd takes as well. */
static int certificate_key(mbedtls_pk_context *key, const uint8_t *pem, size_t length)
{
	unsigned char text[4096];
	mbedtls_x509_crt crt;
	int rc;

	mbedtls_x509_crt_init(&crt);
	rc = mbedtls_x509_crt_parse(&crt, pem, length);
	if (rc == 0)
		rc = mbedtls_pk_write_pubkey_pem(&crt.pk, text, sizeof(text));
	if (rc == 0)
		rc = mbedtls_pk_parse_public_key(key, text, strlen((char *)text) + 1);
	mbedtls_x509_crt_free(&crt);
	return rc;
}

static bool key_load(mbedtls_pk_context *key, const char *path, bool private)
{
	size_t length;
	uint8_t *pem = file_read(path, &length);
	int rc;

	if (!pem)
		return false;
	/* With the terminating zero, which PEM wants. */
	rc = private ? mbedtls_pk_parse_key(key, pem, length + 1, NULL, 0)
		     : mbedtls_pk_parse_public_key(key, pem, length + 1);
	if (rc != 0 && !private)
		rc = certificate_key(key, pem, length + 1);
	explicit_bzero(pem, length);
	free(pem);
	if (rc == 0 && mbedtls_pk_can_do(key, MBEDTLS_PK_RSA))
		return true;
	RP_LOG(RP_LOG_ETCD, RP_LOG_ERROR, "auth: %s is no RSA key in PEM (-0x%x)", path,
		(unsigned)-rc);
	return false;
}

struct auth_jwt *auth_jwt_new(const struct rp_etcd_config *config)
{
	struct auth_jwt *j = calloc(1, sizeof(*j));
	const char *private = config->jwt_private_key ? config->jwt_private_key : "";
	const char *public = config->jwt_public_key ? config->jwt_public_key : "";
	bool good;

	RP_ASSERT(j != NULL);
	mbedtls_pk_init(&j->sign_key);
	mbedtls_pk_init(&j->verify_key);
	j->rsa = config->token == RP_ETCD_TOKEN_JWT_RS256;
	j->alg = j->rsa ? "RS256" : "HS256";
	j->can_sign = private[0] != '\0';
	if (j->rsa) {
		good = !j->can_sign || key_load(&j->sign_key, private, true);
		/* The private key has the public one in it. */
		good = good && (public[0] != '\0' ? key_load(&j->verify_key, public, false)
						  : key_load(&j->verify_key, private, true));
	} else {
		j->secret = file_read(private, &j->secret_length);
		good = j->secret != NULL;
	}
	if (good)
		return j;
	auth_jwt_free(j);
	return NULL;
}

void auth_jwt_free(struct auth_jwt *j)
{
	if (!j)
		return;
	mbedtls_pk_free(&j->sign_key);
	mbedtls_pk_free(&j->verify_key);
	if (j->secret)
		explicit_bzero(j->secret, j->secret_length);
	free(j->secret);
	free(j);
}

/* ---- base64url ---- */

static void url_encode(char *to, size_t size, const uint8_t *from, size_t length)
{
	size_t n = 0;

	if (mbedtls_base64_encode((unsigned char *)to, size, &n, from, length) != 0)
		n = 0;
	while (n > 0 && to[n - 1] == '=')
		n--;
	to[n] = '\0';
	for (size_t i = 0; i < n; i++)
		to[i] = to[i] == '+' ? '-' : to[i] == '/' ? '_' : to[i];
}

/* Bytes written, or 0. */
static size_t url_decode(uint8_t *to, size_t size, const char *from, size_t length)
{
	char *text = calloc(1, length + 4);
	size_t n = 0;

	RP_ASSERT(text != NULL);
	for (size_t i = 0; i < length; i++)
		text[i] = from[i] == '-' ? '+' : from[i] == '_' ? '/' : from[i];
	while (length % 4 != 0)
		text[length++] = '=';
	if (mbedtls_base64_decode(to, size, &n, (unsigned char *)text, length) != 0)
		n = 0;
	free(text);
	return n;
}

/* ---- signatures ---- */

static const mbedtls_md_info_t *sha256(void)
{
	return mbedtls_md_info_from_type(MBEDTLS_MD_SHA256);
}

static size_t signature_make(struct auth_jwt *j, const char *text, size_t length, uint8_t *out)
{
	uint8_t hash[32];
	size_t n = 0;

	if (!j->rsa)
		return mbedtls_md_hmac(sha256(), j->secret, j->secret_length,
			       (const unsigned char *)text, length, out) == 0
			       ? 32
			       : 0;
	if (mbedtls_md(sha256(), (const unsigned char *)text, length, hash) != 0 ||
		mbedtls_pk_sign(&j->sign_key, MBEDTLS_MD_SHA256, hash, sizeof(hash), out, &n,
			random_bytes, NULL) != 0)
		return 0;
	return n;
}

static bool signature_good(struct auth_jwt *j, const char *text, size_t length,
	const uint8_t *signature, size_t signature_length)
{
	uint8_t hash[32], differ = 0;

	if (j->rsa)
		return mbedtls_md(sha256(), (const unsigned char *)text, length, hash) == 0 &&
		       mbedtls_pk_verify(&j->verify_key, MBEDTLS_MD_SHA256, hash, sizeof(hash),
			       signature, signature_length) == 0;
	if (signature_length != sizeof(hash) ||
		mbedtls_md_hmac(sha256(), j->secret, j->secret_length, (const unsigned char *)text,
			length, hash) != 0)
		return false;
	for (size_t i = 0; i < sizeof(hash); i++)
		differ |= hash[i] ^ signature[i];
	return differ == 0;
}

/* ---- tokens ---- */

char *auth_jwt_sign(struct auth_jwt *j, const char *user, uint64_t revision, uint64_t expiry_s)
{
	char header[64], head64[128], *claims, *token = NULL;
	uint8_t signature[SIGNATURE_BYTES_MAX];
	json_t *o;
	size_t n, size;

	if (!j->can_sign)
		return NULL;
	o = json_pack("{s:s, s:I, s:I}", "username", user, "revision", (json_int_t)revision, "exp",
		(json_int_t)expiry_s);
	claims = o ? json_dumps(o, JSON_COMPACT) : NULL;
	json_decref(o);
	if (!claims)
		return NULL;
	snprintf(header, sizeof(header), "{\"alg\":\"%s\",\"typ\":\"JWT\"}", j->alg);
	url_encode(head64, sizeof(head64), (const uint8_t *)header, strlen(header));
	size = strlen(head64) + strlen(claims) * 2 + 2 * SIGNATURE_BYTES_MAX + 16;
	token = calloc(1, size);
	RP_ASSERT(token != NULL);
	n = (size_t)snprintf(token, size, "%s.", head64);
	url_encode(token + n, size - n, (const uint8_t *)claims, strlen(claims));
	n = strlen(token);
	size -= n;
	free(claims);
	{
		size_t length = signature_make(j, token, n, signature);

		if (length == 0) {
			free(token);
			return NULL;
		}
		token[n++] = '.';
		url_encode(token + n, size - 1, signature, length);
	}
	return token;
}

static bool claims_take(
	json_t *o, uint64_t now_s, char **user, uint64_t *revision, uint64_t *expiry_s)
{
	const char *name = json_string_value(json_object_get(o, "username"));
	json_t *rev = json_object_get(o, "revision"), *exp = json_object_get(o, "exp");

	if (!name || !json_is_number(rev) || !json_is_number(exp))
		return false;
	*revision = (uint64_t)json_number_value(rev);
	*expiry_s = json_number_value(exp) > 0 ? (uint64_t)json_number_value(exp) : 0;
	if (*expiry_s <= now_s)
		return false;
	*user = strdup(name);
	return *user != NULL;
}

bool auth_jwt_verify(struct auth_jwt *j, const char *token, size_t length, uint64_t now_s,
	char **user, uint64_t *revision, uint64_t *expiry_s)
{
	uint8_t signature[SIGNATURE_BYTES_MAX], *text;
	const char *dot, *second;
	bool good = false;
	size_t n;
	json_t *o;

	if (length > TOKEN_BYTES_MAX)
		return false;
	dot = memchr(token, '.', length);
	second = dot ? memchr(dot + 1, '.', length - (size_t)(dot + 1 - token)) : NULL;
	if (!second)
		return false;
	n = url_decode(
		signature, sizeof(signature), second + 1, length - (size_t)(second + 1 - token));
	if (n == 0 || !signature_good(j, token, (size_t)(second - token), signature, n))
		return false;
	/* What is signed is ours; yet another algorithm than the one meant is refused. */
	text = calloc(1, length + 1);
	RP_ASSERT(text != NULL);
	n = url_decode(text, length, token, (size_t)(dot - token));
	o = json_loadb((char *)text, n, 0, NULL);
	good = o && json_is_string(json_object_get(o, "alg")) &&
	       strcmp(json_string_value(json_object_get(o, "alg")), j->alg) == 0;
	json_decref(o);
	n = good ? url_decode(text, length, dot + 1, (size_t)(second - dot - 1)) : 0;
	o = good ? json_loadb((char *)text, n, 0, NULL) : NULL;
	good = o && claims_take(o, now_s, user, revision, expiry_s);
	json_decref(o);
	free(text);
	return good;
}
