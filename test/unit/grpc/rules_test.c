/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The rules of HTTP/2 (RFC 9113) and of its headers (RFC 7541), one case each, in the order of the
 * RFC's sections: what a server answers to a peer that breaks one, and to one that stays just
 * inside. After each the other connection works.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <cmocka.h>

#include <grpc/server.h>

#include "raw_client.h"

#define GOAWAY(code) NGHTTP2_##code, UINT32_MAX
#define RESET(code) UINT32_MAX, NGHTTP2_##code
#define FINE UINT32_MAX, UINT32_MAX
#define HOLD "/t.S/Hold"
#define ECHO "/t.S/Echo"
#define FRAME_BYTES 16384u

static struct rp_loop *loop;
static struct rp_grpc_server *server;
static struct raw_client *client, *other;
static struct raw_buf *out, *block;
static uint8_t zeros[FRAME_BYTES + 1];

static void echo_message(struct rp_grpc_call *call, const uint8_t *data, size_t length, void *ctx)
{
	rp_grpc_call_reply(call, data, length);
}

static const struct rp_grpc_call_ops echo_ops = {.on_message = echo_message};
static const struct rp_grpc_call_ops hold_ops = {0};
static const struct rp_grpc_method methods[] = {
	{ECHO, RP_GRPC_UNARY, &echo_ops},
	{HOLD, RP_GRPC_BIDI, &hold_ops},
};

