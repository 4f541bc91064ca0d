/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include <rte_launch.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>

#include <base/assert.h>
#include <base/bytes.h>
#include <base/log.h>
#include <ctl/ctl.h>
#include <node/node.h>
#include <port/eal.h>
#include <port/tap.h>
#include <shard/shard.h>
#include <tls/tls.h>

#include "node_priv.h"

/** Data room of a message's buffer, and of a header's: the largest header, or a reference's
 * nothing. */
#define QUEUE_ROOM 2048
#define FRAME_ROOM 640
#define FRAME_MBUFS 32768
#define CONTROL_MBUFS 2047
/** Blocks of a capture: what waits for a slow reader of it, at most. */
#define TAP_MBUFS 128
/** EAL's own, rings and tables. */
#define RESERVED_BYTES (48ull << 20)
#define QUEUE_MBUFS_MIN 4096
/** Of the queue pool, what messages leave: to operations and records, and to parts of messages that
 * come in over links. */
#define CONTROL_PART 16
#define PARTIAL_PART 8
/** Of a buffer: the last one of a frame is not full. */
#define PARTIAL_BYTES (QUEUE_ROOM * 3 / 4)

struct rp_node {
	const struct rp_conf *conf; /**< of the start */
	struct rp_node_process process;
	struct rp_conf_plan plan;
	uint8_t uuid[RP_UUID_BYTES], cluster_uuid[RP_UUID_BYTES];
	uint64_t id, boot;
	uint8_t *secret, *secret_previous;
	size_t secret_length, secret_previous_length;
	/* Of links, one of each a shard. */
	struct rp_ctl_link_tls tls;
	bool eal_started, launched;
	struct rte_mempool *queue_pool, *frame_pool, *control_pool, *tap_pool;
	struct rp_port *ports[RP_ENGINE_PORTS_MAX];
	struct rp_net_neighbour neighbours[RP_ENGINE_PORTS_MAX][64];
	struct rp_place *place[RP_ENGINE_PORTS_MAX];
	uint32_t port_count, shards, link_shard;
	struct rp_clock clock;
	struct rp_xcore *xcore;
	struct rp_ktcp *ktcp;
	struct rp_shard *shard[RP_SHARDS_MAX];
	struct rp_ctl *ctl;
	struct rp_node_record record;
};

/** What a failing step leaves behind. */
struct failure {
	int *exit_code;
	char *error;
	size_t error_size;
};

static int fail(const struct failure *f, int exit_code, const char *what)
{
	if (what)
		snprintf(f->error, f->error_size, "%s", what);
	*f->exit_code = exit_code;
	return -1;
}

static void random_bytes(void *out, size_t length)
{
	RP_ASSERT(getrandom(out, length, 0) == (ssize_t)length);
}

/* ---- identity ---- */

static int read_secret(const char *path, uint8_t **secret, size_t *length, const struct failure *f)
{
	uint8_t buffer[RP_CONF_SECRET_BYTES_MAX];
	int n;

	if (path[0] == '\0')
		return 0;
	n = rp_conf_secret_read(path, buffer, f->error, f->error_size);
	if (n < 0)
		return fail(f, RP_EXIT_START, NULL);
	*secret = malloc((size_t)n);
	RP_ASSERT(*secret != NULL);
	memcpy(*secret, buffer, (size_t)n);
	explicit_bzero(buffer, sizeof(buffer));
	*length = (size_t)n;
	return 0;
}

static void forget_secrets(struct rp_node *n)
{
	if (n->secret)
		explicit_bzero(n->secret, n->secret_length);
	if (n->secret_previous)
		explicit_bzero(n->secret_previous, n->secret_previous_length);
	free(n->secret);
	free(n->secret_previous);
	n->secret = n->secret_previous = NULL;
}

