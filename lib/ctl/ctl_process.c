/* SPDX-License-Identifier: Apache-2.0 */

/* What ringpost.v1.Process asks of the node, and what the control engine answers it. */

#include <string.h>

#include <ctl/ctl_priv.h>
#include <etcd/process.h>

static void run_start(void *ctx, struct rp_span queue, struct rp_span value, uint64_t run)
{
	const struct rp_control_run r = {.queue = queue, .value = value};
	struct rp_ctl *ctl = ctx;

	if (!rp_repl_ready(rp_control_repl(ctl->control))) {
		rp_etcd_run_answer(ctl->etcd, run, RP_Q_NO_DISPATCHER, CTL_TEXT_NOT_READY);
		return;
	}
	rp_control_run_start(ctl->control, &r, run, ctl_now(ctl));
	ctl_kick(ctl);
}

static void run_read(void *ctx, uint64_t run, uint32_t bytes)
{
	struct rp_ctl *ctl = ctx;

	rp_control_run_read(ctl->control, run, bytes);
	ctl_kick(ctl);
}

static void run_cancel(void *ctx, uint64_t run)
{
	struct rp_ctl *ctl = ctx;

	rp_control_run_cancel(ctl->control, run);
	ctl_kick(ctl);
}

static void run_drop(void *ctx, uint64_t run)
{
	struct rp_ctl *ctl = ctx;

	rp_control_run_drop(ctl->control, run);
	ctl_kick(ctl);
}

static int job_output(void *ctx, const struct rp_etcd_job_output *o, uint64_t token)
{
	struct rp_ctl *ctl = ctx;
	struct rp_control_output output = {
		.queue = o->queue,
		.hash = o->hash,
		.idx = o->idx,
		.request = o->request,
		.value = o->value,
		.final = o->final,
	};

	memcpy(output.uuid, o->uuid, sizeof(output.uuid));
	ctl_kick(ctl);
	return rp_control_job_output(ctl->control, &output, token, ctl_now(ctl));
}

static void work_leave(void *ctx, uint64_t consumer)
{
	struct rp_ctl *ctl = ctx;

	rp_control_consumer_close(ctl->control, consumer, RP_QUEUE_CLOSE_LEFT);
	ctl_kick(ctl);
}

void ctl_run_answer(void *ctx, uint64_t run, enum rp_qstatus status, const char *message)
{
	struct rp_ctl *ctl = ctx;

	rp_etcd_run_answer(ctl->etcd, run, status, message);
}

void ctl_run_event(void *ctx, uint64_t run, const struct rp_control_run_event *event)
{
	static const enum rp_etcd_run_event_kind kinds[] = {
		[RP_CONTROL_RUN_OUTPUT] = RP_ETCD_RUN_OUTPUT,
		[RP_CONTROL_RUN_FINAL] = RP_ETCD_RUN_FINAL,
		[RP_CONTROL_RUN_FAILED] = RP_ETCD_RUN_FAILED,
	};
	const struct rp_etcd_run_event e = {
		.kind = kinds[event->kind],
		.value = event->value,
		.code = event->code,
		.reason = event->reason,
	};
	struct rp_ctl *ctl = ctx;

	rp_etcd_run_event(ctl->etcd, run, &e);
}

void ctl_process_backend(struct rp_ctl *ctl, struct rp_etcd_process_backend *backend)
{
	*backend = (struct rp_etcd_process_backend){
		.ctx = ctl,
		.run_start = run_start,
		.run_read = run_read,
		.run_cancel = run_cancel,
		.run_drop = run_drop,
		.job_output = job_output,
		.work_leave = work_leave,
	};
	rp_control_run_queue(ctl->control, backend->reply_to);
}
