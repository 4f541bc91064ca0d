/* SPDX-License-Identifier: Apache-2.0 */

/* The registry: what the store's records say is told to the shards, and what shards decide is
 * written into the store. */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_mbuf.h>

#include <base/log.h>
#include <engine/control_engine_priv.h>
#include <route/key.h>

/** How long a consumer record that came before its watch is kept (spec/queues.md, Records). */
#define EARLY_NS (60 * RP_NS_PER_S)

static struct rp_span span_of(const char *text)
{
	return (struct rp_span){(const uint8_t *)text, strlen(text)};
}

/* ---- store -> shards ---- */

static bool has_prefix(struct rp_span key, const char *prefix)
{
	size_t n = strlen(prefix);

	return key.length >= n && memcmp(key.data, prefix, n) == 0;
}

static void publish_later(struct rp_control *c, struct rp_span key)
{
	struct control_publish *p = control_alloc(sizeof(*p) + key.length);

	p->length = (uint16_t)key.length;
	memcpy(p->key, key.data, key.length);
	rp_list_push_back(&c->publish, &p->node);
}

void control_on_commit(void *ctx, int64_t revision, const struct rp_kv_event *events,
	uint32_t count, uint64_t origin)
{
	struct rp_control *c = ctx;

	for (uint32_t i = 0; i < count; i++) {
		struct rp_span key = rp_kv_version_key(events[i].kv);
		struct rp_route_key k;

		if (key.length > RP_REGISTRY_KEY_BYTES_MAX)
			continue;
		rp_route_key_parse(&k, key.data, key.length);
		if (k.kind != RP_KEY_DISPATCHER && k.kind != RP_KEY_CONSUMER &&
			!has_prefix(key, RP_CONTROL_NODE_PREFIX))
			continue;
		publish_later(c, key);
	}
}

void control_publish_node(struct rp_control *c, uint64_t node)
{
	char key[64];

	snprintf(key, sizeof(key), RP_CONTROL_NODE_PREFIX "%" PRIu64, node);
	publish_later(c, span_of(key));
}

static struct rp_span live_value(struct rp_control *c, struct rp_span key)
{
	struct rp_kv_record r;

	if (!rp_kv_record_get(c->kv, key, &r) || r.deleted)
		return (struct rp_span){0};
	return r.value;
}

static int publish_record(struct rp_control *c, const struct rp_route_key *k, struct rp_span key)
{
	unsigned shard = rp_hash_pick(rp_queue_hash(k->name.data, k->name.length), c->shards);
	struct rp_xmsg m = {
		.type = k->kind == RP_KEY_DISPATCHER ? RP_XMSG_SET_RECORD : RP_XMSG_SET_CONSUMER,
		.name_length = (uint16_t)k->name.length,
	};
	struct rp_span parts[2] = {k->name, live_value(c, key)};

	if (c->ops->rides && c->ops->rides(c->ctx, k->name))
		return 0;
	/* To another node's sink nothing is delivered: the shards need not know of it. */
	if (k->kind != RP_KEY_DISPATCHER && k->kind != RP_KEY_CONSUMER)
		return 0;
	if (c->ops->tokens(c->ctx, shard, m.type) == 0 || !rp_list_empty(&c->posts[shard]))
		return -EAGAIN;
	parts[1].length = RP_MIN(parts[1].length, (size_t)RP_RECORD_BYTES_MAX);
	memcpy(m.uuid, k->uuid, sizeof(m.uuid));
	m.m = control_chain(c, parts, 2);
	if (!m.m)
		return -EAGAIN;
	control_send(c, shard, &m);
	c->counters.records_published++;
	return 0;
}

static void endpoint_out(
	const struct rp_endpoint *e, uint8_t *family, uint16_t *port, uint8_t *addr)
{
	*family = e->family;
	*port = e->port;
	memcpy(addr, e->addr, sizeof(e->addr));
}

