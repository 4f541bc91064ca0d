/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A client and a server in one process and one loop, what each of them saw, and methods whose calls
 * the tests drive by hand.
 */

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include <grpc/client.h>
#include <grpc/server.h>

extern struct rp_loop *loop;
extern struct rp_grpc_server *server;
extern struct rp_grpc_channel *channel;
extern struct rp_grpc_server_config server_config;
extern struct rp_grpc_channel_config channel_config;

/* What the server's side saw. */
struct seen {
	struct rp_grpc_call *call; /* the last that the manual methods got */
	unsigned starts, messages, half_closes, cancels, rooms, conns_closed;
	enum rp_grpc_cancel why;
	size_t bytes;
	uint64_t written;
	char text[256];
};
extern struct seen seen;

/* What the client's side saw. */
struct got {
	enum rp_grpc_channel_state state;
	unsigned states;
	char reason[200];
	unsigned finished, messages, rooms;
	enum rp_grpc_code code;
	char message[256];
	uint8_t *data;
	size_t length, bytes;
};
extern struct got got;

/* cmocka's, around each test. */
int setup(void **state);
int teardown(void **state);
/* A server alone; a server and a channel that is READY, over a socket pair. */
void start_server(void);
void start(void);

void turn_until(bool (*cond)(void));
void turns(int n);
bool is_ready(void);
bool is_lost(void);
bool is_finished(void);
bool is_started(void);
bool is_cancelled(void);
bool is_half_closed(void);

/* /t.S/Echo and /t.S/Fail answer; /t.S/Unary, /t.S/Bidi and /t.S/Small (1000 bytes a message) are
 * the test's to answer through seen.call. */
extern const struct rp_grpc_client_ops client_ops;
void on_state(
	struct rp_grpc_channel *c, enum rp_grpc_channel_state state, const char *reason, void *ctx);
void on_done(
	void *ctx, enum rp_grpc_code code, const char *message, const uint8_t *data, size_t length);
void on_finish(
	struct rp_grpc_client_call *call, enum rp_grpc_code code, const char *message, void *ctx);
void manual_start(struct rp_grpc_call *call, void *ctx);
void manual_half_close(struct rp_grpc_call *call, void *ctx);

/* One unary call to its end; what it must have ended with; a started call. */
void unary(const char *path, const void *data, size_t length);
void expect(enum rp_grpc_code code, const char *message);
struct rp_grpc_client_call *bidi(const char *path);
