/* SPDX-License-Identifier: Apache-2.0 */

/* `stats`: counters and gauges. */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include <ringpost/v1/admin.pb-c.h>

#include "client.h"
#include "json.h"

static int by_name(const void *a, const void *b)
{
	const Ringpost__V1__Metric *const *x = a, *const *y = b;
	int c = strcmp((*x)->name, (*y)->name);

	return c ? c : strcmp((*x)->labels, (*y)->labels);
}

/* One metric a name: the first has the sum, and no labels. */
static void sum_up(Ringpost__V1__StatsReply *r)
{
	size_t n = 0;

	for (size_t i = 0; i < r->n_metrics; i++) {
		Ringpost__V1__Metric *m = r->metrics[i];

		if (n > 0 && !strcmp(r->metrics[n - 1]->name, m->name)) {
			r->metrics[n - 1]->value += m->value;
			ringpost__v1__metric__free_unpacked(m, NULL);
			continue;
		}
		/* An empty one is a constant. */
		if (m->labels[0] != '\0')
			m->labels[0] = '\0';
		r->metrics[n++] = m;
	}
	r->n_metrics = n;
}

static bool is_whole(const Ringpost__V1__Metric *m)
{
	return m->parts <= 1;
}

static void print_text(const Ringpost__V1__StatsReply *r)
{
	for (size_t i = 0; i < r->n_metrics; i++) {
		const Ringpost__V1__Metric *m = r->metrics[i];

		printf(m->labels[0] ? "%s{%s} " : "%s%s ", m->name, m->labels);
		if (is_whole(m))
			printf("%" PRIu64 "\n", m->value);
		else
			printf("%.9g\n", (double)m->value / (double)m->parts);
	}
}

/* name="text",name="text": with a backslash before quotes and backslashes in the text. */
static json_t *labels_json(const char *labels)
{
	json_t *o = json_object();

	while (*labels) {
		char name[64], text[600];
		size_t n = strcspn(labels, "="), m = 0;

		if (n >= sizeof(name) || labels[n] != '=' || labels[n + 1] != '"')
			break;
		memcpy(name, labels, n);
		name[n] = '\0';
		for (labels += n + 2; *labels && *labels != '"'; labels++) {
			labels += *labels == '\\' && labels[1];
			if (m + 1 < sizeof(text))
				text[m++] = *labels;
		}
		text[m] = '\0';
		json_object_set_new(o, name, json_text(text));
		labels += *labels == '"';
		labels += *labels == ',';
	}
	return o;
}

static int print_json(const Ringpost__V1__StatsReply *r)
{
	json_t *root = json_head("ringpost.stats", r->node), *metrics = json_array();

	for (size_t i = 0; i < r->n_metrics; i++) {
		const Ringpost__V1__Metric *m = r->metrics[i];

		json_array_append_new(metrics,
			json_pack("{s:s, s:o, s:s, s:o}", "name", m->name, "labels",
				labels_json(m->labels), "help", m->help, "value",
				is_whole(m) ? json_integer((json_int_t)m->value)
					    : json_real((double)m->value / (double)m->parts)));
	}
	json_object_set_new(root, "metrics", metrics);
	return json_print(root);
}

int stats(struct client *c, int argc, char **argv)
{
	Ringpost__V1__StatsRequest q = RINGPOST__V1__STATS_REQUEST__INIT;
	Ringpost__V1__StatsReply *r;
	struct options o;
	int rc = 0;

	if (options_take(&o, "js", 0, 1, argc, argv) != 0)
		return 2;
	if (o.argc > 0)
		q.prefix = o.argv[0];
	r = ask(c, "/ringpost.v1.Admin/Stats", &q.base, &ringpost__v1__stats_reply__descriptor);
	if (!r)
		return 1;
	if (r->n_metrics > 0)
		qsort(r->metrics, r->n_metrics, sizeof(*r->metrics), by_name);
	if (o.sum)
		sum_up(r);
	if (o.json)
		rc = print_json(r);
	else
		print_text(r);
	ringpost__v1__stats_reply__free_unpacked(r, NULL);
	return rc;
}
