/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One end of a port, as a process: floods, echoes, or measures round trips. The tests run two of
 * them against each other, and stop one.
 *
 *   port_peer --device net_memif0,role=server,socket=/tmp/x --mode load --seconds 10
 *
 * Each report is a line "stat ms=.. tx=.. rx=.. bad=.. link=.. redials=.. callbacks=..". SIGTERM
 * stops it in order. Status 0; 1: something was wrong at the end; 2: usage; 15: no port.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <rte_ether.h>
#include <rte_launch.h>
#include <rte_lcore.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>

#include <base/log.h>
#include <port/park.h>
#include <port/port.h>

#define ETHER_TYPE_TEST 0x88b5 /* IEEE 802 local experimental */
#define MAGIC 0x52505054u
#define RTT_SAMPLES_MAX (1u << 20)
#define PING_TIMEOUT_NS (20 * RP_NS_PER_MS)

enum mode { MODE_LOAD, MODE_SINK, MODE_ECHO, MODE_PING, MODE_IDLE };

struct test_header {
	struct rte_ether_hdr eth;
	uint16_t zero; /* aligns what follows */
	uint32_t magic;
	uint32_t sum; /* over what follows */
	uint64_t seq;
	uint64_t sent_ns;
};

static struct {
	const char *device, *prefix, *driver_config;
	enum mode mode;
	enum rp_eal_hugepages hugepages;
	unsigned seconds, report_ms, size, cpu, memory_mib, segments;
	uint64_t frames_max; /* 0 = no limit */
	bool sum;
	enum rp_port_checksum checksum;
	struct rp_impair_spec impair;
} opt = {
	.prefix = NULL,
	.seconds = 5,
	.report_ms = 100,
	.size = 64,
	.cpu = RP_EAL_CPU_ANY,
	.segments = 1,
	.hugepages = RP_EAL_HUGEPAGES_OFF,
};

static atomic_bool stopping, leaked;
static _Atomic uint64_t rx_good, rx_bad;
static struct rp_port *port;
static uint32_t *rtt_ns;
static uint32_t rtt_count;
static uint64_t rtt_lost;

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * RP_NS_PER_S + (uint64_t)ts.tv_nsec;
}

static void on_signal(int number)
{
	atomic_store(&stopping, true);
}

static void on_log(enum rp_log_subject subject, enum rp_log_level level, const char *text)
{
	if (strstr(text, "not given back"))
		atomic_store(&leaked, true);
	fprintf(stderr, "[%d] %s\n", (int)getpid(), text);
}

/* A sum over 8-byte words of the frame behind the field itself: finds a frame that was torn. */
static uint32_t sum_of(const uint8_t *p, size_t length)
{
	uint64_t sum = length, word;

	for (; length >= sizeof(word); p += sizeof(word), length -= sizeof(word)) {
		memcpy(&word, p, sizeof(word));
		sum += word;
		sum = (sum << 1) | (sum >> 63);
	}
	return (uint32_t)(sum ^ (sum >> 32));
}

static uint32_t frame_sum(const struct test_header *h, size_t length)
{
	size_t begin = offsetof(struct test_header, seq);

	if (!opt.sum)
		length = RP_MIN(length, sizeof(*h));
	return sum_of((const uint8_t *)h + begin, length - begin);
}

static struct rte_mbuf *make_frame(struct rte_mempool *pool, uint64_t seq, uint64_t now)
{
	struct rte_mbuf *m = rte_pktmbuf_alloc(pool);
	struct test_header *h;

