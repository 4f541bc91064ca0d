/* SPDX-License-Identifier: Apache-2.0 */

/* Entries, statements, errors and letters of the upsert. */

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include <base/assert.h>
#include <sink/postgres_priv.h>

void *pg_alloc(size_t size)
{
	void *p = calloc(1, size);

	RP_ASSERT(p != NULL);
	return p;
}

char *pg_format(const char *format, ...)
{
	va_list args;
	char *text;
	int n;

	va_start(args, format);
	n = vasprintf(&text, format, args);
	va_end(args);
	RP_ASSERT(n >= 0);
	return text;
}

/* ---- entries ---- */

static struct rp_span trim(const char *from, const char *to)
{
	while (from < to && strchr(" \t\r", *from))
		from++;
	while (to > from && strchr(" \t\r", to[-1]))
		to--;
	return (struct rp_span){(const uint8_t *)from, (size_t)(to - from)};
}

static char *quote(struct rp_span name)
{
	char *text = pg_alloc(2 * name.length + 3), *at = text;

	*at++ = '"';
	for (size_t i = 0; i < name.length; i++) {
		if (name.data[i] == '"')
			*at++ = '"';
		*at++ = (char)name.data[i];
	}
	*at = '"';
	return text;
}

static char *quote_text(const char *name)
{
	return quote((struct rp_span){(const uint8_t *)name, strlen(name)});
}

static bool is_queue_key(struct rp_span event, struct rp_span *name)
{
	static const char *const roots[] = {"/q/", "/queue/"};

	for (size_t i = 0; i < RP_ARRAY_SIZE(roots); i++) {
		size_t n = strlen(roots[i]);

		if (event.length > n && memcmp(event.data, roots[i], n) == 0) {
			*name = (struct rp_span){event.data + n, event.length - n};
			return true;
		}
	}
	return false;
}

static const char *event_parse(struct pg_spec *s, struct rp_span event)
{
	if (event.length == 0)
		return "the event is missing";
	if (is_queue_key(event, &event)) {
		s->is_prefix = false;
	} else if (event.data[0] == '/') {
		s->is_prefix = true;
	}
	if (!s->is_prefix &&
		(event.length > RP_NAME_BYTES_MAX || memchr(event.data, '/', event.length)))
		return "no name of a queue";
	s->event = pg_format("%.*s", (int)event.length, (const char *)event.data);
	return NULL;
}

static const char *table_parse(struct pg_spec *s, struct rp_span table)
{
	const uint8_t *dot = table.length ? memchr(table.data, '.', table.length) : NULL;
	struct rp_span schema = {table.data, dot ? (size_t)(dot - table.data) : 0}, rest = table;
	char *a, *b;

	if (dot)
		rest = (struct rp_span){dot + 1, table.length - schema.length - 1};
	if (!dot || schema.length == 0 || rest.length == 0)
		return "expected schema.table";
	a = quote(schema);
	b = quote(rest);
	s->table = pg_format("%s.%s", a, b);
	free(a);
	free(b);
	return NULL;
}

static const char *columns_parse(struct pg_spec *s, const char *from, const char *to)
{
	for (;;) {
		const char *comma = memchr(from, ',', (size_t)(to - from));
		struct rp_span name = trim(from, comma ? comma : to);

		if (name.length == 0)
			return "a column is missing";
		if (s->key_count == PG_COLUMNS_MAX)
			return "more than 16 columns";
		s->key[s->key_count++] =
			pg_format("%.*s", (int)name.length, (const char *)name.data);
		if (!comma)
			return NULL;
		from = comma + 1;
	}
}

/* NULL, or what is wrong. */
static const char *spec_parse(struct pg_spec *s, struct rp_span text, const char *dead_letter)
{
	const char *from = (const char *)text.data, *end = from + text.length;
	const char *equal = memrchr(from, '=', text.length);
	const char *colon = memrchr(from, ':', text.length), *wrong;

	if (!equal || !colon || colon < equal)
		return "expected <event>=<schema.table>:<column>[,<column>]";
	wrong = event_parse(s, trim(from, equal));
	if (!wrong)
		wrong = table_parse(s, trim(equal + 1, colon));
	if (!wrong)
		wrong = columns_parse(s, colon + 1, end);
	if (!wrong && !s->is_prefix && strcmp(s->event, dead_letter) == 0)
		wrong = "the queue is the one for dead letters";
	return wrong;
}

void pg_spec_free(struct pg_spec *s)
{
	free(s->event);
	free(s->table);
	for (unsigned i = 0; i < s->key_count; i++)
		free(s->key[i]);
	*s = (struct pg_spec){0};
}

int pg_specs_parse(const char *text, const char *dead_letter,
	struct pg_spec specs[RP_POSTGRES_ENTRIES_MAX], char *error, size_t error_size)
{
	int count = 0;

