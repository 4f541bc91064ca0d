/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Offloads: what a device is asked to do, what it refuses, and whether it does what it promised.
 * All of it has software of the same result, here, in lib/net or in lib/tcp; what a device should
 * do by the configuration and its driver file, and does not, is counted.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_ip.h>
#include <rte_tcp.h>

#include <base/assert.h>
#include <base/log.h>

#include "port_priv.h"

/* Writes that a table of RSS takes at once. */
#define RETA_GROUPS_MAX (4096 / RTE_ETH_RETA_GROUP_SIZE)

static void refuse(struct rp_port *p, _Atomic uint64_t *counter, const char *what)
{
	atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
	RP_LOG(RP_LOG_PORT, RP_LOG_INFO, "%s: %s", p->device.name, what);
}

static int negotiate_checksums(struct rp_port *p, const struct rte_eth_dev_info *info,
	struct port_negotiated *n, char *error, size_t error_size)
{
	const struct rp_port_config *c = &p->config;
	bool by_device = c->checksum == RP_PORT_CHECKSUM_HW ||
			 (c->checksum == RP_PORT_CHECKSUM_AUTO && p->driver.checksum_hw);
	uint64_t *tx = &n->conf.txmode.offloads, *rx = &n->conf.rxmode.offloads;

	if (!by_device)
		return 0;
	if (info->tx_offload_capa & RTE_ETH_TX_OFFLOAD_TCP_CKSUM) {
		*tx |= RTE_ETH_TX_OFFLOAD_TCP_CKSUM;
		n->flags |= RP_PORT_TX_TCP_CKSUM;
		if (info->tx_offload_capa & RTE_ETH_TX_OFFLOAD_IPV4_CKSUM) {
			*tx |= RTE_ETH_TX_OFFLOAD_IPV4_CKSUM;
			n->flags |= RP_PORT_TX_IPV4_CKSUM;
		}
	} else if (c->checksum == RP_PORT_CHECKSUM_HW) {
		return port_fail(error, error_size, -ENOTSUP,
			"port %s: the device (%s) makes no TCP checksums: set checksum: auto or sw",
			p->device.name, info->driver_name);
	} else {
		refuse(p, &p->counters.refused_tx_checksum,
			"the device makes no TCP checksums: software does");
	}
	if (info->rx_offload_capa & RTE_ETH_RX_OFFLOAD_TCP_CKSUM) {
		*rx |= info->rx_offload_capa &
		       (RTE_ETH_RX_OFFLOAD_TCP_CKSUM | RTE_ETH_RX_OFFLOAD_IPV4_CKSUM);
		n->flags |= RP_PORT_RX_CKSUM;
	} else {
		refuse(p, &p->counters.refused_rx_checksum,
			"the device checks no TCP checksums: software does");
	}
	/* A NIC without the pseudo-header's sum, or with one of its own, is put right in prepare.
	 */
	n->prepare = (n->flags & RP_PORT_TX_TCP_CKSUM) != 0;
	return 0;
}

static void negotiate_chains(
	struct rp_port *p, const struct rte_eth_dev_info *info, struct port_negotiated *n)
{
	if (p->driver.chains && (info->tx_offload_capa & RTE_ETH_TX_OFFLOAD_MULTI_SEGS)) {
		n->conf.txmode.offloads |= RTE_ETH_TX_OFFLOAD_MULTI_SEGS;
		n->flags |= RP_PORT_TX_CHAINS;
	} else if (p->driver.chains) {
		refuse(p, &p->counters.refused_tx_chains,
			"the device takes no chains: they are copied");
	}
	/* Buffers hold a frame of the MTU; only one beyond it comes as a chain. */
	if (info->rx_offload_capa & RTE_ETH_RX_OFFLOAD_SCATTER) {
		n->conf.rxmode.offloads |= RTE_ETH_RX_OFFLOAD_SCATTER;
		n->flags |= RP_PORT_RX_CHAINS;
	} else {
		refuse(p, &p->counters.refused_rx_chains, "the device receives no chains");
	}
}

