/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <string.h>

#include <rte_byteorder.h>
#include <rte_mbuf.h>

#include <base/assert.h>
#include <base/fetch.h>
#include <base/list.h>
#include <base/mbuf.h>
#include <base/seq32.h>
#include <base/units.h>
#include <net/csum.h>
#include <tcp/cc_priv.h>
#include <tcp/flow.h>
#include <tcp/queue_priv.h>
#include <tcp/tcp.h>
#include <base/wheel.h>
#include <tcp/wire_priv.h>

/** Fetches a line in order to write it. Compilers do it for reading, as long as x86-64 has no more
 * than it began with; processors without the instruction take it for a nop. */
static inline void tcp_prefetch_write(const void *p)
{
#ifdef __x86_64__
	__asm__ volatile("prefetchw %0" : : "m"(*(const char *)p));
#else
	__builtin_prefetch(p, 1);
#endif
}

/* A connection. */

enum tcp_state {
#define X(name, text, next) TCPS_##name,
#include <tcp/tcp_states.def>
#undef X
};

enum tcp_ca { TCP_CA_OPEN, TCP_CA_RECOVERY, TCP_CA_LOSS };

enum tcp_timer {
	TCP_TIMER_NONE,
	TCP_TIMER_RTO,
	TCP_TIMER_TLP,
	TCP_TIMER_REORDER,
	TCP_TIMER_PROBE, /* of a recovery that stands still */
	TCP_TIMER_PERSIST,
};

enum {
	TCPF_PASSIVE = 1 << 0,
	TCPF_SACK = 1 << 1,
	TCPF_TS = 1 << 2,
	TCPF_SHIFT = 1 << 3, /* window scale agreed */
	TCPF_IN_TABLE = 1 << 4,
	TCPF_ACK_NOW = 1 << 5,
	TCPF_ACK_DELAYED = 1 << 6, /* something is owed, the timer runs */
	TCPF_FIN_QUEUED = 1 << 7,  /* the owner closed */
	TCPF_FIN_PENDING = 1 << 8, /* ... and the FIN waits for the SYN to be acknowledged */
	TCPF_FIN_ACKED = 1 << 9,
	TCPF_FIN_RCVD = 1 << 10,   /* the peer's stream has ended, in order */
	TCPF_FIN_SEEN = 1 << 11,   /* fin_seq is known */
	TCPF_WANT_WRITE = 1 << 12, /* a send was refused */
	TCPF_CWND_LIMITED = 1 << 13,
	TCPF_SYN_RTX = 1 << 14,
	TCPF_REORDERING = 1 << 15,
	TCPF_EV_OPEN = 1 << 16,
	TCPF_EV_ACCEPT = 1 << 17,
	TCPF_EV_FIN = 1 << 18,
	TCPF_EV_CLOSE = 1 << 19,
	TCPF_DEAD = 1 << 20,	       /* no more events: waits to be freed */
	TCPF_TLP_OUT = 1 << 21,	       /* a tail loss probe is out: tlp_end */
	TCPF_TLP_RTX = 1 << 22,	       /* ... and it was a retransmission */
	TCPF_UNDO = 1 << 23,	       /* undo_* are set: the last reduction may be taken back */
	TCPF_OPTION_TIMEOUT = 1 << 24, /* the user timeout was asked for */
	TCPF_PMTU = 1 << 25,	       /* a path MTU is known: pmtu_ns */
	TCPF_DSACK = 1 << 26,	       /* `dsack` is to be reported */
	TCPF_BLOCKED = 1 << 27,	       /* waits for buffers or for room in the transmit queue */
	TCPF_SOFT_ERROR = 1 << 28,     /* ICMP said unreachable */
	TCPF_NEIGH_FAILED = 1 << 29,
	TCPF_STALLED =
		1 << 30, /* the peer's window was the limit, with a hole in it: refill_room */
};

/** What a turn of a connection seldom has to do before and behind handing up data. */
#define TCPF_TURN_BEFORE (TCPF_NEIGH_FAILED | TCPF_EV_ACCEPT | TCPF_EV_OPEN)
#define TCPF_TURN_BEHIND (TCPF_EV_FIN | TCPF_EV_CLOSE | TCPF_WANT_WRITE | TCPF_DEAD)

struct tcp_conn;

/* Bits of tcp_conn.ecn. ACCEPT, ASK and ASKED are of the handshake. */
enum {
	TCP_ECN_ACCEPT = 1,
	TCP_ECN_ASK = 2,   /* our SYN offers it: the first one, not those sent again */
	TCP_ECN_ASKED = 4, /* a SYN of ours did */
	TCP_ECN_ON = 8,	   /* agreed: marks are echoed, and echoes reacted to */
	TCP_ECN_ECT = 16,  /* our data may be marked */
	TCP_ECN_ECHO = 32, /* acknowledgements carry ECE */
	TCP_ECN_CWR = 64,  /* the next new data carries CWR */
	TCP_ECN_DCTCP = 128,
};

