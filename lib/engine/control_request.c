/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A process request on its way in, and how it ended on its way back. The put of an envelope opens a
 * session at its reply queue first, so that two live ones never have the same identity there, then
 * goes to its own queue; both are ordinary puts of the engine.
 */

#include <stdlib.h>
#include <string.h>

#include <rte_mbuf.h>

#include <base/assert.h>
#include <base/mbuf.h>
#include <engine/control_process_priv.h>
#include <process/envelope.h>
#include <process/output.h>
#include <route/key.h>

/** An end is told for so long beyond its request's time. */
#define END_LEFT_US 1000000
/** A session that could not be closed is closed again after so long. */
#define CLOSE_AGAIN_NS (100 * RP_NS_PER_MS)

/* ---- what control knows of a queue ---- */

static struct rp_span record_value(struct rp_control *c, const void *key, int length)
{
	struct rp_kv_record r;

	if (length < 0 || !rp_kv_record_get(c->kv, (struct rp_span){key, (size_t)length}, &r) ||
		r.deleted)
		return (struct rp_span){0};
	return r.value;
}

static struct rp_span record_reply_to(struct rp_control *c, struct rp_span name)
{
	uint8_t key[RP_REGISTRY_KEY_BYTES_MAX];
	struct rp_span value =
		record_value(c, key, rp_route_key_dispatcher(name, key, sizeof(key)));
	struct rp_dispatcher_record r;

	rp_route_dispatcher_parse(&r, value.data, value.length);
	return r.reply_to.length <= RP_NAME_BYTES_MAX ? r.reply_to : (struct rp_span){0};
}

/* Some consumer, on whatever node, has what is needed. */
static bool is_capable(
	struct rp_control *c, struct rp_span name, const struct rp_meta *meta, bool *anyone)
{
	uint8_t from[RP_NAME_BYTES_MAX + 8], to[RP_NAME_BYTES_MAX + 8];
	struct rp_span at = {from, name.length + 6}, end = {to, name.length + 6};
	struct rp_kv_record page[32];
	bool after = false;
	uint32_t n;

	memcpy(from, "/q/", 3);
	memcpy(from + 3, name.data, name.length);
	memcpy(from + 3 + name.length, "/c/", 3);
	memcpy(to, from, end.length);
	to[end.length - 1]++;
	*anyone = false;
	do {
		n = rp_kv_record_page(c->kv, at, after, end, page, RP_ARRAY_SIZE(page));
		for (uint32_t i = 0; i < n; i++) {
			struct rp_consumer_record r;

			if (page[i].deleted || rp_route_consumer_parse(&r, page[i].value.data,
						       page[i].value.length) != 0)
				continue;
			*anyone = true;
			if (rp_meta_is_met(meta, r.cap))
				return true;
		}
		if (n > 0)
			at = page[n - 1].key;
		after = true;
	} while (n == RP_ARRAY_SIZE(page));
	return false;
}

/* ---- on its way ---- */

void control_put_process(struct rp_control *c, const struct rp_span parts[4], uint32_t hash,
	const struct rp_qmsg_process *p, uint64_t token)
{
	struct rp_xmsg m = {
		.type = RP_XMSG_PUT,
		.name_length = (uint16_t)parts[0].length,
		.tail_length = (uint16_t)parts[1].length,
		.hash = hash,
		.token = token,
		.value = rp_xmsg_process(p),
		.idx = p->request,
		.revision = p->left_us,
		.node = p->left_ns,
		.m = control_chain(c, parts, 4),
	};
	struct rp_xmsg refused = {
		.type = RP_XMSG_ANSWER, .token = token, .status = RP_Q_QUEUE_BUFFERS};

	RP_ASSERT(p->meta_length == parts[2].length);
	if (m.m)
		control_send(c, rp_hash_pick(hash, c->shards), &m);
	else if (token & RP_CONTROL_OUTPUT_FLAG)
		control_job_answered(c, &refused);
	else if (token & RP_CONTROL_REQUEST_FLAG)
		control_request_answered(c, &refused);
	else
		control_letter_answered(c, &refused);
}

static void request_answer(struct rp_control *c, const struct control_request *r,
	enum rp_qstatus status, const char *message)
{
	const struct rp_control_answer a = {.status = status, .message = message};

	if (r->is_run)
		control_run_answered(c, r->token, r->process.request, status, message);
	else
		c->ops->queue_answer(c->ctx, r->token, &a);
}

