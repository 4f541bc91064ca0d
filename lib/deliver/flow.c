/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include <base/assert.h>
#include <base/mbuf.h>
#include <base/seq32.h>

#include "deliver_priv.h"

static enum dl_kind kind_of(enum rp_qmsg_type type)
{
	if (type == RP_QMSG_FORWARD)
		return DL_FORWARD;
	return type == RP_QMSG_DELIVER ? DL_DELIVER : DL_CONTROL;
}

static uint32_t flow_slot(
	const struct rp_deliver *d, const struct dl_peer *p, enum dl_kind kind, uint32_t hash)
{
	uint32_t peer = (uint32_t)(p - d->peers);

	return ((hash ^ peer * 0x85ebca6bu) * 0x9e3779b1u + (uint32_t)kind) & d->flow_mask;
}

static struct dl_flow *flow_create(
	struct rp_deliver *d, struct dl_peer *p, enum dl_kind kind, const struct rp_qmsg *m)
{
	struct dl_flow *f = dl_slab_get(&d->flows);
	uint32_t slot = flow_slot(d, p, kind, m->hash), gen;

	if (!f)
		return NULL;
	gen = f->unary_gen;
	*f = (struct dl_flow){
		.live = true,
		.kind = kind,
		.peer = p,
		.hash = m->hash,
		.name_length = (uint8_t)m->name_length,
		/* Never twice the same for one place, so that a late answer finds no other flow. */
		.unary_gen = gen,
		.hash_next = d->flow_heads[slot],
	};
	memcpy(f->name, m->name, m->name_length);
	d->flow_heads[slot] = f;
	rp_list_init(&f->in_peer);
	rp_list_init(&f->ready);
	rp_list_init(&f->timer);
	rp_list_init(&f->unary_entry);
	rp_list_init(&f->messages);
	rp_list_push_back(&p->flows, &f->in_peer);
	return f;
}

struct dl_flow *dl_flow_find(
	struct rp_deliver *d, struct dl_peer *p, enum dl_kind kind, const struct rp_qmsg *m)
{
	struct dl_flow *f = d->flow_heads[flow_slot(d, p, kind, m->hash)];

	for (; f; f = f->hash_next) {
		if (f->peer == p && f->kind == kind && f->name_length == m->name_length &&
			memcmp(f->name, m->name, m->name_length) == 0)
			return f;
	}
	return NULL;
}

static void flow_unhash(struct dl_flow *f)
{
	struct rp_deliver *d = f->peer->d;
	struct dl_flow **at = &d->flow_heads[flow_slot(d, f->peer, f->kind, f->hash)];

	while (*at != f)
		at = &(*at)->hash_next;
	*at = f->hash_next;
	f->hash_next = NULL;
}

static void flow_free(struct dl_flow *f)
{
	RP_ASSERT(rp_list_empty(&f->messages) && !f->tx);
	rp_list_unlink(&f->in_peer);
	rp_list_unlink(&f->ready);
	rp_list_unlink(&f->timer);
	rp_list_unlink(&f->unary_entry);
	f->live = false;
	dl_slab_put(&f->peer->d->flows, f);
}

void dl_flow_release(struct dl_flow *f)
{
	if (f->count > 0 || f->tx || f->unary_busy)
		return;
	flow_unhash(f);
	flow_free(f);
}

bool dl_head_allowed(const struct dl_peer *p)
{
	uint32_t max = p->d->config.peer_frames_max;

	return max == 0 || p->frames_open < max;
}

/* One more frame of the message is out. */
static void frame_count(struct dl_peer *p, struct dl_msg *m)
{
	m->frames++;
	p->frames_open++;
}

/* The message is answered, or its frames are lost. */
static void frames_done(struct dl_peer *p, struct dl_msg *m)
{
	p->frames_open -= m->frames;
	m->frames = 0;
	if (!dl_head_allowed(p) || (rp_list_empty(&p->gated) && rp_list_empty(&p->lane)))
		return;
	rp_list_splice_back(&p->ready, &p->gated);
	dl_peer_mark(p);
}

void dl_msg_free(struct rp_deliver *d, struct dl_msg *m)
{
	rte_pktmbuf_free(m->q.payload);
	dl_slab_put(&d->messages, m);
}

