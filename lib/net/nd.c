/* SPDX-License-Identifier: Apache-2.0 */
#include <net/net_priv.h>

/* Neighbour discovery of a host whose routes are configured: RFC 4861 7, RFC 4862 5.4. */

#define ND_ROUTER_SOLICITATION 133
#define ND_ROUTER_ADVERTISEMENT 134
#define ND_SOLICITATION 135
#define ND_ADVERTISEMENT 136
#define ND_REDIRECT 137
#define ND_BYTES 24 /* of a solicitation or an advertisement without options */
#define ND_OPTION_SOURCE 1
#define ND_OPTION_TARGET 2
#define ND_LINK_OPTION_BYTES 8
#define ND_SOLICITED 0x40
#define ND_OVERRIDE 0x20
#define ND_OPTIONS_BYTES_MAX 1024
#define ND_HOP_LIMIT 255

static const union rp_ip nd_all_nodes = {.b = {0xff, 2, [15] = 1}};

static void nd_link_option(struct rp_net *net, uint8_t *p, uint8_t kind)
{
	p[0] = kind;
	p[1] = 1;
	memcpy(p + 2, net->iface.mac, 6);
}

/* An address to ask from: the one to talk to the target with, else any. */
static const union rp_ip *nd_source(const struct rp_net *net, const union rp_ip *target)
{
	int source = rp_net_source(net, target);

	if (source >= 0)
		return &net->addrs[source].ip;
	for (uint32_t i = net->addr4_count; i < net->addr_count; i++)
		if (net->addrs[i].state == NET_ADDR_VALID)
			return &net->addrs[i].ip;
	return NULL;
}

void nd_solicit(struct rp_net *net, const union rp_ip *target, const uint8_t *mac)
{
	const union rp_ip *src = nd_source(net, target);
	union rp_ip group = net_solicited_node(target);
	struct rte_mbuf *m;
	uint8_t *p;

	if (!src)
		return; /* until an address of ours is no longer tentative */
	m = icmp6_new(net, src, mac ? target : &group, ND_BYTES + ND_LINK_OPTION_BYTES, &p);
	if (!m)
		return;
	p[0] = ND_SOLICITATION;
	memcpy(p + 8, target, 16);
	nd_link_option(net, p + ND_BYTES, ND_OPTION_SOURCE);
	net->counters->nd_solicits++;
	icmp6_send(net, m, mac);
}

void nd_probe(struct rp_net *net, const union rp_ip *ip)
{
	static const union rp_ip unspecified;
	union rp_ip group = net_solicited_node(ip);
	uint8_t *p;
	struct rte_mbuf *m = icmp6_new(net, &unspecified, &group, ND_BYTES, &p);

	if (!m)
		return;
	p[0] = ND_SOLICITATION;
	memcpy(p + 8, ip, 16);
	net->counters->nd_probes++;
	icmp6_send(net, m, NULL);
}

static void nd_advertise(struct rp_net *net, const union rp_ip *target, const union rp_ip *dst,
	const uint8_t *mac, uint8_t flags)
{
	uint8_t *p;
	struct rte_mbuf *m = icmp6_new(net, target, dst, ND_BYTES + ND_LINK_OPTION_BYTES, &p);

	if (!m)
		return;
	p[0] = ND_ADVERTISEMENT;
	p[4] = flags;
	memcpy(p + 8, target, 16);
	nd_link_option(net, p + ND_BYTES, ND_OPTION_TARGET);
	icmp6_send(net, m, mac);
}

void nd_announce(struct rp_net *net, const union rp_ip *ip)
{
	net->counters->nd_unsolicited++;
	nd_advertise(net, ip, &nd_all_nodes, NULL, ND_OVERRIDE);
}

/* A solicitation or an advertisement, taken apart. */
struct nd_message {
	union rp_ip target;
	uint8_t flags;
	bool has_mac;
	uint8_t mac[6]; /* by the option that belongs to the type */
};

/* False: malformed. What we do not know is skipped (RFC 4861 4.6). */
static bool nd_options(
	const uint8_t *p, unsigned length, uint8_t wanted, struct nd_message *message)
{
	while (length > 0) {
		unsigned n;

		if (length < 8 || p[1] == 0 || p[1] * 8u > length)
			return false;
		n = p[1] * 8u;
		if (p[0] == wanted && n == ND_LINK_OPTION_BYTES) {
			message->has_mac = true;
			memcpy(message->mac, p + 2, 6);
			if (p[2] & 1)
				return false;
		}
		p += n;
		length -= n;
	}
	return true;
}

