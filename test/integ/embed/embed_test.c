/* SPDX-License-Identifier: Apache-2.0 */

/*
 * node/ringpost.h, by a program that has a node inside: embed_test FLAG... The node has a thread of
 * its own; what is tested is posted to it from the main thread, which waits for what comes of it.
 */

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <time.h>

#include <grpc/server.h>
#include <node/ringpost.h>

#define CHECK(cond)                                                                \
	do {                                                                       \
		if (!(cond)) {                                                     \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #cond); \
			abort();                                                   \
		}                                                                  \
	} while (0)
#define T rp_ringpost_text

static struct rp_ringpost *node;
static pthread_t node_thread;
static sem_t created, done, arrived;
static int run_status = -1, create_status;
static const char *const *flags;
static int flag_count;
static bool ready_alone, was_ready;
static unsigned stops, reconfigured;

/* ---- running things on the node's thread ---- */

static void wait_on(sem_t *s)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	ts.tv_sec += 60;
	CHECK(sem_timedwait(s, &ts) == 0);
}

/* Until fn() posts `done`. */
static void run(rp_ringpost_fn fn, void *ctx)
{
	rp_ringpost_post(node, fn, ctx);
	wait_on(&done);
}

struct outcome {
	int status;
	int64_t result;
	char message[200];
};

static bool inside;
static struct outcome last;

static void on_done(void *ctx, int status, const char *message, int64_t result)
{
	/* Never from inside of the call. */
	CHECK(!inside && pthread_equal(pthread_self(), node_thread));
	last = (struct outcome){status, result, ""};
	snprintf(last.message, sizeof(last.message), "%s", message);
	sem_post(&done);
}

/* ---- keys ---- */

struct pair {
	const char *key, *value;
};

static void put_now(void *ctx)
{
	struct pair *p = ctx;

	inside = true;
	rp_ringpost_put(node, T(p->key), T(p->value), on_done, NULL);
	inside = false;
}

static int put(const char *key, const char *value)
{
	struct pair p = {key, value};

	run(put_now, &p);
	return last.status;
}

static void delete_now(void *ctx)
{
	inside = true;
	rp_ringpost_delete(node, T(ctx), on_done, NULL);
	inside = false;
}

static bool is(struct rp_ringpost_bytes b, const char *text)
{
	return b.length == strlen(text) && memcmp(b.data, text, b.length) == 0;
}

static bool count_key(void *ctx, const struct rp_ringpost_kv *kv)
{
	unsigned *n = ctx;

	CHECK(kv->key.length > 0 && kv->mod_revision > 0);
	return ++*n < 3;
}

static void read_now(void *ctx)
{
	struct rp_ringpost_kv kv;
	unsigned n = 0;

	CHECK(rp_ringpost_get(node, T("a/1"), &kv) && is(kv.value, "one") && kv.version == 1);
	CHECK(rp_ringpost_get(node, T("a/2"), &kv) && is(kv.value, "two again"));
	CHECK(kv.version == 2 && kv.mod_revision > kv.create_revision);
	CHECK(!rp_ringpost_get(node, T("a/4"), &kv));
	CHECK(rp_ringpost_prefix(node, T("a/"), count_key, &n) == 3 && n == 3);
	n = 0;
	CHECK(rp_ringpost_prefix(node, T("b"), count_key, &n) == 0);
	n = 0;
	CHECK(rp_ringpost_prefix(node, T(""), count_key, &n) == 3);
	n = 0;
	CHECK(rp_ringpost_prefix(node, T("\xff\xff"), count_key, &n) == 1);
	sem_post(&done);
}

static struct rp_ringpost_watch *watch;
static unsigned events;
static char seen[512];

