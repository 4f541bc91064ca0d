/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <sys/prctl.h>

#include <base/lines.h>

#include "worker.h"

/** Of many connections so many are opened at once. */
#define LANES_OPENING 64u
/** Over many connections no more than so many segments wait or are in flight: more would be as much
 * delay, and only cost cache. */
#define LANES_SEGMENTS 1024u
/** Ways that are fetched ahead: their connections, and before that what points at these. */
#define LANES_AHEAD 4u
#define LANES_POINTERS_AHEAD 8u

/* One of the further connections of a session. */
struct lane {
	struct rp_conn *conn; /* NULL: none */
	struct stream *stream;
	struct perf_input input;
} __attribute__((aligned(RP_CACHE_LINE)));

/* A connection that the session's messages go over, and with it the further ones of bulk; one
 * session at a time. */
struct stream {
	struct perf_channel channel;
	struct perf_worker *worker;
	struct rp_conn *conn; /* NULL: none */
	struct perf_session session;
	bool open, over;
	bool dials_lanes; /* the first connection is open, the session not yet */
	uint64_t dialled_ns, give_up_ns;
	struct lane *lanes; /* connections - 1 of them: lane 1 is the first here */
	unsigned lane_count, lanes_open;
};

/* As between appliances: the peer's acknowledgements are not late. */
static const struct rp_conn_options conn_options = {
	.rto_min_ns = 5 * RP_NS_PER_MS,
	.ack_delay_max_ns = 1 * RP_NS_PER_MS,
	.congestion = RP_CONGESTION_DCTCP,
	.ecn = RP_ECN_ASK,
};

static struct rp_conn *conn_of(const struct stream *st, unsigned lane)
{
	return lane == 0 ? st->conn : st->lanes[lane - 1].conn;
}

static int stream_send(struct perf_channel *c, unsigned lane, struct rte_mbuf *m, uint64_t now_ns)
{
	struct stream *st = RP_CONTAINER_OF(c, struct stream, channel);

	return st->worker->transport->ops->send(conn_of(st, lane), m, now_ns);
}

static uint32_t stream_room(struct perf_channel *c, unsigned lane, uint32_t bytes)
{
	struct stream *st = RP_CONTAINER_OF(c, struct stream, channel);

	if (c->lanes > 1) {
		struct rp_tcp_usage usage;

		rp_tcp_usage(st->worker->stack, &usage);
		if (usage.segments >= LANES_SEGMENTS)
			return 0;
		__builtin_prefetch(&st->lanes[(lane + LANES_POINTERS_AHEAD) % (c->lanes - 1)]);
		rp_tcp_prefetch(conn_of(st, (lane + LANES_AHEAD) % c->lanes));
	}
	return st->worker->transport->ops->send_space(conn_of(st, lane)) / bytes;
}

static void start_session(struct stream *st)
{
	struct perf_worker *w = st->worker;

	st->channel.piece = w->transport->ops->piece(st->conn);
	st->channel.lanes = w->options->server ? 0 : w->options->connections;
	perf_session_init(&st->session, w->options, &st->channel, w->pool, &w->reader, w->results);
	st->open = true;
}

static void on_open(void *ctx, struct rp_conn *c, uint64_t now_ns)
{
	struct stream *st = ctx;

	st->dials_lanes = st->worker->options->connections > 1;
	if (!st->dials_lanes)
		start_session(st);
}

/* No more than the first connection lives longer than its session. */
static void abort_lanes(struct stream *st, uint64_t now_ns)
{
	for (unsigned i = 0; i < st->lane_count; i++) {
		struct rp_conn *c = st->lanes[i].conn;

		st->lanes[i].conn = NULL;
		if (c)
			c->transport->ops->abort(c, now_ns);
	}
	st->lane_count = st->lanes_open = 0;
}

static void on_data(void *ctx, struct rp_conn *c, struct rte_mbuf *chain, uint64_t now_ns)
{
	struct stream *st = ctx;
	uint32_t bytes = chain->pkt_len;

	perf_session_input(&st->session, chain, now_ns);
	rte_pktmbuf_free(chain);
	c->transport->ops->consume(c, bytes, now_ns);
}

static void on_peer_fin(void *ctx, struct rp_conn *c, uint64_t now_ns)
{
	c->transport->ops->close(c, now_ns);
}

static const char *const reasons[] = {
	[RP_CLOSE_FIN] = "the server closed the connection",
	[RP_CLOSE_RESET] = "the connection was reset",
	[RP_CLOSE_TIMEOUT] = "the connection timed out",
	[RP_CLOSE_REFUSED] = "nobody listens there",
	[RP_CLOSE_UNREACHABLE] = "the server cannot be reached",
	[RP_CLOSE_ABORTED] = "the connection was aborted",
	[RP_CLOSE_NOMEM] = "out of buffers or connections",
};

