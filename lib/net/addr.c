/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include <net/net_priv.h>

/* RFC 5227 1.1 ANNOUNCE_INTERVAL and ANNOUNCE_NUM; within the bounds of RFC 4861 7.2.6. */
#define ADDR_ANNOUNCE_GAP_NS (2 * RP_NS_PER_S)
#define ADDR_ANNOUNCES 2
#define ADDR_DAD_NS (1 * RP_NS_PER_S) /* RFC 4862 5.1: one probe, RetransTimer */

static const char *const addr_state_names[] = {
	[NET_ADDR_VALID] = "valid",
	[NET_ADDR_TENTATIVE] = "tentative",
	[NET_ADDR_DUPLICATE] = "duplicate",
};

union rp_ip rp_ip_from4(const uint8_t addr[4])
{
	return net_ip_from32(net_load32(addr));
}

union rp_ip rp_ip_from6(const uint8_t addr[16])
{
	return net_ip_from_bytes(addr);
}

int rp_ip_from_endpoint(union rp_ip *ip, const struct rp_endpoint *e)
{
	if (e->family == 4) {
		*ip = rp_ip_from4(e->addr);
		return 0;
	}
	*ip = rp_ip_from6(e->addr);
	return e->family == 6 && ip->q[0] != 0 ? 0 : -EAFNOSUPPORT;
}

struct rp_endpoint rp_ip_to_endpoint(const union rp_ip *ip, uint16_t port)
{
	struct rp_endpoint e = {.family = rp_ip_is4(ip) ? 4 : 6, .port = port};

	if (e.family == 4)
		memcpy(e.addr, &ip->b[12], 4);
	else
		memcpy(e.addr, ip->b, 16);
	return e;
}

static void addr_mask(uint64_t mask[2], unsigned bits)
{
	mask[0] = bits == 0 ? 0 : rte_cpu_to_be_64(UINT64_MAX << (64 - RP_MIN(bits, 64u)));
	mask[1] = bits <= 64 ? 0 : rte_cpu_to_be_64(UINT64_MAX << (128 - bits));
}

/* Can a host have this address? */
static bool addr_ok(const struct rp_net_address *a)
{
	uint8_t first = a->ip.b[12];

	if (!rp_ip_is4(&a->ip))
		return !net_is_multicast6(&a->ip) && a->prefix_length <= 128;
	return a->ip.w[2] == RTE_BE32(0xffff) && first != 0 && first != 127 && first < 224 &&
	       a->prefix_length <= 32;
}

static void addr_add(struct rp_net *net, const struct rp_net_address *a)
{
	struct net_addr *n = &net->addrs[net->addr_count++];

	*n = (struct net_addr){.ip = a->ip, .prefix_length = a->prefix_length, .due_ns = RP_NEVER};
	addr_mask(n->mask, rp_ip_is4(&a->ip) ? 96u + a->prefix_length : a->prefix_length);
}

/* RFC 4291 appendix A. */
static struct rp_net_address addr_eui64(const uint8_t mac[6])
{
	struct rp_net_address a = {.prefix_length = 64};

	a.ip.b[0] = 0xfe;
	a.ip.b[1] = 0x80;
	memcpy(&a.ip.b[8], mac, 3);
	a.ip.b[8] ^= 2;
	a.ip.b[11] = 0xff;
	a.ip.b[12] = 0xfe;
	memcpy(&a.ip.b[13], mac + 3, 3);
	return a;
}

static bool addr_gateway_ok(const struct rp_net *net, const union rp_ip *gateway, bool is4)
{
	if (gateway->q[0] == 0 && gateway->q[1] == 0)
		return true;
	return rp_ip_is4(gateway) == is4 && net_on_link(net, gateway) &&
	       net_addr_find(net, gateway) < 0;
}

bool net_addrs_init(struct rp_net *net)
{
	static const union rp_ip none;
	bool link_local = false;
	unsigned n = 0;

	while (n < RP_NET_ADDRESSES_MAX && !rp_ip_equal(&net->iface.addresses[n].ip, &none))
		n++;
	for (unsigned six = 0; six < 2; six++) {
		for (unsigned i = 0; i < n; i++) {
			const struct rp_net_address *a = &net->iface.addresses[i];

			if (rp_ip_is4(&a->ip) != !six)
				continue;
			if (!addr_ok(a) || net_addr_find(net, &a->ip) >= 0)
				return false;
			link_local |= six && rp_ip_is_link_local(&a->ip);
			addr_add(net, a);
		}
		if (!six)
			net->addr4_count = net->addr_count;
	}
	if (net->addr_count > net->addr4_count && !link_local) {
		struct rp_net_address a = addr_eui64(net->iface.mac);

		addr_add(net, &a);
	}
	if (net->addr4_count > 0)
		net->addr = net_ip4_of(&net->addrs[0].ip);
	net->plain4 = net->addr4_count > 0 && net->iface.vlan == 0;
	return net->addr_count > 0 && addr_gateway_ok(net, &net->iface.gateway4, true) &&
	       addr_gateway_ok(net, &net->iface.gateway6, false);
}

