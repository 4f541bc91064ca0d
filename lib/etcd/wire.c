/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "wire_priv.h"

static uint64_t wire_varint(struct etcd_wire *w)
{
	uint64_t value = 0;

	for (unsigned shift = 0; shift < 70; shift += 7) {
		uint8_t b;

		if (w->at == w->end)
			break;
		b = *w->at++;
		if (shift < 64)
			value |= (uint64_t)(b & 0x7f) << shift;
		if (!(b & 0x80))
			return value;
	}
	w->bad = true;
	return 0;
}

static const uint8_t *wire_take(struct etcd_wire *w, uint64_t n)
{
	const uint8_t *p = w->at;

	if ((uint64_t)(w->end - w->at) < n) {
		w->bad = true;
		return NULL;
	}
	w->at += n;
	return p;
}

bool etcd_wire_next(struct etcd_wire *w, struct etcd_field *f)
{
	uint64_t tag;
	const uint8_t *p;

	if (w->bad || w->at == w->end)
		return false;
	memset(f, 0, sizeof(*f));
	tag = wire_varint(w);
	f->number = (uint32_t)(tag >> 3);
	f->type = tag & 7;
	switch (f->type) {
	case 0:
		f->value = wire_varint(w);
		break;
	case 1:
		p = wire_take(w, 8);
		if (p)
			memcpy(&f->value, p, 8);
		break;
	case 2:
		f->bytes.length = wire_varint(w);
		f->bytes.data = w->bad ? NULL : wire_take(w, f->bytes.length);
		break;
	case 5:
		p = wire_take(w, 4);
		if (p)
			memcpy(&f->value, p, 4);
		break;
	default:
		w->bad = true;
	}
	if (f->number == 0)
		w->bad = true;
	return !w->bad;
}

#define TXN_COMPARE 1
#define TXN_SUCCESS 2
#define TXN_FAILURE 3
#define OP_TXN 4

static enum etcd_txn_shape op_shape(struct rp_span op, uint32_t ops_max, uint32_t depth_left)
{
	struct etcd_wire w = etcd_wire_of(op);
	enum etcd_txn_shape shape = ETCD_TXN_FINE;
	struct etcd_field f;

	/* A field given twice is merged: each of them is looked at, and none may be too deep. */
	while (shape == ETCD_TXN_FINE && etcd_wire_next(&w, &f))
		if (f.number == OP_TXN && f.type == 2)
			shape = depth_left == 0
					? ETCD_TXN_TOO_MANY
					: etcd_wire_txn_shape(f.bytes, ops_max, depth_left - 1);
	return shape == ETCD_TXN_FINE && w.bad ? ETCD_TXN_MALFORMED : shape;
}

enum etcd_txn_shape etcd_wire_txn_shape(
	struct rp_span request, uint32_t ops_max, uint32_t depth_max)
{
	struct etcd_wire w = etcd_wire_of(request);
	uint32_t counts[4] = {0};
	struct etcd_field f;

	while (etcd_wire_next(&w, &f)) {
		enum etcd_txn_shape shape = ETCD_TXN_FINE;

		if (f.number > TXN_FAILURE || f.type != 2)
			continue;
		if (++counts[f.number] > ops_max)
			return ETCD_TXN_TOO_MANY;
		if (f.number != TXN_COMPARE)
			shape = op_shape(f.bytes, ops_max, depth_max);
		if (shape != ETCD_TXN_FINE)
			return shape;
	}
	return w.bad ? ETCD_TXN_MALFORMED : ETCD_TXN_FINE;
}
