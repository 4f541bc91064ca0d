/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake_node.h"

static bool name_is(const char *name, struct rp_span s)
{
	return strlen(name) == s.length && memcmp(name, s.data, s.length) == 0;
}

static void name_copy(char *to, struct rp_span s)
{
	if (s.length > 0)
		memcpy(to, s.data, s.length);
	to[s.length] = 0;
}

/* ---- writes ---- */

static void lease_ask(
	void *ctx, uint64_t node, int64_t lease, bool renew, rp_etcd_lease_fn done, void *done_ctx)
{
	struct fake_node *n = ctx;

	n->asked++;
	n->asked_renew += renew;
	n->asked_node = node;
	n->asked_lease = lease;
	if (!n->hold_question) {
		done(done_ctx, &n->told);
		return;
	}
	n->question_done = done;
	n->question_ctx = done_ctx;
}

void fake_node_tell(struct fake_node *n)
{
	n->question_done(n->question_ctx, &n->told);
}

static void propose(void *ctx, const struct rp_kv_txn *txn, rp_etcd_done_fn done, void *done_ctx)
{
	struct fake_node *n = ctx;
	struct rp_kv_writer w = {.wall_us = ++n->wall_us, .now_ns = n->now_ns};
	struct rp_kv_result r;

	if (n->hold_writes) {
		n->held_txn = txn;
		n->held_done = done;
		n->held_ctx = done_ctx;
		return;
	}
	rp_kv_apply(n->kv, txn, &w, &r);
	done(done_ctx, 0, NULL, &r);
	rp_kv_result_clear(&r);
}

void fake_node_write_held(struct fake_node *n)
{
	n->hold_writes = false;
	propose(n, n->held_txn, n->held_done, n->held_ctx);
}

static void record_write(void *ctx, const struct rp_route_key *key, struct rp_span value,
	int64_t lease, bool prev_kv, const struct rp_etcd_caller *caller, rp_etcd_done_fn done,
	void *done_ctx)
{
	struct fake_node *n = ctx;
	uint8_t canonical[RP_REGISTRY_KEY_BYTES_MAX];
	int length = rp_route_key_canonical(key, canonical, sizeof(canonical));
	struct rp_span stored = {.data = canonical, .length = (size_t)length};
	struct rp_kv_op op = {.type = RP_KV_OP_PUT,
		.put = {.key = stored, .value = value, .lease = lease, .prev_kv = prev_kv}};
	struct rp_kv_txn t = {.success = &op, .success_count = 1};

	n->records++;
	if (!value.data)
		op = (struct rp_kv_op){
			.type = RP_KV_OP_DELETE, .del = {.key = stored, .prev_kv = prev_kv}};
	propose(n, &t, done, done_ctx);
}

static int check(void *ctx, enum rp_etcd_access access, struct rp_span key, struct rp_span end,
	const struct rp_etcd_caller *caller, const char **message)
{
	struct fake_node *n = ctx;

	if (!n->denied || caller->loopback || key.length < strlen(n->denied) ||
		memcmp(key.data, n->denied, strlen(n->denied)) != 0)
		return 0;
	*message = "policy: local_only_prefix";
	return 7;
}

/* ---- queues ---- */

static struct fake_message *message_find(struct fake_node *n, struct rp_span name, uint64_t idx)
{
	struct rp_list *l;

	rp_list_foreach (l, &n->messages) {
		struct fake_message *m = rp_list_entry(l, struct fake_message, link);

		if (m->idx == idx && name_is(m->name, name))
			return m;
	}
	return NULL;
}

static struct fake_consumer *consumer_find(
	struct fake_node *n, const char *name, const uint8_t *uuid)
{
	struct rp_list *l;

	rp_list_foreach (l, &n->consumers) {
		struct fake_consumer *c = rp_list_entry(l, struct fake_consumer, link);

		if (strcmp(c->name, name) == 0 && (!uuid || memcmp(c->uuid, uuid, 16) == 0))
			return c;
	}
	return NULL;
}

