/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Many clients of one etcd server, in one process: etcd_load ADDRESS MODE [NAME VALUE]...
 *
 *   scale   `connections`, each with its part of `watches` and of `leases`, all at once; the leases
 * are kept alive while `rate` puts a second are made for `seconds` fanout  `connections`, each with
 * a watch of the same prefix, and `rate` puts a second; of `stuck` more the sockets are never read,
 * though their windows are open churn   `total` connections, `connections` at once, that come and
 * go in four ways: after a call, in the midst of a watch and a lease, with half a preface, and as
 * HTTP/1.1
 *
 * Prints one line of JSON. Status 1: something that the server owed did not come.
 */

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <nghttp2/nghttp2.h>

#include <base/assert.h>
#include <base/units.h>
#include <etcdserverpb/lease.pb-c.h>
#include <etcdserverpb/rpc.pb-c.h>
#include <grpc/client.h>
#include <stats/hist.h>

#define WAIT_NS (120 * RP_NS_PER_S)
#define GRANTS_AT_ONCE 256
/* Leases are renewed three times in their life, so many slices of them one after the other. */
#define LEASE_TTL_S 60
#define SLICES 200
#define STUCK_MAX 64
#define FILL_PUTS 160
#define FILL_BYTES 100000
/* Connections from one source address, so that its ports do not run out. */
#define DIALS_AN_ADDRESS 20000
#define LINE_HEALTH "GET /health HTTP/1.1\r\nHost: x\r\n\r\n"

struct client {
	struct rp_grpc_channel *channel;
	struct rp_grpc_client_call *watch, *keepalive;
};

static struct options {
	uint64_t connections, watches, leases, rate, seconds, bytes, stuck, total;
} opt = {.connections = 100, .watches = 1, .rate = 100, .seconds = 5, .bytes = 100};

static const struct {
	const char *name;
	uint64_t *at;
} option_names[] = {
	{"connections", &opt.connections},
	{"watches", &opt.watches},
	{"leases", &opt.leases},
	{"rate", &opt.rate},
	{"seconds", &opt.seconds},
	{"bytes", &opt.bytes},
	{"stuck", &opt.stuck},
	{"total", &opt.total},
};

static struct rp_loop *loop;
static struct sockaddr_in server;
static struct client *clients;
static int64_t *leases;
static struct rp_hist put_hist, event_hist;
static uint64_t ready_count, created, granted, grants_begun, renewed, lost, puts_begun, puts_done,
	events, events_wrong, leases_listed, lists, dials;

static void die(const char *what, const char *why)
{
	fprintf(stderr, "etcd_load: %s: %s\n", what, why ? why : "it takes too long");
	exit(1);
}

/* ---- connections ---- */

/* Each from an address of the loopback's own network: 127.1.x.y. */
static int dial(void)
{
	uint32_t host = 0x7f010001u + (uint32_t)(dials++ / DIALS_AN_ADDRESS);
	struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(host)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

	if (fd < 0)
		die("socket", strerror(errno));
	(void)setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof(one));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	if (bind(fd, (struct sockaddr *)&own, sizeof(own)) < 0)
		die("bind", strerror(errno));
	if (connect(fd, (struct sockaddr *)&server, sizeof(server)) < 0)
		die("connect", strerror(errno));
	return fd;
}

static void turn(void)
{
	if (rp_loop_run_once(loop, 10 * RP_NS_PER_MS) < 0)
		die("epoll", strerror(errno));
}

/* Until *count is at least `wanted`; returns how long it took. */
static double wait_for(const uint64_t *count, uint64_t wanted, const char *what)
{
	uint64_t begin = rp_loop_clock_ns();

	while (*count < wanted) {
		if (rp_loop_clock_ns() - begin > WAIT_NS)
			die(what, NULL);
		turn();
	}
	return (double)(rp_loop_clock_ns() - begin) / RP_NS_PER_S;
}

static void on_state(struct rp_grpc_channel *channel, enum rp_grpc_channel_state state,
	const char *reason, void *ctx)
{
	if (state == RP_GRPC_CHANNEL_READY)
		ready_count++;
	else if (state == RP_GRPC_CHANNEL_LOST)
		die("a connection is lost", reason);
}

