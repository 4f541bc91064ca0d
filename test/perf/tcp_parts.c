/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parts of TCP that each segment or each dial passes cost, in cycles of the TSC, beside
 * the figures of the spec (tcp.md 6):
 *
 *   flow     a look-up in the flow table in stages of a burst, with two lines of the connection
 *   wheel    a timer taken out of the wheel and put in elsewhere, of 16384
 *   ports    a candidate in the search for a local port, of one end; and a port right at both
 *   sum      the checksum of 1460 bytes
 *
 * Each figure is the least of many passes: what the processor does when it is left alone.
 *
 *   tcp_parts [check]     check: status 1 where one is above 1.5 times the spec's
 */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_cycles.h>

#include <base/rand.h>
#include <base/units.h>
#include <net/csum.h>
#include <net/place.h>
#include <tcp/flow.h>
#include <base/wheel.h>

#define PASSES 200
#define BURST 32
#define FLOWS 1024
#define TIMERS 16384
#define RATIO_MAX 1.5

/* As large as a connection: what lies behind its first lines is not touched here. */
struct record {
	struct flow_key key;
	uint64_t hot[13];
	uint8_t rest[1152];
} __attribute__((aligned(RP_CACHE_LINE)));

static struct rp_rand rnd = {1};
static bool too_slow;
static volatile uint64_t sink;

static void report(const char *what, double cycles, double spec)
{
	bool over = cycles > RATIO_MAX * spec;

	printf("%-48s %7.1f cycles, spec %6.1f, ratio %.2f%s\n", what, cycles, spec, cycles / spec,
		over ? ", too many" : "");
	too_slow |= over;
}

static void *take(size_t bytes)
{
	void *p = aligned_alloc(RP_CACHE_LINE, bytes);

	if (!p) {
		fprintf(stderr, "tcp_parts: no memory\n");
		exit(2);
	}
	memset(p, 0, bytes);
	return p;
}

/* ---- the flow table ---- */

static void look_up(const struct flow_table *f, struct record *records, const uint32_t *order)
{
	uint32_t hashes[BURST];

	for (unsigned i = 0; i < BURST; i++) {
		hashes[i] = flow_hash(f, &records[order[i]].key);
		flow_prefetch(f, hashes[i]);
	}
	for (unsigned i = 0; i < BURST; i++) {
		const uint8_t *p = flow_guess(f, hashes[i]);

		if (p) {
			__builtin_prefetch(p, 1);
			__builtin_prefetch(p + RP_CACHE_LINE, 1);
		}
	}
	for (unsigned i = 0; i < BURST; i++) {
		uint32_t index = flow_find(f, &records[order[i]].key, hashes[i]);

		records[index].hot[6]++;
	}
}

static void measure_flow(void)
{
	const uint64_t secret[2] = {rp_rand_u64(&rnd), rp_rand_u64(&rnd)};
	struct record *records = take(FLOWS * sizeof(*records));
	uint32_t *order = take(FLOWS * sizeof(*order));
	struct flow_table f;
	uint64_t best = UINT64_MAX;

	if (flow_init(&f, FLOWS, secret))
		exit(2);
	f.a = (const uint8_t *)records;
	f.a_stride = sizeof(*records);
	f.split = FLOWS;
	for (uint32_t i = 0; i < FLOWS; i++) {
		uint32_t at = rp_rand_below(&rnd, i + 1);

		records[i].key = (struct flow_key){
			.remote = {.w = {0, 0, 0xffff0000, i / 64}},
			.local_port = 80,
			.remote_port = (uint16_t)(1024 + i),
		};
		flow_insert(&f, flow_hash(&f, &records[i].key), i);
		order[i] = order[at];
		order[at] = i;
	}
	for (unsigned pass = 0; pass < PASSES; pass++) {
		uint64_t t0 = rte_rdtsc();

		for (unsigned i = 0; i < FLOWS; i += BURST)
			look_up(&f, records, order + i);
		best = RP_MIN(best, rte_rdtsc() - t0);
	}
	report("flow table, a look-up, 1024 connections", (double)best / FLOWS, 25);
	flow_free(&f);
	free(records);
	free(order);
}

/* ---- the wheel ---- */

