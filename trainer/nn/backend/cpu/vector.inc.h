/* The loops of vector.h for one instruction set. The includer defines
 *   ISA                   the instruction set's name
 *   WIDTH                 floats in a vector V: 4, 8 or 16
 *   ROWS                  rows of a product's block, 4 or 8: ROWS * 2 sums must fit the registers, with WIDTH 16 ROWS * 3
 *   FMA(a, b, c)          a b + c
 *   GREATER(a, b)         a > b ? a : b, so the second where either is NaN
 *   UNLESS_LESS(a, b, y)  y, but 0 where a < b
 *   PART(p, n, fill)      the n floats at p, then those of the vector fill; n may be more than WIDTH or less than 0
 *   STORE_PART(p, n, x)   the reverse: the first n floats of x
 *   FOLD(x, op)           the F4 that op, ADD or MAX, makes of the NN_LANES lanes of x[NN_LANES / WIDTH]: lane l with
 *                         lane l + 8, then with lane l + 4 */

#define NAME2(name, isa) nn_##name##_##isa
#define NAME1(name, isa) NAME2(name, isa)
#define NAME(name) NAME1(name, ISA)
#define TEXT1(x) #x
#define TEXT(x) TEXT1(x)
#define V NAME(v)
#define UNALIGNED NAME(unaligned)
#define U NAME(u)
#define INLINE static inline __attribute__((always_inline))
#define LOAD(p) ((V) * (const UNALIGNED *)(p))
#define STORE(p, value) (*(UNALIGNED *)(p) = (value))
#define SPLAT(x) ((x) - (V){0}) /* not +: that would have to turn -0 into 0 */
#define VECTORS (NN_LANES / WIDTH)
#define MOST_VECTORS 3
#define EACH(v) for (int v = 0; v < VECTORS; v++)

typedef float V __attribute__((vector_size(WIDTH * 4)));
typedef float UNALIGNED __attribute__((vector_size(WIDTH * 4), aligned(4), may_alias));
typedef uint32_t U __attribute__((vector_size(WIDTH * 4)));

/* ---- numbers ---- */

/* exp(x) for x <= 88, off by less than 1e-7 of it; 0 below -87, where it would soon be subnormal. With n the nearest
 * whole number to x / log 2 and r = x - n log 2, it is 2^n e^r. n log 2 is subtracted in two parts, the first of few
 * enough bits to be exact; the polynomial is the one whose largest error (3e-9) for |r| <= log(2) / 2 is least. A sum
 * with 1.5 * 2^23 leaves n in the lowest bits. */
INLINE V NAME(exp)(V x) {
    const V magic = SPLAT(12582912.0f), t = x * 1.44269504f + magic, n = t - magic;
    const V r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
    V p = r * 0x1.6a23a8p-10f + 0x1.123a36p-7f;
    p = p * r + 0x1.5558f4p-5f;
    p = p * r + 0x1.55549p-3f;
    p = p * r + 0x1.fffffcp-2f;
    p = p * (r * r) + r + 1.0f;
    const V power = (V)(((U)t << 23) + 0x3f800000);
    return UNLESS_LESS(x, SPLAT(-87.0f), p * power);
}

INLINE float NAME(total)(const V *x) {
    const F4 f = FOLD(x, ADD);
    return (f[0] + f[2]) + (f[1] + f[3]);
}

INLINE float NAME(highest)(const V *x) {
    const F4 f = FOLD(x, MAX);
    const float a = f[0] > f[2] ? f[0] : f[2], b = f[1] > f[3] ? f[1] : f[3];
    return a > b ? a : b;
}

/* ---- tiles ---- */

/* Computes rows x vectors of a product; both are constants where this is inlined, so that sums are in registers. Rows
 * of a are addressed relative to the first and the fifth: there are enough registers for two pointers. */
