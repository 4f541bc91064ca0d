/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a message through a queue costs: the two ends of ringperf's modes deliver and rr, data
 * planes of two nodes, on a pair of net_ring ports, which one thread serves in turn.
 *
 *   message_cost deliver [MESSAGES]   64 bytes to a queue of the other end, 256 under way, consumed
 *                                     and acknowledged there
 *   message_cost rr [REQUESTS]        through a queue there, and its reply through one here
 *   message_cost deliver-alone, rr-alone   the same within one node, without links
 *
 * With `steps` in front each turn is a microsecond later than the one before, whatever the clock
 * says: the same instructions each time, to be counted by callgrind.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <rte_eal.h>
#include <rte_mbuf.h>

#include <port/port.h>

#include "end.h"

#define BURST 32
#define WINDOW 256u
#define SIZE 64
#define MBUFS 16383u
#define LIMIT_TURNS 2000000000ull

static struct perf_options options[2];
static struct perf_worker workers[2];
static struct perf_run runs[2];
static uint64_t wanted, asked, over_count, turn_count, now_ns = RP_NS_PER_S;
static bool steps, rr;
static const char *where_requests = "requests", *where_replies = "replies";

static void die(const char *why)
{
	fprintf(stderr, "message_cost: %s\n", why);
	exit(2);
}

static uint64_t clock_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * RP_NS_PER_S + (uint64_t)ts.tv_nsec;
}

/* ---- the application ---- */

static void answered(struct end *e, uint64_t token, bool good, uint64_t at_ns)
{
	if (!good)
		die("a put was refused");
	if (!rr)
		over_count++;
}

static void message(struct end *e, const struct end_message *m, uint64_t at_ns)
{
	if (!rr)
		return;
	/* A reply begins with 1. */
	if (m->value[0] == 1) {
		over_count++;
		return;
	}
	if (!end_put(e, where_replies, END_TOKEN_MIN, "\1", 1, at_ns))
		die("no buffer");
}

static void ask(struct end *e);

/* As ringperf's requester does. */
static void told(struct end *e, uint64_t at_ns)
{
	if (rr && e == runs[0].state)
		ask(e);
}

static const struct end_ops ops = {.answered = answered, .message = message, .told = told};

static void ask(struct end *e)
{
	unsigned window = rr ? 1 : WINDOW;

	while (asked < wanted && asked - over_count < window) {
		if (!end_put(e, where_requests, END_TOKEN_MIN, "\0", 1, now_ns))
			die("no buffer");
		asked++;
	}
}

/* ---- turns ---- */

static void turn(unsigned i)
{
	struct rte_mbuf *burst[BURST];
	uint16_t n = 0;

	turn_count++;
	now_ns = steps ? now_ns + RP_NS_PER_US : clock_ns();
	if (workers[i].queue)
		n = rp_port_rx(workers[i].queue, burst, BURST, now_ns);
	if (n > 0)
		end_frames(&runs[i], 0, burst, n, now_ns);
	if (i == 0)
		ask(runs[0].state);
	end_turn(&runs[i], now_ns);
	if (workers[i].queue)
		rp_port_tx_flush(workers[i].queue, now_ns);
	if (runs[i].why)
		die(runs[i].why);
}

static void run_until(uint64_t count, unsigned ends)
{
	wanted = count;
	for (uint64_t turns = 0; over_count < wanted; turns++) {
		for (unsigned i = 0; i < ends; i++)
			turn(i);
		if (turns > LIMIT_TURNS)
			die("it does not end");
	}
}

/* ---- set-up ---- */

static struct rte_mempool *pool(const char *name, unsigned i, uint32_t count, uint16_t room)
{
	char text[32], error[RP_PORT_ERROR_SIZE];
	struct rte_mempool *p;

	snprintf(text, sizeof(text), "%s%u", name, i);
	p = rp_pool_create(text, count, room, 0, -1, error, sizeof(error));
	if (!p)
		die(error);
	return p;
}

