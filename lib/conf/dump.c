/* SPDX-License-Identifier: Apache-2.0 */
#include "conf_priv.h"

#include <string.h>

/* The origin behind each value is a comment, so that the dump is itself a configuration. */
static void print_origin(const struct rp_conf *conf, struct conf_at at, FILE *out)
{
	const struct conf_origin *o = conf_origin(conf, at);
	const char *was = o->resolved ? ", was auto" : "";

	switch (o->kind) {
	case CONF_FROM_DEFAULT:
		fprintf(out, " # default%s\n", was);
		break;
	case CONF_FROM_FILE:
		fputs(" # ", out);
		/* A name with a newline would end the comment. */
		for (const char *c = conf->memory->file; *c; c++)
			fputc((unsigned char)*c < 0x20 || *c == 0x7f ? '?' : *c, out);
		fprintf(out, ":%u%s\n", o->line, was);
		break;
	case CONF_FROM_FLAG:
		fprintf(out, " # flag%s\n", was);
		break;
	}
}

/* What is printed, and how. */
struct dump {
	struct rp_conf *conf;
	FILE *out;
	bool hides;
};

static void print_value(const struct dump *d, struct conf_at at, const char *indent)
{
	const void *field = conf_field(d->conf, at);

	fprintf(d->out, "%s%s: ", indent, at.entry->name);
	if (d->hides && at.entry->type == CONF_T_SECRET && (*(const char *const *)field)[0])
		fputs("\"(hidden)\"", d->out);
	else
		conf_value_print(at.entry, field, d->out);
	print_origin(d->conf, at, d->out);
}

static void print_list(const struct dump *d, const struct conf_entry *list)
{
	struct rp_conf *conf = d->conf;
	FILE *out = d->out;
	const char *indent = list->section[0] ? "  " : "";
	char first[16], other[16];

	if (*conf_list_count(conf, list) == 0) {
		fprintf(out, "%s%s: [] # default\n", indent, list->name);
		return;
	}
	fprintf(out, "%s%s:\n", indent, list->name);
	snprintf(first, sizeof(first), "%s  - ", indent);
	snprintf(other, sizeof(other), "%s    ", indent);
	for (unsigned n = 0; n < *conf_list_count(conf, list); n++) {
		bool is_first = true;

		for (unsigned i = 0; i < conf_item_entries_count; i++) {
			const struct conf_entry *e = &conf_item_entries[i];

			if (strcmp(e->section, list->item) != 0)
				continue;
			print_value(d, conf_at_item(list, n, e), is_first ? first : other);
			is_first = false;
		}
	}
}

static void dump(const struct rp_conf *conf, FILE *out, bool hides)
{
	/* conf_field() takes what it may write to; nothing is written here. */
	const struct dump d = {(struct rp_conf *)(uintptr_t)conf, out, hides};

	for (unsigned i = 0; i < conf_entries_count; i++) {
		const struct conf_entry *e = &conf_entries[i];

		if (e->kind == CONF_SECTION)
			fprintf(out, "%s:\n", e->name);
		else if (e->kind == CONF_LIST)
			print_list(&d, e);
		else
			print_value(&d, (struct conf_at){.entry = e}, e->section[0] ? "  " : "");
	}
}

void rp_conf_dump(const struct rp_conf *conf, FILE *out)
{
	dump(conf, out, false);
}

void rp_conf_dump_hidden(const struct rp_conf *conf, FILE *out)
{
	dump(conf, out, true);
}

void rp_conf_plan_print(const struct rp_conf_plan *plan, FILE *out)
{
	fprintf(out, "shards: %u, %s\n", plan->shards_count,
		plan->poll ? "polling without a pause" : "sleeping when idle");
	for (unsigned i = 0; i < plan->shards_count; i++)
		fprintf(out, "  shard %u: CPU %u\n", i, plan->shard_cpus[i]);
	if (plan->control_cpu >= 0)
		fprintf(out, "control thread: CPU %d\n", plan->control_cpu);
	else
		fprintf(out, "control thread: any CPU\n");
	fprintf(out, "memory: %u MiB, %s\n", plan->memory_mib,
		plan->hugepages ? "in hugepages" : "without hugepages");
	fprintf(out, "links: over %s\n",
		plan->over_tcp ? "our TCP on the ports" : "kernel sockets");
}
