/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The state behind link.h. A link_conn is one connection from dial or accept to its close; a
 * link_line is one of the k links to a peer, on the shard that owns it; a link_peer is what is
 * known of a node and of its bundle; and on the lead's shard also how far a new bundle is.
 *
 *   link.c       creation, peers, timers
 *   lead.c       the lead: begins bundles, admits, declares up and down
 *   member.c     what the lead says, on the shards that carry the links
 *   handshake.c  from the open connection to the verdict
 *   line.c       frames out and in, heartbeat
 *   view.c       bundles and links, for people
 */

#include <base/list.h>
#include <link/frame.h>
#include <link/link.h>

#include "hello_priv.h"

/* Most connections of one link at a time: the one in use, and some that are closing. */
#define LINK_CONNS_PER_LINK 4
#define LINK_BATCH_BYTES_MAX 65536
#define LINK_BATCH_SEGMENTS_MAX 256
#define LINK_REDIAL_NS_MIN (50 * RP_NS_PER_MS)
#define LINK_REDIAL_NS_MAX (2 * RP_NS_PER_S)
/* A shortage of mbufs is looked at again after this. */
#define LINK_RETRY_NS (1 * RP_NS_PER_MS)

/* How many frames are in an mbuf of a line's ring: a field of it that is nobody's on the way out.
 */
#define LINK_FRAMES hash.usr

/* Types of rp_link_msg. A bundle's number is the lead's; it only grows. */
enum link_msg {
	LINK_MSG_OPEN = 1, /* lead to owner: dial. node, link, bundle, epoch, flags */
	LINK_MSG_PROVEN,   /* owner to lead: that link stands. node, link, bundle, boot */
	LINK_MSG_FAILED,   /* owner to lead: it does not. node, link, bundle, why: a refusal, NONE:
			      the network's fault */
	LINK_MSG_ASK,	   /* owner to lead: a dialer has proved itself. node, link, epoch, boot,
			      token */
	LINK_MSG_ANSWER, /* lead to owner: taken or not. node, link, bundle, token, why: refusal */
	LINK_MSG_UP,	 /* lead to all, owner to all: node, bundle, boot, owners */
	LINK_MSG_LOST,	 /* any to lead: node, bundle, why: enum rp_link_down */
	LINK_MSG_DOWN,	 /* lead to all: node, bundle, why: enum rp_link_down, sent, answered */
	LINK_MSG_PING,	 /* owner to lead: node, sent, answered */
};
#define LINK_MSG_ECN_ASK 1

enum link_state {
	LINK_FREE,
	LINK_PREAMBLE,	/* accepted: preamble awaited */
	LINK_HELLO,	/* accepted: hello awaited */
	LINK_FINISH,	/* accepted: challenge sent, finish awaited */
	LINK_DECIDE,	/* accepted: proven, the lead's answer awaited */
	LINK_DIALING,	/* dialed: on_open awaited */
	LINK_SECURING,	/* dialed: TLS is not open yet */
	LINK_CHALLENGE, /* dialed: hello sent, challenge awaited */
	LINK_VERDICT,	/* dialed: finish sent, verdict awaited */
	LINK_PROVEN,	/* both: this link stands, the bundle does not yet */
	LINK_UP,
	LINK_CLOSING, /* close() called: only on_close matters */
};

struct link_conn {
	struct rp_links *links;
	struct rp_conn *conn;	/* NULL once it is gone */
	struct link_line *line; /* NULL: accepted and not admitted */
	struct rp_list entry;	/* in handshakes (accepted, not admitted), closing, or free */
	enum link_state state;
	uint32_t depth; /* events running: freed when the last returns */
	uint32_t life;	/* which use of this slot it is: for tokens */
	uint32_t bundle;
	uint64_t deadline_ns;
	struct rte_mbuf *rx;	      /* received, not yet cut; plain */
	struct rp_tls_session *tls;   /* NULL: not (yet) */
	struct rte_mbuf *cipher;      /* received, not yet decrypted */
	bool aimed;		      /* dialed: its port suits a shard of the peer, too */
	bool rx_starved;	      /* no mbuf for the next frame: tried again by poll */
	enum rp_link_refusal refusal; /* accepted: told after the finish */
	struct link_hello hello;
};

