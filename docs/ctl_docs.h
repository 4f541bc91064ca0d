/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What is made from the table of ringpostctl's commands, app/ringpostctl/commands.def. */

/** The manual page, as scdoc takes it. */
void ctl_man(void);
/** The completion of bash. */
void ctl_bash(void);