static void negotiate_tso(
	struct rp_port *p, const struct rte_eth_dev_info *info, struct port_negotiated *n)
{
	enum rp_port_choice want = p->config.tso;
	const uint32_t needs = RP_PORT_TX_TCP_CKSUM | RP_PORT_TX_CHAINS;

	if (want == RP_PORT_CHOICE_OFF || (want == RP_PORT_CHOICE_AUTO && !p->driver.tso))
		return;
	/* A device cuts only what it may sum: to want the one without the other is no fault of it.
	 */
	if (want == RP_PORT_CHOICE_AUTO && !(n->flags & RP_PORT_TX_TCP_CKSUM))
		return;
	if (p->driver.tso && (n->flags & needs) == needs &&
		(info->tx_offload_capa & RTE_ETH_TX_OFFLOAD_TCP_TSO)) {
		n->conf.txmode.offloads |= RTE_ETH_TX_OFFLOAD_TCP_TSO;
		n->flags |= RP_PORT_TX_TSO;
		n->tso = true;
		return;
	}
	refuse(p, &p->counters.refused_tso, "the device does not cut super-segments");
	if (want == RP_PORT_CHOICE_ON)
		n->flags |= RP_PORT_TX_TSO | RP_PORT_TX_GSO;
}

/* Why the device cannot spread flows as the shards expect it; NULL: it can. */
static const char *rss_fault(const struct rte_eth_dev_info *info)
{
	if (!(info->flow_type_rss_offloads & RTE_ETH_RSS_NONFRAG_IPV4_TCP))
		return "the device does not spread TCP over its queues";
	if (info->reta_size == 0 || (info->reta_size & (info->reta_size - 1)) != 0 ||
		info->reta_size > RETA_GROUPS_MAX * RTE_ETH_RETA_GROUP_SIZE)
		return "the device has no table of RSS that could be used";
	if (info->hash_key_size != 0 &&
		(info->hash_key_size < RP_PORT_RSS_KEY_BYTES || info->hash_key_size > 64))
		return "the device has a key of RSS of another length";
	return NULL;
}

/* What is beyond the bytes that count may be anything. */
static void fill_key(const struct rp_port *p, uint8_t key[64])
{
	for (unsigned i = 0; i < 64; i++)
		key[i] = p->rss_key[i % RP_PORT_RSS_KEY_BYTES];
}

static int negotiate_rss(struct rp_port *p, const struct rte_eth_dev_info *info,
	struct port_negotiated *n, char *error, size_t error_size)
{
	const char *fault = rss_fault(info);
	struct rte_eth_rss_conf *rss = &n->conf.rx_adv_conf.rss_conf;

	p->rss_table_size = 0;
	if (p->queue_count < 2 || p->config.rss == RP_PORT_CHOICE_OFF || !p->has_rss_key)
		return 0;
	if (fault && p->config.rss == RP_PORT_CHOICE_ON)
		return port_fail(error, error_size, -ENOTSUP, "port %s: %s: set rss: auto or off",
			p->device.name, fault);
	if (fault) {
		refuse(p, &p->counters.refused_rss, fault);
		return 0;
	}
	n->conf.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
	p->rss_key_size =
		info->hash_key_size ? info->hash_key_size : (uint8_t)RP_PORT_RSS_KEY_BYTES;
	p->rss_types = info->flow_type_rss_offloads & RTE_ETH_RSS_TCP;
	fill_key(p, n->rss_key);
	*rss = (struct rte_eth_rss_conf){
		.rss_key = n->rss_key, .rss_key_len = p->rss_key_size, .rss_hf = p->rss_types};
	if (info->rx_offload_capa & RTE_ETH_RX_OFFLOAD_RSS_HASH)
		n->conf.rxmode.offloads |= RTE_ETH_RX_OFFLOAD_RSS_HASH;
	p->rss_table_size = info->reta_size;
	return 0;
}

/* As many queues as the device has; lcores without one use another's. -ENOTSUP: fewer than before.
 */
