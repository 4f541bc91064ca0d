/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include <rte_launch.h>
#include <rte_lcore.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>

#include <base/rand.h>
#include <port/eal.h>

#include "host.h"

#define MESSAGE_MBUFS 8192u
#define HEADER_MBUFS 16384u
#define CONTROL_MBUFS 4096u
#define KTCP_MBUFS 8192u
/** Of a mode with an engine: messages and acknowledges under way; frames. */
#define ENGINE_MBUFS 65535u
#define FRAME_MBUFS 65535u
#define FRAME_ROOM 640
#define DATA_ROOM 2048
#define HEADER_ROOM 192
#define EAL_OWN_MIB 32

/** Between two looks of the control thread at port, clock and lcore. */
#define WATCH_NS (5 * RP_NS_PER_MS)
#define SUPERVISE_NS (100 * RP_NS_PER_MS)

atomic_bool perf_told_to_stop;

uint64_t perf_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * RP_NS_PER_S + (uint64_t)ts.tv_nsec;
}

bool perf_host_has_port(const struct perf_host *h)
{
	return h->options->device_count > 0;
}

unsigned perf_host_lcore(void)
{
	return rp_eal_shard_lcore(0);
}

/* ---- creation ---- */

static uint64_t pool_bytes(const struct perf_host *h, bool engine)
{
	uint64_t bytes = rp_pool_bytes(engine ? ENGINE_MBUFS : MESSAGE_MBUFS, DATA_ROOM, 0);

	if (engine)
		bytes += rp_pool_bytes(FRAME_MBUFS, FRAME_ROOM, 0);
	if (!perf_host_has_port(h))
		return bytes + rp_pool_bytes(KTCP_MBUFS, DATA_ROOM, 0);
	return bytes + rp_pool_bytes(HEADER_MBUFS, HEADER_ROOM, 0) +
	       rp_pool_bytes(CONTROL_MBUFS, DATA_ROOM, 0);
}

static int start_eal(struct perf_host *h, bool engine)
{
	struct rp_eal_config c;
	uint64_t bytes = pool_bytes(h, engine);
	char prefix[64];

	rp_eal_config_init(&c);
	snprintf(prefix, sizeof(prefix), "ringperf-%d", (int)getpid());
	c.program = "ringperf";
	c.file_prefix = prefix;
	c.hugepages = h->options->hugepages;
	c.shards = 1;
	c.shard_cpu[0] = h->options->cpu;
	for (unsigned i = 0; i < h->options->device_count; i++) {
		bytes += rp_port_memory_bytes(&h->port_configs[i]);
		c.pci |= rp_port_needs_pci(h->options->devices[i]);
	}
	c.memory_mib = (uint32_t)(bytes >> 20) + EAL_OWN_MIB;
	return rp_eal_start(&c, &h->eal, h->error, sizeof(h->error));
}

/* Bytes to send: the sums should not be over zeros. */
static void fill_mbuf(struct rte_mempool *pool, void *arg, void *object, unsigned index)
{
	struct rte_mbuf *m = object;
	struct rp_rand *r = arg;
	uint8_t *p = m->buf_addr;

	for (unsigned i = 0; i + 8 <= m->buf_len; i += 8) {
		uint64_t v = rp_rand_u64(r);

		memcpy(p + i, &v, sizeof(v));
	}
}

static struct rte_mempool *make_pool(
	struct perf_host *h, const char *name, uint32_t n, uint16_t room)
{
	return rp_pool_create(name, n, room, 0, -1, h->error, sizeof(h->error));
}

static int make_pools(struct perf_host *h, bool engine)
{
	struct rp_rand r = {.state = 1};
	struct perf_worker *w = &h->worker;

	w->pool = make_pool(h, "messages", engine ? ENGINE_MBUFS : MESSAGE_MBUFS, DATA_ROOM);
	if (!w->pool)
		return -ENOMEM;
	rte_mempool_obj_iter(w->pool, fill_mbuf, &r);
	if (engine) {
		w->frame_pool = make_pool(h, "frames", FRAME_MBUFS, FRAME_ROOM);
		if (!w->frame_pool)
			return -ENOMEM;
	}
	if (!perf_host_has_port(h)) {
		h->ktcp_pool = make_pool(h, "received", KTCP_MBUFS, DATA_ROOM);
		return h->ktcp_pool ? 0 : -ENOMEM;
	}
	h->header_pool = make_pool(h, "headers", HEADER_MBUFS, HEADER_ROOM);
	h->control_pool = make_pool(h, "control", CONTROL_MBUFS, DATA_ROOM);
	return h->header_pool && h->control_pool ? 0 : -ENOMEM;
}

