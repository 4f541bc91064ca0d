/* SPDX-License-Identifier: Apache-2.0 */

/* What the etcd services ask of the node, and what the control engine answers them. */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <base/assert.h>
#include <base/log.h>
#include <ctl/ctl_priv.h>
#include <route/key.h>

/* ---- writes ---- */

static struct ctl_write *write_new(struct rp_ctl *ctl, rp_etcd_done_fn done, void *done_ctx)
{
	struct ctl_write *w = calloc(1, sizeof(*w));

	RP_ASSERT(w != NULL);
	w->done = done;
	w->done_ctx = done_ctx;
	rp_hmap_insert(&ctl->writes, &w->by_token, ++ctl->write_token_last);
	return w;
}

static void write_fail(struct rp_ctl *ctl, struct ctl_write *w, int code, const char *message)
{
	rp_hmap_remove(&ctl->writes, &w->by_token);
	w->done(w->done_ctx, code, message, NULL);
	free(w);
}

/*
 * Keys that the node itself writes; clients read them. A range that also holds others is let
 * through: a node whose record was deleted writes it again.
 */
bool ctl_key_is_reserved(struct rp_span key)
{
	size_t n = strlen(RP_CONTROL_PREFIX);

	return key.length >= n && memcmp(key.data, RP_CONTROL_PREFIX, n) == 0;
}

static void backend_propose(
	void *ctx, const struct rp_kv_txn *txn, rp_etcd_done_fn done, void *done_ctx)
{
	struct rp_ctl *ctl = ctx;
	struct ctl_write *w = write_new(ctl, done, done_ctx);

	if (rp_control_propose(ctl->control, txn, w->by_token.key, ctl_now(ctl)) != 0)
		write_fail(ctl, w, RP_GRPC_UNAVAILABLE, CTL_TEXT_NOT_READY);
	ctl_kick(ctl);
}

static void backend_record_write(void *ctx, const struct rp_route_key *key, struct rp_span value,
	int64_t lease, bool prev_kv, const struct rp_etcd_caller *caller, rp_etcd_done_fn done,
	void *done_ctx)
{
	struct rp_ctl *ctl = ctx;
	struct ctl_write *w = write_new(ctl, done, done_ctx);
	const char *message = "";
	int rc = rp_control_record_write(
		ctl->control, key, value, lease, prev_kv, w->by_token.key, &message, ctl_now(ctl));

	if (rc == -EAGAIN)
		write_fail(ctl, w, RP_GRPC_UNAVAILABLE, CTL_TEXT_NOT_READY);
	else if (rc == -EPERM)
		write_fail(ctl, w, RP_GRPC_PERMISSION_DENIED, message);
	else if (rc != 0)
		write_fail(ctl, w, RP_GRPC_INVALID_ARGUMENT, message);
	ctl_kick(ctl);
}

void ctl_write_done(void *ctx, uint64_t token, const struct rp_kv_result *result)
{
	struct rp_ctl *ctl = ctx;
	struct rp_hmap_node *n = rp_hmap_find(&ctl->writes, token);
	struct ctl_write *w;

	if (!n)
		return;
	w = RP_CONTAINER_OF(n, struct ctl_write, by_token);
	rp_hmap_remove(&ctl->writes, &w->by_token);
	w->done(w->done_ctx, RP_GRPC_OK, "", result);
	free(w);
}

void ctl_writes_free(struct rp_ctl *ctl)
{
	for (size_t i = 0; ctl->writes.chains && i < 1u << CTL_PENDING_BITS; i++)
		while (ctl->writes.chains[i]) {
			struct ctl_write *w =
				RP_CONTAINER_OF(ctl->writes.chains[i], struct ctl_write, by_token);

			rp_hmap_remove(&ctl->writes, &w->by_token);
			free(w);
		}
}

static int backend_check(void *ctx, enum rp_etcd_access access, struct rp_span key,
	struct rp_span end, const struct rp_etcd_caller *caller, const char **message)
{
	if (access == RP_ETCD_WRITE && ctl_key_is_reserved(key)) {
		*message = CTL_TEXT_RESERVED;
		return RP_GRPC_PERMISSION_DENIED;
	}
	return 0;
}

/* ---- queues ---- */

