/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Requests without keys: a Run's outputs go to one queue of its node, pinned there, whose sessions
 * hand them to the control thread instead of keeping them for a consumer.
 */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_mbuf.h>

#include <base/assert.h>
#include <base/mbuf.h>
#include <engine/control_process_priv.h>

void rp_control_run_queue(const struct rp_control *c, char name[32])
{
	snprintf(name, 32, "run:%016" PRIx64, c->self.node);
}

static struct control_run *run_find(struct rp_control *c, uint64_t run)
{
	struct rp_hmap_node *n = rp_hmap_find(&c->runs, run);

	return n ? RP_CONTAINER_OF(n, struct control_run, by_run) : NULL;
}

static struct control_run *run_of_request(struct rp_control *c, uint64_t request)
{
	struct rp_hmap_node *n = rp_hmap_find(&c->run_requests, request);

	return n ? RP_CONTAINER_OF(n, struct control_run, by_request) : NULL;
}

static void run_free(struct rp_control *c, struct control_run *r)
{
	rp_hmap_remove(&c->runs, &r->by_run);
	if (r->live)
		rp_hmap_remove(&c->run_requests, &r->by_request);
	free(r);
}

/* The queue is this node's, before the first output comes for it. */
static bool run_queue_ready(struct rp_control *c)
{
	char name[32];
	struct rp_span part = {(const uint8_t *)name, 0};
	struct rp_xmsg m = {.type = RP_XMSG_PIN};

	if (c->run_pinned)
		return true;
	rp_control_run_queue(c, name);
	part.length = strlen(name);
	m.name_length = (uint16_t)part.length;
	m.m = control_chain(c, &part, 1);
	if (!m.m)
		return false;
	control_send(c, rp_hash_pick(rp_queue_hash(part.data, part.length), c->shards), &m);
	/* A queue that nobody uses ends: it is pinned anew when no run has lived for a while. */
	c->run_pinned = true;
	return true;
}

void rp_control_run_start(
	struct rp_control *c, const struct rp_control_run *run, uint64_t id, struct rp_repl_now now)
{
	struct control_run *r;
	struct rp_control_queue_op op = {.type = RP_XMSG_PUT};
	char tail[24];

	c->now = now;
	RP_ASSERT(id != 0 && id < RP_CONTROL_OUTPUT_FLAG && !run_find(c, id));
	if (run->queue.length == 0 || run->queue.length > RP_NAME_BYTES_MAX ||
		memchr(run->queue.data, '/', run->queue.length)) {
		c->ops->run_answer(c->ctx, id, RP_Q_INVALID, "queue key: no name of a queue");
		return;
	}
	if (c->runs.count == 0)
		c->run_pinned = false;
	if (!run_queue_ready(c)) {
		c->ops->run_answer(c->ctx, id, RP_Q_QUEUE_BUFFERS, NULL);
		return;
	}
	snprintf(tail, sizeof(tail), "%" PRIx64, ++c->run_tail_last);
	r = control_alloc(sizeof(*r) + run->queue.length + strlen(tail) + run->value.length);
	memcpy(r->bytes, run->queue.data, run->queue.length);
	r->name = (struct rp_span){r->bytes, run->queue.length};
	r->tail = (struct rp_span){r->bytes + r->name.length, strlen(tail)};
	memcpy(r->bytes + r->name.length, tail, r->tail.length);
	op.value = (struct rp_span){r->tail.data + r->tail.length, run->value.length};
	memcpy(r->bytes + r->name.length + r->tail.length, run->value.data, run->value.length);
	r->hash = op.hash = rp_queue_hash(r->name.data, r->name.length);
	op.name = r->name;
	op.tail = r->tail;
	rp_hmap_insert(&c->runs, &r->by_run, id);
	control_request_start(c, &op, id);
}

void control_run_answered(struct rp_control *c, uint64_t id, uint64_t request,
	enum rp_qstatus status, const char *message)
{
	struct control_run *r = run_find(c, id);
	bool dropped = r && r->dropped;

	if (!r)
		return;
	if (status != RP_Q_OK) {
		run_free(c, r);
	} else if (!r->live) {
		r->live = true;
		rp_hmap_insert(&c->run_requests, &r->by_request, request);
	}
	if (!dropped)
		c->ops->run_answer(c->ctx, id, status, message);
	else if (status == RP_Q_OK)
		control_cancel(c, r->name, r->hash, r->tail, request);
}

static void run_event_out(
	struct rp_control *c, struct control_run *r, struct rp_span value, bool end, bool lost)
{
	struct rp_control_run_event e = {.kind = RP_CONTROL_RUN_OUTPUT, .value = value};
	uint64_t id = r->by_run.key;
	struct rp_output out = {.code = RP_PROCESS_INTERNAL};
	bool dropped = r->dropped;

	if (end) {
		if (!lost)
			rp_output_read(&out, value);
		e.kind = lost || out.failed ? RP_CONTROL_RUN_FAILED : RP_CONTROL_RUN_FINAL;
		e.code = out.code;
		e.reason = lost ? "the node that the request came in at gives its queues away"
				: out.reason;
		run_free(c, r);
	}
	if (!dropped)
		c->ops->run_event(c->ctx, id, &e);
}

void control_on_run_event(struct rp_control *c, const struct rp_xmsg *m)
{
	struct control_run *r = run_of_request(c, m->idx);
	size_t head = (size_t)m->tail_length + m->value, length = 0;
	uint8_t *bytes = NULL;

	if (r && m->m) {
		length = m->m->pkt_len - head;
		bytes = control_alloc(length + 1);
		rp_mbuf_copy_out(m->m, head, bytes, length);
	}
	rte_pktmbuf_free(m->m);
	if (r)
		run_event_out(c, r, (struct rp_span){bytes, length}, m->flags & 1, bytes == NULL);
	free(bytes);
}

void rp_control_run_read(struct rp_control *c, uint64_t id, uint32_t bytes)
{
	struct control_run *r = run_find(c, id);
	char queue[32];
	struct rp_span parts[2];
	struct rp_xmsg m = {.type = RP_XMSG_RUN_READ, .count = bytes};

	if (!r)
		return;
	rp_control_run_queue(c, queue);
	parts[0] = (struct rp_span){(const uint8_t *)queue, strlen(queue)};
	parts[1] = r->tail;
	m.name_length = (uint16_t)parts[0].length;
	/* The session counts tails as well, which are short. */
	m.count += (uint32_t)r->tail.length;
	m.m = control_chain(c, parts, 2);
	if (m.m)
		control_send(c,
			rp_hash_pick(rp_queue_hash(parts[0].data, parts[0].length), c->shards), &m);
}

void rp_control_run_cancel(struct rp_control *c, uint64_t id)
{
	struct control_run *r = run_find(c, id);

	if (r && r->live)
		control_cancel(c, r->name, r->hash, r->tail, r->by_request.key);
}

void rp_control_run_drop(struct rp_control *c, uint64_t id)
{
	struct control_run *r = run_find(c, id);

	if (!r)
		return;
	rp_control_run_cancel(c, id);
	r->dropped = true;
}

void control_run_free_all(struct rp_control *c)
{
	for (size_t i = 0; i < 1u << CONTROL_REQUEST_BITS; i++)
		while (c->runs.chains[i])
			run_free(c, RP_CONTAINER_OF(c->runs.chains[i], struct control_run, by_run));
}
