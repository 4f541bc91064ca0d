/* SPDX-License-Identifier: Apache-2.0 */

/* `show` and `clear`, in testpmd's words and shapes. */

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <rte_ethdev.h>

#include "result.h"
#include "shell.h"

#define SAY(...) cmdline_printf(cl, __VA_ARGS__)

enum {
#define RP_PORT_QUEUE_COUNTER(name, text) COUNTER_##name,
#include <port/port_counters.def>
	COUNTERS,
};
_Static_assert(COUNTERS <= 64, "they fit into what shell.h keeps of them");

/* Of the port's only queue, since they were cleared. */
static void counters_of(struct perf_shell *s, unsigned port, uint64_t out[COUNTERS])
{
	const struct rp_port_queue_counters *q =
		rp_port_queue_counters(s->host->worker.queues[port]);

#define RP_PORT_QUEUE_COUNTER(name, text)                                            \
	out[COUNTER_##name] = atomic_load_explicit(&q->name, memory_order_relaxed) - \
			      s->cleared_port[port][COUNTER_##name];
#include <port/port_counters.def>
}

static bool has_ports(struct perf_shell *s, struct cmdline *cl)
{
	if (s->host->worker.port_count > 0)
		return true;
	SAY(s->options->device_count > 0 ? "the ports are made by the first start\n"
					 : "there are no ports\n");
	return false;
}

void shell_show_info(struct perf_shell *s, struct cmdline *cl)
{
	if (!has_ports(s, cl))
		return;
	for (unsigned i = 0; i < s->host->worker.port_count; i++) {
		const struct rp_port_info *p = &s->host->port_infos[i];

		SAY("\n********************* Infos for port %-2u *********************\n"
		    "MAC address: %02X:%02X:%02X:%02X:%02X:%02X\n"
		    "Device name: %s\nDriver name: %s\nLink status: %s\nMTU: %u\n"
		    "Current number of RX queues: %u\nCurrent number of TX queues: %u\n"
		    "RX descriptors: %u, TX descriptors: %u\nSocket: %d\n"
		    "Values of the driver: %s\n",
			i, p->mac[0], p->mac[1], p->mac[2], p->mac[3], p->mac[4], p->mac[5],
			p->device, p->driver,
			rp_port_link_up(s->host->worker.ports[i]) ? "up" : "down", p->mtu,
			p->queues, p->queues, p->rx_descriptors, p->tx_descriptors, p->socket,
			p->driver_config);
	}
}

void shell_show_stats(struct perf_shell *s, struct cmdline *cl)
{
	if (!has_ports(s, cl))
		return;
	for (unsigned i = 0; i < s->host->worker.port_count; i++) {
		uint64_t c[COUNTERS];

		counters_of(s, i, c);
		SAY("\n  ######################## NIC statistics for port %-2u "
		    "########################\n"
		    "  RX-packets: %-10" PRIu64 " RX-missed: -          RX-bytes:  %-10" PRIu64
		    "\n  RX-polls: %-10" PRIu64 "   RX-empty: %-10" PRIu64
		    "\n  TX-packets: %-10" PRIu64 " TX-errors: %-10" PRIu64
		    " TX-bytes:  %-10" PRIu64 "\n"
		    "  "
		    "##########################################################################"
		    "##\n",
			i, c[COUNTER_rx_packets], c[COUNTER_rx_bytes], c[COUNTER_rx_polls],
			c[COUNTER_rx_polls_empty], c[COUNTER_tx_packets],
			c[COUNTER_tx_full_drops] + c[COUNTER_tx_down_drops] +
				c[COUNTER_tx_nomem_drops] + c[COUNTER_tx_size_drops] +
				c[COUNTER_tx_refused_drops],
			c[COUNTER_tx_bytes]);
	}
}

/* Of the device itself, then ours. */
static void device_xstats(struct perf_shell *s, struct cmdline *cl, unsigned port)
{
	uint16_t id = s->host->port_infos[port].ethdev_id;
	int n = rte_eth_xstats_get_names(id, NULL, 0);
	struct rte_eth_xstat_name *names = calloc(n > 0 ? (size_t)n : 1, sizeof(*names));
	struct rte_eth_xstat *values = calloc(n > 0 ? (size_t)n : 1, sizeof(*values));

	if (names && values && n > 0 && rte_eth_xstats_get_names(id, names, (unsigned)n) == n &&
		rte_eth_xstats_get(id, values, (unsigned)n) == n)
		for (int i = 0; i < n; i++)
			SAY("%s: %" PRIu64 "\n", names[i].name, values[i].value);
	free(names);
	free(values);
}

void shell_show_xstats(struct perf_shell *s, struct cmdline *cl)
{
	if (!has_ports(s, cl))
		return;
	for (unsigned i = 0; i < s->host->worker.port_count; i++) {
		uint64_t c[COUNTERS];

		SAY("###### NIC extended statistics for port %-2u\n", i);
		device_xstats(s, cl, i);
		counters_of(s, i, c);
#define RP_PORT_QUEUE_COUNTER(name, text) \
	SAY("ringpost_" #name ": %" PRIu64 "\n", c[COUNTER_##name]);
#include <port/port_counters.def>
	}
}

void shell_show_forward(struct perf_shell *s, struct cmdline *cl)
{
	struct perf_run *r;

	if (!s->run) {
		SAY("nothing was started\n");
		return;
	}
	/* The lcore goes on counting: a copy is shown. */
	r = malloc(sizeof(*r));
	if (!r)
		return;
	memcpy((void *)r, (const void *)s->run, sizeof(*r));
	for (unsigned i = 0; i < PERF_PORTS_MAX; i++) {
		r->forward[i].rx_packets -= s->cleared[i].rx_packets;
		r->forward[i].rx_bytes -= s->cleared[i].rx_bytes;
		r->forward[i].tx_packets -= s->cleared[i].tx_packets;
		r->forward[i].tx_bytes -= s->cleared[i].tx_bytes;
		r->forward[i].tx_dropped -= s->cleared[i].tx_dropped;
		r->forward[i].bursts -= s->cleared[i].bursts;
	}
	fflush(stdout);
	perf_result_text(r);
	fflush(stdout);
	free(r);
}

void shell_show_config(struct perf_shell *s, struct cmdline *cl)
{
	const struct perf_options *o = s->options;

	SAY("fwd %s, role %s, burst %u, size %u, rate %.0f, window %u, connections %u, "
	    "seconds %.2f\n",
		s->mode->name, o->server ? "server" : "client", o->burst, o->size, o->rate,
		o->window, o->connections, (double)o->run_ns / 1e9);
	if (o->has_peer)
		SAY("peer %u.%u.%u.%u port %u\n", o->peer[0], o->peer[1], o->peer[2], o->peer[3],
			o->tcp_port);
}

void shell_clear_stats(struct perf_shell *s)
{
	memset(s->cleared_port, 0, sizeof(s->cleared_port));
	for (unsigned i = 0; i < s->host->worker.port_count; i++) {
		uint64_t c[COUNTERS];

		counters_of(s, i, c);
		memcpy(s->cleared_port[i], c, sizeof(c));
	}
}

void shell_clear_xstats(struct perf_shell *s)
{
	for (unsigned i = 0; i < s->host->worker.port_count; i++)
		(void)rte_eth_xstats_reset(s->host->port_infos[i].ethdev_id);
	shell_clear_stats(s);
}

void shell_clear_forward(struct perf_shell *s)
{
	if (s->run)
		memcpy(s->cleared, s->run->forward, sizeof(s->cleared));
}
