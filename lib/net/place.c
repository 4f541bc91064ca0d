/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>

#include <net/place.h>

#define PLACE_INPUT4 12
#define PLACE_INPUT6 36
#define PLACE_PORT_BITS 16

const uint8_t rp_place_key_default[RP_PLACE_KEY_BYTES] = {0x4c, 0xb8, 0x57, 0xc4, 0xa9, 0x88, 0x71,
	0x1f, 0x13, 0x04, 0x0e, 0x5f, 0xa5, 0x36, 0x6e, 0x6d, 0x41, 0x5e, 0x96, 0x86, 0x30, 0x6a,
	0x53, 0x99, 0x10, 0xe5, 0xee, 0x2e, 0xf5, 0x8d, 0x51, 0xa3, 0x16, 0xbc, 0xca, 0x1f, 0xe1,
	0x1b, 0xbd, 0xf2};

/* The 32 bits of the key from bit `at` on: what a set bit of the input there adds to the hash. */
static uint32_t place_window(const uint8_t key[RP_PLACE_KEY_BYTES], unsigned at)
{
	uint64_t w = 0;

	for (unsigned i = 0; i < 5; i++)
		w = w << 8 | (at / 8 + i < RP_PLACE_KEY_BYTES ? key[at / 8 + i] : 0);
	return (uint32_t)(w >> (8 - at % 8));
}

int rp_place_init(struct rp_place *p, const uint8_t key[RP_PLACE_KEY_BYTES], const uint8_t *table,
	uint32_t table_size)
{
	if (table_size == 0 || table_size > RP_PLACE_TABLE_MAX ||
		(table_size & (table_size - 1)) != 0)
		return -EINVAL;
	for (uint32_t i = 0; i < table_size; i++)
		if (table[i] >= RP_PLACE_SHARDS_MAX)
			return -EINVAL;
	*p = (struct rp_place){.table_size = table_size};
	memcpy(p->key, key, sizeof(p->key));
	memcpy(p->table, table, table_size);
	for (unsigned half = 0; half < 72; half++)
		for (unsigned value = 0; value < 16; value++)
			for (unsigned bit = 0; bit < 4; bit++)
				if (value >> (3 - bit) & 1)
					p->flips[half][value] ^= place_window(key, half * 4 + bit);
	return 0;
}

int rp_place_init_spread(struct rp_place *p, const uint8_t key[RP_PLACE_KEY_BYTES],
	uint32_t table_size, uint64_t shards)
{
	uint8_t table[RP_PLACE_TABLE_MAX];
	uint64_t left = shards;

	if (shards == 0 || table_size > RP_PLACE_TABLE_MAX)
		return -EINVAL;
	for (uint32_t i = 0; i < table_size; i++) {
		left = left ? left : shards;
		table[i] = (uint8_t)__builtin_ctzll(left);
		left &= left - 1;
	}
	return rp_place_init(p, key, table, table_size);
}

static inline uint32_t place_bytes(
	const struct rp_place *p, unsigned at, const uint8_t *bytes, unsigned n)
{
	uint32_t hash = 0;

	for (unsigned i = 0; i < n; i++)
		hash ^= p->flips[2 * (at + i)][bytes[i] >> 4] ^
			p->flips[2 * (at + i) + 1][bytes[i] & 15];
	return hash;
}

uint32_t rp_place_hash(const struct rp_place *p, const struct rp_place_flow *f)
{
	const uint8_t ports[4] = {(uint8_t)(f->src_port >> 8), (uint8_t)f->src_port,
		(uint8_t)(f->dst_port >> 8), (uint8_t)f->dst_port};

	if (rp_ip_is4(f->src))
		return place_bytes(p, 0, f->src->b + 12, 4) ^ place_bytes(p, 4, f->dst->b + 12, 4) ^
		       place_bytes(p, 8, ports, 4);
	return place_bytes(p, 0, f->src->b, 16) ^ place_bytes(p, 16, f->dst->b, 16) ^
	       place_bytes(p, 32, ports, 4);
}

uint64_t rp_place_shards(const struct rp_place *p)
{
	uint64_t shards = 0;

	for (uint32_t i = 0; i < p->table_size; i++)
		shards |= 1ull << p->table[i];
	return shards;
}

/* What flipping bit `bit` of a port flips; the port begins at byte `at` of the input. */
static uint32_t place_flip(const struct rp_place *p, unsigned at, unsigned bit)
{
	return p->flips[2 * at + 3 - bit / 4][1u << bit % 4];
}

/* All that changes is in one word, so that a step is one exclusive-or: of the hashes no more than
 * the bits that a table looks at. */
#define STATE_HASH(hash, end) ((uint64_t)((hash) & (RP_PLACE_TABLE_MAX - 1)) << 16 * (end))
#define STATE_PORT(port) ((uint64_t)(port) << 32)