static int make_ktcp(struct perf_host *h)
{
	struct rp_ktcp_config c = {
		.listen = {.family = 4},
		.pool = h->ktcp_pool,
		.connections_max = RP_MAX(h->options->connections + 16, 1024u),
	};

	memcpy(c.listen.addr, h->options->addr, sizeof(h->options->addr));
	h->worker.ktcp = rp_ktcp_create(&c);
	if (!h->worker.ktcp) {
		snprintf(h->error, sizeof(h->error), "kernel sockets: %s", strerror(errno));
		return -errno;
	}
	h->worker.transport = rp_ktcp_transport(h->worker.ktcp);
	return 0;
}

static int fill_stack(struct perf_host *h, struct rp_tcp_config *c)
{
	const struct perf_options *o = h->options;
	const struct rp_port_info *i = &h->port_infos[0];

	*c = (struct rp_tcp_config){
		.net =
			{
				.iface =
					{
						.mtu = i->mtu,
						.addresses = {{.ip = rp_ip_from4(o->addr),
							.prefix_length = o->prefix_length}},
						.rx_csum = true,
						.tx_csum_ip = i->flags & RP_PORT_TX_IPV4_CKSUM,
						.tx_csum_tcp = i->flags & RP_PORT_TX_TCP_CKSUM,
						.tx_tso = i->flags & RP_PORT_TX_TSO,
					},
				.header_pool = h->header_pool,
				.control_pool = h->control_pool,
				.payload_pool = h->control_pool,
			},
		.connections_max = o->connections + 1024,
	};
	memcpy(c->net.iface.mac, i->mac, sizeof(i->mac));
	if (o->gateway[0])
		c->net.iface.gateway4 = rp_ip_from4(o->gateway);
	if (getrandom(c->secret, sizeof(c->secret), 0) != sizeof(c->secret) ||
		getrandom(&c->seed, sizeof(c->seed), 0) != sizeof(c->seed))
		return -EIO;
	c->net.seed = c->seed;
	return 0;
}

static int make_stack(struct perf_host *h)
{
	struct perf_worker *w = &h->worker;

	if (fill_stack(h, &w->tcp_config) != 0)
		return -EIO;
	w->stack = rp_tcp_create(&w->tcp_config, perf_now_ns());
	if (!w->stack) {
		snprintf(h->error, sizeof(h->error), "the TCP stack: %s", strerror(errno));
		return -errno;
	}
	w->transport = rp_tcp_transport(w->stack);
	return 0;
}

static int make_ports(struct perf_host *h)
{
	struct perf_worker *w = &h->worker;

	for (unsigned i = 0; i < h->options->device_count; i++) {
		w->ports[i] = rp_port_create(&h->port_configs[i], h->error, sizeof(h->error));
		if (!w->ports[i])
			return -errno;
		w->queues[i] = rp_port_queue(w->ports[i], 0);
		rp_port_info(w->ports[i], &h->port_infos[i]);
		w->port_count = i + 1;
	}
	w->port = w->ports[0];
	w->queue = w->queues[0];
	memcpy(w->mac, h->port_infos[0].mac, sizeof(w->mac));
	return 0;
}

static int make_transport(struct perf_host *h)
{
	int rc;

	if (!perf_host_has_port(h))
		return make_ktcp(h);
	rc = make_ports(h);
	return rc == 0 && h->options->has_addr ? make_stack(h) : rc;
}

