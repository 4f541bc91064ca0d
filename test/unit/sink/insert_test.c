/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The sink for ClickHouse between a queue and a server of the test's: what goes into a batch, how
 * many are under way, what is sent again, and what is acknowledged.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <errno.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include <grpc/loop.h>
#include <sink/clickhouse.h>

#define INSERTS_MAX 64
#define CONNS_MAX 16
#define NUMBERS_MAX 64

enum reply {
	REPLY_DONE,
	REPLY_BAD_ROW, /**< refused when there is "bad" in it, else done */
	REPLY_LOST,    /**< done, and the connection ends without a word */
	REPLY_NEVER,
};

struct conn {
	struct rp_loop_fd watch;
	struct rig *r;
	size_t length;
	char in[8192];
	bool waits; /**< for an answer that was held back */
};

struct rig {
	struct rp_loop *loop;
	struct rp_clickhouse *c;
	struct rp_sink_host host;
	struct rp_loop_fd listener;
	uint16_t port;
	struct conn conns[CONNS_MAX];
	/* The server. */
	const char *settings;
	enum reply reply;
	unsigned lose; /**< so many of the next answers */
	unsigned inserts, authorized;
	char *urls[INSERTS_MAX], *bodies[INSERTS_MAX];
	/* The queue. */
	struct rp_sink_consumer_ops ops;
	void *ops_ctx;
	uint32_t prefetch;
	unsigned consumers, closes, acked, rejected, ack_calls, refuse_acks;
	uint64_t acks[NUMBERS_MAX], rejects[NUMBERS_MAX];
	struct {
		rp_sink_done_fn done;
		void *ctx;
		int status;
		int64_t result;
	} answers[NUMBERS_MAX];
	unsigned answer_count;
};

/* ---- the server ---- */

static void conn_close(struct conn *k)
{
	int fd = k->watch.fd;

	rp_loop_fd_remove(&k->watch);
	close(fd);
	k->r = NULL;
}

static void conn_answer(struct conn *k, int status, const char *body)
{
	char text[512];
	int n = snprintf(text, sizeof(text), "HTTP/1.1 %d x\r\nContent-Length: %zu\r\n\r\n%s",
		status, strlen(body), body);

	k->waits = false;
	assert_int_equal(write(k->watch.fd, text, (size_t)n), n);
}

static char *text_of(const char *from, size_t length)
{
	char *text = strndup(from, length);

	assert_non_null(text);
	return text;
}

static void on_insert(struct conn *k, const char *url, size_t url_length, const char *body)
{
	struct rig *r = k->r;

	assert_true(r->inserts < INSERTS_MAX);
	r->urls[r->inserts] = text_of(url, url_length);
	r->bodies[r->inserts++] = text_of(body, strlen(body));
	if (r->lose > 0) {
		r->lose--;
		conn_close(k);
	} else if (r->reply == REPLY_NEVER) {
		k->waits = true;
	} else if (r->reply == REPLY_BAD_ROW && strstr(body, "bad")) {
		conn_answer(k, 500, "Code: 27, e.displayText() = DB::Exception: Cannot parse");
	} else {
		conn_answer(k, 200, "");
	}
}

/* A whole request is in the buffer. */
static void on_request(struct conn *k, char *body)
{
	char *url = strchr(k->in, ' ') + 1, *url_end = strchr(url, ' ');

	if (strstr(k->in, "Authorization: Basic dTpw"))
		k->r->authorized++;
	if (memmem(url, (size_t)(url_end - url), "system.settings", 15))
		conn_answer(k, 200, k->r->settings);
	else
		on_insert(k, url, (size_t)(url_end - url), body);
}

static void on_readable(void *ctx, uint32_t events)
{
	struct conn *k = ctx;
	ssize_t n = read(k->watch.fd, k->in + k->length, sizeof(k->in) - 1 - k->length);
	char *head, *length;

	if (n <= 0) {
		if (n == 0 || errno != EAGAIN)
			conn_close(k);
		return;
	}
	k->length += (size_t)n;
	k->in[k->length] = '\0';
	head = strstr(k->in, "\r\n\r\n");
	length = strstr(k->in, "Content-Length: ");
	if (!head || !length || strlen(head + 4) < strtoul(length + 16, NULL, 10))
		return;
	k->length = 0;
	on_request(k, head + 4);
}