static void addr_announce(struct rp_net *net, struct net_addr *a, uint64_t now_ns)
{
	if (rp_ip_is4(&a->ip))
		arp_announce(net, &a->ip);
	else
		nd_announce(net, &a->ip);
	a->announces--;
	a->due_ns = a->announces > 0 ? now_ns + ADDR_ANNOUNCE_GAP_NS : RP_NEVER;
}

void net_addrs_due(struct rp_net *net)
{
	net->front.addr_due_ns = net->mld_due_ns;
	for (uint32_t i = 0; i < net->addr_count; i++)
		net->front.addr_due_ns = RP_MIN(net->front.addr_due_ns, net->addrs[i].due_ns);
}

void net_addrs_start(struct rp_net *net, uint64_t now_ns)
{
	/* Before anybody asks for us or is asked: switches may look. */
	mld_start(net, now_ns);
	for (uint32_t i = net->addr4_count; net->config.dad && i < net->addr_count; i++) {
		net->addrs[i].state = NET_ADDR_TENTATIVE;
		net->addrs[i].due_ns = now_ns + ADDR_DAD_NS;
		nd_probe(net, &net->addrs[i].ip);
	}
	rp_net_announce(net, now_ns);
}

void rp_net_announce(struct rp_net *net, uint64_t now_ns)
{
	for (uint32_t i = 0; i < net->addr_count; i++) {
		if (net->addrs[i].state != NET_ADDR_VALID)
			continue;
		net->addrs[i].announces = ADDR_ANNOUNCES;
		addr_announce(net, &net->addrs[i], now_ns);
	}
	net_addrs_due(net);
}

void net_addrs_poll(struct rp_net *net, uint64_t now_ns)
{
	if (net->mld_due_ns <= now_ns)
		mld_poll(net, now_ns);
	for (uint32_t i = 0; i < net->addr_count; i++) {
		struct net_addr *a = &net->addrs[i];

		if (a->due_ns > now_ns)
			continue;
		if (a->state == NET_ADDR_TENTATIVE) {
			a->state = NET_ADDR_VALID;
			a->announces = ADDR_ANNOUNCES;
		}
		addr_announce(net, a, now_ns);
	}
	net_addrs_due(net);
}

int net_addr_find(const struct rp_net *net, const union rp_ip *ip)
{
	for (uint32_t i = 0; i < net->addr_count; i++)
		if (rp_ip_equal(&net->addrs[i].ip, ip))
			return (int)i;
	return -1;
}

union rp_ip net_solicited_node(const union rp_ip *ip)
{
	union rp_ip group = {.b = {0xff, 2, [11] = 1, [12] = 0xff}};

	memcpy(&group.b[13], &ip->b[13], 3);
	return group;
}

bool net_in_group(const struct rp_net *net, const union rp_ip *ip)
{
	static const union rp_ip all_nodes = {.b = {0xff, 2, [15] = 1}};

	if (rp_ip_equal(ip, &all_nodes))
		return net->addr_count > net->addr4_count;
	for (uint32_t i = net->addr4_count; i < net->addr_count; i++) {
		union rp_ip group = net_solicited_node(&net->addrs[i].ip);

		if (rp_ip_equal(ip, &group))
			return true;
	}
	return false;
}

/* Neither the network's nor the broadcast address, which a /31 and a /32 have not (RFC 3021). */
static bool addr_is_host4(const struct net_addr *a, const union rp_ip *ip)
{
	uint32_t mask = (uint32_t)(a->mask[1] >> 32), host = net_ip4_of(ip) & ~mask;

	return a->prefix_length >= 31 || (host != 0 && host != ~mask);
}

bool net_on_link(const struct rp_net *net, const union rp_ip *ip)
{
	bool is4 = rp_ip_is4(ip), in = false;
	uint32_t i = is4 ? 0 : net->addr4_count, end = is4 ? net->addr4_count : net->addr_count;

	if (!is4 && rp_ip_is_link_local(ip))
		return i < end;
	for (; i < end; i++) {
		const struct net_addr *a = &net->addrs[i];

		if (!net_in_prefix(a, ip) || a->state == NET_ADDR_DUPLICATE)
			continue;
		if (is4 && !addr_is_host4(a, ip))
			return false;
		in = true;
	}
	return in;
}

