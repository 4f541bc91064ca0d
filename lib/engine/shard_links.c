/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Links and the shard: every shard has an object of lib/link; what they say to each other crosses
 * the rings here, and so do frames between a link's owner and the shard of a queue.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <rte_mbuf.h>

#include <base/assert.h>
#include <base/log.h>
#include <base/mbuf.h>
#include <engine/shard_engine_priv.h>

/* ---- rings ---- */

/*
 * Frames may find a ring full: they are held, or their bundle starts anew. News of bundles may not
 * be lost, nor may a frame overtake it: it waits here, and the ring counts as full meanwhile.
 */
int engine_post_shard(struct rp_engine *e, unsigned to, const struct rp_xmsg *m)
{
	if (e->outbox_pending[to] > 0)
		return -ENOBUFS;
	return e->ops->post(e->ctx, to, m);
}

static void post_sure(struct rp_engine *e, unsigned to, const struct rp_xmsg *m)
{
	struct engine_outbox *o;

	if (engine_post_shard(e, to, m) == 0)
		return;
	if (e->outbox_tail - e->outbox_head == ENGINE_OUTBOX) {
		e->counters.posts_lost++;
		RP_LOG(RP_LOG_LINK, RP_LOG_CRIT, "shard %u: a message %s to shard %u found no room",
			e->shard, rp_xmsg_type_name(m->type), to);
		return;
	}
	o = &e->outbox[e->outbox_tail++ % ENGINE_OUTBOX];
	*o = (struct engine_outbox){.to = (uint8_t)to, .m = *m};
	e->outbox_pending[to]++;
}

void engine_outbox_flush(struct rp_engine *e)
{
	uint32_t full = 0;

	for (uint32_t n = e->outbox_tail - e->outbox_head; n > 0; n--) {
		struct engine_outbox o = e->outbox[e->outbox_head++ % ENGINE_OUTBOX];

		if (!(full >> o.to & 1) && e->ops->post(e->ctx, o.to, &o.m) == 0) {
			e->outbox_pending[o.to]--;
			continue;
		}
		/* The order of those to one shard stays: all that follow wait as well. */
		full |= 1u << o.to;
		e->outbox[e->outbox_tail++ % ENGINE_OUTBOX] = o;
	}
}

static void links_post(void *ctx, unsigned shard, const struct rp_link_msg *l)
{
	struct rp_xmsg m = {
		.type = RP_XMSG_LINK,
		.flags = l->flags,
		.status = l->type,
		.name_length = l->link,
		.tail_length = l->why,
		.value = l->bundle,
		.token = l->token,
		.node = l->node,
		.idx = l->epoch,
		.alloc_node = l->boot,
		.revision = l->sent_ns,
		.answered = l->answered_ns,
	};

	memcpy(m.owners, l->owners, sizeof(m.owners));
	post_sure(ctx, shard, &m);
}

void engine_on_link(struct rp_engine *e, unsigned from, const struct rp_xmsg *m, uint64_t now_ns)
{
	struct rp_link_msg l = {
		.type = (uint8_t)m->status,
		.link = (uint8_t)m->name_length,
		.why = (uint8_t)m->tail_length,
		.flags = m->flags,
		.bundle = m->value,
		.token = (uint32_t)m->token,
		.node = m->node,
		.epoch = m->idx,
		.boot = m->alloc_node,
		.sent_ns = m->revision,
		.answered_ns = m->answered,
	};

	memcpy(l.owners, m->owners, sizeof(l.owners));
	if (e->links)
		rp_links_on_msg(e->links, from, &l, now_ns);
}

/* ---- links ---- */

static void links_random(void *ctx, void *out, size_t length)
{
	struct rp_engine *e = ctx;

	e->ops->random(e->ctx, out, length);
}

/* Of the shards, one tells control. */
static void tell_state(struct rp_engine *e, uint64_t node, uint32_t value)
{
	struct rp_xmsg m = {.type = RP_XMSG_LINK_STATE, .node = node, .value = value};

	if (e->shard == e->link_shard)
		engine_tell(e, &m);
}

static void links_on_up(void *ctx, uint64_t node, uint32_t bundle, uint64_t boot, uint64_t now_ns)
{
	engine_peer_link(ctx, node, bundle, now_ns);
	tell_state(ctx, node, 1);
}

static void links_on_down(void *ctx, uint64_t node, enum rp_link_down why, uint64_t now_ns)
{
	engine_peer_link(ctx, node, 0, now_ns);
	tell_state(ctx, node, 0);
}

static int frame_shard(const struct rp_engine *e, const struct rte_mbuf *frame)
{
	struct rp_frame_header h;

	rp_frame_header_read(&h, rte_pktmbuf_mtod(frame, const void *));
	return rp_frame_shard(&h, e->shards);
}

/* A frame for another shard, or for none. False: it is lost, and its bundle with it. */
static bool frame_reroute(
	struct rp_engine *e, uint64_t node, int shard, struct rte_mbuf *frame, uint64_t now_ns)
{
	struct engine_peer *p = engine_peer_get(e, node);

