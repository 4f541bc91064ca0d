/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <base/units.h>

#include "pd.h"

#define PD_WINDOW_MAX (512 << 10)

static void flag_local(const char *value)
{
	struct pd_knobs *k = &pd.knobs;

	if (inet_pton(AF_INET, value, k->local4.addr) == 1)
		k->local4.family = 4;
	else if (inet_pton(AF_INET6, value, k->local6.addr) == 1)
		k->local6.family = 6;
	else
		fprintf(stderr, "local=%s: no address\n", value);
}

static void flags_read(const char *flags)
{
	struct pd_knobs *k = &pd.knobs;
	char *copy = strdup(flags ? flags : ""), *save = NULL;

	for (char *one = strtok_r(copy, ", ", &save); one; one = strtok_r(NULL, ", ", &save)) {
		if (strcmp(one, "profile=classic") == 0)
			k->classic = true;
		else if (strcmp(one, "profile=linux") == 0)
			k->classic = false;
		else if (strncmp(one, "local=", 6) == 0)
			flag_local(one + 6);
		else if (strncmp(one, "mtu=", 4) == 0)
			k->mtu = (uint16_t)atoi(one + 4);
		else
			fprintf(stderr, "flag %s is not known\n", one);
	}
	free(copy);
}

void pd_knobs_init(const char *flags)
{
	static const struct pd_knobs defaults = {
		/* Of the addresses that the tool gives its own interface. */
		.local4 = {.family = 4, .addr = {192, 168, 0, 2}},
		.local6 = {.family = 6, .addr = {0xfd, 0x3d, 0xfa, 0x7b, 0xd1, 0x7d, [15] = 2}},
		.mtu = 1500,
		.rmem = {4096, 131072, 6291456},
		.wmem = {4096, 16384, 4194304},
		.retries2 = 15,
		.ecn = 2,
		.keep_idle = 7200,
		.keep_interval = 75,
		.keep_count = 9,
	};

	pd.knobs = defaults;
	flags_read(flags);
}

/* What Linux would need for so many timeouts, each twice the one before, from `first_ns` on. */
static uint64_t retries_ns(int retries, uint64_t first_ns)
{
	uint64_t sum_ns = 0, rto_ns = first_ns;

	for (int i = 0; i <= retries && i < 64; i++) {
		sum_ns += rto_ns;
		rto_ns = RP_MIN(2 * rto_ns, 120 * RP_NS_PER_S);
	}
	return sum_ns;
}

static void three_numbers(int out[3], const char *value)
{
	int v[3];

	if (sscanf(value, "%d %d %d", &v[0], &v[1], &v[2]) == 3)
		memcpy(out, v, sizeof(v));
}

/* Of those that say yes or no, or a number that goes where it is. */
static void knob_tcp(const char *name, int number)
{
	struct pd_knobs *k = &pd.knobs;
	struct rp_tcp_config *c = &k->tcp;

	if (strcmp(name, "timestamps") == 0)
		c->no_timestamps = number == 0;
	else if (strcmp(name, "sack") == 0)
		c->no_sack = number == 0;
	else if (strcmp(name, "window_scaling") == 0)
		c->no_window_scale = number == 0;
	else if (strcmp(name, "slow_start_after_idle") == 0)
		c->no_idle_restart = number == 0;
	else if (strcmp(name, "early_retrans") == 0)
		c->no_tail_probes = number == 0;
	else if (strcmp(name, "fin_timeout") == 0)
		c->fin_wait_ns = (uint64_t)number * RP_NS_PER_S;
	else if (strcmp(name, "rto_min_us") == 0)
		c->rto_min_ns = (uint64_t)number * RP_NS_PER_US;
	else if (strcmp(name, "rto_max_ms") == 0)
		c->rto_max_ns = (uint64_t)number * RP_NS_PER_MS;
	else if (strcmp(name, "max_syn_backlog") == 0)
		c->backlog = (uint32_t)number;
	else if (strcmp(name, "syncookies") == 0)
		c->syn_cookies = number == 0   ? RP_SYN_COOKIES_OFF
				 : number == 2 ? RP_SYN_COOKIES_ALWAYS
					       : RP_SYN_COOKIES_AUTO;
	else if (strcmp(name, "mtu_probing") == 0)
		c->pmtu_blackhole = number != 0;
	else if (strcmp(name, "retries2") == 0)
		k->retries2 = number;
	else if (strcmp(name, "keepalive_time") == 0)
		k->keep_idle = number;
	else if (strcmp(name, "keepalive_intvl") == 0)
		k->keep_interval = number;
	else if (strcmp(name, "keepalive_probes") == 0)
		k->keep_count = number;
	else if (strcmp(name, "ecn") == 0)
		k->ecn = number;
}

