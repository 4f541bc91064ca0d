/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>

#include <mbedtls/platform_util.h>

#include <base/assert.h>
#include <base/log.h>
#include <base/mbuf.h>

#include "link_priv.h"

#define ECN_DOUBT_NS (10 * RP_NS_PER_S)

static bool config_ok(const struct rp_links_config *c)
{
	if (c->node == 0 || c->boot == 0 || c->per_peer != 1 || !c->pool)
		return false;
	if (c->secret && (c->secret_length < RP_LINK_SECRET_BYTES_MIN ||
				 c->secret_length > RP_LINK_SECRET_BYTES_MAX))
		return false;
	if (c->secret_previous &&
		(!c->secret || c->secret_previous_length < RP_LINK_SECRET_BYTES_MIN ||
			c->secret_previous_length > RP_LINK_SECRET_BYTES_MAX))
		return false;
	return c->heartbeat_ns > 0 && c->dead_after_ns > c->heartbeat_ns &&
	       c->handshake_grace_ns > 0 && c->peer_queue_frames > 0 &&
	       c->peer_queue_frames <= 1u << 24 && c->posted_frames <= 1u << 26 &&
	       (c->posted_frames == 0 || c->posted_frames >= c->peer_queue_frames) &&
	       c->peers_max > 0 && c->peers_max <= RP_PEERS_MAX && c->handshakes_max > 0 &&
	       c->handshakes_max <= 65536;
}

static bool tables_create(struct rp_links *l)
{
	uint32_t conns = l->config.handshakes_max + l->config.peers_max * LINK_CONNS_PER_PEER;
	uint32_t slots = 2;

	while (slots < 2 * l->config.peers_max)
		slots *= 2;
	l->map_mask = slots - 1;
	l->peers = calloc(l->config.peers_max, sizeof(struct link_peer *));
	l->map = calloc(slots, sizeof(l->map[0]));
	l->conns = calloc(conns, sizeof(l->conns[0]));
	if (!l->peers || !l->map || !l->conns)
		return false;
	for (uint32_t i = 0; i < conns; i++) {
		l->conns[i].links = l;
		rp_list_init(&l->conns[i].entry);
		rp_list_push_back(&l->conns_free, &l->conns[i].entry);
	}
	return true;
}

struct rp_links *rp_links_create(
	const struct rp_links_config *config, const struct rp_links_ops *ops, void *ctx)
{
	struct rp_links *l;

	if (!config_ok(config)) {
		errno = EINVAL;
		return NULL;
	}
	l = calloc(1, sizeof(*l));
	if (!l)
		return NULL;
	l->config = *config;
	l->ops = *ops;
	l->ctx = ctx;
	l->deadline_ns = RP_NEVER;
	rp_list_init(&l->conns_free);
	rp_list_init(&l->handshakes);
	rp_list_init(&l->closing);
	rp_list_init(&l->dirty);
	if (config->secret) {
		memcpy(l->secret, config->secret, config->secret_length);
		l->config.secret = l->secret;
	} else {
		RP_LOG(RP_LOG_LINK, RP_LOG_ERROR,
			"links.secret_file is not set: links to other nodes are open");
	}
	if (config->secret_previous) {
		memcpy(l->secret_previous, config->secret_previous, config->secret_previous_length);
		l->config.secret_previous = l->secret_previous;
	}
	if (l->config.posted_frames == 0)
		l->config.posted_frames = 4 * l->config.peer_queue_frames;
	if (l->config.redial_ns_min == 0)
		l->config.redial_ns_min = LINK_REDIAL_NS_MIN;
	if (l->config.redial_ns_max == 0)
		l->config.redial_ns_max = RP_MAX(LINK_REDIAL_NS_MAX, l->config.redial_ns_min);
	if (!tables_create(l)) {
		rp_links_destroy(l);
		errno = ENOMEM;
		return NULL;
	}
	return l;
}

static void peer_free(struct link_peer *p)
{
	while (p->head != p->tail)
		rte_pktmbuf_free(p->ring[p->head++ & p->ring_mask]);
	rte_pktmbuf_free(p->pending);
	rp_list_unlink(&p->dirty);
	free(p->ring);
	free(p);
}

