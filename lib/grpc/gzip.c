/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <zlib.h>

#include <base/units.h>
#include "server_priv.h"

#define GZIP_WINDOW_BITS (15 + 16) /* a gzip header is asked for */
#define GZIP_MEMORY_LEVEL 8

int grpc_gzip_deflate(const uint8_t *data, size_t length, uint8_t **out, size_t *out_length)
{
	z_stream z = {.next_in = (Bytef *)data, .avail_in = (uInt)length};
	size_t size;
	int ret;

	if (length > UINT32_MAX / 2 || deflateInit2(&z, Z_BEST_SPEED, Z_DEFLATED, GZIP_WINDOW_BITS,
					       GZIP_MEMORY_LEVEL, Z_DEFAULT_STRATEGY) != Z_OK)
		return -ENOMEM;
	size = deflateBound(&z, (uLong)length);
	*out = malloc(size);
	if (!*out) {
		deflateEnd(&z);
		return -ENOMEM;
	}
	z.next_out = *out;
	z.avail_out = (uInt)size;
	ret = deflate(&z, Z_FINISH);
	*out_length = size - z.avail_out;
	deflateEnd(&z);
	if (ret == Z_STREAM_END)
		return 0;
	free(*out);
	return -ENOMEM;
}

int grpc_gzip_inflate(
	const uint8_t *data, size_t length, size_t size_max, uint8_t **out, size_t *out_length)
{
	z_stream z = {.next_in = (Bytef *)data, .avail_in = (uInt)length};
	size_t size = 0, have = 0;
	uint8_t *buf = NULL;
	int ret = Z_OK, error = 0;

	if (length > UINT32_MAX || inflateInit2(&z, GZIP_WINDOW_BITS) != Z_OK)
		return -ENOMEM;
	while (ret != Z_STREAM_END && error == 0) {
		if (have == size) {
			uint8_t *grown;

			/* One byte more than allowed tells a message that is too large. */
			size = RP_MIN(RP_MAX(size * 2, RP_MAX(length * 2, 1024u)), size_max + 1);
			grown = have == size ? NULL : realloc(buf, size);
			if (!grown) {
				error = have == size ? -E2BIG : -ENOMEM;
				break;
			}
			buf = grown;
		}
		z.next_out = buf + have;
		z.avail_out = (uInt)(size - have);
		ret = inflate(&z, Z_NO_FLUSH);
		have = size - z.avail_out;
		if (have > size_max)
			error = -E2BIG;
		else if (ret != Z_OK && ret != Z_STREAM_END)
			error = -EINVAL;
		else if (ret == Z_OK && z.avail_in == 0 && z.avail_out > 0)
			error = -EINVAL;
	}
	inflateEnd(&z);
	if (error < 0) {
		free(buf);
		return error;
	}
	*out = buf;
	*out_length = have;
	return 0;
}