/* The names that the BSDs have for the same. */
static void knob_inet(const char *name, const char *value)
{
	struct pd_knobs *k = &pd.knobs;
	int number = atoi(value);

	if (strcmp(name, "sack.enable") == 0) {
		k->tcp.no_sack = number == 0;
	} else if (strcmp(name, "rfc1323") == 0) {
		k->tcp.no_timestamps = number == 0 || number == 2;
		k->tcp.no_window_scale = number == 0 || number == 3;
	} else if (strcmp(name, "ecn.enable") == 0) {
		k->ecn = number;
	} else if (strcmp(name, "delacktime") == 0) {
		k->tcp.ack_delay_max_ns = (uint64_t)number * RP_NS_PER_MS;
	} else if (strcmp(name, "recvspace") == 0) {
		k->rmem[1] = 2 * number;
	} else if (strcmp(name, "cc.algorithm") == 0) {
		snprintf(k->congestion, sizeof(k->congestion), "%s",
			strcmp(value, "newreno") == 0 ? "reno" : value);
	}
}

static void knob_set(const char *name, const char *value)
{
	struct pd_knobs *k = &pd.knobs;

	if (strncmp(name, "net.inet.tcp.", 13) == 0)
		knob_inet(name + 13, value);
	if (strncmp(name, "net.ipv4.tcp_", 13) != 0)
		return;
	name += 13;
	if (strcmp(name, "rmem") == 0)
		three_numbers(k->rmem, value);
	else if (strcmp(name, "wmem") == 0)
		three_numbers(k->wmem, value);
	else if (strcmp(name, "congestion_control") == 0)
		snprintf(k->congestion, sizeof(k->congestion), "%s", value);
	else
		knob_tcp(name, atoi(value));
}

/* Where a value ends that has no quotes: it may have spaces, as three numbers do. */
static char *value_end(char *value)
{
	char *p;

	for (p = value; *p; p++)
		if (*p == ' ' && (p[1] == '-' || strncmp(p + 1, "net.", 4) == 0))
			break;
	return p;
}

/* `-w net.ipv4.tcp_x=y`, or net/ipv4/tcp_x, several a line; y may be in quotes. */
static void knobs_line(char *line)
{
	char *p = line;

	for (char *c = line; *c; c++)
		if (*c == '/')
			*c = '.';
	while ((p = strstr(p, "net."))) {
		char *equals = strchr(p, '='), *name = p, *value, *end;

		if (!equals)
			return;
		*equals = '\0';
		value = equals + 1;
		if (*value == '"' || *value == '\'') {
			end = strchr(value + 1, *value);
			value++;
		} else {
			end = value_end(value);
		}
		if (!end)
			end = value + strlen(value);
		p = *end ? end + 1 : end;
		while (end > value && strchr(" \t\r\n", end[-1]))
			end--;
		*end = '\0';
		knob_set(name, value);
	}
}

void pd_knobs_read(void)
{
	const char *path = getenv("STACK_KNOBS");
	char line[1024];
	FILE *f;

	if (pd.knobs.read || !path)
		return;
	pd.knobs.read = true;
	f = fopen(path, "r");
	if (!f) {
		perror(path);
		return;
	}
	while (fgets(line, sizeof(line), f))
		knobs_line(line);
	fclose(f);
}

static void pd_fault(void *ctx, const char *what)
{
	fprintf(stderr, "the stack sent a wrong packet: %s\n", what);
	exit(1);
}

static bool is_any(const struct rp_endpoint *e)
{
	static const struct rp_endpoint none;

	return memcmp(e->addr, none.addr, sizeof(e->addr)) == 0;
}

/* An address of each family; what is next to it is the gateway to everything. */
static void stack_interface(struct rp_net_interface *i, const struct rp_endpoint *local)
{
	const struct rp_endpoint *v4 = &pd.knobs.local4, *v6 = &pd.knobs.local6;

	if (local->family == 4 && !is_any(local))
		v4 = local;
	if (local->family == 6 && !is_any(local))
		v6 = local;
	i->addresses[0] = (struct rp_net_address){.ip = rp_ip_from4(v4->addr), .prefix_length = 16};
	i->addresses[1] = (struct rp_net_address){.ip = rp_ip_from6(v6->addr), .prefix_length = 48};
	i->gateway4 = i->addresses[0].ip;
	i->gateway4.b[15] = v4->addr[3] == 1 ? 254 : 1;
	i->gateway6 = i->addresses[1].ip;
	i->gateway6.b[15] ^= 0x55;
	i->mtu = pd.knobs.mtu;
	/* IPv6 needs more than the least that IPv4 does. */
	if (i->mtu < RP_NET_MTU6_MIN) {
		i->addresses[1] = (struct rp_net_address){0};
		i->gateway6 = (union rp_ip){0};
	}
}

