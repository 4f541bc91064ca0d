/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What the parts of lib/conf share: the table as data, values by type, places, messages.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <conf/conf.h>

enum conf_type {
#define RP_TYPE(type, ...) CONF_T_##type,
#define RP_ENUM(type, tag, names) CONF_T_##type,
#include <conf/types.def>
	CONF_T_COUNT,
};

enum conf_shape { CONF_ONE, CONF_JOINED, CONF_SPLIT, CONF_WHOLE };

struct conf_type_info {
	enum conf_shape shape;
	const char *expected;
	const char *const *choices; /**< NULL but for a choice */
	unsigned choices_count;
};

/** What a reload does to a knob. */
enum conf_change { CONF_FIXED, CONF_LIVE, CONF_UNUSED };

enum conf_kind { CONF_KNOB, CONF_SECTION, CONF_LIST };

/** One line of knobs.def. */
struct conf_entry {
	enum conf_kind kind;
	const char *section;		       /**< "" at the top; of an item knob: the item */
	const char *name, *unit, *text, *help; /**< text: the default as a user writes it */
	enum conf_type type;
	uint64_t min, max;
	enum conf_change change;
	size_t offset; /**< in struct rp_conf; of an item knob: in the item */
	/* lists only */
	const char *item;
	unsigned bound;
	size_t count_offset, item_size;
};

/** Knobs, sections and lists in the order of the table; item knobs apart. */
extern const struct conf_entry conf_entries[];
extern const unsigned conf_entries_count;
extern const struct conf_entry conf_item_entries[];
extern const unsigned conf_item_entries_count;

const struct conf_type_info *conf_type_info(enum conf_type type);

/** Is the field a struct rp_conf_list? */
static inline bool conf_is_list(const struct conf_entry *e)
{
	enum conf_shape shape = conf_type_info(e->type)->shape;

	return shape == CONF_SPLIT || shape == CONF_WHOLE;
}

/** The entry of that name in a section ("" is the top), NULL when there is none. */
const struct conf_entry *conf_find(const char *section, const char *name);
const struct conf_entry *conf_item_find(const char *item, const char *name);

/** Keys of etcd and of its Rust relative that a file may hold and that we do not use. */
struct conf_other_key {
	const char *name;
	const char *instead; /**< the knob with that purpose here, or NULL */
};
const struct conf_other_key *conf_other_find(const char *name);

/** The known name nearest to `name` in a section, or a path elsewhere with that name; "" when none.
 */
void conf_nearest(const char *section, bool is_item, const char *name, char *text, size_t size);
unsigned conf_edit_distance(const char *a, const char *b);

/** Where a value stands. */
enum conf_origin_kind { CONF_FROM_DEFAULT, CONF_FROM_FILE, CONF_FROM_FLAG };
struct conf_origin {
	enum conf_origin_kind kind;
	bool resolved; /**< was auto */
	bool bad;      /**< a value that did not fit has been reported */
	/** In the file; of a default in a list's entry: where the entry begins. */
	unsigned line, column;
};

struct conf_block {
	struct conf_block *next;
};

struct rp_conf_memory {
	struct conf_block *blocks; /**< texts and lists */
	bool out_of_memory;
	char *file;		     /**< name of the file that was read, "" without one */
	struct conf_origin *origins; /**< by slot */
};

/* memory.c: never NULL; after a failure out_of_memory is set and texts are "". */
struct rp_conf_memory *conf_memory_new(void);
const char *conf_text_copy(struct rp_conf_memory *m, const char *text, size_t length);
const char **conf_items_new(struct rp_conf_memory *m, unsigned count);

/** One value of a configuration: its line of the table, and which entry of a list. */
struct conf_at {
	const struct conf_entry *entry;
	const struct conf_entry *list; /**< NULL but for an item knob */
	unsigned index;		       /**< in the list */
};