static void on_close(void *ctx, struct rp_conn *c, enum rp_close_reason why, uint64_t now_ns)
{
	struct stream *st = ctx;
	struct perf_worker *w = st->worker;

	st->conn = NULL;
	st->dials_lanes = false;
	abort_lanes(st, now_ns);
	if (!st->open && !w->options->server && now_ns < st->give_up_ns &&
		(why == RP_CLOSE_REFUSED || why == RP_CLOSE_UNREACHABLE ||
			why == RP_CLOSE_TIMEOUT || why == RP_CLOSE_RESET))
		return; /* the server is not there yet */
	if (st->open) {
		if (!st->session.finished)
			perf_session_fail(&st->session, reasons[why]);
		perf_session_fini(&st->session);
	}
	if (w->options->server) {
		if (st->open)
			st->over = perf_served(w);
		st->open = false;
		return;
	}
	w->why = st->open ? st->session.why : reasons[why];
	st->over = true;
}

static const struct rp_conn_events stream_events = {
	.on_open = on_open,
	.on_data = on_data,
	.on_peer_fin = on_peer_fin,
	.on_close = on_close,
};

static void lane_open(void *ctx, struct rp_conn *c, uint64_t now_ns)
{
	struct stream *st = ((struct lane *)ctx)->stream;

	if (++st->lanes_open + 1 == st->worker->options->connections)
		start_session(st);
}

static void lane_data(void *ctx, struct rp_conn *c, struct rte_mbuf *chain, uint64_t now_ns)
{
	struct lane *lane = ctx;
	uint32_t bytes = chain->pkt_len;

	perf_session_input_lane(&lane->stream->session, &lane->input, chain, now_ns);
	rte_pktmbuf_free(chain);
	c->transport->ops->consume(c, bytes, now_ns);
}

static void lane_close(void *ctx, struct rp_conn *c, enum rp_close_reason why, uint64_t now_ns)
{
	struct lane *lane = ctx;
	struct stream *st = lane->stream;

	lane->conn = NULL;
	/* A client that has ended resets them, and its first connection may end later. */
	if (st->worker->options->server)
		return;
	if (st->open)
		perf_session_fail(&st->session, reasons[why]);
	st->worker->why = reasons[why];
	st->over = true;
}

static const struct rp_conn_events lane_events = {
	.on_open = lane_open,
	.on_data = lane_data,
	.on_peer_fin = on_peer_fin,
	.on_close = lane_close,
};

static struct lane *next_lane(struct stream *st)
{
	struct lane *lane = &st->lanes[st->lane_count++];

	*lane = (struct lane){.stream = st};
	return lane;
}

static int on_accept(void *listen_ctx, struct rp_conn *c, const struct rp_endpoint *peer,
	const struct rp_conn_events **events, void **ctx, uint64_t now_ns)
{
	struct stream *st = listen_ctx;

	if (st->conn) {
		struct lane *lane;

		if (!st->open || st->lane_count + 1 >= st->worker->options->connections)
			return -EBUSY;
		lane = next_lane(st);
		lane->conn = c;
		*events = &lane_events;
		*ctx = lane;
		return 0;
	}
	st->conn = c;
	*events = &stream_events;
	*ctx = st;
	start_session(st);
	return 0;
}

static void dial(struct stream *st, uint64_t now_ns)
{
	struct perf_worker *w = st->worker;
	struct rp_endpoint peer = {.family = 4, .port = w->options->tcp_port};

	if (st->dialled_ns > 0 && now_ns - st->dialled_ns < PERF_DIAL_AGAIN_NS)
		return;
	if (st->dialled_ns == 0)
		st->give_up_ns = now_ns + w->options->connect_ns;
	st->dialled_ns = now_ns;
	memcpy(peer.addr, w->options->peer, sizeof(w->options->peer));
	st->conn = w->transport->ops->dial(
		w->transport, &peer, &conn_options, &stream_events, st, now_ns);
	if (!st->conn && now_ns >= st->give_up_ns) {
		w->why = strerror(errno);
		st->over = true;
	}
}

/* The further connections, some at a time; the session begins with the last of them. */
static bool dial_lanes(struct stream *st, uint64_t now_ns)
{
	struct perf_worker *w = st->worker;
	struct rp_endpoint peer = {.family = 4, .port = w->options->tcp_port};
	bool dialled = false;

	memcpy(peer.addr, w->options->peer, sizeof(w->options->peer));
	while (st->lane_count + 1 < w->options->connections &&
		st->lane_count - st->lanes_open < LANES_OPENING) {
		struct lane *lane = next_lane(st);

		lane->conn = w->transport->ops->dial(
			w->transport, &peer, &conn_options, &lane_events, lane, now_ns);
		if (!lane->conn) {
			w->why = strerror(errno);
			st->over = true;
			return false;
		}
		dialled = true;
	}
	return dialled;
}

