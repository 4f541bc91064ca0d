/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include <base/assert.h>
#include <base/mbuf.h>
#include <link/chain.h>

#include "deliver_priv.h"

static uint64_t token_of(const struct dl_flow *f)
{
	return (uint64_t)f->unary_gen << 32 | (dl_slab_index(&f->peer->d->flows, f) + 1);
}

static struct dl_flow *flow_of(struct rp_deliver *d, uint64_t token)
{
	uint32_t index = (uint32_t)token;
	struct dl_flow *f = index > 0 ? dl_slab_at(&d->flows, index - 1) : NULL;

	return f && f->live && f->unary_busy && f->unary_gen == token >> 32 ? f : NULL;
}

void dl_unary_next(struct dl_flow *f, uint64_t now_ns)
{
	struct dl_peer *p = f->peer;

	RP_ASSERT(f->unary && !f->unary_busy);
	if (f->count == 0) {
		dl_flow_release(f);
		return;
	}
	/* Waiting out a STALL keeps its time, whatever comes in behind. */
	if (f->retry_ns > now_ns && !rp_list_empty(&f->unary_entry) && dl_peer_can_unary(p))
		return;
	if (p->up && ((f->reopen && f->unary_left == 0) || !dl_peer_can_unary(p))) {
		dl_flow_to_stream(f, now_ns);
		return;
	}
	if (dl_peer_can_unary(p) && rp_list_empty(&f->unary_entry)) {
		rp_list_push_back(&p->unary_ready, &f->unary_entry);
		dl_peer_mark(p);
	}
}

static void peer_back_off(struct dl_peer *p, uint64_t now_ns)
{
	p->unary_backoff_ns = RP_MIN(
		RP_MAX(2 * p->unary_backoff_ns, DL_UNARY_BACKOFF_NS_MIN), DL_UNARY_BACKOFF_NS_MAX);
	p->unary_retry_at_ns = now_ns + p->unary_backoff_ns;
	p->d->retry_at_ns = RP_MIN(p->d->retry_at_ns, p->unary_retry_at_ns);
}

static struct rte_mbuf *flat_frame(struct rp_deliver *d, const struct dl_msg *m)
{
	struct rp_frame_header h = {.handle = m->q.hash, .length = m->bytes};
	const struct dl_extra extra = {.has_total = m->bytes > 0, .total = m->bytes};
	struct dl_cursor cursor = {.segment = m->q.payload, .left = m->bytes};
	uint8_t head[DL_HEAD_BYTES_MAX];
	struct rp_qmsg q = m->q;
	uint32_t n;

	if (q.process.kind)
		q.process.left_us =
			rp_process_left_us(q.process.left_us, q.process.left_ns, d->now_ns);
	n = dl_encode(&h, &q, &extra, true, head);
	return dl_frame_build(d, head, n, &cursor, m->bytes);
}

static bool flow_call(struct dl_flow *f, uint64_t now_ns)
{
	struct dl_peer *p = f->peer;
	struct rp_deliver *d = p->d;
	struct dl_msg *m = rp_list_entry(f->messages.next, struct dl_msg, entry);
	struct rte_mbuf *frame = flat_frame(d, m);

	f->unary_gen++;
	if (!frame)
		return false;
	/* Before the call: its answer may come from inside of it. */
	f->unary_busy = true;
	p->unary_outstanding++;
	m->sent = true;
	if (d->ops.unary_send(d->ctx, p->node, f->hash, frame, token_of(f)) == 0)
		return true;
	rte_pktmbuf_free(frame);
	f->unary_busy = false;
	m->sent = false;
	p->unary_outstanding--;
	return false;
}

void dl_unary_pump(struct dl_peer *p, uint64_t now_ns)
{
	while (!rp_list_empty(&p->unary_ready) && dl_peer_can_unary(p) &&
		p->unary_outstanding < p->d->config.unary_window &&
		now_ns >= p->unary_retry_at_ns) {
		struct dl_flow *f = rp_list_entry(p->unary_ready.next, struct dl_flow, unary_entry);

		rp_list_unlink(&f->unary_entry);
		if (!flow_call(f, now_ns)) {
			rp_list_push_front(&p->unary_ready, &f->unary_entry);
			peer_back_off(p, now_ns);
		}
	}
}

