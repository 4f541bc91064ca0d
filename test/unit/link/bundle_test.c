/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Bundles of k links over nodes of several shards: each shard has an object, and what they say to
 * each other, like the frames between the shard of a queue and the owner of its link, is late by
 * chance. Per pair of shards the order is kept, as rings keep it, and nothing else.
 */

#include <base/list.h>
#include <base/log.h>

#include "nodes.h"

#define SHARDS 4
#define STREAMS 8 /* hashes that frames are sent for */
#define FIFO 4096

/* What crosses from shard to shard: news of links, or a frame out to the link's owner, or in. */
struct crossing {
	enum { CROSS_LINK, CROSS_OUT, CROSS_IN } what;
	struct rp_link_msg m;
	uint32_t bundle, hash;
	struct rte_mbuf *frame;
};

struct fifo {
	struct crossing items[FIFO];
	uint32_t head, tail;
};

struct many;

struct shard {
	struct many *node;
	unsigned index;
	struct rp_links *links;
	uint32_t bundle, bundle_last, ups, downs;
	enum rp_link_down why;
	uint32_t answered;
};

struct many {
	struct shard shards[SHARDS];
	unsigned count;
	uint64_t peer;
	struct fifo *fifos; /* from * SHARDS + to */
	/* Of each stream, by the node that sends it: the next number, and what came. */
	uint32_t next[STREAMS], seen[STREAMS], seen_bundle[STREAMS];
	uint32_t received, gaps, stale;
};

static struct many many[2];
static struct rp_rand chance;
static uint64_t seed = 7;

static uint32_t hash_of(unsigned stream)
{
	return (uint32_t)(((uint64_t)stream << 32) / STREAMS + 12345);
}

static struct fifo *fifo_of(struct many *n, unsigned from, unsigned to)
{
	return &n->fifos[from * SHARDS + to];
}

static void cross(struct many *n, unsigned from, unsigned to, struct crossing c)
{
	struct fifo *f = fifo_of(n, from, to);

	assert_true(f->tail - f->head < FIFO);
	f->items[f->tail++ % FIFO] = c;
}

static void shard_post(void *ctx, unsigned to, const struct rp_link_msg *m)
{
	struct shard *s = ctx;

	assert_true(to < s->node->count && to != s->index);
	cross(s->node, s->index, to, (struct crossing){.what = CROSS_LINK, .m = *m});
}

static void shard_random(void *ctx, void *out, size_t length)
{
	for (size_t i = 0; i < length; i++)
		((uint8_t *)out)[i] = (uint8_t)rp_rand_u64(&chance);
}

static void shard_up(void *ctx, uint64_t peer, uint32_t b, uint64_t boot, uint64_t t)
{
	struct shard *s = ctx;

	assert_int_equal(s->bundle, 0);
	assert_true(b > s->bundle_last);
	s->bundle = s->bundle_last = b;
	s->ups++;
}

static void shard_down(void *ctx, uint64_t peer, enum rp_link_down why, uint64_t t)
{
	struct shard *s = ctx;

	assert_true(s->bundle != 0);
	s->bundle = 0;
	s->downs++;
	s->why = why;
}

/* At the shard of the stream: within a bundle nothing is missing and nothing comes twice. */
static void take_frame(struct shard *s, uint32_t b, struct rte_mbuf *frame)
{
	struct many *n = s->node;
	struct rp_frame_header h;
	unsigned stream;

	rp_frame_header_read(&h, rte_pktmbuf_mtod(frame, const void *));
	rte_pktmbuf_free(frame);
	stream = (unsigned)(((uint64_t)(h.handle - 12345) * STREAMS + STREAMS) >> 32);
	assert_true(stream < STREAMS && hash_of(stream) == h.handle);
	assert_int_equal(rp_hash_pick(h.handle, n->count), s->index);
	if (b != s->bundle) {
		/* The news of its end has overtaken it; what is too new cannot come. */
		assert_true((int32_t)(b - s->bundle_last) <= 0);
		n->stale++;
		return;
	}
	if (n->seen_bundle[stream] == b && h.epoch != n->seen[stream] + 1)
		n->gaps++;
	n->seen_bundle[stream] = b;
	n->seen[stream] = h.epoch;
	n->received++;
}