static void on_event(void *ctx, const struct rp_ringpost_kv *kv)
{
	char text[64];

	snprintf(text, sizeof(text), "%s%.*s=%.*s ", kv->deleted ? "-" : "", (int)kv->key.length,
		(const char *)kv->key.data, (int)kv->value.length, (const char *)kv->value.data);
	strncat(seen, text, sizeof(seen) - strlen(seen) - 1);
	events++;
	/* A write from within an event, which is one more event; and the end of it from within. */
	if (events == 1)
		rp_ringpost_put(node, T("w/2"), T("from within"), NULL, NULL);
	if (events == 2)
		rp_ringpost_delete(node, T("w/1"), NULL, NULL);
	if (kv->deleted) {
		rp_ringpost_unwatch(watch);
		sem_post(&done);
	}
}

static void watch_now(void *ctx)
{
	watch = rp_ringpost_watch(node, T("w/"), false, 0, on_event, NULL, NULL);
	rp_ringpost_put(node, T("w/1"), T("x"), NULL, NULL);
	rp_ringpost_put(node, T("v/1"), T("not watched"), NULL, NULL);
	rp_ringpost_put(node, T("w"), T("not watched"), NULL, NULL);
}

static unsigned old_events;

static void on_old(void *ctx, const struct rp_ringpost_kv *kv)
{
	if (++old_events == 2)
		sem_post(&done);
}

/* From the history: both versions of a/2. */
static void history_now(void *ctx)
{
	struct rp_ringpost_kv kv;

	CHECK(rp_ringpost_get(node, T("a/2"), &kv));
	watch = rp_ringpost_watch(node, kv.key, true, kv.create_revision, on_old, NULL, NULL);
}

static void unwatch_now(void *ctx)
{
	rp_ringpost_unwatch(watch);
	sem_post(&done);
}

static void test_keys(void)
{
	CHECK(put("a/1", "one") == 0 && last.result > 0);
	CHECK(put("a/2", "two") == 0 && put("a/2", "two again") == 0 && put("a/3", "") == 0);
	CHECK(put("\xff\xff", "the last") == 0);
	run(read_now, NULL);
	run(history_now, NULL);
	run(unwatch_now, NULL);
	run(delete_now, (void *)"a/3");
	CHECK(last.status == 0 && last.result == 1);
	run(delete_now, (void *)"a/3");
	CHECK(last.status == 0 && last.result == 0);
	/* What only nodes write, what is a message, and what is neither key nor message. */
	CHECK(put("/_ringpost/node/7", "x") == 7);
	CHECK(put("/q/jobs/p/x", "y") == 3 && put("/q/jobs/nonsense", "y") == 3);
	CHECK(put("", "y") == 3);
	/* The configuration says that no client may. */
	CHECK(put("readonly/here", "by the program") == 0);
	run(watch_now, NULL);
	CHECK(events == 3 && !strcmp(seen, "w/1=x w/2=from within -w/1= "));
	printf("keys: %s\n", seen);
}

/* ---- queues ---- */

static struct rp_ringpost_consumer *consumer, *other;
static unsigned received, other_received, want, ended;
static uint64_t indexes[64];
static char end_reason[128];
static bool reject_first;

static void on_message(
	void *ctx, struct rp_ringpost_consumer *c, const struct rp_ringpost_message *m)
{
	CHECK(pthread_equal(pthread_self(), node_thread) && m->tail.length > 0);
	if (c == other) {
		other_received++;
	} else {
		indexes[received++ % 64] = m->idx;
		if (reject_first) {
			reject_first = false;
			rp_ringpost_reject(c, m->idx, NULL, NULL);
		}
	}
	if (received + other_received == want)
		sem_post(&arrived);
}

static void on_end(void *ctx, struct rp_ringpost_consumer *c, const char *reason)
{
	snprintf(end_reason, sizeof(end_reason), "%s", reason);
	ended++;
	sem_post(&done);
}

static const struct rp_ringpost_consumer_ops ops = {.message = on_message, .end = on_end};

