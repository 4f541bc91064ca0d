/* SPDX-License-Identifier: Apache-2.0 */
/* Ports inside one process: a pair of rings, capture files, the impairment, what goes wrong. */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#include <rte_malloc.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>

#include <base/log.h>
#include <base/mbuf.h>
#include <base/units.h>
#include <port/park.h>
#include <port/port.h>
#include <port/port_priv.h>

#define SEED 7
#define US RP_NS_PER_US

static struct rte_mempool *source; /* of frames to send */
static char runtime_dir[256];
static unsigned not_given_back;

static void on_log(enum rp_log_subject subject, enum rp_log_level level, const char *text)
{
	not_given_back += strstr(text, "not given back") != NULL;
}

static uint64_t get(const _Atomic uint64_t *counter)
{
	return atomic_load(counter);
}

/* A frame of `size` bytes that carries `number`, in `segments` pieces. */
static struct rte_mbuf *frame(uint32_t number, uint32_t size, unsigned segments)
{
	struct rte_mbuf *first = NULL;
	uint8_t bytes[2048];

	assert_true(size <= sizeof(bytes));
	for (uint32_t i = 0; i < size; i++)
		bytes[i] = (uint8_t)(number + i);
	memcpy(bytes, &number, sizeof(number));
	for (unsigned i = 0; i < segments; i++) {
		uint32_t begin = size * i / segments, end = size * (i + 1) / segments;
		struct rte_mbuf *m = rp_mbuf_from(source, bytes + begin, end - begin);

		assert_non_null(m);
		rp_mbuf_append(&first, m);
	}
	return first;
}

/* Frees the frame and gives its number; fails when a byte is wrong. */
static uint32_t take(struct rte_mbuf *m, uint32_t size)
{
	uint8_t bytes[2048];
	uint32_t number;

	assert_int_equal(m->pkt_len, size);
	assert_int_equal(rp_mbuf_copy_out(m, 0, bytes, sizeof(bytes)), size);
	memcpy(&number, bytes, sizeof(number));
	for (uint32_t i = sizeof(number); i < size; i++)
		assert_int_equal(bytes[i], (uint8_t)(number + i));
	rte_pktmbuf_free(m);
	return number;
}

static void make_pair(
	struct rp_port *ports[2], const struct rp_impair_spec *rx, const struct rp_impair_spec *tx)
{
	struct rp_port_config c = {.queues = 1, .rx_mbufs_extra = 256, .impair_seed = SEED};
	char error[RP_PORT_ERROR_SIZE] = "";

	if (rx)
		c.impair_rx = *rx;
	if (tx)
		c.impair_tx = *tx;
	if (rp_port_create_pair(&c, ports, error, sizeof(error)) < 0)
		fail_msg("%s", error);
}

static void drop_pair(struct rp_port *ports[2])
{
	not_given_back = 0;
	rp_port_destroy(ports[0]);
	rp_port_destroy(ports[1]);
	assert_int_equal(not_given_back, 0);
	assert_true(rte_mempool_full(source));
}

