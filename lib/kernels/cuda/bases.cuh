/* Eigenvectors and orthogonal factors (optim/eigen.h) by teams of blocks of threads: the same operations on every number in
 * the same order, so that bits are the CPU's.
 *
 * A block has whole columns of the matrix. One of its warps adds their sums from top to bottom, while the others work on
 * the rows below. A reflection is applied in the pass that takes the sums for the next one, so that each pass reads and
 * writes the matrix once. Vectors of reflections are kept in rows above the diagonal. A team's blocks meet at barriers, so
 * all must be on the device at once. Rotations are another launch, in which no block waits for another. */
#ifndef ADAMOD_CUDA_BASES_CUH
#define ADAMOD_CUDA_BASES_CUH

#include "kernels/cuda/joins.cuh"

#include <float.h>

/* A block's columns, one for each lane; warps that load and store rows, BASIS_EACH at a time; one more warp adds. */
enum { BASIS_COLUMNS = 32, BASIS_WARPS = 4, BASIS_EACH = 16, BASIS_ROWS = BASIS_WARPS * BASIS_EACH };
enum { BASIS_THREADS = 32 * (BASIS_WARPS + 1) };

enum { TURN_THREADS = 256 }; /* of a block, each with a column */

/* Blocks for a matrix of n columns, in a team and for rotations. */
static __host__ __device__ inline int64_t basis_blocks(int64_t n) { return (n + BASIS_COLUMNS - 1) / BASIS_COLUMNS; }
static __host__ __device__ inline int64_t turn_blocks(int64_t n) { return (n + TURN_THREADS - 1) / TURN_THREADS; }

/* Doubles of workspace. */
static __host__ __device__ inline int64_t basis_numbers(int64_t n) {
    return n * n + 9 * n + 1 + 2 * basis_blocks(n) + turn_blocks(n) * 5 * n;
}

/* The workspace. */
struct basis {
    int64_t n;
    double *a; /* n x n */
    double *v[3], *w[2], *scales, *d, *e;
    int64_t *order; /* of columns, the caller's */
    double *finite; /* 1 if a was finite */
    double *of;     /* the largest, and finite, of each block of a team */
    double *own;    /* 5 n for each block of rotations */

    __device__ basis(double *space, int64_t size) : n(size), a(space) {
        double *at = space + n * n;
        for (int i = 0; i < 3; i++, at += n) v[i] = at;
        for (int i = 0; i < 2; i++, at += n) w[i] = at;
        scales = at, d = at + n, e = at + 2 * n;
        order = (int64_t *)(at + 3 * n);
        finite = at + 4 * n;
        of = finite + 1;
        own = of + 2 * basis_blocks(n);
    }
};

struct basis_memory {
    double numbers[ORDERED];
    double x[BASIS_ROWS], y[BASIS_ROWS], next[BASIS_ROWS];
    double term[2][BASIS_ROWS][BASIS_COLUMNS];
    double given;
};

/* One reflection. */
struct reflection {
    const double *v; /* except element at, which is head */
    int64_t at;
    double head, scale; /* scale 0: no reflection */

    __device__ __forceinline__ double of(int64_t i) const { return i == at ? head : v[i]; }
};

struct team : basis {
    int rank, blocks;
    unsigned *met; /* arrivals at barriers so far; 0 before the first */
    unsigned expected;
    basis_memory *shared;

    __device__ team(double *space, int64_t size, int this_rank, int of_blocks, unsigned *counter, basis_memory *memory)
        : basis(space, size), rank(this_rank), blocks(of_blocks), met(counter), expected(0), shared(memory) {}

    /* This thread's number in the team, and the number of threads. */
    __device__ __forceinline__ int64_t first() const { return (int64_t)rank * BASIS_THREADS + threadIdx.x; }
    __device__ __forceinline__ int64_t stride() const { return (int64_t)blocks * BASIS_THREADS; }
    /* Whether column j is this block's. */
    __device__ __forceinline__ bool owns(int64_t j) const { return j / BASIS_COLUMNS % blocks == rank; }
    /* f(j) for its columns, each by a thread of the first warp. */
    template <class F> __device__ __forceinline__ void columns(F f) const {
        if (threadIdx.x >= BASIS_COLUMNS) return;
        for (int64_t j = (int64_t)rank * BASIS_COLUMNS + threadIdx.x; j < n; j += (int64_t)blocks * BASIS_COLUMNS) f(j);
    }

