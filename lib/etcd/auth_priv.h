/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Users, roles and tokens (spec/etcd-semantics.md section 11).
 *
 * What lasts is hidden records of the store (kv.h): auth/enabled, auth/revision, auth/user/NAME and
 * auth/role/NAME, the latter two as authpb messages. So they are written by the same propose as
 * keys, replicate like keys, and no client sees them. This is a view of them, kept by a hook.
 * Tokens are of this node alone; a JWT is good at every node that has the key.
 *
 *   auth_state.c    the view, and who may do what
 *   auth_token.c    tokens, and who a call is of
 *   auth_service.c  the RPCs
 *   jwt.c           sign and verify
 *   hasher.c        bcrypt on a thread of its own
 */

#include "etcd_priv.h"

typedef struct Authpb__Role Authpb__Role;
typedef struct Authpb__User Authpb__User;

#define AUTH_PREFIX RP_KV_HIDDEN_PREFIX "auth/"
#define AUTH_PREFIX_BYTES (RP_KV_HIDDEN_PREFIX_BYTES + 5)
#define AUTH_ROOT "root"
#define AUTH_TOKENS_MAX 65536u
#define AUTH_JOBS_MAX 1024u
#define AUTH_COST 10
#define AUTH_TOKEN_TTL_NS (300 * RP_NS_PER_S)

#define AUTH_TEXT_USER_EMPTY "etcdserver: user name is empty"
#define AUTH_TEXT_DENIED "etcdserver: permission denied"
#define AUTH_TEXT_BAD_TOKEN "etcdserver: invalid auth token"
#define AUTH_TEXT_OLD "etcdserver: revision of auth store is old"

/** Keys of one kind of access, sorted, not touching. `end` empty: to the end of all keys. */
struct auth_interval {
	struct rp_span start, end;
};

struct auth_intervals {
	struct auth_interval *at;
	uint32_t count, size;
};

struct auth_user {
	Authpb__User *m; /**< take */
	uint64_t secret; /**< changes with the password: tokens from before are void */
	uint64_t built;	 /**< state.changes when the intervals were made; 0 = never */
	bool root;
	struct auth_intervals intervals[2]; /**< by enum rp_etcd_access */
	struct etcd_arena arena;	    /**< of the intervals' keys */
};

struct auth_role {
	Authpb__Role *m; /**< take */
};

struct auth_token {
	struct etcd_node node; /**< by hash */
	struct rp_list link;   /**< on tokens, by last use */
	uint64_t expiry_ns, secret, revision;
	bool jwt; /**< does not live longer by being used */
	uint32_t length;
	char *user; /**< behind the text */
	char text[];
};

struct auth_jwt;
struct auth_hasher;

struct etcd_auth {
	struct rp_kv_hook hook;
	bool enabled;
	uint64_t revision;
	uint64_t changes; /**< of users and roles */
	struct auth_user **users;
	struct auth_role **roles;
	uint32_t user_count, user_size, role_count, role_size;
	struct etcd_table tokens;
	struct rp_list by_use;
	uint64_t token_last;
	struct auth_jwt *jwt; /**< NULL: simple tokens */
	struct auth_hasher *hasher;
};

/* auth_state.c */
struct auth_user *auth_user_find(const struct etcd_auth *a, const char *name);
struct auth_role *auth_role_find(const struct etcd_auth *a, const char *name);
bool auth_user_has_role(const struct auth_user *u, const char *role);
/** May the user do that to the whole range? */
bool auth_permitted(struct etcd_auth *a, struct auth_user *u, enum rp_etcd_access access,
	struct rp_span key, struct rp_span end);
void auth_state_init(struct rp_etcd *e);
void auth_state_free(struct rp_etcd *e);

/* auth_token.c */
/** A new token of the user, malloc'd; NULL when it could not be made. */
char *auth_token_new(struct rp_etcd *e, const struct auth_user *u);
void auth_tokens_clear(struct etcd_auth *a);
void auth_tokens_run(struct rp_etcd *e);

/* jwt.c */
struct auth_jwt *auth_jwt_new(const struct rp_etcd_config *config);
void auth_jwt_free(struct auth_jwt *j);
/** malloc'd, NULL when the key cannot sign. */
char *auth_jwt_sign(struct auth_jwt *j, const char *user, uint64_t revision, uint64_t expiry_s);
/** `user` is malloc'd. False: not ours, or its time is over at wall time `now_s`. */
bool auth_jwt_verify(struct auth_jwt *j, const char *token, size_t length, uint64_t now_s,
	char **user, uint64_t *revision, uint64_t *expiry_s);

/* hasher.c */
/** Called by auth_hasher_run() on the control thread. `hash` is empty when it could not be made. */
typedef void (*auth_hashed_fn)(struct rp_etcd *e, uint64_t token, const char *hash, bool matches);
struct auth_hasher *auth_hasher_new(struct rp_etcd *e);
/** Waits for the job that runs; the others are dropped. */
void auth_hasher_free(struct auth_hasher *h);
/** A hash of the password with the cost. False: too many wait. Copies. */
bool auth_hasher_make(struct auth_hasher *h, const char *password, uint32_t cost, uint64_t token,
	auth_hashed_fn done);
/** Does the password give that hash? */
bool auth_hasher_check(struct auth_hasher *h, const char *password, const char *hash,
	uint64_t token, auth_hashed_fn done);
/** Hands out what is done. True: something is still out. */
bool auth_hasher_run(struct auth_hasher *h);