static int make_identity(struct rp_node *n, const struct failure *f)
{
	uint8_t random[RP_UUID_BYTES];

	random_bytes(random, sizeof(random));
	/* lib/conf says what an empty one means. */
	rp_conf_uuid_or_random(n->conf->node, random, n->uuid);
	n->id = rp_conf_uuid_id(n->uuid);
	random_bytes(random, sizeof(random));
	if (rp_conf_uuid_or_random(n->conf->cluster, random, n->cluster_uuid))
		RP_LOG(RP_LOG_NODE, RP_LOG_ERROR,
			"cluster: no uuid is configured; this node peers with nobody");
	random_bytes(&n->boot, sizeof(n->boot));
	n->boot |= 1;
	if (n->id == 0)
		return fail(f, RP_EXIT_START,
			"node: the halves of this uuid are equal, which gives node id 0; choose "
			"another uuid");
	if (read_secret(n->conf->links.secret_file, &n->secret, &n->secret_length, f) != 0 ||
		read_secret(n->conf->links.previous_secret_file, &n->secret_previous,
			&n->secret_previous_length, f) != 0)
		return -1;
	return 0;
}

static int node_tls_create(struct rp_node *n, const struct failure *f)
{
	int rc = rp_ctl_link_tls_load(n->conf, n->shards, &n->tls, f->error, f->error_size);

	return rc == 0 ? 0 : fail(f, RP_EXIT_START, NULL);
}

/* ---- sizes ---- */

/* Shards with links, which have stacks on the ports: in their order they poll the queues. */
static uint64_t stack_shards(const struct rp_conf *conf, uint32_t shards)
{
	uint32_t k = conf->links.per_peer, all = UINT32_MAX >> (32 - shards);
	uint64_t mask = 1ull << (shards > 1 && conf->links.skip_shard_zero ? 1 : 0);
	bool hardware = false;

	for (unsigned i = 0; i < conf->ports_count; i++)
		hardware |= rp_port_needs_pci(conf->ports[i].device);
	/* A device without queues to spread over costs a ring a packet, and one link gains nothing.
	 */
	if (conf->ports_count == 0 || (k == 1 && !hardware))
		return mask;
	for (uint32_t j = 0; j < k; j++)
		for (uint32_t slot = 0; slot < shards; slot++)
			mask |= 1ull << rp_link_place(
					slot, j, k, shards, all, conf->links.skip_shard_zero);
	return mask;
}

static enum rp_port_choice port_choice(uint32_t tri)
{
	return tri == RP_CONF_TRI_ON	? RP_PORT_CHOICE_ON
	       : tri == RP_CONF_TRI_OFF ? RP_PORT_CHOICE_OFF
					: RP_PORT_CHOICE_AUTO;
}

static struct rp_port_config port_config(
	const struct rp_conf *conf, const struct rp_conf_port *p, uint32_t shards)
{
	uint32_t stacks = (uint32_t)__builtin_popcountll(stack_shards(conf, shards));
	struct rp_port_config c = {
		.device = p->device,
		.driver_config = p->driver_config,
		.queues = (uint16_t)RP_MIN(p->rings, stacks),
		.spread = (uint16_t)stacks,
		.rss_key = rp_place_key_default,
		.rss = port_choice(p->rss),
		.tso = port_choice(p->tso),
		.mtu = (uint16_t)p->mtu,
		.checksum = p->checksum == RP_CONF_OFFLOAD_HW	? RP_PORT_CHECKSUM_HW
			    : p->checksum == RP_CONF_OFFLOAD_SW ? RP_PORT_CHECKSUM_SW
								: RP_PORT_CHECKSUM_AUTO,
	};
	char error[256];

	if (p->impair[0] != '\0')
		rp_impair_parse(p->impair, &c.impair_rx, error, sizeof(error));
	random_bytes(&c.impair_seed, sizeof(c.impair_seed));
	return c;
}

