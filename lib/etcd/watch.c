/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Watch service: one stream, many watches (spec/etcd-semantics.md section 7).
 *
 * Room. Events go out only while the client's HTTP/2 windows take them; a key watch without room is
 * blocked in the store and keeps its position, a consumer's delivery is refused with -EAGAIN. Small
 * answers (created, canceled, progress) are never lost: what the connection does not take is
 * parked, and the stream's requests are not read until it is gone, so a client cannot pile them up.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <base/assert.h>

#include <etcdserverpb/rpc.pb-c.h>

#include "etcd_priv.h"

static struct etcd_watch *watch_of_link(struct rp_list *n)
{
	return rp_list_entry(n, struct etcd_watch, link);
}

static struct etcd_watch *watch_of_node(struct etcd_node *n)
{
	return RP_CONTAINER_OF(n, struct etcd_watch, node);
}

/* ---- output ---- */

static uint8_t *pack(const Etcdserverpb__WatchResponse *m, size_t length)
{
	uint8_t *data = malloc(length > 0 ? length : 1);

	RP_ASSERT(data != NULL);
	etcdserverpb__watch_response__pack(m, data);
	return data;
}

/* Reading stops while much is on its way out; asking for room makes on_room() come. */
static void stream_throttle(struct etcd_stream *s)
{
	bool full = !rp_list_empty(&s->parked) ||
		    rp_grpc_call_queued_bytes(s->call) > ETCD_STREAM_OUT_BYTES;

	if (full && !s->paused) {
		s->paused = true;
		rp_grpc_call_pause_reading(s->call);
	} else if (!full && s->paused) {
		s->paused = false;
		rp_grpc_call_resume_reading(s->call);
	}
	if (full && rp_grpc_call_fits(s->call, 1) && s->room_link.next == &s->room_link)
		rp_list_push_back(&s->e->rooms, &s->room_link);
}

static void stream_park(struct etcd_stream *s, const uint8_t *data, size_t length)
{
	struct etcd_parked *p = malloc(sizeof(*p) + length);

	RP_ASSERT(p != NULL);
	p->length = length;
	memcpy(p->data, data, length);
	rp_list_push_back(&s->parked, &p->link);
}

void etcd_stream_send(struct etcd_stream *s, const Etcdserverpb__WatchResponse *m)
{
	size_t length = etcdserverpb__watch_response__get_packed_size(m);
	uint8_t *data = pack(m, length);

	if (!rp_list_empty(&s->parked) || rp_grpc_call_send(s->call, data, length, 0) != 0)
		stream_park(s, data, length);
	free(data);
	stream_throttle(s);
}

int etcd_stream_offer(struct etcd_stream *s, const Etcdserverpb__WatchResponse *m, uint64_t cookie)
{
	size_t length = etcdserverpb__watch_response__get_packed_size(m);
	int status;

	if (!rp_list_empty(&s->parked) || !rp_grpc_call_fits(s->call, length))
		return -EAGAIN;
	status = rp_grpc_call_send_take(s->call, pack(m, length), length, cookie);
	if (status == 0)
		return 0;
	/* It fits, yet is not taken: no on_room() comes, so rp_etcd_run() tries again. */
	if (s->room_link.next == &s->room_link)
		rp_list_push_back(&s->e->rooms, &s->room_link);
	return -EAGAIN;
}

static void stream_flush(struct etcd_stream *s)
{
	while (!rp_list_empty(&s->parked)) {
		struct etcd_parked *p = rp_list_entry(s->parked.next, struct etcd_parked, link);

		if (rp_grpc_call_send(s->call, p->data, p->length, 0) != 0)
			break;
		rp_list_unlink(&p->link);
		free(p);
	}
	stream_throttle(s);
}

/* One more of the blocked watches is led through the history. */
static void stream_resume_one(struct etcd_stream *s)
{
	struct rp_list *n = rp_list_pop_front(&s->blocked);

	if (n)
		rp_kv_watcher_resume(watch_of_link(n)->watcher);
}

