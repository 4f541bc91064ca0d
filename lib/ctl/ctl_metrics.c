/* SPDX-License-Identifier: Apache-2.0 */

/* Every metric of the node, gathered on the control thread. */

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <rte_mempool.h>

#include <base/assert.h>
#include <ctl/ctl_priv.h>

static uint64_t resident_bytes(void)
{
	unsigned long size, resident = 0;
	FILE *f = fopen("/proc/self/statm", "r");

	if (!f)
		return 0;
	if (fscanf(f, "%lu %lu", &size, &resident) != 2)
		resident = 0;
	fclose(f);
	return (uint64_t)resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

static uint64_t open_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	uint64_t n = 0;

	if (!d)
		return 0;
	while (readdir(d))
		n++;
	closedir(d);
	/* "." and "..", and the folder itself. */
	return n > 3 ? n - 3 : 0;
}

/* Seconds since the epoch. */
static uint64_t start_time(void)
{
	char text[1024] = "", *p;
	FILE *f = fopen("/proc/self/stat", "r");
	struct timespec wall, boot;
	unsigned long long ticks = 0;

	if (!f)
		return 0;
	if (!fgets(text, sizeof(text), f))
		text[0] = 0;
	fclose(f);
	/* The 22nd field; the 2nd is a name with anything in it but a last ')'. */
	p = strrchr(text, ')');
	for (int field = 2; p && field < 22; field++)
		p = strchr(p + 1, ' ');
	if (!p || sscanf(p, " %llu", &ticks) != 1)
		return 0;
	clock_gettime(CLOCK_REALTIME, &wall);
	clock_gettime(CLOCK_BOOTTIME, &boot);
	return (uint64_t)(wall.tv_sec - boot.tv_sec) + ticks / (uint64_t)sysconf(_SC_CLK_TCK);
}

static void metrics_process(struct rp_metrics *m)
{
	struct rusage usage = {0};
	struct rlimit fds = {0};

	getrusage(RUSAGE_SELF, &usage);
	getrlimit(RLIMIT_NOFILE, &fds);
	rp_metrics_add(m, RP_METRIC_process_memory, "", resident_bytes());
	rp_metrics_add(m, RP_METRIC_process_cpu, "",
		(uint64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000 +
			(uint64_t)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec));
	rp_metrics_add(m, RP_METRIC_process_open_fds, "", open_fds());
	rp_metrics_add(m, RP_METRIC_process_max_fds, "", (uint64_t)fds.rlim_cur);
	rp_metrics_add(m, RP_METRIC_process_start_time, "", start_time());
}

/* By etcd's names (spec/etcd-semantics.md 13). */
static void metrics_mvcc(struct rp_ctl *ctl, struct rp_metrics *m)
{
	struct rp_kv *kv = rp_control_kv(ctl->control);
	int64_t compacted = rp_kv_compacted_revision(kv);
	struct rp_kv_stats s;
	struct rp_etcd_stats e;

	rp_kv_stats_get(kv, &s);
	rp_etcd_stats_get(ctl->etcd, &e);
#define ADD(name, value) rp_metrics_add(m, RP_METRIC_##name, "", value)
	ADD(mvcc_put, s.puts);
	ADD(mvcc_delete, s.deletes);
	ADD(mvcc_range, s.ranges);
	ADD(mvcc_txn, s.txns);
	ADD(mvcc_db_total_size, s.bytes);
	ADD(mvcc_db_total_size_in_use, s.bytes_in_use);
	ADD(mvcc_keys, s.keys);
	ADD(mvcc_current_revision, (uint64_t)rp_kv_revision(kv));
	ADD(mvcc_compact_revision, compacted > 0 ? (uint64_t)compacted : 0);
	ADD(mvcc_watcher, s.watchers);
	ADD(mvcc_watch_stream, e.watch_streams);
	ADD(mvcc_slow_watcher, s.watchers_unsynced);
	ADD(mvcc_events, s.events_sent);
	ADD(mvcc_pending_events, s.watchers_blocked);
	ADD(lease_granted, s.leases_granted);
	ADD(lease_revoked, s.leases_revoked);
	ADD(lease_renewed, s.leases_renewed);
	ADD(lease_expired, rp_control_counters(ctl->control)->leases_expired);
	ADD(leases, s.leases);
	ADD(locks_waiting, e.contests);
	ADD(auth_tokens, e.auth_tokens);
	ADD(auth_authenticated, e.authenticated);
	ADD(auth_failed, e.auth_failed);
	ADD(auth_denied, e.auth_denied);
	ADD(auth_bad_tokens, e.auth_bad_tokens);
}

