/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a driver file (drivers-config/). One table names each value: its place, kind and bounds. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <yaml.h>

#include <base/units.h>

#include "port_priv.h"

/** Longest driver file that is read. */
#define FILE_BYTES_MAX (64u << 10)
#define GENERIC "generic"

enum kind {
	KIND_TEXT,
	KIND_UINT,
	KIND_BOOL,
	KIND_CHECKSUM,
	KIND_REDIAL,
	KIND_DEVARGS,
	KIND_NOTES, /* a list for the reader */
};

struct field {
	const char *section; /* "" = top level */
	const char *key;
	enum kind kind;
	size_t offset;
	size_t size; /* of a text */
	uint32_t min, max;
};

#define TEXT(section, key, member)                                             \
	{                                                                      \
		section, key, KIND_TEXT, offsetof(struct port_driver, member), \
			sizeof(((struct port_driver *)0)->member), 0, 0        \
	}
#define UINT(section, key, member, min, max)                                               \
	{                                                                                  \
		section, key, KIND_UINT, offsetof(struct port_driver, member), 0, min, max \
	}
#define OTHER(section, key, kind, member)                                         \
	{                                                                         \
		section, key, kind, offsetof(struct port_driver, member), 0, 0, 0 \
	}

static const struct field fields[] = {
	TEXT("", "driver", name),
	TEXT("", "description", description),
	TEXT("", "remedy", remedy),
	OTHER("", "devargs", KIND_DEVARGS, devargs),
	OTHER("", "quirks", KIND_NOTES, origin),
	UINT("rings", "rx", rings_rx, 1, 32768),
	UINT("rings", "tx", rings_tx, 1, 32768),
	UINT("rings", "tx_free", rings_tx_free, 0, 32768),
	OTHER("rings", "keeps", KIND_BOOL, keeps_mbufs),
	UINT("queues", "max", queues_max, 1, 256),
	TEXT("queues", "devarg", queues_devarg),
	UINT("wire", "mtu_max", mtu_max, 68, 65535),
	OTHER("wire", "isolated", KIND_BOOL, isolated),
	OTHER("wire", "own_mac", KIND_BOOL, own_mac),
	OTHER("wire", "mac_devarg", KIND_BOOL, mac_devarg),
	OTHER("wire", "promiscuous", KIND_BOOL, promiscuous),
	OTHER("offloads", "checksum", KIND_CHECKSUM, checksum_hw),
	OTHER("offloads", "chains", KIND_BOOL, chains),
	OTHER("offloads", "tso", KIND_BOOL, tso),
	TEXT("socket", "devarg", socket_devarg),
	TEXT("socket", "bound_when", socket_bound_when),
	TEXT("socket", "abstract_when", socket_abstract_when),
	OTHER("redial", "action", KIND_REDIAL, redial),
	TEXT("redial", "when", redial_when),
	UINT("redial", "after_ms", redial_after_ms, 100, 600000),
};

/** One file being read. */
struct reading {
	yaml_document_t *doc;
	const char *origin;
	struct port_driver *driver;
	char *error;
	size_t error_size;
};

static int fail_at(
	const struct reading *r, const yaml_node_t *n, const char *what, const char *text)
{
	return port_fail(r->error, r->error_size, -EINVAL, "%s:%zu:%zu: %s%s%s", r->origin,
		n->start_mark.line + 1, n->start_mark.column + 1, what, *text ? ": " : "", text);
}

static const char *scalar(const yaml_node_t *n)
{
	return (const char *)n->data.scalar.value;
}

static int read_word(const struct reading *r, const yaml_node_t *n, const char *const *words,
	unsigned count, const char *expected)
{
	for (unsigned i = 0; i < count; i++)
		if (strcmp(scalar(n), words[i]) == 0)
			return (int)i;
	return fail_at(r, n, expected, scalar(n));
}

static int read_uint(const struct reading *r, const yaml_node_t *n, const struct field *f)
{
	char *end;
	unsigned long value;
	char range[64];

	errno = 0;
	value = strtoul(scalar(n), &end, 10);
	if (errno != 0 || *end != '\0' || end == scalar(n) || *scalar(n) == '-' || value < f->min ||
		value > f->max) {
		snprintf(range, sizeof(range), "%s must be a number from %u to %u", f->key, f->min,
			f->max);
		return fail_at(r, n, range, scalar(n));
	}
	*(uint32_t *)((char *)r->driver + f->offset) = (uint32_t)value;
	return 0;
}