static int fit_queues(struct rp_port *p, const struct rte_eth_dev_info *info)
{
	uint16_t most = RP_MIN(info->max_rx_queues, info->max_tx_queues);

	if (p->queue_count <= most)
		return 0;
	if (p->seen_up || most == 0)
		return -ENOTSUP;
	refuse(p, &p->counters.refused_queues, "the device has fewer queue pairs than shards want");
	p->queue_count = most;
	return 0;
}

/* Never MBUF_FAST_FREE: it wants one reference a mbuf, and a retransmit queue holds a second. */
int port_negotiate(struct rp_port *p, const struct rte_eth_dev_info *info,
	struct port_negotiated *n, char *error, size_t error_size)
{
	int rc;

	*n = (struct port_negotiated){0};
	if (fit_queues(p, info) < 0)
		return port_fail(error, error_size, -ENOTSUP,
			"port %s: the device came back with %u queue pairs for receiving and %u for "
			"sending, and had %u",
			p->device.name, info->max_rx_queues, info->max_tx_queues, p->queue_count);
	if (info->max_mtu > 0 && p->mtu > info->max_mtu)
		return port_fail(error, error_size, -ENOTSUP,
			"port %s: mtu %u wanted, the device has %u at most", p->device.name, p->mtu,
			info->max_mtu);
	rc = negotiate_checksums(p, info, n, error, error_size);
	if (rc < 0)
		return rc;
	negotiate_chains(p, info, n);
	negotiate_tso(p, info, n);
	rc = negotiate_rss(p, info, n, error, error_size);
	if (rc < 0)
		return rc;
	if (p->driver.isolated)
		n->flags |= RP_PORT_ISOLATED;
	n->conf.rxmode.mtu = p->mtu;
	return 0;
}

/* ---- RSS ---- */

static uint16_t rss_queue(const struct rp_port *p, uint32_t entry)
{
	uint32_t spread = p->config.spread ? p->config.spread : p->queue_count;

	return (uint16_t)(entry % RP_PORT_RSS_TABLE_MAX % spread % p->queue_count);
}

static bool rss_reads_back(const struct rp_port *p)
{
	struct rte_eth_rss_reta_entry64 reta[RETA_GROUPS_MAX];
	uint8_t key[64] = {0};
	struct rte_eth_rss_conf conf = {.rss_key = key, .rss_key_len = sizeof(key)};

	memset(reta, 0, sizeof(reta));
	for (uint32_t i = 0; i < p->rss_table_size; i++)
		reta[i / RTE_ETH_RETA_GROUP_SIZE].mask |= 1ull << i % RTE_ETH_RETA_GROUP_SIZE;
	if (rte_eth_dev_rss_reta_query(p->ethdev_id, reta, p->rss_table_size) != 0 ||
		rte_eth_dev_rss_hash_conf_get(p->ethdev_id, &conf) != 0)
		return false;
	for (uint32_t i = 0; i < p->rss_table_size; i++)
		if (reta[i / RTE_ETH_RETA_GROUP_SIZE].reta[i % RTE_ETH_RETA_GROUP_SIZE] !=
			rss_queue(p, i))
			return false;
	return memcmp(key, p->rss_key, RP_PORT_RSS_KEY_BYTES) == 0;
}

int port_rss_program(struct rp_port *p, char *error, size_t error_size)
{
	struct rte_eth_rss_reta_entry64 reta[RETA_GROUPS_MAX];
	uint8_t key[64];
	struct rte_eth_rss_conf hash = {
		.rss_key = key, .rss_key_len = p->rss_key_size, .rss_hf = p->rss_types};
	int rc;

	p->flags &= ~(uint32_t)RP_PORT_RSS;
	if (p->rss_table_size == 0)
		return 0;
	fill_key(p, key);
	memset(reta, 0, sizeof(reta));
	for (uint32_t i = 0; i < p->rss_table_size; i++) {
		struct rte_eth_rss_reta_entry64 *g = &reta[i / RTE_ETH_RETA_GROUP_SIZE];

		g->mask |= 1ull << i % RTE_ETH_RETA_GROUP_SIZE;
		g->reta[i % RTE_ETH_RETA_GROUP_SIZE] = rss_queue(p, i);
	}
	/* Not every driver takes the key of the configuration: what it has is read back. */
	rte_eth_dev_rss_hash_update(p->ethdev_id, &hash);
	rc = rte_eth_dev_rss_reta_update(p->ethdev_id, reta, p->rss_table_size);
	if (rc == 0 && rss_reads_back(p)) {
		p->flags |= RP_PORT_RSS;
		return 0;
	}
	if (p->config.rss == RP_PORT_CHOICE_ON)
		return port_fail(error, error_size, rc < 0 ? rc : -ENOTSUP,
			"port %s: key or table of RSS cannot be set and read back: set rss: auto "
			"or off",
			p->device.name);
	refuse(p, &p->counters.refused_rss_table,
		"key or table of RSS reads back otherwise: lcores hand over what is not theirs");
	return 0;
}

