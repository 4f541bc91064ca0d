/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>

#include <base/assert.h>
#include <net/net_priv.h>

#define NET_PREFETCH 4

static bool net_config_ok(const struct rp_net_config *c)
{
	const struct rp_net_interface *i = &c->iface;

	return c->header_pool && i->mtu >= RP_NET_MTU_MIN && i->mtu <= RP_NET_MTU_MAX &&
	       !(i->mac[0] & 1) && i->vlan < 4095 && i->dscp < 64 && c->neighbours_max <= 32768 &&
	       c->static_neighbour_count <= c->neighbours_max / 2 &&
	       c->neighbour_pending_max <= 1024 &&
	       (c->tx_queue_packets & (c->tx_queue_packets - 1)) == 0 &&
	       (c->tx_queue_packets == 0 || c->tx_queue_packets >= 2 * RP_NET_TX_RESERVE);
}

static void net_defaults(struct rp_net_config *c)
{
	if (!c->iface.ttl)
		c->iface.ttl = NET_TTL_DEFAULT;
	if (!c->control_pool)
		c->control_pool = c->header_pool;
	if (!c->payload_pool)
		c->payload_pool = c->header_pool;
	if (!c->neighbours_max)
		c->neighbours_max = 256;
	if (!c->neighbour_pending_max)
		c->neighbour_pending_max = 16;
	if (!c->tx_queue_packets)
		c->tx_queue_packets = 1024;
	if (!c->neigh_reachable_ns)
		c->neigh_reachable_ns = 30 * RP_NS_PER_S;
	if (!c->neigh_retry_ns)
		c->neigh_retry_ns = 250 * RP_NS_PER_MS;
	if (!c->neigh_tries)
		c->neigh_tries = 4;
	if (!c->icmp_echo_per_s)
		c->icmp_echo_per_s = 10000;
}

static int net_set_statics(struct rp_net *net)
{
	const struct rp_net_config *c = &net->config;

	for (uint32_t i = 0; i < c->static_neighbour_count; i++)
		if (neigh_set_static(net, &c->static_neighbours[i]))
			return -EINVAL;
	return 0;
}

struct rp_net *rp_net_create(const struct rp_net_config *config, uint64_t now_ns)
{
	struct rp_net *net;

	net = aligned_alloc(_Alignof(struct rp_net), sizeof(*net));
	if (!net)
		return NULL;
	memset(net, 0, sizeof(*net));
	net->config = *config;
	net_defaults(&net->config);
	net->iface = net->config.iface;
	net->rand.state = net->config.seed;
	net->label_secret = rp_rand_u64(&net->rand) | 1;
	if (!net_config_ok(&net->config) || !net_addrs_init(net) ||
		(net->addr_count > net->addr4_count && net->iface.mtu < RP_NET_MTU6_MIN)) {
		free(net);
		errno = EINVAL;
		return NULL;
	}
	net->header_pool = net->config.header_pool;
	net->control_pool = net->config.control_pool;
	net->payload_pool = net->config.payload_pool;
	net->counters = net->config.counters ? net->config.counters : &net->own_counters;
	net->front.neigh_due_ns = RP_NEVER;
	net->front.mask = net->config.tx_queue_packets - 1;
	net->front.frames = calloc(net->config.tx_queue_packets, sizeof(*net->front.frames));
	if (!net->front.frames || neigh_table_init(net)) {
		rp_net_destroy(net);
		errno = ENOMEM;
		return NULL;
	}
	if (net_set_statics(net)) {
		rp_net_destroy(net);
		errno = EINVAL;
		return NULL;
	}
	net_addrs_start(net, now_ns);
	return net;
}

void rp_net_destroy(struct rp_net *net)
{
	if (!net)
		return;
	while (net->front.frames && net->front.head != net->front.tail)
		rte_pktmbuf_free(net->front.frames[net->front.head++ & net->front.mask]);
	neigh_table_free(net);
	free(net->front.frames);
	free(net);
}

const struct rp_net_interface *rp_net_interface(const struct rp_net *net)
{
	return &net->iface;
}

const struct rp_net_counters *rp_net_counters(const struct rp_net *net)
{
	return net->counters;
}

bool net_tx_own(struct rp_net *net, struct rte_mbuf *m)
{
	struct net_eth eth = *rte_pktmbuf_mtod(m, const struct net_eth *);

	net_tag_room(net, m);
	net_link_header(net, m, &eth);
	return net_tx_push(net, m, true);
}

