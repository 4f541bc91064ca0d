/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>

#include <base/assert.h>
#include <base/list.h>
#include <gateway/health.h>
#include <grpc/health/v1/health.pb-c.h>
#include <grpc/server.h>

#define HEALTH_MESSAGE_BYTES 4096
#define ANSWER_BYTES 64

typedef Grpc__Health__V1__HealthCheckRequest Request;
typedef Grpc__Health__V1__HealthCheckResponse Answer;
typedef Grpc__Health__V1__HealthCheckResponse__ServingStatus Status;

/* Who watches the service "". */
struct watcher {
	struct rp_list node;
	struct rp_grpc_call *call;
};

struct rp_health {
	struct rp_grpc_method methods[3];
	struct rp_list watchers;
	bool serving;
};

static Status status_of(const struct rp_health *h)
{
	return h->serving ? GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVING
			  : GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__NOT_SERVING;
}

/* NULL: the call has been refused. */
static Request *request_of(struct rp_grpc_call *call, const uint8_t *data, size_t length)
{
	Request *q = grpc__health__v1__health_check_request__unpack(NULL, length, data);

	if (!q)
		rp_grpc_call_finish(call, RP_GRPC_INTERNAL,
			"grpc: error unmarshalling request: HealthCheckRequest does not decode");
	return q;
}

static size_t answer_pack(uint8_t out[ANSWER_BYTES], Status status)
{
	Answer m = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__INIT;

	m.status = status;
	return grpc__health__v1__health_check_response__pack(&m, out);
}

static void on_check(struct rp_grpc_call *call, const uint8_t *data, size_t length, void *ctx)
{
	Request *q = request_of(call, data, length);
	uint8_t out[ANSWER_BYTES];

	if (!q)
		return;
	if (q->service[0] != '\0')
		rp_grpc_call_finish(call, RP_GRPC_NOT_FOUND, "unknown service");
	else
		rp_grpc_call_reply(call, out, answer_pack(out, status_of(ctx)));
	grpc__health__v1__health_check_request__free_unpacked(q, NULL);
}

static void on_watch(struct rp_grpc_call *call, const uint8_t *data, size_t length, void *ctx)
{
	struct rp_health *h = ctx;
	Request *q = request_of(call, data, length);
	Status status = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVICE_UNKNOWN;
	uint8_t out[ANSWER_BYTES];

	if (!q)
		return;
	/* A service that is not known may become so: its watch stays, and hears nothing more. */
	if (q->service[0] == '\0') {
		struct watcher *w = calloc(1, sizeof(*w));

		RP_ASSERT(w != NULL);
		w->call = call;
		rp_list_push_back(&h->watchers, &w->node);
		rp_grpc_call_set_user(call, w);
		status = status_of(h);
	}
	grpc__health__v1__health_check_request__free_unpacked(q, NULL);
	(void)rp_grpc_call_send(call, out, answer_pack(out, status), 0);
}

static void on_cancel(struct rp_grpc_call *call, enum rp_grpc_cancel why, void *ctx)
{
	struct watcher *w = rp_grpc_call_user(call);

	if (!w)
		return;
	rp_list_unlink(&w->node);
	free(w);
}

static void on_list(struct rp_grpc_call *call, const uint8_t *data, size_t length, void *ctx)
{
	Grpc__Health__V1__HealthListResponse m = GRPC__HEALTH__V1__HEALTH_LIST_RESPONSE__INIT;
	Grpc__Health__V1__HealthListResponse__StatusesEntry e =
		GRPC__HEALTH__V1__HEALTH_LIST_RESPONSE__STATUSES_ENTRY__INIT;
	Grpc__Health__V1__HealthListResponse__StatusesEntry *list[] = {&e};
	Answer value = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__INIT;
	uint8_t out[ANSWER_BYTES];

	value.status = status_of(ctx);
	e.value = &value;
	m.statuses = list;
	m.n_statuses = 1;
	rp_grpc_call_reply(call, out, grpc__health__v1__health_list_response__pack(&m, out));
}

static const struct rp_grpc_call_ops check_ops = {.on_message = on_check};
static const struct rp_grpc_call_ops watch_ops = {.on_message = on_watch, .on_cancel = on_cancel};
static const struct rp_grpc_call_ops list_ops = {.on_message = on_list};

void rp_health_set(struct rp_health *h, bool serving)
{
	uint8_t out[ANSWER_BYTES];
	struct rp_list *n, *t;

	if (h->serving == serving)
		return;
	h->serving = serving;
	rp_list_foreach_safe (n, t, &h->watchers) {
		struct watcher *w = rp_list_entry(n, struct watcher, node);
		struct rp_grpc_call *call = w->call;

		if (rp_grpc_call_send(call, out, answer_pack(out, status_of(h)), 0) == 0)
			continue;
		/* One that reads nothing shall not think that it knows. */
		rp_list_unlink(&w->node);
		free(w);
		rp_grpc_call_finish(call, RP_GRPC_RESOURCE_EXHAUSTED, "health: not read");
	}
}

struct rp_health *rp_health_new(struct rp_grpc_server *server)
{
	struct rp_health *h = calloc(1, sizeof(*h));
	int error;

	if (!h)
		return NULL;
	rp_list_init(&h->watchers);
	h->methods[0] = (struct rp_grpc_method){
		.path = "/grpc.health.v1.Health/Check", .kind = RP_GRPC_UNARY, .ops = &check_ops};
	h->methods[1] = (struct rp_grpc_method){.path = "/grpc.health.v1.Health/Watch",
		.kind = RP_GRPC_SERVER_STREAM,
		.ops = &watch_ops};
	h->methods[2] = (struct rp_grpc_method){
		.path = "/grpc.health.v1.Health/List", .kind = RP_GRPC_UNARY, .ops = &list_ops};
	for (unsigned i = 0; i < RP_ARRAY_SIZE(h->methods); i++) {
		h->methods[i].ctx = h;
		h->methods[i].message_bytes_max = HEALTH_MESSAGE_BYTES;
	}
	error = rp_grpc_server_add_methods(server, h->methods, RP_ARRAY_SIZE(h->methods));
	if (error == 0)
		return h;
	free(h);
	errno = -error;
	return NULL;
}

void rp_health_destroy(struct rp_health *h)
{
	RP_ASSERT(!h || rp_list_empty(&h->watchers));
	free(h);
}
