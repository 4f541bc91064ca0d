/* SPDX-License-Identifier: Apache-2.0 */

/* ringpost.v1.Admin/Capture: what the tap of the ports' shard copies becomes a pcapng file. */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <rte_mbuf.h>
#include <rte_mempool.h>

#include <ringpost/v1/admin.pb-c.h>

#include <base/assert.h>
#include <base/log.h>
#include <ctl/ctl_priv.h>
#include <telem/pcapng.h>

#define SNAPLEN_DEFAULT 256
/** Section and interfaces. */
#define HEAD_BYTES_MAX (512 + RP_ENGINE_PORTS_MAX * 512)
/** Of an answer beyond the file's bytes. */
#define REPLY_OVERHEAD 64
/** How often the counts are written while it goes on. */
#define STATISTICS_NS RP_NS_PER_S

static uint64_t wall_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	return (uint64_t)ts.tv_sec * RP_NS_PER_S + (uint64_t)ts.tv_nsec;
}

static uint64_t counter(const _Atomic uint64_t *c)
{
	return atomic_load_explicit(c, memory_order_relaxed);
}

static uint64_t dropped_sum(const struct rp_ctl *ctl)
{
	uint64_t n = 0;

	for (uint32_t p = 0; p < ctl->config.port_count; p++)
		n += counter(&ctl->capture.counters[p].dropped);
	return n;
}

/* ---- what goes to the client ---- */

static void send_bytes(struct rp_ctl *ctl, uint8_t *data, size_t length)
{
	struct ctl_capture *c = &ctl->capture;
	Ringpost__V1__CaptureReply r = RINGPOST__V1__CAPTURE_REPLY__INIT;
	uint8_t *packed;

	r.data = (ProtobufCBinaryData){.data = data, .len = length};
	r.packets = c->packets;
	r.dropped = dropped_sum(ctl);
	packed = malloc(protobuf_c_message_get_packed_size(&r.base) + 1);
	RP_ASSERT(packed != NULL);
	length = protobuf_c_message_pack(&r.base, packed);
	/* It was asked for room before, so nothing is refused but for want of memory. */
	rp_grpc_call_send_take(c->call, packed, length, 0);
}

static void send_head(struct rp_ctl *ctl)
{
	uint8_t out[HEAD_BYTES_MAX];
	size_t n = rp_pcapng_section(out, sizeof(out), "ringpostd " RP_VERSION);

	for (uint32_t p = 0; p < ctl->config.port_count; p++) {
		struct rp_pcapng_interface i = {.snaplen = ctl->capture.tap.snaplen};
		struct rp_port_info info;
		char text[160];

		rp_port_info(ctl->config.ports[p], &info);
		snprintf(text, sizeof(text), "ports[%u], driver %s", p, info.driver);
		i.name = info.device;
		i.description = text;
		i.mac = info.mac;
		n += rp_pcapng_interface(out + n, sizeof(out) - n, &i);
	}
	send_bytes(ctl, out, n);
}

static void send_statistics(struct rp_ctl *ctl)
{
	struct ctl_capture *c = &ctl->capture;
	uint8_t out[RP_ENGINE_PORTS_MAX * RP_PCAPNG_STATISTICS_BYTES];
	size_t n = 0;

	c->told_seen = 0;
	for (uint32_t p = 0; p < ctl->config.port_count; p++) {
		const struct rp_tap_counters *k = &c->counters[p];
		struct rp_pcapng_statistics s = {.interface = p,
			.start_ns = c->start_wall_ns,
			.now_ns = wall_now(),
			.received = counter(&k->seen),
			.dropped = counter(&k->dropped)};

		c->told_seen += s.received;
		s.accepted = counter(&k->taken) + s.dropped;
		if (c->tap.ports >> p & 1)
			n += rp_pcapng_statistics(out + n, sizeof(out) - n, &s);
	}
	send_bytes(ctl, out, n);
}

static bool statistics_fit(struct rp_ctl *ctl)
{
	return rp_grpc_call_fits(ctl->capture.call,
		RP_ENGINE_PORTS_MAX * RP_PCAPNG_STATISTICS_BYTES + REPLY_OVERHEAD);
}

static void blocks_free(struct ctl_capture *c, const struct rp_ctl *ctl)
{
	for (; c->block_count > 0; c->block_count--) {
		rte_pktmbuf_free(c->blocks[c->block_first]);
		c->block_first = (c->block_first + 1) % ctl->config.tap_pool->size;
	}
}

/* Each lcore that polls a queue has a tap of its own; all of them follow one configuration. */
static void taps_turn(struct rp_ctl *ctl, struct rp_tap_config *config, uint64_t token)
{
	ctl->capture.open = (uint32_t)__builtin_popcountll(ctl->config.port_shards);
	for (uint64_t left = ctl->config.port_shards; left; left &= left - 1)
		rp_control_tap(ctl->control, (unsigned)__builtin_ctzll(left), config, token);
	ctl_kick(ctl);
}

