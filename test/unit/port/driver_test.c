/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <yaml.h>

#include <base/units.h>
#include <port/port.h>
#include <port/port_priv.h>

/** One document of YAML, in memory. */
struct tree {
	yaml_document_t doc;
	const yaml_node_t *root;
};

static void load_text(struct tree *t, const char *text, size_t length)
{
	yaml_parser_t parser;

	assert_true(yaml_parser_initialize(&parser));
	yaml_parser_set_input_string(&parser, (const unsigned char *)text, length);
	assert_true(yaml_parser_load(&parser, &t->doc));
	yaml_parser_delete(&parser);
	t->root = yaml_document_get_root_node(&t->doc);
	assert_non_null(t->root);
}

static const char *scalar(const yaml_node_t *n)
{
	return n && n->type == YAML_SCALAR_NODE ? (const char *)n->data.scalar.value : NULL;
}

static const yaml_node_t *child(struct tree *t, const yaml_node_t *n, const char *key)
{
	if (!n || n->type != YAML_MAPPING_NODE)
		return NULL;
	for (const yaml_node_pair_t *p = n->data.mapping.pairs.start; p < n->data.mapping.pairs.top;
		p++) {
		const char *k = scalar(yaml_document_get_node(&t->doc, p->key));

		if (k && strcmp(k, key) == 0)
			return yaml_document_get_node(&t->doc, p->value);
	}
	return NULL;
}

static bool is_integer(const char *s)
{
	return s && *s && strspn(s, "0123456789") == strlen(s);
}

static const char *check(
	struct tree *schema, const yaml_node_t *rule, struct tree *file, const yaml_node_t *n);

static const char *check_mapping(
	struct tree *schema, const yaml_node_t *rule, struct tree *file, const yaml_node_t *n)
{
	const yaml_node_t *required = child(schema, rule, "required");
	const yaml_node_t *properties = child(schema, rule, "properties");
	const char *others = scalar(child(schema, rule, "additionalProperties"));

	if (n->type != YAML_MAPPING_NODE)
		return "not a mapping";
	for (const yaml_node_item_t *i = required ? required->data.sequence.items.start : NULL;
		required && i < required->data.sequence.items.top; i++)
		if (!child(file, n, scalar(yaml_document_get_node(&schema->doc, *i))))
			return scalar(yaml_document_get_node(&schema->doc, *i));
	for (const yaml_node_pair_t *p = n->data.mapping.pairs.start; p < n->data.mapping.pairs.top;
		p++) {
		const char *key = scalar(yaml_document_get_node(&file->doc, p->key));
		const yaml_node_t *sub = key ? child(schema, properties, key) : NULL;
		const char *wrong;

		if (!sub && (!others || strcmp(others, "true") != 0))
			return key ? key : "a key is no word";
		wrong = sub ? check(schema, sub, file, yaml_document_get_node(&file->doc, p->value))
			    : NULL;
		if (wrong)
			return wrong;
	}
	return NULL;
}

static const char *check_scalar(
	struct tree *schema, const yaml_node_t *rule, const char *type, const char *value)
{
	const yaml_node_t *words = child(schema, rule, "enum");
	const char *min = scalar(child(schema, rule, "minimum"));
	const char *max = scalar(child(schema, rule, "maximum"));
	const char *length_max = scalar(child(schema, rule, "maxLength"));

	if (!value)
		return "not a plain value";
	if (strcmp(type, "boolean") == 0 && strcmp(value, "true") != 0 &&
		strcmp(value, "false") != 0)
		return value;
	if (strcmp(type, "integer") == 0 &&
		(!is_integer(value) || (min && atol(value) < atol(min)) ||
			(max && atol(value) > atol(max))))
		return value;
	if (length_max && strlen(value) > (size_t)atol(length_max))
		return value;
	for (const yaml_node_item_t *i = words ? words->data.sequence.items.start : NULL;
		words && i < words->data.sequence.items.top; i++)
		if (strcmp(scalar(yaml_document_get_node(&schema->doc, *i)), value) == 0)
			return NULL;
	return words ? value : NULL;
}

/* What of the file breaks the rule; NULL when nothing does. */
static const char *check(
	struct tree *schema, const yaml_node_t *rule, struct tree *file, const yaml_node_t *n)
{
	const char *type = scalar(child(schema, rule, "type"));

	assert_non_null(type);
	if (strcmp(type, "object") == 0)
		return check_mapping(schema, rule, file, n);
	if (strcmp(type, "array") != 0)
		return check_scalar(schema, rule, type, scalar(n));
	if (n->type != YAML_SEQUENCE_NODE)
		return "not a list";
	for (const yaml_node_item_t *i = n->data.sequence.items.start;
		i < n->data.sequence.items.top; i++) {
		const char *wrong = check(schema, child(schema, rule, "items"), file,
			yaml_document_get_node(&file->doc, *i));

		if (wrong)
			return wrong;
	}
	return NULL;
}

