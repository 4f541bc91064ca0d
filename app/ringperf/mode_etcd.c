/* SPDX-License-Identifier: Apache-2.0 */

/* An etcd server, ours or etcd's own: puts, ranges, and events to many watchers of one key. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <etcdserverpb/rpc.pb-c.h>

#include "calls.h"

#define PREFIX "/ringperf/"

static ProtobufCBinaryData bytes_of(const void *data, size_t length)
{
	return (ProtobufCBinaryData){.data = (uint8_t *)data, .len = length};
}

/* A value of the run's size that begins with when it was planned. */
static size_t put_request(
	struct calls *c, const char *key, uint64_t planned_ns, const uint8_t **data)
{
	static uint8_t value[PERF_MESSAGE_MAX];
	Etcdserverpb__PutRequest m = ETCDSERVERPB__PUT_REQUEST__INIT;

	memcpy(value, &planned_ns, sizeof(planned_ns));
	m.key = bytes_of(key, strlen(key));
	m.value = bytes_of(value, c->run->options->size);
	*data = c->buffer;
	return etcdserverpb__put_request__pack(&m, c->buffer);
}

static const char *key_of(struct calls *c, uint64_t n)
{
	static char key[64];

	snprintf(key, sizeof(key), PREFIX "%08u", (unsigned)(n % c->run->options->keys));
	return key;
}

/* ---- put ---- */

static size_t etcd_put_request(struct calls *c, uint64_t n, const uint8_t **data)
{
	return put_request(c, key_of(c, n), 0, data);
}

static int etcd_put_begin(struct perf_run *r, uint64_t now_ns)
{
	static const struct calls_ops ops = {
		.path = "/etcdserverpb.KV/Put", .request = etcd_put_request};

	return calls_begin(r, &ops);
}

const struct perf_mode perf_mode_etcd_put = {
	.name = "etcd-put",
	.text = "puts to an etcd server, over many keys in turn",
	.needs = PERF_NEEDS_SOCKETS,
	.measures = "round trip",
	.begin = etcd_put_begin,
	.turn = calls_turn,
	.end = calls_end,
};

/* ---- range ---- */

struct filling {
	unsigned put, answered;
};

static void filled(
	void *ctx, enum rp_grpc_code code, const char *message, const uint8_t *data, size_t length)
{
	struct calls *c = ctx;
	struct filling *f = c->mode;

	f->answered++;
	if (code != RP_GRPC_OK)
		calls_fail(c, message);
}

/* The keys that are asked for are put first. */
static bool range_ready(struct calls *c)
{
	struct filling *f = c->mode;

	while (f->put < c->run->options->keys && f->put - f->answered < 256) {
		const uint8_t *data;
		size_t length = put_request(c, key_of(c, f->put), 0, &data);

		if (!rp_grpc_channel_unary(c->channels[0], "/etcdserverpb.KV/Put", NULL, 0,
			    RP_NEVER, data, length, filled, c)) {
			calls_fail(c, "no memory");
			return false;
		}
		f->put++;
	}
	return f->answered == c->run->options->keys;
}

static size_t etcd_range_request(struct calls *c, uint64_t n, const uint8_t **data)
{
	Etcdserverpb__RangeRequest m = ETCDSERVERPB__RANGE_REQUEST__INIT;
	const char *key = key_of(c, n);

	m.key = bytes_of(key, strlen(key));
	*data = c->buffer;
	return etcdserverpb__range_request__pack(&m, c->buffer);
}

static int etcd_range_begin(struct perf_run *r, uint64_t now_ns)
{
	static const struct calls_ops ops = {.path = "/etcdserverpb.KV/Range",
		.request = etcd_range_request,
		.ready = range_ready};
	int rc = calls_begin(r, &ops);
	struct calls *c = r->state;

	if (rc == 0)
		c->mode = calloc(1, sizeof(struct filling));
	return rc == 0 && !c->mode ? -1 : rc;
}

const struct perf_mode perf_mode_etcd_range = {
	.name = "etcd-range",
	.text = "ranges of one key of an etcd server, over many keys in turn",
	.needs = PERF_NEEDS_SOCKETS,
	.measures = "round trip",
	.begin = etcd_range_begin,
	.turn = calls_turn,
	.end = calls_end,
};

