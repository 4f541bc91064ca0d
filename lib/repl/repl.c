/* SPDX-License-Identifier: Apache-2.0 */

/* Peers, their states, and time (spec/cluster.md, Membership). */

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <base/assert.h>
#include <base/log.h>
#include <repl/repl_priv.h>
#include <route/record.h>

_Static_assert((int)RP_REPL_GONE == (int)RP_NODE_GONE && (int)RP_REPL_SPARE == (int)RP_NODE_SPARE &&
		       (int)RP_REPL_IN_PROGRESS == (int)RP_NODE_IN_PROGRESS &&
		       (int)RP_REPL_ONLINE == (int)RP_NODE_ONLINE,
	"one order of states");

#define REPL_SWEEP_NS (2 * RP_NS_PER_S)
#define REPL_SWEEP_KEYS 4096
/** A dial to a wrong cluster or a double URL is tried again, but this much more seldom. */
#define REPL_REFUSED_REDIALS 10

const char *rp_repl_state_name(enum rp_repl_state state)
{
	static const char *const names[] = {"gone", "spare", "in progress", "online"};

	RP_ASSERT(state <= RP_REPL_ONLINE);
	return names[state];
}

/* ---- creation ---- */

static void repl_default(uint32_t *knob, uint32_t value)
{
	if (*knob == 0)
		*knob = value;
}

static void repl_config_complete(struct rp_repl_config *c)
{
	repl_default(&c->ack_ms, 1000);
	repl_default(&c->sync_s, 30);
	repl_default(&c->tombstone_s, 600);
	repl_default(&c->tombstone_max_s, 86400);
	repl_default(&c->max_skew_s, 3600);
	repl_default(&c->boot_ms, 3000);
	repl_default(&c->redial_ms, 1000);
	repl_default(&c->timeout_ms, 3000);
	repl_default(&c->hello_ms, 500);
	repl_default(&c->queue_bytes, 16u << 20);
	repl_default(&c->queue_writes, 16384);
	repl_default(&c->calls_max, 8);
	repl_default(&c->message_bytes, 262144);
	repl_default(&c->waiting_max, 65536);
}

struct rp_repl *rp_repl_create(struct rp_kv *kv, const struct rp_repl_config *config)
{
	struct rp_repl *r;

	if (!kv || config->node == 0 || !config->ops) {
		errno = EINVAL;
		return NULL;
	}
	r = calloc(1, sizeof(*r));
	if (!r)
		return NULL;
	r->kv = kv;
	r->config = *config;
	repl_config_complete(&r->config);
	r->rand.state = config->seed;
	r->token_next = 1;
	rp_list_init(&r->writes);
	for (uint32_t i = 0; i < REPL_EPOCH_BUCKETS; i++)
		rp_list_init(&r->epochs[i]);
	for (struct repl_peer *p = r->peers; p < r->peers + RP_PEERS_MAX; p++) {
		rp_list_init(&p->queue);
		rp_list_init(&p->calls);
	}
	r->hook.on_commit = repl_hook;
	r->hook.ctx = r;
	rp_kv_hook_add(kv, &r->hook);
	return r;
}

static void repl_peer_drop_calls(struct rp_repl *r, struct repl_peer *p)
{
	struct rp_list *n;

	while ((n = rp_list_pop_front(&p->calls))) {
		struct repl_call *c = rp_list_entry(n, struct repl_call, node);

		repl_items_end(r, p, &c->items, false);
		free(c);
	}
	p->apply_calls = 0;
	p->sync_call = false;
}

static void repl_mute_done(void *ctx, uint64_t token, bool confirmed)
{
	(void)ctx;
	(void)token;
	(void)confirmed;
}

