/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <base/units.h>

#include "script.h"

#define NEST_MAX 4
#define STEPS_MAX 1000000

void script_compare(struct script *s, const char *name, int64_t got)
{
	const char *op = script_take(s), *dots = strstr(op, "..");
	int64_t want;
	bool ok;

	s->checks++;
	if (dots) {
		char low[64];

		snprintf(low, sizeof(low), "%.*s", (int)(dots - op), op);
		if (got < script_number(s, low) || got > script_number(s, dots + 2))
			script_fail(s, "%s is %lld", name, (long long)got);
		return;
	}
	want = script_take_number(s);
	if (strcmp(op, "=") == 0)
		ok = got == want;
	else if (strcmp(op, "!=") == 0)
		ok = got != want;
	else if (strcmp(op, "<") == 0)
		ok = got < want;
	else if (strcmp(op, "<=") == 0)
		ok = got <= want;
	else if (strcmp(op, ">") == 0)
		ok = got > want;
	else if (strcmp(op, ">=") == 0)
		ok = got >= want;
	else
		script_fail(s, "%s: no such comparison", op);
	if (!ok)
		script_fail(
			s, "%s is %lld, not %s %lld", name, (long long)got, op, (long long)want);
}

/* Configuration. */

struct field {
	const char *name;
	size_t offset, size;
};
#define FIELD(type, name, member)                                                       \
	{                                                                               \
		name, offsetof(struct type, member), sizeof(((struct type *)0)->member) \
	}

static int64_t field_get(const void *base, const struct field *f)
{
	uint64_t v = 0;

	memcpy(&v, (const uint8_t *)base + f->offset, f->size);
	return (int64_t)v;
}

static const struct field *field_find(const struct field *fields, unsigned n, const char *name)
{
	for (unsigned i = 0; i < n; i++)
		if (strcmp(fields[i].name, name) == 0)
			return &fields[i];
	return NULL;
}

static const struct field config_fields[] = {
	FIELD(rp_tcp_config, "mtu", net.iface.mtu),
	FIELD(rp_tcp_config, "ttl", net.iface.ttl),
	FIELD(rp_tcp_config, "dscp", net.iface.dscp),
	FIELD(rp_tcp_config, "connections", connections_max),
	FIELD(rp_tcp_config, "listeners", listeners_max),
	FIELD(rp_tcp_config, "time_wait_records", time_wait_max),
	FIELD(rp_tcp_config, "segments", segments_max),
	FIELD(rp_tcp_config, "reassembly", reassembly_max),
	FIELD(rp_tcp_config, "backlog", backlog),
	FIELD(rp_tcp_config, "send_buffer", send_buffer_bytes),
	FIELD(rp_tcp_config, "unsent_max", unsent_bytes_max),
	FIELD(rp_tcp_config, "receive_buffer", receive_buffer_bytes),
	FIELD(rp_tcp_config, "ooo_ranges", ooo_ranges_max),
	FIELD(rp_tcp_config, "ooo_mbufs", ooo_mbufs_max),
	FIELD(rp_tcp_config, "port_first", port_first),
	FIELD(rp_tcp_config, "port_last", port_last),
	FIELD(rp_tcp_config, "rto_min", rto_min_ns),
	FIELD(rp_tcp_config, "rto_max", rto_max_ns),
	FIELD(rp_tcp_config, "ack_delay", ack_delay_max_ns),
	FIELD(rp_tcp_config, "user_timeout", user_timeout_ns),
	FIELD(rp_tcp_config, "time_wait", time_wait_ns),
	FIELD(rp_tcp_config, "fin_wait", fin_wait_ns),
	FIELD(rp_tcp_config, "no_timestamps", no_timestamps),
	FIELD(rp_tcp_config, "no_sack", no_sack),
	FIELD(rp_tcp_config, "no_tail_probes", no_tail_probes),
	FIELD(rp_tcp_config, "pmtu_blackhole", pmtu_blackhole),
	FIELD(rp_tcp_config, "syn_cookies", syn_cookies),
	FIELD(rp_tcp_config, "no_idle_restart", no_idle_restart),
	FIELD(rp_tcp_config, "slow_start", slow_start),
	FIELD(rp_tcp_config, "no_window_scale", no_window_scale),
	FIELD(rp_tcp_config, "receive_shift_least", receive_shift_least),
};

