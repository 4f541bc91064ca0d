/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What tests of process requests share: a requester, and what it got. */

#include <stdio.h>
#include <string.h>

#include "rules.h"

#define REPLY "reply"

struct world {
	struct cluster *c;
	struct client *requester;
};

static inline struct world world_new(unsigned nodes, const struct rp_queue_config *config)
{
	struct world w = {.c = cluster_new(nodes, 1, config)};

	w.requester = open_consumer(w.c, 0, REPLY, 250, 0, NULL);
	settle(w.c);
	return w;
}

static inline struct ask *asked(
	struct world *w, const char *tail, uint64_t value, const struct ask_options *options)
{
	struct ask *a = ask(w->c, 0, Q, tail, value, REPLY, options);

	settle(w->c);
	assert_true(a->done);
	return a;
}

static inline void got(const struct world *w, unsigned count, uint64_t last)
{
	assert_int_equal(w->requester->event_count, count);
	if (count > 0 && w->requester->events[count - 1].value != last)
		fail_msg("the last is %#llx, not %#llx",
			(unsigned long long)w->requester->events[count - 1].value,
			(unsigned long long)last);
}

static inline uint64_t failed(enum rp_queue_death why)
{
	return FAILED_BASE | why;
}

/* Nothing is left of any request, but the memory of sessions. */
static inline void over(struct world *w)
{
	cluster_audit(w->c);
	for (unsigned i = 0; i < w->c->node_count; i++) {
		if (w->c->nodes[i].dead)
			continue;
		assert_int_equal(info_of(w->c, i, Q).depth, 0);
		assert_int_equal(info_of(w->c, i, REPLY).depth, 0);
		assert_int_equal(w->c->nodes[i].job_count, 0);
	}
	cluster_free(w->c);
}
