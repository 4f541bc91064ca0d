/* SPDX-License-Identifier: Apache-2.0 */
#include "test_certs.h"

#include <stdio.h>
#include <string.h>

#include <mbedtls/asn1write.h>
#include <mbedtls/ctr_drbg.h>
#include <mbedtls/entropy.h>
#include <mbedtls/oid.h>
#include <mbedtls/pk.h>
#include <mbedtls/x509_crt.h>

#include <base/assert.h>

#define CHECK(call) RP_ASSERT((call) == 0)

struct rp_span test_span(const char *pem)
{
	return (struct rp_span){.data = (const uint8_t *)pem, .length = strlen(pem)};
}

/* SubjectAltName with a dNSName and an iPAddress; written from the end, as mbedtls does. */
static void cert_set_san(mbedtls_x509write_cert *crt, const char *dns, const uint8_t *address)
{
	unsigned char buf[256], *p = buf + sizeof(buf);
	size_t length = 0;

	if (address) {
		p -= 4;
		memcpy(p, address, 4);
		*--p = 4;
		*--p = MBEDTLS_ASN1_CONTEXT_SPECIFIC | 7;
		length += 6;
	}
	if (dns) {
		size_t n = strlen(dns);

		p -= n;
		memcpy(p, dns, n);
		*--p = (unsigned char)n;
		*--p = MBEDTLS_ASN1_CONTEXT_SPECIFIC | 2;
		length += n + 2;
	}
	*--p = (unsigned char)length;
	*--p = MBEDTLS_ASN1_CONSTRUCTED | MBEDTLS_ASN1_SEQUENCE;
	CHECK(mbedtls_x509write_crt_set_extension(crt, MBEDTLS_OID_SUBJECT_ALT_NAME,
		MBEDTLS_OID_SIZE(MBEDTLS_OID_SUBJECT_ALT_NAME), 0, p, length + 2));
}

static void cert_names(mbedtls_x509write_cert *crt, const struct test_cert *issuer, const char *cn)
{
	char name[128], issuer_name[256];
	mbedtls_x509_crt ca;

	snprintf(name, sizeof(name), "CN=%s", cn);
	snprintf(issuer_name, sizeof(issuer_name), "%s", name);
	if (issuer) {
		mbedtls_x509_crt_init(&ca);
		CHECK(mbedtls_x509_crt_parse(
			&ca, (const unsigned char *)issuer->cert, strlen(issuer->cert) + 1));
		RP_ASSERT(mbedtls_x509_dn_gets(issuer_name, sizeof(issuer_name), &ca.subject) > 0);
		mbedtls_x509_crt_free(&ca);
	}
	CHECK(mbedtls_x509write_crt_set_subject_name(crt, name));
	CHECK(mbedtls_x509write_crt_set_issuer_name(crt, issuer_name));
}

void test_cert_make(struct test_cert *out, const struct test_cert *issuer, const char *cn,
	const char *dns, const uint8_t *address)
{
	mbedtls_entropy_context entropy;
	mbedtls_ctr_drbg_context drbg;
	mbedtls_pk_context key, issuer_key;
	mbedtls_x509write_cert crt;
	mbedtls_mpi serial;

	mbedtls_entropy_init(&entropy);
	mbedtls_ctr_drbg_init(&drbg);
	mbedtls_pk_init(&key);
	mbedtls_pk_init(&issuer_key);
	mbedtls_x509write_crt_init(&crt);
	mbedtls_mpi_init(&serial);
	CHECK(mbedtls_ctr_drbg_seed(&drbg, mbedtls_entropy_func, &entropy, NULL, 0));
	CHECK(mbedtls_pk_setup(&key, mbedtls_pk_info_from_type(MBEDTLS_PK_ECKEY)));
	CHECK(mbedtls_ecp_gen_key(
		MBEDTLS_ECP_DP_SECP256R1, mbedtls_pk_ec(key), mbedtls_ctr_drbg_random, &drbg));
	if (issuer)
		CHECK(mbedtls_pk_parse_key(&issuer_key, (const unsigned char *)issuer->key,
			strlen(issuer->key) + 1, NULL, 0));
	mbedtls_x509write_crt_set_version(&crt, MBEDTLS_X509_CRT_VERSION_3);
	mbedtls_x509write_crt_set_md_alg(&crt, MBEDTLS_MD_SHA256);
	mbedtls_x509write_crt_set_subject_key(&crt, &key);
	mbedtls_x509write_crt_set_issuer_key(&crt, issuer ? &issuer_key : &key);
	CHECK(mbedtls_mpi_fill_random(&serial, 15, mbedtls_ctr_drbg_random, &drbg));
	CHECK(mbedtls_x509write_crt_set_serial(&crt, &serial));
	CHECK(mbedtls_x509write_crt_set_validity(&crt, "20200101000000", "20991231235959"));
	CHECK(mbedtls_x509write_crt_set_basic_constraints(&crt, issuer == NULL, -1));
	cert_names(&crt, issuer, cn);
	if (dns || address)
		cert_set_san(&crt, dns, address);
	CHECK(mbedtls_x509write_crt_pem(&crt, (unsigned char *)out->cert, sizeof(out->cert),
		mbedtls_ctr_drbg_random, &drbg));
	CHECK(mbedtls_pk_write_key_pem(&key, (unsigned char *)out->key, sizeof(out->key)));
	mbedtls_mpi_free(&serial);
	mbedtls_x509write_crt_free(&crt);
	mbedtls_pk_free(&issuer_key);
	mbedtls_pk_free(&key);
	mbedtls_ctr_drbg_free(&drbg);
	mbedtls_entropy_free(&entropy);
}
