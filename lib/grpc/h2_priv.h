/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What a server's connection and a client's channel share: an HTTP/2 session on a wire, streams
 * that carry gRPC messages either way, flow control as room, and one flush a turn.
 *
 * The owner embeds a grpc_h2 and, per stream, a grpc_stream, and gets the events through ops. No op
 * may free the grpc_h2; freeing a stream is the business of stream_closed alone, which comes from
 * nghttp2 or from grpc_h2_close_streams().
 */

#include <nghttp2/nghttp2.h>

#include <base/list.h>
#include "wire_priv.h"

#define GRPC_PREFIX_BYTES 5u
/* What one turn hands to the kernel at most in one write, and the most one connection gets a turn.
 */
#define GRPC_WRITE_BYTES (128u << 10)
#define GRPC_WRITES_MAX 8
#define GRPC_READ_BYTES (64u << 10)
#define GRPC_READS_MAX 8
/*
 * What one connection's input may cost the others a turn. Few bytes can ask for much: a read is
 * made smaller where the last ones cost more than that.
 */
#define GRPC_READ_NS (2 * RP_NS_PER_MS)
#define GRPC_READ_BYTES_MIN 1024u
#define GRPC_READ_BYTES_FIRST 8192u
/* Room that a connection offers beyond what the kernel has taken. */
#define GRPC_ROOM_BYTES (256u << 10)
/* Frames that may wait behind a socket that takes no more, before we stop reading requests. */
#define GRPC_FRAMES_WAITING_MAX 4096

/* A message on its way out. */
struct grpc_msg {
	struct rp_list node;
	struct grpc_stream *stream;
	uint64_t cookie;
	uint64_t mark;	       /* position of its end among the plain bytes of the wire */
	size_t length, offset; /* offset counts the prefix */
	uint8_t prefix[GRPC_PREFIX_BYTES];
	uint8_t *data; /* behind the struct, or from malloc */
	bool owned;
};

enum grpc_bad {
	GRPC_BAD_FLAG,	    /* the compressed flag is neither 0 nor 1 */
	GRPC_BAD_SIZE,	    /* over message_bytes_max */
	GRPC_BAD_TRUNCATED, /* the stream ended inside a message */
	GRPC_BAD_MEMORY,    /* over the connection's or the owner's bytes, or no memory */
};

struct grpc_stream {
	struct rp_list node;	  /* of the connection's streams */
	struct rp_list room_node; /* of those that wait for room */
	struct grpc_h2 *h2;
	int32_t id;
	/* out */
	struct rp_list out;
	size_t out_bytes; /* queued, not framed */
	size_t unwritten; /* framed with a cookie, not written */
	bool out_eof;	  /* nothing follows what is queued */
	bool deferred;	  /* nghttp2 waits for resume */
	bool compressed;  /* the message being pushed is */
	bool raw;	  /* no gRPC prefixes: the body of an HTTP answer */
	size_t room_wanted;
	/* in */
	size_t message_bytes_max;
	uint8_t prefix[GRPC_PREFIX_BYTES];
	unsigned prefix_have;
	uint8_t *body; /* a message in parts */
	size_t body_have, body_size, body_length;
	uint8_t *held; /* raw bytes while paused */
	size_t held_head, held_tail, held_size;
	uint64_t in_total; /* bytes that came */
	size_t owed;	   /* held bytes that the connection's window has not got back */
	bool paused, in_eof, in_done;
	bool in_discard; /* what comes is not wanted any more */
	struct rp_loop_task resume_task;
};

struct grpc_h2_ops {
	/** One message; `data` borrowed. */
	void (*message)(struct grpc_stream *s, bool compressed, const uint8_t *data, size_t length);
	/** Raw streams: a piece of the body. */
	void (*body)(struct grpc_stream *s, const uint8_t *data, size_t length);
	/** The other side ended the stream properly. */
	void (*half_closed)(struct grpc_stream *s);
	/** Bad input; the stream discards what follows. `length`: of the message. */
	void (*bad)(struct grpc_stream *s, enum grpc_bad why, size_t length);
	/** All is framed and out_eof is set: submit trailers. NULL: END_STREAM on the last DATA. */
	void (*trailers)(struct grpc_stream *s);
	void (*room)(struct grpc_stream *s);
	void (*written)(struct grpc_stream *s, uint64_t cookie);
	/** Frees the stream, after grpc_stream_release(). */
	void (*stream_closed)(struct grpc_stream *s, uint32_t error_code);
	/** Before output is collected. */
	void (*before_flush)(struct grpc_h2 *h2);
	/** After as much was written as is. May be NULL. */
	void (*after_flush)(struct grpc_h2 *h2);
	/** Input while there is no session yet. */
	void (*input)(struct grpc_h2 *h2, const uint8_t *data, size_t length);
	/** End of input; true: the owner ends the connection itself. May be NULL. */
	bool (*ended)(struct grpc_h2 *h2);
	/** Nothing more is sent: the owner sees to it that waiting for the peer's end is bounded.
	 * NULL: no such wait. */
	void (*linger)(struct grpc_h2 *h2);
	/** Once; the owner tears down later, not within. `error`: -errno of the wire, 0 for an end.
	 */
	void (*lost)(struct grpc_h2 *h2, int error, const char *reason);
	/** The outermost function of the connection returns, and orphan is set. */
	void (*orphaned)(struct grpc_h2 *h2);
	/** Whether the owner can hold `more` further bytes of incoming messages. */
	bool (*admit)(struct grpc_h2 *h2, size_t more);
};

