/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include <base/mbuf.h>

#include "session.h"

/** Over a lossy channel: a control message, and a request, count as lost after so long. */
#define ASK_AGAIN_NS (100 * RP_NS_PER_MS)
#define REQUEST_LOST_NS (1 * RP_NS_PER_S)
/** Longer than an acknowledgement is delayed. */
#define REST_NS (3 * RP_NS_PER_MS)
/** Goodbyes of a client that nobody answers. */
#define BYES_MAX 5

void perf_session_fail(struct perf_session *s, const char *why)
{
	if (!s->finished)
		s->why = why;
	s->finished = true;
}

/* Buffers come in bulk, as a sender of many small messages would take them. */
static struct rte_mbuf *take_mbuf(struct perf_session *s)
{
	if (s->cache_count == 0) {
		if (rte_pktmbuf_alloc_bulk(s->pool, s->cache, PERF_CACHE_MBUFS) != 0)
			return rte_pktmbuf_alloc(s->pool);
		s->cache_count = PERF_CACHE_MBUFS;
	}
	return s->cache[--s->cache_count];
}

/* A message whose body is what the buffers hold already; NULL: no buffer. */
static struct rte_mbuf *make_message(
	struct perf_session *s, enum perf_message_kind kind, uint32_t bytes, uint64_t seq)
{
	struct perf_header h = {.bytes = bytes, .kind = (uint16_t)kind, .run = s->run, .seq = seq};
	struct rte_mbuf *first = take_mbuf(s), *last = first;
	uint32_t left = bytes, n;

	if (!first)
		return NULL;
	first->pkt_len = bytes;
	for (;;) {
		n = RP_MIN(left, s->segment_bytes);
		last->data_len = (uint16_t)n;
		left -= n;
		if (left == 0)
			break;
		last->next = take_mbuf(s);
		if (!last->next) {
			rte_pktmbuf_free(first);
			return NULL;
		}
		last = last->next;
		first->nb_segs++;
	}
	perf_header_write(rte_pktmbuf_mtod(first, void *), &h);
	return first;
}

static bool send_by(struct perf_session *s, unsigned lane, struct rte_mbuf *m, uint64_t now_ns)
{
	if (m && s->channel->send(s->channel, lane, m, now_ns) == 0)
		return true;
	rte_pktmbuf_free(m);
	return false;
}

static bool send_message(struct perf_session *s, struct rte_mbuf *m, uint64_t now_ns)
{
	return send_by(s, 0, m, now_ns);
}

static bool send_control(struct perf_session *s, enum perf_message_kind kind, uint64_t now_ns)
{
	struct rte_mbuf *m = make_message(s, kind, PERF_CONTROL_BYTES, 0);
	struct perf_body b = {
		.test = s->test,
		.size = s->message_bytes,
		.messages = s->messages,
		.bytes = s->bytes,
		.sum = s->sum,
		.faults = s->faults,
	};

	if (!m)
		return false;
	b = perf_body_swap(b);
	memcpy(rte_pktmbuf_mtod_offset(m, void *, PERF_HEADER_BYTES), &b, sizeof(b));
	s->asked_ns = now_ns;
	return send_message(s, m, now_ns);
}

static void reset_counts(struct perf_session *s)
{
	s->messages = s->bytes = s->faults = s->lost = s->seq = 0;
	s->sum = s->done_messages = 0;
}

/* The next run of a client: each test runs twice, and the first time is not counted. */
static void plan_run(struct perf_session *s)
{
	const struct perf_options *o = s->options;

	if (s->test_index >= o->test_count) {
		s->phase = PERF_PHASE_BYE;
		return;
	}
	s->run++;
	s->test = o->tests[s->test_index];
	s->message_bytes = (s->test == PERF_BULK ? o->bulk_size : o->size) - s->channel->overhead;
	reset_counts(s);
	s->phase = PERF_PHASE_START;
}

/* Between two counted runs, when all that was sent is acknowledged: what one run ends with, the
 * next begins with. */
static void rest(struct perf_session *s)
{
	s->phase = s->options->near ? PERF_PHASE_NEAR : PERF_PHASE_START;
	s->asked_ns = rp_clock_now(s->clock);
	if (!s->options->near)
		plan_run(s);
}

static bool turn_near(struct perf_session *s, uint64_t now_ns)
{
	double ns;

	if (now_ns < s->asked_ns + REST_NS)
		return false;
	ns = perf_line_ns(s->options->near_cpu);
	if (s->test_index > 0)
		s->results[s->test_index - 1].near_ns[1] = ns;
	if (s->test_index < s->options->test_count)
		s->results[s->test_index].near_ns[0] = ns;
	s->paused = true;
	plan_run(s);
	return true;
}

