/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Commands /ringpost/... of DPDK's telemetry. DPDK calls them on threads of its own, which touch
 * nothing of the node: they wake the control thread, which gathers the metrics as for anybody else,
 * and wait for what it left. DPDK forgets no command, so that they outlive the node.
 */

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <base/assert.h>
#include <base/log.h>
#include <ctl/ctl_priv.h>
#include <telem/dpdk.h>

/** A control thread that does not come to it. */
#define WAIT_S 3

static struct {
	pthread_mutex_t one; /* asker at a time */
	pthread_mutex_t lock;
	pthread_cond_t there;
	/* Under `lock`. */
	struct rp_ctl *ctl; /* NULL: there is no node (any more) */
	bool answered;
	struct rp_metrics metrics;
	/* The asker sets it, the control thread clears it. */
	atomic_bool wanted;
	bool registered;
} telemetry = {
	.one = PTHREAD_MUTEX_INITIALIZER,
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.there = PTHREAD_COND_INITIALIZER,
};

/* ---- the control thread ---- */

static void telemetry_there(struct rp_ctl *ctl, void *who)
{
	struct rp_metrics m;

	rp_metrics_init(&m);
	ctl_metrics(ctl, &m);
	pthread_mutex_lock(&telemetry.lock);
	rp_metrics_free(&telemetry.metrics);
	telemetry.metrics = m;
	telemetry.answered = true;
	pthread_cond_signal(&telemetry.there);
	pthread_mutex_unlock(&telemetry.lock);
}

void ctl_telemetry_turn(struct rp_ctl *ctl)
{
	if (atomic_load_explicit(&telemetry.wanted, memory_order_relaxed) &&
		atomic_exchange(&telemetry.wanted, false))
		ctl_snapshot_wait(ctl, telemetry_there, NULL);
}

/* ---- an asker ---- */

/* 0 and the metrics, to be freed; or -errno. */
static int metrics_take(struct rp_metrics *m)
{
	struct timespec until;
	int rc = 0;

	pthread_mutex_lock(&telemetry.one);
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += WAIT_S;
	pthread_mutex_lock(&telemetry.lock);
	telemetry.answered = false;
	if (telemetry.ctl) {
		atomic_store(&telemetry.wanted, true);
		rp_loop_wake(telemetry.ctl->loop);
	}
	while (rc == 0 && telemetry.ctl && !telemetry.answered)
		rc = pthread_cond_timedwait(&telemetry.there, &telemetry.lock, &until);
	*m = telemetry.metrics;
	rp_metrics_init(&telemetry.metrics);
	rc = telemetry.answered ? 0 : -ETIMEDOUT;
	pthread_mutex_unlock(&telemetry.lock);
	pthread_mutex_unlock(&telemetry.one);
	if (rc)
		rp_metrics_free(m);
	return rc;
}

static int on_names(const char *cmd, const char *params, struct rte_tel_data *d)
{
	rte_tel_data_start_array(d, RTE_TEL_STRING_VAL);
	for (unsigned i = 0; i < RP_METRIC_COUNT && i < RTE_TEL_MAX_ARRAY_ENTRIES; i++)
		rte_tel_data_add_array_string(d, rp_metric_infos[i].name);
	return 0;
}

/* "PREFIX[,SKIP]", both may be missing. */
static int on_metrics(const char *cmd, const char *params, struct rte_tel_data *d)
{
	char prefix[96];
	const char *comma;
	struct rp_metrics m;
	int rc = metrics_take(&m);

	if (rc)
		return rc;
	params = params ? params : "";
	comma = strchr(params, ',');
	snprintf(prefix, sizeof(prefix), "%.*s", (int)strcspn(params, ","), params);
	rc = rp_telem_metrics(
		d, &m, prefix, NULL, comma ? (unsigned)strtoul(comma + 1, NULL, 10) : 0);
	rp_metrics_free(&m);
	return rc;
}

/* "SHARD[,PREFIX]". */
static int on_shard(const char *cmd, const char *params, struct rte_tel_data *d)
{
	const char *comma = params ? strchr(params, ',') : NULL;
	struct rp_metrics m;
	char label[32];
	int rc;

	if (!params || params[0] < '0' || params[0] > '9')
		return -EINVAL;
	rc = metrics_take(&m);
	if (rc)
		return rc;
	snprintf(label, sizeof(label), "shard=\"%lu\"", strtoul(params, NULL, 10));
	rc = rp_telem_metrics(d, &m, comma ? comma + 1 : "ringpost_shard_", label, 0);
	rp_metrics_free(&m);
	return rc;
}

static int on_drops(const char *cmd, const char *params, struct rte_tel_data *d)
{
	struct rp_metrics m;
	int rc = metrics_take(&m);

	if (rc == 0)
		rc = rp_telem_drops(d, &m);
	rp_metrics_free(&m);
	return rc;
}

static int on_info(const char *cmd, const char *params, struct rte_tel_data *d)
{
	char node[24] = "";
	unsigned shards = 0;

	pthread_mutex_lock(&telemetry.lock);
	if (telemetry.ctl) {
		snprintf(node, sizeof(node), "%" PRIu64, telemetry.ctl->config.self.node);
		shards = telemetry.ctl->config.self.shards;
	}
	pthread_mutex_unlock(&telemetry.lock);
	rte_tel_data_start_dict(d);
	rte_tel_data_add_dict_string(d, "node", node);
	rte_tel_data_add_dict_string(d, "version", RP_VERSION);
	return rte_tel_data_add_dict_u64(d, "shards", shards);
}

void ctl_telemetry_create(struct rp_ctl *ctl)
{
	static const struct {
		const char *command;
		telemetry_cb fn;
		const char *help;
	} commands[] = {
		{"/ringpost/info", on_info, "Returns node id, version and shards. No parameters"},
		{"/ringpost/names", on_names, "Returns the names of all metrics. No parameters"},
		{"/ringpost/metrics", on_metrics,
			"Returns metrics, summed over their labels. Parameters: prefix, how many to "
			"skip"},
		{"/ringpost/shard", on_shard,
			"Returns metrics of a shard. Parameters: shard, prefix"},
		{"/ringpost/drops", on_drops,
			"Returns what became of messages: in, delivered, passed on, held, reasons. No "
			"parameters"},
	};

	pthread_mutex_lock(&telemetry.lock);
	telemetry.ctl = ctl;
	pthread_mutex_unlock(&telemetry.lock);
	for (size_t i = 0; !telemetry.registered && i < RP_ARRAY_SIZE(commands); i++)
		if (rte_telemetry_register_cmd(
			    commands[i].command, commands[i].fn, commands[i].help) < 0)
			RP_LOG(RP_LOG_NODE, RP_LOG_ERROR, "telemetry: %s is not taken",
				commands[i].command);
	telemetry.registered = true;
}

void ctl_telemetry_destroy(struct rp_ctl *ctl)
{
	pthread_mutex_lock(&telemetry.lock);
	if (telemetry.ctl == ctl)
		telemetry.ctl = NULL;
	rp_metrics_free(&telemetry.metrics);
	pthread_cond_signal(&telemetry.there);
	pthread_mutex_unlock(&telemetry.lock);
}
