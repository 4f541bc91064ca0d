/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>

#include <base/assert.h>

#include <etcdserverpb/rpc.pb-c.h>

#include "auth_priv.h"

struct service_method {
	const char *path;
	enum rp_grpc_kind kind;
	const struct rp_grpc_call_ops *ops;
	bool small; /* its requests are never large */
	enum etcd_auth_class auth;
};

static const struct service_method etcd_methods[] = {
	{"/etcdserverpb.KV/Range", RP_GRPC_UNARY, &etcd_range_ops, false, ETCD_AUTH_SELF},
	{"/etcdserverpb.KV/Put", RP_GRPC_UNARY, &etcd_put_ops, false, ETCD_AUTH_SELF},
	{"/etcdserverpb.KV/DeleteRange", RP_GRPC_UNARY, &etcd_delete_ops, false, ETCD_AUTH_SELF},
	{"/etcdserverpb.KV/Txn", RP_GRPC_UNARY, &etcd_txn_ops, false, ETCD_AUTH_SELF},
	{"/etcdserverpb.KV/Compact", RP_GRPC_UNARY, &etcd_compact_ops, true, ETCD_AUTH_ROOT},
	{"/etcdserverpb.Watch/Watch", RP_GRPC_BIDI, &etcd_watch_stream_ops, false, ETCD_AUTH_SELF},
	{"/etcdserverpb.Lease/LeaseGrant", RP_GRPC_UNARY, &etcd_lease_grant_ops, true,
		ETCD_AUTH_USER},
	{"/etcdserverpb.Lease/LeaseRevoke", RP_GRPC_UNARY, &etcd_lease_revoke_ops, true,
		ETCD_AUTH_USER},
	{"/etcdserverpb.Lease/LeaseKeepAlive", RP_GRPC_BIDI, &etcd_lease_keepalive_ops, true,
		ETCD_AUTH_SELF},
	{"/etcdserverpb.Lease/LeaseTimeToLive", RP_GRPC_UNARY, &etcd_lease_time_to_live_ops, true,
		ETCD_AUTH_USER},
	{"/etcdserverpb.Lease/LeaseLeases", RP_GRPC_UNARY, &etcd_lease_leases_ops, true,
		ETCD_AUTH_USER},
	{"/v3lockpb.Lock/Lock", RP_GRPC_UNARY, &etcd_lock_ops, true, ETCD_AUTH_SELF},
	{"/v3lockpb.Lock/Unlock", RP_GRPC_UNARY, &etcd_unlock_ops, true, ETCD_AUTH_SELF},
	{"/v3electionpb.Election/Campaign", RP_GRPC_UNARY, &etcd_campaign_ops, false,
		ETCD_AUTH_SELF},
	{"/v3electionpb.Election/Proclaim", RP_GRPC_UNARY, &etcd_proclaim_ops, false,
		ETCD_AUTH_SELF},
	{"/v3electionpb.Election/Leader", RP_GRPC_UNARY, &etcd_leader_ops, true, ETCD_AUTH_SELF},
	{"/v3electionpb.Election/Observe", RP_GRPC_SERVER_STREAM, &etcd_observe_ops, true,
		ETCD_AUTH_SELF},
	{"/v3electionpb.Election/Resign", RP_GRPC_UNARY, &etcd_resign_ops, true, ETCD_AUTH_SELF},
	{"/etcdserverpb.Cluster/MemberAdd", RP_GRPC_UNARY, &etcd_member_add_ops, true,
		ETCD_AUTH_ROOT},
	{"/etcdserverpb.Cluster/MemberList", RP_GRPC_UNARY, &etcd_member_list_ops, true,
		ETCD_AUTH_USER},
	{"/etcdserverpb.Cluster/MemberRemove", RP_GRPC_UNARY, &etcd_member_remove_ops, true,
		ETCD_AUTH_ROOT},
	{"/etcdserverpb.Cluster/MemberUpdate", RP_GRPC_UNARY, &etcd_member_update_ops, true,
		ETCD_AUTH_ROOT},
	{"/etcdserverpb.Cluster/MemberPromote", RP_GRPC_UNARY, &etcd_member_promote_ops, true,
		ETCD_AUTH_ROOT},
	{"/etcdserverpb.Maintenance/Alarm", RP_GRPC_UNARY, &etcd_alarm_ops, true, ETCD_AUTH_ALARM},
	{"/etcdserverpb.Maintenance/Status", RP_GRPC_UNARY, &etcd_status_ops, true,
		ETCD_AUTH_STATUS},
	{"/etcdserverpb.Maintenance/Hash", RP_GRPC_UNARY, &etcd_hash_ops, true, ETCD_AUTH_ROOT},
	{"/etcdserverpb.Maintenance/HashKV", RP_GRPC_UNARY, &etcd_hash_kv_ops, true,
		ETCD_AUTH_ROOT},
	{"/etcdserverpb.Maintenance/Defragment", RP_GRPC_UNARY, &etcd_defragment_ops, true,
		ETCD_AUTH_ROOT},
	{"/etcdserverpb.Maintenance/Snapshot", RP_GRPC_SERVER_STREAM, &etcd_snapshot_ops, true,
		ETCD_AUTH_ROOT},
	{"/etcdserverpb.Maintenance/MoveLeader", RP_GRPC_UNARY, &etcd_move_leader_ops, true,
		ETCD_AUTH_ROOT},
	{"/etcdserverpb.Maintenance/Downgrade", RP_GRPC_UNARY, &etcd_downgrade_ops, true,
		ETCD_AUTH_ROOT},
	{"/etcdserverpb.Auth/AuthEnable", RP_GRPC_UNARY, &etcd_auth_enable_ops, true,
		ETCD_AUTH_ROOT},
	{"/etcdserverpb.Auth/AuthDisable", RP_GRPC_UNARY, &etcd_auth_disable_ops, true,
		ETCD_AUTH_ROOT},
	{"/etcdserverpb.Auth/AuthStatus", RP_GRPC_UNARY, &etcd_auth_status_ops, true,
		ETCD_AUTH_ROOT},
	{"/etcdserverpb.Auth/Authenticate", RP_GRPC_UNARY, &etcd_authenticate_ops, true,
		ETCD_AUTH_OPEN},
	{"/etcdserverpb.Auth/UserAdd", RP_GRPC_UNARY, &etcd_user_add_ops, true, ETCD_AUTH_ROOT},
	{"/etcdserverpb.Auth/UserGet", RP_GRPC_UNARY, &etcd_user_get_ops, true, ETCD_AUTH_SELF},
	{"/etcdserverpb.Auth/UserList", RP_GRPC_UNARY, &etcd_user_list_ops, true, ETCD_AUTH_ROOT},
	{"/etcdserverpb.Auth/UserDelete", RP_GRPC_UNARY, &etcd_user_delete_ops, true,
		ETCD_AUTH_ROOT},
	{"/etcdserverpb.Auth/UserChangePassword", RP_GRPC_UNARY, &etcd_user_change_password_ops,
		true, ETCD_AUTH_ROOT},
	{"/etcdserverpb.Auth/UserGrantRole", RP_GRPC_UNARY, &etcd_user_grant_role_ops, true,
		ETCD_AUTH_ROOT},
	{"/etcdserverpb.Auth/UserRevokeRole", RP_GRPC_UNARY, &etcd_user_revoke_role_ops, true,
		ETCD_AUTH_ROOT},
	{"/etcdserverpb.Auth/RoleAdd", RP_GRPC_UNARY, &etcd_role_add_ops, true, ETCD_AUTH_ROOT},
	{"/etcdserverpb.Auth/RoleGet", RP_GRPC_UNARY, &etcd_role_get_ops, true, ETCD_AUTH_SELF},
	{"/etcdserverpb.Auth/RoleList", RP_GRPC_UNARY, &etcd_role_list_ops, true, ETCD_AUTH_ROOT},
	{"/etcdserverpb.Auth/RoleDelete", RP_GRPC_UNARY, &etcd_role_delete_ops, true,
		ETCD_AUTH_ROOT},
	{"/etcdserverpb.Auth/RoleGrantPermission", RP_GRPC_UNARY, &etcd_role_grant_permission_ops,
		true, ETCD_AUTH_ROOT},
	{"/etcdserverpb.Auth/RoleRevokePermission", RP_GRPC_UNARY, &etcd_role_revoke_permission_ops,
		true, ETCD_AUTH_ROOT},
};