void rp_links_destroy(struct rp_links *l)
{
	if (!l)
		return;
	if (l->conns) {
		uint32_t conns =
			l->config.handshakes_max + l->config.peers_max * LINK_CONNS_PER_PEER;

		for (uint32_t i = 0; i < conns; i++) {
			struct link_conn *c = &l->conns[i];

			rte_pktmbuf_free(c->rx);
			if (c->conn)
				c->conn->transport->ops->abort(c->conn, 0);
		}
	}
	for (uint32_t i = 0; i < l->peer_count; i++)
		peer_free(l->peers[i]);
	free(l->peers);
	free(l->map);
	free(l->conns);
	mbedtls_platform_zeroize(l->secret, sizeof(l->secret));
	mbedtls_platform_zeroize(l->secret_previous, sizeof(l->secret_previous));
	free(l);
}

static uint32_t map_slot(const struct rp_links *l, uint64_t node)
{
	return (uint32_t)((node * 0x9e3779b97f4a7c15ull) >> 40) & l->map_mask;
}

static void map_insert(struct rp_links *l, uint32_t index)
{
	uint32_t slot = map_slot(l, l->peers[index]->node);

	while (l->map[slot] != 0)
		slot = (slot + 1) & l->map_mask;
	l->map[slot] = (uint16_t)(index + 1);
}

static void map_rebuild(struct rp_links *l)
{
	memset(l->map, 0, (l->map_mask + 1) * sizeof(l->map[0]));
	for (uint32_t i = 0; i < l->peer_count; i++)
		map_insert(l, i);
}

struct link_peer *link_peer_of(const struct rp_links *l, uint64_t node)
{
	uint32_t slot = map_slot(l, node);

	for (; l->map[slot] != 0; slot = (slot + 1) & l->map_mask) {
		struct link_peer *p = l->peers[l->map[slot] - 1];

		if (p->node == node)
			return p;
	}
	return NULL;
}

void link_arm(struct rp_links *l, uint64_t deadline_ns)
{
	l->deadline_ns = RP_MIN(l->deadline_ns, deadline_ns);
}

void link_mark_dirty(struct link_peer *p)
{
	if (rp_list_empty(&p->dirty))
		rp_list_push_back(&p->links->dirty, &p->dirty);
}

static struct link_peer *peer_create(struct rp_links *l, uint64_t node)
{
	struct link_peer *p = calloc(1, sizeof(*p));
	uint32_t slots = 1;

	if (!p)
		return NULL;
	while (slots < l->config.posted_frames)
		slots *= 2;
	p->ring = calloc(slots, sizeof(struct rte_mbuf *));
	if (!p->ring) {
		free(p);
		return NULL;
	}
	p->ring_mask = slots - 1;
	p->links = l;
	p->node = node;
	p->redial_at_ns = RP_NEVER;
	p->redial_wait_ns = l->config.redial_ns_min;
	rp_list_init(&p->dirty);
	return p;
}

int rp_links_add_peer(struct rp_links *l, uint64_t node, struct rp_transport *t,
	const struct rp_endpoint *endpoint, uint64_t now_ns)
{
	struct link_peer *p = link_peer_of(l, node);

	if (node == 0 || node == l->config.node)
		return -EINVAL;
	if (!p) {
		if (l->peer_count == l->config.peers_max)
			return -ENOSPC;
		p = peer_create(l, node);
		if (!p)
			return -ENOMEM;
		l->peers[l->peer_count++] = p;
		map_insert(l, l->peer_count - 1);
	}
	p->transport = t;
	p->has_endpoint = endpoint != NULL;
	if (endpoint)
		p->endpoint = *endpoint;
	if (!p->conn) {
		p->redial_wait_ns = l->config.redial_ns_min;
		link_schedule_dial(p, now_ns);
		if (p->redial_at_ns != RP_NEVER) {
			p->redial_at_ns = now_ns;
			link_arm(l, now_ns);
		}
	}
	return 0;
}

void rp_links_remove_peer(struct rp_links *l, uint64_t node, uint64_t now_ns)
{
	struct link_peer *p = link_peer_of(l, node);

	if (!p)
		return;
	/* Forgotten first, so that on_down() finds no peer to remove or to dial. */
	for (uint32_t i = 0; i < l->peer_count; i++) {
		if (l->peers[i] == p) {
			l->peers[i] = l->peers[--l->peer_count];
			break;
		}
	}
	map_rebuild(l);
	p->has_endpoint = false;
	if (p->up)
		link_bundle_down(p, RP_LINK_DOWN_REMOVED, true, now_ns);
	else if (p->conn)
		link_conn_abort(p->conn, now_ns);
	peer_free(p);
}

struct link_conn *link_conn_new(struct rp_links *l)
{
	struct rp_list *n = rp_list_pop_front(&l->conns_free);
	struct link_conn *c;

