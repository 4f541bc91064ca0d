/* SPDX-License-Identifier: Apache-2.0 */

/* What the policy of a queue's name makes of its messages (spec/queues.md, "Dispatch"). */

#include <base/glob.h>

#include "queue_priv.h"

void rp_queue_set_policies(
	struct rp_queues *qs, const struct rp_queue_policy *policies, uint32_t count)
{
	RP_ASSERT(count < POLICY_NONE);
	qs->policies = policies;
	qs->policy_count = count;
	/* Each queue looks for its own when it is needed next. */
	qs->policy_version++;
}

const struct rp_queue_policy *policy_look(struct rp_queues *qs, struct queue *q)
{
	if (q->policy_version != qs->policy_version) {
		uint32_t i = 0;

		while (i < qs->policy_count &&
			!rp_glob_match(qs->policies[i].match, q->name, q->name_length))
			i++;
		q->policy = i < qs->policy_count ? (uint16_t)i : POLICY_NONE;
		q->policy_version = qs->policy_version;
	}
	return q->policy == POLICY_NONE ? NULL : &qs->policies[q->policy];
}

uint32_t policy_depth_max(struct rp_queues *qs, struct queue *q)
{
	const struct rp_queue_policy *p = policy_of(qs, q);

	return p && p->depth_max ? p->depth_max : qs->config.queue_depth_max;
}

uint64_t policy_bytes_max(struct rp_queues *qs, struct queue *q)
{
	const struct rp_queue_policy *p = policy_of(qs, q);

	return p && p->bytes_max ? p->bytes_max : qs->config.queue_bytes_max;
}

bool policy_fails_fast(struct rp_queues *qs, struct queue *q)
{
	const struct rp_queue_policy *p = policy_of(qs, q);
	struct rp_list *n;

	if (!p || !p->fail_fast)
		return false;
	rp_list_foreach (n, &q->consumers) {
		const struct consumer *c = rp_list_entry(n, struct consumer, link);

		if ((c->host || c->life || c->record_node) && !consumer_is_apart(qs, c))
			return false;
	}
	return true;
}

/* ---- the times of a message ---- */

uint32_t message_deliveries(const struct message *m)
{
	return m->attempt - m->unseen;
}

void policy_begin(struct rp_queues *qs, struct message *m, uint64_t now_ns)
{
	const struct rp_queue_policy *p = policy_of(qs, m->q);
	uint64_t age = age_ns(m->since_ns, now_ns);

	m->expires_ns = RP_NEVER;
	m->deadline_ns = now_ns;
	if (lane_class_of(m) == LANE_OUTPUT)
		return;
	if (m->process.kind == RP_PROCESS_REQUEST)
		m->expires_ns = job_ends_ns(m);
	if (!(m->process.flags & RP_PROCESS_PRIORITY))
		m->process.priority = p ? (uint8_t)p->priority : 0;
	if (!p)
		return;
	if (p->ttl_ns)
		m->expires_ns =
			RP_MIN(m->expires_ns, now_ns + (p->ttl_ns > age ? p->ttl_ns - age : 0));
	if (p->delay_ns > age && m->attempt == 0)
		m->deadline_ns = now_ns + p->delay_ns - age;
}

void policy_arm(struct rp_queues *qs, struct message *m, uint64_t now_ns)
{
	if (m->expires_ns == RP_NEVER)
		return;
	rp_wheel_advance(&qs->wheel, now_ns);
	rp_wheel_add(&qs->wheel, &m->due, m->expires_ns);
}

static void delay(struct rp_queues *qs, struct message *m, uint64_t now_ns)
{
	struct queue_more *more = queue_more(qs, m->q);

	RP_ASSERT(more);
	m->state = MESSAGE_DELAYED;
	more->delayed_count++;
	rp_list_push_back(&more->delayed, &m->link);
	rp_wheel_advance(&qs->wheel, now_ns);
	/* Whichever comes first: a life may be shorter than the wait before it. */
	rp_wheel_add(&qs->wheel, &m->due, RP_MIN(m->deadline_ns, m->expires_ns));
}

