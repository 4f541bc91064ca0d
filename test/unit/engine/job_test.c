/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What a node's control does with outputs of the requests that its consumers hold: several under
 * way, in their order whatever is refused, and of nobody but the consumer's user.
 */

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include <rte_eal.h>
#include <rte_mbuf.h>

#include <base/bytes.h>
#include <base/mbuf.h>
#include <engine/control_engine.h>
#include <process/meta.h>

#define REQUEST 7777
#define IDX 42
#define CONSUMER 5
#define QUEUE "work"
#define REPLY "replies"
#define SENT_MAX 512

static const uint8_t uuid[RP_UUID_BYTES] = {1, 2, 3, 4, 5, 6, 7, 8, 9};

struct sent {
	struct rp_xmsg m;
	struct rp_qmsg_process process;
	uint32_t stream, number;
	char value[16]; /**< its beginning */
	bool answered;
};

static struct world {
	struct rte_mempool *pool;
	struct rp_control *c;
	struct sent sent[SENT_MAX];
	unsigned sent_count, answered;
	struct {
		uint64_t token;
		enum rp_qstatus status;
	} answers[SENT_MAX];
	unsigned answer_count;
	uint64_t now_ns;
} w;

static struct rp_span span(const char *text)
{
	return (struct rp_span){(const uint8_t *)text, strlen(text)};
}

static uint32_t tokens(void *ctx, unsigned shard, enum rp_xmsg_type type)
{
	return 1000;
}

static int post(void *ctx, unsigned shard, const struct rp_xmsg *m)
{
	struct sent *s = &w.sent[w.sent_count];
	uint8_t bytes[1024];
	size_t length = m->m ? rp_mbuf_copy_out(m->m, 0, bytes, sizeof(bytes)) : 0;
	size_t head = m->name_length;

	rte_pktmbuf_free(m->m);
	if (m->type != RP_XMSG_PUT && m->type != RP_XMSG_ACK && m->type != RP_XMSG_BEGUN &&
		m->type != RP_XMSG_FAIL && m->type != RP_XMSG_REJECT)
		return 0;
	assert_true(w.sent_count < SENT_MAX);
	*s = (struct sent){.m = *m};
	if (m->type == RP_XMSG_PUT) {
		rp_xmsg_process_read(m->value, &s->process);
		head += m->tail_length;
		rp_meta_number_read((struct rp_span){bytes + head, s->process.meta_length},
			&s->stream, &s->number);
		head += s->process.meta_length;
	}
	memcpy(s->value, bytes + head, RP_MIN(length - head, sizeof(s->value) - 1));
	w.sent_count++;
	return 0;
}

static void queue_answer(void *ctx, uint64_t token, const struct rp_control_answer *a)
{
	assert_true(w.answer_count < SENT_MAX);
	w.answers[w.answer_count].token = token;
	w.answers[w.answer_count++].status = a->status;
}

static int deliver(void *ctx, uint64_t consumer, const struct rp_control_delivery *d)
{
	return 0;
}

static int peer_call(void *ctx, rp_repl_peer_id peer, enum rp_repl_kind kind, struct rp_span bytes,
	uint64_t token)
{
	return -1;
}

static const struct rp_control_ops ops = {
	.tokens = tokens,
	.post = post,
	.queue_answer = queue_answer,
	.deliver = deliver,
	.peer_call = peer_call,
};

static struct rp_repl_now now(void)
{
	return (struct rp_repl_now){.ns = w.now_ns, .wall_us = 1000000000 + w.now_ns / 1000};
}

/* A consumer of that user holds a request. */
static int setup_of(uint64_t user)
{
	struct rp_control_config config = {
		.self = {.node = 1, .boot = 9, .per_peer = 1, .shards = 1},
		.cluster_uuid = "a cluster's uuid",
		.shards = 1,
		.kv = {.initial_revision = 1},
		.message_bytes = 4 << 20,
		.pool = w.pool,
	};
	struct rp_meta meta = {.reply_to = span(REPLY)};
	struct rp_qmsg_process p = {.kind = RP_PROCESS_REQUEST, .request = REQUEST};
	uint8_t bytes[1024] = "t1";
	struct rp_xmsg m = {
		.type = RP_XMSG_DELIVERY,
		.token = CONSUMER | 1ull << 63,
		.idx = IDX,
		.alloc_node = REQUEST,
		.tail_length = 2,
		.revision = 5,
		.node = 60 * RP_NS_PER_S,
	};
	int64_t revision;

	w = (struct world){.pool = w.pool, .now_ns = RP_NS_PER_S};
	w.c = rp_control_create(&config, &ops, NULL);
	assert_non_null(w.c);
	assert_int_equal(rp_control_consumer_open(w.c, CONSUMER, span(QUEUE),
				 rp_queue_hash(QUEUE, strlen(QUEUE)), uuid, 0, &revision, now()),
		0);
	rp_control_consumer_user(w.c, CONSUMER, user);
	p.meta_length = (uint16_t)rp_meta_write(&meta, bytes + 2);
	m.value = rp_xmsg_process(&p);
	m.m = rp_mbuf_from(w.pool, bytes, 2u + p.meta_length + 1);
	rp_control_on_xmsg(w.c, 0, &m, now());
	return 0;
}

