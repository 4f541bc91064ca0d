/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A job and its worker: by ringpost.v1.Process, with libcurl's HTTP/2 and protobuf-c, and by keys,
 *with the JSON gateway of etcd's API. The job is a line, and its answer each of its words in upper
 *case.
 *
 *	job run|work native|keys HOST:PORT QUEUE LINE|COUNT
 *
 *	protoc-c --c_out=. ringpost/v1/process.proto		(in proto/ of Ringpost)
 *	cc -I. job.c ringpost/v1/process.pb-c.c $(pkg-config --cflags --libs libcurl jansson
 *libprotobuf-c)
 */
#include <ctype.h>
#include <curl/curl.h>
#include <jansson.h>
#include <ringpost/v1/process.pb-c.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *address, *queue, *what;
static int left; /* jobs of a worker */

static void must(int good, const char *text)
{
	if (good)
		return;
	fprintf(stderr, "%s\n", text);
	exit(1);
}

/* The next word of a line in upper case; NULL: there is none. */
static char *next_word(const char **at, const char *end)
{
	static char word[256];
	size_t n = 0;

	while (*at < end && isspace((unsigned char)**at))
		++*at;
	while (*at < end && !isspace((unsigned char)**at) && n + 1 < sizeof(word))
		word[n++] = (char)toupper((unsigned char)*(*at)++);
	word[n] = '\0';
	return n > 0 ? word : NULL;
}

/* ---- gRPC: each message behind a zero and its length ---- */

struct stream {
	CURL *curl;
	void (*take)(struct stream *s, const uint8_t *data, size_t length);
	char out[1 << 16], in[1 << 20]; /* to be sent, and not whole yet */
	size_t out_length, in_length;
	int over; /* no more is sent */
};

static void say(struct stream *s, const ProtobufCMessage *m)
{
	size_t length = protobuf_c_message_get_packed_size(m);
	char *at = s->out + s->out_length;

	must(s->out_length + 5 + length <= sizeof(s->out), "too much at once");
	at[0] = 0;
	at[1] = (char)(length >> 24);
	at[2] = (char)(length >> 16);
	at[3] = (char)(length >> 8);
	at[4] = (char)length;
	protobuf_c_message_pack(m, (uint8_t *)at + 5);
	s->out_length += 5 + length;
	curl_easy_pause(s->curl, CURLPAUSE_CONT);
}

static size_t on_send(char *to, size_t size, size_t count, void *user)
{
	struct stream *s = user;
	size_t n = s->out_length < size * count ? s->out_length : size * count;

	if (n == 0 && !s->over)
		return CURL_READFUNC_PAUSE;
	memcpy(to, s->out, n);
	memmove(s->out, s->out + n, s->out_length - n);
	s->out_length -= n;
	return n;
}

static size_t on_receive(char *data, size_t size, size_t count, void *user)
{
	struct stream *s = user;
	const uint8_t *at = (const uint8_t *)s->in;
	size_t used = 0, length;

	must(s->in_length + size * count <= sizeof(s->in), "too long an answer");
	memcpy(s->in + s->in_length, data, size * count);
	s->in_length += size * count;
	while (s->in_length - used >= 5) {
		length = (size_t)at[used + 1] << 24 | (size_t)at[used + 2] << 16 |
			 (size_t)at[used + 3] << 8 | at[used + 4];
		if (s->in_length - used < 5 + length)
			break;
		s->take(s, at + used + 5, length);
		used += 5 + length;
	}
	memmove(s->in, s->in + used, s->in_length - used);
	s->in_length -= used;
	return size * count;
}

/* The status of a call is in the headers that come last. */
static size_t on_header(char *line, size_t size, size_t count, void *user)
{
	(void)user;
	if (strncmp(line, "grpc-status: ", 13) == 0 && line[13] != '0')
		must(0, line);
	return size * count;
}

static void call(struct stream *s, const char *method)
{
	struct curl_slist *headers = curl_slist_append(NULL, "content-type: application/grpc");
	char url[256];

	headers = curl_slist_append(headers, "te: trailers");
	snprintf(url, sizeof(url), "http://%s/ringpost.v1.Process/%s", address, method);
	curl_easy_setopt(s->curl, CURLOPT_URL, url);
	curl_easy_setopt(s->curl, CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_2_PRIOR_KNOWLEDGE);
	curl_easy_setopt(s->curl, CURLOPT_HTTPHEADER, headers);
	curl_easy_setopt(s->curl, CURLOPT_POST, 1L);
	curl_easy_setopt(s->curl, CURLOPT_READFUNCTION, on_send);
	curl_easy_setopt(s->curl, CURLOPT_READDATA, s);
	curl_easy_setopt(s->curl, CURLOPT_WRITEFUNCTION, on_receive);
	curl_easy_setopt(s->curl, CURLOPT_WRITEDATA, s);
	curl_easy_setopt(s->curl, CURLOPT_HEADERFUNCTION, on_header);
	must(curl_easy_perform(s->curl) == CURLE_OK, "the call failed");
	curl_slist_free_all(headers);
}

