/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Random runs from seeds: `queue_sim_test [first seed [how many]]`. What must hold in each:
 *
 *   - an accepted put is delivered, unless a node died; an acknowledged message never again
 *   - a message is with one consumer at a time: another gets it only after the first left,
 * rejected, was fenced or lost its node
 *   - a consumer that returns gets what it missed, no more
 *   - with one consumer that never ends, order holds for each producer's node
 *   - where buffers are few, puts are refused, and the pool never runs empty
 *   - at the end every table is empty and every buffer back
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cluster.h"

#define MESSAGES_MAX 4000
#define DELIVERIES_MAX 64
#define LIVE_MAX 12

struct delivery {
	unsigned client, event;
	bool over; /**< its holder may not have it any more */
};

struct message {
	unsigned token, node, queue, serial;
	uint64_t acked_ns;
	bool acked; /**< a client was told so */
	struct delivery deliveries[DELIVERIES_MAX];
	unsigned delivery_count;
};

/* A uuid of one queue, with the watch that it has now. */
struct member {
	unsigned queue, uuid, client;
	uint64_t seen_revision, closed_ns;
	bool open, dead;
};

struct pending_ack {
	unsigned token, message, member;
	uint64_t idx, due_ns;
	bool sent, home; /**< from the node of its consumer, which knows who delivered it */
};

struct shape {
	const char *name;
	unsigned nodes, queues, members, messages;
	bool cuts, long_cuts, blocks, ends, rejects, mutes, kills, stops, race, tight;
};

enum stop_stage { STOP_NONE, STOP_MOVING, STOP_WATCHES, STOP_LINKS, STOP_DOWN };

struct sim {
	const struct shape *shape;
	struct cluster *c;
	struct rp_rand rand;
	struct message messages[MESSAGES_MAX];
	unsigned message_count, serials[NODES_MAX];
	struct member members[LIVE_MAX];
	unsigned cursor[CLIENTS_MAX]; /**< events looked at */
	unsigned owner[CLIENTS_MAX];  /**< member of the client */
	uint64_t floor[CLIENTS_MAX];  /**< start_revision */
	struct pending_ack *acks;
	unsigned ack_count, ack_size;
	unsigned last_serial[QUEUES_MAX][NODES_MAX];
	unsigned kills, killed, stops;
	unsigned stop_node; /**< NODES_MAX: none */
	enum stop_stage stop_stage;
	uint64_t stop_ns;
	uint64_t cut_until_ns[NODES_MAX][NODES_MAX], cut_ns[NODES_MAX][NODES_MAX];
};

static const char *const queue_names[] = {"q0", "q1", "q2", "q3"};

static uint64_t below(struct sim *s, uint64_t n)
{
	return rp_rand_below(&s->rand, n);
}

static bool chance(struct sim *s, unsigned one_in)
{
	return below(s, one_in) == 0;
}

static unsigned alive(struct sim *s)
{
	unsigned node;

	do
		node = (unsigned)below(s, s->shape->nodes);
	while (s->c->nodes[node].dead || node == s->stop_node);
	return node;
}

/* ---- consumers ---- */

static void member_over(struct sim *s, unsigned member)
{
	for (unsigned i = 0; i < s->message_count; i++) {
		struct message *m = &s->messages[i];

		for (unsigned d = 0; d < m->delivery_count; d++) {
			if (s->owner[m->deliveries[d].client] == member)
				m->deliveries[d].over = true;
		}
	}
}

static void member_open(struct sim *s, unsigned member, unsigned node, uint64_t revision)
{
	static const char *const fields[] = {"", ";prefetch=3", ";prefetch=40", ";prefetch=400"};
	struct member *m = &s->members[member];
	struct client *cl;

	/* A new life lets go of what the old one held. */
	if (!revision)
		member_over(s, member);
	s->floor[s->c->client_count] = revision;
	s->owner[s->c->client_count] = member;
	cl = open_consumer(s->c, node, queue_names[m->queue], m->uuid, revision,
		fields[below(s, RP_ARRAY_SIZE(fields))]);
	m->client = (unsigned)(cl->handle - 1);
	m->open = true;
	m->dead = false;
}

