/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* clang-format off */
/*
 * The tables of the engine. A message is on exactly one list: of its queue, those that wait, are
 * delayed, end, or are forwarded (unsent, sent); or the bound ones of a consumer. A consumer is known
 * by (queue, uuid) wherever it lives; one that lives here has a host part as well.
 *
 * queue.c     creation, limits, insight           tables.c    queues, messages, consumers, nodes
 * registry.c  who dispatches; nodes that die      dispatch.c  the dispatcher: choose, bind, offer
 * settle.c    the dispatcher: what becomes of it  notice.c    telling hosts what was settled elsewhere
 * forward.c   the producer's node                 order.c     its order, at another dispatcher
 * host.c      the consumer's host, and hold.c     message.c   what other nodes send
 * request.c   clients' acknowledges and gets      audit.c     checks for tests
 * poll.c      timers                              move.c      a dispatcher that hands over
 * leave.c     a node that stops, or is drained    view.c, trace.c, times.c  what people ask
 * admit.c     what may come in                    policy.c    what a policy makes of a queue
 * death.c     messages that end, dead letters     dedup.c     tails that were seen
 * clear.c     what operators do                   pin.c       a dispatcher that is placed, or follows
 * lanes.c     what waits, by priority             job.c       process requests, at their dispatcher
 * session.c   and at their reply queue's          apart.c     nodes that a queue's keys do not go to
 * cancel.c    finds those that are to end         producer.c  forwards that were taken
 * asked.c     what is known where a consumer was
 *
 * More is declared in parts_priv.h; what is told to other nodes, by notice.c, order.c and apart.c,
 * in tell_priv.h.
 */
/* clang-format on */

#include <base/assert.h>
#include <base/list.h>
#include <base/mbuf.h>
#include <base/wheel.h>
#include <queue/queue.h>

#include "slab.h"

#define POLL_BUDGET 64 /* most entries of one kind that one poll handles */
/* Forwards that a producer's node may have sent without an answer span at most half of it. */
#define DEDUPE_WINDOW 1024
#define DONE_SLOTS 128 /* acknowledged indexes that a host remembers for each consumer */
/* A remote consumer that had no room says so when it has; this is for a lost notice. */
#define STALL_RETRY_NS (100 * RP_NS_PER_MS)
/* A newer dispatcher that refused a message handed over to it is asked again after this. */
#define HANDOVER_RETRY_NS (100 * RP_NS_PER_MS)

/* What a consumer's record says of its capabilities. */
#define RP_CAP_BYTES_MAX 255

/* Former dispatchers that a producer's node remembers. */
#define TOOK_MAX 4
#define CANCEL_ASKED_MAX 12 /* nodes that one cancel asks */

struct rejection {
	struct rejection *next;
	uint8_t uuid[RP_UUID_BYTES];
};

/* Of a message that its dispatcher hands over: its index there, and who holds it. */
struct binding {
	uint64_t idx, alloc_node, mod_revision;
	uint64_t node, life;	     /**< where the consumer is */
	uint8_t uuid[RP_UUID_BYTES]; /**< zero: nobody */
};

enum message_state {
	MESSAGE_WAITING,
	MESSAGE_BOUND,
	MESSAGE_DELAYED, /**< not to be offered yet; `due` is when it is */
	MESSAGE_ENDING,	 /**< its dead letter is not taken yet */
	MESSAGE_UNSENT,	 /**< a forward that has to be sent */
	MESSAGE_SENT,	 /**< a forward that was; deliver has the payload */
};

struct message {
	struct rp_list link;	  /**< the list of its state */
	struct rp_list timer;	  /**< qs->offers while bound and not accepted */
	struct rp_list stay;	  /**< qs->foreign while its buffers are another pool's */
	struct rp_wheel_node due; /**< its end while it waits; of what is aside, the next step */
	struct message *idx_next; /**< of the hash chain; indexed messages only */
	struct queue *q;
	struct consumer *consumer; /**< bound */
	struct rejection *rejections;
	struct binding *binding; /**< forward: it goes with it */
	struct job *job;	 /**< indexed, and a process request */
	struct session *session; /**< indexed, and an output of one */
	struct rte_mbuf *payload;
	struct rp_qmsg_process process; /**< its left_us was so at left_ns, here */
	uint64_t idx, alloc_node;	/**< 0: not indexed */
	uint64_t was_idx, was_alloc;	/**< handed: what it was here, should it not leave */
	uint64_t origin_node, origin_boot, origin_seq;
	uint64_t token; /**< of the client that waits for the put's answer */
	/* Forward: the node that has or may have it; `asked`: where its consumer was. */
	uint64_t target;
	uint64_t order;	       /**< forward: place in the order of sending */
	uint64_t mod_revision; /**< of its event, once accepted */
	uint64_t since_ns;     /**< put, as far as is known */
	uint64_t expires_ns;   /**< RP_NEVER: by no policy */
	uint64_t indexed_ns, bound_ns, accepted_ns, deadline_ns, stay_ns;
	uint32_t bytes; /**< of the payload */
	uint32_t attempt;
	uint32_t unseen; /**< attempts that no client saw */
	uint32_t epoch;	 /**< forward: of the queue, when it was sent */
	uint16_t tail_length;
	uint16_t sends; /**< of this message, to tell an old answer from the last one's */
	uint8_t state;
	uint8_t death;	      /**< ENDING: why */
	uint16_t clear_round; /**< it was meant by that one; see struct queue_more */
	bool letter_sent : 1; /**< ENDING: the answer is to come */
	bool letter : 1;      /**< a dead letter of another queue, which this node puts */
	bool answered : 1;    /**< its client knows that it is indexed (or there is none) */
	bool took : 1;	      /**< the consumer's node has it */
	bool accepted : 1, traced : 1; /**< the latter: trace.c follows it */
	bool timed_out : 1;	       /**< not accepted in time: counted */
	bool lost : 1;		       /**< to be sent again to the consumer that it is bound to */
	bool kept : 1;		       /**< bound by a former dispatcher: its host may have it */
	bool seen : 1;		       /**< its event exists: sent again with its mod_revision */
	bool asked : 1;		       /**< bound: its consumer was at `target`, see asked.c */
	bool repeat : 1;	       /**< forward: `target` may have it */
	bool handed : 1;	       /**< forward: it was indexed here; q->handing counts them */
	bool all_rejected : 1;	       /**< counted */
};

