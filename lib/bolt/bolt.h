/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Files of bbolt, which an etcd snapshot is: written in one pass from sorted pairs, and read. A
 * file is pages of 4096 bytes: two meta pages, the list of free pages (empty here), for each bucket
 * its leaves and the branches above them, then a leaf that names the buckets.
 *
 * To write:
 *   1. rp_bolt_writer_new() with the buckets: it asks for the size of each pair and lays pages out.
 *   2. rp_bolt_write() until it gives 0: rp_bolt_writer_bytes() in all. Pairs are asked for once
 *      each, bucket by bucket, in order.
 * To read:
 *   1. rp_bolt_open() on the whole file.
 *   2. rp_bolt_each() per bucket.
 *
 * Sans-I/O; allocates.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <base/units.h>

#define RP_BOLT_PAGE_BYTES 4096u

/** A source of pairs, sorted by key (unsigned bytes), no key twice. */
struct rp_bolt_bucket {
	const char *name;
	uint64_t count;
	/** Bytes of the i-th key and value. */
	void (*size)(void *ctx, uint64_t i, uint32_t *key, uint32_t *value);
	/** The i-th pair, of those sizes. */
	void (*fill)(void *ctx, uint64_t i, uint8_t *key, uint8_t *value);
	/** The i-th key alone: a branch names the first key of each page below it. */
	void (*key)(void *ctx, uint64_t i, uint8_t *key);
	void *ctx;
};

struct rp_bolt_writer;

/** `buckets` are sorted by name, and borrowed like what they refer to. NULL without memory. */
struct rp_bolt_writer *rp_bolt_writer_new(const struct rp_bolt_bucket *buckets, uint32_t count);
uint64_t rp_bolt_writer_bytes(const struct rp_bolt_writer *w);
/** The next bytes of the file; 0 at its end, -ENOMEM. */
ssize_t rp_bolt_write(struct rp_bolt_writer *w, uint8_t *out, size_t size);
/** NULL is fine. */
void rp_bolt_writer_free(struct rp_bolt_writer *w);

struct rp_bolt_file {
	struct rp_span bytes; /**< borrow */
	uint32_t page_bytes;
	uint64_t root; /**< page of the buckets' names */
};

/** 0, or -EINVAL and *why (constant). */
int rp_bolt_open(struct rp_bolt_file *f, struct rp_span bytes, const char **why);
/**
 * Calls `fn` for each pair of the bucket, in order; `fn` ends it by false. 0, -ENOENT for a bucket
 * that is not there, -ECANCELED when `fn` ended it, -EINVAL and *why for a file that is broken.
 */
int rp_bolt_each(const struct rp_bolt_file *f, const char *bucket,
	bool (*fn)(void *ctx, struct rp_span key, struct rp_span value), void *ctx,
	const char **why);
