/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <base/assert.h>
#include <base/list.h>
#include <base/log.h>
#include <conf/conf.h>
#include <ctl/embed.h>
#include <grpc/loop.h>
#include <kv/kv.h>
#include <node/node.h>
#include <node/ringpost.h>
#include <route/record.h>
#include <telem/metrics.h>

/** A function to be called on the node's thread: at once, or when its timer is due. */
struct posted {
	struct rp_list node;
	struct rp_ringpost *rp;
	struct rp_loop_timer timer;
	rp_ringpost_fn fn;
	void *ctx;
};

struct rp_ringpost {
	struct rp_conf conf;
	struct rp_conf_plan plan;
	struct rp_ringpost_config config;
	char **argv; /**< with a name of the program in front */
	struct rp_node *node;
	struct rp_ctl *ctl;
	struct rp_list timed; /**< struct posted */
	struct rp_kv_version *got;
	struct rp_list watches, consumers;
	/* Any thread. */
	pthread_mutex_t mutex;
	struct rp_list posted; /**< struct posted; under the mutex */
};

struct rp_ringpost_watch {
	struct rp_list node;
	struct rp_ctl_watch *watch;
	void (*event)(void *ctx, const struct rp_ringpost_kv *kv);
	void (*end)(void *ctx, int64_t compacted_revision);
	void *ctx;
};

struct rp_ringpost_consumer {
	struct rp_list node;
	struct rp_ctl_consumer *consumer;
	struct rp_ringpost_consumer_ops ops;
	void *ctx;
};

static struct rp_span span_of(struct rp_ringpost_bytes b)
{
	return (struct rp_span){b.data, b.length};
}

static struct rp_ringpost_bytes bytes_of(struct rp_span s)
{
	return (struct rp_ringpost_bytes){s.data, s.length};
}

static void *alloc(size_t size)
{
	void *p = calloc(1, size);

	RP_ASSERT(p != NULL);
	return p;
}

/* ---- log ---- */

/* The sink is the process's, and so is the node. */
static void (*log_fn)(const char *subject, const char *level, const char *text);

static void log_sink(enum rp_log_subject subject, enum rp_log_level level, const char *text)
{
	log_fn(rp_log_subject_name(subject), rp_log_level_name(level), text);
}

/* ---- the node's life ---- */

static void on_ready(void *ctx, bool alone)
{
	struct rp_ringpost *rp = ctx;

	if (rp->config.events.ready)
		rp->config.events.ready(rp->config.ctx, alone);
}

static void on_node_state(void *ctx, uint64_t node, enum rp_node_state state)
{
	static const enum rp_ringpost_node_state states[] = {
		[RP_NODE_GONE] = RP_RINGPOST_NODE_GONE,
		[RP_NODE_SPARE] = RP_RINGPOST_NODE_SPARE,
		[RP_NODE_IN_PROGRESS] = RP_RINGPOST_NODE_IN_PROGRESS,
		[RP_NODE_ONLINE] = RP_RINGPOST_NODE_ONLINE,
	};
	struct rp_ringpost *rp = ctx;

	if (rp->config.events.node_state)
		rp->config.events.node_state(rp->config.ctx, node, states[state]);
}

static void on_reconfigured(void *ctx)
{
	struct rp_ringpost *rp = ctx;

	if (rp->config.events.reconfigured)
		rp->config.events.reconfigured(rp->config.ctx);
}

static void on_stopping(void *ctx)
{
	struct rp_ringpost *rp = ctx;

	if (rp->config.events.stopping)
		rp->config.events.stopping(rp->config.ctx);
}

static void report_print(const struct rp_conf_report *report, char *error, size_t error_size)
{
	size_t at = 0;

	for (unsigned i = 0; i < report->count && at < error_size; i++) {
		char line[1024];

		if (report->messages[i].severity != RP_CONF_ERROR)
			continue;
		rp_conf_message_format(&report->messages[i], line, sizeof(line));
		at += (size_t)snprintf(error + at, error_size - at, "%s\n", line);
	}
}