	while (*text) {
		size_t n = strcspn(text, ";\n");
		struct rp_span entry = trim(text, text + n);
		const char *wrong = NULL;

		text += n + (text[n] != '\0');
		if (entry.length == 0)
			continue;
		if (count == RP_POSTGRES_ENTRIES_MAX) {
			wrong = "more than 64 entries";
		} else {
			specs[count] = (struct pg_spec){0};
			wrong = spec_parse(&specs[count], entry, dead_letter);
			count++;
		}
		if (!wrong)
			continue;
		snprintf(error, error_size, "%.*s: %s", (int)RP_MIN(entry.length, 200u),
			(const char *)entry.data, wrong);
		while (count > 0)
			pg_spec_free(&specs[--count]);
		return -EINVAL;
	}
	return count;
}

int rp_postgres_check(const char *upsert, const char *dead_letter, char *error, size_t error_size)
{
	struct pg_spec *specs = pg_alloc(RP_POSTGRES_ENTRIES_MAX * sizeof(*specs));
	int count = pg_specs_parse(upsert, dead_letter, specs, error, error_size);

	for (int i = 0; i < count; i++)
		pg_spec_free(&specs[i]);
	free(specs);
	return count < 0 ? count : 0;
}

/* ---- statements ---- */

/* The fields of all objects, each once, in the order in which they come. */
static enum pg_shape fields_of(json_t *root, json_t *fields, char error[PG_ERROR_SIZE])
{
	json_t *object, *unused;
	const char *name;
	size_t i;

	json_array_foreach(root, i, object)
	{
		if (!json_is_object(object)) {
			snprintf(error, PG_ERROR_SIZE, "expected an object or an array of them");
			return PG_SHAPE_BAD;
		}
		json_object_foreach(object, name, unused)
			json_object_set_new(fields, name, json_true());
		if (json_object_size(object) == 0) {
			snprintf(error, PG_ERROR_SIZE, "an object without a field");
			return PG_SHAPE_BAD;
		}
	}
	return json_array_size(root) > 0 ? PG_SHAPE_OK : PG_SHAPE_EMPTY;
}

static const char *type_of(const struct pg_entry *e, const char *name)
{
	for (unsigned i = 0; i < e->column_count; i++)
		if (strcmp(e->columns[i].name, name) == 0)
			return e->columns[i].type;
	return NULL;
}

static bool is_key(const struct pg_spec *s, const char *name)
{
	for (unsigned i = 0; i < s->key_count; i++)
		if (strcmp(s->key[i], name) == 0)
			return true;
	return false;
}

static void append(FILE *f, const char *separator, bool *first, const char *text)
{
	fprintf(f, "%s%s", *first ? "" : separator, text);
	*first = false;
}

/* Lists of the statement: the columns, with their types, what is set, what makes the row. */
static char *statement(const struct pg_entry *e, json_t *fields)
{
	char *columns, *typed, *sets, *keys, *sql;
	size_t n;
	FILE *fc = open_memstream(&columns, &n), *ft = open_memstream(&typed, &n);
	FILE *fs = open_memstream(&sets, &n), *fk = open_memstream(&keys, &n);
	bool c = true, t = true, s = true, k = true;
	const char *name;
	json_t *unused;

	RP_ASSERT(fc && ft && fs && fk);
	json_object_foreach(fields, name, unused)
	{
		char *quoted = quote_text(name);
		char *with_type = pg_format("%s %s", quoted, type_of(e, name));
		char *set = pg_format("%s=excluded.%s", quoted, quoted);

		append(fc, ",", &c, quoted);
		append(ft, ",", &t, with_type);
		if (!is_key(&e->spec, name))
			append(fs, ",", &s, set);
		free(quoted);
		free(with_type);
		free(set);
	}
	for (unsigned i = 0; i < e->spec.key_count; i++) {
		char *quoted = quote_text(e->spec.key[i]);

		append(fk, ",", &k, quoted);
		free(quoted);
	}
	fclose(fc);
	fclose(ft);
	fclose(fs);
	fclose(fk);
	sql = pg_format("insert into %s (%s) select %s from jsonb_to_recordset($1::jsonb) as x(%s) "
			"on conflict (%s) do %s%s",
		e->spec.table, columns, columns, typed, keys, s ? "nothing" : "update set ", sets);
	free(columns);
	free(typed);
	free(sets);
	free(keys);
	return sql;
}

void pg_statement_forget(struct pg_entry *e)
{
	json_decref(e->last_fields);
	free(e->last_sql);
	e->last_fields = NULL;
	e->last_sql = NULL;
}

/* The same names in the same order. */
static bool fields_same(json_t *a, json_t *b)
{
	void *i = json_object_iter(a), *k = json_object_iter(b);

	while (i && k && strcmp(json_object_iter_key(i), json_object_iter_key(k)) == 0) {
		i = json_object_iter_next(a, i);
		k = json_object_iter_next(b, k);
	}
	return !i && !k;
}