void rp_node_sizes(
	const struct rp_conf *conf, const struct rp_conf_plan *plan, struct rp_node_sizes *s)
{
	uint64_t total = (uint64_t)plan->memory_mib << 20, used = RESERVED_BYTES, one;

	*s = (struct rp_node_sizes){.total_bytes = total, .frame_mbufs = FRAME_MBUFS};
	for (unsigned i = 0; i < conf->ports_count; i++) {
		struct rp_port_config c = port_config(conf, &conf->ports[i], plan->shards_count);

		s->ports_bytes += rp_port_memory_bytes(&c);
	}
	if (total < (192ull << 20))
		s->frame_mbufs = FRAME_MBUFS / 4;
	if (conf->ports_count > 0) {
		s->tap_blocks = TAP_MBUFS;
		used += rp_pool_bytes(TAP_MBUFS, RP_TAP_BLOCK_ROOM, 0);
	}
	used += s->ports_bytes + rp_pool_bytes(s->frame_mbufs, FRAME_ROOM, 0);
	used += rp_pool_bytes(CONTROL_MBUFS, FRAME_ROOM, 0);
	one = (rp_pool_bytes(20000, QUEUE_ROOM, 0) - rp_pool_bytes(10000, QUEUE_ROOM, 0)) / 10000;
	used += rp_pool_bytes(10000, QUEUE_ROOM, 0) - 10000 * one;
	/* The last tenth is the allocator's: what is cut into pieces is never used up whole. */
	s->queue_mbufs = total > used ? (uint32_t)((total - used) / one * 9 / 10) : 0;
}

/* ---- environment ---- */

/* Signals are the event loop's: EAL's threads, which start now, inherit the mask. */
static void block_signals(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
}

static int start_eal(struct rp_node *n, bool shards_float, const struct failure *f)
{
	struct rp_eal_config c;
	struct rp_eal_info info;
	char prefix[64], uuid[37], args[512] = "";

	block_signals();
	rp_conf_uuid_format(n->uuid, uuid);
	snprintf(prefix, sizeof(prefix), "ringpost-%s", uuid);
	rp_eal_config_init(&c);
	c.program = "ringpostd";
	c.file_prefix = prefix;
	c.hugepages = n->plan.hugepages_chosen ? RP_EAL_HUGEPAGES_AUTO
		      : n->plan.hugepages      ? RP_EAL_HUGEPAGES_ON
					       : RP_EAL_HUGEPAGES_OFF;
	c.memory_mib = n->plan.memory_mib;
	c.shards = n->shards;
	for (uint32_t i = 0; i < n->shards && !shards_float; i++)
		c.shard_cpu[i] = n->plan.shard_cpus[i];
	if (n->plan.control_cpu >= 0)
		c.main_cpu = (uint32_t)n->plan.control_cpu;
	for (unsigned i = 0; i < n->conf->ports_count; i++)
		c.pci = c.pci || rp_port_needs_pci(n->conf->ports[i].device);
	for (unsigned i = 0; i < n->conf->dpdk.extra_args.count; i++)
		snprintf(args + strlen(args), sizeof(args) - strlen(args), " %s",
			n->conf->dpdk.extra_args.items[i]);
	c.extra_args = args[0] ? args : NULL;
	c.telemetry = n->conf->dpdk.telemetry;
	if (rp_eal_start(&c, &info, f->error, f->error_size) != 0)
		return fail(f, RP_EXIT_HOST, NULL);
	n->eal_started = true;
	RP_LOG(RP_LOG_NODE, RP_LOG_DEBUG, "EAL: %s", info.arguments);
	return 0;
}

static int create_pools(struct rp_node *n, const struct failure *f)
{
	struct rp_node_sizes s;

	rp_node_sizes(n->conf, &n->plan, &s);
	if (s.queue_mbufs < QUEUE_MBUFS_MIN) {
		snprintf(f->error, f->error_size,
			"dpdk.memory_mib: %u MiB leave %u buffers for messages; at least %u are "
			"wanted, raise it",
			n->plan.memory_mib, s.queue_mbufs, QUEUE_MBUFS_MIN);
		return fail(f, RP_EXIT_HOST, NULL);
	}
	n->queue_pool =
		rp_pool_create("queue", s.queue_mbufs, QUEUE_ROOM, 0, -1, f->error, f->error_size);
	n->frame_pool =
		rp_pool_create("frame", s.frame_mbufs, FRAME_ROOM, 0, -1, f->error, f->error_size);
	n->control_pool = rp_pool_create(
		"control", CONTROL_MBUFS, FRAME_ROOM, 0, -1, f->error, f->error_size);
	if (!n->queue_pool || !n->frame_pool || !n->control_pool)
		return fail(f, RP_EXIT_HOST, NULL);
	if (s.tap_blocks == 0)
		return 0;
	n->tap_pool = rp_pool_create(
		"tap", s.tap_blocks, RP_TAP_BLOCK_ROOM, 0, -1, f->error, f->error_size);
	if (!n->tap_pool)
		return fail(f, RP_EXIT_HOST, NULL);
	return 0;
}

