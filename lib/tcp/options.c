/* SPDX-License-Identifier: Apache-2.0 */
#include <tcp/hot_priv.h>

#define OPT_END 0
#define OPT_NOP 1
#define OPT_MSS 2
#define OPT_SHIFT 3
#define OPT_SACK_PERMITTED 4
#define OPT_SACK 5
#define OPT_TS 8

/* p: the option, its length checked. One with a length that its kind cannot have is ignored. */
static void opt_take(const uint8_t *p, bool syn, struct tcp_options *out)
{
	unsigned kind = p[0], length = p[1];

	if (kind == OPT_MSS && length == 4 && syn) {
		out->has_mss = true;
		out->mss = (uint16_t)(p[2] << 8 | p[3]);
	} else if (kind == OPT_SHIFT && length == 3 && syn) {
		out->has_shift = true;
		out->shift = RP_MIN(p[2], TCP_SHIFT_MAX);
	} else if (kind == OPT_SACK_PERMITTED && length == 2 && syn) {
		out->has_sack_permitted = true;
	} else if (kind == OPT_TS && length == 10) {
		out->has_ts = true;
		out->ts_value = tcp_opt_load32(p + 2);
		out->ts_echo = tcp_opt_load32(p + 6);
	} else if (kind == OPT_SACK && length >= 10 && (length - 2) % 8 == 0 && !syn) {
		unsigned n = (length - 2) / 8;

		for (unsigned i = 0; i < n && i < TCP_SACK_BLOCKS_MAX; i++) {
			out->sack[i].start = tcp_opt_load32(p + 2 + 8 * i);
			out->sack[i].end = tcp_opt_load32(p + 6 + 8 * i);
		}
		out->sack_count = (uint8_t)RP_MIN(n, TCP_SACK_BLOCKS_MAX);
	}
}

bool tcp_options_parse(const uint8_t *p, unsigned length, bool syn, struct tcp_options *out)
{
	if (tcp_options_parse_plain(p, length, out))
		return true;
	while (length > 0) {
		unsigned n;

		if (p[0] == OPT_END)
			break;
		if (p[0] == OPT_NOP) {
			p++;
			length--;
			continue;
		}
		if (length < 2 || p[1] < 2 || p[1] > length)
			return false;
		n = p[1];
		opt_take(p, syn, out);
		p += n;
		length -= n;
	}
	return true;
}

unsigned tcp_options_build(
	const struct tcp_conn *c, uint8_t *p, unsigned sack_room, unsigned *sacks, uint64_t now_ns)
{
	struct tcp_range blocks[TCP_SACK_BLOCKS_MAX];
	uint64_t sum = 0; /* the caller makes it of all */
	unsigned n = tcp_options_build_plain(c, p, &sum, now_ns), count = 0;

	if (tcp_sack_owed(c)) {
		sack_room = RP_MIN(sack_room, TCP_OPTIONS_MAX - n);
		if (sack_room >= 12)
			count = tcp_sack_blocks(c, blocks, RP_MIN((sack_room - 4) / 8, 4u));
	}
	if (count > 0) {
		p[n] = OPT_NOP;
		p[n + 1] = OPT_NOP;
		p[n + 2] = OPT_SACK;
		p[n + 3] = (uint8_t)(2 + 8 * count);
		for (unsigned i = 0; i < count; i++) {
			tcp_store32(p + n + 4 + 8 * i, blocks[i].start);
			tcp_store32(p + n + 8 + 8 * i, blocks[i].end);
		}
		n += 4 + 8 * count;
	}
	*sacks = count;
	return n;
}

unsigned tcp_options_put_syn(const struct tcp_syn_offer *o, uint8_t *p)
{
	unsigned n = 4;

	p[0] = OPT_MSS;
	p[1] = 4;
	p[2] = (uint8_t)(o->mss >> 8);
	p[3] = (uint8_t)o->mss;
	if (o->ts) {
		tcp_options_put_ts(p + n, o->ts_value, o->ts_echo);
		n += TCP_TS_BYTES;
		if (o->sack) {
			/* In place of the two NOPs. */
			p[4] = OPT_SACK_PERMITTED;
			p[5] = 2;
		}
	} else if (o->sack) {
		p[n] = OPT_NOP;
		p[n + 1] = OPT_NOP;
		p[n + 2] = OPT_SACK_PERMITTED;
		p[n + 3] = 2;
		n += 4;
	}
	if (o->shift) {
		p[n] = OPT_NOP;
		p[n + 1] = OPT_SHIFT;
		p[n + 2] = 3;
		p[n + 3] = o->receive_shift;
		n += 4;
	}
	return n;
}

unsigned tcp_options_build_syn(const struct tcp_conn *c, uint8_t *p, uint64_t now_ns)
{
	const struct tcp_syn_offer offer = {
		.mss = c->mss_max,
		.ts = c->flags & TCPF_TS,
		.sack = c->flags & TCPF_SACK,
		.shift = c->flags & TCPF_SHIFT,
		.receive_shift = tcp_stack_of(c)->rcv_shift,
		.ts_value = tcp_ts_now(now_ns) + c->ts_offset,
		.ts_echo = c->ts_recent,
	};

	return tcp_options_put_syn(&offer, p);
}