static void client_open(struct client *c)
{
	struct rp_grpc_channel_config config = rp_grpc_channel_config_default();
	char address[64];
	int error;

	config.on_state = on_state;
	config.ctx = c;
	config.message_bytes_max = 64u << 20;
	snprintf(address, sizeof(address), "127.0.0.1:%u", ntohs(server.sin_port));
	c->channel = rp_grpc_channel_new(loop, address, &config);
	if (!c->channel)
		die("channel", strerror(errno));
	error = rp_grpc_channel_attach(c->channel, dial());
	if (error < 0)
		die("attach", strerror(-error));
}

static double clients_open(uint64_t count)
{
	uint64_t begin = rp_loop_clock_ns();

	clients = calloc(count, sizeof(*clients));
	for (uint64_t i = 0; i < count; i++) {
		client_open(&clients[i]);
		if (i % 64 == 63)
			(void)wait_for(&ready_count, i - 62, "connections");
	}
	(void)wait_for(&ready_count, count, "connections");
	return (double)(rp_loop_clock_ns() - begin) / RP_NS_PER_S;
}

static void clients_close(void)
{
	for (uint64_t i = 0; i < opt.connections; i++)
		rp_grpc_channel_destroy(clients[i].channel);
	free(clients);
}

static void unary(struct client *c, const char *path, const ProtobufCMessage *m,
	rp_grpc_unary_fn done, void *ctx)
{
	size_t length = protobuf_c_message_get_packed_size(m);
	uint8_t *data = malloc(length + 1);

	protobuf_c_message_pack(m, data);
	if (!rp_grpc_channel_unary(c->channel, path, NULL, 0, RP_NEVER, data, length, done, ctx))
		die(path, strerror(errno));
	free(data);
}

static void send_message(struct rp_grpc_client_call *call, const ProtobufCMessage *m)
{
	size_t length = protobuf_c_message_get_packed_size(m);
	uint8_t *data = malloc(length + 1);
	int error;

	protobuf_c_message_pack(m, data);
	error = rp_grpc_client_call_send(call, data, length);
	if (error < 0)
		die("a stream's request", strerror(-error));
	free(data);
}

/* ---- watches ---- */

/* The value of a put begins with when it was made. */
static void event_seen(const ProtobufCBinaryData *value)
{
	uint64_t sent;

	events++;
	if (value->len < sizeof(sent)) {
		events_wrong++;
		return;
	}
	memcpy(&sent, value->data, sizeof(sent));
	rp_hist_record_n(&event_hist, rp_loop_clock_ns() - sent, 1);
}

static void watch_message(
	struct rp_grpc_client_call *call, const uint8_t *data, size_t length, void *ctx)
{
	Etcdserverpb__WatchResponse *m = etcdserverpb__watch_response__unpack(NULL, length, data);

	if (!m || m->canceled)
		die("a watch ended", m ? m->cancel_reason : "no message");
	created += m->created;
	for (size_t i = 0; i < m->n_events; i++)
		event_seen(&m->events[i]->kv->value);
	etcdserverpb__watch_response__free_unpacked(m, NULL);
}

static void stream_finish(
	struct rp_grpc_client_call *call, enum rp_grpc_code code, const char *message, void *ctx)
{
	if (code != RP_GRPC_CANCELLED)
		die("a stream ended", message);
}

static const struct rp_grpc_client_ops watch_ops = {
	.on_message = watch_message, .on_finish = stream_finish};

static void watch_add(struct client *c, const char *key, const char *end)
{
	Etcdserverpb__WatchRequest m = ETCDSERVERPB__WATCH_REQUEST__INIT;
	Etcdserverpb__WatchCreateRequest create = ETCDSERVERPB__WATCH_CREATE_REQUEST__INIT;

	if (!c->watch)
		c->watch = rp_grpc_channel_call(
			c->channel, "/etcdserverpb.Watch/Watch", NULL, 0, RP_NEVER, &watch_ops, c);
	create.key = (ProtobufCBinaryData){.data = (uint8_t *)key, .len = strlen(key)};
	create.range_end = (ProtobufCBinaryData){.data = (uint8_t *)end, .len = strlen(end)};
	m.request_union_case = ETCDSERVERPB__WATCH_REQUEST__REQUEST_UNION_CREATE_REQUEST;
	m.create_request = &create;
	send_message(c->watch, &m.base);
}

