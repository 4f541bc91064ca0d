/* SPDX-License-Identifier: Apache-2.0 */
#include <base/assert.h>
#include <base/bytes.h>
#include <process/meta.h>
#include <route/record.h>

uint32_t rp_meta_write(const struct rp_meta *m, uint8_t out[RP_META_BYTES_MAX])
{
	struct rp_writer w = rp_writer_of(out, RP_META_BYTES_MAX);

	RP_ASSERT(m->reply_to.length <= RP_NAME_BYTES_MAX && m->need_count <= RP_PROCESS_NEEDS_MAX);
	rp_write_le32(&w, m->max_bytes);
	rp_write_u8(&w, (uint8_t)m->reply_to.length);
	rp_write_bytes(&w, m->reply_to.data, m->reply_to.length);
	rp_write_u8(&w, (uint8_t)m->need_count);
	for (uint32_t i = 0; i < m->need_count; i++) {
		rp_write_u8(&w, (uint8_t)m->need[i].length);
		rp_write_bytes(&w, m->need[i].data, m->need[i].length);
	}
	RP_ASSERT(!w.bad);
	return (uint32_t)(w.pos - out);
}

bool rp_meta_read(struct rp_meta *out, struct rp_span bytes)
{
	struct rp_reader r = rp_reader_of(bytes.data, bytes.length);

	*out = (struct rp_meta){0};
	out->max_bytes = rp_read_le32(&r);
	out->reply_to.length = rp_read_u8(&r);
	out->reply_to.data = rp_read_bytes(&r, out->reply_to.length);
	out->need_count = rp_read_u8(&r);
	if (r.bad || out->need_count > RP_PROCESS_NEEDS_MAX)
		return false;
	for (uint32_t i = 0; i < out->need_count; i++) {
		out->need[i].length = rp_read_u8(&r);
		out->need[i].data = rp_read_bytes(&r, out->need[i].length);
		if (r.bad || out->need[i].length == 0)
			return false;
	}
	return r.pos == r.end;
}

uint32_t rp_meta_number_write(uint32_t stream, uint32_t number, uint8_t out[RP_META_BYTES_MAX])
{
	uint8_t bytes[4] = {(uint8_t)stream, (uint8_t)(stream >> 8), (uint8_t)(stream >> 16),
		(uint8_t)(stream >> 24)};
	const struct rp_meta m = {.max_bytes = number, .reply_to = {bytes, sizeof(bytes)}};

	return rp_meta_write(&m, out);
}

bool rp_meta_number_read(struct rp_span bytes, uint32_t *stream, uint32_t *number)
{
	struct rp_meta m;
	struct rp_reader r;

	if (bytes.length == 0 || !rp_meta_read(&m, bytes) || m.reply_to.length != 4)
		return false;
	r = rp_reader_of(m.reply_to.data, m.reply_to.length);
	*stream = rp_read_le32(&r);
	*number = m.max_bytes;
	return *number > 0;
}

bool rp_meta_is_met(const struct rp_meta *m, struct rp_span cap)
{
	for (uint32_t i = 0; i < m->need_count; i++) {
		if (!rp_route_cap_has(cap, m->need[i]))
			return false;
	}
	return true;
}