/* Which shard a flow belongs to: as the device has it, or where it spreads nothing, as we like it.
 */
static struct rp_place *place_of(const struct rp_node *n, const struct rp_port *port)
{
	struct rp_place *p = malloc(sizeof(*p));
	struct rp_port_info info;

	RP_ASSERT(p != NULL);
	rp_port_info(port, &info);
	RP_ASSERT(rp_place_init_spread(p, rp_place_key_default,
			  info.rss_table_size ? info.rss_table_size : RP_PLACE_TABLE_DEFAULT,
			  stack_shards(n->conf, n->shards)) == 0);
	return p;
}

static int create_ports(struct rp_node *n, const struct failure *f)
{
	for (unsigned i = 0; i < n->conf->ports_count; i++) {
		struct rp_port_config c = port_config(n->conf, &n->conf->ports[i], n->shards);
		size_t used = (size_t)snprintf(f->error, f->error_size, "ports[%u]: ", i);

		n->ports[i] = rp_port_create(&c, f->error + used, f->error_size - used);
		if (!n->ports[i])
			return fail(f, RP_EXIT_PORT, NULL);
		n->port_count++;
		n->place[i] = place_of(n, n->ports[i]);
	}
	return 0;
}

/* ---- links and shards ---- */

/* Kernel links listen where the first client listener does: the address that peers can reach. */
static int create_ktcp(struct rp_node *n, const struct failure *f)
{
	struct rp_ktcp_config c = {
		.pool = n->queue_pool,
		.connections_max = n->conf->limits.peers + n->conf->limits.handshakes,
	};
	struct rp_conf_endpoint e = {.host = "127.0.0.1"};
	char text[280];

	if (n->conf->listen_client_urls.count > 0)
		rp_conf_endpoint_parse(n->conf->listen_client_urls.items[0], 2379, &e);
	if (e.is_unix || !strcmp(e.host, "localhost") || e.host[0] == '\0')
		snprintf(e.host, sizeof(e.host), "127.0.0.1");
	e.port = n->conf->links.listen;
	rp_conf_endpoint_format(&e, text, sizeof(text));
	if (rp_endpoint_parse(&c.listen, text) != 0) {
		snprintf(f->error, f->error_size,
			"listen_client_urls: links over kernel sockets want an address in the "
			"first entry, not the name %s",
			e.host);
		return fail(f, RP_EXIT_LISTEN, NULL);
	}
	n->ktcp = rp_ktcp_create(&c);
	if (!n->ktcp) {
		snprintf(f->error, f->error_size, "links: kernel sockets: %s", strerror(errno));
		return fail(f, RP_EXIT_LISTEN, NULL);
	}
	n->record.ktcp = c.listen;
	return 0;
}

static void static_neighbours(struct rp_node *n, uint32_t port, struct rp_net_config *net)
{
	const struct rp_conf_list *list = &n->conf->ports[port].neighbours;
	struct rp_net_neighbour *out = n->neighbours[port];
	uint8_t bytes[16];
	bool six;

	for (unsigned k = 0; k < list->count && k < RP_ARRAY_SIZE(n->neighbours[port]); k++) {
		rp_conf_neighbour_parse(list->items[k], bytes, &six, out[k].mac);
		out[k].ip = node_ip_of(bytes, six);
		net->static_neighbour_count = k + 1;
	}
	net->static_neighbours = out;
}

static void record_address(struct rp_node *n, uint32_t port, const union rp_ip *ip)
{
	struct rp_port_info info;

	_Static_assert(sizeof(n->record.rss_key) == RP_PLACE_KEY_BYTES, "one key");
	rp_port_info(n->ports[port], &info);
	n->record.rings = info.queues;
	n->record.tcp = rp_ip_to_endpoint(ip, n->conf->links.listen);
	memcpy(n->record.rss_key, rp_place_key_default, sizeof(n->record.rss_key));
	n->record.rss_table_size = n->place[port]->table_size;
	n->record.rss_shards = (uint32_t)stack_shards(n->conf, n->shards);
}