/* ---- does the device do what it promised? ---- */

/* A segment of 100 bytes with its checksums left to the device; IPv6 where `six`. */
static struct rte_mbuf *sample(struct rte_mempool *pool, bool six, uint32_t flags, bool super)
{
	struct rte_mbuf *m = rte_pktmbuf_alloc(pool);
	uint16_t l3 = six ? sizeof(struct rte_ipv6_hdr) : sizeof(struct rte_ipv4_hdr);
	uint16_t length = (uint16_t)(sizeof(struct rte_ether_hdr) + l3 +
				     sizeof(struct rte_tcp_hdr) + (super ? 1200 : 100));
	uint8_t *p = m ? (uint8_t *)rte_pktmbuf_append(m, length) : NULL;
	struct rte_tcp_hdr *tcp;

	if (!p) {
		rte_pktmbuf_free(m);
		return NULL;
	}
	memset(p, 0, length);
	m->l2_len = sizeof(struct rte_ether_hdr);
	m->l3_len = l3;
	m->l4_len = sizeof(struct rte_tcp_hdr);
	m->ol_flags |= RTE_MBUF_F_TX_TCP_CKSUM | (six ? RTE_MBUF_F_TX_IPV6 : RTE_MBUF_F_TX_IPV4);
	if (!six && flags & RP_PORT_TX_IPV4_CKSUM)
		m->ol_flags |= RTE_MBUF_F_TX_IP_CKSUM;
	if (super) {
		m->ol_flags |= RTE_MBUF_F_TX_TCP_SEG;
		m->tso_segsz = 500;
	}
	p[12] = six ? 0x86 : 0x08;
	p[13] = six ? 0xdd : 0x00;
	p += sizeof(struct rte_ether_hdr);
	tcp = (struct rte_tcp_hdr *)(p + l3);
	if (six) {
		struct rte_ipv6_hdr *ip = (struct rte_ipv6_hdr *)p;

		ip->vtc_flow = RTE_BE32(6u << 28);
		ip->payload_len =
			rte_cpu_to_be_16((uint16_t)(length - sizeof(struct rte_ether_hdr) - l3));
		ip->proto = IPPROTO_TCP;
		ip->hop_limits = 1;
		tcp->cksum = rte_ipv6_phdr_cksum(ip, m->ol_flags);
	} else {
		struct rte_ipv4_hdr *ip = (struct rte_ipv4_hdr *)p;

		ip->version_ihl = 0x45;
		ip->total_length =
			rte_cpu_to_be_16((uint16_t)(length - sizeof(struct rte_ether_hdr)));
		ip->next_proto_id = IPPROTO_TCP;
		ip->time_to_live = 1;
		tcp->cksum = rte_ipv4_phdr_cksum(ip, m->ol_flags);
	}
	tcp->data_off = 0x50;
	return m;
}

static bool takes_sample(struct rp_port *p, bool six, bool super)
{
	struct rte_mbuf *m = sample(p->queues[0].pool, six, p->flags, super);
	bool taken = m && rte_eth_tx_prepare(p->ethdev_id, 0, &m, 1) == 1;

	rte_pktmbuf_free(m);
	return taken;
}