/* To its reply queue: OPEN, which has the queue's name as its meta, or CLOSE. */
static void request_session(
	struct rp_control *c, struct control_request *r, enum rp_process_kind kind)
{
	const struct rp_meta meta = {.reply_to = r->name};
	uint8_t bytes[RP_META_BYTES_MAX];
	struct rp_span parts[4] = {{r->reply_to, r->reply_length}, r->tail, {bytes, 0}};
	struct rp_qmsg_process p = r->process;

	parts[2].length = rp_meta_write(&meta, bytes);
	p.meta_length = (uint16_t)parts[2].length;
	p.kind = kind;
	p.priority = 0;
	p.flags = r->is_run ? RP_PROCESS_NATIVE : 0;
	control_put_process(c, parts, r->reply_hash, &p, RP_CONTROL_REQUEST_FLAG | r->by_id.key);
}

static void request_send(struct rp_control *c, struct control_request *r)
{
	const struct rp_span parts[4] = {
		r->name, r->tail, {r->meta, r->process.meta_length}, r->value};

	r->opened = true;
	control_put_process(c, parts, r->hash, &r->process, RP_CONTROL_REQUEST_FLAG | r->by_id.key);
	c->counters.queue_puts++;
}

/* Whether it may have been taken all the same. */
static bool is_ambiguous(enum rp_qstatus status)
{
	return status == RP_Q_UNREACHABLE || status == RP_Q_MOVED || status == RP_Q_STALL;
}

static void request_free(struct rp_control *c, struct control_request *r)
{
	rp_hmap_remove(&c->requests, &r->by_id);
	rp_list_unlink(&r->closing);
	free(r->closes);
	free(r);
}

/* A reply queue between two dispatchers takes no word: it is told again, while it may matter. */
static void request_close_again(struct rp_control *c, struct control_request *r)
{
	r->again_ns = c->now.ns + CLOSE_AGAIN_NS;
	rp_list_push_back(&c->requests_closing, &r->closing);
}

/* From here on it is its session's alone. */
static void request_close(struct rp_control *c, struct control_request *r)
{
	uint8_t *copy = control_alloc(r->name.length + r->tail.length);

	memcpy(copy, r->name.data, r->name.length);
	memcpy(copy + r->name.length, r->tail.data, r->tail.length);
	r->closes = copy;
	r->name.data = copy;
	r->tail.data = copy + r->name.length;
	r->value = (struct rp_span){0};
	/* In time for an end that its reply queue would tell of itself. */
	r->process.left_us += END_LEFT_US;
	request_session(c, r, RP_PROCESS_CLOSE);
}

static void request_closed(struct rp_control *c, struct control_request *r, enum rp_qstatus status)
{
	bool over = rp_process_left_us(r->process.left_us, r->process.left_ns, c->now.ns) == 0;

	if (status == RP_Q_OK || over)
		request_free(c, r);
	else
		request_close_again(c, r);
}

uint64_t control_requests_run(struct rp_control *c)
{
	while (!rp_list_empty(&c->requests_closing)) {
		struct control_request *r =
			rp_list_entry(c->requests_closing.next, struct control_request, closing);

		if (r->again_ns > c->now.ns)
			return r->again_ns;
		rp_list_unlink(&r->closing);
		request_session(c, r, RP_PROCESS_CLOSE);
	}
	return RP_NEVER;
}

void control_request_answered(struct rp_control *c, const struct rp_xmsg *m)
{
	struct rp_hmap_node *n = rp_hmap_find(&c->requests, m->token & ~RP_CONTROL_REQUEST_FLAG);
	struct control_request *r;

	rte_pktmbuf_free(m->m);
	if (!n)
		return;
	r = RP_CONTAINER_OF(n, struct control_request, by_id);
	if (r->closes) {
		request_closed(c, r, m->status);
		return;
	}
	if (m->status == RP_Q_OK && !r->opened) {
		request_send(c, r);
		return;
	}
	if (m->status == RP_Q_OK)
		c->counters.requests++;
	else
		c->counters.requests_refused++;
	if (m->status != RP_Q_OK && r->opened && r->reply_length > 0 && !is_ambiguous(m->status)) {
		/* Its name and tail are the caller's until he is answered. */
		struct control_request told = *r;

		request_close(c, r);
		request_answer(c, &told, m->status, NULL);
		return;
	}
	request_answer(c, r, m->status, NULL);
	request_free(c, r);
}

