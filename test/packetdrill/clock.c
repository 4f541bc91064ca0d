/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <base/units.h>

#include "pd.h"

/* When this thread's last blocking call ended: what it asks the time for next. */
static __thread uint64_t woken_ns;

uint64_t pd_now(void)
{
	return pd.rig ? pd.rig->now_ns : pd.now_ns;
}

/* Packets. */

static void wire_count(const uint8_t *ip, uint32_t length, bool out)
{
	const uint8_t *tcp = ip + (ip[0] & 15) * 4u;
	uint32_t header, payload, seq, end;
	uint16_t local, remote;

	if (ip[0] >> 4 == 6)
		tcp = ip + 40;
	if ((ip[0] >> 4 == 6 ? ip[6] : ip[9]) != 6 || tcp + 20 > ip + length)
		return;
	header = (tcp[12] >> 4) * 4u;
	payload = (uint32_t)(ip + length - tcp);
	payload = payload > header ? payload - header : 0;
	local = (uint16_t)(out ? tcp[0] << 8 | tcp[1] : tcp[2] << 8 | tcp[3]);
	remote = (uint16_t)(out ? tcp[2] << 8 | tcp[3] : tcp[0] << 8 | tcp[1]);
	seq = (uint32_t)tcp[4] << 24 | (uint32_t)tcp[5] << 16 | (uint32_t)tcp[6] << 8 | tcp[7];
	end = seq + payload;
	for (unsigned i = 0; i < PD_SOCKS_MAX; i++) {
		struct pd_sock *s = &pd.socks[i];
		struct pd_wire *w = &s->wire;

		if (!s->conn || s->local.port != local || s->peer.port != remote)
			continue;
		if (!out) {
			w->segs_in++;
			w->data_in += payload > 0;
			*(payload > 0 ? &w->last_data_in_ns : &w->last_ack_in_ns) = pd_now();
			continue;
		}
		w->segs_out++;
		if (payload == 0)
			continue;
		w->data_out++;
		w->last_data_out_ns = pd_now();
		w->bytes_out += payload;
		if (w->end_known && (int32_t)(end - w->end) <= 0)
			w->bytes_again += payload;
		else
			w->end = end;
		w->end_known = true;
	}
}

/* Whose packet it is: a connection's, or of a listener for one that is not accepted yet. */
static const struct pd_sock *sender(uint16_t local, uint16_t remote)
{
	const struct pd_sock *listener = NULL;

	for (unsigned i = 0; i < PD_SOCKS_MAX; i++) {
		const struct pd_sock *s = &pd.socks[i];

		if (s->conn && s->local.port == local && s->peer.port == remote)
			return s;
		if (s->state == PD_LISTEN && s->local.port == local)
			listener = s;
	}
	return listener;
}

/* IP_TTL, IP_TOS and their like of IPv6: the stack has one of each for all. */
static void mark(uint8_t *ip, uint32_t length)
{
	bool six = ip[0] >> 4 == 6;
	const uint8_t *tcp = ip + (six ? 40 : (ip[0] & 15) * 4);
	const struct pd_sock *s;
	uint32_t sum = 0;

	if ((six ? ip[6] : ip[9]) != 6 || tcp + 4 > ip + length)
		return;
	s = sender((uint16_t)(tcp[0] << 8 | tcp[1]), (uint16_t)(tcp[2] << 8 | tcp[3]));
	if (!s)
		return;
	if (six) {
		if (s->opt.hops > 0)
			ip[7] = (uint8_t)s->opt.hops;
		ip[0] = (uint8_t)(6 << 4 | s->opt.tos >> 4);
		ip[1] = (uint8_t)((ip[1] & 0x3f) | (s->opt.tos & 0x0c) << 4);
		return;
	}
	if (s->opt.ttl > 0)
		ip[8] = (uint8_t)s->opt.ttl;
	if (s->opt.mtu_discover == IP_PMTUDISC_DONT)
		ip[6] &= 0xbf; /* it may be cut on its way */
	ip[1] = (uint8_t)((s->opt.tos & ~3) | (ip[1] & 3));
	ip[10] = ip[11] = 0;
	for (unsigned i = 0; i < (ip[0] & 15u) * 4; i += 2)
		sum += (uint32_t)(ip[i] << 8 | ip[i + 1]);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	ip[10] = (uint8_t)(~sum >> 8);
	ip[11] = (uint8_t)~sum;
}

