/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON to protobuf and back, by the descriptors of real requests: the first byte chooses one. Bytes
 * that are no JSON are taken as the message.
 */
#include <stdlib.h>

#include <base/units.h>
#include <etcdserverpb/rpc.pb-c.h>

#include <gateway/json.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const ProtobufCMessageDescriptor *const messages[] = {
	&etcdserverpb__txn_request__descriptor,
	&etcdserverpb__watch_request__descriptor,
	&etcdserverpb__range_request__descriptor,
	&etcdserverpb__txn_response__descriptor,
	&etcdserverpb__watch_response__descriptor,
	&etcdserverpb__status_response__descriptor,
};

/* What was made of JSON is a message, and its JSON makes the same message. */
static void check(const ProtobufCMessageDescriptor *d, const struct rp_gateway_bytes *bytes)
{
	json_t *json = rp_gateway_json_out(d, bytes->data, bytes->length);
	ProtobufCMessage *m = protobuf_c_message_unpack(d, NULL, bytes->length, bytes->data);
	struct rp_gateway_bytes again = {0};
	const char *why;
	json_t *second;

	if (!json || !m || !rp_gateway_json_in(&again, d, json, &why))
		abort();
	second = rp_gateway_json_out(d, again.data, again.length);
	if (!second || !json_equal(json, second))
		abort();
	json_decref(second);
	json_decref(json);
	rp_gateway_bytes_free(&again);
	protobuf_c_message_free_unpacked(m, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const ProtobufCMessageDescriptor *d;
	struct rp_gateway_bytes bytes = {0};
	json_error_t error;
	const char *why;
	json_t *json;

	if (size == 0)
		return 0;
	d = messages[data[0] % RP_ARRAY_SIZE(messages)];
	json = json_loadb((const char *)data + 1, size - 1,
		JSON_DISABLE_EOF_CHECK | JSON_DECODE_ANY | JSON_ALLOW_NUL, &error);
	if (!json)
		json_decref(rp_gateway_json_out(d, data + 1, size - 1));
	else if (rp_gateway_json_in(&bytes, d, json, &why))
		check(d, &bytes);
	json_decref(json);
	rp_gateway_bytes_free(&bytes);
	return 0;
}
