/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>

#include <base/assert.h>

#include <ringpost/v1/peer.pb-c.h>

#include "etcd_priv.h"

static void *encode(const ProtobufCMessage *m, size_t *length)
{
	uint8_t *data;

	*length = protobuf_c_message_get_packed_size(m);
	data = malloc(*length > 0 ? *length : 1);
	RP_ASSERT(data != NULL);
	protobuf_c_message_pack(m, data);
	return data;
}

void *rp_etcd_peer_encode_prove(const struct rp_etcd_peer_prove *prove, size_t *length)
{
	Ringpost__V1__ProveRequest m = RINGPOST__V1__PROVE_REQUEST__INIT;

	m.node = prove->node;
	m.cluster = etcd_bytes(prove->cluster);
	m.frame = etcd_bytes(prove->frame);
	return encode(&m.base, length);
}

void *rp_etcd_peer_encode_prove_reply(const struct rp_etcd_peer_prove_reply *reply, size_t *length)
{
	Ringpost__V1__ProveReply m = RINGPOST__V1__PROVE_REPLY__INIT;

	m.frame = etcd_bytes(reply->frame);
	m.proved = reply->proved;
	m.node = reply->node;
	return encode(&m.base, length);
}

void *rp_etcd_peer_encode_frame(struct rp_span frame, size_t *length)
{
	Ringpost__V1__Frame m = RINGPOST__V1__FRAME__INIT;

	m.frame = etcd_bytes(frame);
	return encode(&m.base, length);
}

void *rp_etcd_peer_encode_lease_ask(int64_t lease, bool renew, size_t *length)
{
	Ringpost__V1__LeaseAsk m = RINGPOST__V1__LEASE_ASK__INIT;

	m.lease = lease;
	m.renew = renew;
	return encode(&m.base, length);
}

int rp_etcd_peer_decode_lease_time(struct rp_span data, struct rp_etcd_lease_time *out)
{
	Ringpost__V1__LeaseTime *m = ringpost__v1__lease_time__unpack(NULL, data.length, data.data);

	if (!m || (int)m->state < RP_ETCD_LEASE_NONE || (int)m->state > RP_ETCD_LEASE_MOVED) {
		if (m)
			ringpost__v1__lease_time__free_unpacked(m, NULL);
		return -EBADMSG;
	}
	*out = (struct rp_etcd_lease_time){.state = (enum rp_etcd_lease_state)m->state,
		.ttl_s = m->ttl_s,
		.left_s = m->left_s};
	ringpost__v1__lease_time__free_unpacked(m, NULL);
	return 0;
}

int rp_etcd_peer_decode_prove(struct rp_span data, struct rp_etcd_peer_prove *out)
{
	struct etcd_wire w = etcd_wire_of(data);
	struct etcd_field f;

	*out = (struct rp_etcd_peer_prove){0};
	while (etcd_wire_next(&w, &f)) {
		if (f.number == 1 && f.type == 1)
			out->node = f.value;
		else if (f.number == 2 && f.type == 2)
			out->cluster = f.bytes;
		else if (f.number == 3 && f.type == 2)
			out->frame = f.bytes;
	}
	return w.bad ? -EBADMSG : 0;
}

int rp_etcd_peer_decode_prove_reply(struct rp_span data, struct rp_etcd_peer_prove_reply *out)
{
	struct etcd_wire w = etcd_wire_of(data);
	struct etcd_field f;

	*out = (struct rp_etcd_peer_prove_reply){0};
	while (etcd_wire_next(&w, &f)) {
		if (f.number == 1 && f.type == 2)
			out->frame = f.bytes;
		else if (f.number == 2 && f.type == 0)
			out->proved = f.value != 0;
		else if (f.number == 3 && f.type == 1)
			out->node = f.value;
	}
	return w.bad ? -EBADMSG : 0;
}

int rp_etcd_peer_decode_frame(struct rp_span data, struct rp_span *frame)
{
	struct etcd_wire w = etcd_wire_of(data);
	struct etcd_field f;

	*frame = (struct rp_span){0};
	while (etcd_wire_next(&w, &f))
		if (f.number == 1 && f.type == 2)
			*frame = f.bytes;
	return w.bad ? -EBADMSG : 0;
}

int rp_etcd_peer_decode_status(struct rp_span data, uint64_t *member_id, uint64_t *cluster_id)
{
	struct etcd_wire w = etcd_wire_of(data), header = {0};
	struct etcd_field f;

	*member_id = *cluster_id = 0;
	while (etcd_wire_next(&w, &f))
		if (f.number == 1 && f.type == 2)
			header = etcd_wire_of(f.bytes);
	while (etcd_wire_next(&header, &f)) {
		if (f.number == 1 && f.type == 0)
			*cluster_id = f.value;
		else if (f.number == 2 && f.type == 0)
			*member_id = f.value;
	}
	return w.bad || header.bad ? -EBADMSG : 0;
}
