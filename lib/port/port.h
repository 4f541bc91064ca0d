/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Ports: the only user of rte_ethdev. A port is one DPDK device with a queue pair for each shard.
 *
 *   1. After rp_eal_start(): rp_port_create(). It adds the device by hotplug, negotiates what the
 *      device can do against its driver file (drivers-config/), and starts it.
 *   2. The control thread gives rp_port_queue(port, shard) to each shard. From then on that queue
 * is touched by that shard's lcore only; the lcore has joined rp_park (park.h).
 *   3. A shard's loop: rp_park_point(); rp_port_rx(); the stack calls rp_port_tx() for each frame;
 *      rp_port_tx_flush() at the end of the loop, in idle loops too (it retries, releases frames
 *      that the impairment holds, and reclaims sent mbufs).
 *   4. The control thread calls rp_port_supervise() about every 100 ms: link state, redial.
 *   5. Shards have stopped: rp_port_destroy().
 *
 * Checksums on receive are in ol_flags, and the stack goes by them whatever the port's flags are:
 * L4_CKSUM_GOOD was verified; L4_CKSUM_NONE never left this host's memory and needs no check (its
 * field is not filled in); BAD is dropped; UNKNOWN is for the stack to check. Likewise IP_CKSUM.
 */

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <base/impair.h>
#include <base/units.h>
#include <port/eal.h>

struct rte_mbuf;
struct rte_mempool;
struct rp_port;
struct rp_port_queue;

/** Most frames that rp_port_rx() returns at once. */
#define RP_PORT_BURST_MAX 64
/** Frames that wait when the device does not take them; a power of 2. */
#define RP_PORT_TX_PENDING_MAX 512
/** Frames that an impairment holds, at most, each way. */
#define RP_PORT_IMPAIR_HELD_MAX 8192

enum rp_port_checksum {
	RP_PORT_CHECKSUM_AUTO, /**< by the device where it can and its driver file lets it */
	RP_PORT_CHECKSUM_HW,   /**< or creation fails */
	RP_PORT_CHECKSUM_SW,
};

/** What the stack may leave to the port. */
enum rp_port_flag {
	RP_PORT_TX_IPV4_CKSUM = 1 << 0, /**< set RTE_MBUF_F_TX_IP_CKSUM and l2_len, l3_len */
	RP_PORT_TX_TCP_CKSUM =
		1 << 1, /**< set RTE_MBUF_F_TX_TCP_CKSUM, lengths, pseudo-header sum */
	/**
	 * Super-segments are cut to tso_segsz, by the device or by the port: set
	 * RTE_MBUF_F_TX_TCP_SEG, TCP_CKSUM, with TX_IPV4_CKSUM also IP_CKSUM, lengths, and the
	 * pseudo-header sum without a length.
	 */
	RP_PORT_TX_TSO = 1 << 2,
	RP_PORT_RX_CKSUM = 1 << 3,  /**< the device may set CKSUM_GOOD and _BAD */
	RP_PORT_TX_CHAINS = 1 << 4, /**< the device takes chains; else the port copies (counted) */
	RP_PORT_RX_CHAINS = 1 << 5, /**< frames may arrive as chains */
	RP_PORT_ISOLATED = 1 << 6,  /**< virtual wire: no other host can be on it */
	/** The device spreads flows by key and table as the port has programmed and read back. */
	RP_PORT_RSS = 1 << 7,
	RP_PORT_TX_GSO = 1 << 8, /**< with TX_TSO: the port cuts, since the device does not */
};

/** Bytes of a key of RSS that count: what IPv6 with ports needs. */
#define RP_PORT_RSS_KEY_BYTES 40
/** Most entries of a table of RSS that differ; a larger one repeats them. */
#define RP_PORT_RSS_TABLE_MAX 512

enum rp_port_choice {
	RP_PORT_CHOICE_AUTO, /**< where the device can and its driver file lets it */
	RP_PORT_CHOICE_ON,
	RP_PORT_CHOICE_OFF,
};

struct rp_port_config {
	/**
	 * "net_memif0,role=server,socket=/run/a.sock" (a vdev), "0000:03:00.0[,devargs]" (PCI), or
	 * a MAC address "02:00:00:00:00:01" of a device that EAL has already. Borrowed for the
	 * call.
	 */
	const char *device;
	const char
		*driver_config; /**< NULL or "auto": the built-in file of the driver; else a path */
	uint16_t queues;	/**< queue pairs, one a shard; at least 1 */
	uint16_t rx_descriptors; /**< 0 = by the driver file */
	uint16_t tx_descriptors; /**< 0 = by the driver file */
	uint16_t mtu;		 /**< 0 = 1500 */
	enum rp_port_checksum checksum;
	/** Super-segments; ON: cut by the port where the device cannot. */
	enum rp_port_choice tso;
	/** Spreading by the device, where there are several queues; ON: or creation fails. */
	enum rp_port_choice rss;
	const uint8_t *rss_key; /**< RP_PORT_RSS_KEY_BYTES, borrowed for the call; NULL: no RSS */
	/**
	 * Entry i of the table means queue (i % spread) % queues. More than queues: shards without
	 * a queue of their own are thought of. 0 = queues.
	 */
	uint16_t spread;
	/** mbufs that the stack may hold per queue beyond what the rings need; 0 = 4096. */
	uint32_t rx_mbufs_extra;
	uint16_t mbuf_priv_size;		    /**< of the receive pools, a multiple of 8 */
	struct rp_impair_spec impair_rx, impair_tx; /**< all zero: none */
	uint64_t impair_seed;
};

