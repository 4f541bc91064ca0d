/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A node for tests of the services: a store, and queues that live in one list each. It answers at
 * once, or with `hold` when the test says so. Real in what a client can see: binding to the
 * consumer with the fewest messages, acknowledge by holder, revisions of a consumer's own.
 */

#include <stdbool.h>
#include <stdint.h>

#include <base/list.h>
#include <etcd/etcd.h>
#include <etcd/peer.h>
#include <kv/lease.h>

#define FAKE_DEPTH_MAX 16 /* messages of one queue */
#define FAKE_MESSAGE_BYTES_MAX 1048576
#define FAKE_LOG 64

struct fake_message {
	struct rp_list link;
	uint64_t idx;
	char name[256];
	uint8_t tail[255];
	size_t tail_length;
	uint8_t *value;
	size_t length;
	uint32_t attempt;
	int64_t mod_revision;
	bool bound, sent;
	uint8_t uuid[RP_UUID_BYTES];
};

struct fake_consumer {
	struct rp_list link;
	uint64_t handle;
	char name[256];
	uint8_t uuid[RP_UUID_BYTES];
	uint32_t held;
};

struct fake_node {
	struct rp_kv *kv;
	struct rp_etcd *etcd;
	struct rp_etcd_backend backend;
	struct rp_etcd_peer_backend peer;
	struct rp_list messages, consumers;
	uint64_t idx_last;
	int64_t clock_us; /* of consumers' revisions */
	struct rp_etcd_member members[8];
	uint32_t member_count;
	char member_url[8][128];
	const char *member_urls[8][1];
	const char *self_url[1];
	uint64_t wall_us, now_ns;

	/* What a test may set. */
	bool no_tokens;		/* queue operations: -EAGAIN */
	bool hold;		/* they are kept unanswered in held[] */
	enum rp_qstatus refuse; /* they are answered with this, unless OK */
	const char *refuse_message;
	uint64_t held[FAKE_LOG];
	uint32_t held_count;
	bool hold_writes;
	bool hold_expiry; /* leases that are over stay */
	const struct rp_kv_txn *held_txn;
	rp_etcd_done_fn held_done;
	void *held_ctx;
	uint64_t leader;
	struct rp_etcd_lease_time told; /* what the node that counts a lease says */
	bool hold_question;		/* not at once: fake_node_tell() */
	rp_etcd_lease_fn question_done;
	void *question_ctx;
	const char *denied; /* keys that begin with it are refused to all but loopback */

	/* What a test may look at. */
	uint64_t asked_node;
	int64_t asked_lease;
	uint32_t asked, asked_renew;
	struct rp_etcd_queue_op last_op;
	uint32_t ops, batches, closes, accepted, rooms, records;
	enum rp_etcd_consumer_end last_close;
	uint64_t last_accepted_idx;
};

/** `identity` 0 = 1. rp_etcd_create() is the caller's, with n->backend; then n->etcd. */
void fake_node_init(struct fake_node *n, int64_t initial_revision);
void fake_node_free(struct fake_node *n);
/** Gives unbound messages to consumers. */
void fake_node_dispatch(struct fake_node *n);
/** Monotonic time goes on: leases that are over go. */
void fake_node_clock(struct fake_node *n, uint64_t now_ns);
/** Carries out the write that hold_writes kept. */
/** The question that was held is answered. */
void fake_node_tell(struct fake_node *n);
void fake_node_write_held(struct fake_node *n);