static int read_devargs(const struct reading *r, const yaml_node_t *n)
{
	struct port_driver *d = r->driver;

	if (n->type != YAML_MAPPING_NODE)
		return fail_at(r, n, "devargs must be a mapping", "");
	for (yaml_node_pair_t *p = n->data.mapping.pairs.start; p < n->data.mapping.pairs.top;
		p++) {
		const yaml_node_t *k = yaml_document_get_node(r->doc, p->key);
		const yaml_node_t *v = yaml_document_get_node(r->doc, p->value);
		struct port_arg *a = &d->devargs[d->devarg_count];

		if (k->type != YAML_SCALAR_NODE || v->type != YAML_SCALAR_NODE)
			return fail_at(r, k, "an argument must be a plain value", "");
		if (d->devarg_count >= PORT_ARGS_MAX ||
			snprintf(a->key, sizeof(a->key), "%s", scalar(k)) >= (int)sizeof(a->key) ||
			snprintf(a->value, sizeof(a->value), "%s", scalar(v)) >=
				(int)sizeof(a->value))
			return fail_at(r, k, "too many or too long arguments", scalar(k));
		d->devarg_count++;
	}
	return 0;
}

static int read_value(const struct reading *r, const struct field *f, const yaml_node_t *n)
{
	static const char *const bools[] = {"false", "true"};
	static const char *const checksums[] = {"sw", "hw"};
	static const char *const redials[] = {"none", "restart", "replug"};
	char *at = (char *)r->driver + f->offset;
	int word = 0;

	if (f->kind == KIND_DEVARGS)
		return read_devargs(r, n);
	if (f->kind == KIND_NOTES)
		return n->type == YAML_SEQUENCE_NODE ? 0 : fail_at(r, n, "must be a list", f->key);
	if (n->type != YAML_SCALAR_NODE)
		return fail_at(r, n, "must be a plain value", f->key);
	switch (f->kind) {
	case KIND_TEXT:
		if (snprintf(at, f->size, "%s", scalar(n)) >= (int)f->size)
			return fail_at(r, n, "text too long", f->key);
		return 0;
	case KIND_UINT:
		return read_uint(r, n, f);
	case KIND_BOOL:
		word = read_word(r, n, bools, RP_ARRAY_SIZE(bools), "must be true or false");
		break;
	case KIND_CHECKSUM:
		word = read_word(r, n, checksums, RP_ARRAY_SIZE(checksums), "must be sw or hw");
		break;
	case KIND_REDIAL:
		word = read_word(
			r, n, redials, RP_ARRAY_SIZE(redials), "must be none, restart or replug");
		if (word >= 0)
			*(uint32_t *)at = (uint32_t)word;
		return word < 0 ? word : 0;
	case KIND_DEVARGS:
	case KIND_NOTES:
		return 0;
	}
	if (word >= 0)
		*(bool *)at = word != 0;
	return word < 0 ? word : 0;
}

static const struct field *find_field(const char *section, const char *key)
{
	for (unsigned i = 0; i < RP_ARRAY_SIZE(fields); i++)
		if (strcmp(fields[i].section, section) == 0 && strcmp(fields[i].key, key) == 0)
			return &fields[i];
	return NULL;
}

static bool is_section(const char *name)
{
	for (unsigned i = 0; i < RP_ARRAY_SIZE(fields); i++)
		if (*name && strcmp(fields[i].section, name) == 0)
			return true;
	return false;
}

static int read_section(const struct reading *r, const char *section, const yaml_node_t *n)
{
	if (n->type != YAML_MAPPING_NODE)
		return fail_at(r, n, "must be a mapping", section);
	for (yaml_node_pair_t *p = n->data.mapping.pairs.start; p < n->data.mapping.pairs.top;
		p++) {
		const yaml_node_t *k = yaml_document_get_node(r->doc, p->key);
		const yaml_node_t *v = yaml_document_get_node(r->doc, p->value);
		const struct field *f;
		int rc;

		if (k->type != YAML_SCALAR_NODE)
			return fail_at(r, k, "a key must be a word", "");
		f = find_field(section, scalar(k));
		if (f)
			rc = read_value(r, f, v);
		else if (*section == '\0' && is_section(scalar(k)))
			rc = read_section(r, scalar(k), v);
		else
			rc = fail_at(r, k, "unknown key", scalar(k));
		if (rc < 0)
			return rc;
	}
	return 0;
}

