/* SPDX-License-Identifier: Apache-2.0 */
#include "world.h"

#define COUNTERS(i, s) rp_deliver_counters(tnodes[i].d[s])

static struct rp_deliver_info info_of(int i, uint32_t s)
{
	struct rp_deliver_info info;

	rp_deliver_info(tnodes[i].d[s], 0, &info);
	return info;
}

static void streams_open_carry_and_close(void **state)
{
	struct rp_deliver_config c = world_config();
	struct tnode *a = &tnodes[0];

	world_start(&c, 1, 1);
	assert_int_equal(flow_send(a, &a->flows[0]), -ENETUNREACH);
	assert_false(rp_deliver_reachable(a->d[0], 101));
	world_up();
	assert_true(rp_deliver_reachable(a->d[0], 101));
	for (int i = 0; i < 100; i++) {
		assert_int_equal(flow_send(a, &a->flows[0]), 0);
		assert_int_equal(flow_send(a, &a->flows[1]), 0);
	}
	world_run(50 * MS);
	assert_int_equal(a->took, 200);
	assert_int_equal(a->flows[0].received, 100);
	assert_int_equal(COUNTERS(0, 0)->forwards_streamed, 100);
	assert_int_equal(COUNTERS(0, 0)->deliveries_streamed, 100);
	assert_int_equal(COUNTERS(0, 0)->forwards_unary + COUNTERS(0, 0)->deliveries_unary, 0);
	assert_int_equal(COUNTERS(0, 0)->streams_opened, 2);
	assert_int_equal(info_of(0, 0).streams_out, 2);
	assert_int_equal(info_of(1, 0).streams_in, 2);
	assert_int_equal(info_of(1, 0).credit_given, 2 * 65536);
	/* Cumulative: far fewer answers than messages. */
	assert_true(COUNTERS(1, 0)->frames_out < 60);
	/* Idle: first the credit goes back, then the stream closes. */
	world_run(1100 * MS);
	assert_int_equal(info_of(1, 0).credit_given, 0);
	assert_int_equal(COUNTERS(0, 0)->credit_returns, 2);
	assert_int_equal(flow_send(a, &a->flows[0]), 0);
	world_run(20 * MS);
	assert_int_equal(a->flows[0].received, 101);
	assert_int_equal(COUNTERS(0, 0)->streams_opened, 2);
	world_run(32 * RP_NS_PER_S);
	assert_int_equal(COUNTERS(0, 0)->idle_closes, 2);
	assert_int_equal(info_of(0, 0).streams_out + info_of(1, 0).streams_in, 0);
	assert_true(rp_deliver_next_deadline(a->d[0]) == RP_NEVER);
	/* And opens again with the next message. */
	assert_int_equal(flow_send(a, &a->flows[0]), 0);
	world_run(20 * MS);
	assert_int_equal(a->flows[0].received, 102);
	assert_int_equal(COUNTERS(0, 0)->streams_opened, 3);
	assert_int_equal(tnodes[0].violations + tnodes[1].violations, 0);
	world_end();
}

/* Sends until a message of at least `size` bytes has gone. */
static void send_large(struct tnode *t, struct flow_model *f, uint32_t size)
{
	f->size_max = size;
	for (;;) {
		bool large = size_of(f, f->next_seq) > size / 2;

		assert_int_equal(flow_send(t, f), 0);
		if (large)
			return;
	}
}

