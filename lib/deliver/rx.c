/* SPDX-License-Identifier: Apache-2.0 */
#include <base/assert.h>
#include <base/mbuf.h>
#include <base/seq32.h>
#include <link/chain.h>

#include "deliver_priv.h"

/*
 * Credit. A stream may have sent us bytes up to bytes_limit = bytes_resolved + reserved at the time
 * it was told. `reserved` is what the stream has of the peer's budget: `base` (the window, or 0
 * while the budget was exhausted), raised to what an announced message needs. When the budget
 * cannot give that, one stream a peer gets it all the same (`whole`), of WHOLES_MAX peers, and the
 * others wait in `needy`; so every announced message is completed in its turn, and what is held is
 * bounded by the budget of all peers + WHOLES_MAX messages.
 */
#define WHOLES_MAX 4

void dl_rx_want(struct dl_rx *rx, uint8_t want)
{
	rx->wants |= want;
	if (rp_list_empty(&rx->dirty))
		rp_list_push_back(&rx->peer->dirty_rx, &rx->dirty);
	dl_peer_mark(rx->peer);
}

static void budget_charge(struct dl_peer *p, uint64_t bytes)
{
	p->credit_given += bytes;
	p->d->credit_given += bytes;
}

static void budget_return(struct dl_peer *p, uint64_t bytes)
{
	p->credit_given -= bytes;
	p->d->credit_given -= bytes;
}

static bool budget_take(struct dl_peer *p, uint64_t bytes)
{
	struct rp_deliver *d = p->d;

	if (p->credit_given + bytes > d->config.peer_budget_bytes)
		return false;
	if (d->config.budget_bytes && d->credit_given + bytes > d->config.budget_bytes) {
		d->budget_short = true;
		return false;
	}
	budget_charge(p, bytes);
	return true;
}

static void whole_end(struct dl_rx *rx)
{
	if (rx->peer->whole != rx)
		return;
	rx->peer->whole = NULL;
	rx->peer->d->wholes--;
}

/* What the announced message needs of the budget; 0: nothing is announced. */
static uint64_t rx_need(const struct dl_rx *rx)
{
	uint64_t window = rx->peer->d->config.window_bytes;

	if (!rx->partial)
		return 0;
	if (rx->discard)
		return RP_MIN(window, rx->partial_end - rx->bytes_resolved);
	return rx->partial_end - rx->bytes_resolved;
}

static bool rx_reserve(struct dl_rx *rx)
{
	struct dl_peer *p = rx->peer;
	uint64_t need = rx_need(rx), window = p->d->config.window_bytes;

	if (rx->base == 0 && need > rx->reserved && rx->reserved < window &&
		budget_take(p, window - rx->reserved))
		rx->base = rx->reserved = window;
	if (need <= rx->reserved)
		return true;
	if (!budget_take(p, need - rx->reserved)) {
		if (p->whole || p->d->wholes >= WHOLES_MAX) {
			p->d->budget_short |= !p->whole;
			return false;
		}
		p->whole = rx;
		p->d->wholes++;
		rx->whole_end = rx->partial_end;
		budget_charge(p, need - rx->reserved);
	}
	rx->reserved = need;
	return true;
}

/* A CREDIT is worth a frame: half a window, or the rest of a message that cannot end without. */
static void rx_credit(struct dl_rx *rx)
{
	const struct rp_deliver_config *config = &rx->peer->d->config;
	uint64_t bytes = rx->bytes_resolved + rx->reserved;
	uint32_t messages = rx->seq_done + config->window_messages;
	bool stuck = rx->partial && rx->partial_end > rx->bytes_limit && bytes > rx->bytes_limit;

	if (stuck || bytes >= rx->bytes_limit + RP_MAX(config->window_bytes / 2, 1u) ||
		messages - rx->msgs_limit >= (config->window_messages + 1) / 2)
		dl_rx_want(rx, DL_RX_WANT_CREDIT);
}

static void peer_needy_serve(struct dl_peer *p)
{
	while (!rp_list_empty(&p->needy)) {
		struct dl_rx *rx = rp_list_entry(p->needy.next, struct dl_rx, needy);

		if (!rx_reserve(rx))
			return;
		rp_list_unlink(&rx->needy);
		rx_credit(rx);
	}
}