    /* Waits for all threads of all blocks; their writes before are visible after. */
    __device__ void meet() {
        __syncthreads();
        if (threadIdx.x == 0 && blocks > 1) {
            expected += (unsigned)blocks;
            __threadfence();
            atomicAdd(met, 1u);
            while (*(volatile unsigned *)met < expected) {}
            __threadfence();
        }
        __syncthreads();
    }

    /* A sum in order; all threads have it. */
    template <class F> __device__ double in_order(int64_t count, F f) {
        if (threadIdx.x < 32) {
            const double sum = sum_in_order(count, shared->numbers, f);
            if (threadIdx.x == 0) shared->given = sum;
        }
        __syncthreads();
        const double sum = shared->given;
        __syncthreads();
        return sum;
    }
};

/* The reflection that turns v from element at on into (*to, 0, ..., 0). */
static __device__ reflection reflection_of(team &t, const double *v, int64_t at, double *to) {
    const double rest = t.in_order(t.n - at - 1, [&](int64_t i) { return v[at + 1 + i] * v[at + 1 + i]; });
    reflection r = {v, at, v[at], 0};
    *to = r.head;
    if (rest == 0) return r;
    const double length = sqrt(r.head * r.head + rest);
    *to = r.head >= 0 ? -length : length;
    r.head = r.head - *to;
    r.scale = 2 / (r.head * r.head + rest);
    return r;
}

/* A pass over columns col to n of rows row to n. Each thread calls begin(j) for its column j. load(i, slot) sets what all
 * threads need of row i, among it next; update(i, j, a, slot) returns the new a; end(j, sum) gets the sum over rows of a
 * times next. */
template <class LOAD, class BEGIN, class UPDATE, class END>
static __device__ __forceinline__ void over_columns(const team &t, int64_t row, int64_t col, LOAD load, BEGIN begin,
                                                    UPDATE update, END end) {
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, slot = warp * BASIS_EACH;
    const int64_t tiles = (t.n - row + BASIS_ROWS - 1) / BASIS_ROWS;
    for (int64_t group = (int64_t)t.rank * BASIS_COLUMNS; group < t.n; group += (int64_t)t.blocks * BASIS_COLUMNS) {
        if (group + BASIS_COLUMNS <= col) continue;
        const int64_t j = group + lane;
        const bool active = j >= col && j < t.n;
        double sum = 0;
        if (active) begin(j);
        for (int64_t tile = 0; tile <= tiles; tile++) {
            if (warp < BASIS_WARPS && tile < tiles) {
                const int64_t at = row + tile * BASIS_ROWS + slot, left = t.n - at;
                double x[BASIS_EACH], *a = t.a + at * t.n + j;
#pragma unroll
                for (int i = 0; i < BASIS_EACH; i++) x[i] = active && i < left ? a[i * t.n] : 0;
                if (lane < BASIS_EACH && lane < left) load(at + lane, slot + lane);
                __syncwarp();
#pragma unroll
                for (int i = 0; i < BASIS_EACH; i++) {
                    if (!active || i >= left) continue;
                    a[i * t.n] = x[i] = update(at + i, j, x[i], slot + i);
                    t.shared->term[tile % 2][slot + i][lane] = t.shared->next[slot + i] * x[i];
                }
            } else if (warp == BASIS_WARPS && tile > 0 && active) {
                const int64_t left = t.n - row - (tile - 1) * BASIS_ROWS;
                const auto &term = t.shared->term[(tile - 1) % 2];
                if (left >= BASIS_ROWS) {
#pragma unroll 16
                    for (int i = 0; i < BASIS_ROWS; i++) sum = sum + term[i][lane];
                } else {
                    for (int i = 0; i < (int)left; i++) sum = sum + term[i][lane];
                }
            }
            __syncthreads();
        }
        if (warp == BASIS_WARPS && active) end(j, sum);
    }
    __syncthreads();
}

/* ---- from reflections to the matrix that they make ---- */

/* Replaces a by the product of the reflections that it stores. Row f - shift has the vector of reflection f, from
 * element f on; if shift is 0, element f is 1 and not stored. Its scale is scales[f]. */
