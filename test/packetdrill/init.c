/* SPDX-License-Identifier: Apache-2.0 */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <base/units.h>

#include "interface.h"
#include "pd.h"

#define PD_START_NS (1700000000ull * RP_NS_PER_S) /* a day like any other */

struct pd pd;

static void pd_free(void *u)
{
	pthread_mutex_lock(&pd.lock);
	for (unsigned i = 0; i < PD_SOCKS_MAX; i++)
		if (pd.socks[i].state != PD_FREE)
			pd_sock_free(&pd.socks[i]);
	if (pd.rig) {
		rig_free(pd.rig);
		pd.rig = NULL;
	}
	while (pd.out_first) {
		struct pd_packet *p = pd.out_first;

		pd.out_first = p->next;
		free(p);
	}
	pd.out_last = &pd.out_first;
	pthread_mutex_unlock(&pd.lock);
}

static int pd_pipe(void *u, int fds[2])
{
	return pipe(fds);
}

/* EAL binds the thread that starts it to one CPU; it was not asked to. */
static bool eal_start(void)
{
	static bool started;
	cpu_set_t before;
	int rc;

	if (started)
		return true;
	if (sched_getaffinity(0, sizeof(before), &before))
		CPU_ZERO(&before);
	rc = rig_eal(64);
	if (CPU_COUNT(&before) > 0)
		sched_setaffinity(0, sizeof(before), &before);
	started = rc == 0;
	return started;
}

__attribute__((visibility("default"))) void packetdrill_interface_init(
	const char *flags, struct packetdrill_interface *interface)
{
	static const struct packetdrill_interface table = {
		.userdata = &pd,
		.free = pd_free,
		.socket = pd_socket,
		.bind = pd_bind,
		.listen = pd_listen,
		.accept = pd_accept,
		.connect = pd_connect,
		.read = pd_read,
		.readv = pd_readv,
		.recv = pd_recv,
		.recvfrom = pd_recvfrom,
		.recvmsg = pd_recvmsg,
		.write = pd_write,
		.writev = pd_writev,
		.send = pd_send,
		.sendto = pd_sendto,
		.sendmsg = pd_sendmsg,
		.fcntl = pd_fcntl,
		.ioctl = pd_ioctl,
		.close = pd_close,
		.shutdown = pd_shutdown,
		.getsockopt = pd_getsockopt,
		.setsockopt = pd_setsockopt,
		.poll = pd_poll,
		.netdev_send = pd_netdev_send,
		.netdev_receive = pd_netdev_receive,
		.usleep = pd_usleep,
		.gettimeofday = pd_gettimeofday,
		.epoll_create = pd_epoll_create,
		.epoll_ctl = pd_epoll_ctl,
		.epoll_wait = pd_epoll_wait,
		.pipe = pd_pipe,
		.splice = pd_splice,
	};

	if (!eal_start()) {
		fprintf(stderr, "EAL does not start\n");
		exit(1);
	}
	pthread_mutex_init(&pd.lock, NULL);
	pthread_cond_init(&pd.changed, NULL);
	pthread_cond_init(&pd.finished, NULL);
	pd.main_thread = pthread_self();
	pd.now_ns = PD_START_NS;
	pd.out_last = &pd.out_first;
	pd_knobs_init(flags);
	*interface = table;
}

/* Preloaded as well: TCP_INFO of a descriptor that only looks like the system's. */
__attribute__((visibility("default"))) int getsockopt(
	int fd, int level, int name, void *restrict value, socklen_t *restrict length)
{
	if (pd_sock_of(fd))
		return pd_getsockopt(&pd, fd, level, name, value, length);
	return (int)syscall(SYS_getsockopt, fd, level, name, value, length);
}
