/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <base/assert.h>

#include "cluster.h"

enum event_type { EVENT_DIAL, EVENT_REQUEST, EVENT_REPLY, EVENT_LOST };

struct cluster_event {
	uint64_t at_ns;
	enum event_type type;
	unsigned from, to, from_life, to_life, connection;
	enum rp_repl_kind kind;
	uint64_t token;
	bool failed;
	uint8_t *bytes;
	size_t length;
};

struct rp_repl_now cluster_now(const struct cluster *c, unsigned node)
{
	return (struct rp_repl_now){
		.ns = c->now_ns,
		.wall_us = CLUSTER_WALL_US + c->now_ns / 1000 + (uint64_t)c->nodes[node].skew_us,
	};
}

struct rp_span cluster_span(const char *text)
{
	return (struct rp_span){.data = (const uint8_t *)text, .length = strlen(text)};
}

static void event_add(struct cluster *c, struct cluster_event e, struct rp_span bytes)
{
	e.at_ns = c->now_ns + 10000 + rp_rand_below(&c->rand, c->delay_ns_max + 1);
	e.bytes = malloc(bytes.length + 1);
	RP_ASSERT(e.bytes);
	if (bytes.length > 0)
		memcpy(e.bytes, bytes.data, bytes.length);
	e.length = bytes.length;
	if (c->event_count == c->event_size) {
		c->event_size = c->event_size ? 2 * c->event_size : 64;
		c->events = realloc(c->events, c->event_size * sizeof(*c->events));
		RP_ASSERT(c->events);
	}
	c->events[c->event_count++] = e;
}

/* ---- what a node asks for ---- */

static int node_send(void *ctx, rp_repl_peer_id peer, enum rp_repl_kind kind, struct rp_span bytes,
	uint64_t token)
{
	struct cluster_node *n = ctx;
	struct cluster *c = n->c;
	struct cluster_event e = {.type = EVENT_REQUEST,
		.from = n->index,
		.to = peer,
		.from_life = n->life,
		.to_life = c->nodes[peer].life,
		.connection = n->connection[peer],
		.kind = kind,
		.token = token};

	RP_ASSERT(bytes.length > 0);
	if (n->connection[peer] == 0)
		return -1;
	if (rp_rand_unit(&c->rand) >= c->loss)
		event_add(c, e, bytes);
	if (rp_rand_unit(&c->rand) < c->duplicate)
		event_add(c, e, bytes);
	return 0;
}

static void node_dial(void *ctx, rp_repl_peer_id peer, const char *address)
{
	struct cluster_node *n = ctx;
	struct cluster_event e = {
		.type = EVENT_DIAL, .from = n->index, .to = peer, .from_life = n->life};

	RP_ASSERT((unsigned)atoi(address + 1) == peer);
	event_add(n->c, e, (struct rp_span){0});
}

static void node_hangup(void *ctx, rp_repl_peer_id peer)
{
	struct cluster_node *n = ctx;

	n->connection[peer] = 0;
	n->hangups++;
}

static void node_state(void *ctx, uint64_t node, enum rp_repl_state state)
{
	struct cluster_node *n = ctx;

	RP_ASSERT(node > 100 && node - 101 < n->c->count);
	n->seen[node - 101] = state;
}

static void node_write_done(void *ctx, uint64_t token, bool confirmed)
{
	struct cluster_node *n = ctx;

	(void)token;
	n->writes_done++;
	n->writes_confirmed += confirmed;
	n->done_ns = n->c->now_ns;
	RP_ASSERT(n->writes_done <= n->writes_waiting);
}

static void node_ready(void *ctx, bool alone)
{
	struct cluster_node *n = ctx;

	n->ready_calls++;
	n->ready_alone = alone;
}

static bool node_eligible(void *ctx, uint64_t node, struct rp_span key)
{
	struct cluster_node *n = ctx;

	return !n->c->eligible || n->c->eligible(n, node, key);
}

