/* SPDX-License-Identifier: Apache-2.0 */
#include <base/assert.h>
#include <base/fetch.h>
#include <base/mbuf.h>
#include <link/chain.h>

#include "deliver_priv.h"

const uint8_t *dl_head_of(
	const struct rte_mbuf *frame, uint8_t buffer[DL_HEAD_BYTES_MAX], uint32_t *length)
{
	*length = RP_MIN(frame->pkt_len, (uint32_t)DL_HEAD_BYTES_MAX);
	if (frame->data_len >= *length)
		return rte_pktmbuf_mtod(frame, const uint8_t *);
	rp_mbuf_copy_out(frame, 0, buffer, *length);
	return buffer;
}

static struct dl_rx *rx_of(struct dl_peer *p, uint32_t handle)
{
	struct dl_rx *rx = dl_slab_at(&p->d->rxs, handle & 0xffffff & ~DL_SLOT_RX);

	return rx && rx->live && rx->peer == p && !(rx->wants & DL_RX_WANT_OPENED) ? rx : NULL;
}

static void on_open(struct dl_peer *p, const struct rp_frame_header *h, struct rp_reader *r)
{
	struct dl_open o;

	if (!dl_open_read(&o, r) || rp_queue_hash(o.name, o.name_length) != h->handle)
		dl_violation(p, RP_DELIVER_VIOLATION_FIELDS);
	else
		dl_rx_open(p, h, &o);
}

/* A stream frame for one of the peer's streams towards us. */
static void on_rx_frame(struct dl_peer *p, const struct rp_frame_header *h, struct rp_reader *r)
{
	struct dl_rx *rx = rx_of(p, h->handle);
	struct dl_credit c;

	if (!rx)
		dl_violation(p, RP_DELIVER_VIOLATION_HANDLE);
	else if (h->type == RP_FRAME_CLOSE && rp_reader_left(r) == 0)
		dl_rx_close(rx, h);
	else if (h->type == RP_FRAME_CREDIT && (h->flags & RP_FRAME_RETURN) &&
		 dl_credit_read(&c, r))
		dl_rx_return(rx);
	else
		dl_violation(p, RP_DELIVER_VIOLATION_FIELDS);
}

static void on_payload(struct dl_peer *p, const struct rp_frame_header *h, struct rp_reader *r,
	struct rte_mbuf *frame, uint64_t now_ns)
{
	struct dl_rx *rx = h->handle & DL_SLOT_RX ? rx_of(p, h->handle) : NULL;

	if (rx && rx->resetting && !rx->peer_closed) {
		/* Sent before the opener knew; it sends all of it again. */
		rte_pktmbuf_free(frame);
		return;
	}
	if (!rx || rx->kind != h->type || (rx->wants & DL_RX_WANT_CLOSE)) {
		rte_pktmbuf_free(frame);
		dl_violation(p, RP_DELIVER_VIOLATION_HANDLE);
		return;
	}
	dl_rx_payload(rx, h, r, frame, now_ns);
}

static void partial_free(struct dl_peer *p, struct dl_partial *part)
{
	rp_list_unlink(&part->entry);
	p->partial_count--;
	rte_pktmbuf_free(part->q.payload);
	dl_slab_put(&p->d->partials, part);
}

void dl_partials_drop(struct dl_peer *p)
{
	while (!rp_list_empty(&p->partials)) {
		p->d->counters.partial_dropped++;
		partial_free(p, rp_list_entry(p->partials.next, struct dl_partial, entry));
	}
}

static struct dl_partial *partial_of(struct dl_peer *p, uint32_t hash)
{
	struct rp_list *n;

	rp_list_foreach (n, &p->partials) {
		struct dl_partial *part = rp_list_entry(n, struct dl_partial, entry);

		if (part->hash == hash)
			return part;
	}
	return NULL;
}

/* The message goes up, and its sender's shard is told so at the end of the turn. */
static void control_done(
	struct dl_peer *p, struct rp_qmsg *m, const struct dl_extra *extra, uint64_t now_ns)
{
	struct rp_deliver *d = p->d;
	uint32_t epoch = m->epoch;
	uint64_t dispatcher = m->dispatcher;
	struct dl_acks *acks;

