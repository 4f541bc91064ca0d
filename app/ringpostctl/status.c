/* SPDX-License-Identifier: Apache-2.0 */

/* `status`, `nodes` and `route explain`. */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ringpost/v1/admin.pb-c.h>

#include <base/units.h>

#include "client.h"
#include "json.h"
#include "table.h"

/* ---- status ---- */

static void status_print(const Ringpost__V1__StatusReply *r)
{
	char t[4][TABLE_CELL_SIZE];

	printf("node %" PRIu64 "%s%s: %s\n", r->node, r->name[0] ? " " : "", r->name, r->state);
	printf("  version    %s, up %s, clients at %s\n", r->node_version,
		text_ns(t[0], r->uptime_ns), r->client_url);
	if (r->cluster[0])
		printf("  cluster    %s: %u of %u other nodes online, links to %u (%s)\n",
			r->cluster, r->peers_online, r->peers, r->links_up, r->transport);
	else
		printf("  cluster    none\n");
	printf("  queues     %u known, %u dispatched here\n", r->queues, r->dispatched);
	printf("  messages   %u, %s bytes\n", r->messages, text_bytes(t[1], r->message_bytes));
	printf("  consumers  %u here, %u deliveries not acknowledged\n", r->consumers, r->holds);
	printf("  streams    %u open\n", r->streams);
	printf("  clients    %u connections; %" PRIu64 " keys, revision %" PRIu64 "\n",
		r->connections, r->keys, r->revision);
	printf("  shards     %u, ports %u, %u of %u message buffers free\n", r->shards, r->ports,
		r->buffers_free, r->buffers);
}

int status(struct client *c, int argc, char **argv)
{
	Ringpost__V1__StatusRequest q = RINGPOST__V1__STATUS_REQUEST__INIT;
	Ringpost__V1__StatusReply *r;
	struct options o;
	int rc = 0;

	if (options_take(&o, "j", 0, 0, argc, argv) != 0)
		return 2;
	r = ask(c, "/ringpost.v1.Admin/Status", &q.base, &ringpost__v1__status_reply__descriptor);
	if (!r)
		return 1;
	if (o.json)
		rc = json_answer("ringpost.status", &r->base);
	else
		status_print(r);
	ringpost__v1__status_reply__free_unpacked(r, NULL);
	return rc;
}

/* ---- nodes ---- */

static void node_row(char (*row)[TABLE_CELL_SIZE], const Ringpost__V1__NodeView *n)
{
	if (n->node)
		snprintf(row[0], TABLE_CELL_SIZE, "%" PRIu64, n->node);
	else
		snprintf(row[0], TABLE_CELL_SIZE, "-");
	snprintf(row[1], TABLE_CELL_SIZE, "%.60s", n->name);
	snprintf(row[2], TABLE_CELL_SIZE, "%s%s%s", n->state, n->self ? ", this node" : "",
		n->draining ? ", draining" : "");
	snprintf(row[3], TABLE_CELL_SIZE, "%s", n->self ? "-" : n->connected ? "up" : "down");
	snprintf(row[4], TABLE_CELL_SIZE, "%s", n->self ? "-" : n->link_up ? "up" : "down");
	if (n->synced_ago_ns)
		text_ns(row[5], n->synced_ago_ns);
	else
		snprintf(row[5], TABLE_CELL_SIZE, n->self ? "-" : "never");
	snprintf(row[6], TABLE_CELL_SIZE, "%u", n->queued_writes);
	snprintf(row[7], TABLE_CELL_SIZE, "%s", n->version);
	snprintf(row[8], TABLE_CELL_SIZE, "%.60s", n->address[0] ? n->address : n->client_url);
}

int nodes(struct client *c, int argc, char **argv)
{
	static const char *const heads[] = {"NODE", "NAME", "STATE", "GRPC", "LINK", "SYNCED",
		"WRITES", "VERSION", "ADDRESS", NULL};
	Ringpost__V1__NodesRequest q = RINGPOST__V1__NODES_REQUEST__INIT;
	Ringpost__V1__NodesReply *r;
	struct options o;
	struct table t;
	int rc = 0;

	if (options_take(&o, "j", 0, 0, argc, argv) != 0)
		return 2;
	r = ask(c, "/ringpost.v1.Admin/Nodes", &q.base, &ringpost__v1__nodes_reply__descriptor);
	if (!r)
		return 1;
	if (o.json) {
		rc = json_answer("ringpost.nodes", &r->base);
	} else {
		table_init(&t, heads, 0x60);
		for (size_t i = 0; i < r->n_nodes; i++)
			node_row(table_row(&t), r->nodes[i]);
		table_print(&t);
	}
	ringpost__v1__nodes_reply__free_unpacked(r, NULL);
	return rc;
}

