/* SPDX-License-Identifier: Apache-2.0 */

/* log_level and log_levels: what they make of each subject. */

#include <conf/conf.h>

enum rp_log_level rp_conf_level_of(const struct rp_conf *conf, enum rp_log_subject subject)
{
	enum rp_log_level result = conf->log_level;

	/* The last one that names the subject holds. */
	for (unsigned i = 0; i < conf->log_levels.count; i++) {
		enum rp_log_subject s;
		enum rp_log_level level;

		if (rp_conf_level_parse(conf->log_levels.items[i], &s, &level) == 0 && s == subject)
			result = level;
	}
	return result;
}

void rp_conf_levels_use(const struct rp_conf *conf)
{
	for (unsigned i = 0; i < RP_LOG_SUBJECT_COUNT; i++)
		rp_log_set_subject_level(i, rp_conf_level_of(conf, i));
}
