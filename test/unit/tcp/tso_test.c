/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "sim.h"

/*
 * Class 27: what a device cuts out of super-segments is byte for byte what would have been sent
 * without. The simulation cuts by the book; lib/port's cutting is held against the same book.
 */

#define MS RP_NS_PER_MS

static uint64_t seed = 1;

/* Everything that a host put on the wire, in order. */
struct record {
	uint64_t hash, frames, bytes;
};

static bool record(void *ctx, const struct sim_frame_info *f)
{
	struct record *r = (struct record *)ctx + f->from;

	for (uint32_t i = 0; i < f->length; i++)
		r->hash = (r->hash ^ f->data[i]) * 0x100000001b3ull;
	r->frames++;
	r->bytes += f->length;
	return true;
}

static bool both_closed(void *ctx)
{
	struct app *a = ctx;

	return a[0].closed && a[1].closed;
}

static void transfer(struct sim_config *c, bool tso, struct record records[2], uint64_t *supers)
{
	struct app a[2];
	struct sim *s;

	memset(records, 0, 2 * sizeof(*records));
	c->tap = record;
	c->tap_ctx = records;
	c->tcp[0].net.iface.tx_tso = c->tcp[1].net.iface.tx_tso = tso;
	s = sim_new(c);
	for (unsigned i = 0; i < 2; i++) {
		app_init(&a[i], s, i, 11 + i, 12 - i);
		a[i].to_send = i == 0 ? 2000000 : 300000;
		a[i].chunk = i == 0 ? 16000 : 0;
		a[i].rand.state = seed + i;
	}
	SIM_CHECK(s, app_listen(&a[1], 7, NULL) == 0);
	SIM_CHECK(s, app_dial(&a[0], 7, NULL) == 0);
	SIM_CHECK(s, sim_run(s, s->now_ns + 300 * RP_NS_PER_S, both_closed, a));
	SIM_CHECK(s, a[1].received == 2000000 && a[0].received == 300000);
	*supers = s->supers[0] + s->supers[1];
	sim_free(s);
}

static void check(struct sim_config c)
{
	struct record plain[2], cut[2];
	uint64_t supers;

	c.seed = seed;
	transfer(&c, false, plain, &supers);
	assert_int_equal(supers, 0);
	transfer(&c, true, cut, &supers);
	assert_true(supers > 20);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(plain[i].frames, cut[i].frames);
		assert_int_equal(plain[i].bytes, cut[i].bytes);
		assert_true(plain[i].hash == cut[i].hash);
	}
}

static void the_same_bytes_on_a_clean_wire(void **state)
{
	check((struct sim_config){.rtt_ns = MS, .byte_ps = 800});
	check((struct sim_config){.rtt_ns = 20 * MS, .mtu = 9000});
	check((struct sim_config){.rtt_ns = MS, .tcp = {{.no_timestamps = true}}});
}

static void the_same_bytes_with_losses(void **state)
{
	check((struct sim_config){.rtt_ns = 2 * MS, .byte_ps = 800, .impair = {.drop = 0.01}});
	check((struct sim_config){.rtt_ns = 2 * MS,
		.byte_ps = 800,
		.impair = {.reorder = 0.05, .reorder_ns = 300000}});
}

/* Marks: what answers one leaves in a segment of its own. */
static void the_same_bytes_with_marks(void **state)
{
	struct sim_config c = {.rtt_ns = MS, .byte_ps = 8000, .mark_frames = 20};

	check(c);
}

/* Pools of which each allocation may fail: nothing stalls, nothing is lost. */
static void super_segments_without_buffers(void **state)
{
	struct sim_config c = {.rtt_ns = MS, .seed = seed, .header_mbufs = 63};
	struct record r[2];
	uint64_t supers;

	transfer(&c, true, r, &supers);
	assert_true(supers > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_same_bytes_on_a_clean_wire),
		cmocka_unit_test(the_same_bytes_with_losses),
		cmocka_unit_test(the_same_bytes_with_marks),
		cmocka_unit_test(super_segments_without_buffers),
	};

	if (getenv("RP_SEED"))
		seed = strtoull(getenv("RP_SEED"), NULL, 0);
	printf("RP_SEED=%llu\n", (unsigned long long)seed);
	if (sim_eal() < 0)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
