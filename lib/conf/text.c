/* SPDX-License-Identifier: Apache-2.0 */
#include "conf_priv.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <string.h>
#include <strings.h>

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

int rp_conf_uuid_parse(const char *text, uint8_t uuid[RP_UUID_BYTES])
{
	uint8_t bytes[RP_UUID_BYTES];
	bool hyphens = strlen(text) == 36;

	if (!hyphens && strlen(text) != 32)
		return -EINVAL;
	for (unsigned i = 0; i < RP_UUID_BYTES; i++) {
		int high, low;

		if (hyphens && (i == 4 || i == 6 || i == 8 || i == 10)) {
			if (*text++ != '-')
				return -EINVAL;
		}
		high = hex_digit(*text++);
		low = high < 0 ? -1 : hex_digit(*text++);
		if (low < 0)
			return -EINVAL;
		bytes[i] = (uint8_t)(high << 4 | low);
	}
	memcpy(uuid, bytes, sizeof(bytes));
	return 0;
}

uint64_t rp_conf_uuid_id(const uint8_t uuid[RP_UUID_BYTES])
{
	uint64_t high = 0, low = 0;

	for (unsigned i = 0; i < 8; i++) {
		high = high << 8 | uuid[i];
		low = low << 8 | uuid[i + 8];
	}
	return high ^ low;
}

bool rp_conf_uuid_or_random(
	const char *text, const uint8_t random[RP_UUID_BYTES], uint8_t uuid[RP_UUID_BYTES])
{
	if (text[0] && rp_conf_uuid_parse(text, uuid) == 0)
		return false;
	memcpy(uuid, random, RP_UUID_BYTES);
	uuid[6] = (uint8_t)(0x40 | (uuid[6] & 0x0f));
	uuid[8] = (uint8_t)(0x80 | (uuid[8] & 0x3f));
	return true;
}

void rp_conf_uuid_format(const uint8_t uuid[RP_UUID_BYTES], char text[37])
{
	static const char digits[] = "0123456789abcdef";

	for (unsigned i = 0; i < RP_UUID_BYTES; i++) {
		if (i == 4 || i == 6 || i == 8 || i == 10)
			*text++ = '-';
		*text++ = digits[uuid[i] >> 4];
		*text++ = digits[uuid[i] & 15];
	}
	*text = '\0';
}

bool conf_u64_parse(const char *text, uint64_t *value)
{
	uint64_t v = 0;

	if (!*text)
		return false;
	for (; *text; text++) {
		if (!isdigit((unsigned char)*text))
			return false;
		if (__builtin_mul_overflow(v, 10, &v) ||
			__builtin_add_overflow(v, (uint64_t)(*text - '0'), &v))
			return false;
	}
	*value = v;
	return true;
}

static bool host_ok(const char *host)
{
	if (!*host)
		return false;
	for (const char *c = host; *c; c++) {
		if (!isalnum((unsigned char)*c) && !strchr(".-_", *c))
			return false;
	}
	return true;
}

static bool port_parse(const char *text, uint16_t *port)
{
	uint64_t v;

	if (!conf_u64_parse(text, &v) || v == 0 || v > UINT16_MAX)
		return false;
	*port = (uint16_t)v;
	return true;
}

/* `text` is host[:port] or [v6][:port], cut at the right places; it is written to. */
static int host_port_parse(char *text, struct rp_conf_endpoint *e)
{
	struct in6_addr v6;
	char *host = text, *port = NULL, *end;

	if (*text == '[') {
		host = text + 1;
		end = strchr(host, ']');
		if (!end)
			return -EINVAL;
		*end = '\0';
		if (end[1] == ':')
			port = end + 2;
		else if (end[1])
			return -EINVAL;
		if (inet_pton(AF_INET6, host, &v6) != 1)
			return -EINVAL;
	} else {
		end = strchr(text, ':');
		if (end) {
			*end = '\0';
			port = end + 1;
		}
		if (!host_ok(host))
			return -EINVAL;
	}
	if (port && !port_parse(port, &e->port))
		return -EINVAL;
	if (strlen(host) >= sizeof(e->host))
		return -EINVAL;
	memcpy(e->host, host, strlen(host) + 1);
	return 0;
}

