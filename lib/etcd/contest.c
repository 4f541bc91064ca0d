/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <base/assert.h>
#include <kv/lease.h>

#include "contest_priv.h"

struct rp_span etcd_contest_prefix(struct etcd_arena *a, struct rp_span name)
{
	uint8_t *p = etcd_arena_get(a, name.length + 1);

	if (name.length > 0)
		memcpy(p, name.data, name.length);
	p[name.length] = '/';
	return (struct rp_span){.data = p, .length = name.length + 1};
}

struct rp_span etcd_contest_end(struct etcd_arena *a, struct rp_span prefix)
{
	uint8_t *p = etcd_arena_get(a, prefix.length);

	/* Its last byte is '/', which has a successor. */
	memcpy(p, prefix.data, prefix.length);
	p[prefix.length - 1]++;
	return (struct rp_span){.data = p, .length = prefix.length};
}

static struct rp_span copy_in(struct etcd_arena *a, struct rp_span s)
{
	uint8_t *p = etcd_arena_get(a, s.length + 1);

	if (s.length > 0)
		memcpy(p, s.data, s.length);
	return (struct rp_span){.data = p, .length = s.length};
}

static struct rp_kv_version *first_of(struct rp_etcd *e, const struct rp_kv_range *r)
{
	struct rp_kv_range_result result;
	struct rp_kv_version *v = NULL;

	if (rp_kv_range(e->kv, r, &result) != RP_KV_OK)
		return NULL;
	if (result.item_count > 0)
		v = rp_kv_version_ref(result.items[0]);
	rp_kv_range_result_clear(&result);
	return v;
}

struct rp_kv_version *etcd_contest_leader(struct rp_etcd *e, struct rp_span prefix)
{
	struct etcd_arena a = {0};
	struct rp_kv_range r = {.key = prefix,
		.end = etcd_contest_end(&a, prefix),
		.limit = 1,
		.sort_order = RP_KV_SORT_ASCEND,
		.sort_target = RP_KV_SORT_CREATE};
	struct rp_kv_version *v = first_of(e, &r);

	etcd_arena_free(&a);
	return v;
}

bool etcd_contest_refused(struct rp_etcd *e, struct rp_grpc_call *call, enum rp_etcd_access access,
	struct rp_span key, struct rp_span end)
{
	struct rp_etcd_caller caller = etcd_caller_of(e, call);
	struct rp_route_key parsed = {.kind = RP_KEY_ORDINARY};
	const char *message = NULL;

	if (end.length == 0)
		rp_route_key_parse(&parsed, key.data, key.length);
	if (parsed.kind != RP_KEY_ORDINARY)
		message = "queue key: locks and elections have no place under /q/ and /queue/";
	else if (etcd_check(e, access, key, end, &caller, &message) == RP_GRPC_OK)
		return false;
	etcd_refuse(call, RP_GRPC_UNKNOWN, message);
	return true;
}

static void contest_free(struct etcd_contest *c)
{
	rp_kv_watcher_cancel(c->watcher);
	rp_list_unlink(&c->link);
	rp_list_unlink(&c->ready_link);
	c->e->stats.contests--;
	etcd_arena_free(&c->arena);
	free(c);
}

static void contest_fail(struct etcd_contest *c, int code, const char *message)
{
	struct rp_grpc_call *call = c->call;

	if (call) {
		rp_grpc_call_set_user(call, NULL);
		etcd_refuse(call, code, message);
	}
	contest_free(c);
}

void etcd_contest_reply(struct etcd_contest *c, const ProtobufCMessage *m)
{
	struct rp_grpc_call *call = c->call;

	rp_grpc_call_set_user(call, NULL);
	etcd_reply(call, m);
	contest_free(c);
}

/* ---- steps ---- */

static void contest_propose(struct etcd_contest *c, enum etcd_contest_state state,
	const struct rp_kv_txn *txn, rp_etcd_done_fn done)
{
	c->state = state;
	c->txn = *txn;
	c->e->backend->propose(c->e->backend->ctx, &c->txn, done, c);
}

/* True: it failed, or nobody waits for it any more; `c` has been dealt with. */
static bool contest_over(
	struct etcd_contest *c, int status, const char *message, const struct rp_kv_result *r)
{
	if (status != RP_GRPC_OK)
		contest_fail(c, RP_GRPC_UNKNOWN, message);
	else if (r->error)
		contest_fail(c, RP_GRPC_UNKNOWN, rp_kv_error_text(r->error));
	else
		return false;
	return true;
}

static void contest_left(
	void *done_ctx, int status, const char *message, const struct rp_kv_result *r)
{
	contest_free(done_ctx);
}

static void contest_compare_own(struct etcd_contest *c)
{
	c->compare = (struct rp_kv_compare){.result = RP_KV_EQUAL,
		.target = RP_KV_TARGET_CREATE,
		.key = c->key,
		.number = c->revision};
}

