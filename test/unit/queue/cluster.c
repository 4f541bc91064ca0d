/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_eal.h>

#include "cluster.h"

struct rte_mempool *pool_queue, *pool_rx, *pool_tight;
static unsigned pool_queue_start, pool_rx_start, pool_tight_start;

struct frame {
	struct rp_list link;
	struct rp_qmsg m;
	char name[32];
	uint64_t due_ns;
	bool arrived;
	int status;
	uint32_t epoch;
	uint64_t dispatcher;
};

struct update {
	struct rp_list link;
	uint64_t due_ns;
	unsigned queue;
	bool consumer;
	bool end;      /**< deletes, if it still names `node` */
	uint64_t node; /**< who wrote it */
	uint32_t epoch;
	uint8_t uuid[RP_UUID_BYTES];
	char text[64];
};

/* A delivery in the server's buffer for a client, or a call that is due. */
struct item {
	struct rp_list link;
	uint64_t due_ns;
	unsigned client;
	bool returned;
	struct event event;
};

struct rp_span span_of(const char *text)
{
	return (struct rp_span){(const uint8_t *)text, strlen(text)};
}

void uuid_of(unsigned n, uint8_t uuid[RP_UUID_BYTES])
{
	memset(uuid, 0x5a, RP_UUID_BYTES);
	memcpy(uuid, &n, sizeof(n));
}

void *cluster_must(void *p)
{
	if (!p) {
		fprintf(stderr, "out of memory\n");
		exit(1);
	}
	return p;
}

unsigned queue_index(struct cluster *c, const void *name, size_t length)
{
	for (unsigned i = 0; i < c->queue_count; i++) {
		if (strlen(c->queues[i]) == length && memcmp(c->queues[i], name, length) == 0)
			return i;
	}
	assert_true(c->queue_count < QUEUES_MAX && length < sizeof(c->queues[0]));
	memcpy(c->queues[c->queue_count], name, length);
	return c->queue_count++;
}

uint64_t cluster_delay(struct cluster *c)
{
	return c->delay_min_ns + rp_rand_below(&c->rand, c->delay_max_ns - c->delay_min_ns + 1);
}

/* ---- payloads ---- */

/* `head_length`: of the tail, and of a meta behind it. */
static uint64_t payload_value(
	const struct rte_mbuf *m, uint16_t tail_length, uint32_t head_length, char tail[32])
{
	uint8_t bytes[4096];
	size_t length = rp_mbuf_copy_out(m, 0, bytes, sizeof(bytes)), filler;
	uint64_t value;

	assert_int_equal(length, m->pkt_len);
	assert_true(tail_length < 32 && m->data_len >= head_length);
	memcpy(tail, bytes, tail_length);
	tail[tail_length] = 0;
	memcpy(&value, bytes + head_length, sizeof(value));
	filler = value % 7 == 0 ? value % 3000 : value % 40;
	assert_int_equal(length, head_length + sizeof(value) + filler);
	for (size_t i = 0; i < filler; i++)
		assert_int_equal(bytes[head_length + sizeof(value) + i], (uint8_t)(value + i));
	return value;
}

/* ---- callbacks of an engine ---- */

unsigned node_index(struct cluster *c, uint64_t id)
{
	for (unsigned i = 0; i < c->node_count; i++) {
		if (c->nodes[i].id == id)
			return i;
	}
	fail_msg("no node %" PRIu64, id);
	return 0;
}

