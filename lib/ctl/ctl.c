/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>

#include <rte_mbuf.h>

#include <base/assert.h>
#include <base/bytes.h>
#include <base/log.h>
#include <ctl/ctl_priv.h>
#include <gateway/gateway.h>
#include <gateway/health.h>
#include <gateway/reflection.h>
#include <services.h>

#define RING_BUDGET 256
#define SUPERVISE_NS (100 * RP_NS_PER_MS)
/** Longest wait for the links' FIN at the end. */
#define LINK_CLOSE_NS (500 * RP_NS_PER_MS)
/** How often it is asked whether the sinks are done. */
#define STOP_LOOK_NS (5 * RP_NS_PER_MS)

struct rp_repl_now ctl_now(const struct rp_ctl *ctl)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	return (struct rp_repl_now){
		.ns = rp_loop_now_ns(ctl->loop),
		.wall_us = (uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000,
	};
}

/* ---- the control engine's callbacks ---- */

static uint32_t ctl_tokens(void *ctx, unsigned shard, enum rp_xmsg_type type)
{
	struct rp_ctl *ctl = ctx;

	return rp_xcore_tokens(ctl->end, shard, rp_xcore_how_of(type));
}

static int ctl_post(void *ctx, unsigned shard, const struct rp_xmsg *m)
{
	struct rp_ctl *ctl = ctx;

	return rp_xcore_post(ctl->end, shard, m);
}

static void ctl_unary_answer(void *ctx, uint64_t token, struct rp_span answer)
{
	struct rp_ctl *ctl = ctx;

	if (answer.length == 0)
		rp_etcd_peer_fail(
			ctl->etcd, token, RP_GRPC_INVALID_ARGUMENT, "ringpost: not a frame");
	else
		rp_etcd_peer_answer(ctl->etcd, token, answer);
}

static void ctl_ready(void *ctx, bool alone)
{
	struct rp_ctl *ctl = ctx;

	rp_health_set(ctl->health, !ctl->draining);
	ctl_sinks_ready(ctl);
	RP_LOG(RP_LOG_NODE, RP_LOG_INFO,
		alone ? "ready: no peer was there, serving alone" : "ready: synced with the peers");
	if (ctl->config.events.ready)
		ctl->config.events.ready(ctl->config.events.ctx, alone);
}

static void ctl_node_state(void *ctx, uint64_t node, enum rp_node_state state)
{
	static const char *const names[] = {"gone", "spare", "in progress", "online"};
	struct rp_ctl *ctl = ctx;

	RP_LOG(RP_LOG_REPL, RP_LOG_INFO, "node %lu is %s", (unsigned long)node, names[state]);
	if (ctl->config.events.node_state)
		ctl->config.events.node_state(ctl->config.events.ctx, node, state);
}

static void stop_next(struct rp_ctl *ctl);

static void ctl_stopped(void *ctx, unsigned shard, uint32_t phase)
{
	struct rp_ctl *ctl = ctx;

	if (phase == ctl->stop_phase && ++ctl->stopped_shards == ctl->config.self.shards)
		stop_next(ctl);
}

static const struct rp_control_ops ctl_control_ops = {
	.tokens = ctl_tokens,
	.post = ctl_post,
	.peer_call = ctl_peer_call,
	.dial = ctl_peer_dial,
	.hangup = ctl_peer_hangup,
	.eligible = ctl_eligible,
	.same_zone = ctl_same_zone,
	.rides = ctl_queue_rides,
	.unary_call = ctl_unary_call,
	.unary_answer = ctl_unary_answer,
	.queue_answer = ctl_queue_answer,
	.deliver = ctl_deliver,
	.withdraw = ctl_withdraw,
	.consumer_end = ctl_consumer_end,
	.run_answer = ctl_run_answer,
	.run_event = ctl_run_event,
	.write_done = ctl_write_done,
	.ready = ctl_ready,
	.node_state = ctl_node_state,
	.snapshot_done = ctl_snapshot_done,
	.stopped = ctl_stopped,
	.tapped = ctl_tapped,
};

/* ---- turns ---- */

void ctl_kick(struct rp_ctl *ctl)
{
	rp_loop_task_post(ctl->loop, &ctl->run_task);
}

static void on_run(void *ctx)
{
	struct rp_ctl *ctl = ctx;
	uint64_t control_ns = rp_control_run(ctl->control, ctl_now(ctl));
	uint64_t etcd_ns = rp_etcd_run(ctl->etcd, rp_loop_now_ns(ctl->loop));

	ctl->run_at_ns = RP_MIN(control_ns, etcd_ns);
	rp_loop_timer_at(ctl->loop, &ctl->run_timer, ctl->run_at_ns);
}

