/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Commands /ringpost/... of DPDK's telemetry. DPDK calls them on threads of its own, which touch
 * nothing of the node: they wake the control thread, which gathers the metrics, or the connections,
 * as for anybody else, and wait for what it left. DPDK forgets no command, so that they outlive the
 * node.
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

enum wanted { WANTED_NONE, WANTED_METRICS, WANTED_CONNECTIONS };

/** What an asker takes with it, and frees: of one of the two kinds. */
struct answer {
	struct rp_metrics metrics;
	struct rp_telem_connection *connections;
	uint32_t connection_count;
};

static struct {
	pthread_mutex_t one; /* asker at a time */
	pthread_mutex_t lock;
	pthread_cond_t there;
	/* Under `lock`. */
	struct rp_ctl *ctl; /* NULL: there is no node (any more) */
	enum wanted answered;
	struct answer answer;
	/* enum wanted: the asker sets it, the control thread clears it. */
	atomic_int wanted;
	bool registered;
} telemetry = {
	.one = PTHREAD_MUTEX_INITIALIZER,
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.there = PTHREAD_COND_INITIALIZER,
};

static void answer_free(struct answer *a)
{
	rp_metrics_free(&a->metrics);
	rp_metrics_init(&a->metrics);
	free(a->connections);
	a->connections = NULL;
	a->connection_count = 0;
}

/* ---- the control thread ---- */

/* Takes the answer. */
static void telemetry_answer(enum wanted what, const struct answer *a)
{
	pthread_mutex_lock(&telemetry.lock);
	answer_free(&telemetry.answer);
	telemetry.answer = *a;
	telemetry.answered = what;
	pthread_cond_signal(&telemetry.there);
	pthread_mutex_unlock(&telemetry.lock);
}

static void metrics_there(struct rp_ctl *ctl, void *who)
{
	struct answer a = {.connections = NULL};

	rp_metrics_init(&a.metrics);
	ctl_metrics(ctl, &a.metrics);
	telemetry_answer(WANTED_METRICS, &a);
}

static void connections_there(struct rp_ctl *ctl, void *who)
{
	struct answer a = {.connections = NULL};
	uint32_t most = 0;

	rp_metrics_init(&a.metrics);
	for (uint32_t s = 0; s < ctl->config.self.shards; s++)
		most += ctl->snapshots[s].connection_count;
	a.connections = calloc(most + 1, sizeof(*a.connections));
	RP_ASSERT(a.connections);
	for (uint32_t s = 0; s < ctl->config.self.shards; s++) {
		const struct rp_engine_snapshot *snap = &ctl->snapshots[s];

		for (uint32_t i = 0; i < snap->connection_count; i++)
			a.connections[a.connection_count++] = (struct rp_telem_connection){
				.shard = s,
				.port = snap->connections[i].port,
				.now_ns = snap->now_ns,
				.info = snap->connections[i].info,
			};
	}
	telemetry_answer(WANTED_CONNECTIONS, &a);
}

void ctl_telemetry_turn(struct rp_ctl *ctl)
{
	if (atomic_load_explicit(&telemetry.wanted, memory_order_relaxed) == WANTED_NONE)
		return;
	switch ((enum wanted)atomic_exchange(&telemetry.wanted, WANTED_NONE)) {
	case WANTED_NONE:
		break;
	case WANTED_METRICS:
		ctl_snapshot_wait(ctl, metrics_there, NULL);
		break;
	case WANTED_CONNECTIONS:
		ctl_snapshot_wait(ctl, connections_there, NULL);
		break;
	}
}

/* ---- an asker ---- */

