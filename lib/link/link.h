/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The links of one node, as one of its shards sees them: who dials, the handshake, the bundle of k
 * links to each peer, the heartbeat, a bounded queue of frames a link, and cutting received bytes
 * into frames. Spec: links.md.
 *
 * Each shard has an object. One of them, on the shard `lead`, decides for the node: it begins a
 * bundle, gives each link of it to a shard that has transports (its owner), says which links of a
 * dialer are taken, and declares the bundle up when all k links are, and down when one is not. The
 * others dial, accept, shake hands and carry frames. They talk by struct rp_link_msg, which the
 * caller carries: whole, once, and in order between any two shards.
 *
 *   1. rp_links_create(); rp_links_listen() on a transport; rp_links_add_peer() for each peer, on
 *      every shard. Of two nodes the one with the lower id dials.
 *   2. Each loop turn: feed the transport, then rp_links_poll(now) and, after everybody has sent,
 *      rp_links_flush(now): what was sent in the turn leaves as one chain a peer.
 *      rp_links_next_deadline() says how long one may sleep.
 *   3. on_up(node, bundle) ... on_frames()/rp_links_send() ... on_down(node, why).
 *   4. A frame goes by the link of its queue's hash: rp_links_owner() says on which shard
 *      rp_links_send() takes it. Frames made for an earlier bundle are refused: the caller names
 * the bundle that it made them for. A frame may come to a link's owner before the news that its
 *      bundle is up; it waits there.
 *
 * One thread owns an object. The core reads no clock and draws no randomness: both come from the
 * caller. All times are nanoseconds.
 */

#include <stddef.h>
#include <stdint.h>

#include <base/qmsg.h>
#include <base/transport.h>
#include <base/units.h>
#include <link/frame.h>
#include <tls/tls.h>

struct rp_place;
struct rte_mbuf;
struct rte_mempool;
struct rp_links;

#define RP_LINK_SECRET_BYTES_MIN 32
#define RP_LINK_SECRET_BYTES_MAX 256

/** Why a bundle went down. */
#define RP_LINK_DOWNS(X)                                            \
	X(CLOSED, "the peer closed it")                             \
	X(RESET, "reset")                                           \
	X(TIMEOUT, "no acknowledgement within links.dead_after_ms") \
	X(DEAD, "no heartbeat within links.dead_after_ms")          \
	X(VIOLATION, "protocol violation")                          \
	X(SUPERSEDED, "the peer began a new bundle")                \
	X(REMOVED, "the peer was removed")                          \
	X(STOPPED, "this node is stopping")                         \
	X(NOMEM, "out of buffers")                                  \
	X(NETWORK, "the network failed")                            \
	X(INCOMPLETE, "not all links within links.handshake_grace_ms")

enum rp_link_down {
#define X(name, text) RP_LINK_DOWN_##name,
	RP_LINK_DOWNS(X)
#undef X
		RP_LINK_DOWN_COUNT,
};

/** Why a handshake was refused; the numbers are on the wire. */
#define RP_LINK_REFUSALS(X)                                            \
	X(NONE, 0, "accepted")                                         \
	X(VERSION, 1, "unknown protocol version")                      \
	X(CLUSTER, 2, "another cluster")                               \
	X(DIRECTION, 3, "the node with the lower id dials")            \
	X(K, 4, "links.per_peer differs")                              \
	X(RANGE, 5, "link index out of range")                         \
	X(MAC, 6, "the secret is wrong")                               \
	X(UNKNOWN_PEER, 7, "the node is not a configured peer")        \
	X(WRONG_NODE, 8, "another node was meant")                     \
	X(OLD_EPOCH, 9, "the bundle's epoch is old")                   \
	X(MODE, 10, "plain or TLS does not match links.tls")           \
	X(MALFORMED, 11, "not a handshake")                            \
	X(TIMEOUT, 12, "not finished within links.handshake_grace_ms") \
	X(CAP, 13, "too many handshakes in flight")                    \
	X(GONE, 14, "closed before the handshake was over")            \
	X(TLS, 15, "TLS: no handshake, or no certificate of tls.peer_ca_file")

enum rp_link_refusal {
#define X(name, number, text) RP_LINK_REFUSAL_##name = number,
	RP_LINK_REFUSALS(X)
#undef X
		RP_LINK_REFUSAL_COUNT,
};

