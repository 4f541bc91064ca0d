/* SPDX-License-Identifier: Apache-2.0 */
/* The tap: which frames fit the filter, what is kept of them, and that its memory is all it takes.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <rte_eal.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>

#include <base/mbuf.h>
#include <base/units.h>
#include <port/port.h>
#include <port/tap.h>

#define BLOCKS 4

static struct rte_mempool *frames, *blocks;
static struct rp_tap_counters counters[2];

/* Where blocks go. */
static struct rte_mbuf *got[64];
static unsigned got_count;
static bool refuse;

static int post(void *ctx, struct rte_mbuf *block)
{
	if (refuse)
		return -EAGAIN;
	got[got_count++] = block;
	return 0;
}

static unsigned got_free(void)
{
	unsigned n = got_count;

	while (got_count > 0)
		rte_pktmbuf_free(got[--got_count]);
	return n;
}

static uint64_t get(const _Atomic uint64_t *c)
{
	return atomic_load(c);
}

static struct rp_tap tap_new(struct rp_tap_config config)
{
	struct rp_tap tap = {.post = post};

	memset(counters, 0, sizeof(counters));
	config.pool = blocks;
	config.counters = counters;
	rp_tap_start(&tap, &config);
	return tap;
}

static struct rte_mbuf *frame_of(const uint8_t *bytes, uint32_t length, unsigned pieces)
{
	struct rte_mbuf *first = NULL;

	for (unsigned i = 0; i < pieces; i++) {
		uint32_t from = length * i / pieces, to = length * (i + 1) / pieces;

		rp_mbuf_append(&first, rp_mbuf_from(frames, bytes + from, to - from));
	}
	return first;
}

static void tap_one(
	struct rp_tap *tap, uint32_t port, bool sent, const uint8_t *bytes, uint32_t length)
{
	struct rte_mbuf *m = frame_of(bytes, length, 1);

	rp_tap_frames(tap, port, sent, &m, 1, 1000);
	rte_pktmbuf_free(m);
}

/* ---- frames ---- */

static uint32_t eth(uint8_t *f, bool tagged, uint16_t type)
{
	memset(f, 0, 256);
	if (tagged) {
		memcpy(f + 12, "\x81\x00\x00\x05", 4);
		f += 4;
	}
	f[12] = (uint8_t)(type >> 8);
	f[13] = (uint8_t)type;
	return tagged ? 18 : 14;
}

/* 10.0.0.1:1000 -> 10.0.0.2:2000 with `words` of header. */
static uint32_t ip4_frame(uint8_t *f, bool tagged, unsigned words, uint8_t protocol)
{
	uint32_t at = eth(f, tagged, 0x0800);
	uint8_t *ip = f + at;

	ip[0] = (uint8_t)(0x40 | words);
	ip[9] = protocol;
	memcpy(ip + 12, "\x0a\x00\x00\x01\x0a\x00\x00\x02", 8);
	memcpy(ip + words * 4, "\x03\xe8\x07\xd0", 4);
	return at + words * 4 + 20;
}

/* fd00::1 port 1000 -> fd00::2 port 2000. */
static uint32_t ip6_frame(uint8_t *f, bool tagged, uint8_t protocol)
{
	uint32_t at = eth(f, tagged, 0x86dd);
	uint8_t *ip = f + at;

	ip[0] = 0x60;
	ip[6] = protocol;
	ip[8] = ip[24] = 0xfd;
	ip[23] = 1;
	ip[39] = 2;
	memcpy(ip + 40, "\x03\xe8\x07\xd0", 4);
	return at + 60;
}

static struct rp_endpoint peer4(uint8_t last, uint16_t port)
{
	return (struct rp_endpoint){.family = 4, .addr = {10, 0, 0, last}, .port = port};
}

static struct rp_endpoint peer6(uint8_t last, uint16_t port)
{
	return (struct rp_endpoint){.family = 6, .addr = {[0] = 0xfd, [15] = last}, .port = port};
}

static bool fits(struct rp_endpoint peer, const uint8_t *f, uint32_t length, bool sent)
{
	return rp_tap_fits(&peer, f, length, sent);
}

/* ---- the filter ---- */