struct link_line {
	struct link_peer *peer;
	uint8_t link;
	struct rp_list dirty;	/* in links->dirty while it has something to flush */
	struct link_conn *conn; /* dialing, in a handshake we dialed, proven, or up */

	struct rte_mbuf **ring; /* posted_frames slots, or a power of two above it */
	uint32_t ring_mask, head, tail;
	uint32_t waiting;	  /* frames in the ring's mbufs, see LINK_FRAMES */
	struct rte_mbuf *open;	  /* the last of the ring, when more frames may be put into it */
	struct rte_mbuf *pending; /* a batch that the transport refused */
	bool blocked, room_wanted;

	uint64_t ping_at_ns, answered_ns, rtt_ns, last_ping_ns;
	bool ping_due, pong_due, pinged;
	uint64_t pong_value;

	/* Of this connection. */
	uint64_t frames_sent, frames_received, bytes_sent, bytes_received;
};

enum link_lead_state {
	LINK_LEAD_IDLE,	   /* no bundle */
	LINK_LEAD_FORMING, /* some of its links may stand */
	LINK_LEAD_UP,
};

/* The lead's view of a peer. */
struct link_lead {
	enum link_lead_state state;
	uint32_t bundle, admitted, proven; /* bits of links */
	uint64_t epoch;			   /* of the last bundle begun, ours or the peer's */
	uint64_t boot;			   /* of the peer, as its links say; 0: none has yet */
	uint64_t deadline_ns;
	uint8_t owners[RP_SHARDS_MAX];
	uint64_t redial_at_ns, redial_wait_ns;
	uint64_t dial_since_ns; /* first dial since the bundle was down */
	uint32_t dials, downs;
	enum rp_link_refusal last_refusal;
	enum rp_link_down last_down;
	uint64_t down_ns; /* when the last bundle went down */
};

struct link_peer {
	struct rp_links *links;
	uint64_t node;
	bool added; /* known by rp_links_add_peer(); else only a trace of messages */
	struct rp_transport *transport;
	struct rp_endpoint endpoint;
	bool has_endpoint;
	const struct rp_place *far_place;
	uint32_t far_shards, far_owners;

	bool up;
	uint32_t bundle; /* that is up, or was last */
	uint32_t floor;	 /* bundles up to this one are over, or this one is up */
	uint64_t boot, up_since_ns;
	uint8_t owners[RP_SHARDS_MAX];
	uint64_t ping_sent_ns, ping_answered_ns; /* over all links that this shard heard of */
	struct link_line *lines[RP_SHARDS_MAX];	 /* per_peer of them; NULL: never owned here */
	struct link_lead lead;
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
	uint32_t conn_count;
	struct rp_list conns_free, handshakes, closing, dirty;
	uint32_t handshake_count, up_count, bundle_last;
	uint64_t deadline_ns;
	bool stopping;
	struct rp_link_counters counters;
};

/* link.c */
struct link_peer *link_peer_of(const struct rp_links *l, uint64_t node);
/** The peer, made where it is not known; NULL: no room. */
struct link_peer *link_peer_get(struct rp_links *l, uint64_t node);
/** The peer's rank among those known. */
uint32_t link_peer_slot(const struct link_peer *p);
struct link_conn *link_conn_new(struct rp_links *l);
/** Back to the free ones when no event of it runs any more; its mbufs go at once. */
void link_conn_free(struct link_conn *c);
void link_conn_enter(struct link_conn *c);
void link_conn_leave(struct link_conn *c);
void link_arm(struct rp_links *l, uint64_t deadline_ns);
/** Orderly close; events go on until on_close(). */
void link_conn_close(struct link_conn *c, uint64_t now_ns);
/** RST; the conn is freed. */
void link_conn_abort(struct link_conn *c, uint64_t now_ns);
struct rp_conn_options link_conn_options(const struct rp_links *l);

