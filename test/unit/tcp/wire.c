/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include <rte_mbuf.h>

#include "wire.h"

static uint32_t get32(const uint8_t *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

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

static uint32_t sum16(const uint8_t *p, uint32_t n, uint32_t sum)
{
	for (uint32_t i = 0; i < n; i++)
		sum += i & 1 ? p[i] : (uint32_t)p[i] << 8;
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

static void parse_options(struct wire *w, struct wire_out *o, const uint8_t *p, unsigned n)
{
	while (n > 0 && p[0] != 0) {
		unsigned length = p[0] == 1 ? 1 : p[1];

		SIM_CHECK(w->sim, length >= 1 && length <= n);
		if (p[0] == 2) {
			o->has_mss = true;
			o->mss = (uint16_t)(p[2] << 8 | p[3]);
		} else if (p[0] == 3) {
			o->has_shift = true;
			o->shift = p[2];
		} else if (p[0] == 4) {
			o->has_sack = true;
		} else if (p[0] == 5) {
			o->blocks = (length - 2) / 8;
			SIM_CHECK(w->sim, o->blocks <= 4 && (length - 2) % 8 == 0);
			for (unsigned i = 0; i < o->blocks; i++) {
				o->block[i][0] = get32(p + 2 + 8 * i);
				o->block[i][1] = get32(p + 6 + 8 * i);
			}
		} else if (p[0] == 8) {
			SIM_CHECK(w->sim, length == 10);
			o->has_ts = true;
			o->ts_value = get32(p + 2);
			o->ts_echo = get32(p + 6);
		}
		p += length;
		n -= length;
	}
}

static bool wire_tap(void *ctx, const struct sim_frame_info *f)
{
	struct wire *w = ctx;
	struct wire_out *o;
	const uint8_t *tcp = f->data + f->l4;
	unsigned header;

	if (f->from != 0 || f->l4 == 0)
		return true;
	SIM_CHECK(w->sim, w->out_count < WIRE_OUT_MAX);
	o = &w->out[w->out_count++];
	memset(o, 0, offsetof(struct wire_out, data));
	o->now_ns = f->now_ns;
	o->seq = f->seq;
	o->ack = f->ack;
	o->flags = f->flags;
	o->ecn = f->ecn;
	o->window = f->window;
	o->length = f->payload;
	header = (tcp[12] >> 4) * 4u;
	parse_options(w, o, tcp + 20, header - 20);
	memcpy(o->data, tcp + header, f->payload);
	w->local_port = (uint16_t)(tcp[0] << 8 | tcp[1]);
	w->remote_port = (uint16_t)(tcp[2] << 8 | tcp[3]);
	return false;
}

struct wire *wire_new(const struct sim_config *config)
{
	struct wire *w = calloc(1, sizeof(*w));
	struct sim_config c = *config;
	struct rp_endpoint e = sim_endpoint(1, 0);
	union rp_ip peer;

	c.tap = wire_tap;
	c.tap_ctx = w;
	w->out = calloc(WIRE_OUT_MAX, sizeof(*w->out));
	w->sim = sim_new(&c);
	SIM_CHECK(w->sim, rp_ip_from_endpoint(&peer, &e) == 0);
	rp_net_neigh_learn(rp_tcp_net(w->sim->host[0].stack), &peer,
		(const uint8_t[]){0x02, 0, 0, 0, 0, 0x11}, true, w->sim->now_ns);
	w->iss = 0xfffffff0; /* wraps soon */
	w->remote_port = 1234;
	w->local_port = 80;
	app_init(&w->app, w->sim, 0, 1, 2);
	w->app.close = APP_CLOSE_NEVER;
	return w;
}

void wire_free(struct wire *w)
{
	if (w->app.conn)
		w->app.conn->transport->ops->abort(w->app.conn, w->sim->now_ns);
	sim_free(w->sim);
	free(w->out);
	free(w);
}

void wire_wait(struct wire *w, uint64_t ns)
{
	sim_run(w->sim, w->sim->now_ns + ns, NULL, NULL);
}

void wire_ip(struct wire *w, const void *packet, uint32_t length)
{
	uint8_t f[10000] = {0x02, 0, 0, 0, 0, 0x10, 0x02, 0, 0, 0, 0, 0x11, 8, 0};

	if (*(const uint8_t *)packet >> 4 == 6) {
		f[12] = 0x86;
		f[13] = 0xdd;
	}
	memcpy(f + 14, packet, length);
	sim_inject(w->sim, 0, f, 14 + length);
	sim_turn(w->sim, 0);
}

/* An IP header between two hosts; returns its length. *sum: of the pseudo header. */
static unsigned put_ip(
	uint8_t *p, unsigned from, uint8_t protocol, uint8_t ecn, uint32_t l4_length, uint32_t *sum)
{
	struct rp_endpoint src = sim_endpoint(from, 0), dst = sim_endpoint(1 - from, 0);

	if (src.family == 6) {
		p[0] = 0x60;
		p[1] = (uint8_t)(ecn << 4);
		put16(p + 4, l4_length);
		p[6] = protocol;
		p[7] = 64;
		memcpy(p + 8, src.addr, 16);
		memcpy(p + 24, dst.addr, 16);
		*sum = sum16(p + 8, 32, protocol + l4_length);
		return 40;
	}
	p[0] = 0x45;
	p[1] = ecn;
	put16(p + 2, 20 + l4_length);
	p[6] = 0x40;
	p[8] = 64;
	p[9] = protocol;
	memcpy(p + 12, src.addr, 4);
	memcpy(p + 16, dst.addr, 4);
	put16(p + 10, ~sum16(p, 20, 0));
	*sum = sum16(p + 12, 8, protocol + l4_length);
	return 20;
}

void wire_send(struct wire *w, const struct wire_segment *s)
{
	uint8_t p[9200] = {0}, *tcp;
	unsigned header = 20 + s->options_length;
	uint32_t l4 = header + s->length, sum;

	tcp = p + put_ip(p, 1, 6, s->ecn, l4, &sum);
	put16(tcp, w->remote_port);
	put16(tcp + 2, w->local_port);
	put32(tcp + 4, s->seq);
	put32(tcp + 8, s->flags & ACK ? s->ack : 0);
	tcp[12] = (uint8_t)(header / 4 << 4);
	tcp[13] = s->flags;
	put16(tcp + 14, s->window);
	if (s->options_length)
		memcpy(tcp + 20, s->options, s->options_length);
	if (s->length)
		memcpy(tcp + header, s->data, s->length);
	put16(tcp + 16, ~sum16(tcp, l4, sum) ^ (s->bad_checksum ? 0x0101 : 0));
	wire_ip(w, p, (uint32_t)(tcp - p) + l4);
}

/* ICMPv6 has numbers of its own (RFC 4443), and room for four bytes of MTU. */
static void translate_icmp(uint8_t *type, uint8_t *code)
{
	if (*type == 11) {
		*type = 3;
	} else if (*code == 4) {
		*type = 2;
		*code = 0;
	} else {
		*type = 1;
		*code = *code == 3 ? 4 : *code == 13 ? 1 : *code == 0 ? 0 : 3;
	}
}

void wire_icmp(struct wire *w, uint8_t type, uint8_t code, uint16_t mtu, uint32_t seq)
{
	bool six = sim_family() == 6;
	uint8_t p[200] = {0}, *icmp, *l4;
	uint32_t sum, quoted, length = 8 + (six ? 40 : 20) + 8;

	if (six)
		translate_icmp(&type, &code);
	icmp = p + put_ip(p, 1, six ? 58 : 1, 0, length, &sum);
	icmp[0] = type;
	icmp[1] = code;
	put16(icmp + 6, mtu);
	l4 = icmp + 8 + put_ip(icmp + 8, 0, 6, 0, 20, &quoted);
	put16(l4, w->local_port);
	put16(l4 + 2, w->remote_port);
	put32(l4 + 4, seq);
	put16(icmp + 2, ~sum16(icmp, length, six ? sum : 0));
	wire_ip(w, p, (uint32_t)(icmp - p) + length);
}

void wire_put(struct wire *w, uint8_t flags, uint32_t seq, uint32_t ack, const void *data,
	uint32_t length)
{
	uint8_t ts[12] = {1, 1, 8, 10};
	struct wire_segment s = {.flags = flags,
		.seq = w->iss + seq,
		.ack = w->irs + ack,
		.window = 0xffff,
		.data = data,
		.length = length};

	if (w->ts) {
		put32(ts + 4, w->ts);
		s.options = ts;
		s.options_length = 12;
	}
	wire_send(w, &s);
}

struct wire_out *wire_take(struct wire *w)
{
	return w->out_next < w->out_count ? &w->out[w->out_next++] : NULL;
}

void wire_none(struct wire *w)
{
	struct wire_out *o = wire_take(w);

	if (o)
		sim_fail(w->sim, "unexpected: flags %x seq +%u ack +%u length %u", o->flags,
			o->seq - w->irs, o->ack - w->iss, o->length);
}

struct wire_out *wire_expect(
	struct wire *w, uint8_t flags, uint32_t seq, uint32_t ack, uint32_t length)
{
	struct wire_out *o = wire_take(w);

	if (!o)
		sim_fail(w->sim, "nothing sent; expected flags %x seq +%u ack +%u length %u", flags,
			seq, ack, length);
	if ((o->flags & ~PSH) != flags || o->seq != w->irs + seq || o->ack != w->iss + ack ||
		o->length != length)
		sim_fail(w->sim,
			"flags %x seq +%u ack +%u length %u; expected flags %x seq +%u ack +%u length %u",
			o->flags, o->seq - w->irs, o->ack - w->iss, o->length, flags, seq, ack,
			length);
	return o;
}

void wire_accept(struct wire *w, bool rich)
{
	static const uint8_t plain[4] = {2, 4, 0x05, 0xb4};
	static const uint8_t full[20] = {
		2, 4, 0x05, 0xb4, 4, 2, 8, 10, 0, 0, 0, 100, 0, 0, 0, 0, 1, 3, 3, 7};
	struct wire_out *o;

	SIM_CHECK(w->sim, app_listen(&w->app, 80, NULL) == 0);
	wire_send(w, &(struct wire_segment){.flags = SYN,
			     .seq = w->iss,
			     .window = 0xffff,
			     .options = rich ? full : plain,
			     .options_length = rich ? sizeof(full) : sizeof(plain)});
	o = wire_take(w);
	SIM_CHECK(w->sim, o && o->flags == (SYN | ACK) && o->ack == w->iss + 1);
	w->irs = o->seq;
	w->ts = rich ? 100 : 0;
	wire_put(w, ACK, 1, 1, NULL, 0);
	SIM_CHECK(w->sim, w->app.opened);
	wire_none(w);
}
