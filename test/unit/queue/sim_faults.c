/* SPDX-License-Identifier: Apache-2.0 */

/* What befalls the nodes of a random run: cuts, deaths, orderly stops, drains, reloads. */

#include "sim.h"

/* The server ends the watches of the node that stops. */
static void stop_watches(struct sim *s)
{
	for (unsigned i = 0; i < s->shape->members; i++) {
		struct member *m = &s->members[i];
		const struct client *cl = &s->c->clients[m->client];

		if (cl->node != s->stop_node || !m->open)
			continue;
		if (cl->open)
			sim_member_close(s, i, RP_QUEUE_CLOSE_SERVER);
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
			(s->shape->members == s->shape->queues || sim_chance(s, 2)))
			sim_member_open(s, i, sim_alive(s), m->seen_revision + 1);
	}
}

void sim_stops_step(struct sim *s)
{
	struct cluster *c = s->c;

	if (!s->shape->stops || c->now_ns < s->stop_ns)
		return;
	switch (s->stop_stage) {
	case STOP_NONE:
		if (!sim_chance(s, 3000))
			return;
		s->stop_node = sim_alive(s);
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
		s->stop_ns = c->now_ns + sim_below(s, 4 * SEC);
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
				publish_consumer(c, sim_queue_names[m->queue], m->uuid, "");
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
			sim_member_over(s, i);
	}
}

void sim_network_step(struct sim *s)
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
			} else if (c->up[a][b] && s->shape->cuts && sim_chance(s, 4000)) {
				uint64_t most =
					s->shape->long_cuts && sim_chance(s, 3) ? 8 * SEC : SEC;

				cluster_cut(c, a, b);
				s->cut_ns[a][b] = c->now_ns;
				s->cut_until_ns[a][b] = c->now_ns + sim_below(s, most);
			}
		}
	}
}

void sim_kills_step(struct sim *s, uint64_t *back_ns, unsigned *down)
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
	} else if (*down == NODES_MAX && *back_ns <= c->now_ns && sim_chance(s, 20000)) {
		*down = (unsigned)sim_below(s, s->shape->nodes);
		s->kills++;
		cluster_kill(c, *down);
		*back_ns = c->now_ns + 4 * SEC + sim_below(s, 8 * SEC);
		s->killed = *down;
	}
	/* Known as dead for L, its node is not Online any more. */
	if (*down < NODES_MAX && *back_ns < c->now_ns + 2 * SEC)
		cluster_state(c, *down, RP_NODE_SPARE);
}

/* ---- what an operator does ---- */

static uint32_t left_at(struct sim *s, unsigned node)
{
	struct rp_queue_totals t;

	rp_queue_get_totals(s->c->nodes[node].qs, &t);
	return t.dispatched + t.held;
}

void sim_drains_step(struct sim *s)
{
	struct cluster *c = s->c;

	if (!s->shape->drains)
		return;
	if (s->drain_node == NODES_MAX) {
		if (c->now_ns < s->drain_ns || !sim_chance(s, 3000))
			return;
		s->drain_node = sim_alive(s);
		s->drain_ns = c->now_ns;
		s->drained = false;
		s->drains++;
		rp_queue_drain(c->nodes[s->drain_node].qs, true, c->now_ns);
		return;
	}
	if (!s->drained) {
		if (left_at(s, s->drain_node) == 0) {
			s->drained = true;
			s->drain_ns = c->now_ns + sim_below(s, 3 * SEC);
		} else if (!s->shape->cuts && c->now_ns > s->drain_ns + 8 * SEC) {
			fail_msg("node %u is not drained", s->drain_node);
		}
		return;
	}
	/* It stays as it is, but for what comes when all others are away. */
	if (c->now_ns < s->drain_ns)
		return;
	rp_queue_drain(c->nodes[s->drain_node].qs, false, c->now_ns);
	s->drain_node = NODES_MAX;
	s->drain_ns = c->now_ns + 500 * MS;
}

void sim_reloads_step(struct sim *s)
{
	struct rp_queue_limits l = {
		.message_bytes_max = 1 << 20,
		.queue_depth_max = 200 + (uint32_t)sim_below(s, 2000),
		.queue_bytes_max = 1 << 30,
		.resume_ns = SEC,
		.idle_ns = (1 + sim_below(s, 600)) * SEC,
	};

	if (s->shape->reloads && sim_chance(s, 2000))
		rp_queue_set_limits(s->c->nodes[sim_alive(s)].qs, &l);
}
