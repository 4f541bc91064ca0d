/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Drain (spec/queues.md, Dispatch): the shards hand their queues over and send their consumers
 * away; here new consumers are refused, health says that the node serves no more, and it is looked
 * at until nothing is left.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ringpost/v1/admin.pb-c.h>

#include <base/log.h>
#include <ctl/ctl_priv.h>
#include <gateway/health.h>

#define LOOK_NS (100 * RP_NS_PER_MS)
/* A node that ends by itself stays so long, for those who wait to be told. */
#define EXIT_AFTER_NS (1 * RP_NS_PER_S)

const char *ctl_state_name(struct rp_ctl *ctl)
{
	if (ctl->stop_phase > 0)
		return "stopping";
	if (ctl->draining)
		return ctl->drained ? "drained" : "draining";
	return rp_repl_ready(rp_control_repl(ctl->control)) ? "ready" : "not ready";
}

/* From the newest snapshots. */
static void count_left(struct rp_ctl *ctl, Ringpost__V1__DrainReply *r)
{
	struct rp_etcd_stats etcd;

	rp_etcd_stats_get(ctl->etcd, &etcd);
	r->node = ctl->config.self.node;
	r->consumers = (uint32_t)(etcd.consumers + etcd.workers + ctl->embed.consumers.count);
	for (uint32_t s = 0; s < ctl->config.self.shards; s++) {
		const struct rp_engine_snapshot *snap = &ctl->snapshots[s];

		r->dispatched += snap->queue.dispatched;
		r->messages += snap->queue.held;
	}
	for (uint32_t i = 0; i < RP_PEERS_MAX; i++) {
		struct rp_repl_peer_info info;

		if (rp_repl_peer_get(rp_control_repl(ctl->control), i, &info) && !info.self)
			r->takers += info.state == RP_REPL_ONLINE;
	}
}

static void looked(struct rp_ctl *ctl, void *who)
{
	Ringpost__V1__DrainReply left = RINGPOST__V1__DRAIN_REPLY__INIT;
	bool was = ctl->drained;

	count_left(ctl, &left);
	if (!ctl->draining || ctl->stop_phase > 0)
		return;
	ctl->drained = !ctl->drain_waits && left.dispatched == 0 && left.messages == 0 &&
		       left.consumers == 0;
	if (ctl->drained && !was) {
		ctl->drained_ns = rp_loop_now_ns(ctl->loop);
		RP_LOG(RP_LOG_NODE, RP_LOG_INFO, "drained: no queue, message or consumer is left");
	}
	if (ctl->drained && ctl->drain_exit &&
		rp_loop_now_ns(ctl->loop) - ctl->drained_ns >= EXIT_AFTER_NS)
		rp_ctl_request_stop(ctl);
	else
		rp_loop_timer_in(ctl->loop, &ctl->drain_timer, LOOK_NS);
}

static void on_drain_timer(void *ctx)
{
	struct rp_ctl *ctl = ctx;

	if (ctl->drain_waits && !ctl_sinks_busy(ctl)) {
		ctl->drain_waits = false;
		ctl_shard_limits_use(ctl, ctl->conf);
		ctl_kick(ctl);
	}
	ctl_snapshot_wait(ctl, looked, ctl);
}

void ctl_drain_setup(struct rp_ctl *ctl)
{
	rp_loop_timer_setup(&ctl->drain_timer, on_drain_timer, ctl);
}

void ctl_drain(struct rp_ctl *ctl, bool on, bool exit)
{
	ctl->drain_exit = on && (exit || ctl->drain_exit);
	if (ctl->draining == on)
		return;
	ctl->draining = on;
	ctl->drained = false;
	RP_LOG(RP_LOG_NODE, RP_LOG_INFO, on ? "draining" : "draining no more");
	rp_health_set(ctl->health, !on && rp_repl_ready(rp_control_repl(ctl->control)));
	rp_control_set_draining(ctl->control, on, ctl_now(ctl));
	ctl_sinks_pause(ctl, on);
	if (on)
		ctl_bus_end_all(ctl, RP_CONTROL_TEXT_DRAINING);
	ctl->drain_waits = on && ctl_sinks_busy(ctl);
	ctl_shard_limits_use(ctl, ctl->conf);
	if (on)
		rp_loop_timer_in(ctl->loop, &ctl->drain_timer, LOOK_NS);
	else
		rp_loop_timer_cancel(&ctl->drain_timer);
	ctl_kick(ctl);
}

static void drain_reply(struct rp_ctl *ctl, void *who)
{
	struct ctl_admin_call *a = who;
	Ringpost__V1__DrainReply r = RINGPOST__V1__DRAIN_REPLY__INIT;

	count_left(ctl, &r);
	r.state = (char *)ctl_state_name(ctl);
	ctl_admin_reply(a->call, &r.base);
	free(a);
}

static void on_drain(struct rp_grpc_call *call, const uint8_t *data, size_t length, void *ctx)
{
	struct rp_ctl *ctl = ctx;
	Ringpost__V1__DrainRequest *q = ringpost__v1__drain_request__unpack(NULL, length, data);

	if (ctl_admin_malformed(call, q))
		return;
	if (!ctl_admin_admitted(call))
		goto out;
	if (ctl->stop_phase > 0) {
		rp_grpc_call_finish(call, RP_GRPC_UNAVAILABLE, "ringpost: the node is stopping");
		goto out;
	}
	if (strcmp(q->act, "begin") == 0) {
		ctl_drain(ctl, true, q->exit);
	} else if (strcmp(q->act, "end") == 0) {
		ctl_drain(ctl, false, false);
	} else if (strcmp(q->act, "ask") != 0) {
		rp_grpc_call_finish(call, RP_GRPC_INVALID_ARGUMENT,
			"ringpost: act: expected begin, end or ask");
		goto out;
	}
	ctl_admin_ask(ctl, call, "", NULL, drain_reply);
out:
	ringpost__v1__drain_request__free_unpacked(q, NULL);
}

const struct rp_grpc_call_ops ctl_drain_ops = {
	.on_message = on_drain, .on_cancel = ctl_admin_on_cancel};
