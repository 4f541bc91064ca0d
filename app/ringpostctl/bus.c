/* SPDX-License-Identifier: Apache-2.0 */

/* `bus`: the message bus of a node. */

#include <inttypes.h>
#include <stdio.h>

#include <ringpost/v1/admin.pb-c.h>

#include "client.h"
#include "json.h"
#include "table.h"

static void bus_print(const Ringpost__V1__BusReply *r)
{
	static const char *const heads[] = {
		"QUEUE", "WAITING", "IN FLIGHT", "REJECTED", "CONSUMERS", NULL};
	char bytes[TABLE_CELL_SIZE];
	struct table t;

	printf("%s %s: %s%s%s\n", r->storage, r->address, r->connected ? "up" : "not reached",
		r->error[0] ? ": " : "", r->error);
	printf("%" PRIu64 " puts, %" PRIu64 " taken, %" PRIu64 " acknowledged, %" PRIu64
	       " rejected, %" PRIu64 " given back\n",
		r->puts, r->taken, r->acks, r->rejects, r->returned);
	printf("%" PRIu64 " held here, %s, %" PRIu32 " calls open\n", r->held,
		text_bytes(bytes, r->bytes), r->calls);
	table_init(&t, heads, 0x1e);
	for (size_t i = 0; i < r->n_queues; i++) {
		const Ringpost__V1__BusQueue *q = r->queues[i];
		char(*cells)[TABLE_CELL_SIZE] = table_row(&t);

		snprintf(cells[0], TABLE_CELL_SIZE, "%s", q->name);
		snprintf(cells[1], TABLE_CELL_SIZE, "%" PRIu64, q->waiting);
		snprintf(cells[2], TABLE_CELL_SIZE, "%" PRIu64, q->in_flight);
		snprintf(cells[3], TABLE_CELL_SIZE, "%" PRIu64, q->rejected);
		snprintf(cells[4], TABLE_CELL_SIZE, "%" PRIu32, q->consumers);
	}
	table_print(&t);
}

int bus(struct client *c, int argc, char **argv)
{
	Ringpost__V1__BusRequest q = RINGPOST__V1__BUS_REQUEST__INIT;
	Ringpost__V1__BusReply *r;
	struct options o;
	int rc = 0;

	if (options_take(&o, "j", 0, 0, argc, argv) != 0)
		return 2;
	r = ask(c, "/ringpost.v1.Admin/Bus", &q.base, &ringpost__v1__bus_reply__descriptor);
	if (!r)
		return 1;
	if (o.json)
		rc = json_answer("ringpost.bus", &r->base) != 0 ? 1 : 0;
	else
		bus_print(r);
	ringpost__v1__bus_reply__free_unpacked(r, NULL);
	return rc;
}