	if (!m)
		return NULL;
	h = (struct test_header *)rte_pktmbuf_append(m, (uint16_t)opt.size);
	if (!h) {
		rte_pktmbuf_free(m);
		return NULL;
	}
	memset(h, 0, sizeof(*h));
	memset(&h->eth, 0xff, sizeof(h->eth.dst_addr));
	h->eth.src_addr.addr_bytes[0] = 0x02;
	h->eth.ether_type = rte_cpu_to_be_16(ETHER_TYPE_TEST);
	h->magic = MAGIC;
	h->seq = seq;
	h->sent_ns = now;
	h->sum = frame_sum(h, opt.size);
	/* Cut into a chain: what a stack sends is a header and references to data. */
	for (unsigned i = 1; i < opt.segments; i++) {
		uint16_t half = (uint16_t)(opt.size / opt.segments);
		struct rte_mbuf *tail = rte_pktmbuf_alloc(pool), *last = rte_pktmbuf_lastseg(m);

		if (!tail)
			break;
		half = RP_MIN(half, (uint16_t)(last->data_len - 1));
		memcpy(rte_pktmbuf_append(tail, half),
			rte_pktmbuf_mtod_offset(last, uint8_t *, last->data_len - half), half);
		last->data_len = (uint16_t)(last->data_len - half);
		m->pkt_len -= half;
		rte_pktmbuf_chain(m, tail);
		break;
	}
	return m;
}

static bool is_good(struct rte_mbuf *m)
{
	uint8_t flat[2048];
	const struct test_header *h = rte_pktmbuf_read(m, 0, m->pkt_len, flat);

	return m->pkt_len >= sizeof(*h) && m->pkt_len <= sizeof(flat) && h && h->magic == MAGIC &&
	       h->sum == frame_sum(h, m->pkt_len);
}

static bool is_ours(const struct rte_mbuf *m)
{
	const struct rte_ether_hdr *e = rte_pktmbuf_mtod(m, const struct rte_ether_hdr *);

	return m->data_len >= sizeof(*e) && e->ether_type == rte_cpu_to_be_16(ETHER_TYPE_TEST);
}

static void count(_Atomic uint64_t *counter)
{
	atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + 1,
		memory_order_relaxed);
}

static void take(struct rp_port_queue *q, struct rte_mbuf *m, uint64_t now)
{
	if (!is_ours(m)) {
		rte_pktmbuf_free(m);
		return;
	}
	count(is_good(m) ? &rx_good : &rx_bad);
	if (opt.mode == MODE_ECHO) {
		rp_port_tx(q, m, now);
		return;
	}
	if (opt.mode == MODE_PING) {
		const struct test_header *h = rte_pktmbuf_mtod(m, const struct test_header *);

		if (rtt_count < RTT_SAMPLES_MAX)
			rtt_ns[rtt_count++] = (uint32_t)(now - h->sent_ns);
	}
	rte_pktmbuf_free(m);
}

static int poll_port(void *arg)
{
	struct rp_port_queue *q = rp_port_queue(port, 0);
	struct rte_mempool *pool = arg;
	struct rp_park_slot *slot = rp_park_join();
	uint64_t seq = 0, ping_ns = 0;
	bool waiting = false;

	if (!slot)
		return -ENOSPC;
	while (!atomic_load_explicit(&stopping, memory_order_relaxed)) {
		struct rte_mbuf *burst[RP_PORT_BURST_MAX];
		uint64_t now = now_ns();
		uint16_t n;

		rp_park_point(slot);
		n = rp_port_rx(q, burst, RP_PORT_BURST_MAX, now);
		if (n > 0 && opt.mode == MODE_PING)
			now = now_ns();
		for (uint16_t i = 0; i < n; i++)
			take(q, burst[i], now);
		waiting = waiting && n == 0;
		if (opt.mode == MODE_LOAD) {
			for (unsigned i = 0; i < 32 && rp_port_tx_room(q) > 0 &&
					     (opt.frames_max == 0 || seq < opt.frames_max);
				i++) {
				struct rte_mbuf *m = make_frame(pool, seq, now);

				if (!m)
					break;
				seq++;
				rp_port_tx(q, m, now);
			}
		} else if (opt.mode == MODE_PING && (!waiting || now - ping_ns > PING_TIMEOUT_NS)) {
			struct rte_mbuf *m = make_frame(pool, seq++, now_ns());

			rtt_lost += waiting;
			ping_ns = now;
			waiting = true;
			if (m)
				rp_port_tx(q, m, now);
		} else if (opt.mode == MODE_IDLE) {
			struct timespec ts = {.tv_nsec = 1000000};

			rp_port_tx_flush(q, now);
			rp_park_rest_begin(slot);
			nanosleep(&ts, NULL);
			rp_park_rest_end(slot);
			continue;
		}
		rp_port_tx_flush(q, now);
	}
	rp_park_leave(slot);
	return 0;
}