unsigned rp_net_tx(struct rp_net *net, struct rte_mbuf **out, unsigned max)
{
	unsigned n = RP_MIN(max, net->front.tail - net->front.head);

	for (unsigned i = 0; i < n; i++)
		out[i] = net->front.frames[net->front.head++ & net->front.mask];
	return n;
}

bool rp_net_needs_sum(const struct rp_net *net)
{
	return !net->iface.tx_csum_tcp;
}

struct rte_mbuf *net_alloc_control(struct rp_net *net, uint16_t length)
{
	struct rte_mbuf *m = rte_pktmbuf_alloc(net->control_pool);

	if (!m || !rte_pktmbuf_append(m, length)) {
		net->counters->drop_nomem_tx++;
		rte_pktmbuf_free(m);
		return NULL;
	}
	return m;
}

/* Removes the first `length` bytes of a chain whose metadata is ours; NULL when nothing is left. */
static struct rte_mbuf *net_chop(struct rte_mbuf *m, uint32_t length)
{
	uint32_t pkt_len = m->pkt_len - length;
	uint16_t nb_segs = m->nb_segs;

	while (m && m->data_len <= length) {
		struct rte_mbuf *next = m->next;

		length -= m->data_len;
		m->next = NULL;
		m->nb_segs = 1;
		rte_pktmbuf_free_seg(m);
		nb_segs--;
		m = next;
	}
	if (!m)
		return NULL;
	m->data_off = (uint16_t)(m->data_off + length);
	m->data_len = (uint16_t)(m->data_len - length);
	m->pkt_len = pkt_len;
	m->nb_segs = nb_segs;
	return m;
}

struct rte_mbuf *net_pull_chain(struct rp_net *net, struct rte_mbuf *m, uint32_t length)
{
	struct rte_mbuf *head, *rest;
	uint64_t flags = m->ol_flags;
	uint32_t pkt_len = m->pkt_len;

	RP_ASSERT(length <= m->pkt_len);
	head = rte_pktmbuf_alloc(net->control_pool);
	if (!head || rte_pktmbuf_tailroom(head) < length) {
		net->counters->drop_nomem_rx++;
		rte_pktmbuf_free(head);
		rte_pktmbuf_free(m);
		return NULL;
	}
	rp_mbuf_copy_out(m, 0, rte_pktmbuf_mtod(head, void *), length);
	head->data_len = (uint16_t)length;
	rest = net_chop(m, length);
	head->ol_flags = flags & (RTE_MBUF_F_RX_IP_CKSUM_MASK | RTE_MBUF_F_RX_L4_CKSUM_MASK);
	head->next = rest;
	head->nb_segs = (uint16_t)(1 + (rest ? rest->nb_segs : 0));
	head->pkt_len = pkt_len;
	return head;
}

void net_trim_to(struct rte_mbuf *m, uint32_t length)
{
	struct rte_mbuf *s = m;
	uint32_t left = length;
	uint16_t segs = 1;

	if (m->pkt_len == length)
		return;
	while (s->data_len < left) {
		left -= s->data_len;
		s = s->next;
		segs++;
	}
	s->data_len = (uint16_t)left;
	if (s->next) {
		rte_pktmbuf_free(s->next);
		s->next = NULL;
	}
	m->nb_segs = segs;
	m->pkt_len = length;
}

/*
 * A device that passes pointers (net_ring) may hand us segments that the sender still refers to:
 * its fields are not ours to change. Such a segment gets a header of its own.
 */
static RP_APART struct rte_mbuf *net_unshare(struct rp_net *net, struct rte_mbuf *m)
{
	struct rte_mbuf *copy;
	const struct rte_mbuf *s = m;

	while (s && rte_mbuf_refcnt_read(s) == 1)
		s = s->next;
	if (!s)
		return m;
	copy = rte_pktmbuf_clone(m, net->payload_pool);
	if (copy)
		net->counters->rx_cloned++;
	else
		net->counters->drop_nomem_rx++;
	rte_pktmbuf_free(m);
	return copy;
}

/*
 * Takes the tag off. False: the frame is none of ours. The device, or the kernel under it, may have
 * taken it off already. Priority tags (VLAN 0) say nothing of a VLAN (802.1Q 6.7).
 */