static void consume_now(void *ctx)
{
	consumer = rp_ringpost_consume(node, T("jobs"), NULL, ";prefetch=2", 0, &ops, NULL);
	CHECK(consumer != NULL);
	CHECK(!rp_ringpost_consume(node, T("a/b"), NULL, "", 0, &ops, NULL) && errno == EINVAL);
	CHECK(!rp_ringpost_consume(node, T("ch:t"), NULL, "", 0, &ops, NULL) && errno == EINVAL);
	CHECK(!rp_ringpost_consume(node, T("jobs"), NULL, "nonsense", 0, &ops, NULL) &&
		errno == EINVAL);
	sem_post(&done);
}

static void send_now(void *ctx)
{
	struct pair *p = ctx;

	inside = true;
	rp_ringpost_send(node, T(p->key), T(p->value), T("a job"), on_done, NULL);
	inside = false;
}

static int enqueue(const char *queue, const char *tail)
{
	struct pair p = {queue, tail};

	run(send_now, &p);
	return last.status;
}

static void ack_now(void *ctx)
{
	inside = true;
	rp_ringpost_ack(consumer, *(uint64_t *)ctx, on_done, NULL);
	inside = false;
}

static void dispatcher_now(void *ctx)
{
	*(uint64_t *)ctx = rp_ringpost_queue_dispatcher(node, T("jobs"));
	sem_post(&done);
}

static void other_now(void *ctx)
{
	other = rp_ringpost_consume(node, T("jobs"), NULL, "", 0, &ops, NULL);
	CHECK(other != NULL);
	sem_post(&done);
}

static void close_now(void *ctx)
{
	rp_ringpost_consumer_close(consumer, true);
	consumer = NULL;
	sem_post(&done);
}

static void test_queues(void)
{
	static const char *const tails[] = {"t1", "t2", "t3", "t4"};
	uint64_t dispatcher = 0;

	run(consume_now, NULL);
	CHECK(enqueue("a/b", "x") == 3 && enqueue("jobs", "") == 3 && enqueue("jobs", "a/b") == 3);
	/* Two of four, since that is its prefetch. */
	want = 2;
	for (unsigned i = 0; i < 4; i++)
		CHECK(enqueue("jobs", tails[i]) == 0);
	wait_on(&arrived);
	CHECK(received == 2);
	run(dispatcher_now, &dispatcher);
	CHECK(dispatcher == rp_ringpost_node(node));
	want = 3;
	run(ack_now, &indexes[0]);
	CHECK(last.status == 0 && last.result == 1);
	wait_on(&arrived);
	run(ack_now, &indexes[0]);
	CHECK(last.status == 0 && last.result == 0);
	/* The rest goes to another when this one leaves: t2, t3 again, and t4. */
	want = 6;
	run(other_now, NULL);
	run(close_now, NULL);
	wait_on(&arrived);
	CHECK(other_received == 3);
	printf("queues: %u and %u deliveries\n", received, other_received);
}

static void link_now(void *ctx)
{
	struct rp_ringpost_kv kv;

	CHECK(rp_ringpost_queue_link(node, T("asks"), T("answers")) == 0);
	CHECK(rp_ringpost_queue_link(node, T(""), T("answers")) == -EINVAL);
	CHECK(rp_ringpost_get(node, T("/q/asks"), &kv));
	CHECK(memmem(kv.value.data, kv.value.length, ";reply_to=answers", 17));
	sem_post(&done);
}

static bool pinned;

static void pinned_now(void *ctx)
{
	struct rp_ringpost_kv kv;

	pinned = rp_ringpost_queue_dispatcher(node, T("answers")) == rp_ringpost_node(node) &&
		 rp_ringpost_get(node, T("/q/answers"), &kv) &&
		 memmem(kv.value.data, kv.value.length, ";pinned", 7);
	sem_post(&done);
}

static void test_link(void)
{
	run(link_now, NULL);
	for (unsigned i = 0; i < 200 && !pinned; i++) {
		usleep(10000);
		run(pinned_now, NULL);
	}
	CHECK(pinned);
}

/* ---- the node ---- */

static uint64_t puts_counted;
static unsigned metric_count;

