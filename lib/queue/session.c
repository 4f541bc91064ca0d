/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Process requests at the dispatcher of their reply queue. A session begins before its request is
 * put (OPEN), takes outputs in their order as long as its requester reads, and takes one end. Who
 * has ended stays known for a while, so that what comes late is refused. An end that nobody tells
 * of in time is told here.
 */

#include <string.h>

#include <base/bytes.h>
#include <process/meta.h>

#include "queue_priv.h"

/* An end, or a cancel, that did not do it is asked for again after so long. */
#define AGAIN_NS RP_NS_PER_S
/* One that has ended is remembered for so long beyond its time. */
#define MEMORY_NS (60 * RP_NS_PER_S)

static struct rp_span head_of(const struct rte_mbuf *payload, uint16_t tail_length)
{
	return (struct rp_span){rte_pktmbuf_mtod(payload, const uint8_t *), tail_length};
}

static struct session **session_bucket(
	const struct rp_queues *qs, const struct queue *q, struct rp_span tail)
{
	uint64_t h = (rp_queue_hash(tail.data, tail.length) ^ (uint64_t)q->hash << 32) *
		     0x9e3779b97f4a7c15ull;

	return &qs->session_table[(h >> 32) & qs->session_mask];
}

static struct session *session_find(
	const struct rp_queues *qs, const struct queue *q, struct rp_span tail)
{
	struct session *s;

	if (!q->more || q->more->session_count == 0)
		return NULL;
	s = *session_bucket(qs, q, tail);
	while (s && !(s->q == q && s->tail_length == tail.length &&
			    memcmp(s->tail, tail.data, tail.length) == 0))
		s = s->hash_next;
	return s;
}

/* A consumer may take outputs beyond its prefetch while there are some to come. */
static void consumers_update(struct rp_queues *qs, struct queue *q)
{
	struct rp_list *n;

	rp_list_foreach (n, &q->consumers)
		consumer_update(qs, rp_list_entry(n, struct consumer, link));
}

static void session_arm(struct rp_queues *qs, struct session *s, uint64_t at_ns, uint64_t now_ns)
{
	rp_wheel_del(&qs->session_wheel, &s->due);
	rp_wheel_advance(&qs->session_wheel, now_ns);
	rp_wheel_add(&qs->session_wheel, &s->due, at_ns);
}

static void session_free(struct rp_queues *qs, struct session *s)
{
	struct rp_span tail = {s->tail, s->tail_length};
	struct session **at = session_bucket(qs, s->q, tail);

	RP_ASSERT(s->messages == 0);
	while (*at != s)
		at = &(*at)->hash_next;
	*at = s->hash_next;
	rp_list_unlink(&s->link);
	rp_list_unlink(&s->old);
	rp_list_unlink(&s->room);
	rp_wheel_del(&qs->session_wheel, &s->due);
	blob_put(&qs->session_blobs, s->tail, s->tail_length);
	blob_put(&qs->session_blobs, s->name, s->name_length);
	if (--s->q->more->session_count == 0)
		consumers_update(qs, s->q);
	slab_put(&qs->sessions, s);
}

/* The one that ended first is forgotten before there is no room for another. */
static struct session *session_get(struct rp_queues *qs)
{
	struct session *s = slab_get(&qs->sessions);

	if (s || rp_list_empty(&qs->ended))
		return s;
	session_free(qs, rp_list_entry(qs->ended.next, struct session, old));
	return slab_get(&qs->sessions);
}

/* Whoever decides how it ends has to tell by then. */
static uint64_t guarded_ns(const struct rp_queues *qs, uint64_t left_us, uint64_t now_ns)
{
	return now_ns + RP_MIN(left_us, RP_PROCESS_LEFT_US_MAX) * RP_NS_PER_US +
	       qs->config.guard_ns;
}

/* Begins; NULL: there is no room. */
static struct session *session_new(struct rp_queues *qs, struct queue *q, struct rp_span tail,
	struct rp_span name, uint64_t request, uint64_t ends_ns, uint64_t now_ns)
{
	struct queue_more *more = queue_more(qs, q);
	struct session *s = session_get(qs), **bucket;

