/* SPDX-License-Identifier: Apache-2.0 */

/* Connections: hiredis on the loop, attempts with back-off, time limits. */

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include <hiredis/async.h>
#include <hiredis/hiredis.h>

#include <base/assert.h>
#include <base/log.h>
#include <store/redis_priv.h>
#include <store/store_priv.h>

#define BACKOFF_NS (50 * RP_NS_PER_MS)
#define BACKOFF_MAX_NS (2 * RP_NS_PER_S)
/** Commands of one connection that are not answered: beyond, they fail at once. */
#define COMMANDS_MAX 65536

/** What hiredis has of a command; it ends it whatever becomes of the command. */
struct redis_sent {
	struct redis_command *command; /**< NULL: it has failed meanwhile */
};

struct redis_command {
	struct rp_list node;
	struct redis_link *link;
	struct redis_sent *sent; /**< NULL: it was not */
	redis_reply_fn fn;
	void *ctx;
	uint64_t since_ns;
	unsigned count;
	struct rp_span *arguments; /**< copies, until it is sent */
};

/** What belongs to one connection; freed by hiredis' last call. */
struct redis_io {
	struct redis_link *link; /**< NULL: given up */
	redisAsyncContext *ac;
	struct rp_loop *loop;
	struct rp_loop_fd watch;
	uint32_t events;
};

static void link_down(struct redis_link *l, const char *error);

/* ---- addresses ---- */

static int parse_rest(struct redis_address *a, const char *text)
{
	char *end;

	if (*text == '\0')
		return 0;
	a->database = (unsigned)strtoul(text, &end, 10);
	return *end == '\0' && a->database < 1u << 16 ? 0 : -EINVAL;
}

static bool host_ok(const char *host)
{
	uint8_t address[16];

	return strcmp(host, "localhost") == 0 || inet_pton(AF_INET, host, address) == 1 ||
	       inet_pton(AF_INET6, host, address) == 1;
}

static int parse_host(struct redis_address *a, const char *text, size_t length)
{
	const char *colon = NULL;
	size_t skip = 0, n = length;

	a->port = 6379;
	if (length > 0 && text[0] == '[') {
		const char *close = memchr(text, ']', length);

		if (!close)
			return -EINVAL;
		skip = 1;
		n = (size_t)(close - text) + 1;
		if (n < length && text[n] != ':')
			return -EINVAL;
		colon = n < length ? text + n : NULL;
		n--;
	} else {
		colon = memchr(text, ':', length);
		n = colon ? (size_t)(colon - text) : length;
	}
	if (n - skip >= sizeof(a->host))
		return -EINVAL;
	memcpy(a->host, text + skip, n - skip);
	if (colon) {
		char *end;
		unsigned long port = strtoul(colon + 1, &end, 10);

		if (end != text + length || end == colon + 1 || port == 0 || port > UINT16_MAX)
			return -EINVAL;
		a->port = (uint16_t)port;
	}
	return host_ok(a->host) ? 0 : -EINVAL;
}

static int parse_tcp(struct redis_address *a, const char *text)
{
	const char *slash = strchr(text, '/'), *at;
	size_t n = slash ? (size_t)(slash - text) : strlen(text);

	at = memrchr(text, '@', n);
	if (at) {
		const char *colon = memchr(text, ':', (size_t)(at - text));

		if (!colon)
			return -EINVAL;
		a->password = strndup(colon + 1, (size_t)(at - colon - 1));
		n -= (size_t)(at + 1 - text);
		text = at + 1;
	}
	if (parse_host(a, text, n) != 0)
		return -EINVAL;
	return slash ? parse_rest(a, slash + 1) : 0;
}

int redis_address_parse(struct redis_address *a, const char *url)
{
	int rc = -EINVAL;

	*a = (struct redis_address){0};
	if (strncmp(url, "redis://", 8) == 0) {
		rc = parse_tcp(a, url + 8);
	} else if (strncmp(url, "unix://", 7) == 0) {
		const char *path = url + 7, *query = strstr(path, "?db=");
		size_t n = query ? (size_t)(query - path) : strlen(path);

		if (n > 0 && n < 108 && path[0] == '/') {
			memcpy(a->host, path, n);
			rc = query ? parse_rest(a, query + 4) : 0;
		}
	}
	if (rc != 0)
		redis_address_free(a);
	return rc;
}