static const struct rp_repl_ops node_ops = {
	.send = node_send,
	.dial = node_dial,
	.hangup = node_hangup,
	.node_state = node_state,
	.write_done = node_write_done,
	.ready = node_ready,
	.eligible = node_eligible,
};

/* ---- lives ---- */

void cluster_init(struct cluster *c, unsigned count, uint64_t seed)
{
	memset(c, 0, sizeof(*c));
	c->count = count;
	c->rand.state = seed;
	c->now_ns = RP_NS_PER_S;
	c->delay_ns_max = RP_NS_PER_MS;
	c->config = (struct rp_repl_config){
		.cluster_high = 7, .cluster_low = 9, .redial_ms = 200, .timeout_ms = 500};
	for (unsigned i = 0; i < count; i++)
		c->nodes[i] = (struct cluster_node){.c = c, .index = i, .id = 101 + i};
}

void cluster_up(struct cluster *c, unsigned node)
{
	struct cluster_node *n = &c->nodes[node];
	struct rp_kv_config kv = {.initial_revision = 1, .node = n->id, .keep_tombstones = true};
	struct rp_repl_config config = c->config;

	RP_ASSERT(!n->up);
	n->up = true;
	n->life++;
	n->ready_calls = n->writes_waiting = n->writes_done = n->writes_confirmed = 0;
	memset(n->connection, 0, sizeof(n->connection));
	memset(n->seen, 0, sizeof(n->seen));
	n->kv = rp_kv_create(&kv);
	RP_ASSERT(n->kv);
	config.node = n->id;
	config.seed = rp_rand_u64(&c->rand);
	config.ops = &node_ops;
	config.ctx = n;
	n->repl = rp_repl_create(n->kv, &config);
	RP_ASSERT(n->repl);
	for (unsigned i = 0; i < c->count; i++) {
		char address[16];

		snprintf(address, sizeof(address), "n%u", i);
		RP_ASSERT(rp_repl_peer_add(n->repl, address, cluster_now(c, node)) == i);
	}
	rp_repl_start(n->repl, cluster_now(c, node));
}

void cluster_down(struct cluster *c, unsigned node)
{
	struct cluster_node *n = &c->nodes[node];

	RP_ASSERT(n->up);
	n->up = false;
#define X(name, text) c->total.name += rp_repl_get_stats(n->repl)->name;
	RP_REPL_COUNTERS(X)
#undef X
	rp_repl_destroy(n->repl);
	rp_kv_destroy(n->kv);
	for (unsigned i = 0; i < c->count; i++) {
		struct cluster_node *peer = &c->nodes[i];

		if (peer->up && peer->connection[node] != 0)
			event_add(c,
				(struct cluster_event){.type = EVENT_LOST,
					.from = i,
					.to = node,
					.from_life = peer->life,
					.connection = peer->connection[node]},
				(struct rp_span){0});
	}
}

void cluster_free(struct cluster *c)
{
	for (unsigned i = 0; i < c->count; i++)
		if (c->nodes[i].up)
			cluster_down(c, i);
	for (size_t i = 0; i < c->event_count; i++)
		free(c->events[i].bytes);
	free(c->events);
}

void cluster_cut(struct cluster *c, unsigned a, unsigned b, bool cut)
{
	c->cut[a][b] = c->cut[b][a] = cut;
}

/* ---- events ---- */

static void run_dial(struct cluster *c, const struct cluster_event *e)
{
	struct cluster_node *n = &c->nodes[e->from], *to = &c->nodes[e->to];
	struct rp_repl_now now = cluster_now(c, e->from);

	if (c->cut[e->from][e->to] || c->cut[e->to][e->from] || c->deaf[e->from])
		return; /* It runs into its time-out. */
	if (!to->up || c->busy[e->to]) {
		rp_repl_peer_failed(n->repl, e->to, !to->up, now);
		return;
	}
	n->connection[e->to] = ++c->generations;
	if (rp_repl_peer_connected(n->repl, e->to, to->id, c->config.cluster_high,
		    c->config.cluster_low, now) != 0)
		n->connection[e->to] = 0;
}

