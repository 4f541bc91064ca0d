/* SPDX-License-Identifier: Apache-2.0 */
/* The Cluster service (spec/etcd-semantics.md section 10). */
#include <stdlib.h>
#include <string.h>

#include <etcdserverpb/rpc.pb-c.h>

#include "etcd_priv.h"

static Etcdserverpb__Member *member_in(struct etcd_arena *a, const struct rp_etcd_member *member)
{
	Etcdserverpb__Member *m = etcd_arena_get(a, sizeof(*m));

	etcdserverpb__member__init(m);
	m->id = member->id;
	m->name = (char *)(member->name ? member->name : "");
	m->n_peerurls = member->peer_url_count;
	m->peerurls = (char **)member->peer_urls;
	m->n_clienturls = member->client_url_count;
	m->clienturls = (char **)member->client_urls;
	m->islearner = member->is_learner;
	return m;
}

static int member_order(const void *a, const void *b)
{
	uint64_t x = (*(Etcdserverpb__Member *const *)a)->id;
	uint64_t y = (*(Etcdserverpb__Member *const *)b)->id;

	return (x > y) - (x < y);
}

static Etcdserverpb__Member **members_in(struct rp_etcd *e, struct etcd_arena *a, size_t *count)
{
	const struct rp_etcd_member *members = NULL;
	Etcdserverpb__Member **out;

	*count = e->backend->members(e->backend->ctx, &members);
	out = etcd_arena_get(a, *count * sizeof(out[0]));
	for (size_t i = 0; i < *count; i++)
		out[i] = member_in(a, &members[i]);
	if (*count > 1)
		qsort(out, *count, sizeof(out[0]), member_order);
	return out;
}

static void on_member_list(struct rp_grpc_call *call, const uint8_t *data, size_t length, void *ctx)
{
	struct rp_etcd *e = ctx;
	Etcdserverpb__MemberListRequest *request =
		etcd_unpack(e, call, &etcdserverpb__member_list_request__descriptor, data, length);
	Etcdserverpb__MemberListResponse m = ETCDSERVERPB__MEMBER_LIST_RESPONSE__INIT;
	struct etcd_arena a = {0};

	if (!request)
		return;
	m.header = etcd_header_in(&a, e, 0);
	m.members = members_in(e, &a, &m.n_members);
	etcd_reply(call, &m.base);
	etcd_arena_free(&a);
	etcd_unpacked_free(&request->base);
}

/* As etcd's types.NewURLs: a scheme it knows, a host with a port, no path. */
static bool url_valid(const char *url)
{
	static const char *const schemes[] = {"http://", "https://"};
	const char *host = NULL, *colon;
	size_t digits;

	for (size_t i = 0; i < RP_ARRAY_SIZE(schemes); i++)
		if (strncmp(url, schemes[i], strlen(schemes[i])) == 0)
			host = url + strlen(schemes[i]);
	if (!host)
		return false;
	colon = strrchr(host, ':');
	if (!colon || colon == host || strpbrk(host, "/?# "))
		return false;
	/* An IPv6 address has its colons inside brackets. */
	if (memchr(host, ':', (size_t)(colon - host)) && (host[0] != '[' || colon[-1] != ']'))
		return false;
	digits = strspn(colon + 1, "0123456789");
	return digits > 0 && digits <= 5 && colon[1 + digits] == 0 && atoi(colon + 1) <= 65535;
}

/* A member other than `but` has one of them. */
static bool urls_known(struct rp_etcd *e, char *const *urls, size_t url_count, uint64_t but)
{
	const struct rp_etcd_member *members = NULL;
	uint32_t count = e->backend->members(e->backend->ctx, &members);

	for (uint32_t i = 0; i < count; i++)
		for (uint32_t j = 0; members[i].id != but && j < members[i].peer_url_count; j++)
			for (size_t k = 0; k < url_count; k++)
				if (strcmp(members[i].peer_urls[j], urls[k]) == 0)
					return true;
	return false;
}