/* Where peers find this node: the first address that they can reach from another link as well. */
static void record_endpoint(struct rp_node *n, uint32_t port, const struct rp_net_interface *i)
{
	for (unsigned k = 0; k < RP_NET_ADDRESSES_MAX && n->record.tcp.family == 0; k++) {
		const union rp_ip *ip = &i->addresses[k].ip;

		if (ip->q[1] == 0 && ip->q[0] == 0)
			return;
		if (!rp_ip_is_link_local(ip))
			record_address(n, port, ip);
	}
}

static void tcp_config(struct rp_node *n, uint32_t port, struct rp_tcp_config *t)
{
	const struct rp_conf_port *p = &n->conf->ports[port];
	struct rp_port_info info;

	rp_port_info(n->ports[port], &info);
	*t = (struct rp_tcp_config){
		.net = {.iface = {.mtu = info.mtu,
				.rx_csum = true,
				.tx_csum_ip = info.flags & RP_PORT_TX_IPV4_CKSUM,
				.tx_csum_tcp = info.flags & RP_PORT_TX_TCP_CKSUM,
				.tx_tso = info.flags & RP_PORT_TX_TSO},
			.header_pool = n->frame_pool,
			.control_pool = n->control_pool,
			.payload_pool = n->queue_pool},
		/* After a cut a link is heard again within a second. */
		.rto_max_ns = RP_NS_PER_S,
		.send_buffer_bytes = 4u << 20,
		.receive_buffer_bytes = 4u << 20,
	};
	memcpy(t->net.iface.mac, info.mac, sizeof(info.mac));
	random_bytes(t->secret, sizeof(t->secret));
	random_bytes(&t->seed, sizeof(t->seed));
	t->net.seed = t->seed;
	t->net.dad = p->dad;
	t->net.mld = true;
	node_tcp_config(n->conf, port, t);
	static_neighbours(n, port, &t->net);
	record_endpoint(n, port, &t->net.iface);
}

static void fill_engine(struct rp_node *n, uint32_t shard, struct rp_engine_config *e)
{
	const struct rp_conf *c = n->conf;
	uint32_t partial = n->queue_pool->size / PARTIAL_PART;

	*e = (struct rp_engine_config){
		.shard = shard,
		.shards = n->shards,
		.link_shard = n->link_shard,
		.link_shards =
			n->port_count > 0 || n->ktcp ? (uint32_t)stack_shards(c, n->shards) : 0,
		.listen_port = c->links.listen,
		.links = {.node = n->id,
			.boot = n->boot,
			.per_peer = (uint8_t)c->links.per_peer,
			.skip_shard_zero = c->links.skip_shard_zero,
			.secret = n->secret,
			.secret_length = n->secret_length,
			.secret_previous = n->secret_previous,
			.secret_previous_length = n->secret_previous_length,
			.heartbeat_ns = c->links.heartbeat_ms * RP_NS_PER_MS,
			.dead_after_ns = c->links.dead_after_ms * RP_NS_PER_MS,
			.handshake_grace_ns = c->links.handshake_grace_ms * RP_NS_PER_MS,
			.peer_queue_frames = c->links.peer_queue_frames,
			.peers_max = c->limits.peers,
			.handshakes_max = c->limits.handshakes,
			.tls_client = n->tls.client[shard],
			.tls_server = n->tls.server[shard],
			.data_pool = n->queue_pool,
			.pool = n->frame_pool},
		.deliver = {.node = n->id,
			.shard = shard,
			.shards = n->shards,
			.links = c->links.per_peer,
			.message_bytes_max =
				(uint32_t)rp_conf_message_bytes(c) + RP_LETTER_HEAD_BYTES_MAX,
			.window_bytes = c->deliver.window_kib << 10,
			.peer_budget_bytes = 64u << 20,
			.budget_bytes = partial / n->shards * PARTIAL_BYTES,
			.payload_pool = n->queue_pool,
			.streams_max = c->limits.streams / n->shards,
			.peers_max = c->limits.peers,
			.peer_messages_max = 65536,
			.messages_max = 131072,
			.idle_ns = c->deliver.idle_s * RP_NS_PER_S,
			.unary_fallback = c->deliver.unary_fallback,
			.pool = n->frame_pool},
		.queue = {.node = n->id,
			.boot = n->boot,
			.pool = n->queue_pool,
			.reserve = n->queue_pool->size / CONTROL_PART + partial,
			.message_bytes_max = (uint32_t)rp_conf_message_bytes(c),
			.queue_depth_max = c->limits.queue_depth,
			.queue_bytes_max = c->limits.queue_bytes,
			.queues_max = c->limits.queues / n->shards + 1,
			.resume_ns = c->queues.resume_ms * RP_NS_PER_MS,
			.idle_ns = c->queues.idle_s * RP_NS_PER_S,
			.dead_after_ns = c->links.dead_after_ms * RP_NS_PER_MS},
	};
	memcpy(e->links.cluster_uuid, n->cluster_uuid, RP_UUID_BYTES);
	/* What other shards post lies in a link's queue; together they leave its owner room. */
	if (e->link_shards != 1u << shard && n->shards > 1) {
		e->deliver.peer_frames_max =
			RP_MAX(c->links.peer_queue_frames * 3 / 4 / (n->shards - 1), 64u);
		e->deliver.peer_budget_bytes = 16u << 20;
	}
}

