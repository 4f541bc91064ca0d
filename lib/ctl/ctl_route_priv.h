/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* ctl_route.c: parts of the answer of Admin.Route, for queues of both kinds. */

#include <ctl/ctl_priv.h>

struct Ringpost__V1__RoutePlace;
/** A place of consumers, with its name and the way to it. */
struct ctl_place;

/** RP_PEERS_MAX of them; free() them when the answer has left. Ends the process without memory. */
struct ctl_place *ctl_places_new(void);
/** The ith of them is that node, without a way yet. Borrowed. */
struct Ringpost__V1__RoutePlace *ctl_place_init(
	struct rp_ctl *ctl, struct ctl_place *places, uint32_t i, uint64_t node);
/** At most three. `step` and `way` are literals. */
void ctl_place_hop(struct Ringpost__V1__RoutePlace *place, const char *step, uint64_t from,
	uint64_t to, const char *way);
