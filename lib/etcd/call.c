/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <base/assert.h>
#include <base/fnv.h>

#include "etcd_priv.h"

void etcd_reply(struct rp_grpc_call *call, const ProtobufCMessage *m)
{
	size_t length = protobuf_c_message_get_packed_size(m);
	uint8_t *data = malloc(length > 0 ? length : 1);

	RP_ASSERT(data != NULL);
	protobuf_c_message_pack(m, data);
	rp_grpc_call_reply(call, data, length);
	free(data);
}

void etcd_refuse(struct rp_grpc_call *call, int code, const char *message)
{
	rp_grpc_call_finish(call, (enum rp_grpc_code)code, message);
}

int etcd_kv_code(enum rp_kv_error error)
{
	switch (error) {
	case RP_KV_OK:
		return RP_GRPC_OK;
	case RP_KV_KEY_EMPTY:
	case RP_KV_KEY_NOT_FOUND:
	case RP_KV_VALUE_PROVIDED:
	case RP_KV_LEASE_PROVIDED:
	case RP_KV_TOO_MANY_OPS:
	case RP_KV_DUPLICATE_KEY:
	case RP_KV_INVALID_SORT:
		return RP_GRPC_INVALID_ARGUMENT;
	case RP_KV_LEASE_NOT_FOUND:
		return RP_GRPC_NOT_FOUND;
	case RP_KV_COMPACTED:
	case RP_KV_FUTURE_REVISION:
		return RP_GRPC_OUT_OF_RANGE;
	case RP_KV_NO_SPACE:
		return RP_GRPC_RESOURCE_EXHAUSTED;
	case RP_KV_CORRUPT:
		return RP_GRPC_DATA_LOSS;
	case RP_KV_LEASE_EXISTS:
		return RP_GRPC_FAILED_PRECONDITION;
	case RP_KV_LEASE_TTL_TOO_LARGE:
		return RP_GRPC_OUT_OF_RANGE;
	case RP_KV_KEY_RESERVED:
		return RP_GRPC_PERMISSION_DENIED;
	case RP_KV_ERROR_COUNT:
		break;
	}
	return RP_GRPC_UNKNOWN;
}

void etcd_refuse_kv(struct rp_grpc_call *call, enum rp_kv_error error)
{
	etcd_refuse(call, etcd_kv_code(error), rp_kv_error_text(error));
}

void etcd_refuse_malformed(struct rp_etcd *e, struct rp_grpc_call *call, const char *name)
{
	char text[128];

	e->stats.malformed++;
	snprintf(text, sizeof(text), "grpc: error unmarshalling request: %s does not decode", name);
	etcd_refuse(call, RP_GRPC_INTERNAL, text);
}

void *etcd_unpack(struct rp_etcd *e, struct rp_grpc_call *call, const ProtobufCMessageDescriptor *d,
	const uint8_t *data, size_t length)
{
	ProtobufCMessage *m = protobuf_c_message_unpack(d, NULL, length, data);

	if (!m)
		etcd_refuse_malformed(e, call, d->short_name);
	return m;
}

void etcd_unpacked_free(ProtobufCMessage *m)
{
	if (m)
		protobuf_c_message_free_unpacked(m, NULL);
}

void *etcd_grow(void *array, uint32_t *size, uint64_t want, size_t item)
{
	uint64_t n = *size > 0 ? *size : 16;

	if (want <= *size)
		return array;
	while (n < want)
		n *= 2;
	RP_ASSERT(n <= UINT32_MAX);
	array = realloc(array, n * item);
	RP_ASSERT(array != NULL);
	*size = (uint32_t)n;
	return array;
}

struct rp_etcd_caller etcd_caller_of(struct rp_etcd *e, struct rp_grpc_call *call)
{
	struct rp_grpc_conn *conn = rp_grpc_call_conn(call);
	struct etcd_conn *peer = rp_grpc_conn_user(conn);
	struct rp_etcd_caller caller = {.loopback = rp_grpc_conn_is_local(conn)};

	/* The mark alone means nothing: a client can send it too. */
	if (rp_grpc_call_metadata(call, "x-peer", NULL)) {
		caller.peer = peer && peer->proved;
		if (!caller.peer)
			e->stats.peer_unproved++;
	}
	if (!caller.peer)
		etcd_auth_identify(e, call, &caller);
	return caller;
}

uint64_t etcd_user_of(const struct rp_etcd_caller *caller)
{
	uint64_t h;

	if (!caller->user || !caller->user[0])
		return 0;
	h = rp_fnv1a(RP_FNV1A_BASIS, caller->user, strlen(caller->user));
	return h ? h : 1;
}

