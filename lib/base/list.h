/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Intrusive doubly linked list with a sentinel. An unlinked node points at itself, so unlinking
 * twice is harmless and "is it on a list" needs no flag.
 */

#include <stdbool.h>
#include <stddef.h>

#include <base/units.h>

struct rp_list {
	struct rp_list *next, *prev;
};

static inline void rp_list_init(struct rp_list *l)
{
	l->next = l->prev = l;
}

static inline bool rp_list_empty(const struct rp_list *l)
{
	return l->next == l;
}

static inline void rp_list_insert_between(
	struct rp_list *n, struct rp_list *prev, struct rp_list *next)
{
	n->prev = prev;
	n->next = next;
	prev->next = n;
	next->prev = n;
}

static inline void rp_list_push_back(struct rp_list *l, struct rp_list *n)
{
	rp_list_insert_between(n, l->prev, l);
}

static inline void rp_list_push_front(struct rp_list *l, struct rp_list *n)
{
	rp_list_insert_between(n, l, l->next);
}

/** Takes a node out that is on a list, and leaves it as it is: to be put into another one, or gone.
 */
static inline void rp_list_remove(struct rp_list *n)
{
	n->prev->next = n->next;
	n->next->prev = n->prev;
}

static inline void rp_list_unlink(struct rp_list *n)
{
	rp_list_remove(n);
	rp_list_init(n);
}

static inline struct rp_list *rp_list_pop_front(struct rp_list *l)
{
	struct rp_list *n = l->next;

	if (n == l)
		return NULL;
	rp_list_unlink(n);
	return n;
}

/** Moves all of `from` behind the last of `to`. */
static inline void rp_list_splice_back(struct rp_list *to, struct rp_list *from)
{
	if (rp_list_empty(from))
		return;
	from->next->prev = to->prev;
	to->prev->next = from->next;
	from->prev->next = to;
	to->prev = from->prev;
	rp_list_init(from);
}

/** Moves `first` to `last`, which stand on another list in this order, in front of all of `to`. */
static inline void rp_list_move_front(
	struct rp_list *to, struct rp_list *first, struct rp_list *last)
{
	first->prev->next = last->next;
	last->next->prev = first->prev;
	last->next = to->next;
	to->next->prev = last;
	first->prev = to;
	to->next = first;
}

#define rp_list_entry(node, type, member) RP_CONTAINER_OF(node, type, member)
#define rp_list_foreach(n, l) for (n = (l)->next; n != (l); n = n->next)
/** `t` holds the next node, so the body may unlink or free `n`. */
#define rp_list_foreach_safe(n, t, l) for (n = (l)->next, t = n->next; n != (l); n = t, t = n->next)
