/* SPDX-License-Identifier: Apache-2.0 */

/* The secret's proof on a gRPC connection between control threads (Prove). */

#include <mbedtls/md.h>

#include <base/assert.h>
#include <base/bytes.h>
#include <ctl/ctl_priv.h>

void ctl_prove_mac(const void *secret, size_t secret_length, const struct ctl_proof_input *in,
	uint8_t direction, uint8_t mac[CTL_MAC_BYTES])
{
	static const char tag[] = "ringpost prove 1";
	uint8_t text[sizeof(tag) + 1 + RP_UUID_BYTES + 16 + 2 * CTL_NONCE_BYTES];
	struct rp_writer w = rp_writer_of(text, sizeof(text));

	rp_write_bytes(&w, tag, sizeof(tag));
	rp_write_u8(&w, direction);
	rp_write_bytes(&w, in->cluster_uuid, RP_UUID_BYTES);
	rp_write_be64(&w, in->client_node);
	rp_write_be64(&w, in->server_node);
	rp_write_bytes(&w, in->client_nonce, CTL_NONCE_BYTES);
	rp_write_bytes(&w, in->server_nonce, CTL_NONCE_BYTES);
	RP_ASSERT(!w.bad && w.pos == w.end);
	RP_ASSERT(mbedtls_md_hmac(mbedtls_md_info_from_type(MBEDTLS_MD_SHA256), secret,
			  secret_length, text, sizeof(text), mac) == 0);
}

bool ctl_prove_equal(const uint8_t a[CTL_MAC_BYTES], const uint8_t b[CTL_MAC_BYTES])
{
	volatile uint8_t differ = 0;

	for (unsigned i = 0; i < CTL_MAC_BYTES; i++)
		differ = differ | (a[i] ^ b[i]);
	return differ == 0;
}
