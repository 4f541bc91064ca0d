/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Interposes EAL's interrupt registration. PMDs are plugins that EAL loads; their calls go through
 * the dynamic symbol table, where the executable's own definition comes before that of librte_eal.
 * So these functions, exported from whatever executable links this library, get the calls of every
 * PMD and of EAL's alarms, and put a callback of ours, which parks the lcores, around theirs.
 */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include <rte_interrupts.h>

#include <base/list.h>
#include <port/park.h>

#include "port_priv.h"

/** EAL's wildcard for "any argument" in an unregistration. */
#define ANY_ARG ((void *)-1)
/** How long an unregistration waits for a cancelled callback to leave, in steps. */
#define CANCEL_STEPS 20000
#define CANCEL_STEP_NS 50000

struct registration {
	struct rp_list node; /* under table_lock */
	int fd;
	rte_intr_callback_fn callback;
	void *arg;
	rte_intr_unregister_callback_fn on_unregister;
	bool cancelled; /* under the gate's lock */
};

typedef int (*register_fn)(const struct rte_intr_handle *, rte_intr_callback_fn, void *);
typedef int (*pending_fn)(const struct rte_intr_handle *, rte_intr_callback_fn, void *,
	rte_intr_unregister_callback_fn);

static struct {
	register_fn add, remove, remove_sync;
	pending_fn remove_pending;
} eal;

static pthread_once_t bind_once = PTHREAD_ONCE_INIT;
static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
static struct rp_list table = {&table, &table};
static _Thread_local const struct registration *running;

static void bind_to_eal(void)
{
	eal.add = (register_fn)dlsym(RTLD_NEXT, "rte_intr_callback_register");
	eal.remove = (register_fn)dlsym(RTLD_NEXT, "rte_intr_callback_unregister");
	eal.remove_sync = (register_fn)dlsym(RTLD_NEXT, "rte_intr_callback_unregister_sync");
	eal.remove_pending = (pending_fn)dlsym(RTLD_NEXT, "rte_intr_callback_unregister_pending");
}

int park_intr_bind(void)
{
	pthread_once(&bind_once, bind_to_eal);
	return eal.add && eal.remove && eal.remove_sync && eal.remove_pending ? 0 : -ENOSYS;
}

static void call_parked(void *arg)
{
	struct registration *r = arg;
	const struct registration *outer = running;

	if (!park_gate_take(&r->cancelled)) {
		park_count_cancelled();
		return;
	}
	rp_park_all();
	running = r;
	park_count_callback();
	r->callback(r->arg);
	running = outer;
	rp_park_release();
	park_gate_leave();
}

static void forget(struct registration *r)
{
	pthread_mutex_lock(&table_lock);
	rp_list_unlink(&r->node);
	pthread_mutex_unlock(&table_lock);
	park_count_wrapped(-1);
	free(r);
}

static void unregistered_parked(struct rte_intr_handle *handle, void *arg)
{
	struct registration *r = arg;

	rp_park_all();
	if (r->on_unregister)
		r->on_unregister(handle, r->arg);
	rp_park_release();
	forget(r);
}

/* The first registration behind `after` (NULL: of all) that (fd, callback, arg) names. */
static struct registration *find(int fd, rte_intr_callback_fn callback, void *arg)
{
	struct registration *found = NULL;
	struct rp_list *n;

	pthread_mutex_lock(&table_lock);
	rp_list_foreach (n, &table) {
		struct registration *r = rp_list_entry(n, struct registration, node);

		if (r->fd == fd && r->callback == callback && (arg == ANY_ARG || r->arg == arg)) {
			found = r;
			break;
		}
	}
	pthread_mutex_unlock(&table_lock);
	return found;
}

int rte_intr_callback_register(
	const struct rte_intr_handle *handle, rte_intr_callback_fn cb, void *cb_arg)
{
	struct registration *r;
	int rc;

	if (park_intr_bind() < 0)
		return -ENOSYS;
	if (!handle || !cb)
		return eal.add(handle, cb, cb_arg);
	r = calloc(1, sizeof(*r));
	if (!r)
		return -ENOMEM;
	r->fd = rte_intr_fd_get(handle);
	r->callback = cb;
	r->arg = cb_arg;
	pthread_mutex_lock(&table_lock);
	rp_list_push_back(&table, &r->node);
	pthread_mutex_unlock(&table_lock);
	park_count_wrapped(1);
	rc = eal.add(handle, call_parked, r);
	if (rc < 0)
		forget(r);
	return rc;
}

/*
 * A thread that has the gate and unregisters a callback which waits for it would be told -EAGAIN
 * for ever. The callback is told to go away instead: what it wanted to look at is being taken down.
 */
static int remove_waiting(const struct rte_intr_handle *handle, struct registration *r)
{
	int rc = -EAGAIN;

	park_cancel(&r->cancelled);
	for (unsigned i = 0; i < CANCEL_STEPS && rc == -EAGAIN; i++) {
		struct timespec ts = {.tv_nsec = CANCEL_STEP_NS};

		nanosleep(&ts, NULL);
		rc = eal.remove(handle, call_parked, r);
	}
	return rc;
}

int rte_intr_callback_unregister(
	const struct rte_intr_handle *handle, rte_intr_callback_fn cb, void *cb_arg)
{
	struct registration *r;
	int removed = 0, fd, rc = -ENOENT;

	if (park_intr_bind() < 0)
		return -ENOSYS;
	if (!handle)
		return eal.remove(handle, cb, cb_arg);
	fd = rte_intr_fd_get(handle);
	while ((r = find(fd, cb, cb_arg)) != NULL) {
		rc = eal.remove(handle, call_parked, r);
		if (rc == -EAGAIN && park_gate_is_mine() && running == NULL)
			rc = remove_waiting(handle, r);
		/* EAL has forgotten the source already when its descriptor was closed. */
		if (rc < 0 && rc != -ENOENT)
			return rc;
		forget(r);
		if (rc > 0)
			removed += rc;
		if (cb_arg != ANY_ARG)
			break;
	}
	return removed > 0 ? removed : rc;
}

int rte_intr_callback_unregister_sync(
	const struct rte_intr_handle *handle, rte_intr_callback_fn cb, void *cb_arg)
{
	int rc;

	while ((rc = rte_intr_callback_unregister(handle, cb, cb_arg)) == -EAGAIN) {
		struct timespec ts = {.tv_nsec = CANCEL_STEP_NS};

		nanosleep(&ts, NULL);
	}
	return rc;
}

int rte_intr_callback_unregister_pending(const struct rte_intr_handle *handle,
	rte_intr_callback_fn cb, void *cb_arg, rte_intr_unregister_callback_fn on_unregister)
{
	struct registration *r;

	if (park_intr_bind() < 0)
		return -ENOSYS;
	r = handle ? find(rte_intr_fd_get(handle), cb, cb_arg) : NULL;
	if (!r)
		return eal.remove_pending(handle, cb, cb_arg, on_unregister);
	r->on_unregister = on_unregister;
	return eal.remove_pending(handle, call_parked, r, unregistered_parked);
}