static __device__ void multiply_reflections(team &t, int shift) {
    const int64_t n = t.n;
    /* Fetches one step ahead, since rows are overwritten. */
    const auto fetch = [&](int64_t f, int64_t j) {
        if (f < 0 || j < f || j >= n) return;
        t.v[f % 3][j] = shift == 0 && j == f ? 1 : f < shift ? 0 : t.a[(f - shift) * n + j];
    };
    for (int64_t j = t.first(); j < n; j += t.stride()) fetch(n - 1, j);
    t.meet();
    for (int64_t f = n - 1; f >= -1; f--) {
        const double before = f + 1 < n ? t.scales[f + 1] : 0, scale = f >= 0 ? t.scales[f] : 0;
        const double *last = t.v[(f + 1) % 3], *now = t.v[(f + 3) % 3];
        const int64_t from = f < 0 ? 0 : f;
        double weight = 0;
        over_columns(
            t, from, from,
            [&](int64_t i, int slot) {
                t.shared->x[slot] = before != 0 && i > f ? before * last[i] : 0;
                t.shared->next[slot] = scale != 0 ? now[i] : 0;
            },
            [&](int64_t j) { weight = before != 0 && j > f ? t.w[0][j] : 0; },
            [&](int64_t i, int64_t j, double a, int slot) {
                if (i == f || j == f) a = i == j ? 1 : 0;
                else if (before != 0) a = a - t.shared->x[slot] * weight;
                return a;
            },
            [&](int64_t j, double sum) {
                t.w[0][j] = sum;
                fetch(f - 1, j);
            });
        /* column f - 1 is not in this pass, but has an element of the vector */
        if (f > 0 && t.owns(f - 1) && threadIdx.x == 0) fetch(f - 1, f - 1);
        t.meet();
    }
}

/* ---- the orthogonal factor ---- */

static __device__ void orthogonal_factor(team &t) {
    const int64_t n = t.n;
    reflection last = {t.v[0], -1, 0, 0};
    for (int64_t k = 0; k + 1 < n; k++) {
        double *v = t.v[k % 3], to;
        if (t.owns(k)) { /* the column after the last reflection */
            const double weight = last.scale != 0 ? t.w[0][k] : 0;
            for (int64_t i = k + threadIdx.x; i < n; i += BASIS_THREADS) {
                const double x = t.a[i * n + k];
                v[i] = last.scale != 0 ? x - last.scale * last.of(i) * weight : x;
            }
        }
        t.meet();
        const reflection now = reflection_of(t, v, k, &to);
        double weight = 0;
        over_columns(
            t, k, k + 1,
            [&](int64_t i, int slot) {
                t.shared->x[slot] = last.scale != 0 ? last.scale * last.of(i) : 0;
                t.shared->next[slot] = now.of(i);
            },
            [&](int64_t j) { weight = last.scale != 0 ? t.w[0][j] : 0; },
            [&](int64_t, int64_t, double a, int slot) { return last.scale != 0 ? a - t.shared->x[slot] * weight : a; },
            [&](int64_t j, double sum) {
                t.w[0][j] = sum;
                t.a[k * n + j] = now.scale != 0 ? now.v[j] / now.head : 0;
            });
        if (t.rank == 0 && threadIdx.x == 0) t.scales[k] = now.scale * now.head * now.head;
        last = now;
    }
    if (t.rank == 0 && threadIdx.x == 0) t.scales[n - 1] = 0;
    t.meet();
    multiply_reflections(t, 0);
}

/* ---- eigenvectors ---- */

/* The update a - (v w^T + w v^T); scale 0: none. */
struct rank_two {
    reflection r;
    const double *w;
    double share; /* of v in w, to be subtracted */

    __device__ __forceinline__ double weight(int64_t i) const { return w[i] - share * r.of(i); }
    __device__ __forceinline__ double of(double x, int64_t i, int64_t j) const {
        return r.scale != 0 ? x - (r.of(i) * weight(j) + weight(i) * r.of(j)) : x;
    }
};

