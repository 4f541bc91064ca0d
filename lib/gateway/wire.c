/* SPDX-License-Identifier: Apache-2.0 */
#include "wire_priv.h"

static bool wire_varint(struct gateway_wire *w, uint64_t *out)
{
	*out = 0;
	for (unsigned shift = 0; shift < 64 && w->at < w->end; shift += 7) {
		uint8_t b = *w->at++;

		*out |= (uint64_t)(b & 0x7f) << shift;
		if (!(b & 0x80))
			return true;
	}
	return false;
}

static bool wire_fixed(struct gateway_wire *w, size_t bytes, uint64_t *out)
{
	*out = 0;
	if ((size_t)(w->end - w->at) < bytes)
		return false;
	memcpy(out, w->at, bytes);
	w->at += bytes;
	return true;
}

bool gateway_wire_value(struct gateway_wire *w, unsigned type, struct gateway_field *f)
{
	uint64_t length;

	switch (type) {
	case 0:
		return wire_varint(w, &f->number);
	case 1:
		return wire_fixed(w, 8, &f->number);
	case 5:
		return wire_fixed(w, 4, &f->number);
	case 2:
		if (!wire_varint(w, &length) || length > (size_t)(w->end - w->at))
			return false;
		f->data = w->at;
		f->length = (size_t)length;
		w->at += length;
		return true;
	default:
		return false;
	}
}

bool gateway_wire_next(struct gateway_wire *w, struct gateway_field *f)
{
	uint64_t tag;

	if (w->bad || w->at == w->end)
		return false;
	memset(f, 0, sizeof(*f));
	w->bad = !wire_varint(w, &tag) || !gateway_wire_value(w, tag & 7, f);
	f->id = (uint32_t)(tag >> 3);
	f->type = tag & 7;
	return !w->bad;
}