void port_check_samples(struct rp_port *p)
{
	bool checksums = p->flags & RP_PORT_TX_TCP_CKSUM, tso = p->queues[0].tso;

	if (!checksums ||
		(takes_sample(p, false, false) && takes_sample(p, true, false) &&
			(!tso || (takes_sample(p, false, true) && takes_sample(p, true, true)))))
		return;
	refuse(p, &p->counters.refused_samples,
		"the driver refuses frames that leave checksums to it: software makes them");
	if (p->seen_up)
		return; /* the stack was told at first what to leave to it */
	p->flags &= ~(uint32_t)(RP_PORT_TX_TCP_CKSUM | RP_PORT_TX_IPV4_CKSUM);
	p->flags &= ~(uint32_t)(p->config.tso == RP_PORT_CHOICE_ON ? 0 : RP_PORT_TX_TSO);
	if (p->flags & RP_PORT_TX_TSO)
		p->flags |= RP_PORT_TX_GSO;
	for (uint16_t i = 0; i < p->queue_count; i++)
		p->queues[i].tso = p->queues[i].prepare = false;
}

/* Is the frame what the device says? True also of what cannot be told. */
static bool is_sound(const struct rte_mbuf *m)
{
	const struct rte_ether_hdr *eth = rte_pktmbuf_mtod(m, const struct rte_ether_hdr *);
	const struct rte_ipv4_hdr *ip4 = (const struct rte_ipv4_hdr *)(eth + 1);
	const struct rte_ipv6_hdr *ip6 = (const struct rte_ipv6_hdr *)(eth + 1);
	uint32_t l4, end, sum;

	if (m->data_len < sizeof(*eth) + sizeof(*ip6))
		return true;
	if (eth->ether_type == RTE_BE16(RTE_ETHER_TYPE_IPV4) && ip4->next_proto_id == IPPROTO_TCP &&
		!(ip4->fragment_offset & RTE_BE16(0x3fff))) {
		l4 = (uint32_t)sizeof(*eth) + rte_ipv4_hdr_len(ip4);
		end = (uint32_t)sizeof(*eth) + rte_be_to_cpu_16(ip4->total_length);
		sum = rte_ipv4_phdr_cksum(ip4, 0);
	} else if (eth->ether_type == RTE_BE16(RTE_ETHER_TYPE_IPV6) && ip6->proto == IPPROTO_TCP) {
		l4 = sizeof(*eth) + sizeof(*ip6);
		end = l4 + rte_be_to_cpu_16(ip6->payload_len);
		sum = rte_ipv6_phdr_cksum(ip6, 0);
	} else {
		return true;
	}
	if (end > m->pkt_len || l4 > end)
		return true; /* malformed, which the stack counts */
	sum += port_l4_sum(m, l4, end - l4);
	return (sum & 0xffff) + (sum >> 16) == 0xffff;
}

void port_check_rx(struct rp_port_queue *q, struct rte_mbuf **burst, uint16_t n)
{
	const uint64_t word = RTE_MBUF_F_RX_L4_CKSUM_MASK | RTE_MBUF_F_RX_IP_CKSUM_MASK;

	for (uint16_t i = 0; i < n; i++) {
		struct rte_mbuf *m = burst[i];

		if (!q->distrust && q->to_check > 0 &&
			(m->ol_flags & RTE_MBUF_F_RX_L4_CKSUM_MASK) ==
				RTE_MBUF_F_RX_L4_CKSUM_GOOD) {
			q->to_check--;
			if (!is_sound(m)) {
				PORT_COUNT(&q->counters, rx_checksum_lies, 1);
				RP_LOG(RP_LOG_PORT, RP_LOG_ERROR,
					"%s: the device calls a wrong checksum sound: software "
					"checks from now on",
					q->port->device.name);
				q->distrust = true;
			}
		}
		/* UNKNOWN: the stack sums it. What never left this host is as it is. */
		if (q->distrust &&
			(m->ol_flags & RTE_MBUF_F_RX_L4_CKSUM_MASK) != RTE_MBUF_F_RX_L4_CKSUM_NONE)
			m->ol_flags &= ~word;
	}
}
