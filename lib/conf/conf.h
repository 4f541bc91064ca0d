/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The configuration of a node: struct rp_conf has one field for each line of knobs.def. Spec page
 * "Cluster, replication, policy, configuration".
 *
 *   1. rp_conf_load() with the arguments of main: defaults, then the file, then the flags.
 *   2. rp_conf_report_print() for what it found; leave with report.exit_code when that is not 0.
 *   3. report.request says what the caller asked for: to run, or one of the requests that only
 * print.
 *   4. rp_conf_resolve() with what the host has: `auto` becomes a value, and the plan says the
 * rest.
 *   5. On SIGHUP: rp_conf_reload() with the same arguments; use new, free old.
 *
 * All texts belong to the configuration and end with rp_conf_free(). Nothing here keeps a global,
 * so any thread may use its own configuration. Paths are written as in the file: `links.per_peer`,
 * `ports[0].mtu`.
 */

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include <base/log.h>
#include <base/units.h>

/** Statuses with which ringpostd ends. */
enum rp_exit {
	RP_EXIT_OK = 0,	     /**< ended by a signal, or a request that only prints */
	RP_EXIT_USAGE = 2,   /**< a flag that does not exist, or has no or a bad value */
	RP_EXIT_LISTEN = 10, /**< listener or signal set-up failed */
	RP_EXIT_CONF = 11,   /**< configuration */
	RP_EXIT_SERVE = 12,  /**< serving failed */
	RP_EXIT_START = 13,  /**< start: peers, uuid */
	RP_EXIT_HOST = 14,   /**< the host is not prepared: hugepages, cores */
	RP_EXIT_PORT = 15,   /**< a port cannot be had */
};

/* Choices: X(UPPER, the text of the file), the first is the zero value. */
#define RP_CONF_TRI_NAMES(X) X(TRI_AUTO, "auto") X(TRI_ON, "on") X(TRI_OFF, "off")
#define RP_CONF_IDLE_NAMES(X) X(IDLE_AUTO, "auto") X(IDLE_POLL, "poll") X(IDLE_ADAPTIVE, "adaptive")
#define RP_CONF_OFFLOAD_NAMES(X) X(OFFLOAD_AUTO, "auto") X(OFFLOAD_HW, "hw") X(OFFLOAD_SW, "sw")
#define RP_CONF_TRANSPORT_NAMES(X) \
	X(TRANSPORT_AUTO, "auto") X(TRANSPORT_TCP, "tcp") X(TRANSPORT_KTCP, "ktcp")
#define RP_CONF_CONGESTION_NAMES(X) \
	X(CONGESTION_DCTCP, "dctcp") X(CONGESTION_CUBIC, "cubic") X(CONGESTION_RENO, "reno")
#define RP_CONF_ROUTE_CONGESTION_NAMES(X)  \
	X(ROUTE_CONGESTION_AUTO, "auto")   \
	X(ROUTE_CONGESTION_DCTCP, "dctcp") \
	X(ROUTE_CONGESTION_CUBIC, "cubic") X(ROUTE_CONGESTION_RENO, "reno")
#define RP_CONF_ROUTE_ECN_NAMES(X) \
	X(ROUTE_ECN_AUTO, "auto")  \
	X(ROUTE_ECN_OFF, "off")    \
	X(ROUTE_ECN_ACCEPT, "accept") X(ROUTE_ECN_ASK, "ask") X(ROUTE_ECN_INSIST, "insist")
#define RP_CONF_ACK_NAMES(X) \
	X(ACK_AUTO, "auto") X(ACK_DELAYED, "delayed") X(ACK_QUICK, "quick") X(ACK_SECOND, "second")
#define RP_CONF_COOKIES_NAMES(X) \
	X(COOKIES_AUTO, "auto") X(COOKIES_OFF, "off") X(COOKIES_ALWAYS, "always")
#define RP_CONF_OVERFLOW_NAMES(X) \
	X(OVERFLOW_REJECT, "reject") X(OVERFLOW_DROP_OLDEST, "drop-oldest")
#define RP_CONF_DURABILITY_NAMES(X) X(DURABILITY_MEMORY, "memory") X(DURABILITY_DISK, "disk")
#define RP_CONF_BACKEND_NAMES(X) X(BACKEND_MEMORY, "memory") X(BACKEND_STORE, "store")
#define RP_CONF_TOKEN_NAMES(X) \
	X(TOKEN_SIMPLE, "simple") X(TOKEN_JWT_HS256, "jwt-hs256") X(TOKEN_JWT_RS256, "jwt-rs256")
