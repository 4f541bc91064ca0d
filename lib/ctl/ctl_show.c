/* SPDX-License-Identifier: Apache-2.0 */

/* ringpost.v1.Admin: the connections of the links, and who is next to the ports. */

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ringpost/v1/admin.pb-c.h>

#include <base/assert.h>
#include <ctl/ctl_priv.h>

#define MAC_TEXT_SIZE 18

/* ---- endpoints ---- */

int ctl_endpoint_filter(struct rp_endpoint *e, const char *text)
{
	char address[INET6_ADDRSTRLEN + 2];
	size_t length = strlen(text);

	memset(e, 0, sizeof(*e));
	if (length == 0 || (rp_endpoint_parse(e, text) == 0))
		return 0;
	memset(e, 0, sizeof(*e));
	if (text[0] == '[' && text[length - 1] == ']') {
		text++;
		length -= 2;
	}
	if (length >= sizeof(address))
		return -EINVAL;
	memcpy(address, text, length);
	address[length] = '\0';
	if (inet_pton(AF_INET, address, e->addr) == 1)
		e->family = 4;
	else if (inet_pton(AF_INET6, address, e->addr) == 1)
		e->family = 6;
	else
		return -EINVAL;
	return 0;
}

bool ctl_endpoint_fits(const struct rp_endpoint *filter, const struct rp_endpoint *e)
{
	return filter->family == 0 ||
	       (filter->family == e->family && (filter->port == 0 || filter->port == e->port) &&
		       memcmp(filter->addr, e->addr, e->family == 6 ? 16 : 4) == 0);
}

/* ---- connections ---- */

static void connection_fill(Ringpost__V1__Connection *c, const struct rp_tcp_info *t)
{
	c->state = (char *)t->state;
	c->passive = t->passive;
	c->mss = t->mss;
	c->path_mtu = t->path_mtu;
	c->congestion = (char *)t->congestion;
	c->ecn = t->ecn;
	c->sack = t->sack;
	c->timestamps = t->timestamps;
	c->cwnd = t->cwnd;
	c->ssthresh = t->ssthresh;
	c->pipe = t->pipe;
	c->send_window = t->send_window;
	c->receive_window = t->receive_window;
	c->send_shift = t->send_shift;
	c->receive_shift = t->receive_shift;
	c->unsent = t->unsent;
	c->unacked = t->unacked;
	c->unconsumed = t->unconsumed;
	c->out_of_order = t->ooo;
	c->recovery = t->recovery;
	c->reordering = t->reordering;
	c->rtx_segments = t->rtx_segments;
	c->rtos = t->rtos;
	c->tlps = t->tlps;
	c->undos = t->undos;
	c->bytes_sent = t->bytes_sent;
	c->bytes_received = t->bytes_received;
}

static void connection_fill_times(
	Ringpost__V1__Connection *c, const struct rp_tcp_info *t, uint64_t now_ns)
{
	c->srtt_ns = t->srtt_ns;
	c->rttvar_ns = t->rttvar_ns;
	c->rtt_min_ns = t->rtt_min_ns;
	c->rto_ns = t->rto_ns;
	c->rto_floor_ns = t->rto_floor_ns;
	c->backoff = t->backoff;
	c->reo_window_ns = t->reo_window_ns;
	c->timer = (char *)t->timer;
	if (t->deadline_ns != RP_NEVER && t->deadline_ns > now_ns)
		c->timer_in_ns = t->deadline_ns - now_ns;
	c->keepalive_idle_ns = t->keepalive_idle_ns;
	c->keepalive_interval_ns = t->keepalive_interval_ns;
	c->keepalive_probes = t->keepalive_probes;
	c->keepalive_sent = t->keepalive_sent;
	c->age_ns = now_ns - RP_MIN(t->opened_ns, now_ns);
}

/** A connection of the answer, with what it points at. */
struct connection_item {
	Ringpost__V1__Connection c;
	char local[CTL_ENDPOINT_TEXT_SIZE], peer[CTL_ENDPOINT_TEXT_SIZE];
};

