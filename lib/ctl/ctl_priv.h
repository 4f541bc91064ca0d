/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdatomic.h>

#include <protobuf-c/protobuf-c.h>

#include <base/hmap.h>
#include <base/list.h>
#include <ctl/ctl.h>
#include <engine/control_engine.h>
#include <etcd/etcd.h>
#include <etcd/peer.h>
#include <etcd/process.h>
#include <grpc/client.h>
#include <grpc/http.h>
#include <grpc/loop.h>
#include <grpc/server.h>
#include <port/tap.h>
#include <telem/metrics.h>
#include <tls/tls.h>

#define CTL_NONCE_BYTES 32
#define CTL_MAC_BYTES 32
#define CTL_PENDING_BITS 12
#define CTL_REMOVED_MAX 64
/** What a gRPC message may have above the largest request. */
#define CTL_MESSAGE_OVERHEAD (512u << 10)
#define CTL_ADMIN_METHODS 21
/** "[address]:port" of IPv6, and an address with its prefix length. */
#define CTL_ENDPOINT_TEXT_SIZE 64
/** Tokens of messages to shards that SNAPSHOT_DONE answers; snapshots have 1. */
#define CTL_TOKEN_IMPAIR UINT64_MAX
#define CTL_TOKEN_TAP_ON (UINT64_MAX - 1)
#define CTL_TOKEN_TAP_OFF (UINT64_MAX - 2)

/** Where a dial of a peer stands. */
enum ctl_peer_state {
	CTL_PEER_IDLE,
	CTL_PEER_CONNECTING,
	CTL_PEER_STATUS, /**< Maintenance.Status asked */
	CTL_PEER_HELLO,	 /**< Prove, first step */
	CTL_PEER_PROOF,	 /**< Prove, second step */
	CTL_PEER_CONNECTED,
};

/** The channel to one configured peer; its slot is that of replication. */
struct ctl_peer {
	struct rp_ctl *ctl;
	rp_repl_peer_id id;
	enum ctl_peer_state state;
	char address[280];
	struct rp_grpc_channel *channel;
	uint64_t node;
	uint8_t nonce[CTL_NONCE_BYTES], peer_nonce[CTL_NONCE_BYTES];
	bool in_zone;		     /**< it is known to be in the zone of this node */
	bool want_dial, want_hangup; /**< replication's wishes, carried out by a task */
	uint32_t calls_open;
	struct rp_loop_timer announce_timer;
	/** Deliver, to a peer that has no link; NULL: not open. */
	struct rp_grpc_client_call *deliver;
	struct rp_list deliver_open; /**< struct ctl_deliver: frames that are not answered */
	bool no_deliver;	     /**< it serves DeliverOne only */
	char obstacle[128];	     /**< why it can have no link, as the log has it */
	char zones[480];	     /**< where peer_zones and its own word differ, likewise */
};

/** A call of ours to a peer, by a unary RPC. */
struct ctl_call {
	struct ctl_peer *peer;
	uint64_t token; /**< of the control engine */
	bool deliver;	/**< DeliverOne; else replication */
};

/** A connection that has begun to prove itself. */
struct ctl_proof {
	struct rp_hmap_node by_connection;
	uint64_t node;
	uint8_t nonce[CTL_NONCE_BYTES], peer_nonce[CTL_NONCE_BYTES];
};

/** A write that etcd waits for. */
struct ctl_write {
	struct rp_hmap_node by_token;
	rp_etcd_done_fn done;
	void *done_ctx;
};

/** Texts of one line of the member list. */
struct ctl_member {
	char name[128], peer_url[300], client_url[300];
	const char *peer, *client;
};

/** A page of a shard's table that somebody wants. */
struct ctl_view_ask {
	bool wanted;
	enum rp_engine_view_kind kind;
	bool exact;
	uint32_t shard, cursor;
	struct rp_engine_view_trace trace;
	char name[RP_NAME_BYTES_MAX + 1];
};