/** Plain counters of one object; `refused`, `refused_out` and `downs` are apart, one a reason. */
#define RP_LINK_COUNTERS(X)                                                                     \
	X(dials, "links dialed")                                                                \
	X(dials_failed, "of these, those that found no connection")                             \
	X(redials, "bundles begun again after one that did not come up or went down")           \
	X(accepts, "connections accepted on links.listen")                                      \
	X(handshakes_done, "links that stood, dialed and accepted")                             \
	X(ups, "bundles that came up")                                                          \
	X(time_to_up_ns, "from the first dial to the bundle's being up, summed, where we dial") \
	X(secret_previous, "peers that proved links.previous_secret_file")                      \
	X(frames_sent, "frames given to connections")                                           \
	X(frames_received, "frames received whole")                                             \
	X(bytes_sent, "bytes given to connections")                                             \
	X(bytes_received, "bytes received")                                                     \
	X(sends_batched, "chains given to connections: frames of one turn are one")             \
	X(queue_full, "frames refused for now: links.peer_queue_frames wait for the link")      \
	X(stale_frames, "frames refused: made for an earlier bundle, or none is up")            \
	X(frames_dropped, "frames freed that waited when their bundle went down")               \
	X(pings_sent, "heartbeats sent")                                                        \
	X(pongs_received, "answers to them")                                                    \
	X(pings_received, "heartbeats of peers")                                                \
	X(no_buffers, "times that no buffer was free")                                          \
	X(incomplete, "bundles given up before all of their links stood")

struct rp_link_counters {
#define X(name, help) uint64_t name;
	RP_LINK_COUNTERS(X)
#undef X
	uint64_t downs[RP_LINK_DOWN_COUNT];
	uint64_t refused[RP_LINK_REFUSAL_COUNT];     /**< inbound handshakes, by reason */
	uint64_t refused_out[RP_LINK_REFUSAL_COUNT]; /**< our dials, by reason */
};

/** From shard to shard; what each is for, and its fields, in link_priv.h. */
struct rp_link_msg {
	uint8_t type, link, why, flags;
	uint32_t bundle, token;
	uint64_t node, epoch, boot;
	uint64_t sent_ns, answered_ns; /**< of PINGs: ours that was answered, theirs that we did */
	uint8_t owners[RP_SHARDS_MAX]; /**< shard of each link */
};

struct rp_links_ops {
	/** To the object of another shard, for rp_links_on_msg(). NULL where there is one shard. */
	void (*post)(void *ctx, unsigned shard, const struct rp_link_msg *m);
	/** Fills `out` with bytes nobody can guess: nonces come from here. */
	void (*random)(void *ctx, void *out, size_t length);
	/** The bundle to `node` is up; `bundle` names it for rp_links_send() and is never 0. */
	void (*on_up)(void *ctx, uint64_t node, uint32_t bundle, uint64_t boot, uint64_t now_ns);
	void (*on_down)(void *ctx, uint64_t node, enum rp_link_down why, uint64_t now_ns);
	/**
	 * take: whole frames of one link, in order, RP_LINK_BURST at most; of each the header comes
	 * first and is contiguous, and its length was checked. Never PING, PONG.
	 */
	void (*on_frames)(
		void *ctx, uint64_t node, struct rte_mbuf **frames, unsigned n, uint64_t now_ns);
	/** There is room again in the peer's queue after an -EAGAIN. */
	void (*on_room)(void *ctx, uint64_t node, uint64_t now_ns);
	/** An answer to the PING sent at `sent_ns`: the hold of queues.md counts from there. May be
	 * NULL. */
	void (*on_answered)(void *ctx, uint64_t node, uint64_t sent_ns, uint64_t now_ns);
	/** A PING of the peer was answered now. May be NULL. */
	void (*on_ping)(void *ctx, uint64_t node, uint64_t now_ns);
};

