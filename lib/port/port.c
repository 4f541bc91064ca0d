/* SPDX-License-Identifier: Apache-2.0 */
/* Ports as objects: creation, destruction, what they say of themselves. port_dev.c has the device.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include <rte_eth_ring.h>
#include <rte_ethdev.h>
#include <rte_ring.h>

#include <base/assert.h>
#include <base/log.h>
#include <port/park.h>

#include "port_priv.h"

#define RX_MBUFS_EXTRA_DEFAULT 4096
#define MTU_DEFAULT 1500
#define DATA_ROOM_MIN 2048
/** Ethernet header, two VLAN tags, CRC. */
#define FRAME_OVERHEAD 26
/** What mempool caches of a few lcores keep from the others. */
#define POOL_CACHES 2048
#define PAIR_RING_COUNT 1024
/** Ethernet with a tag, IPv6, TCP with its options. */
#define GSO_HEADERS_MAX 128
/** Memory of the device itself: rings, control structures. */
#define DEVICE_BYTES (8ull << 20)

static unsigned serial_next;

static uint16_t mtu_of(const struct rp_port_config *c)
{
	return c->mtu > 0 ? c->mtu : MTU_DEFAULT;
}

static uint16_t data_room_of(const struct rp_port_config *c)
{
	return (uint16_t)RP_MAX(DATA_ROOM_MIN, (mtu_of(c) + FRAME_OVERHEAD + 63) & ~63);
}

static uint32_t rx_mbufs_of(const struct rp_port_config *c, uint32_t rx_descriptors)
{
	uint32_t extra = c->rx_mbufs_extra > 0 ? c->rx_mbufs_extra : RX_MBUFS_EXTRA_DEFAULT;

	return rx_descriptors + extra + 2 * RP_PORT_BURST_MAX + POOL_CACHES;
}

static uint32_t linear_mbufs_of(uint32_t queues, uint32_t tx_descriptors)
{
	return queues * (tx_descriptors + RP_PORT_TX_PENDING_MAX + RP_PORT_BURST_MAX) + POOL_CACHES;
}

/* Super-segments may have to be cut here: by choice, or one that the device finds too long. */
static bool may_cut(const struct rp_port_config *c, const struct port_driver *d)
{
	return c->tso == RP_PORT_CHOICE_ON || (c->tso == RP_PORT_CHOICE_AUTO && d->tso);
}

/* Headers, and references where the device takes chains. */
static uint32_t gso_mbufs_of(uint32_t queues, uint32_t tx_descriptors, bool chains)
{
	return (chains ? 2 : 1) *
	       (queues * (tx_descriptors + RP_PORT_TX_PENDING_MAX + PORT_GSO_SEGMENTS_MAX) +
		       POOL_CACHES);
}

static uint16_t gso_room_of(const struct rp_port_config *c, const struct port_driver *d)
{
	return d->chains ? GSO_HEADERS_MAX : data_room_of(c);
}

bool rp_port_needs_pci(const char *text)
{
	struct port_device d;

	return port_device_parse(text, &d, NULL, 0) == 0 && d.bus != PORT_BUS_VDEV;
}

/* Device and driver of a configuration, with the driver's own arguments filled in. */
static int read_config(const struct rp_port_config *c, struct port_device *device,
	struct port_driver *driver, char *error, size_t error_size)
{
	int rc = port_device_parse(c->device, device, error, error_size);