/** Somebody who waits for a snapshot of all shards. */
struct ctl_wait {
	struct rp_list node;
	struct ctl_view_ask ask; /**< not wanted: the numbers alone */
	void (*fn)(struct rp_ctl *ctl, void *who);
	void *who;
};

/** Certificates, keys and authorities, loaded. */
struct ctl_tls {
	struct rp_tls_config *server, *peer; /**< NULL: not wanted */
	struct rp_ctl_link_tls links;	     /**< for the shards; empty once they have it */
	uint64_t stamp;			     /**< of the files: it changes when one does */
};

/** What a program that has the node inside waits for (ctl_embed.c). */
struct ctl_embed {
	struct rp_hmap ops, consumers;
	struct rp_list calls, finished, waiting, watches, all_consumers;
	uint64_t token_last;
	struct rp_loop_task task, again;
	struct rp_loop_timer retry;
};

/** In tokens and handles of ctl_embed.c; those of the services have it not. */
#define CTL_EMBED_FLAG (1ull << 62)

/** Where the capture stands. */
enum ctl_capture_state {
	CTL_CAPTURE_NONE,
	CTL_CAPTURE_STARTING, /**< the shard has been told */
	CTL_CAPTURE_ON,
	CTL_CAPTURE_STOPPING, /**< the shard has been told */
	CTL_CAPTURE_DRAINING, /**< the tap is off, the client has not all of it yet */
};

/** One capture at a time. Blocks that the client has no room for stay here: then the tap's pool is
 * empty, and the shard does not copy what nobody reads. */
struct ctl_capture {
	enum ctl_capture_state state;
	uint32_t open; /**< shards that have not answered the last turn of the tap yet */
	struct rp_grpc_call *call;	  /**< NULL when it has gone */
	struct rp_tap_config tap;	  /**< the shard reads it */
	struct rp_tap_counters *counters; /**< by port; written by the shard */
	struct rte_mbuf **blocks;	  /**< a ring, as large as the pool */
	uint32_t block_first, block_count;
	uint64_t packets, packets_max;
	uint64_t start_wall_ns, end_ns; /**< loop time; RP_NEVER: no end */
	uint64_t told_seen;		/**< by the statistics written last */
	struct rp_loop_timer timer;
};

struct rp_ctl {
	const struct rp_conf *conf;	/**< the one in force */
	struct rp_conf *conf_loaded;	/**< the same, when it came by a reload; ours to free */
	struct rp_ctl_config config;	/**< pointers borrowed, but for those of the secrets */
	struct rp_xmsg_secrets secrets; /**< in force; config points into it */
	uint64_t cluster_id;
	struct rp_loop *loop;
	struct rp_loop_task run_task;
	uint64_t run_at_ns; /**< when run_timer is due */
	struct rp_loop_timer run_timer, second_timer, supervise_timer, stop_timer;
	struct rp_loop_fd ring_watch;
	struct rp_loop_signals signals;
	struct rp_xcore_end *end;
	struct rp_grpc_server *server;
	struct rp_etcd *etcd;
	struct rp_gateway *gateway;
	struct rp_health *health;
	struct rp_reflection *reflection;
	struct rp_etcd_backend backend;
	struct rp_etcd_peer_backend peer_backend;
	struct rp_etcd_process_backend process_backend;
	struct rp_control *control;
	struct ctl_tls tls;
	struct rp_policy *policy;
	int *tls_listeners; /**< as many as there are listen_client_urls */
	unsigned tls_listener_count;
	struct ctl_peer *peers[RP_PEERS_MAX];
	struct rp_loop_task peer_task;
	struct rp_hmap proofs, writes;
	uint64_t write_token_last;
	uint16_t client_port;
	uint64_t started_ns; /**< loop time */
	char peer_url[300];  /**< what the member list shows of this node; "" = its client URL */

	/* Built anew by each call: members change, and few ask. */
	struct ctl_member members[RP_PEERS_MAX + 1];
	struct rp_etcd_member member_list[RP_PEERS_MAX + 1];
	uint64_t member_ids[RP_PEERS_MAX]; /* shown until a peer tells its own; 0 = none */