static int on_send(void *ctx, uint64_t to, const struct rp_qmsg *m, uint64_t now_ns)
{
	struct node *n = ctx;
	struct cluster *c = n->c;
	unsigned a = n->index, b = node_index(c, to);
	struct frame *f;

	assert_int_not_equal(a, b);
	assert_false(m->type == RP_QMSG_CANCEL && m->payload && c->apart[a][b]);
	if (!c->up[a][b])
		return -ENETUNREACH;
	if (c->full_one_in && rp_rand_below(&c->rand, c->full_one_in) == 0) {
		c->room_ns[a][b] = c->now_ns + cluster_delay(c);
		return -ENOBUFS;
	}
	f = cluster_must(calloc(1, sizeof(*f)));
	f->m = *m;
	assert_true(m->name_length > 0 && m->name_length < sizeof(f->name));
	memcpy(f->name, m->name, m->name_length);
	f->m.name = (const uint8_t *)f->name;
	f->due_ns = c->now_ns + cluster_delay(c);
	rp_list_push_back(&c->frames[a][b], &f->link);
	c->qmsg_sent[m->type]++;
	return 0;
}

static bool on_apart(void *ctx, struct rp_span name, uint64_t node)
{
	const struct node *n = ctx;

	return n->c->apart[n->index][node_index(n->c, node)];
}

static void on_answer(void *ctx, uint64_t token, const struct rp_queue_answer *answer)
{
	struct node *n = ctx;
	struct cluster *c = n->c;
	struct answer *a;
	char tail[32];

	if (token >= LETTER_TOKEN) {
		letter_answered(c, token - LETTER_TOKEN, answer->status);
		return;
	}
	if (token < 1u << 20) { /* a consumer's */
		struct client *cl = &c->clients[token - 1];

		cl->opened = answer->status == RP_Q_OK;
		cl->open_revision = answer->mod_revision;
		return;
	}
	a = &c->answers[token - (1u << 20)];
	assert_false(a->done);
	a->done = true;
	a->status = answer->status;
	a->deleted = answer->deleted;
	a->idx = answer->idx;
	a->revision = answer->mod_revision;
	a->attempt = answer->attempt;
	a->message = answer->payload != NULL;
	a->at_ns = c->now_ns;
	if (answer->payload)
		a->value = payload_value(answer->payload, answer->tail_length,
			(uint32_t)answer->tail_length + answer->meta_length, tail);
	rte_pktmbuf_free(answer->payload);
}

static int on_deliver(void *ctx, uint64_t consumer, const struct rp_queue_delivery *d)
{
	struct node *n = ctx;
	struct client *cl = &n->c->clients[consumer - 1];
	struct item *item;

	assert_true(cl->open && !cl->ended);
	if (cl->blocked)
		return -EAGAIN;
	item = cluster_must(calloc(1, sizeof(*item)));
	item->client = (unsigned)consumer - 1;
	item->due_ns = n->c->now_ns + cluster_delay(n->c) / 4;
	item->event =
		(struct event){.idx = d->idx, .revision = d->mod_revision, .attempt = d->attempt};
	item->event.value = payload_value(d->payload, d->tail_length,
		(uint32_t)d->tail_length + d->process.meta_length, item->event.tail);
	item->event.process = d->process;
	process_held(n, cl, d);
	rte_pktmbuf_free(d->payload);
	rp_list_push_back(&cl->buffer, &item->link);
	return 0;
}

static void on_recall(void *ctx, uint64_t consumer, uint64_t idx)
{
	struct node *n = ctx;
	struct client *cl = &n->c->clients[consumer - 1];
	struct rp_list *l, *next;

	rp_list_foreach_safe (l, next, &cl->buffer) {
		struct item *item = rp_list_entry(l, struct item, link);

		if (item->event.idx != idx)
			continue;
		rp_list_unlink(&item->link);
		item->returned = true;
		item->due_ns = n->c->now_ns;
		rp_list_push_back(&n->c->calls, &item->link);
		return;
	}
}

static void client_show(struct cluster *c, struct client *cl, const struct event *e)
{
	if (cl->event_count == cl->event_size) {
		cl->event_size = cl->event_size ? 2 * cl->event_size : 64;
		cl->events =
			cluster_must(realloc(cl->events, cl->event_size * sizeof(*cl->events)));
	}
	cl->events[cl->event_count] = *e;
	cl->events[cl->event_count++].at_ns = c->now_ns;
}