static int check_ports(struct perf_host *h)
{
	const struct perf_options *o = h->options;
	int rc = 0;

	for (unsigned i = 0; i < o->device_count && rc == 0; i++) {
		h->port_configs[i] = (struct rp_port_config){
			.device = o->devices[i],
			.driver_config = o->driver_config,
			.queues = 1,
			.mtu = o->mtu,
			.checksum = o->checksum,
			.tso = o->tso,
		};
		rc = rp_port_check(&h->port_configs[i], h->error, sizeof(h->error));
	}
	return rc;
}

int perf_host_make(struct perf_host *h, const struct perf_options *options, bool engine)
{
	int rc;

	h->options = options;
	h->worker.options = options;
	rc = check_ports(h);
	if (rc == 0)
		rc = start_eal(h, engine);
	if (rc == 0)
		rc = make_pools(h, engine);
	if (rc == 0)
		rc = make_transport(h);
	if (rc == 0)
		rp_clock_init(&h->worker.clock, 20 * RP_NS_PER_MS);
	h->made = rc == 0;
	return rc;
}

void perf_host_destroy(struct perf_host *h)
{
	struct perf_worker *w = &h->worker;

	rp_tcp_destroy(w->stack);
	rp_ktcp_destroy(w->ktcp);
	for (unsigned i = 0; i < w->port_count; i++)
		rp_port_destroy(w->ports[i]);
	rte_mempool_free(w->pool);
	rte_mempool_free(w->frame_pool);
	rte_mempool_free(h->header_pool);
	rte_mempool_free(h->control_pool);
	rte_mempool_free(h->ktcp_pool);
	free(w->results);
	rp_eal_stop();
}

/* ---- the control thread ---- */

bool perf_host_link_is_up(const struct perf_host *h)
{
	for (unsigned i = 0; i < h->worker.port_count; i++)
		if (!rp_port_link_up(h->worker.ports[i]))
			return false;
	return true;
}

void perf_host_look(struct perf_host *h)
{
	static uint64_t supervised_ns, published_ns;
	uint64_t now = perf_now_ns();

	if (now - supervised_ns >= SUPERVISE_NS) {
		supervised_ns = now;
		for (unsigned i = 0; i < h->worker.port_count; i++)
			rp_port_supervise(h->worker.ports[i], now);
	}
	if (h->made && now - published_ns >= RP_NS_PER_S) {
		if (published_ns > 0)
			rp_clock_publish(&h->worker.clock);
		published_ns = now;
	}
}

bool perf_host_watch(struct perf_host *h, uint64_t deadline_ns, bool (*done)(void *ctx), void *ctx)
{
	while (!atomic_load(&perf_told_to_stop)) {
		struct timespec ts = {.tv_nsec = WATCH_NS};

		if (done(ctx))
			return true;
		if (perf_now_ns() >= deadline_ns)
			return false;
		perf_host_look(h);
		nanosleep(&ts, NULL);
	}
	return false;
}

/* ---- the lcore ---- */

static void run_begin(struct perf_run *r, uint64_t now_ns)
{
	r->begun_ns = now_ns;
	if (r->mode->begin(r, now_ns) != 0) {
		if (!r->why)
			r->why = "the mode cannot begin";
		r->finished = true;
	}
}

static void run_end(struct perf_run *r, uint64_t now_ns)
{
	r->ended_ns = now_ns;
	r->mode->end(r, now_ns);
	atomic_store_explicit(&r->ended, true, memory_order_release);
}

/* Frames are the mode's that wants them, else the stack's, which answers ARP also between runs. */
static bool receive(struct perf_worker *w, struct perf_run *r, uint64_t now_ns)
{
	bool mine = r && r->mode->frames && !r->finished, worked = false;

	for (unsigned p = 0; p < w->port_count; p++) {
		struct rte_mbuf *burst[RP_PORT_BURST_MAX];
		uint16_t max = r ? (uint16_t)RP_MIN(w->options->burst, RP_PORT_BURST_MAX) : 32;
		uint16_t n = rp_port_rx(w->queues[p], burst, max, now_ns);

		if (n == 0)
			continue;
		worked = true;
		if (mine)
			r->mode->frames(r, p, burst, n, now_ns);
		else if (w->stack && p == 0)
			rp_tcp_rx(w->stack, burst, n, now_ns);
		else
			rte_pktmbuf_free_bulk(burst, n);
	}
	if (w->ktcp)
		worked |= rp_ktcp_poll(w->ktcp, now_ns) > 0;
	return worked;
}