INLINE void NAME(block)(int rows, int vectors, int64_t k, nn_tile a, nn_tile b, nn_tile c, bool add) {
    V sum[ROWS][MOST_VECTORS];
    const float *left = a.x;
    UNROLL for (int i = 0; i < rows; i++) { UNROLL for (int v = 0; v < vectors; v++) sum[i][v] = SPLAT(0.0f); }
    for (int64_t p = 0; p < k; p++, left += a.column) {
        const float *const fifth = left + 4 * a.row;
        V right[MOST_VECTORS];
        UNROLL for (int v = 0; v < vectors; v++) right[v] = LOAD(b.x + p * b.row + v * WIDTH);
        UNROLL for (int i = 0; i < rows; i++) {
            const V x = SPLAT(i < 4 ? left[i * a.row] : fifth[(i - 4) * a.row]);
            UNROLL for (int v = 0; v < vectors; v++) sum[i][v] = FMA(x, right[v], sum[i][v]);
        }
    }
    UNROLL for (int i = 0; i < rows; i++) {
        UNROLL for (int v = 0; v < vectors; v++) {
            float *const to = c.x + i * c.row + v * WIDTH;
            STORE(to, add ? LOAD(to) + sum[i][v] : sum[i][v]);
        }
    }
}

INLINE void NAME(columns)(int vectors, int64_t m, int64_t k, nn_tile a, nn_tile b, nn_tile c, bool add) {
#define BLOCKS(rows)                                                                                                   \
    for (; m >= (rows); m -= (rows), a.x += (rows)*a.row, c.x += (rows)*c.row) {                                       \
        NAME(block)((rows), vectors, k, a, b, c, add);                                                                 \
    }
#if ROWS == 8
    BLOCKS(8)
#endif
    BLOCKS(4)
    BLOCKS(2)
    BLOCKS(1)
#undef BLOCKS
}

static void NAME(product)(int64_t m, int64_t n, int64_t k, nn_tile a, nn_tile b, nn_tile c, bool add) {
#define COLUMNS(vectors)                                                                                               \
    NAME(columns)(vectors, m, k, a, b, c, add);                                                                        \
    n -= (vectors)*WIDTH, b.x += (vectors)*WIDTH, c.x += (vectors)*WIDTH;
#if WIDTH == 16
    if (n == WIDTH) {
        COLUMNS(1)
    } else if (n % (2 * WIDTH)) {
        COLUMNS(3)
    }
#endif
    while (n > 0) {
        COLUMNS(2)
    }
#undef COLUMNS
}

#if WIDTH == 16
/* rows x one vector, rows a constant. FETCH floats ahead is where memory answers in time. */
INLINE void NAME(tall)(int rows, int64_t k, const float *a, int64_t stride, const float *b, float *c) {
    enum { MOST_ROWS = 20, FETCH = 32 * WIDTH };
    V sum[MOST_ROWS];
    UNROLL_TALL for (int i = 0; i < rows; i++) sum[i] = SPLAT(0.0f);
    for (int64_t p = 0; p < k; p++, a += stride, b += WIDTH) {
        const V right = LOAD(b);
        __builtin_prefetch(b + FETCH);
        UNROLL_TALL for (int i = 0; i < rows; i++) sum[i] = FMA(SPLAT(a[i]), right, sum[i]);
    }
    UNROLL_TALL for (int i = 0; i < rows; i++) STORE(c + i * WIDTH, sum[i]);
}

static void NAME(thin)(int64_t m, int64_t k, const float *a, int64_t stride, const float *b, float *c) {
#define BLOCKS(rows)                                                                                                   \
    for (; m >= (rows); m -= (rows), a += (rows), c += (rows)*WIDTH) NAME(tall)((rows), k, a, stride, b, c);
    BLOCKS(20)
    BLOCKS(10)
    BLOCKS(4)
    BLOCKS(1)
#undef BLOCKS
}
#else
static void NAME(thin)(int64_t m, int64_t k, const float *a, int64_t stride, const float *b, float *c) {
    /* a and b are only read */
    NAME(product)
    (m, NN_LANES, k, (nn_tile){(float *)(uintptr_t)a, 1, stride}, (nn_tile){(float *)(uintptr_t)b, NN_LANES, 1},
     (nn_tile){c, NN_LANES, 1}, false);
}
#endif

