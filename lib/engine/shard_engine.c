/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <rte_mbuf.h>

#include <base/assert.h>
#include <base/log.h>
#include <base/mbuf.h>
#include <engine/shard_engine_priv.h>

/*
 * Nodes come and go, with every reload and every start without a uuid of their own: one that no way
 * leads to gives its slot to the next.
 */
static struct engine_peer *peer_lost_take(struct rp_engine *e)
{
	for (uint32_t i = 0; i < e->peer_count; i++) {
		struct engine_peer *p = &e->peer_slots[i];

		if (!p->lost)
			continue;
		rp_hmap_remove(&e->peers, &p->by_node);
		return p;
	}
	return NULL;
}

struct engine_peer *engine_peer_get(struct rp_engine *e, uint64_t node)
{
	struct rp_hmap_node *n = rp_hmap_find(&e->peers, node);
	struct engine_peer *p;

	if (n)
		return RP_CONTAINER_OF(n, struct engine_peer, by_node);
	if (e->peer_count < RP_PEERS_MAX)
		p = &e->peer_slots[e->peer_count++];
	else
		p = peer_lost_take(e);
	if (!p)
		return NULL;
	*p = (struct engine_peer){.lost = true};
	rp_hmap_insert(&e->peers, &p->by_node, node);
	return p;
}

void engine_tell(struct rp_engine *e, const struct rp_xmsg *m)
{
	if (e->ops->post(e->ctx, RP_ENGINE_CONTROL, m) == 0)
		return;
	e->counters.posts_lost++;
	RP_LOG(RP_LOG_NODE, RP_LOG_ERROR, "shard %u: a message %s to control found no room",
		e->shard, rp_xmsg_type_name(m->type));
	rte_pktmbuf_free(m->m);
}

/* ---- creation ---- */

static int listen_links(struct rp_engine *e, const struct rp_engine_config *c)
{
	e->ktcp = c->ktcp;
	for (uint32_t i = 0; i < c->port_count; i++) {
		int rc = rp_links_listen(e->links, rp_tcp_transport(e->tcp[i]), c->listen_port);

		if (rc)
			return rc;
	}
	return c->ktcp ? rp_links_listen(e->links, c->ktcp, c->listen_port) : 0;
}

/* Every shard has links, to know of them; those of link_shards carry some. */
static int create_links(struct rp_engine *e, const struct rp_engine_config *c)
{
	struct rp_links_config links = c->links;

	if (c->link_shards == 0)
		return 0;
	links.shard = (uint8_t)e->shard;
	links.shards = (uint8_t)e->shards;
	links.lead = (uint8_t)e->link_shard;
	links.owner_shards = c->link_shards;
	e->link_shards = c->link_shards;
	e->links = rp_links_create(&links, &engine_links_ops, e);
	if (!e->links)
		return -errno;
	if (c->port_count > 0) {
		e->far_places = calloc(RP_PEERS_MAX, sizeof(*e->far_places));
		if (!e->far_places)
			return -ENOMEM;
	}
	return c->link_shards >> e->shard & 1 ? listen_links(e, c) : 0;
}

struct rp_engine *rp_engine_create(const struct rp_engine_config *config,
	const struct rp_engine_ops *ops, void *ctx, uint64_t now_ns)
{
	struct rp_engine *e;
	int rc = 0;

	if (config->shards == 0 || config->shards > RP_SHARDS_MAX ||
		config->shard >= config->shards || config->link_shard >= config->shards ||
		config->port_count > RP_ENGINE_PORTS_MAX ||
		(config->link_shards != 0 && !(config->link_shards >> config->link_shard & 1))) {
		errno = EINVAL;
		return NULL;
	}
	e = calloc(1, sizeof(*e));
	if (!e)
		return NULL;
	e->shard = config->shard;
	e->shards = config->shards;
	e->link_shard = config->link_shard;
	e->ops = ops;
	e->ctx = ctx;
	e->now_ns = now_ns;
	e->pool = config->queue.pool;
	e->peers = (struct rp_hmap){.chains = e->peer_chains, .bits = ENGINE_PEER_BITS};
	e->deliver = rp_deliver_create(&config->deliver, &engine_deliver_ops, e);
	e->queues = e->deliver ? rp_queue_create(&config->queue, &engine_queue_ops, e) : NULL;
	if (!e->queues)
		rc = -errno;
	else
		rp_queue_set_parted(e->queues, false);
	if (rc == 0)
		rc = engine_ports_create(e, config, now_ns);
	if (rc == 0)
		rc = create_links(e, config);
	if (rc == 0)
		return e;
	rp_engine_destroy(e);
	errno = -rc;
	return NULL;
}