	if (m->payload && !dl_payload_gather(d, &m->payload, rp_qmsg_head_bytes(m))) {
		/* Not confirmed: its sender has it still, and repeats it with the next bundle. */
		rte_pktmbuf_free(m->payload);
		dl_violation(p, RP_DELIVER_VIOLATION_NO_BUFFERS);
		return;
	}
	acks = &p->acks[rp_hash_pick(m->hash, d->config.links) % DL_LINKS_OF_SHARD];
	acks->pending |= 1u << extra->seq_shard;
	acks->seq[extra->seq_shard] = extra->seq;
	acks->hash[extra->seq_shard] = m->hash;
	dl_peer_mark(p);
	d->counters.received_control++;
	d->ops.on_msg(d->ctx, p->node, m, &epoch, &dispatcher, now_ns);
}

static void control_begin(
	struct dl_peer *p, struct rp_qmsg *m, const struct dl_extra *extra, uint32_t hash)
{
	struct dl_partial *part = p->partial_count < DL_LINKS_OF_SHARD * RP_SHARDS_MAX
					  ? dl_slab_get(&p->d->partials)
					  : NULL;

	if (!part) {
		rte_pktmbuf_free(m->payload);
		dl_violation(p, RP_DELIVER_VIOLATION_ORDER);
		return;
	}
	*part = (struct dl_partial){
		.hash = hash,
		.total = extra->total,
		.extra = *extra,
		.q = *m,
	};
	memcpy(part->name, m->name, m->name_length);
	part->q.name = part->name;
	rp_list_push_back(&p->partials, &part->entry);
	p->partial_count++;
}

static void control_continue(
	struct dl_peer *p, const struct rp_frame_header *h, struct rte_mbuf *frame, uint64_t now_ns)
{
	struct rp_deliver *d = p->d;
	struct dl_partial *part = partial_of(p, h->handle);
	bool more = h->flags & RP_FRAME_MORE;
	struct dl_partial done;
	struct rp_qmsg m;

	if (!part || dl_frame_type(part->q.type) != h->type || h->fields != 0) {
		rte_pktmbuf_free(frame);
		dl_violation(p, RP_DELIVER_VIOLATION_ORDER);
		return;
	}
	rp_chain_skip(&frame, RP_FRAME_HEADER_BYTES);
	if (frame && more && dl_payload_move(d, &part->q.payload, frame))
		rte_pktmbuf_free(frame);
	else if (frame)
		rp_mbuf_append(&part->q.payload, frame);
	if (part->q.payload->pkt_len > part->total ||
		more != (part->q.payload->pkt_len < part->total)) {
		dl_violation(p, RP_DELIVER_VIOLATION_LENGTH);
		return;
	}
	if (more)
		return;
	/* Off the peer first: should this end in a violation, nothing is left to be freed twice. */
	m = part->q;
	done = *part;
	m.name = done.name;
	part->q.payload = NULL;
	partial_free(p, part);
	control_done(p, &m, &done.extra, now_ns);
}

static void on_control(struct dl_peer *p, const struct rp_frame_header *h, struct rp_reader *r,
	struct rte_mbuf *frame, uint64_t now_ns)
{
	struct rp_deliver *d = p->d;
	const uint8_t *fields = r->pos;
	bool more = h->flags & RP_FRAME_MORE;
	enum rp_deliver_violation why = RP_DELIVER_VIOLATION_FIELDS;
	uint8_t name[RP_NAME_BYTES_MAX];
	struct dl_extra extra;
	struct rp_qmsg m;
	uint32_t n;

	if (h->flags & RP_FRAME_CONT) {
		control_continue(p, h, frame, now_ns);
		return;
	}
	if (!dl_decode(h, r, &m, &extra) || !m.name || !extra.has_seq ||
		extra.seq_shard >= RP_SHARDS_MAX ||
		rp_queue_hash(m.name, m.name_length) != h->handle)
		goto bad;
	m.hash = h->handle;
	n = h->length - (uint32_t)(r->pos - fields);
	why = RP_DELIVER_VIOLATION_LENGTH;
	if (n > extra.total || more != (n < extra.total) || (more && n == 0) ||
		extra.total >
			d->config.message_bytes_max + RP_TAIL_BYTES_MAX + RP_QMSG_META_BYTES_MAX)
		goto bad;
	why = RP_DELIVER_VIOLATION_ORDER;
	if (partial_of(p, h->handle))
		goto bad;
	if (n == 0) {
		control_done(p, &m, &extra, now_ns);
		rte_pktmbuf_free(frame);
		return;
	}
	/* The name lies in the head, which is trimmed off: it has to outlive it. */
	memcpy(name, m.name, m.name_length);
	m.name = name;
	rp_chain_skip(&frame, RP_FRAME_HEADER_BYTES + h->length - n);
	m.payload = frame;
	if (more)
		control_begin(p, &m, &extra, h->handle);
	else
		control_done(p, &m, &extra, now_ns);
	return;
bad:
	rte_pktmbuf_free(frame);
	dl_violation(p, why);
}