static const struct field info_fields[] = {
	FIELD(rp_tcp_info, "passive", passive),
	FIELD(rp_tcp_info, "mss", mss),
	FIELD(rp_tcp_info, "sack", sack),
	FIELD(rp_tcp_info, "timestamps", timestamps),
	FIELD(rp_tcp_info, "ecn", ecn),
	FIELD(rp_tcp_info, "send_shift", send_shift),
	FIELD(rp_tcp_info, "receive_shift", receive_shift),
	FIELD(rp_tcp_info, "cwnd", cwnd),
	FIELD(rp_tcp_info, "ssthresh", ssthresh),
	FIELD(rp_tcp_info, "pipe", pipe),
	FIELD(rp_tcp_info, "send_window", send_window),
	FIELD(rp_tcp_info, "receive_window", receive_window),
	FIELD(rp_tcp_info, "unsent", unsent),
	FIELD(rp_tcp_info, "unacked", unacked),
	FIELD(rp_tcp_info, "unconsumed", unconsumed),
	FIELD(rp_tcp_info, "ooo", ooo),
	FIELD(rp_tcp_info, "srtt", srtt_ns),
	FIELD(rp_tcp_info, "rttvar", rttvar_ns),
	FIELD(rp_tcp_info, "rtt_min", rtt_min_ns),
	FIELD(rp_tcp_info, "rto", rto_ns),
	FIELD(rp_tcp_info, "reo_window", reo_window_ns),
	FIELD(rp_tcp_info, "backoff", backoff),
	FIELD(rp_tcp_info, "recovery", recovery),
	FIELD(rp_tcp_info, "reordering", reordering),
	FIELD(rp_tcp_info, "rtx", rtx_segments),
	FIELD(rp_tcp_info, "rtos", rtos),
	FIELD(rp_tcp_info, "tlps", tlps),
	FIELD(rp_tcp_info, "undos", undos),
	FIELD(rp_tcp_info, "bytes_sent", bytes_sent),
	FIELD(rp_tcp_info, "bytes_received", bytes_received),
};

static const struct field count_fields[] = {
#define X(name, text) FIELD(rp_tcp_counters, #name, name),
#include <tcp/tcp_counters.def>
#undef X
};

static const struct field net_fields[] = {
#define X(name, text) FIELD(rp_net_counters, #name, name),
#include <net/net_counters.def>
#undef X
};

static const struct field usage_fields[] = {
	FIELD(rp_tcp_usage, "connections", connections),
	FIELD(rp_tcp_usage, "half_open", half_open),
	FIELD(rp_tcp_usage, "time_wait", time_wait),
	FIELD(rp_tcp_usage, "segments", segments),
	FIELD(rp_tcp_usage, "ranges", ranges),
	FIELD(rp_tcp_usage, "timers", timers),
};

static void script_config(struct script *s)
{
	const char *name = script_take(s);
	const struct field *f = field_find(config_fields, RP_ARRAY_SIZE(config_fields), name);
	uint64_t value = (uint64_t)script_take_number(s);

	if (s->rig)
		script_fail(s, "configuration comes before the first event");
	if (f)
		memcpy((uint8_t *)&s->config.tcp + f->offset, &value, f->size);
	else if (strcmp(name, "tolerance") == 0)
		s->tolerance_ns = value;
	else if (strcmp(name, "isn") == 0)
		s->peer_isn = (uint32_t)value;
	else if (strcmp(name, "start") == 0)
		s->config.start_ns = value;
	else if (strcmp(name, "family") == 0)
		s->family = (uint8_t)value;
	else if (strcmp(name, "header_mbufs") == 0)
		s->config.header_mbufs = (uint32_t)value;
	else
		script_fail(s, "%s: no such setting", name);
}

static void rig_fault(void *ctx, const char *what)
{
	script_defer(ctx, "a packet was sent that is wrong: %s", what);
}

static void script_begin(struct script *s)
{
	struct rp_tcp_config *c = &s->config.tcp;
	static const uint8_t secret[16] = "script secret 1";

	if (s->rig)
		return;
	memcpy(c->secret, secret, sizeof(c->secret));
	if (s->family == 6) {
		c->net.iface.addresses[0] =
			(struct rp_net_address){.ip.b = {0xfd, [15] = 1}, .prefix_length = 64};
		c->net.iface.gateway6 = (union rp_ip){.b = {0xfd, [15] = 2}};
	} else {
		c->net.iface.addresses[0] =
			(struct rp_net_address){.ip = RP_IP4(10, 0, 0, 1), .prefix_length = 24};
		c->net.iface.gateway4 = (union rp_ip)RP_IP4(10, 0, 0, 2);
	}
	s->config.on_packet = packet_out;
	s->config.on_fault = rig_fault;
	s->config.ctx = s;
	s->rig = rig_new(&s->config);
	if (!s->rig)
		script_fail(s, "the stack could not be made: %s", strerror(errno));
	s->start_ns = s->rig->now_ns;
	app_init(s);
}