void rp_engine_destroy(struct rp_engine *e)
{
	if (!e)
		return;
	rp_links_destroy(e->links);
	rp_deliver_destroy(e->deliver);
	rp_queue_destroy(e->queues);
	engine_ports_destroy(e);
	free(e->far_places);
	free(e);
}

void rp_engine_set_wall_offset(struct rp_engine *e, int64_t wall_minus_now_ns)
{
	rp_queue_set_wall_offset(e->queues, wall_minus_now_ns);
}

void rp_engine_set_rto_floor(struct rp_engine *e, uint64_t rto_min_ns)
{
	for (uint32_t i = 0; i < e->port_count; i++)
		rp_tcp_set_rto_floor(e->tcp[i], rto_min_ns);
}

/* ---- the ways to a peer ---- */

void engine_peer_way_changed(struct rp_engine *e, struct engine_peer *p, uint64_t now_ns)
{
	bool lost = p->bundle == 0 && !p->unary;

	if (lost == p->lost)
		return;
	p->lost = lost;
	if (lost)
		rp_queue_peer_lost(
			e->queues, p->by_node.key, p->ping_sent_ns, p->ping_answered_ns, now_ns);
	else
		rp_queue_peer_back(e->queues, p->by_node.key, now_ns);
}

void engine_peer_link(struct rp_engine *e, uint64_t node, uint32_t bundle, uint64_t now_ns)
{
	struct engine_peer *p = engine_peer_get(e, node);

	if (!p || p->bundle == bundle)
		return;
	if (p->bundle != 0)
		rp_deliver_peer_down(e->deliver, node, now_ns);
	p->bundle = bundle;
	p->broken = 0;
	if (bundle != 0 && rp_deliver_peer_up(e->deliver, node, bundle, now_ns) != 0)
		p->bundle = 0;
	engine_peer_way_changed(e, p, now_ns);
}

void engine_peer_unary(struct rp_engine *e, uint64_t node, bool available, uint64_t now_ns)
{
	struct engine_peer *p = engine_peer_get(e, node);

	if (!p || p->unary == available)
		return;
	p->unary = rp_deliver_set_unary(e->deliver, node, available, now_ns) == 0 && available;
	engine_peer_way_changed(e, p, now_ns);
}

/* ---- what the rings bring ---- */

static struct rp_span name_of(const struct rp_xmsg *m)
{
	return (struct rp_span){rte_pktmbuf_mtod(m->m, const uint8_t *), m->name_length};
}

/*
 * The name stays readable in the buffer after it was cut off the chain's front: adj moves only the
 * start of the data.
 */
static struct rp_span cut_name(const struct rp_xmsg *m)
{
	struct rp_span name = name_of(m);

	rte_pktmbuf_adj(m->m, m->name_length);
	return name;
}

/* The text behind the name, made contiguous in `buffer` when it is not. */
static struct rp_span text_of(const struct rp_xmsg *m, uint8_t buffer[RP_RECORD_BYTES_MAX])
{
	size_t length = m->m->pkt_len - m->name_length;

	length = RP_MIN(length, (size_t)RP_RECORD_BYTES_MAX);
	rp_mbuf_copy_out(m->m, m->name_length, buffer, length);
	return (struct rp_span){buffer, length};
}

static void put_process(
	struct rp_engine *e, const struct rp_xmsg *m, struct rp_span name, uint64_t now_ns)
{
	/* On the ring it has waited, too. */
	struct rp_qmsg_process p = {
		.request = m->idx,
		.left_us = rp_process_left_us(m->revision, m->node, now_ns),
		.left_ns = now_ns,
	};

	rp_xmsg_process_read(m->value, &p);
	rp_queue_put_process(e->queues, m->token, name, m->tail_length, &p, m->m, now_ns);
}

