/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What our TCP costs on one lcore: two stacks on a pair of net_ring ports, which one thread serves
 * in turn, with software checksums made and checked.
 *
 *   tcp_cost stream [SEGMENTS]               full segments one way; ns a segment at either end
 *   tcp_cost rr [REQUESTS]                   64 bytes there and back; ns for both ends together
 *   tcp_cost many [CONNECTIONS [SEGMENTS [ROW]]]   as stream, in turn over that many connections,
 *                                            so many segments (1) in a row on each
 *   tcp_cost churn [CONNECTIONS]             opened and closed; a second, and what stays behind
 *
 * With `steps` in front (tcp_cost steps rr 1000) each turn is a microsecond later than the one
 * before, whatever the clock says: the same instructions each time, to be counted by callgrind.
 *
 * A time is the median of 32 parts of the run. An end's is all between its rx_burst and its
 * tx_burst: device, stack, and the application, which only frees what comes. The status is 1 where
 * memory does not come back.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_cycles.h>
#include <rte_eal.h>
#include <rte_mbuf.h>

#include <base/mbuf.h>
#include <base/units.h>
#include <net/net.h>
#include <port/port.h>
#include <tcp/tcp.h>

#define BURST 32
#define CONNECTIONS_MAX 16384
#define OPENING_MAX 256
#define SERVER_PORT 80
#define SMALL_BYTES 64

struct end {
	struct rp_tcp_stack *stack;
	struct rp_port *port;
	struct rp_port_queue *queue;
	struct rte_mempool *headers, *controls, *payloads;
	unsigned headers_free, controls_free, payloads_free;
	struct rp_conn *conns[CONNECTIONS_MAX];
	uint64_t received, opened, closed, ticks;
	bool echo;
	uint64_t again; /* requests that follow an answer each */
};

static struct end ends[2];
static bool close_at_once;
static double ns_per_tick;
static uint64_t start_tick;

static uint64_t tick_ns(uint64_t tick)
{
	return RP_NS_PER_S + (uint64_t)((double)(tick - start_tick) * ns_per_tick);
}

static uint64_t step_ticks; /* of a turn, where the time goes in steps; else 0 */
static uint64_t tick;	    /* when the last turn ended, and the next begins */

static uint64_t clock_read(void)
{
	return step_ticks ? tick : rte_rdtsc();
}

static uint64_t now(void)
{
	return tick_ns(clock_read());
}

static void die(const char *why)
{
	fprintf(stderr, "tcp_cost: %s\n", why);
	exit(2);
}

/* ---- the application ---- */

static struct rte_mbuf *buffer(struct end *e, uint32_t bytes)
{
	struct rte_mbuf *m = rte_pktmbuf_alloc(e->payloads);

	if (m)
		m->pkt_len = m->data_len = (uint16_t)bytes;
	return m;
}

static bool send_bytes(struct end *e, struct rp_conn *c, uint32_t bytes, uint64_t now_ns)
{
	struct rte_mbuf *m = buffer(e, bytes);

	if (m && c->transport->ops->send(c, m, now_ns) == 0)
		return true;
	rte_pktmbuf_free(m);
	return false;
}

static void on_open(void *ctx, struct rp_conn *c, uint64_t now_ns)
{
	struct end *e = ctx;

	e->opened++;
	if (close_at_once)
		c->transport->ops->close(c, now_ns);
}

static void on_data(void *ctx, struct rp_conn *c, struct rte_mbuf *chain, uint64_t now_ns)
{
	struct end *e = ctx;
	uint32_t bytes = chain->pkt_len;

	e->received += bytes;
	rp_mbuf_free(chain);
	c->transport->ops->consume(c, bytes, now_ns);
	if (e->echo || (e->again > 0 && e->again-- > 0))
		send_bytes(e, c, bytes, now_ns);
}

static void on_peer_fin(void *ctx, struct rp_conn *c, uint64_t now_ns)
{
	c->transport->ops->close(c, now_ns);
}

static void on_close(void *ctx, struct rp_conn *c, enum rp_close_reason why, uint64_t now_ns)
{
	if (why != RP_CLOSE_FIN && why != RP_CLOSE_ABORTED)
		die("a connection failed");
	((struct end *)ctx)->closed++;
}

static const struct rp_conn_events events = {
	.on_open = on_open,
	.on_data = on_data,
	.on_peer_fin = on_peer_fin,
	.on_close = on_close,
};

static int on_accept(void *listen_ctx, struct rp_conn *c, const struct rp_endpoint *peer,
	const struct rp_conn_events **e, void **ctx, uint64_t now_ns)
{
	*e = &events;
	*ctx = listen_ctx;
	((struct end *)listen_ctx)->opened++;
	return 0;
}

/* ---- the ends ---- */

