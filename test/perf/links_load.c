/* SPDX-License-Identifier: Apache-2.0 */

/*
 * One peer pair under load, for tools/bench-links: a node inside of this program that makes
 * messages (source), or one that dispatches and consumes them (sink). Flags of the node follow.
 *
 *	links_load sink 32 64 FLAG...			queues, bytes of a message
 *	links_load source 32 64 2048 5000 FLAG...	and: messages under way, milliseconds
 *
 * The source waits until the link is up and each queue has its dispatcher, sends for a fifth of the
 * time without counting, then counts answers: the sink's node has indexed the message. The sink
 * holds that each queue's messages come once and in order, and ends a second after the last. Both
 * print one line of JSON.
 */

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <base/assert.h>
#include <base/bytes.h>
#include <base/units.h>
#include <node/ringpost.h>

#define QUEUES_MAX 256
#define THREADS_MAX 256
#define LOOK_NS (20 * RP_NS_PER_MS)

/** What the node has used by a moment. */
struct usage {
	uint64_t at_ns, cpu_ns;
	uint64_t thread_ns[THREADS_MAX]; /* by thread id above the process's: 0 is control */
	uint64_t streamed, unary, up, segments, again, handed, sleeps;
};

struct queue {
	char name[32];
	uint64_t next; /* source: to be sent; sink: expected */
};

static struct {
	struct rp_ringpost *node;
	bool source, measuring, over;
	uint32_t queue_count, bytes, window;
	uint64_t run_ns, began_ns;
	struct queue queues[QUEUES_MAX];
	uint32_t turn, open;
	uint64_t answered, failed, received, faults, last_ns;
	uint8_t *payload;
	struct usage first, last, *fill;
} load;

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * RP_NS_PER_S + (uint64_t)t.tv_nsec;
}

/* ---- usage ---- */

static uint64_t cpu_ns(void)
{
	struct rusage r;

	getrusage(RUSAGE_SELF, &r);
	return (uint64_t)(r.ru_utime.tv_sec + r.ru_stime.tv_sec) * RP_NS_PER_S +
	       (uint64_t)(r.ru_utime.tv_usec + r.ru_stime.tv_usec) * RP_NS_PER_US;
}

static void on_metric(void *ctx, const char *name, const char *labels, uint64_t value)
{
	struct usage *u = load.fill;

	if (strcmp(name, "ringpost_link_bundles_up") == 0)
		u->up += value;
	else if (strcmp(name, "ringpost_deliver_forwards_streamed") == 0)
		u->streamed += value;
	else if (strcmp(name, "ringpost_deliver_forwards_unary") == 0)
		u->unary += value;
	else if (strcmp(name, "ringpost_tcp_tx_segments") == 0)
		u->segments += value;
	else if (strcmp(name, "ringpost_tcp_rtx_segments") == 0)
		u->again += value;
	else if (strcmp(name, "ringpost_engine_packets_handed") == 0)
		u->handed += value;
	else if (strcmp(name, "ringpost_shard_sleeps") == 0)
		u->sleeps += value;
}

/* CPU time of each thread: what a shard calls busy has the time in it that others had its CPU. */
static void threads_take(struct usage *u)
{
	DIR *d = opendir("/proc/self/task");
	struct dirent *e;

	RP_ASSERT(d != NULL);
	while ((e = readdir(d))) {
		long thread = strtol(e->d_name, NULL, 10) - getpid();
		char path[300];
		FILE *f;

		snprintf(path, sizeof(path), "/proc/self/task/%s/schedstat", e->d_name);
		f = thread >= 0 && thread < THREADS_MAX ? fopen(path, "r") : NULL;
		if (!f)
			continue;
		if (fscanf(f, "%" SCNu64, &u->thread_ns[thread]) != 1)
			u->thread_ns[thread] = 0;
		fclose(f);
	}
	closedir(d);
}