static void shard_frame(struct shard *s, struct rte_mbuf *frame)
{
	struct rp_frame_header h;
	unsigned to;

	rp_frame_header_read(&h, rte_pktmbuf_mtod(frame, const void *));
	to = rp_hash_pick(h.handle, s->node->count);
	assert_true(s->bundle != 0);
	if (to == s->index)
		take_frame(s, s->bundle, frame);
	else
		cross(s->node, s->index, to,
			(struct crossing){.what = CROSS_IN, .bundle = s->bundle, .frame = frame});
}

static void shard_frames(void *ctx, uint64_t peer, struct rte_mbuf **frames, unsigned n, uint64_t t)
{
	for (unsigned i = 0; i < n; i++)
		shard_frame(ctx, frames[i]);
}

static void shard_room(void *ctx, uint64_t peer, uint64_t t)
{
}

static void shard_answered(void *ctx, uint64_t peer, uint64_t sent, uint64_t t)
{
	((struct shard *)ctx)->answered++;
}

static const struct rp_links_ops shard_ops = {
	.post = shard_post,
	.random = shard_random,
	.on_up = shard_up,
	.on_down = shard_down,
	.on_frames = shard_frames,
	.on_room = shard_room,
	.on_answered = shard_answered,
};

static void many_start(int i, unsigned shards, unsigned per_peer, uint32_t owners)
{
	static const struct rp_endpoint somewhere = {.family = 4, .port = 7400};
	struct many *n = &many[i];

	*n = (struct many){.count = shards, .peer = i == 0 ? NODE_B : NODE_A};
	n->fifos = calloc((size_t)SHARDS * SHARDS, sizeof(struct fifo));
	assert_non_null(n->fifos);
	for (unsigned s = 0; s < shards; s++) {
		struct rp_links_config c = node_config(i);

		c.per_peer = (uint8_t)per_peer;
		c.shard = (uint8_t)s;
		c.shards = (uint8_t)shards;
		c.lead = shards > 1 ? 1 : 0;
		c.owner_shards = owners;
		c.skip_shard_zero = true;
		c.peer_queue_frames = 1024;
		n->shards[s] = (struct shard){.node = n, .index = s};
		n->shards[s].links = rp_links_create(&c, &shard_ops, &n->shards[s]);
		assert_non_null(n->shards[s].links);
		assert_int_equal(rp_links_add_peer(n->shards[s].links, n->peer,
					 &net.side[i].transport, &somewhere, now),
			0);
	}
}

static void many_begin(unsigned shards_a, unsigned k_a, unsigned shards_b, unsigned k_b)
{
	now = 0;
	fake_init(&net, pool);
	many_start(0, shards_a, k_a, (1u << shards_a) - 1);
	many_start(1, shards_b, k_b, (1u << shards_b) - 1);
}

static void cross_one(struct many *n, unsigned from, unsigned to)
{
	struct fifo *f = fifo_of(n, from, to);
	struct crossing c;

	if (f->head == f->tail)
		return;
	c = f->items[f->head++ % FIFO];
	if (c.what == CROSS_LINK) {
		rp_links_on_msg(n->shards[to].links, from, &c.m, now);
	} else if (c.what == CROSS_IN) {
		take_frame(&n->shards[to], c.bundle, c.frame);
	} else if (rp_links_send_posted(n->shards[to].links, n->peer, c.bundle, c.hash, c.frame) !=
		   0) {
		rte_pktmbuf_free(c.frame);
	}
}

static void many_turn(unsigned late)
{
	/* Whichever shard of B the connection comes to takes it. */
	net.side[1].accept = rp_links_accept;
	net.side[1].listen_ctx = many[1].shards[rp_rand_below(&chance, many[1].count)].links;
	fake_step(&net, now);
	for (int i = 0; i < 2; i++) {
		struct many *n = &many[i];

		for (unsigned x = 0; x < n->count * n->count * 8; x++) {
			unsigned from = (unsigned)rp_rand_below(&chance, n->count);
			unsigned to = (unsigned)rp_rand_below(&chance, n->count);

			if (from != to && rp_rand_below(&chance, late) == 0)
				cross_one(n, from, to);
		}
		for (unsigned s = 0; s < n->count; s++) {
			rp_links_poll(n->shards[s].links, now);
			rp_links_flush(n->shards[s].links, now);
		}
	}
}

