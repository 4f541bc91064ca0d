/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>

#include <base/assert.h>
#include <base/mbuf.h>

#include "deliver_priv.h"

static bool slab_init(struct dl_slab *s, uint32_t size, uint32_t count)
{
	*s = (struct dl_slab){.size = size, .count = count};
	s->base = calloc(count, size);
	return s->base != NULL;
}

void *dl_slab_get(struct dl_slab *s)
{
	void *object = s->free;

	if (object)
		memcpy(&s->free, object, sizeof(s->free));
	else if (s->used < s->count)
		object = s->base + (size_t)s->used++ * s->size;
	else
		return NULL;
	s->taken++;
	return object;
}

void dl_slab_put(struct dl_slab *s, void *object)
{
	RP_ASSERT(s->taken > 0);
	memcpy(object, &s->free, sizeof(s->free));
	s->free = object;
	s->taken--;
}

void *dl_slab_at(const struct dl_slab *s, uint32_t index)
{
	return index < s->used ? s->base + (size_t)index * s->size : NULL;
}

uint32_t dl_slab_index(const struct dl_slab *s, const void *object)
{
	return (uint32_t)(((const uint8_t *)object - s->base) / s->size);
}

static bool config_ok(const struct rp_deliver_config *c)
{
	return c->node != 0 && c->shards > 0 && c->shards <= RP_SHARDS_MAX &&
	       c->shard < c->shards && c->links <= c->shards && c->message_bytes_max > 0 &&
	       c->message_bytes_max <= 1u << 30 && c->window_bytes > 0 &&
	       c->window_bytes <= c->peer_budget_bytes && c->window_messages <= 1u << 20 &&
	       c->streams_max > 0 && c->streams_max < DL_SLOT_RX - 1 && c->peers_max > 0 &&
	       c->peers_max <= RP_PEERS_MAX && c->peer_messages_max > 0 &&
	       c->peer_messages_max <= 1u << 24 && c->messages_max > 0 &&
	       c->messages_max <= 1u << 24 && c->idle_ns > 0 && c->pool &&
	       rte_pktmbuf_data_room_size(c->pool) >= RTE_PKTMBUF_HEADROOM + DL_HEAD_BYTES_MAX;
}

static void config_defaults(struct rp_deliver_config *c)
{
	c->links = c->links ? c->links : 1;
	c->window_messages = c->window_messages ? c->window_messages : DL_WINDOW_MESSAGES;
	c->stream_messages_max =
		c->stream_messages_max ? c->stream_messages_max : DL_STREAM_MESSAGES;
	c->credit_idle_ns = c->credit_idle_ns ? c->credit_idle_ns : DL_CREDIT_IDLE_NS;
	c->stall_ns = c->stall_ns ? c->stall_ns : DL_STALL_NS;
	c->unary_window = c->unary_window ? c->unary_window : DL_UNARY_WINDOW;
	c->payload_pool = c->payload_pool ? c->payload_pool : c->pool;
}

static uint32_t pow2_above(uint32_t n)
{
	uint32_t p = 1;

	while (p < n)
		p *= 2;
	return p;
}

static bool tables_create(struct rp_deliver *d)
{
	const struct rp_deliver_config *c = &d->config;
	uint32_t flows = c->streams_max + c->messages_max;

	d->flow_mask = pow2_above(flows) - 1;
	d->ring_mask = pow2_above(c->peer_messages_max) - 1;
	d->flow_heads = calloc(d->flow_mask + 1, sizeof(struct dl_flow *));
	d->peers = calloc(c->peers_max, sizeof(d->peers[0]));
	d->rings = calloc((size_t)c->peers_max * (d->ring_mask + 1), sizeof(struct dl_msg *));
	return d->flow_heads && d->peers && d->rings &&
	       slab_init(&d->messages, sizeof(struct dl_msg), c->messages_max) &&
	       slab_init(&d->parked, sizeof(struct dl_msg), c->messages_max) &&
	       slab_init(&d->flows, sizeof(struct dl_flow), flows) &&
	       slab_init(&d->txs, sizeof(struct dl_tx), c->streams_max) &&
	       slab_init(&d->rxs, sizeof(struct dl_rx), c->streams_max) &&
	       slab_init(&d->partials, sizeof(struct dl_partial),
		       c->peers_max * DL_LINKS_OF_SHARD * RP_SHARDS_MAX);
}

