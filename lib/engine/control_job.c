/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Process requests that consumers of this node hold, as its shards say, and what their workers put.
 *
 * Outputs go to the reply queue in a stream of numbers, several under way at a time. It takes them
 * in that order only: when it refuses one, it refuses all behind it, and when all of them are back
 * the first of them begins a new stream. That is when the reply queue says that its requester reads
 * again, or after a while. The last output goes to the request's own dispatcher, behind all others,
 * which decides whether it was in time.
 */

#include <stdlib.h>
#include <string.h>

#include <rte_mbuf.h>

#include <base/assert.h>
#include <base/mbuf.h>
#include <engine/control_process_priv.h>
#include <process/output.h>

/** Should its word be lost, it is asked after this, then after twice as long, up to the last. */
#define AGAIN_NS_MIN (2 * RP_NS_PER_MS)
#define AGAIN_NS_MAX (100 * RP_NS_PER_MS)
/** A larger output is not sent to find out. */
#define PROBE_BYTES 4096
/** Outputs of one job under way, and their bytes; one may be larger. */
#define OUT_MAX 64
#define OUT_BYTES_MAX (256u << 10)

static struct rp_span job_name(const struct control_job *j)
{
	return (struct rp_span){j->bytes, j->name_length};
}

static struct rp_span job_reply_queue(const struct control_job *j)
{
	return (struct rp_span){j->bytes + j->name_length, j->reply_length};
}

static struct rp_span job_tail(const struct control_job *j)
{
	return (struct rp_span){j->bytes + j->name_length + j->reply_length, j->tail_length};
}

static uint64_t reply_key(uint32_t hash, struct rp_span tail)
{
	return (uint64_t)hash << 32 | rp_queue_hash(tail.data, tail.length);
}

static struct control_job *job_find(struct rp_control *c, uint64_t request)
{
	struct rp_hmap_node *n = rp_hmap_find(&c->jobs, request);

	return n ? RP_CONTAINER_OF(n, struct control_job, by_request) : NULL;
}

static struct control_job *job_of_reply(
	struct rp_control *c, struct rp_span queue, uint32_t hash, struct rp_span tail)
{
	uint64_t key = reply_key(hash, tail);
	struct rp_hmap_node *n = c->jobs.count > 0 ? *rp_hmap_chain(&c->job_replies, key) : NULL;

	for (; n; n = n->next) {
		struct control_job *j = RP_CONTAINER_OF(n, struct control_job, by_reply);

		if (n->key == key && span_equal(job_reply_queue(j), queue) &&
			span_equal(job_tail(j), tail))
			return j;
	}
	return NULL;
}

static struct control_output *output_find(struct rp_control *c, uint64_t id)
{
	struct rp_hmap_node *n = rp_hmap_find(&c->outputs, id);

	return n ? RP_CONTAINER_OF(n, struct control_output, by_id) : NULL;
}

static void output_free(struct rp_control *c, struct control_output *o)
{
	rp_list_unlink(&o->node);
	rp_hmap_remove(&c->outputs, &o->by_id);
	free(o);
}

static void output_answer(struct rp_control *c, struct control_output *o, enum rp_qstatus status)
{
	const struct rp_control_answer a = {.status = status, .deleted = status == RP_Q_OK};
	uint64_t token = o->token;

	output_free(c, o);
	c->ops->queue_answer(c->ctx, token, &a);
}

static void job_free(struct rp_control *c, struct control_job *j)
{
	RP_ASSERT(rp_list_empty(&j->pending));
	rp_list_unlink(&j->waits);
	rp_hmap_remove(&c->jobs, &j->by_request);
	rp_hmap_remove(&c->job_replies, &j->by_reply);
	free(j);
}

/* What waits behind those that are out has nobody to go to. `all`: nor have they. */
static void job_end(struct rp_control *c, struct control_job *j, bool all)
{
	j->over = true;
	while (!rp_list_empty(&j->pending)) {
		struct control_output *o =
			rp_list_entry(j->pending.prev, struct control_output, node);

		if (o->out && !all)
			return;
		output_answer(c, o, RP_Q_NOT_LIVE);
	}
	job_free(c, j);
}