static bool net_untag(const struct rp_net *net, struct rte_mbuf **m, struct net_eth *eth)
{
	uint16_t tag[2], vlan = 0;

	if ((*m)->ol_flags & RTE_MBUF_F_RX_VLAN_STRIPPED) {
		vlan = (*m)->vlan_tci & 0xfff;
	} else if (eth->type == RTE_BE16(NET_ETHERTYPE_VLAN)) {
		if ((*m)->pkt_len < NET_ETH_BYTES + NET_TAG_BYTES)
			return false;
		rp_mbuf_copy_out(*m, NET_ETH_BYTES, tag, sizeof(tag));
		vlan = rte_be_to_cpu_16(tag[0]) & 0xfff;
		eth->type = tag[1];
		/* What is left in front is not read again. */
		*m = net_chop(*m, NET_TAG_BYTES);
	}
	return vlan == net->iface.vlan;
}

static bool net_group_mac(const struct rp_net *net, const uint8_t mac[6])
{
	static const uint8_t prefix[2] = {0x33, 0x33}, all[4] = {0, 0, 0, 1};

	if (memcmp(mac, prefix, 2))
		return true; /* broadcast, or not of IPv6 */
	if (net->addr_count > net->addr4_count && !memcmp(mac + 2, all, 4))
		return true;
	for (uint32_t i = net->addr4_count; i < net->addr_count; i++)
		if (mac[2] == 0xff && !memcmp(mac + 3, &net->addrs[i].ip.b[13], 3))
			return true;
	return false;
}

/* What is not plain IPv4 for us; takes. */
static RP_APART bool net_rx_other(
	struct rp_net *net, struct rte_mbuf *m, struct rp_net_packet *out, uint64_t now_ns)
{
	struct rp_net_counters *c = net->counters;
	struct net_eth eth = *rte_pktmbuf_mtod(m, const struct net_eth *);

	if (memcmp(eth.dst, net->iface.mac, 6) && !(eth.dst[0] & 1)) {
		c->drop_not_for_us++;
	} else if (!net_untag(net, &m, &eth)) {
		c->drop_vlan++;
	} else if (!net_group_mac(net, eth.dst)) {
		c->drop_multicast++;
	} else if (eth.type == RTE_BE16(NET_ETHERTYPE_IP4) && net->addr4_count > 0) {
		return ip_input(net, m, out, now_ns);
	} else if (eth.type == RTE_BE16(NET_ETHERTYPE_IP6) && net->addr_count > net->addr4_count) {
		return ip6_input(net, m, eth.src, out, now_ns);
	} else if (eth.type == RTE_BE16(NET_ETHERTYPE_ARP) && net->addr4_count > 0) {
		arp_input(net, m, now_ns);
		return false;
	} else {
		c->drop_ethertype++;
	}
	rte_pktmbuf_free(m);
	return false;
}

/* A frame that is not one mbuf with both headers. */
static RP_APART bool net_rx_parts(
	struct rp_net *net, struct rte_mbuf *m, struct rp_net_packet *out, uint64_t now_ns)
{
	if (m->pkt_len < NET_ETH_BYTES) {
		net->counters->drop_short++;
		rte_pktmbuf_free(m);
		return false;
	}
	m = net_pull(net, m, NET_ETH_BYTES);
	return m && net_rx_other(net, m, out, now_ns);
}

/* Untagged IPv4 for our hardware address. */
static inline bool net_is_plain(const struct rp_net *net, const struct rte_mbuf *m)
{
	const struct net_eth *eth = rte_pktmbuf_mtod(m, const struct net_eth *);

	return net->plain4 && eth->type == RTE_BE16(NET_ETHERTYPE_IP4) &&
	       !(m->ol_flags & RTE_MBUF_F_RX_VLAN_STRIPPED) && !memcmp(eth->dst, net->iface.mac, 6);
}

static inline bool net_rx_frame(
	struct rp_net *net, struct rte_mbuf *m, struct rp_net_packet *out, uint64_t now_ns)
{
	net->counters->rx_bytes += m->pkt_len;
	if (m->next || rte_mbuf_refcnt_read(m) != 1) {
		m = net_unshare(net, m);
		if (!m)
			return false;
	}
	if (m->next || m->data_len < NET_ETH_BYTES + sizeof(struct net_ip4))
		return net_rx_parts(net, m, out, now_ns);
	return net_is_plain(net, m) ? ip_input_plain(net, m, out, now_ns)
				    : net_rx_other(net, m, out, now_ns);
}

unsigned rp_net_rx(struct rp_net *net, struct rte_mbuf **frames, unsigned n,
	struct rp_net_packet *out, uint64_t now_ns)
{
	unsigned k = 0;