static void many_run(uint64_t ns, unsigned late)
{
	for (uint64_t end = now + ns; now < end; now += RP_NS_PER_MS)
		many_turn(late);
}

static void many_end(void)
{
	for (int i = 0; i < 2; i++) {
		for (unsigned s = 0; s < many[i].count; s++)
			rp_links_destroy(many[i].shards[s].links);
		for (unsigned x = 0; x < SHARDS * SHARDS; x++)
			for (struct fifo *f = &many[i].fifos[x]; f->head != f->tail; f->head++)
				rte_pktmbuf_free(f->items[f->head % FIFO].frame);
		free(many[i].fifos);
	}
	fake_step(&net, now);
	fake_fini(&net);
	assert_int_equal(rte_mempool_avail_count(pool), pool_start);
}

/* The frame of a stream from the shard that has its queue, by the owner of its link. */
static void send_one(int i, unsigned stream)
{
	struct many *n = &many[i];
	uint32_t hash = hash_of(stream);
	struct shard *s = &n->shards[rp_hash_pick(hash, n->count)];
	struct rp_frame_header h = {.type = RP_FRAME_QACK, .handle = hash};
	uint8_t bytes[RP_FRAME_HEADER_BYTES];
	int owner = rp_links_owner(s->links, n->peer, hash);
	struct rte_mbuf *m;

	if (!s->bundle) {
		assert_int_equal(owner, -ENOTCONN);
		return;
	}
	assert_true(owner >= 0);
	h.epoch = ++n->next[stream];
	rp_frame_header_write(&h, bytes);
	m = rp_mbuf_from(pool, bytes, sizeof(bytes));
	assert_non_null(m);
	if ((unsigned)owner != s->index)
		cross(n, s->index, (unsigned)owner,
			(struct crossing){
				.what = CROSS_OUT, .bundle = s->bundle, .hash = hash, .frame = m});
	else if (rp_links_send(s->links, n->peer, s->bundle, hash, m) != 0)
		rte_pktmbuf_free(m);
}

static bool all_up(void)
{
	for (int i = 0; i < 2; i++)
		for (unsigned s = 0; s < many[i].count; s++)
			if (!many[i].shards[s].bundle)
				return false;
	return true;
}

static uint64_t sum(int i, const uint64_t *of_first)
{
	size_t offset = (size_t)((const uint8_t *)of_first -
				 (const uint8_t *)rp_links_counters(many[i].shards[0].links));
	uint64_t n = 0;

	for (unsigned s = 0; s < many[i].count; s++)
		n += *(const uint64_t *)((const uint8_t *)rp_links_counters(
						 many[i].shards[s].links) +
					 offset);
	return n;
}

#define SUM(i, field) sum(i, &rp_links_counters(many[i].shards[0].links)->field)

/* ---- placement ---- */

static void place_follows_ranges_and_slots(void **state)
{
	/* slot, link, k, shards, usable, skip, want */
	static const int cases[][7] = {
		{0, 0, 1, 1, 1, 1, 0},
		{0, 0, 1, 4, 15, 1, 1},
		{1, 0, 1, 4, 15, 1, 2},
		{2, 0, 1, 4, 15, 1, 3},
		{3, 0, 1, 4, 15, 1, 1},
		{3, 0, 1, 4, 15, 0, 3},
		{0, 0, 2, 4, 15, 1, 1},
		{5, 0, 2, 4, 15, 1, 1},
		{0, 1, 2, 4, 15, 1, 2},
		{1, 1, 2, 4, 15, 1, 3},
		{0, 0, 4, 4, 15, 1, 0},
		{7, 3, 4, 4, 15, 1, 3},
		{0, 0, 2, 3, 7, 0, 0},
		{1, 0, 2, 3, 7, 0, 1},
		{0, 1, 2, 3, 7, 1, 2},
		{0, 1, 2, 4, 2, 1, 1},
		{9, 0, 4, 4, 2, 1, 1},
		{0, 0, 1, 4, 0, 1, -ENOENT},
	};

	for (size_t i = 0; i < RP_ARRAY_SIZE(cases); i++) {
		const int *c = cases[i];

		assert_int_equal(rp_link_place((uint32_t)c[0], (uint32_t)c[1], (uint32_t)c[2],
					 (uint32_t)c[3], (uint32_t)c[4], c[5]),
			c[6]);
	}
	/* Whatever the shards are, a link lies in its range where the range has a usable shard. */
	for (uint32_t shards = 1; shards <= RP_SHARDS_MAX; shards++)
		for (uint32_t k = 1; k <= shards; k++)
			for (uint32_t j = 0; j < k; j++)
				assert_int_equal((uint32_t)rp_link_place(j * 3, j, k, shards,
							 UINT32_MAX >> (32 - shards), true) *
							 k / shards,
					j);
}

