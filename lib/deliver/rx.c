/* SPDX-License-Identifier: Apache-2.0 */
#include <base/assert.h>
#include <base/mbuf.h>
#include <base/seq32.h>
#include <link/chain.h>

#include "deliver_priv.h"

void dl_rx_want(struct dl_rx *rx, uint8_t want)
{
	rx->wants |= want;
	if (rp_list_empty(&rx->dirty))
		rp_list_push_back(&rx->peer->dirty_rx, &rx->dirty);
	dl_peer_mark(rx->peer);
}

static uint32_t rx_handle(const struct dl_rx *rx)
{
	const struct rp_deliver *d = rx->peer->d;

	return d->config.shard << 24 | DL_SLOT_RX | dl_slab_index(&d->rxs, rx);
}

static bool emit_opened(struct dl_peer *p, uint32_t hash, uint32_t remote,
	const struct dl_opened *o, uint32_t epoch, uint64_t dispatcher)
{
	uint8_t body[DL_OPENED_BYTES];
	struct rp_frame_header h = {
		.type = RP_FRAME_OPENED,
		.handle = remote,
		.epoch = epoch,
		.dispatcher = dispatcher,
	};

	return dl_emit_small(p, hash, &h, body, dl_opened_write(o, body));
}

void dl_rx_open(struct dl_peer *p, const struct rp_frame_header *h, const struct dl_open *o)
{
	struct rp_deliver *d = p->d;
	struct dl_rx *rx = dl_slab_get(&d->rxs);

	if (!rx) {
		const struct dl_opened refusal = {.status = RP_Q_LIMIT};

		d->counters.refused_here[RP_Q_LIMIT]++;
		/* Beyond the backlog the opener's own patience has to do. */
		if (p->backlog_count >= DL_BACKLOG_FRAMES ||
			!emit_opened(p, h->handle, o->handle, &refusal, h->epoch, h->dispatcher))
			d->counters.frames_unsent++;
		return;
	}
	*rx = (struct dl_rx){
		.live = true,
		.kind = o->kind,
		.peer = p,
		.hash = h->handle,
		.remote = o->handle,
		.name_length = o->name_length,
		.epoch = h->epoch,
		.dispatcher = h->dispatcher,
	};
	memcpy(rx->name, o->name, o->name_length);
	rp_list_init(&rx->dirty);
	rp_list_init(&rx->needy);
	rp_list_init(&rx->hold_entry);
	rp_list_init(&rx->held);
	rp_list_push_back(&p->rxs, &rx->in_peer);
	p->rx_count++;
	p->rx_links[dl_link_of(d, rx->hash)]++;
	d->counters.streams_accepted++;
	dl_credit_begin(rx);
	dl_rx_want(rx, DL_RX_WANT_OPENED);
}

static void rx_drop_messages(struct dl_rx *rx)
{
	struct rp_deliver *d = rx->peer->d;
	struct rp_list *n;

	if (rx->partial)
		d->counters.partial_dropped++;
	rte_pktmbuf_free(rx->q.payload);
	rx->q.payload = NULL;
	rx->partial = false;
	rx->holding = false;
	rp_list_unlink(&rx->hold_entry);
	while ((n = rp_list_pop_front(&rx->held)) != NULL) {
		struct dl_msg *m = rp_list_entry(n, struct dl_msg, entry);

		rte_pktmbuf_free(m->q.payload);
		dl_slab_put(&d->parked, m);
	}
}

void dl_rx_free(struct dl_rx *rx)
{
	struct dl_peer *p = rx->peer;

	rx_drop_messages(rx);
	dl_credit_end(rx);
	rp_list_unlink(&rx->in_peer);
	rp_list_unlink(&rx->dirty);
	p->rx_count--;
	p->rx_links[dl_link_of(p->d, rx->hash)]--;
	rx->live = false;
	dl_slab_put(&p->d->rxs, rx);
	dl_credit_shares(p);
}

