/* SPDX-License-Identifier: Apache-2.0 */

/* `links`: the bundles to other nodes, and under them each link. */

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <ringpost/v1/admin.pb-c.h>

#include "client.h"
#include "json.h"
#include "table.h"

/* "2 on 1 2 (rss)": how many links the bundle has, and where each of them is. */
static void text_shards(char out[TABLE_CELL_SIZE], const Ringpost__V1__LinkView *l)
{
	int n = snprintf(out, TABLE_CELL_SIZE, "%zu%s", l->n_shards, l->n_shards ? " on" : "");

	for (size_t i = 0; i < l->n_shards && n < TABLE_CELL_SIZE; i++)
		n += snprintf(out + n, (size_t)(TABLE_CELL_SIZE - n), " %u", l->shards[i]);
	if (n < TABLE_CELL_SIZE)
		snprintf(out + n, (size_t)(TABLE_CELL_SIZE - n), " (%s)", l->placement);
}

/* Why there is none now, the most telling first. */
static const char *why_not(const Ringpost__V1__LinkView *l)
{
	if (strcmp(l->state, "up") == 0)
		return "";
	return l->last_refusal[0] ? l->last_refusal : l->obstacle[0] ? l->obstacle : l->last_down;
}

static void link_row(char (*row)[TABLE_CELL_SIZE], const Ringpost__V1__LinkView *l)
{
	snprintf(row[0], TABLE_CELL_SIZE, "%" PRIu64, l->node);
	snprintf(row[1], TABLE_CELL_SIZE, "%.60s", l->name);
	snprintf(row[2], TABLE_CELL_SIZE, "%s", l->state);
	text_ns(row[3], l->up_ns);
	text_ns(row[4], l->rtt_ns);
	snprintf(row[5], TABLE_CELL_SIZE, "%u", l->queued_frames);
	snprintf(row[6], TABLE_CELL_SIZE, "%u+%u", l->streams_out, l->streams_in);
	snprintf(row[7], TABLE_CELL_SIZE, "%u", l->messages);
	snprintf(row[8], TABLE_CELL_SIZE, "%s, %u queues", l->unary ? "up" : "down",
		l->unary_queues);
	text_shards(row[9], l);
	snprintf(row[10], TABLE_CELL_SIZE, "%u", l->downs);
	snprintf(row[11], TABLE_CELL_SIZE, "%.63s", why_not(l));
}

/* How a packet comes to the shard; and whether the queues of the link lie elsewhere. */
static void text_placement(char out[TABLE_CELL_SIZE], const Ringpost__V1__BundleLink *b)
{
	bool many = !strcmp(b->placement, "rss") || !strcmp(b->placement, "hand-over");

	snprintf(out, TABLE_CELL_SIZE, "%.40s%s", b->placement,
		many && !b->in_range ? ", out of range" : "");
}

static void line_row(char (*row)[TABLE_CELL_SIZE], const Ringpost__V1__LinkView *l,
	const Ringpost__V1__BundleLink *b)
{
	char sent[TABLE_CELL_SIZE], received[TABLE_CELL_SIZE];

	snprintf(row[0], TABLE_CELL_SIZE, "%" PRIu64, l->node);
	snprintf(row[1], TABLE_CELL_SIZE, "%u", b->link);
	snprintf(row[2], TABLE_CELL_SIZE, "%s", b->state);
	snprintf(row[3], TABLE_CELL_SIZE, "%u", b->shard);
	text_placement(row[4], b);
	if (strcmp(b->transport, "tcp") == 0)
		snprintf(row[5], TABLE_CELL_SIZE, "ports[%u]", b->port);
	else
		snprintf(row[5], TABLE_CELL_SIZE, "kernel");
	snprintf(row[6], TABLE_CELL_SIZE, "%.60s", b->local[0] ? b->local : "-");
	snprintf(row[7], TABLE_CELL_SIZE, "%.60s", b->peer[0] ? b->peer : "-");
	snprintf(row[8], TABLE_CELL_SIZE, "%s", b->dialed ? "here" : "there");
	if (b->rtt_ns)
		text_ns(row[9], b->rtt_ns);
	else
		snprintf(row[9], TABLE_CELL_SIZE, "-");
	snprintf(row[10], TABLE_CELL_SIZE, "%u", b->queued_frames);
	snprintf(row[11], TABLE_CELL_SIZE, "%u+%u", b->streams_out, b->streams_in);
	snprintf(row[12], TABLE_CELL_SIZE, "%.20s+%.20s", text_bytes(sent, b->bytes_sent),
		text_bytes(received, b->bytes_received));
}

static void links_print(const Ringpost__V1__LinksReply *r)
{
	static const char *const heads[] = {"NODE", "NAME", "STATE", "SINCE", "ROUND TRIP",
		"FRAMES", "STREAMS", "MESSAGES", "UNARY", "LINKS", "DOWNS", "WHY NOT UP", NULL};
	static const char *const line_heads[] = {"NODE", "LINK", "STATE", "SHARD", "PLACEMENT",
		"PORT", "LOCAL", "PEER", "DIALED", "ROUND TRIP", "FRAMES", "STREAMS", "BYTES",
		NULL};
	struct table t, lines;

	table_init(&t, heads, 0x4f8);
	table_init(&lines, line_heads, 0x1e0a);
	for (size_t i = 0; i < r->n_links; i++) {
		const Ringpost__V1__LinkView *l = r->links[i];

		link_row(table_row(&t), l);
		for (size_t j = 0; j < l->n_bundle_links; j++)
			line_row(table_row(&lines), l, l->bundle_links[j]);
	}
	table_print(&t);
	putchar('\n');
	table_print(&lines);
}

int links(struct client *c, int argc, char **argv)
{
	Ringpost__V1__LinksRequest q = RINGPOST__V1__LINKS_REQUEST__INIT;
	Ringpost__V1__LinksReply *r;
	struct options o;
	int rc = 0;

	if (options_take(&o, "j", 0, 0, argc, argv) != 0)
		return 2;
	r = ask(c, "/ringpost.v1.Admin/Links", &q.base, &ringpost__v1__links_reply__descriptor);
	if (!r)
		return 1;
	if (o.json)
		rc = json_answer("ringpost.links", &r->base);
	else
		links_print(r);
	ringpost__v1__links_reply__free_unpacked(r, NULL);
	return rc;
}