static struct control_request *request_new(
	struct rp_control *c, const struct rp_control_queue_op *op, uint64_t token, bool is_run)
{
	struct control_request *r = control_alloc(sizeof(*r));

	rp_list_init(&r->closing);
	r->token = token;
	r->is_run = is_run;
	r->name = op->name;
	r->tail = op->tail;
	r->value = op->value;
	r->hash = op->hash;
	r->process.kind = RP_PROCESS_REQUEST;
	/* Some bits of the node's id, and a count: unlike any other that lives. */
	r->process.request = ((c->self.node * 0x9e3779b97f4a7c15ull >> 40) << 31 |
				     (++c->process_last & 0x7fffffff)) &
			     (RP_CONTROL_OUTPUT_FLAG - 1);
	return r;
}

static void request_fill(
	struct control_request *r, const struct rp_envelope *e, struct rp_span reply_to)
{
	struct rp_meta meta = rp_envelope_meta(e);

	meta.reply_to = reply_to;
	r->reply_length = (uint8_t)reply_to.length;
	if (reply_to.length > 0)
		memcpy(r->reply_to, reply_to.data, reply_to.length);
	r->reply_hash = rp_queue_hash(r->reply_to, r->reply_length);
	r->process.left_us = e->ttl_ms * 1000;
	r->process.priority = e->priority;
	r->process.flags = (e->has_priority ? RP_PROCESS_PRIORITY : 0) |
			   (e->fail_fast ? RP_PROCESS_FAIL_FAST : 0) |
			   (reply_to.length > 0 ? RP_PROCESS_REPLY : 0);
	r->process.meta_length = (uint16_t)rp_meta_write(&meta, r->meta);
}

/* NULL: it may go; else *status, and why if the status does not say it. */
static bool request_check(struct rp_control *c, const struct control_request *r,
	const struct rp_envelope *e, enum rp_qstatus *status, const char **message)
{
	struct rp_meta meta = rp_envelope_meta(e);
	bool anyone;

	*message = NULL;
	*status = RP_Q_INVALID;
	if (span_equal(r->name, (struct rp_span){r->reply_to, r->reply_length})) {
		*message = "process request: reply_to names the queue that it is put into";
		return false;
	}
	if ((e->need_count == 0 && !e->fail_fast) || is_capable(c, r->name, &meta, &anyone))
		return true;
	*status = anyone ? RP_Q_INCAPABLE : RP_Q_NO_CONSUMER;
	return false;
}

static void request_begin(struct rp_control *c, struct control_request *r, struct rp_envelope *e,
	struct rp_span reply_to)
{
	const struct rp_envelope_limits limits = {.output_bytes = c->message_bytes};
	enum rp_qstatus status;
	const char *message;

	rp_envelope_ceil(e, &limits);
	r->process.left_ns = c->now.ns;
	request_fill(r, e, reply_to);
	if (!request_check(c, r, e, &status, &message)) {
		c->counters.requests_refused++;
		request_answer(c, r, status, message);
		free(r);
		return;
	}
	rp_hmap_insert(&c->requests, &r->by_id, ++c->request_last);
	if (r->reply_length > 0)
		request_session(c, r, RP_PROCESS_OPEN);
	else
		request_send(c, r);
}

int control_request_put(struct rp_control *c, const struct rp_control_queue_op *op, uint64_t token)
{
	struct rp_control_answer a = {.status = RP_Q_INVALID};
	struct rp_envelope e;
	struct rp_span reply_to;

	switch (rp_envelope_parse(&e, op->value, &a.message)) {
	case RP_ENVELOPE_NONE:
		return 1;
	case RP_ENVELOPE_BAD:
		c->counters.requests_refused++;
		c->ops->queue_answer(c->ctx, token, &a);
		return 0;
	case RP_ENVELOPE_OK:
		break;
	}
	reply_to = e.reply_to.length > 0 ? e.reply_to : record_reply_to(c, op->name);
	request_begin(c, request_new(c, op, token, false), &e, reply_to);
	rp_envelope_clear(&e);
	return 0;
}

