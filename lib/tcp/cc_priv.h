/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Congestion control: what a connection asks of it, and what each kind keeps. cc.c chooses, cc_*.c
 * are the kinds.
 */

#include <stdbool.h>
#include <stdint.h>

struct tcp_conn;

/** What tells of congestion. */
enum tcp_congestion { TCP_CONGESTION_LOSS, TCP_CONGESTION_RTO, TCP_CONGESTION_ECN };

/** Congestion control. All in bytes; cwnd is the connection's. */
struct tcp_cc_ops {
	const char *name;
	/** cc_state is zero. */
	void (*init)(struct tcp_conn *c);
	/** `acked` bytes were newly acknowledged outside of recovery, and cwnd was the limit. */
	void (*on_ack)(struct tcp_conn *c, uint32_t acked, uint64_t now_ns);
	/** What ssthresh becomes. */
	uint32_t (*reduce)(struct tcp_conn *c, enum tcp_congestion why);
	/** The last reduction was for nothing. */
	void (*on_undo)(struct tcp_conn *c);
	/** `acked` bytes were newly acknowledged, with a mark or without. NULL: nobody counts. */
	void (*on_marks)(struct tcp_conn *c, uint32_t acked, bool marked);
};
extern const struct tcp_cc_ops tcp_cc_reno, tcp_cc_cubic, tcp_cc_dctcp;

struct tcp_reno {
	uint32_t acked; /* since the window last grew by a segment */
};

struct tcp_cubic {
	uint64_t epoch_ns, last_ns; /* begin of the growth; its last step; 0: none */
	uint64_t grow;		    /* a growth of less than a byte, times cwnd */
	uint32_t w_max, k;	    /* k in units of 2^20 ns */
	uint32_t w_est, est_acked, cwnd_prior;
	bool after_timeout;
	uint32_t undo_w_max, undo_k;
	uint64_t undo_epoch_ns;
};

struct tcp_dctcp {
	uint32_t reno_acked;
	uint32_t alpha; /* of 2^16 */
	uint32_t acked, marked, window_end;
};

/** HyStart++ (RFC 9406): does the first slow start fill a queue already? */
struct tcp_hystart {
	uint64_t last_ns, current_ns, base_ns; /* least round trips; 0: none */
	uint32_t round_end;
	uint8_t samples; /* of this round; no more than are needed are counted */
	uint8_t css;	 /* which round of conservative slow start it is; 0: of slow start */
};