void redis_address_free(struct redis_address *a)
{
	if (a->password)
		explicit_bzero(a->password, strlen(a->password));
	free(a->password);
	a->password = NULL;
}

/* ---- hiredis on the loop ---- */

static void on_event(void *ctx, uint32_t events)
{
	struct redis_io *io = ctx;
	bool ended = events & (EPOLLERR | EPOLLHUP);

	/* The last call of hiredis frees io: it must not be looked at behind the first. */
	if ((events & EPOLLOUT || (ended && !(events & EPOLLIN))) && io->events & EPOLLOUT)
		redisAsyncHandleWrite(io->ac);
	else
		redisAsyncHandleRead(io->ac);
}

static void io_events(struct redis_io *io, uint32_t events)
{
	io->events = events;
	if (io->watch.loop)
		rp_loop_fd_modify(&io->watch, events);
	else if (events != 0)
		RP_ASSERT(rp_loop_fd_add(io->loop, &io->watch, io->ac->c.fd, events) == 0);
}

static void add_read(void *p)
{
	struct redis_io *io = p;

	io_events(io, io->events | EPOLLIN);
}

static void del_read(void *p)
{
	struct redis_io *io = p;

	io_events(io, io->events & ~(uint32_t)EPOLLIN);
}

static void add_write(void *p)
{
	struct redis_io *io = p;

	io_events(io, io->events | EPOLLOUT);
}

static void del_write(void *p)
{
	struct redis_io *io = p;

	io_events(io, io->events & ~(uint32_t)EPOLLOUT);
}

static void cleanup(void *p)
{
	struct redis_io *io = p;

	rp_loop_fd_remove(&io->watch);
	io->ac->ev.data = NULL;
	io->ac->data = NULL;
	if (io->link) {
		io->link->io = NULL;
		link_down(io->link,
			io->ac->errstr && io->ac->errstr[0] ? io->ac->errstr : "connection closed");
	}
	free(io);
}

/* ---- commands ---- */

static void command_free(struct redis_command *c)
{
	rp_list_unlink(&c->node);
	if (c->sent)
		c->sent->command = NULL;
	for (unsigned i = 0; c->arguments && i < c->count; i++)
		free((void *)c->arguments[i].data);
	free(c->arguments);
	free(c);
}

static void arm_watchdog(struct redis_link *l)
{
	uint64_t first_ns = RP_NEVER;

	if (!rp_list_empty(&l->pending))
		first_ns = rp_list_entry(l->pending.next, struct redis_command, node)->since_ns;
	if (l->by_progress && first_ns != RP_NEVER)
		first_ns = RP_MAX(first_ns, l->progress_ns);
	if (!rp_list_empty(&l->waiting))
		first_ns = RP_MIN(first_ns,
			rp_list_entry(l->waiting.next, struct redis_command, node)->since_ns);
	if (first_ns == RP_NEVER)
		rp_loop_timer_cancel(&l->watchdog);
	else
		rp_loop_timer_at(l->loop, &l->watchdog, first_ns + l->timeout_ns);
}

static void on_reply(redisAsyncContext *ac, void *reply, void *privdata)
{
	struct redis_sent *sent = privdata;
	struct redis_command *c = sent->command;
	struct redis_link *l;

	free(sent);
	if (!c)
		return;
	c->sent = NULL;
	/* Those of a connection that ends fail together, when it has ended. */
	if (!reply)
		return;
	l = c->link;
	l->progress_ns = rp_loop_now_ns(l->loop);
	rp_list_unlink(&c->node);
	l->count--;
	arm_watchdog(l);
	c->fn(c->ctx, reply);
	command_free(c);
}

static int command_send(struct redis_link *l, struct redis_command *c)
{
	struct redis_sent *sent = store_alloc(sizeof(*sent));
	const char **argv = store_alloc(c->count * sizeof(*argv));
	size_t *lengths = store_alloc(c->count * sizeof(*lengths));
	int rc;

	sent->command = c;
	for (unsigned i = 0; i < c->count; i++) {
		argv[i] = (const char *)c->arguments[i].data;
		lengths[i] = c->arguments[i].length;
	}
	rc = redisAsyncCommandArgv(l->io->ac, on_reply, sent, (int)c->count, argv, lengths);
	free(argv);
	free(lengths);
	if (rc != REDIS_OK) {
		free(sent);
		return -1;
	}
	c->sent = sent;
	for (unsigned i = 0; i < c->count; i++)
		free((void *)c->arguments[i].data);
	free(c->arguments);
	c->arguments = NULL;
	rp_list_unlink(&c->node);
	rp_list_push_back(&l->pending, &c->node);
	return 0;
}

