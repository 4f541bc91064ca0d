/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Requests over HTTP on the loop: libcurl does the protocol. */

#include <grpc/loop.h>
#include <sink/sink.h>

/** Of an answer so much is kept: enough for a text of why. */
#define SINK_ANSWER_MAX 65536

struct sink_http;
struct sink_request;

struct sink_answer {
	long status;	   /**< of HTTP; 0: there was no answer */
	const char *error; /**< why there was none */
	const char *body;  /**< ended by a NUL */
};
typedef void (*sink_answer_fn)(void *ctx, const struct sink_answer *a);

struct sink_http *sink_http_new(struct rp_loop *loop);
/** Requests end without a word. NULL is fine. */
void sink_http_free(struct sink_http *h);
/**
 * POST; `body` is borrowed until it is done or cancelled, texts are copied. NULL: libcurl refused.
 */
struct sink_request *sink_http_post(struct sink_http *h, const char *url, const char *user,
	const char *password, struct rp_span body, uint64_t timeout_ms, sink_answer_fn done,
	void *ctx);
void sink_http_cancel(struct sink_request *r);
