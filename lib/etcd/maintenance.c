/* SPDX-License-Identifier: Apache-2.0 */
/* Maintenance but for snapshots (spec/etcd-semantics.md section 9). */
#include <inttypes.h>
#include <malloc.h>
#include <stdio.h>
#include <string.h>

#include <etcdserverpb/rpc.pb-c.h>

#include "etcd_priv.h"

/* What an empty store occupies: clients divide by the size. */
#define DB_BYTES_MIN 4096

static const struct {
	enum rp_kv_alarm alarm;
	const char *name;
} alarms[ETCD_ALARMS] = {{RP_KV_ALARM_NOSPACE, "NOSPACE"}, {RP_KV_ALARM_CORRUPT, "CORRUPT"}};

/*
 * An alarm is of a member, as clients name it: the store raises its own, of this node, and knows of
 * one flag for all members. While other members have an alarm, whether this node has it is in
 * `own`.
 */
static bool alarm_is_own(const struct rp_etcd *e, size_t i)
{
	return e->alarms[i].count > 0 ? e->alarms[i].own
				      : rp_kv_alarm_active(e->kv, alarms[i].alarm);
}

static uint32_t alarm_find(const struct etcd_alarm *a, uint64_t member)
{
	uint32_t i = 0;

	while (i < a->count && a->members[i] != member)
		i++;
	return i;
}

/* False: there is no room for one more. */
static bool alarm_activate(struct rp_etcd *e, size_t i, uint64_t member)
{
	struct etcd_alarm *a = &e->alarms[i];
	uint32_t at = alarm_find(a, member);

	if (member == e->config.member_id) {
		a->own = true;
	} else if (at == a->count) {
		if (a->count == ETCD_ALARM_MEMBERS_MAX)
			return false;
		if (a->count == 0)
			a->own = rp_kv_alarm_active(e->kv, alarms[i].alarm);
		a->members[a->count++] = member;
	}
	rp_kv_alarm_set(e->kv, alarms[i].alarm, true);
	return true;
}

/* False: the member has no such alarm. */
static bool alarm_deactivate(struct rp_etcd *e, size_t i, uint64_t member)
{
	struct etcd_alarm *a = &e->alarms[i];
	uint32_t at = alarm_find(a, member);
	bool was = member == e->config.member_id ? alarm_is_own(e, i) : at < a->count;

	if (!was)
		return false;
	if (member == e->config.member_id)
		a->own = false;
	else
		memmove(&a->members[at], &a->members[at + 1],
			(--a->count - at) * sizeof(a->members[0]));
	if (a->count == 0)
		rp_kv_alarm_set(e->kv, alarms[i].alarm, a->own);
	return true;
}

static void alarm_add(
	struct etcd_arena *a, Etcdserverpb__AlarmResponse *m, uint64_t id, enum rp_kv_alarm alarm)
{
	Etcdserverpb__AlarmMember *member = etcd_arena_get(a, sizeof(*member));

	etcdserverpb__alarm_member__init(member);
	member->memberid = id;
	member->alarm = (Etcdserverpb__AlarmType)alarm;
	m->alarms[m->n_alarms++] = member;
}

/* All that are active, of one kind or of each. */
static void alarms_list(const struct rp_etcd *e, struct etcd_arena *a,
	Etcdserverpb__AlarmResponse *m, enum rp_kv_alarm kind)
{
	m->alarms = etcd_arena_get(
		a, ETCD_ALARMS * (ETCD_ALARM_MEMBERS_MAX + 1) * sizeof(m->alarms[0]));
	for (size_t i = 0; i < ETCD_ALARMS; i++) {
		if (kind != RP_KV_ALARM_NONE && kind != alarms[i].alarm)
			continue;
		if (alarm_is_own(e, i))
			alarm_add(a, m, e->config.member_id, alarms[i].alarm);
		for (uint32_t n = 0; n < e->alarms[i].count; n++)
			alarm_add(a, m, e->alarms[i].members[n], alarms[i].alarm);
	}
}

