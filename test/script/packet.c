/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <base/seq32.h>
#include <base/units.h>

#include "script.h"

static const uint8_t addr_stack[4] = {10, 0, 0, 1}, addr_script[4] = {10, 0, 0, 2};
static const uint8_t addr6_stack[16] = {0xfd, [15] = 1}, addr6_script[16] = {0xfd, [15] = 2};

static void put16(uint8_t *p, uint32_t v)
{
	p[0] = (uint8_t)(v >> 8);
	p[1] = (uint8_t)v;
}

static void put32(uint8_t *p, uint32_t v)
{
	put16(p, v >> 16);
	put16(p + 2, v);
}

uint8_t packet_byte(bool inbound, uint32_t seq)
{
	return (uint8_t)(seq * 7 + (seq >> 8) * 13 + (inbound ? 100 : 3));
}

struct flow *script_flow(struct script *s)
{
	const char *word = script_peek(s);
	unsigned n = 1;

	if (word && word[0] == '#') {
		n = (unsigned)script_number(s, script_take(s) + 1);
		if (n < 1 || n > FLOWS_MAX)
			script_fail(s, "no such connection");
	}
	return &s->flows[n - 1];
}

/* Options. */

static uint32_t peer_clock(const struct script *s)
{
	return (uint32_t)(1000 + (s->rig->now_ns - s->start_ns) / RP_NS_PER_MS);
}

/* `A:B` into two numbers. */
static void read_range(struct script *s, const char *text, uint32_t out[2])
{
	char copy[128];
	char *colon;

	snprintf(copy, sizeof(copy), "%s", text);
	colon = strchr(copy, ':');
	if (!colon)
		script_fail(s, "%s: a range is A:B", text);
	*colon = '\0';
	out[0] = (uint32_t)script_number(s, copy);
	out[1] = (uint32_t)script_number(s, colon + 1);
}

static void options_ts(
	struct script *s, const struct flow *f, struct options *o, char **save, bool inbound)
{
	const char *value = strtok_r(NULL, " ", save), *echo = strtok_r(NULL, " ", save);

	o->ts_set = true;
	o->ts_any_value = !value || strcmp(value, "*") == 0;
	o->ts_any_echo = !echo || strcmp(echo, "*") == 0;
	if (!o->ts_any_value)
		o->ts_value = (uint32_t)script_number(s, value) + (inbound ? 0 : f->ts_base);
	else if (inbound)
		o->ts_value = peer_clock(s);
	if (!o->ts_any_echo)
		o->ts_echo = (uint32_t)script_number(s, echo) + (inbound ? f->ts_base : 0);
	else if (inbound)
		o->ts_echo = f->ts_last;
}

static void options_blocks(
	struct script *s, const struct flow *f, struct options *o, char **save, bool inbound)
{
	uint32_t base = inbound ? f->irs : f->iss;
	const char *word;

	while ((word = strtok_r(NULL, " ", save))) {
		if (o->blocks == 4)
			script_fail(s, "no more than four SACK blocks");
		read_range(s, word, o->block[o->blocks]);
		o->block[o->blocks][0] += base;
		o->block[o->blocks][1] += base;
		o->blocks++;
	}
}

/* One option; `raw` ones go to `bytes` only. */
static void options_one(struct script *s, const struct flow *f, char *text, bool inbound,
	struct options *o, uint8_t *bytes, unsigned *n)
{
	char *save = NULL;
	const char *kind = strtok_r(text, " ", &save), *word;

