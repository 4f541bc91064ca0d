/* SPDX-License-Identifier: Apache-2.0 */
/* Watchers: section 7 without the stream. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "kv_test_util.h"

struct log {
	char text[4096];
	bool full;
	int calls, refused;
	int64_t compacted, revision;
	struct rp_kv_watcher *cancel;
};

static bool on_events(void *ctx, struct rp_kv_watcher *w, int64_t revision,
	const struct rp_kv_event *events, uint32_t count)
{
	struct log *l = ctx;

	assert_true(count > 0);
	if (l->full) {
		l->refused++;
		return false;
	}
	l->calls++;
	l->revision = revision;
	for (uint32_t i = 0; i < count; i++) {
		struct rp_span key = rp_kv_version_key(events[i].kv);

		snprintf(l->text + strlen(l->text), sizeof(l->text) - strlen(l->text),
			"%s%.*s@%d%s ", events[i].kv->deleted ? "-" : "+", (int)key.length,
			(const char *)key.data, (int)events[i].kv->mod_revision,
			events[i].prev ? "*" : "");
	}
	if (l->cancel) {
		rp_kv_watcher_cancel(l->cancel);
		l->cancel = NULL;
	}
	return true;
}

static void on_compacted(void *ctx, struct rp_kv_watcher *w, int64_t revision)
{
	struct log *l = ctx;

	assert_int_equal(l->compacted, 0);
	l->compacted = revision;
}

static const struct rp_kv_watch_ops ops = {.on_events = on_events, .on_compacted = on_compacted};

static struct rp_kv_watcher *watch(
	struct rp_kv *kv, struct log *l, const char *key, struct rp_span end, int64_t start)
{
	struct rp_kv_watch_options o = {
		.key = S(key), .end = end, .start_revision = start, .ops = &ops, .ctx = l};

	return rp_kv_watch(kv, &o);
}

static int setup(void **state)
{
	*state = kv_new();
	return 0;
}

static int teardown(void **state)
{
	rp_kv_destroy(*state);
	return 0;
}

static void test_live(void **state)
{
	struct rp_kv *kv = *state;
	struct log one = {0}, range = {0}, all = {0};
	struct rp_kv_op batch[] = {op_put("a", ""), op_put("b", ""), op_put("z", "")};
	struct rp_kv_result r;

	kv_put(kv, "b", "before");
	watch(kv, &one, "b", S(""), 0);
	watch(kv, &range, "a", S("c"), 0);
	watch(kv, &all, "", S_from(), 0);
	kv_put(kv, "b", "1");
	kv_delete(kv, "b", "");
	kv_put(kv, "c", "1");
	kv_run(kv, batch, 3, &r);
	rp_kv_result_clear(&r);
	assert_string_equal(one.text, "+b@3 -b@4 +b@6 ");
	assert_string_equal(range.text, "+b@3 -b@4 +a@6 +b@6 ");
	assert_int_equal(range.calls, 3);
	assert_int_equal(range.revision, 6);
	assert_string_equal(all.text, "+b@3 -b@4 +c@5 +a@6 +b@6 +z@6 ");
}

static void test_prefix_is_not_key(void **state)
{
	struct log l = {0};

	watch(*state, &l, "b", S(""), 0);
	kv_put(*state, "bb", "");
	kv_put(*state, "a", "");
	kv_put(*state, "", ""); /* cannot come from a client, but is a key all the same */
	assert_string_equal(l.text, "");
}

static void test_filters_and_prev(void **state)
{
	struct log no_put = {0}, no_del = {0}, none = {0};
	struct rp_kv_watch_options o = {.key = S("k"), .ops = &ops, .prev_kv = true};

	o.filters = RP_KV_WATCH_NO_PUT;
	o.ctx = &no_put;
	rp_kv_watch(*state, &o);
	o.filters = RP_KV_WATCH_NO_DELETE;
	o.ctx = &no_del;
	rp_kv_watch(*state, &o);
	o.filters = RP_KV_WATCH_NO_PUT | RP_KV_WATCH_NO_DELETE;
	o.ctx = &none;
	struct rp_kv_watcher *w = rp_kv_watch(*state, &o);
	kv_put(*state, "k", "1");
	kv_put(*state, "k", "2");
	kv_delete(*state, "k", "");
	assert_string_equal(no_put.text, "-k@4* ");
	assert_string_equal(no_del.text, "+k@2 +k@3* ");
	assert_string_equal(none.text, "");
	assert_int_equal(rp_kv_watcher_progress(w), 4);
}

static void test_history(void **state)
{
	struct rp_kv *kv = *state;
	struct log l = {0}, prev = {0};
	struct rp_kv_watcher *w;
	struct rp_kv_watch_options o = {.key = S("a"),
		.end = S_from(),
		.start_revision = 2,
		.prev_kv = true,
		.ops = &ops,
		.ctx = &prev};

	kv_put(kv, "a", "1");
	kv_put(kv, "b", "1");
	kv_put(kv, "a", "2");
	kv_delete(kv, "a", "");
	w = watch(kv, &l, "a", S("b"), 3);
	rp_kv_watch(kv, &o);
	assert_int_equal(rp_kv_watcher_progress(w), 0);
	assert_int_equal(l.calls, 0);
	kv_settle(kv);
	assert_string_equal(l.text, "+a@4 -a@5 ");
	assert_int_equal(l.revision, 5);
	assert_int_equal(rp_kv_watcher_progress(w), 5);
	assert_string_equal(prev.text, "+a@2 +b@3 +a@4* -a@5* ");
	kv_put(kv, "a", "3");
	assert_string_equal(l.text, "+a@4 -a@5 +a@6 ");
}

