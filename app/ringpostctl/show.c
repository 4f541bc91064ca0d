/* SPDX-License-Identifier: Apache-2.0 */

/*
 * ringpostctl show tcp|neighbours: a table for people, or JSON by the schemas in docs/schema/,
 * whose `version` changes when a member goes or changes its meaning.
 */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include <ringpost/v1/admin.pb-c.h>

#include <base/units.h>

#include "client.h"
#include "json.h"
#include "table.h"

/** From here on ssthresh means that no loss has set it. */
#define SSTHRESH_UNSET (UINT32_MAX / 2)

/* The head of these answers, which JSON of other commands has without `omitted`. */
static json_t *show_head(const char *kind, uint64_t node, uint32_t omitted)
{
	json_t *root = json_head(kind, node);

	json_object_set_new(root, "omitted", json_integer((json_int_t)omitted));
	return root;
}

static void say_omitted(uint32_t omitted, const char *what)
{
	if (omitted > 0)
		printf("and %u more %s\n", omitted, what);
}

/* ---- show tcp ---- */

static void set_int(json_t *o, const char *name, uint64_t value)
{
	json_object_set_new(o, name, json_integer((json_int_t)value));
}

/* Zero means that there is none. */
static void set_known(json_t *o, const char *name, uint64_t value)
{
	json_object_set_new(o, name, value ? json_integer((json_int_t)value) : json_null());
}

static void set_flag(json_t *o, const char *name, bool value)
{
	json_object_set_new(o, name, json_boolean(value));
}

static void set_text(json_t *o, const char *name, const char *value)
{
	json_object_set_new(o, name, json_string(value));
}

static void tcp_json_sizes(json_t *o, const Ringpost__V1__Connection *t)
{
	set_int(o, "mss_bytes", t->mss);
	set_known(o, "path_mtu_bytes", t->path_mtu);
	set_int(o, "cwnd_bytes", t->cwnd);
	set_known(o, "ssthresh_bytes", t->ssthresh < SSTHRESH_UNSET ? t->ssthresh : 0);
	set_int(o, "pipe_bytes", t->pipe);
	set_int(o, "send_window_bytes", t->send_window);
	set_int(o, "receive_window_bytes", t->receive_window);
	set_int(o, "send_shift", t->send_shift);
	set_int(o, "receive_shift", t->receive_shift);
	set_int(o, "unsent_bytes", t->unsent);
	set_int(o, "unacked_bytes", t->unacked);
	set_int(o, "unconsumed_bytes", t->unconsumed);
	set_int(o, "out_of_order_bytes", t->out_of_order);
	set_int(o, "sent_bytes", t->bytes_sent);
	set_int(o, "received_bytes", t->bytes_received);
}

static void tcp_json_times(json_t *o, const Ringpost__V1__Connection *t)
{
	json_t *timer = json_null(), *keepalive = json_null();

	set_known(o, "srtt_ns", t->srtt_ns);
	set_known(o, "rttvar_ns", t->srtt_ns ? t->rttvar_ns : 0);
	set_known(o, "rtt_min_ns", t->rtt_min_ns);
	set_int(o, "rto_ns", t->rto_ns);
	set_int(o, "rto_floor_ns", t->rto_floor_ns);
	set_int(o, "reo_window_ns", t->reo_window_ns);
	set_int(o, "age_ns", t->age_ns);
	if (strcmp(t->timer, "none") != 0)
		timer = json_pack(
			"{s:s, s:I}", "name", t->timer, "in_ns", (json_int_t)t->timer_in_ns);
	json_object_set_new(o, "timer", timer);
	if (t->keepalive_idle_ns)
		keepalive = json_pack("{s:I, s:I, s:I, s:I}", "idle_ns",
			(json_int_t)t->keepalive_idle_ns, "interval_ns",
			(json_int_t)t->keepalive_interval_ns, "probes",
			(json_int_t)t->keepalive_probes, "sent", (json_int_t)t->keepalive_sent);
	json_object_set_new(o, "keepalive", keepalive);
}

