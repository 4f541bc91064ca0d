/* SPDX-License-Identifier: Apache-2.0 */

/* Certificates of links: at the start, and when they change in a running node. */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ctl/ctl.h>
#include <tls/tls.h>

static int read_text(const char *path, char **text, size_t *length)
{
	FILE *f = fopen(path, "re"), *out = open_memstream(text, length);
	char part[4096];
	size_t n;
	bool bad = !f || !out;

	while (!bad && (n = fread(part, 1, sizeof(part), f)) > 0)
		fwrite(part, 1, n, out);
	bad |= f && ferror(f);
	if (f)
		fclose(f);
	if (out)
		fclose(out);
	return bad ? -errno : 0;
}

void rp_ctl_link_tls_free(struct rp_ctl_link_tls *tls)
{
	for (uint32_t s = 0; s < RP_SHARDS_MAX; s++) {
		rp_tls_config_unref(tls->client[s]);
		rp_tls_config_unref(tls->server[s]);
	}
	*tls = (struct rp_ctl_link_tls){0};
}

int rp_ctl_link_tls_load(const struct rp_conf *conf, uint32_t shards, struct rp_ctl_link_tls *tls,
	char *error, size_t error_size)
{
	const char *paths[] = {
		conf->tls.peer_cert_file, conf->tls.peer_key_file, conf->tls.peer_ca_file};
	char *texts[RP_ARRAY_SIZE(paths)] = {NULL}, why[160] = "";
	struct rp_span pems[RP_ARRAY_SIZE(paths)];
	int rc = 0;

	*tls = (struct rp_ctl_link_tls){0};
	for (unsigned i = 0; conf->links.tls && rc == 0 && i < RP_ARRAY_SIZE(paths); i++) {
		rc = read_text(paths[i], &texts[i], &pems[i].length);
		pems[i].data = (const uint8_t *)texts[i];
		if (rc != 0)
			snprintf(error, error_size, "links.tls: %s: %s", paths[i], strerror(-rc));
	}
	for (uint32_t s = 0; conf->links.tls && rc == 0 && s < shards; s++) {
		struct rp_tls_params p = {
			.cert = pems[0], .key = pems[1], .ca = pems[2], .require_peer_cert = true};

		tls->client[s] = rp_tls_config_new(&p, why, sizeof(why));
		p.server = true;
		tls->server[s] = rp_tls_config_new(&p, why, sizeof(why));
		if (tls->client[s] && tls->server[s])
			continue;
		snprintf(error, error_size, "links.tls: the peers' certificates: %s", why);
		rc = -EINVAL;
	}
	for (unsigned i = 0; i < RP_ARRAY_SIZE(paths); i++)
		free(texts[i]);
	if (rc != 0)
		rp_ctl_link_tls_free(tls);
	return rc;
}