/* Why a consumer is not offered anything though it may have room; by which list its `ready` is on.
 */
enum consumer_pause {
	PAUSE_NONE,
	PAUSE_RETRY,	 /**< qs->retry: a refusal that passes soon */
	PAUSE_STALL,	 /**< qs->stalled: the consumer's node had no room */
	PAUSE_SUSPENDED, /**< qs->suspended: did not accept in time */
	PAUSE_DOUBT,	 /**< qs->doubted: its record went, which may be an earlier life's */
	PAUSE_PATH,	 /**< peer->blocked: its node cannot be sent to */
};

struct consumer {
	struct rp_list link;	/**< q->consumers */
	struct rp_list ready;	/**< q->ready, or the list of its pause */
	struct rp_list at_node; /**< peer->consumers of `node` */
	struct consumer *uuid_next;
	struct queue *q;
	struct rp_list bound; /**< messages, in the order of offering */
	uint8_t uuid[RP_UUID_BYTES];
	uint64_t node;		 /**< where it is, as it said itself; 0 = nowhere yet */
	uint64_t life;		 /**< as it said itself; 0 = not there */
	uint64_t start_revision; /**< of that life */
	uint64_t record_node;	 /**< as its record says; 0 = none seen, or not while it is here */
	uint64_t heard_node;	 /**< as its last record said, wherever it was then */
	/* A word of another node that it is there, which its record has not confirmed yet. */
	uint64_t said_node, said_life, said_revision;
	uint64_t pause_until_ns;
	uint64_t max_bytes, offers, acks; /**< the latter two: as struct rp_queue_consumer_info */
	uint64_t output_bytes; /**< bound outputs of requests: they are in no other count */
	uint8_t *match, *cap;  /**< blobs */
	struct host *host;
	uint32_t prefetch;
	uint32_t jobs_max;    /**< as prefetch, of process requests */
	uint32_t outstanding; /**< bound, but for outputs */
	uint32_t jobs;	      /**< of these, process requests */
	uint32_t unaccepted, untook;
	uint8_t match_length, cap_length;
	uint8_t pause;
	bool is_ready : 1;  /**< `ready` is on q->ready */
	bool resend : 1;    /**< bound messages are to be sent again, before anything new */
	bool away : 1;	    /**< its node says that it is not there, until it says otherwise */
	bool probation : 1; /**< was suspended: one unaccepted offer at a time */
	bool recorded : 1;  /**< its record came after its word that it is there */
	bool restart : 1;   /**< its host refused for want of room: say when offers begin again */
	bool waited : 1;    /**< its time to come back is over: nobody waits for it again */
};

/* What a consumer's host remembers of deliveries that are over. */
struct done {
	uint64_t idx, alloc_node;
	uint32_t attempt;  /**< returned: up to this one it is not shown any more */
	uint16_t from;	   /**< returned: a digest of the dispatcher */
	bool returned : 1; /**< that dispatcher was told that the client has not got it */
	bool fenced : 1;   /**< taken back: its acknowledge is refused */
	bool acked : 1;	   /**< its client has acknowledged it, or has read it: */
	bool output : 1;   /**< of a request */
};

struct host {
	struct host *handle_next;
	struct consumer *c;
	struct rp_list timer; /**< qs->resuming, while closed and not by the server */
	struct rp_list holds;
	uint64_t handle;
	uint64_t life, start_revision, last_revision;
	uint64_t watch_life; /**< with which its watch began; `life` is newer since a fence */
	uint64_t deadline_ns;
	uint64_t fenced_node; /**< its dispatcher until that was lost; told when it is back */
	/** A former dispatcher that was told to let go what it counts as held in that life here. */
	uint64_t barred_node, barred_life;
	uint32_t hold_count;
	bool open : 1;
	bool stalled : 1;     /**< refuses offers until they begin again */
	bool fenced_anew : 1; /**< its life is another one since fenced_node was lost */
	bool room_due : 1;    /**< has to tell the dispatcher that there is room */
	bool resume_due : 1;  /**< has to tell the dispatcher that it is there */
	struct done done[DONE_SLOTS];
};

