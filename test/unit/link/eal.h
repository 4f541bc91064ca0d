/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* EAL without hugepages, devices or files, and a pool whose level tells of leaks. */

#include <rte_eal.h>
#include <rte_mbuf.h>

static inline int test_eal_init(void)
{
	char *args[] = {"test", "--no-huge", "-m", "128", "--no-pci", "--no-telemetry",
		"--no-shconf", "-l", "0", "--log-level", "error"};

	return rte_eal_init((int)(sizeof(args) / sizeof(args[0])), args);
}
