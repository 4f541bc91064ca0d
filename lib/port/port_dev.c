/* SPDX-License-Identifier: Apache-2.0 */
/* The device behind a port: adding, negotiating, starting, stopping, redialling. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <rte_bus.h>
#include <rte_dev.h>
#include <rte_errno.h>
#include <rte_ethdev.h>

#include <base/assert.h>
#include <base/log.h>
#include <port/park.h>

#include "port_priv.h"

#define EAL_ARGS_SIZE 1024
#define DRAIN_ROUNDS 64

static int fail_dev(const struct rp_port *p, int rc, uint64_t mark, const char *doing, char *error,
	size_t error_size)
{
	char reason[RP_PORT_ERROR_SIZE / 2];

	if (rc >= 0)
		rc = -EIO;
	port_log_since(mark, reason, sizeof(reason));
	return port_fail(error, error_size, rc, "port %s: cannot %s: %s%s%s%s", p->device.name,
		doing, strerror(-rc), *reason ? " (" : "", reason, *reason ? ")" : "");
}

static void append_remedy(const struct rp_port *p, char *error, size_t error_size)
{
	size_t length = error ? strlen(error) : 0;

	if (length > 0 && p->driver.remedy[0] != '\0')
		snprintf(error + length, error_size - length, "; %s", p->driver.remedy);
}

static int find_by_mac(struct rp_port *p, char *error, size_t error_size)
{
	uint16_t id;

	RTE_ETH_FOREACH_DEV (id) {
		struct rte_ether_addr a;

		if (rte_eth_macaddr_get(id, &a) == 0 &&
			memcmp(a.addr_bytes, p->device.mac, sizeof(p->device.mac)) == 0) {
			p->ethdev_id = id;
			return 0;
		}
	}
	return port_fail(error, error_size, -ENODEV,
		"no device that DPDK found has the MAC address %s: bind it to a DPDK driver "
		"(dpdk-devbind.py --status shows them)",
		p->device.name);
}

static int add_device(struct rp_port *p, char *error, size_t error_size)
{
	char args[EAL_ARGS_SIZE];
	uint64_t mark = port_log_mark();
	int rc;

	if (p->device.bus == PORT_BUS_MAC)
		return find_by_mac(p, error, error_size);
	if (rte_eth_dev_get_port_by_name(p->device.name, &p->ethdev_id) == 0)
		return p->rings || p->device.bus == PORT_BUS_PCI
			       ? 0
			       : port_fail(error, error_size, -EEXIST,
					 "port %s: a device of this name is there already: number "
					 "the devices (net_memif0, net_memif1)",
					 p->device.name);
	if (port_device_format_args(&p->device, args, sizeof(args)) < 0)
		return port_fail(error, error_size, -EINVAL, "port %s: its arguments are too long",
			p->device.name);
	rc = rte_eal_hotplug_add(
		p->device.bus == PORT_BUS_PCI ? "pci" : "vdev", p->device.name, args);
	if (rc < 0) {
		rc = fail_dev(p, rc, mark, "add the device", error, error_size);
		append_remedy(p, error, error_size);
		return rc;
	}
	if (rte_eth_dev_get_port_by_name(p->device.name, &p->ethdev_id) < 0) {
		rc = fail_dev(
			p, -ENODEV, mark, "find the device after adding it", error, error_size);
		append_remedy(p, error, error_size);
		return rc;
	}
	return 0;
}

static int set_up_queues(
	struct rp_port *p, const struct rte_eth_dev_info *info, const struct port_negotiated *n)
{
	struct rte_eth_rxconf rx = info->default_rxconf;
	struct rte_eth_txconf tx = info->default_txconf;
	int rc = 0;

	rx.offloads = n->conf.rxmode.offloads;
	tx.offloads = n->conf.txmode.offloads;
	if (p->driver.rings_tx_free > 0)
		tx.tx_free_thresh = (uint16_t)RP_MIN(p->driver.rings_tx_free,
			p->tx_descriptors > 8 ? p->tx_descriptors - 8u : 1u);
	for (uint16_t i = 0; rc == 0 && i < p->queue_count; i++) {
		rc = rte_eth_rx_queue_setup(p->ethdev_id, i, p->rx_descriptors,
			(unsigned)p->socket_id, &rx, p->queues[i].pool);
		if (rc == 0)
			rc = rte_eth_tx_queue_setup(
				p->ethdev_id, i, p->tx_descriptors, (unsigned)p->socket_id, &tx);
	}
	return rc;
}

/* A device that is there already, or comes anew, must do what the stack was told at first. */
static int accept_flags(struct rp_port *p, uint32_t flags, char *error, size_t error_size)
{
	const uint32_t promised = RP_PORT_TX_IPV4_CKSUM | RP_PORT_TX_TCP_CKSUM | RP_PORT_TX_TSO;

	if (p->seen_up && (p->flags & promised & ~flags) != 0)
		return port_fail(error, error_size, -ENOTSUP,
			"port %s: the device came back without offloads that it had",
			p->device.name);
	p->flags = flags;
	return 0;
}

