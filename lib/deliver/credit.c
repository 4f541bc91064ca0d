/* SPDX-License-Identifier: Apache-2.0 */
#include <base/seq32.h>

#include "deliver_priv.h"

/*
 * Credit. A stream may have sent us bytes up to bytes_limit = bytes_resolved + reserved at the time
 * it was told. `reserved` is what the stream has of the peer's budget: `base` (its share, or 0
 * while the budget was exhausted), raised to what an announced message needs. When the budget
 * cannot give that, one stream a peer gets it all the same (`whole`), of WHOLES_MAX peers, and the
 * others wait in `needy`; so every announced message is completed in its turn, and what is held is
 * bounded by the budget of all peers + WHOLES_MAX messages.
 *
 * A share is the window, or less where many streams are open: an announced message costs a round
 * trip and two frames more, so that a little credit for each stream is worth far more than a window
 * for a few. Half of the budget is for shares, the rest for messages that need more than that. What
 * was promised cannot be taken back: a stream that has more than its share by now gives it up as it
 * uses it. So a stream starts with a quarter of a share; that many streams come one after the other
 * then takes of the budget a logarithm of their number.
 */
#define WHOLES_MAX 4
#define SHARE_PART 2u
#define START_PART 8u
/* Less than this is not worth a share; some small messages. */
#define SHARE_BYTES_MIN 512u
#define SHARE_MESSAGES_MIN 8u

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

/* What a stream of the peer is to have while it announces nothing. */
static uint32_t rx_share(const struct dl_peer *p)
{
	return RP_MIN(p->share, p->d->share);
}

static uint32_t share_of(const struct rp_deliver *d, uint32_t budget, uint32_t part, uint32_t n)
{
	uint32_t window = d->config.window_bytes, least = RP_MIN(window, SHARE_BYTES_MIN);

	return RP_MIN(RP_MAX(budget / part / RP_MAX(n, 1u), least), window);
}

static uint32_t rx_start(const struct dl_peer *p)
{
	const struct rp_deliver_config *c = &p->d->config;
	uint32_t start = share_of(p->d, c->peer_budget_bytes, START_PART, p->rx_count);

	if (c->budget_bytes)
		start = RP_MIN(start, share_of(p->d, c->budget_bytes, START_PART, p->d->rxs.taken));
	return start;
}

