/* SPDX-License-Identifier: Apache-2.0 */
#include "conf_priv.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

#include <base/assert.h>
#include <base/impair.h>

#define AUTO "auto"

bool conf_bool_parse(const char *text, bool *value)
{
	static const char *const yes[] = {"true", "yes", "on"}, *const no[] = {
									"false", "no", "off"};

	for (unsigned i = 0; i < RP_ARRAY_SIZE(yes); i++) {
		if (strcasecmp(text, yes[i]) == 0 || strcasecmp(text, no[i]) == 0) {
			*value = strcasecmp(text, yes[i]) == 0;
			return true;
		}
	}
	return false;
}

/* Millionths, so that "1.5 MiB" is exact. */
static bool fraction_parse(const char **text, uint64_t *millionths)
{
	uint64_t scale = 100000;

	*millionths = 0;
	if (**text != '.')
		return true;
	(*text)++;
	if (!isdigit((unsigned char)**text))
		return false;
	for (; isdigit((unsigned char)**text); (*text)++, scale /= 10) {
		if (scale == 0)
			return false;
		*millionths += (uint64_t)(**text - '0') * scale;
	}
	return true;
}

static bool bytes_parse(const char *text, uint64_t *value)
{
	static const struct {
		const char *name;
		uint64_t bytes;
	} units[] = {
		{"", 1},
		{"B", 1},
		{"KiB", 1ull << 10},
		{"MiB", 1ull << 20},
		{"GiB", 1ull << 30},
		{"TiB", 1ull << 40},
		{"kB", 1000},
		{"MB", 1000000},
		{"GB", 1000000000},
		{"TB", 1000000000000},
	};
	uint64_t whole = 0, millionths, v;
	__uint128_t bytes;

	if (!isdigit((unsigned char)*text))
		return false;
	for (; isdigit((unsigned char)*text); text++) {
		if (__builtin_mul_overflow(whole, 10, &whole) ||
			__builtin_add_overflow(whole, (uint64_t)(*text - '0'), &whole))
			return false;
	}
	if (!fraction_parse(&text, &millionths))
		return false;
	while (*text == ' ')
		text++;
	for (unsigned i = 0; i < RP_ARRAY_SIZE(units); i++) {
		if (strcasecmp(text, units[i].name) != 0)
			continue;
		bytes = ((__uint128_t)whole * 1000000 + millionths) * units[i].bytes;
		v = (uint64_t)(bytes / 1000000);
		if (bytes % 1000000 != 0 || bytes / 1000000 > UINT64_MAX)
			return false;
		*value = v;
		return true;
	}
	return false;
}

/* Length of the well-formed UTF-8 character at `s` with its code point, 0 when it is none. */
static unsigned utf8_next(const unsigned char *s, uint32_t *code)
{
	static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
	unsigned length = *s < 0x80	  ? 1
			  : *s >> 5 == 6  ? 2
			  : *s >> 4 == 14 ? 3
			  : *s >> 3 == 30 ? 4
					  : 0;

	if (length == 0)
		return 0;
	*code = length == 1 ? *s : *s & (0x7fu >> length);
	for (unsigned i = 1; i < length; i++) {
		if (s[i] >> 6 != 2)
			return 0;
		*code = *code << 6 | (s[i] & 0x3f);
	}
	if (*code < least[length] || *code > 0x10ffff || (*code >= 0xd800 && *code <= 0xdfff))
		return 0;
	return length;
}

bool conf_utf8_ok(const char *text)
{
	const unsigned char *s = (const unsigned char *)text;

	while (*s) {
		uint32_t code;
		unsigned length = utf8_next(s, &code);

		if (length == 0)
			return false;
		s += length;
	}
	return true;
}

static bool zone_ok(const char *text)
{
	const char *equal = strrchr(text, '=');
	struct rp_conf_endpoint e;
	char host[300];

	if (!equal || !equal[1] || (size_t)(equal - text) >= sizeof(host))
		return false;
	memcpy(host, text, (size_t)(equal - text));
	host[equal - text] = '\0';
	return rp_conf_endpoint_parse(host, 1, &e) == 0 && !e.is_unix;
}

