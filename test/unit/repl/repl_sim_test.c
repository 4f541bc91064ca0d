/* SPDX-License-Identifier: Apache-2.0 */

/*
 * From seeds: nodes that write, crash, come back empty, are cut off from each other in one or both
 * directions, over a network that loses, doubles and reorders, with queues so short that peers
 *fall. After healing all stores are equal, all nodes Online, every write was answered once, and the
 * consumer records that name a node are the ones that it hosts.
 *
 *	repl_sim_test [first seed [count]]
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <base/log.h>
#include <kv/lease.h>

#include "cluster.h"

#define CONSUMERS 6
#define LEASES 6

struct model {
	struct cluster c;
	bool hosted[CLUSTER_NODES_MAX][CONSUMERS];
	unsigned epoch;
};

static void consumer_key(char *out, size_t size, unsigned node, unsigned k)
{
	snprintf(out, size, "/q/q%u/c/00000000-0000-4000-8000-0000000%u000%u", k % 3, node, k);
}

static void write_ordinary(struct model *m, unsigned node)
{
	struct cluster *c = &m->c;
	char key[32], value[400];
	size_t n;

	snprintf(key, sizeof(key), "key/%u", (unsigned)rp_rand_below(&c->rand, 60));
	if (rp_rand_below(&c->rand, 4) == 0) {
		cluster_delete(c, node, key);
		return;
	}
	n = rp_rand_below(&c->rand, sizeof(value));
	memset(value, 'a' + (int)rp_rand_below(&c->rand, 26), n);
	value[n > 0 ? n - 1 : 0] = 0;
	cluster_put(c, node, key, value);
}

/* Leases are hidden records: granted, revoked and taken over at any node, and keys hang on them. */
static void write_lease(struct model *m, unsigned node)
{
	static const enum rp_kv_system_type types[] = {
		RP_KV_SYSTEM_GRANT, RP_KV_SYSTEM_REVOKE, RP_KV_SYSTEM_TAKE};
	struct cluster *c = &m->c;
	int64_t lease = 1 + (int64_t)rp_rand_below(&c->rand, LEASES);
	char key[32];

	if (rp_rand_below(&c->rand, 2) == 0) {
		cluster_lease(c, node, types[rp_rand_below(&c->rand, 3)], lease);
		return;
	}
	snprintf(key, sizeof(key), "leased/%u", (unsigned)rp_rand_below(&c->rand, 8));
	cluster_put_leased(c, node, key, lease);
}

/* Every node knows the same leases, with the same owner and the same keys. */
static void check_leases(struct cluster *c)
{
	for (int64_t id = 1; id <= LEASES; id++) {
		struct rp_kv_lease first, other;
		bool there = rp_kv_lease_get(c->nodes[0].kv, id, 0, &first);

		for (unsigned i = 1; i < c->count; i++) {
			assert_int_equal(rp_kv_lease_get(c->nodes[i].kv, id, 0, &other), there);
			if (!there)
				continue;
			assert_int_equal(other.owner, first.owner);
			assert_int_equal(other.key_count, first.key_count);
		}
	}
}

static void write_dispatcher(struct model *m, unsigned node)
{
	struct cluster *c = &m->c;
	char key[32], value[64];

	snprintf(key, sizeof(key), "/q/q%u", (unsigned)rp_rand_below(&c->rand, 4));
	switch (rp_rand_below(&c->rand, 4)) {
	case 0:
		cluster_delete(c, node, key);
		return;
	case 1: /* Somebody who is behind. */
		snprintf(value, sizeof(value), "%u;epoch=%u", 101 + node,
			(unsigned)rp_rand_below(&c->rand, m->epoch + 1));
		break;
	default:
		snprintf(value, sizeof(value), "%u;epoch=%u", 101 + node, ++m->epoch / 2);
		break;
	}
	cluster_put(c, node, key, value);
}

static void write_consumer(struct model *m, unsigned node)
{
	struct cluster *c = &m->c;
	unsigned k = (unsigned)rp_rand_below(&c->rand, CONSUMERS);
	char key[64], value[64];
	enum rp_repl_outcome outcome;

	consumer_key(key, sizeof(key), node, k);
	snprintf(value, sizeof(value), "%u;cap=x", 101 + node);
	if (m->hosted[node][k])
		outcome = cluster_delete(c, node, key);
	else
		outcome = cluster_put(c, node, key, value);
	if (outcome != RP_REPL_REFUSED)
		m->hosted[node][k] = !m->hosted[node][k];
}

static void disturb(struct model *m)
{
	struct cluster *c = &m->c;
	unsigned a = (unsigned)rp_rand_below(&c->rand, c->count);
	unsigned b = (unsigned)rp_rand_below(&c->rand, c->count);

	switch (rp_rand_below(&c->rand, 6)) {
	case 0:
		if (c->nodes[a].up) {
			cluster_down(c, a);
			memset(m->hosted[a], 0, sizeof(m->hosted[a]));
			break;
		}
		cluster_up(c, a);
		break;
	case 1:
		if (!c->nodes[a].up)
			cluster_up(c, a);
		break;
	case 2:
		c->cut[a][b] = !c->cut[a][b];
		break;
	case 3:
		cluster_cut(c, a, b, !c->cut[a][b]);
		break;
	case 4:
		memset(c->cut, 0, sizeof(c->cut));
		break;
	case 5:
		c->hung[a] = !c->hung[a];
		break;
	}
}

