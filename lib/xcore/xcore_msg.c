/* SPDX-License-Identifier: Apache-2.0 */
#include <rte_mbuf.h>

#include <xcore/xcore_msg.h>

const char *rp_xmsg_type_name(enum rp_xmsg_type type)
{
	static const char *const names[] = {
#define X(name, class) [RP_XMSG_##name] = #name,
		RP_XMSG_TYPES(X)
#undef X
	};

	return (unsigned)type < RP_XMSG_TYPE_COUNT ? names[type] : "?";
}

void rp_xmsg_free(const struct rp_xmsg *m)
{
	if (m->type != RP_XMSG_PACKETS_IN && m->type != RP_XMSG_PACKETS_OUT) {
		rte_pktmbuf_free(m->m);
		return;
	}
	for (uint32_t i = 0; i < m->count; i++)
		rte_pktmbuf_free(m->packets[i]);
}

enum rp_xmsg_class rp_xmsg_class_of(enum rp_xmsg_type type)
{
	static const uint8_t classes[] = {
#define X(name, class) [RP_XMSG_##name] = RP_XMSG_CLASS_##class,
		RP_XMSG_TYPES(X)
#undef X
	};

	return (unsigned)type < RP_XMSG_TYPE_COUNT ? classes[type] : RP_XMSG_CLASS_N;
}
