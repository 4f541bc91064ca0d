/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <base/impair.h>
#include <base/units.h>

void rp_impair_init(struct rp_impair *im, const struct rp_impair_spec *spec, uint64_t seed)
{
	*im = (struct rp_impair){.spec = *spec, .rand = {seed}};
}

void rp_impair_set(struct rp_impair *im, const struct rp_impair_spec *spec)
{
	im->spec = *spec;
}

static uint64_t delay_of(struct rp_impair *im)
{
	const struct rp_impair_spec *s = &im->spec;
	uint64_t delay_ns = s->delay_ns;

	if (s->jitter_ns > 0)
		delay_ns += rp_rand_below(&im->rand, s->jitter_ns);
	if (s->reorder > 0 && rp_rand_unit(&im->rand) < s->reorder) {
		delay_ns += s->reorder_ns;
		im->reordered++;
	}
	if (delay_ns > 0)
		im->delayed++;
	return delay_ns;
}

struct rp_impair_verdict rp_impair_decide(struct rp_impair *im)
{
	const struct rp_impair_spec *s = &im->spec;
	struct rp_impair_verdict v = {.copies = 1};

	im->seen++;
	if (s->cut || (s->drop > 0 && rp_rand_unit(&im->rand) < s->drop)) {
		im->dropped++;
		v.copies = 0;
		return v;
	}
	if (s->duplicate > 0 && rp_rand_unit(&im->rand) < s->duplicate) {
		im->duplicated++;
		v.copies = 2;
	}
	for (unsigned i = 0; i < v.copies; i++)
		v.delay_ns[i] = delay_of(im);
	return v;
}

static int parse_pair(char *pair, struct rp_impair_spec *spec, char *error, size_t error_size)
{
	char *eq = strchr(pair, '='), *end;
	double value;

	if (!eq || eq[1] == '\0')
		goto bad;
	*eq = '\0';
	value = strtod(eq + 1, &end);
	if (*end != '\0' || !isfinite(value) || value < 0)
		goto bad_restore;
	if (!strcmp(pair, "drop") && value <= 1)
		spec->drop = value;
	else if (!strcmp(pair, "dup") && value <= 1)
		spec->duplicate = value;
	else if (!strcmp(pair, "reorder") && value <= 1)
		spec->reorder = value;
	else if (!strcmp(pair, "reorder_us") && value <= 1e9)
		spec->reorder_ns = (uint64_t)(value * RP_NS_PER_US);
	else if (!strcmp(pair, "delay_us") && value <= 1e9)
		spec->delay_ns = (uint64_t)(value * RP_NS_PER_US);
	else if (!strcmp(pair, "jitter_us") && value <= 1e9)
		spec->jitter_ns = (uint64_t)(value * RP_NS_PER_US);
	else if (!strcmp(pair, "cut") && (value == 0 || value == 1))
		spec->cut = value != 0;
	else
		goto bad_restore;
	return 0;

bad_restore:
	*eq = '=';
bad:
	snprintf(error, error_size,
		"\"%s\": expected drop=P, dup=P, reorder=P (0..1), reorder_us=N, delay_us=N, "
		"jitter_us=N or cut=0|1",
		pair);
	return -EINVAL;
}

int rp_impair_parse(const char *text, struct rp_impair_spec *spec, char *error, size_t error_size)
{
	char copy[256], *save = NULL;

	memset(spec, 0, sizeof(*spec));
	if (strlen(text) >= sizeof(copy)) {
		snprintf(error, error_size, "longer than %zu bytes", sizeof(copy) - 1);
		return -EINVAL;
	}
	strcpy(copy, text);
	for (char *p = strtok_r(copy, ", ", &save); p; p = strtok_r(NULL, ", ", &save)) {
		int rc = parse_pair(p, spec, error, error_size);

		if (rc)
			return rc;
	}
	if (spec->reorder > 0 && spec->reorder_ns == 0)
		spec->reorder_ns = 50 * RP_NS_PER_US;
	return 0;
}
