/* SPDX-License-Identifier: Apache-2.0 */
/* Cluster, Maintenance, HTTP and Peer. */
#include <errno.h>

#include "../../../lib/etcd/table_priv.h"
#include "../../../lib/etcd/wire_priv.h"
#include "etcd_test_util.h"

static void test_members(void **state)
{
	struct rig *r = *state;
	Etcdserverpb__MemberListRequest list = ETCDSERVERPB__MEMBER_LIST_REQUEST__INIT;
	Etcdserverpb__MemberAddRequest add = ETCDSERVERPB__MEMBER_ADD_REQUEST__INIT;
	Etcdserverpb__MemberListResponse *members;
	Etcdserverpb__MemberAddResponse *added;
	char *url[] = {(char *)"http://10.0.0.1:2380"};

	members = rig_call_on(r, NULL, "/etcdserverpb.Cluster/MemberList", &list,
		&etcdserverpb__member_list_response__descriptor);
	assert_int_equal(members->header->revision, 0);
	assert_int_equal(members->header->member_id, RIG_MEMBER);
	assert_int_equal(members->n_members, 1);
	assert_string_equal(members->members[0]->clienturls[0], "http://127.0.0.1:2379");
	add.peerurls = url;
	add.n_peerurls = 1;
	added = rig_call_on(r, NULL, "/etcdserverpb.Cluster/MemberAdd", &add,
		&etcdserverpb__member_add_response__descriptor);
	assert_int_equal(added->member->id, 99);
	assert_int_equal(added->n_members, 2);
	assert_int_equal(added->members[0]->id, 99); /* sorted by id */
	assert_int_equal(added->members[1]->id, 200);
	rig_call_on(r, NULL, "/etcdserverpb.Cluster/MemberAdd", &add,
		&etcdserverpb__member_add_response__descriptor);
	assert_refused(r, RP_GRPC_FAILED_PRECONDITION, "etcdserver: Peer URLs already exists");
}

static void test_member_urls(void **state)
{
	static const char *const bad[] = {"", "10.0.0.1:2380", "http://", "http://h", "http://:1",
		"http://h:", "http://h:99999", "http://h:1/path", "ftp://h:1", "http://a:b:1"};
	static const char *const good[] = {"http://h:1", "https://[::1]:2380"};
	struct rig *r = *state;
	Etcdserverpb__MemberAddRequest add = ETCDSERVERPB__MEMBER_ADD_REQUEST__INIT;
	char *url[1];

	rig_call_on(r, NULL, "/etcdserverpb.Cluster/MemberAdd", &add,
		&etcdserverpb__member_add_response__descriptor);
	assert_refused(r, RP_GRPC_INVALID_ARGUMENT, "etcdserver: given member URLs are invalid");
	add.peerurls = url;
	add.n_peerurls = 1;
	for (size_t i = 0; i < RP_ARRAY_SIZE(bad); i++) {
		url[0] = (char *)bad[i];
		rig_call_on(r, NULL, "/etcdserverpb.Cluster/MemberAdd", &add,
			&etcdserverpb__member_add_response__descriptor);
		assert_refused(
			r, RP_GRPC_INVALID_ARGUMENT, "etcdserver: given member URLs are invalid");
	}
	for (size_t i = 0; i < RP_ARRAY_SIZE(good); i++) {
		url[0] = (char *)good[i];
		rig_call_on(r, NULL, "/etcdserverpb.Cluster/MemberAdd", &add,
			&etcdserverpb__member_add_response__descriptor);
		assert_int_equal(r->code, RP_GRPC_OK);
	}
}

