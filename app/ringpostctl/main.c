/* SPDX-License-Identifier: Apache-2.0 */

/* ringpostctl: asks a node's ringpost.v1.Admin and prints what it says. */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ringpost/v1/admin.pb-c.h>

#include <base/units.h>

#include "client.h"

#define TIMEOUT_NS (5 * RP_NS_PER_S)

static const struct {
	const char *syntax, *help;
} commands[] = {
#define RP_COMMAND(syntax, help) {syntax, help},
#include "commands.def"
};

static void usage(FILE *out)
{
	fputs("usage: ringpostctl [--endpoint ADDRESS] COMMAND\n\n", out);
	for (size_t i = 0; i < RP_ARRAY_SIZE(commands); i++)
		fprintf(out, "  %-27s %s\n", commands[i].syntax, commands[i].help);
	fputs("\nADDRESS is host:port or unix:/path of the node; localhost:2379 by default.\n",
		out);
}

static void on_state(struct rp_grpc_channel *channel, enum rp_grpc_channel_state state,
	const char *reason, void *ctx)
{
	struct client *c = ctx;

	c->ready = state == RP_GRPC_CHANNEL_READY;
	c->lost = state == RP_GRPC_CHANNEL_LOST;
	snprintf(c->reason, sizeof(c->reason), "%s", reason ? reason : "");
}

static void on_answer(
	void *ctx, enum rp_grpc_code code, const char *message, const uint8_t *data, size_t length)
{
	struct answer *a = ctx;

	a->done = true;
	a->failed = code != RP_GRPC_OK;
	snprintf(a->text, sizeof(a->text), "%s: %s", rp_grpc_code_name(code), message);
	if (a->failed)
		return;
	a->data = malloc(length + 1);
	if (!a->data)
		abort();
	memcpy(a->data, data, length);
	a->length = length;
}

int client_connect(struct client *c)
{
	int rc = 0;

	while (!c->ready && !c->lost && rc >= 0)
		rc = rp_loop_run_once(c->loop, TIMEOUT_NS);
	if (c->ready)
		return 0;
	fprintf(stderr, "ringpostctl: cannot reach the node: %s\n", c->reason);
	return 1;
}

int call(struct client *c, const char *path, const ProtobufCMessage *request, struct answer *a)
{
	size_t length = protobuf_c_message_get_packed_size(request);
	uint8_t *data = malloc(length + 1);
	int rc = 0;

	if (!data)
		abort();
	protobuf_c_message_pack(request, data);
	if (client_connect(c) != 0) {
		free(data);
		return 1;
	}
	*a = (struct answer){0};
	rp_grpc_channel_unary(c->channel, path, NULL, 0, rp_loop_now_ns(c->loop) + TIMEOUT_NS, data,
		length, on_answer, a);
	while (!a->done && rc >= 0)
		rc = rp_loop_run_once(c->loop, TIMEOUT_NS);
	free(data);
	if (a->failed)
		fprintf(stderr, "ringpostctl: %s\n", a->text);
	return a->failed ? 1 : 0;
}

static int by_name(const void *a, const void *b)
{
	const Ringpost__V1__Metric *const *x = a, *const *y = b;
	int c = strcmp((*x)->name, (*y)->name);

	return c ? c : strcmp((*x)->labels, (*y)->labels);
}

static void print_stats(Ringpost__V1__StatsReply *r, bool sum)
{
	if (r->n_metrics > 0)
		qsort(r->metrics, r->n_metrics, sizeof(*r->metrics), by_name);
	for (size_t i = 0; i < r->n_metrics; i++) {
		const Ringpost__V1__Metric *m = r->metrics[i];
		uint64_t value = m->value;

		while (sum && i + 1 < r->n_metrics && !strcmp(m->name, r->metrics[i + 1]->name))
			value += r->metrics[++i]->value;
		printf(sum || !m->labels[0] ? "%s%.0s %" PRIu64 "\n" : "%s{%s} %" PRIu64 "\n",
			m->name, m->labels, value);
	}
}

static int stats(struct client *c, int argc, char **argv)
{
	Ringpost__V1__StatsRequest q = RINGPOST__V1__STATS_REQUEST__INIT;
	bool sum = argc > 0 && !strcmp(argv[0], "--sum");
	Ringpost__V1__StatsReply *r;
	struct answer a;

	if (argc - sum > 0)
		q.prefix = argv[sum];
	if (call(c, "/ringpost.v1.Admin/Stats", &q.base, &a) != 0)
		return 1;
	r = ringpost__v1__stats_reply__unpack(NULL, a.length, a.data);
	free(a.data);
	if (!r)
		return 1;
	print_stats(r, sum);
	ringpost__v1__stats_reply__free_unpacked(r, NULL);
	return 0;
}

