/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A new configuration in a running node (spec/cluster.md, Configuration). Everything that can fail
 * comes first: file, checks, certificates. What follows cannot, so a reload is done or not done.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <base/assert.h>
#include <base/log.h>
#include <ctl/ctl_priv.h>
#include <gateway/gateway.h>

/* ---- use ---- */

void ctl_shard_limits_use(struct rp_ctl *ctl, const struct rp_conf *c)
{
	struct rp_control_limits limits = {
		.message_bytes = (uint32_t)rp_conf_message_bytes(c),
		.queue_depth = c->limits.queue_depth,
		.queue_bytes = c->limits.queue_bytes,
		.resume_ns = c->queues.resume_ms * RP_NS_PER_MS,
		.idle_ns = c->queues.idle_s * RP_NS_PER_S,
		.spin_ns = c->shards.idle_spin_us * RP_NS_PER_US,
		.unary_fallback = c->deliver.unary_fallback,
		/* Sinks acknowledge what they have written before their queues move. */
		.draining = ctl->draining && !ctl->drain_waits,
		.auto_compaction_ns = c->kv.auto_compaction_s * RP_NS_PER_S,
	};

	rp_control_set_limits(ctl->control, &limits);
}

static void use_limits(struct rp_ctl *ctl, const struct rp_conf *c)
{
	uint32_t message_bytes = (uint32_t)rp_conf_message_bytes(c);
	struct rp_repl_times times = {
		.ack_ms = c->repl.ack_ms,
		.sync_s = c->repl.sync_s,
		.tombstone_s = c->repl.tombstone_s,
		.tombstone_max_s = c->repl.tombstone_max_s,
		.max_skew_s = c->repl.max_skew_s,
	};

	ctl_shard_limits_use(ctl, c);
	rp_repl_set_times(rp_control_repl(ctl->control), &times, ctl_now(ctl));
	rp_kv_set_limits(rp_control_kv(ctl->control), c->quota_backend_bytes, c->max_txn_ops);
	rp_etcd_set_limits(ctl->etcd, message_bytes);
	rp_grpc_server_set_limits(ctl->server, c->limits.connections,
		c->limits.streams_per_connection, message_bytes + CTL_MESSAGE_OVERHEAD);
	rp_gateway_set_calls_max(ctl->gateway, c->limits.streams_per_connection);
}

static void use_names(struct rp_ctl *ctl, const struct rp_conf *c)
{
	struct rp_node_record *own = &ctl->config.self;

	if (strncmp(own->name, c->name, sizeof(own->name) - 1) == 0 &&
		strncmp(own->zone, c->zone, sizeof(own->zone) - 1) == 0)
		return;
	snprintf(own->name, sizeof(own->name), "%s", c->name);
	snprintf(own->zone, sizeof(own->zone), "%s", c->zone);
	rp_control_set_names(ctl->control, own->name, own->zone, ctl_now(ctl));
}

/* take: `next`, which is in force from now on. What reads ctl->conf when it needs it (a dial, the
 * end) needs no word here. */
static void use(struct rp_ctl *ctl, struct rp_conf *next)
{
	unsigned failed = ctl_peers_change(ctl, ctl->conf, next);

	if (failed > 0)
		RP_LOG(RP_LOG_CONF, RP_LOG_ERROR,
			"%u peers found no room among those that were added as members", failed);
	ctl_policy_use(ctl, next);
	ctl_queue_policies_use(ctl, next);
	use_limits(ctl, next);
	ctl_sinks_use(ctl, next);
	ctl_bus_use(ctl, next);
	use_names(ctl, next);
	rp_etcd_set_term(ctl->etcd, next->term + ctl->terms_more);
	rp_etcd_set_token_ttl(ctl->etcd, next->auth.token_ttl_s * RP_NS_PER_S);
	ctl->conf = next;
	ctl_reload_destroy(ctl);
	ctl->conf_loaded = next;
	if (ctl->config.reconfigured)
		ctl->config.reconfigured(next);
	if (ctl->config.events.reconfigured)
		ctl->config.events.reconfigured(ctl->config.events.ctx);
	ctl_kick(ctl);
}

