/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What ringpostd does with its command line up to the point where it would start, without the host:
 * the report on stderr, for --dump-config the configuration on stdout, and the status.
 */

#include <stdio.h>

#include <conf/conf.h>

int main(int argc, char *argv[])
{
	static struct rp_conf conf;
	struct rp_conf_report report;
	int status;

	rp_conf_load(argc, argv, &conf, &report);
	rp_conf_report_print(&report, stderr);
	if (report.errors == 0 && report.request == RP_CONF_DUMP)
		rp_conf_dump(&conf, stdout);
	if (report.errors == 0 && report.request == RP_CONF_HELP)
		rp_conf_help(stdout);
	status = report.exit_code;
	rp_conf_free(&conf);
	rp_conf_report_free(&report);
	return status;
}