static void capture_end(struct rp_ctl *ctl, const char *why)
{
	struct ctl_capture *c = &ctl->capture;

	RP_LOG(RP_LOG_PORT, RP_LOG_INFO, "capture ends, %s: %lu frames, %lu found no room", why,
		(unsigned long)c->packets, (unsigned long)dropped_sum(ctl));
	rp_loop_timer_cancel(&c->timer);
	c->state = CTL_CAPTURE_NONE;
}

static void capture_stop(struct rp_ctl *ctl)
{
	struct ctl_capture *c = &ctl->capture;

	if (c->state != CTL_CAPTURE_STARTING && c->state != CTL_CAPTURE_ON)
		return;
	c->state = CTL_CAPTURE_STOPPING;
	taps_turn(ctl, NULL, CTL_TOKEN_TAP_OFF);
}

/* Bytes of the file that a block's records become, at most. */
static size_t block_bytes(const struct rte_mbuf *block)
{
	const struct rp_tap_record *r;
	const uint8_t *bytes;
	uint32_t offset = 0;
	size_t n = 0;

	while ((r = rp_tap_next(block, &offset, &bytes)))
		n += r->captured + RP_PCAPNG_PACKET_OVERHEAD;
	return n;
}

static void send_block(struct rp_ctl *ctl, const struct rte_mbuf *block, size_t size)
{
	struct ctl_capture *c = &ctl->capture;
	const struct rp_tap_record *r;
	const uint8_t *bytes;
	uint32_t offset = 0;
	uint8_t *out = malloc(size + 1);
	size_t n = 0;

	RP_ASSERT(out != NULL);
	while (c->packets < c->packets_max && (r = rp_tap_next(block, &offset, &bytes))) {
		struct rp_pcapng_packet p = {.interface = r->port,
			.wall_ns = r->wall_ns,
			.data = bytes,
			.captured = r->captured,
			.length = r->length,
			.sent = r->sent};

		n += rp_pcapng_packet(out + n, size - n, &p);
		c->packets++;
	}
	if (n > 0)
		send_bytes(ctl, out, n);
	free(out);
}

/* As much as the client has room for; then, with the tap off, the end. */
static void capture_pump(struct rp_ctl *ctl)
{
	struct ctl_capture *c = &ctl->capture;

	while (c->call && c->block_count > 0 && c->packets < c->packets_max) {
		struct rte_mbuf *block = c->blocks[c->block_first];
		size_t size = block_bytes(block);

		if (!rp_grpc_call_fits(c->call, size + REPLY_OVERHEAD))
			return;
		send_block(ctl, block, size);
		rte_pktmbuf_free(block);
		c->block_first = (c->block_first + 1) % ctl->config.tap_pool->size;
		c->block_count--;
	}
	if (c->packets >= c->packets_max || !c->call) {
		blocks_free(c, ctl);
		capture_stop(ctl);
	}
	if (c->state != CTL_CAPTURE_DRAINING || (c->call && !statistics_fit(ctl)))
		return;
	if (c->call) {
		struct rp_grpc_call *call = c->call;

		send_statistics(ctl);
		c->call = NULL;
		rp_grpc_call_finish(call, RP_GRPC_OK, NULL);
		capture_end(ctl, "all of it");
	} else {
		capture_end(ctl, "its client has gone");
	}
}

/* ---- what comes from the shard ---- */

void ctl_tapped(void *ctx, unsigned shard, struct rte_mbuf *block)
{
	struct rp_ctl *ctl = ctx;
	struct ctl_capture *c = &ctl->capture;

	/* The pool's blocks are all that there can be. */
	RP_ASSERT(c->block_count < ctl->config.tap_pool->size);
	c->blocks[(c->block_first + c->block_count++) % ctl->config.tap_pool->size] = block;
	capture_pump(ctl);
}

static void on_timer(void *ctx)
{
	struct rp_ctl *ctl = ctx;
	struct ctl_capture *c = &ctl->capture;
	uint64_t now_ns = rp_loop_now_ns(ctl->loop), seen = 0;

	if (now_ns >= c->end_ns) {
		capture_stop(ctl);
		return;
	}
	for (uint32_t p = 0; p < ctl->config.port_count; p++)
		seen += counter(&c->counters[p].seen);
	if (c->call && seen != c->told_seen && statistics_fit(ctl))
		send_statistics(ctl);
	rp_loop_timer_at(ctl->loop, &c->timer, RP_MIN(now_ns + STATISTICS_NS, c->end_ns));
}

void ctl_capture_done(struct rp_ctl *ctl, uint64_t token)
{
	struct ctl_capture *c = &ctl->capture;

	if (--c->open > 0)
		return;
	if (token == CTL_TOKEN_TAP_OFF) {
		c->state = CTL_CAPTURE_DRAINING;
		rp_loop_timer_cancel(&c->timer);
	} else if (c->state == CTL_CAPTURE_STARTING) {
		c->state = CTL_CAPTURE_ON;
		on_timer(ctl);
	}
	capture_pump(ctl);
}

