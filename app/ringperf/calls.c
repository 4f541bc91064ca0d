/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "calls.h"

#define DRAIN_NS (2 * RP_NS_PER_S)
/** Calls begun in one turn. */
#define TURN_MAX 64u

void calls_fail(struct calls *c, const char *reason)
{
	if (c->failed)
		return;
	c->failed = true;
	snprintf(c->reason, sizeof(c->reason), "%s", reason);
	c->run->why = c->reason;
	c->run->finished = true;
}

static void on_state(struct rp_grpc_channel *channel, enum rp_grpc_channel_state state,
	const char *reason, void *ctx)
{
	struct calls *c = ctx;
	unsigned i = 0;

	while (i < c->channel_count && c->channels[i] != channel)
		i++;
	if (state == RP_GRPC_CHANNEL_READY) {
		c->ready_count++;
		c->ready[i] = true;
	} else if (state == RP_GRPC_CHANNEL_LOST) {
		/* The other end may be still to come. */
		if (!c->started && !c->ready[i])
			c->again_ns = rp_loop_clock_ns() + PERF_DIAL_AGAIN_NS;
		else
			calls_fail(c, reason);
	}
}

static void dial_again(struct calls *c)
{
	c->again_ns = 0;
	for (unsigned i = 0; i < c->channel_count; i++)
		if (!c->ready[i] && rp_grpc_channel_connect(c->channels[i]) != 0)
			calls_fail(c, strerror(errno));
}

void calls_slot_end(struct calls_slot *s, const char *reason)
{
	struct calls *c = s->calls;

	c->open--;
	s->next = c->free;
	c->free = (unsigned)(s - c->slots);
	if (reason) {
		c->run->faults++;
		perf_pace_lost(&c->run->pace, s->planned_ns);
		if (c->run->faults == 1)
			fprintf(stderr, "ringperf: a call failed: %s\n", reason);
	} else if (!c->ops->silent) {
		perf_pace_done(&c->run->pace, s->planned_ns, s->begun_ns, c->ops->begin ? 0 : 1,
			rp_loop_clock_ns());
	}
}

static void done(
	void *ctx, enum rp_grpc_code code, const char *message, const uint8_t *data, size_t length)
{
	calls_slot_end(ctx, code == RP_GRPC_OK ? NULL : message);
}

static int open_channels(struct calls *c)
{
	struct rp_grpc_channel_config config = rp_grpc_channel_config_default();
	const struct perf_options *o = c->run->options;
	char address[64];

	config.on_state = on_state;
	config.ctx = c;
	config.message_bytes_max = 64u << 20;
	snprintf(address, sizeof(address), "%u.%u.%u.%u:%u", o->peer[0], o->peer[1], o->peer[2],
		o->peer[3], o->tcp_port);
	for (unsigned i = 0; i < c->channel_count; i++) {
		c->channels[i] = rp_grpc_channel_new(c->loop, address, &config);
		if (!c->channels[i] || rp_grpc_channel_connect(c->channels[i]) != 0)
			return -EIO;
	}
	return 0;
}

int calls_begin(struct perf_run *r, const struct calls_ops *ops)
{
	const struct perf_options *o = r->options;
	unsigned window = o->window > 0 ? o->window : 1;
	struct calls *c = calloc(1, sizeof(*c));

	if (!c)
		return -ENOMEM;
	r->state = c;
	*c = (struct calls){.run = r,
		.ops = ops,
		.loop = rp_loop_new(),
		.channel_count = o->connections,
		.slot_count = o->connections * window,
		.buffer = malloc(CALLS_REQUEST_MAX)};
	c->channels = calloc(c->channel_count, sizeof(struct rp_grpc_channel *));
	c->ready = calloc(c->channel_count, sizeof(*c->ready));
	c->slots = calloc(c->slot_count, sizeof(*c->slots));
	if (!c->loop || !c->channels || !c->ready || !c->slots || !c->buffer) {
		r->why = "no memory or descriptors";
		return -ENOMEM;
	}
	if (!o->has_peer) {
		r->why = "--peer is needed";
		return -EINVAL;
	}
	if (open_channels(c) != 0) {
		r->why = "a connection cannot be begun";
		return -EIO;
	}
	for (unsigned i = 0; i < c->slot_count; i++)
		c->slots[i] = (struct calls_slot){
			.calls = c, .channel = c->channels[i % c->channel_count], .next = i + 1};
	return 0;
}

