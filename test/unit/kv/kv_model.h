/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A store that is simple enough to be believed: one list of all changes, searched from its end. It
 * speaks the store's own operations, so that a test can ask both the same.
 */

#include <stdbool.h>
#include <stdint.h>

#include <kv/kv.h>

#define MODEL_KEYS 8
#define MODEL_CHANGES_MAX 40000
/** Ids 1 .. MODEL_LEASES. */
#define MODEL_LEASES 5

struct model_change {
	int64_t revision;
	int key;
	bool deleted;
	char value;
	int64_t create, version, lease;
};

struct model_lease {
	bool alive;
	int64_t ttl_s;
	uint64_t expiry_ns;
};

struct model {
	int64_t revision, compacted;
	uint32_t change_count;
	struct model_change changes[MODEL_CHANGES_MAX];
	uint64_t stamp_last, node;
	struct model_lease leases[MODEL_LEASES + 1];
	/* Of each key's newest write, while it is live or its tombstone is kept. */
	bool known[MODEL_KEYS];
	uint64_t stamp[MODEL_KEYS], writer[MODEL_KEYS];
};

/** Keys are one letter, "a" to "h"; values one digit. */
int model_key_of(struct rp_span key);
bool model_selects(struct rp_span key, struct rp_span end, int k);
const struct model_change *model_at(const struct model *m, int key, int64_t revision);
/** What the key was before the revision of changes[i], as prev_kv shows it. */
const struct model_change *model_before(const struct model *m, uint32_t i);
/** Whether the rule against duplicates refuses the txn. */
bool model_duplicates(const struct rp_kv_txn *t);
/** Applies, and compares with what the store said. Returns NULL, or what differs. */
const char *model_apply(
	struct model *m, const struct rp_kv_txn *t, uint64_t wall_us, const struct rp_kv_result *r);
const char *model_range(const struct model *m, const struct rp_kv_range *q, int64_t current,
	enum rp_kv_error error, const struct rp_kv_range_result *r);
enum rp_kv_error model_grant(
	struct model *m, int64_t id, int64_t ttl_s, uint64_t wall_us, uint64_t now_ns);
enum rp_kv_error model_revoke(struct model *m, int64_t id, uint64_t wall_us);
/** Which lease is over first; 0 = none. */
int64_t model_expired(const struct model *m, uint64_t now_ns);
/** Returns how many records are taken. */
uint32_t model_replicated(struct model *m, const struct rp_kv_record *records, uint32_t count);
