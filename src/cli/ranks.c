#include "cli/ranks.h"

#include "cli/training.h"

#include <signal.h>
#include <string.h>
#include <time.h>

static char kept[2048];

/* A rank without MPI cannot ask the others who speaks. Rank 0 does. Of the others the first of each machine does, unless it was
 * told to stop meanwhile: where rank 0 has failed too, the launcher ends all, Open MPI after a second. */
static void say_alone(const char *command, const char *message) {
    const comm_launch l = comm_launched();
    const atomic_int *stop = training_signals();
    for (int i = 0; l.rank > 0 && i < 75 && !*stop; i++) nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    if (l.rank == 0) cli_fail(command, "%s", message);
    else if (!*stop && l.local == 0) cli_fail(command, "rank %d: %s", l.rank, message);
}

/* MPICH's launcher lets the others wait for ever for one that exits before it has joined, but not for one that is killed. */
static int fail_alone(const char *command, const char *message) {
    say_alone(command, message);
    if (strcmp(comm_launched().by, "mpiexec") == 0) raise(SIGKILL);
    return CLI_FAILURE;
}

int ranks_join(const char *command, comm **out) {
    char message[512];
    *out = NULL;
    if (comm_launched().size <= 1) return 0;
    (void)training_signals(); /* before MPI starts threads of its own */
    if (!comm_library(message, sizeof message)) return fail_alone(command, message);
    if (comm_open(out, message, sizeof message))
        return comm_launched().rank == 0 ? cli_fail(command, "%s", message) : CLI_FAILURE;
    cli_keep(kept, sizeof kept);
    if (comm_rank(*out) > 0 && !freopen("/dev/null", "w", stdout)) comm_abort(*out, CLI_FAILURE);
    return 0;
}

/* Says it aloud again. */
static void print_kept(const char *command, const comm *c) {
    cli_keep(NULL, 0);
    if (comm_rank(c) == 0 && *kept) cli_fail(command, "%s", kept);
}

int ranks_agree(const char *command, comm *c, int status) {
    const int agreed = comm_agree(c, status > 0 ? status : 0, kept, sizeof kept);
    if (!c || !agreed) return status;
    print_kept(command, c);
    *kept = '\0';
    return agreed;
}

int ranks_leave(const char *command, comm *c, int status) {
    if (!c) return status;
    print_kept(command, c);
    fflush(NULL);
    comm_free(c);
    return status;
}

int ranks_refuse(const char *command) {
    const comm_launch l = comm_launched();
    if (l.size <= 1) return 0;
    return l.rank ? CLI_USAGE
                  : cli_usage(command, "%s started %d of it, which do not work together: start one", l.by, l.size);
}