static void stream_room(struct etcd_stream *s)
{
	struct rp_list hungry, *n;

	rp_list_unlink(&s->room_link);
	stream_flush(s);
	if (!rp_list_empty(&s->parked))
		return;
	for (int i = 0; i < ETCD_RESUME_BURST; i++)
		stream_resume_one(s);
	/* Those that find no room again put themselves on the list again: each gets one try. */
	rp_list_init(&hungry);
	rp_list_splice_back(&hungry, &s->hungry);
	while ((n = rp_list_pop_front(&hungry)))
		etcd_consumer_room(watch_of_link(n));
}

static void on_room(struct rp_grpc_call *call, void *ctx)
{
	struct etcd_stream *s = rp_grpc_call_user(call);

	if (s)
		stream_room(s);
}

void etcd_streams_room(struct rp_etcd *e)
{
	struct rp_list rooms, *n;

	rp_list_init(&rooms);
	rp_list_splice_back(&rooms, &e->rooms);
	while ((n = rp_list_pop_front(&rooms)))
		stream_room(rp_list_entry(n, struct etcd_stream, room_link));
}

/* ---- answers without events ---- */

static void stream_say(
	struct etcd_stream *s, Etcdserverpb__WatchResponse *m, int64_t id, int64_t revision)
{
	Etcdserverpb__ResponseHeader h = etcd_header(s->e, revision);

	m->header = &h;
	m->watch_id = id;
	etcd_stream_send(s, m);
}

void etcd_stream_refuse(struct etcd_stream *s, const char *reason)
{
	Etcdserverpb__WatchResponse m = ETCDSERVERPB__WATCH_RESPONSE__INIT;

	s->e->stats.watch_refusals++;
	m.created = m.canceled = 1;
	m.cancel_reason = (char *)reason;
	stream_say(s, &m, -1, rp_kv_revision(s->e->kv));
}

void etcd_watch_created(struct etcd_watch *w, int64_t revision)
{
	Etcdserverpb__WatchResponse m = ETCDSERVERPB__WATCH_RESPONSE__INIT;

	m.created = 1;
	stream_say(w->stream, &m, etcd_watch_id(w), revision);
}

/* Revision of a header that tells of no event. */
static int64_t watch_revision(const struct etcd_watch *w)
{
	return w->kind == ETCD_WATCH_CONSUMER ? w->last_revision : rp_kv_revision(w->stream->e->kv);
}

static void watch_progress(struct etcd_watch *w)
{
	Etcdserverpb__WatchResponse m = ETCDSERVERPB__WATCH_RESPONSE__INIT;

	stream_say(w->stream, &m, etcd_watch_id(w), watch_revision(w));
}

/* ---- watches ---- */

/* Unhooks it from store or queue; its id stays known. */
static void watch_stop(struct etcd_watch *w, enum rp_etcd_consumer_end why)
{
	bool blocked = !rp_list_empty(&w->link);

	rp_list_unlink(&w->link);
	switch (w->kind) {
	case ETCD_WATCH_KEYS:
		rp_kv_watcher_cancel(w->watcher);
		w->watcher = NULL;
		/* Had it been resumed, the next of the blocked would wait for it in vain. */
		if (!blocked)
			stream_resume_one(w->stream);
		break;
	case ETCD_WATCH_CONSUMER:
		etcd_consumer_closed(w, why);
		break;
	case ETCD_WATCH_ENDED:
		return;
	}
	w->kind = ETCD_WATCH_ENDED;
	w->stream->e->stats.watches--;
}

void etcd_watch_free(struct etcd_watch *w)
{
	etcd_table_remove(&w->stream->watches, &w->node);
	free(w);
}

void etcd_watch_end(struct etcd_watch *w, const char *reason, int64_t compact_revision)
{
	Etcdserverpb__WatchResponse m = ETCDSERVERPB__WATCH_RESPONSE__INIT;

	m.canceled = 1;
	m.compact_revision = compact_revision;
	if (reason)
		m.cancel_reason = (char *)reason;
	stream_say(w->stream, &m, etcd_watch_id(w), reason ? watch_revision(w) : 0);
}