static void connection_add(Ringpost__V1__ConnectionsReply *r, struct connection_item *x,
	unsigned shard, const struct rp_engine_connection_view *v, uint64_t now_ns)
{
	ringpost__v1__connection__init(&x->c);
	rp_endpoint_format(&v->info.local, x->local, sizeof(x->local));
	rp_endpoint_format(&v->info.peer, x->peer, sizeof(x->peer));
	x->c.shard = shard;
	x->c.port = v->port;
	x->c.local = x->local;
	x->c.peer = x->peer;
	connection_fill(&x->c, &v->info);
	connection_fill_times(&x->c, &v->info, now_ns);
	r->connections[r->n_connections++] = &x->c;
}

static void connections_reply(struct rp_ctl *ctl, void *who)
{
	struct ctl_admin_call *a = who;
	Ringpost__V1__ConnectionsReply r = RINGPOST__V1__CONNECTIONS_REPLY__INIT;
	struct connection_item *items;
	size_t most = 0;

	for (uint32_t s = 0; s < ctl->config.self.shards; s++)
		most += ctl->snapshots[s].connection_count;
	items = calloc(most + 1, sizeof(*items));
	r.connections = calloc(most + 1, sizeof(*r.connections));
	RP_ASSERT(items && r.connections);
	for (uint32_t s = 0; s < ctl->config.self.shards; s++) {
		const struct rp_engine_snapshot *snap = &ctl->snapshots[s];

		r.omitted += snap->connections_omitted;
		for (uint32_t i = 0; i < snap->connection_count; i++) {
			const struct rp_engine_connection_view *v = &snap->connections[i];

			if (ctl_endpoint_fits(&a->endpoint, &v->info.local) ||
				ctl_endpoint_fits(&a->endpoint, &v->info.peer))
				connection_add(&r, &items[r.n_connections], s, v, snap->now_ns);
		}
	}
	r.node = ctl->config.self.node;
	ctl_admin_reply(a->call, &r.base);
	free(r.connections);
	free(items);
	free(a);
}

static void on_connections(struct rp_grpc_call *call, const uint8_t *data, size_t length, void *ctx)
{
	Ringpost__V1__ConnectionsRequest *q =
		ringpost__v1__connections_request__unpack(NULL, length, data);
	struct rp_endpoint e;

	if (ctl_admin_malformed(call, q))
		return;
	if (ctl_admin_admitted(call)) {
		if (ctl_endpoint_filter(&e, q->endpoint) != 0)
			rp_grpc_call_finish(call, RP_GRPC_INVALID_ARGUMENT,
				"ringpost: not an endpoint: expected ADDRESS, ADDRESS:PORT or "
				"[ADDRESS]:PORT");
		else
			ctl_admin_ask(ctx, call, "", &e, connections_reply);
	}
	ringpost__v1__connections_request__free_unpacked(q, NULL);
}

/* ---- neighbours ---- */

static void mac_format(const uint8_t mac[6], char text[MAC_TEXT_SIZE])
{
	snprintf(text, MAC_TEXT_SIZE, "%02x:%02x:%02x:%02x:%02x:%02x", mac[0], mac[1], mac[2],
		mac[3], mac[4], mac[5]);
}

static void ip_format(const union rp_ip *ip, char text[INET6_ADDRSTRLEN])
{
	bool four = rp_ip_is4(ip);

	inet_ntop(four ? AF_INET : AF_INET6, four ? ip->b + 12 : ip->b, text, INET6_ADDRSTRLEN);
}

struct address_item {
	Ringpost__V1__Address a;
	char address[CTL_ENDPOINT_TEXT_SIZE], mac[MAC_TEXT_SIZE];
};

struct neighbour_item {
	Ringpost__V1__Neighbour n;
	char address[INET6_ADDRSTRLEN], mac[MAC_TEXT_SIZE];
};