static const struct rp_etcd_member *member_of(struct rp_etcd *e, uint64_t id)
{
	const struct rp_etcd_member *members = NULL;
	uint32_t count = e->backend->members(e->backend->ctx, &members);

	for (uint32_t i = 0; i < count; i++)
		if (members[i].id == id)
			return &members[i];
	return NULL;
}

/* Refuses the call unless the URLs may become those of the member `id` (0: of a new one). */
static bool urls_refused(
	struct rp_etcd *e, struct rp_grpc_call *call, char *const *urls, size_t count, uint64_t id)
{
	bool valid = count > 0;

	for (size_t i = 0; i < count; i++)
		valid = valid && url_valid(urls[i]);
	if (!valid)
		etcd_refuse(call, RP_GRPC_INVALID_ARGUMENT,
			"etcdserver: given member URLs are invalid");
	else if (urls_known(e, urls, count, id))
		etcd_refuse(
			call, RP_GRPC_FAILED_PRECONDITION, "etcdserver: Peer URLs already exists");
	else
		return false;
	return true;
}

static void member_add(
	struct rp_etcd *e, struct rp_grpc_call *call, const Etcdserverpb__MemberAddRequest *r)
{
	const struct rp_etcd_backend *b = e->backend;
	struct rp_etcd_caller caller = etcd_caller_of(e, call);
	Etcdserverpb__MemberAddResponse m = ETCDSERVERPB__MEMBER_ADD_RESPONSE__INIT;
	struct rp_etcd_member member = {0};
	const char *message = NULL;
	struct etcd_arena a = {0};
	int code;

	if (urls_refused(e, call, r->peerurls, r->n_peerurls, 0))
		return;
	if (!b->member_add) {
		etcd_refuse(call, RP_GRPC_UNIMPLEMENTED, "members cannot be added here");
		return;
	}
	code = b->member_add(b->ctx, (const char *const *)r->peerurls, (uint32_t)r->n_peerurls,
		r->islearner, &caller, &member, &message);
	if (code != RP_GRPC_OK) {
		etcd_refuse(call, code, message);
		return;
	}
	/* The member's own texts may be the request's; the list is the backend's. */
	m.header = etcd_header_in(&a, e, 0);
	m.member = member_in(&a, &member);
	m.members = members_in(e, &a, &m.n_members);
	etcd_reply(call, &m.base);
	etcd_arena_free(&a);
}

static void on_member_add(struct rp_grpc_call *call, const uint8_t *data, size_t length, void *ctx)
{
	struct rp_etcd *e = ctx;
	Etcdserverpb__MemberAddRequest *request =
		etcd_unpack(e, call, &etcdserverpb__member_add_request__descriptor, data, length);

	if (!request)
		return;
	member_add(e, call, request);
	etcd_unpacked_free(&request->base);
}

static void on_member_remove(
	struct rp_grpc_call *call, const uint8_t *data, size_t length, void *ctx)
{
	struct rp_etcd *e = ctx;
	const struct rp_etcd_backend *b = e->backend;
	Etcdserverpb__MemberRemoveRequest *request = etcd_unpack(
		e, call, &etcdserverpb__member_remove_request__descriptor, data, length);
	Etcdserverpb__MemberRemoveResponse m = ETCDSERVERPB__MEMBER_REMOVE_RESPONSE__INIT;
	struct rp_etcd_caller caller = etcd_caller_of(e, call);
	const char *message = "";
	struct etcd_arena a = {0};
	int code = RP_GRPC_OK;