	if (!n)
		return NULL;
	c = rp_list_entry(n, struct link_conn, entry);
	*c = (struct link_conn){.links = l, .deadline_ns = RP_NEVER};
	rp_list_init(&c->entry);
	return c;
}

void link_conn_free(struct link_conn *c)
{
	rte_pktmbuf_free(c->rx);
	c->rx = NULL;
	c->conn = NULL;
	c->peer = NULL;
	c->state = LINK_FREE;
	rp_list_unlink(&c->entry);
	if (c->depth == 0)
		rp_list_push_back(&c->links->conns_free, &c->entry);
}

static void conn_detach(struct link_conn *c)
{
	if (c->state == LINK_PREAMBLE || c->state == LINK_HELLO || c->state == LINK_FINISH)
		c->links->handshake_count--;
	rp_list_unlink(&c->entry);
	if (c->peer && c->peer->conn == c)
		c->peer->conn = NULL;
	c->peer = NULL;
}

void link_conn_close(struct link_conn *c, uint64_t now_ns)
{
	struct rp_links *l = c->links;

	conn_detach(c);
	c->state = LINK_CLOSING;
	c->deadline_ns = now_ns + l->config.handshake_grace_ns;
	link_arm(l, c->deadline_ns);
	rp_list_push_back(&l->closing, &c->entry);
	rte_pktmbuf_free(c->rx);
	c->rx = NULL;
	c->conn->transport->ops->close(c->conn, now_ns);
}

void link_conn_abort(struct link_conn *c, uint64_t now_ns)
{
	struct rp_conn *conn = c->conn;

	conn_detach(c);
	link_conn_free(c);
	if (conn)
		conn->transport->ops->abort(conn, now_ns);
}

void link_schedule_dial(struct link_peer *p, uint64_t now_ns)
{
	struct rp_links *l = p->links;

	p->redial_at_ns = RP_NEVER;
	if (l->stopping || !p->has_endpoint || !p->transport || l->config.node > p->node)
		return;
	p->redial_at_ns = now_ns + p->redial_wait_ns;
	p->redial_wait_ns = RP_MIN(2 * p->redial_wait_ns, l->config.redial_ns_max);
	link_arm(l, p->redial_at_ns);
}

static struct rp_conn_options link_conn_options(const struct rp_links *l)
{
	struct rp_conn_options options = l->config.conn;

	options.user_timeout_ns = l->config.dead_after_ns;
	return options;
}

static void peer_dial(struct link_peer *p, uint64_t now_ns)
{
	struct rp_links *l = p->links;
	struct rp_conn_options options = link_conn_options(l);
	struct link_conn *c = link_conn_new(l);

	/*
	 * It has not come up for long. Most likely the peer is not there; but it may be that
	 * something on the way drops the question for ECN, so now and then a dial may go without.
	 */
	if (options.ecn == RP_ECN_INSIST && p->dial_since_ns != 0 &&
		now_ns - p->dial_since_ns > ECN_DOUBT_NS && p->dials % 4 == 3)
		options.ecn = RP_ECN_ASK;
	p->redial_at_ns = RP_NEVER;
	p->dials++;
	l->counters.dials++;
	if (p->dial_since_ns == 0)
		p->dial_since_ns = now_ns;
	else
		l->counters.redials++;
	if (!c) {
		l->counters.dials_failed++;
		link_schedule_dial(p, now_ns);
		return;
	}
	c->state = LINK_DIALING;
	c->peer = p;
	c->deadline_ns = now_ns + l->config.handshake_grace_ns;
	p->conn = c;
	c->conn = p->transport->ops->dial(
		p->transport, &p->endpoint, &options, &link_events, c, now_ns);
	if (!c->conn) {
		l->counters.dials_failed++;
		link_conn_abort(c, now_ns);
		link_schedule_dial(p, now_ns);
		return;
	}
	link_arm(l, c->deadline_ns);
}

/* Handshakes and closing connections lie in the order of their deadlines. */
static void expire(struct rp_links *l, uint64_t now_ns)
{
	while (!rp_list_empty(&l->handshakes)) {
		struct link_conn *c = rp_list_entry(l->handshakes.next, struct link_conn, entry);

		if (c->deadline_ns > now_ns) {
			link_arm(l, c->deadline_ns);
			break;
		}
		link_handshake_fail(c, RP_LINK_REFUSAL_TIMEOUT, now_ns);
	}
	while (!rp_list_empty(&l->closing)) {
		struct link_conn *c = rp_list_entry(l->closing.next, struct link_conn, entry);

		if (c->deadline_ns > now_ns) {
			link_arm(l, c->deadline_ns);
			break;
		}
		link_conn_abort(c, now_ns);
	}
}

