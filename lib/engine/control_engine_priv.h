/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <base/hmap.h>
#include <base/list.h>
#include <engine/control_engine.h>

#include "rules_priv.h"

#define CONTROL_CONSUMER_BITS 14
#define CONTROL_WRITE_BITS 12
#define CONTROL_UNARY_BITS 10
#define CONTROL_REQUEST_BITS 12
#define CONTROL_JOB_BITS 14
#define CONTROL_OUTPUT_BITS 12
#define CONTROL_USER_BITS 12
#define CONTROL_COMPACT_SAMPLES 8

/**
 * On the rings a consumer's handle has the top bit set and an operation's token has not: one answer
 * type serves both.
 */
#define CONTROL_CONSUMER_FLAG (1ull << 63)
/** And that of a dead letter which is put into its queue. */
#define CONTROL_LETTER_FLAG (1ull << 60)
#define CONTROL_LETTER_BITS 10

/** A delivery that waits until its client has room. */
struct control_held {
	struct rp_list node;
	struct rp_xmsg
		m; /**< without its buffers: a client that does not read keeps none of them */
	size_t length;
	uint8_t bytes[]; /**< tail and value */
};

struct control_consumer {
	struct rp_hmap_node by_handle; /**< key: the caller's, without the flag */
	struct rp_hmap_node by_uuid;   /**< while it has a user */
	uint64_t user;		       /**< who watches; 0: nobody is told apart */
	unsigned shard;
	struct rp_list held; /**< struct control_held, oldest first */
	uint8_t uuid[RP_UUID_BYTES];
	uint8_t name_length;
	uint8_t name[]; /**< of the queue */
};

/** A write that the majority has not confirmed yet, or that is to be answered. */
struct control_write {
	struct rp_hmap_node by_id;
	struct rp_list node; /**< on `done` when it is to be answered */
	uint64_t token;	     /**< the caller's */
	struct rp_kv_result result;
};

/** A DeliverOne call of ours. */
struct control_unary {
	struct rp_hmap_node by_id;
	unsigned shard;
	uint64_t token; /**< the shard's */
};

/** A registry key whose newest value a shard, or every one, has to hear of. */
struct control_publish {
	struct rp_list node;
	uint16_t length;
	uint8_t key[];
};

/** A message that waits for a token of its ring. */
struct control_post {
	struct rp_list node;
	struct rp_xmsg m;
};

/** A consumer record that a client put before its watch. */
struct control_early {
	struct rp_list node;
	uint64_t until_ns;
	uint64_t stamp;
	uint16_t length;
	uint8_t key[];
};

/** A node state that replication reported; handed on by rp_control_run(). */
struct control_state {
	struct rp_list node;
	uint64_t id;
	enum rp_node_state state;
};

/** A node that owns leases and is not Online. */
struct control_lost {
	uint64_t node, since_ns;
};

/** A dead letter that is put into its queue: whom to answer. */
struct control_letter {
	struct rp_hmap_node by_id;
	unsigned shard;
	uint64_t token;	  /**< the shard's */
	bool process_end; /**< it is how a request ended */
};

/** Policies, and the rules of prefixes and zones, that a shard may use still. */
struct control_policies {
	struct rp_list node;
	struct engine_rules *rules; /**< NULL: every key may go to every node */
	uint32_t unused;	    /**< shards that have not said that they use them */
	uint32_t count;
	char *texts;
	struct rp_queue_policy items[];
};