/* By the names of go-grpc-prometheus, which etcd's server is built with. */
static void metrics_method(
	void *ctx, const struct rp_grpc_method *method, const struct rp_grpc_method_stats *stats)
{
	static const char *const kinds[] = {[RP_GRPC_UNARY] = "unary",
		[RP_GRPC_CLIENT_STREAM] = "client_stream",
		[RP_GRPC_SERVER_STREAM] = "server_stream",
		[RP_GRPC_BIDI] = "bidi_stream"};
	static const char *const codes[RP_GRPC_CODE_COUNT] = {"OK", "Canceled", "Unknown",
		"InvalidArgument", "DeadlineExceeded", "NotFound", "AlreadyExists",
		"PermissionDenied", "ResourceExhausted", "FailedPrecondition", "Aborted",
		"OutOfRange", "Unimplemented", "Internal", "Unavailable", "DataLoss",
		"Unauthenticated"};
	const char *name = strrchr(method->path, '/') + 1;
	int service = (int)(name - method->path) - 2;
	struct rp_metrics *m = ctx;
	char labels[256], whole[320];

	if (stats->started == 0)
		return;
	snprintf(labels, sizeof(labels),
		"grpc_method=\"%s\",grpc_service=\"%.*s\",grpc_type=\"%s\"", name, service,
		method->path + 1, kinds[method->kind]);
	rp_metrics_add(m, RP_METRIC_method_started, labels, stats->started);
	rp_metrics_add(m, RP_METRIC_method_msg_received, labels, stats->messages_in);
	rp_metrics_add(m, RP_METRIC_method_msg_sent, labels, stats->messages_out);
	for (int i = 0; i < RP_GRPC_CODE_COUNT; i++) {
		if (stats->handled[i] == 0)
			continue;
		snprintf(whole, sizeof(whole), "grpc_code=\"%s\",%s", codes[i], labels);
		rp_metrics_add(m, RP_METRIC_method_handled, whole, stats->handled[i]);
	}
}

static void metrics_client(void *ctx, const char *version, bool stream, uint64_t requests)
{
	char text[128], labels[192];

	rp_metrics_label(text, sizeof(text), version);
	snprintf(labels, sizeof(labels), "client_api_version=\"%s\",type=\"%s\"", text,
		stream ? "stream" : "unary");
	rp_metrics_add(ctx, RP_METRIC_client_requests, labels, requests);
}

static void metrics_etcd(struct rp_ctl *ctl, struct rp_metrics *m)
{
	struct rp_grpc_server_stats g = rp_grpc_server_stats(ctl->server);
	uint64_t revision = (uint64_t)rp_kv_revision(rp_control_kv(ctl->control));
	bool ready = rp_repl_ready(rp_control_repl(ctl->control));
	char labels[64];

	metrics_process(m);
	metrics_mvcc(ctl, m);
	ADD(server_has_leader, ready);
	ADD(server_is_leader, ready);
	ADD(server_leader_changes, 0);
	ADD(server_committed, revision);
	ADD(server_applied, revision);
	ADD(server_pending, ctl->writes.count);
	ADD(server_failed, 0);
	ADD(server_quota, rp_kv_quota_bytes(rp_control_kv(ctl->control)));
	ADD(network_received, g.bytes_in);
	ADD(network_sent, g.bytes_out);
	snprintf(labels, sizeof(labels), "server_version=\"%s\"", RP_ETCD_VERSION);
	rp_metrics_add(m, RP_METRIC_server_version, labels, 1);
	snprintf(labels, sizeof(labels), "cluster_version=\"%.3s\"", RP_ETCD_VERSION);
	rp_metrics_add(m, RP_METRIC_cluster_version, labels, 1);
	snprintf(labels, sizeof(labels), "server_id=\"%" PRIx64 "\"", ctl->config.self.node);
	rp_metrics_add(m, RP_METRIC_server_id, labels, 1);
	rp_etcd_each_client(ctl->etcd, metrics_client, m);
	rp_grpc_server_each_method(ctl->server, metrics_method, m);
}

/* ---- ports ---- */