static inline uint32_t state_hash(uint64_t state, unsigned end)
{
	return (uint32_t)(state >> 16 * end);
}

/* One end of the search; `at`: of the local port in what this end receives. */
static void search_end(struct rp_place_search *s, unsigned end, const struct rp_place_end *e,
	const struct rp_place_flow *flow, unsigned at)
{
	static const uint8_t one_for_all[1];

	if (!e->place) {
		s->table[end] = one_for_all;
		s->shards[end] = 1;
		return;
	}
	s->table[end] = e->place->table;
	s->shards[end] = e->shards;
	s->table_mask[end] = e->place->table_size - 1;
	s->state |= STATE_HASH(rp_place_hash(e->place, flow), end);
	for (unsigned i = 0; i < s->bits; i++)
		s->flip[i] |= STATE_HASH(place_flip(e->place, at, s->bits - 1 - i), end);
}

void rp_place_search_begin(struct rp_place_search *s, const struct rp_place_search_config *c)
{
	unsigned source_at = rp_ip_is4(c->local) ? 8 : 32;
	struct rp_place_flow in = {.src = c->remote, .dst = c->local, .src_port = c->remote_port};
	struct rp_place_flow out = {.src = c->local, .dst = c->remote, .dst_port = c->remote_port};
	uint32_t gray;
	uint16_t port;

	*s = (struct rp_place_search){.first = c->port_first, .last = c->port_last};
	/* The bits that the first and the last port have in common stay; all else is walked. */
	while ((uint32_t)(c->port_first ^ c->port_last) >> s->bits)
		s->bits++;
	s->mask = (1u << s->bits) - 1;
	s->step = c->step & s->mask;
	s->left = s->mask + 1;
	port = (uint16_t)(c->port_first ^ ((c->port_first ^ c->salt) & s->mask));
	gray = s->step ^ s->step >> 1;
	/*
	 * The highest bit flips most often: where the range ends early, what is beyond it comes now
	 * and then and not in one long run.
	 */
	for (unsigned i = 0; i < s->bits; i++) {
		uint16_t bit = (uint16_t)(1u << (s->bits - 1 - i));

		s->flip[i] = STATE_PORT(bit);
		port ^= gray >> i & 1 ? bit : 0;
	}
	s->state = STATE_PORT(port);
	in.dst_port = out.src_port = port;
	search_end(s, 0, &c->near, &in, source_at + 2);
	search_end(s, 1, &c->far, &out, source_at);
	s->ends = c->far.place ? 2 : 1;
	/* The step that closes the circle flips what the one half-way does. */
	s->flip[s->bits] = s->bits > 0 ? s->flip[s->bits - 1] : 0;
}

static inline bool search_fits(const struct rp_place_search *s, unsigned end, uint64_t state)
{
	return s->shards[end] >> s->table[end][state_hash(state, end) & s->table_mask[end]] & 1;
}

static inline bool search_fits_ends(const struct rp_place_search *s, bool both, uint64_t state)
{
	return search_fits(s, 0, state) & (!both || search_fits(s, 1, state));
}

/*
 * Four steps at once, while none of them fits: of four only the last flips another bit than the
 * lowest two. From a step that is a multiple of four.
 */
__attribute__((always_inline)) static inline void search_skip(
	const struct rp_place_search *s, bool both, uint64_t *state, uint32_t *step, uint32_t *left)
{
	const uint64_t flip0 = s->flip[0], flip1 = s->flip[1];
	const uint32_t closes = 1u << s->bits;

	for (; *left >= 4; *left -= 4) {
		uint64_t a = *state, b = a ^ flip0, c = b ^ flip1, d = c ^ flip0;

		if (search_fits_ends(s, both, a) | search_fits_ends(s, both, b) |
			search_fits_ends(s, both, c) | search_fits_ends(s, both, d))
			return;
		*step = (*step + 4) & s->mask;
		*state = d ^ s->flip[__builtin_ctz(*step | closes)];
	}
}

uint16_t rp_place_search_next(struct rp_place_search *s)
{
	const uint32_t closes = 1u << s->bits;
	uint64_t state = s->state;
	uint32_t step = s->step, left = s->left;
	uint16_t found = 0;

	for (; left > 0 && found == 0; left--) {
		uint16_t port;

		if (step % 4 == 0 && s->ends == 1)
			search_skip(s, false, &state, &step, &left);
		else if (step % 4 == 0)
			search_skip(s, true, &state, &step, &left);
		if (left == 0)
			break;
		port = (uint16_t)(state >> 32);
		if (search_fits_ends(s, true, state) && port >= s->first && port <= s->last)
			found = port;
		step = (step + 1) & s->mask;
		state ^= s->flip[__builtin_ctz(step | closes)]; /* 0 closes the circle */
	}
	s->state = state;
	s->step = step;
	s->left = left;
	return found;
}
