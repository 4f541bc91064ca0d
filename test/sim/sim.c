/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_cycles.h>
#include <rte_eal.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>

#include <base/assert.h>
#include <base/list.h>
#include <base/mbuf.h>
#include <route/policy.h>

#include "sim_priv.h"

#define BURST 32
#define CYCLES_MAX 100000

uint64_t sim_now(const struct sim *s)
{
	return s->now_ns;
}

struct rp_rand *sim_rand(struct sim *s)
{
	return &s->rand;
}

uint64_t sim_node_id(unsigned node)
{
	return 1000 + node;
}

struct rp_repl_now sim_now_of(const struct sim_node *n)
{
	uint64_t ns = n->sim->now_ns;

	return (struct rp_repl_now){
		.ns = ns, .wall_us = WALL_US + (uint64_t)((int64_t)(ns / 1000) + n->skew_us)};
}

/* ---- the event heap ---- */

static bool earlier(const struct event *a, const struct event *b)
{
	return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->serial < b->serial;
}

static void swap(struct event *a, struct event *b)
{
	struct event t = *a;

	*a = *b;
	*b = t;
}

void sim_schedule(struct sim *s, struct event e)
{
	size_t i = s->count;

	if (s->count == s->size) {
		s->size = s->size ? 2 * s->size : 4096;
		s->heap = realloc(s->heap, s->size * sizeof(*s->heap));
		RP_ASSERT(s->heap != NULL);
	}
	e.serial = ++s->serial;
	e.life = s->nodes[e.node].life;
	s->heap[s->count++] = e;
	for (; i > 0 && earlier(&s->heap[i], &s->heap[(i - 1) / 2]); i = (i - 1) / 2)
		swap(&s->heap[i], &s->heap[(i - 1) / 2]);
}

static struct event pop(struct sim *s)
{
	struct event top = s->heap[0];
	size_t i = 0;

	s->heap[0] = s->heap[--s->count];
	for (;;) {
		size_t least = i, l = 2 * i + 1;

		if (l < s->count && earlier(&s->heap[l], &s->heap[least]))
			least = l;
		if (l + 1 < s->count && earlier(&s->heap[l + 1], &s->heap[least]))
			least = l + 1;
		if (least == i)
			return top;
		swap(&s->heap[i], &s->heap[least]);
		i = least;
	}
}

void sim_wake_shard(struct sim_node *n, unsigned shard, uint64_t at_ns)
{
	struct sim *s = n->sim;

	at_ns = RP_MAX(at_ns, s->now_ns);
	if (at_ns >= n->shards[shard].wake_ns)
		return;
	n->shards[shard].wake_ns = at_ns;
	sim_schedule(s, (struct event){.at_ns = at_ns,
				.type = EVENT_WAKE_SHARD,
				.node = n->index,
				.shard = shard});
}

void sim_wake_control(struct sim_node *n, uint64_t at_ns)
{
	struct sim *s = n->sim;

	at_ns = RP_MAX(at_ns, s->now_ns);
	if (at_ns >= n->control_wake_ns)
		return;
	n->control_wake_ns = at_ns;
	sim_schedule(
		s, (struct event){.at_ns = at_ns, .type = EVENT_WAKE_CONTROL, .node = n->index});
}
void sim_eal_start(void)
{
	static char *argv[] = {"sim", "--no-huge", "-m", "512", "--no-pci", "--no-telemetry",
		"--no-shconf", "-l", "0", "--log-level", "*:error", NULL};

	RP_ASSERT(rte_eal_init(RP_ARRAY_SIZE(argv) - 1, argv) >= 0);
}

struct sim *sim_create(const struct sim_options *options, const struct sim_hooks *hooks)
{
	struct sim *s = calloc(1, sizeof(*s));

	RP_ASSERT(
		s != NULL && options->nodes <= SIM_NODES_MAX && options->shards <= SIM_SHARDS_MAX);
	s->options = *options;
	s->hooks = *hooks;
	s->rand = (struct rp_rand){options->seed};
	s->now_ns = RP_NS_PER_S;
	for (unsigned i = 0; i < options->nodes; i++)
		sim_node_new(s, i);
	for (unsigned i = 0; i < options->nodes; i++)
		sim_node_start(&s->nodes[i]);
	return s;
}

/* ---- stepping ---- */

