/* SPDX-License-Identifier: Apache-2.0 */
#include <mbedtls/constant_time.h>
#include <mbedtls/md.h>

#include <base/assert.h>
#include <base/bytes.h>

#include "hello_priv.h"

static const uint8_t preamble_magic[4] = {'R', 'P', 'L', 'K'};
static const char mac_tag[] = "ringpost link 1";

void link_preamble_write(const struct link_preamble *p, uint8_t out[LINK_PREAMBLE_BYTES])
{
	struct rp_writer w = rp_writer_of(out, LINK_PREAMBLE_BYTES);

	rp_write_bytes(&w, preamble_magic, sizeof(preamble_magic));
	rp_write_u8(&w, p->version);
	rp_write_u8(&w, p->mode);
	rp_write_u8(&w, p->link);
	rp_write_u8(&w, p->k);
	rp_write_le64(&w, p->node);
	RP_ASSERT(!w.bad && w.pos == w.end);
}

bool link_preamble_read(struct link_preamble *p, const uint8_t in[LINK_PREAMBLE_BYTES])
{
	struct rp_reader r = rp_reader_of(in, LINK_PREAMBLE_BYTES);
	const uint8_t *magic = rp_read_bytes(&r, sizeof(preamble_magic));

	p->version = rp_read_u8(&r);
	p->mode = rp_read_u8(&r);
	p->link = rp_read_u8(&r);
	p->k = rp_read_u8(&r);
	p->node = rp_read_le64(&r);
	return memcmp(magic, preamble_magic, sizeof(preamble_magic)) == 0;
}

static struct rp_writer message_begin(uint8_t *out, enum link_message type, uint16_t length)
{
	struct rp_writer w = rp_writer_of(out, length);

	rp_write_u8(&w, (uint8_t)type);
	rp_write_u8(&w, LINK_VERSION);
	rp_write_le16(&w, length);
	return w;
}

static struct rp_reader message_read(const uint8_t *in, enum link_message type, uint16_t length)
{
	struct rp_reader r = rp_reader_of(in, length);

	if (rp_read_u8(&r) != type)
		r.bad = true;
	if (rp_read_u8(&r) != LINK_VERSION)
		r.bad = true;
	if (rp_read_le16(&r) != length)
		r.bad = true;
	return r;
}

static void read_into(struct rp_reader *r, uint8_t *out, size_t n)
{
	const uint8_t *p = rp_read_bytes(r, n);

	if (p)
		memcpy(out, p, n);
}

void link_hello_write(const struct link_hello *h, uint8_t out[LINK_HELLO_BYTES])
{
	struct rp_writer w = message_begin(out, LINK_MESSAGE_HELLO, LINK_HELLO_BYTES);

	rp_write_bytes(&w, h->cluster_uuid, RP_UUID_BYTES);
	rp_write_le64(&w, h->dialer);
	rp_write_le64(&w, h->acceptor);
	rp_write_le64(&w, h->dialer_boot);
	rp_write_le64(&w, h->epoch);
	rp_write_bytes(&w, h->dialer_nonce, LINK_NONCE_BYTES);
	rp_write_u8(&w, h->k);
	rp_write_u8(&w, h->link);
	rp_write_u8(&w, h->mode);
	rp_write_u8(&w, 0);
	RP_ASSERT(!w.bad && w.pos == w.end);
}

bool link_hello_read(struct link_hello *h, const uint8_t in[LINK_HELLO_BYTES])
{
	struct rp_reader r = message_read(in, LINK_MESSAGE_HELLO, LINK_HELLO_BYTES);

	read_into(&r, h->cluster_uuid, RP_UUID_BYTES);
	h->dialer = rp_read_le64(&r);
	h->acceptor = rp_read_le64(&r);
	h->dialer_boot = rp_read_le64(&r);
	h->epoch = rp_read_le64(&r);
	read_into(&r, h->dialer_nonce, LINK_NONCE_BYTES);
	h->k = rp_read_u8(&r);
	h->link = rp_read_u8(&r);
	h->mode = rp_read_u8(&r);
	return rp_read_u8(&r) == 0 && !r.bad && h->dialer_boot != 0 && h->epoch != 0;
}

