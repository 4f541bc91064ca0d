/* SPDX-License-Identifier: Apache-2.0 */
#include <base/wheel.h>

#define LEVEL1 RP_WHEEL_SLOTS
#define LEVEL2 (2 * RP_WHEEL_SLOTS)
#define SLOT_BITS 10
#define TOP_SHIFT (2 * SLOT_BITS)

void rp_wheel_init(struct rp_wheel *w, uint64_t now_ns)
{
	*w = (struct rp_wheel){.tick = now_ns >> RP_WHEEL_SHIFT, .next_tick = UINT64_MAX};
	rp_list_init(&w->due);
	for (unsigned i = 0; i < RP_ARRAY_SIZE(w->slots); i++)
		rp_list_init(&w->slots[i]);
}

void rp_wheel_node_init(struct rp_wheel_node *n)
{
	rp_list_init(&n->link);
	n->deadline_ns = RP_NEVER;
	n->slot = 0;
}

/* Distance in slots from `from` to the first one in use, going round once; -1: none. */
static int wheel_scan(const struct rp_wheel *w, unsigned base, unsigned slots, unsigned from)
{
	const uint64_t *bits = &w->bits[base / 64];
	unsigned words = slots / 64, word = from / 64;
	uint64_t v = bits[word] & (UINT64_MAX << (from % 64));

	for (unsigned i = 0; i <= words; i++) {
		if (v) {
			unsigned at = word * 64 + (unsigned)__builtin_ctzll(v);

			return (int)((at - from) & (slots - 1));
		}
		word = word + 1 == words ? 0 : word + 1;
		v = bits[word];
	}
	return -1;
}

static uint64_t wheel_find_next(const struct rp_wheel *w)
{
	uint64_t next = UINT64_MAX;
	int d = wheel_scan(w, 0, RP_WHEEL_SLOTS, w->tick & (RP_WHEEL_SLOTS - 1));

	if (d >= 0)
		next = w->tick + (unsigned)d;
	d = wheel_scan(
		w, LEVEL1, RP_WHEEL_SLOTS, ((w->tick >> SLOT_BITS) + 1) & (RP_WHEEL_SLOTS - 1));
	if (d >= 0)
		next = RP_MIN(next, ((w->tick >> SLOT_BITS) + 1 + (unsigned)d) << SLOT_BITS);
	d = wheel_scan(w, LEVEL2, RP_WHEEL_TOP_SLOTS,
		((w->tick >> TOP_SHIFT) + 1) & (RP_WHEEL_TOP_SLOTS - 1));
	if (d >= 0)
		next = RP_MIN(next, ((w->tick >> TOP_SHIFT) + 1 + (unsigned)d) << TOP_SHIFT);
	return next;
}

/* Puts the node where its deadline says; returns the tick at which something is to be done for it.
 */
static uint64_t wheel_place(struct rp_wheel *w, struct rp_wheel_node *n)
{
	/* Rounded up: it must not fire early. */
	uint64_t due = (n->deadline_ns >> RP_WHEEL_SHIFT) +
		       ((n->deadline_ns & (RP_WHEEL_TICK_NS - 1)) != 0);
	uint64_t at;
	unsigned slot;

	due = RP_MAX(due, w->tick);
	if (due - w->tick < RP_WHEEL_SLOTS) {
		slot = due & (RP_WHEEL_SLOTS - 1);
		at = due;
	} else if ((due >> SLOT_BITS) - (w->tick >> SLOT_BITS) < RP_WHEEL_SLOTS) {
		slot = LEVEL1 + ((due >> SLOT_BITS) & (RP_WHEEL_SLOTS - 1));
		at = due >> SLOT_BITS << SLOT_BITS;
	} else {
		uint64_t top =
			RP_MIN(due >> TOP_SHIFT, (w->tick >> TOP_SHIFT) + RP_WHEEL_TOP_SLOTS - 1);

		slot = LEVEL2 + (top & (RP_WHEEL_TOP_SLOTS - 1));
		at = top << TOP_SHIFT;
	}
	n->slot = (uint16_t)slot;
	rp_list_push_back(&w->slots[slot], &n->link);
	w->bits[slot / 64] |= 1ull << (slot % 64);
	return at;
}

void rp_wheel_add(struct rp_wheel *w, struct rp_wheel_node *n, uint64_t deadline_ns)
{
	uint64_t at;

	n->deadline_ns = deadline_ns;
	at = wheel_place(w, n);
	w->next_tick = RP_MIN(w->next_tick, at);
	w->count++;
}

void rp_wheel_del(struct rp_wheel *w, struct rp_wheel_node *n)
{
	if (!rp_wheel_armed(n))
		return;
	rp_list_unlink(&n->link);
	w->count--;
	/* Of a node that is due its slot, where it is empty, has no bit any more. */
	if (rp_list_empty(&w->slots[n->slot]))
		w->bits[n->slot / 64] &= ~(1ull << (n->slot % 64));
}

static void wheel_empty_slot(struct rp_wheel *w, unsigned slot, struct rp_list *to)
{
	rp_list_init(to);
	rp_list_splice_back(to, &w->slots[slot]);
	w->bits[slot / 64] &= ~(1ull << (slot % 64));
}

static void wheel_cascade(struct rp_wheel *w, unsigned slot)
{
	struct rp_list moved, *l;

	wheel_empty_slot(w, slot, &moved);
	while ((l = rp_list_pop_front(&moved)))
		wheel_place(w, rp_list_entry(l, struct rp_wheel_node, link));
}

void rp_wheel_turn(struct rp_wheel *w, uint64_t target)
{
	while (w->next_tick <= target) {
		struct rp_list fired;

		w->tick = RP_MAX(w->tick, w->next_tick);
		if ((w->tick & ((1u << TOP_SHIFT) - 1)) == 0)
			wheel_cascade(
				w, LEVEL2 + ((w->tick >> TOP_SHIFT) & (RP_WHEEL_TOP_SLOTS - 1)));
		if ((w->tick & (RP_WHEEL_SLOTS - 1)) == 0)
			wheel_cascade(w, LEVEL1 + ((w->tick >> SLOT_BITS) & (RP_WHEEL_SLOTS - 1)));
		wheel_empty_slot(w, w->tick & (RP_WHEEL_SLOTS - 1), &fired);
		rp_list_splice_back(&w->due, &fired);
		w->next_tick = wheel_find_next(w);
	}
}

uint64_t rp_wheel_next(const struct rp_wheel *w)
{
	if (!rp_list_empty(&w->due))
		return 0;
	return w->next_tick == UINT64_MAX ? RP_NEVER : w->next_tick << RP_WHEEL_SHIFT;
}
