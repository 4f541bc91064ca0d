/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include <base/units.h>
#include <port/port_priv.h>

static void parses_device_strings(void **state)
{
	static const struct {
		const char *text;
		int rc;
		enum port_bus bus;
		const char *name;
		const char *key, *value;
	} cases[] = {
		{"net_memif0,role=server,socket=/run/a.sock", 0, PORT_BUS_VDEV, "net_memif0",
			"socket", "/run/a.sock"},
		{"net_ring0", 0, PORT_BUS_VDEV, "net_ring0", "role", NULL},
		{"net_tap0,iface=", 0, PORT_BUS_VDEV, "net_tap0", "iface", ""},
		{"0000:03:00.0", 0, PORT_BUS_PCI, "0000:03:00.0", "x", NULL},
		{"03:00.1,dev=1", 0, PORT_BUS_PCI, "03:00.1", "dev", "1"},
		{"02:00:00:00:00:0a", 0, PORT_BUS_MAC, "02:00:00:00:00:0a", "x", NULL},
		{"", -EINVAL, 0, "", NULL, NULL},
		{",role=server", -EINVAL, 0, "", NULL, NULL},
		{"eth0", -EINVAL, 0, "", NULL, NULL},
		{"net_", -EINVAL, 0, "", NULL, NULL},
		{"net_memif0,role", -EINVAL, 0, "", NULL, NULL},
		{"net_memif0,=x", -EINVAL, 0, "", NULL, NULL},
		{"net_memif0,,", -EINVAL, 0, "", NULL, NULL},
		{"net_memif0,role=a,role=b", -EINVAL, 0, "", NULL, NULL},
		{"net_me mif0", -EINVAL, 0, "", NULL, NULL},
		{"0000:03:00.0x", -EINVAL, 0, "", NULL, NULL},
		{"02:00:00:00:00", -EINVAL, 0, "", NULL, NULL},
	};

	for (unsigned i = 0; i < RP_ARRAY_SIZE(cases); i++) {
		struct port_device d;
		char error[RP_PORT_ERROR_SIZE] = "";
		int rc = port_device_parse(cases[i].text, &d, error, sizeof(error));
		const char *value;

		if (rc != cases[i].rc)
			fail_msg("%s: %d %s", cases[i].text, rc, error);
		if (rc < 0) {
			assert_true(error[0] != '\0');
			continue;
		}
		assert_int_equal(d.bus, cases[i].bus);
		assert_string_equal(d.name, cases[i].name);
		value = port_device_arg(&d, cases[i].key);
		if (cases[i].value)
			assert_string_equal(value, cases[i].value);
		else
			assert_null(value);
	}
	assert_int_equal(port_device_parse(NULL, &(struct port_device){0}, NULL, 0), -EINVAL);
}

static void refuses_too_much(void **state)
{
	char text[4096] = "net_ring0";
	struct port_device d;

	for (unsigned i = 0; i < PORT_ARGS_MAX; i++)
		snprintf(text + strlen(text), sizeof(text) - strlen(text), ",k%u=1", i);
	assert_int_equal(port_device_parse(text, &d, NULL, 0), 0);
	assert_int_equal(port_device_set(&d, "more", "1", false), -ENOSPC);
	assert_int_equal(port_device_set(&d, "k0", "2", true), 0);
	snprintf(text + strlen(text), sizeof(text) - strlen(text), ",one=more");
	assert_int_equal(port_device_parse(text, &d, NULL, 0), -EINVAL);
	memset(text, 'a', 200);
	memcpy(text, "net_", 4);
	text[200] = '\0';
	assert_int_equal(port_device_parse(text, &d, NULL, 0), -EINVAL);
}

static void sets_and_formats(void **state)
{
	struct port_device d;
	char text[64], small[8];

	assert_int_equal(port_device_parse("net_memif0,role=server", &d, NULL, 0), 0);
	assert_int_equal(port_device_set(&d, "role", "client", false), 0);
	assert_int_equal(port_device_set(&d, "rsize", "11", false), 0);
	assert_true(port_device_is(&d, "role=server"));
	assert_false(port_device_is(&d, "role=client"));
	assert_false(port_device_is(&d, "other=1"));
	assert_false(port_device_is(&d, ""));
	assert_int_equal(port_device_format_args(&d, text, sizeof(text)), 0);
	assert_string_equal(text, "role=server,rsize=11");
	assert_int_equal(port_device_format_args(&d, small, sizeof(small)), -ENOSPC);
}

static int listen_at(const char *path)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	assert_true(fd >= 0);
	snprintf(a.sun_path, sizeof(a.sun_path), "%s", path);
	assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	return fd;
}

static void claims_a_socket(void **state)
{
	char folder[] = "/tmp/port-test-XXXXXX", path[64], lock[80], error[RP_PORT_ERROR_SIZE];
	struct port_socket s = {0}, second = {0};
	int fd;

	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/s", folder);
	snprintf(lock, sizeof(lock), "%s.lock", path);

	/* A socket whose process was killed is removed. */
	close(listen_at(path));
	assert_int_equal(access(path, F_OK), 0);
	assert_int_equal(port_socket_claim(&s, path, error, sizeof(error)), 0);
	assert_int_equal(access(path, F_OK), -1);

	/* A live holder is respected, and named. */
	fd = listen_at(path);
	assert_int_equal(port_socket_claim(&second, path, error, sizeof(error)), -EADDRINUSE);
	snprintf(lock, sizeof(lock), "%d", (int)getpid());
	assert_non_null(strstr(error, lock));
	assert_int_equal(access(path, F_OK), 0);
	close(fd);

	port_socket_release(&s);
	assert_int_equal(access(path, F_OK), -1);
	snprintf(lock, sizeof(lock), "%s.lock", path);
	assert_int_equal(access(lock, F_OK), -1);

	/* What is no socket is not removed. */
	fclose(fopen(path, "w"));
	assert_int_equal(port_socket_claim(&s, path, error, sizeof(error)), -EADDRINUSE);
	assert_int_equal(access(path, F_OK), 0);
	port_socket_release(&s);
	unlink(path);
	unlink(lock);

	snprintf(path, sizeof(path), "%s/none/s", folder);
	assert_int_equal(port_socket_claim(&s, path, error, sizeof(error)), -ENOENT);
	rmdir(folder);
}

/* A lock goes with its process, whatever ended it. */
static void a_dead_holder_lets_go(void **state)
{
	char folder[] = "/tmp/port-test-XXXXXX", path[64], error[RP_PORT_ERROR_SIZE] = "";
	struct port_socket s = {0};
	int status;
	pid_t pid;

	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/s", folder);
	pid = fork();
	if (pid == 0) {
		if (port_socket_claim(&s, path, error, sizeof(error)) == 0)
			listen_at(path);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(access(path, F_OK), 0);
	assert_int_equal(port_socket_claim(&s, path, error, sizeof(error)), 0);
	assert_int_equal(access(path, F_OK), -1);
	port_socket_release(&s);
	assert_int_equal(rmdir(folder), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(parses_device_strings),
		cmocka_unit_test(refuses_too_much),
		cmocka_unit_test(sets_and_formats),
		cmocka_unit_test(claims_a_socket),
		cmocka_unit_test(a_dead_holder_lets_go),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
