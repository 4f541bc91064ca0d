/* SPDX-License-Identifier: Apache-2.0 */

/* ringpost.v1.Admin.Trace: what became of a message, step by step (queue/trace.h). */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ringpost/v1/admin.pb-c.h>

#include <base/assert.h>
#include <ctl/ctl_priv.h>
#include <route/key.h>

struct step_item {
	Ringpost__V1__TraceStep s;
	char uuid[RP_UUID_TEXT_BYTES + 1];
};

struct trace_item {
	Ringpost__V1__Trace t;
	struct step_item steps[RP_QUEUE_TRACE_STEPS];
	Ringpost__V1__TraceStep *list[RP_QUEUE_TRACE_STEPS];
	char tail[RP_TAIL_BYTES_MAX + 1];
};

static void step_fill(struct step_item *x, const struct rp_queue_trace_step *s)
{
	ringpost__v1__trace_step__init(&x->s);
	x->uuid[0] = '\0';
	if (!rp_uuid_is_zero(s->uuid)) {
		rp_uuid_format(s->uuid, x->uuid);
		x->uuid[RP_UUID_TEXT_BYTES] = '\0';
	}
	x->s.step = (char *)rp_queue_step_word(s->step);
	x->s.at_ns = s->at_ns;
	x->s.node = s->node;
	x->s.consumer = x->uuid;
	x->s.attempt = s->attempt;
	x->s.why = (char *)s->why;
}

static void trace_fill(struct trace_item *x, const struct rp_queue_trace *t)
{
	ringpost__v1__trace__init(&x->t);
	memcpy(x->tail, t->tail, t->tail_length);
	x->tail[t->tail_length] = '\0';
	x->t.serial = t->serial;
	x->t.idx = t->idx;
	x->t.tail = x->tail;
	x->t.size = t->bytes;
	x->t.age_ns = t->age_ns;
	x->t.ended = t->ended;
	x->t.omitted = t->omitted;
	for (uint32_t i = 0; i < t->step_count; i++) {
		step_fill(&x->steps[i], &t->steps[i]);
		x->list[i] = &x->steps[i].s;
	}
	x->t.steps = x->list;
	x->t.n_steps = t->step_count;
}

/* True: there is nothing to tell, and the caller was told why. */
static bool trace_refused(struct rp_ctl *ctl, const struct ctl_admin_call *a)
{
	const struct rp_engine_view *v = ctl->view;
	const struct rp_queue_info *q = &v->rows[0].queue;

	if (v->trace_count > 0)
		return false;
	if (v->row_count > 0 && !q->dispatching && q->dispatcher &&
		q->dispatcher != ctl->config.self.node)
		ctl_refuse_elsewhere(ctl, a->call, a->ask.name, q->dispatcher);
	else if (a->ask.trace.idx)
		rp_grpc_call_finish(a->call, RP_GRPC_NOT_FOUND,
			"the queue has no such message here, and it was not followed");
	else if (v->row_count == 0)
		rp_grpc_call_finish(a->call, RP_GRPC_NOT_FOUND, "this node knows no such queue");
	else if (a->ask.trace.next && !v->trace.above)
		rp_grpc_call_finish(a->call, RP_GRPC_RESOURCE_EXHAUSTED,
			"the messages of too many queues are waited for; ask again later");
	else
		return false;
	return true;
}

static void trace_reply(struct rp_ctl *ctl, void *who)
{
	struct ctl_admin_call *a = who;
	Ringpost__V1__TraceReply r = RINGPOST__V1__TRACE_REPLY__INIT;
	const struct rp_engine_view *v = ctl->view;
	struct trace_item *items;

	if (ctl_view_missing(ctl, a->call) || trace_refused(ctl, a)) {
		free(a);
		return;
	}
	items = calloc(v->trace_count + 1, sizeof(*items));
	r.traces = calloc(v->trace_count + 1, sizeof(*r.traces));
	RP_ASSERT(items && r.traces);
	for (uint32_t i = 0; i < v->trace_count; i++) {
		trace_fill(&items[i], &v->traces[i]);
		r.traces[i] = &items[i].t;
	}
	r.n_traces = v->trace_count;
	r.node = ctl->config.self.node;
	r.queue = a->ask.name;
	r.above = v->trace.above;
	ctl_admin_reply(a->call, &r.base);
	free(r.traces);
	free(items);
	free(a);
}

static void on_trace(struct rp_grpc_call *call, const uint8_t *data, size_t length, void *ctx)
{
	struct rp_ctl *ctl = ctx;
	Ringpost__V1__TraceRequest *q = ringpost__v1__trace_request__unpack(NULL, length, data);
	struct ctl_view_ask ask = {.wanted = true, .kind = RP_ENGINE_VIEW_TRACES, .exact = true};

	if (ctl_admin_malformed(call, q))
		return;
	if (!ctl_admin_admitted(call))
		goto out;
	if (!ctl_view_ask_queue(call, &ask, q->queue))
		goto out;
	ask.shard =
		rp_hash_pick(rp_queue_hash(ask.name, strlen(ask.name)), ctl->config.self.shards);
	ask.trace = (struct rp_engine_view_trace){
		.idx = q->idx, .above = q->above, .next = q->next, .for_ns = q->for_ns};
	ctl_admin_ask_view(ctl, call, &ask, trace_reply);
out:
	ringpost__v1__trace_request__free_unpacked(q, NULL);
}

const struct rp_grpc_call_ops ctl_trace_ops = {
	.on_message = on_trace, .on_cancel = ctl_admin_on_cancel};