static void run_request(struct cluster *c, const struct cluster_event *e)
{
	struct cluster_node *to = &c->nodes[e->to];
	struct cluster_event reply = *e;
	struct rp_span bytes = {.data = e->bytes, .length = e->length}, answer;

	if (!to->up || to->life != e->to_life || c->cut[e->from][e->to] || c->hung[e->to])
		return;
	reply.failed = rp_repl_on_request(to->repl, c->nodes[e->from].id, e->kind, bytes, &answer,
			       cluster_now(c, e->to)) != 0;
	RP_ASSERT(!reply.failed);
	reply.type = EVENT_REPLY;
	if (rp_rand_unit(&c->rand) >= c->loss)
		event_add(c, reply, answer);
	if (rp_rand_unit(&c->rand) < c->duplicate)
		event_add(c, reply, answer);
}

static void run_event(struct cluster *c, const struct cluster_event *e)
{
	struct cluster_node *n = &c->nodes[e->from];

	if (!n->up || n->life != e->from_life)
		return;
	switch (e->type) {
	case EVENT_DIAL:
		run_dial(c, e);
		break;
	case EVENT_REQUEST:
		run_request(c, e);
		break;
	case EVENT_REPLY:
		if (!c->cut[e->to][e->from])
			rp_repl_result(n->repl, e->token, e->failed,
				(struct rp_span){.data = e->bytes, .length = e->length},
				cluster_now(c, e->from));
		break;
	case EVENT_LOST:
		if (n->connection[e->to] == e->connection) {
			n->connection[e->to] = 0;
			rp_repl_peer_failed(n->repl, e->to, false, cluster_now(c, e->from));
		}
		break;
	}
}

static bool run_one(struct cluster *c, uint64_t until_ns)
{
	uint64_t at = until_ns;
	size_t event = SIZE_MAX;
	unsigned node = UINT32_MAX;

	for (size_t i = 0; i < c->event_count; i++) {
		if (c->events[i].at_ns < at) {
			at = c->events[i].at_ns;
			event = i;
		}
	}
	for (unsigned i = 0; i < c->count; i++) {
		uint64_t next;

		if (!c->nodes[i].up)
			continue;
		next = rp_repl_next_ns(c->nodes[i].repl);
		next = RP_MAX(next, c->now_ns);
		if (next < at) {
			at = next;
			node = i;
			event = SIZE_MAX;
		}
	}
	c->now_ns = at;
	if (event != SIZE_MAX) {
		struct cluster_event e = c->events[event];

		c->events[event] = c->events[--c->event_count];
		run_event(c, &e);
		free(e.bytes);
	} else if (node != UINT32_MAX) {
		rp_repl_tick(c->nodes[node].repl, cluster_now(c, node));
	}
	return event != SIZE_MAX || node != UINT32_MAX;
}

void cluster_run(struct cluster *c, uint64_t for_ms)
{
	uint64_t until = c->now_ns + for_ms * RP_NS_PER_MS, last = 0;
	unsigned same = 0;

	while (run_one(c, until)) {
		/* A deadline that a tick does not move would spin for ever. */
		same = c->now_ns == last ? same + 1 : 0;
		RP_ASSERT(same < 10000);
		last = c->now_ns;
	}
	c->now_ns = until;
}

/* ---- writes and looks ---- */

static enum rp_repl_outcome node_propose_txn(
	struct cluster *c, unsigned node, const struct rp_kv_txn *txn)
{
	struct cluster_node *n = &c->nodes[node];
	struct rp_kv_result result;
	enum rp_repl_outcome outcome;

	n->writes_waiting++; /* The callback must not come before this is known. */
	outcome = rp_repl_propose(n->repl, txn, 1, &result, cluster_now(c, node));
	n->writes_waiting -= outcome != RP_REPL_WAITING;
	if (outcome != RP_REPL_REFUSED)
		rp_kv_result_clear(&result);
	return outcome;
}