/*
 * Behind each turn in which something happened: a call may have left work to the services that has
 * no event of its own, and to the store; neither must wait for a timer set before.
 */
static void after_turn(struct rp_ctl *ctl)
{
	uint64_t etcd_ns = rp_etcd_run(ctl->etcd, rp_loop_now_ns(ctl->loop));

	if (rp_kv_step_wanted(rp_control_kv(ctl->control)))
		ctl_kick(ctl);
	if (etcd_ns >= ctl->run_at_ns)
		return;
	ctl->run_at_ns = etcd_ns;
	rp_loop_timer_at(ctl->loop, &ctl->run_timer, etcd_ns);
}

static bool drain_rings(struct rp_ctl *ctl)
{
	struct rp_xmsg m[RING_BUDGET];
	uint8_t from[RING_BUDGET];
	unsigned n = rp_xcore_recv_any(ctl->end, m, from, RING_BUDGET);
	struct rp_repl_now now;

	if (n == 0)
		return false;
	now = ctl_now(ctl);
	for (unsigned i = 0; i < n; i++)
		rp_control_on_xmsg(ctl->control, from[i], &m[i], now);
	ctl_kick(ctl);
	return true;
}

static void on_ring(void *ctx, uint32_t events)
{
	/* The rings are drained around each turn; being awake is all that is wanted. */
}

static void on_second(void *ctx)
{
	struct rp_ctl *ctl = ctx;

	rp_clock_publish(ctl->config.clock);
	ctl_tls_check(ctl);
	ctl_obstacles_tell(ctl);
	ctl_zones_look(ctl);
	rp_loop_timer_in(ctl->loop, &ctl->second_timer, RP_NS_PER_S);
}

static void on_supervise(void *ctx)
{
	struct rp_ctl *ctl = ctx;

	for (uint32_t i = 0; i < ctl->config.port_count; i++)
		if (rp_port_supervise(ctl->config.ports[i], rp_loop_now_ns(ctl->loop)))
			RP_LOG(RP_LOG_PORT, RP_LOG_INFO, "port %u: link %s", i,
				rp_port_link_up(ctl->config.ports[i]) ? "up" : "down");
	rp_loop_timer_in(ctl->loop, &ctl->supervise_timer, SUPERVISE_NS);
}

/* ---- the end ---- */

static void stop_next(struct rp_ctl *ctl)
{
	ctl->stopped_shards = 0;
	ctl->stop_phase++;
	if (ctl->stop_phase == 1) {
		RP_LOG(RP_LOG_NODE, RP_LOG_INFO, "stopping");
		if (ctl->config.events.stopping)
			ctl->config.events.stopping(ctl->config.events.ctx);
		rp_grpc_server_close_listeners(ctl->server);
		rp_health_set(ctl->health, false);
		ctl_bus_end_all(ctl, "etcdserver: server stopped");
		rp_etcd_stop(ctl->etcd);
		rp_control_stop(ctl->control, 1);
		rp_loop_timer_in(
			ctl->loop, &ctl->stop_timer, ctl->conf->stop.grace_ms * RP_NS_PER_MS);
	} else if (ctl->stop_phase == 2) {
		rp_grpc_server_drain(ctl->server, 0, "etcdserver: server stopped", NULL, NULL);
		rp_control_stop(ctl->control, 2);
		rp_loop_timer_in(ctl->loop, &ctl->stop_timer, LINK_CLOSE_NS);
	} else {
		ctl->ended = true;
	}
	ctl_kick(ctl);
}

/* Sinks end what they are writing, or their queues would have it written again. */
static void on_stop_timer(void *ctx)
{
	struct rp_ctl *ctl = ctx;

	if (ctl->stop_phase > 0 || !ctl_sinks_busy(ctl) ||
		rp_loop_now_ns(ctl->loop) >= ctl->stop_sinks_ns)
		stop_next(ctl);
	else
		rp_loop_timer_in(ctl->loop, &ctl->stop_timer, STOP_LOOK_NS);
}

static void begin_stop(struct rp_ctl *ctl)
{
	if (ctl->stop_phase == 0 && ctl->stop_sinks_ns == 0) {
		ctl_sinks_pause(ctl, true);
		ctl->stop_sinks_ns =
			rp_loop_now_ns(ctl->loop) + ctl->conf->stop.grace_ms * RP_NS_PER_MS;
		on_stop_timer(ctl);
	} else if (ctl->stop_phase == 0) {
		stop_next(ctl);
	} else
		ctl->ended = true; /* asked twice: now */
}

