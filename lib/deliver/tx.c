/* SPDX-License-Identifier: Apache-2.0 */
#include <base/assert.h>
#include <base/mbuf.h>
#include <base/seq32.h>

#include "deliver_priv.h"

static uint32_t tx_handle(const struct dl_tx *tx)
{
	const struct rp_deliver *d = tx->peer->d;

	return d->config.shard << 24 | dl_slab_index(&d->txs, tx);
}

struct dl_tx *dl_tx_new(struct dl_flow *f)
{
	struct dl_peer *p = f->peer;
	struct dl_tx *tx = dl_slab_get(&p->d->txs);

	if (!tx)
		return NULL;
	*tx = (struct dl_tx){
		.live = true,
		.state = DL_TX_OPENING,
		.kind = f->kind,
		.peer = p,
		.flow = f,
		.hash = f->hash,
	};
	rp_list_init(&tx->dirty);
	rp_list_push_back(&p->txs, &tx->in_peer);
	p->tx_count++;
	p->tx_links[dl_link_of(p->d, tx->hash)]++;
	dl_tx_want(tx, DL_TX_WANT_OPEN);
	return tx;
}

void dl_tx_free(struct dl_tx *tx)
{
	if (tx->flow)
		tx->flow->tx = NULL;
	rp_list_unlink(&tx->in_peer);
	rp_list_unlink(&tx->dirty);
	tx->peer->tx_count--;
	tx->peer->tx_links[dl_link_of(tx->peer->d, tx->hash)]--;
	tx->live = false;
	dl_slab_put(&tx->peer->d->txs, tx);
}

void dl_tx_want(struct dl_tx *tx, uint8_t want)
{
	tx->wants |= want;
	if (rp_list_empty(&tx->dirty))
		rp_list_push_back(&tx->peer->dirty_tx, &tx->dirty);
	dl_peer_mark(tx->peer);
}

/* The stream is given up by its flow, and closed as soon as the peer's handle is known. */
void dl_tx_orphan(struct dl_tx *tx)
{
	tx->flow->tx = NULL;
	tx->flow = NULL;
	if (!tx->peer->up || (tx->wants & DL_TX_WANT_OPEN)) {
		dl_tx_free(tx);
		return;
	}
	if (tx->state == DL_TX_OPEN) {
		tx->state = DL_TX_CLOSING;
		tx->reset = true;
		tx->wants = 0;
		dl_tx_want(tx, DL_TX_WANT_CLOSE);
	}
}

static bool tx_emit_open(struct dl_tx *tx)
{
	const struct dl_flow *f = tx->flow;
	uint8_t body[RP_FRAME_FIELDS_BYTES_MAX];
	struct rp_frame_header h = {
		.type = RP_FRAME_OPEN,
		.handle = f->hash,
		.epoch = f->epoch,
		.dispatcher = f->dispatcher,
	};
	const struct dl_open o = {
		.kind = tx->kind == DL_FORWARD ? RP_FRAME_FORWARD : RP_FRAME_DELIVER,
		.handle = tx_handle(tx),
		.name = f->name,
		.name_length = f->name_length,
	};

	return dl_emit_small(tx->peer, tx->hash, &h, body, dl_open_write(&o, body));
}

static bool tx_emit_return(struct dl_tx *tx)
{
	uint8_t body[DL_CREDIT_BYTES];
	struct rp_frame_header h = {
		.type = RP_FRAME_CREDIT,
		.flags = RP_FRAME_RETURN,
		.handle = tx->remote,
	};
	const struct dl_credit c = {.messages = tx->msgs_limit, .bytes = tx->bytes_sent};

	return dl_emit_small(tx->peer, tx->hash, &h, body, dl_credit_write(&c, body));
}

static bool tx_emit_close(struct dl_tx *tx)
{
	struct rp_frame_header h = {
		.type = RP_FRAME_CLOSE,
		.flags = tx->reset ? RP_FRAME_RESET : 0,
		.handle = tx->remote,
	};

	return dl_emit_small(tx->peer, tx->hash, &h, NULL, 0);
}

void dl_tx_service(struct dl_tx *tx)
{
	if ((tx->wants & DL_TX_WANT_OPEN) && tx_emit_open(tx)) {
		tx->wants &= (uint8_t)~DL_TX_WANT_OPEN;
		tx->peer->d->counters.streams_opened++;
		if (tx->flow)
			dl_flow_note(tx->flow, RP_DELIVER_NOTE_OPENED, 0);
	}
	if ((tx->wants & DL_TX_WANT_RETURN) && tx_emit_return(tx))
		tx->wants &= (uint8_t)~DL_TX_WANT_RETURN;
	if ((tx->wants & DL_TX_WANT_CLOSE) && tx_emit_close(tx)) {
		tx->wants &= (uint8_t)~DL_TX_WANT_CLOSE;
		if (tx->peer_closed) {
			dl_tx_free(tx);
			return;
		}
	}
	if (tx->wants != 0)
		dl_tx_want(tx, 0);
}

