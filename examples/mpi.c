/* Data parallelism with libadamod and MPI: each rank has a share of the data, computes the gradient on it, and makes the
 * same step as all others.
 *
 *     mpicc -DWITH_MPI mpi.c -ladamod -o mpi && mpirun -n 2 ./mpi
 *
 * Without WITH_MPI it is one process with all of the data, which ends with the same parameters to rounding.
 *
 * SPDX-License-Identifier: MIT
 */
#include <adamod.h>

#include <stdio.h>

#ifdef WITH_MPI
#include <mpi.h>
#endif

enum { FEATURES = 8, SAMPLES = 4096, STEPS = 1000 };

typedef struct sample {
    float x[FEATURES], y;
} sample;

/* Sample i is the same on every rank: no rank needs the others' data. */
static sample make_sample(int i) {
    unsigned state = 2654435761u * (unsigned)(i + 1);
    sample s = {{0}, 0};
    for (int k = 0; k < FEATURES; k++) {
        state = state * 1664525u + 1013904223u;
        s.x[k] = (float)(state >> 8) / (1 << 23) - 1;
        s.y += s.x[k] * (float)(k - 3);
    }
    return s;
}

/* The gradient of the mean squared error, of this rank's samples; the sum over ranks is that of all. */
static double gradient(const float *w, float *grad, int rank, int size) {
    double loss = 0;
    for (int k = 0; k < FEATURES; k++) grad[k] = 0;
    for (int i = rank; i < SAMPLES; i += size) {
        const sample s = make_sample(i);
        float error = -s.y;
        for (int k = 0; k < FEATURES; k++) error += w[k] * s.x[k];
        for (int k = 0; k < FEATURES; k++) grad[k] += 2 * error * s.x[k] / SAMPLES;
        loss += (double)(error * error) / SAMPLES;
    }
    return loss;
}

/* All ranks have the same numbers then: so they make the same step. */
static void sum_over_ranks(float *grad, double *loss) {
#ifdef WITH_MPI
    MPI_Allreduce(MPI_IN_PLACE, grad, FEATURES, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allreduce(MPI_IN_PLACE, loss, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
#else
    (void)grad, (void)loss;
#endif
}

static int train(int rank, int size) {
    float w[FEATURES] = {0}, grad[FEATURES];
    double loss = 0;
    adamod_optimizer *opt = NULL;
    adamod_status status = adamod_create(&opt, "adamod");
    if (!status) status = adamod_set(opt, "lr", 0.3);
    if (!status) status = adamod_add(opt, "w", w, grad, 1, (int64_t[]){FEATURES});
    for (int step = 0; !status && step < STEPS; step++) {
        loss = gradient(w, grad, rank, size);
        sum_over_ranks(grad, &loss);
        status = adamod_step(opt);
    }
    if (status) fprintf(stderr, "rank %d: %s\n", rank, adamod_strerror(status));
    if (!status && rank == 0)
        printf("%d ranks: loss %.6f, the last weight %.4f\n", size, loss, (double)w[FEATURES - 1]);
    adamod_free(opt);
    return status ? 1 : 0;
}

int main(int argc, char **argv) {
    int rank = 0, size = 1;
#ifdef WITH_MPI
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
#else
    (void)argc, (void)argv;
#endif
    const int status = train(rank, size);
#ifdef WITH_MPI
    if (status) MPI_Abort(MPI_COMM_WORLD, status);
    MPI_Finalize();
#endif
    return status;
}