/* A delivery that a local client holds. */
struct hold {
	struct rp_list link;	/**< host->holds */
	struct rp_list at_node; /**< peer->holds of `from` */
	struct hold *idx_next;
	struct host *host;
	uint64_t from; /**< the dispatcher that delivered it */
	uint64_t idx, alloc_node, mod_revision;
	uint32_t attempt;
	union {
		uint8_t bytes[24], *blob;
	} tail;
	uint64_t request; /**< it is a process request; 0: it is not */
	uint8_t tail_length;
	bool output : 1; /**< of a request: nobody acknowledges it */
	bool begun : 1;	 /**< the request's worker has begun to answer */
	bool accepted : 1;
	bool report : 1;   /**< the report to `from` is due */
	bool returned : 1; /**< the client never had it: to be reported, then forgotten */
};

/* What is remembered of forwards from one life of a producer's node. */
struct producer {
	struct producer *next; /**< of the queue */
	struct rp_list recent; /**< qs->producers */
	struct queue *q;
	uint64_t node, boot; /**< HANDED_BOOT and more: what `node` handed over as a dispatcher */
	uint64_t high;
	bool used;		/**< since it was put on `recent` */
	uint64_t hole, hole_ns; /**< handed over: the first that was put off; 0 = none */
	uint64_t seen[DEDUPE_WINDOW /
		      64]; /**< bit (s % window): s was indexed, s in (high - window, high] */
};

enum request_kind {
	REQUEST_ACK,
	REQUEST_GET,
	REQUEST_REJECT,
	REQUEST_FAIL,	/**< the holder's output broke a limit: its job ends with that */
	REQUEST_CANCEL, /**< of all process requests with a tail */
	REQUEST_LEFT,	/**< is anything left there of what that node took; no client's */
};

struct request {
	struct rp_list timer; /**< qs->requests */
	struct rp_list again; /**< qs->again, while the message is between two dispatchers */
	struct queue *q;
	uint64_t token, node, idx, alloc_node, deadline_ns, again_ns;
	uint64_t of;				/**< LEFT: the node that is asked */
	struct rte_mbuf *with;			/**< ACK: the last output; CANCEL: the tail */
	uint64_t request;			/**< CANCEL: only that one; 0: all */
	uint64_t asked[CANCEL_ASKED_MAX], hint; /**< CANCEL: nodes; one that may have some */
	uint8_t uuid[RP_UUID_BYTES];
	uint32_t ended; /**< CANCEL: so many, so far */
	uint8_t kind, flags, asked_count;
	bool unsure;  /**< CANCEL: some node could not be asked */
	bool retried; /**< sent on after MOVED, once */
	bool moving;  /**< LEFT: what is left there is on its way to the newer dispatcher */
};

/* Something that a node is still to be told: see notice.c. */
struct notice {
	struct rp_list link; /**< peer->notices */
	struct queue *q;
	uint64_t idx, alloc_node;		 /**< SETTLED */
	uint64_t life, was_life, start_revision; /**< LEFT: life; RESUMED */
	uint32_t attempt;
	uint8_t kind;
	uint8_t uuid[RP_UUID_BYTES];
	uint8_t status; /**< SETTLED: as WITHDRAW has it */
	uint8_t flags;	/**< LEFT: as REJECTED has it */
};

/* A queue that changes its dispatcher, by agreement. */
struct move {
	struct rp_list link; /**< qs->moves, by at_ns */
	struct queue *q;
	uint64_t to;	  /**< who is asked to take it, or takes it; 0 = nobody */
	uint64_t from;	  /**< who hands it over to this node; 0 = nobody */
	uint64_t claimer; /**< who wants it, as it hosts consumers; 0 = nobody: the node stops */
	bool claiming;	  /**< this node wants it; neither `to` nor `from` then */
	uint64_t at_ns;
	/* Of q->waiting: what comes in belongs behind it, as it comes in order; NULL: not known. */
	struct rp_list *behind;
	uint32_t asks;
};

/* A tail that is not queued again for a while. */
struct seen_tail {
	struct rp_list link; /**< more->tails */
	struct rp_wheel_node due;
	struct seen_tail *hash_next;
	struct queue *q;
	uint8_t *tail; /**< blob */
	uint8_t tail_length;
};

