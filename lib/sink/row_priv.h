/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <base/units.h>

/** What a value is to a table, by its outline alone. */
enum sink_row {
	SINK_ROW_EMPTY,	 /**< nothing but blanks */
	SINK_ROW_OBJECT, /**< one JSON object, or several one after the other */
	SINK_ROW_BAD,
};

/**
 * Whether the value stands by itself: each string and bracket that it opens it closes, so that no
 * row can reach into the one behind it. Whether it is good JSON is for the server to say.
 */
enum sink_row sink_row_outline(struct rp_span value);