static void member_close(struct sim *s, unsigned member, enum rp_queue_close how)
{
	struct member *m = &s->members[member];

	close_consumer(s->c, &s->c->clients[m->client], how);
	m->open = false;
	m->closed_ns = s->c->now_ns;
	if (how == RP_QUEUE_CLOSE_LEFT) {
		m->dead = true;
		member_over(s, member);
		publish_consumer(s->c, queue_names[m->queue], m->uuid, "");
	}
}

static bool is_down(const struct sim *s, unsigned node)
{
	return s->c->nodes[node].dead || node == s->stop_node;
}

/* Ends, and returns: sometimes in time, sometimes as a new life, sometimes elsewhere. */
static void members_step(struct sim *s)
{
	for (unsigned i = 0; i < s->shape->members; i++) {
		struct member *m = &s->members[i];
		struct client *cl = &s->c->clients[m->client];

		if (m->open && !cl->open) { /* its node died, or the engine ended it */
			m->open = false;
			m->closed_ns = s->c->now_ns;
		}
		if (!m->open && !m->dead && s->c->now_ns >= m->closed_ns + 990 * MS) {
			m->dead = true;
			member_over(s, i);
		}
		if (m->open && s->shape->ends && chance(s, 2000))
			member_close(
				s, i, chance(s, 4) ? RP_QUEUE_CLOSE_LEFT : RP_QUEUE_CLOSE_ENDED);
		else if (!m->open && (s->shape->ends || !s->shape->stops) && chance(s, 3000))
			member_open(s, i,
				chance(s, 3) || is_down(s, cl->node) ? alive(s) : cl->node,
				chance(s, 3) || s->c->nodes[cl->node].dead ? 0
									   : m->seen_revision + 1);
		if (!m->open && s->c->nodes[cl->node].dead)
			continue;
		cl = &s->c->clients[m->client];
		if (s->shape->mutes && m->open && chance(s, cl->mute ? 30000 : 8000))
			cl->mute = !cl->mute;
		if (s->shape->blocks && m->open && chance(s, cl->blocked ? 50 : 500)) {
			if (cl->blocked)
				room(s->c, cl);
			else
				cl->blocked = true;
		}
	}
}

/* ---- what clients see ---- */

static void ack_later(struct sim *s, unsigned message, unsigned member, uint64_t idx)
{
	if (s->ack_count == s->ack_size) {
		s->ack_size = s->ack_size ? 2 * s->ack_size : 1024;
		s->acks = realloc(s->acks, s->ack_size * sizeof(*s->acks));
		assert_non_null(s->acks);
	}
	s->acks[s->ack_count++] = (struct pending_ack){.message = message,
		.member = member,
		.idx = idx,
		.due_ns = s->c->now_ns + below(s, chance(s, 20) ? 6 * SEC : 30 * MS)};
}

static struct delivery *delivery_of(struct sim *s, struct message *m, unsigned member, uint64_t idx)
{
	for (unsigned d = 0; d < m->delivery_count; d++) {
		struct delivery *x = &m->deliveries[d];
		const struct event *e = &s->c->clients[x->client].events[x->event];

		if (s->owner[x->client] == member && e->idx == idx && !x->over)
			return x;
	}
	return NULL;
}

static void withdrawn(struct sim *s, unsigned member, uint64_t idx)
{
	for (unsigned i = 0; i < s->message_count; i++) {
		struct delivery *d = delivery_of(s, &s->messages[i], member, idx);

		if (d)
			d->over = true;
	}
}

