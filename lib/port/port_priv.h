/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Shared by the sources of lib/port and its unit test. */

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <rte_ethdev.h>

#include <port/port.h>

struct rte_ring;

/** Fills `error` and returns `code`, so that a check is one line. `error` may be NULL. */
__attribute__((format(printf, 4, 5))) int port_fail(
	char *error, size_t error_size, int code, const char *format, ...);

/** Sequence number of DPDK's log now; port_log_since() reads what came after it. */
uint64_t port_log_mark(void);
/** The first lines that DPDK logged since `mark`, joined by "; ". Empty when there is none. */
void port_log_since(uint64_t mark, char *text, size_t text_size);
/** Sends DPDK's log through RP_LOG and into the ring behind port_log_since(). 0 or -errno. */
int port_log_open(void);
/** While quiet, DPDK's lines are of level debug: a peer that is away is no news at each redial. */
void port_log_quiet(bool quiet);
void port_log_close(void);

/** Binds the wrapped rte_intr_* functions to EAL's own. 0 or -ENOSYS. */
int park_intr_bind(void);
/**
 * Ends EAL's interrupt thread, when no port is left. EAL itself lets it run on while it unmaps the
 * memory that the thread looks at, and the process dies of it now and then.
 */
void park_intr_end(void);

/**
 * The gate: who changes a device, or runs a callback of a PMD, has it alone. It does not park;
 * inside it rp_park_all() does. False, and not taken, when *cancelled turns true while another one
 * has it. One thread may nest.
 */
bool park_gate_take(const bool *cancelled);
void park_gate_leave(void);
bool park_gate_is_mine(void);
/** Sets *cancelled under the gate's lock and wakes who waits in park_gate_take(). */
void park_cancel(bool *cancelled);
/** Counters of the interrupt wrappers. */
void park_count_callback(void);
void park_count_cancelled(void);
void park_count_stale(void);
void park_count_wrapped(int by);

/* --- The device string --- */

#define PORT_ARGS_MAX 24
#define PORT_KEY_SIZE 32
#define PORT_VALUE_SIZE 128

enum port_bus {
	PORT_BUS_VDEV,
	PORT_BUS_PCI,
	PORT_BUS_MAC, /* a device that EAL has already, named by its address */
};

struct port_arg {
	char key[PORT_KEY_SIZE];
	char value[PORT_VALUE_SIZE];
};

struct port_device {
	enum port_bus bus;
	char name[64]; /* "net_memif0", "0000:03:00.0", "02:..." */
	uint8_t mac[6];
	unsigned arg_count;
	struct port_arg args[PORT_ARGS_MAX];
};

/** 0 or -EINVAL with `error` filled. */
int port_device_parse(const char *text, struct port_device *device, char *error, size_t error_size);
/** True, and `mac` filled, when the text is "xx:xx:xx:xx:xx:xx". */
bool port_mac_parse(const char *text, uint8_t mac[6]);
/** Value of `key`, or NULL. */
const char *port_device_arg(const struct port_device *device, const char *key);
/** Sets `key`, over a value that is there when `over`. 0 or -ENOSPC. */
int port_device_set(struct port_device *device, const char *key, const char *value, bool over);
/** True when `condition` ("role=server") holds for the arguments; an empty one holds never. */
bool port_device_is(const struct port_device *device, const char *condition);
/** "key=value,..." for EAL. 0 or -ENOSPC. */
int port_device_format_args(const struct port_device *device, char *text, size_t text_size);

/* --- The driver file --- */

enum port_redial {
	PORT_REDIAL_NONE,    /* the driver comes back by itself, or has no peer */
	PORT_REDIAL_RESTART, /* rte_eth_dev_stop() and _start() */
	PORT_REDIAL_REPLUG,  /* the device is removed and added anew */
};

