/* SPDX-License-Identifier: Apache-2.0 */
#include <conf/conf.h>

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int read_all(int fd, uint8_t *to, size_t size)
{
	size_t length = 0;

	while (length < size) {
		ssize_t n = read(fd, to + length, size - length);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		length += (size_t)n;
	}
	return (int)length;
}

int rp_conf_secret_read(
	const char *path, uint8_t secret[RP_CONF_SECRET_BYTES_MAX], char *why, size_t why_size)
{
	/* Room to see that the file is longer, its line ends included. */
	uint8_t bytes[RP_CONF_SECRET_BYTES_MAX + 8];
	/* A pipe or device in its place must not hold the start up. */
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), length;
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0) {
		snprintf(why, why_size, "%s cannot be read: %s", path, strerror(errno));
		if (fd >= 0)
			close(fd);
		return -EINVAL;
	}
	if (!S_ISREG(st.st_mode) || (st.st_mode & 077) != 0) {
		snprintf(why, why_size,
			S_ISREG(st.st_mode) ? "%s has mode %03o, others may use it; chmod 600 it"
					    : "%s is no regular file (mode %03o)",
			path, st.st_mode & 0777);
		close(fd);
		return -EINVAL;
	}
	length = read_all(fd, bytes, sizeof(bytes));
	close(fd);
	while (length > 0 && (bytes[length - 1] == '\n' || bytes[length - 1] == '\r'))
		length--;
	if (length < RP_CONF_SECRET_BYTES_MIN || length > RP_CONF_SECRET_BYTES_MAX) {
		if (length < 0)
			snprintf(why, why_size, "%s cannot be read: %s", path, strerror(-length));
		else
			snprintf(why, why_size, "%s holds %s%d bytes, expected %d to %d", path,
				length > RP_CONF_SECRET_BYTES_MAX ? "at least " : "", length,
				RP_CONF_SECRET_BYTES_MIN, RP_CONF_SECRET_BYTES_MAX);
		explicit_bzero(bytes, sizeof(bytes));
		return -EINVAL;
	}
	memcpy(secret, bytes, (size_t)length);
	explicit_bzero(bytes, sizeof(bytes));
	return length;
}