static int route_explain(struct client *c, char *queue)
{
	Ringpost__V1__RouteRequest q = RINGPOST__V1__ROUTE_REQUEST__INIT;
	Ringpost__V1__RouteReply *r;
	struct answer a;

	q.queue = queue;
	if (call(c, "/ringpost.v1.Admin/Route", &q.base, &a) != 0)
		return 1;
	r = ringpost__v1__route_reply__unpack(NULL, a.length, a.data);
	free(a.data);
	if (!r)
		return 1;
	printf("queue %s, shard %u\n", queue, r->shard);
	if (r->dispatcher == 0)
		printf("dispatcher: none known here\n");
	else
		printf("dispatcher: node %" PRIu64 " (%s%s), epoch %u\n", r->dispatcher, r->state,
			r->dispatching_here ? ", this node" : "", r->epoch);
	printf("consumers: %u here, %u on other nodes\n", r->consumers_local, r->consumers_remote);
	printf("messages here: %u, in flight %u\n", r->depth, r->in_flight);
	printf("cost in peer RPCs: a put from here %u, an acknowledge %u\n", r->cost_put,
		r->cost_ack);
	ringpost__v1__route_reply__free_unpacked(r, NULL);
	return 0;
}

static int impair(struct client *c, int argc, char **argv)
{
	Ringpost__V1__ImpairRequest q = RINGPOST__V1__IMPAIR_REQUEST__INIT;
	struct answer a;
	char *end;
	int rc;

	q.port = (uint32_t)strtoul(argv[0], &end, 10);
	if (*end != '\0' || argv[0][0] == '\0') {
		fprintf(stderr, "ringpostctl: \"%s\" is no port: expected its index in ports[]\n",
			argv[0]);
		return 2;
	}
	if (argc > 1)
		q.spec = argv[1];
	rc = call(c, "/ringpost.v1.Admin/Impair", &q.base, &a);
	free(a.data);
	return rc;
}

static int run(struct client *c, int argc, char **argv)
{
	int rc = 2;

	if (argc >= 1 && !strcmp(argv[0], "stats"))
		return stats(c, argc - 1, argv + 1);
	if (argc == 3 && !strcmp(argv[0], "route") && !strcmp(argv[1], "explain"))
		return route_explain(c, argv[2]);
	if (argc == 1 && !strcmp(argv[0], "config"))
		return config(c);
	if (argc == 1 && !strcmp(argv[0], "reload"))
		return reload(c);
	if ((argc == 2 || argc == 3) && !strcmp(argv[0], "impair"))
		return impair(c, argc - 1, argv + 1);
	if (argc == 2 && !strcmp(argv[0], "restore"))
		return restore(c, argv[1]);
	if (argc >= 2 && !strcmp(argv[0], "show"))
		rc = show(c, argc - 1, argv + 1);
	if (argc >= 1 && !strcmp(argv[0], "capture"))
		rc = capture(c, argc - 1, argv + 1);
	if (rc == 2)
		usage(stderr);
	return rc;
}

/* Index of the command; or, when all is said, minus one minus the status. */
static int options(int argc, char **argv, const char **endpoint)
{
	static const char flag[] = "--endpoint";
	size_t n = sizeof(flag) - 1;
	int i = 1;

	for (; i < argc && argv[i][0] == '-'; i++) {
		if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) {
			usage(stdout);
			return -1;
		}
		if (!strcmp(argv[i], "--version")) {
			printf("ringpostctl " RP_VERSION "\n");
			return -1;
		}
		if (!strncmp(argv[i], flag, n) && argv[i][n] == '=') {
			*endpoint = argv[i] + n + 1;
		} else if (!strcmp(argv[i], flag) && i + 1 < argc) {
			*endpoint = argv[++i];
		} else {
			fprintf(stderr, "ringpostctl: %s: unknown flag, or no value\n", argv[i]);
			return -3;
		}
	}
	if (i < argc)
		return i;
	usage(stderr);
	return -3;
}

int main(int argc, char **argv)
{
	struct rp_grpc_channel_config config = rp_grpc_channel_config_default();
	const char *endpoint = "localhost:2379";
	struct client c = {0};
	int first, rc;

	first = options(argc, argv, &endpoint);
	if (first < 0)
		return -first - 1;
	config.on_state = on_state;
	config.ctx = &c;
	config.message_bytes_max = 64u << 20;
	c.loop = rp_loop_new();
	c.channel = c.loop ? rp_grpc_channel_new(c.loop, endpoint, &config) : NULL;
	if (!c.channel) {
		fprintf(stderr,
			"ringpostctl: \"%s\" is no address: expected host:port or unix:/path\n",
			endpoint);
		rp_loop_destroy(c.loop);
		return 2;
	}
	rp_grpc_channel_connect(c.channel);
	rc = run(&c, argc - first, argv + first);
	rp_grpc_channel_destroy(c.channel);
	rp_loop_destroy(c.loop);
	return rc;
}
