/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What others write: after 'p' the entries of an upsert, after anything else a message of the bus.
 * A message that parses is written back and parses to the same, and its life only shrinks.
 */

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <base/assert.h>
#include <sink/postgres.h>
#include <store/message.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_entries(const uint8_t *data, size_t size)
{
	char *text = strndup((const char *)data, size), error[128] = "";

	RP_ASSERT(text != NULL);
	RP_ASSERT(
		(rp_postgres_check(text, "dead", error, sizeof(error)) != 0) == (error[0] != '\0'));
	free(text);
}

static void check_life(const struct rp_bus_message *m)
{
	uint64_t before = UINT64_MAX, ttl;

	for (uint64_t wall_ms = 0; wall_ms < 1ull << 50; wall_ms = wall_ms * 3 + 1) {
		if (!rp_bus_message_ttl(m, wall_ms, &ttl))
			return;
		RP_ASSERT(ttl <= before && ttl <= (uint64_t)m->expiration * 1000);
		before = ttl;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct rp_bus_message *m, *again;
	struct rp_span json;
	char *text, *back;
	size_t length;

	if (size > 0 && data[0] == 'p') {
		check_entries(data + 1, size - 1);
		return 0;
	}
	m = rp_bus_message_parse((struct rp_span){data, size});
	if (!m)
		return 0;
	check_life(m);
	free(rp_bus_message_data(m, &length));
	text = rp_bus_message_format(m, &json.length);
	RP_ASSERT(text != NULL);
	json.data = (const uint8_t *)text;
	again = rp_bus_message_parse(json);
	RP_ASSERT(again != NULL);
	back = rp_bus_message_format(again, NULL);
	RP_ASSERT(back != NULL && strcmp(text, back) == 0);
	free(text);
	free(back);
	rp_bus_message_free(again);
	rp_bus_message_free(m);
	return 0;
}
