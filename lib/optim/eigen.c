/* Rows are kept together in memory wherever a loop is long: rotations turn rows of the transposed matrix, reflections are
 * applied row by row. */
#include "optim/eigen.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

/* a -= v w^T over rows and columns from first on, w = scale v^T a. */
static void adamod__reflect(double *a, int64_t n, int64_t first, int64_t from_col, const double *v, double scale,
                            double *w) {
    for (int64_t j = from_col; j < n; j++) w[j] = 0;
    for (int64_t i = first; i < n; i++) {
        const double x = v[i];
        for (int64_t j = from_col; j < n; j++) w[j] += x * a[i * n + j];
    }
    for (int64_t i = first; i < n; i++) {
        const double x = scale * v[i];
        for (int64_t j = from_col; j < n; j++) a[i * n + j] -= x * w[j];
    }
}

/* Replaces x = (v[first], ...) by the vector v of the reflection that turns x into (r, 0, ..., 0), and returns r. *scale is
 * 2 / |v|^2, or 0 if x has that form already. */
static double adamod__reflection(double *v, int64_t n, int64_t first, double *scale) {
    double rest = 0;
    for (int64_t i = first + 1; i < n; i++) rest += v[i] * v[i];
    *scale = 0;
    if (rest == 0) return v[first];
    const double length = sqrt(v[first] * v[first] + rest), to = v[first] >= 0 ? -length : length;
    v[first] -= to;
    *scale = 2 / (v[first] * v[first] + rest);
    return to;
}

void adamod__orthogonal_factor(double *a, int64_t n, double *space) {
    double *v = space, *w = space + n;
    /* Column k below the diagonal keeps the reflection's vector, divided by its first element as LAPACK does. */
    for (int64_t k = 0; k + 1 < n; k++) {
        double scale;
        for (int64_t i = k; i < n; i++) v[i] = a[i * n + k];
        (void)adamod__reflection(v, n, k, &scale);
        if (scale != 0) adamod__reflect(a, n, k, k + 1, v, scale, w);
        for (int64_t i = k + 1; i < n; i++) a[i * n + k] = scale != 0 ? v[i] / v[k] : 0;
        a[k * n + k] = scale * v[k] * v[k];
    }
    a[n * n - 1] = 0;
    for (int64_t k = n - 1; k >= 0; k--) {
        const double scale = a[k * n + k];
        v[k] = 1;
        for (int64_t i = k + 1; i < n; i++) v[i] = a[i * n + k];
        for (int64_t i = k; i < n; i++) a[i * n + k] = a[k * n + i] = 0;
        a[k * n + k] = 1;
        if (scale != 0) adamod__reflect(a, n, k, k, v, scale, w);
    }
}

/* a = Q T Q^T with a tridiagonal T: stores T's diagonals in d and e (e[i] lies beside d[i] and d[i + 1]), then Q in a. */
static void adamod__tridiagonal(double *a, int64_t n, double *d, double *e, double *v) {
    for (int64_t k = 0; k + 2 < n; k++) {
        double scale, *w = e; /* of which e[k + 1], ... are not filled in yet */
        for (int64_t i = k + 1; i < n; i++) v[i] = a[i * n + k];
        const double beside = adamod__reflection(v, n, k + 1, &scale);
        double dot = 0;
        for (int64_t i = k + 1; i < n && scale != 0; i++) {
            double sum = 0;
            for (int64_t j = k + 1; j < n; j++) sum += a[i * n + j] * v[j];
            w[i] = scale * sum;
            dot += w[i] * v[i];
        }
        for (int64_t i = k + 1; i < n && scale != 0; i++) w[i] -= scale / 2 * dot * v[i];
        for (int64_t i = k + 1; i < n && scale != 0; i++) {
            for (int64_t j = k + 1; j < n; j++) a[i * n + j] -= v[i] * w[j] + w[i] * v[j];
        }
        for (int64_t i = k + 1; i < n; i++) a[i * n + k] = v[i];
        d[k] = a[k * n + k];
        a[k * n + k] = scale;
        e[k] = beside;
    }
    if (n > 1) {
        d[n - 2] = a[(n - 2) * n + n - 2];
        e[n - 2] = a[(n - 1) * n + n - 2];
    }
    d[n - 1] = a[n * n - 1];
    for (int64_t k = n - 1; k >= 0; k--) {
        const double scale = a[k * n + k];
        for (int64_t i = k + 1; i < n; i++) v[i] = a[i * n + k];
        if (k + 2 < n && scale != 0) adamod__reflect(a, n, k + 1, k + 1, v, scale, v + n);
        for (int64_t i = k; i < n; i++) a[i * n + k] = a[k * n + i] = 0;
        a[k * n + k] = 1;
    }
}

