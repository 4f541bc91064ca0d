/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A look at protobuf bytes before, or instead of, unpacking them: fields one by one, without
 * allocation. protobuf-c unpacks recursively and without a bound on depth or count, so what a
 * client can nest is measured first.
 */

#include <stdbool.h>
#include <stdint.h>

#include <base/units.h>

struct etcd_wire {
	const uint8_t *at, *end;
	bool bad;
};

struct etcd_field {
	uint32_t number;
	uint8_t type;	      /**< 0 varint, 1 fixed 64, 2 bytes, 5 fixed 32 */
	uint64_t value;	      /**< types 0, 1, 5 */
	struct rp_span bytes; /**< type 2 */
};

static inline struct etcd_wire etcd_wire_of(struct rp_span s)
{
	return (struct etcd_wire){.at = s.data, .end = s.data + s.length};
}

/** False at the end, and when the bytes are no message (`bad`). */
bool etcd_wire_next(struct etcd_wire *w, struct etcd_field *f);

enum etcd_txn_shape {
	ETCD_TXN_FINE,
	ETCD_TXN_MALFORMED,
	ETCD_TXN_TOO_MANY, /**< operations in one list, or txns in each other */
};

/** Whether a TxnRequest may be unpacked; `depth_max` txns may be nested in each other. */
enum etcd_txn_shape etcd_wire_txn_shape(
	struct rp_span request, uint32_t ops_max, uint32_t depth_max);