static void unary_failed(struct dl_flow *f, uint64_t now_ns)
{
	struct dl_peer *p = f->peer;
	struct dl_msg *m = rp_list_entry(f->messages.next, struct dl_msg, entry);

	p->d->counters.unary_failures++;
	/* It may have arrived before the call failed. */
	if (!(m->q.flags & RP_QMSG_REPEAT))
		p->d->counters.repeats++;
	m->q.flags |= RP_QMSG_REPEAT;
	m->sent = false;
	f->unary_busy = false;
	peer_back_off(p, now_ns);
	if (!p->up && !dl_peer_can_unary(p))
		dl_peer_lose(p, false, now_ns);
	else
		dl_unary_next(f, now_ns);
}

static void unary_answered(
	struct dl_flow *f, const struct rp_deliver_answer *answer, uint64_t now_ns)
{
	struct dl_peer *p = f->peer;
	struct rp_deliver *d = p->d;
	struct dl_msg *m = dl_flow_pop(f);

	if (f->kind == DL_CONTROL) {
		d->counters.controls_unary++;
	} else if (answer->status == RP_Q_OK) {
		if (f->kind == DL_FORWARD)
			d->counters.forwards_unary++;
		else
			d->counters.deliveries_unary++;
		d->counters.took++;
		dl_flow_note(f, RP_DELIVER_NOTE_UNARY, 0);
		d->ops.on_took(d->ctx, p->node, &m->q, now_ns);
	} else {
		d->counters.refused[answer->status]++;
		d->ops.on_refused(d->ctx, p->node, &m->q, answer->status, answer->epoch,
			answer->dispatcher, now_ns);
		m->q.payload = NULL;
	}
	dl_msg_free(d, m);
	/* Only now: what the upcall sent must not have started the flow again. */
	f->unary_busy = false;
	if (f->unary_left > 0)
		f->unary_left--;
	if (!p->up && !dl_peer_can_unary(p))
		dl_peer_lose(p, false, now_ns);
	else
		dl_unary_next(f, now_ns);
}

void rp_deliver_unary_result(struct rp_deliver *d, uint64_t token, int error,
	const struct rp_deliver_answer *answer, uint64_t now_ns)
{
	struct dl_flow *f = flow_of(d, token);
	struct dl_peer *p;

	if (!f)
		return;
	p = f->peer;
	p->unary_outstanding--;
	dl_peer_mark(p);
	if (error != 0 || (unsigned)answer->status >= RP_QSTATUS_COUNT) {
		unary_failed(f, now_ns);
		return;
	}
	p->unary_backoff_ns = p->unary_retry_at_ns = 0;
	if (answer->status == RP_Q_STALL && dl_peer_can_unary(p)) {
		f->unary_busy = false;
		rp_list_entry(f->messages.next, struct dl_msg, entry)->sent = false;
		dl_flow_park(f, now_ns);
		return;
	}
	unary_answered(f, answer, now_ns);
}

void dl_unary_timers(struct rp_deliver *d, uint64_t now_ns)
{
	while (!rp_list_empty(&d->waiting)) {
		struct dl_flow *f = rp_list_entry(d->waiting.next, struct dl_flow, unary_entry);

		if (f->retry_ns > now_ns)
			break;
		rp_list_unlink(&f->unary_entry);
		if (f->unary) {
			dl_unary_next(f, now_ns);
			continue;
		}
		if (f->count == 0)
			dl_flow_release(f);
		else if (f->peer->d->txs.taken < f->peer->d->txs.count || f->tx)
			dl_flow_to_stream(f, now_ns);
		else
			dl_flow_refuse(f, RP_Q_LIMIT, now_ns);
	}
	if (d->retry_at_ns <= now_ns) {
		d->retry_at_ns = RP_NEVER;
		for (uint32_t i = 0; i < d->peer_count; i++) {
			struct dl_peer *p = &d->peers[i];

			if (rp_list_empty(&p->unary_ready))
				continue;
			if (p->unary_retry_at_ns <= now_ns)
				dl_peer_mark(p);
			else
				d->retry_at_ns = RP_MIN(d->retry_at_ns, p->unary_retry_at_ns);
		}
	}
}