static void on_accept(void *ctx, uint32_t events)
{
	struct rig *r = ctx;
	int fd = accept4(r->listener.fd, NULL, NULL, SOCK_NONBLOCK);

	for (unsigned i = 0; fd >= 0 && i < CONNS_MAX; i++) {
		struct conn *k = &r->conns[i];

		if (k->r)
			continue;
		k->r = r;
		k->length = 0;
		k->waits = false;
		rp_loop_fd_setup(&k->watch, on_readable, k);
		assert_int_equal(rp_loop_fd_add(r->loop, &k->watch, fd, EPOLLIN), 0);
		return;
	}
	assert_true(fd < 0);
}

static void server_listen(struct rig *r)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t length = sizeof(a);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);

	assert_int_equal(bind(fd, (struct sockaddr *)&a, length), 0);
	assert_int_equal(listen(fd, CONNS_MAX), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &length), 0);
	r->port = ntohs(a.sin_port);
	rp_loop_fd_setup(&r->listener, on_accept, r);
	assert_int_equal(rp_loop_fd_add(r->loop, &r->listener, fd, EPOLLIN), 0);
}

/* ---- the queue ---- */

static void *host_consume(void *ctx, struct rp_span queue, uint32_t prefetch,
	const struct rp_sink_consumer_ops *ops, void *ops_ctx)
{
	struct rig *r = ctx;

	r->ops = *ops;
	r->ops_ctx = ops_ctx;
	r->prefetch = prefetch;
	r->consumers++;
	return r;
}

static void host_close(void *consumer)
{
	((struct rig *)consumer)->closes++;
}

static void answer_later(struct rig *r, rp_sink_done_fn done, void *ctx, int status, int64_t result)
{
	assert_true(r->answer_count < NUMBERS_MAX);
	r->answers[r->answer_count].done = done;
	r->answers[r->answer_count].ctx = ctx;
	r->answers[r->answer_count].status = status;
	r->answers[r->answer_count++].result = result;
}

static void host_acks(
	void *consumer, const uint64_t *idx, unsigned count, rp_sink_done_fn done, void *done_ctx)
{
	struct rig *r = consumer;

	r->ack_calls++;
	if (r->refuse_acks > 0) {
		r->refuse_acks--;
		answer_later(r, done, done_ctx, RP_SINK_STATUS_UNAVAILABLE, 0);
		return;
	}
	for (unsigned i = 0; i < count; i++)
		r->acks[r->acked++] = idx[i];
	answer_later(r, done, done_ctx, 0, count);
}

static void host_ack(void *consumer, uint64_t idx, rp_sink_done_fn done, void *done_ctx)
{
	host_acks(consumer, &idx, 1, done, done_ctx);
}

static void host_reject(void *consumer, uint64_t idx, rp_sink_done_fn done, void *done_ctx)
{
	struct rig *r = consumer;

	r->rejects[r->rejected++] = idx;
}

static void message(struct rig *r, uint64_t idx, const char *value)
{
	const struct rp_sink_message m = {
		.idx = idx,
		.tail = {(const uint8_t *)"t", 1},
		.value = {(const uint8_t *)value, strlen(value)},
		.attempt = 1,
	};

	r->ops.message(r->ops_ctx, &m);
}

/* ---- the rig ---- */

static void turn(struct rig *r)
{
	rp_loop_run_once(r->loop, RP_NS_PER_MS);
	for (unsigned i = 0; i < r->answer_count; i++)
		if (r->answers[i].done)
			r->answers[i].done(
				r->answers[i].ctx, r->answers[i].status, "", r->answers[i].result);
	r->answer_count = 0;
}

static void pass(struct rig *r, unsigned ms)
{
	uint64_t end_ns = rp_loop_clock_ns() + ms * RP_NS_PER_MS;

	while (rp_loop_clock_ns() < end_ns)
		turn(r);
}