	if (!s)
		return NULL;
	rp_list_init(&s->old);
	rp_list_init(&s->room);
	s->tail = blob_get(&qs->session_blobs, tail.data, (uint32_t)tail.length);
	s->name = blob_get(&qs->session_blobs, name.data, (uint32_t)name.length);
	if (!s->tail || !s->name) {
		blob_put(&qs->session_blobs, s->tail, s->tail ? (uint32_t)tail.length : 0);
		blob_put(&qs->session_blobs, s->name, s->name ? (uint32_t)name.length : 0);
		slab_put(&qs->sessions, s);
		return NULL;
	}
	s->tail_length = (uint8_t)tail.length;
	s->name_length = (uint8_t)name.length;
	s->q = q;
	s->request = request;
	s->ends_ns = ends_ns;
	rp_list_init(&s->link);
	rp_list_push_back(&more->sessions, &s->link);
	rp_wheel_node_init(&s->due);
	bucket = session_bucket(qs, q, tail);
	s->hash_next = *bucket;
	*bucket = s;
	session_arm(qs, s, s->ends_ns, now_ns);
	COUNT(qs, q, sessions);
	if (more->session_count++ == 0)
		consumers_update(qs, q);
	return s;
}

void sessions_free(struct rp_queues *qs, struct queue *q)
{
	while (q->more && !rp_list_empty(&q->more->sessions))
		session_free(qs, rp_list_entry(q->more->sessions.next, struct session, link));
}

static void session_end(struct rp_queues *qs, struct session *s, uint64_t now_ns)
{
	s->ended = true;
	if (s->messages == 0)
		rp_list_push_back(&qs->ended, &s->old);
	session_arm(qs, s, RP_MAX(s->ends_ns, now_ns) + MEMORY_NS, now_ns);
}

/* ---- what comes ---- */

static bool has_listener(const struct queue *q)
{
	struct rp_list *n;

	rp_list_foreach (n, &q->consumers) {
		const struct consumer *c = rp_list_entry(n, struct consumer, link);

		if (c->host || c->life || c->record_node)
			return true;
	}
	return false;
}

static enum rp_qstatus session_open(struct rp_queues *qs, struct queue *q,
	const struct rp_qmsg_process *p, const struct rte_mbuf *payload, uint16_t tail_length,
	uint64_t now_ns)
{
	struct rp_span tail = head_of(payload, tail_length);
	struct rp_span bytes = {
		rte_pktmbuf_mtod_offset(payload, const uint8_t *, tail_length), p->meta_length};
	struct session *s = session_find(qs, q, tail);
	struct rp_meta meta = {0};

	/* What the former dispatcher knows of is on its way here. */
	if (q->move && q->move->from) {
		COUNT(qs, q, refused_dispatcher);
		return RP_Q_STALL;
	}
	if (p->left_us == 0) {
		COUNT(qs, q, refused_deadline);
		return RP_Q_DEADLINE;
	}
	if (s && s->request == p->request)
		return RP_Q_OK;
	if (s && (!s->ended || s->messages > 0)) {
		COUNT(qs, q, refused_exists);
		return RP_Q_EXISTS;
	}
	if (s)
		session_free(qs, s);
	rp_meta_read(&meta, bytes);
	s = session_new(
		qs, q, tail, meta.reply_to, p->request, guarded_ns(qs, p->left_us, now_ns), now_ns);
	if (!s) {
		COUNT(qs, q, refused_limit);
		return RP_Q_LIMIT;
	}
	s->native = p->flags & RP_PROCESS_NATIVE;
	return RP_Q_OK;
}

static enum rp_qstatus refuse(struct rp_queues *qs, struct queue *q)
{
	COUNT(qs, q, outputs_refused);
	return RP_Q_NOT_LIVE;
}

