/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An echo server on our TCP stack and a port, for clients of another stack: the kernel's at the
 * other end of a tap or a veth pair.
 *
 *   echo --device net_tap0,iface=vtap --addr 192.0.2.1/24 --addr fd00::1/64 --impair drop=0.02
 *
 *   echo --device raw:tap:vtap --mtu 9000 --dial 192.0.2.2 --dials 1000 --bytes 100
 *
 * A device "raw:..." is no driver of DPDK (raw.h). With --dial our end dials as well (dial.h), to
 * port --dial-port, --at-once at a time, from SIGUSR1 on; --peer-first lets the peer end its
 * direction first; when all are done a line "dialled" is printed.
 * --addr and --gateway may be repeated, for each family; --vlan is a tag, --dad 1 waits whether
 * somebody has an address; --checksum hw|sw and --tso on|off say who makes checksums and cuts
 * segments.
 * Each connection gets back what it sent, and a FIN after the rest when it has sent its own. What
 * the client does not take stays unconsumed: nothing is kept beyond the two buffers of the stack,
 * whose windows close. "ready" is printed when clients may come; with --report-ms, lines "conn"
 * and "stat"; at the end a last line "stat" with all counters. SIGTERM ends it.
 * Status 0; 1: buffers or connections are left, or the stack is inconsistent; 2: usage; 15: no
 * port.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include <rte_launch.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>

#include <base/log.h>
#include <base/mbuf.h>
#include <port/park.h>
#include <port/port.h>
#include <tcp/tcp.h>

#include "dial.h"
#include "raw.h"

#define BURST 32
#define CONNECTIONS_MAX 64
#define HEADER_MBUFS 16383
#define CONTROL_MBUFS 8191
#define RX_MBUFS_EXTRA 16384
#define RAW_MBUFS 8191
#define MEMORY_MIB 192
#define IDLE_TURNS 200
#define IDLE_NS (20 * RP_NS_PER_US)
/* After SIGTERM: what is still open may end, so that "nothing is left" can be checked. */
#define GRACE_NS (5 * RP_NS_PER_S)

struct echo {
	struct rp_conn *conn;  /* NULL: the slot is free */
	struct rte_mbuf *held; /* received, not taken by send() yet; unconsumed */
	bool fin;
};

static struct {
	const char *device, *driver_config;
	struct rp_net_address addresses[RP_NET_ADDRESSES_MAX];
	unsigned address_count;
	union rp_ip gateway[2]; /* by family */
	bool dad;
	uint16_t port, mtu, vlan;
	unsigned seconds, report_ms;
	uint32_t buffer_bytes;
	uint64_t seed;
	enum rp_port_checksum checksum;
	enum rp_port_choice tso;
	unsigned mark_every; /* of the frames that may be marked, each so manieth is; 0: none */
	struct rp_impair_spec impair;
	struct dial_plan dial;
} opt = {.port = 7, .seconds = 600, .dial = {.total = 1, .at_once = 1, .bytes = 1000}};

static atomic_bool stopping, dialling;
static bool failed;
static struct rp_port *port; /* NULL: it is raw */
static int raw_fd = -1;
static uint64_t raw_lost;
static struct rp_tcp_stack *stack;
static struct rp_net_counters net_counters;
static struct rte_mempool *header_pool, *control_pool, *raw_pool;
static struct echo echoes[CONNECTIONS_MAX];
/* Times that a chain had to wait, connections by how they ended, and the longest turn. */
static uint64_t held_count, closed[RP_CLOSE_NOMEM + 1], turn_ns_max;

static uint64_t clock_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * RP_NS_PER_S + (uint64_t)ts.tv_nsec;
}

static void on_signal(int number)
{
	if (number == SIGUSR1)
		atomic_store(&dialling, true);
	else
		atomic_store(&stopping, true);
}

/* ---- the echo ---- */

/* Cuts whole mbufs of at most `space` bytes together, but at least one, off the front. */
static struct rte_mbuf *cut(struct rte_mbuf **chain, uint32_t space)
{
	struct rte_mbuf *first = *chain, *last = first;
	uint32_t total = first->pkt_len, bytes = first->data_len;
	uint16_t segments = first->nb_segs, n = 1;

	while (last->next && bytes + last->next->data_len <= space) {
		last = last->next;
		bytes += last->data_len;
		n++;
	}
	*chain = last->next;
	if (last->next) {
		last->next->pkt_len = total - bytes;
		last->next->nb_segs = (uint16_t)(segments - n);
	}
	last->next = NULL;
	first->pkt_len = bytes;
	first->nb_segs = n;
	return first;
}

