/* SPDX-License-Identifier: Apache-2.0 */
/* What the configuration says to the TCP stacks. It was checked: what is in it fits. */
#include <conf/conf.h>

#include "node_priv.h"

union rp_ip node_ip_of(const uint8_t *bytes, bool six)
{
	return six ? rp_ip_from6(bytes) : rp_ip_from4(bytes);
}

static void interface_addresses(const struct rp_conf_port *p, struct rp_net_interface *i)
{
	unsigned n = 0;
	uint8_t bytes[16];
	bool six;

	for (unsigned k = 0; k < p->ipv4.count && n < RP_NET_ADDRESSES_MAX; k++, n++) {
		rp_conf_ip4net_parse(p->ipv4.items[k], bytes, &i->addresses[n].prefix_length);
		i->addresses[n].ip = rp_ip_from4(bytes);
	}
	for (unsigned k = 0; k < p->ipv6.count && n < RP_NET_ADDRESSES_MAX; k++, n++) {
		rp_conf_ip6net_parse(p->ipv6.items[k], bytes, &i->addresses[n].prefix_length);
		i->addresses[n].ip = rp_ip_from6(bytes);
	}
	for (unsigned k = 0; k < p->gateway.count; k++) {
		rp_conf_ip_parse(p->gateway.items[k], bytes, &six);
		*(six ? &i->gateway6 : &i->gateway4) = node_ip_of(bytes, six);
	}
	i->vlan = (uint16_t)p->vlan;
	i->ttl = (uint8_t)p->ttl;
	i->dscp = (uint8_t)p->dscp;
}

/* How appliances talk to each other: their loops answer within a millisecond. */
static struct rp_conn_options link_options(const struct rp_conf *c)
{
	static const enum rp_congestion congestion[] = {
		[RP_CONF_CONGESTION_DCTCP] = RP_CONGESTION_DCTCP,
		[RP_CONF_CONGESTION_CUBIC] = RP_CONGESTION_CUBIC,
		[RP_CONF_CONGESTION_RENO] = RP_CONGESTION_RENO,
	};

	return (struct rp_conn_options){
		.congestion = congestion[c->links.congestion],
		.ecn = c->links.ecn ? RP_ECN_INSIST : RP_ECN_OFF,
		.rto_min_ns = c->links.rto_min_ms * RP_NS_PER_MS,
		.ack_delay_max_ns = c->links.ack_delay_us * RP_NS_PER_US,
		.mtu = (uint16_t)c->links.mtu,
	};
}

/* What a route says, else what holds for links. */
static struct rp_conn_options route_options(const struct rp_conf *c, const struct rp_conf_route *r)
{
	static const enum rp_congestion congestion[] = {
		[RP_CONF_ROUTE_CONGESTION_AUTO] = RP_CONGESTION_DEFAULT,
		[RP_CONF_ROUTE_CONGESTION_DCTCP] = RP_CONGESTION_DCTCP,
		[RP_CONF_ROUTE_CONGESTION_CUBIC] = RP_CONGESTION_CUBIC,
		[RP_CONF_ROUTE_CONGESTION_RENO] = RP_CONGESTION_RENO,
	};
	static const enum rp_ecn ecn[] = {
		[RP_CONF_ROUTE_ECN_AUTO] = RP_ECN_DEFAULT,
		[RP_CONF_ROUTE_ECN_OFF] = RP_ECN_OFF,
		[RP_CONF_ROUTE_ECN_ACCEPT] = RP_ECN_ACCEPT,
		[RP_CONF_ROUTE_ECN_ASK] = RP_ECN_ASK,
		[RP_CONF_ROUTE_ECN_INSIST] = RP_ECN_INSIST,
	};
	static const enum rp_ack_profile ack[] = {
		[RP_CONF_ACK_AUTO] = RP_ACK_DEFAULT,
		[RP_CONF_ACK_DELAYED] = RP_ACK_DELAYED,
		[RP_CONF_ACK_QUICK] = RP_ACK_QUICK,
		[RP_CONF_ACK_SECOND] = RP_ACK_SECOND,
	};
	struct rp_conn_options o = link_options(c);

	if (r->congestion != RP_CONF_ROUTE_CONGESTION_AUTO)
		o.congestion = congestion[r->congestion];
	if (r->ecn != RP_CONF_ROUTE_ECN_AUTO)
		o.ecn = ecn[r->ecn];
	if (r->rto_min_ms != 0)
		o.rto_min_ns = r->rto_min_ms * RP_NS_PER_MS;
	if (r->ack_delay_us != 0)
		o.ack_delay_max_ns = r->ack_delay_us * RP_NS_PER_US;
	if (r->mtu != 0)
		o.mtu = (uint16_t)r->mtu;
	o.ack_profile = ack[r->ack_profile];
	return o;
}

/* One for all peers, and those that are configured, whose prefixes are longer. */
static void tcp_routes(const struct rp_conf *c, struct rp_tcp_config *t)
{
	t->routes[0] = (struct rp_tcp_route){.options = link_options(c)};
	for (unsigned i = 0; i < c->tcp.routes_count && i + 1 < RP_TCP_ROUTES_MAX; i++) {
		const struct rp_conf_route *r = &c->tcp.routes[i];
		uint8_t bytes[16], bits = 0;
		bool six = false;

		rp_conf_ipnet_parse(r->peers, bytes, &six, &bits);
		t->routes[i + 1] = (struct rp_tcp_route){
			.prefix = node_ip_of(bytes, six),
			.prefix_length = (uint8_t)(six ? bits : 96 + bits),
			.options = route_options(c, r),
		};
		t->route_count = i + 2;
	}
	t->route_count = t->route_count ? t->route_count : 1;
}

void node_tcp_config(const struct rp_conf *conf, uint32_t port, struct rp_tcp_config *t)
{
	static const enum rp_syn_cookies cookies[] = {
		[RP_CONF_COOKIES_AUTO] = RP_SYN_COOKIES_AUTO,
		[RP_CONF_COOKIES_OFF] = RP_SYN_COOKIES_OFF,
		[RP_CONF_COOKIES_ALWAYS] = RP_SYN_COOKIES_ALWAYS,
	};

	t->syn_cookies = cookies[conf->tcp.syn_cookies];
	t->pmtu_blackhole = conf->tcp.pmtu_blackhole;
	tcp_routes(conf, t);
	interface_addresses(&conf->ports[port], &t->net.iface);
}
