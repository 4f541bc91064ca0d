/* SPDX-License-Identifier: Apache-2.0 */

/* Every user of these rings is in this file, so the choice of their memory model is made here: C11
 * atomics, which the thread sanitizer can follow. */
#ifndef RTE_USE_C11_MEM_MODEL
#define RTE_USE_C11_MEM_MODEL
#endif

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include <rte_atomic.h>
#include <rte_errno.h>
#include <rte_ring.h>
#include <rte_ring_elem.h>

#include <base/assert.h>
#include <xcore/xcore.h>
#include <xcore/xcore_msg.h>

#define XCORE_CONTROL_SLOTS 8191u
#define XCORE_CONTROL_BACKLOG 4096u
#define XCORE_SHARD_SLOTS 1023u
#define XCORE_SHARD_BACKLOG 1024u
#define XCORE_SLOTS_MAX (1u << 20)

struct xcore_backlog {
	struct rp_xmsg *slots;
	uint8_t *how;
	uint32_t size, first, length;
};

/** One direction between two ends. */
struct xcore_pair {
	/* Set at creation, read by both. */
	struct rte_ring *ring;
	/** Per slot of the ring, how its message was sent; NULL between shards. Written before the
	 * enqueue, read before the dequeue, ordered by the ring's own tails. */
	uint8_t *how;
	uint32_t normal_slots, reserve_slots, answer_slots;

	/* Producer only. */
	uint32_t in_ring[3] __rte_cache_aligned; /**< by class, as of `seen_tail` */
	uint32_t seen_tail;			 /**< the consumer's tail that is accounted for */
	uint32_t asked;				 /**< answers that this side waits for */
	uint32_t owed;				 /**< answers that this side owes */
	bool waits;				 /**< something was refused or is in the backlog */
	uint32_t waits_tail;			 /**< the consumer's tail when that was found */
	struct xcore_backlog backlog;

	/* Producer sets, consumer clears. */
	uint32_t starved __rte_cache_aligned;
};

struct rp_xcore_end {
	/* Set at creation. */
	struct rp_xcore *x;
	unsigned id;
	int fd;
	struct xcore_pair *out[RP_XCORE_ENDS_MAX]; /**< NULL where there is no such pair */
	struct xcore_pair *in[RP_XCORE_ENDS_MAX];

	/* Owner only. */
	uint64_t sent_to __rte_cache_aligned; /**< ends to look after at the next flush */
	uint64_t taken_from;
	uint64_t backlog_to;
	unsigned next_from;

	/* Owner writes, any thread reads. */
	struct rp_xcore_stats stats;

	/* Owner sets, whoever rings clears. */
	uint32_t sleeping __rte_cache_aligned;
};

struct rp_xcore {
	unsigned shard_count;
	uint32_t instance;
	struct rp_xcore_end *ends[RP_XCORE_ENDS_MAX];
};

#define XCORE_BIT(id) (UINT64_C(1) << (id))

/** Only the owner of a counter writes it, so no read-modify-write is needed. */
static void xcore_count(uint64_t *counter, uint64_t n)
{
	__atomic_store_n(counter, __atomic_load_n(counter, __ATOMIC_RELAXED) + n, __ATOMIC_RELAXED);
}

/* ---- creation ---- */

static void *xcore_zalloc(size_t size)
{
	void *p = NULL;

	size = (size + RP_CACHE_LINE - 1) / RP_CACHE_LINE * RP_CACHE_LINE;
	if (posix_memalign(&p, RP_CACHE_LINE, size) != 0)
		return NULL;
	memset(p, 0, size);
	return p;
}

static void xcore_pair_free(struct xcore_pair *p)
{
	if (!p)
		return;
	rte_ring_free(p->ring);
	free(p->how);
	free(p->backlog.slots);
	free(p->backlog.how);
	free(p);
}