enum rp_queue_death death_by_age(const struct message *m)
{
	return m->process.kind == RP_PROCESS_REQUEST ? RP_QUEUE_DEATH_DEADLINE
						     : RP_QUEUE_DEATH_EXPIRED;
}

void policy_place(struct rp_queues *qs, struct message *m, uint64_t now_ns)
{
	const struct rp_queue_policy *p =
		lane_class_of(m) == LANE_OUTPUT ? NULL : policy_of(qs, m->q);

	if (p && p->deliveries_max && message_deliveries(m) >= p->deliveries_max) {
		message_end(qs, m, RP_QUEUE_DEATH_EXHAUSTED, now_ns);
	} else if (m->expires_ns <= now_ns || job_is_over(m, now_ns)) {
		message_end(qs, m, death_by_age(m), now_ns);
	} else if (message_dies_rejected(qs, m)) {
		message_end(qs, m, RP_QUEUE_DEATH_REJECTED, now_ns);
	} else if (m->attempt == 0 && m->deadline_ns > now_ns) {
		delay(qs, m, now_ns);
	} else {
		waiting_insert(qs, m);
		policy_arm(qs, m, now_ns);
	}
}

void aside_remove(struct rp_queues *qs, struct message *m)
{
	struct queue_more *more = m->q->more;

	rp_wheel_del(&qs->wheel, &m->due);
	rp_list_unlink(&m->link);
	if (m->state == MESSAGE_DELAYED) {
		more->delayed_count--;
		return;
	}
	RP_ASSERT(m->state == MESSAGE_ENDING);
	more->ending_count--;
	more->ending_bytes -= m->bytes;
}

void hand_over_aside(struct rp_queues *qs, struct queue *q, uint64_t now_ns,
	bool (*hand_over)(struct rp_queues *qs, struct message *m, uint64_t now_ns))
{
	struct rp_list *n, *next;

	if (!q->more)
		return;
	rp_list_foreach_safe (n, next, &q->more->delayed) {
		if (!hand_over(qs, rp_list_entry(n, struct message, link), now_ns))
			return;
	}
	rp_list_foreach_safe (n, next, &q->more->ending) {
		struct message *m = rp_list_entry(n, struct message, link);

		/* How a request ended is told here: nobody is to have it again. */
		if (!m->letter_sent && job_reply_to(m).length == 0 && !hand_over(qs, m, now_ns))
			return;
	}
}

static void message_due(struct rp_queues *qs, struct message *m, uint64_t now_ns)
{
	struct queue *q = m->q;

	switch ((enum message_state)m->state) {
	case MESSAGE_WAITING:
		waiting_remove(qs, m);
		policy_place(qs, m, now_ns);
		break;
	case MESSAGE_DELAYED:
		aside_remove(qs, m);
		policy_place(qs, m, now_ns);
		queue_work(qs, q);
		break;
	case MESSAGE_ENDING:
		letter_send(qs, m, now_ns);
		break;
	case MESSAGE_BOUND:
		RP_ASSERT(m->job != NULL);
		job_fail(qs, m, RP_QUEUE_DEATH_DEADLINE, now_ns);
		break;
	case MESSAGE_UNSENT:
	case MESSAGE_SENT:
		RP_ASSERT(!"a message without a timer");
	}
}

bool policy_poll(struct rp_queues *qs, uint64_t now_ns)
{
	unsigned i;

	rp_wheel_advance(&qs->wheel, now_ns);
	for (i = 0; i < POLL_BUDGET; i++) {
		struct rp_wheel_node *n = rp_wheel_pop(&qs->wheel);

		if (!n)
			break;
		message_due(qs, RP_CONTAINER_OF(n, struct message, due), now_ns);
	}
	return dedup_poll(qs, now_ns) || i == POLL_BUDGET;
}

uint64_t policy_next_ns(const struct rp_queues *qs)
{
	return RP_MIN(rp_wheel_next(&qs->wheel), rp_wheel_next(&qs->tail_wheel));
}