static int setup(void **state)
{
	return setup_of(0);
}

static int teardown(void **state)
{
	rp_control_destroy(w.c);
	assert_int_equal(rte_mempool_avail_count(w.pool), w.pool->size);
	return 0;
}

static void put_by(uint64_t user, uint64_t token, const char *value)
{
	const struct rp_control_queue_op op = {
		.type = RP_XMSG_PUT,
		.hash = rp_queue_hash(REPLY, strlen(REPLY)),
		.name = span(REPLY),
		.tail = span("t1"),
		.value = span(value),
		.user = user,
	};

	assert_int_equal(rp_control_queue_op(w.c, &op, token, now()), 0);
}

static void put(uint64_t token, const char *value)
{
	put_by(0, token, value);
}

/* The next that waits for an answer gets this one. */
static struct sent *answer_next(enum rp_qstatus status)
{
	struct sent *s = NULL;
	struct rp_xmsg m = {.type = RP_XMSG_ANSWER, .status = (uint16_t)status, .count = 1};

	for (unsigned i = 0; i < w.sent_count && !s; i++) {
		if (!w.sent[i].answered && w.sent[i].m.type != RP_XMSG_BEGUN &&
			w.sent[i].m.type != RP_XMSG_FAIL)
			s = &w.sent[i];
	}
	assert_non_null(s);
	s->answered = true;
	m.token = s->m.token;
	rp_control_on_xmsg(w.c, 0, &m, now());
	return s;
}

static unsigned outs(void)
{
	unsigned n = 0;

	for (unsigned i = 0; i < w.sent_count; i++)
		n += !w.sent[i].answered && w.sent[i].m.type == RP_XMSG_PUT;
	return n;
}

static void answered(unsigned at, uint64_t token, enum rp_qstatus status)
{
	assert_true(at < w.answer_count);
	assert_int_equal(w.answers[at].token, token);
	assert_string_equal(rp_qstatus_name(w.answers[at].status), rp_qstatus_name(status));
}

/* They do not wait for each other's answers, and the last waits for them all. */
static void test_several_under_way(void **state)
{
	put(1, "a");
	put(2, "b");
	put(3, "c");
	put(4, "{\"v\":1,\"final\":true}");
	assert_int_equal(w.sent_count, 4); /* that it has begun, and three outputs */
	assert_int_equal(w.sent[0].m.type, RP_XMSG_BEGUN);
	for (unsigned i = 1; i <= 3; i++) {
		assert_int_equal(w.sent[i].process.kind, RP_PROCESS_OUTPUT);
		assert_int_equal(w.sent[i].number, i);
		assert_int_equal(w.sent[i].stream, w.sent[1].stream);
		assert_int_equal(w.sent[i].value[0], 'a' + (int)i - 1);
	}
	answer_next(RP_Q_OK);
	answer_next(RP_Q_OK);
	assert_int_equal(w.sent_count, 4);
	answer_next(RP_Q_OK);
	assert_int_equal(w.sent_count, 5);
	assert_int_equal(w.sent[4].m.type, RP_XMSG_ACK);
	answer_next(RP_Q_OK);
	for (unsigned i = 0; i < 4; i++)
		answered(i, i + 1, RP_Q_OK);
}

static void test_bounds(void **state)
{
	static char large[200001];

	for (unsigned i = 0; i < 100; i++)
		put(1 + i, "x");
	assert_int_equal(outs(), 64);
	answer_next(RP_Q_OK);
	assert_int_equal(outs(), 64);
	for (unsigned i = 0; i < 99; i++)
		answer_next(RP_Q_OK);
	assert_int_equal(outs(), 0);
	memset(large, 'y', sizeof(large) - 1);
	put(200, large);
	put(201, large);
	put(202, "x");
	assert_int_equal(outs(), 1);
	answer_next(RP_Q_OK);
	assert_int_equal(outs(), 2);
	answer_next(RP_Q_OK);
	answer_next(RP_Q_OK);
}