/* Until so many inserts have come, which takes no longer than `ms`. */
static void wait_inserts(struct rig *r, unsigned count, unsigned ms)
{
	uint64_t end_ns = rp_loop_clock_ns() + ms * RP_NS_PER_MS;

	while (r->inserts < count && rp_loop_clock_ns() < end_ns)
		turn(r);
	assert_int_equal(r->inserts, count);
}

static void begin(struct rig *r, struct rp_clickhouse_limits limits, uint64_t timeout_ms)
{
	char url[64];
	struct rp_clickhouse_config config = {.host = &r->host,
		.url = url,
		.node = 5,
		.limits = limits,
		.timeout_ms = timeout_ms};

	r->loop = rp_loop_new();
	assert_non_null(r->loop);
	server_listen(r);
	r->host = (struct rp_sink_host){.ctx = r,
		.consume = host_consume,
		.close = host_close,
		.ack = host_ack,
		.acks = host_acks,
		.reject = host_reject};
	if (!r->settings)
		r->settings = "";
	snprintf(url, sizeof(url), "http://u:p@127.0.0.1:%u", r->port);
	config.loop = r->loop;
	r->c = rp_clickhouse_create(&config);
	assert_non_null(r->c);
	rp_clickhouse_queue(r->c, (struct rp_span){(const uint8_t *)"ch:t", 4}, true);
	for (unsigned i = 0; i < 100 && r->consumers == 0; i++)
		turn(r);
	assert_int_equal(r->consumers, 1);
}

static void end(struct rig *r)
{
	rp_clickhouse_destroy(r->c);
	for (unsigned i = 0; i < CONNS_MAX; i++)
		if (r->conns[i].r)
			conn_close(&r->conns[i]);
	close(r->listener.fd);
	rp_loop_fd_remove(&r->listener);
	rp_loop_destroy(r->loop);
	for (unsigned i = 0; i < r->inserts; i++) {
		free(r->urls[i]);
		free(r->bodies[i]);
	}
}

/* ---- the tests ---- */

static void a_batch_is_full_by_rows_by_bytes_or_by_time(void **state)
{
	struct rig r = {0};

	begin(&r,
		(struct rp_clickhouse_limits){
			.batch_rows = 3, .batch_bytes = 40, .batch_ms = 100, .in_flight = 4},
		0);
	assert_int_equal(r.prefetch, 15);
	for (uint64_t i = 1; i <= 4; i++)
		message(&r, i, "{\"a\":1}");
	wait_inserts(&r, 1, 90);
	assert_string_equal(r.bodies[0], "{\"a\":1}\n{\"a\":1}\n{\"a\":1}\n");
	wait_inserts(&r, 2, 500);
	assert_string_equal(r.bodies[1], "{\"a\":1}\n");
	message(&r, 5, "{\"a\":\"twenty-eight bytes..\"}");
	message(&r, 6, "{\"a\":\"twenty-eight bytes..\"}");
	wait_inserts(&r, 3, 90);
	assert_string_equal(r.bodies[2], "{\"a\":\"twenty-eight bytes..\"}\n");
	wait_inserts(&r, 4, 500);
	pass(&r, 20);
	assert_int_equal(r.acked, 6);
	assert_int_equal(r.acks[0], 1);
	/* A batch is acknowledged together. */
	assert_int_equal(r.ack_calls, 4);
	assert_int_equal(r.authorized, 5);
	assert_int_equal(rp_clickhouse_counters(r.c)->rows, 6);
	assert_false(rp_clickhouse_busy(r.c));
	end(&r);
}

static void no_more_inserts_than_allowed_are_under_way(void **state)
{
	struct rig r = {.reply = REPLY_NEVER};

	begin(&r,
		(struct rp_clickhouse_limits){
			.batch_rows = 1, .batch_bytes = 1000, .batch_ms = 10, .in_flight = 2},
		0);
	for (uint64_t i = 1; i <= 5; i++)
		message(&r, i, "{}");
	wait_inserts(&r, 2, 500);
	pass(&r, 50);
	assert_int_equal(r.inserts, 2);
	assert_int_equal(rp_clickhouse_in_flight(r.c), 2);
	assert_int_equal(r.acked, 0);
	for (unsigned i = 0; i < CONNS_MAX; i++)
		if (r.conns[i].r && r.conns[i].waits) {
			conn_answer(&r.conns[i], 200, "");
			break;
		}
	wait_inserts(&r, 3, 500);
	pass(&r, 20);
	assert_int_equal(r.acked, 1);
	assert_int_equal(rp_clickhouse_in_flight(r.c), 2);
	end(&r);
}

