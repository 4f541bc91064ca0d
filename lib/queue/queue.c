/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "trace_priv.h"

/* An idle queue costs at most 512 bytes, its name (of up to 32 bytes) included. */
_Static_assert(sizeof(struct queue) <= 512, "an idle queue is small");

const char *rp_queue_counter_name(enum rp_queue_counter counter)
{
	static const char *const names[] = {
#define X(name, text) #name,
#include <queue/queue_counters.def>
#undef X
	};

	return (unsigned)counter < RP_QUEUE_COUNTER_COUNT ? names[counter] : "?";
}

struct rp_queue_counters queue_counters(const struct queue *q)
{
	return (struct rp_queue_counters){
#define X(name, text) .name = q->counters.name,
#define Y(name, text) .name = q->more ? q->more->counters.name : 0,
#include <queue/queue_counters.def>
#undef X
	};
}

const char *rp_queue_counter_text(enum rp_queue_counter counter)
{
	static const char *const texts[] = {
#define X(name, text) text,
#include <queue/queue_counters.def>
#undef X
	};

	return (unsigned)counter < RP_QUEUE_COUNTER_COUNT ? texts[counter] : "?";
}

#define DEFAULT(field, value) config->field = config->field ? config->field : (value)

static int config_defaults(struct rp_queue_config *config)
{
	if (config->pool)
		DEFAULT(reserve, config->pool->size / 16);
	DEFAULT(message_bytes_max, 1572864);
	DEFAULT(queue_depth_max, 65536);
	DEFAULT(queue_bytes_max, 256ull << 20);
	DEFAULT(queues_max, 1u << 20);
	DEFAULT(messages_max, 1u << 20);
	DEFAULT(consumers_max, 1u << 16);
	DEFAULT(holds_max, 1u << 18);
	DEFAULT(requests_max, 1u << 14);
	DEFAULT(producers_max, 1u << 16);
	DEFAULT(tails_max, 1u << 20);
	DEFAULT(prefetch_default, 256);
	DEFAULT(forward_window, 512);
	DEFAULT(resume_ns, RP_NS_PER_S);
	DEFAULT(idle_ns, 600 * RP_NS_PER_S);
	DEFAULT(accept_ns, 5 * RP_NS_PER_S);
	DEFAULT(dead_after_ns, 3 * RP_NS_PER_S);
	DEFAULT(retry_ns, RP_NS_PER_MS);
	DEFAULT(stay_ns, RP_NS_PER_MS);
	DEFAULT(pin_ns, 30 * RP_NS_PER_S);
	DEFAULT(output_credit, 256 << 10);
	DEFAULT(guard_ns, 3 * RP_NS_PER_S);
	DEFAULT(age_ns, RP_NS_PER_S);
	if (!config->node || !config->pool || config->forward_window > DEDUPE_WINDOW / 2)
		return -EINVAL;
	return 0;
}

/* A hash table of pointers, a power of two at least as large as what it holds. */
static void *table_new(uint32_t items, uint32_t *mask)
{
	uint32_t size = 16;

	while (size < items && size < 1u << 31)
		size *= 2;
	*mask = size - 1;
	return calloc(size, sizeof(void *));
}

static int tables_init(struct rp_queues *qs)
{
	const struct rp_queue_config *c = &qs->config;
	int error = 0;

	error |= slab_init(&qs->queues, sizeof(struct queue), c->queues_max);
	error |= slab_init(&qs->messages, sizeof(struct message), c->messages_max);
	error |= slab_init(&qs->consumers, sizeof(struct consumer), c->consumers_max);
	error |= slab_init(&qs->hosts, sizeof(struct host), c->consumers_max);
	error |= slab_init(&qs->holds, sizeof(struct hold), c->holds_max);
	error |= slab_init(&qs->requests_slab, sizeof(struct request), c->requests_max);
	error |= slab_init(&qs->producers_slab, sizeof(struct producer), c->producers_max);
	error |= slab_init(&qs->rejections, sizeof(struct rejection), c->messages_max);
	error |= slab_init(&qs->notices, sizeof(struct notice), c->requests_max);
	error |= slab_init(&qs->bindings, sizeof(struct binding), c->messages_max);
	error |= slab_init(&qs->moves_slab, sizeof(struct move), c->queues_max);
	error |= slab_init(&qs->mores, sizeof(struct queue_more), c->queues_max);
	error |= slab_init(&qs->seen_slab, sizeof(struct seen_tail), c->tails_max);
	error |= blobs_init(&qs->seen_blobs, c->tails_max);
	error |= slab_init(&qs->jobs, sizeof(struct job), c->messages_max);
	error |= slab_init(&qs->sessions, sizeof(struct session), c->messages_max);
	error |= slab_init(&qs->lanes, sizeof(struct lanes), c->queues_max);
	error |= blobs_init(&qs->session_blobs, 2 * c->messages_max);
	error |= blobs_init(&qs->names, c->queues_max);
	error |= blobs_init(&qs->matches, 2 * c->consumers_max); /* and capabilities */
	error |= blobs_init(&qs->tails, c->holds_max);
	qs->queue_table = table_new(c->queues_max, &qs->queue_mask);
	qs->idx_table = table_new(c->messages_max, &qs->idx_mask);
	qs->uuid_table = table_new(c->consumers_max, &qs->uuid_mask);
	qs->hold_table = table_new(c->holds_max, &qs->hold_mask);
	qs->handle_table = table_new(c->consumers_max, &qs->handle_mask);
	qs->seen_table = table_new(c->tails_max / 4, &qs->seen_mask);
	qs->job_table = table_new(c->messages_max / 4, &qs->job_mask);
	qs->session_table = table_new(c->messages_max / 4, &qs->session_mask);
	if (error || !qs->job_table || !qs->session_table || !qs->queue_table || !qs->idx_table ||
		!qs->uuid_table || !qs->hold_table || !qs->handle_table || !qs->seen_table)
		return -ENOMEM;
	return 0;
}

