/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Two nodes of some shards each, joined by a wire of frames that has a capacity and can be down or
 * stuck, and by an RPC path. Each queue has a sender that numbers its messages and a receiver that
 * checks them: in order, exactly once but for marked repeats, byte for byte.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include <rte_eal.h>

#include <base/mbuf.h>
#include <base/rand.h>
#include <deliver/deliver.h>

#define QUEUES 24
#define WIRE_MAX 8192
#define CALLS_MAX 512
#define SHARDS 2
#define MS RP_NS_PER_MS

struct frame_fifo {
	struct rte_mbuf *frames[WIRE_MAX];
	uint32_t head, tail, cap;
	bool refused;
};

struct call {
	bool used;
	uint64_t token, due_ns;
	struct rte_mbuf *frame;
};

/* One queue as its sender and its receiver see it; type FORWARD or DELIVER. */
struct flow_model {
	char name[32];
	uint32_t hash;
	enum rp_qmsg_type type;
	uint32_t size_max;
	uint64_t next_seq;    /* to be made */
	uint64_t again[4096]; /* came back: to be sent before anything newer */
	bool again_repeat[4096];
	uint32_t again_head, again_tail;
	uint64_t answered; /* took or refused */
	uint64_t expected; /* at the receiver */
	uint64_t received;
};

struct tnode {
	uint64_t id;
	uint32_t shards;
	struct rp_deliver *d[SHARDS];
	struct tnode *other;
	struct frame_fifo out; /* towards the other */
	struct call calls[CALLS_MAX];
	struct flow_model flows[QUEUES];
	bool room;
	uint32_t rooms, violations;
	uint32_t notes[4], fallbacks; /**< the latter: of a stall */
	enum rp_deliver_violation why;
	uint32_t lost, refused, took, control_received, control_lost, control_repeats;
	uint64_t control_last;
	enum rp_qstatus refused_status;
	uint32_t refused_epoch;
	uint64_t refused_dispatcher;
	uint64_t refused_bytes;
	/* What the receiver says; hold_queue holds messages of that queue. */
	int answer;
	int hold_queue;
	uint32_t hold_random; /* one of so many is held once */
	uint64_t last_reply_bytes, last_reply_token;
};

static struct rte_mempool *pool;
static unsigned pool_start;
static struct tnode tnodes[2];
static struct rp_rand rnd;
static uint64_t now, seed = 1;
static bool wire_up, wire_stuck, rpc_up, rpc_fails;
static uint32_t bundle;
static uint64_t failures; /* what an upcall found wrong: asserted by the test */

static inline int test_eal_init(void)
{
	char *args[] = {"test", "--no-huge", "-m", "256", "--no-pci", "--no-telemetry",
		"--no-shconf", "-l", "0", "--log-level", "error"};

	return rte_eal_init((int)RP_ARRAY_SIZE(args), args);
}

static uint32_t size_of(const struct flow_model *f, uint64_t seq)
{
	struct rp_rand r = {f->hash * 31 + seq * 7 + (uint64_t)f->type};
	uint64_t x = rp_rand_u64(&r);

	if (x % 16 == 0)
		return (uint32_t)(rp_rand_u64(&r) % (f->size_max + 1));
	return (uint32_t)(rp_rand_u64(&r) % (RP_MIN(f->size_max, 600u) + 1));
}

static uint8_t byte_of(const struct flow_model *f, uint64_t seq, uint32_t i)
{
	return (uint8_t)(f->hash + seq * 13 + i + (i >> 8) * 5);
}

/* Tail "t<seq>", then the value, in segments of odd sizes. */
static struct rte_mbuf *payload_make(
	const struct flow_model *f, uint64_t seq, uint16_t *tail_length)
{
	static uint8_t bytes[4 << 20];
	int tail = snprintf((char *)bytes, 32, "t%llu", (unsigned long long)seq);
	uint32_t size = size_of(f, seq);
	struct rte_mbuf *m = NULL;
	uint32_t at = 0;

	for (uint32_t i = 0; i < size; i++)
		bytes[(uint32_t)tail + i] = byte_of(f, seq, i);
	size += (uint32_t)tail;
	*tail_length = (uint16_t)tail;
	while (at < size) {
		uint32_t n = RP_MIN(size - at, 1 + (uint32_t)((seq * 700 + at + 40) % 1900));
		struct rte_mbuf *part;

		n = RP_MIN(RP_MAX(n, (uint32_t)tail), size - at);
		part = rp_mbuf_from(pool, bytes + at, n);
		if (!part) {
			rte_pktmbuf_free(m);
			return NULL;
		}
		rp_mbuf_append(&m, part);
		at += n;
	}
	return m;
}

