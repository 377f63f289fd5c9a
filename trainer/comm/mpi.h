/* mpi.h - the functions of MPI in use, from any MPI library.
 *
 * No MPI header is needed: functions are the same everywhere; only handles of types and operations differ. In Open MPI
 * they are addresses of variables, in MPICH and its derivatives (Intel MPI, MVAPICH, Cray) fixed integers. Both are passed
 * as a pointer; an integer parameter takes its lower half. */
#pragma once

typedef void *mpi_handle;

typedef struct mpi {
    mpi_handle world, byte, real, number, sum, most; /* real: float, number: double */
    void *in_place;
    char name[128]; /* "Open MPI v4.1.4, libmpi.so.40" */
    int (*init)(int *argc, char ***argv, int required, int *provided);
    int (*finalize)(void);
    int (*abort)(mpi_handle comm, int status);
    int (*rank)(mpi_handle comm, int *rank);
    int (*size)(mpi_handle comm, int *size);
    int (*barrier)(mpi_handle comm);
    int (*broadcast)(void *data, int n, mpi_handle type, int from, mpi_handle comm);
    int (*gather)(const void *mine, int n, mpi_handle type, void *all, int n_each, mpi_handle type_all,
                  mpi_handle comm);
    int (*gather_parts)(const void *mine, int n, mpi_handle type, void *all, const int *counts, const int *places,
                        mpi_handle type_all, mpi_handle comm);
    int (*exchange_parts)(const void *x, const int *counts, const int *places, mpi_handle type, void *y,
                          const int *counts_y, const int *places_y, mpi_handle type_y, mpi_handle comm);
    int (*reduce)(const void *x, void *y, int n, mpi_handle type, mpi_handle op, mpi_handle comm);
    int (*version)(char *text, int *length);
} mpi;

enum { MPI_SERIALIZED = 2, MPI_VERSION_ROOM = 8192 };

/* Loads the launcher's library, or the first there is, or ADAMOD_MPI_LIBRARY. NULL: none can be used. */
const mpi *mpi_load(void);
