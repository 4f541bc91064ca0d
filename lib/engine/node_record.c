/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <engine/node_record.h>

int rp_endpoint_format(const struct rp_endpoint *e, char *out, size_t size)
{
	char text[INET6_ADDRSTRLEN];

	inet_ntop(e->family == 6 ? AF_INET6 : AF_INET, e->addr, text, sizeof(text));
	return snprintf(out, size, e->family == 6 ? "[%s]:%u" : "%s:%u", text, e->port);
}

int rp_endpoint_parse(struct rp_endpoint *e, const char *text)
{
	char host[INET6_ADDRSTRLEN + 2], *end;
	const char *colon = strrchr(text, ':');
	unsigned long port;
	size_t length;
	bool six = text[0] == '[';

	memset(e, 0, sizeof(*e));
	if (!colon || colon[1] < '0' || colon[1] > '9')
		return -EINVAL;
	port = strtoul(colon + 1, &end, 10);
	length = (size_t)(colon - text);
	if (*end != '\0' || port == 0 || port > UINT16_MAX || length >= sizeof(host))
		return -EINVAL;
	memcpy(host, text, length);
	host[length] = '\0';
	if (six && (length < 2 || host[length - 1] != ']'))
		return -EINVAL;
	if (six)
		host[length - 1] = '\0';
	if (inet_pton(six ? AF_INET6 : AF_INET, host + six, e->addr) != 1)
		return -EINVAL;
	e->family = six ? 6 : 4;
	e->port = (uint16_t)port;
	return 0;
}

static void append_text(char *out, size_t size, int *n, const char *field, const char *text)
{
	int start = *n, field_length;

	if (text[0] == '\0' || *n >= (int)size)
		return;
	field_length = snprintf(out + start, size - (size_t)start, ";%s=", field);
	*n += field_length;
	if (*n >= (int)size)
		return;
	*n += snprintf(out + *n, size - (size_t)*n, "%s", text);
	for (char *p = out + start + field_length; *p; p++)
		if (*p == ';')
			*p = '_';
}

static void append_endpoint(
	char *out, size_t size, int *n, const char *field, const struct rp_endpoint *e)
{
	char text[64];

	if (e->family == 0)
		return;
	rp_endpoint_format(e, text, sizeof(text));
	append_text(out, size, n, field, text);
}

static void append_rss(char *out, size_t size, int *n, const struct rp_node_record *r)
{
	char text[2 * sizeof(r->rss_key) + 24];

	if (r->rss_table_size == 0)
		return;
	for (unsigned i = 0; i < sizeof(r->rss_key); i++)
		snprintf(text + 2 * i, 3, "%02x", r->rss_key[i]);
	snprintf(text + 2 * sizeof(r->rss_key), 24, ",%u,%x", r->rss_table_size, r->rss_shards);
	append_text(out, size, n, "rss", text);
}

static void take_rss(struct rp_node_record *r, const char *value)
{
	size_t digits = 2 * sizeof(r->rss_key);
	unsigned entries, shards;
	char end;

	if (strlen(value) < digits || strspn(value, "0123456789abcdef") != digits ||
		sscanf(value + digits, ",%5u,%8x%c", &entries, &shards, &end) != 2 ||
		entries == 0 || entries > 512 || (entries & (entries - 1)) != 0 || shards == 0)
		return;
	for (unsigned i = 0; i < sizeof(r->rss_key); i++) {
		unsigned byte;

		sscanf(value + 2 * i, "%2x", &byte);
		r->rss_key[i] = (uint8_t)byte;
	}
	r->rss_table_size = entries;
	r->rss_shards = shards;
}

int rp_node_record_format(const struct rp_node_record *r, char *out, size_t size)
{
	char number[32];
	int n = snprintf(out, size, "1;boot=%" PRIu64, r->boot);

	append_endpoint(out, size, &n, "tcp", &r->tcp);
	append_endpoint(out, size, &n, "ktcp", &r->ktcp);
	snprintf(number, sizeof(number), "%u", r->per_peer);
	append_text(out, size, &n, "k", number);
	snprintf(number, sizeof(number), "%u", r->shards);
	append_text(out, size, &n, "shards", number);
	append_rss(out, size, &n, r);
	snprintf(number, sizeof(number), "%u", r->rings);
	append_text(out, size, &n, "rings", r->rings ? number : "");
	append_text(out, size, &n, "name", r->name);
	append_text(out, size, &n, "zone", r->zone);
	append_text(out, size, &n, "url", r->client_url);
	append_text(out, size, &n, "draining", r->draining ? "1" : "");
	append_text(out, size, &n, "version", RP_VERSION);
	return n < (int)size ? n : -ENOSPC;
}

static void take_field(struct rp_node_record *r, const char *field, const char *value)
{
	if (!strcmp(field, "boot"))
		r->boot = strtoull(value, NULL, 10);
	else if (!strcmp(field, "tcp"))
		rp_endpoint_parse(&r->tcp, value);
	else if (!strcmp(field, "ktcp"))
		rp_endpoint_parse(&r->ktcp, value);
	else if (!strcmp(field, "k"))
		r->per_peer = (uint32_t)strtoul(value, NULL, 10);
	else if (!strcmp(field, "shards"))
		r->shards = (uint32_t)strtoul(value, NULL, 10);
	else if (!strcmp(field, "rss"))
		take_rss(r, value);
	else if (!strcmp(field, "rings"))
		r->rings = (uint32_t)strtoul(value, NULL, 10);
	else if (!strcmp(field, "name"))
		snprintf(r->name, sizeof(r->name), "%s", value);
	else if (!strcmp(field, "zone"))
		snprintf(r->zone, sizeof(r->zone), "%s", value);
	else if (!strcmp(field, "url"))
		snprintf(r->client_url, sizeof(r->client_url), "%s", value);
	else if (!strcmp(field, "draining"))
		r->draining = value[0] == '1';
	else if (!strcmp(field, "version"))
		snprintf(r->version, sizeof(r->version), "%s", value);
}

int rp_node_record_parse(struct rp_node_record *r, const void *text, size_t length)
{
	char copy[RP_NODE_RECORD_BYTES_MAX + 1], *save = NULL, *part;
	uint64_t node = r->node;

	*r = (struct rp_node_record){.node = node};
	if (length > RP_NODE_RECORD_BYTES_MAX)
		return -EINVAL;
	memcpy(copy, text, length);
	copy[length] = '\0';
	part = strtok_r(copy, ";", &save);
	if (!part || strcmp(part, "1") != 0)
		return -EINVAL;
	while ((part = strtok_r(NULL, ";", &save))) {
		char *eq = strchr(part, '=');

		if (!eq)
			continue;
		*eq = '\0';
		take_field(r, part, eq + 1);
	}
	return r->boot ? 0 : -EINVAL;
}
