/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include <base/assert.h>
#include <base/log.h>
#include <base/mbuf.h>

#include <link/chain.h>
#include "link_priv.h"

/* Takes exactly `n` received bytes, or none when fewer have come. */
static bool take(struct link_conn *c, void *out, uint32_t n, uint64_t now_ns)
{
	if (!c->rx || c->rx->pkt_len < n)
		return false;
	rp_mbuf_copy_out(c->rx, 0, out, n);
	rp_chain_skip(&c->rx, n);
	if (!c->tls)
		c->conn->transport->ops->consume(c->conn, n, now_ns);
	return true;
}

static bool send_bytes(struct link_conn *c, const void *bytes, size_t n, uint64_t now_ns)
{
	struct rte_mbuf *m = rp_mbuf_from(c->links->config.pool, bytes, n);

	if (!m) {
		c->links->counters.no_buffers++;
		return false;
	}
	if (c->tls)
		m = link_secure_seal(c, m);
	if (!m)
		return false;
	if (c->conn->transport->ops->send(c->conn, m, now_ns) != 0) {
		rte_pktmbuf_free(m);
		return false;
	}
	return true;
}

void link_handshake_fail(struct link_conn *c, enum rp_link_refusal why, uint64_t now_ns)
{
	struct rp_links *l = c->links;

	if (c->line) {
		l->counters.refused_out[why]++;
		link_member_failed(c, why, now_ns);
		return;
	}
	l->counters.refused[why]++;
	RP_LOG(RP_LOG_LINK, RP_LOG_DEBUG, "inbound handshake refused: %s",
		rp_link_refusal_text(why));
	link_conn_abort(c, now_ns);
}

/* Our MAC, with the current secret; zeros on an open link. */
static bool own_mac(const struct link_conn *c, enum link_direction direction, uint8_t *mac)
{
	const struct rp_links_config *config = &c->links->config;

	memset(mac, 0, LINK_MAC_BYTES);
	if (!config->secret)
		return true;
	return link_mac(&c->hello, direction, config->secret, config->secret_length, mac);
}

static bool mac_proves(struct link_conn *c, enum link_direction direction, const uint8_t *mac)
{
	struct rp_links *l = c->links;
	uint8_t want[LINK_MAC_BYTES];

	if (!l->config.secret)
		return true;
	if (link_mac(&c->hello, direction, l->config.secret, l->config.secret_length, want) &&
		link_mac_equal(want, mac))
		return true;
	if (l->config.secret_previous &&
		link_mac(&c->hello, direction, l->config.secret_previous,
			l->config.secret_previous_length, want) &&
		link_mac_equal(want, mac)) {
		l->counters.secret_previous++;
		return true;
	}
	return false;
}

static uint8_t mode_of(const struct rp_links *l)
{
	return l->config.tls_server ? LINK_MODE_TLS : LINK_MODE_PLAIN;
}

static void step_preamble(struct link_conn *c, const uint8_t *bytes, uint64_t now_ns)
{
	struct link_preamble preamble;

	if (!link_preamble_read(&preamble, bytes)) {
		link_handshake_fail(c, RP_LINK_REFUSAL_MALFORMED, now_ns);
	} else if (preamble.version != LINK_VERSION) {
		link_handshake_fail(c, RP_LINK_REFUSAL_VERSION, now_ns);
	} else if (preamble.mode != mode_of(c->links)) {
		link_handshake_fail(c, RP_LINK_REFUSAL_MODE, now_ns);
	} else {
		c->hello.dialer = preamble.node;
		c->hello.k = preamble.k;
		c->hello.link = preamble.link;
		c->hello.mode = preamble.mode;
		if (preamble.mode == LINK_MODE_TLS && link_secure_begin(c) != 0) {
			link_handshake_fail(c, RP_LINK_REFUSAL_GONE, now_ns);
			return;
		}
		c->state = LINK_HELLO;
	}
}

/* What is wrong with a hello; told only once the dialer has proved the secret. */
static enum rp_link_refusal hello_check(const struct link_conn *c)
{
	const struct rp_links_config *config = &c->links->config;
	const struct link_hello *h = &c->hello;

	if (memcmp(h->cluster_uuid, config->cluster_uuid, RP_UUID_BYTES) != 0)
		return RP_LINK_REFUSAL_CLUSTER;
	if (h->acceptor != config->node)
		return RP_LINK_REFUSAL_WRONG_NODE;
	if (h->dialer >= config->node)
		return RP_LINK_REFUSAL_DIRECTION;
	if (h->k != config->per_peer)
		return RP_LINK_REFUSAL_K;
	return h->link < h->k ? RP_LINK_REFUSAL_NONE : RP_LINK_REFUSAL_RANGE;
}

