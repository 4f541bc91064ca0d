/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <base/seq32.h>
#include <base/units.h>

#include "script.h"

/* What the stack sends: read, checked in itself, compared with what the script says. */

static uint32_t get16(const uint8_t *p)
{
	return (uint32_t)p[0] << 8 | p[1];
}

static uint32_t get32(const uint8_t *p)
{
	return get16(p) << 16 | get16(p + 2);
}

static void out_options(struct script *s, struct options *o, const uint8_t *p, unsigned n)
{
	while (n > 0 && p[0] != 0) {
		unsigned length;

		if (p[0] == 1) {
			p++;
			n--;
			continue;
		}
		if (n < 2 || p[1] < 2 || p[1] > n) {
			script_defer(s, "an option of impossible length was sent");
			return;
		}
		length = p[1];
		if (p[0] == 2 && length == 4 && !o->mss_set) {
			o->mss_set = true;
			o->mss = (uint16_t)get16(p + 2);
		} else if (p[0] == 3 && length == 3 && !o->shift_set) {
			o->shift_set = true;
			o->shift = p[2];
		} else if (p[0] == 4 && length == 2 && !o->sack_permitted) {
			o->sack_permitted = true;
		} else if (p[0] == 5 && o->blocks == 0 && length >= 10 && length <= 34 &&
			   (length - 2) % 8 == 0) {
			for (; o->blocks < (length - 2) / 8; o->blocks++) {
				o->block[o->blocks][0] = get32(p + 2 + 8 * o->blocks);
				o->block[o->blocks][1] = get32(p + 6 + 8 * o->blocks);
			}
		} else if (p[0] == 8 && length == 10 && !o->ts_set) {
			o->ts_set = true;
			o->ts_value = get32(p + 2);
			o->ts_echo = get32(p + 6);
		} else {
			script_defer(s, "option %u of %u bytes was sent", p[0], length);
		}
		p += length;
		n -= length;
	}
}

static struct flow *out_flow(struct script *s, uint16_t local, uint16_t remote)
{
	for (unsigned i = 0; i < FLOWS_MAX; i++) {
		struct flow *f = &s->flows[i];

		if (f->remote_port != remote)
			continue;
		if (f->local_port == 0)
			f->local_port = local;
		return f;
	}
	script_defer(s, "a packet was sent to port %u", remote);
	return NULL;
}

/* What holds for each packet whatever the script is about. */
static void out_learn(struct script *s, struct flow *f, const struct packet *p)
{
	uint32_t end = p->seq + p->length + ((p->flags & SYN) != 0) + ((p->flags & FIN) != 0);
	uint32_t edge;
	char name[16];

	if (p->flags & SYN) {
		if (!f->irs_known || f->irs != p->seq) {
			f->edge_known = f->ts_base_known = false;
			f->stack_end = 0;
		}
		f->irs = p->seq;
		f->irs_known = true;
		snprintf(name, sizeof(name), "isn%u", f->number);
		script_let(s, name, p->seq);
		f->stack_ts = p->opt.ts_set;
		f->stack_ws = p->opt.shift_set;
		f->shift_offered = p->opt.shift;
		packet_agree(f);
	}
	if (p->opt.ts_set && !f->ts_base_known) {
		f->ts_base = p->opt.ts_value;
		f->ts_base_known = true;
	}
	if (p->opt.ts_set)
		f->ts_last = p->opt.ts_value;
	if (rp_seq_gt(end - f->irs, f->stack_end) && f->irs_known && !(p->flags & RST))
		f->stack_end = end - f->irs;
	if (p->flags & RST || !(p->flags & ACK))
		return;
	edge = p->ack + ((uint32_t)p->window << (p->flags & SYN ? 0 : f->stack_shift));
	if (f->edge_known && rp_seq_lt(edge + (1u << f->stack_shift) - 1, f->edge))
		script_defer(s, "the window was taken back: its right edge %d became %d",
			(int)(f->edge - f->iss), (int)(edge - f->iss));
	f->edge = f->edge_known ? rp_seq_max(edge, f->edge) : edge;
	f->edge_known = true;
}

