/* SPDX-License-Identifier: Apache-2.0 */

/* Admin.Bus: the storage of the message bus, and what waits in its queues. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ringpost/v1/admin.pb-c.h>

#include <base/assert.h>
#include <ctl/ctl_bus_priv.h>

#define QUEUES_MAX 1024

/** A queue of the answer; its length is asked of the storage. */
struct bus_row {
	struct bus_ask *ask;
	Ringpost__V1__BusQueue view;
	char name[BUS_LIST_SIZE];
};

struct bus_ask {
	struct rp_list node; /**< bus->asks */
	struct rp_ctl *ctl;
	struct rp_grpc_call *call; /**< NULL: it has gone */
	unsigned open;
	char error[200];
	unsigned count;
	struct bus_row rows[];
};

static void reply(struct bus_ask *a)
{
	Ringpost__V1__BusReply r = RINGPOST__V1__BUS_REPLY__INIT;
	Ringpost__V1__BusQueue **queues = calloc(a->count, sizeof(*queues));
	struct ctl_bus *bus = a->ctl->bus;
	struct rp_store_state state;

	RP_ASSERT(queues != NULL);
	rp_store_state_get(bus->store, &state);
	for (unsigned i = 0; i < a->count; i++)
		queues[i] = &a->rows[i].view;
	r.node = a->ctl->config.self.node;
	r.storage = (char *)(state.redis ? "redis" : "memory");
	r.address = state.address;
	r.connected = state.connected;
	r.error = a->error[0] ? a->error : state.error;
	r.calls = state.calls;
	r.held = state.held;
	r.bytes = state.bytes;
	r.puts = bus->puts_count;
	r.taken = bus->taken_count;
	r.acks = bus->acks_count;
	r.rejects = bus->rejects_count;
	r.returned = bus->returned_count;
	r.n_queues = a->count;
	r.queues = queues;
	if (a->call)
		ctl_admin_reply(a->call, &r.base);
	free(queues);
}

static void on_length(void *ctx, const struct rp_store_result *r)
{
	struct bus_row *row = ctx;
	struct bus_ask *a = row->ask;

	row->view.waiting = r->status == RP_STORE_OK ? r->count : 0;
	if (r->status != RP_STORE_OK && !a->error[0])
		snprintf(a->error, sizeof(a->error), "%s", r->text);
	if (--a->open > 0)
		return;
	reply(a);
	rp_list_unlink(&a->node);
	free(a);
}

static struct bus_row *row_add(struct bus_ask *a, const char *name)
{
	struct bus_row *row = &a->rows[a->count++];

	row->ask = a;
	ringpost__v1__bus_queue__init(&row->view);
	snprintf(row->name, sizeof(row->name), "%s", name);
	row->view.name = row->name;
	return row;
}

static void rows_fill(struct bus_ask *a)
{
	static const char *const own[] = {RP_STORE_LOCAL, RP_STORE_FORWARD, RP_STORE_REPLY};
	struct rp_list *n, *i;

	for (size_t k = 0; k < RP_ARRAY_SIZE(own); k++)
		row_add(a, own[k]);
	rp_list_foreach (n, &a->ctl->bus->queues) {
		struct bus_queue *q = rp_list_entry(n, struct bus_queue, node);
		char name[BUS_LIST_SIZE];
		struct bus_row *row;

		if (a->count == QUEUES_MAX)
			return;
		snprintf(name, sizeof(name), RP_STORE_PREFIX "%.*s", (int)q->name_length,
			(const char *)q->name);
		row = row_add(a, name);
		rp_list_foreach (i, &q->consumers) {
			struct bus_consumer *k = rp_list_entry(i, struct bus_consumer, node);

			row->view.consumers++;
			row->view.in_flight += k->outstanding;
		}
		rp_list_foreach (i, &q->rejected)
			row->view.rejected++;
	}
}

static void on_bus(struct rp_grpc_call *call, const uint8_t *data, size_t length, void *ctx)
{
	struct rp_ctl *ctl = ctx;
	Ringpost__V1__BusRequest *q = ringpost__v1__bus_request__unpack(NULL, length, data);
	struct bus_ask *a;

	if (ctl_admin_malformed(call, q))
		return;
	ringpost__v1__bus_request__free_unpacked(q, NULL);
	if (!ctl_admin_admitted(call))
		return;
	a = calloc(1, sizeof(*a) + QUEUES_MAX * sizeof(a->rows[0]));
	RP_ASSERT(a != NULL);
	a->ctl = ctl;
	a->call = call;
	rp_list_push_back(&ctl->bus->asks, &a->node);
	rp_grpc_call_set_user(call, a);
	rows_fill(a);
	a->open = a->count;
	for (unsigned i = 0; i < a->count; i++)
		rp_store_length(ctl->bus->store, a->rows[i].name, on_length, &a->rows[i]);
}

static void on_bus_cancel(struct rp_grpc_call *call, enum rp_grpc_cancel why, void *ctx)
{
	struct bus_ask *a = rp_grpc_call_user(call);

	if (a)
		a->call = NULL;
}

void ctl_bus_asks_free(struct ctl_bus *bus)
{
	struct rp_list *n;

	while ((n = rp_list_pop_front(&bus->asks)))
		free(rp_list_entry(n, struct bus_ask, node));
}

const struct rp_grpc_call_ops ctl_bus_ops = {.on_message = on_bus, .on_cancel = on_bus_cancel};