struct rp_queues *rp_queue_create(
	const struct rp_queue_config *config, const struct rp_queue_ops *ops, void *ctx)
{
	struct rp_queue_config full = *config;
	struct rp_queues *qs;

	if (config_defaults(&full) < 0) {
		errno = EINVAL;
		return NULL;
	}
	qs = calloc(1, sizeof(*qs));
	if (!qs)
		return NULL;
	qs->config = full;
	queue_set_idle(qs, full.idle_ns);
	qs->ops = *ops;
	qs->ctx = ctx;
	qs->parted = true;
	qs->peer_deadline_ns = RP_NEVER;
	rp_wheel_init(&qs->wheel, 0);
	rp_wheel_init(&qs->tail_wheel, 0);
	rp_wheel_init(&qs->session_wheel, 0);
	rp_wheel_init(&qs->look_wheel, 0);
	admit_init(qs);
	struct rp_list *lists[] = {&qs->work, &qs->later, &qs->idle, &qs->unclaimed, &qs->offers,
		&qs->foreign, &qs->requests, &qs->producers, &qs->retry, &qs->stalled,
		&qs->suspended, &qs->doubted, &qs->resuming, &qs->again, &qs->moves, &qs->pins,
		&qs->ended, &qs->rooms};
	for (unsigned i = 0; i < RP_ARRAY_SIZE(lists); i++)
		rp_list_init(lists[i]);
	qs->traces = traces_new();
	qs->times = times_new();
	if (!qs->traces || !qs->times || tables_init(qs) < 0) {
		rp_queue_destroy(qs);
		errno = ENOMEM;
		return NULL;
	}
	peer_get(qs, full.node)->state = RP_NODE_SPARE;
	return qs;
}

static void payloads_free(struct rp_list *list)
{
	struct rp_list *n;

	rp_list_foreach (n, list) {
		struct message *m = rp_list_entry(n, struct message, link);

		rte_pktmbuf_free(m->payload);
		m->payload = NULL;
		if (m->job)
			rte_pktmbuf_free(m->job->last);
	}
}

static void requests_free(struct rp_queues *qs)
{
	struct rp_list *n;

	rp_list_foreach (n, &qs->requests)
		rte_pktmbuf_free(rp_list_entry(n, struct request, timer)->with);
}

void rp_queue_destroy(struct rp_queues *qs)
{
	if (!qs)
		return;
	for (uint32_t i = 0; qs->queue_table && i <= qs->queue_mask; i++) {
		for (struct queue *q = qs->queue_table[i]; q; q = q->hash_next) {
			struct rp_list *n;

			for (unsigned k = 0; k < LANE_COUNT; k++) {
				struct rp_list *lane = lane_at(q, k);

				if (lane)
					payloads_free(lane);
			}
			payloads_free(&q->unsent);
			if (q->more) {
				payloads_free(&q->more->delayed);
				payloads_free(&q->more->ending);
			}
			rp_list_foreach (n, &q->consumers)
				payloads_free(&rp_list_entry(n, struct consumer, link)->bound);
		}
	}
	if (qs->requests.next)
		requests_free(qs);
	slab_fini(&qs->queues);
	slab_fini(&qs->messages);
	slab_fini(&qs->consumers);
	slab_fini(&qs->hosts);
	slab_fini(&qs->holds);
	slab_fini(&qs->requests_slab);
	slab_fini(&qs->producers_slab);
	slab_fini(&qs->rejections);
	slab_fini(&qs->bindings);
	slab_fini(&qs->moves_slab);
	slab_fini(&qs->notices);
	slab_fini(&qs->mores);
	slab_fini(&qs->seen_slab);
	slab_fini(&qs->jobs);
	slab_fini(&qs->sessions);
	slab_fini(&qs->lanes);
	blobs_fini(&qs->session_blobs);
	blobs_fini(&qs->seen_blobs);
	blobs_fini(&qs->names);
	blobs_fini(&qs->matches);
	blobs_fini(&qs->tails);
	free(qs->queue_table);
	free(qs->idx_table);
	free(qs->uuid_table);
	free(qs->hold_table);
	free(qs->handle_table);
	free(qs->seen_table);
	free(qs->traces);
	free(qs->job_table);
	free(qs->session_table);
	free(qs->times);
	free(qs);
}

