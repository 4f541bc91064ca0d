/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * An HTTP/2 peer made of bytes: frames are put together by hand, right or wrong, and what comes
 * back is cut into frames. For tests of what a server does with peers that no library would play.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <nghttp2/nghttp2.h>

#include <grpc/loop.h>

#define RAW_BYTES_MAX (1u << 20)
#define RAW_TEXT_BYTES 256

/* Bytes on their way out. */
struct raw_buf {
	uint8_t data[RAW_BYTES_MAX];
	size_t length;
};

struct raw_client {
	int fd;
	struct rp_loop *loop;
	nghttp2_hd_inflater *inflater;
	uint8_t in[RAW_BYTES_MAX];
	size_t in_length;
	bool ended;
	/* what came */
	unsigned frames[256]; /* by type; acknowledgements are not counted */
	unsigned acks;
	uint32_t goaway_error, reset_error; /* UINT32_MAX: none */
	int32_t reset_stream;
	size_t data_bytes;
	unsigned stream_ends;
	int grpc_status; /* of the last header block, -1 */
	char http_status[8], message[RAW_TEXT_BYTES], content_type[RAW_TEXT_BYTES];
};

void raw_put(struct raw_buf *b, const void *data, size_t length);
void raw_frame(struct raw_buf *b, uint8_t type, uint8_t flags, uint32_t stream, const void *data,
	size_t length);
/** The preface and an empty SETTINGS. */
void raw_preface(struct raw_buf *b);
/** A literal header field, not indexed, appended to a block. */
void raw_header(struct raw_buf *block, const char *name, const char *value);
/** HEADERS of a gRPC request. */
void raw_request(struct raw_buf *b, uint32_t stream, const char *path, bool end);
/** DATA with one gRPC message. */
void raw_message(struct raw_buf *b, uint32_t stream, const void *data, uint32_t length, bool end);

void raw_open(struct raw_client *c, struct rp_loop *loop, int fd);
void raw_close(struct raw_client *c);
/** Writes all, with turns of the loop; false when the server has closed. */
bool raw_send(struct raw_client *c, const struct raw_buf *b);
/** Reads and cuts what has come, with turns of the loop, until nothing comes for some turns. */
void raw_settle(struct raw_client *c);
