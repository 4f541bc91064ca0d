/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Why there can be no link to a peer, as far as its record tells. A dial that is refused says so
 * itself; but ports that do not match never carry a dial, and the two nodes know of each other by
 * gRPC all the same.
 */

#include <stdio.h>
#include <string.h>

#include <base/log.h>
#include <ctl/ctl_priv.h>

static bool bits_equal(const uint8_t *a, const uint8_t *b, unsigned bits)
{
	unsigned whole = bits / 8, rest = bits % 8;

	return memcmp(a, b, whole) == 0 && (rest == 0 || (a[whole] ^ b[whole]) >> (8 - rest) == 0);
}

static bool reaches(const struct rp_conf_list *nets, const struct rp_endpoint *e)
{
	for (unsigned i = 0; i < nets->count; i++) {
		uint8_t address[16], bits;
		bool six;

		if (rp_conf_ipnet_parse(nets->items[i], address, &six, &bits) == 0 &&
			six == (e->family == 6) && bits_equal(address, e->addr, bits))
			return true;
	}
	return false;
}

/* A memif port has a link only where both ends have as many rings, and its driver does not say. */
static bool rings_differ(
	struct rp_ctl *ctl, const struct rp_node_record *r, char *text, size_t text_size)
{
	for (uint32_t i = 0; r->tcp.family != 0 && r->rings != 0 && i < ctl->config.port_count;
		i++) {
		const struct rp_conf_port *conf = &ctl->conf->ports[i];
		struct rp_port_info info;

		rp_port_info(ctl->config.ports[i], &info);
		if (strcmp(info.driver, "net_memif") != 0 || info.link_up ||
			info.queues == r->rings ||
			!(reaches(&conf->ipv4, &r->tcp) || reaches(&conf->ipv6, &r->tcp)))
			continue;
		snprintf(text, text_size,
			"ports[%u]: memif wants as many rings at both ends: %u here, %u there", i,
			info.queues, r->rings);
		return true;
	}
	return false;
}

void ctl_obstacle(struct rp_ctl *ctl, uint64_t node, char *text, size_t text_size)
{
	struct rp_node_record r;

	text[0] = '\0';
	if (node == 0 || !rp_control_node_get(ctl->control, node, &r))
		return;
	if (rings_differ(ctl, &r, text, text_size))
		return;
	/* A node without links says no k, or none that counts. */
	if ((r.tcp.family != 0 || r.ktcp.family != 0) && r.per_peer != 0 &&
		r.per_peer != ctl->config.self.per_peer)
		snprintf(text, text_size, "links.per_peer: %u here, %u there",
			ctl->config.self.per_peer, r.per_peer);
}

void ctl_obstacles_tell(struct rp_ctl *ctl)
{
	for (uint32_t i = 0; i < RP_PEERS_MAX; i++) {
		struct ctl_peer *p = ctl->peers[i];
		char text[sizeof(p->obstacle)];

		if (!p)
			continue;
		ctl_obstacle(ctl, p->node, text, sizeof(text));
		if (strcmp(text, p->obstacle) == 0)
			continue;
		snprintf(p->obstacle, sizeof(p->obstacle), "%s", text);
		if (text[0] != '\0')
			RP_LOG(RP_LOG_LINK, RP_LOG_WARNING,
				"no link to node %llu: %s; give both the same links.per_peer and "
				"shards, or the same ports[].rings",
				(unsigned long long)p->node, text);
	}
}
