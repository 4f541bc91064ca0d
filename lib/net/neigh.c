/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>

#include <net/net_priv.h>

#define NEIGH_BACKOFF_MAX 5
#define NEIGH_TELL_BURST 64
#define NEIGH_TELL_GAP_NS (1 * RP_NS_PER_MS)

static const char *const neigh_state_names[] = {
#define X(name, text) text,
	NEIGH_STATES(X)
#undef X
};

static uint32_t neigh_hash(const struct rp_net *net, const union rp_ip *ip)
{
	uint64_t h = (ip->q[0] ^ ip->q[1]) * 0x9e3779b97f4a7c15ull;

	return (uint32_t)(h >> 40) & net->hash_mask;
}

int neigh_table_init(struct rp_net *net)
{
	uint32_t n = net->config.neighbours_max, pending = net->config.neighbour_pending_max;
	uint32_t slots = 1;

	while (slots < 2 * n)
		slots *= 2;
	net->hash_mask = slots - 1;
	net->hash = calloc(slots, sizeof(*net->hash));
	net->neighs = calloc(n, sizeof(*net->neighs));
	net->pending_slots = calloc((size_t)n * pending, sizeof(*net->pending_slots));
	if (!net->hash || !net->neighs || !net->pending_slots)
		return -ENOMEM;
	for (uint32_t i = 0; i < n; i++) {
		struct rp_neigh *e = &net->neighs[i];

		e->pending = &net->pending_slots[(size_t)i * pending];
		e->next = (uint16_t)(i + 1 < n ? i + 2 : 0);
		e->deadline_ns = RP_NEVER;
		rp_list_init(&e->users);
	}
	net->neigh_free = 1;
	return 0;
}

static void neigh_drop_pending(struct rp_net *net, struct rp_neigh *n, uint64_t *counter)
{
	while (n->pending_count > 0) {
		rte_pktmbuf_free(n->pending[n->pending_first]);
		n->pending_first =
			(uint16_t)((n->pending_first + 1u) % net->config.neighbour_pending_max);
		n->pending_count--;
		(*counter)++;
	}
}

void neigh_table_free(struct rp_net *net)
{
	for (uint32_t i = 0; net->neighs && net->pending_slots && i < net->config.neighbours_max;
		i++)
		neigh_drop_pending(net, &net->neighs[i], &net->counters->drop_neigh_failed);
	free(net->hash);
	free(net->neighs);
	free(net->pending_slots);
}

static void neigh_arm(struct rp_net *net, struct rp_neigh *n, uint64_t deadline_ns)
{
	n->deadline_ns = deadline_ns;
	net->front.neigh_due_ns = RP_MIN(net->front.neigh_due_ns, deadline_ns);
}

struct rp_neigh *neigh_find(struct rp_net *net, const union rp_ip *ip)
{
	for (uint16_t i = net->hash[neigh_hash(net, ip)]; i; i = net->neighs[i - 1].next)
		if (rp_ip_equal(&net->neighs[i - 1].ip, ip))
			return &net->neighs[i - 1];
	return NULL;
}

static void neigh_unhash(struct rp_net *net, struct rp_neigh *n)
{
	uint16_t *link = &net->hash[neigh_hash(net, &n->ip)];
	uint16_t self = (uint16_t)(n - net->neighs + 1);

	while (*link != self)
		link = &net->neighs[*link - 1].next;
	*link = n->next;
}

/* Failed ones go first; those that are being asked, for which only echoes wait, at last. */
static unsigned neigh_worth(const struct rp_neigh *n)
{
	return n->state == NEIGH_FAILED ? 0 : n->state == NEIGH_INCOMPLETE ? 2 : 1;
}

/* The entry nobody refers to that is worth least, of those the one used longest ago. */
static struct rp_neigh *neigh_evict(struct rp_net *net)
{
	struct rp_neigh *best = NULL;

	for (uint32_t i = 0; i < net->config.neighbours_max; i++) {
		struct rp_neigh *n = &net->neighs[i];

		if (n->user_count || n->fixed)
			continue;
		if (!best || neigh_worth(n) < neigh_worth(best) ||
			(neigh_worth(n) == neigh_worth(best) && n->used_ns < best->used_ns))
			best = n;
	}
	if (best) {
		neigh_drop_pending(net, best, &net->counters->drop_neigh_full);
		neigh_unhash(net, best);
		best->deadline_ns = RP_NEVER;
	}
	return best;
}