static void needy_serve(struct dl_peer *p)
{
	struct rp_deliver *d = p->d;

	peer_needy_serve(p);
	if (!d->budget_short)
		return;
	/* Whoever finds too little again says so again; not always the same one comes first. */
	d->budget_short = false;
	for (uint32_t i = 1; i < d->peer_count; i++) {
		struct dl_peer *other = &d->peers[(p - d->peers + i) % d->peer_count];

		if (other->node != 0)
			peer_needy_serve(other);
	}
}

/* The one that has the grant and is held must not keep the others from coming. */
static void whole_check(struct dl_peer *p)
{
	if (p->whole && p->whole->holding && !rp_list_empty(&p->needy))
		dl_rx_want(p->whole, DL_RX_WANT_PROCESS);
}

/*
 * Asks for what the incomplete message needs, and queues for it when there is none to be had. With
 * messages held before it only the budget gives: what is beyond it is for one message, not for a
 * row of them. It asks again when they are resolved.
 */
static void rx_announce(struct dl_rx *rx)
{
	struct dl_peer *p = rx->peer;
	uint64_t need = rx_need(rx);

	if (need > rx->reserved && rp_list_empty(&rx->needy)) {
		if (!rp_list_empty(&rx->held)) {
			if (rp_list_empty(&p->needy) && budget_take(p, need - rx->reserved))
				rx->reserved = need;
		} else if (!rp_list_empty(&p->needy) || !rx_reserve(rx)) {
			rp_list_push_back(&p->needy, &rx->needy);
			whole_check(p);
		}
	}
	rx_credit(rx);
}