/** A segment that went again: should its D-SACK come late, it was late itself, and by how much. */
struct tcp_watched {
	uint64_t sent_ns, again_ns; /* again_ns 0: free */
	uint32_t end;
};
#define TCP_WATCHED 4

struct tcp_bucket {
	uint64_t used_ns; /* tokens are used up to here */
};

struct tcp_listener {
	uint16_t port; /* 0: free */
	uint32_t half_open;
	rp_accept_fn accept;
	void *ctx;
	struct rp_conn_options options;
};

/*
 * In the order of use: what a segment in order touches, either way, lies in the first lines, which
 * are fetched ahead (tcp_conn_prefetch()), since with many connections none of it is near.
 */
struct tcp_conn {
	/* Identity. The key comes first: the flow table finds it there. */
	struct flow_key key;
	struct rp_conn base;
	uint32_t hash, flags;
	uint8_t state, ca_state, timer, backoff;
	uint8_t snd_shift, rcv_shift, dupacks;
	uint8_t probes;	  /* of recovery, since the last delivery */
	uint16_t mss;	  /* payload bytes of a segment without SACK blocks */
	uint16_t rcv_mss; /* what the peer's full segments seem to be */
	uint8_t ecn;
	uint8_t quick_acks; /* so many more acknowledgements at once */
	bool ack_second;    /* small segments count like full ones */
	bool burst_ends;

	/* Receiving. */
	uint32_t rcv_nxt, rcv_adv; /* rcv_adv: right edge as told to the peer; never moves left */
	uint32_t last_ack_sent;
	uint32_t window_full;	/* what an empty buffer lets us tell */
	uint32_t window_plenty; /* while so much is left, the peer needs no news of the window */
	uint32_t window_step;	/* the right edge moves by no less */
	uint32_t ts_recent, ts_offset;
	uint32_t unconsumed; /* bytes handed up and not given back */
	uint32_t ooo_count;
	uint64_t ts_recent_ns, ack_deadline_ns;
	struct tcp_chain rx; /* in order, not handed up yet */

	/* Its turn. */
	struct rp_list dirty;
	const struct rp_conn_events *events;
	void *events_ctx;
	struct rp_neigh *neigh;
	uint64_t heard_ns;    /* the last acceptable segment */
	uint64_t sent_ns;     /* the last segment with data */
	uint64_t progress_ns; /* since then nothing new was acknowledged though something waits */

	/* Sending. */
	uint32_t snd_una, snd_nxt, snd_wnd, snd_wl1, snd_wl2, snd_wnd_max;
	uint32_t cwnd, ssthresh, pipe, dup_bytes;
	uint32_t queue_end; /* sequence number behind the last byte queued */
	uint32_t lost_bytes, sacked_bytes, sacked_count;
	struct rp_list segs, xmit, lost;
	struct tseg *next_unsent; /* NULL: all is sent */
	struct rp_wheel_node wheel;
	uint64_t timer_ns, rto_ns, srtt_ns, rttvar_ns, rtt_min_ns;
	/* What the deadlines are measured from; reo_ns is one itself, RP_NEVER: none. */
	uint64_t rto_start_ns, tlp_start_ns, reo_ns;
	uint64_t rto_min_ns, ack_delay_max_ns, peer_ack_delay_ns, user_timeout_ns;
	uint64_t life_ns; /* end of FIN-WAIT-2; before it, the next look at the silence */
	uint64_t stat_sent, stat_received;

	/* Loss recovery. */
	uint64_t rack_xmit_ns, rack_rtt_ns;
	struct tseg *sack_hint;
	uint32_t rack_end, rack_fack, reo_round_end;
	uint16_t reo_seen_count, reo_seen_recoveries; /* of this spell */
	uint32_t recover;			      /* recovery ends when this is acknowledged */
	const struct tcp_cc_ops *cc;
	/* While TCPF_CWND_LIMITED: up to where ACKs are of what filled the window; how much it was.
	 */
	uint32_t limited_end, limited_flight;
	uint32_t refill_room; /* TCPF_STALLED: bytes that may follow the last ACK */
	uint32_t ecn_recover; /* marks up to here belong to a reduction that was made */
	uint32_t cc_acked;    /* of the ACK that makes the reduction; else 0 */
	union {
		struct tcp_reno reno;
		struct tcp_cubic cubic;
		struct tcp_dctcp dctcp;
	} cc_state;
	uint32_t prr_delivered, prr_out, prr_flight;
	uint32_t undo_una, undo_end, undo_cwnd, undo_ssthresh, undo_bytes;
	/* The end and the timestamp of the first retransmission; undo_una: none, or judged. */
	uint32_t undo_rtx_end, undo_ts;
	uint64_t frto_ns; /* when a timeout fired that may have been spurious; 0: none */
	uint32_t tlp_end, reo_persist;
	uint8_t reo_mult;
	bool undo_chained; /* undo_* are of an earlier reduction that may be taken back as well */
	uint64_t undo_ns;  /* when the first of these was */
	/* How late segments came that were not lost: the most, of now and of the spell before. */
	uint64_t reo_seen_ns, reo_seen_before_ns, reo_spell_ns;
	struct tcp_watched watched[TCP_WATCHED];
	struct tcp_hystart hystart;
	uint32_t sack_cache_count;
	struct tcp_range sack_cache[TCP_SACK_BLOCKS_MAX];
	struct tcp_range dsack_seen; /* the last one received, and the ACK of its segment */
	uint32_t dsack_seen_ack;

