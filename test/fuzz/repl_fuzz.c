/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Bytes that a proven peer could send: the first byte says as what they come in, an Apply or a Sync
 * call, or the answer to a call that this node has open (a digest, a list, an Apply).
 */

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <base/assert.h>
#include <base/log.h>
#include <repl/repl.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct calls {
	uint64_t token[2]; /**< the last of each kind, 0 = none */
};

static int on_send(void *ctx, rp_repl_peer_id peer, enum rp_repl_kind kind, struct rp_span bytes,
	uint64_t token)
{
	struct calls *c = ctx;

	c->token[kind] = token;
	return 0;
}

static void on_dial(void *ctx, rp_repl_peer_id peer, const char *address)
{
}

static void on_hangup(void *ctx, rp_repl_peer_id peer)
{
}

static void on_state(void *ctx, uint64_t node, enum rp_repl_state state)
{
}

static void on_done(void *ctx, uint64_t token, bool confirmed)
{
}

static void on_ready(void *ctx, bool alone)
{
}

static void put(struct rp_repl *r, const char *key, const char *value, struct rp_repl_now now)
{
	struct rp_kv_op op = {.type = RP_KV_OP_PUT};
	struct rp_kv_txn txn = {.success = &op, .success_count = 1};
	struct rp_kv_result result;

	op.put.key = (struct rp_span){.data = (const uint8_t *)key, .length = strlen(key)};
	op.put.value = (struct rp_span){.data = (const uint8_t *)value, .length = strlen(value)};
	if (rp_repl_propose(r, &txn, 1, &result, now) != RP_REPL_REFUSED)
		rp_kv_result_clear(&result);
}

/** Answers the open Sync with what makes the run go on: every range differs. */
static void answer_all_differ(struct rp_repl *r, struct calls *c, struct rp_repl_now now)
{
	/* hello = {node 2, cluster 3/4, ready}, differ = {0} */
	static const uint8_t bytes[] = {0x0a, 0x1d, 0x09, 2, 0, 0, 0, 0, 0, 0, 0, 0x11, 3, 0, 0, 0,
		0, 0, 0, 0, 0x19, 4, 0, 0, 0, 0, 0, 0, 0, 0x20, 1, 0x12, 1, 0};
	struct rp_span answer = {.data = bytes, .length = sizeof(bytes)};
	uint64_t token = c->token[RP_REPL_SYNC];

	rp_repl_result(r, token, false, answer, now);
	/* A list was asked for, or the case is not what it says. */
	RP_ASSERT(c->token[RP_REPL_SYNC] != token);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct rp_repl_ops ops = {.send = on_send,
		.dial = on_dial,
		.hangup = on_hangup,
		.node_state = on_state,
		.write_done = on_done,
		.ready = on_ready};
	struct rp_kv_config kvc = {.initial_revision = 1, .node = 1, .keep_tombstones = true};
	struct calls calls = {0};
	struct rp_repl_config config = {
		.node = 1, .cluster_high = 3, .cluster_low = 4, .ops = &ops, .ctx = &calls};
	struct rp_repl_now now = {.ns = 1, .wall_us = 1790000000000000ull};
	struct rp_span bytes, answer;
	struct rp_kv *kv;
	struct rp_repl *r;

	rp_log_set_level(RP_LOG_CRIT);
	if (size == 0)
		return 0;
	kv = rp_kv_create(&kvc);
	r = rp_repl_create(kv, &config);
	RP_ASSERT(kv && r);
	rp_repl_start(r, now);
	put(r, "a", "1", now);
	put(r, "m", "2", now);
	put(r, "/q/jobs", "1;epoch=4", now);
	put(r, "/q/jobs/c/00000000-0000-4000-8000-000000000001", "1", now);
	RP_ASSERT(rp_repl_peer_add(r, "p", now) == 0);
	rp_repl_tick(r, now);
	RP_ASSERT(rp_repl_peer_connected(r, 0, 2, 3, 4, now) == 0);
	put(r, "z", "3", now);
	bytes = (struct rp_span){.data = data + 1, .length = size - 1};
	switch (data[0] % 5) {
	case 0:
	case 1:
		rp_repl_on_request(
			r, 2, data[0] % 5 ? RP_REPL_SYNC : RP_REPL_APPLY, bytes, &answer, now);
		break;
	case 2:
		rp_repl_result(r, calls.token[RP_REPL_APPLY], false, bytes, now);
		break;
	case 3:
		rp_repl_result(r, calls.token[RP_REPL_SYNC], false, bytes, now);
		break;
	case 4:
		answer_all_differ(r, &calls, now);
		rp_repl_result(r, calls.token[RP_REPL_SYNC], false, bytes, now);
		break;
	}
	now.ns += 100 * RP_NS_PER_S;
	now.wall_us += 100000000;
	rp_repl_tick(r, now);
	rp_repl_destroy(r);
	rp_kv_destroy(kv);
	return 0;
}
