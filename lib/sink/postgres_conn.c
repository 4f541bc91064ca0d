/* SPDX-License-Identifier: Apache-2.0 */

/* One connection to PostgreSQL, by libpq's calls that do not wait. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include <libpq-fe.h>

#include <base/assert.h>
#include <sink/postgres_conn_priv.h>

#define CONNECT_NS (10 * RP_NS_PER_S)
/** Above the server's own limit: who says nothing for so long is not there any more. */
#define ANSWER_NS (60 * RP_NS_PER_S)
#define SETTINGS "set statement_timeout = '50s'; set client_encoding = 'UTF8'"
#define CATALOG                                                             \
	"select a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod)" \
	" from pg_catalog.pg_attribute a"                                   \
	" where a.attrelid = pg_catalog.to_regclass($1) and a.attnum > 0"   \
	" and not a.attisdropped"

static void watch(struct pg_entry *e, uint32_t events)
{
	int fd = PQsocket(e->conn);

	if (e->watch.loop && e->watch.fd != fd)
		rp_loop_fd_remove(&e->watch);
	if (e->watch.loop)
		rp_loop_fd_modify(&e->watch, events);
	else if (fd >= 0)
		RP_ASSERT(rp_loop_fd_add(e->p->loop, &e->watch, fd, events) == 0);
}

static void columns_free(struct pg_entry *e)
{
	for (unsigned i = 0; i < e->column_count; i++) {
		free(e->columns[i].name);
		free(e->columns[i].type);
	}
	free(e->columns);
	e->columns = NULL;
	e->column_count = 0;
}

void pg_conn_drop(struct pg_entry *e)
{
	rp_loop_fd_remove(&e->watch);
	rp_loop_timer_cancel(&e->watchdog);
	PQfinish(e->conn);
	e->conn = NULL;
	free(e->prepared);
	e->prepared = NULL;
	e->current = NULL;
	e->state = PG_IDLE;
	columns_free(e);
}

static void lost(struct pg_entry *e)
{
	const char *text = e->conn ? PQerrorMessage(e->conn) : "";
	char why[PG_ERROR_SIZE];

	snprintf(why, sizeof(why), "%.*s", (int)strcspn(text, "\r\n"), text);
	e->p->counters.connects_failed++;
	if (e->state >= PG_PREPARE)
		e->p->counters.retries++;
	pg_conn_drop(e);
	pg_entry_failed(e, why[0] ? why : "the connection is lost");
}

/* ---- commands ---- */