/* What goes with it stays when the name is cut off; NULL: nothing does. */
static void on_settling(
	struct rp_engine *e, const struct rp_xmsg *m, struct rp_span name, uint64_t now_ns)
{
	struct rte_mbuf *rest = m->m;

	if (rest->pkt_len == m->name_length) {
		rte_pktmbuf_free(rest);
		rest = NULL;
	} else {
		cut_name(m);
	}
	if (m->type == RP_XMSG_CANCEL)
		rp_queue_cancel(e->queues, m->token, name, rest, m->idx, now_ns);
	else
		rp_queue_ack(e->queues, m->token, name, m->idx, m->uuid, m->flags, rest, now_ns);
}

static struct rp_span rest_of(const struct rp_xmsg *m)
{
	return (struct rp_span){rte_pktmbuf_mtod_offset(m->m, const uint8_t *, m->name_length),
		(size_t)m->m->data_len - m->name_length};
}

/* A plain put: the queues read the name before they do anything with the payload. */
static void on_put(struct rp_engine *e, const struct rp_xmsg *m, uint64_t now_ns)
{
	rp_queue_put(e->queues, m->token, cut_name(m), m->tail_length, m->m, now_ns);
}

/* With nothing behind the name, which is read before it goes. */
static void on_ack(struct rp_engine *e, const struct rp_xmsg *m, uint64_t now_ns)
{
	rp_queue_ack(e->queues, m->token, name_of(m), m->idx, m->uuid, m->flags, NULL, now_ns);
	rp_mbuf_free(m->m);
}

static void on_operation(struct rp_engine *e, const struct rp_xmsg *m, uint64_t now_ns)
{
	/* The name must be read before the payload can go. */
	uint8_t name_bytes[RP_NAME_BYTES_MAX];
	struct rp_span name = name_of(m);

	RP_ASSERT(m->name_length <= RP_NAME_BYTES_MAX);
	memcpy(name_bytes, name.data, name.length);
	name.data = name_bytes;
	if (m->type == RP_XMSG_PUT) {
		cut_name(m);
		if (m->value)
			put_process(e, m, name, now_ns);
		else
			rp_queue_put_letter(
				e->queues, m->token, name, m->tail_length, m->m, now_ns);
		return;
	}
	if (m->type == RP_XMSG_ACK || m->type == RP_XMSG_CANCEL) {
		on_settling(e, m, name, now_ns);
		return;
	}
	if (m->type == RP_XMSG_ACKS) {
		engine_on_acks(e, m, name, now_ns);
		return;
	}
	if (m->type == RP_XMSG_FAIL)
		rp_queue_fail(e->queues, m->token, name, m->idx, m->uuid, now_ns);
	else if (m->type == RP_XMSG_BEGUN)
		rp_queue_job_begun(e->queues, name, m->uuid, m->idx, now_ns);
	else if (m->type == RP_XMSG_RUN_READ)
		rp_queue_run_read(e->queues, name, rest_of(m), m->count, now_ns);
	else if (m->type == RP_XMSG_GET)
		rp_queue_get(e->queues, m->token, name, m->idx, m->uuid, m->flags, now_ns);
	else if (m->type == RP_XMSG_PURGE)
		rp_queue_clear(e->queues, m->token, name, m->flags, (uint32_t)m->idx, now_ns);
	else
		rp_queue_reject(e->queues, m->token, name, m->idx, m->uuid, m->flags, now_ns);
	rte_pktmbuf_free(m->m);
}

static void on_consumer_open(struct rp_engine *e, const struct rp_xmsg *m, uint64_t now_ns)
{
	uint8_t text[RP_RECORD_BYTES_MAX];
	struct rp_queue_consumer c = {
		.handle = m->token,
		.name = name_of(m),
		.start_revision = m->revision,
		.fields = text_of(m, text),
	};

	memcpy(c.uuid, m->uuid, sizeof(c.uuid));
	rp_queue_consumer_open(e->queues, &c, now_ns);
	rte_pktmbuf_free(m->m);
}

static void on_pin(struct rp_engine *e, const struct rp_xmsg *m, uint64_t now_ns)
{
	rp_queue_pin(e->queues, name_of(m), now_ns);
	rte_pktmbuf_free(m->m);
}

