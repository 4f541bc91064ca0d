/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The state behind link.h. A link_conn is one connection from dial or accept to its close; a
 * link_peer is what is known of a node, and its bundle while that is up.
 *
 *   link.c       creation, peers, dialing, timers
 *   handshake.c  from the open connection to the verdict
 *   bundle.c     up and down, frames out and in, heartbeat
 */

#include <base/list.h>
#include <link/frame.h>
#include <link/link.h>

#include "hello_priv.h"

/* Most connections of one peer at a time: the one in use, and one that is closing. */
#define LINK_CONNS_PER_PEER 4
#define LINK_BATCH_BYTES_MAX 65536
#define LINK_BATCH_SEGMENTS_MAX 256
#define LINK_REDIAL_NS_MIN (50 * RP_NS_PER_MS)
#define LINK_REDIAL_NS_MAX (2 * RP_NS_PER_S)
/* A shortage of mbufs is looked at again after this. */
#define LINK_RETRY_NS (1 * RP_NS_PER_MS)

enum link_state {
	LINK_FREE,
	LINK_PREAMBLE,	/* accepted: preamble awaited */
	LINK_HELLO,	/* accepted: hello awaited */
	LINK_FINISH,	/* accepted: challenge sent, finish awaited */
	LINK_DIALING,	/* dialed: on_open awaited */
	LINK_CHALLENGE, /* dialed: hello sent, challenge awaited */
	LINK_VERDICT,	/* dialed: finish sent, verdict awaited */
	LINK_UP,
	LINK_CLOSING, /* close() called: only on_close matters */
};

struct link_conn {
	struct rp_links *links;
	struct rp_conn *conn;	/* NULL once it is gone */
	struct link_peer *peer; /* NULL: accepted and not proven */
	struct rp_list entry;	/* in handshakes (accepted, unproven), closing, or free */
	enum link_state state;
	uint32_t depth; /* events running: freed when the last returns */
	uint64_t deadline_ns;
	struct rte_mbuf *rx;	      /* received, not yet cut */
	bool rx_starved;	      /* no mbuf for the next frame: tried again by poll */
	enum rp_link_refusal refusal; /* accepted: told after the finish */
	struct link_hello hello;
};

struct link_peer {
	struct rp_links *links;
	uint64_t node;
	struct rp_transport *transport;
	struct rp_endpoint endpoint;
	bool has_endpoint;
	struct rp_list dirty; /* in links->dirty while it has something to flush */

	struct link_conn *conn; /* dialing, in a handshake we dialed, or up */
	bool up;
	uint32_t bundle;
	uint64_t epoch; /* of the last bundle begun, ours or (accepting) the peer's */
	uint64_t boot;
	uint64_t up_since_ns;

	uint64_t redial_at_ns, redial_wait_ns;
	uint64_t dial_since_ns; /* first dial since the bundle was down */
	uint32_t dials;
	enum rp_link_refusal last_refusal;

	struct rte_mbuf **ring; /* posted_frames slots, or a power of two above it */
	uint32_t ring_mask, head, tail;
	struct rte_mbuf *pending; /* a batch that the transport refused */
	bool blocked, room_wanted;

	uint64_t ping_at_ns, answered_ns, rtt_ns, last_ping_ns;
	bool ping_due, pong_due, pinged;
	uint64_t pong_value;
};

struct rp_links {
	struct rp_links_config config;
	struct rp_links_ops ops;
	void *ctx;
	uint8_t secret[RP_LINK_SECRET_BYTES_MAX], secret_previous[RP_LINK_SECRET_BYTES_MAX];
	struct link_peer **peers; /* peer_count of them, unordered */
	uint32_t peer_count;
	uint16_t *map; /* open addressing by node: index + 1 */
	uint32_t map_mask;
	struct link_conn *conns;
	struct rp_list conns_free, handshakes, closing, dirty;
	uint32_t handshake_count, up_count, bundle_last;
	uint64_t deadline_ns;
	bool stopping;
	struct rp_link_counters counters;
};

/* link.c */
struct link_peer *link_peer_of(const struct rp_links *l, uint64_t node);
struct link_conn *link_conn_new(struct rp_links *l);
/** Back to the free ones when no event of it runs any more; its mbufs go at once. */
void link_conn_free(struct link_conn *c);
void link_arm(struct rp_links *l, uint64_t deadline_ns);
void link_schedule_dial(struct link_peer *p, uint64_t now_ns);
/** Orderly close; events go on until on_close(). */
void link_conn_close(struct link_conn *c, uint64_t now_ns);
/** RST; the conn is freed. */
void link_conn_abort(struct link_conn *c, uint64_t now_ns);
void link_mark_dirty(struct link_peer *p);

/* handshake.c */
extern const struct rp_conn_events link_events;
/** Ends a handshake of either side: counts `why`, closes, has the dialer dial again. */
void link_handshake_fail(struct link_conn *c, enum rp_link_refusal why, uint64_t now_ns);

/* bundle.c */
void link_bundle_up(struct link_conn *c, struct link_peer *p, uint64_t boot, uint64_t now_ns);
/** `c` of the bundle is closed in order where `orderly`, else aborted (or gone already). */
void link_bundle_down(struct link_peer *p, enum rp_link_down why, bool orderly, uint64_t now_ns);
/** Cuts what has arrived into frames and hands them up. */
void link_bundle_receive(struct link_conn *c, uint64_t now_ns);
void link_bundle_flush(struct link_peer *p, uint64_t now_ns);
void link_bundle_heartbeat(struct link_peer *p, uint64_t now_ns);