bool conf_value_item_ok(const struct conf_entry *e, const char *text)
{
	struct rp_conf_endpoint endpoint;
	enum rp_log_subject subject;
	enum rp_log_level level;
	uint8_t address[16], bits, mac[6];
	bool six;

	if (!conf_utf8_ok(text))
		return false;
	if (e->type == CONF_T_IP4NETS)
		return rp_conf_ip4net_parse(text, address, &bits) == 0;
	if (e->type == CONF_T_IP6NETS)
		return rp_conf_ip6net_parse(text, address, &bits) == 0;
	if (e->type == CONF_T_IPS)
		return rp_conf_ip_parse(text, address, &six) == 0;
	if (e->type == CONF_T_NEIGHS)
		return rp_conf_neighbour_parse(text, address, &six, mac) == 0;
	if (e->type == CONF_T_URLS)
		return rp_conf_endpoint_parse(text, 2379, &endpoint) == 0;
	if (e->type == CONF_T_ZONES)
		return zone_ok(text);
	if (e->type == CONF_T_LEVELS)
		return rp_conf_level_parse(text, &subject, &level) == 0;
	return text[0] != '\0';
}

/* Is `text` good for a knob that stays a text? */
static bool text_ok(const struct conf_entry *e, const char *text, char *why, size_t why_size)
{
	uint8_t address[16];
	unsigned cpus[RP_SHARDS_MAX];
	struct rp_conf_endpoint endpoint;
	struct rp_impair_spec spec;

	if (!conf_utf8_ok(text)) {
		snprintf(why, why_size, "not UTF-8");
		return false;
	}
	if (e->type == CONF_T_CPUS)
		return strcmp(text, AUTO) == 0 || rp_conf_cpus_parse(text, cpus, RP_SHARDS_MAX) > 0;
	if (text[0] == '\0' || e->type == CONF_T_STR || e->type == CONF_T_SECRET)
		return true;
	if (e->type == CONF_T_UUID)
		return rp_conf_uuid_parse(text, address) == 0;
	if (e->type == CONF_T_ENDPOINT)
		return rp_conf_endpoint_parse(text, 0, &endpoint) == 0 &&
		       (endpoint.port != 0 || endpoint.is_unix);
	RP_ASSERT(e->type == CONF_T_IMPAIR);
	return rp_impair_parse(text, &spec, why, why_size) == 0;
}

static bool number_parse(const struct conf_entry *e, const char *text, uint64_t *value)
{
	bool ok = e->type == CONF_T_BYTES ? bytes_parse(text, value) : conf_u64_parse(text, value);

	return ok && *value >= e->min && *value <= e->max;
}

static void number_store(const struct conf_entry *e, uint64_t value, void *field)
{
	if (e->type == CONF_T_U16)
		*(uint16_t *)field = (uint16_t)value;
	else if (e->type == CONF_T_U32 || e->type == CONF_T_U32_AUTO)
		*(uint32_t *)field = (uint32_t)value;
	else
		*(uint64_t *)field = value;
}

static uint64_t number_load(const struct conf_entry *e, const void *field)
{
	if (e->type == CONF_T_U16)
		return *(const uint16_t *)field;
	if (e->type == CONF_T_U32)
		return *(const uint32_t *)field;
	if (e->type == CONF_T_U32_AUTO) {
		uint32_t v = *(const uint32_t *)field;

		return v == RP_CONF_AUTO_U32 ? RP_CONF_AUTO_U64 : v;
	}
	return *(const uint64_t *)field;
}

static bool is_number(enum conf_type type)
{
	return type == CONF_T_U16 || type == CONF_T_U32 || type == CONF_T_U64 ||
	       type == CONF_T_BYTES || type == CONF_T_U32_AUTO || type == CONF_T_U64_AUTO;
}

static bool may_be_auto(enum conf_type type)
{
	return type == CONF_T_U32_AUTO || type == CONF_T_U64_AUTO;
}