void control_request_start(struct rp_control *c, const struct rp_control_queue_op *op, uint64_t run)
{
	struct control_request *r = request_new(c, op, run, true);
	const char *why = NULL;
	struct rp_envelope e;
	char queue[32];

	if (rp_envelope_parse(&e, op->value, &why) != RP_ENVELOPE_OK) {
		c->counters.requests_refused++;
		request_answer(c, r, RP_Q_INVALID,
			why ? why : "process request: the value is no envelope");
		free(r);
		return;
	}
	rp_control_run_queue(c, queue);
	request_begin(c, r, &e, (struct rp_span){(const uint8_t *)queue, strlen(queue)});
	rp_envelope_clear(&e);
}

/* ---- how it ended ---- */

static enum rp_process_code code_of(enum rp_queue_death death)
{
	switch (death) {
	case RP_QUEUE_DEATH_EXPIRED:
	case RP_QUEUE_DEATH_DEADLINE:
		return RP_PROCESS_DEADLINE_EXCEEDED;
	case RP_QUEUE_DEATH_OVERFLOW:
		return RP_PROCESS_OVERLOADED;
	case RP_QUEUE_DEATH_EXHAUSTED:
	case RP_QUEUE_DEATH_WORKER_LOST:
		return RP_PROCESS_WORKER_LOST;
	case RP_QUEUE_DEATH_REJECTED:
		return RP_PROCESS_REJECTED;
	case RP_QUEUE_DEATH_CANCELLED:
		return RP_PROCESS_CANCELLED;
	case RP_QUEUE_DEATH_NO_CONSUMER:
		return RP_PROCESS_NO_CONSUMER;
	case RP_QUEUE_DEATH_TOO_LARGE:
		return RP_PROCESS_TOO_LARGE;
	case RP_QUEUE_DEATH_REPLAYED:
	case RP_QUEUE_DEATH_COMPLETED:
	case RP_QUEUE_DEATH_COUNT:
		break;
	}
	return RP_PROCESS_INTERNAL;
}

void control_on_process_end(struct rp_control *c, unsigned shard, const struct rp_xmsg *m)
{
	size_t head = (size_t)m->name_length + m->hash + m->tail_length;
	size_t length = m->m->pkt_len;
	uint8_t *bytes = control_alloc(length + 1);
	struct rp_span last = {bytes + head, length - head};
	struct rp_span parts[4] = {{bytes + m->name_length, m->hash},
		{bytes + m->name_length + m->hash, m->tail_length}};
	const struct rp_qmsg_process p = {.kind = RP_PROCESS_END,
		.request = m->idx,
		.left_us = END_LEFT_US,
		.left_ns = c->now.ns};
	char *text = NULL;

	rp_mbuf_copy_out(m->m, 0, bytes, length);
	rte_pktmbuf_free(m->m);
	if (m->value != RP_QUEUE_DEATH_COMPLETED)
		text = rp_failure_write(code_of(m->value), NULL, &last.length);
	else if (last.length == 0)
		text = rp_output_write((struct rp_span){0}, true, &last.length);
	if (text)
		last.data = (const uint8_t *)text;
	parts[3] = last;
	c->counters.request_ends++;
	control_put_process(c, parts, rp_queue_hash(parts[0].data, parts[0].length), &p,
		CONTROL_LETTER_FLAG | control_letter_new(c, shard, m->token, true));
	free(text);
	free(bytes);
}

/* ---- cancels ---- */

void control_cancel(struct rp_control *c, struct rp_span name, uint32_t hash, struct rp_span tail,
	uint64_t request)
{
	const struct rp_span parts[2] = {name, tail};
	struct rp_xmsg m = {
		.type = RP_XMSG_CANCEL,
		.name_length = (uint16_t)name.length,
		.hash = hash,
		.token = RP_CONTROL_REQUEST_FLAG,
		.idx = request,
		.m = control_chain(c, parts, 2),
	};

	if (m.m)
		control_send(c, rp_hash_pick(hash, c->shards), &m);
}

void control_on_cancel_ask(struct rp_control *c, const struct rp_xmsg *m)
{
	struct rp_span name = {rte_pktmbuf_mtod(m->m, const uint8_t *), m->name_length};
	struct rp_span tail = {name.data + name.length, m->tail_length};

	control_cancel(c, name, rp_queue_hash(name.data, name.length), tail, m->idx);
	rte_pktmbuf_free(m->m);
}

void control_request_free_all(struct rp_control *c)
{
	for (size_t i = 0; i < 1u << CONTROL_REQUEST_BITS; i++)
		while (c->requests.chains[i]) {
			struct control_request *r = RP_CONTAINER_OF(
				c->requests.chains[i], struct control_request, by_id);

			request_free(c, r);
		}
}
