/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <rte_mbuf.h>
#include <rte_thash.h>

#include <base/mbuf.h>
#include <base/rand.h>
#include <net/place.h>
#include <tcp/tcp.h>

#include "sim.h"

/*
 * Class 16 and 17: several stacks a node, on queues of one device. The device between them spreads
 * frames by RSS, of its own making (DPDK's function, not ours), has one queue, or throws each frame
 * into any queue.
 */

#define SHARDS_MAX 8
#define FIFO 16384
#define TABLE 128
#define MS RP_NS_PER_MS

enum nic { NIC_RSS, NIC_ONE_QUEUE, NIC_ANY_QUEUE };

/* What lies in a ring to a shard: a frame of its queue, a packet or an error handed over, news. */
enum kind { FRAME, PACKET, ICMP, NEWS };

struct item {
	enum kind kind;
	struct rte_mbuf *m;
	struct rp_net_packet error;
	union rp_ip ip;
	uint8_t mac[6];
	bool confirmed;
};

struct node;

struct end {
	struct node *node;
	unsigned shard;
	struct rp_tcp_stack *stack;
	struct item *ring;
	unsigned head, tail;
};

struct node {
	struct rig *rig;
	unsigned index, shards;
	struct rp_place *place;
	struct end end[SHARDS_MAX];
};

struct link {
	struct rig *rig;
	struct rp_conn *conn;
	unsigned near_shard, far_shard; /* that it was accepted on; SHARDS_MAX: not yet */
	uint32_t received;
	bool opened, closed;
	enum rp_close_reason reason;
};

struct rig {
	enum nic nic;
	struct node node[2];
	struct rte_mempool *pool;
	unsigned pool_free;
	uint64_t now_ns;
	struct rp_rand rand;
	bool icmp_only; /* node 1 answers each SYN by an ICMP error */
};

static uint64_t seed = 1;

static void put(struct end *e, struct item item)
{
	assert_true(e->tail - e->head < FIFO);
	e->ring[e->tail++ % FIFO] = item;
}