static void check_consumers(struct model *m)
{
	for (unsigned node = 0; node < m->c.count; node++) {
		for (unsigned k = 0; k < CONSUMERS; k++) {
			char key[64];

			consumer_key(key, sizeof(key), node, k);
			if (m->hosted[node][k])
				assert_non_null(cluster_get(&m->c, 0, key));
			else
				assert_null(cluster_get(&m->c, 0, key));
		}
	}
}

static struct rp_repl_stats total;

static void run_seed(uint64_t seed)
{
	static struct model model;
	struct model *m = &model;
	struct cluster *c = &m->c;
	unsigned steps;

	memset(m, 0, sizeof(*m));
	cluster_init(c, 2 + (unsigned)(seed % 4), seed);
	m->epoch = 10;
	c->config.message_bytes = 1500;
	c->config.queue_writes = 8;
	c->config.queue_bytes = 6000;
	c->config.calls_max = 2;
	c->config.sync_s = 2;
	c->config.ack_ms = 200;
	c->config.hello_ms = 100;
	c->config.boot_ms = 400; /* some begin alone though others are there */
	c->loss = 0.03;
	c->duplicate = 0.05;
	c->delay_ns_max = 30 * RP_NS_PER_MS;
	for (unsigned i = 0; i < c->count; i++) {
		c->nodes[i].skew_us = (int64_t)rp_rand_below(&c->rand, 240000000) - 120000000;
		cluster_up(c, i);
	}
	steps = 200 + (unsigned)rp_rand_below(&c->rand, 400);
	for (unsigned i = 0; i < steps; i++) {
		unsigned node = (unsigned)rp_rand_below(&c->rand, c->count);

		cluster_run(c, rp_rand_below(&c->rand, 60));
		if (rp_rand_below(&c->rand, 12) == 0)
			disturb(m);
		if (!c->nodes[node].up)
			continue;
		switch (rp_rand_below(&c->rand, 6)) {
		case 0:
			write_dispatcher(m, node);
			break;
		case 1:
			write_consumer(m, node);
			break;
		case 2:
		case 3:
			write_lease(m, node);
			break;
		default:
			write_ordinary(m, node);
			break;
		}
	}
	memset(c->cut, 0, sizeof(c->cut));
	memset(c->hung, 0, sizeof(c->hung));
	c->loss = 0;
	for (unsigned i = 0; i < c->count; i++)
		if (!c->nodes[i].up)
			cluster_up(c, i);
	cluster_run(c, 20000);
	assert_true(cluster_all_online(c));
	for (unsigned i = 1; i < c->count; i++)
		assert_true(cluster_equal(c, 0, i));
	check_leases(c);
	check_consumers(m);
	for (unsigned i = 0; i < c->count; i++) {
		struct cluster_node *n = &c->nodes[i];

		assert_int_equal(n->writes_waiting, n->writes_done);
		assert_int_equal(n->ready_calls, 1);
		assert_int_equal(rp_repl_get_stats(n->repl)->bad_messages, 0);
	}
	cluster_free(c);
#define X(name, text) total.name += c->total.name;
	RP_REPL_COUNTERS(X)
#undef X
}

static uint64_t first_seed = 1, seed_count = 60;

static void nodes_end_equal(void **state)
{
	(void)state;
	for (uint64_t seed = first_seed; seed < first_seed + seed_count; seed++) {
		printf("seed %llu\n", (unsigned long long)seed);
		fflush(stdout);
		run_seed(seed);
	}
#define X(name, text) printf("%-20s %llu\n", #name, (unsigned long long)total.name);
	RP_REPL_COUNTERS(X)
#undef X
	if (seed_count < 20)
		return;
	/* The runs went through all that can go wrong without an enemy. */
	assert_true(total.writes_confirmed > 0 && total.writes_unconfirmed > 0);
	assert_true(total.refused_not_ready > 0);
	assert_true(total.sync_runs > 0 && total.sync_runs_failed > 0);
	assert_true(total.ranges_equal > 0 && total.ranges_differ > 0);
	assert_true(total.records_taken > 0 && total.records_stale > 0);
	assert_true(total.host_answered > 0 && total.host_restored > 0);
	assert_true(total.peer_timeouts > 0 && total.peer_overflows > 0 && total.peer_losses > 0);
	assert_true(total.unknown_results > 0);
	assert_int_equal(total.bad_messages, 0);
	assert_int_equal(total.records_skew + total.records_invalid + total.records_policy, 0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nodes_end_equal),
	};

	if (argc > 1)
		first_seed = strtoull(argv[1], NULL, 0);
	if (argc > 2)
		seed_count = strtoull(argv[2], NULL, 0);
	else if (argc > 1)
		seed_count = 1;
	rp_log_set_level(RP_LOG_CRIT);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
