/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An emulated link in real time, between a sender and the kernel's TCP as the receiver. The sender
 * is the kernel's TCP at another tap, or our stack in this process; the link is the same code.
 *
 *   links --sender linux|ours --rtt-us 1000 --mbps 200 --buffer 200 --impair drop=0.01 --seconds 4
 *
 * Makes a tap "lkb", and with --sender linux a tap "lka", in the network namespace it is started
 * in; whoever starts it gives them addresses: 192.0.2.1 is the sender's, 192.0.2.2 the receiver's,
 * which listens at --port. "ready" is printed when the taps are there. Each direction of the link
 * has the rate, a drop-tail buffer of --buffer frames, half the round trip, and the impairment of
 * base/. With --sender ours it waits for a line on its input, then dials and sends for --seconds.
 * The last line has what the link and our stack counted.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include <rte_eal.h>
#include <rte_mbuf.h>

#include <base/impair.h>
#include <base/mbuf.h>
#include <base/units.h>
#include <port/port.h>
#include <tcp/tcp.h>

#define BURST 32
#define FRAME_MAX 2048
#define HELD_MAX (1u << 16)
#define CHUNK (8 * 1448)

struct held {
	uint64_t due_ns, order;
	struct rte_mbuf *m;
};

struct direction {
	struct rp_impair impair;
	uint64_t free_ns; /* when the link has sent what was given to it */
	uint64_t frames, dropped, order;
	struct held *heap;
	uint32_t count;
};

static struct {
	bool ours;
	uint64_t rtt_ns;
	unsigned mbps, buffer, seconds;
	uint16_t port;
	uint64_t seed;
	struct rp_impair_spec impair;
	const char *congestion;
} opt = {.rtt_ns = RP_NS_PER_MS, .mbps = 100, .buffer = 100, .seconds = 4, .port = 9000};

static struct direction dirs[2]; /* from the sender, from the receiver */
static int taps[2] = {-1, -1};
static struct rte_mempool *pool, *header_pool;
static struct rp_tcp_stack *stack;
static struct rp_conn *conn;
static bool closed;
static uint8_t payload[CHUNK];

static uint64_t clock_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * RP_NS_PER_S + (uint64_t)ts.tv_nsec;
}

/* ---- the link ---- */

static bool before(const struct held *a, const struct held *b)
{
	return a->due_ns != b->due_ns ? a->due_ns < b->due_ns : a->order < b->order;
}

static void push(struct direction *d, struct rte_mbuf *m, uint64_t due_ns)
{
	struct held x = {due_ns, d->order++, m};
	uint32_t i;

	if (d->count == HELD_MAX) {
		d->dropped++;
		rte_pktmbuf_free(m);
		return;
	}
	for (i = d->count++; i > 0 && before(&x, &d->heap[(i - 1) / 2]); i = (i - 1) / 2)
		d->heap[i] = d->heap[(i - 1) / 2];
	d->heap[i] = x;
}

static struct rte_mbuf *pop(struct direction *d, uint64_t now_ns)
{
	struct rte_mbuf *m;
	struct held last;
	uint32_t i = 0, child;

	if (d->count == 0 || d->heap[0].due_ns > now_ns)
		return NULL;
	m = d->heap[0].m;
	last = d->heap[--d->count];
	while ((child = 2 * i + 1) < d->count) {
		if (child + 1 < d->count && before(&d->heap[child + 1], &d->heap[child]))
			child++;
		if (!before(&d->heap[child], &last))
			break;
		d->heap[i] = d->heap[child];
		i = child;
	}
	d->heap[i] = last;
	return m;
}

/* Takes m. What is not IPv4 passes at once, so that neighbours are found. */
static void link_send(struct direction *d, struct rte_mbuf *m, uint64_t now_ns)
{
	const uint8_t *type = rte_pktmbuf_mtod_offset(m, const uint8_t *, 12);
	uint64_t frame_ns = m->pkt_len * 8000ull / opt.mbps, full_ns = 1514 * 8000ull / opt.mbps;
	struct rp_impair_verdict v;

	if (type[0] != 8 || type[1] != 0) {
		push(d, m, now_ns);
		return;
	}
	d->frames++;
	if (d->free_ns > now_ns && (d->free_ns - now_ns) / full_ns >= opt.buffer) {
		d->dropped++;
		rte_pktmbuf_free(m);
		return;
	}
	d->free_ns = RP_MAX(d->free_ns, now_ns) + frame_ns;
	v = rp_impair_decide(&d->impair);
	if (v.copies == 0)
		rte_pktmbuf_free(m);
	else
		push(d, m, d->free_ns + opt.rtt_ns / 2 + v.delay_ns[0]);
}

/* ---- the taps ---- */

static int tap_open(const char *name)
{
	struct ifreq r = {.ifr_flags = IFF_TAP | IFF_NO_PI};
	int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK);

	if (fd < 0)
		return -1;
	snprintf(r.ifr_name, sizeof(r.ifr_name), "%s", name);
	if (ioctl(fd, TUNSETIFF, &r) < 0) {
		close(fd);
		return -1;
	}
	return fd;
}

