/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Bytes of the Deliver frames, without state (docs/protocol.md). A queue message is the header,
 * then the fields that the bits of header.fields name, in the order of the bits, then payload.
 */

#include <stdbool.h>
#include <stdint.h>

#include <base/qmsg.h>
#include <link/frame.h>

/* bit, name, bytes: fields of a queue message. A field that is absent is zero. */
#define DL_FIELDS(X)                                                                       \
	X(0, IDX, 8)                                                                       \
	X(1, ALLOC, 8)                                                                     \
	X(2, UUID, 16)                                                                     \
	X(3, PRODUCER, 24)                                                                 \
	X(4, TOKEN, 8)                                                                     \
	X(5, REVISION, 8)                                                                  \
	X(6, ATTEMPT, 4)                                                                   \
	X(7, COUNT, 4)                                                                     \
	X(8, STATUS, 1)                                                                    \
	X(9, TAIL, 1)	/* length of the tail, the first bytes of the payload */           \
	X(10, TOTAL, 4) /* there is a payload, of so many bytes over all frames */         \
	X(11, SEQ, 5)	/* control: the sender's shard and its sequence, echoed by TOOK */ \
	X(12, NAME, 1)	/* length of the queue's name, which follows */                    \
	X(13, HOLDER, 16)                                                                  \
	X(14, AGE, 12)	   /* us since it was put, deliveries that a client saw */         \
	X(15, PROCESS, 21) /* request, us left, length of the meta, kind, priority, flags */

enum dl_field {
#define X(bit, name, bytes) DL_FIELD_##name = 1 << bit,
	DL_FIELDS(X)
#undef X
		DL_FIELD_ALL = (1 << 16) - 1,
};

/* Handle of TOOK for control frames: no stream has this slot. */
#define DL_SLOT_CONTROL 0xffffffu
/* Set in the slots of streams towards us, so that neither end's handles look like the other's. */
#define DL_SLOT_RX 0x800000u

/* What goes with a queue message in a frame and is not of the message itself. */
struct dl_extra {
	bool has_total, has_seq;
	uint32_t total;
	uint8_t seq_shard;
	uint32_t seq;
};

struct dl_open {
	uint8_t kind; /* RP_FRAME_FORWARD or RP_FRAME_DELIVER */
	uint32_t handle;
	const uint8_t *name;
	uint8_t name_length;
};

struct dl_opened {
	uint32_t handle, messages;
	uint64_t bytes;
	uint8_t status;
};

struct dl_credit {
	uint32_t messages;
	uint64_t bytes;
};

struct dl_refused {
	uint32_t seq;
	uint8_t status;
};

struct dl_control_took {
	uint32_t seq;
	uint8_t shards, shard, links, link;
};

#define DL_OPENED_BYTES 20
#define DL_CREDIT_BYTES 16
#define DL_REFUSED_BYTES 8
#define DL_TOOK_BYTES 4
#define DL_CONTROL_TOOK_BYTES 8
#define DL_HEAD_BYTES_MAX (RP_FRAME_HEADER_BYTES + RP_FRAME_FIELDS_BYTES_MAX)

/* Frame type of a message type; they are one to one. */
uint8_t dl_frame_type(enum rp_qmsg_type type);
/* RP_QMSG_TYPE_COUNT when the frame carries no queue message. */
enum rp_qmsg_type dl_qmsg_type(uint8_t frame_type);

/*
 * Writes header and fields of `m` to `out` (DL_HEAD_BYTES_MAX); how many bytes. header->type,
 * flags (of the message), fields, epoch and dispatcher are filled from `m`; the caller has set
 * handle, other flags, and length to the payload's bytes in this frame, to which the fields are
 * added. The name goes in when `with_name`.
 */
uint32_t dl_encode(struct rp_frame_header *header, const struct rp_qmsg *m,
	const struct dl_extra *extra, bool with_name, uint8_t *out);
/*
 * Reads the fields after a header from `r`, which stands at the payload afterwards. The name in `m`
 * points into the bytes. False: malformed.
 */
bool dl_decode(const struct rp_frame_header *header, struct rp_reader *r, struct rp_qmsg *m,
	struct dl_extra *extra);

/* Bodies of the stream frames: writers return the length, readers are strict about it. */
uint32_t dl_open_write(const struct dl_open *o, uint8_t *out);
bool dl_open_read(struct dl_open *o, struct rp_reader *r);
uint32_t dl_opened_write(const struct dl_opened *o, uint8_t *out);
bool dl_opened_read(struct dl_opened *o, struct rp_reader *r);
uint32_t dl_credit_write(const struct dl_credit *c, uint8_t *out);
bool dl_credit_read(struct dl_credit *c, struct rp_reader *r);
uint32_t dl_refused_write(const struct dl_refused *f, uint8_t *out);
bool dl_refused_read(struct dl_refused *f, struct rp_reader *r);
uint32_t dl_took_write(uint32_t seq, uint8_t *out);
bool dl_took_read(uint32_t *seq, struct rp_reader *r);
uint32_t dl_control_took_write(const struct dl_control_took *t, uint8_t *out);
bool dl_control_took_read(struct dl_control_took *t, struct rp_reader *r);
