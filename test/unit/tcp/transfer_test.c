/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "sim.h"

static uint64_t base_seed = 1;

struct pair {
	struct sim *sim;
	struct app a, b;
};

static bool both_closed(void *ctx)
{
	struct pair *p = ctx;

	return p->a.closed && p->b.closed;
}

static double transfer(const struct sim_config *config, uint64_t bytes_ab, uint64_t bytes_ba)
{
	struct pair p;
	uint64_t start_ns, took_ns;

	p.sim = sim_new(config);
	app_init(&p.a, p.sim, 0, 11, 22);
	app_init(&p.b, p.sim, 1, 22, 11);
	p.a.to_send = bytes_ab;
	p.b.to_send = bytes_ba;
	SIM_CHECK(p.sim, app_listen(&p.b, 4242, NULL) == 0);
	SIM_CHECK(p.sim, app_dial(&p.a, 4242, NULL) == 0);
	start_ns = p.sim->now_ns;
	SIM_CHECK(p.sim, sim_run(p.sim, start_ns + 3600 * RP_NS_PER_S, both_closed, &p));
	took_ns = p.sim->now_ns - start_ns;
	SIM_CHECK(p.sim, p.a.received == bytes_ba && p.b.received == bytes_ab);
	SIM_CHECK(p.sim, p.a.reason == RP_CLOSE_FIN && p.b.reason == RP_CLOSE_FIN);
	if (getenv("VERBOSE")) {
		for (int i = 0; i < 2; i++) {
			const struct rp_tcp_counters *c = rp_tcp_counters(p.sim->host[i].stack);
#define X(name, text) \
	if (c->name)  \
		printf("  %d " #name " %llu\n", i, (unsigned long long)c->name);
#include <tcp/tcp_counters.def>
#undef X
		}
	}
	sim_free(p.sim);
	return (double)(bytes_ab + bytes_ba) * 8 / (double)took_ns;
}

static void clean_bulk(void **state)
{
	static const uint64_t rtts[] = {5000, 50000, RP_NS_PER_MS, 50 * RP_NS_PER_MS};

	for (unsigned i = 0; i < RP_ARRAY_SIZE(rtts); i++) {
		struct sim_config c = {.seed = base_seed, .rtt_ns = rtts[i], .byte_ps = 800};
		double g = transfer(&c, 4 << 20, 4 << 20);

		printf("rtt %llu us: %.3f Gbit/s\n", (unsigned long long)rtts[i] / 1000, g);
	}
}

static const double losses[] = {0.01, 0.05};

static void lossy_bulk(void **state)
{
	static const uint64_t rtts[] = {5000, 50000, RP_NS_PER_MS, 50 * RP_NS_PER_MS};

	for (unsigned k = 0; k < RP_ARRAY_SIZE(losses); k++)
		for (unsigned i = 0; i < RP_ARRAY_SIZE(rtts); i++) {
			struct sim_config c = {.seed = base_seed,
				.rtt_ns = rtts[i],
				.byte_ps = 800,
				.impair = {.drop = losses[k]}};
			double g = transfer(&c, 4 << 20, 2 << 20);

			printf("loss %.2f rtt %llu us: %.4f Gbit/s\n", losses[k],
				(unsigned long long)rtts[i] / 1000, g);
		}
}

static void reordered_bulk(void **state)
{
	static const uint64_t rtts[] = {5000, 50000, RP_NS_PER_MS, 50 * RP_NS_PER_MS};

	for (unsigned i = 0; i < RP_ARRAY_SIZE(rtts); i++) {
		struct sim_config c = {.seed = base_seed,
			.rtt_ns = rtts[i],
			.byte_ps = 800,
			.impair = {.drop = 0.01,
				.duplicate = 0.02,
				.reorder = 0.1,
				.reorder_ns = 50 * RP_NS_PER_US}};
		double g = transfer(&c, 4 << 20, 2 << 20);

		printf("reorder rtt %llu us: %.4f Gbit/s\n", (unsigned long long)rtts[i] / 1000, g);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(clean_bulk),
		cmocka_unit_test(lossy_bulk),
		cmocka_unit_test(reordered_bulk),
	};

	if (argc > 1)
		base_seed = strtoull(argv[1], NULL, 0);
	printf("seed %llu\n", (unsigned long long)base_seed);
	if (sim_eal())
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
