/* SPDX-License-Identifier: Apache-2.0 */

/* Dead letters of a cluster, which in a node the control plane carries between shards. */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cluster.h"

/* A dead letter on its way between two queues, which the control plane carries. */
struct letter {
	struct rp_list link;
	unsigned node;
	uint64_t boot, token, id, due_ns;
	char to[32];
	uint16_t tail_length;
	uint64_t request; /**< it is the end of that */
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

int on_process_end(void *ctx, uint64_t token, const struct rp_queue_process_end *end)
{
	struct node *n = ctx;
	struct letter *t;
	char tail[32] = "";
	uint64_t value = FAILED_BASE | end->death;

	assert_true(end->tail.length < sizeof(tail));
	memcpy(tail, end->tail.data, end->tail.length);
	t = cluster_must(calloc(1, sizeof(*t)));
	t->node = n->index;
	t->boot = n->boot;
	t->token = token;
	t->id = n->c->letter_count++;
	t->due_ns = n->c->now_ns + cluster_delay(n->c);
	snprintf(t->to, sizeof(t->to), "%.*s", (int)end->reply_to.length,
		(const char *)end->reply_to.data);
	t->tail_length = (uint16_t)end->tail.length;
	t->request = end->request;
	if (end->payload)
		rp_mbuf_copy_out(end->payload, 0, &value, sizeof(value));
	rte_pktmbuf_free(end->payload);
	t->payload = payload_with(tail, NULL, 0, value);
	rp_list_push_back(&n->c->letters, &t->link);
	return 0;
}

static void letter_free(struct letter *t)
{
	rte_pktmbuf_free(t->payload);
	rp_list_unlink(&t->link);
	free(t);
}

static void letter_put(struct cluster *c, const struct letter *t, struct rte_mbuf *copy)
{
	const struct rp_qmsg_process p = {.kind = RP_PROCESS_END,
		.request = t->request,
		.left_us = 1000000,
		.left_ns = c->now_ns};
	struct node *n = &c->nodes[t->node];

	if (t->request)
		rp_queue_put_process(n->qs, LETTER_TOKEN + t->id, span_of(t->to), t->tail_length,
			&p, copy, c->now_ns);
	else
		rp_queue_put_letter(n->qs, LETTER_TOKEN + t->id, span_of(t->to), t->tail_length,
			copy, c->now_ns);
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
			letter_put(c, t, copy);
		} else if (t->due_ns <= c->now_ns && t->answered) {
			if (t->token || !t->request)
				rp_queue_dead_lettered(n->qs, t->token, t->status, c->now_ns);
			letter_free(t);
		}
	}
}