static int configure(struct rp_port *p, char *error, size_t error_size)
{
	struct rte_eth_dev_info info;
	struct port_negotiated n;
	uint64_t mark = port_log_mark();
	struct rte_ether_addr mac;
	int rc = rte_eth_dev_info_get(p->ethdev_id, &info);

	if (rc < 0)
		return fail_dev(p, rc, mark, "read what the device can do", error, error_size);
	p->socket_id = rte_eth_dev_socket_id(p->ethdev_id);
	rc = port_negotiate(p, &info, &n, error, error_size);
	if (rc == 0)
		rc = accept_flags(p, n.flags, error, error_size);
	if (rc < 0)
		return rc;
	rc = rte_eth_dev_configure(p->ethdev_id, p->queue_count, p->queue_count, &n.conf);
	if (rc < 0)
		return fail_dev(p, rc, mark, "configure the device", error, error_size);
	rc = rte_eth_dev_adjust_nb_rx_tx_desc(p->ethdev_id, &p->rx_descriptors, &p->tx_descriptors);
	if (rc == 0)
		rc = set_up_queues(p, &info, &n);
	if (rc < 0)
		return fail_dev(p, rc, mark, "set up its queues", error, error_size);
	if (!p->driver.own_mac && rte_eth_macaddr_get(p->ethdev_id, &mac) == 0 &&
		!rte_is_zero_ether_addr(&mac))
		memcpy(p->mac, mac.addr_bytes, sizeof(p->mac));
	if (p->driver.promiscuous)
		rte_eth_promiscuous_enable(p->ethdev_id); /* not every virtual device has it */
	for (uint16_t i = 0; i < p->queue_count; i++) {
		struct rp_port_queue *q = &p->queues[i];

		q->ethdev_id = p->ethdev_id;
		q->linear_pool = p->linear_pool ? p->linear_pool : q->pool;
		q->chains = (n.flags & RP_PORT_TX_CHAINS) != 0;
		q->prepare = n.prepare;
		q->tso = n.tso;
		q->gso_pool = p->gso_pool;
		q->tx_segments_max =
			info.tx_desc_lim.nb_seg_max ? info.tx_desc_lim.nb_seg_max : UINT16_MAX;
		q->distrust = false;
		q->to_check = n.flags & RP_PORT_RX_CKSUM ? PORT_CHECK_RX : 0;
		q->frame_bytes_max = p->mtu + RTE_ETHER_HDR_LEN + RTE_VLAN_HLEN;
		q->cleanup = false;
	}
	return 0;
}

/* Lets the lcores in or out. */
static void set_running(struct rp_port *p, bool running)
{
	rp_park_all();
	for (uint16_t i = 0; i < p->queue_count; i++)
		p->queues[i].running = running;
	rp_park_release();
	p->running = running;
}

static void set_link(struct rp_port *p, bool up)
{
	if (up == rp_port_link_up(p))
		return;
	atomic_store_explicit(&p->link_up, up, memory_order_relaxed);
	if (up)
		PORT_COUNT(&p->counters, link_ups, 1);
	else
		PORT_COUNT(&p->counters, link_downs, 1);
	if (up)
		p->seen_up = true;
	else
		p->lost = p->redials && p->driver.redial == PORT_REDIAL_REPLUG;
	RP_LOG(RP_LOG_PORT, RP_LOG_INFO, "%s: link %s", p->device.name, up ? "up" : "down");
}

static bool read_link(struct rp_port *p)
{
	struct rte_eth_link link = {0};
	/* virtio-user takes up a new peer inside this very call, and resets its rings for it. */
	bool may_reconnect = !rp_port_link_up(p);

	/* A device that lost its peer for good has nothing new to say until it is added anew. */
	if (!p->running || p->lost)
		return false;
	if (may_reconnect)
		rp_park_all();
	if (rte_eth_link_get_nowait(p->ethdev_id, &link) < 0)
		link.link_status = RTE_ETH_LINK_DOWN;
	if (may_reconnect)
		rp_park_release();
	return link.link_status == RTE_ETH_LINK_UP;
}

