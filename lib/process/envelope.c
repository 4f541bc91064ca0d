/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include <jansson.h>

#include <base/assert.h>
#include <process/envelope.h>
#include <process/output.h>

#include "process_priv.h"

#define TTL "\"ttl_ms\""

/* Most values are none, and are not read further: an envelope spells this name as it is. */
static bool may_be_envelope(struct rp_span value)
{
	size_t i = 0;

	while (i < value.length && (value.data[i] == ' ' || value.data[i] == '\t' ||
					   value.data[i] == '\n' || value.data[i] == '\r'))
		i++;
	return i < value.length && value.data[i] == '{' &&
	       memmem(value.data, value.length, TTL, sizeof(TTL) - 1) != NULL;
}

static bool is_envelope(json_t *doc)
{
	json_t *v = json_object_get(doc, "v");

	return json_is_number(v) && json_number_value(v) == RP_ENVELOPE_VERSION &&
	       json_object_get(doc, "ttl_ms") != NULL;
}

static json_t *load(struct rp_span value, size_t flags, enum json_error_code *code)
{
	json_error_t error;
	json_t *doc = json_loadb((const char *)value.data, value.length, flags, &error);

	*code = doc ? json_error_unknown : json_error_code(&error);
	return doc;
}

/*
 * What does not parse by the strict rules may be an envelope all the same, whose sender is to know
 * what is wrong with it: it is read once more without them.
 */
static const char *fault_of_unparsed(struct rp_span value, enum json_error_code code)
{
	const char *why = NULL;
	json_t *doc;

	if (code == json_error_duplicate_key)
		why = "process request: a name is there twice";
	else if (code == json_error_numeric_overflow)
		why = "process request: a number is out of range";
	else
		return NULL;
	doc = load(value, JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, &code);
	if (!doc || !is_envelope(doc))
		why = NULL;
	json_decref(doc);
	return why;
}

/* The parser itself goes no deeper than its own bound, so this does not either. */
static bool is_deeper(json_t *value, unsigned depth)
{
	const char *key;
	json_t *item;
	size_t i;

	if (!json_is_object(value) && !json_is_array(value))
		return false;
	if (depth == 0)
		return true;
	json_object_foreach(value, key, item)
	{
		if (is_deeper(item, depth - 1))
			return true;
	}
	json_array_foreach(value, i, item)
	{
		if (is_deeper(item, depth - 1))
			return true;
	}
	return false;
}

static struct rp_span text_of(const json_t *s)
{
	return (struct rp_span){(const uint8_t *)json_string_value(s), json_string_length(s)};
}

/* ---- the fields: each says what is wrong with it, or NULL ---- */

static const char *read_ttl(struct rp_envelope *e, json_t *v)
{
	if (!json_is_integer(v) || json_integer_value(v) < 1 ||
		json_integer_value(v) > (json_int_t)RP_ENVELOPE_TTL_MS_MAX)
		return "process request: ttl_ms: expected a whole number of milliseconds, from 1 "
		       "to 2^40";
	e->ttl_ms = (uint64_t)json_integer_value(v);
	return NULL;
}

static const char *read_reply_to(struct rp_envelope *e, json_t *v)
{
	if (!v)
		return NULL;
	e->reply_to = json_is_string(v) ? text_of(v) : (struct rp_span){0};
	if (e->reply_to.length == 0 || e->reply_to.length > RP_NAME_BYTES_MAX ||
		memchr(e->reply_to.data, '/', e->reply_to.length) ||
		memchr(e->reply_to.data, '\0', e->reply_to.length))
		return "process request: reply_to: expected a queue's name, 1 to 255 bytes "
		       "without a slash";
	return NULL;
}

static const char *read_max_bytes(struct rp_envelope *e, json_t *v)
{
	if (!v)
		return NULL;
	if (!json_is_integer(v) || json_integer_value(v) < 1)
		return "process request: max_bytes: expected a whole number, 1 or more";
	e->max_bytes = (uint64_t)json_integer_value(v);
	return NULL;
}

static const char *read_priority(struct rp_envelope *e, json_t *v)
{
	if (!v)
		return NULL;
	if (!json_is_integer(v) || json_integer_value(v) < 0 ||
		json_integer_value(v) > RP_PROCESS_PRIORITY_MAX)
		return "process request: priority: expected a whole number from 0 to 9";
	e->priority = (uint8_t)json_integer_value(v);
	e->has_priority = true;
	return NULL;
}

static const char *read_fail_fast(struct rp_envelope *e, json_t *v)
{
	if (!v)
		return NULL;
	if (!json_is_boolean(v))
		return "process request: fail_fast: expected true or false";
	e->fail_fast = json_is_true(v);
	return NULL;
}

/* A record's list is cut at commas, and its fields at semicolons. */
static bool is_capability(struct rp_span s)
{
	for (size_t i = 0; i < s.length; i++) {
		if (s.data[i] == ',' || s.data[i] == ';' || s.data[i] <= ' ')
			return false;
	}
	return s.length > 0;
}

