/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Deliver, client side: one stream to each peer that has no link, opened with the first frame. Its
 * end fails what is not answered; the engine sends it again.
 */

#include <errno.h>
#include <stdlib.h>

#include <ringpost/v1/peer.pb-c.h>

#include <base/assert.h>
#include <base/log.h>
#include <ctl/ctl_priv.h>

struct ctl_deliver {
	struct rp_list node; /**< peer->deliver_open, in the order of sending */
	uint64_t token;	     /**< of the control engine, and the frame's id */
};

static void one_end(struct ctl_peer *p, struct ctl_deliver *d, bool failed, struct rp_span answer)
{
	uint64_t token = d->token;

	rp_list_unlink(&d->node);
	free(d);
	rp_control_unary_result(p->ctl->control, token, failed, answer);
	ctl_kick(p->ctl);
}

static void on_message(
	struct rp_grpc_client_call *call, const uint8_t *data, size_t length, void *ctx)
{
	struct ctl_peer *p = ctx;
	Ringpost__V1__Frame *m = ringpost__v1__frame__unpack(NULL, length, data);
	struct rp_list *n;

	if (!m)
		return;
	/* Mostly the first: shards of one queue answer in order. */
	rp_list_foreach (n, &p->deliver_open) {
		struct ctl_deliver *d = rp_list_entry(n, struct ctl_deliver, node);

		if (d->token != m->id)
			continue;
		one_end(p, d, m->status != 0, (struct rp_span){m->frame.data, m->frame.len});
		break;
	}
	ringpost__v1__frame__free_unpacked(m, NULL);
}

void ctl_deliver_end(struct ctl_peer *p)
{
	struct rp_grpc_client_call *call = p->deliver;

	p->deliver = NULL;
	if (call)
		rp_grpc_client_call_cancel(call);
	while (!rp_list_empty(&p->deliver_open))
		one_end(p, rp_list_entry(p->deliver_open.next, struct ctl_deliver, node), true,
			(struct rp_span){0});
}

static void on_finish(
	struct rp_grpc_client_call *call, enum rp_grpc_code code, const char *message, void *ctx)
{
	struct ctl_peer *p = ctx;

	p->deliver = NULL;
	p->no_deliver = code == RP_GRPC_UNIMPLEMENTED;
	if (!p->no_deliver)
		RP_LOG(RP_LOG_REPL, RP_LOG_INFO, "Deliver to %s ended: %s", p->address, message);
	ctl_deliver_end(p);
}

static const struct rp_grpc_client_ops deliver_ops = {
	.on_message = on_message, .on_finish = on_finish};

int ctl_deliver_send(struct ctl_peer *p, struct rp_span frame, uint64_t token)
{
	Ringpost__V1__Frame m = RINGPOST__V1__FRAME__INIT;
	struct ctl_deliver *d;
	uint8_t *data;
	size_t length;
	int rc;

	if (p->no_deliver || !p->channel)
		return -ENOTSUP;
	if (!p->deliver)
		p->deliver = rp_grpc_channel_call(
			p->channel, RP_ETCD_PEER_PATH_DELIVER, NULL, 0, RP_NEVER, &deliver_ops, p);
	if (!p->deliver)
		return -ENOTSUP;
	m.frame = (ProtobufCBinaryData){.data = (uint8_t *)frame.data, .len = frame.length};
	m.id = token;
	length = ringpost__v1__frame__get_packed_size(&m);
	data = malloc(length + 1);
	d = calloc(1, sizeof(*d));
	RP_ASSERT(data && d);
	ringpost__v1__frame__pack(&m, data);
	rc = rp_grpc_client_call_send(p->deliver, data, length);
	free(data);
	if (rc != 0) {
		free(d);
		return -ENOTSUP;
	}
	d->token = token;
	rp_list_push_back(&p->deliver_open, &d->node);
	return 0;
}