static int backend_queue_op(void *ctx, const struct rp_etcd_queue_op *op, uint64_t token)
{
	static const enum rp_xmsg_type types[] = {
		[RP_ETCD_QUEUE_PUT] = RP_XMSG_PUT,
		[RP_ETCD_QUEUE_ACK] = RP_XMSG_ACK,
		[RP_ETCD_QUEUE_GET] = RP_XMSG_GET,
		[RP_ETCD_QUEUE_REJECT] = RP_XMSG_REJECT,
		[RP_ETCD_QUEUE_CANCEL] = RP_XMSG_CANCEL,
	};
	struct rp_ctl *ctl = ctx;
	struct rp_control_queue_op c = {
		.hash = op->hash,
		.name = op->name,
		.tail = op->tail,
		.value = op->value,
		.idx = op->idx,
		.flags = op->flags,
		.user = op->user,
	};

	if (!rp_repl_ready(rp_control_repl(ctl->control))) {
		struct rp_etcd_queue_answer a = {
			.status = RP_Q_NO_DISPATCHER, .message = CTL_TEXT_NOT_READY};

		rp_etcd_queue_answer(ctl->etcd, token, &a);
		return 0;
	}
	c.type = types[op->type];
	memcpy(c.uuid, op->uuid, sizeof(c.uuid));
	ctl_kick(ctl);
	return ctl_queue_op(ctl, &c, token);
}

void ctl_queue_answer(void *ctx, uint64_t token, const struct rp_control_answer *answer)
{
	struct rp_ctl *ctl = ctx;
	struct rp_etcd_queue_answer a = {
		.status = answer->status,
		.deleted = answer->deleted,
		.message = answer->message,
		.has_message = answer->has_message,
		.value = answer->value,
		.mod_revision = answer->revision,
		.attempt = answer->attempt,
	};

	if (!ctl_clear_answer(ctl, token, answer) && !ctl_embed_answer(ctl, token, answer))
		rp_etcd_queue_answer(ctl->etcd, token, &a);
}

static int backend_consumer_open(void *ctx, const struct rp_etcd_consumer_open *open,
	uint64_t consumer, int64_t *revision, const char **reason)
{
	struct rp_ctl *ctl = ctx;
	int rc;

	if (ctl->draining) {
		*reason = RP_CONTROL_TEXT_DRAINING;
		return -EBUSY;
	}
	rc = ctl_consumer_open(
		ctl, consumer, open->name, open->hash, open->uuid, open->start_revision, revision);
	if (rc == 0)
		rp_control_consumer_user(ctl->control, consumer, open->user);
	ctl_kick(ctl);
	if (rc == -ENOSPC)
		*reason = "queue consumer: too many consumers on this node";
	else if (rc == -EINVAL)
		*reason = "queue consumer: the name is the message bus's own";
	else if (rc != 0)
		*reason = "queue consumer: out of buffers, try again";
	return rc;
}

static void backend_consumer_close(void *ctx, uint64_t consumer, enum rp_etcd_consumer_end why)
{
	struct rp_ctl *ctl = ctx;

	ctl_consumer_close(ctl, consumer,
		why == RP_ETCD_CONSUMER_STOPPED ? RP_QUEUE_CLOSE_SERVER : RP_QUEUE_CLOSE_ENDED);
	ctl_kick(ctl);
}

static void backend_consumer_accepted(
	void *ctx, uint64_t consumer, uint64_t idx, int64_t mod_revision)
{
	struct rp_ctl *ctl = ctx;

	rp_control_consumer_accepted(ctl->control, consumer, idx);
	ctl_kick(ctl);
}

static void backend_consumer_room(void *ctx, uint64_t consumer)
{
	struct rp_ctl *ctl = ctx;

	ctl_consumer_room(ctl, consumer);
	ctl_kick(ctl);
}

int ctl_deliver(void *ctx, uint64_t consumer, const struct rp_control_delivery *d)
{
	struct rp_ctl *ctl = ctx;
	struct rp_etcd_delivery delivery = {
		.idx = d->idx,
		.tail = d->tail,
		.value = d->value,
		.value_count = d->value_count,
		.mod_revision = d->revision,
		.attempt = d->attempt,
		.request = d->request,
		.left_us = d->left_us,
		.priority = d->priority,
		.max_bytes = d->max_bytes,
	};

	int rc;

	if (ctl_embed_deliver(ctl, consumer, d, &rc))
		return rc;
	return rp_etcd_consumer_deliver(ctl->etcd, consumer, &delivery);
}

void ctl_withdraw(void *ctx, uint64_t consumer, uint64_t idx, struct rp_span tail, int64_t revision)
{
	struct rp_ctl *ctl = ctx;

	if (!ctl_embed_withdraw(ctl, consumer, idx))
		rp_etcd_consumer_withdraw(ctl->etcd, consumer, idx, tail, revision);
}

void ctl_consumer_end(void *ctx, uint64_t consumer, const char *reason)
{
	struct rp_ctl *ctl = ctx;

	if (!ctl_embed_end(ctl, consumer, reason))
		rp_etcd_consumer_end(ctl->etcd, consumer, reason);
}

