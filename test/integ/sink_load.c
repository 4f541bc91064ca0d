/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Messages for the tests of sinks: sink_load ADDRESS QUEUE FIRST COUNT RATE [ROWS [BYTES]]
 *
 * Puts COUNT messages on the queue at RATE a second (0: as fast as they are taken), one put a
 * message. Each has ROWS rows, {"id": n, "text": "row n"}, numbered from FIRST on, each padded to
 * BYTES. The last line is JSON: how long it took, and the puts' times in microseconds.
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <etcdserverpb/rpc.pb-c.h>

#include <grpc/client.h>

/** Puts that wait for their answer. */
#define WINDOW 1000u
/** Puts begun before the loop is turned. */
#define TURN_MAX 64u
#define VALUE_MAX (1u << 20)

static struct {
	struct rp_loop *loop;
	struct rp_grpc_channel *channel;
	const char *queue;
	uint64_t first, count, rate, rows, bytes;
	uint64_t begin_ns, end_ns, sent, open, done;
	uint64_t *took_ns; /**< of each: when it was begun, then how long it took */
	bool ready;
	char key[600], value[VALUE_MAX];
	uint8_t request[VALUE_MAX + 1024];
} load;

static void fail(const char *what, const char *why)
{
	fprintf(stderr, "sink_load: %s: %s\n", what, why);
	exit(1);
}

static void on_state(struct rp_grpc_channel *channel, enum rp_grpc_channel_state state,
	const char *reason, void *ctx)
{
	if (state == RP_GRPC_CHANNEL_LOST)
		fail("the connection", reason);
	load.ready = state == RP_GRPC_CHANNEL_READY;
}

static void on_put(
	void *ctx, enum rp_grpc_code code, const char *message, const uint8_t *data, size_t length)
{
	uint64_t *took_ns = ctx;

	if (code != RP_GRPC_OK)
		fail("a put", message);
	load.end_ns = rp_loop_clock_ns();
	*took_ns = load.end_ns - *took_ns;
	load.open--;
	load.done++;
}

static size_t rows_of(uint64_t id)
{
	size_t n = 0;

	for (uint64_t i = 0; i < load.rows; i++) {
		size_t at = n;

		n += (size_t)sprintf(load.value + n, "{\"id\": %lu, \"text\": \"row %lu",
			(unsigned long)(id + i), (unsigned long)(id + i));
		while (n - at + 3 < load.bytes)
			load.value[n++] = 'x';
		n += (size_t)sprintf(load.value + n, "\"}\n");
	}
	return n - 1;
}

static void put(void)
{
	Etcdserverpb__PutRequest m = ETCDSERVERPB__PUT_REQUEST__INIT;
	uint64_t id = load.first + load.sent * load.rows, *took_ns = &load.took_ns[load.sent++];

	m.key.data = (uint8_t *)load.key;
	m.key.len = (size_t)snprintf(
		load.key, sizeof(load.key), "/q/%s/p/r%lu", load.queue, (unsigned long)id);
	m.value.data = (uint8_t *)load.value;
	m.value.len = rows_of(id);
	load.open++;
	*took_ns = rp_loop_clock_ns();
	if (!rp_grpc_channel_unary(load.channel, "/etcdserverpb.KV/Put", NULL, 0, RP_NEVER,
		    load.request, etcdserverpb__put_request__pack(&m, load.request), on_put,
		    took_ns))
		fail("a put", strerror(errno));
}

/* When the next one is due, from the begin on. */
static uint64_t due_ns(void)
{
	return load.rate ? load.sent * RP_NS_PER_S / load.rate : 0;
}

static void run(void)
{
	uint64_t now_ns, wait_ns;

	load.begin_ns = rp_loop_clock_ns();
	while (load.done < load.count) {
		unsigned n = 0;

		now_ns = rp_loop_clock_ns() - load.begin_ns;
		while (load.sent < load.count && load.open < WINDOW && n++ < TURN_MAX &&
			due_ns() <= now_ns)
			put();
		if (load.sent == load.count || load.open == WINDOW)
			wait_ns = RP_NS_PER_S;
		else
			wait_ns = due_ns() > now_ns ? due_ns() - now_ns : 0;
		if (rp_loop_run_once(load.loop, wait_ns) < 0)
			fail("epoll", strerror(errno));
	}
}

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static void report(void)
{
	qsort(load.took_ns, load.count, sizeof(*load.took_ns), compare);
	printf("{\"messages\": %lu, \"seconds\": %.3f, \"p50_us\": %.0f, \"p99_us\": %.0f, "
	       "\"max_us\": %.0f}\n",
		(unsigned long)load.count, (double)(load.end_ns - load.begin_ns) / 1e9,
		(double)load.took_ns[load.count / 2] / 1e3,
		(double)load.took_ns[load.count * 99 / 100] / 1e3,
		(double)load.took_ns[load.count - 1] / 1e3);
}

static uint64_t number(int argc, char **argv, int i, uint64_t otherwise)
{
	return argc > i ? strtoull(argv[i], NULL, 10) : otherwise;
}

int main(int argc, char **argv)
{
	struct rp_grpc_channel_config config = rp_grpc_channel_config_default();

	if (argc < 6)
		fail("usage", "sink_load ADDRESS QUEUE FIRST COUNT RATE [ROWS [BYTES]]");
	load.queue = argv[2];
	load.first = number(argc, argv, 3, 0);
	load.count = number(argc, argv, 4, 0);
	load.rate = number(argc, argv, 5, 0);
	load.rows = number(argc, argv, 6, 1);
	load.bytes = number(argc, argv, 7, 0);
	if (load.count == 0 || load.rows == 0 || load.rows * (load.bytes + 64) > VALUE_MAX ||
		strlen(load.queue) > 300)
		fail("usage", "nothing to put, or too much at once");
	load.took_ns = calloc(load.count, sizeof(*load.took_ns));
	load.loop = rp_loop_new();
	config.on_state = on_state;
	config.out_bytes_max = 256u << 20;
	load.channel = load.loop ? rp_grpc_channel_new(load.loop, argv[1], &config) : NULL;
	if (!load.took_ns || !load.channel || rp_grpc_channel_connect(load.channel) != 0)
		fail("start", strerror(errno));
	while (!load.ready)
		rp_loop_run_once(load.loop, RP_NS_PER_S);
	run();
	report();
	rp_grpc_channel_destroy(load.channel);
	rp_loop_destroy(load.loop);
	free(load.took_ns);
	return 0;
}
