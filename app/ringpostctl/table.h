/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Tables for people: as many columns as the terminal has room for, and texts of sizes and times. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TABLE_COLUMNS_MAX 16
#define TABLE_CELL_SIZE 64

/** Cells are texts; the first row is the heads. Columns to the right are left out first. */
struct table {
	unsigned columns;
	uint32_t right; /**< bit of each column that is set flush right */
	size_t rows, size;
	char (*cells)[TABLE_CELL_SIZE];
};

/** `heads` ends with NULL. */
void table_init(struct table *t, const char *const *heads, uint32_t right);
/** The next row's cells, empty. Valid until the next call. */
char (*table_row(struct table *t))[TABLE_CELL_SIZE];
/** On standard output, and frees it. On a terminal it is no wider than that. */
void table_print(struct table *t);
/** What is not printed. */
void table_free(struct table *t);

/** "914", "14.2K", "3.1M": bytes. */
const char *text_bytes(char text[TABLE_CELL_SIZE], uint64_t bytes);
/** "85us", "1.2ms", "3.0s", "5m", "2h", "4d". */
const char *text_ns(char text[TABLE_CELL_SIZE], uint64_t ns);