/* Every other watch is of one key, the rest of a prefix. */
static double watches_open(void)
{
	uint64_t begin = rp_loop_clock_ns();
	char key[64], end[64];

	for (uint64_t i = 0; i < opt.watches; i++) {
		snprintf(key, sizeof(key), "/load/%06" PRIu64 "/", i);
		snprintf(end, sizeof(end), "/load/%06" PRIu64 "0", i);
		watch_add(&clients[i % opt.connections], key, i % 2 ? end : "");
		if (i % 1000 == 999)
			(void)wait_for(&created, i - 998, "watches");
	}
	(void)wait_for(&created, opt.watches, "watches");
	return (double)(rp_loop_clock_ns() - begin) / RP_NS_PER_S;
}

/* ---- leases ---- */

static void grant_next(void);

static void grant_done(
	void *ctx, enum rp_grpc_code code, const char *message, const uint8_t *data, size_t length)
{
	Etcdserverpb__LeaseGrantResponse *m = NULL;

	if (code == RP_GRPC_OK)
		m = etcdserverpb__lease_grant_response__unpack(NULL, length, data);
	if (!m || m->id == 0)
		die("a lease is not granted", message);
	leases[granted++] = m->id;
	etcdserverpb__lease_grant_response__free_unpacked(m, NULL);
	grant_next();
}

static void grant_next(void)
{
	Etcdserverpb__LeaseGrantRequest m = ETCDSERVERPB__LEASE_GRANT_REQUEST__INIT;

	if (grants_begun == opt.leases)
		return;
	m.ttl = LEASE_TTL_S;
	unary(&clients[grants_begun++ % opt.connections], "/etcdserverpb.Lease/LeaseGrant", &m.base,
		grant_done, NULL);
}

static void renewal_message(
	struct rp_grpc_client_call *call, const uint8_t *data, size_t length, void *ctx)
{
	Etcdserverpb__LeaseKeepAliveResponse *m =
		etcdserverpb__lease_keep_alive_response__unpack(NULL, length, data);

	if (!m || m->ttl != LEASE_TTL_S)
		lost++;
	else
		renewed++;
	if (m)
		etcdserverpb__lease_keep_alive_response__free_unpacked(m, NULL);
}

static const struct rp_grpc_client_ops renewal_ops = {
	.on_message = renewal_message, .on_finish = stream_finish};

static double leases_open(void)
{
	uint64_t begin = rp_loop_clock_ns();

	leases = calloc(opt.leases + 1, sizeof(*leases));
	for (int i = 0; i < GRANTS_AT_ONCE; i++)
		grant_next();
	(void)wait_for(&granted, opt.leases, "leases");
	for (uint64_t i = 0; i < opt.connections; i++)
		clients[i].keepalive = rp_grpc_channel_call(clients[i].channel,
			"/etcdserverpb.Lease/LeaseKeepAlive", NULL, 0, RP_NEVER, &renewal_ops,
			&clients[i]);
	return (double)(rp_loop_clock_ns() - begin) / RP_NS_PER_S;
}

static void renew_slice(uint64_t slice)
{
	for (uint64_t i = slice; i < opt.leases; i += SLICES) {
		Etcdserverpb__LeaseKeepAliveRequest m =
			ETCDSERVERPB__LEASE_KEEP_ALIVE_REQUEST__INIT;

		m.id = leases[i];
		send_message(clients[i / SLICES % opt.connections].keepalive, &m.base);
	}
}