/* What few queues need. */
struct queue_more {
	struct queue *q;
	struct rp_list pin; /**< qs->pins, by pin_at_ns */
	uint64_t rival; /**< a node that dispatched it too, and may hold what it bound; 0 = none */
	uint64_t later_ns;
	uint64_t pin_node;  /**< where its only consumer is, so that it may go there; 0 = none */
	uint64_t pin_at_ns; /**< when it may */
	/* Nodes that took forwards of this node, latest first: each may have some that wait. */
	uint64_t took[TOOK_MAX];
	struct rp_list delayed, ending; /**< messages */
	struct lanes *lanes;		/**< NULL: all that waits is in `waiting` of the queue */
	uint64_t age_ns;		/**< so much waiting counts as a step of priority, there */
	struct rp_list jobs, sessions;
	uint32_t job_count, session_count;
	struct rp_wheel_node look; /**< who has left is missed by jobs or sessions */
	uint64_t left_ns;	   /**< the last one left */
	uint32_t look_left;	   /**< jobs that this look has not come to */
	struct rp_list tails;	   /**< seen; the queue stays as long as there are some */
	uint64_t ending_bytes;
	uint64_t clear_token, clear_until; /**< until: the last idx of what is meant */
	uint32_t delayed_count, ending_count, clear_count, clear_left;
	uint16_t clear_round;
	bool clearing : 1, replays : 1;
	struct {
#define X(name, text)
#define Y(name, text) uint64_t name;
#include <queue/queue_counters.def>
#undef X
	} counters;
};

struct queue {
	struct queue *hash_next;
	struct rp_list idle;	     /**< qs->idle, longest untouched first, nearly */
	struct rp_list work;	     /**< qs->work, qs->later or peer->blocked_queues */
	struct rp_list at_node;	     /**< peer->queues of `dispatcher`, or qs->unclaimed */
	struct rp_list waiting;	     /**< messages, ascending idx */
	struct rp_list unsent, sent; /**< forwards */
	struct rp_list consumers, ready;
	struct rp_list
		*scan; /**< of waiting: what stands before was offered to all that are ready */
	struct producer *producers;
	struct move *move; /**< NULL: it stays where it is */
	uint8_t *name;	   /**< blob */
	uint64_t dispatcher;
	const struct peer *at; /**< of the dispatcher, whose list `at_node` is on; NULL: no list */
	uint64_t sequence;     /**< of the last idx given */
	uint64_t order;	       /**< of the last forward, and identity of the last put */
	uint64_t bytes;	       /**< of all messages, those on their way to the dispatcher too */
	uint64_t active_ns;
	uint32_t hash, listed; /**< the latter: active_ns, coarse, when it was put on `idle` */
	uint32_t depth, in_flight, unsent_count;
	uint32_t handing; /**< of those unsent and sent, what was indexed here */
	uint16_t sent_count;
	uint16_t requests; /**< and notices: what still refers to it */
	uint32_t epoch : 24;
	uint32_t name_length : 8;
	uint32_t epoch_seen : 24;
	uint32_t own : 1;     /**< this node dispatches: the record is its claim of this life */
	uint32_t recheck : 1; /**< elect again */
	uint32_t in_work : 1, traced : 1; /**< the latter: new messages are followed */
	uint32_t resend : 1;		  /**< a consumer has to be sent again what it holds */
	uint32_t in_later : 1;
	uint32_t pinned : 1;		     /**< as the record says: nobody takes it over */
	uint32_t pin_wanted : 1;	     /**< this node is to dispatch it, pinned */
	uint32_t asking : 1;		     /**< a REQUEST_LEFT is on its way */
	uint16_t policy;		     /**< of qs->policies; POLICY_NONE */
	uint16_t policy_version, times_slot; /**< of qs, when it was looked for; of times.c, or 0 */
	uint64_t wait_sum_ns, wait_max_ns, accept_sum_ns; /**< of accepts */
	struct queue_more *more;			  /**< NULL: nothing of it is needed yet */
	struct {
#define X(name, text) uint64_t name;
#define Y(name, text)
#include <queue/queue_counters.def>
#undef X
	} counters;
};

struct peer {
	uint64_t node; /**< 0 = slot free */
	enum rp_node_state state;
	bool lost;		     /**< no path */
	bool fenced;		     /**< its deliveries were taken back since the path was lost */
	bool offered;		     /**< what its consumers held was released likewise */
	bool reports_due;	     /**< something in holds or queues waits for room */
	uint64_t fence_ns, offer_ns; /**< while lost */
	struct rp_list queues;	     /**< dispatched there, as far as known */
	struct rp_list consumers;    /**< that live there */
	struct rp_list holds;	     /**< that it delivered here */
	struct rp_list blocked;	     /**< consumers with PAUSE_PATH */
	struct rp_list blocked_queues; /**< whose forwards wait for the path */
	struct rp_list notices;
};

struct rp_queues {
	struct rp_queue_config config;
	struct rp_queue_ops ops;
	void *ctx;
	int64_t wall_offset_ns;
	bool stopping, draining, parted; /**< the latter: ops.apart() may say yes */
	uint32_t epoch_floor;		 /**< newest epoch of the queues that ended here */
	uint64_t order_floor;		 /**< last order of the queues that ended here */
	struct queue_traces *traces;
	struct queue_times_table *times;
	uint32_t leave_cursor;	 /**< while leaving: buckets of queue_table that were looked at */
	uint32_t leave_hosts;	 /**< while draining: hosts that were looked at */
	uint64_t leave_again_ns; /**< while draining: both are looked at anew */
	uint64_t bytes;
	uint32_t own_count; /**< queues that this node dispatches */
	uint32_t handing;   /**< messages that were indexed here and are on their way elsewhere */
	/* What messages may take of the pool's buffers. */
	uint32_t buffer_room, sample_at; /**< bytes of one; of `unsampled`, see admit.c */
	uint64_t foreign_buffers, room, unsampled;

