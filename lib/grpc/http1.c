/* SPDX-License-Identifier: Apache-2.0 */

/*
 * HTTP/1.1 (RFC 9112) for plain requests: persistent connections, one request at a time, bodies by
 * length or in chunks. What follows a request waits in the input buffer until it is answered.
 */

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <base/assert.h>
#include "server_priv.h"

/* Input read ahead of the request in work. */
#define HTTP1_AHEAD_BYTES (64u << 10)
#define HTTP1_CHUNK_LINE_BYTES 64

enum http1_state {
	HTTP1_HEAD,
	HTTP1_BODY,	  /* `body_left` bytes */
	HTTP1_CHUNK_SIZE, /* a line with the next chunk's size */
	HTTP1_CHUNK,	  /* `body_left` bytes, then CR LF */
	HTTP1_CHUNK_END,
	HTTP1_TRAILERS,
	HTTP1_ANSWER, /* the request is its handler's */
	HTTP1_CLOSE,  /* nothing is read any more */
};

/* A piece of an answer whose way to the socket is asked for. */
struct http1_mark {
	struct rp_list node;
	uint64_t cookie, position; /* among the plain bytes of the wire */
};

struct grpc_http1 {
	enum http1_state state;
	uint8_t *in;
	size_t in_head, in_tail, in_size;
	uint8_t *out;
	size_t out_length, out_size;
	struct grpc_headers headers;
	struct rp_http_request *request;
	char method[24];
	uint64_t body_left;
	bool keep_alive, chunked_answer, http10, ended, dispatching;
	struct rp_list marks; /* of the request's answer */
	size_t room_wanted;   /* 0: nobody waits for room */
};

int grpc_http1_open(struct rp_grpc_conn *conn)
{
	conn->http1 = calloc(1, sizeof(*conn->http1));
	if (!conn->http1)
		return -ENOMEM;
	rp_list_init(&conn->http1->marks);
	return 0;
}

static void http1_forget_marks(struct grpc_http1 *h)
{
	struct rp_list *n;

	while ((n = rp_list_pop_front(&h->marks)) != NULL)
		free(rp_list_entry(n, struct http1_mark, node));
	h->room_wanted = 0;
}

void grpc_http1_close(struct rp_grpc_conn *conn)
{
	struct grpc_http1 *h = conn->http1;

	if (!h)
		return;
	grpc_http_free(h->request);
	grpc_headers_free(&h->headers);
	http1_forget_marks(h);
	free(h->in);
	free(h->out);
	free(h);
	conn->http1 = NULL;
}

/* Output. */

static int http1_out(struct rp_grpc_conn *conn, const void *data, size_t length)
{
	struct grpc_http1 *h = conn->http1;

	if (h->out_length + length > h->out_size) {
		size_t size = RP_MAX(h->out_size * 2, h->out_length + length);
		uint8_t *out = realloc(h->out, size);

		if (!out)
			return -ENOMEM;
		h->out = out;
		h->out_size = size;
	}
	memcpy(h->out + h->out_length, data, length);
	h->out_length += length;
	conn->h2.out_bytes += length;
	grpc_h2_post_flush(&conn->h2);
	return 0;
}

void grpc_http1_flush(struct rp_grpc_conn *conn)
{
	struct grpc_http1 *h = conn->http1;
	int error;

	if (h->out_length == 0 || conn->h2.wire.blocked)
		return;
	error = grpc_wire_write(&conn->h2.wire, h->out, h->out_length);
	conn->h2.out_bytes -= h->out_length;
	free(h->out);
	h->out = NULL;
	h->out_length = h->out_size = 0;
	if (error < 0)
		grpc_h2_lost(&conn->h2, error, strerror(-error));
}

bool grpc_http1_answering(const struct rp_grpc_conn *conn)
{
	return conn->http1->state == HTTP1_ANSWER;
}

bool grpc_http1_idle(const struct rp_grpc_conn *conn)
{
	const struct grpc_http1 *h = conn->http1;

	return !h->request && h->in_head == h->in_tail;
}

