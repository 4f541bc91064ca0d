/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>

#include <base/log.h>
#include <port/eal.h>

#include "port_priv.h"

#define HUGEPAGE_BYTES (2ull << 20)
#define HUGEPAGES_FREE "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages"
#define MEMORY_MIB_DEFAULT 128
#define ARGUMENTS_MAX 48
#define LCORES_TEXT_SIZE 4096
/** Per mbuf: mempool's header and trailer, and padding to cache lines. */
#define POOL_OBJECT_OVERHEAD 128
/** Per pool: the pool itself with a cache for each of DPDK's lcores, the stack, the memzones. */
#define POOL_OVERHEAD (2ull << 20)
#define POOL_CACHE_MAX 256
/** Hugepages that stay free for what EAL takes besides. */
#define HUGEPAGES_SPARE 4
/** How long another process's start is waited for, when hugepages are to be shared out. */
#define LOCK_STEPS 500
#define LOCK_STEP_US 10000

struct arguments {
	char *value[ARGUMENTS_MAX + 1];
	int count;
	bool overflow;
};

static struct {
	bool started, stopped;
	char runtime_dir[256];
	struct arguments arguments; /* EAL may look at the texts until it is cleaned up */
} state;

void rp_eal_config_init(struct rp_eal_config *config)
{
	*config = (struct rp_eal_config){.main_cpu = RP_EAL_CPU_ANY};
	for (unsigned i = 0; i < RP_SHARDS_MAX; i++)
		config->shard_cpu[i] = RP_EAL_CPU_ANY;
}

uint64_t rp_eal_hugepages_free(void)
{
	FILE *f = fopen(HUGEPAGES_FREE, "re");
	unsigned long long count = 0;

	if (!f)
		return 0;
	if (fscanf(f, "%llu", &count) != 1)
		count = 0;
	fclose(f);
	return count;
}

__attribute__((format(printf, 2, 3))) static void add(struct arguments *a, const char *format, ...)
{
	va_list args;

	if (a->count >= ARGUMENTS_MAX) {
		a->overflow = true;
		return;
	}
	va_start(args, format);
	if (vasprintf(&a->value[a->count], format, args) < 0) {
		a->value[a->count] = NULL;
		a->overflow = true;
	} else {
		a->count++;
	}
	va_end(args);
}

static void drop(struct arguments *a)
{
	for (int i = 0; i < a->count; i++)
		free(a->value[i]);
	a->count = 0;
}

/* "0,2-3" of the CPUs in `set`. */
static void format_cpus(const cpu_set_t *set, char *text, size_t size)
{
	size_t length = 0;

	text[0] = '\0';
	for (int cpu = 0; cpu < CPU_SETSIZE && length < size; cpu++) {
		int last = cpu;

		if (!CPU_ISSET(cpu, set))
			continue;
		while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, set))
			last++;
		length += (size_t)snprintf(text + length, size - length,
			last > cpu ? "%s%d-%d" : "%s%d", length > 0 ? "," : "", cpu, last);
		cpu = last;
	}
}

/* "0@0,1@1,2@(0-1)": shard i is lcore i, the main lcore comes behind them. */
static int format_lcores(
	const struct rp_eal_config *c, char *text, size_t size, char *error, size_t error_size)
{
	cpu_set_t set;
	char any[1024];
	size_t length = 0;

	CPU_ZERO(&set);
	if (sched_getaffinity(0, sizeof(set), &set) < 0)
		return port_fail(error, error_size, -errno,
			"cannot read the CPUs of this process: %s", strerror(errno));
	format_cpus(&set, any, sizeof(any));
	for (uint32_t i = 0; i <= c->shards; i++) {
		uint32_t cpu = i < c->shards ? c->shard_cpu[i] : c->main_cpu;
		const char *comma = i > 0 ? "," : "";

		if (cpu == RP_EAL_CPU_ANY) {
			length += (size_t)snprintf(
				text + length, size - length, "%s%u@(%s)", comma, i, any);
		} else if (cpu < CPU_SETSIZE && CPU_ISSET(cpu, &set)) {
			length += (size_t)snprintf(
				text + length, size - length, "%s%u@%u", comma, i, cpu);
		} else {
			return port_fail(error, error_size, -EINVAL,
				"CPU %u is not one that this process may use (%s): choose one of "
				"them, or widen the affinity of the process",
				cpu, any);
		}
		if (length >= size)
			return port_fail(error, error_size, -EINVAL, "too many CPUs to name");
	}
	return 0;
}

