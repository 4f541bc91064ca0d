/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What an operator's configuration gives the port: after 'd' comes a device string, after anything
 * else a driver file.
 */

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <base/assert.h>
#include <port/port.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A driver file reaches the library by its path. */
static void check_driver_file(const uint8_t *data, size_t size)
{
	struct rp_port_config c = {.device = "net_ring0", .queues = 1};
	char error[RP_PORT_ERROR_SIZE] = "", path[64];
	int fd = memfd_create("driver.yaml", 0), rc;

	RP_ASSERT(fd >= 0 && write(fd, data, size) == (ssize_t)size);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	c.driver_config = path;
	rc = rp_port_check(&c, error, sizeof(error));
	RP_ASSERT((rc < 0) == (error[0] != '\0'));
	close(fd);
}

static void check_device(const uint8_t *data, size_t size)
{
	char error[RP_PORT_ERROR_SIZE] = "", *text = strndup((const char *)data, size);
	struct rp_port_config c = {.device = text, .queues = 1};
	int rc;

	RP_ASSERT(text);
	rc = rp_port_check(&c, error, sizeof(error));
	RP_ASSERT((rc < 0) == (error[0] != '\0'));
	RP_ASSERT(rc < 0 || rp_port_memory_bytes(&c) > 0);
	rp_port_needs_pci(text);
	free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size < 1)
		return 0;
	if (data[0] == 'd')
		check_device(data + 1, size - 1);
	else
		check_driver_file(data + 1, size - 1);
	return 0;
}
