/* phase.h - tells on standard error what a long command is doing: on a terminal in one live line with the seconds so far,
 * elsewhere in a line, if it takes longer than a second. */
#pragma once

/* Begins a phase and ends the one before. command: as in messages; the pointer is kept. */
void phase_begin(const char *command, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Call it before printing; messages do so themselves. */
void phase_end(void);