	if (!kind)
		return;
	if (strcmp(kind, "*") == 0) {
		o->any = true;
	} else if (strcmp(kind, "mss") == 0 && (word = strtok_r(NULL, " ", &save))) {
		o->mss_set = true;
		o->mss = (uint16_t)script_number(s, word);
		bytes[(*n)++] = 2;
		bytes[(*n)++] = 4;
		put16(bytes + *n, o->mss);
		*n += 2;
	} else if (strcmp(kind, "ws") == 0 && (word = strtok_r(NULL, " ", &save))) {
		o->shift_set = true;
		o->shift = (uint8_t)script_number(s, word);
		bytes[(*n)++] = 3;
		bytes[(*n)++] = 3;
		bytes[(*n)++] = o->shift;
	} else if (strcmp(kind, "sack") == 0) {
		o->sack_permitted = true;
		bytes[(*n)++] = 4;
		bytes[(*n)++] = 2;
	} else if (strcmp(kind, "ts") == 0) {
		options_ts(s, f, o, &save, inbound);
		bytes[(*n)++] = 8;
		bytes[(*n)++] = 10;
		put32(bytes + *n, o->ts_value);
		put32(bytes + *n + 4, o->ts_echo);
		*n += 8;
	} else if (strcmp(kind, "sb") == 0) {
		options_blocks(s, f, o, &save, inbound);
		bytes[(*n)++] = 5;
		bytes[(*n)++] = (uint8_t)(2 + 8 * o->blocks);
		for (unsigned i = 0; i < o->blocks; i++, *n += 8) {
			put32(bytes + *n, o->block[i][0]);
			put32(bytes + *n + 4, o->block[i][1]);
		}
	} else if (strcmp(kind, "nop") == 0) {
		bytes[(*n)++] = 1;
	} else if (strcmp(kind, "eol") == 0) {
		bytes[(*n)++] = 0;
	} else if (strcmp(kind, "raw") == 0 && (word = strtok_r(NULL, " ", &save))) {
		for (; word[0] && word[1]; word += 2) {
			char hex[3] = {word[0], word[1], 0};

			bytes[(*n)++] = (uint8_t)strtoul(hex, NULL, 16);
		}
	} else {
		script_fail(s, "%s: no such option, or something is missing", kind);
	}
	if (*n > 40)
		script_fail(s, "more than 40 bytes of options");
}

static struct options options_read(struct script *s, const struct flow *f, const char *text,
	bool inbound, uint8_t *bytes, unsigned *n)
{
	struct options o = {.given = true};
	char copy[256], *save = NULL;
	size_t length = strlen(text);

	if (length < 2 || length - 2 >= sizeof(copy))
		script_fail(s, "options are <a, b>");
	memcpy(copy, text + 1, length - 2);
	copy[length - 2] = '\0';
	for (char *one = strtok_r(copy, ",", &save); one; one = strtok_r(NULL, ",", &save))
		options_one(s, f, one, inbound, &o, bytes, n);
	return o;
}

struct options packet_options(
	struct script *s, const struct flow *f, const char *text, bool inbound)
{
	uint8_t bytes[128];
	unsigned n = 0;

	return options_read(s, f, text, inbound, bytes, &n);
}

/* In. */

void packet_agree(struct flow *f)
{
	f->ts = f->ts_syn && f->stack_ts;
	f->stack_shift = f->shift_syn && f->stack_ws ? f->shift_offered : 0;
}

struct build {
	struct segment g;
	const char *options;
	bool bad_checksum, bad_ip_checksum, no_ts, fragment, filled;
	uint8_t fill, ecn, ttl;
	uint16_t urgent;
	unsigned offset, cut; /* 0: as it is */
	uint32_t ip_length;
	uint16_t port; /* of the stack; 0: the flow's */
};

static unsigned build_options(
	struct script *s, struct flow *f, const struct build *b, uint8_t *bytes)
{
	struct options o = {0};
	uint8_t own[128];
	unsigned n = 0, k = 0;