	if (shard >= 0 && p) {
		struct rp_xmsg m = {
			.type = RP_XMSG_FRAME_IN, .node = node, .value = p->bundle, .m = frame};

		if (engine_post_shard(e, (unsigned)shard, &m) == 0) {
			e->counters.frames_rerouted++;
			return true;
		}
		e->counters.frames_overrun++;
	} else {
		e->counters.frames_misrouted++;
	}
	/* A hole in an ordered stream: the bundle starts anew, and what was lost is repeated. */
	rte_pktmbuf_free(frame);
	rp_links_violation(e->links, node, now_ns);
	return false;
}

/* Those of this shard go on together. */
static void links_on_frames(
	void *ctx, uint64_t node, struct rte_mbuf **frames, unsigned n, uint64_t now_ns)
{
	struct rp_engine *e = ctx;
	bool sound = true;
	unsigned i = 0;

	while (i < n && sound) {
		int shard = frame_shard(e, frames[i]);
		unsigned end = i + 1;

		if (shard != (int)e->shard) {
			sound = frame_reroute(e, node, shard, frames[i++], now_ns);
			continue;
		}
		while (end < n && frame_shard(e, frames[end]) == shard)
			end++;
		sound = rp_deliver_on_frames(e->deliver, node, frames + i, end - i, now_ns);
		i = end;
	}
	e->counters.frames_broken += n - i;
	rte_pktmbuf_free_bulk(frames + i, n - i);
}

static void links_on_room(void *ctx, uint64_t node, uint64_t now_ns)
{
	struct rp_engine *e = ctx;

	rp_deliver_on_room(e->deliver, node, now_ns);
}

static void links_on_answered(void *ctx, uint64_t node, uint64_t sent_ns, uint64_t now_ns)
{
	struct engine_peer *p = engine_peer_get(ctx, node);

	if (p)
		p->ping_sent_ns = RP_MAX(p->ping_sent_ns, sent_ns);
}

static void links_on_ping(void *ctx, uint64_t node, uint64_t now_ns)
{
	struct engine_peer *p = engine_peer_get(ctx, node);

	if (p)
		p->ping_answered_ns = RP_MAX(p->ping_answered_ns, now_ns);
}

const struct rp_links_ops engine_links_ops = {
	.post = links_post,
	.random = links_random,
	.on_up = links_on_up,
	.on_down = links_on_down,
	.on_frames = links_on_frames,
	.on_room = links_on_room,
	.on_answered = links_on_answered,
	.on_ping = links_on_ping,
};

/* ---- frames out ---- */

/* To the shard that has the link. */
static int frame_post(struct rp_engine *e, unsigned owner, uint64_t node, uint32_t bundle,
	uint32_t hash, struct rte_mbuf *frame)
{
	const struct rp_xmsg m = {
		.type = RP_XMSG_FRAME_OUT, .node = node, .value = bundle, .hash = hash, .m = frame};

	if (engine_post_shard(e, owner, &m) == 0) {
		e->counters.frames_rerouted++;
		return 0;
	}
	e->out_blocked = true;
	return -EAGAIN;
}

int engine_frame_out(
	void *ctx, uint64_t node, uint32_t bundle, uint32_t hash, struct rte_mbuf *frame)
{
	struct rp_engine *e = ctx;
	int owner = e->links ? rp_links_owner(e->links, node, hash) : -ENOTCONN;

	if (owner < 0)
		return -ENOTCONN;
	if ((uint32_t)owner == e->shard)
		return rp_links_send(e->links, node, bundle, hash, frame);
	return frame_post(e, (unsigned)owner, node, bundle, hash, frame);
}

uint8_t *engine_frame_room(void *ctx, uint64_t node, uint32_t bundle, uint32_t hash, uint32_t bytes)
{
	struct rp_engine *e = ctx;

	return e->links ? rp_links_append(e->links, node, bundle, hash, bytes) : NULL;
}

void engine_on_frame_out(struct rp_engine *e, const struct rp_xmsg *m, uint64_t now_ns)
{
	int rc = e->links ? rp_links_send_posted(e->links, m->node, m->value, m->hash, m->m)
			  : -ENOTCONN;

	if (rc == 0)
		return;
	rte_pktmbuf_free(m->m);
	if (rc == -EAGAIN) {
		/* A hole in an ordered stream: the bundle starts anew, and what was lost is
		 * repeated. */
		e->counters.frames_overrun++;
		rp_links_violation(e->links, m->node, now_ns);
	}
}

void engine_on_frame_in(struct rp_engine *e, const struct rp_xmsg *m, uint64_t now_ns)
{
	struct engine_peer *p = engine_peer_get(e, m->node);

	if (p && p->bundle == m->value && p->broken != m->value) {
		rp_deliver_on_frame(e->deliver, m->node, m->m, now_ns);
		return;
	}
	e->counters.frames_broken++;
	rte_pktmbuf_free(m->m);
}

void engine_violation(void *ctx, uint64_t node, enum rp_deliver_violation why)
{
	struct rp_engine *e = ctx;
	struct engine_peer *p = engine_peer_get(e, node);

	RP_LOG(RP_LOG_LINK, RP_LOG_ERROR, "node %lu broke the protocol: %s", (unsigned long)node,
		rp_deliver_violation_text(why));
	/* Frames that are on their way from other shards come to nobody. */
	if (p)
		p->broken = p->bundle;
	if (e->links)
		rp_links_violation(e->links, node, e->now_ns);
}