static void adamod__transpose(double *a, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        for (int64_t j = 0; j < i; j++) {
            const double x = a[i * n + j];
            a[i * n + j] = a[j * n + i];
            a[j * n + i] = x;
        }
    }
}

/* Two rows that are turned against each other. */
static void adamod__rotate(double *x, double *y, int64_t n, double c, double s) {
    for (int64_t i = 0; i < n; i++) {
        const double b = y[i];
        y[i] = s * x[i] + c * b;
        x[i] = c * x[i] - s * b;
    }
}

/* One implicit step of the QL algorithm on diagonals l to m; rows of z are turned with them. */
static void adamod__ql_step(double *z, int64_t n, double *d, double *e, int64_t l, int64_t m) {
    const double half = (d[l + 1] - d[l]) / (2 * e[l]), root = sqrt(half * half + 1);
    double g = d[m] - d[l] + e[l] / (half + (half < 0 ? -root : root)), s = 1, c = 1, p = 0;
    for (int64_t i = m - 1; i >= l; i--) {
        const double f = s * e[i], b = c * e[i], r = sqrt(f * f + g * g);
        e[i + 1] = r;
        if (r == 0) { /* the matrix has come apart */
            d[i + 1] -= p;
            e[m] = 0;
            return;
        }
        s = f / r;
        c = g / r;
        g = d[i + 1] - p;
        const double q = (d[i] - g) * s + 2 * c * b;
        p = s * q;
        d[i + 1] = g + p;
        g = c * q - b;
        adamod__rotate(z + i * n, z + (i + 1) * n, n, c, s);
    }
    d[l] -= p;
    e[l] = g;
    e[m] = 0;
}

/* False if it takes too long, as it does only where numbers are not finite. */
static bool adamod__ql(double *z, int64_t n, double *d, double *e) {
    int64_t left = 60 * n;
    e[n - 1] = 0;
    for (int64_t l = 0; l < n; l++) {
        for (;;) {
            int64_t m = l;
            while (m + 1 < n && !(fabs(e[m]) <= DBL_EPSILON * (fabs(d[m]) + fabs(d[m + 1])))) m++;
            if (m == l) break;
            if (left-- == 0) return false;
            adamod__ql_step(z, n, d, e, l, m);
        }
    }
    return true;
}

/* Rows in the order of d, the largest first. */
static void adamod__sort_rows(double *z, int64_t n, double *d, double *row) {
    const size_t bytes = (size_t)n * sizeof *z;
    for (int64_t i = 0; i < n; i++) {
        int64_t most = i;
        for (int64_t j = i + 1; j < n; j++) most = d[j] > d[most] ? j : most;
        if (most == i) continue;
        const double x = d[i];
        d[i] = d[most];
        d[most] = x;
        memcpy(row, z + i * n, bytes);
        memcpy(z + i * n, z + most * n, bytes);
        memcpy(z + most * n, row, bytes);
    }
}

void adamod__eigenvectors(double *a, int64_t n, double *space) {
    double *d = space, *e = space + n, *v = space + 2 * n, most = 0;
    bool finite = true;
    for (int64_t i = 0; i < n * n; i++) {
        finite = finite && isfinite(a[i]);
        most = fabs(a[i]) > most ? fabs(a[i]) : most;
    }
    /* by a power of two, so that squares neither overflow nor vanish */
    int exponent = 0;
    (void)frexp(most, &exponent);
    for (int64_t i = 0; i < n * n && finite; i++) a[i] = ldexp(a[i], -exponent);
    if (finite) {
        adamod__tridiagonal(a, n, d, e, v);
        adamod__transpose(a, n);
        finite = adamod__ql(a, n, d, e);
    }
    for (int64_t i = 0; i < n * n && !finite; i++) a[i] = NAN;
    if (!finite) return;
    adamod__sort_rows(a, n, d, v);
    adamod__transpose(a, n);
}
