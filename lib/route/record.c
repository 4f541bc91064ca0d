/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>

#include <base/bytes.h>
#include <route/record.h>

/* One `name[=value]` part of a record, trimmed; the first part of a record has no name. */
struct record_field {
	struct rp_span name, value;
	bool has_value;
};

static struct rp_span record_trim(struct rp_span s)
{
	while (s.length > 0 && (s.data[0] == ' ' || s.data[0] == '\t')) {
		s.data++;
		s.length--;
	}
	while (s.length > 0 && (s.data[s.length - 1] == ' ' || s.data[s.length - 1] == '\t'))
		s.length--;
	return s;
}

/* Cuts the text up to the next `mark` off *rest; false when nothing is left. data NULL = the end.
 */
static bool record_cut(struct rp_span *rest, char mark, struct rp_span *part)
{
	const uint8_t *at;

	if (!rest->data)
		return false;
	at = rest->length ? memchr(rest->data, mark, rest->length) : NULL;
	if (!at) {
		*part = record_trim(*rest);
		rest->data = NULL;
		return true;
	}
	*part = record_trim((struct rp_span){rest->data, (size_t)(at - rest->data)});
	rest->length -= (size_t)(at - rest->data) + 1;
	rest->data = at + 1;
	return true;
}

static bool record_next(struct rp_span *rest, struct record_field *field)
{
	struct rp_span part;
	const uint8_t *eq;

	if (!record_cut(rest, ';', &part))
		return false;
	eq = part.length ? memchr(part.data, '=', part.length) : NULL;
	field->has_value = eq != NULL;
	field->name = part;
	field->value = (struct rp_span){0};
	if (eq) {
		size_t before = (size_t)(eq - part.data);

		field->name = record_trim((struct rp_span){part.data, before});
		field->value = record_trim((struct rp_span){eq + 1, part.length - before - 1});
	}
	return true;
}

static bool span_is(struct rp_span s, const char *text)
{
	return s.length == strlen(text) && memcmp(s.data, text, s.length) == 0;
}

static bool span_same(struct rp_span a, struct rp_span b)
{
	return a.length == b.length && (a.length == 0 || memcmp(a.data, b.data, a.length) == 0);
}

static int record_u64(struct rp_span s, uint64_t max, uint64_t *out)
{
	uint64_t value = 0;

	if (s.length == 0)
		return -EINVAL;
	for (size_t i = 0; i < s.length; i++) {
		if (s.data[i] < '0' || s.data[i] > '9' ||
			__builtin_mul_overflow(value, 10, &value) ||
			__builtin_add_overflow(value, s.data[i] - '0', &value))
			return -EINVAL;
	}
	if (value > max)
		return -EINVAL;
	*out = value;
	return 0;
}

/* The first part of a record: the node, or 0. */
static uint64_t record_node(struct rp_span *rest)
{
	struct rp_span part;
	uint64_t node = 0;

	if (record_cut(rest, ';', &part))
		record_u64(part, UINT64_MAX, &node);
	return node;
}

static struct rp_span record_text(const void *text, size_t length)
{
	return (struct rp_span){text ? text : "", length};
}

/* ---- dispatcher ---- */

static bool dispatcher_known(struct rp_span name)
{
	return span_is(name, "reply_to") || span_is(name, "pinned") || span_is(name, "epoch");
}

static void dispatcher_field(struct rp_dispatcher_record *r, const struct record_field *f)
{
	uint64_t value = 0;

	if (span_is(f->name, "reply_to")) {
		/* A name is one key segment: what cannot be one counts as absent. */
		if (f->value.length <= RP_NAME_BYTES_MAX &&
			!(f->value.length && memchr(f->value.data, '/', f->value.length)))
			r->reply_to = f->value;
	} else if (span_is(f->name, "pinned")) {
		r->pinned =
			!f->has_value || !(span_is(f->value, "0") || span_is(f->value, "false"));
	} else if (span_is(f->name, "epoch")) {
		if (record_u64(f->value, RP_EPOCH_MAX, &value) == 0)
			r->epoch = (uint32_t)value;
	}
}

int rp_route_dispatcher_parse(struct rp_dispatcher_record *out, const void *text, size_t length)
{
	struct rp_span rest = record_text(text, length);
	struct record_field field;

	*out = (struct rp_dispatcher_record){.texts = {rest}};
	out->node = record_node(&rest);
	while (record_next(&rest, &field))
		dispatcher_field(out, &field);
	return out->node ? 0 : -ENOENT;
}

/* ---- consumer ---- */

static bool consumer_known(struct rp_span name)
{
	return span_is(name, "cap") || span_is(name, "max_bytes") || span_is(name, "prefetch") ||
	       span_is(name, "match");
}

/* 0, or -EINVAL when the value of a known field is not one; the field stays as it was then. */
static int consumer_field(struct rp_consumer_record *r, const struct record_field *f)
{
	uint64_t value = 0;

	if (span_is(f->name, "cap")) {
		r->cap = f->value;
	} else if (span_is(f->name, "match")) {
		if (f->value.length > RP_TAIL_BYTES_MAX)
			return -EINVAL;
		r->match = f->value;
	} else if (span_is(f->name, "max_bytes")) {
		if (f->value.length && record_u64(f->value, UINT64_MAX, &value) < 0)
			return -EINVAL;
		r->max_bytes = value;
	} else if (span_is(f->name, "prefetch")) {
		if (f->value.length && record_u64(f->value, UINT32_MAX, &value) < 0)
			return -EINVAL;
		r->prefetch = (uint32_t)value;
	}
	return 0;
}

