/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include <rte_mbuf.h>

#include <base/assert.h>
#include <port/tap.h>

/* Of a frame, what the filter may look at: Ethernet, a tag, IPv4 with options, ports. */
#define HEAD_BYTES 82
#define ETH_BYTES 14
#define IP4_BYTES 20
#define IP6_BYTES 40
#define ARP_BYTES 28
#define ND_BYTES 24 /* of a solicitation or advertisement, its target included */
#define TYPE_IP4 0x0800
#define TYPE_ARP 0x0806
#define TYPE_VLAN 0x8100
#define TYPE_IP6 0x86dd
#define PROTO_TCP 6
#define PROTO_UDP 17
#define PROTO_ICMP6 58

/* Several lcores may poll queues of a port. */
#define TAP_COUNT(counters, name, n) \
	atomic_fetch_add_explicit(&(counters)->name, (n), memory_order_relaxed)

/* ---- the filter ---- */

static uint16_t load16(const uint8_t *p)
{
	return (uint16_t)(p[0] << 8 | p[1]);
}

/* `l4`: the transport header, `left` bytes of it. */
static bool port_fits(const struct rp_endpoint *peer, uint8_t protocol, const uint8_t *l4,
	uint32_t left, bool sent)
{
	if (peer->port == 0)
		return true;
	if ((protocol != PROTO_TCP && protocol != PROTO_UDP) || left < 4)
		return false;
	return load16(l4 + (sent ? 2 : 0)) == peer->port;
}

static bool ip4_fits(const struct rp_endpoint *peer, const uint8_t *ip, uint32_t left, bool sent)
{
	uint32_t header;

	if (peer->family != 4 || left < IP4_BYTES || memcmp(ip + (sent ? 16 : 12), peer->addr, 4))
		return false;
	header = (uint32_t)(ip[0] & 0xf) * 4;
	if (peer->port == 0)
		return true;
	/* The ports are in the first fragment. */
	if (header < IP4_BYTES || header > left || load16(ip + 6) & 0x1fff)
		return false;
	return port_fits(peer, ip[9], ip + header, left - header, sent);
}

/* Who asks for a peer's address sends to a group: what counts there is the address asked for. */
static bool nd_fits(const struct rp_endpoint *peer, const uint8_t *icmp, uint32_t left)
{
	return left >= ND_BYTES && (icmp[0] == 135 || icmp[0] == 136) &&
	       memcmp(icmp + 8, peer->addr, 16) == 0;
}

static bool ip6_fits(const struct rp_endpoint *peer, const uint8_t *ip, uint32_t left, bool sent)
{
	if (peer->family != 6 || left < IP6_BYTES)
		return false;
	if (memcmp(ip + (sent ? 24 : 8), peer->addr, 16) != 0)
		return peer->port == 0 && ip[6] == PROTO_ICMP6 &&
		       nd_fits(peer, ip + IP6_BYTES, left - IP6_BYTES);
	return port_fits(peer, ip[6], ip + IP6_BYTES, left - IP6_BYTES, sent);
}

static bool arp_fits(const struct rp_endpoint *peer, const uint8_t *arp, uint32_t left, bool sent)
{
	return peer->family == 4 && peer->port == 0 && left >= ARP_BYTES &&
	       memcmp(arp + (sent ? 24 : 14), peer->addr, 4) == 0;
}

bool rp_tap_fits(const struct rp_endpoint *peer, const uint8_t *head, uint32_t length, bool sent)
{
	uint32_t at = ETH_BYTES;

	if (length >= at + 4 && load16(head + 12) == TYPE_VLAN)
		at += 4;
	if (length < at)
		return false;
	switch (load16(head + at - 2)) {
	case TYPE_IP4:
		return ip4_fits(peer, head + at, length - at, sent);
	case TYPE_IP6:
		return ip6_fits(peer, head + at, length - at, sent);
	case TYPE_ARP:
		return arp_fits(peer, head + at, length - at, sent);
	default:
		return false;
	}
}

/* ---- blocks ---- */

static bool block_post(struct rp_tap *tap)
{
	if (tap->block && tap->post(tap->ctx, tap->block) != 0)
		return false;
	tap->block = NULL;
	return true;
}

