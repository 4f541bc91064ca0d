/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A redis-server of the test's own: its folder, its socket, stopped by its pid. */

#include <stdbool.h>
#include <sys/types.h>

struct redis_server {
	char dir[64], socket[96], url[128];
	pid_t pid; /* 0: not running */
};

/* False: redis-server is not installed. */
bool redis_server_installed(void);
void redis_server_create(struct redis_server *s);
/* Up and answering; `extra`: further arguments, NULL at their end. */
void redis_server_start(struct redis_server *s, const char *const *extra);
void redis_server_signal(struct redis_server *s, int signal);
/* Waits for its end. */
void redis_server_kill(struct redis_server *s);
/* Kills it and removes the folder. */
void redis_server_destroy(struct redis_server *s);
/* One command by redis-cli; what it printed, of which the first 4095 bytes, borrowed. */
const char *redis_server_ask(struct redis_server *s, const char *arguments);