static void status_errors(struct rp_etcd *e, struct etcd_arena *a,
	const struct rp_etcd_status *status, Etcdserverpb__StatusResponse *m)
{
	Etcdserverpb__AlarmResponse active = ETCDSERVERPB__ALARM_RESPONSE__INIT;

	alarms_list(e, a, &active, RP_KV_ALARM_NONE);
	m->errors = etcd_arena_get(
		a, (status->error_count + active.n_alarms + 1) * sizeof(m->errors[0]));
	if (status->leader == 0)
		m->errors[m->n_errors++] = (char *)"etcdserver: no leader";
	for (uint32_t i = 0; i < status->error_count; i++)
		m->errors[m->n_errors++] = (char *)status->errors[i];
	/* As protobuf for Go prints the message. */
	for (size_t i = 0; i < active.n_alarms; i++) {
		const Etcdserverpb__AlarmMember *member = active.alarms[i];
		char *text = etcd_arena_get(a, 64);
		size_t n = 0;

		if (member->memberid != 0)
			n = (size_t)snprintf(text, 64, "memberID:%" PRIu64 " ", member->memberid);
		snprintf(text + n, 64 - n, "alarm:%s ",
			member->alarm == ETCDSERVERPB__ALARM_TYPE__NOSPACE ? "NOSPACE" : "CORRUPT");
		m->errors[m->n_errors++] = text;
	}
}

static void on_status(struct rp_grpc_call *call, const uint8_t *data, size_t length, void *ctx)
{
	struct rp_etcd *e = ctx;
	Etcdserverpb__StatusRequest *request =
		etcd_unpack(e, call, &etcdserverpb__status_request__descriptor, data, length);
	Etcdserverpb__StatusResponse m = ETCDSERVERPB__STATUS_RESPONSE__INIT;
	Etcdserverpb__DowngradeInfo downgrade = ETCDSERVERPB__DOWNGRADE_INFO__INIT;
	int64_t revision = rp_kv_revision(e->kv);
	struct rp_etcd_status status = {0};
	struct rp_kv_stats stats;
	struct etcd_arena a = {0};

	if (!request)
		return;
	e->backend->status(e->backend->ctx, &status);
	rp_kv_stats_get(e->kv, &stats);
	m.header = etcd_header_in(&a, e, revision);
	m.version = (char *)ETCD_VERSION;
	m.storageversion = (char *)ETCD_VERSION_CLUSTER;
	m.dbsize = (int64_t)RP_MAX(stats.bytes, (uint64_t)DB_BYTES_MIN);
	m.dbsizeinuse = (int64_t)RP_MAX(stats.bytes_in_use, (uint64_t)DB_BYTES_MIN);
	m.leader = status.leader;
	/* Without a log of our own the revision is what grows with every write. */
	m.raftindex = status.raft_index > 0 ? status.raft_index : (uint64_t)revision;
	m.raftappliedindex =
		status.raft_applied_index > 0 ? status.raft_applied_index : m.raftindex;
	m.raftterm = e->config.raft_term;
	m.dbsizequota = (int64_t)RP_MIN(rp_kv_quota_bytes(e->kv), (uint64_t)INT64_MAX);
	downgrade.enabled = e->downgrade_target[0] != '\0';
	downgrade.targetversion = e->downgrade_target;
	m.downgradeinfo = &downgrade;
	status_errors(e, &a, &status, &m);
	etcd_reply(call, &m.base);
	etcd_arena_free(&a);
	etcd_unpacked_free(&request->base);
}

static bool alarm_run(struct rp_etcd *e, struct etcd_arena *a, const Etcdserverpb__AlarmRequest *r,
	Etcdserverpb__AlarmResponse *m)
{
	enum rp_kv_alarm alarm = (enum rp_kv_alarm)r->alarm;
	bool activate = r->action == ETCDSERVERPB__ALARM_REQUEST__ALARM_ACTION__ACTIVATE;
	bool deactivate = r->action == ETCDSERVERPB__ALARM_REQUEST__ALARM_ACTION__DEACTIVATE;

	if (r->action == ETCDSERVERPB__ALARM_REQUEST__ALARM_ACTION__GET) {
		alarms_list(e, a, m, alarm);
		return true;
	}
	m->alarms = etcd_arena_get(a, sizeof(m->alarms[0]));
	for (size_t i = 0; i < ETCD_ALARMS; i++) {
		if (alarms[i].alarm != alarm)
			continue;
		if (activate && !alarm_activate(e, i, r->memberid))
			return false;
		if (activate || (deactivate && alarm_deactivate(e, i, r->memberid)))
			alarm_add(a, m, r->memberid, alarm);
	}
	return true;
}

