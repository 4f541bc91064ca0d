/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <rte_mbuf.h>

#include <base/assert.h>
#include <base/bytes.h>
#include <base/log.h>
#include <base/mbuf.h>
#include <engine/control_process_priv.h>

#define STEP_BUDGET 256

void *control_alloc(size_t size)
{
	void *p = calloc(1, size);

	RP_ASSERT(p != NULL);
	return p;
}

/* ---- rings ---- */

void control_send(struct rp_control *c, unsigned shard, const struct rp_xmsg *m)
{
	struct control_post *p;

	if (rp_list_empty(&c->posts[shard]) && c->ops->post(c->ctx, shard, m) == 0)
		return;
	p = control_alloc(sizeof(*p));
	p->m = *m;
	rp_list_push_back(&c->posts[shard], &p->node);
}

static bool posts_run(struct rp_control *c)
{
	bool left = false;

	for (uint32_t s = 0; s < c->shards; s++) {
		while (!rp_list_empty(&c->posts[s])) {
			struct control_post *p =
				rp_list_entry(c->posts[s].next, struct control_post, node);

			if (c->ops->post(c->ctx, s, &p->m) != 0) {
				left = true;
				break;
			}
			rp_list_unlink(&p->node);
			free(p);
		}
	}
	return left;
}

static void posts_free(struct rp_control *c)
{
	struct rp_list *n;

	for (uint32_t s = 0; s < RP_SHARDS_MAX; s++)
		while ((n = rp_list_pop_front(&c->posts[s]))) {
			struct control_post *p = rp_list_entry(n, struct control_post, node);

			rte_pktmbuf_free(p->m.m);
			free(p);
		}
}

struct rte_mbuf *control_chain(struct rp_control *c, const struct rp_span *parts, unsigned count)
{
	struct rte_mbuf *first = rte_pktmbuf_alloc(c->pool), *last = first;

	for (unsigned i = 0; first && i < count; i++) {
		const uint8_t *p = parts[i].data;
		size_t left = parts[i].length;

		while (left > 0) {
			size_t n = RP_MIN(left, (size_t)rte_pktmbuf_tailroom(last));

			if (n == 0) {
				last->next = rte_pktmbuf_alloc(c->pool);
				if (!last->next) {
					rte_pktmbuf_free(first);
					first = NULL;
					break;
				}
				last = last->next;
				first->nb_segs++;
				continue;
			}
			memcpy(rte_pktmbuf_mtod_offset(last, uint8_t *, last->data_len), p, n);
			last->data_len = (uint16_t)(last->data_len + n);
			first->pkt_len += (uint32_t)n;
			p += n;
			left -= n;
		}
	}
	if (!first)
		c->counters.no_buffers++;
	return first;
}

/* ---- replication's callbacks: record now, act in rp_control_run() ---- */

static int repl_send(void *ctx, rp_repl_peer_id peer, enum rp_repl_kind kind, struct rp_span bytes,
	uint64_t token)
{
	struct rp_control *c = ctx;

	return c->ops->peer_call(c->ctx, peer, kind, bytes, token);
}

static void repl_dial(void *ctx, rp_repl_peer_id peer, const char *address)
{
	struct rp_control *c = ctx;

	c->ops->dial(c->ctx, peer, address);
}

static void repl_hangup(void *ctx, rp_repl_peer_id peer)
{
	struct rp_control *c = ctx;

	c->ops->hangup(c->ctx, peer);
}

static void repl_node_state(void *ctx, uint64_t node, enum rp_repl_state state)
{
	static const enum rp_node_state states[] = {
		[RP_REPL_GONE] = RP_NODE_GONE,
		[RP_REPL_SPARE] = RP_NODE_SPARE,
		[RP_REPL_IN_PROGRESS] = RP_NODE_IN_PROGRESS,
		[RP_REPL_ONLINE] = RP_NODE_ONLINE,
	};
	struct rp_control *c = ctx;
	struct control_state *s = control_alloc(sizeof(*s));

	s->id = node;
	s->state = states[state];
	rp_list_push_back(&c->states, &s->node);
}

static void repl_write_done(void *ctx, uint64_t token, bool confirmed)
{
	struct rp_control *c = ctx;
	struct rp_hmap_node *n = rp_hmap_find(&c->writes, token);
	struct control_write *w;

	if (!n)
		return;
	w = RP_CONTAINER_OF(n, struct control_write, by_id);
	rp_list_unlink(&w->node);
	rp_list_push_back(&c->writes_done, &w->node);
}

