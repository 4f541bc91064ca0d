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
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>

#include <rte_alarm.h>
#include <rte_interrupts.h>

#include <base/list.h>
#include <port/park.h>

#include "port_priv.h"

/** EAL's wildcard for "any argument" in an unregistration. */
#define ANY_ARG ((void *)-1)
/** How long an unregistration waits for a cancelled callback to leave, in steps. */
#define CANCEL_STEPS 20000
#define CANCEL_STEP_NS 50000
/** How long the end of EAL's interrupt thread is waited for. */
#define END_WAIT_S 2

struct registration {
	struct rp_list node; /* under table_lock */
	int fd;
	dev_t device; /* of the file behind fd, with its inode: numbers of descriptors come again */
	ino_t inode;
	rte_intr_callback_fn callback;
	void *arg;
	rte_intr_unregister_callback_fn on_unregister;
	bool cancelled;				     /* under the gate's lock */
	const struct rte_intr_handle *cancel_handle; /* set before `cancelled` */
	bool cancel_pending;			     /* the interrupt thread's own */
	atomic_bool gone;			     /* EAL has forgotten it after a cancellation */
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
static _Thread_local bool
	ending; /* this thread, EAL's interrupt thread, ends after this callback */
static sem_t ended_event;
static atomic_bool ended; /* there is no interrupt thread any more */

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

static void call_parked(void *arg);

static void cancelled_for_good(struct rte_intr_handle *handle, void *arg)
{
	struct registration *r = arg;

	atomic_store_explicit(&r->gone, true, memory_order_release);
}

/* The descriptor may stay readable: EAL forgets the callback as soon as it returns. */
static void leave_cancelled(struct registration *r)
{
	if (r->cancel_pending)
		return;
	r->cancel_pending =
		eal.remove_pending(r->cancel_handle, call_parked, r, cancelled_for_good) > 0;
	park_count_cancelled();
}

static void forget(struct registration *r)
{
	pthread_mutex_lock(&table_lock);
	rp_list_unlink(&r->node);
	pthread_mutex_unlock(&table_lock);
	park_count_wrapped(-1);
	free(r);
}

static bool is_stale(const struct registration *r)
{
	struct stat st;

	return fstat(r->fd, &st) < 0 || st.st_dev != r->device || st.st_ino != r->inode;
}

/* The first registration whose file was closed without unregistering it, or NULL. */
static struct registration *find_stale(void)
{
	struct registration *found = NULL;
	struct rp_list *n;

	pthread_mutex_lock(&table_lock);
	rp_list_foreach (n, &table) {
		struct registration *r = rp_list_entry(n, struct registration, node);

		if (is_stale(r)) {
			found = r;
			break;
		}
	}
	pthread_mutex_unlock(&table_lock);
	return found;
}

/*
 * memif's listener closes the socket of a client that has gone again before it was greeted, frees
 * what goes with it, and leaves the callback registered. EAL panics of the closed descriptor as
 * soon as it builds its set anew, which it does when this callback has returned: so it is looked
 * for here.
 */
static void remove_stale(void)
{
	struct rte_intr_handle *handle = rte_intr_instance_alloc(RTE_INTR_INSTANCE_F_PRIVATE);
	struct registration *r;

	while (handle && (r = find_stale()) != NULL) {
		rte_intr_fd_set(handle, r->fd);
		if (eal.remove(handle, call_parked, r) == -EAGAIN)
			break; /* it is the one that runs: EAL itself removes that when it fails */
		forget(r);
		park_count_stale();
	}
	rte_intr_instance_free(handle);
}

static void call_parked(void *arg)
{
	struct registration *r = arg;
	const struct registration *outer = running;

	if (!park_gate_take(&r->cancelled)) {
		leave_cancelled(r);
		return;
	}
	rp_park_all();
	running = r;
	park_count_callback();
	r->callback(r->arg);
	running = outer;
	remove_stale();
	rp_park_release();
	park_gate_leave();
	if (ending) {
		atomic_store(&ended, true);
		sem_post(&ended_event);
		pthread_exit(NULL);
	}
}

static void end_this_thread(void *arg)
{
	ending = true;
}

void park_intr_end(void)
{
	struct timespec until;

	if (sem_init(&ended_event, 0, 0) < 0 || rte_eal_alarm_set(1, end_this_thread, NULL) < 0)
		return;
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += END_WAIT_S;
	while (sem_timedwait(&ended_event, &until) < 0 && errno == EINTR)
		;
}

/* EAL holds its interrupt lock here, so this must not wait for the gate, nor need it. */
static void unregistered(struct rte_intr_handle *handle, void *arg)
{
	struct registration *r = arg;

	if (r->on_unregister)
		r->on_unregister(handle, r->arg);
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
	struct stat st;
	int rc;

	if (park_intr_bind() < 0)
		return -ENOSYS;
	if (!handle || !cb)
		return eal.add(handle, cb, cb_arg);
	r = calloc(1, sizeof(*r));
	if (!r)
		return -ENOMEM;
	r->fd = rte_intr_fd_get(handle);
	if (fstat(r->fd, &st) == 0) {
		r->device = st.st_dev;
		r->inode = st.st_ino;
	}
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

	r->cancel_handle = handle;
	park_cancel(&r->cancelled);
	for (unsigned i = 0; i < CANCEL_STEPS && rc == -EAGAIN; i++) {
		struct timespec ts = {.tv_nsec = CANCEL_STEP_NS};

		nanosleep(&ts, NULL);
		if (atomic_load_explicit(&r->gone, memory_order_acquire))
			return 1;
		/* It may have been leaving already, and then it does not look at the flag. */
		rc = eal.remove(handle, call_parked, r);
	}
	return rc == -ENOENT && atomic_load_explicit(&r->gone, memory_order_acquire) ? 1 : rc;
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
		/* The source in whose callback the thread ended looks busy for ever. */
		if (rc == -EAGAIN && atomic_load(&ended))
			rc = 1;
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
	return eal.remove_pending(handle, call_parked, r, unregistered);
}
