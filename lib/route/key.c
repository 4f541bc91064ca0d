/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>

#include <base/bytes.h>
#include <route/key.h>

/* One more than the deepest valid key has, behind the name: c, uuid, idx, tail. */
#define KEY_PARTS_MAX 5

const char *rp_key_kind_name(enum rp_key_kind kind)
{
	static const char *const names[] = {
		[RP_KEY_ORDINARY] = "ordinary",
		[RP_KEY_DISPATCHER] = "dispatcher record",
		[RP_KEY_CONSUMER] = "consumer record",
		[RP_KEY_SINK] = "sink's record",
		[RP_KEY_PRODUCE] = "produce",
		[RP_KEY_DELIVERED] = "delivered",
		[RP_KEY_DELIVERED_SHORT] = "delivered (short form)",
		[RP_KEY_INVALID] = "invalid",
	};

	return (unsigned)kind < RP_ARRAY_SIZE(names) ? names[kind] : "?";
}

const char *rp_key_reason_text(enum rp_key_reason reason)
{
	static const char *const texts[] = {
#define X(name, text) [RP_KEY_REASON_##name] = text,
		RP_KEY_REASONS(X)
#undef X
	};

	return (unsigned)reason < RP_KEY_REASON_COUNT ? texts[reason] : "?";
}

static bool span_is(struct rp_span s, const char *text)
{
	return s.length == strlen(text) && memcmp(s.data, text, s.length) == 0;
}

static bool span_starts(struct rp_span s, const char *text)
{
	return s.length >= strlen(text) && memcmp(s.data, text, strlen(text)) == 0;
}

static void key_invalid(struct rp_route_key *out, enum rp_key_reason reason)
{
	out->kind = RP_KEY_INVALID;
	out->reason = reason;
}

/* Bytes of the namespace's prefix, with both slashes; 0 when the key is in none. */
static size_t key_namespace(struct rp_span key)
{
	if (span_starts(key, "/q/"))
		return 3;
	if (span_starts(key, "/queue/"))
		return 7;
	return 0;
}

static bool key_is_producer(struct rp_span s)
{
	return span_is(s, "p") || span_is(s, "producer") || span_is(s, "i") || span_is(s, "input");
}

static bool key_is_consumer(struct rp_span s)
{
	return span_is(s, "c") || span_is(s, "consumer");
}

/* Splits at '/', up to `max` parts; the last one holds what is left when there are more. */
static unsigned key_split(struct rp_span rest, struct rp_span *parts, unsigned max)
{
	unsigned count = 0;

	for (;;) {
		const uint8_t *slash = rest.length ? memchr(rest.data, '/', rest.length) : NULL;
		size_t length = slash ? (size_t)(slash - rest.data) : rest.length;

		if (!slash || count + 1 == max) {
			parts[count++] = rest;
			return count;
		}
		parts[count++] = (struct rp_span){rest.data, length};
		rest.data += length + 1;
		rest.length -= length + 1;
	}
}

/* Decimal, as the server writes it: no sign, no leading zero. */
static int key_idx(struct rp_span s, uint64_t *idx)
{
	uint64_t value = 0;

	if (s.length == 0 || s.length > 20 || (s.length > 1 && s.data[0] == '0'))
		return -EINVAL;
	for (size_t i = 0; i < s.length; i++) {
		if (s.data[i] < '0' || s.data[i] > '9')
			return -EINVAL;
		if (__builtin_mul_overflow(value, 10, &value) ||
			__builtin_add_overflow(value, s.data[i] - '0', &value))
			return -ERANGE;
	}
	*idx = value;
	return 0;
}

/* `db.table` or `table`: at most one dot, and no empty part. */
static bool key_table_valid(struct rp_span t)
{
	const uint8_t *dot = t.length ? memchr(t.data, '.', t.length) : NULL;
	size_t before = dot ? (size_t)(dot - t.data) : t.length;

	if (before == 0)
		return false;
	if (!dot)
		return true;
	return before + 1 < t.length && !memchr(dot + 1, '.', t.length - before - 1);
}

