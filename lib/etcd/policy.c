/* SPDX-License-Identifier: Apache-2.0 */
#include "etcd_priv.h"

int etcd_policy_check(struct rp_etcd *e, enum rp_etcd_access access, struct rp_span key,
	struct rp_span end, const struct rp_etcd_caller *caller, const char **message)
{
	enum rp_policy_verdict v = RP_POLICY_ALLOWED;

	if (e->policy)
		v = rp_policy_check(e->policy, access == RP_ETCD_WRITE, key, end, caller->loopback);
	if (v == RP_POLICY_ALLOWED)
		return RP_GRPC_OK;
	e->stats.policy_refused++;
	*message = rp_policy_text(v);
	return RP_GRPC_PERMISSION_DENIED;
}

void rp_etcd_set_policy(struct rp_etcd *e, const struct rp_policy *policy)
{
	e->policy = policy;
	if (!etcd_policy_limits(e))
		return;
	etcd_streams_policy(e);
	etcd_observers_policy(e);
	etcd_process_policy(e);
}

int etcd_check(struct rp_etcd *e, enum rp_etcd_access access, struct rp_span key,
	struct rp_span end, const struct rp_etcd_caller *caller, const char **message)
{
	int code = etcd_auth_check(e, access, key, end, caller, message);

	if (code == RP_GRPC_OK)
		code = etcd_policy_check(e, access, key, end, caller, message);
	if (code != RP_GRPC_OK || !e->backend->check)
		return code;
	return e->backend->check(e->backend->ctx, access, key, end, caller, message);
}

static int check_op(struct rp_etcd *e, const struct rp_kv_op *op,
	const struct rp_etcd_caller *caller, const char **message)
{
	struct rp_span none = {0};
	int code;

	switch (op->type) {
	case RP_KV_OP_NONE:
		break;
	case RP_KV_OP_RANGE:
		return etcd_check(e, RP_ETCD_READ, op->range.key, op->range.end, caller, message);
	case RP_KV_OP_PUT:
		code = etcd_check(e, RP_ETCD_WRITE, op->put.key, none, caller, message);
		if (code == RP_GRPC_OK)
			code = etcd_auth_check_lease(
				e, RP_ETCD_WRITE, op->put.lease, caller, message);
		if (code == RP_GRPC_OK && op->put.prev_kv)
			code = etcd_check(e, RP_ETCD_READ, op->put.key, none, caller, message);
		return code;
	case RP_KV_OP_DELETE:
		code = etcd_check(e, RP_ETCD_WRITE, op->del.key, op->del.end, caller, message);
		if (code == RP_GRPC_OK && op->del.prev_kv)
			code = etcd_check(
				e, RP_ETCD_READ, op->del.key, op->del.end, caller, message);
		return code;
	case RP_KV_OP_TXN:
		return etcd_check_txn(e, op->txn, caller, message);
	}
	return RP_GRPC_OK;
}

int etcd_check_txn(struct rp_etcd *e, const struct rp_kv_txn *t,
	const struct rp_etcd_caller *caller, const char **message)
{
	int code = caller->auth_code;

	/* A txn of nothing needs no user, but no wrong one either. */
	if (code != RP_GRPC_OK)
		*message = "etcdserver: invalid auth token";
	for (uint32_t i = 0; code == RP_GRPC_OK && i < t->compare_count; i++)
		code = etcd_check(
			e, RP_ETCD_READ, t->compares[i].key, t->compares[i].end, caller, message);
	for (uint32_t i = 0; code == RP_GRPC_OK && i < t->success_count; i++)
		code = check_op(e, &t->success[i], caller, message);
	for (uint32_t i = 0; code == RP_GRPC_OK && i < t->failure_count; i++)
		code = check_op(e, &t->failure[i], caller, message);
	return code;
}
