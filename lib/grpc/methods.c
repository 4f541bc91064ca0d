/* SPDX-License-Identifier: Apache-2.0 */

/* The server's methods, and what became of their calls. */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <base/fnv.h>

#include "server_priv.h"

/* Methods: a table by hash of the path, at most half full. */

static size_t methods_hash(const char *path)
{
	uint64_t h = rp_fnv1a(RP_FNV1A_BASIS, path, strlen(path));

	return (size_t)(h ^ h >> 32);
}

static void methods_put(struct grpc_method_entry **table, size_t size, struct grpc_method_entry *m)
{
	size_t i = methods_hash(m->method->path) & (size - 1);

	while (table[i])
		i = (i + 1) & (size - 1);
	table[i] = m;
}

struct grpc_method_entry *grpc_server_method(const struct rp_grpc_server *server, const char *path)
{
	size_t i, mask = server->method_size - 1;

	if (server->method_size == 0)
		return NULL;
	for (i = methods_hash(path) & mask; server->methods[i]; i = (i + 1) & mask) {
		if (strcmp(server->methods[i]->method->path, path) == 0)
			return server->methods[i];
	}
	return NULL;
}

bool grpc_server_has_service(
	const struct rp_grpc_server *server, const char *path, size_t service_length)
{
	for (size_t i = 0; i < server->method_size; i++) {
		const struct grpc_method_entry *m = server->methods[i];

		if (m && strncmp(m->method->path, path, service_length) == 0 &&
			m->method->path[service_length] == '/')
			return true;
	}
	return false;
}

static int methods_grow(struct rp_grpc_server *server)
{
	size_t size = RP_MAX(server->method_size * 2, 64u);
	struct grpc_method_entry **table = calloc(size, sizeof(*table));

	if (!table)
		return -ENOMEM;
	for (size_t i = 0; i < server->method_size; i++) {
		if (server->methods[i])
			methods_put(table, size, server->methods[i]);
	}
	free(server->methods);
	server->methods = table;
	server->method_size = size;
	return 0;
}

int rp_grpc_server_add_methods(
	struct rp_grpc_server *server, const struct rp_grpc_method *methods, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		const struct rp_grpc_method *m = &methods[i];
		const char *slash = strrchr(m->path, '/');
		struct grpc_method_entry *entry;

		if (m->path[0] != '/' || slash == m->path || slash[1] == 0 || !m->ops)
			return -EINVAL;
		if (grpc_server_method(server, m->path))
			return -EEXIST;
		if ((server->method_count + 1) * 2 > server->method_size &&
			methods_grow(server) < 0)
			return -ENOMEM;
		entry = calloc(1, sizeof(*entry));
		if (!entry)
			return -ENOMEM;
		entry->method = m;
		methods_put(server->methods, server->method_size, entry);
		server->method_count++;
	}
	return 0;
}

void grpc_server_methods_free(struct rp_grpc_server *server)
{
	for (size_t i = 0; i < server->method_size; i++)
		free(server->methods[i]);
	free(server->methods);
}

void rp_grpc_server_each_method(const struct rp_grpc_server *server,
	void (*fn)(void *ctx, const struct rp_grpc_method *method,
		const struct rp_grpc_method_stats *stats),
	void *ctx)
{
	for (size_t i = 0; i < server->method_size; i++)
		if (server->methods[i])
			fn(ctx, server->methods[i]->method, &server->methods[i]->stats);
}