/* The requester is this node's own: it gets it at once, or its worker waits. */
static enum rp_qstatus session_pass(struct rp_queues *qs, struct session *s,
	const struct rp_qmsg_process *p, struct rte_mbuf *payload, uint16_t tail_length)
{
	struct rp_queue_run_event e = {
		.request = s->request,
		.end = p->kind == RP_PROCESS_END,
		.tail_length = tail_length,
		.meta_length = p->meta_length,
		.payload = payload,
	};

	payload_share(payload);
	if (qs->ops.run_event(qs->ctx, &e) == 0)
		return RP_Q_OK;
	rte_pktmbuf_free(payload);
	COUNT(qs, s->q, outputs_stalled);
	return e.end ? RP_Q_STALL : RP_Q_BUSY;
}

static bool has_room(const struct rp_queues *qs, const struct session *s, uint32_t bytes)
{
	return s->bytes == 0 || s->bytes + bytes <= qs->config.output_credit;
}

static struct rp_span meta_of(
	const struct rte_mbuf *payload, uint16_t tail_length, uint16_t meta_length)
{
	return (struct rp_span){
		rte_pktmbuf_mtod_offset(payload, const uint8_t *, tail_length), meta_length};
}

/* Not so: one that stands before it was refused. */
static bool is_in_turn(const struct session *s, struct rp_span meta)
{
	uint32_t stream, number;

	return !rp_meta_number_read(meta, &stream, &number) || number == 1 ||
	       (s->stream == stream && s->number + 1 == number);
}

static void session_took(struct session *s, struct rp_span meta)
{
	if (!rp_meta_number_read(meta, &s->stream, &s->number))
		s->stream = s->number = 0;
}

void session_waits(struct rp_queues *qs, struct queue *q, const struct rte_mbuf *payload,
	uint16_t tail_length, uint64_t node)
{
	struct session *s = session_find(qs, q, head_of(payload, tail_length));

	if (s)
		s->waiter = node;
}

/* Half of what it may have unread is free. */
static void session_look_for_room(struct rp_queues *qs, struct session *s)
{
	if (s->waiter && s->bytes <= qs->config.output_credit / 2 && rp_list_empty(&s->room))
		rp_list_push_back(&qs->rooms, &s->room);
}

static void session_tell_room(struct rp_queues *qs, struct session *s, uint64_t now_ns)
{
	struct rp_qmsg m = qmsg_for(s->q, RP_QMSG_ACCEPTED);
	uint64_t node = s->waiter;

	s->waiter = 0;
	m.alloc_node = s->request;
	if (!is_self(qs, node))
		/* Should it be lost, it is asked for. */
		peer_send(qs, node, &m, now_ns);
	else if (qs->ops.output_room)
		qs->ops.output_room(qs->ctx, s->request);
}

static enum rp_qstatus session_output(struct rp_queues *qs, struct session *s,
	const struct rp_qmsg_process *p, struct rte_mbuf *payload, uint16_t tail_length,
	bool *consumed, uint64_t now_ns)
{
	struct rp_span meta = meta_of(payload, tail_length, p->meta_length);
	uint32_t bytes = payload->pkt_len - p->meta_length;
	enum rp_qstatus status = RP_Q_OK;

	if (s->cancelled)
		return refuse(qs, s->q);
	if (!is_in_turn(s, meta) || !has_room(qs, s, bytes)) {
		COUNT(qs, s->q, outputs_stalled);
		return RP_Q_BUSY;
	}
	*consumed = s->native || p->kind == RP_PROCESS_PROBE;
	if (p->kind == RP_PROCESS_PROBE)
		return RP_Q_OK;
	if (s->native) {
		status = session_pass(qs, s, p, payload, tail_length);
		s->bytes += status == RP_Q_OK ? bytes : 0;
		if (status == RP_Q_OK)
			session_took(s, meta);
	}
	if (status == RP_Q_OK)
		COUNT(qs, s->q, outputs);
	return status;
}

static enum rp_qstatus session_last(struct rp_queues *qs, struct session *s,
	const struct rp_qmsg_process *p, struct rte_mbuf *payload, uint16_t tail_length,
	bool *consumed, uint64_t now_ns)
{
	enum rp_qstatus status = RP_Q_OK;

	if (s->native) {
		*consumed = true;
		status = session_pass(qs, s, p, payload, tail_length);
	} else if (s->cancelled && !has_listener(s->q)) {
		*consumed = true;
		COUNT(qs, s->q, ends_unheard);
	}
	if (status == RP_Q_OK)
		session_end(qs, s, now_ns);
	return status;
}