static void large_messages_let_small_ones_pass(void **state)
{
	struct rp_deliver_config c = world_config();
	struct tnode *a = &tnodes[0];
	uint64_t before;

	c.peer_budget_bytes = 2 * 65536;
	world_start(&c, 1, 1);
	a->out.cap = 4;
	world_up();
	send_large(a, &a->flows[0], 1500000);
	world_turn(1);
	for (int i = 0; i < 5; i++) {
		world_turn(3);
		now += MS;
	}
	before = a->flows[0].answered;
	assert_true(before < a->flows[0].next_seq);
	assert_int_equal(flow_send(a, &a->flows[2]), 0);
	for (int i = 0; i < 12; i++) {
		world_turn(3);
		now += MS;
	}
	/* The small one came in between the chunks of the large one. */
	assert_int_equal(a->flows[2].received, 1);
	assert_true(a->flows[0].answered < a->flows[0].next_seq);
	world_run(200 * MS);
	assert_int_equal(a->flows[0].answered, a->flows[0].next_seq);
	assert_true(COUNTERS(1, 0)->chunks_moved > 5);
	/* What the large one had beyond its share went back. */
	assert_true(info_of(1, 0).credit_given <= 65536);
	assert_int_equal(tnodes[0].violations + tnodes[1].violations, 0);
	world_end();
}

static void small_world(struct rp_deliver_config *c, uint32_t budget)
{
	*c = world_config();
	c->peer_budget_bytes = budget;
	world_start(c, 1, 1);
	for (unsigned q = 0; q < QUEUES; q++)
		tnodes[0].flows[q].size_max = 60;
	world_up();
}

/* Windows for all of them would be many times the budget. */
static void many_streams_of_small_messages_announce_none(void **state)
{
	struct rp_deliver_config c;
	struct tnode *a = &tnodes[0];

	small_world(&c, 2 * 65536);
	for (int i = 0; i < 20; i++) {
		for (unsigned q = 0; q < QUEUES; q++)
			assert_int_equal(flow_send(a, &a->flows[q]), 0);
		world_run(10 * MS);
	}
	assert_int_equal(a->took, 20 * QUEUES);
	assert_int_equal(COUNTERS(0, 0)->streams_opened, QUEUES);
	/* One frame for each message: none waited for credit. */
	assert_int_equal(COUNTERS(0, 0)->forwards_streamed + COUNTERS(0, 0)->deliveries_streamed,
		20 * QUEUES);
	assert_int_equal(COUNTERS(0, 0)->frames_out, 20 * QUEUES + QUEUES);
	assert_true(info_of(1, 0).credit_given <= c.peer_budget_bytes);
	assert_int_equal(tnodes[0].violations + tnodes[1].violations, 0);
	world_end();
}

static void messages_through(struct tnode *a, struct flow_model *f, int n)
{
	for (int i = 0; i < n; i++) {
		assert_int_equal(flow_send(a, f), 0);
		if (i % 64 == 63)
			world_run(10 * MS);
	}
	world_run(10 * MS);
}

static void shares_grow_with_use_and_shrink_with_company(void **state)
{
	struct rp_deliver_config c;
	struct tnode *a = &tnodes[0];

	small_world(&c, 2 * 65536);
	/* So that it is short of bytes before it is short of messages. */
	a->flows[0].size_max = 600;
	messages_through(a, &a->flows[0], 1);
	assert_int_equal(info_of(1, 0).credit_given, 2 * 65536 / 8);
	messages_through(a, &a->flows[0], 3000);
	assert_int_equal(info_of(1, 0).credit_given, 65536);
	for (unsigned q = 1; q < QUEUES; q++)
		messages_through(a, &a->flows[q], 1);
	/* It has been promised so much, and gives it up as it uses it. */
	assert_true(info_of(1, 0).credit_given > 65536);
	messages_through(a, &a->flows[0], 320);
	world_run(200 * MS);
	assert_true(info_of(1, 0).credit_given < 65536);
	assert_int_equal(a->took, 3321 + QUEUES - 1);
	assert_int_equal(tnodes[0].violations + tnodes[1].violations, 0);
	world_end();
}

