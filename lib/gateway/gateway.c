/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <base/assert.h>
#include <base/list.h>
#include <gateway/gateway.h>
#include <grpc/bridge.h>

#include <gateway/json.h>

#define GATEWAY_TYPE "application/json"

/* The paths of etcd's gateway. */
static const struct {
	const char *path, *method; /* below /v3/ */
} gateway_paths[] = {
	{"kv/range", "etcdserverpb.KV/Range"},
	{"kv/put", "etcdserverpb.KV/Put"},
	{"kv/deleterange", "etcdserverpb.KV/DeleteRange"},
	{"kv/txn", "etcdserverpb.KV/Txn"},
	{"kv/compaction", "etcdserverpb.KV/Compact"},
	{"watch", "etcdserverpb.Watch/Watch"},
	{"lease/grant", "etcdserverpb.Lease/LeaseGrant"},
	{"lease/revoke", "etcdserverpb.Lease/LeaseRevoke"},
	{"kv/lease/revoke", "etcdserverpb.Lease/LeaseRevoke"},
	{"lease/keepalive", "etcdserverpb.Lease/LeaseKeepAlive"},
	{"lease/timetolive", "etcdserverpb.Lease/LeaseTimeToLive"},
	{"kv/lease/timetolive", "etcdserverpb.Lease/LeaseTimeToLive"},
	{"lease/leases", "etcdserverpb.Lease/LeaseLeases"},
	{"kv/lease/leases", "etcdserverpb.Lease/LeaseLeases"},
	{"cluster/member/add", "etcdserverpb.Cluster/MemberAdd"},
	{"cluster/member/remove", "etcdserverpb.Cluster/MemberRemove"},
	{"cluster/member/update", "etcdserverpb.Cluster/MemberUpdate"},
	{"cluster/member/list", "etcdserverpb.Cluster/MemberList"},
	{"cluster/member/promote", "etcdserverpb.Cluster/MemberPromote"},
	{"maintenance/alarm", "etcdserverpb.Maintenance/Alarm"},
	{"maintenance/status", "etcdserverpb.Maintenance/Status"},
	{"maintenance/defragment", "etcdserverpb.Maintenance/Defragment"},
	/* etcd 3.4 and 3.5 have HashKV under the first name, 3.6 under the second. */
	{"maintenance/hash", "etcdserverpb.Maintenance/HashKV"},
	{"maintenance/hashkv", "etcdserverpb.Maintenance/HashKV"},
	{"maintenance/snapshot", "etcdserverpb.Maintenance/Snapshot"},
	{"maintenance/transfer-leadership", "etcdserverpb.Maintenance/MoveLeader"},
	{"maintenance/downgrade", "etcdserverpb.Maintenance/Downgrade"},
	{"auth/enable", "etcdserverpb.Auth/AuthEnable"},
	{"auth/disable", "etcdserverpb.Auth/AuthDisable"},
	{"auth/status", "etcdserverpb.Auth/AuthStatus"},
	{"auth/authenticate", "etcdserverpb.Auth/Authenticate"},
	{"auth/user/add", "etcdserverpb.Auth/UserAdd"},
	{"auth/user/get", "etcdserverpb.Auth/UserGet"},
	{"auth/user/list", "etcdserverpb.Auth/UserList"},
	{"auth/user/delete", "etcdserverpb.Auth/UserDelete"},
	{"auth/user/changepw", "etcdserverpb.Auth/UserChangePassword"},
	{"auth/user/grant", "etcdserverpb.Auth/UserGrantRole"},
	{"auth/user/revoke", "etcdserverpb.Auth/UserRevokeRole"},
	{"auth/role/add", "etcdserverpb.Auth/RoleAdd"},
	{"auth/role/get", "etcdserverpb.Auth/RoleGet"},
	{"auth/role/list", "etcdserverpb.Auth/RoleList"},
	{"auth/role/delete", "etcdserverpb.Auth/RoleDelete"},
	{"auth/role/grant", "etcdserverpb.Auth/RoleGrantPermission"},
	{"auth/role/revoke", "etcdserverpb.Auth/RoleRevokePermission"},
	{"lock/lock", "v3lockpb.Lock/Lock"},
	{"lock/unlock", "v3lockpb.Lock/Unlock"},
	{"election/campaign", "v3electionpb.Election/Campaign"},
	{"election/proclaim", "v3electionpb.Election/Proclaim"},
	{"election/leader", "v3electionpb.Election/Leader"},
	{"election/observe", "v3electionpb.Election/Observe"},
	{"election/resign", "v3electionpb.Election/Resign"},
};