/* a = Q T Q^T with a tridiagonal T: stores T's diagonals in d and e, then Q in a. */
static __device__ void tridiagonal(team &t) {
    const int64_t n = t.n;
    const bool leads = t.rank == 0 && threadIdx.x == 0;
    rank_two last = {{t.v[0], -1, 0, 0}, t.w[0], 0};
    if (leads) t.scales[0] = t.scales[n - 1] = 0;
    for (int64_t k = 0; k + 2 < n; k++) {
        double *v = t.v[k % 3], *w = t.w[k % 2], beside;
        if (t.owns(k)) {
            for (int64_t i = k + threadIdx.x; i < n; i += BASIS_THREADS) {
                const double x = last.of(t.a[i * n + k], i, k);
                if (i == k) t.d[k] = x;
                else v[i] = x;
            }
        }
        t.meet();
        const reflection now = reflection_of(t, v, k + 1, &beside);
        double mine = 0, weight = 0;
        over_columns(
            t, k + 1, k + 1,
            [&](int64_t i, int slot) {
                t.shared->x[slot] = last.r.scale != 0 ? last.r.of(i) : 0;
                t.shared->y[slot] = last.r.scale != 0 ? last.weight(i) : 0;
                t.shared->next[slot] = now.of(i);
            },
            [&](int64_t j) {
                mine = last.r.scale != 0 ? last.r.of(j) : 0;
                weight = last.r.scale != 0 ? last.weight(j) : 0;
            },
            [&](int64_t, int64_t, double a, int slot) {
                return last.r.scale != 0 ? a - (t.shared->x[slot] * weight + t.shared->y[slot] * mine) : a;
            },
            [&](int64_t j, double sum) {
                w[j] = now.scale * sum;
                t.a[k * n + j] = now.of(j);
            });
        if (leads) t.e[k] = beside, t.scales[k + 1] = now.scale;
        t.meet();
        last = rank_two{now, w, 0};
        if (now.scale == 0) continue;
        const double dot = t.in_order(n - k - 1, [&](int64_t i) { return w[k + 1 + i] * now.of(k + 1 + i); });
        last.share = now.scale / 2 * dot;
    }
    if (leads) {
        if (n > 1) {
            t.d[n - 2] = last.of(t.a[(n - 2) * n + n - 2], n - 2, n - 2);
            t.e[n - 2] = last.of(t.a[(n - 1) * n + n - 2], n - 1, n - 2);
        }
        t.d[n - 1] = last.of(t.a[n * n - 1], n - 1, n - 1);
    }
    t.meet();
    multiply_reflections(t, 1);
}

static __device__ void transpose(team &t) {
    for (int64_t p = t.first(); p < t.n * t.n; p += t.stride()) {
        const int64_t i = p / t.n, j = p % t.n;
        if (j >= i) continue;
        const double x = t.a[p];
        t.a[p] = t.a[j * t.n + i];
        t.a[j * t.n + i] = x;
    }
    t.meet();
}

/* An implicit QL step on diagonals l to m, by one thread. Rotations of rows i and i + 1 are cosine[i] and sine[i], from m -
 * 1 down to the row returned. */
static __device__ int64_t ql_step(double *d, double *e, double *cosine, double *sine, int64_t l, int64_t m) {
    const double half = (d[l + 1] - d[l]) / (2 * e[l]), root = sqrt(half * half + 1);
    double g = d[m] - d[l] + e[l] / (half + (half < 0 ? -root : root)), s = 1, c = 1, p = 0;
    for (int64_t i = m - 1; i >= l; i--) {
        const double f = s * e[i], b = c * e[i], r = sqrt(f * f + g * g);
        e[i + 1] = r;
        if (r == 0) { /* the matrix splits */
            d[i + 1] -= p;
            e[m] = 0;
            return i + 1;
        }
        s = f / r;
        c = g / r;
        g = d[i + 1] - p;
        const double q = (d[i] - g) * s + 2 * c * b;
        p = s * q;
        d[i + 1] = g + p;
        g = c * q - b;
        cosine[i] = c;
        sine[i] = s;
    }
    d[l] -= p;
    e[l] = g;
    e[m] = 0;
    return l;
}

/* Rotates rows first to from of column j, the last two first. */
static __device__ void rotate_column(const basis &x, int64_t j, const double *cosine, const double *sine, int64_t first,
                                     int64_t from) {
    enum { EACH = 8 }; /* loaded at once */
    const int64_t n = x.n;
    double y = x.a[from * n + j];
    for (int64_t at = from - 1; at >= first; at -= EACH) {
        double z[EACH], c[EACH], s[EACH];
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            if (at - i < first) continue;
            z[i] = x.a[(at - i) * n + j];
            c[i] = cosine[at - i];
            s[i] = sine[at - i];
        }
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            if (at - i < first) continue;
            x.a[(at - i + 1) * n + j] = s[i] * z[i] + c[i] * y;
            y = c[i] * z[i] - s[i] * y;
        }
    }
    x.a[first * n + j] = y;
}

struct turn_memory {
    int64_t from, to, turns;
};