void packet_out(void *ctx, const uint8_t *ip, uint32_t length)
{
	struct script *s = ctx;
	bool v6 = ip[0] >> 4 == 6;
	const uint8_t *tcp = ip + (v6 ? 40 : (ip[0] & 15) * 4u);
	unsigned header;
	char text[300];
	struct packet *p;
	struct flow *f;

	f = out_flow(s, (uint16_t)get16(tcp), (uint16_t)get16(tcp + 2));
	header = (tcp[12] >> 4) * 4u;
	if (header < 20 || tcp + header > ip + length)
		script_defer(s, "the data offset is %u", header);
	if (s->packet_last - s->packet_first == PACKETS_MAX)
		script_defer(s, "too many packets wait for their `>`");
	if (s->message[0])
		return;
	p = &s->packets[s->packet_last++ % PACKETS_MAX];
	*p = (struct packet){.at_ns = s->rig->now_ns,
		.flow = f,
		.flags = tcp[13],
		.ecn = v6 ? ip[1] >> 4 & 3 : ip[1] & 3,
		.ttl = v6 ? ip[7] : ip[8],
		.dscp = v6 ? (uint8_t)((ip[0] & 15) << 2 | ip[1] >> 6) : ip[1] >> 2,
		.seq = get32(tcp + 4),
		.ack = get32(tcp + 8),
		.window = (uint16_t)get16(tcp + 14),
		.urgent = (uint16_t)get16(tcp + 18),
		.length = (uint32_t)(ip + length - tcp) - header};
	out_options(s, &p->opt, tcp + 20, header - 20);
	out_learn(s, p->flow, p);
	packet_describe(p, text, sizeof(text));
	script_trace(s, "> %s", text);
	if (!v6 && !(ip[6] & 0x40))
		script_defer(s, "sent without Don't Fragment");
	for (uint32_t i = 0; i < p->length; i++) {
		uint32_t seq = p->seq - p->flow->irs + i;

		if (tcp[header + i] != packet_byte(false, seq))
			script_defer(s, "the byte at %u that was sent is wrong: %s", seq, text);
	}
}

static void flags_text(uint8_t flags, char *out)
{
	static const char letters[] = "FSRPAUEC";
	static const uint8_t order[] = {1, 0, 2, 3, 4, 5, 6, 7};

	if (flags == 0)
		*out++ = '-';
	for (unsigned i = 0; i < 8; i++)
		if (flags & 1u << order[i])
			*out++ = letters[order[i]];
	*out = '\0';
}

void packet_describe(const struct packet *p, char *out, unsigned size)
{
	static const char *const ecn[] = {"", " ect1", " ect0", " ce"};
	const struct flow *f = p->flow;
	const struct options *o = &p->opt;
	char flags[16], *at = out;
	const char *end = out + size;

#define ADD(...)                                                             \
	do {                                                                 \
		if (at < end)                                                \
			at += snprintf(at, (size_t)(end - at), __VA_ARGS__); \
	} while (0)
	flags_text(p->flags, flags);
	ADD("#%u %s %d", f->number, flags, (int)(p->seq - f->irs));
	if (p->length > 0)
		ADD(":%d", (int)(p->seq - f->irs + p->length));
	if (p->flags & ACK)
		ADD(" ack %d", (int)(p->ack - f->iss));
	ADD(" win %u%s <", p->window, ecn[p->ecn]);
	if (o->mss_set)
		ADD(" mss %u", o->mss);
	if (o->sack_permitted)
		ADD(" sack");
	if (o->ts_set)
		ADD(" ts %d %u", (int)(o->ts_value - f->ts_base), o->ts_echo);
	if (o->shift_set)
		ADD(" ws %u", o->shift);
	for (unsigned i = 0; i < o->blocks; i++)
		ADD("%s %d:%d", i ? "" : " sb", (int)(o->block[i][0] - f->iss),
			(int)(o->block[i][1] - f->iss));
	ADD(" >");
#undef ADD
}

