/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What may come in: by the limits of one queue, and by the buffers that all share.
 *
 * Messages leave a part of the pool to whatever else a node needs buffers for: without them nothing
 * moves, and what is full never empties. Of the rest a queue takes at most HOG_SHARE times what it
 * leaves free (the dynamic thresholds of Choudhury and Hahne, 1998): one queue alone may have four
 * fifths, and however many queues nobody empties, the others find room.
 */

#include <rte_mempool.h>

#include "queue_priv.h"

#define HOG_SHARE 4
/** Messages that one put may push out of a full queue. */
#define OVERFLOW_DROPS_MAX 4096
/** Buffers taken before the pool is looked at again: so many, and this part of the reserve. */
#define SAMPLE_BUFFERS 64
#define SAMPLE_PART 4
/** A hand-over whose message found no buffers begins again with it; after this long, without. */
#define HOLE_NS (2 * RP_NS_PER_S)

void admit_init(struct rp_queues *qs)
{
	qs->buffer_room =
		rte_pktmbuf_data_room_size(qs->config.pool) - (uint32_t)RTE_PKTMBUF_HEADROOM;
	qs->sample_at = RP_MIN((uint32_t)SAMPLE_BUFFERS, qs->config.reserve / SAMPLE_PART);
}

uint32_t admit_buffers_of(const struct rp_queues *qs, uint32_t bytes)
{
	/* Most fit one. */
	if (bytes < qs->buffer_room)
		return 1;
	return bytes / qs->buffer_room + 1;
}

static void sample(struct rp_queues *qs)
{
	uint64_t free = rte_mempool_avail_count(qs->config.pool);
	uint64_t due = (uint64_t)qs->config.reserve + qs->foreign_buffers;

	qs->room = free > due ? free - due : 0;
	qs->unsampled = 0;
}

/* Not at each message, since the pool's count is a sum over the lcores' caches. */
static void look(struct rp_queues *qs, uint32_t need)
{
	qs->unsampled += need;
	if (qs->unsampled > qs->sample_at)
		sample(qs);
}

/* At least half of what it holds: a message takes a buffer, and one more for each that it fills. */
static uint64_t buffers_held(const struct rp_queues *qs, const struct queue *q)
{
	uint64_t count = (uint64_t)q->depth + q->unsent_count + q->sent_count;

	/* A multiplication says whether the division is needed. */
	return count * qs->buffer_room > q->bytes ? count
						  : RP_MAX(count, q->bytes / qs->buffer_room);
}

static bool has_share(const struct rp_queues *qs, const struct queue *q, uint32_t need)
{
	return need <= qs->room && buffers_held(qs, q) + need <= HOG_SHARE * qs->room;
}

/* What ends has left the queue, and waits elsewhere. */
static bool is_over_depth(struct rp_queues *qs, struct queue *q)
{
	uint32_t ending = q->more ? q->more->ending_count : 0;

	return (uint64_t)q->depth - ending + q->unsent_count + q->sent_count >=
	       policy_depth_max(qs, q);
}

static bool is_over_bytes(struct rp_queues *qs, struct queue *q, uint32_t bytes)
{
	uint64_t ending = q->more ? q->more->ending_bytes : 0;

	return q->bytes - ending + bytes > policy_bytes_max(qs, q);
}

/* Where a queue that is full drops its oldest, it does so until the new one fits. */
static void make_room(struct rp_queues *qs, struct queue *q, uint32_t bytes, uint64_t now_ns)
{
	const struct rp_queue_policy *p = policy_of(qs, q);

	if (!q->own || p->overflow != RP_QUEUE_OVERFLOW_DROP_OLDEST ||
		bytes > policy_bytes_max(qs, q))
		return;
	for (unsigned i = 0; i < OVERFLOW_DROPS_MAX; i++) {
		if (!is_over_depth(qs, q) && !is_over_bytes(qs, q, bytes))
			return;
		if (!overflow_drop(qs, q, now_ns))
			return;
	}
}