#define RP_CONF_LOG_FORMAT_NAMES(X) X(LOG_FORMAT_TEXT, "text") X(LOG_FORMAT_JSON, "json")

#define RP_CONF_ENUM_VALUE(upper, text) RP_CONF_##upper,
#define RP_ENUM(type, tag, names) enum rp_conf_##tag{names(RP_CONF_ENUM_VALUE)};
#include <conf/types.def>
#undef RP_CONF_ENUM_VALUE

/** `auto` in a number that has not been resolved. */
#define RP_CONF_AUTO_U32 UINT32_MAX
#define RP_CONF_AUTO_U64 UINT64_MAX

struct rp_conf_list {
	const char **items;
	unsigned count;
};

/* Each TYPE of knobs.def by its C type. */
#define RP_TYPE(type, ctype, ...) typedef ctype rp_conf_ctype_##type;
#define RP_ENUM(type, tag, names) typedef enum rp_conf_##tag rp_conf_ctype_##type;
#include <conf/types.def>

/* struct rp_conf_port, struct rp_conf_policy */
#define RP_ITEM_BEGIN(item) struct rp_conf_##item {
#define RP_ITEM(item, name, type, ...) rp_conf_ctype_##type name;
#define RP_ITEM_END(item) \
	}                 \
	;
#include <conf/knobs.def>

/** Holds the texts, and where each value came from; private. */
struct rp_conf_memory;

/**
 * Top-level keys are fields (`conf->listen_client_urls`), sections are structs
 * (`conf->links.per_peer`), lists are arrays with a count (`conf->ports[i].mtu`,
 * `conf->ports_count`, `conf->queues.policies[i].match`). Texts are never NULL.
 */
struct rp_conf {
#define RP_TOP(name, type, ...) rp_conf_ctype_##type name;
#define RP_SECTION_BEGIN(section, help) struct rp_conf_##section {
#define RP_KNOB(section, name, type, ...) rp_conf_ctype_##type name;
#define RP_LIST(section, name, item, bound, help) \
	struct rp_conf_##item name[bound];        \
	unsigned name##_count;
#define RP_SECTION_END(section) \
	}                       \
	section;
#include <conf/knobs.def>
	struct rp_conf_memory *memory;
};

/** What the command line asks for. */
enum rp_conf_request {
	RP_CONF_RUN,
	RP_CONF_CHECK,	 /**< --check-config: print the report, leave with its status */
	RP_CONF_DUMP,	 /**< --dump-config: rp_conf_dump() */
	RP_CONF_DRY_RUN, /**< --dry-run: print the plan for host, memory and cores */
	RP_CONF_VERSION,
	RP_CONF_HELP,
};

enum rp_conf_severity { RP_CONF_WARNING, RP_CONF_ERROR };

/** One thing to say. All texts are never NULL; `line` is 0 where there is no place in a file. */
struct rp_conf_message {
	enum rp_conf_severity severity;
	char *origin; /**< the file, or "flag", or "" */
	unsigned line, column;
	char *path; /**< of the knob, or "" */
	char *text; /**< cause, what was expected, the nearest known key */
};

struct rp_conf_report {
	enum rp_conf_request request;
	int exit_code; /**< of enum rp_exit: 0 when there is no error */
	struct rp_conf_message *messages;
	unsigned count, errors, warnings;
};

/**
 * Reads defaults, the file of --config (or config.yml of the working directory, which may be
 * missing) and the flags, checks everything and reports every error at once. Fills both results
 * whatever happens, so rp_conf_free() and rp_conf_report_free() are always due. Returns 0, or
 * -EINVAL when there was an error, or -ENOMEM.
 */
int rp_conf_load(int argc, char *const argv[], struct rp_conf *conf, struct rp_conf_report *report);

/** The same from a text in memory in place of a file: `file` is its name in messages. */
int rp_conf_load_text(const char *file, const void *text, size_t length, int argc,
	char *const argv[], struct rp_conf *conf, struct rp_conf_report *report);

/** Frees what a load took; a zeroed or a freed configuration is fine. */
void rp_conf_free(struct rp_conf *conf);
void rp_conf_report_free(struct rp_conf_report *report);