/* Sends back what is held, as far as it goes: the rest waits for on_writable(). Received bytes
 * leave the receive window when the send buffer has them. */
static void pass_on(struct echo *e, uint64_t now_ns)
{
	const struct rp_transport_ops *ops = e->conn->transport->ops;

	while (e->held) {
		struct rte_mbuf *part = cut(&e->held, ops->send_space(e->conn));
		uint32_t bytes = part->pkt_len;

		if (ops->send(e->conn, part, now_ns) != 0) {
			if (e->held)
				rp_mbuf_append(&part, e->held);
			e->held = part;
			held_count++;
			return;
		}
		ops->consume(e->conn, bytes, now_ns);
	}
	if (e->fin)
		ops->close(e->conn, now_ns);
}

static void on_data(void *ctx, struct rp_conn *c, struct rte_mbuf *chain, uint64_t now_ns)
{
	struct echo *e = ctx;
	bool waits = e->held != NULL;

	rp_mbuf_append(&e->held, chain);
	if (!waits)
		pass_on(e, now_ns);
}

static void on_writable(void *ctx, struct rp_conn *c, uint64_t now_ns)
{
	pass_on(ctx, now_ns);
}

static void on_peer_fin(void *ctx, struct rp_conn *c, uint64_t now_ns)
{
	struct echo *e = ctx;

	e->fin = true;
	if (!e->held)
		pass_on(e, now_ns);
}

static void on_close(void *ctx, struct rp_conn *c, enum rp_close_reason why, uint64_t now_ns)
{
	struct echo *e = ctx;

	closed[why]++;
	rte_pktmbuf_free(e->held);
	*e = (struct echo){0};
}

static const struct rp_conn_events events = {
	.on_data = on_data,
	.on_writable = on_writable,
	.on_peer_fin = on_peer_fin,
	.on_close = on_close,
};

static int on_accept(void *listen_ctx, struct rp_conn *c, const struct rp_endpoint *peer,
	const struct rp_conn_events **e, void **ctx, uint64_t now_ns)
{
	for (unsigned i = 0; i < CONNECTIONS_MAX; i++) {
		if (echoes[i].conn)
			continue;
		echoes[i].conn = c;
		*e = &events;
		*ctx = &echoes[i];
		return 0;
	}
	return -ENOBUFS;
}

/* ---- reports ---- */

static void print_conn(void *ctx, const struct rp_tcp_info *i)
{
	printf("conn state=%s mss=%u sack=%d timestamps=%d shifts=%u,%u cwnd=%u ssthresh=%u "
	       "pipe=%u "
	       "send_window=%u receive_window=%u unsent=%u unacked=%u unconsumed=%u ooo=%u "
	       "srtt_us=%" PRIu64 " rto_ms=%" PRIu64 " backoff=%u recovery=%d rtx=%" PRIu64
	       " rtos=%" PRIu64 " tlps=%" PRIu64 " undos=%" PRIu64 " sent=%" PRIu64
	       " received=%" PRIu64 " timer=%s congestion=%s ecn=%d\n",
		i->state, i->mss, i->sack, i->timestamps, i->send_shift, i->receive_shift, i->cwnd,
		i->ssthresh, i->pipe, i->send_window, i->receive_window, i->unsent, i->unacked,
		i->unconsumed, i->ooo, i->srtt_ns / 1000u, i->rto_ns / 1000000u, i->backoff,
		i->recovery, i->rtx_segments, i->rtos, i->tlps, i->undos, i->bytes_sent,
		i->bytes_received, i->timer, i->congestion, i->ecn);
}