static void usage_take(struct usage *u, rp_ringpost_fn done)
{
	*u = (struct usage){.at_ns = now_ns(), .cpu_ns = cpu_ns()};
	threads_take(u);
	load.fill = u;
	rp_ringpost_metrics(load.node, on_metric, done, NULL);
}

/* CPU time of an end counts to its last message; that of threads to the end, which is idle. */
static void print_result(uint64_t end_ns, uint64_t end_cpu_ns, uint64_t count)
{
	const struct usage *a = &load.first, *b = &load.last;
	uint64_t most = 0;

	for (unsigned t = 1; t < THREADS_MAX; t++)
		if (b->thread_ns[t] > a->thread_ns[t])
			most = RP_MAX(most, b->thread_ns[t] - a->thread_ns[t]);
	printf("{\"role\": \"%s\", \"messages\": %" PRIu64 ", \"ns\": %" PRIu64
	       ", \"cpu_ns\": %" PRIu64 ", \"control_ns\": %" PRIu64 ", \"shard_ns_max\": %" PRIu64
	       ", \"segments\": %" PRIu64 ", \"again\": %" PRIu64 ", \"handed\": %" PRIu64
	       ", \"sleeps\": %" PRIu64 ", \"faults\": %" PRIu64 ", \"failed\": %" PRIu64
	       ", \"streamed\": %" PRIu64 ", \"unary\": %" PRIu64 "}\n",
		load.source ? "source" : "sink", count, end_ns - a->at_ns, end_cpu_ns - a->cpu_ns,
		b->thread_ns[0] - a->thread_ns[0], most, b->segments - a->segments,
		b->again - a->again, b->handed - a->handed, b->sleeps - a->sleeps, load.faults,
		load.failed, b->streamed - a->streamed, b->unary - a->unary);
	fflush(stdout);
	rp_ringpost_stop(load.node);
}

/* ---- source ---- */

static void send_one(void);

static void on_answer(void *ctx, int status, const char *message, int64_t revision)
{
	load.open--;
	if (status != 0) {
		if (load.failed++ == 0)
			fprintf(stderr, "links_load: a put failed: %s\n", message);
	} else if (load.measuring) {
		load.answered++;
	}
	if (!load.over)
		send_one();
}

static void send_one(void)
{
	struct queue *q = &load.queues[load.turn++ % load.queue_count];
	struct rp_writer w = rp_writer_of(load.payload, load.bytes);
	struct rp_ringpost_bytes value = {load.payload, load.bytes};

	rp_write_le64(&w, q->next++);
	load.open++;
	rp_ringpost_send(load.node, rp_ringpost_text(q->name), rp_ringpost_text("x"), value,
		on_answer, NULL);
}

static uint64_t end_at_ns, end_cpu;

static void source_print(void *ctx)
{
	print_result(end_at_ns, end_cpu, load.answered);
}

static void source_drained(void *ctx)
{
	if (load.open > 0)
		rp_ringpost_after(load.node, LOOK_NS, source_drained, NULL);
	else
		usage_take(&load.last, source_print);
}

static void source_end(void *ctx)
{
	load.measuring = false;
	load.over = true;
	end_at_ns = now_ns();
	end_cpu = cpu_ns();
	source_drained(NULL);
}

static void source_measure(void *ctx)
{
	load.measuring = true;
	rp_ringpost_after(load.node, load.run_ns, source_end, NULL);
}

static void source_warm(void *ctx)
{
	usage_take(&load.first, source_measure);
}

static void source_wait(void *ctx);

static void source_look(void *ctx)
{
	uint32_t known = 0;

	for (uint32_t i = 0; i < load.queue_count; i++)
		known += rp_ringpost_queue_dispatcher(
				 load.node, rp_ringpost_text(load.queues[i].name)) != 0;
	if (known < load.queue_count || load.last.up == 0) {
		rp_ringpost_after(load.node, LOOK_NS, source_wait, NULL);
		return;
	}
	for (uint32_t i = 0; i < load.window; i++)
		send_one();
	rp_ringpost_after(load.node, load.run_ns / 5, source_warm, NULL);
}

