/* SPDX-License-Identifier: Apache-2.0 */
#include <store/message.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include <jansson.h>
#include <mbedtls/base64.h>

#include <base/assert.h>

/** A life that does not fit into milliseconds is as good as none. */
#define EXPIRATION_MAX_S (INT64_MAX / 4000)

static void *alloc(size_t size)
{
	void *p = calloc(1, size);

	RP_ASSERT(p != NULL);
	return p;
}

static char *text_new(const char *text, size_t length)
{
	char *copy = alloc(length + 1);

	memcpy(copy, text, length);
	return copy;
}

void rp_bus_text_set(char **field, const char *text)
{
	char *copy = text_new(text, strlen(text));

	free(*field);
	*field = copy;
}

struct rp_bus_message *rp_bus_message_new(void)
{
	struct rp_bus_message *m = alloc(sizeof(*m));
	char **texts[] = {&m->id, &m->command, &m->data, &m->tag, &m->reply, &m->schema, &m->error};

	m->version = 1;
	for (size_t i = 0; i < RP_ARRAY_SIZE(texts); i++)
		*texts[i] = text_new("", 0);
	return m;
}

void rp_bus_message_free(struct rp_bus_message *m)
{
	if (!m)
		return;
	free(m->id);
	free(m->command);
	free(m->data);
	free(m->tag);
	free(m->destinations);
	free(m->reply);
	free(m->schema);
	free(m->error);
	json_decref(m->rest);
	free(m);
}

struct rp_bus_message *rp_bus_message_copy(const struct rp_bus_message *m)
{
	struct rp_bus_message *c = alloc(sizeof(*c));

	*c = *m;
	c->id = text_new(m->id, strlen(m->id));
	c->command = text_new(m->command, strlen(m->command));
	c->data = text_new(m->data, strlen(m->data));
	c->tag = text_new(m->tag, strlen(m->tag));
	c->reply = text_new(m->reply, strlen(m->reply));
	c->schema = text_new(m->schema, strlen(m->schema));
	c->error = text_new(m->error, strlen(m->error));
	c->destinations = alloc((m->destination_count + 1) * sizeof(uint32_t));
	if (m->destination_count)
		memcpy(c->destinations, m->destinations, m->destination_count * sizeof(uint32_t));
	c->rest = m->rest ? json_deep_copy(m->rest) : NULL;
	return c;
}

void rp_bus_message_set_destination(struct rp_bus_message *m, uint32_t destination)
{
	free(m->destinations);
	m->destinations = alloc(sizeof(uint32_t));
	m->destinations[0] = destination;
	m->destination_count = 1;
}

void rp_bus_message_set_data(struct rp_bus_message *m, struct rp_span bytes)
{
	size_t size = (bytes.length + 2) / 3 * 4 + 1, length;
	char *text = alloc(size);

	if (bytes.length > 0)
		RP_ASSERT(mbedtls_base64_encode((unsigned char *)text, size, &length, bytes.data,
				  bytes.length) == 0);
	free(m->data);
	m->data = text;
}

uint8_t *rp_bus_message_data(const struct rp_bus_message *m, size_t *length)
{
	size_t n = strlen(m->data), size = n / 4 * 3 + 4;
	uint8_t *bytes = alloc(size);

	*length = 0;
	if (n == 0 ||
		mbedtls_base64_decode(bytes, size, length, (const unsigned char *)m->data, n) == 0)
		return bytes;
	free(bytes);
	return NULL;
}

/* ---- JSON ---- */

/* Takes a field out of what is left; *bad where it is there and of another type. */
static void take_text(json_t *o, const char *name, char **field, bool *bad)
{
	json_t *v = json_object_get(o, name);

	if (json_is_string(v)) {
		free(*field);
		*field = text_new(json_string_value(v), json_string_length(v));
	} else if (v && !json_is_null(v)) {
		*bad = true;
	}
	json_object_del(o, name);
}

static void take_number(json_t *o, const char *name, int64_t *field, bool *bad)
{
	json_t *v = json_object_get(o, name);

	if (json_is_integer(v))
		*field = json_integer_value(v);
	else if (json_is_real(v) && json_real_value(v) > -9e15 && json_real_value(v) < 9e15)
		*field = (int64_t)json_real_value(v);
	else if (v && !json_is_null(v))
		*bad = true;
	json_object_del(o, name);
}

static bool is_u32(const json_t *v)
{
	return json_is_integer(v) && json_integer_value(v) >= 0 &&
	       json_integer_value(v) <= UINT32_MAX;
}