static void on_withdraw(
	void *ctx, uint64_t consumer, uint64_t idx, struct rp_span tail, uint64_t revision)
{
	struct node *n = ctx;
	struct client *cl = &n->c->clients[consumer - 1];
	struct event e = {.deleted = true, .idx = idx, .revision = revision};
	struct rp_list *l, *next;

	assert_true(cl->open && !cl->ended);
	rp_list_foreach_safe (l, next, &cl->buffer) {
		struct item *item = rp_list_entry(l, struct item, link);

		if (item->event.idx == idx) {
			rp_list_unlink(&item->link);
			free(item);
			return;
		}
	}
	memcpy(e.tail, tail.data, tail.length);
	client_show(n->c, cl, &e);
}

void client_drop_buffer(struct client *cl)
{
	struct rp_list *l;

	while ((l = rp_list_pop_front(&cl->buffer)))
		free(rp_list_entry(l, struct item, link));
}

static void on_ended(void *ctx, uint64_t consumer, enum rp_queue_end why)
{
	struct node *n = ctx;
	struct client *cl = &n->c->clients[consumer - 1];

	assert_true(cl->open && !cl->ended);
	cl->ended = true;
	cl->open = false;
	cl->end = why;
	client_drop_buffer(cl);
}

static void spread(struct cluster *c, const struct update *u)
{
	for (unsigned i = 0; i < c->node_count; i++) {
		struct update *copy;

		if (c->apart[node_index(c, u->node)][i])
			continue;
		copy = cluster_must(malloc(sizeof(*copy)));
		*copy = *u;
		copy->due_ns = c->now_ns + c->registry_ns;
		rp_list_push_back(&c->updates[i], &copy->link);
	}
}

static void on_consumer_here(
	void *ctx, struct rp_span name, const uint8_t uuid[RP_UUID_BYTES], bool here)
{
	struct node *n = ctx;
	struct update u = {.consumer = true, .node = n->id, .end = !here};

	u.queue = queue_index(n->c, name.data, name.length);
	memcpy(u.uuid, uuid, RP_UUID_BYTES);
	if (here)
		snprintf(u.text, sizeof(u.text), "%" PRIu64, n->id);
	for (unsigned i = n->c->client_count; here && i-- > 0;) {
		const struct client *cl = &n->c->clients[i];

		if (cl->node == n->index && memcmp(cl->uuid, uuid, RP_UUID_BYTES) == 0 &&
			strcmp(cl->queue, n->c->queues[u.queue]) == 0) {
			/* The fields that the client put come back in its record. */
			snprintf(u.text, sizeof(u.text), "%" PRIu64 "%s", n->id, cl->fields);
			break;
		}
	}
	spread(n->c, &u);
}

static void on_claimed(void *ctx, struct rp_span name, uint32_t epoch, bool pinned)
{
	struct node *n = ctx;
	struct update u = {.node = n->id, .epoch = epoch};

	u.queue = queue_index(n->c, name.data, name.length);
	snprintf(u.text, sizeof(u.text), "%" PRIu64 "%s;epoch=%u", n->id, pinned ? ";pinned" : "",
		epoch);
	n->claims++;
	spread(n->c, &u);
}

static void on_released(void *ctx, struct rp_span name, uint32_t epoch)
{
	struct node *n = ctx;
	struct update u = {.node = n->id, .epoch = epoch, .end = true};

	u.queue = queue_index(n->c, name.data, name.length);
	n->released++;
	spread(n->c, &u);
}

static const struct rp_queue_ops node_ops = {
	.send = on_send,
	.apart = on_apart,
	.answer = on_answer,
	.deliver = on_deliver,
	.recall = on_recall,
	.withdraw = on_withdraw,
	.consumer_ended = on_ended,
	.consumer_here = on_consumer_here,
	.claimed = on_claimed,
	.released = on_released,
	.dead_letter = on_dead_letter,
	.process_end = on_process_end,
	.job_here = on_job_here,
	.job_over = on_job_over,
	.cancel = on_cancel,
	.run_event = on_run_event,
	.output_room = on_output_room,
};