/* Assertions. */

static void script_info(struct script *s)
{
	struct flow *f = script_flow(s);
	struct rp_tcp_info info;

	if (!f->conn)
		script_fail(s, "#%u is not there", f->number);
	rp_tcp_conn_info(f->conn, &info);
	while (script_peek(s)) {
		const char *name = script_take(s);
		const struct field *field =
			field_find(info_fields, RP_ARRAY_SIZE(info_fields), name);

		if (strcmp(name, "state") == 0 || strcmp(name, "timer") == 0 ||
			strcmp(name, "congestion") == 0) {
			const char *got = name[0] == 's'   ? info.state
					  : name[0] == 't' ? info.timer
							   : info.congestion;
			const char *want = script_take(s);

			s->checks++;
			if (strcmp(got, want) != 0)
				script_fail(s, "%s is %s, not %s", name, got, want);
		} else if (field) {
			script_compare(s, name, field_get(&info, field));
		} else {
			script_fail(s, "info %s: no such thing", name);
		}
	}
}

static void script_counts(
	struct script *s, const struct field *fields, unsigned n, const void *values)
{
	while (script_peek(s)) {
		const char *name = script_take(s);
		const struct field *f = field_find(fields, n, name);

		if (!f)
			script_fail(s, "%s: no such count", name);
		script_compare(s, name, field_get(values, f));
	}
}

static bool script_assertion(struct script *s, const char *word)
{
	struct rp_tcp_usage usage;

	if (strcmp(word, "info") == 0) {
		script_info(s);
	} else if (strcmp(word, "check") == 0) {
		const char *what = script_take(s);

		script_compare(s, what, script_number(s, what));
	} else if (strcmp(word, "count") == 0) {
		script_counts(s, count_fields, RP_ARRAY_SIZE(count_fields),
			rp_tcp_counters(s->rig->stack));
	} else if (strcmp(word, "net") == 0) {
		script_counts(s, net_fields, RP_ARRAY_SIZE(net_fields),
			rp_net_counters(rp_tcp_net(s->rig->stack)));
	} else if (strcmp(word, "usage") == 0) {
		rp_tcp_usage(s->rig->stack, &usage);
		script_counts(s, usage_fields, RP_ARRAY_SIZE(usage_fields), &usage);
	} else {
		return false;
	}
	return true;
}

/* Time. */

static const char *pending_text(struct script *s)
{
	static char text[320];

	packet_describe(&s->packets[s->packet_first % PACKETS_MAX], text, sizeof(text));
	return text;
}

static bool is_pending(const struct script *s)
{
	return s->packet_first != s->packet_last;
}

static void none_pending(struct script *s)
{
	script_settle(s);
	if (is_pending(s))
		script_fail(s, "sent, though the script does not say so: %s", pending_text(s));
}

/* Runs to `until_ns`; stops with the first packet. */
static void run_until(struct script *s, uint64_t until_ns)
{
	unsigned steps = 0;

	while (!is_pending(s) && !s->message[0] && rig_step(s->rig, until_ns)) {
		const char *fault = rp_tcp_check(s->rig->stack);

		if (fault)
			script_fail(s, "the recount fails: %s", fault);
		if (++steps == STEPS_MAX)
			script_fail(s, "time does not go on");
	}
	script_settle(s);
}

struct when {
	bool given;
	uint64_t low_ns, high_ns;
};

/* `+T`, `+T..T`, `@T`, `@T..T` in front of a statement. */
static struct when read_when(struct script *s)
{
	const char *word = script_peek(s);
	struct when w = {.low_ns = s->rig->now_ns, .high_ns = s->rig->now_ns};
	uint64_t base_ns;
	const char *dots;
	char low[64];

	if (!word || (word[0] != '+' && word[0] != '@'))
		return w;
	script_take(s);
	base_ns = word[0] == '+' ? s->rig->now_ns : s->start_ns;
	dots = strstr(word, "..");
	snprintf(low, sizeof(low), "%.*s", dots ? (int)(dots - word - 1) : 63, word + 1);
	w.given = true;
	w.low_ns = base_ns + (uint64_t)script_number(s, low);
	w.high_ns = dots ? base_ns + (uint64_t)script_number(s, dots + 2) : w.low_ns;
	if (w.low_ns < s->rig->now_ns)
		script_fail(s, "that time is over");
	return w;
}

