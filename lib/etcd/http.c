/* SPDX-License-Identifier: Apache-2.0 */
/* GET /health and /version (spec/etcd-semantics.md section 13). */
#include <stdio.h>
#include <string.h>

#include "etcd_priv.h"

static bool excluded(struct rp_http_request *request, const char *alarm)
{
	const char *value;
	size_t length;

	return rp_http_query_get(request, "exclude", &value, &length) && length == strlen(alarm) &&
	       memcmp(value, alarm, length) == 0;
}

static bool only_get(struct rp_http_request *request)
{
	const char *method = rp_http_method(request);

	if (strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0)
		return true;
	rp_http_reply(request, 405, "text/plain", "Method Not Allowed\n", 19);
	return false;
}

static void on_health(struct rp_http_request *request, void *ctx)
{
	struct rp_etcd *e = ctx;
	struct rp_etcd_status status = {0};
	const char *reason = NULL;
	char body[256];
	int length;

	if (!only_get(request))
		return;
	e->backend->status(e->backend->ctx, &status);
	if (rp_kv_alarm_active(e->kv, RP_KV_ALARM_NOSPACE) && !excluded(request, "NOSPACE"))
		reason = "ALARM NOSPACE";
	else if (rp_kv_alarm_active(e->kv, RP_KV_ALARM_CORRUPT) && !excluded(request, "CORRUPT"))
		reason = "ALARM CORRUPT";
	else if (status.unhealthy)
		reason = status.unhealthy;
	else if (status.leader == 0)
		reason = "RAFT NO LEADER";
	length = snprintf(body, sizeof(body), "{\"health\":\"%s\",\"reason\":\"%.128s\"}",
		reason ? "false" : "true", reason ? reason : "");
	rp_http_reply(
		request, reason ? 503 : 200, "text/plain; charset=utf-8", body, (size_t)length);
}

static void on_version(struct rp_http_request *request, void *ctx)
{
	static const char body[] =
		"{\"etcdserver\":\"" ETCD_VERSION "\",\"etcdcluster\":\"" ETCD_VERSION_CLUSTER
		"\",\"storage\":\"" ETCD_VERSION_CLUSTER "\"}";

	if (only_get(request))
		rp_http_reply(request, 200, "application/json", body, sizeof(body) - 1);
}

int etcd_http_register(struct rp_etcd *e)
{
	e->http[0] = (struct rp_http_handler){.path = "/health", .on_request = on_health, .ctx = e};
	e->http[1] =
		(struct rp_http_handler){.path = "/version", .on_request = on_version, .ctx = e};
	return rp_grpc_server_add_http(e->config.server, e->http, RP_ARRAY_SIZE(e->http));
}