/* ---- the network ---- */

static bool is_payload(enum rp_qmsg_type type)
{
	return type == RP_QMSG_FORWARD || type == RP_QMSG_DELIVER;
}

/* Order holds for one queue and type; control types keep it among themselves. */
static bool same_flow(const struct frame *a, const struct frame *b)
{
	if (strcmp(a->name, b->name) != 0)
		return false;
	if (is_payload(a->m.type) || is_payload(b->m.type))
		return a->m.type == b->m.type;
	return true;
}

static bool is_behind(const struct rp_list *list, const struct frame *f)
{
	for (struct rp_list *l = f->link.prev; l != list; l = l->prev) {
		const struct frame *e = rp_list_entry(l, struct frame, link);

		if (same_flow(e, f) && e->arrived == f->arrived)
			return true;
		if (same_flow(e, f) && f->arrived)
			return true;
	}
	return false;
}

static void frame_free(struct frame *f)
{
	rp_list_unlink(&f->link);
	free(f);
}

static void frame_arrive(struct cluster *c, unsigned a, unsigned b, struct frame *f)
{
	struct rp_qmsg m = f->m;

	if (m.payload)
		m.payload = cluster_must(rte_pktmbuf_copy(f->m.payload, pool_rx, 0, UINT32_MAX));
	m.cookie = 0;
	if (m.process.kind) {
		/* Of the sender's clock: it does not travel. */
		m.process.left_us =
			rp_process_left_us(m.process.left_us, m.process.left_ns, c->now_ns);
		m.process.left_ns = 0;
		process_walks(c, &m);
	}
	f->status = rp_queue_on_msg(
		c->nodes[b].qs, c->nodes[a].id, &m, &f->epoch, &f->dispatcher, c->now_ns);
	if (!is_payload(f->m.type)) {
		rte_pktmbuf_free(f->m.payload);
		frame_free(f);
		return;
	}
	if (f->status != RP_Q_OK)
		rte_pktmbuf_free(m.payload);
	f->arrived = true;
	f->due_ns = c->now_ns + cluster_delay(c);
}

static void frame_answered(struct cluster *c, unsigned a, unsigned b, struct frame *f)
{
	struct frame copy = *f;

	copy.m.name = (const uint8_t *)copy.name;
	frame_free(f);
	if (copy.status == RP_Q_OK) {
		rte_pktmbuf_free(copy.m.payload);
		copy.m.payload = NULL;
		rp_queue_on_took(c->nodes[a].qs, c->nodes[b].id, &copy.m, c->now_ns);
	} else {
		rp_queue_on_refused(c->nodes[a].qs, c->nodes[b].id, &copy.m,
			(enum rp_qstatus)copy.status, copy.epoch, copy.dispatcher, c->now_ns);
	}
}

static void link_run(struct cluster *c, unsigned a, unsigned b)
{
	struct rp_list *list = &c->frames[a][b], *l, *next;

	if (c->room_ns[a][b] && c->room_ns[a][b] <= c->now_ns) {
		c->room_ns[a][b] = 0;
		rp_queue_on_room(c->nodes[a].qs, c->nodes[b].id, c->now_ns);
	}
	rp_list_foreach_safe (l, next, list) {
		struct frame *f = rp_list_entry(l, struct frame, link);

		if (f->due_ns > c->now_ns || is_behind(list, f))
			continue;
		if (f->arrived)
			frame_answered(c, a, b, f);
		else
			frame_arrive(c, a, b, f);
	}
}

/* Everything on its way comes back to its sender, in order. */
void link_lose(struct cluster *c, unsigned a, unsigned b)
{
	struct rp_list lost, *l;

	rp_list_init(&lost);
	rp_list_splice_back(&lost, &c->frames[a][b]);
	while ((l = rp_list_pop_front(&lost))) {
		struct frame *f = rp_list_entry(l, struct frame, link);

		if (f->arrived || rp_rand_below(&c->rand, 2))
			f->m.flags |= RP_QMSG_REPEAT;
		if (c->nodes[a].dead)
			rte_pktmbuf_free(f->m.payload);
		else
			rp_queue_on_lost(c->nodes[a].qs, c->nodes[b].id, &f->m, c->now_ns);
		free(f);
	}
	c->room_ns[a][b] = 0;
}