int rp_conf_endpoint_parse(const char *text, uint16_t port_default, struct rp_conf_endpoint *e)
{
	char copy[sizeof(e->host) + 16];
	size_t length;

	memset(e, 0, sizeof(*e));
	e->port = port_default;
	if (strncasecmp(text, "unix://", 7) == 0) {
		if (!text[7] || strlen(text + 7) >= sizeof(e->host))
			return -EINVAL;
		snprintf(e->host, sizeof(e->host), "%s", text + 7);
		e->is_unix = true;
		e->port = 0;
		return 0;
	}
	if (strncasecmp(text, "http://", 7) == 0) {
		text += 7;
	} else if (strncasecmp(text, "https://", 8) == 0) {
		text += 8;
		e->tls = true;
	}
	length = strlen(text);
	if (length > 0 && text[length - 1] == '/')
		length--;
	if (length == 0 || length >= sizeof(copy))
		return -EINVAL;
	memcpy(copy, text, length);
	copy[length] = '\0';
	return host_port_parse(copy, e);
}

int rp_conf_endpoint_format(const struct rp_conf_endpoint *e, char *text, size_t size)
{
	if (e->is_unix)
		return snprintf(text, size, "unix://%s", e->host);
	return snprintf(text, size, strchr(e->host, ':') ? "[%s]:%u" : "%s:%u", e->host, e->port);
}

static bool is_loopback(const char *host)
{
	return strcasecmp(host, "localhost") == 0 || strcmp(host, "127.0.0.1") == 0 ||
	       strcmp(host, "::1") == 0;
}

static bool is_wildcard(const char *host)
{
	return strcmp(host, "0.0.0.0") == 0 || strcmp(host, "::") == 0;
}

bool rp_conf_endpoint_equal(const struct rp_conf_endpoint *a, const struct rp_conf_endpoint *b)
{
	if (a->is_unix != b->is_unix || a->port != b->port)
		return false;
	if (a->is_unix)
		return strcmp(a->host, b->host) == 0;
	return strcasecmp(a->host, b->host) == 0 || (is_loopback(a->host) && is_loopback(b->host));
}

/* Does this node listen there? Other names of its own show when the answer carries its own id. */
static bool is_self(const struct rp_conf *conf, const struct rp_conf_endpoint *peer)
{
	for (unsigned i = 0; i < conf->listen_client_urls.count; i++) {
		struct rp_conf_endpoint own;

		if (rp_conf_endpoint_parse(conf->listen_client_urls.items[i], 2379, &own) < 0)
			continue;
		if (rp_conf_endpoint_equal(&own, peer))
			return true;
		if (is_wildcard(own.host) && is_loopback(peer->host) && own.port == peer->port)
			return true;
	}
	return false;
}

unsigned rp_conf_peers(const struct rp_conf *conf, struct rp_conf_endpoint *peers, unsigned max)
{
	unsigned count = 0;

	for (unsigned i = 0; i < conf->initial_advertise_peer_urls.count && count < max; i++) {
		struct rp_conf_endpoint *p = &peers[count];
		bool known = false;

		if (rp_conf_endpoint_parse(conf->initial_advertise_peer_urls.items[i], 2379, p) < 0)
			continue;
		for (unsigned j = 0; j < count && !known; j++)
			known = rp_conf_endpoint_equal(&peers[j], p);
		if (!known && !is_self(conf, p))
			count++;
	}
	return count;
}

/* "7" or "2-5"; moves `text` behind it. */
static bool cpu_range_parse(const char **text, unsigned *first, unsigned *last)
{
	unsigned *out[2] = {first, last};

	for (unsigned i = 0; i < 2; i++) {
		unsigned v = 0;

		if (!isdigit((unsigned char)**text))
			return false;
		for (; isdigit((unsigned char)**text); (*text)++) {
			v = v * 10 + (unsigned)(**text - '0');
			if (v > 1023)
				return false;
		}
		*out[i] = v;
		if (i == 1)
			break;
		*last = v;
		if (**text != '-')
			break;
		(*text)++;
	}
	return *first <= *last;
}