uint64_t etcd_now_ns(const struct rp_etcd *e)
{
	return e->backend->now_ns ? e->backend->now_ns(e->backend->ctx) : e->now_ns;
}

bool etcd_leader_missing(struct rp_etcd *e, struct rp_grpc_call *call)
{
	const char *asked = rp_grpc_call_metadata(call, "hasleader", NULL);
	struct rp_etcd_status status = {0};

	if (!asked || strcmp(asked, "true") != 0)
		return false;
	e->backend->status(e->backend->ctx, &status);
	return status.leader == 0;
}

bool etcd_stopped(struct rp_etcd *e, struct rp_grpc_call *call)
{
	if (e->stopped)
		etcd_refuse(call, RP_GRPC_UNAVAILABLE, ETCD_TEXT_STOPPED);
	return e->stopped;
}

struct etcd_call *etcd_call_new(struct rp_etcd *e, struct rp_grpc_call *call,
	enum etcd_call_kind kind, ProtobufCMessage *request)
{
	struct etcd_call *c;

	if (e->calls.count >= e->config.waiting_calls_max) {
		etcd_unpacked_free(request);
		etcd_refuse(call, RP_GRPC_RESOURCE_EXHAUSTED, "etcdserver: too many requests");
		return NULL;
	}
	c = calloc(1, sizeof(*c));
	RP_ASSERT(c != NULL);
	rp_list_init(&c->link);
	c->e = e;
	c->call = call;
	c->kind = kind;
	c->request = request;
	rp_grpc_call_set_user(call, c);
	etcd_table_add(&e->calls, &c->node, ++e->token_last);
	return c;
}

void etcd_call_free(struct etcd_call *c)
{
	etcd_table_remove(&c->e->calls, &c->node);
	if (c->waits)
		c->e->waiting_count--;
	rp_list_unlink(&c->link);
	rp_kv_result_clear(&c->guard);
	etcd_unpacked_free(c->request);
	etcd_arena_free(&c->arena);
	free(c);
}

struct etcd_call *etcd_call_find(struct rp_etcd *e, uint64_t token)
{
	struct etcd_node *n = etcd_table_find(&e->calls, token);

	if (!n)
		e->stats.answers_dropped++;
	return n ? RP_CONTAINER_OF(n, struct etcd_call, node) : NULL;
}

void etcd_call_on_cancel(struct rp_grpc_call *call, enum rp_grpc_cancel why, void *ctx)
{
	struct etcd_call *c = rp_grpc_call_user(call);

	if (!c)
		return;
	c->call = NULL;
	/* What the backend has not heard of ends here; for the rest its answer is awaited. */
	if (c->waits || c->kind == ETCD_CALL_COMPACT)
		etcd_call_free(c);
}

void etcd_call_fail(struct etcd_call *c, int code, const char *message)
{
	struct rp_grpc_call *call = c->call;

	if (call)
		etcd_refuse(call, code, message);
	else
		c->e->stats.answers_dropped++;
	etcd_call_free(c);
}

void etcd_call_reply(struct etcd_call *c, const ProtobufCMessage *m)
{
	struct rp_grpc_call *call = c->call;

	if (call)
		etcd_reply(call, m);
	else
		c->e->stats.answers_dropped++;
	etcd_call_free(c);
}

/* 0: the answer follows, and the call may be gone already. */
static int call_try(struct etcd_call *c)
{
	const struct rp_etcd_backend *b = c->e->backend;
	uint64_t token = c->node.key;

	if (c->batch)
		return b->queue_batch(b->ctx, c->ops, c->op_count, token);
	return b->queue_op(b->ctx, c->ops, token);
}

void etcd_call_queue(struct etcd_call *c)
{
	struct rp_etcd *e = c->e;

	/* Those that wait already go first. */
	if (e->waiting_count > 0 || call_try(c) == -EAGAIN) {
		c->waits = true;
		e->waiting_count++;
		rp_list_push_back(&e->waiting, &c->link);
	}
}

void etcd_calls_run(struct rp_etcd *e)
{
	uint32_t tries = e->waiting_count;

	/* Queues of one shard must not wait for another's ring: each gets its try. */
	while (tries-- > 0 && !rp_list_empty(&e->waiting)) {
		struct etcd_call *c = rp_list_entry(e->waiting.next, struct etcd_call, link);

		rp_list_unlink(&c->link);
		c->waits = false;
		e->waiting_count--;
		if (call_try(c) == -EAGAIN) {
			c->waits = true;
			e->waiting_count++;
			rp_list_push_back(&e->waiting, &c->link);
		}
	}
}
