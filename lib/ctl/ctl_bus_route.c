/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Admin.Route of a queue that rides on the message bus: it has no dispatcher; each put goes to the
 * storage, and each node that its consumers' records name takes from there.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ringpost/v1/admin.pb-c.h>

#include <base/assert.h>
#include <ctl/ctl_bus_priv.h>
#include <ctl/embed.h>
#include <route/key.h>

#define HOPS_MAX 2

struct bus_place {
	Ringpost__V1__RoutePlace p;
	Ringpost__V1__RouteHop hops[HOPS_MAX], *list[HOPS_MAX];
	char name[128];
};

/** A call that waits for the length of the queue. */
struct bus_route {
	struct rp_list node; /**< bus->routes */
	struct rp_ctl *ctl;
	struct rp_grpc_call *call; /**< NULL: it has gone */
	char queue[RP_NAME_BYTES_MAX + 1];
	unsigned count;
	struct bus_place places[RP_PEERS_MAX];
};

static void hop_add(struct bus_place *x, const char *step, uint64_t node, const char *way)
{
	Ringpost__V1__RouteHop *h = &x->hops[x->p.n_hops];

	ringpost__v1__route_hop__init(h);
	h->step = (char *)step;
	h->from = h->to = node;
	h->way = (char *)way;
	x->list[x->p.n_hops++] = h;
}

static struct bus_place *place_of(struct bus_route *r, uint64_t node, const char *way)
{
	struct rp_ctl *ctl = r->ctl;
	struct bus_place *x;

	for (unsigned i = 0; i < r->count; i++)
		if (r->places[i].p.node == node)
			return &r->places[i];
	if (r->count == RP_PEERS_MAX)
		return NULL;
	x = &r->places[r->count++];
	ringpost__v1__route_place__init(&x->p);
	ctl_node_name(ctl, node, x->name, sizeof(x->name));
	x->p.node = node;
	x->p.name = x->name;
	x->p.state =
		(char *)rp_repl_state_name(rp_repl_state_of(rp_control_repl(ctl->control), node));
	x->p.hops = x->list;
	hop_add(x, "put", ctl->config.self.node, way);
	hop_add(x, "take", node, way);
	return x;
}

struct records {
	struct bus_route *r;
	const char *way;
};

static bool take_record(void *ctx, const struct rp_kv_version *v)
{
	struct records *records = ctx;
	struct rp_span key = rp_kv_version_key(v), value = rp_kv_version_value(v);
	struct rp_consumer_record c;
	struct bus_place *x = NULL;
	struct rp_route_key k;

	rp_route_key_parse(&k, key.data, key.length);
	/* Without a node it is a client's, whose watch is still to come. */
	if (k.kind == RP_KEY_CONSUMER && rp_route_consumer_parse(&c, value.data, value.length) == 0)
		x = place_of(records->r, c.node, records->way);
	if (x)
		x->p.consumers++;
	return true;
}

static void places_find(struct bus_route *r, const char *way)
{
	struct records records = {.r = r, .way = way};
	uint8_t key[3 + RP_NAME_BYTES_MAX + 3], end[sizeof(key)];
	int n = snprintf((char *)key, sizeof(key), "/q/%s/c/", r->queue);

	if (n >= (int)sizeof(key))
		return;
	memcpy(end, key, (size_t)n);
	end[n - 1]++;
	rp_ctl_range(r->ctl, (struct rp_span){key, (size_t)n}, (struct rp_span){end, (size_t)n}, 0,
		take_record, &records);
}

/* What its consumers here hold, of what this node took. */
static uint32_t in_flight(const struct bus_route *r)
{
	uint32_t held = 0;
	struct rp_list *n, *i;

	rp_list_foreach (n, &r->ctl->bus->queues) {
		struct bus_queue *q = rp_list_entry(n, struct bus_queue, node);

		if (q->name_length != strlen(r->queue) ||
			memcmp(q->name, r->queue, q->name_length) != 0)
			continue;
		rp_list_foreach (i, &q->consumers)
			held += rp_list_entry(i, struct bus_consumer, node)->outstanding;
	}
	return held;
}

static void reply(struct bus_route *r, uint64_t waiting)
{
	Ringpost__V1__RouteReply m = RINGPOST__V1__ROUTE_REPLY__INIT;
	Ringpost__V1__RoutePlace **places = calloc(RP_PEERS_MAX, sizeof(*places));
	uint64_t self = r->ctl->config.self.node;
	struct rp_store_state state;

	RP_ASSERT(places != NULL);
	rp_store_state_get(r->ctl->bus->store, &state);
	places_find(r, state.connected ? "bus" : "none");
	for (unsigned i = 0; i < r->count; i++) {
		places[i] = &r->places[i].p;
		if (r->places[i].p.node == self)
			m.consumers_local += r->places[i].p.consumers;
		else
			m.consumers_remote += r->places[i].p.consumers;
	}
	m.node = self;
	m.queue = r->queue;
	m.state = (char *)"unknown";
	m.bus = (char *)(state.redis ? "redis" : "memory");
	m.depth = (uint32_t)RP_MIN(waiting, (uint64_t)UINT32_MAX);
	m.in_flight = in_flight(r);
	m.n_places = r->count;
	m.places = places;
	ctl_admin_reply(r->call, &m.base);
	free(places);
}

static void on_length(void *ctx, const struct rp_store_result *result)
{
	struct bus_route *r = ctx;

	if (r->call)
		reply(r, result->status == RP_STORE_OK ? result->count : 0);
	rp_list_unlink(&r->node);
	free(r);
}

void ctl_bus_route(struct rp_ctl *ctl, struct rp_grpc_call *call, const char *queue)
{
	struct bus_route *r = calloc(1, sizeof(*r));
	char list[BUS_LIST_SIZE];

	RP_ASSERT(r != NULL);
	r->ctl = ctl;
	r->call = call;
	snprintf(r->queue, sizeof(r->queue), "%s", queue);
	snprintf(list, sizeof(list), RP_STORE_PREFIX "%s", r->queue);
	rp_list_push_back(&ctl->bus->routes, &r->node);
	rp_store_length(ctl->bus->store, list, on_length, r);
}

bool ctl_bus_route_cancel(struct rp_ctl *ctl, const struct rp_grpc_call *call)
{
	struct rp_list *n;

	rp_list_foreach (n, &ctl->bus->routes) {
		struct bus_route *r = rp_list_entry(n, struct bus_route, node);

		if (r->call != call)
			continue;
		r->call = NULL;
		return true;
	}
	return false;
}

void ctl_bus_routes_free(struct ctl_bus *bus)
{
	struct rp_list *n;

	while ((n = rp_list_pop_front(&bus->routes)))
		free(rp_list_entry(n, struct bus_route, node));
}