static void step_hello(struct link_conn *c, const uint8_t *bytes, uint64_t now_ns)
{
	struct rp_links *l = c->links;
	const struct link_hello preamble = c->hello;
	uint8_t mac[LINK_MAC_BYTES], out[LINK_CHALLENGE_BYTES];

	if (!link_hello_read(&c->hello, bytes) || c->hello.dialer != preamble.dialer ||
		c->hello.k != preamble.k || c->hello.link != preamble.link ||
		c->hello.mode != preamble.mode) {
		link_handshake_fail(c, RP_LINK_REFUSAL_MALFORMED, now_ns);
		return;
	}
	c->refusal = hello_check(c);
	c->hello.acceptor_boot = l->config.boot;
	l->ops.random(l->ctx, c->hello.acceptor_nonce, LINK_NONCE_BYTES);
	if (!link_secure_binding(c, c->hello.binding) || !own_mac(c, LINK_FROM_ACCEPTOR, mac)) {
		link_handshake_fail(c, RP_LINK_REFUSAL_GONE, now_ns);
		return;
	}
	link_challenge_write(&c->hello, mac, out);
	c->state = LINK_FINISH;
	if (!send_bytes(c, out, sizeof(out), now_ns))
		link_handshake_fail(c, RP_LINK_REFUSAL_GONE, now_ns);
}

bool link_handshake_verdict(struct link_conn *c, enum rp_link_refusal refusal, uint64_t now_ns)
{
	struct rp_links *l = c->links;
	uint8_t out[LINK_VERDICT_BYTES];

	link_verdict_write((uint8_t)refusal, out);
	if (!send_bytes(c, out, sizeof(out), now_ns)) {
		link_handshake_fail(c, RP_LINK_REFUSAL_GONE, now_ns);
		return false;
	}
	if (refusal == RP_LINK_REFUSAL_NONE)
		return true;
	l->counters.refused[refusal]++;
	RP_LOG(RP_LOG_LINK, RP_LOG_WARNING, "node %llu refused: %s",
		(unsigned long long)c->hello.dialer, rp_link_refusal_text(refusal));
	link_conn_close(c, now_ns);
	return true;
}

/* The dialer is who it says; it may still be refused, and is told why. */
static void proven(struct link_conn *c, uint64_t now_ns)
{
	if (c->refusal != RP_LINK_REFUSAL_NONE)
		link_handshake_verdict(c, c->refusal, now_ns);
	else
		link_member_ask(c, now_ns);
}

static void step_finish(struct link_conn *c, const uint8_t *bytes, uint64_t now_ns)
{
	uint8_t mac[LINK_MAC_BYTES];

	if (!link_finish_read(mac, bytes))
		link_handshake_fail(c, RP_LINK_REFUSAL_MALFORMED, now_ns);
	else if (!mac_proves(c, LINK_FROM_DIALER, mac))
		link_handshake_fail(c, RP_LINK_REFUSAL_MAC, now_ns);
	else
		proven(c, now_ns);
}

static void step_challenge(struct link_conn *c, const uint8_t *bytes, uint64_t now_ns)
{
	uint8_t mac[LINK_MAC_BYTES], out[LINK_FINISH_BYTES];
	uint64_t acceptor;

	if (!link_challenge_read(&c->hello, &acceptor, mac, bytes) ||
		acceptor != c->hello.acceptor) {
		link_handshake_fail(c, RP_LINK_REFUSAL_MALFORMED, now_ns);
		return;
	}
	if (!mac_proves(c, LINK_FROM_ACCEPTOR, mac)) {
		link_handshake_fail(c, RP_LINK_REFUSAL_MAC, now_ns);
		return;
	}
	c->state = LINK_VERDICT;
	if (!own_mac(c, LINK_FROM_DIALER, mac)) {
		link_handshake_fail(c, RP_LINK_REFUSAL_GONE, now_ns);
		return;
	}
	link_finish_write(mac, out);
	if (!send_bytes(c, out, sizeof(out), now_ns))
		link_handshake_fail(c, RP_LINK_REFUSAL_GONE, now_ns);
}

static void step_verdict(struct link_conn *c, const uint8_t *bytes, uint64_t now_ns)
{
	uint8_t refusal;

	if (!link_verdict_read(&refusal, bytes) || refusal >= RP_LINK_REFUSAL_COUNT)
		link_handshake_fail(c, RP_LINK_REFUSAL_MALFORMED, now_ns);
	else if (refusal != RP_LINK_REFUSAL_NONE)
		link_handshake_fail(c, (enum rp_link_refusal)refusal, now_ns);
	else
		link_member_proven(c, c->hello.acceptor_boot, now_ns);
}