static const struct service_method peer_methods[] = {
	{RP_ETCD_PEER_PATH_PROVE, RP_GRPC_UNARY, &etcd_prove_ops, true},
	{RP_ETCD_PEER_PATH_APPLY, RP_GRPC_UNARY, &etcd_apply_ops, false},
	{RP_ETCD_PEER_PATH_SYNC, RP_GRPC_UNARY, &etcd_sync_ops, false},
	{RP_ETCD_PEER_PATH_DELIVER_ONE, RP_GRPC_UNARY, &etcd_deliver_one_ops, false},
	{RP_ETCD_PEER_PATH_DELIVER, RP_GRPC_BIDI, &etcd_deliver_ops, false},
	{RP_ETCD_PEER_PATH_LEASE, RP_GRPC_UNARY, &etcd_peer_lease_ops, true},
};

static const struct service_method process_methods[] = {
	{"/ringpost.v1.Process/Run", RP_GRPC_BIDI, &etcd_run_ops, false, ETCD_AUTH_SELF},
	{"/ringpost.v1.Process/Work", RP_GRPC_BIDI, &etcd_work_ops, false, ETCD_AUTH_SELF},
};

/* The i-th of those that are served; NULL behind the last. */
static const struct service_method *method_at(const struct rp_etcd *e, uint32_t i)
{
	const struct {
		const struct service_method *methods;
		uint32_t count;
	} tables[] = {
		{etcd_methods, RP_ARRAY_SIZE(etcd_methods)},
		{process_methods, e->backend->process ? RP_ARRAY_SIZE(process_methods) : 0},
		{peer_methods, e->backend->peer ? RP_ARRAY_SIZE(peer_methods) : 0},
	};

	for (uint32_t t = 0; t < RP_ARRAY_SIZE(tables); t++) {
		if (i < tables[t].count)
			return &tables[t].methods[i];
		i -= tables[t].count;
	}
	return NULL;
}