struct rp_links_config {
	uint64_t node, boot; /**< this node's id and boot id, never 0 */
	uint8_t cluster_uuid[RP_UUID_BYTES];
	uint8_t per_peer;	     /**< k, 1..RP_SHARDS_MAX */
	uint8_t shard, shards, lead; /**< shards 0 = 1 */
	/**< Bit of each shard that has transports, and may own links; 0 = the lead alone. */
	uint32_t owner_shards;
	bool skip_shard_zero;	     /**< links.skip_shard_zero */
	const void *secret;	     /**< copied; NULL = open links */
	size_t secret_length;	     /**< RP_LINK_SECRET_BYTES_MIN or more */
	const void *secret_previous; /**< copied; accepted, never sent; NULL = none */
	size_t secret_previous_length;
	uint64_t heartbeat_ns;
	uint64_t dead_after_ns; /**< also the user timeout of each connection */
	/** Of each connection; its user timeout is not used. */
	struct rp_conn_options conn;
	uint64_t handshake_grace_ns;
	uint64_t redial_ns_min,
		redial_ns_max;	    /**< back-off doubles from one to the other; 0 = 50 ms, 2 s */
	uint32_t peer_queue_frames; /**< frames that wait for one link */
	uint32_t posted_frames; /**< the same, with those of rp_links_send_posted(); 0 = 4 times it
				 */
	uint32_t peers_max;
	uint32_t handshakes_max;  /**< inbound, in flight */
	struct rte_mempool *pool; /**< borrow: headers, copies and indirect mbufs */
	/**
	 * Referenced, of this shard alone: links are TLS where both are given, with certificates of
	 * both sides. NULL: plain.
	 */
	struct rp_tls_config *tls_client, *tls_server;
	struct rte_mempool *data_pool; /**< borrow: what TLS decrypts and encrypts; NULL = pool */
};

/** borrow: pool, ops, ctx for the object's life. NULL and errno: EINVAL, ENOMEM. */
struct rp_links *rp_links_create(
	const struct rp_links_config *config, const struct rp_links_ops *ops, void *ctx);
/** Aborts what is open, without events; NULL is fine. */
void rp_links_destroy(struct rp_links *l);
/**
 * The secrets that handshakes prove from now on, copied; length 0: none, as with NULL at creation.
 * Links that stand stay (links.md, "Opening a link": rotation).
 */
void rp_links_set_secrets(struct rp_links *l, const void *secret, size_t length,
	const void *previous, size_t previous_length);
/**
 * take: references, for handshakes from now on; links that stand keep theirs. Given back at once
 * where links are plain: whether they are is said at creation.
 */
void rp_links_set_tls(
	struct rp_links *l, struct rp_tls_config *client, struct rp_tls_config *server);

/** Listens on `port` of `t` (borrow). 0 or -errno of the transport. */
int rp_links_listen(struct rp_links *l, struct rp_transport *t, uint16_t port);
/** The accept function behind rp_links_listen(); `listen_ctx` is the rp_links. */
int rp_links_accept(void *listen_ctx, struct rp_conn *c, const struct rp_endpoint *peer,
	const struct rp_conn_events **events, void **ctx, uint64_t now_ns);

/**
 * A peer, and where to dial it when its id is the higher one (`endpoint` may be NULL otherwise, or
 * while it is unknown: the peer is then only accepted). A known peer gets the new address for its
 * next dial. 0, -EINVAL (this node), -ENOSPC.
 */
int rp_links_add_peer(struct rp_links *l, uint64_t node, struct rp_transport *t,
	const struct rp_endpoint *endpoint, uint64_t now_ns);
/**
 * How the peer spreads flows over its shards, for dials that shall land in a link's range there:
 * `place` (net/place.h; borrow, NULL: unknown), how many shards it has, and which of them own
 * links.
 */
void rp_links_place_peer(struct rp_links *l, uint64_t node, const struct rp_place *place,
	uint32_t shards, uint32_t owners);
/** Closes the bundle (on_down REMOVED) and forgets the peer. */
void rp_links_remove_peer(struct rp_links *l, uint64_t node, uint64_t now_ns);

/**
 * Queues one whole frame of the queue of `hash` for the peer. 0: taken. -EAGAIN: the link's queue
 * is full, not taken, on_room() follows. -ENOTCONN: no bundle, or another one than `bundle`, or the
 * link is not on this shard; not taken.
 */
int rp_links_send(
	struct rp_links *l, uint64_t node, uint32_t bundle, uint32_t hash, struct rte_mbuf *frame);
/**
 * Room for a small frame behind what waits, which counts as sent: the caller writes all of its
 * `bytes` there before it calls anything else. NULL: not now, or not here; rp_links_send() knows
 * why. It saves an mbuf for each frame.
 */
uint8_t *rp_links_append(
	struct rp_links *l, uint64_t node, uint32_t bundle, uint32_t hash, uint32_t bytes);
/** The shard that owns the link of `hash` to the node; -ENOTCONN without a bundle. */
int rp_links_owner(const struct rp_links *l, uint64_t node, uint32_t hash);
/**
 * Where a peer's link belongs: of its range's usable shards the one that its slot says (links.md,
 * "Placement"). `usable` has a bit for each shard with transports. -ENOENT: none has.
 */