static void put_event(struct sim *s, unsigned client, unsigned event)
{
	const struct event *e = &s->c->clients[client].events[event];
	unsigned member = s->owner[client];
	struct message *m = &s->messages[e->value - 1];
	struct delivery *again;

	assert_true(e->value >= 1 && e->value <= s->message_count);
	/* But for what was on its way when its holder, from an earlier life, acknowledged it. */
	if (m->acked && !s->kills && m->acked_ns + 20 * MS < s->c->now_ns)
		fail_msg("message %u: delivered after its acknowledge", (unsigned)e->value);
	assert_true(e->revision >= s->floor[client]);
	again = delivery_of(s, m, member, e->idx);
	if (again) {
		/* Unchanged, and only what the watch did not have. */
		const struct event *o = &s->c->clients[again->client].events[again->event];

		assert_true(again->client != client);
		/* On another node, when its report was lost with the path, it counts as not seen.
		 */
		if (o->attempt == e->attempt && !s->kills &&
			s->c->clients[again->client].node == s->c->clients[client].node)
			assert_true(o->revision == e->revision || !s->floor[client]);
		again->client = client;
		again->event = event;
	}
	for (unsigned d = 0; !again && d < m->delivery_count; d++) {
		if (!m->deliveries[d].over && !s->kills)
			fail_msg("message %u: at uuid %u while uuid %u holds it",
				(unsigned)e->value, s->members[member].uuid,
				s->members[s->owner[m->deliveries[d].client]].uuid);
	}
	if (!again) {
		assert_true(m->delivery_count < DELIVERIES_MAX);
		m->deliveries[m->delivery_count++] =
			(struct delivery){.client = client, .event = event};
	}
	s->members[member].seen_revision = RP_MAX(s->members[member].seen_revision, e->revision);
	if (s->shape->members == s->shape->queues && !s->shape->ends && !s->shape->kills &&
		!s->shape->mutes && !s->shape->race && !s->shape->long_cuts) {
		unsigned *last = &s->last_serial[m->queue][m->node];

		if (m->serial <= *last)
			fail_msg("message %u: number %u of node %u came after %u",
				(unsigned)e->value, m->serial, m->node, *last);
		*last = m->serial;
	}
	if (s->shape->rejects && chance(s, 30)) {
		const struct client *cl = &s->c->clients[client];

		if (cl->open) {
			reject(s->c, cl->node, queue_names[m->queue], s->members[member].uuid,
				e->idx);
			withdrawn(s, member, e->idx);
			return;
		}
	}
	ack_later(s, (unsigned)e->value - 1, member, e->idx);
}

static void events_step(struct sim *s)
{
	for (unsigned i = 0; i < s->c->client_count; i++) {
		const struct client *cl = &s->c->clients[i];

		for (; s->cursor[i] < cl->event_count; s->cursor[i]++) {
			if (cl->events[s->cursor[i]].deleted)
				withdrawn(s, s->owner[i], cl->events[s->cursor[i]].idx);
			else
				put_event(s, i, s->cursor[i]);
		}
	}
}

static void acks_step(struct sim *s)
{
	for (unsigned i = 0; i < s->ack_count;) {
		struct pending_ack *a = &s->acks[i];
		struct message *m = &s->messages[a->message];
		const struct member *member = &s->members[a->member];
		const struct answer *answer = a->sent ? answer_of(s->c, a->token) : NULL;
		unsigned node = s->c->clients[member->client].node;

		if (!a->sent && a->due_ns <= s->c->now_ns && s->c->token_count < TOKENS_MAX - 100) {
			if (is_down(s, node) || (!a->home && chance(s, 5)))
				node = alive(s);
			a->home = node == s->c->clients[member->client].node;
			a->token = ack(s->c, node, queue_names[m->queue], member->uuid, a->idx, 0);
			a->sent = true;
			continue;
		}
		if (answer && answer->done) {
			bool again = answer->status == RP_Q_UNREACHABLE ||
				     answer->status == RP_Q_NO_DISPATCHER ||
				     answer->status == RP_Q_LIMIT;

			/* One of several that dispatched in the dark may hold it. */
			if (answer->status == RP_Q_OK && !answer->deleted && s->shape->race &&
				!a->home) {
				a->home = true;
				again = true;
			}
			if (answer->status == RP_Q_OK && answer->deleted) {
				assert_false(m->acked && !s->kills);
				m->acked = true;
				m->acked_ns = s->c->now_ns;
			} else if (again) {
				a->sent = false;
				a->due_ns = s->c->now_ns + 50 * MS;
				i++;
				continue;
			}
			*a = s->acks[--s->ack_count];
			continue;
		}
		/* Its node died with the answer. */
		if (a->sent && s->kills && a->due_ns + 20 * SEC < s->c->now_ns) {
			*a = s->acks[--s->ack_count];
			continue;
		}
		/* Here it is asked again: nothing may stay behind. */
		if (a->sent && s->shape->stops && a->due_ns + 8 * SEC < s->c->now_ns) {
			a->sent = false;
			a->due_ns = s->c->now_ns;
		}
		i++;
	}
}

/* ---- faults ---- */

