/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A node that keeps what Run and Work ask of it, for their tests. */

#include <errno.h>

#include <process/envelope.h>
#include <ringpost/v1/process.pb-c.h>

#include "etcd_test_util.h"

#define RUN "/ringpost.v1.Process/Run"
#define WORK "/ringpost.v1.Process/Work"
#define ASKED_MAX 4096

/* ---- a node that keeps what it is asked ---- */

static struct {
	uint32_t starts, cancels, drops, outputs, leaves;
	uint64_t run, last_cancel, last_drop, last_leave; /* the latest */
	uint64_t runs[ASKED_MAX];
	uint64_t read_of;
	uint32_t read_bytes, reads;
	char queue[256], value[4096];
	enum rp_qstatus answer; /* at once, unless `hold` */
	bool hold, full;
	uint64_t tokens[ASKED_MAX];
	struct rp_etcd_job_output output;
	char said[4096];
	struct rig *rig;
} asked;

static inline void keep(char *to, size_t size, struct rp_span s)
{
	assert_true(s.length < size);
	memcpy(to, s.data, s.length);
	to[s.length] = '\0';
}

static void run_start(void *ctx, struct rp_span queue, struct rp_span value, uint64_t run)
{
	assert_true(run > 0 && run < 1ull << 56);
	asked.runs[asked.starts++ % ASKED_MAX] = asked.run = run;
	keep(asked.queue, sizeof(asked.queue), queue);
	keep(asked.value, sizeof(asked.value), value);
	if (!asked.hold)
		rp_etcd_run_answer(asked.rig->e, run, asked.answer, NULL);
}

static void run_read(void *ctx, uint64_t run, uint32_t bytes)
{
	asked.reads++;
	asked.read_of = run;
	asked.read_bytes += bytes;
}

static void run_cancel(void *ctx, uint64_t run)
{
	asked.cancels++;
	asked.last_cancel = run;
}

static void run_drop(void *ctx, uint64_t run)
{
	asked.drops++;
	asked.last_drop = run;
}

static int job_output(void *ctx, const struct rp_etcd_job_output *o, uint64_t token)
{
	if (asked.full)
		return -EAGAIN;
	asked.tokens[asked.outputs++ % ASKED_MAX] = token;
	asked.output = *o;
	if (o->value.length < sizeof(asked.said))
		keep(asked.said, sizeof(asked.said), o->value);
	return 0;
}

static void work_leave(void *ctx, uint64_t consumer)
{
	asked.leaves++;
	asked.last_leave = consumer;
	asked.rig->node.backend.consumer_close(
		&asked.rig->node, consumer, RP_ETCD_CONSUMER_CANCELLED);
}

static const struct rp_etcd_process_backend backend = {
	.reply_to = "runs",
	.run_start = run_start,
	.run_read = run_read,
	.run_cancel = run_cancel,
	.run_drop = run_drop,
	.job_output = job_output,
	.work_leave = work_leave,
};

static int setup(void **state)
{
	int rc;

	memset(&asked, 0, sizeof(asked));
	rig_process = &backend;
	rc = rig_setup(state);
	asked.rig = *state;
	return rc;
}
