/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two TCP stacks in one thread, joined by a wire that copies each frame, as a shared memory port
 * does. What a segment costs at either end, without a second processor, a scheduler or a device in
 * the way: for profiles, and for counts of instructions under callgrind, which repeat.
 *
 *   tcp_loop [MEBIBYTES] [MESSAGE_BYTES] [BUFFER_BYTES] [SENDS_A_TURN]
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <rte_cycles.h>
#include <rte_eal.h>
#include <rte_mbuf.h>

#include <base/mbuf.h>
#include <base/units.h>
#include <net/net.h>
#include <tcp/tcp.h>

#define BURST 64

struct end {
	struct rp_tcp_stack *stack;
	struct rte_mempool *headers, *frames;
	struct rp_conn *conn;
	uint64_t received, datas, ticks;
};

static struct end ends[2];
static struct rte_mempool *payloads;
static uint64_t now_ns = RP_NS_PER_S;

static void on_open(void *ctx, struct rp_conn *c, uint64_t now)
{
	((struct end *)ctx)->conn = c;
}

static void on_data(void *ctx, struct rp_conn *c, struct rte_mbuf *chain, uint64_t now)
{
	struct end *e = ctx;
	uint32_t bytes = chain->pkt_len;

	e->received += bytes;
	e->datas++;
	rte_pktmbuf_free(chain);
	c->transport->ops->consume(c, bytes, now);
}

static void on_close(void *ctx, struct rp_conn *c, enum rp_close_reason why, uint64_t now)
{
	((struct end *)ctx)->conn = NULL;
}

static const struct rp_conn_events events = {
	.on_open = on_open,
	.on_data = on_data,
	.on_close = on_close,
};

static int on_accept(void *listen_ctx, struct rp_conn *c, const struct rp_endpoint *peer,
	const struct rp_conn_events **e, void **ctx, uint64_t now)
{
	*e = &events;
	*ctx = listen_ctx;
	((struct end *)listen_ctx)->conn = c;
	return 0;
}

static struct rte_mempool *pool(const char *name, unsigned i, unsigned n, uint16_t room)
{
	char text[32];
	struct rte_mempool *p;

	snprintf(text, sizeof(text), "%s%u", name, i);
	p = rte_pktmbuf_pool_create_by_ops(text, n, 256, 0, (uint16_t)(RTE_PKTMBUF_HEADROOM + room),
		SOCKET_ID_ANY, "lf_stack");
	if (!p) {
		fprintf(stderr, "no memory for pool %s\n", text);
		exit(1);
	}
	return p;
}

static void make_end(unsigned i)
{
	struct rp_tcp_config c = {
		.net = {.iface = {.mtu = 1500,
				.mac = {2, 0, 0, 0, 0, (uint8_t)i},
				.addresses = {{.ip = RP_IP4(10, 0, 0, (uint8_t)(i + 1)),
					.prefix_length = 24}}}},
		.seed = i,
	};

	ends[i].headers = pool("headers", i, 8191, 192);
	ends[i].frames = pool("frames", i, 8191, 2048);
	c.net.header_pool = ends[i].headers;
	c.net.control_pool = c.net.payload_pool = ends[i].frames;
	ends[i].stack = rp_tcp_create(&c, now_ns);
}

/* The frames of one end, copied, become the other's. */
static void wire(unsigned from)
{
	struct end *a = &ends[from], *b = &ends[1 - from];
	struct rte_mbuf *burst[BURST], *copy[BURST];
	unsigned n;

	do {
		uint64_t t0 = rte_rdtsc(), t1, t2;

		n = rp_tcp_tx(a->stack, burst, BURST);
		t1 = rte_rdtsc();
		for (unsigned k = 0; k < n; k++) {
			copy[k] = rte_pktmbuf_alloc(b->frames);
			copy[k]->pkt_len = copy[k]->data_len = (uint16_t)rp_mbuf_copy_out(
				burst[k], 0, rte_pktmbuf_mtod(copy[k], void *), 2048);
		}
		t2 = rte_rdtsc();
		a->ticks += t1 - t0;
		for (unsigned k = 0; k < n; k++)
			rte_pktmbuf_free(burst[k]);
		a->ticks += rte_rdtsc() - t2;
		t0 = rte_rdtsc();
		if (n > 0)
			rp_tcp_rx(b->stack, copy, n, now_ns);
		b->ticks += rte_rdtsc() - t0;
	} while (n == BURST);
}

static void poll_end(unsigned i)
{
	uint64_t t0 = rte_rdtsc();

	rp_tcp_poll(ends[i].stack, now_ns);
	ends[i].ticks += rte_rdtsc() - t0;
}