struct rp_control {
	const struct rp_control_ops *ops;
	void *ctx;
	struct rp_node_record self;
	uint8_t cluster_uuid[RP_UUID_BYTES];
	bool transport_tcp, transport_ktcp;
	uint32_t shards, consumers_max;
	struct rte_mempool *pool;
	struct rp_kv *kv;
	struct rp_repl *repl;
	struct rp_kv_hook hook;
	struct rp_hmap consumers, writes, unaries, letters;
	struct rp_hmap requests, jobs, job_replies, outputs, runs, run_requests;
	struct rp_hmap users;	     /**< struct control_consumer, of those that are somebody's */
	struct rp_list jobs_waiting; /**< struct control_job */
	struct rp_list requests_closing; /**< struct control_request, the next first */
	uint64_t write_id_last, unary_id_last, letter_id_last;
	uint64_t request_last, process_last, run_tail_last, output_last;
	uint32_t stream_last;
	bool run_pinned;
	uint32_t message_bytes;	 /**< limits.message_bytes */
	uint64_t letter_said_ns; /**< a refusal was logged */
	struct rp_list policies; /**< struct control_policies, the newest last */
	struct rp_list writes_done;
	struct rp_list publish;		     /**< struct control_publish */
	struct rp_list posts[RP_SHARDS_MAX]; /**< struct control_post */
	uint32_t acks_open[RP_SHARDS_MAX];   /**< ACKS that are not answered */
	struct rp_list early;		     /**< struct control_early */
	struct rp_list states;		     /**< struct control_state */
	bool ready_pending, ready_alone, stopping;
	struct rp_policy *policy; /**< some keys may not leave for some nodes; NULL: all may */
	uint64_t auto_compaction_ns, sample_at_ns;
	int64_t samples[CONTROL_COMPACT_SAMPLES]; /**< revisions, newest first; 0 = none */
	bool stepping;				  /**< the store has background work left */
	uint64_t dead_after_ns, orphans_at_ns;
	struct control_lost lost[RP_PEERS_MAX]; /**< owners of leases that are not there */
	uint32_t lost_count;
	struct rp_repl_now now; /**< of the call that is running */
	struct rp_control_counters counters;
};

/** calloc that ends the process when memory is gone, as the store does. */
void *control_alloc(size_t size);
/** Posts, or keeps it in order until there is a token. take. */
void control_send(struct rp_control *c, unsigned shard, const struct rp_xmsg *m);
/** A chain of the given bytes in order; the first two parts lie in the first segment. NULL. */
struct rte_mbuf *control_chain(struct rp_control *c, const struct rp_span *parts, unsigned count);
struct control_consumer *control_consumer_find(struct rp_control *c, uint64_t handle);
void control_consumer_free(struct rp_control *c, struct control_consumer *k);

/* control_registry.c */
void control_on_commit(void *ctx, int64_t revision, const struct rp_kv_event *events,
	uint32_t count, uint64_t origin);
/** Tells the shards what changed, as far as their rings have room. True: more is left. */
bool control_publish_run(struct rp_control *c);
/** Tells the shards what the node's record says, which did not change: they forgot it. */
void control_publish_node(struct rp_control *c, uint64_t node);
/** Tells the shards of every queue's records anew: what they may know of changed. */
void control_publish_registry(struct rp_control *c);
void control_publish_free(struct rp_control *c);
void control_on_claimed(struct rp_control *c, struct rp_span name, uint32_t epoch, bool pinned);
void control_on_released(struct rp_control *c, struct rp_span name, uint32_t epoch);
void control_on_consumer_here(
	struct rp_control *c, struct rp_span name, const uint8_t uuid[RP_UUID_BYTES], bool here);
void control_write_self(struct rp_control *c);
/** Drops early consumer records whose watch did not come. Next time, or RP_NEVER. */
uint64_t control_early_run(struct rp_control *c);
/** The `;field=` part of a consumer's record; empty when it has none. borrow. */
struct rp_span control_consumer_fields(
	struct rp_control *c, struct rp_span name, const uint8_t uuid[RP_UUID_BYTES]);

/* control_lease.c */
/** Lets leases expire, and takes those of dead nodes. Next time, or RP_NEVER. */
uint64_t control_leases_run(struct rp_control *c);

/* control_queue.c */
void control_queue_free(struct rp_control *c);

/* control_letter.c */
/** Whom to answer when it was put; the id. */
uint64_t control_letter_new(struct rp_control *c, unsigned shard, uint64_t token, bool process_end);
/** DEAD_LETTER; take what it holds. */
void control_on_dead_letter(struct rp_control *c, unsigned shard, const struct rp_xmsg *m);
/** ANSWER to the put of one. */
void control_letter_answered(struct rp_control *c, const struct rp_xmsg *m);
/** Tells the shards of the rules anew: they, or the zones of nodes, are others. */
void control_rules_changed(struct rp_control *c);
/** POLICIES_USED. */
void control_on_policies_used(struct rp_control *c, const struct rp_xmsg *m);
void control_letter_free(struct rp_control *c);
