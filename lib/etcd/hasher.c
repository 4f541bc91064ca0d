/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One bcrypt of cost 10 takes some 50 ms: on the control thread it would stall every client, so a
 * thread of its own does one after the other. It is started with the first job. Nothing but its two
 * lists is shared, under one mutex.
 */
#include <crypt.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include <base/assert.h>

#include "auth_priv.h"

#define SALT_BYTES 16

struct hasher_job {
	struct rp_list link;
	uint64_t token;
	auth_hashed_fn done;
	uint32_t cost; /* 0 = check */
	bool matches;
	char hash[CRYPT_OUTPUT_SIZE];
	char password[];
};

struct auth_hasher {
	struct rp_etcd *e;
	pthread_t thread;
	bool started;
	uint32_t count; /* control thread only: jobs that are out */
	pthread_mutex_t mutex;
	pthread_cond_t wake;
	struct rp_list todo, done; /* under the mutex */
	bool ending;		   /* under the mutex */
};

static void job_hash(struct hasher_job *j)
{
	struct crypt_data *data = calloc(1, sizeof(*data));
	char setting[CRYPT_GENSALT_OUTPUT_SIZE], salt[SALT_BYTES];
	const char *out = NULL;

	RP_ASSERT(data != NULL);
	if (j->cost == 0) {
		out = crypt_rn(j->password, j->hash, data, sizeof(*data));
		j->matches = out && strcmp(out, j->hash) == 0;
	} else {
		j->hash[0] = '\0';
		if (getrandom(salt, sizeof(salt), 0) == (ssize_t)sizeof(salt) &&
			crypt_gensalt_rn(
				"$2b$", j->cost, salt, sizeof(salt), setting, sizeof(setting)))
			out = crypt_rn(j->password, setting, data, sizeof(*data));
		/* Go's bcrypt writes 2a; for what crypt(3) makes the two are the same. */
		if (out) {
			memcpy(j->hash, out, strlen(out) + 1);
			j->hash[2] = 'a';
		}
	}
	explicit_bzero(data, sizeof(*data));
	free(data);
}

static void *hasher_main(void *arg)
{
	struct auth_hasher *h = arg;

	pthread_setname_np(pthread_self(), "rp-bcrypt");
	pthread_mutex_lock(&h->mutex);
	for (;;) {
		struct hasher_job *j;

		while (!h->ending && rp_list_empty(&h->todo))
			pthread_cond_wait(&h->wake, &h->mutex);
		if (h->ending)
			break;
		j = rp_list_entry(rp_list_pop_front(&h->todo), struct hasher_job, link);
		pthread_mutex_unlock(&h->mutex);
		job_hash(j);
		pthread_mutex_lock(&h->mutex);
		rp_list_push_back(&h->done, &j->link);
	}
	pthread_mutex_unlock(&h->mutex);
	return NULL;
}

struct auth_hasher *auth_hasher_new(struct rp_etcd *e)
{
	struct auth_hasher *h = calloc(1, sizeof(*h));

	RP_ASSERT(h != NULL);
	h->e = e;
	pthread_mutex_init(&h->mutex, NULL);
	pthread_cond_init(&h->wake, NULL);
	rp_list_init(&h->todo);
	rp_list_init(&h->done);
	return h;
}

static void job_free(struct hasher_job *j)
{
	explicit_bzero(j->password, strlen(j->password));
	free(j);
}

void auth_hasher_free(struct auth_hasher *h)
{
	struct rp_list *n;

	if (!h)
		return;
	if (h->started) {
		pthread_mutex_lock(&h->mutex);
		h->ending = true;
		pthread_cond_signal(&h->wake);
		pthread_mutex_unlock(&h->mutex);
		pthread_join(h->thread, NULL);
	}
	while ((n = rp_list_pop_front(&h->todo)) || (n = rp_list_pop_front(&h->done)))
		job_free(rp_list_entry(n, struct hasher_job, link));
	pthread_cond_destroy(&h->wake);
	pthread_mutex_destroy(&h->mutex);
	free(h);
}

static bool hasher_add(struct auth_hasher *h, struct hasher_job *j)
{
	if (h->count >= AUTH_JOBS_MAX)
		goto refuse;
	if (!h->started && pthread_create(&h->thread, NULL, hasher_main, h) != 0)
		goto refuse;
	h->started = true;
	h->count++;
	pthread_mutex_lock(&h->mutex);
	rp_list_push_back(&h->todo, &j->link);
	pthread_cond_signal(&h->wake);
	pthread_mutex_unlock(&h->mutex);
	return true;
refuse:
	job_free(j);
	return false;
}

static struct hasher_job *job_new(const char *password, uint64_t token, auth_hashed_fn done)
{
	size_t length = strlen(password);
	struct hasher_job *j = calloc(1, sizeof(*j) + length + 1);

	RP_ASSERT(j != NULL);
	rp_list_init(&j->link);
	j->token = token;
	j->done = done;
	memcpy(j->password, password, length + 1);
	return j;
}

bool auth_hasher_make(struct auth_hasher *h, const char *password, uint32_t cost, uint64_t token,
	auth_hashed_fn done)
{
	struct hasher_job *j = job_new(password, token, done);

	j->cost = cost;
	return hasher_add(h, j);
}

bool auth_hasher_check(struct auth_hasher *h, const char *password, const char *hash,
	uint64_t token, auth_hashed_fn done)
{
	struct hasher_job *j = job_new(password, token, done);
	size_t length = strlen(hash);

	memcpy(j->hash, hash, RP_MIN(length, sizeof(j->hash) - 1));
	return hasher_add(h, j);
}

bool auth_hasher_run(struct auth_hasher *h)
{
	struct rp_list done, *n;

	if (h->count == 0)
		return false;
	rp_list_init(&done);
	pthread_mutex_lock(&h->mutex);
	rp_list_splice_back(&done, &h->done);
	pthread_mutex_unlock(&h->mutex);
	while ((n = rp_list_pop_front(&done))) {
		struct hasher_job *j = rp_list_entry(n, struct hasher_job, link);

		h->count--;
		j->done(h->e, j->token, j->hash, j->matches);
		job_free(j);
	}
	return h->count > 0;
}
