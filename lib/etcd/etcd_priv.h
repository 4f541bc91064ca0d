/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Inside of the services.
 *
 *   etcd.c      creation, timers, stop
 *   call.c      unary calls that wait for an answer: tokens, -EAGAIN, physical compaction
 *   convert.c   protobuf <-> operations of the store
 *   policy.c    checks of access, part by part
 *   kv_*.c      the KV service: plain keys, txns, queue traffic
 *   watch.c     streams and their watches; consumer.c those that are consumers of a queue
 *   process*.c requests and workers without keys
 *   cluster.c, maintenance.c, http.c, peer.c, peer_codec.c
 *
 * Ownership: a unary call that cannot be answered at once becomes a struct etcd_call, which lives
 * until its answer came even when the client is gone (then `call` is NULL).
 */

#include <base/list.h>
#include <etcd/etcd.h>
#include <etcd/peer.h>
#include <etcd/process.h>
#include <grpc/http.h>
#include <grpc/server.h>
#include <kv/lease.h>
#include <kv/watch.h>

#include <protobuf-c/protobuf-c.h>

#include "table_priv.h"
#include "wire_priv.h"

/* The generated headers are included where they are used. */
typedef struct Etcdserverpb__DeleteRangeRequest Etcdserverpb__DeleteRangeRequest;
typedef struct Etcdserverpb__DeleteRangeResponse Etcdserverpb__DeleteRangeResponse;
typedef struct Etcdserverpb__PutRequest Etcdserverpb__PutRequest;
typedef struct Etcdserverpb__PutResponse Etcdserverpb__PutResponse;
typedef struct Etcdserverpb__RangeRequest Etcdserverpb__RangeRequest;
typedef struct Etcdserverpb__RangeResponse Etcdserverpb__RangeResponse;
typedef struct Etcdserverpb__ResponseHeader Etcdserverpb__ResponseHeader;
typedef struct Etcdserverpb__TxnRequest Etcdserverpb__TxnRequest;
typedef struct Etcdserverpb__TxnResponse Etcdserverpb__TxnResponse;
typedef struct Etcdserverpb__WatchCreateRequest Etcdserverpb__WatchCreateRequest;
typedef struct Etcdserverpb__WatchResponse Etcdserverpb__WatchResponse;
typedef struct Mvccpb__Event Mvccpb__Event;
typedef struct Mvccpb__KeyValue Mvccpb__KeyValue;

#define ETCD_REQUEST_BYTES_MAX 1572864u
/** What a gRPC message may have above the request limit (section 0). */
#define ETCD_REQUEST_OVERHEAD 524288u
#define ETCD_WATCHES_MAX 65536u
#define ETCD_WAITING_MAX 65536u
#define ETCD_PROGRESS_NS (600 * RP_NS_PER_S)
/** Small requests, of Cluster and Maintenance. */
#define ETCD_SMALL_MESSAGE_BYTES 65536u
/** Above this a stream's requests are not read until its client has read the answers. */
#define ETCD_STREAM_OUT_BYTES 65536u
/** Blocked watches of a stream that are tried again at once when there is room. */
#define ETCD_RESUME_BURST 16
/** Txns in each other that are unpacked; etcd's limit of operations allows no more. */
#define ETCD_TXN_DEPTH_MAX 128u
#define ETCD_VERSION RP_ETCD_VERSION
#define ETCD_VERSION_CLUSTER RP_ETCD_VERSION

/** "3.5.0" */
#define ETCD_DOWNGRADE_BYTES 16

struct etcd_arena_block;
struct etcd_call;
struct etcd_stream;

/** Who may call a method, while auth is on. */
enum etcd_auth_class {
	ETCD_AUTH_SELF, /**< its handler checks, key by key */
	ETCD_AUTH_OPEN,
	ETCD_AUTH_USER, /**< any user */
	ETCD_AUTH_ROOT,
	ETCD_AUTH_ALARM,  /**< a GET any user, else root */
	ETCD_AUTH_STATUS, /**< any user, and a node that dials */
};