int rp_link_place(uint32_t slot, uint32_t link, uint32_t per_peer, uint32_t shards, uint32_t usable,
	bool skip_shard_zero);
/**
 * The same for a frame that another shard has posted to this one: its sender cannot take it back,
 * so it may go beyond peer_queue_frames, up to posted_frames. The sender bounds itself, by
 * peer_frames_max of lib/deliver.
 */
int rp_links_send_posted(
	struct rp_links *l, uint64_t node, uint32_t bundle, uint32_t hash, struct rte_mbuf *frame);
/** Frames that rp_links_send() would take now; 0 without a bundle. */
uint32_t rp_links_room(const struct rp_links *l, uint64_t node, uint32_t hash);
/** Gives what was queued to the transports; once a loop turn, after all senders. */
void rp_links_flush(struct rp_links *l, uint64_t now_ns);

/** take: nothing. A message of another shard's object. */
void rp_links_on_msg(
	struct rp_links *l, unsigned from, const struct rp_link_msg *m, uint64_t now_ns);

/** The layer above found a violation: closes the bundle with RP_LINK_DOWN_VIOLATION. Any shard. */
void rp_links_violation(struct rp_links *l, uint64_t node, uint64_t now_ns);

/** Dials, deadlines, heartbeats. */
void rp_links_poll(struct rp_links *l, uint64_t now_ns);
/** When rp_links_poll() next has something to do; RP_NEVER when nothing. */
uint64_t rp_links_next_deadline(const struct rp_links *l);

/** Closes every bundle in order (FIN after what is queued) and refuses new ones. */
void rp_links_stop(struct rp_links *l, uint64_t now_ns);

struct rp_link_info {
	uint64_t node;
	bool up, dialing;
	uint32_t bundle;
	uint64_t boot; /**< of the peer */
	uint64_t up_since_ns;
	uint64_t answered_ns;	/**< sending time of the last PING that was answered */
	uint64_t rtt_ns;	/**< of that PING */
	uint32_t queued_frames; /**< of the links of this shard */
	/* On the lead: of our last dial; how often a bundle went down, why and when the last did.
	 */
	enum rp_link_refusal last_refusal;
	uint32_t downs;
	enum rp_link_down last_down;
	uint64_t down_ns;
	uint8_t per_peer, links_here;
	uint8_t owners[RP_SHARDS_MAX]; /**< while up */
};

/** 0, or -ENOENT. */
int rp_links_info(const struct rp_links *l, uint64_t node, struct rp_link_info *info);

/** How far a link of a bundle is. */
#define RP_LINK_STAGES(X)                                         \
	X(DIALING, "dialing")	  /* no answer yet */             \
	X(HANDSHAKE, "handshake") /* of one that we dialed */     \
	X(PROVEN, "proven")	  /* the others are waited for */ \
	X(UP, "up")

enum rp_link_stage {
#define X(name, text) RP_LINK_STAGE_##name,
	RP_LINK_STAGES(X)
#undef X
		RP_LINK_STAGE_COUNT,
};

/** One link of a bundle, on the shard that has it. Counts are of this connection. */
struct rp_link_line_info {
	uint64_t node;
	uint8_t link;
	enum rp_link_stage stage;
	bool dialed;  /**< by this node, which then chose the port of its end */
	bool at_home; /**< the shard is one of the link's range */
	bool aimed;   /**< dialed: the port was chosen for a shard of the peer, too */
	const struct rp_transport *transport;
	struct rp_endpoint local, peer; /**< family 0: not known yet */
	uint32_t queued_frames;
	uint64_t rtt_ns, answered_ns; /**< of the last PING answered; 0: none was */
	uint64_t frames_sent, frames_received, bytes_sent, bytes_received;
};

/** Calls `fn` for each link to the peer that has a connection on this shard. */
void rp_links_lines(const struct rp_links *l, uint64_t node,
	void (*fn)(void *ctx, const struct rp_link_line_info *info), void *ctx);
const char *rp_link_stage_text(enum rp_link_stage stage);
/** borrow: lives as long as the object. */
const struct rp_link_counters *rp_links_counters(const struct rp_links *l);
uint32_t rp_links_up_count(const struct rp_links *l);
/** Connections in the handshake, inbound. */
uint32_t rp_links_handshakes(const struct rp_links *l);

const char *rp_link_down_text(enum rp_link_down why);
const char *rp_link_refusal_text(enum rp_link_refusal why);