static void a_held_queue_holds_only_itself(void **state)
{
	struct rp_deliver_config c = world_config();
	struct tnode *a = &tnodes[0], *b = &tnodes[1];

	c.window_messages = 256;
	c.unary_fallback = false;
	world_start(&c, 1, 1);
	world_up();
	b->hold_queue = 0;
	for (int i = 0; i < 400; i++)
		assert_int_equal(flow_send(a, &a->flows[0]), 0);
	world_run(100 * MS);
	for (int i = 0; i < 400; i++)
		assert_int_equal(flow_send(a, &a->flows[2]), 0);
	world_run(100 * MS);
	assert_int_equal(a->flows[2].received, 400);
	assert_int_equal(a->flows[0].received, 0);
	/* What is held is bounded by the credit, in messages and in bytes. */
	assert_true(COUNTERS(0, 0)->forwards_streamed - 400 <= 256);
	world_run(20 * RP_NS_PER_S);
	b->hold_queue = -1;
	rp_deliver_resume(b->d[0], now);
	world_run(100 * MS);
	assert_int_equal(a->flows[0].received, 400);
	assert_int_equal(a->took, 800);
	world_end();
}

static void refusals_say_why(void **state)
{
	struct rp_deliver_config c = world_config();
	struct tnode *a = &tnodes[0], *b = &tnodes[1];
	struct rp_qmsg m;

	world_start(&c, 1, 1);
	world_up();
	world_rpc(true);
	assert_int_equal(flow_send(a, &a->flows[0]), 0);
	world_run(10 * MS);
	b->answer = RP_Q_MOVED;
	assert_int_equal(flow_send(a, &a->flows[0]), 0);
	assert_int_equal(flow_send(a, &a->flows[0]), 0);
	world_run(10 * MS);
	assert_int_equal(a->took, 1);
	assert_int_equal(a->refused, 2);
	assert_int_equal(a->refused_status, RP_Q_MOVED);
	assert_int_equal(a->refused_epoch, 77);
	assert_int_equal(a->refused_dispatcher, 7777);
	assert_int_equal(a->refused_bytes, size_of(&a->flows[0], 2) + 2);
	assert_int_equal(COUNTERS(0, 0)->refused[RP_Q_MOVED], 2);
	assert_int_equal(COUNTERS(1, 0)->refused_here[RP_Q_MOVED], 2);
	/* By unary the answer is the same. */
	world_down();
	b->answer = RP_Q_QUEUE_DEPTH;
	assert_int_equal(flow_send(a, &a->flows[1]), 0);
	world_run(10 * MS);
	assert_int_equal(a->refused_status, RP_Q_QUEUE_DEPTH);
	assert_int_equal(COUNTERS(0, 0)->refused[RP_Q_QUEUE_DEPTH], 1);
	/* What is wrong with a message is said at once. */
	m = (struct rp_qmsg){
		.type = RP_QMSG_FORWARD, .name = (const uint8_t *)"x", .name_length = 0};
	assert_int_equal(rp_deliver_send(a->d[0], 101, &m, now), -EINVAL);
	m.name_length = 1;
	m.tail_length = 1;
	assert_int_equal(rp_deliver_send(a->d[0], 101, &m, now), -EINVAL);
	world_end();
}

static void too_large_is_refused_at_both_ends(void **state)
{
	struct rp_deliver_config c = world_config();
	struct tnode *a = &tnodes[0], *b = &tnodes[1];
	struct rp_deliver *small;
	uint32_t large = 0;

	/* The receiver's limit is lower than the sender's. */
	world_start(&c, 1, 1);
	c.message_bytes_max = 100000;
	c.node = b->id;
	c.shards = 1;
	small = rp_deliver_create(&c, &world_ops, b);
	rp_deliver_destroy(b->d[0]);
	b->d[0] = small;
	world_up();
	send_large(a, &a->flows[0], 1000000);
	for (int i = 0; i < 10; i++)
		assert_int_equal(flow_send(a, &a->flows[2]), 0);
	world_run(100 * MS);
	for (uint64_t seq = 0; seq < a->flows[0].next_seq; seq++)
		large += size_of(&a->flows[0], seq) > 100000;
	assert_true(large > 0);
	assert_int_equal(a->refused, large);
	assert_int_equal(a->refused_status, RP_Q_TOO_LARGE);
	assert_int_equal(a->flows[2].received, 10);
	assert_int_equal(tnodes[0].violations + tnodes[1].violations, 0);
	/* The other way it is not even taken. */
	b->flows[0].size_max = 1000000;
	for (;;) {
		int rc = flow_send(b, &b->flows[0]);

		if (rc != 0) {
			assert_int_equal(rc, -EMSGSIZE);
			break;
		}
	}
	/* A higher limit of a running node, and a lower one, which new messages meet elsewhere. */
	rp_deliver_raise_message_bytes(b->d[0], 1572864);
	assert_int_equal(flow_send(b, &b->flows[0]), 0);
	rp_deliver_raise_message_bytes(b->d[0], 1000);
	assert_int_equal(flow_send(b, &b->flows[0]), 0);
	world_run(100 * MS);
	failures = 0; /* what follows a refusal has a gap before it */
	world_end();
}

