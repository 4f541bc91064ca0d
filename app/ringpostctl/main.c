/* SPDX-License-Identifier: Apache-2.0 */

/* ringpostctl: asks a node's ringpost.v1.Admin and prints what it says. */

#include <errno.h>
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
	fprintf(stderr, "ringpostctl: cannot reach the node at %s: %s; --endpoint names another\n",
		c->endpoint, c->reason);
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

static void on_pause(void *ctx)
{
	bool *over = ctx;

	*over = true;
}

void pause_for(struct client *c, uint64_t ns, const bool *woken)
{
	struct rp_loop_timer timer;
	bool over = false;

	rp_loop_timer_setup(&timer, on_pause, &over);
	rp_loop_timer_in(c->loop, &timer, ns);
	while (!over && !(woken && *woken) && rp_loop_run_once(c->loop, RP_NEVER) >= 0)
		;
	rp_loop_timer_cancel(&timer);
}

int impair(struct client *c, int argc, char **argv)
{
	Ringpost__V1__ImpairRequest q = RINGPOST__V1__IMPAIR_REQUEST__INIT;
	struct answer a;
	char *end;
	int rc;

	if (argc < 1)
		return bad_usage("PORT is missing");
	if (argc > 2)
		return bad_usage("unexpected argument \"%s\"", argv[2]);
	q.port = (uint32_t)strtoul(argv[0], &end, 10);
	if (*end != '\0' || argv[0][0] == '\0')
		return bad_usage("\"%s\" is no port: expected its index in ports[]", argv[0]);
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

/* The command that was meant, most likely. */
static const char *nearest(const char *typed)
{
	const char *best = NULL;
	unsigned least = 3;

	for (const struct entry *e = table; e < table + RP_ARRAY_SIZE(table); e++) {
		unsigned d = e->words ? text_distance(typed, e->words) : least;

		if (e->words && strncmp(typed, e->words, strlen(typed)) == 0)
			d = 0;
		if (d < least) {
			least = d;
			best = e->words;
		}
	}
	return best;
}

static int unknown_command(int argc, char **argv)
{
	char typed[128] = "";
	const char *near;

	for (int i = 0; i < argc && i < 2 && argv[i][0] != '-'; i++)
		snprintf(typed + strlen(typed), sizeof(typed) - strlen(typed), "%s%.50s",
			i ? " " : "", argv[i]);
	near = nearest(typed[0] ? typed : argv[0]);
	fprintf(stderr, "ringpostctl: no command \"%s\"", typed[0] ? typed : argv[0]);
	if (near)
		fprintf(stderr, ", perhaps \"%s\"", near);
	fputs("; usage: ringpostctl --help\n", stderr);
	return 2;
}

static int run(struct client *c, int argc, char **argv)
{
	int words, rc;
	const struct entry *e = entry_find(argc, argv, &words);

	if (!e)
		return unknown_command(argc, argv);
	rc = e->function(c, argc - words, argv + words);
	if (rc == 2)
		usage(stderr, e);
	if (fflush(stdout) != 0 || ferror(stdout)) {
		fprintf(stderr, "ringpostctl: standard output: %s\n", strerror(errno));
		rc = rc ? rc : 1;
	}
	return rc;
}

/* "COMMAND --help" and "help COMMAND" want no node. */
static bool helped(int argc, char **argv)
{
	bool asked = strcmp(argv[0], "help") == 0;
	const struct entry *e;
	int words;

	argc -= asked;
	argv += asked;
	e = entry_find(argc, argv, &words);
	for (int i = e ? words : argc; i < argc && !asked; i++)
		asked = !strcmp(argv[i], "--help") || !strcmp(argv[i], "-h");
	if (!asked || (!e && argc > 0))
		return false;
	usage(stdout, e);
	return true;
}

/* Takes --endpoint out, wherever it stands. False: it has no value. */
static bool endpoint_take(int *argc, char **argv, const char **endpoint)
{
	static const char flag[] = "--endpoint";
	size_t n = sizeof(flag) - 1;
	int kept = 1;

	for (int i = 1; i < *argc; i++) {
		if (!strncmp(argv[i], flag, n) && argv[i][n] == '=') {
			*endpoint = argv[i] + n + 1;
		} else if (strcmp(argv[i], flag) != 0) {
			argv[kept++] = argv[i];
		} else if (i + 1 < *argc) {
			*endpoint = argv[++i];
		} else {
			fprintf(stderr, "ringpostctl: --endpoint: a value is missing\n");
			return false;
		}
	}
	*argc = kept;
	/* As URLs of clients are written. */
	if (!strncmp(*endpoint, "http://", 7))
		*endpoint += 7;
	return true;
}

/* 0; or, when all is said, minus one minus the status. */
static int options(int argc, char **argv)
{
	if (argc == 1) {
		usage(stderr, NULL);
		return -3;
	}
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h")) {
		usage(stdout, NULL);
		return -1;
	}
	if (!strcmp(argv[1], "--version")) {
		printf("ringpostctl " RP_VERSION "\n");
		return -1;
	}
	if (argv[1][0] != '-')
		return 0;
	fprintf(stderr,
		"ringpostctl: %s: no such option before the command; its own stand behind it\n",
		argv[1]);
	return -3;
}

static int bad_endpoint(const char *endpoint)
{
	fprintf(stderr, "ringpostctl: \"%s\" is no address: expected host:port or unix:/path%s\n",
		endpoint,
		strncmp(endpoint, "https://", 8) == 0
			? "; where clients speak TLS, ask by the node's admin_socket"
			: "");
	return 2;
}

int main(int argc, char **argv)
{
	struct rp_grpc_channel_config config = rp_grpc_channel_config_default();
	struct client c = {.endpoint = "localhost:2379"};
	int rc;

	if (!endpoint_take(&argc, argv, &c.endpoint))
		return 2;
	rc = options(argc, argv);
	if (rc < 0)
		return -rc - 1;
	if (helped(argc - 1, argv + 1))
		return 0;
	config.on_state = on_state;
	config.ctx = &c;
	config.message_bytes_max = 64u << 20;
	c.loop = rp_loop_new();
	c.channel = c.loop ? rp_grpc_channel_new(c.loop, c.endpoint, &config) : NULL;
	if (!c.channel) {
		rp_loop_destroy(c.loop);
		return bad_endpoint(c.endpoint);
	}
	rp_grpc_channel_connect(c.channel);
	rc = run(&c, argc - 1, argv + 1);
	rp_grpc_channel_destroy(c.channel);
	rp_loop_destroy(c.loop);
	return rc;
}
