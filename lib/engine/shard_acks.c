/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Acknowledges that come together: who writes what a queue brings in batches acknowledges a batch,
 * and one message on each ring does for all of it.
 */

#include <string.h>

#include <rte_mbuf.h>

#include <base/assert.h>
#include <base/mbuf.h>
#include <engine/shard_engine_priv.h>

/** In the tokens of single ones; control's have bits above it, or are far below. */
#define ACKS_FLAG (1ull << 55)
#define CHUNK 32

static void acks_less(struct rp_engine *e, struct engine_acks *g)
{
	const struct rp_xmsg m = {
		.type = RP_XMSG_ANSWER,
		.flags = 1,
		.token = g->token,
		.status = (uint16_t)g->status,
		.count = g->deleted,
	};

	RP_ASSERT(g->open > 0);
	if (--g->open == 0)
		engine_tell(e, &m);
}

void engine_on_acks(
	struct rp_engine *e, const struct rp_xmsg *m, struct rp_span name, uint64_t now_ns)
{
	struct engine_acks *g = e->acks;
	uint64_t idx[CHUNK];

	while (g->open > 0)
		RP_ASSERT(++g < e->acks + RP_XMSG_ACKS_OPEN_MAX);
	RP_ASSERT(m->count <= RP_XMSG_ACKS_MAX &&
		  m->m->pkt_len == m->name_length + m->count * sizeof(idx[0]));
	/* One more than there are, so that it is not over while they are begun. */
	*g = (struct engine_acks){.token = m->token, .open = m->count + 1, .status = RP_Q_OK};
	for (uint32_t i = 0; i < m->count; i += CHUNK) {
		uint32_t n = RP_MIN(m->count - i, (uint32_t)CHUNK);

		rp_mbuf_copy_out(
			m->m, m->name_length + i * sizeof(idx[0]), idx, n * sizeof(idx[0]));
		for (uint32_t k = 0; k < n; k++)
			rp_queue_ack(e->queues, ACKS_FLAG | (uint64_t)(g - e->acks), name, idx[k],
				m->uuid, 0, NULL, now_ns);
	}
	rte_pktmbuf_free(m->m);
	acks_less(e, g);
}

bool engine_acks_answer(struct rp_engine *e, uint64_t token, const struct rp_queue_answer *a)
{
	struct engine_acks *g;

	if (token - ACKS_FLAG >= RP_XMSG_ACKS_OPEN_MAX)
		return false;
	g = &e->acks[token - ACKS_FLAG];
	if (a->status == RP_Q_OK)
		g->deleted += a->deleted;
	else
		g->status = a->status;
	rte_pktmbuf_free(a->payload);
	acks_less(e, g);
	return true;
}