/* The server ends the watches of the node that stops. */
static void stop_watches(struct sim *s)
{
	for (unsigned i = 0; i < s->shape->members; i++) {
		struct member *m = &s->members[i];
		const struct client *cl = &s->c->clients[m->client];

		if (cl->node != s->stop_node || !m->open)
			continue;
		if (cl->open)
			member_close(s, i, RP_QUEUE_CLOSE_SERVER);
		m->open = false;
		m->closed_ns = s->c->now_ns;
	}
}

/* Their clients go elsewhere, where order is the matter all of them at once. */
static void move_clients(struct sim *s)
{
	for (unsigned i = 0; i < s->shape->members; i++) {
		struct member *m = &s->members[i];

		if (s->c->clients[m->client].node == s->stop_node && !m->open &&
			(s->shape->members == s->shape->queues || chance(s, 2)))
			member_open(s, i, alive(s), m->seen_revision + 1);
	}
}

/* A node stops in order, one at a time, and comes back. */
static void stops_step(struct sim *s)
{
	struct cluster *c = s->c;

	if (!s->shape->stops || c->now_ns < s->stop_ns)
		return;
	switch (s->stop_stage) {
	case STOP_NONE:
		if (!chance(s, 3000))
			return;
		s->stop_node = alive(s);
		s->stop_stage = STOP_MOVING;
		s->stop_ns = c->now_ns;
		s->stops++;
		rp_queue_stop(c->nodes[s->stop_node].qs, c->now_ns);
		break;
	case STOP_MOVING:
		if (rp_queue_is_moving(c->nodes[s->stop_node].qs)) {
			if (c->now_ns > s->stop_ns + 5 * SEC)
				fail_msg("node %u does not get rid of its queues", s->stop_node);
			return;
		}
		/* What it said last comes, and the clients' answers. */
		s->stop_stage = STOP_WATCHES;
		s->stop_ns = c->now_ns + 20 * MS;
		break;
	case STOP_WATCHES:
		stop_watches(s);
		s->stop_stage = STOP_LINKS;
		s->stop_ns = c->now_ns + 20 * MS;
		break;
	case STOP_LINKS:
		move_clients(s);
		cluster_state(c, s->stop_node, RP_NODE_GONE);
		cluster_kill(c, s->stop_node);
		s->stop_stage = STOP_DOWN;
		s->stop_ns = c->now_ns + below(s, 4 * SEC);
		break;
	case STOP_DOWN:
		cluster_start(c, s->stop_node);
		for (unsigned b = 0; b < s->shape->nodes; b++) {
			if (b != s->stop_node)
				cluster_join(c, s->stop_node, b);
		}
		/* It tells the others which consumers it hosts: none. */
		for (unsigned i = 0; i < s->shape->members; i++) {
			const struct member *m = &s->members[i];

			if (!m->open && c->clients[m->client].node == s->stop_node)
				publish_consumer(c, queue_names[m->queue], m->uuid, "");
		}
		s->stop_node = NODES_MAX;
		s->stop_stage = STOP_NONE;
		s->stop_ns = c->now_ns + 500 * MS;
		break;
	}
}

static void members_lost(struct sim *s, unsigned a, unsigned b)
{
	for (unsigned i = 0; i < s->shape->members; i++) {
		unsigned node = s->c->clients[s->members[i].client].node;

		if (node == a || node == b)
			member_over(s, i);
	}
}

static void network_step(struct sim *s)
{
	struct cluster *c = s->c;

	for (unsigned a = 1; a < s->shape->nodes; a++) {
		for (unsigned b = 0; b < a; b++) {
			if (c->nodes[a].dead || c->nodes[b].dead)
				continue;
			/* What one has from the other is fenced by now, seen by a client or not. */
			if (!c->up[a][b] && s->cut_ns[a][b] + 2990 * MS <= c->now_ns)
				members_lost(s, a, b);
			if (!c->up[a][b] && s->cut_until_ns[a][b] <= c->now_ns) {
				cluster_join(c, a, b);
			} else if (c->up[a][b] && s->shape->cuts && chance(s, 4000)) {
				uint64_t most = s->shape->long_cuts && chance(s, 3) ? 8 * SEC : SEC;

				cluster_cut(c, a, b);
				s->cut_ns[a][b] = c->now_ns;
				s->cut_until_ns[a][b] = c->now_ns + below(s, most);
			}
		}
	}
}