void grpc_http1_begin(
	struct rp_http_request *r, int status, const char *content_type, ssize_t length)
{
	struct grpc_http1 *h = r->conn->http1;
	const char *name, *value;
	char head[1024];
	int n;

	n = snprintf(head, sizeof(head), "HTTP/1.1 %d %s\r\n", status, rp_http_reason(status));
	if (content_type)
		n += snprintf(head + n, sizeof(head) - (size_t)n, "Content-Type: %.200s\r\n",
			content_type);
	h->chunked_answer = length < 0 && !h->http10;
	if (length >= 0)
		n += snprintf(
			head + n, sizeof(head) - (size_t)n, "Content-Length: %zd\r\n", length);
	else if (h->chunked_answer)
		n += snprintf(head + n, sizeof(head) - (size_t)n, "Transfer-Encoding: chunked\r\n");
	else
		h->keep_alive = false; /* its end is the end of the connection */
	for (unsigned i = 0; grpc_http_common_header(i, &name, &value); i++)
		n += snprintf(head + n, sizeof(head) - (size_t)n, "%s: %s\r\n", name, value);
	if (r->conn->server->draining)
		h->keep_alive = false;
	n += snprintf(head + n, sizeof(head) - (size_t)n, "%s\r\n",
		h->keep_alive ? "" : "Connection: close\r\n");
	if (http1_out(r->conn, head, (size_t)n) < 0)
		rp_grpc_conn_close(r->conn);
}

static int http1_out_chunk(struct rp_grpc_conn *conn, const void *data, size_t length)
{
	char line[24];
	int n, error;

	if (!conn->http1->chunked_answer)
		return http1_out(conn, data, length);
	n = snprintf(line, sizeof(line), "%zx\r\n", length);
	error = http1_out(conn, line, (size_t)n);
	if (error == 0)
		error = http1_out(conn, data, length);
	return error < 0 ? error : http1_out(conn, "\r\n", 2);
}

size_t grpc_http1_queued_bytes(const struct rp_http_request *r)
{
	return r->conn->http1->out_length + grpc_wire_left_bytes(&r->conn->h2.wire);
}

int grpc_http1_write(struct rp_http_request *r, const void *data, size_t length, uint64_t cookie)
{
	struct rp_grpc_conn *conn = r->conn;
	struct grpc_http1 *h = conn->http1;
	size_t queued = grpc_http1_queued_bytes(r);
	struct http1_mark *m = NULL;
	int error;

	/* A head alone is not a queue: the first piece is always taken. */
	if (queued > 1024 && queued + length > conn->server->config.limits.call_out_bytes)
		return -ENOBUFS;
	if (cookie != 0) {
		m = malloc(sizeof(*m));
		if (!m)
			return -ENOMEM;
	}
	error = http1_out_chunk(conn, data, length);
	if (error < 0 || !m) {
		free(m);
		return error;
	}
	m->cookie = cookie;
	m->position = conn->h2.wire.plain_total + h->out_length;
	rp_list_init(&m->node);
	rp_list_push_back(&h->marks, &m->node);
	return 0;
}

bool grpc_http1_fits(struct rp_http_request *r, size_t length)
{
	struct grpc_http1 *h = r->conn->http1;
	size_t wanted = RP_MAX(RP_MIN(length, (size_t)GRPC_ROOM_BYTES / 2), 1u);

	if (rp_http_room(r) >= wanted) {
		h->room_wanted = 0;
		return true;
	}
	h->room_wanted = wanted;
	return false;
}

void grpc_http1_flushed(struct rp_grpc_conn *conn)
{
	struct grpc_http1 *h = conn->http1;

	while (!rp_list_empty(&h->marks)) {
		struct http1_mark *m = rp_list_entry(h->marks.next, struct http1_mark, node);
		uint64_t cookie = m->cookie;

		if (m->position > conn->h2.wire.plain_sent)
			break;
		rp_list_unlink(&m->node);
		free(m);
		grpc_http_written(h->request, cookie);
	}
	if (h->room_wanted > 0 && h->request && rp_http_room(h->request) >= h->room_wanted) {
		h->room_wanted = 0;
		grpc_http_room(h->request);
	}
}