static int publish_node(struct rp_control *c, uint64_t node)
{
	struct rp_node_record r;
	struct rp_xmsg_peer peer = {0};
	struct rp_span part = {(const uint8_t *)&peer, sizeof(peer)};

	bool known = rp_control_node_get(c, node, &r);

	/* A peer's rules took it for gone: it is ours to write. */
	if (node == c->self.node && !known)
		control_write_self(c);
	if (node == c->self.node || !known)
		return 0;
	if (c->transport_tcp)
		endpoint_out(&r.tcp, &peer.tcp_family, &peer.tcp_port, peer.tcp_addr);
	if (r.shards > 0 && r.shards <= RP_SHARDS_MAX && r.rss_table_size > 0) {
		peer.shards = (uint8_t)r.shards;
		peer.table_size = (uint16_t)r.rss_table_size;
		peer.owners = r.rss_shards & UINT32_MAX >> (32 - r.shards);
		memcpy(peer.rss_key, r.rss_key, sizeof(peer.rss_key));
	}
	if (c->transport_ktcp)
		endpoint_out(&r.ktcp, &peer.ktcp_family, &peer.ktcp_port, peer.ktcp_addr);
	for (uint32_t s = 0; s < c->shards; s++) {
		struct rp_xmsg m = {.type = RP_XMSG_SET_PEER, .node = node};

		m.m = control_chain(c, &part, 1);
		if (!m.m)
			return -EAGAIN;
		control_send(c, s, &m);
	}
	return 0;
}

static int publish_one(struct rp_control *c, struct rp_span key)
{
	struct rp_route_key k;

	if (has_prefix(key, RP_CONTROL_NODE_PREFIX)) {
		char digits[24] = "";
		size_t n = strlen(RP_CONTROL_NODE_PREFIX);

		if (key.length - n >= sizeof(digits))
			return 0;
		memcpy(digits, key.data + n, key.length - n);
		return publish_node(c, strtoull(digits, NULL, 10));
	}
	rp_route_key_parse(&k, key.data, key.length);
	return publish_record(c, &k, key);
}

void control_publish_registry(struct rp_control *c)
{
	struct rp_kv_record page[64];
	struct rp_span at = span_of("/q/"), end = span_of("/q0");
	bool after = false;
	uint32_t n;

	do {
		n = rp_kv_record_page(c->kv, at, after, end, page, RP_ARRAY_SIZE(page));
		for (uint32_t i = 0; i < n; i++)
			if (!page[i].deleted && page[i].key.length <= RP_REGISTRY_KEY_BYTES_MAX)
				publish_later(c, page[i].key);
		if (n > 0)
			at = page[n - 1].key;
		after = true;
	} while (n == RP_ARRAY_SIZE(page));
}

bool control_publish_run(struct rp_control *c)
{
	struct rp_list *n, *t;

	/* A shard that is full keeps its own back, in order, and holds up those behind: bounded by
	 * the time it takes to make room, and registry changes are rare. */
	rp_list_foreach_safe (n, t, &c->publish) {
		struct control_publish *p = rp_list_entry(n, struct control_publish, node);

		if (publish_one(c, (struct rp_span){p->key, p->length}) != 0)
			return true;
		rp_list_unlink(&p->node);
		free(p);
	}
	return false;
}

void control_publish_free(struct rp_control *c)
{
	struct rp_list *n;

	while ((n = rp_list_pop_front(&c->publish)))
		free(rp_list_entry(n, struct control_publish, node));
	while ((n = rp_list_pop_front(&c->early)))
		free(rp_list_entry(n, struct control_early, node));
}

bool rp_control_node_get(struct rp_control *c, uint64_t node, struct rp_node_record *out)
{
	char key[64];
	struct rp_span value;

	snprintf(key, sizeof(key), RP_CONTROL_NODE_PREFIX "%" PRIu64, node);
	value = live_value(c, span_of(key));
	out->node = node;
	return value.length > 0 && rp_node_record_parse(out, value.data, value.length) == 0;
}

/* ---- the node's own writes ---- */