	if (rc == 0)
		rc = port_driver_load(driver,
			device->bus == PORT_BUS_VDEV ? device->name : "generic", c->driver_config,
			error, error_size);
	for (unsigned i = 0; rc == 0 && i < driver->devarg_count; i++)
		if (device->bus == PORT_BUS_VDEV && port_device_set(device, driver->devargs[i].key,
							    driver->devargs[i].value, false) < 0)
			rc = port_fail(error, error_size, -EINVAL, "device %s: too many arguments",
				device->name);
	if (rc < 0)
		return rc;
	if (c->queues < 1 || c->queues > RP_SHARDS_MAX)
		return port_fail(error, error_size, -EINVAL, "device %s: queues must be 1 to %d",
			device->name, RP_SHARDS_MAX);
	if (mtu_of(c) < 576 || mtu_of(c) > driver->mtu_max)
		return port_fail(error, error_size, -EINVAL,
			"device %s: mtu %u is not between 576 and %u (%s)", device->name, mtu_of(c),
			driver->mtu_max, driver->origin);
	if (c->mbuf_priv_size % 8 != 0)
		return port_fail(error, error_size, -EINVAL,
			"device %s: mbuf_priv_size must be a multiple of 8", device->name);
	return 0;
}

int rp_port_check(const struct rp_port_config *c, char *error, size_t error_size)
{
	struct port_device device;
	struct port_driver driver;
	const char *socket;
	int rc = read_config(c, &device, &driver, error, error_size);

	if (rc < 0 || driver.socket_devarg[0] == '\0')
		return rc;
	socket = port_device_arg(&device, driver.socket_devarg);
	if (!socket || *socket == '\0')
		return port_fail(error, error_size, -EINVAL,
			"device %s: it needs %s=<path of the socket that both ends name>",
			device.name, driver.socket_devarg);
	return 0;
}

uint64_t rp_port_memory_bytes(const struct rp_port_config *c)
{
	struct port_device device;
	struct port_driver driver;
	uint32_t rx, tx;

	if (read_config(c, &device, &driver, NULL, 0) < 0)
		return 0;
	rx = c->rx_descriptors > 0 ? c->rx_descriptors : driver.rings_rx;
	tx = c->tx_descriptors > 0 ? c->tx_descriptors : driver.rings_tx;
	return c->queues * rp_pool_bytes(rx_mbufs_of(c, rx), data_room_of(c), c->mbuf_priv_size) +
	       (driver.chains ? 0
			      : rp_pool_bytes(linear_mbufs_of(c->queues, tx), data_room_of(c), 0)) +
	       (may_cut(c, &driver) ? rp_pool_bytes(gso_mbufs_of(c->queues, tx, driver.chains),
					      gso_room_of(c, &driver), 0)
				    : 0) +
	       DEVICE_BYTES;
}

static void choose_mac(struct rp_port *p)
{
	if (getrandom(p->mac, sizeof(p->mac), 0) != sizeof(p->mac))
		memset(p->mac, (int)p->serial, sizeof(p->mac));
	p->mac[0] = (uint8_t)((p->mac[0] & 0xfe) | 0x02); /* unicast, locally administered */
}

/* Arguments that the port adds: its MAC, so that a device added anew keeps it, and queues. */
static int complete_args(struct rp_port *p)
{
	char text[32];
	int rc = 0;

	choose_mac(p);
	if (p->driver.mac_devarg) {
		const char *given = port_device_arg(&p->device, "mac");

		snprintf(text, sizeof(text), "%02x:%02x:%02x:%02x:%02x:%02x", p->mac[0], p->mac[1],
			p->mac[2], p->mac[3], p->mac[4], p->mac[5]);
		if (!given)
			rc = port_device_set(&p->device, "mac", text, false);
		else
			port_mac_parse(given, p->mac);
	}
	if (rc == 0 && p->driver.queues_devarg[0] != '\0') {
		snprintf(text, sizeof(text), "%u",
			RP_MIN((uint32_t)p->config.queues, p->driver.queues_max));
		rc = port_device_set(&p->device, p->driver.queues_devarg, text, false);
	}
	return rc;
}

static int create_queue(
	struct rp_port *p, struct rp_port_queue *q, uint16_t index, char *error, size_t error_size)
{
	const struct rp_port_config *c = &p->config;
	uint32_t mbufs = rx_mbufs_of(c, p->rx_descriptors);
	uint32_t held_max = RP_MIN((uint32_t)RP_PORT_IMPAIR_HELD_MAX, mbufs / 2);
	char name[RTE_MEMPOOL_NAMESIZE];

