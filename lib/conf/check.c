/* SPDX-License-Identifier: Apache-2.0 */
#include "conf_priv.h"

#include <stdarg.h>
#include <string.h>

#include <base/assert.h>
#include <base/glob.h>

/* What no single value tells: values against each other. */

/* Of a port; the network layer keeps room for the link-local address that it makes itself. */
#define RP_CONF_ADDRESSES_MAX 15u
#define RP_CONF_NEIGHBOURS_MAX 64u

struct checker {
	struct rp_conf *conf;
	struct rp_conf_report *report;
};

static struct conf_at at_knob(const char *section, const char *name)
{
	struct conf_at at = {.entry = conf_find(section, name)};

	RP_ASSERT(at.entry && at.entry->kind == CONF_KNOB);
	return at;
}

static struct conf_at at_item(
	const char *section, const char *list, unsigned index, const char *name)
{
	const struct conf_entry *l = conf_find(section, list);
	struct conf_at at;

	RP_ASSERT(l && l->kind == CONF_LIST);
	at = conf_at_item(l, index, conf_item_find(l->item, name));
	RP_ASSERT(at.entry);
	return at;
}

static struct conf_place place_of(const struct rp_conf *conf, struct conf_at at)
{
	const struct conf_origin *o = conf_origin(conf, at);
	bool in_file = o->kind == CONF_FROM_FILE || o->line > 0;

	return (struct conf_place){in_file		       ? conf->memory->file
				   : o->kind == CONF_FROM_FLAG ? "flag"
							       : "",
		o->line, o->column};
}

/* A knob whose value did not fit has been spoken of: what follows from it is no news. */
__attribute__((format(printf, 4, 5))) static void say(const struct checker *c,
	enum rp_conf_severity severity, struct conf_at at, const char *format, ...)
{
	char path[128], text[512];
	va_list args;

	if (conf_origin(c->conf, at)->bad)
		return;
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	conf_path(at, path, sizeof(path));
	conf_say(c->report, severity, place_of(c->conf, at), path, "%s", text);
}

/* An address of either family: IPv4 as ::ffff:a.b.c.d, and its prefix counted likewise. */
struct address {
	uint8_t bytes[16];
	unsigned bits;
	bool six;
};

static struct address address_of(const uint8_t *bytes, bool six, unsigned bits)
{
	struct address a = {.six = six, .bits = six ? bits : 96 + bits};

	if (!six)
		memset(a.bytes + 10, 0xff, 2);
	memcpy(a.bytes + (six ? 0 : 12), bytes, six ? 16 : 4);
	return a;
}

/* The port's own ones; *count is how many of `max` there are. */
static void addresses_of(
	const struct rp_conf_port *p, struct address *out, unsigned max, unsigned *count)
{
	uint8_t bytes[16], bits;

	*count = 0;
	for (unsigned i = 0; i < p->ipv4.count && *count < max; i++)
		if (rp_conf_ip4net_parse(p->ipv4.items[i], bytes, &bits) == 0)
			out[(*count)++] = address_of(bytes, false, bits);
	for (unsigned i = 0; i < p->ipv6.count && *count < max; i++)
		if (rp_conf_ip6net_parse(p->ipv6.items[i], bytes, &bits) == 0)
			out[(*count)++] = address_of(bytes, true, bits);
}

static bool same_bits(const uint8_t *a, const uint8_t *b, unsigned bits)
{
	for (unsigned i = 0; i < bits; i++)
		if ((a[i / 8] ^ b[i / 8]) & (0x80 >> (i % 8)))
			return false;
	return true;
}

static bool is_link_local(const struct address *a)
{
	return a->six && a->bytes[0] == 0xfe && (a->bytes[1] & 0xc0) == 0x80;
}

/* Can a host have it? */
static bool is_unicast(const struct address *a)
{
	static const uint8_t zeros[8];
	uint8_t first = a->bytes[12];

	if (a->six)
		return a->bytes[0] != 0xff && memcmp(a->bytes, zeros, 8) != 0;
	return first != 0 && first != 127 && first < 224;
}