void control_job_learn(struct rp_control *c, const struct control_consumer *k,
	const struct rp_xmsg *m, const struct rp_qmsg_process *p)
{
	const uint8_t *bytes = rte_pktmbuf_mtod(m->m, const uint8_t *);
	struct control_job *j = job_find(c, m->alloc_node);
	struct rp_meta meta;

	if (!rp_meta_read(&meta, (struct rp_span){bytes + m->tail_length, p->meta_length}) ||
		meta.reply_to.length == 0)
		return;
	if (j && !j->over && j->idx == m->idx && memcmp(j->uuid, k->uuid, RP_UUID_BYTES) == 0) {
		j->user = k->user;
		return;
	}
	/* What the one before has out comes too late, whatever is said to it. */
	if (j)
		job_end(c, j, true);
	j = control_alloc(sizeof(*j) + k->name_length + meta.reply_to.length + m->tail_length);
	rp_list_init(&j->waits);
	rp_list_init(&j->pending);
	j->idx = m->idx;
	j->ends_ns = m->node;
	j->max_bytes = meta.max_bytes;
	j->user = k->user;
	memcpy(j->uuid, k->uuid, RP_UUID_BYTES);
	j->name_length = k->name_length;
	j->reply_length = (uint8_t)meta.reply_to.length;
	j->tail_length = (uint8_t)m->tail_length;
	memcpy(j->bytes, k->name, k->name_length);
	memcpy(j->bytes + j->name_length, meta.reply_to.data, meta.reply_to.length);
	memcpy(j->bytes + j->name_length + j->reply_length, bytes, m->tail_length);
	j->hash = rp_queue_hash(k->name, k->name_length);
	j->reply_hash = rp_queue_hash(meta.reply_to.data, meta.reply_to.length);
	rp_hmap_insert(&c->jobs, &j->by_request, m->alloc_node);
	rp_hmap_insert(&c->job_replies, &j->by_reply, reply_key(j->reply_hash, job_tail(j)));
}

void control_on_job_over(struct rp_control *c, const struct rp_xmsg *m)
{
	struct control_job *j = job_find(c, m->alloc_node);

	if (j && j->idx == m->idx && !j->over)
		job_end(c, j, false);
}

/* ---- outputs ---- */

/* About the job, to the shard of its queue; `last` goes with it. */
static bool job_tell(struct rp_control *c, const struct control_job *j, enum rp_xmsg_type type,
	uint64_t token, struct rp_span last)
{
	const struct rp_span parts[2] = {job_name(j), last};
	struct rp_xmsg m = {
		.type = (uint8_t)type,
		.name_length = j->name_length,
		.hash = j->hash,
		.token = RP_CONTROL_OUTPUT_FLAG | token,
		.idx = j->idx,
		.m = control_chain(c, parts, 2),
	};

	if (!m.m)
		return false;
	memcpy(m.uuid, j->uuid, RP_UUID_BYTES);
	control_send(c, rp_hash_pick(j->hash, c->shards), &m);
	return true;
}

static void output_out(struct control_job *j, struct control_output *o)
{
	o->out = true;
	j->out_count++;
	j->out_bytes += o->value.length;
}

static void output_back(struct control_job *j, struct control_output *o)
{
	o->out = false;
	j->out_count--;
	j->out_bytes -= o->value.length;
}

static void job_wait(struct rp_control *c, struct control_job *j)
{
	j->backoff_ns = RP_MIN(RP_MAX(2 * j->backoff_ns, AGAIN_NS_MIN), AGAIN_NS_MAX);
	j->again_ns = c->now.ns + j->backoff_ns;
	rp_list_unlink(&j->waits);
	rp_list_push_back(&c->jobs_waiting, &j->waits);
	c->counters.outputs_waited++;
}