bool dl_acks_pending(const struct dl_peer *p)
{
	return (p->acks[0].pending | p->acks[1].pending) != 0;
}

static void acks_pump(struct dl_peer *p, struct dl_acks *a)
{
	struct rp_deliver *d = p->d;

	while (a->pending != 0 && !p->blocked) {
		uint32_t shard = (uint32_t)__builtin_ctz(a->pending);
		uint8_t body[DL_CONTROL_TOOK_BYTES];
		struct rp_frame_header h = {
			.type = RP_FRAME_TOOK,
			.handle = shard << 24 | DL_SLOT_CONTROL,
		};
		const struct dl_control_took t = {
			.seq = a->seq[shard],
			.shards = (uint8_t)d->config.shards,
			.shard = (uint8_t)d->config.shard,
			.links = (uint8_t)d->config.links,
			.link = (uint8_t)rp_hash_pick(a->hash[shard], d->config.links),
		};

		if (!dl_emit_small(p, a->hash[shard], &h, body, dl_control_took_write(&t, body)))
			return;
		a->pending &= a->pending - 1;
	}
}

void dl_acks_pump(struct dl_peer *p)
{
	for (unsigned i = 0; i < DL_LINKS_OF_SHARD; i++)
		acks_pump(p, &p->acks[i]);
}

static void on_control_took(struct dl_peer *p, struct rp_reader *r)
{
	struct dl_control_took t;

	if (!dl_control_took_read(&t, r))
		dl_violation(p, RP_DELIVER_VIOLATION_FIELDS);
	else
		dl_control_confirm(p, &t);
}

static void on_stream_frame(
	struct dl_peer *p, const struct rp_frame_header *h, struct rp_reader *r, uint64_t now_ns)
{
	if (h->type == RP_FRAME_TOOK && (h->handle & 0xffffff) == DL_SLOT_CONTROL)
		on_control_took(p, r);
	else if (h->handle & DL_SLOT_RX)
		on_rx_frame(p, h, r);
	else
		dl_tx_on_frame(p, h, r, now_ns);
}

static bool frame_check(struct dl_peer *p, const struct rp_frame_header *h, uint32_t bytes)
{
	const struct rp_deliver_config *config = &p->d->config;

	if (h->length != bytes - RP_FRAME_HEADER_BYTES) {
		dl_violation(p, RP_DELIVER_VIOLATION_HEADER);
		return false;
	}
	if (rp_frame_shard(h, config->shards) != (int)config->shard) {
		enum rp_frame_routing routing = rp_frame_routing(h->type);
		bool known = routing == RP_FRAME_ROUTE_HASH || routing == RP_FRAME_ROUTE_STREAM;

		dl_violation(p, known ? RP_DELIVER_VIOLATION_ROUTE : RP_DELIVER_VIOLATION_TYPE);
		return false;
	}
	return true;
}

static void frame_take(struct dl_peer *p, struct rte_mbuf *frame, uint64_t now_ns)
{
	struct rp_deliver *d = p->d;
	uint8_t buffer[DL_HEAD_BYTES_MAX];
	const uint8_t *head;
	struct rp_frame_header h;
	struct rp_reader r;
	uint32_t n;

	d->counters.frames_in++;
	head = dl_head_of(frame, buffer, &n);
	if (n < RP_FRAME_HEADER_BYTES) {
		rte_pktmbuf_free(frame);
		dl_violation(p, RP_DELIVER_VIOLATION_HEADER);
		return;
	}
	rp_frame_header_read(&h, head);
	if (!frame_check(p, &h, frame->pkt_len)) {
		rte_pktmbuf_free(frame);
		return;
	}
	r = rp_reader_of(head + RP_FRAME_HEADER_BYTES, n - RP_FRAME_HEADER_BYTES);
	if (h.type == RP_FRAME_FORWARD || h.type == RP_FRAME_DELIVER) {
		on_payload(p, &h, &r, frame, now_ns);
	} else if (dl_qmsg_type(h.type) != RP_QMSG_TYPE_COUNT) {
		on_control(p, &h, &r, frame, now_ns);
	} else {
		if (h.type == RP_FRAME_OPEN)
			on_open(p, &h, &r);
		else
			on_stream_frame(p, &h, &r, now_ns);
		rte_pktmbuf_free(frame);
	}
}