/* ---- the call ---- */

/* 0, or the call is over. */
static int read_request(
	struct rp_ctl *ctl, struct rp_grpc_call *call, const Ringpost__V1__CaptureRequest *q)
{
	struct ctl_capture *c = &ctl->capture;
	const char *wrong = NULL;

	c->tap = (struct rp_tap_config){.pool = ctl->config.tap_pool,
		.counters = c->counters,
		.ports = q->n_ports > 0 ? 0 : UINT32_MAX,
		.snaplen = q->snaplen_bytes ? q->snaplen_bytes : SNAPLEN_DEFAULT};
	for (size_t i = 0; i < q->n_ports; i++) {
		if (q->ports[i] >= ctl->config.port_count) {
			rp_grpc_call_finish(call, RP_GRPC_NOT_FOUND, "ringpost: no such port");
			return -1;
		}
		c->tap.ports |= 1u << q->ports[i];
	}
	if (c->tap.snaplen > RP_TAP_SNAPLEN_MAX)
		wrong = "ringpost: snaplen is 9216 bytes at most";
	else if (ctl_endpoint_filter(&c->tap.peer, q->peer) != 0)
		wrong = "ringpost: not an endpoint: expected ADDRESS, ADDRESS:PORT or "
			"[ADDRESS]:PORT";
	if (!wrong)
		return 0;
	rp_grpc_call_finish(call, RP_GRPC_INVALID_ARGUMENT, wrong);
	return -1;
}

static void capture_start(
	struct rp_ctl *ctl, struct rp_grpc_call *call, const Ringpost__V1__CaptureRequest *q)
{
	struct ctl_capture *c = &ctl->capture;

	if (ctl->config.port_count == 0) {
		rp_grpc_call_finish(call, RP_GRPC_FAILED_PRECONDITION,
			"ringpost: this node has no ports; links over kernel sockets are seen with "
			"tcpdump");
		return;
	}
	if (c->state != CTL_CAPTURE_NONE) {
		rp_grpc_call_finish(
			call, RP_GRPC_UNAVAILABLE, "ringpost: another capture is under way");
		return;
	}
	if (read_request(ctl, call, q) != 0)
		return;
	memset(c->counters, 0, ctl->config.port_count * sizeof(*c->counters));
	c->call = call;
	c->packets = 0;
	c->packets_max = q->packets_max ? q->packets_max : UINT64_MAX;
	c->end_ns = RP_NEVER;
	if (q->duration_ns && q->duration_ns < RP_NEVER - rp_loop_now_ns(ctl->loop))
		c->end_ns = rp_loop_now_ns(ctl->loop) + q->duration_ns;
	c->start_wall_ns = wall_now();
	c->told_seen = 0;
	c->state = CTL_CAPTURE_STARTING;
	RP_LOG(RP_LOG_PORT, RP_LOG_INFO, "capture begins");
	/* The file begins before the tap is on: what it brings finds the head there. */
	send_head(ctl);
	taps_turn(ctl, &c->tap, CTL_TOKEN_TAP_ON);
}

static void on_capture(struct rp_grpc_call *call, const uint8_t *data, size_t length, void *ctx)
{
	Ringpost__V1__CaptureRequest *q = ringpost__v1__capture_request__unpack(NULL, length, data);

	if (ctl_admin_malformed(call, q))
		return;
	if (ctl_admin_admitted(call))
		capture_start(ctx, call, q);
	ringpost__v1__capture_request__free_unpacked(q, NULL);
}

static void on_capture_cancel(struct rp_grpc_call *call, enum rp_grpc_cancel why, void *ctx)
{
	struct rp_ctl *ctl = ctx;

	if (ctl->capture.call != call)
		return;
	ctl->capture.call = NULL;
	capture_pump(ctl);
}

static void on_capture_room(struct rp_grpc_call *call, void *ctx)
{
	capture_pump(ctx);
}

const struct rp_grpc_call_ops ctl_capture_ops = {
	.on_message = on_capture, .on_cancel = on_capture_cancel, .on_room = on_capture_room};

int ctl_capture_create(struct rp_ctl *ctl)
{
	struct ctl_capture *c = &ctl->capture;

	if (ctl->config.port_count == 0)
		return 0;
	rp_loop_timer_setup(&c->timer, on_timer, ctl);
	c->counters = calloc(ctl->config.port_count, sizeof(*c->counters));
	c->blocks = calloc(ctl->config.tap_pool->size, sizeof(struct rte_mbuf *));
	return c->counters && c->blocks ? 0 : -ENOMEM;
}

void ctl_capture_destroy(struct rp_ctl *ctl)
{
	struct ctl_capture *c = &ctl->capture;

	if (c->blocks)
		blocks_free(c, ctl);
	if (ctl->loop)
		rp_loop_timer_cancel(&c->timer);
	free(c->blocks);
	free(c->counters);
}