static void on_signal(void *ctx, int signo)
{
	struct rp_ctl *ctl = ctx;

	RP_LOG(RP_LOG_NODE, RP_LOG_INFO, "signal %d", signo);
	if (signo == SIGHUP) {
		struct ctl_reload r;

		ctl_reload(ctl, &r);
		ctl_reload_free(&r);
	} else {
		begin_stop(ctl);
	}
}

void rp_ctl_request_stop(struct rp_ctl *ctl)
{
	atomic_store(&ctl->stop_requested, true);
	rp_loop_wake(ctl->loop);
}

int rp_ctl_run(struct rp_ctl *ctl)
{
	ctl->started_ns = rp_loop_now_ns(ctl->loop);
	rp_control_start(ctl->control, ctl_now(ctl));
	ctl_kick(ctl);
	while (!ctl->ended) {
		bool busy = drain_rings(ctl), sleeping;
		int rc;

		if (atomic_exchange(&ctl->stop_requested, false))
			begin_stop(ctl);
		if (atomic_exchange(&ctl->woken, false) && ctl->wake_fn)
			ctl->wake_fn(ctl->wake_ctx);
		ctl_telemetry_turn(ctl);
		rp_xcore_flush(ctl->end);
		sleeping = !busy && rp_xcore_sleep_begin(ctl->end);
		rc = rp_loop_run_once(ctl->loop, sleeping ? RP_NEVER : 0);
		rp_xcore_sleep_end(ctl->end);
		if (rc < 0) {
			RP_LOG(RP_LOG_NODE, RP_LOG_CRIT, "epoll: %s", strerror(-rc));
			return RP_EXIT_SERVE;
		}
		if (rc > 0)
			after_turn(ctl);
		rp_xcore_flush(ctl->end);
	}
	return ctl->exit_code;
}

/* ---- creation ---- */

static struct rp_hmap map_new(unsigned bits)
{
	struct rp_hmap h = {
		.chains = calloc(1u << bits, sizeof(struct rp_hmap_node *)), .bits = bits};

	RP_ASSERT(h.chains != NULL);
	return h;
}

static int create_server(struct rp_ctl *ctl)
{
	struct rp_grpc_server_config server = rp_grpc_server_config_default();
	struct rp_etcd_config etcd = {
		.kv = rp_control_kv(ctl->control),
		.backend = &ctl->backend,
		.cluster_id = ctl->cluster_id,
		.member_id = ctl->config.self.node,
		.raft_term = ctl->conf->term,
		.request_bytes_max = (uint32_t)rp_conf_message_bytes(ctl->conf),
	};
	int rc;

	etcd.token = (enum rp_etcd_token)ctl->conf->auth.token;
	etcd.token_ttl_ns = ctl->conf->auth.token_ttl_s * RP_NS_PER_S;
	etcd.bcrypt_cost = ctl->conf->auth.bcrypt_cost;
	etcd.jwt_private_key = ctl->conf->auth.jwt_private_key;
	etcd.jwt_public_key = ctl->conf->auth.jwt_public_key;
	etcd.client_cert_auth = ctl->conf->tls.client_cert_auth;
	/* Peers ping each links.heartbeat_ms. */
	server.client_ping_min_ns = 0;
	server.accept_gzip = true;
	server.limits.connections = ctl->conf->limits.connections;
	server.limits.streams = ctl->conf->limits.streams_per_connection;
	server.limits.message_bytes = etcd.request_bytes_max + CTL_MESSAGE_OVERHEAD;
	ctl->server = rp_grpc_server_new(ctl->loop, &server);
	if (!ctl->server)
		return -errno;
	etcd.server = ctl->server;
	ctl->peer_backend = ctl_peer_backend;
	ctl->peer_backend.ctx = ctl;
	ctl_process_backend(ctl, &ctl->process_backend);
	ctl_etcd_backend(ctl, &ctl->backend);
	ctl->etcd = rp_etcd_create(&etcd);
	if (!ctl->etcd)
		return -errno;
	ctl_policy_use(ctl, ctl->conf);
	ctl_queue_policies_use(ctl, ctl->conf);
	rc = ctl_admin_create(ctl);
	if (rc)
		return rc;
	ctl->health = rp_health_new(ctl->server);
	ctl->reflection = rp_reflection_new(ctl->server);
	ctl->gateway = rp_gateway_new(
		ctl->server, rp_proto_services, ctl->conf->limits.streams_per_connection);
	if (!ctl->health || !ctl->reflection || !ctl->gateway)
		return -errno;
	ctl_telemetry_create(ctl);
	return ctl_peers_create(ctl);
}