int port_start(struct rp_port *p, char *error, size_t error_size)
{
	uint64_t mark = port_log_mark();
	int rc;

	park_gate_take(NULL);
	rc = rte_eth_dev_start(p->ethdev_id);
	if (rc == 0) {
		port_check_samples(p);
		for (uint16_t i = 0; i < p->queue_count; i++)
			p->queues[i].cleanup = rte_eth_tx_done_cleanup(p->ethdev_id, i, 0) >= 0;
		set_running(p, true);
	}
	park_gate_leave();
	if (rc == 0)
		return port_rss_program(p, error, error_size);
	rc = fail_dev(p, rc, mark, "start the device", error, error_size);
	append_remedy(p, error, error_size);
	return rc;
}

void port_stop(struct rp_port *p)
{
	if (!p->running)
		return;
	park_gate_take(NULL);
	set_running(p, false);
	rte_eth_dev_stop(p->ethdev_id);
	park_gate_leave();
}

int port_plug(struct rp_port *p, char *error, size_t error_size)
{
	int rc;

	park_gate_take(NULL);
	rc = add_device(p, error, error_size);
	if (rc == 0) {
		p->plugged = true;
		p->lost = false;
		rc = configure(p, error, error_size);
		if (rc == 0)
			rc = port_start(p, error, error_size);
		/* A restart needs the device; everything else begins with a new one. */
		if (rc < 0 && !(p->redials && p->driver.redial == PORT_REDIAL_RESTART))
			port_unplug(p);
	}
	park_gate_leave();
	if (rc == 0)
		set_link(p, read_link(p));
	return rc;
}

/* Frees what is still to be received: net_ring would lose it with its rings. */
static void drain(struct rp_port *p)
{
	struct rte_mbuf *burst[RP_PORT_BURST_MAX];

	set_running(p, false);
	for (uint16_t i = 0; i < p->queue_count; i++) {
		uint16_t n = 1;

		for (unsigned round = 0; n > 0 && round < DRAIN_ROUNDS; round++) {
			n = rte_eth_rx_burst(p->ethdev_id, i, burst, RP_PORT_BURST_MAX);
			rte_pktmbuf_free_bulk(burst, n);
		}
	}
	p->running = true; /* the device is */
}

void port_unplug(struct rp_port *p)
{
	if (!p->plugged)
		return;
	park_gate_take(NULL);
	if (p->running)
		drain(p);
	port_stop(p);
	if (p->device.bus == PORT_BUS_MAC || p->device.bus == PORT_BUS_PCI)
		rte_eth_dev_close(p->ethdev_id);
	else
		rte_eal_hotplug_remove("vdev", p->device.name);
	p->plugged = false;
	park_gate_leave();
}

static void redial(struct rp_port *p)
{
	char error[RP_PORT_ERROR_SIZE] = "";
	int rc;

	PORT_COUNT(&p->counters, redials, 1);
	port_log_quiet(true);
	if (p->driver.redial == PORT_REDIAL_REPLUG || !p->plugged) {
		port_unplug(p);
		rc = port_plug(p, error, sizeof(error));
	} else {
		port_stop(p);
		rc = port_start(p, error, sizeof(error));
	}
	port_log_quiet(false);
	if (rc < 0) {
		PORT_COUNT(&p->counters, redial_failures, 1);
		RP_LOG(RP_LOG_PORT, RP_LOG_DEBUG, "%s: redial: %s", p->device.name, error);
	}
}

bool rp_port_supervise(struct rp_port *p, uint64_t now_ns)
{
	bool was_up = rp_port_link_up(p);
	/* Also between two redials: one shall not hit a peer that is just answering the last. */
	uint64_t after_ns = p->driver.redial_after_ms * RP_NS_PER_MS;

	set_link(p, read_link(p));
	if (rp_port_link_up(p)) {
		p->down_since_ns = 0;
		return !was_up;
	}
	if (p->down_since_ns == 0)
		p->down_since_ns = now_ns;
	if (p->redials && now_ns - p->down_since_ns >= after_ns &&
		now_ns - p->tried_ns >= after_ns) {
		p->tried_ns = now_ns;
		redial(p);
		set_link(p, read_link(p));
	}
	return rp_port_link_up(p) != was_up;
}