static void half_cut(struct cluster *c, unsigned a, unsigned b)
{
	c->up[a][b] = false;
	link_lose(c, a, b);
	if (!c->nodes[a].dead)
		rp_queue_peer_lost(c->nodes[a].qs, c->nodes[b].id, c->now_ns, c->now_ns, c->now_ns);
}

void cluster_cut(struct cluster *c, unsigned a, unsigned b)
{
	if (!c->up[a][b])
		return;
	c->up[a][b] = c->up[b][a] = false;
	half_cut(c, a, b);
	half_cut(c, b, a);
}

void cluster_join(struct cluster *c, unsigned a, unsigned b)
{
	if (c->up[a][b] || c->nodes[a].dead || c->nodes[b].dead)
		return;
	c->up[a][b] = c->up[b][a] = true;
	rp_queue_peer_back(c->nodes[a].qs, c->nodes[b].id, c->now_ns);
	rp_queue_peer_back(c->nodes[b].qs, c->nodes[a].id, c->now_ns);
}

/* ---- registry and clients ---- */

static void update_apply(struct cluster *c, struct node *n, const struct update *u)
{
	struct rp_span name = span_of(c->queues[u->queue]);
	char old[64];

	if (u->consumer) {
		/* A deletion counts only while the record still names its writer. */
		uint64_t *home;
		unsigned uuid;

		memcpy(&uuid, u->uuid, sizeof(uuid));
		home = &c->homes[n->index][u->queue][uuid % 256];
		if (u->end && *home != u->node)
			return;
		*home = u->end ? 0 : u->node;
		rp_queue_set_consumer(n->qs, name, u->uuid, span_of(u->text), c->now_ns);
		return;
	}
	if (u->end) {
		if (n->records[u->queue].node != u->node || n->records[u->queue].epoch != u->epoch)
			return;
		n->records[u->queue].node = 0;
		rp_queue_set_record(n->qs, name, (struct rp_span){0}, c->now_ns);
		return;
	}
	if (n->records[u->queue].node &&
		rp_route_dispatcher_compare(u->epoch, u->node, n->records[u->queue].epoch,
			n->records[u->queue].node) < 0)
		return;
	n->records[u->queue].node = u->node;
	n->records[u->queue].epoch = u->epoch;
	snprintf(old, sizeof(old), "%s", u->text);
	rp_queue_set_record(n->qs, name, span_of(old), c->now_ns);
}

static void registry_run(struct cluster *c, struct node *n)
{
	struct rp_list *l, *next;

	rp_list_foreach_safe (l, next, &c->updates[n->index]) {
		struct update *u = rp_list_entry(l, struct update, link);

		if (u->due_ns > c->now_ns)
			break;
		rp_list_unlink(&u->link);
		if (!n->dead)
			update_apply(c, n, u);
		free(u);
	}
}

static void client_run(struct cluster *c, struct client *cl)
{
	struct rp_list *l, *next;

	if (!cl->open || cl->mute)
		return;
	rp_list_foreach_safe (l, next, &cl->buffer) {
		struct item *item = rp_list_entry(l, struct item, link);

		if (item->due_ns > c->now_ns)
			break;
		rp_list_unlink(&item->link);
		client_show(c, cl, &item->event);
		rp_queue_consumer_accepted(
			c->nodes[cl->node].qs, cl->handle, item->event.idx, c->now_ns);
		free(item);
	}
}

static void calls_run(struct cluster *c)
{
	struct rp_list *l;

	while ((l = rp_list_pop_front(&c->calls))) {
		struct item *item = rp_list_entry(l, struct item, link);
		struct client *cl = &c->clients[item->client];

		if (!c->nodes[cl->node].dead)
			rp_queue_consumer_returned(
				c->nodes[cl->node].qs, cl->handle, item->event.idx, c->now_ns);
		free(item);
	}
}

