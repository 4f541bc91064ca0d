/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* One connection to a node, and a call after another on it. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <protobuf-c/protobuf-c.h>

#include <grpc/client.h>
#include <grpc/loop.h>

struct client {
	struct rp_loop *loop;
	struct rp_grpc_channel *channel;
	bool ready, lost;
	char reason[256];
};

struct answer {
	bool done, failed;
	uint8_t *data; /**< to be freed, also after a failure */
	size_t length;
	char text[512]; /**< of a failure */
};

/** Waits for the connection. 0; else the failure is printed, and 1 comes back. */
int client_connect(struct client *c);
/** 0 and the answer; else the failure is printed, and 1 comes back. */
int call(struct client *c, const char *path, const ProtobufCMessage *request, struct answer *a);

/** `config` and `reload`, exit statuses. */
int config(struct client *c);
int reload(struct client *c);

/** `show` with what follows it; an exit status, 2: usage is to be printed. */
int show(struct client *c, int argc, char **argv);
/** `capture` with what follows it; an exit status, 2: usage is to be printed. */
int capture(struct client *c, int argc, char **argv);
/** `restore FILE`, an exit status. */
int restore(struct client *c, const char *path);