void rp_repl_destroy(struct rp_repl *r)
{
	static const struct rp_repl_ops mute = {.write_done = repl_mute_done};

	if (!r)
		return;
	r->config.ops = &mute;
	rp_kv_hook_remove(r->kv, &r->hook);
	for (struct repl_peer *p = r->peers; p < r->peers + r->slots; p++) {
		repl_peer_drop_calls(r, p);
		repl_queue_drop(r, p);
		repl_run_free(&p->run);
		free(p->address);
	}
	repl_writes_free(r);
	repl_epochs_free(r);
	repl_buf_free(&r->out);
	repl_buf_free(&r->answer);
	repl_buf_free(&r->scratch[0]);
	repl_buf_free(&r->scratch[1]);
	free(r);
}

/* ---- small things that all files use ---- */

struct repl_peer *repl_peer_by_node(struct rp_repl *r, uint64_t node)
{
	for (struct repl_peer *p = r->peers; node != 0 && p < r->peers + r->slots; p++)
		if (p->used && !p->self && p->node == node)
			return p;
	return NULL;
}

bool repl_eligible(const struct rp_repl *r, uint64_t node, struct rp_span key)
{
	return !r->config.ops->eligible || r->config.ops->eligible(r->config.ctx, node, key);
}

bool repl_expired(const struct rp_repl *r, bool deleted, uint64_t stamp)
{
	return deleted && stamp + r->config.tombstone_s * 1000000ull < r->now.wall_us;
}

void repl_set_state(struct rp_repl *r, struct repl_peer *p, enum rp_repl_state state)
{
	if (p->state == state)
		return;
	p->state = state;
	if (p->node == 0)
		return;
	RP_LOG(RP_LOG_REPL, RP_LOG_INFO, "node %" PRIu64 " (%s) is %s", p->node, p->address,
		rp_repl_state_name(state));
	r->config.ops->node_state(r->config.ctx, p->node, state);
}

static void repl_state_update(struct rp_repl *r, struct repl_peer *p)
{
	if (!p->used || p->self)
		return;
	if (!p->connected)
		repl_set_state(r, p, RP_REPL_SPARE);
	else if (p->synced && p->ready)
		repl_set_state(r, p, RP_REPL_ONLINE);
	else
		repl_set_state(r, p, RP_REPL_IN_PROGRESS);
}

void repl_hello_make(const struct rp_repl *r, struct repl_hello *hello)
{
	*hello = (struct repl_hello){
		.node = r->config.node,
		.cluster_high = r->config.cluster_high,
		.cluster_low = r->config.cluster_low,
		.wall_us = r->now.wall_us,
		.ready = r->ready,
	};
}

static bool repl_same_cluster(const struct rp_repl *r, uint64_t high, uint64_t low)
{
	return (high | low) != 0 && high == r->config.cluster_high && low == r->config.cluster_low;
}

int repl_hello_take(struct rp_repl *r, struct repl_peer *p, const struct repl_hello *hello)
{
	if (!repl_same_cluster(r, hello->cluster_high, hello->cluster_low)) {
		REPL_COUNT(r, wrong_cluster, 1);
		return -EPERM;
	}
	if (p && p->connected) {
		p->ready = hello->ready;
		repl_state_update(r, p);
	}
	return 0;
}

/* ---- readiness ---- */

static void repl_ready_check(struct rp_repl *r)
{
	bool late = r->now.ns >= r->boot_deadline_ns;

	if (!r->started || r->ready)
		return;
	for (struct repl_peer *p = r->peers; p < r->peers + r->slots; p++)
		if (p->used && p->boot_open && (p->connected || !late))
			return;
	r->ready = true;
	r->alone = r->last_sync_wall_us == 0;
	RP_LOG(RP_LOG_REPL, RP_LOG_INFO, r->alone ? "no peer to sync with: alone" : "synced");
	/* Peers wait to hear it before they count this node. */
	for (struct repl_peer *p = r->peers; p < r->peers + r->slots; p++)
		p->hello_at_ns = 0;
	r->config.ops->node_state(r->config.ctx, r->config.node, RP_REPL_ONLINE);
	r->config.ops->ready(r->config.ctx, r->alone);
}

bool rp_repl_ready(const struct rp_repl *r)
{
	return r->ready;
}