int rp_deliver_unary_shard(const void *frame, size_t length, uint32_t shards)
{
	struct rp_frame_header h;

	if (length < RP_FRAME_HEADER_BYTES)
		return -EINVAL;
	rp_frame_header_read(&h, frame);
	if (dl_qmsg_type(h.type) == RP_QMSG_TYPE_COUNT)
		return -EINVAL;
	return (int)rp_hash_pick(h.handle, shards);
}

static bool flat_decode(struct rp_deliver *d, const struct rte_mbuf *frame, struct rp_qmsg *m,
	uint8_t *name, uint32_t *head_length)
{
	uint8_t buffer[DL_HEAD_BYTES_MAX];
	struct rp_frame_header h;
	struct dl_extra extra;
	struct rp_reader r;
	uint32_t n, fields;
	const uint8_t *head = dl_head_of(frame, buffer, &n);

	if (n < RP_FRAME_HEADER_BYTES)
		return false;
	rp_frame_header_read(&h, head);
	r = rp_reader_of(head + RP_FRAME_HEADER_BYTES, n - RP_FRAME_HEADER_BYTES);
	if (h.length != frame->pkt_len - RP_FRAME_HEADER_BYTES || !dl_decode(&h, &r, m, &extra) ||
		!m->name || (h.flags & (RP_FRAME_MORE | RP_FRAME_CONT)) ||
		rp_queue_hash(m->name, m->name_length) != h.handle)
		return false;
	fields = (uint32_t)(r.pos - head) - RP_FRAME_HEADER_BYTES;
	if (h.length - fields != extra.total)
		return false;
	m->hash = h.handle;
	memcpy(name, m->name, m->name_length);
	m->name = name;
	*head_length = extra.total > 0 ? RP_FRAME_HEADER_BYTES + fields : 0;
	return true;
}

int rp_deliver_on_unary(struct rp_deliver *d, uint64_t node, struct rte_mbuf *frame,
	struct rp_deliver_answer *answer, uint64_t now_ns)
{
	struct dl_peer *p = dl_peer_of(d, node);
	uint8_t name[RP_NAME_BYTES_MAX];
	uint32_t head_length;
	struct rp_qmsg m;
	int rc;

	if (!flat_decode(d, frame, &m, name, &head_length)) {
		d->counters.violations[RP_DELIVER_VIOLATION_FIELDS]++;
		rte_pktmbuf_free(frame);
		return -EINVAL;
	}
	*answer = (struct rp_deliver_answer){
		.status = RP_Q_OK, .epoch = m.epoch, .dispatcher = m.dispatcher};
	if (head_length > 0) {
		rp_chain_skip(&frame, head_length);
		m.payload = frame;
	} else {
		rte_pktmbuf_free(frame);
	}
	if (m.payload && !dl_payload_gather(d, &m.payload, rp_qmsg_head_bytes(&m))) {
		rte_pktmbuf_free(m.payload);
		answer->status = RP_Q_STALL;
		return 0;
	}
	if (m.type != RP_QMSG_FORWARD && m.type != RP_QMSG_DELIVER) {
		d->counters.received_control++;
		d->counters.received_unary++;
		d->ops.on_msg(d->ctx, node, &m, &answer->epoch, &answer->dispatcher, now_ns);
		return 0;
	}
	if ((m.flags & RP_QMSG_REPEAT) && p)
		dl_rx_supersede(p, &m);
	if (m.payload && m.payload->pkt_len - rp_qmsg_head_bytes(&m) > d->config.message_bytes_max)
		rc = RP_Q_TOO_LARGE;
	else
		rc = d->ops.on_msg(d->ctx, node, &m, &answer->epoch, &answer->dispatcher, now_ns);
	if (rc == RP_DELIVER_HOLD) {
		d->counters.held++;
		rc = RP_Q_STALL;
	}
	if (rc == RP_Q_OK) {
		d->counters.received++;
		d->counters.received_unary++;
	} else {
		rc = rc < 0 || rc >= RP_QSTATUS_COUNT ? RP_Q_INVALID : rc;
		d->counters.refused_here[rc]++;
		rte_pktmbuf_free(m.payload);
	}
	answer->status = (enum rp_qstatus)rc;
	return 0;
}
