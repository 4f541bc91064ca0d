/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include <authpb/auth.pb-c.h>
#include <base/assert.h>
#include <base/fnv.h>

#include "auth_priv.h"

#define USER_PREFIX "user/"
#define ROLE_PREFIX "role/"
#define PAGE 64

static int span_compare(struct rp_span a, struct rp_span b)
{
	size_t n = RP_MIN(a.length, b.length);
	int c = n > 0 ? memcmp(a.data, b.data, n) : 0;

	return c != 0 ? c : (a.length > b.length) - (a.length < b.length);
}

static struct rp_span span_of(const char *text)
{
	return (struct rp_span){.data = (const uint8_t *)text, .length = strlen(text)};
}

/* ---- users and roles, sorted by name ---- */

static uint32_t user_place(const struct etcd_auth *a, struct rp_span name, bool *there)
{
	uint32_t low = 0, high = a->user_count;

	while (low < high) {
		uint32_t mid = low + (high - low) / 2;

		if (span_compare(etcd_span(a->users[mid]->m->name), name) < 0)
			low = mid + 1;
		else
			high = mid;
	}
	*there = low < a->user_count && span_compare(etcd_span(a->users[low]->m->name), name) == 0;
	return low;
}

static uint32_t role_place(const struct etcd_auth *a, struct rp_span name, bool *there)
{
	uint32_t low = 0, high = a->role_count;

	while (low < high) {
		uint32_t mid = low + (high - low) / 2;

		if (span_compare(etcd_span(a->roles[mid]->m->name), name) < 0)
			low = mid + 1;
		else
			high = mid;
	}
	*there = low < a->role_count && span_compare(etcd_span(a->roles[low]->m->name), name) == 0;
	return low;
}

struct auth_user *auth_user_find(const struct etcd_auth *a, const char *name)
{
	bool there;
	uint32_t i = user_place(a, span_of(name), &there);

	return there ? a->users[i] : NULL;
}

struct auth_role *auth_role_find(const struct etcd_auth *a, const char *name)
{
	bool there;
	uint32_t i = role_place(a, span_of(name), &there);

	return there ? a->roles[i] : NULL;
}

bool auth_user_has_role(const struct auth_user *u, const char *role)
{
	for (size_t i = 0; i < u->m->n_roles; i++)
		if (strcmp(u->m->roles[i], role) == 0)
			return true;
	return false;
}

static void intervals_clear(struct auth_user *u)
{
	for (int i = 0; i < 2; i++) {
		free(u->intervals[i].at);
		u->intervals[i] = (struct auth_intervals){0};
	}
	etcd_arena_free(&u->arena);
	u->arena = (struct etcd_arena){0};
}

static void user_free(struct auth_user *u)
{
	intervals_clear(u);
	authpb__user__free_unpacked(u->m, NULL);
	free(u);
}

static void role_free(struct auth_role *r)
{
	authpb__role__free_unpacked(r->m, NULL);
	free(r);
}

static uint64_t secret_of(const Authpb__User *m)
{
	return rp_fnv1a(RP_FNV1A_BASIS, m->password.data, m->password.len);
}

/* `m` NULL: the user is gone. A record that does not say its own name is none. */
static void user_set(struct etcd_auth *a, struct rp_span name, Authpb__User *m)
{
	bool there;
	uint32_t i = user_place(a, name, &there);

	if (there) {
		user_free(a->users[i]);
		memmove(a->users + i, a->users + i + 1,
			(a->user_count - i - 1) * sizeof(a->users[0]));
		a->user_count--;
	}
	if (m && span_compare(etcd_span(m->name), name) != 0) {
		authpb__user__free_unpacked(m, NULL);
		return;
	}
	if (!m)
		return;
	a->users = etcd_grow(
		a->users, &a->user_size, (uint64_t)a->user_count + 1, sizeof(a->users[0]));
	memmove(a->users + i + 1, a->users + i, (a->user_count - i) * sizeof(a->users[0]));
	a->users[i] = calloc(1, sizeof(struct auth_user));
	RP_ASSERT(a->users[i] != NULL);
	a->users[i]->m = m;
	a->users[i]->secret = secret_of(m);
	a->user_count++;
}