/* The queue of a frame, as a device with our key and table has it. */
static unsigned rss_queue(const struct node *n, const uint8_t *f)
{
	uint32_t words[9], count = 0;
	bool six = f[12] == 0x86;
	const uint8_t *addresses = f + (six ? 22 : 26), *ports = f + (six ? 54 : 34);
	unsigned address_words = six ? 8 : 2;

	if ((f[12] != 8 || f[13] != 0 || f[23] != 6) && (!six || f[20] != 6))
		return 0; /* ARP, ICMP, neighbour discovery */
	for (unsigned i = 0; i < address_words + 1; i++) {
		const uint8_t *p = i < address_words ? addresses + 4 * i : ports;

		words[count++] =
			(uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
	}
	return n->place->table[rte_softrss(words, count, n->place->key) % TABLE];
}

/* An ICMP error about a frame, from its destination; it arrives where no hash of ports decides. */
static void answer_icmp(struct rig *r, struct end *from, const uint8_t *f)
{
	uint8_t e[70] = {0};
	uint32_t sum = 0;

	memcpy(e, f + 6, 6);
	memcpy(e + 6, f, 6);
	memcpy(e + 12, "\x08\x00\x45\x00\x00\x38\x00\x00\x40\x00\x40\x01", 12);
	memcpy(e + 26, f + 30, 4);
	memcpy(e + 30, f + 26, 4);
	for (unsigned i = 14; i < 34; i += 2)
		sum += (uint32_t)e[i] << 8 | e[i + 1];
	sum = (sum & 0xffff) + (sum >> 16);
	e[24] = (uint8_t)(~sum >> 8);
	e[25] = (uint8_t)~sum;
	e[34] = 3; /* port unreachable */
	e[35] = 3;
	memcpy(e + 42, f + 14, 28);
	sum = 0;
	for (unsigned i = 34; i < 70; i += 2)
		sum += (uint32_t)e[i] << 8 | e[i + 1];
	sum = (sum & 0xffff) + (sum >> 16);
	e[36] = (uint8_t)(~sum >> 8);
	e[37] = (uint8_t)~sum;
	put(&from->node->end[0], (struct item){.m = rp_mbuf_from(r->pool, e, sizeof(e))});
}

static void wire(struct rig *r, struct end *from, struct rte_mbuf *m)
{
	struct node *to = &r->node[1 - from->node->index];
	uint8_t f[2048];
	unsigned queue = 0;

	rp_mbuf_copy_out(m, 0, f, m->pkt_len);
	if (r->icmp_only && f[12] == 8 && f[13] == 0 && f[23] == 6) {
		answer_icmp(r, from, f);
		rte_pktmbuf_free(m);
		return;
	}
	if (r->nic == NIC_RSS)
		queue = rss_queue(to, f);
	else if (r->nic == NIC_ANY_QUEUE)
		queue = (unsigned)rp_rand_below(&r->rand, to->shards);
	put(&to->end[queue], (struct item){.m = rp_mbuf_from(r->pool, f, m->pkt_len)});
	rte_pktmbuf_free(m);
}

static void hand_over(void *ctx, uint32_t shard, const struct rp_net_packet *p)
{
	struct end *e = ctx;

	assert_int_not_equal(shard, e->shard);
	if (p->kind == RP_NET_TCP)
		put(&e->node->end[shard], (struct item){.kind = PACKET, .m = p->m});
	else
		put(&e->node->end[shard], (struct item){.kind = ICMP, .error = *p});
}

static void on_neigh(void *ctx, const union rp_ip *ip, const uint8_t mac[6], bool confirmed)
{
	struct end *e = ctx;
	struct item item = {.kind = NEWS, .ip = *ip, .confirmed = confirmed};

	memcpy(item.mac, mac, 6);
	for (unsigned s = 0; s < e->node->shards; s++)
		if (s != e->shard)
			put(&e->node->end[s], item);
}

static void take(struct end *e, const struct item *item, uint64_t now_ns)
{
	struct rte_mbuf *m = item->m;

	switch (item->kind) {
	case FRAME:
		rp_tcp_rx(e->stack, &m, 1, now_ns);
		return;
	case PACKET:
		rp_tcp_rx_packets(e->stack, &m, 1, now_ns);
		return;
	case ICMP:
		rp_tcp_rx_error(e->stack, &item->error, now_ns);
		return;
	case NEWS:
		rp_net_neigh_learn(
			rp_tcp_net(e->stack), &item->ip, item->mac, item->confirmed, now_ns);
		return;
	}
}

static void turn(struct rig *r, struct end *e)
{
	struct rte_mbuf *out[32];
	unsigned n;

	for (unsigned i = 0; i < 32 && e->head != e->tail; i++)
		take(e, &e->ring[e->head++ % FIFO], r->now_ns);
	rp_tcp_poll(e->stack, r->now_ns);
	while ((n = rp_tcp_tx(e->stack, out, 32)) > 0)
		for (unsigned i = 0; i < n; i++)
			wire(r, e, out[i]);
}

/* Turns of all shards until everybody rests or the time is over. */
static void run(struct rig *r, uint64_t ns)
{
	for (uint64_t until = r->now_ns + ns; r->now_ns < until; r->now_ns += 20000)
		for (unsigned n = 0; n < 2; n++)
			for (unsigned s = 0; s < r->node[n].shards; s++)
				turn(r, &r->node[n].end[s]);
}

static void node_init(struct rig *r, unsigned index, unsigned shards, uint32_t connections)
{
	struct node *n = &r->node[index];
	struct rp_endpoint own = sim_endpoint(index, 0);
	uint8_t table[TABLE];

	*n = (struct node){.rig = r, .index = index, .shards = shards};
	for (unsigned i = 0; i < TABLE; i++)
		table[i] = (uint8_t)(i % shards);
	n->place = malloc(sizeof(*n->place));
	assert_int_equal(rp_place_init(n->place, rp_place_key_default, table, TABLE), 0);
	for (unsigned s = 0; s < shards; s++) {
		struct end *e = &n->end[s];
		struct rp_tcp_config c = {
			.net = {.iface = {.mac = {2, 0, 0, 0, 0, (uint8_t)(index + 1)},
					.mtu = 1500},
				.header_pool = r->pool,
				.on_neigh = on_neigh,
				.ctx = e},
			.connections_max = connections,
			.segments_max = connections + 1024,
			.time_wait_max = 64,
			.place = n->place,
			.shard = s,
			.hand_over = hand_over,
			.place_ctx = e,
			.secret = {(uint8_t)seed, (uint8_t)(7 * s + index)},
			.seed = seed + s,
		};

		*e = (struct end){.node = n, .shard = s, .ring = calloc(FIFO, sizeof(struct item))};
		assert_int_equal(rp_ip_from_endpoint(&c.net.iface.addresses[0].ip, &own), 0);
		c.net.iface.addresses[0].prefix_length = own.family == 6 ? 64 : 24;
		e->stack = rp_tcp_create(&c, r->now_ns);
		assert_non_null(e->stack);
	}
}

static struct rig *rig_new(enum nic nic, unsigned near, unsigned far, uint32_t connections)
{
	static unsigned serial;
	struct rig *r = calloc(1, sizeof(*r));
	char name[32];

	snprintf(name, sizeof(name), "place%u", serial++);
	r->pool = rte_pktmbuf_pool_create(name, 32767, 0, 0, 2048 + 128, SOCKET_ID_ANY);
	assert_non_null(r->pool);
	r->pool_free = rte_mempool_avail_count(r->pool);
	r->nic = nic;
	r->rand.state = seed;
	r->now_ns = 1000 * RP_NS_PER_S;
	node_init(r, 0, near, connections);
	node_init(r, 1, far, connections);
	return r;
}

static uint64_t handed(const struct rig *r)
{
	uint64_t sum = 0;

	for (unsigned n = 0; n < 2; n++)
		for (unsigned s = 0; s < r->node[n].shards; s++)
			sum += rp_tcp_counters(r->node[n].end[s].stack)->handed_over;
	return sum;
}

static void rig_free(struct rig *r)
{
	for (unsigned n = 0; n < 2; n++) {
		for (unsigned s = 0; s < r->node[n].shards; s++) {
			struct end *e = &r->node[n].end[s];

			assert_null(rp_tcp_check(e->stack));
			for (; e->head != e->tail; e->head++)
				if (e->ring[e->head % FIFO].kind <= PACKET)
					rte_pktmbuf_free(e->ring[e->head % FIFO].m);
			rp_tcp_destroy(e->stack);
			free(e->ring);
		}
		free(r->node[n].place);
	}
	assert_int_equal(rte_mempool_avail_count(r->pool), r->pool_free);
	rte_mempool_free(r->pool);
	free(r);
}

/* Applications: who dials sends some bytes, who accepts sends them back. */

#define BYTES 6000

static void near_open(void *ctx, struct rp_conn *c, uint64_t now_ns)
{
	struct link *l = ctx;
	uint8_t bytes[1500];

	l->opened = true;
	memset(bytes, 0x5a, sizeof(bytes));
	for (unsigned i = 0; i < BYTES / sizeof(bytes); i++)
		assert_int_equal(c->transport->ops->send(c,
					 rp_mbuf_from(l->rig->pool, bytes, sizeof(bytes)), now_ns),
			0);
}

static void near_data(void *ctx, struct rp_conn *c, struct rte_mbuf *m, uint64_t now_ns)
{
	struct link *l = ctx;

	l->received += m->pkt_len;
	c->transport->ops->consume(c, m->pkt_len, now_ns);
	rte_pktmbuf_free(m);
	if (l->received == BYTES)
		c->transport->ops->close(c, now_ns);
}

static void on_fin(void *ctx, struct rp_conn *c, uint64_t now_ns)
{
	c->transport->ops->close(c, now_ns);
}

static void near_close(void *ctx, struct rp_conn *c, enum rp_close_reason why, uint64_t now_ns)
{
	struct link *l = ctx;

	l->closed = true;
	l->reason = why;
}

static const struct rp_conn_events near_events = {
	.on_open = near_open, .on_data = near_data, .on_peer_fin = on_fin, .on_close = near_close};

static void far_data(void *ctx, struct rp_conn *c, struct rte_mbuf *m, uint64_t now_ns)
{
	uint32_t bytes = m->pkt_len;

	assert_int_equal(c->transport->ops->send(c, m, now_ns), 0);
	c->transport->ops->consume(c, bytes, now_ns);
}

static void far_close(void *ctx, struct rp_conn *c, enum rp_close_reason why, uint64_t now_ns)
{
}

static const struct rp_conn_events far_events = {
	.on_data = far_data, .on_peer_fin = on_fin, .on_close = far_close};

static unsigned accepted[SHARDS_MAX];

static int on_accept(void *ctx, struct rp_conn *c, const struct rp_endpoint *peer,
	const struct rp_conn_events **events, void **conn_ctx, uint64_t now_ns)
{
	struct end *e = ctx;
	struct rp_tcp_info info;
	union rp_ip src, dst;

	rp_tcp_conn_info(c, &info);
	assert_int_equal(rp_ip_from_endpoint(&src, &info.peer), 0);
	assert_int_equal(rp_ip_from_endpoint(&dst, &info.local), 0);
	/* It is accepted by the shard that it belongs to. */
	assert_int_equal(
		rp_place_shard_of(e->node->place,
			&(struct rp_place_flow){&src, &dst, info.peer.port, info.local.port}),
		e->shard);
	accepted[e->shard]++;
	*events = &far_events;
	*conn_ctx = e;
	return 0;
}

static void listen_everywhere(struct rig *r, uint16_t port)
{
	memset(accepted, 0, sizeof(accepted));
	for (unsigned s = 0; s < r->node[1].shards; s++) {
		struct end *e = &r->node[1].end[s];
		struct rp_transport *t = rp_tcp_transport(e->stack);

		assert_int_equal(t->ops->listen(t, port, NULL, on_accept, e), 0);
	}
}

static void dial(struct rig *r, struct link *l, unsigned near, const struct rp_conn_options *o)
{
	struct rp_transport *t = rp_tcp_transport(r->node[0].end[near].stack);
	struct rp_endpoint peer = sim_endpoint(1, 7400);

	*l = (struct link){.rig = r, .near_shard = near};
	l->conn = t->ops->dial(t, &peer, o, &near_events, l, r->now_ns);
	assert_non_null(l->conn);
}

/* Each shard dials; everything arrives, whatever the device does with the frames. */
static void transfers(enum nic nic, unsigned near, unsigned far, bool far_known)
{
	struct rig *r = rig_new(nic, near, far, 256);
	struct link links[48];
	unsigned wanted[SHARDS_MAX] = {0};

	listen_everywhere(r, 7400);
	for (unsigned i = 0; i < RP_ARRAY_SIZE(links); i++) {
		struct rp_conn_options o = {
			.far_place = far_known ? r->node[1].place : NULL,
			.far_shards = 1ull << i % far,
		};

		wanted[i % far]++;
		dial(r, &links[i], i % near, &o);
		run(r, MS / 10);
	}
	run(r, 400 * MS);
	for (unsigned i = 0; i < RP_ARRAY_SIZE(links); i++) {
		assert_true(links[i].opened && links[i].closed);
		assert_int_equal(links[i].reason, RP_CLOSE_FIN);
		assert_int_equal(links[i].received, BYTES);
	}
	if (far_known)
		assert_memory_equal(accepted, wanted, sizeof(wanted));
	/* A device that spreads by the hash has put every single segment where it belongs. */
	if (nic == NIC_RSS)
		assert_int_equal(handed(r), 0);
	else
		assert_true(handed(r) > 100);
	rig_free(r);
}

static void a_device_with_rss(void **state)
{
	transfers(NIC_RSS, 4, 4, true);
	transfers(NIC_RSS, 3, 5, true);
	transfers(NIC_RSS, 8, 2, false);
}

static void one_queue_and_hand_over(void **state)
{
	transfers(NIC_ONE_QUEUE, 4, 4, true);
	transfers(NIC_ONE_QUEUE, 3, 2, false);
}

static void frames_in_any_queue(void **state)
{
	transfers(NIC_ANY_QUEUE, 4, 4, true);
	transfers(NIC_ANY_QUEUE, 2, 7, false);
}

/* Errors are quoted segments: the quoted ports decide, though the device cannot see them. */
static void icmp_errors_find_their_shard(void **state)
{
	struct rig *r = rig_new(NIC_RSS, 4, 1, 64);
	struct link links[16];
	uint64_t over = 0;

	if (sim_family() == 6) {
		rig_free(r);
		return; /* the frames of the test are of IPv4 */
	}
	listen_everywhere(r, 7400);
	dial(r, &links[0], 0, NULL);
	run(r, 20 * MS); /* the neighbour is known */
	r->icmp_only = true;
	for (unsigned i = 0; i < RP_ARRAY_SIZE(links); i++)
		dial(r, &links[i], i % 4, NULL);
	run(r, 10 * MS);
	for (unsigned i = 0; i < RP_ARRAY_SIZE(links); i++) {
		assert_true(links[i].closed);
		assert_int_equal(links[i].reason, RP_CLOSE_REFUSED);
	}
	for (unsigned s = 0; s < 4; s++)
		over += rp_tcp_counters(r->node[0].end[s].stack)->handed_here;
	assert_int_equal(over, 12);
	rig_free(r);
}

/* All ports of four shards: each once, and none of two shards; then there is truly none left. */
static void every_port_of_four_shards(void **state)
{
	struct rig *r = rig_new(NIC_RSS, 4, 1, 17000);
	static uint8_t used[65536];
	struct rp_endpoint peer = sim_endpoint(1, 7400);
	static struct link link;
	uint32_t total = 0;

	memset(used, 0, sizeof(used));
	for (unsigned s = 0; s < 4; s++) {
		struct rp_transport *t = rp_tcp_transport(r->node[0].end[s].stack);
		struct rp_conn *c;
		struct rp_tcp_info info;
		uint32_t n = 0;

		while ((c = t->ops->dial(t, &peer, NULL, &near_events, &link, r->now_ns))) {
			rp_tcp_conn_info(c, &info);
			assert_in_range(info.local.port, 32768, 60999);
			assert_int_equal(used[info.local.port]++, 0);
			n++;
		}
		assert_int_equal(errno, EADDRNOTAVAIL);
		assert_in_range(n, 6900, 7200);
		total += n;
	}
	assert_int_equal(total, 60999 - 32768 + 1);
	rig_free(r);
}

/* Where the peer's wish cannot be met, the flow is at least ours. */
static void a_far_shard_that_no_flow_reaches(void **state)
{
	struct rig *r = rig_new(NIC_RSS, 2, 2, 64);
	struct link link;
	struct rp_conn_options o = {.far_place = r->node[1].place, .far_shards = 1ull << 5};

	listen_everywhere(r, 7400);
	dial(r, &link, 1, &o);
	run(r, 50 * MS);
	assert_true(link.closed && link.received == BYTES);
	assert_int_equal(rp_tcp_counters(r->node[0].end[1].stack)->ports_misplaced, 1);
	assert_int_equal(handed(r), 0);
	rig_free(r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_device_with_rss),
		cmocka_unit_test(one_queue_and_hand_over),
		cmocka_unit_test(frames_in_any_queue),
		cmocka_unit_test(icmp_errors_find_their_shard),
		cmocka_unit_test(every_port_of_four_shards),
		cmocka_unit_test(a_far_shard_that_no_flow_reaches),
	};

	if (getenv("RP_SEED"))
		seed = strtoull(getenv("RP_SEED"), NULL, 0);
	printf("RP_SEED=%llu\n", (unsigned long long)seed);
	if (sim_eal() < 0)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