static void limits_push_back(void **state)
{
	struct rp_deliver_config c = world_config();
	struct tnode *a = &tnodes[0];
	int sent = 0, rc = 0;

	c.streams_max = 3;
	c.stream_messages_max = 100;
	c.peer_messages_max = 150;
	world_start(&c, 1, 1);
	world_up();
	while ((rc = flow_send(a, &a->flows[0])) == 0)
		sent++;
	assert_int_equal(rc, -ENOBUFS);
	assert_int_equal(sent, 100);
	while (flow_send(a, &a->flows[2]) == 0)
		sent++;
	assert_int_equal(sent, 150);
	assert_int_equal(COUNTERS(0, 0)->queue_full, 2);
	world_turn(1);
	a->room = false;
	world_run(50 * MS);
	assert_true(a->room);
	/* Streams: the fourth queue gets none, and says so; with RPC it goes that way. */
	assert_int_equal(flow_send(a, &a->flows[4]), 0);
	assert_int_equal(flow_send(a, &a->flows[6]), -ENOBUFS);
	world_rpc(true);
	assert_int_equal(flow_send(a, &a->flows[6]), 0);
	world_run(50 * MS);
	assert_int_equal(a->flows[6].received, 1);
	assert_int_equal(COUNTERS(0, 0)->fallbacks[RP_DELIVER_FALLBACK_NO_STREAM], 1);
	assert_int_equal(COUNTERS(0, 0)->forwards_unary, 1);
	world_end();
}

static void frames_that_are_out_are_bounded(void **state)
{
	struct rp_deliver_config c = world_config();
	struct tnode *a = &tnodes[0];
	uint32_t most = 0;

	c.peer_frames_max = 20;
	world_start(&c, 1, 1);
	a->out.cap = 4096;
	world_up();
	for (int q = 0; q < QUEUES; q++) {
		a->flows[q].size_max = 100000;
		for (int i = 0; i < 40; i++)
			assert_int_equal(flow_send(a, &a->flows[q]), 0);
	}
	for (int i = 0; i < 3000; i++, now += MS) {
		world_turn(3);
		most = RP_MAX(most, a->out.tail - a->out.head);
	}
	world_run(500 * MS);
	assert_int_equal(a->took, QUEUES * 40);
	/* Heads, OPENs, and what the credit of those that have begun lets through. */
	assert_in_range(most, 20, 20 + QUEUES + 40);
	assert_false(rp_deliver_poll(a->d[0], now));
	world_end();
}

static void a_refused_stream_goes_by_unary(void **state)
{
	struct rp_deliver_config c = world_config();
	struct tnode *a = &tnodes[0], *b = &tnodes[1];
	struct rp_deliver *small;

	world_start(&c, 1, 1);
	c.streams_max = 1;
	c.node = b->id;
	c.shards = 1;
	small = rp_deliver_create(&c, &world_ops, b);
	rp_deliver_destroy(b->d[0]);
	b->d[0] = small;
	world_up();
	for (int i = 0; i < 5; i++)
		assert_int_equal(flow_send(a, &a->flows[0]), 0);
	for (int i = 0; i < 5; i++)
		assert_int_equal(flow_send(a, &a->flows[2]), 0);
	world_run(50 * MS);
	assert_int_equal(a->flows[0].received, 5);
	assert_int_equal(a->refused, 5);
	assert_int_equal(a->refused_status, RP_Q_LIMIT);
	a->flows[2].expected = 5;
	world_rpc(true);
	for (int i = 0; i < 5; i++)
		assert_int_equal(flow_send(a, &a->flows[2]), 0);
	world_run(100 * MS);
	assert_int_equal(a->flows[2].received, 5);
	assert_true(COUNTERS(0, 0)->fallbacks[RP_DELIVER_FALLBACK_OPEN_REFUSED] > 0);
	assert_true(COUNTERS(0, 0)->forwards_unary >= 1);
	world_end();
}