static bool payload_good(const struct flow_model *f, uint64_t seq, const struct rp_qmsg *m)
{
	static uint8_t bytes[4 << 20];
	char tail[32];
	int n = snprintf(tail, sizeof(tail), "t%llu", (unsigned long long)seq);
	uint32_t size = size_of(f, seq);

	if (!m->payload || m->payload->pkt_len != size + (uint32_t)n || m->tail_length != n ||
		m->payload->data_len < n)
		return false;
	rp_mbuf_copy_out(m->payload, 0, bytes, sizeof(bytes));
	if (memcmp(bytes, tail, (size_t)n) != 0)
		return false;
	for (uint32_t i = 0; i < size; i++) {
		if (bytes[(uint32_t)n + i] != byte_of(f, seq, i))
			return false;
	}
	return true;
}

static int frame_out(void *ctx, uint64_t node, uint32_t b, uint32_t hash, struct rte_mbuf *frame)
{
	struct tnode *t = ctx;
	struct frame_fifo *w = &t->out;

	if (!wire_up || b != bundle)
		return -ENOTCONN;
	if (w->tail - w->head >= w->cap) {
		w->refused = true;
		return -EAGAIN;
	}
	w->frames[w->tail++ % WIRE_MAX] = frame;
	return 0;
}

static int unary_send(
	void *ctx, uint64_t node, uint32_t hash, struct rte_mbuf *frame, uint64_t token)
{
	struct tnode *t = ctx;

	if (!rpc_up)
		return -ENOTCONN;
	for (int i = 0; i < CALLS_MAX; i++) {
		if (!t->calls[i].used) {
			t->calls[i] = (struct call){true, token, now + 3 * MS, frame};
			return 0;
		}
	}
	return -ENOBUFS;
}

static void violation(void *ctx, uint64_t node, enum rp_deliver_violation why)
{
	struct tnode *t = ctx;

	t->violations++;
	t->why = why;
}

static struct flow_model *model_of(struct tnode *sender, const struct rp_qmsg *m)
{
	for (int i = 0; i < QUEUES; i++) {
		struct flow_model *f = &sender->flows[i];

		if (f->type == m->type && strlen(f->name) == m->name_length &&
			memcmp(f->name, m->name, m->name_length) == 0)
			return f;
	}
	return NULL;
}

static int on_msg(void *ctx, uint64_t node, const struct rp_qmsg *m, uint32_t *epoch,
	uint64_t *dispatcher, uint64_t t_ns)
{
	struct tnode *t = ctx;
	struct flow_model *f;

	failures += node != t->other->id || t_ns != now;
	failures += m->hash != rp_queue_hash(m->name, m->name_length);
	if (m->type != RP_QMSG_FORWARD && m->type != RP_QMSG_DELIVER) {
		t->control_received++;
		if (m->flags & RP_QMSG_REPEAT)
			t->control_repeats++;
		if (m->type == RP_QMSG_ACCEPTED) {
			failures += m->idx > t->control_last + 1 && t->control_last != 0;
			failures += m->idx <= t->control_last && !(m->flags & RP_QMSG_REPEAT);
			t->control_last = RP_MAX(t->control_last, m->idx);
		}
		t->last_reply_bytes = m->payload ? m->payload->pkt_len : 0;
		t->last_reply_token = m->token;
		rte_pktmbuf_free(m->payload);
		return RP_Q_OK;
	}
	f = model_of(t->other, m);
	if (!f) {
		failures++;
		return RP_Q_INVALID;
	}
	if (t->hold_queue >= 0 && f == &t->other->flows[t->hold_queue])
		return RP_DELIVER_HOLD;
	if (t->hold_random && rp_rand_below(&rnd, t->hold_random) == 0)
		return RP_DELIVER_HOLD;
	if (t->answer != RP_Q_OK) {
		*epoch = 77;
		*dispatcher = 7777;
		return t->answer;
	}
	if (m->producer_seq < f->expected) {
		/* Sent again: it must say so. */
		failures += !(m->flags & RP_QMSG_REPEAT);
		rte_pktmbuf_free(m->payload);
		return RP_Q_OK;
	}
	failures += m->producer_seq != f->expected;
	failures += !payload_good(f, m->producer_seq, m);
	failures += m->epoch != 3 || m->dispatcher != 33 || m->producer_node != t->other->id;
	f->expected = m->producer_seq + 1;
	f->received++;
	rte_pktmbuf_free(m->payload);
	return RP_Q_OK;
}