struct rp_deliver *rp_deliver_create(
	const struct rp_deliver_config *config, const struct rp_deliver_ops *ops, void *ctx)
{
	struct rp_deliver *d;

	if (!config_ok(config)) {
		errno = EINVAL;
		return NULL;
	}
	d = calloc(1, sizeof(*d));
	if (!d)
		return NULL;
	d->config = *config;
	config_defaults(&d->config);
	d->ops = *ops;
	d->ctx = ctx;
	d->retry_at_ns = RP_NEVER;
	rp_list_init(&d->work);
	rp_list_init(&d->holding);
	rp_list_init(&d->busy);
	rp_list_init(&d->quiet);
	rp_list_init(&d->idle);
	rp_list_init(&d->waiting);
	if (!tables_create(d)) {
		rp_deliver_destroy(d);
		errno = ENOMEM;
		return NULL;
	}
	return d;
}

static void peer_drop_streams(struct dl_peer *p)
{
	dl_backlog_drop(p);
	while (!rp_list_empty(&p->rxs))
		dl_rx_free(rp_list_entry(p->rxs.next, struct dl_rx, in_peer));
	while (!rp_list_empty(&p->txs))
		dl_tx_free(rp_list_entry(p->txs.next, struct dl_tx, in_peer));
	dl_partials_drop(p);
	dl_control_reset(p);
	for (unsigned i = 0; i < DL_LINKS_OF_SHARD; i++)
		p->acks[i].pending = 0;
}

void rp_deliver_destroy(struct rp_deliver *d)
{
	if (!d)
		return;
	for (uint32_t i = 0; d->peers && i < d->peer_count; i++) {
		struct dl_peer *p = &d->peers[i];

		p->up = false;
		peer_drop_streams(p);
		while (!rp_list_empty(&p->flows)) {
			struct dl_flow *f = rp_list_entry(p->flows.next, struct dl_flow, in_peer);
			struct dl_msg *m;

			rp_list_unlink(&f->in_peer);
			while ((m = dl_flow_pop(f)) != NULL)
				dl_msg_free(d, m);
		}
	}
	free(d->flow_heads);
	free(d->peers);
	free(d->rings);
	free(d->messages.base);
	free(d->parked.base);
	free(d->flows.base);
	free(d->txs.base);
	free(d->rxs.base);
	free(d->partials.base);
	free(d);
}

struct dl_peer *dl_peer_of(const struct rp_deliver *d, uint64_t node)
{
	for (uint32_t i = 0; i < d->peer_count; i++) {
		if (d->peers[i].node == node)
			return &d->peers[i];
	}
	return NULL;
}

void dl_peer_mark(struct dl_peer *p)
{
	if (rp_list_empty(&p->work))
		rp_list_push_back(&p->d->work, &p->work);
}

bool dl_peer_can_unary(const struct dl_peer *p)
{
	return p->unary && p->d->config.unary_fallback;
}

void dl_violation(struct dl_peer *p, enum rp_deliver_violation why)
{
	struct rp_deliver *d = p->d;

	d->counters.violations[why]++;
	d->violation_count++;
	d->ops.violation(d->ctx, p->node, why);
}

static struct dl_peer *peer_get(struct rp_deliver *d, uint64_t node)
{
	struct dl_peer *p = dl_peer_of(d, node);
	uint32_t index = d->peer_count;

