/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The stacks of a shard on the ports of the node, and what they have to do with those of other
 * shards: packets of flows that are another's, frames that leave by another's queue, neighbours.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <rte_mbuf.h>

#include <base/assert.h>
#include <engine/shard_engine_priv.h>

/* A stack learned of a neighbour: its copies on other shards follow. */
static void on_neigh(void *ctx, const union rp_ip *ip, const uint8_t mac[6], bool confirmed)
{
	const struct engine_port *p = ctx;
	struct rp_engine *e = p->engine;
	struct rp_xmsg m = {.type = RP_XMSG_NEIGH, .value = p->port, .flags = confirmed};

	memcpy(m.uuid, ip, sizeof(*ip));
	memcpy(&m.idx, mac, 6);
	for (unsigned s = 0; s < e->shards; s++)
		if (s != e->shard && e->stack_shards >> s & 1 && e->ops->post(e->ctx, s, &m) != 0)
			e->counters.neighbours_untold++;
}

static void on_neigh_told(struct rp_engine *e, const struct rp_xmsg *m, uint64_t now_ns)
{
	union rp_ip ip;
	uint8_t mac[6];

	memcpy(&ip, m->uuid, sizeof(ip));
	memcpy(mac, &m->idx, 6);
	rp_net_neigh_learn(rp_tcp_net(e->tcp[m->value]), &ip, mac, m->flags & 1, now_ns);
}

/* ---- packets of another shard's flows ---- */

static void post_packets_in(struct rp_engine *e, unsigned shard)
{
	struct rp_xmsg *m = &e->packets_in[shard];

	if (m->count == 0)
		return;
	e->counters.packets_handed += m->count;
	if (e->ops->post(e->ctx, shard, m) != 0) {
		e->counters.packets_dropped += m->count;
		rp_xmsg_free(m);
	}
	m->count = 0;
}

static void hand_over_error(
	struct rp_engine *e, uint32_t port, uint32_t shard, const struct rp_net_packet *packet)
{
	struct rp_xmsg m = {
		.type = RP_XMSG_ICMP_IN,
		.value = port,
		.hash = packet->local,
		.epoch = packet->seq,
		.count = packet->error,
		.attempt = packet->mtu,
		.idx = (uint64_t)packet->local_port << 16 | packet->remote_port,
	};

	memcpy(m.uuid, &packet->remote, sizeof(packet->remote));
	e->counters.packets_handed++;
	if (e->ops->post(e->ctx, shard, &m) != 0)
		e->counters.packets_dropped++;
}

/* rp_tcp_config.hand_over */
static void hand_over(void *ctx, uint32_t shard, const struct rp_net_packet *packet)
{
	const struct engine_port *p = ctx;
	struct rp_engine *e = p->engine;
	struct rp_xmsg *m = &e->packets_in[shard];

	if (packet->kind == RP_NET_ICMP_ERROR) {
		hand_over_error(e, p->port, shard, packet);
		return;
	}
	m->type = RP_XMSG_PACKETS_IN;
	m->value = p->port;
	m->packets[m->count++] = packet->m;
	if (m->count == RP_XMSG_PACKETS_MAX)
		post_packets_in(e, shard);
}

static void on_icmp(struct rp_engine *e, const struct rp_xmsg *m, uint64_t now_ns)
{
	struct rp_net_packet packet = {
		.kind = RP_NET_ICMP_ERROR,
		.local = m->hash,
		.seq = m->epoch,
		.error = m->count,
		.mtu = (uint16_t)m->attempt,
		.local_port = (uint16_t)(m->idx >> 16),
		.remote_port = (uint16_t)m->idx,
	};

	memcpy(&packet.remote, m->uuid, sizeof(packet.remote));
	rp_tcp_rx_error(e->tcp[m->value], &packet, now_ns);
}

/* ---- frames that leave by another shard's queue ---- */

static bool post_packets_out(struct rp_engine *e, struct engine_port *p)
{
	if (p->out.count == 0)
		return true;
	if (e->ops->post(e->ctx, p->queue_shard, &p->out) != 0)
		return false; /* they wait here, and the stack's own queue fills up behind them */
	e->counters.packets_out += p->out.count;
	p->out.count = 0;
	return true;
}

bool engine_ports_send(struct rp_engine *e)
{
	bool sent = false;

	for (uint32_t i = 0; i < e->port_count; i++) {
		struct engine_port *p = &e->port[i];

		if (p->queue_shard == e->shard)
			continue;
		while (post_packets_out(e, p)) {
			p->out.type = RP_XMSG_PACKETS_OUT;
			p->out.value = i;
			p->out.count = rp_tcp_tx(e->tcp[i], p->out.packets, RP_XMSG_PACKETS_MAX);
			if (p->out.count == 0)
				break;
			sent = true;
		}
	}
	return sent;
}