void perf_session_init(struct perf_session *s, const struct perf_options *options,
	struct perf_channel *channel, struct rte_mempool *pool, struct rp_clock_reader *clock,
	struct perf_result *results)
{
	*s = (struct perf_session){
		.options = options,
		.channel = channel,
		.pool = pool,
		.clock = clock,
		.results = results,
		.phase = PERF_PHASE_SERVE,
		.warmup = options->warmup_ns > 0,
		.segment_bytes = (uint32_t)rte_pktmbuf_data_room_size(pool) - RTE_PKTMBUF_HEADROOM,
	};
	if (channel->piece > 0)
		s->segment_bytes = RP_MIN(s->segment_bytes, channel->piece);
	if (results)
		rest(s);
}

void perf_session_fini(struct perf_session *s)
{
	rte_pktmbuf_free_bulk(s->cache, s->cache_count);
	s->cache_count = 0;
}

static void begin_run(struct perf_session *s, uint64_t now_ns)
{
	s->phase = PERF_PHASE_RUN;
	s->begin_ns = now_ns;
	s->end_ns = now_ns + (s->warmup ? s->options->warmup_ns : s->options->run_ns);
	s->request_due = s->test == PERF_RR;
	if (!s->warmup) {
		s->results[s->test_index].test = s->test;
		rp_hist_init(&s->results[s->test_index].rtt);
	}
}

static void end_run(struct perf_session *s, const struct perf_body *b, uint64_t now_ns)
{
	struct perf_result *r = &s->results[s->test_index];

	if (s->warmup) {
		s->warmup = false;
	} else {
		r->size = s->message_bytes + s->channel->overhead;
		r->elapsed_ns = now_ns - s->begin_ns;
		r->sent = s->messages;
		r->bytes_sent = s->bytes;
		r->sum_sent = s->sum;
		r->received = b->messages;
		r->bytes_received = b->bytes;
		r->sum_received = b->sum;
		r->faults = b->faults + s->faults;
		r->lost = s->lost;
		s->warmup = s->options->warmup_ns > 0;
		s->test_index++;
		rest(s);
		return;
	}
	plan_run(s);
}

static void send_request(struct perf_session *s, uint64_t now_ns)
{
	struct rte_mbuf *m = make_message(s, PERF_MESSAGE_REQUEST, s->message_bytes, s->seq);

	s->request_due = !send_message(s, m, now_ns);
	if (s->request_due)
		return;
	s->requested_ns = now_ns;
	s->messages++;
	s->bytes += s->message_bytes;
}

static void on_reply(struct perf_session *s, const struct perf_header *in)
{
	uint64_t now_ns = rp_clock_now(s->clock);

	if (s->phase != PERF_PHASE_RUN || s->test != PERF_RR)
		return;
	if (in->seq != s->seq || in->bytes != s->message_bytes) {
		s->faults++;
		return;
	}
	if (!s->warmup)
		rp_hist_record(&s->results[s->test_index].rtt, now_ns - s->requested_ns);
	s->seq++;
	if (now_ns < s->end_ns)
		send_request(s, now_ns);
	else
		s->phase = PERF_PHASE_DONE;
}

/* DATA and REQUEST, at the server. Of many lanes each has only some of the numbers. */
static void on_message(struct perf_session *s, struct perf_input *p, uint64_t now_ns)
{
	const struct perf_header *in = &p->in;

	if (p->run != in->run)
		p->seq = 0;
	p->run = in->run;
	if (in->seq < p->seq || (in->seq > p->seq && s->options->connections <= 1) ||
		in->bytes != s->message_bytes)
		s->faults++;
	p->seq = in->seq + 1;
	s->messages++;
	s->bytes += in->bytes;
	s->sum += perf_sum_value(&p->sum);
	if (in->kind == PERF_MESSAGE_REQUEST &&
		!send_message(s, make_message(s, PERF_MESSAGE_REPLY, in->bytes, in->seq), now_ns))
		perf_session_fail(s, "a reply found no room");
}

static void on_start(struct perf_session *s, const struct perf_body *b, uint64_t now_ns)
{
	if (b->test >= PERF_TEST_COUNT || b->size < PERF_MESSAGE_MIN ||
		b->size > PERF_MESSAGE_MAX) {
		perf_session_fail(s, "the client wants a test that is not known here");
		return;
	}
	s->run = s->input.in.run;
	s->test = (enum perf_test)b->test;
	s->message_bytes = b->size;
	reset_counts(s);
	if (!send_control(s, PERF_MESSAGE_STARTED, now_ns))
		perf_session_fail(s, "an answer found no room");
}

