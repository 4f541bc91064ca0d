/* SPDX-License-Identifier: Apache-2.0 */
#include "nodes.h"

#define COUNTERS(i) rp_links_counters(nodes[i].links)

static void both_up_and_frames_cross(void **state)
{
	const struct rp_links_config a = node_config(0), b = node_config(1);
	const uint32_t pieces[] = {1, 3, 17, 100, 1460, 9000, FAKE_WINDOW};

	for (size_t k = 0; k < RP_ARRAY_SIZE(pieces); k++) {
		const uint32_t want = pieces[k] < 17 ? 12 : 300;
		uint32_t sent[2] = {0, 0};

		world_start(&a, &b);
		net.piece = pieces[k];
		for (int i = 0; i < 300 && (!nodes[0].bundle || !nodes[1].bundle); i++)
			turn();
		assert_true(nodes[0].bundle != 0 && nodes[1].bundle != 0);
		for (uint32_t i = 0;
			i < 100000 && (nodes[0].frames < want || nodes[1].frames < want); i++) {
			for (int j = 0; j < 2; j++) {
				struct rte_mbuf *m = frame_make(sent[j]);

				if (sent[j] < want && rp_links_send(nodes[j].links, nodes[j].peer,
							      nodes[j].bundle, 0, m) == 0)
					sent[j]++;
				else
					rte_pktmbuf_free(m);
			}
			turn();
		}
		for (int j = 0; j < 2; j++) {
			assert_int_equal(nodes[j].frames, want);
			assert_int_equal(nodes[j].frame_bad, 0);
			assert_int_equal(COUNTERS(j)->frames_received, want);
			assert_int_equal(COUNTERS(j)->ups, 1);
		}
		assert_int_equal(net.side[0].user_timeout_seen, 1);
		assert_int_equal(net.side[0].dial_options.congestion, RP_CONGESTION_DCTCP);
		assert_true(net.side[0].dial_options.ack_delay_max_ns == RP_NS_PER_MS);
		assert_true(net.side[0].dial_options.user_timeout_ns == 3000 * RP_NS_PER_MS);
		world_end();
	}
}

static void one_turn_is_one_send(void **state)
{
	const struct rp_links_config a = node_config(0), b = node_config(1);
	uint64_t before;

	world_start(&a, &b);
	run_for(50 * RP_NS_PER_MS);
	before = COUNTERS(0)->sends_batched;
	for (uint32_t i = 0; i < 20; i++)
		assert_int_equal(
			rp_links_send(nodes[0].links, NODE_B, nodes[0].bundle, 0, frame_make(i)),
			0);
	rp_links_flush(nodes[0].links, now);
	assert_int_equal(COUNTERS(0)->sends_batched, before + 1);
	turn();
	assert_int_equal(nodes[1].frames, 20);
	assert_int_equal(nodes[1].frame_bad, 0);
	world_end();
}

static void secrets(void **state)
{
	struct rp_links_config a = node_config(0), b = node_config(1);

	/* Another secret: the dialer finds out first, nobody comes up. */
	b.secret = secret_2;
	b.secret_length = sizeof(secret_2);
	world_start(&a, &b);
	run_for(RP_NS_PER_S);
	assert_int_equal(nodes[0].ups + nodes[1].ups, 0);
	assert_true(COUNTERS(0)->refused_out[RP_LINK_REFUSAL_MAC] > 1);
	assert_true(COUNTERS(0)->redials > 1);
	world_end();

	/* Rotation: each accepts what the other still sends. */
	a.secret_previous = secret_2;
	a.secret_previous_length = sizeof(secret_2);
	b.secret_previous = secret_1;
	b.secret_previous_length = sizeof(secret_1);
	world_start(&a, &b);
	run_for(RP_NS_PER_S);
	assert_true(nodes[0].bundle && nodes[1].bundle);
	assert_int_equal(COUNTERS(0)->secret_previous, 1);
	assert_int_equal(COUNTERS(1)->secret_previous, 1);
	world_end();

	/* Open on both sides works; open on one side does not. */
	a = node_config(0);
	b = node_config(1);
	a.secret = NULL;
	world_start(&a, &b);
	run_for(RP_NS_PER_S);
	assert_int_equal(nodes[0].ups + nodes[1].ups, 0);
	assert_true(COUNTERS(1)->refused[RP_LINK_REFUSAL_MAC] > 0);
	world_end();
	b.secret = NULL;
	world_start(&a, &b);
	run_for(RP_NS_PER_S);
	assert_true(nodes[0].bundle && nodes[1].bundle);
	world_end();
}