/* To the reply queue, with its number. */
static void output_send(struct rp_control *c, struct control_job *j, struct control_output *o)
{
	bool probe = j->probing;
	uint8_t meta[RP_META_BYTES_MAX];
	struct rp_span parts[4] = {job_reply_queue(j), job_tail(j), {meta, 0}, {0}};
	struct rp_qmsg_process p = {
		.kind = probe ? RP_PROCESS_PROBE : RP_PROCESS_OUTPUT,
		.request = j->by_request.key,
		.left_us = j->ends_ns > c->now.ns ? (j->ends_ns - c->now.ns) / RP_NS_PER_US : 0,
		.left_ns = c->now.ns,
	};

	output_out(j, o);
	if (!probe) {
		if (j->number == 0)
			j->stream = ++c->stream_last;
		parts[2].length = rp_meta_number_write(j->stream, ++j->number, meta);
		parts[3] = o->value;
	}
	p.meta_length = (uint16_t)parts[2].length;
	control_put_process(c, parts, j->reply_hash, &p, RP_CONTROL_OUTPUT_FLAG | o->by_id.key);
}

/* False: the pool is empty, and it is tried again. */
static bool job_send(struct rp_control *c, struct control_job *j, struct control_output *o)
{
	if (o->final && !j->probing) {
		if (!job_tell(c, j, RP_XMSG_ACK, o->by_id.key, o->value))
			return false;
		output_out(j, o);
		return true;
	}
	/* Before the first of them leaves: it is not to be given to another worker any more. */
	if (!j->begun && !job_tell(c, j, RP_XMSG_BEGUN, 0, (struct rp_span){0}))
		return false;
	j->begun = true;
	output_send(c, j, o);
	return true;
}

/* The first that is not out; NULL: it has to wait for those that are, or there is none. */
static struct control_output *job_next(const struct rp_control *c, struct control_job *j)
{
	struct control_output *o;
	struct rp_list *n = j->pending.next;

	if (j->over || j->refused || j->out_count >= OUT_MAX || !rp_list_empty(&j->waits))
		return NULL;
	while (n != &j->pending && rp_list_entry(n, struct control_output, node)->out)
		n = n->next;
	if (n == &j->pending)
		return NULL;
	o = rp_list_entry(n, struct control_output, node);
	o->too_large = (j->max_bytes > 0 && o->value.length > j->max_bytes) ||
		       o->value.length > c->message_bytes;
	if (j->out_count > 0 && (j->probing || o->final || o->too_large ||
					j->out_bytes + o->value.length > OUT_BYTES_MAX))
		return NULL;
	return o;
}

static void job_step(struct rp_control *c, struct control_job *j)
{
	struct control_output *o;

	while ((o = job_next(c, j))) {
		if (o->too_large) {
			job_tell(c, j, RP_XMSG_FAIL, 0, (struct rp_span){0});
			output_answer(c, o, RP_Q_TOO_LARGE);
		} else if (!job_send(c, j, o)) {
			job_wait(c, j);
		}
	}
}

static bool is_to_wait(enum rp_qstatus status)
{
	return status == RP_Q_BUSY || status == RP_Q_QUEUE_DEPTH || status == RP_Q_QUEUE_BYTES ||
	       status == RP_Q_QUEUE_BUFFERS || status == RP_Q_LIMIT;
}

/* All that was out is back, some of it refused: from the first on they go again. */
static void job_again(struct rp_control *c, struct control_job *j)
{
	bool waits = j->is_to_wait;

	j->refused = j->is_to_wait = false;
	j->number = 0;
	if (waits && !rp_list_empty(&j->pending)) {
		j->probing =
			rp_list_entry(j->pending.next, struct control_output, node)->value.length >
			PROBE_BYTES;
		job_wait(c, j);
	}
	job_step(c, j);
}

static void output_answered(struct rp_control *c, struct control_job *j, struct control_output *o,
	enum rp_qstatus status, uint32_t count)
{
	bool probed = j->probing;

	j->probing = false;
	if (is_to_wait(status) && !j->over) {
		j->refused = j->is_to_wait = true;
		return;
	}
	if (probed && status == RP_Q_OK && !j->over)
		return;
	/* Of the last: it was in time, or something else has ended the request before. */
	if (o->final && ((status == RP_Q_OK && count == 0) || status == RP_Q_NOT_HOLDER))
		status = RP_Q_NOT_LIVE;
	if (status == RP_Q_OK) {
		j->backoff_ns = 0;
		c->counters.outputs++;
	} else {
		j->refused = true;
		c->counters.outputs_refused++;
	}
	output_answer(c, o, is_to_wait(status) ? RP_Q_NOT_LIVE : status);
}

