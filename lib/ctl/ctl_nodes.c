/* SPDX-License-Identifier: Apache-2.0 */

/* ringpost.v1.Admin: the node, the other nodes, and the levels of the log. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_mempool.h>

#include <ringpost/v1/admin.pb-c.h>

#include <base/assert.h>
#include <base/log.h>
#include <ctl/ctl_priv.h>
#include <route/key.h>

void ctl_node_name(struct rp_ctl *ctl, uint64_t node, char *name, size_t size)
{
	struct rp_node_record r;

	if (node == ctl->config.self.node)
		snprintf(name, size, "%s", ctl->conf->name);
	else if (node != 0 && rp_control_node_get(ctl->control, node, &r))
		snprintf(name, size, "%s", r.name);
	else
		name[0] = '\0';
}

/* ---- status ---- */

static void status_peers(struct rp_ctl *ctl, Ringpost__V1__StatusReply *r)
{
	for (uint32_t i = 0; i < RP_PEERS_MAX; i++) {
		struct rp_repl_peer_info info;

		if (!rp_repl_peer_get(rp_control_repl(ctl->control), i, &info) || info.self)
			continue;
		r->peers++;
		r->peers_online += info.state == RP_REPL_ONLINE;
	}
}

static void status_shards(struct rp_ctl *ctl, Ringpost__V1__StatusReply *r)
{
	for (uint32_t s = 0; s < ctl->config.self.shards; s++) {
		const struct rp_engine_snapshot *snap = &ctl->snapshots[s];

		r->links_up += snap->has_links ? snap->links_up : 0;
		r->queues += snap->queue.queues;
		r->dispatched += snap->queue.dispatched;
		r->messages += snap->queue.messages;
		r->message_bytes += snap->queue.bytes;
		r->consumers += snap->queue.hosts;
		r->holds += snap->queue.holds;
		r->streams += snap->deliver_info.streams_out + snap->deliver_info.streams_in;
	}
}

static void status_reply(struct rp_ctl *ctl, void *who)
{
	struct ctl_admin_call *a = who;
	Ringpost__V1__StatusReply r = RINGPOST__V1__STATUS_REPLY__INIT;
	const struct rp_ctl_config *c = &ctl->config;
	char cluster[RP_UUID_TEXT_BYTES + 1] = "";
	struct rp_kv_stats kv;

	rp_kv_stats_get(rp_control_kv(ctl->control), &kv);
	if (c->has_cluster)
		rp_uuid_format(c->cluster_uuid, cluster);
	cluster[RP_UUID_TEXT_BYTES] = '\0';
	r.node = c->self.node;
	r.name = (char *)ctl->conf->name;
	r.node_version = (char *)RP_VERSION;
	r.state = (char *)ctl_state_name(ctl);
	r.cluster = cluster;
	r.boot = c->self.boot;
	r.uptime_ns = rp_loop_now_ns(ctl->loop) - ctl->started_ns;
	r.client_url = (char *)c->self.client_url;
	r.shards = c->self.shards;
	r.ports = c->port_count;
	r.transport = (char *)(c->transport_tcp ? "tcp" : "ktcp");
	r.connections = (uint32_t)rp_grpc_server_stats(ctl->server).conns_open;
	r.keys = kv.keys;
	r.revision = (uint64_t)rp_kv_revision(rp_control_kv(ctl->control));
	r.buffers_free = rte_mempool_avail_count(c->pool);
	r.buffers = c->pool->size;
	status_peers(ctl, &r);
	status_shards(ctl, &r);
	ctl_admin_reply(a->call, &r.base);
	free(a);
}

static void on_status(struct rp_grpc_call *call, const uint8_t *data, size_t length, void *ctx)
{
	if (ctl_admin_admitted(call))
		ctl_admin_ask(ctx, call, "", NULL, status_reply);
}

/* ---- nodes ---- */

struct node_item {
	Ringpost__V1__NodeView n;
	struct rp_node_record record;
	char address[300];
};

static bool link_is_up(struct rp_ctl *ctl, uint64_t node)
{
	for (uint32_t s = 0; s < ctl->config.self.shards; s++)
		for (uint32_t i = 0; i < ctl->snapshots[s].link_count; i++)
			if (ctl->snapshots[s].links_known[i].node == node &&
				ctl->snapshots[s].links_known[i].linked)
				return ctl->snapshots[s].links_known[i].info.up;
	return false;
}

static void node_record_fill(struct node_item *x)
{
	x->n.name = x->record.name;
	x->n.version = x->record.version;
	x->n.client_url = x->record.client_url;
	x->n.boot = x->record.boot;
	x->n.draining = x->record.draining;
	x->n.shards = x->record.shards;
	x->n.links = x->record.per_peer;
}

static void node_self(struct rp_ctl *ctl, struct node_item *x)
{
	ringpost__v1__node_view__init(&x->n);
	x->record = ctl->config.self;
	snprintf(x->record.name, sizeof(x->record.name), "%s", ctl->conf->name);
	snprintf(x->record.version, sizeof(x->record.version), "%s", RP_VERSION);
	node_record_fill(x);
	x->n.node = ctl->config.self.node;
	x->n.self = true;
	x->n.draining = ctl->draining;
	x->n.state = (char *)rp_repl_state_name(
		rp_repl_state_of(rp_control_repl(ctl->control), x->n.node));
	x->n.address = ctl->peer_url;
}