	if (b->options)
		o = options_read(s, f, b->options, true, own, &k);
	if (f->ts && !b->no_ts && !o.ts_set && !(b->g.flags & SYN)) {
		bytes[0] = bytes[1] = 1;
		bytes[2] = 8;
		bytes[3] = 10;
		put32(bytes + 4, peer_clock(s));
		put32(bytes + 8, f->ts_last);
		n = 12;
	}
	if (n + k > 40)
		script_fail(s, "more than 40 bytes of options");
	memcpy(bytes + n, own, k);
	n += k;
	while (n % 4)
		bytes[n++] = 0;
	if (b->g.flags & SYN && (!f->opened || f->closed)) {
		f->ts_syn = o.ts_set;
		f->shift_syn = o.shift_set;
		packet_agree(f);
	}
	return n;
}

static void build_ip4(uint8_t *p, uint32_t total, const struct build *b)
{
	p[0] = 0x45;
	p[1] = b->ecn;
	put16(p + 2, b->ip_length ? b->ip_length : total);
	put16(p + 6, b->fragment ? 0x2000 : 0x4000);
	p[8] = b->ttl ? b->ttl : 64;
	p[9] = 6;
	memcpy(p + 12, addr_script, 4);
	memcpy(p + 16, addr_stack, 4);
	put16(p + 10, ~rig_sum(p, 20, 0) ^ (b->bad_ip_checksum ? 0x0101 : 0));
}

static void build_ip6(uint8_t *p, uint32_t total, const struct build *b)
{
	p[0] = 0x60;
	p[1] = (uint8_t)(b->ecn << 4);
	put16(p + 4, (b->ip_length ? b->ip_length : total) - 40);
	p[6] = 6;
	p[7] = b->ttl ? b->ttl : 64;
	memcpy(p + 8, addr6_script, 16);
	memcpy(p + 24, addr6_stack, 16);
}

/* Bytes of the IP header, and the sum of the pseudo header. */
static unsigned build_ip(
	const struct script *s, uint8_t *p, uint32_t l4, const struct build *b, uint32_t *sum)
{
	if (s->family == 6) {
		build_ip6(p, 40 + l4, b);
		*sum = rig_sum(p + 8, 32, 6 + l4);
		return 40;
	}
	build_ip4(p, 20 + l4, b);
	*sum = rig_sum(p + 12, 8, 6 + l4);
	return 20;
}

static void packet_build(struct script *s, struct flow *f, const struct build *b)
{
	unsigned ip = s->family == 6 ? 40 : 20;
	uint8_t p[RIG_PACKET_MAX] = {0}, *tcp = p + ip;
	const struct segment *g = &b->g;
	unsigned header = 20 + build_options(s, f, b, tcp + 20);
	uint32_t l4 = header + g->length, end, sum;

	if (ip + l4 > sizeof(p))
		script_fail(s, "the packet is too long");
	put16(tcp, f->remote_port);
	put16(tcp + 2, b->port ? b->port : f->local_port);
	put32(tcp + 4, f->iss + g->seq);
	put32(tcp + 8, g->flags & ACK ? f->irs + g->ack : 0);
	tcp[12] = (uint8_t)((b->offset ? b->offset - 1 : header / 4) << 4);
	tcp[13] = g->flags;
	put16(tcp + 14, g->window);
	put16(tcp + 18, b->urgent);
	for (uint32_t i = 0; i < g->length; i++)
		tcp[header + i] = b->filled ? b->fill : packet_byte(true, g->seq + i);
	build_ip(s, p, l4, b, &sum);
	put16(tcp + 16, ~rig_sum(tcp, l4, sum) ^ (b->bad_checksum ? 0x0101 : 0));
	end = g->seq + g->length + ((g->flags & SYN) != 0) + ((g->flags & FIN) != 0);
	if (rp_seq_gt(end, f->sent_end))
		f->sent_end = end;
	f->window = g->window;
	script_trace(s, "< #%u flags %02x seq %d:%d ack %d win %u", f->number, g->flags,
		(int)g->seq, (int)(g->seq + g->length), (int)g->ack, g->window);
	if (!rig_packet(s->rig, p, ip + l4 - b->cut))
		script_fail(s, "out of buffers");
}