static void on_record(struct rp_engine *e, const struct rp_xmsg *m, uint64_t now_ns)
{
	uint8_t text[RP_RECORD_BYTES_MAX];

	if (m->type == RP_XMSG_SET_RECORD)
		rp_queue_set_record(e->queues, name_of(m), text_of(m, text), now_ns);
	else if (rp_queue_set_consumer(e->queues, name_of(m), m->uuid, text_of(m, text), now_ns) !=
		 0)
		RP_LOG(RP_LOG_QUEUE, RP_LOG_WARNING,
			"shard %u: too many consumers, one is not known", e->shard);
	rte_pktmbuf_free(m->m);
}

/* The stack whose prefix the address is in, else the first with a gateway of its family. */
static struct rp_transport *tcp_towards(struct rp_engine *e, const struct rp_endpoint *at)
{
	enum rp_net_reach best = RP_NET_UNREACHABLE;
	struct rp_transport *t = NULL;
	union rp_ip ip;

	if (rp_ip_from_endpoint(&ip, at))
		return NULL;
	for (uint32_t i = 0; i < e->port_count; i++) {
		enum rp_net_reach reach = rp_net_reach(rp_tcp_net(e->tcp[i]), &ip);

		if (reach <= best)
			continue;
		best = reach;
		t = rp_tcp_transport(e->tcp[i]);
	}
	return t;
}

/* The peer's spread of flows, kept for as long as the shard runs. */
static void place_peer(struct rp_engine *e, uint64_t node, const struct rp_xmsg_peer *peer)
{
	struct engine_peer *p = engine_peer_get(e, node);
	struct rp_place *place = p && e->far_places ? &e->far_places[p - e->peer_slots] : NULL;

	if (!place || peer->table_size == 0 || peer->owners == 0 ||
		rp_place_init_spread(place, peer->rss_key, peer->table_size, peer->owners) != 0)
		place = NULL;
	rp_links_place_peer(e->links, node, place, peer->shards, peer->owners);
}

static void on_set_peer(struct rp_engine *e, const struct rp_xmsg *m, uint64_t now_ns)
{
	struct rp_xmsg_peer peer;
	struct rp_transport *t;
	struct rp_endpoint at;

	RP_ASSERT(rte_pktmbuf_data_len(m->m) == sizeof(peer));
	memcpy(&peer, rte_pktmbuf_mtod(m->m, const void *), sizeof(peer));
	rte_pktmbuf_free(m->m);
	if (!e->links)
		return;
	if (!(e->link_shards >> e->shard & 1)) {
		rp_links_add_peer(e->links, m->node, NULL, NULL, now_ns);
		return;
	}
	at = (struct rp_endpoint){.family = peer.tcp_family, .port = peer.tcp_port};
	memcpy(at.addr, peer.tcp_addr, sizeof(at.addr));
	t = tcp_towards(e, &at);
	if (!t && peer.ktcp_family != 0 && e->ktcp) {
		t = e->ktcp;
		at = (struct rp_endpoint){.family = peer.ktcp_family, .port = peer.ktcp_port};
		memcpy(at.addr, peer.ktcp_addr, sizeof(at.addr));
	}
	if (rp_links_add_peer(e->links, m->node, t, t ? &at : NULL, now_ns) == -ENOSPC)
		RP_LOG(RP_LOG_LINK, RP_LOG_ERROR, "more peers than limits.peers; one gets no link");
	place_peer(e, m->node, &peer);
	if (!t && e->shard == e->link_shard)
		RP_LOG(RP_LOG_LINK, RP_LOG_WARNING,
			"no transport in common with node %lu: no link, only the unary path",
			(unsigned long)m->node);
}

static void on_set_node(struct rp_engine *e, const struct rp_xmsg *m, uint64_t now_ns)
{
	rp_queue_set_node(e->queues, m->node, m->value, now_ns);
	if (m->value != RP_NODE_GONE)
		return;
	if (e->links)
		rp_links_remove_peer(e->links, m->node, now_ns);
	rp_deliver_peer_remove(e->deliver, m->node, now_ns);
}

static void on_set_unary(struct rp_engine *e, const struct rp_xmsg *m, uint64_t now_ns)
{
	struct engine_peer *p = engine_peer_get(e, m->node);

	if (p && m->value == 0) {
		p->ping_sent_ns = RP_MAX(p->ping_sent_ns, m->idx);
		p->ping_answered_ns = RP_MAX(p->ping_answered_ns, m->revision);
	}
	engine_peer_unary(e, m->node, m->value != 0, now_ns);
}

