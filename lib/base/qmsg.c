/* SPDX-License-Identifier: Apache-2.0 */
#include <base/assert.h>
#include <base/qmsg.h>

const char *rp_qstatus_name(enum rp_qstatus status)
{
	static const char *const names[] = {
#define X(name, text) [RP_Q_##name] = #name,
		RP_QSTATUSES(X)
#undef X
	};

	return (unsigned)status < RP_QSTATUS_COUNT ? names[status] : "?";
}

const char *rp_qstatus_text(enum rp_qstatus status)
{
	static const char *const texts[] = {
#define X(name, text) [RP_Q_##name] = text,
		RP_QSTATUSES(X)
#undef X
	};

	return (unsigned)status < RP_QSTATUS_COUNT ? texts[status] : "?";
}

const char *rp_qmsg_type_name(enum rp_qmsg_type type)
{
	static const char *const names[] = {
#define X(name) [RP_QMSG_##name] = #name,
		RP_QMSG_TYPES(X)
#undef X
	};

	return (unsigned)type < RP_QMSG_TYPE_COUNT ? names[type] : "?";
}

/* CRC32C (Castagnoli), reflected, a nibble at a time, where the processor has no instruction for
 * it. */
uint32_t rp_queue_hash_portable(const void *name, size_t length)
{
	static const uint32_t table[16] = {
		0x00000000,
		0x105ec76f,
		0x20bd8ede,
		0x30e349b1,
		0x417b1dbc,
		0x5125dad3,
		0x61c69362,
		0x7198540d,
		0x82f63b78,
		0x92a8fc17,
		0xa24bb5a6,
		0xb21572c9,
		0xc38d26c4,
		0xd3d3e1ab,
		0xe330a81a,
		0xf36e6f75,
	};
	const uint8_t *p = name;
	uint32_t crc = 0xffffffff;

	for (size_t i = 0; i < length; i++) {
		crc ^= p[i];
		crc = (crc >> 4) ^ table[crc & 15];
		crc = (crc >> 4) ^ table[crc & 15];
	}
	return ~crc;
}
