/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_eal.h>
#include <rte_mbuf.h>

#include <base/mbuf.h>
#include <base/units.h>

#include "rig.h"

#define RIG_BURST 32
#define RIG_TURNS_MAX 100000 /* at one time: more is a loop */

static const uint8_t rig_mac[6] = {0x02, 0, 0, 0, 0, 0x10};
static const uint8_t rig_peer_mac[6] = {0x02, 0, 0, 0, 0, 0x11};

int rig_eal(unsigned megabytes)
{
	static char memory[16];
	static char *argv[] = {"test", "--no-huge", "-m", memory, "--no-pci", "--no-telemetry",
		"--no-shconf", "-l", "0", "--log-level", "error", NULL};

	snprintf(memory, sizeof(memory), "%u", megabytes);
	return rte_eal_init(RP_ARRAY_SIZE(argv) - 1, argv) < 0 ? -1 : 0;
}

static struct rte_mempool *rig_pool(const char *name, uint32_t n, uint16_t room)
{
	static unsigned serial;
	char full[32];

	snprintf(full, sizeof(full), "rig_%s_%u", name, serial++);
	return rte_pktmbuf_pool_create(full, n, 0, 0, room, SOCKET_ID_ANY);
}

static void rig_pools_free(struct rig *rig)
{
	rte_mempool_free(rig->header_pool);
	rte_mempool_free(rig->payload_pool);
	rte_mempool_free(rig->rx_pool);
}

/* Everything goes to a gateway, whose address is known. */
static uint32_t rig_gateways(const struct rp_net_interface *iface, struct rp_net_neighbour *out)
{
	const union rp_ip *gateways[] = {&iface->gateway4, &iface->gateway6};
	uint32_t n = 0;

	for (unsigned i = 0; i < 2; i++) {
		if (gateways[i]->q[0] == 0 && gateways[i]->q[1] == 0)
			continue;
		out[n].ip = *gateways[i];
		memcpy(out[n++].mac, rig_peer_mac, 6);
	}
	return n;
}

struct rig *rig_new(const struct rig_config *config)
{
	struct rp_net_neighbour neighbours[2];
	struct rig *rig = calloc(1, sizeof(*rig));
	struct rp_tcp_config *c;

	if (!rig)
		return NULL;
	rig->config = *config;
	rig->now_ns = config->start_ns;
	c = &rig->config.tcp;
	rig->header_pool = rig_pool("h", config->header_mbufs ? config->header_mbufs : 1023, 512);
	rig->payload_pool =
		rig_pool("p", config->payload_mbufs ? config->payload_mbufs : 1023, 2048 + 128);
	rig->rx_pool = rig_pool("r", config->rx_mbufs ? config->rx_mbufs : 1023, 2048 + 128);
	if (!rig->header_pool || !rig->payload_pool || !rig->rx_pool) {
		rig_pools_free(rig);
		free(rig);
		errno = ENOMEM;
		return NULL;
	}
	rig->header_free = rte_mempool_avail_count(rig->header_pool);
	rig->payload_free = rte_mempool_avail_count(rig->payload_pool);
	rig->rx_free = rte_mempool_avail_count(rig->rx_pool);
	c->net.header_pool = rig->header_pool;
	c->net.payload_pool = rig->payload_pool;
	memcpy(c->net.iface.mac, rig_mac, 6);
	c->net.static_neighbours = neighbours;
	c->net.static_neighbour_count = rig_gateways(&c->net.iface, neighbours);
	rig->stack = rp_tcp_create(c, rig->now_ns);
	if (!rig->stack) {
		int error = errno;

		rig_pools_free(rig);
		free(rig);
		errno = error;
		return NULL;
	}
	c->net.static_neighbours = NULL; /* read by now */
	return rig;
}

const char *rig_free(struct rig *rig)
{
	const char *fault = NULL;

	rp_tcp_destroy(rig->stack);
	if (rte_mempool_avail_count(rig->header_pool) != rig->header_free)
		fault = "header mbufs are missing";
	else if (rte_mempool_avail_count(rig->payload_pool) != rig->payload_free)
		fault = "payload mbufs are missing";
	else if (rte_mempool_avail_count(rig->rx_pool) != rig->rx_free)
		fault = "received mbufs are missing";
	rig_pools_free(rig);
	free(rig);
	return fault;
}

