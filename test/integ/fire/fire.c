/* SPDX-License-Identifier: Apache-2.0 */
#include "fire.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <mbedtls/sha256.h>

#include <base/assert.h>

#define TICK_NS (5 * RP_NS_PER_MS)
#define PROGRESS_NS (200 * RP_NS_PER_MS)
#define REDIAL_NS (200 * RP_NS_PER_MS)
#define FAULTS_SHOWN 20

void fire_fault(struct fire *f, const char *format, ...)
{
	va_list args;

	if (f->faults++ >= FAULTS_SHOWN)
		return;
	fputs("fault: ", stderr);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
}

/* From the put until the acknowledge's answer. */
uint64_t fire_in_flight(const struct fire *f)
{
	const struct tally *t = &f->tally;

	return t->started - t->unknown - t->acked;
}

void fire_sha(const uint8_t *data, size_t length, uint8_t sha[SHA_BYTES])
{
	static const uint8_t none;

	RP_ASSERT(mbedtls_sha256_ret(length ? data : &none, length, sha, 0) == 0);
}

unsigned fire_other_node(const struct fire *f, unsigned node, unsigned channel)
{
	for (unsigned i = 1; i < f->o.nodes; i++)
		if (f->channels[(node + i) % f->o.nodes][channel].ready)
			return (node + i) % f->o.nodes;
	return (node + 1) % f->o.nodes;
}

/* ---- channels ---- */

static void redial(void *ctx)
{
	struct channel *c = ctx;

	rp_grpc_channel_connect(c->grpc);
}

static void on_state(struct rp_grpc_channel *grpc, enum rp_grpc_channel_state state,
	const char *reason, void *ctx)
{
	struct channel *c = ctx;

	c->ready = state == RP_GRPC_CHANNEL_READY;
	if (state != RP_GRPC_CHANNEL_LOST)
		return;
	if (c->fire->o.victim == (int)c->node && c->fire->running)
		fire_slots_victim_gone(c->fire);
	else if (c->fire->o.victim != (int)c->node && !c->fire->o.roam)
		fire_fault(c->fire, "connection %u to node %u: %s", c->index, c->node, reason);
	if (!c->fire->stopping || fire_may_go(c->fire))
		rp_loop_timer_in(c->fire->loop, &c->redial, REDIAL_NS);
}

static void channels_create(struct fire *f)
{
	for (unsigned i = 0; i < f->o.nodes * CHANNELS; i++) {
		struct channel *c = &f->channels[i / CHANNELS][i % CHANNELS];
		struct rp_grpc_channel_config config = rp_grpc_channel_config_default();

		c->fire = f;
		c->node = i / CHANNELS;
		c->index = i % CHANNELS;
		config.on_state = on_state;
		config.ctx = c;
		rp_loop_timer_setup(&c->redial, redial, c);
		c->grpc = rp_grpc_channel_new(f->loop, f->o.endpoint[c->node], &config);
		if (!c->grpc) {
			fprintf(stderr, "fire: %s is no address\n", f->o.endpoint[c->node]);
			exit(2);
		}
		rp_grpc_channel_connect(c->grpc);
	}
}

static bool channels_ready(struct fire *f)
{
	bool ready = true;

	for (unsigned i = 0; i < f->o.nodes * CHANNELS; i++)
		ready = ready && f->channels[i / CHANNELS][i % CHANNELS].ready;
	return ready;
}

static void channels_destroy(struct fire *f)
{
	for (unsigned i = 0; i < f->o.nodes * CHANNELS; i++) {
		struct channel *c = &f->channels[i / CHANNELS][i % CHANNELS];

		rp_grpc_channel_destroy(c->grpc);
		rp_loop_timer_cancel(&c->redial);
	}
}

/* ---- course ---- */

static void stop_begin(struct fire *f)
{
	if (f->stopping)
		return;
	f->stopping = true;
	f->stop_ns = rp_loop_now_ns(f->loop);
	fire_ack_more(f);
}