static void cluster_step(struct cluster *c)
{
	c->now_ns += c->step_ns;
	for (unsigned a = 0; a < c->node_count; a++) {
		for (unsigned b = 0; b < c->node_count; b++) {
			if (!c->nodes[a].dead && !c->nodes[b].dead)
				link_run(c, a, b);
		}
		registry_run(c, &c->nodes[a]);
	}
	for (unsigned i = 0; i < c->client_count; i++)
		client_run(c, &c->clients[i]);
	calls_run(c);
	letters_run(c);
	asks_run(c);
	cancels_run(c);
	for (unsigned a = 0; a < c->node_count; a++) {
		for (unsigned i = 0; !c->nodes[a].dead && i < 100; i++) {
			if (!rp_queue_poll(c->nodes[a].qs, c->now_ns))
				break;
		}
	}
}

void cluster_run(struct cluster *c, uint64_t ns)
{
	uint64_t end = c->now_ns + ns;

	while (c->now_ns < end)
		cluster_step(c);
}

/* ---- making and ending ---- */

int cluster_group_setup(void **state)
{
	char *args[] = {"test", "--no-huge", "-m", "192", "--no-pci", "--no-telemetry",
		"--no-shconf", "-l", "0", "--log-level", "error"};

	if (rte_eal_init((int)RP_ARRAY_SIZE(args), args) < 0)
		return -1;
	pool_queue = rte_pktmbuf_pool_create("queue", 65535, 0, 0, 640, -1);
	pool_rx = rte_pktmbuf_pool_create("rx", 32767, 0, 0, 640, -1);
	pool_tight = rte_pktmbuf_pool_create("tight", 500, 0, 0, 640, -1);
	if (!pool_queue || !pool_rx || !pool_tight)
		return -1;
	return 0;
}

void cluster_start(struct cluster *c, unsigned node)
{
	struct node *n = &c->nodes[node];
	struct rp_queue_config config = c->config;

	n->job_count = 0;
	config.node = n->id;
	config.boot = n->boot = ++c->boots;
	if (!config.pool)
		config.pool = pool_queue;
	n->qs = rp_queue_create(&config, &node_ops, n);
	assert_non_null(n->qs);
	n->dead = false;
	rp_queue_set_wall_offset(n->qs, (int64_t)(WALL_START_S * RP_NS_PER_S));
	for (unsigned i = 0; i < c->node_count; i++) {
		if (c->nodes[i].dead)
			continue;
		if (c->nodes[i].qs)
			rp_queue_set_node(c->nodes[i].qs, n->id, RP_NODE_ONLINE, c->now_ns);
		rp_queue_set_node(n->qs, c->nodes[i].id, RP_NODE_ONLINE, c->now_ns);
	}
	for (unsigned q = 0; q < c->queue_count; q++) {
		const struct node *other = &c->nodes[node ? 0 : 1];
		char text[64];

		n->records[q].node = 0;
		if (!other->records[q].node)
			continue;
		n->records[q] = other->records[q];
		snprintf(text, sizeof(text), "%" PRIu64 ";epoch=%u", other->records[q].node,
			other->records[q].epoch);
		rp_queue_set_record(n->qs, span_of(c->queues[q]), span_of(text), c->now_ns);
	}
	for (unsigned i = 0; i < c->client_count; i++) {
		const struct client *cl = &c->clients[i];
		char text[64];

		if (!cl->open)
			continue;
		snprintf(text, sizeof(text), "%" PRIu64 "%s", c->nodes[cl->node].id, cl->fields);
		rp_queue_set_consumer(
			n->qs, span_of(cl->queue), cl->uuid, span_of(text), c->now_ns);
	}
}

struct cluster *cluster_new(unsigned nodes, uint64_t seed, const struct rp_queue_config *config)
{
	struct cluster *c = cluster_must(calloc(1, sizeof(*c)));

