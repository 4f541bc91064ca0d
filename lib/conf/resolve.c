/* SPDX-License-Identifier: Apache-2.0 */
#include "conf_priv.h"

#include <ctype.h>
#include <errno.h>
#include <sched.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <base/assert.h>

#define MIB (1ull << 20)
/* EAL itself, rings, and the tables of TCP, links and streams. */
#define MEMORY_BASE_MIB 64u
/* Descriptors, header and payload buffers of one shard on one port. */
#define MEMORY_SHARD_MIB 32u
/*
 * The most that auto takes for messages: a larger queue_bytes wants dpdk.memory_mib said. A node
 * without a port is often one of several on a laptop, and touching its pools is most of its start,
 * which should take well below a second.
 */
#define MEMORY_QUEUES_MAX_MIB 512u
#define MEMORY_QUEUES_PORTLESS_MAX_MIB 64u

int rp_conf_host_read(struct rp_conf_host *host)
{
	cpu_set_t *set = CPU_ALLOC(1024);
	size_t set_bytes = CPU_ALLOC_SIZE(1024);
	unsigned long long kib;
	char line[256];
	FILE *f;

	memset(host, 0, sizeof(*host));
	if (!set)
		return -ENOMEM;
	if (sched_getaffinity(0, set_bytes, set) < 0) {
		CPU_FREE(set);
		return -errno;
	}
	for (unsigned i = 0; i < 1024; i++) {
		if (CPU_ISSET_S(i, set_bytes, set))
			host->cpus[host->cpus_count++] = i;
	}
	CPU_FREE(set);
	f = fopen("/proc/meminfo", "re");
	if (!f)
		return -errno;
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1)
			host->memory_free_bytes = kib * 1024;
		else if (sscanf(line, "HugePages_Free: %llu", &kib) == 1)
			host->hugepages_free = kib;
		else if (sscanf(line, "Hugepagesize: %llu kB", &kib) == 1)
			host->hugepage_bytes = kib * 1024;
	}
	fclose(f);
	return 0;
}

struct resolver {
	struct rp_conf *conf;
	const struct rp_conf_host *host;
	struct rp_conf_plan *plan;
	struct rp_conf_report *report;
	bool failed;
};

__attribute__((format(printf, 3, 4))) static void refuse(
	struct resolver *r, const char *path, const char *format, ...)
{
	char text[512];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	if (r->report->exit_code == RP_EXIT_OK)
		r->report->exit_code = RP_EXIT_HOST;
	conf_say(r->report, RP_CONF_ERROR, (struct conf_place){"", 0, 0}, path, "%s", text);
	r->failed = true;
}

static void mark(struct resolver *r, const char *section, const char *name)
{
	struct conf_at at = {.entry = conf_find(section, name)};

	RP_ASSERT(at.entry);
	conf_origin(r->conf, at)->resolved = true;
}

/* A port that is the machine's, not the kernel's or another process's: PCI address or MAC. */
static bool is_hardware(const struct rp_conf_port *p)
{
	return strncmp(p->device, "net_", 4) != 0 && strncmp(p->device, "eth_", 4) != 0;
}

static bool host_has(const struct rp_conf_host *host, unsigned cpu)
{
	for (unsigned i = 0; i < host->cpus_count; i++) {
		if (host->cpus[i] == cpu)
			return true;
	}
	return false;
}

/* One shard, or for hardware ports one on each CPU but that of the control thread. */
static void auto_cpus(struct resolver *r, bool hardware)
{
	struct rp_conf_plan *plan = r->plan;
	int control = plan->control_cpu;

	if (control < 0 && hardware && r->host->cpus_count > 1)
		control = (int)r->host->cpus[0];
	for (unsigned i = 0; i < r->host->cpus_count; i++) {
		unsigned cpu = r->host->cpus[i];

		if (plan->shards_count == (hardware ? RP_SHARDS_MAX : 1))
			break;
		if ((int)cpu != control)
			plan->shard_cpus[plan->shards_count++] = cpu;
	}
	/* The only CPU is shared. */
	if (plan->shards_count == 0 && r->host->cpus_count > 0)
		plan->shard_cpus[plan->shards_count++] = r->host->cpus[0];
}

static const char *cpus_text(struct resolver *r)
{
	char text[RP_SHARDS_MAX * 6] = "";
	size_t at = 0;

	for (unsigned i = 0; i < r->plan->shards_count; i++)
		at += (size_t)snprintf(
			text + at, sizeof(text) - at, "%s%u", i ? "," : "", r->plan->shard_cpus[i]);
	return conf_text_copy(r->conf->memory, text, at);
}

static void resolve_cpus(struct resolver *r, bool hardware)
{
	struct rp_conf_shards *s = &r->conf->shards;
	struct rp_conf_plan *plan = r->plan;

	plan->control_cpu = s->control_cpu == RP_CONF_AUTO_U32 ? -1 : (int)s->control_cpu;
	if (plan->control_cpu >= 0 && !host_has(r->host, s->control_cpu))
		refuse(r, "shards.control_cpu",
			"CPU %u is not among the %u this process may use; choose one of them or auto",
			s->control_cpu, r->host->cpus_count);
	if (strcmp(s->cpus, "auto") == 0) {
		auto_cpus(r, hardware);
		s->cpus = cpus_text(r);
		mark(r, "shards", "cpus");
	} else {
		int n = rp_conf_cpus_parse(s->cpus, plan->shard_cpus, RP_SHARDS_MAX);

		plan->shards_count = n > 0 ? (unsigned)n : 0;
	}
	if (plan->shards_count == 0)
		refuse(r, "shards.cpus", "no CPU for a shard: the process may use none");
	for (unsigned i = 0; i < plan->shards_count; i++) {
		if (!host_has(r->host, plan->shard_cpus[i]))
			refuse(r, "shards.cpus",
				"CPU %u is not among the %u this process may use; choose others, or widen its affinity",
				plan->shard_cpus[i], r->host->cpus_count);
	}
	if (r->conf->links.per_peer > plan->shards_count)
		refuse(r, "links.per_peer",
			"%u links of a bundle on %u shards; expected at most as many links as shards",
			r->conf->links.per_peer, plan->shards_count);
}

