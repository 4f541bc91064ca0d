/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Drives a fuzz target without a fuzzing engine: replays the files it is given, then changes them
 * at random for a while.
 *
 *   <target>_fuzz [-seconds N] [-seed S] [-only I] [file or folder ...]
 *
 * The environment's RP_FUZZ_SECONDS counts instead of N, where N is given. Input I is made of the
 * seed, I and the corpus alone, so a failure is repeated with the -seed and -only that were
 * printed.
 */

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <base/rand.h>

#define INPUT_BYTES_MAX 65536
#define FILES_MAX 4096

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Of the sanitizers, where they are linked. */
__attribute__((weak)) void __sanitizer_set_death_callback(void (*callback)(void));

struct input {
	char *name;
	uint8_t *data;
	size_t length;
};

static struct input corpus[FILES_MAX];
static unsigned corpus_count;
static uint64_t seed = 1, current;
static const char *current_name = "";
static bool at_random;

static void say_where(void)
{
	char text[512];
	int n = at_random ? snprintf(text, sizeof(text),
				    "\nfailed: repeat with -seed %llu -only %llu\n",
				    (unsigned long long)seed, (unsigned long long)current)
			  : snprintf(text, sizeof(text), "\nfailed: input %s\n", current_name);

	if (n > 0 && write(STDERR_FILENO, text, (size_t)n) < 0)
		return;
}

static void on_signal(int signal_number)
{
	say_where();
	signal(signal_number, SIG_DFL);
	raise(signal_number);
}

/* An exact copy on the heap, so that a read past the end is seen. */
static void run(const uint8_t *data, size_t length)
{
	uint8_t *copy = malloc(length ? length : 1);

	if (!copy)
		abort();
	if (length)
		memcpy(copy, data, length);
	LLVMFuzzerTestOneInput(copy, length);
	free(copy);
}

static void load_file(const char *path)
{
	struct input *in = &corpus[corpus_count];
	FILE *f = fopen(path, "rb");

	if (!f || corpus_count == FILES_MAX) {
		fprintf(stderr, "%s: %s\n", path, f ? "too many files" : strerror(errno));
		exit(2);
	}
	in->data = malloc(INPUT_BYTES_MAX);
	in->name = strdup(path);
	if (!in->data || !in->name)
		abort();
	in->length = fread(in->data, 1, INPUT_BYTES_MAX, f);
	fclose(f);
	corpus_count++;
}

static int compare_names(const void *a, const void *b)
{
	return strcmp(((const struct input *)a)->name, ((const struct input *)b)->name);
}

static void load(const char *path)
{
	unsigned first = corpus_count;
	struct dirent *e;
	struct stat st;
	DIR *d;

	if (stat(path, &st) == 0 && !S_ISDIR(st.st_mode)) {
		load_file(path);
		return;
	}
	d = opendir(path);
	if (!d) {
		fprintf(stderr, "%s: %s\n", path, strerror(errno));
		exit(2);
	}
	while ((e = readdir(d))) {
		char name[4096];

		snprintf(name, sizeof(name), "%s/%s", path, e->d_name);
		if (e->d_name[0] != '.' && stat(name, &st) == 0 && S_ISREG(st.st_mode))
			load_file(name);
	}
	closedir(d);
	qsort(corpus + first, corpus_count - first, sizeof(corpus[0]), compare_names);
}

static uint64_t below(struct rp_rand *r, uint64_t n)
{
	return n ? rp_rand_below(r, n) : 0;
}

static size_t cut(struct rp_rand *r, uint8_t *b, size_t length)
{
	size_t at = below(r, length), n = below(r, length - at + 1);

	memmove(b + at, b + at + n, length - at - n);
	return length - n;
}

/* Bytes of some input, or random ones, between two bytes. */
static size_t insert(struct rp_rand *r, uint8_t *b, size_t length)
{
	const struct input *from = corpus_count ? &corpus[below(r, corpus_count)] : NULL;
	size_t at = below(r, length + 1), n = 1 + below(r, 32), start = 0;

	if (from && from->length > 0 && rp_rand_u64(r) % 2) {
		start = below(r, from->length);
		n = 1 + below(r, from->length - start);
	} else {
		from = NULL;
	}
	if (n > INPUT_BYTES_MAX - length)
		n = INPUT_BYTES_MAX - length;
	memmove(b + at + n, b + at, length - at);
	for (size_t i = 0; i < n; i++)
		b[at + i] = from ? from->data[start + i] : (uint8_t)rp_rand_u64(r);
	return length + n;
}