/** What the gate needs of a method. */
struct etcd_method {
	struct rp_etcd *e;
	const struct rp_grpc_call_ops *ops;
	enum rp_grpc_kind kind;
	enum etcd_auth_class auth;
	bool of_nodes; /**< only nodes call it */
};

#define ETCD_CLIENT_VERSIONS_MAX 16
#define ETCD_CLIENT_VERSION_BYTES 24

#define ETCD_ALARMS 2
#define ETCD_ALARM_MEMBERS_MAX 64

/** Which members have an alarm, beside this node. */
struct etcd_alarm {
	uint64_t members[ETCD_ALARM_MEMBERS_MAX];
	uint32_t count;
	bool own; /**< this node has it, too; of meaning while count > 0 */
};

/** Calls of clients of one version. */
struct etcd_client {
	char version[ETCD_CLIENT_VERSION_BYTES];
	uint64_t unary, streams;
};

struct etcd_auth;
struct etcd_process;

struct rp_etcd {
	struct rp_etcd_config config;
	const struct rp_etcd_backend *backend;
	struct rp_kv *kv;
	const struct rp_policy *policy; /**< NULL: all is allowed */
	uint64_t now_ns;
	bool stopped;

	struct rp_grpc_method *methods; /**< borrowed by the server */
	uint32_t method_count;
	struct etcd_method *gates; /**< one a method */
	struct etcd_auth *auth;
	struct etcd_process *process;
	struct rp_http_handler http[4]; /**< borrowed by the server */

	uint64_t token_last;
	struct etcd_table calls;    /**< struct etcd_call by token */
	struct etcd_table delivers; /**< frames of Deliver that are not answered */
	uint64_t deliver_last;
	struct rp_list waiting;	    /**< struct etcd_call: the ring had no room */
	struct rp_list compactions; /**< struct etcd_call: wait for memory to be freed */
	uint32_t waiting_count;

	struct rp_list keepalives, keepalives_unsent,
		keepalives_waiting;		 /**< struct etcd_keepalive */
	struct rp_list contests, contests_ready; /**< struct etcd_contest */
	struct rp_list observers;		 /**< struct etcd_observer */

	struct rp_list streams;
	struct etcd_table consumers;  /**< struct etcd_watch by handle */
	struct etcd_table identities; /**< the same, by a hash of queue and uuid */
	struct rp_list rooms; /**< struct etcd_stream: to be told of room by rp_etcd_run() */
	uint64_t consumer_last;
	uint64_t progress_next_ns;

	uint64_t retried_ns; /**< when clients without room were tried last */
	uint64_t connection_last;
	uint32_t snapshots;		       /**< streams under way */
	struct etcd_alarm alarms[ETCD_ALARMS]; /**< NOSPACE, CORRUPT */
	uint32_t client_count;
	struct etcd_client clients[ETCD_CLIENT_VERSIONS_MAX]; /**< the last is "other" */
	char downgrade_target[ETCD_DOWNGRADE_BYTES];	      /**< "" = no downgrade is under way */

	/* Scratch of one watch response: two key-values an event. */
	Mvccpb__KeyValue *kvs;
	Mvccpb__Event *events, **event_pointers;
	uint32_t kvs_size, events_size, event_pointers_size;

	struct rp_etcd_stats stats;
};

/** A connection that has called the Peer service. */
struct etcd_conn {
	struct rp_etcd *e;
	uint64_t id;
	bool proved;
	uint64_t node;
};

/* ---- arena ---- */

struct etcd_arena {
	struct etcd_arena_block *blocks;
};
/** Zeroed memory that lives until etcd_arena_free(). */
void *etcd_arena_get(struct etcd_arena *a, size_t bytes);
void etcd_arena_free(struct etcd_arena *a);

/* ---- calls ---- */

enum etcd_call_kind {
	ETCD_CALL_PUT,
	ETCD_CALL_DELETE,
	ETCD_CALL_TXN,
	ETCD_CALL_QUEUE_PUT,
	ETCD_CALL_QUEUE_ACK,
	ETCD_CALL_QUEUE_GET,
	ETCD_CALL_QUEUE_TXN,
	ETCD_CALL_COMPACT,
	ETCD_CALL_LEASE,
	ETCD_CALL_AUTH,
	ETCD_CALL_PROVE,
	ETCD_CALL_APPLY,
	ETCD_CALL_SYNC,
	ETCD_CALL_DELIVER_ONE,
};