static bool level_parse(const char *text, enum rp_log_level *level)
{
	for (unsigned l = RP_LOG_ERROR; l <= RP_LOG_TRACE; l++) {
		if (strcmp(text, rp_log_level_name((enum rp_log_level)l)) == 0) {
			*level = (enum rp_log_level)l;
			return true;
		}
	}
	return false;
}

static bool choice_parse(const struct conf_type_info *info, const char *text, unsigned *value)
{
	bool on;

	for (unsigned i = 0; i < info->choices_count; i++) {
		if (strcmp(text, info->choices[i]) == 0) {
			*value = i;
			return true;
		}
	}
	/* YAML's other spellings of on and off. */
	if (!conf_bool_parse(text, &on))
		return false;
	for (unsigned i = 0; i < info->choices_count; i++) {
		if (strcmp(on ? "on" : "off", info->choices[i]) == 0) {
			*value = i;
			return true;
		}
	}
	return false;
}

bool conf_value_parse(const struct conf_entry *e, const char *text, void *field,
	struct rp_conf_memory *m, char *why, size_t why_size)
{
	const struct conf_type_info *info = conf_type_info(e->type);
	uint64_t number;

	RP_ASSERT(!conf_is_list(e));
	why[0] = '\0';
	if (info->choices)
		return choice_parse(info, text, field);
	if (e->type == CONF_T_BOOL)
		return conf_bool_parse(text, field);
	if (e->type == CONF_T_LOGLEVEL)
		return level_parse(text, field);
	if (may_be_auto(e->type) && strcmp(text, AUTO) == 0) {
		number_store(e, RP_CONF_AUTO_U64, field);
		return true;
	}
	if (is_number(e->type)) {
		if (!number_parse(e, text, &number))
			return false;
		number_store(e, number, field);
		return true;
	}
	if (!text_ok(e, text, why, why_size))
		return false;
	*(const char **)field = conf_text_copy(m, text, strlen(text));
	return true;
}

/* Code points that a YAML stream may hold as they are, line breaks apart. */
static bool yaml_printable(uint32_t code)
{
	return (code >= 0x20 && code <= 0x7e) ||
	       (code >= 0xa0 && code <= 0xfffd && code != 0xfeff && code != 0x2028 &&
		       code != 0x2029) ||
	       code >= 0x10000;
}

static bool yaml_plain_ok(const char *text)
{
	size_t length = strlen(text);

	if (!isalnum((unsigned char)text[0]) && text[0] != '/')
		return false;
	for (const char *c = text; *c; c++) {
		if (!isalnum((unsigned char)*c) && !strchr("_./:-", *c))
			return false;
	}
	return text[length - 1] != ':' && strcasecmp(text, "null") != 0;
}

void conf_text_print_yaml(const char *text, FILE *out)
{
	const unsigned char *s = (const unsigned char *)text;

	if (yaml_plain_ok(text)) {
		fputs(text, out);
		return;
	}
	fputc('"', out);
	while (*s) {
		uint32_t code = *s;
		unsigned length = utf8_next(s, &code);

		if (code == '"' || code == '\\')
			fprintf(out, "\\%c", (char)code);
		else if (length > 0 && yaml_printable(code))
			fwrite(s, 1, length, out);
		else if (code <= 0xffff)
			fprintf(out, "\\u%04x", code);
		else
			fprintf(out, "\\U%08x", code);
		s += length ? length : 1;
	}
	fputc('"', out);
}

static void bytes_print(uint64_t bytes, FILE *out)
{
	static const char *const units[] = {"", " KiB", " MiB", " GiB", " TiB"};
	unsigned unit = 0;

	while (bytes > 0 && bytes % 1024 == 0 && unit + 1 < RP_ARRAY_SIZE(units)) {
		bytes /= 1024;
		unit++;
	}
	fprintf(out, "%llu%s", (unsigned long long)bytes, units[unit]);
}