/* Room for a record of that many bytes, or NULL. */
static struct rp_tap_record *record_new(struct rp_tap *tap, uint32_t bytes, uint64_t wall_ns)
{
	if (tap->block && rte_pktmbuf_tailroom(tap->block) < bytes && !block_post(tap))
		return NULL;
	if (!tap->block) {
		tap->block = rte_pktmbuf_alloc(tap->config.pool);
		if (!tap->block)
			return NULL;
		tap->block_ns = wall_ns;
	}
	return (struct rp_tap_record *)(void *)rte_pktmbuf_append(tap->block, (uint16_t)bytes);
}

static void copy_frame(uint8_t *out, const struct rte_mbuf *m, uint32_t length)
{
	while (length > 0) {
		uint32_t n = RP_MIN(length, (uint32_t)m->data_len);

		memcpy(out, rte_pktmbuf_mtod(m, const uint8_t *), n);
		out += n;
		length -= n;
		m = m->next;
	}
}

static bool frame_fits(const struct rp_tap *tap, const struct rte_mbuf *m, bool sent)
{
	uint32_t length = RP_MIN(m->pkt_len, (uint32_t)HEAD_BYTES);
	uint8_t copy[HEAD_BYTES];
	const uint8_t *head = tap->config.peer.family ? rte_pktmbuf_read(m, 0, length, copy) : NULL;

	return tap->config.peer.family == 0 ||
	       (head && rp_tap_fits(&tap->config.peer, head, length, sent));
}

void rp_tap_frames(struct rp_tap *tap, uint32_t port, bool sent, struct rte_mbuf *const *frames,
	unsigned n, uint64_t wall_ns)
{
	struct rp_tap_counters *counters = &tap->config.counters[port];
	uint64_t taken = 0, dropped = 0;

	if (!(tap->config.ports >> port & 1))
		return;
	for (unsigned i = 0; i < n; i++) {
		const struct rte_mbuf *m = frames[i];
		uint32_t captured = RP_MIN(m->pkt_len, tap->config.snaplen);
		uint32_t padded = (captured + 7u) & ~7u;
		struct rp_tap_record *r;

		if (!frame_fits(tap, m, sent))
			continue;
		r = record_new(tap, (uint32_t)sizeof(*r) + padded, wall_ns);
		if (!r) {
			dropped++;
			continue;
		}
		*r = (struct rp_tap_record){.wall_ns = wall_ns,
			.length = m->pkt_len,
			.captured = (uint16_t)captured,
			.port = (uint8_t)port,
			.sent = sent};
		copy_frame((uint8_t *)(r + 1), m, captured);
		taken++;
	}
	TAP_COUNT(counters, seen, n);
	TAP_COUNT(counters, taken, taken);
	TAP_COUNT(counters, dropped, dropped);
}

void rp_tap_flush(struct rp_tap *tap, bool idle, uint64_t wall_ns)
{
	if (tap->block && (idle || wall_ns - tap->block_ns >= RP_TAP_WAIT_NS))
		block_post(tap);
}

void rp_tap_start(struct rp_tap *tap, const struct rp_tap_config *config)
{
	RP_ASSERT(config->snaplen > 0 && config->snaplen <= RP_TAP_SNAPLEN_MAX);
	rp_tap_stop(tap);
	tap->config = *config;
	tap->on = true;
}

/* Of a block that nobody gets the records were taken in vain. */
static void block_forget(struct rp_tap *tap)
{
	const struct rp_tap_record *r;
	const uint8_t *bytes;
	uint32_t offset = 0;

	while ((r = rp_tap_next(tap->block, &offset, &bytes))) {
		TAP_COUNT(&tap->config.counters[r->port], taken, -(uint64_t)1);
		TAP_COUNT(&tap->config.counters[r->port], dropped, 1);
	}
	rte_pktmbuf_free(tap->block);
	tap->block = NULL;
}

void rp_tap_stop(struct rp_tap *tap)
{
	tap->on = false;
	if (tap->block && !block_post(tap))
		block_forget(tap);
}

const struct rp_tap_record *rp_tap_next(
	const struct rte_mbuf *block, uint32_t *offset, const uint8_t **bytes)
{
	const struct rp_tap_record *r;

	if (*offset >= block->data_len)
		return NULL;
	r = rte_pktmbuf_mtod_offset(block, const struct rp_tap_record *, *offset);
	*bytes = (const uint8_t *)(r + 1);
	*offset += (uint32_t)sizeof(*r) + ((r->captured + 7u) & ~7u);
	return r;
}
