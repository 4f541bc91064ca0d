/* SPDX-License-Identifier: Apache-2.0 */
#include <sink/http_priv.h>

#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include <curl/curl.h>

#include <base/assert.h>
#include <base/list.h>

struct sink_request {
	struct rp_list node; /**< http->requests */
	struct sink_http *h;
	CURL *easy;
	struct curl_slist *headers;
	sink_answer_fn done;
	void *ctx;
	size_t length;
	char body[SINK_ANSWER_MAX];
	char error[CURL_ERROR_SIZE];
};

struct http_socket {
	struct rp_list node; /**< http->sockets */
	struct sink_http *h;
	struct rp_loop_fd watch;
};

struct sink_http {
	struct rp_loop *loop;
	CURLM *multi;
	struct rp_loop_timer timer;
	struct rp_list requests, sockets;
};

static void *alloc(size_t size)
{
	void *p = calloc(1, size);

	RP_ASSERT(p != NULL);
	return p;
}

static void request_free(struct sink_request *r)
{
	rp_list_unlink(&r->node);
	curl_multi_remove_handle(r->h->multi, r->easy);
	curl_easy_cleanup(r->easy);
	curl_slist_free_all(r->headers);
	free(r);
}

/* ---- libcurl's events ---- */

static void finish_all(struct sink_http *h)
{
	CURLMsg *m;
	int left;

	while ((m = curl_multi_info_read(h->multi, &left))) {
		struct sink_answer a = {0};
		struct sink_request *r;
		CURLcode rc = m->data.result;

		if (m->msg != CURLMSG_DONE)
			continue;
		curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, (char **)&r);
		curl_easy_getinfo(m->easy_handle, CURLINFO_RESPONSE_CODE, &a.status);
		a.body = r->body;
		a.error = "";
		if (rc != CURLE_OK) {
			a.status = 0;
			a.error = r->error[0] ? r->error : curl_easy_strerror(rc);
		}
		/* The handle leaves first: what `done` begins may use its connection. */
		curl_multi_remove_handle(h->multi, r->easy);
		r->done(r->ctx, &a);
		request_free(r);
	}
}

static void on_socket(void *ctx, uint32_t events)
{
	struct http_socket *s = ctx;
	struct sink_http *h = s->h;
	int mask = 0, running;

	if (events & EPOLLIN)
		mask |= CURL_CSELECT_IN;
	if (events & EPOLLOUT)
		mask |= CURL_CSELECT_OUT;
	if (events & (EPOLLERR | EPOLLHUP))
		mask |= CURL_CSELECT_ERR;
	curl_multi_socket_action(h->multi, s->watch.fd, mask, &running);
	finish_all(h);
}

static void on_timer(void *ctx)
{
	struct sink_http *h = ctx;
	int running;

	curl_multi_socket_action(h->multi, CURL_SOCKET_TIMEOUT, 0, &running);
	finish_all(h);
}

static int timer_wanted(CURLM *multi, long ms, void *ctx)
{
	struct sink_http *h = ctx;

	if (ms < 0)
		rp_loop_timer_cancel(&h->timer);
	else
		rp_loop_timer_in(h->loop, &h->timer, (uint64_t)ms * RP_NS_PER_MS);
	return 0;
}

static void socket_free(struct http_socket *s)
{
	rp_loop_fd_remove(&s->watch);
	rp_list_unlink(&s->node);
	free(s);
}

static int socket_wanted(CURL *easy, curl_socket_t fd, int what, void *ctx, void *known)
{
	struct sink_http *h = ctx;
	struct http_socket *s = known;
	uint32_t events = 0;

	if (what == CURL_POLL_REMOVE) {
		if (s)
			socket_free(s);
		curl_multi_assign(h->multi, fd, NULL);
		return 0;
	}
	if (what & CURL_POLL_IN)
		events |= EPOLLIN;
	if (what & CURL_POLL_OUT)
		events |= EPOLLOUT;
	if (!s) {
		s = alloc(sizeof(*s));
		s->h = h;
		rp_loop_fd_setup(&s->watch, on_socket, s);
		rp_list_push_back(&h->sockets, &s->node);
		curl_multi_assign(h->multi, fd, s);
	}
	if (s->watch.loop)
		rp_loop_fd_modify(&s->watch, events);
	else if (rp_loop_fd_add(h->loop, &s->watch, fd, events) != 0)
		return -1;
	return 0;
}