static void NAME(copy)(int64_t m, int64_t n, const float *from, int64_t row, float scale, float *to, int64_t width) {
    for (int64_t i = 0; i < m; i++, from += row, to += width) {
        int64_t j = 0;
        for (; j + WIDTH <= n; j += WIDTH) STORE(to + j, LOAD(from + j) * scale);
        for (; j < width; j += WIDTH) STORE(to + j, PART(from + j, n - j, SPLAT(0.0f)) * scale);
    }
}

#if WIDTH == 16
/* Columns of 16 rows become 16 rows: pairs of rows, of pairs, of fours and of eights change places. */
INLINE void NAME(transpose16)(const float *from, int64_t row, float *to, int64_t width) {
    __m512 x[16], y[16];
    UNROLL_TALL for (int i = 0; i < 16; i++) x[i] = _mm512_loadu_ps(from + i * row);
    UNROLL_TALL for (int i = 0; i < 16; i += 2) {
        y[i] = _mm512_unpacklo_ps(x[i], x[i + 1]);
        y[i + 1] = _mm512_unpackhi_ps(x[i], x[i + 1]);
    }
    /* Now x[4 b + e] has column e of each fours of rows 4 b .. 4 b + 3. */
    UNROLL_TALL for (int i = 0; i < 16; i += 4) {
        x[i] = _mm512_shuffle_ps(y[i], y[i + 2], 0x44);
        x[i + 1] = _mm512_shuffle_ps(y[i], y[i + 2], 0xee);
        x[i + 2] = _mm512_shuffle_ps(y[i + 1], y[i + 3], 0x44);
        x[i + 3] = _mm512_shuffle_ps(y[i + 1], y[i + 3], 0xee);
    }
    UNROLL for (int e = 0; e < 4; e++) {
        const __m512 a = _mm512_shuffle_f32x4(x[e], x[4 + e], 0x88),
                     b = _mm512_shuffle_f32x4(x[8 + e], x[12 + e], 0x88);
        const __m512 c = _mm512_shuffle_f32x4(x[e], x[4 + e], 0xdd),
                     d = _mm512_shuffle_f32x4(x[8 + e], x[12 + e], 0xdd);
        _mm512_storeu_ps(to + e * width, _mm512_shuffle_f32x4(a, b, 0x88));
        _mm512_storeu_ps(to + (4 + e) * width, _mm512_shuffle_f32x4(c, d, 0x88));
        _mm512_storeu_ps(to + (8 + e) * width, _mm512_shuffle_f32x4(a, b, 0xdd));
        _mm512_storeu_ps(to + (12 + e) * width, _mm512_shuffle_f32x4(c, d, 0xdd));
    }
}
#endif

/* Transposes four rows, columns first .. n - 1. */
INLINE void NAME(transpose4)(int64_t first, int64_t n, const float *from, int64_t row, float *to, int64_t width) {
    int64_t j = first;
    for (; j + 4 <= n; j += 4) {
        F4 x[4];
        for (int e = 0; e < 4; e++) x[e] = *(const UNALIGNED4 *)(from + e * row + j);
        TRANSPOSE4(x);
        for (int e = 0; e < 4; e++) *(UNALIGNED4 *)(to + (j + e) * width) = x[e];
    }
    for (; j < n; j++) {
        for (int e = 0; e < 4; e++) to[j * width + e] = from[e * row + j];
    }
}

static void NAME(transpose)(int64_t m, int64_t n, const float *from, int64_t row, float *to, int64_t width) {
    int64_t i = 0;
#if WIDTH == 16
    for (; i + 16 <= m; i += 16, from += 16 * row) {
        int64_t j = 0;
        for (; j + 16 <= n; j += 16) NAME(transpose16)(from + j, row, to + j * width + i, width);
        for (int64_t e = 0; j < n && e < 16; e += 4) NAME(transpose4)(j, n, from + e * row, row, to + i + e, width);
    }
#endif
    for (; i + 4 <= m; i += 4, from += 4 * row) NAME(transpose4)(0, n, from, row, to + i, width);
    for (int64_t j = 0; j < n; j++) {
        for (int64_t e = i; e < width; e++) to[j * width + e] = e < m ? from[(e - i) * row + j] : 0;
    }
}