static void kills_step(struct sim *s, uint64_t *back_ns, unsigned *down)
{
	struct cluster *c = s->c;

	if (!s->shape->kills)
		return;
	if (*down < NODES_MAX && *back_ns <= c->now_ns) {
		unsigned node = *down;

		cluster_start(c, node);
		for (unsigned b = 0; b < s->shape->nodes; b++) {
			if (b != node)
				cluster_join(c, node, b);
		}
		*down = NODES_MAX;
		*back_ns = c->now_ns + 10 * SEC;
	} else if (*down == NODES_MAX && *back_ns <= c->now_ns && chance(s, 20000)) {
		*down = (unsigned)below(s, s->shape->nodes);
		s->kills++;
		cluster_kill(c, *down);
		*back_ns = c->now_ns + 4 * SEC + below(s, 8 * SEC);
		s->killed = *down;
	}
	/* Known as dead for L, its node is not Online any more. */
	if (*down < NODES_MAX && *back_ns < c->now_ns + 2 * SEC)
		cluster_state(c, *down, RP_NODE_SPARE);
}

/* Most while the claims are in the dark, where that is the matter. */
static void puts_step(struct sim *s, unsigned step)
{
	unsigned burst =
		chance(s, s->shape->race && step < 200 ? 10 : 400) ? (unsigned)below(s, 60) : 0;

	while (burst-- > 0 && s->message_count < s->shape->messages) {
		struct message *m = &s->messages[s->message_count];
		char tail[32];

		m->node = alive(s);
		m->queue = (unsigned)below(s, s->shape->queues);
		m->serial = ++s->serials[m->node];
		snprintf(tail, sizeof(tail), "n%u-%u", m->node, m->serial);
		s->message_count++;
		m->token = put(s->c, m->node, queue_names[m->queue], tail, s->message_count);
	}
}

/* ---- a run ---- */

static bool is_done(struct sim *s)
{
	for (unsigned i = 0; i < s->shape->nodes; i++) {
		struct rp_queue_totals t;

		if (s->c->nodes[i].dead)
			return false;
		rp_queue_get_totals(s->c->nodes[i].qs, &t);
		if (t.messages || t.requests || t.holds)
			return false;
	}
	return s->ack_count == 0;
}

/* Everybody is well again: what is held is acknowledged, what waits is delivered. */
static void finish(struct sim *s)
{
	while (s->stop_stage != STOP_NONE) {
		cluster_run(s->c, s->c->step_ns);
		members_step(s);
		stops_step(s);
		events_step(s);
		acks_step(s);
	}
	for (unsigned i = 0; i < s->shape->nodes; i++) {
		if (s->c->nodes[i].dead)
			cluster_start(s->c, i);
	}
	for (unsigned a = 1; a < s->shape->nodes; a++) {
		for (unsigned b = 0; b < a; b++)
			cluster_join(s->c, a, b);
	}
	for (unsigned i = 0; i < s->shape->nodes; i++)
		cluster_state(s->c, i, RP_NODE_ONLINE);
	s->c->full_one_in = 0;
	for (unsigned round = 0; round < 400 && !is_done(s); round++) {
		for (unsigned i = 0; i < s->shape->members; i++) {
			struct member *m = &s->members[i];
			struct client *cl = &s->c->clients[m->client];

			if (!cl->open)
				m->open = false;
			cl->mute = false;
			if (cl->blocked && cl->open)
				room(s->c, cl);
			/* A fresh uuid now and then, for what all others rejected. */
			if (!m->open || (round % 100 == 50 && s->shape->rejects)) {
				if (m->open)
					member_close(s, i, RP_QUEUE_CLOSE_LEFT);
				m->uuid += 10;
				member_open(s, i, alive(s), 0);
			}
		}
		for (unsigned k = 0; k < 100; k++) {
			cluster_run(s->c, MS);
			events_step(s);
			acks_step(s);
		}
	}
}

static uint64_t seed_first = 1, seed_count = 6;
/* Over all runs: what never happened was not tested. */
static struct rp_queue_counters sum;

static void add_counters(const struct rp_queue_counters *from)
{
	for (unsigned i = 0; i < RP_QUEUE_COUNTER_COUNT; i++)
		((uint64_t *)&sum)[i] += ((const uint64_t *)from)[i];
}

