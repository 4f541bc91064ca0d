/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Each prefix becomes the ranges of keys that it means, one for each spelling; the rest compares
 * bytes.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <route/policy.h>

/** What a head and a word may add to what follows them in the configuration. */
#define SPELLING_MORE 32

/** Keys from `begin` on and below `end`; no end: to the last key. */
struct range {
	struct rp_span begin, end;
};

struct ranges {
	struct range *items;
	unsigned count;
};

struct rp_policy {
	unsigned owners;
	struct ranges local, local_except, local_only, local_only_except, readonly, zone;
};

/* ---- creation ---- */

/* A copy with one byte more, 0. */
static struct rp_span span_new(const char *text, size_t length)
{
	uint8_t *data = malloc(length + 1);

	if (data) {
		memcpy(data, text, length);
		data[length] = 0;
	}
	return (struct rp_span){data, data ? length : 0};
}

/* All keys with that prefix, or with `exact` that key alone. False: no memory. */
static bool range_new(struct ranges *r, const char *text, size_t length, bool exact)
{
	struct range *grown = realloc(r->items, (r->count + 1) * sizeof(*grown));
	struct range *x;
	uint8_t *end;

	if (!grown)
		return false;
	r->items = grown;
	x = &r->items[r->count];
	x->begin = span_new(text, length);
	x->end = span_new(text, length);
	if (!x->begin.data || !x->end.data) {
		free((void *)(uintptr_t)x->begin.data);
		free((void *)(uintptr_t)x->end.data);
		return false;
	}
	r->count++;
	if (exact) {
		x->end.length++; /* the 0 behind it: the next key that there is */
		return true;
	}
	end = (uint8_t *)(uintptr_t)x->end.data;
	while (x->end.length > 0 && end[x->end.length - 1] == 0xff)
		x->end.length--;
	if (x->end.length > 0)
		end[x->end.length - 1]++;
	return true;
}

static bool begins(const char *text, const char *with)
{
	return strncmp(text, with, strlen(with)) == 0;
}

/*
 * What follows a queue's name: the spellings of `word` as a whole segment, or where the prefix ends
 * within the long one, that and all of the short one. Returns how many, 0 when it is another word.
 */
static unsigned word_spellings(const char *text, const char *brief, const char *word,
	const char *out[2], const char **rest)
{
	size_t b = strlen(brief), w = strlen(word);

	*rest = "";
	out[0] = brief;
	out[1] = word;
	if (begins(text, brief))
		*rest = text + b;
	else if (begins(text, word))
		*rest = text + w;
	else if (strlen(text) > 1 && strncmp(word, text, strlen(text)) == 0)
		out[1] = text;
	else
		return 0;
	return 2;
}

/* All spellings below one head ("/q/" or "/queue/") of what follows the head. */
static bool queue_new(struct ranges *r, const char *head, const char *below)
{
	size_t size = strlen(below) + SPELLING_MORE;
	char *text = malloc(size);
	const char *slash = strchr(below, '/'), *words[2], *rest = "";
	int name = slash ? (int)(slash - below) : 0;
	unsigned n = 0;
	bool ok = text != NULL;

	if (slash) {
		n = word_spellings(slash + 1, "p/", "producer/", words, &rest);
		n = n ? n : word_spellings(slash + 1, "c/", "consumer/", words, &rest);
	}
	for (unsigned i = 0; ok && i < n; i++) {
		snprintf(text, size, "%s%.*s/%s%s", head, name, below, words[i], rest);
		ok = range_new(r, text, strlen(text), false);
	}
	if (ok && n == 0) {
		snprintf(text, size, "%s%s", head, below);
		ok = range_new(r, text, strlen(text), false);
	}
	/* "/q/jobs/": its record is /q/jobs. */
	if (ok && slash && name > 0 && slash[1] == '\0')
		ok = range_new(r, text, strlen(text) - 1, true);
	free(text);
	return ok;
}

static bool prefix_add(struct ranges *r, const char *prefix)
{
	const char *below = begins(prefix, "/q/")	? prefix + 3
			    : begins(prefix, "/queue/") ? prefix + 7
							: NULL;
	size_t length = strlen(prefix);

	if (below)
		return queue_new(r, "/q/", below) && queue_new(r, "/queue/", below);
	/* Within "/queue/" it means all queues, by either spelling. */
	if (length > 2 && strncmp("/queue/", prefix, length) == 0 && !range_new(r, "/q/", 3, false))
		return false;
	return range_new(r, prefix, length, false);
}

static bool list_add(struct ranges *r, const struct rp_policy_list *list)
{
	for (unsigned i = 0; i < list->count; i++)
		if (!prefix_add(r, list->items[i]))
			return false;
	return true;
}

struct rp_policy *rp_policy_create(const struct rp_policy_config *c)
{
	struct rp_policy *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	p->owners = 1;
	if (list_add(&p->local, &c->local) && list_add(&p->local_except, &c->local_except) &&
		list_add(&p->local_only, &c->local_only) &&
		list_add(&p->local_only_except, &c->local_only_except) &&
		list_add(&p->readonly, &c->readonly) && list_add(&p->zone, &c->zone))
		return p;
	rp_policy_destroy(p);
	return NULL;
}

struct rp_policy *rp_policy_ref(struct rp_policy *p)
{
	p->owners++;
	return p;
}