static void a_pair_carries_frames(void **state)
{
	struct rp_port *ports[2];
	struct rp_port_queue *a, *b;
	struct rp_port_info info;
	struct rte_mbuf *burst[RP_PORT_BURST_MAX];
	uint32_t next = 0;

	make_pair(ports, NULL, NULL);
	a = rp_port_queue(ports[0], 0);
	b = rp_port_queue(ports[1], 0);
	assert_null(rp_port_queue(ports[0], 1));
	rp_port_info(ports[0], &info);
	assert_string_equal(info.driver, "net_ring");
	assert_true(info.link_up);
	assert_true(info.flags & RP_PORT_TX_CHAINS);
	assert_true(info.flags & RP_PORT_ISOLATED);
	assert_false(info.flags & (RP_PORT_TX_TCP_CKSUM | RP_PORT_RX_CKSUM));
	assert_int_equal(info.mac[0] & 3, 2);
	for (uint32_t i = 0; i < 100; i++)
		rp_port_tx(a, frame(i, 60 + i, 1 + i % 3), 0);
	rp_port_tx_flush(a, 0);
	for (;;) {
		uint16_t n = rp_port_rx(b, burst, 32, 0);

		if (n == 0)
			break;
		for (uint16_t i = 0; i < n; i++, next++)
			assert_int_equal(take(burst[i], 60 + next), next);
	}
	assert_int_equal(next, 100);
	assert_int_equal(get(&a->counters.tx_packets), 100);
	assert_int_equal(get(&b->counters.rx_packets), 100);
	assert_int_equal(get(&a->counters.tx_bytes), get(&b->counters.rx_bytes));
	assert_int_equal(get(&a->counters.tx_bytes), 100 * 60 + 99 * 100 / 2);
	assert_int_equal(get(&b->counters.rx_polls), 5);
	assert_int_equal(get(&b->counters.rx_polls_empty), 1);
	assert_int_equal(rp_port_rx(a, burst, 32, 0), 0);
	drop_pair(ports);
}

static void a_full_device_holds_back_then_drops(void **state)
{
	struct rp_port *ports[2];
	struct rp_port_queue *a, *b;
	struct rte_mbuf *burst[RP_PORT_BURST_MAX];
	const struct rp_port_queue_counters *c;
	uint32_t sent = 0, next = 0;

	make_pair(ports, NULL, NULL);
	a = rp_port_queue(ports[0], 0);
	b = rp_port_queue(ports[1], 0);
	c = rp_port_queue_counters(a);
	while (get(&c->tx_full_drops) < 3)
		rp_port_tx(a, frame(sent++, 64, 1), 0);
	/* What the ring holds, what is pending, and the drops make up all. */
	assert_int_equal(sent, get(&c->tx_packets) + RP_PORT_TX_PENDING_MAX + 3);
	assert_int_equal(rp_port_tx_room(a), 0);
	assert_int_equal(rp_port_next_ns(a), 0);
	assert_true(get(&c->tx_full) > 0);
	assert_false(rp_port_tx_flush(a, 0));
	for (unsigned round = 0; round < 100; round++) {
		uint16_t n = rp_port_rx(b, burst, 64, 0);

		for (uint16_t i = 0; i < n; i++)
			assert_int_equal(take(burst[i], 64), next++);
		rp_port_tx_flush(a, 0);
	}
	/* Nothing was lost but the drops, and the order kept. */
	assert_int_equal(next, sent - 3);
	assert_int_equal(rp_port_tx_room(a), RP_PORT_TX_PENDING_MAX);
	assert_int_equal(rp_port_next_ns(a), RP_NEVER);
	drop_pair(ports);
}

static void a_frame_too_long_is_dropped(void **state)
{
	struct rp_port *ports[2];
	struct rp_port_queue *a;

	make_pair(ports, NULL, NULL);
	a = rp_port_queue(ports[0], 0);
	rp_port_tx(a, frame(1, 1519, 1), 0);
	assert_int_equal(get(&a->counters.tx_size_drops), 1);
	rp_port_tx(a, frame(1, 1518, 1), 0);
	rp_port_tx_flush(a, 0);
	assert_int_equal(get(&a->counters.tx_packets), 1);
	drop_pair(ports);
}

/* Frames that are on their way when a port goes are given back. */
static void a_port_goes_with_frames_in_it(void **state)
{
	struct rp_impair_spec late = {.delay_ns = RP_NS_PER_S};
	struct rp_port *ports[2];
	struct rp_port_queue *a, *b;
	struct rte_mbuf *burst[8];

	make_pair(ports, NULL, NULL);
	a = rp_port_queue(ports[0], 0);
	b = rp_port_queue(ports[1], 0);
	for (uint32_t i = 0; i < 40; i++)
		rp_port_tx(a, frame(i, 64, 1), 0);
	rp_port_impair_set(b, true, &late);
	assert_int_equal(rp_port_rx(b, burst, 8, 0), 0);
	rp_port_impair_set(a, false, &late);
	for (uint32_t i = 0; i < 40; i++)
		rp_port_tx(a, frame(i, 64, 1), 0);
	assert_int_equal(rp_port_next_ns(b), RP_NS_PER_S);
	drop_pair(ports);
}