bool engine_ports_waiting(const struct rp_engine *e)
{
	for (uint32_t i = 0; i < e->port_count; i++)
		if (e->port[i].out.count > 0 || e->port[i].forward_head != e->port[i].forward_tail)
			return true;
	return false;
}

static void on_packets_out(struct rp_engine *e, const struct rp_xmsg *m)
{
	struct engine_port *p = &e->port[m->value];

	for (uint32_t i = 0; i < m->count; i++) {
		if (!p->forward || p->forward_tail - p->forward_head == ENGINE_FORWARD_MAX) {
			e->counters.packets_out_dropped++;
			rte_pktmbuf_free(m->packets[i]);
			continue;
		}
		p->forward[p->forward_tail++ % ENGINE_FORWARD_MAX] = m->packets[i];
	}
}

void engine_ports_message(struct rp_engine *e, const struct rp_xmsg *m, uint64_t now_ns)
{
	/* A shard tells those that have stacks on the port, and there it is. */
	RP_ASSERT(m->value < e->port_count);
	switch (m->type) {
	case RP_XMSG_PACKETS_IN:
		rp_tcp_rx_packets(
			e->tcp[m->value], (struct rte_mbuf **)m->packets, m->count, now_ns);
		return;
	case RP_XMSG_PACKETS_OUT:
		on_packets_out(e, m);
		return;
	case RP_XMSG_ICMP_IN:
		on_icmp(e, m, now_ns);
		return;
	default:
		on_neigh_told(e, m, now_ns);
	}
}

/* ---- bursts ---- */

void rp_engine_rx(
	struct rp_engine *e, uint32_t port, struct rte_mbuf **frames, unsigned n, uint64_t now_ns)
{
	e->now_ns = now_ns;
	rp_tcp_rx(e->tcp[port], frames, n, now_ns);
	for (uint64_t left = e->stack_shards & ~(1ull << e->shard); left; left &= left - 1)
		post_packets_in(e, (unsigned)__builtin_ctzll(left));
}

/* Those of other shards have been on their way for longer, but get no more than half of a burst. */
unsigned rp_engine_tx(struct rp_engine *e, uint32_t port, struct rte_mbuf **out, unsigned max)
{
	struct engine_port *p = &e->port[port];
	unsigned n = 0, own;

	while (n < (max + 1) / 2 && p->forward_head != p->forward_tail)
		out[n++] = p->forward[p->forward_head++ % ENGINE_FORWARD_MAX];
	own = rp_tcp_tx(e->tcp[port], out + n, max - n);
	n += own;
	while (n < max && p->forward_head != p->forward_tail)
		out[n++] = p->forward[p->forward_head++ % ENGINE_FORWARD_MAX];
	return n;
}

/* ---- life ---- */

static int create_stack(
	struct rp_engine *e, const struct rp_engine_config *c, uint32_t port, uint64_t now_ns)
{
	struct rp_tcp_config t = c->tcp[port];
	struct engine_port *p = &e->port[port];

	*p = (struct engine_port){.engine = e, .port = port, .queue_shard = e->shard};
	if (c->ports_foreign >> port & 1)
		p->queue_shard = c->queue_shard[port];
	if (p->queue_shard != e->shard && !(c->stack_shards >> p->queue_shard & 1))
		return -EINVAL;
	if (c->stack_shards & ~(1ull << e->shard)) {
		t.net.on_neigh = on_neigh;
		t.net.ctx = p;
		t.place = c->place[port];
		t.shard = e->shard;
		t.hand_over = hand_over;
		t.place_ctx = p;
		if (p->queue_shard == e->shard)
			p->forward = calloc(ENGINE_FORWARD_MAX, sizeof(struct rte_mbuf *));
		if (p->queue_shard == e->shard && !p->forward)
			return -ENOMEM;
	}
	if (t.place && rp_place_shards(t.place) & ~c->stack_shards)
		return -EINVAL;
	e->tcp[port] = rp_tcp_create(&t, now_ns);
	return e->tcp[port] ? 0 : -errno;
}

int engine_ports_create(struct rp_engine *e, const struct rp_engine_config *c, uint64_t now_ns)
{
	int rc = 0;

	e->stack_shards = c->stack_shards;
	for (uint32_t i = 0; rc == 0 && i < c->port_count; i++) {
		rc = create_stack(e, c, i, now_ns);
		e->port_count = i + 1;
	}
	return rc;
}

void engine_ports_destroy(struct rp_engine *e)
{
	for (uint32_t i = 0; i < e->port_count; i++) {
		struct engine_port *p = &e->port[i];

		if (p->out.count > 0)
			rp_xmsg_free(&p->out);
		for (; p->forward_head != p->forward_tail; p->forward_head++)
			rte_pktmbuf_free(p->forward[p->forward_head % ENGINE_FORWARD_MAX]);
		free(p->forward);
		rp_tcp_destroy(e->tcp[i]);
	}
}
