/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parking with real threads, and with EAL's own interrupt thread. The witness is a plain variable
 * that a lcore sets while it touches a port, and that nobody may see set while the lcores are
 * parked.
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>
#include <rte_alarm.h>
#include <rte_interrupts.h>

#include <base/units.h>
#include <port/eal.h>
#include <port/park.h>

#define POLLERS 3

struct poller {
	pthread_t thread;
	atomic_bool stop;
	atomic_bool sleeps; /* long, at rest */
	atomic_uint inside; /* touches a port now */
	_Atomic uint64_t loops;
	struct rp_park_slot *slot;
	atomic_bool joined;
};

static struct poller pollers[POLLERS];

static void nap(uint64_t ns)
{
	struct timespec ts = {
		.tv_sec = (time_t)(ns / RP_NS_PER_S), .tv_nsec = (long)(ns % RP_NS_PER_S)};

	nanosleep(&ts, NULL);
}

static void *poll_loop(void *arg)
{
	struct poller *p = arg;

	p->slot = rp_park_join();
	atomic_store(&p->joined, p->slot != NULL);
	while (p->slot && !atomic_load_explicit(&p->stop, memory_order_relaxed)) {
		rp_park_point(p->slot);
		atomic_store_explicit(&p->inside, 1, memory_order_relaxed);
		for (unsigned i = 0; i < 50; i++)
			__asm__ volatile("" ::: "memory");
		atomic_store_explicit(&p->inside, 0, memory_order_relaxed);
		atomic_fetch_add_explicit(&p->loops, 1, memory_order_relaxed);
		if (atomic_load_explicit(&p->sleeps, memory_order_relaxed)) {
			rp_park_rest_begin(p->slot);
			nap(200 * RP_NS_PER_MS);
			rp_park_rest_end(p->slot);
		}
	}
	rp_park_leave(p->slot);
	return NULL;
}

static void start(bool sleeps)
{
	for (unsigned i = 0; i < POLLERS; i++) {
		memset(&pollers[i], 0, sizeof(pollers[i]));
		atomic_store(&pollers[i].sleeps, sleeps);
		assert_int_equal(
			pthread_create(&pollers[i].thread, NULL, poll_loop, &pollers[i]), 0);
	}
	for (unsigned i = 0; i < POLLERS; i++)
		while (!atomic_load(&pollers[i].joined) || atomic_load(&pollers[i].loops) == 0)
			nap(100000);
}

static void stop(void)
{
	for (unsigned i = 0; i < POLLERS; i++)
		atomic_store(&pollers[i].stop, true);
	for (unsigned i = 0; i < POLLERS; i++)
		pthread_join(pollers[i].thread, NULL);
}

static unsigned inside(void)
{
	unsigned n = 0;

	for (unsigned i = 0; i < POLLERS; i++)
		n += atomic_load(&pollers[i].inside);
	return n;
}

static uint64_t loops(void)
{
	uint64_t n = 0;

	for (unsigned i = 0; i < POLLERS; i++)
		n += atomic_load(&pollers[i].loops);
	return n;
}

static void nobody_is_inside_while_parked(void **state)
{
	struct rp_park_stats before, after;

	start(false);
	rp_park_stats(&before);
	for (unsigned i = 0; i < 300; i++) {
		uint64_t now;

		rp_park_all();
		now = loops();
		for (unsigned j = 0; j < 100; j++)
			assert_int_equal(inside(), 0);
		assert_int_equal(loops(), now);
		rp_park_release();
		if (i % 16 == 0)
			nap(100000);
	}
	rp_park_stats(&after);
	assert_int_equal(after.parks - before.parks, 300);
	for (unsigned i = 0; i < POLLERS; i++)
		assert_true(atomic_load(&pollers[i].slot->parked_count) > 0);
	stop();
}

static void a_sleeping_lcore_is_parked_at_once(void **state)
{
	struct timespec a, b;
	int64_t ns;

	start(true);
	nap(20 * RP_NS_PER_MS); /* all of them sleep by now, for 180 ms more */
	clock_gettime(CLOCK_MONOTONIC, &a);
	rp_park_all();
	clock_gettime(CLOCK_MONOTONIC, &b);
	rp_park_release();
	ns = (b.tv_sec - a.tv_sec) * (int64_t)RP_NS_PER_S + b.tv_nsec - a.tv_nsec;
	assert_true(ns < 100 * (int64_t)RP_NS_PER_MS);
	stop();
}

static void one_thread_may_nest(void **state)
{
	start(false);
	rp_park_all();
	rp_park_all();
	rp_park_release();
	for (unsigned j = 0; j < 1000; j++)
		assert_int_equal(inside(), 0);
	rp_park_release();
	for (uint64_t was = loops(); loops() == was;)
		nap(100000);
	stop();
}