/* Sends `count` frames, one each 10 us, and lists what came, with its time. */
struct arrival {
	uint32_t number;
	uint64_t ns;
};

static unsigned exchange(struct rp_port_queue *a, struct rp_port_queue *b, uint32_t count,
	uint64_t begin_ns, struct arrival *arrivals, unsigned max)
{
	unsigned n = 0;

	for (uint64_t ns = 0; ns < (count + 200) * 10 * US; ns += US) {
		struct rte_mbuf *burst[RP_PORT_BURST_MAX];
		uint16_t got;

		if (ns % (10 * US) == 0 && ns / (10 * US) < count)
			rp_port_tx(a, frame((uint32_t)(ns / (10 * US)), 64, 1), begin_ns + ns);
		rp_port_tx_flush(a, begin_ns + ns);
		got = rp_port_rx(b, burst, RP_PORT_BURST_MAX, begin_ns + ns);
		for (uint16_t i = 0; i < got; i++) {
			assert_true(n < max);
			arrivals[n++] = (struct arrival){take(burst[i], 64), ns};
		}
	}
	return n;
}

#define ARRIVALS 4096
static struct arrival arrivals[ARRIVALS], again[ARRIVALS];

static void loss_is_counted_and_repeats(void **state)
{
	struct rp_impair_spec spec = {
		.drop = 0.1, .duplicate = 0.1, .reorder = 0.1, .reorder_ns = 35 * US};
	unsigned n[2];

	for (unsigned run = 0; run < 2; run++) {
		struct rp_port *ports[2];
		struct rp_port_queue *a, *b;
		const struct rp_port_queue_counters *c;
		unsigned reordered = 0;

		make_pair(ports, &spec, NULL);
		a = rp_port_queue(ports[0], 0);
		b = rp_port_queue(ports[1], 0);
		c = rp_port_queue_counters(b);
		n[run] = exchange(a, b, 2000, 0, run == 0 ? arrivals : again, ARRIVALS);
		/* Each frame is delivered, or dropped and counted; copies are counted, too. */
		assert_int_equal(
			n[run], 2000 - get(&c->impair_rx_drops) + get(&c->impair_duplicated));
		assert_in_range(get(&c->impair_rx_drops), 120, 280);
		assert_in_range(get(&c->impair_duplicated), 100, 280);
		for (unsigned i = 1; i < n[run]; i++)
			reordered += arrivals[i].number < arrivals[i - 1].number;
		assert_true(reordered > 50);
		drop_pair(ports);
	}
	assert_int_equal(n[0], n[1]);
	assert_memory_equal(arrivals, again, n[0] * sizeof(arrivals[0]));
}

static void delay_is_kept_in_order(void **state)
{
	struct rp_impair_spec spec = {.delay_ns = 100 * US};

	for (unsigned direction = 0; direction < 2; direction++) {
		struct rp_port *ports[2];
		unsigned n;

		make_pair(ports, direction == 0 ? &spec : NULL, direction == 1 ? &spec : NULL);
		n = exchange(rp_port_queue(ports[0], 0), rp_port_queue(ports[1], 0), 500, 0,
			arrivals, ARRIVALS);
		assert_int_equal(n, 500);
		for (unsigned i = 0; i < n; i++) {
			assert_int_equal(arrivals[i].number, i);
			assert_in_range(
				arrivals[i].ns, i * 10 * US + 100 * US, i * 10 * US + 102 * US);
		}
		drop_pair(ports);
	}
}

