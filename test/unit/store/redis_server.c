/* SPDX-License-Identifier: Apache-2.0 */
#include "redis_server.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <base/assert.h>

#define PROGRAM "/usr/bin/redis-server"

bool redis_server_installed(void)
{
	return access(PROGRAM, X_OK) == 0;
}

void redis_server_create(struct redis_server *s)
{
	*s = (struct redis_server){0};
	strcpy(s->dir, "/tmp/rp-redis-XXXXXX");
	RP_ASSERT(mkdtemp(s->dir) != NULL);
	snprintf(s->socket, sizeof(s->socket), "%s/redis.sock", s->dir);
	snprintf(s->url, sizeof(s->url), "unix://%s", s->socket);
}

static bool answers(struct redis_server *s)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	char reply[64] = "";
	bool ok;

	strcpy(a.sun_path, s->socket);
	ok = connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0 && write(fd, "PING\r\n", 6) == 6 &&
	     read(fd, reply, sizeof(reply) - 1) > 0 &&
	     (reply[0] == '+' || strncmp(reply, "-NOAUTH", 7) == 0);
	close(fd);
	return ok;
}

void redis_server_start(struct redis_server *s, const char *const *extra)
{
	const char *argv[32] = {PROGRAM, "--port", "0", "--unixsocket", s->socket, "--dir", s->dir,
		"--save", "", "--appendonly", "yes", "--appendfsync", "no", "--daemonize", "no",
		"--logfile", "redis.log"};
	int n = 17;

	for (; extra && *extra; extra++)
		argv[n++] = *extra;
	s->pid = fork();
	RP_ASSERT(s->pid >= 0);
	if (s->pid == 0) {
		/* It ends with the test, however that ends, and says nothing on its output. */
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(open("/dev/null", O_RDWR | O_CLOEXEC), STDOUT_FILENO);
		execv(PROGRAM, (char *const *)argv);
		_exit(127);
	}
	for (int i = 0; i < 1000 && !answers(s); i++) {
		RP_ASSERT(waitpid(s->pid, NULL, WNOHANG) == 0);
		usleep(10000);
	}
	RP_ASSERT(answers(s));
}

void redis_server_signal(struct redis_server *s, int signo)
{
	RP_ASSERT(kill(s->pid, signo) == 0);
}

void redis_server_kill(struct redis_server *s)
{
	if (s->pid == 0)
		return;
	kill(s->pid, SIGKILL);
	RP_ASSERT(waitpid(s->pid, NULL, 0) == s->pid);
	s->pid = 0;
	unlink(s->socket);
}

void redis_server_destroy(struct redis_server *s)
{
	char command[128];

	redis_server_kill(s);
	snprintf(command, sizeof(command), "rm -rf '%s'", s->dir);
	RP_ASSERT(strncmp(s->dir, "/tmp/rp-redis-", 14) == 0 && system(command) == 0);
}

const char *redis_server_ask(struct redis_server *s, const char *arguments)
{
	static char out[4096];
	char command[1024];
	size_t n;
	FILE *f;

	snprintf(command, sizeof(command), "redis-cli -s %s %s 2>&1", s->socket, arguments);
	f = popen(command, "r");
	RP_ASSERT(f != NULL);
	n = fread(out, 1, sizeof(out) - 1, f);
	out[n] = '\0';
	while (n > 0 && out[n - 1] == '\n')
		out[--n] = '\0';
	pclose(f);
	return out;
}