struct port_driver {
	char origin[256]; /* "built-in" or a path */
	char name[PORT_KEY_SIZE];
	char description[256];
	char remedy[256]; /* what to do when the device cannot be added */
	uint32_t rings_rx, rings_tx, rings_tx_free;
	bool keeps_mbufs; /* of its receive ring, when it is closed */
	uint32_t queues_max;
	char queues_devarg[PORT_KEY_SIZE];
	uint32_t mtu_max;
	bool checksum_hw, chains, tso;
	bool isolated, own_mac, mac_devarg, promiscuous;
	char socket_devarg[PORT_KEY_SIZE];
	char socket_bound_when[64];
	char socket_abstract_when[64];
	uint32_t redial; /* enum port_redial */
	char redial_when[64];
	uint32_t redial_after_ms;
	unsigned devarg_count;
	struct port_arg devargs[PORT_ARGS_MAX];
};

/** A file compiled in: name of the driver and its text. Ends with a NULL name. */
struct port_driver_text {
	const char *name;
	const char *text;
};
extern const struct port_driver_text port_driver_texts[];

/** Parses one driver file. 0 or -EINVAL, `error` with origin:line:column. */
int port_driver_parse(struct port_driver *driver, const char *text, const char *origin, char *error,
	size_t error_size);
/**
 * The values for a device or driver called `name`: from the file at `path`, or when that is NULL or
 * "auto", from the installed folder, from what is compiled in, or the generic ones. 0 or -errno.
 */
int port_driver_load(struct port_driver *driver, const char *name, const char *path, char *error,
	size_t error_size);

/* --- A unix socket that the device will bind --- */

struct port_socket {
	char path[108]; /* empty: none claimed */
	int lock_fd;
};

/**
 * Takes the lock file next to the socket and removes a socket that a dead process left. 0, or
 * -EADDRINUSE when a live process has it, or -errno.
 */
int port_socket_claim(struct port_socket *s, const char *path, char *error, size_t error_size);
void port_socket_release(struct port_socket *s);

/* --- The port --- */

/** One frame that the impairment holds. */
struct port_held {
	uint64_t due_ns;
	uint64_t order; /* of arrival: equal times leave in order */
	struct rte_mbuf *frame;
};

/** Frames held by an impairment: a heap, the earliest on top. */
struct port_hold {
	struct rp_impair impair;
	bool active; /* there is an impairment, or a frame is still held */
	uint32_t count, count_max;
	uint64_t order;
	struct port_held *heap;
};

struct rp_port_queue {
	/* Written with the lcores parked, read by the polling lcore. */
	bool running;
	bool chains;  /* the device takes chains */
	bool tso;     /* the device cuts super-segments */
	bool prepare; /* frames go through rte_eth_tx_prepare() */
	bool cleanup; /* the device has tx_done_cleanup */
	uint16_t ethdev_id, index;
	uint32_t frame_bytes_max;
	uint16_t tx_segments_max;
	struct rte_mempool *pool, *linear_pool, *gso_pool;
	struct rp_port *port;

	/* The polling lcore's own. */
	uint32_t pending_head, pending_count;
	bool stalled;	   /* the device refused a frame since the last flush */
	bool distrust;	   /* its word about received checksums was wrong */
	uint32_t to_check; /* so many more of the frames that it calls sound are summed */
	uint64_t cleaned_ns;
	struct port_hold rx_hold, tx_hold;
	struct rte_mbuf *pending[RP_PORT_TX_PENDING_MAX];
	uint32_t pending_bytes[RP_PORT_TX_PENDING_MAX];

	/* Written by the polling lcore, read by any thread. */
	_Alignas(RP_CACHE_LINE) struct rp_port_queue_counters counters;
};

struct rp_port {
	/* The control thread's own. */
	struct rp_port_config config; /* its texts are not kept */
	struct port_device device;
	struct port_driver driver;
	struct port_socket socket;
	unsigned serial; /* in names of pools and rings */
	bool plugged, running;
	bool redials; /* for this device and role */
	bool seen_up;
	bool lost; /* the device stays down until it is added anew */
	uint16_t ethdev_id, mtu, queue_count, queues_made;
	uint16_t rx_descriptors, tx_descriptors;
	uint32_t flags;
	uint8_t rss_key[RP_PORT_RSS_KEY_BYTES];
	bool has_rss_key;
	uint8_t rss_key_size; /* of the device */
	uint64_t rss_types;
	uint16_t rss_table_size;
	uint8_t mac[6];
	int socket_id;
	uint64_t down_since_ns, tried_ns; /* 0 = not known yet */
	struct rte_mempool *linear_pool, *gso_pool;
	struct rte_ring **rings; /* of a pair: the ones that this port receives from */
	struct rp_port_queue *queues;