enum rp_qstatus session_admit(struct rp_queues *qs, struct queue *q,
	const struct rp_qmsg_process *p, struct rte_mbuf *payload, uint16_t tail_length,
	bool *consumed, uint64_t now_ns)
{
	struct rp_span tail = head_of(payload, tail_length), none = {0};
	struct session *s;

	*consumed = false;
	if (p->kind == RP_PROCESS_REQUEST)
		return RP_Q_OK;
	if (p->kind == RP_PROCESS_OPEN) {
		*consumed = true;
		return session_open(qs, q, p, payload, tail_length, now_ns);
	}
	s = session_find(qs, q, tail);
	/* Whoever does not hold the request has nothing to say in its name. */
	if (p->kind == RP_PROCESS_PLAIN)
		return s ? refuse(qs, q) : RP_Q_OK;
	/* What is to be closed is on its way here. */
	if (p->kind == RP_PROCESS_CLOSE && !s && q->move && q->move->from) {
		COUNT(qs, q, refused_dispatcher);
		return RP_Q_STALL;
	}
	if (p->kind == RP_PROCESS_CLOSE) {
		*consumed = true;
		if (s && s->request == p->request && !s->ended && s->messages == 0)
			session_free(qs, s);
		return RP_Q_OK;
	}
	/* Whether it has ended is on its way here. */
	if (!s && q->move && q->move->from) {
		COUNT(qs, q, outputs_stalled);
		return p->kind == RP_PROCESS_END ? RP_Q_STALL : RP_Q_BUSY;
	}
	/* The dispatcher that knew of it is dead. */
	if (!s)
		s = session_new(
			qs, q, tail, none, p->request, guarded_ns(qs, p->left_us, now_ns), now_ns);
	if (!s) {
		COUNT(qs, q, refused_limit);
		return RP_Q_LIMIT;
	}
	if (s->ended || s->request != p->request)
		return refuse(qs, q);
	if (p->kind == RP_PROCESS_END)
		return session_last(qs, s, p, payload, tail_length, consumed, now_ns);
	return session_output(qs, s, p, payload, tail_length, consumed, now_ns);
}

void session_add(struct rp_queues *qs, struct message *m)
{
	struct rp_span tail = head_of(m->payload, m->tail_length);
	struct session *s;

	if (lane_class_of(m) != LANE_OUTPUT)
		return;
	s = session_find(qs, m->q, tail);
	if (!s || s->request != m->process.request)
		return;
	m->session = s;
	if (m->process.kind == RP_PROCESS_OUTPUT)
		session_took(s, meta_of(m->payload, m->tail_length, m->process.meta_length));
	s->messages++;
	s->bytes += m->bytes;
	rp_list_unlink(&s->old);
}

void session_remove(struct rp_queues *qs, struct message *m)
{
	struct session *s = m->session;

	if (!s)
		return;
	m->session = NULL;
	s->bytes -= m->bytes;
	if (--s->messages == 0 && s->ended)
		rp_list_push_back(&qs->ended, &s->old);
	session_look_for_room(qs, s);
}

void rp_queue_run_read(struct rp_queues *qs, struct rp_span name, struct rp_span tail,
	uint32_t bytes, uint64_t now_ns)
{
	struct queue *q =
		name.length && name.length <= RP_NAME_BYTES_MAX ? queue_find(qs, name) : NULL;
	struct session *s = q ? session_find(qs, q, tail) : NULL;

	if (!s || !s->native)
		return;
	s->bytes -= RP_MIN(s->bytes, (uint64_t)bytes);
	session_look_for_room(qs, s);
}

/* ---- time ---- */

static void session_cancel(struct rp_queues *qs, struct session *s)
{
	s->cancelled = true;
	qs->ops.cancel(qs->ctx, (struct rp_span){s->name, s->name_length},
		(struct rp_span){s->tail, s->tail_length}, s->request);
}