	/* Snapshots: one round at a time, for all who ask meanwhile the next one. */
	struct rp_engine_snapshot snapshots[RP_SHARDS_MAX];
	struct rp_engine_view *view; /**< of the round under way */
	uint32_t snapshots_open;
	struct rp_list waits_now, waits_next;
	struct rp_impair_spec impair_spec;
	bool impair_busy;
	uint32_t impair_open;		  /**< shards that have not answered yet */
	struct rp_grpc_call *impair_call; /**< waits for IMPAIR; NULL when it has gone */
	struct rp_grpc_method admin_methods[CTL_ADMIN_METHODS];
	struct rp_list clears; /**< calls of Clear and Cancel that wait for their shard */
	uint64_t clear_token_last;
	struct rp_http_handler metrics_handler;
	/* metrics.listen; NULL: none. */
	struct rp_grpc_server *metrics_server;
	struct rp_http_handler metrics_own_handler;
	struct ctl_capture capture;

	/* ctl_announce.c: who has proved itself here, and which members were removed by a call. */
	uint64_t proved_in[RP_PEERS_MAX];
	uint32_t proved_in_next;
	char removed[CTL_REMOVED_MAX][280];
	uint32_t removed_next;

	struct ctl_embed embed;
	struct ctl_sinks *sinks;
	struct ctl_bus *bus;
	uint64_t terms_more; /**< by rp_ctl_restart() */
	void (*wake_fn)(void *ctx);
	void *wake_ctx;
	_Atomic bool woken;

	/* The node is drained, see ctl_drain.c. */
	bool draining, drained, drain_exit;
	bool drain_waits;    /**< for the sinks; the shards do not know of it yet */
	uint64_t drained_ns; /**< loop time */
	struct rp_loop_timer drain_timer;

	/* The end. */
	uint64_t stop_sinks_ns; /**< until then sinks are waited for; 0 = not asked to stop */
	uint32_t stop_phase;	/**< 0 = serving */
	uint32_t stopped_shards;
	bool ended;
	int exit_code;
	_Atomic bool stop_requested;
};

struct rp_repl_now ctl_now(const struct rp_ctl *ctl);
/** The control engine has been told something: let it run in this turn. */
void ctl_kick(struct rp_ctl *ctl);

/* ctl_peers.c */
int ctl_peers_create(struct rp_ctl *ctl);
void ctl_peers_destroy(struct rp_ctl *ctl);
int ctl_peers_add(struct rp_ctl *ctl, const char *address, rp_repl_peer_id *id);
/**
 * Hangs up on the peers that `was` names and `is` does not, and dials the reverse. Members that
 * were added or removed by a call stay so. Returns how many found no room.
 */
/** Hangs up on all that are connected: they are dialled, and synced with, anew. */
void ctl_peers_restart(struct rp_ctl *ctl);
unsigned ctl_peers_change(struct rp_ctl *ctl, const struct rp_conf *was, const struct rp_conf *is);
int ctl_peer_call(void *ctx, rp_repl_peer_id peer, enum rp_repl_kind kind, struct rp_span bytes,
	uint64_t token);
void ctl_peer_dial(void *ctx, rp_repl_peer_id peer, const char *address);
void ctl_peer_hangup(void *ctx, rp_repl_peer_id peer);
/** rp_etcd_backend.lease_ask: over the node's channel, when it is connected. */
void ctl_lease_ask(
	void *ctx, uint64_t node, int64_t lease, bool renew, rp_etcd_lease_fn done, void *done_ctx);
int ctl_unary_call(void *ctx, uint64_t node, struct rp_span frame, uint64_t token);
extern const struct rp_etcd_peer_backend ctl_peer_backend;

/** A peer that listens for no links, as its record says: its frames go by Deliver. */
bool ctl_peer_is_foreign(struct ctl_peer *p);

/** A unary call to the peer, marked as a node's. */
void ctl_peer_call_raw(struct ctl_peer *p, const char *path, const void *data, size_t length,
	uint64_t timeout_ns, rp_grpc_unary_fn done, void *ctx);