static void leases_done(
	void *ctx, enum rp_grpc_code code, const char *message, const uint8_t *data, size_t length)
{
	Etcdserverpb__LeaseLeasesResponse *m = NULL;

	if (code == RP_GRPC_OK)
		m = etcdserverpb__lease_leases_response__unpack(NULL, length, data);
	if (!m)
		die("the list of leases", message);
	leases_listed = m->n_leases;
	lists++;
	etcdserverpb__lease_leases_response__free_unpacked(m, NULL);
}

/* ---- puts ---- */

static void put_done(
	void *ctx, enum rp_grpc_code code, const char *message, const uint8_t *data, size_t length)
{
	if (code != RP_GRPC_OK)
		die("a put failed", message);
	puts_done++;
	rp_hist_record_n(&put_hist, rp_loop_clock_ns() - (uint64_t)(uintptr_t)ctx, 1);
}

static void put(struct client *c, const char *key, int64_t lease)
{
	Etcdserverpb__PutRequest m = ETCDSERVERPB__PUT_REQUEST__INIT;
	uint64_t now = rp_loop_clock_ns();
	uint8_t *value = calloc(1, opt.bytes + sizeof(now));

	memcpy(value, &now, sizeof(now));
	m.key = (ProtobufCBinaryData){.data = (uint8_t *)key, .len = strlen(key)};
	m.value = (ProtobufCBinaryData){.data = value, .len = opt.bytes + sizeof(now)};
	m.lease = lease;
	unary(c, "/etcdserverpb.KV/Put", &m.base, put_done, (void *)(uintptr_t)now);
	puts_begun++;
	free(value);
}

/* ---- modes ---- */

static double ms(const struct rp_hist *h, double percent)
{
	return (double)rp_hist_percentile(h, percent) / RP_NS_PER_MS;
}