static inline bool link_is_lead(const struct rp_links *l)
{
	return l->config.shard == l->config.lead;
}

/* lead.c */
void link_lead_on_msg(
	struct rp_links *l, unsigned from, const struct rp_link_msg *m, uint64_t now_ns);
void link_lead_poll(struct link_peer *p, uint64_t now_ns);
void link_lead_schedule(struct link_peer *p, uint64_t now_ns);
/** All links of the bundle close, whatever it has come to; nothing where there is none. */
void link_lead_down(struct link_peer *p, enum rp_link_down why, uint64_t now_ns);

/* member.c */
void link_post(struct rp_links *l, unsigned to, const struct rp_link_msg *m, uint64_t now_ns);
/** To every other shard. */
void link_post_all(struct rp_links *l, const struct rp_link_msg *m, bool lead_too, uint64_t now_ns);
void link_member_on_msg(struct rp_links *l, const struct rp_link_msg *m, uint64_t now_ns);
/** The connection, of a link that stands, is over (closed here where `c` says so): tells the lead.
 */
void link_member_lost(struct link_conn *c, enum rp_link_down why, uint64_t now_ns);
/** Ends a handshake that we dialed. */
void link_member_failed(struct link_conn *c, enum rp_link_refusal why, uint64_t now_ns);
/** The handshake of a link that we dialed is over, well. */
void link_member_proven(struct link_conn *c, uint64_t boot, uint64_t now_ns);
void link_member_ask(struct link_conn *c, uint64_t now_ns);

/* handshake.c */
extern const struct rp_conn_events link_events;
/** Ends a handshake of either side: counts `why`, closes, tells the lead. */
void link_handshake_fail(struct link_conn *c, enum rp_link_refusal why, uint64_t now_ns);
/** The lead's word on a dialer that has proved itself. False: the verdict could not be sent. */
bool link_handshake_verdict(struct link_conn *c, enum rp_link_refusal refusal, uint64_t now_ns);

/* secure.c */
/** TLS from here on; the accepting side is in LINK_PREAMBLE. 0 or -ENOMEM. */
int link_secure_begin(struct link_conn *c);
void link_secure_end(struct link_conn *c);
/** Decrypts what has come into c->rx. 0; -ENOBUFS: again later; -EPIPE: closed; else it failed. */
int link_secure_pump(struct link_conn *c, uint64_t now_ns);
/** take `chain`; the same encrypted, or NULL: no buffers, and the connection is of no use more. */
struct rte_mbuf *link_secure_seal(struct link_conn *c, struct rte_mbuf *chain);
/** Zeros for a plain connection. False: there is none. */
bool link_secure_binding(const struct link_conn *c, uint8_t binding[LINK_BINDING_BYTES]);

/* line.c */
/** The line, made where it is not known; NULL: no memory. */
struct link_line *link_line_get(struct link_peer *p, uint8_t link);
void link_line_free(struct link_line *line);
/** Takes a connection into use: what an earlier one left is dropped. */
void link_line_attach(
	struct link_line *line, struct link_conn *c, uint32_t bundle, uint64_t now_ns);
/** Drops what waits. */
void link_line_drop(struct link_line *line);
void link_line_up(struct link_line *line, uint64_t now_ns);
/** Cuts what has arrived into frames and hands them up. */
void link_line_receive(struct link_conn *c, uint64_t now_ns);
void link_line_flush(struct link_line *line, uint64_t now_ns);
void link_line_poll(struct link_line *line, uint64_t now_ns);
void link_line_mark(struct link_line *line);