static void test_status(void **state)
{
	struct rig *r = *state;
	Etcdserverpb__StatusRequest m = ETCDSERVERPB__STATUS_REQUEST__INIT;
	Etcdserverpb__StatusResponse *s;
	uint64_t index;

	s = rig_call_on(r, NULL, "/etcdserverpb.Maintenance/Status", &m,
		&etcdserverpb__status_response__descriptor);
	assert_true(s->dbsize > 0);
	assert_int_equal(s->leader, 200);
	assert_true(s->raftindex >= s->raftappliedindex);
	index = s->raftindex;
	assert_int_equal(s->raftterm, 2);
	assert_int_equal(s->n_errors, 0);
	assert_true(strlen(s->version) > 0);
	rig_put(r, "k", "v");
	rp_kv_alarm_set(r->kv, RP_KV_ALARM_NOSPACE, true);
	r->node.leader = 0;
	s = rig_call_on(r, NULL, "/etcdserverpb.Maintenance/Status", &m,
		&etcdserverpb__status_response__descriptor);
	assert_true(s->raftindex > index);
	assert_int_equal(s->n_errors, 2);
	assert_string_equal(s->errors[0], "etcdserver: no leader");
	assert_string_equal(s->errors[1], "memberID:200 alarm:NOSPACE ");
}

static Etcdserverpb__AlarmResponse *alarm_of(struct rig *r, int action, int type, uint64_t member)
{
	Etcdserverpb__AlarmRequest m = ETCDSERVERPB__ALARM_REQUEST__INIT;

	m.memberid = member;
	m.action = (Etcdserverpb__AlarmRequest__AlarmAction)action;
	m.alarm = (Etcdserverpb__AlarmType)type;
	return rig_call_on(r, NULL, "/etcdserverpb.Maintenance/Alarm", &m,
		&etcdserverpb__alarm_response__descriptor);
}

static Etcdserverpb__AlarmResponse *alarm_call(struct rig *r, int action, int type)
{
	return alarm_of(r, action, type, RIG_MEMBER);
}

/* What the client says of its version has to be text, of unary calls and of streams. */
static void test_client_version(void **state)
{
	static const char *const paths[] = {
		RIG_RANGE, "/etcdserverpb.Watch/Watch", "/etcdserverpb.Maintenance/Status"};
	struct rig *r = *state;

	for (size_t i = 0; i < RP_ARRAY_SIZE(paths); i++) {
		struct rp_grpc_call *c;

		fake_version = "3.6 \xc3\xa4";
		c = fake_call_new(r->server, paths[i], NULL);
		assert_false(c->over);
		fake_call_free(c);
		fake_version = "3.\xff";
		c = fake_call_new(r->server, paths[i], NULL);
		if (!c->over)
			fake_call_send(c, "", 0);
		assert_true(c->over);
		assert_int_equal(c->code, RP_GRPC_INVALID_ARGUMENT);
		assert_string_equal(c->message, "etcdserver: invalid client api version");
		fake_call_free(c);
		fake_version = NULL;
	}
}

static void client_add(void *ctx, const char *version, bool stream, uint64_t requests)
{
	char *out = ctx;

	sprintf(out + strlen(out), "%s %s %d;", version, stream ? "stream" : "unary",
		(int)requests);
}

static void client_calls(struct rig *r, const char *path, const char *version)
{
	fake_version = version;
	fake_call_free(fake_call_new(r->server, path, NULL));
	fake_version = NULL;
}

/* Calls are counted by that version, for few versions whatever clients say. */
static void test_client_counts(void **state)
{
	struct rig *r = *state;
	char text[1024] = "", version[32];

	rp_etcd_each_client(r->e, client_add, text);
	assert_string_equal(text, "");
	client_calls(r, RIG_RANGE, NULL);
	client_calls(r, RIG_RANGE, "3.5");
	client_calls(r, RIG_RANGE, "3.5");
	client_calls(r, RIG_WATCH, "3.5");
	client_calls(r, RIG_RANGE, "3.\"6}\n");
	client_calls(r, RIG_RANGE, "\" ");
	rp_etcd_each_client(r->e, client_add, text);
	assert_string_equal(text, "unknown unary 2;3.5 unary 2;3.5 stream 1;3.6 unary 1;");
	for (int i = 0; i < 100; i++) {
		snprintf(version, sizeof(version), "9.%d.0123456789012345678", i);
		client_calls(r, RIG_RANGE, version);
	}
	client_calls(r, RIG_RANGE, "3.5");
	text[0] = '\0';
	rp_etcd_each_client(r->e, client_add, text);
	assert_non_null(strstr(text, "3.5 unary 3;"));
	assert_non_null(strstr(text, "9.11.012345678901234567 unary 1;other unary 88;"));
}

