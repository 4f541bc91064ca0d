/* SPDX-License-Identifier: Apache-2.0 */

/* Names, URLs and answers of ClickHouse. */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <curl/curl.h>

#include <base/assert.h>
#include <sink/clickhouse_priv.h>

static const char *const prefixes[] = {"ch:", "clickhouse:"};

static struct rp_span name_rest(struct rp_span name)
{
	for (size_t i = 0; i < RP_ARRAY_SIZE(prefixes); i++) {
		size_t n = strlen(prefixes[i]);

		if (name.length >= n && memcmp(name.data, prefixes[i], n) == 0)
			return (struct rp_span){name.data + n, name.length - n};
	}
	return (struct rp_span){0};
}

bool rp_clickhouse_is_queue(struct rp_span name)
{
	return name_rest(name).data != NULL;
}

static char *quote(char *at, struct rp_span name)
{
	*at++ = '`';
	for (size_t i = 0; i < name.length; i++) {
		if (name.data[i] == '`' || name.data[i] == '\\')
			*at++ = '\\';
		*at++ = (char)name.data[i];
	}
	*at++ = '`';
	return at;
}

char *ch_table_of(struct rp_span name, const char *database)
{
	struct rp_span table = name_rest(name);
	struct rp_span db = {(const uint8_t *)database, strlen(database)};
	const uint8_t *dot = table.length ? memchr(table.data, '.', table.length) : NULL;
	char *text, *at;

	if (dot) {
		db = (struct rp_span){table.data, (size_t)(dot - table.data)};
		table.length -= db.length + 1;
		table.data = dot + 1;
	}
	if (db.length == 0 || table.length == 0 || memchr(db.data, 0, db.length) ||
		memchr(table.data, 0, table.length))
		return NULL;
	at = text = ch_alloc(2 * (db.length + table.length) + 6);
	at = quote(at, db);
	*at++ = '.';
	quote(at, table);
	return text;
}

static char *url_part(CURLU *u, CURLUPart part, unsigned flags)
{
	char *text = NULL, *copy = NULL;

	if (curl_url_get(u, part, &text, flags) == CURLUE_OK)
		copy = strdup(text);
	curl_free(text);
	return copy;
}

int ch_url_parse(const char *text, char **url, char **user, char **password)
{
	CURLU *u = curl_url();
	char *scheme;
	bool ok;

	RP_ASSERT(u != NULL);
	*url = *user = *password = NULL;
	ok = curl_url_set(u, CURLUPART_URL, text, 0) == CURLUE_OK;
	scheme = ok ? url_part(u, CURLUPART_SCHEME, 0) : NULL;
	ok = scheme && (strcmp(scheme, "http") == 0 || strcmp(scheme, "https") == 0);
	free(scheme);
	if (ok) {
		*user = url_part(u, CURLUPART_USER, CURLU_URLDECODE);
		*password = url_part(u, CURLUPART_PASSWORD, CURLU_URLDECODE);
		curl_url_set(u, CURLUPART_USER, NULL, 0);
		curl_url_set(u, CURLUPART_PASSWORD, NULL, 0);
		*url = url_part(u, CURLUPART_URL, 0);
		ok = *url != NULL;
	}
	curl_url_cleanup(u);
	return ok ? 0 : -EINVAL;
}

static void query_add(CURLU *u, const char *name, const char *value)
{
	char *pair;

	RP_ASSERT(asprintf(&pair, "%s=%s", name, value) >= 0);
	/* The first '=' is left as it is. */
	RP_ASSERT(curl_url_set(u, CURLUPART_QUERY, pair, CURLU_APPENDQUERY | CURLU_URLENCODE) ==
		  CURLUE_OK);
	free(pair);
}

static CURLU *url_begin(const struct rp_clickhouse *c)
{
	CURLU *u = curl_url();

	RP_ASSERT(u != NULL && curl_url_set(u, CURLUPART_URL, c->url, 0) == CURLUE_OK);
	return u;
}

static char *url_end(CURLU *u)
{
	char *text = url_part(u, CURLUPART_URL, 0);

	RP_ASSERT(text != NULL);
	curl_url_cleanup(u);
	return text;
}

char *ch_insert_url(const struct rp_clickhouse *c, const char *table, const char *token)
{
	CURLU *u = url_begin(c);
	char *query;

	RP_ASSERT(asprintf(&query, "INSERT INTO %s FORMAT JSONEachRow", table) >= 0);
	query_add(u, "query", query);
	free(query);
	/* A batch is one block: it goes in whole, or not at all. */
	query_add(u, "max_insert_block_size", "100000000");
	if (c->has_parallel)
		query_add(u, "input_format_parallel_parsing", "0");
	if (token)
		query_add(u, "insert_deduplication_token", token);
	return url_end(u);
}

char *ch_probe_url(const struct rp_clickhouse *c)
{
	CURLU *u = url_begin(c);

	query_add(u, "query",
		"SELECT name FROM system.settings WHERE name IN ('insert_deduplication_token', "
		"'input_format_parallel_parsing') FORMAT TabSeparated");
	return url_end(u);
}

/*
 * Codes of the server (its ErrorCodes) that say something about a row: what cannot be parsed, what
 * its column does not take, a field that is no column.
 */
static bool is_row_code(unsigned long code)
{
	static const uint16_t codes[] = {6, 16, 20, 25, 26, 27, 32, 33, 34, 38, 41, 53, 69, 70, 72,
		117, 130, 131, 190, 321, 349, 376, 377, 407, 441, 467, 469, 675, 676, 691};

	for (size_t i = 0; i < RP_ARRAY_SIZE(codes); i++)
		if (codes[i] == code)
			return true;
	return false;
}

enum ch_outcome ch_outcome_of(const struct sink_answer *a)
{
	const char *code = a->status ? strstr(a->body, "Code: ") : NULL;
	unsigned long number = code ? strtoul(code + 6, NULL, 10) : 0;

	if (a->status == 200 && !code)
		return CH_OUTCOME_DONE;
	/* 241: its limit of memory; 307, 396: of bytes; 413: of a proxy before it. */
	if (number == 241 || number == 307 || number == 396 || a->status == 413)
		return CH_OUTCOME_LARGE;
	return is_row_code(number) ? CH_OUTCOME_ROW : CH_OUTCOME_LATER;
}
