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
/** Statements of the connection, beside the one without a name, which is that of the values. */
#define BEGIN "ringpost_begin"
#define COMMIT "ringpost_commit"

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
	pg_statement_forget(e);
	for (unsigned i = 0; i < e->column_count; i++) {
		free(e->columns[i].name);
		free(e->columns[i].type);
	}
	free(e->columns);
	e->columns = NULL;
	e->column_count = 0;
}

/* What was not committed is next again, in its order. */
static void group_back(struct pg_entry *e)
{
	struct rp_list *n;

	while (!rp_list_empty(&e->group)) {
		n = e->group.prev;
		rp_list_unlink(n);
		rp_list_push_front(&e->values, n);
	}
	e->step_count = e->step_at = 0;
}

void pg_conn_drop(struct pg_entry *e)
{
	group_back(e);
	rp_loop_fd_remove(&e->watch);
	rp_loop_timer_cancel(&e->watchdog);
	PQfinish(e->conn);
	e->conn = NULL;
	free(e->prepared);
	e->prepared = NULL;
	e->has_begin = e->has_commit = e->stale = false;
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
	e->stale = false;
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

/* ---- values ---- */

/** A value that is about to go. */
struct outgoing {
	struct pg_value *v;
	char *sql, *json;
};

/* The next value, if it can go; what cannot ends here, and the one behind it is looked at. */
static bool value_take(struct pg_entry *e, struct outgoing *o)
{
	char why[PG_ERROR_SIZE] = "";
	struct pg_value *v;

	while (!e->stale && (v = pg_entry_next(e))) {
		switch (pg_statement(
			e, (struct rp_span){v->value, v->length}, &o->sql, &o->json, why)) {
		case PG_SHAPE_OK:
			o->v = v;
			return true;
		case PG_SHAPE_EMPTY:
			pg_value_empty(v);
			break;
		case PG_SHAPE_BAD:
			pg_value_dead(v, why);
			break;
		case PG_SHAPE_UNKNOWN:
			/* The table may be younger than what is known of it: asked once a value. */
			if (v->looked)
				pg_value_dead(v, why);
			else
				v->looked = e->stale = true;
			break;
		}
	}
	return false;
}

static bool step_add(struct pg_entry *e, enum pg_step_kind kind, struct pg_value *v, int sent)
{
	RP_ASSERT(e->step_count < RP_ARRAY_SIZE(e->steps));
	e->steps[e->step_count++] = (struct pg_step){.kind = kind, .v = v};
	return sent != 0;
}

static bool value_steps(struct pg_entry *e, const struct outgoing *o)
{
	const char *values[1] = {o->json};
	bool ok = true;

	if (!e->prepared || strcmp(e->prepared, o->sql) != 0) {
		free(e->prepared);
		e->prepared = pg_format("%s", o->sql);
		ok = step_add(
			e, PG_STEP_PREPARE, o->v, PQsendPrepare(e->conn, "", o->sql, 1, NULL));
	}
	return ok &&
	       step_add(e, PG_STEP_BEGIN, o->v,
		       PQsendQueryPrepared(e->conn, BEGIN, 0, NULL, NULL, NULL, 0)) &&
	       step_add(e, PG_STEP_VALUE, o->v,
		       PQsendQueryPrepared(e->conn, "", 1, values, NULL, NULL, 0)) &&
	       step_add(e, PG_STEP_COMMIT, o->v,
		       PQsendQueryPrepared(e->conn, COMMIT, 0, NULL, NULL, NULL, 0));
}

/*
 * Several at once, a transaction each: the server does them one after the other and, behind one
 * that failed, none, so that they stay in order; and nobody waits for an answer between two.
 */
static void group_send(struct pg_entry *e, const struct outgoing *out, unsigned count)
{
	bool ok = PQenterPipelineMode(e->conn) == 1;

	e->step_count = e->step_at = 0;
	e->failed = NULL;
	if (ok && !e->has_begin)
		ok = step_add(e, PG_STEP_PREPARE_BEGIN, NULL,
			PQsendPrepare(e->conn, BEGIN, "begin", 0, NULL));
	if (ok && !e->has_commit)
		ok = step_add(e, PG_STEP_PREPARE_COMMIT, NULL,
			PQsendPrepare(e->conn, COMMIT, "commit", 0, NULL));
	for (unsigned i = 0; ok && i < count; i++)
		ok = value_steps(e, &out[i]);
	command_begin(e, PG_GROUP, ok && PQpipelineSync(e->conn));
}

/* What can go goes: one alone, or those that wait together. */
static void go_on(struct pg_entry *e)
{
	struct outgoing out[PG_GROUP_MAX];
	unsigned count = 0, most = e->failures == 0 ? PG_GROUP_MAX : 1;
	size_t bytes = 0;

	if (e->state != PG_READY || e->p->paused || e->next_ns > rp_loop_now_ns(e->p->loop))
		return;
	while (count < most && bytes < PG_GROUP_BYTES && value_take(e, &out[count])) {
		struct pg_value *v = out[count++].v;

		bytes += v->length;
		rp_list_unlink(&v->node);
		rp_list_push_back(&e->group, &v->node);
	}
	if (count > 1) {
		group_send(e, out, count);
	} else if (count == 1) {
		group_back(e);
		e->current = out[0].v;
		value_send(e, out[0].sql, out[0].json);
	} else if (e->stale) {
		catalog_ask(e);
	}
	for (unsigned i = 0; i < count; i++) {
		free(out[i].sql);
		free(out[i].json);
	}
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

/* The first error says why; one behind a result that was good is the commit's. */
static void failure_note(struct pg_entry *e, const PGresult *r)
{
	const char *code = PQresultErrorField(r, PG_DIAG_SQLSTATE);

	if (e->failure[0])
		return;
	snprintf(e->sqlstate, sizeof(e->sqlstate), "%.5s", code ? code : "");
	snprintf(e->failure, sizeof(e->failure), "%s: %s", code ? code : "no answer",
		PQresultErrorField(r, PG_DIAG_MESSAGE_PRIMARY)
			? PQresultErrorField(r, PG_DIAG_MESSAGE_PRIMARY)
			: PQresultErrorMessage(r));
}

static void result_take(struct pg_entry *e, const PGresult *r)
{
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
	failure_note(e, r);
}

/* ---- answers to a group ---- */

static void step_result(struct pg_entry *e, const PGresult *r)
{
	struct pg_step *s = &e->steps[e->step_at];

	if (PQresultStatus(r) == PGRES_PIPELINE_ABORTED)
		return;
	if (PQresultStatus(r) != PGRES_COMMAND_OK) {
		if (!e->failure[0])
			e->failed = s->v;
		failure_note(e, r);
		return;
	}
	switch (s->kind) {
	case PG_STEP_PREPARE_BEGIN:
		e->has_begin = true;
		break;
	case PG_STEP_PREPARE_COMMIT:
		e->has_commit = true;
		break;
	case PG_STEP_PREPARE:
	case PG_STEP_BEGIN:
		break;
	case PG_STEP_VALUE:
		s->v->rows = strtoull(PQcmdTuples((PGresult *)r), NULL, 10);
		break;
	case PG_STEP_COMMIT:
		/* It may be gone with that. */
		pg_value_done(s->v, s->v->rows);
		s->v = NULL;
		break;
	}
}

/* What failed can never go in, or is tried again with all that stands behind it. */
static void value_failed(struct pg_entry *e, struct pg_value *v)
{
	char why[PG_ERROR_SIZE];

	snprintf(why, sizeof(why), "%s", e->failure);
	if (!v || !pg_is_final(e->sqlstate)) {
		e->p->counters.retries++;
		pg_entry_failed(e, why);
	} else if (!v->looked && strncmp(e->sqlstate, "42", 2) == 0) {
		/* What is known of the table may be older than the table. */
		v->looked = e->stale = true;
	} else {
		pg_value_dead(v, why);
	}
}

/* All answers are there. */
static void group_end(struct pg_entry *e)
{
	struct pg_value *v = e->failed;

	rp_loop_timer_cancel(&e->watchdog);
	e->failed = NULL;
	if (!PQexitPipelineMode(e->conn) || PQstatus(e->conn) != CONNECTION_OK) {
		lost(e);
		return;
	}
	group_back(e);
	e->state = PG_READY;
	if (e->failure[0]) {
		free(e->prepared);
		e->prepared = NULL;
		value_failed(e, v);
	}
	if (PQtransactionStatus(e->conn) == PQTRANS_INERROR)
		command_begin(e, PG_ROLLBACK, PQsendQuery(e->conn, "rollback"));
	else
		go_on(e);
}

/* ---- answers to a command ---- */

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
	if (was == PG_SENT && !e->failure[0] && v)
		pg_value_done(v, e->changed);
	else if (e->failure[0] && was >= PG_PREPARE && was <= PG_SENT)
		value_failed(e, v);
	else if (e->failure[0])
		pg_entry_failed(e, e->failure);
	go_on(e);
}

/* take: r, NULL at the end of a command's results. True: the command is over. */
static bool command_take(struct pg_entry *e, PGresult *r)
{
	if (r)
		result_take(e, r);
	else
		command_end(e);
	PQclear(r);
	return !r;
}

/* As above; a group is over with what answers its end. */
static bool group_take(struct pg_entry *e, PGresult *r)
{
	bool end = PQresultStatus(r) == PGRES_PIPELINE_SYNC;

	if (!r) {
		rp_loop_timer_in(e->p->loop, &e->watchdog, ANSWER_NS);
		e->step_at++;
	} else if (!end && e->step_at < e->step_count) {
		step_result(e, r);
	}
	PQclear(r);
	if (end) {
		group_end(e);
	} else if (e->step_at > e->step_count || PQstatus(e->conn) != CONNECTION_OK) {
		lost(e);
		return true;
	}
	return end;
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
		if (e->state == PG_GROUP ? group_take(e, r) : command_take(e, r))
			return;
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