void packet_send(struct script *s, struct flow *f, const struct segment *g, const char *options)
{
	struct build b = {.g = *g, .options = options};

	packet_build(s, f, &b);
}

uint8_t packet_read_flags(struct script *s, const char *word, bool *no_push)
{
	static const char letters[] = "FSRPAUEC";
	uint8_t flags = 0;

	if (strcmp(word, "-") == 0)
		return 0;
	for (; *word; word++) {
		const char *at = strchr(letters, *word);

		if (*word == 'p' && no_push)
			*no_push = true;
		else if (at)
			flags |= (uint8_t)(1u << (at - letters));
		else
			script_fail(s, "%c: no such flag", *word);
	}
	return flags;
}

bool packet_read_seq(struct script *s, uint32_t *seq, uint32_t *length)
{
	static const char *const words[] = {"ack", "win", "urg", "badsum", "badipsum", "doff",
		"iplen", "ttl", "dscp", "ect0", "ect1", "ce", "notect", "nots", "fill", "frag",
		"cut", "port", NULL};
	const char *word = script_peek(s);
	uint32_t range[2];

	if (!word || word[0] == '<')
		return false;
	for (unsigned i = 0; words[i]; i++)
		if (strcmp(word, words[i]) == 0)
			return false;
	script_take(s);
	if (!strchr(word, ':')) {
		*seq = (uint32_t)script_number(s, word);
		*length = 0;
		return true;
	}
	read_range(s, word, range);
	*seq = range[0];
	*length = range[1] - range[0];
	return true;
}

static bool build_word(struct script *s, struct build *b, const char *word)
{
	if (strcmp(word, "ack") == 0)
		b->g.ack = (uint32_t)script_take_number(s);
	else if (strcmp(word, "win") == 0)
		b->g.window = (uint16_t)script_take_number(s);
	else if (strcmp(word, "urg") == 0)
		b->urgent = (uint16_t)script_take_number(s);
	else if (strcmp(word, "doff") == 0)
		b->offset = 1 + (unsigned)script_take_number(s);
	else if (strcmp(word, "iplen") == 0)
		b->ip_length = (uint32_t)script_take_number(s);
	else if (strcmp(word, "ttl") == 0)
		b->ttl = (uint8_t)script_take_number(s);
	else if (strcmp(word, "cut") == 0)
		b->cut = (unsigned)script_take_number(s);
	else if (strcmp(word, "port") == 0)
		b->port = (uint16_t)script_take_number(s);
	else if (strcmp(word, "badsum") == 0)
		b->bad_checksum = true;
	else if (strcmp(word, "badipsum") == 0)
		b->bad_ip_checksum = true;
	else if (strcmp(word, "nots") == 0)
		b->no_ts = true;
	else if (strcmp(word, "frag") == 0)
		b->fragment = true;
	else if (strcmp(word, "ect0") == 0)
		b->ecn = 2;
	else if (strcmp(word, "ect1") == 0)
		b->ecn = 1;
	else if (strcmp(word, "ce") == 0)
		b->ecn = 3;
	else
		return false;
	return true;
}

void packet_in(struct script *s)
{
	struct flow *f = script_flow(s);
	struct build b = {.g.flags = packet_read_flags(s, script_take(s), NULL)};

	b.g.ack = f->stack_end;
	b.g.window = f->window;
	if (!packet_read_seq(s, &b.g.seq, &b.g.length))
		b.g.seq = f->sent_end;
	while (script_peek(s)) {
		const char *word = script_take(s);

		if (word[0] == '<') {
			b.options = word;
		} else if (strcmp(word, "fill") == 0) {
			b.filled = s->any_bytes = true;
			b.fill = (uint8_t)script_take_number(s);
		} else if (!build_word(s, &b, word)) {
			script_fail(s, "%s: no such word", word);
		}
	}
	packet_build(s, f, &b);
}

