/* SPDX-License-Identifier: Apache-2.0 */
#include <linux/tcp.h>
#include <string.h>

#include <base/units.h>

#include "pd.h"

/* Linux's numbers. */
enum { CA_OPEN, CA_DISORDER, CA_CWR, CA_RECOVERY, CA_LOSS };
enum { STATE_CLOSE = 7, STATE_LISTEN = 10 };

static uint8_t state_number(const char *name)
{
	static const struct {
		const char *name;
		uint8_t number;
	} states[] = {{"ESTABLISHED", 1}, {"SYN-SENT", 2}, {"SYN-RECEIVED", 3}, {"FIN-WAIT-1", 4},
		{"FIN-WAIT-2", 5}, {"CLOSE-WAIT", 8}, {"LAST-ACK", 9}, {"CLOSING", 11}};

	for (unsigned i = 0; i < RP_ARRAY_SIZE(states); i++)
		if (strcmp(states[i].name, name) == 0)
			return states[i].number;
	return STATE_CLOSE;
}

static uint32_t us(uint64_t ns)
{
	return (uint32_t)(ns / RP_NS_PER_US);
}

/* Where it never happened, since the connection is there, as Linux has it. */
static uint32_t ms_since(uint64_t ns, const struct pd_wire *w)
{
	return (uint32_t)((pd_now() - (ns ? ns : w->opened_ns)) / RP_NS_PER_MS);
}

static void info_recovery(
	struct tcp_info *o, const struct rp_tcp_info *i, const struct rp_tcp_segments *g)
{
	if (i->recovery)
		o->tcpi_ca_state = g->after_timeout ? CA_LOSS : CA_RECOVERY;
	else if (i->reduced)
		o->tcpi_ca_state = CA_CWR;
	else
		o->tcpi_ca_state = g->sacked > 0 ? CA_DISORDER : CA_OPEN;
	o->tcpi_unacked = g->unacked;
	o->tcpi_sacked = g->sacked;
	/* Linux counts them as lost until they are acknowledged, sent again or not. */
	o->tcpi_lost = g->lost + (i->recovery ? g->retransmitted : 0);
	o->tcpi_retrans = g->retransmitted;
	o->tcpi_backoff = (uint8_t)i->backoff;
	if (strcmp(i->timer, "persist") == 0)
		o->tcpi_probes = (uint8_t)i->backoff;
	else
		o->tcpi_retransmits = (uint8_t)i->backoff;
	o->tcpi_snd_cwnd = i->cwnd / i->mss;
	o->tcpi_snd_ssthresh = i->ssthresh >= UINT32_MAX / 4 ? INT32_MAX : i->ssthresh / i->mss;
	o->tcpi_reordering = 3;
	o->tcpi_reord_seen = i->reordering;
	o->tcpi_total_retrans = (uint32_t)i->rtx_segments;
}

static void info_options(struct tcp_info *o, const struct rp_tcp_info *i)
{
	if (i->timestamps)
		o->tcpi_options |= TCPI_OPT_TIMESTAMPS;
	if (i->sack)
		o->tcpi_options |= TCPI_OPT_SACK;
	if (i->ecn)
		o->tcpi_options |= TCPI_OPT_ECN;
	if (i->send_shift || i->receive_shift)
		o->tcpi_options |= TCPI_OPT_WSCALE;
	o->tcpi_snd_wscale = i->send_shift & 15;
	o->tcpi_rcv_wscale = i->receive_shift & 15;
}

static void info_times(struct tcp_info *o, const struct pd_sock *s, const struct rp_tcp_info *i)
{
	const struct pd_wire *w = &s->wire;

	o->tcpi_rto = us(i->rto_ns);
	o->tcpi_rtt = us(i->srtt_ns);
	o->tcpi_rttvar = us(i->rttvar_ns);
	o->tcpi_min_rtt = i->rtt_min_ns ? us(i->rtt_min_ns) : UINT32_MAX;
	o->tcpi_ato = 40000;
	o->tcpi_last_data_sent = ms_since(w->last_data_out_ns, w);
	o->tcpi_last_data_recv = ms_since(w->last_data_in_ns, w);
	o->tcpi_last_ack_recv = ms_since(RP_MAX(w->last_ack_in_ns, w->last_data_in_ns), w);
}

