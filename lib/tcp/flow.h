/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The flow table: from the addresses and ports of a segment to an index, by open addressing with
 * linear probing over slots of 8 bytes, at most half full. Removal moves later slots back, so there
 * are no tombstones. Keys stay where the indexed records are; the table asks for them.
 */

#include <stdbool.h>
#include <stdint.h>

#include <net/net.h>

#define FLOW_NONE UINT32_MAX

struct flow_key {
	union rp_ip remote;
	uint16_t local_port, remote_port; /* host byte order */
	uint32_t local;			  /* index of the local address */
};
_Static_assert(sizeof(struct flow_key) == 24, "hashed as three words");

static inline bool flow_key_equal(const struct flow_key *a, const struct flow_key *b)
{
	return a->local_port == b->local_port && a->remote_port == b->remote_port &&
	       rp_ip_equal(&a->remote, &b->remote) && a->local == b->local;
}

struct flow_slot {
	uint32_t tag;	/* the hash */
	uint32_t index; /* FLOW_NONE: empty */
};

struct flow_table {
	struct flow_slot *slots;
	uint32_t mask, count;
	uint64_t secret[2];
	/* Records below `split` are in a, the rest in b: connections and TIME-WAIT records. */
	const uint8_t *a, *b;
	uint32_t a_stride, b_stride, split;
};

/** `entries_max` is what it holds. 0 or -ENOMEM. The key is at the begin of each record. */
int flow_init(struct flow_table *f, uint32_t entries_max, const uint64_t secret[2]);
void flow_free(struct flow_table *f);
/** FLOW_NONE: not there. */
uint32_t flow_find(const struct flow_table *f, const struct flow_key *key, uint32_t hash);
/** The key is not there yet, and there is room. */
void flow_insert(struct flow_table *f, uint32_t hash, uint32_t index);
/** `index` is there under `hash`. */
void flow_remove(struct flow_table *f, uint32_t hash, uint32_t index);
/** The entry of `from` under `hash` becomes that of `to`, whose key is the same. */
void flow_replace(struct flow_table *f, uint32_t hash, uint32_t from, uint32_t to);

static inline uint64_t flow_mix(uint64_t a, uint64_t b)
{
	__uint128_t p = (__uint128_t)a * b;

	return (uint64_t)p ^ (uint64_t)(p >> 64);
}

/** Keyed, so that a peer cannot aim at one slot. */
static inline uint32_t flow_hash(const struct flow_table *f, const struct flow_key *key)
{
	uint64_t tail =
		(uint64_t)key->local << 32 | (uint64_t)key->local_port << 16 | key->remote_port;
	uint64_t h = flow_mix(key->remote.q[0] ^ f->secret[0], key->remote.q[1] ^ f->secret[1]);

	h = flow_mix(h ^ f->secret[1], tail ^ f->secret[0]);
	return (uint32_t)(h ^ h >> 32);
}

static inline void flow_prefetch(const struct flow_table *f, uint32_t hash)
{
	__builtin_prefetch(&f->slots[hash & f->mask]);
}

/** The connection that is probably meant, without a look at its key; NULL: none, or TIME-WAIT. */
static inline void *flow_guess(const struct flow_table *f, uint32_t hash)
{
	const struct flow_slot *s = &f->slots[hash & f->mask];

	return s->tag == hash && s->index < f->split
		       ? (void *)(uintptr_t)(f->a + (size_t)s->index * f->a_stride)
		       : NULL;
}
