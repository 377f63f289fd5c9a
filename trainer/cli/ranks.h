/* ranks.h - for commands that mpirun or srun may start on several ranks. Only rank 0 prints; a failure on any rank is
 * reported once. */
#pragma once

#include "cli/cli.h"
#include "comm/comm.h"

/* Joins the other ranks; *out NULL: this process is alone. From then on messages are kept until the ranks meet again.
 * Returns 0, or the exit status. */
int ranks_join(const char *command, comm **out);

/* Returns the first status above 0 of all ranks, after printing its message; else this rank's own. told: flags that must be
 * equal on all ranks, which then must all go on (-1); NULL: none. */
int ranks_agree(const char *command, comm *c, int status, const char *told);

/* Prints the kept message, waits for the other ranks and returns the status. */
int ranks_leave(const char *command, comm *c, int status);

/* Whether this rank is to print, if all fail alike before they joined. May wait for the launcher to end it. */
bool ranks_speak(void);

/* For commands that run as one process: CLI_USAGE after one message in all if several ranks were started; else 0. */
int ranks_refuse(const char *command);