static json_t *tcp_json_connection(const Ringpost__V1__Connection *t)
{
	json_t *o = json_object();

	set_int(o, "port", t->port);
	set_int(o, "shard", t->shard);
	set_text(o, "local", t->local);
	set_text(o, "peer", t->peer);
	set_text(o, "state", t->state);
	set_flag(o, "passive", t->passive);
	set_text(o, "congestion", t->congestion);
	set_flag(o, "ecn", t->ecn);
	set_flag(o, "sack", t->sack);
	set_flag(o, "timestamps", t->timestamps);
	set_flag(o, "recovery", t->recovery);
	set_flag(o, "reordering", t->reordering);
	set_int(o, "backoff", t->backoff);
	set_int(o, "retransmissions", t->rtx_segments);
	set_int(o, "rtos", t->rtos);
	set_int(o, "tlps", t->tlps);
	set_int(o, "undos", t->undos);
	tcp_json_sizes(o, t);
	tcp_json_times(o, t);
	return o;
}

static int tcp_json(const Ringpost__V1__ConnectionsReply *r)
{
	json_t *root = show_head("ringpost.show.tcp", r->node, r->omitted), *list = json_array();

	for (size_t i = 0; i < r->n_connections; i++)
		json_array_append_new(list, tcp_json_connection(r->connections[i]));
	json_object_set_new(root, "connections", list);
	return json_print(root);
}

static void tcp_table(const Ringpost__V1__ConnectionsReply *r)
{
	static const char *const heads[] = {"LOCAL", "PEER", "STATE", "CC", "CWND", "PIPE", "SRTT",
		"RTX", "TIMER", "RTO", "UNACKED", "UNSENT", "WINDOW", "AGE", NULL};
	struct table t;

	table_init(&t, heads, 0x3ef0);
	for (size_t i = 0; i < r->n_connections; i++) {
		const Ringpost__V1__Connection *c = r->connections[i];
		char(*row)[TABLE_CELL_SIZE] = table_row(&t), text[TABLE_CELL_SIZE];

		snprintf(row[0], TABLE_CELL_SIZE, "%s", c->local);
		snprintf(row[1], TABLE_CELL_SIZE, "%s", c->peer);
		snprintf(row[2], TABLE_CELL_SIZE, "%s", c->state);
		snprintf(row[3], TABLE_CELL_SIZE, "%s%s", c->congestion, c->ecn ? "+ecn" : "");
		text_bytes(row[4], c->cwnd);
		text_bytes(row[5], c->pipe);
		text_ns(row[6], c->srtt_ns);
		snprintf(row[7], TABLE_CELL_SIZE, "%" PRIu64, c->rtx_segments);
		snprintf(row[8], TABLE_CELL_SIZE, "%.20s %.20s", c->timer,
			strcmp(c->timer, "none") ? text_ns(text, c->timer_in_ns) : "");
		text_ns(row[9], c->rto_ns);
		text_bytes(row[10], c->unacked);
		text_bytes(row[11], c->unsent);
		text_bytes(row[12], c->send_window);
		text_ns(row[13], c->age_ns);
	}
	table_print(&t);
}

static void tcp_long_times(const Ringpost__V1__Connection *c)
{
	char t[8][TABLE_CELL_SIZE];

	printf("  round trip   srtt %s, variance %s, least %s; rto %s, floor %s, backoff %u\n",
		text_ns(t[0], c->srtt_ns), text_ns(t[1], c->rttvar_ns),
		text_ns(t[2], c->rtt_min_ns), text_ns(t[3], c->rto_ns),
		text_ns(t[4], c->rto_floor_ns), c->backoff);
	printf("  loss         reordering window %s%s; retransmitted %" PRIu64 ", timeouts %" PRIu64
	       ", probes %" PRIu64 ", undone %" PRIu64 "%s\n",
		text_ns(t[0], c->reo_window_ns), c->reordering ? ", reordering seen" : "",
		c->rtx_segments, c->rtos, c->tlps, c->undos, c->recovery ? "; in recovery" : "");
	if (strcmp(c->timer, "none") != 0)
		printf("  next timer   %s in %s\n", c->timer, text_ns(t[0], c->timer_in_ns));
	if (c->keepalive_idle_ns)
		printf("  keepalive    after %s, each %s, %u times; %u without an answer\n",
			text_ns(t[0], c->keepalive_idle_ns),
			text_ns(t[1], c->keepalive_interval_ns), c->keepalive_probes,
			c->keepalive_sent);
}

