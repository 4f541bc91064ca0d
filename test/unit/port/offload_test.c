/* SPDX-License-Identifier: Apache-2.0 */
/* Offloads: what software makes of a super-segment, RSS programmed and read back, devices that lie.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include <rte_ethdev.h>
#include <rte_gso.h>
#include <rte_ip.h>
#include <rte_mbuf.h>
#include <rte_tcp.h>

#include <base/log.h>
#include <base/mbuf.h>
#include <base/rand.h>
#include <port/park.h>
#include <port/port.h>
#include <port/port_priv.h>

static struct rte_mempool *source, *cuts;

static const uint8_t key[RP_PORT_RSS_KEY_BYTES] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14,
	15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37,
	38, 39, 40};

/* A super-segment as the stack makes it, in bytes. */
struct super {
	bool six, tagged;
	unsigned options, size, payload, piece; /* piece: bytes of an mbuf of the chain */
	uint8_t flags;
	uint8_t bytes[70000];
	unsigned l2, l3, l4, length;
};

static void put16(uint8_t *p, unsigned v)
{
	p[0] = (uint8_t)(v >> 8);
	p[1] = (uint8_t)v;
}

static void put32(uint8_t *p, uint32_t v)
{
	put16(p, v >> 16);
	put16(p + 2, v & 0xffff);
}

#define SEQ 0xfffff000u /* wraps within the segment */

static void super_fill(struct super *s)
{
	uint8_t *ip, *tcp;

	s->l2 = s->tagged ? 18 : 14;
	s->l3 = s->six ? 40 : 20;
	s->l4 = 20 + s->options;
	s->length = s->l2 + s->l3 + s->l4 + s->payload;
	memset(s->bytes, 0, s->l2 + s->l3 + s->l4);
	memset(s->bytes, 0xab, 12);
	ip = s->bytes + s->l2;
	tcp = ip + s->l3;
	put16(ip - 2, s->six ? 0x86dd : 0x0800);
	if (s->tagged)
		put32(s->bytes + 12, 0x81000007);
	if (s->six) {
		put32(ip, 0x60012345);
		put16(ip + 4, s->length - s->l2 - 40);
		ip[6] = 6;
		ip[7] = 64;
		memset(ip + 8, 0xfd, 31);
		ip[39] = 2;
	} else {
		put32(ip, 0x45020000 | (s->length - s->l2));
		put32(ip + 4, 0x00004000);
		put32(ip + 8, 0x40060000);
		put32(ip + 12, 0x0a000001);
		put32(ip + 16, 0x0a000002);
	}
	put32(tcp, 0x9c401ce8);
	put32(tcp + 4, SEQ);
	put32(tcp + 8, 0x12345678);
	tcp[12] = (uint8_t)(s->l4 / 4 << 4);
	tcp[13] = s->flags;
	put16(tcp + 14, 4321);
	for (unsigned i = 0; i < s->options; i++)
		tcp[20 + i] = (uint8_t)(i % 4 ? i : 1);
	for (unsigned i = 0; i < s->payload; i++)
		tcp[s->l4 + i] = (uint8_t)(i * 7 + i / 251);
}

static struct rte_mbuf *super_mbuf(const struct super *s)
{
	unsigned headers = s->l2 + s->l3 + s->l4, at = headers;
	struct rte_mbuf *m = rp_mbuf_from(source, s->bytes, headers);

	assert_non_null(m);
	while (at < s->length) {
		unsigned n = RP_MIN(s->piece, s->length - at);

		rp_mbuf_append(&m, rp_mbuf_from(source, s->bytes + at, n));
		at += n;
	}
	m->l2_len = s->l2;
	m->l3_len = s->l3;
	m->l4_len = s->l4;
	m->tso_segsz = (uint16_t)s->size;
	m->ol_flags |= RTE_MBUF_F_TX_TCP_SEG | RTE_MBUF_F_TX_TCP_CKSUM |
		       (s->six ? RTE_MBUF_F_TX_IPV6 : RTE_MBUF_F_TX_IPV4 | RTE_MBUF_F_TX_IP_CKSUM);
	return m;
}