struct etcd_watch *etcd_watch_new(
	struct etcd_stream *s, int64_t id, struct rp_span name, struct rp_span spelled)
{
	struct etcd_watch *w = calloc(1, sizeof(*w) + name.length + spelled.length);

	RP_ASSERT(w != NULL);
	rp_list_init(&w->link);
	w->stream = s;
	w->name_length = (uint32_t)name.length;
	w->spelled_length = (uint32_t)spelled.length;
	if (name.length > 0)
		memcpy(w->bytes, name.data, name.length);
	if (spelled.length > 0)
		memcpy(w->bytes + name.length, spelled.data, spelled.length);
	etcd_table_add(&s->watches, &w->node, (uint64_t)id);
	s->e->stats.watches++;
	return w;
}

/* ---- events of keys ---- */

static void event_fill(
	struct rp_etcd *e, uint32_t i, const struct rp_kv_event *event, struct rp_span spelled)
{
	Mvccpb__KeyValue *kv = &e->kvs[2 * i], *prev = kv + 1;
	Mvccpb__Event *out = &e->events[i];

	mvccpb__event__init(out);
	etcd_kv_fill(kv, event->kv, false);
	if (event->kv->deleted)
		out->type = MVCCPB__EVENT__EVENT_TYPE__DELETE;
	if (event->prev) {
		etcd_kv_fill(prev, event->prev, false);
		out->prev_kv = prev;
	}
	if (spelled.length > 0) {
		kv->key = etcd_bytes(spelled);
		prev->key = kv->key;
	}
	out->kv = kv;
	e->event_pointers[i] = out;
}

static void events_fill(
	struct rp_etcd *e, const struct rp_kv_event *events, uint32_t count, struct rp_span spelled)
{
	e->kvs = etcd_grow(e->kvs, &e->kvs_size, 2 * (uint64_t)count, sizeof(e->kvs[0]));
	e->events = etcd_grow(e->events, &e->events_size, count, sizeof(e->events[0]));
	e->event_pointers = etcd_grow(
		e->event_pointers, &e->event_pointers_size, count, sizeof(e->event_pointers[0]));
	for (uint32_t i = 0; i < count; i++)
		event_fill(e, i, &events[i], spelled);
}

/* Section 7.6: what is too large goes in pieces of whole events; the first goes only with room. */
static int send_fragments(struct etcd_watch *w, Etcdserverpb__WatchResponse *m, size_t limit)
{
	size_t total = m->n_events, from = 0;

	while (from < total) {
		size_t count = 1, size = mvccpb__event__get_packed_size(m->events[from]);
		Etcdserverpb__WatchResponse part = *m;

		while (from + count < total) {
			size += mvccpb__event__get_packed_size(m->events[from + count]) + 8;
			if (size >= limit)
				break;
			count++;
		}
		part.events = m->events + from;
		part.n_events = count;
		part.fragment = from + count < total;
		if (from == 0 && etcd_stream_offer(w->stream, &part, 0) != 0)
			return -EAGAIN;
		if (from > 0)
			etcd_stream_send(w->stream, &part);
		from += count;
	}
	return 0;
}

static void events_alias(struct rp_etcd *e, struct etcd_arena *a, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		etcd_alias_key(a, &e->events[i].kv->key);
		if (e->events[i].prev_kv)
			e->events[i].prev_kv->key = e->events[i].kv->key;
	}
}