static void take_destinations(json_t *o, struct rp_bus_message *m, bool *bad)
{
	json_t *list = json_object_get(o, "dst"), *v;
	size_t i;

	if (json_is_array(list)) {
		m->destinations = alloc((json_array_size(list) + 1) * sizeof(uint32_t));
		json_array_foreach(list, i, v)
		{
			*bad |= !is_u32(v);
			m->destinations[m->destination_count++] =
				is_u32(v) ? (uint32_t)json_integer_value(v) : 0;
		}
	} else if (list && !json_is_null(list)) {
		*bad = true;
	}
	json_object_del(o, "dst");
}

struct rp_bus_message *rp_bus_message_parse(struct rp_span json)
{
	json_t *o = json_loadb((const char *)json.data, json.length, 0, NULL);
	struct rp_bus_message *m;
	int64_t source = 0;
	bool bad = false;

	if (!json_is_object(o)) {
		json_decref(o);
		return NULL;
	}
	m = rp_bus_message_new();
	take_number(o, "ver", &m->version, &bad);
	take_text(o, "uid", &m->id, &bad);
	take_text(o, "cmd", &m->command, &bad);
	take_number(o, "exp", &m->expiration, &bad);
	take_number(o, "try", &m->retry, &bad);
	take_text(o, "dat", &m->data, &bad);
	take_text(o, "tag", &m->tag, &bad);
	take_number(o, "src", &source, &bad);
	take_destinations(o, m, &bad);
	take_text(o, "ret", &m->reply, &bad);
	take_text(o, "shm", &m->schema, &bad);
	take_number(o, "now", &m->now, &bad);
	take_text(o, "err", &m->error, &bad);
	m->source = (uint32_t)source;
	if (json_object_size(o) > 0)
		m->rest = o;
	else
		json_decref(o);
	if (!bad && source >= 0 && source <= UINT32_MAX)
		return m;
	rp_bus_message_free(m);
	return NULL;
}

char *rp_bus_message_format(const struct rp_bus_message *m, size_t *length)
{
	json_t *destinations = json_array(), *o;
	char *text;

	for (uint32_t i = 0; i < m->destination_count; i++)
		json_array_append_new(destinations, json_integer(m->destinations[i]));
	o = json_pack("{s:I, s:s, s:s, s:I, s:I, s:s, s:s, s:I, s:o, s:s, s:s, s:I, s:s}", "ver",
		(json_int_t)m->version, "uid", m->id, "cmd", m->command, "exp",
		(json_int_t)m->expiration, "try", (json_int_t)m->retry, "dat", m->data, "tag",
		m->tag, "src", (json_int_t)m->source, "dst", destinations, "ret", m->reply, "shm",
		m->schema, "now", (json_int_t)m->now, "err", m->error);
	if (o && m->rest)
		json_object_update_missing(o, m->rest);
	text = o ? json_dumps(o, JSON_COMPACT) : NULL;
	json_decref(o);
	if (length)
		*length = text ? strlen(text) : 0;
	return text;
}

/* ---- time ---- */

bool rp_bus_message_ttl(const struct rp_bus_message *m, uint64_t wall_ms, uint64_t *ttl_ms)
{
	int64_t life_ms, spent_ms = 0;

	*ttl_ms = 0;
	if (m->expiration <= 0 || m->expiration > EXPIRATION_MAX_S)
		return false;
	life_ms = m->expiration * 1000;
	/* What seems to come from the future has spent nothing yet. */
	if (m->now > 0 && m->now <= EXPIRATION_MAX_S)
		spent_ms = RP_MAX((int64_t)wall_ms - m->now * 1000, 0);
	*ttl_ms = spent_ms < life_ms ? (uint64_t)(life_ms - spent_ms) : 0;
	return true;
}

/* ---- ids ---- */

void rp_bus_id_format(const uint8_t random[RP_UUID_BYTES], char id[RP_BUS_ID_SIZE])
{
	static const char digits[] = "0123456789abcdef";
	char *at = id;

	for (unsigned i = 0; i < RP_UUID_BYTES; i++) {
		uint8_t b = random[i];

		if (i == 6)
			b = 0x40 | (b & 0x0f);
		if (i == 8)
			b = 0x80 | (b & 0x3f);
		if (i == 4 || i == 6 || i == 8 || i == 10)
			*at++ = '-';
		*at++ = digits[b >> 4];
		*at++ = digits[b & 15];
	}
	*at = '\0';
}

void rp_bus_id_new(char id[RP_BUS_ID_SIZE])
{
	uint8_t random[RP_UUID_BYTES];

	while (getrandom(random, sizeof(random), 0) != (ssize_t)sizeof(random))
		;
	rp_bus_id_format(random, id);
}
