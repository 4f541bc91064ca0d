/* SPDX-License-Identifier: Apache-2.0 */
#include "conf_priv.h"

#include <string.h>

#include <base/assert.h>

static const struct {
	const char *flag, *help;
} request_flags[] = {
	{"--config FILE",
		"read FILE; without it config.yml of the working directory, if it is there"},
	{"--check-config", "say what is wrong with the configuration and end"},
	{"--dump-config", "print the whole configuration with each value's origin and end"},
	{"--dry-run", "print the plan for host, memory and cores and end"},
	{"--version", "print the version and end"},
	{"--help", "print this and end"},
};

static const struct {
	int status;
	const char *help, *remedy;
} statuses[] = {
	{RP_EXIT_OK, "ended by a signal, or a request that only prints", ""},
	{RP_EXIT_USAGE, "usage: a flag that does not exist, or without a value that fits",
		"--help lists them"},
	{RP_EXIT_LISTEN, "a listener or a signal could not be set up",
		"the address is taken, or its folder is not there: choose another"},
	{RP_EXIT_CONF, "configuration, each error with file:line:column", "mend the file"},
	{RP_EXIT_SERVE, "serving failed", "the log's last line says why"},
	{RP_EXIT_START, "start failed: secret, certificates, uuid", "the message names the file"},
	{RP_EXIT_HOST, "the host is not prepared: hugepages, CPUs, memory",
		"write more to /proc/sys/vm/nr_hugepages, or lower dpdk.memory_mib"},
	{RP_EXIT_PORT, "a port cannot be had", "the message names the port, and what DPDK said"},
};

/* Calls `each` for every knob, item knobs at their list, with the help of section or list at its
 * start. */
static void each_knob(void (*head)(const struct conf_entry *e, FILE *out),
	void (*each)(struct conf_at at, FILE *out), FILE *out)
{
	for (unsigned i = 0; i < conf_entries_count; i++) {
		const struct conf_entry *e = &conf_entries[i];

		if (e->kind == CONF_KNOB) {
			each((struct conf_at){.entry = e}, out);
			continue;
		}
		head(e, out);
		if (e->kind == CONF_SECTION)
			continue;
		for (unsigned j = 0; j < conf_item_entries_count; j++) {
			if (strcmp(conf_item_entries[j].section, e->item) == 0)
				each(conf_at_item(e, 0, &conf_item_entries[j]), out);
		}
	}
}

static const char *default_text(const struct conf_entry *e)
{
	return e->text[0] ? e->text : conf_is_list(e) ? "[]" : "\"\"";
}

static const char *change_text(
	const struct conf_entry *e, const char *live, const char *fixed, const char *unused)
{
	return e->change == CONF_LIVE ? live : e->change == CONF_FIXED ? fixed : unused;
}

static void help_head(const struct conf_entry *e, FILE *out)
{
	char flag[160];

	if (e->kind == CONF_SECTION) {
		fprintf(out, "\n%s: %s\n", e->name, e->help);
		return;
	}
	conf_flag_name((struct conf_at){.entry = e}, flag, sizeof(flag));
	fprintf(out, "\n%s%s%s[]: %s\n", e->section, e->section[0] ? "." : "", e->name, e->help);
	fprintf(out, "  The n-th time a flag is given is for entry n; %s-0-... names the entry.\n",
		flag);
}

static void help_knob(struct conf_at at, FILE *out)
{
	const struct conf_entry *e = at.entry;
	char flag[160], expected[256];

	conf_flag_name(at, flag, sizeof(flag));
	conf_expected(e, expected, sizeof(expected));
	fprintf(out, "  %s\n        %s\n        %s; default %s%s\n", flag, e->help, expected,
		default_text(e), change_text(e, "; can change live", "", "; no effect yet"));
}

void rp_conf_help(FILE *out)
{
	fputs("usage: ringpostd [--config FILE] [--flag=value ...]\n\n", out);
	for (unsigned i = 0; i < RP_ARRAY_SIZE(request_flags); i++)
		fprintf(out, "  %-18s %s\n", request_flags[i].flag, request_flags[i].help);
	fputs("\nEvery knob of the file is a flag, and a flag wins:\n\n", out);
	each_knob(help_head, help_knob, out);
	fputs("\nstatus\n", out);
	for (unsigned i = 0; i < RP_ARRAY_SIZE(statuses); i++)
		fprintf(out, "  %2d  %s\n", statuses[i].status, statuses[i].help);
}

static void markdown_table_head(FILE *out)
{
	fputs("\n| key | default | expected | live | meaning |\n|---|---|---|---|---|\n", out);
}

static void markdown_head(const struct conf_entry *e, FILE *out)
{
	if (e->kind == CONF_SECTION)
		fprintf(out, "\n## `%s`: %s\n", e->name, e->help);
	else
		fprintf(out, "\n## `%s%s%s[]`: %s\n\nAt most %u entries.\n", e->section,
			e->section[0] ? "." : "", e->name, e->help, e->bound);
	markdown_table_head(out);
}

/* A cell of a table ends at a bar. */
static void markdown_cell(const char *text, FILE *out)
{
	for (; *text; text++)
		fprintf(out, *text == '|' ? "\\%c" : "%c", *text);
}

