/* SPDX-License-Identifier: Apache-2.0 */

/* Certificates of clients' and peers' connections, and their change while the node runs. */

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <base/fnv.h>
#include <base/log.h>
#include <ctl/ctl_priv.h>
#include <grpc/credentials.h>

static bool wants_server(const struct rp_conf *c)
{
	struct rp_conf_endpoint e;

	for (unsigned i = 0; i < c->listen_client_urls.count; i++)
		if (rp_conf_endpoint_parse(c->listen_client_urls.items[i], 2379, &e) == 0 && e.tls)
			return true;
	return false;
}

/* When and how large the files are, and which: a sum that differs when one was replaced. */
static uint64_t stamp_of(const struct rp_conf *c)
{
	const char *paths[] = {c->tls.cert_file, c->tls.key_file, c->tls.ca_file, c->tls.crl_file,
		c->tls.peer_cert_file, c->tls.peer_key_file, c->tls.peer_ca_file};
	uint64_t h = RP_FNV1A_BASIS;

	for (size_t i = 0; i < RP_ARRAY_SIZE(paths); i++) {
		struct stat st = {0};
		uint64_t parts[4];

		if (paths[i][0] != '\0' && stat(paths[i], &st) < 0)
			st.st_size = -1;
		parts[0] = (uint64_t)st.st_mtim.tv_sec;
		parts[1] = (uint64_t)st.st_mtim.tv_nsec;
		parts[2] = (uint64_t)st.st_size;
		parts[3] = (uint64_t)st.st_ino;
		h = rp_fnv1a(h, parts, sizeof(parts));
	}
	return h;
}

int ctl_tls_load(const struct rp_conf *c, uint32_t link_shards, struct ctl_tls *tls, char *error,
	size_t error_size)
{
	struct rp_grpc_tls_files server_files = {
		.cert = c->tls.cert_file,
		.key = c->tls.key_file,
		.ca = c->tls.ca_file,
		.crl = c->tls.crl_file,
		/* As etcd: who names the signers of clients wants to see what they signed. */
		.require_client_cert = c->tls.client_cert_auth || c->tls.ca_file[0] != '\0',
	};
	struct rp_grpc_tls_files peer_files = {
		.cert = c->tls.peer_cert_file,
		.key = c->tls.peer_key_file,
		.ca = c->tls.peer_ca_file,
	};

	*tls = (struct ctl_tls){.stamp = stamp_of(c)};
	if (wants_server(c)) {
		const char **suites = calloc(c->tls.cipher_suites.count + 1, sizeof(*suites));

		if (!suites)
			return -ENOMEM;
		for (unsigned i = 0; i < c->tls.cipher_suites.count; i++)
			suites[i] = c->tls.cipher_suites.items[i];
		if (c->tls.cipher_suites.count > 0)
			server_files.suites = suites;
		tls->server = rp_grpc_tls_server(&server_files, error, error_size);
		free(suites);
		if (!tls->server)
			return -EINVAL;
	}
	if (c->tls.peer_ca_file[0] != '\0') {
		tls->peer = rp_grpc_tls_client(&peer_files, error, error_size);
		if (!tls->peer) {
			ctl_tls_free(tls);
			return -EINVAL;
		}
	}
	if (rp_ctl_link_tls_load(c, link_shards, &tls->links, error, error_size) != 0) {
		ctl_tls_free(tls);
		return -EINVAL;
	}
	return 0;
}

void ctl_tls_free(struct ctl_tls *tls)
{
	rp_tls_config_unref(tls->server);
	rp_tls_config_unref(tls->peer);
	rp_ctl_link_tls_free(&tls->links);
	tls->server = tls->peer = NULL;
}

int ctl_tls_create(struct rp_ctl *ctl, char *error, size_t error_size)
{
	ctl->tls_listeners =
		calloc(ctl->conf->listen_client_urls.count + 1, sizeof(*ctl->tls_listeners));
	if (!ctl->tls_listeners)
		return -ENOMEM;
	/* The links were created with theirs. */
	return ctl_tls_load(ctl->conf, 0, &ctl->tls, error, error_size);
}

void ctl_tls_use(struct rp_ctl *ctl, const struct ctl_tls *tls)
{
	for (unsigned i = 0; i < ctl->tls_listener_count; i++)
		rp_grpc_server_set_tls(ctl->server, ctl->tls_listeners[i], tls->server);
	ctl_tls_free(&ctl->tls);
	ctl->tls = *tls;
	for (uint32_t s = 0; s < ctl->config.self.shards; s++)
		if (tls->links.client[s])
			rp_control_set_link_tls(
				ctl->control, s, tls->links.client[s], tls->links.server[s]);
	ctl->tls.links = (struct rp_ctl_link_tls){0};
}

void ctl_tls_check(struct rp_ctl *ctl)
{
	struct ctl_tls tls;
	char error[256] = "";

	if ((!ctl->tls.server && !ctl->tls.peer) || stamp_of(ctl->conf) == ctl->tls.stamp)
		return;
	if (ctl_tls_load(ctl->conf, ctl->config.self.shards, &tls, error, sizeof(error)) == 0) {
		ctl_tls_use(ctl, &tls);
		RP_LOG(RP_LOG_NODE, RP_LOG_INFO, "certificates loaded anew");
		return;
	}
	/* Not said again before the files change again. */
	ctl->tls.stamp = tls.stamp;
	RP_LOG(RP_LOG_NODE, RP_LOG_ERROR, "certificates stay as they are: %s", error);
}