static void on_alarm(struct rp_grpc_call *call, const uint8_t *data, size_t length, void *ctx)
{
	struct rp_etcd *e = ctx;
	Etcdserverpb__AlarmRequest *request =
		etcd_unpack(e, call, &etcdserverpb__alarm_request__descriptor, data, length);
	Etcdserverpb__AlarmResponse m = ETCDSERVERPB__ALARM_RESPONSE__INIT;
	struct etcd_arena a = {0};

	if (!request)
		return;
	m.header = etcd_header_in(&a, e, rp_kv_revision(e->kv));
	if (alarm_run(e, &a, request, &m))
		etcd_reply(call, &m.base);
	else
		etcd_refuse(call, RP_GRPC_RESOURCE_EXHAUSTED, "alarms of too many members");
	etcd_arena_free(&a);
	etcd_unpacked_free(&request->base);
}

static void on_hash(struct rp_grpc_call *call, const uint8_t *data, size_t length, void *ctx)
{
	struct rp_etcd *e = ctx;
	Etcdserverpb__HashRequest *request =
		etcd_unpack(e, call, &etcdserverpb__hash_request__descriptor, data, length);
	Etcdserverpb__HashResponse m = ETCDSERVERPB__HASH_RESPONSE__INIT;
	Etcdserverpb__ResponseHeader h = etcd_header(e, rp_kv_revision(e->kv));

	if (!request)
		return;
	m.header = &h;
	rp_kv_hash(e->kv, 0, &m.hash);
	etcd_reply(call, &m.base);
	etcd_unpacked_free(&request->base);
}

static void on_hash_kv(struct rp_grpc_call *call, const uint8_t *data, size_t length, void *ctx)
{
	struct rp_etcd *e = ctx;
	Etcdserverpb__HashKVRequest *request =
		etcd_unpack(e, call, &etcdserverpb__hash_kvrequest__descriptor, data, length);
	Etcdserverpb__HashKVResponse m = ETCDSERVERPB__HASH_KVRESPONSE__INIT;
	int64_t revision = rp_kv_revision(e->kv);
	Etcdserverpb__ResponseHeader h = etcd_header(e, revision);
	enum rp_kv_error error;

	if (!request)
		return;
	m.header = &h;
	error = rp_kv_hash(e->kv, request->revision, &m.hash);
	m.compact_revision = rp_kv_compacted_revision(e->kv);
	m.hash_revision = request->revision > 0 ? request->revision : revision;
	if (error)
		etcd_refuse_kv(call, error);
	else
		etcd_reply(call, &m.base);
	etcd_unpacked_free(&request->base);
}

/* Memory that the store has freed goes back to the system. */
static void on_defragment(struct rp_grpc_call *call, const uint8_t *data, size_t length, void *ctx)
{
	struct rp_etcd *e = ctx;
	Etcdserverpb__DefragmentRequest *request =
		etcd_unpack(e, call, &etcdserverpb__defragment_request__descriptor, data, length);
	Etcdserverpb__DefragmentResponse m = ETCDSERVERPB__DEFRAGMENT_RESPONSE__INIT;

	if (!request)
		return;
	malloc_trim(0);
	etcd_reply(call, &m.base);
	etcd_unpacked_free(&request->base);
}

/* Every node is the leader of what is written at it: there is nothing to hand over. */
static void on_move_leader(struct rp_grpc_call *call, const uint8_t *data, size_t length, void *ctx)
{
	struct rp_etcd *e = ctx;
	Etcdserverpb__MoveLeaderRequest *request =
		etcd_unpack(e, call, &etcdserverpb__move_leader_request__descriptor, data, length);
	Etcdserverpb__MoveLeaderResponse m = ETCDSERVERPB__MOVE_LEADER_RESPONSE__INIT;

	if (!request)
		return;
	if (request->targetid == e->config.member_id)
		etcd_reply(call, &m.base);
	else
		etcd_refuse(call, RP_GRPC_FAILED_PRECONDITION, "etcdserver: bad leader transferee");
	etcd_unpacked_free(&request->base);
}

/* "3.5" or "3.5.0" as "3.5.0". False: no version. */
static bool version_read(const char *text, unsigned out[3])
{
	int end = 0;

	out[2] = 0;
	if (strspn(text, "0123456789.") != strlen(text) || strlen(text) >= ETCD_DOWNGRADE_BYTES)
		return false;
	if (sscanf(text, "%3u.%3u.%3u%n", &out[0], &out[1], &out[2], &end) == 3)
		return text[end] == '\0';
	return sscanf(text, "%3u.%3u%n", &out[0], &out[1], &end) == 2 && text[end] == '\0';
}

