/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Writes docs/protocol_capture.md: what two nodes say to each other, byte for byte, when one
 * forwards a message and the other accepts it. Both run the code of lib/link and lib/deliver on a
 * wire in memory, with a clock and nonces that are always the same.
 */

#include <stdio.h>

#include <rte_eal.h>

#include <base/bytes.h>
#include <base/log.h>
#include <deliver/deliver.h>
#include <link/link.h>

#include "fake_transport.h"

struct node {
	uint64_t id, peer;
	const char *name;
	struct rp_links *links;
	struct rp_deliver *deliver;
	uint8_t nonce;
	bool hears;	  /* the verdict has gone by: what follows is frames */
	uint32_t opening; /* messages of the handshake that were shown */
};

static struct rte_mempool *pool;
static struct fake_net net;
static struct node nodes[2];
static uint64_t now;

/* One line of the page: bytes, and what they are. */
static void line(struct rp_reader *r, size_t n, const char *what)
{
	const uint8_t *p = rp_read_bytes(r, n);
	char hex[64] = "";

	RP_ASSERT(p);
	for (size_t i = 0; i < n; i++) {
		snprintf(hex + 2 * (i % 16), 3, "%02x", p[i]);
		if (i % 16 == 15 || i + 1 == n) {
			printf(i < 16 ? "%-32s  %s\n" : "%s\n", hex, i < 16 ? what : "");
			hex[0] = '\0';
		}
	}
}

static void field(struct rp_reader *r, size_t n, const char *name)
{
	char what[128];
	uint64_t v = 0;

	memcpy(&v, r->pos, n);
	snprintf(what, sizeof(what), "%s = %llu", name, (unsigned long long)v);
	line(r, n, what);
}

static void show_preamble(struct rp_reader *r)
{
	line(r, 4, "magic \"RPLK\"");
	field(r, 1, "version");
	field(r, 1, "mode (0: plain)");
	field(r, 1, "link");
	field(r, 1, "k");
	field(r, 8, "node");
}

static void show_message(struct rp_reader *r, const char *name)
{
	printf("\n%s\n", name);
	field(r, 1, "message");
	field(r, 1, "version");
	field(r, 2, "length");
}

static void show_handshake(struct node *from, struct rp_reader *r)
{
	bool dials = from == &nodes[0];
	uint32_t step = from->opening++;

	if (dials && step == 0) {
		printf("\nPreamble\n");
		show_preamble(r);
		show_message(r, "Hello");
		line(r, 16, "cluster uuid");
		field(r, 8, "dialer");
		field(r, 8, "acceptor");
		field(r, 8, "boot id of the dialer");
		field(r, 8, "epoch of the bundle");
		line(r, 32, "nonce of the dialer");
		field(r, 1, "k");
		field(r, 1, "link");
		field(r, 1, "mode");
		line(r, 1, "reserved");
	} else if (dials) {
		show_message(r, "Finish");
		line(r, 32, "MAC of the dialer");
		from->hears = true;
	} else if (step == 0) {
		show_message(r, "Challenge");
		field(r, 8, "acceptor");
		field(r, 8, "boot id of the acceptor");
		line(r, 32, "nonce of the acceptor");
		line(r, 32, "MAC of the acceptor");
	} else {
		show_message(r, "Verdict");
		field(r, 1, "refusal (0: accepted)");
		line(r, 3, "reserved");
		from->hears = true;
	}
}

static const char *type_name(uint8_t type)
{
	switch (type) {
#define X(name, number, routing) \
	case number:             \
		return #name;
		RP_FRAME_TYPES(X)
#undef X
	default:
		return "?";
	}
}

static void show_fields(struct rp_reader *r, uint16_t f)
{
	static const struct {
		uint8_t bytes;
		const char *name;
	} fields[] = {
		{8, "idx"},
		{8, "alloc_node"},
		{16, "uuid"},
		{24, "producer node, boot id, sequence"},
		{8, "token"},
		{8, "mod_revision"},
		{4, "attempt"},
		{4, "count"},
		{1, "status"},
		{1, "tail length"},
		{4, "payload, all frames"},
	};

	for (unsigned bit = 0; bit < RP_ARRAY_SIZE(fields); bit++) {
		if (!(f & 1 << bit))
			continue;
		if (fields[bit].bytes > 8)
			line(r, fields[bit].bytes, fields[bit].name);
		else
			field(r, fields[bit].bytes, fields[bit].name);
	}
	if (f & 1 << 11) {
		field(r, 1, "sender's shard");
		field(r, 4, "sequence of its control messages");
	}
	if (f & 1 << 12) {
		uint8_t n = *r->pos;

		field(r, 1, "length of the queue's name");
		line(r, n, "queue's name");
	}
}