void pd_on_packet(void *ctx, const uint8_t *packet, uint32_t length)
{
	struct pd_packet *p = malloc(sizeof(*p) + length);

	if (!p)
		abort();
	p->next = NULL;
	p->at_ns = pd_now();
	p->length = length;
	memcpy(p->data, packet, length);
	mark(p->data, length);
	*pd.out_last = p;
	pd.out_last = &p->next;
	wire_count(packet, length, true);
}

/* Waiting. */

/* What the time is spent with, from one look to the next. */
static enum pd_spent chrono_now(const struct pd_sock *s)
{
	struct rp_tcp_info i;

	if (s->state == PD_CONNECTING)
		return PD_SPENT_IDLE; /* a SYN is no data */
	rp_tcp_conn_info(s->conn, &i);
	if (i.unacked + i.unsent + s->tx_length == 0)
		return PD_SPENT_IDLE;
	/* Where the peer's window is the limit, and cwnd is not. */
	if (i.unsent > 0 && i.unacked + i.mss > i.send_window && i.pipe + i.mss <= i.cwnd)
		return PD_SPENT_WINDOW;
	if (i.unsent + s->tx_length == 0 && s->full)
		return PD_SPENT_BUFFER;
	return PD_SPENT_BUSY;
}

void pd_chrono(struct pd_sock *s)
{
	struct pd_wire *w = &s->wire;

	w->spent_ns[w->spent] += pd_now() - w->counted_ns;
	w->counted_ns = pd_now();
	w->spent = chrono_now(s);
}

/* True: what waits behind a record may go when the stack has sent it. */
static bool push_all(void)
{
	bool more = false;

	for (unsigned i = 0; i < PD_SOCKS_MAX; i++) {
		struct pd_sock *s = &pd.socks[i];

		if (!s->conn)
			continue;
		pd_push(s);
		more |= s->record_count > 0 && s->tx_length > 0;
		if (s->full && pd_writable(s)) {
			s->full = false;
			pd_changed(s);
		}
		pd_chrono(s);
	}
	return more;
}

void pd_settle(void)
{
	struct pd_waiter *w;

	if (pd.rig) {
		rig_turn(pd.rig);
		for (unsigned i = 0; i < PD_RECORDS_MAX; i++) {
			bool more = push_all();

			rig_turn(pd.rig);
			if (!more)
				break;
		}
		for (unsigned i = 0; i < PD_SOCKS_MAX; i++)
			if (pd.socks[i].state != PD_FREE)
				pd_errqueue_look(&pd.socks[i]);
	}
again:
	for (w = pd.waiters; w; w = w->next) {
		if (w->woken || (!w->ready(w->ctx) && pd_now() < w->deadline_ns))
			continue;
		w->woken = true;
		pthread_cond_broadcast(&pd.changed);
		/* Its call ends, at this very time, before ours goes on. */
		while (w && w->woken) {
			struct pd_waiter *x = pd.waiters;

			pthread_cond_wait(&pd.finished, &pd.lock);
			for (x = pd.waiters; x && x != w; x = x->next)
				;
			w = x;
		}
		goto again;
	}
}

/* The next time at which anything happens by itself. */
static uint64_t next_deadline(void)
{
	uint64_t next = pd.rig ? rp_tcp_next_deadline(pd.rig->stack) : PD_EVER;

	for (const struct pd_waiter *w = pd.waiters; w; w = w->next)
		next = RP_MIN(next, w->deadline_ns);
	for (unsigned i = 0; i < PD_SOCKS_MAX; i++)
		if (pd.socks[i].conn && pd.socks[i].cork_ns)
			next = RP_MIN(next, pd.socks[i].cork_ns);
	return next;
}

