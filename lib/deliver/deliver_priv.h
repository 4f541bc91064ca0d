/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The state behind deliver.h.
 *
 *   deliver.c  creation, peers, the poll
 *   out.c      building frames and giving them to the link
 *   flow.c     messages of one (queue, node, kind) towards a node, and their stream
 *   tx.c       what the peer answers on our streams, stream timers
 *   rx.c       streams towards us
 *   credit.c   what they may send
 *   inbound.c  received frames, control messages
 *   unary.c    the fallback
 *   view.c     streams, for people
 *
 * A flow lives while it has messages or a stream. FORWARD and DELIVER flows send on a stream
 * (dl_tx) or by unary; a CONTROL flow holds the other types, which go to the link as they are and
 * are confirmed by sequence, or by unary. A dl_tx that is dropped is orphaned: it lives on without
 * a flow until the peer has answered its CLOSE, so that its handle is not used again too early.
 */

#include <base/list.h>
#include <deliver/deliver.h>

#include "codec_priv.h"

#define DL_WINDOW_MESSAGES 512
#define DL_STREAM_MESSAGES 1024
#define DL_CREDIT_IDLE_NS (1 * RP_NS_PER_S)
#define DL_STALL_NS (5 * RP_NS_PER_S)
#define DL_UNARY_WINDOW 64
#define DL_UNARY_BACKOFF_NS_MIN (50 * RP_NS_PER_MS)
#define DL_UNARY_BACKOFF_NS_MAX (2 * RP_NS_PER_S)
/* A flow that was answered STALL by unary, or got no stream, is tried again after this. */
#define DL_WAIT_NS (200 * RP_NS_PER_MS)
/* Frames a peer is given in one poll. */
#define DL_PUMP_FRAMES 256
/* Frames that were built when the link had no room. */
/* Messages on streams leave this part of the pool of frames. */
#define DL_POOL_LEFT_PART 4
#define DL_BACKLOG_FRAMES 64
#define DL_BACKLOG_SLACK 8
/* Payload up to this is copied behind the header; more is referenced. */
#define DL_COPY_BYTES_MAX 512

/* Fixed-size objects, touched only once they are used. */
struct dl_slab {
	uint8_t *base;
	uint32_t size, count, used, taken;
	void *free;
};

enum dl_kind {
	DL_FORWARD,
	DL_DELIVER,
	DL_CONTROL,
};

struct dl_cursor {
	struct rte_mbuf *segment;
	uint32_t offset, left;
};

struct dl_msg {
	struct rp_list entry; /* flow->messages, or rx->held */
	struct rp_list lane;  /* peer->lane: control, not sent */
	struct dl_flow *flow;
	struct rp_qmsg q; /* q.name lies in the flow or the rx */
	uint32_t bytes;	  /* of the payload */
	uint32_t frames;  /* sent, and not answered */
	uint32_t seq;	  /* control */
	bool sent;	  /* at least in part */
	/* Towards us: the result of on_msg(), DL_UNANSWERED before. */
	int answer;
	uint32_t answer_epoch;
	uint64_t answer_dispatcher;
};

#define DL_UNANSWERED (-1)

enum dl_tx_state {
	DL_TX_OPENING,
	DL_TX_OPEN,
	DL_TX_CLOSING,
};

enum dl_tx_want {
	DL_TX_WANT_OPEN = 1,
	DL_TX_WANT_RETURN = 2,
	DL_TX_WANT_CLOSE = 4,
};

/* A stream of ours. Sequences count its messages from 1. */
struct dl_tx {
	void *slab_next;
	bool live;
	uint8_t wants; /* frames to emit */
	bool returning, reset, peer_closed;
	enum dl_tx_state state;
	enum dl_kind kind;
	struct dl_peer *peer;
	struct dl_flow *flow; /* NULL: orphaned */
	uint32_t hash, remote;
	uint32_t seq_sent, seq_complete, seq_took, msgs_limit;
	uint64_t bytes_sent, bytes_limit;
	struct rp_list in_peer, dirty;
};
#define DL_TX_LINES 2