/** An error that was found elsewhere: a file that a knob names, say. */
void rp_conf_report_error(struct rp_conf_report *report, const char *path, const char *text);
/** file:line:column: severity: path: text, without a newline. Returns the length as snprintf. */
int rp_conf_message_format(const struct rp_conf_message *message, char *text, size_t size);
/** One line a message. */
void rp_conf_report_print(const struct rp_conf_report *report, FILE *out);

/** The whole configuration as YAML that loads to the same values, with each value's origin behind
 * it. */
void rp_conf_dump(const struct rp_conf *conf, FILE *out);
/** The same of a running node, to whoever may ask it: what may hold a password is hidden. */
void rp_conf_dump_hidden(const struct rp_conf *conf, FILE *out);

/** Usage, requests and every knob as a flag, from the table. */
void rp_conf_help(FILE *out);

/** The table as a Markdown page (docs/config.md) and as the part of a scdoc page. */
void rp_conf_help_markdown(FILE *out);
void rp_conf_help_man(FILE *out);

/** What of the host `auto` depends on. */
struct rp_conf_host {
	unsigned cpus[1024]; /**< that this process may use, ascending */
	unsigned cpus_count;
	uint64_t hugepages_free;    /**< of the default size */
	uint64_t hugepage_bytes;    /**< 0: the kernel has none */
	uint64_t memory_free_bytes; /**< available to processes */
};

/** What a node takes from its host, everything decided. */
struct rp_conf_plan {
	unsigned shard_cpus[RP_SHARDS_MAX];
	unsigned shards_count;
	int control_cpu; /**< -1: floats over all CPUs of the process */
	bool hugepages;
	bool hugepages_chosen; /**< by auto: others may take them first, and then it does without */
	uint32_t memory_mib;
	bool poll;     /**< shards never sleep */
	bool over_tcp; /**< links run over our stack; else over kernel sockets */
};

/** Reads the host (/proc, affinity). 0 or -errno. */
int rp_conf_host_read(struct rp_conf_host *host);

/**
 * Replaces each `auto` in `conf` by a value and fills the plan; pure. What the host cannot give is
 * an error in the report with exit code RP_EXIT_HOST: cause, evidence, remedy. Returns 0 or
 * -EINVAL.
 */
int rp_conf_resolve(struct rp_conf *conf, const struct rp_conf_host *host,
	struct rp_conf_plan *plan, struct rp_conf_report *report);

/** What --dry-run shows: shards, their CPUs, memory and transport. */
void rp_conf_plan_print(const struct rp_conf_plan *plan, FILE *out);

/** One knob of which two configurations say different things. Texts are as in a file. */
struct rp_conf_change {
	char *path;
	char *was, *is; /**< "(hidden)" where it may hold a password */
	bool fixed;	/**< wants a restart: it stays `was` */
};

struct rp_conf_changes {
	struct rp_conf_change *items;
	unsigned count;
	unsigned live, fixed, same; /**< knobs; those without an effect are not counted */
};

/** The arguments of main, from which a configuration can be read again. */
struct rp_conf_source {
	int argc;
	char *const *argv; /**< NULL: it cannot */
};

/**
 * The sources once more, as a whole: loads them into `next`, checks it, and sets what cannot change
 * in a running node back to the running value, with the rest checked against that. `changes` says
 * what differs. Fills all three results, so all three are to be freed. 0; -EINVAL: an error in the
 * report, `next` is of no use, also when the file that the running one came from is not there any
 * more; -ENOMEM.
 */
int rp_conf_reload(const struct rp_conf *running, const struct rp_conf_source *source,
	struct rp_conf *next, struct rp_conf_report *report, struct rp_conf_changes *changes);
void rp_conf_changes_free(struct rp_conf_changes *changes);
/** A live knob whose value is the same while what it names is not: a file with other contents. */
void rp_conf_changes_note(
	struct rp_conf_changes *changes, const char *path, const char *was, const char *is);

/**
 * A part of it: each knob of `next` that differs from `running` and cannot change live is set back
 * to the running value and named in a warning. Either result may be NULL. Returns how many.
 */
unsigned rp_conf_keep_fixed(const struct rp_conf *running, struct rp_conf *next,
	struct rp_conf_report *report, struct rp_conf_changes *changes);

