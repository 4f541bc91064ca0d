/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ringperf: messages between two processes over our TCP on a port, over a kernel socket, or as bare
 * frames on a port. The same messages, the same code at both ends, so that the figures compare.
 */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include <rte_launch.h>
#include <rte_lcore.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>

#include <base/log.h>
#include <base/rand.h>

#include "line.h"
#include "report.h"

#define STATUS_FAILED 1
#define STATUS_USAGE 2
#define STATUS_NO_PORT 15

#define MESSAGE_MBUFS 8192u
#define HEADER_MBUFS 16384u
#define CONTROL_MBUFS 4096u
#define KTCP_MBUFS 8192u
#define DATA_ROOM 2048
#define HEADER_ROOM 192
#define EAL_OWN_MIB 32

/** Between two looks of the control thread at port, clock and lcore. */
#define WATCH_NS (5 * RP_NS_PER_MS)
#define SUPERVISE_NS (100 * RP_NS_PER_MS)
/** A client gives up when its runs take so much longer than they should, each, and in all. */
#define RUN_SLACK_NS (1 * RP_NS_PER_S)
#define SLACK_NS (5 * RP_NS_PER_S)

static atomic_bool told_to_stop;

struct perf {
	struct perf_options options;
	struct perf_worker worker;
	struct rp_eal_info eal;
	struct rp_port_config port_config;
	struct rp_port_info port_info;
	struct rte_mempool *header_pool, *control_pool, *ktcp_pool;
	char error[RP_PORT_ERROR_SIZE];
};

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * RP_NS_PER_S + (uint64_t)ts.tv_nsec;
}

static void on_signal(int number)
{
	atomic_store(&told_to_stop, true);
}

static void on_log(enum rp_log_subject subject, enum rp_log_level level, const char *text)
{
	fprintf(stderr, "ringperf: %s\n", text);
}

static bool has_port(const struct perf *p)
{
	return p->options.transport != PERF_KTCP;
}

static int start_eal(struct perf *p)
{
	struct rp_eal_config c;
	uint64_t bytes = rp_pool_bytes(MESSAGE_MBUFS, DATA_ROOM, 0);
	char prefix[64];

	rp_eal_config_init(&c);
	snprintf(prefix, sizeof(prefix), "ringperf-%d", (int)getpid());
	c.program = "ringperf";
	c.file_prefix = prefix;
	c.hugepages = p->options.hugepages;
	c.shards = 1;
	c.shard_cpu[0] = p->options.cpu;
	if (has_port(p)) {
		bytes += rp_port_memory_bytes(&p->port_config);
		bytes += rp_pool_bytes(HEADER_MBUFS, HEADER_ROOM, 0) +
			 rp_pool_bytes(CONTROL_MBUFS, DATA_ROOM, 0);
		c.pci = rp_port_needs_pci(p->options.device);
	} else {
		bytes += rp_pool_bytes(KTCP_MBUFS, DATA_ROOM, 0);
	}
	c.memory_mib = (uint32_t)(bytes >> 20) + EAL_OWN_MIB;
	return rp_eal_start(&c, &p->eal, p->error, sizeof(p->error));
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

static struct rte_mempool *make_pool(struct perf *p, const char *name, uint32_t n, uint16_t room)
{
	return rp_pool_create(name, n, room, 0, -1, p->error, sizeof(p->error));
}

static int make_pools(struct perf *p)
{
	struct rp_rand r = {.state = 1};

	p->worker.pool = make_pool(p, "messages", MESSAGE_MBUFS, DATA_ROOM);
	if (!p->worker.pool)
		return -ENOMEM;
	rte_mempool_obj_iter(p->worker.pool, fill_mbuf, &r);
	if (!has_port(p)) {
		p->ktcp_pool = make_pool(p, "received", KTCP_MBUFS, DATA_ROOM);
		return p->ktcp_pool ? 0 : -ENOMEM;
	}
	p->header_pool = make_pool(p, "headers", HEADER_MBUFS, HEADER_ROOM);
	p->control_pool = make_pool(p, "control", CONTROL_MBUFS, DATA_ROOM);
	return p->header_pool && p->control_pool ? 0 : -ENOMEM;
}

static int make_ktcp(struct perf *p)
{
	struct rp_ktcp_config c = {
		.listen = {.family = 4},
		.pool = p->ktcp_pool,
		.connections_max = 16,
	};

	memcpy(c.listen.addr, p->options.addr, sizeof(p->options.addr));
	p->worker.ktcp = rp_ktcp_create(&c);
	if (!p->worker.ktcp) {
		snprintf(p->error, sizeof(p->error), "kernel sockets: %s", strerror(errno));
		return -errno;
	}
	p->worker.transport = rp_ktcp_transport(p->worker.ktcp);
	return 0;
}

static int make_stack(struct perf *p)
{
	const struct perf_options *o = &p->options;
	const struct rp_port_info *i = &p->port_info;
	struct rp_tcp_config c = {
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
				.header_pool = p->header_pool,
				.control_pool = p->control_pool,
				.payload_pool = p->control_pool,
			},
		.connections_max = o->connections + 1024,
	};

	memcpy(c.net.iface.mac, i->mac, sizeof(i->mac));
	if (o->gateway[0])
		c.net.iface.gateway4 = rp_ip_from4(o->gateway);
	if (getrandom(c.secret, sizeof(c.secret), 0) != sizeof(c.secret) ||
		getrandom(&c.seed, sizeof(c.seed), 0) != sizeof(c.seed))
		return -EIO;
	c.net.seed = c.seed;
	p->worker.stack = rp_tcp_create(&c, now_ns());
	if (!p->worker.stack) {
		snprintf(p->error, sizeof(p->error), "the TCP stack: %s", strerror(errno));
		return -errno;
	}
	p->worker.transport = rp_tcp_transport(p->worker.stack);
	return 0;
}