/* The nth shard with a stack polls the nth queue of each port; without one, it uses another's. */
static void fill_ports(struct rp_node *n, uint32_t shard, struct rp_shard_config *c)
{
	uint64_t stacks = stack_shards(n->conf, n->shards), before = stacks & ((1ull << shard) - 1);
	uint32_t own = (uint32_t)__builtin_popcountll(before);

	c->engine.stack_shards = stacks;
	if (!(stacks >> shard & 1))
		return;
	c->engine.port_count = n->port_count;
	for (uint32_t p = 0; p < n->port_count; p++) {
		struct rp_port_info info;
		uint64_t left = stacks;

		rp_port_info(n->ports[p], &info);
		for (uint32_t i = 0; i < own % info.queues; i++)
			left &= left - 1;
		c->ports[p] = rp_port_queue(n->ports[p], (uint16_t)own);
		c->engine.queue_shard[p] = (uint8_t)__builtin_ctzll(left);
		c->engine.place[p] = n->place[p];
		tcp_config(n, p, &c->engine.tcp[p]);
		if (c->ports[p])
			c->engine.tcp[p].rx_pool = rp_port_queue_pool(c->ports[p]);
	}
}

static int create_shards(struct rp_node *n, const struct failure *f)
{
	for (uint32_t s = 0; s < n->shards; s++) {
		struct rp_shard_config c = {
			.xcore = n->xcore,
			.clock = &n->clock,
			.poll = n->plan.poll,
			.idle_spin_ns = n->conf->shards.idle_spin_us * RP_NS_PER_US,
		};

		fill_engine(n, s, &c.engine);
		if (s == n->link_shard)
			c.ktcp = n->ktcp;
		fill_ports(n, s, &c);
		n->shard[s] = rp_shard_create(&c);
		if (!n->shard[s]) {
			snprintf(f->error, f->error_size,
				errno == EADDRINUSE
					? "links.listen: port %u is in use; choose another"
					: "shard: links on port %u cannot be set up",
				n->conf->links.listen);
			if (errno != EADDRINUSE)
				snprintf(f->error + strlen(f->error),
					f->error_size - strlen(f->error), ": %s", strerror(errno));
			return fail(f, errno == EADDRINUSE ? RP_EXIT_LISTEN : RP_EXIT_START, NULL);
		}
	}
	return 0;
}

static int create_rings(struct rp_node *n, const struct failure *f)
{
	struct rp_xcore_config c = {.shard_count = n->shards, .control_socket = -1};

	for (uint32_t s = 0; s < n->shards; s++)
		c.shard_socket[s] = -1;
	c.control_backlog_slots = 65536;
	n->xcore = rp_xcore_create(&c);
	return n->xcore ? 0 : fail(f, RP_EXIT_HOST, "dpdk.memory_mib: no memory for the rings");
}