static void tick(void *ctx)
{
	struct fire *f = ctx;
	uint64_t in_flight = fire_in_flight(f);

	if (f->running && !f->stopping && f->tally.started < f->o.messages) {
		f->in_flight_max = in_flight > f->in_flight_max ? in_flight : f->in_flight_max;
		f->in_flight_sum += in_flight;
		f->in_flight_samples++;
	}
	fire_put_more(f);
	fire_ack_more(f);
	rp_loop_timer_in(f->loop, &f->tick, TICK_NS);
}

static void progress_print(struct fire *f)
{
	const struct tally *t = &f->tally;

	printf("t=%.2f started=%" PRIu64 " put=%" PRIu64 " received=%" PRIu64 " crossed=%" PRIu64
	       " acked=%" PRIu64 " in_flight=%" PRIu64 " retries=%" PRIu64 " unknown=%" PRIu64
	       " put0=%" PRIu64 " put1=%" PRIu64 " put2=%" PRIu64 " received0=%" PRIu64
	       " received1=%" PRIu64 " received2=%" PRIu64 " roamed=%" PRIu64 " crossed0=%" PRIu64
	       " crossed1=%" PRIu64 " consumers=%u faults=%u\n",
		(double)(rp_loop_now_ns(f->loop) - f->begin_ns) / 1e9, t->started, t->put,
		t->received, t->crossed, t->acked, fire_in_flight(f), t->put_retries, t->unknown,
		t->put_at[0], t->put_at[1], t->put_at[2], t->received_at[0], t->received_at[1],
		t->received_at[2], t->roamed, t->crossed_to[0], t->crossed_to[1], f->consumers_open,
		f->faults);
	fflush(stdout);
}

static void progress(void *ctx)
{
	struct fire *f = ctx;

	progress_print(f);
	rp_loop_timer_in(f->loop, &f->progress, PROGRESS_NS);
}

/* The end of standard input ends the load. */
static void on_input(void *ctx, uint32_t events)
{
	struct fire *f = ctx;
	char line[64];

	if (read(STDIN_FILENO, line, sizeof(line)) > 0)
		return;
	rp_loop_fd_remove(&f->input);
	stop_begin(f);
}

/** Every message whose put was answered and that must come has come and is acknowledged. */
static bool is_missing(const struct fire *f, const struct queue *q, const struct message *m)
{
	/* What a node held that was killed is lost. */
	if (f->o.victim >= 0 && q->first == (unsigned)f->o.victim)
		return false;
	return m->state == MESSAGE_PUT && m->received == 0;
}

static uint64_t missing(struct fire *f, bool tell)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < f->o.queues * f->o.nodes; i++) {
		struct queue *q = &f->queues[i / f->o.nodes];
		struct slot *s = &q->slots[i % f->o.nodes];

		for (uint32_t k = 0; k < s->count; k++) {
			if (!is_missing(f, q, &s->messages[k]))
				continue;
			n++;
			if (tell)
				fire_fault(
					f, "%s/%u-%u: put and never received", q->name, s->node, k);
		}
	}
	return n;
}

static bool is_over(struct fire *f)
{
	const struct tally *t = &f->tally;

	/* A frame that confirms a put may be lost, and come again after its message was
	 * acknowledged. */
	if (!f->stopping && !fire_may_go(f) && t->acked == f->o.messages && t->put == t->acked)
		return true;
	if (!f->stopping)
		return false;
	if (rp_loop_now_ns(f->loop) - f->stop_ns > f->o.drain_ns)
		return true;
	return f->acks_open == 0 && rp_list_empty(&f->receipts) && missing(f, false) == 0 &&
	       rp_loop_now_ns(f->loop) - f->stop_ns > RP_NS_PER_S;
}