static int control_send(struct tnode *t, enum rp_qmsg_type type, const char *queue, uint64_t token,
	struct rte_mbuf *payload)
{
	const struct rp_qmsg m = {
		.type = type,
		.name = (const uint8_t *)queue,
		.name_length = (uint16_t)strlen(queue),
		.hash = rp_queue_hash(queue, strlen(queue)),
		.idx = token,
		.token = token,
		.payload = payload,
		.tail_length = payload ? 3 : 0,
	};
	int rc = rp_deliver_send(shard_of(t, m.hash), t->other->id, &m, now);

	if (rc != 0)
		rte_pktmbuf_free(payload);
	return rc;
}

static void control_frames_need_no_credit(void **state)
{
	struct rp_deliver_config c = world_config();
	struct tnode *a = &tnodes[0], *b = &tnodes[1];
	static uint8_t bytes[300000];

	world_start(&c, 1, 2);
	world_up();
	b->hold_queue = 0;
	for (int i = 0; i < 300; i++)
		assert_int_equal(flow_send(a, &a->flows[0]), 0);
	for (uint64_t i = 1; i <= 500; i++)
		assert_int_equal(
			control_send(a, RP_QMSG_QACK, i % 2 ? "queue-0" : "other", i, NULL), 0);
	world_run(50 * MS);
	assert_int_equal(b->control_received, 500);
	assert_int_equal(info_of(0, 0).messages, 300);
	/* An answer with a message of several chunks. */
	for (uint64_t i = 1; i <= 3; i++)
		assert_int_equal(control_send(b, RP_QMSG_REPLY, "queue-0", i,
					 rp_mbuf_from(pool, bytes, sizeof(bytes))),
			0);
	world_run(50 * MS);
	assert_int_equal(a->control_received, 3);
	assert_int_equal(a->last_reply_bytes, sizeof(bytes));
	assert_int_equal(a->last_reply_token, 3);
	assert_int_equal(info_of(1, 0).messages + info_of(1, 1).messages, 0);
	world_end();
}

static void control_is_sent_again_after_a_loss(void **state)
{
	struct rp_deliver_config c = world_config();
	struct tnode *a = &tnodes[0], *b = &tnodes[1];
	uint64_t next = 1;

	world_start(&c, 1, 2);
	world_up();
	world_rpc(true);
	for (int round = 0; round < 30; round++) {
		for (int i = 0; i < 20; i++)
			assert_int_equal(
				control_send(a, RP_QMSG_ACCEPTED, "queue-3", next++, NULL), 0);
		world_turn(1 + (uint32_t)round % 7);
		world_down();
		if (round % 2)
			world_run((uint64_t)round * MS);
		world_up();
	}
	world_run(500 * MS);
	assert_int_equal(b->control_last, next - 1);
	assert_true(b->control_repeats > 0);
	assert_true(COUNTERS(0, 0)->controls_unary > 0 && COUNTERS(0, 0)->controls_framed > 0);
	assert_int_equal(info_of(0, 0).messages, 0);
	/* Without RPC they come back. */
	world_rpc(false);
	assert_int_equal(control_send(a, RP_QMSG_ACCEPTED, "queue-3", next++, NULL), 0);
	world_turn(0);
	world_down();
	assert_int_equal(a->control_lost, 1);
	world_end();
}