void redis_link_command(struct redis_link *l, redis_reply_fn fn, void *ctx, unsigned count,
	const struct rp_span *arguments)
{
	struct redis_command *c = store_alloc(sizeof(*c));

	c->link = l;
	c->fn = fn;
	c->ctx = ctx;
	c->since_ns = rp_loop_now_ns(l->loop);
	c->count = count;
	c->arguments = store_alloc(count * sizeof(*arguments));
	for (unsigned i = 0; i < count; i++) {
		uint8_t *copy = store_alloc(arguments[i].length + 1);

		if (arguments[i].length > 0)
			memcpy(copy, arguments[i].data, arguments[i].length);
		c->arguments[i] = (struct rp_span){copy, arguments[i].length};
	}
	rp_list_push_back(&l->waiting, &c->node);
	l->count++;
	if (l->state == REDIS_LINK_UP && l->count <= COMMANDS_MAX)
		(void)command_send(l, c);
	/* While it is idle there is an error to be told: at once, but not from in here. */
	if (l->state == REDIS_LINK_IDLE || l->count > COMMANDS_MAX)
		c->since_ns = 0;
	arm_watchdog(l);
}

/* The commands that waited or were sent: not done, or not known. */
static void fail_list(struct redis_link *l, struct rp_list *list)
{
	struct rp_list batch, *n;

	rp_list_init(&batch);
	rp_list_splice_back(&batch, list);
	while ((n = rp_list_pop_front(&batch))) {
		struct redis_command *c = rp_list_entry(n, struct redis_command, node);

		l->count--;
		c->fn(c->ctx, NULL);
		command_free(c);
	}
}

/* ---- up and down ---- */

static void on_retry(void *ctx)
{
	redis_link_start(ctx);
}

static void link_down(struct redis_link *l, const char *error)
{
	bool was_up = l->state == REDIS_LINK_UP;

	if (was_up || !l->error[0])
		RP_LOG(RP_LOG_NODE, RP_LOG_WARNING, "redis %s: %s", l->address->host, error);
	snprintf(l->error, sizeof(l->error), "%s", error);
	l->state = REDIS_LINK_IDLE;
	if (l->disconnects)
		*l->disconnects += was_up;
	l->backoff_ns = was_up ? BACKOFF_NS : RP_MIN(l->backoff_ns * 2, BACKOFF_MAX_NS);
	rp_loop_timer_in(l->loop, &l->retry, l->backoff_ns);
	rp_loop_timer_cancel(&l->watchdog);
	l->in_doubt = true;
	fail_list(l, &l->pending);
	l->in_doubt = false;
	fail_list(l, &l->waiting);
	l->timed_out = false;
	arm_watchdog(l);
	if (l->down)
		l->down(l->ctx);
}

/* The connection is given up; hiredis frees it, at the latest when its callback returns. */
static void link_drop(struct redis_link *l, const char *error)
{
	struct redis_io *io = l->io;
	struct rp_list *n;

	l->io = NULL;
	rp_list_foreach (n, &l->pending) {
		struct redis_command *c = rp_list_entry(n, struct redis_command, node);

		if (c->sent)
			c->sent->command = NULL;
		c->sent = NULL;
	}
	if (io) {
		io->link = NULL;
		redisAsyncFree(io->ac);
	}
	if (error)
		link_down(l, error);
}

static void on_watchdog(void *ctx)
{
	struct redis_link *l = ctx;
	char text[80];

	if (l->state == REDIS_LINK_IDLE) {
		fail_list(l, &l->waiting);
		return;
	}
	if (rp_list_empty(&l->pending) && l->state == REDIS_LINK_UP) {
		fail_list(l, &l->waiting); /* too many at once */
		return;
	}
	snprintf(text, sizeof(text), "no answer for %llu ms",
		(unsigned long long)(l->timeout_ns / RP_NS_PER_MS));
	l->timed_out = true;
	link_drop(l, text);
}