/* ---- members and status ---- */

/*
 * A peer that never answered has no id yet; its address stands for it, and after a change of the
 * address the id that it had before.
 */
static uint64_t member_id(
	const struct rp_ctl *ctl, uint32_t peer, uint64_t node, const char *peer_url)
{
	if (node != 0)
		return node;
	if (peer < RP_PEERS_MAX && ctl->member_ids[peer] != 0)
		return ctl->member_ids[peer];
	return rp_queue_hash(peer_url, strlen(peer_url));
}

/* The i-th of the list; `peer` is its slot, RP_PEERS_MAX for none. */
static void member_fill(
	struct rp_ctl *ctl, uint32_t i, uint32_t peer, uint64_t node, const char *peer_url)
{
	struct ctl_member *t = &ctl->members[i];
	struct rp_node_record r;
	bool known = node == ctl->config.self.node;

	if (known)
		r = ctl->config.self;
	else
		known = node != 0 && rp_control_node_get(ctl->control, node, &r);
	snprintf(t->name, sizeof(t->name), "%s", known ? r.name : "");
	snprintf(t->client_url, sizeof(t->client_url), "%s",
		known && r.client_url[0] ? r.client_url : peer_url);
	snprintf(t->peer_url, sizeof(t->peer_url), "%s", peer_url);
	t->peer = t->peer_url;
	t->client = t->client_url;
	ctl->member_list[i] = (struct rp_etcd_member){
		.id = member_id(ctl, peer, node, peer_url),
		.name = t->name,
		.peer_urls = &t->peer,
		.client_urls = &t->client,
		.peer_url_count = t->peer_url[0] != '\0',
		.client_url_count = known && t->client_url[0] != '\0',
	};
}

static uint32_t backend_members(void *ctx, const struct rp_etcd_member **members)
{
	struct rp_ctl *ctl = ctx;
	struct rp_repl *repl = rp_control_repl(ctl->control);
	uint32_t n = 0;

	member_fill(ctl, n++, RP_PEERS_MAX, ctl->config.self.node,
		ctl->peer_url[0] ? ctl->peer_url : ctl->config.self.client_url);
	for (uint32_t i = 0; i < RP_PEERS_MAX; i++) {
		struct rp_repl_peer_info info;

		if (rp_repl_peer_get(repl, i, &info) && !info.self)
			member_fill(ctl, n++, i, info.node, info.address);
	}
	*members = ctl->member_list;
	return n;
}

static int backend_member_add(void *ctx, const char *const *peer_urls, uint32_t count,
	bool is_learner, const struct rp_etcd_caller *caller, struct rp_etcd_member *member,
	const char **message)
{
	struct rp_ctl *ctl = ctx;
	struct rp_repl *repl = rp_control_repl(ctl->control);
	struct rp_conf_endpoint e;
	rp_repl_peer_id id;

	if (!ctl->config.has_cluster) {
		*message = "ringpost: this node has no cluster uuid and peers with nobody";
		return RP_GRPC_FAILED_PRECONDITION;
	}
	for (uint32_t u = 0; u < count; u++) {
		if (rp_conf_endpoint_parse(peer_urls[u], 2379, &e) != 0) {
			*message = "etcdserver: given member URLs are invalid";
			return RP_GRPC_INVALID_ARGUMENT;
		}
		for (uint32_t i = 0; i < RP_PEERS_MAX; i++) {
			struct rp_repl_peer_info info;

			if (!caller->peer && rp_repl_peer_get(repl, i, &info) &&
				!strcmp(info.address, peer_urls[u])) {
				*message = "etcdserver: Peer URLs already exists";
				return RP_GRPC_FAILED_PRECONDITION;
			}
		}
	}
	if (caller->peer && count > 0) {
		int rc = ctl_announce_check(ctl, peer_urls[0], &id);

		if (rc == -EPERM) {
			*message =
				"ringpost: the member was removed; etcdctl member add takes it in "
				"again";
			return RP_GRPC_PERMISSION_DENIED;
		}
		if (rc == 1) {
			struct rp_repl_peer_info info;

			rp_repl_peer_get(repl, id, &info);
			member_fill(ctl, RP_PEERS_MAX, id, info.node, info.address);
			*member = ctl->member_list[RP_PEERS_MAX];
			return 0;
		}
		RP_LOG(RP_LOG_REPL, RP_LOG_INFO, "%s announced itself", peer_urls[0]);
	} else if (count > 0) {
		ctl_announce_removed(ctl, peer_urls[0], false);
	}
	/* One address a node: the first; the others of a member lead to the same node. */
	if (count == 0 || ctl_peers_add(ctl, peer_urls[0], &id) != 0) {
		*message = count ? "ringpost: limits.peers is reached"
				 : "etcdserver: given member URLs are invalid";
		return count ? RP_GRPC_RESOURCE_EXHAUSTED : RP_GRPC_INVALID_ARGUMENT;
	}
	member_fill(ctl, RP_PEERS_MAX, id, 0, peer_urls[0]);
	*member = ctl->member_list[RP_PEERS_MAX];
	return 0;
}