	/* Seldom used. */
	uint32_t iss, irs, fin_seq;
	uint32_t want_bytes; /* of the send that was refused */
	uint16_t mss_max;    /* what the route and the interface let through, no options */
	uint16_t mss_full;   /* mss while no path MTU is known */
	struct rp_list neigh_user;
	struct tcp_listener *listener; /* while half open */
	struct tcp_bucket challenge;
	struct rp_list ooo;
	struct tcp_range dsack;
	uint32_t ooo_bytes, ooo_mbufs, ooo_stamp;
	uint8_t keepalive_probes, keepalive_sent;
	uint8_t cc_wanted;				   /* enum rp_congestion */
	bool ecn_insist;				   /* no fallback of a lost SYN */
	uint64_t rto_min_own_ns;			   /* without the stack's floor */
	uint64_t keepalive_idle_ns, keepalive_interval_ns; /* idle 0: off */
	uint64_t pmtu_ns;				   /* TCPF_PMTU: when it was learned */
	struct tcp_bucket pmtu_bucket;
	uint64_t opened_ns;
	uint64_t stat_rtx, stat_rto, stat_tlp, stat_undo;
	enum rp_close_reason close_reason;
	bool half_closed; /* the owner reads on: FIN-WAIT-2 has no end */
	uint32_t next_free;
	struct tseg fin_seg; /* so that a close never lacks a segment */
} __attribute__((aligned(RP_CACHE_LINE)));

/* So many connections are near without being fetched ahead. */
#define TCP_CONNS_NEAR 64
/* Of a connection that is served soon: all that a segment in order touches. */
#define TCP_CONN_HOT_LINES 9
_Static_assert(offsetof(struct tcp_conn, cc_state) + sizeof(struct tcp_dctcp) <=
		       TCP_CONN_HOT_LINES * RP_CACHE_LINE,
	"what is hot lies in front");

static inline void tcp_conn_prefetch(const struct tcp_conn *c)
{
	rp_fetch(c, TCP_CONN_HOT_LINES * RP_CACHE_LINE);
}

/** What is left of a connection in TIME-WAIT. */
struct tcp_tw {
	struct flow_key key;
	uint32_t hash;
	uint32_t prev, next; /* list by expiry, or the free list: index, FLOW_NONE ends it */
	uint32_t snd_nxt, rcv_nxt;
	uint32_t ts_recent, ts_offset;
	uint16_t window;
	bool ts;
	uint64_t expires_ns;
};

/** A path MTU that ICMP told of (RFC 1191, RFC 8201). */
struct tcp_pmtu {
	union rp_ip remote;
	uint64_t learned_ns; /* 0: none */
	uint16_t mtu;
};

#define TCP_PMTU_ENTRIES 64

/** How short the receive buffers are. */
enum tcp_pressure {
	TCP_PRESSURE_NONE,
	TCP_PRESSURE_SHORT,    /* nobody new, smaller windows */
	TCP_PRESSURE_CRITICAL, /* what is out of order is given up */
};

#define TCP_HEADERS_AHEAD 8

struct rp_tcp_stack {
	struct rp_transport transport;
	struct rp_net *net;
	struct rp_tcp_counters *counters;
	struct rp_tcp_config config;
	struct rp_net_config net_config;
	struct flow_table flows;
	struct rp_wheel wheel;
	uint64_t now_ns;
	struct rp_list dirty, blocked;
	uint64_t blocked_until_ns;
	uint64_t rto_floor_ns; /* of rp_tcp_set_rto_floor() */
	struct tcp_pmtu pmtu[TCP_PMTU_ENTRIES];
	uint64_t pressure_due_ns; /* of the next look at rx_pool; RP_NEVER: there is none */
	uint32_t rx_most;	  /* buffers of it that were free at most: all but the device's */
	enum tcp_pressure pressure;
	uint64_t cookie_ns; /* when the last SYN cookie was sent; 0: never */
	/* Header mbufs of the next segments, the oldest first: a ring of TCP_HEADERS_AHEAD. */
	struct rte_mbuf *headers[TCP_HEADERS_AHEAD];
	uint32_t header_first, header_count;
	bool starved; /* somebody was refused a send for lack of segments */

	struct tcp_conn *recent; /* of the last segment, while it is in the table; may be NULL */
	struct tcp_conn *conns;
	uint32_t conn_free, conn_count, conn_top, half_open;
	struct tcp_conn **dead;
	uint32_t dead_count;
	struct tseg *tsegs;
	struct rp_list tseg_free;
	uint32_t tseg_count;
	struct tcp_ooo *ooos;
	struct rp_list ooo_free;
	uint32_t ooo_count, ooo_mbufs;
	struct tcp_tw *tws;
	uint32_t tw_free, tw_count, tw_first, tw_last;
	struct tcp_listener *listeners;

