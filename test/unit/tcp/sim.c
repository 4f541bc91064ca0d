/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_mbuf.h>

#include <base/mbuf.h>
#include <base/seq32.h>

#include "sim.h"

#define SIM_BURST 32

void sim_fail(const struct sim *s, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	fprintf(stderr, "seed %llu, at %llu ns, step %llu: ", (unsigned long long)s->config.seed,
		(unsigned long long)s->now_ns, (unsigned long long)s->steps);
	vfprintf(stderr, format, args);
	fprintf(stderr, "\n");
	va_end(args);
	abort();
}

int sim_eal(void)
{
	static char *argv[] = {"test", "--no-huge", "-m", "512", "--no-pci", "--no-telemetry",
		"--no-shconf", "-l", "0", "--log-level", "error", NULL};

	return rte_eal_init(11, argv) < 0 ? -1 : 0;
}

unsigned sim_family(void)
{
	const char *text = getenv("RP_FAMILY");

	return text && strcmp(text, "6") == 0 ? 6 : 4;
}

struct rp_endpoint sim_endpoint(unsigned host, uint16_t port)
{
	struct rp_endpoint e = {.family = (uint8_t)sim_family(), .port = port};
	uint8_t last = (uint8_t)(host + 1);

	e.addr[0] = e.family == 6 ? 0xfd : 10;
	e.addr[e.family == 6 ? 15 : 3] = last;
	return e;
}

uint16_t sim_mtu(const struct sim_config *config)
{
	unsigned mtu = config->mtu ? config->mtu : 1500;

	if (sim_family() == 6)
		mtu = RP_MAX(mtu + 20u, (unsigned)RP_NET_MTU6_MIN);
	return (uint16_t)RP_MIN(mtu, (unsigned)RP_NET_MTU_MAX);
}

static struct rte_mempool *sim_pool(const char *name, unsigned host, unsigned n, unsigned room)
{
	static unsigned serial;
	char full[32];
	struct rte_mempool *p;

	snprintf(full, sizeof(full), "%s%u_%u", name, host, serial++);
	p = rte_pktmbuf_pool_create(full, n, 0, 0, (uint16_t)room, SOCKET_ID_ANY);
	if (!p) {
		fprintf(stderr, "pool %s: %s\n", full, rte_strerror(rte_errno));
		abort();
	}
	return p;
}

static void sim_host_init(struct sim *s, unsigned i)
{
	struct sim_host *h = &s->host[i];
	struct rp_tcp_config c = s->config.tcp[i];
	struct rp_net_interface *iface = &c.net.iface;
	static const uint8_t mac[6] = {0x02, 0, 0, 0, 0, 0x10};
	struct rp_endpoint own = sim_endpoint(i, 0);

	h->header_pool =
		sim_pool("h", i, s->config.header_mbufs ? s->config.header_mbufs : 8191, 512);
	h->payload_pool = sim_pool(
		"p", i, s->config.payload_mbufs ? s->config.payload_mbufs : 4095, 2048 + 128);
	h->rx_pool = sim_pool("r", i, s->config.rx_mbufs ? s->config.rx_mbufs : 8191, 2048 + 128);
	if (!c.connections_max)
		c.connections_max = 64;
	if (!c.segments_max)
		c.segments_max = 8192;
	if (!c.time_wait_ns)
		c.time_wait_ns = RP_NS_PER_S;
	if (!c.rto_min_ns)
		c.rto_min_ns = 5 * RP_NS_PER_MS;
	if (!c.ack_delay_max_ns)
		c.ack_delay_max_ns = RP_NS_PER_MS;
	if (!c.seed)
		c.seed = s->config.seed * 2 + i;
	c.secret[0] = (uint8_t)(7 + i);
	memcpy(c.secret + 1, &s->config.seed, 8);
	c.net.header_pool = h->header_pool;
	c.net.payload_pool = h->payload_pool;
	memcpy(iface->mac, mac, 6);
	iface->mac[5] = (uint8_t)(iface->mac[5] + i);
	SIM_CHECK(s, rp_ip_from_endpoint(&iface->addresses[0].ip, &own) == 0);
	iface->addresses[0].prefix_length = own.family == 6 ? 64 : 24;
	iface->mtu = sim_mtu(&s->config);
	c.rx_pool = s->config.watch_rx ? h->rx_pool : NULL;
	h->header_free = rte_mempool_avail_count(h->header_pool);
	h->payload_free = rte_mempool_avail_count(h->payload_pool);
	h->rx_free = rte_mempool_avail_count(h->rx_pool);
	h->stack = rp_tcp_create(&c, s->now_ns);
	SIM_CHECK(s, h->stack);
}

