/* SPDX-License-Identifier: Apache-2.0 */
/* The Election service (spec/etcd-semantics.md section 8). */
#include <stdlib.h>
#include <string.h>

#include <base/assert.h>

#include <mvccpb/kv.pb-c.h>
#include <v3electionpb/v3election.pb-c.h>

#include "contest_priv.h"

#define TEXT_NO_LEADER_KEY "\"leader\" field must be provided"

/* ---- Campaign ---- */

static void campaign_won(struct etcd_contest *c)
{
	V3electionpb__CampaignResponse m = V3ELECTIONPB__CAMPAIGN_RESPONSE__INIT;
	V3electionpb__LeaderKey leader = V3ELECTIONPB__LEADER_KEY__INIT;

	leader.name = etcd_bytes(c->name);
	leader.key = etcd_bytes(c->key);
	leader.rev = c->revision;
	leader.lease = c->lease;
	m.header = etcd_header_in(&c->arena, c->e, c->header_revision);
	m.leader = &leader;
	etcd_contest_reply(c, &m.base);
}

static const struct etcd_contest_ops campaign_ops = {.won = campaign_won, .proclaims = true};

static void on_campaign(struct rp_grpc_call *call, const uint8_t *data, size_t length, void *ctx)
{
	struct rp_etcd *e = ctx;
	V3electionpb__CampaignRequest *m =
		etcd_unpack(e, call, &v3electionpb__campaign_request__descriptor, data, length);

	if (!m)
		return;
	e->stats.campaigns++;
	etcd_contest_begin(
		e, call, &campaign_ops, etcd_span(m->name), etcd_span(m->value), m->lease);
	etcd_unpacked_free(&m->base);
}

const struct rp_grpc_call_ops etcd_campaign_ops = {
	.on_message = on_campaign, .on_cancel = etcd_contest_on_cancel};

/* ---- Proclaim, Resign ---- */

/* A txn on the leader's key, while it is the leader's. */
static void leader_write(struct etcd_call *c, const V3electionpb__LeaderKey *leader,
	struct rp_kv_op op, rp_etcd_done_fn done)
{
	struct rp_kv_compare *compare = etcd_arena_get(&c->arena, sizeof(*compare));
	struct rp_kv_op *ops = etcd_arena_get(&c->arena, sizeof(*ops));
	struct rp_kv_txn *t = etcd_arena_get(&c->arena, sizeof(*t));

	*compare = (struct rp_kv_compare){.result = RP_KV_EQUAL,
		.target = RP_KV_TARGET_CREATE,
		.key = etcd_span(leader->key),
		.number = leader->rev};
	*ops = op;
	t->compares = compare;
	t->compare_count = 1;
	t->success = ops;
	t->success_count = 1;
	c->e->backend->propose(c->e->backend->ctx, t, done, c);
}

static bool write_failed(
	struct etcd_call *c, int status, const char *message, const struct rp_kv_result *r)
{
	if (status == RP_GRPC_OK && !r->error)
		return false;
	etcd_call_fail(
		c, RP_GRPC_UNKNOWN, status != RP_GRPC_OK ? message : rp_kv_error_text(r->error));
	return true;
}

/* The call that waits for the write, or NULL: refused, and the request freed. */
static struct etcd_call *leader_call(struct rp_etcd *e, struct rp_grpc_call *call,
	const V3electionpb__LeaderKey *leader, ProtobufCMessage *request)
{
	struct rp_span key = leader ? etcd_span(leader->key) : (struct rp_span){0};

	if (!leader)
		etcd_refuse(call, RP_GRPC_UNKNOWN, TEXT_NO_LEADER_KEY);
	else if (key.length == 0)
		etcd_refuse(call, RP_GRPC_UNKNOWN, rp_kv_error_text(RP_KV_KEY_EMPTY));
	else if (!etcd_stopped(e, call) &&
		 !etcd_contest_refused(e, call, RP_ETCD_WRITE, key, (struct rp_span){0}))
		return etcd_call_new(e, call, ETCD_CALL_LEASE, request);
	etcd_unpacked_free(request);
	return NULL;
}