static void address_add(Ringpost__V1__NeighboursReply *r, struct address_item *x, unsigned shard,
	const struct rp_engine_address_view *v, const struct rp_port *port)
{
	char ip[INET6_ADDRSTRLEN];
	struct rp_port_info info;

	rp_port_info(port, &info);
	ip_format(&v->info.ip, ip);
	snprintf(x->address, sizeof(x->address), "%s/%u", ip, v->info.prefix_length);
	mac_format(info.mac, x->mac);
	ringpost__v1__address__init(&x->a);
	x->a.port = v->port;
	x->a.shard = shard;
	x->a.address = x->address;
	x->a.mac = x->mac;
	x->a.state = (char *)v->info.state;
	r->addresses[r->n_addresses++] = &x->a;
}

static void neighbour_add(Ringpost__V1__NeighboursReply *r, struct neighbour_item *x,
	unsigned shard, const struct rp_engine_neighbour_view *v, uint64_t now_ns)
{
	static const uint8_t none[6];

	ip_format(&v->info.ip, x->address);
	if (memcmp(v->info.mac, none, sizeof(none)) != 0)
		mac_format(v->info.mac, x->mac);
	ringpost__v1__neighbour__init(&x->n);
	x->n.port = v->port;
	x->n.shard = shard;
	x->n.address = x->address;
	x->n.mac = x->mac;
	x->n.state = (char *)v->info.state;
	x->n.pending = v->info.pending;
	x->n.users = v->info.users;
	x->n.confirmed = v->info.confirmed_ns != 0;
	if (x->n.confirmed)
		x->n.confirmed_ago_ns = now_ns - RP_MIN(v->info.confirmed_ns, now_ns);
	r->neighbours[r->n_neighbours++] = &x->n;
}

static void neighbours_fill(struct rp_ctl *ctl, Ringpost__V1__NeighboursReply *r,
	struct address_item *addresses, struct neighbour_item *neighbours)
{
	for (uint32_t s = 0; s < ctl->config.self.shards; s++) {
		const struct rp_engine_snapshot *snap = &ctl->snapshots[s];

		r->omitted += snap->neighbours_omitted;
		for (uint32_t i = 0; i < snap->address_count; i++)
			address_add(r, &addresses[r->n_addresses], s, &snap->addresses[i],
				ctl->config.ports[snap->addresses[i].port]);
		for (uint32_t i = 0; i < snap->neighbour_count; i++)
			neighbour_add(r, &neighbours[r->n_neighbours], s, &snap->neighbours[i],
				snap->now_ns);
	}
}

static void neighbours_reply(struct rp_ctl *ctl, void *who)
{
	struct ctl_admin_call *a = who;
	Ringpost__V1__NeighboursReply r = RINGPOST__V1__NEIGHBOURS_REPLY__INIT;
	size_t address_count = 0, neighbour_count = 0;
	struct address_item *addresses;
	struct neighbour_item *neighbours;

	for (uint32_t s = 0; s < ctl->config.self.shards; s++) {
		address_count += ctl->snapshots[s].address_count;
		neighbour_count += ctl->snapshots[s].neighbour_count;
	}
	addresses = calloc(address_count + 1, sizeof(*addresses));
	neighbours = calloc(neighbour_count + 1, sizeof(*neighbours));
	r.addresses = calloc(address_count + 1, sizeof(*r.addresses));
	r.neighbours = calloc(neighbour_count + 1, sizeof(*r.neighbours));
	RP_ASSERT(addresses && neighbours && r.addresses && r.neighbours);
	neighbours_fill(ctl, &r, addresses, neighbours);
	r.node = ctl->config.self.node;
	ctl_admin_reply(a->call, &r.base);
	free(r.addresses);
	free(r.neighbours);
	free(addresses);
	free(neighbours);
	free(a);
}

static void on_neighbours(struct rp_grpc_call *call, const uint8_t *data, size_t length, void *ctx)
{
	if (ctl_admin_admitted(call))
		ctl_admin_ask(ctx, call, "", NULL, neighbours_reply);
}

const struct rp_grpc_call_ops ctl_connections_ops = {
	.on_message = on_connections, .on_cancel = ctl_admin_on_cancel};
const struct rp_grpc_call_ops ctl_neighbours_ops = {
	.on_message = on_neighbours, .on_cancel = ctl_admin_on_cancel};
