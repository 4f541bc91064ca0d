/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Request and reply, or messages one way, through a nats-server (docs.nats.io, "NATS Protocol"),
 * by its own protocol over kernel sockets or our TCP: the same exchange as that of rr and deliver,
 * for comparison. The server's role here is the one that answers, or that is sent to.
 */

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_mbuf.h>

#include <base/mbuf.h>

#include "mode.h"

#define DRAIN_NS RP_NS_PER_S
#define LINE_MAX_BYTES 1024u
#define INPUT_MAX (PERF_MESSAGE_MAX + LINE_MAX_BYTES)
#define SUBJECT "ringperf"
#define INBOX "ringperf.inbox"
/** Messages begun in one turn. */
#define TURN_MAX 64u

struct nats {
	struct perf_run *run;
	struct rp_conn *c;
	bool rr, open, ready, pong;
	uint64_t sent, received;
	uint8_t *input; /**< what is not whole yet */
	uint32_t length;
	uint8_t *out; /**< of one turn */
	uint32_t out_length;
};

/** What a message begins with. */
struct head {
	uint64_t number, planned_ns, begun_ns;
};

static void fail(struct nats *n, const char *why)
{
	if (!n->run->why)
		n->run->why = why;
	n->run->finished = true;
}

/* ---- out ---- */

static void say(struct nats *n, const void *data, size_t length)
{
	if (n->out_length + length > INPUT_MAX) {
		fail(n, "more is to be sent than there is room for");
		return;
	}
	memcpy(n->out + n->out_length, data, length);
	n->out_length += (uint32_t)length;
}

__attribute__((format(printf, 2, 3))) static void say_line(struct nats *n, const char *format, ...)
{
	char line[LINE_MAX_BYTES];
	va_list args;
	int length;

	va_start(args, format);
	length = vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	say(n, line, (size_t)length);
}

static void flush(struct nats *n, uint64_t now_ns)
{
	struct rte_mbuf *chain = NULL;

	if (n->out_length == 0 || !n->c)
		return;
	if (n->c->transport->ops->send_space(n->c) < n->out_length)
		return;
	for (uint32_t at = 0; at < n->out_length;) {
		uint32_t piece = RP_MIN(n->out_length - at, 1400u);
		struct rte_mbuf *m = rp_mbuf_from(n->run->worker->pool, n->out + at, piece);

		if (!m) {
			rte_pktmbuf_free(chain);
			return;
		}
		rp_mbuf_append(&chain, m);
		at += piece;
	}
	if (n->c->transport->ops->send(n->c, chain, now_ns) == 0)
		n->out_length = 0;
	else
		rte_pktmbuf_free(chain);
}

static void publish(struct nats *n, const char *subject, const char *reply, const void *head)
{
	static const uint8_t zeros[PERF_MESSAGE_MAX];
	uint32_t size = n->run->options->size;

	say_line(n, "PUB %s %s%s%u\r\n", subject, reply, reply[0] ? " " : "", size);
	say(n, head, sizeof(struct head));
	say(n, zeros, size - sizeof(struct head));
	say(n, "\r\n", 2);
}

/* ---- in ---- */

static void on_message(struct nats *n, const char *reply, const uint8_t *data, uint32_t length)
{
	struct perf_run *r = n->run;
	struct head h;

	if (length != r->options->size) {
		r->faults++;
		return;
	}
	n->received++;
	if (r->options->server) {
		r->pace.ended_in_window++;
		if (n->rr)
			publish(n, reply, "", data);
		else if (n->received % 64 == 0)
			publish(n, INBOX, "", data);
		return;
	}
	memcpy(&h, data, sizeof(h));
	if (n->rr && h.number + 1 != n->received)
		r->faults++;
	perf_pace_done(&r->pace, h.planned_ns, h.begun_ns, 1, rp_clock_now(&r->worker->reader));
}