static void proclaim_done(
	void *done_ctx, int status, const char *message, const struct rp_kv_result *r)
{
	struct etcd_call *c = done_ctx;
	V3electionpb__ProclaimResponse m = V3ELECTIONPB__PROCLAIM_RESPONSE__INIT;

	if (write_failed(c, status, message, r))
		return;
	if (!r->txn.succeeded) {
		etcd_call_fail(c, RP_GRPC_UNKNOWN, "election: not leader");
		return;
	}
	m.header = etcd_header_in(&c->arena, c->e, r->revision);
	etcd_call_reply(c, &m.base);
}

static void on_proclaim(struct rp_grpc_call *call, const uint8_t *data, size_t length, void *ctx)
{
	struct rp_etcd *e = ctx;
	V3electionpb__ProclaimRequest *m =
		etcd_unpack(e, call, &v3electionpb__proclaim_request__descriptor, data, length);
	struct etcd_call *c = m ? leader_call(e, call, m->leader, &m->base) : NULL;

	if (c)
		leader_write(c, m->leader,
			(struct rp_kv_op){.type = RP_KV_OP_PUT,
				.put = {.key = etcd_span(m->leader->key),
					.value = etcd_span(m->value),
					.lease = m->leader->lease}},
			proclaim_done);
}

const struct rp_grpc_call_ops etcd_proclaim_ops = {
	.on_message = on_proclaim, .on_cancel = etcd_call_on_cancel};

static void resign_done(
	void *done_ctx, int status, const char *message, const struct rp_kv_result *r)
{
	struct etcd_call *c = done_ctx;
	V3electionpb__ResignResponse m = V3ELECTIONPB__RESIGN_RESPONSE__INIT;

	if (write_failed(c, status, message, r))
		return;
	m.header = etcd_header_in(&c->arena, c->e, r->revision);
	etcd_call_reply(c, &m.base);
}

static void on_resign(struct rp_grpc_call *call, const uint8_t *data, size_t length, void *ctx)
{
	struct rp_etcd *e = ctx;
	V3electionpb__ResignRequest *m =
		etcd_unpack(e, call, &v3electionpb__resign_request__descriptor, data, length);
	struct etcd_call *c = m ? leader_call(e, call, m->leader, &m->base) : NULL;

	if (c)
		leader_write(c, m->leader,
			(struct rp_kv_op){
				.type = RP_KV_OP_DELETE, .del = {.key = etcd_span(m->leader->key)}},
			resign_done);
}

const struct rp_grpc_call_ops etcd_resign_ops = {
	.on_message = on_resign, .on_cancel = etcd_call_on_cancel};

/* ---- Leader ---- */

static void leader_fill(V3electionpb__LeaderResponse *m, Etcdserverpb__ResponseHeader *h,
	Mvccpb__KeyValue *kv, const struct rp_kv_version *v)
{
	v3electionpb__leader_response__init(m);
	m->header = h;
	etcd_kv_fill(kv, v, false);
	m->kv = kv;
}

static void on_leader(struct rp_grpc_call *call, const uint8_t *data, size_t length, void *ctx)
{
	struct rp_etcd *e = ctx;
	V3electionpb__LeaderRequest *request =
		etcd_unpack(e, call, &v3electionpb__leader_request__descriptor, data, length);
	Etcdserverpb__ResponseHeader h = etcd_header(e, rp_kv_revision(e->kv));
	V3electionpb__LeaderResponse m;
	struct rp_kv_version *v;
	struct etcd_arena a = {0};
	struct rp_span prefix;
	Mvccpb__KeyValue kv;

	if (!request)
		return;
	prefix = etcd_contest_prefix(&a, etcd_span(request->name));
	if (!etcd_contest_refused(e, call, RP_ETCD_READ, prefix, etcd_contest_end(&a, prefix))) {
		v = etcd_contest_leader(e, prefix);
		if (v) {
			leader_fill(&m, &h, &kv, v);
			etcd_reply(call, &m.base);
			rp_kv_version_unref(v);
		} else {
			etcd_refuse(call, RP_GRPC_UNKNOWN, "election: no leader");
		}
	}
	etcd_arena_free(&a);
	etcd_unpacked_free(&request->base);
}