/* A parker that polls, too, does not wait for itself. */
static void a_poller_may_park(void **state)
{
	struct rp_park_slot *own = rp_park_join();

	assert_non_null(own);
	start(false);
	rp_park_all();
	rp_park_point(own);
	assert_int_equal(inside(), 0);
	rp_park_release();
	rp_park_point(own);
	stop();
	rp_park_leave(own);
	rp_park_leave(NULL);
}

static void *park_often(void *arg)
{
	atomic_uint *parked = arg;

	for (unsigned i = 0; i < 200; i++) {
		rp_park_all();
		if (atomic_fetch_add(parked, 1) != 0 || inside() != 0)
			atomic_fetch_add(parked, 1000);
		atomic_fetch_sub(parked, 1);
		rp_park_release();
	}
	return NULL;
}

static void parkers_exclude_each_other(void **state)
{
	pthread_t threads[3];
	atomic_uint parked = 0;

	start(false);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, park_often, &parked), 0);
	for (unsigned i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(atomic_load(&parked), 0);
	stop();
}

static void slots_are_used_again(void **state)
{
	for (unsigned i = 0; i < 3 * RP_PARK_SLOTS_MAX; i++) {
		struct rp_park_slot *slot = rp_park_join();

		assert_non_null(slot);
		rp_park_leave(slot);
	}
}

/* --- With EAL's interrupt thread --- */

static struct {
	atomic_uint calls, unsafe, unregistered;
	int fd;
	struct rte_intr_handle *handle;
	bool unregisters_itself;
	void *arg_seen;
} source;

static void on_unregistered(struct rte_intr_handle *handle, void *arg)
{
	source.arg_seen = arg;
	atomic_fetch_add(&source.unregistered, 1);
}

static void on_event(void *arg)
{
	uint64_t value;

	if (read(source.fd, &value, sizeof(value)) != sizeof(value))
		return;
	for (unsigned j = 0; j < 1000; j++)
		if (inside() != 0)
			atomic_fetch_add(&source.unsafe, 1);
	if (source.unregisters_itself) {
		/* As memif does when its peer says good-bye. */
		if (rte_intr_callback_unregister(source.handle, on_event, arg) != -EAGAIN)
			atomic_fetch_add(&source.unsafe, 1);
		if (rte_intr_callback_unregister_pending(
			    source.handle, on_event, arg, on_unregistered) < 0)
			atomic_fetch_add(&source.unsafe, 1);
	}
	atomic_fetch_add(&source.calls, 1);
}

static void open_source(void)
{
	memset(&source, 0, sizeof(source));
	source.fd = eventfd(0, EFD_NONBLOCK);
	source.handle = rte_intr_instance_alloc(RTE_INTR_INSTANCE_F_PRIVATE);
	assert_non_null(source.handle);
	rte_intr_fd_set(source.handle, source.fd);
	rte_intr_type_set(source.handle, RTE_INTR_HANDLE_EXT);
}

static void fire(void)
{
	uint64_t one = 1;

	assert_int_equal(write(source.fd, &one, sizeof(one)), sizeof(one));
}

static void wait_until(atomic_uint *counter, unsigned value)
{
	for (unsigned i = 0; i < 5000 && atomic_load(counter) < value; i++)
		nap(1 * RP_NS_PER_MS);
	assert_true(atomic_load(counter) >= value);
}

static void close_source(void)
{
	close(source.fd);
	rte_intr_instance_free(source.handle);
}

static void callbacks_run_parked(void **state)
{
	struct rp_park_stats before, after;

	start(false);
	open_source();
	rp_park_stats(&before);
	assert_int_equal(rte_intr_callback_register(source.handle, on_event, &source), 0);
	for (unsigned i = 1; i <= 20; i++) {
		fire();
		wait_until(&source.calls, i);
	}
	rp_park_stats(&after);
	assert_int_equal(atomic_load(&source.unsafe), 0);
	assert_int_equal(after.callbacks - before.callbacks, 20);
	assert_int_equal(after.wrapped - before.wrapped, 1);
	assert_int_equal(rte_intr_callback_unregister(source.handle, on_event, NULL), -ENOENT);
	assert_int_equal(rte_intr_callback_unregister(source.handle, on_event, &source), 1);
	rp_park_stats(&after);
	assert_int_equal(after.wrapped, before.wrapped);
	close_source();
	stop();
}

static void a_callback_may_unregister_itself(void **state)
{
	start(false);
	open_source();
	source.unregisters_itself = true;
	assert_int_equal(rte_intr_callback_register(source.handle, on_event, &source), 0);
	fire();
	wait_until(&source.unregistered, 1);
	assert_ptr_equal(source.arg_seen, &source);
	assert_int_equal(atomic_load(&source.unsafe), 0);
	assert_int_equal(rte_intr_callback_unregister(source.handle, on_event, &source), -ENOENT);
	close_source();
	stop();
}