static void link_up(struct redis_link *l)
{
	struct rp_list *n;

	l->state = REDIS_LINK_UP;
	l->backoff_ns = BACKOFF_NS;
	if (l->error[0])
		RP_LOG(RP_LOG_NODE, RP_LOG_INFO, "redis %s: connected", l->address->host);
	l->error[0] = '\0';
	if (l->connects)
		++*l->connects;
	rp_loop_timer_cancel(&l->watchdog);
	if (l->up)
		l->up(l->ctx);
	while (l->state == REDIS_LINK_UP && (n = l->waiting.next) != &l->waiting)
		if (command_send(l, rp_list_entry(n, struct redis_command, node)) != 0)
			break;
	arm_watchdog(l);
}

/* AUTH and SELECT: what follows waits for the last of them. */
static void on_greeting(redisAsyncContext *ac, void *r, void *privdata)
{
	struct redis_io *io = ac->data;
	const redisReply *reply = r;

	if (!io || !io->link || !reply)
		return;
	if (reply->type == REDIS_REPLY_ERROR)
		link_drop(io->link, reply->str);
	else if (privdata)
		link_up(io->link);
}

static void on_connect(const redisAsyncContext *ac, int status)
{
	struct redis_io *io = ac->data;
	struct redis_link *l = io ? io->link : NULL;
	const char *select = "SELECT";
	char database[16];
	const char *password;

	if (!l || status != REDIS_OK)
		return; /* cleanup() follows */
	password = l->address->password;
	if (password) {
		const char *argv[2] = {"AUTH", password};

		redisAsyncCommandArgv(io->ac, on_greeting, NULL, 2, argv, NULL);
	}
	snprintf(database, sizeof(database), "%u", l->address->database);
	redisAsyncCommandArgv(io->ac, on_greeting, io, 2, (const char *[]){select, database}, NULL);
}

void redis_link_start(struct redis_link *l)
{
	const struct redis_address *a = l->address;
	redisAsyncContext *ac;
	struct redis_io *io;

	if (!l->waiting.next) {
		rp_list_init(&l->waiting);
		rp_list_init(&l->pending);
		rp_loop_timer_setup(&l->retry, on_retry, l);
		rp_loop_timer_setup(&l->watchdog, on_watchdog, l);
		l->backoff_ns = BACKOFF_NS;
	}
	RP_ASSERT(!l->io);
	ac = a->port ? redisAsyncConnect(a->host, a->port) : redisAsyncConnectUnix(a->host);
	RP_ASSERT(ac != NULL);
	if (ac->err) {
		char error[128];

		snprintf(error, sizeof(error), "%s", ac->errstr);
		redisAsyncFree(ac);
		link_down(l, error);
		return;
	}
	io = store_alloc(sizeof(*io));
	io->link = l;
	io->ac = ac;
	io->loop = l->loop;
	rp_loop_fd_setup(&io->watch, on_event, io);
	ac->data = io;
	ac->ev.data = io;
	ac->ev.addRead = add_read;
	ac->ev.delRead = del_read;
	ac->ev.addWrite = add_write;
	ac->ev.delWrite = del_write;
	ac->ev.cleanup = cleanup;
	l->io = io;
	l->state = REDIS_LINK_CONNECTING;
	if (a->port)
		redisEnableKeepAlive(&ac->c);
	redisAsyncSetConnectCallback(ac, on_connect);
	/* A connect that hangs ends by the same limit as a call. */
	rp_loop_timer_in(l->loop, &l->watchdog, l->timeout_ns);
}

void redis_link_stop(struct redis_link *l)
{
	if (!l->waiting.next)
		return;
	rp_loop_timer_cancel(&l->retry);
	rp_loop_timer_cancel(&l->watchdog);
	link_drop(l, NULL);
	while (!rp_list_empty(&l->waiting))
		command_free(rp_list_entry(l->waiting.next, struct redis_command, node));
	while (!rp_list_empty(&l->pending))
		command_free(rp_list_entry(l->pending.next, struct redis_command, node));
	l->count = 0;
	l->state = REDIS_LINK_IDLE;
}

const char *redis_link_error(const struct redis_link *l)
{
	if (l->error[0])
		return l->error;
	return l->state == REDIS_LINK_UP ? "too many calls at once" : "not connected";
}