/* Our key goes, unless it is another's by now. */
static void contest_leave(struct etcd_contest *c)
{
	struct rp_kv_txn txn = {
		.compares = &c->compare, .compare_count = 1, .success = &c->op, .success_count = 1};

	rp_kv_watcher_cancel(c->watcher);
	c->watcher = NULL;
	rp_list_unlink(&c->ready_link);
	contest_compare_own(c);
	c->op = (struct rp_kv_op){.type = RP_KV_OP_DELETE, .del = {.key = c->key}};
	contest_propose(c, ETCD_CONTEST_LEAVE, &txn, contest_left);
}

static bool before_on_events(void *ctx, struct rp_kv_watcher *w, int64_t revision,
	const struct rp_kv_event *events, uint32_t count)
{
	struct etcd_contest *c = ctx;

	/* The store is in the middle of a commit: the next run goes on. */
	if (rp_list_empty(&c->ready_link))
		rp_list_push_back(&c->e->contests_ready, &c->ready_link);
	return true;
}

static void before_on_compacted(void *ctx, struct rp_kv_watcher *w, int64_t compacted)
{
	struct etcd_contest *c = ctx;

	c->watcher = NULL;
	before_on_events(ctx, w, compacted, NULL, 0);
}

static const struct rp_kv_watch_ops before_ops = {
	.on_events = before_on_events, .on_compacted = before_on_compacted};

static bool contest_holds_key(struct etcd_contest *c)
{
	struct rp_kv_range r = {.key = c->key};
	struct rp_kv_version *v = first_of(c->e, &r);
	bool holds = v && v->create_revision == c->revision;

	if (v)
		rp_kv_version_unref(v);
	return holds;
}

/* Ours is the lowest, or the one before it is waited for. */
static void contest_judge(struct etcd_contest *c)
{
	struct rp_kv_range r = {.key = c->prefix,
		.end = etcd_contest_end(&c->arena, c->prefix),
		.limit = 1,
		.sort_order = RP_KV_SORT_DESCEND,
		.sort_target = RP_KV_SORT_CREATE,
		.max_create_revision = c->revision - 1};
	bool waited = c->state == ETCD_CONTEST_WAIT;
	struct rp_kv_watch_options o = {
		.filters = RP_KV_WATCH_NO_PUT, .ops = &before_ops, .ctx = c};
	struct rp_kv_version *before = first_of(c->e, &r);

	rp_kv_watcher_cancel(c->watcher);
	c->watcher = NULL;
	if (!before && waited && c->ops->lost_text) {
		c->header_revision = rp_kv_revision(c->e->kv);
		if (!contest_holds_key(c)) {
			contest_fail(c, RP_GRPC_UNKNOWN, c->ops->lost_text);
			return;
		}
	}
	if (!before) {
		c->ops->won(c);
		return;
	}
	c->state = ETCD_CONTEST_WAIT;
	o.key = rp_kv_version_key(before);
	c->watcher = rp_kv_watch(c->e->kv, &o);
	rp_kv_version_unref(before);
}

static void contest_proclaimed(
	void *done_ctx, int status, const char *message, const struct rp_kv_result *r)
{
	struct etcd_contest *c = done_ctx;

	if (contest_over(c, status, message, r))
		return;
	if (!c->call)
		contest_leave(c);
	else if (!r->txn.succeeded)
		contest_fail(c, RP_GRPC_UNKNOWN, "election: not leader");
	else
		contest_judge(c);
}

static void contest_proclaim(struct etcd_contest *c)
{
	struct rp_kv_txn txn = {
		.compares = &c->compare, .compare_count = 1, .success = &c->op, .success_count = 1};

	contest_compare_own(c);
	c->op = (struct rp_kv_op){
		.type = RP_KV_OP_PUT, .put = {.key = c->key, .value = c->value, .lease = c->lease}};
	contest_propose(c, ETCD_CONTEST_PROCLAIM, &txn, contest_proclaimed);
}

static void contest_entered(
	void *done_ctx, int status, const char *message, const struct rp_kv_result *r)
{
	struct etcd_contest *c = done_ctx;
	const struct rp_kv_version *there = NULL;

	if (contest_over(c, status, message, r))
		return;
	c->revision = c->header_revision = r->revision;
	if (!r->txn.succeeded) {
		RP_ASSERT(r->txn.ops[0].range.item_count == 1);
		there = r->txn.ops[0].range.items[0];
		c->revision = there->create_revision;
	}
	if (!c->call)
		contest_leave(c);
	else if (there && c->ops->proclaims &&
		 (there->value_length != c->value.length ||
			 memcmp(there->value, c->value.data, c->value.length) != 0))
		contest_proclaim(c);
	else
		contest_judge(c);
}

