/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A bus of one host, as a program: what local programs send is forwarded, what is to be forwarded
 * runs here, and answers go to who waits for them. store_bus URL SECONDS
 */

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include <grpc/loop.h>
#include <store/store.h>

static struct rp_store *store;
static bool ended;

static void on_local(void *ctx, const struct rp_store_result *r);
static void on_queued(void *ctx, const struct rp_store_result *r);

static void on_done(void *ctx, const struct rp_store_result *r)
{
	if (r->status != RP_STORE_OK)
		fprintf(stderr, "%s: %s\n", (const char *)ctx, r->text);
}

static void on_local(void *ctx, const struct rp_store_result *r)
{
	if (r->status == RP_STORE_OK)
		rp_store_forward(store, r->message, on_done, "forward");
	rp_store_local(store, on_local, NULL);
}

static void on_queued(void *ctx, const struct rp_store_result *r)
{
	if (r->status == RP_STORE_OK && r->kind == RP_STORE_KIND_FORWARD)
		rp_store_run(store, r->message, on_done, "run");
	else if (r->status == RP_STORE_OK)
		rp_store_reply(store, r->message, on_done, "reply");
	rp_store_queued(store, on_queued, NULL);
}

static void on_timer(void *ctx)
{
	ended = true;
}

int main(int argc, char **argv)
{
	struct rp_loop *loop = rp_loop_new();
	struct rp_store_config config = {.loop = loop, .owner = "1"};
	struct rp_loop_timer timer = {0};

	if (argc != 3 || !loop)
		return 2;
	signal(SIGPIPE, SIG_IGN);
	config.url = argv[1];
	store = rp_store_create(&config);
	if (!store)
		return 1;
	rp_loop_timer_setup(&timer, on_timer, NULL);
	rp_loop_timer_in(loop, &timer, strtoull(argv[2], NULL, 10) * RP_NS_PER_S);
	rp_store_local(store, on_local, NULL);
	rp_store_queued(store, on_queued, NULL);
	while (!ended && rp_loop_run_once(loop, RP_NEVER) >= 0)
		;
	rp_store_destroy(store);
	rp_loop_timer_cancel(&timer);
	rp_loop_destroy(loop);
	return 0;
}
