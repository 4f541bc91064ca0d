/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Any frames into the network layer. The input is a row of records: two bytes of length, one that
 * says what is repaired, one how the frame is cut into mbufs, the frame. Repairing puts our
 * addresses and right checksums in, so that the deeper parts are reached: of IPv4, or of IPv6 where
 * the length has its top bit set. The length of the input says whether the interface has a VLAN,
 * and watches for duplicates. No mbuf may be lost, and what is handed up must be whole.
 */

#include <stdlib.h>
#include <string.h>

#include <rte_eal.h>
#include <rte_mbuf.h>

#include <base/assert.h>
#include <base/bytes.h>
#include <base/mbuf.h>
#include <net/csum.h>
#include <net/net.h>

#define VLAN 7

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct rte_mempool *pool;
static const uint8_t mac[6] = {2, 0, 0, 0, 0, 1}, addr[4] = {10, 0, 0, 1};
static const uint8_t addr6[16] = {0xfd, [15] = 1};

static void start(void)
{
	static char *argv[] = {"fuzz", "--no-huge", "-m", "64", "--no-pci", "--no-telemetry",
		"--no-shconf", "-l", "0", "--log-level", "error", NULL};

	RP_ASSERT(rte_eal_init(11, argv) >= 0);
	pool = rte_pktmbuf_pool_create("net_fuzz", 1023, 0, 0, 512, SOCKET_ID_ANY);
	RP_ASSERT(pool);
}

static void store16(uint8_t *p, uint16_t v)
{
	memcpy(p, &v, 2);
}

/* Makes the frame one for us, as far as it is long enough. */
static void repair(uint8_t *f, uint32_t n, uint8_t how)
{
	uint32_t ihl, total;

	if (how & 1 && n >= 14)
		memcpy(f, mac, 6);
	if (how & 2 && n >= 14 + 28) {
		static const uint8_t head[8] = {0, 1, 8, 0, 6, 4, 0, 1};

		f[12] = 8;
		f[13] = 6;
		memcpy(f + 14, head, 8);
		f[21] = (uint8_t)(1 + (how >> 7));
		memcpy(f + 38, addr, 4);
	}
	if (!(how & 4) || n < 14 + 20)
		return;
	f[12] = 8;
	f[13] = 0;
	memcpy(f + 30, addr, 4);
	if (how & 8) {
		f[14] = 0x45;
		f[16] = (uint8_t)((n - 14) >> 8);
		f[17] = (uint8_t)(n - 14);
		f[20] = f[21] = 0;
		f[23] = how & 16 ? 6 : 1;
	}
	ihl = (f[14] & 15) * 4u;
	total = (uint32_t)f[16] << 8 | f[17];
	if (ihl < 20 || ihl > total || total > n - 14)
		return;
	store16(f + 24, 0);
	store16(f + 24, (uint16_t)~rp_csum_bytes(f + 14, ihl));
	if (f[23] == 1 && total >= ihl + 8) {
		store16(f + 14 + ihl + 2, 0);
		store16(f + 14 + ihl + 2, (uint16_t)~rp_csum_bytes(f + 14 + ihl, total - ihl));
	} else if (f[23] == 6 && total >= ihl + 20) {
		uint64_t sum = rp_csum_bytes(f + 26, 8) + __builtin_bswap16(6) +
			       __builtin_bswap16((uint16_t)(total - ihl));

		store16(f + 14 + ihl + 16, 0);
		store16(f + 14 + ihl + 16,
			(uint16_t)~rp_csum_fold(sum + rp_csum_bytes(f + 14 + ihl, total - ihl)));
	}
}

/* The extension headers and the message behind an IPv6 header, as ip6.c walks them. */
static uint32_t walk6(const uint8_t *f, uint32_t end, uint8_t *next)
{
	uint32_t at = 54;

	*next = f[20];
	for (unsigned i = 0; i < 8 && at + 8 <= end; i++) {
		uint8_t kind = *next;

		if (kind != 0 && kind != 43 && kind != 44 && kind != 60)
			break;
		*next = f[at];
		at += kind == 44 ? 8 : (f[at + 1] + 1u) * 8;
		if (at > end)
			return end;
	}
	return at;
}

/*
 * The same for IPv6: `how` says what it is made to be. 1: addresses; 2: length; 4: the type of
 * ICMPv6 and hop limit of neighbour discovery; 8: about our address; 16: checksum.
 */