static void room_check(struct dl_flow *f)
{
	struct dl_peer *p = f->peer;
	const struct rp_deliver_config *config = &p->d->config;

	if (f->room_wanted && f->count <= config->stream_messages_max / 2) {
		f->room_wanted = false;
		p->room_due = true;
	}
	if (p->room_wanted && p->messages <= config->peer_messages_max / 2) {
		p->room_wanted = false;
		p->room_due = true;
	}
	if (p->room_due)
		dl_peer_mark(p);
}

struct dl_msg *dl_flow_pop(struct dl_flow *f)
{
	struct rp_list *n = rp_list_pop_front(&f->messages);
	struct dl_msg *m;

	if (!n)
		return NULL;
	m = rp_list_entry(n, struct dl_msg, entry);
	rp_list_unlink(&m->lane);
	if (f->next == m) {
		f->next = NULL;
		f->started = false;
	}
	f->count--;
	f->peer->messages--;
	frames_done(f->peer, m);
	room_check(f);
	return m;
}

void dl_flow_touch(struct dl_flow *f, uint64_t now_ns)
{
	struct rp_deliver *d = f->peer->d;

	rp_list_unlink(&f->timer);
	f->stamp = now_ns;
	if (!f->tx)
		return;
	rp_list_push_back(f->count > 0 ? &d->busy : &d->quiet, &f->timer);
}

static bool flow_sendable(const struct dl_flow *f)
{
	const struct dl_tx *tx = f->tx;

	if (!tx || tx->state != DL_TX_OPEN || tx->returning || !f->next)
		return false;
	if (f->started)
		return tx->bytes_limit > tx->bytes_sent;
	return rp_seq_lt(tx->seq_sent, tx->msgs_limit);
}

void dl_flow_update(struct dl_flow *f)
{
	if (!flow_sendable(f) || !rp_list_empty(&f->ready))
		return;
	rp_list_push_back(&f->peer->ready, &f->ready);
	dl_peer_mark(f->peer);
}

void dl_flow_rewind(struct dl_flow *f, bool repeat)
{
	struct rp_list *n;

	rp_list_foreach (n, &f->messages) {
		struct dl_msg *m = rp_list_entry(n, struct dl_msg, entry);

		if (m->sent && repeat) {
			m->q.flags |= RP_QMSG_REPEAT;
			f->peer->d->counters.repeats++;
		}
		m->sent = false;
		frames_done(f->peer, m);
		rp_list_unlink(&m->lane);
	}
	f->next = NULL;
	f->started = false;
	rp_list_unlink(&f->ready);
	rp_list_unlink(&f->timer);
}

void dl_flow_note(const struct dl_flow *f, enum rp_deliver_note what, enum rp_deliver_fallback why)
{
	const struct rp_deliver *d = f->peer->d;

	if (d->ops.on_note && f->kind != DL_CONTROL)
		d->ops.on_note(d->ctx, f->name, f->name_length, what, why);
}

void dl_flow_fall_back(struct dl_flow *f, enum rp_deliver_fallback why, uint64_t now_ns)
{
	RP_ASSERT(!f->unary);
	if (f->tx)
		dl_tx_orphan(f->tx);
	dl_flow_rewind(f, true);
	f->unary = true;
	f->reopen = false;
	f->unary_left = f->count;
	f->peer->d->counters.fallbacks[why]++;
	dl_flow_note(f, RP_DELIVER_NOTE_FALL_BACK, why);
	dl_unary_next(f, now_ns);
}

void dl_flow_to_stream(struct dl_flow *f, uint64_t now_ns)
{
	struct dl_peer *p = f->peer;
	struct rp_list *n;

	f->unary = false;
	f->reopen = false;
	rp_list_unlink(&f->unary_entry);
	if (f->kind == DL_CONTROL) {
		rp_list_foreach (n, &f->messages)
			rp_list_push_back(&p->lane, &rp_list_entry(n, struct dl_msg, entry)->lane);
		dl_peer_mark(p);
		return;
	}
	f->next = rp_list_entry(f->messages.next, struct dl_msg, entry);
	f->started = false;
	if (!f->tx)
		f->tx = dl_tx_new(f);
	if (f->tx)
		dl_flow_touch(f, now_ns);
	else if (dl_peer_can_unary(p))
		dl_flow_fall_back(f, RP_DELIVER_FALLBACK_NO_STREAM, now_ns);
	else
		dl_flow_park(f, now_ns);
}

