/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The envelope that makes a put a process request (spec/queues.md, "Process requests"): a JSON
 * object with "v":1 and "ttl_ms". Whatever else a value may be, it is a plain message; an envelope
 * that breaks a rule is refused with what is wrong about it, since its sender means it.
 *
 *   1. rp_envelope_parse() a put's value, on the control thread.
 *   2. rp_envelope_ceil() by the limits of the node: the envelope only lowers them.
 *   3. rp_envelope_clear() when nothing of it is looked at any more.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <base/units.h>
#include <process/meta.h>

struct json_t;

#define RP_ENVELOPE_VERSION 1
/** Objects and arrays within each other, those of `data` included. */
#define RP_ENVELOPE_DEPTH_MAX 64
/** A request may not live for longer: 2^40 ms. */
#define RP_ENVELOPE_TTL_MS_MAX (1ull << 40)

enum rp_envelope_kind {
	RP_ENVELOPE_NONE, /**< a plain message */
	RP_ENVELOPE_OK,
	RP_ENVELOPE_BAD, /**< *why says which rule it breaks */
};

struct rp_envelope {
	uint64_t ttl_ms;    /**< 1 or more */
	uint64_t max_bytes; /**< of one output; 0: not said */
	uint8_t priority;
	bool has_priority, fail_fast;
	struct rp_span reply_to; /**< empty: not said */
	uint32_t need_count;
	struct rp_span need[RP_PROCESS_NEEDS_MAX];
	struct json_t *doc; /**< what the spans point into */
};

/** *why is constant text. Only OK leaves something to be cleared. */
enum rp_envelope_kind rp_envelope_parse(
	struct rp_envelope *out, struct rp_span value, const char **why);
/** Harmless where nothing was parsed. */
void rp_envelope_clear(struct rp_envelope *e);

/** The limits of a node; 0 = none. */
struct rp_envelope_limits {
	uint64_t ttl_ms, output_bytes;
};
/** The lower of both counts. */
void rp_envelope_ceil(struct rp_envelope *e, const struct rp_envelope_limits *limits);
/** As the shards have it. Spans point to where those of `e` do. */
struct rp_meta rp_envelope_meta(const struct rp_envelope *e);

/**
 * The JSON of an envelope with that data: text where it is UTF-8, else base64 in "data_base64".
 * Caller frees; NULL: an empty or oversized field.
 */
char *rp_envelope_write(const struct rp_envelope *e, struct rp_span data, size_t *length);
