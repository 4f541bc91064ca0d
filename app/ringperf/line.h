/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * How near two CPUs are: the time in which a cache line goes from one to the other and back. On a
 * virtual machine it changes, as the host moves virtual CPUs, and every figure with it.
 */

#include <stdint.h>

/** Binds the calling thread to a CPU. 0 or an errno. */
int perf_line_pin(uint32_t cpu);

/**
 * From the CPU of the calling thread, which is bound, to `cpu` and back: nanoseconds, the best of
 * many; 0: it could not be measured. Takes 60 ms at most.
 */
double perf_line_ns(uint32_t cpu);