static void transmit(struct sim_node *n, struct rte_mbuf *frame)
{
	struct sim *s = n->sim;
	static const uint8_t broadcast[6] = {255, 255, 255, 255, 255, 255};
	const uint8_t *dst = rte_pktmbuf_mtod(frame, const uint8_t *);

	for (unsigned i = 0; i < s->options.nodes; i++) {
		struct rp_impair_verdict v;

		if (i == n->index || s->nodes[i].down || s->frames_cut[n->index][i] ||
			(memcmp(dst, broadcast, 6) != 0 && dst[5] != i + 1))
			continue;
		v = rp_impair_decide(&n->impair);
		for (unsigned c = 0; c < v.copies; c++) {
			struct rte_mbuf *copy =
				rte_pktmbuf_copy(frame, s->nodes[i].queue_pool, 0, UINT32_MAX);

			if (!copy)
				continue;
			sim_schedule(s, (struct event){.at_ns = s->now_ns + 1000 + v.delay_ns[c] +
								n->slow_ns + s->nodes[i].slow_ns,
						.type = EVENT_FRAME,
						.node = i,
						.frame = copy});
		}
	}
	rte_pktmbuf_free(frame);
}

/* What is out of all proportion was not spent here: the CPU was another's meanwhile. */
static void spent(uint64_t *cycles, uint64_t begin)
{
	uint64_t took = rte_rdtsc() - begin;

	*cycles += RP_MIN(took, CYCLES_MAX);
}

static void run_shard(struct sim_node *n, unsigned shard)
{
	struct rp_engine *e = n->shards[shard].engine;
	struct rte_mbuf *out[BURST];
	uint64_t begin = rte_rdtsc();
	unsigned got;
	bool busy = rp_engine_poll(e, n->sim->now_ns);

	spent(&n->shards[shard].cycles, begin);

	if (rp_engine_tcp(e, 0) && (n->sim->options.stacks != SIM_STACKS_HAND_OVER ||
					   shard == sim_link_shard(&n->sim->options))) {
		do {
			begin = rte_rdtsc();
			got = rp_engine_tx(e, 0, out, BURST);
			spent(&n->shards[shard].cycles, begin);
			for (unsigned i = 0; i < got; i++)
				transmit(n, out[i]);
		} while (got > 0);
	}
	/* A turn takes time: a busy one comes again a little later. */
	sim_wake_shard(n, shard,
		RP_MAX(busy ? 0 : rp_engine_next_deadline(e), n->sim->now_ns + 1000 + n->slow_ns));
}

static void run_control(struct sim_node *n)
{
	uint64_t begin = rte_rdtsc(), at_ns = rp_control_run(n->control, sim_now_of(n));

	spent(&n->control_cycles, begin);
	sim_wake_control(n, RP_MAX(at_ns, n->sim->now_ns + 1000 + n->slow_ns));
}

static void on_ring(struct sim_node *n, const struct event *e)
{
	uint64_t begin = rte_rdtsc();

	if (e->shard == RP_ENGINE_CONTROL) {
		n->to_control[e->from]--;
		rp_control_on_xmsg(n->control, e->from, &e->m, sim_now_of(n));
		spent(&n->control_cycles, begin);
		sim_wake_control(n, n->sim->now_ns);
		return;
	}
	if (e->from == RP_ENGINE_CONTROL)
		n->to_shard[e->shard]--;
	rp_engine_on_xmsg(n->shards[e->shard].engine, e->from, &e->m, n->sim->now_ns);
	spent(&n->shards[e->shard].cycles, begin);
	sim_wake_shard(n, e->shard, n->sim->now_ns);
}

static void on_request(struct sim_node *n, const struct event *e)
{
	struct rp_span bytes = {e->bytes, e->length}, answer = {0};
	uint64_t from = sim_node_id(e->peer);
	int rc;

	if (n->sim->calls_cut) {
		sim_response(n, e->peer, e->kind, answer, e->token, true);
		return;
	}
	if (e->kind >= 0) {
		rc = rp_control_on_request(n->control, from, (enum rp_repl_kind)e->kind, bytes,
			&answer, sim_now_of(n));
		sim_response(n, e->peer, e->kind, answer, e->token, rc != 0);
	} else {
		struct unary_wait *w = calloc(1, sizeof(*w));

		RP_ASSERT(w != NULL);
		*w = (struct unary_wait){
			.id = ++n->unary_ids, .token = e->token, .caller = e->peer};
		rp_list_push_back(&n->unary_waits, &w->node);
		if (rp_control_unary_in(n->control, from, bytes, w->id) != 0) {
			rp_list_unlink(&w->node);
			free(w);
			sim_response(n, e->peer, -1, answer, e->token, true);
		}
	}
	sim_wake_control(n, n->sim->now_ns);
}