static void set_secrets(int i, const uint8_t *secret, size_t length, const uint8_t *previous,
	size_t previous_length)
{
	rp_links_set_secrets(nodes[i].links, secret, length, previous, previous_length);
}

/* Every bundle ends and begins anew. */
static void shake_again(void)
{
	rp_links_violation(nodes[0].links, NODE_B, now);
	run_for(RP_NS_PER_S);
}

static void secrets_change_in_place(void **state)
{
	const struct rp_links_config a = node_config(0), b = node_config(1);
	const size_t one = sizeof(secret_1), two = sizeof(secret_2);

	world_start(&a, &b);
	run_for(RP_NS_PER_S);
	/* The new one is accepted first, then sent, then alone; at one node after the other. */
	for (int step = 0; step < 3; step++) {
		for (int i = 1; i >= 0; i--) {
			if (step == 0)
				set_secrets(i, secret_1, one, secret_2, two);
			else if (step == 1)
				set_secrets(i, secret_2, two, secret_1, one);
			else
				set_secrets(i, secret_2, two, NULL, 0);
			run_for(RP_NS_PER_S);
			/* What stands stays, and what comes anew is let in at every moment. */
			assert_int_equal(nodes[0].downs, step * 2 + 1 - i);
			shake_again();
			assert_true(nodes[0].bundle && nodes[1].bundle);
		}
	}
	assert_int_equal(nodes[0].ups, 7);
	assert_int_equal(COUNTERS(0)->refused_out[RP_LINK_REFUSAL_MAC], 0);
	assert_int_equal(COUNTERS(1)->refused[RP_LINK_REFUSAL_MAC], 0);
	assert_int_equal(COUNTERS(0)->secret_previous + COUNTERS(1)->secret_previous, 2);
	/* One that has missed the steps is out. */
	set_secrets(0, secret_1, one, NULL, 0);
	shake_again();
	assert_false(nodes[0].bundle || nodes[1].bundle);
	assert_true(COUNTERS(0)->refused_out[RP_LINK_REFUSAL_MAC] > 0);
	/* And to none at all, on both. */
	set_secrets(0, NULL, 0, NULL, 0);
	run_for(RP_NS_PER_S);
	assert_false(nodes[0].bundle || nodes[1].bundle);
	set_secrets(1, NULL, 0, NULL, 0);
	run_for(3 * RP_NS_PER_S);
	assert_true(nodes[0].bundle && nodes[1].bundle);
	world_end();
}

