/* SPDX-License-Identifier: Apache-2.0 */
/* The device string of a port, and the unix socket that a device binds. */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <base/units.h>

#include "port_priv.h"

#define CLAIM_TRIES 8

static bool is_pci_address(const char *s)
{
	unsigned domain, bus, slot, function;
	int used = 0;

	if (sscanf(s, "%4x:%2x:%2x.%1x%n", &domain, &bus, &slot, &function, &used) == 4 &&
		s[used] == '\0')
		return true;
	used = 0;
	return sscanf(s, "%2x:%2x.%1x%n", &bus, &slot, &function, &used) == 3 && s[used] == '\0';
}

bool port_mac_parse(const char *s, uint8_t mac[6])
{
	unsigned b[6];
	int used = 0;

	if (strlen(s) != 17 ||
		sscanf(s, "%2x:%2x:%2x:%2x:%2x:%2x%n", &b[0], &b[1], &b[2], &b[3], &b[4], &b[5],
			&used) != 6 ||
		used != 17)
		return false;
	for (unsigned i = 0; i < 6; i++)
		mac[i] = (uint8_t)b[i];
	return true;
}

static bool is_vdev_name(const char *s)
{
	if (strncmp(s, "net_", 4) != 0 || s[4] == '\0')
		return false;
	for (; *s; s++)
		if (!isalnum((unsigned char)*s) && *s != '_' && *s != '-')
			return false;
	return true;
}

static int parse_arg(
	struct port_device *d, const char *part, size_t length, char *error, size_t error_size)
{
	const char *eq = memchr(part, '=', length);
	size_t key_length = eq ? (size_t)(eq - part) : length;
	size_t value_length = eq ? length - key_length - 1 : 0;
	struct port_arg *a = &d->args[d->arg_count];

	if (!eq || key_length == 0)
		return port_fail(error, error_size, -EINVAL, "device %s: \"%.*s\" is not key=value",
			d->name, (int)length, part);
	if (d->arg_count >= PORT_ARGS_MAX || key_length >= sizeof(a->key) ||
		value_length >= sizeof(a->value))
		return port_fail(error, error_size, -EINVAL,
			"device %s: too many or too long arguments at \"%.*s\"", d->name,
			(int)length, part);
	snprintf(a->key, sizeof(a->key), "%.*s", (int)key_length, part);
	snprintf(a->value, sizeof(a->value), "%.*s", (int)value_length, eq + 1);
	if (port_device_arg(d, a->key))
		return port_fail(error, error_size, -EINVAL,
			"device %s: argument %s is given twice", d->name, a->key);
	d->arg_count++;
	return 0;
}

int port_device_parse(const char *text, struct port_device *d, char *error, size_t error_size)
{
	size_t length;

	*d = (struct port_device){0};
	if (!text)
		return port_fail(error, error_size, -EINVAL, "no device is named");
	length = strcspn(text, ",");
	if (length == 0 || length >= sizeof(d->name))
		return port_fail(error, error_size, -EINVAL,
			"device \"%s\": its name is empty or too long", text);
	memcpy(d->name, text, length);
	if (port_mac_parse(d->name, d->mac))
		d->bus = PORT_BUS_MAC;
	else if (is_pci_address(d->name))
		d->bus = PORT_BUS_PCI;
	else if (is_vdev_name(d->name))
		d->bus = PORT_BUS_VDEV;
	else
		return port_fail(error, error_size, -EINVAL,
			"device \"%s\" is neither a virtual device (net_memif0,...), a PCI address "
			"(0000:03:00.0) nor a MAC address",
			d->name);
	for (text += length; *text == ','; text += length) {
		int rc;

		text++;
		length = strcspn(text, ",");
		rc = parse_arg(d, text, length, error, error_size);
		if (rc < 0)
			return rc;
	}
	return 0;
}

const char *port_device_arg(const struct port_device *d, const char *key)
{
	for (unsigned i = 0; i < d->arg_count; i++)
		if (strcmp(d->args[i].key, key) == 0)
			return d->args[i].value;
	return NULL;
}