/* ---- up and down ---- */

/* Where there is a choice, the peer's shard with the same queue as ours: nobody hands over. */
static void a_dial_is_aimed_at_the_counterpart(void **state)
{
	static const struct {
		uint32_t far_shards, far_owners;
		uint64_t want[2];
	} cases[] = {
		{4, 0xe, {1 << 1, 1 << 2}},
		/* The same number of them, elsewhere: link 0 has the first, link 1 the second. */
		{6, 0x16, {1 << 1, 1 << 4}},
		/* Others than here: any of the range; or where the range has none, any at all. */
		{4, 0xf, {0x3, 0xc}},
		{4, 0xc, {0xc, 0xc}},
	};
	static const int place;

	for (size_t i = 0; i < RP_ARRAY_SIZE(cases); i++) {
		now = 0;
		fake_init(&net, pool);
		many_start(0, 4, 2, 0xe);
		many_start(1, 4, 2, 0xe);
		for (unsigned s = 0; s < 4; s++)
			rp_links_place_peer(many[0].shards[s].links, many[0].peer,
				(const struct rp_place *)&place, cases[i].far_shards,
				cases[i].far_owners);
		for (int x = 0; x < 100 && net.side[0].dials < 2; x++)
			many_run(RP_NS_PER_MS, 1);
		assert_int_equal(net.side[0].dials, 2);
		/* Two shards dial, whichever is first. */
		for (int j = 0; j < 2; j++)
			assert_true(net.side[0].far_shards[0] == cases[i].want[j] ||
				    net.side[0].far_shards[1] == cases[i].want[j]);
		many_end();
	}
}

static void all_shards_are_up_and_order_is_kept(void **state)
{
	static const unsigned shapes[][3] = {
		{1, 1, 1}, {4, 1, 4}, {4, 2, 4}, {4, 4, 4}, {3, 2, 3}, {4, 2, 3}, {3, 3, 4}};

	for (size_t i = 0; i < RP_ARRAY_SIZE(shapes); i++) {
		const unsigned *h = shapes[i];
		struct rp_link_info info;
		uint32_t owners = 0;

		many_begin(h[0], h[1], h[2], h[1]);
		many_run(200 * RP_NS_PER_MS, 4);
		assert_true(all_up());
		for (int x = 0; x < 3000; x++) {
			send_one((int)rp_rand_below(&chance, 2),
				(unsigned)rp_rand_below(&chance, STREAMS));
			if (x % 10 == 0)
				many_run(RP_NS_PER_MS, 4);
		}
		many_run(200 * RP_NS_PER_MS, 1);
		assert_int_equal(many[0].received + many[1].received, 3000);
		assert_int_equal(many[0].gaps + many[1].gaps, 0);
		assert_int_equal(SUM(0, ups), 1);
		assert_int_equal(SUM(1, ups), 1);
		assert_int_equal(SUM(0, handshakes_done), h[1]);
		/* The links lie where the rule says, each in its range. */
		assert_int_equal(rp_links_info(many[0].shards[0].links, NODE_B, &info), 0);
		assert_int_equal(info.per_peer, h[1]);
		for (unsigned j = 0; j < h[1]; j++) {
			assert_int_equal(info.owners[j],
				rp_link_place(0, j, h[1], h[0], (1u << h[0]) - 1, true));
			owners |= 1u << info.owners[j];
		}
		assert_int_equal(__builtin_popcount(owners), h[1]);
		many_end();
	}
}