struct dl_flow {
	void *slab_next;
	bool live, room_wanted;
	bool started; /* `next` is sent in part */
	bool unary, unary_busy, reopen;
	enum dl_kind kind;
	uint8_t name_length;
	uint32_t hash, count, unary_left, unary_gen;
	struct dl_peer *peer;
	struct dl_flow *hash_next;
	struct rp_list in_peer, ready, timer, unary_entry;
	struct rp_list messages;
	struct dl_msg *next; /* first that is not wholly sent on the stream */
	struct dl_cursor cursor;
	struct dl_tx *tx;
	uint64_t stamp;	    /* last progress */
	uint64_t retry_ns;  /* while it is in d->waiting */
	uint64_t reopen_ns; /* no stream is asked for before */
	uint32_t epoch;
	uint64_t dispatcher;
	uint8_t name[RP_NAME_BYTES_MAX];
};
#define DL_FLOW_LINES 5

enum dl_rx_want {
	DL_RX_WANT_OPENED = 1,
	DL_RX_WANT_CREDIT = 2,
	DL_RX_WANT_RETURNED = 4,
	DL_RX_WANT_CLOSE = 8,
	DL_RX_WANT_PROCESS = 16,
};

/* A stream of the peer towards us. What a small message touches comes first. */
struct dl_rx {
	void *slab_next;
	bool live, holding;
	bool partial, discard;	     /* a message is incomplete; it is too large and thrown away */
	bool resetting, peer_closed; /* we gave it up; its opener's CLOSE has come */
	bool superseded;	     /* unary has gone past it: what it still brings is a repeat */
	uint8_t wants;
	uint8_t kind; /* frame type */
	uint8_t name_length;
	struct dl_peer *peer;
	struct rp_list dirty;
	struct rp_list held; /* complete, not resolved */
	uint32_t hash, remote;
	uint32_t seq_head, seq_done, took, took_sent, msgs_limit;
	uint32_t epoch;
	uint64_t dispatcher;
	uint64_t bytes_received, bytes_resolved, bytes_limit, reserved, base;
	uint64_t partial_end; /* bytes_received when the message is complete */
	uint64_t whole_end;   /* the message that has the peer's whole grant ends here */
	struct rp_list needy, hold_entry;
	uint8_t name[RP_NAME_BYTES_MAX];
	/* Seldom, or of a message in parts. */
	struct rp_list in_peer;
	uint32_t partial_bytes;
	struct rp_qmsg q;
};
#define DL_RX_LINES 5

/* A control message that came in part. */
struct dl_partial {
	void *slab_next;
	struct rp_list entry;
	uint32_t hash, total;
	struct dl_extra extra;
	struct rp_qmsg q;
	uint8_t name[RP_NAME_BYTES_MAX];
};

/*
 * Control messages of one link that are to be confirmed, by the sender's shard. With k links on no
 * fewer shards the queues of a shard are on two links at most, neighbours: one even, one odd.
 */
#define DL_LINKS_OF_SHARD 2
struct dl_acks {
	uint32_t pending; /* bit a sender shard */
	uint32_t seq[RP_SHARDS_MAX], hash[RP_SHARDS_MAX];
};

struct dl_held_frame {
	struct rte_mbuf *frame;
	uint32_t hash;
};

struct dl_peer {
	struct rp_deliver *d;
	uint64_t node;
	uint32_t bundle;
	bool up, unary, blocked, gone;
	bool room_wanted, room_due;
	struct rp_list work;  /* in d->work while the pump has something to do */
	struct rp_list gated; /* flows that may not begin a message: peer_frames_max */
	struct rp_list flows, txs, rxs, ready, dirty_tx, dirty_rx, needy, partials;
	uint32_t messages, tx_count, rx_count, partial_count;
	uint32_t tx_links[RP_SHARDS_MAX], rx_links[RP_SHARDS_MAX]; /* the same, by link */
	uint32_t frames_open; /* of messages that are not answered */
	uint64_t credit_given;
	uint32_t share;	     /* of peer_budget_bytes, for a stream of the peer */
	struct dl_rx *whole; /* has the credit for one whole message beyond the budget */

	struct rp_list lane; /* control messages to be sent */
	bool lane_started;
	struct dl_cursor lane_cursor;
	struct dl_msg **ring; /* control messages sent and not confirmed, by sequence */
	uint32_t ring_head, ring_tail;

	struct dl_acks acks[DL_LINKS_OF_SHARD];

	struct rp_list unary_ready;
	uint32_t unary_outstanding;
	uint64_t unary_retry_at_ns, unary_backoff_ns;

	struct dl_held_frame backlog[DL_BACKLOG_FRAMES + DL_BACKLOG_SLACK];
	uint32_t backlog_count;
};

