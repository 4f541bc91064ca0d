/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Policies on their way to the shards, and dead letters on their way between two queues, which may
 * be of different shards.
 *
 * A dead letter keeps its tail. Its value is a line of JSON that says what became of the message,
 * then the value as it was (docs/policies.md).
 */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>
#include <rte_mbuf.h>

#include <base/assert.h>
#include <base/log.h>
#include <base/mbuf.h>
#include <engine/control_engine_priv.h>

#define HEAD_BEGINS "{\"v\":1,\"dead_letter\":{"
/** A queue that takes no letters is told of so often. */
#define SAY_NS (60 * RP_NS_PER_S)

/* ---- the head ---- */

static bool is_utf8(struct rp_span text)
{
	json_t *value = json_stringn((const char *)text.data, text.length);

	json_decref(value);
	return value != NULL;
}

/* What is no UTF-8 has a character for each byte, by its number. */
static json_t *text_of(struct rp_span text)
{
	json_t *value = json_stringn((const char *)text.data, text.length);
	char copy[2 * RP_NAME_BYTES_MAX];
	size_t n = 0;

	if (value)
		return value;
	RP_ASSERT(text.length <= RP_NAME_BYTES_MAX);
	for (size_t i = 0; i < text.length; i++) {
		if (text.data[i] >= 0x80)
			copy[n++] = (char)(0xc0 | text.data[i] >> 6);
		copy[n++] =
			(char)(text.data[i] < 0x80 ? text.data[i] : 0x80 | (text.data[i] & 0x3f));
	}
	return json_stringn(copy, n);
}

static bool has_head(struct rp_span value)
{
	return value.length > strlen(HEAD_BEGINS) &&
	       memcmp(value.data, HEAD_BEGINS, strlen(HEAD_BEGINS)) == 0;
}

static size_t write_head(struct rp_control *c, const struct rp_xmsg *m, struct rp_span name,
	struct rp_span tail, char head[RP_LETTER_HEAD_BYTES_MAX])
{
	char node[24];
	json_t *o;
	size_t n;

	snprintf(node, sizeof(node), "%" PRIu64, c->self.node);
	o = json_pack("{s:i, s:{s:o, s:o, s:s, s:I, s:I, s:s}}", "v", 1, "dead_letter", "queue",
		text_of(name), "tail", text_of(tail), "reason", rp_queue_death_word(m->value),
		"age_ms", (json_int_t)(m->revision / 1000), "deliveries", (json_int_t)m->count,
		"node", node);
	RP_ASSERT(o != NULL);
	if (!is_utf8(name))
		json_object_set_new(json_object_get(o, "dead_letter"), "raw", json_true());
	n = json_dumpb(o, head, RP_LETTER_HEAD_BYTES_MAX - 1, JSON_COMPACT);
	RP_ASSERT(n > 0 && n < RP_LETTER_HEAD_BYTES_MAX);
	json_decref(o);
	head[n++] = '\n';
	return n;
}

/* The queue that a letter was in, as its head says, and where its own value begins; 0 = no letter.
 */
static size_t read_head(struct rp_span value, char *queue, size_t size)
{
	const uint8_t *end =
		memchr(value.data, '\n', RP_MIN(value.length, RP_LETTER_HEAD_BYTES_MAX));
	json_t *head, *letter, *name;
	size_t length = 0;

	if (!has_head(value) || !end)
		return 0;
	head = json_loadb((const char *)value.data, (size_t)(end - value.data), 0, NULL);
	letter = json_object_get(head, "dead_letter");
	name = json_object_get(letter, "queue");
	/* Of a name that is no UTF-8 the head has not the bytes. */
	if (!json_is_true(json_object_get(letter, "raw")) && json_is_string(name) &&
		json_string_length(name) < size && json_string_length(name) > 0 &&
		!memchr(json_string_value(name), '/', json_string_length(name))) {
		memcpy(queue, json_string_value(name), json_string_length(name) + 1);
		length = (size_t)(end - value.data) + 1;
	}
	json_decref(head);
	return length;
}

