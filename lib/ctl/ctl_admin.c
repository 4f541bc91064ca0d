/* SPDX-License-Identifier: Apache-2.0 */

/* ringpost.v1.Admin and /metrics: views of the node, from snapshots that the shards fill. */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_mempool.h>

#include <ringpost/v1/admin.pb-c.h>

#include <base/assert.h>
#include <ctl/ctl_priv.h>

#define QUEUES_SHOWN_MAX 4096
#define CONNECTIONS_SHOWN_MAX 512
#define NEIGHBOURS_SHOWN_MAX 1024

/* ---- snapshots ---- */

/* Those who want the node's numbers share a round; a page of a table is for one alone. */
static void round_begin(struct rp_ctl *ctl)
{
	struct ctl_wait *first = rp_list_entry(ctl->waits_next.next, struct ctl_wait, node);
	struct rp_engine_view *v = ctl->view;

	do {
		struct rp_list *n = rp_list_pop_front(&ctl->waits_next);

		rp_list_push_back(&ctl->waits_now, n);
	} while (!first->ask.wanted && !rp_list_empty(&ctl->waits_next) &&
		 !rp_list_entry(ctl->waits_next.next, struct ctl_wait, node)->ask.wanted);
	if (first->ask.wanted) {
		v->kind = first->ask.kind;
		v->exact = first->ask.exact;
		v->cursor = first->ask.cursor;
		v->trace = first->ask.trace;
		v->filled = false;
		memcpy(v->name, first->ask.name, sizeof(v->name));
	}
	for (uint32_t s = 0; s < ctl->config.self.shards; s++) {
		ctl->snapshots[s].view = first->ask.wanted && first->ask.shard == s ? v : NULL;
		if (rp_control_snapshot(ctl->control, s, &ctl->snapshots[s], 1) == 0)
			ctl->snapshots_open++;
	}
	ctl_kick(ctl);
}

/* A shard whose ring was full keeps the numbers of its last snapshot. */
static void round_end(struct rp_ctl *ctl)
{
	struct rp_list done, *n;

	rp_list_init(&done);
	rp_list_splice_back(&done, &ctl->waits_now);
	while ((n = rp_list_pop_front(&done))) {
		struct ctl_wait *w = rp_list_entry(n, struct ctl_wait, node);

		w->fn(ctl, w->who);
		free(w);
	}
}

static void rounds_run(struct rp_ctl *ctl)
{
	while (ctl->snapshots_open == 0 && !rp_list_empty(&ctl->waits_next)) {
		round_begin(ctl);
		if (ctl->snapshots_open == 0)
			round_end(ctl);
	}
}

static void impair_done(struct rp_ctl *ctl);

void ctl_snapshot_done(void *ctx, unsigned shard, uint64_t token)
{
	struct rp_ctl *ctl = ctx;

	if (token == CTL_TOKEN_IMPAIR && --ctl->impair_open == 0)
		impair_done(ctl);
	else if (token == CTL_TOKEN_TAP_ON || token == CTL_TOKEN_TAP_OFF)
		ctl_capture_done(ctl, token);
	else if (token != CTL_TOKEN_IMPAIR && --ctl->snapshots_open == 0) {
		round_end(ctl);
		rounds_run(ctl);
	}
}

static void snapshot_wait(struct rp_ctl *ctl, const struct ctl_view_ask *ask,
	void (*fn)(struct rp_ctl *, void *), void *who)
{
	struct ctl_wait *w = calloc(1, sizeof(*w));

	RP_ASSERT(w != NULL);
	w->fn = fn;
	w->who = who;
	if (ask)
		w->ask = *ask;
	rp_list_push_back(&ctl->waits_next, &w->node);
	rounds_run(ctl);
}

void ctl_snapshot_wait(struct rp_ctl *ctl, void (*fn)(struct rp_ctl *, void *), void *who)
{
	snapshot_wait(ctl, NULL, fn, who);
}

/* The asker has gone: nobody is told. */
static void wait_forget(struct rp_ctl *ctl, void *who)
{
	struct rp_list *lists[2] = {&ctl->waits_now, &ctl->waits_next}, *n, *t;

	for (unsigned i = 0; i < 2; i++)
		rp_list_foreach_safe (n, t, lists[i]) {
			struct ctl_wait *w = rp_list_entry(n, struct ctl_wait, node);

			if (w->who != who)
				continue;
			rp_list_unlink(n);
			free(w);
		}
}