static void http1_parse(struct rp_grpc_conn *conn);

void grpc_http1_end(struct rp_http_request *r)
{
	struct rp_grpc_conn *conn = r->conn;
	struct grpc_http1 *h = conn->http1;

	if (h->chunked_answer && !r->head_only)
		(void)http1_out(conn, "0\r\n\r\n", 5);
	h->request = NULL;
	http1_forget_marks(h);
	grpc_http_free(r);
	grpc_headers_free(&h->headers);
	h->state = h->keep_alive ? HTTP1_HEAD : HTTP1_CLOSE;
	if (h->state == HTTP1_CLOSE || (h->ended && h->in_head == h->in_tail)) {
		grpc_conn_finish(conn);
		return;
	}
	grpc_wire_hold_input(&conn->h2.wire, h->ended);
	if (!h->dispatching)
		http1_parse(conn);
}

/* Input. */

/* Answers that the request is bad and ends the connection: where the next one starts is unknown. */
static void http1_refuse(struct rp_grpc_conn *conn, int status)
{
	struct grpc_http1 *h = conn->http1;

	h->keep_alive = false;
	if (!h->request)
		h->request = grpc_http_new(conn, &h->headers, "GET", "");
	if (!h->request) {
		rp_grpc_conn_close(conn);
		return;
	}
	conn->server->stats.calls_refused_header++;
	grpc_http_refuse(h->request, status);
}

/* The next line without its CR LF, NULL when it is not complete. */
static char *http1_line(char **pos, char *end)
{
	char *line = *pos, *lf = memchr(line, '\n', (size_t)(end - line));

	if (!lf)
		return NULL;
	*pos = lf + 1;
	if (lf > line && lf[-1] == '\r')
		lf--;
	*lf = 0;
	return line;
}

static bool http1_is_token(const char *text, size_t length)
{
	if (length == 0)
		return false;
	for (size_t i = 0; i < length; i++) {
		if (!isalnum((unsigned char)text[i]) && !strchr("!#$%&'*+-.^_`|~", text[i]))
			return false;
	}
	return true;
}

static int http1_add_header(struct rp_grpc_conn *conn, char *line)
{
	char *colon = strchr(line, ':'), *value, *end;

	if (!colon || !http1_is_token(line, (size_t)(colon - line)))
		return 400;
	for (char *p = line; p < colon; p++)
		*p = (char)tolower((unsigned char)*p);
	value = colon + 1 + strspn(colon + 1, " \t");
	end = value + strlen(value);
	while (end > value && (end[-1] == ' ' || end[-1] == '\t'))
		end--;
	if (grpc_headers_add(&conn->http1->headers, line, (size_t)(colon - line), value,
		    (size_t)(end - value), conn->server->config.limits.header_bytes) < 0)
		return 431;
	return 0;
}

/* "GET /path HTTP/1.1": 0 or a status. */
static int http1_request_line(struct grpc_http1 *h, char *line, char **target)
{
	char *space = strchr(line, ' '), *version;

	if (!space || !http1_is_token(line, (size_t)(space - line)) ||
		(size_t)(space - line) >= sizeof(h->method))
		return 400;
	memcpy(h->method, line, (size_t)(space - line));
	h->method[space - line] = 0;
	*target = space + 1;
	version = strchr(*target, ' ');
	if (!version)
		return 400;
	*version++ = 0;
	if (strncasecmp(*target, "http://", 7) == 0) {
		*target = strchr(*target + 7, '/');
		if (!*target)
			return 400;
	}
	if (**target != '/' && strcmp(*target, "*") != 0)
		return 400;
	if (strcmp(version, "HTTP/1.1") == 0 || strcmp(version, "HTTP/1.0") == 0) {
		h->http10 = version[7] == '0';
		return 0;
	}
	return strncmp(version, "HTTP/", 5) == 0 ? 505 : 400;
}

