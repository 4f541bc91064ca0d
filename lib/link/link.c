/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>

#include <mbedtls/platform_util.h>

#include <base/assert.h>
#include <base/log.h>
#include <base/mbuf.h>

#include "link_priv.h"

static bool config_ok(const struct rp_links_config *c)
{
	uint32_t shards = c->shards ? c->shards : 1;

	if (c->node == 0 || c->boot == 0 || c->per_peer == 0 || c->per_peer > RP_SHARDS_MAX ||
		!c->pool)
		return false;
	if (shards > RP_SHARDS_MAX || c->shard >= shards || c->lead >= shards ||
		(shards < 32 && c->owner_shards >> shards != 0))
		return false;
	if (c->secret && (c->secret_length < RP_LINK_SECRET_BYTES_MIN ||
				 c->secret_length > RP_LINK_SECRET_BYTES_MAX))
		return false;
	if (c->secret_previous &&
		(!c->secret || c->secret_previous_length < RP_LINK_SECRET_BYTES_MIN ||
			c->secret_previous_length > RP_LINK_SECRET_BYTES_MAX))
		return false;
	if (!c->tls_client != !c->tls_server)
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
	/* k times the peers are bounded: RP_PEERS_MAX links, whatever k is (links.md). */
	uint32_t lines = RP_MIN(l->config.peers_max * l->config.per_peer,
		RP_MAX(l->config.peers_max, (uint32_t)RP_PEERS_MAX));
	uint32_t conns = l->config.handshakes_max + lines * LINK_CONNS_PER_LINK;
	uint32_t slots = 2;

	while (slots < 2 * l->config.peers_max)
		slots *= 2;
	l->map_mask = slots - 1;
	l->peers = calloc(l->config.peers_max, sizeof(struct link_peer *));
	l->map = calloc(slots, sizeof(l->map[0]));
	l->conns = calloc(conns, sizeof(l->conns[0]));
	if (!l->peers || !l->map || !l->conns)
		return false;
	l->conn_count = conns;
	for (uint32_t i = 0; i < conns; i++) {
		l->conns[i].links = l;
		rp_list_init(&l->conns[i].entry);
		rp_list_push_back(&l->conns_free, &l->conns[i].entry);
	}
	return true;
}

static const void *secret_take(
	uint8_t own[RP_LINK_SECRET_BYTES_MAX], const void *secret, size_t length)
{
	mbedtls_platform_zeroize(own, RP_LINK_SECRET_BYTES_MAX);
	if (length == 0)
		return NULL;
	memcpy(own, secret, length);
	return own;
}

void rp_links_set_secrets(struct rp_links *l, const void *secret, size_t length,
	const void *previous, size_t previous_length)
{
	RP_ASSERT(
		length <= RP_LINK_SECRET_BYTES_MAX && previous_length <= RP_LINK_SECRET_BYTES_MAX);
	l->config.secret = secret_take(l->secret, secret, length);
	l->config.secret_length = length;
	l->config.secret_previous = secret_take(l->secret_previous, previous, previous_length);
	l->config.secret_previous_length = previous_length;
	if (length == 0 && link_is_lead(l))
		RP_LOG(RP_LOG_LINK, RP_LOG_ERROR,
			"links.secret_file is not set: links to other nodes are open");
}