static void on_response(struct sim_node *n, const struct event *e)
{
	struct rp_span answer = {e->bytes, e->length};

	if (e->kind >= 0)
		rp_control_peer_result(n->control, e->token, e->failed, answer, sim_now_of(n));
	else
		rp_control_unary_result(n->control, e->token, e->failed, answer);
	sim_wake_control(n, n->sim->now_ns);
}

/* A connection needs both ways. */
static bool is_apart(const struct sim *s, unsigned a, unsigned b)
{
	return s->nodes[a].down || s->nodes[b].down || s->way_cut[a][b] || s->way_cut[b][a];
}

static void on_dialled(struct sim_node *n, const struct event *e)
{
	static const uint8_t uuid[RP_UUID_BYTES] = "a cluster's uuid";

	if (n->peers[e->peer] == RP_REPL_NO_PEER)
		return; /* it is none any more */
	if (n->sim->calls_cut || is_apart(n->sim, n->index, e->peer)) {
		/* Nobody answers there at all; behind a cut somebody may be. */
		rp_control_peer_failed(n->control, n->peers[e->peer],
			n->sim->calls_cut || n->sim->nodes[e->peer].down, sim_now_of(n));
	} else {
		n->peer_open[e->peer] = true;
		if (rp_control_peer_connected(n->control, n->peers[e->peer], sim_node_id(e->peer),
			    uuid, sim_now_of(n)) != 0)
			n->peer_open[e->peer] = false;
	}
	sim_wake_control(n, n->sim->now_ns);
}

/* The device's queue, which is a shard's: by the hash of the flow where it spreads flows. */
static unsigned queue_of(const struct sim_node *n, const struct rte_mbuf *frame)
{
	const uint8_t *p = rte_pktmbuf_mtod(frame, const uint8_t *), *ip = p + 14;
	const uint8_t *ports = ip + (ip[0] & 15) * 4;
	union rp_ip src, dst;
	struct rp_place_flow flow = {.src = &src, .dst = &dst};

	if (n->sim->options.stacks != SIM_STACKS_RSS || p[12] != 8 || p[13] != 0 || ip[9] != 6)
		return sim_link_shard(&n->sim->options);
	src = rp_ip_from4(ip + 12);
	dst = rp_ip_from4(ip + 16);
	flow.src_port = (uint16_t)(ports[0] << 8 | ports[1]);
	flow.dst_port = (uint16_t)(ports[2] << 8 | ports[3]);
	return rp_place_shard_of(&n->place, &flow);
}

/* The node died on the way: what was for it is gone, and who called hears so. */
static bool is_for_nobody(struct sim *s, struct event *e)
{
	struct sim_node *n = &s->nodes[e->node];

	if (e->type == EVENT_TIMER || (!n->down && e->life == n->life))
		return false;
	if (e->type == EVENT_REQUEST)
		sim_response(n, e->peer, e->kind, (struct rp_span){0}, e->token, true);
	rte_pktmbuf_free(e->frame);
	rp_xmsg_free(&e->m);
	free(e->bytes);
	return true;
}

static void dispatch(struct sim *s, struct event *e)
{
	struct sim_node *n = &s->nodes[e->node];

	if (is_for_nobody(s, e))
		return;

	switch (e->type) {
	case EVENT_WAKE_SHARD:
		if (n->shards[e->shard].wake_ns == e->at_ns) {
			n->shards[e->shard].wake_ns = RP_NEVER;
			run_shard(n, e->shard);
		}
		break;
	case EVENT_WAKE_CONTROL:
		if (n->control_wake_ns == e->at_ns) {
			n->control_wake_ns = RP_NEVER;
			run_control(n);
		}
		break;
	case EVENT_FRAME: {
		unsigned shard = queue_of(n, e->frame);

		uint64_t begin = rte_rdtsc();

		rp_engine_rx(n->shards[shard].engine, 0, &e->frame, 1, s->now_ns);
		spent(&n->shards[shard].cycles, begin);
		sim_wake_shard(n, shard, s->now_ns);
		break;
	}
	case EVENT_RING:
		on_ring(n, e);
		break;
	case EVENT_DIALLED:
		on_dialled(n, e);
		break;
	case EVENT_REQUEST:
		on_request(n, e);
		break;
	case EVENT_RESPONSE:
		on_response(n, e);
		break;
	case EVENT_TIMER:
		s->hooks.timer(s->hooks.ctx, e->token);
		break;
	}
	free(e->bytes);
}

