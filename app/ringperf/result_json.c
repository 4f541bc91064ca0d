/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <jansson.h>

#include <rte_version.h>

#include "git.h"
#include "result_json.h"

static const char *const names[PERF_PERCENTS] = {
	"p50", "p75", "p90", "p95", "p99", "p99.9", "p99.99", "p99.999", "max"};

static json_t *times_json(const struct perf_times *t)
{
	json_t *o = json_object();

	for (unsigned i = 0; i < PERF_PERCENTS; i++)
		json_object_set_new(o, names[i], json_real((double)t->ns[i] / 1000));
	json_object_set_new(o, "mean", json_real((double)t->mean_ns / 1000));
	return o;
}

static json_t *hist_json(const struct rp_hist *h)
{
	struct perf_times t;

	perf_times_of(h, &t);
	return times_json(&t);
}

static json_t *one_way_json(const struct perf_run *r)
{
	const char *why = perf_far_without(&r->far);

	if (why)
		return json_pack("{s:s, s:s}", "of", r->mode->one_way, "not_available", why);
	return json_pack("{s:s, s:o, s:o}", "of", r->mode->one_way, "corrected",
		times_json(&r->far.corrected), "raw", times_json(&r->far.raw));
}

static json_t *load_json(const struct perf_load *l)
{
	json_t *o = json_object();

#define X(name, text) json_object_set_new(o, #name, json_integer((json_int_t)l->name));
	PERF_LOADS(X)
#undef X
	return o;
}

static json_t *series_json(const struct perf_pace *p)
{
	json_t *a = json_array();

	for (unsigned i = 0; i < PERF_SERIES_MAX; i++) {
		const struct perf_pace_slot *s = &p->series[i];

		if (s->count > 0)
			json_array_append_new(
				a, json_pack("[f, I, f, f]", (double)(i * p->slot_ns) / 1e6,
					   (json_int_t)s->count,
					   (double)s->sum_ns / (double)s->count / 1000,
					   (double)s->max_ns / 1000));
	}
	return a;
}

/* The value of a line of a file, "" where there is none. */
static void line_of(const char *path, const char *key, char *out, size_t size)
{
	FILE *f = fopen(path, "r");
	char line[256], *p;

	out[0] = '\0';
	while (f && fgets(line, sizeof(line), f))
		if (strncmp(line, key, strlen(key)) == 0) {
			p = line + strlen(key);
			p += strspn(p, " \t:=\"");
			p[strcspn(p, "\"\n")] = '\0';
			snprintf(out, size, "%s", p);
			break;
		}
	if (f)
		fclose(f);
}

static json_t *machine_json(const struct perf_host *h)
{
	char processor[128], os[128];
	struct utsname u;

	uname(&u);
	line_of("/proc/cpuinfo", "model name", processor, sizeof(processor));
	line_of("/etc/os-release", "PRETTY_NAME", os, sizeof(os));
	return json_pack("{s:s, s:I, s:i, s:s, s:s, s:b, s:s}", "processor", processor, "cores",
		(json_int_t)sysconf(_SC_NPROCESSORS_ONLN), "cpu",
		h->options->cpu == RP_EAL_CPU_ANY ? -1 : (int)h->options->cpu, "system", os,
		"kernel", u.release, "hugepages", h->eal.hugepages, "idle",
		h->options->adaptive ? "adaptive" : "poll");
}

static json_t *ports_json(const struct perf_host *h)
{
	static const struct {
		const char *name;
		uint32_t flag;
	} offloads[] = {{"tx_checksum", RP_PORT_TX_TCP_CKSUM}, {"rx_checksum", RP_PORT_RX_CKSUM},
		{"tx_chains", RP_PORT_TX_CHAINS}, {"rx_chains", RP_PORT_RX_CHAINS},
		{"tso", RP_PORT_TX_TSO}};
	json_t *a = json_array();

	for (unsigned i = 0; i < h->worker.port_count; i++) {
		const struct rp_port_info *p = &h->port_infos[i];
		json_t *on = json_array();

		for (unsigned k = 0; k < RP_ARRAY_SIZE(offloads); k++)
			if (p->flags & offloads[k].flag)
				json_array_append_new(on, json_string(offloads[k].name));
		json_array_append_new(a,
			json_pack("{s:s, s:s, s:i, s:i, s:i, s:o}", "device", p->device, "driver",
				p->driver, "mtu", p->mtu, "rx_descriptors", p->rx_descriptors,
				"tx_descriptors", p->tx_descriptors, "offloads", on));
	}
	return a;
}

