/* SPDX-License-Identifier: Apache-2.0 */

/*
 * gRPC messages in DATA frames of any cut, and a plain reading of the same bytes beside it: what
 * the service gets must be what that reading finds, up to the first fault, and the fault's status
 * is the stream's. Input: a mode byte, a byte per cut, and what is between them.
 */

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <nghttp2/nghttp2.h>

#include <base/assert.h>
#include <grpc/server.h>

#define MESSAGE_BYTES_MAX 1000u
#define BYTES_MAX 65536u
#define TURNS_MAX 50

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct sum {
	uint64_t hash;
	unsigned messages;
};

static struct sum got;
static bool pausing, half_closed, cancelled;

static void sum_add(struct sum *s, const uint8_t *data, size_t length)
{
	uint64_t h = s->hash * 31 + length;

	for (size_t i = 0; i < length; i++)
		h = (h ^ data[i]) * 0x100000001b3ull;
	s->hash = h;
	s->messages++;
}

static void on_message(struct rp_grpc_call *call, const uint8_t *data, size_t length, void *ctx)
{
	sum_add(&got, data, length);
	if (!pausing)
		return;
	rp_grpc_call_pause_reading(call);
	rp_grpc_call_resume_reading(call);
}

static void on_half_close(struct rp_grpc_call *call, void *ctx)
{
	half_closed = true;
	rp_grpc_call_finish(call, RP_GRPC_OK, NULL);
}

static void on_cancel(struct rp_grpc_call *call, enum rp_grpc_cancel why, void *ctx)
{
	RP_ASSERT(why == RP_GRPC_CANCEL_REFUSED);
	cancelled = true;
}

static const struct rp_grpc_call_ops ops = {
	.on_message = on_message, .on_half_close = on_half_close, .on_cancel = on_cancel};
static const struct rp_grpc_method methods[] = {{"/f.F/S", RP_GRPC_CLIENT_STREAM, &ops}};

/* The plain reading. True when the bytes are whole messages to the end. */
static bool reference(const uint8_t *data, size_t size, struct sum *s)
{
	size_t pos = 0;

	while (size - pos >= 5) {
		size_t length = (size_t)data[pos + 1] << 24 | (size_t)data[pos + 2] << 16 |
				(size_t)data[pos + 3] << 8 | data[pos + 4];

		/* A compressed one is refused when it is whole. */
		if (data[pos] > 1 || length > MESSAGE_BYTES_MAX)
			return false;
		if (size - pos - 5 < length)
			return false;
		if (data[pos] == 1)
			return false;
		sum_add(s, data + pos + 5, length);
		pos += 5 + length;
	}
	return pos == size;
}

static uint8_t *put_frame(
	uint8_t *p, uint8_t type, uint8_t flags, uint32_t stream, const void *data, size_t length)
{
	uint8_t head[9] = {
		0, (uint8_t)(length >> 8), (uint8_t)length, type, flags, 0, 0, 0, (uint8_t)stream};

	memcpy(p, head, sizeof(head));
	if (length > 0)
		memcpy(p + sizeof(head), data, length);
	return p + sizeof(head) + length;
}

static uint8_t *put_request(uint8_t *p)
{
	static const char block[] = "\x83\x86\x04\x06/f.F/S\x0f\x10\x10"
				    "application/grpc";

	memcpy(p, NGHTTP2_CLIENT_MAGIC, NGHTTP2_CLIENT_MAGIC_LEN);
	p = put_frame(p + NGHTTP2_CLIENT_MAGIC_LEN, NGHTTP2_SETTINGS, 0, 0, NULL, 0);
	return put_frame(p, NGHTTP2_HEADERS, NGHTTP2_FLAG_END_HEADERS, 1, block, sizeof(block) - 1);
}

/* Cuts the input into frames; collects the bytes without the cuts. */
static size_t put_data(uint8_t **out, const uint8_t *data, size_t size, uint8_t *plain)
{
	size_t length = 0;

	while (size > 0) {
		size_t n = RP_MIN((size_t)data[0], size - 1);

		*out = put_frame(*out, NGHTTP2_DATA, 0, 1, data + 1, n);
		memcpy(plain + length, data + 1, n);
		length += n;
		data += n + 1;
		size -= n + 1;
	}
	*out = put_frame(*out, NGHTTP2_DATA, NGHTTP2_FLAG_END_STREAM, 1, NULL, 0);
	return length;
}

static void run(const uint8_t *data, size_t size)
{
	struct rp_grpc_server_config config = rp_grpc_server_config_default();
	struct rp_loop *loop = rp_loop_new();
	struct rp_grpc_server *server;
	int fds[2];

	config.limits.message_bytes = MESSAGE_BYTES_MAX;
	server = rp_grpc_server_new(loop, &config);
	RP_ASSERT(rp_grpc_server_add_methods(server, methods, 1) == 0);
	RP_ASSERT(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
	RP_ASSERT(rp_grpc_server_attach(server, fds[0], NULL) == 0);
	for (size_t done = 0; done < size;) {
		ssize_t n = send(fds[1], data + done, size - done, MSG_NOSIGNAL | MSG_DONTWAIT);

		(void)rp_loop_run_once(loop, 0);
		if (n > 0)
			done += (size_t)n;
	}
	for (int i = 0; i < TURNS_MAX && !half_closed && !cancelled; i++)
		(void)rp_loop_run_once(loop, 0);
	close(fds[1]);
	rp_grpc_server_destroy(server);
	rp_loop_destroy(loop);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t wire[BYTES_MAX * 12], plain[BYTES_MAX];
	struct sum want = {0};
	uint8_t *end = wire;
	size_t length;
	bool whole;

	if (size == 0 || size > BYTES_MAX)
		return 0;
	got = (struct sum){0};
	pausing = data[0] & 1;
	half_closed = cancelled = false;
	end = put_request(wire);
	length = put_data(&end, data + 1, size - 1, plain);
	whole = reference(plain, length, &want);
	run(wire, (size_t)(end - wire));
	RP_ASSERT(half_closed == whole && cancelled == !whole);
	RP_ASSERT(got.messages == want.messages && got.hash == want.hash);
	return 0;
}