/* Names of the same API before it was finished, too. */
static const char *const gateway_prefixes[] = {"/v3/", "/v3beta/", "/v3alpha/"};

struct gateway_route {
	const struct rp_grpc_method *method; /* NULL: not served */
	const ProtobufCMessageDescriptor *input, *output;
};

struct rp_gateway {
	struct rp_grpc_server *server;
	struct rp_http_handler handlers[RP_ARRAY_SIZE(gateway_prefixes)];
	struct gateway_route routes[RP_ARRAY_SIZE(gateway_paths)];
	uint32_t calls, calls_max;
	bool beginning;		/* waiting_begin() is on the stack */
	struct rp_list waiting; /* struct gateway_call, for one of the others to end */
};

/* One request, until its answer is complete or its client is gone. */
struct gateway_call {
	struct rp_gateway *gateway;
	struct rp_list node; /* on gateway->waiting */
	const struct gateway_route *route;
	struct rp_http_request *request; /* NULL: it is over */
	struct rp_grpc_call *call;	 /* NULL: it has ended */
	char *answer;			 /* of a unary method */
	const char *body;		 /* of the request: what was not looked at yet */
	size_t body_left;
	bool streams, begun, first, told, busy;
	bool counted; /* in gateway->calls */
};

/* ---- answers ---- */

/* JSON text of an error, to be freed. NULL without memory. */
static char *error_text(bool streams, enum rp_grpc_code code, const char *text)
{
	int status = rp_grpc_code_to_http(code);
	json_t *message = json_string(text), *error;
	char *out;

	/* A text with a client's own bytes in it may be no UTF-8. */
	if (!message)
		message = json_string(rp_grpc_code_name(code));
	error = streams ? json_pack("{s:{s:i,s:i,s:O,s:s}}", "error", "grpc_code", (int)code,
				  "http_code", status, "message", message, "http_status",
				  rp_http_reason(status))
			: json_pack("{s:O,s:O,s:i}", "error", message, "message", message, "code",
				  (int)code);
	out = error ? json_dumps(error, JSON_COMPACT) : NULL;
	json_decref(error);
	json_decref(message);
	return out;
}

static void reply_error(
	struct rp_http_request *request, bool streams, enum rp_grpc_code code, const char *text)
{
	char *body = error_text(streams, code, text);

	rp_http_reply(request, rp_grpc_code_to_http(code), GATEWAY_TYPE, body ? body : "{}",
		body ? strlen(body) : 2);
	free(body);
}

static void reply_plain(struct rp_http_request *request, int status)
{
	char text[64];
	int n = snprintf(text, sizeof(text), "%s\n", rp_http_reason(status));

	rp_http_reply(request, status, "text/plain; charset=utf-8", text, (size_t)n);
}

static void call_begin(struct gateway_call *g);

/* A call that ends at once lets the next one begin: in a loop, since there may be many. */
static void waiting_begin(struct rp_gateway *gateway)
{
	struct rp_list *n;

	if (gateway->beginning)
		return;
	gateway->beginning = true;
	while (gateway->calls < gateway->calls_max &&
		(n = rp_list_pop_front(&gateway->waiting)) != NULL)
		call_begin(rp_list_entry(n, struct gateway_call, node));
	gateway->beginning = false;
}

static void call_free(struct gateway_call *g)
{
	struct rp_gateway *gateway = g->gateway;

	if (g->busy || g->request || g->call)
		return;
	rp_list_unlink(&g->node);
	gateway->calls -= g->counted;
	free(g->answer);
	free(g);
	waiting_begin(gateway);
}

static void call_write_line(struct gateway_call *g, const char *text, uint64_t cookie, int *error)
{
	size_t n = strlen(text);
	char *line = malloc(n + 1);

	if (!line) {
		*error = -ENOMEM;
		return;
	}
	if (!g->begun)
		rp_http_begin(g->request, 200, GATEWAY_TYPE);
	g->begun = true;
	memcpy(line, text, n);
	line[n] = '\n';
	*error = rp_http_write(g->request, line, n + 1, cookie);
	free(line);
}

static int on_answer(void *ctx, const uint8_t *data, size_t length, uint64_t cookie)
{
	struct gateway_call *g = ctx;
	json_t *json = rp_gateway_json_out(g->route->output, data, length);
	char *text;
	int error = 0;

	if (json && g->streams)
		json = json_pack("{s:o}", "result", json);
	text = json ? json_dumps(json, JSON_COMPACT) : NULL;
	json_decref(json);
	if (!text)
		return -ENOMEM;
	if (g->streams) {
		call_write_line(g, text, cookie, &error);
		free(text);
	} else {
		free(g->answer);
		g->answer = text;
	}
	return error;
}