static void measure_wheel(void)
{
	struct rp_wheel *w = take(
		sizeof(struct rp_wheel) + RP_CACHE_LINE - sizeof(struct rp_wheel) % RP_CACHE_LINE);
	struct rp_wheel_node *nodes = take(TIMERS * sizeof(*nodes));
	uint32_t *later = take(TIMERS * sizeof(*later));
	uint64_t best = UINT64_MAX, now_ns = RP_NS_PER_S;

	rp_wheel_init(w, now_ns);
	for (unsigned i = 0; i < TIMERS; i++) {
		later[i] = rp_rand_below(&rnd, 30 * RP_NS_PER_MS);
		rp_wheel_node_init(&nodes[i]);
		rp_wheel_add(w, &nodes[i], now_ns + later[i]);
	}
	for (unsigned pass = 0; pass < PASSES; pass++) {
		uint64_t t0 = rte_rdtsc();

		for (unsigned i = 0; i < TIMERS; i++) {
			rp_wheel_del(w, &nodes[i]);
			rp_wheel_add(w, &nodes[i], now_ns + later[TIMERS - 1 - i] + pass);
		}
		best = RP_MIN(best, rte_rdtsc() - t0);
	}
	report("timing wheel, a timer moved, 16384 timers", (double)best / TIMERS, 17);
	free(w);
	free(nodes);
	free(later);
}

/* ---- ports ---- */

static void make_place(struct rp_place *p, unsigned shards)
{
	uint8_t table[128];

	for (unsigned i = 0; i < sizeof(table); i++)
		table[i] = (uint8_t)(i % shards);
	if (rp_place_init(p, rp_place_key_default, table, sizeof(table)))
		exit(2);
}

/* Cycles to walk all ports, and how many of them were right. */
static uint64_t walk_ports(const struct rp_place_search_config *config, unsigned *found)
{
	uint64_t best = UINT64_MAX;

	for (unsigned pass = 0; pass < PASSES / 10; pass++) {
		struct rp_place_search s;
		uint64_t t0 = rte_rdtsc();

		*found = 0;
		rp_place_search_begin(&s, config);
		while (rp_place_search_next(&s))
			(*found)++;
		best = RP_MIN(best, rte_rdtsc() - t0);
	}
	return best;
}

static void measure_ports(void)
{
	const union rp_ip local = RP_IP4(10, 0, 0, 1), remote = RP_IP4(10, 0, 0, 2);
	struct rp_place *p = take(
		sizeof(struct rp_place) + RP_CACHE_LINE - sizeof(struct rp_place) % RP_CACHE_LINE);
	struct rp_place_search_config config = {
		.local = &local,
		.remote = &remote,
		.remote_port = 80,
		.port_first = 1024,
		.port_last = UINT16_MAX,
		.salt = 1,
		.near = {.place = p, .shards = 1},
	};
	unsigned found, candidates = UINT16_MAX - 1024 + 1;

	/* Where few are right, the walk itself is what takes time. */
	make_place(p, 64);
	report("port search, a candidate, one end of 64 shards",
		(double)walk_ports(&config, &found) / candidates, 1.7);
	make_place(p, 8);
	config.far = config.near;
	report("port search, a port right at both ends of 8 shards",
		(double)walk_ports(&config, &found) / RP_MAX(found, 1u), 220);
	free(p);
}

/* ---- checksums ---- */

static void measure_sum(void)
{
	uint8_t *data = take(1472);
	uint64_t best = UINT64_MAX;

	for (unsigned i = 0; i < 1472; i++)
		data[i] = (uint8_t)rp_rand_u64(&rnd);
	for (unsigned pass = 0; pass < PASSES; pass++) {
		uint64_t t0 = rte_rdtsc();

		for (unsigned i = 0; i < 64; i++)
			sink += rp_csum_bytes(data, 1460);
		best = RP_MIN(best, rte_rdtsc() - t0);
	}
	report("checksum of 1460 bytes", (double)best / 64, 127);
	free(data);
}

int main(int argc, char **argv)
{
	measure_flow();
	measure_wheel();
	measure_ports();
	measure_sum();
	return argc > 1 && strcmp(argv[1], "check") == 0 && too_slow;
}