struct rp_deliver {
	uint64_t now_ns;	  /* of the turn that sends */
	uint32_t frames_spare;	  /* buffers that its messages may still take */
	uint32_t violation_count; /* of all kinds */
	struct rp_deliver_config config;
	struct rp_deliver_ops ops;
	void *ctx;
	struct dl_slab messages, parked, flows, txs, rxs, partials;
	struct dl_flow **flow_heads;
	uint32_t flow_mask;
	struct dl_peer *peers;
	uint32_t peer_count;
	struct dl_msg **rings;
	uint32_t ring_mask;
	struct rp_list work, holding;
	/* Flows with a stream by the time of their last progress: with messages, without, and
	 * without for so long that the credit went back. */
	struct rp_list busy, quiet, idle;
	struct rp_list waiting;	 /* flows to be tried again after DL_WAIT_NS */
	uint64_t retry_at_ns;	 /* earliest unary retry of a peer */
	uint64_t credit_given;	 /* to all peers' streams */
	uint32_t share;		 /* of budget_bytes, for a stream */
	uint32_t share_messages; /* likewise, of what can be parked */
	uint32_t wholes;	 /* peers with a `whole` */
	bool budget_short;	 /* a stream waits for what another peer's has */
	struct rp_deliver_counters counters;
};

/* deliver.c */
void *dl_slab_get(struct dl_slab *s);
void dl_slab_put(struct dl_slab *s, void *object);
void *dl_slab_at(const struct dl_slab *s, uint32_t index);
uint32_t dl_slab_index(const struct dl_slab *s, const void *object);
struct dl_peer *dl_peer_of(const struct rp_deliver *d, uint64_t node);
void dl_peer_mark(struct dl_peer *p);
/* The link of its bundle that a queue's frames go by. */
static inline uint32_t dl_link_of(const struct rp_deliver *d, uint32_t hash)
{
	return rp_hash_pick(hash, RP_MAX(d->config.links, 1u));
}
bool dl_peer_can_unary(const struct dl_peer *p);
/* Counts, and has the bundle closed. The caller returns at once: everything may be gone. */
void dl_violation(struct dl_peer *p, enum rp_deliver_violation why);

/* out.c */
/* take: a frame of the queue of `hash`. */
void dl_emit(struct dl_peer *p, uint32_t hash, struct rte_mbuf *frame);
void dl_backlog_flush(struct dl_peer *p);
void dl_backlog_drop(struct dl_peer *p);
/* Header and a small body; false: no buffers. */
bool dl_emit_small(struct dl_peer *p, uint32_t hash, struct rp_frame_header *h, const void *body,
	uint32_t length);
/* `head` and the next `n` bytes of the payload; NULL: no buffers, the cursor is as it was. */
struct rte_mbuf *dl_frame_build(struct rp_deliver *d, const uint8_t *head, uint32_t head_length,
	struct dl_cursor *cursor, uint32_t n);
/* The next frame of a message, its first with fields (started false) or a continuation, given to
 * the link; false: no buffers, nothing has left. */
bool dl_frame_send(struct dl_peer *p, const struct dl_msg *m, struct rp_frame_header *h,
	struct dl_cursor *cursor, bool *started, uint32_t n, const struct dl_extra *extra,
	bool with_name);
/* Moves payload bytes into mbufs of our pool, appended to *to; false: no buffers, nothing moved. */
bool dl_payload_move(struct rp_deliver *d, struct rte_mbuf **to, struct rte_mbuf *from);
/* Puts the first `n` bytes into one segment; false: no buffers. */
bool dl_payload_gather(struct rp_deliver *d, struct rte_mbuf **payload, uint32_t n);

/* flow.c */
struct dl_flow *dl_flow_find(
	struct rp_deliver *d, struct dl_peer *p, enum dl_kind kind, const struct rp_qmsg *m);