void repl_synced(struct rp_repl *r, struct repl_peer *p)
{
	p->synced = true;
	p->boot_open = false;
	p->sync_at_ns = r->now.ns + r->config.sync_s * RP_NS_PER_S +
			rp_rand_below(&r->rand, r->config.sync_s * RP_NS_PER_S / 8 + 1);
	r->last_sync_wall_us = r->now.wall_us;
	r->pulling = false;
	repl_state_update(r, p);
}

/* ---- falling and dialling ---- */

static void repl_dial_later(struct rp_repl *r, struct repl_peer *p, uint32_t times)
{
	uint64_t ns = r->config.redial_ms * RP_NS_PER_MS * times;

	p->dial_at_ns = r->now.ns + ns / 2 + rp_rand_below(&r->rand, ns / 2 + 1);
}

static void repl_fall(struct rp_repl *r, struct repl_peer *p, enum repl_fall why)
{
	bool hangup = p->connected || p->dialling;

	switch (why) {
	case REPL_FALL_NONE:
		break;
	case REPL_FALL_LOSS:
		r->stats.peer_losses += p->connected;
		break;
	case REPL_FALL_TIMEOUT:
		REPL_COUNT(r, peer_timeouts, 1);
		break;
	case REPL_FALL_OVERFLOW:
		REPL_COUNT(r, peer_overflows, 1);
		break;
	}
	p->fall = REPL_FALL_NONE;
	p->connected = p->dialling = p->synced = p->ready = false;
	repl_run_stop(r, p, true);
	repl_state_update(r, p);
	repl_peer_drop_calls(r, p);
	repl_queue_drop(r, p);
	repl_dial_later(r, p, 1);
	if (hangup)
		r->config.ops->hangup(r->config.ctx, repl_peer_id(r, p));
}

static void repl_dial(struct rp_repl *r, struct repl_peer *p)
{
	p->dialling = true;
	p->dial_deadline_ns = r->now.ns + r->config.timeout_ms * RP_NS_PER_MS;
	REPL_COUNT(r, dials, 1);
	r->config.ops->dial(r->config.ctx, repl_peer_id(r, p), p->address);
}

/** Ends what was put off: peers that fell where nothing could be called, runs that may go on. */
static void repl_settle(struct rp_repl *r)
{
	for (struct repl_peer *p = r->peers; p < r->peers + r->slots; p++) {
		if (!p->used)
			continue;
		if (p->connected && p->fall == REPL_FALL_NONE) {
			repl_run_step(r, p);
			repl_pump(r, p);
		}
		if (p->fall != REPL_FALL_NONE)
			repl_fall(r, p, p->fall);
	}
	repl_ready_check(r);
}

/* ---- calls ---- */

bool repl_call(struct rp_repl *r, struct repl_peer *p, enum repl_purpose purpose,
	struct rp_span bytes, struct rp_list *items)
{
	enum rp_repl_kind kind = purpose == REPL_FOR_APPLY ? RP_REPL_APPLY : RP_REPL_SYNC;
	struct repl_call *c = calloc(1, sizeof(*c));
	uint64_t token = r->token_next++ << 8 | repl_peer_id(r, p);

	RP_ASSERT(c && p->fall == REPL_FALL_NONE);
	c->token = token;
	c->purpose = purpose;
	c->deadline_ns = r->now.ns + r->config.timeout_ms * RP_NS_PER_MS;
	rp_list_init(&c->items);
	if (items) {
		rp_list_splice_back(&c->items, items);
		rp_list_init(items);
	}
	rp_list_push_back(&p->calls, &c->node);
	if (kind == RP_REPL_APPLY) {
		p->apply_calls++;
	} else {
		p->sync_call = true;
		REPL_COUNT(r, syncs_sent, 1);
	}
	p->hello_at_ns = r->now.ns + r->config.hello_ms * RP_NS_PER_MS;
	if (r->config.ops->send(r->config.ctx, repl_peer_id(r, p), kind, bytes, token) == 0)
		return true;
	/* The fall ends the call and gives its items up. */
	p->fall = REPL_FALL_LOSS;
	return false;
}