/* 0, or an exit status with the errors. */
static int conf_load(struct rp_ringpost *rp, char *error, size_t error_size)
{
	struct rp_conf_report report;
	struct rp_conf_host host;
	int rc;

	rp->argv = alloc(((size_t)rp->config.argc + 2) * sizeof(*rp->argv));
	rp->argv[0] = (char *)"ringpost";
	for (int i = 0; i < rp->config.argc; i++)
		rp->argv[i + 1] = (char *)rp->config.argv[i];
	rp_conf_load(rp->config.argc + 1, rp->argv, &rp->conf, &report);
	rc = report.exit_code;
	if (rc == RP_EXIT_OK && report.request != RP_CONF_RUN) {
		snprintf(error, error_size, "a flag that only prints is none for a node inside");
		rc = RP_EXIT_USAGE;
	} else if (rc == RP_EXIT_OK) {
		rp_conf_host_read(&host);
		if (rp_conf_resolve(&rp->conf, &host, &rp->plan, &report) != 0)
			rc = report.exit_code;
	}
	if (rc != RP_EXIT_OK && error[0] == '\0')
		report_print(&report, error, error_size);
	rp_conf_report_free(&report);
	return rc;
}

static void on_wake(void *ctx);

struct rp_ringpost *rp_ringpost_create(
	const struct rp_ringpost_config *config, int *status, char *error, size_t error_size)
{
	struct rp_ringpost *rp = alloc(sizeof(*rp));
	struct rp_node_process process = {0};
	bool shards_float;

	error[0] = '\0';
	rp->config = *config;
	rp_list_init(&rp->timed);
	rp_list_init(&rp->posted);
	rp_list_init(&rp->watches);
	rp_list_init(&rp->consumers);
	pthread_mutex_init(&rp->mutex, NULL);
	*status = conf_load(rp, error, error_size);
	if (*status != RP_EXIT_OK) {
		rp_ringpost_destroy(rp);
		return NULL;
	}
	log_fn = config->log;
	rp_log_set_sink(log_fn ? log_sink : NULL);
	rp_conf_levels_use(&rp->conf);
	process.source = (struct rp_conf_source){.argc = config->argc + 1, .argv = rp->argv};
	process.reconfigured = rp_conf_levels_use;
	process.no_signals = !config->signals;
	process.events = (struct rp_ctl_events){.ready = on_ready,
		.node_state = on_node_state,
		.reconfigured = on_reconfigured,
		.stopping = on_stopping,
		.ctx = rp};
	shards_float = strcmp(rp->conf.shards.cpus, "auto") == 0 && !rp->plan.poll;
	rp->node = rp_node_create(
		&rp->conf, &rp->plan, &process, shards_float, status, error, error_size);
	if (!rp->node) {
		rp_ringpost_destroy(rp);
		return NULL;
	}
	rp->ctl = rp_node_ctl(rp->node);
	rp_ctl_on_wake(rp->ctl, on_wake, rp);
	return rp;
}

int rp_ringpost_run(struct rp_ringpost *rp)
{
	return rp_node_run(rp->node);
}

void rp_ringpost_stop(struct rp_ringpost *rp)
{
	rp_node_request_stop(rp->node);
}

static void wrappers_free(struct rp_ringpost *rp)
{
	struct rp_list *n;

	while ((n = rp_list_pop_front(&rp->watches)))
		free(rp_list_entry(n, struct rp_ringpost_watch, node));
	while ((n = rp_list_pop_front(&rp->consumers)))
		free(rp_list_entry(n, struct rp_ringpost_consumer, node));
}

static void posted_free(struct rp_list *list)
{
	struct rp_list *n;

	while ((n = rp_list_pop_front(list))) {
		struct posted *p = rp_list_entry(n, struct posted, node);

		rp_loop_timer_cancel(&p->timer);
		free(p);
	}
}

void rp_ringpost_destroy(struct rp_ringpost *rp)
{
	if (!rp)
		return;
	posted_free(&rp->timed);
	posted_free(&rp->posted);
	if (rp->got)
		rp_kv_version_unref(rp->got);
	rp_node_destroy(rp->node);
	wrappers_free(rp);
	rp_log_set_sink(NULL);
	rp_conf_free(&rp->conf);
	pthread_mutex_destroy(&rp->mutex);
	free(rp->argv);
	free(rp);
}