/* ---- metrics ---- */

static void metrics_reply(struct rp_ctl *ctl, void *who)
{
	struct rp_http_request *request = who;
	enum rp_metrics_format format;
	struct rp_metrics m;
	const char *type;
	size_t length;
	char *text;

	rp_metrics_init(&m);
	ctl_metrics(ctl, &m);
	format = rp_metrics_format_of(rp_http_header(request, "accept"), &type);
	text = rp_metrics_text(&m, format, &length);
	rp_http_reply(request, 200, type, text, length);
	free(text);
	rp_metrics_free(&m);
}

static void on_metrics(struct rp_http_request *request, void *ctx)
{
	ctl_snapshot_wait(ctx, metrics_reply, request);
}

static void on_metrics_cancel(struct rp_http_request *request, void *ctx)
{
	wait_forget(ctx, request);
}

/* ---- Admin ---- */

void ctl_admin_reply(struct rp_grpc_call *call, const ProtobufCMessage *message)
{
	size_t length = protobuf_c_message_get_packed_size(message);
	uint8_t *data = malloc(length + 1);

	RP_ASSERT(data != NULL);
	protobuf_c_message_pack(message, data);
	rp_grpc_call_reply(call, data, length);
	free(data);
}

/* Everything here is for callers on this host. */
bool ctl_admin_admitted(struct rp_grpc_call *call)
{
	if (rp_grpc_conn_is_local(rp_grpc_call_conn(call)))
		return true;
	rp_grpc_call_finish(call, RP_GRPC_PERMISSION_DENIED,
		"ringpost: Admin is served to callers on this host only");
	return false;
}

static void stats_reply(struct rp_ctl *ctl, void *who)
{
	struct ctl_admin_call *a = who;
	Ringpost__V1__StatsReply r = RINGPOST__V1__STATS_REPLY__INIT;
	Ringpost__V1__Metric *items;
	struct rp_metrics m;
	size_t prefix = strlen(a->text);
	char(*counts)[96];

	rp_metrics_init(&m);
	ctl_metrics(ctl, &m);
	items = calloc(m.count + 1, sizeof(*items));
	r.metrics = calloc(m.count + 1, sizeof(*r.metrics));
	counts = calloc(m.count + 1, sizeof(*counts));
	RP_ASSERT(items && r.metrics && counts);
	for (size_t i = 0; i < m.count; i++) {
		const struct rp_metric_info *info = rp_metric_info(&m.items[i]);
		Ringpost__V1__Metric *x = &items[r.n_metrics];

		if (strncmp(info->name, a->text, prefix) != 0)
			continue;
		ringpost__v1__metric__init(x);
		x->name = (char *)info->name;
		x->labels = m.items[i].labels;
		x->help = (char *)info->help;
		x->value = m.items[i].value;
		x->parts = rp_metric_unit_parts(info->unit);
		if (m.items[i].histogram) {
			snprintf(counts[i], sizeof(counts[i]), "%s_count", info->name);
			x->name = counts[i];
			x->parts = 1;
		}
		r.metrics[r.n_metrics++] = x;
	}
	r.node = ctl->config.self.node;
	ctl_admin_reply(a->call, &r.base);
	free(r.metrics);
	free(items);
	free(counts);
	rp_metrics_free(&m);
	free(a);
}

void ctl_admin_ask(struct rp_ctl *ctl, struct rp_grpc_call *call, const char *text,
	const struct rp_endpoint *endpoint, void (*fn)(struct rp_ctl *, void *))
{
	struct ctl_admin_call *a = calloc(1, sizeof(*a));

	RP_ASSERT(a != NULL);
	a->call = call;
	snprintf(a->text, sizeof(a->text), "%s", text);
	if (endpoint)
		a->endpoint = *endpoint;
	rp_grpc_call_set_user(call, a);
	ctl_snapshot_wait(ctl, fn, a);
}