static void make_end(unsigned i, struct rp_port *port)
{
	struct perf_options *o = &options[i];
	struct perf_worker *w = &workers[i];
	struct rp_tcp_config *t = &w->tcp_config;

	*o = (struct perf_options){.server = i == 1,
		.size = SIZE,
		.tcp_port = 7117,
		.has_peer = true,
		.peer = {10, 0, 0, (uint8_t)(2 - i)},
		.connect_ns = RP_NEVER};
	w->pool = pool("messages", i, MBUFS, 2048);
	w->frame_pool = pool("frames", i, MBUFS, 640);
	runs[i] = (struct perf_run){.options = o, .worker = w, .begun_ns = now_ns};
	if (port) {
		struct rp_port_info info;

		rp_port_info(port, &info);
		w->port = port;
		w->queue = rp_port_queue(port, 0);
		*t = (struct rp_tcp_config){
			.net = {.iface = {.mtu = 1500,
					.addresses = {{.ip = RP_IP4(10, 0, 0, (uint8_t)(i + 1)),
						.prefix_length = 24}},
					.rx_csum = true},
				.header_pool = pool("headers", i, MBUFS, 192),
				.control_pool = pool("control", i, 4095, 2048),
				.seed = 1},
			.connections_max = 16,
			.seed = 1,
		};
		t->net.payload_pool = t->net.control_pool;
		memcpy(t->net.iface.mac, info.mac, sizeof(info.mac));
	}
	if (end_begin(&runs[i], &ops, now_ns) != 0)
		die(runs[i].why);
}

static void make_pair(void)
{
	struct rp_port_config config = {.queues = 1, .checksum = RP_PORT_CHECKSUM_SW};
	struct rp_port *ports[2];
	char error[512];

	if (rp_port_create_pair(&config, ports, error, sizeof(error)) < 0)
		die(error);
	for (unsigned i = 0; i < 2; i++)
		make_end(i, ports[i]);
	end_consume(runs[1].state, where_requests);
	end_consume(runs[0].state, where_replies);
	end_dispatcher(runs[0].state, where_requests, END_SERVER);
	end_dispatcher(runs[1].state, where_replies, END_CLIENT);
	while (!end_is_up(runs[0].state, now_ns) || !end_is_up(runs[1].state, now_ns)) {
		turn(0);
		turn(1);
	}
}

static int start_eal(void)
{
	static char *eal[] = {(char *)"message_cost", (char *)"--no-huge", (char *)"-m",
		(char *)"320", (char *)"--no-pci", (char *)"--no-telemetry", (char *)"--no-shconf",
		(char *)"-l", (char *)"0", (char *)"--log-level=1", NULL};

	return rte_eal_init(RP_ARRAY_SIZE(eal) - 1, eal);
}

int main(int argc, char **argv)
{
	uint64_t count, begin_ns;
	unsigned ends = 2;

	if (argc > 1 && strcmp(argv[1], "steps") == 0) {
		steps = true;
		argc--;
		argv++;
	}
	if (argc < 2 || argc > 3)
		die("usage: message_cost [steps] deliver|rr|deliver-alone|rr-alone [COUNT]");
	rr = strncmp(argv[1], "rr", 2) == 0;
	count = argc > 2 ? strtoull(argv[2], NULL, 10) : 200000;
	if (count == 0 || (!rr && strncmp(argv[1], "deliver", 7) != 0) || start_eal() < 0)
		die("a mode and a count from 1 are wanted, and DPDK's environment");
	now_ns = steps ? RP_NS_PER_S : clock_ns();
	if (strstr(argv[1], "-alone")) {
		ends = 1;
		make_end(0, NULL);
		end_consume(runs[0].state, where_requests);
		end_consume(runs[0].state, where_replies);
	} else {
		make_pair();
	}
	run_until(1000, ends);
	turn_count = 0;
	begin_ns = clock_ns();
	run_until(1000 + count, ends);
	printf("%s: %" PRIu64 ", %.0f ns each in %.2f turns, both ends in one thread\n", argv[1],
		count, (double)(clock_ns() - begin_ns) / (double)count,
		(double)turn_count / (double)count);
	for (unsigned i = 0; i < ends; i++) {
		const struct end *e = runs[i].state;

		if (runs[i].faults > 0 || (rr && e->received < count))
			die("messages are missing");
		end_end(&runs[i], now_ns);
	}
	return 0;
}
