/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>
#include <mbedtls/base64.h>

#include <base/assert.h>
#include <process/output.h>

#include "process_priv.h"

#define FINAL "\"final\""
#define DATA "\"data"

const char *rp_process_code_name(enum rp_process_code code)
{
	static const char *const names[] = {
#define X(name, text) #name,
		RP_PROCESS_CODES(X)
#undef X
	};

	return (unsigned)code < RP_PROCESS_CODE_COUNT ? names[code] : "INTERNAL";
}

const char *rp_process_code_text(enum rp_process_code code)
{
	static const char *const texts[] = {
#define X(name, text) text,
		RP_PROCESS_CODES(X)
#undef X
	};

	return (unsigned)code < RP_PROCESS_CODE_COUNT ? texts[code] : "";
}

/* ---- writing ---- */

int process_set_data(json_t *o, struct rp_span data)
{
	json_t *text;
	size_t n = 0;
	char *out;
	int rc;

	if (!data.data)
		return 0;
	text = json_stringn((const char *)data.data, data.length);
	if (text)
		return json_object_set_new(o, "data", text);
	mbedtls_base64_encode(NULL, 0, &n, data.data, data.length);
	out = malloc(n);
	if (!out)
		return -1;
	rc = mbedtls_base64_encode((unsigned char *)out, n, &n, data.data, data.length);
	if (rc == 0)
		rc = json_object_set_new(o, "data_base64", json_stringn(out, n));
	free(out);
	return rc;
}

static char *dump(json_t *o, size_t *length)
{
	char *text = json_dumps(o, JSON_COMPACT);

	RP_ASSERT(text != NULL);
	json_decref(o);
	*length = strlen(text);
	return text;
}

char *rp_failure_write(enum rp_process_code code, const char *reason, size_t *length)
{
	json_t *o = json_pack("{s:i, s:b, s:{s:s, s:s}}", "v", 1, "final", 1, "error", "code",
		rp_process_code_name(code), "reason", reason ? reason : rp_process_code_text(code));

	RP_ASSERT(o != NULL);
	return dump(o, length);
}

char *rp_output_write(struct rp_span data, bool final, size_t *length)
{
	json_t *o = json_pack("{s:i}", "v", 1);

	RP_ASSERT(o != NULL);
	if (final)
		json_object_set_new(o, "final", json_true());
	RP_ASSERT(process_set_data(o, data) == 0);
	return dump(o, length);
}

/* ---- reading ---- */

static json_t *object_of(struct rp_span value, const char *holds)
{
	json_t *doc;

	/* Most outputs are none of these, and are not read. */
	if (value.length == 0 || !memmem(value.data, value.length, holds, strlen(holds)))
		return NULL;
	doc = json_loadb((const char *)value.data, value.length, JSON_ALLOW_NUL, NULL);
	if (json_is_object(doc))
		return doc;
	json_decref(doc);
	return NULL;
}

static enum rp_process_code code_of(const json_t *code)
{
	for (unsigned i = 0; json_is_string(code) && i < RP_PROCESS_CODE_COUNT; i++) {
		if (strcmp(json_string_value(code), rp_process_code_name(i)) == 0)
			return (enum rp_process_code)i;
	}
	return RP_PROCESS_INTERNAL;
}

void rp_output_read(struct rp_output *out, struct rp_span value)
{
	json_t *doc = object_of(value, FINAL);
	const json_t *error = json_object_get(doc, "error");
	const char *reason;

	*out = (struct rp_output){.final = json_is_true(json_object_get(doc, "final"))};
	if (out->final && json_is_object(error)) {
		out->failed = true;
		out->code = code_of(json_object_get(error, "code"));
		reason = json_string_value(json_object_get(error, "reason"));
		snprintf(out->reason, sizeof(out->reason), "%s", reason ? reason : "");
	}
	json_decref(doc);
}

static bool copy_out(uint8_t **copy, size_t *length, const void *data, size_t n)
{
	*copy = malloc(n + 1);
	if (!*copy)
		return false;
	memcpy(*copy, data, n);
	(*copy)[n] = '\0';
	*length = n;
	return true;
}

static bool decode(uint8_t **copy, size_t *length, const json_t *text)
{
	const unsigned char *in = (const unsigned char *)json_string_value(text);
	size_t n = json_string_length(text), size = n / 4 * 3 + 4;

	*copy = malloc(size);
	if (*copy && mbedtls_base64_decode(*copy, size, length, in, n) == 0)
		return true;
	free(*copy);
	*copy = NULL;
	return false;
}

bool rp_process_data(struct rp_span value, uint8_t **copy, size_t *length)
{
	json_t *doc = object_of(value, DATA);
	json_t *data = json_object_get(doc, "data"), *base64 = json_object_get(doc, "data_base64");
	json_t *v = json_object_get(doc, "v");
	bool done = false;
	char *text;

	*copy = NULL;
	*length = 0;
	if (!json_is_integer(v) || json_integer_value(v) != 1) {
		json_decref(doc);
		return false;
	}
	if (json_is_string(data)) {
		done = copy_out(copy, length, json_string_value(data), json_string_length(data));
	} else if (data) {
		text = json_dumps(data, JSON_COMPACT | JSON_ENCODE_ANY);
		done = text && copy_out(copy, length, text, strlen(text));
		free(text);
	} else if (json_is_string(base64)) {
		done = decode(copy, length, base64);
	}
	json_decref(doc);
	return done;
}