static void test_alarm(void **state)
{
	struct rig *r = *state;

	assert_int_equal(alarm_call(r, 0, 0)->n_alarms, 0);
	assert_int_equal(alarm_call(r, 1, 0)->n_alarms, 0);
	assert_int_equal(alarm_call(r, 1, 1)->n_alarms, 1);
	assert_int_equal(alarm_call(r, 0, 0)->alarms[0]->memberid, RIG_MEMBER);
	assert_int_equal(alarm_call(r, 0, 2)->n_alarms, 0);
	assert_int_equal(alarm_call(r, 0, 77)->n_alarms, 0);
	assert_int_equal(alarm_call(r, 2, 1)->n_alarms, 1);
	assert_int_equal(alarm_call(r, 2, 1)->n_alarms, 0);
}

/* Whose alarm it is decides the client; while any member has one, writes are refused. */
static void test_alarm_members(void **state)
{
	struct rig *r = *state;
	Etcdserverpb__StatusRequest m = ETCDSERVERPB__STATUS_REQUEST__INIT;
	Etcdserverpb__StatusResponse *s;
	Etcdserverpb__AlarmResponse *a;

	assert_int_equal(alarm_of(r, 1, 1, 5)->alarms[0]->memberid, 5);
	assert_int_equal(alarm_of(r, 1, 1, 5)->n_alarms, 1);
	assert_int_equal(alarm_of(r, 1, 1, 0)->alarms[0]->memberid, 0);
	assert_int_equal(alarm_of(r, 9, 1, 5)->n_alarms, 0);
	a = alarm_of(r, 0, 0, 0);
	assert_int_equal(a->n_alarms, 2);
	assert_int_equal(a->alarms[0]->memberid, 5);
	s = rig_call_on(r, NULL, "/etcdserverpb.Maintenance/Status", &m,
		&etcdserverpb__status_response__descriptor);
	assert_int_equal(s->n_errors, 2);
	assert_string_equal(s->errors[0], "memberID:5 alarm:NOSPACE ");
	assert_string_equal(s->errors[1], "alarm:NOSPACE ");
	rig_put(r, "k", "v");
	assert_refused(r, RP_GRPC_RESOURCE_EXHAUSTED, "etcdserver: mvcc: database space exceeded");
	/* This node has none yet, and then one, too. */
	assert_int_equal(alarm_of(r, 2, 1, RIG_MEMBER)->n_alarms, 0);
	assert_int_equal(alarm_of(r, 1, 1, RIG_MEMBER)->n_alarms, 1);
	assert_int_equal(alarm_of(r, 0, 1, 0)->n_alarms, 3);
	assert_int_equal(alarm_of(r, 2, 1, 5)->n_alarms, 1);
	assert_int_equal(alarm_of(r, 2, 1, 5)->n_alarms, 0);
	assert_int_equal(alarm_of(r, 2, 1, 0)->n_alarms, 1);
	rig_put(r, "k", "v");
	assert_int_equal(r->code, RP_GRPC_RESOURCE_EXHAUSTED);
	assert_int_equal(alarm_of(r, 2, 1, RIG_MEMBER)->n_alarms, 1);
	rig_put(r, "k", "v");
	assert_int_equal(r->code, RP_GRPC_OK);
	/* The other way round; and no more of them than are remembered. */
	alarm_of(r, 1, 2, RIG_MEMBER);
	for (uint64_t member = 1; member <= 64; member++)
		alarm_of(r, 1, 2, 1000 + member);
	assert_int_equal(r->code, RP_GRPC_OK);
	alarm_of(r, 1, 2, 2000);
	assert_int_equal(r->code, RP_GRPC_RESOURCE_EXHAUSTED);
	assert_int_equal(alarm_of(r, 0, 2, 0)->n_alarms, 65);
	assert_int_equal(alarm_of(r, 2, 2, RIG_MEMBER)->n_alarms, 1);
	for (uint64_t member = 1; member <= 64; member++)
		assert_int_equal(alarm_of(r, 2, 2, 1000 + member)->n_alarms, 1);
	rig_put(r, "k", "v");
	assert_int_equal(r->code, RP_GRPC_OK);
}