struct sim *sim_new(const struct sim_config *config)
{
	struct sim *s = calloc(1, sizeof(*s));

	if (!s)
		abort();
	s->config = *config;
	s->now_ns = 1000 * RP_NS_PER_S + config->seed % 1000;
	s->rand.state = config->seed + 99;
	for (unsigned i = 0; i < 2; i++) {
		s->heap[i].size = 1 << 18;
		s->heap[i].events = malloc(s->heap[i].size * sizeof(struct sim_event));
		sim_host_init(s, i);
		rp_impair_init(&s->impair[i], &config->impair, config->seed * 2 + i);
	}
	return s;
}

void sim_set_impair(struct sim *s, const struct rp_impair_spec *spec)
{
	rp_impair_set(&s->impair[0], spec);
	rp_impair_set(&s->impair[1], spec);
}

static bool event_before(const struct sim_event *a, const struct sim_event *b)
{
	return a->at_ns < b->at_ns || (a->at_ns == b->at_ns && a->seq < b->seq);
}

static void heap_push(struct sim *s, unsigned to, struct sim_event e)
{
	struct sim_heap *h = &s->heap[to];
	uint32_t i = h->count++;

	SIM_CHECK(s, h->count < h->size);
	while (i > 0 && event_before(&e, &h->events[(i - 1) / 2])) {
		h->events[i] = h->events[(i - 1) / 2];
		i = (i - 1) / 2;
	}
	h->events[i] = e;
}

static struct sim_event heap_pop(struct sim_heap *h)
{
	struct sim_event top = h->events[0], last = h->events[--h->count];
	uint32_t i = 0;

	for (;;) {
		uint32_t child = 2 * i + 1;

		if (child >= h->count)
			break;
		if (child + 1 < h->count && event_before(&h->events[child + 1], &h->events[child]))
			child++;
		if (event_before(&last, &h->events[child]))
			break;
		h->events[i] = h->events[child];
		i = child;
	}
	h->events[i] = last;
	return top;
}