static void tx_on_opened(struct dl_tx *tx, const struct dl_opened *o, uint64_t now_ns)
{
	struct dl_peer *p = tx->peer;
	struct dl_flow *f = tx->flow;

	if (tx->state != DL_TX_OPENING || (tx->wants & DL_TX_WANT_OPEN)) {
		dl_violation(p, RP_DELIVER_VIOLATION_SEQUENCE);
		return;
	}
	if (o->status != RP_Q_OK) {
		dl_tx_free(tx);
		if (!f)
			return;
		/* The stream is not asked for again with every message. */
		f->reopen_ns = now_ns + p->d->config.credit_idle_ns;
		if (dl_peer_can_unary(p))
			dl_flow_fall_back(f, RP_DELIVER_FALLBACK_OPEN_REFUSED, now_ns);
		else
			dl_flow_refuse(f, (enum rp_qstatus)o->status, now_ns);
		return;
	}
	tx->remote = o->handle;
	tx->msgs_limit = o->messages;
	tx->bytes_limit = o->bytes;
	tx->state = DL_TX_OPEN;
	if (!f) {
		tx->state = DL_TX_CLOSING;
		tx->reset = true;
		dl_tx_want(tx, DL_TX_WANT_CLOSE);
		return;
	}
	dl_flow_touch(f, now_ns);
	dl_flow_update(f);
}

static void tx_on_took(struct dl_tx *tx, uint32_t seq, uint64_t now_ns)
{
	struct dl_peer *p = tx->peer;
	struct rp_deliver *d = p->d;
	struct dl_flow *f = tx->flow;

	if (rp_seq_leq(seq, tx->seq_took) || rp_seq_gt(seq, tx->seq_complete)) {
		dl_violation(p, RP_DELIVER_VIOLATION_SEQUENCE);
		return;
	}
	if (!f) {
		tx->seq_took = seq;
		return;
	}
	while (tx->seq_took != seq) {
		struct dl_msg *m = dl_flow_pop(f);

		RP_ASSERT(m);
		tx->seq_took++;
		d->counters.took++;
		d->ops.on_took(d->ctx, p->node, &m->q, now_ns);
		dl_msg_free(d, m);
	}
	dl_flow_touch(f, now_ns);
	dl_flow_update(f);
}

static void tx_on_refused(struct dl_tx *tx, const struct rp_frame_header *h,
	const struct dl_refused *r, uint64_t now_ns)
{
	struct dl_peer *p = tx->peer;
	struct rp_deliver *d = p->d;
	struct dl_flow *f = tx->flow;
	struct dl_msg *m;

	if (r->seq != tx->seq_took + 1 || rp_seq_gt(r->seq, tx->seq_complete)) {
		dl_violation(p, RP_DELIVER_VIOLATION_SEQUENCE);
		return;
	}
	tx->seq_took++;
	if (!f)
		return;
	m = dl_flow_pop(f);
	RP_ASSERT(m);
	d->counters.refused[r->status]++;
	d->ops.on_refused(d->ctx, p->node, &m->q, (enum rp_qstatus)r->status, h->epoch,
		h->dispatcher, now_ns);
	m->q.payload = NULL;
	dl_msg_free(d, m);
	dl_flow_touch(f, now_ns);
	dl_flow_update(f);
}

static void tx_on_credit(struct dl_tx *tx, const struct rp_frame_header *h,
	const struct dl_credit *c, uint64_t now_ns)
{
	bool returned = h->flags & RP_FRAME_RETURN;

	if (returned ? !tx->returning || c->bytes != tx->bytes_sent
		     : !tx->returning && (c->bytes < tx->bytes_limit ||
						 rp_seq_lt(c->messages, tx->msgs_limit))) {
		dl_violation(tx->peer, RP_DELIVER_VIOLATION_CREDIT);
		return;
	}
	/* What crossed our RETURN on its way was taken back with the rest. */
	if (!returned && tx->returning)
		return;
	if (returned)
		tx->returning = false;
	tx->bytes_limit = c->bytes;
	tx->msgs_limit = c->messages;
	if (!tx->flow)
		return;
	if (!returned)
		dl_flow_touch(tx->flow, now_ns);
	dl_flow_update(tx->flow);
}

/* The receiver gave the stream up. What it has not taken by now it will not take. */
static void tx_on_reset(struct dl_tx *tx, uint64_t now_ns)
{
	struct dl_flow *f = tx->flow;

	tx->state = DL_TX_CLOSING;
	tx->peer_closed = true;
	tx->wants = 0;
	dl_tx_want(tx, DL_TX_WANT_CLOSE);
	if (!f)
		return;
	f->tx = NULL;
	tx->flow = NULL;
	dl_flow_rewind(f, false);
	if (f->count > 0)
		dl_flow_park(f, now_ns);
	else
		dl_flow_release(f);
}