/*
 * Between the look at the free hugepages and EAL's taking them, another ringpost that starts must
 * not take them, too: EAL fails for good when it comes up short. The lock file is in the folder
 * that all of DPDK uses; without that folder there is no lock, and the race is as it was.
 */
static int lock_hugepages(const char *runtime_dir)
{
	char path[sizeof(state.runtime_dir) + 32];
	const char *slash = strrchr(runtime_dir, '/');
	int fd;

	snprintf(path, sizeof(path), "%.*s", (int)(slash - runtime_dir), runtime_dir);
	mkdir(path, 0700);
	snprintf(path, sizeof(path), "%.*s/.hugepages.lock", (int)(slash - runtime_dir),
		runtime_dir);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	for (unsigned i = 0; fd >= 0 && i < LOCK_STEPS && flock(fd, LOCK_EX | LOCK_NB) < 0; i++)
		usleep(LOCK_STEP_US);
	return fd;
}

/* True when the kernel lets us have this much in 2 MiB pages: limits of a cgroup count, too. */
static bool hugepages_can_be_had(uint64_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | (21 << MAP_HUGE_SHIFT), -1, 0);

	if (p == MAP_FAILED)
		return false;
	munmap(p, bytes);
	return true;
}

static int choose_hugepages(
	const struct rp_eal_config *c, struct rp_eal_info *info, char *error, size_t error_size)
{
	uint64_t bytes = (uint64_t)info->memory_mib << 20;
	uint64_t wanted = (bytes + HUGEPAGE_BYTES - 1) / HUGEPAGE_BYTES + HUGEPAGES_SPARE;

	info->hugepages_free = rp_eal_hugepages_free();
	info->hugepages = false;
	if (c->hugepages == RP_EAL_HUGEPAGES_OFF)
		return 0;
	info->hugepages =
		info->hugepages_free >= wanted && hugepages_can_be_had(wanted * HUGEPAGE_BYTES);
	if (!info->hugepages && c->hugepages == RP_EAL_HUGEPAGES_ON)
		return port_fail(error, error_size, -ENOMEM,
			"not enough hugepages: %llu of 2 MiB wanted, %llu free (%s): "
			"echo %llu > /proc/sys/vm/nr_hugepages, or set hugepages: auto",
			(unsigned long long)wanted, (unsigned long long)info->hugepages_free,
			HUGEPAGES_FREE, (unsigned long long)(wanted + 8));
	return 0;
}

/* Where EAL puts its sockets and locks: the same choice as EAL makes. */
static void find_runtime_dir(const char *prefix, char *dir, size_t size)
{
	const char *base = getenv("RUNTIME_DIRECTORY");

	if (!base)
		base = geteuid() == 0 ? "/var/run" : getenv("XDG_RUNTIME_DIR");
	snprintf(dir, size, "%s/dpdk/%s", base ? base : "/tmp", prefix);
}

/* Removes the folder and the plain files and sockets in it. */
static void remove_runtime_dir(const char *dir)
{
	DIR *d = opendir(dir);
	const struct dirent *e;

	if (!d)
		return;
	while ((e = readdir(d)) != NULL)
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
			unlinkat(dirfd(d), e->d_name, 0);
	closedir(d);
	rmdir(dir);
}

static void add_extra(struct arguments *a, const char *extra)
{
	while (extra && *extra) {
		size_t length = strcspn(extra, " \t\n");

		if (length > 0)
			add(a, "%.*s", (int)length, extra);
		extra += length + strspn(extra + length, " \t\n");
	}
}