/* ---- rows ---- */

static void NAME(scale)(int64_t n, const float *x, float scale, float *y, bool add) {
    int64_t i = 0;
    for (; i + WIDTH <= n; i += WIDTH) STORE(y + i, add ? LOAD(y + i) + LOAD(x + i) * scale : LOAD(x + i) * scale);
    for (; i < n; i++) y[i] = add ? y[i] + x[i] * scale : x[i] * scale;
}

static float NAME(dot)(int64_t n, const float *x, const float *y) {
    V sum[VECTORS];
    EACH(v) sum[v] = SPLAT(0.0f);
    for (; n > 0; n -= NN_LANES, x += NN_LANES, y += NN_LANES) {
        EACH(v) {
            const V a = PART(x + v * WIDTH, n - v * WIDTH, SPLAT(0.0f)),
                    b = PART(y + v * WIDTH, n - v * WIDTH, SPLAT(0.0f));
            sum[v] = FMA(a, b, sum[v]);
        }
    }
    return NAME(total)(sum);
}

/* Rows `apart` from each other; their number is a constant where this is inlined. */
INLINE void NAME(some_dots)(int rows, int64_t apart, int64_t n, const float *w, int64_t stride, const float *x,
                            float *y) {
    V sum[4][VECTORS];
    UNROLL for (int r = 0; r < rows; r++) { EACH(v) sum[r][v] = SPLAT(0.0f); }
    int64_t i = 0;
    for (; i + NN_LANES <= n; i += NN_LANES) {
        UNROLL for (int r = 0; r < rows; r++) {
            EACH(v) sum[r][v] = FMA(LOAD(w + r * apart * stride + i + v * WIDTH), LOAD(x + i + v * WIDTH), sum[r][v]);
        }
    }
    for (int v = 0; i < n; v++, i += WIDTH) {
        const V rest = PART(x + i, n - i, SPLAT(0.0f));
        UNROLL for (int r = 0; r < rows; r++) sum[r][v] =
            FMA(PART(w + r * apart * stride + i, n - i, SPLAT(0.0f)), rest, sum[r][v]);
    }
    UNROLL for (int r = 0; r < rows; r++) y[r * apart] = NAME(total)(sum[r]);
}

/* Takes four rows that are far apart at once: a processor prefetches four adjacent rows as one stream, at half the
 * speed. */
static void NAME(dots)(int64_t m, int64_t n, const float *w, int64_t stride, const float *x, float *y) {
    const int64_t quarter = m / 4;
    for (int64_t i = 0; i < quarter; i++) NAME(some_dots)(4, quarter, n, w + i * stride, stride, x, y + i);
    for (int64_t i = 4 * quarter; i < m; i++) NAME(some_dots)(1, 0, n, w + i * stride, stride, x, y + i);
}

static float NAME(most)(int64_t n, const float *x) {
    const V none = SPLAT(-INFINITY);
    V top[4] = {none, none, none, none};
    for (; n >= 4 * WIDTH; n -= 4 * WIDTH, x += 4 * WIDTH) {
        UNROLL for (int v = 0; v < 4; v++) top[v] = GREATER(LOAD(x + v * WIDTH), top[v]);
    }
    for (; n > 0; n -= WIDTH, x += WIDTH) top[0] = GREATER(PART(x, n, none), top[0]);
    top[0] = GREATER(top[0], top[1]);
    top[2] = GREATER(top[2], top[3]);
    top[0] = GREATER(top[0], top[2]);
    EACH(v) top[v] = top[0];
    return NAME(highest)(top);
}