static void on_took(void *ctx, uint64_t node, const struct rp_qmsg *m, uint64_t t_ns)
{
	struct tnode *t = ctx;
	struct flow_model *f = model_of(t, m);

	t->took++;
	failures += !f || m->cookie != m->producer_seq + 1000;
	if (f)
		f->answered++;
}

static void on_refused(void *ctx, uint64_t node, const struct rp_qmsg *m, enum rp_qstatus status,
	uint32_t epoch, uint64_t dispatcher, uint64_t t_ns)
{
	struct tnode *t = ctx;
	struct flow_model *f = model_of(t, m);

	t->refused++;
	t->refused_status = status;
	t->refused_epoch = epoch;
	t->refused_dispatcher = dispatcher;
	t->refused_bytes = m->payload ? m->payload->pkt_len : 0;
	rte_pktmbuf_free(m->payload);
	if (f)
		f->answered++;
}

static void on_lost(void *ctx, uint64_t node, const struct rp_qmsg *m, uint64_t t_ns)
{
	struct tnode *t = ctx;
	struct flow_model *f = model_of(t, m);
	uint32_t at;

	rte_pktmbuf_free(m->payload);
	if (!f) {
		t->control_lost++;
		return;
	}
	t->lost++;
	/* Before those that are still waiting to be sent again, which are newer. */
	for (at = f->again_tail++;
		at != f->again_head && f->again[(at - 1) % 4096] > m->producer_seq; at--) {
		f->again[at % 4096] = f->again[(at - 1) % 4096];
		f->again_repeat[at % 4096] = f->again_repeat[(at - 1) % 4096];
	}
	f->again[at % 4096] = m->producer_seq;
	f->again_repeat[at % 4096] = m->flags & RP_QMSG_REPEAT;
}

static void on_room(void *ctx, uint64_t node, uint64_t t_ns)
{
	struct tnode *t = ctx;

	t->room = true;
	t->rooms++;
}

static void on_note(void *ctx, const uint8_t *name, size_t length, enum rp_deliver_note what,
	enum rp_deliver_fallback why)
{
	struct tnode *t = ctx;

	assert_true(length > 0);
	t->notes[what]++;
	t->fallbacks += what == RP_DELIVER_NOTE_FALL_BACK && why == RP_DELIVER_FALLBACK_STALL;
}

static const struct rp_deliver_ops world_ops = {
	.frame_out = frame_out,
	.unary_send = unary_send,
	.violation = violation,
	.on_msg = on_msg,
	.on_took = on_took,
	.on_refused = on_refused,
	.on_lost = on_lost,
	.on_room = on_room,
	.on_note = on_note,
};

static struct rp_deliver_config world_config(void)
{
	return (struct rp_deliver_config){
		.message_bytes_max = 1572864,
		.window_bytes = 65536,
		.peer_budget_bytes = 4 << 20,
		.streams_max = 64,
		.peers_max = 2,
		.peer_messages_max = 1024,
		.messages_max = 2048,
		.idle_ns = 30 * RP_NS_PER_S,
		.unary_fallback = true,
		.pool = pool,
	};
}

static struct rp_deliver *shard_of(struct tnode *t, uint32_t hash)
{
	return t->d[rp_hash_pick(hash, t->shards)];
}

static void world_up(void)
{
	wire_up = true;
	bundle++;
	for (int i = 0; i < 2; i++) {
		for (uint32_t s = 0; s < tnodes[i].shards; s++)
			assert_int_equal(rp_deliver_peer_up(
						 tnodes[i].d[s], tnodes[i].other->id, bundle, now),
				0);
	}
}

static void fifo_clear(struct frame_fifo *w)
{
	while (w->head != w->tail)
		rte_pktmbuf_free(w->frames[w->head++ % WIRE_MAX]);
	w->refused = false;
}