void rp_links_set_tls(
	struct rp_links *l, struct rp_tls_config *client, struct rp_tls_config *server)
{
	if (l->config.tls_client && client && server) {
		struct rp_tls_config *was = l->config.tls_client;

		l->config.tls_client = client;
		client = was;
		was = l->config.tls_server;
		l->config.tls_server = server;
		server = was;
	}
	rp_tls_config_unref(client);
	rp_tls_config_unref(server);
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
	if (config->tls_client) {
		rp_tls_config_ref(config->tls_client);
		rp_tls_config_ref(config->tls_server);
	}
	l->config.shards = config->shards ? config->shards : 1;
	if (config->owner_shards == 0)
		l->config.owner_shards = 1u << config->lead;
	l->ops = *ops;
	l->ctx = ctx;
	l->deadline_ns = RP_NEVER;
	rp_list_init(&l->conns_free);
	rp_list_init(&l->handshakes);
	rp_list_init(&l->closing);
	rp_list_init(&l->dirty);
	rp_links_set_secrets(l, config->secret, config->secret ? config->secret_length : 0,
		config->secret_previous,
		config->secret_previous ? config->secret_previous_length : 0);
	if (!l->config.data_pool)
		l->config.data_pool = l->config.pool;
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

static void lines_free(struct link_peer *p)
{
	for (unsigned j = 0; j < p->links->config.per_peer; j++) {
		link_line_free(p->lines[j]);
		p->lines[j] = NULL;
	}
}

void rp_links_destroy(struct rp_links *l)
{
	if (!l)
		return;
	for (uint32_t i = 0; i < l->conn_count; i++) {
		struct link_conn *c = &l->conns[i];

		rte_pktmbuf_free(c->rx);
		link_secure_end(c);
		if (c->conn)
			c->conn->transport->ops->abort(c->conn, 0);
	}
	for (uint32_t i = 0; i < l->peer_count; i++) {
		lines_free(l->peers[i]);
		free(l->peers[i]);
	}
	free(l->peers);
	free(l->map);
	free(l->conns);
	rp_tls_config_unref(l->config.tls_client);
	rp_tls_config_unref(l->config.tls_server);
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

/* One that nobody has added, or that was removed, gives its place to the next. */
static bool peer_evict(struct rp_links *l)
{
	for (uint32_t i = 0; i < l->peer_count; i++) {
		struct link_peer *p = l->peers[i];
		bool used = p->added || p->up || p->lead.state != LINK_LEAD_IDLE;

		for (unsigned j = 0; j < l->config.per_peer; j++)
			used |= p->lines[j] && p->lines[j]->conn;
		if (used)
			continue;
		l->peers[i] = l->peers[--l->peer_count];
		map_rebuild(l);
		lines_free(p);
		free(p);
		return true;
	}
	return false;
}

static struct link_peer *peer_create(struct rp_links *l, uint64_t node)
{
	struct link_peer *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	p->links = l;
	p->node = node;
	p->lead.redial_at_ns = p->lead.deadline_ns = RP_NEVER;
	p->lead.redial_wait_ns = l->config.redial_ns_min;
	l->peers[l->peer_count++] = p;
	map_insert(l, l->peer_count - 1);
	return p;
}

struct link_peer *link_peer_get(struct rp_links *l, uint64_t node)
{
	struct link_peer *p = link_peer_of(l, node);

	if (p || (l->peer_count == l->config.peers_max && !peer_evict(l)))
		return p;
	return peer_create(l, node);
}

uint32_t link_peer_slot(const struct link_peer *p)
{
	const struct rp_links *l = p->links;
	uint32_t rank = 0;

	for (uint32_t i = 0; i < l->peer_count; i++)
		rank += l->peers[i]->added && l->peers[i]->node < p->node;
	return rank;
}

int rp_link_place(uint32_t slot, uint32_t link, uint32_t per_peer, uint32_t shards, uint32_t usable,
	bool skip_shard_zero)
{
	uint8_t fit[RP_SHARDS_MAX];
	uint32_t n = 0, first;

	for (uint32_t s = 0; s < shards; s++)
		if (usable >> s & 1 && s * per_peer / shards == link)
			fit[n++] = (uint8_t)s;
	/* No transport in the range: any shard that has some. */
	for (uint32_t s = 0; n == 0 && s < shards; s++)
		if (usable >> s & 1)
			fit[n++] = (uint8_t)s;
	if (n == 0)
		return -ENOENT;
	first = skip_shard_zero && n > 1 && fit[0] == 0 ? 1 : 0;
	return fit[first + slot % (n - first)];
}

int rp_links_add_peer(struct rp_links *l, uint64_t node, struct rp_transport *t,
	const struct rp_endpoint *endpoint, uint64_t now_ns)
{
	struct link_peer *p;

	if (node == 0 || node == l->config.node)
		return -EINVAL;
	p = link_peer_get(l, node);
	if (!p)
		return l->peer_count == l->config.peers_max ? -ENOSPC : -ENOMEM;
	p->added = true;
	p->transport = t;
	p->has_endpoint = endpoint != NULL;
	if (endpoint)
		p->endpoint = *endpoint;
	if (!link_is_lead(l) || p->lead.state != LINK_LEAD_IDLE)
		return 0;
	p->lead.redial_wait_ns = l->config.redial_ns_min;
	link_lead_schedule(p, now_ns);
	if (p->lead.redial_at_ns != RP_NEVER) {
		p->lead.redial_at_ns = now_ns;
		link_arm(l, now_ns);
	}
	return 0;
}

void rp_links_place_peer(struct rp_links *l, uint64_t node, const struct rp_place *place,
	uint32_t shards, uint32_t owners)
{
	struct link_peer *p = link_peer_of(l, node);

	if (!p)
		return;
	p->far_place = place;
	p->far_shards = shards;
	p->far_owners = owners;
}

void rp_links_remove_peer(struct rp_links *l, uint64_t node, uint64_t now_ns)
{
	struct link_peer *p = link_peer_of(l, node);

	if (!p)
		return;
	p->added = p->has_endpoint = false;
	p->lead.redial_at_ns = RP_NEVER;
	/* The other shards hear it from the lead. */
	if (link_is_lead(l))
		link_lead_down(p, RP_LINK_DOWN_REMOVED, now_ns);
}

struct link_conn *link_conn_new(struct rp_links *l)
{
	struct rp_list *n = rp_list_pop_front(&l->conns_free);
	struct link_conn *c;

	if (!n)
		return NULL;
	c = rp_list_entry(n, struct link_conn, entry);
	*c = (struct link_conn){.links = l, .deadline_ns = RP_NEVER, .life = c->life + 1};
	rp_list_init(&c->entry);
	return c;
}

void link_conn_free(struct link_conn *c)
{
	rte_pktmbuf_free(c->rx);
	c->rx = NULL;
	link_secure_end(c);
	c->conn = NULL;
	c->line = NULL;
	c->state = LINK_FREE;
	rp_list_unlink(&c->entry);
	if (c->depth == 0)
		rp_list_push_back(&c->links->conns_free, &c->entry);
}

void link_conn_enter(struct link_conn *c)
{
	c->depth++;
}

void link_conn_leave(struct link_conn *c)
{
	RP_ASSERT(c->depth > 0);
	if (--c->depth == 0 && c->state == LINK_FREE)
		rp_list_push_back(&c->links->conns_free, &c->entry);
}

static void conn_detach(struct link_conn *c)
{
	if (!c->line && c->state >= LINK_PREAMBLE && c->state <= LINK_DECIDE)
		c->links->handshake_count--;
	rp_list_unlink(&c->entry);
	if (c->line && c->line->conn == c)
		c->line->conn = NULL;
	c->line = NULL;
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
	link_secure_end(c);
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

struct rp_conn_options link_conn_options(const struct rp_links *l)
{
	struct rp_conn_options options = l->config.conn;

	options.user_timeout_ns = l->config.dead_after_ns;
	return options;
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

	for (unsigned j = 0; j < l->config.per_peer; j++)
		if (p->lines[j] && p->lines[j]->conn)
			link_line_poll(p->lines[j], now_ns);
	if (link_is_lead(l))
		link_lead_poll(p, now_ns);
}

void rp_links_poll(struct rp_links *l, uint64_t now_ns)
{
	if (now_ns < l->deadline_ns)
		return;
	l->deadline_ns = RP_NEVER;
	expire(l, now_ns);
	/* From the back: a peer that is made evicts another, and the last one takes its place. */
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
		struct link_line *line =
			rp_list_entry(rp_list_pop_front(&work), struct link_line, dirty);

		if (line->conn && line->conn->state == LINK_UP)
			link_line_flush(line, now_ns);
	}
}

void rp_links_stop(struct rp_links *l, uint64_t now_ns)
{
	l->stopping = true;
	while (!rp_list_empty(&l->handshakes))
		link_conn_abort(rp_list_entry(l->handshakes.next, struct link_conn, entry), now_ns);
	/* The other shards close their links when the lead says so. */
	for (uint32_t i = l->peer_count; link_is_lead(l) && i-- > 0;) {
		struct link_peer *p = i < l->peer_count ? l->peers[i] : NULL;

		if (!p)
			continue;
		p->lead.redial_at_ns = RP_NEVER;
		link_lead_down(p, RP_LINK_DOWN_STOPPED, now_ns);
	}
}

int rp_links_listen(struct rp_links *l, struct rp_transport *t, uint16_t port)
{
	const struct rp_conn_options options = link_conn_options(l);

	return t->ops->listen(t, port, &options, rp_links_accept, l);
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