int port_driver_parse(struct port_driver *driver, const char *text, const char *origin, char *error,
	size_t error_size)
{
	yaml_parser_t parser;
	yaml_document_t doc;
	const yaml_node_t *root;
	struct reading r = {&doc, origin, driver, error, error_size};
	int rc;

	*driver = (struct port_driver){
		.rings_rx = 1024,
		.rings_tx = 1024,
		.queues_max = 256,
		.mtu_max = 65535,
		.chains = true,
		.redial_after_ms = 1000,
	};
	snprintf(driver->origin, sizeof(driver->origin), "%s", origin);
	if (!yaml_parser_initialize(&parser))
		return port_fail(error, error_size, -ENOMEM, "%s: out of memory", origin);
	yaml_parser_set_input_string(&parser, (const unsigned char *)text, strlen(text));
	if (!yaml_parser_load(&parser, &doc)) {
		rc = port_fail(error, error_size, -EINVAL, "%s:%zu:%zu: %s", origin,
			parser.problem_mark.line + 1, parser.problem_mark.column + 1,
			parser.problem ? parser.problem : "not YAML");
		yaml_parser_delete(&parser);
		return rc;
	}
	root = yaml_document_get_root_node(&doc);
	if (!root)
		rc = port_fail(error, error_size, -EINVAL, "%s:1:1: the file is empty", origin);
	else
		rc = read_section(&r, "", root);
	if (rc == 0 && driver->name[0] == '\0')
		rc = fail_at(&r, root, "the key driver is missing", "");
	yaml_document_delete(&doc);
	yaml_parser_delete(&parser);
	return rc;
}

static int parse_file(struct port_driver *driver, const char *path, char *error, size_t error_size)
{
	FILE *f = fopen(path, "re");
	char *text;
	size_t n;
	int rc;

	if (!f)
		return port_fail(
			error, error_size, -errno, "cannot read %s: %s", path, strerror(errno));
	text = malloc(FILE_BYTES_MAX + 1);
	if (!text) {
		fclose(f);
		return port_fail(error, error_size, -ENOMEM, "%s: out of memory", path);
	}
	n = fread(text, 1, FILE_BYTES_MAX + 1, f);
	fclose(f);
	if (n > FILE_BYTES_MAX) {
		rc = port_fail(error, error_size, -EFBIG, "%s is longer than %u bytes", path,
			FILE_BYTES_MAX);
	} else {
		text[n] = '\0';
		rc = port_driver_parse(driver, text, path, error, error_size);
	}
	free(text);
	return rc;
}

/* "net_memif0" is a device of "net_memif": the longest name that begins it, then digits. */
static const struct port_driver_text *find_built_in(const char *name)
{
	const struct port_driver_text *best = NULL;

	for (const struct port_driver_text *t = port_driver_texts; t->name; t++)
		if (strncmp(name, t->name, strlen(t->name)) == 0 &&
			(!best || strlen(t->name) > strlen(best->name)))
			best = t;
	return best;
}

int port_driver_load(struct port_driver *driver, const char *name, const char *path, char *error,
	size_t error_size)
{
	const struct port_driver_text *t = find_built_in(name);
	char installed[PATH_MAX];
	char family[PORT_KEY_SIZE];
	size_t length;

	if (path && *path && strcmp(path, "auto") != 0)
		return parse_file(driver, path, error, error_size);
	snprintf(family, sizeof(family), "%s", t ? t->name : name);
	length = strlen(family);
	while (!t && length > 0 && family[length - 1] >= '0' && family[length - 1] <= '9')
		family[--length] = '\0';
	snprintf(installed, sizeof(installed), "%s/%s.yaml", RP_DRIVERS_DIR, family);
	if (access(installed, R_OK) == 0)
		return parse_file(driver, installed, error, error_size);
	if (!t)
		t = find_built_in(GENERIC);
	if (!t)
		return port_fail(error, error_size, -ENOENT, "no driver file for %s", name);
	return port_driver_parse(driver, t->text, "built-in", error, error_size);
}