static void test_hash(void **state)
{
	struct rig *r = *state;
	Etcdserverpb__HashKVRequest m = ETCDSERVERPB__HASH_KVREQUEST__INIT;
	Etcdserverpb__HashKVResponse *h;
	uint32_t old;

	rig_put(r, "k", "1");
	h = rig_call_on(r, NULL, "/etcdserverpb.Maintenance/HashKV", &m,
		&etcdserverpb__hash_kvresponse__descriptor);
	old = h->hash;
	assert_int_equal(h->compact_revision, -1);
	assert_int_equal(h->hash_revision, 2);
	rig_put(r, "k", "2");
	m.revision = 2;
	h = rig_call_on(r, NULL, "/etcdserverpb.Maintenance/HashKV", &m,
		&etcdserverpb__hash_kvresponse__descriptor);
	assert_int_equal(h->hash, old);
	m.revision = 9;
	rig_call_on(r, NULL, "/etcdserverpb.Maintenance/HashKV", &m,
		&etcdserverpb__hash_kvresponse__descriptor);
	assert_refused(r, RP_GRPC_OUT_OF_RANGE,
		"etcdserver: mvcc: required revision is a future revision");
}

static void test_http(void **state)
{
	struct rig *r = *state;
	struct rp_http_request q;

	fake_http(r->server, &q, "GET", "/health", "");
	assert_int_equal(q.status, 200);
	assert_string_equal(q.body, "{\"health\":\"true\",\"reason\":\"\"}");
	fake_http(r->server, &q, "POST", "/health", "");
	assert_int_equal(q.status, 405);
	rp_kv_alarm_set(r->kv, RP_KV_ALARM_NOSPACE, true);
	fake_http(r->server, &q, "GET", "/health", "");
	assert_int_equal(q.status, 503);
	assert_string_equal(q.body, "{\"health\":\"false\",\"reason\":\"ALARM NOSPACE\"}");
	fake_http(r->server, &q, "GET", "/health", "exclude=NOSPACE");
	assert_int_equal(q.status, 200);
	r->node.leader = 0;
	fake_http(r->server, &q, "GET", "/health", "exclude=NOSPACE");
	assert_string_equal(q.body, "{\"health\":\"false\",\"reason\":\"RAFT NO LEADER\"}");
	fake_http(r->server, &q, "GET", "/livez", "");
	assert_int_equal(q.status, 200);
	assert_string_equal(q.body, "ok\n");
	fake_http(r->server, &q, "GET", "/readyz", "");
	assert_int_equal(q.status, 503);
	assert_string_equal(q.body, "[+]data_corruption ok\n[+]serializable_read ok\n"
				    "[-]linearizable_read failed: etcdserver: no leader\n");
	r->node.leader = 200;
	fake_http(r->server, &q, "GET", "/readyz", "");
	assert_string_equal(q.body, "ok\n");
	fake_http(r->server, &q, "GET", "/readyz", "verbose");
	assert_int_equal(q.status, 200);
	assert_string_equal(q.body, "[+]data_corruption ok\n[+]serializable_read ok\n"
				    "[+]linearizable_read ok\nok\n");
	fake_http(r->server, &q, "POST", "/readyz", "");
	assert_int_equal(q.status, 405);
	rp_kv_alarm_set(r->kv, RP_KV_ALARM_CORRUPT, true);
	fake_http(r->server, &q, "GET", "/readyz", "");
	assert_int_equal(q.status, 503);
	fake_http(r->server, &q, "GET", "/version", "");
	assert_non_null(strstr(q.body, "\"etcdserver\":\"3."));
}

static struct rp_grpc_call *peer_send(
	struct rig *r, struct rp_grpc_conn *conn, const char *path, const void *data, size_t length)
{
	struct rp_grpc_call *c = fake_call_new(r->server, path, conn);