static void tcp_long(const Ringpost__V1__Connection *c)
{
	char t[4][TABLE_CELL_SIZE], mtu[16] = "none learned", ssthresh[TABLE_CELL_SIZE] = "none";

	if (c->path_mtu)
		snprintf(mtu, sizeof(mtu), "%u", c->path_mtu);
	if (c->ssthresh < SSTHRESH_UNSET)
		text_bytes(ssthresh, c->ssthresh);
	printf("%s -> %s  %s, %s, port %u, shard %u, age %s\n", c->local, c->peer, c->state,
		c->passive ? "accepted" : "dialled", c->port, c->shard, text_ns(t[0], c->age_ns));
	printf("  options      mss %u, path mtu %s%s%s%s, scale %u/%u\n", c->mss, mtu,
		c->sack ? ", sack" : "", c->timestamps ? ", timestamps" : "", c->ecn ? ", ecn" : "",
		c->send_shift, c->receive_shift);
	printf("  congestion   %s, cwnd %s, ssthresh %s, pipe %s\n", c->congestion,
		text_bytes(t[0], c->cwnd), ssthresh, text_bytes(t[1], c->pipe));
	printf("  windows      send %s, receive %s\n", text_bytes(t[0], c->send_window),
		text_bytes(t[1], c->receive_window));
	printf("  queues       unsent %s, unacknowledged %s, unconsumed %s, out of order %s\n",
		text_bytes(t[0], c->unsent), text_bytes(t[1], c->unacked),
		text_bytes(t[2], c->unconsumed), text_bytes(t[3], c->out_of_order));
	tcp_long_times(c);
	printf("  bytes        sent %" PRIu64 ", received %" PRIu64 "\n", c->bytes_sent,
		c->bytes_received);
}

int show_tcp(struct client *c, int argc, char **argv)
{
	Ringpost__V1__ConnectionsRequest q = RINGPOST__V1__CONNECTIONS_REQUEST__INIT;
	Ringpost__V1__ConnectionsReply *r;
	struct options o;
	int rc = 0;

	if (options_take(&o, "jlc", 0, 0, argc, argv) != 0)
		return 2;
	if (o.endpoint)
		q.endpoint = o.endpoint;
	r = ask(c, "/ringpost.v1.Admin/Connections", &q.base,
		&ringpost__v1__connections_reply__descriptor);
	if (!r)
		return 1;
	if (o.json) {
		rc = tcp_json(r);
	} else if (o.details || o.endpoint) {
		for (size_t i = 0; i < r->n_connections; i++)
			tcp_long(r->connections[i]);
		say_omitted(r->omitted, "connections");
	} else {
		tcp_table(r);
		say_omitted(r->omitted, "connections");
		if (r->n_connections == 0)
			fputs("no connection over a port; links over kernel sockets are shown by "
			      "ringpostctl links\n",
				stderr);
	}
	ringpost__v1__connections_reply__free_unpacked(r, NULL);
	return rc;
}

/* ---- show neighbours ---- */