static void check_end(struct sim *s)
{
	uint64_t acks = 0, accepted = 0;

	cluster_audit(s->c);
	for (unsigned i = 0; i < s->message_count; i++) {
		const struct message *m = &s->messages[i];
		const struct answer *a = answer_of(s->c, m->token);

		if (!a->done && !s->kills && !s->stops)
			fail_msg("message %u: its put was not answered", i + 1);
		if (!a->done || a->status != RP_Q_OK)
			continue;
		accepted++;
		if (m->delivery_count == 0 && !s->kills)
			fail_msg("message %u: accepted and never delivered", i + 1);
	}
	for (unsigned i = 0; i < s->shape->nodes; i++) {
		struct rp_queue_totals t;

		rp_queue_get_totals(s->c->nodes[i].qs, &t);
		if (t.messages || t.holds || t.requests)
			fail_msg("node %u: left are %u messages, %u holds, %u requests", i,
				t.messages, t.holds, t.requests);
		acks += t.counters.acks;
		add_counters(&t.counters);
	}
	if (!s->kills && !s->stops)
		assert_int_equal(acks, accepted);
	if (s->shape->stops)
		assert_true(s->stops > 0);
	assert_true(accepted > s->message_count / (s->shape->tight ? 8 : 2));
}

static void run(const struct shape *shape, uint64_t seed)
{
	const struct rp_queue_config config = {.pool = shape->tight ? pool_tight : NULL,
		.forward_window = 64 + seed % 3 * 200,
		.accept_ns = shape->mutes ? 300 * MS : 0};
	struct sim *s = calloc(1, sizeof(*s));
	uint64_t back_ns = 0;
	unsigned down = NODES_MAX;

	assert_non_null(s);
	print_message("%s, seed %llu\n", shape->name, (unsigned long long)seed);
	s->shape = shape;
	s->stop_node = NODES_MAX;
	s->rand.state = seed;
	s->c = cluster_new(shape->nodes, seed ^ 0x5eed, &config);
	s->c->step_ns = MS / 4;
	s->c->delay_min_ns = MS / 10;
	s->c->delay_max_ns = 3 * MS;
	s->c->registry_ns = MS + below(s, 20) * MS;
	s->c->full_one_in = 15;
	for (unsigned i = 0; i < shape->members; i++) {
		s->members[i].queue = i % shape->queues;
		s->members[i].uuid = 1 + i;
		member_open(s, i, alive(s), 0);
	}
	if (!shape->race)
		cluster_run(s->c, 100 * MS);
	for (unsigned step = 0; step < 400000; step++) {
		puts_step(s, step);
		network_step(s);
		kills_step(s, &back_ns, &down);
		stops_step(s);
		members_step(s);
		cluster_run(s->c, s->c->step_ns);
		events_step(s);
		acks_step(s);
		assert_true(rte_mempool_avail_count(pool_tight) > 0);
		if (step % 1024 == 0)
			cluster_audit(s->c);
		if (s->message_count == shape->messages && step > 40000)
			break;
	}
	finish(s);
	check_end(s);
	for (unsigned i = 0; i < shape->members; i++) {
		if (s->members[i].open)
			member_close(s, i, RP_QUEUE_CLOSE_LEFT);
	}
	cluster_free(s->c);
	free(s->acks);
	free(s);
}

static void runs(const struct shape *shape)
{
	for (uint64_t seed = seed_first; seed < seed_first + seed_count; seed++)
		run(shape, seed);
}

static void test_order(void **state)
{
	runs(&(struct shape){.name = "order",
		.nodes = 3,
		.queues = 3,
		.members = 3,
		.messages = 1500,
		.cuts = true,
		.blocks = true});
}

static void test_two_consumers(void **state)
{
	runs(&(struct shape){.name = "two consumers",
		.nodes = 3,
		.queues = 2,
		.members = 6,
		.messages = 1500,
		.cuts = true,
		.blocks = true,
		.rejects = true});
}

static void test_claims_at_once(void **state)
{
	runs(&(struct shape){.name = "claims at once",
		.nodes = 3,
		.queues = 3,
		.members = 6,
		.messages = 1500,
		.cuts = true,
		.race = true});
}

