/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Shared by the sources of lib/port and its unit test. */

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Fills `error` and returns `code`, so that a check is one line. `error` may be NULL. */
__attribute__((format(printf, 4, 5))) int port_fail(
	char *error, size_t error_size, int code, const char *format, ...);

/** Sequence number of DPDK's log now; port_log_since() reads what came after it. */
uint64_t port_log_mark(void);
/** The first lines that DPDK logged since `mark`, joined by "; ". Empty when there is none. */
void port_log_since(uint64_t mark, char *text, size_t text_size);
/** Sends DPDK's log through RP_LOG and into the ring behind port_log_since(). 0 or -errno. */
int port_log_open(void);
void port_log_close(void);

/** Binds the wrapped rte_intr_* functions to EAL's own. 0 or -ENOSYS. */
int park_intr_bind(void);

/** True when the calling thread is the parker. */
bool park_is_mine(void);
/** Like rp_park_all(), but gives up (false) when *cancelled turns true while another one parks. */
bool park_all_unless(const bool *cancelled);
/** Sets *cancelled under the parkers' lock and wakes who waits in park_all_unless(). */
void park_cancel(bool *cancelled);
/** Counters of the interrupt wrappers. */
void park_count_callback(void);
void park_count_cancelled(void);
void park_count_wrapped(int by);