void dl_flow_release(struct dl_flow *f);
void dl_flow_touch(struct dl_flow *f, uint64_t now_ns);
void dl_flow_update(struct dl_flow *f);
/* Takes the first message off; its payload is the caller's. */
struct dl_msg *dl_flow_pop(struct dl_flow *f);
void dl_msg_free(struct rp_deliver *d, struct dl_msg *m);
void dl_flow_fall_back(struct dl_flow *f, enum rp_deliver_fallback why, uint64_t now_ns);
/** ops->on_note(), but of what is about messages. */
void dl_flow_note(const struct dl_flow *f, enum rp_deliver_note what, enum rp_deliver_fallback why);
void dl_flow_to_stream(struct dl_flow *f, uint64_t now_ns);
/* Everything that is not taken goes again; `repeat`: it may have been taken. */
void dl_flow_rewind(struct dl_flow *f, bool repeat);
void dl_flow_park(struct dl_flow *f, uint64_t now_ns);
/* Nothing but a refusal is left for what the flow has: on_refused for all. */
void dl_flow_refuse(struct dl_flow *f, enum rp_qstatus status, uint64_t now_ns);
/* Hands back everything for the peer that is not waiting for an RPC (or that, too). */
void dl_peer_lose(struct dl_peer *p, bool with_busy, uint64_t now_ns);
/* Whether a message may begin now: peer_frames_max. */
bool dl_head_allowed(const struct dl_peer *p);
bool dl_flow_pump(struct dl_flow *f);
bool dl_lane_pump(struct dl_peer *p);
void dl_control_confirm(struct dl_peer *p, const struct dl_control_took *t);
void dl_control_reset(struct dl_peer *p);

/* tx.c */
struct dl_tx *dl_tx_new(struct dl_flow *f);
void dl_tx_free(struct dl_tx *tx);
void dl_tx_orphan(struct dl_tx *tx);
void dl_tx_want(struct dl_tx *tx, uint8_t want);
void dl_tx_service(struct dl_tx *tx);
void dl_tx_on_frame(
	struct dl_peer *p, const struct rp_frame_header *h, struct rp_reader *r, uint64_t now_ns);
void dl_tx_timers(struct rp_deliver *d, uint64_t now_ns);

/* credit.c */
/* A stream is open, and has its first credit where there is some. */
void dl_credit_begin(struct dl_rx *rx);
/* What it has goes back. */
void dl_credit_end(struct dl_rx *rx);
/* A stream of the peer came or went. */
void dl_credit_shares(struct dl_peer *p);
/* An incomplete message has to have what it needs. */
void dl_credit_announce(struct dl_rx *rx);
/* Something was resolved, and is used no more. */
void dl_credit_release(struct dl_rx *rx);
/* Those that wait get what there is. */
void dl_credit_serve(struct dl_peer *p);
/* A message is held by its queue, or another one waits for credit. */
void dl_credit_held(struct dl_peer *p);

/* rx.c */
void dl_rx_open(struct dl_peer *p, const struct rp_frame_header *h, const struct dl_open *o);
void dl_rx_close(struct dl_rx *rx, const struct rp_frame_header *h);
void dl_rx_return(struct dl_rx *rx);
/* Gives up what the stream holds and closes it: its opener sends all of that again, later. */
void dl_rx_reset(struct dl_rx *rx);
void dl_rx_free(struct dl_rx *rx);
/* take: the payload bytes of one FORWARD or DELIVER frame. */
void dl_rx_payload(struct dl_rx *rx, const struct rp_frame_header *h, struct rp_reader *r,
	struct rte_mbuf *frame, uint64_t now_ns);
/* A repeat came by unary: the peer has given up its stream, whose rest may still arrive. */
void dl_rx_supersede(struct dl_peer *p, const struct rp_qmsg *m);
/* Answers what is complete, in order; stops at a hold or when the link has no room. */
void dl_rx_process(struct dl_rx *rx, uint64_t now_ns);
void dl_rx_service(struct dl_rx *rx, uint64_t now_ns);
void dl_rx_want(struct dl_rx *rx, uint8_t want);

/* inbound.c */
/* The bytes of header and fields in one piece: in place, or copied to `buffer`. */
const uint8_t *dl_head_of(
	const struct rte_mbuf *frame, uint8_t buffer[DL_HEAD_BYTES_MAX], uint32_t *length);
void dl_acks_pump(struct dl_peer *p);
bool dl_acks_pending(const struct dl_peer *p);
void dl_partials_drop(struct dl_peer *p);

/* unary.c */
/* The flow, which no RPC is out for, goes on: to the stream, to the next RPC, or is handed back. */
void dl_unary_next(struct dl_flow *f, uint64_t now_ns);
void dl_unary_pump(struct dl_peer *p, uint64_t now_ns);
void dl_unary_timers(struct rp_deliver *d, uint64_t now_ns);
