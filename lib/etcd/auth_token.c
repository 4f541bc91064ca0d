/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>
#include <time.h>

#include <authpb/auth.pb-c.h>
#include <base/assert.h>
#include <base/fnv.h>
#include <jansson.h>
#include <kv/lease.h>

#include "auth_priv.h"
#include "wire_priv.h"

#define LETTERS 16
#define BEARER "Bearer "
#define ALARM_ACTION 1

/* ---- tokens ---- */

static uint64_t text_hash(const char *text, size_t length)
{
	return rp_fnv1a(RP_FNV1A_BASIS, text, length);
}

static struct auth_token *token_of(struct rp_list *n)
{
	return rp_list_entry(n, struct auth_token, link);
}

static void token_drop(struct etcd_auth *a, struct auth_token *t)
{
	etcd_table_remove(&a->tokens, &t->node);
	rp_list_unlink(&t->link);
	explicit_bzero(t->text, t->length);
	free(t);
}

void auth_tokens_clear(struct etcd_auth *a)
{
	while (!rp_list_empty(&a->by_use))
		token_drop(a, token_of(a->by_use.next));
}

static struct auth_token *token_find(struct etcd_auth *a, const char *text, size_t length)
{
	uint64_t hash = text_hash(text, length);
	struct etcd_node *n = etcd_table_find(&a->tokens, hash);

	for (; n; n = n->next) {
		struct auth_token *t = RP_CONTAINER_OF(n, struct auth_token, node);

		if (n->key == hash && t->length == length && memcmp(t->text, text, length) == 0)
			return t;
	}
	return NULL;
}

static struct auth_token *token_add(
	struct etcd_auth *a, const char *text, size_t length, const char *user)
{
	size_t user_length = strlen(user);
	struct auth_token *t = calloc(1, sizeof(*t) + length + 1 + user_length + 1);

	RP_ASSERT(t != NULL);
	/* The one that was used longest ago makes room. */
	if (a->tokens.count >= AUTH_TOKENS_MAX)
		token_drop(a, token_of(a->by_use.next));
	t->length = (uint32_t)length;
	t->user = t->text + length + 1;
	memcpy(t->text, text, length);
	memcpy(t->user, user, user_length);
	etcd_table_add(&a->tokens, &t->node, text_hash(text, length));
	rp_list_push_back(&a->by_use, &t->link);
	return t;
}

static uint64_t ttl_ns(const struct rp_etcd *e)
{
	return e->config.token_ttl_ns > 0 ? e->config.token_ttl_ns : AUTH_TOKEN_TTL_NS;
}

static uint64_t wall_s(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	return (uint64_t)ts.tv_sec;
}

char *auth_token_new(struct rp_etcd *e, const struct auth_user *u)
{
	struct etcd_auth *a = e->auth;
	char text[LETTERS + 32], name[256];
	uint8_t random[LETTERS];
	struct auth_token *t;
	int n;

	snprintf(name, sizeof(name), "%.*s", (int)u->m->name.len, (char *)u->m->name.data);
	if (a->jwt)
		return auth_jwt_sign(a->jwt, name, a->revision,
			wall_s() + (ttl_ns(e) + RP_NS_PER_S - 1) / RP_NS_PER_S);
	if (getrandom(random, sizeof(random), 0) != (ssize_t)sizeof(random))
		return NULL;
	/* 52 letters, as etcd; 256 is no multiple of it, which costs a hundredth of a bit each. */
	for (int i = 0; i < LETTERS; i++) {
		unsigned letter = random[i] % 52;

		text[i] = (char)(letter < 26 ? 'a' + letter : 'A' + letter - 26);
	}
	n = snprintf(text + LETTERS, sizeof(text) - LETTERS, ".%" PRIu64,
		(uint64_t)rp_kv_revision(e->kv) + a->token_last++);
	t = token_add(a, text, LETTERS + (size_t)n, name);
	t->secret = u->secret;
	t->expiry_ns = etcd_now_ns(e) + ttl_ns(e);
	return strdup(text);
}

void auth_tokens_run(struct rp_etcd *e)
{
	struct etcd_auth *a = e->auth;
	uint64_t now_ns = etcd_now_ns(e);

	/* By last use, so by expiry; a JWT that ends in between is found when it is shown. */
	while (!rp_list_empty(&a->by_use) && token_of(a->by_use.next)->expiry_ns <= now_ns)
		token_drop(a, token_of(a->by_use.next));
}