static void print_times(uint64_t begin, uint64_t expected)
{
	struct rusage use;

	getrusage(RUSAGE_SELF, &use);
	printf("\"puts\": %" PRIu64 ", \"events\": %" PRIu64 ", \"events_expected\": %" PRIu64
	       ", \"put_p50_ms\": %.3f, \"put_p99_ms\": %.3f, \"put_max_ms\": %.3f, "
	       "\"event_p50_ms\": %.3f, \"event_p99_ms\": %.3f, \"event_max_ms\": %.3f, "
	       "\"seconds\": %.1f, \"client_cpu_s\": %.1f",
		puts_done, events, expected, ms(&put_hist, 50), ms(&put_hist, 99),
		ms(&put_hist, 100), ms(&event_hist, 50), ms(&event_hist, 99), ms(&event_hist, 100),
		(double)(rp_loop_clock_ns() - begin) / RP_NS_PER_S,
		(double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
			(double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec) / 1e6);
}

static void scale_put(void)
{
	uint64_t number = puts_begun % opt.watches;
	char key[64];

	/* The key is in the interval of its own watch alone, single or prefix; now and then leased.
	 */
	snprintf(key, sizeof(key), "/load/%06" PRIu64 "/", number);
	put(&clients[(puts_begun * 7 + 3) % opt.connections], key,
		opt.leases && puts_begun % 4 == 0 ? leases[puts_begun % opt.leases] : 0);
}

static int scale(void)
{
	double connect_s = clients_open(opt.connections), watch_s = watches_open(),
	       grant_s = leases_open();
	uint64_t begin = rp_loop_clock_ns(), now = begin, slice = 0;
	uint64_t interval = LEASE_TTL_S * RP_NS_PER_S / 3 / SLICES;
	Etcdserverpb__LeaseLeasesRequest list = ETCDSERVERPB__LEASE_LEASES_REQUEST__INIT;

	for (; now - begin < opt.seconds * RP_NS_PER_S; now = rp_loop_clock_ns()) {
		for (; slice * interval <= now - begin; slice++)
			renew_slice(slice % SLICES);
		for (; puts_begun * RP_NS_PER_S <= (now - begin) * opt.rate;)
			scale_put();
		if (rp_loop_run_once(loop, RP_NS_PER_MS) < 0)
			die("epoll", strerror(errno));
	}
	(void)wait_for(&puts_done, puts_begun, "answers of puts");
	(void)wait_for(&events, puts_begun, "events");
	unary(&clients[0], "/etcdserverpb.Lease/LeaseLeases", &list.base, leases_done, NULL);
	(void)wait_for(&lists, 1, "the list of leases");
	printf("{\"connections\": %" PRIu64 ", \"watches\": %" PRIu64 ", \"leases\": %" PRIu64
	       ", \"connect_s\": %.2f, \"watch_s\": %.2f, \"grant_s\": %.2f, \"renewed\": %" PRIu64
	       ", \"leases_lost\": %" PRIu64 ", \"leases_listed\": %" PRIu64 ", ",
		ready_count, created, granted, connect_s, watch_s, grant_s, renewed, lost,
		leases_listed);
	print_times(begin, puts_begun);
	printf("}\n");
	clients_close();
	return lost == 0 && leases_listed >= opt.leases && events == puts_begun && !events_wrong
		       ? 0
		       : 1;
}

/* A client whose windows take all, and which reads nothing: what it is sent fills its socket. */
static int stuck_open(void)
{
	nghttp2_session_callbacks *callbacks;
	nghttp2_session *session;
	const nghttp2_settings_entry window = {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 0x7fffffff};
	const nghttp2_nv headers[] = {
#define NV(n, v) {(uint8_t *)(n), (uint8_t *)(v), sizeof(n) - 1, sizeof(v) - 1, 0}
		NV(":method", "POST"), NV(":scheme", "http"),
		NV(":path", "/etcdserverpb.Watch/Watch"), NV(":authority", "localhost"),
		NV("content-type", "application/grpc"), NV("te", "trailers")};
	/* A gRPC message: create a watch of /fill/ to /load0. */
	static const uint8_t create[] = "\0\0\0\0\x12\x0a\x10\x0a\x06/fill/\x12\x06/load0";
	uint8_t data[9] = {0, 0, sizeof(create) - 1, NGHTTP2_DATA, 0, 0, 0, 0, 1};
	int fd = dial(), small = 4096;
	const uint8_t *out;
	ssize_t n;

	(void)setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
	RP_ASSERT(nghttp2_session_callbacks_new(&callbacks) == 0);
	RP_ASSERT(nghttp2_session_client_new(&session, callbacks, NULL) == 0);
	nghttp2_submit_settings(session, NGHTTP2_FLAG_NONE, &window, 1);
	nghttp2_submit_window_update(session, NGHTTP2_FLAG_NONE, 0, 0x7fffffff - 65535);
	nghttp2_submit_headers(
		session, NGHTTP2_FLAG_NONE, -1, NULL, headers, RP_ARRAY_SIZE(headers), NULL);
	while ((n = nghttp2_session_mem_send(session, &out)) > 0)
		if (send(fd, out, (size_t)n, 0) != n)
			die("send", strerror(errno));
	if (send(fd, data, sizeof(data), 0) != sizeof(data) ||
		send(fd, create, sizeof(create) - 1, 0) != sizeof(create) - 1)
		die("send", strerror(errno));
	nghttp2_session_del(session);
	nghttp2_session_callbacks_del(callbacks);
	return fd;
}

/* More for the stuck ones than the kernel's buffers take. */
static void stuck_fill(void)
{
	uint64_t bytes = opt.bytes;

	opt.bytes = FILL_BYTES;
	for (int i = 0; i < FILL_PUTS; i++) {
		put(&clients[0], "/fill/key", 0);
		(void)wait_for(&puts_done, puts_begun, "answers of puts");
	}
	opt.bytes = bytes;
	puts_begun = puts_done = 0;
	rp_hist_init(&put_hist);
}

static int fanout(void)
{
	int stuck[STUCK_MAX];
	uint64_t begin, now;

	(void)clients_open(opt.connections);
	for (uint64_t i = 0; i < opt.connections; i++)
		watch_add(&clients[i], "/load/", "/load0");
	(void)wait_for(&created, opt.connections, "watches");
	for (uint64_t i = 0; i < opt.stuck; i++)
		stuck[i] = stuck_open();
	stuck_fill();
	begin = now = rp_loop_clock_ns();
	for (; now - begin < opt.seconds * RP_NS_PER_S; now = rp_loop_clock_ns()) {
		for (; puts_begun * RP_NS_PER_S <= (now - begin) * opt.rate;)
			put(&clients[puts_begun % opt.connections], "/load/key", 0);
		if (rp_loop_run_once(loop, RP_NS_PER_MS) < 0)
			die("epoll", strerror(errno));
	}
	(void)wait_for(&puts_done, puts_begun, "answers of puts");
	(void)wait_for(&events, puts_begun * opt.connections, "events");
	printf("{\"connections\": %" PRIu64 ", \"stuck\": %" PRIu64 ", ", opt.connections,
		opt.stuck);
	print_times(begin, puts_begun * opt.connections);
	printf("}\n");
	for (uint64_t i = 0; i < opt.stuck; i++)
		close(stuck[i]);
	clients_close();
	return events_wrong ? 1 : 0;
}

/* One that comes and goes. */
struct guest {
	struct rp_grpc_channel *channel;
	struct rp_loop_fd raw;
	struct rp_loop_task over;
	unsigned kind;
};

static uint64_t guests_begun, guests_done;

static void guest_begin(struct guest *g);

static void guest_over(void *ctx)
{
	struct guest *g = ctx;

	if (g->channel) {
		rp_grpc_channel_destroy(g->channel);
		g->channel = NULL;
	} else {
		int fd = g->raw.fd;

		rp_loop_fd_remove(&g->raw);
		close(fd);
	}
	guests_done++;
	guest_begin(g);
}

static void guest_range_done(
	void *ctx, enum rp_grpc_code code, const char *message, const uint8_t *data, size_t length)
{
	struct guest *g = ctx;

	if (code != RP_GRPC_OK)
		die("a range failed", message);
	rp_loop_task_post(loop, &g->over);
}

static void guest_message(
	struct rp_grpc_client_call *call, const uint8_t *data, size_t length, void *ctx)
{
	struct guest *g = ctx;

	rp_loop_task_post(loop, &g->over);
}

static void guest_finish(
	struct rp_grpc_client_call *call, enum rp_grpc_code code, const char *message, void *ctx)
{
	if (code != RP_GRPC_CANCELLED)
		die("a guest's stream ended", message);
}

static const struct rp_grpc_client_ops guest_ops = {
	.on_message = guest_message, .on_finish = guest_finish};

static void guest_state(struct rp_grpc_channel *channel, enum rp_grpc_channel_state state,
	const char *reason, void *ctx)
{
	struct guest *g = ctx;
	struct client c = {.channel = channel};
	Etcdserverpb__RangeRequest m = ETCDSERVERPB__RANGE_REQUEST__INIT;

	if (state == RP_GRPC_CHANNEL_LOST)
		die("a guest is thrown out", reason);
	if (state != RP_GRPC_CHANNEL_READY)
		return;
	if (g->kind == 0) {
		m.key = (ProtobufCBinaryData){.data = (uint8_t *)"guest", .len = 5};
		unary(&c, "/etcdserverpb.KV/Range", &m.base, guest_range_done, g);
		return;
	}
	c.watch = rp_grpc_channel_call(
		channel, "/etcdserverpb.Watch/Watch", NULL, 0, RP_NEVER, &guest_ops, g);
	(void)rp_grpc_channel_call(
		channel, "/etcdserverpb.Lease/LeaseKeepAlive", NULL, 0, RP_NEVER, &guest_ops, g);
	watch_add(&c, "guest", "");
}

static void guest_events(void *ctx, uint32_t events_seen)
{
	struct guest *g = ctx;
	char waste[4096];

	if (recv(g->raw.fd, waste, sizeof(waste), MSG_DONTWAIT) >= 0 || errno != EAGAIN)
		rp_loop_task_post(loop, &g->over);
}

static void guest_begin_raw(struct guest *g, int fd)
{
	const char *text = g->kind == 2 ? "PRI * HTTP/2" : LINE_HEALTH;

	rp_loop_fd_setup(&g->raw, guest_events, g);
	if (send(fd, text, strlen(text), MSG_NOSIGNAL) < 0 ||
		rp_loop_fd_add(loop, &g->raw, fd, g->kind == 2 ? 0 : EPOLLIN) < 0)
		die("a guest's bytes", strerror(errno));
	if (g->kind == 2)
		rp_loop_task_post(loop, &g->over);
}

static void guest_begin(struct guest *g)
{
	struct rp_grpc_channel_config config = rp_grpc_channel_config_default();
	const struct linger abrupt = {.l_onoff = 1};
	int fd;

	if (guests_begun == opt.total)
		return;
	g->kind = guests_begun++ % 4;
	fd = dial();
	/* Every second one ends by a reset. */
	if (guests_begun / 4 % 2)
		(void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &abrupt, sizeof(abrupt));
	if (g->kind >= 2) {
		guest_begin_raw(g, fd);
		return;
	}
	config.on_state = guest_state;
	config.ctx = g;
	g->channel = rp_grpc_channel_new(loop, "127.0.0.1:1", &config);
	if (!g->channel || rp_grpc_channel_attach(g->channel, fd) < 0)
		die("channel", strerror(errno));
}

static int churn(void)
{
	struct guest *guests = calloc(opt.connections, sizeof(*guests));
	uint64_t begin = rp_loop_clock_ns(), most = 0, last = begin;

	for (uint64_t i = 0; i < opt.connections; i++) {
		rp_loop_task_setup(&guests[i].over, guest_over, &guests[i]);
		guest_begin(&guests[i]);
	}
	while (guests_done < opt.total) {
		uint64_t before = guests_done;

		turn();
		if (guests_done > before)
			last = rp_loop_clock_ns();
		most = RP_MAX(most, rp_loop_clock_ns() - last);
		if (rp_loop_clock_ns() - last > WAIT_NS)
			die("guests", NULL);
	}
	printf("{\"total\": %" PRIu64 ", \"seconds\": %.1f, \"longest_pause_ms\": %.1f}\n",
		guests_done, (double)(rp_loop_clock_ns() - begin) / RP_NS_PER_S,
		(double)most / RP_NS_PER_MS);
	free(guests);
	return 0;
}

static void parse(int argc, char *argv[])
{
	char *colon = argc > 2 ? strrchr(argv[1], ':') : NULL;

	if (!colon || argc % 2 == 0)
		die("usage", "etcd_load HOST:PORT scale|fanout|churn [NAME VALUE]...");
	*colon = 0;
	server.sin_family = AF_INET;
	server.sin_port = htons((uint16_t)atoi(colon + 1));
	if (inet_pton(AF_INET, argv[1], &server.sin_addr) != 1)
		die(argv[1], "no IPv4 address");
	for (int i = 3; i < argc; i += 2) {
		size_t n = 0;

		while (n < RP_ARRAY_SIZE(option_names) && strcmp(option_names[n].name, argv[i]))
			n++;
		if (n == RP_ARRAY_SIZE(option_names))
			die(argv[i], "no such option");
		*option_names[n].at = strtoull(argv[i + 1], NULL, 10);
	}
	if (opt.connections == 0 || opt.watches == 0 || opt.stuck > STUCK_MAX)
		die("usage", "connections and watches from 1, stuck up to 64");
}

int main(int argc, char *argv[])
{
	struct rlimit files;
	int status;

	parse(argc, argv);
	getrlimit(RLIMIT_NOFILE, &files);
	files.rlim_cur = files.rlim_max;
	(void)setrlimit(RLIMIT_NOFILE, &files);
	rp_hist_init(&put_hist);
	rp_hist_init(&event_hist);
	loop = rp_loop_new();
	if (!loop)
		die("loop", strerror(errno));
	if (strcmp(argv[2], "scale") == 0)
		status = scale();
	else if (strcmp(argv[2], "fanout") == 0)
		status = fanout();
	else if (strcmp(argv[2], "churn") == 0)
		status = churn();
	else
		die(argv[2], "no such mode");
	rp_loop_destroy(loop);
	free(leases);
	return status;
}
