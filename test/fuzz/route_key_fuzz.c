/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Any bytes as a key. A second, slower reading of the grammar (spec/queues.md, "Keys") decides
 * apart from the parser whether a key is stored, traffic or invalid: no registry key may be filed
 * as traffic, no traffic as a key. What parses must come out again as it went in.
 */

#include <stdlib.h>
#include <string.h>

#include <base/assert.h>
#include <route/key.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum file { STORED, REGISTRY, TRAFFIC, INVALID };

struct segments {
	struct rp_span at[16];
	unsigned count; /**< 16 = at least */
};

static struct segments cut(const uint8_t *data, size_t size)
{
	struct segments s = {.count = 0};
	size_t from = 0;

	for (size_t i = 0; i <= size && s.count < RP_ARRAY_SIZE(s.at); i++) {
		if (i == size || data[i] == '/') {
			s.at[s.count++] = (struct rp_span){data + from, i - from};
			from = i + 1;
		}
	}
	return s;
}

static bool is(struct rp_span s, const char *text)
{
	return s.length == strlen(text) && (s.length == 0 || memcmp(s.data, text, s.length) == 0);
}

static bool is_segment(struct rp_span s)
{
	return s.length >= 1 && s.length <= 255;
}

static bool is_decimal(struct rp_span s)
{
	char digits[24];

	if (s.length == 0 || s.length > 20 || (s.length > 1 && s.data[0] == '0'))
		return false;
	for (size_t i = 0; i < s.length; i++) {
		if (s.data[i] < '0' || s.data[i] > '9')
			return false;
	}
	memcpy(digits, s.data, s.length);
	digits[s.length] = 0;
	return s.length < 20 || strcmp(digits, "18446744073709551615") <= 0;
}

static bool is_uuid(struct rp_span s)
{
	uint8_t uuid[RP_UUID_BYTES];

	return rp_uuid_parse(s.data, s.length, uuid) == 0;
}

static bool is_clickhouse(struct rp_span name, bool *valid)
{
	size_t prefix = 0, dots = 0;

	if (name.length >= 3 && memcmp(name.data, "ch:", 3) == 0)
		prefix = 3;
	else if (name.length >= 11 && memcmp(name.data, "clickhouse:", 11) == 0)
		prefix = 11;
	*valid = true;
	if (!prefix)
		return false;
	for (size_t i = prefix; i < name.length; i++)
		dots += name.data[i] == '.';
	*valid = name.length > prefix && dots <= 1 && name.data[prefix] != '.' &&
		 name.data[name.length - 1] != '.';
	return true;
}

static enum file file_queue_key(const struct segments *s)
{
	bool consumer = s->count > 3 && (is(s->at[3], "c") || is(s->at[3], "consumer"));
	bool producer = s->count > 3 && (is(s->at[3], "p") || is(s->at[3], "producer") ||
						is(s->at[3], "i") || is(s->at[3], "input"));
	bool clickhouse, valid;

	if (!is_segment(s->at[2]))
		return INVALID;
	clickhouse = is_clickhouse(s->at[2], &valid);
	if (!valid)
		return INVALID;
	if (s->count == 3 || (s->count == 4 && s->at[3].length == 0))
		return REGISTRY;
	if (consumer && (s->count == 5 || (s->count == 6 && s->at[5].length == 0)))
		return is_uuid(s->at[4]) ? REGISTRY : INVALID;
	if (consumer)
		return s->count == 7 && is_uuid(s->at[4]) && !clickhouse && is_decimal(s->at[5]) &&
				       is_segment(s->at[6])
			       ? TRAFFIC
			       : INVALID;
	if (s->count != 5 || !is_segment(s->at[4]))
		return INVALID;
	return producer || is_decimal(s->at[3]) ? TRAFFIC : INVALID;
}

static enum file file_key(const uint8_t *data, size_t size)
{
	struct segments s = cut(data, size);

	if (s.count < 3 || s.at[0].length != 0 || !(is(s.at[1], "q") || is(s.at[1], "queue")))
		return STORED;
	return file_queue_key(&s);
}

static enum file file_of(const struct rp_route_key *k)
{
	switch (k->kind) {
	case RP_KEY_ORDINARY:
		return STORED;
	case RP_KEY_DISPATCHER:
	case RP_KEY_CONSUMER:
	case RP_KEY_SINK:
		return REGISTRY;
	case RP_KEY_PRODUCE:
	case RP_KEY_DELIVERED:
	case RP_KEY_DELIVERED_SHORT:
		return TRAFFIC;
	case RP_KEY_INVALID:
		break;
	}
	return INVALID;
}

static void check_canonical(const struct rp_route_key *k)
{
	uint8_t out[RP_REGISTRY_KEY_BYTES_MAX];
	struct rp_route_key again;
	int length = rp_route_key_canonical(k, out, sizeof(out));

	RP_ASSERT(length > 0);
	rp_route_key_parse(&again, out, (size_t)length);
	RP_ASSERT(again.kind == k->kind && again.name.length == k->name.length);
	RP_ASSERT(memcmp(again.name.data, k->name.data, k->name.length) == 0);
	RP_ASSERT(memcmp(again.uuid, k->uuid, sizeof(k->uuid)) == 0);
}

static void check_delivered(const struct rp_route_key *k, const uint8_t *data, size_t size)
{
	uint8_t out[RP_DELIVERED_KEY_BYTES_MAX];
	int length = rp_route_key_delivered(k->consumer, k->idx, k->tail, out, sizeof(out));

	RP_ASSERT(length == (int)size && memcmp(out, data, size) == 0);
}

static void check_range(const uint8_t *data, size_t size)
{
	size_t half = size / 2;
	enum rp_range_kind kind = rp_route_range_classify(data, half, data + half, size - half);
	struct rp_route_key k;

	/* The first key of a range shows where the range is. */
	rp_route_key_parse(&k, data, half);
	if (kind == RP_RANGE_INSIDE)
		RP_ASSERT(k.kind != RP_KEY_ORDINARY);
	if (kind == RP_RANGE_OUTSIDE)
		RP_ASSERT(k.kind == RP_KEY_ORDINARY);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct rp_route_key k;

	rp_route_key_parse(&k, data, size);
	RP_ASSERT(file_of(&k) == file_key(data, size));
	RP_ASSERT((k.kind == RP_KEY_INVALID) == (k.reason != RP_KEY_REASON_NONE));
	RP_ASSERT(rp_route_key_is_stored(&k) + rp_route_key_is_traffic(&k) +
			  (k.kind == RP_KEY_INVALID) ==
		  1);
	if (rp_route_key_is_registry(&k))
		check_canonical(&k);
	if (k.kind == RP_KEY_DELIVERED)
		check_delivered(&k, data, size);
	check_range(data, size);
	return 0;
}