/* Every block does all steps with its own diagonals, and rotates its own columns. False if it takes too long. */
static __device__ bool ql(const basis &x, double *own, int64_t column, turn_memory *m) {
    const int64_t n = x.n;
    double *d = own, *e = d + n, *cosine = e + n, *sine = cosine + n;
    for (int64_t i = threadIdx.x; i < n; i += TURN_THREADS) {
        d[i] = x.d[i];
        e[i] = i + 1 < n ? x.e[i] : 0;
    }
    int64_t left = 60 * n, l = 0;
    for (;;) {
        __syncthreads();
        if (threadIdx.x == 0) { /* the next step, if there is one */
            int64_t until = l;
            for (; l < n; l++) {
                until = l;
                while (until + 1 < n && !(fabs(e[until]) <= DBL_EPSILON * (fabs(d[until]) + fabs(d[until + 1]))))
                    until++;
                if (until != l) break;
            }
            m->turns = l == n ? 0 : left-- == 0 ? -1 : 1;
            m->from = until;
            if (m->turns > 0) m->to = ql_step(d, e, cosine, sine, l, until);
        }
        __syncthreads();
        if (m->turns <= 0) break;
        if (m->to < m->from && column < n) rotate_column(x, column, cosine, sine, m->to, m->from);
    }
    return m->turns == 0;
}

/* Sorts rows, by a warp: place[i] is the row for i, as if the largest left were swapped with the first, one after the
 * other. */
static __device__ void sort_rows(double *d, int64_t *place, int64_t n) {
    const int lane = (int)threadIdx.x % 32;
    for (int64_t i = lane; i < n; i += 32) place[i] = i;
    __syncwarp();
    for (int64_t i = 0; i < n; i++) {
        double most = -INFINITY;
        long long at = n;
        for (int64_t j = i + lane; j < n; j += 32) {
            if (at == n || d[j] > most) most = d[j], at = j;
        }
        for (int step = 16; step > 0; step /= 2) {
            const double other = __shfl_down_sync(0xffffffffu, most, step);
            const long long other_at = __shfl_down_sync(0xffffffffu, at, step);
            if (other_at < n && (at == n || other > most || (other == most && other_at < at)))
                most = other, at = other_at;
        }
        if (lane == 0 && at != i) {
            const double x = d[i];
            const int64_t p = place[i];
            d[i] = d[at], d[at] = x;
            place[i] = place[at], place[at] = p;
        }
        __syncwarp();
    }
}

/* The first part of the eigenvectors of a symmetric matrix with elements get(i): reduces it to three diagonals. */
template <class GET> static __device__ void begin_eigenvectors(team &t, GET get) {
    const int64_t n = t.n;
    double most = 0, finite = 1, *found = &t.shared->term[0][0][0];
    for (int64_t i = t.first(); i < n * n; i += t.stride()) {
        const double x = get(i);
        if (!isfinite(x)) finite = 0;
        most = fabs(x) > most ? fabs(x) : most;
    }
    found[2 * threadIdx.x] = most;
    found[2 * threadIdx.x + 1] = finite;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int i = 1; i < BASIS_THREADS; i++) {
            most = found[2 * i] > most ? found[2 * i] : most;
            finite = found[2 * i + 1] < finite ? found[2 * i + 1] : finite;
        }
        t.of[2 * t.rank] = most;
        t.of[2 * t.rank + 1] = finite;
    }
    t.meet();
    for (int i = 0; i < t.blocks; i++) {
        most = i == 0 || t.of[2 * i] > most ? t.of[2 * i] : most;
        finite = i == 0 || t.of[2 * i + 1] < finite ? t.of[2 * i + 1] : finite;
    }
    if (t.rank == 0 && threadIdx.x == 0) *t.finite = finite;
    if (finite == 0) return;
    /* scaled by a power of two, so that squares neither overflow nor vanish */
    int exponent = 0;
    (void)frexp(most, &exponent);
    for (int64_t i = t.first(); i < n * n; i += t.stride()) t.a[i] = ldexp(get(i), -exponent);
    t.meet();
    tridiagonal(t);
    transpose(t);
}

/* The second part, for one of turn_blocks: eigenvectors are rows of a, the i-th in row place[i]. Returns place, or NULL if
 * the matrix was not finite. The block may read only its own columns. */
static __device__ const int64_t *end_eigenvectors(const basis &x, int64_t block, turn_memory *m) {
    double *own = x.own + block * 5 * x.n;
    int64_t *place = (int64_t *)(own + 4 * x.n);
    if (*x.finite == 0 || !ql(x, own, block * TURN_THREADS + threadIdx.x, m)) return NULL;
    __syncthreads();
    if (threadIdx.x < 32) sort_rows(own, place, x.n);
    __syncthreads();
    return place;
}

#endif