static void ip4_by_address_and_port(void **state)
{
	uint8_t f[256];

	for (unsigned tagged = 0; tagged < 2; tagged++)
		for (unsigned words = 5; words <= 15; words += 5) {
			uint32_t n = ip4_frame(f, tagged, words, 6);

			/* Received: the peer is where it came from; sent: where it goes. */
			assert_true(fits(peer4(1, 0), f, n, false));
			assert_false(fits(peer4(2, 0), f, n, false));
			assert_true(fits(peer4(2, 0), f, n, true));
			assert_false(fits(peer4(1, 0), f, n, true));
			assert_true(fits(peer4(1, 1000), f, n, false));
			assert_false(fits(peer4(1, 2000), f, n, false));
			assert_true(fits(peer4(2, 2000), f, n, true));
			assert_false(fits(peer4(2, 1000), f, n, true));
			assert_false(fits(peer6(1, 0), f, n, false));
		}
	assert_true(fits(peer4(1, 1000), f, ip4_frame(f, false, 5, 17), false));
	assert_false(fits(peer4(1, 1000), f, ip4_frame(f, false, 5, 1), false));
	assert_true(fits(peer4(1, 0), f, ip4_frame(f, false, 5, 1), false));
}

static void fragments_have_no_ports(void **state)
{
	uint8_t f[256];
	uint32_t n = ip4_frame(f, false, 5, 6);

	f[14 + 6] = 0x20; /* the first of several has them */
	assert_true(fits(peer4(1, 1000), f, n, false));
	f[14 + 7] = 1;
	assert_false(fits(peer4(1, 1000), f, n, false));
	assert_true(fits(peer4(1, 0), f, n, false));
}

static void ip6_by_address_and_port(void **state)
{
	uint8_t f[256];

	for (unsigned tagged = 0; tagged < 2; tagged++) {
		uint32_t n = ip6_frame(f, tagged, 6);

		assert_true(fits(peer6(1, 1000), f, n, false));
		assert_false(fits(peer6(1, 1001), f, n, false));
		assert_true(fits(peer6(2, 2000), f, n, true));
		assert_true(fits(peer6(2, 0), f, n, true));
		assert_false(fits(peer6(1, 0), f, n, true));
		assert_false(fits(peer4(1, 0), f, n, false));
	}
}

static void who_is_asked_for_counts(void **state)
{
	uint8_t f[256];
	uint32_t at = eth(f, false, 0x0806);

	memcpy(f + at + 14, "\x0a\x00\x00\x01", 4);
	memcpy(f + at + 24, "\x0a\x00\x00\x02", 4);
	assert_true(fits(peer4(1, 0), f, at + 28, false));
	assert_true(fits(peer4(2, 0), f, at + 28, true));
	assert_false(fits(peer4(1, 0), f, at + 28, true));
	assert_false(fits(peer4(1, 80), f, at + 28, false));
	/* A solicitation goes to a group, and asks for fd00::7. */
	at = ip6_frame(f, false, 58) - 20;
	memset(f + at, 0, 24);
	f[at] = 135;
	f[at + 8] = 0xfd;
	f[at + 23] = 7;
	assert_true(fits(peer6(7, 0), f, at + 24, true));
	assert_false(fits(peer6(7, 1), f, at + 24, true));
	assert_false(fits(peer6(8, 0), f, at + 24, true));
	f[at] = 128;
	assert_false(fits(peer6(7, 0), f, at + 24, true));
}

/* The bytes stand at the end of their buffer, so that the sanitizer sees a byte too far. */
static void short_frames_fit_nothing_and_are_not_overread(void **state)
{
	struct rp_endpoint peers[] = {peer4(1, 0), peer4(1, 1000), peer6(1, 0), peer6(1, 1000)};
	uint8_t whole[256];

	for (unsigned kind = 0; kind < 6; kind++) {
		uint32_t n = kind < 2	? ip4_frame(whole, kind & 1, 15, 6)
			     : kind < 4 ? ip6_frame(whole, kind & 1, 6)
					: eth(whole, kind & 1, 0x0806) + 28;

		for (uint32_t length = 0; length < n; length++) {
			uint8_t *f = test_malloc(length + 1);

			memcpy(f + 1, whole, length);
			for (unsigned i = 0; i < RP_ARRAY_SIZE(peers); i++)
				for (unsigned sent = 0; sent < 2; sent++)
					if (fits(peers[i], f + 1, length, sent))
						assert_true(length >= 14 + 20);
			test_free(f);
		}
	}
	/* A header that says it is shorter than one can be. */
	ip4_frame(whole, false, 5, 6);
	whole[14] = 0x41;
	assert_false(fits(peer4(1, 1000), whole, 54, false));
}