static void show_body(struct rp_reader *r, const struct rp_frame_header *h)
{
	struct rp_reader body = rp_reader_of(r->pos, h->length);

	rp_read_bytes(r, h->length);
	switch (h->type) {
	case RP_FRAME_OPEN:
		field(&body, 1, "type of the stream's messages");
		field(&body, 1, "length of the queue's name");
		line(&body, 2, "reserved");
		field(&body, 4, "opener's handle");
		line(&body, rp_reader_left(&body), "queue's name");
		break;
	case RP_FRAME_OPENED:
		line(&body, 4, "acceptor's handle");
		field(&body, 4, "credit, messages");
		field(&body, 8, "credit, bytes");
		field(&body, 1, "status (0: open)");
		line(&body, 3, "reserved");
		break;
	case RP_FRAME_CREDIT:
		field(&body, 4, "messages");
		line(&body, 4, "reserved");
		field(&body, 8, "bytes");
		break;
	case RP_FRAME_TOOK:
		field(&body, 4, "sequence: this and all before");
		if (rp_reader_left(&body) > 0) {
			field(&body, 1, "shards of the taker");
			field(&body, 1, "its shard");
			field(&body, 1, "k");
			field(&body, 1, "link");
		}
		break;
	case RP_FRAME_PING:
	case RP_FRAME_PONG:
		field(&body, 8, "the pinger's clock");
		break;
	default:
		show_fields(&body, h->fields);
		if (rp_reader_left(&body) > 0)
			line(&body, rp_reader_left(&body), "payload: tail, value");
	}
	RP_ASSERT(rp_reader_left(&body) == 0);
}

static void show_frame(struct rp_reader *r)
{
	struct rp_frame_header h;

	rp_frame_header_read(&h, r->pos);
	printf("\n%s\n", type_name(h.type));
	field(r, 1, "type");
	line(r, 1, "flags");
	line(r, 2, "fields");
	line(r, 4, "handle");
	field(r, 4, "length");
	field(r, 4, "epoch");
	field(r, 8, "dispatcher");
	show_body(r, &h);
}

/* Each send is shown, whole, before it goes. */
static int capture_send(struct rp_conn *conn, struct rte_mbuf *chain, uint64_t t)
{
	static uint8_t bytes[FAKE_WINDOW];
	struct node *from = &nodes[conn->transport == &net.side[0].transport ? 0 : 1];
	struct rp_reader r = rp_reader_of(bytes, rp_mbuf_copy_out(chain, 0, bytes, sizeof(bytes)));

	printf("## %s to %s, at %llu ms\n\n```\n", from->name, from == nodes ? "B" : "A",
		(unsigned long long)(t / RP_NS_PER_MS));
	while (rp_reader_left(&r) > 0) {
		if (from->hears)
			show_frame(&r);
		else
			show_handshake(from, &r);
	}
	printf("```\n\n");
	return fake_send(conn, chain, t);
}

static void on_random(void *ctx, void *out, size_t length)
{
	memset(out, ((struct node *)ctx)->nonce, length);
}

static void on_up(void *ctx, uint64_t node, uint32_t bundle, uint64_t boot, uint64_t t)
{
	RP_ASSERT(rp_deliver_peer_up(((struct node *)ctx)->deliver, node, bundle, t) == 0);
}

static void on_down(void *ctx, uint64_t node, enum rp_link_down why, uint64_t t)
{
	rp_deliver_peer_down(((struct node *)ctx)->deliver, node, t);
}

static void on_frames(void *ctx, uint64_t node, struct rte_mbuf **frames, unsigned n, uint64_t t)
{
	rp_deliver_on_frames(((struct node *)ctx)->deliver, node, frames, n, t);
}

static void on_room(void *ctx, uint64_t node, uint64_t t)
{
}

static int frame_out(
	void *ctx, uint64_t node, uint32_t bundle, uint32_t hash, struct rte_mbuf *frame)
{
	return rp_links_send(((struct node *)ctx)->links, node, bundle, hash, frame);
}

static int unary_send(
	void *ctx, uint64_t node, uint32_t hash, struct rte_mbuf *frame, uint64_t token)
{
	return -ENOTCONN;
}

static void violation(void *ctx, uint64_t node, enum rp_deliver_violation why)
{
	RP_ASSERT(!"a violation");
}

/* B's queue: what is forwarded is taken, and A's consumer gets nothing; A is told of an event. */
static int on_msg(void *ctx, uint64_t node, const struct rp_qmsg *m, uint32_t *epoch,
	uint64_t *dispatcher, uint64_t t)
{
	rte_pktmbuf_free(m->payload);
	return RP_Q_OK;
}

static void on_took(void *ctx, uint64_t node, const struct rp_qmsg *m, uint64_t t)
{
}

static void on_refused(void *ctx, uint64_t node, const struct rp_qmsg *m, enum rp_qstatus status,
	uint32_t epoch, uint64_t dispatcher, uint64_t t)
{
	rte_pktmbuf_free(m->payload);
}

static void on_lost(void *ctx, uint64_t node, const struct rp_qmsg *m, uint64_t t)
{
	rte_pktmbuf_free(m->payload);
}

static const struct rp_links_ops links_ops = {
	.random = on_random,
	.on_up = on_up,
	.on_down = on_down,
	.on_frames = on_frames,
	.on_room = on_room,
};