static uint32_t slow_sum(const uint8_t *p, unsigned n, uint32_t sum)
{
	for (unsigned i = 0; i < n; i++)
		sum += i & 1 ? p[i] : (uint32_t)p[i] << 8;
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

/* What a device with TSO sends as its segment `i`, by the book; `left`: TCP checksums left to it.
 */
static unsigned expected(const struct super *s, unsigned i, bool left, uint8_t *out)
{
	unsigned headers = s->l2 + s->l3 + s->l4, offset = i * s->size;
	unsigned n = RP_MIN(s->size, s->payload - offset), l4_length = s->l4 + n;
	uint8_t *ip = out + s->l2, *tcp = ip + s->l3;
	uint32_t sum;

	memcpy(out, s->bytes, headers);
	memcpy(out + headers, s->bytes + headers + offset, n);
	put32(tcp + 4, SEQ + offset);
	if (offset + n < s->payload)
		tcp[13] &= 0xf6; /* FIN and PSH are of the last one */
	if (i > 0)
		tcp[13] &= 0x7f; /* CWR is of the first one */
	if (s->six) {
		put16(ip + 4, l4_length);
		sum = slow_sum(ip + 8, 32, l4_length + 6);
	} else {
		put16(ip + 2, s->l3 + l4_length);
		put16(ip + 10, ~slow_sum(ip, 20, 0) & 0xffff);
		sum = slow_sum(ip + 12, 8, l4_length + 6);
	}
	put16(tcp + 16, left ? sum : ~slow_sum(tcp, l4_length, sum) & 0xffff);
	return headers + n;
}

static void check_cut(const struct super *s, bool chains, bool left)
{
	struct rte_mbuf *out[PORT_GSO_SEGMENTS_MAX];
	unsigned want = (s->payload + s->size - 1) / s->size;
	unsigned n = port_gso(cuts, super_mbuf(s), chains, left ? RTE_MBUF_F_TX_TCP_CKSUM : 0, out);
	static uint8_t a[4096], b[4096];

	assert_int_equal(n, want);
	for (unsigned i = 0; i < n; i++) {
		unsigned length = expected(s, i, left, a);

		assert_int_equal(out[i]->pkt_len, length);
		assert_int_equal(rp_mbuf_copy_out(out[i], 0, b, sizeof(b)), length);
		for (unsigned k = 0; k < length; k++)
			if (a[k] != b[k])
				fail_msg("segment %u of %u, byte %u of %u: %02x, not %02x", i, n, k,
					length, b[k], a[k]);
		assert_true(chains || out[i]->nb_segs == 1);
		for (const struct rte_mbuf *m = out[i]; m; m = m->next)
			assert_true(m->data_len > 0);
		assert_int_equal((out[i]->ol_flags & RTE_MBUF_F_TX_TCP_CKSUM) != 0, left);
		assert_false(out[i]->ol_flags & RTE_MBUF_F_TX_TCP_SEG);
	}
	rte_pktmbuf_free_bulk(out, n);
	assert_true(rte_mempool_full(source) && rte_mempool_full(cuts));
}

/* Class 27: each length of options, and payloads around the borders of segments. */
static void cut_to_the_bytes_of_a_device(void **state)
{
	static struct super s;
	static const unsigned payloads[] = {1448, 1449, 2895, 2896, 2897, 20000, 65000};

	for (unsigned v = 0; v < 4; v++)
		for (unsigned options = 0; options <= 40; options += 4)
			for (unsigned p = 0; p < RP_ARRAY_SIZE(payloads); p++) {
				s.six = v & 1;
				s.tagged = v & 2;
				s.options = options;
				s.size = 1448;
				s.payload = payloads[p];
				s.piece = p % 3 == 0 ? 1448 : p % 3 == 1 ? 700 : 1999;
				s.flags = 0xd9; /* CWR, ECE, ACK, PSH, FIN */
				super_fill(&s);
				check_cut(&s, true, options & 4);
				check_cut(&s, false, !(options & 4));
			}
}

/* DPDK's own library cuts IPv4: the same bytes, but for the identification that it counts up. */
static void cut_as_dpdk_does(void **state)
{
	struct rte_gso_ctx ctx = {.direct_pool = cuts,
		.indirect_pool = cuts,
		.gso_types = RTE_ETH_TX_OFFLOAD_TCP_TSO,
		.flag = RTE_GSO_FLAG_IPID_FIXED};
	static struct super s = {
		.options = 12, .size = 1448, .payload = 50000, .piece = 1448, .flags = 0x19};
	struct rte_mbuf *ours[PORT_GSO_SEGMENTS_MAX], *theirs[PORT_GSO_SEGMENTS_MAX], *m;
	static uint8_t a[4096], b[4096];
	unsigned n;
	int k;

	super_fill(&s);
	ctx.gso_size = (uint16_t)(s.size + s.l2 + s.l3 + s.l4);
	m = super_mbuf(&s);
	k = rte_gso_segment(m, &ctx, theirs, RP_ARRAY_SIZE(theirs));
	rte_pktmbuf_free(m);
	n = port_gso(cuts, super_mbuf(&s), true, 0, ours);
	assert_int_equal(k, n);
	for (unsigned i = 0; i < n; i++) {
		unsigned length = ours[i]->pkt_len;

		assert_int_equal(theirs[i]->pkt_len, length);
		rp_mbuf_copy_out(ours[i], 0, a, sizeof(a));
		rp_mbuf_copy_out(theirs[i], 0, b, sizeof(b));
		/* Checksums are not made by the library. */
		memset(a + 24, 0, 2);
		memset(b + 24, 0, 2);
		memset(a + 50, 0, 2);
		memset(b + 50, 0, 2);
		assert_memory_equal(a, b, length);
	}
	rte_pktmbuf_free_bulk(ours, n);
	rte_pktmbuf_free_bulk(theirs, n);
	assert_true(rte_mempool_full(source) && rte_mempool_full(cuts));
}

/* Each allocation fails in turn: nothing comes out, and nothing is kept. */
static void cut_without_buffers(void **state)
{
	static struct super s = {.size = 1448, .payload = 20000, .piece = 900, .flags = 0x10};
	struct rte_mbuf *out[PORT_GSO_SEGMENTS_MAX], *hog[4096];
	unsigned all = 0;

	super_fill(&s);
	while ((hog[all] = rte_pktmbuf_alloc(cuts)))
		all++;
	for (unsigned give = 0; give < 45; give++) {
		unsigned n;

		rte_pktmbuf_free_bulk(hog, give);
		n = port_gso(cuts, super_mbuf(&s), true, 0, out);
		assert_true(n == 0 || give >= 14 + 14);
		rte_pktmbuf_free_bulk(out, n);
		for (unsigned i = 0; i < give; i++)
			assert_non_null(hog[i] = rte_pktmbuf_alloc(cuts));
		assert_null(rte_pktmbuf_alloc(cuts));
		assert_true(rte_mempool_full(source));
	}
	rte_pktmbuf_free_bulk(hog, all);
}

/* Lengths that cannot be are dropped. */
static void nonsense_is_not_cut(void **state)
{
	static struct super s = {.size = 1448, .payload = 3000, .piece = 1448, .flags = 0x10};
	struct rte_mbuf *out[PORT_GSO_SEGMENTS_MAX], *m;

	super_fill(&s);
	m = super_mbuf(&s);
	m->tso_segsz = 0;
	assert_int_equal(port_gso(cuts, m, true, 0, out), 0);
	m = super_mbuf(&s);
	m->tso_segsz = 20; /* more segments than there may be */
	assert_int_equal(port_gso(cuts, m, true, 0, out), 0);
	m = super_mbuf(&s);
	m->l3_len = 300;
	assert_int_equal(port_gso(cuts, m, true, 0, out), 0);
	assert_true(rte_mempool_full(source) && rte_mempool_full(cuts));
}

static uint64_t count(const _Atomic uint64_t *c)
{
	return atomic_load(c);
}

/* Between two ports: cut by the port where the device does not, and that is counted. */
static void a_port_cuts_by_itself(void **state)
{
	struct rp_port_config c = {.queues = 1, .rx_mbufs_extra = 256, .tso = RP_PORT_CHOICE_ON};
	static struct super s = {
		.options = 12, .size = 1448, .payload = 30000, .piece = 1448, .flags = 0x18};
	struct rte_mbuf *burst[RP_PORT_BURST_MAX];
	char error[RP_PORT_ERROR_SIZE] = "";
	static uint8_t a[4096], b[4096];
	struct rp_port_info info;
	struct rp_port *ports[2];
	struct rp_port_queue *q;
	uint16_t n;

	if (rp_port_create_pair(&c, ports, error, sizeof(error)) < 0)
		fail_msg("%s", error);
	rp_port_info(ports[0], &info);
	assert_true(info.flags & RP_PORT_TX_TSO && info.flags & RP_PORT_TX_GSO);
	assert_int_equal(count(&rp_port_counters(ports[0])->refused_tso), 1);
	super_fill(&s);
	q = rp_port_queue(ports[0], 0);
	rp_port_tx(q, super_mbuf(&s), 1000);
	rp_port_tx_flush(q, 1000);
	n = rp_port_rx(rp_port_queue(ports[1], 0), burst, RP_PORT_BURST_MAX, 1000);
	assert_int_equal(n, 21);
	for (unsigned i = 0; i < n; i++) {
		unsigned length = expected(&s, i, false, a);

		assert_int_equal(rp_mbuf_copy_out(burst[i], 0, b, sizeof(b)), length);
		assert_memory_equal(a, b, length);
	}
	rte_pktmbuf_free_bulk(burst, n);
	assert_int_equal(count(&rp_port_queue_counters(q)->tx_gso), 1);
	assert_int_equal(count(&rp_port_queue_counters(q)->tx_gso_segments), 21);
	assert_int_equal(count(&rp_port_queue_counters(q)->tx_tso), 0);
	rp_port_destroy(ports[0]);
	rp_port_destroy(ports[1]);
	assert_true(rte_mempool_full(source));
}

/* net_null keeps what it is told of RSS, and has four queues to spread to. */
static void rss_is_programmed_and_read_back(void **state)
{
	for (unsigned spread = 0; spread <= 6; spread += 6) {
		struct rp_port_config c = {.device = "net_null0",
			.queues = 4,
			.rx_mbufs_extra = 64,
			.rss_key = key,
			.rss = RP_PORT_CHOICE_ON,
			.spread = (uint16_t)spread};
		struct rte_eth_rss_reta_entry64 reta[8];
		char error[RP_PORT_ERROR_SIZE] = "";
		uint8_t back[64];
		struct rte_eth_rss_conf conf = {.rss_key = back, .rss_key_len = sizeof(back)};
		struct rp_port *p = rp_port_create(&c, error, sizeof(error));
		struct rp_port_info info;

		if (!p)
			fail_msg("%s", error);
		rp_port_info(p, &info);
		assert_true(info.flags & RP_PORT_RSS);
		assert_int_equal(info.queues, 4);
		assert_in_range(info.rss_table_size, 64, 512);
		memset(reta, 0xff, sizeof(reta));
		assert_int_equal(
			rte_eth_dev_rss_reta_query(info.ethdev_id, reta, info.rss_table_size), 0);
		for (unsigned i = 0; i < info.rss_table_size; i++)
			assert_int_equal(reta[i / 64].reta[i % 64], i % (spread ? spread : 4) % 4);
		assert_int_equal(rte_eth_dev_rss_hash_conf_get(info.ethdev_id, &conf), 0);
		assert_memory_equal(back, key, sizeof(key));
		assert_int_equal(count(&rp_port_counters(p)->refused_rss), 0);
		rp_port_destroy(p);
	}
}

/* A device with one queue, and two wanted: it gets one. */
static void fewer_queues_than_wanted(void **state)
{
	struct rp_port_config c = {.queues = 2, .rx_mbufs_extra = 64};
	char error[RP_PORT_ERROR_SIZE] = "", name[64] = "/tmp/ringpost-offload-XXXXXX", device[160];
	struct rp_port_info info;
	struct rp_port *p;
	int fd = mkstemp(name);

	/* An empty capture, and the driver file of NICs, which asks for more than the device has.
	 */
	assert_int_equal(
		write(fd, "\xd4\xc3\xb2\xa1\2\0\4\0\0\0\0\0\0\0\0\0\xff\xff\0\0\1\0\0\0", 24), 24);
	close(fd);
	snprintf(device, sizeof(device), "net_pcap0,rx_pcap=%s,tx_pcap=/dev/null", name);
	c.device = device;
	c.driver_config = DRIVERS_FOLDER "/generic.yaml";
	p = rp_port_create(&c, error, sizeof(error));
	unlink(name);
	if (!p)
		fail_msg("%s", error);
	rp_port_info(p, &info);
	assert_int_equal(info.queues, 1);
	assert_null(rp_port_queue(p, 1));
	assert_int_equal(count(&rp_port_counters(p)->refused_queues), 1);
	assert_int_equal(count(&rp_port_counters(p)->refused_tx_checksum), 1);
	assert_int_equal(count(&rp_port_counters(p)->refused_tx_chains), 1);
	assert_int_equal(count(&rp_port_counters(p)->refused_tso), 0);
	rp_port_destroy(p);
}

static void rss_that_cannot_be(void **state)
{
	struct rp_port_config c = {.queues = 2, .rx_mbufs_extra = 64, .rss_key = key};
	char error[RP_PORT_ERROR_SIZE] = "";
	struct rp_port_info info;
	struct rp_port *ports[2];

	assert_int_equal(rp_port_create_pair(&c, ports, error, sizeof(error)), 0);
	rp_port_info(ports[0], &info);
	assert_false(info.flags & RP_PORT_RSS);
	assert_int_equal(count(&rp_port_counters(ports[0])->refused_rss), 1);
	rp_port_destroy(ports[0]);
	rp_port_destroy(ports[1]);
	c.rss = RP_PORT_CHOICE_ON;
	assert_int_equal(rp_port_create_pair(&c, ports, error, sizeof(error)), -ENOTSUP);
	assert_non_null(strstr(error, "does not spread TCP"));
	/* Off is never asked for. */
	c.rss = RP_PORT_CHOICE_OFF;
	assert_int_equal(rp_port_create_pair(&c, ports, error, sizeof(error)), 0);
	assert_int_equal(count(&rp_port_counters(ports[0])->refused_rss), 0);
	rp_port_destroy(ports[0]);
	rp_port_destroy(ports[1]);
}

/* A device that calls a wrong checksum sound is not believed any more. */
static void a_device_that_lies(void **state)
{
	static struct super s = {.size = 1448, .payload = 900, .piece = 900, .flags = 0x10};
	struct rp_port port = {.device = {.name = "net_liar0"}};
	static struct rp_port_queue q;
	static uint8_t a[4096];
	struct rte_mbuf *burst[3];
	unsigned length;

	for (unsigned six = 0; six < 2; six++) {
		s.six = six;
		super_fill(&s);
		length = expected(&s, 0, false, a);
		q = (struct rp_port_queue){.port = &port, .to_check = PORT_CHECK_RX};
		for (unsigned i = 0; i < 2; i++) {
			burst[i] = rp_mbuf_from(source, a, length);
			burst[i]->ol_flags |=
				RTE_MBUF_F_RX_L4_CKSUM_GOOD | RTE_MBUF_F_RX_IP_CKSUM_GOOD;
		}
		port_check_rx(&q, burst, 2);
		assert_false(q.distrust);
		assert_true(burst[0]->ol_flags & RTE_MBUF_F_RX_L4_CKSUM_GOOD);
		assert_int_equal(q.to_check, PORT_CHECK_RX - 2);
		rte_pktmbuf_mtod(burst[1], uint8_t *)[200] ^= 1;
		port_check_rx(&q, burst, 2);
		assert_true(q.distrust);
		assert_int_equal(count(&q.counters.rx_checksum_lies), 1);
		assert_true(burst[0]->ol_flags & RTE_MBUF_F_RX_L4_CKSUM_GOOD);
		assert_false(burst[1]->ol_flags & RTE_MBUF_F_RX_L4_CKSUM_MASK);
		/* What never left the host has no sum to be checked. */
		burst[1]->ol_flags |= RTE_MBUF_F_RX_L4_CKSUM_NONE;
		port_check_rx(&q, burst, 2);
		assert_false(burst[0]->ol_flags & RTE_MBUF_F_RX_L4_CKSUM_MASK);
		assert_true((burst[1]->ol_flags & RTE_MBUF_F_RX_L4_CKSUM_MASK) ==
			    RTE_MBUF_F_RX_L4_CKSUM_NONE);
		rte_pktmbuf_free_bulk(burst, 2);
	}
	assert_true(rte_mempool_full(source));
}

static int set_up(void **state)
{
	struct rp_eal_config c;
	struct rp_eal_info info;
	char error[RP_PORT_ERROR_SIZE] = "", prefix[32];

	rp_eal_config_init(&c);
	snprintf(prefix, sizeof(prefix), "offload-test-%d", (int)getpid());
	c.file_prefix = prefix;
	c.hugepages = RP_EAL_HUGEPAGES_OFF;
	c.memory_mib = 192;
	if (rp_eal_start(&c, &info, error, sizeof(error)) < 0) {
		fprintf(stderr, "%s\n", error);
		return -1;
	}
	source = rp_pool_create("source", 4095, 2048, 0, -1, error, sizeof(error));
	cuts = rp_pool_create("cuts", 1023, 2048, 0, -1, error, sizeof(error));
	return source && cuts ? 0 : -1;
}

static int tear_down(void **state)
{
	rte_mempool_free(source);
	rte_mempool_free(cuts);
	rp_eal_stop();
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(cut_to_the_bytes_of_a_device),
		cmocka_unit_test(cut_as_dpdk_does),
		cmocka_unit_test(cut_without_buffers),
		cmocka_unit_test(nonsense_is_not_cut),
		cmocka_unit_test(a_port_cuts_by_itself),
		cmocka_unit_test(rss_is_programmed_and_read_back),
		cmocka_unit_test(rss_that_cannot_be),
		cmocka_unit_test(fewer_queues_than_wanted),
		cmocka_unit_test(a_device_that_lies),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