/* Is the neighbour in a network of the port, and not the port itself? */
static bool on_link(const struct rp_conf_port *p, const struct address *a)
{
	struct address own[RP_CONF_ADDRESSES_MAX];
	unsigned n;
	bool in = is_link_local(a) && p->ipv6.count > 0;

	addresses_of(p, own, RP_ARRAY_SIZE(own), &n);
	for (unsigned i = 0; i < n; i++) {
		if (own[i].six != a->six)
			continue;
		if (memcmp(own[i].bytes, a->bytes, 16) == 0)
			return false;
		in |= same_bits(own[i].bytes, a->bytes, own[i].bits);
	}
	return in && is_unicast(a);
}

static void check_gateways(const struct checker *c, unsigned i)
{
	const struct rp_conf_port *p = &c->conf->ports[i];
	struct conf_at at = at_item("", "ports", i, "gateway");
	unsigned seen[2] = {0, 0};

	for (unsigned k = 0; k < p->gateway.count; k++) {
		const char *text = p->gateway.items[k];
		uint8_t bytes[16];
		struct address a;
		bool six;

		if (rp_conf_ip_parse(text, bytes, &six) < 0)
			continue;
		a = address_of(bytes, six, 0);
		if (seen[six]++ == 1)
			say(c, RP_CONF_ERROR, at, "%s is a second one, expected one a family",
				text);
		if (!on_link(p, &a))
			say(c, RP_CONF_ERROR, at,
				"%s is not in the port's network, expected another host's address "
				"within %s",
				text, six ? "ipv6" : "ipv4");
	}
}

static void check_neighbours(const struct checker *c, unsigned i)
{
	const struct rp_conf_port *p = &c->conf->ports[i];
	struct conf_at at = at_item("", "ports", i, "neighbours");
	uint8_t seen[RP_CONF_NEIGHBOURS_MAX][16];

	if (p->neighbours.count > RP_CONF_NEIGHBOURS_MAX)
		say(c, RP_CONF_ERROR, at, "more than %u entries", RP_CONF_NEIGHBOURS_MAX);
	for (unsigned k = 0; k < p->neighbours.count && k < RP_CONF_NEIGHBOURS_MAX; k++) {
		const char *text = p->neighbours.items[k];
		uint8_t bytes[16], mac[6];
		struct address a = {0};
		bool six;

		if (rp_conf_neighbour_parse(text, bytes, &six, mac) == 0)
			a = address_of(bytes, six, 0);
		memcpy(seen[k], a.bytes, 16);
		if (!on_link(p, &a))
			say(c, RP_CONF_ERROR, at,
				"%s is not in the port's network, expected another host's address",
				text);
		if (mac[0] & 1)
			say(c, RP_CONF_ERROR, at, "%s is a group, expected one host's MAC", text);
		for (unsigned j = 0; j < k; j++)
			if (memcmp(seen[j], a.bytes, 16) == 0)
				say(c, RP_CONF_ERROR, at, "%s is there twice", text);
	}
}

/* The port's addresses, and whether they or another port's are the same. */
static void check_addresses(const struct checker *c, unsigned i)
{
	const struct rp_conf_port *p = &c->conf->ports[i];
	struct address own[RP_CONF_ADDRESSES_MAX + 1], others[RP_CONF_ADDRESSES_MAX];
	unsigned n, m;
	bool has_wide = false;

	addresses_of(p, own, RP_ARRAY_SIZE(own), &n);
	if (n > RP_CONF_ADDRESSES_MAX)
		say(c, RP_CONF_ERROR, at_item("", "ports", i, "ipv4"), "more than %u addresses",
			RP_CONF_ADDRESSES_MAX);
	for (unsigned k = 0; k < n; k++) {
		struct conf_at at = at_item("", "ports", i, own[k].six ? "ipv6" : "ipv4");

		has_wide |= !is_link_local(&own[k]);
		if (!is_unicast(&own[k]))
			say(c, RP_CONF_ERROR, at, "not an address that a host can have");
		for (unsigned j = 0; j < k; j++)
			if (memcmp(own[j].bytes, own[k].bytes, 16) == 0)
				say(c, RP_CONF_ERROR, at, "the same address twice");
		for (unsigned q = 0; q < i; q++) {
			addresses_of(&c->conf->ports[q], others, RP_ARRAY_SIZE(others), &m);
			for (unsigned j = 0; j < m && !is_link_local(&own[k]); j++) {
				if (memcmp(others[j].bytes, own[k].bytes, 16) != 0)
					continue;
				say(c, RP_CONF_ERROR, at, "the same address as ports[%u]", q);
				break;
			}
		}
	}
	if (n > 0 && p->ipv4.count == 0 && !has_wide)
		say(c, RP_CONF_ERROR, at_item("", "ports", i, "ipv6"),
			"link-local only, expected an address that peers can be told as well");
	if (p->ipv6.count > 0 && p->mtu < 1280)
		say(c, RP_CONF_ERROR, at_item("", "ports", i, "mtu"),
			"got %u, expected 1280 or more with ipv6 (RFC 8200)", p->mtu);
}

