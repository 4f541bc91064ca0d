/* SPDX-License-Identifier: Apache-2.0 */

/* What tests do to a cluster: operations of clients, records, and what became of them. */

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cluster.h"

/* payload_value() in cluster.c checks it. */
static struct rte_mbuf *payload_of(const char *tail, uint64_t value)
{
	uint8_t bytes[4096];
	struct rte_mbuf *m;
	size_t length = strlen(tail), filler = value % 7 == 0 ? value % 3000 : value % 40;

	memcpy(bytes, tail, length);
	memcpy(bytes + length, &value, sizeof(value));
	for (size_t i = 0; i < filler; i++)
		bytes[length + sizeof(value) + i] = (uint8_t)(value + i);
	m = rp_mbuf_from(pool_queue, bytes, length + sizeof(value) + filler);
	assert_non_null(m);
	return m;
}

static uint64_t token_new(struct cluster *c)
{
	assert_true(c->token_count < TOKENS_MAX);
	return (1u << 20) + c->token_count++;
}

unsigned put(struct cluster *c, unsigned node, const char *queue, const char *tail, uint64_t value)
{
	uint64_t token = token_new(c);

	rp_queue_put(c->nodes[node].qs, token, span_of(queue), (uint16_t)strlen(tail),
		payload_of(tail, value), c->now_ns);
	return (unsigned)(token - (1u << 20));
}

unsigned ack(struct cluster *c, unsigned node, const char *queue, unsigned uuid, uint64_t idx,
	uint8_t flags)
{
	uint64_t token = token_new(c);
	uint8_t u[RP_UUID_BYTES];

	uuid_of(uuid, u);
	rp_queue_ack(c->nodes[node].qs, token, span_of(queue), idx, u, flags, NULL, c->now_ns);
	return (unsigned)(token - (1u << 20));
}

unsigned ack_by(struct cluster *c, const struct client *client, uint64_t idx)
{
	uint64_t token = token_new(c);

	rp_queue_consumer_ack(c->nodes[client->node].qs, token, client->handle, idx, c->now_ns);
	return (unsigned)(token - (1u << 20));
}

unsigned get(struct cluster *c, unsigned node, const char *queue, unsigned uuid, uint64_t idx,
	uint8_t flags)
{
	uint64_t token = token_new(c);
	uint8_t u[RP_UUID_BYTES];

	uuid_of(uuid, u);
	rp_queue_get(c->nodes[node].qs, token, span_of(queue), idx, u, flags, c->now_ns);
	return (unsigned)(token - (1u << 20));
}

unsigned reject(struct cluster *c, unsigned node, const char *queue, unsigned uuid, uint64_t idx)
{
	uint64_t token = token_new(c);
	uint8_t u[RP_UUID_BYTES];

	uuid_of(uuid, u);
	rp_queue_reject(c->nodes[node].qs, token, span_of(queue), idx, u, 0, c->now_ns);
	return (unsigned)(token - (1u << 20));
}

struct answer *answer_of(struct cluster *c, unsigned token)
{
	return &c->answers[token];
}

struct client *open_consumer(struct cluster *c, unsigned node, const char *queue, unsigned uuid,
	uint64_t start_revision, const char *fields)
{
	struct client *cl = &c->clients[c->client_count++];
	struct rp_queue_consumer open = {
		.handle = c->client_count,
		.name = span_of(queue),
		.start_revision = start_revision,
		.fields = span_of(fields ? fields : ""),
	};

	assert_true(c->client_count < CLIENTS_MAX);
	cl->handle = c->client_count;
	cl->node = node;
	cl->open = true;
	snprintf(cl->queue, sizeof(cl->queue), "%s", queue);
	snprintf(cl->fields, sizeof(cl->fields), "%s", fields ? fields : "");
	uuid_of(uuid, cl->uuid);
	memcpy(open.uuid, cl->uuid, RP_UUID_BYTES);
	rp_list_init(&cl->buffer);
	rp_queue_consumer_open(c->nodes[node].qs, &open, c->now_ns);
	return cl;
}

void close_consumer(struct cluster *c, struct client *client, enum rp_queue_close how)
{
	client->open = false;
	client_drop_buffer(client);
	rp_queue_consumer_close(c->nodes[client->node].qs, client->handle, how, c->now_ns);
}

void room(struct cluster *c, struct client *client)
{
	client->blocked = false;
	rp_queue_consumer_room(c->nodes[client->node].qs, client->handle, c->now_ns);
}

void publish_record(struct cluster *c, const char *queue, const char *text)
{
	unsigned q = queue_index(c, queue, strlen(queue));
	struct rp_dispatcher_record r;

	rp_route_dispatcher_parse(&r, text, strlen(text));
	for (unsigned i = 0; i < c->node_count; i++) {
		c->nodes[i].records[q].node = r.node;
		c->nodes[i].records[q].epoch = r.epoch;
		if (!c->nodes[i].dead)
			rp_queue_set_record(
				c->nodes[i].qs, span_of(queue), span_of(text), c->now_ns);
	}
}

