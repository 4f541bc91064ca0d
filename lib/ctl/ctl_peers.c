/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Channels to the configured peers, and the peers' calls here. A dial: connect, Maintenance.Status
 * for node and cluster, Prove in two steps (nonces, then the secret's MAC both ways), and the
 * control engine is told.
 */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include <base/assert.h>
#include <base/log.h>
#include <ctl/ctl_priv.h>

/** A call to a peer that gets no answer in time; replication has its own, shorter bound. */
#define CALL_TIMEOUT_NS (10 * RP_NS_PER_S)
/** A client waits for it, and asks again. */
#define LEASE_TIMEOUT_NS RP_NS_PER_S
#define PATH_STATUS "/etcdserverpb.Maintenance/Status"

static void random_bytes(uint8_t *out, size_t length)
{
	while (length > 0) {
		ssize_t n = getrandom(out, length, 0);

		if (n > 0) {
			out += n;
			length -= (size_t)n;
		}
	}
}

/* ---- calling ---- */

void ctl_peer_call_raw(struct ctl_peer *p, const char *path, const void *data, size_t length,
	uint64_t timeout_ns, rp_grpc_unary_fn done, void *ctx)
{
	char node[24];
	struct rp_grpc_header header = {"x-peer", node};

	snprintf(node, sizeof(node), "%" PRIu64, p->ctl->config.self.node);
	RP_ASSERT(rp_grpc_channel_unary(p->channel, path, &header, 1,
			  rp_loop_now_ns(p->ctl->loop) + timeout_ns, data, length, done,
			  ctx) != NULL);
}

static void peer_failed(struct ctl_peer *p, const char *why)
{
	struct rp_ctl *ctl = p->ctl;
	/* The host says that no process listens there; all else may be a peer that is busy. */
	bool absent = strcmp(why, strerror(ECONNREFUSED)) == 0;

	if (p->state == CTL_PEER_IDLE)
		return;
	if (p->state == CTL_PEER_CONNECTED)
		RP_LOG(RP_LOG_REPL, RP_LOG_WARNING, "lost %s: %s", p->address, why);
	else
		RP_LOG(RP_LOG_REPL, RP_LOG_DEBUG, "no connection to %s: %s", p->address, why);
	p->state = CTL_PEER_IDLE;
	p->want_hangup = true;
	rp_loop_task_post(ctl->loop, &ctl->peer_task);
	rp_control_peer_failed(ctl->control, p->id, absent, ctl_now(ctl));
	ctl_kick(ctl);
}

/* Replication decides, and where it refuses, it says so once and dials more slowly. */
static void peer_connected(struct ctl_peer *p, const uint8_t cluster_uuid[RP_UUID_BYTES])
{
	struct rp_ctl *ctl = p->ctl;
	int rc;

	p->state = CTL_PEER_CONNECTED;
	rc = rp_control_peer_connected(ctl->control, p->id, p->node, cluster_uuid, ctl_now(ctl));
	if (rc == 0) {
		RP_LOG(RP_LOG_REPL, RP_LOG_INFO, "connected to %s: node %" PRIu64, p->address,
			p->node);
		ctl_announce_later(p);
	} else {
		p->state = CTL_PEER_IDLE;
		p->want_hangup = true;
		rp_loop_task_post(ctl->loop, &ctl->peer_task);
		if (rc == -EEXIST)
			RP_LOG(RP_LOG_REPL, RP_LOG_WARNING,
				"%s is node %" PRIu64 ", which has another address already",
				p->address, p->node);
	}
	ctl_kick(ctl);
}

/* ---- a dial ---- */

static struct ctl_proof_input proof_input(struct ctl_peer *p)
{
	return (struct ctl_proof_input){
		.cluster_uuid = p->ctl->config.cluster_uuid,
		.client_node = p->ctl->config.self.node,
		.server_node = p->node,
		.client_nonce = p->nonce,
		.server_nonce = p->peer_nonce,
	};
}

static void on_proof(
	void *ctx, enum rp_grpc_code code, const char *message, const uint8_t *data, size_t length)
{
	struct ctl_peer *p = ctx;
	const struct rp_ctl_config *c = &p->ctl->config;
	struct ctl_proof_input in = proof_input(p);
	struct rp_etcd_peer_prove_reply reply;
	uint8_t mac[CTL_MAC_BYTES];

	p->calls_open--;
	if (p->state != CTL_PEER_PROOF)
		return;
	if (code != RP_GRPC_OK) {
		peer_failed(p, message);
		return;
	}
	/* A reload may have taken it away meanwhile. */
	if (!c->secret) {
		peer_failed(p, "no secret in common");
		return;
	}
	ctl_prove_mac(c->secret, c->secret_length, &in, 2, mac);
	if (rp_etcd_peer_decode_prove_reply((struct rp_span){data, length}, &reply) != 0 ||
		!reply.proved || reply.frame.length != CTL_MAC_BYTES ||
		!ctl_prove_equal(reply.frame.data, mac)) {
		RP_LOG(RP_LOG_REPL, RP_LOG_ERROR, "%s did not prove the cluster's secret",
			p->address);
		peer_failed(p, "the secret is wrong");
		return;
	}
	peer_connected(p, p->ctl->config.cluster_uuid);
}

static void send_prove(
	struct ctl_peer *p, const uint8_t *frame, size_t frame_length, rp_grpc_unary_fn done)
{
	struct rp_etcd_peer_prove prove = {
		.node = p->ctl->config.self.node,
		.cluster = {p->ctl->config.cluster_uuid, RP_UUID_BYTES},
		.frame = {frame, frame_length},
	};
	size_t length;
	void *data = rp_etcd_peer_encode_prove(&prove, &length);

	p->calls_open++;
	ctl_peer_call_raw(p, RP_ETCD_PEER_PATH_PROVE, data, length, CALL_TIMEOUT_NS, done, p);
	free(data);
}

static void on_hello(
	void *ctx, enum rp_grpc_code code, const char *message, const uint8_t *data, size_t length)
{
	struct ctl_peer *p = ctx;
	const struct rp_ctl_config *c = &p->ctl->config;
	struct rp_etcd_peer_prove_reply reply;
	struct ctl_proof_input in;
	uint8_t mac[CTL_MAC_BYTES];

	p->calls_open--;
	if (p->state != CTL_PEER_HELLO)
		return;
	if (code != RP_GRPC_OK ||
		rp_etcd_peer_decode_prove_reply((struct rp_span){data, length}, &reply) != 0) {
		if (code == RP_GRPC_PERMISSION_DENIED)
			RP_LOG(RP_LOG_REPL, RP_LOG_ERROR, "%s refused this node: %s", p->address,
				message);
		peer_failed(p, message);
		return;
	}
	if (reply.proved && !c->secret) {
		peer_connected(p, p->ctl->config.cluster_uuid);
		return;
	}
	if (reply.proved || !c->secret || reply.frame.length != CTL_NONCE_BYTES) {
		RP_LOG(RP_LOG_REPL, RP_LOG_ERROR,
			"%s: one of the two nodes has a secret and the other has none", p->address);
		peer_failed(p, "no secret in common");
		return;
	}
	memcpy(p->peer_nonce, reply.frame.data, CTL_NONCE_BYTES);
	in = proof_input(p);
	ctl_prove_mac(c->secret, c->secret_length, &in, 1, mac);
	p->state = CTL_PEER_PROOF;
	send_prove(p, mac, sizeof(mac), on_proof);
}

static void on_status(
	void *ctx, enum rp_grpc_code code, const char *message, const uint8_t *data, size_t length)
{
	struct ctl_peer *p = ctx;
	struct rp_ctl *ctl = p->ctl;
	uint64_t cluster_id;

	p->calls_open--;
	if (p->state != CTL_PEER_STATUS)
		return;
	if (code != RP_GRPC_OK || rp_etcd_peer_decode_status((struct rp_span){data, length},
					  &p->node, &cluster_id) != 0) {
		peer_failed(p, message);
		return;
	}
	if (p->node == ctl->config.self.node) {
		/* It sees itself, and dials no more. */
		peer_connected(p, ctl->config.cluster_uuid);
		return;
	}
	if (cluster_id != ctl->cluster_id) {
		static const uint8_t another[RP_UUID_BYTES];

		peer_connected(p, another);
		return;
	}
	random_bytes(p->nonce, sizeof(p->nonce));
	p->state = CTL_PEER_HELLO;
	send_prove(p, p->nonce, sizeof(p->nonce), on_hello);
}

static void on_channel(struct rp_grpc_channel *channel, enum rp_grpc_channel_state state,
	const char *reason, void *ctx)
{
	struct ctl_peer *p = ctx;

	if (state == RP_GRPC_CHANNEL_READY && p->state == CTL_PEER_CONNECTING) {
		p->state = CTL_PEER_STATUS;
		p->calls_open++;
		ctl_peer_call_raw(p, PATH_STATUS, "", 0, CALL_TIMEOUT_NS, on_status, p);
	} else if (state == RP_GRPC_CHANNEL_LOST) {
		peer_failed(p, reason);
	}
}

static void dial_now(struct ctl_peer *p)
{
	struct rp_ctl *ctl = p->ctl;
	struct rp_grpc_channel_config config = rp_grpc_channel_config_default();
	struct rp_conf_endpoint e;
	char address[280];

	RP_ASSERT(!p->channel);
	if (rp_conf_endpoint_parse(p->address, 2379, &e) != 0) {
		p->state = CTL_PEER_CONNECTING;
		peer_failed(p, "not an address");
		return;
	}
	rp_conf_endpoint_format(&e, address, sizeof(address));
	config.tls = e.tls ? ctl->tls.peer : NULL;
	config.connect_timeout_ns = ctl->conf->election_timeout * RP_NS_PER_MS;
	config.ping_interval_ns = ctl->conf->links.heartbeat_ms * RP_NS_PER_MS;
	config.ping_timeout_ns = ctl->conf->links.dead_after_ms * RP_NS_PER_MS;
	config.message_bytes_max = 64u << 20;
	config.out_bytes_max = 64u << 20;
	config.on_state = on_channel;
	config.ctx = p;
	p->channel = rp_grpc_channel_new(ctl->loop, address, &config);
	p->state = CTL_PEER_CONNECTING;
	if (!p->channel || rp_grpc_channel_connect(p->channel) != 0)
		peer_failed(p, "the address cannot be dialled");
}

/* What replication wished for from within its own calls. */
static void peer_wishes(void *ctx)
{
	struct rp_ctl *ctl = ctx;

	for (uint32_t i = 0; i < RP_PEERS_MAX; i++) {
		struct ctl_peer *p = ctl->peers[i];

		if (!p)
			continue;
		if (p->want_hangup) {
			struct rp_grpc_channel *channel = p->channel;

			p->want_hangup = false;
			p->state = CTL_PEER_IDLE;
			p->channel = NULL;
			ctl_deliver_end(p);
			rp_loop_timer_cancel(&p->announce_timer);
			rp_grpc_channel_destroy(channel);
		}
		if (p->want_dial && !p->channel) {
			p->want_dial = false;
			dial_now(p);
		}
	}
}

void ctl_peer_dial(void *ctx, rp_repl_peer_id peer, const char *address)
{
	struct rp_ctl *ctl = ctx;
	struct ctl_peer *p = ctl->peers[peer];

	if (!p) {
		p = calloc(1, sizeof(*p));
		RP_ASSERT(p != NULL);
		p->ctl = ctl;
		p->id = peer;
		rp_list_init(&p->deliver_open);
		ctl->peers[peer] = p;
	}
	snprintf(p->address, sizeof(p->address), "%s", address);
	ctl_zone_look(p, ctl->conf);
	p->want_dial = true;
	rp_loop_task_post(ctl->loop, &ctl->peer_task);
}

void ctl_peer_hangup(void *ctx, rp_repl_peer_id peer)
{
	struct rp_ctl *ctl = ctx;
	struct ctl_peer *p = ctl->peers[peer];

	if (!p)
		return;
	p->want_hangup = true;
	p->want_dial = false;
	rp_loop_task_post(ctl->loop, &ctl->peer_task);
}

/* ---- calls to peers ---- */

static void on_call_done(
	void *ctx, enum rp_grpc_code code, const char *message, const uint8_t *data, size_t length)
{
	struct ctl_call *call = ctx;
	struct rp_ctl *ctl = call->peer->ctl;
	struct rp_span answer = {data, length};
	bool failed = code != RP_GRPC_OK;

	call->peer->calls_open--;
	if (!call->deliver) {
		rp_control_peer_result(ctl->control, call->token, failed, answer, ctl_now(ctl));
	} else {
		struct rp_span frame = {0};

		failed = failed || rp_etcd_peer_decode_frame(answer, &frame) != 0;
		rp_control_unary_result(ctl->control, call->token, failed, frame);
	}
	free(call);
	ctl_kick(ctl);
}

static int start_call(
	struct ctl_peer *p, const char *path, struct rp_span bytes, uint64_t token, bool deliver)
{
	struct ctl_call *call;

	if (!p || p->state != CTL_PEER_CONNECTED || !p->channel)
		return -ENOTCONN;
	call = calloc(1, sizeof(*call));
	RP_ASSERT(call != NULL);
	*call = (struct ctl_call){.peer = p, .token = token, .deliver = deliver};
	p->calls_open++;
	ctl_peer_call_raw(p, path, bytes.data, bytes.length, CALL_TIMEOUT_NS, on_call_done, call);
	return 0;
}

int ctl_peer_call(void *ctx, rp_repl_peer_id peer, enum rp_repl_kind kind, struct rp_span bytes,
	uint64_t token)
{
	struct rp_ctl *ctl = ctx;

	return start_call(ctl->peers[peer],
		kind == RP_REPL_APPLY ? RP_ETCD_PEER_PATH_APPLY : RP_ETCD_PEER_PATH_SYNC, bytes,
		token, false);
}

static struct ctl_peer *connected_peer(struct rp_ctl *ctl, uint64_t node)
{
	for (uint32_t i = 0; i < RP_PEERS_MAX; i++)
		if (ctl->peers[i] && ctl->peers[i]->node == node &&
			ctl->peers[i]->state == CTL_PEER_CONNECTED && ctl->peers[i]->channel)
			return ctl->peers[i];
	return NULL;
}

struct lease_call {
	struct ctl_peer *peer;
	rp_etcd_lease_fn done;
	void *done_ctx;
};

static void on_lease_time(
	void *ctx, enum rp_grpc_code code, const char *message, const uint8_t *data, size_t length)
{
	struct lease_call *call = ctx;
	struct rp_etcd_lease_time t;

	call->peer->calls_open--;
	if (code != RP_GRPC_OK ||
		rp_etcd_peer_decode_lease_time((struct rp_span){data, length}, &t) != 0)
		t = (struct rp_etcd_lease_time){.state = RP_ETCD_LEASE_NO_ANSWER};
	call->done(call->done_ctx, &t);
	ctl_kick(call->peer->ctl);
	free(call);
}

void ctl_lease_ask(
	void *ctx, uint64_t node, int64_t lease, bool renew, rp_etcd_lease_fn done, void *done_ctx)
{
	static const struct rp_etcd_lease_time nobody = {.state = RP_ETCD_LEASE_NO_ANSWER};
	struct ctl_peer *p = connected_peer(ctx, node);
	struct lease_call *call;
	size_t length;
	void *message;

	if (!p) {
		done(done_ctx, &nobody);
		return;
	}
	call = malloc(sizeof(*call));
	RP_ASSERT(call != NULL);
	*call = (struct lease_call){.peer = p, .done = done, .done_ctx = done_ctx};
	message = rp_etcd_peer_encode_lease_ask(lease, renew, &length);
	p->calls_open++;
	ctl_peer_call_raw(
		p, RP_ETCD_PEER_PATH_LEASE, message, length, LEASE_TIMEOUT_NS, on_lease_time, call);
	free(message);
}

bool ctl_peer_is_foreign(struct ctl_peer *p)
{
	struct rp_node_record r;

	return rp_control_node_get(p->ctl->control, p->node, &r) && r.tcp.family == 0 &&
	       r.ktcp.family == 0;
}

int ctl_unary_call(void *ctx, uint64_t node, struct rp_span frame, uint64_t token)
{
	struct ctl_peer *p = connected_peer(ctx, node);
	size_t length;
	void *message;
	int rc;

	if (!p)
		return -ENOTCONN;
	if (ctl_peer_is_foreign(p) && ctl_deliver_send(p, frame, token) == 0)
		return 0;
	message = rp_etcd_peer_encode_frame(frame, &length);
	rc = start_call(
		p, RP_ETCD_PEER_PATH_DELIVER_ONE, (struct rp_span){message, length}, token, true);
	free(message);
	return rc;
}

/* ---- calls of peers ---- */

static struct ctl_proof *proof_find(struct rp_ctl *ctl, uint64_t connection)
{
	struct rp_hmap_node *n = rp_hmap_find(&ctl->proofs, connection);

	return n ? RP_CONTAINER_OF(n, struct ctl_proof, by_connection) : NULL;
}

static void proof_free(struct rp_ctl *ctl, struct ctl_proof *f)
{
	rp_hmap_remove(&ctl->proofs, &f->by_connection);
	free(f);
}

/* The first step: remember both nonces, answer ours. */
static void prove_hello(struct rp_ctl *ctl, uint64_t token, uint64_t connection,
	const struct rp_etcd_peer_prove *prove)
{
	struct rp_etcd_peer_prove_reply reply = {.node = ctl->config.self.node};
	struct ctl_proof *f = proof_find(ctl, connection);

	if (!f) {
		f = calloc(1, sizeof(*f));
		RP_ASSERT(f != NULL);
		rp_hmap_insert(&ctl->proofs, &f->by_connection, connection);
	}
	f->node = prove->node;
	memcpy(f->peer_nonce, prove->frame.data, CTL_NONCE_BYTES);
	random_bytes(f->nonce, sizeof(f->nonce));
	reply.frame = (struct rp_span){f->nonce, sizeof(f->nonce)};
	rp_etcd_peer_proved(ctl->etcd, token, 0, &reply);
}

static bool prove_check(struct rp_ctl *ctl, const struct ctl_proof *f,
	const struct rp_etcd_peer_prove *prove, const void *secret, size_t secret_length,
	uint8_t answer[CTL_MAC_BYTES])
{
	struct ctl_proof_input in = {
		.cluster_uuid = ctl->config.cluster_uuid,
		.client_node = f->node,
		.server_node = ctl->config.self.node,
		.client_nonce = f->peer_nonce,
		.server_nonce = f->nonce,
	};
	uint8_t mac[CTL_MAC_BYTES];

	if (!secret)
		return false;
	ctl_prove_mac(secret, secret_length, &in, 1, mac);
	if (!ctl_prove_equal(mac, prove->frame.data))
		return false;
	ctl_prove_mac(secret, secret_length, &in, 2, answer);
	return true;
}

/* The second step: the MAC, by the secret or the previous one. */
static void prove_proof(struct rp_ctl *ctl, uint64_t token, uint64_t connection,
	const struct rp_etcd_peer_prove *prove)
{
	const struct rp_ctl_config *c = &ctl->config;
	struct ctl_proof *f = proof_find(ctl, connection);
	struct rp_etcd_peer_prove_reply reply = {.node = c->self.node, .proved = true};
	uint8_t answer[CTL_MAC_BYTES];
	uint64_t node = prove->node;

	if (!f || f->node != node ||
		(!prove_check(ctl, f, prove, c->secret, c->secret_length, answer) &&
			!prove_check(ctl, f, prove, c->secret_previous, c->secret_previous_length,
				answer))) {
		RP_LOG(RP_LOG_REPL, RP_LOG_WARNING,
			"a caller as node %" PRIu64 " did not prove the "
			"secret",
			node);
		rp_etcd_peer_fail(ctl->etcd, token, RP_GRPC_PERMISSION_DENIED,
			"ringpost: the secret is wrong");
	} else {
		reply.frame = (struct rp_span){answer, sizeof(answer)};
		ctl_announce_proved(ctl, node);
		rp_etcd_peer_proved(ctl->etcd, token, node, &reply);
	}
	if (f)
		proof_free(ctl, f);
}

/* Without a secret a caller is a peer when it comes from the address of a configured one. */
static bool is_peer_address(struct rp_ctl *ctl, const char *address)
{
	struct rp_conf_endpoint caller, peer;

	if (rp_conf_endpoint_parse(address, 1, &caller) != 0)
		return false;
	for (uint32_t i = 0; i < RP_PEERS_MAX; i++) {
		struct rp_repl_peer_info info;

		if (!rp_repl_peer_get(rp_control_repl(ctl->control), i, &info) ||
			rp_conf_endpoint_parse(info.address, 1, &peer) != 0)
			continue;
		peer.port = caller.port; /* it calls from a port of its kernel's choice */
		if (rp_conf_endpoint_equal(&peer, &caller))
			return true;
	}
	return false;
}

static void on_prove(
	void *ctx, uint64_t token, uint64_t connection, const struct rp_etcd_peer_prove *prove)
{
	struct rp_ctl *ctl = ctx;
	struct rp_etcd_peer_prove_reply reply = {.node = ctl->config.self.node, .proved = true};
	struct ctl_proof *f = proof_find(ctl, connection);

	if (!ctl->config.has_cluster || prove->cluster.length != RP_UUID_BYTES ||
		memcmp(prove->cluster.data, ctl->config.cluster_uuid, RP_UUID_BYTES) != 0) {
		rp_etcd_peer_fail(
			ctl->etcd, token, RP_GRPC_PERMISSION_DENIED, "ringpost: another cluster");
		return;
	}
	if (prove->node == 0 || prove->node == ctl->config.self.node ||
		prove->frame.length != CTL_NONCE_BYTES) {
		rp_etcd_peer_fail(
			ctl->etcd, token, RP_GRPC_INVALID_ARGUMENT, "ringpost: not a proof");
		return;
	}
	if (!ctl->config.secret && is_peer_address(ctl, prove->address)) {
		ctl_announce_proved(ctl, prove->node);
		rp_etcd_peer_proved(ctl->etcd, token, prove->node, &reply);
	} else if (!ctl->config.secret) {
		rp_etcd_peer_fail(ctl->etcd, token, RP_GRPC_PERMISSION_DENIED,
			"ringpost: without links.secret_file only configured peer addresses are "
			"trusted, and this is none");
	} else if (!f) {
		prove_hello(ctl, token, connection, prove);
	} else {
		prove_proof(ctl, token, connection, prove);
	}
}

static void on_connection_closed(void *ctx, uint64_t connection)
{
	struct rp_ctl *ctl = ctx;
	struct ctl_proof *f = proof_find(ctl, connection);

	if (f)
		proof_free(ctl, f);
}

static void on_repl_request(struct rp_ctl *ctl, uint64_t token, uint64_t node,
	enum rp_repl_kind kind, struct rp_span message)
{
	struct rp_span answer;
	int rc = rp_control_on_request(ctl->control, node, kind, message, &answer, ctl_now(ctl));

	if (rc == 0)
		rp_etcd_peer_answer(ctl->etcd, token, answer);
	else if (rc == -EPERM)
		rp_etcd_peer_fail(
			ctl->etcd, token, RP_GRPC_PERMISSION_DENIED, "ringpost: another cluster");
	else
		rp_etcd_peer_fail(
			ctl->etcd, token, RP_GRPC_INVALID_ARGUMENT, "ringpost: malformed message");
	ctl_kick(ctl);
}

static void on_apply(void *ctx, uint64_t token, uint64_t node, struct rp_span message)
{
	on_repl_request(ctx, token, node, RP_REPL_APPLY, message);
}

static void on_sync(void *ctx, uint64_t token, uint64_t node, struct rp_span message)
{
	on_repl_request(ctx, token, node, RP_REPL_SYNC, message);
}

static void on_deliver_one(void *ctx, uint64_t token, uint64_t node, struct rp_span frame)
{
	struct rp_ctl *ctl = ctx;
	int rc = rp_control_unary_in(ctl->control, node, frame, token);

	if (rc == -EINVAL)
		rp_etcd_peer_fail(
			ctl->etcd, token, RP_GRPC_INVALID_ARGUMENT, "ringpost: not a frame");
	else if (rc != 0)
		rp_etcd_peer_fail(ctl->etcd, token, RP_GRPC_UNAVAILABLE,
			"ringpost: the shard's ring is full");
}

const struct rp_etcd_peer_backend ctl_peer_backend = {
	.prove = on_prove,
	.connection_closed = on_connection_closed,
	.apply = on_apply,
	.sync = on_sync,
	.deliver_one = on_deliver_one,
};

/* ---- life ---- */

int ctl_peers_add(struct rp_ctl *ctl, const char *address, rp_repl_peer_id *id)
{
	*id = rp_control_peer_add(ctl->control, address, ctl_now(ctl));
	ctl_kick(ctl);
	if (*id == RP_REPL_NO_PEER)
		return -ENOSPC;
	ctl->member_ids[*id] = 0;
	return 0;
}

#define PEER_URL_BYTES 300

/* The URLs of the peers that a configuration names; to be freed. */
static char (
	*peer_urls(struct rp_ctl *ctl, const struct rp_conf *conf, unsigned *count))[PEER_URL_BYTES]
{
	struct rp_conf_endpoint *peers = calloc(RP_PEERS_MAX, sizeof(*peers));
	char(*urls)[PEER_URL_BYTES] = calloc(RP_PEERS_MAX, sizeof(*urls));

	RP_ASSERT(peers && urls);
	*count = ctl->config.has_cluster ? rp_conf_peers(conf, peers, RP_PEERS_MAX) : 0;
	for (unsigned i = 0; i < *count; i++) {
		char address[280];

		rp_conf_endpoint_format(&peers[i], address, sizeof(address));
		snprintf(urls[i], sizeof(urls[i]), "%s%s", peers[i].tls ? "https://" : "http://",
			address);
	}
	free(peers);
	return urls;
}

static bool url_among(const char *url, char (*urls)[PEER_URL_BYTES], unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		if (strcmp(url, urls[i]) == 0)
			return true;
	return false;
}

static void remove_url(struct rp_ctl *ctl, const char *url)
{
	struct rp_repl_peer_info info;

	for (uint32_t i = 0; i < RP_PEERS_MAX; i++)
		if (rp_repl_peer_get(rp_control_repl(ctl->control), i, &info) && !info.self &&
			strcmp(info.address, url) == 0)
			rp_control_peer_remove(ctl->control, i, ctl_now(ctl));
}

void ctl_peers_restart(struct rp_ctl *ctl)
{
	for (uint32_t i = 0; i < RP_PEERS_MAX; i++)
		if (ctl->peers[i])
			peer_failed(ctl->peers[i], "a restart was asked for");
}

unsigned ctl_peers_change(struct rp_ctl *ctl, const struct rp_conf *was, const struct rp_conf *is)
{
	unsigned old_count, new_count, failed = 0;
	char(*old)[PEER_URL_BYTES] = peer_urls(ctl, was, &old_count);
	char(*new)[PEER_URL_BYTES] = peer_urls(ctl, is, &new_count);
	rp_repl_peer_id id;

	/* Those that go make room for those that come. */
	for (unsigned i = 0; i < old_count; i++)
		if (!url_among(old[i], new, new_count))
			remove_url(ctl, old[i]);
	for (unsigned i = 0; i < new_count; i++)
		if (!url_among(new[i], old, old_count))
			failed += ctl_peers_add(ctl, new[i], &id) != 0;
	free(old);
	free(new);
	ctl_kick(ctl);
	return failed;
}

int ctl_peers_create(struct rp_ctl *ctl)
{
	unsigned count;
	char(*urls)[PEER_URL_BYTES] = peer_urls(ctl, ctl->conf, &count);
	rp_repl_peer_id id;

	rp_loop_task_setup(&ctl->peer_task, peer_wishes, ctl);
	for (unsigned i = 0; i < count; i++)
		ctl_peers_add(ctl, urls[i], &id);
	free(urls);
	return 0;
}

void ctl_peers_destroy(struct rp_ctl *ctl)
{
	rp_loop_task_cancel(&ctl->peer_task);
	for (uint32_t i = 0; i < RP_PEERS_MAX; i++) {
		struct ctl_peer *p = ctl->peers[i];

		if (!p)
			continue;
		p->state = CTL_PEER_IDLE;
		ctl_deliver_end(p);
		rp_loop_timer_cancel(&p->announce_timer);
		rp_grpc_channel_destroy(p->channel);
		free(p);
		ctl->peers[i] = NULL;
	}
}