void dl_rx_close(struct dl_rx *rx, const struct rp_frame_header *h)
{
	struct dl_peer *p = rx->peer;

	if (rx->resetting && !rx->peer_closed) {
		rx->peer_closed = true;
		if (!(rx->wants & DL_RX_WANT_CLOSE))
			dl_rx_free(rx);
		return;
	}
	if ((rx->wants & DL_RX_WANT_CLOSE) ||
		(!(h->flags & RP_FRAME_RESET) && (rx->partial || !rp_list_empty(&rx->held)))) {
		dl_violation(p, RP_DELIVER_VIOLATION_ORDER);
		return;
	}
	rx_drop_messages(rx);
	dl_credit_end(rx);
	/* Credit and process are moot; an OPENED that waits still has to go before the CLOSE. */
	rx->wants &= DL_RX_WANT_OPENED;
	dl_rx_want(rx, DL_RX_WANT_CLOSE);
	dl_credit_serve(p);
}

void dl_rx_reset(struct dl_rx *rx)
{
	struct dl_peer *p = rx->peer;

	p->d->counters.streams_reset++;
	rx_drop_messages(rx);
	dl_credit_end(rx);
	rx->resetting = true;
	rx->wants &= DL_RX_WANT_OPENED;
	dl_rx_want(rx, DL_RX_WANT_CLOSE);
	dl_credit_serve(p);
}

void dl_rx_return(struct dl_rx *rx)
{
	if (rx->resetting)
		return;
	if ((rx->wants & (DL_RX_WANT_CLOSE | DL_RX_WANT_RETURNED)) || rx->partial ||
		!rp_list_empty(&rx->held)) {
		dl_violation(rx->peer, RP_DELIVER_VIOLATION_ORDER);
		return;
	}
	dl_credit_end(rx);
	rx->bytes_limit = rx->bytes_received;
	rx->msgs_limit = rx->seq_done + rx->peer->d->share_messages;
	rx->wants &= (uint8_t)~DL_RX_WANT_CREDIT;
	dl_rx_want(rx, DL_RX_WANT_RETURNED);
	dl_credit_serve(rx->peer);
}

static bool rx_emit_took(struct dl_rx *rx)
{
	uint8_t body[DL_TOOK_BYTES];
	struct rp_frame_header h = {
		.type = RP_FRAME_TOOK,
		.handle = rx->remote,
		.epoch = rx->epoch,
		.dispatcher = rx->dispatcher,
	};

	if (rx->took == rx->took_sent)
		return true;
	if (rx->peer->blocked ||
		!dl_emit_small(rx->peer, rx->hash, &h, body, dl_took_write(rx->took, body)))
		return false;
	rx->took_sent = rx->took;
	return true;
}

static bool rx_emit_refused(struct dl_rx *rx, const struct dl_msg *m)
{
	uint8_t body[DL_REFUSED_BYTES];
	struct rp_frame_header h = {
		.type = RP_FRAME_REFUSED,
		.handle = rx->remote,
		.epoch = m->answer_epoch,
		.dispatcher = m->answer_dispatcher,
	};
	const struct dl_refused f = {.seq = rx->seq_done + 1, .status = (uint8_t)m->answer};

	if (!rx_emit_took(rx) || rx->peer->blocked ||
		!dl_emit_small(rx->peer, rx->hash, &h, body, dl_refused_write(&f, body)))
		return false;
	/* Whatever was taken before is answered too; a later TOOK counts from here. */
	rx->took = rx->took_sent = f.seq;
	rx->peer->d->counters.refused_here[m->answer]++;
	return true;
}

/* The answer to one message; false: it has to wait (held, or the link has no room). */
static bool rx_answer(struct dl_rx *rx, struct dl_msg *m, uint64_t now_ns)
{
	struct dl_peer *p = rx->peer;
	struct rp_deliver *d = p->d;

	if (m->answer == DL_UNANSWERED) {
		m->answer_epoch = m->q.epoch;
		m->answer_dispatcher = m->q.dispatcher;
		m->answer = d->ops.on_msg(
			d->ctx, p->node, &m->q, &m->answer_epoch, &m->answer_dispatcher, now_ns);
		if (m->answer == RP_Q_OK)
			m->q.payload = NULL;
		if (m->answer < 0 || m->answer > RP_DELIVER_HOLD)
			m->answer = RP_Q_INVALID;
	}
	if (m->answer == RP_DELIVER_HOLD) {
		d->counters.held++;
		m->answer = DL_UNANSWERED;
		rx->holding = true;
		if (rp_list_empty(&rx->hold_entry))
			rp_list_push_back(&d->holding, &rx->hold_entry);
		return false;
	}
	if (m->answer != RP_Q_OK) {
		if (!rx_emit_refused(rx, m)) {
			dl_rx_want(rx, DL_RX_WANT_PROCESS);
			return false;
		}
	} else {
		rx->took = rx->seq_done + 1;
		d->counters.received++;
		dl_rx_want(rx, 0);
	}
	rte_pktmbuf_free(m->q.payload);
	m->q.payload = NULL;
	rx->seq_done++;
	rx->bytes_resolved += m->bytes;
	return true;
}