static struct xcore_pair *xcore_pair_create(
	const struct rp_xcore *x, const struct rp_xcore_config *c, unsigned from, unsigned to)
{
	bool control = from == RP_XCORE_CONTROL || to == RP_XCORE_CONTROL;
	uint32_t slots = control ? c->control_slots : c->shard_slots;
	struct xcore_pair *p = xcore_zalloc(sizeof(*p));
	char name[RTE_RING_NAMESIZE];

	if (!p)
		return NULL;
	snprintf(name, sizeof(name), "xc%u_%u_%u", x->instance, from, to);
	p->ring = rte_ring_create_elem(name, sizeof(struct rp_xmsg), slots,
		to == RP_XCORE_CONTROL ? c->control_socket : c->shard_socket[to],
		RING_F_SP_ENQ | RING_F_SC_DEQ | RING_F_EXACT_SZ);
	if (!p->ring)
		goto fail;
	if (control) {
		p->answer_slots = c->control_answer_slots;
		p->reserve_slots = c->control_reserve_slots;
		p->normal_slots = slots - p->answer_slots - p->reserve_slots;
		p->how = xcore_zalloc(p->ring->size);
		if (!p->how)
			goto fail;
	}
	p->backlog.size = control ? c->control_backlog_slots : c->shard_backlog_slots;
	p->backlog.slots = xcore_zalloc(p->backlog.size * sizeof(struct rp_xmsg));
	p->backlog.how = xcore_zalloc(p->backlog.size);
	if (!p->backlog.slots || !p->backlog.how)
		goto fail;
	return p;
fail:
	xcore_pair_free(p);
	return NULL;
}

static struct rp_xcore_end *xcore_end_create(struct rp_xcore *x, unsigned id)
{
	struct rp_xcore_end *e = xcore_zalloc(sizeof(*e));

	if (!e)
		return NULL;
	e->x = x;
	e->id = id;
	e->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (e->fd < 0) {
		free(e);
		return NULL;
	}
	return e;
}

static int xcore_config_complete(struct rp_xcore_config *c)
{
	if (c->shard_count < 1 || c->shard_count > RP_SHARDS_MAX)
		return -EINVAL;
	if (c->control_slots == 0)
		c->control_slots = XCORE_CONTROL_SLOTS;
	if (c->control_reserve_slots == 0)
		c->control_reserve_slots = RP_MAX(c->control_slots / 8, 1u);
	if (c->control_answer_slots == 0)
		c->control_answer_slots = RP_MAX(c->control_slots / 2, 1u);
	if (c->control_backlog_slots == 0)
		c->control_backlog_slots = XCORE_CONTROL_BACKLOG;
	if (c->shard_slots == 0)
		c->shard_slots = XCORE_SHARD_SLOTS;
	if (c->shard_backlog_slots == 0)
		c->shard_backlog_slots = XCORE_SHARD_BACKLOG;
	if (c->control_slots > XCORE_SLOTS_MAX || c->shard_slots > XCORE_SLOTS_MAX ||
		c->control_backlog_slots > XCORE_SLOTS_MAX ||
		c->shard_backlog_slots > XCORE_SLOTS_MAX)
		return -EINVAL;
	if ((uint64_t)c->control_reserve_slots + c->control_answer_slots >= c->control_slots)
		return -EINVAL;
	return 0;
}

static int xcore_connect(struct rp_xcore *x, const struct rp_xcore_config *c)
{
	for (unsigned from = 0; from < RP_XCORE_ENDS_MAX; from++) {
		for (unsigned to = 0; to < RP_XCORE_ENDS_MAX; to++) {
			struct xcore_pair *p;

			if (from == to || !x->ends[from] || !x->ends[to])
				continue;
			p = xcore_pair_create(x, c, from, to);
			if (!p)
				return -ENOMEM;
			x->ends[from]->out[to] = p;
			x->ends[to]->in[from] = p;
		}
	}
	return 0;
}

struct rp_xcore *rp_xcore_create(const struct rp_xcore_config *config)
{
	/* Names of rings are per process; several instances may live in one. */
	static uint32_t instances;
	struct rp_xcore_config c = *config;
	struct rp_xcore *x;
	int error = xcore_config_complete(&c);