static struct repl_call *repl_call_find(struct repl_peer *p, uint64_t token)
{
	struct rp_list *n;

	rp_list_foreach (n, &p->calls) {
		struct repl_call *c = rp_list_entry(n, struct repl_call, node);

		if (c->token == token)
			return c;
	}
	return NULL;
}

/** Takes the hello of an answer. */
static int repl_answer_hello(struct rp_repl *r, struct repl_peer *p, struct rp_span answer)
{
	struct rp_reader reader = rp_reader_of(answer.data, answer.length);
	struct repl_hello hello = {0};
	struct repl_field f;

	while (repl_field_next(&reader, &f))
		if (f.number == REPL_F_HELLO &&
			(f.type != REPL_WIRE_BYTES || !repl_get_hello(f.bytes, &hello)))
			return -EINVAL;
	if (reader.bad || hello.node != p->node)
		return -EINVAL;
	return repl_hello_take(r, p, &hello);
}

void rp_repl_result(struct rp_repl *r, uint64_t token, bool failed, struct rp_span answer,
	struct rp_repl_now now)
{
	struct repl_peer *p = &r->peers[token & 0xff];
	struct repl_call *c = repl_call_find(p, token);
	enum repl_purpose purpose;
	int error;

	_Static_assert(RP_PEERS_MAX <= 256, "a token names the peer in its low byte");
	r->now = now;
	if (!c) {
		REPL_COUNT(r, unknown_results, 1);
		return;
	}
	error = failed ? -EIO : repl_answer_hello(r, p, answer);
	purpose = c->purpose;
	rp_list_unlink(&c->node);
	if (purpose == REPL_FOR_APPLY)
		p->apply_calls--;
	else
		p->sync_call = false;
	repl_items_end(r, p, &c->items, error == 0);
	free(c);
	if (!error && purpose != REPL_FOR_APPLY)
		error = repl_run_answer(r, p, purpose, answer);
	if (error == -EINVAL)
		REPL_COUNT(r, bad_messages, 1);
	if (error && p->fall == REPL_FALL_NONE)
		p->fall = REPL_FALL_LOSS;
	repl_settle(r);
}

/* A node that calls and stands in no slot is behind an address that never answered, until now. */
static void repl_dial_unknown(struct rp_repl *r)
{
	for (struct repl_peer *p = r->peers; p < r->peers + r->slots; p++)
		if (p->used && p->node == 0 && !p->self && !p->connected && !p->dialling &&
			!p->refused && r->started)
			p->dial_at_ns = RP_MIN(p->dial_at_ns, r->now.ns);
}

int rp_repl_on_request(struct rp_repl *r, uint64_t from, enum rp_repl_kind kind,
	struct rp_span bytes, struct rp_span *answer, struct rp_repl_now now)
{
	struct repl_peer *p = repl_peer_by_node(r, from);
	int error;

	r->now = now;
	if (kind == RP_REPL_APPLY) {
		REPL_COUNT(r, applies_received, 1);
		error = repl_answer_apply(r, from, bytes);
	} else {
		REPL_COUNT(r, syncs_received, 1);
		error = repl_answer_sync(r, from, bytes);
	}
	if (error == -EINVAL)
		REPL_COUNT(r, bad_messages, 1);
	*answer = error ? (struct rp_span){0} : repl_buf_span(&r->answer);
	/* Who calls is alive: no need to wait for the next dial. */
	if (!error && p && !p->connected && !p->dialling && r->started)
		p->dial_at_ns = RP_MIN(p->dial_at_ns, now.ns);
	if (!error && !p)
		repl_dial_unknown(r);
	repl_settle(r);
	return error;
}

/* ---- the peer table ---- */

