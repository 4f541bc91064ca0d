/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The numbers of bbolt's file format, version 2; all little endian. */

#include <stdint.h>
#include <string.h>

#include <base/fnv.h>

#define BOLT_MAGIC 0xED0CDAEDu
#define BOLT_VERSION 2u
#define BOLT_PAGE_HEADER 16u /* id u64, flags u16, count u16, overflow u32 */
#define BOLT_BRANCH 0x01
#define BOLT_LEAF 0x02
#define BOLT_META 0x04
#define BOLT_FREELIST 0x10
#define BOLT_LEAF_ELEMENT 16u	/* flags u32, pos u32, key bytes u32, value bytes u32 */
#define BOLT_BRANCH_ELEMENT 16u /* pos u32, key bytes u32, page u64 */
#define BOLT_IS_BUCKET 0x01	/* of a leaf element: the value is a bucket */
#define BOLT_BUCKET_HEADER 16u	/* root page u64 (0: inline, a page follows), sequence u64 */
/* magic, version, page bytes, flags: u32; root, sequence, free list, pages, txn, checksum: u64 */
#define BOLT_META_BYTES 64u

/* FNV-1a of the meta before its checksum. */
static inline uint64_t bolt_checksum(const uint8_t *meta)
{
	return rp_fnv1a(RP_FNV1A_BASIS, meta, BOLT_META_BYTES - 8);
}