/* Shards that poll take their CPU whole, so a second one on it would starve. */
static void resolve_idle(struct resolver *r, bool hardware)
{
	struct rp_conf_shards *s = &r->conf->shards;
	const struct rp_conf_plan *plan = r->plan;

	if (s->idle == RP_CONF_IDLE_AUTO) {
		s->idle = hardware ? RP_CONF_IDLE_POLL : RP_CONF_IDLE_ADAPTIVE;
		mark(r, "shards", "idle");
	}
	r->plan->poll = s->idle == RP_CONF_IDLE_POLL;
	for (unsigned i = 0; i < plan->shards_count && plan->poll; i++) {
		for (unsigned j = 0; j < i; j++) {
			if (plan->shard_cpus[i] == plan->shard_cpus[j])
				refuse(r, "shards.cpus",
					"CPU %u is given to two shards that poll; give each its own, or idle: adaptive",
					plan->shard_cpus[i]);
		}
	}
}

static void resolve_memory(struct resolver *r)
{
	struct rp_conf_dpdk *d = &r->conf->dpdk;
	const struct rp_conf_host *host = r->host;
	unsigned ports = r->conf->ports_count, shards = r->plan->shards_count;
	uint64_t queues_mib = RP_MIN(r->conf->limits.queue_bytes / MIB * 5 / 4,
		ports ? MEMORY_QUEUES_MAX_MIB * 5 / 4 : MEMORY_QUEUES_PORTLESS_MAX_MIB);
	uint64_t have = host->hugepages_free * host->hugepage_bytes / MIB;

	if (d->memory_mib == RP_CONF_AUTO_U32) {
		d->memory_mib = MEMORY_BASE_MIB + (uint32_t)queues_mib +
				MEMORY_SHARD_MIB * (ports ? ports * shards : shards - 1);
		mark(r, "dpdk", "memory_mib");
	}
	if (d->hugepages == RP_CONF_TRI_AUTO) {
		bool on = r->conf->ports_count > 0 && have >= d->memory_mib;

		d->hugepages = on ? RP_CONF_TRI_ON : RP_CONF_TRI_OFF;
		r->plan->hugepages_chosen = on;
		mark(r, "dpdk", "hugepages");
	}
	r->plan->memory_mib = d->memory_mib;
	r->plan->hugepages = d->hugepages == RP_CONF_TRI_ON;
	if (r->plan->hugepages && have < d->memory_mib)
		refuse(r, "dpdk.hugepages",
			"%u MiB wanted, %llu MiB free (%llu pages of %llu KiB); write more to /proc/sys/vm/nr_hugepages, lower dpdk.memory_mib, or dpdk.hugepages: off",
			d->memory_mib, (unsigned long long)have,
			(unsigned long long)host->hugepages_free,
			(unsigned long long)(host->hugepage_bytes / 1024));
	if (!r->plan->hugepages && host->memory_free_bytes / MIB < d->memory_mib)
		refuse(r, "dpdk.memory_mib",
			"%u MiB wanted, %llu MiB available; lower dpdk.memory_mib or limits.queue_bytes",
			d->memory_mib, (unsigned long long)(host->memory_free_bytes / MIB));
}

static void resolve_ports(struct resolver *r)
{
	struct rp_conf *conf = r->conf;

	for (unsigned i = 0; i < conf->ports_count; i++) {
		struct conf_at at = {.list = conf_find("", "ports"), .index = i};

		at.entry = conf_item_find("port", "rings");
		if (conf->ports[i].rings != RP_CONF_AUTO_U32)
			continue;
		conf->ports[i].rings = r->plan->shards_count;
		conf_origin(conf, at)->resolved = true;
	}
	if (conf->links.transport == RP_CONF_TRANSPORT_AUTO) {
		conf->links.transport =
			conf->ports_count > 0 ? RP_CONF_TRANSPORT_TCP : RP_CONF_TRANSPORT_KTCP;
		mark(r, "links", "transport");
	}
	r->plan->over_tcp = conf->links.transport == RP_CONF_TRANSPORT_TCP;
}

int rp_conf_resolve(struct rp_conf *conf, const struct rp_conf_host *host,
	struct rp_conf_plan *plan, struct rp_conf_report *report)
{
	struct resolver r = {conf, host, plan, report, false};
	bool hardware = false;

	memset(plan, 0, sizeof(*plan));
	for (unsigned i = 0; i < conf->ports_count; i++)
		hardware = hardware || is_hardware(&conf->ports[i]);
	resolve_cpus(&r, hardware);
	resolve_idle(&r, hardware);
	resolve_memory(&r);
	resolve_ports(&r);
	return r.failed ? -EINVAL : 0;
}