static uint64_t get(const _Atomic uint64_t *counter)
{
	return atomic_load_explicit(counter, memory_order_relaxed);
}

static void report(uint64_t begin_ns)
{
	const struct rp_port_queue_counters *c = rp_port_queue_counters(rp_port_queue(port, 0));
	const struct rp_port_counters *pc = rp_port_counters(port);
	struct rp_park_stats s;

	rp_park_stats(&s);
	printf("stat ms=%" PRIu64 " tx=%" PRIu64 " rx=%" PRIu64 " bad=%" PRIu64
	       " link=%d redials=%" PRIu64 " failed=%" PRIu64 " full_drops=%" PRIu64
	       " down_drops=%" PRIu64 " linearised=%" PRIu64 " impaired=%" PRIu64 " parks=%" PRIu64
	       " callbacks=%" PRIu64 " cancelled=%" PRIu64 " stale=%" PRIu64 " wrapped=%" PRIu64
	       " wait_us=%" PRIu64 " hold_us=%" PRIu64 "\n",
		(uint64_t)((now_ns() - begin_ns) / RP_NS_PER_MS), get(&c->tx_packets),
		get(&rx_good), get(&rx_bad), rp_port_link_up(port), get(&pc->redials),
		get(&pc->redial_failures), get(&c->tx_full_drops), get(&c->tx_down_drops),
		get(&c->tx_linearised), get(&c->impair_rx_drops), s.parks, s.callbacks, s.cancelled,
		s.stale, s.wrapped, s.wait_ns_max / 1000u, s.hold_ns_max / 1000u);
	fflush(stdout);
}