/* ---- many streams ---- */

/* With fewer their state is near anyway. */
#define FETCH_STREAMS_MIN 64

/* What begins a frame says which stream it is of. */
static void stream_fetch(const struct rp_deliver *d, const struct rte_mbuf *frame)
{
	const uint8_t *head = rte_pktmbuf_mtod(frame, const uint8_t *);
	struct rp_reader r = rp_reader_of(head + 4, 4);
	uint32_t slot = rp_read_le32(&r) & 0xffffff;

	if (rp_frame_routing(head[0]) != RP_FRAME_ROUTE_STREAM || slot == DL_SLOT_CONTROL)
		return;
	if (slot & DL_SLOT_RX)
		rp_fetch(dl_slab_at(&d->rxs, slot & ~DL_SLOT_RX), DL_RX_LINES * RP_CACHE_LINE);
	else
		rp_fetch(dl_slab_at(&d->txs, slot), DL_TX_LINES * RP_CACHE_LINE);
}

/* The stream is near by now: what it leads to. */
static void flow_fetch(
	const struct rp_deliver *d, const struct rte_mbuf *frame, uint32_t *hashes, unsigned *n)
{
	const uint8_t *head = rte_pktmbuf_mtod(frame, const uint8_t *);
	struct rp_reader r = rp_reader_of(head + 4, 4);
	uint32_t slot = rp_read_le32(&r) & 0xffffff;
	const struct dl_rx *rx;
	const struct dl_tx *tx;

	if (rp_frame_routing(head[0]) == RP_FRAME_ROUTE_HASH) {
		r = rp_reader_of(head + 4, 4);
		hashes[(*n)++] = rp_read_le32(&r);
		return;
	}
	if (slot == DL_SLOT_CONTROL)
		return;
	if (slot & DL_SLOT_RX) {
		rx = dl_slab_at(&d->rxs, slot & ~DL_SLOT_RX);
		if (rx && rx->live)
			hashes[(*n)++] = rx->hash;
		return;
	}
	tx = dl_slab_at(&d->txs, slot);
	if (!tx || !tx->live)
		return;
	hashes[(*n)++] = tx->hash;
	rp_fetch(tx->flow, DL_FLOW_LINES * RP_CACHE_LINE);
}

static void frames_fetch(struct rp_deliver *d, struct rte_mbuf *const *frames, unsigned n)
{
	uint32_t hashes[RP_LINK_BURST];
	unsigned count = 0;

	for (unsigned i = 0; i < n; i++)
		stream_fetch(d, frames[i]);
	for (unsigned i = 0; i < n; i++)
		flow_fetch(d, frames[i], hashes, &count);
	if (d->ops.on_soon && count > 0)
		d->ops.on_soon(d->ctx, hashes, count);
}

bool rp_deliver_on_frames(
	struct rp_deliver *d, uint64_t node, struct rte_mbuf **frames, unsigned n, uint64_t now_ns)
{
	struct dl_peer *p = dl_peer_of(d, node);
	uint32_t violations = d->violation_count;
	unsigned i = 0;

	RP_ASSERT(n <= RP_LINK_BURST);
	if (n > 1 && d->rxs.taken + d->txs.taken >= FETCH_STREAMS_MIN)
		frames_fetch(d, frames, n);
	/* What is behind one that breaks the rules is of a bundle that is over. */
	while (i < n && p && p->up && d->violation_count == violations)
		frame_take(p, frames[i++], now_ns);
	d->counters.frames_stale += n - i;
	if (i < n)
		rte_pktmbuf_free_bulk(frames + i, n - i);
	return d->violation_count == violations;
}

void rp_deliver_on_frame(
	struct rp_deliver *d, uint64_t node, struct rte_mbuf *frame, uint64_t now_ns)
{
	rp_deliver_on_frames(d, node, &frame, 1, now_ns);
}