static void wait_for(struct fire *f, const char *what, bool (*fn)(struct fire *), uint64_t ns)
{
	uint64_t end = rp_loop_now_ns(f->loop) + ns;

	while (!fn(f)) {
		if (rp_loop_now_ns(f->loop) > end) {
			fprintf(stderr, "fire: waited in vain for %s\n", what);
			exit(1);
		}
		rp_loop_run_once(f->loop, 50 * RP_NS_PER_MS);
	}
}

static bool queues_known(struct fire *f)
{
	return f->queues_known == f->o.queues && f->consumers_open == f->consumer_count;
}

static void verdict(struct fire *f)
{
	const struct tally *t = &f->tally;
	double seconds = (double)(rp_loop_now_ns(f->loop) - f->begin_ns) / 1e9;
	uint64_t lost = missing(f, true);

	if (!fire_may_go(f) && (t->put != f->o.messages || t->received != t->put ||
				       t->acked != t->put || t->again != 0))
		fire_fault(f,
			"of %u messages %" PRIu64 " were put, %" PRIu64 " received, %" PRIu64
			" acknowledged",
			f->o.messages, t->put, t->received, t->acked);
	progress_print(f);
	printf("result seconds=%.2f put=%" PRIu64 " received=%" PRIu64 " crossed=%" PRIu64
	       " acked=%" PRIu64 " missing=%" PRIu64 " again=%" PRIu64 " unknown=%" PRIu64
	       " put_retries=%" PRIu64 " ack_retries=%" PRIu64 " ack_nothing=%" PRIu64
	       " roamed=%" PRIu64 " in_flight_max=%" PRIu64 " in_flight_mean=%" PRIu64
	       " put_us_mean=%" PRIu64 " put_us_max=%" PRIu64 " rate=%.0f faults=%u\n",
		seconds, t->put, t->received, t->crossed, t->acked, lost, t->again, t->unknown,
		t->put_retries, t->ack_retries, t->ack_nothing, t->roamed, f->in_flight_max,
		f->in_flight_samples ? f->in_flight_sum / f->in_flight_samples : 0,
		t->put ? t->put_ns_sum / t->put / 1000 : 0, t->put_ns_max / 1000,
		(double)t->put / seconds, f->faults);
}

static void run(struct fire *f)
{
	wait_for(f, "connections", channels_ready, 30 * RP_NS_PER_S);
	fire_consumers_open(f);
	wait_for(f, "consumers and their dispatchers", queues_known, 60 * RP_NS_PER_S);
	f->begin_ns = f->allowance_ns = rp_loop_now_ns(f->loop);
	f->running = true;
	rp_loop_fd_setup(&f->input, on_input, f);
	if (fire_may_go(f))
		rp_loop_fd_add(f->loop, &f->input, STDIN_FILENO, EPOLLIN);
	tick(f);
	progress(f);
	while (!is_over(f))
		rp_loop_run_once(f->loop, RP_NEVER);
	verdict(f);
}

static void usage(void)
{
	fputs("usage: fire --endpoint HOST:PORT (two or three) [--messages N] [--queues N]\n"
	      "            [--large N] [--large-bytes N] [--small-bytes N] [--in-flight N]\n"
	      "            [--rate N] [--hold-ms N] [--drain-ms N] [--seed N] [--prefix NAME]\n"
	      "            [--victim 0|1: until standard input ends, that node may go]\n"
	      "            [--roam: until standard input ends, nodes go one after the other]\n",
		stderr);
	exit(2);
}