/* Streams came or went: divisions are for here, not for each message. */
void dl_credit_shares(struct dl_peer *p)
{
	struct rp_deliver *d = p->d;
	uint32_t all = d->rxs.taken, budget = d->config.budget_bytes;

	p->share = share_of(d, d->config.peer_budget_bytes, SHARE_PART, p->rx_count);
	d->share = budget ? share_of(d, budget, SHARE_PART, all) : d->config.window_bytes;
	/* What a held stream has got is parked, and there is room for so many. */
	d->share_messages = d->config.messages_max / 2 / RP_MAX(all, 1u);
	d->share_messages = RP_MAX(d->share_messages, SHARE_MESSAGES_MIN);
	d->share_messages = RP_MIN(d->share_messages, d->config.window_messages);
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
	uint64_t need = rx_need(rx), share = rx_share(p);

	if (need > rx->reserved && rx->reserved < share && budget_take(p, share - rx->reserved))
		rx->base = rx->reserved = share;
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

/* Half of what the stream has is used up: worth a frame. */
static bool rx_is_used(const struct dl_rx *rx)
{
	uint64_t half = RP_MIN(rx->reserved, (uint64_t)rx->peer->d->config.window_bytes) / 2;

	return rx->bytes_resolved + rx->reserved >= rx->bytes_limit + RP_MAX(half, 1u);
}

/* A CREDIT is due by then, in messages likewise, or for a message that cannot end without. */
static void rx_credit(struct dl_rx *rx)
{
	uint64_t bytes = rx->bytes_resolved + rx->reserved;
	uint32_t window = rx->peer->d->share_messages, messages = rx->seq_done + window;
	bool stuck = rx->partial && rx->partial_end > rx->bytes_limit && bytes > rx->bytes_limit;

	if (stuck || rx_is_used(rx) || rp_seq_geq(messages, rx->msgs_limit + (window + 1) / 2))
		dl_rx_want(rx, DL_RX_WANT_CREDIT);
}

/* Who uses what it has gets more of it with the next CREDIT, up to its share. */
static void rx_grow(struct dl_rx *rx)
{
	struct dl_peer *p = rx->peer;
	uint64_t share = rx_share(p), more;

	if (rx->base >= share || !rp_list_empty(&p->needy) || !rx_is_used(rx))
		return;
	more = RP_MIN(RP_MAX(rx->base, (uint64_t)SHARE_BYTES_MIN), share - rx->base);
	if (!budget_take(p, more))
		return;
	rx->base += more;
	rx->reserved += more;
}

static void peer_serve(struct dl_peer *p)
{
	while (!rp_list_empty(&p->needy)) {
		struct dl_rx *rx = rp_list_entry(p->needy.next, struct dl_rx, needy);

		if (!rx_reserve(rx))
			return;
		rp_list_unlink(&rx->needy);
		rx_credit(rx);
	}
}

void dl_credit_serve(struct dl_peer *p)
{
	struct rp_deliver *d = p->d;

	peer_serve(p);
	if (!d->budget_short)
		return;
	/* Whoever finds too little again says so again; not always the same one comes first. */
	d->budget_short = false;
	for (uint32_t i = 1; i < d->peer_count; i++) {
		struct dl_peer *other = &d->peers[(p - d->peers + i) % d->peer_count];

		if (other->node != 0)
			peer_serve(other);
	}
}

/* The one that has the grant and is held must not keep the others from coming. */
void dl_credit_held(struct dl_peer *p)
{
	if (p->whole && p->whole->holding && !rp_list_empty(&p->needy))
		dl_rx_want(p->whole, DL_RX_WANT_PROCESS);
}

/*
 * Asks for what the incomplete message needs, and queues for it when there is none to be had. With
 * messages held before it only the budget gives: what is beyond it is for one message, not for a
 * row of them. It asks again when they are resolved.
 */
void dl_credit_announce(struct dl_rx *rx)
{
	struct dl_peer *p = rx->peer;
	uint64_t need = rx_need(rx);

	if (need > rx->reserved && rp_list_empty(&rx->needy)) {
		if (!rp_list_empty(&rx->held)) {
			if (rp_list_empty(&p->needy) && budget_take(p, need - rx->reserved))
				rx->reserved = need;
		} else if (!rp_list_empty(&p->needy) || !rx_reserve(rx)) {
			rp_list_push_back(&p->needy, &rx->needy);
			dl_credit_held(p);
		}
	}
	rx_credit(rx);
}

/* Gives back what was reserved beyond the base and is not in use any more, nor promised. */
void dl_credit_release(struct dl_rx *rx)
{
	struct dl_peer *p = rx->peer;
	uint64_t keep;

	rx->base = RP_MIN(rx->base, (uint64_t)rx_share(p));
	keep = RP_MAX(rx->base, rx->bytes_limit - rx->bytes_resolved);
	if (rx->partial)
		keep = RP_MAX(keep, RP_MIN(rx->reserved, rx_need(rx)));
	if (rx->reserved > keep) {
		budget_return(p, rx->reserved - keep);
		rx->reserved = keep;
	}
	if (rx->bytes_resolved >= rx->whole_end)
		whole_end(rx);
	dl_credit_serve(p);
	rx_grow(rx);
	dl_credit_announce(rx);
}

void dl_credit_begin(struct dl_rx *rx)
{
	struct dl_peer *p = rx->peer;
	uint32_t start;

	dl_credit_shares(p);
	rx->msgs_limit = p->d->share_messages;
	start = rx_start(p);
	if (rp_list_empty(&p->needy) && budget_take(p, start))
		rx->base = rx->reserved = rx->bytes_limit = start;
}

void dl_credit_end(struct dl_rx *rx)
{
	struct dl_peer *p = rx->peer;

	rp_list_unlink(&rx->needy);
	budget_return(p, rx->reserved);
	rx->reserved = rx->base = 0;
	whole_end(rx);
}
