/* SPDX-License-Identifier: Apache-2.0 */
#include <stats/hist.h>

#include <string.h>

#include <base/assert.h>

#define SUB_COUNT (1u << RP_HIST_SUB_BITS)

static uint64_t read_u64(const uint64_t *v)
{
	return __atomic_load_n(v, __ATOMIC_RELAXED);
}

void rp_hist_init(struct rp_hist *h)
{
	memset(h, 0, sizeof(*h));
	h->min_ns = UINT64_MAX;
}

void rp_hist_merge(struct rp_hist *to, const struct rp_hist *from)
{
	uint64_t min_ns = read_u64(&from->min_ns), max_ns = read_u64(&from->max_ns);
	uint64_t count = 0;

	RP_ASSERT(to != from);
	/* The count is that of the buckets seen, so that percentiles add up while `from` is
	 * written. */
	for (unsigned i = 0; i < RP_HIST_BUCKETS; i++) {
		uint64_t n = read_u64(&from->buckets[i]);

		to->buckets[i] += n;
		count += n;
	}
	to->count += count;
	to->sum_ns += read_u64(&from->sum_ns);
	if (count == 0)
		return;
	if (min_ns < to->min_ns)
		to->min_ns = min_ns;
	if (max_ns > to->max_ns)
		to->max_ns = max_ns;
}

uint64_t rp_hist_bucket_low(unsigned bucket)
{
	unsigned shift = bucket >> RP_HIST_SUB_BITS, sub = bucket & (SUB_COUNT - 1);

	RP_ASSERT(bucket < RP_HIST_BUCKETS);
	if (shift == 0)
		return sub;
	return (uint64_t)(SUB_COUNT + sub) << (shift - 1);
}

uint64_t rp_hist_bucket_high(unsigned bucket)
{
	if (bucket == RP_HIST_BUCKETS - 1)
		return UINT64_MAX;
	return rp_hist_bucket_low(bucket + 1) - 1;
}

uint64_t rp_hist_percentile(const struct rp_hist *h, double percent)
{
	double wanted = percent / 100.0 * (double)h->count;
	uint64_t seen = 0;

	if (h->count == 0)
		return 0;
	for (unsigned i = 0; i < RP_HIST_BUCKETS; i++) {
		seen += h->buckets[i];
		if (seen > 0 && (double)seen >= wanted) {
			uint64_t high = rp_hist_bucket_high(i);

			return high < h->max_ns ? high : h->max_ns;
		}
	}
	return h->max_ns;
}

uint64_t rp_hist_mean(const struct rp_hist *h)
{
	return h->count ? h->sum_ns / h->count : 0;
}
