/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The services on a real gRPC server with a fake node behind them, for real clients:
 *
 *   etcd_server HOST:PORT
 *
 * Prints the port and serves until SIGTERM or SIGINT.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <grpc/loop.h>
#include <grpc/server.h>

#include "fake_node.h"

#define STEP_BUDGET 4096

static void on_signal(void *ctx, int signo)
{
	struct rp_loop *loop = ctx;

	(void)signo;
	rp_loop_stop(loop);
}

struct turn {
	struct rp_loop *loop;
	struct rp_loop_timer timer;
	struct fake_node *node;
};

static void turn_run(void *ctx)
{
	struct turn *t = ctx;
	bool more = rp_kv_step(t->node->kv, STEP_BUDGET);

	fake_node_clock(t->node, rp_loop_now_ns(t->loop));
	rp_etcd_run(t->node->etcd, rp_loop_now_ns(t->loop));
	rp_loop_timer_in(t->loop, &t->timer, more ? 0 : RP_NS_PER_MS);
}

int main(int argc, char **argv)
{
	struct rp_grpc_server_config config = rp_grpc_server_config_default();
	struct rp_etcd_config etcd = {.cluster_id = 0xc1, .member_id = 200, .raft_term = 2};
	static struct fake_node node;
	struct rp_loop_signals signals;
	struct turn turn = {.node = &node};
	struct rp_grpc_server *server;
	uint16_t port = 0;
	sigset_t set;

	if (argc != 2) {
		fprintf(stderr, "usage: %s HOST:PORT\n", argv[0]);
		return 2;
	}
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	turn.loop = rp_loop_new();
	rp_loop_signals_add(turn.loop, &signals, &set, on_signal, turn.loop);
	server = rp_grpc_server_new(turn.loop, &config);
	fake_node_init(&node, 1);
	etcd.kv = node.kv;
	etcd.server = server;
	etcd.backend = &node.backend;
	etcd.progress_interval_ns = 200 * RP_NS_PER_MS;
	node.etcd = rp_etcd_create(&etcd);
	if (!node.etcd || rp_grpc_server_listen(server, argv[1], NULL, &port) < 0) {
		fprintf(stderr, "cannot serve on %s\n", argv[1]);
		return 1;
	}
	printf("%u\n", port);
	fflush(stdout);
	rp_loop_timer_setup(&turn.timer, turn_run, &turn);
	turn_run(&turn);
	rp_loop_run(turn.loop);
	rp_loop_timer_cancel(&turn.timer);
	rp_etcd_stop(node.etcd);
	rp_grpc_server_destroy(server);
	rp_etcd_destroy(node.etcd);
	fake_node_free(&node);
	rp_loop_signals_remove(&signals);
	rp_loop_destroy(turn.loop);
	return 0;
}