static void finish_stream(struct gateway_call *g, enum rp_grpc_code code, const char *text)
{
	struct rp_http_request *request = g->request;
	char *line = NULL;
	int error;

	if (code != RP_GRPC_OK && !g->begun) {
		reply_error(request, true, code, text);
		return;
	}
	if (!g->begun)
		rp_http_begin(request, 200, GATEWAY_TYPE);
	g->begun = true;
	if (code != RP_GRPC_OK)
		line = error_text(true, code, text);
	if (line)
		call_write_line(g, line, 0, &error);
	free(line);
	rp_http_end(request);
}

static void on_finish(void *ctx, enum rp_grpc_code code, const char *text)
{
	struct gateway_call *g = ctx;

	g->call = NULL;
	if (g->streams)
		finish_stream(g, code, text);
	else if (code != RP_GRPC_OK)
		reply_error(g->request, false, code, text);
	else
		rp_http_reply(g->request, 200, GATEWAY_TYPE, g->answer ? g->answer : "{}",
			g->answer ? strlen(g->answer) : 2);
	g->request = NULL;
	call_free(g);
}

/* ---- requests ---- */

/* Ends a call that has got a request it cannot be told. */
static void call_refuse(struct gateway_call *g, const char *why)
{
	struct rp_grpc_call *call = g->call;

	g->call = NULL;
	rp_grpc_bridge_cancel(call);
	on_finish(g, RP_GRPC_INVALID_ARGUMENT, why);
}

/* The next value of the body; NULL: there is none, or it is bad (*why). */
static json_t *next_value(struct gateway_call *g, const char **why)
{
	json_error_t error;
	json_t *json;

	*why = NULL;
	while (g->body_left > 0 && strchr(" \t\r\n", g->body[0])) {
		g->body++;
		g->body_left--;
	}
	if (g->body_left == 0)
		return NULL;
	json = json_loadb(g->body, g->body_left,
		JSON_DISABLE_EOF_CHECK | JSON_DECODE_ANY | JSON_ALLOW_NUL, &error);
	if (!json) {
		*why = "json: the body is not JSON";
		return NULL;
	}
	g->body += error.position;
	g->body_left -= (size_t)error.position;
	return json;
}

/* One message to the service. False: nothing more is to be told. */
static bool tell_next(struct gateway_call *g)
{
	struct rp_gateway_bytes bytes = {0};
	const char *why;
	json_t *json = next_value(g, &why);
	bool good = true;

	if (why) {
		call_refuse(g, why);
		return false;
	}
	/* An empty body is an empty request, as etcd takes it, and a stream without any. */
	if (!json && (!g->first || g->route->method->kind == RP_GRPC_BIDI))
		return false;
	g->first = false;
	if (json)
		good = rp_gateway_json_in(&bytes, g->route->input, json, &why);
	json_decref(json);
	if (good)
		rp_grpc_bridge_message(g->call, bytes.data, bytes.length);
	else
		call_refuse(g, why);
	rp_gateway_bytes_free(&bytes);
	return good && g->call && g->route->method->kind == RP_GRPC_BIDI;
}

/* Tells the service all it reads now. */
static void tell(void *ctx)
{
	struct gateway_call *g = ctx;

	g->busy = true;
	while (g->call && !g->told && !rp_grpc_bridge_paused(g->call)) {
		g->told = !tell_next(g);
		if (g->told && g->call)
			rp_grpc_bridge_half_close(g->call);
	}
	g->busy = false;
	call_free(g);
}

static const struct rp_grpc_bridge_ops bridge_ops = {
	.message = on_answer,
	.finish = on_finish,
	.resumed = tell,
};

static const struct gateway_route *route_of(const struct rp_gateway *gateway, const char *path)
{
	const char *below = strchr(path + 1, '/');

	for (size_t i = 0; below && i < RP_ARRAY_SIZE(gateway_paths); i++)
		if (strcmp(below + 1, gateway_paths[i].path) == 0)
			return &gateway->routes[i];
	return NULL;
}

static void call_begin(struct gateway_call *g)
{
	g->gateway->calls++;
	g->counted = true;
	g->busy = true;
	g->call = rp_grpc_bridge_open(g->request, g->route->method, &bridge_ops, g);
	if (g->call) {
		tell(g);
		return;
	}
	g->busy = false;
	if (g->request && errno == EINVAL)
		on_finish(g, RP_GRPC_INVALID_ARGUMENT, "invalid grpc-timeout");
	else if (g->request)
		on_finish(g, RP_GRPC_RESOURCE_EXHAUSTED, "out of memory");
	else
		call_free(g);
}