void *conf_field(struct rp_conf *conf, struct conf_at at);
struct conf_origin *conf_origin(const struct rp_conf *conf, struct conf_at at);
/** "links.per_peer", "ports[0].mtu". */
void conf_path(struct conf_at at, char *text, size_t size);
unsigned conf_slots_count(void);
unsigned *conf_list_count(struct rp_conf *conf, const struct conf_entry *list);

/** Calls `visit` for each value of `conf`, in the order of the table. */
void conf_visit(struct rp_conf *conf,
	void (*visit)(struct rp_conf *conf, struct conf_at at, void *arg), void *arg);

/* value.c */

/**
 * Parses `text` into the field of a knob. On false the field is unchanged and `why` says more than
 * conf_expected() would, or is "".
 */
bool conf_value_parse(const struct conf_entry *e, const char *text, void *field,
	struct rp_conf_memory *m, char *why, size_t why_size);
/** Checks one entry of a list type. */
bool conf_value_item_ok(const struct conf_entry *e, const char *text);
/** As YAML, without a newline. */
void conf_value_print(const struct conf_entry *e, const void *field, FILE *out);
bool conf_value_equal(const struct conf_entry *e, const void *a, const void *b);
/** Copies a value into another configuration, texts included. */
void conf_value_copy(
	const struct conf_entry *e, void *to, const void *from, struct rp_conf_memory *m);
/** "a number from 1 to 32", "auto, tcp or ktcp". */
void conf_expected(const struct conf_entry *e, char *text, size_t size);
bool conf_bool_parse(const char *text, bool *value);
bool conf_u64_parse(const char *text, uint64_t *value);
bool conf_utf8_ok(const char *text);
void conf_text_print_yaml(const char *text, FILE *out);

/* report.c */

struct conf_place {
	const char *origin; /**< the file, "flag" or "" */
	unsigned line, column;
};

struct conf_loader {
	struct rp_conf *conf;
	struct rp_conf_report *report;
	enum conf_origin_kind kind;
	const char *file;
	char others[1024]; /**< names of known keys that are not used */
	struct conf_place others_place;
	bool others_seen;
};

__attribute__((format(printf, 5, 6))) void conf_say(struct rp_conf_report *r,
	enum rp_conf_severity severity, struct conf_place place, const char *path,
	const char *format, ...);

/* load.c: what the two readers do with a value they found */

struct conf_at conf_at_item(
	const struct conf_entry *list, unsigned index, const struct conf_entry *e);
void conf_set(struct conf_loader *l, struct conf_at at, const char *text, struct conf_place place);
void conf_set_items(struct conf_loader *l, struct conf_at at, const char *const *items,
	const struct conf_place *places, unsigned count, struct conf_place place);
/** Every knob of entry `index` becomes its default. */
void conf_set_item_defaults(struct conf_loader *l, const struct conf_entry *list, unsigned index);
/** Appends an item with its defaults; false, with a message, when the list is full. */
bool conf_list_add(struct conf_loader *l, const struct conf_entry *list, struct conf_place place);
/** A known key that has no effect here, for the one warning that names them all. */
void conf_note_unused(
	struct conf_loader *l, const char *name, const char *instead, struct conf_place place);

/* yaml.c, flags.c, check.c */
void conf_read_yaml(struct conf_loader *l, const void *text, size_t length);

struct conf_flags {
	enum rp_conf_request request;
	const char *file; /**< of --config, or NULL */
};
/** First pass: requests, --config, unknown flags. */
void conf_flags_scan(struct conf_loader *l, int argc, char *const argv[], struct conf_flags *flags);
/** Second pass: the knobs. */
void conf_flags_apply(struct conf_loader *l, int argc, char *const argv[]);
/** "--links-per-peer"; for an item knob the form without an index. */
void conf_flag_name(struct conf_at at, char *text, size_t size);

void conf_check(struct rp_conf *conf, struct rp_conf_report *report);
