/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Messages that end without an acknowledge. Where the policy names a queue for them, that one has
 * to take the message before it goes here; until then it stays, offered to nobody.
 */

#include <string.h>

#include "trace_priv.h"

/* The dead-letter queue did not take it; or could not be asked. */
#define LETTER_AGAIN_NS RP_NS_PER_S
#define LETTER_SOON_NS (100 * RP_NS_PER_MS)
/* Of the end of a request, for which somebody waits. */
#define END_AGAIN_NS (20 * RP_NS_PER_MS)
#define END_SOON_NS RP_NS_PER_MS

const char *rp_queue_death_word(enum rp_queue_death death)
{
	static const char *const words[] = {
#define X(name, counter, word) word,
		RP_QUEUE_DEATHS(X)
#undef X
	};

	return (unsigned)death < RP_QUEUE_DEATH_COUNT ? words[death] : "?";
}

uint64_t counters_gone(const struct rp_queue_counters *k)
{
	uint64_t gone = k->acks + k->handed_over + k->purged;

#define X(name, counter, word) gone += k->counter;
	RP_QUEUE_DEATHS(X)
#undef X
	return gone;
}

static void message_gone(struct rp_queues *qs, struct message *m, uint64_t now_ns)
{
	struct queue *q = m->q;

	switch ((enum rp_queue_death)m->death) {
#define X(name, counter, word)         \
	case RP_QUEUE_DEATH_##name:    \
		COUNT(qs, q, counter); \
		break;
		RP_QUEUE_DEATHS(X)
#undef X
	case RP_QUEUE_DEATH_COUNT:
		break;
	}
	trace_last(qs, m, RP_QUEUE_STEP_DIED, 0, rp_queue_death_word(m->death), now_ns);
	message_unindexed(qs, m);
	message_free(qs, m);
	queue_touch(qs, q, now_ns);
}

static bool death_is_done(const struct message *m)
{
	return m->death == RP_QUEUE_DEATH_COMPLETED;
}

/* The queue that takes what ends of `q`; NULL: none does. Not itself: it would never end. */
static const char *letters_to(struct rp_queues *qs, const struct message *m)
{
	struct queue *q = m->q;
	const struct rp_queue_policy *p = policy_of(qs, q);
	const char *to = p ? p->dead_letter : NULL;

	/* What its consumer is done with, and what waits for a requester, is nobody's letter. */
	if (death_is_done(m) || lane_class_of(m) == LANE_OUTPUT)
		return NULL;
	if (!to || to[0] == '\0' ||
		(strlen(to) == q->name_length && memcmp(to, q->name, q->name_length) == 0))
		return NULL;
	return to;
}

/* Somebody has to take it, or to hear of it, before it goes. */
static bool is_told(struct rp_queues *qs, const struct message *m)
{
	return job_reply_to(m).length > 0 || letters_to(qs, m);
}

void message_end(
	struct rp_queues *qs, struct message *m, enum rp_queue_death death, uint64_t now_ns)
{
	struct queue_more *more;

	m->death = (uint8_t)death;
	if (death != RP_QUEUE_DEATH_REPLAYED && !is_told(qs, m)) {
		message_gone(qs, m, now_ns);
		return;
	}
	more = queue_more(qs, m->q);
	RP_ASSERT(more);
	m->state = MESSAGE_ENDING;
	m->letter_sent = false;
	more->ending_count++;
	more->ending_bytes += m->bytes;
	rp_list_push_back(&more->ending, &m->link);
	letter_send(qs, m, now_ns);
}

static void letter_later(struct rp_queues *qs, struct message *m, uint64_t at_ns, uint64_t now_ns)
{
	rp_wheel_advance(&qs->wheel, now_ns);
	rp_wheel_add(&qs->wheel, &m->due, at_ns);
}

/* The requester hears of it. */
static void process_end_send(struct rp_queues *qs, struct message *m, uint64_t now_ns)
{
	struct rp_queue_process_end end = {
		.name = queue_name(m->q),
		.reply_to = job_reply_to(m),
		.tail = {rte_pktmbuf_mtod(m->payload, const uint8_t *), m->tail_length},
		.request = m->process.request,
		.death = m->death,
		.payload = m->job->last ? payload_share(m->job->last) : NULL,
	};

	if (qs->ops.process_end(qs->ctx, slab_id(&qs->messages, m), &end) == 0) {
		m->letter_sent = true;
		return;
	}
	rte_pktmbuf_free(end.payload);
	letter_later(qs, m, now_ns + END_SOON_NS, now_ns);
}