/* 0 and the answer, to be freed; or -errno. */
static int answer_take(enum wanted what, struct answer *a)
{
	struct timespec until;
	int rc = 0;

	pthread_mutex_lock(&telemetry.one);
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += WAIT_S;
	pthread_mutex_lock(&telemetry.lock);
	telemetry.answered = WANTED_NONE;
	if (telemetry.ctl) {
		atomic_store(&telemetry.wanted, (int)what);
		rp_loop_wake(telemetry.ctl->loop);
	}
	/* What the asker before gave up may come late, and be of the other kind. */
	while (rc == 0 && telemetry.ctl && telemetry.answered != what)
		rc = pthread_cond_timedwait(&telemetry.there, &telemetry.lock, &until);
	*a = telemetry.answer;
	telemetry.answer = (struct answer){.connections = NULL};
	rp_metrics_init(&telemetry.answer.metrics);
	rc = telemetry.answered == what ? 0 : -ETIMEDOUT;
	pthread_mutex_unlock(&telemetry.lock);
	pthread_mutex_unlock(&telemetry.one);
	if (rc)
		answer_free(a);
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
	struct answer a;
	int rc = answer_take(WANTED_METRICS, &a);

	if (rc)
		return rc;
	params = params ? params : "";
	comma = strchr(params, ',');
	snprintf(prefix, sizeof(prefix), "%.*s", (int)strcspn(params, ","), params);
	rc = rp_telem_metrics(
		d, &a.metrics, prefix, NULL, comma ? (unsigned)strtoul(comma + 1, NULL, 10) : 0);
	answer_free(&a);
	return rc;
}

/* "SHARD[,PREFIX]". */
static int on_shard(const char *cmd, const char *params, struct rte_tel_data *d)
{
	const char *comma = params ? strchr(params, ',') : NULL;
	struct answer a;
	char label[32];
	int rc;

	if (!params || params[0] < '0' || params[0] > '9')
		return -EINVAL;
	rc = answer_take(WANTED_METRICS, &a);
	if (rc)
		return rc;
	snprintf(label, sizeof(label), "shard=\"%lu\"", strtoul(params, NULL, 10));
	rc = rp_telem_metrics(d, &a.metrics, comma ? comma + 1 : "ringpost_shard_", label, 0);
	answer_free(&a);
	return rc;
}

static int on_drops(const char *cmd, const char *params, struct rte_tel_data *d)
{
	struct answer a;
	int rc = answer_take(WANTED_METRICS, &a);

	if (rc)
		return rc;
	rc = rp_telem_drops(d, &a.metrics);
	answer_free(&a);
	return rc;
}

/* "[ENDPOINT[,NUMBER]]": the list, or one of those that the endpoint fits, from 0 on. */
static int on_tcp(const char *cmd, const char *params, struct rte_tel_data *d)
{
	const char *comma = params ? strchr(params, ',') : NULL;
	unsigned long wanted = comma ? strtoul(comma + 1, NULL, 10) : 0;
	const struct rp_telem_connection *found = NULL;
	char text[CTL_ENDPOINT_TEXT_SIZE];
	struct rp_endpoint endpoint;
	uint32_t fit = 0;
	struct answer a;
	int rc;

	snprintf(text, sizeof(text), "%.*s", params ? (int)strcspn(params, ",") : 0,
		params ? params : "");
	if (ctl_endpoint_filter(&endpoint, text) != 0)
		return -EINVAL;
	rc = answer_take(WANTED_CONNECTIONS, &a);
	if (rc)
		return rc;
	if (text[0] == '\0') {
		rc = rp_telem_connections(d, a.connections, a.connection_count);
	} else {
		for (uint32_t i = 0; i < a.connection_count; i++) {
			const struct rp_telem_connection *c = &a.connections[i];

			if ((ctl_endpoint_fits(&endpoint, &c->info.local) ||
				    ctl_endpoint_fits(&endpoint, &c->info.peer)) &&
				fit++ == wanted)
				found = c;
		}
		rc = rp_telem_connection(d, found, fit);
	}
	answer_free(&a);
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
		{"/ringpost/tcp", on_tcp,
			"Returns the connections of the links, or one. Parameters: address[:port] of "
			"an end, number among those it fits"},
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
	answer_free(&telemetry.answer);
	pthread_cond_signal(&telemetry.there);
	pthread_mutex_unlock(&telemetry.lock);
}