static void contest_enter(struct etcd_contest *c)
{
	struct rp_kv_txn txn = {.compares = &c->compare,
		.compare_count = 1,
		.success = &c->op,
		.success_count = 1,
		.failure = &c->other,
		.failure_count = 1};
	uint8_t *key = etcd_arena_get(&c->arena, c->prefix.length + 24);
	struct rp_etcd_caller caller;
	const char *message = NULL;
	uint64_t magnitude = c->lease < 0 ? -(uint64_t)c->lease : (uint64_t)c->lease;

	/* As Go prints %x of a signed number. */
	memcpy(key, c->prefix.data, c->prefix.length);
	c->key = (struct rp_span){.data = key, .length = c->prefix.length};
	c->key.length += (size_t)snprintf((char *)key + c->prefix.length, 24, "%s%" PRIx64,
		c->lease < 0 ? "-" : "", magnitude);
	if (etcd_contest_refused(c->e, c->call, RP_ETCD_WRITE, c->key, (struct rp_span){0})) {
		contest_free(c);
		return;
	}
	caller = etcd_caller_of(c->e, c->call);
	if (etcd_auth_check_lease(c->e, RP_ETCD_WRITE, c->lease, &caller, &message)) {
		contest_fail(c, RP_GRPC_UNKNOWN, message);
		return;
	}
	c->compare = (struct rp_kv_compare){
		.result = RP_KV_EQUAL, .target = RP_KV_TARGET_CREATE, .key = c->key};
	c->op = (struct rp_kv_op){
		.type = RP_KV_OP_PUT, .put = {.key = c->key, .value = c->value, .lease = c->lease}};
	c->other = (struct rp_kv_op){.type = RP_KV_OP_RANGE, .range = {.key = c->key}};
	contest_propose(c, ETCD_CONTEST_ENTER, &txn, contest_entered);
}

static void contest_granted(
	void *done_ctx, int status, const char *message, const struct rp_kv_result *r)
{
	struct etcd_contest *c = done_ctx;

	if (contest_over(c, status, message, r))
		return;
	if (c->call)
		contest_enter(c);
	else
		contest_free(c); /* the lease ends by itself */
}

void etcd_contest_begin(struct rp_etcd *e, struct rp_grpc_call *call,
	const struct etcd_contest_ops *ops, struct rp_span name, struct rp_span value,
	int64_t lease)
{
	struct rp_kv_txn txn = {.system_count = 1};
	struct etcd_contest *c;

	if (etcd_stopped(e, call))
		return;
	if (e->stats.contests >= e->config.waiting_calls_max) {
		etcd_refuse(call, RP_GRPC_RESOURCE_EXHAUSTED, "etcdserver: too many requests");
		return;
	}
	c = calloc(1, sizeof(*c));
	RP_ASSERT(c != NULL);
	rp_list_init(&c->ready_link);
	rp_list_push_back(&e->contests, &c->link);
	e->stats.contests++;
	c->e = e;
	c->call = call;
	c->ops = ops;
	c->name = copy_in(&c->arena, name);
	c->prefix = etcd_contest_prefix(&c->arena, name);
	c->value = copy_in(&c->arena, value);
	c->lease = lease;
	rp_grpc_call_set_user(call, c);
	if (etcd_contest_refused(
		    e, call, RP_ETCD_READ, c->prefix, etcd_contest_end(&c->arena, c->prefix))) {
		contest_free(c);
		return;
	}
	if (lease != 0) {
		contest_enter(c);
		return;
	}
	c->lease = rp_kv_lease_id_new(e->kv);
	c->system = (struct rp_kv_system_op){
		.type = RP_KV_SYSTEM_GRANT, .lease = c->lease, .ttl_s = ETCD_CONTEST_TTL_S};
	txn.system = &c->system;
	contest_propose(c, ETCD_CONTEST_GRANT, &txn, contest_granted);
}

void etcd_contest_on_cancel(struct rp_grpc_call *call, enum rp_grpc_cancel why, void *ctx)
{
	struct etcd_contest *c = rp_grpc_call_user(call);

	if (!c)
		return;
	c->call = NULL;
	/* A write that is out is waited for; then our key goes. The server's end is not ours. */
	if (c->state != ETCD_CONTEST_WAIT)
		return;
	if (why == RP_GRPC_CANCEL_STOPPED || c->e->stopped)
		contest_free(c);
	else
		contest_leave(c);
}

void etcd_contests_run(struct rp_etcd *e)
{
	struct rp_list ready, *n;

	rp_list_init(&ready);
	rp_list_splice_back(&ready, &e->contests_ready);
	while ((n = rp_list_pop_front(&ready)))
		contest_judge(rp_list_entry(n, struct etcd_contest, ready_link));
}

void etcd_contests_stop(struct rp_etcd *e)
{
	struct rp_list *n, *t;

	rp_list_foreach_safe (n, t, &e->contests) {
		struct etcd_contest *c = rp_list_entry(n, struct etcd_contest, link);

		if (c->state == ETCD_CONTEST_WAIT)
			contest_fail(c, RP_GRPC_UNAVAILABLE, ETCD_TEXT_STOPPED);
	}
}

void etcd_contests_free(struct rp_etcd *e)
{
	while (!rp_list_empty(&e->contests))
		contest_free(rp_list_entry(e->contests.next, struct etcd_contest, link));
}