	uint8_t rcv_shift;
	uint32_t port_counter;
	struct tcp_bucket rst, challenge;
	struct rp_rand rand;
	struct rp_tcp_counters own_counters;
};

#define TCP_RTO_INITIAL_NS (1 * RP_NS_PER_S)  /* RFC 6298 2.1 */
#define TCP_RTO_SYN_LOST_NS (3 * RP_NS_PER_S) /* RFC 6298 5.7 */
#define TCP_SSTHRESH_INITIAL (UINT32_MAX / 2)
#define TCP_NEAR_DELAY_NS (10 * RP_NS_PER_MS) /* who is known to answer so soon is one of us */
#define TCP_PAWS_SLACK_MS 256 /* 2^32 bytes take longer, up to 100 Gbit/s a connection */
#define TCP_PTO_MIN_NS (200 * RP_NS_PER_US) /* a turn of the peer's loop may take that long */
#define TCP_REO_STEP_NS (8 * RP_NS_PER_US)  /* reorder window: grows by no less */
#define TCP_REO_CAP_NS (1 * RP_NS_PER_MS)   /* reorder window: no less is its bound */
#define TCP_REO_SEEN_RTTS 8		    /* ... in round trips, of what was measured */
#define TCP_VALID_NS (300 * RP_NS_PER_S)    /* a window that was used: RFC 7661 4.1 */
#define TCP_PAWS_IDLE_NS (24 * 86400 * RP_NS_PER_S) /* RFC 7323 5.5 */
#define TCP_QUANTUM_BYTES 65536			    /* of one connection, a turn */
#define TCP_RETRY_NS (100 * RP_NS_PER_US)	    /* after a buffer was missing */
#define TCP_COPY_MAX 256			    /* payload copied rather than referenced */
#define TCP_ISN_GAP 65537   /* behind the numbers of the connection before */
#define TCP_CHAIN_MAX 12    /* mbufs of one segment's payload */
#define TCP_COLLAPSE_MIN 16 /* mbufs of received bytes that may be put together */

static inline struct tcp_conn *tcp_conn_of(const struct rp_conn *c)
{
	return RP_CONTAINER_OF(c, struct tcp_conn, base);
}

/** Is the peer known to answer soon, as appliances do? */
static inline bool tcp_is_near(const struct tcp_conn *c)
{
	return c->peer_ack_delay_ns <= TCP_NEAR_DELAY_NS;
}

static inline struct rp_tcp_stack *tcp_stack_of(const struct tcp_conn *c)
{
	return RP_CONTAINER_OF(c->base.transport, struct rp_tcp_stack, transport);
}

static inline struct tseg *tcp_head(const struct tcp_conn *c)
{
	return rp_list_empty(&c->segs) ? NULL : tseg_of_link(c->segs.next);
}

static inline uint32_t tcp_ts_now(uint64_t now_ns)
{
	return (uint32_t)(now_ns / RP_NS_PER_MS);
}

static inline bool tcp_synchronized(const struct tcp_conn *c)
{
	return c->state >= TCPS_ESTABLISHED;
}

/** Payload of a segment without options that our interface takes: what we tell the peer. */
static inline uint16_t tcp_mss_of(const struct rp_tcp_stack *s, const struct flow_key *key)
{
	return (uint16_t)(s->net_config.iface.mtu - rp_net_overhead(&key->remote));
}

#define TCP_MSS_DEFAULT 536   /* RFC 9293 3.7.1, MUST-15 */
#define TCP_MSS_DEFAULT6 1220 /* ... over IPv6 */

/** Of a peer whose SYN does not say. */
static inline uint32_t tcp_mss_default(const struct flow_key *key)
{
	return rp_ip_is4(&key->remote) ? TCP_MSS_DEFAULT : TCP_MSS_DEFAULT6;
}

/** No path is smaller: what says so is not believed. */
static inline uint32_t tcp_mtu_min(const struct flow_key *key)
{
	return rp_ip_is4(&key->remote) ? RP_NET_MTU_MIN : RP_NET_MTU6_MIN;
}

/** Bytes queued that the peer has not acknowledged. */
static inline uint32_t tcp_queued(const struct tcp_conn *c)
{
	return c->queue_end - c->snd_una;
}

/** True, and a token less, where `burst` tokens refilled one each `gap_ns` are not used up. */
bool tcp_bucket_take(struct tcp_bucket *b, uint64_t now_ns, uint64_t gap_ns, uint32_t burst);

/* options.c */

/** False: malformed (RFC 9293 MUST-7: it must not crash; the segment is dropped). */
bool tcp_options_parse(const uint8_t *p, unsigned length, bool syn, struct tcp_options *out);
/**
 * Options of an established connection: timestamps, and as many SACK blocks as `sack_room` bytes
 * hold; *sacks is how many. Returns the length.
 */
unsigned tcp_options_build(
	const struct tcp_conn *c, uint8_t *p, unsigned sack_room, unsigned *sacks, uint64_t now_ns);
