/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

#include "addr_priv.h"

int grpc_target_parse(struct grpc_target *t, const char *address)
{
	const char *host = address, *colon, *end;
	size_t length;

	memset(t, 0, sizeof(*t));
	if (strncmp(address, "unix:", 5) == 0) {
		t->is_unix = true;
		length = strlen(address + 5);
		if (length < 2 || length >= sizeof(((struct sockaddr_un *)0)->sun_path))
			return -EINVAL;
		memcpy(t->host, address + 5, length);
		return 0;
	}
	if (*host == '[') {
		end = strchr(++host, ']');
		colon = end ? end + 1 : NULL;
	} else {
		end = colon = strrchr(host, ':');
		/* More than one colon without brackets is not to be cut at a guess. */
		if (end && memchr(host, ':', (size_t)(end - host)))
			return -EINVAL;
	}
	if (!colon || *colon != ':' || (size_t)(end - host) >= sizeof(t->host))
		return -EINVAL;
	memcpy(t->host, host, (size_t)(end - host));
	length = strspn(++colon, "0123456789");
	if (length == 0 || length > 5 || colon[length] != 0 || atoi(colon) > 65535)
		return -EINVAL;
	memcpy(t->port, colon, length);
	return 0;
}

static void addr_set_port(struct grpc_addr *a, const char *port)
{
	in_port_t n = htons((uint16_t)atoi(port));

	if (a->sa.ss_family == AF_INET)
		((struct sockaddr_in *)&a->sa)->sin_port = n;
	else
		((struct sockaddr_in6 *)&a->sa)->sin6_port = n;
}

static int addr_of_text(struct grpc_addr *a, const char *host, const char *port)
{
	struct sockaddr_in *v4 = (struct sockaddr_in *)&a->sa;
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&a->sa;

	memset(a, 0, sizeof(*a));
	if (inet_pton(AF_INET, host, &v4->sin_addr) == 1) {
		a->sa.ss_family = AF_INET;
		a->length = sizeof(*v4);
	} else if (inet_pton(AF_INET6, host, &v6->sin6_addr) == 1) {
		a->sa.ss_family = AF_INET6;
		a->length = sizeof(*v6);
	} else {
		return -ENOENT;
	}
	addr_set_port(a, port);
	return 0;
}

static int addr_of_unix(struct grpc_addr *a, const char *path)
{
	struct sockaddr_un *un = (struct sockaddr_un *)&a->sa;
	size_t length = strlen(path);

	memset(a, 0, sizeof(*a));
	un->sun_family = AF_UNIX;
	memcpy(un->sun_path, path, length);
	a->length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length);
	if (path[0] == '@')
		un->sun_path[0] = 0;
	else
		a->length++;
	return 1;
}

int grpc_target_addresses(const struct grpc_target *t, struct grpc_addr out[GRPC_ADDR_MAX])
{
	if (t->is_unix)
		return addr_of_unix(&out[0], t->host);
	if (strcmp(t->host, "localhost") == 0) {
		(void)addr_of_text(&out[0], "127.0.0.1", t->port);
		(void)addr_of_text(&out[1], "::1", t->port);
		return 2;
	}
	/* One socket that takes both families, where the host has both. */
	if (addr_of_text(&out[0], t->host[0] ? t->host : "::", t->port) < 0)
		return -ENOENT;
	return 1;
}

int grpc_target_resolve(const struct grpc_target *t, struct grpc_addr out[GRPC_ADDR_MAX])
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list, *ai;
	int n = 0;

	if (getaddrinfo(t->host, t->port, &hints, &list) != 0)
		return -ENOENT;
	for (ai = list; ai && n < GRPC_ADDR_MAX; ai = ai->ai_next) {
		if (ai->ai_family != AF_INET && ai->ai_family != AF_INET6)
			continue;
		memset(&out[n], 0, sizeof(out[n]));
		memcpy(&out[n].sa, ai->ai_addr, ai->ai_addrlen);
		out[n++].length = ai->ai_addrlen;
	}
	freeaddrinfo(list);
	return n > 0 ? n : -ENOENT;
}

void grpc_addr_format(const struct grpc_addr *a, char out[GRPC_PEER_BYTES])
{
	const struct sockaddr_in *v4 = (const struct sockaddr_in *)&a->sa;
	const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)&a->sa;
	char text[INET6_ADDRSTRLEN] = "";

	switch (a->sa.ss_family) {
	case AF_INET:
		inet_ntop(AF_INET, &v4->sin_addr, text, sizeof(text));
		snprintf(out, GRPC_PEER_BYTES, "%s:%u", text, ntohs(v4->sin_port));
		break;
	case AF_INET6:
		if (IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr)) {
			inet_ntop(AF_INET, &v6->sin6_addr.s6_addr[12], text, sizeof(text));
			snprintf(out, GRPC_PEER_BYTES, "%s:%u", text, ntohs(v6->sin6_port));
		} else {
			inet_ntop(AF_INET6, &v6->sin6_addr, text, sizeof(text));
			snprintf(out, GRPC_PEER_BYTES, "[%s]:%u", text, ntohs(v6->sin6_port));
		}
		break;
	default:
		snprintf(out, GRPC_PEER_BYTES, "unix");
	}
}

bool grpc_addr_is_local(const struct grpc_addr *a)
{
	const struct sockaddr_in *v4 = (const struct sockaddr_in *)&a->sa;
	const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)&a->sa;

	switch (a->sa.ss_family) {
	case AF_INET:
		return ntohl(v4->sin_addr.s_addr) >> 24 == 127;
	case AF_INET6:
		if (IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr))
			return v6->sin6_addr.s6_addr[12] == 127;
		return IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
	default:
		return true;
	}
}