static bool http1_has_word(const char *list, const char *word)
{
	size_t n = strlen(word);

	while (list && *list) {
		list += strspn(list, " \t,");
		if (strncasecmp(list, word, n) == 0 && strchr(" \t,;", list[n]))
			return true;
		list += strcspn(list, ",");
	}
	return false;
}

/* How the body comes. 0 or a status. */
static int http1_body_kind(struct rp_grpc_conn *conn)
{
	struct grpc_http1 *h = conn->http1;
	const char *coding = grpc_headers_get(&h->headers, "transfer-encoding", NULL);
	size_t length;
	const char *size = grpc_headers_get(&h->headers, "content-length", &length);
	const char *connection = grpc_headers_get(&h->headers, "connection", NULL);

	h->keep_alive = h->http10 ? http1_has_word(connection, "keep-alive")
				  : !http1_has_word(connection, "close");
	h->body_left = 0;
	if (coding) {
		/* Both together is how requests are smuggled (RFC 9112, 6.1). */
		if (size || strcasecmp(coding, "chunked") != 0)
			return size ? 400 : 501;
		h->state = HTTP1_CHUNK_SIZE;
	} else {
		if (size && (length == 0 || length > 15 || strspn(size, "0123456789") != length))
			return 400;
		h->body_left = size ? strtoull(size, NULL, 10) : 0;
		h->state = HTTP1_BODY;
	}
	if (h->body_left > conn->server->config.limits.http_body_bytes)
		return 413;
	if ((coding || h->body_left > 0) &&
		http1_has_word(grpc_headers_get(&h->headers, "expect", NULL), "100-continue"))
		(void)http1_out(conn, "HTTP/1.1 100 Continue\r\n\r\n", 25);
	return 0;
}

/* Parses the head when it is whole. False: more is needed, or the connection ends. */
static bool http1_head(struct rp_grpc_conn *conn)
{
	struct grpc_http1 *h = conn->http1;
	size_t have = h->in_tail - h->in_head, max = conn->server->config.limits.header_bytes;
	char *start = (char *)h->in + h->in_head, *end = start + have, *pos = start, *line, *target;
	char *stop = memmem(start, have, "\r\n\r\n", 4);
	int status;

	/* Empty lines before a request are allowed (RFC 9112, 2.2); anything else but a method is
	 * not HTTP at all. */
	if (have > 0 && *start != '\r' && *start != '\n' && !isupper((unsigned char)*start)) {
		http1_refuse(conn, 400);
		return false;
	}
	if (have > 1 && *start == '\r' && start[1] == '\n') {
		h->in_head += 2;
		return true;
	}
	if (!stop) {
		if (have > max)
			http1_refuse(conn, 431);
		return false;
	}
	end = stop + 4;
	h->in_head += (size_t)(end - start);
	if (memchr(start, 0, (size_t)(end - start))) {
		http1_refuse(conn, 400);
		return false;
	}
	line = http1_line(&pos, end);
	status = http1_request_line(h, line, &target);
	while (status == 0 && (line = http1_line(&pos, end)) != NULL && *line)
		status = http1_add_header(conn, line);
	if (status == 0)
		status = http1_body_kind(conn);
	if (status != 0) {
		http1_refuse(conn, status);
		return false;
	}
	h->request = grpc_http_new(conn, &h->headers, h->method, target);
	if (!h->request)
		rp_grpc_conn_close(conn);
	return h->request != NULL;
}

static bool http1_take_body(struct rp_grpc_conn *conn)
{
	struct grpc_http1 *h = conn->http1;
	size_t n = RP_MIN(h->body_left, h->in_tail - h->in_head);

	if (n > 0 && grpc_http_add_body(h->request, h->in + h->in_head, n) < 0) {
		http1_refuse(conn, 413);
		return false;
	}
	h->in_head += n;
	h->body_left -= n;
	return h->body_left == 0;
}

static void http1_dispatch(struct rp_grpc_conn *conn)
{
	struct grpc_http1 *h = conn->http1;

	h->state = HTTP1_ANSWER;
	grpc_http_dispatch(h->request);
}