void rp_policy_destroy(struct rp_policy *p)
{
	struct ranges *all[] = {p ? &p->local : NULL, p ? &p->local_except : NULL,
		p ? &p->local_only : NULL, p ? &p->local_only_except : NULL,
		p ? &p->readonly : NULL, p ? &p->zone : NULL};

	if (p && --p->owners > 0)
		return;
	for (unsigned i = 0; p && i < RP_ARRAY_SIZE(all); i++) {
		for (unsigned k = 0; k < all[i]->count; k++) {
			free((void *)(uintptr_t)all[i]->items[k].begin.data);
			free((void *)(uintptr_t)all[i]->items[k].end.data);
		}
		free(all[i]->items);
	}
	free(p);
}

/* ---- questions ---- */

static int compare(struct rp_span a, struct rp_span b)
{
	size_t n = RP_MIN(a.length, b.length);
	int c = n > 0 ? memcmp(a.data, b.data, n) : 0;

	return c ? c : (a.length > b.length) - (a.length < b.length);
}

static struct rp_span later(struct rp_span a, struct rp_span b)
{
	return compare(a, b) > 0 ? a : b;
}

/* Of two ends, where none is after all others. */
static struct rp_span sooner_end(struct rp_span a, struct rp_span b)
{
	if (a.length == 0 || b.length == 0)
		return a.length == 0 ? b : a;
	return compare(a, b) < 0 ? a : b;
}

static bool is_empty(const struct range *r)
{
	return r->end.length > 0 && compare(r->begin, r->end) >= 0;
}

static bool is_inside(const struct range *r, const struct range *outer)
{
	if (compare(r->begin, outer->begin) < 0)
		return false;
	return outer->end.length == 0 || (r->end.length > 0 && compare(r->end, outer->end) <= 0);
}

/* Is there a key of `asked` in `in` that no entry of `except` lets through? */
static bool meets(const struct ranges *in, const struct ranges *except, const struct range *asked)
{
	for (unsigned i = 0; i < in->count; i++) {
		struct range common = {later(in->items[i].begin, asked->begin),
			sooner_end(in->items[i].end, asked->end)};
		bool excepted = false;

		if (is_empty(&common))
			continue;
		for (unsigned k = 0; except && !excepted && k < except->count; k++)
			excepted = is_inside(&common, &except->items[k]);
		if (!excepted)
			return true;
	}
	return false;
}

static bool has_prefix_in(const struct ranges *in, struct rp_span key)
{
	for (unsigned i = 0; i < in->count; i++) {
		const struct range *r = &in->items[i];

		if (compare(key, r->begin) >= 0 && (r->end.length == 0 || compare(key, r->end) < 0))
			return true;
	}
	return false;
}

static bool touches(const struct ranges *in, const struct ranges *except, struct rp_span key,
	struct rp_span end)
{
	struct range asked = {key, end};

	if (in->count == 0)
		return false;
	if (end.length == 0)
		return has_prefix_in(in, key) && !(except && has_prefix_in(except, key));
	/* etcd's word for no end. */
	if (end.length == 1 && end.data[0] == 0)
		asked.end.length = 0;
	return meets(in, except, &asked);
}

enum rp_policy_verdict rp_policy_check(const struct rp_policy *p, bool write, struct rp_span key,
	struct rp_span end, bool loopback)
{
	if (!loopback && touches(&p->local_only, &p->local_only_except, key, end))
		return RP_POLICY_LOCAL_ONLY;
	if (write && touches(&p->readonly, NULL, key, end))
		return RP_POLICY_READONLY;
	return RP_POLICY_ALLOWED;
}

const char *rp_policy_text(enum rp_policy_verdict verdict)
{
	switch (verdict) {
	case RP_POLICY_ALLOWED:
		break;
	case RP_POLICY_LOCAL_ONLY:
		return "ringpost: local_only_prefix: served to callers on the node's host only";
	case RP_POLICY_READONLY:
		return "ringpost: readonly_prefix: no call writes here";
	}
	return "";
}

bool rp_policy_may_leave(const struct rp_policy *p, struct rp_span key, bool same_zone)
{
	if (has_prefix_in(&p->local, key) && !has_prefix_in(&p->local_except, key))
		return false;
	return same_zone || !has_prefix_in(&p->zone, key);
}

bool rp_policy_queue_may_leave(const struct rp_policy *p, struct rp_span name, bool same_zone)
{
	uint8_t key[RP_NAME_BYTES_MAX + 6] = "/q/";
	struct rp_span at = {key, 3 + name.length};

	if (name.length > RP_NAME_BYTES_MAX)
		return false;
	memcpy(key + 3, name.data, name.length);
	if (!rp_policy_may_leave(p, at, same_zone))
		return false;
	memcpy(key + at.length, "/p/", 3);
	at.length += 3;
	if (!rp_policy_may_leave(p, at, same_zone))
		return false;
	key[at.length - 2] = 'c';
	return rp_policy_may_leave(p, at, same_zone);
}

bool rp_policy_limits_calls(const struct rp_policy *p)
{
	return p->local_only.count + p->readonly.count > 0;
}

bool rp_policy_limits_leaving(const struct rp_policy *p)
{
	return p->local.count + p->zone.count > 0;
}

bool rp_policy_has_zones(const struct rp_policy *p)
{
	return p->zone.count > 0;
}
