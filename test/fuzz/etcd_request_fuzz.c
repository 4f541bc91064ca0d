/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests of the etcd and Peer services, decoded and carried out on a node with queues of its own.
 * An input is a row of messages: which method, two bytes of length, the message. The watch stream
 * is one and stays open; now and then its client's window closes.
 */
#include <stdlib.h>
#include <string.h>

#include <base/bytes.h>
#include <etcd/etcd.h>

#include "fake_grpc.h"
#include "fake_node.h"

#define MESSAGES_MAX 64
#define PATH_KEEPALIVE "/etcdserverpb.Lease/LeaseKeepAlive"
/** What is no method: time passes, the window opens or closes, memory is freed. */
#define TURN 0x40

struct rig {
	struct fake_node node;
	struct rp_grpc_server *server;
	struct rp_grpc_conn *conn;
	struct rp_grpc_call *stream;
	uint64_t now_ns;
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void rig_new(struct rig *r)
{
	struct rp_etcd_config config = {
		.cluster_id = 1, .member_id = 200, .raft_term = 2, .request_bytes_max = 4096};

	fake_node_init(&r->node, 1);
	r->server = fake_server_new();
	config.kv = r->node.kv;
	config.server = r->server;
	config.backend = &r->node.backend;
	config.progress_interval_ns = 10 * RP_NS_PER_MS;
	config.bcrypt_cost = 4;
	r->node.etcd = rp_etcd_create(&config);
	if (!r->node.etcd)
		abort();
	r->conn = fake_conn_new(false);
	r->stream = fake_call_new(r->server, "/etcdserverpb.Watch/Watch", r->conn);
}

static void rig_free(struct rig *r)
{
	fake_call_free(r->stream);
	fake_conn_free(r->conn);
	rp_etcd_destroy(r->node.etcd);
	fake_node_free(&r->node);
	fake_server_free(r->server);
}

static void turn(struct rig *r, uint8_t how)
{
	r->now_ns += (uint64_t)(how & 7) * RP_NS_PER_MS;
	/* Now and then an hour: leases end. */
	if ((how & 6) == 6)
		r->now_ns += 3600 * RP_NS_PER_S;
	fake_node_clock(&r->node, r->now_ns);
	if (how & 8)
		fake_call_window(r->stream, how & 16 ? SIZE_MAX : 32);
	if (how & 32)
		fake_call_written(r->stream);
	rp_kv_step(r->node.kv, 100);
	rp_etcd_run(r->node.etcd, r->now_ns);
}

static void message(struct rig *r, uint8_t which, const uint8_t *data, size_t length)
{
	const struct rp_grpc_method *m = &r->server->methods[which % r->server->method_count];
	struct rp_grpc_call *c;

	if (m->kind == RP_GRPC_BIDI && strcmp(m->path, PATH_KEEPALIVE) == 0) {
		c = fake_call_new(r->server, m->path, r->conn);
		fake_call_send(c, data, length);
		if (!c->over)
			fake_call_half_close(c);
		fake_call_free(c);
		return;
	}
	if (m->kind == RP_GRPC_BIDI) {
		if (!r->stream->over && r->stream->answer_count < FAKE_ANSWERS / 2)
			fake_call_send(r->stream, data, length);
		return;
	}
	c = fake_call_new(r->server, m->path, r->conn);
	fake_call_send(c, data, length);
	fake_call_free(c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct rp_reader in = rp_reader_of(data, size);
	struct rig *r = calloc(1, sizeof(*r));

	if (!r)
		abort();
	rig_new(r);
	for (int i = 0; i < MESSAGES_MAX && rp_reader_left(&in) > 0; i++) {
		uint8_t which = rp_read_u8(&in);
		size_t length = rp_read_le16(&in);
		const uint8_t *bytes;

		if (which & TURN) {
			turn(r, (uint8_t)length);
			continue;
		}
		bytes = rp_read_bytes(&in, RP_MIN(length, rp_reader_left(&in)));
		if (in.bad)
			break;
		message(r, which, bytes, (size_t)(in.pos - bytes));
	}
	rig_free(r);
	free(r);
	return 0;
}