/* ---- watch ---- */

struct watching {
	bool asked;
	unsigned created;
};

/* A put is over for one watcher, and counts as a share of it: units are events. */
static void watch_message(
	struct rp_grpc_client_call *call, const uint8_t *data, size_t length, void *ctx)
{
	struct calls *c = ctx;
	struct watching *w = c->mode;
	Etcdserverpb__WatchResponse *m = etcdserverpb__watch_response__unpack(NULL, length, data);
	uint64_t now_ns = rp_loop_clock_ns(), planned_ns;

	if (!m || m->canceled) {
		calls_fail(c, m ? "a watch is cancelled" : "an answer is no message");
		etcdserverpb__watch_response__free_unpacked(m, NULL);
		return;
	}
	w->created += m->created;
	for (size_t i = 0; i < m->n_events; i++) {
		const ProtobufCBinaryData *v = &m->events[i]->kv->value;

		if (v->len < sizeof(planned_ns)) {
			c->run->faults++;
			continue;
		}
		memcpy(&planned_ns, v->data, sizeof(planned_ns));
		perf_pace_done(&c->run->pace, planned_ns, planned_ns, 1, now_ns);
	}
	etcdserverpb__watch_response__free_unpacked(m, NULL);
}

static void watch_finish(
	struct rp_grpc_client_call *call, enum rp_grpc_code code, const char *message, void *ctx)
{
	if (code != RP_GRPC_CANCELLED)
		calls_fail(ctx, message);
}

static bool watch_ready(struct calls *c)
{
	static const struct rp_grpc_client_ops ops = {
		.on_message = watch_message, .on_finish = watch_finish};
	Etcdserverpb__WatchRequest m = ETCDSERVERPB__WATCH_REQUEST__INIT;
	Etcdserverpb__WatchCreateRequest create = ETCDSERVERPB__WATCH_CREATE_REQUEST__INIT;
	struct watching *w = c->mode;
	uint8_t data[256];
	size_t length;

	if (w->asked)
		return w->created == c->run->options->watchers;
	w->asked = true;
	create.key = bytes_of(PREFIX "watched", strlen(PREFIX "watched"));
	m.request_union_case = ETCDSERVERPB__WATCH_REQUEST__REQUEST_UNION_CREATE_REQUEST;
	m.create_request = &create;
	length = etcdserverpb__watch_request__pack(&m, data);
	/* Each a stream of its own, as clients have them. */
	for (unsigned i = 0; i < c->run->options->watchers; i++) {
		struct rp_grpc_client_call *call =
			rp_grpc_channel_call(c->channels[i % c->channel_count],
				"/etcdserverpb.Watch/Watch", NULL, 0, RP_NEVER, &ops, c);

		if (!call || rp_grpc_client_call_send(call, data, length) != 0) {
			calls_fail(c, "a watch cannot be begun");
			return false;
		}
	}
	return false;
}

static size_t etcd_watch_request(struct calls *c, uint64_t n, const uint8_t **data)
{
	return put_request(c, PREFIX "watched", c->planned_ns, data);
}

static int etcd_watch_begin(struct perf_run *r, uint64_t now_ns)
{
	static const struct calls_ops ops = {.path = "/etcdserverpb.KV/Put",
		.request = etcd_watch_request,
		.ready = watch_ready,
		.silent = true};
	int rc = calls_begin(r, &ops);
	struct calls *c = r->state;

	if (r->options->size < sizeof(uint64_t)) {
		r->why = "a value has 8 bytes at least";
		return -1;
	}
	if (rc == 0)
		c->mode = calloc(1, sizeof(struct watching));
	return rc == 0 && !c->mode ? -1 : rc;
}

const struct perf_mode perf_mode_etcd_watch = {
	.name = "etcd-watch",
	.text = "events to many watchers of one key of an etcd server",
	.needs = PERF_NEEDS_SOCKETS,
	.measures = "put to event, one way",
	.unit = "events",
	.fan_out = true,
	.begin = etcd_watch_begin,
	.turn = calls_turn,
	.end = calls_end,
};