void letter_send(struct rp_queues *qs, struct message *m, uint64_t now_ns)
{
	const char *to = m->death == RP_QUEUE_DEATH_REPLAYED ? "" : letters_to(qs, m);
	struct rp_queue_letter letter = {
		.name = queue_name(m->q),
		.to = to,
		.death = m->death,
		.age_ns = age_ns(m->since_ns, now_ns),
		.idx = m->idx,
		.deliveries = message_deliveries(m),
		.tail_length = m->tail_length,
		.process = m->process,
	};

	if (job_reply_to(m).length > 0) {
		process_end_send(qs, m, now_ns);
		return;
	}
	if (!to) {
		/* A new policy names none any more. */
		aside_remove(qs, m);
		message_gone(qs, m, now_ns);
		return;
	}
	letter.payload = payload_share(m->payload);
	if (qs->ops.dead_letter(qs->ctx, slab_id(&qs->messages, m), &letter) == 0) {
		m->letter_sent = true;
		return;
	}
	rte_pktmbuf_free(letter.payload);
	letter_later(qs, m, now_ns + LETTER_SOON_NS, now_ns);
}

void rp_queue_dead_lettered(
	struct rp_queues *qs, uint64_t token, enum rp_qstatus status, uint64_t now_ns)
{
	struct message *m = slab_find(&qs->messages, token);
	struct queue *q = m ? m->q : NULL;

	if (!m || m->state != MESSAGE_ENDING || !m->letter_sent)
		return;
	m->letter_sent = false;
	if (job_reply_to(m).length > 0) {
		/* NOT_LIVE: it has ended there before. */
		if (status == RP_Q_OK || status == RP_Q_DUPLICATE || status == RP_Q_NOT_LIVE) {
			aside_remove(qs, m);
			message_gone(qs, m, now_ns);
		} else {
			letter_later(qs, m, now_ns + END_AGAIN_NS, now_ns);
		}
		return;
	}
	if (status == RP_Q_OK || status == RP_Q_DUPLICATE) {
		if (m->death != RP_QUEUE_DEATH_REPLAYED)
			COUNT(qs, q, dead_letters);
		aside_remove(qs, m);
		message_gone(qs, m, now_ns);
		return;
	}
	COUNT(qs, m->q, dead_letter_waits);
	if (m->q->own && m->death == RP_QUEUE_DEATH_REPLAYED) {
		/* It was no letter, or its queue does not take it: it stays here. */
		aside_remove(qs, m);
		policy_place(qs, m, now_ns);
		queue_work(qs, q);
		return;
	}
	if (m->q->own) {
		letter_later(qs, m, now_ns + LETTER_AGAIN_NS, now_ns);
		return;
	}
	aside_remove(qs, m);
	forward_hand_over(qs, m, now_ns);
}

bool overflow_drop(struct rp_queues *qs, struct queue *q, uint64_t now_ns)
{
	struct queue_more *more = queue_more(qs, q);
	struct message *m = lanes_oldest(q);

	if (!more || more->ending_count >= policy_depth_max(qs, q) ||
		more->ending_bytes >= policy_bytes_max(qs, q))
		return false;
	if (!m && !rp_list_empty(&more->delayed))
		m = rp_list_entry(more->delayed.next, struct message, link);
	/* No output of a request is dropped: its worker waits. */
	if (!m || lane_class_of(m) == LANE_OUTPUT)
		return false;
	if (m->state == MESSAGE_WAITING)
		waiting_remove(qs, m);
	else
		aside_remove(qs, m);
	message_end(qs, m, RP_QUEUE_DEATH_OVERFLOW, now_ns);
	return true;
}

/* ---- rejected by all ---- */

static bool has_rejected(const struct message *m, const struct consumer *c)
{
	for (const struct rejection *r = m->rejections; r; r = r->next) {
		if (memcmp(r->uuid, c->uuid, RP_UUID_BYTES) == 0)
			return true;
	}
	return false;
}

bool message_dies_rejected(struct rp_queues *qs, const struct message *m)
{
	bool anyone = false;
	struct rp_list *n;

	if (!m->rejections || !is_told(qs, m))
		return false;
	rp_list_foreach (n, &m->q->consumers) {
		const struct consumer *c = rp_list_entry(n, struct consumer, link);

		if ((!c->host && !c->life && !c->record_node) || consumer_is_apart(qs, c))
			continue;
		if (!consumer_wants(c, m))
			continue;
		if (!has_rejected(m, c))
			return false;
		anyone = true;
	}
	return anyone;
}