int rp_route_consumer_parse(struct rp_consumer_record *out, const void *text, size_t length)
{
	struct rp_span rest = record_text(text, length);
	struct record_field field;

	*out = (struct rp_consumer_record){.texts = {rest}};
	out->node = record_node(&rest);
	while (record_next(&rest, &field))
		consumer_field(out, &field);
	return out->node ? 0 : -ENOENT;
}

/* ---- merging ---- */

/* What the text itself says, and whether it names a node in its first part. */
static bool record_first(struct rp_span text, struct rp_span *first)
{
	return record_cut(&text, ';', first) && first->length > 0;
}

int rp_route_dispatcher_merge(struct rp_dispatcher_record *out,
	const struct rp_dispatcher_record *current, const void *text, size_t length)
{
	struct rp_span rest = record_text(text, length), first;
	struct rp_dispatcher_record put;
	struct record_field field;
	int known;

	if (length == 0 || length > RP_RECORD_BYTES_MAX)
		return -EINVAL;
	known = rp_route_dispatcher_parse(&put, text, length);
	*out = *current;
	out->texts[0] = current->texts[0];
	out->texts[1] = rest;
	if (record_first(rest, &first)) {
		if (known < 0)
			return -EINVAL;
		if (put.node != current->node || put.epoch != current->epoch)
			return -EPERM;
		out->reply_to = put.reply_to;
		out->pinned = put.pinned;
		return 0;
	}
	if (put.epoch && put.epoch != current->epoch)
		return -EPERM;
	record_cut(&rest, ';', &first);
	while (record_next(&rest, &field)) {
		if (!span_is(field.name, "epoch"))
			dispatcher_field(out, &field);
	}
	return 0;
}

int rp_route_consumer_merge(struct rp_consumer_record *out,
	const struct rp_consumer_record *current, const void *text, size_t length)
{
	struct rp_span rest = record_text(text, length), first;
	struct record_field field;

	if (length == 0 || length > RP_RECORD_BYTES_MAX)
		return -EINVAL;
	*out = *current;
	out->texts[0] = current->texts[0];
	out->texts[1] = rest;
	if (record_first(rest, &first))
		return -EPERM;
	record_cut(&rest, ';', &first);
	while (record_next(&rest, &field)) {
		if (consumer_field(out, &field) < 0)
			return -EINVAL;
	}
	return 0;
}

/* ---- writing ---- */

static void write_text(struct rp_writer *w, const char *text)
{
	rp_write_bytes(w, text, strlen(text));
}

static void write_u64(struct rp_writer *w, uint64_t value)
{
	char digits[20];
	size_t count = 0;

	do
		digits[sizeof(digits) - ++count] = (char)('0' + value % 10);
	while (value /= 10);
	rp_write_bytes(w, digits + sizeof(digits) - count, count);
}

static void write_field(struct rp_writer *w, const char *name, struct rp_span value)
{
	if (value.length == 0)
		return;
	write_text(w, name);
	rp_write_bytes(w, value.data, value.length);
}

static bool record_names(struct rp_span text, struct rp_span name)
{
	struct record_field field;
	struct rp_span first;

	if (text.length == 0 || !record_cut(&text, ';', &first))
		return false;
	while (record_next(&text, &field)) {
		if (span_same(field.name, name))
			return true;
	}
	return false;
}

/* Unknown fields of both texts; of a name in both, those of the later text. */
static void write_unknown(
	struct rp_writer *w, const struct rp_span texts[2], bool (*known)(struct rp_span name))
{
	for (unsigned i = 0; i < 2; i++) {
		struct rp_span rest = texts[i], first;
		struct record_field field;

		if (rest.length == 0 || !record_cut(&rest, ';', &first))
			continue;
		while (record_next(&rest, &field)) {
			if (field.name.length == 0 || known(field.name))
				continue;
			if (i == 0 && record_names(texts[1], field.name))
				continue;
			write_text(w, ";");
			rp_write_bytes(w, field.name.data, field.name.length);
			if (field.has_value) {
				write_text(w, "=");
				rp_write_bytes(w, field.value.data, field.value.length);
			}
		}
	}
}

static int record_written(const struct rp_writer *w, const void *out)
{
	return w->bad ? -ENOSPC : (int)(w->pos - (const uint8_t *)out);
}

int rp_route_dispatcher_format(const struct rp_dispatcher_record *r, void *out, size_t size)
{
	struct rp_writer w = rp_writer_of(out, size);

	write_u64(&w, r->node);
	write_field(&w, ";reply_to=", r->reply_to);
	if (r->pinned)
		write_text(&w, ";pinned");
	if (r->epoch) {
		write_text(&w, ";epoch=");
		write_u64(&w, r->epoch);
	}
	write_unknown(&w, r->texts, dispatcher_known);
	return record_written(&w, out);
}

int rp_route_consumer_format(const struct rp_consumer_record *r, void *out, size_t size)
{
	struct rp_writer w = rp_writer_of(out, size);

	write_u64(&w, r->node);
	write_field(&w, ";cap=", r->cap);
	if (r->max_bytes) {
		write_text(&w, ";max_bytes=");
		write_u64(&w, r->max_bytes);
	}
	if (r->prefetch) {
		write_text(&w, ";prefetch=");
		write_u64(&w, r->prefetch);
	}
	write_field(&w, ";match=", r->match);
	write_unknown(&w, r->texts, consumer_known);
	return record_written(&w, out);
}

bool rp_route_cap_has(struct rp_span cap, struct rp_span need)
{
	struct rp_span part;

	need = record_trim(need);
	if (need.length == 0)
		return true;
	if (cap.length == 0)
		return false;
	while (record_cut(&cap, ',', &part)) {
		if (span_same(part, need))
			return true;
	}
	return false;
}