static void a_cut_can_be_set_and_lifted(void **state)
{
	struct rp_impair_spec cut = {.cut = true}, none = {0};
	struct rp_port *ports[2];
	struct rp_port_queue *a, *b;

	make_pair(ports, NULL, NULL);
	a = rp_port_queue(ports[0], 0);
	b = rp_port_queue(ports[1], 0);
	assert_int_equal(exchange(a, b, 100, 0, arrivals, ARRIVALS), 100);
	rp_port_impair_set(b, true, &cut);
	assert_int_equal(exchange(a, b, 100, 0, arrivals, ARRIVALS), 0);
	assert_int_equal(get(&b->counters.impair_rx_drops), 100);
	rp_port_impair_set(b, true, &none);
	rp_port_impair_set(a, false, &cut);
	assert_int_equal(exchange(a, b, 100, 0, arrivals, ARRIVALS), 0);
	assert_int_equal(get(&a->counters.impair_tx_drops), 100);
	rp_port_impair_set(a, false, &none);
	assert_int_equal(exchange(a, b, 100, 0, arrivals, ARRIVALS), 100);
	assert_false(a->tx_hold.active || b->rx_hold.active);
	drop_pair(ports);
}

static void what_is_held_is_bounded(void **state)
{
	struct rp_impair_spec late = {.delay_ns = RP_NS_PER_S};
	struct rp_port *ports[2];
	struct rp_port_queue *a, *b;
	struct rte_mbuf *burst[RP_PORT_BURST_MAX];
	uint32_t sent = 0, got = 0;

	make_pair(ports, &late, NULL);
	a = rp_port_queue(ports[0], 0);
	b = rp_port_queue(ports[1], 0);
	while (get(&b->counters.impair_full_drops) < 10) {
		rp_port_tx(a, frame(sent++, 64, 1), 0);
		rp_port_tx_flush(a, 0);
		assert_int_equal(rp_port_rx(b, burst, RP_PORT_BURST_MAX, 0), 0);
	}
	assert_int_equal(sent, b->rx_hold.count_max + 10);
	for (uint16_t n = 1; n > 0;) {
		n = rp_port_rx(b, burst, RP_PORT_BURST_MAX, RP_NS_PER_S);
		for (uint16_t i = 0; i < n; i++)
			assert_int_equal(take(burst[i], 64), got++);
	}
	assert_int_equal(got, sent - 10);
	drop_pair(ports);
}

/* --- Capture files --- */

static void write_capture(const char *path, uint32_t frames, uint32_t size)
{
	const uint32_t head[6] = {0xa1b2c3d4, 2 | 4 << 16, 0, 0, 65535, 1};
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	assert_int_equal(fwrite(head, sizeof(head), 1, f), 1);
	for (uint32_t number = 0; number < frames; number++) {
		uint32_t record[4] = {number, 0, size, size};
		uint8_t bytes[2048];

		for (uint32_t i = 0; i < size; i++)
			bytes[i] = (uint8_t)(number + i);
		memcpy(bytes, &number, sizeof(number));
		fwrite(record, sizeof(record), 1, f);
		fwrite(bytes, size, 1, f);
	}
	fclose(f);
}