	if (error) {
		errno = -error;
		return NULL;
	}
	x = calloc(1, sizeof(*x));
	if (!x)
		return NULL;
	x->shard_count = c.shard_count;
	x->instance = __atomic_fetch_add(&instances, 1, __ATOMIC_RELAXED);
	for (unsigned id = 0; id < RP_XCORE_ENDS_MAX && !error; id++) {
		if (id >= c.shard_count && id != RP_XCORE_CONTROL)
			continue;
		x->ends[id] = xcore_end_create(x, id);
		if (!x->ends[id])
			error = errno == EMFILE ? -EMFILE : -ENOMEM;
	}
	if (!error)
		error = xcore_connect(x, &c);
	if (error) {
		rp_xcore_destroy(x);
		errno = -error;
		return NULL;
	}
	return x;
}

void rp_xcore_destroy(struct rp_xcore *x)
{
	if (!x)
		return;
	for (unsigned id = 0; id < RP_XCORE_ENDS_MAX; id++) {
		struct rp_xcore_end *e = x->ends[id];

		if (!e)
			continue;
		for (unsigned to = 0; to < RP_XCORE_ENDS_MAX; to++)
			xcore_pair_free(e->out[to]);
		close(e->fd);
		free(e);
	}
	free(x);
}

struct rp_xcore_end *rp_xcore_end(struct rp_xcore *x, unsigned id)
{
	RP_ASSERT(id < RP_XCORE_ENDS_MAX && x->ends[id]);
	return x->ends[id];
}

unsigned rp_xcore_end_id(const struct rp_xcore_end *e)
{
	return e->id;
}

unsigned rp_xcore_shard_count(const struct rp_xcore *x)
{
	return x->shard_count;
}

/* ---- tokens ---- */

static uint32_t xcore_consumer_tail(const struct xcore_pair *p)
{
	return __atomic_load_n(&p->ring->cons.tail, __ATOMIC_ACQUIRE);
}

/** Looks at how far the consumer is, and gives back the tokens of what it has taken out. */
static void xcore_reclaim(struct xcore_pair *p)
{
	uint32_t tail = xcore_consumer_tail(p);

	if (!p->how) {
		p->seen_tail = tail;
		return;
	}
	for (; p->seen_tail != tail; p->seen_tail++) {
		unsigned class = p->how[p->seen_tail & p->ring->mask] & RP_XCORE_CLASS_MASK;

		RP_ASSERT(p->in_ring[class] > 0);
		p->in_ring[class]--;
	}
}

/** Slots of the ring that a message of this class may take, as of the last look. */
static uint32_t xcore_slots(const struct xcore_pair *p, unsigned class)
{
	uint32_t both, left;

	if (!p->how)
		return p->ring->capacity - (p->ring->prod.head - p->seen_tail);
	both = p->in_ring[RP_XCORE_NORMAL] + p->in_ring[RP_XCORE_RESERVE];
	left = p->normal_slots + p->reserve_slots - both;
	if (class == RP_XCORE_NORMAL)
		left = RP_MIN(left, p->normal_slots - p->in_ring[RP_XCORE_NORMAL]);
	return left;
}

/** Answer slots of the ring that comes back which a message of this class may hold in addition. */
static uint32_t xcore_ask_budget(const struct rp_xcore_end *e, unsigned to, unsigned class)
{
	const struct xcore_pair *p = e->out[to];
	uint32_t most = e->in[to]->answer_slots;

	if (class == RP_XCORE_NORMAL)
		most -= most / 8;
	return p->asked < most ? most - p->asked : 0;
}

/**
 * Marks the pair as one that waits until the consumer takes something out: anything past the look
 * on which the refusal rests, or what it took out meanwhile would be missed.
 */
static void xcore_wait_for(struct xcore_pair *p)
{
	p->waits = true;
	p->waits_tail = p->seen_tail;
	__atomic_store_n(&p->starved, 1, __ATOMIC_RELAXED);
}

