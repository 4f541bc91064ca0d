/* SPDX-License-Identifier: Apache-2.0 */

/* ringpost.v1.Admin.Route: the way of a queue's messages from this node, and what it costs. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ringpost/v1/admin.pb-c.h>

#include <base/assert.h>
#include <ctl/ctl_route_priv.h>
#include <route/key.h>
#include <route/record.h>

/** A route is put, forward and deliver at most. */
#define HOPS_MAX 3

struct ctl_place {
	Ringpost__V1__RoutePlace p;
	Ringpost__V1__RouteHop hops[HOPS_MAX], *list[HOPS_MAX];
	char name[128];
};

/* How this node reaches the other one now. */
static const char *way_to(struct rp_ctl *ctl, uint64_t node)
{
	if (node == ctl->config.self.node)
		return "local";
	for (uint32_t s = 0; s < ctl->config.self.shards; s++) {
		const struct rp_engine_snapshot *snap = &ctl->snapshots[s];

		for (uint32_t i = 0; i < snap->link_count; i++) {
			if (snap->links_known[i].node != node || !snap->links_known[i].linked)
				continue;
			return snap->links_known[i].info.up ? "stream"
			       : snap->links_known[i].unary ? "unary"
							    : "none";
		}
	}
	return "none";
}

struct ctl_place *ctl_places_new(void)
{
	struct ctl_place *places = calloc(RP_PEERS_MAX, sizeof(*places));

	RP_ASSERT(places != NULL);
	return places;
}

Ringpost__V1__RoutePlace *ctl_place_init(
	struct rp_ctl *ctl, struct ctl_place *places, uint32_t i, uint64_t node)
{
	struct ctl_place *x = &places[i];

	ringpost__v1__route_place__init(&x->p);
	ctl_node_name(ctl, node, x->name, sizeof(x->name));
	x->p.node = node;
	x->p.name = x->name;
	x->p.state =
		(char *)rp_repl_state_name(rp_repl_state_of(rp_control_repl(ctl->control), node));
	x->p.hops = x->list;
	return &x->p;
}

void ctl_place_hop(Ringpost__V1__RoutePlace *place, const char *step, uint64_t from, uint64_t to,
	const char *way)
{
	struct ctl_place *x = RP_CONTAINER_OF(place, struct ctl_place, p);
	Ringpost__V1__RouteHop *h = &x->hops[place->n_hops];

	RP_ASSERT(place->n_hops < HOPS_MAX);
	ringpost__v1__route_hop__init(h);
	h->step = (char *)step;
	h->from = from;
	h->to = to;
	h->way = (char *)way;
	h->rpcs = from != to;
	x->list[place->n_hops++] = h;
}

static void place_fill(struct rp_ctl *ctl, Ringpost__V1__RoutePlace *p,
	const struct rp_queue_place *place, const Ringpost__V1__RouteReply *r)
{
	uint64_t self = ctl->config.self.node, there = place->node;

	p->consumers = place->consumers;
	if (r->dispatcher == 0)
		return;
	ctl_place_hop(p, "put", self, self, "local");
	if (r->dispatcher != self)
		ctl_place_hop(p, "forward", self, r->dispatcher, way_to(ctl, r->dispatcher));
	/* What the dispatcher has to another node is not known here. */
	ctl_place_hop(p, "deliver", r->dispatcher, there,
		r->dispatcher == there	? "local"
		: r->dispatcher == self ? way_to(ctl, there)
					: "stream");
	p->cost_put = rp_route_cost_leg(1, self, r->dispatcher, there);
	p->cost_ack = rp_route_cost_ack(there, r->dispatcher);
	if (r->reply_dispatcher != 0)
		p->cost_round_trip = rp_route_cost_round_trip(
			1, self, there, r->dispatcher, r->reply_dispatcher);
}

struct rp_span ctl_dispatcher_record(struct rp_ctl *ctl, struct rp_span name)
{
	uint8_t key[RP_REGISTRY_KEY_BYTES_MAX];
	int length = rp_route_key_dispatcher(name, key, sizeof(key));
	struct rp_kv_record r;

	if (length < 0 ||
		!rp_kv_record_get(
			rp_control_kv(ctl->control), (struct rp_span){key, (size_t)length}, &r) ||
		r.deleted)
		return (struct rp_span){0};
	return r.value;
}

/* What the record says besides who dispatches. `text` is what reply_to points into. */
static void record_fill(
	struct rp_ctl *ctl, Ringpost__V1__RouteReply *r, char text[RP_RECORD_BYTES_MAX + 1])
{
	struct rp_span name = {(const uint8_t *)r->queue, strlen(r->queue)}, value;
	struct rp_dispatcher_record d;

