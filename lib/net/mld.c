/* SPDX-License-Identifier: Apache-2.0 */
#include <net/net_priv.h>

/*
 * Which groups we are in, for switches that look (RFC 3810, the part of a host that only listens):
 * a report of each solicited-node group at the start, and again when a querier asks.
 */

#define MLD_REPORT 143
#define MLD_ROBUSTNESS 2
#define MLD_UNSOLICITED_NS (1 * RP_NS_PER_S) /* 9.11 */
#define MLD_IS_EXCLUDE 2		     /* record types, 5.2.12 */
#define MLD_TO_EXCLUDE 4
#define MLD_QUERY_BYTES 24 /* of MLDv1; that of MLDv2 is longer */
#define MLD_DELAY_MS_MAX 10000

/* One record a report: it fits in every control mbuf. */
static void mld_report(struct rp_net *net, const union rp_ip *group, uint8_t type)
{
	static const union rp_ip routers = {.b = {0xff, 2, [15] = 0x16}}, unspecified;
	/* Router alert (RFC 2711), and padding. */
	static const uint8_t alert[8] = {NET_PROTO_ICMP6, 0, 5, 2, 0, 0, 1, 0};
	const union rp_ip *src = &unspecified;
	struct net_ip6 *ip;
	struct rte_mbuf *m;
	uint8_t *p;

	for (uint32_t i = net->addr4_count; i < net->addr_count; i++)
		if (rp_ip_is_link_local(&net->addrs[i].ip) && net->addrs[i].state == NET_ADDR_VALID)
			src = &net->addrs[i].ip;
	m = icmp6_new(net, src, &routers, 8 + 28, &p);
	if (!m)
		return;
	ip = rte_pktmbuf_mtod_offset(m, struct net_ip6 *, NET_ETH_BYTES);
	ip->next_header = 0;
	ip->hop_limit = 1;
	memcpy(p, alert, sizeof(alert));
	p += sizeof(alert);
	p[0] = MLD_REPORT;
	p[7] = 1; /* records */
	p[8] = type;
	memcpy(p + 12, group, 16);
	net->counters->mld_reports++;
	icmp6_send(net, m, NULL);
}

/* The group of each address, once. */
static void mld_report_all(struct rp_net *net, uint8_t type)
{
	for (uint32_t i = net->addr4_count; i < net->addr_count; i++) {
		union rp_ip group = net_solicited_node(&net->addrs[i].ip);
		bool seen = false;

		for (uint32_t k = net->addr4_count; k < i; k++) {
			union rp_ip other = net_solicited_node(&net->addrs[k].ip);

			seen |= rp_ip_equal(&group, &other);
		}
		if (!seen)
			mld_report(net, &group, type);
	}
}

void mld_start(struct rp_net *net, uint64_t now_ns)
{
	net->mld_due_ns = RP_NEVER;
	if (!net->config.mld || net->addr_count == net->addr4_count)
		return;
	net->mld_unsolicited = MLD_ROBUSTNESS;
	mld_poll(net, now_ns);
}

void mld_poll(struct rp_net *net, uint64_t now_ns)
{
	bool unsolicited = net->mld_unsolicited > 0;

	mld_report_all(net, unsolicited ? MLD_TO_EXCLUDE : MLD_IS_EXCLUDE);
	if (unsolicited)
		net->mld_unsolicited--;
	net->mld_due_ns = net->mld_unsolicited > 0
				  ? now_ns + 1 + rp_rand_below(&net->rand, MLD_UNSOLICITED_NS)
				  : RP_NEVER;
}

void mld_query(struct rp_net *net, const struct icmp6_in *in, uint64_t now_ns)
{
	uint8_t b[MLD_QUERY_BYTES];
	uint64_t ms;

	/* 5.1.14, 6.2: of somebody on this link. */
	if (in->hop_limit != 1 || !rp_ip_is_link_local(&in->src) || in->length < sizeof(b) ||
		!net->config.mld) {
		net->counters->drop_icmp_type++;
		return;
	}
	rp_mbuf_copy_out(in->m, in->offset, b, sizeof(b));
	ms = (uint64_t)b[4] << 8 | b[5];
	if (ms >= 32768) /* 5.1.3: a floating point number */
		ms = ((ms & 0xfff) | 0x1000) << ((ms >> 12 & 7) + 3);
	ms = RP_MIN(ms, (uint64_t)MLD_DELAY_MS_MAX);
	net->counters->mld_queries++;
	net->mld_due_ns =
		RP_MIN(net->mld_due_ns, now_ns + rp_rand_below(&net->rand, ms * RP_NS_PER_MS + 1));
	net_addrs_due(net);
}