/* ---- letters ---- */

static void count(struct rp_control *c, enum rp_qstatus status)
{
	if (status == RP_Q_OK || status == RP_Q_DUPLICATE)
		c->counters.dead_letters++;
	else
		c->counters.dead_letters_refused++;
}

static void answer(struct rp_control *c, unsigned shard, uint64_t token, enum rp_qstatus status)
{
	const struct rp_xmsg m = {
		.type = RP_XMSG_LETTERED, .token = token, .status = (uint16_t)status};

	control_send(c, shard, &m);
}

uint64_t control_letter_new(struct rp_control *c, unsigned shard, uint64_t token, bool process_end)
{
	struct control_letter *l = control_alloc(sizeof(*l));

	l->shard = shard;
	l->token = token;
	l->process_end = process_end;
	rp_hmap_insert(&c->letters, &l->by_id, ++c->letter_id_last);
	return c->letter_id_last;
}

static void letter_put(struct rp_control *c, unsigned shard, uint64_t token, struct rp_span to,
	const struct rp_span *rest, uint16_t tail_length, bool letter)
{
	const struct rp_span parts[4] = {to, rest[0], rest[1], rest[2]};
	struct rp_xmsg put = {
		.type = RP_XMSG_PUT,
		.flags = letter,
		.name_length = (uint16_t)to.length,
		.tail_length = tail_length,
		.hash = rp_queue_hash(to.data, to.length),
		.m = control_chain(c, parts, 4),
	};

	if (!put.m) {
		count(c, RP_Q_LIMIT);
		answer(c, shard, token, RP_Q_LIMIT);
		return;
	}
	put.token = control_letter_new(c, shard, token, false) | CONTROL_LETTER_FLAG;
	control_send(c, rp_hash_pick(put.hash, c->shards), &put);
}

void control_on_dead_letter(struct rp_control *c, unsigned shard, const struct rp_xmsg *m)
{
	size_t names = m->name_length + m->hash, length = m->m->pkt_len - names;
	uint8_t *bytes = control_alloc(names + length + 1);
	struct rp_span name = {bytes, m->name_length}, to = {bytes + m->name_length, m->hash};
	struct rp_span tail = {bytes + names, m->tail_length};
	size_t before = m->tail_length + m->idx; /* of a process request: its meta */
	struct rp_span value = {bytes + names + before, length - before};
	bool replay = m->value == RP_QUEUE_DEATH_REPLAYED;
	char head[RP_LETTER_HEAD_BYTES_MAX], queue[RP_NAME_BYTES_MAX + 1] = "";
	size_t head_length = 0;

	rp_mbuf_copy_out(m->m, 0, bytes, names + length);
	rte_pktmbuf_free(m->m);
	if (replay) {
		head_length = read_head(value, queue, sizeof(queue));
		to = (struct rp_span){(const uint8_t *)queue, strlen(queue)};
		value.data += head_length;
		value.length -= head_length;
	} else if (!has_head(value)) {
		head_length = write_head(c, m, name, tail, head);
	} /* else it has ended before, and keeps the word of its first end */
	if (replay && head_length == 0) {
		count(c, RP_Q_INVALID);
		answer(c, shard, m->token, RP_Q_INVALID);
	} else {
		struct rp_span rest[3] = {
			tail, {(const uint8_t *)head, replay ? 0 : head_length}, value};

		letter_put(c, shard, m->token, to, rest, m->tail_length, !replay);
	}
	free(bytes);
}

void control_letter_answered(struct rp_control *c, const struct rp_xmsg *m)
{
	struct rp_hmap_node *n = rp_hmap_find(&c->letters, m->token & ~CONTROL_LETTER_FLAG);
	struct control_letter *l;

	rte_pktmbuf_free(m->m);
	if (!n)
		return;
	l = RP_CONTAINER_OF(n, struct control_letter, by_id);
	if (!l->process_end)
		count(c, m->status);
	if (!l->process_end && m->status != RP_Q_OK && c->now.ns - c->letter_said_ns >= SAY_NS) {
		c->letter_said_ns = c->now.ns;
		RP_LOG(RP_LOG_QUEUE, RP_LOG_WARNING,
			"a dead-letter queue takes no message: %s; what ended waits for it",
			rp_qstatus_text(m->status));
	}
	answer(c, l->shard, l->token, m->status);
	rp_hmap_remove(&c->letters, &l->by_id);
	free(l);
}