static void source_wait(void *ctx)
{
	usage_take(&load.last, source_look);
}

/* ---- sink ---- */

static void sink_print(void *ctx)
{
	print_result(end_at_ns, end_cpu, load.received);
}

static void sink_watch(void *ctx)
{
	if (load.received == 0 || now_ns() - load.last_ns < RP_NS_PER_S)
		rp_ringpost_after(load.node, 5 * LOOK_NS, sink_watch, NULL);
	else
		usage_take(&load.last, sink_print);
}

static void nothing(void *ctx)
{
}

static void on_message(
	void *ctx, struct rp_ringpost_consumer *c, const struct rp_ringpost_message *m)
{
	struct queue *q = ctx;
	struct rp_reader r = rp_reader_of(m->value.data, m->value.length);
	uint64_t number = rp_read_le64(&r);

	if (load.received++ == 0)
		usage_take(&load.first, nothing);
	if (m->value.length != load.bytes || number != q->next || m->attempt != 1)
		load.faults++;
	q->next = number + 1;
	load.last_ns = now_ns();
	if (load.received % 64 == 0) {
		end_at_ns = load.last_ns;
		end_cpu = cpu_ns();
	}
	rp_ringpost_ack(c, m->idx, NULL, NULL);
}

static void on_end(void *ctx, struct rp_ringpost_consumer *c, const char *reason)
{
}

static void sink_begin(void)
{
	static const struct rp_ringpost_consumer_ops ops = {.message = on_message, .end = on_end};

	for (uint32_t i = 0; i < load.queue_count; i++)
		if (!rp_ringpost_consume(load.node, rp_ringpost_text(load.queues[i].name), NULL,
			    ";prefetch=1024", 0, &ops, &load.queues[i])) {
			fprintf(stderr, "links_load: no consumer of %s\n", load.queues[i].name);
			rp_ringpost_stop(load.node);
		}
	sink_watch(NULL);
}

/* ---- both ---- */

static void on_ready(void *ctx, bool alone)
{
	if (load.source)
		source_wait(NULL);
	else
		sink_begin();
}

static void usage(void)
{
	fputs("usage: links_load sink QUEUES BYTES FLAG...\n"
	      "       links_load source QUEUES BYTES UNDER_WAY MILLISECONDS FLAG...\n",
		stderr);
	exit(2);
}

int main(int argc, char *argv[])
{
	struct rp_ringpost_config config = {.signals = true, .events = {.ready = on_ready}};
	int status, flags;
	char error[2048];

	load.source = argc > 1 && strcmp(argv[1], "source") == 0;
	flags = load.source ? 6 : 4;
	if (argc < flags || (!load.source && strcmp(argv[1], "sink") != 0))
		usage();
	load.queue_count = (uint32_t)strtoul(argv[2], NULL, 10);
	load.bytes = (uint32_t)strtoul(argv[3], NULL, 10);
	load.window = load.source ? (uint32_t)strtoul(argv[4], NULL, 10) : 1;
	load.run_ns = load.source ? strtoull(argv[5], NULL, 10) * RP_NS_PER_MS : 1;
	if (load.queue_count == 0 || load.queue_count > QUEUES_MAX || load.bytes < 8 ||
		load.window == 0 || load.run_ns == 0)
		usage();
	for (uint32_t i = 0; i < load.queue_count; i++)
		snprintf(load.queues[i].name, sizeof(load.queues[i].name), "bench-%u", i);
	load.payload = calloc(1, load.bytes);
	RP_ASSERT(load.payload != NULL);
	config.argc = argc - flags;
	config.argv = (const char *const *)argv + flags;
	load.node = rp_ringpost_create(&config, &status, error, sizeof(error));
	if (!load.node) {
		fprintf(stderr, "links_load: %s\n", error);
		return status;
	}
	status = rp_ringpost_run(load.node);
	rp_ringpost_destroy(load.node);
	free(load.payload);
	return status;
}