/* ---- calls from other threads ---- */

void rp_ringpost_post(struct rp_ringpost *rp, rp_ringpost_fn fn, void *ctx)
{
	struct posted *p = alloc(sizeof(*p));

	p->fn = fn;
	p->ctx = ctx;
	pthread_mutex_lock(&rp->mutex);
	rp_list_push_back(&rp->posted, &p->node);
	pthread_mutex_unlock(&rp->mutex);
	rp_ctl_wake(rp->ctl);
}

static void on_wake(void *ctx)
{
	struct rp_ringpost *rp = ctx;
	struct rp_list batch, *n;

	rp_list_init(&batch);
	pthread_mutex_lock(&rp->mutex);
	rp_list_splice_back(&batch, &rp->posted);
	pthread_mutex_unlock(&rp->mutex);
	while ((n = rp_list_pop_front(&batch))) {
		struct posted p = *rp_list_entry(n, struct posted, node);

		free(rp_list_entry(n, struct posted, node));
		p.fn(p.ctx);
	}
}

static void on_due(void *ctx)
{
	struct posted *p = ctx;
	rp_ringpost_fn fn = p->fn;
	void *user = p->ctx;

	rp_list_unlink(&p->node);
	free(p);
	fn(user);
}

void rp_ringpost_after(struct rp_ringpost *rp, uint64_t ns, rp_ringpost_fn fn, void *ctx)
{
	struct posted *p = alloc(sizeof(*p));

	p->rp = rp;
	p->fn = fn;
	p->ctx = ctx;
	rp_list_push_back(&rp->timed, &p->node);
	rp_loop_timer_setup(&p->timer, on_due, p);
	rp_loop_timer_in(rp_ctl_loop(rp->ctl), &p->timer, ns);
}

/* ---- the node ---- */

uint64_t rp_ringpost_node(const struct rp_ringpost *rp)
{
	return rp_node_id(rp->node);
}

uint16_t rp_ringpost_port(const struct rp_ringpost *rp)
{
	return rp_ctl_client_port(rp->ctl);
}

struct rp_grpc_server *rp_ringpost_server(struct rp_ringpost *rp)
{
	return rp_ctl_server(rp->ctl);
}

struct rp_loop *rp_ringpost_loop(struct rp_ringpost *rp)
{
	return rp_ctl_loop(rp->ctl);
}

bool rp_ringpost_reload(struct rp_ringpost *rp, char *error, size_t error_size)
{
	return rp_ctl_reload(rp->ctl, error, error_size);
}

void rp_ringpost_restart(struct rp_ringpost *rp)
{
	rp_ctl_restart(rp->ctl);
}

void rp_ringpost_pause(struct rp_ringpost *rp, uint64_t ns)
{
	rp_ctl_pause(rp->ctl, ns);
}

void rp_ringpost_drain(struct rp_ringpost *rp, bool on)
{
	rp_ctl_drain(rp->ctl, on);
}

struct metrics_call {
	rp_ringpost_metric_fn fn;
	rp_ringpost_fn done;
	void *ctx;
};

static void on_metrics(void *ctx, const struct rp_metrics *m)
{
	struct metrics_call call = *(struct metrics_call *)ctx;

	free(ctx);
	for (size_t i = 0; i < m->count; i++)
		call.fn(call.ctx, rp_metric_info(&m->items[i])->name, m->items[i].labels,
			m->items[i].value);
	if (call.done)
		call.done(call.ctx);
}

void rp_ringpost_metrics(
	struct rp_ringpost *rp, rp_ringpost_metric_fn fn, rp_ringpost_fn done, void *ctx)
{
	struct metrics_call *call = alloc(sizeof(*call));

	*call = (struct metrics_call){.fn = fn, .done = done, .ctx = ctx};
	rp_ctl_metrics(rp->ctl, on_metrics, call);
}

/* ---- keys ---- */

void rp_ringpost_put(struct rp_ringpost *rp, struct rp_ringpost_bytes key,
	struct rp_ringpost_bytes value, rp_ringpost_done_fn done, void *ctx)
{
	rp_ctl_put(rp->ctl, span_of(key), span_of(value), done, ctx);
}