/* All that the client has sent is there, unless some of it was lost: so the result is. */
static void on_done(struct perf_session *s, const struct perf_body *b, uint64_t now_ns)
{
	s->done_messages = 0;
	if (!s->channel->lossy && s->messages < b->messages)
		s->done_messages = b->messages; /* by other lanes, still */
	else if (!send_control(s, PERF_MESSAGE_RESULT, now_ns))
		perf_session_fail(s, "a result found no room");
}

/* A whole message is there. */
static void on_complete(struct perf_session *s, struct perf_input *p, uint64_t now_ns)
{
	bool serves = s->phase == PERF_PHASE_SERVE, same_run = p->in.run == s->run;
	struct perf_body b = {0};

	memcpy(&b, p->body, p->body_bytes);
	b = perf_body_swap(b);
	switch ((enum perf_message_kind)p->in.kind) {
	case PERF_MESSAGE_START:
		if (serves && p == &s->input)
			on_start(s, &b, now_ns);
		break;
	case PERF_MESSAGE_STARTED:
		if (s->phase == PERF_PHASE_STARTING && same_run)
			begin_run(s, rp_clock_now(s->clock));
		break;
	case PERF_MESSAGE_DATA:
	case PERF_MESSAGE_REQUEST:
		if (serves && same_run)
			on_message(s, p, now_ns);
		if (s->done_messages > 0 && s->messages >= s->done_messages) {
			b = (struct perf_body){.messages = s->done_messages};
			on_done(s, &b, now_ns);
		}
		break;
	case PERF_MESSAGE_REPLY:
		if (same_run)
			on_reply(s, &p->in);
		break;
	case PERF_MESSAGE_DONE:
		if (serves && same_run)
			on_done(s, &b, now_ns);
		break;
	case PERF_MESSAGE_RESULT:
		if (s->phase == PERF_PHASE_ENDING && same_run)
			end_run(s, &b, rp_clock_now(s->clock));
		break;
	case PERF_MESSAGE_BYE:
		if (serves && s->channel->lossy)
			send_control(s, PERF_MESSAGE_BYE, now_ns);
		s->finished = serves || s->phase == PERF_PHASE_LEAVING;
		break;
	case PERF_MESSAGE_KIND_COUNT:
		break;
	}
}

static bool on_head(struct perf_session *s, struct perf_input *p, const uint8_t *head)
{
	p->in = perf_header_read(head);
	if (p->in.bytes < PERF_HEADER_BYTES || p->in.bytes > PERF_MESSAGE_MAX ||
		p->in.kind >= PERF_MESSAGE_KIND_COUNT) {
		perf_session_fail(s, "what came is not a message");
		return false;
	}
	p->body_left = p->in.bytes - PERF_HEADER_BYTES;
	p->body_bytes = 0;
	p->sum = (struct perf_sum){0};
	p->summing = s->test == PERF_BULK && p->in.kind == PERF_MESSAGE_DATA && p->in.run == s->run;
	if (p->summing)
		perf_sum_add(&p->sum, head, PERF_HEADER_BYTES);
	return true;
}

/* Bytes of the body, at most what is left of it; how many. */
static uint32_t on_body(struct perf_input *p, const uint8_t *data, uint32_t length)
{
	uint32_t n = RP_MIN(length, p->body_left), keep;

	if (p->summing) {
		perf_sum_add(&p->sum, data, n);
	} else if (p->in.kind != PERF_MESSAGE_DATA) {
		keep = RP_MIN(n, (uint32_t)PERF_BODY_BYTES - p->body_bytes);
		memcpy(p->body + p->body_bytes, data, keep);
		p->body_bytes += keep;
	}
	p->body_left -= n;
	return n;
}

static void input_piece(struct perf_session *s, struct perf_input *p, const uint8_t *data,
	uint32_t length, uint64_t now_ns)
{
	uint32_t n;

	while (length > 0 && !s->finished) {
		if (p->body_left > 0) {
			n = on_body(p, data, length);
		} else if (p->head_bytes == 0 && length >= PERF_HEADER_BYTES) {
			n = PERF_HEADER_BYTES;
			if (!on_head(s, p, data))
				return;
		} else {
			n = RP_MIN(length, PERF_HEADER_BYTES - p->head_bytes);
			memcpy(p->head + p->head_bytes, data, n);
			p->head_bytes += n;
			if (p->head_bytes < PERF_HEADER_BYTES)
				return;
			p->head_bytes = 0;
			if (!on_head(s, p, p->head))
				return;
		}
		data += n;
		length -= n;
		if (p->body_left == 0)
			on_complete(s, p, now_ns);
	}
}

void perf_session_input_lane(struct perf_session *s, struct perf_input *lane,
	const struct rte_mbuf *chain, uint64_t now_ns)
{
	for (; chain && !s->finished; chain = chain->next)
		input_piece(
			s, lane, rte_pktmbuf_mtod(chain, const uint8_t *), chain->data_len, now_ns);
}

