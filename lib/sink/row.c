/* SPDX-License-Identifier: Apache-2.0 */
#include <sink/row_priv.h>

#include <stdbool.h>

#define DEPTH_MAX 256

static bool is_blank(uint8_t c)
{
	return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* Bytes that an outline is made of; all others are passed over, which most of a value is. */
static const bool is_outline[256] = {
	['"'] = true, ['{'] = true, ['}'] = true, ['['] = true, [']'] = true};

/* Behind the string that begins at `p`; NULL: it has no end. */
static const uint8_t *skip_string(const uint8_t *p, const uint8_t *end)
{
	p++;
	for (;;) {
		while (p < end && *p != '"' && *p != '\\')
			p++;
		if (p == end)
			return NULL;
		if (*p == '"')
			return p + 1;
		if (end - p < 2)
			return NULL;
		p += 2;
	}
}

/* Behind the object that begins at `p`; NULL: it is none. */
static const uint8_t *skip_object(const uint8_t *p, const uint8_t *end)
{
	uint8_t closes[DEPTH_MAX];
	unsigned depth = 0;

	while (p && p < end) {
		uint8_t c = *p;

		if (!is_outline[c]) {
			p++;
			continue;
		}
		if (c == '"') {
			p = skip_string(p, end);
			continue;
		}
		p++;
		if (c == '{' || c == '[') {
			if (depth == DEPTH_MAX)
				return NULL;
			closes[depth++] = c == '{' ? '}' : ']';
		} else {
			if (closes[--depth] != c)
				return NULL;
			if (depth == 0)
				return p;
		}
	}
	return NULL;
}

enum sink_row sink_row_outline(struct rp_span value)
{
	const uint8_t *p = value.data, *end = p + value.length;
	enum sink_row row = SINK_ROW_EMPTY;

	for (;;) {
		while (p < end && is_blank(*p))
			p++;
		if (p == end)
			return row;
		if (*p != '{')
			return SINK_ROW_BAD;
		p = skip_object(p, end);
		if (!p)
			return SINK_ROW_BAD;
		row = SINK_ROW_OBJECT;
	}
}