void ctl_admin_ask_view(struct rp_ctl *ctl, struct rp_grpc_call *call,
	const struct ctl_view_ask *ask, void (*fn)(struct rp_ctl *, void *))
{
	struct ctl_admin_call *a = calloc(1, sizeof(*a));

	RP_ASSERT(a != NULL);
	a->call = call;
	a->ask = *ask;
	rp_grpc_call_set_user(call, a);
	snapshot_wait(ctl, ask, fn, a);
}

void ctl_admin_on_cancel(struct rp_grpc_call *call, enum rp_grpc_cancel why, void *ctx)
{
	struct rp_ctl *ctl = ctx;
	struct ctl_admin_call *a = rp_grpc_call_user(call);

	if (ctl->impair_call == call)
		ctl->impair_call = NULL;
	if (!a)
		return;
	wait_forget(ctl, a);
	free(a);
}

bool ctl_admin_malformed(struct rp_grpc_call *call, const void *message)
{
	if (message)
		return false;
	rp_grpc_call_finish(call, RP_GRPC_INTERNAL,
		"grpc: error unmarshalling request: not a protobuf message");
	return true;
}

static void on_stats(struct rp_grpc_call *call, const uint8_t *data, size_t length, void *ctx)
{
	Ringpost__V1__StatsRequest *q = ringpost__v1__stats_request__unpack(NULL, length, data);

	if (ctl_admin_malformed(call, q))
		return;
	if (ctl_admin_admitted(call))
		ctl_admin_ask(ctx, call, q->prefix, NULL, stats_reply);
	ringpost__v1__stats_request__free_unpacked(q, NULL);
}

static void impair_done(struct rp_ctl *ctl)
{
	Ringpost__V1__ImpairReply r = RINGPOST__V1__IMPAIR_REPLY__INIT;
	struct rp_grpc_call *call = ctl->impair_call;

	ctl->impair_call = NULL;
	ctl->impair_busy = false;
	if (call)
		ctl_admin_reply(call, &r.base);
}

/* Every shard that polls a queue of some port is told; one that has no queue of this port answers.
 */
static void impair_begin(struct rp_ctl *ctl, struct rp_grpc_call *call, uint32_t port)
{
	bool all = true;

	ctl->impair_open = 0;
	for (uint64_t left = ctl->config.port_shards; left; left &= left - 1) {
		if (rp_control_impair(ctl->control, (unsigned)__builtin_ctzll(left), port,
			    &ctl->impair_spec, CTL_TOKEN_IMPAIR) == 0)
			ctl->impair_open++;
		else
			all = false;
	}
	ctl->impair_busy = ctl->impair_open > 0;
	ctl->impair_call = all ? call : NULL;
	if (!all)
		rp_grpc_call_finish(
			call, RP_GRPC_UNAVAILABLE, "ringpost: the ring to a shard is full");
	ctl_kick(ctl);
}

static void on_impair(struct rp_grpc_call *call, const uint8_t *data, size_t length, void *ctx)
{
	struct rp_ctl *ctl = ctx;
	Ringpost__V1__ImpairRequest *q = ringpost__v1__impair_request__unpack(NULL, length, data);
	struct rp_impair_spec spec = {0};
	char error[256];

	if (ctl_admin_malformed(call, q))
		return;
	if (!ctl_admin_admitted(call))
		goto out;
	if (q->port >= ctl->config.port_count) {
		rp_grpc_call_finish(call, RP_GRPC_NOT_FOUND, "ringpost: no such port");
	} else if (rp_impair_parse(q->spec, &spec, error, sizeof(error)) != 0) {
		rp_grpc_call_finish(call, RP_GRPC_INVALID_ARGUMENT, error);
	} else if (ctl->impair_busy) {
		rp_grpc_call_finish(
			call, RP_GRPC_UNAVAILABLE, "ringpost: another change is under way");
	} else {
		ctl->impair_spec = spec;
		impair_begin(ctl, call, q->port);
	}
out:
	ringpost__v1__impair_request__free_unpacked(q, NULL);
}

/* ---- configuration ---- */