static void one_link_that_closes_takes_all_down(void **state)
{
	many_begin(4, 4, 4, 4);
	many_run(200 * RP_NS_PER_MS, 3);
	assert_true(all_up());
	assert_int_equal(net.alive, 8);
	/* A reset of one of them, in the middle of traffic. */
	for (int x = 0; x < 64; x++)
		send_one(x & 1, (unsigned)x % STREAMS);
	rp_list_entry(net.conns.next, struct fake_conn, entry)->reset = true;
	many_run(20 * RP_NS_PER_MS, 2);
	for (int i = 0; i < 2; i++)
		for (unsigned s = 0; s < 4; s++)
			assert_int_equal(many[i].shards[s].downs, 1);
	assert_int_equal(SUM(0, downs[RP_LINK_DOWN_RESET]) + SUM(1, downs[RP_LINK_DOWN_RESET]), 2);
	many_run(500 * RP_NS_PER_MS, 3);
	assert_true(all_up());
	assert_int_equal(net.alive, 8);
	assert_int_equal(SUM(0, ups), 2);
	assert_int_equal(SUM(1, ups), 2);
	assert_int_equal(many[0].gaps + many[1].gaps, 0);
	many_end();
}

static void another_k_is_refused_with_its_reason(void **state)
{
	struct rp_link_info info;

	many_begin(4, 2, 4, 4);
	many_run(2 * RP_NS_PER_S, 3);
	assert_int_equal(SUM(0, ups) + SUM(1, ups), 0);
	assert_true(SUM(0, refused_out[RP_LINK_REFUSAL_K]) > 0);
	assert_true(SUM(1, refused[RP_LINK_REFUSAL_K]) > 0);
	assert_true(SUM(0, redials) > 0);
	assert_int_equal(rp_links_info(many[0].shards[1].links, NODE_B, &info), 0);
	assert_int_equal(info.last_refusal, RP_LINK_REFUSAL_K);
	assert_int_equal(many[0].shards[0].bundle, 0);
	many_end();
}

/* Three links stand, and the fourth never does: one grace, and all are closed. */
static void incomplete_bundle_ends_with_the_grace(void **state)
{
	struct rp_list *n;
	uint64_t up_at;

	many_begin(4, 4, 4, 4);
	for (int x = 0; x < 1000 && net.alive < 8; x++)
		many_run(RP_NS_PER_MS, 1);
	assert_int_equal(net.alive, 8);
	/* One connection is deaf: its bytes wait for ever. */
	n = net.conns.next;
	rp_list_entry(n, struct fake_conn, entry)->unconsumed = FAKE_WINDOW;
	rp_list_entry(n, struct fake_conn, entry)->other->unconsumed = FAKE_WINDOW;
	up_at = now;
	while (SUM(0, incomplete) + SUM(1, incomplete) == 0 && now < up_at + 20 * RP_NS_PER_S)
		many_run(10 * RP_NS_PER_MS, 1);
	assert_in_range(now - up_at, 9500 * RP_NS_PER_MS, 10100 * RP_NS_PER_MS);
	assert_int_equal(SUM(0, ups) + SUM(1, ups), 0);
	many_run(RP_NS_PER_S, 1);
	assert_true(all_up());
	/* Each end gave up one, which nobody had been told was up. */
	assert_in_range(SUM(0, incomplete) + SUM(1, incomplete), 1, 2);
	assert_int_equal(SUM(0, downs[RP_LINK_DOWN_INCOMPLETE]), 0);
	assert_int_equal(net.alive, 8);
	many_end();
}

static void violation_of_any_shard_ends_the_bundle(void **state)
{
	many_begin(4, 2, 4, 2);
	many_run(200 * RP_NS_PER_MS, 3);
	assert_true(all_up());
	rp_links_violation(many[1].shards[3].links, NODE_A, now);
	many_run(20 * RP_NS_PER_MS, 1);
	assert_int_equal(SUM(1, downs[RP_LINK_DOWN_VIOLATION]), 1);
	assert_int_equal(many[1].shards[0].why, RP_LINK_DOWN_VIOLATION);
	assert_int_equal(many[0].shards[3].downs, 1);
	many_run(RP_NS_PER_S, 3);
	assert_true(all_up());
	/* Removed at all shards: down with its reason, and a stranger from then on. */
	for (unsigned s = 0; s < 4; s++)
		rp_links_remove_peer(many[1].shards[s].links, NODE_A, now);
	many_run(RP_NS_PER_S, 3);
	assert_int_equal(SUM(1, downs[RP_LINK_DOWN_REMOVED]), 1);
	assert_true(SUM(0, refused_out[RP_LINK_REFUSAL_UNKNOWN_PEER]) > 0);
	many_end();
}

