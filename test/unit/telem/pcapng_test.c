/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks of pcapng, byte by byte as draft-ietf-opsawg-pcapng has them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <base/units.h>
#include <telem/pcapng.h>

static uint8_t out[512];

/* Every smaller buffer is refused, and nothing behind it is touched. */
#define assert_bytes(write, expected)                                        \
	do {                                                                 \
		size_t need = sizeof(expected);                              \
		assert_int_equal(write(out, sizeof(out)), need);             \
		assert_memory_equal(out, expected, need);                    \
		for (size_t n = 0; n < need; n++) {                          \
			memset(out, 0xa5, sizeof(out));                      \
			assert_int_equal(write(out, n), 0);                  \
			for (size_t x = RP_MAX(n, 8u); x < sizeof(out); x++) \
				assert_int_equal(out[x], 0xa5);              \
		}                                                            \
	} while (0)

static void a_section_begins_the_file(void **state)
{
	/* clang-format off */
	static const uint8_t expected[] = {
		0x0a, 0x0d, 0x0d, 0x0a, 44, 0, 0, 0, /* type, length */
		0x4d, 0x3c, 0x2b, 0x1a, 1, 0, 0, 0,  /* byte order, version 1.0 */
		0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
		4, 0, 5, 0, 'a', ' ', '1', '.', '2', 0, 0, 0, /* shb_userappl */
		0, 0, 0, 0, 44, 0, 0, 0,
	};
	/* clang-format on */
#define WRITE(p, n) rp_pcapng_section(p, n, "a 1.2")
	assert_bytes(WRITE, expected);
#undef WRITE
}

static void an_interface_has_nanoseconds(void **state)
{
	static const uint8_t mac[6] = {2, 0, 0, 0, 0, 7};
	/* clang-format off */
	static const uint8_t expected[] = {
		1, 0, 0, 0, 60, 0, 0, 0,		/* type, length */
		1, 0, 0, 0, 0x00, 1, 0, 0,		/* Ethernet, snaplen 256 */
		2, 0, 4, 0, 'n', 'e', 't', '0',		/* if_name */
		3, 0, 2, 0, 'i', 'n', 0, 0,		/* if_description */
		6, 0, 6, 0, 2, 0, 0, 0, 0, 7, 0, 0,	/* if_MACaddr */
		9, 0, 1, 0, 9, 0, 0, 0,			/* if_tsresol: 10^-9 */
		0, 0, 0, 0, 60, 0, 0, 0,
	};
	/* clang-format on */
	static const struct rp_pcapng_interface i = {
		.name = "net0", .description = "in", .mac = mac, .snaplen = 256};
#define WRITE(p, n) rp_pcapng_interface(p, n, &i)
	assert_bytes(WRITE, expected);
#undef WRITE
}

static void packets_say_which_way(void **state)
{
	static const uint8_t data[5] = {1, 2, 3, 4, 5};
	/* clang-format off */
	static const uint8_t expected[] = {
		6, 0, 0, 0, 52, 0, 0, 0,			/* type, length */
		3, 0, 0, 0,					/* interface */
		0x04, 0x03, 0x02, 0x01, 0x08, 0x07, 0x06, 0x05, /* upper half, lower half */
		5, 0, 0, 0, 0x40, 0, 0, 0,			/* captured, length */
		1, 2, 3, 4, 5, 0, 0, 0,				/* padded */
		2, 0, 4, 0, 2, 0, 0, 0,				/* epb_flags: outbound */
		0, 0, 0, 0, 52, 0, 0, 0,
	};
	/* clang-format on */
	struct rp_pcapng_packet p = {.interface = 3,
		.wall_ns = 0x0102030405060708,
		.data = data,
		.captured = 5,
		.length = 64,
		.sent = true};
#define WRITE(o, n) rp_pcapng_packet(o, n, &p)
	assert_bytes(WRITE, expected);
	p.sent = false;
	assert_int_equal(WRITE(out, sizeof(out)), sizeof(expected));
	assert_int_equal(out[40], 1); /* inbound */
	for (p.captured = 0; p.captured <= 5; p.captured++)
		assert_in_range(WRITE(out, sizeof(out)), 44 + p.captured,
			p.captured + RP_PCAPNG_PACKET_OVERHEAD);
#undef WRITE
}

static void statistics_count_the_dropped(void **state)
{
	/* clang-format off */
	static const uint8_t expected[] = {
		5, 0, 0, 0, 88, 0, 0, 0,		/* type, length */
		1, 0, 0, 0,				/* interface */
		1, 0, 0, 0, 2, 0, 0, 0,			/* time */
		2, 0, 8, 0, 0, 0, 0, 0, 9, 0, 0, 0,	/* isb_starttime */
		3, 0, 8, 0, 1, 0, 0, 0, 2, 0, 0, 0,	/* isb_endtime */
		4, 0, 8, 0, 0x10, 0, 0, 0, 0, 0, 0, 0,	/* isb_ifrecv */
		5, 0, 8, 0, 3, 0, 0, 0, 0, 0, 0, 0,	/* isb_ifdrop */
		6, 0, 8, 0, 8, 0, 0, 0, 0, 0, 0, 0,	/* isb_filteraccept */
		0, 0, 0, 0, 88, 0, 0, 0,
	};
	/* clang-format on */
	static const struct rp_pcapng_statistics s = {.interface = 1,
		.start_ns = 9,
		.now_ns = 0x100000002,
		.received = 16,
		.accepted = 8,
		.dropped = 3};
#define WRITE(p, n) rp_pcapng_statistics(p, n, &s)
	assert_bytes(WRITE, expected);
	assert_int_equal(sizeof(expected), RP_PCAPNG_STATISTICS_BYTES);
#undef WRITE
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_section_begins_the_file),
		cmocka_unit_test(an_interface_has_nanoseconds),
		cmocka_unit_test(packets_say_which_way),
		cmocka_unit_test(statistics_count_the_dropped),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