static bool on_events(void *ctx, struct rp_kv_watcher *watcher, int64_t revision,
	const struct rp_kv_event *events, uint32_t count)
{
	struct etcd_watch *w = ctx;
	struct etcd_stream *s = w->stream;
	struct rp_etcd *e = s->e;
	size_t limit = (size_t)e->config.request_bytes_max + ETCD_REQUEST_OVERHEAD;
	Etcdserverpb__ResponseHeader h = etcd_header(e, revision);
	Etcdserverpb__WatchResponse m = ETCDSERVERPB__WATCH_RESPONSE__INIT;
	struct etcd_arena a = {0};
	int status;

	events_fill(e, events, count, etcd_watch_spelled(w));
	if (w->alias)
		events_alias(e, &a, count);
	m.header = &h;
	m.watch_id = etcd_watch_id(w);
	m.events = e->event_pointers;
	m.n_events = count;
	if (w->fragment && count > 1 && etcdserverpb__watch_response__get_packed_size(&m) >= limit)
		status = send_fragments(w, &m, limit);
	else
		status = etcd_stream_offer(s, &m, 0);
	etcd_arena_free(&a);
	if (status != 0) {
		rp_list_push_back(&s->blocked, &w->link);
		return false;
	}
	w->sent = true;
	stream_resume_one(s);
	return true;
}

static void on_compacted(void *ctx, struct rp_kv_watcher *watcher, int64_t compacted_revision)
{
	struct etcd_watch *w = ctx;

	w->watcher = NULL;
	w->kind = ETCD_WATCH_ENDED;
	w->stream->e->stats.watches--;
	etcd_watch_end(w, NULL, compacted_revision);
	stream_resume_one(w->stream);
}

static const struct rp_kv_watch_ops watch_ops = {
	.on_events = on_events, .on_compacted = on_compacted};

/* ---- requests ---- */

/* The id that a create request gets: 0, or -EEXIST. */
static int id_choose(struct etcd_stream *s, int64_t asked, int64_t *id)
{
	if (asked != 0) {
		*id = asked;
		return etcd_table_find(&s->watches, (uint64_t)asked) ? -EEXIST : 0;
	}
	while (etcd_table_find(&s->watches, (uint64_t)s->id_next))
		s->id_next++;
	*id = s->id_next++;
	return 0;
}

static uint32_t filters_of(const Etcdserverpb__WatchCreateRequest *r)
{
	uint32_t filters = 0;

	for (size_t i = 0; i < r->n_filters; i++) {
		if ((int)r->filters[i] == ETCDSERVERPB__WATCH_CREATE_REQUEST__FILTER_TYPE__NOPUT)
			filters |= RP_KV_WATCH_NO_PUT;
		if ((int)r->filters[i] == ETCDSERVERPB__WATCH_CREATE_REQUEST__FILTER_TYPE__NODELETE)
			filters |= RP_KV_WATCH_NO_DELETE;
	}
	return filters;
}

static void create_keys(struct etcd_stream *s, const Etcdserverpb__WatchCreateRequest *r,
	int64_t id, const struct rp_route_key *key)
{
	struct rp_kv *kv = s->e->kv;
	struct rp_span spelled = {0};
	struct etcd_arena a = {0};
	struct rp_kv_watch_options o = {
		.key = etcd_span(r->key),
		.end = etcd_span(r->range_end),
		.start_revision = r->start_revision,
		.filters = filters_of(r),
		.prev_kv = r->prev_kv,
		.ops = &watch_ops,
	};
	struct etcd_watch *w;

	if (rp_route_key_is_registry(key)) {
		spelled = o.key;
		o.key = etcd_canonical(&a, key);
	}
	w = etcd_watch_new(s, id, (struct rp_span){0}, spelled);
	o.ctx = w;
	w->progress_notify = r->progress_notify;
	w->fragment = r->fragment;
	w->alias = etcd_alias_range(&a, &o.key, &o.end);
	w->watcher = rp_kv_watch(kv, &o);
	etcd_arena_free(&a);
	/* create_refusal() has seen that the range is not empty. */
	RP_ASSERT(w->watcher != NULL);
	etcd_watch_created(w, rp_kv_revision(kv));
}

static bool range_empty(const Etcdserverpb__WatchCreateRequest *r)
{
	static const uint8_t zero;
	const uint8_t *key = r->key.len > 0 ? r->key.data : &zero;
	size_t length = RP_MAX(r->key.len, (size_t)1);

	return rp_route_range_classify(key, length, r->range_end.data, r->range_end.len) ==
	       RP_RANGE_EMPTY;
}