/* ---- policies ---- */

static void policies_free(struct control_policies *p)
{
	rp_list_unlink(&p->node);
	if (p->rules)
		rp_policy_destroy(p->rules->policy);
	free(p->rules);
	free(p->texts);
	free(p);
}

static const char *keep(char **at, const char *text)
{
	size_t length = strlen(text ? text : "") + 1;
	char *copy = *at;

	memcpy(copy, text ? text : "", length);
	*at += length;
	return copy;
}

static size_t text_bytes(const char *text)
{
	return text ? strlen(text) + 1 : 1;
}

static struct engine_rules *rules_of(struct rp_control *c)
{
	struct engine_rules *r = c->policy ? control_alloc(sizeof(*r)) : NULL;

	if (!r)
		return NULL;
	r->policy = rp_policy_ref(c->policy);
	for (rp_repl_peer_id i = 0; i < RP_PEERS_MAX; i++) {
		struct rp_repl_peer_info peer;

		if (rp_repl_peer_get(c->repl, i, &peer) && peer.node && !peer.self)
			r->nodes[r->count++] = (struct engine_zone){.node = peer.node,
				.same = c->ops->same_zone && c->ops->same_zone(c->ctx, peer.node)};
	}
	return r;
}

void rp_control_set_policies(
	struct rp_control *c, const struct rp_queue_policy *policies, uint32_t count)
{
	struct control_policies *p = control_alloc(sizeof(*p) + count * sizeof(p->items[0]));
	struct rp_xmsg m = {.type = RP_XMSG_SET_POLICIES, .count = count, .pointer = p->items};
	size_t bytes = 1;
	char *at;

	for (uint32_t i = 0; i < count; i++)
		bytes += text_bytes(policies[i].match) + text_bytes(policies[i].dead_letter);
	p->texts = at = control_alloc(bytes);
	p->count = count;
	p->unused = c->shards;
	m.other = p->rules = rules_of(c);
	for (uint32_t i = 0; i < count; i++) {
		p->items[i] = policies[i];
		p->items[i].match = keep(&at, policies[i].match);
		p->items[i].dead_letter = keep(&at, policies[i].dead_letter);
	}
	rp_list_push_back(&c->policies, &p->node);
	for (uint32_t s = 0; s < c->shards; s++)
		control_send(c, s, &m);
}

void control_rules_changed(struct rp_control *c)
{
	const struct control_policies *last =
		rp_list_empty(&c->policies)
			? NULL
			: rp_list_entry(c->policies.prev, struct control_policies, node);

	rp_control_set_policies(c, last ? last->items : NULL, last ? last->count : 0);
}

void control_on_policies_used(struct rp_control *c, const struct rp_xmsg *m)
{
	struct control_policies *p =
		RP_CONTAINER_OF((void *)m->pointer, struct control_policies, items);

	RP_ASSERT(p->unused > 0);
	if (--p->unused > 0)
		return;
	while (c->policies.next != &p->node)
		policies_free(rp_list_entry(c->policies.next, struct control_policies, node));
}

void control_letter_free(struct rp_control *c)
{
	while (!rp_list_empty(&c->policies))
		policies_free(rp_list_entry(c->policies.next, struct control_policies, node));
	for (size_t i = 0; i < 1u << CONTROL_LETTER_BITS; i++)
		while (c->letters.chains[i]) {
			struct control_letter *l =
				RP_CONTAINER_OF(c->letters.chains[i], struct control_letter, by_id);

			rp_hmap_remove(&c->letters, &l->by_id);
			free(l);
		}
}
