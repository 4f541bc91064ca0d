/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <base/list.h>
#include <grpc/loop.h>
#include <sink/postgres.h>

struct pg_conn; /* libpq's */

#define PG_COLUMNS_MAX 16 /* of a key */
#define PG_ERROR_SIZE 256
/** Values that are on a connection at once, and their bytes but for the last one's. */
#define PG_GROUP_MAX 64
#define PG_GROUP_BYTES (256u << 10)

struct pg_spec {
	bool is_prefix;
	char *event, *table; /**< the table quoted */
	char *key[PG_COLUMNS_MAX];
	unsigned key_count;
};

/** A column of the table, as the catalogue has it. */
struct pg_column {
	char *name, *type;
};

enum pg_state {
	PG_IDLE, /**< no connection */
	PG_CONNECTING,
	PG_SETTING, /**< the session's settings */
	PG_CATALOG, /**< the table's columns were asked for */
	PG_READY,
	PG_PREPARE,  /**< the statement of the next value is on its way */
	PG_SENT,     /**< a value is on its way */
	PG_GROUP,    /**< several are, a transaction each */
	PG_ROLLBACK, /**< the transaction of one that failed is ended */
};

enum pg_value_state {
	PG_VALUE_WAITS,
	PG_VALUE_ACKED,	 /**< committed, or dead: the acknowledge is under way */
	PG_VALUE_LETTER, /**< it goes to the dead letters */
};

struct pg_value {
	struct rp_list node; /**< entry->values, entry->group, entry->settling */
	struct pg_entry *e;
	enum pg_value_state state;
	uint64_t life, idx, again_ns;
	bool under_way; /**< an answer of the host is to come */
	bool withdrawn;
	bool looked;   /**< the catalogue was asked anew for it */
	uint64_t rows; /**< that it changed, of one in a group */
	uint32_t attempt;
	char error[PG_ERROR_SIZE];
	size_t name_length, length;
	uint8_t *value; /**< behind the name, ended by a NUL */
	uint8_t name[]; /**< tail, or key */
};

enum pg_step_kind {
	PG_STEP_PREPARE_BEGIN,
	PG_STEP_PREPARE_COMMIT,
	PG_STEP_PREPARE, /**< the statement of `v` */
	PG_STEP_BEGIN,
	PG_STEP_VALUE,
	PG_STEP_COMMIT,
};

/** A command of a group, whose answer is to come. */
struct pg_step {
	enum pg_step_kind kind;
	struct pg_value *v; /**< NULL: of none */
};

struct pg_entry {
	struct rp_postgres *p;
	unsigned index;
	struct pg_spec spec;
	bool on;
	void *consumer;
	uint64_t life;
	struct rp_list values;	  /**< to be applied, in order */
	struct pg_value *current; /**< the one on its way alone, at their head; NULL */
	struct rp_list group;	  /**< on their way together, in order; older than `values` */
	struct pg_step steps[2 + 4 * PG_GROUP_MAX];
	unsigned step_count, step_at;
	struct pg_value *failed; /**< the first of the group that failed; NULL: none */
	struct rp_list settling; /**< done with, but for the acknowledge or the letter */
	uint32_t value_count;
	bool starved; /**< a put was refused */
	enum pg_state state;
	struct pg_conn *conn;
	struct rp_loop_fd watch;
	struct rp_loop_timer watchdog;
	char *prepared;		    /**< the statement that the connection has; NULL: none */
	bool has_begin, has_commit; /**< prepared on the connection as well */
	bool stale;		    /**< the catalogue is to be asked before the next value */
	/* The statement of the last value, for the next with the same fields. */
	struct json_t *last_fields;
	char *last_sql;
	struct pg_column *columns;
	unsigned column_count;
	char sqlstate[6], failure[PG_ERROR_SIZE]; /**< of the command under way */
	uint64_t changed;			  /**< rows of it */
	uint32_t failures;
	uint64_t next_ns;
	char error[PG_ERROR_SIZE];
};

struct rp_postgres {
	struct rp_loop *loop;
	const struct rp_sink_host *host;
	char *url, *dead_letter;
	void (*room)(void *ctx, unsigned entry);
	void *ctx;
	bool paused;
	struct pg_entry entries[RP_POSTGRES_ENTRIES_MAX];
	unsigned entry_count;
	struct rp_loop_timer timer;
	struct rp_loop_task task;
	struct rp_postgres_counters counters;
};

/* postgres_text.c */
/** How many entries; -EINVAL with what is wrong. Each is to be freed. */
int pg_specs_parse(const char *text, const char *dead_letter,
	struct pg_spec specs[RP_POSTGRES_ENTRIES_MAX], char *error, size_t error_size);
void pg_spec_free(struct pg_spec *s);

enum pg_shape {
	PG_SHAPE_OK,
	PG_SHAPE_EMPTY,	  /**< no object in it */
	PG_SHAPE_BAD,	  /**< never; `error` says why */
	PG_SHAPE_UNKNOWN, /**< a field is none of the known columns */
};
/**
 * The statement for a value: its columns are the fields of its objects. Both malloc'd; `json` is
 * the value as an array.
 */
enum pg_shape pg_statement(struct pg_entry *e, struct rp_span value, char **sql, char **json,
	char error[PG_ERROR_SIZE]);
/** The table's columns are others: no statement is known. */
void pg_statement_forget(struct pg_entry *e);
/** What was refused can never go in: not by time, and not by another state of the server. */
bool pg_is_final(const char *sqlstate);
/** The letter of a value that is dead: a line about it, then itself. malloc'd. */
char *pg_letter(const struct pg_value *v, size_t *length);
/** A tail of a message for a key: 255 bytes, no slash. */
void pg_tail_of_key(struct rp_span key, char tail[RP_TAIL_BYTES_MAX + 1]);

void *pg_alloc(size_t size);
char *pg_format(const char *format, ...) __attribute__((format(printf, 1, 2)));