static const struct packet *next_packet(struct script *s, const struct when *w)
{
	uint64_t late_ns = w->high_ns + s->tolerance_ns, now_ns = s->rig->now_ns;
	const struct packet *p;

	if (!is_pending(s))
		run_until(s, late_ns);
	if (!is_pending(s)) {
		s->rig->now_ns = now_ns; /* the report says when it was missing */
		script_fail(s, "nothing was sent");
	}
	p = &s->packets[s->packet_first % PACKETS_MAX];
	if (p->at_ns < w->low_ns || p->at_ns > late_ns)
		script_fail(s, "sent at %.3f ms, which is too %s: %s",
			(double)(p->at_ns - s->start_ns) / 1e6,
			p->at_ns < w->low_ns ? "early" : "late", pending_text(s));
	s->packet_first++;
	return p;
}

/* Shorthands. */

static const struct packet *take_packet(struct script *s, uint8_t flags)
{
	const struct packet *p;

	script_settle(s);
	if (!is_pending(s))
		script_fail(s, "the handshake got no answer");
	p = &s->packets[s->packet_first++ % PACKETS_MAX];
	if (p->flags != flags)
		script_fail(s, "the handshake got a wrong answer: flags %02x", p->flags);
	return p;
}

/* `accept|connect [#N] [rtt T] [win W] [<options>]`: the handshake, whatever it looks like. */
static void script_handshake(struct script *s, bool active)
{
	struct flow *f = script_flow(s);
	const char *options = "<mss 1460, sack>";
	uint64_t rtt_ns = 0;
	uint16_t window = f->window;

	while (script_peek(s)) {
		if (script_word(s, "rtt"))
			rtt_ns = (uint64_t)script_take_number(s);
		else if (script_word(s, "win"))
			window = (uint16_t)script_take_number(s);
		else if (script_peek(s)[0] == '<')
			options = script_take(s);
		else
			script_fail(s, "%s: no such word", script_peek(s));
	}
	if (active) {
		int rc = app_dial(s, f, &s->options);

		if (rc)
			script_fail(s, "dial: %s", strerror(-rc));
		take_packet(s, SYN);
		rig_run(s->rig, s->rig->now_ns + rtt_ns);
		packet_send(s, f, &(struct segment){.flags = SYN | ACK, .ack = 1, .window = window},
			options);
		take_packet(s, ACK);
	} else {
		if (!s->listening)
			app_listen(s, 80, &s->options);
		packet_send(s, f, &(struct segment){.flags = SYN, .window = window}, options);
		take_packet(s, SYN | ACK);
		rig_run(s->rig, s->rig->now_ns + rtt_ns);
		packet_send(s, f,
			&(struct segment){.flags = ACK, .seq = 1, .ack = 1, .window = window},
			NULL);
	}
	none_pending(s);
	if (!f->opened)
		script_fail(s, "the handshake did not open it");
}

/* `burst N`: so many packets with data wait; `skip N`; `drain`. */
static bool script_many(struct script *s, const char *word)
{
	unsigned n = s->packet_last - s->packet_first;

	if (strcmp(word, "drain") == 0) {
		s->packet_first = s->packet_last;
	} else if (strcmp(word, "skip") == 0) {
		unsigned want = (unsigned)script_take_number(s);

		if (n < want)
			script_fail(s, "%u packets were sent", n);
		s->packet_first += want;
	} else if (strcmp(word, "burst") == 0) {
		unsigned data = 0;

		for (unsigned i = s->packet_first; i != s->packet_last; i++)
			data += s->packets[i % PACKETS_MAX].length > 0;
		if (data != n)
			script_fail(s, "%u packets without data were sent", n - data);
		script_compare(s, word, n);
		s->packet_first = s->packet_last;
	} else {
		return false;
	}
	return true;
}

static void script_statement(struct script *s)
{
	struct when w;
	const char *word;
	bool look;

	script_begin(s);
	w = read_when(s);
	word = script_take(s);
	if (strcmp(word, ">") == 0) {
		packet_expect(s, next_packet(s, &w));
		return;
	}
	look = strcmp(word, "info") == 0 || strcmp(word, "count") == 0 ||
	       strcmp(word, "net") == 0 || strcmp(word, "usage") == 0 || strcmp(word, "app") == 0 ||
	       strcmp(word, "check") == 0 || strcmp(word, "burst") == 0 ||
	       strcmp(word, "skip") == 0 || strcmp(word, "drain") == 0;
	if (w.given || !look) {
		none_pending(s);
		run_until(s, w.high_ns);
		if (strcmp(word, "burst") != 0 && strcmp(word, "drain") != 0)
			none_pending(s);
		else if (is_pending(s))
			rig_run(s->rig, w.high_ns);
	}
	if (strcmp(word, "<") == 0)
		packet_in(s);
	else if (strcmp(word, "icmp") == 0)
		packet_icmp(s);
	else if (strcmp(word, "accept") == 0 || strcmp(word, "connect") == 0)
		script_handshake(s, word[0] == 'c');
	else if (strcmp(word, "none") != 0 && !script_assertion(s, word) && !script_many(s, word) &&
		 !app_statement(s, word))
		script_fail(s, "%s: no such statement", word);
	if (script_peek(s))
		script_fail(s, "%s: what is that?", script_peek(s));
}