/* "MSG subject sid [reply] bytes", its payload behind it. How much it took; 0: it is not whole. */
static uint32_t on_msg(struct nats *n, char *line, uint32_t line_bytes)
{
	char *words[6] = {NULL}, *rest = NULL;
	unsigned count = 0, length;

	for (char *w = strtok_r(line, " ", &rest); w && count < 6; w = strtok_r(NULL, " ", &rest))
		words[count++] = w;
	length = count >= 4 ? (unsigned)strtoul(words[count - 1], NULL, 10) : PERF_MESSAGE_MAX + 1;
	if (length > PERF_MESSAGE_MAX) {
		fail(n, "the nats-server says what is not understood");
		return 0;
	}
	if (n->length < line_bytes + length + 2)
		return 0;
	on_message(n, count == 5 ? words[3] : "", n->input + line_bytes, length);
	return line_bytes + length + 2;
}

/* One line and what belongs to it. How much it took; 0: it is not whole. */
static uint32_t take_line(struct nats *n)
{
	uint8_t *end = memchr(n->input, '\n', n->length);
	uint32_t bytes = end ? (uint32_t)(end - n->input) + 1 : 0;
	char line[LINE_MAX_BYTES];

	if (bytes == 0)
		return 0;
	snprintf(line, sizeof(line), "%.*s", (int)bytes - 1, (const char *)n->input);
	line[strcspn(line, "\r")] = '\0';
	if (strncmp(line, "MSG ", 4) == 0)
		return on_msg(n, line, bytes);
	if (strncmp(line, "PING", 4) == 0)
		say_line(n, "PONG\r\n");
	else if (strncmp(line, "PONG", 4) == 0)
		n->pong = true;
	else if (strncmp(line, "-ERR", 4) == 0)
		fail(n, "the nats-server says -ERR");
	return bytes;
}

static void take_input(struct nats *n, const uint8_t *data, uint32_t length)
{
	uint32_t at = 0, took;

	if (n->length + length > INPUT_MAX) {
		fail(n, "a message of the nats-server is too long");
		return;
	}
	memcpy(n->input + n->length, data, length);
	n->length += length;
	for (;;) {
		uint8_t *begin = n->input;
		uint32_t whole = n->length;

		n->input = begin + at;
		n->length = whole - at;
		took = n->length > 0 && !n->run->finished ? take_line(n) : 0;
		n->input = begin;
		n->length = whole;
		if (took == 0)
			break;
		at += took;
	}
	memmove(n->input, n->input + at, n->length - at);
	n->length -= at;
}

static void on_open(void *ctx, struct rp_conn *c, uint64_t now_ns)
{
	struct nats *n = ctx;
	bool server = n->run->options->server;

	n->open = true;
	say_line(n, "CONNECT {\"verbose\":false,\"pedantic\":false}\r\nSUB %s 1\r\nPING\r\n",
		server ? SUBJECT : INBOX);
}

static void on_data(void *ctx, struct rp_conn *c, struct rte_mbuf *chain, uint64_t now_ns)
{
	struct nats *n = ctx;
	uint32_t bytes = chain->pkt_len;

	for (const struct rte_mbuf *m = chain; m; m = m->next)
		take_input(n, rte_pktmbuf_mtod(m, const uint8_t *), m->data_len);
	rte_pktmbuf_free(chain);
	c->transport->ops->consume(c, bytes, now_ns);
	flush(n, now_ns);
}

static void on_writable(void *ctx, struct rp_conn *c, uint64_t now_ns)
{
	flush(ctx, now_ns);
}

static void on_peer_fin(void *ctx, struct rp_conn *c, uint64_t now_ns)
{
	c->transport->ops->close(c, now_ns);
}

static void on_close(void *ctx, struct rp_conn *c, enum rp_close_reason why, uint64_t now_ns)
{
	struct nats *n = ctx;

	n->c = NULL;
	fail(n, n->open ? "the nats-server closed the connection" : "there is no nats-server");
}

static const struct rp_conn_events events = {
	.on_open = on_open,
	.on_data = on_data,
	.on_writable = on_writable,
	.on_peer_fin = on_peer_fin,
	.on_close = on_close,
};

/* ---- the mode ---- */