/* As etcd words it within a cancel_reason. */
static void refusal_text(char *text, size_t size, int code, const char *message)
{
	snprintf(text, size, "rpc error: code = %s desc = %s",
		code == RP_GRPC_PERMISSION_DENIED ? "PermissionDenied"
		: code == RP_GRPC_UNAUTHENTICATED ? "Unauthenticated"
						  : "InvalidArgument",
		message);
}

/* Why no watch comes of it, or NULL. */
static const char *create_refusal(struct etcd_stream *s, const Etcdserverpb__WatchCreateRequest *r,
	const struct rp_route_key *key, char *text, size_t size)
{
	struct rp_etcd_caller caller = etcd_caller_of(s->e, s->call);
	const char *message = NULL;
	int code = etcd_check(
		s->e, RP_ETCD_READ, etcd_span(r->key), etcd_span(r->range_end), &caller, &message);

	if (code != RP_GRPC_OK) {
		refusal_text(text, size, code, message);
		return text;
	}
	if (r->start_revision < 0)
		return rp_kv_error_text(RP_KV_COMPACTED);
	if (range_empty(r))
		return "mvcc: watcher range is empty";
	if (s->watches.count >= s->e->config.watches_per_stream_max)
		return "etcdserver: too many requests";
	if (key->kind == RP_KEY_INVALID || key->kind == RP_KEY_SINK) {
		etcd_key_reason(key, text, size);
		return text;
	}
	if (rp_route_key_is_traffic(key))
		return "queue key: a message cannot be watched; watch the consumer's key";
	return NULL;
}

static void on_create(struct etcd_stream *s, const Etcdserverpb__WatchCreateRequest *r)
{
	struct rp_route_key key = {.kind = RP_KEY_ORDINARY};
	const char *refusal;
	char text[512];
	int64_t id;

	s->e->stats.watch_creates++;
	if (r->range_end.len == 0)
		rp_route_key_parse(&key, r->key.data, r->key.len);
	refusal = create_refusal(s, r, &key, text, sizeof(text));
	if (!refusal && id_choose(s, r->watch_id, &id) != 0)
		refusal = "mvcc: duplicate watch ID provided on the WatchStream";
	if (refusal)
		etcd_stream_refuse(s, refusal);
	else if (key.kind == RP_KEY_CONSUMER)
		etcd_consumer_create(s, r, id, &key);
	else
		create_keys(s, r, id, &key);
}

static void on_cancel_request(struct etcd_stream *s, int64_t id)
{
	struct etcd_node *n = etcd_table_find(&s->watches, (uint64_t)id);
	struct etcd_watch *w;
	int64_t revision;

	if (!n)
		return;
	w = watch_of_node(n);
	revision = watch_revision(w);
	watch_stop(w, RP_ETCD_CONSUMER_CANCELLED);
	{
		Etcdserverpb__WatchResponse m = ETCDSERVERPB__WATCH_RESPONSE__INIT;

		m.canceled = 1;
		stream_say(s, &m, id, revision);
	}
	etcd_watch_free(w);
}

static void progress_check(struct etcd_node *n, void *ctx)
{
	struct etcd_watch *w = watch_of_node(n);
	bool *synced = ctx;

	if (w->kind == ETCD_WATCH_KEYS && rp_kv_watcher_progress(w->watcher) == 0)
		*synced = false;
}

static void progress_each(struct etcd_node *n, void *ctx)
{
	struct etcd_watch *w = watch_of_node(n);

	if (w->kind == ETCD_WATCH_CONSUMER ||
		(w->kind == ETCD_WATCH_KEYS && rp_kv_watcher_progress(w->watcher) > 0))
		watch_progress(w);
}

