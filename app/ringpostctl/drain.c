/* SPDX-License-Identifier: Apache-2.0 */

/* `drain` and `undrain`. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ringpost/v1/admin.pb-c.h>

#include <base/units.h>

#include "client.h"
#include "json.h"

#define ASK_NS (200 * RP_NS_PER_MS)
#define TELL_NS (2 * RP_NS_PER_S)

static void drain_print(FILE *out, const Ringpost__V1__DrainReply *r)
{
	fprintf(out, "%s: %u queues, %u messages, %u consumers left%s\n", r->state, r->dispatched,
		r->messages, r->consumers,
		r->takers == 0 && r->dispatched > 0 ? "; no other node is online to take them"
						    : "");
	fflush(out);
}

static int drain_end(Ringpost__V1__DrainReply *r, bool json, int rc)
{
	if (json)
		rc = json_answer("ringpost.drain", &r->base) != 0 ? 1 : rc;
	else
		drain_print(stdout, r);
	ringpost__v1__drain_reply__free_unpacked(r, NULL);
	return rc;
}

static Ringpost__V1__DrainReply *drain_ask(struct client *c, const char *act, bool exit)
{
	Ringpost__V1__DrainRequest q = RINGPOST__V1__DRAIN_REQUEST__INIT;

	q.act = (char *)act;
	q.exit = exit;
	return ask(c, "/ringpost.v1.Admin/Drain", &q.base, &ringpost__v1__drain_reply__descriptor);
}

struct drain_options {
	bool json, exit;
	uint64_t wait_ns;
};

static int drain_options_take(struct drain_options *o, int argc, char **argv)
{
	*o = (struct drain_options){.wait_ns = RP_NEVER};
	for (int i = 0; i < argc; i++) {
		const char *value = NULL;
		char *end;

		if (!strcmp(argv[i], "-j") || !strcmp(argv[i], "--json"))
			o->json = true;
		else if (!strcmp(argv[i], "--exit"))
			o->exit = true;
		else if (!strncmp(argv[i], "--seconds=", 10))
			value = argv[i] + 10;
		else if (!strcmp(argv[i], "--seconds") && i + 1 < argc)
			value = argv[++i];
		else if (!strcmp(argv[i], "--seconds"))
			return bad_usage("--seconds: a value is missing");
		else if (argv[i][0] == '-')
			return bad_usage("%s: no such option of this command", argv[i]);
		else
			return bad_usage("unexpected argument \"%s\"", argv[i]);
		if (value) {
			double s = strtod(value, &end);

			if (end == value || *end != '\0' || !(s >= 0 && s < 1e9))
				return bad_usage(
					"--seconds: \"%s\" is no number of seconds", value);
			o->wait_ns = (uint64_t)(s * 1e9);
		}
	}
	return 0;
}

static bool is_empty(const Ringpost__V1__DrainReply *r)
{
	return strcmp(r->state, "drained") == 0;
}

/* 0: empty; 1: not within that time. A node that stops by itself is gone once it was empty. */
int drain(struct client *c, int argc, char **argv)
{
	Ringpost__V1__DrainReply *r;
	struct drain_options o;
	uint64_t begin_ns, told_ns;

	if (drain_options_take(&o, argc, argv) != 0)
		return 2;
	begin_ns = told_ns = rp_loop_now_ns(c->loop);
	r = drain_ask(c, "begin", o.exit);
	while (r && !is_empty(r) && rp_loop_now_ns(c->loop) - begin_ns < o.wait_ns) {
		Ringpost__V1__DrainReply *next;

		pause_for(c, ASK_NS, NULL);
		if (rp_loop_now_ns(c->loop) - told_ns >= TELL_NS) {
			drain_print(stderr, r);
			told_ns = rp_loop_now_ns(c->loop);
		}
		next = drain_ask(c, "ask", false);
		ringpost__v1__drain_reply__free_unpacked(r, NULL);
		r = next;
	}
	if (!r)
		return 1;
	return drain_end(r, o.json, o.wait_ns == 0 || is_empty(r) ? 0 : 1);
}

int undrain(struct client *c, int argc, char **argv)
{
	Ringpost__V1__DrainReply *r;
	struct options o;

	if (options_take(&o, "j", 0, 0, argc, argv) != 0)
		return 2;
	r = drain_ask(c, "end", false);
	if (!r)
		return 1;
	if (o.json)
		return drain_end(r, true, 0);
	printf("%s: it takes queues and consumers again\n", r->state);
	ringpost__v1__drain_reply__free_unpacked(r, NULL);
	return 0;
}