/* ---- who a call is of ---- */

static struct auth_token *token_check_jwt(struct rp_etcd *e, const char *text, size_t length)
{
	uint64_t revision, expiry_s, now_s = wall_s();
	struct auth_token *t;
	char *user;

	if (!auth_jwt_verify(e->auth->jwt, text, length, now_s, &user, &revision, &expiry_s))
		return NULL;
	/* Kept, so that the signature is checked once. */
	t = token_add(e->auth, text, length, user);
	t->jwt = true;
	t->revision = revision;
	t->expiry_ns = etcd_now_ns(e) + RP_MIN(expiry_s - now_s, (uint64_t)1000000) * RP_NS_PER_S;
	free(user);
	return t;
}

static struct auth_token *token_check(struct rp_etcd *e, const char *text, size_t length)
{
	struct etcd_auth *a = e->auth;
	struct auth_token *t = token_find(a, text, length);
	uint64_t now_ns = etcd_now_ns(e);
	const struct auth_user *u;

	if (t && t->expiry_ns <= now_ns) {
		token_drop(a, t);
		t = NULL;
	}
	if (!t)
		return a->jwt ? token_check_jwt(e, text, length) : NULL;
	rp_list_unlink(&t->link);
	rp_list_push_back(&a->by_use, &t->link);
	if (t->jwt)
		return t;
	/* A user that is gone or has another password: the token is of somebody else. */
	u = auth_user_find(a, t->user);
	if (!u || u->secret != t->secret) {
		token_drop(a, t);
		return NULL;
	}
	t->expiry_ns = now_ns + ttl_ns(e);
	t->revision = a->revision;
	return t;
}

void etcd_auth_identify(struct rp_etcd *e, struct rp_grpc_call *call, struct rp_etcd_caller *caller)
{
	const char *text, *cn;
	struct auth_token *t;
	size_t length;

	if (!e->auth->enabled)
		return;
	text = rp_grpc_call_metadata(call, "token", &length);
	if (!text)
		text = rp_grpc_call_metadata(call, "authorization", &length);
	if (!text) {
		cn = e->config.client_cert_auth ? rp_grpc_call_peer_cn(call) : NULL;
		if (cn) {
			caller->user = cn;
			caller->auth_revision = e->auth->revision;
		}
		return;
	}
	if (length >= strlen(BEARER) && strncasecmp(text, BEARER, strlen(BEARER)) == 0) {
		text += strlen(BEARER);
		length -= strlen(BEARER);
	}
	t = token_check(e, text, length);
	if (!t) {
		caller->auth_code = RP_GRPC_UNAUTHENTICATED;
		e->stats.auth_bad_tokens++;
		return;
	}
	caller->user = t->user;
	caller->auth_revision = t->revision;
}

/* ---- checks ---- */

static int caller_user(struct rp_etcd *e, const struct rp_etcd_caller *caller,
	struct auth_user **user, const char **message)
{
	*user = NULL;
	if (caller->auth_code != RP_GRPC_OK) {
		*message = AUTH_TEXT_BAD_TOKEN;
		return caller->auth_code;
	}
	if (!caller->user || caller->user[0] == '\0') {
		*message = AUTH_TEXT_USER_EMPTY;
		return RP_GRPC_INVALID_ARGUMENT;
	}
	if (caller->auth_revision < e->auth->revision) {
		*message = AUTH_TEXT_OLD;
		return RP_GRPC_INVALID_ARGUMENT;
	}
	*user = auth_user_find(e->auth, caller->user);
	if (*user)
		return RP_GRPC_OK;
	*message = AUTH_TEXT_DENIED;
	return RP_GRPC_PERMISSION_DENIED;
}

bool etcd_auth_is_on(const struct rp_etcd *e)
{
	return e->auth->enabled;
}

int etcd_auth_check(struct rp_etcd *e, enum rp_etcd_access access, struct rp_span key,
	struct rp_span end, const struct rp_etcd_caller *caller, const char **message)
{
	struct auth_user *u;
	int code;