static void write_txn(struct rp_control *c, const struct rp_kv_txn *txn)
{
	struct rp_kv_writer writer = {.wall_us = c->now.wall_us, .now_ns = c->now.ns};
	struct rp_kv_result result = {0};

	if (rp_kv_apply(c->kv, txn, &writer, &result) != RP_KV_OK)
		RP_LOG(RP_LOG_ROUTE, RP_LOG_ERROR, "a record could not be written: %s",
			rp_kv_error_text(result.error));
	rp_kv_result_clear(&result);
}

static void write_key(struct rp_control *c, struct rp_span key, struct rp_span value, bool delete)
{
	struct rp_kv_op op = {.type = RP_KV_OP_PUT, .put = {.key = key, .value = value}};
	const struct rp_kv_txn txn = {.success = &op, .success_count = 1};

	if (delete)
		op = (struct rp_kv_op){.type = RP_KV_OP_DELETE, .del = {.key = key}};
	else /* what a client bound to its lease stays so */
		op.put.ignore_lease = live_value(c, key).length > 0;
	write_txn(c, &txn);
}

void control_write_self(struct rp_control *c)
{
	char key[64], value[RP_NODE_RECORD_BYTES_MAX];
	int n = rp_node_record_format(&c->self, value, sizeof(value));

	snprintf(key, sizeof(key), RP_CONTROL_NODE_PREFIX "%" PRIu64, c->self.node);
	if (n > 0) {
		const struct rp_kv_system_op op = {.type = RP_KV_SYSTEM_PUT,
			.key = span_of(key),
			.value = {(uint8_t *)value, (size_t)n}};

		write_txn(c, &(struct rp_kv_txn){.system = &op, .system_count = 1});
	}
}

void control_on_claimed(struct rp_control *c, struct rp_span name, uint32_t epoch, bool pinned)
{
	uint8_t key[RP_REGISTRY_KEY_BYTES_MAX], old[RP_RECORD_BYTES_MAX], text[RP_RECORD_BYTES_MAX];
	int key_length = rp_route_key_dispatcher(name, key, sizeof(key)), n, newer;
	struct rp_dispatcher_record r;
	struct rp_span value;

	if (key_length < 0)
		return;
	value = live_value(c, (struct rp_span){key, (size_t)key_length});
	value.length = RP_MIN(value.length, sizeof(old));
	if (value.length > 0)
		memcpy(old, value.data, value.length);
	rp_route_dispatcher_parse(&r, old, value.length);
	newer = rp_route_dispatcher_compare(r.epoch, r.node, epoch, c->self.node);
	/* Somebody newer was written meanwhile, of whom the shard hears; or nothing is new. */
	if (newer > 0 || (newer == 0 && (r.pinned || !pinned)))
		return;
	r.node = c->self.node;
	r.epoch = epoch;
	r.pinned = pinned;
	n = rp_route_dispatcher_format(&r, text, sizeof(text));
	if (n < 0)
		return;
	write_key(c, (struct rp_span){key, (size_t)key_length}, (struct rp_span){text, (size_t)n},
		false);
	c->counters.claims_written++;
}

void control_on_released(struct rp_control *c, struct rp_span name, uint32_t epoch)
{
	uint8_t key[RP_REGISTRY_KEY_BYTES_MAX];
	int key_length = rp_route_key_dispatcher(name, key, sizeof(key));
	struct rp_dispatcher_record r;
	struct rp_span value;

	if (key_length < 0)
		return;
	value = live_value(c, (struct rp_span){key, (size_t)key_length});
	if (rp_route_dispatcher_parse(&r, value.data, value.length) == 0 &&
		r.node == c->self.node && r.epoch == epoch)
		write_key(c, (struct rp_span){key, (size_t)key_length}, (struct rp_span){0}, true);
}