static void repair6(uint8_t *f, uint32_t n, uint8_t how)
{
	static const uint8_t types[8] = {128, 135, 136, 1, 2, 130, 137, 4};
	uint32_t at, end;
	uint8_t next;

	if (n < 14 + 40)
		return;
	memcpy(f, mac, 6);
	f[12] = 0x86;
	f[13] = 0xdd;
	f[14] = (uint8_t)(0x60 | (f[14] & 15));
	if (how & 1) {
		memcpy(f + 38, addr6, 16);
		memcpy(f + 22, addr6, 15);
	}
	if (how & 2) {
		f[18] = (uint8_t)((n - 54) >> 8);
		f[19] = (uint8_t)(n - 54);
	}
	if (how & 4 && n >= 54 + 8) {
		f[20] = 58;
		f[21] = 255;
		f[54] = types[how >> 5];
		f[55] = 0;
	}
	if (how & 8 && n >= 54 + 24)
		memcpy(f + 62, addr6, 16);
	end = 54 + ((uint32_t)f[18] << 8 | f[19]);
	if (!(how & 16) || end > n)
		return;
	at = walk6(f, end, &next);
	if ((next == 58 && end >= at + 8) || (next == 6 && end >= at + 20)) {
		uint32_t l4 = end - at, field = at + (next == 6 ? 16 : 2);
		uint64_t sum = rp_csum_bytes(f + 22, 32) + (uint64_t)__builtin_bswap16(next) +
			       __builtin_bswap16((uint16_t)l4);

		store16(f + field, 0);
		store16(f + field, (uint16_t)~rp_csum_fold(sum + rp_csum_bytes(f + at, l4)));
	}
}

static uint32_t tag(uint8_t *f, uint32_t n)
{
	memmove(f + 16, f + 12, n - 12);
	f[12] = 0x81;
	f[13] = f[14] = 0;
	f[15] = VLAN;
	return n + 4;
}

/* The frame in mbufs of `piece` bytes each. */
static struct rte_mbuf *cut(const uint8_t *f, uint32_t n, uint32_t piece)
{
	struct rte_mbuf *first = NULL;

	do {
		uint32_t k = RP_MIN(n, piece);
		struct rte_mbuf *m = rp_mbuf_from(pool, f, k);

		RP_ASSERT(m);
		rp_mbuf_append(&first, m);
		f += k;
		n -= k;
	} while (n > 0);
	return first;
}

static void check(const struct rp_net_packet *p)
{
	uint32_t total = 0, segs = 0;

	if (p->kind != RP_NET_TCP)
		return;
	for (const struct rte_mbuf *m = p->m; m; m = m->next) {
		total += m->data_len;
		segs++;
	}
	RP_ASSERT(total == p->m->pkt_len && segs == p->m->nb_segs);
	RP_ASSERT(total == (uint32_t)p->l4_offset + p->l4_length);
	RP_ASSERT(p->m->data_len >= p->l4_offset + 20);
	RP_ASSERT(p->m->data_len >=
		  p->l4_offset +
			  (*rte_pktmbuf_mtod_offset(p->m, uint8_t *, p->l4_offset + 12) >> 4) * 4);
	rte_pktmbuf_free(p->m);
}

static void drain(struct rp_net *net)
{
	struct rte_mbuf *out[32];
	unsigned n;

	while ((n = rp_net_tx(net, out, 32)) > 0)
		rte_pktmbuf_free_bulk(out, n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct rp_reader r = rp_reader_of(data, size);
	struct rp_net_config config = {
		.header_pool = NULL, .neighbours_max = 4, .iface = {.mtu = 1500}};
	uint64_t now_ns = 1000 * RP_NS_PER_S;
	struct rp_net *net;
	unsigned before;

	if (!pool)
		start();
	before = rte_mempool_avail_count(pool);
	config.header_pool = pool;
	memcpy(config.iface.mac, mac, 6);
	config.iface.addresses[0] =
		(struct rp_net_address){.ip = rp_ip_from4(addr), .prefix_length = 24};
	config.iface.addresses[1] =
		(struct rp_net_address){.ip = rp_ip_from6(addr6), .prefix_length = 64};
	config.iface.gateway6 = (union rp_ip){.b = {0xfe, 0x80, [15] = 9}};
	config.iface.vlan = size % 8 == 1 ? VLAN : 0;
	config.dad = config.mld = size % 2;
	net = rp_net_create(&config, now_ns);
	RP_ASSERT(net);
	for (unsigned i = 0; i < 64 && rp_reader_left(&r) > 4; i++) {
		uint8_t frame[4096 + 4];
		uint16_t head = rp_read_le16(&r);
		uint32_t n = (head & 0x7fff) % 4097;
		uint8_t how = rp_read_u8(&r), piece = rp_read_u8(&r);
		struct rp_net_packet out;
		struct rte_mbuf *m;

		n = RP_MIN(n, (uint32_t)rp_reader_left(&r));
		if (n > 0)
			memcpy(frame, rp_read_bytes(&r, n), n);
		if (head & 0x8000)
			repair6(frame, n, how);
		else
			repair(frame, n, how);
		if (config.iface.vlan && n >= 14 && piece & 3)
			n = tag(frame, n);
		m = cut(frame, n, piece ? 8 + piece : 384);
		if (rp_net_rx(net, &m, 1, &out, now_ns))
			check(&out);
		now_ns += (uint64_t)piece << (how % 24);
		rp_net_poll(net, now_ns);
		drain(net);
		RP_ASSERT(rp_net_next_deadline(net) > now_ns);
	}
	rp_net_destroy(net);
	RP_ASSERT(rte_mempool_avail_count(pool) == before);
	return 0;
}