	RP_ASSERT(n <= RP_NET_BURST);
	net->counters->rx_packets += n;
	for (unsigned i = 0; n > 1 && i < n && i < NET_PREFETCH; i++)
		__builtin_prefetch(rte_pktmbuf_mtod(frames[i], void *));
	for (unsigned i = 0; i < n; i++) {
		if (i + NET_PREFETCH < n)
			__builtin_prefetch(rte_pktmbuf_mtod(frames[i + NET_PREFETCH], void *));
		if (net_rx_frame(net, frames[i], &out[k], now_ns))
			k++;
	}
	return k;
}

bool rp_net_rx_handed(struct rp_net *net, struct rte_mbuf *m, struct rp_net_packet *out)
{
	const struct net_ip4 *ip4 = rte_pktmbuf_mtod(m, const struct net_ip4 *);
	const struct net_ip6 *ip6 = (const struct net_ip6 *)ip4;
	union rp_ip dst;
	int local;

	*out = (struct rp_net_packet){.kind = RP_NET_TCP, .m = m, .handed_over = true};
	if (ip4->version_ihl >> 4 == 4) {
		out->remote = rp_ip_from4(ip4->src);
		dst = rp_ip_from4(ip4->dst);
		out->ecn = ip4->tos & RP_NET_ECN_CE;
	} else {
		out->remote = net_ip_from_bytes(ip6->src);
		dst = net_ip_from_bytes(ip6->dst);
		out->ecn =
			(uint8_t)(rte_be_to_cpu_32(ip6->version_class_label) >> 20 & RP_NET_ECN_CE);
	}
	local = net_addr_find(net, &dst);
	if (local < 0) {
		net->counters->drop_not_for_us++;
		rte_pktmbuf_free(m);
		return false;
	}
	out->local = (uint32_t)local;
	out->l4_offset = m->l3_len;
	out->l4_length = (uint16_t)(m->pkt_len - out->l4_offset);
	m->l3_len = 0;
	return true;
}

/* The second byte of the header: differentiated services, and whether it may be marked. */
static inline uint8_t net_tos(const struct rp_net *net, const struct rp_net_segment *s)
{
	return (uint8_t)(net->iface.dscp << 2 | s->ecn);
}

static void net_output_tcp4(struct rp_net *net, struct rp_neigh *neigh, struct rte_mbuf *m,
	const struct rp_net_segment *s, uint64_t now_ns)
{
	struct net_ip4 *ip = rte_pktmbuf_mtod_offset(m, struct net_ip4 *, NET_ETH_BYTES);
	uint8_t *tcp = (uint8_t *)(ip + 1);
	uint16_t *checksum = (uint16_t *)(tcp + 16);
	uint16_t l4_length = (uint16_t)(m->pkt_len - RP_NET_HEADROOM);
	uint32_t src = net_ip4_of(&net->addrs[s->local].ip), dst = net_ip4_of(s->remote);
	uint64_t pseudo =
		(uint64_t)src + dst + RTE_BE16(NET_PROTO_TCP) + rte_cpu_to_be_16(l4_length);

	ip_fill(net, ip, NET_PROTO_TCP, net_tos(net, s), src, dst,
		(uint16_t)(l4_length + sizeof(*ip)));
	if (net->iface.tx_csum_tcp || m->ol_flags & RTE_MBUF_F_TX_TCP_SEG) {
		m->l2_len = NET_ETH_BYTES;
		m->l3_len = sizeof(*ip);
		m->l4_len = s->tcp_length;
		m->ol_flags |= RTE_MBUF_F_TX_IPV4 | RTE_MBUF_F_TX_TCP_CKSUM;
		/* A length is added to the sum for each segment that is cut. */
		if (m->ol_flags & RTE_MBUF_F_TX_TCP_SEG)
			pseudo += (uint16_t)~rte_cpu_to_be_16(l4_length);
		*checksum = rp_csum_fold(pseudo);
	} else {
		*checksum = (uint16_t)~rp_csum_fold(rp_csum_add(pseudo, s->sum));
		net->counters->csum_sw_tx++;
	}
	if (net->iface.tx_csum_ip) {
		m->l2_len = NET_ETH_BYTES;
		m->l3_len = sizeof(*ip);
		m->ol_flags |= RTE_MBUF_F_TX_IPV4 | RTE_MBUF_F_TX_IP_CKSUM;
	}
	neigh_output(net, neigh, m, true, now_ns);
}

/* The same for all packets of a connection, in this direction (RFC 6437 2). */
static uint32_t net_flow_label(
	const struct rp_net *net, const struct rp_net_segment *s, const uint8_t *tcp)
{
	const union rp_ip *local = &net->addrs[s->local].ip;
	uint64_t h = (s->remote->q[0] ^ local->q[0]) * net->label_secret;

	h = (h ^ h >> 32 ^ s->remote->q[1] ^ local->q[1]) * net->label_secret;
	h = (h ^ h >> 32 ^ net_load32(tcp)) * net->label_secret;
	return (uint32_t)(h >> 44);
}