/* The slot of a peer by the id that the member list shows; RP_REPL_NO_PEER for none. */
static rp_repl_peer_id peer_of_member(struct rp_ctl *ctl, uint64_t id)
{
	struct rp_repl *repl = rp_control_repl(ctl->control);

	for (uint32_t i = 0; i < RP_PEERS_MAX; i++) {
		struct rp_repl_peer_info info;

		if (rp_repl_peer_get(repl, i, &info) && !info.self &&
			id == member_id(ctl, i, info.node, info.address))
			return i;
	}
	return RP_REPL_NO_PEER;
}

static int backend_member_remove(
	void *ctx, uint64_t id, const struct rp_etcd_caller *caller, const char **message)
{
	struct rp_ctl *ctl = ctx;
	rp_repl_peer_id peer = peer_of_member(ctl, id);
	struct rp_repl_peer_info info;

	if (peer == RP_REPL_NO_PEER) {
		*message = "etcdserver: member not found";
		return RP_GRPC_NOT_FOUND;
	}
	rp_repl_peer_get(rp_control_repl(ctl->control), peer, &info);
	ctl_announce_removed(ctl, info.address, true);
	rp_control_peer_remove(ctl->control, peer, ctl_now(ctl));
	ctl_kick(ctl);
	return RP_GRPC_OK;
}

static int backend_member_update(void *ctx, uint64_t id, const char *const *peer_urls,
	uint32_t count, const struct rp_etcd_caller *caller, const char **message)
{
	struct rp_ctl *ctl = ctx;
	rp_repl_peer_id peer = peer_of_member(ctl, id);

	/* Where peers find this node is theirs to know: here it is what the list shows. */
	if (id == ctl->config.self.node) {
		snprintf(ctl->peer_url, sizeof(ctl->peer_url), "%s", peer_urls[0]);
		return RP_GRPC_OK;
	}
	if (peer == RP_REPL_NO_PEER) {
		*message = "etcdserver: member not found";
		return RP_GRPC_NOT_FOUND;
	}
	rp_control_peer_remove(ctl->control, peer, ctl_now(ctl));
	if (ctl_peers_add(ctl, peer_urls[0], &peer) == 0) {
		ctl->member_ids[peer] = id;
		return RP_GRPC_OK;
	}
	*message = "ringpost: limits.peers is reached";
	return RP_GRPC_RESOURCE_EXHAUSTED;
}

static void backend_status(void *ctx, struct rp_etcd_status *status)
{
	struct rp_ctl *ctl = ctx;
	bool ready = rp_repl_ready(rp_control_repl(ctl->control));
	uint64_t revision = (uint64_t)rp_kv_revision(rp_control_kv(ctl->control));

	*status = (struct rp_etcd_status){
		/* Every node takes writes: to its clients it is the leader. */
		.leader = ready ? ctl->config.self.node : 0,
		.raft_index = revision,
		.raft_applied_index = revision,
		.unhealthy = ready ? NULL : "FIRST SYNC NOT DONE",
	};
}

static uint64_t backend_now_ns(void *ctx)
{
	struct rp_ctl *ctl = ctx;

	return rp_loop_now_ns(ctl->loop);
}

void ctl_etcd_backend(struct rp_ctl *ctl, struct rp_etcd_backend *backend)
{
	*backend = (struct rp_etcd_backend){
		.ctx = ctl,
		.propose = backend_propose,
		.check = backend_check,
		.queue_op = backend_queue_op,
		.record_write = backend_record_write,
		.consumer_open = backend_consumer_open,
		.consumer_close = backend_consumer_close,
		.consumer_accepted = backend_consumer_accepted,
		.consumer_room = backend_consumer_room,
		.lease_ask = ctl_lease_ask,
		.members = backend_members,
		.member_add = backend_member_add,
		.member_remove = backend_member_remove,
		.member_update = backend_member_update,
		.status = backend_status,
		.now_ns = backend_now_ns,
		.peer = &ctl->peer_backend,
		.process = &ctl->process_backend,
	};
}