static void role_set(struct etcd_auth *a, struct rp_span name, Authpb__Role *m)
{
	bool there;
	uint32_t i = role_place(a, name, &there);

	if (there) {
		role_free(a->roles[i]);
		memmove(a->roles + i, a->roles + i + 1,
			(a->role_count - i - 1) * sizeof(a->roles[0]));
		a->role_count--;
	}
	if (m && span_compare(etcd_span(m->name), name) != 0) {
		authpb__role__free_unpacked(m, NULL);
		return;
	}
	if (!m)
		return;
	a->roles = etcd_grow(
		a->roles, &a->role_size, (uint64_t)a->role_count + 1, sizeof(a->roles[0]));
	memmove(a->roles + i + 1, a->roles + i, (a->role_count - i) * sizeof(a->roles[0]));
	a->roles[i] = calloc(1, sizeof(struct auth_role));
	RP_ASSERT(a->roles[i] != NULL);
	a->roles[i]->m = m;
	a->role_count++;
}

/* ---- records ---- */

static bool begins(struct rp_span s, const char *with)
{
	size_t n = strlen(with);

	return s.length >= n && memcmp(s.data, with, n) == 0;
}

static struct rp_span behind(struct rp_span s, size_t n)
{
	return (struct rp_span){.data = s.data + n, .length = s.length - n};
}

static uint64_t number_of(struct rp_span s)
{
	uint64_t n = 0;

	for (size_t i = 0; i < s.length && s.data[i] >= '0' && s.data[i] <= '9'; i++)
		n = n * 10 + (uint64_t)(s.data[i] - '0');
	return n;
}

static void record_take(struct etcd_auth *a, struct rp_span key, bool deleted, struct rp_span value)
{
	struct rp_span what = behind(key, AUTH_PREFIX_BYTES);

	if (span_compare(what, span_of("enabled")) == 0) {
		a->enabled = !deleted;
		if (deleted)
			auth_tokens_clear(a);
	} else if (span_compare(what, span_of("revision")) == 0) {
		a->revision = RP_MAX(deleted ? 0 : number_of(value), (uint64_t)1);
	} else if (begins(what, USER_PREFIX)) {
		user_set(a, behind(what, strlen(USER_PREFIX)),
			deleted ? NULL : authpb__user__unpack(NULL, value.length, value.data));
		a->changes++;
	} else if (begins(what, ROLE_PREFIX)) {
		role_set(a, behind(what, strlen(ROLE_PREFIX)),
			deleted ? NULL : authpb__role__unpack(NULL, value.length, value.data));
		a->changes++;
	}
}

static bool is_auth(struct rp_span key)
{
	return key.length > AUTH_PREFIX_BYTES &&
	       memcmp(key.data, AUTH_PREFIX, AUTH_PREFIX_BYTES) == 0;
}

static void on_commit(void *ctx, int64_t revision, const struct rp_kv_event *events, uint32_t count,
	uint64_t origin)
{
	struct etcd_auth *a = ctx;

	for (uint32_t i = 0; i < count; i++) {
		struct rp_span key = rp_kv_version_key(events[i].kv);

		if (is_auth(key))
			record_take(
				a, key, events[i].kv->deleted, rp_kv_version_value(events[i].kv));
	}
}

void auth_state_init(struct rp_etcd *e)
{
	struct etcd_auth *a = e->auth;
	struct rp_span at = span_of(""), end;
	struct rp_kv_record records[PAGE];
	uint8_t last[AUTH_PREFIX_BYTES];
	uint32_t n;

	a->revision = 1;
	a->changes = 1;
	memcpy(last, AUTH_PREFIX, sizeof(last));
	at = (struct rp_span){.data = (const uint8_t *)AUTH_PREFIX, .length = AUTH_PREFIX_BYTES};
	last[sizeof(last) - 1]++;
	end = (struct rp_span){.data = last, .length = sizeof(last)};
	do {
		n = rp_kv_record_page(e->kv, at, true, end, records, PAGE);
		for (uint32_t i = 0; i < n; i++)
			record_take(a, records[i].key, records[i].deleted, records[i].value);
		if (n > 0)
			at = records[n - 1].key;
	} while (n == PAGE);
	a->hook = (struct rp_kv_hook){.on_commit = on_commit, .ctx = a};
	rp_kv_hook_add(e->kv, &a->hook);
}

void auth_state_free(struct rp_etcd *e)
{
	struct etcd_auth *a = e->auth;

	rp_kv_hook_remove(e->kv, &a->hook);
	for (uint32_t i = 0; i < a->user_count; i++)
		user_free(a->users[i]);
	for (uint32_t i = 0; i < a->role_count; i++)
		role_free(a->roles[i]);
	free(a->users);
	free(a->roles);
}