static void counters_tell_what_went_by(void **state)
{
	const struct rp_links_config a = node_config(0), b = node_config(1);

	world_start(&a, &b);
	net.side[1].accept = NULL;
	run_for(RP_NS_PER_S);
	assert_int_equal(COUNTERS(0)->dials_failed, COUNTERS(0)->dials);
	assert_true(COUNTERS(0)->dials_failed > 1);
	net.side[1].accept = rp_links_accept;
	run_for(3 * RP_NS_PER_S);
	assert_true(nodes[0].bundle && nodes[1].bundle);
	assert_in_range(COUNTERS(0)->time_to_up_ns, RP_NS_PER_S, 4 * RP_NS_PER_S);
	assert_int_equal(COUNTERS(1)->time_to_up_ns, 0);
	for (uint32_t i = 0; i < 10; i++)
		assert_int_equal(
			rp_links_send(nodes[0].links, NODE_B, nodes[0].bundle, 0, frame_make(i)),
			0);
	run_for(2 * RP_NS_PER_S);
	assert_int_equal(COUNTERS(0)->frames_sent, 10);
	assert_int_equal(COUNTERS(1)->frames_received, 10);
	assert_int_equal(COUNTERS(1)->frames_sent, 0);
	assert_true(COUNTERS(0)->pings_sent >= 4);
	assert_int_equal(COUNTERS(1)->pings_received, COUNTERS(0)->pings_sent);
	assert_int_equal(COUNTERS(0)->pongs_received, COUNTERS(0)->pings_sent);
	/* Of a handshake the link sends bytes, too, which are no frames. */
	assert_true(COUNTERS(0)->bytes_sent > 10 * RP_FRAME_HEADER_BYTES);
	assert_int_equal(COUNTERS(1)->bytes_received, COUNTERS(0)->bytes_sent +
							      LINK_PREAMBLE_BYTES +
							      LINK_HELLO_BYTES + LINK_FINISH_BYTES);
	/* What waits when the bundle ends is freed, and counted. */
	net.space_max = 1;
	for (uint32_t i = 0; i < 5; i++)
		assert_int_equal(
			rp_links_send(nodes[0].links, NODE_B, nodes[0].bundle, 0, frame_make(i)),
			0);
	rp_links_violation(nodes[0].links, NODE_B, now);
	assert_int_equal(COUNTERS(0)->frames_dropped, 5);
	world_end();
}

/* The connection ends as the transport says. */
static void reasons_of_the_transport(void **state)
{
	static const struct {
		enum rp_close_reason close;
		enum rp_link_down why;
	} cases[] = {
		{RP_CLOSE_FIN, RP_LINK_DOWN_CLOSED},
		{RP_CLOSE_RESET, RP_LINK_DOWN_RESET},
		{RP_CLOSE_TIMEOUT, RP_LINK_DOWN_TIMEOUT},
		{RP_CLOSE_NOMEM, RP_LINK_DOWN_NOMEM},
		{RP_CLOSE_REFUSED, RP_LINK_DOWN_NETWORK},
		{RP_CLOSE_UNREACHABLE, RP_LINK_DOWN_NETWORK},
		{RP_CLOSE_ABORTED, RP_LINK_DOWN_NETWORK},
	};
	const struct rp_links_config a = node_config(0), b = node_config(1);
	struct rp_link_info info;

	for (size_t i = 0; i < RP_ARRAY_SIZE(cases); i++) {
		world_start(&a, &b);
		run_for(RP_NS_PER_S);
		assert_true(nodes[0].bundle && nodes[1].bundle);
		fake_end(rp_list_entry(net.conns.next, struct fake_conn, entry), cases[i].close,
			now);
		assert_int_equal(nodes[0].bundle, 0);
		assert_int_equal(nodes[0].why, cases[i].why);
		assert_int_equal(COUNTERS(0)->downs[cases[i].why], 1);
		assert_int_equal(rp_links_info(nodes[0].links, NODE_B, &info), 0);
		assert_int_equal(info.downs, 1);
		assert_int_equal(info.last_down, cases[i].why);
		assert_int_equal(info.down_ns, now);
		world_end();
	}
}

/* Without buffers a PING waits, a frame that came waits, and all goes on when there are some. */
static void no_buffers_is_counted_and_passes(void **state)
{
	const struct rp_links_config a = node_config(0), b = node_config(1);
	struct rte_mbuf *taken[8192];
	unsigned n = 0;

	world_start(&a, &b);
	run_for(RP_NS_PER_S);
	while (n < RP_ARRAY_SIZE(taken) && (taken[n] = rte_pktmbuf_alloc(pool)))
		n++;
	run_for(RP_NS_PER_S);
	assert_true(COUNTERS(0)->no_buffers > 0);
	assert_true(nodes[0].bundle && nodes[1].bundle);
	while (n > 0)
		rte_pktmbuf_free(taken[--n]);
	run_for(5 * RP_NS_PER_S);
	assert_int_equal(nodes[0].downs + nodes[1].downs, 0);
	assert_true(COUNTERS(0)->pongs_received > 8);
	world_end();
}