static void markdown_knob(struct conf_at at, FILE *out)
{
	const struct conf_entry *e = at.entry;
	char expected[256];

	conf_expected(e, expected, sizeof(expected));
	fprintf(out, "| `%s` | `%s` | ", e->name, default_text(e));
	markdown_cell(expected, out);
	fprintf(out, " | %s | ", change_text(e, "yes", "no", "no effect yet"));
	markdown_cell(e->help, out);
	fputs(" |\n", out);
}

void rp_conf_help_markdown(FILE *out)
{
	fputs("# Configuration\n\n"
	      "This page is made from the table in `lib/conf/knobs.def` (`conf_docs markdown` writes it, a test compares it).\n\n"
	      "`ringpostd` reads `config.yml` of its working directory, or the file of `--config`. Without a file the\n"
	      "defaults stand. Every key is also a flag: `links.per_peer` is `--links-per-peer`, and a flag wins over the\n"
	      "file. Flags of a list are counted (`--ports-device a --ports-device b`) or name their entry\n"
	      "(`--ports-1-device b`). Keys of etcd that have no use here are accepted and named in one warning; a hyphen in\n"
	      "a key counts as an underscore. `--dump-config` prints every value with its origin.\n\n"
	      "A key marked live changes while the node runs: SIGHUP or `ringpostctl reload` reads file and flags again, as a whole,\n"
	      "and names what wants a restart ([operations.md](operations.md#reload)). `ringpostctl config` prints what is in force.\n"
	      "A key with no effect yet is checked, and named in a warning when it is set.\n\n"
	      "## Top level\n",
		out);
	markdown_table_head(out);
	each_knob(markdown_head, markdown_knob, out);
	fputs("\n## Exit status\n\n| status | meaning | remedy |\n|---|---|---|\n", out);
	for (unsigned i = 0; i < RP_ARRAY_SIZE(statuses); i++)
		fprintf(out, "| %d | %s | %s |\n", statuses[i].status, statuses[i].help,
			statuses[i].remedy);
}

/* scdoc takes a backslash before what it would read as markup. */
static void man_text(const char *text, FILE *out)
{
	for (; *text; text++) {
		if (strchr("_*\\<>#[]|~", *text))
			fputc('\\', out);
		fputc(*text, out);
	}
}

static void man_head(const struct conf_entry *e, FILE *out)
{
	fputs("\n## ", out);
	man_text(e->name, out);
	fputs("\n\n", out);
	man_text(e->help, out);
	fputs("\n", out);
}

static void man_knob(struct conf_at at, FILE *out)
{
	const struct conf_entry *e = at.entry;
	char flag[160], expected[256];

	conf_flag_name(at, flag, sizeof(flag));
	conf_expected(e, expected, sizeof(expected));
	fputs("\n*", out);
	man_text(flag, out);
	fputs("* (", out);
	man_text(e->name, out);
	fputs(")\n\t", out);
	man_text(e->help, out);
	fputs(". Expected: ", out);
	man_text(expected, out);
	fputs(". Default: ", out);
	man_text(default_text(e), out);
	fputs(change_text(e, ". Can change live.\n", ".\n", ". No effect yet.\n"), out);
}

static void man_status(int status, const char *help, const char *remedy, FILE *out)
{
	fprintf(out, "\n*%d*\n\t", status);
	man_text(help, out);
	fputs(remedy[0] ? "; " : "", out);
	man_text(remedy, out);
	fputs("\n", out);
}

void rp_conf_help_man(FILE *out)
{
	fputs("ringpostd(8)\n\n# NAME\n\nringpostd - dispatcher appliance with the etcd v3 API\n\n"
	      "# SYNOPSIS\n\n*ringpostd* [*--config* _FILE_] [*--flag*=_value_]...\n\n"
	      "# DESCRIPTION\n\n"
	      "Takes messages and process requests in through the etcd v3 API and hands each to exactly one\n"
	      "consumer, on this host or on another. Without any configuration it is one node on localhost:2379.\n\n"
	      "# OPTIONS\n",
		out);
	for (unsigned i = 0; i < RP_ARRAY_SIZE(request_flags); i++) {
		fputs("\n*", out);
		man_text(request_flags[i].flag, out);
		fputs("*\n\t", out);
		man_text(request_flags[i].help, out);
		fputs("\n", out);
	}
	fputs("\n# CONFIGURATION\n\nEvery key of the file is a flag, and a flag wins.\n", out);
	each_knob(man_head, man_knob, out);
	fputs("\n# EXIT STATUS\n", out);
	for (unsigned i = 0; i < RP_ARRAY_SIZE(statuses); i++)
		man_status(statuses[i].status, statuses[i].help, statuses[i].remedy, out);
	fputs("\n# SIGNALS\n\n*SIGTERM*, *SIGINT*\n"
	      "\tStop in order, within *stop.grace\\_ms*; a second one ends at once.\n\n"
	      "*SIGHUP*\n\tReads file and flags again, and the certificates. What can change live does; what wants a\n"
	      "\trestart is named in the log and left; with an error nothing changes. *ringpostctl reload*\n"
	      "\tdoes the same and prints what came of it.\n\n"
	      "# FILES\n\n_config.yml_\n\tThe configuration, in the working directory.\n\n"
	      "_/run/dpdk/ringpost-<uuid>_\n\tDPDK's files of the node; removed at its start and stop.\n",
		out);
	fputs("\n# SEE ALSO\n\n*ringpostctl*(1), *etcdctl*(1)\n", out);
}