/* ---- permissions ---- */

/* The range as an interval. A single key ends behind itself. */
static struct auth_interval interval_of(
	struct etcd_arena *a, struct rp_span key, struct rp_span end)
{
	struct auth_interval v;
	uint8_t *p;

	if (end.length == 0) {
		p = etcd_arena_get(a, key.length + 1);
		if (key.length > 0)
			memcpy(p, key.data, key.length);
		v.start = (struct rp_span){.data = p, .length = key.length};
		v.end = (struct rp_span){.data = p, .length = key.length + 1};
		/* /queue/ is another name of /q/. */
		if (begins(v.start, "/queue/")) {
			memcpy(p + 4, "/q/", 3);
			v.start = behind(v.start, 4);
			v.end = behind(v.end, 4);
		}
		return v;
	}
	etcd_alias_range(a, &key, &end);
	v = (struct auth_interval){.start = key, .end = end};
	if (end.length == 1 && end.data[0] == 0)
		v.end.length = 0;
	return v;
}

static int interval_order(const void *x, const void *y)
{
	return span_compare(
		((const struct auth_interval *)x)->start, ((const struct auth_interval *)y)->start);
}

static bool ends_before(const struct auth_interval *a, struct rp_span end)
{
	if (a->end.length == 0)
		return false;
	return end.length == 0 || span_compare(a->end, end) < 0;
}

static void intervals_merge(struct auth_intervals *s)
{
	uint32_t kept = 0;

	if (s->count > 1)
		qsort(s->at, s->count, sizeof(s->at[0]), interval_order);
	for (uint32_t i = 0; i < s->count; i++) {
		struct auth_interval *last = kept > 0 ? &s->at[kept - 1] : NULL;

		if (!last || (last->end.length > 0 && span_compare(last->end, s->at[i].start) < 0))
			s->at[kept++] = s->at[i];
		else if (ends_before(last, s->at[i].end))
			last->end = s->at[i].end;
	}
	s->count = kept;
}

static void intervals_add(
	struct auth_user *u, enum rp_etcd_access access, const Authpb__Permission *p)
{
	struct auth_intervals *s = &u->intervals[access];

	s->at = etcd_grow(s->at, &s->size, (uint64_t)s->count + 1, sizeof(s->at[0]));
	s->at[s->count++] = interval_of(&u->arena, etcd_span(p->key), etcd_span(p->range_end));
}

static void user_build(struct etcd_auth *a, struct auth_user *u)
{
	if (u->built == a->changes)
		return;
	intervals_clear(u);
	u->built = a->changes;
	u->root = auth_user_has_role(u, AUTH_ROOT);
	for (size_t i = 0; i < u->m->n_roles; i++) {
		const struct auth_role *r = auth_role_find(a, u->m->roles[i]);

		for (size_t j = 0; r && j < r->m->n_keypermission; j++) {
			const Authpb__Permission *p = r->m->keypermission[j];

			if (p->permtype != AUTHPB__PERMISSION__TYPE__WRITE)
				intervals_add(u, RP_ETCD_READ, p);
			if (p->permtype != AUTHPB__PERMISSION__TYPE__READ)
				intervals_add(u, RP_ETCD_WRITE, p);
		}
	}
	intervals_merge(&u->intervals[RP_ETCD_READ]);
	intervals_merge(&u->intervals[RP_ETCD_WRITE]);
}

bool auth_permitted(struct etcd_auth *a, struct auth_user *u, enum rp_etcd_access access,
	struct rp_span key, struct rp_span end)
{
	const struct auth_intervals *s = &u->intervals[access];
	struct etcd_arena arena = {0};
	struct auth_interval want;
	uint32_t low = 0, high;
	bool permitted = false;

	user_build(a, u);
	if (u->root)
		return true;
	want = interval_of(&arena, key, end);
	high = s->count;
	while (low < high) {
		uint32_t mid = low + (high - low) / 2;

		if (span_compare(s->at[mid].start, want.start) <= 0)
			low = mid + 1;
		else
			high = mid;
	}
	/* An empty range asks for nothing that lies outside its start. */
	if (low > 0 && !ends_before(&s->at[low - 1], want.end))
		permitted = s->at[low - 1].end.length == 0 ||
			    span_compare(want.start, s->at[low - 1].end) < 0;
	etcd_arena_free(&arena);
	return permitted;
}