struct etcd_call {
	struct etcd_node node; /**< in e->calls by token */
	struct rp_list link;   /**< on waiting or compactions */
	struct rp_etcd *e;
	struct rp_grpc_call *call; /**< NULL when the client is gone */
	struct etcd_conn *conn;	   /**< of PROVE; NULL when it closed */
	enum etcd_call_kind kind;
	ProtobufCMessage *request; /**< take */
	struct etcd_arena arena;
	struct rp_span key;	       /**< as the client spelled it: for the answer */
	const struct rp_kv_txn *asked; /**< TXN, QUEUE_TXN: as the client sent it */
	struct rp_kv_result guard;     /**< QUEUE_TXN: of its compares and reads */
	struct rp_etcd_queue_op *ops;  /**< QUEUE_*: in the arena */
	uint32_t op_count;
	int64_t lease;	  /**< LEASE */
	const char *hash; /**< AUTH: of the password */
	bool batch;
	bool waits; /**< counted in waiting_count */
};

/** A call that waits; NULL: there are too many, and it has been refused. take: request. */
struct etcd_call *etcd_call_new(struct rp_etcd *e, struct rp_grpc_call *call,
	enum etcd_call_kind kind, ProtobufCMessage *request);
/** Ends it towards us; its client has been answered, or is gone. */
void etcd_call_free(struct etcd_call *c);
struct etcd_call *etcd_call_find(struct rp_etcd *e, uint64_t token);
/** on_cancel of every unary method. */
void etcd_call_on_cancel(struct rp_grpc_call *call, enum rp_grpc_cancel why, void *ctx);
/** Gives its queue operation to the backend, or lets it wait. */
void etcd_call_queue(struct etcd_call *c);
void etcd_calls_run(struct rp_etcd *e);
/** Finishes with an error, when the client is still there, and frees. */
void etcd_call_fail(struct etcd_call *c, int code, const char *message);
/** Packs and sends the only answer, when the client is still there, and frees. */
void etcd_call_reply(struct etcd_call *c, const ProtobufCMessage *m);

/* ---- answers ---- */

void etcd_reply(struct rp_grpc_call *call, const ProtobufCMessage *m);
void etcd_refuse(struct rp_grpc_call *call, int code, const char *message);
void etcd_refuse_kv(struct rp_grpc_call *call, enum rp_kv_error error);
/** INTERNAL, for bytes that are no message. Counted. */
void etcd_refuse_malformed(struct rp_etcd *e, struct rp_grpc_call *call, const char *name);
int etcd_kv_code(enum rp_kv_error error);
Etcdserverpb__ResponseHeader etcd_header(const struct rp_etcd *e, int64_t revision);
/** Unpacks, or refuses the call and returns NULL. */
void *etcd_unpack(struct rp_etcd *e, struct rp_grpc_call *call, const ProtobufCMessageDescriptor *d,
	const uint8_t *data, size_t length);
void etcd_unpacked_free(ProtobufCMessage *m);
struct rp_etcd_caller etcd_caller_of(struct rp_etcd *e, struct rp_grpc_call *call);
/** Of who has authenticated, to tell users apart; 0: nobody has. */
uint64_t etcd_user_of(const struct rp_etcd_caller *caller);
/** Grows scratch; as realloc, but for the check. */
void *etcd_grow(void *array, uint32_t *size, uint64_t want, size_t item);

/* ---- conversion ---- */

