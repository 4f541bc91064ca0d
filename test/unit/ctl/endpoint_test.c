/* SPDX-License-Identifier: Apache-2.0 */
/* What people write to choose connections: addresses with a port and without, of either family. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <ctl/ctl_priv.h>

static void texts_that_are_endpoints(void **state)
{
	static const struct {
		const char *text;
		uint8_t family, first, last;
		uint16_t port;
	} cases[] = {
		{"", 0, 0, 0, 0},
		{"10.0.0.1", 4, 10, 1, 0},
		{"10.0.0.1:80", 4, 10, 1, 80},
		{"10.0.0.1:65535", 4, 10, 1, 65535},
		{"fd00::1", 6, 0xfd, 1, 0},
		/* Without brackets the last colon begins no port. */
		{"fd00::1:80", 6, 0xfd, 0x80, 0},
		{"[fd00::1]", 6, 0xfd, 1, 0},
		{"[fd00::1]:80", 6, 0xfd, 1, 80},
		{"fd00:1111:2222:3333:4444:5555:6666:0007", 6, 0xfd, 7, 0},
	};

	for (size_t i = 0; i < RP_ARRAY_SIZE(cases); i++) {
		struct rp_endpoint e;

		assert_int_equal(ctl_endpoint_filter(&e, cases[i].text), 0);
		assert_int_equal(e.family, cases[i].family);
		assert_int_equal(e.port, cases[i].port);
		assert_int_equal(e.addr[0], cases[i].first);
		assert_int_equal(e.addr[e.family == 6 ? 15 : 3], cases[i].last);
	}
}

static void texts_that_are_none(void **state)
{
	static const char *const texts[] = {"x", "10.0.0", "10.0.0.1:", "10.0.0.1:0",
		"10.0.0.1:65536", "10.0.0.1:8x", "[10.0.0.1]:80", "[fd00::1", "fd00::1]", "[]", "[",
		":80", "localhost:80", "fd00::1%eth0", "10.0.0.1 ",
		"fd00:1111:2222:3333:4444:5555:6666:0007:1111:2222:3333:4444:5555:6666:7777"};

	for (size_t i = 0; i < RP_ARRAY_SIZE(texts); i++) {
		struct rp_endpoint e;

		if (ctl_endpoint_filter(&e, texts[i]) != -EINVAL)
			fail_msg("%s was taken", texts[i]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(texts_that_are_endpoints),
		cmocka_unit_test(texts_that_are_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