void sessions_look(struct rp_queues *qs, struct queue *q, uint64_t now_ns)
{
	struct rp_list *n;

	if (!q->own || q->more->session_count == 0 || has_listener(q))
		return;
	rp_list_foreach (n, &q->more->sessions) {
		struct session *s = rp_list_entry(n, struct session, link);

		if (s->ended || s->cancelled || s->native || s->name_length == 0)
			continue;
		session_cancel(qs, s);
		session_arm(qs, s, RP_MIN(s->ends_ns, now_ns + AGAIN_NS), now_ns);
	}
}

/* Nobody has told how it ended. */
static void session_expire(struct rp_queues *qs, struct session *s, uint64_t now_ns)
{
	const struct rp_queue_process_end end = {
		.name = {s->name, s->name_length},
		.reply_to = queue_name(s->q),
		.tail = {s->tail, s->tail_length},
		.request = s->request,
		.death = s->cancelled ? RP_QUEUE_DEATH_CANCELLED : RP_QUEUE_DEATH_DEADLINE,
	};

	if (qs->ops.process_end(qs->ctx, 0, &end) == 0)
		COUNT(qs, s->q, sessions_expired);
	session_arm(qs, s, now_ns + AGAIN_NS, now_ns);
}

static void session_due(struct rp_queues *qs, struct session *s, uint64_t now_ns)
{
	struct queue *q = s->q;

	if (!q->own) {
		session_arm(qs, s, now_ns + AGAIN_NS, now_ns);
		if (q->dispatcher && !is_self(qs, q->dispatcher))
			sessions_hand_over(qs, q, q->dispatcher, now_ns);
		return;
	}
	if (s->ended && s->messages == 0) {
		session_free(qs, s);
	} else if (s->ended) {
		session_arm(qs, s, now_ns + AGAIN_NS, now_ns);
	} else if (now_ns >= s->ends_ns) {
		session_expire(qs, s, now_ns);
	} else if (s->cancelled) {
		session_cancel(qs, s);
		session_arm(qs, s, RP_MIN(s->ends_ns, now_ns + AGAIN_NS), now_ns);
	} else {
		session_arm(qs, s, s->ends_ns, now_ns);
	}
}

bool sessions_poll(struct rp_queues *qs, uint64_t now_ns)
{
	for (unsigned i = 0; i < POLL_BUDGET && !rp_list_empty(&qs->rooms); i++)
		session_tell_room(qs,
			rp_list_entry(rp_list_pop_front(&qs->rooms), struct session, room), now_ns);
	rp_wheel_advance(&qs->session_wheel, now_ns);
	for (unsigned i = 0; i < POLL_BUDGET; i++) {
		struct rp_wheel_node *n = rp_wheel_pop(&qs->session_wheel);

		if (!n)
			return !rp_list_empty(&qs->rooms);
		session_due(qs, RP_CONTAINER_OF(n, struct session, due), now_ns);
	}
	return true;
}

/* ---- to another dispatcher ---- */

/*
 * A HANDOVER with a payload and KEEPS: for each session the id of its request (8, little endian),
 * the ms that it is waited for (8), flags (1: it has ended, 2: nobody listens), then tail and queue
 * of the request, each a length (1) and its bytes.
 */
#define SESSIONS_BYTES 8192
#define SESSION_HEAD_BYTES 19
#define SESSIONS_FRAMES 8
#define SESSION_ENDED 0x01
#define SESSION_CANCELLED 0x02

/* How many fit: `taken`, which go. */
static uint32_t sessions_pack(
	const struct queue *q, struct rp_writer *w, struct session **taken, uint64_t now_ns)
{
	const struct rp_list *n;
	uint32_t count = 0;

	rp_list_foreach (n, &q->more->sessions) {
		struct session *s = rp_list_entry(n, struct session, link);
		uint64_t left = s->ends_ns > now_ns ? (s->ends_ns - now_ns) / RP_NS_PER_MS : 0;

		/* Of what is here still it goes when that has gone. */
		if (s->messages > 0)
			continue;
		if (w->end - w->pos < SESSION_HEAD_BYTES + s->tail_length + s->name_length)
			break;
		rp_write_le64(w, s->request);
		rp_write_le64(w, left);
		rp_write_u8(w, (uint8_t)((s->ended ? SESSION_ENDED : 0) |
					 (s->cancelled ? SESSION_CANCELLED : 0)));
		rp_write_u8(w, s->tail_length);
		rp_write_bytes(w, s->tail, s->tail_length);
		rp_write_u8(w, s->name_length);
		rp_write_bytes(w, s->name, s->name_length);
		taken[count++] = s;
	}
	return count;
}