static inline struct rp_span etcd_span(ProtobufCBinaryData b)
{
	return (struct rp_span){.data = b.data, .length = b.len};
}
static inline ProtobufCBinaryData etcd_bytes(struct rp_span s)
{
	return (ProtobufCBinaryData){.data = (uint8_t *)s.data, .len = s.length};
}
struct rp_kv_range etcd_range_of(const Etcdserverpb__RangeRequest *r);
struct rp_kv_put etcd_put_of(const Etcdserverpb__PutRequest *p);
struct rp_kv_delete etcd_delete_of(const Etcdserverpb__DeleteRangeRequest *d);
/** The txn, and all it refers to, in the arena; bytes stay the request's. */
struct rp_kv_txn *etcd_txn_of(struct etcd_arena *a, const Etcdserverpb__TxnRequest *t);
void etcd_kv_fill(Mvccpb__KeyValue *kv, const struct rp_kv_version *v, bool keys_only);
/** Answers in the arena. `spelled`: the key to show instead of the stored one, unless empty. */
Etcdserverpb__RangeResponse *etcd_range_response(
	struct etcd_arena *a, const struct rp_kv_range_result *r, struct rp_span spelled);
Etcdserverpb__PutResponse *etcd_put_response(
	struct etcd_arena *a, const struct rp_kv_version *prev, struct rp_span spelled);
/** Also of a delete that became a txn of several (etcd_txn_split()). */
Etcdserverpb__DeleteRangeResponse *etcd_delete_response(
	struct etcd_arena *a, const struct rp_kv_op_result *r, struct rp_span spelled);
/** `asked` is the txn before etcd_txn_split(). */
Etcdserverpb__TxnResponse *etcd_txn_response(
	struct etcd_arena *a, const struct rp_kv_txn_result *r, const struct rp_kv_txn *asked);
Etcdserverpb__ResponseHeader *etcd_header_in(
	struct etcd_arena *a, const struct rp_etcd *e, int64_t revision);
Etcdserverpb__ResponseHeader *etcd_header_part(struct etcd_arena *a, int64_t revision);

/* ---- policy ---- */

/** 0, or a gRPC status and the text. */
int etcd_check(struct rp_etcd *e, enum rp_etcd_access access, struct rp_span key,
	struct rp_span end, const struct rp_etcd_caller *caller, const char **message);
int etcd_check_txn(struct rp_etcd *e, const struct rp_kv_txn *t,
	const struct rp_etcd_caller *caller, const char **message);

/** The prefix policy alone. */
int etcd_policy_check(struct rp_etcd *e, enum rp_etcd_access access, struct rp_span key,
	struct rp_span end, const struct rp_etcd_caller *caller, const char **message);
/** True when etcd_policy_check() may refuse. */
static inline bool etcd_policy_limits(const struct rp_etcd *e)
{
	return e->policy && rp_policy_limits_calls(e->policy);
}

/* ---- KV service ---- */

extern const struct rp_grpc_call_ops etcd_range_ops, etcd_put_ops, etcd_delete_ops, etcd_txn_ops,
	etcd_compact_ops;

/** Text for a key that is RP_KEY_INVALID, or a SINK where no client may: why, and what was
 * expected. */
void etcd_key_reason(const struct rp_route_key *k, char *out, size_t size);
/** Gives the txn to backend->propose(); the call is answered by its kind. */
void etcd_propose(struct etcd_call *c, const struct rp_kv_txn *txn);
/**
 * The txn with each ranged delete that meets keys below /q/ or /queue/ turned into a nested txn of
 * up to three deletes around them; the same txn when there is none.
 */
const struct rp_kv_txn *etcd_txn_split(struct etcd_arena *a, const struct rp_kv_txn *t);
/**
 * A range inside /queue/ means the same range inside /q/, where records are stored: makes it that,
 * in the arena. True when it did; etcd_alias_key() then spells a stored key as the client does.
 */
bool etcd_alias_range(struct etcd_arena *a, struct rp_span *key, struct rp_span *end);
void etcd_alias_key(struct etcd_arena *a, ProtobufCBinaryData *key);
/** The canonical spelling of a registry key, in the arena. */
struct rp_span etcd_canonical(struct etcd_arena *a, const struct rp_route_key *k);

/* kv_queue.c; the request is taken, the call answered now or later. */
void etcd_queue_put(struct rp_etcd *e, struct rp_grpc_call *call, Etcdserverpb__PutRequest *request,
	const struct rp_route_key *key);
void etcd_queue_delete(struct rp_etcd *e, struct rp_grpc_call *call,
	Etcdserverpb__DeleteRangeRequest *request, const struct rp_route_key *key);