void publish_consumer(struct cluster *c, const char *queue, unsigned uuid, const char *text)
{
	uint8_t u[RP_UUID_BYTES];

	uuid_of(uuid, u);
	for (unsigned i = 0; i < c->node_count; i++) {
		if (!c->nodes[i].dead)
			rp_queue_set_consumer(
				c->nodes[i].qs, span_of(queue), u, span_of(text), c->now_ns);
	}
}

void cluster_silence(struct cluster *c, unsigned a, unsigned b, bool silent)
{
	c->up[a][b] = c->up[b][a] = !silent;
	if (silent) {
		link_lose(c, a, b);
		link_lose(c, b, a);
		return;
	}
	rp_queue_on_room(c->nodes[a].qs, c->nodes[b].id, c->now_ns);
	rp_queue_on_room(c->nodes[b].qs, c->nodes[a].id, c->now_ns);
}

/* What its client put last is in its record. */
static const char *fields_of(const struct cluster *c, unsigned queue, const uint8_t *uuid)
{
	for (unsigned i = c->client_count; i-- > 0;) {
		const struct client *cl = &c->clients[i];

		if (memcmp(cl->uuid, uuid, RP_UUID_BYTES) == 0 &&
			strcmp(cl->queue, c->queues[queue]) == 0)
			return cl->fields;
	}
	return "";
}

/* What its store says, told again. */
static void publish_again(struct cluster *c, struct node *n, unsigned queue)
{
	struct rp_span name = span_of(c->queues[queue]);
	char text[64] = "";

	if (n->records[queue].node)
		snprintf(text, sizeof(text), "%" PRIu64 ";epoch=%u", n->records[queue].node,
			n->records[queue].epoch);
	rp_queue_set_record(n->qs, name, span_of(text), c->now_ns);
	for (unsigned u = 0; u < RP_ARRAY_SIZE(c->homes[0][0]); u++) {
		uint8_t uuid[RP_UUID_BYTES];

		if (!c->homes[n->index][queue][u])
			continue;
		uuid_of(u, uuid);
		snprintf(text, sizeof(text), "%" PRIu64 "%s", c->homes[n->index][queue][u],
			fields_of(c, queue, uuid));
		rp_queue_set_consumer(n->qs, name, uuid, span_of(text), c->now_ns);
	}
}

/* The newest record of a dispatcher is everybody's, and a consumer's is its host's to say. */
static void stores_merge(struct cluster *c, unsigned queue)
{
	unsigned newest = 0;

	for (unsigned i = 1; i < c->node_count; i++) {
		if (rp_route_dispatcher_compare(c->nodes[i].records[queue].epoch,
			    c->nodes[i].records[queue].node, c->nodes[newest].records[queue].epoch,
			    c->nodes[newest].records[queue].node) > 0)
			newest = i;
	}
	for (unsigned i = 0; i < c->node_count; i++) {
		c->nodes[i].records[queue] = c->nodes[newest].records[queue];
		for (unsigned u = 0; u < RP_ARRAY_SIZE(c->homes[0][0]); u++) {
			unsigned host = 0;

			while (host < c->node_count &&
				c->homes[host][queue][u] != c->nodes[host].id)
				host++;
			c->homes[i][queue][u] = host < c->node_count ? c->nodes[host].id : 0;
		}
	}
}

void cluster_part(struct cluster *c, unsigned a, unsigned b, bool apart)
{
	c->apart[a][b] = c->apart[b][a] = apart;
	for (unsigned q = 0; q < c->queue_count; q++) {
		if (!apart)
			stores_merge(c, q);
		for (unsigned i = 0; i < c->node_count; i++)
			publish_again(c, &c->nodes[i], q);
	}
}

struct rp_queue_info info_of(struct cluster *c, unsigned node, const char *queue)
{
	struct rp_queue_info info = {0};

	rp_queue_info(c->nodes[node].qs, span_of(queue), &info, c->now_ns);
	return info;
}

unsigned shown(const struct client *client, bool deleted)
{
	unsigned count = 0;

	for (unsigned i = 0; i < client->event_count; i++)
		count += client->events[i].deleted == deleted;
	return count;
}

/* Peers drop what their stores say of consumers there: it does not say so any more. */
static void drop_consumers(struct cluster *c, struct node *at, const struct node *gone)
{
	for (unsigned q = 0; q < c->queue_count; q++) {
		for (unsigned u = 0; u < RP_ARRAY_SIZE(c->homes[0][0]); u++) {
			uint8_t uuid[RP_UUID_BYTES];

			if (c->homes[at->index][q][u] != gone->id)
				continue;
			c->homes[at->index][q][u] = 0;
			uuid_of(u, uuid);
			rp_queue_set_consumer(at->qs, span_of(c->queues[q]), uuid,
				(struct rp_span){0}, c->now_ns);
		}
	}
}

void cluster_restart(struct cluster *c, unsigned node)
{
	cluster_start(c, node);
	for (unsigned i = 0; i < c->node_count; i++) {
		if (i == node || c->nodes[i].dead)
			continue;
		drop_consumers(c, &c->nodes[i], &c->nodes[node]);
		memcpy(c->homes[node], c->homes[i], sizeof(c->homes[0]));
		cluster_join(c, i, node);
	}
}