	if (!request)
		return;
	if (!member_of(e, request->id)) {
		code = RP_GRPC_NOT_FOUND;
		message = "etcdserver: member not found";
	} else if (request->id == e->config.member_id) {
		/* A node that takes itself out would serve on, as a cluster of its own. */
		code = RP_GRPC_FAILED_PRECONDITION;
		message = "etcdserver: re-configuration failed due to not enough started members";
	} else if (!b->member_remove) {
		code = RP_GRPC_UNIMPLEMENTED;
		message = "members cannot be removed here";
	} else {
		code = b->member_remove(b->ctx, request->id, &caller, &message);
	}
	if (code == RP_GRPC_OK) {
		m.header = etcd_header_in(&a, e, 0);
		m.members = members_in(e, &a, &m.n_members);
		etcd_reply(call, &m.base);
	} else {
		etcd_refuse(call, code, message);
	}
	etcd_arena_free(&a);
	etcd_unpacked_free(&request->base);
}

static void member_update(
	struct rp_etcd *e, struct rp_grpc_call *call, const Etcdserverpb__MemberUpdateRequest *r)
{
	const struct rp_etcd_backend *b = e->backend;
	Etcdserverpb__MemberUpdateResponse m = ETCDSERVERPB__MEMBER_UPDATE_RESPONSE__INIT;
	struct rp_etcd_caller caller = etcd_caller_of(e, call);
	const char *message = "";
	struct etcd_arena a = {0};
	int code = RP_GRPC_UNIMPLEMENTED;

	if (!member_of(e, r->id)) {
		etcd_refuse(call, RP_GRPC_NOT_FOUND, "etcdserver: member not found");
		return;
	}
	if (urls_refused(e, call, r->peerurls, r->n_peerurls, r->id))
		return;
	if (b->member_update)
		code = b->member_update(b->ctx, r->id, (const char *const *)r->peerurls,
			(uint32_t)r->n_peerurls, &caller, &message);
	else
		message = "members cannot be changed here";
	if (code != RP_GRPC_OK) {
		etcd_refuse(call, code, message);
		return;
	}
	m.header = etcd_header_in(&a, e, 0);
	m.members = members_in(e, &a, &m.n_members);
	etcd_reply(call, &m.base);
	etcd_arena_free(&a);
}

static void on_member_update(
	struct rp_grpc_call *call, const uint8_t *data, size_t length, void *ctx)
{
	struct rp_etcd *e = ctx;
	Etcdserverpb__MemberUpdateRequest *request = etcd_unpack(
		e, call, &etcdserverpb__member_update_request__descriptor, data, length);

	if (!request)
		return;
	member_update(e, call, request);
	etcd_unpacked_free(&request->base);
}

/* There are no learners: every member takes writes. */
static void on_member_promote(
	struct rp_grpc_call *call, const uint8_t *data, size_t length, void *ctx)
{
	struct rp_etcd *e = ctx;
	Etcdserverpb__MemberPromoteRequest *request = etcd_unpack(
		e, call, &etcdserverpb__member_promote_request__descriptor, data, length);

	if (!request)
		return;
	if (!member_of(e, request->id))
		etcd_refuse(call, RP_GRPC_NOT_FOUND, "etcdserver: member not found");
	else
		etcd_refuse(call, RP_GRPC_FAILED_PRECONDITION,
			"etcdserver: can only promote a learner member");
	etcd_unpacked_free(&request->base);
}

const struct rp_grpc_call_ops etcd_member_remove_ops = {
	.on_message = on_member_remove, .on_cancel = etcd_call_on_cancel};
const struct rp_grpc_call_ops etcd_member_update_ops = {
	.on_message = on_member_update, .on_cancel = etcd_call_on_cancel};
const struct rp_grpc_call_ops etcd_member_promote_ops = {
	.on_message = on_member_promote, .on_cancel = etcd_call_on_cancel};
const struct rp_grpc_call_ops etcd_member_list_ops = {
	.on_message = on_member_list, .on_cancel = etcd_call_on_cancel};
const struct rp_grpc_call_ops etcd_member_add_ops = {
	.on_message = on_member_add, .on_cancel = etcd_call_on_cancel};