/* ctl_announce.c */
/** The peer is connected: should it not dial this node by itself, it is told of it. */
void ctl_announce_later(struct ctl_peer *p);
void ctl_announce_proved(struct rp_ctl *ctl, uint64_t node);
/**
 * A node announces itself. 0: it is none yet, and is to be added; 1: it is a member, in slot *peer;
 * -EPERM: it was removed.
 */
int ctl_announce_check(struct rp_ctl *ctl, const char *url, rp_repl_peer_id *peer);
/** A call removed it, or (false) added it again. */
void ctl_announce_removed(struct rp_ctl *ctl, const char *url, bool removed);

/* ctl_deliver.c */
/** 0: rp_control_unary_result() follows. -ENOTSUP: DeliverOne is to be used. */
int ctl_deliver_send(struct ctl_peer *p, struct rp_span frame, uint64_t token);
/** The channel goes: what is not answered has failed. */
void ctl_deliver_end(struct ctl_peer *p);

/* ctl_prove.c, pure */
struct ctl_proof_input {
	const uint8_t *cluster_uuid;
	uint64_t client_node, server_node;
	const uint8_t *client_nonce, *server_nonce;
};
void ctl_prove_mac(const void *secret, size_t secret_length, const struct ctl_proof_input *in,
	uint8_t direction, uint8_t mac[CTL_MAC_BYTES]);
bool ctl_prove_equal(const uint8_t a[CTL_MAC_BYTES], const uint8_t b[CTL_MAC_BYTES]);

/* ctl_etcd.c */
#define CTL_TEXT_NOT_READY "etcdserver: not ready: the first sync with the peers is not done"
#define CTL_TEXT_RESERVED "ringpost: keys under /_ringpost/ are written by the nodes only"
/** Keys that the node itself writes; clients read them. */
bool ctl_key_is_reserved(struct rp_span key);
void ctl_etcd_backend(struct rp_ctl *ctl, struct rp_etcd_backend *backend);
void ctl_queue_answer(void *ctx, uint64_t token, const struct rp_control_answer *answer);
int ctl_deliver(void *ctx, uint64_t consumer, const struct rp_control_delivery *delivery);
void ctl_withdraw(
	void *ctx, uint64_t consumer, uint64_t idx, struct rp_span tail, int64_t revision);
void ctl_consumer_end(void *ctx, uint64_t consumer, const char *reason);
void ctl_write_done(void *ctx, uint64_t token, const struct rp_kv_result *result);
void ctl_writes_free(struct rp_ctl *ctl);

/* ctl_process.c */
void ctl_process_backend(struct rp_ctl *ctl, struct rp_etcd_process_backend *backend);
void ctl_run_answer(void *ctx, uint64_t run, enum rp_qstatus status, const char *message);
void ctl_run_event(void *ctx, uint64_t run, const struct rp_control_run_event *event);

/* ctl_admin.c */
int ctl_admin_create(struct rp_ctl *ctl);
void ctl_admin_destroy(struct rp_ctl *ctl);
void ctl_snapshot_done(void *ctx, unsigned shard, uint64_t token);
/** All metrics of the node from the newest snapshots. */
void ctl_metrics(struct rp_ctl *ctl, struct rp_metrics *m);

/** A call that waits for a snapshot, with the text of its request. */
struct ctl_admin_call {
	struct rp_grpc_call *call;
	char text[RP_NAME_BYTES_MAX + 1];
	struct rp_endpoint endpoint; /**< of its request; family 0: any, port 0: any */
	struct ctl_view_ask ask;
};

/** Everything of Admin is for callers on this host: false, and the call is refused. */
bool ctl_admin_admitted(struct rp_grpc_call *call);
/** Into `ask`, or false: the name is too long, and the call is refused. */
bool ctl_view_ask_queue(struct rp_grpc_call *call, struct ctl_view_ask *ask, const char *queue);
/** True where `message`, an unpacked request, is NULL; the call is refused. */
bool ctl_admin_malformed(struct rp_grpc_call *call, const void *message);
void ctl_admin_reply(struct rp_grpc_call *call, const ProtobufCMessage *message);
/**
 * Calls `fn` with a struct ctl_admin_call, which it frees, when a snapshot is there. `endpoint` may
 * be NULL.
 */