/* ---- read ---- */

/* 0 with the certificates, and the secrets in force; or an error in the report. */
static int read_all(struct rp_ctl *ctl, struct rp_conf *next, struct ctl_tls *tls,
	struct rp_xmsg_secrets *secrets, struct ctl_reload *r)
{
	char error[256] = "";
	int rc;

	if (!ctl->config.source.argv) {
		rp_conf_report_error(
			&r->report, "", "this node was not started from a file or flags");
		return -EINVAL;
	}
	rc = rp_conf_reload(ctl->conf, &ctl->config.source, next, &r->report, &r->changes);
	if (rc == -ENOMEM)
		rp_conf_report_error(&r->report, "", "out of memory");
	if (rc != 0)
		return rc;
	rc = ctl_tls_load(next, ctl->config.self.shards, tls, error, sizeof(error));
	if (rc != 0)
		rp_conf_report_error(&r->report, "tls", error[0] ? error : strerror(-rc));
	if (ctl_secrets_load(next, secrets, &r->report) != 0 && rc == 0) {
		ctl_tls_free(tls);
		rc = -EINVAL;
	}
	if (rc != 0)
		return rc;
	/* The last that can fail, for it is in force at once. */
	rc = ctl_secrets_use(ctl, next, secrets, &r->changes);
	if (rc != 0) {
		rp_conf_report_error(&r->report, "links.secret_file",
			"no buffers to tell the shards with, try again");
		ctl_tls_free(tls);
	}
	return rc;
}

static void log_messages(const struct rp_conf_report *report)
{
	for (unsigned i = 0; i < report->count; i++) {
		char line[900];
		bool error = report->messages[i].severity == RP_CONF_ERROR;

		rp_conf_message_format(&report->messages[i], line, sizeof(line));
		RP_LOG(RP_LOG_CONF, error ? RP_LOG_ERROR : RP_LOG_WARNING, "%s", line);
	}
}

static void log_outcome(const struct ctl_reload *r)
{
	for (unsigned i = 0; r->done && i < r->changes.count; i++) {
		const struct rp_conf_change *c = &r->changes.items[i];

		if (c->fixed)
			RP_LOG(RP_LOG_CONF, RP_LOG_WARNING,
				"%s: %.200s stays, %.200s wants a restart", c->path, c->was, c->is);
		else
			RP_LOG(RP_LOG_CONF, RP_LOG_INFO, "%s: %.200s -> %.200s", c->path, c->was,
				c->is);
	}
	if (r->done)
		RP_LOG(RP_LOG_CONF, RP_LOG_INFO,
			"configuration read again: %u changed, %u want a restart, %u as before",
			r->changes.live, r->changes.fixed, r->changes.same);
	else
		RP_LOG(RP_LOG_CONF, RP_LOG_ERROR,
			"configuration read again: %u errors, nothing has changed",
			r->report.errors);
}

void ctl_reload(struct rp_ctl *ctl, struct ctl_reload *r)
{
	struct rp_conf *next = calloc(1, sizeof(*next));
	struct rp_xmsg_secrets secrets = {0};
	struct ctl_tls tls = {0};

	RP_ASSERT(next != NULL);
	*r = (struct ctl_reload){0};
	r->done = read_all(ctl, next, &tls, &secrets, r) == 0;
	explicit_bzero(&secrets, sizeof(secrets));
	log_messages(&r->report);
	if (r->done) {
		ctl_tls_use(ctl, &tls);
		use(ctl, next);
	} else {
		rp_conf_free(next);
		free(next);
	}
	log_outcome(r);
}

void ctl_reload_free(struct ctl_reload *r)
{
	rp_conf_report_free(&r->report);
	rp_conf_changes_free(&r->changes);
}

void ctl_reload_destroy(struct rp_ctl *ctl)
{
	if (!ctl->conf_loaded)
		return;
	rp_conf_free(ctl->conf_loaded);
	free(ctl->conf_loaded);
	ctl->conf_loaded = NULL;
}
