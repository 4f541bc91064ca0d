/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <base/units.h>
#include <etcdserverpb/rpc.pb-c.h>

#include <gateway/json.h>

static bool in(struct rp_gateway_bytes *out, const ProtobufCMessageDescriptor *d, const char *text,
	const char **why)
{
	json_t *json = json_loads(text, JSON_DECODE_ANY, NULL);
	bool good;

	assert_non_null(json);
	good = rp_gateway_json_in(out, d, json, why);
	json_decref(json);
	return good;
}

static void *unpacked(const ProtobufCMessageDescriptor *d, const char *text)
{
	struct rp_gateway_bytes bytes = {0};
	const char *why = NULL;
	void *m;

	if (!in(&bytes, d, text, &why))
		fail_msg("%s: %s", text, why);
	m = protobuf_c_message_unpack(d, NULL, bytes.length, bytes.data);
	assert_non_null(m);
	rp_gateway_bytes_free(&bytes);
	return m;
}

static void refused(const char *text, const char *reason)
{
	struct rp_gateway_bytes bytes = {0};
	const char *why = NULL;

	if (in(&bytes, &etcdserverpb__range_request__descriptor, text, &why))
		fail_msg("%s is taken", text);
	assert_string_equal(why, reason);
	rp_gateway_bytes_free(&bytes);
}

static void requests(void **state)
{
	Etcdserverpb__RangeRequest *r = unpacked(&etcdserverpb__range_request__descriptor,
		"{\"key\":\"AP8=\",\"rangeEnd\":\"_-8\",\"limit\":\"-3\",\"revision\":12,"
		"\"sort_order\":\"DESCEND\",\"sortTarget\":3,\"keys_only\":true,"
		"\"min_mod_revision\":\"9223372036854775807\",\"serializable\":null,"
		"\"nobody_knows\":{\"a\":[1]}}");
	Etcdserverpb__WatchRequest *w = unpacked(&etcdserverpb__watch_request__descriptor,
		"{\"createRequest\":{\"filters\":[\"NODELETE\",0],\"watch_id\":\"-1\"}}");
	Etcdserverpb__TxnRequest *t = unpacked(&etcdserverpb__txn_request__descriptor,
		"{\"compare\":[{\"version\":0}],\"success\":[{\"request_put\":{}}]}");

	assert_int_equal(r->key.len, 2);
	assert_memory_equal(r->key.data, "\0\xff", 2);
	assert_int_equal(r->range_end.len, 2);
	assert_memory_equal(r->range_end.data, "\xff\xef", 2);
	assert_int_equal(r->limit, -3);
	assert_int_equal(r->revision, 12);
	assert_int_equal(r->sort_order, ETCDSERVERPB__RANGE_REQUEST__SORT_ORDER__DESCEND);
	assert_int_equal(r->sort_target, ETCDSERVERPB__RANGE_REQUEST__SORT_TARGET__MOD);
	assert_true(r->keys_only && !r->serializable);
	assert_true(r->min_mod_revision == INT64_MAX);
	assert_int_equal(
		w->request_union_case, ETCDSERVERPB__WATCH_REQUEST__REQUEST_UNION_CREATE_REQUEST);
	assert_int_equal(w->create_request->n_filters, 2);
	assert_int_equal(w->create_request->watch_id, -1);
	/* A member of a union is there though it has its default value. */
	assert_int_equal(
		t->compare[0]->target_union_case, ETCDSERVERPB__COMPARE__TARGET_UNION_VERSION);
	assert_int_equal(
		t->success[0]->request_case, ETCDSERVERPB__REQUEST_OP__REQUEST_REQUEST_PUT);
	protobuf_c_message_free_unpacked(&r->base, NULL);
	protobuf_c_message_free_unpacked(&w->base, NULL);
	protobuf_c_message_free_unpacked(&t->base, NULL);
}

/* Encoders break the lines of base64, and a client may say null for nothing. */
static void lenient_requests(void **state)
{
	Etcdserverpb__RangeRequest *r = unpacked(&etcdserverpb__range_request__descriptor,
		"{\"key\":\"\\r\\nAP\\n8=\\n\",\"range_end\":\"\\n\"}");
	Etcdserverpb__RangeRequest *none =
		unpacked(&etcdserverpb__range_request__descriptor, "null");

	assert_int_equal(r->key.len, 2);
	assert_memory_equal(r->key.data, "\0\xff", 2);
	assert_int_equal(r->range_end.len, 0);
	assert_int_equal(none->key.len, 0);
	refused("{\"key\":\"Y\\nQ=\\n\"}", "json: illegal base64 data");
	protobuf_c_message_free_unpacked(&r->base, NULL);
	protobuf_c_message_free_unpacked(&none->base, NULL);
}