/* A line of the chunked coding. False: more is needed, or the connection ends. */
static bool http1_chunk_line(struct rp_grpc_conn *conn)
{
	struct grpc_http1 *h = conn->http1;
	char *pos = (char *)h->in + h->in_head, *end = (char *)h->in + h->in_tail, *line, *stop;

	line = http1_line(&pos, end);
	if (!line) {
		if (end - pos > HTTP1_CHUNK_LINE_BYTES)
			http1_refuse(conn, 400);
		return false;
	}
	h->in_head = (size_t)((uint8_t *)pos - h->in);
	if (h->state == HTTP1_TRAILERS) {
		if (!*line)
			http1_dispatch(conn);
		return true;
	}
	if (h->state == HTTP1_CHUNK_END) {
		if (*line) {
			http1_refuse(conn, 400);
			return false;
		}
		h->state = HTTP1_CHUNK_SIZE;
		return true;
	}
	if (!isxdigit((unsigned char)*line) || strspn(line, "0123456789abcdefABCDEF") > 12) {
		http1_refuse(conn, 400);
		return false;
	}
	h->body_left = strtoull(line, &stop, 16);
	if (*stop && *stop != ';' && *stop != ' ') {
		http1_refuse(conn, 400);
		return false;
	}
	h->state = h->body_left > 0 ? HTTP1_CHUNK : HTTP1_TRAILERS;
	return true;
}

/* One step; false: wait for input, for an answer, or for the end. */
static bool http1_step(struct rp_grpc_conn *conn)
{
	struct grpc_http1 *h = conn->http1;

	switch (h->state) {
	case HTTP1_HEAD:
		return http1_head(conn);
	case HTTP1_BODY:
		if (!http1_take_body(conn))
			return false;
		http1_dispatch(conn);
		return true;
	case HTTP1_CHUNK:
		if (!http1_take_body(conn))
			return false;
		h->state = HTTP1_CHUNK_END;
		return true;
	case HTTP1_CHUNK_SIZE:
	case HTTP1_CHUNK_END:
	case HTTP1_TRAILERS:
		return http1_chunk_line(conn);
	case HTTP1_ANSWER:
	case HTTP1_CLOSE:
		break;
	}
	return false;
}

static void http1_parse(struct rp_grpc_conn *conn)
{
	struct grpc_http1 *h = conn->http1;

	h->dispatching = true;
	while (!conn->h2.dead && !conn->h2.closing && http1_step(conn))
		;
	h->dispatching = false;
	if (h->in_head == h->in_tail) {
		free(h->in);
		h->in = NULL;
		h->in_head = h->in_tail = h->in_size = 0;
	}
	if (h->state == HTTP1_ANSWER && h->in_tail - h->in_head > HTTP1_AHEAD_BYTES)
		grpc_wire_hold_input(&conn->h2.wire, true);
}

void grpc_http1_input(struct rp_grpc_conn *conn, const uint8_t *data, size_t length)
{
	struct grpc_http1 *h = conn->http1;
	size_t have = h->in_tail - h->in_head;

	if (h->state == HTTP1_CLOSE)
		return;
	if (h->in_tail + length > h->in_size) {
		size_t size = have + length;
		uint8_t *in = malloc(size);

		if (!in) {
			grpc_h2_lost(&conn->h2, -ENOMEM, strerror(ENOMEM));
			return;
		}
		if (have > 0)
			memcpy(in, h->in + h->in_head, have);
		free(h->in);
		h->in = in;
		h->in_head = 0;
		h->in_tail = have;
		h->in_size = size;
	}
	memcpy(h->in + h->in_tail, data, length);
	h->in_tail += length;
	http1_parse(conn);
}

bool grpc_http1_ended(struct rp_grpc_conn *conn)
{
	struct grpc_http1 *h = conn->http1;

	h->ended = true;
	if (h->request && h->request->endless)
		return false;
	if (h->state != HTTP1_ANSWER)
		return h->state == HTTP1_CLOSE && conn->h2.closing;
	grpc_wire_hold_input(&conn->h2.wire, true);
	return true;
}