	/* A place of a peer that was removed is used again; its node is 0. */
	if (!p)
		p = dl_peer_of(d, 0);
	else
		return p;
	if (p)
		index = (uint32_t)(p - d->peers);
	else if (index == d->config.peers_max)
		return NULL;
	else
		d->peer_count++;
	p = &d->peers[index];
	*p = (struct dl_peer){.d = d, .node = node};
	p->ring = &d->rings[(size_t)index * (d->ring_mask + 1)];
	p->ring_head = p->ring_tail = 1;
	rp_list_init(&p->work);
	rp_list_init(&p->flows);
	rp_list_init(&p->txs);
	rp_list_init(&p->rxs);
	rp_list_init(&p->ready);
	rp_list_init(&p->gated);
	rp_list_init(&p->dirty_tx);
	rp_list_init(&p->dirty_rx);
	rp_list_init(&p->needy);
	rp_list_init(&p->partials);
	rp_list_init(&p->lane);
	rp_list_init(&p->unary_ready);
	return p;
}

static void peer_room(struct dl_peer *p)
{
	p->room_wanted = false;
	p->room_due = true;
	dl_peer_mark(p);
}

int rp_deliver_peer_up(struct rp_deliver *d, uint64_t node, uint32_t bundle, uint64_t now_ns)
{
	struct dl_peer *p = node != 0 ? peer_get(d, node) : NULL;
	struct rp_list *n, *t;

	if (!p)
		return -ENOSPC;
	if (p->up)
		rp_deliver_peer_down(d, node, now_ns);
	p->up = true;
	p->gone = false;
	p->bundle = bundle;
	dl_control_reset(p);
	rp_list_foreach_safe (n, t, &p->flows) {
		struct dl_flow *f = rp_list_entry(n, struct dl_flow, in_peer);

		if (!f->unary)
			continue;
		f->reopen = true;
		f->unary_left = 0;
		f->retry_ns = 0;
		if (!f->unary_busy)
			dl_unary_next(f, now_ns);
	}
	peer_room(p);
	return 0;
}

void rp_deliver_peer_down(struct rp_deliver *d, uint64_t node, uint64_t now_ns)
{
	struct dl_peer *p = dl_peer_of(d, node);
	struct rp_list *n, *t;

	if (!p || !p->up)
		return;
	p->up = false;
	peer_drop_streams(p);
	if (!dl_peer_can_unary(p)) {
		dl_peer_lose(p, false, now_ns);
		return;
	}
	rp_list_foreach_safe (n, t, &p->flows) {
		struct dl_flow *f = rp_list_entry(n, struct dl_flow, in_peer);

		rp_list_unlink(&f->timer);
		if (f->count == 0) {
			dl_flow_release(f);
		} else if (!f->unary) {
			rp_list_unlink(&f->unary_entry);
			dl_flow_fall_back(f, RP_DELIVER_FALLBACK_LINK_DOWN, now_ns);
		}
	}
}

static void peer_unary_changed(struct dl_peer *p, uint64_t now_ns)
{
	struct rp_list *n, *t;

	if (dl_peer_can_unary(p)) {
		p->unary_backoff_ns = p->unary_retry_at_ns = 0;
		peer_room(p);
		return;
	}
	if (!p->up) {
		dl_peer_lose(p, false, now_ns);
		return;
	}
	rp_list_foreach_safe (n, t, &p->flows) {
		struct dl_flow *f = rp_list_entry(n, struct dl_flow, in_peer);

		if (f->unary && !f->unary_busy)
			dl_unary_next(f, now_ns);
	}
}

int rp_deliver_set_unary(struct rp_deliver *d, uint64_t node, bool available, uint64_t now_ns)
{
	struct dl_peer *p = dl_peer_of(d, node);

	/* Of a peer that was removed the way's end is no news, and takes no place. */
	if (!available && (!p || node == 0))
		return 0;
	p = node != 0 ? peer_get(d, node) : NULL;
	if (!p)
		return -ENOSPC;
	if (p->unary == available)
		return 0;
	p->unary = available;
	peer_unary_changed(p, now_ns);
	return 0;
}

void rp_deliver_set_fallback(struct rp_deliver *d, bool on, uint64_t now_ns)
{
	if (d->config.unary_fallback == on)
		return;
	d->config.unary_fallback = on;
	for (uint32_t i = 0; i < d->peer_count; i++) {
		if (d->peers[i].node != 0 && d->peers[i].unary)
			peer_unary_changed(&d->peers[i], now_ns);
	}
}