void ctl_admin_ask(struct rp_ctl *ctl, struct rp_grpc_call *call, const char *text,
	const struct rp_endpoint *endpoint, void (*fn)(struct rp_ctl *, void *));
/** Likewise, with ctl->view filled as `ask` says; not filled when the shard's ring was full. */
void ctl_admin_ask_view(struct rp_ctl *ctl, struct rp_grpc_call *call,
	const struct ctl_view_ask *ask, void (*fn)(struct rp_ctl *, void *));
/** on_cancel of the calls that ctl_admin_ask() began. */
void ctl_admin_on_cancel(struct rp_grpc_call *call, enum rp_grpc_cancel why, void *ctx);

/* ctl_lists.c: what pages share. `fn` as of ctl_admin_ask_view(). */
void ctl_list_ask(struct rp_ctl *ctl, struct rp_grpc_call *call, const uint8_t *data, size_t length,
	enum rp_engine_view_kind kind, void (*fn)(struct rp_ctl *, void *));
struct Ringpost__V1__Page;
void ctl_page_fill(
	struct rp_ctl *ctl, struct Ringpost__V1__Page *p, const struct ctl_view_ask *ask);

/* ctl_queue.c */
/** False: it is no answer to a Clear or a Cancel. */
bool ctl_clear_answer(struct rp_ctl *ctl, uint64_t token, const struct rp_control_answer *answer);
void ctl_clears_free(struct rp_ctl *ctl);
extern const struct rp_grpc_call_ops ctl_messages_ops, ctl_clear_ops, ctl_cancel_ops;
/** Refuses the call: another node dispatches the queue. */
void ctl_refuse_elsewhere(
	struct rp_ctl *ctl, struct rp_grpc_call *call, const char *queue, uint64_t dispatcher);

/* ctl_trace.c */
extern const struct rp_grpc_call_ops ctl_trace_ops;

/* ctl_show.c */
/**
 * "10.0.0.1", "10.0.0.1:80", "fd00::1", "[fd00::1]" or "[fd00::1]:80"; without a port it is 0, and
 * the empty text gives family 0. 0 or -EINVAL.
 */
int ctl_endpoint_filter(struct rp_endpoint *e, const char *text);
/** Family 0 fits all, port 0 each of the address. Any thread. */
bool ctl_endpoint_fits(const struct rp_endpoint *filter, const struct rp_endpoint *e);
extern const struct rp_grpc_call_ops ctl_connections_ops, ctl_neighbours_ops;

/* ctl_embed.c: true where it was about one of its own */
void ctl_embed_create(struct rp_ctl *ctl);
void ctl_embed_destroy(struct rp_ctl *ctl);
bool ctl_embed_answer(struct rp_ctl *ctl, uint64_t token, const struct rp_control_answer *a);
bool ctl_embed_deliver(
	struct rp_ctl *ctl, uint64_t handle, const struct rp_control_delivery *d, int *rc);
bool ctl_embed_withdraw(struct rp_ctl *ctl, uint64_t handle, uint64_t idx);
bool ctl_embed_end(struct rp_ctl *ctl, uint64_t handle, const char *reason);
struct rp_ctl_consumer_ops;
/** As rp_ctl_consume(), of any queue: a ClickHouse queue has no consumer but its sink. */
struct rp_ctl_consumer *ctl_consume_own(struct rp_ctl *ctl, struct rp_span queue,
	const uint8_t *uuid, const char *fields, int64_t start_revision,
	const struct rp_ctl_consumer_ops *ops, void *ctx);

/* ctl_nodes.c */
extern const struct rp_grpc_call_ops ctl_status_ops, ctl_nodes_ops, ctl_log_ops;
/** What a node calls itself; "" when it is not known. */
void ctl_node_name(struct rp_ctl *ctl, uint64_t node, char *name, size_t size);

