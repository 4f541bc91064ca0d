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
#include <ctl/ctl_route_priv.h>
#include <ctl/embed.h>
#include <route/key.h>

/** A call that waits for the length of the queue. */
struct bus_route {
	struct rp_list node; /**< bus->routes */
	struct rp_ctl *ctl;
	struct rp_grpc_call *call; /**< NULL: it has gone */
	char queue[RP_NAME_BYTES_MAX + 1];
};

/** The nodes that its consumers' records name. */
struct places {
	struct rp_ctl *ctl;
	const char *way; /**< to the storage */
	struct ctl_place *items;
	Ringpost__V1__RoutePlace *list[RP_PEERS_MAX];
	uint32_t count;
};

static Ringpost__V1__RoutePlace *place_of(struct places *places, uint64_t node)
{
	uint64_t self = places->ctl->config.self.node;
	Ringpost__V1__RoutePlace *p;

	for (uint32_t i = 0; i < places->count; i++)
		if (places->list[i]->node == node)
			return places->list[i];
	if (places->count == RP_PEERS_MAX)
		return NULL;
	p = ctl_place_init(places->ctl, places->items, places->count, node);
	ctl_place_hop(p, "put", self, self, places->way);
	ctl_place_hop(p, "take", node, node, places->way);
	places->list[places->count++] = p;
	return p;
}

static bool take_record(void *ctx, const struct rp_kv_version *v)
{
	struct rp_span key = rp_kv_version_key(v), value = rp_kv_version_value(v);
	struct rp_consumer_record c;
	Ringpost__V1__RoutePlace *p = NULL;
	struct rp_route_key k;

	rp_route_key_parse(&k, key.data, key.length);
	/* Without a node it is a client's, whose watch is still to come. */
	if (k.kind == RP_KEY_CONSUMER && rp_route_consumer_parse(&c, value.data, value.length) == 0)
		p = place_of(ctx, c.node);
	if (p)
		p->consumers++;
	return true;
}

static void places_find(struct places *places, const char *queue)
{
	uint8_t key[3 + RP_NAME_BYTES_MAX + 3], end[sizeof(key)];
	int n = snprintf((char *)key, sizeof(key), "/q/%s/c/", queue);

	if (n >= (int)sizeof(key))
		return;
	memcpy(end, key, (size_t)n);
	end[n - 1]++;
	rp_ctl_range(places->ctl, (struct rp_span){key, (size_t)n},
		(struct rp_span){end, (size_t)n}, 0, take_record, places);
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
	struct places places = {.ctl = r->ctl, .items = ctl_places_new()};
	uint64_t self = r->ctl->config.self.node;
	struct rp_store_state state;

	rp_store_state_get(r->ctl->bus->store, &state);
	places.way = state.connected ? "bus" : "none";
	places_find(&places, r->queue);
	for (uint32_t i = 0; i < places.count; i++) {
		const Ringpost__V1__RoutePlace *p = places.list[i];

		if (p->node == self)
			m.consumers_local += p->consumers;
		else
			m.consumers_remote += p->consumers;
	}
	m.node = self;
	m.queue = r->queue;
	m.state = (char *)"unknown";
	m.bus = (char *)(state.redis ? "redis" : "memory");
	m.depth = (uint32_t)RP_MIN(waiting, (uint64_t)UINT32_MAX);
	m.in_flight = in_flight(r);
	m.n_places = places.count;
	m.places = places.list;
	ctl_admin_reply(r->call, &m.base);
	free(places.items);
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