void control_on_consumer_here(
	struct rp_control *c, struct rp_span name, const uint8_t uuid[RP_UUID_BYTES], bool here)
{
	uint8_t key[RP_REGISTRY_KEY_BYTES_MAX], old[RP_RECORD_BYTES_MAX], text[RP_RECORD_BYTES_MAX];
	int key_length = rp_route_key_consumer(name, uuid, key, sizeof(key)), n;
	struct rp_consumer_record r;
	struct rp_span value;

	if (key_length < 0)
		return;
	value = live_value(c, (struct rp_span){key, (size_t)key_length});
	value.length = RP_MIN(value.length, sizeof(old));
	if (value.length > 0)
		memcpy(old, value.data, value.length);
	rp_route_consumer_parse(&r, old, value.length);
	if (!here) {
		if (value.length > 0 && r.node == c->self.node)
			write_key(c, (struct rp_span){key, (size_t)key_length}, (struct rp_span){0},
				true);
		return;
	}
	if (r.node == c->self.node)
		return;
	r.node = c->self.node;
	n = rp_route_consumer_format(&r, text, sizeof(text));
	if (n > 0)
		write_key(c, (struct rp_span){key, (size_t)key_length},
			(struct rp_span){text, (size_t)n}, false);
}

void rp_control_consumer_here(struct rp_control *c, struct rp_span name,
	const uint8_t uuid[RP_UUID_BYTES], bool here, struct rp_repl_now now)
{
	c->now = now;
	control_on_consumer_here(c, name, uuid, here);
}

struct rp_span control_consumer_fields(
	struct rp_control *c, struct rp_span name, const uint8_t uuid[RP_UUID_BYTES])
{
	uint8_t key[RP_REGISTRY_KEY_BYTES_MAX];
	int key_length = rp_route_key_consumer(name, uuid, key, sizeof(key));
	struct rp_span value;
	const uint8_t *semicolon;

	if (key_length < 0)
		return (struct rp_span){0};
	value = live_value(c, (struct rp_span){key, (size_t)key_length});
	semicolon = value.length ? memchr(value.data, ';', value.length) : NULL;
	if (!semicolon)
		return (struct rp_span){0};
	return (struct rp_span){semicolon, value.length - (size_t)(semicolon - value.data)};
}

/* ---- clients' writes of records ---- */

static void remember_early(struct rp_control *c, struct rp_span key)
{
	struct control_early *e = control_alloc(sizeof(*e) + key.length);
	struct rp_kv_record r;

	e->until_ns = c->now.ns + EARLY_NS;
	e->stamp = rp_kv_record_get(c->kv, key, &r) ? r.stamp : 0;
	e->length = (uint16_t)key.length;
	memcpy(e->key, key.data, key.length);
	rp_list_push_back(&c->early, &e->node);
}

uint64_t control_early_run(struct rp_control *c)
{
	while (!rp_list_empty(&c->early)) {
		struct control_early *e = rp_list_entry(c->early.next, struct control_early, node);
		struct rp_span key = {e->key, e->length};
		struct rp_kv_record r;

		if (e->until_ns > c->now.ns)
			return e->until_ns;
		/* Still as it was put: no watch has come, nor a later put. */
		if (rp_kv_record_get(c->kv, key, &r) && !r.deleted && r.stamp == e->stamp)
			write_key(c, key, (struct rp_span){0}, true);
		rp_list_unlink(&e->node);
		free(e);
	}
	return RP_NEVER;
}

static int merge_record(const struct rp_route_key *key, struct rp_span old, struct rp_span value,
	uint8_t *text, bool *early, const char **message)
{
	int rc, n;

	if (key->kind == RP_KEY_DISPATCHER) {
		struct rp_dispatcher_record current, merged;

		rp_route_dispatcher_parse(&current, old.data, old.length);
		rc = rp_route_dispatcher_merge(&merged, &current, value.data, value.length);
		n = rc ? rc : rp_route_dispatcher_format(&merged, text, RP_RECORD_BYTES_MAX);
		*message =
			rc == -EPERM
				? "dispatcher record: a client may change reply_to and pinned only"
				: "dispatcher record: expected ;reply_to=<queue> and ;pinned";
	} else {
		struct rp_consumer_record current, merged;

		rp_route_consumer_parse(&current, old.data, old.length);
		rc = rp_route_consumer_merge(&merged, &current, value.data, value.length);
		n = rc ? rc : rp_route_consumer_format(&merged, text, RP_RECORD_BYTES_MAX);
		*early = merged.node == 0;
		*message =
			rc == -EPERM
				? "consumer record: the node is written by the server only"
				: "consumer record: expected ;cap=..;max_bytes=..;prefetch=..;match=..";
	}
	return n;
}

