/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Answers as JSON, by the schemas in docs/schema/, whose `version` changes when a member goes or
 * changes its meaning; new members may come.
 */

#include <stdint.h>

#include <jansson.h>
#include <protobuf-c/protobuf-c.h>

#define JSON_VERSION 1

/** {"kind", "version", "node"}. Ids of nodes are texts: 64 bits are no number for everybody. */
json_t *json_head(const char *kind, uint64_t node);
/** Each field under its name; fixed64 as decimal text. */
json_t *json_message(const ProtobufCMessage *message);
/** A head with the fields of the answer, whose first is fixed64 `node`; printed. 0 or 1. */
int json_answer(const char *kind, const ProtobufCMessage *message);
/** A text, with what is no UTF-8 shown as it can be. */
json_t *json_text(const char *text);
/** take: on standard output. 0 or 1. */
int json_print(json_t *root);
