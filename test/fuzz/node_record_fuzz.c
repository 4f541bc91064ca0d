/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Small texts from a peer or an operator: after 'i' an impairment, after 'e' an endpoint, after
 * anything else a node record. What parses is written back and parses to the same.
 */

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <base/assert.h>
#include <base/impair.h>
#include <engine/node_record.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_impair(const char *text)
{
	struct rp_impair_spec spec;
	char error[128] = "";
	int rc = rp_impair_parse(text, &spec, error, sizeof(error));

	RP_ASSERT((rc < 0) == (error[0] != '\0'));
	if (rc == 0)
		RP_ASSERT(spec.drop >= 0 && spec.drop <= 1 && spec.duplicate >= 0 &&
			  spec.duplicate <= 1 && spec.reorder >= 0 && spec.reorder <= 1);
}

static void check_endpoint(const char *text)
{
	struct rp_endpoint e, again;
	char back[64];

	if (rp_endpoint_parse(&e, text) != 0)
		return;
	RP_ASSERT(rp_endpoint_format(&e, back, sizeof(back)) < (int)sizeof(back));
	RP_ASSERT(rp_endpoint_parse(&again, back) == 0 && memcmp(&e, &again, sizeof(e)) == 0);
}

static void check_record(const char *text, size_t size)
{
	struct rp_node_record r = {.node = 1}, again = {.node = 1};
	char back[RP_NODE_RECORD_BYTES_MAX];
	int n;

	if (rp_node_record_parse(&r, text, size) != 0)
		return;
	RP_ASSERT(r.boot != 0 && r.node == 1);
	n = rp_node_record_format(&r, back, sizeof(back));
	if (n < 0)
		return;
	RP_ASSERT(rp_node_record_parse(&again, back, (size_t)n) == 0);
	RP_ASSERT(again.boot == r.boot && again.shards == r.shards &&
		  memcmp(&again.tcp, &r.tcp, sizeof(r.tcp)) == 0 &&
		  strcmp(again.client_url, r.client_url) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	/* Of its own size, so that a read past the end is seen. */
	char *text = malloc(size + 1);

	RP_ASSERT(text != NULL);
	if (size > 0)
		memcpy(text, data, size);
	text[size] = '\0';
	if (size > 0 && text[0] == 'i')
		check_impair(text + 1);
	else if (size > 0 && text[0] == 'e')
		check_endpoint(text + 1);
	else
		check_record(text, size);
	free(text);
	return 0;
}
