/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A node's services on a stand-in for gRPC, and short ways to call them. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <etcd/etcd.h>
#include <etcd/peer.h>
#include <etcd/process.h>
#include <etcdserverpb/rpc.pb-c.h>

#include "fake_grpc.h"
#include "fake_node.h"

struct rig {
	struct fake_node node;
	struct rp_grpc_server *server;
	struct rp_etcd *e;
	struct rp_kv *kv;
	uint64_t now_ns;
	/* Of the last unary call. */
	int code;
	char message[1024];
	void *answer; /* unpacked */
};

#define RIG_CLUSTER 0xc1
#define RIG_MEMBER 200
#define UUID "00112233-4455-6677-8899-aabbccddeeff"
#define UUID2 "10112233-4455-6677-8899-aabbccddeeff"

/* The node's part of ringpost.v1.Process; NULL: it is not served. */
static const struct rp_etcd_process_backend *rig_process __attribute__((unused));

static inline int rig_setup(void **state)
{
	struct rig *r = calloc(1, sizeof(*r));
	struct rp_etcd_config config = {
		.cluster_id = RIG_CLUSTER, .member_id = RIG_MEMBER, .raft_term = 2};

	fake_node_init(&r->node, 1);
	r->node.backend.process = rig_process;
	r->server = fake_server_new();
	r->kv = config.kv = r->node.kv;
	config.server = r->server;
	config.backend = &r->node.backend;
	config.request_bytes_max = 65536;
	config.watches_per_stream_max = 64;
	config.waiting_calls_max = 16;
	config.progress_interval_ns = 100 * RP_NS_PER_MS;
	r->e = r->node.etcd = rp_etcd_create(&config);
	assert_non_null(r->e);
	*state = r;
	return 0;
}

static inline void rig_answer_free(struct rig *r)
{
	if (r->answer)
		protobuf_c_message_free_unpacked(r->answer, NULL);
	r->answer = NULL;
}

static inline int rig_teardown(void **state)
{
	struct rig *r = *state;

	rig_answer_free(r);
	rp_etcd_destroy(r->e);
	fake_node_free(&r->node);
	fake_server_free(r->server);
	free(r);
	return 0;
}

static inline void rig_send(struct rp_grpc_call *c, const void *m)
{
	size_t length = protobuf_c_message_get_packed_size(m);
	uint8_t *data = malloc(length + 1);

	protobuf_c_message_pack(m, data);
	fake_call_send(c, data, length);
	free(data);
}

/* What a unary call came to; the call is freed. */
static inline void *rig_take(
	struct rig *r, struct rp_grpc_call *c, const ProtobufCMessageDescriptor *d)
{
	const struct fake_answer *a = fake_call_next(c);

	rig_answer_free(r);
	assert_true(c->over);
	r->code = c->code;
	snprintf(r->message, sizeof(r->message), "%s", c->message);
	if (a)
		r->answer = protobuf_c_message_unpack(d, NULL, a->length, a->data);
	assert_true((a != NULL) == (c->code == 0));
	fake_call_free(c);
	return r->answer;
}

static inline void *rig_call_on(struct rig *r, struct rp_grpc_conn *conn, const char *path,
	const void *m, const ProtobufCMessageDescriptor *d)
{
	struct rp_grpc_call *c = fake_call_new(r->server, path, conn);

	rig_send(c, m);
	return rig_take(r, c, d);
}

#define RIG_RANGE "/etcdserverpb.KV/Range"
#define RIG_PUT "/etcdserverpb.KV/Put"
#define RIG_DELETE "/etcdserverpb.KV/DeleteRange"
#define RIG_TXN "/etcdserverpb.KV/Txn"
#define RIG_COMPACT "/etcdserverpb.KV/Compact"
#define RIG_WATCH "/etcdserverpb.Watch/Watch"

static inline ProtobufCBinaryData B(const char *text)
{
	return (ProtobufCBinaryData){.data = (uint8_t *)text, .len = strlen(text)};
}

/* "\0": from the key on. */
static inline ProtobufCBinaryData B_from(void)
{
	return (ProtobufCBinaryData){.data = (uint8_t *)"", .len = 1};
}

static inline bool b_is(ProtobufCBinaryData b, const char *text)
{
	return b.len == strlen(text) && memcmp(b.data, text, b.len) == 0;
}

static inline Etcdserverpb__PutResponse *rig_put(struct rig *r, const char *key, const char *value)
{
	Etcdserverpb__PutRequest m = ETCDSERVERPB__PUT_REQUEST__INIT;

	m.key = B(key);
	m.value = B(value);
	return rig_call_on(r, NULL, RIG_PUT, &m, &etcdserverpb__put_response__descriptor);
}

static inline Etcdserverpb__RangeResponse *rig_get(struct rig *r, const char *key, const char *end)
{
	Etcdserverpb__RangeRequest m = ETCDSERVERPB__RANGE_REQUEST__INIT;

	m.key = B(key);
	m.range_end = B(end);
	return rig_call_on(r, NULL, RIG_RANGE, &m, &etcdserverpb__range_response__descriptor);
}

static inline Etcdserverpb__DeleteRangeResponse *rig_delete(
	struct rig *r, const char *key, const char *end)
{
	Etcdserverpb__DeleteRangeRequest m = ETCDSERVERPB__DELETE_RANGE_REQUEST__INIT;

	m.key = B(key);
	m.range_end = B(end);
	m.prev_kv = 1;
	return rig_call_on(
		r, NULL, RIG_DELETE, &m, &etcdserverpb__delete_range_response__descriptor);
}

static inline void rig_run(struct rig *r)
{
	while (rp_kv_step(r->kv, 1000))
		;
	r->now_ns += RP_NS_PER_MS;
	fake_node_clock(&r->node, r->now_ns);
	rp_etcd_run(r->e, r->now_ns);
	while (rp_kv_step(r->kv, 1000))
		;
}

#define assert_refused(r, want_code, want_message)               \
	do {                                                     \
		assert_string_equal((r)->message, want_message); \
		assert_int_equal((r)->code, want_code);          \
	} while (0)