static void list_print(const struct rp_conf_list *list, FILE *out)
{
	fputc('[', out);
	for (unsigned i = 0; i < list->count; i++) {
		if (i > 0)
			fputs(", ", out);
		conf_text_print_yaml(list->items[i], out);
	}
	fputc(']', out);
}

void conf_value_print(const struct conf_entry *e, const void *field, FILE *out)
{
	const struct conf_type_info *info = conf_type_info(e->type);

	if (info->choices) {
		fputs(info->choices[*(const unsigned *)field], out);
	} else if (conf_is_list(e)) {
		list_print(field, out);
	} else if (e->type == CONF_T_BOOL) {
		fputs(*(const bool *)field ? "true" : "false", out);
	} else if (e->type == CONF_T_LOGLEVEL) {
		fputs(rp_log_level_name(*(const enum rp_log_level *)field), out);
	} else if (e->type == CONF_T_BYTES) {
		bytes_print(number_load(e, field), out);
	} else if (is_number(e->type)) {
		uint64_t v = number_load(e, field);

		if (may_be_auto(e->type) && v == RP_CONF_AUTO_U64)
			fputs(AUTO, out);
		else
			fprintf(out, "%llu", (unsigned long long)v);
	} else {
		conf_text_print_yaml(*(const char *const *)field, out);
	}
}

static bool list_equal(const struct rp_conf_list *a, const struct rp_conf_list *b)
{
	if (a->count != b->count)
		return false;
	for (unsigned i = 0; i < a->count; i++) {
		if (strcmp(a->items[i], b->items[i]) != 0)
			return false;
	}
	return true;
}

bool conf_value_equal(const struct conf_entry *e, const void *a, const void *b)
{
	const struct conf_type_info *info = conf_type_info(e->type);

	if (conf_is_list(e))
		return list_equal(a, b);
	if (info->choices || e->type == CONF_T_LOGLEVEL)
		return *(const unsigned *)a == *(const unsigned *)b;
	if (e->type == CONF_T_BOOL)
		return *(const bool *)a == *(const bool *)b;
	if (is_number(e->type))
		return number_load(e, a) == number_load(e, b);
	return strcmp(*(const char *const *)a, *(const char *const *)b) == 0;
}

void conf_value_copy(
	const struct conf_entry *e, void *to, const void *from, struct rp_conf_memory *m)
{
	const struct conf_type_info *info = conf_type_info(e->type);

	if (conf_is_list(e)) {
		const struct rp_conf_list *f = from;
		struct rp_conf_list *t = to;

		t->items = conf_items_new(m, f->count);
		t->count = t->items ? f->count : 0;
		for (unsigned i = 0; i < t->count; i++)
			t->items[i] = conf_text_copy(m, f->items[i], strlen(f->items[i]));
	} else if (info->choices || e->type == CONF_T_LOGLEVEL) {
		*(unsigned *)to = *(const unsigned *)from;
	} else if (e->type == CONF_T_BOOL) {
		*(bool *)to = *(const bool *)from;
	} else if (is_number(e->type)) {
		number_store(e, number_load(e, from), to);
	} else {
		const char *text = *(const char *const *)from;

		*(const char **)to = conf_text_copy(m, text, strlen(text));
	}
}

/* "auto, tcp or ktcp" */
static void choices_print(const struct conf_type_info *info, char *text, size_t size)
{
	size_t at = 0;

	for (unsigned i = 0; i < info->choices_count && at < size; i++) {
		const char *before = i == 0 ? "" : i + 1 == info->choices_count ? " or " : ", ";

		at += (size_t)snprintf(text + at, size - at, "%s%s", before, info->choices[i]);
	}
}

void conf_expected(const struct conf_entry *e, char *text, size_t size)
{
	const struct conf_type_info *info = conf_type_info(e->type);
	const char *space = e->unit[0] ? " " : "";

	if (info->choices)
		choices_print(info, text, size);
	else if (is_number(e->type))
		snprintf(text, size, "%s from %llu to %llu%s%s", info->expected,
			(unsigned long long)e->min, (unsigned long long)e->max, space, e->unit);
	else
		snprintf(text, size, "%s", info->expected);
}
