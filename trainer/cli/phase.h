/* phase.h - what a command that takes minutes does now, on standard error: on a terminal one live line with the seconds so
 * far, elsewhere a line, if it takes longer than a moment. */
#ifndef CLI_PHASE_H
#define CLI_PHASE_H

/* This begins, and what was before ends. The command is as in messages, and stays where it is. */
void phase_begin(const char *command, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* To be called before anything else is printed but messages, which do it by themselves. */
void phase_end(void);

#endif