static json_t *forward_json(const struct perf_run *r)
{
	json_t *a = json_array();

	for (unsigned i = 0; i < r->worker->port_count; i++) {
		const struct perf_forward *f = &r->forward[i];

		json_array_append_new(
			a, json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "rx_packets",
				   (json_int_t)f->rx_packets, "rx_bytes", (json_int_t)f->rx_bytes,
				   "rx_bursts", (json_int_t)f->bursts, "tx_packets",
				   (json_int_t)f->tx_packets, "tx_bytes", (json_int_t)f->tx_bytes,
				   "tx_dropped", (json_int_t)f->tx_dropped));
	}
	return a;
}

static json_t *trials_json(const struct perf_result_set *s)
{
	json_t *a = json_array();

	for (unsigned i = 0; i < s->trial_count; i++) {
		const struct perf_trial *t = &s->trials[i];

		json_array_append_new(a, json_pack("{s:f, s:f, s:b}", "rate", t->rate, "achieved",
						 t->verdict.achieved, "good", t->good));
	}
	return a;
}

static json_t *setting_json(const struct perf_result_set *s)
{
	const struct perf_options *o = s->host->options;
	const struct perf_run *r = s->run;
	const char *transport = r->mode->needs == PERF_NEEDS_SOCKETS ? "grpc"
				: o->device_count > 0		     ? "tcp"
								     : "ktcp";

	if (r->mode->needs == PERF_NEEDS_FRAMES)
		transport = "raw";
	return json_pack("{s:s, s:i, s:i, s:i, s:f, s:f, s:f, s:i, s:i}", "transport", transport,
		"size", (int)o->size, "connections", (int)o->connections, "window", (int)o->window,
		"seconds", (double)o->run_ns / 1e9, "warmup_s", (double)o->warmup_ns / 1e9,
		"cool_s", (double)o->cool_ns / 1e9, "keys", (int)o->keys, "watchers",
		(int)o->watchers);
}

bool perf_json_write(FILE *f, const struct perf_result_set *s)
{
	const struct perf_run *r = s->run;
	const struct perf_pace *p = &r->pace;
	struct perf_verdict v;
	json_t *root;
	bool good;

	perf_pace_verdict(p, &v);
	root = json_pack("{s:s, s:i, s:s, s:b, s:o, s:o, s:o, s:{s:s, s:s, s:s, s:s}}", "kind",
		"ringperf.run", "version", 1, "mode", r->mode->name, "good",
		perf_result_good_set(s), "setting", setting_json(s), "machine",
		machine_json(s->host), "ports", ports_json(s->host), "versions", "ringperf",
		RP_VERSION, "git", RP_GIT, "dpdk", rte_version(), "compiler", __VERSION__);
	if (r->mode->needs == PERF_NEEDS_FRAMES) {
		json_object_set_new(root, "forward", forward_json(r));
	} else {
		json_object_set_new(root, "rate",
			json_pack("{s:f, s:f, s:b, s:I, s:I, s:I, s:I}", "wanted", v.wanted,
				"achieved", v.achieved, "met", v.met, "done", (json_int_t)p->done,
				"open", (json_int_t)v.open, "lost", (json_int_t)p->lost, "wrong",
				(json_int_t)r->faults));
		if (r->mode->unit)
			json_object_set_new(root, "units",
				json_pack("{s:s, s:f}", "of", r->mode->unit, "per_s",
					(double)p->units * 1e9 / (double)p->config.run_ns));
	}
	if (r->mode->measures) {
		json_object_set_new(root, "latency_us",
			json_pack("{s:s, s:o, s:o}", "of", r->mode->measures, "corrected",
				hist_json(&p->corrected), "raw", hist_json(&p->raw)));
		json_object_set_new(root, "series", series_json(p));
	}
	if (r->mode->one_way)
		json_object_set_new(root, "one_way_us", one_way_json(r));
	if (r->load.messages > 0)
		json_object_set_new(root, "load", load_json(&r->load));
	if (r->far.known)
		json_object_set_new(root, "load_other_end", load_json(&r->far.load));
	if (s->trial_count > 0)
		json_object_set_new(root, "search", trials_json(s));
	good = json_dumpf(root, f, JSON_INDENT(1)) == 0 && fputc('\n', f) != EOF;
	json_decref(root);
	return good;
}