/* ---- records ---- */

static void records_keep_time_way_and_head(void **state)
{
	struct rp_tap tap = tap_new((struct rp_tap_config){.ports = UINT32_MAX, .snaplen = 100});
	const struct rp_tap_record *r;
	uint8_t whole[300];
	struct rte_mbuf *m[2];
	const uint8_t *bytes;
	uint32_t offset = 0;

	for (unsigned i = 0; i < sizeof(whole); i++)
		whole[i] = (uint8_t)i;
	/* A chain whose border lies within what is kept, and one that is kept whole. */
	m[0] = frame_of(whole, 300, 7);
	m[1] = frame_of(whole + 5, 61, 1);
	rp_tap_frames(&tap, 0, true, &m[0], 1, 5000);
	rp_tap_frames(&tap, 1, false, &m[1], 1, 6000);
	assert_int_equal(got_count, 0);
	rp_tap_flush(&tap, true, 6000);
	assert_int_equal(got_count, 1);
	r = rp_tap_next(got[0], &offset, &bytes);
	assert_int_equal(r->length, 300);
	assert_int_equal(r->captured, 100);
	assert_int_equal(r->wall_ns, 5000);
	assert_true(r->sent && r->port == 0);
	assert_memory_equal(bytes, whole, 100);
	r = rp_tap_next(got[0], &offset, &bytes);
	assert_int_equal(r->captured, 61);
	assert_true(!r->sent && r->port == 1);
	assert_memory_equal(bytes, whole + 5, 61);
	assert_null(rp_tap_next(got[0], &offset, &bytes));
	assert_int_equal(get(&counters[0].taken), 1);
	assert_int_equal(get(&counters[1].seen), 1);
	rp_tap_stop(&tap);
	got_free();
	rte_pktmbuf_free_bulk(m, 2);
}

static void only_what_was_asked_for(void **state)
{
	struct rp_tap tap = tap_new(
		(struct rp_tap_config){.ports = 1u << 1, .peer = peer4(1, 1000), .snaplen = 64});
	uint8_t f[256];
	uint32_t n = ip4_frame(f, false, 5, 6);

	tap_one(&tap, 0, false, f, n);
	tap_one(&tap, 1, true, f, n);
	assert_null(tap.block);
	tap_one(&tap, 1, false, f, n);
	assert_non_null(tap.block);
	assert_int_equal(get(&counters[0].seen), 0);
	assert_int_equal(get(&counters[1].seen), 2);
	assert_int_equal(get(&counters[1].taken), 1);
	assert_int_equal(get(&counters[1].dropped), 0);
	rp_tap_stop(&tap);
	assert_int_equal(got_free(), 1);
}

/* ---- the budget ---- */

static uint64_t records_of(const struct rte_mbuf *block)
{
	const uint8_t *bytes;
	uint32_t offset = 0;
	uint64_t n = 0;

	while (rp_tap_next(block, &offset, &bytes))
		n++;
	return n;
}

/* A reader that takes nothing back: the pool is the bound, what is beyond it is counted. */
static void a_slow_reader_costs_frames_not_memory(void **state)
{
	struct rp_tap tap = tap_new((struct rp_tap_config){.ports = 1, .snaplen = 9216});
	uint8_t f[1500] = {0};
	uint64_t kept = 0;

	for (unsigned i = 0; i < 200; i++)
		tap_one(&tap, 0, false, f, sizeof(f));
	assert_int_equal(get(&counters[0].seen), 200);
	assert_true(get(&counters[0].dropped) > 100);
	assert_int_equal(get(&counters[0].taken) + get(&counters[0].dropped), 200);
	assert_int_equal(rte_mempool_avail_count(blocks), 0);
	for (unsigned i = 0; i < got_count; i++)
		kept += records_of(got[i]);
	kept += tap.block ? records_of(tap.block) : 0;
	assert_int_equal(kept, get(&counters[0].taken));
	/* It reads again: frames are taken again. */
	got_free();
	tap_one(&tap, 0, false, f, sizeof(f));
	assert_int_equal(get(&counters[0].taken), kept + 1);
	rp_tap_stop(&tap);
	got_free();
	assert_int_equal(rte_mempool_avail_count(blocks), BLOCKS);
}