static void on_progress_request(struct etcd_stream *s)
{
	Etcdserverpb__WatchResponse m = ETCDSERVERPB__WATCH_RESPONSE__INIT;
	bool synced = s->watches.count > 0;

	/* A consumer's sequence is its own: one revision for the whole stream would be a lie. */
	if (s->consumer_count > 0) {
		etcd_table_each(&s->watches, progress_each, NULL);
		return;
	}
	etcd_table_each(&s->watches, progress_check, &synced);
	if (synced)
		stream_say(s, &m, -1, rp_kv_revision(s->e->kv));
}

/* ---- the stream ---- */

static void on_start(struct rp_grpc_call *call, void *ctx)
{
	struct rp_etcd *e = ctx;
	struct etcd_stream *s;

	if (e->stopped) {
		rp_grpc_call_finish(call, RP_GRPC_UNAVAILABLE, ETCD_TEXT_STOPPED);
		return;
	}
	if (etcd_leader_missing(e, call)) {
		rp_grpc_call_finish(call, RP_GRPC_UNAVAILABLE, "etcdserver: no leader");
		return;
	}
	s = calloc(1, sizeof(*s));
	RP_ASSERT(s != NULL);
	s->e = e;
	s->call = call;
	rp_list_init(&s->room_link);
	rp_list_init(&s->blocked);
	rp_list_init(&s->hungry);
	rp_list_init(&s->parked);
	rp_list_init(&s->accepts);
	rp_list_push_back(&e->streams, &s->link);
	e->stats.watch_streams++;
	rp_grpc_call_set_user(call, s);
}

struct stop_context {
	enum rp_etcd_consumer_end why;
};

static void stop_each(struct etcd_node *n, void *ctx)
{
	struct etcd_watch *w = watch_of_node(n);
	struct stop_context *stop = ctx;

	watch_stop(w, stop->why);
	etcd_watch_free(w);
}

static void stream_destroy(struct etcd_stream *s, enum rp_etcd_consumer_end why)
{
	struct stop_context stop = {.why = why};
	struct rp_list *n;

	/* Nothing of it is to be resumed any more. */
	while (rp_list_pop_front(&s->blocked))
		;
	etcd_table_each(&s->watches, stop_each, &stop);
	etcd_table_clear(&s->watches);
	while ((n = rp_list_pop_front(&s->parked)))
		free(rp_list_entry(n, struct etcd_parked, link));
	while ((n = rp_list_pop_front(&s->accepts)))
		free(rp_list_entry(n, struct etcd_accept, link));
	rp_list_unlink(&s->link);
	rp_list_unlink(&s->room_link);
	s->e->stats.watch_streams--;
	free(s);
}

static void on_message(struct rp_grpc_call *call, const uint8_t *data, size_t length, void *ctx)
{
	struct rp_etcd *e = ctx;
	struct etcd_stream *s = rp_grpc_call_user(call);
	Etcdserverpb__WatchRequest *m = etcdserverpb__watch_request__unpack(NULL, length, data);

	if (!m) {
		stream_destroy(s, RP_ETCD_CONSUMER_LOST);
		etcd_refuse_malformed(e, call, "WatchRequest");
		return;
	}
	switch (m->request_union_case) {
	case ETCDSERVERPB__WATCH_REQUEST__REQUEST_UNION_CREATE_REQUEST:
		on_create(s, m->create_request);
		break;
	case ETCDSERVERPB__WATCH_REQUEST__REQUEST_UNION_CANCEL_REQUEST:
		on_cancel_request(s, m->cancel_request->watch_id);
		break;
	case ETCDSERVERPB__WATCH_REQUEST__REQUEST_UNION_PROGRESS_REQUEST:
		on_progress_request(s);
		break;
	case ETCDSERVERPB__WATCH_REQUEST__REQUEST_UNION__NOT_SET:
	case _ETCDSERVERPB__WATCH_REQUEST__REQUEST_UNION__CASE_IS_INT_SIZE:
		break;
	}
	etcdserverpb__watch_request__free_unpacked(m, NULL);
}