bool sim_run_until(struct sim *s, uint64_t until_ns, bool (*done)(void *ctx), void *ctx)
{
	while (s->count > 0 && s->heap[0].at_ns <= until_ns) {
		struct event e = pop(s);

		s->now_ns = e.at_ns;
		dispatch(s, &e);
		if (done && done(ctx))
			return true;
	}
	s->now_ns = until_ns;
	return done ? done(ctx) : true;
}

uint64_t sim_cycles(const struct sim *s, unsigned node, unsigned shard)
{
	const struct sim_node *n = &s->nodes[node];

	return shard == RP_ENGINE_CONTROL ? n->control_cycles : n->shards[shard].cycles;
}

void sim_at(struct sim *s, uint64_t at_ns, uint64_t id)
{
	sim_schedule(
		s, (struct event){
			   .at_ns = RP_MAX(at_ns, s->now_ns), .type = EVENT_TIMER, .token = id});
}

/* ---- faults ---- */

void sim_crash(struct sim *s, unsigned node)
{
	struct sim_node *n = &s->nodes[node];

	RP_ASSERT(!n->down);
	sim_node_free(n);
	n->down = true;
	n->life++;
	for (unsigned i = 0; i < s->options.nodes; i++) {
		struct sim_node *o = &s->nodes[i];

		if (i == node || o->down || !o->peer_open[node])
			continue;
		o->peer_open[node] = false;
		/* Its host resets the connections, where it can. */
		rp_control_peer_failed(o->control, o->peers[node], true, sim_now_of(o));
		sim_wake_control(o, s->now_ns);
	}
}

void sim_restart(struct sim *s, unsigned node)
{
	struct sim_node *n = &s->nodes[node];

	RP_ASSERT(n->down);
	n->down = false;
	sim_node_new(s, node);
	sim_node_start(n);
}

bool sim_is_down(const struct sim *s, unsigned node)
{
	return s->nodes[node].down;
}

void sim_cut(struct sim *s, unsigned from, unsigned to, bool frames, bool calls)
{
	s->frames_cut[from][to] = frames;
	s->way_cut[from][to] = calls;
}

void sim_set_skew(struct sim *s, unsigned node, int64_t skew_us)
{
	struct sim_node *n = &s->nodes[node];

	n->skew_us = skew_us;
	for (unsigned k = 0; !n->down && k < s->options.shards; k++)
		rp_engine_set_wall_offset(n->shards[k].engine, ((int64_t)WALL_US + skew_us) * 1000);
}

void sim_set_slow(struct sim *s, unsigned node, uint64_t slow_ns)
{
	s->nodes[node].slow_ns = slow_ns;
}

/* ---- an operator ---- */

struct rp_control_limits sim_limits(const struct sim *s)
{
	return (struct rp_control_limits){
		.message_bytes = s->options.message_bytes_max,
		.queue_depth = 65536,
		.queue_bytes = 256 << 20,
		.resume_ns = RP_NS_PER_S,
		.idle_ns = 600 * RP_NS_PER_S,
		.unary_fallback = s->options.unary_fallback,
	};
}

static void limits_use(struct sim_node *n)
{
	if (n->down)
		return;
	rp_control_set_limits(n->control, &n->limits);
	sim_wake_control(n, n->sim->now_ns);
}

void sim_set_limits(struct sim *s, unsigned node, const struct rp_control_limits *limits)
{
	struct sim_node *n = &s->nodes[node];
	bool draining = n->limits.draining;

	n->limits = *limits;
	n->limits.draining = draining;
	limits_use(n);
}

void sim_drain(struct sim *s, unsigned node, bool on)
{
	struct sim_node *n = &s->nodes[node];

	n->limits.draining = on;
	limits_use(n);
	if (!n->down)
		rp_control_set_draining(n->control, on, sim_now_of(n));
}