void rp_ringpost_delete(
	struct rp_ringpost *rp, struct rp_ringpost_bytes key, rp_ringpost_done_fn done, void *ctx)
{
	rp_ctl_delete(rp->ctl, span_of(key), done, ctx);
}

static struct rp_ringpost_kv kv_of(const struct rp_kv_version *v)
{
	return (struct rp_ringpost_kv){
		.key = bytes_of(rp_kv_version_key(v)),
		.value = bytes_of(rp_kv_version_value(v)),
		.create_revision = v->create_revision,
		.mod_revision = v->mod_revision,
		.version = v->version,
		.lease = v->lease,
		.deleted = v->deleted,
	};
}

static bool got(void *ctx, const struct rp_kv_version *v)
{
	struct rp_ringpost *rp = ctx;

	rp->got = rp_kv_version_ref((struct rp_kv_version *)v);
	return false;
}

bool rp_ringpost_get(
	struct rp_ringpost *rp, struct rp_ringpost_bytes key, struct rp_ringpost_kv *out)
{
	if (rp->got)
		rp_kv_version_unref(rp->got);
	rp->got = NULL;
	rp_ctl_range(rp->ctl, span_of(key), (struct rp_span){0}, 1, got, rp);
	if (rp->got)
		*out = kv_of(rp->got);
	return rp->got != NULL;
}

/* The end of the range of all keys that begin with it, as etcd has it. malloc'd. */
static struct rp_span prefix_end(struct rp_ringpost_bytes prefix, uint8_t **buffer)
{
	size_t n = prefix.length;

	*buffer = alloc(n + 1);
	if (n > 0)
		memcpy(*buffer, prefix.data, n);
	while (n > 0 && (*buffer)[n - 1] == 0xff)
		n--;
	if (n == 0)
		return (struct rp_span){(const uint8_t *)"", 1};
	(*buffer)[n - 1]++;
	return (struct rp_span){*buffer, n};
}

/* No key is empty: the first of all keys is one zero byte. */
static struct rp_span prefix_start(struct rp_ringpost_bytes prefix)
{
	return prefix.length > 0 ? span_of(prefix) : (struct rp_span){(const uint8_t *)"", 1};
}

struct prefix_call {
	bool (*fn)(void *ctx, const struct rp_ringpost_kv *kv);
	void *ctx;
};

static bool on_prefix(void *ctx, const struct rp_kv_version *v)
{
	struct prefix_call *call = ctx;
	struct rp_ringpost_kv kv = kv_of(v);

	return call->fn(call->ctx, &kv);
}

size_t rp_ringpost_prefix(struct rp_ringpost *rp, struct rp_ringpost_bytes prefix,
	bool (*fn)(void *ctx, const struct rp_ringpost_kv *kv), void *ctx)
{
	struct prefix_call call = {fn, ctx};
	uint8_t *buffer;
	struct rp_span end = prefix_end(prefix, &buffer);
	size_t n = rp_ctl_range(rp->ctl, prefix_start(prefix), end, 0, on_prefix, &call);

	free(buffer);
	return n;
}

static void on_event(void *ctx, const struct rp_kv_version *v)
{
	struct rp_ringpost_watch *w = ctx;
	struct rp_ringpost_kv kv = kv_of(v);

	w->event(w->ctx, &kv);
}

static void on_watch_end(void *ctx, int64_t compacted_revision)
{
	struct rp_ringpost_watch w = *(struct rp_ringpost_watch *)ctx;

	rp_list_unlink(&((struct rp_ringpost_watch *)ctx)->node);
	free(ctx);
	if (w.end)
		w.end(w.ctx, compacted_revision);
}