	q->port = p;
	q->index = index;
	snprintf(name, sizeof(name), "port%u_rx%u", p->serial, index);
	q->pool = rp_pool_create(
		name, mbufs, data_room_of(c), c->mbuf_priv_size, p->socket_id, error, error_size);
	if (!q->pool)
		return -errno;
	if (port_hold_init(&q->rx_hold, &c->impair_rx, c->impair_seed + 2u * index, held_max) < 0 ||
		port_hold_init(
			&q->tx_hold, &c->impair_tx, c->impair_seed + 2u * index + 1, held_max) < 0)
		return port_fail(error, error_size, -ENOMEM, "out of memory");
	return 0;
}

static int create_queues(struct rp_port *p, char *error, size_t error_size)
{
	size_t bytes;

	p->queue_count = (uint16_t)RP_MIN((uint32_t)p->config.queues, p->driver.queues_max);
	p->queues_made = p->queue_count;
	bytes = p->queue_count * sizeof(*p->queues);
	p->queues = aligned_alloc(RP_CACHE_LINE, bytes);
	if (!p->queues)
		return port_fail(error, error_size, -ENOMEM, "out of memory");
	memset(p->queues, 0, bytes);
	for (uint16_t i = 0; i < p->queue_count; i++) {
		int rc = create_queue(p, &p->queues[i], i, error, error_size);

		if (rc < 0)
			return rc;
	}
	if (may_cut(&p->config, &p->driver)) {
		char name[RTE_MEMPOOL_NAMESIZE];

		snprintf(name, sizeof(name), "port%u_gso", p->serial);
		p->gso_pool = rp_pool_create(name,
			gso_mbufs_of(p->queue_count, p->tx_descriptors, p->driver.chains),
			gso_room_of(&p->config, &p->driver), 0, p->socket_id, error, error_size);
		if (!p->gso_pool)
			return -errno;
	}
	if (!p->driver.chains) {
		char name[RTE_MEMPOOL_NAMESIZE];

		snprintf(name, sizeof(name), "port%u_linear", p->serial);
		p->linear_pool =
			rp_pool_create(name, linear_mbufs_of(p->queue_count, p->tx_descriptors),
				data_room_of(&p->config), 0, p->socket_id, error, error_size);
		if (!p->linear_pool)
			return -errno;
	}
	return 0;
}

static struct rp_port *allocate(const struct rp_port_config *c)
{
	struct rp_port *p = aligned_alloc(
		RP_CACHE_LINE, (sizeof(*p) + RP_CACHE_LINE - 1) & ~(size_t)(RP_CACHE_LINE - 1));

	if (!p)
		return NULL;
	memset(p, 0, sizeof(*p));
	p->config = *c;
	p->config.device = p->config.driver_config = NULL;
	p->config.rss_key = NULL;
	p->has_rss_key = c->rss_key != NULL;
	if (c->rss_key)
		memcpy(p->rss_key, c->rss_key, sizeof(p->rss_key));
	p->serial = serial_next++;
	p->mtu = mtu_of(c);
	p->socket_id = -1;
	return p;
}

static int claim_socket(struct rp_port *p, char *error, size_t error_size)
{
	const struct port_driver *d = &p->driver;
	const char *path;

	if (d->socket_devarg[0] == '\0' || !port_device_is(&p->device, d->socket_bound_when) ||
		port_device_is(&p->device, d->socket_abstract_when))
		return 0;
	path = port_device_arg(&p->device, d->socket_devarg);
	return path ? port_socket_claim(&p->socket, path, error, error_size) : 0;
}