void sim_policy_use(struct sim_node *n)
{
	static const char *const queues[] = {"/q/"};
	const struct rp_policy_config config = {.zone = {queues, 1}};
	bool any = false;

	for (unsigned i = 0; i < n->sim->options.nodes; i++)
		any |= n->apart[i];
	rp_control_policy_changed(n->control, any ? rp_policy_create(&config) : NULL);
	sim_wake_control(n, n->sim->now_ns);
}

void sim_set_apart(struct sim *s, unsigned node, unsigned other, bool apart)
{
	struct sim_node *n = &s->nodes[node];

	n->apart[other] = apart;
	if (!n->down)
		sim_policy_use(n);
}

void sim_set_peer(struct sim *s, unsigned node, unsigned other, bool is_peer)
{
	struct sim_node *n = &s->nodes[node];

	if (n->down || is_peer == (n->peers[other] != RP_REPL_NO_PEER))
		return;
	if (is_peer) {
		sim_peer_add(n, other);
	} else {
		rp_control_peer_remove(n->control, n->peers[other], sim_now_of(n));
		n->peers[other] = RP_REPL_NO_PEER;
		n->peer_open[other] = false;
	}
	sim_wake_control(n, s->now_ns);
}

static bool next_live(struct rp_kv *kv, struct rp_kv_record *r, uint8_t *at, size_t *length)
{
	struct rp_span from = {at, *length}, end = {(const uint8_t *)"\xff", 1};

	do {
		if (rp_kv_record_page(kv, from, *length > 0, end, r, 1) == 0)
			return false;
		RP_ASSERT(r->key.length <= 1024);
		memcpy(at, r->key.data, r->key.length);
		*length = r->key.length;
	} while (r->deleted);
	return true;
}

bool sim_stores_equal(struct sim *s, unsigned a, unsigned b, char *why, size_t size)
{
	uint8_t at[2][1024];
	size_t length[2] = {0, 0};
	struct rp_kv_record r[2];

	for (;;) {
		bool more[2];

		more[0] = next_live(rp_control_kv(s->nodes[a].control), &r[0], at[0], &length[0]);
		more[1] = next_live(rp_control_kv(s->nodes[b].control), &r[1], at[1], &length[1]);
		if (!more[0] && !more[1])
			return true;
		if (more[0] && more[1] && r[0].key.length == r[1].key.length &&
			r[0].value.length == r[1].value.length &&
			memcmp(r[0].key.data, r[1].key.data, r[0].key.length) == 0 &&
			memcmp(r[0].value.data, r[1].value.data, r[0].value.length) == 0)
			continue;
		snprintf(why, size, "node %u has \"%.*s\" = \"%.*s\", node %u \"%.*s\" = \"%.*s\"",
			a, more[0] ? (int)r[0].key.length : 0, (const char *)at[0],
			more[0] ? (int)r[0].value.length : 0, (const char *)r[0].value.data, b,
			more[1] ? (int)r[1].key.length : 0, (const char *)at[1],
			more[1] ? (int)r[1].value.length : 0, (const char *)r[1].value.data);
		return false;
	}
}

/* ---- operations ---- */

static struct rp_span text(const char *t)
{
	return (struct rp_span){(const uint8_t *)t, strlen(t)};
}

static int queue_op(
	struct sim *s, unsigned node, const struct rp_control_queue_op *op, uint64_t token)
{
	int rc = s->nodes[node].down ? -ENOTCONN
				     : rp_control_queue_op(s->nodes[node].control, op, token,
					       sim_now_of(&s->nodes[node]));

	sim_wake_control(&s->nodes[node], s->now_ns);
	return rc;
}

int sim_put(struct sim *s, unsigned node, const char *queue, const char *tail, const void *value,
	size_t length, uint64_t token)
{
	struct rp_control_queue_op op = {
		.type = RP_XMSG_PUT,
		.hash = rp_queue_hash(queue, strlen(queue)),
		.name = text(queue),
		.tail = text(tail),
		.value = {value, length},
	};

	return queue_op(s, node, &op, token);
}

