/* SPDX-License-Identifier: Apache-2.0 */

/* Clients of a random run: what they put, see, acknowledge and reject, and what they may see. */

#include <stdio.h>
#include <stdlib.h>

#include "sim.h"

const char *const sim_queue_names[] = {"q0", "q1", "q2", "q3"};

uint64_t sim_below(struct sim *s, uint64_t n)
{
	return rp_rand_below(&s->rand, n);
}

bool sim_chance(struct sim *s, unsigned one_in)
{
	return sim_below(s, one_in) == 0;
}

unsigned sim_alive(struct sim *s)
{
	unsigned node;

	do
		node = (unsigned)sim_below(s, s->shape->nodes);
	while (s->c->nodes[node].dead || node == s->stop_node);
	return node;
}

bool sim_is_down(const struct sim *s, unsigned node)
{
	return s->c->nodes[node].dead || node == s->stop_node;
}

/* ---- consumers ---- */

void sim_member_over(struct sim *s, unsigned member)
{
	for (unsigned i = 0; i < s->message_count; i++) {
		struct message *m = &s->messages[i];

		for (unsigned d = 0; d < m->delivery_count; d++) {
			if (s->owner[m->deliveries[d].client] == member)
				m->deliveries[d].over = true;
		}
	}
}

void sim_member_open(struct sim *s, unsigned member, unsigned node, uint64_t revision)
{
	static const char *const fields[] = {"", ";prefetch=3", ";prefetch=40", ";prefetch=400"};
	struct member *m = &s->members[member];
	struct client *cl;

	/* A new life lets go of what the old one held. */
	if (!revision)
		sim_member_over(s, member);
	s->floor[s->c->client_count] = revision;
	s->owner[s->c->client_count] = member;
	cl = open_consumer(s->c, node, sim_queue_names[m->queue], m->uuid, revision,
		fields[sim_below(s, RP_ARRAY_SIZE(fields))]);
	m->client = (unsigned)(cl->handle - 1);
	m->open = true;
	m->dead = false;
}

void sim_member_close(struct sim *s, unsigned member, enum rp_queue_close how)
{
	struct member *m = &s->members[member];

	close_consumer(s->c, &s->c->clients[m->client], how);
	m->open = false;
	m->closed_ns = s->c->now_ns;
	if (how == RP_QUEUE_CLOSE_LEFT) {
		m->dead = true;
		sim_member_over(s, member);
		publish_consumer(s->c, sim_queue_names[m->queue], m->uuid, "");
	}
}

/* A node that takes consumers. */
static unsigned host(struct sim *s)
{
	unsigned node;

	do
		node = sim_alive(s);
	while (node == s->drain_node);
	return node;
}

/* Its node drains: it goes on at another one at once, behind what it has seen. */
static bool goes_on(struct sim *s, unsigned member)
{
	struct member *m = &s->members[member];
	const struct client *cl = &s->c->clients[m->client];

	if (m->open || !cl->ended || cl->end != RP_QUEUE_END_DRAINING)
		return false;
	sim_member_open(s, member, host(s), m->seen_revision + 1);
	return true;
}

void sim_members_step(struct sim *s)
{
	for (unsigned i = 0; i < s->shape->members; i++) {
		struct member *m = &s->members[i];
		struct client *cl = &s->c->clients[m->client];

		if (m->open && !cl->open) { /* its node died, or the engine ended it */
			m->open = false;
			m->closed_ns = s->c->now_ns;
		}
		if (goes_on(s, i))
			continue;
		if (!m->open && !m->dead && s->c->now_ns >= m->closed_ns + 990 * MS) {
			m->dead = true;
			sim_member_over(s, i);
		}
		if (m->open && s->shape->ends && sim_chance(s, 2000))
			sim_member_close(s, i,
				sim_chance(s, 4) ? RP_QUEUE_CLOSE_LEFT : RP_QUEUE_CLOSE_ENDED);
		else if (!m->open && (s->shape->ends || !s->shape->stops) && sim_chance(s, 3000))
			sim_member_open(s, i,
				sim_chance(s, 3) || sim_is_down(s, cl->node) ||
						cl->node == s->drain_node
					? host(s)
					: cl->node,
				sim_chance(s, 3) || s->c->nodes[cl->node].dead
					? 0
					: m->seen_revision + 1);
		if (!m->open && s->c->nodes[cl->node].dead)
			continue;
		cl = &s->c->clients[m->client];
		if (s->shape->mutes && m->open && sim_chance(s, cl->mute ? 30000 : 8000))
			cl->mute = !cl->mute;
		if (s->shape->blocks && m->open && sim_chance(s, cl->blocked ? 50 : 500)) {
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
		.due_ns = s->c->now_ns + sim_below(s, sim_chance(s, 20) ? 6 * SEC : 30 * MS)};
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
	/* What is shown once more, elsewhere, since no word of it had come, was in its place
	 * before. */
	if (!again && s->shape->members == s->shape->queues && !s->shape->ends &&
		!s->shape->kills && !s->shape->mutes && !s->shape->race && !s->shape->long_cuts) {
		unsigned *last = &s->last_serial[m->queue][m->node];

		if (m->serial <= *last)
			fail_msg("message %u: number %u of node %u came after %u",
				(unsigned)e->value, m->serial, m->node, *last);
		*last = m->serial;
	}
	if (s->shape->rejects && sim_chance(s, 30)) {
		const struct client *cl = &s->c->clients[client];

		if (cl->open) {
			reject(s->c, cl->node, sim_queue_names[m->queue], s->members[member].uuid,
				e->idx);
			withdrawn(s, member, e->idx);
			return;
		}
	}
	ack_later(s, (unsigned)e->value - 1, member, e->idx);
}

void sim_events_step(struct sim *s)
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

void sim_acks_step(struct sim *s)
{
	for (unsigned i = 0; i < s->ack_count;) {
		struct pending_ack *a = &s->acks[i];
		struct message *m = &s->messages[a->message];
		const struct member *member = &s->members[a->member];
		const struct answer *answer = a->sent ? answer_of(s->c, a->token) : NULL;
		unsigned node = s->c->clients[member->client].node;

		if (!a->sent && a->due_ns <= s->c->now_ns && s->c->token_count < TOKENS_MAX - 100) {
			if (sim_is_down(s, node) || (!a->home && sim_chance(s, 5)))
				node = sim_alive(s);
			a->home = node == s->c->clients[member->client].node;
			if (a->home && s->c->clients[member->client].open && (a->idx & 1))
				a->token = ack_by(s->c, &s->c->clients[member->client], a->idx);
			else
				a->token = ack(s->c, node, sim_queue_names[m->queue], member->uuid,
					a->idx, 0);
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

/* ---- puts ---- */

void sim_puts_step(struct sim *s, unsigned step)
{
	unsigned burst = sim_chance(s, s->shape->race && step < 200 ? 10 : 400)
				 ? (unsigned)sim_below(s, 60)
				 : 0;

	while (burst-- > 0 && s->message_count < s->shape->messages) {
		struct message *m = &s->messages[s->message_count];
		char tail[32];

		m->node = sim_alive(s);
		m->queue = (unsigned)sim_below(s, s->shape->queues);
		m->serial = ++s->serials[m->node];
		snprintf(tail, sizeof(tail), "n%u-%u", m->node, m->serial);
		s->message_count++;
		m->token = put(s->c, m->node, sim_queue_names[m->queue], tail, s->message_count);
	}
}