static void load_schema(struct tree *t)
{
	static char text[64 << 10];
	FILE *f = fopen(DRIVERS_FOLDER "/schema.yaml", "r");

	assert_non_null(f);
	load_text(t, text, fread(text, 1, sizeof(text), f));
	fclose(f);
}

static const char *check_text(struct tree *schema, const char *text)
{
	struct tree file;
	const char *wrong;
	static char kept[64];

	load_text(&file, text, strlen(text));
	wrong = check(schema, schema->root, &file, file.root);
	if (wrong)
		snprintf(kept, sizeof(kept), "%s", wrong);
	yaml_document_delete(&file.doc);
	return wrong ? kept : NULL;
}

static void files_follow_the_schema(void **state)
{
	struct tree schema;
	unsigned count = 0;

	load_schema(&schema);
	for (const struct port_driver_text *t = port_driver_texts; t->name; t++, count++) {
		const char *wrong = check_text(&schema, t->text);

		if (wrong)
			fail_msg("%s: %s", t->name, wrong);
	}
	assert_int_equal(count, 9);
	/* The check itself can fail. */
	assert_string_equal(check_text(&schema, "driver: x\ndescription: x\nrings: {rx: 1}\n"
						"wire: {}\noffloads: {}\nredial: {}\n"),
		"tx");
	assert_string_equal(check_text(&schema, "driver: x\ndescription: x\nrings: {rx: 0, tx: 1}\n"
						"wire: {}\noffloads: {}\nredial: {}\n"),
		"0");
	assert_string_equal(check_text(&schema, "driver: x\ndescription: x\nrings: {rx: 1, tx: 1}\n"
						"wire: {colour: 1}\noffloads: {}\nredial: {}\n"),
		"colour");
	yaml_document_delete(&schema.doc);
}

/* Each key of the schema is one that the reader knows, and the other way round for bounds. */
static void reader_and_schema_agree(void **state)
{
	static const char whole[] =
		"driver: d\ndescription: x\nremedy: y\n"
		"rings: {rx: 1, tx: 32768, keeps: true, tx_free: 0}\n"
		"queues: {max: 256, devarg: q}\n"
		"wire: {mtu_max: 68, isolated: true, own_mac: false, mac_devarg: true, promiscuous: "
		"true}\n"
		"offloads: {checksum: hw, chains: false, tso: true}\n"
		"socket: {devarg: s, bound_when: a=b, abstract_when: c=d}\n"
		"redial: {action: replug, when: e=f, after_ms: 100}\n"
		"devargs: {k: v}\nquirks: [a, b]\n";
	struct tree schema, file;
	struct port_driver d;
	char error[RP_PORT_ERROR_SIZE] = "";
	const yaml_node_t *properties;

	load_schema(&schema);
	assert_null(check_text(&schema, whole));
	assert_int_equal(port_driver_parse(&d, whole, "test", error, sizeof(error)), 0);
	assert_string_equal(d.name, "d");
	assert_int_equal(d.rings_rx, 1);
	assert_int_equal(d.rings_tx, 32768);
	assert_int_equal(d.queues_max, 256);
	assert_true(d.isolated && d.checksum_hw && d.keeps_mbufs && d.mac_devarg && d.promiscuous);
	assert_false(d.own_mac || d.chains);
	assert_int_equal(d.redial, PORT_REDIAL_REPLUG);
	assert_int_equal(d.redial_after_ms, 100);
	assert_string_equal(d.socket_bound_when, "a=b");
	assert_int_equal(d.devarg_count, 1);
	/* `whole` names every key there is, two levels deep. */
	load_text(&file, whole, strlen(whole));
	properties = child(&schema, schema.root, "properties");
	for (const yaml_node_pair_t *p = properties->data.mapping.pairs.start;
		p < properties->data.mapping.pairs.top; p++) {
		const char *key = scalar(yaml_document_get_node(&schema.doc, p->key));
		const yaml_node_t *rule = yaml_document_get_node(&schema.doc, p->value);
		const yaml_node_t *sub = child(&schema, rule, "properties");
		const yaml_node_t *there = child(&file, file.root, key);

		if (!there)
			fail_msg("the test does not try %s", key);
		for (const yaml_node_pair_t *q = sub ? sub->data.mapping.pairs.start : NULL;
			sub && q < sub->data.mapping.pairs.top; q++) {
			const char *name = scalar(yaml_document_get_node(&schema.doc, q->key));

			if (!child(&file, there, name))
				fail_msg("the test does not try %s.%s", key, name);
		}
	}
	yaml_document_delete(&file.doc);
	yaml_document_delete(&schema.doc);
}