static void fill_record(struct rp_node *n)
{
	struct rp_conf_endpoint e;
	char address[sizeof(n->record.client_url) - sizeof("https://")];

	n->record.node = n->id;
	n->record.boot = n->boot;
	n->record.per_peer = n->conf->links.per_peer;
	n->record.shards = n->shards;
	snprintf(n->record.name, sizeof(n->record.name), "%s", n->conf->name);
	snprintf(n->record.zone, sizeof(n->record.zone), "%s", n->conf->zone);
	if (n->conf->listen_client_urls.count == 0 ||
		rp_conf_endpoint_parse(n->conf->listen_client_urls.items[0], 2379, &e) != 0 ||
		e.is_unix)
		return;
	rp_conf_endpoint_format(&e, address, sizeof(address));
	snprintf(n->record.client_url, sizeof(n->record.client_url), "%s%s",
		e.tls ? "https://" : "http://", address);
}

/* Those of the stacks' shards that poll a queue of some port. */
static uint64_t port_shards(const struct rp_node *n)
{
	uint64_t polling = 0, left = stack_shards(n->conf, n->shards);
	uint32_t queues = 0;

	for (uint32_t p = 0; p < n->port_count; p++) {
		struct rp_port_info info;

		rp_port_info(n->ports[p], &info);
		queues = RP_MAX(queues, (uint32_t)info.queues);
	}
	for (; left && queues > 0; left &= left - 1, queues--)
		polling |= left & -left;
	return polling;
}

/* How a flow comes to the shard that owns its link, for people. */
static const char *placement_of(const struct rp_node *n, const struct rp_port *port)
{
	uint32_t stacks = (uint32_t)__builtin_popcountll(stack_shards(n->conf, n->shards));
	struct rp_port_info info;

	if (stacks == 1)
		return "one shard";
	rp_port_info(port, &info);
	return info.flags & RP_PORT_RSS && info.queues >= stacks ? "rss" : "hand-over";
}

/* Of several ports the worst is told for all of them. */
static void fill_placement(const struct rp_node *n, struct rp_ctl_config *c)
{
	c->placement = n->ktcp ? "kernel" : "";
	for (uint32_t p = n->port_count; p-- > 0;) {
		c->port_placement[p] = placement_of(n, n->ports[p]);
		if (p + 1 == n->port_count || !strcmp(c->port_placement[p], "hand-over"))
			c->placement = c->port_placement[p];
	}
}

static int create_ctl(struct rp_node *n, const struct failure *f)
{
	struct rp_ctl_config c = {
		.conf = n->conf,
		.source = n->process.source,
		.reconfigured = n->process.reconfigured,
		.no_signals = n->process.no_signals,
		.events = n->process.events,
		.has_cluster = n->conf->cluster[0] != '\0',
		.secret = n->secret,
		.secret_length = n->secret_length,
		.secret_previous = n->secret_previous,
		.secret_previous_length = n->secret_previous_length,
		.transport_tcp = n->port_count > 0,
		.transport_ktcp = n->ktcp != NULL,
		.xcore = n->xcore,
		.clock = &n->clock,
		.pool = n->queue_pool,
		.frame_pool = n->frame_pool,
		.tap_pool = n->tap_pool,
		.ports = n->ports,
		.port_count = n->port_count,
		.port_shards = port_shards(n),
	};

	fill_placement(n, &c);
	fill_record(n);
	c.self = n->record;
	memcpy(c.cluster_uuid, n->cluster_uuid, RP_UUID_BYTES);
	n->ctl = rp_ctl_create(&c, f->error, f->error_size);
	if (!n->ctl)
		return fail(f, RP_EXIT_START, NULL);
	if (rp_ctl_listen(n->ctl, f->error, f->error_size) != 0)
		return fail(f, RP_EXIT_LISTEN, NULL);
	return 0;
}

