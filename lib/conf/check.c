/* SPDX-License-Identifier: Apache-2.0 */
#include "conf_priv.h"

#include <arpa/inet.h>
#include <stdarg.h>
#include <string.h>

#include <base/assert.h>

/* What no single value tells: values against each other. */

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

static bool same_network(const struct rp_conf_port *p)
{
	uint8_t own[16], gateway[16], bits;
	bool v6 = strchr(p->gateway, ':') != NULL;
	const char *net = v6 ? p->ipv6 : p->ipv4;

	if (inet_pton(v6 ? AF_INET6 : AF_INET, p->gateway, gateway) != 1)
		return false;
	/* A link-local next hop is on every link. */
	if (v6 && gateway[0] == 0xfe && (gateway[1] & 0xc0) == 0x80)
		return true;
	if ((v6 ? rp_conf_ip6net_parse(net, own, &bits) : rp_conf_ip4net_parse(net, own, &bits)) <
		0)
		return false;
	for (unsigned i = 0; i < bits; i++) {
		uint8_t bit = (uint8_t)(0x80 >> (i % 8));

		if ((own[i / 8] ^ gateway[i / 8]) & bit)
			return false;
	}
	return true;
}

static void check_port(const struct checker *c, unsigned i)
{
	const struct rp_conf_port *p = &c->conf->ports[i];

	if (p->device[0] == '\0')
		say(c, RP_CONF_ERROR, at_item("", "ports", i, "device"),
			"missing, expected a PCI address, a vdev as net_memif0,role=server or a MAC");
	if (p->ipv4[0] == '\0' && p->ipv6[0] == '\0')
		say(c, RP_CONF_ERROR, at_item("", "ports", i, "ipv4"),
			"missing, expected ipv4 or ipv6 as 10.0.0.1/24");
	if (p->gateway[0] && !same_network(p))
		say(c, RP_CONF_ERROR, at_item("", "ports", i, "gateway"),
			"%s is not in the port's network %s", p->gateway,
			strchr(p->gateway, ':') ? p->ipv6 : p->ipv4);
	if (p->impair[0])
		say(c, RP_CONF_WARNING, at_item("", "ports", i, "impair"),
			"this port loses or delays packets on purpose: %s", p->impair);
	for (unsigned j = 0; j < i; j++) {
		const struct rp_conf_port *q = &c->conf->ports[j];

		if (p->device[0] && strcmp(p->device, q->device) == 0) {
			say(c, RP_CONF_ERROR, at_item("", "ports", i, "device"),
				"the same as ports[%u].device, expected a port of its own", j);
			break;
		}
		if ((p->ipv4[0] && strcmp(p->ipv4, q->ipv4) == 0) ||
			(p->ipv6[0] && strcmp(p->ipv6, q->ipv6) == 0))
			say(c, RP_CONF_ERROR, at_item("", "ports", i, "ipv4"),
				"the same address as ports[%u]", j);
	}
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
	if (conf->listen_client_urls.count == 0)
		say(&c, RP_CONF_ERROR, at_knob("", "listen_client_urls"),
			"empty, expected at least one host:port");
	for (unsigned i = 0; i < conf->ports_count; i++)
		check_port(&c, i);
	check_policies(&c);
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