static void errors_name_the_place(void **state)
{
	static const struct {
		const char *text, *error;
	} cases[] = {
		{"driver: x\nrings: {rx: 0}\n", "f:2:13: rx must be a number from 1 to 32768: 0"},
		{"driver: x\nrings:\n  rx: many\n", "f:3:7:"},
		{"driver: x\nrings: 3\n", "f:2:8: must be a mapping: rings"},
		{"driver: x\ncolour: red\n", "f:2:1: unknown key: colour"},
		{"driver: x\nwire: {isolated: yes}\n", "f:2:18: must be true or false: yes"},
		{"driver: x\nredial: {action: maybe}\n", "f:2:18:"},
		{"driver: x\nquirks: none\n", "f:2:9: must be a list: quirks"},
		{"driver: x\ndevargs: [a]\n", "f:2:10: devargs must be a mapping"},
		{"driver: [x]\n", "f:1:9: must be a plain value: driver"},
		{"driver: x\n  rings: {\n", "f:2:"},
		{"rings: {rx: 1}\n", "f:1:1: the key driver is missing"},
		{"", "f:1:1: the file is empty"},
		{"driver: 12345678901234567890123456789012\n", "f:1:9: text too long: driver"},
	};

	for (unsigned i = 0; i < RP_ARRAY_SIZE(cases); i++) {
		struct port_driver d;
		char error[RP_PORT_ERROR_SIZE] = "";

		assert_int_equal(
			port_driver_parse(&d, cases[i].text, "f", error, sizeof(error)), -EINVAL);
		if (strncmp(error, cases[i].error, strlen(cases[i].error)) != 0)
			fail_msg("case %u: %s", i, error);
	}
}

static void chooses_the_file(void **state)
{
	struct port_driver d;
	char error[RP_PORT_ERROR_SIZE] = "", path[] = "/tmp/driver-test-XXXXXX";
	int fd = mkstemp(path);

	assert_int_equal(port_driver_load(&d, "net_memif0", NULL, error, sizeof(error)), 0);
	assert_string_equal(d.name, "net_memif");
	assert_string_equal(d.origin, "built-in");
	assert_int_equal(port_driver_load(&d, "net_af_xdp7", "auto", error, sizeof(error)), 0);
	assert_string_equal(d.name, "net_af_xdp");
	assert_int_equal(port_driver_load(&d, "net_ixgbe", "auto", error, sizeof(error)), 0);
	assert_string_equal(d.name, "generic");
	assert_true(write(fd, "driver: mine\nrings: {rx: 77}\n", 29) == 29);
	close(fd);
	assert_int_equal(port_driver_load(&d, "net_memif0", path, error, sizeof(error)), 0);
	assert_string_equal(d.name, "mine");
	assert_string_equal(d.origin, path);
	assert_int_equal(d.rings_rx, 77);
	unlink(path);
	assert_int_equal(port_driver_load(&d, "net_memif0", path, error, sizeof(error)), -ENOENT);
	assert_non_null(strstr(error, path));
}

static void checks_a_configuration(void **state)
{
	struct rp_port_config c = {.device = "net_memif0,role=server,socket=/x", .queues = 1};
	char error[RP_PORT_ERROR_SIZE] = "";

	assert_int_equal(rp_port_check(&c, error, sizeof(error)), 0);
	assert_true(rp_port_memory_bytes(&c) > (10u << 20));
	assert_false(rp_port_needs_pci(c.device));
	assert_true(rp_port_needs_pci("0000:01:00.0"));
	c.device = "net_memif0,role=server";
	assert_int_equal(rp_port_check(&c, error, sizeof(error)), -EINVAL);
	assert_non_null(strstr(error, "socket="));
	c.device = "net_memif0,role=server,socket=/x";
	c.mtu = 1501;
	assert_int_equal(rp_port_check(&c, error, sizeof(error)), -EINVAL);
	assert_non_null(strstr(error, "mtu"));
	c.mtu = 0;
	c.queues = 0;
	assert_int_equal(rp_port_check(&c, error, sizeof(error)), -EINVAL);
	c.queues = 1;
	c.mbuf_priv_size = 4;
	assert_int_equal(rp_port_check(&c, error, sizeof(error)), -EINVAL);
	c.mbuf_priv_size = 0;
	c.driver_config = "/none";
	assert_int_equal(rp_port_check(&c, error, sizeof(error)), -ENOENT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(files_follow_the_schema),
		cmocka_unit_test(reader_and_schema_agree),
		cmocka_unit_test(errors_name_the_place),
		cmocka_unit_test(chooses_the_file),
		cmocka_unit_test(checks_a_configuration),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
