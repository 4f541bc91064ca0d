/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include <ctl/ctl_priv.h>

/* Every part of the input, and the secret and the direction, changes the MAC. */
static void mac_covers_everything(void **state)
{
	uint8_t uuid[RP_UUID_BYTES] = {1}, a[CTL_NONCE_BYTES] = {2}, b[CTL_NONCE_BYTES] = {3};
	struct ctl_proof_input in = {.cluster_uuid = uuid,
		.client_node = 4,
		.server_node = 5,
		.client_nonce = a,
		.server_nonce = b};
	uint8_t macs[8][CTL_MAC_BYTES];

	ctl_prove_mac("secret", 6, &in, 1, macs[0]);
	ctl_prove_mac("Secret", 6, &in, 1, macs[1]);
	ctl_prove_mac("secret", 6, &in, 2, macs[2]);
	in.client_node = 6;
	ctl_prove_mac("secret", 6, &in, 1, macs[3]);
	in.client_node = 4;
	in.server_node = 6;
	ctl_prove_mac("secret", 6, &in, 1, macs[4]);
	in.server_node = 5;
	uuid[15] = 1;
	ctl_prove_mac("secret", 6, &in, 1, macs[5]);
	uuid[15] = 0;
	a[31] = 1;
	ctl_prove_mac("secret", 6, &in, 1, macs[6]);
	a[31] = 0;
	b[31] = 1;
	ctl_prove_mac("secret", 6, &in, 1, macs[7]);
	b[31] = 0;
	for (int i = 0; i < 8; i++)
		for (int j = 0; j < 8; j++)
			assert_int_equal(ctl_prove_equal(macs[i], macs[j]), i == j);
	ctl_prove_mac("secret", 6, &in, 1, macs[1]);
	assert_true(ctl_prove_equal(macs[0], macs[1]));
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(mac_covers_everything)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