static struct fake_consumer *consumer_choose(struct fake_node *n, const char *name)
{
	struct fake_consumer *best = NULL;
	struct rp_list *l;

	rp_list_foreach (l, &n->consumers) {
		struct fake_consumer *c = rp_list_entry(l, struct fake_consumer, link);

		if (strcmp(c->name, name) == 0 && (!best || c->held < best->held))
			best = c;
	}
	return best;
}

static void message_send(struct fake_node *n, struct fake_message *m, struct fake_consumer *c)
{
	struct rp_span value[2] = {
		{.data = m->value, .length = m->length / 2},
		{.data = m->value + m->length / 2, .length = m->length - m->length / 2},
	};
	struct rp_etcd_delivery d = {
		.idx = m->idx,
		.tail = {.data = m->tail, .length = m->tail_length},
		.value = value,
		.value_count = 2,
		.mod_revision = m->mod_revision,
		.attempt = m->attempt,
	};

	m->sent = rp_etcd_consumer_deliver(n->etcd, c->handle, &d) == 0;
}

void fake_node_dispatch(struct fake_node *n)
{
	struct rp_list *l;

	rp_list_foreach (l, &n->messages) {
		struct fake_message *m = rp_list_entry(l, struct fake_message, link);
		struct fake_consumer *c;

		if (!m->bound) {
			c = consumer_choose(n, m->name);
			if (!c)
				continue;
			m->bound = true;
			m->attempt++;
			m->mod_revision = ++n->clock_us;
			memcpy(m->uuid, c->uuid, sizeof(m->uuid));
			c->held++;
		}
		c = consumer_find(n, m->name, m->uuid);
		if (!m->sent && c)
			message_send(n, m, c);
	}
}

static void message_remove(struct fake_node *n, struct fake_message *m)
{
	struct fake_consumer *c = m->bound ? consumer_find(n, m->name, m->uuid) : NULL;

	if (c)
		c->held--;
	rp_list_unlink(&m->link);
	free(m->value);
	free(m);
}

static enum rp_qstatus queue_put(struct fake_node *n, const struct rp_etcd_queue_op *op)
{
	struct fake_message *m;
	uint32_t depth = 0;
	struct rp_list *l;

	if (op->value.length > FAKE_MESSAGE_BYTES_MAX)
		return RP_Q_TOO_LARGE;
	rp_list_foreach (l, &n->messages)
		depth += name_is(rp_list_entry(l, struct fake_message, link)->name, op->name);
	if (depth >= FAKE_DEPTH_MAX)
		return RP_Q_QUEUE_DEPTH;
	m = calloc(1, sizeof(*m));
	m->idx = ++n->idx_last;
	name_copy(m->name, op->name);
	m->tail_length = op->tail.length;
	memcpy(m->tail, op->tail.data, op->tail.length);
	m->value = malloc(op->value.length + 1);
	m->length = op->value.length;
	if (m->length > 0)
		memcpy(m->value, op->value.data, m->length);
	rp_list_push_back(&n->messages, &m->link);
	return RP_Q_OK;
}

static enum rp_qstatus queue_take(
	struct fake_node *n, const struct rp_etcd_queue_op *op, struct rp_etcd_queue_answer *a)
{
	struct fake_message *m = message_find(n, op->name, op->idx);

