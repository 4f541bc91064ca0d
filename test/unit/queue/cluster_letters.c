/* SPDX-License-Identifier: Apache-2.0 */

/* Dead letters of a cluster, which in a node the control plane carries between shards. */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "cluster.h"

/* A dead letter on its way between two queues, which the control plane carries. */
struct letter {
	struct rp_list link;
	unsigned node;
	uint64_t boot, token, id, due_ns;
	char to[32];
	uint16_t tail_length;
	struct rte_mbuf *payload;
	bool replay; /**< what has `no` as its tail is no letter */
	bool answered;
	enum rp_qstatus status;
};

void letter_answered(struct cluster *c, uint64_t id, enum rp_qstatus status)
{
	struct rp_list *l;

	rp_list_foreach (l, &c->letters) {
		struct letter *t = rp_list_entry(l, struct letter, link);

		if (t->id != id)
			continue;
		t->answered = true;
		t->status = status;
		t->due_ns = c->now_ns + cluster_delay(c);
	}
}

int on_dead_letter(void *ctx, uint64_t token, const struct rp_queue_letter *letter)
{
	struct node *n = ctx;
	struct letter *t;

	if (n->c->letters_blocked)
		return -EAGAIN;
	assert_true(letter->death != RP_QUEUE_DEATH_REPLAYED || letter->to[0] == '\0');
	t = cluster_must(calloc(1, sizeof(*t)));
	t->node = n->index;
	t->boot = n->boot;
	t->token = token;
	t->id = n->c->letter_count++;
	t->due_ns = n->c->now_ns + cluster_delay(n->c);
	snprintf(t->to, sizeof(t->to), "%s", letter->to[0] ? letter->to : "back");
	t->replay = letter->death == RP_QUEUE_DEATH_REPLAYED;
	t->tail_length = letter->tail_length;
	t->payload = letter->payload;
	rp_list_push_back(&n->c->letters, &t->link);
	return 0;
}

static void letter_free(struct letter *t)
{
	rte_pktmbuf_free(t->payload);
	rp_list_unlink(&t->link);
	free(t);
}

void letters_run(struct cluster *c)
{
	struct rp_list *l, *next;

	rp_list_foreach_safe (l, next, &c->letters) {
		struct letter *t = rp_list_entry(l, struct letter, link);
		struct node *n = &c->nodes[t->node];
		struct rte_mbuf *payload = t->payload;

		if (n->dead || n->boot != t->boot) {
			letter_free(t);
		} else if (t->due_ns <= c->now_ns && payload) {
			struct rte_mbuf *copy;

			copy = cluster_must(rte_pktmbuf_copy(payload, pool_queue, 0, UINT32_MAX));
			rte_pktmbuf_free(payload);
			t->payload = NULL;
			if (t->replay && t->tail_length == 2) {
				rte_pktmbuf_free(copy);
				letter_answered(c, t->id, RP_Q_INVALID);
				continue;
			}
			rp_queue_put_letter(n->qs, LETTER_TOKEN + t->id, span_of(t->to),
				t->tail_length, copy, c->now_ns);
		} else if (t->due_ns <= c->now_ns && t->answered) {
			rp_queue_dead_lettered(n->qs, t->token, t->status, c->now_ns);
			letter_free(t);
		}
	}
}
