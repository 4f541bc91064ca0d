/* SPDX-License-Identifier: Apache-2.0 */
/* A file of bbolt, as a snapshot that is to be restored. */
#include <stdlib.h>
#include <string.h>

#include <bolt/bolt.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint64_t sum;

/* Touches every byte it is shown. */
static bool on_pair(void *ctx, struct rp_span key, struct rp_span value)
{
	unsigned *pairs = ctx;

	for (size_t i = 0; i < key.length; i++)
		sum += key.data[i];
	for (size_t i = 0; i < value.length; i++)
		sum += value.data[i];
	return ++*pairs < 10000;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct rp_bolt_file f;
	const char *why = NULL;
	unsigned pairs = 0;

	if (rp_bolt_open(&f, (struct rp_span){.data = data, .length = size}, &why) < 0) {
		if (!why)
			abort();
		return 0;
	}
	(void)rp_bolt_each(&f, "key", on_pair, &pairs, &why);
	(void)rp_bolt_each(&f, "meta", on_pair, &pairs, &why);
	return 0;
}