void link_challenge_write(const struct link_hello *h, const uint8_t mac[LINK_MAC_BYTES],
	uint8_t out[LINK_CHALLENGE_BYTES])
{
	struct rp_writer w = message_begin(out, LINK_MESSAGE_CHALLENGE, LINK_CHALLENGE_BYTES);

	rp_write_le64(&w, h->acceptor);
	rp_write_le64(&w, h->acceptor_boot);
	rp_write_bytes(&w, h->acceptor_nonce, LINK_NONCE_BYTES);
	rp_write_bytes(&w, mac, LINK_MAC_BYTES);
	RP_ASSERT(!w.bad && w.pos == w.end);
}

bool link_challenge_read(struct link_hello *h, uint64_t *acceptor, uint8_t mac[LINK_MAC_BYTES],
	const uint8_t in[LINK_CHALLENGE_BYTES])
{
	struct rp_reader r = message_read(in, LINK_MESSAGE_CHALLENGE, LINK_CHALLENGE_BYTES);

	*acceptor = rp_read_le64(&r);
	h->acceptor_boot = rp_read_le64(&r);
	read_into(&r, h->acceptor_nonce, LINK_NONCE_BYTES);
	read_into(&r, mac, LINK_MAC_BYTES);
	return !r.bad && h->acceptor_boot != 0;
}

void link_finish_write(const uint8_t mac[LINK_MAC_BYTES], uint8_t out[LINK_FINISH_BYTES])
{
	struct rp_writer w = message_begin(out, LINK_MESSAGE_FINISH, LINK_FINISH_BYTES);

	rp_write_bytes(&w, mac, LINK_MAC_BYTES);
	RP_ASSERT(!w.bad && w.pos == w.end);
}

bool link_finish_read(uint8_t mac[LINK_MAC_BYTES], const uint8_t in[LINK_FINISH_BYTES])
{
	struct rp_reader r = message_read(in, LINK_MESSAGE_FINISH, LINK_FINISH_BYTES);

	read_into(&r, mac, LINK_MAC_BYTES);
	return !r.bad;
}

void link_verdict_write(uint8_t refusal, uint8_t out[LINK_VERDICT_BYTES])
{
	struct rp_writer w = message_begin(out, LINK_MESSAGE_VERDICT, LINK_VERDICT_BYTES);

	rp_write_u8(&w, refusal);
	rp_write_bytes(&w, (const uint8_t[3]){0}, 3);
	RP_ASSERT(!w.bad && w.pos == w.end);
}

bool link_verdict_read(uint8_t *refusal, const uint8_t in[LINK_VERDICT_BYTES])
{
	struct rp_reader r = message_read(in, LINK_MESSAGE_VERDICT, LINK_VERDICT_BYTES);

	*refusal = rp_read_u8(&r);
	return !r.bad;
}

bool link_mac(const struct link_hello *h, enum link_direction direction, const void *key,
	size_t key_length, uint8_t mac[LINK_MAC_BYTES])
{
	uint8_t text[256];
	struct rp_writer w = rp_writer_of(text, sizeof(text));

	rp_write_bytes(&w, mac_tag, sizeof(mac_tag));
	rp_write_bytes(&w, h->cluster_uuid, RP_UUID_BYTES);
	rp_write_le64(&w, h->dialer);
	rp_write_le64(&w, h->acceptor);
	rp_write_le64(&w, h->dialer_boot);
	rp_write_le64(&w, h->acceptor_boot);
	rp_write_le64(&w, h->epoch);
	rp_write_bytes(&w, h->dialer_nonce, LINK_NONCE_BYTES);
	rp_write_bytes(&w, h->acceptor_nonce, LINK_NONCE_BYTES);
	rp_write_u8(&w, h->k);
	rp_write_u8(&w, h->link);
	rp_write_u8(&w, h->mode);
	rp_write_bytes(&w, h->binding, sizeof(h->binding));
	rp_write_u8(&w, (uint8_t)direction);
	RP_ASSERT(!w.bad);
	return mbedtls_md_hmac(mbedtls_md_info_from_type(MBEDTLS_MD_SHA256), key, key_length, text,
		       (size_t)(w.pos - text), mac) == 0;
}

bool link_mac_equal(const uint8_t a[LINK_MAC_BYTES], const uint8_t b[LINK_MAC_BYTES])
{
	return mbedtls_ct_memcmp(a, b, LINK_MAC_BYTES) == 0;
}