static struct rp_link_line_info seen;

static void see_line(void *ctx, const struct rp_link_line_info *info)
{
	(*(unsigned *)ctx)++;
	seen = *info;
}

static void a_link_is_shown_in_each_stage(void **state)
{
	const struct rp_links_config a = node_config(0), b = node_config(1);
	bool stages[RP_LINK_STAGE_COUNT] = {0};
	unsigned n;

	world_start(&a, &b);
	net.piece = 16;
	for (int i = 0; i < 100; i++) {
		n = 0;
		rp_links_poll(nodes[0].links, now);
		rp_links_lines(nodes[0].links, NODE_B, see_line, &n);
		if (n > 0)
			stages[seen.stage] = true;
		assert_true(n == 0 || (seen.dialed && seen.link == 0 && seen.at_home));
		turn();
		now += RP_NS_PER_MS;
	}
	assert_true(stages[RP_LINK_STAGE_DIALING] && stages[RP_LINK_STAGE_HANDSHAKE]);
	assert_true(stages[RP_LINK_STAGE_UP]);
	for (uint32_t i = 0; i < 3; i++)
		rp_links_send(nodes[0].links, NODE_B, nodes[0].bundle, 0, frame_make(i));
	n = 0;
	rp_links_lines(nodes[0].links, NODE_B, see_line, &n);
	assert_int_equal(n, 1);
	assert_int_equal(seen.queued_frames, 3);
	net.piece = FAKE_WINDOW;
	run_for(RP_NS_PER_S);
	n = 0;
	rp_links_lines(nodes[1].links, NODE_A, see_line, &n);
	assert_int_equal(n, 1);
	assert_int_equal(seen.stage, RP_LINK_STAGE_UP);
	assert_false(seen.dialed);
	assert_int_equal(seen.frames_received, 3);
	assert_true(seen.bytes_received > 3 * RP_FRAME_HEADER_BYTES && seen.bytes_sent > 0);
	assert_string_equal(rp_link_stage_text(seen.stage), "up");
	assert_ptr_equal(seen.transport, &net.side[1].transport);
	n = 0;
	rp_links_lines(nodes[1].links, 999, see_line, &n);
	assert_int_equal(n, 0);
	world_end();
}

static void wrong_cluster_is_told(void **state)
{
	struct rp_links_config a = node_config(0), b = node_config(1);
	struct rp_link_info info;

	b.cluster_uuid[0]++;
	world_start(&a, &b);
	run_for(RP_NS_PER_S);
	assert_int_equal(nodes[0].ups + nodes[1].ups, 0);
	assert_true(COUNTERS(1)->refused[RP_LINK_REFUSAL_CLUSTER] > 0);
	assert_true(COUNTERS(0)->refused_out[RP_LINK_REFUSAL_CLUSTER] > 0);
	assert_int_equal(rp_links_info(nodes[0].links, NODE_B, &info), 0);
	assert_int_equal(info.last_refusal, RP_LINK_REFUSAL_CLUSTER);
	world_end();
}

static void dead_peer_is_known_in_time(void **state)
{
	const struct rp_links_config a = node_config(0), b = node_config(1);
	uint64_t cut;

	world_start(&a, &b);
	run_for(2 * RP_NS_PER_S);
	assert_true(nodes[0].bundle && nodes[1].bundle);
	assert_true(nodes[0].answered >= 3);
	net.hole = true;
	cut = now;
	while (nodes[0].bundle && now < cut + 10 * RP_NS_PER_S)
		run_for(10 * RP_NS_PER_MS);
	assert_int_equal(nodes[0].why, RP_LINK_DOWN_DEAD);
	assert_in_range(now - nodes[0].answered_ns, 3000 * RP_NS_PER_MS, 3020 * RP_NS_PER_MS);
	assert_true(now - cut <= 3020 * RP_NS_PER_MS);
	run_for(RP_NS_PER_S);
	assert_int_equal(nodes[1].bundle, 0);
	/* And it comes back when the network does. */
	net.hole = false;
	run_for(3 * RP_NS_PER_S);
	assert_true(nodes[0].bundle && nodes[1].bundle);
	assert_int_equal(nodes[0].ups, 2);
	world_end();
}