static struct raw_client *connect_raw(void)
{
	struct raw_client *c = malloc(sizeof(*c));
	int fds[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
	assert_int_equal(rp_grpc_server_attach(server, fds[0], NULL), 0);
	raw_open(c, loop, fds[1]);
	return c;
}

static void disconnect(struct raw_client **c)
{
	raw_close(*c);
	free(*c);
	*c = NULL;
}

static int setup(void **state)
{
	struct rp_grpc_server_config config = rp_grpc_server_config_default();

	config.limits.streams = 100;
	loop = rp_loop_new();
	server = rp_grpc_server_new(loop, &config);
	assert_int_equal(rp_grpc_server_add_methods(server, methods, RP_ARRAY_SIZE(methods)), 0);
	out = calloc(1, sizeof(*out));
	block = calloc(1, sizeof(*block));
	other = connect_raw();
	return 0;
}

static int teardown(void **state)
{
	disconnect(&other);
	rp_grpc_server_destroy(server);
	rp_loop_destroy(loop);
	free(out);
	free(block);
	return 0;
}

/* ---- frames of the cases ---- */

static void frame(uint8_t type, uint8_t flags, uint32_t stream, const void *data, size_t length)
{
	raw_frame(out, type, flags, stream, data, length);
}

static void u32_frame(uint8_t type, uint32_t stream, uint32_t number)
{
	uint8_t data[4] = {(uint8_t)(number >> 24), (uint8_t)(number >> 16), (uint8_t)(number >> 8),
		(uint8_t)number};

	frame(type, 0, stream, data, sizeof(data));
}

static void setting(uint16_t id, uint32_t value)
{
	uint8_t data[6] = {(uint8_t)(id >> 8), (uint8_t)id, (uint8_t)(value >> 24),
		(uint8_t)(value >> 16), (uint8_t)(value >> 8), (uint8_t)value};

	frame(NGHTTP2_SETTINGS, 0, 0, data, sizeof(data));
}

static void request_block(void)
{
	block->length = 0;
	raw_header(block, ":method", "POST");
	raw_header(block, ":scheme", "http");
	raw_header(block, ":path", ECHO);
	raw_header(block, "content-type", "application/grpc");
}

/* HEADERS of a request with what was added to the block, then its message. */
static void send_block(uint32_t stream)
{
	frame(NGHTTP2_HEADERS, NGHTTP2_FLAG_END_HEADERS, stream, block->data, block->length);
	raw_message(out, stream, "x", 1, true);
}

static void echo(uint32_t stream)
{
	raw_request(out, stream, ECHO, false);
	raw_message(out, stream, "x", 1, true);
}

/* ---- 4: frames ---- */

static void unknown_type(void)
{
	frame(0x16, 0, 0, zeros, 8);
	echo(1);
}

static void unknown_flags(void)
{
	frame(NGHTTP2_PING, 0xfe, 0, zeros, 8);
	echo(1);
}

static void data_of_16384(void)
{
	uint8_t *data = calloc(1, FRAME_BYTES);

	raw_request(out, 1, ECHO, false);
	data[3] = (FRAME_BYTES - 5) >> 8;
	data[4] = (uint8_t)(FRAME_BYTES - 5);
	frame(NGHTTP2_DATA, NGHTTP2_FLAG_END_STREAM, 1, data, FRAME_BYTES);
	free(data);
}

static void data_of_16385(void)
{
	raw_request(out, 1, HOLD, false);
	frame(NGHTTP2_DATA, 0, 1, zeros, FRAME_BYTES + 1);
}

static void headers_of_16385(void)
{
	frame(NGHTTP2_HEADERS, NGHTTP2_FLAG_END_HEADERS, 1, zeros, FRAME_BYTES + 1);
}

static void block_then(uint8_t type, uint32_t stream, const void *data, size_t length)
{
	request_block();
	frame(NGHTTP2_HEADERS, 0, 1, block->data, block->length);
	frame(type, 0, stream, data, length);
}

static void block_then_priority(void)
{
	block_then(NGHTTP2_PRIORITY, 1, zeros, 5);
}

static void block_then_other(void)
{
	block_then(NGHTTP2_HEADERS, 3, block->data, block->length);
}

static void block_then_unknown(void)
{
	block_then(0x16, 0, zeros, 8);
}

static void block_then_data(void)
{
	block_then(NGHTTP2_DATA, 1, "x", 1);
}

/* ---- 5: streams ---- */

static void half_closed_data(void)
{
	raw_request(out, 1, HOLD, true);
	frame(NGHTTP2_DATA, NGHTTP2_FLAG_END_STREAM, 1, "x", 1);
}

static void half_closed_headers(void)
{
	raw_request(out, 1, HOLD, true);
	raw_request(out, 1, HOLD, true);
}

static void half_closed_continuation(void)
{
	raw_request(out, 1, HOLD, true);
	frame(NGHTTP2_CONTINUATION, NGHTTP2_FLAG_END_HEADERS, 1, "x", 1);
}

/* What was on its way when a stream was reset is not told from more that came later. */
static void reset_then_data(void)
{
	raw_request(out, 1, HOLD, false);
	u32_frame(NGHTTP2_RST_STREAM, 1, NGHTTP2_CANCEL);
	frame(NGHTTP2_DATA, 0, 1, "x", 1);
	echo(3);
}

static void reset_then_headers(void)
{
	raw_request(out, 1, HOLD, false);
	u32_frame(NGHTTP2_RST_STREAM, 1, NGHTTP2_CANCEL);
	raw_request(out, 1, HOLD, true);
}

static void reset_then_continuation(void)
{
	raw_request(out, 1, HOLD, false);
	u32_frame(NGHTTP2_RST_STREAM, 1, NGHTTP2_CANCEL);
	frame(NGHTTP2_CONTINUATION, NGHTTP2_FLAG_END_HEADERS, 1, "x", 1);
}

static void even_stream(void)
{
	raw_request(out, 2, ECHO, true);
}

static void older_stream(void)
{
	raw_request(out, 5, HOLD, false);
	raw_request(out, 3, HOLD, false);
}

static void too_many_streams(void)
{
	for (uint32_t i = 0; i < 101; i++)
		raw_request(out, 1 + 2 * i, HOLD, false);
}

static void own_dependency(void)
{
	request_block();
	memmove(block->data + 5, block->data, block->length);
	memcpy(block->data, "\0\0\0\1\x10", 5);
	frame(NGHTTP2_HEADERS, NGHTTP2_FLAG_END_HEADERS | NGHTTP2_FLAG_PRIORITY, 1, block->data,
		block->length + 5);
}

/* ---- 6: each frame's own rules ---- */

static void data_all_padding(void)
{
	raw_request(out, 1, ECHO, false);
	frame(NGHTTP2_DATA, NGHTTP2_FLAG_PADDED, 1, "\x03xxx", 4);
	raw_message(out, 1, "x", 1, true);
}

static void headers_zero(void)
{
	raw_request(out, 0, ECHO, true);
}

static void headers_padding(void)
{
	frame(NGHTTP2_HEADERS, NGHTTP2_FLAG_PADDED | NGHTTP2_FLAG_END_HEADERS, 1, "\x09x", 2);
}

static void window_over_settings(void)
{
	raw_request(out, 1, HOLD, false);
	u32_frame(NGHTTP2_WINDOW_UPDATE, 1, 0x7fffffff - 65535);
	setting(NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 65536);
}

static void continuations(void)
{
	request_block();
	frame(NGHTTP2_HEADERS, 0, 1, block->data, 10);
	frame(NGHTTP2_CONTINUATION, 0, 1, block->data + 10, 1);
	frame(NGHTTP2_CONTINUATION, 0, 1, NULL, 0);
	frame(NGHTTP2_CONTINUATION, NGHTTP2_FLAG_END_HEADERS, 1, block->data + 11,
		block->length - 11);
	raw_message(out, 1, "x", 1, true);
}

static void continuation_zero(void)
{
	block_then(NGHTTP2_CONTINUATION, 0, "x", 1);
}

static void continuation_after_data(void)
{
	raw_request(out, 1, HOLD, false);
	raw_message(out, 1, "x", 1, false);
	frame(NGHTTP2_CONTINUATION, NGHTTP2_FLAG_END_HEADERS, 1, "x", 1);
}

/* ---- 8: requests ---- */

static void header_upgrade_alone(void)
{
	request_block();
	raw_header(block, "upgrade", "x");
	frame(NGHTTP2_HEADERS, NGHTTP2_FLAG_END_HEADERS | NGHTTP2_FLAG_END_STREAM, 1, block->data,
		block->length);
}

static void header_path_empty(void)
{
	block->length = 0;
	raw_header(block, ":method", "POST");
	raw_header(block, ":scheme", "http");
	raw_header(block, ":path", "");
	raw_header(block, "content-type", "application/grpc");
	send_block(1);
}

static void trailers(void)
{
	raw_request(out, 1, ECHO, false);
	raw_message(out, 1, "x", 1, false);
	block->length = 0;
	raw_header(block, "checksum", "1");
	frame(NGHTTP2_HEADERS, NGHTTP2_FLAG_END_HEADERS | NGHTTP2_FLAG_END_STREAM, 1, block->data,
		block->length);
}

static void trailers_pseudo(void)
{
	raw_request(out, 1, HOLD, false);
	block->length = 0;
	raw_header(block, ":method", "POST");
	frame(NGHTTP2_HEADERS, NGHTTP2_FLAG_END_HEADERS | NGHTTP2_FLAG_END_STREAM, 1, block->data,
		block->length);
}

static void trailers_without_end(void)
{
	raw_request(out, 1, HOLD, false);
	block->length = 0;
	raw_header(block, "checksum", "1");
	frame(NGHTTP2_HEADERS, NGHTTP2_FLAG_END_HEADERS, 1, block->data, block->length);
}

/* ---- RFC 7541 ---- */

static void hpack_table_late(void)
{
	request_block();
	raw_put(block, "\x20", 1);
	send_block(1);
}

/* ---- the table ---- */

struct rule {
	const char *name;
	/** Of GOAWAY and of RST_STREAM; UINT32_MAX: none. */
	uint32_t goaway, reset;
	/** The gRPC status of the last answer, -1: none. */
	int status;
	/** What is sent: by this function, */
	void (*send)(void);
	/** or a request with one more header, */
	const char *header, *value;
	/** or one frame, behind the HEADERS of stream 1 with `open`, */
	uint8_t type, flags;
	bool open;
	uint32_t stream;
	const char *data;
	size_t length;
	/** and then a request that is answered, on this stream. */
	uint32_t echo;
};

#define ONE(frame, flag, id, bytes)                                                             \
	.type = NGHTTP2_##frame, .flags = NGHTTP2_FLAG_##flag, .stream = (id), .data = (bytes), \
	.length = sizeof(bytes) - 1
#define OPEN_ONE(frame, flag, id, bytes) ONE(frame, flag, id, bytes), .open = true
#define WITH(text, content) .header = (text), .value = (content)

/*
 * In three places nghttp2 is milder than the RFC, by intent: HEADERS on a stream that is closed or
 * was passed over are ignored, since a peer may have sent them before it heard of the stream's end;
 * a window that SETTINGS makes too large ends its stream, not all of the connection.
 */
static const struct rule rules[] = {
	{"4.1 a frame of no known type", FINE, 0, .send = unknown_type},
	{"4.1 flags of no meaning", FINE, 0, .send = unknown_flags},
	{"4.1 the reserved bit", FINE, 0, ONE(PING, NONE, 0x80000000, "\0\0\0\0\0\0\0\0"),
		.echo = 1},
	{"4.2 DATA of 16384 bytes", FINE, 0, .send = data_of_16384},
	{"4.2 DATA of 16385 bytes", GOAWAY(FRAME_SIZE_ERROR), -1, .send = data_of_16385},
	{"4.2 HEADERS of 16385 bytes", GOAWAY(FRAME_SIZE_ERROR), -1, .send = headers_of_16385},
	{"4.3 a block that is none", GOAWAY(COMPRESSION_ERROR), -1,
		ONE(HEADERS, END_HEADERS, 1, "\xff\xff\xff\xff\xff\xff")},
	{"4.3 PRIORITY inside a block", GOAWAY(PROTOCOL_ERROR), -1, .send = block_then_priority},
	{"4.3 HEADERS of another stream inside a block", GOAWAY(PROTOCOL_ERROR), -1,
		.send = block_then_other},
	{"5.5 an unknown frame inside a block", GOAWAY(PROTOCOL_ERROR), -1,
		.send = block_then_unknown},
	{"6.10 DATA inside a block", GOAWAY(PROTOCOL_ERROR), -1, .send = block_then_data},
	{"5.1 idle: DATA", GOAWAY(PROTOCOL_ERROR), -1, ONE(DATA, END_STREAM, 1, "x")},
	{"5.1 idle: RST_STREAM", GOAWAY(PROTOCOL_ERROR), -1,
		ONE(RST_STREAM, NONE, 1, "\x00\x00\x00\x08")},
	{"5.1 idle: WINDOW_UPDATE", GOAWAY(PROTOCOL_ERROR), -1,
		ONE(WINDOW_UPDATE, NONE, 1, "\x00\x00\x00\x64")},
	{"5.1 idle: CONTINUATION", GOAWAY(PROTOCOL_ERROR), -1,
		ONE(CONTINUATION, END_HEADERS, 1, "x")},
	{"5.1 half-closed: DATA", GOAWAY(STREAM_CLOSED), -1, .send = half_closed_data},
	{"5.1 half-closed: HEADERS", GOAWAY(STREAM_CLOSED), -1, .send = half_closed_headers},
	{"5.1 half-closed: CONTINUATION", GOAWAY(PROTOCOL_ERROR), -1,
		.send = half_closed_continuation},
	{"5.1 closed: DATA", FINE, 0, .send = reset_then_data},
	{"5.1 closed: HEADERS", FINE, -1, .send = reset_then_headers},
	{"5.1 closed: CONTINUATION", GOAWAY(PROTOCOL_ERROR), -1, .send = reset_then_continuation},
	{"5.1.1 an even stream", GOAWAY(PROTOCOL_ERROR), -1, .send = even_stream},
	{"5.1.1 a stream below the last", FINE, -1, .send = older_stream},
	{"5.1.2 one stream too many", RESET(REFUSED_STREAM), -1, .send = too_many_streams},
	{"5.3.1 a stream that depends on itself", GOAWAY(PROTOCOL_ERROR), -1,
		.send = own_dependency},
	{"5.3.1 the same by PRIORITY", GOAWAY(PROTOCOL_ERROR), -1,
		OPEN_ONE(PRIORITY, NONE, 1, "\0\0\0\1\x10")},
	{"6.1 DATA on stream 0", GOAWAY(PROTOCOL_ERROR), -1, ONE(DATA, NONE, 0, "x")},
	{"6.1 more padding than frame", GOAWAY(PROTOCOL_ERROR), -1,
		OPEN_ONE(DATA, PADDED, 1, "\x05xxx")},
	{"6.1 nothing but padding", FINE, 0, .send = data_all_padding},
	{"6.2 HEADERS on stream 0", GOAWAY(PROTOCOL_ERROR), -1, .send = headers_zero},
	{"6.2 more padding than frame", GOAWAY(PROTOCOL_ERROR), -1, .send = headers_padding},
	{"6.3 PRIORITY on stream 0", GOAWAY(PROTOCOL_ERROR), -1,
		ONE(PRIORITY, NONE, 0, "\0\0\0\0\0")},
	{"6.3 PRIORITY of 4 bytes", GOAWAY(FRAME_SIZE_ERROR), -1,
		OPEN_ONE(PRIORITY, NONE, 1, "\0\0\0\0")},
	{"6.4 RST_STREAM on stream 0", GOAWAY(PROTOCOL_ERROR), -1,
		ONE(RST_STREAM, NONE, 0, "\x00\x00\x00\x08")},
	{"6.4 RST_STREAM of 3 bytes", GOAWAY(FRAME_SIZE_ERROR), -1,
		OPEN_ONE(RST_STREAM, NONE, 1, "\0\0\0")},
	{"7 RST_STREAM with a code of no meaning", FINE, 0,
		OPEN_ONE(RST_STREAM, NONE, 1, "\x00\xab\xcd\xef"), .echo = 3},
	{"6.5 an acknowledgement with values", GOAWAY(FRAME_SIZE_ERROR), -1,
		ONE(SETTINGS, ACK, 0, "\0\0\0\0\0\0")},
	{"6.5 SETTINGS on a stream", GOAWAY(PROTOCOL_ERROR), -1,
		ONE(SETTINGS, NONE, 1, "\0\0\0\0\0\0")},
	{"6.5 SETTINGS of 7 bytes", GOAWAY(FRAME_SIZE_ERROR), -1,
		ONE(SETTINGS, NONE, 0, "\0\0\0\0\0\0\0")},
	{"6.5.2 ENABLE_PUSH 2", GOAWAY(PROTOCOL_ERROR), -1,
		ONE(SETTINGS, NONE, 0, "\x00\x02\x00\x00\x00\x02")},
	{"6.5.2 INITIAL_WINDOW_SIZE 2^31", GOAWAY(FLOW_CONTROL_ERROR), -1,
		ONE(SETTINGS, NONE, 0, "\x00\x04\x80\x00\x00\x00")},
	{"6.5.2 MAX_FRAME_SIZE 16383", GOAWAY(PROTOCOL_ERROR), -1,
		ONE(SETTINGS, NONE, 0, "\x00\x05\x00\x00\x3f\xff")},
	{"6.5.2 MAX_FRAME_SIZE 2^24", GOAWAY(PROTOCOL_ERROR), -1,
		ONE(SETTINGS, NONE, 0, "\x00\x05\x01\x00\x00\x00")},
	{"6.5.2 a setting of no known name", FINE, 0,
		ONE(SETTINGS, NONE, 0, "\xfe\x03\x00\x00\x00\x01"), .echo = 1},
	{"6.7 PING on a stream", GOAWAY(PROTOCOL_ERROR), -1,
		ONE(PING, NONE, 1, "\0\0\0\0\0\0\0\0")},
	{"6.7 PING of 7 bytes", GOAWAY(FRAME_SIZE_ERROR), -1, ONE(PING, NONE, 0, "\0\0\0\0\0\0\0")},
	{"6.7 an acknowledgement of no PING", FINE, 0, ONE(PING, ACK, 0, "\0\0\0\0\0\0\0\0"),
		.echo = 1},
	{"6.8 GOAWAY on a stream", GOAWAY(PROTOCOL_ERROR), -1,
		ONE(GOAWAY, NONE, 1, "\0\0\0\0\0\0\0\0")},
	{"6.8 GOAWAY of 7 bytes", GOAWAY(FRAME_SIZE_ERROR), -1,
		ONE(GOAWAY, NONE, 0, "\0\0\0\0\0\0\0")},
	{"6.9 an increment of 0", GOAWAY(PROTOCOL_ERROR), -1,
		ONE(WINDOW_UPDATE, NONE, 0, "\x00\x00\x00\x00")},
	{"6.9 the same on a stream", GOAWAY(PROTOCOL_ERROR), -1,
		OPEN_ONE(WINDOW_UPDATE, NONE, 1, "\x00\x00\x00\x00")},
	{"6.9 WINDOW_UPDATE of 3 bytes", GOAWAY(FRAME_SIZE_ERROR), -1,
		ONE(WINDOW_UPDATE, NONE, 0, "\0\0\0")},
	{"6.9.1 the connection's window over 2^31-1", GOAWAY(FLOW_CONTROL_ERROR), -1,
		ONE(WINDOW_UPDATE, NONE, 0, "\x7f\xff\xff\xff")},
	{"6.9.1 a stream's window over 2^31-1", RESET(FLOW_CONTROL_ERROR), -1,
		OPEN_ONE(WINDOW_UPDATE, NONE, 1, "\x7f\xff\xff\xff")},
	{"6.9.2 the same by SETTINGS", RESET(FLOW_CONTROL_ERROR), -1, .send = window_over_settings},
	{"6.10 a block in four frames", FINE, 0, .send = continuations},
	{"6.10 CONTINUATION on stream 0", GOAWAY(PROTOCOL_ERROR), -1, .send = continuation_zero},
	{"6.10 CONTINUATION behind the block's end", GOAWAY(PROTOCOL_ERROR), -1,
		OPEN_ONE(CONTINUATION, END_HEADERS, 1, "x")},
	{"6.10 CONTINUATION behind DATA", GOAWAY(PROTOCOL_ERROR), -1,
		.send = continuation_after_data},
	{"8.4 PUSH_PROMISE of a client", GOAWAY(PROTOCOL_ERROR), -1,
		OPEN_ONE(PUSH_PROMISE, END_HEADERS, 1, "\0\0\0\2")},
	{"8.2.1 an upper-case name", RESET(PROTOCOL_ERROR), -1, WITH("Upper", "x")},
	{"8.3 a pseudo-header of no known name", RESET(PROTOCOL_ERROR), -1, WITH(":test", "x")},
	{"8.3 a pseudo-header of answers", RESET(PROTOCOL_ERROR), -1, WITH(":status", "200")},
	{"8.2.2 connection", RESET(PROTOCOL_ERROR), -1, WITH("connection", "keep-alive")},
	{"8.2.2 keep-alive", RESET(PROTOCOL_ERROR), -1, WITH("keep-alive", "x")},
	{"8.2.2 proxy-connection", RESET(PROTOCOL_ERROR), -1, WITH("proxy-connection", "x")},
	{"8.2.2 transfer-encoding", RESET(PROTOCOL_ERROR), -1,
		WITH("transfer-encoding", "chunked")},
	{"8.2.2 upgrade", RESET(PROTOCOL_ERROR), -1, WITH("upgrade", "x")},
	{"8.2.2 upgrade without a body", RESET(PROTOCOL_ERROR), -1, .send = header_upgrade_alone},
	{"8.2.2 te of more than trailers", RESET(PROTOCOL_ERROR), -1,
		WITH("te", "trailers, deflate;q=0.5")},
	{"8.2.2 te: trailers", FINE, 0, WITH("te", "trailers")},
	{"8.3.1 an empty path", RESET(PROTOCOL_ERROR), -1, .send = header_path_empty},
	{"8.1.1 content-length of too little", RESET(PROTOCOL_ERROR), -1,
		WITH("content-length", "5")},
	{"8.1.1 content-length of too much", RESET(PROTOCOL_ERROR), -1,
		WITH("content-length", "7")},
	{"8.1.1 content-length that is right", FINE, 0, WITH("content-length", "6")},
	{"8.1.1 content-length that is no number", RESET(PROTOCOL_ERROR), -1,
		WITH("content-length", "six")},
	{"8.1 trailers", FINE, 0, .send = trailers},
	{"8.1 trailers with a pseudo-header", RESET(PROTOCOL_ERROR), -1, .send = trailers_pseudo},
	{"8.1 trailers without an end", RESET(NO_ERROR), RP_GRPC_INTERNAL,
		.send = trailers_without_end},
	{"7541 6.1 index 0", GOAWAY(COMPRESSION_ERROR), -1, ONE(HEADERS, END_HEADERS, 1, "\x80")},
	{"7541 2.3.3 an index past the tables", GOAWAY(COMPRESSION_ERROR), -1,
		ONE(HEADERS, END_HEADERS, 1, "\xfe")},
	{"7541 2.3.3 a name past the tables", GOAWAY(COMPRESSION_ERROR), -1,
		ONE(HEADERS, END_HEADERS, 1, "\x7e\1x")},
	{"7541 5.1 an integer without end", GOAWAY(COMPRESSION_ERROR), -1,
		ONE(HEADERS, END_HEADERS, 1, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\1")},
	{"7541 5.2 a string longer than the block", GOAWAY(COMPRESSION_ERROR), -1,
		ONE(HEADERS, END_HEADERS, 1, "\0\1x\x7f\xff\x7f")},
	{"7541 5.2 padding of zeros", GOAWAY(COMPRESSION_ERROR), -1,
		ONE(HEADERS, END_HEADERS, 1, "\0\1x\x81\x18")},
	{"7541 5.2 padding of more than seven bits", GOAWAY(COMPRESSION_ERROR), -1,
		ONE(HEADERS, END_HEADERS, 1, "\0\1x\x82\x1f\xff")},
	{"7541 5.2 the end of string in it", GOAWAY(COMPRESSION_ERROR), -1,
		ONE(HEADERS, END_HEADERS, 1, "\0\1x\x84\xff\xff\xff\xff")},
	{"7541 4.2 a table larger than offered", GOAWAY(COMPRESSION_ERROR), -1,
		ONE(HEADERS, END_HEADERS, 1, "\x3f\xe2\x1f")},
	{"7541 4.2 a new table size at the end", GOAWAY(COMPRESSION_ERROR), -1,
		.send = hpack_table_late},
};

static void other_works(const struct rule *rule)
{
	static uint32_t stream = 1;

	out->length = 0;
	if (stream == 1)
		raw_preface(out);
	other->grpc_status = -1;
	echo(stream);
	stream += 2;
	assert_true(raw_send(other, out));
	raw_settle(other);
	if (other->grpc_status != 0)
		fail_msg("%s: the other connection got %d", rule->name, other->grpc_status);
}

static void rule_send(const struct rule *rule)
{
	if (rule->send) {
		rule->send();
		return;
	}
	if (rule->header) {
		request_block();
		raw_header(block, rule->header, rule->value);
		send_block(1);
		return;
	}
	if (rule->open)
		raw_request(out, 1, HOLD, false);
	frame(rule->type, rule->flags, rule->stream, rule->data, rule->length);
	if (rule->echo)
		echo(rule->echo);
}

static bool rule_kept(const struct rule *rule)
{
	bool closes = rule->goaway != UINT32_MAX;

	client = connect_raw();
	out->length = 0;
	raw_preface(out);
	rule_send(rule);
	(void)raw_send(client, out);
	raw_settle(client);
	if (client->goaway_error == rule->goaway && client->reset_error == rule->reset &&
		client->grpc_status == rule->status && client->ended == closes)
		return true;
	print_message("%s: GOAWAY %d, wanted %d; RST_STREAM %d, wanted %d; status %d, wanted %d; "
		      "%s\n",
		rule->name, (int)client->goaway_error, (int)rule->goaway, (int)client->reset_error,
		(int)rule->reset, client->grpc_status, rule->status,
		client->ended ? "ended" : "open");
	return false;
}

static void test_rules(void **state)
{
	unsigned broken = 0, malformed = 0;

	for (size_t i = 0; i < RP_ARRAY_SIZE(rules); i++) {
		broken += !rule_kept(&rules[i]);
		disconnect(&client);
		for (int turn = 0; turn < 5; turn++)
			rp_loop_run_once(loop, 0);
		other_works(&rules[i]);
		assert_int_equal(rp_grpc_server_stats(server).conns_open, 1);
		assert_int_equal(rp_grpc_server_stats(server).calls_open, 0);
		assert_int_equal(rp_grpc_server_stats(server).in_bytes_held, 0);
	}
	assert_int_equal(broken, 0);
	for (size_t i = 0; i < RP_ARRAY_SIZE(rules); i++)
		malformed += rules[i].reset == NGHTTP2_PROTOCOL_ERROR;
	assert_int_equal(rp_grpc_server_stats(server).calls_refused_header, malformed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_rules, setup, teardown)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
