/* SPDX-License-Identifier: Apache-2.0 */
#include <tcp/tcp_priv.h>

#define TO(name) (1u << TCPS_##name)

static const struct {
	const char *name;
	uint32_t next;
} tcp_states[] = {
#define X(name, text, next_mask) [TCPS_##name] = {text, next_mask},
#include <tcp/tcp_states.def>
#undef X
};

const char *tcp_state_name(unsigned state)
{
	return tcp_states[state].name;
}

void tcp_set_state(struct tcp_conn *c, enum tcp_state state)
{
	RP_ASSERT(tcp_states[c->state].next & 1u << state);
	c->state = (uint8_t)state;
}

bool tcp_bucket_take(struct tcp_bucket *b, uint64_t now_ns, uint64_t gap_ns, uint32_t burst)
{
	uint64_t earliest_ns = now_ns - RP_MIN(now_ns, burst * gap_ns);

	b->used_ns = RP_MAX(b->used_ns, earliest_ns);
	if (b->used_ns + gap_ns > now_ns)
		return false;
	b->used_ns += gap_ns;
	return true;
}

void tcp_unblock(struct tcp_conn *c)
{
	c->flags &= ~TCPF_BLOCKED;
	rp_list_unlink(&c->dirty);
	if (!(c->flags & TCPF_DEAD))
		rp_list_push_back(&tcp_stack_of(c)->dirty, &c->dirty);
}

void tcp_conn_set_iss(struct tcp_conn *c, uint32_t iss)
{
	c->iss = c->snd_una = c->snd_nxt = c->queue_end = iss;
	c->rack_fack = c->rack_end = c->reo_round_end = c->recover = iss;
}

struct tcp_conn *tcp_conn_new(struct rp_tcp_stack *s, const struct flow_key *key, uint64_t now_ns)
{
	struct tcp_conn *c;
	uint32_t index = s->conn_free;

	if (index == FLOW_NONE)
		return NULL;
	c = &s->conns[index];
	s->conn_free = c->next_free;
	s->conn_count++;
	s->conn_top = RP_MAX(s->conn_top, index + 1);
	memset(c, 0, sizeof(*c));
	c->key = *key;
	c->base.transport = &s->transport;
	c->hash = flow_hash(&s->flows, key);
	c->state = TCPS_CLOSED;
	rp_list_init(&c->dirty);
	rp_list_init(&c->segs);
	rp_list_init(&c->xmit);
	rp_list_init(&c->lost);
	rp_list_init(&c->ooo);
	rp_list_init(&c->neigh_user);
	rp_wheel_node_init(&c->wheel);
	c->neigh = rp_neigh_ref(s->net, &key->remote, &c->neigh_user, now_ns);
	if (!c->neigh) {
		c->next_free = s->conn_free;
		s->conn_free = index;
		s->conn_count--;
		return NULL;
	}
	flow_insert(&s->flows, c->hash, index);
	c->flags = TCPF_IN_TABLE | TCPF_SACK | TCPF_TS | TCPF_SHIFT;
	tcp_conn_set_iss(c, tcp_isn(s, key, now_ns));
	c->ts_offset = tcp_ts_offset(s, key);
	c->rto_ns = TCP_RTO_INITIAL_NS;
	c->rtt_min_ns = RP_NEVER;
	c->reo_mult = 1;
	c->window_plenty = INT32_MAX; /* tcp_window_init() follows */
	c->ssthresh = TCP_SSTHRESH_INITIAL;
	c->cc = &tcp_cc_reno; /* tcp_cc_select() follows */
	c->timer_ns = c->ack_deadline_ns = c->life_ns = c->reo_ns = RP_NEVER;
	c->opened_ns = c->heard_ns = c->progress_ns = now_ns;
	tcp_conn_options(c, NULL);
	return c;
}

void tcp_conn_release(struct tcp_conn *c)
{
	struct rp_tcp_stack *s = tcp_stack_of(c);

	tcp_half_open_done(c);
	if (s->recent == c)
		s->recent = NULL;
	if (c->flags & TCPF_IN_TABLE)
		flow_remove(&s->flows, c->hash, (uint32_t)(c - s->conns));
	c->flags &= ~(TCPF_IN_TABLE | TCPF_BLOCKED);
	rp_wheel_del(&s->wheel, &c->wheel);
	c->timer_ns = c->ack_deadline_ns = c->life_ns = c->reo_ns = RP_NEVER;
	tcp_sendq_free(c);
	tcp_ooo_free(c);
	if (c->neigh) {
		rp_neigh_unref(s->net, c->neigh, &c->neigh_user);
		c->neigh = NULL;
	}
}

void tcp_conn_kill(struct tcp_conn *c)
{
	struct rp_tcp_stack *s = tcp_stack_of(c);

	if (c->flags & TCPF_DEAD)
		return;
	if (c->state != TCPS_CLOSED)
		tcp_set_state(c, TCPS_CLOSED);
	tcp_conn_release(c);
	tcp_chain_free(&c->rx);
	rp_list_unlink(&c->dirty);
	c->flags |= TCPF_DEAD;
	s->dead[s->dead_count++] = c;
}

void tcp_conn_close(struct tcp_conn *c, enum rp_close_reason why)
{
	struct rp_tcp_counters *n = tcp_stack_of(c)->counters;

	if (c->flags & (TCPF_DEAD | TCPF_EV_CLOSE))
		return;
	if (c->state <= TCPS_SYN_RCVD)
		n->open_failed++;
	else if (why == RP_CLOSE_FIN)
		n->closed_fin++;
	else if (why == RP_CLOSE_RESET)
		n->closed_reset++;
	else if (why == RP_CLOSE_TIMEOUT)
		n->closed_timeout++;
	else
		n->closed_aborted++;
	if (!c->events) {
		tcp_conn_kill(c); /* not accepted yet: nobody knows of it */
		return;
	}
	tcp_mark_dirty(c);
	if (c->state != TCPS_CLOSED)
		tcp_set_state(c, TCPS_CLOSED);
	tcp_conn_release(c);
	c->flags |= TCPF_EV_CLOSE;
	c->close_reason = why;
}

void tcp_conn_reap(struct rp_tcp_stack *s)
{
	while (s->dead_count > 0) {
		struct tcp_conn *c = s->dead[--s->dead_count];

		c->next_free = s->conn_free;
		s->conn_free = (uint32_t)(c - s->conns);
		s->conn_count--;
	}
}