static void captures_are_played_and_written(void **state)
{
	char folder[] = "/tmp/port-test-XXXXXX", in[64], out[64], device[256];
	char error[RP_PORT_ERROR_SIZE] = "";
	struct rp_port_config c = {.device = device, .queues = 1, .rx_mbufs_extra = 256};
	struct rp_port *p;
	struct rp_port_queue *q;
	uint32_t next = 0;
	struct stat st;

	assert_non_null(mkdtemp(folder));
	snprintf(in, sizeof(in), "%s/in.pcap", folder);
	snprintf(out, sizeof(out), "%s/out.pcap", folder);
	snprintf(device, sizeof(device), "net_pcap0,rx_pcap=%s,tx_pcap=%s", in, out);
	write_capture(in, 70, 90);
	p = rp_port_create(&c, error, sizeof(error));
	if (!p)
		fail_msg("%s", error);
	q = rp_port_queue(p, 0);
	for (unsigned round = 0; round < 10; round++) {
		struct rte_mbuf *burst[RP_PORT_BURST_MAX];
		uint16_t n = rp_port_rx(q, burst, 32, 0);

		for (uint16_t i = 0; i < n; i++)
			assert_int_equal(take(burst[i], 90), next++);
	}
	assert_int_equal(next, 70);
	/* The device takes no chains: they are copied, and each byte arrives. */
	for (uint32_t i = 0; i < 70; i++)
		rp_port_tx(q, frame(i, 90, 1 + i % 2), 0);
	rp_port_tx_flush(q, 0);
	assert_int_equal(get(&q->counters.tx_linearised), 35);
	assert_int_equal(get(&q->counters.tx_packets), 70);
	not_given_back = 0;
	rp_port_destroy(p);
	assert_int_equal(not_given_back, 0);
	assert_int_equal(stat(out, &st), 0);
	assert_int_equal(st.st_size, 24 + 70 * (16 + 90));
	/* What was written plays back. */
	snprintf(device, sizeof(device), "net_pcap0,rx_pcap=%s,tx_pcap=%s", out, in);
	p = rp_port_create(&c, error, sizeof(error));
	if (!p)
		fail_msg("%s", error);
	next = 0;
	for (unsigned round = 0; round < 10; round++) {
		struct rte_mbuf *burst[RP_PORT_BURST_MAX];
		uint16_t n = rp_port_rx(rp_port_queue(p, 0), burst, 32, 0);

		for (uint16_t i = 0; i < n; i++)
			assert_int_equal(take(burst[i], 90), next++);
	}
	assert_int_equal(next, 70);
	rp_port_destroy(p);
	unlink(in);
	unlink(out);
	assert_int_equal(rmdir(folder), 0);
}

/* --- What goes wrong --- */

static void failures_say_why(void **state)
{
	static const struct {
		const char *device;
		enum rp_port_checksum checksum;
		uint16_t queues;
		int code;
		const char *says;
	} cases[] = {
		{"net_nonesuch0,a=b", 0, 1, 0, "cannot add the device"},
		{"net_pcap0,rx_pcap=/none/in.pcap", 0, 1, 0, "rx_pcap= must exist"},
		{"net_af_packet0,iface=nonesuch0", 0, 1, 0, "must exist"},
		{"net_ring0", RP_PORT_CHECKSUM_HW, 1, ENOTSUP, "no TCP checksums"},
		{"net_memif0,role=server,socket=/none/x", 0, 1, ENOENT, "folder must exist"},
		{"net_memif0,role=king,socket=/tmp/x", 0, 1, 0, "cannot add the device"},
		{"net_memif0,role=server", 0, 1, EINVAL, "it needs socket="},
		{"lo", 0, 1, EINVAL, "neither"},
		{"02:00:00:00:00:99", 0, 1, ENODEV, "MAC"},
	};

	for (unsigned i = 0; i < RP_ARRAY_SIZE(cases); i++) {
		struct rp_port_config c = {.device = cases[i].device,
			.queues = cases[i].queues,
			.checksum = cases[i].checksum,
			.rx_mbufs_extra = 256};
		char error[RP_PORT_ERROR_SIZE] = "";
		struct rp_port *p = rp_port_create(&c, error, sizeof(error));

		if (p)
			fail_msg("%s was created", cases[i].device);
		if (cases[i].code != 0 && errno != cases[i].code)
			fail_msg("%s: errno %d: %s", cases[i].device, errno, error);
		if (!strstr(error, cases[i].says))
			fail_msg("%s: %s", cases[i].device, error);
	}
}