/* ctl_obstacle.c */
/** Why there can be no link to the node, as its record and this node's ports tell; else "". */
void ctl_obstacle(struct rp_ctl *ctl, uint64_t node, char *text, size_t text_size);
/** Each second: logs what is new. */
void ctl_obstacles_tell(struct rp_ctl *ctl);

/* ctl_links.c */
extern const struct rp_grpc_call_ops ctl_links_ops;

/* ctl_drain.c */
extern const struct rp_grpc_call_ops ctl_drain_ops;
void ctl_drain_setup(struct rp_ctl *ctl);
void ctl_drain(struct rp_ctl *ctl, bool on, bool exit);
/** ready, not ready, draining, drained or stopping. */
const char *ctl_state_name(struct rp_ctl *ctl);

/* ctl_lists.c */
extern const struct rp_grpc_call_ops ctl_queues_ops, ctl_consumers_ops, ctl_streams_ops;
/** Answers a call whose page was not filled. */
bool ctl_view_missing(struct rp_ctl *ctl, struct rp_grpc_call *call);

/* ctl_route.c */
extern const struct rp_grpc_call_ops ctl_route_ops;
/** The value of /q/{name}; empty where there is none. borrow until the store changes. */
struct rp_span ctl_dispatcher_record(struct rp_ctl *ctl, struct rp_span name);

/* ctl_capture.c */
extern const struct rp_grpc_call_ops ctl_capture_ops;
int ctl_capture_create(struct rp_ctl *ctl);
void ctl_capture_destroy(struct rp_ctl *ctl);
/** SNAPSHOT_DONE with one of the tap's tokens. */
void ctl_capture_done(struct rp_ctl *ctl, uint64_t token);
void ctl_tapped(void *ctx, unsigned shard, struct rte_mbuf *block);

/* ctl_tls.c */
int ctl_tls_create(struct rp_ctl *ctl, char *error, size_t error_size);
/**
 * What the files of `c` hold now, those of links for so many shards. 0; -EINVAL with a text,
 * -ENOMEM: nothing is to be freed.
 */
int ctl_tls_load(const struct rp_conf *c, uint32_t link_shards, struct ctl_tls *tls, char *error,
	size_t error_size);
void ctl_tls_free(struct ctl_tls *tls);
/** take: new connections use it; those that are open keep what they have. */
void ctl_tls_use(struct rp_ctl *ctl, const struct ctl_tls *tls);
/** Loads anew when a file has changed; what is no good is logged and changes nothing. */
void ctl_tls_check(struct rp_ctl *ctl);

/* ctl_policy.c */
/** The policy of `c` is in force from now on, zones of the peers included. */
void ctl_policy_use(struct rp_ctl *ctl, const struct rp_conf *c);
/** What queues.policies makes of the queues that the shards have. */
void ctl_queue_policies_use(struct rp_ctl *ctl, const struct rp_conf *c);
/** Whether the peer is in the zone of this node; true: that is new. */
bool ctl_zone_look(struct ctl_peer *p, const struct rp_conf *c);
/** Each second: likewise of all peers, and the shards are told what is new. */
void ctl_zones_look(struct rp_ctl *ctl);
/** May the key go to that node, and come from it? The control engine's callback. */
bool ctl_eligible(void *ctx, uint64_t node, struct rp_span key);
bool ctl_same_zone(void *ctx, uint64_t node);

/* ctl_secret.c */
/** What the files of `c` hold now. 0, or -EINVAL with an error in the report. */
int ctl_secrets_load(
	const struct rp_conf *c, struct rp_xmsg_secrets *s, struct rp_conf_report *report);
/**
 * In force from now on, here and on the shards. What differs in a file of the same name is noted in
 * `changes`. 0; -ENOBUFS: no buffers to tell the shards with, nothing has changed.
 */
int ctl_secrets_use(struct rp_ctl *ctl, const struct rp_conf *next, const struct rp_xmsg_secrets *s,
	struct rp_conf_changes *changes);