static int by_value(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

static void report_rtt(void)
{
	if (rtt_count == 0)
		return;
	qsort(rtt_ns, rtt_count, sizeof(*rtt_ns), by_value);
	printf("rtt count=%u lost=%" PRIu64 " p50_ns=%u p99_ns=%u p999_ns=%u\n", rtt_count,
		rtt_lost, rtt_ns[rtt_count / 2], rtt_ns[(uint64_t)rtt_count * 99 / 100],
		rtt_ns[(uint64_t)rtt_count * 999 / 1000]);
}

static int read_word(const char *text, const char *const *words, int count_of_words)
{
	for (int i = 0; i < count_of_words; i++)
		if (strcmp(text, words[i]) == 0)
			return i;
	fprintf(stderr, "unknown word: %s\n", text);
	exit(2);
}

static void read_options(int argc, char **argv)
{
	static const char *const modes[] = {"load", "sink", "echo", "ping", "idle"};
	static const char *const huge[] = {"auto", "on", "off"};
	static const char *const sums[] = {"auto", "hw", "sw"};
	static const struct option options[] = {{"device", 1, NULL, 'd'}, {"prefix", 1, NULL, 'p'},
		{"mode", 1, NULL, 'm'}, {"hugepages", 1, NULL, 'h'}, {"seconds", 1, NULL, 's'},
		{"report-ms", 1, NULL, 'r'}, {"size", 1, NULL, 'z'}, {"cpu", 1, NULL, 'c'},
		{"memory", 1, NULL, 'M'}, {"segments", 1, NULL, 'g'}, {"sum", 0, NULL, 'S'},
		{"impair", 1, NULL, 'i'}, {"frames", 1, NULL, 'f'}, {"driver-config", 1, NULL, 'D'},
		{"checksum", 1, NULL, 'C'}, {NULL, 0, NULL, 0}};
	char error[256];
	int o;

	while ((o = getopt_long(argc, argv, "", options, NULL)) != -1) {
		unsigned long value = optarg ? strtoul(optarg, NULL, 10) : 0;

		switch (o) {
		case 'd':
			opt.device = optarg;
			break;
		case 'p':
			opt.prefix = optarg;
			break;
		case 'D':
			opt.driver_config = optarg;
			break;
		case 'm':
			opt.mode = (enum mode)read_word(optarg, modes, 5);
			break;
		case 'h':
			opt.hugepages = (enum rp_eal_hugepages)read_word(optarg, huge, 3);
			break;
		case 'C':
			opt.checksum = (enum rp_port_checksum)read_word(optarg, sums, 3);
			break;
		case 's':
			opt.seconds = (unsigned)value;
			break;
		case 'r':
			opt.report_ms = (unsigned)value;
			break;
		case 'z':
			opt.size = (unsigned)value;
			break;
		case 'c':
			opt.cpu = (unsigned)value;
			break;
		case 'M':
			opt.memory_mib = (unsigned)value;
			break;
		case 'g':
			opt.segments = (unsigned)value;
			break;
		case 'f':
			opt.frames_max = value;
			break;
		case 'S':
			opt.sum = true;
			break;
		case 'i':
			if (rp_impair_parse(optarg, &opt.impair, error, sizeof(error)) < 0) {
				fprintf(stderr, "%s\n", error);
				exit(2);
			}
			break;
		default:
			exit(2);
		}
	}
	if (!opt.device || opt.size < sizeof(struct test_header) || opt.size > 1514) {
		fprintf(stderr, "--device is needed, --size is %zu to 1514\n",
			sizeof(struct test_header));
		exit(2);
	}
}

static void supervise(uint64_t begin_ns)
{
	uint64_t end_ns = begin_ns + opt.seconds * RP_NS_PER_S, reported_ns = 0, watched_ns = 0;

	while (!atomic_load(&stopping)) {
		uint64_t now = now_ns();
		struct timespec ts = {.tv_nsec = 10000000};

		if (now - watched_ns >= 100 * RP_NS_PER_MS) {
			watched_ns = now;
			rp_port_supervise(port, now);
		}
		if (now - reported_ns >= opt.report_ms * RP_NS_PER_MS) {
			reported_ns = now;
			report(begin_ns);
		}
		if (now >= end_ns)
			atomic_store(&stopping, true);
		nanosleep(&ts, NULL);
	}
}

int main(int argc, char **argv)
{
	struct rp_eal_config ec;
	struct rp_port_config pc = {.queues = 1};
	struct rte_mempool *pool;
	char error[RP_PORT_ERROR_SIZE] = "", prefix[64];
	uint64_t begin_ns;

	read_options(argc, argv);
	rp_log_set_sink(on_log);
	rp_log_set_level(getenv("PORT_PEER_DEBUG") ? RP_LOG_DEBUG : RP_LOG_INFO);
	signal(SIGTERM, on_signal);
	signal(SIGINT, on_signal);
	rp_eal_config_init(&ec);
	snprintf(prefix, sizeof(prefix), "port-peer-%d", (int)getpid());
	ec.file_prefix = opt.prefix ? opt.prefix : prefix;
	ec.hugepages = opt.hugepages;
	ec.memory_mib = opt.memory_mib;
	ec.shards = 1;
	ec.shard_cpu[0] = opt.cpu;
	if (rp_eal_start(&ec, NULL, error, sizeof(error)) < 0) {
		fprintf(stderr, "%s\n", error);
		return 15;
	}
	pool = rp_pool_create("source", 4096, 2048, 0, -1, error, sizeof(error));
	rtt_ns = calloc(RTT_SAMPLES_MAX, sizeof(*rtt_ns));
	pc.device = opt.device;
	pc.driver_config = opt.driver_config;
	pc.checksum = opt.checksum;
	pc.impair_rx = opt.impair;
	pc.impair_seed = 1;
	port = pool && rtt_ns ? rp_port_create(&pc, error, sizeof(error)) : NULL;
	if (!port) {
		fprintf(stderr, "%s\n", error);
		rp_eal_stop();
		return 15;
	}
	begin_ns = now_ns();
	rte_eal_remote_launch(poll_port, pool, rp_eal_shard_lcore(0));
	supervise(begin_ns);
	rte_eal_wait_lcore(rp_eal_shard_lcore(0));
	report(begin_ns);
	report_rtt();
	rp_port_destroy(port);
	if (!rte_mempool_full(pool)) {
		fprintf(stderr, "%u mbufs of the source pool were not given back\n",
			rte_mempool_in_use_count(pool));
		atomic_store(&leaked, true);
	}
	rte_mempool_free(pool);
	rp_eal_stop();
	free(rtt_ns);
	return atomic_load(&leaked) || get(&rx_bad) > 0 ? 1 : 0;
}