static const struct icmp_kind {
	const char *name;
	uint8_t type, code, type6, code6;
} icmp_kinds[] = {{"net-unreachable", 3, 0, 1, 0}, {"host-unreachable", 3, 1, 1, 3},
	{"protocol-unreachable", 3, 2, 4, 1}, {"port-unreachable", 3, 3, 1, 4},
	{"too-big", 3, 4, 2, 0}, {"source-route", 3, 5, 1, 5}, {"prohibited", 3, 13, 1, 1},
	{"time-exceeded", 11, 0, 3, 0}, {"source-quench", 4, 0, 4, 0}, {"redirect", 5, 1, 4, 0}};

/* The packet that the message is about: its header and eight bytes. Returns the length. */
static unsigned icmp_embedded(
	const struct script *s, const struct flow *f, uint8_t *inner, uint32_t seq)
{
	unsigned header = s->family == 6 ? 40 : 20;

	if (s->family == 6) {
		inner[0] = 0x60;
		put16(inner + 4, 1460);
		inner[6] = 6;
		inner[7] = 60;
		memcpy(inner + 8, addr6_stack, 16);
		memcpy(inner + 24, addr6_script, 16);
	} else {
		inner[0] = 0x45;
		put16(inner + 2, 1500);
		inner[6] = 0x40;
		inner[8] = 60;
		inner[9] = 6;
		memcpy(inner + 12, addr_stack, 4);
		memcpy(inner + 16, addr_script, 4);
		put16(inner + 10, ~rig_sum(inner, 20, 0));
	}
	put16(inner + header, f->local_port);
	put16(inner + header + 2, f->remote_port);
	put32(inner + header + 4, f->irs + seq);
	return header + 8;
}

static void icmp_send(struct script *s, const struct flow *f, const struct icmp_kind *kind,
	uint32_t mtu, uint32_t seq)
{
	bool v6 = s->family == 6;
	unsigned header = v6 ? 40 : 20, length;
	uint8_t p[40 + 8 + 40 + 8] = {0}, *icmp = p + header;

	icmp[0] = v6 ? kind->type6 : kind->type;
	icmp[1] = v6 ? kind->code6 : kind->code;
	put32(icmp + 4, mtu);
	length = 8 + icmp_embedded(s, f, icmp + 8, seq);
	if (v6) {
		build_ip6(p, 40 + length, &(struct build){0});
		p[6] = 58;
		put16(icmp + 2, ~rig_sum(icmp, length, rig_sum(p + 8, 32, 58 + length)));
	} else {
		build_ip4(p, 20 + length, &(struct build){0});
		p[9] = 1;
		put16(p + 10, 0);
		put16(p + 10, ~rig_sum(p, 20, 0));
		put16(icmp + 2, ~rig_sum(icmp, length, 0));
	}
	script_trace(s, "< #%u icmp %s mtu %u seq %u", f->number, kind->name, mtu, seq);
	if (!rig_packet(s->rig, p, header + length))
		script_fail(s, "out of buffers");
}

void packet_icmp(struct script *s)
{
	const struct flow *f = script_flow(s);
	const struct icmp_kind *kind = NULL;
	const char *word = script_take(s);
	uint32_t mtu = 0, seq = 0;

	for (unsigned i = 0; i < RP_ARRAY_SIZE(icmp_kinds); i++)
		if (strcmp(word, icmp_kinds[i].name) == 0)
			kind = &icmp_kinds[i];
	if (!kind)
		script_fail(s, "%s: no such ICMP message", word);
	while (script_peek(s)) {
		if (script_word(s, "mtu"))
			mtu = (uint32_t)script_take_number(s);
		else if (script_word(s, "seq"))
			seq = (uint32_t)script_take_number(s);
		else
			script_fail(s, "%s: no such word", script_peek(s));
	}
	icmp_send(s, f, kind, mtu, seq);
}
