/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One bulk connection over emulated links: what it gets of what there is, by round trip, rate, loss
 * and reordering; on the virtual clock, by a seed.
 *
 *   links [--quick] [--seed N] [--runs N] [--only TEXT] [--table] [--verbose]
 *
 * Each cell is a link: a rate, a drop-tail buffer of one product of rate and round trip (at least
 * BUFFER_LEAST frames), a round trip, and impairment in both directions: a share of all frames is
 * lost, a share held back by a part of the round trip. What there is, is the least of
 *
 *   the link's rate, times 1448/1514, less what is lost behind the bottleneck;
 *   the response function (RFC 9438 5.1, and that of Reno's region, 4.3) for the mean round trip;
 *   what the same window law gets on that link with an oracle for losses (see ideal()).
 *
 * A cell is the median of its runs (seeds N, N+1, ...): goodput at least 0.9 of what there is, less
 * than 1 % sent again for nothing, no timeout where the peer was heard of within a round trip or a
 * probe had not been sent. Status 1 where a cell fails. --table prints Markdown.
 */
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim.h"

#define MSS 1448
#define FRAME 1514
#define BUFFER_LEAST 100u
#define RUNS_MAX 9
/* Of the segments: where all that is in flight is lost, probe included. */
#define RTO_MOST 0.0005
#define SEGMENTS_MAX 32000u

struct cell {
	uint64_t rtt_ns;
	unsigned mbps;
	double loss, share, extent;
};

struct result {
	double goodput, seconds; /* bytes a second */
	double spurious;	 /* of the segments sent, those that had arrived before */
	uint64_t rto, tlp, rtx, sent, dropped; /* dropped: by the buffer */
	uint64_t undo;
};

static struct {
	uint64_t seed;
	unsigned runs;
	bool quick, table, verbose;
	const char *only;
} opt = {.seed = 1};

static double frame_s(const struct cell *c)
{
	return FRAME * 8 / (c->mbps * 1e6);
}

static double rtt_s(const struct cell *c)
{
	return (double)c->rtt_ns / 1e9;
}

static unsigned product_frames(const struct cell *c)
{
	return (unsigned)(rtt_s(c) / frame_s(c));
}

static unsigned buffer_frames(const struct cell *c)
{
	unsigned n = product_frames(c);

	return n > BUFFER_LEAST ? n : BUFFER_LEAST;
}

/* What is there. */

static double link_rate(const struct cell *c)
{
	return MSS / frame_s(c) * (1 - c->loss);
}

/* Segments in flight at a loss rate, in a round trip of so many seconds. */
static double response_window(double p, double rtt)
{
	double reno = 1.22 / sqrt(p), cubic = 1.054 * pow(rtt / p, 0.75);

	return reno > cubic ? reno : cubic;
}

/*
 * Mean time from a transmission to the knowledge that it arrived. A segment that is held back takes
 * so much longer; an acknowledgement that is held back matters until the next one comes, two
 * segments later.
 */
static double mean_rtt(const struct cell *c, double window)
{
	double data = 1 + c->share * c->extent, late = c->share, ack = 0;

	for (unsigned k = 1; k < 1000; k++, late *= c->share)
		ack += late * (1 - c->share) * fmin(2 * data * k / window, c->extent);
	return rtt_s(c) * (data + ack);
}

static double response_rate(const struct cell *c)
{
	double rtt;

	if (c->loss <= 0)
		return INFINITY;
	rtt = mean_rtt(c, response_window(c->loss, rtt_s(c)));
	return response_window(c->loss, rtt) * MSS / rtt;
}

/*
 * The same window law with an oracle for losses, round trip by round trip: whole segments only, one
 * reduction for the losses of a round trip, the next round trip repairs them, and where there is
 * reordering a quarter of one passes before they are seen (RFC 8985 6.2); growth by 9/17 of a
 * segment a window delivered until the window is back, then by one (RFC 9438 4.3). A round trip
 * takes no less than its segments take on the link. Where a window is a few segments, or a few
 * segments fill the link, this is below both of the other two: a part of a segment cannot be sent,
 * and what the window is above the product fills a buffer and not the link.
 */
static double ideal_rate(const struct cell *c)
{
	double window = 5, before = 0, seconds = 0, delivered = 0, least, frame = frame_s(c);
	struct rp_rand rand = {12345};
	bool repair = false;

	if (c->loss < 0.01)
		return INFINITY;
	least = mean_rtt(c, response_window(c->loss, rtt_s(c)));
	for (unsigned sent = 0; sent < 2000000;) {
		unsigned n = (unsigned)window, lost = 0;

		for (unsigned i = 0; i < n; i++)
			lost += rp_rand_unit(&rand) < c->loss;
		sent += n;
		delivered += n - lost;
		seconds += fmax(least, n * frame);
		window += (window < before ? 9.0 / 17 : 1) * (n - lost) / window;
		if (lost > 0 && !repair) {
			seconds += c->share > 0 ? rtt_s(c) / 4 : 0;
			before = window;
			window = fmax(2, window * 0.7);
			repair = true;
		} else {
			repair = false;
		}
	}
	return delivered * MSS / seconds;
}

static double wanted(const struct cell *c)
{
	return fmin(link_rate(c), response_rate(c));
}

/* A run. */

struct flow {
	struct sim *sim;
	struct app a, b;
	uint64_t warm; /* bytes that are not counted */
};

static bool all_received(void *ctx)
{
	const struct flow *f = ctx;

	return f->b.received == f->a.to_send;
}

static void flow_config(const struct cell *c, uint64_t seed, struct sim_config *config)
{
	double seconds = rtt_s(c) * (1 + c->extent * (c->share > 0));
	double frames = 2.5 * (seconds / frame_s(c) + buffer_frames(c));
	uint32_t segments = (uint32_t)fmin(fmax(frames, 2048), SEGMENTS_MAX);

	*config = (struct sim_config){.seed = seed,
		.rtt_ns = c->rtt_ns,
		.byte_ps = 8000000 / c->mbps,
		.impair = {.drop = c->loss,
			.reorder = c->share,
			.reorder_ns = (uint64_t)((double)c->rtt_ns * c->extent)},
		.buffer_frames = buffer_frames(c),
		.check_every = 9973,
		.share_mbufs = true,
		.trust = true};
	for (unsigned h = 0; h < 2; h++) {
		struct rp_tcp_config *t = &config->tcp[h];

		t->send_buffer_bytes = t->receive_buffer_bytes = segments * MSS;
		t->segments_max = segments + 4096;
		t->reassembly_max = t->ooo_ranges_max = segments;
		t->ooo_mbufs_max = segments;
	}
	config->payload_mbufs = config->header_mbufs = segments + 8192;
}

/* Twice a round trip, what the sender is at. */
static bool print_flow(void *ctx)
{
	const struct flow *f = ctx;
	static uint64_t last_ns;
	struct rp_tcp_info i;

	if (f->sim->now_ns - last_ns >= f->sim->config.rtt_ns / 2 || f->sim->now_ns < last_ns) {
		const struct rp_tcp_counters *n = rp_tcp_counters(f->sim->host[0].stack);

		last_ns = f->sim->now_ns;
		rp_tcp_conn_info(f->a.conn, &i);
		printf("%.3f cwnd=%u ssthresh=%u pipe=%u unacked=%u unsent=%u recovery=%d reo_us=%llu "
		       "srtt_us=%llu rto_us=%llu rtx=%llu tlp=%llu rto=%llu undo=%llu timer=%s ooo=%u win=%u\n",
			(double)(last_ns % (1000 * RP_NS_PER_S)) / 1e6, i.cwnd / MSS,
			i.ssthresh / MSS, i.pipe / MSS, i.unacked / MSS, i.unsent / MSS, i.recovery,
			(unsigned long long)i.reo_window_ns / 1000,
			(unsigned long long)i.srtt_ns / 1000, (unsigned long long)i.rto_ns / 1000,
			(unsigned long long)n->rtx_segments, (unsigned long long)n->tlp,
			(unsigned long long)n->rto, (unsigned long long)n->undo, i.timer,
			(unsigned)rp_tcp_counters(f->sim->host[1].stack)->ooo_segments,
			i.send_window / MSS);
	}
	return all_received(ctx);
}

static bool warm_received(void *ctx)
{
	const struct flow *f = ctx;

	return f->b.received >= f->warm;
}

static void flow_run(struct flow *f, bool (*done)(void *ctx))
{
	SIM_CHECK(f->sim, sim_run(f->sim, f->sim->now_ns + 100000 * RP_NS_PER_S, done, f));
}

/*
 * Enough of them that losses are the mean; where there are none, that the window finds its place,
 * which takes CUBIC seconds on a long way, whatever the rate.
 */
static uint64_t cell_segments(const struct cell *c)
{
	double most = opt.quick ? 20000 : 400000, n = opt.quick ? 6000 : 40000;
	double seconds = opt.quick ? 200 * rtt_s(c) : 400 * rtt_s(c);

	if (c->loss > 0)
		return (uint64_t)fmax(n, fmin((opt.quick ? 60 : 200) / c->loss, most));
	return (uint64_t)fmax(n, seconds / frame_s(c));
}

static struct result run(const struct cell *c, uint64_t seed)
{
	const struct rp_tcp_counters *n;
	struct rp_tcp_counters at;
	struct sim_config config;
	struct flow f;
	struct result r = {0};
	uint64_t start_ns, bytes = cell_segments(c) * MSS, before;

	flow_config(c, seed, &config);
	f.sim = sim_new(&config);
	app_init(&f.a, f.sim, 0, 11, 22);
	app_init(&f.b, f.sim, 1, 22, 11);
	f.a.pieces = true; /* each a segment: a buffer never lacks for a cut */
	f.a.chunk = 8 * MSS;
	f.a.close = APP_CLOSE_NEVER;
	f.b.close = APP_CLOSE_ON_FIN;
	SIM_CHECK(f.sim, app_listen(&f.b, 9, NULL) == 0);
	SIM_CHECK(f.sim, app_dial(&f.a, 9, NULL) == 0);
	while (!f.a.opened || !f.b.opened) /* a SYN that is lost costs a second */
		sim_step(f.sim, f.sim->now_ns + RP_NS_PER_S);
	f.warm = bytes / 2;
	f.a.to_send = f.warm + bytes;
	app_pump(&f.a);
	flow_run(&f, opt.verbose ? print_flow : warm_received);
	n = rp_tcp_counters(f.sim->host[0].stack);
	at = *n;
	r.dropped = f.sim->dropped_queue[0];
	start_ns = f.sim->now_ns;
	before = f.b.received;
	flow_run(&f, all_received);
	r.seconds = (double)(f.sim->now_ns - start_ns) / 1e9;
	r.goodput = (double)(f.b.received - before) / r.seconds;
	r.sent = n->tx_segments - at.tx_segments;
	r.rtx = n->rtx_segments - at.rtx_segments;
	r.rto = n->rto - at.rto;
	r.tlp = n->tlp - at.tlp;
	r.undo = n->undo - at.undo;
	r.dropped = f.sim->dropped_queue[0] - r.dropped;
	app_close(&f.a);
	sim_run(f.sim, f.sim->now_ns + 100 * RP_NS_PER_S, NULL, NULL);
	SIM_CHECK(f.sim, f.a.closed && f.b.closed);
	/* What came to the other end more often than once. */
	r.spurious =
		(double)(f.sim->payload_through[0] - f.b.received) / (double)f.sim->payload_sent[0];
	sim_free(f.sim);
	return r;
}

static int by_goodput(const void *a, const void *b)
{
	const struct result *x = a, *y = b;

	return x->goodput < y->goodput ? -1 : x->goodput > y->goodput;
}

static unsigned cells, short_cells;

static bool cell_run(const struct cell *c)
{
	struct result r[RUNS_MAX], m;
	char name[160];
	double part, of_ideal;
	bool good;

	snprintf(name, sizeof(name), "rtt=%gms rate=%uM loss=%g%% reorder=%g%% by=%g",
		rtt_s(c) * 1e3, c->mbps, c->loss * 100, c->share * 100, c->extent);
	if (opt.only && !strstr(name, opt.only))
		return true;
	for (unsigned i = 0; i < opt.runs; i++)
		r[i] = run(c, opt.seed + i);
	qsort(r, opt.runs, sizeof(r[0]), by_goodput);
	m = r[opt.runs / 2];
	part = m.goodput / wanted(c);
	of_ideal = m.goodput / fmin(wanted(c), ideal_rate(c));
	cells++;
	good = of_ideal >= 0.9 && m.spurious < 0.01 && m.rto <= RTO_MOST * (double)m.sent;
	short_cells += !good;
	if (opt.table) {
		printf("| %g | %u | %g | %g | %g | %.2f | %.2f%s | %.2f | %" PRIu64 " | %" PRIu64
		       " |%s\n",
			rtt_s(c) * 1e3, c->mbps, c->loss * 100, c->share * 100, c->extent,
			m.goodput / 1e6, part, part < 0.9 && good ? " \u2020" : "",
			m.spurious * 100, m.rto, m.tlp, good ? "" : " **short**");
	} else {
		printf("%s %s goodput=%.4g MB/s part=%.3f of_ideal=%.3f spurious=%.2f%% "
		       "rto=%" PRIu64 " tlp=%" PRIu64 " undo=%" PRIu64 " rtx=%" PRIu64 "/%" PRIu64
		       " overflow=%" PRIu64 " seconds=%.3g\n",
			good ? "ok  " : "FAIL", name, m.goodput / 1e6, part, of_ideal,
			m.spurious * 100, m.rto, m.tlp, m.undo, m.rtx, m.sent, m.dropped,
			m.seconds);
	}
	fflush(stdout);
	return good;
}

static bool matrix(void)
{
	static const struct {
		uint64_t rtt_ns;
		unsigned mbps;
	} links[] = {
		{50000, 1000}, {50000, 10000}, {1000000, 1000}, {50000000, 100}, {50000000, 1000}};
	static const double losses[] = {0, 0.0001, 0.001, 0.01, 0.05};
	static const double shares[] = {0, 0.01, 0.1, 0.5};
	static const double extents[] = {0.1, 0.5, 1, 4};
	bool good = true;

	for (unsigned l = 0; l < RP_ARRAY_SIZE(links); l++)
		for (unsigned p = 0; p < RP_ARRAY_SIZE(losses); p++)
			for (unsigned s = 0; s < RP_ARRAY_SIZE(shares); s++)
				for (unsigned e = 0; e < RP_ARRAY_SIZE(extents); e++) {
					bool part = l == 0 || l == 2 || l == 3;

					/* The quick part: the three round trips, two reorderings.
					 */
					if (opt.quick &&
						(!part || (s > 0 && (s != 2 || e % 2 == 0))))
						continue;
					struct cell c = {links[l].rtt_ns, links[l].mbps, losses[p],
						shares[s], extents[e]};

					if (shares[s] <= 0) {
						if (e > 0)
							continue;
						c.extent = 0;
					}
					good &= cell_run(&c);
				}
	return good;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {{"quick", 0, NULL, 'q'}, {"seed", 1, NULL, 's'},
		{"runs", 1, NULL, 'r'}, {"only", 1, NULL, 'o'}, {"table", 0, NULL, 't'},
		{"verbose", 0, NULL, 'v'}, {NULL, 0, NULL, 0}};
	bool good;
	int o;

	while ((o = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (o == 'q')
			opt.quick = true;
		else if (o == 's')
			opt.seed = strtoull(optarg, NULL, 0);
		else if (o == 'r')
			opt.runs = (unsigned)strtoul(optarg, NULL, 0);
		else if (o == 'o')
			opt.only = optarg;
		else if (o == 't')
			opt.table = true;
		else if (o == 'v')
			opt.verbose = true;
		else
			return 2;
	}
	if (opt.runs == 0)
		opt.runs = opt.quick ? 1 : 3;
	if (opt.runs > RUNS_MAX)
		return 2;
	if (opt.table)
		printf("| ms | Mbit/s | loss %% | reordered %% | by, round trips | MB/s | part | "
		       "spurious %% | timeouts | probes |\n|---|---|---|---|---|---|---|---|---|---|\n");
	else
		printf("seed %" PRIu64 "\n", opt.seed);
	if (sim_eal())
		return 1;
	good = matrix();
	printf("%s%u cells, %u runs each from seed %" PRIu64 ": %u fell short\n",
		opt.table ? "\n" : "", cells, opt.runs, opt.seed, short_cells);
	return good ? 0 : 1;
}