static unsigned tap_read(int fd, struct direction *d)
{
	unsigned n;

	for (n = 0; n < BURST; n++) {
		struct rte_mbuf *m = rte_pktmbuf_alloc(pool);
		ssize_t length;

		if (!m)
			break;
		length = read(fd, rte_pktmbuf_mtod(m, void *), rte_pktmbuf_tailroom(m));
		if (length < 14) {
			rte_pktmbuf_free(m);
			break;
		}
		m->data_len = (uint16_t)length;
		m->pkt_len = m->data_len;
		link_send(d, m, clock_ns());
	}
	return n;
}

static void tap_write(int fd, struct rte_mbuf *m)
{
	uint8_t data[FRAME_MAX];
	uint32_t length = rp_mbuf_copy_out(m, 0, data, sizeof(data));

	if (write(fd, data, length) < 0)
		dirs[0].dropped += errno != EIO; /* the interface is down while it is set up */
	rte_pktmbuf_free(m);
}

/* ---- our sender ---- */

static void pump(void)
{
	const struct rp_transport_ops *ops = conn->transport->ops;

	while (!closed) {
		struct rte_mbuf *chain = NULL;
		uint32_t piece = ops->piece(conn);

		for (uint32_t at = 0; at < CHUNK; at += piece) {
			struct rte_mbuf *m =
				rp_mbuf_from(pool, payload + at, RP_MIN(piece, CHUNK - at));

			if (!m) {
				rte_pktmbuf_free(chain);
				return;
			}
			rp_mbuf_append(&chain, m);
		}
		if (ops->send(conn, chain, clock_ns()) != 0) {
			rte_pktmbuf_free(chain);
			return;
		}
	}
}

static void on_open(void *ctx, struct rp_conn *c, uint64_t now_ns)
{
	pump();
}

static void on_data(void *ctx, struct rp_conn *c, struct rte_mbuf *chain, uint64_t now_ns)
{
	c->transport->ops->consume(c, chain->pkt_len, now_ns);
	rte_pktmbuf_free(chain);
}

static void on_writable(void *ctx, struct rp_conn *c, uint64_t now_ns)
{
	pump();
}

static void on_peer_fin(void *ctx, struct rp_conn *c, uint64_t now_ns)
{
}

static void on_close(void *ctx, struct rp_conn *c, enum rp_close_reason why, uint64_t now_ns)
{
	closed = true;
}

static const struct rp_conn_events events = {
	.on_open = on_open,
	.on_data = on_data,
	.on_writable = on_writable,
	.on_peer_fin = on_peer_fin,
	.on_close = on_close,
};

static int stack_make(void)
{
	struct rp_tcp_config c = {
		.net = {.iface = {.mac = {2, 0, 0, 0, 0, 0x11}, .mtu = 1500},
			.header_pool = header_pool,
			.payload_pool = pool},
		.send_buffer_bytes = 4 << 20,
		.receive_buffer_bytes = 1 << 20,
		.seed = opt.seed,
		.secret = {1, 2, 3},
	};

	c.net.iface.addresses[0] =
		(struct rp_net_address){.ip = RP_IP4(192, 0, 2, 1), .prefix_length = 24};
	stack = rp_tcp_create(&c, clock_ns());
	return stack ? 0 : -1;
}

static int stack_dial(void)
{
	struct rp_endpoint peer = {.family = 4, .addr = {192, 0, 2, 2}, .port = opt.port};
	struct rp_transport *t = rp_tcp_transport(stack);

	conn = t->ops->dial(t, &peer, NULL, &events, NULL, clock_ns());
	return conn ? 0 : -1;
}

static bool stack_turn(struct direction *out, struct direction *in, uint64_t now_ns)
{
	struct rte_mbuf *burst[BURST];
	bool busy = false;
	unsigned n = 0;

	while (n < BURST && (burst[n] = pop(in, now_ns)))
		n++;
	if (n > 0)
		rp_tcp_rx(stack, burst, n, now_ns);
	busy = n > 0 || rp_tcp_poll(stack, now_ns) > 0;
	rp_tcp_poll(stack, now_ns);
	while ((n = rp_tcp_tx(stack, burst, BURST)) > 0)
		for (unsigned i = 0; i < n; i++) {
			/* The link keeps a copy: the stack may send the original again. */
			struct rte_mbuf *m = rte_pktmbuf_copy(burst[i], pool, 0, UINT32_MAX);

			rte_pktmbuf_free(burst[i]);
			if (m)
				link_send(out, m, clock_ns());
		}
	return busy;
}

/* ---- the loop ---- */

static bool turn(void)
{
	uint64_t now_ns = clock_ns();
	struct rte_mbuf *m;
	unsigned n = 0;

	n += tap_read(taps[1], &dirs[1]);
	if (!opt.ours) {
		n += tap_read(taps[0], &dirs[0]);
		for (; (m = pop(&dirs[1], now_ns)); n++)
			tap_write(taps[0], m);
	} else {
		n += stack_turn(&dirs[0], &dirs[1], now_ns);
	}
	for (; (m = pop(&dirs[0], now_ns)); n++)
		tap_write(taps[1], m);
	return n > 0;
}