void dl_rx_process(struct dl_rx *rx, uint64_t now_ns)
{
	struct rp_deliver *d = rx->peer->d;
	bool done = false;

	rx->holding = false;
	rp_list_unlink(&rx->hold_entry);
	while (!rp_list_empty(&rx->held)) {
		struct dl_msg *m = rp_list_entry(rx->held.next, struct dl_msg, entry);

		if (!rx_answer(rx, m, now_ns))
			break;
		rp_list_unlink(&m->entry);
		dl_slab_put(&d->parked, m);
		done = true;
	}
	if (done)
		dl_credit_release(rx);
	/* Asked once more and still held: it is given up for those that wait for its grant. */
	if (rx->holding && rx->peer->whole == rx && !rp_list_empty(&rx->peer->needy))
		dl_rx_reset(rx);
}

/* A message is whole. The common case is answered on the spot and never parked. */
static void rx_complete(struct dl_rx *rx, struct dl_msg *now, uint64_t now_ns)
{
	struct dl_peer *p = rx->peer;
	struct rp_deliver *d = p->d;
	struct dl_msg *m;

	if (now->answer == DL_UNANSWERED &&
		!dl_payload_gather(d, &now->q.payload, rp_qmsg_head_bytes(&now->q)))
		now->answer = RP_Q_LIMIT;
	if (rp_list_empty(&rx->held) && !rx->holding && rx_answer(rx, now, now_ns)) {
		dl_credit_release(rx);
		return;
	}
	m = dl_slab_get(&d->parked);
	if (!m) {
		/* Only a peer that gets far more held than it may is met by this. */
		rte_pktmbuf_free(now->q.payload);
		dl_violation(p, RP_DELIVER_VIOLATION_CREDIT);
		return;
	}
	*m = *now;
	rp_list_init(&m->lane);
	rp_list_push_back(&rx->held, &m->entry);
	dl_credit_held(p);
}

/* Fields and sequence of a message's first frame, into `q`; false: it broke the rules. */
static bool rx_head(struct dl_rx *rx, const struct rp_frame_header *h, struct rp_reader *r,
	struct rp_qmsg *q, struct dl_extra *extra)
{
	if (rx->partial) {
		dl_violation(rx->peer, RP_DELIVER_VIOLATION_ORDER);
		return false;
	}
	if (!dl_decode(h, r, q, extra) || q->name || extra->has_seq) {
		dl_violation(rx->peer, RP_DELIVER_VIOLATION_FIELDS);
		return false;
	}
	if (!rp_seq_lt(rx->seq_head, rx->msgs_limit)) {
		dl_violation(rx->peer, RP_DELIVER_VIOLATION_CREDIT);
		return false;
	}
	rx->seq_head++;
	q->name = rx->name;
	q->name_length = rx->name_length;
	q->hash = rx->hash;
	if (rx->superseded)
		q->flags |= RP_QMSG_REPEAT;
	rx->epoch = h->epoch;
	rx->dispatcher = h->dispatcher;
	return true;
}

static bool is_too_large(const struct dl_rx *rx, const struct rp_qmsg *q, uint32_t total)
{
	return total - rp_qmsg_head_bytes(q) > rx->peer->d->config.message_bytes_max;
}

static bool rx_begin(struct dl_rx *rx, const struct rp_frame_header *h, struct rp_reader *r)
{
	struct dl_extra extra;
	struct rp_qmsg q;

	if (!rx_head(rx, h, r, &q, &extra))
		return false;
	rx->q = q;
	rx->partial = true;
	rx->partial_bytes = extra.total;
	rx->partial_end = rx->bytes_received + extra.total;
	rx->discard = is_too_large(rx, &q, extra.total);
	return true;
}