static void on_unary_in(struct rp_engine *e, const struct rp_xmsg *m, uint64_t now_ns)
{
	struct rp_deliver_answer answer = {0};
	struct rp_xmsg done = {.type = RP_XMSG_UNARY_DONE, .token = m->token};

	if (rp_deliver_on_unary(e->deliver, m->node, m->m, &answer, now_ns) != 0)
		done.value = 1;
	done.status = (uint16_t)answer.status;
	done.epoch = answer.epoch;
	done.node = answer.dispatcher;
	e->counters.answers_unary++;
	engine_tell(e, &done);
}

static void on_unary_result(struct rp_engine *e, const struct rp_xmsg *m, uint64_t now_ns)
{
	struct rp_deliver_answer answer = {
		.status = m->status, .epoch = m->epoch, .dispatcher = m->node};

	rp_deliver_unary_result(e->deliver, m->token, m->value ? -EIO : 0, &answer, now_ns);
}

static void on_set_limits(struct rp_engine *e, const struct rp_xmsg *m, uint64_t now_ns)
{
	struct rp_queue_limits limits = {
		.message_bytes_max = m->value,
		.queue_depth_max = m->count,
		.queue_bytes_max = m->idx,
		.resume_ns = m->revision,
		.idle_ns = m->token,
	};

	rp_queue_set_limits(e->queues, &limits);
	rp_deliver_raise_message_bytes(e->deliver, m->value + RP_LETTER_HEAD_BYTES_MAX);
	rp_deliver_set_fallback(e->deliver, m->flags & 1, now_ns);
	rp_queue_drain(e->queues, m->flags & 2, now_ns);
}

static void on_set_secrets(struct rp_engine *e, const struct rp_xmsg *m)
{
	struct rp_xmsg_secrets *s = rte_pktmbuf_mtod(m->m, struct rp_xmsg_secrets *);

	RP_ASSERT(rte_pktmbuf_data_len(m->m) == sizeof(*s));
	if (e->links)
		rp_links_set_secrets(
			e->links, s->secret, s->length, s->previous, s->previous_length);
	explicit_bzero(s, sizeof(*s));
	rte_pktmbuf_free(m->m);
}

static void on_set_policies(struct rp_engine *e, const struct rp_xmsg *m, uint64_t now_ns)
{
	struct rp_xmsg used = {.type = RP_XMSG_POLICIES_USED, .pointer = m->pointer};

	e->rules = m->other;
	rp_queue_set_parted(e->queues, e->rules && e->rules->count > 0);
	rp_queue_set_policies(e->queues, m->pointer, m->count);
	rp_deliver_part(e->deliver, engine_apart, e, now_ns);
	engine_tell(e, &used);
}

static void on_set_tls(struct rp_engine *e, const struct rp_xmsg *m)
{
	if (e->links) {
		rp_links_set_tls(e->links, m->pointer, m->other);
		return;
	}
	rp_tls_config_unref(m->pointer);
	rp_tls_config_unref(m->other);
}

static void on_snapshot(struct rp_engine *e, const struct rp_xmsg *m, uint64_t now_ns)
{
	struct rp_xmsg done = {.type = RP_XMSG_SNAPSHOT_DONE, .token = m->token};

	rp_engine_snapshot(e, m->pointer, now_ns);
	engine_tell(e, &done);
}

/* What is here when the time for handing over has passed ends with the process. */
static void stop_tell_lost(const struct rp_engine *e)
{
	struct rp_queue_totals t;

	rp_queue_get_totals(e->queues, &t);
	if (t.held > 0)
		RP_LOG(RP_LOG_QUEUE, RP_LOG_WARNING,
			"%u messages are lost: no other node took them within stop.grace_ms",
			t.held);
}

static void on_stop(struct rp_engine *e, const struct rp_xmsg *m, uint64_t now_ns)
{
	if (e->stop_phase != 0)
		engine_tell(e, &(struct rp_xmsg){.type = RP_XMSG_STOPPED, .value = e->stop_phase});
	e->stop_phase = m->value;
	if (m->value == 1)
		rp_queue_stop(e->queues, now_ns);
	else
		stop_tell_lost(e);
	if (m->value == 2 && e->links)
		rp_links_stop(e->links, now_ns);
}