static void info_counts(struct tcp_info *o, const struct pd_sock *s, const struct rp_tcp_info *i)
{
	const struct pd_wire *w = &s->wire;
	const struct rp_tcp_counters *n = rp_tcp_counters(pd.rig->stack);
	uint64_t held = (uint64_t)i->unsent + i->unacked;

	o->tcpi_segs_in = w->segs_in;
	o->tcpi_segs_out = w->segs_out;
	o->tcpi_data_segs_in = w->data_in;
	o->tcpi_data_segs_out = w->data_out;
	o->tcpi_bytes_sent = w->bytes_out;
	o->tcpi_bytes_retrans = w->bytes_again;
	o->tcpi_bytes_acked = s->pushed - RP_MIN(held, s->pushed);
	o->tcpi_bytes_received = i->bytes_received;
	o->tcpi_notsent_bytes = i->unsent + (uint32_t)s->tx_length;
	/* Segments that are known to have arrived. */
	o->tcpi_delivered = w->data_out - RP_MIN(w->data_out, o->tcpi_unacked - o->tcpi_sacked) -
			    RP_MIN(w->data_out, o->tcpi_total_retrans);
	o->tcpi_rwnd_limited = us(w->spent_ns[PD_SPENT_WINDOW]);
	o->tcpi_sndbuf_limited = us(w->spent_ns[PD_SPENT_BUFFER]);
	o->tcpi_busy_time = us(w->spent_ns[PD_SPENT_BUSY] + w->spent_ns[PD_SPENT_WINDOW] +
			       w->spent_ns[PD_SPENT_BUFFER]);
	o->tcpi_dsack_dups = (uint32_t)n->dsack_rx;
	o->tcpi_rcv_ooopack = (uint32_t)n->ooo_segments;
}

/* What newer kernels have behind the struct of the headers here; the rest is zeros. */
struct info_more {
	struct tcp_info info;
	uint32_t rcv_wnd, rehash;
	uint16_t total_rto, total_rto_recoveries;
	uint32_t total_rto_time, later[16];
};

size_t pd_tcp_info(struct pd_sock *s, void *out, size_t room)
{
	struct info_more more = {.info.tcpi_state = STATE_CLOSE};
	struct tcp_info o = more.info;
	struct rp_tcp_segments segments;
	struct rp_tcp_info i;
	uint32_t headers;
	size_t n = RP_MIN(room, sizeof(more));

	if (s->state == PD_LISTEN) {
		o.tcpi_state = STATE_LISTEN;
		o.tcpi_unacked = s->queued; /* Linux says the length of the queue in it */
		o.tcpi_sacked = (uint32_t)s->backlog;
	} else if (s->conn) {
		pd_chrono(s);
		rp_tcp_conn_info(s->conn, &i);
		rp_tcp_conn_segments(s->conn, &segments);
		o.tcpi_state = state_number(i.state);
		info_recovery(&o, &i, &segments);
		info_options(&o, &i);
		info_times(&o, s, &i);
		info_counts(&o, s, &i);
		o.tcpi_snd_mss = i.mss;
		o.tcpi_rcv_mss = i.mss;
		headers = (s->peer.family == 6 ? 60 : 40) + (i.timestamps ? 12 : 0);
		o.tcpi_advmss = pd.rig->config.tcp.net.iface.mtu - headers;
		if (s->opt.maxseg)
			o.tcpi_advmss = RP_MIN(o.tcpi_advmss, (uint32_t)s->opt.maxseg);
		o.tcpi_pmtu = i.mss + headers;
		o.tcpi_snd_wnd = i.send_window;
		o.tcpi_rcv_ssthresh = i.receive_window;
		o.tcpi_rcv_space = i.receive_window;
		more.rcv_wnd = i.receive_window;
		more.total_rto = (uint16_t)i.rtos;
	}
	more.info = o;
	memcpy(out, &more, n);
	return n;
}
