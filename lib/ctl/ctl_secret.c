/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The cluster's secret, and the one before it (spec/links.md, rotation): of this thread, which
 * proves it on gRPC connections, and of the shards, whose links do. A reload reads the files again;
 * connections that have proved one secret stay when it is gone.
 */

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <base/assert.h>
#include <base/log.h>
#include <ctl/ctl_priv.h>

_Static_assert(RP_XMSG_SECRET_BYTES_MAX == RP_CONF_SECRET_BYTES_MAX, "one bound");

static int file_load(const char *path, const char *knob, uint8_t *secret, uint16_t *length,
	struct rp_conf_report *report)
{
	char why[300];
	int n;

	if (path[0] == '\0')
		return 0;
	n = rp_conf_secret_read(path, secret, why, sizeof(why));
	if (n < 0) {
		rp_conf_report_error(report, knob, why);
		return -EINVAL;
	}
	*length = (uint16_t)n;
	return 0;
}

int ctl_secrets_load(
	const struct rp_conf *c, struct rp_xmsg_secrets *s, struct rp_conf_report *report)
{
	int rc, rc_previous;

	memset(s, 0, sizeof(*s));
	rc = file_load(c->links.secret_file, "links.secret_file", s->secret, &s->length, report);
	rc_previous = file_load(c->links.previous_secret_file, "links.previous_secret_file",
		s->previous, &s->previous_length, report);
	return rc ? rc : rc_previous;
}

static void take(struct rp_ctl *ctl, const struct rp_xmsg_secrets *s)
{
	struct rp_xmsg_secrets *own = &ctl->secrets;
	struct rp_ctl_config *config = &ctl->config;

	*own = *s;
	config->secret = own->length ? own->secret : NULL;
	config->secret_length = own->length;
	config->secret_previous = own->previous_length ? own->previous : NULL;
	config->secret_previous_length = own->previous_length;
}

void ctl_secrets_create(struct rp_ctl *ctl)
{
	const struct rp_ctl_config *config = &ctl->config;
	struct rp_xmsg_secrets s = {0};

	RP_ASSERT(config->secret_length <= sizeof(s.secret) &&
		  config->secret_previous_length <= sizeof(s.previous));
	if (config->secret) {
		s.length = (uint16_t)config->secret_length;
		memcpy(s.secret, config->secret, s.length);
	}
	if (config->secret_previous) {
		s.previous_length = (uint16_t)config->secret_previous_length;
		memcpy(s.previous, config->secret_previous, s.previous_length);
	}
	take(ctl, &s);
	explicit_bzero(&s, sizeof(s));
}

static void note(struct rp_conf_changes *changes, const char *knob, const char *was, const char *is)
{
	char before[300], after[300];

	/* Another path is a change that is told already. */
	if (strcmp(was, is) != 0)
		return;
	snprintf(before, sizeof(before), "%.200s", was);
	snprintf(after, sizeof(after), "%.200s (other contents)", is);
	rp_conf_changes_note(changes, knob, before, after);
}

int ctl_secrets_use(struct rp_ctl *ctl, const struct rp_conf *next, const struct rp_xmsg_secrets *s,
	struct rp_conf_changes *changes)
{
	const struct rp_xmsg_secrets *own = &ctl->secrets;
	bool secret = own->length != s->length || memcmp(own->secret, s->secret, s->length) != 0;
	bool previous = own->previous_length != s->previous_length ||
			memcmp(own->previous, s->previous, s->previous_length) != 0;

	if (!secret && !previous)
		return 0;
	if (rp_control_set_secrets(ctl->control, s) != 0)
		return -ENOBUFS;
	if (secret)
		note(changes, "links.secret_file", ctl->conf->links.secret_file,
			next->links.secret_file);
	if (previous)
		note(changes, "links.previous_secret_file", ctl->conf->links.previous_secret_file,
			next->links.previous_secret_file);
	take(ctl, s);
	return 0;
}