struct grpc_h2 {
	struct grpc_wire wire;
	struct rp_loop *loop;
	nghttp2_session *session; /* NULL before the protocol is known */
	const struct grpc_h2_ops *ops;
	struct rp_loop_task flush_task, read_task;
	struct rp_list streams, room_waiters;
	struct rp_list unmarked, written; /* messages with a cookie */
	size_t stream_count;
	size_t fresh_bytes; /* queued since the last flush */
	size_t out_bytes;   /* queued by all streams, not framed */
	size_t in_bytes;    /* parts of messages and held bytes of all streams */
	size_t in_bytes_max, in_window_bytes;
	int32_t window_seen; /* the largest window the peer gave the connection */
	uint64_t heard_ns;
	size_t read_bytes; /* of the next read */
	uint64_t messages_in, messages_out;
	unsigned busy;	/* functions of the connection on the stack */
	bool orphan;	/* the owner waits for them to return */
	bool dead;	/* lost was called */
	bool closing;	/* lost once all is written */
	bool lingering; /* all is written: input is read and dropped until the peer's end */
	int end_error;	/* what lost is told after lingering */
};

/** Sets up all but the wire. */
void grpc_h2_init(struct grpc_h2 *h2, struct rp_loop *loop, const struct grpc_h2_ops *ops);
/** Callbacks that are the same on both sides; the owner adds headers and frames. */
void grpc_h2_set_callbacks(nghttp2_session_callbacks *callbacks);
/** SETTINGS and the connection's window. 0 or a negative nghttp2 error. */
int grpc_h2_submit_settings(struct grpc_h2 *h2, const nghttp2_settings_entry *entries, size_t count,
	uint32_t conn_window_bytes);
/** Around whatever may call back; leave comes last, the connection may be gone after it. */
static inline void grpc_h2_enter(struct grpc_h2 *h2)
{
	h2->busy++;
}
void grpc_h2_leave(struct grpc_h2 *h2);
/** Wire events: give it to rp_loop_fd. */
void grpc_h2_on_events(void *ctx, uint32_t events);
/** Feeds bytes to the session. */
void grpc_h2_input(struct grpc_h2 *h2, const uint8_t *data, size_t length);
/** Output leaves at the end of this turn. */
void grpc_h2_post_flush(struct grpc_h2 *h2);
/** GOAWAY with `error`, all output, then lost. */
void grpc_h2_terminate(struct grpc_h2 *h2, uint32_t error);
void grpc_h2_lost(struct grpc_h2 *h2, int error, const char *reason);
/** stream_closed for each. */
void grpc_h2_close_streams(struct grpc_h2 *h2, uint32_t error_code);
/** Session, tasks and wire; the streams are gone before. */
void grpc_h2_release(struct grpc_h2 *h2);
/** Bytes queued and not taken by the kernel. */
size_t grpc_h2_queued_bytes(const struct grpc_h2 *h2);

void grpc_msg_free(struct grpc_msg *m);
/** Adds a stream to its connection. */
void grpc_stream_init(struct grpc_stream *s, struct grpc_h2 *h2, int32_t id);
/** Frees what it holds and takes it off its connection. */
void grpc_stream_release(struct grpc_stream *s);
/** Queues a message, or raw bytes. `take`: data is from malloc and taken, also on failure. */
int grpc_stream_push(
	struct grpc_stream *s, const void *data, size_t length, bool take, uint64_t cookie);
/** Nothing follows. */
void grpc_stream_end_output(struct grpc_stream *s);
/** Drops messages of which nothing is framed yet. */
void grpc_stream_drop_output(struct grpc_stream *s);
/** Data source of nghttp2; its ptr is the stream. */
ssize_t grpc_stream_read(nghttp2_session *session, int32_t id, uint8_t *buf, size_t length,
	uint32_t *flags, nghttp2_data_source *source, void *user);
size_t grpc_stream_room(const struct grpc_stream *s);
bool grpc_stream_fits(struct grpc_stream *s, size_t length);
void grpc_stream_pause(struct grpc_stream *s);
void grpc_stream_resume(struct grpc_stream *s);
/** What comes in is dropped from now on, and what is held is freed. */
void grpc_stream_discard_input(struct grpc_stream *s);
/** Bytes of a DATA frame, and its END_STREAM. */
void grpc_stream_input(struct grpc_stream *s, const uint8_t *data, size_t length);
void grpc_stream_input_end(struct grpc_stream *s);

static inline struct grpc_stream *grpc_h2_stream(struct grpc_h2 *h2, int32_t id)
{
	return nghttp2_session_get_stream_user_data(h2->session, id);
}