static enum rp_repl_outcome node_propose(
	struct cluster *c, unsigned node, const struct rp_kv_op *op)
{
	struct rp_kv_txn txn = {.success = op, .success_count = 1};

	return node_propose_txn(c, node, &txn);
}

enum rp_repl_outcome cluster_lease(
	struct cluster *c, unsigned node, enum rp_kv_system_type type, int64_t lease)
{
	struct rp_kv_system_op op = {.type = type, .lease = lease, .ttl_s = 1000000};
	struct rp_kv_txn txn = {.system = &op, .system_count = 1};

	return node_propose_txn(c, node, &txn);
}

enum rp_repl_outcome cluster_put_leased(
	struct cluster *c, unsigned node, const char *key, int64_t lease)
{
	struct rp_kv_op op = {.type = RP_KV_OP_PUT,
		.put = {.key = cluster_span(key), .value = cluster_span("leased"), .lease = lease}};

	return node_propose(c, node, &op);
}

enum rp_repl_outcome cluster_put(
	struct cluster *c, unsigned node, const char *key, const char *value)
{
	struct rp_kv_op op = {.type = RP_KV_OP_PUT,
		.put = {.key = cluster_span(key), .value = cluster_span(value)}};

	return node_propose(c, node, &op);
}

enum rp_repl_outcome cluster_delete(struct cluster *c, unsigned node, const char *key)
{
	struct rp_kv_op op = {.type = RP_KV_OP_DELETE, .del = {.key = cluster_span(key)}};

	return node_propose(c, node, &op);
}

const char *cluster_get(struct cluster *c, unsigned node, const char *key)
{
	static char value[4096];
	struct rp_kv_record record;

	if (!rp_kv_record_get(c->nodes[node].kv, cluster_span(key), &record) || record.deleted)
		return NULL;
	snprintf(value, sizeof(value), "%.*s", (int)record.value.length, record.value.data);
	return value;
}

static bool span_equal(struct rp_span a, struct rp_span b)
{
	return a.length == b.length && (a.length == 0 || memcmp(a.data, b.data, a.length) == 0);
}

bool cluster_equal(struct cluster *c, unsigned a, unsigned b)
{
	static struct rp_kv_record ra[4096], rb[4096];
	struct rp_span none = {0};
	uint32_t na = rp_kv_record_page(c->nodes[a].kv, none, false, none, ra, 4096);
	uint32_t nb = rp_kv_record_page(c->nodes[b].kv, none, false, none, rb, 4096);

	for (uint32_t i = 0; i < na && i < nb; i++) {
		if (span_equal(ra[i].key, rb[i].key) && span_equal(ra[i].value, rb[i].value) &&
			ra[i].deleted == rb[i].deleted && ra[i].stamp == rb[i].stamp &&
			ra[i].node == rb[i].node)
			continue;
		printf("nodes %u and %u differ: %.*s = '%.*s' %d %" PRIu64 " %" PRIu64
		       ", %.*s = '%.*s' %d %" PRIu64 " %" PRIu64 "\n",
			a, b, (int)ra[i].key.length, ra[i].key.data, (int)ra[i].value.length,
			(const char *)ra[i].value.data, ra[i].deleted, ra[i].stamp, ra[i].node,
			(int)rb[i].key.length, rb[i].key.data, (int)rb[i].value.length,
			(const char *)rb[i].value.data, rb[i].deleted, rb[i].stamp, rb[i].node);
		return false;
	}
	if (na != nb)
		printf("nodes %u and %u differ: %u and %u records\n", a, b, na, nb);
	return na == nb;
}

bool cluster_all_online(struct cluster *c)
{
	for (unsigned i = 0; i < c->count; i++)
		for (unsigned k = 0; k < c->count; k++)
			if (c->nodes[i].seen[k] != RP_REPL_ONLINE)
				return false;
	return true;
}