uint32_t rp_xcore_tokens(struct rp_xcore_end *e, unsigned to, unsigned how)
{
	struct xcore_pair *p = e->out[to];
	unsigned class = how & RP_XCORE_CLASS_MASK;
	uint32_t n = 0;

	RP_ASSERT(to < RP_XCORE_ENDS_MAX && p);
	if (class == RP_XCORE_ANSWER)
		return p->owed;
	xcore_reclaim(p);
	if (p->backlog.length == 0)
		n = xcore_slots(p, class);
	if (!p->how || class == RP_XCORE_RESERVE)
		n += p->backlog.size - p->backlog.length;
	if (n == 0)
		xcore_wait_for(p);
	if (how & RP_XCORE_ASKS)
		n = RP_MIN(n, xcore_ask_budget(e, to, class));
	return n;
}

/* ---- sending ---- */

static void xcore_enqueue(
	struct rp_xcore_end *e, unsigned to, const struct rp_xmsg *m, unsigned how)
{
	struct xcore_pair *p = e->out[to];

	if (p->how) {
		p->how[p->ring->prod.head & p->ring->mask] = (uint8_t)how;
		p->in_ring[how & RP_XCORE_CLASS_MASK]++;
	}
	RP_ASSERT(rte_ring_sp_enqueue_bulk_elem(p->ring, m, sizeof(*m), 1, NULL) == 1);
	e->sent_to |= XCORE_BIT(to);
	xcore_count(&e->stats.sent, 1);
}

/** Moves what fits from the backlog into the ring. */
static void xcore_backlog_move(struct rp_xcore_end *e, unsigned to)
{
	struct xcore_pair *p = e->out[to];
	struct xcore_backlog *b = &p->backlog;
	uint32_t room;

	xcore_reclaim(p);
	room = xcore_slots(p, RP_XCORE_RESERVE);
	for (; b->length > 0 && room > 0; room--) {
		xcore_enqueue(e, to, &b->slots[b->first], b->how[b->first]);
		b->first = (b->first + 1) % b->size;
		b->length--;
	}
	if (b->length > 0)
		xcore_wait_for(p);
	else
		e->backlog_to &= ~XCORE_BIT(to);
}

static bool xcore_backlog_push(
	struct rp_xcore_end *e, unsigned to, const struct rp_xmsg *m, unsigned how)
{
	struct xcore_pair *p = e->out[to];
	struct xcore_backlog *b = &p->backlog;
	uint32_t at;

	xcore_wait_for(p);
	if (b->length == b->size)
		return false;
	at = (b->first + b->length++) % b->size;
	b->slots[at] = *m;
	b->how[at] = (uint8_t)how;
	e->backlog_to |= XCORE_BIT(to);
	xcore_count(&e->stats.backlogged, 1);
	return true;
}

static int xcore_send_shard(struct rp_xcore_end *e, unsigned to, const struct rp_xmsg *m)
{
	struct xcore_pair *p = e->out[to];

	if (p->backlog.length == 0 && xcore_slots(p, RP_XCORE_NORMAL) > 0) {
		xcore_enqueue(e, to, m, RP_XCORE_NORMAL);
		return 0;
	}
	if (xcore_backlog_push(e, to, m, RP_XCORE_NORMAL))
		return 0;
	xcore_count(&e->stats.backlog_full, 1);
	return -ENOBUFS;
}

int rp_xcore_send(struct rp_xcore_end *e, unsigned to, const struct rp_xmsg *m, unsigned how)
{
	struct xcore_pair *p = e->out[to];
	unsigned class = how & RP_XCORE_CLASS_MASK;

	RP_ASSERT(to < RP_XCORE_ENDS_MAX && p && class <= RP_XCORE_ANSWER);
	if (p->backlog.length > 0)
		xcore_backlog_move(e, to);
	else
		xcore_reclaim(p);
	if (!p->how) {
		RP_ASSERT(how == RP_XCORE_NORMAL);
		return xcore_send_shard(e, to, m);
	}
	if (class == RP_XCORE_ANSWER) {
		RP_ASSERT(!(how & RP_XCORE_ASKS) && p->owed > 0);
		p->owed--;
		xcore_enqueue(e, to, m, how);
		return 0;
	}
	if ((how & RP_XCORE_ASKS) && xcore_ask_budget(e, to, class) == 0)
		goto refused;
	if (p->backlog.length == 0 && xcore_slots(p, class) > 0) {
		xcore_enqueue(e, to, m, how);
	} else if (class == RP_XCORE_NORMAL) {
		xcore_wait_for(p);
		goto refused;
	} else if (!xcore_backlog_push(e, to, m, how)) {
		goto refused;
	}
	if (how & RP_XCORE_ASKS)
		p->asked++;
	return 0;
refused:
	xcore_count(&e->stats.no_token, 1);
	return -EAGAIN;
}

