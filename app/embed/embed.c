/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A program with a node inside: it takes what clients put on the queue `jobs`, writes how many
 *there were to a key, and ends after the third. Flags are those of ringpostd:
 *
 *	embed --listen-client-urls http://127.0.0.1:2379
 *	for i in 1 2 3; do etcdctl put /q/jobs/p/job-$i hello; done
 */

#include <stdio.h>

#include <node/ringpost.h>

static struct rp_ringpost *node;

static void counted(void *ctx, int status, const char *message, int64_t revision)
{
	int *count = ctx;

	printf("%d so far, revision %ld%s\n", *count, (long)revision, message);
	if (*count == 3)
		rp_ringpost_stop(node);
}

static void on_message(
	void *ctx, struct rp_ringpost_consumer *c, const struct rp_ringpost_message *m)
{
	int *count = ctx;
	char text[16];

	printf("job %.*s: %.*s\n", (int)m->tail.length, (const char *)m->tail.data,
		(int)m->value.length, (const char *)m->value.data);
	snprintf(text, sizeof(text), "%d", ++*count);
	rp_ringpost_put(
		node, rp_ringpost_text("jobs-done"), rp_ringpost_text(text), counted, count);
	rp_ringpost_ack(c, m->idx, NULL, NULL);
}

static void on_ready(void *ctx, bool alone)
{
	static const struct rp_ringpost_consumer_ops ops = {.message = on_message};

	rp_ringpost_consume(node, rp_ringpost_text("jobs"), NULL, "", 0, &ops, ctx);
	printf("ready on port %u\n", rp_ringpost_port(node));
	fflush(stdout);
}

int main(int argc, char *argv[])
{
	int count = 0, status;
	struct rp_ringpost_config config = {.argc = argc - 1,
		.argv = (const char *const *)argv + 1,
		.signals = true,
		.events = {.ready = on_ready},
		.ctx = &count};
	char error[1024];

	node = rp_ringpost_create(&config, &status, error, sizeof(error));
	if (!node) {
		fprintf(stderr, "embed: %s\n", error);
		return status;
	}
	status = rp_ringpost_run(node);
	rp_ringpost_destroy(node);
	return status;
}