static int check_prefix(const struct rp_eal_config *c, char *error, size_t error_size)
{
	if (c->file_prefix && *c->file_prefix && !strchr(c->file_prefix, '/') &&
		c->file_prefix[0] != '.')
		return 0;
	return port_fail(error, error_size, -EINVAL,
		"a file prefix without '/' is needed, got \"%s\"",
		c->file_prefix ? c->file_prefix : "");
}

static int build(struct arguments *a, const struct rp_eal_config *c, struct rp_eal_info *info,
	char *error, size_t error_size)
{
	char lcores[LCORES_TEXT_SIZE];
	size_t length = 0;
	int rc;

	if (c->shards > RP_SHARDS_MAX)
		return port_fail(error, error_size, -EINVAL, "%u shards: at most %d", c->shards,
			RP_SHARDS_MAX);
	rc = format_lcores(c, lcores, sizeof(lcores), error, error_size);
	if (rc == 0)
		rc = choose_hugepages(c, info, error, error_size);
	if (rc < 0)
		return rc;

	add(a, "%s", c->program ? c->program : "ringpost");
	add(a, "--lcores");
	add(a, "%s", lcores);
	add(a, "--main-lcore");
	add(a, "%u", c->shards);
	add(a, "--file-prefix");
	add(a, "%s", c->file_prefix);
	add(a, "-m");
	add(a, "%u", info->memory_mib);
	/* vhost wants few memory regions: one file holds all segments. */
	add(a, "%s", info->hugepages ? "--in-memory" : "--no-huge");
	add(a, "%s", info->hugepages ? "--single-file-segments" : "--no-shconf");
	if (!c->pci)
		add(a, "--no-pci");
	if (!c->telemetry)
		add(a, "--no-telemetry");
	add_extra(a, c->extra_args);
	if (a->overflow)
		return port_fail(error, error_size, -EINVAL, "too many EAL arguments");
	for (int i = 0; i < a->count && length < sizeof(info->arguments); i++)
		length += (size_t)snprintf(info->arguments + length,
			sizeof(info->arguments) - length, "%s%s", i > 0 ? " " : "", a->value[i]);
	return 0;
}

/* vhost-user ports write to the socket of a peer that may have gone; a handler that is set stays.
 */
static void ignore_sigpipe(void)
{
	struct sigaction now;

	if (sigaction(SIGPIPE, NULL, &now) == 0 && !(now.sa_flags & SA_SIGINFO) &&
		now.sa_handler == SIG_DFL)
		signal(SIGPIPE, SIG_IGN);
}

static int init(struct arguments *a, bool telemetry, struct rp_eal_info *info, char *error,
	size_t error_size)
{
	char reason[RP_PORT_ERROR_SIZE];
	uint64_t mark;
	int rc;

	if (park_intr_bind() < 0 || port_log_open() < 0) {
		drop(a);
		return port_fail(error, error_size, -ENOSYS,
			"cannot put DPDK's interrupt registration behind ours: librte_eal is not "
			"a shared library here");
	}
	remove_runtime_dir(state.runtime_dir);
	ignore_sigpipe();
	mark = port_log_mark();
	state.started = true;
	/* EAL permutes the array and overwrites an entry: it gets a copy. */
	state.arguments = *a;
	if (rte_eal_init(a->count, a->value) < 0) {
		rc = rte_errno > 0 ? -rte_errno : -EIO;
		port_log_since(mark, reason, sizeof(reason));
		remove_runtime_dir(state.runtime_dir);
		return port_fail(error, error_size, rc,
			"DPDK did not start (%s): %s; arguments: %s", strerror(-rc),
			*reason ? reason : "no reason given", info->arguments);
	}
	/* But for the telemetry socket nothing lives there, and then a killed process leaves
	 * nothing. */
	if (!telemetry)
		remove_runtime_dir(state.runtime_dir);
	snprintf(info->runtime_dir, sizeof(info->runtime_dir), "%s", state.runtime_dir);
	return 0;
}