static struct rte_mempool *pool(const char *name, unsigned i, unsigned n, uint16_t room)
{
	char text[32];
	struct rte_mempool *p;

	snprintf(text, sizeof(text), "%s%u", name, i);
	p = rte_pktmbuf_pool_create_by_ops(text, n, 256, 0, (uint16_t)(RTE_PKTMBUF_HEADROOM + room),
		SOCKET_ID_ANY, "lf_stack");
	if (!p)
		die("no memory for pools");
	return p;
}

static void make_end(unsigned i, uint64_t now_ns)
{
	struct end *e = &ends[i];
	struct rp_tcp_config c = {
		.net = {.iface = {.mtu = 1500,
				.rx_csum = true,
				.mac = {2, 0, 0, 0, 0, (uint8_t)i},
				.addresses = {{.ip = RP_IP4(10, 0, 0, (uint8_t)(i + 1)),
					.prefix_length = 24}}}},
		.connections_max = CONNECTIONS_MAX,
		.backlog = OPENING_MAX,
		.segments_max = 262144,
		.time_wait_ns = RP_NS_PER_MS,
		.port_first = 1024,
		.port_last = 65535,
		.seed = i,
		.secret = {(uint8_t)i},
	};

	e->headers = pool("headers", i, 32767, 192);
	e->controls = pool("controls", i, 16383, 192);
	e->payloads = pool("payloads", i, 65535, 1664);
	e->headers_free = rte_mempool_avail_count(e->headers);
	e->controls_free = rte_mempool_avail_count(e->controls);
	e->payloads_free = rte_mempool_avail_count(e->payloads);
	e->queue = rp_port_queue(e->port, 0);
	c.net.header_pool = e->headers;
	c.net.control_pool = e->controls;
	c.net.payload_pool = e->payloads;
	e->stack = rp_tcp_create(&c, now_ns);
	if (!e->stack)
		die("no stack");
}

static void tx_all(struct end *e, uint64_t now_ns)
{
	struct rte_mbuf *burst[BURST];
	unsigned n, room;

	do {
		room = RP_MIN((unsigned)rp_port_tx_room(e->queue), (unsigned)BURST);
		n = rp_tcp_tx(e->stack, burst, room);
		for (unsigned i = 0; i < n; i++)
			rp_port_tx(e->queue, burst[i], now_ns);
	} while (n == BURST);
	rp_port_tx_flush(e->queue, now_ns);
}

/* One turn of an end's loop; `work` is what the application does in it. */
static void turn(unsigned i, void (*work)(struct end *e, uint64_t now_ns))
{
	struct end *e = &ends[i];
	uint64_t t0 = tick, now_ns = tick_ns(t0);
	struct rte_mbuf *burst[BURST];
	uint16_t n = rp_port_rx(e->queue, burst, BURST, now_ns);

	if (n > 0)
		rp_tcp_rx(e->stack, burst, n, now_ns);
	if (work)
		work(e, now_ns);
	rp_tcp_poll(e->stack, now_ns);
	tx_all(e, now_ns);
	tick = step_ticks ? tick + step_ticks : rte_rdtsc();
	e->ticks += tick - t0;
}

/* Turns of both ends, until one began when the time was over. */
static void rest(uint64_t ns)
{
	uint64_t until_ns = now() + ns;

	for (bool over = false; !over;) {
		over = tick_ns(tick) >= until_ns;
		turn(0, NULL);
		turn(1, NULL);
	}
}

/* As between appliances, in steps: on a clock that goes on while others run, a timeout of
 * milliseconds would come from them. */
static const struct rp_conn_options options = {
	.rto_min_ns = 5 * RP_NS_PER_MS,
	.ack_delay_max_ns = RP_NS_PER_MS,
};

static void dial(struct end *e, uint32_t index, uint64_t now_ns)
{
	const struct rp_endpoint peer = {.family = 4, .port = SERVER_PORT, .addr = {10, 0, 0, 2}};
	struct rp_transport *t = rp_tcp_transport(e->stack);

	e->conns[index] = t->ops->dial(t, &peer, step_ticks ? &options : NULL, &events, e, now_ns);
	if (!e->conns[index])
		die("cannot dial");
}

static void open_all(uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		dial(&ends[0], i, now());
		while (ends[0].opened + OPENING_MAX <= i ||
			(i + 1 == count && ends[0].opened < count)) {
			turn(0, NULL);
			turn(1, NULL);
		}
	}
	rest(RP_NS_PER_MS);
}

/* ---- the measurements ---- */

/* A measurement is cut, and the figure is the median of the parts: other programs disturb some. */
#define PARTS 32u
struct parts {
	double ns[PARTS];
};

