/* SPDX-License-Identifier: Apache-2.0 */
#include "raw.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <rte_mbuf.h>

#include <base/mbuf.h>

#define TAP "raw:tap:"
#define PACKET "raw:packet:"

bool raw_is(const char *device)
{
	return strncmp(device, TAP, strlen(TAP)) == 0 ||
	       strncmp(device, PACKET, strlen(PACKET)) == 0;
}

static int tap_open(const char *name)
{
	struct ifreq r = {.ifr_flags = IFF_TAP | IFF_NO_PI};
	int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);

	if (fd < 0)
		return -1;
	snprintf(r.ifr_name, sizeof(r.ifr_name), "%s", name);
	if (ioctl(fd, TUNSETIFF, &r) < 0) {
		close(fd);
		return -1;
	}
	return fd;
}

static int packet_open(const char *name)
{
	struct sockaddr_ll a = {.sll_family = AF_PACKET,
		.sll_protocol = htons(ETH_P_ALL),
		.sll_ifindex = (int)if_nametoindex(name)};
	int fd, one = 1, bytes = 16 << 20;

	if (a.sll_ifindex == 0)
		return -1;
	fd = socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -1;
	if (setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &one, sizeof(one)) < 0 ||
		setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof(bytes)) < 0 ||
		bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0) {
		close(fd);
		return -1;
	}
	return fd;
}

int raw_open(const char *device)
{
	if (strncmp(device, TAP, strlen(TAP)) == 0)
		return tap_open(device + strlen(TAP));
	return packet_open(device + strlen(PACKET));
}

uint16_t raw_rx(int fd, struct rte_mempool *pool, struct rte_mbuf **frames, uint16_t n)
{
	uint16_t got;

	for (got = 0; got < n; got++) {
		struct rte_mbuf *m = rte_pktmbuf_alloc(pool);
		ssize_t length;

		if (!m)
			break;
		length = read(fd, rte_pktmbuf_mtod(m, void *), rte_pktmbuf_tailroom(m));
		if (length < ETH_HLEN) {
			rte_pktmbuf_free(m);
			break;
		}
		m->data_len = (uint16_t)length;
		m->pkt_len = m->data_len;
		frames[got] = m;
	}
	return got;
}

bool raw_tx(int fd, struct rte_mbuf *frame)
{
	uint8_t data[RAW_FRAME_MAX];
	uint32_t length = rp_mbuf_copy_out(frame, 0, data, sizeof(data));
	ssize_t done = write(fd, data, length);

	rte_pktmbuf_free(frame);
	return done == (ssize_t)length;
}
