/* SPDX-License-Identifier: Apache-2.0 */
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

enum rp_xmsg_class rp_xmsg_class_of(enum rp_xmsg_type type)
{
	static const uint8_t classes[] = {
#define X(name, class) [RP_XMSG_##name] = RP_XMSG_CLASS_##class,
		RP_XMSG_TYPES(X)
#undef X
	};

	return (unsigned)type < RP_XMSG_TYPE_COUNT ? classes[type] : RP_XMSG_CLASS_N;
}