static Ringpost__V1__Change **changes_of(
	const struct rp_conf_changes *changes, bool fixed, Ringpost__V1__Change *out, size_t *count)
{
	Ringpost__V1__Change **list = calloc(changes->count + 1, sizeof(*list));

	RP_ASSERT(list != NULL);
	for (unsigned i = 0; i < changes->count; i++) {
		const struct rp_conf_change *c = &changes->items[i];

		if (c->fixed != fixed)
			continue;
		ringpost__v1__change__init(&out[i]);
		out[i].knob = c->path;
		out[i].was = c->was;
		out[i].is = c->is;
		list[(*count)++] = &out[i];
	}
	return list;
}

static void reload_reply(struct rp_ctl *ctl, struct rp_grpc_call *call, const struct ctl_reload *r)
{
	Ringpost__V1__ReloadReply m = RINGPOST__V1__RELOAD_REPLY__INIT;
	Ringpost__V1__Change *changes = calloc(r->changes.count + 1, sizeof(*changes));

	m.messages = calloc(r->report.count + 1, sizeof(*m.messages));
	RP_ASSERT(changes && m.messages);
	for (unsigned i = 0; i < r->report.count; i++) {
		char line[2048];

		rp_conf_message_format(&r->report.messages[i], line, sizeof(line));
		m.messages[m.n_messages] = strdup(line);
		RP_ASSERT(m.messages[m.n_messages++] != NULL);
	}
	m.node = ctl->config.self.node;
	m.done = r->done;
	if (r->done) {
		m.changed = changes_of(&r->changes, false, changes, &m.n_changed);
		m.kept = changes_of(&r->changes, true, changes, &m.n_kept);
		m.unchanged = r->changes.same;
	}
	ctl_admin_reply(call, &m.base);
	for (size_t i = 0; i < m.n_messages; i++)
		free(m.messages[i]);
	free(m.messages);
	free(m.changed);
	free(m.kept);
	free(changes);
}

static void on_reload(struct rp_grpc_call *call, const uint8_t *data, size_t length, void *ctx)
{
	struct rp_ctl *ctl = ctx;
	struct ctl_reload r;

	if (!ctl_admin_admitted(call))
		return;
	if (ctl->stop_phase > 0) {
		rp_grpc_call_finish(call, RP_GRPC_UNAVAILABLE, "ringpost: the node is stopping");
		return;
	}
	ctl_reload(ctl, &r);
	reload_reply(ctl, call, &r);
	ctl_reload_free(&r);
}

static void on_config(struct rp_grpc_call *call, const uint8_t *data, size_t length, void *ctx)
{
	struct rp_ctl *ctl = ctx;
	Ringpost__V1__ConfigReply m = RINGPOST__V1__CONFIG_REPLY__INIT;
	size_t size;
	FILE *f;

	if (!ctl_admin_admitted(call))
		return;
	f = open_memstream(&m.yaml, &size);
	RP_ASSERT(f != NULL);
	rp_conf_dump_hidden(ctl->conf, f);
	fclose(f);
	ctl_admin_reply(call, &m.base);
	free(m.yaml);
}

static const struct rp_grpc_call_ops stats_ops = {
	.on_message = on_stats, .on_cancel = ctl_admin_on_cancel};
static const struct rp_grpc_call_ops impair_ops = {
	.on_message = on_impair, .on_cancel = ctl_admin_on_cancel};

static const struct rp_grpc_call_ops reload_ops = {
	.on_message = on_reload, .on_cancel = ctl_admin_on_cancel};
static const struct rp_grpc_call_ops config_ops = {
	.on_message = on_config, .on_cancel = ctl_admin_on_cancel};

