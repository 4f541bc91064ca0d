/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* One connection to a node, and a call after another on it. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <protobuf-c/protobuf-c.h>

struct client;

struct answer {
	bool done, failed;
	uint8_t *data; /**< to be freed, also after a failure */
	size_t length;
	char text[512]; /**< of a failure */
};

/** 0 and the answer; else the failure is printed, and 1 comes back. */
int call(struct client *c, const char *path, const ProtobufCMessage *request, struct answer *a);

/** `config` and `reload`, exit statuses. */
int config(struct client *c);
int reload(struct client *c);

/** `restore FILE`, an exit status. */
int restore(struct client *c, const char *path);