unsigned tcp_options_build_syn(const struct tcp_conn *c, uint8_t *p, uint64_t now_ns);
/** What a SYN or SYN-ACK of ours says. */
struct tcp_syn_offer {
	uint16_t mss;
	bool ts, sack, shift;
	uint8_t receive_shift;
	uint32_t ts_value, ts_echo;
};
unsigned tcp_options_put_syn(const struct tcp_syn_offer *offer, uint8_t *p);

/* chain.c */

/** Appends a chain (take) and leaves out empty segments. */
void tcp_chain_append(struct tcp_chain *chain, struct rte_mbuf *m);
void tcp_chain_join(struct tcp_chain *to, struct tcp_chain *from);
/** Copies what fits into the room behind the mbuf before it: fewer buffers with the same bytes. */
void tcp_chain_collapse(struct tcp_chain *chain);
/**
 * Are its buffers, of so many bytes each when they are full, less than half full? Then it is worth
 * the copy, where there are some.
 */
static inline bool tcp_chain_sparse(const struct tcp_chain *chain, uint32_t full)
{
	return chain->mbufs >= TCP_COLLAPSE_MIN && (uint64_t)chain->mbufs * full > 2 * chain->bytes;
}
/** The chain as one packet; empties it. NULL where it was empty. */
struct rte_mbuf *tcp_chain_take(struct tcp_chain *chain);
void tcp_chain_free(struct tcp_chain *chain);
/** Cuts the packet to bytes [from, from + length); frees it and gives NULL where length is 0. */
struct rte_mbuf *tcp_mbuf_cut(struct rte_mbuf *m, uint32_t from, uint32_t length);
/** New mbufs that refer to bytes [from, from + length) of the chain. NULL: pool empty. */
struct rte_mbuf *tcp_mbuf_slice(
	struct rte_mempool *pool, struct rte_mbuf *m, uint32_t from, uint32_t length);
/** Another reference to each segment of the chain. */
void tcp_mbuf_ref(struct rte_mbuf *m);

/* api.c */

extern const struct rp_transport_ops *const rp_tcp_ops;
/**
 * Is there room for a send of so many bytes? What is larger than the buffer, or than its unsent
 * part, goes when nothing is before it: it could never go otherwise.
 */
bool tcp_send_fits(const struct tcp_conn *c, uint32_t bytes);

/** A port of 0 is chosen. */
struct rp_conn *tcp_dial(struct rp_tcp_stack *s, const struct rp_endpoint *peer,
	uint16_t local_port, const struct rp_conn_options *options,
	const struct rp_conn_events *events, void *ctx, uint64_t now_ns);

/* socket.c */

/** Leaves out of the connection's SYN what the configuration forbids. */
void tcp_conn_offers(struct tcp_conn *c);

/* conn.c */

struct tcp_conn *tcp_conn_new(struct rp_tcp_stack *s, const struct flow_key *key, uint64_t now_ns);
/** Before anything is queued. */
void tcp_conn_set_iss(struct tcp_conn *c, uint32_t iss);
void tcp_set_state(struct tcp_conn *c, enum tcp_state state);
/** Ends the connection with an event: out of the table at once, freed after it. */
void tcp_conn_close(struct tcp_conn *c, enum rp_close_reason why);
/** Ends it without an event. */
void tcp_conn_kill(struct tcp_conn *c);
/** Frees those that ended. Not from within an event. */
void tcp_conn_reap(struct rp_tcp_stack *s);
/** Gives up everything the connection holds, at once. */
void tcp_conn_release(struct tcp_conn *c);
/** What it waited for may be there: from the blocked ones to those that are served. */
void tcp_unblock(struct tcp_conn *c);
/** It is served in this turn, or with the next poll. */
static inline void tcp_mark_dirty(struct tcp_conn *c)
{
	if (!rp_list_empty(&c->dirty) || c->flags & TCPF_DEAD) {
		if (c->flags & TCPF_BLOCKED)
			tcp_unblock(c);
		return;
	}
	rp_list_push_back(&tcp_stack_of(c)->dirty, &c->dirty);
}
const char *tcp_state_name(unsigned state);

/* route.c */

/**
 * Sets what the options, the route to the peer and the configuration say, in this order. Before
 * the handshake.
 */
void tcp_conn_options(struct tcp_conn *c, const struct rp_conn_options *options);
/** The MSS that the peer may use towards us. */
uint16_t tcp_route_mss(const struct rp_tcp_stack *s, const struct flow_key *key,
	const struct rp_conn_options *options);

/* sendq.c */

/**
 * Takes on 0; -EAGAIN: no segments, -ENOBUFS: no mbufs. Fills the last unsent segment first. Mbufs
 * that stay in the queue never come from the header pool, which has to be there for sending them.
 */