static int by_ns(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

static double median(struct parts *p)
{
	qsort(p->ns, PARTS, sizeof(p->ns[0]), by_ns);
	return (p->ns[PARTS / 2 - 1] + p->ns[PARTS / 2]) / 2;
}

#define AHEAD 4 /* connections that are fetched before they send */

static uint32_t connections = 1, next_conn, row = 1, in_row;
static uint64_t wanted, queued;

static void send_segments(struct end *e, uint64_t now_ns)
{
	for (unsigned k = 0; k < BURST && queued < wanted; k++) {
		struct rp_conn *c = e->conns[next_conn];
		uint32_t piece = c->transport->ops->piece(c);

		if (in_row == 0 && connections > AHEAD)
			rp_tcp_prefetch(e->conns[(next_conn + AHEAD) % connections]);
		in_row = in_row + 1 < row ? in_row + 1 : 0;
		if (in_row == 0)
			next_conn = next_conn + 1 < connections ? next_conn + 1 : 0;
		if (c->transport->ops->send_space(c) < piece || !send_bytes(e, c, piece, now_ns))
			return;
		queued++;
	}
}

static double stream(uint64_t segments)
{
	const struct rp_tcp_counters *tx = rp_tcp_counters(ends[0].stack);
	struct parts parts[2];
	uint64_t bytes, rtx, t0;
	double ns;

	open_all(connections);
	bytes = segments * ends[0].conns[0]->transport->ops->piece(ends[0].conns[0]);
	rtx = tx->rtx_segments;
	ends[0].ticks = ends[1].ticks = ends[1].received = queued = 0;
	wanted = segments;
	t0 = clock_read();
	for (unsigned k = 0; k < PARTS; k++) {
		uint64_t at[2] = {ends[0].ticks, ends[1].ticks}, from = ends[1].received;
		double part;

		while (ends[1].received < bytes / PARTS * (k + 1)) {
			turn(0, send_segments);
			turn(1, NULL);
		}
		part = (double)RP_MAX(ends[1].received - from, 1u) * (double)segments /
		       (double)bytes;
		for (unsigned i = 0; i < 2; i++)
			parts[i].ns[k] = (double)(ends[i].ticks - at[i]) * ns_per_tick / part;
	}
	while (ends[1].received < bytes) {
		turn(0, send_segments);
		turn(1, NULL);
	}
	ns = (double)(clock_read() - t0) * ns_per_tick / (double)segments;
	printf("%" PRIu64
	       " segments over %u connections, %u in a row: receiver %.1f ns, sender %.1f ns a segment; "
	       "%.2f Gbit/s in one thread; %" PRIu64 " retransmitted\n",
		segments, connections, row, median(&parts[1]), median(&parts[0]),
		(double)bytes * 8 / (double)segments / ns, tx->rtx_segments - rtx);
	return ns;
}

static void rr(uint64_t requests)
{
	struct parts parts;

	ends[1].echo = true;
	open_all(1);
	ends[0].received = 0;
	ends[0].again = requests - 1;
	if (!send_bytes(&ends[0], ends[0].conns[0], SMALL_BYTES, now()))
		die("no buffer");
	for (unsigned k = 0; k < PARTS; k++) {
		uint64_t t0 = clock_read(), from = ends[0].received;

		while (ends[0].received < requests * (k + 1) / PARTS * SMALL_BYTES) {
			turn(0, NULL);
			turn(1, NULL);
		}
		parts.ns[k] = (double)(clock_read() - t0) * ns_per_tick * SMALL_BYTES /
			      (double)RP_MAX(ends[0].received - from, 1u);
	}
	printf("%" PRIu64 " requests of %u bytes: %.1f ns each, both ends\n", requests, SMALL_BYTES,
		median(&parts));
}

static void open_more(struct end *e, uint64_t now_ns)
{
	for (unsigned k = 0; k < BURST && queued < wanted && queued - e->closed < OPENING_MAX;
		k++) {
		dial(e, (uint32_t)(queued % CONNECTIONS_MAX), now_ns);
		queued++;
	}
}

static void churn(uint64_t count)
{
	uint64_t t0 = clock_read();
	double s;

	close_at_once = true;
	wanted = count;
	while (ends[0].closed < count || ends[1].closed < count) {
		turn(0, open_more);
		turn(1, NULL);
	}
	s = (double)(clock_read() - t0) * ns_per_tick / 1e9;
	printf("%" PRIu64
	       " connections opened and closed: %.0f a second, both ends in one thread\n",
		count, (double)count / s);
}

/* ---- memory ---- */

static int check_memory(void)
{
	int rc = 0;

	for (unsigned i = 0; i < 2; i++) {
		struct rp_tcp_usage u;

		rp_tcp_usage(ends[i].stack, &u);
		if (u.connections || u.half_open || u.time_wait || u.segments || u.ranges ||
			u.timers) {
			printf("end %u: left are %u connections, %u half open, %u in TIME-WAIT, %u "
			       "segments, %u timers\n",
				i, u.connections, u.half_open, u.time_wait, u.segments, u.timers);
			rc = 1;
		}
		rp_tcp_destroy(ends[i].stack);
		ends[i].stack = NULL;
	}
	/* What lies in the rings. */
	for (unsigned i = 0; i < 2; i++) {
		struct rte_mbuf *burst[BURST];
		uint16_t n;

		while ((n = rp_port_rx(ends[i].queue, burst, BURST, now())) > 0)
			rte_pktmbuf_free_bulk(burst, n);
	}
	for (unsigned i = 0; i < 2; i++) {
		const struct end *e = &ends[i];

		if (rte_mempool_avail_count(e->headers) != e->headers_free ||
			rte_mempool_avail_count(e->controls) != e->controls_free ||
			rte_mempool_avail_count(e->payloads) != e->payloads_free) {
			printf("end %u: free are %u headers of %u, %u controls of %u, %u payloads of %u\n",
				i, rte_mempool_avail_count(e->headers), e->headers_free,
				rte_mempool_avail_count(e->controls), e->controls_free,
				rte_mempool_avail_count(e->payloads), e->payloads_free);
			rc = 1;
		}
	}
	if (rc == 0)
		printf("memory is back at its start\n");
	return rc;
}

static void close_all(void)
{
	uint64_t closed = ends[0].closed + connections;

	for (uint32_t i = 0; i < connections; i++)
		ends[0].conns[i]->transport->ops->close(ends[0].conns[i], now());
	while (ends[0].closed < closed) {
		turn(0, NULL);
		turn(1, NULL);
	}
}

#define MEMORY_MIB 768u

/* Buffers on pages of 4 KiB cost a look-up each: huge ones are taken where enough are free. */
static bool huge_pages(void)
{
	FILE *f = fopen("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "re");
	unsigned pages = 0;

	if (!f)
		return false;
	if (fscanf(f, "%u", &pages) != 1)
		pages = 0;
	fclose(f);
	return 2 * pages >= MEMORY_MIB + 64;
}

static int start_eal(bool steps)
{
	static char *eal[] = {(char *)"tcp_cost", (char *)"--no-huge", (char *)"-m", (char *)"768",
		(char *)"--no-pci", (char *)"--no-telemetry", (char *)"--no-shconf", (char *)"-l",
		(char *)"0", (char *)"--log-level=1", NULL};
	bool huge = !steps && huge_pages();

	if (huge)
		eal[1] = (char *)"--in-memory";
	printf("huge pages: %s\n", huge ? "yes" : "no");
	return rte_eal_init(RP_ARRAY_SIZE(eal) - 1, eal);
}

static void make_ends(void)
{
	struct rp_port_config config = {.queues = 1, .checksum = RP_PORT_CHECKSUM_SW};
	struct rp_port *ports[2];
	struct rp_transport *t;
	char error[512];

	if (rp_port_create_pair(&config, ports, error, sizeof(error)) < 0)
		die(error);
	for (unsigned i = 0; i < 2; i++) {
		ends[i].port = ports[i];
		make_end(i, now());
	}
	t = rp_tcp_transport(ends[1].stack);
	if (t->ops->listen(t, SERVER_PORT, step_ticks ? &options : NULL, on_accept, &ends[1]) != 0)
		die("cannot listen");
}

int main(int argc, char **argv)
{
	bool steps = argc > 1 && strcmp(argv[1], "steps") == 0;
	const char *what;
	uint64_t n, m;

	argc -= steps;
	argv += steps;
	what = argc > 1 ? argv[1] : "";
	n = argc > 2 ? strtoull(argv[2], NULL, 10) : 0;
	m = argc > 3 ? strtoull(argv[3], NULL, 10) : 0;
	if (start_eal(steps) < 0)
		return 2;
	ns_per_tick = 1e9 / (double)rte_get_tsc_hz();
	if (steps) {
		ns_per_tick = 1;
		step_ticks = RP_NS_PER_US;
	}
	start_tick = tick = rte_rdtsc();
	make_ends();
	if (strcmp(what, "stream") == 0) {
		stream(n ? n : 2000000);
	} else if (strcmp(what, "rr") == 0) {
		rr(n ? n : 2000000);
	} else if (strcmp(what, "many") == 0 && n <= CONNECTIONS_MAX - OPENING_MAX) {
		connections = n ? (uint32_t)n : 10000;
		row = argc > 4 ? (uint32_t)strtoul(argv[4], NULL, 10) : 1;
		stream(m ? m : 2000000);
	} else if (strcmp(what, "churn") == 0) {
		churn(n ? n : 1000000);
		connections = 0;
	} else {
		die("stream, rr, many or churn; see the head of test/perf/tcp_cost.c");
	}
	close_all();
	rest(20 * RP_NS_PER_MS);
	return check_memory();
}