static void node_peer(struct rp_ctl *ctl, struct node_item *x, const struct rp_repl_peer_info *info)
{
	uint64_t now_ns = rp_loop_now_ns(ctl->loop);

	ringpost__v1__node_view__init(&x->n);
	if (info->node != 0 && rp_control_node_get(ctl->control, info->node, &x->record))
		node_record_fill(x);
	snprintf(x->address, sizeof(x->address), "%s", info->address);
	x->n.node = info->node;
	x->n.state = (char *)rp_repl_state_name(info->state);
	x->n.address = x->address;
	x->n.connected = info->connected;
	x->n.link_up = link_is_up(ctl, info->node);
	x->n.queued_writes = info->queued_writes;
	x->n.queued_bytes = info->queued_bytes;
	x->n.calls_open = info->calls_open;
	if (info->synced_ns != 0)
		x->n.synced_ago_ns = RP_MAX(now_ns - RP_MIN(info->synced_ns, now_ns), 1ull);
}

static void nodes_reply(struct rp_ctl *ctl, void *who)
{
	struct ctl_admin_call *a = who;
	Ringpost__V1__NodesReply r = RINGPOST__V1__NODES_REPLY__INIT;
	struct node_item *items = calloc(RP_PEERS_MAX + 1, sizeof(*items));
	Ringpost__V1__NodeView *list[RP_PEERS_MAX + 1];

	RP_ASSERT(items != NULL);
	node_self(ctl, &items[0]);
	list[r.n_nodes++] = &items[0].n;
	for (uint32_t i = 0; i < RP_PEERS_MAX; i++) {
		struct rp_repl_peer_info info;

		if (!rp_repl_peer_get(rp_control_repl(ctl->control), i, &info) || info.self)
			continue;
		node_peer(ctl, &items[r.n_nodes], &info);
		list[r.n_nodes] = &items[r.n_nodes].n;
		r.n_nodes++;
	}
	r.node = ctl->config.self.node;
	r.nodes = list;
	ctl_admin_reply(a->call, &r.base);
	free(items);
	free(a);
}

static void on_nodes(struct rp_grpc_call *call, const uint8_t *data, size_t length, void *ctx)
{
	if (ctl_admin_admitted(call))
		ctl_admin_ask(ctx, call, "", NULL, nodes_reply);
}

/* ---- log ---- */

static void log_reply(struct rp_ctl *ctl, struct rp_grpc_call *call)
{
	Ringpost__V1__LogReply r = RINGPOST__V1__LOG_REPLY__INIT;
	Ringpost__V1__LogLevel items[RP_LOG_SUBJECT_COUNT], *list[RP_LOG_SUBJECT_COUNT];

	for (unsigned i = 0; i < RP_LOG_SUBJECT_COUNT; i++) {
		enum rp_log_level configured = rp_conf_level_of(ctl->conf, i);

		ringpost__v1__log_level__init(&items[i]);
		items[i].subject = (char *)rp_log_subject_name(i);
		items[i].level = (char *)rp_log_level_name(rp_log_subject_level(i));
		items[i].configured = (char *)rp_log_level_name(configured);
		list[i] = &items[i];
	}
	r.node = ctl->config.self.node;
	r.n_levels = RP_LOG_SUBJECT_COUNT;
	r.levels = list;
	ctl_admin_reply(call, &r.base);
}

/* "debug" means every subject. */
static int level_parse(const char *text, enum rp_log_subject *subject, enum rp_log_level *level)
{
	char all[64];

	if (strchr(text, '='))
		return rp_conf_level_parse(text, subject, level);
	*subject = RP_LOG_SUBJECT_COUNT;
	snprintf(all, sizeof(all), "%s=%.20s", rp_log_subject_name(RP_LOG_NODE), text);
	return rp_conf_level_parse(all, &(enum rp_log_subject){0}, level);
}

static void log_set(const char *text)
{
	enum rp_log_subject subject;
	enum rp_log_level level;

	if (level_parse(text, &subject, &level) != 0)
		return;
	if (subject == RP_LOG_SUBJECT_COUNT)
		rp_log_set_level(level);
	else
		rp_log_set_subject_level(subject, level);
	RP_LOG(RP_LOG_NODE, RP_LOG_INFO, "log levels: %s, until the next reload", text);
}

static void on_log(struct rp_grpc_call *call, const uint8_t *data, size_t length, void *ctx)
{
	struct rp_ctl *ctl = ctx;
	Ringpost__V1__LogRequest *q = ringpost__v1__log_request__unpack(NULL, length, data);
	enum rp_log_subject subject;
	enum rp_log_level level;

	if (ctl_admin_malformed(call, q))
		return;
	if (!ctl_admin_admitted(call))
		goto out;
	for (size_t i = 0; i < q->n_set; i++) {
		char text[200];

		if (level_parse(q->set[i], &subject, &level) == 0)
			continue;
		snprintf(text, sizeof(text),
			"ringpost: \"%.60s\" is no level: expected LEVEL or SUBJECT=LEVEL, "
			"nothing was changed",
			q->set[i]);
		rp_grpc_call_finish(call, RP_GRPC_INVALID_ARGUMENT, text);
		goto out;
	}
	if (q->reset)
		rp_conf_levels_use(ctl->conf);
	for (size_t i = 0; i < q->n_set; i++)
		log_set(q->set[i]);
	log_reply(ctl, call);
out:
	ringpost__v1__log_request__free_unpacked(q, NULL);
}

const struct rp_grpc_call_ops ctl_status_ops = {
	.on_message = on_status, .on_cancel = ctl_admin_on_cancel};
const struct rp_grpc_call_ops ctl_nodes_ops = {
	.on_message = on_nodes, .on_cancel = ctl_admin_on_cancel};
const struct rp_grpc_call_ops ctl_log_ops = {
	.on_message = on_log, .on_cancel = ctl_admin_on_cancel};