struct loop {
	unsigned line;
	int64_t count, i;
	char name[16];
};

/* `let`, `config`, `repeat`, `end`; true: it was one. */
static bool script_meta(struct script *s, struct loop *loops, unsigned *depth)
{
	if (script_word(s, "config")) {
		script_config(s);
	} else if (script_word(s, "options")) {
		app_options(s);
	} else if (script_word(s, "let")) {
		const char *name = script_take(s);

		if (!script_word(s, "="))
			script_fail(s, "let NAME = NUMBER");
		script_let(s, name, script_take_number(s));
	} else if (script_word(s, "repeat")) {
		struct loop *l;

		if (*depth == NEST_MAX)
			script_fail(s, "too deep");
		l = &loops[(*depth)++];
		*l = (struct loop){.line = s->line, .count = script_take_number(s)};
		snprintf(l->name, sizeof(l->name), "%s",
			script_word(s, "as") ? script_take(s) : "i");
		if (l->count < 1)
			script_fail(s, "repeat is for once and more");
		script_let(s, l->name, 0);
	} else if (script_word(s, "end")) {
		struct loop *l;

		if (*depth == 0)
			script_fail(s, "end of nothing");
		l = &loops[*depth - 1];
		if (++l->i < l->count) {
			script_let(s, l->name, l->i);
			s->line = l->line;
		} else {
			(*depth)--;
		}
	} else {
		return false;
	}
	return true;
}

static void script_lines(struct script *s)
{
	struct loop loops[NEST_MAX];
	unsigned depth = 0;

	for (s->line = 0; s->line < s->line_count; s->line++) {
		const char *fault;

		script_tokens(s, s->lines[s->line]);
		if (s->token_count == 0 || script_meta(s, loops, &depth))
			continue;
		script_statement(s);
		script_settle(s);
		fault = rp_tcp_check(s->rig->stack);
		if (fault)
			script_fail(s, "the recount fails: %s", fault);
	}
	s->line--;
	if (depth > 0)
		script_fail(s, "a repeat has no end");
	if (!s->rig)
		script_fail(s, "there is nothing in it");
	none_pending(s);
	if (s->checks == 0)
		script_fail(s, "it asserts nothing");
}

static void script_report(struct script *s, char *out, size_t size)
{
	unsigned n = RP_ARRAY_SIZE(s->trace), first = s->trace_count > n ? s->trace_count - n : 0;
	size_t at = 0;

	at += (size_t)snprintf(out, size, "%s:%u: %s\n    %s\n", s->path, s->line + 1, s->message,
		s->line < s->line_count ? s->lines[s->line] : "");
	for (unsigned i = first; i < s->trace_count && at < size; i++)
		at += (size_t)snprintf(out + at, size - at, "    %s\n", s->trace[i % n]);
}

const char *script_run(struct script *s)
{
	static char report[16384];
	const char *fault;

	s->packets = calloc(PACKETS_MAX, sizeof(*s->packets));
	s->config.start_ns = 1000 * RP_NS_PER_S;
	s->config.tcp.connections_max = 32;
	s->config.tcp.segments_max = 4096;
	s->config.tcp.receive_buffer_bytes = 256 << 10;
	s->config.tcp.net.iface.mtu = 1500;
	s->peer_isn = 0xfffff000;
	s->family = 4;
	s->tolerance_ns = 100 * RP_NS_PER_US;
	report[0] = '\0';
	if (setjmp(s->failed) == 0)
		script_lines(s);
	else
		script_report(s, report, sizeof(report));
	app_free(s);
	if (s->rig) {
		rig_turn(s->rig);
		fault = rig_free(s->rig);
		if (fault && !report[0])
			snprintf(report, sizeof(report), "%s: at its end: %s\n", s->path, fault);
	}
	free(s->packets);
	free(s->text);
	return report[0] ? report : NULL;
}