	/* Of this cluster: one that failed before has not given its own back. */
	pool_queue_start = rte_mempool_avail_count(pool_queue);
	pool_rx_start = rte_mempool_avail_count(pool_rx);
	pool_tight_start = rte_mempool_avail_count(pool_tight);
	if (config)
		c->config = *config;
	if (!c->config.queues_max)
		c->config.queues_max = 64;
	if (!c->config.messages_max)
		c->config.messages_max = 16384;
	c->config.consumers_max = 256;
	if (!c->config.holds_max)
		c->config.holds_max = 16384;
	c->config.requests_max = 8192;
	c->config.tails_max = 4096;
	c->node_count = nodes;
	c->rand.state = seed;
	c->now_ns = 1000 * SEC;
	c->step_ns = MS / 10;
	c->delay_min_ns = c->delay_max_ns = MS / 2;
	c->registry_ns = 2 * MS;
	rp_list_init(&c->calls);
	rp_list_init(&c->letters);
	rp_list_init(&c->asks);
	rp_list_init(&c->cancels);
	for (unsigned a = 0; a < nodes; a++) {
		c->nodes[a].id = 101 + a;
		c->nodes[a].index = a;
		c->nodes[a].c = c;
		c->nodes[a].dead = true;
		rp_list_init(&c->updates[a]);
		for (unsigned b = 0; b < nodes; b++)
			rp_list_init(&c->frames[a][b]);
	}
	for (unsigned a = 0; a < nodes; a++)
		cluster_start(c, a);
	for (unsigned a = 0; a < nodes; a++) {
		for (unsigned b = 0; b < a; b++)
			cluster_join(c, a, b);
	}
	return c;
}

void cluster_audit(struct cluster *c)
{
	for (unsigned i = 0; i < c->node_count; i++) {
		const char *fault = c->nodes[i].dead ? NULL : rp_queue_audit(c->nodes[i].qs);

		if (fault)
			fail_msg("node %u: does not hold: %s", i, fault);
	}
}

void cluster_free(struct cluster *c)
{
	cluster_audit(c);
	for (unsigned a = 0; a < c->node_count; a++) {
		struct rp_list *l;

		c->nodes[a].dead = true;
		for (unsigned b = 0; b < c->node_count; b++)
			link_lose(c, a, b);
		while ((l = rp_list_pop_front(&c->updates[a])))
			free(rp_list_entry(l, struct update, link));
		rp_queue_destroy(c->nodes[a].qs);
	}
	for (unsigned i = 0; i < c->client_count; i++) {
		client_drop_buffer(&c->clients[i]);
		free(c->clients[i].events);
	}
	calls_run(c);
	letters_run(c);
	asks_free(c);
	cancels_run(c);
	free(c);
	assert_int_equal(rte_mempool_avail_count(pool_queue), pool_queue_start);
	assert_int_equal(rte_mempool_avail_count(pool_rx), pool_rx_start);
	assert_int_equal(rte_mempool_avail_count(pool_tight), pool_tight_start);
}

void cluster_kill(struct cluster *c, unsigned node)
{
	struct node *n = &c->nodes[node];

	n->dead = true;
	for (unsigned b = 0; b < c->node_count; b++) {
		if (b == node)
			continue;
		c->up[node][b] = c->up[b][node] = false;
		link_lose(c, node, b);
		half_cut(c, b, node);
	}
	for (unsigned i = 0; i < c->client_count; i++) {
		if (c->clients[i].node == node) {
			c->clients[i].open = false;
			client_drop_buffer(&c->clients[i]);
		}
	}
	rp_queue_destroy(n->qs);
	n->qs = NULL;
}

void cluster_state(struct cluster *c, unsigned node, enum rp_node_state state)
{
	for (unsigned i = 0; i < c->node_count; i++) {
		if (!c->nodes[i].dead)
			rp_queue_set_node(c->nodes[i].qs, c->nodes[node].id, state, c->now_ns);
	}
}