	if (!e->auth->enabled || caller->peer)
		return RP_GRPC_OK;
	code = caller_user(e, caller, &u, message);
	if (code != RP_GRPC_OK || auth_permitted(e->auth, u, access, key, end))
		return code;
	*message = AUTH_TEXT_DENIED;
	e->stats.auth_denied++;
	return RP_GRPC_PERMISSION_DENIED;
}

int etcd_auth_require(
	struct rp_etcd *e, const struct rp_etcd_caller *caller, bool root, const char **message)
{
	struct auth_user *u;
	int code;

	if (!e->auth->enabled || caller->peer)
		return RP_GRPC_OK;
	code = caller_user(e, caller, &u, message);
	if (code != RP_GRPC_OK || !root || auth_user_has_role(u, AUTH_ROOT))
		return code;
	*message = AUTH_TEXT_DENIED;
	e->stats.auth_denied++;
	return RP_GRPC_PERMISSION_DENIED;
}

struct lease_check {
	struct rp_etcd *e;
	const struct rp_etcd_caller *caller;
	enum rp_etcd_access access;
	int code;
	const char **message;
};

static void lease_check_key(void *ctx, struct rp_span key)
{
	struct lease_check *l = ctx;

	if (l->code == RP_GRPC_OK)
		l->code = etcd_auth_check(
			l->e, l->access, key, (struct rp_span){0}, l->caller, l->message);
	if (l->code == RP_GRPC_OK)
		l->code = etcd_policy_check(
			l->e, l->access, key, (struct rp_span){0}, l->caller, l->message);
}

int etcd_auth_check_lease(struct rp_etcd *e, enum rp_etcd_access access, int64_t lease,
	const struct rp_etcd_caller *caller, const char **message)
{
	struct lease_check l = {.e = e, .caller = caller, .access = access, .message = message};

	if ((e->auth->enabled || etcd_policy_limits(e)) && lease != 0)
		rp_kv_lease_keys(e->kv, lease, lease_check_key, &l);
	return l.code;
}

/* ---- the gate before all handlers ---- */

static bool alarm_is_get(const uint8_t *data, size_t length)
{
	struct etcd_wire w = etcd_wire_of((struct rp_span){.data = data, .length = length});
	uint64_t action = 0;
	struct etcd_field f;

	while (etcd_wire_next(&w, &f))
		if (f.number == ALARM_ACTION && f.type == 0)
			action = f.value;
	return action == 0;
}

static bool gate_refuses(struct rp_etcd *e, struct rp_grpc_call *call, enum etcd_auth_class class,
	const uint8_t *data, size_t length)
{
	struct rp_etcd_caller caller;
	const char *message = NULL;
	bool root = class == ETCD_AUTH_ROOT;
	int code;

	if (!e->auth->enabled || class == ETCD_AUTH_OPEN || class == ETCD_AUTH_SELF)
		return false;
	/* A node that dials asks for our ids before it can prove what it is. */
	if (class == ETCD_AUTH_STATUS && rp_grpc_call_metadata(call, "x-peer", NULL))
		return false;
	if (class == ETCD_AUTH_ALARM)
		root = !alarm_is_get(data, length);
	caller = etcd_caller_of(e, call);
	code = etcd_auth_require(e, &caller, root, &message);
	if (code != RP_GRPC_OK)
		etcd_refuse(call, code, message);
	return code != RP_GRPC_OK;
}

/* Clients tell their version; one that is no text is refused, as etcd does since 3.5. */
static bool version_refused(struct rp_grpc_call *call)
{
	size_t length = 0;
	const char *version = rp_grpc_call_metadata(call, "client-api-version", &length);
	json_t *text;

	if (!version)
		return false;
	text = json_stringn(version, length); /* NULL for what is no UTF-8 */
	json_decref(text);
	if (text)
		return false;
	etcd_refuse(call, RP_GRPC_INVALID_ARGUMENT, "etcdserver: invalid client api version");
	return true;
}

/* The version a client says, as the label of a metric: what is not a version's is left out. */
static void version_label(const char *text, size_t length, char out[ETCD_CLIENT_VERSION_BYTES])
{
	static const char good[] = "0123456789abcdefghijklmnopqrstuvwxyz"
				   "ABCDEFGHIJKLMNOPQRSTUVWXYZ._-+";
	size_t n = 0;

	for (size_t i = 0; i < length && n < ETCD_CLIENT_VERSION_BYTES - 1; i++)
		if (memchr(good, text[i], sizeof(good) - 1))
			out[n++] = text[i];
	out[n] = '\0';
	if (n == 0)
		snprintf(out, ETCD_CLIENT_VERSION_BYTES, "unknown");
}