/* What was refused, and what comes back behind it, goes again in the order in which it was put. */
static void test_refused_in_the_middle(void **state)
{
	uint32_t first;

	put(1, "a");
	put(2, "b");
	put(3, "c");
	first = w.sent[1].stream;
	answer_next(RP_Q_OK);
	answer_next(RP_Q_BUSY);
	put(4, "d");
	assert_int_equal(outs(), 1);
	answer_next(RP_Q_BUSY);
	assert_int_equal(outs(), 0);
	assert_int_equal(w.answer_count, 1);
	/* The requester reads again. */
	rp_control_on_xmsg(w.c, 0,
		&(struct rp_xmsg){.type = RP_XMSG_OUTPUT_ROOM, .alloc_node = REQUEST}, now());
	assert_int_equal(outs(), 3);
	for (unsigned i = 0; i < 3; i++) {
		const struct sent *s = &w.sent[w.sent_count - 3 + i];

		assert_int_equal(s->value[0], 'b' + (int)i);
		assert_int_equal(s->number, i + 1);
		assert_int_not_equal(s->stream, first);
	}
	for (unsigned i = 0; i < 3; i++)
		answer_next(RP_Q_OK);
	for (unsigned i = 0; i < 4; i++)
		answered(i, i + 1, RP_Q_OK);
}

/* Its word may be lost: then it is asked, with little if the output is large. */
static void test_asked_when_nothing_is_heard(void **state)
{
	static char large[10001];

	memset(large, 'y', sizeof(large) - 1);
	put(1, large);
	answer_next(RP_Q_BUSY);
	rp_control_run(w.c, now());
	assert_int_equal(outs(), 0);
	w.now_ns += 200 * RP_NS_PER_MS;
	assert_true(rp_control_run(w.c, now()) > 0);
	assert_int_equal(outs(), 1);
	assert_int_equal(w.sent[w.sent_count - 1].process.kind, RP_PROCESS_PROBE);
	answer_next(RP_Q_OK);
	assert_int_equal(outs(), 1);
	assert_int_equal(w.sent[w.sent_count - 1].process.kind, RP_PROCESS_OUTPUT);
	answer_next(RP_Q_OK);
	answered(0, 1, RP_Q_OK);
}

/* Nobody knows what became of one: those behind it are a stream of their own. */
static void test_unreachable(void **state)
{
	put(1, "a");
	put(2, "b");
	answer_next(RP_Q_UNREACHABLE);
	answered(0, 1, RP_Q_UNREACHABLE);
	assert_int_equal(outs(), 1);
	answer_next(RP_Q_BUSY);
	w.now_ns += 200 * RP_NS_PER_MS;
	rp_control_run(w.c, now());
	assert_int_equal(outs(), 1);
	assert_int_equal(w.sent[w.sent_count - 1].number, 1);
	assert_int_equal(w.sent[w.sent_count - 1].value[0], 'b');
	answer_next(RP_Q_OK);
	answered(1, 2, RP_Q_OK);
}

/* It is taken back: what is not out is refused at once, what is out by its answer. */
static void test_over(void **state)
{
	const struct rp_xmsg over = {.type = RP_XMSG_JOB_OVER, .idx = IDX, .alloc_node = REQUEST};

	for (unsigned i = 0; i < 66; i++)
		put(1 + i, "x");
	rp_control_on_xmsg(w.c, 0, &over, now());
	assert_int_equal(w.answer_count, 2);
	answered(0, 66, RP_Q_NOT_LIVE);
	put(70, "late");
	answered(2, 70, RP_Q_NOT_LIVE);
	for (unsigned i = 0; i < 64; i++)
		answer_next(RP_Q_BUSY);
	assert_int_equal(w.answer_count, 67);
	assert_int_equal(outs(), 0);
}