struct rp_ringpost_watch *rp_ringpost_watch(struct rp_ringpost *rp, struct rp_ringpost_bytes prefix,
	bool exact, int64_t start_revision,
	void (*event)(void *ctx, const struct rp_ringpost_kv *kv),
	void (*end)(void *ctx, int64_t compacted_revision), void *ctx)
{
	static const struct rp_ctl_watch_ops ops = {.event = on_event, .end = on_watch_end};
	struct rp_ringpost_watch *w = alloc(sizeof(*w));
	uint8_t *buffer = NULL;
	struct rp_span last = exact ? (struct rp_span){0} : prefix_end(prefix, &buffer);

	*w = (struct rp_ringpost_watch){.event = event, .end = end, .ctx = ctx};
	rp_list_push_back(&rp->watches, &w->node);
	w->watch = rp_ctl_watch(rp->ctl, prefix_start(prefix), last, start_revision, &ops, w);
	free(buffer);
	return w;
}

void rp_ringpost_unwatch(struct rp_ringpost_watch *w)
{
	if (!w)
		return;
	rp_ctl_unwatch(w->watch);
	rp_list_unlink(&w->node);
	free(w);
}

/* ---- queues ---- */

void rp_ringpost_send(struct rp_ringpost *rp, struct rp_ringpost_bytes queue,
	struct rp_ringpost_bytes tail, struct rp_ringpost_bytes value, rp_ringpost_done_fn done,
	void *ctx)
{
	rp_ctl_send(rp->ctl, span_of(queue), span_of(tail), span_of(value), done, ctx);
}

static void on_consumer_message(void *ctx, const struct rp_ctl_message *m)
{
	struct rp_ringpost_consumer *c = ctx;
	const struct rp_ringpost_message message = {
		.idx = m->idx,
		.tail = bytes_of(m->tail),
		.value = bytes_of(m->value),
		.attempt = m->attempt,
		.revision = m->revision,
	};

	c->ops.message(c->ctx, c, &message);
}

static void on_consumer_withdrawn(void *ctx, uint64_t idx)
{
	struct rp_ringpost_consumer *c = ctx;

	if (c->ops.withdrawn)
		c->ops.withdrawn(c->ctx, c, idx);
}

static void on_consumer_end(void *ctx, const char *reason)
{
	struct rp_ringpost_consumer *c = ctx;

	if (c->ops.end)
		c->ops.end(c->ctx, c, reason);
	rp_list_unlink(&c->node);
	free(c);
}

struct rp_ringpost_consumer *rp_ringpost_consume(struct rp_ringpost *rp,
	struct rp_ringpost_bytes queue, const uint8_t *uuid, const char *fields,
	int64_t start_revision, const struct rp_ringpost_consumer_ops *ops, void *ctx)
{
	static const struct rp_ctl_consumer_ops ctl_ops = {.message = on_consumer_message,
		.withdrawn = on_consumer_withdrawn,
		.end = on_consumer_end};
	struct rp_ringpost_consumer *c = alloc(sizeof(*c));

	c->ops = *ops;
	c->ctx = ctx;
	c->consumer =
		rp_ctl_consume(rp->ctl, span_of(queue), uuid, fields, start_revision, &ctl_ops, c);
	if (c->consumer) {
		rp_list_push_back(&rp->consumers, &c->node);
		return c;
	}
	free(c);
	return NULL;
}

void rp_ringpost_consumer_close(struct rp_ringpost_consumer *c, bool left)
{
	if (!c)
		return;
	rp_ctl_consumer_close(c->consumer, left);
	rp_list_unlink(&c->node);
	free(c);
}

void rp_ringpost_ack(
	struct rp_ringpost_consumer *c, uint64_t idx, rp_ringpost_done_fn done, void *ctx)
{
	rp_ctl_consumer_ack(c->consumer, idx, false, done, ctx);
}

void rp_ringpost_reject(
	struct rp_ringpost_consumer *c, uint64_t idx, rp_ringpost_done_fn done, void *ctx)
{
	rp_ctl_consumer_ack(c->consumer, idx, true, done, ctx);
}

int rp_ringpost_queue_link(
	struct rp_ringpost *rp, struct rp_ringpost_bytes request, struct rp_ringpost_bytes reply)
{
	return rp_ctl_queue_link(rp->ctl, span_of(request), span_of(reply));
}

uint64_t rp_ringpost_queue_dispatcher(struct rp_ringpost *rp, struct rp_ringpost_bytes queue)
{
	return rp_ctl_queue_dispatcher(rp->ctl, span_of(queue));
}