const struct rp_grpc_call_ops etcd_leader_ops = {
	.on_message = on_leader, .on_cancel = etcd_call_on_cancel};

/* ---- Observe ---- */

/*
 * One watch on the whole prefix. While there is a leader only its key matters; when that goes, the
 * store says who is next, and what the watch still has from before is skipped.
 */
struct etcd_observer {
	struct rp_list link; /**< on e->observers */
	struct rp_etcd *e;
	struct rp_grpc_call *call;
	struct etcd_arena arena;
	struct rp_span prefix;
	struct rp_kv_watcher *watcher;
	struct rp_kv_version *leader; /**< reference: as it was last sent; NULL = none */
	int64_t seen;		      /**< changes up to this revision have been taken */
	bool blocked;
};

static void observer_free(struct etcd_observer *o)
{
	rp_kv_watcher_cancel(o->watcher);
	if (o->leader)
		rp_kv_version_unref(o->leader);
	rp_list_unlink(&o->link);
	etcd_arena_free(&o->arena);
	free(o);
}

static void observer_set(struct etcd_observer *o, struct rp_kv_version *v)
{
	if (o->leader)
		rp_kv_version_unref(o->leader);
	o->leader = v;
}

static size_t leader_bytes(const struct rp_kv_version *v)
{
	return 128 + rp_kv_version_key(v).length + v->value_length;
}

static void observer_send(struct etcd_observer *o, int64_t revision)
{
	Etcdserverpb__ResponseHeader h = etcd_header(o->e, revision);
	V3electionpb__LeaderResponse m;
	Mvccpb__KeyValue kv;
	uint8_t *data;
	size_t length;

	leader_fill(&m, &h, &kv, o->leader);
	length = v3electionpb__leader_response__get_packed_size(&m);
	data = malloc(length);
	RP_ASSERT(data != NULL);
	v3electionpb__leader_response__pack(&m, data);
	/* There was room for it; what a connection's other calls took meanwhile is made up for by
	 * the next change. */
	if (rp_grpc_call_send_take(o->call, data, length, 0) != 0)
		o->e->stats.answers_dropped++;
}

/* Who leads now, of the store's present. */
static void observer_look(struct etcd_observer *o)
{
	o->seen = rp_kv_revision(o->e->kv);
	observer_set(o, etcd_contest_leader(o->e, o->prefix));
	if (o->leader)
		observer_send(o, o->seen);
}

static bool is_leader(const struct etcd_observer *o, const struct rp_kv_version *v)
{
	struct rp_span a = rp_kv_version_key(o->leader), b = rp_kv_version_key(v);

	return a.length == b.length && memcmp(a.data, b.data, a.length) == 0;
}

static bool observer_on_events(void *ctx, struct rp_kv_watcher *w, int64_t revision,
	const struct rp_kv_event *events, uint32_t count)
{
	struct etcd_observer *o = ctx;
	size_t bytes = 256;

	for (uint32_t i = 0; i < count; i++)
		bytes += leader_bytes(events[i].kv);
	if (!rp_grpc_call_fits(o->call, bytes)) {
		o->blocked = true;
		return false;
	}
	for (uint32_t i = 0; i < count; i++) {
		const struct rp_kv_version *v = events[i].kv;

		if (v->mod_revision <= o->seen)
			continue;
		if (!o->leader || (is_leader(o, v) && v->deleted)) {
			observer_look(o);
		} else if (is_leader(o, v)) {
			observer_set(o, rp_kv_version_ref((struct rp_kv_version *)v));
			observer_send(o, v->mod_revision);
		}
	}
	return true;
}