int rp_control_record_write(struct rp_control *c, const struct rp_route_key *key,
	struct rp_span value, int64_t lease, bool prev_kv, uint64_t token, const char **message,
	struct rp_repl_now now)
{
	uint8_t canonical[RP_REGISTRY_KEY_BYTES_MAX], text[RP_RECORD_BYTES_MAX];
	int length = rp_route_key_canonical(key, canonical, sizeof(canonical)), n = 0, rc;
	struct rp_span at = {canonical, (size_t)length};
	struct rp_kv_op op = {.type = RP_KV_OP_DELETE, .del = {.key = at, .prev_kv = prev_kv}};
	struct rp_kv_txn txn = {.success = &op, .success_count = 1};
	bool early = false;

	c->now = now;
	*message = "not a record";
	if (length < 0)
		return -EINVAL;
	if (lease != 0 && key->kind != RP_KEY_CONSUMER) {
		*message = "dispatcher record: a lease is for consumer records only";
		return -EINVAL;
	}
	if (value.data) {
		n = merge_record(key, live_value(c, at), value, text, &early, message);
		if (n < 0)
			return n == -EPERM ? -EPERM : -EINVAL;
		op = (struct rp_kv_op){.type = RP_KV_OP_PUT,
			.put = {.key = at,
				.value = {text, (size_t)n},
				.lease = lease,
				.prev_kv = prev_kv}};
	}
	rc = rp_control_propose(c, &txn, token, now);
	if (rc == 0 && early)
		remember_early(c, at);
	return rc;
}

/* ---- pairs of queues ---- */

static struct rp_dispatcher_record record_of(
	struct rp_control *c, struct rp_span name, struct rp_span *key, uint8_t *key_bytes)
{
	struct rp_dispatcher_record r;
	struct rp_span value;
	int length = rp_route_key_dispatcher(name, key_bytes, RP_REGISTRY_KEY_BYTES_MAX);

	*key = (struct rp_span){key_bytes, length > 0 ? (size_t)length : 0};
	value = live_value(c, *key);
	rp_route_dispatcher_parse(&r, value.data, value.length);
	return r;
}

static void record_put(
	struct rp_control *c, struct rp_span key, const struct rp_dispatcher_record *r)
{
	uint8_t text[RP_RECORD_BYTES_MAX];
	int n = rp_route_dispatcher_format(r, text, sizeof(text));

	if (n > 0)
		write_key(c, key, (struct rp_span){text, (size_t)n}, false);
}

int rp_control_queue_link(
	struct rp_control *c, struct rp_span request, struct rp_span reply, struct rp_repl_now now)
{
	uint32_t hash = rp_queue_hash(reply.data, reply.length);
	struct rp_xmsg m = {.type = RP_XMSG_PIN, .name_length = (uint16_t)reply.length};
	uint8_t bytes[RP_REGISTRY_KEY_BYTES_MAX];
	struct rp_dispatcher_record r;
	struct rp_span key;

	c->now = now;
	if (!rp_repl_ready(c->repl))
		return -EAGAIN;
	m.m = control_chain(c, &reply, 1);
	if (!m.m)
		return -EAGAIN;
	control_send(c, rp_hash_pick(hash, c->shards), &m);
	r = record_of(c, request, &key, bytes);
	r.reply_to = reply;
	record_put(c, key, &r);
	return 0;
}
