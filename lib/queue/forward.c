/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The producer's node, and the dispatcher that takes its forwards. Messages leave in order; one
 * that may have arrived somewhere is asked for there, with REPEAT, as long as that node lives;
 * nothing newer overtakes it. A forward is known by (producer's node, its boot, sequence).
 */

#include <errno.h>
#include <string.h>

#include "trace_priv.h"

/* No producer's boot id has all of these set, but for one in 2^32. */
#define HANDED_BOOT 0xffffffff00000000ull
/* Ages of more than a thousand years are no ages. */
#define AGE_MAX_US (1ull << 54)
/* A put that waited for longer is forwarded with its age. */
#define AGE_TOLD_NS RP_NS_PER_MS

void put_answer(struct rp_queues *qs, struct message *m, enum rp_qstatus status)
{
	const struct rp_queue_answer answer = {.status = status, .idx = m->idx};

	if (m->answered)
		return;
	m->answered = true;
	qs->ops.answer(qs->ctx, m->token, &answer);
}

/* ---- leaving ---- */

static void unsent_append(struct message *m)
{
	struct queue *q = m->q;

	m->state = MESSAGE_UNSENT;
	m->order = ++q->order;
	q->unsent_count++;
	rp_list_push_back(&q->unsent, &m->link);
}

void forward_put(struct rp_queues *qs, struct message *m, uint64_t now_ns)
{
	unsent_append(m);
	m->origin_seq = m->order;
	foreign_check(qs, m, now_ns);
	queue_work(qs, m->q);
}

void message_unhand(struct rp_queues *qs, struct message *m, bool back)
{
	if (!m->handed)
		return;
	m->handed = false;
	if (back)
		COUNT(qs, m->q, taken_back);
	RP_ASSERT(m->q->handing > 0);
	m->q->handing--;
	qs->handing--;
}

void forward_hand_over(struct rp_queues *qs, struct message *m, uint64_t now_ns)
{
	m->was_idx = m->idx;
	m->was_alloc = m->alloc_node;
	trace_last(qs, m, RP_QUEUE_STEP_HANDED, m->q->dispatcher, "", now_ns);
	message_unindexed(qs, m);
	producer_forget(qs, m);
	m->handed = true;
	m->q->handing++;
	qs->handing++;
	m->repeat = false;
	m->target = 0;
	COUNT(qs, m->q, handed_over);
	unsent_append(m);
	queue_work(qs, m->q);
}

bool forward_hand_over_as_is(struct rp_queues *qs, struct message *m, uint64_t now_ns)
{
	const struct consumer *c = m->consumer;
	struct binding *b = slab_get(&qs->bindings);

	if (!b)
		return false;
	b->idx = m->idx;
	b->alloc_node = m->alloc_node;
	if (c) {
		b->mod_revision = m->seen ? m->mod_revision : 0;
		b->node = c->node;
		b->life = c->life;
		memcpy(b->uuid, c->uuid, RP_UUID_BYTES);
		dispatch_unbind(qs, m);
	} else if (m->state == MESSAGE_WAITING) {
		waiting_remove(qs, m);
	} else {
		aside_remove(qs, m);
	}
	m->binding = b;
	forward_hand_over(qs, m, now_ns);
	return true;
}

/* Back among the unsent, before what comes after it. */
static void unsent_return(
	struct rp_queues *qs, struct message *m, struct rte_mbuf *payload, uint64_t now_ns)
{
	struct queue *q = m->q;
	struct rp_list *n = q->unsent.next;

	rp_list_unlink(&m->link);
	q->sent_count--;
	m->payload = payload;
	m->state = MESSAGE_UNSENT;
	m->sends++;
	while (n != &q->unsent && rp_list_entry(n, struct message, link)->order < m->order)
		n = n->next;
	rp_list_insert_between(&m->link, n->prev, n);
	q->unsent_count++;
	foreign_check(qs, m, now_ns);
}

static void unsent_take(struct message *m)
{
	rp_list_unlink(&m->link);
	m->q->unsent_count--;
}

void forward_behind(struct queue *q)
{
	struct rp_list *n, *next, *last = q->unsent.prev;

	for (n = q->unsent.next; n != &q->unsent; n = n == last ? &q->unsent : next) {
		struct message *m = rp_list_entry(n, struct message, link);

		next = n->next;
		if (m->answered || m->repeat)
			continue;
		unsent_take(m);
		unsent_append(m);
		m->origin_seq = m->order;
	}
}

/* Ends a put that nobody took. */
static void unsent_refuse(struct rp_queues *qs, struct message *m, enum rp_qstatus status)
{
	unsent_take(m);
	COUNT(qs, m->q, refused_dispatcher);
	put_answer(qs, m, status);
	message_free(qs, m);
}

static void queue_later(struct rp_queues *qs, struct queue *q, uint64_t now_ns)
{
	queue_unwork(q);
	q->in_later = true;
	queue_more(qs, q)->later_ns = now_ns + HANDOVER_RETRY_NS;
	rp_list_push_back(&qs->later, &q->work);
}

/* Where the first of the unsent has to go; 0 = nowhere now. */
static uint64_t forward_target(
	struct rp_queues *qs, struct queue *q, const struct message *m, uint64_t now_ns)
{
	const struct peer *p = m->repeat ? peer_find(qs, m->target) : NULL;

	/* It may be there: only that node can say. */
	if (p && p->state == RP_NODE_ONLINE && !is_self(qs, m->target))
		return m->target;
	switch (queue_dispatch(qs, q, RP_CLAIM_PRODUCER, now_ns)) {
	case RP_DISPATCH_LOCAL:
		return qs->config.node;
	case RP_DISPATCH_REMOTE:
		return q->dispatcher;
	case RP_DISPATCH_UNKNOWN:
		break;
	}
	return 0;
}

static void forward_index_bound(struct rp_queues *qs, struct message *m, uint64_t now_ns)
{
	struct binding b = *m->binding;

	slab_put(&qs->bindings, m->binding);
	m->binding = NULL;
	dispatch_index_bound(qs, m, &b, now_ns);
}

/* What the tail of a plain message is may be a reason against it. */
static bool tails_matter(const struct queue *q)
{
	return q->more && (q->more->session_count > 0 || !rp_list_empty(&q->more->tails));
}

/*
 * What a new message meets where it is to be indexed. `bytes`: beyond what its queue counts. OK and
 * *consumed: it was for the queue itself, and there is nothing to index.
 */
static enum rp_qstatus new_admit(struct rp_queues *qs, struct queue *q, uint64_t from,
	const struct rp_qmsg_process *p, struct rte_mbuf *payload, uint16_t tail_length,
	bool letter, uint32_t bytes, bool *consumed, uint64_t now_ns)
{
	enum rp_qstatus status;

	/* A plain message, where nothing is known of tails, policies or requests. */
	if (p->kind == RP_PROCESS_PLAIN && !tails_matter(q) && !policy_of(qs, q)) {
		*consumed = false;
		return admit_message(qs, q, bytes, now_ns);
	}
	status = session_admit(qs, q, p, payload, tail_length, consumed, now_ns);
	if (status == RP_Q_BUSY)
		session_waits(qs, q, payload, tail_length, from);
	if (status == RP_Q_OK && *consumed)
		COUNT(qs, q, session_words);
	if (status != RP_Q_OK || *consumed || p->kind == RP_PROCESS_END)
		return status;
	if (p->kind == RP_PROCESS_OUTPUT)
		return admit_message(qs, q, bytes, now_ns);
	if (p->kind == RP_PROCESS_REQUEST && p->left_us == 0) {
		COUNT(qs, q, refused_deadline);
		return RP_Q_DEADLINE;
	}
	if (p->kind == RP_PROCESS_PLAIN && !letter && dedup_has(qs, q, payload, tail_length))
		return RP_Q_DUPLICATE;
	if (!letter &&
		(policy_fails_fast(qs, q) || job_fails_fast(qs, q, p, payload, tail_length))) {
		COUNT(qs, q, refused_no_consumer);
		return RP_Q_NO_CONSUMER;
	}
	return admit_message(qs, q, bytes, now_ns);
}

/* What a put meets where it is to be indexed; its own bytes are in q->bytes. */
static enum rp_qstatus forward_admit(
	struct rp_queues *qs, struct message *m, bool *consumed, uint64_t now_ns)
{
	struct rp_qmsg_process p = process_for(m, now_ns);

	return new_admit(qs, m->q, qs->config.node, &p, m->payload, m->tail_length, m->letter, 0,
		consumed, now_ns);
}

/* It was to leave, and did not: what came behind it is still behind it. */
static uint64_t forward_index_again(struct rp_queues *qs, struct message *m, uint64_t now_ns)
{
	uint64_t idx = m->was_idx;

	m->idx = m->was_idx;
	m->alloc_node = m->was_alloc;
	producer_again(qs, m);
	message_unhand(qs, m, true);
	message_indexed(qs, m, now_ns);
	trace_indexed(qs, m, now_ns);
	COUNT(qs, m->q, indexed);
	policy_begin(qs, m, now_ns);
	foreign_check(qs, m, now_ns);
	dispatch_return(qs, m, now_ns);
	return idx;
}

static void forward_index_here(struct rp_queues *qs, struct message *m, uint64_t now_ns)
{
	struct rp_queue_answer answer = {.status = RP_Q_OK};
	bool answered = m->answered, consumed = producer_came_back(qs, m);
	uint64_t token = m->token;

	unsent_take(m);
	if (consumed)
		COUNT(qs, m->q, forwards_duplicate);
	else if (!answered)
		answer.status = forward_admit(qs, m, &consumed, now_ns);
	m->answered = true;
	if (consumed) {
		message_free(qs, m);
	} else if (m->binding) {
		producer_again(qs, m);
		forward_index_bound(qs, m, now_ns);
	} else if (m->handed) {
		answer.idx = forward_index_again(qs, m, now_ns);
	} else if (answer.status == RP_Q_OK) {
		answer.idx = dispatch_index(qs, m, now_ns);
	} else {
		message_free(qs, m);
	}
	if (answer.status == RP_Q_DUPLICATE)
		answer.status = RP_Q_OK;
	if (!answered)
		qs->ops.answer(qs->ctx, token, &answer);
}

/* The sequence of a dispatcher that hands over begins anew with each of its lives. */
static uint32_t boot_digest(uint64_t boot)
{
	return (uint32_t)(boot * 0x9e3779b97f4a7c15ull >> 32);
}

static uint64_t handed_boot(const struct rp_qmsg *m)
{
	return HANDED_BOOT | m->count;
}

static void binding_write(struct rp_qmsg *msg, const struct binding *b)
{
	msg->idx = b->idx;
	msg->alloc_node = b->alloc_node;
	msg->mod_revision = b->mod_revision;
	msg->holder_node = b->node;
	msg->holder_life = b->life;
	memcpy(msg->uuid, b->uuid, RP_UUID_BYTES);
}

static struct binding binding_read(const struct rp_qmsg *msg)
{
	struct binding b = {
		.idx = msg->idx,
		.alloc_node = msg->alloc_node,
		.mod_revision = msg->mod_revision,
		.node = msg->holder_node,
		.life = msg->holder_life,
	};

	memcpy(b.uuid, msg->uuid, RP_UUID_BYTES);
	return b;
}

/* Of what goes straight through it is left out. */
static uint64_t forward_age_us(const struct message *m, uint64_t now_ns)
{
	uint64_t age = age_ns(m->since_ns, now_ns);

	return m->handed || age >= AGE_TOLD_NS ? age / RP_NS_PER_US : 0;
}

static int forward_send(struct rp_queues *qs, struct message *m, uint64_t node, uint64_t now_ns)
{
	struct rp_qmsg msg = qmsg_for(m->q, RP_QMSG_FORWARD);
	int error;

	m->sends++;
	msg.flags = (m->repeat ? RP_QMSG_REPEAT : 0) | (m->letter ? RP_QMSG_LETTER : 0);
	msg.tail_length = m->tail_length;
	msg.age_us = forward_age_us(m, now_ns);
	msg.deliveries = m->handed ? message_deliveries(m) : 0;
	msg.producer_node = m->origin_node;
	msg.producer_boot = m->origin_boot;
	msg.producer_seq = m->origin_seq;
	msg.token = m->handed ? m->order : 0;
	msg.attempt = m->handed ? m->attempt : 0;
	msg.count = m->handed ? boot_digest(qs->config.boot) : 0;
	if (m->binding)
		binding_write(&msg, m->binding);
	msg.process = process_for(m, now_ns);
	msg.payload = m->payload;
	msg.cookie = slab_id(&qs->messages, m) | (uint64_t)m->sends << 48;
	error = peer_send(qs, node, &msg, now_ns);
	if (error)
		return error;
	foreign_remove(qs, m);
	m->payload = NULL;
	m->target = node;
	m->epoch = m->q->epoch;
	m->state = MESSAGE_SENT;
	unsent_take(m);
	rp_list_push_back(&m->q->sent, &m->link);
	m->q->sent_count++;
	return 0;
}

/* Its time is over: it goes nowhere, and who waits for it is told. False: it may be elsewhere. */
static bool forward_over(struct rp_queues *qs, struct message *m, uint64_t now_ns)
{
	if (m->repeat || m->binding)
		return false;
	if (m->handed) {
		unsent_take(m);
		forward_index_again(qs, m, now_ns);
		return true;
	}
	unsent_take(m);
	COUNT(qs, m->q, refused_deadline);
	put_answer(qs, m, RP_Q_DEADLINE);
	message_free(qs, m);
	return true;
}

/* True when it has left, or ended; false: it waits, and the queue with it. */
static bool forward_step(struct rp_queues *qs, struct queue *q, struct message *m, uint64_t now_ns)
{
	struct peer *p = m->repeat && !m->answered ? peer_find(qs, m->target) : NULL;
	uint64_t target;
	int error;

	if (job_is_over(m, now_ns) && forward_over(qs, m, now_ns))
		return true;

	/*
	 * It may be there, and that node may live behind a cut: another one would deliver it a
	 * second time. What became of it is not known, and its producer is told just that. Likewise
	 * of one that may be at a node which the queue's keys do not go to any more.
	 */
	if (p && !is_self(qs, p->node) &&
		(p->state != RP_NODE_ONLINE || queue_is_apart(qs, q, p->node))) {
		unsent_refuse(qs, m, RP_Q_UNREACHABLE);
		return true;
	}
	target = forward_target(qs, q, m, now_ns);
	if (!target) {
		if (!m->answered) {
			unsent_refuse(qs, m, RP_Q_NO_DISPATCHER);
			return true;
		}
		queue_later(qs, q, now_ns);
		return false;
	}
	/* What was put before it has to arrive first, wherever it is. */
	if (!m->answered && !m->repeat && !left_all(qs, q, target, now_ns)) {
		queue_later(qs, q, now_ns);
		return false;
	}
	/* What was sent elsewhere, or to an earlier claim, is answered first; and the receiver
	 * remembers only so many. */
	if (q->sent_count > 0) {
		const struct message *first = rp_list_entry(q->sent.next, struct message, link);

		if (first->target != target || first->epoch != q->epoch ||
			m->order - first->order >= qs->config.forward_window)
			return false;
	}
	if (is_self(qs, target)) {
		forward_index_here(qs, m, now_ns);
		return true;
	}
	error = forward_send(qs, m, target, now_ns);
	if (!error)
		return true;
	p = peer_find(qs, target);
	if ((error == -EMSGSIZE || error == -EINVAL) && !m->answered) {
		unsent_refuse(qs, m, error == -EMSGSIZE ? RP_Q_TOO_LARGE : RP_Q_INVALID);
		return true;
	}
	if ((error == -ENOBUFS || error == -ENETUNREACH) && p) {
		queue_unwork(q);
		rp_list_push_back(&p->blocked_queues, &q->work);
	} else {
		queue_later(qs, q, now_ns);
	}
	return false;
}

/* Who waits for another node's word lets pass what others may wait for. */
static struct message *forward_first(const struct queue *q)
{
	struct rp_list *n = q->unsent.next;

	if (q->asking && q->handing > 0) {
		while (n != &q->unsent && !rp_list_entry(n, struct message, link)->handed)
			n = n->next;
		if (n == &q->unsent)
			n = q->unsent.next;
	}
	return rp_list_entry(n, struct message, link);
}

bool forward_pump(struct rp_queues *qs, struct queue *q, uint64_t now_ns)
{
	for (unsigned budget = POLL_BUDGET; !rp_list_empty(&q->unsent); budget--) {
		struct message *m = forward_first(q);

		if (budget == 0)
			return true;
		if (!forward_step(qs, q, m, now_ns))
			return false;
	}
	return false;
}

static void sent_end(struct rp_queues *qs, struct message *m, enum rp_qstatus status)
{
	struct queue *q = m->q;

	rp_list_unlink(&m->link);
	q->sent_count--;
	put_answer(qs, m, status);
	message_free(qs, m);
	queue_work(qs, q);
}

void forward_took(struct rp_queues *qs, struct message *m, uint64_t now_ns)
{
	queue_touch(qs, m->q, now_ns);
	if (!m->handed) {
		COUNT(qs, m->q, puts_remote);
		left_took(qs, m->q, m->target);
	}
	sent_end(qs, m, RP_Q_OK);
}

void forward_refused(struct rp_queues *qs, struct message *m, struct rte_mbuf *payload,
	enum rp_qstatus status, bool elsewhere, uint64_t now_ns)
{
	struct queue *q = m->q;

	if (status == RP_Q_OK || status == RP_Q_DUPLICATE) {
		rte_pktmbuf_free(payload);
		forward_took(qs, m, now_ns);
		return;
	}
	if (status != RP_Q_MOVED && status != RP_Q_STALL && !m->answered) {
		rte_pktmbuf_free(payload);
		COUNT(qs, q, refused_dispatcher);
		sent_end(qs, m, status);
		return;
	}
	/* It is not there, whatever may have been thought; and it is not lost. */
	unsent_return(qs, m, payload, now_ns);
	m->repeat = false;
	m->target = 0;
	if (status == RP_Q_MOVED && elsewhere)
		queue_work(qs, q);
	else
		queue_later(qs, q, now_ns);
}

void forward_lost(struct rp_queues *qs, struct message *m, struct rte_mbuf *payload, bool repeat,
	uint64_t now_ns)
{
	unsent_return(qs, m, payload, now_ns);
	m->repeat = m->repeat || repeat;
	if (!m->repeat)
		m->target = 0;
	queue_work(qs, m->q);
}

/* ---- arriving ---- */

static bool is_too_large(const struct rp_queues *qs, const struct rte_mbuf *payload,
	uint32_t head_bytes, bool letter)
{
	return payload->pkt_len - head_bytes >
	       qs->config.message_bytes_max + (letter ? RP_LETTER_HEAD_BYTES_MAX : 0);
}

/*
 * What a dispatcher hands over is recognised by its own sequence, which comes in order. The
 * producer's identity counts besides, but only while it is inside of the window: the producer
 * itself repeats nothing older, and a backlog may well be.
 */
static bool forward_is_repeated(
	struct rp_queues *qs, struct queue *q, uint64_t from, const struct rp_qmsg *m)
{
	const struct producer *p = producer_find(qs, q, m->producer_node, m->producer_boot);
	const struct producer *handed;

	if (m->token == 0)
		return producer_has(p, m->producer_seq) ||
		       ((m->flags & RP_QMSG_REPEAT) && producer_leaves(q, m->producer_node,
							       m->producer_boot, m->producer_seq));
	if (m->idx && message_find(qs, q, m->idx, m->alloc_node))
		return true;
	handed = producer_find(qs, q, from, handed_boot(m));
	if (handed && m->token <= handed->high)
		return true;
	return p && m->producer_seq + DEDUPE_WINDOW > p->high && producer_has(p, m->producer_seq);
}

static void forward_remember(
	struct rp_queues *qs, struct queue *q, uint64_t from, const struct rp_qmsg *m)
{
	producer_add(producer_get(qs, q, m->producer_node, m->producer_boot), m->producer_seq);
	if (m->token)
		producer_get(qs, q, from, handed_boot(m))->high = m->token;
}

/* Whether this node dispatches the queue in the eyes of the sender too. */
static enum rp_qstatus forward_route(struct rp_queues *qs, struct queue *q, const struct rp_qmsg *m,
	uint32_t *epoch, uint64_t *dispatcher, uint64_t now_ns)
{
	enum rp_dispatch d;

	queue_learn(qs, q, m->epoch, m->dispatcher, now_ns);
	d = queue_dispatch(qs, q, RP_CLAIM_PRODUCER, now_ns);
	*epoch = q->epoch;
	*dispatcher = q->dispatcher;
	switch (d) {
	case RP_DISPATCH_LOCAL:
		break;
	case RP_DISPATCH_REMOTE:
		COUNT(qs, q, moved);
		COUNT(qs, q, forwards_moved);
		return RP_Q_MOVED;
	case RP_DISPATCH_UNKNOWN:
		return RP_Q_NO_DISPATCHER;
	}
	if (rp_route_dispatcher_compare(m->epoch, m->dispatcher, q->epoch, q->dispatcher) < 0) {
		COUNT(qs, q, moved);
		COUNT(qs, q, forwards_moved);
		return RP_Q_MOVED;
	}
	return RP_Q_OK;
}

/* What a forward of a new message meets here. */
static enum rp_qstatus receive_admit(struct rp_queues *qs, struct queue *q, uint64_t from,
	const struct rp_qmsg *m, bool *consumed, uint64_t now_ns)
{
	return new_admit(qs, q, from, &m->process, m->payload, m->tail_length,
		m->flags & RP_QMSG_LETTER, m->payload->pkt_len, consumed, now_ns);
}

/* A node that stops still tells how requests ended. */
static bool process_ends(const struct rp_qmsg_process *p)
{
	return p->kind == RP_PROCESS_END || p->kind == RP_PROCESS_CLOSE;
}

enum rp_qstatus forward_receive(struct rp_queues *qs, uint64_t from, const struct rp_qmsg *m,
	uint32_t *epoch, uint64_t *dispatcher, uint64_t now_ns)
{
	const struct rp_span name = {m->name, m->name_length};
	struct message *msg;
	enum rp_qstatus status;
	bool consumed = false;
	struct queue *q;

	if (!m->payload || m->tail_length == 0 || m->tail_length > m->payload->data_len ||
		m->tail_length > RP_TAIL_BYTES_MAX || !m->producer_node || !m->producer_boot ||
		!process_is_sound(&m->process, m->payload, m->tail_length))
		return RP_Q_INVALID;
	q = queue_get_by(qs, name, m->hash, now_ns);
	if (!q) {
		COUNT_SHARD(qs, refused_limit);
		return RP_Q_LIMIT;
	}
	COUNT(qs, q, forwards_received);
	if (forward_is_repeated(qs, q, from, m)) {
		COUNT(qs, q, forwards_duplicate);
		return RP_Q_DUPLICATE;
	}
	/* What is handed over goes on from here; what is new waits where it is, if it can go there.
	 */
	if (qs->stopping && !m->token && !process_ends(&m->process) &&
		queue_dispatch(qs, q, RP_CLAIM_NONE, now_ns) != RP_DISPATCH_REMOTE) {
		COUNT(qs, q, refused_stopping);
		return rp_queue_is_moving(qs) ? RP_Q_STALL : RP_Q_STOPPING;
	}
	if (is_too_large(qs, m->payload, rp_qmsg_head_bytes(m), m->flags & RP_QMSG_LETTER)) {
		COUNT(qs, q, refused_too_large);
		return RP_Q_TOO_LARGE;
	}
	status = forward_route(qs, q, m, epoch, dispatcher, now_ns);
	if (status == RP_Q_NO_DISPATCHER)
		COUNT(qs, q, refused_dispatcher);
	/* What is handed over was let in before: only the buffers can be missing. */
	if (status == RP_Q_OK && m->token)
		status = admit_handed(qs, q, producer_get(qs, q, from, handed_boot(m)), m->token,
			m->payload->pkt_len, now_ns);
	else if (status == RP_Q_OK)
		status = receive_admit(qs, q, from, m, &consumed, now_ns);
	if (status == RP_Q_DUPLICATE || (status == RP_Q_OK && consumed))
		forward_remember(qs, q, from, m);
	if (status != RP_Q_OK)
		return status;
	if (consumed) {
		rte_pktmbuf_free(m->payload);
		return RP_Q_OK;
	}
	msg = message_new(qs, q, m->payload, m->tail_length, now_ns);
	if (!msg) {
		COUNT(qs, q, refused_limit);
		return RP_Q_LIMIT;
	}
	msg->since_ns = now_ns - RP_MIN(m->age_us, AGE_MAX_US) * RP_NS_PER_US;
	msg->letter = m->flags & RP_QMSG_LETTER;
	msg->process = m->process;
	msg->process.left_ns = now_ns;
	if (m->token && m->deliveries <= m->attempt)
		msg->unseen = m->attempt - m->deliveries;
	msg->origin_node = m->producer_node;
	msg->origin_boot = m->producer_boot;
	msg->origin_seq = m->producer_seq;
	msg->answered = true;
	msg->attempt = m->token ? m->attempt : 0;
	forward_remember(qs, q, from, m);
	if (q->move && q->move->from == from)
		move_heard(qs, q->move, now_ns);
	if (m->token && m->idx && m->alloc_node) {
		const struct binding b = binding_read(m);

		dispatch_index_bound(qs, msg, &b, now_ns);
	} else {
		dispatch_index(qs, msg, now_ns);
	}
	return RP_Q_OK;
}

/* ---- a put of this node ---- */

/* A queue that nobody dispatches would begin here. */
static bool is_new_work(struct rp_queues *qs, struct rp_span name, uint64_t now_ns)
{
	struct queue *q = queue_find(qs, name);

	return !q || queue_elect(qs, q, RP_CLAIM_PRODUCER, now_ns) == RP_ELECT_CLAIM;
}

/* As is_new_work(), and nobody would get it: known before the queue exists. */
static bool is_new_in_vain(struct rp_queues *qs, struct queue *q, uint64_t now_ns)
{
	return policy_fails_fast(qs, q) &&
	       queue_elect(qs, q, RP_CLAIM_PRODUCER, now_ns) == RP_ELECT_CLAIM;
}

static void queue_put(struct rp_queues *qs, uint64_t token, struct rp_span name,
	uint16_t tail_length, const struct rp_qmsg_process *process, struct rte_mbuf *payload,
	bool letter, uint64_t now_ns)
{
	uint32_t head_bytes = (uint32_t)tail_length + process->meta_length;
	struct rp_queue_answer answer = {.status = RP_Q_OK};
	struct queue *q = NULL;
	struct message *m = NULL;

	if (!payload || tail_length == 0 || tail_length > RP_TAIL_BYTES_MAX ||
		tail_length > payload->data_len || name.length == 0 ||
		name.length > RP_NAME_BYTES_MAX ||
		!process_is_sound(process, payload, tail_length)) {
		answer.status = RP_Q_INVALID;
	} else if (is_too_large(qs, payload, head_bytes, letter)) {
		/* At ingress, before the queue exists. */
		COUNT_SHARD(qs, puts);
		COUNT_SHARD(qs, refused_too_large);
		answer.status = RP_Q_TOO_LARGE;
	} else if ((qs->stopping && !process_ends(process)) ||
		   (qs->draining && is_new_work(qs, name, now_ns))) {
		COUNT_SHARD(qs, puts);
		COUNT_SHARD(qs, refused_stopping);
		answer.status = RP_Q_STOPPING;
	} else if (!(q = queue_get(qs, name, now_ns))) {
		COUNT_SHARD(qs, puts);
		COUNT_SHARD(qs, refused_limit);
		answer.status = RP_Q_LIMIT;
	} else {
		COUNT(qs, q, puts);
		if (!letter && process->kind <= RP_PROCESS_REQUEST &&
			is_new_in_vain(qs, q, now_ns)) {
			COUNT(qs, q, refused_no_consumer);
			answer.status = RP_Q_NO_CONSUMER;
		} else if (process->kind <= RP_PROCESS_REQUEST ||
			   process->kind == RP_PROCESS_OUTPUT) {
			answer.status = admit_message(qs, q, payload->pkt_len, now_ns);
		}
	}
	if (answer.status == RP_Q_OK) {
		m = message_new(qs, q, payload, tail_length, now_ns);
		if (!m) {
			COUNT(qs, q, refused_limit);
			answer.status = RP_Q_LIMIT;
		}
	}
	if (!m) {
		rte_pktmbuf_free(payload);
		qs->ops.answer(qs->ctx, token, &answer);
		return;
	}
	m->token = token;
	m->letter = letter;
	m->process = *process;
	m->origin_node = qs->config.node;
	m->origin_boot = qs->config.boot;
	forward_put(qs, m, now_ns);
	forward_pump(qs, q, now_ns);
}

void rp_queue_put(struct rp_queues *qs, uint64_t token, struct rp_span name, uint16_t tail_length,
	struct rte_mbuf *payload, uint64_t now_ns)
{
	const struct rp_qmsg_process plain = {0};

	queue_put(qs, token, name, tail_length, &plain, payload, false, now_ns);
}

void rp_queue_put_process(struct rp_queues *qs, uint64_t token, struct rp_span name,
	uint16_t tail_length, const struct rp_qmsg_process *process, struct rte_mbuf *payload,
	uint64_t now_ns)
{
	queue_put(qs, token, name, tail_length, process, payload, false, now_ns);
}

void rp_queue_put_letter(struct rp_queues *qs, uint64_t token, struct rp_span name,
	uint16_t tail_length, struct rte_mbuf *payload, uint64_t now_ns)
{
	const struct rp_qmsg_process plain = {0};

	queue_put(qs, token, name, tail_length, &plain, payload, true, now_ns);
}
