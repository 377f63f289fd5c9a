#include "cli/ranks.h"

#include "core/error.h"
#include "core/crc32.h"
#include "cli/run_recipe.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static char kept[2048];

/* Returns whether a stop was asked for meanwhile. */
static bool waits(double seconds) {
    const atomic_int *stop = run_recipe_signals();
    for (int i = 0; i < 50 * seconds && !*stop; i++) nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    return *stop;
}

/* MPICH's launcher is at the other end of PMI_FD. */
static bool mpich_launched(void) {
    const char *fd = getenv("PMI_FD");
    return fd && strcmp(comm_launched().by, "mpiexec") == 0 && fcntl(atoi(fd), F_GETFD) >= 0;
}

/* Rank 0 prints. Open MPI's launcher ends the other ranks about a second later. A process that is still alive after two
 * was not started by the launcher, although its environment says so; it prints, too. Other launchers end no rank. */
bool ranks_speak(void) {
    const comm_launch l = comm_launched();
    return l.rank == 0 || (!mpich_launched() && strcmp(l.by, "srun") != 0 && !waits(2));
}

/* A rank that could not join does not know about the others. The first on each machine prints, as only one machine may be at
 * fault. All wait for rank 0 first. */
static void say_alone(const char *command) {
    const comm_launch l = comm_launched();
    if (l.rank == 0) cli_failed(command);
    else if (!waits(1.5) && (l.local == 0 || ranks_speak()))
        cli_fail(command, "rank %d: %s", l.rank, adamod__last_message());
}

/* MPICH's launcher ends the other ranks if one is killed, but not if one exits before it has joined. */
static int fail_alone(const char *command) {
    say_alone(command);
    if (mpich_launched()) raise(SIGKILL);
    return CLI_FAILURE;
}

typedef struct listener {
    char host[64];
    uint32_t told;
} listener;

/* Ranks with different orders would wait for each other forever. */
static int compare(comm *c, const char *what, const char *told) {
    listener mine = {{0}, adamod__crc32(0, told, strlen(told))}, *all = calloc((size_t)comm_size(c), sizeof *all);
    const comm_place here = comm_local(c);
    int other = 1;
    if (!all) comm_abort(c, CLI_FAILURE);
    memcpy(mine.host, here.host, sizeof mine.host);
    comm_gather(c, &mine, sizeof mine, all);
    while (other < comm_size(c) && all[other].told == all[0].told) other++;
    const bool differs = other < comm_size(c);
    if (differs)
        snprintf(kept, sizeof kept, "rank %d (%s): its %s of rank 0 (%s)", other, all[other].host, what, all[0].host);
    free(all);
    return differs ? CLI_USAGE : 0;
}

int ranks_join(const char *command, comm **out) {
    char library[512];
    bool alone;
    *out = NULL;
    if (comm_launched().size <= 1) return 0;
    (void)run_recipe_signals(); /* before MPI starts threads of its own */
    if (!comm_library(library, sizeof library)) return fail_alone(command);
    if (comm_open(out, &alone)) {
        if (alone) return fail_alone(command);
        return comm_launched().rank == 0 ? cli_failed(command) : CLI_FAILURE;
    }
    cli_keep(kept, sizeof kept);
    if (comm_rank(*out) > 0 && !freopen("/dev/null", "w", stdout)) comm_abort(*out, CLI_FAILURE);
    return compare(*out, "command is not that", command) ? ranks_leave(command, *out, CLI_USAGE) : 0;
}

static void print_kept(const char *command, const comm *c) {
    cli_keep(NULL, 0);
    if (comm_rank(c) == 0 && *kept) cli_fail(command, "%s", kept);
}

int ranks_agree(const char *command, comm *c, int status, const char *told) {
    if (status > 0) adamod__refuse("%s", kept);
    int agreed = comm_agree(c, status > 0 ? status : 0);
    if (c && agreed) snprintf(kept, sizeof kept, "%s", adamod__last_message());
    if (c && !agreed && told) agreed = compare(c, "flags are not those", status < 0 ? told : "nothing to do");
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
    return !ranks_speak()
               ? CLI_USAGE
               : cli_usage(command, "%s started %d processes, but this command runs as one: start one, or unset %s",
                           l.by, l.size, l.variable);
}