static void test_consumers_come_and_go(void **state)
{
	runs(&(struct shape){.name = "come and go",
		.nodes = 3,
		.queues = 2,
		.members = 6,
		.messages = 1500,
		.cuts = true,
		.long_cuts = true,
		.blocks = true,
		.ends = true,
		.rejects = true,
		.mutes = true});
}

static void test_long_cuts(void **state)
{
	runs(&(struct shape){.name = "long cuts",
		.nodes = 3,
		.queues = 2,
		.members = 4,
		.messages = 1500,
		.cuts = true,
		.long_cuts = true});
}

static void test_nodes_die(void **state)
{
	runs(&(struct shape){.name = "nodes die",
		.nodes = 3,
		.queues = 3,
		.members = 6,
		.messages = 1500,
		.cuts = true,
		.blocks = true,
		.ends = true,
		.rejects = true,
		.mutes = true,
		.kills = true,
		.race = true});
}

static void test_nodes_stop(void **state)
{
	runs(&(struct shape){.name = "nodes stop",
		.nodes = 3,
		.queues = 3,
		.members = 6,
		.messages = 1500,
		.blocks = true,
		.ends = true,
		.rejects = true,
		.stops = true});
}

static void test_nodes_stop_in_order(void **state)
{
	runs(&(struct shape){.name = "nodes stop, in order",
		.nodes = 3,
		.queues = 3,
		.members = 3,
		.messages = 1500,
		.stops = true});
}

static void test_few_buffers(void **state)
{
	runs(&(struct shape){.name = "few buffers",
		.nodes = 3,
		.queues = 3,
		.members = 3,
		.messages = 1500,
		.cuts = true,
		.blocks = true,
		.tight = true});
}

static void test_few_buffers_and_stops(void **state)
{
	runs(&(struct shape){.name = "few buffers, and nodes stop",
		.nodes = 3,
		.queues = 3,
		.members = 3,
		.messages = 1500,
		.stops = true,
		.tight = true});
}

static void test_everything_happened(void **state)
{
	static const enum rp_queue_counter never[] = {
		/* Limits have tests of their own, and a cut is not told apart from a full ring. */
		RP_QUEUE_COUNTER_refused_too_large, RP_QUEUE_COUNTER_refused_depth,
		RP_QUEUE_COUNTER_refused_bytes, RP_QUEUE_COUNTER_refused_limit,
		RP_QUEUE_COUNTER_refused_stopping, RP_QUEUE_COUNTER_refused_dispatcher,
		/* There are no policies, nor operators. */
		RP_QUEUE_COUNTER_expired, RP_QUEUE_COUNTER_overflowed, RP_QUEUE_COUNTER_exhausted,
		RP_QUEUE_COUNTER_rejected, RP_QUEUE_COUNTER_purged, RP_QUEUE_COUNTER_replayed,
		RP_QUEUE_COUNTER_dead_letters, RP_QUEUE_COUNTER_dead_letter_waits,
		RP_QUEUE_COUNTER_deduplicated, RP_QUEUE_COUNTER_dedup_forgotten,
		RP_QUEUE_COUNTER_refused_no_consumer};

	if (seed_count < 6)
		return;
	for (unsigned i = 0; i < RP_QUEUE_COUNTER_COUNT; i++) {
		bool expected = true;

		for (unsigned k = 0; k < RP_ARRAY_SIZE(never); k++)
			expected &= never[k] != i;
		print_message("%s %llu\n", rp_queue_counter_name(i),
			(unsigned long long)((uint64_t *)&sum)[i]);
		if (expected && !((uint64_t *)&sum)[i])
			fail_msg("%s: never", rp_queue_counter_name(i));
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_order),
		cmocka_unit_test(test_two_consumers),
		cmocka_unit_test(test_claims_at_once),
		cmocka_unit_test(test_consumers_come_and_go),
		cmocka_unit_test(test_long_cuts),
		cmocka_unit_test(test_nodes_die),
		cmocka_unit_test(test_nodes_stop),
		cmocka_unit_test(test_nodes_stop_in_order),
		cmocka_unit_test(test_few_buffers),
		cmocka_unit_test(test_few_buffers_and_stops),
		cmocka_unit_test(test_everything_happened),
	};

	if (argc > 1)
		seed_first = strtoull(argv[1], NULL, 10);
	if (argc > 1)
		seed_count = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
	return cmocka_run_group_tests(tests, cluster_group_setup, NULL);
}