int sim_ack(struct sim *s, unsigned node, const char *queue, uint64_t idx,
	const uint8_t uuid[RP_UUID_BYTES], uint64_t token)
{
	struct rp_control_queue_op op = {
		.type = RP_XMSG_ACK,
		.hash = rp_queue_hash(queue, strlen(queue)),
		.name = text(queue),
		.idx = idx,
	};

	memcpy(op.uuid, uuid, sizeof(op.uuid));
	return queue_op(s, node, &op, token);
}

int sim_consumer_open(struct sim *s, unsigned node, const char *queue,
	const uint8_t uuid[RP_UUID_BYTES], uint64_t consumer)
{
	return sim_consumer_resume(s, node, queue, uuid, consumer, 0);
}

int sim_consumer_resume(struct sim *s, unsigned node, const char *queue,
	const uint8_t uuid[RP_UUID_BYTES], uint64_t consumer, int64_t start_revision)
{
	struct sim_node *n = &s->nodes[node];
	int64_t revision;
	int rc;

	if (n->down || n->limits.draining)
		return n->down ? -ENOTCONN : -EBUSY;
	rc = rp_control_consumer_open(n->control, consumer, text(queue),
		rp_queue_hash(queue, strlen(queue)), uuid, start_revision, &revision,
		sim_now_of(n));

	sim_wake_control(n, s->now_ns);
	return rc;
}

void sim_consumer_close(struct sim *s, unsigned node, uint64_t consumer)
{
	if (s->nodes[node].down)
		return;
	rp_control_consumer_close(s->nodes[node].control, consumer, RP_QUEUE_CLOSE_ENDED);
	sim_wake_control(&s->nodes[node], s->now_ns);
}

void sim_consumer_accepted(struct sim *s, unsigned node, uint64_t consumer, uint64_t idx)
{
	if (s->nodes[node].down)
		return;
	rp_control_consumer_accepted(s->nodes[node].control, consumer, idx);
	sim_wake_control(&s->nodes[node], s->now_ns);
}

void sim_network(struct sim *s, const struct rp_impair_spec *spec)
{
	for (unsigned i = 0; i < s->options.nodes; i++)
		rp_impair_set(&s->nodes[i].impair, spec);
}

void sim_calls_cut(struct sim *s, bool cut)
{
	s->calls_cut = cut;
}

struct rp_control *sim_control(struct sim *s, unsigned node)
{
	return s->nodes[node].control;
}

struct rp_engine *sim_engine(struct sim *s, unsigned node, unsigned shard)
{
	return s->nodes[node].shards[shard].engine;
}

bool sim_joined(struct sim *s)
{
	unsigned link_shard = s->options.shards > 1 ? 1 : 0;

	for (unsigned i = 0; i < s->options.nodes; i++) {
		struct sim_node *n = &s->nodes[i];

		if (rp_links_up_count(rp_engine_links(n->shards[link_shard].engine)) !=
			s->options.nodes - 1)
			return false;
		for (unsigned p = 0; p < s->options.nodes; p++)
			if (rp_repl_state_of(rp_control_repl(n->control), sim_node_id(p)) !=
				RP_REPL_ONLINE)
				return false;
	}
	return true;
}

/* ---- the end ---- */

static void check_pool(struct sim *s, struct rte_mempool *pool)
{
	unsigned in_use = rte_mempool_in_use_count(pool);

	if (in_use > 0 && s->fault[0] == '\0')
		snprintf(s->fault, sizeof(s->fault), "%u buffers of %s did not come back", in_use,
			pool->name);
}

const char *sim_destroy(struct sim *s)
{
	static char fault[sizeof(s->fault)];

	for (size_t i = 0; i < s->count; i++) {
		rte_pktmbuf_free(s->heap[i].frame);
		rp_xmsg_free(&s->heap[i].m);
		free(s->heap[i].bytes);
	}
	for (unsigned i = 0; i < s->options.nodes; i++) {
		if (!s->nodes[i].down)
			sim_node_free(&s->nodes[i]);
	}
	/* A frame may hold references to another pool's buffers: all must be gone first. */
	for (unsigned i = 0; i < s->options.nodes; i++) {
		check_pool(s, s->nodes[i].queue_pool);
		check_pool(s, s->nodes[i].frame_pool);
		rte_mempool_free(s->nodes[i].queue_pool);
		rte_mempool_free(s->nodes[i].frame_pool);
	}
	memcpy(fault, s->fault, sizeof(fault));
	free(s->heap);
	free(s);
	return fault[0] ? fault : NULL;
}