void dl_flow_park(struct dl_flow *f, uint64_t now_ns)
{
	rp_list_unlink(&f->unary_entry);
	f->retry_ns = now_ns + DL_WAIT_NS;
	rp_list_push_back(&f->peer->d->waiting, &f->unary_entry);
}

void dl_flow_refuse(struct dl_flow *f, enum rp_qstatus status, uint64_t now_ns)
{
	struct rp_deliver *d = f->peer->d;
	struct dl_msg *m;

	/* Bounded: what the upcalls add to the flow stays for the next time. */
	for (uint32_t n = f->count; n > 0 && (m = dl_flow_pop(f)) != NULL; n--) {
		d->counters.refused[status]++;
		d->ops.on_refused(
			d->ctx, f->peer->node, &m->q, status, m->q.epoch, m->q.dispatcher, now_ns);
		m->q.payload = NULL;
		dl_msg_free(d, m);
	}
	if (f->count > 0)
		dl_flow_park(f, now_ns);
	else
		dl_flow_release(f);
}

/* Out of the table first: an upcall may send again, and must not find it. */
static void flow_take_out(struct dl_flow *f, struct rp_list *gone)
{
	if (f->unary_busy)
		f->peer->unary_outstanding--;
	f->unary_busy = false;
	f->unary_gen++;
	if (f->tx)
		dl_tx_orphan(f->tx);
	dl_flow_rewind(f, true);
	rp_list_unlink(&f->unary_entry);
	flow_unhash(f);
	rp_list_unlink(&f->in_peer);
	rp_list_push_back(gone, &f->in_peer);
}

static void flows_lose(struct dl_peer *p, struct rp_list *gone, uint64_t now_ns)
{
	struct rp_deliver *d = p->d;
	struct rp_list *n;

	while ((n = rp_list_pop_front(gone)) != NULL) {
		struct dl_flow *f = rp_list_entry(n, struct dl_flow, in_peer);
		struct dl_msg *m;

		while ((m = dl_flow_pop(f)) != NULL) {
			d->counters.lost++;
			d->ops.on_lost(d->ctx, p->node, &m->q, now_ns);
			m->q.payload = NULL;
			dl_msg_free(d, m);
		}
		flow_free(f);
	}
}

void dl_peer_lose(struct dl_peer *p, bool with_busy, uint64_t now_ns)
{
	struct rp_list gone, *n, *t;

	rp_list_init(&gone);
	rp_list_foreach_safe (n, t, &p->flows) {
		struct dl_flow *f = rp_list_entry(n, struct dl_flow, in_peer);

		if (!f->unary_busy || with_busy)
			flow_take_out(f, &gone);
	}
	flows_lose(p, &gone, now_ns);
}

void rp_deliver_part(struct rp_deliver *d,
	bool (*apart)(void *ctx, struct rp_span name, uint64_t node), void *ctx, uint64_t now_ns)
{
	for (uint32_t i = 0; i < d->peer_count; i++) {
		struct dl_peer *p = &d->peers[i];
		struct rp_list gone, *n, *t;

		rp_list_init(&gone);
		rp_list_foreach_safe (n, t, &p->flows) {
			struct dl_flow *f = rp_list_entry(n, struct dl_flow, in_peer);

			if (f->kind != DL_CONTROL &&
				apart(ctx, (struct rp_span){f->name, f->name_length}, p->node))
				flow_take_out(f, &gone);
		}
		flows_lose(p, &gone, now_ns);
	}
}