static void repl_ready(void *ctx, bool alone)
{
	struct rp_control *c = ctx;

	c->ready_pending = true;
	c->ready_alone = alone;
}

static bool repl_eligible(void *ctx, uint64_t node, struct rp_span key)
{
	struct rp_control *c = ctx;

	return !c->ops->eligible || c->ops->eligible(c->ctx, node, key);
}

static const struct rp_repl_ops control_repl_ops = {
	.send = repl_send,
	.dial = repl_dial,
	.hangup = repl_hangup,
	.node_state = repl_node_state,
	.write_done = repl_write_done,
	.ready = repl_ready,
	.eligible = repl_eligible,
};

/* ---- creation ---- */

static struct rp_hmap map_of(unsigned bits)
{
	return (struct rp_hmap){
		.chains = control_alloc(sizeof(struct rp_hmap_node *) << bits), .bits = bits};
}

static int create_cores(struct rp_control *c, const struct rp_control_config *config)
{
	struct rp_kv_config kv = config->kv;
	struct rp_repl_config repl = config->repl;
	struct rp_reader uuid = rp_reader_of(config->cluster_uuid, RP_UUID_BYTES);

	kv.node = c->self.node;
	kv.keep_tombstones = true;
	c->kv = rp_kv_create(&kv);
	if (!c->kv)
		return -errno;
	c->dead_after_ns = (repl.timeout_ms ? repl.timeout_ms : 3000) * RP_NS_PER_MS;
	repl.node = c->self.node;
	repl.cluster_high = rp_read_be64(&uuid);
	repl.cluster_low = rp_read_be64(&uuid);
	repl.ops = &control_repl_ops;
	repl.ctx = c;
	c->repl = rp_repl_create(c->kv, &repl);
	if (!c->repl)
		return -errno;
	c->hook = (struct rp_kv_hook){.on_commit = control_on_commit, .ctx = c};
	rp_kv_hook_add(c->kv, &c->hook);
	return 0;
}

struct rp_control *rp_control_create(
	const struct rp_control_config *config, const struct rp_control_ops *ops, void *ctx)
{
	struct rp_control *c;
	int rc;

	if (config->shards == 0 || config->shards > RP_SHARDS_MAX || config->self.node == 0) {
		errno = EINVAL;
		return NULL;
	}
	c = control_alloc(sizeof(*c));
	c->ops = ops;
	c->ctx = ctx;
	c->self = config->self;
	memcpy(c->cluster_uuid, config->cluster_uuid, sizeof(c->cluster_uuid));
	c->transport_tcp = config->transport_tcp;
	c->transport_ktcp = config->transport_ktcp;
	c->shards = config->shards;
	c->pool = config->pool;
	c->consumers_max = config->consumers_max ? config->consumers_max : 65536;
	c->auto_compaction_ns = config->auto_compaction_ns;
	c->consumers = map_of(CONTROL_CONSUMER_BITS);
	c->writes = map_of(CONTROL_WRITE_BITS);
	c->unaries = map_of(CONTROL_UNARY_BITS);
	c->letters = map_of(CONTROL_LETTER_BITS);
	c->requests = map_of(CONTROL_REQUEST_BITS);
	c->jobs = map_of(CONTROL_JOB_BITS);
	c->job_replies = map_of(CONTROL_JOB_BITS);
	c->outputs = map_of(CONTROL_OUTPUT_BITS);
	c->users = map_of(CONTROL_USER_BITS);
	/* Streams of outputs of an earlier life are others. */
	c->stream_last = (uint32_t)(config->self.boot * 0x9e3779b97f4a7c15ull >> 32);
	c->runs = map_of(CONTROL_REQUEST_BITS);
	c->run_requests = map_of(CONTROL_REQUEST_BITS);
	rp_list_init(&c->jobs_waiting);
	rp_list_init(&c->requests_closing);
	c->message_bytes = config->message_bytes ? config->message_bytes : 1572864;
	rp_list_init(&c->policies);
	rp_list_init(&c->writes_done);
	rp_list_init(&c->publish);
	rp_list_init(&c->early);
	rp_list_init(&c->states);
	for (unsigned s = 0; s < RP_SHARDS_MAX; s++)
		rp_list_init(&c->posts[s]);
	rc = create_cores(c, config);
	if (rc == 0)
		return c;
	rp_control_destroy(c);
	errno = -rc;
	return NULL;
}