static void bad_requests(void **state)
{
	refused("[]", "json: an object is expected");
	refused("{\"key\":1}", "json: a string is expected");
	refused("{\"key\":\"a\"}", "json: illegal base64 data");
	refused("{\"key\":\"YQ=\"}", "json: illegal base64 data");
	refused("{\"key\":\"YQ==YQ==\"}", "json: illegal base64 data");
	refused("{\"key\":\"Y Q=\"}", "json: illegal base64 data");
	refused("{\"limit\":\"\"}", "json: a number is expected");
	refused("{\"limit\":\"1x\"}", "json: a number is expected");
	refused("{\"limit\":\" 1\"}", "json: a number is expected");
	refused("{\"limit\":1.5}", "json: a number is expected");
	refused("{\"limit\":true}", "json: a number is expected");
	refused("{\"limit\":\"9223372036854775808\"}", "json: number out of range");
	refused("{\"limit\":\"-9223372036854775809\"}", "json: number out of range");
	refused("{\"sort_order\":\"UP\"}", "json: unknown value of an enum");
	refused("{\"sort_order\":4294967296}", "json: number out of range");
	refused("{\"keys_only\":\"true\"}", "json: true or false is expected");
}

static void depth(void **state)
{
	size_t levels = RP_GATEWAY_DEPTH_MAX, n = 0;
	char *text = malloc(64 * levels);
	struct rp_gateway_bytes bytes = {0};
	const char *why = NULL;

	/* An operation and a txn a turn. */
	for (size_t i = 0; i < levels / 2; i++)
		n += (size_t)sprintf(text + n, "{\"success\":[{\"request_txn\":");
	n += (size_t)sprintf(text + n, "{}");
	for (size_t i = 0; i < levels / 2; i++)
		n += (size_t)sprintf(text + n, "}]}");
	assert_false(in(&bytes, &etcdserverpb__txn_request__descriptor, text, &why));
	assert_string_equal(why, "json: exceeded max depth");
	rp_gateway_bytes_free(&bytes);
	free(text);
}

static void answers(void **state)
{
	Etcdserverpb__ResponseHeader h = ETCDSERVERPB__RESPONSE_HEADER__INIT;
	Etcdserverpb__StatusResponse m = ETCDSERVERPB__STATUS_RESPONSE__INIT;
	char *errors[] = {(char *)"one", (char *)"no \xff utf-8"};
	uint8_t data[256];
	size_t length;
	json_t *json;
	char *text;

	h.cluster_id = UINT64_MAX;
	h.revision = -1;
	m.header = &h;
	m.dbsize = 5;
	m.n_errors = 2;
	m.errors = errors;
	m.islearner = true;
	length = protobuf_c_message_pack(&m.base, data);
	json = rp_gateway_json_out(m.base.descriptor, data, length);
	assert_non_null(json);
	text = json_dumps(json, JSON_COMPACT);
	assert_string_equal(text,
		"{\"header\":{\"cluster_id\":\"18446744073709551615\",\"revision\":\"-1\"},"
		"\"dbSize\":\"5\",\"errors\":[\"one\",\"no ? utf-8\"],\"isLearner\":true}");
	free(text);
	json_decref(json);
	/* Cut anywhere but between two fields it is no message. */
	for (size_t n = 1; n < length; n++) {
		ProtobufCMessage *whole =
			protobuf_c_message_unpack(m.base.descriptor, NULL, n, data);

		json = rp_gateway_json_out(m.base.descriptor, data, n);
		assert_true(!json == !whole);
		json_decref(json);
		if (whole)
			protobuf_c_message_free_unpacked(whole, NULL);
	}
}

static void events(void **state)
{
	Mvccpb__KeyValue kv = MVCCPB__KEY_VALUE__INIT;
	Mvccpb__Event put = MVCCPB__EVENT__INIT, del = MVCCPB__EVENT__INIT;
	Mvccpb__Event *list[] = {&put, &del};
	Etcdserverpb__WatchResponse m = ETCDSERVERPB__WATCH_RESPONSE__INIT;
	uint8_t data[256];
	json_t *json;
	char *text;

	kv.key = (ProtobufCBinaryData){.len = 3, .data = (uint8_t *)"\xfb\xff\x01"};
	put.kv = del.kv = &kv;
	del.type = MVCCPB__EVENT__EVENT_TYPE__DELETE;
	m.n_events = 2;
	m.events = list;
	json = rp_gateway_json_out(m.base.descriptor, data, protobuf_c_message_pack(&m.base, data));
	text = json_dumps(json, JSON_COMPACT);
	assert_string_equal(text, "{\"events\":[{\"kv\":{\"key\":\"+/8B\"}},"
				  "{\"type\":\"DELETE\",\"kv\":{\"key\":\"+/8B\"}}]}");
	free(text);
	json_decref(json);
}

static void base64(void **state)
{
	for (size_t n = 0; n < 40; n++) {
		struct rp_gateway_bytes back = {0};
		uint8_t data[40];
		char *text;

		for (size_t i = 0; i < n; i++)
			data[i] = (uint8_t)(i * 37 + n);
		text = rp_gateway_base64(data, n);
		assert_int_equal(strlen(text) % 4, 0);
		assert_true(rp_gateway_unbase64(&back, text, strlen(text)));
		assert_int_equal(back.length, n);
		assert_memory_equal(back.data ? back.data : data, data, n);
		rp_gateway_bytes_free(&back);
		free(text);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(requests),
		cmocka_unit_test(lenient_requests),
		cmocka_unit_test(bad_requests),
		cmocka_unit_test(depth),
		cmocka_unit_test(answers),
		cmocka_unit_test(events),
		cmocka_unit_test(base64),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
