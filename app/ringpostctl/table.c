/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <base/units.h>

#include "table.h"

#define GAP 2

void table_init(struct table *t, const char *const *heads, uint32_t right)
{
	char(*cells)[TABLE_CELL_SIZE];

	*t = (struct table){.right = right};
	while (t->columns < TABLE_COLUMNS_MAX && heads[t->columns])
		t->columns++;
	cells = table_row(t);
	for (unsigned i = 0; i < t->columns; i++)
		snprintf(cells[i], TABLE_CELL_SIZE, "%s", heads[i]);
}

char (*table_row(struct table *t))[TABLE_CELL_SIZE]
{
	if (t->rows == t->size) {
		t->size = t->size ? 2 * t->size : 32;
		t->cells = realloc(t->cells, t->size * t->columns * TABLE_CELL_SIZE);
		if (!t->cells)
			abort();
	}
	memset(&t->cells[t->rows * t->columns], 0, t->columns * TABLE_CELL_SIZE);
	return &t->cells[t->rows++ * t->columns];
}

/* What the terminal has; without one there is no bound. */
static size_t width_max(void)
{
	struct winsize w;

	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) != 0 || w.ws_col == 0)
		return SIZE_MAX;
	return w.ws_col;
}

void table_print(struct table *t)
{
	size_t width[TABLE_COLUMNS_MAX] = {0}, total = 0;
	unsigned shown = 0;

	for (size_t r = 0; r < t->rows; r++)
		for (unsigned c = 0; c < t->columns; c++)
			width[c] = RP_MAX(width[c], strlen(t->cells[r * t->columns + c]));
	for (; shown < t->columns; shown++) {
		total += width[shown] + (shown > 0 ? GAP : 0);
		if (total > width_max())
			break;
	}
	shown = RP_MAX(shown, 1u);
	for (size_t r = 0; r < t->rows; r++) {
		for (unsigned c = 0; c < shown; c++) {
			const char *cell = t->cells[r * t->columns + c];
			int w = t->right >> c & 1 ? (int)width[c]
				: c + 1 < shown	  ? -(int)width[c]
						  : 0;

			printf("%s%*s", c > 0 ? "  " : "", w, cell);
		}
		putchar('\n');
	}
	table_free(t);
}

void table_free(struct table *t)
{
	free(t->cells);
	t->cells = NULL;
}

const char *text_bytes(char text[TABLE_CELL_SIZE], uint64_t bytes)
{
	static const char units[] = "KMGTPE";
	double v = (double)bytes;
	size_t u = 0;

	if (bytes < 10000) {
		snprintf(text, TABLE_CELL_SIZE, "%" PRIu64, bytes);
		return text;
	}
	for (v /= 1024; v >= 1000 && units[u + 1]; v /= 1024)
		u++;
	snprintf(text, TABLE_CELL_SIZE, v < 100 ? "%.1f%c" : "%.0f%c", v, units[u]);
	return text;
}

const char *text_ns(char text[TABLE_CELL_SIZE], uint64_t ns)
{
	uint64_t s = ns / RP_NS_PER_S;

	if (ns < RP_NS_PER_MS)
		snprintf(text, TABLE_CELL_SIZE, "%" PRIu64 "us", (ns + 500) / 1000);
	else if (ns < RP_NS_PER_S)
		snprintf(text, TABLE_CELL_SIZE, ns < 100 * RP_NS_PER_MS ? "%.1fms" : "%.0fms",
			(double)ns / 1e6);
	else if (s < 120)
		snprintf(text, TABLE_CELL_SIZE, "%.1fs", (double)ns / 1e9);
	else if (s < 120 * 60)
		snprintf(text, TABLE_CELL_SIZE, "%" PRIu64 "m", s / 60);
	else if (s < 48 * 3600)
		snprintf(text, TABLE_CELL_SIZE, "%" PRIu64 "h", s / 3600);
	else
		snprintf(text, TABLE_CELL_SIZE, "%" PRIu64 "d", s / 86400);
	return text;
}
