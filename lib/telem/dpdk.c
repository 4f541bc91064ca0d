/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include <stats/drops.h>
#include <telem/dpdk.h>

/** An entry is for what was left out. */
#define ENTRIES_MAX (RTE_TEL_MAX_DICT_ENTRIES - 1)

static bool has_label(const char *labels, const char *label)
{
	size_t n = strlen(label);

	for (const char *p = labels; (p = strstr(p, label)) != NULL; p += n)
		if ((p == labels || p[-1] == ',') && (p[n] == ',' || p[n] == '\0'))
			return true;
	return false;
}

/* Sums by id; a histogram's is how many values it has. False: there is none. */
static bool sum_of(
	const struct rp_metrics *m, enum rp_metric_id id, const char *label, uint64_t *sum)
{
	bool any = false;

	*sum = 0;
	for (size_t i = 0; i < m->count; i++)
		if (m->items[i].id == id && (!label || has_label(m->items[i].labels, label))) {
			*sum += m->items[i].value;
			any = true;
		}
	return any;
}

static void name_of(const struct rp_metric_info *info, char *out, size_t size)
{
	const char *unit = rp_metric_unit_name(info->unit), *as = "";
	size_t n = strlen(info->name);

	if (info->kind == RP_METRIC_KIND_HISTOGRAM) {
		snprintf(out, size, "%s_count", info->name);
		return;
	}
	if (info->unit == RP_METRIC_UNIT_NS)
		as = "ns";
	else if (info->unit == RP_METRIC_UNIT_US)
		as = "us";
	else if (info->unit == RP_METRIC_UNIT_PPM)
		as = "ppm";
	if (as[0])
		n -= strlen(unit);
	snprintf(out, size, "%.*s%s", (int)n, info->name, as);
}

int rp_telem_metrics(struct rte_tel_data *d, const struct rp_metrics *m, const char *prefix,
	const char *label, unsigned skip)
{
	unsigned seen = 0, written = 0;
	size_t length = strlen(prefix);

	rte_tel_data_start_dict(d);
	for (unsigned id = 0; id < RP_METRIC_COUNT; id++) {
		const struct rp_metric_info *info = &rp_metric_infos[id];
		char name[RTE_TEL_MAX_STRING_LEN];
		uint64_t sum;

		if (strncmp(info->name, prefix, length) != 0 || !sum_of(m, id, label, &sum) ||
			seen++ < skip)
			continue;
		if (written == ENTRIES_MAX)
			return rte_tel_data_add_dict_u64(d, "next", seen - 1);
		name_of(info, name, sizeof(name));
		if (rte_tel_data_add_dict_u64(d, name, sum) < 0)
			return -1;
		written++;
	}
	return 0;
}

static uint64_t queue_sum(const struct rp_metrics *m, const char *counter)
{
	char name[96];
	uint64_t sum = 0;

	snprintf(name, sizeof(name), "ringpost_queue_%s", counter);
	for (unsigned id = 0; id < RP_METRIC_COUNT; id++)
		if (strcmp(rp_metric_infos[id].name, name) == 0)
			(void)sum_of(m, id, NULL, &sum);
	return sum;
}

int rp_telem_drops(struct rte_tel_data *d, const struct rp_metrics *m)
{
	uint64_t fates[RP_FATE_REASON + 1] = {0};
	uint64_t held = queue_sum(m, "messages") - queue_sum(m, "handing");

	rte_tel_data_start_dict(d);
	for (unsigned i = 0; i < rp_message_fates_count; i++) {
		const struct rp_message_fate *f = &rp_message_fates[i];
		uint64_t n = queue_sum(m, f->counter);

		fates[f->fate] += n;
		if (f->fate == RP_FATE_REASON && n > 0 &&
			rte_tel_data_add_dict_u64(d, f->counter, n) < 0)
			return -1;
	}
	rte_tel_data_add_dict_u64(d, "in", fates[RP_FATE_IN]);
	rte_tel_data_add_dict_u64(d, "delivered", fates[RP_FATE_DELIVERED]);
	rte_tel_data_add_dict_u64(d, "passed_on", fates[RP_FATE_PASSED]);
	rte_tel_data_add_dict_u64(d, "held", held);
	return rte_tel_data_add_dict_u64(d, "lost",
		fates[RP_FATE_IN] - fates[RP_FATE_DELIVERED] - fates[RP_FATE_PASSED] -
			fates[RP_FATE_REASON] - held);
}