/* A line: it begins. The end of the input: it is over. */
static bool told(bool *begun)
{
	struct pollfd go = {.fd = 0, .events = POLLIN};
	char line[16];

	if (poll(&go, 1, 0) <= 0)
		return true;
	if (read(0, line, sizeof(line)) <= 0)
		return false;
	if (!*begun && opt.ours && stack_dial() < 0)
		return false;
	*begun = true;
	return true;
}

static void run(void)
{
	uint64_t end_ns = clock_ns() + opt.seconds * RP_NS_PER_S;
	bool begun = false;

	for (unsigned idle = 0, turns = 0; clock_ns() < end_ns && !closed; turns++) {
		idle = turn() ? 0 : idle + 1;
		if ((idle > 0 || turns % 1024 == 0) && !told(&begun))
			return;
		if (idle > 100) {
			struct timespec ts = {.tv_nsec = 5000};

			nanosleep(&ts, NULL);
		}
	}
}

static void report(void)
{
	printf("stat frames=%" PRIu64 " lost=%" PRIu64 " reordered=%" PRIu64 " overflow=%" PRIu64,
		dirs[0].frames, dirs[0].impair.dropped, dirs[0].impair.reordered, dirs[0].dropped);
	if (stack && conn && !closed) {
		const struct rp_tcp_counters *n = rp_tcp_counters(stack);
		struct rp_tcp_info i;

		rp_tcp_conn_info(conn, &i);
		printf(" cwnd=%u ssthresh=%u pipe=%u unacked=%u window=%u srtt_us=%" PRIu64
		       " reo_us=%" PRIu64 " recovery=%d",
			i.cwnd / i.mss, i.ssthresh / i.mss, i.pipe / i.mss, i.unacked / i.mss,
			i.send_window / i.mss, i.srtt_ns / 1000u, i.reo_window_ns / 1000u,
			i.recovery);

		printf(" rtx=%" PRIu64 " rto=%" PRIu64 " tlp=%" PRIu64 " undo=%" PRIu64
		       " dsack=%" PRIu64,
			n->rtx_segments, n->rto, n->tlp, n->undo, n->dsack_rx);
	}
	printf("\n");
}

static void read_options(int argc, char **argv)
{
	static const struct option options[] = {{"sender", 1, NULL, 's'}, {"rtt-us", 1, NULL, 'r'},
		{"mbps", 1, NULL, 'm'}, {"buffer", 1, NULL, 'b'}, {"impair", 1, NULL, 'i'},
		{"seconds", 1, NULL, 't'}, {"seed", 1, NULL, 'S'}, {"port", 1, NULL, 'p'},
		{NULL, 0, NULL, 0}};
	char error[256];
	int o;

	while ((o = getopt_long(argc, argv, "", options, NULL)) != -1) {
		unsigned long long value = optarg ? strtoull(optarg, NULL, 10) : 0;

		if (o == 's')
			opt.ours = strcmp(optarg, "ours") == 0;
		else if (o == 'r')
			opt.rtt_ns = value * RP_NS_PER_US;
		else if (o == 'm')
			opt.mbps = (unsigned)value;
		else if (o == 'b')
			opt.buffer = (unsigned)value;
		else if (o == 't')
			opt.seconds = (unsigned)value;
		else if (o == 'S')
			opt.seed = value;
		else if (o == 'p')
			opt.port = (uint16_t)value;
		else if (o == 'i' &&
			 rp_impair_parse(optarg, &opt.impair, error, sizeof(error)) < 0) {
			fprintf(stderr, "%s\n", error);
			exit(2);
		} else if (o == '?') {
			exit(2);
		}
	}
}

int main(int argc, char **argv)
{
	static char *eal[] = {"links", "--no-huge", "-m", "256", "--no-pci", "--no-telemetry",
		"--no-shconf", "--lcores", "0@(0-1)", "--log-level", "error", NULL};

	char error[RP_PORT_ERROR_SIZE] = "";

	read_options(argc, argv);
	if (rte_eal_init(11, eal) < 0)
		return 1;
	prctl(PR_SET_TIMERSLACK, 1);
	pool = rp_pool_create("frames", 65535, FRAME_MAX, 0, -1, error, sizeof(error));
	header_pool = rp_pool_create("headers", 16383, 384, 0, -1, error, sizeof(error));
	for (unsigned i = 0; i < 2; i++) {
		rp_impair_init(&dirs[i].impair, &opt.impair, opt.seed * 2 + i);
		dirs[i].heap = calloc(HELD_MAX, sizeof(*dirs[i].heap));
	}
	taps[1] = tap_open("lkb");
	if (!opt.ours)
		taps[0] = tap_open("lka");
	if (!pool || !header_pool || !dirs[0].heap || !dirs[1].heap || taps[1] < 0 ||
		(!opt.ours && taps[0] < 0) || (opt.ours && stack_make() < 0)) {
		fprintf(stderr, "links: %s (%s)\n", error, strerror(errno));
		return 1;
	}
	printf("ready\n");
	fflush(stdout);
	run();
	report();
	rp_tcp_destroy(stack);
	return 0;
}
