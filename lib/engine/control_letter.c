/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Policies on their way to the shards, and dead letters on their way between two queues, which may
 * be of different shards.
 *
 * A dead letter keeps its tail. Its value is a line of JSON that says what became of the message,
 * then the value as it was (docs/queues-by-etcd.md).
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

/* Bytes of a well-formed UTF-8 sequence at `p` (RFC 3629); 0 = none. */
static size_t utf8_length(const uint8_t *p, size_t left)
{
	static const struct {
		uint8_t first, last, low, high, more;
	} forms[] = {{0xc2, 0xdf, 0x80, 0xbf, 1}, {0xe0, 0xe0, 0xa0, 0xbf, 2},
		{0xe1, 0xec, 0x80, 0xbf, 2}, {0xed, 0xed, 0x80, 0x9f, 2},
		{0xee, 0xef, 0x80, 0xbf, 2}, {0xf0, 0xf0, 0x90, 0xbf, 3},
		{0xf1, 0xf3, 0x80, 0xbf, 3}, {0xf4, 0xf4, 0x80, 0x8f, 3}};

	if (*p < 0x80)
		return 1;
	for (size_t i = 0; i < RP_ARRAY_SIZE(forms); i++) {
		if (*p < forms[i].first || *p > forms[i].last)
			continue;
		if (left <= forms[i].more || p[1] < forms[i].low || p[1] > forms[i].high)
			return 0;
		for (size_t k = 2; k <= forms[i].more; k++)
			if (p[k] < 0x80 || p[k] > 0xbf)
				return 0;
		return forms[i].more + 1u;
	}
	return 0;
}

/* As a JSON string (RFC 8259); a byte that is no text is written as the character of its number. */
static void put_string(char **to, struct rp_span text)
{
	char *at = *to;

	*at++ = '"';
	for (size_t i = 0; i < text.length;) {
		const uint8_t *p = text.data + i;
		size_t n = utf8_length(p, text.length - i);

		if (n == 0 || *p < 0x20 || *p == '"' || *p == '\\' || *p == 0x7f) {
			at += sprintf(at, "\\u%04x", *p);
			i++;
			continue;
		}
		memcpy(at, p, n);
		at += n;
		i += n;
	}
	*at++ = '"';
	*to = at;
}

static bool has_head(struct rp_span value)
{
	return value.length > strlen(HEAD_BEGINS) &&
	       memcmp(value.data, HEAD_BEGINS, strlen(HEAD_BEGINS)) == 0;
}

static size_t write_head(struct rp_control *c, const struct rp_xmsg *m, struct rp_span name,
	struct rp_span tail, char head[RP_LETTER_HEAD_BYTES_MAX])
{
	char *at = head + sprintf(head, HEAD_BEGINS "\"queue\":");

	put_string(&at, name);
	at += sprintf(at, ",\"tail\":");
	put_string(&at, tail);
	at += sprintf(at,
		",\"reason\":\"%s\",\"age_ms\":%" PRIu64 ",\"deliveries\":%u,\"node\":\"%" PRIu64
		"\"}}\n",
		rp_queue_death_word(m->value), m->revision / 1000, m->count, c->self.node);
	RP_ASSERT(at < head + RP_LETTER_HEAD_BYTES_MAX);
	return (size_t)(at - head);
}

/* The queue that a letter was in, as its head says, and where its own value begins; 0 = no letter.
 */
static size_t read_head(struct rp_span value, char *queue, size_t size)
{
	const uint8_t *end =
		memchr(value.data, '\n', RP_MIN(value.length, RP_LETTER_HEAD_BYTES_MAX));
	json_t *head, *name;
	size_t length = 0;

	if (!has_head(value) || !end)
		return 0;
	head = json_loadb((const char *)value.data, (size_t)(end - value.data), 0, NULL);
	name = json_object_get(json_object_get(head, "dead_letter"), "queue");
	if (json_is_string(name) && json_string_length(name) < size &&
		json_string_length(name) > 0 &&
		!memchr(json_string_value(name), '/', json_string_length(name))) {
		memcpy(queue, json_string_value(name), json_string_length(name) + 1);
		length = (size_t)(end - value.data) + 1;
	}
	json_decref(head);
	return length;
}

/* ---- letters ---- */

static void answer(struct rp_control *c, unsigned shard, uint64_t token, enum rp_qstatus status)
{
	const struct rp_xmsg m = {
		.type = RP_XMSG_LETTERED, .token = token, .status = (uint16_t)status};

	if (status == RP_Q_OK || status == RP_Q_DUPLICATE)
		c->counters.dead_letters++;
	else
		c->counters.dead_letters_refused++;
	control_send(c, shard, &m);
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
	struct control_letter *l;

	if (!put.m) {
		answer(c, shard, token, RP_Q_LIMIT);
		return;
	}
	l = control_alloc(sizeof(*l));
	l->shard = shard;
	l->token = token;
	rp_hmap_insert(&c->letters, &l->by_id, ++c->letter_id_last);
	put.token = c->letter_id_last | CONTROL_LETTER_FLAG;
	control_send(c, rp_hash_pick(put.hash, c->shards), &put);
}

void control_on_dead_letter(struct rp_control *c, unsigned shard, const struct rp_xmsg *m)
{
	size_t names = m->name_length + m->hash, length = m->m->pkt_len - names;
	uint8_t *bytes = control_alloc(names + length + 1);
	struct rp_span name = {bytes, m->name_length}, to = {bytes + m->name_length, m->hash};
	struct rp_span tail = {bytes + names, m->tail_length};
	struct rp_span value = {bytes + names + m->tail_length, length - m->tail_length};
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
	if (m->status != RP_Q_OK && c->now.ns - c->letter_said_ns >= SAY_NS) {
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
	for (uint32_t i = 0; i < count; i++) {
		p->items[i] = policies[i];
		p->items[i].match = keep(&at, policies[i].match);
		p->items[i].dead_letter = keep(&at, policies[i].dead_letter);
	}
	rp_list_push_back(&c->policies, &p->node);
	for (uint32_t s = 0; s < c->shards; s++)
		control_send(c, s, &m);
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