void rp_deliver_raise_message_bytes(struct rp_deliver *d, uint32_t message_bytes_max)
{
	d->config.message_bytes_max = RP_MAX(d->config.message_bytes_max, message_bytes_max);
}

void rp_deliver_peer_remove(struct rp_deliver *d, uint64_t node, uint64_t now_ns)
{
	struct dl_peer *p = node != 0 ? dl_peer_of(d, node) : NULL;

	if (!p)
		return;
	p->up = p->unary = false;
	peer_drop_streams(p);
	dl_peer_lose(p, true, now_ns);
	rp_list_unlink(&p->work);
	p->node = 0;
}

bool rp_deliver_reachable(const struct rp_deliver *d, uint64_t node)
{
	const struct dl_peer *p = dl_peer_of(d, node);

	return p && (p->up || dl_peer_can_unary(p));
}

void rp_deliver_on_room(struct rp_deliver *d, uint64_t node, uint64_t now_ns)
{
	struct dl_peer *p = dl_peer_of(d, node);

	if (p && p->up)
		dl_peer_mark(p);
}

void rp_deliver_resume(struct rp_deliver *d, uint64_t now_ns)
{
	struct rp_list again;

	rp_list_init(&again);
	rp_list_splice_back(&again, &d->holding);
	while (!rp_list_empty(&again)) {
		struct dl_rx *rx = rp_list_entry(again.next, struct dl_rx, hold_entry);

		rp_list_unlink(&rx->hold_entry);
		dl_rx_process(rx, now_ns);
	}
}

/* Streams and acknowledgements first: they never need credit, and free what the peer holds. */
static void peer_service(struct dl_peer *p, uint64_t now_ns)
{
	struct rp_list rx, tx;

	rp_list_init(&rx);
	rp_list_init(&tx);
	rp_list_splice_back(&rx, &p->dirty_rx);
	rp_list_splice_back(&tx, &p->dirty_tx);
	while (!rp_list_empty(&rx)) {
		struct dl_rx *r = rp_list_entry(rp_list_pop_front(&rx), struct dl_rx, dirty);

		dl_rx_service(r, now_ns);
	}
	while (!rp_list_empty(&tx) && !p->blocked)
		dl_tx_service(rp_list_entry(rp_list_pop_front(&tx), struct dl_tx, dirty));
	rp_list_splice_back(&p->dirty_tx, &tx);
}

/* One control frame, then one frame of the next stream in turn, and so on. */
static void peer_send(struct dl_peer *p)
{
	uint32_t left = DL_PUMP_FRAMES;
	bool moved = true;

	while (moved && left > 0 && !p->blocked && !p->gone) {
		moved = false;
		if (!rp_list_empty(&p->lane) && dl_lane_pump(p)) {
			moved = true;
			left--;
		}
		if (!rp_list_empty(&p->ready) && !p->blocked) {
			struct dl_flow *f =
				rp_list_entry(rp_list_pop_front(&p->ready), struct dl_flow, ready);

			bool sent = dl_flow_pump(f);

			/* One that may not begin a message makes way for those that have. */
			moved |= sent || !rp_list_empty(&f->ready);
			left -= sent;
			dl_flow_update(f);
		}
	}
}

static bool peer_has_work(const struct dl_peer *p)
{
	return !rp_list_empty(&p->dirty_rx) || !rp_list_empty(&p->dirty_tx) ||
	       !rp_list_empty(&p->ready) || dl_acks_pending(p) ||
	       (!rp_list_empty(&p->lane) && (p->lane_started || dl_head_allowed(p)));
}

static void peer_pump(struct dl_peer *p, uint64_t now_ns)
{
	struct rp_deliver *d = p->d;

	if (p->backlog_count > 0)
		dl_backlog_flush(p);
	if (p->up && !p->blocked && !p->gone) {
		dl_acks_pump(p);
		peer_service(p, now_ns);
		peer_send(p);
	}
	dl_unary_pump(p, now_ns);
	if (p->room_due) {
		p->room_due = false;
		d->ops.on_room(d->ctx, p->node, now_ns);
	}
	if (p->up && !p->blocked && !p->gone && peer_has_work(p))
		dl_peer_mark(p);
}