static const char *read_need(struct rp_envelope *e, json_t *v)
{
	size_t bytes = 0, i;
	json_t *item;

	if (!v)
		return NULL;
	if (!json_is_array(v))
		return "process request: need: expected a list of texts";
	if (json_array_size(v) > RP_PROCESS_NEEDS_MAX)
		return "process request: need: more than 16 capabilities";
	json_array_foreach(v, i, item)
	{
		struct rp_span s = json_is_string(item) ? text_of(item) : (struct rp_span){0};

		if (!is_capability(s))
			return "process request: need: a capability is a text without spaces, "
			       "commas and semicolons";
		bytes += s.length;
		if (bytes > RP_PROCESS_NEED_BYTES_MAX)
			return "process request: need: more than 255 bytes together";
		e->need[e->need_count++] = s;
	}
	return NULL;
}

static const char *read_fields(struct rp_envelope *e)
{
	static const struct {
		const char *name;
		const char *(*read)(struct rp_envelope *e, json_t *v);
	} fields[] = {
		{"ttl_ms", read_ttl},
		{"reply_to", read_reply_to},
		{"max_bytes", read_max_bytes},
		{"priority", read_priority},
		{"fail_fast", read_fail_fast},
		{"need", read_need},
	};

	if (!json_is_integer(json_object_get(e->doc, "v")))
		return "process request: v: expected the whole number 1";
	if (is_deeper(e->doc, RP_ENVELOPE_DEPTH_MAX))
		return "process request: nested deeper than 64";
	for (unsigned i = 0; i < RP_ARRAY_SIZE(fields); i++) {
		const char *why = fields[i].read(e, json_object_get(e->doc, fields[i].name));

		if (why)
			return why;
	}
	return NULL;
}

enum rp_envelope_kind rp_envelope_parse(
	struct rp_envelope *out, struct rp_span value, const char **why)
{
	enum json_error_code code;
	const char *fault;

	*out = (struct rp_envelope){0};
	*why = NULL;
	if (!may_be_envelope(value))
		return RP_ENVELOPE_NONE;
	out->doc = load(value, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &code);
	if (!out->doc) {
		*why = fault_of_unparsed(value, code);
		return *why ? RP_ENVELOPE_BAD : RP_ENVELOPE_NONE;
	}
	if (!is_envelope(out->doc)) {
		rp_envelope_clear(out);
		return RP_ENVELOPE_NONE;
	}
	fault = read_fields(out);
	if (!fault)
		return RP_ENVELOPE_OK;
	*why = fault;
	rp_envelope_clear(out);
	return RP_ENVELOPE_BAD;
}

void rp_envelope_clear(struct rp_envelope *e)
{
	json_decref(e->doc);
	*e = (struct rp_envelope){0};
}

void rp_envelope_ceil(struct rp_envelope *e, const struct rp_envelope_limits *limits)
{
	if (limits->ttl_ms)
		e->ttl_ms = RP_MIN(e->ttl_ms, limits->ttl_ms);
	if (limits->output_bytes)
		e->max_bytes = e->max_bytes ? RP_MIN(e->max_bytes, limits->output_bytes)
					    : limits->output_bytes;
}

struct rp_meta rp_envelope_meta(const struct rp_envelope *e)
{
	struct rp_meta m = {
		.max_bytes = (uint32_t)RP_MIN(e->max_bytes, (uint64_t)UINT32_MAX),
		.reply_to = e->reply_to,
		.need_count = e->need_count,
	};

	memcpy(m.need, e->need, sizeof(m.need));
	return m;
}

char *rp_envelope_write(const struct rp_envelope *e, struct rp_span data, size_t *length)
{
	json_t *o = json_pack("{s:i, s:I}", "v", RP_ENVELOPE_VERSION, "ttl_ms",
		(json_int_t)RP_MIN(e->ttl_ms, RP_ENVELOPE_TTL_MS_MAX));
	json_t *need = e->need_count > 0 ? json_array() : NULL;
	bool bad = o == NULL;
	char *text;

	if (e->reply_to.length > 0)
		bad |= json_object_set_new(o, "reply_to",
			json_stringn((const char *)e->reply_to.data, e->reply_to.length));
	if (e->max_bytes > 0)
		bad |= json_object_set_new(o, "max_bytes", json_integer((json_int_t)e->max_bytes));
	for (uint32_t i = 0; i < e->need_count; i++)
		bad |= json_array_append_new(
			need, json_stringn((const char *)e->need[i].data, e->need[i].length));
	if (need)
		bad |= json_object_set_new(o, "need", need);
	if (e->fail_fast)
		bad |= json_object_set_new(o, "fail_fast", json_true());
	if (e->has_priority)
		bad |= json_object_set_new(o, "priority", json_integer(e->priority));
	bad |= process_set_data(o, data);
	text = bad ? NULL : json_dumps(o, JSON_COMPACT);
	json_decref(o);
	*length = text ? strlen(text) : 0;
	return text;
}
