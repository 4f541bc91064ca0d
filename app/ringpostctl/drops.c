/* SPDX-License-Identifier: Apache-2.0 */

/* `show drops`: in = delivered + passed on + held + the sum of the reasons, from one look at all
 * shards. */

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <jansson.h>

#include <ringpost/v1/admin.pb-c.h>

#include <base/units.h>
#include <stats/drops.h>

#include "client.h"
#include "json.h"

static uint64_t sum_of(
	const Ringpost__V1__StatsReply *r, const char *module, const char *counter, bool *known)
{
	uint64_t sum = 0;
	char name[96];

	snprintf(name, sizeof(name), "ringpost_%s_%s", module, counter);
	for (size_t i = 0; i < r->n_metrics; i++) {
		if (strcmp(r->metrics[i]->name, name) != 0)
			continue;
		sum += r->metrics[i]->value;
		if (known)
			*known = true;
	}
	return sum;
}

struct balance {
	uint64_t fates[RP_FATE_REASON + 1];
	uint64_t held;
};

static void balance_of(const Ringpost__V1__StatsReply *r, struct balance *b)
{
	*b = (struct balance){
		.held = sum_of(r, "queue", "messages", NULL) - sum_of(r, "queue", "handing", NULL),
	};
	for (unsigned i = 0; i < rp_message_fates_count; i++)
		b->fates[rp_message_fates[i].fate] +=
			sum_of(r, "queue", rp_message_fates[i].counter, NULL);
}

/* 0 where nothing is lost; more out than in is as wrong. */
static int64_t lost(const struct balance *b)
{
	return (int64_t)(b->fates[RP_FATE_IN] - b->fates[RP_FATE_DELIVERED] -
			 b->fates[RP_FATE_PASSED] - b->fates[RP_FATE_REASON] - b->held);
}

static void print_line(const char *what, uint64_t n, const char *note)
{
	printf("  %-32s %14" PRIu64 "%s%s\n", what, n, note[0] ? "  " : "", note);
}

static const char *note_of(enum rp_drop_severity severity)
{
	return severity == RP_DROP_NORMAL ? "" : rp_drop_severity_name(severity);
}

static void print_text(const Ringpost__V1__StatsReply *r, const struct balance *b)
{
	printf("messages\n");
	print_line("in", b->fates[RP_FATE_IN], "");
	print_line("delivered", b->fates[RP_FATE_DELIVERED], "");
	print_line("passed on", b->fates[RP_FATE_PASSED], "");
	print_line("held", b->held, "");
	for (unsigned i = 0; i < rp_message_fates_count; i++) {
		const struct rp_message_fate *f = &rp_message_fates[i];
		uint64_t n = sum_of(r, "queue", f->counter, NULL);

		if (f->fate == RP_FATE_REASON && n > 0)
			print_line(f->counter, n, note_of(f->severity));
	}
	printf("  %-32s %14" PRId64 "\n", "lost", lost(b));
	printf("frames\n");
	for (unsigned i = 0; i < rp_drop_reasons_count; i++) {
		const struct rp_drop_reason *d = &rp_drop_reasons[i];
		uint64_t n = sum_of(r, d->module, d->counter, NULL);
		char what[64];

		snprintf(what, sizeof(what), "%s %s", d->module, d->counter);
		if (n > 0)
			print_line(what, n, note_of(d->severity));
	}
}

static json_t *reason_json(
	const char *module, const char *counter, uint64_t n, enum rp_drop_severity severity)
{
	return json_pack("{s:s, s:s, s:I, s:s}", "module", module, "reason", counter, "count",
		(json_int_t)n, "severity", rp_drop_severity_name(severity));
}

static int print_json(const Ringpost__V1__StatsReply *r, const struct balance *b)
{
	json_t *root = json_head("ringpost.drops", r->node), *messages, *frames = json_array();
	json_t *reasons = json_array();

	for (unsigned i = 0; i < rp_message_fates_count; i++) {
		const struct rp_message_fate *f = &rp_message_fates[i];

		if (f->fate == RP_FATE_REASON)
			json_array_append_new(reasons,
				reason_json("queue", f->counter,
					sum_of(r, "queue", f->counter, NULL), f->severity));
	}
	messages =
		json_pack("{s:I, s:I, s:I, s:I, s:o, s:I}", "in", (json_int_t)b->fates[RP_FATE_IN],
			"delivered", (json_int_t)b->fates[RP_FATE_DELIVERED], "passed_on",
			(json_int_t)b->fates[RP_FATE_PASSED], "held", (json_int_t)b->held,
			"reasons", reasons, "lost", (json_int_t)lost(b));
	for (unsigned i = 0; i < rp_drop_reasons_count; i++) {
		const struct rp_drop_reason *d = &rp_drop_reasons[i];
		bool known = false;
		uint64_t n = sum_of(r, d->module, d->counter, &known);

		if (known)
			json_array_append_new(
				frames, reason_json(d->module, d->counter, n, d->severity));
	}
	json_object_set_new(root, "messages", messages);
	json_object_set_new(root, "frames", frames);
	return json_print(root);
}

int show_drops(struct client *c, int argc, char **argv)
{
	Ringpost__V1__StatsRequest q = RINGPOST__V1__STATS_REQUEST__INIT;
	Ringpost__V1__StatsReply *r;
	struct balance b;
	struct options o;
	int rc = 0;

	if (options_take(&o, "j", 0, 0, argc, argv) != 0)
		return 2;
	q.prefix = (char *)"ringpost_";
	r = ask(c, "/ringpost.v1.Admin/Stats", &q.base, &ringpost__v1__stats_reply__descriptor);
	if (!r)
		return 1;
	balance_of(r, &b);
	if (o.json)
		rc = print_json(r, &b);
	else
		print_text(r, &b);
	ringpost__v1__stats_reply__free_unpacked(r, NULL);
	return rc;
}