static void a_name_is_used_once(void **state)
{
	struct rp_port_config c = {.device = "net_ring7", .queues = 1, .rx_mbufs_extra = 256};
	char error[RP_PORT_ERROR_SIZE] = "";
	struct rp_port *p = rp_port_create(&c, error, sizeof(error));

	assert_non_null(p);
	assert_null(rp_port_create(&c, error, sizeof(error)));
	assert_int_equal(errno, EEXIST);
	rp_port_destroy(p);
	p = rp_port_create(&c, error, sizeof(error)); /* it is free again */
	assert_non_null(p);
	rp_port_destroy(p);
	rp_port_destroy(NULL);
}

/* A memif client without a server is no fault: it goes on dialling. */
static void a_port_waits_for_its_peer(void **state)
{
	static const char *const devices[] = {"net_memif3,role=client,socket=/tmp/port-test-none",
		"net_virtio_user3,path=/tmp/port-test-none"};
	static const unsigned redials[] = {3, 13}; /* a second apart, and 300 ms */

	for (unsigned i = 0; i < RP_ARRAY_SIZE(devices); i++) {
		struct rp_port_config c = {
			.device = devices[i], .queues = 1, .rx_mbufs_extra = 256};
		char error[RP_PORT_ERROR_SIZE] = "";
		struct rp_port *p = rp_port_create(&c, error, sizeof(error));
		const struct rp_port_counters *pc;
		struct rp_port_info info;

		if (!p)
			fail_msg("%s: %s", devices[i], error);
		rp_port_info(p, &info);
		assert_int_equal(info.flags & (RP_PORT_ISOLATED | RP_PORT_TX_CHAINS),
			RP_PORT_ISOLATED | RP_PORT_TX_CHAINS);
		assert_false(info.flags & RP_PORT_TX_TCP_CKSUM);
		assert_int_equal(info.mac[0] & 3, 2);
		pc = rp_port_counters(p);
		assert_false(rp_port_link_up(p));
		for (uint64_t ms = 100; ms <= 4000; ms += 100)
			assert_false(rp_port_supervise(p, RP_NS_PER_S * 100 + ms * RP_NS_PER_MS));
		assert_in_range(get(&pc->redials), redials[i] - 1, redials[i] + 1);
		rp_port_tx(rp_port_queue(p, 0), frame(0, 64, 1), 0);
		rp_port_tx_flush(rp_port_queue(p, 0), 0);
		assert_int_equal(get(&rp_port_queue(p, 0)->counters.tx_down_drops), 1);
		not_given_back = 0;
		rp_port_destroy(p);
		assert_int_equal(not_given_back, 0);
	}
}