static void parse(struct options *o, int argc, char **argv)
{
	static const struct option names[] = {{"endpoint", 1, NULL, 'e'},
		{"messages", 1, NULL, 'm'}, {"queues", 1, NULL, 'q'}, {"large", 1, NULL, 'l'},
		{"large-bytes", 1, NULL, 'L'}, {"small-bytes", 1, NULL, 's'},
		{"in-flight", 1, NULL, 'f'}, {"rate", 1, NULL, 'r'}, {"hold-ms", 1, NULL, 'h'},
		{"drain-ms", 1, NULL, 'd'}, {"seed", 1, NULL, 'S'}, {"prefix", 1, NULL, 'p'},
		{"victim", 1, NULL, 'v'}, {"roam", 0, NULL, 'R'}, {0}};
	unsigned endpoints = 0;
	int c;

	while ((c = getopt_long(argc, argv, "", names, NULL)) != -1) {
		uint64_t n = c == '?' || c == 'R' ? 0 : strtoull(optarg, NULL, 10);

		if (c == 'e' && endpoints < NODES)
			o->endpoint[endpoints++] = optarg;
		else if (c == 'm')
			o->messages = (uint32_t)n;
		else if (c == 'q')
			o->queues = (uint32_t)n;
		else if (c == 'l')
			o->large = (uint32_t)n;
		else if (c == 'L')
			o->large_bytes = (uint32_t)n;
		else if (c == 's')
			o->small_bytes = (uint32_t)n;
		else if (c == 'f')
			o->in_flight = (uint32_t)n;
		else if (c == 'r')
			o->rate = (uint32_t)n;
		else if (c == 'h')
			o->hold_ns = n * RP_NS_PER_MS;
		else if (c == 'd')
			o->drain_ns = n * RP_NS_PER_MS;
		else if (c == 'S')
			o->seed = n;
		else if (c == 'p')
			o->prefix = optarg;
		else if (c == 'v')
			o->victim = (int)n;
		else if (c == 'R')
			o->roam = true;
		else
			usage();
	}
	o->nodes = endpoints;
	if (endpoints < 2 || (o->roam && o->victim >= 0) || o->queues == 0 ||
		o->large > o->messages / 2 || o->victim > 1)
		usage();
	/* The load with a victim ends when it is told to. */
	if (o->victim >= 0 || o->roam)
		o->messages = UINT32_MAX;
}

int main(int argc, char **argv)
{
	static struct fire f = {
		.o = {.prefix = "fire",
			.messages = 6000,
			.queues = 200,
			.large_bytes = 1572864,
			.small_bytes = 16384,
			.in_flight = 1000,
			.hold_ns = 3 * RP_NS_PER_S,
			.drain_ns = 20 * RP_NS_PER_S,
			.seed = 1,
			.victim = -1},
	};
	uint32_t bytes_max;

	parse(&f.o, argc, argv);
	fprintf(stderr, "fire: seed %" PRIu64 "\n", f.o.seed);
	f.rand.state = f.o.seed;
	f.loop = rp_loop_new();
	bytes_max = f.o.large_bytes > f.o.small_bytes ? f.o.large_bytes : f.o.small_bytes;
	f.scratch = malloc(bytes_max + 8);
	f.packed = malloc(bytes_max + 1024);
	f.queues = calloc(f.o.queues, sizeof(*f.queues));
	RP_ASSERT(f.loop && f.scratch && f.packed && f.queues);
	for (uint32_t i = 0; i < f.o.queues; i++) {
		f.queues[i].number = i;
		f.queues[i].kind = i % 4;
		snprintf(f.queues[i].name, sizeof(f.queues[i].name), "%s-%u", f.o.prefix, i);
	}
	rp_loop_timer_setup(&f.tick, tick, &f);
	rp_loop_timer_setup(&f.progress, progress, &f);
	channels_create(&f);
	fire_consumers_create(&f);
	fire_slots_create(&f);
	run(&f);
	f.stopping = true;
	f.o.victim = 0; /* what ends now ends on purpose */
	fire_consumers_destroy(&f);
	channels_destroy(&f);
	fire_slots_destroy(&f);
	rp_loop_fd_remove(&f.input);
	rp_loop_timer_cancel(&f.tick);
	rp_loop_timer_cancel(&f.progress);
	rp_loop_destroy(f.loop);
	free(f.queues);
	free(f.packed);
	free(f.scratch);
	return f.faults ? 1 : 0;
}
