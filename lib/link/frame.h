/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The 24-byte header of every frame on a link, little-endian (docs/protocol.md has the layout):
 *
 *   0 u8 type   1 u8 flags   2 u16 fields   4 u32 handle   8 u32 length
 *   12 u32 epoch   16 u64 dispatcher   24 ... `length` bytes
 *
 * `fields` says which fields of a queue message follow (lib/deliver). `handle` routes the frame to
 * a shard of the receiver: the queue's hash where the type belongs to no stream, else the
 * receiver's own handle of the stream, whose top eight bits are its shard. (epoch, dispatcher) is
 * what the sender knows of the queue. PING and PONG belong to the link itself.
 */

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>

#include <base/bytes.h>
#include <base/qmsg.h>

#define RP_FRAME_HEADER_BYTES 24
/** Payload of one frame: larger messages are cut, so that streams interleave. */
#define RP_FRAME_CHUNK_BYTES 16384
/** Most bytes of the fields between header and payload. */
#define RP_FRAME_FIELDS_BYTES_MAX 512
/** Frames that a link hands up together. */
#define RP_LINK_BURST 32
/** Most that `length` may say on a link. */
#define RP_FRAME_LENGTH_MAX (RP_FRAME_CHUNK_BYTES + RP_FRAME_FIELDS_BYTES_MAX)

/*
 * name, number, routing (HASH: by the queue's hash; STREAM: by the handle; LINK: ends in the link;
 * RESERVED: a number that is taken and not yet spoken).
 */
#define RP_FRAME_TYPES(X)           \
	X(PING, 1, LINK)            \
	X(PONG, 2, LINK)            \
	X(OPEN, 3, HASH)            \
	X(OPENED, 4, STREAM)        \
	X(CLOSE, 5, STREAM)         \
	X(CREDIT, 6, STREAM)        \
	X(TOOK, 7, STREAM)          \
	X(REFUSED, 8, STREAM)       \
	X(FORWARD, 9, STREAM)       \
	X(DELIVER, 10, STREAM)      \
	X(ACCEPTED, 11, HASH)       \
	X(REJECTED, 12, HASH)       \
	X(QACK, 13, HASH)           \
	X(GET, 14, HASH)            \
	X(REPLY, 15, HASH)          \
	X(MOVED, 16, HASH)          \
	X(WITHDRAW, 17, HASH)       \
	X(RESUME, 18, HASH)         \
	X(BATCH, 19, RESERVED)      \
	X(CANCEL, 20, HASH)         \
	X(OUT, 21, RESERVED)        \
	X(OUT_END, 22, RESERVED)    \
	X(OUT_CREDIT, 23, RESERVED) \
	X(CLAIM, 24, HASH)          \
	X(HANDOVER, 25, HASH)

enum rp_frame_type {
#define X(name, number, routing) RP_FRAME_##name = number,
	RP_FRAME_TYPES(X)
#undef X
};

enum rp_frame_routing {
	RP_FRAME_ROUTE_NONE, /**< no such type */
	RP_FRAME_ROUTE_LINK,
	RP_FRAME_ROUTE_HASH,
	RP_FRAME_ROUTE_STREAM,
	RP_FRAME_ROUTE_RESERVED,
};

/** Flags 0x01..0x0f are those of base/qmsg.h. */
#define RP_FRAME_QMSG_FLAGS 0x0f
/** CREDIT: the sender of payload gives its unused credit back, or (from the receiver) it is back.
 */
#define RP_FRAME_RETURN 0x10
/** CLOSE: what is not taken yet is dropped by the receiver; the sender carries it another way. */
#define RP_FRAME_RESET 0x20
/** More of this message's payload follows in later frames. */
#define RP_FRAME_MORE 0x40
/** Continues the payload of an earlier frame; no fields. */
#define RP_FRAME_CONT 0x80

struct rp_frame_header {
	uint8_t type;
	uint8_t flags;
	uint16_t fields;
	uint32_t handle;
	uint32_t length; /**< bytes after the header */
	uint32_t epoch;
	uint64_t dispatcher;
};

static inline enum rp_frame_routing rp_frame_routing(uint8_t type)
{
	switch (type) {
#define X(name, number, routing) \
	case number:             \
		return RP_FRAME_ROUTE_##routing;
		RP_FRAME_TYPES(X)
#undef X
	default:
		return RP_FRAME_ROUTE_NONE;
	}
}

static inline void rp_frame_header_read(struct rp_frame_header *h, const void *bytes)
{
	struct rp_reader r = rp_reader_of(bytes, RP_FRAME_HEADER_BYTES);

	h->type = rp_read_u8(&r);
	h->flags = rp_read_u8(&r);
	h->fields = rp_read_le16(&r);
	h->handle = rp_read_le32(&r);
	h->length = rp_read_le32(&r);
	h->epoch = rp_read_le32(&r);
	h->dispatcher = rp_read_le64(&r);
}

/** Writes RP_FRAME_HEADER_BYTES to `bytes`. */
static inline void rp_frame_header_write(const struct rp_frame_header *h, void *bytes)
{
	struct rp_writer w = rp_writer_of(bytes, RP_FRAME_HEADER_BYTES);

	rp_write_u8(&w, h->type);
	rp_write_u8(&w, h->flags);
	rp_write_le16(&w, h->fields);
	rp_write_le32(&w, h->handle);
	rp_write_le32(&w, h->length);
	rp_write_le32(&w, h->epoch);
	rp_write_le64(&w, h->dispatcher);
}

/**
 * Which of this node's `shards` shards a received frame belongs to; -EINVAL when it names a shard
 * that does not exist or is of a type that belongs to no shard (a violation). REPLY goes by the
 * hash too: the shard that asks about a queue is the shard of its hash on every node.
 */
static inline int rp_frame_shard(const struct rp_frame_header *h, uint32_t shards)
{
	switch (rp_frame_routing(h->type)) {
	case RP_FRAME_ROUTE_HASH:
		return (int)rp_hash_pick(h->handle, shards);
	case RP_FRAME_ROUTE_STREAM:
		return h->handle >> 24 < shards ? (int)(h->handle >> 24) : -EINVAL;
	case RP_FRAME_ROUTE_NONE:
	case RP_FRAME_ROUTE_LINK:
	case RP_FRAME_ROUTE_RESERVED:
		break;
	}
	return -EINVAL;
}