static unsigned open_files(void)
{
	DIR *d = opendir("/proc/self/fd");
	unsigned n = 0;

	assert_non_null(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static size_t heap_bytes(void)
{
	struct rte_malloc_socket_stats stats;

	assert_int_equal(rte_malloc_get_socket_stats(0, &stats), 0);
	return stats.heap_allocsz_bytes;
}

/* A peer may be away for days: dialling must not use anything up. */
static void dialling_uses_nothing_up(void **state)
{
	static const char *const devices[] = {"net_memif4,role=client,socket=/tmp/port-test-none",
		"net_virtio_user4,path=/tmp/port-test-none"};

	for (unsigned i = 0; i < RP_ARRAY_SIZE(devices); i++) {
		struct rp_port_config c = {
			.device = devices[i], .queues = 1, .rx_mbufs_extra = 256};
		struct rp_port *p = rp_port_create(&c, NULL, 0);
		uint64_t ns = RP_NS_PER_S;
		unsigned files = 0;
		size_t bytes = 0;

		assert_non_null(p);
		for (unsigned round = 0; round < 300; round++) {
			if (round == 20) {
				files = open_files();
				bytes = heap_bytes();
			}
			rp_port_supervise(p, ns);
			ns += RP_NS_PER_S;
		}
		assert_true(get(&rp_port_counters(p)->redials) > 280);
		assert_int_equal(open_files(), files);
		assert_in_range(heap_bytes(), 0, bytes);
		rp_port_destroy(p);
	}
}

static void eal_starts_once(void **state)
{
	struct rp_eal_config c;
	char error[RP_PORT_ERROR_SIZE] = "";

	rp_eal_config_init(&c);
	c.file_prefix = "again";
	assert_int_equal(rp_eal_start(&c, NULL, error, sizeof(error)), -EALREADY);
}

static void pools_are_packed_and_refused(void **state)
{
	char error[RP_PORT_ERROR_SIZE] = "";
	struct rte_mempool *p = rp_pool_create("small", 512, 2048, 16, -1, error, sizeof(error));

	assert_non_null(p);
	assert_int_equal(rte_pktmbuf_priv_size(p), 16);
	assert_int_equal(rte_pktmbuf_data_room_size(p), 2048 + RTE_PKTMBUF_HEADROOM);
	assert_int_equal(p->nb_mem_chunks, 1);
	assert_true(STAILQ_FIRST(&p->mem_list)->len <= rp_pool_bytes(512, 2048, 16));
	assert_null(rp_pool_create("small", 512, 2048, 0, -1, error, sizeof(error)));
	assert_non_null(strstr(error, "small"));
	rte_mempool_free(p);
	assert_null(rp_pool_create("huge", 10000000, 2048, 0, -1, error, sizeof(error)));
	assert_non_null(strstr(error, "memory"));
}

static int start_eal(void **state)
{
	struct rp_eal_config c;
	struct rp_eal_info info;
	char error[RP_PORT_ERROR_SIZE], prefix[32];

	rp_log_set_sink(on_log);
	rp_eal_config_init(&c);
	snprintf(prefix, sizeof(prefix), "port-test-%d", (int)getpid());
	c.file_prefix = "bad/prefix";
	if (rp_eal_start(&c, &info, error, sizeof(error)) != -EINVAL)
		return -1;
	c.file_prefix = prefix;
	c.hugepages = RP_EAL_HUGEPAGES_ON;
	c.memory_mib = 1 << 20;
	if (rp_eal_start(&c, &info, error, sizeof(error)) != -ENOMEM ||
		!strstr(error, "nr_hugepages"))
		return -1;
	c.hugepages = RP_EAL_HUGEPAGES_OFF;
	c.shards = 1;
	c.shard_cpu[0] = 5000;
	if (rp_eal_start(&c, &info, error, sizeof(error)) != -EINVAL)
		return -1;
	c.shards = 0;
	c.memory_mib = 128;
	if (rp_eal_start(&c, &info, error, sizeof(error)) < 0) {
		fprintf(stderr, "%s\n", error);
		return -1;
	}
	snprintf(runtime_dir, sizeof(runtime_dir), "%s", info.runtime_dir);
	source = rp_pool_create("source", 8192, 2048, 0, -1, error, sizeof(error));
	return source ? 0 : -1;
}

static int stop_eal(void **state)
{
	rte_mempool_free(source);
	rp_eal_stop();
	return access(runtime_dir, F_OK) == 0 ? -1 : 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(eal_starts_once),
		cmocka_unit_test(pools_are_packed_and_refused),
		cmocka_unit_test(a_pair_carries_frames),
		cmocka_unit_test(a_full_device_holds_back_then_drops),
		cmocka_unit_test(a_frame_too_long_is_dropped),
		cmocka_unit_test(a_port_goes_with_frames_in_it),
		cmocka_unit_test(loss_is_counted_and_repeats),
		cmocka_unit_test(delay_is_kept_in_order),
		cmocka_unit_test(a_cut_can_be_set_and_lifted),
		cmocka_unit_test(what_is_held_is_bounded),
		cmocka_unit_test(captures_are_played_and_written),
		cmocka_unit_test(failures_say_why),
		cmocka_unit_test(a_name_is_used_once),
		cmocka_unit_test(a_port_waits_for_its_peer),
		cmocka_unit_test(dialling_uses_nothing_up),
	};

	return cmocka_run_group_tests(tests, start_eal, stop_eal);
}