static void take_event(struct stream *s, const uint8_t *data, size_t length)
{
	Ringpost__V1__RunEvent *e = ringpost__v1__run_event__unpack(NULL, length, data);

	(void)s;
	must(e != NULL, "not an event");
	if (e->event_case == RINGPOST__V1__RUN_EVENT__EVENT_OUTPUT)
		printf("%.*s\n", (int)e->output->data.len, (char *)e->output->data.data);
	if (e->event_case == RINGPOST__V1__RUN_EVENT__EVENT_FAILED)
		must(0, e->failed->reason);
	ringpost__v1__run_event__free_unpacked(e, NULL);
}

static void run_native(struct stream *s)
{
	Ringpost__V1__RunRequest request = RINGPOST__V1__RUN_REQUEST__INIT;
	Ringpost__V1__Job job = RINGPOST__V1__JOB__INIT;

	job.queue = (char *)queue;
	job.data.data = (uint8_t *)what;
	job.data.len = strlen(what);
	job.ttl_ms = 20000;
	request.act_case = RINGPOST__V1__RUN_REQUEST__ACT_JOB;
	request.job = &job;
	s->take = take_event;
	say(s, &request.base);
	s->over = 1; /* no more jobs; the answers come all the same */
	call(s, "Run");
}

static void do_job(struct stream *s, uint64_t job, const Ringpost__V1__Assigned *a)
{
	const char *at = (const char *)a->data.data, *word;
	const char *end = at + a->data.len;
	Ringpost__V1__WorkEvent m = RINGPOST__V1__WORK_EVENT__INIT;
	Ringpost__V1__Output output = RINGPOST__V1__OUTPUT__INIT;
	Ringpost__V1__End done = RINGPOST__V1__END__INIT;

	m.job = job;
	m.event_case = RINGPOST__V1__WORK_EVENT__EVENT_OUTPUT;
	m.output = &output;
	while ((word = next_word(&at, end))) {
		output.data.data = (uint8_t *)word;
		output.data.len = strlen(word);
		say(s, &m.base);
	}
	m.event_case = RINGPOST__V1__WORK_EVENT__EVENT_END;
	m.end = &done;
	say(s, &m.base);
}

static void take_item(struct stream *s, const uint8_t *data, size_t length)
{
	Ringpost__V1__WorkItem *m = ringpost__v1__work_item__unpack(NULL, length, data);

	must(m != NULL, "not an item");
	if (m->item_case == RINGPOST__V1__WORK_ITEM__ITEM_ASSIGNED) {
		do_job(s, m->job, m->assigned);
	} else if (m->item_case == RINGPOST__V1__WORK_ITEM__ITEM_SETTLED &&
		   m->settled->status == 0 && --left == 0) {
		s->over = 1;
		curl_easy_pause(s->curl, CURLPAUSE_CONT);
	}
	ringpost__v1__work_item__free_unpacked(m, NULL);
}

static void work_native(struct stream *s)
{
	Ringpost__V1__WorkEvent m = RINGPOST__V1__WORK_EVENT__INIT;
	Ringpost__V1__Register who = RINGPOST__V1__REGISTER__INIT;

	who.queue = (char *)queue;
	m.event_case = RINGPOST__V1__WORK_EVENT__EVENT_REGISTER;
	m.register_ = &who;
	s->take = take_item;
	say(s, &m.base);
	call(s, "Work");
}

/* ---- keys: JSON with base64, the answers of a watch a line each ---- */

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

static char *encode(const char *in)
{
	size_t n = strlen(in);
	char *text = malloc(n / 3 * 4 + 5), *out = text;

	for (size_t i = 0; i < n; i += 3) {
		unsigned v = (unsigned char)in[i] << 16;

		v |= i + 1 < n ? (unsigned)(unsigned char)in[i + 1] << 8 : 0;
		v |= i + 2 < n ? (unsigned char)in[i + 2] : 0;
		*out++ = digits[v >> 18];
		*out++ = digits[v >> 12 & 63];
		*out++ = i + 1 < n ? digits[v >> 6 & 63] : '=';
		*out++ = i + 2 < n ? digits[v & 63] : '=';
	}
	*out = '\0';
	return text;
}

static char *decode(const char *in)
{
	char *text = malloc(strlen(in) + 1), *out = text;
	unsigned v = 0, bits = 0;

	for (const char *at; *in && (at = strchr(digits, *in)); in++) {
		v = v << 6 | (unsigned)(at - digits);
		bits += 6;
		if (bits >= 8)
			*out++ = (char)(v >> (bits -= 8));
	}
	*out = '\0';
	return text;
}

static size_t ignore(char *data, size_t size, size_t count, void *user)
{
	(void)data, (void)user;
	return size * count;
}