static const struct rp_deliver_ops deliver_ops = {
	.frame_out = frame_out,
	.unary_send = unary_send,
	.violation = violation,
	.on_msg = on_msg,
	.on_took = on_took,
	.on_refused = on_refused,
	.on_lost = on_lost,
	.on_room = on_room,
};

static void node_start(struct node *n, int side)
{
	static const struct rp_endpoint at = {.family = 4, .port = 7400};
	static const uint8_t secret[32] = {1, 2, 3};
	const struct rp_links_config links = {
		.node = n->id,
		.boot = n->id + 1000,
		.cluster_uuid = "cluster",
		.per_peer = 1,
		.secret = secret,
		.secret_length = sizeof(secret),
		.heartbeat_ns = 500 * RP_NS_PER_MS,
		.dead_after_ns = 3000 * RP_NS_PER_MS,
		.handshake_grace_ns = 10 * RP_NS_PER_S,
		.peer_queue_frames = 64,
		.peers_max = 1,
		.handshakes_max = 4,
		.pool = pool,
	};
	const struct rp_deliver_config deliver = {
		.node = n->id,
		.shards = 1,
		.message_bytes_max = 1572864,
		.window_bytes = 65536,
		.peer_budget_bytes = 1 << 20,
		.streams_max = 4,
		.peers_max = 1,
		.peer_messages_max = 64,
		.messages_max = 1024,
		.idle_ns = 30 * RP_NS_PER_S,
		.pool = pool,
	};

	n->links = rp_links_create(&links, &links_ops, n);
	n->deliver = rp_deliver_create(&deliver, &deliver_ops, n);
	RP_ASSERT(n->links && n->deliver);
	RP_ASSERT(rp_links_listen(n->links, &net.side[side].transport, 7400) == 0);
	RP_ASSERT(rp_links_add_peer(n->links, n->peer, &net.side[side].transport, &at, now) == 0);
}

static void turns(int count)
{
	for (int i = 0; i < count; i++, now += RP_NS_PER_MS) {
		for (int k = 0; k < 2; k++) {
			rp_links_poll(nodes[k].links, now);
			rp_deliver_poll(nodes[k].deliver, now);
			rp_links_flush(nodes[k].links, now);
		}
		fake_step(&net, now);
	}
}

static void send_one(struct node *n, struct rp_qmsg *m)
{
	m->name = (const uint8_t *)"jobs";
	m->name_length = 4;
	m->hash = rp_queue_hash("jobs", 4);
	m->epoch = 483840;
	m->dispatcher = 20;
	RP_ASSERT(rp_deliver_send(n->deliver, n->peer, m, now) == 0);
}

int main(void)
{
	char *args[] = {"capture", "--no-huge", "-m", "64", "--no-pci", "--no-telemetry",
		"--no-shconf", "-l", "0", "--log-level", "error"};
	struct rp_transport_ops ops;
	struct rp_qmsg forward = {
		.type = RP_QMSG_FORWARD,
		.producer_node = 10,
		.producer_boot = 1010,
		.producer_seq = 1,
		.tail_length = 5,
	};
	struct rp_qmsg accepted = {
		.type = RP_QMSG_ACCEPTED,
		.idx = (uint64_t)483840 << 40 | 1,
		.alloc_node = 20,
		.uuid = {0xa0, 0xa1, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6, 0xa7, 0xa8, 0xa9, 0xaa, 0xab,
			0xac, 0xad, 0xae, 0xaf},
		.mod_revision = 1000,
	};

	rp_log_set_level(RP_LOG_CRIT);
	RP_ASSERT(rte_eal_init((int)RP_ARRAY_SIZE(args), args) >= 0);
	pool = rte_pktmbuf_pool_create(
		"pool", 1023, 0, 0, RTE_MBUF_DEFAULT_BUF_SIZE, SOCKET_ID_ANY);
	RP_ASSERT(pool);
	printf("# A capture of the peer protocol\n\n"
	       "Made by `docs/protocol_capture.c`; [protocol.md](protocol.md) explains the bytes. "
	       "Node A (id 10) dials node B (20),\nforwards one message to the queue `jobs` that B "
	       "dispatches, and later tells B that a consumer has one.\n\n");
	fake_init(&net, pool);
	ops = fake_ops;
	ops.send = capture_send;
	net.side[0].transport.ops = net.side[1].transport.ops = &ops;
	nodes[0] = (struct node){.id = 10, .peer = 20, .name = "A", .nonce = 0x41};
	nodes[1] = (struct node){.id = 20, .peer = 10, .name = "B", .nonce = 0x42};
	node_start(&nodes[0], 0);
	node_start(&nodes[1], 1);
	turns(8);
	forward.payload = rp_mbuf_from(pool, "job-1hello", 10);
	send_one(&nodes[0], &forward);
	turns(8);
	send_one(&nodes[0], &accepted);
	turns(4);
	for (int k = 0; k < 2; k++) {
		rp_links_destroy(nodes[k].links);
		rp_deliver_destroy(nodes[k].deliver);
	}
	fake_step(&net, now);
	fake_fini(&net);
	return 0;
}