static struct rp_neigh *neigh_new(struct rp_net *net, const union rp_ip *ip, uint64_t now_ns)
{
	struct rp_neigh *n;
	uint32_t slot = neigh_hash(net, ip);

	if (net->neigh_free) {
		n = &net->neighs[net->neigh_free - 1];
		net->neigh_free = n->next;
	} else {
		n = neigh_evict(net);
		if (!n)
			return NULL;
	}
	n->ip = *ip;
	n->tries = 0;
	n->used_ns = now_ns;
	n->confirmed_ns = 0;
	n->next = net->hash[slot];
	net->hash[slot] = (uint16_t)(n - net->neighs + 1);
	memcpy(n->eth.src, net->iface.mac, 6);
	n->eth.type = rp_ip_is4(ip) ? RTE_BE16(NET_ETHERTYPE_IP4) : RTE_BE16(NET_ETHERTYPE_IP6);
	return n;
}

static uint64_t neigh_retry_ns(const struct rp_net *net, const struct rp_neigh *n)
{
	return net->config.neigh_retry_ns << RP_MIN(n->tries - 1u, NEIGH_BACKOFF_MAX);
}

/* Asks all, or the one that had the address. */
static void neigh_ask(struct rp_net *net, const struct rp_neigh *n, bool all)
{
	if (rp_ip_is4(&n->ip))
		arp_request(net, &n->ip, all ? NULL : n->eth.dst);
	else
		nd_solicit(net, &n->ip, all ? NULL : n->eth.dst);
}

static void neigh_start(struct rp_net *net, struct rp_neigh *n, uint64_t now_ns)
{
	n->state = NEIGH_INCOMPLETE;
	n->tries = 1;
	neigh_ask(net, n, true);
	neigh_arm(net, n, now_ns + neigh_retry_ns(net, n));
}

struct rp_neigh *neigh_towards(struct rp_net *net, const union rp_ip *remote, uint64_t now_ns)
{
	union rp_ip hop;
	struct rp_neigh *n;
	int rc = net_next_hop(net, remote, &hop);

	if (rc < 0) {
		errno = -rc;
		return NULL;
	}
	n = neigh_find(net, &hop);
	if (!n) {
		n = neigh_new(net, &hop, now_ns);
		if (!n) {
			errno = ENOBUFS;
			return NULL;
		}
		neigh_start(net, n, now_ns);
	} else if (n->state == NEIGH_FAILED) {
		neigh_start(net, n, now_ns);
	}
	n->used_ns = now_ns;
	return n;
}

struct rp_neigh *rp_neigh_ref(
	struct rp_net *net, const union rp_ip *remote, struct rp_list *user, uint64_t now_ns)
{
	struct rp_neigh *n = neigh_towards(net, remote, now_ns);

	if (n) {
		n->user_count++;
		rp_list_push_back(&n->users, user);
	}
	return n;
}

void rp_neigh_unref(struct rp_net *net, struct rp_neigh *neigh, struct rp_list *user)
{
	rp_list_unlink(user);
	neigh->user_count--;
}

static void neigh_reachable(struct rp_net *net, struct rp_neigh *n, uint64_t now_ns)
{
	uint64_t span_ns = net->config.neigh_reachable_ns;

	n->state = NEIGH_REACHABLE;
	n->tries = 0;
	n->confirmed_ns = now_ns;
	/* RFC 4861 6.3.2: between a half and one and a half times, so that hosts do not ask in
	 * step. */
	neigh_arm(net, n, now_ns + span_ns / 2 + rp_rand_below(&net->rand, span_ns + 1));
}

void rp_neigh_confirm(struct rp_net *net, struct rp_neigh *neigh, uint64_t now_ns)
{
	if (neigh->state == NEIGH_REACHABLE)
		neigh->confirmed_ns = now_ns;
	else if (neigh->state == NEIGH_STALE || neigh->state == NEIGH_PROBE)
		neigh_reachable(net, neigh, now_ns);
}

void rp_neigh_suspect(struct rp_net *net, struct rp_neigh *neigh, uint64_t now_ns)
{
	if ((neigh->state != NEIGH_REACHABLE && neigh->state != NEIGH_STALE) || neigh->fixed)
		return;
	neigh->state = NEIGH_PROBE;
	neigh->tries = 0;
	neigh_arm(net, neigh, now_ns);
}