static void a_removed_peer_gives_everything_back(void **state)
{
	struct rp_deliver_config c = world_config();
	struct tnode *a = &tnodes[0];

	world_start(&c, 1, 1);
	world_up();
	for (int i = 0; i < 50; i++)
		assert_int_equal(flow_send(a, &a->flows[i % 6]), 0);
	world_turn(2);
	rp_deliver_peer_remove(a->d[0], 101, now);
	assert_int_equal(a->lost + a->took, 50);
	assert_int_equal(flow_send(a, &a->flows[0]), -ENETUNREACH);
	world_end();
}

static bool is_queue_0(void *ctx, struct rp_span name, uint64_t node)
{
	return node == 101 && name.length == 7 && memcmp(name.data, "queue-0", 7) == 0;
}

/* Its keys may not go there any more: its streams close, what is not answered comes back, and
 * others go on. When they may again, nothing comes twice that does not say so. */
static void a_queue_is_parted(void **state)
{
	for (int unary = 0; unary < 2; unary++) {
		struct rp_deliver_config c = world_config();
		struct tnode *a = &tnodes[0];

		world_start(&c, 1, 1);
		world_up();
		if (unary) {
			world_rpc(true);
			world_down();
		}
		for (int i = 0; i < 200; i++) {
			for (int q = 0; q < 3; q++)
				assert_int_equal(flow_send(a, &a->flows[q]), 0);
		}
		world_turn(2);
		rp_deliver_part(a->d[0], is_queue_0, NULL, now);
		assert_true(a->lost > 0);
		assert_int_equal(a->flows[0].answered + a->flows[1].answered + a->lost, 400);
		world_run(3 * RP_NS_PER_S);
		assert_int_equal(a->flows[2].received, 200);
		assert_int_equal(info_of(0, 0).streams_out, !unary);
		assert_int_equal(info_of(1, 0).streams_in, !unary);
		for (int q = 0; q < 2; q++) {
			while (a->flows[q].again_head != a->flows[q].again_tail)
				assert_int_equal(flow_send(a, &a->flows[q]), 0);
		}
		world_run(3 * RP_NS_PER_S);
		assert_int_equal(a->flows[0].received, 200);
		assert_int_equal(a->flows[1].received, 200);
		assert_int_equal(tnodes[0].violations + tnodes[1].violations, 0);
		world_end();
	}
}

static void configurations_are_checked(void **state)
{
	struct rp_deliver_config c = world_config(), bad;

	c.node = 1;
	c.shards = 1;
	bad = c;
	bad.window_bytes = bad.peer_budget_bytes + 1;
	assert_null(rp_deliver_create(&bad, &world_ops, NULL));
	assert_int_equal(errno, EINVAL);
	bad = c;
	bad.shard = 1;
	assert_null(rp_deliver_create(&bad, &world_ops, NULL));
	bad = c;
	bad.streams_max = 1 << 23;
	assert_null(rp_deliver_create(&bad, &world_ops, NULL));
	rp_deliver_destroy(NULL);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(streams_open_carry_and_close),
		cmocka_unit_test(large_messages_let_small_ones_pass),
		cmocka_unit_test(many_streams_of_small_messages_announce_none),
		cmocka_unit_test(shares_grow_with_use_and_shrink_with_company),
		cmocka_unit_test(a_held_queue_holds_only_itself),
		cmocka_unit_test(refusals_say_why),
		cmocka_unit_test(too_large_is_refused_at_both_ends),
		cmocka_unit_test(limits_push_back),
		cmocka_unit_test(frames_that_are_out_are_bounded),
		cmocka_unit_test(a_refused_stream_goes_by_unary),
		cmocka_unit_test(control_frames_need_no_credit),
		cmocka_unit_test(control_is_sent_again_after_a_loss),
		cmocka_unit_test(a_removed_peer_gives_everything_back),
		cmocka_unit_test(a_queue_is_parted),
		cmocka_unit_test(configurations_are_checked),
	};

	if (world_setup(argc, argv) < 0)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