/* Gives back what was reserved beyond the base and is not in use any more. */
static void rx_release(struct dl_rx *rx)
{
	struct dl_peer *p = rx->peer;
	uint64_t keep = RP_MAX(rx->base, rx->bytes_received - rx->bytes_resolved);

	if (rx->partial)
		keep = RP_MAX(keep, RP_MIN(rx->reserved, rx_need(rx)));
	if (rx->reserved > keep) {
		budget_return(p, rx->reserved - keep);
		rx->reserved = keep;
	}
	if (rx->bytes_resolved >= rx->whole_end)
		whole_end(rx);
	needy_serve(p);
	rx_announce(rx);
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
		.msgs_limit = d->config.window_messages,
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
	if (rp_list_empty(&p->needy) && budget_take(p, d->config.window_bytes))
		rx->base = rx->reserved = rx->bytes_limit = d->config.window_bytes;
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

static void rx_give_up_credit(struct dl_rx *rx)
{
	struct dl_peer *p = rx->peer;

	rp_list_unlink(&rx->needy);
	budget_return(p, rx->reserved);
	rx->reserved = rx->base = 0;
	whole_end(rx);
}

void dl_rx_free(struct dl_rx *rx)
{
	struct dl_peer *p = rx->peer;

	rx_drop_messages(rx);
	rx_give_up_credit(rx);
	rp_list_unlink(&rx->in_peer);
	rp_list_unlink(&rx->dirty);
	p->rx_count--;
	p->rx_links[dl_link_of(p->d, rx->hash)]--;
	rx->live = false;
	dl_slab_put(&p->d->rxs, rx);
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
	rx_give_up_credit(rx);
	/* Credit and process are moot; an OPENED that waits still has to go before the CLOSE. */
	rx->wants &= DL_RX_WANT_OPENED;
	dl_rx_want(rx, DL_RX_WANT_CLOSE);
	needy_serve(p);
}

void dl_rx_reset(struct dl_rx *rx)
{
	struct dl_peer *p = rx->peer;

	p->d->counters.streams_reset++;
	rx_drop_messages(rx);
	rx_give_up_credit(rx);
	rx->resetting = true;
	rx->wants &= DL_RX_WANT_OPENED;
	dl_rx_want(rx, DL_RX_WANT_CLOSE);
	needy_serve(p);
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
	rx_give_up_credit(rx);
	rx->bytes_limit = rx->bytes_received;
	rx->msgs_limit = rx->seq_done + rx->peer->d->config.window_messages;
	rx->wants &= (uint8_t)~DL_RX_WANT_CREDIT;
	dl_rx_want(rx, DL_RX_WANT_RETURNED);
	needy_serve(rx->peer);
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
		rx_release(rx);
	/* Asked once more and still held: it is given up for those that wait for its grant. */
	if (rx->holding && rx->peer->whole == rx && !rp_list_empty(&rx->peer->needy))
		dl_rx_reset(rx);
}

/* A message is whole. The common case is answered on the spot and never parked. */
static void rx_complete(struct dl_rx *rx, uint64_t now_ns)
{
	struct dl_peer *p = rx->peer;
	struct rp_deliver *d = p->d;
	struct dl_msg now = {
		.q = rx->q,
		.bytes = rx->discard ? 0 : rx->partial_bytes,
		.answer = rx->discard ? RP_Q_TOO_LARGE : DL_UNANSWERED,
		.answer_epoch = rx->q.epoch,
		.answer_dispatcher = rx->q.dispatcher,
	};
	struct dl_msg *m;

	rx->q.payload = NULL;
	rx->partial = rx->discard = false;
	if (now.answer == DL_UNANSWERED &&
		!dl_payload_gather(d, &now.q.payload, rp_qmsg_head_bytes(&now.q)))
		now.answer = RP_Q_LIMIT;
	if (rp_list_empty(&rx->held) && !rx->holding && rx_answer(rx, &now, now_ns)) {
		rx_release(rx);
		return;
	}
	m = dl_slab_get(&d->parked);
	if (!m) {
		/* Only a peer that gets far more held than it may is met by this. */
		rte_pktmbuf_free(now.q.payload);
		dl_violation(p, RP_DELIVER_VIOLATION_CREDIT);
		return;
	}
	*m = now;
	rp_list_init(&m->lane);
	rp_list_push_back(&rx->held, &m->entry);
	whole_check(p);
}

static bool rx_head(struct dl_rx *rx, const struct rp_frame_header *h, struct rp_reader *r)
{
	const struct rp_deliver *d = rx->peer->d;
	struct dl_extra extra;

	if (rx->partial) {
		dl_violation(rx->peer, RP_DELIVER_VIOLATION_ORDER);
		return false;
	}
	if (!dl_decode(h, r, &rx->q, &extra) || rx->q.name || extra.has_seq) {
		dl_violation(rx->peer, RP_DELIVER_VIOLATION_FIELDS);
		return false;
	}
	if (!rp_seq_lt(rx->seq_head, rx->msgs_limit)) {
		dl_violation(rx->peer, RP_DELIVER_VIOLATION_CREDIT);
		return false;
	}
	rx->seq_head++;
	rx->q.name = rx->name;
	rx->q.name_length = rx->name_length;
	rx->q.hash = rx->hash;
	if (rx->superseded)
		rx->q.flags |= RP_QMSG_REPEAT;
	rx->epoch = h->epoch;
	rx->dispatcher = h->dispatcher;
	rx->partial = true;
	rx->partial_bytes = extra.total;
	rx->partial_end = rx->bytes_received + extra.total;
	rx->discard = extra.total - rp_qmsg_head_bytes(&rx->q) > d->config.message_bytes_max;
	return true;
}

void dl_rx_payload(struct dl_rx *rx, const struct rp_frame_header *h, struct rp_reader *r,
	struct rte_mbuf *frame, uint64_t now_ns)
{
	struct dl_peer *p = rx->peer;
	const uint8_t *fields = r->pos;
	uint32_t n;
	bool more = h->flags & RP_FRAME_MORE;

	if (h->flags & RP_FRAME_CONT) {
		if (!rx->partial || h->fields != 0) {
			rte_pktmbuf_free(frame);
			dl_violation(p, RP_DELIVER_VIOLATION_ORDER);
			return;
		}
	} else if (!rx_head(rx, h, r)) {
		rte_pktmbuf_free(frame);
		return;
	}
	n = h->length - (uint32_t)(r->pos - fields);
	rx->bytes_received += n;
	if (rx->bytes_received > rx->bytes_limit || rx->bytes_received > rx->partial_end ||
		more != (rx->bytes_received < rx->partial_end)) {
		enum rp_deliver_violation why = rx->bytes_received > rx->bytes_limit
							? RP_DELIVER_VIOLATION_CREDIT
							: RP_DELIVER_VIOLATION_LENGTH;

		rte_pktmbuf_free(frame);
		dl_violation(p, why);
		return;
	}
	rp_chain_skip(&frame, h->length - n + RP_FRAME_HEADER_BYTES);
	if (n == 0) {
		rte_pktmbuf_free(frame);
		frame = NULL;
	}
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
		rx_announce(rx);
	else
		rx_complete(rx, now_ns);
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
		c.messages = rx->seq_done + rx->peer->d->config.window_messages;
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