static bool begin_one(struct calls *c, uint64_t now_ns)
{
	struct calls_slot *s = &c->slots[c->free];
	const uint8_t *data;
	size_t length;

	s->planned_ns = perf_pace_take(&c->run->pace, now_ns);
	s->begun_ns = now_ns;
	c->planned_ns = s->planned_ns;
	c->free = s->next;
	c->open++;
	if (c->ops->begin) {
		if (c->ops->begin(c, s))
			return true;
		calls_fail(c, "a stream takes no more");
		return false;
	}
	length = c->ops->request(c, c->sent++, &data);
	if (rp_grpc_channel_unary(
		    s->channel, c->ops->path, NULL, 0, RP_NEVER, data, length, done, s))
		return true;
	c->open--;
	calls_fail(c, strerror(errno));
	return false;
}

static void finish(struct calls *c, uint64_t now_ns)
{
	struct perf_pace *p = &c->run->pace;
	uint64_t end_ns = p->begin_ns + p->config.warmup_ns + p->config.run_ns + p->config.cool_ns;
	bool open = c->open > 0 || p->done + p->lost < p->planned * RP_MAX(p->config.fan_out, 1u);

	if (perf_pace_over(p, now_ns))
		c->run->finished |= !open || now_ns - end_ns >= DRAIN_NS;
}

bool calls_turn(struct perf_run *r, uint64_t now_ns)
{
	struct calls *c = r->state;
	uint64_t next_ns, wait_ns = 0;
	unsigned n = 0;

	if (!c->started) {
		if (now_ns - r->begun_ns > r->options->connect_ns)
			calls_fail(c, "the server does not answer");
		if (c->again_ns && rp_loop_clock_ns() >= c->again_ns)
			dial_again(c);
		c->started =
			c->ready_count == c->channel_count && (!c->ops->ready || c->ops->ready(c));
		if (c->started)
			perf_run_pace(r, now_ns);
	}
	while (c->started && n < TURN_MAX && c->free < c->slot_count &&
		perf_pace_due(&r->pace, now_ns) && begin_one(c, now_ns))
		n++;
	if (c->started)
		finish(c, now_ns);
	/* Short of the next plan, since epoll's wait is whole milliseconds. */
	next_ns = c->started ? perf_pace_next(&r->pace, now_ns) : RP_NEVER;
	if (c->free == c->slot_count || next_ns == RP_NEVER)
		wait_ns = RP_NS_PER_MS;
	else if (next_ns > now_ns + 2 * RP_NS_PER_MS)
		wait_ns = next_ns - now_ns - RP_NS_PER_MS;
	if (rp_loop_run_once(c->loop, r->finished ? 0 : RP_MIN(wait_ns, 10 * RP_NS_PER_MS)) < 0)
		calls_fail(c, "epoll fails");
	return true;
}

void calls_end(struct perf_run *r, uint64_t now_ns)
{
	struct calls *c = r->state;

	if (!c)
		return;
	/* The run's result outlives this. */
	if (r->why == c->reason)
		r->why = strcpy(r->reason, c->reason);
	for (unsigned i = 0; c->channels && i < c->channel_count; i++)
		rp_grpc_channel_destroy(c->channels[i]);
	rp_loop_destroy(c->loop);
	free(c->channels);
	free(c->ready);
	free(c->slots);
	free(c->buffer);
	free(c->mode);
	free(c);
	r->state = NULL;
}
