/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include <base/assert.h>
#include <base/units.h>
#include <telem/pcapng.h>

enum {
	BLOCK_SECTION = 0x0a0d0d0a,
	BLOCK_INTERFACE = 1,
	BLOCK_STATISTICS = 5,
	BLOCK_PACKET = 6,
};

enum {
	OPT_END = 0,
	OPT_SHB_USERAPPL = 4,
	OPT_IF_NAME = 2,
	OPT_IF_DESCRIPTION = 3,
	OPT_IF_MAC = 6,
	OPT_IF_TSRESOL = 9,
	OPT_EPB_FLAGS = 2,
	OPT_ISB_START = 2,
	OPT_ISB_END = 3,
	OPT_ISB_IFRECV = 4,
	OPT_ISB_IFDROP = 5,
	OPT_ISB_FILTERACCEPT = 6,
};

#define BYTE_ORDER_MAGIC 0x1a2b3c4d
#define LINKTYPE_ETHERNET 1
#define FLAGS_INBOUND 1
#define FLAGS_OUTBOUND 2
#define NANOSECONDS 9

/** A block under way; once it did not fit, nothing more is written. */
struct block {
	uint8_t *out;
	size_t size, length;
	bool over;
};

static void put(struct block *b, const void *data, size_t length)
{
	if (b->over || b->size - b->length < length) {
		b->over = true;
		return;
	}
	if (length > 0)
		memcpy(b->out + b->length, data, length);
	b->length += length;
}

static void put_le(struct block *b, uint64_t value, size_t bytes)
{
	uint8_t p[8];

	for (size_t i = 0; i < bytes; i++)
		p[i] = (uint8_t)(value >> 8 * i);
	put(b, p, bytes);
}

static void put_padded(struct block *b, const void *data, size_t length)
{
	put(b, data, length);
	put_le(b, 0, -length & 3);
}

static void put_option(struct block *b, uint16_t code, const void *data, size_t length)
{
	put_le(b, code, 2);
	put_le(b, length, 2);
	put_padded(b, data, length);
}

static void put_text(struct block *b, uint16_t code, const char *text)
{
	if (text)
		put_option(b, code, text, RP_MIN(strlen(text), (size_t)UINT16_MAX));
}

static void put_option_le(struct block *b, uint16_t code, uint64_t value, size_t bytes)
{
	put_le(b, code, 2);
	put_le(b, bytes, 2);
	put_le(b, value, bytes);
}

/* A time is two halves, the upper one first. */
static void put_time(struct block *b, uint64_t ns)
{
	put_le(b, ns >> 32, 4);
	put_le(b, ns & UINT32_MAX, 4);
}

static struct block begin(uint8_t *out, size_t size, uint32_t type)
{
	struct block b = {.out = out, .size = size};

	put_le(&b, type, 4);
	put_le(&b, 0, 4);
	return b;
}

/* The end of the options, and the length, which stands at either end. */
static size_t finish(struct block *b)
{
	struct block length;

	put_le(b, OPT_END, 4);
	put_le(b, b->length + 4, 4);
	if (b->over)
		return 0;
	length = (struct block){.out = b->out + 4, .size = 4};
	put_le(&length, b->length, 4);
	return b->length;
}

size_t rp_pcapng_section(uint8_t *out, size_t size, const char *application)
{
	struct block b = begin(out, size, BLOCK_SECTION);

	put_le(&b, BYTE_ORDER_MAGIC, 4);
	put_le(&b, 1, 2);
	put_le(&b, 0, 2);
	put_le(&b, UINT64_MAX, 8); /* the section's length: not known */
	put_text(&b, OPT_SHB_USERAPPL, application);
	return finish(&b);
}

size_t rp_pcapng_interface(uint8_t *out, size_t size, const struct rp_pcapng_interface *i)
{
	struct block b = begin(out, size, BLOCK_INTERFACE);
	uint8_t resolution = NANOSECONDS;

	put_le(&b, LINKTYPE_ETHERNET, 2);
	put_le(&b, 0, 2);
	put_le(&b, i->snaplen, 4);
	put_text(&b, OPT_IF_NAME, i->name);
	put_text(&b, OPT_IF_DESCRIPTION, i->description);
	if (i->mac)
		put_option(&b, OPT_IF_MAC, i->mac, 6);
	put_option(&b, OPT_IF_TSRESOL, &resolution, 1);
	return finish(&b);
}

size_t rp_pcapng_packet(uint8_t *out, size_t size, const struct rp_pcapng_packet *p)
{
	struct block b = begin(out, size, BLOCK_PACKET);

	put_le(&b, p->interface, 4);
	put_time(&b, p->wall_ns);
	put_le(&b, p->captured, 4);
	put_le(&b, p->length, 4);
	put_padded(&b, p->data, p->captured);
	put_option_le(&b, OPT_EPB_FLAGS, p->sent ? FLAGS_OUTBOUND : FLAGS_INBOUND, 4);
	return finish(&b);
}

size_t rp_pcapng_statistics(uint8_t *out, size_t size, const struct rp_pcapng_statistics *s)
{
	struct block b = begin(out, size, BLOCK_STATISTICS);
	size_t length;

	put_le(&b, s->interface, 4);
	put_time(&b, s->now_ns);
	put_le(&b, OPT_ISB_START | 8 << 16, 4);
	put_time(&b, s->start_ns);
	put_le(&b, OPT_ISB_END | 8 << 16, 4);
	put_time(&b, s->now_ns);
	put_option_le(&b, OPT_ISB_IFRECV, s->received, 8);
	put_option_le(&b, OPT_ISB_IFDROP, s->dropped, 8);
	put_option_le(&b, OPT_ISB_FILTERACCEPT, s->accepted, 8);
	length = finish(&b);
	RP_ASSERT(length == 0 || length == RP_PCAPNG_STATISTICS_BYTES);
	return length;
}