/* What the session sends, and its end. */
static bool turn_session(struct stream *st, uint64_t now_ns)
{
	bool worked;

	if (!st->conn) {
		if (!st->worker->options->server)
			dial(st, now_ns);
		return false;
	}
	if (!st->open)
		return st->dials_lanes && dial_lanes(st, now_ns);
	worked = perf_session_turn(&st->session, now_ns);
	perf_turn_paused(st->worker, &st->session);
	/* A server that is satisfied lets its client close. */
	if (st->session.finished && (!st->worker->options->server || st->session.why)) {
		abort_lanes(st, now_ns);
		st->conn->transport->ops->close(st->conn, now_ns);
	}
	return worked;
}

static bool rx_port(struct perf_worker *w, uint64_t now_ns)
{
	struct rte_mbuf *burst[RP_PORT_BURST_MAX];
	uint16_t n = rp_port_rx(w->queue, burst, RP_PORT_BURST_MAX, now_ns);

	if (n > 0)
		rp_tcp_rx(w->stack, burst, n, now_ns);
	return n > 0;
}

/* No more than the port takes: what waits in the stack is not lost. */
static bool tx_port(struct perf_worker *w, uint64_t now_ns)
{
	struct rte_mbuf *burst[RP_PORT_BURST_MAX];
	unsigned n, room, total = 0;

	do {
		room = RP_MIN((unsigned)rp_port_tx_room(w->queue), (unsigned)RP_PORT_BURST_MAX);
		n = rp_tcp_tx(w->stack, burst, room);
		for (unsigned i = 0; i < n; i++)
			rp_port_tx(w->queue, burst[i], now_ns);
		total += n;
	} while (n == RP_PORT_BURST_MAX);
	rp_port_tx_flush(w->queue, now_ns);
	return total > 0;
}

static void turn_tcp(struct perf_worker *w, struct stream *st)
{
	uint64_t now_ns = perf_turn_begin(w);
	bool worked = rx_port(w, now_ns);

	worked |= turn_session(st, now_ns);
	worked |= rp_tcp_poll(w->stack, now_ns) > 0;
	worked |= tx_port(w, now_ns);
	if (perf_turn_end(w, worked, now_ns))
		perf_turn_sleep(w, now_ns,
			RP_MIN(rp_tcp_next_deadline(w->stack), rp_port_next_ns(w->queue)));
}

static void turn_ktcp(struct perf_worker *w, struct stream *st)
{
	uint64_t now_ns = perf_turn_begin(w);
	bool worked = rp_ktcp_poll(w->ktcp, now_ns) > 0;

	worked |= turn_session(st, now_ns);
	if (perf_turn_end(w, worked, now_ns) && !rp_ktcp_pending(w->ktcp))
		perf_turn_sleep(w, now_ns, RP_NEVER);
}

/* What is left to say goes out: a FIN, an acknowledgement. */
static void linger(struct perf_worker *w, struct stream *st)
{
	uint64_t until_ns = rp_clock_now(&w->reader) + 50 * RP_NS_PER_MS;

	abort_lanes(st, rp_clock_now(&w->reader));
	if (st->conn) {
		st->conn->transport->ops->abort(st->conn, rp_clock_now(&w->reader));
		if (st->open)
			perf_session_fini(&st->session);
		st->conn = NULL;
	}
	st->over = true;
	while (w->stack && rp_clock_now(&w->reader) < until_ns) {
		uint64_t now_ns = perf_turn_begin(w);

		rx_port(w, now_ns);
		rp_tcp_poll(w->stack, now_ns);
		tx_port(w, now_ns);
	}
}

int perf_stream_loop(void *arg)
{
	struct perf_worker *w = arg;
	struct stream st = {
		.worker = w,
		.channel = {.send = stream_send, .room = stream_room},
	};
	int rc = 0;

	prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
	st.lanes = rp_lines_alloc(w->options->connections, sizeof(*st.lanes));
	if (!st.lanes) {
		w->why = "no memory";
		st.over = true;
	}
	w->slot = rp_park_join();
	rp_clock_reader_init(&w->reader, &w->clock);
	if (w->options->server && !st.over)
		rc = w->transport->ops->listen(
			w->transport, w->options->tcp_port, &conn_options, on_accept, &st);
	if (rc < 0) {
		w->why = strerror(-rc);
		st.over = true;
	}
	while (!st.over && !atomic_load_explicit(&w->stop, memory_order_relaxed)) {
		if (w->stack)
			turn_tcp(w, &st);
		else
			turn_ktcp(w, &st);
	}
	linger(w, &st);
	free(st.lanes);
	rp_park_leave(w->slot);
	atomic_store_explicit(&w->ended, true, memory_order_release);
	return 0;
}