static bool key_name(struct rp_route_key *out, struct rp_span name)
{
	size_t prefix = 0;

	if (name.length == 0) {
		key_invalid(out, RP_KEY_REASON_NO_NAME);
		return false;
	}
	if (name.length > RP_NAME_BYTES_MAX) {
		key_invalid(out, RP_KEY_REASON_NAME_LONG);
		return false;
	}
	out->name = name;
	if (span_starts(name, "ch:"))
		prefix = 3;
	else if (span_starts(name, "clickhouse:"))
		prefix = 11;
	if (!prefix)
		return true;
	out->clickhouse = true;
	out->table = (struct rp_span){name.data + prefix, name.length - prefix};
	if (!key_table_valid(out->table)) {
		key_invalid(out, RP_KEY_REASON_CLICKHOUSE_TABLE);
		return false;
	}
	return true;
}

static void key_tail(struct rp_route_key *out, struct rp_span tail, enum rp_key_kind kind)
{
	if (tail.length == 0) {
		key_invalid(out, RP_KEY_REASON_NO_TAIL);
	} else if (memchr(tail.data, '/', tail.length)) {
		key_invalid(out, RP_KEY_REASON_DEEP);
	} else if (tail.length > RP_TAIL_BYTES_MAX) {
		key_invalid(out, RP_KEY_REASON_TAIL_LONG);
	} else {
		out->kind = kind;
		out->tail = tail;
	}
}

/* /q/{name}/c/{uuid}, and with {idx}/{tail} behind it. `parts` begin with c. */
static void key_consumer(
	struct rp_route_key *out, const uint8_t *key, const struct rp_span *parts, unsigned count)
{
	const struct rp_span uuid = parts[1];

	if (rp_uuid_parse(uuid.data, uuid.length, out->uuid) < 0) {
		key_invalid(out, RP_KEY_REASON_BAD_UUID);
		return;
	}
	/* Its sink is no client: what is delivered there has no key. */
	if (out->clickhouse && count > 2) {
		key_invalid(out, RP_KEY_REASON_CLICKHOUSE_CONSUMER);
		return;
	}
	out->uuid_text = uuid;
	out->consumer = (struct rp_span){key, (size_t)(uuid.data + uuid.length - key)};
	if (count == 2) {
		out->kind = out->clickhouse ? RP_KEY_SINK : RP_KEY_CONSUMER;
	} else if (count == 3) {
		key_invalid(out, RP_KEY_REASON_SHAPE);
	} else if (key_idx(parts[2], &out->idx) < 0) {
		key_invalid(out, RP_KEY_REASON_BAD_IDX);
	} else if (count > 4) {
		key_invalid(out, RP_KEY_REASON_DEEP);
	} else {
		key_tail(out, parts[3], RP_KEY_DELIVERED);
	}
}

/* Everything behind the namespace, `parts` beginning with the segment after the name. */
static void key_parts(
	struct rp_route_key *out, const uint8_t *key, const struct rp_span *parts, unsigned count)
{
	if (count < 2) {
		key_invalid(out, RP_KEY_REASON_SHAPE);
	} else if (key_is_consumer(parts[0])) {
		/* One trailing '/' of a registry key is ignored. */
		if (count == 3 && parts[2].length == 0)
			count = 2;
		key_consumer(out, key, parts, count);
	} else if (key_is_producer(parts[0])) {
		if (count > 2)
			key_invalid(out, RP_KEY_REASON_DEEP);
		else
			key_tail(out, parts[1], RP_KEY_PRODUCE);
	} else if (key_idx(parts[0], &out->idx) < 0) {
		bool digits =
			parts[0].length > 0 && parts[0].data[0] >= '0' && parts[0].data[0] <= '9';

		key_invalid(out, digits ? RP_KEY_REASON_BAD_IDX : RP_KEY_REASON_SHAPE);
	} else if (count > 2) {
		key_invalid(out, RP_KEY_REASON_DEEP);
	} else {
		key_tail(out, parts[1], RP_KEY_DELIVERED_SHORT);
	}
}

void rp_route_key_parse(struct rp_route_key *out, const void *key, size_t length)
{
	struct rp_span parts[1 + KEY_PARTS_MAX];
	struct rp_span rest = {key, length};
	size_t prefix = key_namespace(rest);
	unsigned count;

	*out = (struct rp_route_key){.kind = RP_KEY_ORDINARY};
	if (!prefix)
		return;
	rest.data += prefix;
	rest.length -= prefix;
	count = key_split(rest, parts, RP_ARRAY_SIZE(parts));
	if (!key_name(out, parts[0]))
		return;
	if (count == 1 || (count == 2 && parts[1].length == 0))
		out->kind = RP_KEY_DISPATCHER;
	else
		key_parts(out, key, parts + 1, count - 1);
	if (out->kind == RP_KEY_INVALID) {
		out->idx = 0;
		memset(out->uuid, 0, sizeof(out->uuid));
		out->uuid_text = out->consumer = (struct rp_span){0};
	}
}

