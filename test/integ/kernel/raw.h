/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Frames to and from a kernel interface by a file descriptor, for frames that no driver of DPDK
 * takes through the kernel: those of net_tap and net_af_packet end at 1500 bytes of MTU.
 *
 *   "raw:tap:NAME" makes a tap, "raw:packet:NAME" binds a packet socket to an interface.
 */

#include <stdbool.h>
#include <stdint.h>

struct rte_mbuf;
struct rte_mempool;

#define RAW_FRAME_MAX 9216

bool raw_is(const char *device);
/** The descriptor, non-blocking; -1 and errno. */
int raw_open(const char *device);
/** Up to `n` frames (the caller owns them), each in one mbuf of the pool. */
uint16_t raw_rx(int fd, struct rte_mempool *pool, struct rte_mbuf **frames, uint16_t n);
/** Takes the frame; false: the interface did not, and it is lost. */
bool raw_tx(int fd, struct rte_mbuf *frame);