unsigned rp_xcore_how_of(unsigned type)
{
	RP_ASSERT(type < RP_XMSG_TYPE_COUNT);
	switch ((enum rp_xmsg_type)type) {
	case RP_XMSG_ANSWER:
	case RP_XMSG_UNARY_DONE:
	case RP_XMSG_UNARY_RESULT:
	case RP_XMSG_SNAPSHOT_DONE:
	case RP_XMSG_STOPPED:
	case RP_XMSG_LETTERED:
	case RP_XMSG_POLICIES_USED:
		return RP_XCORE_ANSWER;
	case RP_XMSG_PUT:
	case RP_XMSG_PURGE:
	case RP_XMSG_DEAD_LETTER:
	case RP_XMSG_PROCESS_END:
	case RP_XMSG_SET_POLICIES:
	case RP_XMSG_GET:
	case RP_XMSG_CONSUMER_OPEN:
	case RP_XMSG_UNARY_IN:
	case RP_XMSG_UNARY_OUT:
	case RP_XMSG_SNAPSHOT:
	case RP_XMSG_IMPAIR:
		return RP_XCORE_NORMAL | RP_XCORE_ASKS;
	case RP_XMSG_ACK:
	case RP_XMSG_ACKS:
	case RP_XMSG_ACKED:
	case RP_XMSG_CANCEL:
	case RP_XMSG_FAIL:
	case RP_XMSG_REJECT:
	case RP_XMSG_TAP:
	case RP_XMSG_STOP:
		return RP_XCORE_RESERVE | RP_XCORE_ASKS;
	case RP_XMSG_SET_RECORD:
	case RP_XMSG_SET_CONSUMER:
	case RP_XMSG_PIN:
	case RP_XMSG_SET_NODE:
	case RP_XMSG_SET_PEER:
	case RP_XMSG_SET_UNARY:
	case RP_XMSG_SET_LIMITS:
	case RP_XMSG_SET_SECRETS:
	case RP_XMSG_SET_TLS:
	case RP_XMSG_DELIVERY:
	case RP_XMSG_RUN_EVENT:
	case RP_XMSG_TAPPED:
	case RP_XMSG_FRAME_OUT:
	case RP_XMSG_FRAME_IN:
	case RP_XMSG_PACKETS_IN:
	case RP_XMSG_PACKETS_OUT:
	case RP_XMSG_ICMP_IN:
	case RP_XMSG_NEIGH:
		return RP_XCORE_NORMAL;
	case RP_XMSG_BEGUN:
	case RP_XMSG_RUN_READ:
	case RP_XMSG_JOB_OVER:
	case RP_XMSG_OUTPUT_ROOM:
	case RP_XMSG_CANCEL_ASK:
	case RP_XMSG_CONSUMER_CLOSE:
	case RP_XMSG_ACCEPTED:
	case RP_XMSG_RETURNED:
	case RP_XMSG_RECALL:
	case RP_XMSG_WITHDRAW:
	case RP_XMSG_CONSUMER_ENDED:
	case RP_XMSG_CLAIMED:
	case RP_XMSG_RELEASED:
	case RP_XMSG_CONSUMER_HERE:
	case RP_XMSG_LINK_STATE:
	case RP_XMSG_LINK:
		return RP_XCORE_RESERVE;
	case RP_XMSG_TYPE_COUNT:
		break;
	}
	return RP_XCORE_NORMAL;
}

