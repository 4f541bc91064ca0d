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
	const char *endpoint;
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

/** Options and arguments that most commands have. */
struct options {
	bool json, details, exact, reset, sum;
	uint32_t count;	       /**< 0: none was given */
	double delay, seconds; /**< below 0: none was given */
	char *endpoint;
	int argc; /**< what is left: arguments */
	char **argv;
};

/**
 * 0; or 2, having said why: an option that is none of `known` ("jlx", letters of options.c), fewer
 * than `least` arguments or more than `most`.
 */
int options_take(struct options *o, const char *known, int least, int most, int argc, char **argv);
/** Says on standard error what is wrong with a call of this program; 2. */
__attribute__((format(printf, 1, 2))) int bad_usage(const char *format, ...);
/** Letters to be changed, added or left out. */
unsigned text_distance(const char *a, const char *b);

/**
 * One call whose answer is all there is. The message, which the caller frees with
 * protobuf_c_message_free_unpacked(); NULL: the failure is printed.
 */
void *ask(struct client *c, const char *path, const ProtobufCMessage *request,
	const ProtobufCMessageDescriptor *answer);

/** Returns when the time is over, or when `*woken` (may be NULL) is true. */
void pause_for(struct client *c, uint64_t ns, const bool *woken);

/** The commands: what follows the words of each; an exit status, 2: usage is to be printed. */
#define RP_COMMAND(words, arguments, function, help) \
	int function(struct client *c, int argc, char **argv);
#define RP_OPTION(short_name, long_name, value, help)
#include "commands.def"