int tcp_sendq_push(struct tcp_conn *c, struct rte_mbuf *chain);
/** Queues a SYN or a FIN. */
void tcp_sendq_flag(struct tcp_conn *c, uint8_t flag);
/** Cuts the segment behind `length` bytes of payload; false: no segment left. */
bool tcp_sendq_split(struct tcp_conn *c, struct tseg *t, uint32_t length);
/** Takes a segment out of the queue and frees it. */
void tcp_sendq_drop(struct tcp_conn *c, struct tseg *t);
/** Forgets the first `bytes` of the segment's payload (or its SYN). */
void tcp_sendq_trim(struct tcp_conn *c, struct tseg *t, uint32_t bytes);
void tcp_sendq_free(struct tcp_conn *c);

/* headers.c */

/** Some more header mbufs; their lines are fetched. */
void tcp_headers_more(struct rp_tcp_stack *s);
/** Gives back the header mbufs that are kept ready. */
void tcp_headers_free(struct rp_tcp_stack *s);

/* output.c */

/** Sends what may be sent; decides about the acknowledgement; arms the timers. */
void tcp_output(struct tcp_conn *c, uint64_t now_ns);
/** Serves the connection again when there may be buffers, or room in the transmit queue. */
void tcp_block(struct tcp_conn *c);
/** A segment without data: ACK, or RST|ACK, or a probe with an old sequence number. */
bool tcp_send_control(struct tcp_conn *c, uint32_t seq, uint8_t flags, uint64_t now_ns);
/** An ACK for something that is not as it should be (RFC 5961), its rate limited. */
void tcp_challenge_ack(struct tcp_conn *c, uint64_t now_ns);
/** Sends one segment of the queue, again or for the first time. False: no buffer or no room. */
bool tcp_xmit(struct tcp_conn *c, struct tseg *t, uint64_t now_ns);
/** Answers a segment that belongs to nothing (RFC 9293 3.10.7.1). */
void tcp_reset_unknown(struct rp_tcp_stack *s, const struct flow_key *key,
	const struct tcp_segment_in *in, uint64_t now_ns);
struct tcp_reply {
	const struct flow_key *key;
	uint32_t seq, ack;
	uint16_t window;
	uint8_t flags;
	bool ts;
	uint32_t ts_value, ts_echo;
	const uint8_t *options; /* in place of the timestamps */
	unsigned options_length;
};
/** A segment that no connection sends. */
void tcp_send_reply(struct rp_tcp_stack *s, const struct tcp_reply *r, uint64_t now_ns);

/* window.c */

/** The window field of the next segment; moves rcv_adv. */
uint16_t tcp_window_select_any(struct tcp_conn *c, bool syn);
/** Sets what follows from the window scale and the MSS, once these are known. */
void tcp_window_init(struct tcp_conn *c);
/** Has the window opened so far that the peer must be told now? */
bool tcp_window_update_due(const struct tcp_conn *c);

/* pmtu.c */

/** The way to the connection's peer has this MTU: what is larger and in flight goes again. */
void tcp_pmtu_learn(struct tcp_conn *c, uint16_t mtu, uint64_t now_ns);
/** What is known of the way to the peer, into c->mss; at the handshake. */
void tcp_pmtu_apply(struct tcp_conn *c, uint64_t now_ns);
/** An ICMP error says that `seq` did not fit. Checks it (RFC 5927 7). */
void tcp_pmtu_too_big(struct tcp_conn *c, uint32_t seq, uint16_t mtu, uint64_t now_ns);
/** TCPF_PMTU: after some time a larger one is tried again (RFC 1191 6.3). */
void tcp_pmtu_age(struct tcp_conn *c, uint64_t now_ns);
/** Timeouts in a row: it may be that large packets vanish and nobody says so (RFC 4821). */
void tcp_pmtu_suspect(struct tcp_conn *c, uint64_t now_ns);

/* input.c */

static inline const struct tcp_header *tcp_header_of(const struct rp_net_packet *p)
{
	return rte_pktmbuf_mtod_offset(p->m, const struct tcp_header *, p->l4_offset);
}

static inline struct flow_key tcp_key_of(const struct rp_net_packet *p)
{
	const struct tcp_header *h = tcp_header_of(p);

	return (struct flow_key){
		.remote = p->remote,
		.local_port = rte_be_to_cpu_16(h->dst_port),
		.remote_port = rte_be_to_cpu_16(h->src_port),
		.local = p->local,
	};
}

/** `hash` is that of the packet's key where it is known already, else NULL. */
void tcp_input(
	struct rp_tcp_stack *s, struct rp_net_packet *p, const uint32_t *hash, uint64_t now_ns);
void tcp_icmp(struct rp_tcp_stack *s, const struct rp_net_packet *p, uint64_t now_ns);

/* ack.c */

/** The ACK of a segment is acceptable (RFC 5961 5.2): up to snd_nxt, and not too old. */
void tcp_ack(struct tcp_conn *c, const struct tcp_segment_in *in, uint64_t now_ns);
void tcp_rtt_sample(struct tcp_conn *c, uint64_t rtt_ns);

/* loss.c */