int rp_xcore_post(struct rp_xcore_end *e, unsigned to, const struct rp_xmsg *m)
{
	bool control = e->id == RP_XCORE_CONTROL || to == RP_XCORE_CONTROL;

	return rp_xcore_send(e, to, m, control ? rp_xcore_how_of(m->type) : RP_XCORE_NORMAL);
}

/* ---- receiving ---- */

static uint32_t xcore_waiting_in(const struct xcore_pair *p)
{
	return __atomic_load_n(&p->ring->prod.tail, __ATOMIC_ACQUIRE) - p->ring->cons.head;
}

unsigned rp_xcore_recv(struct rp_xcore_end *e, unsigned from, struct rp_xmsg *out, unsigned max)
{
	struct xcore_pair *p = e->in[from], *back = e->out[from];
	uint32_t n;

	RP_ASSERT(from < RP_XCORE_ENDS_MAX && p);
	/* Read once: the producer goes on meanwhile. */
	n = xcore_waiting_in(p);
	n = RP_MIN(n, max);
	if (n == 0)
		return 0;
	for (uint32_t i = 0; p->how && i < n; i++) {
		unsigned how = p->how[(p->ring->cons.head + i) & p->ring->mask];

		if ((how & RP_XCORE_CLASS_MASK) == RP_XCORE_ANSWER) {
			RP_ASSERT(back->asked > 0);
			back->asked--;
		}
		if (how & RP_XCORE_ASKS)
			back->owed++;
	}
	RP_ASSERT(rte_ring_sc_dequeue_bulk_elem(p->ring, out, sizeof(*out), n, NULL) == n);
	e->taken_from |= XCORE_BIT(from);
	xcore_count(&e->stats.received, n);
	return n;
}

unsigned rp_xcore_recv_any(struct rp_xcore_end *e, struct rp_xmsg *out, uint8_t *from, unsigned max)
{
	unsigned done = 0;

	for (unsigned i = 0; i < RP_XCORE_ENDS_MAX && done < max; i++) {
		unsigned id = e->next_from, n;

		e->next_from = (id + 1) % RP_XCORE_ENDS_MAX;
		if (!e->in[id])
			continue;
		n = rp_xcore_recv(e, id, out + done, max - done);
		if (from)
			memset(from + done, (int)id, n);
		done += n;
	}
	return done;
}

/* ---- wake-ups ---- */

static void xcore_ring(struct rp_xcore_end *e, struct rp_xcore_end *sleeper)
{
	uint64_t one = 1;

	if (__atomic_load_n(&sleeper->sleeping, __ATOMIC_SEQ_CST) == 0)
		return;
	/* Of several senders one rings. */
	if (__atomic_exchange_n(&sleeper->sleeping, 0, __ATOMIC_SEQ_CST) == 0)
		return;
	RP_ASSERT(write(sleeper->fd, &one, sizeof(one)) == sizeof(one));
	xcore_count(&e->stats.rings, 1);
}

uint32_t rp_xcore_flush(struct rp_xcore_end *e)
{
	uint32_t left = 0;

	for (uint64_t m = e->backlog_to; m != 0; m &= m - 1) {
		unsigned to = (unsigned)__builtin_ctzll(m);

		xcore_backlog_move(e, to);
		left += e->out[to]->backlog.length;
	}
	if ((e->sent_to | e->taken_from) == 0)
		return left;
	/* What was put into and taken out of the rings is visible before `sleeping` and `starved`
	 * are read: the other half of the handshake in rp_xcore_sleep_begin(). */
	rte_smp_mb();
	for (uint64_t m = e->sent_to; m != 0; m &= m - 1)
		xcore_ring(e, e->x->ends[__builtin_ctzll(m)]);
	for (uint64_t m = e->taken_from; m != 0; m &= m - 1) {
		unsigned from = (unsigned)__builtin_ctzll(m);
		struct xcore_pair *p = e->in[from];

		if (__atomic_load_n(&p->starved, __ATOMIC_RELAXED) == 0)
			continue;
		/* Cleared before `sleeping` is read: the other half of xcore_starve(). */
		__atomic_exchange_n(&p->starved, 0, __ATOMIC_SEQ_CST);
		xcore_ring(e, e->x->ends[from]);
	}
	e->sent_to = e->taken_from = 0;
	return left;
}

