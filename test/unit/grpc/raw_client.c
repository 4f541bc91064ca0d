/* SPDX-License-Identifier: Apache-2.0 */
#include "raw_client.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <base/assert.h>

#define QUIET_TURNS 6

void raw_put(struct raw_buf *b, const void *data, size_t length)
{
	RP_ASSERT(b->length + length <= sizeof(b->data));
	if (length > 0)
		memcpy(b->data + b->length, data, length);
	b->length += length;
}

void raw_frame(struct raw_buf *b, uint8_t type, uint8_t flags, uint32_t stream, const void *data,
	size_t length)
{
	uint8_t head[9] = {(uint8_t)(length >> 16), (uint8_t)(length >> 8), (uint8_t)length, type,
		flags, (uint8_t)(stream >> 24), (uint8_t)(stream >> 16), (uint8_t)(stream >> 8),
		(uint8_t)stream};

	raw_put(b, head, sizeof(head));
	raw_put(b, data, length);
}

void raw_preface(struct raw_buf *b)
{
	raw_put(b, NGHTTP2_CLIENT_MAGIC, NGHTTP2_CLIENT_MAGIC_LEN);
	raw_frame(b, NGHTTP2_SETTINGS, 0, 0, NULL, 0);
}

/* An HPACK string without Huffman coding (RFC 7541, 5.1 and 5.2). */
static void raw_string(struct raw_buf *b, const char *text)
{
	size_t n = strlen(text);
	uint8_t byte;

	if (n < 127) {
		byte = (uint8_t)n;
		raw_put(b, &byte, 1);
	} else {
		byte = 127;
		raw_put(b, &byte, 1);
		for (n -= 127; n >= 128; n /= 128) {
			byte = (uint8_t)(n % 128 + 128);
			raw_put(b, &byte, 1);
		}
		byte = (uint8_t)n;
		raw_put(b, &byte, 1);
	}
	raw_put(b, text, strlen(text));
}

void raw_header(struct raw_buf *block, const char *name, const char *value)
{
	raw_put(block, "\0", 1);
	raw_string(block, name);
	raw_string(block, value);
}

void raw_request(struct raw_buf *b, uint32_t stream, const char *path, bool end)
{
	struct raw_buf *block = calloc(1, sizeof(*block));

	raw_header(block, ":method", "POST");
	raw_header(block, ":scheme", "http");
	raw_header(block, ":path", path);
	raw_header(block, "content-type", "application/grpc");
	raw_frame(b, NGHTTP2_HEADERS, (uint8_t)(NGHTTP2_FLAG_END_HEADERS | (end ? 1 : 0)), stream,
		block->data, block->length);
	free(block);
}

void raw_message(struct raw_buf *b, uint32_t stream, const void *data, uint32_t length, bool end)
{
	uint8_t *body = malloc(length + 5);

	body[0] = 0;
	for (int i = 0; i < 4; i++)
		body[1 + i] = (uint8_t)(length >> (24 - 8 * i));
	if (length > 0)
		memcpy(body + 5, data, length);
	raw_frame(b, NGHTTP2_DATA, end ? NGHTTP2_FLAG_END_STREAM : 0, stream, body, length + 5);
	free(body);
}

void raw_open(struct raw_client *c, struct rp_loop *loop, int fd)
{
	memset(c, 0, sizeof(*c));
	c->fd = fd;
	c->loop = loop;
	c->goaway_error = c->reset_error = UINT32_MAX;
	c->grpc_status = -1;
	RP_ASSERT(fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
	RP_ASSERT(nghttp2_hd_inflate_new(&c->inflater) == 0);
}

void raw_close(struct raw_client *c)
{
	close(c->fd);
	nghttp2_hd_inflate_del(c->inflater);
}

bool raw_send(struct raw_client *c, const struct raw_buf *b)
{
	for (size_t done = 0; done < b->length;) {
		ssize_t n = send(c->fd, b->data + done, b->length - done, MSG_NOSIGNAL);

		if (n < 0 && errno == EAGAIN) {
			raw_settle(c);
			continue;
		}
		if (n < 0)
			return false;
		done += (size_t)n;
	}
	return true;
}

static void raw_keep(char *out, size_t size, const uint8_t *value, size_t length)
{
	length = RP_MIN(length, size - 1);
	memcpy(out, value, length);
	out[length] = 0;
}

static void raw_on_block(struct raw_client *c, const uint8_t *data, size_t length)
{
	for (;;) {
		nghttp2_nv nv;
		int flags = 0;
		ssize_t n = nghttp2_hd_inflate_hd2(c->inflater, &nv, &flags, data, length, 1);

		RP_ASSERT(n >= 0);
		data += n;
		length -= (size_t)n;
		if (flags & NGHTTP2_HD_INFLATE_EMIT) {
			char name[64];

			raw_keep(name, sizeof(name), nv.name, nv.namelen);
			if (strcmp(name, ":status") == 0)
				raw_keep(c->http_status, sizeof(c->http_status), nv.value,
					nv.valuelen);
			else if (strcmp(name, "grpc-status") == 0)
				c->grpc_status = atoi((const char *)nv.value);
			else if (strcmp(name, "grpc-message") == 0)
				raw_keep(c->message, sizeof(c->message), nv.value, nv.valuelen);
			else if (strcmp(name, "content-type") == 0)
				raw_keep(c->content_type, sizeof(c->content_type), nv.value,
					nv.valuelen);
		}
		if (flags & NGHTTP2_HD_INFLATE_FINAL)
			break;
	}
	nghttp2_hd_inflate_end_headers(c->inflater);
}

static uint32_t raw_u32(const uint8_t *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void raw_on_frame(
	struct raw_client *c, const uint8_t *head, const uint8_t *data, size_t length)
{
	uint8_t type = head[3], flags = head[4];

	if ((type == NGHTTP2_SETTINGS || type == NGHTTP2_PING) && (flags & NGHTTP2_FLAG_ACK)) {
		c->acks++;
		return;
	}
	c->frames[type]++;
	if ((type == NGHTTP2_HEADERS || type == NGHTTP2_DATA) && (flags & NGHTTP2_FLAG_END_STREAM))
		c->stream_ends++;
	switch (type) {
	case NGHTTP2_HEADERS:
		raw_on_block(c, data, length);
		break;
	case NGHTTP2_DATA:
		c->data_bytes += length;
		break;
	case NGHTTP2_RST_STREAM:
		c->reset_error = raw_u32(data);
		c->reset_stream = (int32_t)raw_u32(head + 5);
		break;
	case NGHTTP2_GOAWAY:
		c->goaway_error = raw_u32(data + 4);
		break;
	default:
		break;
	}
}

static void raw_cut(struct raw_client *c)
{
	size_t pos = 0;

	while (c->in_length - pos >= 9) {
		const uint8_t *head = c->in + pos;
		size_t length = (size_t)head[0] << 16 | (size_t)head[1] << 8 | head[2];

		if (c->in_length - pos < 9 + length)
			break;
		raw_on_frame(c, head, head + 9, length);
		pos += 9 + length;
	}
	memmove(c->in, c->in + pos, c->in_length - pos);
	c->in_length -= pos;
}

void raw_settle(struct raw_client *c)
{
	for (int quiet = 0; quiet < QUIET_TURNS; quiet++) {
		ssize_t n;

		RP_ASSERT(rp_loop_run_once(c->loop, 0) >= 0);
		while ((n = recv(c->fd, c->in + c->in_length, sizeof(c->in) - c->in_length, 0)) >
			0) {
			c->in_length += (size_t)n;
			raw_cut(c);
			quiet = 0;
		}
		c->ended |= n == 0;
	}
}