struct tcp_ack_result {
	uint32_t acked;	    /* bytes cumulatively acknowledged */
	uint32_t delivered; /* bytes newly acknowledged in either way */
	uint32_t lost;	    /* bytes newly judged lost */
	uint64_t rtt_ns;    /* 0: none */
	uint64_t rtt_xmit_ns;
	uint32_t ts_echo;
	bool dsack, dupack, has_ts, ece;
	bool at_una;   /* the segment at hand is the one that the echo tells of */
	bool original; /* what was retransmitted first came sooner than a round trip takes */
};
/** One segment was delivered: RACK's notion of the newest one, round trip, reordering. */
void tcp_rack_delivered(
	struct tcp_conn *c, const struct tseg *t, struct tcp_ack_result *r, uint64_t now_ns);
/** Marks SACKed segments. */
void tcp_sack_input(struct tcp_conn *c, const struct tcp_segment_in *in, struct tcp_ack_result *r,
	uint64_t now_ns);
/** After all of an ACK was counted: what is lost, what follows for cwnd. */
void tcp_loss_on_ack(struct tcp_conn *c, struct tcp_ack_result *r, uint64_t now_ns);
/** Marks the segments that are overdue by RACK and sets reo_ns; returns the bytes marked. */
uint32_t tcp_rack_detect(struct tcp_conn *c, uint64_t now_ns);
void tcp_mark_lost(struct tcp_conn *c, struct tseg *t);
/** A segment goes for the second time; its xmit_ns is still that of the first. */
void tcp_watch(struct tcp_conn *c, const struct tseg *t, uint64_t now_ns);
void tcp_on_rto(struct tcp_conn *c, uint64_t now_ns);
void tcp_on_tlp(struct tcp_conn *c, uint64_t now_ns);
/** Nothing was delivered for a while in recovery: one segment goes again. */
void tcp_on_probe(struct tcp_conn *c, uint64_t now_ns);
void tcp_on_reorder_timer(struct tcp_conn *c, uint64_t now_ns);
uint64_t tcp_reo_window_ns(const struct tcp_conn *c);
/** Bytes in flight as congestion control sees them. */
static inline uint32_t tcp_flight(const struct tcp_conn *c)
{
	return c->pipe > c->dup_bytes ? c->pipe - c->dup_bytes : 0;
}
/** Nothing was sent for so long, a timeout or more: what was learned grows old (RFC 5681 4.1). */
void tcp_cwnd_restart(struct tcp_conn *c, uint64_t idle_ns);

/* cc.c */

uint32_t tcp_initial_window(const struct tcp_conn *c);
/** More than this could never be in flight. */
uint32_t tcp_cc_window_max(const struct tcp_conn *c);
/** What was in use of cwnd. */
uint32_t tcp_cc_flight(const struct tcp_conn *c);
/** Grows cwnd up to ssthresh; returns what is left of `acked`. */
uint32_t tcp_cc_slow_start(struct tcp_conn *c, uint32_t acked);
/** An ACK in slow start: is it to end? rtt_ns 0: no sample. */
void tcp_hystart_on_ack(struct tcp_conn *c, uint64_t rtt_ns);
/** Once it is known whether ECN is agreed on. */
void tcp_cc_select(struct tcp_conn *c);
void tcp_cc_reno_grow(struct tcp_conn *c, uint32_t acked, uint32_t *acked_sum);
uint32_t tcp_cc_reno_reduce(const struct tcp_conn *c);
/** The largest r with r^3 <= x, for x < 2^63. */
uint32_t tcp_cubic_root(uint64_t x);

/* ecn.c */

/** What the peer's SYN or SYN-ACK offers or accepts. */
void tcp_ecn_on_syn(struct tcp_conn *c, const struct tcp_segment_in *in);
void tcp_ecn_established(struct tcp_conn *c);
/** An acceptable segment of a connection with ECN, before its data is taken. */
void tcp_ecn_data(struct tcp_conn *c, const struct tcp_segment_in *in, uint64_t now_ns);
/** An ACK of a connection with ECN was counted into `r`. */
void tcp_ecn_ack(struct tcp_conn *c, const struct tcp_segment_in *in, struct tcp_ack_result *r);
/** cwnd was reduced, for whatever reason. */
void tcp_ecn_reduced(struct tcp_conn *c);
/** Adds flags to a segment about to be sent (ecn is not 0); returns its RP_NET_ECN_*. */
uint8_t tcp_ecn_output(struct tcp_conn *c, const struct tseg *t, uint8_t *flags);

/** Does the ACK answer what was sent before our timestamp `ts`? An echo of 0 is none. */
static inline bool tcp_echo_before(
	const struct tcp_conn *c, const struct tcp_ack_result *r, uint32_t ts)
{
	return c->flags & TCPF_TS && r->has_ts && r->ts_echo != 0 && rp_seq_lt(r->ts_echo, ts);
}

/* undo.c */

/** A reduction is about to follow: remembers what it takes away. */
void tcp_undo_begin(struct tcp_conn *c, uint64_t now_ns);
void tcp_undo_retransmitted(struct tcp_conn *c, const struct tseg *t, uint64_t now_ns);
/** It was for nothing. */
void tcp_undo(struct tcp_conn *c);
/** Was it? TCPF_UNDO is set. */
void tcp_undo_on_ack(struct tcp_conn *c, const struct tcp_ack_result *r, uint64_t now_ns);