static int create_control(struct rp_ctl *ctl)
{
	const struct rp_conf *c = ctl->conf;
	struct rp_control_config config = {
		.self = ctl->config.self,
		.transport_tcp = ctl->config.transport_tcp,
		.transport_ktcp = ctl->config.transport_ktcp,
		.shards = ctl->config.self.shards,
		.pool = ctl->config.pool,
		.message_bytes = rp_conf_message_bytes(c),
		.kv = {.initial_revision = (int64_t)c->kv.initial_revision,
			.quota_bytes = c->quota_backend_bytes,
			.txn_ops_max = c->max_txn_ops},
		.repl = {.ack_ms = c->repl.ack_ms,
			.sync_s = c->repl.sync_s,
			.tombstone_s = c->repl.tombstone_s,
			.tombstone_max_s = c->repl.tombstone_max_s,
			.max_skew_s = c->repl.max_skew_s,
			.timeout_ms = c->links.dead_after_ms,
			.hello_ms = c->links.heartbeat_ms,
			.seed = ctl->config.self.boot},
		.auto_compaction_ns = c->kv.auto_compaction_s * RP_NS_PER_S,
	};

	memcpy(config.cluster_uuid, ctl->config.cluster_uuid, sizeof(config.cluster_uuid));
	if (c->kv.initial_revision == RP_CONF_AUTO_U64)
		config.kv.initial_revision = (int64_t)ctl_now(ctl).wall_us;
	ctl->control = rp_control_create(&config, &ctl_control_ops, ctl);
	return ctl->control ? 0 : -errno;
}

static int create_loop(struct rp_ctl *ctl)
{
	sigset_t set;
	int rc;

	ctl->loop = rp_loop_new();
	if (!ctl->loop)
		return -errno;
	rp_loop_task_setup(&ctl->run_task, on_run, ctl);
	rp_loop_timer_setup(&ctl->run_timer, on_run, ctl);
	rp_loop_timer_setup(&ctl->second_timer, on_second, ctl);
	rp_loop_timer_setup(&ctl->supervise_timer, on_supervise, ctl);
	rp_loop_timer_setup(&ctl->stop_timer, on_stop_timer, ctl);
	ctl_drain_setup(ctl);
	rp_loop_fd_setup(&ctl->ring_watch, on_ring, ctl);
	rc = rp_loop_fd_add(ctl->loop, &ctl->ring_watch, rp_xcore_fd(ctl->end), EPOLLIN);
	if (rc)
		return rc;
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	rc = ctl->config.no_signals
		     ? 0
		     : rp_loop_signals_add(ctl->loop, &ctl->signals, &set, on_signal, ctl);
	if (rc)
		return rc;
	rp_loop_timer_in(ctl->loop, &ctl->second_timer, RP_NS_PER_S);
	if (ctl->config.port_count > 0)
		rp_loop_timer_in(ctl->loop, &ctl->supervise_timer, SUPERVISE_NS);
	return 0;
}

struct rp_ctl *rp_ctl_create(const struct rp_ctl_config *config, char *error, size_t error_size)
{
	struct rp_reader uuid = rp_reader_of(config->cluster_uuid, RP_UUID_BYTES);
	struct rp_ctl *ctl = calloc(1, sizeof(*ctl));
	int rc;

	RP_ASSERT(ctl != NULL);
	ctl->config = *config;
	ctl->conf = config->conf;
	ctl_secrets_create(ctl);
	ctl->cluster_id = rp_read_be64(&uuid);
	ctl->cluster_id ^= rp_read_be64(&uuid);
	ctl->end = rp_xcore_end(config->xcore, RP_XCORE_CONTROL);
	rp_list_init(&ctl->waits_now);
	rp_list_init(&ctl->waits_next);
	ctl->proofs = map_new(CTL_PENDING_BITS);
	ctl->writes = map_new(CTL_PENDING_BITS);
	ctl_embed_create(ctl);
	error[0] = '\0';
	rc = create_loop(ctl);
	if (rc == 0)
		rc = create_control(ctl);
	if (rc == 0)
		rc = ctl_tls_create(ctl, error, error_size);
	if (rc == 0)
		rc = create_server(ctl);
	if (rc == 0)
		rc = ctl_bus_create(ctl, error, error_size);
	if (rc == 0)
		rc = ctl_sinks_create(ctl, error, error_size);
	if (rc == 0)
		return ctl;
	if (error[0] == '\0')
		snprintf(error, error_size, "control thread: %s", strerror(-rc));
	rp_ctl_destroy(ctl);
	return NULL;
}

