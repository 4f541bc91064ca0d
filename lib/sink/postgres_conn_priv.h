/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What postgres.c and postgres_conn.c call of each other. */

#include <sink/postgres_priv.h>

/* postgres_conn.c */
void pg_conn_init(struct pg_entry *e);
/** Closed; nothing comes of it any more. Idempotent. */
void pg_conn_drop(struct pg_entry *e);
/** There is a value: connects, asks for the table's columns, or sends it, whatever is next. */
void pg_conn_run(struct pg_entry *e);

/* postgres.c */
/** The next value to apply; NULL: none. */
struct pg_value *pg_entry_next(struct pg_entry *e);
/** It is committed. */
void pg_value_done(struct pg_value *v, uint64_t rows);
/** There was nothing in it. */
void pg_value_empty(struct pg_value *v);
/** It can never go in. */
void pg_value_dead(struct pg_value *v, const char *why);
/** What was tried may pass another time: the entry waits. */
void pg_entry_failed(struct pg_entry *e, const char *why);