static void peer_poll(struct link_peer *p, uint64_t now_ns)
{
	struct rp_links *l = p->links;

	if (p->conn && !p->up) {
		if (p->conn->deadline_ns <= now_ns)
			link_handshake_fail(p->conn, RP_LINK_REFUSAL_TIMEOUT, now_ns);
		else
			link_arm(l, p->conn->deadline_ns);
	}
	if (!p->conn && p->redial_at_ns <= now_ns)
		peer_dial(p, now_ns);
	if (!p->conn && p->redial_at_ns != RP_NEVER)
		link_arm(l, p->redial_at_ns);
	if (p->up)
		link_bundle_heartbeat(p, now_ns);
}

void rp_links_poll(struct rp_links *l, uint64_t now_ns)
{
	if (now_ns < l->deadline_ns)
		return;
	l->deadline_ns = RP_NEVER;
	expire(l, now_ns);
	/* From the back: on_down() may remove a peer, which moves the last one to its place. */
	for (uint32_t i = l->peer_count; i-- > 0;) {
		if (i < l->peer_count)
			peer_poll(l->peers[i], now_ns);
	}
}

uint64_t rp_links_next_deadline(const struct rp_links *l)
{
	return rp_list_empty(&l->dirty) ? l->deadline_ns : 0;
}

void rp_links_flush(struct rp_links *l, uint64_t now_ns)
{
	struct rp_list work;

	rp_list_init(&work);
	rp_list_splice_back(&work, &l->dirty);
	while (!rp_list_empty(&work)) {
		struct link_peer *p =
			rp_list_entry(rp_list_pop_front(&work), struct link_peer, dirty);

		if (p->up)
			link_bundle_flush(p, now_ns);
	}
}

void rp_links_stop(struct rp_links *l, uint64_t now_ns)
{
	l->stopping = true;
	while (!rp_list_empty(&l->handshakes))
		link_conn_abort(rp_list_entry(l->handshakes.next, struct link_conn, entry), now_ns);
	for (uint32_t i = l->peer_count; i-- > 0;) {
		struct link_peer *p = i < l->peer_count ? l->peers[i] : NULL;

		if (!p)
			continue;
		p->redial_at_ns = RP_NEVER;
		if (p->up) {
			link_bundle_flush(p, now_ns);
			if (p->up)
				link_bundle_down(p, RP_LINK_DOWN_STOPPED, true, now_ns);
		} else if (p->conn) {
			link_conn_abort(p->conn, now_ns);
		}
	}
}

int rp_links_listen(struct rp_links *l, struct rp_transport *t, uint16_t port)
{
	const struct rp_conn_options options = link_conn_options(l);

	return t->ops->listen(t, port, &options, rp_links_accept, l);
}

int rp_links_info(const struct rp_links *l, uint64_t node, struct rp_link_info *info)
{
	const struct link_peer *p = link_peer_of(l, node);

	if (!p)
		return -ENOENT;
	*info = (struct rp_link_info){
		.node = node,
		.up = p->up,
		.dialing = p->conn && !p->up,
		.bundle = p->up ? p->bundle : 0,
		.boot = p->boot,
		.up_since_ns = p->up ? p->up_since_ns : 0,
		.answered_ns = p->answered_ns,
		.rtt_ns = p->rtt_ns,
		.queued_frames = p->tail - p->head,
		.last_refusal = p->last_refusal,
	};
	return 0;
}

const struct rp_link_counters *rp_links_counters(const struct rp_links *l)
{
	return &l->counters;
}

uint32_t rp_links_up_count(const struct rp_links *l)
{
	return l->up_count;
}

uint32_t rp_links_handshakes(const struct rp_links *l)
{
	return l->handshake_count;
}

const char *rp_link_down_text(enum rp_link_down why)
{
	static const char *const texts[] = {
#define X(name, text) [RP_LINK_DOWN_##name] = text,
		RP_LINK_DOWNS(X)
#undef X
	};

	return (unsigned)why < RP_LINK_DOWN_COUNT ? texts[why] : "?";
}

const char *rp_link_refusal_text(enum rp_link_refusal why)
{
	static const char *const texts[] = {
#define X(name, number, text) [number] = text,
		RP_LINK_REFUSALS(X)
#undef X
	};

	return (unsigned)why < RP_LINK_REFUSAL_COUNT ? texts[why] : "?";
}