/* `n` more bytes came. False: more than the credit, or than was announced. */
static bool rx_count(struct dl_rx *rx, uint32_t n, uint64_t end, bool more)
{
	rx->bytes_received += n;
	if (rx->bytes_received <= rx->bytes_limit && rx->bytes_received <= end &&
		more == (rx->bytes_received < end))
		return true;
	dl_violation(rx->peer, rx->bytes_received > rx->bytes_limit ? RP_DELIVER_VIOLATION_CREDIT
								    : RP_DELIVER_VIOLATION_LENGTH);
	return false;
}

/* The frame without its first bytes; NULL, and freed: there is nothing more in it. */
static struct rte_mbuf *frame_trim(struct rte_mbuf *frame, uint32_t bytes)
{
	if (frame->data_len > bytes) {
		rte_pktmbuf_adj(frame, (uint16_t)bytes);
		return frame;
	}
	rp_chain_skip(&frame, bytes);
	return frame;
}

/* A message in one frame, as most are: it never lies in the stream. */
static void rx_whole(struct dl_rx *rx, const struct rp_frame_header *h, struct rp_reader *r,
	struct rte_mbuf *frame, uint64_t now_ns)
{
	const uint8_t *fields = r->pos;
	struct dl_extra extra;
	struct dl_msg m;
	uint32_t n;

	if (!rx_head(rx, h, r, &m.q, &extra)) {
		rte_pktmbuf_free(frame);
		return;
	}
	n = h->length - (uint32_t)(r->pos - fields);
	if (!rx_count(rx, n, rx->bytes_received + extra.total, false)) {
		rte_pktmbuf_free(frame);
		return;
	}
	m.flow = NULL;
	m.frames = m.seq = 0;
	m.sent = false;
	m.bytes = n;
	m.answer = DL_UNANSWERED;
	m.answer_epoch = m.q.epoch;
	m.answer_dispatcher = m.q.dispatcher;
	if (is_too_large(rx, &m.q, extra.total)) {
		rx->bytes_resolved += n;
		m.bytes = 0;
		m.answer = RP_Q_TOO_LARGE;
		rte_pktmbuf_free(frame);
	} else {
		m.q.payload = frame_trim(frame, h->length - n + RP_FRAME_HEADER_BYTES);
	}
	rx_complete(rx, &m, now_ns);
}

static void rx_parts_complete(struct dl_rx *rx, uint64_t now_ns)
{
	struct dl_msg now = {
		.q = rx->q,
		.bytes = rx->discard ? 0 : rx->partial_bytes,
		.answer = rx->discard ? RP_Q_TOO_LARGE : DL_UNANSWERED,
		.answer_epoch = rx->q.epoch,
		.answer_dispatcher = rx->q.dispatcher,
	};

	rx->q.payload = NULL;
	rx->partial = rx->discard = false;
	rx_complete(rx, &now, now_ns);
}

void dl_rx_payload(struct dl_rx *rx, const struct rp_frame_header *h, struct rp_reader *r,
	struct rte_mbuf *frame, uint64_t now_ns)
{
	struct dl_peer *p = rx->peer;
	const uint8_t *fields = r->pos;
	uint32_t n;
	bool more = h->flags & RP_FRAME_MORE;

	if (!(h->flags & (RP_FRAME_CONT | RP_FRAME_MORE))) {
		rx_whole(rx, h, r, frame, now_ns);
		return;
	}
	if (h->flags & RP_FRAME_CONT) {
		if (!rx->partial || h->fields != 0) {
			rte_pktmbuf_free(frame);
			dl_violation(p, RP_DELIVER_VIOLATION_ORDER);
			return;
		}
	} else if (!rx_begin(rx, h, r)) {
		rte_pktmbuf_free(frame);
		return;
	}
	n = h->length - (uint32_t)(r->pos - fields);
	if (!rx_count(rx, n, rx->partial_end, more)) {
		rte_pktmbuf_free(frame);
		return;
	}
	frame = frame_trim(frame, h->length - n + RP_FRAME_HEADER_BYTES);
	if (rx->discard) {
		rx->bytes_resolved += n;
		rte_pktmbuf_free(frame);
	} else if (frame && more && dl_payload_move(p->d, &rx->q.payload, frame)) {
		p->d->counters.chunks_moved++;
		rte_pktmbuf_free(frame);
	} else if (frame) {
		rp_mbuf_append(&rx->q.payload, frame);
	}
	if (more)
		dl_credit_announce(rx);
	else
		rx_parts_complete(rx, now_ns);
}