static void check_port(const struct checker *c, unsigned i)
{
	const struct rp_conf_port *p = &c->conf->ports[i];

	if (p->device[0] == '\0')
		say(c, RP_CONF_ERROR, at_item("", "ports", i, "device"),
			"missing, expected a PCI address, a vdev as net_memif0,role=server or a MAC");
	/* What was given and did not fit has been spoken of. */
	if (p->ipv4.count == 0 && p->ipv6.count == 0 &&
		!conf_origin(c->conf, at_item("", "ports", i, "ipv6"))->bad)
		say(c, RP_CONF_ERROR, at_item("", "ports", i, "ipv4"),
			"missing, expected ipv4 or ipv6 as 10.0.0.1/24");
	check_addresses(c, i);
	check_gateways(c, i);
	check_neighbours(c, i);
	if (p->impair[0])
		say(c, RP_CONF_WARNING, at_item("", "ports", i, "impair"),
			"this port loses or delays packets on purpose: %s", p->impair);
	for (unsigned j = 0; j < i; j++) {
		if (p->device[0] && strcmp(p->device, c->conf->ports[j].device) == 0) {
			say(c, RP_CONF_ERROR, at_item("", "ports", i, "device"),
				"the same as ports[%u].device, expected a port of its own", j);
			break;
		}
	}
}

/* Where messages of that queue go when they end; NULL: nowhere. */
static const char *letters_of(const struct rp_conf *conf, const char *queue)
{
	for (unsigned i = 0; i < conf->queues.policies_count; i++) {
		const struct rp_conf_policy *p = &conf->queues.policies[i];

		if (!rp_glob_match(p->match, queue, strlen(queue)))
			continue;
		return p->dead_letter[0] && strcmp(p->dead_letter, queue) != 0 ? p->dead_letter
									       : NULL;
	}
	return NULL;
}

/* A message must not go round for ever. */
static void check_letters(const struct checker *c, unsigned policy)
{
	const char *first = c->conf->queues.policies[policy].dead_letter, *at = first;

	for (unsigned i = 0; at && at[0] && i <= c->conf->queues.policies_count; i++) {
		at = letters_of(c->conf, at);
		if (!at || strcmp(at, first) != 0)
			continue;
		say(c, RP_CONF_ERROR, at_item("queues", "policies", policy, "dead_letter"),
			"dead letters of \"%.64s\" come back to it by other policies, expected an end",
			first);
		return;
	}
}

/* The policy that counts for a queue; NULL: none. */
static const struct rp_conf_policy *policy_of(const struct rp_conf *conf, const char *queue)
{
	for (unsigned i = 0; i < conf->queues.policies_count; i++)
		if (rp_glob_match(conf->queues.policies[i].match, queue, strlen(queue)))
			return &conf->queues.policies[i];
	return NULL;
}