static int begin(struct perf_run *r, bool rr, uint64_t now_ns)
{
	static const struct rp_conn_options none;
	struct rp_endpoint at = {.family = 4, .port = r->options->tcp_port};
	struct rp_transport *t = r->worker->transport;
	struct nats *n = calloc(1, sizeof(*n));

	r->state = n;
	if (n) {
		n->input = malloc(INPUT_MAX);
		n->out = malloc(INPUT_MAX);
	}
	if (!n || !n->input || !n->out) {
		r->why = "no memory";
		return -ENOMEM;
	}
	n->run = r;
	n->rr = rr;
	if (!r->options->has_peer || r->options->size < sizeof(struct head)) {
		r->why = r->options->has_peer ? "a message has 24 bytes at least"
					      : "--peer is needed, the nats-server";
		return -EINVAL;
	}
	memcpy(at.addr, r->options->peer, sizeof(r->options->peer));
	n->c = t->ops->dial(t, &at, &none, &events, n, now_ns);
	if (!n->c) {
		r->why = strerror(errno);
		return -EIO;
	}
	return 0;
}

static int rr_begin(struct perf_run *r, uint64_t now_ns)
{
	return begin(r, true, now_ns);
}

static int one_way_begin(struct perf_run *r, uint64_t now_ns)
{
	return begin(r, false, now_ns);
}

/* One way, every 64th is answered, which bounds what is under way. */
static uint64_t under_way(const struct nats *n)
{
	return n->sent - n->received * (n->rr ? 1 : 64);
}

static bool client_turn(struct perf_run *r, struct nats *n, uint64_t now_ns)
{
	const struct perf_pace_config *c = &r->pace.config;
	uint64_t window = r->options->window > 0 ? r->options->window : n->rr ? 1 : 1024;
	uint64_t end_ns = r->pace.begin_ns + c->warmup_ns + c->run_ns + c->cool_ns;
	unsigned sent = 0;

	while (sent < TURN_MAX && under_way(n) < window && n->out_length < INPUT_MAX / 2 &&
		perf_pace_due(&r->pace, now_ns)) {
		struct head h = {.number = n->sent++, .begun_ns = now_ns};

		h.planned_ns = perf_pace_take(&r->pace, now_ns);
		publish(n, SUBJECT, n->rr ? INBOX : "", &h);
		/* One way, each is over with the 64th behind it: of the others the time is not
		 * known. */
		if (!n->rr && h.number % 64 != 63)
			perf_pace_skip(&r->pace, h.planned_ns);
		sent++;
	}
	if (perf_pace_over(&r->pace, now_ns))
		r->finished |= under_way(n) < (n->rr ? 1 : 64) || now_ns - end_ns >= DRAIN_NS;
	return sent > 0;
}

static bool nats_turn(struct perf_run *r, uint64_t now_ns)
{
	struct nats *n = r->state;
	bool worked = false;

	if (n->pong && !n->ready) {
		n->ready = true;
		perf_run_pace(r, now_ns);
	}
	if (n->ready && !r->options->server)
		worked = client_turn(r, n, now_ns);
	flush(n, now_ns);
	return worked;
}

static void nats_end(struct perf_run *r, uint64_t now_ns)
{
	struct nats *n = r->state;

	if (!n)
		return;
	if (n->c)
		n->c->transport->ops->abort(n->c, now_ns);
	free(n->input);
	free(n->out);
	free(n);
	r->state = NULL;
}

const struct perf_mode perf_mode_nats_rr = {
	.name = "nats-rr",
	.text = "a request and its reply through a nats-server; --serve answers",
	.needs = PERF_NEEDS_TRANSPORT,
	.measures = "round trip",
	.begin = rr_begin,
	.turn = nats_turn,
	.end = nats_end,
};

const struct perf_mode perf_mode_nats = {
	.name = "nats",
	.text = "messages one way through a nats-server to --serve, which answers every 64th",
	.needs = PERF_NEEDS_TRANSPORT,
	.measures = "round trip of every 64th",
	.begin = one_way_begin,
	.turn = nats_turn,
	.end = nats_end,
};
