/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Values of puts and of outputs, and the meta of a process request. What is an envelope is written
 * back and is the same; its meta is read as it was written.
 */

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <base/assert.h>
#include <process/envelope.h>
#include <process/output.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_meta(const struct rp_meta *m)
{
	uint8_t bytes[RP_META_BYTES_MAX];
	uint32_t n = rp_meta_write(m, bytes);
	struct rp_meta back;

	RP_ASSERT(rp_meta_read(&back, (struct rp_span){bytes, n}));
	RP_ASSERT(back.max_bytes == m->max_bytes && back.need_count == m->need_count &&
		  back.reply_to.length == m->reply_to.length);
}

static void check_envelope(struct rp_span value)
{
	struct rp_envelope e, back;
	struct rp_meta meta;
	const char *why;
	size_t length;
	char *text;

	if (rp_envelope_parse(&e, value, &why) != RP_ENVELOPE_OK)
		return;
	RP_ASSERT(e.ttl_ms >= 1 && e.priority <= RP_PROCESS_PRIORITY_MAX &&
		  e.need_count <= RP_PROCESS_NEEDS_MAX);
	meta = rp_envelope_meta(&e);
	check_meta(&meta);
	text = rp_envelope_write(&e, value, &length);
	RP_ASSERT(text != NULL);
	RP_ASSERT(rp_envelope_parse(&back, (struct rp_span){(const uint8_t *)text, length}, &why) ==
		  RP_ENVELOPE_OK);
	RP_ASSERT(back.ttl_ms == e.ttl_ms && back.max_bytes == e.max_bytes &&
		  back.need_count == e.need_count && back.priority == e.priority);
	rp_envelope_clear(&back);
	rp_envelope_clear(&e);
	free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	/* Of its own size, so that a read past the end is seen. */
	uint8_t *copy = malloc(size + (size == 0)), *inner;
	struct rp_span value = {copy, size};
	struct rp_output out;
	struct rp_meta meta;
	size_t length;

	RP_ASSERT(copy != NULL);
	if (size > 0)
		memcpy(copy, data, size);
	check_envelope(value);
	rp_output_read(&out, value);
	RP_ASSERT(!out.failed || out.final);
	if (rp_process_data(value, &inner, &length))
		free(inner);
	if (rp_meta_read(&meta, value))
		check_meta(&meta);
	free(copy);
	return 0;
}