int rp_eal_start(const struct rp_eal_config *config, struct rp_eal_info *info_out, char *error,
	size_t error_size)
{
	struct rp_eal_info local, *info = info_out ? info_out : &local;
	struct arguments a = {0};
	int rc, lock_fd;

	*info = (struct rp_eal_info){0};
	if (state.started)
		return port_fail(error, error_size, -EALREADY,
			"DPDK was started in this process before: it starts once only");
	info->memory_mib = config->memory_mib > 0 ? config->memory_mib : MEMORY_MIB_DEFAULT;
	rc = check_prefix(config, error, error_size);
	if (rc < 0)
		return rc;
	find_runtime_dir(config->file_prefix, state.runtime_dir, sizeof(state.runtime_dir));
	lock_fd =
		config->hugepages == RP_EAL_HUGEPAGES_OFF ? -1 : lock_hugepages(state.runtime_dir);
	rc = build(&a, config, info, error, error_size);
	if (rc == 0)
		rc = init(&a, config->telemetry, info, error, error_size);
	else
		drop(&a);
	if (lock_fd >= 0)
		close(lock_fd);
	return rc;
}

void rp_eal_stop(void)
{
	if (!state.started || state.stopped)
		return;
	state.stopped = true;
	park_intr_end();
	rte_eal_cleanup();
	port_log_close();
	remove_runtime_dir(state.runtime_dir);
	drop(&state.arguments);
}

uint64_t rp_pool_bytes(uint32_t count, uint16_t data_room, uint16_t priv_size)
{
	uint64_t object = sizeof(struct rte_mbuf) + priv_size + RTE_PKTMBUF_HEADROOM + data_room +
			  POOL_OBJECT_OVERHEAD;

	return count * object + POOL_OVERHEAD;
}

/*
 * Objects lie packed where addresses need not be physical: else DPDK lets none cross a page, which
 * without hugepages wastes a third of the memory, and a device that takes the pool's memory as a
 * whole (af_xdp) computes its size from the packed layout.
 */
static unsigned pool_flags(void)
{
	return rte_eal_iova_mode() == RTE_IOVA_VA || !rte_eal_has_hugepages()
		       ? RTE_MEMPOOL_F_NO_IOVA_CONTIG
		       : 0;
}

static struct rte_mempool *create_pool(
	const char *name, uint32_t count, uint16_t data_room, uint16_t priv_size, int socket)
{
	/* mempool asks for 1.5 caches of objects; a small pool shall not vanish into caches. */
	unsigned cache = RP_MIN(count / 8, (uint32_t)POOL_CACHE_MAX);
	struct rte_pktmbuf_pool_private private = {
		.mbuf_data_room_size = (uint16_t)(RTE_PKTMBUF_HEADROOM + data_room),
		.mbuf_priv_size = priv_size,
	};
	unsigned size = (unsigned)sizeof(struct rte_mbuf) + priv_size + private.mbuf_data_room_size;
	struct rte_mempool *pool = rte_mempool_create_empty(
		name, count, size, cache, sizeof(private), socket, pool_flags());
	int rc;

	if (!pool)
		return NULL;
	rc = rte_mempool_set_ops_byname(pool, "lf_stack", NULL);
	if (rc == 0) {
		rte_pktmbuf_pool_init(pool, &private);
		rc = rte_mempool_populate_default(pool);
	}
	if (rc < 0) {
		rte_mempool_free(pool);
		rte_errno = -rc;
		return NULL;
	}
	rte_mempool_obj_iter(pool, rte_pktmbuf_init, NULL);
	return pool;
}

struct rte_mempool *rp_pool_create(const char *name, uint32_t count, uint16_t data_room,
	uint16_t priv_size, int socket, char *error, size_t error_size)
{
	uint64_t mark = port_log_mark();
	char reason[RP_PORT_ERROR_SIZE / 2];
	struct rte_mempool *pool = create_pool(name, count, data_room, priv_size, socket);

	if (pool)
		return pool;
	errno = rte_errno;
	port_log_since(mark, reason, sizeof(reason));
	port_fail(error, error_size, 0,
		"cannot create mbuf pool %s of %u mbufs (%llu MiB): %s%s%s; give more memory "
		"(dpdk.memory_mib, or hugepages)",
		name, count, (unsigned long long)(rp_pool_bytes(count, data_room, priv_size) >> 20),
		rte_strerror(errno), *reason ? ": " : "", reason);
	return NULL;
}
