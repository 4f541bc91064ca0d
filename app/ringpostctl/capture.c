/* SPDX-License-Identifier: Apache-2.0 */

/* ringpostctl capture: the node sends a pcapng file, piece by piece; here it becomes one. */

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <ringpost/v1/admin.pb-c.h>

#include <base/units.h>

#include "client.h"

#define PORTS_MAX 16

struct capture {
	Ringpost__V1__CaptureRequest request;
	uint32_t ports[PORTS_MAX];
	const char *path; /* "-": standard output */
	int fd;
	bool ended, failed;
	uint64_t packets, dropped;
	struct rp_loop_signals signals;
};

/* ---- options ---- */

static int complain(const char *option, const char *value)
{
	fprintf(stderr, "ringpostctl: %s: \"%s\" is no number that fits\n", option, value);
	return -1;
}

static int number(const char *option, const char *value, uint64_t max, uint64_t *out)
{
	char *end;

	errno = 0;
	*out = strtoull(value, &end, 10);
	if (value[0] < '0' || value[0] > '9' || *end != '\0' || errno || *out > max)
		return complain(option, value);
	return 0;
}

static int seconds(const char *option, const char *value, uint64_t *out_ns)
{
	char *end;
	double s = strtod(value, &end);

	if (end == value || *end != '\0' || !(s > 0 && s < 1e9))
		return complain(option, value);
	*out_ns = (uint64_t)(s * 1e9);
	return 0;
}

static int option(struct capture *x, const char *name, char *value)
{
	uint64_t n = 0;
	int rc = 0;

	if (!strcmp(name, "-w")) {
		x->path = value;
	} else if (!strcmp(name, "--peer")) {
		x->request.peer = value;
	} else if (!strcmp(name, "--seconds")) {
		rc = seconds(name, value, &x->request.duration_ns);
	} else if (!strcmp(name, "--packets")) {
		rc = number(name, value, UINT64_MAX, &x->request.packets_max);
	} else if (!strcmp(name, "--snaplen")) {
		rc = number(name, value, UINT32_MAX, &n);
		x->request.snaplen_bytes = (uint32_t)n;
	} else if (!strcmp(name, "--port") && x->request.n_ports < PORTS_MAX) {
		rc = number(name, value, UINT32_MAX, &n);
		x->ports[x->request.n_ports++] = (uint32_t)n;
	} else {
		rc = -1;
	}
	return rc;
}

/* "--name value" or "--name=value". */
static int options_read(struct capture *x, int argc, char **argv)
{
	for (int i = 0; i < argc; i++) {
		char *equals = strncmp(argv[i], "--", 2) == 0 ? strchr(argv[i], '=') : NULL;
		char *value = equals ? equals + 1 : i + 1 < argc ? argv[i + 1] : NULL;

		if (!value)
			return -1;
		if (equals)
			*equals = '\0';
		if (option(x, argv[i], value) != 0)
			return -1;
		i += !equals;
	}
	if (!x->path && isatty(STDOUT_FILENO)) {
		fprintf(stderr, "ringpostctl: a capture is not for a terminal: -w FILE\n");
		return -1;
	}
	return 0;
}

/* ---- the call ---- */

static bool write_all(int fd, const uint8_t *data, size_t length)
{
	while (length > 0) {
		ssize_t n = write(fd, data, length);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return false;
		data += n;
		length -= (size_t)n;
	}
	return true;
}

static void on_message(
	struct rp_grpc_client_call *rpc, const uint8_t *data, size_t length, void *ctx)
{
	struct capture *x = ctx;
	Ringpost__V1__CaptureReply *r = ringpost__v1__capture_reply__unpack(NULL, length, data);

	if (!r || x->ended)
		goto out;
	x->packets = r->packets;
	x->dropped = r->dropped;
	if (!write_all(x->fd, r->data.data, r->data.len)) {
		/* Who reads a pipe may go when he has seen enough. */
		x->failed = errno != EPIPE;
		if (x->failed)
			fprintf(stderr, "ringpostctl: %s: %s\n", x->path, strerror(errno));
		x->ended = true;
	}
out:
	if (r)
		ringpost__v1__capture_reply__free_unpacked(r, NULL);
}

static void on_finish(
	struct rp_grpc_client_call *rpc, enum rp_grpc_code code, const char *message, void *ctx)
{
	struct capture *x = ctx;

	/* Ended here before: this is our own hanging up. */
	if (x->ended)
		return;
	x->ended = true;
	x->failed = code != RP_GRPC_OK;
	if (x->failed)
		fprintf(stderr, "ringpostctl: %s: %s\n", rp_grpc_code_name(code), message);
}

static void on_signal(void *ctx, int signo)
{
	struct capture *x = ctx;

	x->ended = true;
}

static const struct rp_grpc_client_ops capture_ops = {
	.on_message = on_message, .on_finish = on_finish};

static int capture_run(struct client *c, struct capture *x)
{
	size_t length = ringpost__v1__capture_request__get_packed_size(&x->request);
	uint8_t *data = malloc(length + 1);
	struct rp_grpc_client_call *rpc;
	int rc = 0;

	if (!data)
		abort();
	ringpost__v1__capture_request__pack(&x->request, data);
	rpc = rp_grpc_channel_call(
		c->channel, "/ringpost.v1.Admin/Capture", NULL, 0, RP_NEVER, &capture_ops, x);
	if (rpc) {
		rp_grpc_client_call_send(rpc, data, length);
		rp_grpc_client_call_half_close(rpc);
	}
	free(data);
	while (rpc && !x->ended && rc >= 0)
		rc = rp_loop_run_once(c->loop, RP_NEVER);
	if (x->packets > 0 || !x->failed)
		fprintf(stderr, "%" PRIu64 " packets captured, %" PRIu64 " found no room\n",
			x->packets, x->dropped);
	return !rpc || x->failed || rc < 0 ? 1 : 0;
}

static int output_open(struct capture *x)
{
	if (!x->path || !strcmp(x->path, "-")) {
		x->path = "standard output";
		x->fd = STDOUT_FILENO;
		return 0;
	}
	x->fd = open(x->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (x->fd >= 0)
		return 0;
	fprintf(stderr, "ringpostctl: %s: %s\n", x->path, strerror(errno));
	return 1;
}

int capture(struct client *c, int argc, char **argv)
{
	struct capture x = {.request = RINGPOST__V1__CAPTURE_REQUEST__INIT};
	sigset_t set;
	int rc;

	x.request.ports = x.ports;
	if (options_read(&x, argc, argv) != 0)
		return 2;
	signal(SIGPIPE, SIG_IGN);
	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	if (client_connect(c) != 0 || output_open(&x) != 0)
		return 1;
	rc = rp_loop_signals_add(c->loop, &x.signals, &set, on_signal, &x);
	rc = rc == 0 ? capture_run(c, &x) : 1;
	rp_loop_signals_remove(&x.signals);
	if (x.fd != STDOUT_FILENO && close(x.fd) != 0)
		rc = 1;
	/* What the channel still has is not for x. */
	rp_grpc_channel_disconnect(c->channel);
	return rc;
}