int port_device_set(struct port_device *d, const char *key, const char *value, bool over)
{
	struct port_arg *a = NULL;

	for (unsigned i = 0; i < d->arg_count && !a; i++)
		if (strcmp(d->args[i].key, key) == 0)
			a = &d->args[i];
	if (a && !over)
		return 0;
	if (!a) {
		if (d->arg_count >= PORT_ARGS_MAX)
			return -ENOSPC;
		a = &d->args[d->arg_count++];
	}
	if (snprintf(a->key, sizeof(a->key), "%s", key) >= (int)sizeof(a->key) ||
		snprintf(a->value, sizeof(a->value), "%s", value) >= (int)sizeof(a->value))
		return -ENOSPC;
	return 0;
}

bool port_device_is(const struct port_device *d, const char *condition)
{
	const char *eq = strchr(condition, '='), *value;
	char key[PORT_KEY_SIZE];

	if (!eq)
		return false;
	snprintf(key, sizeof(key), "%.*s", (int)(eq - condition), condition);
	value = port_device_arg(d, key);
	return value && strcmp(value, eq + 1) == 0;
}

int port_device_format_args(const struct port_device *d, char *text, size_t text_size)
{
	size_t length = 0;

	text[0] = '\0';
	for (unsigned i = 0; i < d->arg_count; i++) {
		int n = snprintf(text + length, text_size - length, "%s%s=%s", i > 0 ? "," : "",
			d->args[i].key, d->args[i].value);

		if (n < 0 || (size_t)n >= text_size - length)
			return -ENOSPC;
		length += (size_t)n;
	}
	return 0;
}

/* True when `fd` is still the file at `path`: its holder may have removed it before he let go. */
static bool is_same_file(int fd, const char *path)
{
	struct stat a, b;

	return fstat(fd, &a) == 0 && stat(path, &b) == 0 && a.st_ino == b.st_ino &&
	       a.st_dev == b.st_dev;
}

static int fail_in_use(int fd, const char *path, char *error, size_t error_size)
{
	char owner[32] = "";
	ssize_t n = pread(fd, owner, sizeof(owner) - 1, 0);

	owner[n > 0 ? n : 0] = '\0';
	owner[strcspn(owner, "\n")] = '\0';
	return port_fail(error, error_size, -EADDRINUSE,
		"socket %s is in use: process %s holds %s.lock; stop it, or give this port another "
		"socket",
		path, *owner ? owner : "(unknown)", path);
}

static int take_lock(const char *path, char *error, size_t error_size)
{
	char lock_path[PORT_VALUE_SIZE + 8];

	snprintf(lock_path, sizeof(lock_path), "%s.lock", path);
	for (unsigned i = 0; i < CLAIM_TRIES; i++) {
		int fd = open(lock_path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

		if (fd < 0)
			return port_fail(error, error_size, -errno,
				"cannot open %s: %s; the folder must exist and be writable",
				lock_path, strerror(errno));
		if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
			int rc = fail_in_use(fd, path, error, error_size);

			close(fd);
			return rc;
		}
		if (is_same_file(fd, lock_path)) {
			if (ftruncate(fd, 0) == 0)
				dprintf(fd, "%d\n", (int)getpid());
			return fd;
		}
		close(fd);
	}
	return port_fail(error, error_size, -EADDRINUSE,
		"cannot take %s.lock: others take and remove it all the time", path);
}

int port_socket_claim(struct port_socket *s, const char *path, char *error, size_t error_size)
{
	struct stat st;
	int fd;

	s->path[0] = '\0';
	if (strlen(path) >= sizeof(s->path))
		return port_fail(error, error_size, -ENAMETOOLONG,
			"socket %s: its path is longer than %zu bytes", path, sizeof(s->path) - 1);
	fd = take_lock(path, error, error_size);
	if (fd < 0)
		return fd;
	s->lock_fd = fd;
	snprintf(s->path, sizeof(s->path), "%s", path);
	if (lstat(path, &st) < 0)
		return 0;
	if (S_ISSOCK(st.st_mode) && unlink(path) == 0)
		return 0;
	s->path[0] = '\0'; /* what is there is not ours to remove */
	close(fd);
	return port_fail(error, error_size, -EADDRINUSE,
		"%s is there and no socket that can be removed (mode %o): give this port another "
		"socket",
		path, (unsigned)st.st_mode);
}

void port_socket_release(struct port_socket *s)
{
	char lock_path[PORT_VALUE_SIZE + 8];

	if (s->path[0] == '\0')
		return;
	unlink(s->path);
	snprintf(lock_path, sizeof(lock_path), "%s.lock", s->path);
	unlink(lock_path);
	close(s->lock_fd);
	s->path[0] = '\0';
}