int ctl_admin_create(struct rp_ctl *ctl)
{
	static const struct {
		const char *path;
		const struct rp_grpc_call_ops *ops;
		enum rp_grpc_kind kind;
	} methods[] = {
		{"/ringpost.v1.Admin/Stats", &stats_ops},
		{"/ringpost.v1.Admin/Connections", &ctl_connections_ops},
		{"/ringpost.v1.Admin/Neighbours", &ctl_neighbours_ops},
		{"/ringpost.v1.Admin/Status", &ctl_status_ops},
		{"/ringpost.v1.Admin/Nodes", &ctl_nodes_ops},
		{"/ringpost.v1.Admin/Links", &ctl_links_ops},
		{"/ringpost.v1.Admin/Queues", &ctl_queues_ops},
		{"/ringpost.v1.Admin/Messages", &ctl_messages_ops},
		{"/ringpost.v1.Admin/Clear", &ctl_clear_ops},
		{"/ringpost.v1.Admin/Trace", &ctl_trace_ops},
		{"/ringpost.v1.Admin/Cancel", &ctl_cancel_ops},
		{"/ringpost.v1.Admin/Consumers", &ctl_consumers_ops},
		{"/ringpost.v1.Admin/Streams", &ctl_streams_ops},
		{"/ringpost.v1.Admin/Route", &ctl_route_ops},
		{"/ringpost.v1.Admin/Drain", &ctl_drain_ops},
		{"/ringpost.v1.Admin/Bus", &ctl_bus_ops},
		{"/ringpost.v1.Admin/Log", &ctl_log_ops},
		{"/ringpost.v1.Admin/Impair", &impair_ops},
		{"/ringpost.v1.Admin/Reload", &reload_ops},
		{"/ringpost.v1.Admin/Config", &config_ops},
		{"/ringpost.v1.Admin/Capture", &ctl_capture_ops, RP_GRPC_SERVER_STREAM},
	};
	int rc;

	_Static_assert(RP_ARRAY_SIZE(methods) == CTL_ADMIN_METHODS, "as many as there is room for");
	_Static_assert(RP_GRPC_UNARY == 0, "the kind where the table names none");
	for (size_t i = 0; i < RP_ARRAY_SIZE(methods); i++)
		ctl->admin_methods[i] = (struct rp_grpc_method){
			.path = methods[i].path,
			.kind = methods[i].kind,
			.ops = methods[i].ops,
			.ctx = ctl,
		};
	ctl->metrics_handler = (struct rp_http_handler){
		.path = "/metrics",
		.on_request = on_metrics,
		.on_cancel = on_metrics_cancel,
		.ctx = ctl,
	};
	for (uint32_t s = 0; s < ctl->config.self.shards; s++) {
		struct rp_engine_snapshot *snap = &ctl->snapshots[s];

		snap->queues_max = QUEUES_SHOWN_MAX;
		snap->connections_max = CONNECTIONS_SHOWN_MAX;
		snap->neighbours_max = NEIGHBOURS_SHOWN_MAX;
		snap->queues = calloc(QUEUES_SHOWN_MAX, sizeof(*snap->queues));
		snap->connections = calloc(CONNECTIONS_SHOWN_MAX, sizeof(*snap->connections));
		snap->neighbours = calloc(NEIGHBOURS_SHOWN_MAX, sizeof(*snap->neighbours));
		snap->addresses = calloc(RP_ENGINE_ADDRESSES_MAX, sizeof(*snap->addresses));
		snap->links_known = calloc(RP_PEERS_MAX, sizeof(*snap->links_known));
		snap->lines = calloc(RP_PEERS_MAX, sizeof(*snap->lines));
		if (!snap->queues || !snap->connections || !snap->neighbours || !snap->addresses ||
			!snap->links_known || !snap->lines)
			return -ENOMEM;
	}
	rp_list_init(&ctl->clears);
	ctl->view = calloc(1, sizeof(*ctl->view));
	if (!ctl->view)
		return -ENOMEM;
	rc = ctl_capture_create(ctl);
	if (rc)
		return rc;
	rc = rp_grpc_server_add_methods(ctl->server, ctl->admin_methods, RP_ARRAY_SIZE(methods));
	return rc ? rc : rp_grpc_server_add_http(ctl->server, &ctl->metrics_handler, 1);
}

void ctl_admin_destroy(struct rp_ctl *ctl)
{
	struct rp_list *lists[2] = {&ctl->waits_now, &ctl->waits_next}, *n;

	for (unsigned i = 0; i < 2; i++)
		while ((n = rp_list_pop_front(lists[i])))
			free(rp_list_entry(n, struct ctl_wait, node));
	for (uint32_t s = 0; s < RP_SHARDS_MAX; s++) {
		free(ctl->snapshots[s].queues);
		free(ctl->snapshots[s].connections);
		free(ctl->snapshots[s].neighbours);
		free(ctl->snapshots[s].addresses);
		free(ctl->snapshots[s].links_known);
		free(ctl->snapshots[s].lines);
	}
	ctl_clears_free(ctl);
	free(ctl->view);
}