static void writes_free(struct rp_control *c)
{
	for (size_t i = 0; i < 1u << CONTROL_WRITE_BITS; i++)
		while (c->writes.chains[i]) {
			struct control_write *w =
				RP_CONTAINER_OF(c->writes.chains[i], struct control_write, by_id);

			rp_hmap_remove(&c->writes, &w->by_id);
			rp_kv_result_clear(&w->result);
			free(w);
		}
}

void rp_control_destroy(struct rp_control *c)
{
	struct rp_list *n;

	if (!c)
		return;
	writes_free(c);
	control_queue_free(c);
	control_publish_free(c);
	posts_free(c);
	while ((n = rp_list_pop_front(&c->states)))
		free(rp_list_entry(n, struct control_state, node));
	rp_policy_destroy(c->policy);
	rp_repl_destroy(c->repl);
	if (c->kv && c->hook.on_commit)
		rp_kv_hook_remove(c->kv, &c->hook);
	rp_kv_destroy(c->kv);
	free(c->consumers.chains);
	free(c->writes.chains);
	free(c->unaries.chains);
	free(c->letters.chains);
	free(c->requests.chains);
	free(c->jobs.chains);
	free(c->job_replies.chains);
	free(c->outputs.chains);
	free(c->users.chains);
	free(c->runs.chains);
	free(c->run_requests.chains);
	free(c);
}

struct rp_kv *rp_control_kv(struct rp_control *c)
{
	return c->kv;
}

struct rp_repl *rp_control_repl(struct rp_control *c)
{
	return c->repl;
}

const struct rp_control_counters *rp_control_counters(const struct rp_control *c)
{
	return &c->counters;
}

/* ---- peers ---- */

void rp_control_peer_remove(struct rp_control *c, rp_repl_peer_id peer, struct rp_repl_now now)
{
	c->now = now;
	rp_repl_peer_remove(c->repl, peer, now);
}

rp_repl_peer_id rp_control_peer_add(
	struct rp_control *c, const char *address, struct rp_repl_now now)
{
	c->now = now;
	return rp_repl_peer_add(c->repl, address, now);
}

void rp_control_start(struct rp_control *c, struct rp_repl_now now)
{
	c->now = now;
	control_write_self(c);
	rp_repl_start(c->repl, now);
}

static void set_unary(struct rp_control *c, uint64_t node, bool up)
{
	struct rp_xmsg m = {.type = RP_XMSG_SET_UNARY,
		.node = node,
		.value = up,
		.idx = c->now.ns,
		.revision = c->now.ns};

	for (uint32_t s = 0; s < c->shards; s++)
		control_send(c, s, &m);
}

int rp_control_peer_connected(struct rp_control *c, rp_repl_peer_id peer, uint64_t node,
	const uint8_t cluster_uuid[RP_UUID_BYTES], struct rp_repl_now now)
{
	struct rp_reader r = rp_reader_of(cluster_uuid, RP_UUID_BYTES);
	uint64_t high = rp_read_be64(&r), low = rp_read_be64(&r);
	int rc;

	c->now = now;
	rc = rp_repl_peer_connected(c->repl, peer, node, high, low, now);
	if (rc == 0)
		set_unary(c, node, true);
	return rc;
}

void rp_control_peer_failed(
	struct rp_control *c, rp_repl_peer_id peer, bool absent, struct rp_repl_now now)
{
	struct rp_repl_peer_info info;

	c->now = now;
	if (rp_repl_peer_get(c->repl, peer, &info) && info.connected && info.node != 0)
		set_unary(c, info.node, false);
	rp_repl_peer_failed(c->repl, peer, absent, now);
}

void rp_control_peer_result(struct rp_control *c, uint64_t token, bool failed,
	struct rp_span answer, struct rp_repl_now now)
{
	c->now = now;
	rp_kv_set_now(c->kv, now.ns);
	rp_repl_result(c->repl, token, failed, answer, now);
}

int rp_control_on_request(struct rp_control *c, uint64_t from, enum rp_repl_kind kind,
	struct rp_span bytes, struct rp_span *answer, struct rp_repl_now now)
{
	c->now = now;
	rp_kv_set_now(c->kv, now.ns);
	return rp_repl_on_request(c->repl, from, kind, bytes, answer, now);
}

