/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Super-segments cut in software, to the bytes that a device with TSO would send: IPv4 and IPv6,
 * with or without a VLAN tag. DPDK's own library knows IPv4 only.
 */
#include <string.h>

#include <rte_ip.h>
#include <rte_mbuf.h>
#include <rte_tcp.h>

#include <base/mbuf.h>

#include "port_priv.h"

/* Bytes [at, at + length) of the super-segment, behind the headers in `m`. False: no buffer. */
static bool gso_refer(struct rte_mempool *pool, struct rte_mbuf *m, struct rte_mbuf **from,
	uint32_t *at, uint32_t length)
{
	struct rte_mbuf *tail = m;

	while (length > 0) {
		uint32_t n = RP_MIN(length, (*from)->data_len - *at);
		struct rte_mbuf *part;

		if (n > 0) {
			part = rte_pktmbuf_alloc(pool);
			if (!part)
				return false;
			rte_pktmbuf_attach(part, *from);
			part->data_off = (uint16_t)(part->data_off + *at);
			part->data_len = (uint16_t)n;
			part->ol_flags &= RTE_MBUF_F_INDIRECT | RTE_MBUF_F_EXTERNAL;
			part->next = NULL;
			part->nb_segs = 1;
			tail = tail->next = part;
			m->nb_segs++;
			m->pkt_len += n;
			length -= n;
			*at += n;
		}
		if (*at == (*from)->data_len && length > 0) {
			*from = (*from)->next;
			*at = 0;
		}
	}
	return true;
}

static bool gso_copy(
	struct rte_mbuf *m, const struct rte_mbuf *frame, uint32_t offset, uint32_t length)
{
	if (rte_pktmbuf_tailroom(m) < length)
		return false;
	rp_mbuf_copy_out(frame, offset, rte_pktmbuf_mtod_offset(m, void *, m->data_len), length);
	m->data_len = (uint16_t)(m->data_len + length);
	m->pkt_len += length;
	return true;
}

/* Lengths, numbers and flags of the segment at `offset` of the payload, in its copied headers. */
static void gso_header(struct rte_mbuf *m, const struct rte_mbuf *frame, uint32_t offset, bool last)
{
	uint8_t *l3 = rte_pktmbuf_mtod_offset(m, uint8_t *, frame->l2_len);
	struct rte_tcp_hdr *tcp = (struct rte_tcp_hdr *)(l3 + frame->l3_len);
	uint16_t length = (uint16_t)(m->pkt_len - frame->l2_len);

	if (frame->ol_flags & RTE_MBUF_F_TX_IPV4)
		((struct rte_ipv4_hdr *)l3)->total_length = rte_cpu_to_be_16(length);
	else
		((struct rte_ipv6_hdr *)l3)->payload_len =
			rte_cpu_to_be_16((uint16_t)(length - sizeof(struct rte_ipv6_hdr)));
	tcp->sent_seq = rte_cpu_to_be_32(rte_be_to_cpu_32(tcp->sent_seq) + offset);
	/* The end of the stream, and the push, are of the last; what answers a mark, of the first.
	 */
	if (!last)
		tcp->tcp_flags &= (uint8_t) ~(RTE_TCP_FIN_FLAG | RTE_TCP_PSH_FLAG);
	if (offset > 0)
		tcp->tcp_flags &= (uint8_t)~RTE_TCP_CWR_FLAG;
}

uint16_t port_l4_sum(const struct rte_mbuf *m, uint32_t offset, uint32_t length)
{
	uint64_t sum = 0;
	uint32_t done = 0;

	/* Each part is folded before its bytes change places: DPDK's sum of a chain loses carries.
	 */
	for (; m && done < length; m = m->next) {
		uint32_t n;
		uint16_t part;

		if (offset >= m->data_len) {
			offset -= m->data_len;
			continue;
		}
		n = RP_MIN(length - done, m->data_len - offset);
		part = rte_raw_cksum(rte_pktmbuf_mtod_offset(m, const void *, offset), n);
		sum += done & 1 ? __builtin_bswap16(part) : part;
		done += n;
		offset = 0;
	}
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)sum;
}

static void gso_checksums(struct rte_mbuf *m, const struct rte_mbuf *frame, uint64_t keep)
{
	bool four = frame->ol_flags & RTE_MBUF_F_TX_IPV4;
	uint8_t *l3 = rte_pktmbuf_mtod_offset(m, uint8_t *, frame->l2_len);
	struct rte_tcp_hdr *tcp = (struct rte_tcp_hdr *)(l3 + frame->l3_len);
	struct rte_ipv4_hdr *ip4 = (struct rte_ipv4_hdr *)l3;
	struct rte_ipv6_hdr *ip6 = (struct rte_ipv6_hdr *)l3;
	uint16_t l4 = (uint16_t)(frame->l2_len + frame->l3_len);

	m->ol_flags |= keep & frame->ol_flags;
	if (m->ol_flags & (RTE_MBUF_F_TX_TCP_CKSUM | RTE_MBUF_F_TX_IP_CKSUM)) {
		m->ol_flags |= four ? RTE_MBUF_F_TX_IPV4 : RTE_MBUF_F_TX_IPV6;
		m->l2_len = frame->l2_len;
		m->l3_len = frame->l3_len;
		m->l4_len = frame->l4_len;
	}
	if (four) {
		ip4->hdr_checksum = 0;
		if (!(m->ol_flags & RTE_MBUF_F_TX_IP_CKSUM))
			ip4->hdr_checksum = rte_ipv4_cksum(ip4);
	}
	tcp->cksum = four ? rte_ipv4_phdr_cksum(ip4, m->ol_flags)
			  : rte_ipv6_phdr_cksum(ip6, m->ol_flags);
	if (!(m->ol_flags & RTE_MBUF_F_TX_TCP_CKSUM))
		tcp->cksum = (uint16_t)~port_l4_sum(m, l4, m->pkt_len - l4);
}

unsigned port_gso(struct rte_mempool *pool, struct rte_mbuf *frame, bool chains, uint64_t keep,
	struct rte_mbuf *out[PORT_GSO_SEGMENTS_MAX])
{
	uint32_t headers = (uint32_t)(frame->l2_len + frame->l3_len + frame->l4_len);
	uint32_t payload = frame->pkt_len - headers, size = frame->tso_segsz, at = headers;
	struct rte_mbuf *from = frame;
	unsigned n = 0;

	if (headers > frame->data_len || headers >= frame->pkt_len || size == 0 ||
		payload > size * PORT_GSO_SEGMENTS_MAX)
		goto failed;
	for (uint32_t offset = 0; offset < payload; offset += size) {
		uint32_t length = RP_MIN(size, payload - offset);
		struct rte_mbuf *m = rte_pktmbuf_alloc(pool);

		if (!m)
			goto failed;
		out[n++] = m;
		memcpy(rte_pktmbuf_append(m, (uint16_t)headers),
			rte_pktmbuf_mtod(frame, const void *), headers);
		if (chains ? !gso_refer(pool, m, &from, &at, length)
			   : !gso_copy(m, frame, headers + offset, length))
			goto failed;
		gso_header(m, frame, offset, offset + length == payload);
		gso_checksums(m, frame, keep);
	}
	rte_pktmbuf_free(frame);
	return n;
failed:
	rte_pktmbuf_free_bulk(out, n);
	rte_pktmbuf_free(frame);
	return 0;
}