/* What the message bus does not do, and letters that it would not get. */
static void check_backend(const struct checker *c, unsigned policy)
{
	const struct rp_conf_policy *p = &c->conf->queues.policies[policy], *to;
	const struct {
		const char *name;
		bool set;
	} fields[] = {
		{"bytes_max", p->bytes_max != 0},
		{"overflow", p->overflow != RP_CONF_OVERFLOW_REJECT},
		{"dead_letter", p->dead_letter[0] != '\0'},
		{"deliveries_max", p->deliveries_max != 0},
		{"ttl_ms", p->ttl_ms != 0},
		{"delay_ms", p->delay_ms != 0},
		{"dedup_s", p->dedup_s != 0},
		{"fail_fast", p->fail_fast},
	};

	for (size_t i = 0; i < RP_ARRAY_SIZE(fields); i++)
		if (p->backend == RP_CONF_BACKEND_STORE && fields[i].set)
			say(c, RP_CONF_ERROR, at_item("queues", "policies", policy, fields[i].name),
				"set with backend: store, whose queues have depth_max only");
	to = p->dead_letter[0] ? policy_of(c->conf, p->dead_letter) : NULL;
	if (to && to->backend == RP_CONF_BACKEND_STORE)
		say(c, RP_CONF_ERROR, at_item("queues", "policies", policy, "dead_letter"),
			"\"%.64s\" has backend: store, expected a queue of backend memory",
			p->dead_letter);
}

static void check_policies(const struct checker *c)
{
	const struct rp_conf *conf = c->conf;

	for (unsigned i = 0; i < conf->queues.policies_count; i++) {
		const struct rp_conf_policy *p = &conf->queues.policies[i];

		if (p->match[0] == '\0')
			say(c, RP_CONF_ERROR, at_item("queues", "policies", i, "match"),
				"missing, expected a pattern of queue names as jobs-*");
		if (strlen(p->dead_letter) > RP_NAME_BYTES_MAX || strchr(p->dead_letter, '/'))
			say(c, RP_CONF_ERROR, at_item("queues", "policies", i, "dead_letter"),
				"got \"%.64s\", expected a queue name: at most %u bytes, no /",
				p->dead_letter, RP_NAME_BYTES_MAX);
		check_letters(c, i);
		check_backend(c, i);
	}
}

static void check_routes(const struct checker *c)
{
	const struct rp_conf *conf = c->conf;

	for (unsigned i = 0; i < conf->tcp.routes_count; i++) {
		const struct rp_conf_route *r = &conf->tcp.routes[i];
		uint8_t address[16], bits;
		bool six;

		if (rp_conf_ipnet_parse(r->peers, address, &six, &bits) != 0)
			say(c, RP_CONF_ERROR, at_item("tcp", "routes", i, "peers"),
				"got \"%.64s\", expected address/prefix length as 10.0.0.0/8",
				r->peers);
	}
}

static void check_links(const struct checker *c)
{
	struct rp_conf_endpoint peers[RP_PEERS_MAX + 1];
	unsigned count = rp_conf_peers(c->conf, peers, RP_PEERS_MAX + 1);
	const struct rp_conf *conf = c->conf;

	if (count > conf->limits.peers)
		say(c, RP_CONF_ERROR, at_knob("", "initial_advertise_peer_urls"),
			"%u peers, expected at most limits.peers = %u", count, conf->limits.peers);
	else if (count * conf->links.per_peer > RP_PEERS_MAX)
		say(c, RP_CONF_ERROR, at_knob("links", "per_peer"),
			"%u links to each of %u peers are %u, expected at most %u",
			conf->links.per_peer, count, count * conf->links.per_peer, RP_PEERS_MAX);
	if (conf->links.dead_after_ms < 2 * conf->links.heartbeat_ms)
		say(c, RP_CONF_ERROR, at_knob("links", "dead_after_ms"),
			"%u, expected at least twice links.heartbeat_ms = %u",
			conf->links.dead_after_ms, conf->links.heartbeat_ms);
	if (conf->links.transport == RP_CONF_TRANSPORT_TCP && conf->ports_count == 0)
		say(c, RP_CONF_ERROR, at_knob("links", "transport"),
			"tcp needs a port, expected ports[] or transport ktcp");
	if (conf->links.previous_secret_file[0] && conf->links.secret_file[0] == '\0')
		say(c, RP_CONF_ERROR, at_knob("links", "previous_secret_file"),
			"without a secret_file, expected both or none");
	if (conf->links.tls && (!conf->tls.peer_cert_file[0] || !conf->tls.peer_key_file[0] ||
				       !conf->tls.peer_ca_file[0]))
		say(c, RP_CONF_ERROR, at_knob("links", "tls"),
			"on, expected tls.peer_cert_file, peer_key_file and peer_ca_file");
	if (count > 0 && conf->cluster[0] == '\0')
		say(c, RP_CONF_WARNING, at_knob("", "cluster"),
			"empty: this node peers with nobody, not even with the %u peers it is given",
			count);
}