uint32_t rig_sum(const uint8_t *p, uint32_t n, uint32_t sum)
{
	for (uint32_t i = 0; i < n; i++)
		sum += i & 1 ? p[i] : (uint32_t)p[i] << 8;
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

static const char *rig_fault4(const struct rig *rig, const uint8_t *ip, uint32_t length)
{
	uint32_t header, total;

	if (length < 20)
		return "shorter than an IPv4 header";
	header = (ip[0] & 15) * 4u;
	total = (uint32_t)ip[2] << 8 | ip[3];
	if (header < 20 || total != length)
		return "IPv4 lengths do not fit the frame";
	if (length > rig->config.tcp.net.iface.mtu)
		return "larger than the MTU";
	if (rig_sum(ip, header, 0) != 0xffff)
		return "IPv4 header checksum is wrong";
	if (ip[9] == 6 && rig_sum(ip + header, total - header,
				  rig_sum(ip + 12, 8, 6 + total - header)) != 0xffff)
		return "TCP checksum is wrong";
	return NULL;
}

static const char *rig_fault6(const struct rig *rig, const uint8_t *ip, uint32_t length)
{
	uint32_t l4 = length - 40;

	if (length < 40 || ((uint32_t)ip[4] << 8 | ip[5]) != l4)
		return "IPv6 lengths do not fit the frame";
	if (length > rig->config.tcp.net.iface.mtu)
		return "larger than the MTU";
	if (ip[6] == 6 && rig_sum(ip + 40, l4, rig_sum(ip + 8, 32, 6 + l4)) != 0xffff)
		return "TCP checksum is wrong";
	return NULL;
}

static void rig_frame_out(struct rig *rig, const struct rte_mbuf *m)
{
	uint8_t frame[RIG_PACKET_MAX + 14];
	const char *fault;
	uint32_t length;

	if (m->pkt_len > sizeof(frame)) {
		rig->config.on_fault(rig->config.ctx, "too long");
		return;
	}
	length = (uint32_t)rp_mbuf_copy_out(m, 0, frame, m->pkt_len);
	if (length < 14 + 40)
		return; /* no TCP */
	if (frame[12] == 8 && frame[13] == 0 && frame[14 + 9] == 6)
		fault = rig_fault4(rig, frame + 14, length - 14);
	else if (frame[12] == 0x86 && frame[13] == 0xdd && frame[14 + 6] == 6)
		fault = rig_fault6(rig, frame + 14, length - 14);
	else
		return; /* what the stack says to its link */
	if (fault)
		rig->config.on_fault(rig->config.ctx, fault);
	else
		rig->config.on_packet(rig->config.ctx, frame + 14, length - 14);
}

void rig_turn(struct rig *rig)
{
	struct rte_mbuf *burst[RIG_BURST];

	for (unsigned turns = 0;; turns++) {
		unsigned n;

		if (turns == RIG_TURNS_MAX) {
			rig->config.on_fault(rig->config.ctx, "the stack is never done");
			return;
		}
		rp_tcp_poll(rig->stack, rig->now_ns);
		n = rp_tcp_tx(rig->stack, burst, RIG_BURST);
		for (unsigned i = 0; i < n; i++) {
			rig_frame_out(rig, burst[i]);
			rte_pktmbuf_free(burst[i]);
		}
		if (n == 0 && rp_tcp_next_deadline(rig->stack) > rig->now_ns)
			return;
	}
}

bool rig_packet(struct rig *rig, const void *packet, uint32_t length)
{
	uint8_t frame[RIG_PACKET_MAX + 14];
	struct rte_mbuf *m;

	if (length > RIG_PACKET_MAX)
		return false;
	memcpy(frame, rig_mac, 6);
	memcpy(frame + 6, rig_peer_mac, 6);
	memcpy(frame + 14, packet, length);
	frame[12] = frame[14] >> 4 == 6 ? 0x86 : 8;
	frame[13] = frame[14] >> 4 == 6 ? 0xdd : 0;
	m = rp_mbuf_from(rig->rx_pool, frame, 14 + length);
	if (!m)
		return false;
	rp_tcp_rx(rig->stack, &m, 1, rig->now_ns);
	rig_turn(rig);
	return true;
}

bool rig_step(struct rig *rig, uint64_t until_ns)
{
	uint64_t next = rp_tcp_next_deadline(rig->stack);

	if (next > until_ns) {
		rig->now_ns = RP_MAX(rig->now_ns, until_ns);
		return false;
	}
	rig->now_ns = RP_MAX(rig->now_ns, next);
	rig_turn(rig);
	return true;
}

void rig_run(struct rig *rig, uint64_t until_ns)
{
	while (rig_step(rig, until_ns))
		;
}