	struct slab queues, messages, consumers, hosts, holds, requests_slab, producers_slab;
	struct slab rejections, notices, bindings, moves_slab, mores, seen_slab;
	struct slab jobs, sessions, lanes;
	struct blobs names, matches, tails, seen_blobs, session_blobs;
	const struct rp_queue_policy *policies;
	uint32_t policy_count;
	uint32_t listed_slack; /**< so much of struct queue's `listed` is no matter */
	uint16_t policy_version;
	struct rp_queue_times wait, accept;
	struct rp_wheel wheel, tail_wheel; /**< of messages, of tails that were seen */
	struct rp_wheel session_wheel, look_wheel;

	uint32_t queue_mask, idx_mask, uuid_mask, hold_mask, handle_mask, seen_mask;
	uint32_t job_mask, session_mask;
	struct queue **queue_table;
	struct message **idx_table;
	struct consumer **uuid_table;
	struct hold **hold_table;
	struct host **handle_table;
	struct seen_tail **seen_table;
	struct job **job_table;
	struct session **session_table;

	struct rp_list work, later, idle, unclaimed;
	struct rp_list offers, foreign, requests, again, producers, moves;
	struct rp_list retry, stalled, suspended, doubted, resuming, pins;
	struct rp_list ended; /**< sessions, the first that did so first */
	struct rp_list rooms; /**< sessions whose requester reads again */
	uint64_t peer_deadline_ns;
	struct peer peers[RP_PEERS_MAX + 1]; /**< the first is this node */
	struct rp_queue_counters counters;
};

/** Made when it is first asked for; there are as many as queues. */
struct queue_more *queue_more(struct rp_queues *qs, struct queue *q);

static inline void count_one(uint64_t *a)
{
	__atomic_store_n(a, *a + 1, __ATOMIC_RELAXED);
}
#define X(name, text)                                                          \
	static inline void count_##name(struct rp_queues *qs, struct queue *q) \
	{                                                                      \
		count_one(&q->counters.name);                                  \
		count_one(&qs->counters.name);                                 \
	}
#define Y(name, text)                                                          \
	static inline void count_##name(struct rp_queues *qs, struct queue *q) \
	{                                                                      \
		struct queue_more *more = queue_more(qs, q);                   \
                                                                               \
		if (more)                                                      \
			count_one(&more->counters.name);                       \
		count_one(&qs->counters.name);                                 \
	}
#include <queue/queue_counters.def>
#undef X

/** Adds one to the counter of the queue and of the shard. Owner writes, anyone reads relaxed. */
#define COUNT(qs, q, name) count_##name(qs, q)

/** On the shard alone: there is no queue (yet). */
#define COUNT_SHARD(qs, name) \
	__atomic_store_n(&(qs)->counters.name, (qs)->counters.name + 1, __ATOMIC_RELAXED)

static inline uint64_t wall_us(const struct rp_queues *qs, uint64_t now_ns)
{
	return (uint64_t)((int64_t)now_ns + qs->wall_offset_ns) / RP_NS_PER_US;
}

/* `since` may lie before the clock's zero. */
static inline uint64_t age_ns(uint64_t since_ns, uint64_t now_ns)
{
	return (int64_t)(now_ns - since_ns) > 0 ? now_ns - since_ns : 0;
}

static inline bool is_self(const struct rp_queues *qs, uint64_t node)
{
	return node == qs->config.node;
}

/** It stops or is drained: it gives its queues away, and takes none. */
static inline bool is_leaving(const struct rp_queues *qs)
{
	return qs->stopping || qs->draining;
}

/** Where what has an index lies in a table: indexes of one `owner` that follow each other stand
 * beside each other, in the same lines. */
static inline uint64_t idx_slot(uint32_t owner, uint64_t idx)
{
	return (owner * 0x9e3779b97f4a7c15ull >> 32) + idx + (idx >> 40) * 0x85ebca6bull;
}

static inline struct rp_span queue_name(const struct queue *q)
{
	return (struct rp_span){q->name, q->name_length};
}

/* queue.c */
struct rp_queue_counters queue_counters(const struct queue *q);
struct queue *queue_find(const struct rp_queues *qs, struct rp_span name);
/** Likewise, by a hash that is known. */
struct queue *queue_find_by(const struct rp_queues *qs, struct rp_span name, uint32_t hash);
/** NULL: the name is no name, or a limit is reached. */
struct queue *queue_get(struct rp_queues *qs, struct rp_span name, uint64_t now_ns);
struct queue *queue_get_by(
	struct rp_queues *qs, struct rp_span name, uint32_t hash, uint64_t now_ns);
/** After so long without anything a queue ends. */
void queue_set_idle(struct rp_queues *qs, uint64_t idle_ns);
void queue_free(struct rp_queues *qs, struct queue *q);
void queue_touch(struct rp_queues *qs, struct queue *q, uint64_t now_ns);
void queue_work(struct rp_queues *qs, struct queue *q);
/** Off whatever list its work link is on. */
void queue_unwork(struct queue *q);
struct message *message_new(struct rp_queues *qs, struct queue *q, struct rte_mbuf *payload,
	uint16_t tail_length, uint64_t now_ns);