/* What differs, or NULL. */
static const char *options_differ(const struct options *want, const struct options *got)
{
	if (want->any)
		return NULL;
	if (want->mss_set != got->mss_set || want->mss != got->mss)
		return "mss";
	if (want->shift_set != got->shift_set || want->shift != got->shift)
		return "window scale";
	if (want->sack_permitted != got->sack_permitted)
		return "SACK permitted";
	if (want->ts_set != got->ts_set)
		return "timestamps";
	if (want->ts_set && !want->ts_any_value && want->ts_value != got->ts_value)
		return "timestamp value";
	if (want->ts_set && !want->ts_any_echo && want->ts_echo != got->ts_echo)
		return "timestamp echo";
	if (want->blocks != got->blocks || memcmp(want->block, got->block, want->blocks * 8u) != 0)
		return "SACK blocks";
	return NULL;
}

/* `N`, `N..M`, `*`. */
static bool in_range(struct script *s, const char *word, int64_t got)
{
	const char *dots = strstr(word, "..");
	char copy[128];

	if (strcmp(word, "*") == 0)
		return true;
	if (!dots)
		return got == script_number(s, word);
	snprintf(copy, sizeof(copy), "%.*s", (int)(dots - word), word);
	return got >= script_number(s, copy) && got <= script_number(s, dots + 2);
}

static void expect_word(
	struct script *s, const struct packet *p, const char *word, const char *text)
{
	static const struct {
		const char *word;
		uint8_t ecn;
	} marks[] = {{"notect", 0}, {"ect1", 1}, {"ect0", 2}, {"ce", 3}};

	if (strcmp(word, "win") == 0) {
		if (!in_range(s, script_take(s), p->window))
			script_fail(s, "the window is different; got: %s", text);
		return;
	}
	if (strcmp(word, "dscp") == 0) {
		if (!in_range(s, script_take(s), p->dscp))
			script_fail(s, "the DSCP is %u; got: %s", p->dscp, text);
		return;
	}
	if (strcmp(word, "ttl") == 0) {
		if (!in_range(s, script_take(s), p->ttl))
			script_fail(s, "the TTL is %u; got: %s", p->ttl, text);
		return;
	}
	for (unsigned i = 0; i < RP_ARRAY_SIZE(marks); i++) {
		if (strcmp(word, marks[i].word) == 0) {
			if (p->ecn != marks[i].ecn)
				script_fail(s, "the ECN bits are %u; got: %s", p->ecn, text);
			return;
		}
	}
	script_fail(s, "%s: no such word", word);
}

void packet_expect(struct script *s, const struct packet *p)
{
	struct flow *f = script_flow(s);
	bool no_push = false, has_options = false;
	uint32_t seq, length;
	char text[300];
	const char *word, *differs;
	uint8_t flags, care;

	packet_describe(p, text, sizeof(text));
	s->checks++;
	if (f != p->flow)
		script_fail(s, "it is of another connection: %s", text);
	if (script_word(s, "any"))
		return;
	flags = packet_read_flags(s, script_take(s), &no_push);
	care = flags & PSH || no_push ? 0xff : 0xff & ~PSH;
	if ((p->flags & care) != (flags & care))
		script_fail(s, "the flags are different; got: %s", text);
	if (!packet_read_seq(s, &seq, &length))
		script_fail(s, "a sequence number is missing");
	if (p->seq - f->irs != seq || p->length != length)
		script_fail(s, "the sequence range is different; got: %s", text);
	if (flags & ACK) {
		if (!script_word(s, "ack"))
			script_fail(s, "`ack` is missing");
		word = script_take(s);
		if (strcmp(word, "*") != 0 && p->ack - f->iss != (uint32_t)script_number(s, word))
			script_fail(s, "the acknowledgement is different; got: %s", text);
	}
	while ((word = script_peek(s))) {
		script_take(s);
		if (word[0] == '<') {
			struct options want = packet_options(s, f, word, false);

			has_options = true;
			differs = options_differ(&want, &p->opt);
			if (differs)
				script_fail(s, "the option differs: %s; got: %s", differs, text);
		} else {
			expect_word(s, p, word, text);
		}
	}
	if (!has_options && p->opt.blocks > 0)
		script_fail(s, "SACK blocks that were not asked for; got: %s", text);
}
