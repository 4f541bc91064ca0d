/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Short ways to say operations in tests. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include <kv/kv.h>
#include <kv/lease.h>
#include <kv/watch.h>

static inline struct rp_span S(const char *text) {
	return (struct rp_span){.data = (const uint8_t *)text, .length = strlen(text)};
}

/* range_end of etcd for "from the key on". */
static inline struct rp_span
S_from(void)
{
	return (struct rp_span){.data = (const uint8_t *)"", .length = 1};
}

static inline bool span_is(struct rp_span s, const char *text)
{
	return s.length == strlen(text) && memcmp(s.data, text, s.length) == 0;
}

static inline struct rp_kv *kv_new(void)
{
	struct rp_kv_config config = {.initial_revision = 1, .node = 7};

	return rp_kv_create(&config);
}

static inline struct rp_kv_op op_put(const char *key, const char *value)
{
	return (struct rp_kv_op){
		.type = RP_KV_OP_PUT, .put = {.key = S(key), .value = S(value), .prev_kv = true}};
}

static inline struct rp_kv_op op_delete(const char *key, const char *end)
{
	return (struct rp_kv_op){
		.type = RP_KV_OP_DELETE, .del = {.key = S(key), .end = S(end), .prev_kv = true}};
}

static inline struct rp_kv_op op_range(const char *key, const char *end)
{
	return (struct rp_kv_op){.type = RP_KV_OP_RANGE, .range = {.key = S(key), .end = S(end)}};
}

static inline struct rp_kv_op op_txn(const struct rp_kv_txn *t)
{
	return (struct rp_kv_op){.type = RP_KV_OP_TXN, .txn = t};
}

static inline enum rp_kv_error kv_run(
	struct rp_kv *kv, const struct rp_kv_op *ops, uint32_t count, struct rp_kv_result *out)
{
	struct rp_kv_txn t = {.success = ops, .success_count = count};
	struct rp_kv_writer w = {.wall_us = 1000};

	return rp_kv_apply(kv, &t, &w, out);
}

/* A system operation on a lease at a time. */
static inline enum rp_kv_error kv_lease(struct rp_kv *kv, enum rp_kv_system_type type,
	int64_t lease, int64_t ttl_s, uint64_t now_ns)
{
	struct rp_kv_system_op op = {.type = type, .lease = lease, .ttl_s = ttl_s};
	struct rp_kv_txn t = {.system = &op, .system_count = 1};
	struct rp_kv_writer w = {.wall_us = 1000, .now_ns = now_ns};
	struct rp_kv_result r;
	enum rp_kv_error error = rp_kv_apply(kv, &t, &w, &r);

	rp_kv_result_clear(&r);
	return error;
}

/* Returns the revision that the put took. */
static inline int64_t kv_put(struct rp_kv *kv, const char *key, const char *value)
{
	struct rp_kv_op op = op_put(key, value);
	struct rp_kv_result r;

	assert_int_equal(kv_run(kv, &op, 1, &r), RP_KV_OK);
	rp_kv_result_clear(&r);
	return r.revision;
}

static inline int64_t kv_delete(struct rp_kv *kv, const char *key, const char *end)
{
	struct rp_kv_op op = op_delete(key, end);
	struct rp_kv_result r;
	int64_t deleted;

	assert_int_equal(kv_run(kv, &op, 1, &r), RP_KV_OK);
	deleted = r.txn.ops[0].del.deleted;
	rp_kv_result_clear(&r);
	return deleted;
}

/* Runs background work to its end. */
static inline void kv_settle(struct rp_kv *kv)
{
	for (int i = 0; rp_kv_step(kv, 64); i++)
		assert_true(i < 1000000);
}