/** Frees the payload as well; the message is on no list and in no table any more. */
void message_free(struct rp_queues *qs, struct message *m);
void message_indexed(struct rp_queues *qs, struct message *m, uint64_t now_ns);
void message_unindexed(struct rp_queues *qs, struct message *m);
struct message *message_find(
	const struct rp_queues *qs, const struct queue *q, uint64_t idx, uint64_t alloc_node);
struct consumer *consumer_find(
	const struct rp_queues *qs, const struct queue *q, const uint8_t uuid[RP_UUID_BYTES]);
/** False: the slot at that position is free. */
bool consumer_is_live(const struct rp_queues *qs, const struct consumer *c);
struct consumer *consumer_get(
	struct rp_queues *qs, struct queue *q, const uint8_t uuid[RP_UUID_BYTES]);
/** It holds nothing, is bound to nothing, and has no host part. */
void consumer_free(struct rp_queues *qs, struct consumer *c, uint64_t now_ns);
/** 0 or -ENOSPC. */
int consumer_set_fields(struct rp_queues *qs, struct consumer *c,
	const struct rp_consumer_record *r, uint64_t now_ns);
struct peer *peer_find(struct rp_queues *qs, uint64_t node);
/** NULL: too many nodes. */
struct peer *peer_get(struct rp_queues *qs, uint64_t node);
/** A message of that type about the queue, ready for its own fields. */
struct rp_qmsg qmsg_for(const struct queue *q, enum rp_qmsg_type type);
/** The same chain, for one more owner. */
struct rte_mbuf *payload_share(struct rte_mbuf *payload);

/* registry.c */
enum rp_election_verdict queue_elect(
	struct rp_queues *qs, struct queue *q, enum rp_claim claim, uint64_t now_ns);
bool queue_has_host(const struct queue *q);
/** This node hosts a consumer of it, or it is to be pinned here: a reason to take it over. */
bool queue_is_wanted(const struct queue *q);
/** As queue_elect(), and claims when that is the verdict. */
enum rp_dispatch queue_dispatch(
	struct rp_queues *qs, struct queue *q, enum rp_claim claim, uint64_t now_ns);
/** True when it was newer than what was known. */
bool queue_learn(
	struct rp_queues *qs, struct queue *q, uint32_t epoch, uint64_t node, uint64_t now_ns);
/** False: no epoch is left. */
bool queue_claim(struct rp_queues *qs, struct queue *q, uint64_t now_ns);
void queue_recheck(struct rp_queues *qs, struct queue *q, uint64_t now_ns);
/** The queue ends: nothing is in it, and nobody is there. */
void queue_end(struct rp_queues *qs, struct queue *q);
bool queue_is_unused(const struct queue *q);
/**
 * It is gone for good: what it holds is released. It may be freed by this. Not `proven`: it may
 * live, out of reach, and work on.
 */
void consumer_gone(struct rp_queues *qs, struct consumer *c, bool proven, uint64_t now_ns);
bool peers_poll(struct rp_queues *qs, uint64_t now_ns);

/* policy.c */
#define POLICY_NONE UINT16_MAX
const struct rp_queue_policy *policy_look(struct rp_queues *qs, struct queue *q);
/** The policy of the queue; NULL: none. */
static inline const struct rp_queue_policy *policy_of(struct rp_queues *qs, struct queue *q)
{
	return qs->policy_count == 0 ? NULL : policy_look(qs, q);
}
uint32_t policy_depth_max(struct rp_queues *qs, struct queue *q);
uint64_t policy_bytes_max(struct rp_queues *qs, struct queue *q);
/** Whether a put is refused because nobody would get it. */
bool policy_fails_fast(struct rp_queues *qs, struct queue *q);
/**
 * An indexed message on no list waits, is set aside until it may be offered, or ends: by its age,
 * its deliveries, and what consumers said of it.
 */
void policy_place(struct rp_queues *qs, struct message *m, uint64_t now_ns);
/** Its end is a matter of time while it waits, and only then. */
void policy_arm(struct rp_queues *qs, struct message *m, uint64_t now_ns);
/** What a message whose time is over ends of. */
enum rp_queue_death death_by_age(const struct message *m);
/** When the message was indexed: its times, and its priority. */
void policy_begin(struct rp_queues *qs, struct message *m, uint64_t now_ns);
/** What the wheels have for now; true: there is more. */
bool policy_poll(struct rp_queues *qs, uint64_t now_ns);
uint64_t policy_next_ns(const struct rp_queues *qs);
/** Attempts that a client saw. */
uint32_t message_deliveries(const struct message *m);
/** A message that is delayed or ending is on no list any more. */
void aside_remove(struct rp_queues *qs, struct message *m);
/** Each that is delayed or ending, but for those whose letter is on its way; until it says false.
 */
void hand_over_aside(struct rp_queues *qs, struct queue *q, uint64_t now_ns,
	bool (*hand_over)(struct rp_queues *qs, struct message *m, uint64_t now_ns));