static void tx_on_close(struct dl_tx *tx, const struct rp_frame_header *h, uint64_t now_ns)
{
	struct dl_flow *f = tx->flow;

	/* Each end says CLOSE once; a stream is gone when both have. */
	if ((h->flags & RP_FRAME_RESET) && !tx->peer_closed &&
		(tx->state == DL_TX_OPEN || (tx->wants & DL_TX_WANT_CLOSE))) {
		tx_on_reset(tx, now_ns);
		return;
	}
	if (tx->state != DL_TX_CLOSING || (tx->wants & DL_TX_WANT_CLOSE)) {
		dl_violation(tx->peer, RP_DELIVER_VIOLATION_SEQUENCE);
		return;
	}
	dl_tx_free(tx);
	if (!f)
		return;
	rp_list_unlink(&f->timer);
	if (f->count > 0)
		dl_flow_to_stream(f, now_ns);
	else
		dl_flow_release(f);
}

static struct dl_tx *tx_of(struct dl_peer *p, uint32_t handle)
{
	struct dl_tx *tx = dl_slab_at(&p->d->txs, handle & 0xffffff);

	return tx && tx->live && tx->peer == p ? tx : NULL;
}

void dl_tx_on_frame(
	struct dl_peer *p, const struct rp_frame_header *h, struct rp_reader *r, uint64_t now_ns)
{
	struct dl_tx *tx = tx_of(p, h->handle);
	struct dl_opened opened;
	struct dl_credit credit;
	struct dl_refused refused;
	uint32_t seq;

	if (!tx) {
		dl_violation(p, RP_DELIVER_VIOLATION_HANDLE);
		return;
	}
	if (h->type == RP_FRAME_OPENED && dl_opened_read(&opened, r))
		tx_on_opened(tx, &opened, now_ns);
	else if (h->type == RP_FRAME_TOOK && dl_took_read(&seq, r))
		tx_on_took(tx, seq, now_ns);
	else if (h->type == RP_FRAME_REFUSED && dl_refused_read(&refused, r))
		tx_on_refused(tx, h, &refused, now_ns);
	else if (h->type == RP_FRAME_CREDIT && dl_credit_read(&credit, r))
		tx_on_credit(tx, h, &credit, now_ns);
	else if (h->type == RP_FRAME_CLOSE && rp_reader_left(r) == 0)
		tx_on_close(tx, h, now_ns);
	else
		dl_violation(p, RP_DELIVER_VIOLATION_FIELDS);
}

static struct dl_flow *timer_due(struct rp_list *list, uint64_t after_ns, uint64_t now_ns)
{
	struct dl_flow *f;

	if (rp_list_empty(list))
		return NULL;
	f = rp_list_entry(list->next, struct dl_flow, timer);
	return f->stamp + after_ns <= now_ns ? f : NULL;
}

static void flow_quiet(struct dl_flow *f)
{
	struct dl_tx *tx = f->tx;

	rp_list_unlink(&f->timer);
	rp_list_push_back(&f->peer->d->idle, &f->timer);
	if (tx->state != DL_TX_OPEN || tx->returning || tx->bytes_limit == tx->bytes_sent)
		return;
	tx->returning = true;
	dl_tx_want(tx, DL_TX_WANT_RETURN);
	f->peer->d->counters.credit_returns++;
}

static void flow_idle(struct dl_flow *f)
{
	struct dl_tx *tx = f->tx;

	rp_list_unlink(&f->timer);
	if (tx->state != DL_TX_OPEN)
		return;
	tx->state = DL_TX_CLOSING;
	dl_tx_want(tx, DL_TX_WANT_CLOSE);
	f->peer->d->counters.idle_closes++;
	dl_flow_note(f, RP_DELIVER_NOTE_IDLE, 0);
}

void dl_tx_timers(struct rp_deliver *d, uint64_t now_ns)
{
	struct dl_flow *f;

	while ((f = timer_due(&d->busy, d->config.stall_ns, now_ns)) != NULL) {
		/* With no other way there is nothing better than to wait. */
		if (dl_peer_can_unary(f->peer))
			dl_flow_fall_back(f, RP_DELIVER_FALLBACK_STALL, now_ns);
		else
			dl_flow_touch(f, now_ns);
	}
	while ((f = timer_due(&d->quiet, d->config.credit_idle_ns, now_ns)) != NULL)
		flow_quiet(f);
	while ((f = timer_due(&d->idle, d->config.idle_ns, now_ns)) != NULL)
		flow_idle(f);
}