rp_repl_peer_id rp_repl_peer_add(struct rp_repl *r, const char *address, struct rp_repl_now now)
{
	struct repl_peer *free_slot = NULL;

	for (struct repl_peer *p = r->peers; p < r->peers + RP_PEERS_MAX; p++) {
		if (p->used && strcmp(p->address, address) == 0)
			return repl_peer_id(r, p);
		if (!p->used && !free_slot)
			free_slot = p;
	}
	if (!free_slot)
		return RP_REPL_NO_PEER;
	r->slots = RP_MAX(r->slots, repl_peer_id(r, free_slot) + 1);
	*free_slot = (struct repl_peer){.used = true, .state = RP_REPL_SPARE};
	free_slot->address = strdup(address);
	RP_ASSERT(free_slot->address);
	rp_list_init(&free_slot->queue);
	rp_list_init(&free_slot->calls);
	free_slot->dial_at_ns = now.ns;
	free_slot->boot_open = !r->ready;
	return repl_peer_id(r, free_slot);
}

void rp_repl_peer_remove(struct rp_repl *r, rp_repl_peer_id peer, struct rp_repl_now now)
{
	struct repl_peer *p = &r->peers[peer];

	RP_ASSERT(peer < RP_PEERS_MAX);
	r->now = now;
	if (!p->used)
		return;
	repl_fall(r, p, REPL_FALL_NONE);
	repl_set_state(r, p, RP_REPL_GONE);
	repl_run_free(&p->run);
	free(p->address);
	p->address = NULL;
	p->used = false;
	p->node = 0;
	repl_settle(r);
}

void rp_repl_set_times(struct rp_repl *r, const struct rp_repl_times *times, struct rp_repl_now now)
{
	uint64_t latest_ns;

	r->now = now;
	r->config.ack_ms = times->ack_ms;
	r->config.sync_s = times->sync_s;
	r->config.tombstone_s = times->tombstone_s;
	r->config.tombstone_max_s = times->tombstone_max_s;
	r->config.max_skew_s = times->max_skew_s;
	/* A day's wait for the next comparison does not outlive the day's setting. */
	latest_ns = now.ns + times->sync_s * RP_NS_PER_S;
	for (struct repl_peer *p = r->peers; p < r->peers + r->slots; p++)
		p->sync_at_ns = RP_MIN(p->sync_at_ns, latest_ns);
}

void rp_repl_start(struct rp_repl *r, struct rp_repl_now now)
{
	r->now = now;
	r->started = true;
	r->boot_deadline_ns = now.ns + r->config.boot_ms * RP_NS_PER_MS;
	r->sweep_at_ns = now.ns + REPL_SWEEP_NS;
	r->config.ops->node_state(r->config.ctx, r->config.node, RP_REPL_IN_PROGRESS);
	if ((r->config.cluster_high | r->config.cluster_low) == 0) {
		RP_LOG(RP_LOG_REPL, RP_LOG_ERROR,
			"the cluster uuid is empty: this node peers with nobody");
		r->boot_deadline_ns = now.ns;
	}
	rp_repl_tick(r, now);
}

static int repl_connected_check(struct rp_repl *r, struct repl_peer *p, uint64_t node,
	uint64_t cluster_high, uint64_t cluster_low)
{
	struct repl_peer *other = repl_peer_by_node(r, node);

	if (node == r->config.node) {
		p->self = true;
		return -EALREADY;
	}
	if (node == 0 || !repl_same_cluster(r, cluster_high, cluster_low)) {
		REPL_COUNT(r, wrong_cluster, 1);
		if (!p->cluster_logged)
			RP_LOG(RP_LOG_REPL, RP_LOG_ERROR,
				"%s (node %" PRIu64 ") is of another cluster: refused", p->address,
				node);
		p->cluster_logged = true;
		return -EPERM;
	}
	return other && other != p ? -EEXIST : 0;
}

