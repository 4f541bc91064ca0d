/* SPDX-License-Identifier: Apache-2.0 */

/* ringpost.v1.Admin: the links to other nodes, a bundle each, and each link of a bundle. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ringpost/v1/admin.pb-c.h>

#include <base/assert.h>
#include <ctl/ctl_priv.h>

struct link_item {
	Ringpost__V1__LinkView l;
	char name[128], obstacle[128];
	uint32_t shards[RP_SHARDS_MAX];
	Ringpost__V1__BundleLink *list[RP_SHARDS_MAX];
};

struct line_item {
	Ringpost__V1__BundleLink b;
	char local[CTL_ENDPOINT_TEXT_SIZE], peer[CTL_ENDPOINT_TEXT_SIZE];
};

/* The queues' shards all use the links, which may be on some of them. */
static void link_sum(struct rp_ctl *ctl, struct link_item *x, uint64_t *answered_ns)
{
	for (uint32_t s = 0; s < ctl->config.self.shards; s++) {
		for (uint32_t i = 0; i < ctl->snapshots[s].link_count; i++) {
			const struct rp_engine_link_view *v = &ctl->snapshots[s].links_known[i];

			if (v->node != x->l.node)
				continue;
			x->l.rtt_ns = RP_MAX(x->l.rtt_ns, v->info.rtt_ns);
			*answered_ns = RP_MAX(*answered_ns, v->info.answered_ns);
			x->l.queued_frames += v->info.queued_frames;
			x->l.streams_out += v->deliver.streams_out;
			x->l.streams_in += v->deliver.streams_in;
			x->l.messages += v->deliver.messages;
			x->l.unary_queues += v->deliver.flows_unary;
		}
	}
}

static void line_streams(struct rp_ctl *ctl, uint64_t node, Ringpost__V1__BundleLink *b)
{
	for (uint32_t s = 0; s < ctl->config.self.shards; s++) {
		for (uint32_t i = 0; i < ctl->snapshots[s].link_count; i++) {
			const struct rp_engine_link_view *v = &ctl->snapshots[s].links_known[i];

			if (v->node != node)
				continue;
			b->streams_out += v->streams_out[b->link];
			b->streams_in += v->streams_in[b->link];
		}
	}
}

static void line_counts(
	Ringpost__V1__BundleLink *b, const struct rp_link_line_info *info, uint64_t now_ns)
{
	b->rtt_ns = info->rtt_ns;
	if (info->answered_ns != 0 && info->rtt_ns != 0)
		b->answered_ago_ns = now_ns - RP_MIN(info->answered_ns, now_ns);
	b->queued_frames = info->queued_frames;
	b->frames_sent = info->frames_sent;
	b->frames_received = info->frames_received;
	b->bytes_sent = info->bytes_sent;
	b->bytes_received = info->bytes_received;
}

static void line_fill(struct rp_ctl *ctl, struct line_item *x, uint32_t shard,
	const struct rp_engine_line_view *v)
{
	const struct rp_link_line_info *info = &v->info;
	bool kernel = v->port == RP_ENGINE_NO_PORT;

	ringpost__v1__bundle_link__init(&x->b);
	x->b.link = info->link;
	x->b.shard = shard;
	x->b.state = (char *)rp_link_stage_text(info->stage);
	x->b.transport = (char *)(info->transport ? info->transport->name : "");
	x->b.port = kernel ? 0 : v->port;
	x->b.placement = (char *)(kernel ? "kernel" : ctl->config.port_placement[v->port]);
	if (info->local.family != 0)
		rp_endpoint_format(&info->local, x->local, sizeof(x->local));
	if (info->peer.family != 0)
		rp_endpoint_format(&info->peer, x->peer, sizeof(x->peer));
	x->b.local = x->local;
	x->b.peer = x->peer;
	x->b.dialed = info->dialed;
	x->b.in_range = info->at_home;
	x->b.aimed = info->aimed;
	line_counts(&x->b, info, ctl->snapshots[shard].now_ns);
	line_streams(ctl, info->node, &x->b);
}