/* To the next such time, at most to `until_ns`; false: there it stands. */
static bool step(uint64_t until_ns)
{
	uint64_t next = next_deadline();

	if (next > until_ns) {
		if (pd.rig)
			pd.rig->now_ns = RP_MAX(pd.rig->now_ns, until_ns);
		pd.now_ns = RP_MAX(pd.now_ns, until_ns);
		return false;
	}
	pd.now_ns = RP_MAX(pd_now(), next);
	if (pd.rig)
		pd.rig->now_ns = pd.now_ns;
	pd_settle();
	return true;
}

void pd_run(uint64_t until_ns)
{
	while (step(until_ns))
		;
}

static void nothing_left(const char *call)
{
	fprintf(stderr, "%s: nothing is sent, and no timer is armed\n", call);
	exit(1);
}

bool pd_block(bool (*ready)(void *ctx), void *ctx, uint64_t deadline_ns)
{
	struct pd_waiter w = {.ready = ready, .ctx = ctx, .deadline_ns = deadline_ns};
	struct pd_waiter **at;

	pd_settle();
	if (pthread_equal(pthread_self(), pd.main_thread)) {
		while (!ready(ctx) && pd_now() < deadline_ns) {
			if (deadline_ns == PD_EVER && next_deadline() == PD_EVER)
				nothing_left("blocked for ever");
			step(deadline_ns);
		}
		return ready(ctx);
	}
	if (ready(ctx))
		return true;
	w.next = pd.waiters;
	pd.waiters = &w;
	while (!w.woken)
		pthread_cond_wait(&pd.changed, &pd.lock);
	for (at = &pd.waiters; *at != &w; at = &(*at)->next)
		;
	*at = w.next;
	pthread_cond_broadcast(&pd.finished);
	woken_ns = pd_now();
	return ready(ctx);
}

/* The tool's calls. */

int pd_netdev_send(void *u, const void *buf, size_t count)
{
	const uint8_t *ip = buf;
	struct rp_endpoint local = {.family = 4};
	bool ok;

	pthread_mutex_lock(&pd.lock);
	if (!pd.rig && count >= 20) {
		/* Nobody listens, nobody called: the stack is who it is meant for. */
		if (ip[0] >> 4 == 6 && count >= 40) {
			local.family = 6;
			memcpy(local.addr, ip + 24, 16);
		} else {
			memcpy(local.addr, ip + 16, 4);
		}
		pd_knobs_read();
		pd_stack(NULL, &local);
	}
	if (pd.rig)
		wire_count(ip, (uint32_t)count, false);
	ok = pd.rig && rig_packet(pd.rig, buf, (uint32_t)count);
	pd_settle();
	pthread_mutex_unlock(&pd.lock);
	return ok ? 0 : -1;
}

int pd_netdev_receive(void *u, void *buf, size_t *count, long long *time_us)
{
	struct pd_packet *p;

	pthread_mutex_lock(&pd.lock);
	pd_settle();
	while (!pd.out_first) {
		if (next_deadline() == PD_EVER)
			nothing_left("netdev_receive");
		step(PD_EVER - 1);
	}
	p = pd.out_first;
	pd.out_first = p->next;
	if (!pd.out_first)
		pd.out_last = &pd.out_first;
	*count = RP_MIN(*count, (size_t)p->length);
	memcpy(buf, p->data, *count);
	*time_us = (long long)(p->at_ns / RP_NS_PER_US);
	free(p);
	pthread_mutex_unlock(&pd.lock);
	return 0;
}

int pd_usleep(void *u, useconds_t us)
{
	pthread_mutex_lock(&pd.lock);
	pd_settle();
	pd_run(pd_now() + us * RP_NS_PER_US);
	pthread_mutex_unlock(&pd.lock);
	return 0;
}

int pd_gettimeofday(void *u, struct timeval *tv, struct timezone *tz)
{
	uint64_t now_ns;

	pthread_mutex_lock(&pd.lock);
	if (woken_ns) {
		now_ns = woken_ns;
		woken_ns = 0;
	} else {
		pd_run(pd_now() + RP_NS_PER_US);
		now_ns = pd_now();
	}
	pthread_mutex_unlock(&pd.lock);
	tv->tv_sec = (time_t)(now_ns / RP_NS_PER_S);
	tv->tv_usec = (suseconds_t)(now_ns % RP_NS_PER_S / RP_NS_PER_US);
	return 0;
}