/* A ring without room: the block stays and goes later; at the end it is given up, and counted. */
static void a_full_ring_holds_the_block(void **state)
{
	struct rp_tap tap = tap_new((struct rp_tap_config){.ports = 1, .snaplen = 64});
	uint8_t f[64] = {0};

	refuse = true;
	tap_one(&tap, 0, false, f, sizeof(f));
	rp_tap_flush(&tap, true, 1000);
	assert_non_null(tap.block);
	refuse = false;
	rp_tap_flush(&tap, true, 1000);
	assert_null(tap.block);
	assert_int_equal(got_free(), 1);
	refuse = true;
	for (unsigned i = 0; i < 1000; i++)
		tap_one(&tap, 0, true, f, sizeof(f));
	assert_true(get(&counters[0].dropped) > 0);
	rp_tap_stop(&tap);
	refuse = false;
	assert_false(rp_tap_is_on(&tap));
	assert_int_equal(get(&counters[0].taken), 1);
	assert_int_equal(get(&counters[0].dropped), 1000);
	assert_int_equal(rte_mempool_avail_count(blocks), BLOCKS);
}

static void a_busy_lcore_fills_blocks(void **state)
{
	struct rp_tap tap = tap_new((struct rp_tap_config){.ports = 1, .snaplen = 64});
	uint8_t f[64] = {0};

	tap_one(&tap, 0, false, f, sizeof(f));
	rp_tap_flush(&tap, false, 1000 + RP_TAP_WAIT_NS - 1);
	assert_int_equal(got_count, 0);
	rp_tap_flush(&tap, false, 1000 + RP_TAP_WAIT_NS);
	assert_int_equal(got_free(), 1);
	for (unsigned i = 0; i < RP_TAP_BLOCK_ROOM / 80 + 1; i++)
		tap_one(&tap, 0, false, f, sizeof(f));
	assert_int_equal(got_count, 1);
	assert_int_equal(records_of(got[0]), RP_TAP_BLOCK_ROOM / 80);
	rp_tap_stop(&tap);
	assert_int_equal(got_free(), 2);
}

static int start(void **state)
{
	char *argv[] = {"test", "--no-huge", "-m", "64", "--no-pci", "--no-telemetry",
		"--no-shconf", "-l", "0", "--log-level", "error", NULL};
	char error[RP_PORT_ERROR_SIZE];

	if (rte_eal_init(11, argv) < 0)
		return -1;
	frames = rp_pool_create("frames", 256, 2048, 0, -1, error, sizeof(error));
	blocks = rp_pool_create("blocks", BLOCKS, RP_TAP_BLOCK_ROOM, 0, -1, error, sizeof(error));
	return frames && blocks ? 0 : -1;
}

static int stop(void **state)
{
	int lost = rte_mempool_in_use_count(frames) + rte_mempool_in_use_count(blocks);

	rte_mempool_free(frames);
	rte_mempool_free(blocks);
	rte_eal_cleanup();
	return lost == 0 ? 0 : -1;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ip4_by_address_and_port),
		cmocka_unit_test(fragments_have_no_ports),
		cmocka_unit_test(ip6_by_address_and_port),
		cmocka_unit_test(who_is_asked_for_counts),
		cmocka_unit_test(short_frames_fit_nothing_and_are_not_overread),
		cmocka_unit_test(records_keep_time_way_and_head),
		cmocka_unit_test(only_what_was_asked_for),
		cmocka_unit_test(a_slow_reader_costs_frames_not_memory),
		cmocka_unit_test(a_full_ring_holds_the_block),
		cmocka_unit_test(a_busy_lcore_fills_blocks),
	};

	return cmocka_run_group_tests(tests, start, stop);
}