static void neigh_flush(struct rp_net *net, struct rp_neigh *n)
{
	while (n->pending_count > 0) {
		struct rte_mbuf *m = n->pending[n->pending_first];

		n->pending_first =
			(uint16_t)((n->pending_first + 1u) % net->config.neighbour_pending_max);
		n->pending_count--;
		net_link_header(net, m, &n->eth);
		net_tx_push(net, m, true);
	}
}

/* Other lcores' copies; replies nobody asked for are not worth more than so many messages. */
static void neigh_tell(
	struct rp_net *net, const struct neigh_news *news, bool changed, uint64_t now_ns)
{
	uint64_t earliest_ns = now_ns - RP_MIN(now_ns, NEIGH_TELL_BURST * NEIGH_TELL_GAP_NS);

	if (!net->config.on_neigh || (!changed && !news->solicited))
		return;
	net->tell_tokens_ns = RP_MAX(net->tell_tokens_ns, earliest_ns);
	if (net->tell_tokens_ns > now_ns) {
		net->counters->neigh_untold++;
		return;
	}
	net->tell_tokens_ns += NEIGH_TELL_GAP_NS;
	net->config.on_neigh(net->config.ctx, news->ip, news->mac, news->solicited);
}

/* What the entry becomes (RFC 4861 7.2.5, appendix C; ARP's news override). True: it changed. */
static bool neigh_take(
	struct rp_net *net, struct rp_neigh *n, const struct neigh_news *news, uint64_t now_ns)
{
	bool known = n->state != NEIGH_INCOMPLETE && n->state != NEIGH_FAILED;
	bool same = known && (!news->mac || !memcmp(n->eth.dst, news->mac, 6));

	if (n->fixed || (!known && !news->mac))
		return false;
	if (known && !same && !news->override) {
		/* It does not count, but what is known is in doubt. */
		if (n->state == NEIGH_REACHABLE) {
			n->state = NEIGH_STALE;
			n->deadline_ns = RP_NEVER;
		}
		return false;
	}
	if (known && !same)
		net->counters->neigh_moved++;
	net->counters->neigh_learned++;
	if (news->mac)
		memcpy(n->eth.dst, news->mac, 6);
	if (news->solicited) {
		neigh_reachable(net, n, now_ns);
	} else if (!same) {
		/* What it says of itself is used at once, and asked again at the next use. */
		n->state = NEIGH_STALE;
		n->confirmed_ns = now_ns;
		n->deadline_ns = RP_NEVER;
	}
	neigh_flush(net, n);
	return !same;
}

void neigh_learn(struct rp_net *net, const struct neigh_news *news, uint64_t now_ns)
{
	struct rp_neigh *n = neigh_find(net, news->ip);
	bool asked, changed;

	if (!n && news->create && news->mac) {
		n = neigh_new(net, news->ip, now_ns);
		if (n)
			n->state = NEIGH_INCOMPLETE;
	}
	if (!n) {
		if (news->mac)
			neigh_tell(net, news, news->announced, now_ns); /* another lcore's */
		return;
	}
	asked = n->state == NEIGH_INCOMPLETE || n->state == NEIGH_PROBE;
	changed = neigh_take(net, n, news, now_ns);
	if (news->mac && !n->fixed && (changed || !asked))
		neigh_tell(net, news, changed, now_ns);
}

void rp_net_neigh_learn(struct rp_net *net, const union rp_ip *ip, const uint8_t mac[6],
	bool confirmed, uint64_t now_ns)
{
	struct neigh_news news = {.ip = ip, .mac = mac, .solicited = confirmed, .override = true};
	struct rp_neigh *n = neigh_find(net, ip);

	if (!n && confirmed) {
		n = neigh_new(net, ip, now_ns);
		if (n)
			n->state = NEIGH_INCOMPLETE;
	}
	if (n)
		neigh_take(net, n, &news, now_ns);
}

int neigh_set_static(struct rp_net *net, const struct rp_net_neighbour *neighbour)
{
	struct rp_neigh *n;

	if (neighbour->mac[0] & 1 || !net_on_link(net, &neighbour->ip) ||
		net_addr_find(net, &neighbour->ip) >= 0 || neigh_find(net, &neighbour->ip))
		return -EINVAL;
	n = neigh_new(net, &neighbour->ip, 0);
	if (!n)
		return -ENOSPC;
	memcpy(n->eth.dst, neighbour->mac, 6);
	n->state = NEIGH_REACHABLE;
	n->fixed = true;
	return 0;
}