/* One step of the handshake; false: more bytes are needed, or it is over. */
static bool handshake_step(struct link_conn *c, uint64_t now_ns)
{
	static const struct {
		uint32_t length;
		void (*step)(struct link_conn *c, const uint8_t *bytes, uint64_t now_ns);
	} steps[] = {
		[LINK_PREAMBLE] = {LINK_PREAMBLE_BYTES, step_preamble},
		[LINK_HELLO] = {LINK_HELLO_BYTES, step_hello},
		[LINK_FINISH] = {LINK_FINISH_BYTES, step_finish},
		[LINK_CHALLENGE] = {LINK_CHALLENGE_BYTES, step_challenge},
		[LINK_VERDICT] = {LINK_VERDICT_BYTES, step_verdict},
	};
	uint8_t bytes[LINK_MESSAGE_BYTES_MAX];
	enum link_state state = c->state;

	if (state >= RP_ARRAY_SIZE(steps) || !steps[state].step)
		return false;
	if (!take(c, bytes, steps[state].length, now_ns))
		return false;
	steps[state].step(c, bytes, now_ns);
	return true;
}

/* TLS has news: the dialer's hello follows as soon as it is open. */
static void secure_step(struct link_conn *c, uint64_t now_ns)
{
	int rc = link_secure_pump(c, now_ns);
	uint8_t out[LINK_HELLO_BYTES];

	if (rc == -ENOBUFS || rc == -EPIPE) {
		link_handshake_fail(c, RP_LINK_REFUSAL_GONE, now_ns);
	} else if (rc != 0) {
		link_handshake_fail(c, RP_LINK_REFUSAL_TLS, now_ns);
	} else if (c->state == LINK_SECURING && rp_tls_open(c->tls)) {
		c->state = LINK_CHALLENGE;
		link_hello_write(&c->hello, out);
		if (!link_secure_binding(c, c->hello.binding))
			link_handshake_fail(c, RP_LINK_REFUSAL_TLS, now_ns);
		else if (!send_bytes(c, out, sizeof(out), now_ns))
			link_handshake_fail(c, RP_LINK_REFUSAL_GONE, now_ns);
	}
}

static void on_open(void *ctx, struct rp_conn *conn, uint64_t now_ns)
{
	struct link_conn *c = ctx;
	struct rp_links *l = c->links;
	uint8_t out[LINK_PREAMBLE_BYTES + LINK_HELLO_BYTES];

	if (c->state != LINK_DIALING)
		return;
	c->conn = conn;
	c->hello = (struct link_hello){
		.dialer = l->config.node,
		.acceptor = c->line->peer->node,
		.dialer_boot = l->config.boot,
		.epoch = c->hello.epoch,
		.k = l->config.per_peer,
		.link = c->line->link,
		.mode = mode_of(l),
	};
	memcpy(c->hello.cluster_uuid, l->config.cluster_uuid, RP_UUID_BYTES);
	l->ops.random(l->ctx, c->hello.dialer_nonce, LINK_NONCE_BYTES);
	link_preamble_write(
		&(struct link_preamble){
			.version = LINK_VERSION,
			.mode = c->hello.mode,
			.link = c->line->link,
			.k = l->config.per_peer,
			.node = l->config.node,
		},
		out);
	link_hello_write(&c->hello, out + LINK_PREAMBLE_BYTES);
	c->state = c->hello.mode == LINK_MODE_TLS ? LINK_SECURING : LINK_CHALLENGE;
	link_conn_enter(c);
	if (!send_bytes(
		    c, out, c->state == LINK_SECURING ? LINK_PREAMBLE_BYTES : sizeof(out), now_ns))
		link_handshake_fail(c, RP_LINK_REFUSAL_GONE, now_ns);
	else if (c->state == LINK_SECURING && link_secure_begin(c) != 0)
		link_handshake_fail(c, RP_LINK_REFUSAL_GONE, now_ns);
	else if (c->state == LINK_SECURING)
		secure_step(c, now_ns);
	link_conn_leave(c);
}

static void on_data(void *ctx, struct rp_conn *conn, struct rte_mbuf *chain, uint64_t now_ns)
{
	struct link_conn *c = ctx;
	struct rte_mbuf *had = c->tls ? c->cipher : c->rx;
	struct rp_chain_batch rx = {had, had ? rte_pktmbuf_lastseg(had) : NULL};

	if (c->state == LINK_CLOSING) {
		uint32_t n = chain->pkt_len;

		rte_pktmbuf_free(chain);
		conn->transport->ops->consume(conn, n, now_ns);
		return;
	}
	c->links->counters.bytes_received += chain->pkt_len;
	if (c->state == LINK_PROVEN || c->state == LINK_UP)
		c->line->bytes_received += chain->pkt_len;
	/* Joined, so that a peer's tiny segments do not hold an mbuf a byte. */
	rp_chain_join(&rx, chain);
	link_conn_enter(c);
	if (c->tls)
		c->cipher = rx.first;
	else
		c->rx = rx.first;
	/* A link that may not read yet, or reads for itself, decrypts later. */
	if (c->tls && c->state != LINK_PROVEN && c->state != LINK_UP)
		secure_step(c, now_ns);
	while (handshake_step(c, now_ns)) {
		/* The preamble's own step has begun TLS. */
		if (c->cipher && c->state != LINK_PROVEN && c->state != LINK_UP)
			secure_step(c, now_ns);
	}
	if (c->state == LINK_UP)
		link_line_receive(c, now_ns);
	link_conn_leave(c);
}