static int key_written(const struct rp_writer *w, const void *out)
{
	return w->bad ? -ENOSPC : (int)(w->pos - (const uint8_t *)out);
}

int rp_route_key_dispatcher(struct rp_span name, void *out, size_t size)
{
	struct rp_writer w = rp_writer_of(out, size);

	if (name.length == 0 || name.length > RP_NAME_BYTES_MAX)
		return -EINVAL;
	rp_write_bytes(&w, "/q/", 3);
	rp_write_bytes(&w, name.data, name.length);
	return key_written(&w, out);
}

int rp_route_key_consumer(
	struct rp_span name, const uint8_t uuid[RP_UUID_BYTES], void *out, size_t size)
{
	struct rp_writer w = rp_writer_of(out, size);
	char text[RP_UUID_TEXT_BYTES];

	if (name.length == 0 || name.length > RP_NAME_BYTES_MAX)
		return -EINVAL;
	rp_uuid_format(uuid, text);
	rp_write_bytes(&w, "/q/", 3);
	rp_write_bytes(&w, name.data, name.length);
	rp_write_bytes(&w, "/c/", 3);
	rp_write_bytes(&w, text, sizeof(text));
	return key_written(&w, out);
}

int rp_route_key_canonical(const struct rp_route_key *k, void *out, size_t size)
{
	if (k->kind == RP_KEY_DISPATCHER)
		return rp_route_key_dispatcher(k->name, out, size);
	if (k->kind == RP_KEY_CONSUMER || k->kind == RP_KEY_SINK)
		return rp_route_key_consumer(k->name, k->uuid, out, size);
	return -EINVAL;
}

int rp_route_key_delivered(
	struct rp_span consumer, uint64_t idx, struct rp_span tail, void *out, size_t size)
{
	struct rp_writer w = rp_writer_of(out, size);
	uint8_t digits[20];
	size_t count = 0;

	do
		digits[sizeof(digits) - ++count] = (uint8_t)('0' + idx % 10);
	while (idx /= 10);
	rp_write_bytes(&w, consumer.data, consumer.length);
	rp_write_bytes(&w, "/", 1);
	rp_write_bytes(&w, digits + sizeof(digits) - count, count);
	rp_write_bytes(&w, "/", 1);
	rp_write_bytes(&w, tail.data, tail.length);
	return key_written(&w, out);
}

static int span_compare(struct rp_span a, struct rp_span b)
{
	size_t n = RP_MIN(a.length, b.length);
	int c = n ? memcmp(a.data, b.data, n) : 0;

	return c ? c : (a.length > b.length) - (a.length < b.length);
}

enum rp_range_kind rp_route_range_classify(
	const void *key, size_t key_length, const void *end, size_t end_length)
{
	/* Each namespace is the range [prefix, prefix with its last '/' raised to '0'). */
	static const char *const bounds[][2] = {{"/q/", "/q0"}, {"/queue/", "/queue0"}};
	const struct rp_span from = {key, key_length}, to = {end, end_length};
	bool open = end_length == 1 && to.data[0] == 0;
	bool touches = false;

	if (end_length == 0)
		return RP_RANGE_SINGLE;
	if (!open && span_compare(to, from) <= 0)
		return RP_RANGE_EMPTY;
	for (unsigned i = 0; i < RP_ARRAY_SIZE(bounds); i++) {
		const struct rp_span first = {(const uint8_t *)bounds[i][0], strlen(bounds[i][0])};
		const struct rp_span past = {(const uint8_t *)bounds[i][1], strlen(bounds[i][1])};

		if (span_compare(from, past) >= 0 || (!open && span_compare(to, first) <= 0))
			continue;
		touches = true;
		if (!open && span_compare(from, first) >= 0 && span_compare(to, past) <= 0)
			return RP_RANGE_INSIDE;
	}
	return touches ? RP_RANGE_OVERLAPS : RP_RANGE_OUTSIDE;
}