static int create_all(struct rp_node *n, bool shards_float, const struct failure *f)
{
	bool ktcp = !n->plan.over_tcp;

	if (n->conf->ports_count > RP_ENGINE_PORTS_MAX)
		return fail(f, RP_EXIT_CONF, "ports: too many");
	if (n->plan.over_tcp && n->conf->ports_count == 0)
		return fail(
			f, RP_EXIT_CONF, "links.transport: tcp needs a port; configure ports[]");
	if (make_identity(n, f) != 0 || node_tls_create(n, f) != 0 ||
		start_eal(n, shards_float, f) != 0)
		return -1;
	rp_clock_init(&n->clock, 5 * RP_NS_PER_MS);
	if (create_pools(n, f) != 0 || create_ports(n, f) != 0 || create_rings(n, f) != 0)
		return -1;
	/* A node that peers with nobody listens for no links. */
	if (ktcp && n->conf->cluster[0] != '\0' && create_ktcp(n, f) != 0)
		return -1;
	if (create_shards(n, f) != 0)
		return -1;
	return create_ctl(n, f);
}

struct rp_node *rp_node_create(const struct rp_conf *conf, const struct rp_conf_plan *plan,
	const struct rp_node_process *process, bool shards_float, int *exit_code, char *error,
	size_t error_size)
{
	struct failure f = {exit_code, error, error_size};
	struct rp_node *n = calloc(1, sizeof(*n));

	RP_ASSERT(n != NULL);
	error[0] = '\0';
	*exit_code = RP_EXIT_START;
	n->conf = conf;
	n->plan = *plan;
	if (process)
		n->process = *process;
	n->shards = plan->shards_count;
	n->link_shard = n->shards > 1 && conf->links.skip_shard_zero ? 1 : 0;
	if (create_all(n, shards_float, &f) == 0) {
		/* Links and the control thread have copies, and references. */
		forget_secrets(n);
		rp_ctl_link_tls_free(&n->tls);
		return n;
	}
	rp_node_destroy(n);
	return NULL;
}

int rp_node_run(struct rp_node *n)
{
	int rc;

	for (uint32_t s = 0; s < n->shards; s++)
		RP_ASSERT(rte_eal_remote_launch(
				  rp_shard_main, n->shard[s], rp_eal_shard_lcore(s)) == 0);
	n->launched = true;
	RP_LOG(RP_LOG_NODE, RP_LOG_INFO,
		"ringpostd " RP_VERSION ": node %" PRIu64 ", clients on port %u, %u shard%s, links "
		"over %s",
		n->id, rp_ctl_client_port(n->ctl), n->shards, n->shards == 1 ? "" : "s",
		n->port_count > 0 ? "tcp"
		: n->ktcp	  ? "ktcp"
				  : "nothing");
	rc = rp_ctl_run(n->ctl);
	return rc;
}

struct rp_ctl *rp_node_ctl(struct rp_node *n)
{
	return n->ctl;
}

uint64_t rp_node_id(const struct rp_node *n)
{
	return n->id;
}

void rp_node_request_stop(struct rp_node *n)
{
	rp_ctl_request_stop(n->ctl);
}

/* What lies in a shard's rings when its loop has ended. */
static void drain_rings(struct rp_node *n)
{
	struct rp_xmsg m;

	for (uint32_t s = 0; n->xcore && s < n->shards; s++)
		while (rp_xcore_recv_any(rp_xcore_end(n->xcore, s), &m, NULL, 1) == 1)
			rp_xmsg_free(&m);
}

void rp_node_destroy(struct rp_node *n)
{
	if (!n)
		return;
	for (uint32_t s = 0; n->launched && s < n->shards; s++)
		rp_shard_request_stop(n->shard[s]);
	for (uint32_t s = 0; n->launched && s < n->shards; s++)
		rte_eal_wait_lcore(rp_eal_shard_lcore(s));
	rp_ctl_destroy(n->ctl);
	drain_rings(n);
	for (uint32_t s = 0; s < n->shards; s++)
		rp_shard_destroy(n->shard[s]);
	rp_ktcp_destroy(n->ktcp);
	for (uint32_t p = 0; p < n->port_count; p++)
		rp_port_destroy(n->ports[p]);
	for (uint32_t p = 0; p < n->port_count; p++)
		free(n->place[p]);
	rp_xcore_destroy(n->xcore);
	rte_mempool_free(n->queue_pool);
	rte_mempool_free(n->frame_pool);
	rte_mempool_free(n->control_pool);
	rte_mempool_free(n->tap_pool);
	if (n->eal_started)
		rp_eal_stop();
	rp_ctl_link_tls_free(&n->tls);
	forget_secrets(n);
	free(n);
}