void rp_engine_on_xmsg(struct rp_engine *e, unsigned from, const struct rp_xmsg *m, uint64_t now_ns)
{
	e->now_ns = now_ns;
	switch ((enum rp_xmsg_type)m->type) {
	case RP_XMSG_PUT:
		if (m->value || m->flags)
			on_operation(e, m, now_ns);
		else
			on_put(e, m, now_ns);
		return;
	case RP_XMSG_ACK:
		if (m->m->pkt_len == m->name_length)
			on_ack(e, m, now_ns);
		else
			on_operation(e, m, now_ns);
		return;
	case RP_XMSG_ACKS:
	case RP_XMSG_GET:
	case RP_XMSG_REJECT:
	case RP_XMSG_PURGE:
	case RP_XMSG_CANCEL:
	case RP_XMSG_FAIL:
	case RP_XMSG_BEGUN:
	case RP_XMSG_RUN_READ:
		on_operation(e, m, now_ns);
		return;
	case RP_XMSG_LETTERED:
		rp_queue_dead_lettered(e->queues, m->token, m->status, now_ns);
		return;
	case RP_XMSG_SET_POLICIES:
		on_set_policies(e, m, now_ns);
		return;
	case RP_XMSG_CONSUMER_OPEN:
		on_consumer_open(e, m, now_ns);
		return;
	case RP_XMSG_CONSUMER_CLOSE:
		rp_queue_consumer_close(e->queues, m->token, m->value, now_ns);
		return;
	case RP_XMSG_ACCEPTED:
		rp_queue_consumer_accepted(e->queues, m->token, m->idx, now_ns);
		return;
	case RP_XMSG_ACKED:
		rp_queue_consumer_ack(e->queues, m->token, m->node, m->idx, now_ns);
		return;
	case RP_XMSG_RETURNED:
		rp_queue_consumer_returned(e->queues, m->token, m->idx, now_ns);
		return;
	case RP_XMSG_SET_RECORD:
	case RP_XMSG_SET_CONSUMER:
		on_record(e, m, now_ns);
		return;
	case RP_XMSG_PIN:
		on_pin(e, m, now_ns);
		return;
	case RP_XMSG_SET_NODE:
		on_set_node(e, m, now_ns);
		return;
	case RP_XMSG_SET_PEER:
		on_set_peer(e, m, now_ns);
		return;
	case RP_XMSG_SET_UNARY:
		on_set_unary(e, m, now_ns);
		return;
	case RP_XMSG_UNARY_IN:
		on_unary_in(e, m, now_ns);
		return;
	case RP_XMSG_UNARY_RESULT:
		on_unary_result(e, m, now_ns);
		return;
	case RP_XMSG_SNAPSHOT:
		on_snapshot(e, m, now_ns);
		return;
	case RP_XMSG_SET_LIMITS:
		on_set_limits(e, m, now_ns);
		return;
	case RP_XMSG_SET_SECRETS:
		on_set_secrets(e, m);
		return;
	case RP_XMSG_SET_TLS:
		on_set_tls(e, m);
		return;
	case RP_XMSG_STOP:
		on_stop(e, m, now_ns);
		return;
	case RP_XMSG_FRAME_OUT:
		engine_on_frame_out(e, m, now_ns);
		return;
	case RP_XMSG_FRAME_IN:
		engine_on_frame_in(e, m, now_ns);
		return;
	case RP_XMSG_NEIGH:
	case RP_XMSG_PACKETS_IN:
	case RP_XMSG_PACKETS_OUT:
	case RP_XMSG_ICMP_IN:
		engine_ports_message(e, m, now_ns);
		return;
	case RP_XMSG_LINK:
		engine_on_link(e, from, m, now_ns);
		return;
	case RP_XMSG_IMPAIR: /* lib/shard's own, as is TAP: there is no port here */
	case RP_XMSG_TAP:
	case RP_XMSG_TAPPED:
	case RP_XMSG_JOB_OVER:
	case RP_XMSG_OUTPUT_ROOM:
	case RP_XMSG_PROCESS_END:
	case RP_XMSG_CANCEL_ASK:
	case RP_XMSG_RUN_EVENT:
	case RP_XMSG_ANSWER:
	case RP_XMSG_DELIVERY:
	case RP_XMSG_RECALL:
	case RP_XMSG_WITHDRAW:
	case RP_XMSG_CONSUMER_ENDED:
	case RP_XMSG_DEAD_LETTER:
	case RP_XMSG_POLICIES_USED:
	case RP_XMSG_CLAIMED:
	case RP_XMSG_RELEASED:
	case RP_XMSG_CONSUMER_HERE:
	case RP_XMSG_UNARY_OUT:
	case RP_XMSG_UNARY_DONE:
	case RP_XMSG_LINK_STATE:
	case RP_XMSG_SNAPSHOT_DONE:
	case RP_XMSG_STOPPED:
	case RP_XMSG_TYPE_COUNT:
		break;
	}
	RP_ASSERT(!"a message that a shard is never sent");
}