/* ---- writes ---- */

int rp_control_propose(
	struct rp_control *c, const struct rp_kv_txn *txn, uint64_t token, struct rp_repl_now now)
{
	struct control_write *w = control_alloc(sizeof(*w));

	c->now = now;
	w->token = token;
	rp_list_init(&w->node);
	rp_hmap_insert(&c->writes, &w->by_id, ++c->write_id_last);
	switch (rp_repl_propose(c->repl, txn, w->by_id.key, &w->result, now)) {
	case RP_REPL_REFUSED:
		rp_hmap_remove(&c->writes, &w->by_id);
		free(w);
		return -EAGAIN;
	case RP_REPL_DONE:
		rp_list_push_back(&c->writes_done, &w->node);
		return 0;
	case RP_REPL_WAITING:
		return 0;
	}
	RP_ASSERT(!"an outcome that does not exist");
	return -EINVAL;
}

static void writes_run(struct rp_control *c)
{
	struct rp_list batch, *n;

	rp_list_init(&batch);
	rp_list_splice_back(&batch, &c->writes_done);
	while ((n = rp_list_pop_front(&batch))) {
		struct control_write *w = rp_list_entry(n, struct control_write, node);

		rp_hmap_remove(&c->writes, &w->by_id);
		c->ops->write_done(c->ctx, w->token, &w->result);
		rp_kv_result_clear(&w->result);
		free(w);
	}
}

/* ---- a turn ---- */

static void states_run(struct rp_control *c)
{
	struct rp_list *n;

	while ((n = rp_list_pop_front(&c->states))) {
		struct control_state *s = rp_list_entry(n, struct control_state, node);
		struct rp_xmsg m = {
			.type = RP_XMSG_SET_NODE, .node = s->id, .value = (uint32_t)s->state};

		for (uint32_t i = 0; i < c->shards; i++)
			control_send(c, i, &m);
		/* One that was gone is known to no shard: where its links listen is told anew. */
		if (s->id != c->self.node && s->state == RP_NODE_IN_PROGRESS)
			control_publish_node(c, s->id);
		/* Whether it is of this node's zone is known since it was dialled. */
		if (c->policy && s->state == RP_NODE_IN_PROGRESS) {
			control_rules_changed(c);
			control_publish_registry(c);
		}
		/* A peer that fell away was hung up on, whoever began it. */
		if (s->id != c->self.node && s->state < RP_NODE_IN_PROGRESS)
			set_unary(c, s->id, false);
		if (c->ops->node_state)
			c->ops->node_state(c->ctx, s->id, s->state);
		free(s);
	}
}

/* History older than the interval goes: the revision of the oldest sample, an eighth at a time. */
static uint64_t compaction_run(struct rp_control *c)
{
	uint64_t period_ns = c->auto_compaction_ns / CONTROL_COMPACT_SAMPLES;

	if (c->auto_compaction_ns == 0)
		return RP_NEVER;
	if (c->sample_at_ns == 0)
		c->sample_at_ns = c->now.ns + period_ns;
	if (c->now.ns < c->sample_at_ns)
		return c->sample_at_ns;
	c->sample_at_ns = c->now.ns + period_ns;
	if (c->samples[CONTROL_COMPACT_SAMPLES - 1] > rp_kv_compacted_revision(c->kv))
		rp_kv_compact(c->kv, c->samples[CONTROL_COMPACT_SAMPLES - 1]);
	memmove(&c->samples[1], &c->samples[0], sizeof(c->samples) - sizeof(c->samples[0]));
	c->samples[0] = rp_kv_revision(c->kv);
	return c->sample_at_ns;
}

uint64_t rp_control_run(struct rp_control *c, struct rp_repl_now now)
{
	uint64_t next_ns;
	bool more;

	c->now = now;
	if (rp_repl_next_ns(c->repl) <= now.ns)
		rp_repl_tick(c->repl, now);
	next_ns = RP_MIN(compaction_run(c), control_early_run(c));
	next_ns = RP_MIN(next_ns, control_leases_run(c));
	next_ns = RP_MIN(next_ns, control_jobs_run(c));
	next_ns = RP_MIN(next_ns, control_requests_run(c));
	more = rp_kv_step(c->kv, STEP_BUDGET);
	states_run(c);
	if (c->ready_pending) {
		c->ready_pending = false;
		c->ops->ready(c->ctx, c->ready_alone);
	}
	writes_run(c);
	if (posts_run(c) || control_publish_run(c))
		next_ns = RP_MIN(next_ns, now.ns + RP_NS_PER_MS);
	if (more || !rp_list_empty(&c->writes_done) || !rp_list_empty(&c->states))
		next_ns = now.ns;
	return RP_MIN(next_ns, rp_repl_next_ns(c->repl));
}