static int make_transport(struct perf *p)
{
	if (!has_port(p))
		return make_ktcp(p);
	p->worker.port = rp_port_create(&p->port_config, p->error, sizeof(p->error));
	if (!p->worker.port)
		return -errno;
	p->worker.queue = rp_port_queue(p->worker.port, 0);
	rp_port_info(p->worker.port, &p->port_info);
	memcpy(p->worker.mac, p->port_info.mac, sizeof(p->worker.mac));
	return p->options.transport == PERF_TCP ? make_stack(p) : 0;
}

static void destroy(struct perf *p)
{
	rp_tcp_destroy(p->worker.stack);
	rp_ktcp_destroy(p->worker.ktcp);
	rp_port_destroy(p->worker.port);
	rte_mempool_free(p->worker.pool);
	rte_mempool_free(p->header_pool);
	rte_mempool_free(p->control_pool);
	rte_mempool_free(p->ktcp_pool);
	free(p->worker.results);
	rp_eal_stop();
}

/* The control thread's loop. False: it ended before `done` said so. */
static bool watch(struct perf *p, uint64_t deadline_ns, bool (*done)(const struct perf *))
{
	uint64_t supervised_ns = 0, published_ns = now_ns();

	while (!atomic_load(&told_to_stop)) {
		struct timespec ts = {.tv_nsec = WATCH_NS};
		uint64_t now = now_ns();

		if (done(p))
			return true;
		if (now >= deadline_ns)
			return false;
		if (p->worker.port && now - supervised_ns >= SUPERVISE_NS) {
			supervised_ns = now;
			rp_port_supervise(p->worker.port, now);
		}
		if (now - published_ns >= RP_NS_PER_S) {
			published_ns = now;
			rp_clock_publish(&p->worker.clock);
		}
		nanosleep(&ts, NULL);
	}
	return false;
}

static bool link_is_up(const struct perf *p)
{
	return !p->worker.port || rp_port_link_up(p->worker.port);
}

static bool has_ended(const struct perf *p)
{
	return atomic_load_explicit(&p->worker.ended, memory_order_acquire);
}

