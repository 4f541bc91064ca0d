/* SPDX-License-Identifier: Apache-2.0 */
/* Auth: tokens, simple and JWT, and certificates; spec/etcd-semantics.md section 11. */
#include <sys/random.h>

#include <mbedtls/pk.h>
#include <mbedtls/rsa.h>

#include "etcd_auth_rig.h"

static void test_tokens(void **state)
{
	struct rig *r = *state;
	const char *alice, *root;
	char bearer[128];

	people(r);
	rig_put(r, "a", "1");
	assert_refused(r, INVALID, EMPTY);
	fake_token = "abc.1";
	rig_put(r, "a", "1");
	assert_refused(r, RP_GRPC_UNAUTHENTICATED, BAD_TOKEN);
	alice = fake_token = authenticate(r, "alice", "alicepw");
	rig_put(r, "a", "1");
	assert_ok(r);
	fake_token = NULL;
	fake_authorization = alice;
	rig_put(r, "a", "1");
	assert_ok(r);
	snprintf(bearer, sizeof(bearer), "Bearer %s", alice);
	fake_authorization = bearer;
	rig_put(r, "a", "1");
	assert_ok(r);
	fake_authorization = NULL;
	/* It lives on by being used, and ends by not being used. */
	fake_token = alice;
	for (int i = 0; i < 4; i++) {
		r->now_ns += 8 * RP_NS_PER_S;
		rig_run(r);
		rig_put(r, "a", "1");
		assert_ok(r);
	}
	r->now_ns += 11 * RP_NS_PER_S;
	rig_run(r);
	rig_put(r, "a", "1");
	assert_refused(r, RP_GRPC_UNAUTHENTICATED, BAD_TOKEN);
	/* Another password, and the user's end. */
	alice = authenticate(r, "alice", "alicepw");
	root = fake_token = authenticate(r, "root", "rootpw");
	change_password(r, "alice", "other");
	assert_ok(r);
	fake_token = alice;
	rig_put(r, "a", "1");
	assert_refused(r, RP_GRPC_UNAUTHENTICATED, BAD_TOKEN);
	alice = authenticate(r, "alice", "other");
	fake_token = root;
	user_delete(r, "alice");
	fake_token = alice;
	rig_put(r, "a", "1");
	assert_refused(r, RP_GRPC_UNAUTHENTICATED, BAD_TOKEN);
	fake_token = root;
	disable(r);
	assert_ok(r);
	enable(r);
	assert_ok(r);
	rig_put(r, "a", "1");
	assert_refused(r, RP_GRPC_UNAUTHENTICATED, BAD_TOKEN);
}

static void test_certificate(void **state)
{
	struct rig *r = *state;

	people(r);
	fake_cn = "alice";
	rig_put(r, "a", "1");
	assert_ok(r);
	rig_put(r, "z", "1");
	assert_refused(r, RP_GRPC_PERMISSION_DENIED, DENIED);
	fake_cn = "nobody";
	rig_put(r, "a", "1");
	assert_refused(r, RP_GRPC_PERMISSION_DENIED, DENIED);
	/* A token is stronger. */
	fake_cn = "alice";
	fake_token = authenticate(r, "root", "rootpw");
	rig_put(r, "z", "1");
	assert_ok(r);
}

static int setup_hs256(void **state)
{
	FILE *f = fopen("etcd_auth_token_test.key", "w");

	fputs("a secret that is long enough to be one", f);
	fclose(f);
	return setup_with(state, RP_ETCD_TOKEN_JWT_HS256, "etcd_auth_token_test.key");
}