/* One frame of the flow's next message. False: nothing sent (no credit, or no buffers). */
bool dl_flow_pump(struct dl_flow *f)
{
	struct rp_deliver *d = f->peer->d;
	struct dl_tx *tx = f->tx;
	struct dl_msg *m = f->next;
	const struct dl_extra extra = {.has_total = m && m->bytes > 0, .total = m ? m->bytes : 0};
	struct rp_frame_header h = {0};
	bool head = !f->started;
	uint64_t n;

	if (!flow_sendable(f))
		return false;
	if (d->frames_spare == 0) {
		d->counters.no_buffers++;
		return false;
	}
	if (head && !dl_head_allowed(f->peer)) {
		rp_list_push_back(&f->peer->gated, &f->ready);
		return false;
	}
	n = RP_MIN((uint64_t)(head ? m->bytes : f->cursor.left), tx->bytes_limit - tx->bytes_sent);
	n = RP_MIN(n, (uint64_t)RP_FRAME_CHUNK_BYTES);
	h.handle = tx->remote;
	if (!dl_frame_send(f->peer, m, &h, &f->cursor, &f->started, (uint32_t)n, &extra, false))
		return false;
	d->frames_spare--;
	tx->bytes_sent += n;
	m->sent = true;
	frame_count(f->peer, m);
	if (head)
		tx->seq_sent++;
	if (f->cursor.left == 0) {
		tx->seq_complete++;
		f->started = false;
		f->next = m->entry.next == &f->messages
				  ? NULL
				  : rp_list_entry(m->entry.next, struct dl_msg, entry);
		if (f->kind == DL_FORWARD)
			d->counters.forwards_streamed++;
		else
			d->counters.deliveries_streamed++;
	}
	return true;
}

/* One frame of the control message at the head of the lane. */
bool dl_lane_pump(struct dl_peer *p)
{
	struct rp_deliver *d = p->d;
	struct dl_msg *m = rp_list_entry(p->lane.next, struct dl_msg, lane);
	struct dl_extra extra = {
		.has_total = m->bytes > 0,
		.total = m->bytes,
		.has_seq = true,
		.seq_shard = (uint8_t)d->config.shard,
		.seq = p->ring_tail,
	};
	struct rp_frame_header h = {.handle = m->q.hash};
	bool head = !p->lane_started;
	uint32_t n;

	if (head && (p->ring_tail - p->ring_head > d->ring_mask || !dl_head_allowed(p)))
		return false;
	n = RP_MIN(head ? m->bytes : p->lane_cursor.left, (uint32_t)RP_FRAME_CHUNK_BYTES);
	if (!dl_frame_send(p, m, &h, &p->lane_cursor, &p->lane_started, n, &extra, true))
		return false;
	if (head) {
		m->sent = true;
		m->seq = p->ring_tail;
		p->ring[p->ring_tail++ & d->ring_mask] = m;
	}
	frame_count(p, m);
	if (p->lane_cursor.left == 0) {
		p->lane_started = false;
		rp_list_unlink(&m->lane);
		d->counters.controls_framed++;
	}
	return true;
}

void dl_control_confirm(struct dl_peer *p, const struct dl_control_took *t)
{
	struct rp_deliver *d = p->d;

	if (rp_seq_geq(t->seq, p->ring_tail)) {
		dl_violation(p, RP_DELIVER_VIOLATION_SEQUENCE);
		return;
	}
	for (uint32_t s = p->ring_head; rp_seq_leq(s, t->seq); s++) {
		struct dl_msg **at = &p->ring[s & d->ring_mask], *m = *at;
		struct dl_flow *f;

		/* The message whose chunks are still going out cannot have been taken. */
		if (!m || rp_hash_pick(m->q.hash, t->shards) != t->shard ||
			rp_hash_pick(m->q.hash, t->links) != t->link || !rp_list_empty(&m->lane))
			continue;
		f = m->flow;
		*at = NULL;
		rp_list_unlink(&m->entry);
		f->count--;
		p->messages--;
		frames_done(p, m);
		room_check(f);
		dl_msg_free(d, m);
		dl_flow_release(f);
	}
	while (p->ring_head != p->ring_tail && !p->ring[p->ring_head & d->ring_mask])
		p->ring_head++;
}

void dl_control_reset(struct dl_peer *p)
{
	for (; p->ring_head != p->ring_tail; p->ring_head++)
		p->ring[p->ring_head & p->d->ring_mask] = NULL;
	p->lane_started = false;
	/* Sequences begin anew with each bundle, as the peer's memory of them does. */
	p->ring_head = p->ring_tail = 1;
}