/* ---- a turn ---- */

/* Phase 1 is over when nothing is to go to another node, or on its way there; phase 2 when no link
 * is up. */
static void stop_check(struct rp_engine *e)
{
	struct rp_deliver_info info;

	if (e->stop_phase == 0)
		return;
	rp_deliver_info(e->deliver, 0, &info);
	if (e->stop_phase == 1 && (info.messages > 0 || rp_queue_is_moving(e->queues)))
		return;
	if (e->stop_phase == 2 && e->links && rp_links_up_count(e->links) > 0)
		return;
	engine_tell(e, &(struct rp_xmsg){.type = RP_XMSG_STOPPED, .value = e->stop_phase});
	e->stop_phase = 0;
}

static void unblock(struct rp_engine *e, uint64_t now_ns)
{
	e->out_blocked = false;
	for (uint32_t i = 0; i < e->peer_count; i++)
		if (e->peer_slots[i].bundle != 0)
			rp_deliver_on_room(e->deliver, e->peer_slots[i].by_node.key, now_ns);
}

bool rp_engine_poll_in(struct rp_engine *e, uint64_t now_ns)
{
	bool busy = false;

	e->now_ns = now_ns;
	for (uint32_t i = 0; i < e->port_count; i++)
		busy |= rp_tcp_poll(e->tcp[i], now_ns) > 0;
	if (e->out_blocked)
		unblock(e, now_ns);
	if (e->links)
		rp_links_poll(e->links, now_ns);
	if (e->outbox_head != e->outbox_tail)
		engine_outbox_flush(e);
	return busy | rp_queue_poll(e->queues, now_ns);
}

bool rp_engine_poll_out(struct rp_engine *e, uint64_t now_ns)
{
	bool busy;

	e->now_ns = now_ns;
	busy = rp_deliver_poll(e->deliver, now_ns);
	if (e->links)
		rp_links_flush(e->links, now_ns);
	for (uint32_t i = 0; i < e->port_count; i++)
		busy |= rp_tcp_poll(e->tcp[i], now_ns) > 0;
	busy |= engine_ports_send(e);
	stop_check(e);
	return busy;
}

bool rp_engine_poll(struct rp_engine *e, uint64_t now_ns)
{
	bool busy = rp_engine_poll_in(e, now_ns);

	return busy | rp_engine_poll_out(e, now_ns);
}

uint64_t rp_engine_next_deadline(const struct rp_engine *e)
{
	uint64_t at =
		RP_MIN(rp_queue_next_deadline(e->queues), rp_deliver_next_deadline(e->deliver));

	if (engine_ports_waiting(e))
		return 0;
	if (e->outbox_head != e->outbox_tail)
		return 0;
	if (e->links)
		at = RP_MIN(at, rp_links_next_deadline(e->links));
	for (uint32_t i = 0; i < e->port_count; i++)
		at = RP_MIN(at, rp_tcp_next_deadline(e->tcp[i]));
	return at;
}

struct rp_queues *rp_engine_queues(struct rp_engine *e)
{
	return e->queues;
}

struct rp_links *rp_engine_links(struct rp_engine *e)
{
	return e->links;
}

struct rp_deliver *rp_engine_deliver(struct rp_engine *e)
{
	return e->deliver;
}

struct rp_tcp_stack *rp_engine_tcp(struct rp_engine *e, uint32_t port)
{
	return e->tcp[port];
}
