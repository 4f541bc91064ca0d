/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What tests of single rules share. */

#include "cluster.h"

#define Q "jobs"

static inline void settle(struct cluster *c)
{
	cluster_run(c, 20 * MS);
	cluster_audit(c);
}

static inline void ok(struct cluster *c, unsigned token)
{
	assert_true(answer_of(c, token)->done);
	assert_int_equal(answer_of(c, token)->status, RP_Q_OK);
}

static inline void deleted(struct cluster *c, unsigned token, unsigned count)
{
	ok(c, token);
	assert_int_equal(answer_of(c, token)->deleted, count);
}

static inline void status_is(struct cluster *c, unsigned token, enum rp_qstatus status)
{
	assert_true(answer_of(c, token)->done);
	assert_string_equal(rp_qstatus_name(answer_of(c, token)->status), rp_qstatus_name(status));
}

static inline struct rp_queue_counters totals_of(struct cluster *c, unsigned node)
{
	struct rp_queue_totals t;

	rp_queue_get_totals(c->nodes[node].qs, &t);
	return t.counters;
}