static void turn(void)
{
	now_ns += 5 * RP_NS_PER_US;
	for (unsigned i = 0; i < 2; i++) {
		poll_end(i);
		wire(i);
	}
}

static struct rte_mbuf *make_message(uint32_t bytes, uint32_t buffer_bytes)
{
	struct rte_mbuf *first = NULL;

	while (bytes > 0) {
		struct rte_mbuf *m = rte_pktmbuf_alloc(payloads);

		if (!m)
			break;
		m->pkt_len = m->data_len = (uint16_t)RP_MIN(bytes, buffer_bytes);
		bytes -= m->data_len;
		rp_mbuf_append(&first, m);
	}
	if (bytes > 0) {
		rte_pktmbuf_free(first);
		return NULL;
	}
	return first;
}

static void transfer(uint64_t bytes, uint32_t message_bytes, uint32_t buffer_bytes, unsigned sends)
{
	struct end *a = &ends[0];
	uint64_t queued = 0, end = ends[1].received + bytes;

	while (ends[1].received < end) {
		for (unsigned i = 0; i < sends && queued < bytes; i++) {
			struct rte_mbuf *m;
			uint64_t t0;

			if (a->conn->transport->ops->send_space(a->conn) < message_bytes)
				break;
			m = make_message(message_bytes, buffer_bytes);
			if (!m)
				break;
			t0 = rte_rdtsc();
			if (a->conn->transport->ops->send(a->conn, m, now_ns) != 0) {
				rte_pktmbuf_free(m);
				break;
			}
			a->ticks += rte_rdtsc() - t0;
			queued += message_bytes;
		}
		turn();
	}
}

static void report(uint64_t bytes, uint32_t message_bytes)
{
	const struct rp_tcp_counters *n = rp_tcp_counters(ends[0].stack);
	double hz = (double)rte_get_tsc_hz(), segments = (double)n->tx_segments;

	printf("%" PRIu64 " segments, %" PRIu64 " retransmitted, %" PRIu64
	       " deliveries, mean payload "
	       "%.0f\n",
		n->tx_segments, n->rtx_segments, ends[1].datas, (double)n->tx_bytes / segments);
	for (unsigned i = 0; i < 2; i++)
		printf("%s: %.1f ns a segment, %.1f ns a message\n", i ? "receiver" : "sender",
			(double)ends[i].ticks / hz * 1e9 / segments,
			(double)ends[i].ticks / hz * 1e9 / ((double)bytes / message_bytes));
}

int main(int argc, char **argv)
{
	static char *eal[] = {(char *)"tcp_loop", (char *)"--no-huge", (char *)"-m", (char *)"256",
		(char *)"--no-pci", (char *)"--no-telemetry", (char *)"--no-shconf", (char *)"-l",
		(char *)"0", (char *)"--log-level=1", NULL};
	uint64_t mebibytes = argc > 1 ? strtoull(argv[1], NULL, 10) : 256;
	uint32_t message_bytes = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 16384;
	uint32_t buffer_bytes = argc > 3 ? (uint32_t)strtoul(argv[3], NULL, 10) : 2048;
	unsigned sends = argc > 4 ? (unsigned)strtoul(argv[4], NULL, 10) : 65536 / message_bytes;
	struct rp_endpoint peer = {.family = 4, .port = 80, .addr = {10, 0, 0, 2}};

	if (message_bytes == 0 || buffer_bytes == 0 || buffer_bytes > 2048 ||
		rte_eal_init(RP_ARRAY_SIZE(eal) - 1, eal) < 0)
		return 1;
	payloads = pool("payloads", 0, 4095, 2048);
	make_end(0);
	make_end(1);
	rp_tcp_transport(ends[1].stack)
		->ops->listen(rp_tcp_transport(ends[1].stack), 80, NULL, on_accept, &ends[1]);
	rp_tcp_transport(ends[0].stack)
		->ops->dial(
			rp_tcp_transport(ends[0].stack), &peer, NULL, &events, &ends[0], now_ns);
	for (unsigned i = 0; i < 1000 && !(ends[0].conn && ends[1].conn); i++)
		turn();
	if (!ends[0].conn)
		return 1;
	ends[0].ticks = ends[1].ticks = 0;
	transfer(mebibytes << 20, message_bytes, buffer_bytes, sends > 0 ? sends : 1);
	report(mebibytes << 20, message_bytes);
	for (unsigned i = 0; i < 2; i++)
		rp_tcp_destroy(ends[i].stack);
	return 0;
}