	fake_call_send(c, data, length);
	return c;
}

static int prove(struct rig *r, struct rp_grpc_conn *conn, const char *secret)
{
	struct rp_etcd_peer_prove p = {
		.node = 42, .frame = {.data = (const uint8_t *)secret, .length = strlen(secret)}};
	struct rp_etcd_peer_prove_reply reply;
	const struct fake_answer *a;
	struct rp_grpc_call *c;
	size_t length;
	void *m = rp_etcd_peer_encode_prove(&p, &length);
	int proved;

	c = peer_send(r, conn, RP_ETCD_PEER_PATH_PROVE, m, length);
	free(m);
	a = fake_call_next(c);
	assert_non_null(a);
	assert_int_equal(rp_etcd_peer_decode_prove_reply(
				 (struct rp_span){.data = a->data, .length = a->length}, &reply),
		0);
	assert_int_equal(reply.frame.length, strlen(secret));
	proved = reply.proved;
	assert_int_equal(reply.node, 1);
	fake_call_free(c);
	return proved;
}

static void test_peer(void **state)
{
	struct rig *r = *state;
	struct rp_grpc_conn *conn = fake_conn_new(true);
	struct rp_span frame = {.data = (const uint8_t *)"frame", .length = 5}, got;
	struct rp_etcd_stats stats;
	struct rp_grpc_call *c;
	const struct fake_answer *a;
	size_t length;
	void *m = rp_etcd_peer_encode_frame(frame, &length);

	c = peer_send(r, conn, RP_ETCD_PEER_PATH_DELIVER_ONE, m, length);
	assert_int_equal(c->code, RP_GRPC_PERMISSION_DENIED);
	fake_call_free(c);
	assert_false(prove(r, conn, "guess"));
	c = peer_send(r, conn, RP_ETCD_PEER_PATH_APPLY, "x", 1);
	assert_int_equal(c->code, RP_GRPC_PERMISSION_DENIED);
	fake_call_free(c);
	rp_etcd_stats_get(r->e, &stats);
	assert_int_equal(stats.peer_unproved, 2);
	assert_true(prove(r, conn, "secret"));
	c = peer_send(r, conn, RP_ETCD_PEER_PATH_DELIVER_ONE, m, length);
	a = fake_call_next(c);
	assert_int_equal(rp_etcd_peer_decode_frame(
				 (struct rp_span){.data = a->data, .length = a->length}, &got),
		0);
	assert_int_equal(got.length, 5);
	fake_call_free(c);
	c = peer_send(r, conn, RP_ETCD_PEER_PATH_APPLY, "bytes", 5);
	a = fake_call_next(c);
	assert_int_equal(a->length, 5); /* as they are */
	fake_call_free(c);
	c = peer_send(r, conn, RP_ETCD_PEER_PATH_SYNC, "", 0);
	assert_int_equal(c->code, RP_GRPC_INVALID_ARGUMENT);
	fake_call_free(c);
	fake_conn_free(conn);
	/* The next connection begins anew. */
	conn = fake_conn_new(true);
	c = peer_send(r, conn, RP_ETCD_PEER_PATH_DELIVER_ONE, m, length);
	assert_int_equal(c->code, RP_GRPC_PERMISSION_DENIED);
	fake_call_free(c);
	fake_conn_free(conn);
	free(m);
}

/* The mark of a peer counts only on a connection that has proved itself. */
static void test_peer_mark(void **state)
{
	struct rig *r = *state;
	struct rp_grpc_conn *conn = fake_conn_new(true);
	Etcdserverpb__PutRequest put = ETCDSERVERPB__PUT_REQUEST__INIT;
	struct rp_grpc_call *c = fake_call_new(r->server, RIG_PUT, conn);

	put.key = B("/q/jobs/p/t");
	c->x_peer = true;
	rig_send(c, &put);
	assert_false(r->node.last_op.caller.peer);
	assert_false(r->node.last_op.caller.loopback);
	fake_call_free(c);
	assert_true(prove(r, conn, "secret"));
	c = fake_call_new(r->server, RIG_PUT, conn);
	rig_send(c, &put);
	assert_false(r->node.last_op.caller.peer);
	fake_call_free(c);
	c = fake_call_new(r->server, RIG_PUT, conn);
	c->x_peer = true;
	rig_send(c, &put);
	assert_true(r->node.last_op.caller.peer);
	fake_call_free(c);
	fake_conn_free(conn);
}