struct rp_port_info {
	char device[128]; /**< ethdev name */
	char driver[64];
	char driver_config[256]; /**< where the driver's values are from: "built-in" or a path */
	uint8_t mac[6];
	uint16_t ethdev_id;
	uint16_t mtu;
	uint16_t queues;
	uint16_t rx_descriptors, tx_descriptors;
	uint32_t flags;		 /**< enum rp_port_flag */
	uint16_t rss_table_size; /**< with RP_PORT_RSS: entries of the table, a power of 2 */
	int socket;		 /**< NUMA, -1 = any */
	bool link_up;
};

/** Per queue; written by its lcore, read by any thread as relaxed atomics. */
struct rp_port_queue_counters {
#define RP_PORT_QUEUE_COUNTER(name, text) _Atomic uint64_t name;
#include <port/port_counters.def>
};

/** Of the port; written by the control thread. */
struct rp_port_counters {
#define RP_PORT_COUNTER(name, text) _Atomic uint64_t name;
#include <port/port_counters.def>
};

/**
 * Checks the device string and the values without DPDK, for --check-config. 0 or -EINVAL with
 * `error` filled.
 */
int rp_port_check(const struct rp_port_config *config, char *error, size_t error_size);

/** True when this device string needs rp_eal_config.pci. */
bool rp_port_needs_pci(const char *device);

/** Bytes of EAL memory that the port takes, for sizing rp_eal_config.memory_mib. */
uint64_t rp_port_memory_bytes(const struct rp_port_config *config);

/**
 * Control thread. Adds, configures and starts the device. NULL with errno and `error` filled with
 * cause, evidence and remedy: EADDRINUSE (the socket is another process's), ENODEV, EINVAL, ENOTSUP
 * (what was asked for and the device lacks), ENOMEM, EPERM.
 */
struct rp_port *rp_port_create(const struct rp_port_config *config, char *error, size_t error_size);

/**
 * Two ports on net_ring devices, joined back to back inside this process: what one sends the other
 * receives. For tests and benchmarks of two stacks. Both take `config` (its device is ignored).
 * 0 or -errno with `error` filled.
 */
int rp_port_create_pair(const struct rp_port_config *config, struct rp_port *ports[2], char *error,
	size_t error_size);

/** Control thread; no lcore uses a queue of it any more. Frees what is held. NULL is fine. */
void rp_port_destroy(struct rp_port *port);

void rp_port_info(const struct rp_port *port, struct rp_port_info *info);
const struct rp_port_counters *rp_port_counters(const struct rp_port *port);

/** Any thread. */
bool rp_port_link_up(const struct rp_port *port);

/**
 * Control thread, about every 100 ms. Follows the link state, and redials a peer that has been away
 * for as long as the driver file says. The shards are parked for microseconds, not for the redial.
 * True when the link changed.
 */
bool rp_port_supervise(struct rp_port *port, uint64_t now_ns);

/** Queue pair `index` of the port; borrow. */
struct rp_port_queue *rp_port_queue(struct rp_port *port, uint16_t index);

/** The pool that the queue receives into; its frames go back there. */
struct rte_mempool *rp_port_queue_pool(const struct rp_port_queue *queue);
const struct rp_port_queue_counters *rp_port_queue_counters(const struct rp_port_queue *queue);

/**
 * Polling lcore. Fills up to `max` (at most RP_PORT_BURST_MAX) frames, which the caller takes.
 * Frames that the impairment held and that are due by `now_ns` come among them.
 */
uint16_t rp_port_rx(
	struct rp_port_queue *queue, struct rte_mbuf **burst, uint16_t max, uint64_t now_ns);

/**
 * Polling lcore. Takes the frame; it goes out at the next flush, or when a burst is full. A frame
 * that cannot go is dropped and counted.
 */
void rp_port_tx(struct rp_port_queue *queue, struct rte_mbuf *frame, uint64_t now_ns);

/** Polling lcore, once a loop. True when it did something (frames went out, or were reclaimed). */
bool rp_port_tx_flush(struct rp_port_queue *queue, uint64_t now_ns);

/** Frames that rp_port_tx() takes now without dropping one for want of room. */
uint16_t rp_port_tx_room(const struct rp_port_queue *queue);

/** When the next held frame is due (impairment), or a retry is wanted; RP_NEVER when neither. */
uint64_t rp_port_next_ns(const struct rp_port_queue *queue);

/** Polling lcore. Changes the impairment of frames received (`rx`) or sent from now on. */
void rp_port_impair_set(struct rp_port_queue *queue, bool rx, const struct rp_impair_spec *spec);