	/* Written by the control thread, read by any. */
	_Alignas(RP_CACHE_LINE) atomic_bool link_up;
	struct rp_port_counters counters;
};

/** Adds one to a counter that only this thread writes. */
#define PORT_COUNT(counters, name, n)                                                \
	atomic_store_explicit(&(counters)->name,                                     \
		atomic_load_explicit(&(counters)->name, memory_order_relaxed) + (n), \
		memory_order_relaxed)

/** Adds the device, negotiates and starts it. 0 or -errno with `error` filled. */
int port_plug(struct rp_port *p, char *error, size_t error_size);
/** Stops and removes the device. */
void port_unplug(struct rp_port *p);
/** rte_eth_dev_start(), and lets the lcores in. 0 or -errno with `error` filled. */
int port_start(struct rp_port *p, char *error, size_t error_size);
/** Keeps the lcores out, and rte_eth_dev_stop(). */
void port_stop(struct rp_port *p);

/* port_offload.c */

/* What was asked of a device, for one rte_eth_dev_configure(). */
struct port_negotiated {
	struct rte_eth_conf conf;
	uint8_t rss_key[64];
	uint32_t flags;
	bool prepare, tso;
};

/**
 * What the device can do against what the configuration wants and the driver file lets it. 0 or
 * -errno with `error` filled; what is refused and can be done in software is counted.
 */
int port_negotiate(struct rp_port *p, const struct rte_eth_dev_info *info,
	struct port_negotiated *n, char *error, size_t error_size);
/** The device has started: programs the table of RSS and reads it and the key back. */
int port_rss_program(struct rp_port *p, char *error, size_t error_size);
/** Does the driver take the kinds of frames that we are going to send? Else offloads go. */
void port_check_samples(struct rp_port *p);
/** Of frames that the device calls sound: sums the first ones itself. */
void port_check_rx(struct rp_port_queue *q, struct rte_mbuf **burst, uint16_t n);

/** Frames of a queue that are summed after a start though the device calls them sound. */
#define PORT_CHECK_RX 64

/* port_gso.c */

/** Internet checksum of bytes of a chain, not inverted. */
uint16_t port_l4_sum(const struct rte_mbuf *m, uint32_t offset, uint32_t length);

/** Of a super-segment; headers lie in its first mbuf. */
#define PORT_GSO_SEGMENTS_MAX 128
/**
 * Cuts a super-segment into frames with payloads of tso_segsz, by reference, or where `chains` is
 * false by copying; take. Checksums are made unless the offload flags `keep` leave them to the
 * device. How many; 0: freed, no buffers or malformed.
 */
unsigned port_gso(struct rte_mempool *pool, struct rte_mbuf *frame, bool chains, uint64_t keep,
	struct rte_mbuf *out[PORT_GSO_SEGMENTS_MAX]);

/** 0 or -ENOMEM. `held_max` bounds the frames held. */
int port_hold_init(
	struct port_hold *h, const struct rp_impair_spec *spec, uint64_t seed, uint32_t held_max);
void port_hold_fini(struct port_hold *h);
void port_hold_set(struct port_hold *h, const struct rp_impair_spec *spec);
/** Decides on `frame` (take): dropped, or held until it is due. */
void port_hold_push(struct port_hold *h, struct rte_mbuf *frame, struct rte_mempool *pool,
	struct rp_port_queue_counters *counters, bool rx, uint64_t now_ns);
/** The next frame that is due, or NULL. */
struct rte_mbuf *port_hold_pop(struct port_hold *h, uint64_t now_ns);
/** When the next one is due; RP_NEVER when none is held. */
uint64_t port_hold_next_ns(const struct port_hold *h);