static void observer_watch(struct etcd_observer *o);

static void observer_on_compacted(void *ctx, struct rp_kv_watcher *w, int64_t compacted)
{
	struct etcd_observer *o = ctx;

	/* It was blocked for long: from the present on, then. */
	observer_watch(o);
	observer_look(o);
}

static const struct rp_kv_watch_ops observer_watch_ops = {
	.on_events = observer_on_events, .on_compacted = observer_on_compacted};

static void observer_watch(struct etcd_observer *o)
{
	struct rp_kv_watch_options options = {.key = o->prefix,
		.end = etcd_contest_end(&o->arena, o->prefix),
		.ops = &observer_watch_ops,
		.ctx = o};

	o->blocked = false;
	o->watcher = rp_kv_watch(o->e->kv, &options);
}

static void on_observe(struct rp_grpc_call *call, const uint8_t *data, size_t length, void *ctx)
{
	struct rp_etcd *e = ctx;
	V3electionpb__LeaderRequest *m;
	struct etcd_observer *o;

	if (etcd_stopped(e, call))
		return;
	if (etcd_leader_missing(e, call)) {
		rp_grpc_call_finish(call, RP_GRPC_UNAVAILABLE, "etcdserver: no leader");
		return;
	}
	m = etcd_unpack(e, call, &v3electionpb__leader_request__descriptor, data, length);
	if (!m)
		return;
	o = calloc(1, sizeof(*o));
	RP_ASSERT(o != NULL);
	o->e = e;
	o->call = call;
	o->prefix = etcd_contest_prefix(&o->arena, etcd_span(m->name));
	etcd_unpacked_free(&m->base);
	rp_list_push_back(&e->observers, &o->link);
	if (etcd_contest_refused(
		    e, call, RP_ETCD_READ, o->prefix, etcd_contest_end(&o->arena, o->prefix))) {
		observer_free(o);
		return;
	}
	rp_grpc_call_set_user(call, o);
	observer_watch(o);
	observer_look(o);
}

static void observe_on_cancel(struct rp_grpc_call *call, enum rp_grpc_cancel why, void *ctx)
{
	struct etcd_observer *o = rp_grpc_call_user(call);

	if (o)
		observer_free(o);
}

static void observe_on_room(struct rp_grpc_call *call, void *ctx)
{
	struct etcd_observer *o = rp_grpc_call_user(call);

	if (!o || !o->blocked)
		return;
	o->blocked = false;
	rp_kv_watcher_resume(o->watcher);
}

const struct rp_grpc_call_ops etcd_observe_ops = {
	.on_message = on_observe, .on_cancel = observe_on_cancel, .on_room = observe_on_room};

void etcd_observers_policy(struct rp_etcd *e)
{
	struct rp_list *n, *t;

	rp_list_foreach_safe (n, t, &e->observers) {
		struct etcd_observer *o = rp_list_entry(n, struct etcd_observer, link);
		struct rp_etcd_caller caller = etcd_caller_of(e, o->call);
		struct rp_grpc_call *call = o->call;
		const char *message = NULL;

		if (etcd_policy_check(e, RP_ETCD_READ, o->prefix,
			    etcd_contest_end(&o->arena, o->prefix), &caller,
			    &message) == RP_GRPC_OK)
			continue;
		rp_grpc_call_set_user(call, NULL);
		observer_free(o);
		etcd_refuse(call, RP_GRPC_UNKNOWN, message);
	}
}

void etcd_observers_stop(struct rp_etcd *e)
{
	while (!rp_list_empty(&e->observers)) {
		struct etcd_observer *o =
			rp_list_entry(e->observers.next, struct etcd_observer, link);
		struct rp_grpc_call *call = o->call;

		observer_free(o);
		rp_grpc_call_set_user(call, NULL);
		rp_grpc_call_finish(call, RP_GRPC_UNAVAILABLE, ETCD_TEXT_STOPPED);
	}
}