/* The links of one bundle, in their order, wherever they are; `lines` has room for all. */
static size_t lines_fill(struct rp_ctl *ctl, struct link_item *x, struct line_item *lines)
{
	size_t n = 0;

	for (uint32_t link = 0; link < RP_SHARDS_MAX; link++) {
		for (uint32_t s = 0; s < ctl->config.self.shards; s++) {
			const struct rp_engine_snapshot *snap = &ctl->snapshots[s];

			for (uint32_t i = 0; i < snap->line_count && n < RP_SHARDS_MAX; i++) {
				const struct rp_link_line_info *info = &snap->lines[i].info;

				if (info->node != x->l.node || info->link != link)
					continue;
				line_fill(ctl, &lines[n], s, &snap->lines[i]);
				x->list[n] = &lines[n].b;
				n++;
			}
		}
	}
	x->l.bundle_links = x->list;
	x->l.n_bundle_links = n;
	return n;
}

static void link_fill(struct rp_ctl *ctl, struct link_item *x, uint32_t shard,
	const struct rp_engine_link_view *v)
{
	uint64_t now_ns = ctl->snapshots[shard].now_ns, answered_ns = 0;

	ringpost__v1__link_view__init(&x->l);
	ctl_node_name(ctl, v->node, x->name, sizeof(x->name));
	x->l.node = v->node;
	x->l.name = x->name;
	x->l.shard = shard;
	x->l.state = (char *)(v->info.up ? "up" : v->info.dialing ? "dialing" : "down");
	x->l.unary = v->unary;
	x->l.bundle = v->info.bundle;
	x->l.boot = v->info.boot;
	if (v->info.up)
		x->l.up_ns = now_ns - RP_MIN(v->info.up_since_ns, now_ns);
	if (v->info.last_refusal != RP_LINK_REFUSAL_NONE)
		x->l.last_refusal = (char *)rp_link_refusal_text(v->info.last_refusal);
	x->l.downs = v->info.downs;
	if (v->info.downs > 0) {
		x->l.last_down = (char *)rp_link_down_text(v->info.last_down);
		x->l.down_ago_ns = now_ns - RP_MIN(v->info.down_ns, now_ns);
	}
	x->l.placement = (char *)ctl->config.placement;
	ctl_obstacle(ctl, v->node, x->obstacle, sizeof(x->obstacle));
	x->l.obstacle = x->obstacle;
	link_sum(ctl, x, &answered_ns);
	if (answered_ns != 0)
		x->l.answered_ago_ns = now_ns - RP_MIN(answered_ns, now_ns);
	for (uint32_t j = 0; v->info.up && j < v->info.per_peer; j++)
		x->shards[x->l.n_shards++] = v->info.owners[j];
	x->l.shards = x->shards;
}

static void links_reply(struct rp_ctl *ctl, void *who)
{
	struct ctl_admin_call *a = who;
	Ringpost__V1__LinksReply r = RINGPOST__V1__LINKS_REPLY__INIT;
	size_t most = 0, most_lines = 0, used = 0;
	struct link_item *items;
	struct line_item *lines;

	for (uint32_t s = 0; s < ctl->config.self.shards; s++) {
		most += ctl->snapshots[s].link_count;
		most_lines += ctl->snapshots[s].line_count;
	}
	items = calloc(most + 1, sizeof(*items));
	lines = calloc(most_lines + 1, sizeof(*lines));
	r.links = calloc(most + 1, sizeof(*r.links));
	RP_ASSERT(items && lines && r.links);
	for (uint32_t s = 0; s < ctl->config.self.shards; s++) {
		for (uint32_t i = 0; i < ctl->snapshots[s].link_count; i++) {
			struct link_item *x = &items[r.n_links];

			if (!ctl->snapshots[s].links_known[i].linked)
				continue;
			link_fill(ctl, x, s, &ctl->snapshots[s].links_known[i]);
			used += lines_fill(ctl, x, lines + used);
			r.links[r.n_links++] = &x->l;
		}
	}
	r.node = ctl->config.self.node;
	ctl_admin_reply(a->call, &r.base);
	free(r.links);
	free(lines);
	free(items);
	free(a);
}

static void on_links(struct rp_grpc_call *call, const uint8_t *data, size_t length, void *ctx)
{
	if (ctl_admin_admitted(call))
		ctl_admin_ask(ctx, call, "", NULL, links_reply);
}

const struct rp_grpc_call_ops ctl_links_ops = {
	.on_message = on_links, .on_cancel = ctl_admin_on_cancel};