/* Of another user nobody acknowledges, rejects or answers here, whatever he may write. */
static void test_users(void **state)
{
	struct rp_control_queue_op op = {
		.type = RP_XMSG_ACK,
		.hash = rp_queue_hash(QUEUE, strlen(QUEUE)),
		.name = span(QUEUE),
		.idx = IDX,
		.user = 200,
	};

	memcpy(op.uuid, uuid, sizeof(op.uuid));
	rp_control_destroy(w.c);
	setup_of(100);
	put_by(200, 1, "x");
	answered(0, 1, RP_Q_NOT_HOLDER);
	assert_int_equal(rp_control_queue_op(w.c, &op, 2, now()), 0);
	answered(1, 2, RP_Q_NOT_HOLDER);
	op.type = RP_XMSG_REJECT;
	assert_int_equal(rp_control_queue_op(w.c, &op, 3, now()), 0);
	answered(2, 3, RP_Q_NOT_HOLDER);
	assert_int_equal(w.sent_count, 0);
	/* The user, and where there is none to tell apart. */
	op.user = 100;
	assert_int_equal(rp_control_queue_op(w.c, &op, 4, now()), 0);
	op.user = 0;
	assert_int_equal(rp_control_queue_op(w.c, &op, 5, now()), 0);
	assert_int_equal(w.sent_count, 2);
	put_by(100, 6, "x");
	put_by(0, 7, "x");
	assert_int_equal(outs(), 2);
	assert_int_equal(w.answer_count, 3);
}

/* A request that was refused leaves nothing at its reply queue, however long that takes no word. */
static void test_closed_until_it_is(void **state)
{
	const struct rp_control_queue_op op = {
		.type = RP_XMSG_PUT,
		.hash = rp_queue_hash("asked", 5),
		.name = span("asked"),
		.tail = span("t9"),
		.value = span("{\"v\":1,\"ttl_ms\":5000,\"reply_to\":\"elsewhere\"}"),
	};
	static const enum rp_process_kind kinds[] = {
		RP_PROCESS_OPEN, RP_PROCESS_REQUEST, RP_PROCESS_CLOSE, RP_PROCESS_CLOSE};

	assert_int_equal(rp_control_queue_op(w.c, &op, 1, now()), 0);
	answer_next(RP_Q_OK);
	answer_next(RP_Q_QUEUE_DEPTH);
	answered(0, 1, RP_Q_QUEUE_DEPTH);
	answer_next(RP_Q_STALL);
	rp_control_run(w.c, now());
	assert_int_equal(w.sent_count, 3);
	w.now_ns += 200 * RP_NS_PER_MS;
	rp_control_run(w.c, now());
	assert_int_equal(w.sent_count, 4);
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(w.sent[i].process.kind, kinds[i]);
	answer_next(RP_Q_OK);
	w.now_ns += 200 * RP_NS_PER_MS;
	rp_control_run(w.c, now());
	assert_int_equal(w.sent_count, 4);
	assert_int_equal(w.answer_count, 1);
	/* One that never is: its reply queue forgets it by itself. */
	assert_int_equal(rp_control_queue_op(w.c, &op, 2, now()), 0);
	answer_next(RP_Q_OK);
	answer_next(RP_Q_QUEUE_DEPTH);
	answer_next(RP_Q_STALL);
	w.now_ns += 10 * RP_NS_PER_S;
	rp_control_run(w.c, now());
	answer_next(RP_Q_STALL);
	w.now_ns += RP_NS_PER_S;
	rp_control_run(w.c, now());
	assert_int_equal(outs(), 0);
}

int main(void)
{
	char *args[] = {"test", "--no-huge", "-m", "64", "--no-pci", "--no-telemetry",
		"--no-shconf", "-l", "0", "--log-level", "error"};
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_several_under_way, setup, teardown),
		cmocka_unit_test_setup_teardown(test_bounds, setup, teardown),
		cmocka_unit_test_setup_teardown(test_refused_in_the_middle, setup, teardown),
		cmocka_unit_test_setup_teardown(test_asked_when_nothing_is_heard, setup, teardown),
		cmocka_unit_test_setup_teardown(test_unreachable, setup, teardown),
		cmocka_unit_test_setup_teardown(test_over, setup, teardown),
		cmocka_unit_test_setup_teardown(test_users, setup, teardown),
		cmocka_unit_test_setup_teardown(test_closed_until_it_is, setup, teardown),
	};

	if (rte_eal_init((int)RP_ARRAY_SIZE(args), args) < 0)
		return 1;
	w.pool = rte_pktmbuf_pool_create_by_ops(
		"pool", 1023, 0, 0, RTE_PKTMBUF_HEADROOM + 2048, SOCKET_ID_ANY, "ring_mp_mc");
	return w.pool ? cmocka_run_group_tests(tests, NULL, NULL) : 1;
}