	if (!m)
		return op->type == RP_ETCD_QUEUE_ACK ? RP_Q_OK : RP_Q_NOT_FOUND;
	if (!(op->flags & RP_ETCD_QUEUE_NO_HOLDER) &&
		(!m->bound || memcmp(m->uuid, op->uuid, sizeof(m->uuid)) != 0))
		return RP_Q_NOT_HOLDER;
	a->has_message = op->flags & RP_ETCD_QUEUE_WANT_MESSAGE;
	a->value = (struct rp_span){.data = m->value, .length = m->length};
	a->mod_revision = (uint64_t)m->mod_revision;
	a->attempt = m->attempt;
	if (op->type == RP_ETCD_QUEUE_REJECT) {
		struct fake_consumer *c = consumer_find(n, m->name, m->uuid);

		if (c)
			c->held--;
		m->bound = m->sent = false;
	}
	a->deleted = op->type == RP_ETCD_QUEUE_ACK;
	return RP_Q_OK;
}

static uint32_t queue_cancel(struct fake_node *n, const struct rp_etcd_queue_op *op)
{
	struct rp_list *l, *t;
	uint32_t count = 0;

	rp_list_foreach_safe (l, t, &n->messages) {
		struct fake_message *m = rp_list_entry(l, struct fake_message, link);
		struct fake_consumer *c;

		if (!name_is(m->name, op->name) || m->tail_length != op->tail.length ||
			memcmp(m->tail, op->tail.data, m->tail_length) != 0)
			continue;
		c = m->sent ? consumer_find(n, m->name, m->uuid) : NULL;
		if (c)
			rp_etcd_consumer_withdraw(
				n->etcd, c->handle, m->idx, op->tail, ++n->clock_us);
		message_remove(n, m);
		count++;
	}
	return count;
}

static void queue_run(
	struct fake_node *n, const struct rp_etcd_queue_op *op, struct rp_etcd_queue_answer *a)
{
	*a = (struct rp_etcd_queue_answer){.status = n->refuse, .message = n->refuse_message};
	if (n->refuse != RP_Q_OK)
		return;
	switch (op->type) {
	case RP_ETCD_QUEUE_PUT:
		a->status = queue_put(n, op);
		break;
	case RP_ETCD_QUEUE_CANCEL:
		a->deleted = queue_cancel(n, op);
		break;
	case RP_ETCD_QUEUE_ACK:
	case RP_ETCD_QUEUE_GET:
	case RP_ETCD_QUEUE_REJECT:
		a->status = queue_take(n, op, a);
		break;
	}
}

/* After the answer was given: an acknowledged message goes. */
static void queue_finish(struct fake_node *n, const struct rp_etcd_queue_op *op, uint32_t deleted)
{
	struct fake_message *m = message_find(n, op->name, op->idx);

	if (op->type == RP_ETCD_QUEUE_ACK && deleted && m)
		message_remove(n, m);
}

static int queue_op(void *ctx, const struct rp_etcd_queue_op *op, uint64_t token)
{
	struct fake_node *n = ctx;
	struct rp_etcd_queue_op kept = *op;
	struct rp_etcd_queue_answer a;
	char name[256], tail[256];

	if (n->no_tokens)
		return -EAGAIN;
	n->ops++;
	n->last_op = *op;
	if (n->hold) {
		n->held[n->held_count++ % FAKE_LOG] = token;
		return 0;
	}
	queue_run(n, op, &a);
	/* The answer ends the call, and with it the operation's bytes. */
	name_copy(name, op->name);
	name_copy(tail, op->tail);
	kept.name.data = (const uint8_t *)name;
	kept.tail.data = (const uint8_t *)tail;
	rp_etcd_queue_answer(n->etcd, token, &a);
	queue_finish(n, &kept, a.deleted);
	fake_node_dispatch(n);
	return 0;
}

static int queue_batch(
	void *ctx, const struct rp_etcd_queue_op *ops, uint32_t count, uint64_t token)
{
	struct fake_node *n = ctx;
	struct rp_etcd_queue_answer answers[128];

	n->batches++;
	if (n->no_tokens)
		return -EAGAIN;
	for (uint32_t i = 0; i < count; i++) {
		n->ops++;
		queue_run(n, &ops[i], &answers[i]);
		if (answers[i].status != RP_Q_OK) {
			rp_etcd_queue_batch_answer(
				n->etcd, token, answers[i].status, answers[i].message, NULL, 0);
			return 0;
		}
	}
	rp_etcd_queue_batch_answer(n->etcd, token, RP_Q_OK, NULL, answers, count);
	fake_node_dispatch(n);
	return 0;
}