static void world_down(void)
{
	wire_up = false;
	for (int i = 0; i < 2; i++) {
		fifo_clear(&tnodes[i].out);
		for (uint32_t s = 0; s < tnodes[i].shards; s++)
			rp_deliver_peer_down(tnodes[i].d[s], tnodes[i].other->id, now);
	}
}

static inline void world_rpc(bool up)
{
	rpc_up = up;
	for (int i = 0; i < 2; i++) {
		for (uint32_t s = 0; s < tnodes[i].shards; s++)
			rp_deliver_set_unary(tnodes[i].d[s], tnodes[i].other->id, up, now);
	}
}

static void world_start(
	const struct rp_deliver_config *config, uint32_t shards_a, uint32_t shards_b)
{
	memset(tnodes, 0, sizeof(tnodes));
	rnd.state = seed;
	now = 0;
	failures = 0;
	wire_up = wire_stuck = rpc_up = rpc_fails = false;
	for (int i = 0; i < 2; i++) {
		struct tnode *t = &tnodes[i];

		t->id = 100 + (uint64_t)i;
		t->shards = i == 0 ? shards_a : shards_b;
		t->other = &tnodes[1 - i];
		t->out.cap = 256;
		t->hold_queue = -1;
		for (int q = 0; q < QUEUES; q++) {
			struct flow_model *f = &t->flows[q];

			snprintf(f->name, sizeof(f->name), "queue-%d", q / 2);
			f->hash = rp_queue_hash(f->name, strlen(f->name));
			f->type = q % 2 ? RP_QMSG_DELIVER : RP_QMSG_FORWARD;
			f->size_max = 2000;
		}
		for (uint32_t s = 0; s < t->shards; s++) {
			struct rp_deliver_config c = *config;

			c.node = t->id;
			c.shard = s;
			c.shards = t->shards;
			t->d[s] = rp_deliver_create(&c, &world_ops, t);
			assert_non_null(t->d[s]);
		}
	}
}

static void calls_clear(struct tnode *t)
{
	for (int i = 0; i < CALLS_MAX; i++) {
		if (t->calls[i].used)
			rte_pktmbuf_free(t->calls[i].frame);
		t->calls[i].used = false;
	}
}

static void world_end(void)
{
	for (int i = 0; i < 2; i++) {
		for (uint32_t s = 0; s < tnodes[i].shards; s++)
			rp_deliver_destroy(tnodes[i].d[s]);
		fifo_clear(&tnodes[i].out);
		calls_clear(&tnodes[i]);
	}
	assert_int_equal(failures, 0);
	assert_int_equal(rte_mempool_avail_count(pool), pool_start);
}

static inline int flow_send(struct tnode *t, struct flow_model *f)
{
	bool again = f->again_head != f->again_tail;
	uint64_t seq = again ? f->again[f->again_head % 4096] : f->next_seq;
	struct rp_qmsg m = {
		.type = f->type,
		.name = (const uint8_t *)f->name,
		.name_length = (uint16_t)strlen(f->name),
		.hash = f->hash,
		.epoch = 3,
		.dispatcher = 33,
		.producer_node = t->id,
		.producer_boot = 1,
		.producer_seq = seq,
		.idx = seq + 1,
		.cookie = seq + 1000,
	};
	int rc;

	if (again && f->again_repeat[f->again_head % 4096])
		m.flags = RP_QMSG_REPEAT;
	m.payload = payload_make(f, seq, &m.tail_length);
	if (!m.payload)
		return -ENOMEM;
	rc = rp_deliver_send(shard_of(t, f->hash), t->other->id, &m, now);
	if (rc != 0) {
		rte_pktmbuf_free(m.payload);
		return rc;
	}
	if (again)
		f->again_head++;
	else
		f->next_seq++;
	return 0;
}

/* The frame as it comes from a network: in fresh mbufs, cut at odd places. */
static struct rte_mbuf *frame_wire(struct rte_mbuf *frame)
{
	static uint8_t bytes[RP_FRAME_HEADER_BYTES + RP_FRAME_LENGTH_MAX + 1];
	size_t n = rp_mbuf_copy_out(frame, 0, bytes, sizeof(bytes)), at = 0;
	struct rte_mbuf *m = NULL;