void rp_queue_set_wall_offset(struct rp_queues *qs, int64_t wall_minus_now_ns)
{
	qs->wall_offset_ns = wall_minus_now_ns;
}

void rp_queue_set_limits(struct rp_queues *qs, const struct rp_queue_limits *limits)
{
	qs->config.message_bytes_max = limits->message_bytes_max;
	qs->config.queue_depth_max = limits->queue_depth_max;
	qs->config.queue_bytes_max = limits->queue_bytes_max;
	qs->config.resume_ns = limits->resume_ns;
	queue_set_idle(qs, limits->idle_ns);
}

/* ---- insight ---- */

static void info_consumers(const struct rp_queues *qs, const struct queue *q,
	struct rp_queue_info *info, uint64_t now_ns)
{
	struct rp_list *n;

	rp_list_foreach (n, &q->consumers) {
		const struct consumer *c = rp_list_entry(n, struct consumer, link);

		if (c->host)
			info->consumers_local++;
		else if ((c->node || c->record_node) && !consumer_is_apart(qs, c))
			info->consumers_remote++;
		if (!rp_list_empty(&c->bound)) {
			const struct message *m =
				rp_list_entry(c->bound.next, struct message, link);

			info->in_flight_oldest_ns =
				RP_MAX(info->in_flight_oldest_ns, age_ns(m->bound_ns, now_ns));
		}
	}
}

static void info_fill(const struct rp_queues *qs, const struct queue *q, struct rp_queue_info *info,
	uint64_t now_ns)
{
	const struct message *oldest;

	*info = (struct rp_queue_info){
		.name = queue_name(q),
		.dispatcher = q->dispatcher,
		.epoch = q->epoch,
		.dispatching = q->own,
		.depth = q->depth,
		.delayed = q->more ? q->more->delayed_count : 0,
		.ending = q->more ? q->more->ending_count : 0,
		.in_flight = q->in_flight,
		.forwards = q->unsent_count + q->sent_count,
		.bytes = q->bytes,
		.counters = queue_counters(q),
	};
	info->wait_max_ns = q->wait_max_ns;
	if (q->counters.accepts > 0) {
		info->wait_mean_ns = q->wait_sum_ns / q->counters.accepts;
		info->accept_mean_ns = q->accept_sum_ns / q->counters.accepts;
	}
	info->waiting = q->depth - q->in_flight - info->delayed - info->ending;
	oldest = lanes_oldest(q);
	if (oldest)
		info->waiting_oldest_ns = age_ns(oldest->since_ns, now_ns);
	info_consumers(qs, q, info, now_ns);
}

bool rp_queue_info(const struct rp_queues *qs, struct rp_span name, struct rp_queue_info *info,
	uint64_t now_ns)
{
	const struct queue *q = name.length ? queue_find(qs, name) : NULL;

	if (q)
		info_fill(qs, q, info, now_ns);
	return q != NULL;
}

uint32_t rp_queue_slots(const struct rp_queues *qs)
{
	return qs->queues.fresh;
}

bool rp_queue_at(
	const struct rp_queues *qs, uint32_t slot, struct rp_queue_info *info, uint64_t now_ns)
{
	/* The slab's order; an item that is free has no name in the table. */
	const struct queue *q =
		(const struct queue *)(qs->queues.base + (size_t)slot * qs->queues.item_size);
	const struct queue *at;

	if (slot >= qs->queues.fresh)
		return false;
	at = qs->queue_table[q->hash & qs->queue_mask];
	while (at && at != q)
		at = at->hash_next;
	if (at)
		info_fill(qs, q, info, now_ns);
	return at != NULL;
}

bool rp_queue_next(
	const struct rp_queues *qs, uint32_t *cursor, struct rp_queue_info *info, uint64_t now_ns)
{
	while (*cursor < qs->queues.fresh) {
		if (rp_queue_at(qs, (*cursor)++, info, now_ns))
			return true;
	}
	return false;
}

void rp_queue_get_totals(const struct rp_queues *qs, struct rp_queue_totals *totals)
{
	*totals = (struct rp_queue_totals){
		.queues = qs->queues.used,
		.messages = qs->messages.used,
		.consumers = qs->consumers.used,
		.holds = qs->holds.used,
		.requests = qs->requests_slab.used,
		.producers = qs->producers_slab.used,
		.hosts = qs->hosts.used,
		.held = (uint32_t)(qs->counters.indexed - counters_gone(&qs->counters)) +
			qs->handing,
		.handing = qs->handing,
		.dispatched = qs->own_count,
		.bytes = qs->bytes,
		.counters = qs->counters,
		.wait = qs->wait,
		.accept = qs->accept,
	};
}
