/* SPDX-License-Identifier: Apache-2.0 */
#include <grpc/credentials.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <base/units.h>
#include <tls/tls.h>

/* More is no certificate chain. */
#define CREDENTIALS_FILE_BYTES_MAX (1u << 20)

struct credentials_file {
	const char *path;
	uint8_t *data;
	size_t length;
};

static int credentials_read(struct credentials_file *f, const char *path)
{
	FILE *in;

	*f = (struct credentials_file){.path = path};
	if (!path || !path[0])
		return 0;
	in = fopen(path, "re");
	if (!in)
		return -errno;
	f->data = malloc(CREDENTIALS_FILE_BYTES_MAX);
	if (f->data)
		f->length = fread(f->data, 1, CREDENTIALS_FILE_BYTES_MAX, in);
	if (!f->data || ferror(in) || f->length == CREDENTIALS_FILE_BYTES_MAX) {
		fclose(in);
		return f->data ? -EFBIG : -ENOMEM;
	}
	fclose(in);
	return 0;
}

static void credentials_free(struct credentials_file *f)
{
	if (f->data)
		explicit_bzero(f->data, f->length);
	free(f->data);
}

static struct rp_span credentials_span(const struct credentials_file *f)
{
	return (struct rp_span){.data = f->data, .length = f->length};
}

static struct rp_tls_config *credentials_load(const struct rp_grpc_tls_files *files,
	struct rp_tls_params *params, char *error, size_t error_size)
{
	const char *paths[] = {files->cert, files->key, files->ca, files->crl};
	struct credentials_file f[RP_ARRAY_SIZE(paths)] = {0};
	struct rp_tls_config *config = NULL;
	char text[192];
	int result = 0;

	for (size_t i = 0; i < RP_ARRAY_SIZE(paths) && result == 0; i++) {
		result = credentials_read(&f[i], paths[i]);
		if (result < 0)
			snprintf(error, error_size, "%s: %s", paths[i], strerror(-result));
	}
	if (result == 0) {
		params->cert = credentials_span(&f[0]);
		params->key = credentials_span(&f[1]);
		params->ca = credentials_span(&f[2]);
		params->crl = credentials_span(&f[3]);
		params->suites = files->suites;
		config = rp_tls_config_new(params, text, sizeof(text));
		if (!config)
			snprintf(error, error_size, "TLS of %s: %s",
				files->cert && files->cert[0] ? files->cert
				: files->ca		      ? files->ca
							      : "no file",
				text);
	}
	for (size_t i = 0; i < RP_ARRAY_SIZE(paths); i++)
		credentials_free(&f[i]);
	return config;
}

struct rp_tls_config *rp_grpc_tls_server(
	const struct rp_grpc_tls_files *files, char *error, size_t error_size)
{
	static const char *const alpn[] = {"h2", "http/1.1", NULL};
	struct rp_tls_params params = {
		.server = true, .require_peer_cert = files->require_client_cert, .alpn = alpn};

	return credentials_load(files, &params, error, error_size);
}

struct rp_tls_config *rp_grpc_tls_client(
	const struct rp_grpc_tls_files *files, char *error, size_t error_size)
{
	static const char *const alpn[] = {"h2", NULL};
	struct rp_tls_params params = {.skip_verify = files->skip_verify, .alpn = alpn};

	return credentials_load(files, &params, error, error_size);
}