void etcd_queue_get(struct rp_etcd *e, struct rp_grpc_call *call,
	Etcdserverpb__RangeRequest *request, const struct rp_route_key *key);
/** Makes a queue operation of an operation of the store: 0, or a status and *message. */
int etcd_queue_op_of(struct rp_etcd_queue_op *out, const struct rp_kv_op *op,
	const struct rp_route_key *key, const struct rp_etcd_caller *caller, const char **message);
/**
 * An envelope that is put says where the answers go: may the caller write there? 0, or a status and
 * *message.
 */
int etcd_queue_check_reply(struct rp_etcd *e, const struct rp_etcd_queue_op *op,
	const struct rp_etcd_caller *caller, const char **message);
void etcd_qstatus_text(
	const struct rp_etcd_queue_answer *answer, struct rp_span name, char *out, size_t size);
/** The message of an answer as a KeyValue under the key that the client named. */
Mvccpb__KeyValue *etcd_queue_kv(
	struct etcd_arena *a, const struct rp_etcd_queue_answer *answer, struct rp_span key);

/* kv_txn.c */
void etcd_queue_txn_answer(struct etcd_call *c, enum rp_qstatus status, const char *message,
	const struct rp_etcd_queue_answer *answers, uint32_t count);

/* ---- watch service ---- */

enum etcd_watch_kind {
	ETCD_WATCH_KEYS,     /**< has a watcher in the store */
	ETCD_WATCH_CONSUMER, /**< of a queue */
	ETCD_WATCH_ENDED,    /**< by the server; known until its client cancels it */
};

/** A message that could not be queued. */
struct etcd_parked {
	struct rp_list link;
	size_t length;
	uint8_t data[];
};

/** A delivery on its way to the socket. */
struct etcd_accept {
	struct rp_list link;
	uint64_t consumer, idx;
	int64_t mod_revision;
};

struct etcd_stream {
	struct rp_list link;	  /**< on e->streams */
	struct rp_list room_link; /**< on e->rooms */
	struct rp_etcd *e;
	struct rp_grpc_call *call;
	struct etcd_table watches; /**< struct etcd_watch by id */
	struct rp_list blocked;	   /**< struct etcd_watch: key watches without room */
	struct rp_list hungry;	   /**< struct etcd_watch: consumers refused a delivery */
	struct rp_list parked;	   /**< struct etcd_parked */
	struct rp_list accepts;	   /**< struct etcd_accept, in order of sending */
	int64_t id_next;
	uint32_t consumer_count;
	bool paused;
};

struct etcd_watch {
	struct etcd_node node;	   /**< in stream->watches by id */
	struct etcd_node handle;   /**< in e->consumers */
	struct etcd_node identity; /**< in e->identities */
	struct rp_list link;	   /**< on blocked or hungry */
	struct etcd_stream *stream;
	enum etcd_watch_kind kind;
	struct rp_kv_watcher *watcher; /**< KEYS */
	bool progress_notify, fragment;
	bool alias;	       /**< its range was inside /queue/ */
	bool sent;	       /**< something since the last progress tick */
	int64_t last_revision; /**< CONSUMER: of the last header it was sent */
	uint8_t uuid[RP_UUID_BYTES];
	uint32_t name_length, spelled_length;
	/** Queue name (CONSUMER), then the key as the client spelled it (CONSUMER, registry keys).
	 */
	uint8_t bytes[];
};

extern const struct rp_grpc_call_ops etcd_watch_stream_ops;