static void neigh_hold(struct rp_net *net, struct rp_neigh *n, struct rte_mbuf *m)
{
	uint32_t max = net->config.neighbour_pending_max;

	if (n->pending_count == max) {
		/* The newest is worth most (RFC 1122 2.3.2.2). */
		rte_pktmbuf_free(n->pending[n->pending_first]);
		n->pending_first = (uint16_t)((n->pending_first + 1u) % max);
		n->pending_count--;
		net->counters->drop_neigh_full++;
	}
	n->pending[(n->pending_first + n->pending_count) % max] = m;
	n->pending_count++;
}

bool neigh_unsure(struct rp_net *net, struct rp_neigh *n, struct rte_mbuf *m, uint64_t now_ns)
{
	if (n->state == NEIGH_FAILED)
		neigh_start(net, n, now_ns);
	if (n->state == NEIGH_INCOMPLETE) {
		neigh_hold(net, n, m);
		return true;
	}
	if (n->state == NEIGH_STALE) {
		n->state = NEIGH_PROBE;
		n->tries = 0;
		/* The answer to this very packet may confirm it before it has to be asked. */
		neigh_arm(net, n, now_ns + net->config.neigh_retry_ns);
	}
	return false;
}

static void neigh_fail(struct rp_net *net, struct rp_neigh *n, uint64_t now_ns)
{
	struct rp_list *u, *next;

	n->state = NEIGH_FAILED;
	n->tries = 0;
	n->deadline_ns = RP_NEVER;
	net->counters->neigh_failed++;
	neigh_drop_pending(net, n, &net->counters->drop_neigh_failed);
	if (!net->config.on_neigh_failed)
		return;
	rp_list_foreach_safe (u, next, &n->users)
		net->config.on_neigh_failed(net->config.ctx, u, now_ns);
}

static void neigh_timer(struct rp_net *net, struct rp_neigh *n, uint64_t now_ns)
{
	n->deadline_ns = RP_NEVER;
	if (n->state == NEIGH_REACHABLE) {
		uint64_t due_ns = n->confirmed_ns + net->config.neigh_reachable_ns / 2;

		/* TCP confirmed it meanwhile without touching the timer. */
		if (due_ns > now_ns)
			neigh_arm(net, n, due_ns);
		else
			n->state = NEIGH_STALE;
		return;
	}
	if (n->state != NEIGH_INCOMPLETE && n->state != NEIGH_PROBE)
		return;
	if (n->tries >= net->config.neigh_tries) {
		if (n->state == NEIGH_PROBE)
			neigh_start(net, n, now_ns); /* unicast found nobody: ask all */
		else
			neigh_fail(net, n, now_ns);
		return;
	}
	n->tries++;
	neigh_ask(net, n, n->state != NEIGH_PROBE);
	neigh_arm(net, n, now_ns + neigh_retry_ns(net, n));
}

void neigh_poll(struct rp_net *net, uint64_t now_ns)
{
	uint64_t next_ns = RP_NEVER;

	net->front.neigh_due_ns = RP_NEVER;
	for (uint32_t i = 0; i < net->config.neighbours_max; i++) {
		struct rp_neigh *n = &net->neighs[i];

		if (n->deadline_ns <= now_ns)
			neigh_timer(net, n, now_ns);
		next_ns = RP_MIN(next_ns, n->deadline_ns);
	}
	net->front.neigh_due_ns = RP_MIN(net->front.neigh_due_ns, next_ns);
}

void rp_net_neigh_foreach(const struct rp_net *net,
	void (*cb)(void *ctx, const struct rp_neigh_info *info), void *ctx)
{
	for (uint32_t i = 0; i < net->config.neighbours_max; i++) {
		const struct rp_neigh *n = &net->neighs[i];
		struct rp_neigh_info info = {
			.ip = n->ip,
			.state = n->fixed ? "static" : neigh_state_names[n->state],
			.pending = n->pending_count,
			.users = n->user_count,
			.confirmed_ns = n->confirmed_ns,
		};

		if (n->state == NEIGH_FREE)
			continue;
		memcpy(info.mac, n->eth.dst, 6);
		cb(ctx, &info);
	}
}