	value = ctl_dispatcher_record(ctl, name);
	rp_route_dispatcher_parse(&d, value.data, value.length);
	r->pinned = d.pinned;
	if (d.reply_to.length == 0 || d.reply_to.length > RP_RECORD_BYTES_MAX)
		return;
	memcpy(text, d.reply_to.data, d.reply_to.length);
	text[d.reply_to.length] = '\0';
	r->reply_to = text;
	value = ctl_dispatcher_record(ctl, d.reply_to);
	if (rp_route_dispatcher_parse(&d, value.data, value.length) == 0)
		r->reply_dispatcher = d.node;
}

static void queue_fill(struct rp_ctl *ctl, Ringpost__V1__RouteReply *r)
{
	const struct rp_queue_info *q = &ctl->view->rows[0].queue;

	if (ctl->view->row_count == 0)
		return;
	r->dispatcher = q->dispatcher;
	r->epoch = q->epoch;
	r->dispatching_here = q->dispatching;
	r->consumers_local = q->consumers_local;
	r->consumers_remote = q->consumers_remote;
	r->depth = q->depth;
	r->in_flight = q->in_flight;
	if (q->dispatcher != 0)
		r->state = (char *)rp_repl_state_name(
			rp_repl_state_of(rp_control_repl(ctl->control), q->dispatcher));
}

static void places_fill(struct rp_ctl *ctl, Ringpost__V1__RouteReply *r, struct ctl_place *items)
{
	uint64_t self = ctl->config.self.node;
	bool first = true;

	for (uint32_t i = 0; i < ctl->view->place_count; i++) {
		const struct rp_queue_place *place = &ctl->view->places[i];
		Ringpost__V1__RoutePlace *p = ctl_place_init(ctl, items, i, place->node);

		place_fill(ctl, p, place, r);
		r->places[r->n_places++] = p;
		if (first || p->cost_put < r->cost_put)
			r->cost_put = p->cost_put;
		first = false;
	}
	if (first && r->dispatcher != 0)
		r->cost_put = rp_route_cost_leg(1, self, r->dispatcher, r->dispatcher);
	r->cost_ack = r->dispatcher ? rp_route_cost_ack(self, r->dispatcher) : 0;
}

static void route_reply(struct rp_ctl *ctl, void *who)
{
	struct ctl_admin_call *a = who;
	Ringpost__V1__RouteReply r = RINGPOST__V1__ROUTE_REPLY__INIT;
	char name[128], reply_to[RP_RECORD_BYTES_MAX + 1];
	struct ctl_place *items;

	if (ctl_view_missing(ctl, a->call)) {
		free(a);
		return;
	}
	items = ctl_places_new();
	r.places = calloc(RP_PEERS_MAX, sizeof(*r.places));
	RP_ASSERT(r.places != NULL);
	r.node = ctl->config.self.node;
	r.queue = a->ask.name;
	r.shard = a->ask.shard;
	r.state = (char *)"unknown";
	queue_fill(ctl, &r);
	record_fill(ctl, &r, reply_to);
	places_fill(ctl, &r, items);
	ctl_node_name(ctl, r.dispatcher, name, sizeof(name));
	r.dispatcher_name = name;
	ctl_admin_reply(a->call, &r.base);
	free(r.places);
	free(items);
	free(a);
}

static void on_route(struct rp_grpc_call *call, const uint8_t *data, size_t length, void *ctx)
{
	struct rp_ctl *ctl = ctx;
	Ringpost__V1__RouteRequest *q = ringpost__v1__route_request__unpack(NULL, length, data);
	struct ctl_view_ask ask = {.wanted = true, .kind = RP_ENGINE_VIEW_QUEUES, .exact = true};

	if (ctl_admin_malformed(call, q))
		return;
	if (!ctl_admin_admitted(call)) {
		/* It has its answer. */
	} else if (ctl_bus_rides(ctl, (struct rp_span){(uint8_t *)q->queue, strlen(q->queue)})) {
		ctl_bus_route(ctl, call, q->queue);
	} else {
		snprintf(ask.name, sizeof(ask.name), "%s", q->queue);
		ask.shard = rp_hash_pick(
			rp_queue_hash(ask.name, strlen(ask.name)), ctl->config.self.shards);
		ctl_admin_ask_view(ctl, call, &ask, route_reply);
	}
	ringpost__v1__route_request__free_unpacked(q, NULL);
}

static void on_route_cancel(struct rp_grpc_call *call, enum rp_grpc_cancel why, void *ctx)
{
	if (!ctl_bus_route_cancel(ctx, call))
		ctl_admin_on_cancel(call, why, ctx);
}

const struct rp_grpc_call_ops ctl_route_ops = {
	.on_message = on_route, .on_cancel = on_route_cancel};