/* The token of its URL, as far as it goes. */
static const char *token_of(const char *url)
{
	const char *token = strstr(url, "insert_deduplication_token=");

	return token ? token : "";
}

static void a_lost_answer_sends_the_identical_block(void **state)
{
	/* libcurl itself sends it once more where the connection was used before. */
	struct rig r = {.lose = 2,
		.settings = "input_format_parallel_parsing\ninsert_deduplication_token\n"};

	begin(&r,
		(struct rp_clickhouse_limits){
			.batch_rows = 10, .batch_bytes = 1000, .batch_ms = 10, .in_flight = 1},
		0);
	message(&r, 1, "{\"a\":1}");
	message(&r, 2, "{\"a\":2}");
	wait_inserts(&r, 1, 500);
	message(&r, 3, "{\"a\":3}");
	wait_inserts(&r, 2, 500);
	pass(&r, 500);
	assert_int_equal(r.inserts, 2);
	assert_int_equal(r.acked, 0);
	/* A second later; what came meanwhile is a block of its own. */
	wait_inserts(&r, 4, 1500);
	for (unsigned i = 1; i < 3; i++) {
		assert_string_equal(r.bodies[i], r.bodies[0]);
		assert_string_equal(r.urls[i], r.urls[0]);
	}
	assert_string_equal(r.bodies[3], "{\"a\":3}\n");
	assert_string_not_equal(token_of(r.urls[0]), "");
	assert_string_not_equal(token_of(r.urls[3]), token_of(r.urls[0]));
	pass(&r, 20);
	assert_int_equal(r.acked, 3);
	assert_int_equal(rp_clickhouse_counters(r.c)->inserts_failed, 1);
	/* What answers next may be another version: it was asked again. */
	assert_int_equal(rp_clickhouse_counters(r.c)->probes, 2);
	end(&r);
}

static void failed_once(void *ctx, const struct rp_clickhouse_state *state)
{
	assert_int_equal(state->failures, 1);
	assert_int_equal(state->held, 1);
	assert_non_null(strstr(state->error, "timed out"));
}

static void an_old_server_gets_no_token_and_no_answer_is_a_failure(void **state)
{
	struct rig r = {.reply = REPLY_NEVER};

	begin(&r,
		(struct rp_clickhouse_limits){
			.batch_rows = 1, .batch_bytes = 1000, .batch_ms = 10, .in_flight = 1},
		100);
	message(&r, 1, "{}");
	wait_inserts(&r, 1, 500);
	assert_string_equal(token_of(r.urls[0]), "");
	pass(&r, 200);
	assert_int_equal(rp_clickhouse_counters(r.c)->inserts_failed, 1);
	rp_clickhouse_each(r.c, failed_once, NULL);
	assert_int_equal(r.inserts, 1);
	assert_int_equal(r.acked, 0);
	end(&r);
}

static void a_refused_row_is_found_and_the_others_land(void **state)
{
	struct rig r = {.reply = REPLY_BAD_ROW};
	char value[32];
	unsigned good = 0;

	begin(&r,
		(struct rp_clickhouse_limits){
			.batch_rows = 16, .batch_bytes = 1000, .batch_ms = 10, .in_flight = 4},
		0);
	for (uint64_t i = 1; i <= 16; i++) {
		snprintf(value, sizeof(value), i == 4 || i == 13 ? "{\"bad\":1}" : "{\"good\":1}");
		message(&r, i, value);
	}
	message(&r, 17, " \n");
	message(&r, 18, "no object");
	for (unsigned i = 0; i < 1000 && r.acked + r.rejected < 18; i++)
		turn(&r);
	assert_int_equal(r.rejected, 3);
	assert_int_equal(r.rejects[0], 18);
	assert_int_equal(r.rejects[1] + r.rejects[2], 4 + 13);
	assert_int_equal(r.acked, 15);
	for (unsigned i = 0; i < r.inserts; i++)
		for (const char *p = r.bodies[i];
			!strstr(r.bodies[i], "bad") && (p = strstr(p, "good")); p++)
			good++;
	assert_int_equal(good, 14);
	assert_int_equal(rp_clickhouse_counters(r.c)->rows_empty_dropped, 1);
	assert_int_equal(rp_clickhouse_counters(r.c)->rows_refused, 3);
	assert_true(rp_clickhouse_counters(r.c)->batches_halved >= 4);
	end(&r);
}