void control_job_answered(struct rp_control *c, const struct rp_xmsg *m)
{
	struct control_output *o = output_find(c, m->token & ~RP_CONTROL_OUTPUT_FLAG);
	uint64_t request;
	struct control_job *j;

	rte_pktmbuf_free(m->m);
	if (!o || !o->out)
		return;
	j = o->job;
	request = j->by_request.key;
	output_back(j, o);
	output_answered(c, j, o, m->status, m->count);
	/* Whoever was told may have ended it. */
	if (job_find(c, request) != j)
		return;
	if (j->over) {
		if (j->out_count == 0)
			job_end(c, j, true);
	} else if (!j->refused) {
		job_step(c, j);
	} else if (j->out_count == 0) {
		job_again(c, j);
	}
}

void control_on_output_room(struct rp_control *c, const struct rp_xmsg *m)
{
	struct control_job *j = job_find(c, m->alloc_node);

	if (!j || rp_list_empty(&j->waits))
		return;
	rp_list_unlink(&j->waits);
	j->backoff_ns = 0;
	/* There is some for the first of them. */
	j->probing = false;
	job_step(c, j);
}

static void job_add(struct rp_control *c, struct control_job *j, struct rp_span value, bool final,
	uint64_t token)
{
	struct control_output *o = control_alloc(sizeof(*o));

	o->token = token;
	o->job = j;
	o->value = value;
	o->final = final;
	rp_hmap_insert(&c->outputs, &o->by_id, ++c->output_last);
	rp_list_push_back(&j->pending, &o->node);
	job_step(c, j);
}

static void output_refuse(struct rp_control *c, uint64_t token, enum rp_qstatus status)
{
	const struct rp_control_answer a = {.status = status};

	c->counters.outputs_refused++;
	c->ops->queue_answer(c->ctx, token, &a);
}

int control_job_put(struct rp_control *c, const struct rp_control_queue_op *op, uint64_t token)
{
	struct control_job *j = job_of_reply(c, op->name, op->hash, op->tail);
	struct rp_output out;

	if (!j)
		return 1;
	if (j->over) {
		output_refuse(c, token, RP_Q_NOT_LIVE);
		return 0;
	}
	if (j->user && op->user && j->user != op->user) {
		output_refuse(c, token, RP_Q_NOT_HOLDER);
		return 0;
	}
	rp_output_read(&out, op->value);
	job_add(c, j, op->value, out.final, token);
	return 0;
}

int rp_control_job_output(struct rp_control *c, const struct rp_control_output *o, uint64_t token,
	struct rp_repl_now now)
{
	struct control_job *j = job_find(c, o->request);

	c->now = now;
	if (!j || j->over || j->idx != o->idx || memcmp(j->uuid, o->uuid, RP_UUID_BYTES) != 0) {
		output_refuse(c, token, RP_Q_NOT_LIVE);
		return 0;
	}
	job_add(c, j, o->value, o->final, token);
	return 0;
}

uint64_t control_jobs_run(struct rp_control *c)
{
	uint64_t next_ns = RP_NEVER;
	struct rp_list *n, *next;

	rp_list_foreach_safe (n, next, &c->jobs_waiting) {
		struct control_job *j = rp_list_entry(n, struct control_job, waits);

		if (j->again_ns > c->now.ns) {
			next_ns = RP_MIN(next_ns, j->again_ns);
			continue;
		}
		rp_list_unlink(&j->waits);
		job_step(c, j);
	}
	return next_ns;
}

void control_job_free_all(struct rp_control *c)
{
	for (size_t i = 0; i < 1u << CONTROL_JOB_BITS; i++)
		while (c->jobs.chains[i]) {
			struct control_job *j =
				RP_CONTAINER_OF(c->jobs.chains[i], struct control_job, by_request);

			while (!rp_list_empty(&j->pending)) {
				struct control_output *o =
					rp_list_entry(j->pending.next, struct control_output, node);

				output_free(c, o);
			}
			job_free(c, j);
		}
}