static uint64_t deadline(const struct perf *p)
{
	const struct perf_options *o = &p->options;

	if (o->server)
		return RP_NEVER;
	return now_ns() + o->connect_ns +
	       o->test_count * (o->run_ns + o->warmup_ns + RUN_SLACK_NS) + SLACK_NS;
}

static int report(struct perf *p)
{
	struct perf_setting s = {
		.options = &p->options,
		.port = p->worker.port ? &p->port_info : NULL,
		.eal = &p->eal,
		.worker = &p->worker,
	};
	bool good = true;

	while (s.done < p->options.test_count && p->worker.results[s.done].elapsed_ns > 0)
		good &= perf_result_good(&p->worker.results[s.done++]);
	if (p->options.json)
		perf_report_json(&s);
	else
		perf_report_text(&s);
	return good && s.done == p->options.test_count ? 0 : STATUS_FAILED;
}

/* Polls on the lcore until all is done. */
static int run(struct perf *p)
{
	struct perf_worker *w = &p->worker;
	unsigned lcore = rp_eal_shard_lcore(0);
	bool ended;

	rp_clock_init(&w->clock, 20 * RP_NS_PER_MS);
	if (p->options.server) {
		printf("ready\n");
		fflush(stdout);
	} else if (!watch(p, now_ns() + p->options.connect_ns, link_is_up)) {
		fprintf(stderr, "ringperf: nobody is at the other end of %s\n", p->options.device);
		return STATUS_FAILED;
	}
	rte_eal_remote_launch(
		p->options.transport == PERF_RAW ? perf_raw_loop : perf_stream_loop, w, lcore);
	ended = watch(p, deadline(p), has_ended);
	atomic_store(&w->stop, true);
	rte_eal_wait_lcore(lcore);
	if (w->why)
		fprintf(stderr, "ringperf: %s\n", w->why);
	if (p->options.server)
		return w->why ? STATUS_FAILED : 0;
	if (!ended)
		fprintf(stderr, "ringperf: the server does not answer\n");
	return report(p) == 0 && ended && !w->why ? 0 : STATUS_FAILED;
}

static int make(struct perf *p)
{
	const struct perf_options *o = &p->options;
	int rc;

	p->port_config = (struct rp_port_config){
		.device = o->device,
		.driver_config = o->driver_config,
		.queues = 1,
		.mtu = o->mtu,
		.checksum = o->checksum,
		.tso = o->tso,
	};
	rc = has_port(p) ? rp_port_check(&p->port_config, p->error, sizeof(p->error)) : 0;
	if (rc < 0)
		return rc;
	rc = start_eal(p);
	if (rc < 0)
		return rc;
	p->worker.options = o;
	if (!o->server) {
		p->worker.results = calloc(o->test_count, sizeof(*p->worker.results));
		if (!p->worker.results)
			return -ENOMEM;
	}
	rc = make_pools(p);
	return rc < 0 ? rc : make_transport(p);
}

static int measure_line(const uint32_t cpus[2])
{
	double ns = perf_line_pin(cpus[0]) == 0 ? perf_line_ns(cpus[1]) : 0;

	if (ns <= 0) {
		fprintf(stderr, "ringperf: CPUs %u and %u cannot be measured\n", cpus[0], cpus[1]);
		return STATUS_FAILED;
	}
	printf("%.1f\n", ns);
	return 0;
}

int main(int argc, char **argv)
{
	static struct perf p;
	struct sigaction action = {.sa_handler = on_signal};
	int status = perf_options_read(argc, argv, &p.options);

	if (status != 0)
		return status > 0 ? 0 : STATUS_USAGE;
	if (p.options.line)
		return measure_line(p.options.line_cpus);
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	rp_log_set_sink(on_log);
	rp_log_set_level(p.options.verbose ? RP_LOG_DEBUG : RP_LOG_CRIT);
	if (make(&p) < 0) {
		fprintf(stderr, "ringperf: %s\n", p.error);
		status = STATUS_NO_PORT;
	} else {
		status = run(&p);
	}
	destroy(&p);
	return status;
}