static void set_message_limits(struct rp_etcd *e)
{
	for (uint32_t i = 0; i < e->method_count; i++)
		e->methods[i].message_bytes_max =
			method_at(e, i)->small
				? ETCD_SMALL_MESSAGE_BYTES
				: (size_t)e->config.request_bytes_max + ETCD_REQUEST_OVERHEAD;
}

static int register_methods(struct rp_etcd *e)
{
	while (method_at(e, e->method_count))
		e->method_count++;
	e->methods = calloc(e->method_count, sizeof(e->methods[0]));
	e->gates = calloc(e->method_count, sizeof(e->gates[0]));
	RP_ASSERT(e->methods != NULL && e->gates != NULL);
	for (uint32_t i = 0; i < e->method_count; i++) {
		const struct service_method *m = method_at(e, i);

		e->gates[i] = (struct etcd_method){.e = e,
			.ops = m->ops,
			.kind = m->kind,
			.auth = m->auth,
			.of_nodes = m >= peer_methods &&
				    m < peer_methods + RP_ARRAY_SIZE(peer_methods)};
		e->methods[i] = (struct rp_grpc_method){.path = m->path,
			.kind = m->kind,
			.ops = &etcd_gate_ops,
			.ctx = &e->gates[i]};
	}
	set_message_limits(e);
	return rp_grpc_server_add_methods(e->config.server, e->methods, e->method_count);
}

struct rp_etcd *rp_etcd_create(const struct rp_etcd_config *config)
{
	struct rp_etcd *e;
	int status;

	if (config->cluster_id == 0 || config->member_id == 0 || config->raft_term == 0) {
		errno = EINVAL;
		return NULL;
	}
	e = calloc(1, sizeof(*e));
	RP_ASSERT(e != NULL);
	e->config = *config;
	e->backend = config->backend;
	e->kv = config->kv;
	if (e->config.request_bytes_max == 0)
		e->config.request_bytes_max = ETCD_REQUEST_BYTES_MAX;
	if (e->config.watches_per_stream_max == 0)
		e->config.watches_per_stream_max = ETCD_WATCHES_MAX;
	if (e->config.waiting_calls_max == 0)
		e->config.waiting_calls_max = ETCD_WAITING_MAX;
	if (e->config.progress_interval_ns == 0)
		e->config.progress_interval_ns = ETCD_PROGRESS_NS;
	rp_list_init(&e->waiting);
	rp_list_init(&e->compactions);
	rp_list_init(&e->streams);
	rp_list_init(&e->keepalives);
	rp_list_init(&e->keepalives_unsent);
	rp_list_init(&e->keepalives_waiting);
	rp_list_init(&e->contests);
	rp_list_init(&e->contests_ready);
	rp_list_init(&e->observers);
	rp_list_init(&e->rooms);
	status = etcd_auth_create(e);
	if (status == 0)
		status = etcd_process_create(e);
	if (status == 0)
		status = register_methods(e);
	if (status == 0)
		status = etcd_http_register(e);
	if (status != 0) {
		rp_etcd_destroy(e);
		errno = -status;
		return NULL;
	}
	return e;
}