/* Of all queues, and where there are several, of each. */
static void metrics_queues(struct rp_metrics *m, uint32_t port, struct rp_port *p, uint16_t queues)
{
	for (uint16_t i = 0; i < queues; i++) {
		const struct rp_port_queue_counters *q =
			rp_port_queue_counters(rp_port_queue(p, i));
		char labels[48];

		snprintf(labels, sizeof(labels),
			queues > 1 ? "port=\"%u\",queue=\"%u\"" : "port=\"%u\"", port, i);
#define RP_PORT_QUEUE_COUNTER(field, text)                \
	rp_metrics_add(m, RP_METRIC_port_##field, labels, \
		atomic_load_explicit(&q->field, memory_order_relaxed));
#include <port/port_counters.def>
	}
}

/* Which offloads are in force, and how flows find their shard. */
static void metrics_offloads(struct rp_metrics *m, uint32_t port, const struct rp_port_info *info)
{
	static const struct {
		const char *name;
		uint32_t flag;
	} offloads[] = {
		{"tx_checksum", RP_PORT_TX_TCP_CKSUM},
		{"rx_checksum", RP_PORT_RX_CKSUM},
		{"tx_chains", RP_PORT_TX_CHAINS},
		{"rx_chains", RP_PORT_RX_CHAINS},
		{"tso", RP_PORT_TX_TSO},
		{"rss", RP_PORT_RSS},
	};

	for (unsigned i = 0; i < RP_ARRAY_SIZE(offloads); i++) {
		char labels[64];
		bool on = info->flags & offloads[i].flag;

		if (offloads[i].flag == RP_PORT_TX_TSO && info->flags & RP_PORT_TX_GSO)
			on = false;
		snprintf(labels, sizeof(labels), "port=\"%u\",offload=\"%s\"", port,
			offloads[i].name);
		rp_metrics_add(m, RP_METRIC_port_offload, labels, on);
	}
}

static void metrics_ports(struct rp_ctl *ctl, struct rp_metrics *m)
{
	for (uint32_t i = 0; i < ctl->config.port_count; i++) {
		struct rp_port *port = ctl->config.ports[i];
		const struct rp_port_counters *p = rp_port_counters(port);
		struct rp_port_info info;
		char labels[32];

		rp_port_info(port, &info);
		snprintf(labels, sizeof(labels), "port=\"%u\"", i);
		metrics_queues(m, i, port, info.queues);
#define RP_PORT_COUNTER(field, text)                      \
	rp_metrics_add(m, RP_METRIC_port_##field, labels, \
		atomic_load_explicit(&p->field, memory_order_relaxed));
#include <port/port_counters.def>
		rp_metrics_add(m, RP_METRIC_port_link_up, labels, rp_port_link_up(port));
		rp_metrics_add(m, RP_METRIC_port_queues, labels, info.queues);
		metrics_offloads(m, i, &info);
	}
}

static uint64_t peers_online(struct rp_ctl *ctl)
{
	struct rp_repl *repl = rp_control_repl(ctl->control);
	uint64_t n = 0;

	for (uint32_t i = 0; i < RP_PEERS_MAX; i++) {
		struct rp_repl_peer_info info;

		if (rp_repl_peer_get(repl, i, &info) && !info.self)
			n += info.state == RP_REPL_ONLINE;
	}
	return n;
}

static void metrics_control(struct rp_ctl *ctl, struct rp_metrics *m)
{
	const struct rp_control_counters *c = rp_control_counters(ctl->control);
	const struct rp_repl_stats *r = rp_repl_get_stats(rp_control_repl(ctl->control));
	struct rp_grpc_server_stats g = rp_grpc_server_stats(ctl->server);
	struct rp_kv_stats kv;
	struct rp_etcd_stats e;

	rp_kv_stats_get(rp_control_kv(ctl->control), &kv);
	rp_etcd_stats_get(ctl->etcd, &e);
#define X(field, text) rp_metrics_add(m, RP_METRIC_control_##field, "", c->field);
	RP_CONTROL_COUNTERS(X)
#undef X
#define X(field, text) rp_metrics_add(m, RP_METRIC_repl_##field, "", r->field);
	RP_REPL_COUNTERS(X)
#undef X
#define X(field, text) rp_metrics_add(m, RP_METRIC_grpc_##field, "", g.field);
	RP_GRPC_SERVER_STATS(X)
#undef X
	ADD(repl_peers_online, peers_online(ctl));
	ADD(kv_keys, kv.keys);
	ADD(kv_bytes, kv.bytes);
	ADD(kv_watchers, kv.watchers);
	ADD(etcd_watch_streams, e.watch_streams);
	ADD(etcd_consumers, e.consumers);
	ADD(etcd_queue_refused, e.queue_refused);
	ADD(etcd_malformed, e.malformed);
	ADD(etcd_policy_refused, e.policy_refused);
	ADD(etcd_peer_unproved, e.peer_unproved);
	ADD(process_runs, e.runs);
	ADD(process_runs_refused, e.runs_refused);
	ADD(process_runs_failed, e.runs_failed);
	ADD(process_run_outputs, e.run_outputs);
	ADD(process_workers, e.workers);
}