static bool transmit(struct perf_worker *w, const struct perf_run *r, uint64_t now_ns)
{
	struct rte_mbuf *burst[RP_PORT_BURST_MAX];
	bool worked = false;
	unsigned n;

	/* A mode with an engine has a stack of its own. */
	if (w->stack && !(r && r->mode->needs == PERF_NEEDS_ENGINE)) {
		worked = rp_tcp_poll(w->stack, now_ns) > 0;
		do {
			unsigned room = RP_MIN(
				(unsigned)rp_port_tx_room(w->queue), (unsigned)RP_PORT_BURST_MAX);

			n = rp_tcp_tx(w->stack, burst, room);
			for (unsigned i = 0; i < n; i++)
				rp_port_tx(w->queue, burst[i], now_ns);
			worked |= n > 0;
		} while (n == RP_PORT_BURST_MAX);
	}
	for (unsigned p = 0; p < w->port_count; p++)
		rp_port_tx_flush(w->queues[p], now_ns);
	return worked;
}

static void rest(struct perf_worker *w, struct perf_run *r, uint64_t now_ns)
{
	uint64_t next_ns = now_ns + 20 * RP_NS_PER_US;

	if (r && r->pace.begin_ns > 0)
		next_ns = RP_MIN(next_ns, perf_pace_next(&r->pace, now_ns));
	if (!w->ktcp || !rp_ktcp_pending(w->ktcp))
		perf_turn_sleep(w, now_ns, next_ns);
}

static int host_loop(void *arg)
{
	struct perf_host *h = arg;
	struct perf_worker *w = &h->worker;
	struct perf_run *r = NULL;

	prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
	w->slot = rp_park_join();
	rp_clock_reader_init(&w->reader, &w->clock);
	while (!atomic_load_explicit(&w->stop, memory_order_relaxed) || r) {
		uint64_t now_ns = perf_turn_begin(w);
		bool worked;

		if (!r) {
			r = atomic_exchange_explicit(&h->next, NULL, memory_order_acquire);
			if (r)
				run_begin(r, now_ns);
		}
		worked = receive(w, r, now_ns);
		if (r && !r->finished)
			worked |= r->mode->turn(r, now_ns);
		worked |= transmit(w, r, now_ns);
		if (r && (r->finished || atomic_load_explicit(&r->stop, memory_order_relaxed))) {
			run_end(r, now_ns);
			r = NULL;
		} else if (perf_turn_end(w, worked, now_ns)) {
			rest(w, r, now_ns);
		}
	}
	rp_park_leave(w->slot);
	return 0;
}

/* Of a mode with sockets alone: no EAL, no lcore. */
static void *sockets_loop(void *arg)
{
	struct perf_run *r = arg;
	uint64_t now_ns = perf_now_ns();

	run_begin(r, now_ns);
	while (!r->finished && !atomic_load_explicit(&r->stop, memory_order_relaxed))
		r->mode->turn(r, perf_now_ns());
	run_end(r, perf_now_ns());
	return NULL;
}

void perf_host_launch(struct perf_host *h)
{
	rte_eal_remote_launch(host_loop, h, perf_host_lcore());
	h->launched = true;
}

int perf_host_run(struct perf_host *h, struct perf_run *run)
{
	pthread_t thread;

	run->worker = &h->worker;
	run->options = h->options;
	if (run->mode->needs != PERF_NEEDS_SOCKETS) {
		if (!h->launched)
			perf_host_launch(h);
		atomic_store_explicit(&h->next, run, memory_order_release);
		return 0;
	}
	if (pthread_create(&thread, NULL, sockets_loop, run) != 0)
		return -errno;
	return -pthread_detach(thread);
}

void perf_host_end(struct perf_host *h)
{
	atomic_store(&h->worker.stop, true);
	if (h->launched)
		rte_eal_wait_lcore(perf_host_lcore());
	h->launched = false;
}