	failures += n > RP_FRAME_HEADER_BYTES + RP_FRAME_LENGTH_MAX || n != frame->pkt_len;
	rte_pktmbuf_free(frame);
	while (at < n) {
		size_t k =
			RP_MIN(n - at, RP_FRAME_HEADER_BYTES + (size_t)rp_rand_below(&rnd, 1800));
		struct rte_mbuf *part;

		k = RP_MIN(n - at, k);
		part = rp_mbuf_from(pool, bytes + at, k);
		assert_non_null(part);
		rp_mbuf_append(&m, part);
		at += k;
	}
	return m;
}

static uint32_t wire_move(struct tnode *t, uint32_t max)
{
	struct frame_fifo *w = &t->out;
	uint32_t n = 0;

	for (; n < max && w->head != w->tail && wire_up && !wire_stuck; n++) {
		struct rte_mbuf *frame = frame_wire(w->frames[w->head++ % WIRE_MAX]);
		struct rp_frame_header h;
		int shard;

		rp_frame_header_read(&h, rte_pktmbuf_mtod(frame, const void *));
		shard = rp_frame_shard(&h, t->other->shards);
		assert_true(shard >= 0);
		rp_deliver_on_frame(t->other->d[shard], t->id, frame, now);
	}
	if (w->refused && w->tail - w->head <= w->cap / 2) {
		w->refused = false;
		for (uint32_t s = 0; s < t->shards; s++)
			rp_deliver_on_room(t->d[s], t->other->id, now);
	}
	return n;
}

static void calls_move(struct tnode *t)
{
	for (int i = 0; i < CALLS_MAX; i++) {
		struct call *c = &t->calls[i];
		struct rp_deliver_answer answer;
		struct rp_frame_header h;
		uint8_t head[RP_FRAME_HEADER_BYTES];
		int error = 0;

		if (!c->used || c->due_ns > now)
			continue;
		c->used = false;
		rp_mbuf_copy_out(c->frame, 0, head, sizeof(head));
		rp_frame_header_read(&h, head);
		if (!rpc_up || (rpc_fails && rp_rand_below(&rnd, 4) == 0)) {
			rte_pktmbuf_free(c->frame);
			error = -EPIPE;
		} else {
			int shard = rp_deliver_unary_shard(head, sizeof(head), t->other->shards);

			assert_true(shard >= 0);
			assert_int_equal(rp_deliver_on_unary(
						 t->other->d[shard], t->id, c->frame, &answer, now),
				0);
			/* The answer may be lost on its way back. */
			if (rpc_fails && rp_rand_below(&rnd, 8) == 0)
				error = -EPIPE;
		}
		for (uint32_t s = 0; s < t->shards; s++) {
			if (rp_hash_pick(h.handle, t->shards) == s)
				rp_deliver_unary_result(t->d[s], c->token, error, &answer, now);
		}
	}
}

static void world_turn(uint32_t frames)
{
	for (int i = 0; i < 2; i++) {
		for (uint32_t s = 0; s < tnodes[i].shards; s++) {
			if (tnodes[i].hold_random)
				rp_deliver_resume(tnodes[i].d[s], now);
			rp_deliver_poll(tnodes[i].d[s], now);
		}
	}
	for (int i = 0; i < 2; i++) {
		wire_move(&tnodes[i], frames);
		calls_move(&tnodes[i]);
	}
}

/* Values of all queues up to `size` bytes; before anything is sent. */
static inline void world_sizes(uint32_t size)
{
	for (int i = 0; i < 2; i++) {
		for (int q = 0; q < QUEUES; q++)
			tnodes[i].flows[q].size_max = size;
	}
}

static inline void world_run(uint64_t ns)
{
	for (uint64_t end = now + ns; now < end; now += MS)
		world_turn(64);
}

static inline int world_setup(int argc, char **argv)
{
	if (argc > 1)
		seed = strtoull(argv[1], NULL, 0);
	printf("seed %llu\n", (unsigned long long)seed);
	if (test_eal_init() < 0)
		return -1;
	pool = rte_pktmbuf_pool_create(
		"deliver", 32767, 0, 0, RTE_MBUF_DEFAULT_BUF_SIZE, SOCKET_ID_ANY);
	if (!pool)
		return -1;
	pool_start = rte_mempool_avail_count(pool);
	return 0;
}