/*
 * What waits in links' queues leaves buffers to answers, heartbeats and local deliveries. What the
 * lcores' caches hold is not counted, since a sum over all of them is too much.
 */
static uint32_t frames_spare(const struct rp_deliver *d)
{
	const struct rte_mempool *pool = d->config.pool;
	uint32_t n = rte_mempool_get_ops(pool->ops_index)->get_count(pool);
	uint32_t kept = pool->size / DL_POOL_LEFT_PART;

	return n > kept ? n - kept : 0;
}

bool rp_deliver_poll(struct rp_deliver *d, uint64_t now_ns)
{
	struct rp_list work;

	d->now_ns = now_ns;
	dl_tx_timers(d, now_ns);
	dl_unary_timers(d, now_ns);
	if (!rp_list_empty(&d->work))
		d->frames_spare = frames_spare(d);
	rp_list_init(&work);
	rp_list_splice_back(&work, &d->work);
	while (!rp_list_empty(&work))
		peer_pump(rp_list_entry(rp_list_pop_front(&work), struct dl_peer, work), now_ns);
	return !rp_list_empty(&d->work);
}

static uint64_t list_deadline(const struct rp_list *list, uint64_t after_ns)
{
	if (rp_list_empty(list))
		return RP_NEVER;
	return rp_list_entry(list->next, struct dl_flow, timer)->stamp + after_ns;
}

uint64_t rp_deliver_next_deadline(const struct rp_deliver *d)
{
	uint64_t t = d->retry_at_ns;

	if (!rp_list_empty(&d->work))
		return 0;
	t = RP_MIN(t, list_deadline(&d->busy, d->config.stall_ns));
	t = RP_MIN(t, list_deadline(&d->quiet, d->config.credit_idle_ns));
	t = RP_MIN(t, list_deadline(&d->idle, d->config.idle_ns));
	if (!rp_list_empty(&d->waiting))
		t = RP_MIN(
			t, rp_list_entry(d->waiting.next, struct dl_flow, unary_entry)->retry_ns);
	return t;
}

void rp_deliver_info(const struct rp_deliver *d, uint64_t node, struct rp_deliver_info *info)
{
	*info = (struct rp_deliver_info){0};
	for (uint32_t i = 0; i < d->peer_count; i++) {
		const struct dl_peer *p = &d->peers[i];
		const struct rp_list *n;

		if (p->node == 0 || (node != 0 && p->node != node))
			continue;
		info->streams_out += p->tx_count;
		info->streams_in += p->rx_count;
		info->messages += p->messages;
		info->credit_given += p->credit_given;
		info->up |= p->up;
		info->unary |= p->unary;
		rp_list_foreach (n, &p->flows)
			info->flows_unary += rp_list_entry(n, struct dl_flow, in_peer)->unary;
	}
}

void rp_deliver_link_streams(
	const struct rp_deliver *d, uint64_t node, uint32_t link, uint32_t *out, uint32_t *in)
{
	const struct dl_peer *p = dl_peer_of(d, node);

	if (!p || link >= RP_SHARDS_MAX)
		return;
	*out += p->tx_links[link];
	*in += p->rx_links[link];
}

const struct rp_deliver_counters *rp_deliver_counters(const struct rp_deliver *d)
{
	return &d->counters;
}

const char *rp_deliver_fallback_text(enum rp_deliver_fallback why)
{
	static const char *const texts[] = {
#define X(name, text) [RP_DELIVER_FALLBACK_##name] = text,
		RP_DELIVER_FALLBACKS(X)
#undef X
	};

	return (unsigned)why < RP_DELIVER_FALLBACK_COUNT ? texts[why] : "?";
}

const char *rp_deliver_violation_text(enum rp_deliver_violation why)
{
	static const char *const texts[] = {
#define X(name, text) [RP_DELIVER_VIOLATION_##name] = text,
		RP_DELIVER_VIOLATIONS(X)
#undef X
	};

	return (unsigned)why < RP_DELIVER_VIOLATION_COUNT ? texts[why] : "?";
}
