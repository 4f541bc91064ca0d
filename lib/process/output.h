/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What comes back of a process request: outputs, and why there are none. JSON is written and read
 * by jansson; an output that is no JSON object is one all the same, and not the last.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <base/units.h>

/** Why a request failed, as its requester is told. */
#define RP_PROCESS_CODES(X)                                                    \
	X(DEADLINE_EXCEEDED, "its time was over before it was answered")       \
	X(CANCELLED, "cancelled")                                              \
	X(NO_CONSUMER, "the last consumer that could answer it has left")      \
	X(REJECTED, "rejected by every consumer that could answer it")         \
	X(WORKER_LOST, "its worker was lost, and may have begun")              \
	X(TOO_LARGE, "an output was larger than max_bytes or the node allows") \
	X(OVERLOADED, "its queue was full, and dropped it")                    \
	X(INTERNAL, "it cannot be answered any more")

enum rp_process_code {
#define X(name, text) RP_PROCESS_##name,
	RP_PROCESS_CODES(X)
#undef X
		RP_PROCESS_CODE_COUNT,
};

const char *rp_process_code_name(enum rp_process_code code);
const char *rp_process_code_text(enum rp_process_code code);

/** {"v":1,"final":true,"error":{"code":..,"reason":..}}. `reason` NULL: the code's text. Caller
 * frees. */
char *rp_failure_write(enum rp_process_code code, const char *reason, size_t *length);
/** {"v":1,"data":..} with "final":true in the last; data NULL: without. Caller frees. */
char *rp_output_write(struct rp_span data, bool final, size_t *length);

struct rp_output {
	bool final;
	bool failed; /**< it has an error, with these: */
	enum rp_process_code code;
	char reason[256];
};
/** Any bytes. An unknown code counts as INTERNAL. */
void rp_output_read(struct rp_output *out, struct rp_span value);

/**
 * The bytes that an envelope or an output carries: of "data" where it is a text, of "data_base64"
 * decoded, of other data its JSON. Caller frees *copy. False: the value is none of ours; it is the
 * data.
 */
bool rp_process_data(struct rp_span value, uint8_t **copy, size_t *length);