static void overwrite(struct rp_rand *r, uint8_t *b, size_t length)
{
	static const uint64_t edges[] = {0, 1, 0x7f, 0x80, 0xff, 0x7fff, 0x8000, 0xffff, 0x7fffffff,
		0x80000000, 0xffffffff, UINT64_MAX, INT64_MAX};
	size_t at = below(r, length), n = (size_t)1 << below(r, 4);
	uint64_t v = edges[below(r, sizeof(edges) / sizeof(edges[0]))];

	if (length == 0)
		return;
	if (rp_rand_u64(r) % 2)
		v = __builtin_bswap64(v) >> (64 - 8 * n);
	for (size_t i = 0; i < n && at + i < length; i++)
		b[at + i] = (uint8_t)(v >> (8 * i));
}

static size_t make(uint64_t number, uint8_t *b)
{
	struct rp_rand r = {seed * 0x9e3779b97f4a7c15ull + number};
	const struct input *from = corpus_count ? &corpus[below(&r, corpus_count)] : NULL;
	size_t length = from ? from->length : 0;
	unsigned changes = 1 + (unsigned)below(&r, 8);

	if (from)
		memcpy(b, from->data, length);
	for (unsigned i = 0; i < changes; i++) {
		switch (below(&r, 5)) {
		case 0:
			length = cut(&r, b, length);
			break;
		case 1:
			length = insert(&r, b, length);
			break;
		case 2:
			overwrite(&r, b, length);
			break;
		case 3:
			if (length)
				b[below(&r, length)] ^= (uint8_t)(1u << below(&r, 8));
			break;
		default:
			if (length)
				b[below(&r, length)] = (uint8_t)rp_rand_u64(&r);
			break;
		}
	}
	return length;
}

static double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void run_at_random(double seconds)
{
	static uint8_t buffer[INPUT_BYTES_MAX];
	double end = now_s() + seconds;

	at_random = true;
	for (current = 0; current % 64 != 0 || now_s() < end; current++)
		run(buffer, make(current, buffer));
	fprintf(stderr, "%llu inputs at random, seed %llu\n", (unsigned long long)current,
		(unsigned long long)seed);
}

int main(int argc, char *argv[])
{
	const int signals[] = {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGALRM};
	double seconds = 0;
	bool only = false;

	if (__sanitizer_set_death_callback)
		__sanitizer_set_death_callback(say_where);
	for (unsigned i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
		signal(signals[i], on_signal);
	for (int i = 1; i < argc; i++) {
		const char *value = i + 1 < argc ? argv[i + 1] : "";

		if (argv[i][0] != '-') {
			load(argv[i]);
			continue;
		}
		if (strcmp(argv[i], "-seconds") == 0) {
			const char *wanted = getenv("RP_FUZZ_SECONDS");

			seconds = atof(wanted ? wanted : value);
		} else if (strcmp(argv[i], "-seed") == 0) {
			seed = strtoull(value, NULL, 0);
		} else if (strcmp(argv[i], "-only") == 0) {
			current = strtoull(value, NULL, 0);
			only = true;
		} else {
			fprintf(stderr, "%s: unknown\n", argv[i]);
			return 2;
		}
		i++;
	}
	if (only) {
		static uint8_t buffer[INPUT_BYTES_MAX];

		at_random = true;
		run(buffer, make(current, buffer));
		return 0;
	}
	for (unsigned i = 0; i < corpus_count; i++) {
		current_name = corpus[i].name;
		run(corpus[i].data, corpus[i].length);
	}
	fprintf(stderr, "%u inputs of the corpus\n", corpus_count);
	if (seconds > 0)
		run_at_random(seconds);
	for (unsigned i = 0; i < corpus_count; i++) {
		free(corpus[i].data);
		free(corpus[i].name);
	}
	return 0;
}
