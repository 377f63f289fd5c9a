/* ranks.h - commands that mpirun or srun may start on several ranks: whatever goes wrong on whichever of them is said once, by
 * rank 0, and only rank 0 prints. */
#ifndef CLI_RANKS_H
#define CLI_RANKS_H

#include "cli/cli.h"
#include "comm/comm.h"

/* Joins the others, if there are any; *out NULL: this process is alone. From then on messages are kept until the ranks meet
 * again. The exit status, or 0. */
int ranks_join(const char *command, comm **out);

/* The same status on all ranks: that of the first rank whose is above 0, with its message printed; else this one's own. told:
 * flags, beside what the recipe has, that must be the same on all that go on (-1), and all must; NULL: there are none. */
int ranks_agree(const char *command, comm *c, int status, const char *told);

/* At the end: prints what is kept, which all ranks agree on, waits for the others and returns the status. */
int ranks_leave(const char *command, comm *c, int status);

/* Where all ranks fail alike and none has joined: whether this one is to say why. May wait for the launcher to end it. */
bool ranks_speak(void);

/* For commands that do not work together: CLI_USAGE, with one line in all, where several ranks were started; else 0. */
int ranks_refuse(const char *command);

#endif