static int set_up(struct rp_port *p, char *error, size_t error_size)
{
	const struct rp_port_config *c = &p->config;
	int rc;

	if (complete_args(p) < 0)
		return port_fail(error, error_size, -EINVAL, "device %s: too many arguments",
			p->device.name);
	p->redials = p->driver.redial != PORT_REDIAL_NONE &&
		     (p->driver.redial_when[0] == '\0' ||
			     port_device_is(&p->device, p->driver.redial_when));
	/* Until the device is there: what its driver can do without being asked. */
	p->flags = (p->driver.isolated ? RP_PORT_ISOLATED : 0) |
		   (p->driver.chains ? RP_PORT_TX_CHAINS : 0);
	p->rx_descriptors =
		(uint16_t)(c->rx_descriptors > 0 ? c->rx_descriptors : p->driver.rings_rx);
	p->tx_descriptors =
		(uint16_t)(c->tx_descriptors > 0 ? c->tx_descriptors : p->driver.rings_tx);
	rc = create_queues(p, error, error_size);
	if (rc == 0)
		rc = claim_socket(p, error, error_size);
	port_log_quiet(p->redials);
	if (rc == 0)
		rc = port_plug(p, error, error_size);
	port_log_quiet(false);
	if (rc < 0 && p->redials && rc != -ENOTSUP && rc != -EINVAL && rc != -ENOMEM) {
		/* Its peer is not there yet: that is no fault, the port goes on trying. */
		RP_LOG(RP_LOG_PORT, RP_LOG_INFO, "%s: no peer yet: %s", p->device.name,
			error ? error : "");
		if (error)
			error[0] = '\0';
		rc = 0;
	}
	return rc;
}

struct rp_port *rp_port_create(const struct rp_port_config *c, char *error, size_t error_size)
{
	struct rp_port *p;
	int rc = rp_port_check(c, error, error_size);

	if (rc < 0) {
		errno = -rc;
		return NULL;
	}
	p = allocate(c);
	if (!p) {
		port_fail(error, error_size, 0, "out of memory");
		errno = ENOMEM;
		return NULL;
	}
	rc = read_config(c, &p->device, &p->driver, error, error_size);
	if (rc == 0)
		rc = set_up(p, error, error_size);
	if (rc < 0) {
		rp_port_destroy(p);
		errno = -rc;
		return NULL;
	}
	return p;
}

static void free_pool(const struct rp_port *p, struct rte_mempool *pool)
{
	if (pool && !rte_mempool_full(pool) && !p->driver.keeps_mbufs)
		RP_LOG(RP_LOG_PORT, RP_LOG_WARNING, "%s: %u mbufs of pool %s were not given back",
			p->device.name, rte_mempool_in_use_count(pool), pool->name);
	rte_mempool_free(pool);
}

void rp_port_destroy(struct rp_port *p)
{
	if (!p)
		return;
	port_unplug(p);
	for (uint16_t i = 0; p->queues && i < p->queues_made; i++) {
		struct rp_port_queue *q = &p->queues[i];

		for (; q->pending_count > 0; q->pending_count--) {
			rte_pktmbuf_free(q->pending[q->pending_head]);
			q->pending_head = (q->pending_head + 1) % RP_PORT_TX_PENDING_MAX;
		}
		port_hold_fini(&q->rx_hold);
		port_hold_fini(&q->tx_hold);
	}
	for (uint16_t i = 0; p->rings && i < p->queues_made; i++) {
		void *frame;

		while (p->rings[i] && rte_ring_dequeue(p->rings[i], &frame) == 0)
			rte_pktmbuf_free(frame);
		rte_ring_free(p->rings[i]);
	}
	for (uint16_t i = 0; p->queues && i < p->queues_made; i++)
		free_pool(p, p->queues[i].pool);
	free_pool(p, p->linear_pool);
	free_pool(p, p->gso_pool);
	port_socket_release(&p->socket);
	free(p->rings);
	free(p->queues);
	free(p);
}

static int create_rings(struct rp_port *p, char *error, size_t error_size)
{
	p->rings = calloc(p->queue_count, sizeof(struct rte_ring *));
	if (!p->rings)
		return port_fail(error, error_size, -ENOMEM, "out of memory");
	for (uint16_t i = 0; i < p->queue_count; i++) {
		char name[RTE_RING_NAMESIZE];

		snprintf(name, sizeof(name), "port%u_ring%u", p->serial, i);
		p->rings[i] = rte_ring_create(
			name, PAIR_RING_COUNT, SOCKET_ID_ANY, RING_F_SP_ENQ | RING_F_SC_DEQ);
		if (!p->rings[i])
			return port_fail(error, error_size, -ENOMEM,
				"cannot create a ring of %d: %s", PAIR_RING_COUNT,
				rte_strerror(rte_errno));
	}
	return 0;
}