/* timer.c */

/**
 * Sets the one timer of the sending side to what the state of the queue asks for, and puts the
 * connection into the wheel where its earliest deadline is before what is there.
 */
void tcp_arm(struct tcp_conn *c, uint64_t now_ns);
void tcp_timer_fired(struct tcp_conn *c, uint64_t now_ns);
uint64_t tcp_deadline(const struct tcp_conn *c);
/** 0 is the default; idle 0: off. */
void tcp_keepalive_set(struct tcp_conn *c, uint64_t idle_ns, uint64_t interval_ns, uint32_t probes);
/** Begins to watch the silence, or ends it. */
void tcp_keepalive_start(struct tcp_conn *c, uint64_t now_ns);
uint64_t tcp_rto_now(const struct tcp_conn *c);
const char *tcp_timer_name(unsigned timer);

/* reass.c */

/** Payload of an acceptable segment, in or out of order. Takes in->m. */
void tcp_data(struct tcp_conn *c, struct tcp_segment_in *in, uint64_t now_ns);
/** Bytes [start, end) came again: to be reported by D-SACK (RFC 2883). */
void tcp_note_duplicate(struct tcp_conn *c, uint32_t start, uint32_t end, uint64_t now_ns);
/** The blocks to report, most recent first (RFC 2018, 2883). Returns how many. */
unsigned tcp_sack_blocks(const struct tcp_conn *c, struct tcp_range *out, unsigned max);
void tcp_ooo_free(struct tcp_conn *c);
/** Behind the last byte out of order; there is one. */
uint32_t tcp_ooo_end(const struct tcp_conn *c);

/* pressure.c */

/** Looks at the receive pool, and does what follows from it. */
void tcp_pressure_poll(struct rp_tcp_stack *s, uint64_t now_ns);

/* listen.c */

struct tcp_listener *tcp_listener_find(struct rp_tcp_stack *s, uint16_t port);

/**
 * A segment for no connection. `isn_min`, where not NULL: the connection before this one ended
 * there. Returns a connection that the segment is to be given to, or NULL.
 */
struct tcp_conn *tcp_listen_input(struct rp_tcp_stack *s, const struct flow_key *key, uint32_t hash,
	const struct tcp_segment_in *in, const uint32_t *isn_min, uint64_t now_ns);
/** A half-open connection of the listener; NULL: no room, counted. */
struct tcp_conn *tcp_listen_conn(struct rp_tcp_stack *s, struct tcp_listener *l,
	const struct flow_key *key, uint64_t now_ns);
void tcp_syn_options(struct tcp_conn *c, const struct tcp_segment_in *in, uint64_t now_ns);
/** RFC 6528. */
uint32_t tcp_isn(const struct rp_tcp_stack *s, const struct flow_key *key, uint64_t now_ns);
uint32_t tcp_ts_offset(const struct rp_tcp_stack *s, const struct flow_key *key);
/**
 * A free local port towards the key's remote end, which puts the flow on this shard, and on one
 * of those that the options want at the peer; else only on this one; 0: none. The order is RFC
 * 6056's algorithm 3, with a Gray code in place of counting. Where all are taken, one whose
 * connection is in TIME-WAIT and had timestamps (RFC 6191): *reused, and *isn_min is where its
 * numbers ended.
 */
uint16_t tcp_pick_port(struct rp_tcp_stack *s, const struct rp_conn_options *options,
	struct flow_key *key, bool *reused, uint32_t *isn_min, uint64_t now_ns);

/* cookie.c */

/** Answers a SYN and keeps nothing. */
void tcp_cookie_send(struct rp_tcp_stack *s, const struct tcp_listener *l,
	const struct flow_key *key, const struct tcp_segment_in *in, uint64_t now_ns);
/**
 * The connection that an ACK with one of our cookies makes, in SYN-RECEIVED; NULL: it is none
 * (*ours false), or there was no room.
 */
struct tcp_conn *tcp_cookie_input(struct rp_tcp_stack *s, struct tcp_listener *l,
	const struct flow_key *key, const struct tcp_segment_in *in, bool *ours, uint64_t now_ns);
void tcp_half_open_done(struct tcp_conn *c);

/* timewait.c */

int tcp_tw_init(struct rp_tcp_stack *s);
/** The connection becomes a record; the connection leaves the table. */
void tcp_tw_enter(struct tcp_conn *c, uint64_t now_ns);
/** True: the segment opens a new connection, the record is gone; its numbers are above *isn_min. */
bool tcp_tw_input(struct rp_tcp_stack *s, uint32_t index, const struct tcp_segment_in *in,
	uint32_t *isn_min, uint64_t now_ns);
/** May this end dial from the record's port already (RFC 6191)? */
bool tcp_tw_reusable(const struct rp_tcp_stack *s, uint32_t index, uint64_t now_ns);
void tcp_tw_expire(struct rp_tcp_stack *s, uint64_t now_ns);
void tcp_tw_drop(struct rp_tcp_stack *s, uint32_t index);
uint64_t tcp_tw_next(const struct rp_tcp_stack *s);