/* A port is stopped while its callback waits for the very thread that stops it. */
static void a_waiting_callback_is_cancelled(void **state)
{
	struct rp_park_stats before, after;

	start(false);
	open_source();
	rp_park_stats(&before);
	assert_int_equal(rte_intr_callback_register(source.handle, on_event, &source), 0);
	rp_park_all();
	fire();
	nap(50 * RP_NS_PER_MS); /* the interrupt thread is at the gate by now */
	assert_int_equal(rte_intr_callback_unregister_sync(source.handle, on_event, (void *)-1), 1);
	rp_park_release();
	nap(20 * RP_NS_PER_MS);
	rp_park_stats(&after);
	assert_int_equal(atomic_load(&source.calls), 0);
	assert_int_equal(after.cancelled - before.cancelled, 1);
	close_source();
	stop();
}

static void on_forgotten(void *arg)
{
	atomic_fetch_add(&source.unsafe, 1);
}

/* As memif's listener does when a client has gone before it was greeted. */
static void on_hasty_client(void *arg)
{
	struct rte_intr_handle *handle = rte_intr_instance_alloc(RTE_INTR_INSTANCE_F_PRIVATE);
	int fd = eventfd(1, EFD_NONBLOCK);
	uint64_t value;

	if (read(source.fd, &value, sizeof(value)) != sizeof(value))
		return;
	rte_intr_fd_set(handle, fd);
	rte_intr_type_set(handle, RTE_INTR_HANDLE_EXT);
	if (rte_intr_callback_register(handle, on_forgotten, NULL) < 0)
		atomic_fetch_add(&source.unsafe, 1);
	close(fd);
	rte_intr_instance_free(handle);
	atomic_fetch_add(&source.calls, 1);
}

static void a_closed_descriptor_is_removed(void **state)
{
	struct rp_park_stats before, after;

	start(false);
	open_source();
	rp_park_stats(&before);
	assert_int_equal(rte_intr_callback_register(source.handle, on_hasty_client, &source), 0);
	for (unsigned i = 1; i <= 20; i++) {
		fire();
		wait_until(&source.calls, i);
	}
	assert_int_equal(
		rte_intr_callback_unregister_sync(source.handle, on_hasty_client, &source), 1);
	rp_park_stats(&after);
	assert_int_equal(atomic_load(&source.unsafe), 0);
	assert_int_equal(after.stale - before.stale, 20);
	assert_int_equal(after.wrapped, before.wrapped);
	close_source();
	stop();
}

static atomic_uint alarms;

static void on_alarm(void *arg)
{
	if (inside() == 0)
		atomic_fetch_add(&alarms, 1);
}

/*
 * EAL's alarms register their callback from inside librte_eal: that they run parked shows that a
 * shared library's call ends up in ours.
 */
static void alarms_of_the_library_run_parked(void **state)
{
	struct rp_park_stats before, after;

	start(false);
	rp_park_stats(&before);
	for (unsigned i = 1; i <= 5; i++) {
		assert_int_equal(rte_eal_alarm_set(1000, on_alarm, NULL), 0);
		wait_until(&alarms, i);
	}
	rp_park_stats(&after);
	assert_true(after.callbacks - before.callbacks >= 5);
	stop();
}

static int start_eal(void **state)
{
	struct rp_eal_config c;
	char error[RP_PORT_ERROR_SIZE], prefix[32];

	rp_eal_config_init(&c);
	snprintf(prefix, sizeof(prefix), "park-test-%d", (int)getpid());
	c.file_prefix = prefix;
	c.hugepages = RP_EAL_HUGEPAGES_OFF;
	c.memory_mib = 64;
	if (rp_eal_start(&c, NULL, error, sizeof(error)) < 0) {
		fprintf(stderr, "%s\n", error);
		return -1;
	}
	return 0;
}

static int stop_eal(void **state)
{
	rp_eal_stop();
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nobody_is_inside_while_parked),
		cmocka_unit_test(a_sleeping_lcore_is_parked_at_once),
		cmocka_unit_test(one_thread_may_nest),
		cmocka_unit_test(a_poller_may_park),
		cmocka_unit_test(parkers_exclude_each_other),
		cmocka_unit_test(slots_are_used_again),
		cmocka_unit_test(callbacks_run_parked),
		cmocka_unit_test(a_callback_may_unregister_itself),
		cmocka_unit_test(a_waiting_callback_is_cancelled),
		cmocka_unit_test(a_closed_descriptor_is_removed),
		cmocka_unit_test(alarms_of_the_library_run_parked),
	};

	return cmocka_run_group_tests(tests, start_eal, stop_eal);
}