static enum rp_qstatus admit_with_care(
	struct rp_queues *qs, struct queue *q, uint32_t bytes, uint64_t now_ns)
{
	uint32_t need = admit_buffers_of(qs, bytes);

	if (policy_of(qs, q))
		make_room(qs, q, bytes, now_ns);
	if (is_over_depth(qs, q)) {
		COUNT(qs, q, refused_depth);
		return RP_Q_QUEUE_DEPTH;
	}
	if (is_over_bytes(qs, q, bytes)) {
		COUNT(qs, q, refused_bytes);
		return RP_Q_QUEUE_BYTES;
	}
	look(qs, need);
	if (!has_share(qs, q, need)) {
		sample(qs);
		if (!has_share(qs, q, need)) {
			COUNT(qs, q, refused_buffers);
			return RP_Q_QUEUE_BUFFERS;
		}
	}
	qs->room -= need;
	return RP_Q_OK;
}

/* There is room by far, and nothing to look at. What it does not know it does not say. */
static bool admit_at_once(struct rp_queues *qs, struct queue *q, uint32_t bytes)
{
	uint64_t count = (uint64_t)q->depth + q->unsent_count + q->sent_count;

	if (bytes >= qs->buffer_room || policy_of(qs, q) || count >= qs->config.queue_depth_max ||
		q->bytes + bytes > qs->config.queue_bytes_max || qs->unsampled >= qs->sample_at ||
		count * qs->buffer_room < q->bytes || count >= qs->room)
		return false;
	qs->unsampled++;
	qs->room--;
	return true;
}

enum rp_qstatus admit_message(
	struct rp_queues *qs, struct queue *q, uint32_t bytes, uint64_t now_ns)
{
	return admit_at_once(qs, q, bytes) ? RP_Q_OK : admit_with_care(qs, q, bytes, now_ns);
}

enum rp_qstatus admit_handed(struct rp_queues *qs, struct queue *q, struct producer *p,
	uint64_t sequence, uint32_t bytes, uint64_t now_ns)
{
	uint32_t need = admit_buffers_of(qs, bytes);

	/* In order: what comes behind one that was put off is put off with it. */
	if (p->hole && sequence > p->hole && now_ns < p->hole_ns + HOLE_NS) {
		COUNT(qs, q, refused_buffers);
		return RP_Q_STALL;
	}
	look(qs, need);
	if (need > qs->room)
		sample(qs);
	if (need > qs->room) {
		COUNT(qs, q, refused_buffers);
		p->hole = sequence;
		p->hole_ns = now_ns;
		return RP_Q_STALL;
	}
	p->hole = 0;
	qs->room -= need;
	return RP_Q_OK;
}

/* ---- payloads in receive pools ---- */

bool foreign_lies(const struct rp_queues *qs, const struct message *msg)
{
	for (struct rte_mbuf *m = msg->payload; m; m = m->next) {
		const struct rte_mbuf *owner = RTE_MBUF_CLONED(m) ? rte_mbuf_from_indirect(m) : m;

		if (owner->pool != qs->config.pool)
			return true;
	}
	return false;
}

void foreign_add(struct rp_queues *qs, struct message *m, uint64_t now_ns)
{
	qs->foreign_buffers += admit_buffers_of(qs, m->bytes);
	m->stay_ns = now_ns + qs->config.stay_ns;
	rp_list_push_back(&qs->foreign, &m->stay);
}

void foreign_check(struct rp_queues *qs, struct message *m, uint64_t now_ns)
{
	if (rp_list_empty(&m->stay) && foreign_lies(qs, m))
		foreign_add(qs, m, now_ns);
}

void foreign_remove(struct rp_queues *qs, struct message *m)
{
	if (rp_list_empty(&m->stay))
		return;
	rp_list_unlink(&m->stay);
	qs->foreign_buffers -= admit_buffers_of(qs, m->bytes);
}