static void on_metric(void *ctx, const char *name, const char *labels, uint64_t value)
{
	metric_count++;
	if (!strcmp(name, "ringpost_queue_puts") && strstr(labels, "shard="))
		puts_counted += value;
}

static void on_metrics(void *ctx)
{
	sem_post(&done);
}

static void metrics_now(void *ctx)
{
	rp_ringpost_metrics(node, on_metric, on_metrics, NULL);
}

static void node_now(void *ctx)
{
	char error[512];

	rp_ringpost_restart(node);
	CHECK(rp_ringpost_reload(node, error, sizeof(error)) && error[0] == '\0');
	rp_ringpost_pause(node, 50 * 1000 * 1000);
	rp_ringpost_after(node, 1000 * 1000, on_metrics, NULL);
}

static void drain_now(void *ctx)
{
	rp_ringpost_drain(node, true);
	CHECK(!rp_ringpost_consume(node, T("jobs"), NULL, "", 0, &ops, NULL) && errno == EBUSY);
	rp_ringpost_drain(node, false);
	sem_post(&done);
}

static void test_node(void)
{
	test_link();
	run(metrics_now, NULL);
	CHECK(metric_count > 100 && puts_counted == 4);
	run(node_now, NULL);
	CHECK(reconfigured == 1);
	run(drain_now, NULL);
}

/* ---- a service of the program's own ---- */

static void on_hello(struct rp_grpc_call *call, const uint8_t *data, size_t length, void *ctx)
{
	rp_grpc_call_reply(call, data, length);
}

static const struct rp_grpc_call_ops hello_ops = {.on_message = on_hello};
static struct rp_grpc_method hello = {.path = "/example.Echo/Hello", .ops = &hello_ops};

/* ---- the node's thread ---- */

static void on_ready(void *ctx, bool alone)
{
	was_ready = true;
	ready_alone = alone;
	sem_post(&done);
}

static void on_reconfigured(void *ctx)
{
	reconfigured++;
}

static void on_stopping(void *ctx)
{
	stops++;
}

static void *node_main(void *ctx)
{
	struct rp_ringpost_config config = {
		.argc = flag_count,
		.argv = flags,
		.events = {.ready = on_ready,
			.reconfigured = on_reconfigured,
			.stopping = on_stopping},
	};
	char error[1024];

	node = rp_ringpost_create(&config, &create_status, error, sizeof(error));
	if (!node) {
		printf("not created: %s\n", error);
		sem_post(&created);
		return NULL;
	}
	CHECK(rp_grpc_server_add_methods(rp_ringpost_server(node), &hello, 1) == 0);
	sem_post(&created);
	run_status = rp_ringpost_run(node);
	rp_ringpost_destroy(node);
	return NULL;
}

static void start(int count, const char *const *list)
{
	flag_count = count;
	flags = list;
	sem_init(&created, 0, 0);
	sem_init(&done, 0, 0);
	sem_init(&arrived, 0, 0);
	CHECK(pthread_create(&node_thread, NULL, node_main, NULL) == 0);
	wait_on(&created);
}

int main(int argc, char *argv[])
{
	static const char *const wrong[] = {"--limits.queue-depht", "5"};
	char line[16];

	/* What is no good is told, and the process goes on. */
	start(2, wrong);
	pthread_join(node_thread, NULL);
	CHECK(!node && create_status == 2);
	start(argc - 1, (const char *const *)argv + 1);
	CHECK(node != NULL);
	wait_on(&done);
	CHECK(was_ready && ready_alone);
	test_keys();
	test_queues();
	test_node();
	printf("port %u\n", rp_ringpost_port(node));
	fflush(stdout);
	/* Until the test that started this has talked to the service. */
	if (!fgets(line, sizeof(line), stdin))
		return 1;
	rp_ringpost_stop(node);
	pthread_join(node_thread, NULL);
	CHECK(run_status == 0 && stops == 1);
	CHECK(ended == 0);
	printf("holds\n");
	return 0;
}