static inline int64_t etcd_watch_id(const struct etcd_watch *w)
{
	return (int64_t)w->node.key;
}
static inline struct rp_span etcd_watch_spelled(const struct etcd_watch *w)
{
	return (struct rp_span){.data = w->bytes + w->name_length, .length = w->spelled_length};
}
/** Sends now, or parks until there is room; for what must not be lost. */
void etcd_stream_send(struct etcd_stream *s, const Etcdserverpb__WatchResponse *m);
/** Sends only with room to spare: 0 or -EAGAIN, and `room` comes by etcd_stream_room(). */
int etcd_stream_offer(struct etcd_stream *s, const Etcdserverpb__WatchResponse *m, uint64_t cookie);
void etcd_stream_refuse(struct etcd_stream *s, const char *reason);
/** Takes the watch out of its stream and frees it. */
void etcd_watch_free(struct etcd_watch *w);
/** Ends it by the server with a reason (NULL: compaction, with its revision). */
void etcd_watch_end(struct etcd_watch *w, const char *reason, int64_t compact_revision);
/** Allocated with an id, in the stream. */
struct etcd_watch *etcd_watch_new(
	struct etcd_stream *s, int64_t id, struct rp_span name, struct rp_span spelled);
void etcd_watch_created(struct etcd_watch *w, int64_t revision);
void etcd_streams_progress(struct rp_etcd *e);
void etcd_streams_room(struct rp_etcd *e);
/** Ends the watches that the policy refuses now. */
void etcd_streams_policy(struct rp_etcd *e);
void etcd_streams_stop(struct rp_etcd *e);

/* consumer.c */
/** A create request for a consumer key: created or refused. */
void etcd_consumer_create(struct etcd_stream *s, const Etcdserverpb__WatchCreateRequest *r,
	int64_t id, const struct rp_route_key *key);
/** The consumer is over; tells the backend and unhooks. The watch stays its stream's. */
void etcd_consumer_closed(struct etcd_watch *w, enum rp_etcd_consumer_end why);
void etcd_consumer_room(struct etcd_watch *w);
void etcd_consumer_written(struct etcd_stream *s, uint64_t cookie);

/* ---- lease.c, keepalive.c ---- */

extern const struct rp_grpc_call_ops etcd_lease_grant_ops, etcd_lease_revoke_ops,
	etcd_lease_keepalive_ops, etcd_lease_time_to_live_ops, etcd_lease_leases_ops;
/** Asks the node that counts it; `done` exactly once. */
void etcd_lease_ask(struct rp_etcd *e, const struct rp_kv_lease *lease, bool renew,
	rp_etcd_lease_fn done, void *done_ctx);
/** Proposes one system operation for the call, which `done` answers. */
void etcd_propose_system(struct etcd_call *c, struct rp_kv_system_op op, rp_etcd_done_fn done);
/** Answers that found no room are tried again, and nodes that gave none are asked again. */
void etcd_keepalives_run(struct rp_etcd *e);
/** When one of those that wait is to be asked again; RP_NEVER. */
uint64_t etcd_keepalives_next_ns(const struct rp_etcd *e);
void etcd_keepalives_stop(struct rp_etcd *e);
void etcd_keepalives_free(struct rp_etcd *e);

/* ---- auth_token.c, auth_service.c ---- */

extern const struct rp_grpc_call_ops etcd_gate_ops; /**< ctx: struct etcd_method */
extern const struct rp_grpc_call_ops etcd_auth_enable_ops, etcd_auth_disable_ops,
	etcd_auth_status_ops, etcd_authenticate_ops, etcd_user_add_ops, etcd_user_get_ops,
	etcd_user_list_ops, etcd_user_delete_ops, etcd_user_change_password_ops,
	etcd_user_grant_role_ops, etcd_user_revoke_role_ops, etcd_role_add_ops, etcd_role_get_ops,
	etcd_role_list_ops, etcd_role_delete_ops, etcd_role_grant_permission_ops,
	etcd_role_revoke_permission_ops;
int etcd_auth_create(struct rp_etcd *e);
/** True: a password is being hashed. */
bool etcd_auth_run(struct rp_etcd *e);
void etcd_auth_free(struct rp_etcd *e);
/** Fills the user in. */
void etcd_auth_identify(
	struct rp_etcd *e, struct rp_grpc_call *call, struct rp_etcd_caller *caller);
bool etcd_auth_is_on(const struct rp_etcd *e);
/** 0, or a gRPC status and the text: a user that may do that to the range. */
int etcd_auth_check(struct rp_etcd *e, enum rp_etcd_access access, struct rp_span key,
	struct rp_span end, const struct rp_etcd_caller *caller, const char **message);
