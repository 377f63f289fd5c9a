/* bitwise.h - runs of an optimizer over some arrays, with the same gradients whatever its rule and types, and the bytes
 * of all that it has written: for tests that must hold to the last bit. It knows every kernel there is.
 *
 *     config c = config_of(v, s);           // variant v with storage s
 *     config other = c;
 *     other.threads = 7;
 *     expect_same(&c, &other, 3, true);     // after three steps
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef ADAMOD_TESTS_BITWISE_H
#define ADAMOD_TESTS_BITWISE_H

#include "check.h"
#include "optim/optimizer.h"
#include "values.h"

enum { TOTAL = 40000, REPEATED = 160000, STEPS = 4, MOST_TENSORS = 64 };

/* Gradients of all steps in all types, and first parameters: of either sign and many sizes, with zeros and numbers
 * below the least normal one, but so that nothing overflows. TOTAL of them, then the same again. */
extern void *bitwise_gradients[4][STEPS], *bitwise_parameters[4];
/* Makes them, if they are not there. */
void bitwise_make_sources(void);

/* Memory for n elements and one more; zeros. */
void *room(size_t n, size_t size);
/* "name=value ...", or NULL. */
void set_options(adamod_optimizer *opt, const char *text);

/* ---- what there is to try ---- */

typedef struct config {
    const char *rule, *options; /* "name=word ..." */
    const char *more;           /* options besides, or NULL */
    adamod_type type;           /* of parameters */
    int grad_type;              /* -1: each array another */
    int threads;                /* 0: not set */
    int offset;                 /* of all arrays, in elements */
    const char *isa;            /* NULL: the best */
    bool collect;               /* statistics */
    int n;                      /* arrays behind each other: */
    const int64_t (*shapes)[2]; /* rows 0: one dimension */
} config;

/* Every kernel there is. */
typedef struct variant {
    const char *rule, *options;
    bool whole; /* an element depends on the whole array */
} variant;
/* Number v of all; its rule is NULL past the end. */
variant variant_of(int v);

typedef struct storage {
    adamod_type type;
    const char *more;
    bool random; /* random numbers are tied to an element's place in its array */
} storage;
extern const storage storages[];
extern const int storage_count;

/* More than one chunk in the first array and the last. */
enum { MIXED = 7 };
extern const int64_t shapes_mixed[MIXED][2];
/* Enough elements for a handle to use threads; the last is a matrix that rules of matrices share out, and not larger: their time
 * grows with the cube of its sides. */
enum { MANY = 5 };
extern const int64_t shapes_many[MANY][2];

config config_of(int variant, int storage);
adamod_type grad_type_of(const config *c, int k);

/* All of them, or each kernel once where time is short. */
#define EACH_KERNEL(v, s)                                                                                              \
    for (int v = 0; variant_of(v).rule; v++)                                                                           \
        for (int s = fast() ? v % storage_count : 0; s < (fast() ? v % storage_count + 1 : storage_count); s++)

/* ---- a run ---- */

typedef struct bitwise_run {
    const config *c;
    adamod_optimizer *opt;
    char *param, *grad[4]; /* of all arrays */
    int64_t start[MOST_TENSORS + 1];
    int t;
} bitwise_run;

/* Two at most are open at a time. */
bool bitwise_open(bitwise_run *r, const config *c);
adamod_status bitwise_step(bitwise_run *r);
void bitwise_close(bitwise_run *r);

typedef struct written_bytes {
    unsigned char *bytes;
    size_t n, room;
} written_bytes;

/* Parameters, then one state after the other, each of all arrays; so cutting an array leaves the bytes as they are. */
written_bytes bitwise_written(const bitwise_run *r, bool queues);
bool same_bytes(const written_bytes *a, const written_bytes *b);
/* bitwise_written() after some steps from the start. */
written_bytes bitwise_written_after(const config *c, int steps, bool queues);
void expect_same(const config *a, const config *b, int steps, bool queues);

#endif