static uint32_t load32(const uint8_t *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* An Internet checksum that shares nothing with the one under test. */
static uint32_t slow_sum(const uint8_t *p, uint32_t n, uint32_t sum)
{
	for (uint32_t i = 0; i < n; i++)
		sum += i & 1 ? p[i] : (uint32_t)p[i] << 8;
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

static void frame_parse_tcp(struct sim_frame_info *f, uint32_t offset, uint32_t length, uint8_t ecn)
{
	const uint8_t *tcp = f->data + offset;

	f->l4 = offset;
	f->ecn = ecn;
	f->seq = load32(tcp + 4);
	f->ack = load32(tcp + 8);
	f->flags = tcp[13];
	f->window = (uint16_t)(tcp[14] << 8 | tcp[15]);
	f->payload = length - (tcp[12] >> 4) * 4u;
}

static void frame_parse6(const struct sim *s, struct sim_frame_info *f)
{
	const uint8_t *ip = f->data + 14;
	uint32_t length = (uint32_t)ip[4] << 8 | ip[5];

	SIM_CHECK(s, f->length >= 54 && length + 54 == f->length);
	SIM_CHECK(s, length + 40 <= sim_mtu(&s->config) && ip[0] >> 4 == 6);
	SIM_CHECK(s, s->config.trust || slow_sum(ip + 40, length,
						slow_sum(ip + 8, 32, ip[6] + length)) == 0xffff);
	if (ip[6] == 6)
		frame_parse_tcp(f, 54, length, ip[1] >> 4 & 3);
}

static void frame_parse(const struct sim *s, struct sim_frame_info *f)
{
	const uint8_t *ip = f->data + 14;
	uint32_t ihl, total, sum;

	if (f->length > 14 && f->data[12] == 0x86 && f->data[13] == 0xdd)
		frame_parse6(s, f);
	if (f->length < 34 || f->data[12] != 8 || f->data[13] != 0)
		return;
	ihl = (ip[0] & 15) * 4u;
	total = (uint32_t)ip[2] << 8 | ip[3];
	SIM_CHECK(s, total + 14 == f->length && total <= sim_mtu(&s->config));
	SIM_CHECK(s, slow_sum(ip, ihl, 0) == 0xffff);
	if (ip[9] != 6)
		return;
	sum = slow_sum(ip + 12, 8, 6 + total - ihl);
	SIM_CHECK(s, s->config.trust || slow_sum(ip + ihl, total - ihl, sum) == 0xffff);
	frame_parse_tcp(f, 14 + ihl, total - ihl, ip[1] & 3);
}

static void frame_send(struct sim *s, unsigned from, struct rte_mbuf *m, uint64_t at_ns)
{
	heap_push(s, 1 - from, (struct sim_event){.at_ns = at_ns, .seq = s->event_seq++, .m = m});
	s->in_queue[from]++;
}

/* A private copy in the receiver's pool, or the sender's own mbufs with one more reference. */
static struct rte_mbuf *frame_copy(
	struct sim *s, unsigned to, struct rte_mbuf *m, const uint8_t *data, uint32_t length)
{
	struct rte_mbuf *copy;

	if (s->config.share_mbufs && m) {
		for (struct rte_mbuf *x = m; x; x = x->next)
			rte_mbuf_refcnt_update(x, 1);
		return m;
	}
	copy = rp_mbuf_from(s->host[to].rx_pool, data, length);
	SIM_CHECK(s, copy);
	return copy;
}

/* A queue with a threshold, as DCTCP wants it (RFC 8257 3.1). False: the frame is dropped. */
static bool frame_mark(struct sim *s, struct sim_frame_info *f, uint8_t *data)
{
	uint8_t *ip = data + 14;
	uint64_t now_ns = s->now_ns, frame_ns = 1500 * s->config.byte_ps / 1000;
	uint32_t queue = 0;

	if (s->link_free_ns[f->from] > now_ns && frame_ns > 0)
		queue = (uint32_t)((s->link_free_ns[f->from] - now_ns) / frame_ns);
	s->queue_most[f->from] = RP_MAX(s->queue_most[f->from], queue);
	if (s->config.buffer_frames && queue >= s->config.buffer_frames && f->payload > 0) {
		s->dropped_queue[f->from]++;
		return false;
	}
	if (s->config.mark_frames == 0 || queue < s->config.mark_frames || f->l4 == 0)
		return true;
	if (f->ecn == 0) {
		if (f->payload == 0)
			return true;
		s->dropped_queue[f->from]++;
		return false;
	}
	s->marked[f->from]++;
	ip[1] |= 3;
	ip[10] = ip[11] = 0;
	queue = slow_sum(ip, (ip[0] & 15) * 4u, 0);
	ip[10] = (uint8_t)(~queue >> 8);
	ip[11] = (uint8_t)~queue;
	return true;
}

static void frame_out(struct sim *s, unsigned from, struct rte_mbuf *m);

static void store16(uint8_t *p, uint32_t v)
{
	p[0] = (uint8_t)(v >> 8);
	p[1] = (uint8_t)v;
}

/* Lengths, numbers, flags and checksums of a segment cut at `offset`, as a device makes them. */
static void super_segment(
	const struct rte_mbuf *m, uint8_t *f, uint32_t offset, uint32_t length, bool last)
{
	uint8_t *ip = f + m->l2_len, *tcp = ip + m->l3_len;
	uint32_t l4 = length - m->l2_len - m->l3_len, seq = load32(tcp + 4) + offset, sum;
	bool six = ip[0] >> 4 == 6;

	store16(tcp + 4, seq >> 16);
	store16(tcp + 6, seq);
	tcp[13] &= last ? 0xff : 0xf6;
	tcp[13] &= offset ? 0x7f : 0xff;
	store16(ip + (six ? 4 : 2), six ? l4 : l4 + m->l3_len);
	if (!six) {
		store16(ip + 10, 0);
		store16(ip + 10, ~slow_sum(ip, m->l3_len, 0));
	}
	store16(tcp + 16, 0);
	sum = slow_sum(six ? ip + 8 : ip + 12, six ? 32 : 8, 6 + l4);
	store16(tcp + 16, ~slow_sum(tcp, l4, sum));
}

/* Cuts a super-segment; take. The pseudo header's sum in it must be as devices want it. */
static void super_out(struct sim *s, unsigned from, struct rte_mbuf *m)
{
	static uint8_t data[70000], f[16384];
	uint32_t headers = (uint32_t)(m->l2_len + m->l3_len + m->l4_len);
	const uint8_t *ip = data + m->l2_len, *tcp = ip + m->l3_len;
	uint32_t pseudo;

	SIM_CHECK(s, m->pkt_len <= 65535u + (uint32_t)m->l2_len && m->tso_segsz > 0);
	SIM_CHECK(s, rp_mbuf_copy_out(m, 0, data, m->pkt_len) == m->pkt_len);
	for (struct rte_mbuf *x = m; x; x = x->next)
		SIM_CHECK(s, x->data_len > 0);
	pseudo = ip[0] >> 4 == 6 ? slow_sum(ip + 8, 32, 6) : slow_sum(ip + 12, 8, 6);
	SIM_CHECK(s, pseudo == (uint32_t)(tcp[16] << 8 | tcp[17]));
	s->supers[from]++;
	for (uint32_t at = headers; at < m->pkt_len; at += m->tso_segsz) {
		uint32_t n = RP_MIN(m->pkt_len - at, (uint32_t)m->tso_segsz);
		struct rte_mbuf *one;

		memcpy(f, data, headers);
		memcpy(f + headers, data + at, n);
		super_segment(m, f, at - headers, headers + n, at + n == m->pkt_len);
		one = rp_mbuf_from(s->host[from].rx_pool, f, headers + n);
		SIM_CHECK(s, one);
		frame_out(s, from, one);
	}
	rte_pktmbuf_free(m);
}

static void frame_out(struct sim *s, unsigned from, struct rte_mbuf *m)
{
	static uint8_t data[16384];
	struct sim_frame_info f = {
		.now_ns = s->now_ns, .from = from, .data = data, .length = m->pkt_len};
	struct rp_impair_verdict v;
	uint64_t start_ns, end_ns;

	if (m->ol_flags & RTE_MBUF_F_TX_TCP_SEG) {
		super_out(s, from, m);
		return;
	}
	SIM_CHECK(s, m->pkt_len <= sizeof(data));
	for (struct rte_mbuf *x = m; x; x = x->next)
		SIM_CHECK(s, x->data_len > 0);
	SIM_CHECK(s, rp_mbuf_copy_out(m, 0, data, m->pkt_len) == m->pkt_len);
	frame_parse(s, &f);
	s->frames[from]++;
	s->payload_sent[from] += f.payload;
	if (s->config.tap && !s->config.tap(s->config.tap_ctx, &f))
		goto out;
	if (!frame_mark(s, &f, data))
		goto out;
	if (s->config.queue_frames && s->in_queue[from] >= s->config.queue_frames) {
		s->dropped_queue[from]++;
		goto out;
	}
	start_ns = RP_MAX(s->now_ns, s->link_free_ns[from]);
	end_ns = start_ns + f.length * s->config.byte_ps / 1000;
	s->link_free_ns[from] = end_ns;
	v = rp_impair_decide(&s->impair[from]);
	s->payload_through[from] += s->cut ? 0 : v.copies * f.payload;
	for (unsigned i = 0; i < v.copies && !s->cut; i++)
		frame_send(s, from, frame_copy(s, 1 - from, i == 0 ? m : NULL, data, f.length),
			end_ns + s->config.rtt_ns / 2 + v.delay_ns[i]);
out:
	rte_pktmbuf_free(m);
}

void sim_turn(struct sim *s, unsigned i)
{
	struct sim_host *h = &s->host[i];
	struct sim_heap *q = &s->heap[i];
	struct rte_mbuf *burst[SIM_BURST];
	unsigned n = 0;

	while (q->count > 0 && q->events[0].at_ns <= s->now_ns && n < SIM_BURST) {
		burst[n++] = heap_pop(q).m;
		s->in_queue[1 - i]--;
	}
	if (n > 0)
		rp_tcp_rx(h->stack, burst, n, s->now_ns);
	rp_tcp_poll(h->stack, s->now_ns);
	while ((n = rp_tcp_tx(h->stack, burst, SIM_BURST)) > 0)
		for (unsigned k = 0; k < n; k++)
			frame_out(s, i, burst[k]);
}

static void sim_check(struct sim *s)
{
	if (s->config.check_every && s->steps % s->config.check_every)
		return;
	for (unsigned i = 0; i < 2; i++) {
		const char *fault = rp_tcp_check(s->host[i].stack);

		if (fault)
			sim_fail(s, "host %u: %s", i, fault);
	}
}

/* When a host has something to do, and can. */
static uint64_t sim_host_next(const struct sim *s, unsigned i)
{
	uint64_t next = rp_tcp_next_deadline(s->host[i].stack);

	if (s->heap[i].count > 0)
		next = RP_MIN(next, s->heap[i].events[0].at_ns);
	return RP_MAX(next, s->paused_ns[i]);
}

bool sim_step(struct sim *s, uint64_t until_ns)
{
	uint64_t next = RP_MIN(sim_host_next(s, 0), sim_host_next(s, 1));

	if (next > until_ns) {
		s->now_ns = until_ns;
		return false;
	}
	s->now_ns = RP_MAX(s->now_ns, next);
	s->steps++;
	for (unsigned i = 0; i < 2; i++) {
		if (s->paused_ns[i] > s->now_ns)
			continue;
		sim_turn(s, i);
		if (s->config.pause_every && rp_rand_below(&s->rand, s->config.pause_every) == 0)
			s->paused_ns[i] = s->now_ns + rp_rand_below(&s->rand, s->config.pause_ns);
	}
	sim_check(s);
	return true;
}

bool sim_run(struct sim *s, uint64_t until_ns, bool (*done)(void *ctx), void *ctx)
{
	uint64_t same = 0, last_ns = 0;

	while (!done || !done(ctx)) {
		if (!sim_step(s, until_ns))
			return done && done(ctx);
		same = s->now_ns == last_ns ? same + 1 : 0;
		last_ns = s->now_ns;
		SIM_CHECK(s, same < 100000); /* time must go on */
	}
	return true;
}

void sim_inject(struct sim *s, unsigned to, const void *frame, uint32_t length)
{
	struct rte_mbuf *m = rp_mbuf_from(s->host[to].rx_pool, frame, length);

	SIM_CHECK(s, m);
	rp_tcp_rx(s->host[to].stack, &m, 1, s->now_ns);
}

static void sim_empty(struct sim *s)
{
	for (unsigned i = 0; i < 2; i++)
		while (s->heap[i].count > 0)
			rte_pktmbuf_free(heap_pop(&s->heap[i]).m);
}

void sim_free(struct sim *s)
{
	sim_empty(s);
	for (unsigned i = 0; i < 2; i++) {
		struct rp_tcp_usage u;

		sim_turn(s, i);
		rp_tcp_usage(s->host[i].stack, &u);
		SIM_CHECK(s, u.connections == 0);
		SIM_CHECK(s, u.half_open == 0);
		SIM_CHECK(s, u.segments == 0);
		SIM_CHECK(s, u.ranges == 0);
		SIM_CHECK(s, u.timers == 0);
	}
	sim_empty(s);
	for (unsigned i = 0; i < 2; i++)
		rp_tcp_destroy(s->host[i].stack);
	for (unsigned i = 0; i < 2; i++) {
		struct sim_host *h = &s->host[i];

		SIM_CHECK(s, rte_mempool_avail_count(h->header_pool) == h->header_free);
		SIM_CHECK(s, rte_mempool_avail_count(h->payload_pool) == h->payload_free);
		SIM_CHECK(s, rte_mempool_avail_count(h->rx_pool) == h->rx_free);
		rte_mempool_free(h->header_pool);
		rte_mempool_free(h->payload_pool);
		rte_mempool_free(h->rx_pool);
	}
	free(s->heap[0].events);
	free(s->heap[1].events);
	free(s);
}

/* Applications. */

uint8_t app_byte(uint64_t pattern, uint64_t offset)
{
	uint64_t x = (pattern + offset / 8) * 0x9e3779b97f4a7c15ull;

	x ^= x >> 29;
	return (uint8_t)(x >> (8 * (offset % 8)));
}

/* The bytes of the pattern from an offset on, a word at a time where that is whole. */
static void app_fill(uint64_t pattern, uint64_t offset, uint8_t *p, uint64_t n)
{
	while (n > 0) {
		uint64_t x = (pattern + offset / 8) * 0x9e3779b97f4a7c15ull;

		x ^= x >> 29;
		if (offset % 8 == 0 && n >= 8) {
			memcpy(p, &x, 8); /* little-endian machines only, as the products */
			offset += 8;
			p += 8;
			n -= 8;
			continue;
		}
		*p++ = (uint8_t)(x >> (8 * (offset++ % 8)));
		n--;
	}
}

void app_init(struct app *a, struct sim *s, unsigned host, uint64_t pattern, uint64_t peer_pattern)
{
	*a = (struct app){.sim = s,
		.host = host,
		.pattern = pattern,
		.peer_pattern = peer_pattern,
		.rand = {s->config.seed ^ pattern}};
}

static const struct rp_transport_ops *app_ops(const struct app *a)
{
	return a->conn->transport->ops;
}

void app_close(struct app *a)
{
	if (a->close_called || a->closed)
		return;
	a->close_called = true;
	app_ops(a)->close(a->conn, a->sim->now_ns);
}

static struct rte_mbuf *app_chain(struct app *a, const uint8_t *data, uint64_t n)
{
	struct rte_mempool *pool = a->sim->host[a->host].payload_pool;
	uint32_t piece = a->pieces ? app_ops(a)->piece(a->conn) : (uint32_t)n;
	struct rte_mbuf *chain = NULL;

	for (uint64_t at = 0; at < n; at += piece) {
		struct rte_mbuf *m = rp_mbuf_from(pool, data + at, RP_MIN(piece, n - at));

		if (!m) {
			rte_pktmbuf_free(chain);
			return NULL;
		}
		rp_mbuf_append(&chain, m);
	}
	return chain;
}

void app_pump(struct app *a)
{
	uint8_t data[16384];

	while (a->sent < a->to_send && a->conn && !a->closed) {
		uint64_t n = a->chunk ? a->chunk : 1 + rp_rand_below(&a->rand, sizeof(data));
		struct rte_mbuf *m;
		int rc;

		n = RP_MIN(n, a->to_send - a->sent);
		app_fill(a->pattern, a->sent, data, n);
		m = app_chain(a, data, n);
		if (!m)
			return;
		rc = app_ops(a)->send(a->conn, m, a->sim->now_ns);
		if (rc) {
			SIM_CHECK(a->sim, rc == -EAGAIN || rc == -EPIPE);
			rte_pktmbuf_free(m);
			return;
		}
		a->sent += n;
	}
	if (a->sent == a->to_send && a->close == APP_CLOSE_WHEN_SENT && a->conn)
		app_close(a);
}

void app_consume(struct app *a)
{
	uint32_t n = a->held;

	a->held = 0;
	if (n > 0)
		app_ops(a)->consume(a->conn, n, a->sim->now_ns);
}

static void app_on_open(void *ctx, struct rp_conn *c, uint64_t now_ns)
{
	struct app *a = ctx;

	SIM_CHECK(a->sim, !a->opened && !a->closed && c == a->conn);
	a->opened = true;
	if (a->on_open)
		a->on_open(a);
	app_pump(a);
}

static void app_on_data(void *ctx, struct rp_conn *c, struct rte_mbuf *chain, uint64_t now_ns)
{
	struct app *a = ctx;
	uint32_t total = 0, segs = 0;

	SIM_CHECK(a->sim, a->opened && !a->peer_fin && !a->closed);
	for (struct rte_mbuf *m = chain; m; m = m->next) {
		static uint8_t want[1 << 16];

		SIM_CHECK(a->sim, m->data_len > 0);
		app_fill(a->peer_pattern, a->received + total, want, m->data_len);
		if (memcmp(rte_pktmbuf_mtod(m, const uint8_t *), want, m->data_len) != 0)
			sim_fail(a->sim, "a byte from %llu on is wrong",
				(unsigned long long)(a->received + total));
		total += m->data_len;
		segs++;
	}
	SIM_CHECK(a->sim, total == chain->pkt_len && segs == chain->nb_segs);
	a->received += total;
	a->held += total;
	a->datas++;
	if (a->echo) {
		a->to_send += total;
		a->sent += total;
		SIM_CHECK(a->sim, app_ops(a)->send(c, chain, now_ns) == 0);
	} else {
		rte_pktmbuf_free(chain);
	}
	if (!a->hold)
		app_consume(a);
	if (a->on_data)
		a->on_data(a);
}

static void app_on_writable(void *ctx, struct rp_conn *c, uint64_t now_ns)
{
	struct app *a = ctx;

	a->writables++;
	SIM_CHECK(a->sim, app_ops(a)->send_space(c) > 0);
	app_pump(a);
}

static void app_on_peer_fin(void *ctx, struct rp_conn *c, uint64_t now_ns)
{
	struct app *a = ctx;

	SIM_CHECK(a->sim, a->opened && !a->peer_fin && !a->closed);
	a->peer_fin = true;
	if (a->close == APP_CLOSE_ON_FIN)
		app_close(a);
}

static void app_on_close(void *ctx, struct rp_conn *c, enum rp_close_reason why, uint64_t now_ns)
{
	struct app *a = ctx;

	SIM_CHECK(a->sim, !a->closed);
	a->closed = true;
	a->closes++;
	a->reason = why;
	a->conn = NULL;
}

static const struct rp_conn_events app_events = {
	.on_open = app_on_open,
	.on_data = app_on_data,
	.on_writable = app_on_writable,
	.on_peer_fin = app_on_peer_fin,
	.on_close = app_on_close,
};

static int app_on_accept(void *ctx, struct rp_conn *c, const struct rp_endpoint *peer,
	const struct rp_conn_events **events, void **conn_ctx, uint64_t now_ns)
{
	struct app *a = ctx;

	if (a->conn || a->closed)
		return -EBUSY;
	SIM_CHECK(a->sim,
		peer->family == sim_family() && peer->addr[0] == sim_endpoint(0, 0).addr[0]);
	a->conn = c;
	a->opened = true;
	*events = &app_events;
	*conn_ctx = a;
	if (a->on_open)
		a->on_open(a);
	app_pump(a);
	return 0;
}

int app_listen(struct app *a, uint16_t port, const struct rp_conn_options *options)
{
	struct rp_transport *t = rp_tcp_transport(a->sim->host[a->host].stack);

	return t->ops->listen(t, port, options, app_on_accept, a);
}

int app_dial(struct app *a, uint16_t port, const struct rp_conn_options *options)
{
	struct rp_transport *t = rp_tcp_transport(a->sim->host[a->host].stack);
	struct rp_endpoint peer = sim_endpoint(1 - a->host, port);

	a->conn = t->ops->dial(t, &peer, options, &app_events, a, a->sim->now_ns);
	return a->conn ? 0 : -errno;
}
