/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <rte_mbuf.h>

#include <base/mbuf.h>
#include <base/units.h>

#include "script.h"

#define SCRIPT_PORT 80

void app_init(struct script *s)
{
	for (unsigned i = 0; i < FLOWS_MAX; i++) {
		s->flows[i] = (struct flow){
			.script = s,
			.number = i + 1,
			.local_port = SCRIPT_PORT,
			.remote_port = (uint16_t)(1001 + i),
			.iss = s->peer_isn + i * 100000,
			.window = 65535,
		};
	}
}

static struct rp_transport *app_transport(struct script *s)
{
	return rp_tcp_transport(s->rig->stack);
}

void app_free(struct script *s)
{
	for (unsigned i = 0; i < FLOWS_MAX; i++) {
		struct flow *f = &s->flows[i];

		if (f->conn && s->rig)
			f->conn->transport->ops->abort(f->conn, s->rig->now_ns);
		f->conn = NULL;
		free(f->stream);
		f->stream = NULL;
	}
}

static void app_consume(struct flow *f, uint32_t bytes)
{
	f->held -= bytes;
	if (f->conn && !f->closed)
		f->conn->transport->ops->consume(f->conn, bytes, f->script->rig->now_ns);
}

static void on_open(void *ctx, struct rp_conn *c, uint64_t now_ns)
{
	struct flow *f = ctx;

	if (f->opened)
		script_defer(f->script, "on_open() twice");
	f->opened = true;
}

static void on_data(void *ctx, struct rp_conn *c, struct rte_mbuf *chain, uint64_t now_ns)
{
	struct flow *f = ctx;
	uint32_t n = chain->pkt_len;

	if (!f->opened || f->fin || f->closed)
		script_defer(f->script, "on_data() at the wrong time");
	if (f->received + n > STREAM_MAX) {
		script_defer(f->script, "too much data for the runner");
	} else {
		rp_mbuf_copy_out(chain, 0, f->stream + f->received, n);
		for (uint32_t i = 0; i < n && !f->script->any_bytes; i++)
			if (f->stream[f->received + i] != packet_byte(true, f->received + i + 1))
				script_defer(f->script, "the byte at %u was received wrong",
					f->received + i + 1);
		f->received += n;
		f->held += n;
	}
	rte_pktmbuf_free(chain);
	if (!f->hold)
		app_consume(f, f->held);
}

static void on_writable(void *ctx, struct rp_conn *c, uint64_t now_ns)
{
	((struct flow *)ctx)->writables++;
}

static void on_peer_fin(void *ctx, struct rp_conn *c, uint64_t now_ns)
{
	struct flow *f = ctx;

	if (f->fin || f->closed)
		script_defer(f->script, "on_peer_fin() at the wrong time");
	f->fin = true;
}

static void on_close(void *ctx, struct rp_conn *c, enum rp_close_reason why, uint64_t now_ns)
{
	struct flow *f = ctx;

	if (f->closed)
		script_defer(f->script, "on_close() twice");
	f->closed = true;
	f->reason = why;
	f->conn = NULL;
}

static const struct rp_conn_events app_events = {
	.on_open = on_open,
	.on_data = on_data,
	.on_writable = on_writable,
	.on_peer_fin = on_peer_fin,
	.on_close = on_close,
};

/* The owner's side of a flow begins anew. */
static void app_begin(struct flow *f, struct rp_conn *c)
{
	f->conn = c;
	f->opened = f->fin = f->closed = false;
	f->held = f->received = f->sent = 0;
	f->writables = 0;
	if (!f->stream)
		f->stream = malloc(STREAM_MAX);
}

static int on_accept(void *ctx, struct rp_conn *c, const struct rp_endpoint *peer,
	const struct rp_conn_events **events, void **conn_ctx, uint64_t now_ns)
{
	struct script *s = ctx;

	if (s->refuse)
		return -EBUSY;
	for (unsigned i = 0; i < FLOWS_MAX; i++) {
		struct flow *f = &s->flows[i];

		if (f->remote_port != peer->port)
			continue;
		app_begin(f, c);
		f->opened = true;
		*events = &app_events;
		*conn_ctx = f;
		return 0;
	}
	script_defer(s, "accepted from port %u", peer->port);
	return -EINVAL;
}

int app_listen(struct script *s, uint16_t port, const struct rp_conn_options *options)
{
	struct rp_transport *t = app_transport(s);

	s->listening = true;
	return t->ops->listen(t, port, options, on_accept, s);
}

int app_dial(struct script *s, struct flow *f, const struct rp_conn_options *options)
{
	struct rp_transport *t = app_transport(s);
	struct rp_endpoint peer = {.family = 4, .port = f->remote_port, .addr = {10, 0, 0, 2}};
	struct rp_conn *c;

	if (s->family == 6)
		peer = (struct rp_endpoint){
			.family = 6, .port = f->remote_port, .addr = {0xfd, [15] = 2}};

	app_begin(f, NULL);
	f->local_port = 0;
	f->irs_known = false;
	f->sent_end = 0;
	c = t->ops->dial(t, &peer, options, &app_events, f, s->rig->now_ns);
	if (!c)
		return -errno;
	f->conn = c;
	rig_turn(s->rig);
	return 0;
}