/* Sums are in f32 for a stretch, in double over stretches. */
static double NAME(sum_exp)(int64_t n, const float *x, float most, double *sum_x) {
    enum { STRETCH = 32 * NN_LANES };
    double sum = 0;
    *sum_x = 0;
    for (; n > 0; n -= STRETCH, x += STRETCH) {
        V exps[VECTORS], plain[VECTORS];
        EACH(v) exps[v] = plain[v] = SPLAT(0.0f);
        const int64_t stretch = n < STRETCH ? n : STRETCH;
        int64_t i = 0;
        for (; i + NN_LANES <= stretch; i += NN_LANES) {
            EACH(v) {
                const V a = LOAD(x + i + v * WIDTH);
                exps[v] += NAME(exp)(a - most);
                plain[v] += a;
            }
        }
        for (int v = 0; i < stretch; v++, i += WIDTH) {
            exps[v] += NAME(exp)(PART(x + i, stretch - i, SPLAT(-INFINITY)) - most);
            plain[v] += PART(x + i, stretch - i, SPLAT(0.0f));
        }
        sum += NAME(total)(exps);
        *sum_x += NAME(total)(plain);
    }
    return sum;
}

static void NAME(softmax)(int64_t n, const float *x, float lse, float scale, float shift, float *y, bool add) {
    for (; n >= WIDTH; n -= WIDTH, x += WIDTH, y += WIDTH) {
        const V d = NAME(exp)(LOAD(x) - lse) * scale - shift;
        STORE(y, add ? LOAD(y) + d : d);
    }
    if (n) {
        const V d = NAME(exp)(PART(x, n, SPLAT(0.0f)) - lse) * scale - shift;
        STORE_PART(y, n, add ? PART(y, n, SPLAT(0.0f)) + d : d);
    }
}

/* ---- rows of a tile ---- */

static float NAME(weights)(int64_t n, int64_t end, float most, float *s) {
    V sum[VECTORS];
    EACH(v) sum[v] = SPLAT(0.0f);
    int64_t i = 0;
    for (; i < n; i += NN_LANES) {
        EACH(v) {
            float *const at = s + i + v * WIDTH;
            const V e = NAME(exp)(PART(at, n - i - v * WIDTH, SPLAT(-INFINITY)) - most);
            STORE(at, e);
            sum[v] += e;
        }
    }
    for (; i < end; i += WIDTH) STORE(s + i, SPLAT(0.0f));
    return NAME(total)(sum);
}

static void NAME(drop)(int64_t n, const float *factor, float *s) {
    for (int64_t i = 0; i < n; i += WIDTH) STORE(s + i, LOAD(s + i) * LOAD(factor + i));
}

static void NAME(weights_gradient)(int64_t n, float scale, float shift, const float *factor, float *s, float *ds) {
    for (int64_t i = 0; i < n; i += WIDTH) {
        const V p = LOAD(s + i) * scale, d = LOAD(ds + i);
        if (factor) {
            const V f = LOAD(factor + i);
            STORE(ds + i, p * (f * d - shift));
            STORE(s + i, p * f);
        } else {
            STORE(ds + i, p * (d - shift));
            STORE(s + i, p);
        }
    }
}

static const nn_vector NAME(table) = {
    TEXT(ISA),  NAME(product), NAME(thin),    NAME(copy),    NAME(transpose), NAME(scale), NAME(dot),
    NAME(dots), NAME(most),    NAME(sum_exp), NAME(softmax), NAME(weights),   NAME(drop),  NAME(weights_gradient),
};

#undef NAME2
#undef NAME1
#undef NAME
#undef TEXT1
#undef TEXT
#undef V
#undef UNALIGNED
#undef U
#undef INLINE
#undef LOAD
#undef STORE
#undef SPLAT
#undef VECTORS
#undef MOST_VECTORS
#undef EACH
#undef ISA
#undef WIDTH
#undef ROWS
#undef FMA
#undef GREATER
#undef UNLESS_LESS
#undef PART
#undef STORE_PART
#undef FOLD