static void dead_links_are_known_in_time(void **state)
{
	uint64_t cut;

	many_begin(4, 4, 4, 4);
	many_run(2 * RP_NS_PER_S, 3);
	assert_true(all_up());
	for (int i = 0; i < 2; i++)
		assert_true(many[i].shards[1].answered >= 3);
	net.hole = true;
	cut = now;
	while (all_up() && now < cut + 10 * RP_NS_PER_S)
		many_run(5 * RP_NS_PER_MS, 1);
	assert_true(now - cut <= 3100 * RP_NS_PER_MS);
	many_run(700 * RP_NS_PER_MS, 1);
	for (int i = 0; i < 2; i++)
		for (unsigned s = 0; s < 4; s++)
			assert_int_equal(many[i].shards[s].bundle, 0);
	net.hole = false;
	many_run(3 * RP_NS_PER_S, 3);
	assert_true(all_up());
	many_end();
}

static void stop_closes_in_order(void **state)
{
	many_begin(4, 4, 4, 4);
	many_run(200 * RP_NS_PER_MS, 3);
	for (int x = 0; x < 64; x++)
		send_one(0, (unsigned)x % STREAMS);
	many_run(5 * RP_NS_PER_MS, 1);
	for (unsigned s = 0; s < 4; s++)
		rp_links_stop(many[0].shards[s].links, now);
	many_run(100 * RP_NS_PER_MS, 1);
	assert_int_equal(many[1].received, 64);
	assert_int_equal(SUM(0, downs[RP_LINK_DOWN_STOPPED]), 1);
	assert_int_equal(SUM(1, downs[RP_LINK_DOWN_CLOSED]), 1);
	assert_int_equal(net.alive, 0);
	many_end();
}

/* Everything at once, for a while; afterwards all is as it should be. */
static void chaos_heals(void **state)
{
	for (unsigned round = 0; round < 6; round++) {
		unsigned k = 1 + (unsigned)rp_rand_below(&chance, 4);
		uint64_t end;

		many_begin(4, k, k > 3 ? 4 : 3, k);
		for (end = now + 5 * RP_NS_PER_S; now < end;) {
			uint64_t dice = rp_rand_below(&chance, 400);
			struct rp_list *n = net.conns.next;

			if (dice == 0 && n != &net.conns) {
				for (uint64_t skip = rp_rand_below(&chance, 4);
					skip > 0 && n->next != &net.conns; skip--)
					n = n->next;
				rp_list_entry(n, struct fake_conn, entry)->reset = true;
			} else if (dice == 1) {
				struct many *x = &many[rp_rand_below(&chance, 2)];

				rp_links_violation(
					x->shards[rp_rand_below(&chance, x->count)].links, x->peer,
					now);
			} else if (dice < 100) {
				send_one((int)rp_rand_below(&chance, 2),
					(unsigned)rp_rand_below(&chance, STREAMS));
			}
			many_run(RP_NS_PER_MS, 1 + (unsigned)rp_rand_below(&chance, 12));
		}
		many_run(12 * RP_NS_PER_S, 2);
		assert_true(all_up());
		assert_int_equal(net.alive, 2 * k);
		assert_int_equal(many[0].gaps + many[1].gaps, 0);
		many_end();
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(place_follows_ranges_and_slots),
		cmocka_unit_test(a_dial_is_aimed_at_the_counterpart),
		cmocka_unit_test(all_shards_are_up_and_order_is_kept),
		cmocka_unit_test(one_link_that_closes_takes_all_down),
		cmocka_unit_test(another_k_is_refused_with_its_reason),
		cmocka_unit_test(incomplete_bundle_ends_with_the_grace),
		cmocka_unit_test(violation_of_any_shard_ends_the_bundle),
		cmocka_unit_test(dead_links_are_known_in_time),
		cmocka_unit_test(stop_closes_in_order),
		cmocka_unit_test(chaos_heals),
	};

	if (argc > 1)
		seed = strtoull(argv[1], NULL, 0);
	printf("seed %llu\n", (unsigned long long)seed);
	chance = (struct rp_rand){seed};
	rp_log_set_level(RP_LOG_CRIT);
	if (world_setup() < 0)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