static void command_begin(struct pg_entry *e, enum pg_state state, int sent)
{
	if (!sent) {
		lost(e);
		return;
	}
	e->state = state;
	e->sqlstate[0] = e->failure[0] = '\0';
	e->changed = 0;
	rp_loop_timer_in(e->p->loop, &e->watchdog, ANSWER_NS);
	watch(e, PQflush(e->conn) == 1 ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

static void catalog_ask(struct pg_entry *e)
{
	const char *values[1] = {e->spec.table};

	columns_free(e);
	/* The one without a name takes the other's place. */
	free(e->prepared);
	e->prepared = NULL;
	command_begin(
		e, PG_CATALOG, PQsendQueryParams(e->conn, CATALOG, 1, NULL, values, NULL, NULL, 0));
}

/* The statement is the same for as long as the values have the same fields. */
static void value_send(struct pg_entry *e, const char *sql, const char *json)
{
	const char *values[1] = {json};

	if (e->prepared && strcmp(e->prepared, sql) == 0) {
		command_begin(
			e, PG_SENT, PQsendQueryPrepared(e->conn, "", 1, values, NULL, NULL, 0));
		return;
	}
	free(e->prepared);
	e->prepared = pg_format("%s", sql);
	command_begin(e, PG_PREPARE, PQsendPrepare(e->conn, "", sql, 1, NULL));
}

/* The next value goes, or ends here; true: another one is to be looked at. */
static bool value_begin(struct pg_entry *e, struct pg_value *v)
{
	char *sql = NULL, *json = NULL, why[PG_ERROR_SIZE] = "";

	switch (pg_statement(e, (struct rp_span){v->value, v->length}, &sql, &json, why)) {
	case PG_SHAPE_OK:
		e->current = v;
		value_send(e, sql, json);
		break;
	case PG_SHAPE_EMPTY:
		pg_value_empty(v);
		return true;
	case PG_SHAPE_BAD:
		pg_value_dead(v, why);
		return true;
	case PG_SHAPE_UNKNOWN:
		/* The table may be younger than what is known of it: asked once a value. */
		if (v->looked) {
			pg_value_dead(v, why);
			return true;
		}
		v->looked = true;
		catalog_ask(e);
		break;
	}
	free(sql);
	free(json);
	return false;
}

static void go_on(struct pg_entry *e)
{
	struct pg_value *v;

	while (e->state == PG_READY && !e->p->paused && e->next_ns <= rp_loop_now_ns(e->p->loop) &&
		(v = pg_entry_next(e)) && value_begin(e, v))
		;
}

/* ---- answers ---- */

static void catalog_take(struct pg_entry *e, const PGresult *r)
{
	int n = PQntuples(r);

	e->columns = pg_alloc(((size_t)n + 1) * sizeof(*e->columns));
	for (int i = 0; i < n; i++)
		e->columns[e->column_count++] = (struct pg_column){
			.name = pg_format("%s", PQgetvalue(r, i, 0)),
			.type = pg_format("%s", PQgetvalue(r, i, 1)),
		};
}

static void result_take(struct pg_entry *e, const PGresult *r)
{
	const char *code;

	switch (PQresultStatus(r)) {
	case PGRES_TUPLES_OK:
		if (e->state == PG_CATALOG && e->column_count == 0)
			catalog_take(e, r);
		return;
	case PGRES_COMMAND_OK:
		e->changed = strtoull(PQcmdTuples((PGresult *)r), NULL, 10);
		return;
	case PGRES_EMPTY_QUERY:
	case PGRES_COPY_OUT:
	case PGRES_COPY_IN:
	case PGRES_BAD_RESPONSE:
	case PGRES_NONFATAL_ERROR:
	case PGRES_FATAL_ERROR:
	case PGRES_COPY_BOTH:
	case PGRES_SINGLE_TUPLE:
	case PGRES_PIPELINE_SYNC:
	case PGRES_PIPELINE_ABORTED:
		break;
	}
	/* The first error says why; one behind a result that was good is the commit's. */
	if (e->failure[0])
		return;
	code = PQresultErrorField(r, PG_DIAG_SQLSTATE);
	snprintf(e->sqlstate, sizeof(e->sqlstate), "%.5s", code ? code : "");
	snprintf(e->failure, sizeof(e->failure), "%s: %s", code ? code : "no answer",
		PQresultErrorField(r, PG_DIAG_MESSAGE_PRIMARY)
			? PQresultErrorField(r, PG_DIAG_MESSAGE_PRIMARY)
			: PQresultErrorMessage(r));
}

/* The command is over: all that it had to say has been read. */
static void command_end(struct pg_entry *e)
{
	enum pg_state was = e->state;
	struct pg_value *v = e->current;

	rp_loop_timer_cancel(&e->watchdog);
	if (PQstatus(e->conn) != CONNECTION_OK) {
		lost(e);
		return;
	}
	e->state = PG_READY;
	e->current = NULL;
	if (was == PG_SETTING) {
		if (e->failure[0])
			lost(e);
		else
			catalog_ask(e);
		return;
	}
	if (was == PG_PREPARE && e->failure[0]) {
		free(e->prepared);
		e->prepared = NULL;
	}
	if (was == PG_SENT && !e->failure[0] && v) {
		pg_value_done(v, e->changed);
	} else if (e->failure[0]) {
		char why[PG_ERROR_SIZE];

		snprintf(why, sizeof(why), "%s", e->failure);
		if (was >= PG_PREPARE && pg_is_final(e->sqlstate) && v) {
			/* What is known of the table may be older than the table. */
			if (!v->looked && strncmp(e->sqlstate, "42", 2) == 0) {
				v->looked = true;
				catalog_ask(e);
				return;
			}
			pg_value_dead(v, why);
		} else {
			e->p->counters.retries += was >= PG_PREPARE;
			pg_entry_failed(e, why);
		}
	}
	go_on(e);
}

static void on_readable(struct pg_entry *e)
{
	PGresult *r;

	if (!PQconsumeInput(e->conn)) {
		lost(e);
		return;
	}
	while (e->conn && e->state > PG_CONNECTING && e->state != PG_READY) {
		if (PQisBusy(e->conn))
			return;
		r = PQgetResult(e->conn);
		if (r)
			result_take(e, r);
		PQclear(r);
		if (!r) {
			command_end(e);
			return;
		}
	}
	/* Nothing was asked: the server says goodbye, or has a notice. */
	if (e->conn && PQstatus(e->conn) != CONNECTION_OK)
		lost(e);
}

/* ---- connecting ---- */

static void connected(struct pg_entry *e)
{
	e->p->counters.connects++;
	PQsetnonblocking(e->conn, 1);
	command_begin(e, PG_SETTING, PQsendQuery(e->conn, SETTINGS));
}

static void connect_step(struct pg_entry *e)
{
	switch (PQconnectPoll(e->conn)) {
	case PGRES_POLLING_READING:
		watch(e, EPOLLIN);
		return;
	case PGRES_POLLING_WRITING:
		watch(e, EPOLLOUT);
		return;
	case PGRES_POLLING_OK:
		connected(e);
		return;
	case PGRES_POLLING_FAILED:
	case PGRES_POLLING_ACTIVE:
		break;
	}
	lost(e);
}

static void on_event(void *ctx, uint32_t events)
{
	struct pg_entry *e = ctx;

	if (e->state == PG_CONNECTING) {
		/* libpq may close the socket and open another one under the same number. */
		rp_loop_fd_remove(&e->watch);
		connect_step(e);
		return;
	}
	if (events & EPOLLOUT) {
		int left = PQflush(e->conn);

		if (left < 0) {
			lost(e);
			return;
		}
		watch(e, left == 1 ? EPOLLIN | EPOLLOUT : EPOLLIN);
	}
	if (events & (EPOLLIN | EPOLLERR | EPOLLHUP))
		on_readable(e);
}

static void on_watchdog(void *ctx)
{
	lost(ctx);
}

/* What the server has to tell besides goes to nobody's terminal. */
static void on_notice(void *ctx, const PGresult *r)
{
}

static void connect_begin(struct pg_entry *e)
{
	e->conn = PQconnectStart(e->p->url);
	RP_ASSERT(e->conn != NULL);
	PQsetNoticeReceiver(e->conn, on_notice, NULL);
	e->state = PG_CONNECTING;
	if (PQstatus(e->conn) == CONNECTION_BAD) {
		lost(e);
		return;
	}
	rp_loop_timer_in(e->p->loop, &e->watchdog, CONNECT_NS);
	watch(e, EPOLLOUT);
}

void pg_conn_init(struct pg_entry *e)
{
	rp_loop_fd_setup(&e->watch, on_event, e);
	rp_loop_timer_setup(&e->watchdog, on_watchdog, e);
}

void pg_conn_run(struct pg_entry *e)
{
	if (e->state == PG_IDLE)
		connect_begin(e);
	else if (e->state == PG_READY)
		go_on(e);
}