void rp_etcd_destroy(struct rp_etcd *e)
{
	struct etcd_node *n;

	if (!e)
		return;
	/* The server has cancelled streams and calls; only calls that the backend still has are
	 * left. */
	RP_ASSERT(rp_list_empty(&e->streams));
	while ((n = etcd_table_any(&e->calls)))
		etcd_call_free(RP_CONTAINER_OF(n, struct etcd_call, node));
	RP_ASSERT(rp_list_empty(&e->observers));
	etcd_keepalives_free(e);
	etcd_contests_free(e);
	etcd_auth_free(e);
	etcd_process_free(e);
	etcd_table_clear(&e->calls);
	etcd_table_clear(&e->delivers);
	etcd_table_clear(&e->consumers);
	etcd_table_clear(&e->identities);
	free(e->kvs);
	free(e->events);
	free(e->event_pointers);
	free(e->methods);
	free(e->gates);
	free(e);
}

void rp_etcd_set_term(struct rp_etcd *e, uint64_t raft_term)
{
	e->config.raft_term = raft_term;
}

void rp_etcd_set_limits(struct rp_etcd *e, uint32_t request_bytes_max)
{
	e->config.request_bytes_max =
		request_bytes_max > 0 ? request_bytes_max : ETCD_REQUEST_BYTES_MAX;
	set_message_limits(e);
}

void rp_etcd_set_token_ttl(struct rp_etcd *e, uint64_t token_ttl_ns)
{
	e->config.token_ttl_ns = token_ttl_ns;
}

static void compactions_run(struct rp_etcd *e)
{
	struct rp_list *n;

	if (rp_list_empty(&e->compactions) || !rp_kv_compact_done(e->kv))
		return;
	while ((n = rp_list_pop_front(&e->compactions))) {
		struct etcd_call *c = rp_list_entry(n, struct etcd_call, link);
		Etcdserverpb__CompactionResponse m = ETCDSERVERPB__COMPACTION_RESPONSE__INIT;

		m.header = etcd_header_in(&c->arena, e, rp_kv_revision(e->kv));
		etcd_call_reply(c, &m.base);
	}
}

uint64_t rp_etcd_run(struct rp_etcd *e, uint64_t now_ns)
{
	uint64_t progress_ns;
	bool hashing, saying;

	e->now_ns = now_ns;
	if (e->progress_next_ns == 0)
		e->progress_next_ns = now_ns + e->config.progress_interval_ns;
	if (now_ns >= e->progress_next_ns) {
		e->progress_next_ns = now_ns + e->config.progress_interval_ns;
		etcd_streams_progress(e);
	}
	/* Clients that read nothing may be many, and turns too: each is tried once a millisecond.
	 */
	if (now_ns - e->retried_ns >= RP_NS_PER_MS) {
		e->retried_ns = now_ns;
		etcd_streams_room(e);
		etcd_keepalives_run(e);
	}
	etcd_calls_run(e);
	compactions_run(e);
	etcd_contests_run(e);
	hashing = etcd_auth_run(e);
	saying = etcd_process_run(e);
	/* What waits for others has no event of its own to wake us. */
	if (hashing || saying || !rp_list_empty(&e->keepalives_unsent) ||
		!rp_list_empty(&e->contests_ready) || e->waiting_count > 0 ||
		!rp_list_empty(&e->rooms) || !rp_list_empty(&e->compactions))
		return now_ns + RP_NS_PER_MS;
	progress_ns = rp_list_empty(&e->streams) ? RP_NEVER : e->progress_next_ns;
	return RP_MIN(progress_ns, etcd_keepalives_next_ns(e));
}

void rp_etcd_stop(struct rp_etcd *e)
{
	if (e->stopped)
		return;
	e->stopped = true;
	etcd_streams_stop(e);
	etcd_keepalives_stop(e);
	etcd_contests_stop(e);
	etcd_observers_stop(e);
	etcd_process_stop(e);
}

void rp_etcd_stats_get(const struct rp_etcd *e, struct rp_etcd_stats *stats)
{
	*stats = e->stats;
	stats->calls_waiting = e->calls.count;
	stats->auth_tokens = e->auth->tokens.count;
}

void rp_etcd_each_client(const struct rp_etcd *e,
	void (*fn)(void *ctx, const char *version, bool stream, uint64_t requests), void *ctx)
{
	for (uint32_t i = 0; i < e->client_count; i++) {
		const struct etcd_client *c = &e->clients[i];

		if (c->unary > 0)
			fn(ctx, c->version, false, c->unary);
		if (c->streams > 0)
			fn(ctx, c->version, true, c->streams);
	}
}