static RP_APART void net_output_tcp6(struct rp_net *net, struct rp_neigh *neigh, struct rte_mbuf *m,
	const struct rp_net_segment *s, uint64_t now_ns)
{
	const uint16_t more = NET_IP6_BYTES - sizeof(struct net_ip4);
	const union rp_ip *local = &net->addrs[s->local].ip;
	uint16_t l4_length = (uint16_t)(m->pkt_len - RP_NET_HEADROOM);
	uint8_t *frame = (uint8_t *)rte_pktmbuf_prepend(m, more);
	struct net_ip6 *ip = (struct net_ip6 *)(frame + NET_ETH_BYTES);
	uint8_t *tcp = (uint8_t *)(ip + 1);
	uint16_t *checksum = (uint16_t *)(tcp + 16);
	uint64_t pseudo = ip6_pseudo(local, s->remote, NET_PROTO_TCP, l4_length);
	struct ip6_meta meta = {
		.next_header = NET_PROTO_TCP,
		.hop_limit = net->iface.ttl,
		.traffic_class = net_tos(net, s),
		.flow_label = net_flow_label(net, s, tcp),
	};

	ip6_fill(ip, &meta, local, s->remote, l4_length);
	if (net->iface.tx_csum_tcp || m->ol_flags & RTE_MBUF_F_TX_TCP_SEG) {
		m->l2_len = NET_ETH_BYTES;
		m->l3_len = NET_IP6_BYTES;
		m->l4_len = s->tcp_length;
		m->ol_flags |= RTE_MBUF_F_TX_IPV6 | RTE_MBUF_F_TX_TCP_CKSUM;
		/* A length is added to the sum for each segment that is cut. */
		if (m->ol_flags & RTE_MBUF_F_TX_TCP_SEG)
			pseudo += (uint16_t)~rte_cpu_to_be_16(l4_length);
		*checksum = rp_csum_fold(pseudo);
	} else {
		*checksum = (uint16_t)~rp_csum_fold(rp_csum_add(pseudo, s->sum));
		net->counters->csum_sw_tx++;
	}
	neigh_output(net, neigh, m, true, now_ns);
}

bool rp_net_template_make(struct rp_net *net, const struct rp_neigh *neigh,
	const struct rp_net_segment *s, uint16_t length, struct rp_net_template *t)
{
	uint32_t src = net_ip4_of(&net->addrs[s->local].ip), dst = net_ip4_of(s->remote);

	if (neigh->state != NEIGH_REACHABLE || net->iface.vlan || net->iface.tx_csum_ip ||
		net->iface.tx_csum_tcp || !rp_ip_is4(s->remote))
		return false;
	memcpy(t->headers, &neigh->eth, NET_ETH_BYTES);
	ip_fill(net, (struct net_ip4 *)(t->headers + NET_ETH_BYTES), NET_PROTO_TCP, net_tos(net, s),
		src, dst, (uint16_t)(length + sizeof(struct net_ip4)));
	t->pseudo = (uint64_t)src + dst + RTE_BE16(NET_PROTO_TCP) + rte_cpu_to_be_16(length);
	return true;
}

void rp_net_output_made(
	struct rp_net *net, struct rp_neigh *neigh, struct rte_mbuf *m, uint64_t now_ns)
{
	net->counters->csum_sw_tx++;
	neigh->used_ns = now_ns;
	net_tx_push(net, m, true);
}

void rp_net_output_tcp(struct rp_net *net, struct rp_neigh *neigh, struct rte_mbuf *m,
	const struct rp_net_segment *segment, uint64_t now_ns)
{
	if (rp_ip_is4(segment->remote))
		net_output_tcp4(net, neigh, m, segment, now_ns);
	else
		net_output_tcp6(net, neigh, m, segment, now_ns);
}

void rp_net_poll_due(struct rp_net *net, uint64_t now_ns)
{
	if (now_ns >= net->front.addr_due_ns)
		net_addrs_poll(net, now_ns);
	if (now_ns >= net->front.neigh_due_ns)
		neigh_poll(net, now_ns);
}

uint64_t rp_net_next_deadline(const struct rp_net *net)
{
	if (net->front.head != net->front.tail)
		return 0;
	return RP_MIN(net->front.addr_due_ns, net->front.neigh_due_ns);
}