int rp_repl_peer_connected(struct rp_repl *r, rp_repl_peer_id peer, uint64_t node,
	uint64_t cluster_high, uint64_t cluster_low, struct rp_repl_now now)
{
	struct repl_peer *p = &r->peers[peer];
	int error;

	RP_ASSERT(peer < RP_PEERS_MAX);
	r->now = now;
	if (!p->used || !p->dialling)
		return -ECANCELED;
	p->dialling = false;
	error = repl_connected_check(r, p, node, cluster_high, cluster_low);
	if (error) {
		p->boot_open = false;
		p->refused = true;
		repl_dial_later(r, p, REPL_REFUSED_REDIALS);
		repl_settle(r);
		return error;
	}
	if (p->node != 0 && p->node != node) {
		/* It came back under another id: the old one will not. */
		repl_set_state(r, p, RP_REPL_GONE);
		p->synced_ns = p->synced_wall_us = 0;
	}
	p->node = node;
	p->connected = true;
	p->synced = p->ready = p->cluster_logged = p->skew_logged = p->refused = false;
	p->fall = REPL_FALL_NONE;
	repl_state_update(r, p);
	if (!r->pulling && r->last_sync_wall_us != 0 &&
		now.wall_us > r->last_sync_wall_us + r->config.tombstone_max_s * 1000000ull) {
		r->pulling = true;
		r->pull_since = r->last_sync_wall_us;
		REPL_COUNT(r, pulls, 1);
		RP_LOG(RP_LOG_REPL, RP_LOG_WARNING,
			"away for longer than repl.tombstone_max_s: rejoining by pulling");
	}
	repl_run_start(r, p);
	repl_settle(r);
	return 0;
}

void rp_repl_peer_failed(
	struct rp_repl *r, rp_repl_peer_id peer, bool absent, struct rp_repl_now now)
{
	struct repl_peer *p = &r->peers[peer];

	RP_ASSERT(peer < RP_PEERS_MAX);
	r->now = now;
	if (!p->used || (!p->connected && !p->dialling))
		return;
	if (absent)
		p->boot_open = false;
	repl_fall(r, p, REPL_FALL_LOSS);
	repl_settle(r);
}

/* ---- time ---- */

/**
 * Tombstones that every configured member has been shown, and are old enough, or are so old that
 * who has not seen them rejoins by pulling.
 */
static void repl_sweep(struct rp_repl *r)
{
	uint64_t age = r->config.tombstone_s * 1000000ull;
	uint64_t most = r->config.tombstone_max_s * 1000000ull;
	uint64_t wall = r->now.wall_us, end = wall > age ? wall - age : 0;

	for (struct repl_peer *p = r->peers; p < r->peers + r->slots; p++)
		if (p->used && !p->self && !p->refused)
			end = RP_MIN(end, p->synced_wall_us);
	if (wall > most)
		end = RP_MAX(end, wall - most);
	if (end > 0)
		REPL_COUNT(
			r, tombstones_dropped, rp_kv_tombstone_purge(r->kv, end, REPL_SWEEP_KEYS));
	repl_epochs_sweep(r, REPL_EPOCH_BUCKETS / 16);
	r->sweep_at_ns = r->now.ns + REPL_SWEEP_NS;
}

static uint64_t repl_first_deadline(const struct repl_peer *p)
{
	if (rp_list_empty(&p->calls))
		return RP_NEVER;
	return rp_list_entry(p->calls.next, struct repl_call, node)->deadline_ns;
}

static bool repl_dials(const struct rp_repl *r, const struct repl_peer *p)
{
	return r->started && !p->self && !p->connected && !p->dialling &&
	       (r->config.cluster_high | r->config.cluster_low) != 0;
}

static void repl_peer_tick(struct rp_repl *r, struct repl_peer *p)
{
	uint64_t now = r->now.ns;

	if (p->dialling && p->dial_deadline_ns <= now)
		repl_fall(r, p, REPL_FALL_TIMEOUT);
	if (repl_dials(r, p) && p->dial_at_ns <= now)
		repl_dial(r, p);
	if (!p->connected || p->fall != REPL_FALL_NONE)
		return;
	if (repl_first_deadline(p) <= now) {
		p->fall = REPL_FALL_TIMEOUT;
		return;
	}
	if (p->synced && !p->run.active && p->sync_at_ns <= now)
		repl_run_start(r, p);
	if (!p->run.active && !p->sync_call && p->hello_at_ns <= now) {
		struct repl_hello hello;

		r->out.length = 0;
		repl_hello_make(r, &hello);
		repl_put_hello(&r->out, REPL_F_HELLO, &hello);
		repl_call(r, p, REPL_FOR_HELLO, repl_buf_span(&r->out), NULL);
	}
}