static int neighbours_json(const Ringpost__V1__NeighboursReply *r)
{
	json_t *root = show_head("ringpost.show.neighbours", r->node, r->omitted);
	json_t *addresses = json_array(), *neighbours = json_array();

	for (size_t i = 0; i < r->n_addresses; i++) {
		const Ringpost__V1__Address *x = r->addresses[i];

		json_array_append_new(addresses,
			json_pack("{s:I, s:I, s:s, s:s, s:s}", "port", (json_int_t)x->port, "shard",
				(json_int_t)x->shard, "address", x->address, "mac", x->mac, "state",
				x->state));
	}
	for (size_t i = 0; i < r->n_neighbours; i++) {
		const Ringpost__V1__Neighbour *x = r->neighbours[i];
		json_t *o = json_pack("{s:I, s:I, s:s, s:s, s:I, s:I}", "port", (json_int_t)x->port,
			"shard", (json_int_t)x->shard, "address", x->address, "state", x->state,
			"pending", (json_int_t)x->pending, "users", (json_int_t)x->users);

		json_object_set_new(o, "mac", x->mac[0] ? json_string(x->mac) : json_null());
		json_object_set_new(o, "confirmed_ago_ns",
			x->confirmed ? json_integer((json_int_t)x->confirmed_ago_ns) : json_null());
		json_array_append_new(neighbours, o);
	}
	json_object_set_new(root, "addresses", addresses);
	json_object_set_new(root, "neighbours", neighbours);
	return json_print(root);
}

static void neighbours_table(const Ringpost__V1__NeighboursReply *r)
{
	static const char *const heads[] = {
		"PORT", "ADDRESS", "MAC", "STATE", "CONFIRMED", "PENDING", "USERS", "SHARD", NULL};
	struct table t;

	table_init(&t, heads, 0xf0);
	for (size_t i = 0; i < r->n_addresses; i++) {
		const Ringpost__V1__Address *x = r->addresses[i];
		char(*row)[TABLE_CELL_SIZE] = table_row(&t);

		snprintf(row[0], TABLE_CELL_SIZE, "%u", x->port);
		snprintf(row[1], TABLE_CELL_SIZE, "%s", x->address);
		snprintf(row[2], TABLE_CELL_SIZE, "%s", x->mac);
		snprintf(row[3], TABLE_CELL_SIZE, "own, %.40s", x->state);
		snprintf(row[7], TABLE_CELL_SIZE, "%u", x->shard);
	}
	for (size_t i = 0; i < r->n_neighbours; i++) {
		const Ringpost__V1__Neighbour *x = r->neighbours[i];
		char(*row)[TABLE_CELL_SIZE] = table_row(&t);

		snprintf(row[0], TABLE_CELL_SIZE, "%u", x->port);
		snprintf(row[1], TABLE_CELL_SIZE, "%s", x->address);
		snprintf(row[2], TABLE_CELL_SIZE, "%s", x->mac);
		snprintf(row[3], TABLE_CELL_SIZE, "%s", x->state);
		if (x->confirmed)
			text_ns(row[4], x->confirmed_ago_ns);
		snprintf(row[5], TABLE_CELL_SIZE, "%u", x->pending);
		snprintf(row[6], TABLE_CELL_SIZE, "%u", x->users);
		snprintf(row[7], TABLE_CELL_SIZE, "%u", x->shard);
	}
	table_print(&t);
	say_omitted(r->omitted, "neighbours");
}

int show_neighbours(struct client *c, int argc, char **argv)
{
	Ringpost__V1__NeighboursRequest q = RINGPOST__V1__NEIGHBOURS_REQUEST__INIT;
	Ringpost__V1__NeighboursReply *r;
	struct options o;
	int rc = 0;

	if (options_take(&o, "j", 0, 0, argc, argv) != 0)
		return 2;
	r = ask(c, "/ringpost.v1.Admin/Neighbours", &q.base,
		&ringpost__v1__neighbours_reply__descriptor);
	if (!r)
		return 1;
	if (o.json)
		rc = neighbours_json(r);
	else
		neighbours_table(r);
	ringpost__v1__neighbours_reply__free_unpacked(r, NULL);
	return rc;
}