/* take: value. */
static void put(const char *key, json_t *value)
{
	char *text = json_dumps(value, JSON_COMPACT), *key64 = encode(key), *value64 = encode(text);
	json_t *request = json_pack("{s:s, s:s}", "key", key64, "value", value64);
	char *body = json_dumps(request, 0), url[256];
	CURL *curl = curl_easy_init();

	snprintf(url, sizeof(url), "http://%s/v3/kv/put", address);
	curl_easy_setopt(curl, CURLOPT_URL, url);
	curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body);
	curl_easy_setopt(curl, CURLOPT_FAILONERROR, 1L);
	curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, ignore);
	must(curl_easy_perform(curl) == CURLE_OK, "the put failed");
	curl_easy_cleanup(curl);
	json_decref(request);
	json_decref(value);
	free(text), free(key64), free(value64), free(body);
}

static const char *uuid(char text[37])
{
	FILE *file = fopen("/proc/sys/kernel/random/uuid", "r");

	must(file && fgets(text, 37, file), "no uuid");
	fclose(file);
	return text;
}

static char reply[64], line[4 << 20];
static size_t used;
static int done;

static void put_job(void)
{
	char key[600], id[37];

	snprintf(key, sizeof(key), "/q/%s/producer/%s", queue, uuid(id));
	put(key, json_pack("{s:i, s:i, s:s, s:s}", "v", 1, "ttl_ms", 20000, "reply_to", reply,
			 "data", what));
}

static void take_answer(const char *value)
{
	json_t *answer = json_loads(value, 0, NULL), *error = json_object_get(answer, "error");
	const char *data = json_string_value(json_object_get(answer, "data"));

	must(!error, value);
	if (data)
		puts(data);
	done = json_is_true(json_object_get(answer, "final"));
	json_decref(answer);
}

static void take_job(const char *key, const char *value)
{
	json_t *job = json_loads(value, 0, NULL);
	const char *at = json_string_value(json_object_get(job, "data")), *word;
	const char *end = at + strlen(at);
	char answer[600];

	snprintf(answer, sizeof(answer), "/q/%s/producer/%s",
		json_string_value(json_object_get(job, "reply_to")), strrchr(key, '/') + 1);
	while ((word = next_word(&at, end)))
		put(answer, json_pack("{s:i, s:s}", "v", 1, "data", word));
	put(answer, json_pack("{s:i, s:b}", "v", 1, "final", 1));
	done = --left == 0;
	json_decref(job);
}

static void take_line(const char *text, int working)
{
	json_t *answer = json_loads(text, 0, NULL), *result = json_object_get(answer, "result"),
	       *event;
	size_t i;

	if (json_is_true(json_object_get(result, "created")) && !working)
		put_job();
	json_array_foreach(json_object_get(result, "events"), i, event)
	{
		json_t *kv = json_object_get(event, "kv");
		char *key, *value;

		if (json_object_get(event, "type") || done)
			continue; /* no type is PUT; DELETE: nobody waits for that job any more */
		key = decode(json_string_value(json_object_get(kv, "key")));
		value = decode(json_string_value(json_object_get(kv, "value")));
		if (working)
			take_job(key, value);
		else
			take_answer(value);
		free(key), free(value);
	}
	json_decref(answer);
}

static size_t on_lines(char *data, size_t size, size_t count, void *user)
{
	for (size_t i = 0; i < size * count; i++) {
		if (data[i] != '\n' && used + 1 < sizeof(line)) {
			line[used++] = data[i];
			continue;
		}
		line[used] = '\0';
		used = 0;
		take_line(line, *(int *)user);
	}
	return done ? 0 : size * count; /* 0 ends the watch */
}

static void consume(CURL *curl, const char *name, int working)
{
	char key[600], url[256], id[37], *key64;
	json_t *request;
	char *body;

	snprintf(key, sizeof(key), "/q/%s/consumer/%s", name, uuid(id));
	key64 = encode(key);
	request = json_pack("{s:{s:s}}", "create_request", "key", key64);
	body = json_dumps(request, 0);
	snprintf(url, sizeof(url), "http://%s/v3/watch", address);
	curl_easy_setopt(curl, CURLOPT_URL, url);
	curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body);
	curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_lines);
	curl_easy_setopt(curl, CURLOPT_WRITEDATA, &working);
	curl_easy_perform(curl);
	must(done, "the watch ended");
	json_decref(request);
	free(key64), free(body);
}

int main(int argc, char **argv)
{
	static struct stream s;
	char id[37];
	int working, native;

	must(argc == 6, "job run|work native|keys HOST:PORT QUEUE LINE|COUNT");
	working = !strcmp(argv[1], "work");
	native = !strcmp(argv[2], "native");
	address = argv[3];
	queue = argv[4];
	what = argv[5];
	left = atoi(what);
	curl_global_init(CURL_GLOBAL_DEFAULT);
	s.curl = curl_easy_init();
	snprintf(reply, sizeof(reply), "reply-%s", uuid(id));
	if (native && working)
		work_native(&s);
	else if (native)
		run_native(&s);
	else
		consume(s.curl, working ? queue : reply, working);
	curl_easy_cleanup(s.curl);
	return 0;
}
