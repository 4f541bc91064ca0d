/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include <base/units.h>
#include <engine/node_record.h>
#include <telem/dpdk.h>

/** From here on ssthresh means that no loss has set it. */
#define SSTHRESH_UNSET (UINT32_MAX / 2)

int rp_telem_connections(struct rte_tel_data *d, const struct rp_telem_connection *all, uint32_t n)
{
	rte_tel_data_start_array(d, RTE_TEL_STRING_VAL);
	for (uint32_t i = 0; i < n && i < RTE_TEL_MAX_ARRAY_ENTRIES; i++) {
		char local[64], peer[64], text[RTE_TEL_MAX_STRING_LEN];

		rp_endpoint_format(&all[i].info.local, local, sizeof(local));
		rp_endpoint_format(&all[i].info.peer, peer, sizeof(peer));
		snprintf(text, sizeof(text), "%.50s %.50s %.20s", local, peer, all[i].info.state);
		if (rte_tel_data_add_array_string(d, text) < 0)
			return -1;
	}
	return 0;
}

static void add_endpoint(struct rte_tel_data *d, const char *name, const struct rp_endpoint *e)
{
	char text[64];

	rp_endpoint_format(e, text, sizeof(text));
	rte_tel_data_add_dict_string(d, name, text);
}

/* Zero means that there is none. */
static void add_known(struct rte_tel_data *d, const char *name, uint64_t value)
{
	if (value > 0)
		rte_tel_data_add_dict_u64(d, name, value);
}

static void add_identity(struct rte_tel_data *d, const struct rp_telem_connection *c)
{
	const struct rp_tcp_info *t = &c->info;

	rte_tel_data_add_dict_u64(d, "port", c->port);
	rte_tel_data_add_dict_u64(d, "shard", c->shard);
	add_endpoint(d, "local", &t->local);
	add_endpoint(d, "peer", &t->peer);
	rte_tel_data_add_dict_string(d, "state", t->state);
	rte_tel_data_add_dict_u64(d, "passive", t->passive);
	rte_tel_data_add_dict_string(d, "congestion", t->congestion);
	rte_tel_data_add_dict_u64(d, "ecn", t->ecn);
	rte_tel_data_add_dict_u64(d, "sack", t->sack);
	rte_tel_data_add_dict_u64(d, "timestamps", t->timestamps);
	rte_tel_data_add_dict_u64(d, "recovery", t->recovery);
	rte_tel_data_add_dict_u64(d, "reordering", t->reordering);
	rte_tel_data_add_dict_u64(d, "backoff", t->backoff);
	rte_tel_data_add_dict_u64(d, "retransmissions", t->rtx_segments);
	rte_tel_data_add_dict_u64(d, "rtos", t->rtos);
	rte_tel_data_add_dict_u64(d, "tlps", t->tlps);
	rte_tel_data_add_dict_u64(d, "undos", t->undos);
}

static void add_sizes(struct rte_tel_data *d, const struct rp_tcp_info *t)
{
	rte_tel_data_add_dict_u64(d, "mss_bytes", t->mss);
	add_known(d, "path_mtu_bytes", t->path_mtu);
	rte_tel_data_add_dict_u64(d, "cwnd_bytes", t->cwnd);
	add_known(d, "ssthresh_bytes", t->ssthresh < SSTHRESH_UNSET ? t->ssthresh : 0);
	rte_tel_data_add_dict_u64(d, "pipe_bytes", t->pipe);
	rte_tel_data_add_dict_u64(d, "send_window_bytes", t->send_window);
	rte_tel_data_add_dict_u64(d, "receive_window_bytes", t->receive_window);
	rte_tel_data_add_dict_u64(d, "send_shift", t->send_shift);
	rte_tel_data_add_dict_u64(d, "receive_shift", t->receive_shift);
	rte_tel_data_add_dict_u64(d, "unsent_bytes", t->unsent);
	rte_tel_data_add_dict_u64(d, "unacked_bytes", t->unacked);
	rte_tel_data_add_dict_u64(d, "unconsumed_bytes", t->unconsumed);
	rte_tel_data_add_dict_u64(d, "out_of_order_bytes", t->ooo);
	rte_tel_data_add_dict_u64(d, "sent_bytes", t->bytes_sent);
	rte_tel_data_add_dict_u64(d, "received_bytes", t->bytes_received);
}

static void add_times(struct rte_tel_data *d, const struct rp_tcp_info *t, uint64_t now_ns)
{
	uint64_t in_ns = 0;

	add_known(d, "srtt_ns", t->srtt_ns);
	if (t->srtt_ns > 0)
		rte_tel_data_add_dict_u64(d, "rttvar_ns", t->rttvar_ns);
	add_known(d, "rtt_min_ns", t->rtt_min_ns);
	rte_tel_data_add_dict_u64(d, "rto_ns", t->rto_ns);
	rte_tel_data_add_dict_u64(d, "rto_floor_ns", t->rto_floor_ns);
	rte_tel_data_add_dict_u64(d, "reo_window_ns", t->reo_window_ns);
	rte_tel_data_add_dict_u64(d, "age_ns", now_ns - RP_MIN(t->opened_ns, now_ns));
	if (t->deadline_ns != RP_NEVER) {
		if (t->deadline_ns > now_ns)
			in_ns = t->deadline_ns - now_ns;
		rte_tel_data_add_dict_string(d, "timer", t->timer);
		rte_tel_data_add_dict_u64(d, "timer_in_ns", in_ns);
	}
	if (t->keepalive_idle_ns > 0) {
		rte_tel_data_add_dict_u64(d, "keepalive_idle_ns", t->keepalive_idle_ns);
		rte_tel_data_add_dict_u64(d, "keepalive_interval_ns", t->keepalive_interval_ns);
		rte_tel_data_add_dict_u64(d, "keepalive_probes", t->keepalive_probes);
		rte_tel_data_add_dict_u64(d, "keepalive_sent", t->keepalive_sent);
	}
}

int rp_telem_connection(
	struct rte_tel_data *d, const struct rp_telem_connection *c, uint32_t connections)
{
	rte_tel_data_start_dict(d);
	if (c) {
		add_identity(d, c);
		add_sizes(d, &c->info);
		add_times(d, &c->info, c->now_ns);
	}
	return rte_tel_data_add_dict_u64(d, "connections", connections);
}
