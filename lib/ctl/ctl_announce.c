/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Announce (spec/cluster.md, Membership): a node whose peers do not know it tells them by
 * MemberAdd. It connects, and when the other has not dialled it some seconds later, the other has
 * not got it in its file. A member that was removed by a call stays so until a call adds it again.
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <etcdserverpb/rpc.pb-c.h>

#include <base/assert.h>
#include <base/log.h>
#include <ctl/ctl_priv.h>

#define WAIT_NS (5 * RP_NS_PER_S)
#define CALL_NS (10 * RP_NS_PER_S)
#define PATH_MEMBER_ADD "/etcdserverpb.Cluster/MemberAdd"

void ctl_announce_proved(struct rp_ctl *ctl, uint64_t node)
{
	for (uint32_t i = 0; i < RP_PEERS_MAX; i++)
		if (ctl->proved_in[i] == node)
			return;
	ctl->proved_in[ctl->proved_in_next++ % RP_PEERS_MAX] = node;
}

static bool has_dialled(const struct rp_ctl *ctl, uint64_t node)
{
	for (uint32_t i = 0; i < RP_PEERS_MAX; i++)
		if (ctl->proved_in[i] == node)
			return true;
	return false;
}

static bool is_loopback(const struct rp_conf_endpoint *e)
{
	return strcmp(e->host, "localhost") == 0 || strncmp(e->host, "127.", 4) == 0 ||
	       strcmp(e->host, "::1") == 0;
}

/* Where that peer can dial this node; NULL: nothing that it could use. */
static const char *own_url(struct ctl_peer *p)
{
	struct rp_ctl *ctl = p->ctl;
	const char *url = ctl->peer_url[0] ? ctl->peer_url : ctl->config.self.client_url;
	struct rp_conf_endpoint own, peer;

	if (url[0] == '\0' || rp_conf_endpoint_parse(url, 2379, &own) != 0 || own.is_unix ||
		strcmp(own.host, "0.0.0.0") == 0 || strcmp(own.host, "::") == 0)
		return NULL;
	if (rp_conf_endpoint_parse(p->address, 2379, &peer) != 0 ||
		(is_loopback(&own) && !is_loopback(&peer)))
		return NULL;
	return url;
}

static void on_added(
	void *ctx, enum rp_grpc_code code, const char *message, const uint8_t *data, size_t length)
{
	struct ctl_peer *p = ctx;

	p->calls_open--;
	if (code == RP_GRPC_OK)
		RP_LOG(RP_LOG_REPL, RP_LOG_INFO, "announced to %s", p->address);
	else
		RP_LOG(RP_LOG_REPL, RP_LOG_WARNING, "%s does not take this node in: %s", p->address,
			message);
}

static void on_announce(void *ctx)
{
	struct ctl_peer *p = ctx;
	Etcdserverpb__MemberAddRequest q = ETCDSERVERPB__MEMBER_ADD_REQUEST__INIT;
	const char *url = own_url(p);
	uint8_t packed[400];

	if (p->state != CTL_PEER_CONNECTED || has_dialled(p->ctl, p->node) || !url)
		return;
	q.n_peerurls = 1;
	q.peerurls = (char **)&url;
	RP_ASSERT(etcdserverpb__member_add_request__get_packed_size(&q) <= sizeof(packed));
	p->calls_open++;
	ctl_peer_call_raw(p, PATH_MEMBER_ADD, packed,
		etcdserverpb__member_add_request__pack(&q, packed), CALL_NS, on_added, p);
}

void ctl_announce_later(struct ctl_peer *p)
{
	rp_loop_timer_cancel(&p->announce_timer);
	rp_loop_timer_setup(&p->announce_timer, on_announce, p);
	rp_loop_timer_in(p->ctl->loop, &p->announce_timer, WAIT_NS);
}

/* ---- at the other end ---- */

static bool same_place(const char *a, const char *b)
{
	struct rp_conf_endpoint x, y;

	return rp_conf_endpoint_parse(a, 2379, &x) == 0 &&
	       rp_conf_endpoint_parse(b, 2379, &y) == 0 && rp_conf_endpoint_equal(&x, &y);
}

int ctl_announce_check(struct rp_ctl *ctl, const char *url, rp_repl_peer_id *peer)
{
	for (uint32_t i = 0; i < RP_PEERS_MAX; i++) {
		struct rp_repl_peer_info info;

		if (!rp_repl_peer_get(rp_control_repl(ctl->control), i, &info) ||
			!same_place(info.address, url))
			continue;
		*peer = i;
		return 1;
	}
	for (uint32_t i = 0; i < CTL_REMOVED_MAX; i++)
		if (ctl->removed[i][0] && same_place(ctl->removed[i], url))
			return -EPERM;
	return 0;
}

void ctl_announce_removed(struct rp_ctl *ctl, const char *url, bool removed)
{
	char *slot;

	for (uint32_t i = 0; i < CTL_REMOVED_MAX; i++)
		if (ctl->removed[i][0] && same_place(ctl->removed[i], url))
			ctl->removed[i][0] = '\0';
	if (!removed)
		return;
	slot = ctl->removed[ctl->removed_next++ % CTL_REMOVED_MAX];
	snprintf(slot, sizeof(ctl->removed[0]), "%s", url);
}