void rp_repl_tick(struct rp_repl *r, struct rp_repl_now now)
{
	r->now = now;
	if (!r->started)
		return;
	for (struct repl_peer *p = r->peers; p < r->peers + r->slots; p++)
		if (p->used)
			repl_peer_tick(r, p);
	repl_writes_tick(r);
	if (r->sweep_at_ns <= now.ns)
		repl_sweep(r);
	repl_settle(r);
}

static uint64_t repl_peer_next(const struct rp_repl *r, const struct repl_peer *p)
{
	uint64_t next = RP_NEVER;

	if (p->fall != REPL_FALL_NONE)
		return 0;
	if (p->dialling)
		next = p->dial_deadline_ns;
	if (repl_dials(r, p))
		next = RP_MIN(next, p->dial_at_ns);
	if (!p->connected)
		return next;
	next = RP_MIN(next, repl_first_deadline(p));
	if (p->synced && !p->run.active)
		next = RP_MIN(next, p->sync_at_ns);
	if (!p->run.active && !p->sync_call)
		next = RP_MIN(next, p->hello_at_ns);
	return next;
}

uint64_t rp_repl_next_ns(const struct rp_repl *r)
{
	uint64_t next = r->sweep_at_ns;

	if (!r->started)
		return RP_NEVER;
	/* Once it has passed, a peer that is being synced from is what ends the wait. */
	if (!r->ready && r->boot_deadline_ns > r->now.ns)
		next = RP_MIN(next, r->boot_deadline_ns);
	if (!rp_list_empty(&r->writes))
		next = RP_MIN(
			next, rp_list_entry(r->writes.next, struct repl_write, node)->deadline_ns);
	for (const struct repl_peer *p = r->peers; p < r->peers + r->slots; p++) {
		if (p->used) {
			uint64_t at = repl_peer_next(r, p);

			next = RP_MIN(next, at);
		}
	}
	return next;
}

/* ---- looks ---- */

enum rp_repl_state rp_repl_state_of(const struct rp_repl *r, uint64_t node)
{
	if (node == r->config.node)
		return r->ready ? RP_REPL_ONLINE : RP_REPL_IN_PROGRESS;
	for (const struct repl_peer *p = r->peers; p < r->peers + r->slots; p++)
		if (p->used && p->node == node)
			return p->state;
	return RP_REPL_GONE;
}

bool rp_repl_peer_get(const struct rp_repl *r, rp_repl_peer_id peer, struct rp_repl_peer_info *out)
{
	const struct repl_peer *p = &r->peers[peer];
	struct rp_list *n;

	if (peer >= RP_PEERS_MAX || !p->used)
		return false;
	*out = (struct rp_repl_peer_info){
		.address = p->address,
		.node = p->self ? r->config.node : p->node,
		.state = p->self ? rp_repl_state_of(r, r->config.node) : p->state,
		.self = p->self,
		.connected = p->connected,
		.queued_writes = p->queued_writes,
		.queued_bytes = p->queued_bytes,
		.synced_ns = p->synced_ns,
	};
	rp_list_foreach (n, &p->calls)
		out->calls_open++;
	return true;
}

rp_repl_peer_id rp_repl_peer_of_node(const struct rp_repl *r, uint64_t node)
{
	for (const struct repl_peer *p = r->peers; node != 0 && p < r->peers + r->slots; p++)
		if (p->used && !p->self && p->node == node)
			return repl_peer_id(r, p);
	return RP_REPL_NO_PEER;
}

const struct rp_repl_stats *rp_repl_get_stats(const struct rp_repl *r)
{
	return &r->stats;
}
