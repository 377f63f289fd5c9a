/* rank_setup.h - prepares ranks for a run: cores and GPUs, and checks that all have the same input.
 *
 * All ranks call every function. A failure is on all ranks, with the same message. */
#pragma once

#include "comm/comm.h"
#include "train/task.h"

/* Sets what the recipe leaves open: threads for the rank's share of the cores, and a GPU of its own. Does not communicate. */
void rank_setup_local(recipe *r, const comm *c);
/* Like rank_setup_local, for training: refuses a mixture of GPUs and CPUs, and two ranks on a GPU unless train.comm is
 * mpi. */
int rank_setup_devices(recipe *r, comm *c);

/* Fails unless recipe, data and initial weights are equal on all ranks. comm_open compares the program. */
int rank_setup_compare(const experiment *e);

/* Fails unless all ranks see the directory that rank 0 has made or opened. */
int rank_setup_see(comm *c, const char *directory);