static void check_tls(const struct checker *c)
{
	const struct rp_conf *conf = c->conf;
	const struct rp_conf_tls *t = &conf->tls;

	if ((t->cert_file[0] == '\0') != (t->key_file[0] == '\0'))
		say(c, RP_CONF_ERROR, at_knob("tls", t->cert_file[0] ? "key_file" : "cert_file"),
			"missing, expected cert_file and key_file together");
	if ((t->peer_cert_file[0] == '\0') != (t->peer_key_file[0] == '\0'))
		say(c, RP_CONF_ERROR,
			at_knob("tls", t->peer_cert_file[0] ? "peer_key_file" : "peer_cert_file"),
			"missing, expected peer_cert_file and peer_key_file together");
	if (t->client_cert_auth && t->ca_file[0] == '\0')
		say(c, RP_CONF_ERROR, at_knob("tls", "ca_file"),
			"missing, expected the CA by which client_cert_auth checks");
	for (unsigned i = 0; i < conf->listen_client_urls.count; i++) {
		struct rp_conf_endpoint e;

		if (rp_conf_endpoint_parse(conf->listen_client_urls.items[i], 2379, &e) == 0 &&
			e.tls && t->cert_file[0] == '\0')
			say(c, RP_CONF_ERROR, at_knob("", "listen_client_urls"),
				"%s needs a certificate, expected tls.cert_file and tls.key_file",
				conf->listen_client_urls.items[i]);
	}
}

void conf_check(struct rp_conf *conf, struct rp_conf_report *report)
{
	const struct checker c = {conf, report};
	uint8_t uuid[RP_UUID_BYTES];

	if (rp_conf_uuid_parse(conf->node, uuid) == 0 && rp_conf_uuid_id(uuid) == 0)
		say(&c, RP_CONF_ERROR, at_knob("", "node"),
			"its two halves are equal, which makes the id 0, expected another UUID");
	if (conf->node[0] == '\0')
		say(&c, RP_CONF_WARNING, at_knob("", "node"),
			"empty: a random id at each start, so records of this run will name a node that is gone after it");
	if (conf->data_dir[0] != '\0')
		say(&c, RP_CONF_WARNING, at_knob("", "data_dir"),
			"nothing is written there: keys are in memory, and gone when the node ends");
	if (conf->listen_client_urls.count == 0)
		say(&c, RP_CONF_ERROR, at_knob("", "listen_client_urls"),
			"empty, expected at least one host:port");
	for (unsigned i = 0; i < conf->ports_count; i++)
		check_port(&c, i);
	check_policies(&c);
	check_routes(&c);
	check_links(&c);
	check_tls(&c);
	if (rp_conf_message_bytes(conf) > conf->limits.queue_bytes)
		say(&c, RP_CONF_ERROR, at_knob("limits", "queue_bytes"),
			"%llu bytes, expected room for one message of %llu",
			(unsigned long long)conf->limits.queue_bytes,
			(unsigned long long)rp_conf_message_bytes(conf));
	if (conf->repl.tombstone_max_s < conf->repl.tombstone_s)
		say(&c, RP_CONF_ERROR, at_knob("repl", "tombstone_max_s"),
			"%u, expected at least repl.tombstone_s = %u", conf->repl.tombstone_max_s,
			conf->repl.tombstone_s);
}