/* A requester of this node hears of it from nobody any more. */
static void session_abandon(struct rp_queues *qs, struct session *s)
{
	struct rp_queue_run_event e = {.request = s->request, .end = true};

	if (s->native && !s->ended)
		qs->ops.run_event(qs->ctx, &e);
}

bool sessions_hand_over(struct rp_queues *qs, struct queue *q, uint64_t to, uint64_t now_ns)
{
	struct session *taken[SESSIONS_BYTES / SESSION_HEAD_BYTES];

	for (unsigned i = 0; q->more && !rp_list_empty(&q->more->sessions); i++) {
		struct rp_qmsg m = qmsg_for(q, RP_QMSG_HANDOVER);
		uint8_t bytes[SESSIONS_BYTES];
		struct rp_writer w = rp_writer_of(bytes, sizeof(bytes));
		uint32_t count = sessions_pack(q, &w, taken, now_ns);

		if (count == 0 || i == SESSIONS_FRAMES)
			return count == 0;
		m.flags = RP_QMSG_KEEPS;
		m.payload = rp_mbuf_from(qs->config.pool, bytes, (size_t)(w.pos - bytes));
		if (!m.payload)
			return false;
		if (peer_send(qs, to, &m, now_ns) != 0) {
			rte_pktmbuf_free(m.payload);
			return false;
		}
		for (uint32_t k = 0; k < count; k++) {
			session_abandon(qs, taken[k]);
			session_free(qs, taken[k]);
		}
	}
	return true;
}

static void session_take(struct rp_queues *qs, struct queue *q, struct rp_span tail,
	struct rp_span name, uint64_t request, uint64_t left_ms, uint8_t flags, uint64_t now_ns)
{
	struct session *s = session_find(qs, q, tail);
	uint64_t ends_ns = now_ns + RP_MIN(left_ms, RP_PROCESS_LEFT_US_MAX / 1000) * RP_NS_PER_MS;

	if (s && s->request != request)
		return;
	if (!s)
		s = session_new(qs, q, tail, name, request, ends_ns, now_ns);
	if (!s)
		return;
	if (!s->ended && s->ends_ns < ends_ns) {
		s->ends_ns = ends_ns;
		session_arm(qs, s, ends_ns, now_ns);
	}
	/* One that an output made before it came does not know its queue. */
	if (s->name_length == 0 && name.length > 0) {
		uint8_t *copy = blob_get(&qs->session_blobs, name.data, (uint32_t)name.length);

		if (copy) {
			s->name = copy;
			s->name_length = (uint8_t)name.length;
		}
	}
	s->cancelled |= (flags & SESSION_CANCELLED) != 0;
	if ((flags & SESSION_ENDED) && !s->ended)
		session_end(qs, s, now_ns);
	/* It came back, since it could not go. */
	if (!q->own)
		session_arm(qs, s, now_ns + AGAIN_NS, now_ns);
}

void sessions_receive(
	struct rp_queues *qs, struct queue *q, const struct rte_mbuf *payload, uint64_t now_ns)
{
	uint8_t bytes[SESSIONS_BYTES];
	struct rp_reader r =
		rp_reader_of(bytes, rp_mbuf_copy_out(payload, 0, bytes, sizeof(bytes)));

	while (!r.bad && r.pos < r.end) {
		uint64_t request = rp_read_le64(&r), left_ms = rp_read_le64(&r);
		uint8_t flags = rp_read_u8(&r);
		struct rp_span tail, name;

		tail.length = rp_read_u8(&r);
		tail.data = rp_read_bytes(&r, tail.length);
		name.length = rp_read_u8(&r);
		name.data = rp_read_bytes(&r, name.length);
		if (!r.bad && tail.length > 0 && request)
			session_take(qs, q, tail, name, request, left_ms, flags, now_ns);
	}
}