/** Of the start: config's are copied. */
void ctl_secrets_create(struct rp_ctl *ctl);

/* ctl_bus.c: what is asked of queues, wherever they are */
int ctl_queue_op(struct rp_ctl *ctl, const struct rp_control_queue_op *op, uint64_t token);
int ctl_consumer_open(struct rp_ctl *ctl, uint64_t handle, struct rp_span name, uint32_t hash,
	const uint8_t uuid[RP_UUID_BYTES], int64_t start_revision, int64_t *revision);
void ctl_consumer_close(struct rp_ctl *ctl, uint64_t handle, enum rp_queue_close how);
void ctl_consumer_room(struct rp_ctl *ctl, uint64_t handle);
/** Whether the queue rides on the message bus. */
bool ctl_bus_rides(struct rp_ctl *ctl, struct rp_span name);
/** The same, as struct rp_control_ops has it. */
bool ctl_queue_rides(void *ctx, struct rp_span name);
/** 0, or -errno with `error` filled. */
int ctl_bus_create(struct rp_ctl *ctl, char *error, size_t error_size);
/** NULL is fine. */
void ctl_bus_destroy(struct rp_ctl *ctl);
void ctl_bus_use(struct rp_ctl *ctl, const struct rp_conf *c);
/** Its consumers end, and what they held goes back. */
void ctl_bus_end_all(struct rp_ctl *ctl, const char *reason);
void ctl_bus_metrics(struct rp_ctl *ctl, struct rp_metrics *m);
/** ctl_bus_route.c: answers Admin.Route of a queue that rides on the bus. */
void ctl_bus_route(struct rp_ctl *ctl, struct rp_grpc_call *call, const char *queue);
/** False: that call is none of its. */
bool ctl_bus_route_cancel(struct rp_ctl *ctl, const struct rp_grpc_call *call);
extern const struct rp_grpc_call_ops ctl_bus_ops;

/* ctl_sink.c */
/** 0, or -errno with `error` filled. */
int ctl_sinks_create(struct rp_ctl *ctl, char *error, size_t error_size);
/** Before ctl_embed_destroy(). NULL is fine. */
void ctl_sinks_destroy(struct rp_ctl *ctl);
/** The registry is known: they begin. */
void ctl_sinks_ready(struct rp_ctl *ctl);
void ctl_sinks_use(struct rp_ctl *ctl, const struct rp_conf *c);
/** Nothing is begun any more; what is under way is waited for while they are busy. */
void ctl_sinks_pause(struct rp_ctl *ctl, bool on);
bool ctl_sinks_busy(struct rp_ctl *ctl);
void ctl_sinks_metrics(struct rp_ctl *ctl, struct rp_metrics *m);

/* ctl_reload.c */
struct ctl_reload {
	bool done; /**< else there is an error in the report, and nothing has changed */
	struct rp_conf_report report;
	struct rp_conf_changes changes;
};
/** Reads the configuration again and uses it; logs what came of it. */
void ctl_reload(struct rp_ctl *ctl, struct ctl_reload *r);
void ctl_reload_free(struct ctl_reload *r);
void ctl_reload_destroy(struct rp_ctl *ctl);
/** What the shards have of the configuration and of the node's state. */
void ctl_shard_limits_use(struct rp_ctl *ctl, const struct rp_conf *c);

/** Listens on metrics.listen. 0, or -errno with `error` filled. */
int ctl_metrics_listen(struct rp_ctl *ctl, char *error, size_t error_size);
void ctl_metrics_close(struct rp_ctl *ctl);
/* ctl_telemetry.c */
void ctl_telemetry_create(struct rp_ctl *ctl);
/** No asker waits for it any more. */
void ctl_telemetry_destroy(struct rp_ctl *ctl);
/** Between turns: somebody may have asked. */
void ctl_telemetry_turn(struct rp_ctl *ctl);

/** Calls `fn` when a snapshot begun from now on is there. */
void ctl_snapshot_wait(struct rp_ctl *ctl, void (*fn)(struct rp_ctl *, void *), void *who);