static int consumer_open(void *ctx, const struct rp_etcd_consumer_open *open, uint64_t handle,
	int64_t *revision, const char **reason)
{
	struct fake_node *n = ctx;
	struct fake_consumer *c;
	struct rp_list *l;

	if (name_is("closed", open->name)) {
		*reason = "queue: closed for the test";
		return -EPERM;
	}
	c = calloc(1, sizeof(*c));
	c->handle = handle;
	name_copy(c->name, open->name);
	memcpy(c->uuid, open->uuid, sizeof(c->uuid));
	rp_list_push_back(&n->consumers, &c->link);
	*revision = open->start_revision > 0 ? open->start_revision - 1 : ++n->clock_us;
	rp_list_foreach (l, &n->messages) {
		struct fake_message *m = rp_list_entry(l, struct fake_message, link);

		if (!m->bound || strcmp(m->name, c->name) != 0 || memcmp(m->uuid, c->uuid, 16) != 0)
			continue;
		if (open->start_revision == 0) {
			m->bound = m->sent = false; /* a new life */
		} else if (m->mod_revision >= open->start_revision) {
			m->sent = false;
			c->held++;
		}
	}
	return 0;
}

static void consumer_close(void *ctx, uint64_t handle, enum rp_etcd_consumer_end why)
{
	struct fake_node *n = ctx;
	struct rp_list *l, *t;

	n->closes++;
	n->last_close = why;
	rp_list_foreach_safe (l, t, &n->consumers) {
		struct fake_consumer *c = rp_list_entry(l, struct fake_consumer, link);

		if (c->handle == handle) {
			rp_list_unlink(&c->link);
			free(c);
		}
	}
}

static void consumer_accepted(void *ctx, uint64_t handle, uint64_t idx, int64_t mod_revision)
{
	struct fake_node *n = ctx;

	n->accepted++;
	n->last_accepted_idx = idx;
}

static void consumer_room(void *ctx, uint64_t handle)
{
	struct fake_node *n = ctx;

	n->rooms++;
	fake_node_dispatch(n);
}

/* ---- members ---- */

static uint32_t members(void *ctx, const struct rp_etcd_member **out)
{
	struct fake_node *n = ctx;

	*out = n->members;
	return n->member_count;
}

static int member_add(void *ctx, const char *const *urls, uint32_t count, bool is_learner,
	const struct rp_etcd_caller *caller, struct rp_etcd_member *member, const char **message)
{
	struct fake_node *n = ctx;
	uint32_t i = n->member_count;

	if (i == RP_ARRAY_SIZE(n->members)) {
		*message = "etcdserver: too many members";
		return 8;
	}
	snprintf(n->member_url[i], sizeof(n->member_url[i]), "%s", urls[0]);
	n->member_urls[i][0] = n->member_url[i];
	n->members[i] = (struct rp_etcd_member){.id = 100 - i,
		.name = "",
		.peer_urls = n->member_urls[i],
		.peer_url_count = 1,
		.is_learner = is_learner};
	n->member_count++;
	*member = n->members[i];
	return 0;
}

static int member_remove(
	void *ctx, uint64_t id, const struct rp_etcd_caller *caller, const char **message)
{
	struct fake_node *n = ctx;

	for (uint32_t i = 0; i < n->member_count; i++)
		if (n->members[i].id == id) {
			n->members[i] = n->members[--n->member_count];
			return 0;
		}
	*message = "etcdserver: member not found";
	return 5;
}