static int send_check(struct rp_deliver *d, const struct rp_qmsg *m)
{
	uint32_t bytes = m->payload ? m->payload->pkt_len : 0;

	if ((unsigned)m->type >= RP_QMSG_TYPE_COUNT || m->name_length == 0 ||
		m->name_length > RP_NAME_BYTES_MAX || m->tail_length > RP_TAIL_BYTES_MAX ||
		rp_qmsg_head_bytes(m) > bytes || (unsigned)m->status >= RP_QSTATUS_COUNT)
		return -EINVAL;
	return bytes - rp_qmsg_head_bytes(m) > d->config.message_bytes_max ? -EMSGSIZE : 0;
}

/* The flow for a message that is about to be sent; NULL: there is no room. */
static struct dl_flow *flow_for(struct rp_deliver *d, struct dl_peer *p, const struct rp_qmsg *m)
{
	enum dl_kind kind = kind_of(m->type);
	struct dl_flow *f = dl_flow_find(d, p, kind, m);

	if (p->messages >= d->config.peer_messages_max || d->messages.taken == d->messages.count) {
		p->room_wanted = true;
		return NULL;
	}
	if (f && f->count >= d->config.stream_messages_max) {
		f->room_wanted = true;
		return NULL;
	}
	if (f)
		return f;
	/* No stream to be had, and no other way: say so before anything is taken. */
	if (kind != DL_CONTROL && p->up && !dl_peer_can_unary(p) && d->txs.taken == d->txs.count) {
		p->room_wanted = true;
		return NULL;
	}
	f = flow_create(d, p, kind, m);
	if (!f) {
		p->room_wanted = true;
		return NULL;
	}
	if (!p->up) {
		f->unary = true;
		d->counters.fallbacks[RP_DELIVER_FALLBACK_LINK_DOWN]++;
		dl_flow_note(f, RP_DELIVER_NOTE_FALL_BACK, RP_DELIVER_FALLBACK_LINK_DOWN);
	}
	return f;
}

static struct dl_msg *flow_append(struct rp_deliver *d, struct dl_flow *f, const struct rp_qmsg *m)
{
	struct dl_msg *e = dl_slab_get(&d->messages);

	RP_ASSERT(e);
	*e = (struct dl_msg){
		.flow = f,
		.q = *m,
		.bytes = m->payload ? m->payload->pkt_len : 0,
		.answer = DL_UNANSWERED,
	};
	e->q.name = f->name;
	f->epoch = m->epoch;
	f->dispatcher = m->dispatcher;
	rp_list_init(&e->lane);
	rp_list_push_back(&f->messages, &e->entry);
	f->count++;
	f->peer->messages++;
	return e;
}

int rp_deliver_send(struct rp_deliver *d, uint64_t node, const struct rp_qmsg *m, uint64_t now_ns)
{
	struct dl_peer *p = dl_peer_of(d, node);
	struct dl_flow *f;
	struct dl_msg *e;
	int rc = send_check(d, m);

	d->now_ns = now_ns;

	if (rc != 0)
		return rc;
	if (!p || (!p->up && !dl_peer_can_unary(p)))
		return -ENETUNREACH;
	f = flow_for(d, p, m);
	if (!f) {
		d->counters.queue_full++;
		return -ENOBUFS;
	}
	e = flow_append(d, f, m);
	if (f->unary) {
		if (p->up && now_ns >= f->reopen_ns)
			f->reopen = true;
		if (!f->unary_busy)
			dl_unary_next(f, now_ns);
		return 0;
	}
	if (f->kind == DL_CONTROL) {
		rp_list_push_back(&p->lane, &e->lane);
		dl_peer_mark(p);
		return 0;
	}
	/* A parked flow waits its time out. */
	if (!f->tx && !rp_list_empty(&f->unary_entry))
		return 0;
	if (!f->next)
		f->next = e;
	if (!f->tx)
		dl_flow_to_stream(f, now_ns);
	else if (f->count == 1)
		dl_flow_touch(f, now_ns);
	dl_flow_update(f);
	return 0;
}