bool rp_xcore_pending(struct rp_xcore_end *e)
{
	bool found = false;

	for (unsigned id = 0; id < RP_XCORE_ENDS_MAX; id++) {
		struct xcore_pair *p = e->out[id];

		if (!p)
			continue;
		if (xcore_waiting_in(e->in[id]) > 0)
			found = true;
		if (p->waits && xcore_consumer_tail(p) != p->waits_tail) {
			p->waits = false;
			found = true;
		}
	}
	return found;
}

int rp_xcore_fd(const struct rp_xcore_end *e)
{
	return e->fd;
}

/**
 * Says again which pairs wait, once `sleeping` is set. A consumer that took something out before
 * the look on which a refusal rests may have found the flag after it: it cleared it and rang
 * nobody, as this end was awake, and would not ring for what it takes out next.
 */
static void xcore_starve(struct rp_xcore_end *e)
{
	for (unsigned id = 0; id < RP_XCORE_ENDS_MAX; id++)
		if (e->out[id] && e->out[id]->waits)
			__atomic_store_n(&e->out[id]->starved, 1, __ATOMIC_SEQ_CST);
}

bool rp_xcore_sleep_begin(struct rp_xcore_end *e)
{
	rp_xcore_flush(e);
	__atomic_store_n(&e->sleeping, 1, __ATOMIC_SEQ_CST);
	xcore_starve(e);
	rte_smp_mb();
	if (rp_xcore_pending(e)) {
		__atomic_store_n(&e->sleeping, 0, __ATOMIC_SEQ_CST);
		return false;
	}
	xcore_count(&e->stats.sleeps, 1);
	return true;
}

void rp_xcore_sleep_end(struct rp_xcore_end *e)
{
	uint64_t value;

	__atomic_store_n(&e->sleeping, 0, __ATOMIC_SEQ_CST);
	/* Non-blocking; nothing to read is as good. */
	if (read(e->fd, &value, sizeof(value)) < 0)
		RP_ASSERT(errno == EAGAIN || errno == EINTR);
}

bool rp_xcore_sleep(struct rp_xcore_end *e, uint64_t timeout_ns)
{
	struct pollfd pfd = {.fd = e->fd, .events = POLLIN};
	struct timespec ts = {
		.tv_sec = (time_t)(timeout_ns / RP_NS_PER_S),
		.tv_nsec = (long)(timeout_ns % RP_NS_PER_S),
	};
	int n;

	if (!rp_xcore_sleep_begin(e))
		return true;
	n = ppoll(&pfd, 1, timeout_ns == RP_NEVER ? NULL : &ts, NULL);
	rp_xcore_sleep_end(e);
	return n > 0 || rp_xcore_pending(e);
}

void rp_xcore_wake(struct rp_xcore *x, unsigned to)
{
	uint64_t one = 1;
	ssize_t n;

	RP_ASSERT(to < RP_XCORE_ENDS_MAX && x->ends[to]);
	do {
		n = write(x->ends[to]->fd, &one, sizeof(one));
	} while (n < 0 && errno == EINTR);
}

void rp_xcore_get_stats(const struct rp_xcore_end *e, struct rp_xcore_stats *out)
{
#define X(name, text) out->name = __atomic_load_n(&e->stats.name, __ATOMIC_RELAXED);
	RP_XCORE_COUNTERS(X)
#undef X
}

void rp_xcore_ring(
	const struct rp_xcore *x, unsigned from, unsigned to, uint32_t *used, uint32_t *size)
{
	const struct rp_xcore_end *e =
		from < RP_XCORE_ENDS_MAX && to < RP_XCORE_ENDS_MAX ? x->ends[from] : NULL;
	const struct xcore_pair *p = e ? e->out[to] : NULL;

	*used = p ? rte_ring_count(p->ring) : 0;
	*size = p ? rte_ring_get_capacity(p->ring) : 0;
}