static void call_open(struct rp_gateway *gateway, struct rp_http_request *request,
	const struct gateway_route *route)
{
	struct gateway_call *g = calloc(1, sizeof(*g));

	if (!g) {
		reply_error(request, false, RP_GRPC_RESOURCE_EXHAUSTED, "out of memory");
		return;
	}
	rp_list_init(&g->node);
	g->gateway = gateway;
	g->route = route;
	g->request = request;
	g->first = true;
	g->streams =
		route->method->kind == RP_GRPC_SERVER_STREAM || route->method->kind == RP_GRPC_BIDI;
	g->body = (const char *)rp_http_body(request, &g->body_left);
	rp_http_set_user(request, g);
	if (g->streams)
		rp_http_set_endless(request);
	if (gateway->calls < gateway->calls_max)
		call_begin(g);
	else
		rp_list_push_back(&gateway->waiting, &g->node);
}

static void on_request(struct rp_http_request *request, void *ctx)
{
	struct rp_gateway *gateway = ctx;
	const struct gateway_route *route = route_of(gateway, rp_http_path(request));

	if (!route)
		reply_plain(request, 404);
	else if (strcmp(rp_http_method(request), "POST") != 0)
		reply_plain(request, 405);
	else if (!route->method)
		reply_error(request, false, RP_GRPC_UNIMPLEMENTED, "not served here");
	else
		call_open(gateway, request, route);
}

static void on_cancel(struct rp_http_request *request, void *ctx)
{
	struct gateway_call *g = rp_http_user(request);
	struct rp_grpc_call *call = g->call;

	g->request = NULL;
	g->call = NULL;
	if (call)
		rp_grpc_bridge_cancel(call);
	call_free(g);
}

static void on_room(struct rp_http_request *request, void *ctx)
{
	struct gateway_call *g = rp_http_user(request);

	if (g->call)
		rp_grpc_bridge_room(g->call);
}

static void on_written(struct rp_http_request *request, uint64_t cookie, void *ctx)
{
	struct gateway_call *g = rp_http_user(request);

	if (g->call)
		rp_grpc_bridge_written(g->call, cookie);
}

/* ---- creation ---- */

static void route_fill(struct rp_gateway *gateway, struct gateway_route *route, const char *method,
	const ProtobufCServiceDescriptor *const *services)
{
	const char *slash = strchr(method, '/');
	char path[128];

	snprintf(path, sizeof(path), "/%s", method);
	for (; *services; services++) {
		const ProtobufCServiceDescriptor *s = *services;
		const ProtobufCMethodDescriptor *m;

		if (strlen(s->name) != (size_t)(slash - method) ||
			memcmp(s->name, method, strlen(s->name)) != 0)
			continue;
		m = protobuf_c_service_descriptor_get_method_by_name(s, slash + 1);
		if (!m)
			return;
		route->input = m->input;
		route->output = m->output;
		route->method = rp_grpc_server_find(gateway->server, path);
	}
}

struct rp_gateway *rp_gateway_new(struct rp_grpc_server *server,
	const ProtobufCServiceDescriptor *const *services, uint32_t calls_max)
{
	struct rp_gateway *gateway = calloc(1, sizeof(*gateway));
	int error;

	if (!gateway)
		return NULL;
	gateway->server = server;
	gateway->calls_max = calls_max;
	rp_list_init(&gateway->waiting);
	for (size_t i = 0; i < RP_ARRAY_SIZE(gateway_paths); i++)
		route_fill(gateway, &gateway->routes[i], gateway_paths[i].method, services);
	for (size_t i = 0; i < RP_ARRAY_SIZE(gateway_prefixes); i++)
		gateway->handlers[i] = (struct rp_http_handler){
			.path = gateway_prefixes[i],
			.on_request = on_request,
			.on_cancel = on_cancel,
			.on_room = on_room,
			.on_written = on_written,
			.ctx = gateway,
		};
	error = rp_grpc_server_add_http(
		server, gateway->handlers, RP_ARRAY_SIZE(gateway->handlers));
	if (error == 0)
		return gateway;
	free(gateway);
	errno = -error;
	return NULL;
}

void rp_gateway_set_calls_max(struct rp_gateway *gateway, uint32_t calls_max)
{
	gateway->calls_max = calls_max;
	waiting_begin(gateway);
}

void rp_gateway_destroy(struct rp_gateway *gateway)
{
	free(gateway);
}
