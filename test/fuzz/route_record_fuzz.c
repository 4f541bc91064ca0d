/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Any bytes as the two records, and as a client's put on one. What was written parses to the same,
 * and is written the same again; a put never changes what only a node may.
 */

#include <errno.h>
#include <string.h>

#include <base/assert.h>
#include <route/record.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define OUT_BYTES (3 * RP_RECORD_BYTES_MAX)

static bool same(struct rp_span a, struct rp_span b)
{
	return a.length == b.length && (a.length == 0 || memcmp(a.data, b.data, a.length) == 0);
}

static void check_dispatcher(const struct rp_dispatcher_record *r)
{
	static uint8_t one[OUT_BYTES], two[OUT_BYTES];
	struct rp_dispatcher_record again;
	int n = rp_route_dispatcher_format(r, one, sizeof(one)), m;

	RP_ASSERT(n > 0 && r->epoch <= RP_EPOCH_MAX && r->reply_to.length <= RP_NAME_BYTES_MAX);
	RP_ASSERT(rp_route_dispatcher_parse(&again, one, (size_t)n) == (r->node ? 0 : -ENOENT));
	RP_ASSERT(again.node == r->node && again.epoch == r->epoch && again.pinned == r->pinned);
	RP_ASSERT(same(again.reply_to, r->reply_to));
	m = rp_route_dispatcher_format(&again, two, sizeof(two));
	RP_ASSERT(n == m && memcmp(one, two, (size_t)n) == 0);
}

static void check_consumer(const struct rp_consumer_record *r)
{
	static uint8_t one[OUT_BYTES], two[OUT_BYTES];
	struct rp_consumer_record again;
	int n = rp_route_consumer_format(r, one, sizeof(one)), m;

	RP_ASSERT(n > 0 && r->match.length <= RP_TAIL_BYTES_MAX);
	RP_ASSERT(rp_route_consumer_parse(&again, one, (size_t)n) == (r->node ? 0 : -ENOENT));
	RP_ASSERT(again.node == r->node && again.prefetch == r->prefetch);
	RP_ASSERT(again.max_bytes == r->max_bytes);
	RP_ASSERT(same(again.cap, r->cap) && same(again.match, r->match));
	m = rp_route_consumer_format(&again, two, sizeof(two));
	RP_ASSERT(n == m && memcmp(one, two, (size_t)n) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct rp_dispatcher_record d, d_put;
	struct rp_consumer_record c, c_put;
	size_t half;

	size = RP_MIN(size, (size_t)RP_RECORD_BYTES_MAX);
	half = size / 2;
	rp_route_dispatcher_parse(&d, data, size);
	check_dispatcher(&d);
	rp_route_consumer_parse(&c, data, size);
	check_consumer(&c);
	rp_route_cap_has(c.cap, c.match);

	rp_route_dispatcher_parse(&d, data, half);
	if (rp_route_dispatcher_merge(&d_put, &d, data + half, size - half) == 0) {
		RP_ASSERT(d_put.node == d.node && d_put.epoch == d.epoch);
		check_dispatcher(&d_put);
	}
	rp_route_consumer_parse(&c, data, half);
	if (rp_route_consumer_merge(&c_put, &c, data + half, size - half) == 0) {
		RP_ASSERT(c_put.node == c.node);
		check_consumer(&c_put);
	}
	return 0;
}