/* Something may drop the question for ECN: after some time a part of the dials may do without. */
static void ecn_is_doubted_after_a_while(void **state)
{
	struct rp_links_config a = node_config(0), b = node_config(1);

	a.conn.ecn = b.conn.ecn = RP_ECN_INSIST;
	world_start(&a, &b);
	run_for(RP_NS_PER_S);
	assert_int_equal(net.side[0].dial_options.ecn, RP_ECN_INSIST);
	net.hole = true;
	run_for(200 * RP_NS_PER_S);
	assert_in_range(net.side[0].ecn_dials[RP_ECN_ASK], 3, 20);
	assert_true(net.side[0].ecn_dials[RP_ECN_INSIST] > 2 * net.side[0].ecn_dials[RP_ECN_ASK]);
	net.hole = false;
	run_for(20 * RP_NS_PER_S);
	assert_true(nodes[0].bundle && nodes[1].bundle);
	world_end();
}

static void full_queue_pushes_back(void **state)
{
	const struct rp_links_config a = node_config(0), b = node_config(1);
	uint32_t sent = 0;
	struct rte_mbuf *m;

	world_start(&a, &b);
	run_for(50 * RP_NS_PER_MS);
	net.hole = true;
	for (; sent < 1000; sent++) {
		m = frame_make(sent);
		if (rp_links_send(nodes[0].links, NODE_B, nodes[0].bundle, 0, m) != 0)
			break;
	}
	assert_int_equal(sent, 64);
	assert_int_equal(rp_links_room(nodes[0].links, NODE_B, 0), 0);
	assert_int_equal(rp_links_send(nodes[0].links, NODE_B, nodes[0].bundle, 0, m), -EAGAIN);
	assert_int_equal(COUNTERS(0)->queue_full, 2);
	/* What another shard has posted goes beyond the bound, up to one of its own. */
	for (int i = 0; i < 3 * 64; i++) {
		struct rte_mbuf *posted = frame_make(64 + (uint32_t)i);

		assert_int_equal(
			rp_links_send_posted(nodes[0].links, NODE_B, nodes[0].bundle, 0, posted),
			0);
	}
	assert_int_equal(
		rp_links_send_posted(nodes[0].links, NODE_B, nodes[0].bundle, 0, m), -EAGAIN);
	assert_int_equal(rp_links_room(nodes[0].links, NODE_B, 0), 0);
	/* What the transport has no space for waits, too. */
	net.space_max = 12000;
	turn();
	assert_int_equal(nodes[0].rooms, 0);
	net.hole = false;
	for (int i = 0; i < 2000; i++)
		turn();
	assert_int_equal(nodes[0].rooms, 1);
	assert_int_equal(nodes[1].frames, 4 * 64);
	rte_pktmbuf_free(m);
	m = frame_make(4 * 64);
	assert_int_equal(rp_links_send(nodes[0].links, NODE_B, nodes[0].bundle, 0, m), 0);
	turn();
	turn();
	assert_int_equal(nodes[1].frames, 4 * 64 + 1);
	assert_int_equal(nodes[1].frame_bad, 0);
	world_end();
}

