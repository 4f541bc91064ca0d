/* SPDX-License-Identifier: Apache-2.0 */

/* The metrics that dashboards of etcd look for, by etcd's names (spec/etcd-semantics.md 13). */

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

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
	rp_metrics_add_as(
		m, "process_resident_memory_bytes", "resident memory", "", resident_bytes(), true);
	rp_metrics_add_micros(m, "process_cpu_seconds", "user and system time", "",
		(uint64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000 +
			(uint64_t)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec),
		false);
	rp_metrics_add_as(m, "process_open_fds", "open file descriptors", "", open_fds(), true);
	rp_metrics_add_as(
		m, "process_max_fds", "most file descriptors", "", (uint64_t)fds.rlim_cur, true);
	rp_metrics_add_as(
		m, "process_start_time_seconds", "start, since the epoch", "", start_time(), true);
}

static void metrics_mvcc(struct rp_ctl *ctl, struct rp_metrics *m)
{
	struct rp_kv *kv = rp_control_kv(ctl->control);
	int64_t compacted = rp_kv_compacted_revision(kv);
	struct rp_kv_stats s;
	struct rp_etcd_stats e;

	rp_kv_stats_get(kv, &s);
	rp_etcd_stats_get(ctl->etcd, &e);
#define COUNTER(name, text, value) rp_metrics_add_as(m, "etcd_" name, text, "", value, false)
#define GAUGE(name, text, value) rp_metrics_add_as(m, "etcd_" name, text, "", value, true)
	COUNTER("mvcc_put", "puts", s.puts);
	COUNTER("mvcc_delete", "deletes", s.deletes);
	COUNTER("mvcc_range", "ranges", s.ranges);
	COUNTER("mvcc_txn", "transactions", s.txns);
	GAUGE("mvcc_db_total_size_in_bytes", "bytes held", s.bytes);
	GAUGE("mvcc_db_total_size_in_use_in_bytes", "bytes of keys that exist", s.bytes_in_use);
	GAUGE("debugging_mvcc_keys_total", "keys", s.keys);
	GAUGE("debugging_mvcc_current_revision", "revision", (uint64_t)rp_kv_revision(kv));
	GAUGE("debugging_mvcc_compact_revision", "last compacted revision",
		compacted > 0 ? (uint64_t)compacted : 0);
	GAUGE("debugging_mvcc_watcher_total", "watchers", s.watchers);
	GAUGE("debugging_mvcc_watch_stream_total", "watch streams", e.watch_streams);
	GAUGE("debugging_mvcc_slow_watcher_total", "watchers that catch up", s.watchers_unsynced);
	COUNTER("debugging_mvcc_events", "events sent to watchers", s.events_sent);
	GAUGE("debugging_mvcc_pending_events_total", "watchers that wait for room",
		s.watchers_blocked);
	COUNTER("debugging_lease_granted", "leases granted here", s.leases_granted);
	COUNTER("debugging_lease_revoked", "leases revoked here, by time too", s.leases_revoked);
	COUNTER("debugging_lease_renewed", "keepalives answered here", s.leases_renewed);
	COUNTER("debugging_server_lease_expired", "leases whose time was over here",
		rp_control_counters(ctl->control)->leases_expired);
	rp_metrics_add_as(m, "ringpost_leases", "leases known", "", s.leases, true);
	rp_metrics_add_as(m, "ringpost_locks_waiting", "locks and campaigns that are open", "",
		e.contests, true);
	rp_metrics_add_as(
		m, "ringpost_auth_tokens", "tokens that are good", "", e.auth_tokens, true);
	rp_metrics_add_as(m, "ringpost_auth_authenticated", "passwords that were right", "",
		e.authenticated, false);
	rp_metrics_add_as(
		m, "ringpost_auth_failed", "passwords that were wrong", "", e.auth_failed, false);
	rp_metrics_add_as(m, "ringpost_auth_denied", "calls without the permission", "",
		e.auth_denied, false);
	rp_metrics_add_as(m, "ringpost_auth_bad_tokens", "calls with a token that is none", "",
		e.auth_bad_tokens, false);
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
	rp_metrics_add_as(
		m, "grpc_server_started", "calls that began", labels, stats->started, false);
	rp_metrics_add_as(m, "grpc_server_msg_received", "messages of clients", labels,
		stats->messages_in, false);
	rp_metrics_add_as(m, "grpc_server_msg_sent", "messages to clients", labels,
		stats->messages_out, false);
	for (int i = 0; i < RP_GRPC_CODE_COUNT; i++) {
		if (stats->handled[i] == 0)
			continue;
		snprintf(whole, sizeof(whole), "grpc_code=\"%s\",%s", codes[i], labels);
		rp_metrics_add_as(m, "grpc_server_handled", "calls that ended", whole,
			stats->handled[i], false);
	}
}

static void metrics_client(void *ctx, const char *version, bool stream, uint64_t requests)
{
	char labels[128];

	snprintf(labels, sizeof(labels), "client_api_version=\"%s\",type=\"%s\"", version,
		stream ? "stream" : "unary");
	rp_metrics_add_as(ctx, "etcd_server_client_requests",
		"calls by the version that clients say of themselves", labels, requests, false);
}

void ctl_metrics_etcd(struct rp_ctl *ctl, struct rp_metrics *m)
{
	struct rp_grpc_server_stats g = rp_grpc_server_stats(ctl->server);
	uint64_t revision = (uint64_t)rp_kv_revision(rp_control_kv(ctl->control));
	bool ready = rp_repl_ready(rp_control_repl(ctl->control));
	char labels[64];

	metrics_process(m);
	metrics_mvcc(ctl, m);
	GAUGE("server_has_leader", "1 while it serves", ready);
	GAUGE("server_is_leader", "1 while it serves: every node takes writes", ready);
	COUNTER("server_leader_changes_seen", "always 0: no node follows another", 0);
	COUNTER("server_proposals_committed", "revision", revision);
	COUNTER("server_proposals_applied", "revision", revision);
	GAUGE("server_proposals_pending", "writes that wait", ctl->writes.count);
	COUNTER("server_proposals_failed", "always 0", 0);
	GAUGE("server_quota_backend_bytes", "bound of what is held",
		rp_kv_quota_bytes(rp_control_kv(ctl->control)));
	COUNTER("network_client_grpc_received_bytes", "from clients", g.bytes_in);
	COUNTER("network_client_grpc_sent_bytes", "to clients", g.bytes_out);
	snprintf(labels, sizeof(labels), "server_version=\"%s\"", RP_ETCD_VERSION);
	rp_metrics_add_as(
		m, "etcd_server_version", "version that clients are told", labels, 1, true);
	snprintf(labels, sizeof(labels), "cluster_version=\"%.3s\"", RP_ETCD_VERSION);
	rp_metrics_add_as(m, "etcd_cluster_version", "version of the cluster", labels, 1, true);
	snprintf(labels, sizeof(labels), "server_id=\"%" PRIx64 "\"", ctl->config.self.node);
	rp_metrics_add_as(m, "etcd_server_id", "member id", labels, 1, true);
	rp_etcd_each_client(ctl->etcd, metrics_client, m);
	rp_grpc_server_each_method(ctl->server, metrics_method, m);
#undef COUNTER
#undef GAUGE
}