/* Statements. */

/* Which of the words it is, from 1 on. */
static unsigned read_choice(struct script *s, const char *const *words)
{
	const char *word = script_take(s);

	for (unsigned i = 0; words[i]; i++)
		if (strcmp(word, words[i]) == 0)
			return i + 1;
	script_fail(s, "%s: no such choice", word);
}

static bool read_option(struct script *s, struct rp_conn_options *o)
{
	if (script_word(s, "user_timeout"))
		o->user_timeout_ns = (uint64_t)script_take_number(s);
	else if (script_word(s, "rto_min"))
		o->rto_min_ns = (uint64_t)script_take_number(s);
	else if (script_word(s, "ack_delay"))
		o->ack_delay_max_ns = (uint64_t)script_take_number(s);
	else if (script_word(s, "keepalive"))
		o->keepalive_idle_ns = (uint64_t)script_take_number(s);
	else if (script_word(s, "peer_delay"))
		o->peer_ack_delay_ns = (uint64_t)script_take_number(s);
	else if (script_word(s, "interval"))
		o->keepalive_interval_ns = (uint64_t)script_take_number(s);
	else if (script_word(s, "probes"))
		o->keepalive_probes = (uint32_t)script_take_number(s);
	else if (script_word(s, "mtu"))
		o->mtu = (uint16_t)script_take_number(s);
	else if (script_word(s, "quick"))
		o->ack_profile = RP_ACK_QUICK;
	else if (script_word(s, "second"))
		o->ack_profile = RP_ACK_SECOND;
	else if (script_word(s, "congestion"))
		o->congestion = read_choice(s, (const char *[]){"cubic", "dctcp", "reno", NULL});
	else if (script_word(s, "ecn"))
		o->ecn = read_choice(s, (const char *[]){"off", "accept", "ask", NULL});
	else
		return false;
	return true;
}

void app_options(struct script *s)
{
	while (read_option(s, &s->options))
		;
	if (script_peek(s))
		script_fail(s, "%s: no such option", script_peek(s));
}

/* `fails ERRNO` behind a call, or it has to succeed. */
static void call_result(struct script *s, const char *call, int rc)
{
	static const struct {
		const char *name;
		int value;
	} names[] = {{"EAGAIN", EAGAIN}, {"EPIPE", EPIPE}, {"EADDRINUSE", EADDRINUSE},
		{"EADDRNOTAVAIL", EADDRNOTAVAIL}, {"EINVAL", EINVAL}, {"ENOBUFS", ENOBUFS},
		{"ENOENT", ENOENT}, {"ENETUNREACH", ENETUNREACH}};
	int want = 0;

	if (script_word(s, "fails")) {
		const char *name = script_take(s);

		for (unsigned i = 0; i < RP_ARRAY_SIZE(names); i++)
			if (strcmp(name, names[i].name) == 0)
				want = -names[i].value;
		if (!want)
			script_fail(s, "%s: no such error", name);
	}
	s->checks++;
	if (rc != want)
		script_fail(s, "%s gave %d (%s)", call, rc, strerror(-rc));
}

static void call_listen(struct script *s)
{
	struct rp_conn_options o = s->options;
	uint16_t port = SCRIPT_PORT;

	for (;;) {
		if (script_word(s, "port"))
			port = (uint16_t)script_take_number(s);
		else if (!read_option(s, &o))
			break;
	}
	call_result(s, "listen", app_listen(s, port, &o));
}

static void call_dial(struct script *s)
{
	struct flow *f = script_flow(s);
	struct rp_conn_options o = s->options;

	while (read_option(s, &o))
		;
	call_result(s, "dial", app_dial(s, f, &o));
}

static struct rp_conn *open_conn(struct script *s, const struct flow *f)
{
	if (!f->conn)
		script_fail(s, "#%u is not there", f->number);
	return f->conn;
}

static void call_send(struct script *s)
{
	struct flow *f = script_flow(s);
	uint32_t bytes = (uint32_t)script_take_number(s);
	struct rp_conn *c = open_conn(s, f);
	uint8_t *data = malloc(bytes + 1);
	struct rte_mbuf *m = NULL;
	int rc;

	for (uint32_t i = 0; data && i < bytes; i++)
		data[i] = packet_byte(false, f->sent + 1 + i);
	if (data)
		m = rp_mbuf_from(s->rig->payload_pool, data, bytes);
	free(data);
	if (!m)
		script_fail(s, "out of buffers");
	rc = c->transport->ops->send(c, m, s->rig->now_ns);
	if (rc)
		rte_pktmbuf_free(m);
	else
		f->sent += bytes;
	rig_turn(s->rig);
	call_result(s, "send", rc);
}

