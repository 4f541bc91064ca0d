/* SPDX-License-Identifier: Apache-2.0 */
#include <tcp/siphash.h>
#include <tcp/tcp_priv.h>

/*
 * SYN cookies (RFC 4987 3.6): a SYN-ACK whose sequence number says all that a connection needs, so
 * that nothing is kept for a SYN that may be forged. From the highest bit on: 5 bits of a counter
 * of time, 3 of the peer's MSS, 24 of a keyed hash. With timestamps, the lowest bits of ours carry
 * what else was offered: 4 bits of window scale (15: none), 1 of SACK. Without them the connection
 * has neither; ECN is not agreed on in either case.
 *
 * An ACK is all that proves the client is there. If it is lost and the client waits for us to speak
 * first, both wait: who connects has to speak first, as links and gRPC do.
 */

#define COOKIE_UNIT_SHIFT 36 /* 69 s; a cookie lives for one to two of them */
#define COOKIE_TS_MASK 31u
#define COOKIE_TS_SACK 16u
#define COOKIE_NO_SHIFT 15u

static const uint16_t cookie_mss[8] = {88, 536, 1220, 1360, 1440, 1460, 4312, 8960};

static uint32_t cookie_mac(const struct rp_tcp_stack *s, const struct flow_key *key, uint32_t irs,
	uint64_t count, unsigned mss)
{
	struct {
		struct flow_key key;
		uint64_t count;
		uint32_t irs, mss;
	} text;

	memset(&text, 0, sizeof(text));
	text.key = *key;
	text.count = ~count; /* no initial sequence number is made of this */
	text.irs = irs;
	text.mss = mss;
	return (uint32_t)siphash24(s->config.secret, &text, sizeof(text)) & 0xffffff;
}

static uint32_t cookie_make(const struct rp_tcp_stack *s, const struct flow_key *key, uint32_t irs,
	uint64_t count, unsigned mss)
{
	return (uint32_t)(count & 31) << 27 | mss << 24 | cookie_mac(s, key, irs, count, mss);
}

/* Our timestamp, its lowest bits taken for the options, and not later than now. */
static uint32_t cookie_ts(const struct rp_tcp_stack *s, const struct flow_key *key,
	const struct tcp_syn_offer *offer, unsigned peer_shift, uint64_t now_ns)
{
	uint32_t now = tcp_ts_now(now_ns) + tcp_ts_offset(s, key);
	uint32_t bits =
		offer->shift ? RP_MIN(peer_shift, (unsigned)TCP_SHIFT_MAX) : COOKIE_NO_SHIFT;
	uint32_t ts;

	if (offer->sack)
		bits |= COOKIE_TS_SACK;
	ts = (now & ~COOKIE_TS_MASK) | bits;
	return rp_seq_gt(ts, now) ? ts - (COOKIE_TS_MASK + 1) : ts;
}

void tcp_cookie_send(struct rp_tcp_stack *s, const struct tcp_listener *l,
	const struct flow_key *key, const struct tcp_segment_in *in, uint64_t now_ns)
{
	const struct rp_tcp_config *config = &s->config;
	uint32_t mss = in->opt.has_mss ? in->opt.mss : tcp_mss_default(key);
	struct tcp_syn_offer offer = {.mss = tcp_route_mss(s, key, &l->options)};
	struct tcp_reply r = {.key = key, .ack = in->seq + 1, .flags = TCP_SYN | TCP_ACK};
	unsigned index = RP_ARRAY_SIZE(cookie_mss) - 1;
	uint8_t options[TCP_OPTIONS_MAX];

	while (index > 0 && cookie_mss[index] > mss)
		index--;
	offer.ts = in->opt.has_ts && !config->no_timestamps;
	offer.sack = offer.ts && in->opt.has_sack_permitted && !config->no_sack;
	offer.shift = offer.ts && in->opt.has_shift && !config->no_window_scale;
	offer.receive_shift = s->rcv_shift;
	if (offer.ts) {
		offer.ts_value = cookie_ts(s, key, &offer, in->opt.shift, now_ns);
		offer.ts_echo = in->opt.ts_value;
	}
	r.seq = cookie_make(s, key, in->seq, now_ns >> COOKIE_UNIT_SHIFT, index);
	r.window = (uint16_t)RP_MIN(config->receive_buffer_bytes, (uint32_t)UINT16_MAX);
	r.options = options;
	r.options_length = tcp_options_put_syn(&offer, options);
	s->cookie_ns = now_ns;
	s->counters->cookies_sent++;
	tcp_send_reply(s, &r, now_ns);
}

/* The MSS that the cookie in `in` tells, 0: it is none of ours. */
static uint16_t cookie_check(const struct rp_tcp_stack *s, const struct flow_key *key,
	const struct tcp_segment_in *in, uint64_t now_ns)
{
	uint32_t cookie = in->ack - 1, irs = in->seq - 1;
	uint64_t count = now_ns >> COOKIE_UNIT_SHIFT, age = (count - (cookie >> 27)) & 31;
	unsigned index = cookie >> 24 & 7;

	if (age > 1 || age > count || cookie != cookie_make(s, key, irs, count - age, index))
		return 0;
	return cookie_mss[index];
}

/* The SYN that the cookie stands for. */
static struct tcp_segment_in cookie_syn(const struct rp_tcp_stack *s, const struct flow_key *key,
	const struct tcp_segment_in *in, uint16_t mss)
{
	struct tcp_segment_in syn = {
		.flags = TCP_SYN,
		.window = in->window,
		.seq = in->seq - 1,
		.opt = {.has_mss = true, .mss = mss},
	};
	uint32_t bits = in->opt.ts_echo & COOKIE_TS_MASK;

	if (in->opt.has_ts && !s->config.no_timestamps) {
		syn.opt.has_ts = true;
		syn.opt.ts_value = in->opt.ts_value;
		syn.opt.has_sack_permitted = bits & COOKIE_TS_SACK;
		syn.opt.has_shift = (bits & COOKIE_NO_SHIFT) != COOKIE_NO_SHIFT;
		syn.opt.shift = (uint8_t)(bits & COOKIE_NO_SHIFT);
	}
	return syn;
}

struct tcp_conn *tcp_cookie_input(struct rp_tcp_stack *s, struct tcp_listener *l,
	const struct flow_key *key, const struct tcp_segment_in *in, bool *ours, uint64_t now_ns)
{
	struct tcp_segment_in syn;
	struct tcp_conn *c;
	uint16_t mss;

	/* None was sent for so long that it could still be good: nobody can guess one. */
	*ours = false;
	if (s->cookie_ns == 0 ||
		(now_ns >> COOKIE_UNIT_SHIFT) - (s->cookie_ns >> COOKIE_UNIT_SHIFT) > 1)
		return NULL;
	mss = cookie_check(s, key, in, now_ns);
	if (mss == 0) {
		s->counters->cookies_bad++;
		return NULL;
	}
	*ours = true;
	c = tcp_listen_conn(s, l, key, now_ns);
	if (!c)
		return NULL; /* counted; the client asks again */
	s->counters->cookies_good++;
	syn = cookie_syn(s, key, in, mss);
	tcp_conn_set_iss(c, in->ack - 1);
	c->ecn = 0;
	tcp_syn_options(c, &syn, now_ns);
	tcp_set_state(c, TCPS_SYN_RCVD);
	c->snd_nxt = c->queue_end = c->iss + 1; /* as if the SYN-ACK were in flight */
	return c;
}
