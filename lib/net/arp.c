/* SPDX-License-Identifier: Apache-2.0 */
#include <net/net_priv.h>

#define ARP_ETHERNET 1
#define ARP_REQUEST 1
#define ARP_REPLY 2

static const uint8_t arp_broadcast[6] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
static const uint8_t arp_nobody[6];

static void arp_send(struct rp_net *net, uint16_t operation, const uint8_t *eth_dst,
	const uint8_t *target_mac, const union rp_ip *sender_ip, uint32_t target_ip)
{
	struct rte_mbuf *m =
		net_alloc_control(net, (uint16_t)(NET_ETH_BYTES + sizeof(struct net_arp)));
	struct net_eth *eth;
	struct net_arp *arp;

	if (!m)
		return;
	eth = rte_pktmbuf_mtod(m, struct net_eth *);
	memcpy(eth->dst, eth_dst, 6);
	memcpy(eth->src, net->iface.mac, 6);
	eth->type = RTE_BE16(NET_ETHERTYPE_ARP);
	arp = (struct net_arp *)(eth + 1);
	*arp = (struct net_arp){
		.hardware = RTE_BE16(ARP_ETHERNET),
		.protocol = RTE_BE16(NET_ETHERTYPE_IP4),
		.hardware_length = 6,
		.protocol_length = 4,
		.operation = rte_cpu_to_be_16(operation),
	};
	memcpy(arp->sender_mac, net->iface.mac, 6);
	memcpy(arp->sender_ip, &sender_ip->b[12], 4);
	memcpy(arp->target_mac, target_mac, 6);
	memcpy(arp->target_ip, &target_ip, 4);
	net_tx_own(net, m);
}

void arp_request(struct rp_net *net, const union rp_ip *target, const uint8_t *mac)
{
	int source = rp_net_source(net, target);

	net->counters->arp_requests++;
	arp_send(net, ARP_REQUEST, mac ? mac : arp_broadcast, arp_nobody,
		&net->addrs[source < 0 ? 0 : source].ip, net_ip4_of(target));
}

void arp_announce(struct rp_net *net, const union rp_ip *ip)
{
	net->counters->arp_gratuitous++;
	arp_send(net, ARP_REQUEST, arp_broadcast, arp_nobody, ip, net_ip4_of(ip));
}

static bool arp_valid(const struct rp_net *net, const struct net_arp *a)
{
	uint16_t operation = rte_be_to_cpu_16(a->operation);

	return a->hardware == RTE_BE16(ARP_ETHERNET) &&
	       a->protocol == RTE_BE16(NET_ETHERTYPE_IP4) && a->hardware_length == 6 &&
	       a->protocol_length == 4 && (operation == ARP_REQUEST || operation == ARP_REPLY) &&
	       !(a->sender_mac[0] & 1) && memcmp(a->sender_mac, arp_nobody, 6);
}

void arp_input(struct rp_net *net, struct rte_mbuf *m, uint64_t now_ns)
{
	struct rp_net_counters *c = net->counters;
	struct net_arp a;
	union rp_ip sender, target;
	bool to_us, request;

	if (m->pkt_len < NET_ETH_BYTES + sizeof(a)) {
		c->drop_short++;
		rte_pktmbuf_free(m);
		return;
	}
	rp_mbuf_copy_out(m, NET_ETH_BYTES, &a, sizeof(a));
	rte_pktmbuf_free(m);
	sender = rp_ip_from4(a.sender_ip);
	target = rp_ip_from4(a.target_ip);
	to_us = net_addr_find(net, &target) >= 0;
	request = a.operation == RTE_BE16(ARP_REQUEST);
	if (!arp_valid(net, &a)) {
		c->drop_arp_malformed++;
		return;
	}
	c->rx_arp++;
	if (net_addr_find(net, &sender) >= 0) {
		/* Our own announcement that came back is no conflict; another's is. */
		if (memcmp(a.sender_mac, net->iface.mac, 6))
			c->address_conflicts++;
		return;
	}
	if (net_on_link(net, &sender)) {
		struct neigh_news news = {
			.ip = &sender,
			.mac = a.sender_mac,
			.solicited = to_us && !request,
			.override = true,
			.create = to_us && request,
			.announced = rp_ip_equal(&sender, &target),
		};

		neigh_learn(net, &news, now_ns);
	}
	if (to_us && request) {
		/* A probe (sender 0.0.0.0, RFC 5227) is answered as well: the address is in use. */
		c->arp_replies++;
		arp_send(net, ARP_REPLY, a.sender_mac, a.sender_mac, &target, net_ip4_of(&sender));
	}
}
