/* How long a case of `adamod optim bench` takes with rules that multiply matrices, and how many steps a fair measurement
 * takes. */
#include "cli/cli.h"
#include "cli/optim_bench.h"

#include <stdlib.h>
#include <string.h>

static bool has_matrices(const bench_case *c) {
    bool any = false;
    for (int i = 0; i < c->n_shapes; i++) any = any || c->shapes[i].ndim >= 2;
    return any;
}

int bench_period(const char *rule, const bench_case *c) {
    adamod_option frequency;
    if (!has_matrices(c) || adamod_option_find(rule, "precondition_frequency", &frequency)) return 1;
    return (int)frequency.value;
}

bool bench_multiplies(const char *rule, const bench_case *c) {
    return has_matrices(c) && (strcmp(rule, "muon") == 0 || bench_period(rule, c) > 1);
}

/* No rule has a matrix for the long side of an embedding. */
static double with_matrix(double side) { return side > BENCH_EMBEDDING ? 0 : side; }

/* In proportion to the time of matrix products and changes of bases. */
static double work_of(const bench_case *c) {
    double sum = 0;
    for (int i = 0; i < c->n_shapes; i++) {
        const bench_shape *s = &c->shapes[i];
        double rows = (double)s->dim[0], columns = 1;
        for (int d = 1; d < s->ndim; d++) columns *= (double)s->dim[d];
        sum += rows * columns * (s->ndim < 2 ? 1 : with_matrix(rows) + with_matrix(columns));
    }
    return sum;
}

/* Cuts the sides of a case. Returns whether there was nothing to cut. */
static bool cut(const bench_case *c, int64_t side, bench_shape *shapes, bench_case *out) {
    bool whole = true;
    *out = *c;
    out->shapes = shapes;
    out->elements = 0;
    for (int i = 0; i < c->n_shapes; i++) {
        int64_t count = 1;
        shapes[i] = c->shapes[i];
        for (int d = 0; d < shapes[i].ndim; d++) {
            const bool long_one = shapes[i].dim[d] > side && shapes[i].dim[d] <= BENCH_EMBEDDING;
            whole = whole && !long_one;
            if (long_one) shapes[i].dim[d] = side;
            count *= shapes[i].dim[d];
        }
        out->elements += count;
    }
    return whole;
}

int bench_fits(const bench_case *c, double most, bench_attempt attempt, void *context, double *about) {
    bench_shape *shapes = malloc(2 * (size_t)c->n_shapes * sizeof *shapes);
    int status = shapes ? 0 : cli_fail("optim bench", "out of memory");
    *about = 0;
    for (int64_t side = 16; !status; side *= 2) {
        bench_case now, next;
        double seconds;
        if (cut(c, side, shapes, &now)) break;
        cut(c, 2 * side, shapes + c->n_shapes, &next);
        status = attempt(context, &now, &seconds);
        if (!status && seconds * work_of(&next) / work_of(&now) > most) {
            *about = seconds * work_of(c) / work_of(&now);
            break;
        }
    }
    free(shapes);
    return status;
}

bool bench_is_too_long(const bench_case *c, double about) {
    if (about <= 0) return false;
    fprintf(stderr,
            "adamod: optim bench: %s, %lld is left out: its first step would take about %.0f s; without --quick it is "
            "measured\n",
            c->name, (long long)c->elements, about);
    return true;
}