static void print_port(const struct rp_port_queue_counters *q)
{
#define RP_PORT_QUEUE_COUNTER(name, text) \
	printf(" port." #name "=%" PRIu64, atomic_load_explicit(&q->name, memory_order_relaxed));
#include <port/port_counters.def>
}

static void print_stat(void)
{
	const struct rp_tcp_counters *t = rp_tcp_counters(stack);
	const struct dial_counts *d = dial_counts();
	struct rp_tcp_usage u;

	rp_tcp_usage(stack, &u);
	printf("stat held=%" PRIu64 " turn_us_max=%" PRIu64 " connections=%u half_open=%u "
	       "segments=%u ranges=%u time_wait=%u raw_lost=%" PRIu64,
		held_count, turn_ns_max / 1000u, u.connections, u.half_open, u.segments, u.ranges,
		u.time_wait, raw_lost);
	printf(" dial.begun=%" PRIu64 " dial.good=%" PRIu64 " dial.bad_bytes=%" PRIu64
	       " dial.short=%" PRIu64,
		d->begun, d->good, d->bad_bytes, d->short_streams);
	for (unsigned i = 0; i <= RP_CLOSE_NOMEM; i++)
		printf(" closed_%u=%" PRIu64, i, closed[i]);
#define X(name, text) printf(" tcp." #name "=%" PRIu64, t->name);
#include <tcp/tcp_counters.def>
#undef X
#define X(name, text) printf(" net." #name "=%" PRIu64, net_counters.name);
#include <net/net_counters.def>
#undef X
	if (port)
		print_port(rp_port_queue_counters(rp_port_queue(port, 0)));
	printf("\n");
	fflush(stdout);
}

/* ---- the loop ---- */

/* As a router that is congested: sets CE (RFC 3168 5) where the sender allows it. IPv4 only. */
static void mark(struct rte_mbuf *m)
{
	static unsigned seen;
	uint8_t *ip = rte_pktmbuf_mtod_offset(m, uint8_t *, 14);
	uint32_t sum;

	if (opt.mark_every == 0 || m->data_len < 34 || ip[-2] != 8 || ip[-1] != 0 ||
		(ip[1] & 3) == 0 || ++seen % opt.mark_every != 0)
		return;
	/* RFC 1624: one word of the header changes. */
	sum = (uint32_t)((ip[10] << 8 | ip[11]) ^ 0xffff) + ((ip[0] << 8 | ip[1]) ^ 0xffff);
	ip[1] |= 3;
	sum += (uint32_t)(ip[0] << 8 | ip[1]);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	ip[10] = (uint8_t)(~sum >> 8);
	ip[11] = (uint8_t)~sum;
}

static unsigned tx_room(struct rp_port_queue *q)
{
	return q ? RP_MIN(rp_port_tx_room(q), BURST) : BURST;
}

static bool transmit(struct rp_port_queue *q, uint64_t now_ns)
{
	struct rte_mbuf *out[BURST];
	bool busy = false;
	unsigned n;

	do {
		n = rp_tcp_tx(stack, out, tx_room(q));
		for (unsigned i = 0; i < n; i++) {
			mark(out[i]);
			if (q)
				rp_port_tx(q, out[i], now_ns);
			else
				raw_lost += !raw_tx(raw_fd, out[i]);
		}
		busy |= n > 0;
	} while (n == BURST);
	return (q && rp_port_tx_flush(q, now_ns)) || busy;
}

static bool turn(struct rp_port_queue *q, uint64_t now_ns)
{
	struct rte_mbuf *burst[BURST];
	uint16_t n =
		q ? rp_port_rx(q, burst, BURST, now_ns) : raw_rx(raw_fd, raw_pool, burst, BURST);
	bool busy = n > 0;

	for (uint16_t i = 0; i < n; i++)
		mark(burst[i]);
	if (n > 0)
		rp_tcp_rx(stack, burst, n, now_ns);
	if (atomic_load_explicit(&dialling, memory_order_relaxed))
		dial_turn(now_ns);
	busy |= rp_tcp_poll(stack, now_ns) > 0;
	return transmit(q, now_ns) || busy;
}

static void rest(struct rp_park_slot *slot)
{
	struct timespec ts = {.tv_nsec = IDLE_NS};

	rp_park_rest_begin(slot);
	nanosleep(&ts, NULL);
	rp_park_rest_end(slot);
}

static bool is_over(uint64_t now_ns, uint64_t *end_ns)
{
	struct rp_tcp_usage u;

	if (!atomic_load_explicit(&stopping, memory_order_relaxed))
		return false;
	if (*end_ns == RP_NEVER)
		*end_ns = now_ns + GRACE_NS;
	rp_tcp_usage(stack, &u);
	return u.connections == 0 || now_ns >= *end_ns;
}

static int serve(void *arg)
{
	struct rp_port_queue *q = port ? rp_port_queue(port, 0) : NULL;
	struct rp_park_slot *slot = rp_park_join();
	uint64_t end_ns = RP_NEVER, now_ns = clock_ns(), reported_ns = now_ns;
	bool told = false;
	unsigned idle = 0;

	if (!slot)
		return -ENOSPC;
	prctl(PR_SET_TIMERSLACK, 1);
	while (!is_over(now_ns, &end_ns)) {
		uint64_t begin_ns = now_ns;

		rp_park_point(slot);
		idle = turn(q, now_ns) ? 0 : idle + 1;
		now_ns = clock_ns();
		turn_ns_max = RP_MAX(turn_ns_max, now_ns - begin_ns);
		if (opt.report_ms && now_ns - reported_ns >= opt.report_ms * RP_NS_PER_MS) {
			reported_ns = now_ns;
			rp_tcp_foreach(stack, print_conn, NULL);
			print_stat();
		}
		if (dial_done() && !told) {
			told = true;
			printf("dialled\n");
			fflush(stdout);
		}
		if (idle > IDLE_TURNS) {
			rest(slot);
			now_ns = clock_ns();
		}
	}
	rp_park_leave(slot);
	return 0;
}

static void supervise(void)
{
	uint64_t end_ns = clock_ns() + opt.seconds * RP_NS_PER_S;

	while (!atomic_load(&stopping)) {
		struct timespec ts = {.tv_nsec = 100 * RP_NS_PER_MS};
		uint64_t now_ns = clock_ns();

		if (port)
			rp_port_supervise(port, now_ns);
		if (now_ns >= end_ns)
			atomic_store(&stopping, true);
		nanosleep(&ts, NULL);
	}
}

/* ---- start and end ---- */

static int make_stack(void)
{
	struct rp_conn_options options = {
		.rto_min_ns = 200 * RP_NS_PER_MS,
		.ack_delay_max_ns = 40 * RP_NS_PER_MS,
	};
	struct rp_port_info i = {.mtu = opt.mtu ? opt.mtu : 1500, .mac = {2, 0, 0, 0, 0, 0x11}};
	struct rp_tcp_config c;

	if (port)
		rp_port_info(port, &i);
	c = (struct rp_tcp_config){
		.net = {.iface = {.mtu = i.mtu,
				.rx_csum = true,
				.tx_csum_ip = i.flags & RP_PORT_TX_IPV4_CKSUM,
				.tx_csum_tcp = i.flags & RP_PORT_TX_TCP_CKSUM,
				.tx_tso = i.flags & RP_PORT_TX_TSO},
			.header_pool = header_pool,
			.control_pool = control_pool,
			.payload_pool = control_pool,
			.seed = opt.seed,
			.counters = &net_counters},
		.connections_max = 2 * CONNECTIONS_MAX,
		.time_wait_max = 8192,
		.send_buffer_bytes = opt.buffer_bytes,
		.receive_buffer_bytes = opt.buffer_bytes,
		.seed = opt.seed,
	};
	memcpy(c.net.iface.mac, i.mac, sizeof(i.mac));
	memcpy(c.net.iface.addresses, opt.addresses, sizeof(opt.addresses));
	if (opt.address_count == 0)
		c.net.iface.addresses[0] =
			(struct rp_net_address){.ip = RP_IP4(192, 0, 2, 1), .prefix_length = 24};
	c.net.iface.gateway4 = opt.gateway[0];
	c.net.iface.gateway6 = opt.gateway[1];
	c.net.iface.vlan = opt.vlan;
	c.net.dad = opt.dad;
	c.net.mld = true;
	if (getrandom(c.secret, sizeof(c.secret), 0) != sizeof(c.secret))
		return -EIO;
	stack = rp_tcp_create(&c, clock_ns());
	if (!stack)
		return -errno;
	dial_begin(&opt.dial, stack, control_pool);
	return rp_tcp_transport(stack)->ops->listen(
		rp_tcp_transport(stack), opt.port, &options, on_accept, NULL);
}

static int make_raw(char *error, size_t error_size)
{
	raw_pool = rp_pool_create(
		"raw", RAW_MBUFS, RTE_PKTMBUF_HEADROOM + RAW_FRAME_MAX, 0, -1, error, error_size);
	if (!raw_pool)
		return -ENOMEM;
	raw_fd = raw_open(opt.device);
	if (raw_fd >= 0)
		return 0;
	snprintf(error, error_size, "%s: %s", opt.device, strerror(errno));
	return -errno;
}

static int make(char *error, size_t error_size)
{
	struct rp_port_config pc = {
		.device = opt.device,
		.driver_config = opt.driver_config,
		.queues = 1,
		.mtu = opt.mtu,
		.checksum = opt.checksum,
		.tso = opt.tso,
		.rx_mbufs_extra = RX_MBUFS_EXTRA,
		.impair_rx = opt.impair,
		.impair_tx = opt.impair,
		.impair_seed = opt.seed,
	};
	struct rp_eal_config ec;
	char prefix[64];
	int rc;

	rp_eal_config_init(&ec);
	snprintf(prefix, sizeof(prefix), "kernel-echo-%d", (int)getpid());
	ec.file_prefix = prefix;
	ec.hugepages = RP_EAL_HUGEPAGES_OFF;
	ec.memory_mib = MEMORY_MIB;
	ec.shards = 1;
	ec.shard_cpu[0] = RP_EAL_CPU_ANY;
	rc = rp_eal_start(&ec, NULL, error, error_size);
	if (rc < 0)
		return rc;
	header_pool = rp_pool_create("headers", HEADER_MBUFS, 384, 0, -1, error, error_size);
	control_pool = rp_pool_create("control", CONTROL_MBUFS, 2048, 0, -1, error, error_size);
	if (!header_pool || !control_pool)
		return -ENOMEM;
	if (raw_is(opt.device)) {
		rc = make_raw(error, error_size);
		if (rc < 0)
			return rc;
	} else {
		port = rp_port_create(&pc, error, error_size);
		if (!port)
			return -errno;
	}
	rc = make_stack();
	if (rc < 0)
		snprintf(error, error_size, "the TCP stack: %s", strerror(-rc));
	return rc;
}

static void check_pool(struct rte_mempool *pool, const char *name)
{
	if (pool && !rte_mempool_full(pool)) {
		fprintf(stderr, "%u mbufs of the %s pool were not given back\n",
			rte_mempool_in_use_count(pool), name);
		failed = true;
	}
	rte_mempool_free(pool);
}

static void destroy(void)
{
	rp_tcp_destroy(stack);
	rp_port_destroy(port);
	if (raw_fd >= 0)
		close(raw_fd);
	check_pool(header_pool, "header");
	check_pool(control_pool, "control");
	check_pool(raw_pool, "raw");
	rp_eal_stop();
}

static void on_log(enum rp_log_subject subject, enum rp_log_level level, const char *text)
{
	if (strstr(text, "not given back"))
		failed = true;
	fprintf(stderr, "%s\n", text);
}

static void check_end(void)
{
	const char *wrong = rp_tcp_check(stack);
	struct rp_tcp_usage u;

	rp_tcp_usage(stack, &u);
	if (wrong)
		fprintf(stderr, "the stack is inconsistent: %s\n", wrong);
	if (u.connections > 0 || u.segments > 0 || u.ranges > 0) {
		fprintf(stderr, "left: %u connections, %u segments, %u ranges\n", u.connections,
			u.segments, u.ranges);
		rp_tcp_foreach(stack, print_conn, NULL);
		failed = true;
	}
	failed |= wrong != NULL;
}

static void usage(const char *text)
{
	fprintf(stderr, "%s\n", text);
	exit(2);
}

static union rp_ip read_ip(const char *text)
{
	bool six = strchr(text, ':') != NULL;
	uint8_t b[16];

	if (inet_pton(six ? AF_INET6 : AF_INET, text, b) != 1)
		usage("an IPv4 or IPv6 address is expected");
	return six ? rp_ip_from6(b) : rp_ip_from4(b);
}

static void read_address(char *text)
{
	struct rp_net_address *a = &opt.addresses[opt.address_count++];
	char *slash = strchr(text, '/');

	if (opt.address_count >= RP_NET_ADDRESSES_MAX)
		usage("too many --addr");
	if (slash)
		*slash = '\0';
	a->ip = read_ip(text);
	a->prefix_length = (uint8_t)(slash ? atoi(slash + 1) : rp_ip_is4(&a->ip) ? 24 : 64);
}

static void read_gateway(const char *text)
{
	union rp_ip ip = read_ip(text);

	opt.gateway[rp_ip_is4(&ip) ? 0 : 1] = ip;
}

/* Those of dial.h; true: it was one. */
static bool read_dial(int o, const char *text, unsigned long long value)
{
	union rp_ip ip;

	switch (o) {
	case 'x':
		ip = read_ip(text);
		opt.dial.peer.family = rp_ip_is4(&ip) ? 4 : 6;
		if (opt.dial.peer.family == 4)
			memcpy(opt.dial.peer.addr, ip.b + 12, 4);
		else
			memcpy(opt.dial.peer.addr, ip.b, 16);
		return true;
	case 'X':
		opt.dial.peer.port = (uint16_t)value;
		return true;
	case 'n':
		opt.dial.total = (uint32_t)value;
		return true;
	case 'N':
		opt.dial.at_once = (uint32_t)value;
		return true;
	case 'B':
		opt.dial.bytes = (uint32_t)value;
		return true;
	case 'f':
		opt.dial.peer_first = true;
		return true;
	case 'e':
		opt.dial.ecn = true;
		return true;
	default:
		return false;
	}
}

static void read_options(int argc, char **argv)
{
	static const struct option options[] = {{"device", 1, NULL, 'd'},
		{"driver-config", 1, NULL, 'D'}, {"addr", 1, NULL, 'a'}, {"gateway", 1, NULL, 'g'},
		{"vlan", 1, NULL, 'v'}, {"dad", 1, NULL, 'A'}, {"port", 1, NULL, 'p'},
		{"mtu", 1, NULL, 'm'}, {"seconds", 1, NULL, 's'}, {"report-ms", 1, NULL, 'r'},
		{"buffer", 1, NULL, 'b'}, {"seed", 1, NULL, 'S'}, {"impair", 1, NULL, 'i'},
		{"mark-every", 1, NULL, 'M'}, {"checksum", 1, NULL, 'c'}, {"tso", 1, NULL, 't'},
		{"dial", 1, NULL, 'x'}, {"dial-port", 1, NULL, 'X'}, {"dials", 1, NULL, 'n'},
		{"at-once", 1, NULL, 'N'}, {"bytes", 1, NULL, 'B'}, {"peer-first", 0, NULL, 'f'},
		{"ecn", 0, NULL, 'e'}, {NULL, 0, NULL, 0}};
	char error[256];
	int o;

	while ((o = getopt_long(argc, argv, "", options, NULL)) != -1) {
		unsigned long long value = optarg ? strtoull(optarg, NULL, 10) : 0;

		if (read_dial(o, optarg, value))
			continue;
		if (o == 'd')
			opt.device = optarg;
		else if (o == 'D')
			opt.driver_config = optarg;
		else if (o == 'a')
			read_address(optarg);
		else if (o == 'g')
			read_gateway(optarg);
		else if (o == 'v')
			opt.vlan = (uint16_t)value;
		else if (o == 'A')
			opt.dad = value != 0;
		else if (o == 'p')
			opt.port = (uint16_t)value;
		else if (o == 'm')
			opt.mtu = (uint16_t)value;
		else if (o == 's')
			opt.seconds = (unsigned)value;
		else if (o == 'r')
			opt.report_ms = (unsigned)value;
		else if (o == 'b')
			opt.buffer_bytes = (uint32_t)value;
		else if (o == 'S')
			opt.seed = value;
		else if (o == 'c')
			opt.checksum = strcmp(optarg, "hw") == 0 ? RP_PORT_CHECKSUM_HW
								 : RP_PORT_CHECKSUM_SW;
		else if (o == 't')
			opt.tso =
				strcmp(optarg, "on") == 0 ? RP_PORT_CHOICE_ON : RP_PORT_CHOICE_OFF;
		else if (o == 'M')
			opt.mark_every = (unsigned)value;
		else if (o == 'i' && rp_impair_parse(optarg, &opt.impair, error, sizeof(error)) < 0)
			usage(error);
		else if (o == '?')
			exit(2);
	}
	if (!opt.device)
		usage("--device is needed");
}

int main(int argc, char **argv)
{
	char error[RP_PORT_ERROR_SIZE] = "";

	read_options(argc, argv);
	rp_log_set_sink(on_log);
	rp_log_set_level(RP_LOG_WARNING);
	signal(SIGTERM, on_signal);
	signal(SIGINT, on_signal);
	signal(SIGUSR1, on_signal);
	if (make(error, sizeof(error)) < 0) {
		fprintf(stderr, "%s\n", error);
		destroy();
		return 15;
	}
	printf("ready\n");
	fflush(stdout);
	rte_eal_remote_launch(serve, NULL, rp_eal_shard_lcore(0));
	supervise();
	failed |= rte_eal_wait_lcore(rp_eal_shard_lcore(0)) != 0;
	check_end();
	print_stat();
	destroy();
	return failed ? 1 : 0;
}