/** The smaller of limits.message_bytes and max_request_bytes. */
static inline uint64_t rp_conf_message_bytes(const struct rp_conf *conf)
{
	return RP_MIN(conf->limits.message_bytes, conf->max_request_bytes);
}

/* Texts of the configuration, parsed. On a loaded configuration they do not fail. */

/** 32 hexadecimal digits with or without hyphens. 0 or -EINVAL. */
int rp_conf_uuid_parse(const char *text, uint8_t uuid[RP_UUID_BYTES]);
/** High half xor low half, big-endian: the node id. */
uint64_t rp_conf_uuid_id(const uint8_t uuid[RP_UUID_BYTES]);
/**
 * The uuid of `text`, or where it is empty a version 4 one made of the 16 random bytes given.
 * Returns true when it is random.
 */
bool rp_conf_uuid_or_random(
	const char *text, const uint8_t random[RP_UUID_BYTES], uint8_t uuid[RP_UUID_BYTES]);
/** 36 characters and the zero. */
void rp_conf_uuid_format(const uint8_t uuid[RP_UUID_BYTES], char text[37]);

/** Least and most bytes of a cluster's secret. */
#define RP_CONF_SECRET_BYTES_MIN 32
#define RP_CONF_SECRET_BYTES_MAX 256

/**
 * Reads links.secret_file: a regular file that only its owner may read, of RP_CONF_SECRET_BYTES_MIN
 * to RP_CONF_SECRET_BYTES_MAX bytes without the line ends behind them. Returns the length, or
 * -EINVAL with cause, evidence and remedy in `why`.
 */
int rp_conf_secret_read(
	const char *path, uint8_t secret[RP_CONF_SECRET_BYTES_MAX], char *why, size_t why_size);

struct rp_conf_endpoint {
	char host[256]; /**< name or address without brackets; the path of a unix socket */
	uint16_t port;	/**< 0 for a unix socket */
	bool tls;	/**< https:// */
	bool is_unix;
};

/** [http://|https://]host[:port], [v6]:port, unix:///path; a port that is not there is
 * `port_default`. */
int rp_conf_endpoint_parse(const char *text, uint16_t port_default, struct rp_conf_endpoint *e);
/** "host:port", brackets around an IPv6 address. Returns the length as snprintf does. */
int rp_conf_endpoint_format(const struct rp_conf_endpoint *e, char *text, size_t size);
/** Same host (loopback names are one) and port. */
bool rp_conf_endpoint_equal(const struct rp_conf_endpoint *a, const struct rp_conf_endpoint *b);

/**
 * The peers to dial: initial_advertise_peer_urls without duplicates and without what this node
 * listens on. Returns how many were written, at most `max`.
 */
unsigned rp_conf_peers(const struct rp_conf *conf, struct rp_conf_endpoint *peers, unsigned max);

/** "1-3,5" to CPUs in the order written. Returns how many or -EINVAL; more than `max` is -EINVAL.
 */
int rp_conf_cpus_parse(const char *text, unsigned *cpus, unsigned max);

/** "10.0.0.1/24": address in network order and prefix length. 0 or -EINVAL. */
int rp_conf_ip4net_parse(const char *text, uint8_t address[4], uint8_t *prefix_bits);
int rp_conf_ip6net_parse(const char *text, uint8_t address[16], uint8_t *prefix_bits);
/** An address of either family; an IPv4 one is in the first four bytes. 0 or -EINVAL. */
int rp_conf_ip_parse(const char *text, uint8_t address[16], bool *six);
/** Either of the two; an IPv4 address is in the first four bytes. 0 or -EINVAL. */
int rp_conf_ipnet_parse(const char *text, uint8_t address[16], bool *six, uint8_t *prefix_bits);
/** "address=02:00:00:00:00:09". 0 or -EINVAL. */
int rp_conf_neighbour_parse(const char *text, uint8_t address[16], bool *six, uint8_t mac[6]);

/** "subject=level" of log_levels. 0 or -EINVAL. */
int rp_conf_level_parse(const char *text, enum rp_log_subject *subject, enum rp_log_level *level);
/** What log_level and log_levels say of the subject. */
enum rp_log_level rp_conf_level_of(const struct rp_conf *conf, enum rp_log_subject subject);
/** The log is as they say, from now on. */
void rp_conf_levels_use(const struct rp_conf *conf);