static void proofs_free(struct rp_ctl *ctl)
{
	for (size_t i = 0; ctl->proofs.chains && i < 1u << CTL_PENDING_BITS; i++)
		while (ctl->proofs.chains[i]) {
			struct ctl_proof *f = RP_CONTAINER_OF(
				ctl->proofs.chains[i], struct ctl_proof, by_connection);

			rp_hmap_remove(&ctl->proofs, &f->by_connection);
			free(f);
		}
	free(ctl->proofs.chains);
}

void rp_ctl_destroy(struct rp_ctl *ctl)
{
	struct rp_xmsg m;

	if (!ctl)
		return;
	ctl_sinks_destroy(ctl);
	ctl_bus_destroy(ctl);
	ctl_embed_destroy(ctl);
	ctl_peers_destroy(ctl);
	rp_grpc_server_destroy(ctl->server);
	ctl_metrics_close(ctl);
	rp_gateway_destroy(ctl->gateway);
	rp_health_destroy(ctl->health);
	rp_reflection_destroy(ctl->reflection);
	rp_etcd_destroy(ctl->etcd);
	/* What still lies in the rings holds buffers. */
	while (rp_xcore_recv_any(ctl->end, &m, NULL, 1) == 1)
		rte_pktmbuf_free(m.m);
	rp_control_destroy(ctl->control);
	ctl_writes_free(ctl);
	ctl_capture_destroy(ctl);
	ctl_telemetry_destroy(ctl);
	ctl_admin_destroy(ctl);
	proofs_free(ctl);
	free(ctl->writes.chains);
	ctl_tls_free(&ctl->tls);
	free(ctl->tls_listeners);
	if (ctl->loop) {
		rp_loop_task_cancel(&ctl->run_task);
		rp_loop_timer_cancel(&ctl->run_timer);
		rp_loop_timer_cancel(&ctl->second_timer);
		rp_loop_timer_cancel(&ctl->supervise_timer);
		rp_loop_timer_cancel(&ctl->stop_timer);
		rp_loop_timer_cancel(&ctl->drain_timer);
		rp_loop_fd_remove(&ctl->ring_watch);
		rp_loop_signals_remove(&ctl->signals);
	}
	rp_loop_destroy(ctl->loop);
	ctl_reload_destroy(ctl);
	rp_policy_destroy(ctl->policy);
	explicit_bzero(&ctl->secrets, sizeof(ctl->secrets));
	free(ctl);
}

/* ---- listeners ---- */

int rp_ctl_listen(struct rp_ctl *ctl, char *error, size_t error_size)
{
	const struct rp_conf_list *urls = &ctl->conf->listen_client_urls;

	for (unsigned i = 0; i < urls->count; i++) {
		struct rp_conf_endpoint e;
		char address[300];
		uint16_t port;
		int rc;

		rp_conf_endpoint_parse(urls->items[i], 2379, &e);
		if (e.is_unix)
			snprintf(address, sizeof(address), "unix:%s", e.host);
		else
			rp_conf_endpoint_format(&e, address, sizeof(address));
		rc = rp_grpc_server_listen(
			ctl->server, address, e.tls ? ctl->tls.server : NULL, &port);
		if (rc < 0) {
			snprintf(error, error_size, "listen_client_urls: cannot listen on %s: %s",
				address, strerror(-rc));
			return rc;
		}
		if (e.tls)
			ctl->tls_listeners[ctl->tls_listener_count++] = rc;
		if (i == 0)
			ctl->client_port = port;
	}
	if (ctl->conf->admin_socket[0] != '\0') {
		char address[300];
		int rc;

		snprintf(address, sizeof(address), "unix:%s", ctl->conf->admin_socket);
		rc = rp_grpc_server_listen(ctl->server, address, NULL, NULL);
		if (rc < 0) {
			snprintf(error, error_size, "admin_socket: cannot listen on %s: %s",
				address, strerror(-rc));
			return rc;
		}
	}
	return ctl_metrics_listen(ctl, error, error_size);
}

uint16_t rp_ctl_client_port(const struct rp_ctl *ctl)
{
	return ctl->client_port;
}

struct rp_loop *rp_ctl_loop(struct rp_ctl *ctl)
{
	return ctl->loop;
}

struct rp_grpc_server *rp_ctl_server(struct rp_ctl *ctl)
{
	return ctl->server;
}