static void test_decode_status(void **state)
{
	struct rig *r = *state;
	Etcdserverpb__StatusRequest m = ETCDSERVERPB__STATUS_REQUEST__INIT;
	struct rp_grpc_call *c = fake_call_new(r->server, "/etcdserverpb.Maintenance/Status", NULL);
	const struct fake_answer *a;
	uint64_t member, cluster;

	rig_send(c, &m);
	a = fake_call_next(c);
	assert_int_equal(
		rp_etcd_peer_decode_status(
			(struct rp_span){.data = a->data, .length = a->length}, &member, &cluster),
		0);
	assert_int_equal(member, RIG_MEMBER);
	assert_int_equal(cluster, RIG_CLUSTER);
	assert_int_equal(rp_etcd_peer_decode_status(
				 (struct rp_span){.data = a->data, .length = a->length - 1},
				 &member, &cluster),
		-EBADMSG);
	fake_call_free(c);
}

static void test_wire(void **state)
{
	struct rp_span good = {
		.data = (const uint8_t *)"\x08\x96\x01\x12\x01z\x1d\1\0\0\0", .length = 11};
	struct etcd_wire w = etcd_wire_of(good);
	struct etcd_field f;

	assert_true(etcd_wire_next(&w, &f));
	assert_int_equal(f.value, 150);
	assert_true(etcd_wire_next(&w, &f));
	assert_int_equal(f.bytes.length, 1);
	assert_true(etcd_wire_next(&w, &f));
	assert_int_equal(f.value, 1);
	assert_false(etcd_wire_next(&w, &f));
	assert_false(w.bad);
	for (size_t cut = 1; cut < 11; cut++) {
		w = etcd_wire_of((struct rp_span){.data = good.data, .length = cut});
		while (etcd_wire_next(&w, &f))
			;
		assert_int_equal(w.bad, cut != 3 && cut != 6);
	}
	w = etcd_wire_of((struct rp_span){
		.data = (const uint8_t *)"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
		.length = 11});
	assert_false(etcd_wire_next(&w, &f));
	assert_true(w.bad);
}

static void test_table(void **state)
{
	struct etcd_table t = {0};
	static struct etcd_node nodes[1000];

	for (uint64_t i = 0; i < 1000; i++)
		etcd_table_add(&t, &nodes[i], i * 64);
	for (uint64_t i = 0; i < 1000; i += 2)
		etcd_table_remove(&t, &nodes[i]);
	for (uint64_t i = 0; i < 1000; i++)
		assert_ptr_equal(etcd_table_find(&t, i * 64), i % 2 ? &nodes[i] : NULL);
	assert_int_equal(t.count, 500);
	while (t.count > 0)
		etcd_table_remove(&t, etcd_table_any(&t));
	etcd_table_clear(&t);
}

static void test_config(void **state)
{
	struct rp_etcd_config config = {.cluster_id = 1, .member_id = 0, .raft_term = 1};

	errno = 0;
	assert_null(rp_etcd_create(&config));
	assert_int_equal(errno, EINVAL);
	rp_etcd_destroy(NULL);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, rig_setup, rig_teardown)
	const struct CMUnitTest tests[] = {
		T(test_members),
		T(test_member_urls),
		T(test_status),
		T(test_client_version),
		T(test_client_counts),
		T(test_alarm),
		T(test_alarm_members),
		T(test_hash),
		T(test_http),
		T(test_peer),
		T(test_peer_mark),
		T(test_decode_status),
		cmocka_unit_test(test_wire),
		cmocka_unit_test(test_table),
		cmocka_unit_test(test_config),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