void dl_rx_supersede(struct dl_peer *p, const struct rp_qmsg *m)
{
	struct rp_list *n, *k;

	rp_list_foreach (n, &p->rxs) {
		struct dl_rx *rx = rp_list_entry(n, struct dl_rx, in_peer);

		if (rx->hash != m->hash || rx->kind != dl_frame_type(m->type) ||
			rx->name_length != m->name_length ||
			memcmp(rx->name, m->name, m->name_length) != 0)
			continue;
		rx->superseded = true;
		rx->q.flags |= RP_QMSG_REPEAT;
		rp_list_foreach (k, &rx->held)
			rp_list_entry(k, struct dl_msg, entry)->q.flags |= RP_QMSG_REPEAT;
	}
}

static bool rx_emit_credit(struct dl_rx *rx, uint8_t flags)
{
	uint8_t body[DL_CREDIT_BYTES];
	struct rp_frame_header h = {
		.type = RP_FRAME_CREDIT,
		.flags = flags,
		.handle = rx->remote,
		.epoch = rx->epoch,
		.dispatcher = rx->dispatcher,
	};
	struct dl_credit c = {.messages = rx->msgs_limit, .bytes = rx->bytes_limit};

	if (!(flags & RP_FRAME_RETURN)) {
		c.messages = rp_seq_max(rx->msgs_limit, rx->seq_done + rx->peer->d->share_messages);
		c.bytes = RP_MAX(rx->bytes_limit, rx->bytes_resolved + rx->reserved);
	}
	if (rx->peer->blocked ||
		!dl_emit_small(rx->peer, rx->hash, &h, body, dl_credit_write(&c, body)))
		return false;
	rx->msgs_limit = c.messages;
	rx->bytes_limit = c.bytes;
	return true;
}

static bool rx_emit_opened(struct dl_rx *rx)
{
	const struct dl_opened o = {
		.handle = rx_handle(rx),
		.messages = rx->msgs_limit,
		.bytes = rx->bytes_limit,
	};

	return !rx->peer->blocked &&
	       emit_opened(rx->peer, rx->hash, rx->remote, &o, rx->epoch, rx->dispatcher);
}

static bool rx_emit_close(struct dl_rx *rx)
{
	struct rp_frame_header h = {
		.type = RP_FRAME_CLOSE,
		.flags = rx->resetting ? RP_FRAME_RESET : 0,
		.handle = rx->remote,
	};

	return !rx->peer->blocked && dl_emit_small(rx->peer, rx->hash, &h, NULL, 0);
}

/* Emits what is wanted, in the order in which it must go; what does not get out stays wanted. */
void dl_rx_service(struct dl_rx *rx, uint64_t now_ns)
{
	bool ok = true;

	if (rx->wants & DL_RX_WANT_OPENED) {
		ok = rx_emit_opened(rx);
		if (ok)
			rx->wants &= (uint8_t)~DL_RX_WANT_OPENED;
	}
	if (ok && (rx->wants & DL_RX_WANT_PROCESS)) {
		rx->wants &= (uint8_t)~DL_RX_WANT_PROCESS;
		dl_rx_process(rx, now_ns);
		ok = !(rx->wants & DL_RX_WANT_PROCESS);
	}
	ok = ok && rx_emit_took(rx);
	if (ok && (rx->wants & DL_RX_WANT_RETURNED)) {
		ok = rx_emit_credit(rx, RP_FRAME_RETURN);
		if (ok)
			rx->wants &= (uint8_t)~DL_RX_WANT_RETURNED;
	}
	if (ok && (rx->wants & DL_RX_WANT_CREDIT)) {
		ok = rx_emit_credit(rx, 0);
		if (ok)
			rx->wants &= (uint8_t)~DL_RX_WANT_CREDIT;
	}
	if (ok && (rx->wants & DL_RX_WANT_CLOSE)) {
		ok = rx_emit_close(rx);
		rx->wants &= (uint8_t) ~(ok ? DL_RX_WANT_CLOSE : 0);
		if (ok && (!rx->resetting || rx->peer_closed)) {
			dl_rx_free(rx);
			return;
		}
	}
	if (!ok)
		dl_rx_want(rx, 0);
}