int pd_stack(const struct pd_sock *s, const struct rp_endpoint *local)
{
	const struct pd_knobs *k = &pd.knobs;
	struct rig_config config = {.tcp = k->tcp,
		.start_ns = pd.now_ns,
		.payload_mbufs = 4095,
		.header_mbufs = 4095,
		.rx_mbufs = 2047,
		.on_packet = pd_on_packet,
		.on_fault = pd_fault};
	struct rp_tcp_config *c = &config.tcp;
	uint32_t most = (uint32_t)k->rmem[2];

	if (pd.rig)
		return 0;
	stack_interface(&c->net.iface, local);
	/*
	 * Half of a buffer is window, the rest is for what a segment costs (tcp_adv_win_scale). A
	 * buffer that nobody set would grow: it is as large as it would soon be.
	 */
	c->receive_buffer_bytes = (uint32_t)k->rmem[1] / 2;
	if (s && s->opt.rcvbuf)
		c->receive_buffer_bytes = (uint32_t)s->opt.rcvbuf;
	else if (!k->classic)
		c->receive_buffer_bytes =
			RP_MAX(c->receive_buffer_bytes, RP_MIN(most / 2, (uint32_t)PD_WINDOW_MAX));
	c->receive_buffer_bytes = RP_MAX(c->receive_buffer_bytes, 2048u);
	/* A buffer of a fixed size decides the scale itself. */
	for (most = s && s->opt.rcvbuf ? 0 : most; most > UINT16_MAX; most >>= 1)
		c->receive_shift_least++;
	c->receive_shift_least = RP_MIN(c->receive_shift_least, 14);
	c->send_buffer_bytes = c->unsent_bytes_max = 4 << 20;
	c->connections_max = 128;
	c->segments_max = 16384;
	if (!c->rto_max_ns)
		c->rto_max_ns = 120 * RP_NS_PER_S;
	if (!c->user_timeout_ns)
		c->user_timeout_ns = retries_ns(k->retries2, 200 * RP_NS_PER_MS);
	/* Linux's CUBIC leaves slow start by the delay, without rounds in between; the others do
	 * not. */
	c->slow_start = k->classic || (k->congestion[0] && strcmp(k->congestion, "cubic") != 0)
				? RP_SLOW_START_PLAIN
				: RP_SLOW_START_EXIT;
	pd.rig = rig_new(&config);
	return pd.rig ? 0 : -errno;
}

void pd_keepalive(
	const struct pd_sock *s, uint64_t *idle_ns, uint64_t *interval_ns, uint32_t *probes)
{
	const struct pd_knobs *k = &pd.knobs;

	*idle_ns = (uint64_t)(s->opt.keep_idle ? s->opt.keep_idle : k->keep_idle) * RP_NS_PER_S;
	*interval_ns = (uint64_t)(s->opt.keep_interval ? s->opt.keep_interval : k->keep_interval) *
		       RP_NS_PER_S;
	*probes = (uint32_t)(s->opt.keep_count ? s->opt.keep_count : k->keep_count);
}

struct rp_conn_options pd_conn_options(const struct pd_sock *s)
{
	const char *congestion = s->opt.congestion[0] ? s->opt.congestion : pd.knobs.congestion;
	struct rp_conn_options o = {
		.user_timeout_ns = (uint64_t)s->opt.user_timeout_ms * RP_NS_PER_MS,
		.ack_profile = pd.knobs.classic ? RP_ACK_SECOND : RP_ACK_QUICK,
		.ecn = pd.knobs.ecn == 0   ? RP_ECN_OFF
		       : pd.knobs.ecn == 1 ? RP_ECN_ASK
					   : RP_ECN_ACCEPT,
		.mtu = (uint16_t)(s->opt.maxseg ? s->opt.maxseg + (s->domain == AF_INET6 ? 60 : 40)
						: 0),
		/* What Linux allows for (tcp_rto_min). */
		.peer_ack_delay_ns = pd.knobs.classic ? 0 : 200 * RP_NS_PER_MS,
	};

	if (s->opt.keepalive)
		pd_keepalive(
			s, &o.keepalive_idle_ns, &o.keepalive_interval_ns, &o.keepalive_probes);

	if (strcmp(congestion, "reno") == 0)
		o.congestion = RP_CONGESTION_RENO;
	else if (strcmp(congestion, "dctcp") == 0)
		o.congestion = RP_CONGESTION_DCTCP;
	else
		o.congestion = RP_CONGESTION_CUBIC;
	/* Linux's DCTCP asks for ECN whatever tcp_ecn says. */
	if (o.congestion == RP_CONGESTION_DCTCP)
		o.ecn = RP_ECN_ASK;
	return o;
}