static void client_count(const struct etcd_method *m, struct rp_grpc_call *call)
{
	struct rp_etcd *e = m->e;
	size_t length = 0;
	const char *text = rp_grpc_call_metadata(call, "client-api-version", &length);
	char version[ETCD_CLIENT_VERSION_BYTES];
	struct etcd_client *c;
	uint32_t i = 0;

	if (m->of_nodes)
		return;
	version_label(text, text ? length : 0, version);
	while (i < e->client_count && strcmp(e->clients[i].version, version) != 0)
		i++;
	/* Clients could say anything: what comes last is one for all. */
	i = RP_MIN(i, (uint32_t)ETCD_CLIENT_VERSIONS_MAX - 1);
	c = &e->clients[i];
	if (i == e->client_count) {
		e->client_count++;
		memcpy(c->version, version, sizeof(version));
		if (i == ETCD_CLIENT_VERSIONS_MAX - 1)
			snprintf(c->version, sizeof(c->version), "other");
	}
	if (m->kind == RP_GRPC_UNARY)
		c->unary++;
	else
		c->streams++;
}

static void gate_on_start(struct rp_grpc_call *call, void *ctx)
{
	const struct etcd_method *m = ctx;

	client_count(m, call);
	if (m->kind == RP_GRPC_BIDI && version_refused(call))
		return;
	if (m->ops->on_start)
		m->ops->on_start(call, m->e);
}

static void gate_on_message(
	struct rp_grpc_call *call, const uint8_t *data, size_t length, void *ctx)
{
	const struct etcd_method *m = ctx;

	if (m->kind != RP_GRPC_BIDI && version_refused(call))
		return;
	if (!gate_refuses(m->e, call, m->auth, data, length))
		m->ops->on_message(call, data, length, m->e);
}

static void gate_on_half_close(struct rp_grpc_call *call, void *ctx)
{
	const struct etcd_method *m = ctx;

	if (m->ops->on_half_close)
		m->ops->on_half_close(call, m->e);
}

static void gate_on_cancel(struct rp_grpc_call *call, enum rp_grpc_cancel why, void *ctx)
{
	const struct etcd_method *m = ctx;

	if (m->ops->on_cancel)
		m->ops->on_cancel(call, why, m->e);
}

static void gate_on_room(struct rp_grpc_call *call, void *ctx)
{
	const struct etcd_method *m = ctx;

	if (m->ops->on_room)
		m->ops->on_room(call, m->e);
}

static void gate_on_written(struct rp_grpc_call *call, uint64_t cookie, void *ctx)
{
	const struct etcd_method *m = ctx;

	if (m->ops->on_written)
		m->ops->on_written(call, cookie, m->e);
}

const struct rp_grpc_call_ops etcd_gate_ops = {
	.on_start = gate_on_start,
	.on_message = gate_on_message,
	.on_half_close = gate_on_half_close,
	.on_cancel = gate_on_cancel,
	.on_room = gate_on_room,
	.on_written = gate_on_written,
};

/* ---- life ---- */

int etcd_auth_create(struct rp_etcd *e)
{
	e->auth = calloc(1, sizeof(*e->auth));
	RP_ASSERT(e->auth != NULL);
	rp_list_init(&e->auth->by_use);
	e->auth->hasher = auth_hasher_new(e);
	auth_state_init(e);
	if (e->config.token == RP_ETCD_TOKEN_SIMPLE)
		return 0;
	e->auth->jwt = auth_jwt_new(&e->config);
	return e->auth->jwt ? 0 : -EINVAL;
}

bool etcd_auth_run(struct rp_etcd *e)
{
	auth_tokens_run(e);
	return auth_hasher_run(e->auth->hasher);
}

void etcd_auth_free(struct rp_etcd *e)
{
	if (!e->auth)
		return;
	auth_hasher_free(e->auth->hasher);
	auth_tokens_clear(e->auth);
	etcd_table_clear(&e->auth->tokens);
	auth_state_free(e);
	auth_jwt_free(e->auth->jwt);
	free(e->auth);
	e->auth = NULL;
}