/* Heartbeats go ahead of what waits, however long that takes. */
static void a_long_queue_is_no_dead_peer(void **state)
{
	const struct rp_links_config a = node_config(0), b = node_config(1);

	world_start(&a, &b);
	run_for(50 * RP_NS_PER_MS);
	net.piece = 200;
	net.space_max = 4000;
	for (uint64_t end = now + 6 * RP_NS_PER_S; now < end; now += 5 * RP_NS_PER_MS) {
		struct rte_mbuf *m = frame_make(20);

		while (rp_links_send(nodes[0].links, NODE_B, nodes[0].bundle, 0, m) == 0)
			m = frame_make(20);
		rte_pktmbuf_free(m);
		turn();
		turn();
		assert_int_equal(nodes[0].downs, 0);
	}
	assert_true(COUNTERS(0)->pongs_received >= 10);
	world_end();
}

static void violation_closes_and_old_frames_are_refused(void **state)
{
	const struct rp_links_config a = node_config(0), b = node_config(1);
	uint32_t old;
	struct rte_mbuf *m;

	world_start(&a, &b);
	run_for(50 * RP_NS_PER_MS);
	old = nodes[0].bundle;
	nodes[1].violate_at = 3;
	for (uint32_t i = 0; i < 10; i++)
		assert_int_equal(rp_links_send(nodes[0].links, NODE_B, old, 0, frame_make(i)), 0);
	turn();
	turn();
	assert_int_equal(nodes[1].frames, 3);
	assert_int_equal(nodes[1].why, RP_LINK_DOWN_VIOLATION);
	turn();
	assert_int_equal(nodes[0].why, RP_LINK_DOWN_RESET);
	m = frame_make(0);
	assert_int_equal(rp_links_send(nodes[0].links, NODE_B, old, 0, m), -ENOTCONN);
	run_for(RP_NS_PER_S);
	assert_true(nodes[0].bundle && nodes[0].bundle != old);
	assert_int_equal(rp_links_send(nodes[0].links, NODE_B, old, 0, m), -ENOTCONN);
	assert_int_equal(COUNTERS(0)->stale_frames, 2);
	rte_pktmbuf_free(m);
	world_end();
}

static void bad_frames_close_the_bundle(void **state)
{
	const struct rp_links_config a = node_config(0), b = node_config(1);
	const struct rp_frame_header bad[] = {
		{.type = 0, .length = 1},
		{.type = RP_FRAME_BATCH, .length = 1},
		{.type = 200, .length = 1},
		{.type = RP_FRAME_PING, .length = 9},
		{.type = RP_FRAME_QACK, .length = RP_FRAME_LENGTH_MAX + 1},
		{.type = RP_FRAME_PONG, .length = 8},
	};

	for (size_t i = 0; i < RP_ARRAY_SIZE(bad); i++) {
		/* The PONG answers a PING that is ahead of the clock. */
		uint8_t bytes[RP_FRAME_HEADER_BYTES + 8] = {[31] = 0x7f};

		world_start(&a, &b);
		run_for(50 * RP_NS_PER_MS);
		rp_frame_header_write(&bad[i], bytes);
		assert_int_equal(rp_links_send(nodes[0].links, NODE_B, nodes[0].bundle, 0,
					 rp_mbuf_from(pool, bytes, sizeof(bytes))),
			0);
		turn();
		turn();
		assert_int_equal(nodes[1].bundle, 0);
		assert_int_equal(nodes[1].why, RP_LINK_DOWN_VIOLATION);
		assert_int_equal(COUNTERS(1)->downs[RP_LINK_DOWN_VIOLATION], 1);
		world_end();
	}
}

static void restarted_peer_supersedes(void **state)
{
	struct rp_links_config a = node_config(0), b = node_config(1);
	struct rp_links *dead;

	world_start(&a, &b);
	run_for(50 * RP_NS_PER_MS);
	/* A is killed: its connection says nothing more, and it comes back with another boot id. */
	dead = nodes[0].links;
	nodes[0].links = NULL;
	a.boot = 777;
	node_start(&nodes[2], 0, &a);
	run_for(100 * RP_NS_PER_MS);
	assert_true(nodes[2].bundle != 0);
	assert_int_equal(nodes[1].downs, 1);
	assert_int_equal(nodes[1].why, RP_LINK_DOWN_SUPERSEDED);
	assert_int_equal(nodes[1].ups, 2);
	rp_links_destroy(dead);
	world_end();
}