/* clear.c */
/** A part of what an operator asked for; true: there is more. */
bool clear_step(struct rp_queues *qs, struct queue *q, uint64_t now_ns);

/* death.c */
/** The message, indexed and on no list, ends: dropped, or it becomes a dead letter. */
void message_end(
	struct rp_queues *qs, struct message *m, enum rp_queue_death death, uint64_t now_ns);
/** Asks again whether the dead-letter queue takes it. */
void letter_send(struct rp_queues *qs, struct message *m, uint64_t now_ns);
/** The oldest that nobody holds makes room. False: there is none, or its letter would find none. */
bool overflow_drop(struct rp_queues *qs, struct queue *q, uint64_t now_ns);
/** Every consumer that could have it has rejected it, there is one, and somewhere for it to go. */
bool message_dies_rejected(struct rp_queues *qs, const struct message *m);
/** Of what was indexed, all that is not there any more. */
uint64_t counters_gone(const struct rp_queue_counters *k);

/* dispatch.c */
/** Indexes a message (on no list) and offers it; it may be gone after. Returns its idx. */
uint64_t dispatch_index(struct rp_queues *qs, struct message *m, uint64_t now_ns);
bool dispatch_pump(struct rp_queues *qs, struct queue *q, uint64_t now_ns);
/** Unbinds; back to its place among those that wait, or on to the newer dispatcher. */
void dispatch_release(struct rp_queues *qs, struct message *m, uint64_t now_ns);
void dispatch_release_all(struct rp_queues *qs, struct consumer *c, bool proven, uint64_t now_ns);
/** Of the counts of what it holds. */
void consumer_take(struct consumer *c, const struct message *m);
void dispatch_unbind(struct rp_queues *qs, struct message *m);
/** Makes it ready, or not, by what is known of it now. */
void consumer_update(struct rp_queues *qs, struct consumer *c);
void consumer_pause(
	struct rp_queues *qs, struct consumer *c, enum consumer_pause why, uint64_t now_ns);
void consumer_unpause(struct rp_queues *qs, struct consumer *c);
/** It moved to `node` (0 = nowhere), or began another life there. */
void consumer_place(struct rp_queues *qs, struct consumer *c, uint64_t node, uint64_t life);
/** Drops what nobody needs to know of it any more. */
void consumer_tidy(struct rp_queues *qs, struct consumer *c, uint64_t now_ns);
/** By its size and its tail; whether it has rejected it is another question. */
bool consumer_wants(const struct consumer *c, const struct message *m);
/** That consumer is not asked for the message again. */
void message_reject(struct rp_queues *qs, struct message *m, const struct consumer *c);
void waiting_remove(struct rp_queues *qs, struct message *m);
/**
 * The consumer's node refused something of what is on its way there, so that it refuses all that
 * comes behind: these wait again, each in its place, before what is newer.
 */
void dispatch_unsend(struct rp_queues *qs, struct consumer *c, uint64_t now_ns);
/** An indexed message that is on no list waits, in its place. */
void dispatch_return(struct rp_queues *qs, struct message *m, uint64_t now_ns);
void waiting_insert(struct rp_queues *qs, struct message *m);

/* settle.c */
struct settled {
	enum rp_qstatus status;
	uint32_t deleted, attempt;
	uint64_t mod_revision;
	uint64_t alloc_node; /**< of the message; MOVED: the node that may have it */
	uint16_t tail_length, meta_length;
	struct rte_mbuf *payload;
};

/** `from`: the node that reports it. */
void settle_accept(struct rp_queues *qs, struct queue *q, const struct rp_qmsg *m, uint64_t from,
	uint64_t now_ns);
/** A bound output is at its requester: that is all. */
void output_read(struct rp_queues *qs, struct message *msg, uint64_t now_ns);
/** `from`: the node of the client. uuid NULL: the holder is not checked. take: m->payload. */
struct settled settle_ack(struct rp_queues *qs, struct queue *q, const struct rp_qmsg *m,
	uint64_t from, uint64_t now_ns);
struct settled settle_get(struct rp_queues *qs, struct queue *q, const struct rp_qmsg *m);
struct settled settle_reject(struct rp_queues *qs, struct queue *q, const struct rp_qmsg *m,
	uint64_t from, uint64_t now_ns);
void settle_resume(struct rp_queues *qs, struct queue *q, struct consumer *c, uint64_t node,
	uint64_t life, uint64_t start_revision, bool keeps, uint64_t now_ns);
/**
 * A node says that the consumer is there. It counts at once when it is newer than what is known,
 * and else when the consumer's record says the same.
 */
void settle_said(struct rp_queues *qs, struct consumer *c, uint64_t node, const struct rp_qmsg *m,
	uint64_t now_ns);
/** The record of the consumer names that node now. */
void settle_recorded(struct rp_queues *qs, struct consumer *c, uint64_t node, uint64_t now_ns);
/** The consumer has left, if that was its life. */
void settle_leave(struct rp_queues *qs, struct consumer *c, uint64_t node, uint64_t life,
	bool proven, uint64_t now_ns);
/** What became of an offer that its node did not take. */
void settle_refused(
	struct rp_queues *qs, struct message *m, enum rp_qstatus status, uint64_t now_ns);
