/* SPDX-License-Identifier: Apache-2.0 */

/*
 * TLS between a link and its transport: what arrives is decrypted into mbufs, what leaves is
 * encrypted into others. The preamble alone is plain. Bytes of the transport's window are given
 * back when they are decrypted, and nothing is decrypted while the link may not read: so TLS holds
 * no more than the window.
 */

#include <errno.h>

#include <base/assert.h>
#include <base/log.h>
#include <base/mbuf.h>
#include <link/chain.h>

#include "link_priv.h"

int link_secure_begin(struct link_conn *c)
{
	struct rp_links_config *config = &c->links->config;
	bool server = c->state == LINK_PREAMBLE;

	c->tls = rp_tls_session_new(
		server ? config->tls_server : config->tls_client, NULL, (struct rp_span){0});
	if (!c->tls)
		return -ENOMEM;
	/* What came behind the preamble is the beginning of TLS. */
	c->cipher = c->rx;
	c->rx = NULL;
	return 0;
}

void link_secure_end(struct link_conn *c)
{
	rp_tls_session_destroy(c->tls);
	c->tls = NULL;
	rte_pktmbuf_free(c->cipher);
	c->cipher = NULL;
}

static struct rte_mbuf *pending_chain(struct link_conn *c)
{
	struct rp_span out = rp_tls_pending(c->tls);
	struct rte_mbuf *m;

	if (out.length == 0)
		return NULL;
	m = rp_mbuf_from(c->links->config.data_pool, out.data, out.length);
	if (m)
		rp_tls_sent(c->tls, out.length);
	else
		c->links->counters.no_buffers++;
	return m;
}

/* What the handshake, or an alert, has to say. */
static bool flush(struct link_conn *c, uint64_t now_ns)
{
	struct rte_mbuf *m;

	if (!c->conn || rp_tls_pending(c->tls).length == 0)
		return true;
	m = pending_chain(c);
	if (!m)
		return false;
	if (c->conn->transport->ops->send(c->conn, m, now_ns) == 0)
		return true;
	rte_pktmbuf_free(m);
	return false;
}

/* All that the session has decrypted, into c->rx. 0; -ENOBUFS: later; or why it is over. */
static int drain(struct link_conn *c)
{
	struct rp_chain_batch rx = {c->rx, c->rx ? rte_pktmbuf_lastseg(c->rx) : NULL};

	for (;;) {
		struct rte_mbuf *m = rte_pktmbuf_alloc(c->links->config.data_pool);
		ssize_t n;

		if (!m) {
			c->links->counters.no_buffers++;
			return -ENOBUFS;
		}
		n = rp_tls_read(c->tls, rte_pktmbuf_mtod(m, void *), rte_pktmbuf_tailroom(m));
		if (n <= 0) {
			rte_pktmbuf_free(m);
			return n == -EAGAIN ? 0 : n == 0 ? -EPIPE : (int)n;
		}
		m->data_len = (uint16_t)n;
		m->pkt_len = (uint32_t)n;
		rp_chain_join(&rx, m);
		c->rx = rx.first;
	}
}

int link_secure_pump(struct link_conn *c, uint64_t now_ns)
{
	int rc = drain(c);
	uint32_t done = 0;

	while (rc == 0 && c->cipher) {
		struct rte_mbuf *m = c->cipher;
		size_t n = rp_tls_feed(c->tls, rte_pktmbuf_mtod(m, const void *), m->data_len);

		/* Read out to the last byte, it has room for more. */
		RP_ASSERT(n > 0 || m->data_len == 0);
		done += (uint32_t)n;
		if (n == m->pkt_len) {
			rte_pktmbuf_free(m);
			c->cipher = NULL;
		} else {
			rp_chain_skip(&c->cipher, (uint32_t)n);
		}
		rc = drain(c);
	}
	if (done > 0 && c->conn)
		c->conn->transport->ops->consume(c->conn, done, now_ns);
	if (!flush(c, now_ns) && rc == 0)
		rc = -ENOBUFS;
	if (rc != 0 && rc != -ENOBUFS && rc != -EPIPE)
		RP_LOG(RP_LOG_LINK, RP_LOG_DEBUG, "TLS on a link: %s", rp_tls_error(c->tls));
	return rc;
}

struct rte_mbuf *link_secure_seal(struct link_conn *c, struct rte_mbuf *chain)
{
	bool ok = true;

	for (struct rte_mbuf *m = chain; m && ok; m = m->next)
		ok = m->data_len == 0 || rp_tls_write(c->tls, rte_pktmbuf_mtod(m, const void *),
						 m->data_len) == (ssize_t)m->data_len;
	rte_pktmbuf_free(chain);
	return ok ? pending_chain(c) : NULL;
}

bool link_secure_binding(const struct link_conn *c, uint8_t binding[LINK_BINDING_BYTES])
{
	memset(binding, 0, LINK_BINDING_BYTES);
	return !c->tls || rp_tls_binding(c->tls, binding);
}