static void acknowledges_that_fail_are_said_again(void **state)
{
	struct rig r = {.refuse_acks = 1};

	begin(&r,
		(struct rp_clickhouse_limits){
			.batch_rows = 2, .batch_bytes = 1000, .batch_ms = 10, .in_flight = 1},
		0);
	message(&r, 1, "{}");
	message(&r, 2, "{}");
	pass(&r, 200);
	assert_int_equal(r.ack_calls, 1);
	assert_int_equal(r.acked, 0);
	pass(&r, 1000);
	assert_int_equal(r.acked, 2);
	/* They were written once. */
	assert_int_equal(r.inserts, 1);
	assert_int_equal(rp_clickhouse_counters(r.c)->acks_failed, 2);
	assert_int_equal(rp_clickhouse_counters(r.c)->acks_late, 0);
	end(&r);
}

static void what_is_taken_back_is_not_written(void **state)
{
	struct rig r = {0};

	begin(&r,
		(struct rp_clickhouse_limits){
			.batch_rows = 10, .batch_bytes = 1000, .batch_ms = 50, .in_flight = 1},
		0);
	for (uint64_t i = 1; i <= 3; i++)
		message(&r, i, i == 2 ? "{\"a\":2}" : "{}");
	r.ops.withdrawn(r.ops_ctx, 2);
	wait_inserts(&r, 1, 500);
	assert_string_equal(r.bodies[0], "{}\n{}\n");
	pass(&r, 20);
	assert_int_equal(r.acked, 2);
	assert_int_equal(rp_clickhouse_counters(r.c)->withdrawn, 1);
	end(&r);
}

/* What its consumer had comes again to whoever consumes next: it is not written here as well. */
static void a_consumer_that_ends_is_one_again_and_nothing_goes_twice(void **state)
{
	struct rig r = {.reply = REPLY_NEVER};

	begin(&r,
		(struct rp_clickhouse_limits){
			.batch_rows = 1, .batch_bytes = 1000, .batch_ms = 10, .in_flight = 1},
		300);
	message(&r, 1, "{\"a\":1}");
	message(&r, 2, "{\"a\":2}");
	wait_inserts(&r, 1, 500);
	r.ops.end(r.ops_ctx, "a test");
	pass(&r, 1300);
	assert_int_equal(r.consumers, 2);
	assert_int_equal(r.inserts, 1);
	r.reply = REPLY_DONE;
	message(&r, 2, "{\"a\":2}");
	wait_inserts(&r, 2, 1500);
	assert_string_equal(r.bodies[1], "{\"a\":2}\n");
	pass(&r, 20);
	assert_int_equal(r.acked, 1);
	assert_int_equal(r.acks[0], 2);
	end(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_batch_is_full_by_rows_by_bytes_or_by_time),
		cmocka_unit_test(no_more_inserts_than_allowed_are_under_way),
		cmocka_unit_test(a_lost_answer_sends_the_identical_block),
		cmocka_unit_test(an_old_server_gets_no_token_and_no_answer_is_a_failure),
		cmocka_unit_test(a_refused_row_is_found_and_the_others_land),
		cmocka_unit_test(acknowledges_that_fail_are_said_again),
		cmocka_unit_test(what_is_taken_back_is_not_written),
		cmocka_unit_test(a_consumer_that_ends_is_one_again_and_nothing_goes_twice),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