/** The same for any user, or one with role root. */
int etcd_auth_require(
	struct rp_etcd *e, const struct rp_etcd_caller *caller, bool root, const char **message);
/** The same for every key of the lease. */
int etcd_auth_check_lease(struct rp_etcd *e, enum rp_etcd_access access, int64_t lease,
	const struct rp_etcd_caller *caller, const char **message);

/* ---- contest.c, lock.c, election.c ---- */

extern const struct rp_grpc_call_ops etcd_lock_ops, etcd_unlock_ops, etcd_campaign_ops,
	etcd_proclaim_ops, etcd_leader_ops, etcd_observe_ops, etcd_resign_ops;
/** Those whose predecessor has gone. */
void etcd_contests_run(struct rp_etcd *e);
void etcd_contests_stop(struct rp_etcd *e);
void etcd_contests_free(struct rp_etcd *e);
/** Ends those that the policy refuses now. */
void etcd_observers_policy(struct rp_etcd *e);
void etcd_observers_stop(struct rp_etcd *e);

/* ---- the rest ---- */

uint64_t etcd_now_ns(const struct rp_etcd *e);
/** A stream of a client that asks for a leader (clientv3's WithRequireLeader), without one. */
bool etcd_leader_missing(struct rp_etcd *e, struct rp_grpc_call *call);
#define ETCD_TEXT_TIMED_OUT "etcdserver: request timed out"
/** Refuses a write that comes too late. */
bool etcd_stopped(struct rp_etcd *e, struct rp_grpc_call *call);
#define ETCD_TEXT_STOPPED "etcdserver: server stopped"

extern const struct rp_grpc_call_ops etcd_member_add_ops, etcd_member_list_ops, etcd_alarm_ops,
	etcd_status_ops, etcd_hash_ops, etcd_hash_kv_ops, etcd_member_remove_ops,
	etcd_member_update_ops, etcd_member_promote_ops, etcd_defragment_ops, etcd_move_leader_ops,
	etcd_downgrade_ops, etcd_snapshot_ops;
extern const struct rp_grpc_call_ops etcd_prove_ops, etcd_apply_ops, etcd_sync_ops,
	etcd_deliver_one_ops, etcd_deliver_ops, etcd_peer_lease_ops;
/** NULL: the connection has not proved itself, and the call is refused. */
const struct etcd_conn *etcd_peer_is_proved(struct rp_etcd *e, struct rp_grpc_call *call);
/** Tokens of frames that came by Deliver. */
#define ETCD_DELIVER_FLAG (1ull << 61)
/** False: the token is not one of them. A status other than 0 is why there is no answer. */
bool etcd_deliver_answer(
	struct rp_etcd *e, uint64_t token, struct rp_span answer, int status, const char *text);
int etcd_http_register(struct rp_etcd *e);

/* ---- process.c, process_run.c, process_work.c; nothing happens without backend->process ---- */

extern const struct rp_grpc_call_ops etcd_run_ops, etcd_work_ops;
int etcd_process_create(struct rp_etcd *e);
void etcd_process_free(struct rp_etcd *e);
/** True: something waits for a ring, or for a connection that took nothing. */
bool etcd_process_run(struct rp_etcd *e);
/** Ends the streams that the policy refuses now. */
void etcd_process_policy(struct rp_etcd *e);
void etcd_process_stop(struct rp_etcd *e);
void etcd_process_on_room(struct rp_grpc_call *call, void *ctx);
void etcd_process_on_written(struct rp_grpc_call *call, uint64_t cookie, void *ctx);
/** False: the token is not one of Work. */
bool etcd_work_answer(struct rp_etcd *e, uint64_t token, const struct rp_etcd_queue_answer *answer);
/* As the functions of etcd.h, for consumers with RP_ETCD_PROCESS_FLAG. */
int etcd_work_deliver(struct rp_etcd *e, uint64_t handle, const struct rp_etcd_delivery *d);
int etcd_work_withdraw(struct rp_etcd *e, uint64_t handle, uint64_t idx);
void etcd_work_end(struct rp_etcd *e, uint64_t handle, const char *reason);
