/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>

#include <base/lines.h>
#include <tcp/tcp_priv.h>

#define TW_EXPIRE_BUDGET 64

int tcp_tw_init(struct rp_tcp_stack *s)
{
	s->tws = rp_lines_alloc(s->config.time_wait_max, sizeof(*s->tws));
	if (!s->tws)
		return -ENOMEM;
	for (uint32_t i = 0; i < s->config.time_wait_max; i++)
		s->tws[i].next = i + 1 < s->config.time_wait_max ? i + 1 : FLOW_NONE;
	s->tw_free = 0;
	s->tw_first = s->tw_last = FLOW_NONE;
	return 0;
}

/* All live for the same time, so the list in order of entry is the list in order of expiry. */
static void tw_append(struct rp_tcp_stack *s, uint32_t i)
{
	struct tcp_tw *t = &s->tws[i];

	t->next = FLOW_NONE;
	t->prev = s->tw_last;
	if (s->tw_last != FLOW_NONE)
		s->tws[s->tw_last].next = i;
	else
		s->tw_first = i;
	s->tw_last = i;
}

static void tw_unlink(struct rp_tcp_stack *s, uint32_t i)
{
	struct tcp_tw *t = &s->tws[i];

	if (t->prev != FLOW_NONE)
		s->tws[t->prev].next = t->next;
	else
		s->tw_first = t->next;
	if (t->next != FLOW_NONE)
		s->tws[t->next].prev = t->prev;
	else
		s->tw_last = t->prev;
}

void tcp_tw_drop(struct rp_tcp_stack *s, uint32_t index)
{
	struct tcp_tw *t = &s->tws[index];

	flow_remove(&s->flows, t->hash, s->config.connections_max + index);
	tw_unlink(s, index);
	t->next = s->tw_free;
	s->tw_free = index;
	s->tw_count--;
}

void tcp_tw_enter(struct tcp_conn *c, uint64_t now_ns)
{
	struct rp_tcp_stack *s = tcp_stack_of(c);
	struct tcp_tw *t;
	uint32_t i;

	/* Now, since the connection will be gone; if it is lost, the peer's FIN comes again. */
	if (c->flags & (TCPF_ACK_NOW | TCPF_ACK_DELAYED))
		tcp_send_control(c, c->snd_nxt, TCP_ACK, now_ns);
	if (s->tw_free == FLOW_NONE) {
		s->counters->time_wait_early++;
		tcp_tw_drop(s, s->tw_first);
	}
	i = s->tw_free;
	t = &s->tws[i];
	s->tw_free = t->next;
	s->tw_count++;
	*t = (struct tcp_tw){
		.key = c->key,
		.hash = c->hash,
		.snd_nxt = c->snd_nxt,
		.rcv_nxt = c->rcv_nxt,
		.ts_recent = c->ts_recent,
		.ts_offset = c->ts_offset,
		.window = (uint16_t)RP_MIN((c->rcv_adv - c->rcv_nxt) >> c->rcv_shift, UINT16_MAX),
		.ts = c->flags & TCPF_TS,
		.expires_ns = now_ns + s->config.time_wait_ns,
	};
	tw_append(s, i);
	flow_replace(&s->flows, c->hash, (uint32_t)(c - s->conns), s->config.connections_max + i);
	c->flags &= ~TCPF_IN_TABLE;
	tcp_conn_close(c, RP_CLOSE_FIN);
}

static void tw_ack(struct rp_tcp_stack *s, const struct tcp_tw *t, uint64_t now_ns)
{
	struct tcp_reply r = {
		.key = &t->key,
		.seq = t->snd_nxt,
		.ack = t->rcv_nxt,
		.window = t->window,
		.flags = TCP_ACK,
		.ts = t->ts,
		.ts_value = tcp_ts_now(now_ns) + t->ts_offset,
		.ts_echo = t->ts_recent,
	};

	if (!tcp_bucket_take(&s->challenge, now_ns, RP_NS_PER_MS, 100))
		return;
	s->counters->acks_sent++;
	tcp_send_reply(s, &r, now_ns);
}

/* RFC 9293 3.6.1 and RFC 6191: a SYN that cannot be an old one. */
static bool tw_newer(const struct tcp_tw *t, const struct tcp_segment_in *in)
{
	if (in->opt.has_ts && !t->ts)
		return true; /* the old connection's had none */
	if (in->opt.has_ts && in->opt.ts_value != t->ts_recent)
		return rp_seq_gt(in->opt.ts_value, t->ts_recent);
	return rp_seq_gt(in->seq, t->rcv_nxt);
}

bool tcp_tw_reusable(const struct rp_tcp_stack *s, uint32_t index, uint64_t now_ns)
{
	const struct tcp_tw *t = &s->tws[index];
	uint64_t since_ns = t->expires_ns - s->config.time_wait_ns;

	/* The timestamp of the next SYN is another one then, even in a coarse clock. */
	return t->ts && now_ns - since_ns > RP_NS_PER_S;
}

bool tcp_tw_input(struct rp_tcp_stack *s, uint32_t index, const struct tcp_segment_in *in,
	uint32_t *isn_min, uint64_t now_ns)
{
	struct tcp_tw *t = &s->tws[index];

	if (in->flags & TCP_RST) {
		/* RFC 1337: an old reset must not end the wait. */
		s->counters->drop_reset_invalid++;
		return false;
	}
	if (in->flags & TCP_SYN && !(in->flags & TCP_ACK)) {
		if (tw_newer(t, in) && tcp_listener_find(s, t->key.local_port)) {
			s->counters->time_wait_reused++;
			*isn_min = t->snd_nxt;
			tcp_tw_drop(s, index);
			return true;
		}
	}
	if (in->flags & TCP_FIN || in->flags & TCP_SYN || in->length > 0) {
		if (in->flags & TCP_FIN) {
			t->expires_ns = now_ns + s->config.time_wait_ns;
			tw_unlink(s, index);
			tw_append(s, index);
		}
		tw_ack(s, t, now_ns);
	}
	s->counters->drop_duplicate++;
	return false;
}

void tcp_tw_expire(struct rp_tcp_stack *s, uint64_t now_ns)
{
	for (unsigned i = 0; i < TW_EXPIRE_BUDGET && s->tw_first != FLOW_NONE; i++) {
		if (s->tws[s->tw_first].expires_ns > now_ns)
			return;
		tcp_tw_drop(s, s->tw_first);
	}
}

uint64_t tcp_tw_next(const struct rp_tcp_stack *s)
{
	return s->tw_first == FLOW_NONE ? RP_NEVER : s->tws[s->tw_first].expires_ns;
}
