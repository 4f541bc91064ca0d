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

/** A command, or an option of the command before it. */
static const struct entry {
	const char *words; /**< NULL: an option */
	const char *arguments, *short_name, *long_name, *help;
	int (*function)(struct client *c, int argc, char **argv);
} table[] = {
#define RP_COMMAND(words, arguments, function, help) {words, arguments, NULL, NULL, help, function},
#define RP_OPTION(short_name, long_name, value, help) \
	{NULL, value, short_name, long_name, help, NULL},
#include "commands.def"
};

static void print_option(FILE *out, const struct entry *o)
{
	bool both = o->short_name[0] && o->long_name[0];
	char text[80];

	snprintf(text, sizeof(text), "%s%s%s%s%s", o->short_name, both ? ", " : "", o->long_name,
		o->arguments[0] ? " " : "", o->arguments);
	fprintf(out, "      %-23s %s\n", text, o->help);
}

/* Of that command, or with NULL of all. */
static void usage(FILE *out, const struct entry *of)
{
	bool wanted = false;

	fputs("usage: ringpostctl [--endpoint ADDRESS] COMMAND\n\n", out);
	for (const struct entry *e = table; e < table + RP_ARRAY_SIZE(table); e++) {
		char text[80];

		if (!e->words) {
			if (wanted)
				print_option(out, e);
			continue;
		}
		wanted = !of || e == of;
		snprintf(text, sizeof(text), "%s%s%s", e->words, e->arguments[0] ? " " : "",
			e->arguments);
		if (wanted)
			fprintf(out, "  %-27s %s\n", text, e->help);
	}
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

void *ask(struct client *c, const char *path, const ProtobufCMessage *request,
	const ProtobufCMessageDescriptor *answer)
{
	struct answer a;
	void *message;

	if (call(c, path, request, &a) != 0)
		return NULL;
	message = protobuf_c_message_unpack(answer, NULL, a.length, a.data);
	free(a.data);
	if (!message)
		fprintf(stderr, "ringpostctl: the answer is of another version\n");
	return message;
}

int options_take(struct options *o, const char *known, int most, int argc, char **argv)
{
	static const struct {
		char letter;
		const char *short_name, *long_name;
	} names[] = {{'j', "-j", "--json"}, {'l', "-l", "--long"}, {'x', "-x", "--exact"},
		{'r', "-r", "--reset"}, {'c', "", "--conn"}};

	*o = (struct options){.argv = argv};
	for (int i = 0; i < argc; i++) {
		const char *a = argv[i], *equals = strchr(a, '=');
		size_t length = equals ? (size_t)(equals - a) : strlen(a), n = 0;

		if (a[0] != '-') {
			argv[o->argc++] = argv[i];
			continue;
		}
		while (n < RP_ARRAY_SIZE(names) && strcmp(a, names[n].short_name) != 0 &&
			!(strlen(names[n].long_name) == length &&
				memcmp(a, names[n].long_name, length) == 0))
			n++;
		if (n == RP_ARRAY_SIZE(names) || !strchr(known, names[n].letter) ||
			(equals && names[n].letter != 'c'))
			return 2;
		o->json |= names[n].letter == 'j';
		o->details |= names[n].letter == 'l';
		o->exact |= names[n].letter == 'x';
		o->reset |= names[n].letter == 'r';
		if (names[n].letter != 'c')
			continue;
		o->endpoint = equals ? argv[i] + length + 1 : i + 1 < argc ? argv[++i] : NULL;
		if (!o->endpoint)
			return 2;
	}
	return o->argc <= most ? 0 : 2;
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

int stats(struct client *c, int argc, char **argv)
{
	Ringpost__V1__StatsRequest q = RINGPOST__V1__STATS_REQUEST__INIT;
	bool sum = argc > 0 && !strcmp(argv[0], "--sum");
	Ringpost__V1__StatsReply *r;
	struct options o;

	if (options_take(&o, "", 1, argc - sum, argv + sum) != 0)
		return 2;
	if (o.argc > 0)
		q.prefix = o.argv[0];
	r = ask(c, "/ringpost.v1.Admin/Stats", &q.base, &ringpost__v1__stats_reply__descriptor);
	if (!r)
		return 1;
	print_stats(r, sum);
	ringpost__v1__stats_reply__free_unpacked(r, NULL);
	return 0;
}

int impair(struct client *c, int argc, char **argv)
{
	Ringpost__V1__ImpairRequest q = RINGPOST__V1__IMPAIR_REQUEST__INIT;
	struct answer a;
	char *end;
	int rc;

	if (argc < 1 || argc > 2)
		return 2;
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

/* How many of the arguments are the command's words; 0: it is another one. */
static int words_of(const struct entry *e, int argc, char **argv)
{
	const char *at = e->words;

	for (int i = 0; at && i < argc; i++) {
		size_t length = strcspn(at, " ");

		if (strlen(argv[i]) != length || memcmp(argv[i], at, length) != 0)
			return 0;
		if (at[length] == '\0')
			return i + 1;
		at += length + 1;
	}
	return 0;
}

static const struct entry *entry_find(int argc, char **argv, int *words)
{
	for (const struct entry *e = table; e < table + RP_ARRAY_SIZE(table); e++) {
		*words = words_of(e, argc, argv);
		if (*words > 0)
			return e;
	}
	return NULL;
}

static int run(struct client *c, int argc, char **argv)
{
	int words, rc = 2;
	const struct entry *e = entry_find(argc, argv, &words);

	if (e)
		rc = e->function(c, argc - words, argv + words);
	if (rc == 2)
		usage(stderr, e);
	return rc;
}

/* "COMMAND --help" wants no node. */
static bool helped(int argc, char **argv)
{
	int words;
	const struct entry *e = entry_find(argc, argv, &words);

	if (!e || words >= argc || (strcmp(argv[words], "--help") && strcmp(argv[words], "-h")))
		return false;
	usage(stdout, e);
	return true;
}

/* Index of the command; or, when all is said, minus one minus the status. */
static int options(int argc, char **argv, const char **endpoint)
{
	static const char flag[] = "--endpoint";
	size_t n = sizeof(flag) - 1;
	int i = 1;

	for (; i < argc && argv[i][0] == '-'; i++) {
		if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) {
			usage(stdout, NULL);
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
	usage(stderr, NULL);
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
	if (helped(argc - first, argv + first))
		return 0;
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