void perf_session_input(struct perf_session *s, const struct rte_mbuf *chain, uint64_t now_ns)
{
	perf_session_input_lane(s, &s->input, chain, now_ns);
	if (s->channel->lossy)
		s->input.head_bytes = s->input.body_left = 0; /* a frame cut short, or padded */
}

static uint64_t sum_message(const struct rte_mbuf *m)
{
	struct perf_sum sum = {0};

	for (; m; m = m->next)
		perf_sum_add(&sum, rte_pktmbuf_mtod(m, const uint8_t *), m->data_len);
	return perf_sum_value(&sum);
}

static bool send_one(struct perf_session *s, unsigned lane, uint64_t now_ns)
{
	struct rte_mbuf *m = make_message(s, PERF_MESSAGE_DATA, s->message_bytes, s->messages);
	uint64_t sum = 0;

	if (m && s->test == PERF_BULK)
		sum = sum_message(m);
	if (!send_by(s, lane, m, now_ns))
		return false;
	s->sum += sum;
	s->messages++;
	s->bytes += s->message_bytes;
	return true;
}

/* By many lanes in turn; one that has no room is passed over. */
static bool send_around(struct perf_session *s, uint32_t most, uint64_t now_ns)
{
	uint32_t n = 0;

	for (uint32_t tries = 0; n < most && tries < 2 * most; tries++) {
		unsigned lane = s->lane;

		s->lane = lane + 1 < s->channel->lanes ? lane + 1 : 0;
		if (s->channel->room(s->channel, lane, s->message_bytes) > 0 &&
			send_one(s, lane, now_ns))
			n++;
	}
	return n > 0;
}

static bool send_data(struct perf_session *s, uint64_t now_ns)
{
	uint32_t most = RP_MAX(PERF_TURN_BYTES / s->message_bytes, 1u), n = 0;

	if (s->channel->lanes > 1 && s->test == PERF_BULK)
		return send_around(s, most, now_ns);
	most = RP_MIN(most, s->channel->room(s->channel, 0, s->message_bytes));
	while (n < most && send_one(s, 0, now_ns))
		n++;
	return n > 0;
}

static bool turn_run(struct perf_session *s, uint64_t now_ns)
{
	if (s->test == PERF_RR) {
		if (s->channel->lossy && !s->request_due && now_ns > s->requested_ns &&
			now_ns - s->requested_ns > REQUEST_LOST_NS) {
			s->lost++;
			s->request_due = true;
		}
		if (!s->request_due)
			return false;
		send_request(s, now_ns);
		return true;
	}
	if (now_ns >= s->end_ns) {
		s->phase = PERF_PHASE_DONE;
		return true;
	}
	return send_data(s, now_ns);
}

/* Sends `kind` and goes on to `next`, where there is room. */
static bool turn_control(
	struct perf_session *s, enum perf_message_kind kind, enum perf_phase next, uint64_t now_ns)
{
	if (s->channel->room(s->channel, 0, PERF_CONTROL_BYTES) == 0 ||
		!send_control(s, kind, now_ns))
		return false;
	s->phase = next;
	return true;
}

/* On a lossy channel it waits to hear that the goodbye has come, a little. */
static bool turn_bye(struct perf_session *s, uint64_t now_ns)
{
	if (!turn_control(s, PERF_MESSAGE_BYE, PERF_PHASE_LEAVING, now_ns))
		return false;
	s->byes++;
	s->finished = !s->channel->lossy || s->byes >= BYES_MAX;
	return true;
}

bool perf_session_turn(struct perf_session *s, uint64_t now_ns)
{
	bool ask = s->channel->lossy && now_ns > s->asked_ns && now_ns - s->asked_ns > ASK_AGAIN_NS;

	if (s->finished)
		return false;
	switch (s->phase) {
	case PERF_PHASE_SERVE:
		return false;
	case PERF_PHASE_NEAR:
		return turn_near(s, now_ns);
	case PERF_PHASE_START:
		return turn_control(s, PERF_MESSAGE_START, PERF_PHASE_STARTING, now_ns);
	case PERF_PHASE_STARTING:
		return ask && turn_control(s, PERF_MESSAGE_START, PERF_PHASE_STARTING, now_ns);
	case PERF_PHASE_RUN:
		return turn_run(s, now_ns);
	case PERF_PHASE_DONE:
		return turn_control(s, PERF_MESSAGE_DONE, PERF_PHASE_ENDING, now_ns);
	case PERF_PHASE_ENDING:
		return ask && turn_control(s, PERF_MESSAGE_DONE, PERF_PHASE_ENDING, now_ns);
	case PERF_PHASE_BYE:
		return turn_bye(s, now_ns);
	case PERF_PHASE_LEAVING:
		return ask && turn_bye(s, now_ns);
	}
	return false;
}