static unsigned addr_common_bits(const union rp_ip *a, const union rp_ip *b)
{
	uint64_t x = rte_be_to_cpu_64(a->q[0] ^ b->q[0]), y = rte_be_to_cpu_64(a->q[1] ^ b->q[1]);

	if (x)
		return (unsigned)__builtin_clzll(x);
	return y ? 64 + (unsigned)__builtin_clzll(y) : 128;
}

/* Worth of a source address towards `remote`; more is better, 0: it must not be used. */
static unsigned addr_score(
	const struct rp_net *net, const struct net_addr *a, const union rp_ip *remote)
{
	bool is4 = rp_ip_is4(remote);
	unsigned common = addr_common_bits(&a->ip, remote);

	if (a->state != NET_ADDR_VALID)
		return 0;
	/* RFC 6724 5 rule 2: of the same scope. */
	if (!is4 && rp_ip_is_link_local(&a->ip) != rp_ip_is_link_local(remote))
		return 0;
	if (net_in_prefix(a, remote))
		return 512 + common;
	if (is4)
		return net_in_prefix(a, &net->iface.gateway4) ? 2 : 1;
	return 1 + common;
}

int rp_net_source(const struct rp_net *net, const union rp_ip *remote)
{
	bool is4 = rp_ip_is4(remote);
	uint32_t i = is4 ? 0 : net->addr4_count, end = is4 ? net->addr4_count : net->addr_count;
	unsigned best = 0;
	int found = i < end ? -EADDRNOTAVAIL : -EAFNOSUPPORT;

	for (; i < end; i++) {
		unsigned score = addr_score(net, &net->addrs[i], remote);

		if (score > best) {
			best = score;
			found = (int)i;
		}
	}
	return found;
}

const union rp_ip *rp_net_local(const struct rp_net *net, uint32_t local)
{
	return &net->addrs[local].ip;
}

static bool addr_is_unicast(const union rp_ip *ip)
{
	uint8_t first = ip->b[12];

	if (!rp_ip_is4(ip))
		return !net_is_multicast6(ip);
	return ip->w[2] == RTE_BE32(0xffff) && first != 0 && first != 127 && first < 224;
}

/* In a prefix of ours, whether as a host or not. */
static bool addr_in_subnet(const struct rp_net *net, const union rp_ip *ip)
{
	for (uint32_t i = 0; i < net->addr_count; i++)
		if (net_in_prefix(&net->addrs[i], ip) &&
			rp_ip_is4(&net->addrs[i].ip) == rp_ip_is4(ip))
			return true;
	return false;
}

int net_next_hop(const struct rp_net *net, const union rp_ip *remote, union rp_ip *hop)
{
	const union rp_ip *gateway =
		rp_ip_is4(remote) ? &net->iface.gateway4 : &net->iface.gateway6;

	if (!addr_is_unicast(remote) || net_addr_find(net, remote) >= 0)
		return -EADDRNOTAVAIL;
	if (net_on_link(net, remote)) {
		*hop = *remote;
		return 0;
	}
	if (rp_ip_is4(remote) && addr_in_subnet(net, remote))
		return -EADDRNOTAVAIL;
	/* What is link-local is on no other link. */
	if ((gateway->q[0] == 0 && gateway->q[1] == 0) || rp_ip_is_link_local(remote))
		return -ENETUNREACH;
	*hop = *gateway;
	return 0;
}

enum rp_net_reach rp_net_reach(const struct rp_net *net, const union rp_ip *remote)
{
	union rp_ip hop;

	if (net_next_hop(net, remote, &hop) < 0)
		return RP_NET_UNREACHABLE;
	return rp_ip_equal(&hop, remote) ? RP_NET_ON_LINK : RP_NET_BY_GATEWAY;
}

void rp_net_address_foreach(const struct rp_net *net,
	void (*cb)(void *ctx, const struct rp_net_address_info *info), void *ctx)
{
	for (uint32_t i = 0; i < net->addr_count; i++) {
		struct rp_net_address_info info = {
			.ip = net->addrs[i].ip,
			.prefix_length = net->addrs[i].prefix_length,
			.state = addr_state_names[net->addrs[i].state],
		};

		cb(ctx, &info);
	}
}