static int member_update(void *ctx, uint64_t id, const char *const *urls, uint32_t count,
	const struct rp_etcd_caller *caller, const char **message)
{
	struct fake_node *n = ctx;

	for (uint32_t i = 0; i < n->member_count; i++)
		if (n->members[i].id == id)
			snprintf(n->member_url[i], sizeof(n->member_url[i]), "%s", urls[0]);
	return 0;
}

static void status(void *ctx, struct rp_etcd_status *out)
{
	struct fake_node *n = ctx;

	out->leader = n->leader;
}

/* ---- peers ---- */

static void prove(
	void *ctx, uint64_t token, uint64_t connection, const struct rp_etcd_peer_prove *p)
{
	struct fake_node *n = ctx;
	struct rp_etcd_peer_prove_reply reply = {.node = 1};

	reply.proved = p->frame.length == 6 && memcmp(p->frame.data, "secret", 6) == 0;
	reply.frame = p->frame;
	rp_etcd_peer_proved(n->etcd, token, p->node, &reply);
}

static void peer_echo(void *ctx, uint64_t token, uint64_t node, struct rp_span message)
{
	struct fake_node *n = ctx;

	if (message.length == 0)
		rp_etcd_peer_fail(n->etcd, token, 3, "peer: empty");
	else
		rp_etcd_peer_answer(n->etcd, token, message);
}

static uint64_t now_ns(void *ctx)
{
	struct fake_node *n = ctx;

	return n->now_ns;
}

void fake_node_clock(struct fake_node *n, uint64_t ns)
{
	struct rp_kv_system_op op = {.type = RP_KV_SYSTEM_REVOKE};
	struct rp_kv_txn t = {.system = &op, .system_count = 1};
	struct rp_kv_writer w = {.now_ns = ns};
	struct rp_kv_result r;

	n->now_ns = ns;
	rp_kv_set_now(n->kv, ns);
	while (!n->hold_expiry && rp_kv_lease_expired(n->kv, ns, &op.lease)) {
		w.wall_us = ++n->wall_us;
		rp_kv_apply(n->kv, &t, &w, &r);
		rp_kv_result_clear(&r);
	}
}

void fake_node_init(struct fake_node *n, int64_t initial_revision)
{
	struct rp_kv_config config = {.initial_revision = initial_revision, .node = 1};

	memset(n, 0, sizeof(*n));
	n->kv = rp_kv_create(&config);
	rp_list_init(&n->messages);
	rp_list_init(&n->consumers);
	n->clock_us = 1000000;
	n->leader = 200;
	n->self_url[0] = "http://127.0.0.1:2379";
	n->members[0] = (struct rp_etcd_member){.id = 200,
		.name = "fake",
		.peer_urls = n->self_url,
		.peer_url_count = 1,
		.client_urls = n->self_url,
		.client_url_count = 1};
	n->member_count = 1;
	n->peer = (struct rp_etcd_peer_backend){.ctx = n,
		.prove = prove,
		.apply = peer_echo,
		.sync = peer_echo,
		.deliver_one = peer_echo};
	n->backend = (struct rp_etcd_backend){
		.ctx = n,
		.propose = propose,
		.lease_ask = lease_ask,
		.check = check,
		.queue_op = queue_op,
		.queue_batch = queue_batch,
		.record_write = record_write,
		.consumer_open = consumer_open,
		.consumer_close = consumer_close,
		.consumer_accepted = consumer_accepted,
		.consumer_room = consumer_room,
		.members = members,
		.member_add = member_add,
		.member_remove = member_remove,
		.member_update = member_update,
		.status = status,
		.now_ns = now_ns,
		.peer = &n->peer,
	};
}

void fake_node_free(struct fake_node *n)
{
	struct rp_list *l;

	while (!rp_list_empty(&n->messages))
		message_remove(n, rp_list_entry(n->messages.next, struct fake_message, link));
	while ((l = rp_list_pop_front(&n->consumers)))
		free(rp_list_entry(l, struct fake_consumer, link));
	rp_kv_destroy(n->kv);
}