static size_t on_body(char *data, size_t size, size_t count, void *ctx)
{
	struct sink_request *r = ctx;
	size_t n = RP_MIN(size * count, sizeof(r->body) - 1 - r->length);

	memcpy(r->body + r->length, data, n);
	r->length += n;
	return size * count;
}

/* ---- requests ---- */

struct sink_request *sink_http_post(struct sink_http *h, const char *url, const char *user,
	const char *password, struct rp_span body, uint64_t timeout_ms, sink_answer_fn done,
	void *ctx)
{
	struct sink_request *r = alloc(sizeof(*r));

	r->h = h;
	r->done = done;
	r->ctx = ctx;
	rp_list_init(&r->node);
	r->easy = curl_easy_init();
	RP_ASSERT(r->easy != NULL);
	/* A server that is asked to go on before the body comes answers a trip later. */
	r->headers = curl_slist_append(NULL, "Expect:");
	r->headers = curl_slist_append(r->headers, "Content-Type: application/x-ndjson");
	curl_easy_setopt(r->easy, CURLOPT_URL, url);
	curl_easy_setopt(r->easy, CURLOPT_PRIVATE, r);
	curl_easy_setopt(r->easy, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(r->easy, CURLOPT_ERRORBUFFER, r->error);
	curl_easy_setopt(r->easy, CURLOPT_HTTPHEADER, r->headers);
	curl_easy_setopt(r->easy, CURLOPT_POST, 1L);
	curl_easy_setopt(r->easy, CURLOPT_POSTFIELDS, body.length ? (const char *)body.data : "");
	curl_easy_setopt(r->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)body.length);
	curl_easy_setopt(r->easy, CURLOPT_TIMEOUT_MS, (long)timeout_ms);
	curl_easy_setopt(r->easy, CURLOPT_WRITEFUNCTION, on_body);
	curl_easy_setopt(r->easy, CURLOPT_WRITEDATA, r);
	curl_easy_setopt(r->easy, CURLOPT_PROXY, "");
	curl_easy_setopt(r->easy, CURLOPT_PROTOCOLS_STR, "http,https");
	if (user && user[0]) {
		curl_easy_setopt(r->easy, CURLOPT_HTTPAUTH, (long)CURLAUTH_BASIC);
		curl_easy_setopt(r->easy, CURLOPT_USERNAME, user);
		curl_easy_setopt(r->easy, CURLOPT_PASSWORD, password ? password : "");
	}
	if (curl_multi_add_handle(h->multi, r->easy) != CURLM_OK) {
		request_free(r);
		return NULL;
	}
	rp_list_push_back(&h->requests, &r->node);
	return r;
}

void sink_http_cancel(struct sink_request *r)
{
	if (r)
		request_free(r);
}

struct sink_http *sink_http_new(struct rp_loop *loop)
{
	struct sink_http *h = alloc(sizeof(*h));

	curl_global_init(CURL_GLOBAL_DEFAULT);
	h->loop = loop;
	rp_list_init(&h->requests);
	rp_list_init(&h->sockets);
	rp_loop_timer_setup(&h->timer, on_timer, h);
	h->multi = curl_multi_init();
	RP_ASSERT(h->multi != NULL);
	curl_multi_setopt(h->multi, CURLMOPT_SOCKETFUNCTION, socket_wanted);
	curl_multi_setopt(h->multi, CURLMOPT_SOCKETDATA, h);
	curl_multi_setopt(h->multi, CURLMOPT_TIMERFUNCTION, timer_wanted);
	curl_multi_setopt(h->multi, CURLMOPT_TIMERDATA, h);
	return h;
}

void sink_http_free(struct sink_http *h)
{
	if (!h)
		return;
	while (!rp_list_empty(&h->requests))
		request_free(rp_list_entry(h->requests.next, struct sink_request, node));
	curl_multi_cleanup(h->multi);
	while (!rp_list_empty(&h->sockets))
		socket_free(rp_list_entry(h->sockets.next, struct http_socket, node));
	rp_loop_timer_cancel(&h->timer);
	free(h);
	curl_global_cleanup();
}
