/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Two TCP stacks, a virtual clock and a bad network between them, for tests.
 *
 *   1. sim_eal() once; sim_new() with a configuration and a seed.
 *   2. app_listen() on a host, app_dial() from the other; an app sends `to_send` bytes of a
 * pattern, checks what it receives, and closes as its settings say.
 *   3. sim_run() until a time or a condition; after each step both stacks are recounted.
 *   4. sim_free() checks that the pools are as they were.
 *
 * A failed check prints the seed and the time and ends the test.
 */

#include <stdbool.h>
#include <stdint.h>

#include <base/impair.h>
#include <base/units.h>
#include <tcp/tcp.h>

struct sim;

struct sim_frame_info {
	uint64_t now_ns;
	unsigned from;
	const uint8_t *data; /* from the Ethernet header, linear */
	uint32_t length;
	uint32_t seq, ack, payload;
	uint8_t flags, ecn; /* ecn: of the IP header */
	uint16_t window;
	unsigned l4; /* offset of the TCP header; 0: no TCP */
};

struct sim_config {
	uint64_t seed;
	struct rp_impair_spec impair; /* both ways */
	uint64_t rtt_ns;	      /* half of it each way */
	uint64_t byte_ps;	      /* picoseconds a byte: the rate; 0: unlimited */
	uint32_t queue_frames;	      /* of the bottleneck; 0: unlimited */
	/* What finds so many frames before it is marked where it may be, else dropped. 0: never. */
	uint32_t mark_frames;
	uint32_t buffer_frames; /* what finds so many frames before it is dropped; 0: unlimited */
	uint16_t mtu;		/* 0: 1500 */
	uint32_t header_mbufs, payload_mbufs; /* of each host; 0: plenty */
	uint32_t rx_mbufs;	     /* ... for what is on the wire, unless shared; 0: plenty */
	bool watch_rx;		     /* the stacks look at what is left of rx_mbufs */
	bool share_mbufs;	     /* frames are passed as they are, as net_ring does */
	bool trust;		     /* checksums of frames are not looked at: for long runs */
	struct rp_tcp_config tcp[2]; /* what is zero has the default of the simulation */
	/* Sees each frame as it is sent; false drops it. */
	bool (*tap)(void *ctx, const struct sim_frame_info *f);
	void *tap_ctx;
	/* One turn in `pause_every` (0: none) is followed by a pause of up to `pause_ns`. */
	uint32_t pause_every;
	uint64_t pause_ns;
	unsigned check_every; /* steps between recounts; 0: every step */
};

struct sim_host {
	struct rp_tcp_stack *stack;
	struct rte_mempool *header_pool, *payload_pool, *rx_pool;
	unsigned header_free, payload_free, rx_free;
	uint32_t edge; /* right edge of the window it told, per the last connection watched */
	bool edge_known;
};

struct sim {
	struct sim_config config;
	uint64_t now_ns, steps;
	struct sim_host host[2];
	struct rp_impair impair[2]; /* by sender */
	uint64_t link_free_ns[2];
	uint64_t frames[2], dropped_queue[2], marked[2];
	uint64_t supers[2]; /* super-segments, which the simulation cuts like a device */
	uint32_t queue_most[2];
	struct sim_heap {
		struct sim_event *events;
		uint32_t count, size;
	} heap[2]; /* by receiver */
	uint64_t event_seq;
	uint64_t paused_ns[2]; /* until then the host does nothing */
	struct rp_rand rand;
	uint32_t in_queue[2];
	/* Bytes of payload that a host sent, and that were not lost of it. */
	uint64_t payload_sent[2], payload_through[2];
	bool cut;
};

struct sim_event {
	uint64_t at_ns, seq;
	struct rte_mbuf *m;
};

int sim_eal(void);
/**
 * Of the addresses: 4, or 6 where the environment has RP_FAMILY=6. An MTU then is 20 bytes more, so
 * that segments are as large as with IPv4.
 */
unsigned sim_family(void);
/** Of a host: 10.0.0.1 or 2, fd00::1 or 2. */
struct rp_endpoint sim_endpoint(unsigned host, uint16_t port);
uint16_t sim_mtu(const struct sim_config *config);
struct sim *sim_new(const struct sim_config *config);
/** Runs until `until_ns` or until `done` says so (may be NULL). True: it did. */
bool sim_run(struct sim *s, uint64_t until_ns, bool (*done)(void *ctx), void *ctx);
/** One step: to the next event or deadline, at most to `until_ns`. False: it stands there. */
bool sim_step(struct sim *s, uint64_t until_ns);
/** One turn of a host's loop, now. */
void sim_turn(struct sim *s, unsigned host);
void sim_set_impair(struct sim *s, const struct rp_impair_spec *spec);
/** Puts a frame into a host as if it came from the wire. */
void sim_inject(struct sim *s, unsigned to, const void *frame, uint32_t length);
/** All connections must be gone (records in TIME-WAIT may be there). Checks pools and sums. */
void sim_free(struct sim *s);

__attribute__((noreturn, format(printf, 2, 3))) void sim_fail(
	const struct sim *s, const char *format, ...);
#define SIM_CHECK(s, cond)                                                   \
	do {                                                                 \
		if (!(cond))                                                 \
			sim_fail(s, "%s:%d: %s", __FILE__, __LINE__, #cond); \
	} while (0)

/* Applications. */

enum app_close { APP_CLOSE_WHEN_SENT, APP_CLOSE_ON_FIN, APP_CLOSE_NEVER };

struct app {
	struct sim *sim;
	unsigned host;
	struct rp_conn *conn;
	uint64_t pattern; /* what it sends is a function of this and the offset */
	uint64_t peer_pattern;
	uint64_t to_send, sent, received;
	uint32_t chunk; /* bytes of a send; 0: 1..16384 at random */
	bool pieces;	/* buffers are filled as far as the transport says */
	bool hold;	/* do not consume */
	uint32_t held;
	enum app_close close;
	bool echo;
	bool opened, peer_fin, closed, close_called;
	unsigned closes, writables, datas;
	enum rp_close_reason reason;
	struct rp_rand rand;
	void (*on_open)(struct app *a);
	void (*on_data)(struct app *a);
};

void app_init(struct app *a, struct sim *s, unsigned host, uint64_t pattern, uint64_t peer_pattern);
/** 0 or -errno. The next connection to `port` becomes this app's. */
int app_listen(struct app *a, uint16_t port, const struct rp_conn_options *options);
int app_dial(struct app *a, uint16_t port, const struct rp_conn_options *options);
/** Sends while it is taken. */
void app_pump(struct app *a);
void app_consume(struct app *a);
void app_close(struct app *a);
uint8_t app_byte(uint64_t pattern, uint64_t offset);