static int join(struct rp_port *p, struct rp_port *peer, char *error, size_t error_size)
{
	char name[32];
	int id;

	snprintf(name, sizeof(name), "pair%u", p->serial);
	id = rte_eth_from_rings(name, p->rings, p->queue_count, peer->rings, p->queue_count, 0);
	if (id < 0)
		return port_fail(error, error_size, -EIO, "cannot create ring device %s: %s", name,
			rte_strerror(rte_errno));
	if (rte_eth_dev_get_name_by_port((uint16_t)id, p->device.name) < 0)
		return port_fail(error, error_size, -EIO, "ring device %s has no name", name);
	return port_plug(p, error, error_size);
}

int rp_port_create_pair(const struct rp_port_config *config, struct rp_port *ports[2], char *error,
	size_t error_size)
{
	struct rp_port_config c = *config;
	int rc = 0;

	c.device = "net_ring0";
	ports[0] = ports[1] = NULL;
	for (unsigned i = 0; rc == 0 && i < 2; i++) {
		struct rp_port *p = ports[i] = allocate(&c);

		if (!p) {
			rc = port_fail(error, error_size, -ENOMEM, "out of memory");
			break;
		}
		rc = read_config(&c, &p->device, &p->driver, error, error_size);
		if (rc < 0)
			break;
		choose_mac(p);
		p->config.impair_seed += 1000u * i;
		p->rx_descriptors = p->tx_descriptors = PAIR_RING_COUNT;
		rc = create_queues(p, error, error_size);
		if (rc == 0)
			rc = create_rings(p, error, error_size);
	}
	if (rc == 0)
		rc = join(ports[0], ports[1], error, error_size);
	if (rc == 0)
		rc = join(ports[1], ports[0], error, error_size);
	if (rc < 0) {
		rp_port_destroy(ports[0]);
		rp_port_destroy(ports[1]);
		ports[0] = ports[1] = NULL;
	}
	return rc;
}

void rp_port_info(const struct rp_port *p, struct rp_port_info *info)
{
	*info = (struct rp_port_info){
		.ethdev_id = p->ethdev_id,
		.mtu = p->mtu,
		.queues = p->queue_count,
		.rx_descriptors = p->rx_descriptors,
		.tx_descriptors = p->tx_descriptors,
		.flags = p->flags,
		.rss_table_size = p->flags & RP_PORT_RSS
					  ? RP_MIN(p->rss_table_size, RP_PORT_RSS_TABLE_MAX)
					  : 0,
		.socket = p->socket_id,
		.link_up = rp_port_link_up(p),
	};
	snprintf(info->device, sizeof(info->device), "%s", p->device.name);
	snprintf(info->driver, sizeof(info->driver), "%s", p->driver.name);
	snprintf(info->driver_config, sizeof(info->driver_config), "%s", p->driver.origin);
	memcpy(info->mac, p->mac, sizeof(info->mac));
}

const struct rp_port_counters *rp_port_counters(const struct rp_port *p)
{
	return &p->counters;
}

bool rp_port_link_up(const struct rp_port *p)
{
	return atomic_load_explicit(&p->link_up, memory_order_relaxed);
}

struct rp_port_queue *rp_port_queue(struct rp_port *p, uint16_t index)
{
	return index < p->queue_count ? &p->queues[index] : NULL;
}

struct rte_mempool *rp_port_queue_pool(const struct rp_port_queue *q)
{
	return q->pool;
}

const struct rp_port_queue_counters *rp_port_queue_counters(const struct rp_port_queue *q)
{
	return &q->counters;
}