static void tiny_segments_do_not_eat_the_pool(void **state)
{
	static uint8_t bytes[RP_FRAME_HEADER_BYTES + RP_FRAME_LENGTH_MAX];
	const struct rp_frame_header h = {.type = RP_FRAME_QACK, .length = RP_FRAME_LENGTH_MAX};
	const struct rp_links_config a = node_config(0), b = node_config(1);

	world_start(&a, &b);
	run_for(50 * RP_NS_PER_MS);
	rp_frame_header_write(&h, bytes);
	assert_int_equal(rp_links_send(nodes[0].links, NODE_B, nodes[0].bundle, 0,
				 rp_mbuf_from(pool, bytes, sizeof(bytes))),
		0);
	rp_links_flush(nodes[0].links, now);
	net.piece = 1;
	for (int i = 0; i < 20000; i++) {
		fake_step(&net, now);
		assert_true(rte_mempool_avail_count(pool) > pool_start - 20);
	}
	assert_int_equal(nodes[1].frames, 1);
	world_end();
}

static void stop_sends_what_waits(void **state)
{
	const struct rp_links_config a = node_config(0), b = node_config(1);

	world_start(&a, &b);
	run_for(50 * RP_NS_PER_MS);
	for (uint32_t i = 0; i < 10; i++)
		assert_int_equal(
			rp_links_send(nodes[0].links, NODE_B, nodes[0].bundle, 0, frame_make(i)),
			0);
	rp_links_stop(nodes[0].links, now);
	assert_int_equal(nodes[0].why, RP_LINK_DOWN_STOPPED);
	run_for(100 * RP_NS_PER_MS);
	assert_int_equal(nodes[1].frames, 10);
	assert_int_equal(nodes[1].why, RP_LINK_DOWN_CLOSED);
	assert_int_equal(nodes[0].ups, 1);
	assert_int_equal(net.alive, 0);
	world_end();
}

static void removed_peer_is_gone(void **state)
{
	const struct rp_links_config a = node_config(0), b = node_config(1);

	world_start(&a, &b);
	run_for(50 * RP_NS_PER_MS);
	rp_links_remove_peer(nodes[1].links, NODE_A, now);
	assert_int_equal(nodes[1].why, RP_LINK_DOWN_REMOVED);
	run_for(2 * RP_NS_PER_S);
	assert_int_equal(nodes[0].bundle, 0);
	assert_true(COUNTERS(1)->refused[RP_LINK_REFUSAL_UNKNOWN_PEER] > 0);
	assert_true(COUNTERS(0)->refused_out[RP_LINK_REFUSAL_UNKNOWN_PEER] > 0);
	world_end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(both_up_and_frames_cross),
		cmocka_unit_test(one_turn_is_one_send),
		cmocka_unit_test(secrets),
		cmocka_unit_test(secrets_change_in_place),
		cmocka_unit_test(counters_tell_what_went_by),
		cmocka_unit_test(reasons_of_the_transport),
		cmocka_unit_test(no_buffers_is_counted_and_passes),
		cmocka_unit_test(a_link_is_shown_in_each_stage),
		cmocka_unit_test(wrong_cluster_is_told),
		cmocka_unit_test(dead_peer_is_known_in_time),
		cmocka_unit_test(ecn_is_doubted_after_a_while),
		cmocka_unit_test(full_queue_pushes_back),
		cmocka_unit_test(a_long_queue_is_no_dead_peer),
		cmocka_unit_test(violation_closes_and_old_frames_are_refused),
		cmocka_unit_test(bad_frames_close_the_bundle),
		cmocka_unit_test(restarted_peer_supersedes),
		cmocka_unit_test(tiny_segments_do_not_eat_the_pool),
		cmocka_unit_test(stop_sends_what_waits),
		cmocka_unit_test(removed_peer_is_gone),
	};

	if (world_setup() < 0)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