static void test_batches(void **state)
{
	struct rp_kv *kv = *state;
	struct rp_kv_stats s;
	struct log l = {0};

	for (int i = 0; i < 2500; i++)
		kv_put(kv, i % 2 ? "k" : "other", "");
	l.text[0] = 0;
	/* 1250 revisions that matter: two responses. The text is too small for all; count calls. */
	watch(kv, &l, "k", S(""), 1);
	while (rp_kv_step(kv, 100000))
		;
	assert_int_equal(l.calls, 2);
	rp_kv_stats_get(kv, &s);
	assert_int_equal(s.events_sent, 1250);
	assert_int_equal(s.watchers_unsynced, 0);
}

static void test_future(void **state)
{
	struct log l = {0};
	struct rp_kv_watcher *w = watch(*state, &l, "k", S(""), 4);

	kv_put(*state, "k", "");
	assert_int_equal(rp_kv_watcher_progress(w), 0);
	kv_put(*state, "k", "");
	assert_int_equal(rp_kv_watcher_progress(w), 3); /* the next revision is its first */
	kv_put(*state, "k", "");
	assert_string_equal(l.text, "+k@4 ");
}

static void test_slow(void **state)
{
	struct rp_kv *kv = *state;
	struct log l = {.full = true}, other = {0};
	struct rp_kv_watcher *w = watch(kv, &l, "k", S(""), 0);
	struct rp_kv_stats s;

	watch(kv, &other, "k", S(""), 0);
	kv_put(kv, "k", "");
	kv_put(kv, "k", "");
	kv_settle(kv);
	assert_int_equal(l.refused, 1); /* asked once, then left alone */
	assert_string_equal(other.text, "+k@2 +k@3 ");
	rp_kv_stats_get(kv, &s);
	assert_int_equal(s.watchers_blocked, 1);
	rp_kv_watcher_resume(w);
	kv_settle(kv);
	assert_int_equal(l.refused, 2);
	l.full = false;
	kv_put(kv, "k", "");
	rp_kv_watcher_resume(w);
	kv_settle(kv);
	assert_string_equal(l.text, "+k@2 +k@3 +k@4 ");
	kv_put(kv, "k", "");
	assert_string_equal(l.text, "+k@2 +k@3 +k@4 +k@5 ");
	assert_string_equal(other.text, l.text);
}

static void test_compacted(void **state)
{
	struct rp_kv *kv = *state;
	struct log at = {0}, below = {0}, slow = {.full = true}, keep = {0};
	struct rp_kv_watcher *w = watch(kv, &slow, "k", S(""), 0);
	struct rp_kv_stats s;

	for (int i = 0; i < 5; i++)
		kv_put(kv, "k", "");
	kv_delete(kv, "k", ""); /* 7 */
	kv_put(kv, "x", "");	/* 8 */
	assert_int_equal(rp_kv_compact(kv, 7), RP_KV_OK);
	kv_settle(kv);
	watch(kv, &at, "k", S(""), 7);
	watch(kv, &below, "k", S(""), 6);
	watch(kv, &keep, "x", S(""), 0);
	kv_settle(kv);
	assert_string_equal(at.text, "-k@7 "); /* a tombstone at the revision stays visible */
	assert_int_equal(below.compacted, 7);
	assert_string_equal(below.text, "");
	assert_int_equal(slow.compacted, 0);
	rp_kv_watcher_resume(w);
	kv_settle(kv);
	assert_int_equal(slow.compacted, 7);
	rp_kv_stats_get(kv, &s);
	assert_int_equal(s.watchers, 2);
}

static void test_cancel_inside(void **state)
{
	struct rp_kv *kv = *state;
	struct log a = {0}, b = {0};
	struct rp_kv_watcher *wa = watch(kv, &a, "k", S(""), 0);
	struct rp_kv_watcher *wb = watch(kv, &b, "k", S(""), 0);

	/* The first to be told cancels the second, which is not told any more. */
	a.cancel = wb;
	b.cancel = wa;
	kv_put(kv, "k", "");
	assert_int_equal(a.calls + b.calls, 1);
	kv_put(kv, "k", "");
	assert_int_equal(a.calls + b.calls, 2);
	(a.calls ? &a : &b)->cancel = a.calls ? wa : wb;
	kv_put(kv, "k", "");
	kv_put(kv, "k", "");
	assert_int_equal(a.calls + b.calls, 3);
}

static void test_refused(void **state)
{
	struct log l = {0};

	errno = 0;
	assert_null(watch(*state, &l, "b", S("a"), 0));
	assert_int_equal(errno, EINVAL);
	assert_null(watch(*state, &l, "b", S("b"), 0));
	assert_non_null(watch(*state, &l, "b", S_from(), 0));
}

/* A commit costs the watchers it hits, not those that exist: checked by the count of shown events.
 */
static void test_ten_thousand(void **state)
{
	struct rp_kv *kv = *state;
	static struct log l;
	struct rp_kv_watcher *all[10000];
	char key[16], end[16];

	for (int i = 0; i < 10000; i++) {
		snprintf(key, sizeof(key), "r%05d", i);
		snprintf(end, sizeof(end), "r%05d", i + 3);
		all[i] = watch(kv, &l, key, S(end), 0);
	}
	kv_put(kv, "r05000", "");
	assert_int_equal(l.calls, 3);
	kv_put(kv, "s", "");
	assert_int_equal(l.calls, 3);
	for (int i = 0; i < 10000; i += 2)
		rp_kv_watcher_cancel(all[i]);
	kv_put(kv, "r05000", "");
	assert_int_equal(l.calls, 4);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(test_live),
		T(test_prefix_is_not_key),
		T(test_filters_and_prev),
		T(test_history),
		T(test_batches),
		T(test_future),
		T(test_slow),
		T(test_compacted),
		T(test_cancel_inside),
		T(test_refused),
		T(test_ten_thousand),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