int rp_control_set_secrets(struct rp_control *c, const struct rp_xmsg_secrets *secrets)
{
	struct rp_span part = {(const uint8_t *)secrets, sizeof(*secrets)};
	struct rp_xmsg m[RP_SHARDS_MAX];

	for (uint32_t s = 0; s < c->shards; s++) {
		m[s] = (struct rp_xmsg){
			.type = RP_XMSG_SET_SECRETS, .m = control_chain(c, &part, 1)};
		if (m[s].m)
			continue;
		while (s-- > 0)
			rp_xmsg_free(&m[s]);
		return -ENOBUFS;
	}
	for (uint32_t s = 0; s < c->shards; s++)
		control_send(c, s, &m[s]);
	return 0;
}

void rp_control_set_link_tls(struct rp_control *c, uint32_t shard, struct rp_tls_config *client,
	struct rp_tls_config *server)
{
	struct rp_xmsg m = {.type = RP_XMSG_SET_TLS, .pointer = client, .other = server};

	control_send(c, shard, &m);
}

void rp_control_set_limits(struct rp_control *c, const struct rp_control_limits *limits)
{
	struct rp_xmsg m = {.type = RP_XMSG_SET_LIMITS,
		.value = limits->message_bytes,
		.count = limits->queue_depth,
		.idx = limits->queue_bytes,
		.revision = limits->resume_ns,
		.token = limits->idle_ns,
		.node = limits->spin_ns,
		.flags = (uint8_t)(limits->unary_fallback | limits->draining << 1)};

	for (uint32_t s = 0; s < c->shards; s++)
		control_send(c, s, &m);
	c->message_bytes = limits->message_bytes;
	if (limits->auto_compaction_ns == c->auto_compaction_ns)
		return;
	/* Samples taken at another pace say nothing of how old a revision is. */
	c->auto_compaction_ns = limits->auto_compaction_ns;
	c->sample_at_ns = 0;
	memset(c->samples, 0, sizeof(c->samples));
}

void rp_control_policy_changed(struct rp_control *c, struct rp_policy *policy)
{
	bool news = policy || c->policy;

	rp_policy_destroy(c->policy);
	c->policy = policy;
	if (!news)
		return;
	/* Behind the rules, so that each queue is looked at with them. */
	control_rules_changed(c);
	control_publish_registry(c);
}

void rp_control_set_names(
	struct rp_control *c, const char *name, const char *zone, struct rp_repl_now now)
{
	c->now = now;
	snprintf(c->self.name, sizeof(c->self.name), "%s", name);
	snprintf(c->self.zone, sizeof(c->self.zone), "%s", zone);
	control_write_self(c);
}

void rp_control_set_draining(struct rp_control *c, bool draining, struct rp_repl_now now)
{
	c->now = now;
	c->self.draining = draining;
	control_write_self(c);
}

void rp_control_stop(struct rp_control *c, uint32_t phase)
{
	struct rp_xmsg m = {.type = RP_XMSG_STOP, .value = phase};

	for (uint32_t s = 0; s < c->shards; s++)
		control_send(c, s, &m);
}

int rp_control_snapshot(struct rp_control *c, unsigned shard, void *buffer, uint64_t token)
{
	struct rp_xmsg m = {.type = RP_XMSG_SNAPSHOT, .token = token, .pointer = buffer};

	return c->ops->post(c->ctx, shard, &m);
}

void rp_control_tap(struct rp_control *c, unsigned shard, void *config, uint64_t token)
{
	struct rp_xmsg m = {.type = RP_XMSG_TAP, .token = token, .pointer = config};

	control_send(c, shard, &m);
}

int rp_control_impair(
	struct rp_control *c, unsigned shard, uint32_t port, void *spec, uint64_t token)
{
	struct rp_xmsg m = {.type = RP_XMSG_IMPAIR, .token = token, .value = port, .pointer = spec};

	return c->ops->post(c->ctx, shard, &m);
}