static void metrics_pool(struct rp_metrics *m, const struct rte_mempool *pool, const char *labels)
{
	rp_metrics_add(m, RP_METRIC_pool_free, labels, rte_mempool_avail_count(pool));
	rp_metrics_add(m, RP_METRIC_pool_size, labels, pool->size);
}

/* ---- rings ---- */

static const char *end_name(unsigned end, char text[16])
{
	if (end == RP_XCORE_CONTROL)
		return "control";
	snprintf(text, 16, "%u", end);
	return text;
}

static void metrics_ring(struct rp_ctl *ctl, struct rp_metrics *m, unsigned from, unsigned to)
{
	char a[16], b[16], labels[64];
	uint32_t used, size;

	rp_xcore_ring(ctl->config.xcore, from, to, &used, &size);
	if (size == 0)
		return;
	snprintf(labels, sizeof(labels), "from=\"%s\",to=\"%s\"", end_name(from, a),
		end_name(to, b));
	rp_metrics_add(m, RP_METRIC_ring_used, labels, used);
	rp_metrics_add(m, RP_METRIC_ring_size, labels, size);
}

/* Every pair of ends that has a ring. */
static void metrics_rings(struct rp_ctl *ctl, struct rp_metrics *m)
{
	unsigned ends = ctl->config.self.shards + 1;

	for (unsigned i = 0; i < ends; i++) {
		unsigned from = i + 1 < ends ? i : RP_XCORE_CONTROL;
		struct rp_xcore_stats s;
		char text[16], labels[32];

		for (unsigned k = 0; k < ends; k++)
			metrics_ring(ctl, m, from, k + 1 < ends ? k : RP_XCORE_CONTROL);
		rp_xcore_get_stats(rp_xcore_end(ctl->config.xcore, from), &s);
		snprintf(labels, sizeof(labels), "end=\"%s\"", end_name(from, text));
#define X(field, help) rp_metrics_add(m, RP_METRIC_xcore_##field, labels, s.field);
		RP_XCORE_COUNTERS(X)
#undef X
	}
}
#undef ADD

void ctl_metrics(struct rp_ctl *ctl, struct rp_metrics *m)
{
	for (uint32_t s = 0; s < ctl->config.self.shards; s++)
		rp_metrics_shard(m, s, &ctl->snapshots[s]);
	metrics_ports(ctl, m);
	metrics_control(ctl, m);
	metrics_etcd(ctl, m);
	ctl_bus_metrics(ctl, m);
	ctl_sinks_metrics(ctl, m);
	metrics_rings(ctl, m);
	metrics_pool(m, ctl->config.pool, "pool=\"queue\"");
	metrics_pool(m, ctl->config.frame_pool, "pool=\"frame\"");
	if (ctl->config.tap_pool)
		metrics_pool(m, ctl->config.tap_pool, "pool=\"tap\"");
}

/* ---- a port of its own ---- */

int ctl_metrics_listen(struct rp_ctl *ctl, char *error, size_t error_size)
{
	struct rp_grpc_server_config config = rp_grpc_server_config_default();
	const char *address = ctl->conf->metrics.listen;
	int rc;

	if (address[0] == '\0')
		return 0;
	ctl->metrics_server = rp_grpc_server_new(ctl->loop, &config);
	if (!ctl->metrics_server)
		return -errno;
	ctl->metrics_own_handler = ctl->metrics_handler;
	rc = rp_grpc_server_add_http(ctl->metrics_server, &ctl->metrics_own_handler, 1);
	if (rc == 0)
		rc = rp_grpc_server_listen(ctl->metrics_server, address, NULL, NULL);
	if (rc < 0)
		snprintf(error, error_size, "metrics.listen: cannot listen on %s: %s", address,
			strerror(-rc));
	return rc < 0 ? rc : 0;
}

void ctl_metrics_close(struct rp_ctl *ctl)
{
	rp_grpc_server_destroy(ctl->metrics_server);
}
