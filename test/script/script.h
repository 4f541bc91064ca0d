/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The runner of TCP scripts (docs/tcp-scripts.md): one stack, a virtual clock, and a script that is
 * the other end of the wire and the owner of the stack at once.
 *
 *   text.c    lines, tokens, numbers, the report of a failure
 *   packet.c  packets of the script: options, headers, ICMP
 *   outgoing.c  packets of the stack: read and compared
 *   app.c     the owner: flows, their events and calls
 *   script.c  statements, time, configuration, assertions
 */

#include <setjmp.h>
#include <stdbool.h>
#include <stdint.h>

#include "rig.h"

#define FLOWS_MAX 16
#define TOKENS_MAX 64
#define VARS_MAX 32
#define PACKETS_MAX 4096
#define STREAM_MAX (1 << 20)
#define LINES_MAX 2000

#define FIN 0x01
#define SYN 0x02
#define RST 0x04
#define PSH 0x08
#define ACK 0x10
#define URG 0x20
#define ECE 0x40
#define CWR 0x80

struct script;

/** TCP options, of a packet or of a statement. */
struct options {
	bool given, any; /* `any`: whatever there is, is right */
	bool mss_set, shift_set, sack_permitted, ts_set, ts_any_value, ts_any_echo;
	uint16_t mss;
	uint8_t shift, blocks;
	uint32_t ts_value, ts_echo;
	uint32_t block[4][2];
};

/** A packet that the stack sent. Sequence numbers and timestamps as on the wire. */
struct packet {
	uint64_t at_ns;
	struct flow *flow;
	uint8_t flags, ecn, ttl, dscp;
	uint32_t seq, ack, length;
	uint16_t window, urgent;
	struct options opt;
};

/** A connection as the script sees it: `#N`. */
struct flow {
	struct script *script;
	unsigned number;
	uint16_t local_port, remote_port; /* of the stack, of the script */
	uint32_t iss, irs;		  /* of the script, of the stack */
	bool irs_known;
	uint32_t sent_end, stack_end; /* relative: behind what either side sent */
	uint16_t window;	      /* the field that the script sent last */
	bool ts;		      /* both offered timestamps */
	bool ts_syn, shift_syn, stack_ts, stack_ws;
	bool ts_base_known, edge_known;
	uint32_t ts_base, ts_last; /* of the stack: its first value, its last */
	uint8_t stack_shift, shift_offered;
	uint32_t edge; /* right edge of the window that the stack told */
	/* The owner of the stack's end. */
	struct rp_conn *conn;
	bool opened, fin, closed, hold, accepted;
	enum rp_close_reason reason;
	unsigned writables;
	uint32_t held, received, sent;
	uint8_t *stream; /* what was received, from the first byte on */
};

struct var {
	char name[16];
	int64_t value;
};

struct script {
	const char *path;
	char *text;
	char *lines[LINES_MAX];
	unsigned line_count, line; /* line: index of the one that runs */
	char *token[TOKENS_MAX];
	unsigned token_count, next; /* next: token that is read next */
	char tokens_text[2048];
	struct var vars[VARS_MAX];
	unsigned var_count;
	struct rig_config config;
	struct rig *rig;
	uint64_t start_ns, tolerance_ns;
	uint8_t family; /* 4 or 6 */
	uint32_t peer_isn;
	struct rp_conn_options options; /* of what is listened to and dialled */
	bool refuse, listening;
	bool any_bytes; /* payload need not be the pattern */
	struct flow flows[FLOWS_MAX];
	struct packet *packets; /* ring of PACKETS_MAX */
	unsigned packet_first, packet_last;
	char trace[24][200];
	unsigned trace_count;
	unsigned checks; /* assertions and packets compared */
	jmp_buf failed;
	char message[512];
};

/* text.c */

/** Ends the script. */
__attribute__((noreturn, format(printf, 2, 3))) void script_fail(
	struct script *s, const char *format, ...);
/** As from within a call of the stack: the script ends after it. The first one counts. */
__attribute__((format(printf, 2, 3))) void script_defer(struct script *s, const char *format, ...);
/** Ends the script where something was deferred. */
void script_settle(struct script *s);
__attribute__((format(printf, 2, 3))) void script_trace(struct script *s, const char *format, ...);
bool script_load(struct script *s, const char *path);
/** Cuts the line into tokens; `<a, b>` is one. */
void script_tokens(struct script *s, const char *line);
/** The next token, or NULL. */
const char *script_peek(const struct script *s);
/** The next token; there has to be one. */
const char *script_take(struct script *s);
/** Takes the next token where it is this word. */
bool script_word(struct script *s, const char *word);
/** Numbers with + - * / and parentheses, units (ns us ms s k), names of `let` and `repeat`. */
int64_t script_number(struct script *s, const char *text);
int64_t script_take_number(struct script *s);
void script_let(struct script *s, const char *name, int64_t value);

/* packet.c */

/** What both sides' SYNs offered is used. */
void packet_agree(struct flow *f);
/** Letters; `p` sets *no_push (NULL: not allowed). */
uint8_t packet_read_flags(struct script *s, const char *word, bool *no_push);
/** A number or a range, unless a word of the statement comes first: then false. */
bool packet_read_seq(struct script *s, uint32_t *seq, uint32_t *length);

struct options packet_options(
	struct script *s, const struct flow *f, const char *text, bool inbound);
/** `< FLAGS ...`: builds and gives the stack the packet. */
void packet_in(struct script *s);
/** `> FLAGS ...`: compares with `p`. */
void packet_expect(struct script *s, const struct packet *p);
/** `icmp ...` */
void packet_icmp(struct script *s);
/** What the rig shows: read, checked in itself, queued. */
void packet_out(void *ctx, const uint8_t *ip, uint32_t length);
void packet_describe(const struct packet *p, char *out, unsigned size);
uint8_t packet_byte(bool inbound, uint32_t seq);
/** `#N` where it is there, else the first. */
struct flow *script_flow(struct script *s);

/** A plain segment of the script's, with the options given. */
struct segment {
	uint8_t flags;
	uint32_t seq, ack; /* relative */
	uint32_t length;
	uint16_t window;
};
void packet_send(struct script *s, struct flow *f, const struct segment *g, const char *options);

/* app.c */

void app_init(struct script *s);
void app_free(struct script *s);
/** True: the word is one of the owner's calls or assertions, and was carried out. */
bool app_statement(struct script *s, const char *word);
/** `options ...` */
void app_options(struct script *s);
/** 0 or -errno. */
int app_listen(struct script *s, uint16_t port, const struct rp_conn_options *options);
int app_dial(struct script *s, struct flow *f, const struct rp_conn_options *options);

/* script.c */

/** NULL, or a text that the script owns. */
const char *script_run(struct script *s);
/** Compares as the next tokens say: `= 5`, `>= 5`, `1..5`. */
void script_compare(struct script *s, const char *name, int64_t got);