/* 0, or a status and *message. */
static int downgrade_check(
	const struct rp_etcd *e, const char *text, unsigned version[3], const char **message)
{
	unsigned own[3];

	if (!version_read(text, version)) {
		*message = "etcdserver: wrong downgrade target version format";
		return RP_GRPC_INVALID_ARGUMENT;
	}
	if (e->downgrade_target[0] != '\0') {
		*message = "etcdserver: cluster has a downgrade job in progress";
		return RP_GRPC_FAILED_PRECONDITION;
	}
	version_read(ETCD_VERSION_CLUSTER, own);
	if (version[0] != own[0] || version[1] + 1 != own[1]) {
		*message = "etcdserver: invalid downgrade target version";
		return RP_GRPC_INVALID_ARGUMENT;
	}
	return 0;
}

static int downgrade_run(
	struct rp_etcd *e, const Etcdserverpb__DowngradeRequest *r, const char **message)
{
	unsigned version[3];
	int code;

	switch ((int)r->action) {
	case ETCDSERVERPB__DOWNGRADE_REQUEST__DOWNGRADE_ACTION__VALIDATE:
		return downgrade_check(e, r->version, version, message);
	case ETCDSERVERPB__DOWNGRADE_REQUEST__DOWNGRADE_ACTION__ENABLE:
		code = downgrade_check(e, r->version, version, message);
		if (code == 0)
			snprintf(e->downgrade_target, sizeof(e->downgrade_target), "%u.%u.0",
				version[0] % 1000, version[1] % 1000);
		return code;
	case ETCDSERVERPB__DOWNGRADE_REQUEST__DOWNGRADE_ACTION__CANCEL:
		*message = "etcdserver: no inflight downgrade job";
		if (e->downgrade_target[0] == '\0')
			return RP_GRPC_FAILED_PRECONDITION;
		e->downgrade_target[0] = '\0';
		return 0;
	default:
		*message = "etcdserver: unknown downgrade action";
		return RP_GRPC_UNKNOWN;
	}
}

/*
 * There is one format of what is stored, so a downgrade is a mark that Status shows and CANCEL
 * takes away: clients that walk a cluster through one find every step of it.
 */
static void on_downgrade(struct rp_grpc_call *call, const uint8_t *data, size_t length, void *ctx)
{
	struct rp_etcd *e = ctx;
	Etcdserverpb__DowngradeRequest *request =
		etcd_unpack(e, call, &etcdserverpb__downgrade_request__descriptor, data, length);
	Etcdserverpb__DowngradeResponse m = ETCDSERVERPB__DOWNGRADE_RESPONSE__INIT;
	Etcdserverpb__ResponseHeader h = etcd_header(e, rp_kv_revision(e->kv));
	const char *message = "";
	int code;

	if (!request)
		return;
	code = downgrade_run(e, request, &message);
	m.header = &h;
	m.version = (char *)ETCD_VERSION_CLUSTER;
	if (code != 0)
		etcd_refuse(call, code, message);
	else
		etcd_reply(call, &m.base);
	etcd_unpacked_free(&request->base);
}

const struct rp_grpc_call_ops etcd_defragment_ops = {
	.on_message = on_defragment, .on_cancel = etcd_call_on_cancel};
const struct rp_grpc_call_ops etcd_move_leader_ops = {
	.on_message = on_move_leader, .on_cancel = etcd_call_on_cancel};
const struct rp_grpc_call_ops etcd_downgrade_ops = {
	.on_message = on_downgrade, .on_cancel = etcd_call_on_cancel};
const struct rp_grpc_call_ops etcd_status_ops = {
	.on_message = on_status, .on_cancel = etcd_call_on_cancel};
const struct rp_grpc_call_ops etcd_alarm_ops = {
	.on_message = on_alarm, .on_cancel = etcd_call_on_cancel};
const struct rp_grpc_call_ops etcd_hash_ops = {
	.on_message = on_hash, .on_cancel = etcd_call_on_cancel};
const struct rp_grpc_call_ops etcd_hash_kv_ops = {
	.on_message = on_hash_kv, .on_cancel = etcd_call_on_cancel};
