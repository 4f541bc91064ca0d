/* SPDX-License-Identifier: Apache-2.0 */
/* GET /health, /livez, /readyz and /version (spec/etcd-semantics.md section 13). */
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

/* A row of checks: "ok", and with ?verbose each of them; 503 with all when one fails. */
static void probe_reply(struct rp_http_request *request, const char *const *names,
	const char *const *faults, size_t count)
{
	bool verbose = rp_http_query_get(request, "verbose", NULL, NULL), good = true;
	char text[512] = "";
	size_t n = 0;

	for (size_t i = 0; i < count; i++) {
		good = good && !faults[i];
		n += (size_t)snprintf(text + n, sizeof(text) - n,
			faults[i] ? "[-]%s failed: %.100s\n" : "[+]%s ok\n", names[i], faults[i]);
	}
	if (good && !verbose)
		n = 0;
	if (good)
		n += (size_t)snprintf(text + n, sizeof(text) - n, "ok\n");
	rp_http_reply(request, good ? 200 : 503, "text/plain; charset=utf-8", text, n);
}

static void on_livez(struct rp_http_request *request, void *ctx)
{
	static const char *const names[] = {"serializable_read"};
	/* Reads are answered from memory: that it answers at all says so. */
	static const char *const faults[] = {NULL};

	if (only_get(request))
		probe_reply(request, names, faults, RP_ARRAY_SIZE(names));
}

static void on_readyz(struct rp_http_request *request, void *ctx)
{
	static const char *const names[] = {
		"data_corruption", "serializable_read", "linearizable_read"};
	struct rp_etcd *e = ctx;
	struct rp_etcd_status status = {0};
	const char *faults[RP_ARRAY_SIZE(names)] = {NULL};

	if (!only_get(request))
		return;
	e->backend->status(e->backend->ctx, &status);
	if (rp_kv_alarm_active(e->kv, RP_KV_ALARM_CORRUPT))
		faults[0] = "alarm activated: CORRUPT";
	if (status.unhealthy)
		faults[2] = status.unhealthy;
	else if (status.leader == 0)
		faults[2] = "etcdserver: no leader";
	probe_reply(request, names, faults, RP_ARRAY_SIZE(names));
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
	e->http[2] = (struct rp_http_handler){.path = "/livez", .on_request = on_livez, .ctx = e};
	e->http[3] = (struct rp_http_handler){.path = "/readyz", .on_request = on_readyz, .ctx = e};
	return rp_grpc_server_add_http(e->config.server, e->http, RP_ARRAY_SIZE(e->http));
}
