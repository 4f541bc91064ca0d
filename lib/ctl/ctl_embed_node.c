/* SPDX-License-Identifier: Apache-2.0 */

/* The node itself, for a program that has it inside: reload, restart, pause, drain, pairs of
 * queues. */

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <base/assert.h>
#include <base/log.h>
#include <ctl/ctl_priv.h>
#include <ctl/embed.h>
#include <route/key.h>

#define PAUSE_STEP_MS 10

void rp_ctl_on_wake(struct rp_ctl *ctl, void (*fn)(void *ctx), void *ctx)
{
	ctl->wake_fn = fn;
	ctl->wake_ctx = ctx;
}

void rp_ctl_wake(struct rp_ctl *ctl)
{
	atomic_store(&ctl->woken, true);
	rp_loop_wake(ctl->loop);
}

bool rp_ctl_reload(struct rp_ctl *ctl, char *error, size_t error_size)
{
	struct ctl_reload r;
	size_t at = 0;
	bool done;

	ctl_reload(ctl, &r);
	error[0] = '\0';
	for (unsigned i = 0; !r.done && i < r.report.count && at < error_size; i++) {
		char line[1024];

		rp_conf_message_format(&r.report.messages[i], line, sizeof(line));
		at += (size_t)snprintf(error + at, error_size - at, "%s\n", line);
	}
	done = r.done;
	ctl_reload_free(&r);
	return done;
}

void rp_ctl_restart(struct rp_ctl *ctl)
{
	ctl->terms_more++;
	rp_etcd_set_term(ctl->etcd, ctl->conf->term + ctl->terms_more);
	RP_LOG(RP_LOG_NODE, RP_LOG_INFO, "restart: term %" PRIu64 ", all peers anew",
		(uint64_t)(ctl->conf->term + ctl->terms_more));
	ctl_peers_restart(ctl);
}

void rp_ctl_pause(struct rp_ctl *ctl, uint64_t ns)
{
	uint64_t end_ns = rp_loop_clock_ns() + ns;

	while (rp_loop_clock_ns() < end_ns && !atomic_load(&ctl->stop_requested))
		poll(NULL, 0, PAUSE_STEP_MS);
}

void rp_ctl_drain(struct rp_ctl *ctl, bool on)
{
	ctl_drain(ctl, on, false);
}

/* ---- metrics ---- */

struct metrics_wait {
	void (*fn)(void *ctx, const struct rp_metrics *m);
	void *ctx;
};

static void metrics_there(struct rp_ctl *ctl, void *who)
{
	struct metrics_wait w = *(struct metrics_wait *)who;
	struct rp_metrics m;

	free(who);
	rp_metrics_init(&m);
	ctl_metrics(ctl, &m);
	w.fn(w.ctx, &m);
	rp_metrics_free(&m);
}

void rp_ctl_metrics(
	struct rp_ctl *ctl, void (*fn)(void *ctx, const struct rp_metrics *m), void *ctx)
{
	struct metrics_wait *w = calloc(1, sizeof(*w));

	RP_ASSERT(w != NULL);
	w->fn = fn;
	w->ctx = ctx;
	ctl_snapshot_wait(ctl, metrics_there, w);
}

/* ---- pairs of queues ---- */

static bool name_ok(struct rp_span name)
{
	return name.length > 0 && name.length <= RP_NAME_BYTES_MAX &&
	       !memchr(name.data, '/', name.length) && !memchr(name.data, ';', name.length);
}

int rp_ctl_queue_link(struct rp_ctl *ctl, struct rp_span request, struct rp_span reply)
{
	int rc;

	if (!name_ok(request) || !name_ok(reply))
		return -EINVAL;
	rc = rp_control_queue_link(ctl->control, request, reply, ctl_now(ctl));
	ctl_kick(ctl);
	return rc;
}

uint64_t rp_ctl_queue_dispatcher(struct rp_ctl *ctl, struct rp_span queue)
{
	struct rp_dispatcher_record r;
	struct rp_span value = ctl_dispatcher_record(ctl, queue);

	return rp_route_dispatcher_parse(&r, value.data, value.length) == 0 ? r.node : 0;
}