void settle_took(struct rp_queues *qs, struct message *m, uint64_t now_ns);
/** An offer that may not have arrived: to be sent again to the same consumer. */
void settle_lost(struct rp_queues *qs, struct message *m, uint64_t now_ns);
/**
 * Its node is lost. What a former dispatcher bound stays, as that node does not know this one, and
 * may reach the former: true. All else is released.
 */
bool settle_keep_kept(struct rp_queues *qs, struct consumer *c, uint64_t now_ns);
/** Its host is asked, by offering it all once more, whether it has what it counts as holding. */
void settle_verify(struct rp_queues *qs, struct consumer *c, uint64_t now_ns);
void settle_timeout(struct rp_queues *qs, struct message *m, uint64_t now_ns);

#include "parts_priv.h"
#include "tell_priv.h"
/* forward.c */
void forward_put(struct rp_queues *qs, struct message *m, uint64_t now_ns);
/** An indexed message (unindexed by this) goes on to the newer dispatcher, which indexes it anew.
 */
void forward_hand_over(struct rp_queues *qs, struct message *m, uint64_t now_ns);
/**
 * Likewise, with its index and its holder if it has one (unbound by this). False: it stays, as
 * there is no room to note them.
 */
bool forward_hand_over_as_is(struct rp_queues *qs, struct message *m, uint64_t now_ns);
/** It is not on its way to a newer dispatcher any more; `back`: it is in the queue here again. */
void message_unhand(struct rp_queues *qs, struct message *m, bool back);
/** Puts that have not left, and wait here, go behind all that is to be handed over: they are newer.
 */
void forward_behind(struct queue *q);
bool forward_pump(struct rp_queues *qs, struct queue *q, uint64_t now_ns);
enum rp_qstatus forward_receive(struct rp_queues *qs, uint64_t from, const struct rp_qmsg *m,
	uint32_t *epoch, uint64_t *dispatcher, uint64_t now_ns);
void forward_took(struct rp_queues *qs, struct message *m, uint64_t now_ns);
/** `elsewhere`: another dispatcher or epoch is known by now than when it was sent. */
void forward_refused(struct rp_queues *qs, struct message *m, struct rte_mbuf *payload,
	enum rp_qstatus status, bool elsewhere, uint64_t now_ns);
void forward_lost(struct rp_queues *qs, struct message *m, struct rte_mbuf *payload, bool repeat,
	uint64_t now_ns);
void put_answer(struct rp_queues *qs, struct message *m, enum rp_qstatus status);

/* move.c */
/** This node dispatches the queue, or holds messages of it, and wants to be rid of them. */
void move_begin(struct rp_queues *qs, struct queue *q, uint64_t now_ns);
/** Another node has claimed it: all that is here goes there as it is. */
void move_all(struct rp_queues *qs, struct queue *q, uint64_t now_ns);
/**
 * Likewise, but only what its consumer may not have got: it stays his, and the newer dispatcher
 * asks his host.
 */
void move_untook(struct rp_queues *qs, struct queue *q, uint64_t now_ns);
void move_end(struct rp_queues *qs, struct queue *q);
/** This node hosts consumers and would dispatch, if the dispatcher hosts none. */
void move_claim(struct rp_queues *qs, struct queue *q, uint64_t now_ns);
/** CLAIM came. */
void move_claimed(struct rp_queues *qs, struct queue *q, uint64_t from, uint64_t now_ns);
/** It goes to that node, which hosts its only consumer. False: out of moves. */
bool move_follow(struct rp_queues *qs, struct queue *q, uint64_t node, uint64_t now_ns);
/** A consumer opens here: nobody else has a claim. */
void move_keep(struct rp_queues *qs, struct queue *q);
/** HANDOVER came. */
void move_receive(struct rp_queues *qs, struct queue *q, uint64_t from, const struct rp_qmsg *m,
	uint64_t now_ns);
/** Something of the queue came from the node that hands it over. */
void move_heard(struct rp_queues *qs, struct move *v, uint64_t now_ns);
/** Indexes a message (on no list) that its holder keeps, under its old index. */
void dispatch_index_bound(
	struct rp_queues *qs, struct message *m, const struct binding *b, uint64_t now_ns);
/** It is not here, but may be on its way here, or from here. */
bool move_is_between(
	const struct rp_queues *qs, const struct queue *q, uint64_t idx, uint64_t alloc_node);
bool move_poll(struct rp_queues *qs, uint64_t now_ns);

/* pin.c */
/** Whether the queue has one consumer elsewhere, since when, and goes there when it is time. */
void pin_look(struct rp_queues *qs, struct queue *q, uint64_t now_ns);
void pin_forget(struct queue *q);
bool pin_poll(struct rp_queues *qs, uint64_t now_ns);

/* leave.c */
/** A step of what a node that leaves has to do, bounded; and when the next is due. */
void leave_step(struct rp_queues *qs, uint64_t now_ns);
uint64_t leave_next_ns(const struct rp_queues *qs);
uint64_t move_next_ns(const struct rp_queues *qs);

#include "parts_priv.h"
#include "tell_priv.h"