int rp_conf_cpus_parse(const char *text, unsigned *cpus, unsigned max)
{
	unsigned count = 0;

	for (;;) {
		unsigned first, last;

		while (*text == ' ')
			text++;
		if (!cpu_range_parse(&text, &first, &last))
			return -EINVAL;
		for (unsigned cpu = first; cpu <= last; cpu++) {
			if (count == max)
				return -EINVAL;
			cpus[count++] = cpu;
		}
		while (*text == ' ')
			text++;
		if (*text == '\0')
			return (int)count;
		if (*text++ != ',')
			return -EINVAL;
	}
}

static int ip_net_parse(
	int family, const char *text, uint8_t *address, size_t address_size, uint8_t *prefix_bits)
{
	const char *slash = strchr(text, '/');
	uint8_t bytes[16];
	char host[64];
	uint64_t bits;

	if (!slash || (size_t)(slash - text) >= sizeof(host))
		return -EINVAL;
	memcpy(host, text, (size_t)(slash - text));
	host[slash - text] = '\0';
	if (inet_pton(family, host, bytes) != 1)
		return -EINVAL;
	if (!conf_u64_parse(slash + 1, &bits) || bits == 0 || bits > address_size * 8)
		return -EINVAL;
	memcpy(address, bytes, address_size);
	*prefix_bits = (uint8_t)bits;
	return 0;
}

int rp_conf_ip4net_parse(const char *text, uint8_t address[4], uint8_t *prefix_bits)
{
	return ip_net_parse(AF_INET, text, address, 4, prefix_bits);
}

int rp_conf_ip6net_parse(const char *text, uint8_t address[16], uint8_t *prefix_bits)
{
	return ip_net_parse(AF_INET6, text, address, 16, prefix_bits);
}

int rp_conf_ip_parse(const char *text, uint8_t address[16], bool *six)
{
	*six = strchr(text, ':') != NULL;
	return inet_pton(*six ? AF_INET6 : AF_INET, text, address) == 1 ? 0 : -EINVAL;
}

int rp_conf_ipnet_parse(const char *text, uint8_t address[16], bool *six, uint8_t *prefix_bits)
{
	*six = strchr(text, ':') != NULL;
	return *six ? rp_conf_ip6net_parse(text, address, prefix_bits)
		    : rp_conf_ip4net_parse(text, address, prefix_bits);
}

int rp_conf_neighbour_parse(const char *text, uint8_t address[16], bool *six, uint8_t mac[6])
{
	const char *equal = strchr(text, '=');
	char host[64];
	unsigned b[6];
	int used = 0;

	if (!equal || (size_t)(equal - text) >= sizeof(host))
		return -EINVAL;
	memcpy(host, text, (size_t)(equal - text));
	host[equal - text] = '\0';
	if (strlen(equal + 1) != 17 ||
		sscanf(equal + 1, "%2x:%2x:%2x:%2x:%2x:%2x%n", &b[0], &b[1], &b[2], &b[3], &b[4],
			&b[5], &used) != 6 ||
		used != 17)
		return -EINVAL;
	for (unsigned i = 0; i < 6; i++)
		mac[i] = (uint8_t)b[i];
	return rp_conf_ip_parse(host, address, six);
}

int rp_conf_level_parse(const char *text, enum rp_log_subject *subject, enum rp_log_level *level)
{
	const char *equal = strchr(text, '=');

	if (!equal)
		return -EINVAL;
	for (unsigned s = 0; s < RP_LOG_SUBJECT_COUNT; s++) {
		const char *name = rp_log_subject_name((enum rp_log_subject)s);

		if (strlen(name) != (size_t)(equal - text) || memcmp(name, text, strlen(name)) != 0)
			continue;
		for (unsigned l = RP_LOG_ERROR; l <= RP_LOG_TRACE; l++) {
			if (strcmp(rp_log_level_name((enum rp_log_level)l), equal + 1) == 0) {
				*subject = (enum rp_log_subject)s;
				*level = (enum rp_log_level)l;
				return 0;
			}
		}
	}
	return -EINVAL;
}