static void on_writable(void *ctx, struct rp_conn *conn, uint64_t now_ns)
{
	struct link_conn *c = ctx;

	if (c->state != LINK_UP)
		return;
	c->line->blocked = false;
	link_line_mark(c->line);
}

static void on_peer_fin(void *ctx, struct rp_conn *conn, uint64_t now_ns)
{
	struct link_conn *c = ctx;

	link_conn_enter(c);
	switch (c->state) {
	case LINK_UP:
	case LINK_PROVEN:
		link_member_lost(c, RP_LINK_DOWN_CLOSED, now_ns);
		break;
	case LINK_PREAMBLE:
	case LINK_HELLO:
	case LINK_FINISH:
	case LINK_DECIDE:
	case LINK_SECURING:
	case LINK_DIALING:
	case LINK_CHALLENGE:
	case LINK_VERDICT:
		link_handshake_fail(c, RP_LINK_REFUSAL_GONE, now_ns);
		break;
	case LINK_CLOSING:
	case LINK_FREE:
		break;
	}
	link_conn_leave(c);
}

static enum rp_link_down down_of(enum rp_close_reason why)
{
	switch (why) {
	case RP_CLOSE_FIN:
		return RP_LINK_DOWN_CLOSED;
	case RP_CLOSE_RESET:
		return RP_LINK_DOWN_RESET;
	case RP_CLOSE_TIMEOUT:
		return RP_LINK_DOWN_TIMEOUT;
	case RP_CLOSE_NOMEM:
		return RP_LINK_DOWN_NOMEM;
	case RP_CLOSE_REFUSED:
	case RP_CLOSE_UNREACHABLE:
	case RP_CLOSE_ABORTED:
		break;
	}
	return RP_LINK_DOWN_NETWORK;
}

static void on_close(void *ctx, struct rp_conn *conn, enum rp_close_reason why, uint64_t now_ns)
{
	struct link_conn *c = ctx;

	link_conn_enter(c);
	c->conn = NULL;
	switch (c->state) {
	case LINK_UP:
	case LINK_PROVEN:
		link_member_lost(c, down_of(why), now_ns);
		break;
	case LINK_DIALING:
		c->links->counters.dials_failed++;
		link_member_failed(c, RP_LINK_REFUSAL_NONE, now_ns);
		break;
	case LINK_PREAMBLE:
	case LINK_HELLO:
	case LINK_FINISH:
	case LINK_DECIDE:
	case LINK_SECURING:
	case LINK_CHALLENGE:
	case LINK_VERDICT:
		link_handshake_fail(c, RP_LINK_REFUSAL_GONE, now_ns);
		break;
	case LINK_CLOSING:
		link_conn_free(c);
		break;
	case LINK_FREE:
		break;
	}
	link_conn_leave(c);
}

const struct rp_conn_events link_events = {
	.on_open = on_open,
	.on_data = on_data,
	.on_writable = on_writable,
	.on_peer_fin = on_peer_fin,
	.on_close = on_close,
};

int rp_links_accept(void *listen_ctx, struct rp_conn *conn, const struct rp_endpoint *peer,
	const struct rp_conn_events **events, void **ctx, uint64_t now_ns)
{
	struct rp_links *l = listen_ctx;
	struct link_conn *c;

	if (l->stopping)
		return -ECONNREFUSED;
	if (l->handshake_count >= l->config.handshakes_max)
		link_handshake_fail(rp_list_entry(l->handshakes.next, struct link_conn, entry),
			RP_LINK_REFUSAL_CAP, now_ns);
	c = link_conn_new(l);
	if (!c)
		return -ENOMEM;
	l->counters.accepts++;
	c->conn = conn;
	c->state = LINK_PREAMBLE;
	c->deadline_ns = now_ns + l->config.handshake_grace_ns;
	link_arm(l, c->deadline_ns);
	rp_list_push_back(&l->handshakes, &c->entry);
	l->handshake_count++;
	*events = &link_events;
	*ctx = c;
	return 0;
}
