/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A message of the bus, as programs put it into Redis: one JSON object (spec/storage.md). Fields
 * that are not known here stay with the message and are written again.
 *
 *   1. rp_bus_message_parse(), or rp_bus_message_new() and fields set by hand with malloc'd texts.
 *   2. rp_bus_message_format() for its JSON.
 *   3. rp_bus_message_free().
 *
 * Any thread; nothing is shared.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <base/units.h>

struct json_t;

/** "xxxxxxxx-xxxx-4xxx-yxxx-xxxxxxxxxxxx" and its NUL. */
#define RP_BUS_ID_SIZE 37

/** Texts are never NULL. */
struct rp_bus_message {
	int64_t version;    /**< ver */
	char *id;	    /**< uid */
	char *command;	    /**< cmd */
	int64_t expiration; /**< exp: seconds from `now` on; not above 0: it has no end of its own
			     */
	int64_t retry;	    /**< try */
	char *data;	    /**< dat, in base64 */
	char *tag;	    /**< tag */
	uint32_t source;    /**< src */
	uint32_t *destinations; /**< dst */
	uint32_t destination_count;
	char *reply;	     /**< ret: the queue for answers */
	char *schema;	     /**< shm */
	int64_t now;	     /**< seconds since the epoch at its making; 0: it does not say */
	char *error;	     /**< err */
	struct json_t *rest; /**< fields by other names; NULL: none */
};

/** An empty one, version 1. */
struct rp_bus_message *rp_bus_message_new(void);
/** NULL is fine. */
void rp_bus_message_free(struct rp_bus_message *m);
struct rp_bus_message *rp_bus_message_copy(const struct rp_bus_message *m);
/** NULL: no JSON object, or a field of another type. */
struct rp_bus_message *rp_bus_message_parse(struct rp_span json);
/** Its JSON, malloc'd and ended by a NUL; NULL: a text is no UTF-8. */
char *rp_bus_message_format(const struct rp_bus_message *m, size_t *length);

/** A malloc'd copy of `text` takes the field's place. */
void rp_bus_text_set(char **field, const char *text);
/** The one destination that it has from now on. */
void rp_bus_message_set_destination(struct rp_bus_message *m, uint32_t destination);
/** `data` becomes the base64 of the bytes. */
void rp_bus_message_set_data(struct rp_bus_message *m, struct rp_span bytes);
/** The bytes of `data`, malloc'd; NULL: it is no base64. */
uint8_t *rp_bus_message_data(const struct rp_bus_message *m, size_t *length);

/**
 * What is left of its life at `wall_ms` since the epoch: never more than `expiration`, whatever the
 * clock of who made it said. False: it has no end of its own.
 */
bool rp_bus_message_ttl(const struct rp_bus_message *m, uint64_t wall_ms, uint64_t *ttl_ms);

/** A UUID of version 4 (RFC 9562 5.4) from random bytes. */
void rp_bus_id_format(const uint8_t random[RP_UUID_BYTES], char id[RP_BUS_ID_SIZE]);
/** The same, from the system's randomness. */
void rp_bus_id_new(char id[RP_BUS_ID_SIZE]);