static void call_consume(struct script *s)
{
	struct flow *f = script_flow(s);
	uint32_t bytes = script_word(s, "all") ? f->held : (uint32_t)script_take_number(s);

	if (bytes > f->held)
		script_fail(s, "%u bytes are held", f->held);
	app_consume(f, bytes);
	rig_turn(s->rig);
}

static void call_end(struct script *s, const char *word)
{
	struct flow *f = script_flow(s);
	struct rp_conn *c = open_conn(s, f);

	if (strcmp(word, "close") == 0) {
		c->transport->ops->close(c, s->rig->now_ns);
	} else if (strcmp(word, "shutdown") == 0) {
		rp_tcp_shutdown(c, s->rig->now_ns);
	} else {
		f->conn = NULL;
		f->closed = true;
		f->reason = RP_CLOSE_ABORTED;
		c->transport->ops->abort(c, s->rig->now_ns);
	}
	rig_turn(s->rig);
}

static void expect_closed(struct script *s, const struct flow *f)
{
	static const char *const names[] = {
		[RP_CLOSE_FIN] = "fin",
		[RP_CLOSE_RESET] = "reset",
		[RP_CLOSE_TIMEOUT] = "timeout",
		[RP_CLOSE_REFUSED] = "refused",
		[RP_CLOSE_UNREACHABLE] = "unreachable",
		[RP_CLOSE_ABORTED] = "aborted",
		[RP_CLOSE_NOMEM] = "nomem",
	};
	const char *want = script_peek(s) ? script_take(s) : NULL;

	if (!f->closed)
		script_fail(s, "on_close() was not called");
	if (want && strcmp(want, names[f->reason]) != 0)
		script_fail(s, "closed for the reason \"%s\"", names[f->reason]);
}

static void expect_bytes(struct script *s, const struct flow *f)
{
	uint32_t from = (uint32_t)script_take_number(s), to = (uint32_t)script_take_number(s);
	bool pattern = script_word(s, "pattern");
	int64_t value = pattern ? 0 : script_take_number(s);

	if (from < 1 || to - 1 > f->received)
		script_fail(s, "%u bytes were received", f->received);
	for (uint32_t i = from; i < to; i++) {
		uint8_t want = pattern ? packet_byte(true, i) : (uint8_t)value;

		if (f->stream[i - 1] != want)
			script_fail(s, "the byte at %u is 0x%02x, not 0x%02x", i, f->stream[i - 1],
				want);
	}
}

/* `app [#N] [not] open | fin | closed [WHY] | received ... | space ... | writable ...` */
static void app_expect(struct script *s)
{
	struct flow *f = script_flow(s);
	bool not = script_word(s, "not");
	const char *what = script_take(s);

	s->checks++;
	if (strcmp(what, "open") == 0) {
		if (f->opened == not )
			script_fail(s, "it is%s open", f->opened ? "" : " not");
	} else if (strcmp(what, "fin") == 0) {
		if (f->fin == not )
			script_fail(s, "FIN was%s reported", f->fin ? "" : " not");
	} else if (strcmp(what, "closed") == 0) {
		if (!not )
			expect_closed(s, f);
		else if (f->closed)
			script_fail(s, "on_close() was called");
	} else if (strcmp(what, "received") == 0) {
		script_compare(s, what, f->received);
	} else if (strcmp(what, "held") == 0) {
		script_compare(s, what, f->held);
	} else if (strcmp(what, "writable") == 0) {
		script_compare(s, what, f->writables);
	} else if (strcmp(what, "space") == 0) {
		struct rp_conn *c = open_conn(s, f);

		script_compare(s, what, c->transport->ops->send_space(c));
	} else if (strcmp(what, "bytes") == 0) {
		expect_bytes(s, f);
	} else {
		script_fail(s, "app %s: no such thing", what);
	}
}

bool app_statement(struct script *s, const char *word)
{
	if (strcmp(word, "listen") == 0) {
		call_listen(s);
	} else if (strcmp(word, "unlisten") == 0) {
		s->listening = false;
		call_result(s, word, rp_tcp_unlisten(s->rig->stack, SCRIPT_PORT, s->rig->now_ns));
		rig_turn(s->rig);
	} else if (strcmp(word, "refuse") == 0) {
		s->refuse = true;
	} else if (strcmp(word, "dial") == 0) {
		call_dial(s);
	} else if (strcmp(word, "send") == 0) {
		call_send(s);
	} else if (strcmp(word, "hold") == 0) {
		script_flow(s)->hold = true;
	} else if (strcmp(word, "consume") == 0) {
		call_consume(s);
	} else if (strcmp(word, "close") == 0 || strcmp(word, "abort") == 0 ||
		   strcmp(word, "shutdown") == 0) {
		call_end(s, word);
	} else if (strcmp(word, "app") == 0) {
		app_expect(s);
	} else {
		return false;
	}
	return true;
}