static void on_cancel(struct rp_grpc_call *call, enum rp_grpc_cancel why, void *ctx)
{
	struct etcd_stream *s = rp_grpc_call_user(call);
	enum rp_etcd_consumer_end end = RP_ETCD_CONSUMER_LOST;

	if (!s)
		return;
	if (why == RP_GRPC_CANCEL_RESET)
		end = RP_ETCD_CONSUMER_CANCELLED;
	else if (why == RP_GRPC_CANCEL_STOPPED)
		end = RP_ETCD_CONSUMER_STOPPED;
	stream_destroy(s, end);
}

static void on_written(struct rp_grpc_call *call, uint64_t cookie, void *ctx)
{
	struct etcd_stream *s = rp_grpc_call_user(call);

	if (s)
		etcd_consumer_written(s, cookie);
}

const struct rp_grpc_call_ops etcd_watch_stream_ops = {
	.on_start = on_start,
	.on_message = on_message,
	.on_cancel = on_cancel,
	.on_room = on_room,
	.on_written = on_written,
};

/* ---- all streams ---- */

static void progress_tick(struct etcd_node *n, void *ctx)
{
	struct etcd_watch *w = watch_of_node(n);
	bool synced = w->kind == ETCD_WATCH_CONSUMER ||
		      (w->kind == ETCD_WATCH_KEYS && rp_kv_watcher_progress(w->watcher) > 0);

	if (w->progress_notify && synced && !w->sent)
		watch_progress(w);
	w->sent = false;
}

void etcd_streams_progress(struct rp_etcd *e)
{
	struct rp_list *n;

	rp_list_foreach (n, &e->streams) {
		struct etcd_stream *s = rp_list_entry(n, struct etcd_stream, link);

		/* A client that does not read needs no news. */
		if (rp_list_empty(&s->parked))
			etcd_table_each(&s->watches, progress_tick, NULL);
	}
}

static void policy_look(struct etcd_node *n, void *ctx)
{
	const struct rp_etcd_caller *caller = ctx;
	struct etcd_watch *w = watch_of_node(n);
	struct rp_span key = etcd_watch_spelled(w), end = {0};
	const char *message = NULL;
	char text[256];

	if (w->kind == ETCD_WATCH_ENDED)
		return;
	if (w->kind == ETCD_WATCH_KEYS)
		rp_kv_watcher_range(w->watcher, &key, &end);
	if (etcd_policy_check(w->stream->e, RP_ETCD_READ, key, end, caller, &message) == RP_GRPC_OK)
		return;
	refusal_text(text, sizeof(text), RP_GRPC_PERMISSION_DENIED, message);
	if (w->kind == ETCD_WATCH_CONSUMER)
		etcd_consumer_closed(w, RP_ETCD_CONSUMER_STOPPED);
	else
		rp_kv_watcher_cancel(w->watcher);
	w->stream->e->stats.watches--;
	w->watcher = NULL;
	w->kind = ETCD_WATCH_ENDED;
	rp_list_unlink(&w->link);
	etcd_watch_end(w, text, 0);
}

void etcd_streams_policy(struct rp_etcd *e)
{
	struct rp_list *n, *t;

	rp_list_foreach_safe (n, t, &e->streams) {
		struct etcd_stream *s = rp_list_entry(n, struct etcd_stream, link);
		struct rp_etcd_caller caller = etcd_caller_of(e, s->call);

		etcd_table_each(&s->watches, policy_look, &caller);
	}
}

void etcd_streams_stop(struct rp_etcd *e)
{
	while (!rp_list_empty(&e->streams)) {
		struct etcd_stream *s = rp_list_entry(e->streams.next, struct etcd_stream, link);
		struct rp_grpc_call *call = s->call;

		stream_destroy(s, RP_ETCD_CONSUMER_STOPPED);
		rp_grpc_call_set_user(call, NULL);
		rp_grpc_call_finish(call, RP_GRPC_UNAVAILABLE, ETCD_TEXT_STOPPED);
	}
}
