/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What the two ends of ringperf say to each other. A message is a header and a body; on a stream
 * messages follow each other, raw they are one a frame behind an Ethernet header. Little endian.
 *
 *   client: START -> server: STARTED
 *   client: DATA ...            (rate, bulk)      or REQUEST -> server: REPLY, one at a time (rr)
 *   client: DONE -> server: RESULT, what it received
 *   ... and so on for each run; client: BYE -> server: BYE where frames may be lost
 */

#include <stdint.h>
#include <string.h>

#include <rte_byteorder.h>

#include <base/units.h>

#define PERF_MESSAGE_KINDS(X) \
	X(START)              \
	X(STARTED)            \
	X(DATA)               \
	X(REQUEST)            \
	X(REPLY)              \
	X(DONE)               \
	X(RESULT)             \
	X(BYE)

enum perf_message_kind {
#define X(name) PERF_MESSAGE_##name,
	PERF_MESSAGE_KINDS(X)
#undef X
		PERF_MESSAGE_KIND_COUNT,
};

struct perf_header {
	uint32_t bytes; /**< of the message, header included */
	uint16_t kind;
	uint16_t run; /**< which of the client's runs: what is late from another is not counted */
	uint64_t seq; /**< of DATA, REQUEST and REPLY: counts from 0 in each run */
};

/** Body of START, DONE and RESULT. */
struct perf_body {
	uint32_t test, size; /**< START */
	uint64_t messages, bytes, sum;
	uint64_t faults; /**< RESULT: messages out of order, or of a wrong size */
};

#define PERF_HEADER_BYTES 16
#define PERF_BODY_BYTES 40
/** A message of rate, rr and bulk has a header at least. */
#define PERF_MESSAGE_MIN PERF_HEADER_BYTES
#define PERF_MESSAGE_MAX (1u << 20)
#define PERF_CONTROL_BYTES (PERF_HEADER_BYTES + PERF_BODY_BYTES)
#define PERF_ETHER_BYTES 14
#define PERF_ETHER_TYPE 0x88b5 /* IEEE 802 local experimental 1 */

_Static_assert(sizeof(struct perf_header) == PERF_HEADER_BYTES, "as on the wire");
_Static_assert(sizeof(struct perf_body) == PERF_BODY_BYTES, "as on the wire");

static inline void perf_header_write(void *to, const struct perf_header *h)
{
	struct perf_header w = {
		.bytes = rte_cpu_to_le_32(h->bytes),
		.kind = rte_cpu_to_le_16(h->kind),
		.run = rte_cpu_to_le_16(h->run),
		.seq = rte_cpu_to_le_64(h->seq),
	};

	memcpy(to, &w, sizeof(w));
}

static inline struct perf_header perf_header_read(const void *from)
{
	struct perf_header w;

	memcpy(&w, from, sizeof(w));
	return (struct perf_header){
		.bytes = rte_le_to_cpu_32(w.bytes),
		.kind = rte_le_to_cpu_16(w.kind),
		.run = rte_le_to_cpu_16(w.run),
		.seq = rte_le_to_cpu_64(w.seq),
	};
}

static inline struct perf_body perf_body_swap(struct perf_body b)
{
	return (struct perf_body){
		.test = rte_cpu_to_le_32(b.test),
		.size = rte_cpu_to_le_32(b.size),
		.messages = rte_cpu_to_le_64(b.messages),
		.bytes = rte_cpu_to_le_64(b.bytes),
		.sum = rte_cpu_to_le_64(b.sum),
		.faults = rte_cpu_to_le_64(b.faults),
	};
}