static void test_jwt(void **state)
{
	struct rig *r = *state;
	const char *alice, *root;
	char bad[2048];

	people(r);
	root = authenticate(r, "root", "rootpw");
	alice = fake_token = authenticate(r, "alice", "alicepw");
	assert_non_null(alice);
	assert_int_equal(strncmp(alice, "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.", 37), 0);
	rig_put(r, "a", "1");
	assert_ok(r);
	rig_put(r, "z", "1");
	assert_refused(r, RP_GRPC_PERMISSION_DENIED, DENIED);
	/* Each byte of it counts. */
	for (size_t i = 0; i < strlen(alice); i += 7) {
		snprintf(bad, sizeof(bad), "%s", alice);
		bad[i] = bad[i] == 'A' ? 'B' : 'A';
		fake_token = bad;
		rig_put(r, "a", "1");
		if (strcmp(bad, alice) != 0 && i + 1 < strlen(alice))
			assert_refused(r, RP_GRPC_UNAUTHENTICATED, BAD_TOKEN);
	}
	fake_token =
		"eyJhbGciOiJub25lIn0.eyJ1c2VybmFtZSI6InJvb3QiLCJyZXZpc2lvbiI6OSwiZXhwIjo5OTk5OTk5"
		"OTk5fQ.";
	rig_put(r, "a", "1");
	assert_refused(r, RP_GRPC_UNAUTHENTICATED, BAD_TOKEN);
	/* A change of the auth store makes those from before old. */
	fake_token = root;
	role_add(r, "new");
	assert_ok(r);
	fake_token = alice;
	rig_put(r, "a", "1");
	assert_refused(r, INVALID, "etcdserver: revision of auth store is old");
	fake_token = authenticate(r, "alice", "alicepw");
	rig_put(r, "a", "1");
	assert_ok(r);
	unlink("etcd_auth_token_test.key");
}

static int test_random(void *ctx, unsigned char *out, size_t length)
{
	return getrandom(out, length, 0) == (ssize_t)length ? 0 : -1;
}

static int setup_rs256(void **state)
{
	static unsigned char pem[8192];
	mbedtls_pk_context key;
	FILE *f;

	mbedtls_pk_init(&key);
	assert_int_equal(mbedtls_pk_setup(&key, mbedtls_pk_info_from_type(MBEDTLS_PK_RSA)), 0);
	assert_int_equal(
		mbedtls_rsa_gen_key(mbedtls_pk_rsa(key), test_random, NULL, 1024, 65537), 0);
	assert_int_equal(mbedtls_pk_write_key_pem(&key, pem, sizeof(pem)), 0);
	mbedtls_pk_free(&key);
	f = fopen("etcd_auth_token_test.pem", "w");
	fputs((const char *)pem, f);
	fclose(f);
	return setup_with(state, RP_ETCD_TOKEN_JWT_RS256, "etcd_auth_token_test.pem");
}

static void test_jwt_rs256(void **state)
{
	struct rig *r = *state;
	char bad[2048];

	people(r);
	fake_token = authenticate(r, "alice", "alicepw");
	assert_non_null(fake_token);
	rig_put(r, "a", "1");
	assert_ok(r);
	snprintf(bad, sizeof(bad), "%s", fake_token);
	bad[strlen(bad) / 2] ^= 1;
	fake_token = bad;
	rig_put(r, "a", "1");
	assert_refused(r, RP_GRPC_UNAUTHENTICATED, BAD_TOKEN);
	unlink("etcd_auth_token_test.pem");
}

/* A key that is none: the services do not start. */
static void test_bad_key(void **state)
{
	struct rig *r = *state;
	struct rp_etcd_config config = {.cluster_id = 1, .member_id = 1, .raft_term = 1};

	config.kv = r->kv;
	config.server = r->server;
	config.backend = &r->node.backend;
	config.token = RP_ETCD_TOKEN_JWT_RS256;
	config.jwt_private_key = "/dev/null";
	assert_null(rp_etcd_create(&config));
	config.token = RP_ETCD_TOKEN_JWT_HS256;
	config.jwt_private_key = NULL;
	assert_null(rp_etcd_create(&config));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_tokens),
		T(test_certificate),
		cmocka_unit_test_setup_teardown(test_jwt, setup_hs256, teardown),
		cmocka_unit_test_setup_teardown(test_jwt_rs256, setup_rs256, teardown),
		T(test_bad_key),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