/* What values of these fields are written with: mostly what the last one was. */
static const char *statement_of(struct pg_entry *e, json_t *fields)
{
	if (!e->last_fields || !fields_same(e->last_fields, fields)) {
		pg_statement_forget(e);
		e->last_fields = json_incref(fields);
		e->last_sql = statement(e, fields);
	}
	return e->last_sql;
}

enum pg_shape pg_statement(struct pg_entry *e, struct rp_span value, char **sql, char **json,
	char error[PG_ERROR_SIZE])
{
	json_error_t wrong;
	json_t *root =
		json_loadb((const char *)value.data, value.length, JSON_DECODE_INT_AS_REAL, &wrong);
	json_t *fields = json_object(), *list = root, *unused;
	enum pg_shape shape = PG_SHAPE_BAD;
	const char *name;

	if (!root) {
		snprintf(error, PG_ERROR_SIZE, "no JSON: %s", wrong.text);
	} else {
		if (json_is_object(root)) {
			list = json_array();
			json_array_append(list, root);
		}
		if (json_is_array(list))
			shape = fields_of(list, fields, error);
		else
			snprintf(error, PG_ERROR_SIZE, "expected an object or an array of them");
	}
	if (shape == PG_SHAPE_OK)
		json_object_foreach(
			fields, name, unused) if (!type_of(e, name) && shape == PG_SHAPE_OK)
		{
			if (e->column_count == 0)
				snprintf(error, PG_ERROR_SIZE, "there is no table %s",
					e->spec.table);
			else
				snprintf(error, PG_ERROR_SIZE, "%s has no column %s", e->spec.table,
					name);
			shape = PG_SHAPE_UNKNOWN;
		}
	if (shape == PG_SHAPE_OK) {
		*sql = pg_format("%s", statement_of(e, fields));
		*json = pg_format(list == root ? "%.*s" : "[%.*s]", (int)value.length,
			(const char *)value.data);
	}
	if (list != root)
		json_decref(list);
	json_decref(root);
	json_decref(fields);
	return shape;
}

/*
 * What the value itself is to blame for, whatever the server's state: its data (22), what the table
 * demands (23), the same row twice in one value (21000), a column or table that is not there, a
 * column that is made by the server, a type that does not fit, a row that is too large (54).
 */
bool pg_is_final(const char *sqlstate)
{
	static const char *const classes[] = {"22", "23", "21", "54"};
	static const char *const codes[] = {"42703", "42P01", "3F000", "428C9", "42804"};

	for (size_t i = 0; i < RP_ARRAY_SIZE(classes); i++)
		if (strncmp(sqlstate, classes[i], 2) == 0)
			return true;
	for (size_t i = 0; i < RP_ARRAY_SIZE(codes); i++)
		if (strcmp(sqlstate, codes[i]) == 0)
			return true;
	return false;
}

/* ---- letters ---- */

/* What is no UTF-8 has a question mark for each byte that is none. */
static json_t *json_text(const uint8_t *data, size_t length)
{
	json_t *text = json_stringn((const char *)data, length);
	char *copy;

	if (text)
		return text;
	copy = pg_alloc(length + 1);
	for (size_t i = 0; i < length; i++)
		copy[i] = data[i] < 0x80 ? (char)data[i] : '?';
	text = json_stringn(copy, length);
	free(copy);
	return text;
}

char *pg_letter(const struct pg_value *v, size_t *length)
{
	const struct pg_spec *s = &v->e->spec;
	json_t *o = json_pack("{s:i, s:{s:o, s:o, s:s, s:o, s:I}}", "v", 1, "dead_letter",
		s->is_prefix ? "prefix" : "queue",
		json_text((const uint8_t *)s->event, strlen(s->event)),
		s->is_prefix ? "key" : "tail", json_text(v->name, v->name_length), "reason",
		"refused", "error", json_text((const uint8_t *)v->error, strlen(v->error)),
		"deliveries", (json_int_t)v->attempt);
	char *head = o ? json_dumps(o, JSON_COMPACT) : NULL, *text;
	size_t n;

	RP_ASSERT(head != NULL);
	json_decref(o);
	n = strlen(head);
	*length = n + 1 + v->length;
	text = pg_alloc(*length + 1);
	memcpy(text, head, n);
	text[n] = '\n';
	memcpy(text + n + 1, v->value, v->length);
	free(head);
	return text;
}

void pg_tail_of_key(struct rp_span key, char tail[RP_TAIL_BYTES_MAX + 1])
{
	size_t n = 0;

	for (size_t i = 0; i < key.length && n + 3 <= RP_TAIL_BYTES_MAX; i++) {
		if (key.data[i] == '/' || key.data[i] == '%')
			n += (size_t)sprintf(tail + n, "%%%02X", key.data[i]);
		else
			tail[n++] = (char)key.data[i];
	}
	tail[n] = '\0';
}