/* RFC 4861 7.1.1, 7.1.2. */
static bool nd_parse(const struct icmp6_in *in, uint8_t type, struct nd_message *message)
{
	uint8_t b[ND_BYTES + ND_OPTIONS_BYTES_MAX];
	bool solicitation = type == ND_SOLICITATION, unspecified;

	*message = (struct nd_message){0};
	if (in->hop_limit != ND_HOP_LIMIT || in->length < ND_BYTES || in->length > sizeof(b))
		return false;
	rp_mbuf_copy_out(in->m, in->offset, b, in->length);
	message->flags = b[4];
	message->target = net_ip_from_bytes(b + 8);
	if (b[1] != 0 || message->target.q[0] == 0 || net_is_multicast6(&message->target) ||
		!nd_options(b + ND_BYTES, in->length - ND_BYTES,
			solicitation ? ND_OPTION_SOURCE : ND_OPTION_TARGET, message))
		return false;
	unspecified = in->src.q[0] == 0;
	if (solicitation && unspecified) {
		union rp_ip group = net_solicited_node(&message->target);

		return rp_ip_equal(&in->dst, &group) && !message->has_mac;
	}
	return !unspecified && !(!solicitation && in->local < 0 && message->flags & ND_SOLICITED);
}

static void nd_duplicate(struct rp_net *net, struct net_addr *a)
{
	a->state = NET_ADDR_DUPLICATE;
	a->due_ns = RP_NEVER;
	net->counters->nd_duplicates++;
}

/* RFC 4861 7.2.3, RFC 4862 5.4.3. */
static void nd_solicited(struct rp_net *net, const struct icmp6_in *in,
	const struct nd_message *message, uint64_t now_ns)
{
	int local = net_addr_find(net, &message->target);
	bool probe = in->src.q[0] == 0;
	struct net_addr *own = local < 0 ? NULL : &net->addrs[local];

	if (!own || own->state == NET_ADDR_DUPLICATE) {
		net->counters->drop_nd_target++;
		return;
	}
	if (own->state == NET_ADDR_TENTATIVE) {
		/* Somebody else probes for it as well; our own probe may come back. */
		if (probe && memcmp(in->mac, net->iface.mac, 6))
			nd_duplicate(net, own);
		else
			net->counters->drop_nd_target++;
		return;
	}
	net->counters->nd_answers++;
	if (probe) {
		nd_advertise(net, &own->ip, &nd_all_nodes, NULL, ND_OVERRIDE);
		return;
	}
	if (message->has_mac && net_on_link(net, &in->src)) {
		struct neigh_news news = {
			.ip = &in->src,
			.mac = message->mac,
			.override = true,
			.create = true,
		};

		neigh_learn(net, &news, now_ns);
	}
	nd_advertise(net, &own->ip, &in->src, message->has_mac ? message->mac : in->mac,
		ND_SOLICITED | ND_OVERRIDE);
}

/* RFC 4861 7.2.5, RFC 4862 5.4.4. */
static void nd_advertised(struct rp_net *net, const struct icmp6_in *in,
	const struct nd_message *message, uint64_t now_ns)
{
	int local = net_addr_find(net, &message->target);
	struct neigh_news news = {
		.ip = &message->target,
		.mac = message->has_mac ? message->mac : NULL,
		.solicited = message->flags & ND_SOLICITED,
		.override = message->flags & ND_OVERRIDE,
		.announced = message->flags & ND_OVERRIDE,
	};

	if (local >= 0) {
		/* Our own announcement may come back. */
		if (!memcmp(in->mac, net->iface.mac, 6))
			return;
		net->counters->address_conflicts++;
		if (net->addrs[local].state == NET_ADDR_TENTATIVE)
			nd_duplicate(net, &net->addrs[local]);
		return;
	}
	if (!net_on_link(net, &message->target)) {
		net->counters->drop_nd_target++;
		return;
	}
	neigh_learn(net, &news, now_ns);
}

void nd_input(struct rp_net *net, const struct icmp6_in *in, uint8_t type, uint64_t now_ns)
{
	struct rp_net_counters *c = net->counters;
	struct nd_message message;

	if (type == ND_ROUTER_SOLICITATION || type == ND_ROUTER_ADVERTISEMENT) {
		c->drop_nd_router++;
	} else if (type == ND_REDIRECT) {
		c->drop_nd_redirect++;
	} else if (!nd_parse(in, type, &message)) {
		c->drop_nd_malformed++;
	} else if (type == ND_SOLICITATION) {
		nd_solicited(net, in, &message, now_ns);
	} else {
		nd_advertised(net, in, &message, now_ns);
	}
}