/* ---- route explain ---- */

static void place_print(const Ringpost__V1__RoutePlace *p)
{
	printf("  node %" PRIu64 "%s%s (%s): %u consumers\n", p->node, p->name[0] ? " " : "",
		p->name, p->state, p->consumers);
	for (size_t i = 0; i < p->n_hops; i++) {
		const Ringpost__V1__RouteHop *h = p->hops[i];

		printf("    %-8s", h->step);
		if (h->from == h->to)
			printf("at node %" PRIu64, h->from);
		else
			printf("node %" PRIu64 " -> node %" PRIu64 ", %s", h->from, h->to, h->way);
		printf(", peer RPCs: %u\n", h->rpcs);
	}
	printf("    cost in peer RPCs: a message %u, its acknowledge %u", p->cost_put, p->cost_ack);
	if (p->cost_round_trip || p->cost_put)
		printf(", round trip with the reply %u", p->cost_round_trip);
	printf("\n");
}

/* Of a queue that rides on the message bus. */
static void bus_print(const Ringpost__V1__RouteReply *r)
{
	printf("queue %s rides on the message bus (%s), which hands out: it has no dispatcher\n",
		r->queue, r->bus);
	printf("consumers: %u here, %u on other nodes\n", r->consumers_local, r->consumers_remote);
	for (size_t i = 0; i < r->n_places; i++) {
		const Ringpost__V1__RoutePlace *p = r->places[i];

		printf("  node %" PRIu64 "%s%s (%s): %u consumers\n", p->node,
			p->name[0] ? " " : "", p->name, p->state, p->consumers);
		for (size_t k = 0; k < p->n_hops; k++)
			printf("    %-8sat node %" PRIu64 ", %s\n", p->hops[k]->step,
				p->hops[k]->from, p->hops[k]->way);
	}
	printf("messages that wait: %u, in flight here %u\n", r->depth, r->in_flight);
}

static void route_print(const Ringpost__V1__RouteReply *r)
{
	if (r->bus[0]) {
		bus_print(r);
		return;
	}
	printf("queue %s, shard %u\n", r->queue, r->shard);
	if (r->dispatcher == 0)
		printf("dispatcher: none known here\n");
	else
		printf("dispatcher: node %" PRIu64 "%s%s (%s%s), epoch %u%s\n", r->dispatcher,
			r->dispatcher_name[0] ? " " : "", r->dispatcher_name, r->state,
			r->dispatching_here ? ", this node" : "", r->epoch,
			r->pinned ? ", pinned" : "");
	if (r->reply_to[0])
		printf("replies: queue %s, dispatcher: node %" PRIu64 "\n", r->reply_to,
			r->reply_dispatcher);
	printf("consumers: %u here, %u on other nodes\n", r->consumers_local, r->consumers_remote);
	for (size_t i = 0; i < r->n_places; i++)
		place_print(r->places[i]);
	printf("messages here: %u, in flight %u\n", r->depth, r->in_flight);
	printf("cost in peer RPCs: a put from here %u, an acknowledge %u\n", r->cost_put,
		r->cost_ack);
	printf("one endpoint a client: revisions are each node's own\n");
}

int route_explain(struct client *c, int argc, char **argv)
{
	Ringpost__V1__RouteRequest q = RINGPOST__V1__ROUTE_REQUEST__INIT;
	Ringpost__V1__RouteReply *r;
	struct options o;
	int rc = 0;

	if (options_take(&o, "j", 1, 1, argc, argv) != 0)
		return 2;
	q.queue = o.argv[0];
	r = ask(c, "/ringpost.v1.Admin/Route", &q.base, &ringpost__v1__route_reply__descriptor);
	if (!r)
		return 1;
	if (o.json)
		rc = json_answer("ringpost.route_explain", &r->base);
	else
		route_print(r);
	ringpost__v1__route_reply__free_unpacked(r, NULL);
	return rc;
}
