/* Tests of every way a state file can be wrong, after which the optimizer is as it was, and of saving that fails, after
 * which the file is.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "state_model.h"
#include "core/safetensors.h"
#include "scratch.h"
#include "values.h"
#include "core/error.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- Files that are wrong ----------------------------------------------------------------------------------------- */

TEST(no_file) {
    enter_scratch(true);
    model m;
    model_make(&m, 0, model_kinds[0]);
    model_updates(&m, 1, 5);
    REFUSED(&m, "missing", ADAMOD_ERROR_IO, "missing");
    REFUSED(&m, "missing/state", ADAMOD_ERROR_IO, "missing/state");
    REFUSED(&m, "", ADAMOD_ERROR_IO, "load: the path is empty");
    REFUSED(&m, ".", ADAMOD_OK, "."); /* a directory */
    put_file(FILE_NAME, "", 0);
    REFUSED(&m, FILE_NAME, ADAMOD_ERROR_FORMAT, FILE_NAME);
    put_file(FILE_NAME, "not a safetensors file at all", 29);
    REFUSED(&m, FILE_NAME, ADAMOD_ERROR_FORMAT, FILE_NAME);
    put_file(FILE_NAME, "\x02\0\0\0\0\0\0\0{}", 10);
    REFUSED(&m, FILE_NAME, ADAMOD_ERROR_MISMATCH, "format is ''");
    adamod_free(m.opt);
}

TEST(truncated) {
    static unsigned char bytes[1 << 16];
    enter_scratch(true);
    model m;
    model_make(&m, 0, model_kinds[2]);
    model_updates(&m, 1, 5);
    CHECK_INT(adamod_save(m.opt, FILE_NAME), ADAMOD_OK);
    model_updates(&m, 6, 7);
    const size_t n = get_file(FILE_NAME, bytes, sizeof bytes - 1);
    for (size_t k = 0; k < n; k += k < 64 || k > n - 64 ? 1 : 64) {
        put_file(FILE_NAME, bytes, k);
        if (!REFUSED(&m, FILE_NAME, ADAMOD_ERROR_FORMAT, FILE_NAME)) printf("  at %zu of %zu\n", k, n);
    }
    bytes[n] = 0;
    put_file(FILE_NAME, bytes, n + 1);
    REFUSED(&m, FILE_NAME, ADAMOD_ERROR_FORMAT, FILE_NAME);
    put_file(FILE_NAME, bytes, n);
    CHECK_INT(adamod_load(m.opt, FILE_NAME), ADAMOD_OK);
    adamod_free(m.opt);
}

/* Any bit of the file: it is refused, by its name, and nothing is changed. */
TEST(flipped_bits) {
    static unsigned char bytes[1 << 16];
    enter_scratch(true);
    model m;
    model_make(&m, model_rule_of("sgd", ""), model_kinds[2]); /* few states, so that there are not too many bits */
    model_updates(&m, 1, 5);
    CHECK_INT(adamod_save(m.opt, FILE_NAME), ADAMOD_OK);
    const size_t n = get_file(FILE_NAME, bytes, sizeof bytes);
    CHECK(n > 1000);
    model_updates(&m, 6, 6);
    model_remember(&m);
    int said_damaged = 0, flipped = 0;
    for (size_t bit = 0; bit < 8 * n && check_failures < 10; bit += fast() ? 5 : 1, flipped++) { /* in every byte */
        bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
        put_file(FILE_NAME, bytes, n);
        const adamod_status status = adamod_load(m.opt, FILE_NAME);
        char words[300];
        snprintf(words, sizeof words, "%s", adamod_last_error());
        if (!CHECK(status == ADAMOD_ERROR_FORMAT || status == ADAMOD_ERROR_MISMATCH) || !CHECK_HAS(words, FILE_NAME) ||
            !CHECK(!strchr(words, '\n')) || !CHECK(model_unchanged(&m))) {
            printf("  bit %zu: %s\n", bit, words);
        }
        said_damaged += strstr(words, ": damaged: ") != NULL;
        bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
    CHECK(8 * said_damaged > 7 * flipped); /* but where the lengths or the names of the checksums are no longer found */
    put_file(FILE_NAME, bytes, n);
    CHECK_INT(adamod_load(m.opt, FILE_NAME), ADAMOD_OK);
    adamod_free(m.opt);
}

/* Cuts a part out of the header of a file. */
static size_t cut_header(unsigned char *bytes, size_t n, const char *from, const char *to) {
    unsigned char *a = memmem(bytes, n, from, strlen(from)), *b = memmem(bytes, n, to, strlen(to));
    if (!CHECK(a && b && a < b)) return n;
    memmove(a, b, (size_t)(bytes + n - b));
    uint64_t length = 0;
    for (int i = 7; i >= 0; i--) length = length << 8 | bytes[i];
    length -= (uint64_t)(b - a);
    for (int i = 0; i < 8; i++) bytes[i] = (unsigned char)(length >> (8 * i) & 0xff);
    return n - (size_t)(b - a);
}

/* As earlier versions and other programs write them; one of the two checksums alone is a damaged file. */
TEST(files_without_checksums) {
    static unsigned char bytes[1 << 16], copy[1 << 16];
    enter_scratch(true);
    model m, other;
    model_make(&m, 0, model_kinds[0]);
    model_make(&other, 0, model_kinds[0]);
    model_updates(&m, 1, 5);
    CHECK_INT(adamod_save(m.opt, FILE_NAME), ADAMOD_OK);
    const size_t n = get_file(FILE_NAME, bytes, sizeof bytes);
    memcpy(copy, bytes, n);
    put_file(FILE_NAME, copy, cut_header(copy, n, "\"crc32\"", "\"crc32.data\""));
    REFUSED(&other, FILE_NAME, ADAMOD_ERROR_FORMAT, "has one of crc32 and crc32.data, expected both or none");
    memcpy(copy, bytes, n);
    put_file(FILE_NAME, copy, cut_header(copy, n, "\"crc32\"", "\"format\""));
    CHECK_INT(adamod_load(other.opt, FILE_NAME), ADAMOD_OK);
    memcpy(other.p, m.p, sizeof m.p);
    memcpy(other.g, m.g, sizeof m.g);
    other.late = m.late;
    CHECK(model_same(&m, &other));
    adamod_free(m.opt);
    adamod_free(other.opt);
}

/* A header that is longer than this optimizer's can be is refused before memory is taken for it. */
TEST(headers_that_are_too_long) {
    struct rusage before, after;
    enter_scratch(true);
    model m;
    model_make(&m, 0, model_kinds[0]);
    model_updates(&m, 1, 5);
    put_file(FILE_NAME, "\xc0\x83\x2f\x05\0\0\0\0{", 9);
    CHECK_INT(truncate(FILE_NAME, 8 + 87000000), 0);
    getrusage(RUSAGE_SELF, &before);
    REFUSED(&m, FILE_NAME, ADAMOD_ERROR_FORMAT, "header length 87000000 exceeds the limit of 1");
    getrusage(RUSAGE_SELF, &after);
    CHECK(after.ru_maxrss - before.ru_maxrss < 8192); /* kilobytes */
    adamod_free(m.opt);
}

/* The longest there can be: 8 dimensions, names of characters that are escaped. */
TEST(headers_that_are_long) {
    enum { N = 300 };
    static float p[N], g[N];
    static const int64_t shape[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    adamod_optimizer *opt = NULL;
    enter_scratch(true);
    CHECK_INT(adamod_create(&opt, "adamod"), ADAMOD_OK);
    for (int i = 0; i < N; i++) {
        char name[2100];
        memset(name, '"', sizeof name);
        snprintf(name + 2000, sizeof name - 2000, "%d", i);
        if (!CHECK_INT(adamod_add(opt, name, &p[i], &g[i], 8, shape), ADAMOD_OK)) break;
    }
    CHECK_INT(adamod_step(opt), ADAMOD_OK);
    CHECK_INT(adamod_save(opt, FILE_NAME), ADAMOD_OK);
    CHECK_INT(adamod_load(opt, FILE_NAME), ADAMOD_OK);
    adamod_free(opt);
}

TEST(files_of_other_optimizers) {
    enter_scratch(true);
    model m, other;
    model_make(&m, 0, model_kinds[0]);
    model_updates(&m, 1, 5);
    /* every other rule */
    for (int r = 2; model_rule(r).rule; r++) {
        model_make(&other, r, model_kinds[0]);
        CHECK_INT(adamod_save(other.opt, FILE_NAME), ADAMOD_OK);
        REFUSED(&m, FILE_NAME, ADAMOD_ERROR_MISMATCH, "expected 'adamod'");
        CHECK_HAS(model_message, model_rule(r).rule);
        adamod_free(other.opt);
    }
    /* other types, where those of the states differ */
    for (int k = 1; k < model_kind_count; k++) {
        model_make(&other, 0, model_kinds[k]);
        model_updates(&other, 1, 2);
        CHECK_INT(adamod_save(other.opt, FILE_NAME), ADAMOD_OK);
        const bool fits = model_kinds[k].type != ADAMOD_F64 && !model_kinds[k].bf16_states && model_kinds[k].stochastic;
        if (!fits) REFUSED(&m, FILE_NAME, ADAMOD_ERROR_MISMATCH, FILE_NAME);
        if (!fits) CHECK(strstr(model_message, "expected F32") || strstr(model_message, "expected 20"));
        adamod_free(other.opt);
    }
    adamod_free(m.opt);
    /* the same rule with other states */
    model_make(&m, model_rule_of("sgd", "momentum=0.9 dampening=0.1"), model_kinds[0]);
    model_make(&other, model_rule_of("sgd", ""), model_kinds[0]);
    CHECK_INT(adamod_save(other.opt, FILE_NAME), ADAMOD_OK);
    REFUSED(&m, FILE_NAME, ADAMOD_ERROR_MISMATCH, "5 tensors, expected 10 for 5 parameters; it has no '");
    CHECK_INT(adamod_save(m.opt, FILE_NAME), ADAMOD_OK);
    REFUSED(&other, FILE_NAME, ADAMOD_ERROR_MISMATCH, "10 tensors, expected 5");
    adamod_free(m.opt);
    adamod_free(other.opt);
    model_make(&m, model_rule_of("adashift", "window=3"), model_kinds[0]);
    model_make(&other, model_rule_of("adashift", "window=2 spatial=none"), model_kinds[0]);
    CHECK_INT(adamod_save(other.opt, FILE_NAME), ADAMOD_OK);
    REFUSED(&m, FILE_NAME, ADAMOD_ERROR_MISMATCH, "has shape");
    adamod_free(m.opt);
    adamod_free(other.opt);
    /* another name */
    model_make(&m, 0, model_kinds[0]);
    model_make_as(&other, 0, model_kinds[0], NULL, "later");
    CHECK_INT(adamod_save(other.opt, FILE_NAME), ADAMOD_OK);
    REFUSED(&m, FILE_NAME, ADAMOD_ERROR_MISMATCH, "no tensor 'late.exp_avg'");
    /* fewer parameters, and more */
    float x = 0;
    CHECK_INT(adamod_save(m.opt, FILE_NAME), ADAMOD_OK);
    CHECK_INT(adamod_add(m.opt, "x", &x, NULL, 0, NULL), ADAMOD_OK);
    CHECK_INT(adamod_load(m.opt, FILE_NAME), ADAMOD_ERROR_MISMATCH);
    CHECK_HAS(adamod_last_error(), "20 tensors, expected 24 for 6 parameters");
    CHECK_INT(adamod_save(m.opt, FILE_NAME), ADAMOD_OK);
    REFUSED(&other, FILE_NAME, ADAMOD_ERROR_MISMATCH, "24 tensors, expected 20 for 5 parameters");
    adamod_free(m.opt);
    adamod_free(other.opt);
}

/* Another shape of as many elements, and of more. */
TEST(other_shapes) {
    static const struct {
        int ndim;
        int64_t shape[3];
    } shapes[] = {{1, {6}},    {2, {3, 2}}, {3, {1, 2, 3}}, {3, {2, 3, 1}},
                  {2, {2, 2}}, {2, {3, 3}}, {0, {0}},       {2, {0, 3}}};
    enter_scratch(true);
    float p[6] = {1, 2, 3, 4, 5, 6}, q[9] = {0};
    const float g[9] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    adamod_optimizer *opt = NULL;
    void *m = NULL, *now = NULL;
    float copy[6];
    CHECK_INT(adamod_create(&opt, "adamod"), ADAMOD_OK);
    CHECK_INT(adamod_add(opt, "w", p, g, 2, (const int64_t[]){2, 3}), ADAMOD_OK);
    CHECK_INT(adamod_step(opt), ADAMOD_OK);
    CHECK_INT(adamod_state(opt, 0, "exp_avg", &m, NULL, NULL), ADAMOD_OK);
    memcpy(copy, m, sizeof copy);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        adamod_optimizer *other = NULL;
        CHECK_INT(adamod_create(&other, "adamod"), ADAMOD_OK);
        CHECK_INT(adamod_add(other, "w", q, g, shapes[i].ndim, shapes[i].shape), ADAMOD_OK);
        CHECK_INT(adamod_save(other, FILE_NAME), ADAMOD_OK);
        CHECK_INT(adamod_load(opt, FILE_NAME), ADAMOD_ERROR_MISMATCH);
        CHECK_HAS(adamod_last_error(), "'w.exp_avg' has shape [");
        CHECK_HAS(adamod_last_error(), "], expected [2, 3]");
        CHECK_INT(adamod_state(opt, 0, "exp_avg", &now, NULL, NULL), ADAMOD_OK);
        CHECK(now == m && memcmp(now, copy, sizeof copy) == 0);
        CHECK_INT(adamod_steps(opt), 1);
        adamod_free(other);
    }
    adamod_free(opt);
}

/* A file written anew with something changed. */
typedef struct rewritten {
    adamod__st_pair metadata[8];
    size_t n_metadata;
    adamod__st_tensor tensors[32];
    size_t n;
    void *data[32];
    adamod__st_file file;
} rewritten;

static void read_all(rewritten *r, const char *path) {
    memset(r, 0, sizeof *r);
    if (!CHECK_INT(adamod__st_open_within(path, ADAMOD__ST_MAX_HEADER, &r->file), ADAMOD_OK)) abort();
    for (size_t i = 0; i < r->file.n_metadata; i++) r->metadata[r->n_metadata++] = r->file.metadata[i];
    for (size_t i = 0; i < r->file.n_entries; i++) {
        const adamod__st_entry *e = &r->file.entries[i];
        r->data[i] = calloc(1, (size_t)(e->end - e->begin) + 1);
        if (!r->data[i] || adamod__st_read(&r->file, e, r->data[i])) abort();
        adamod__st_tensor *t = &r->tensors[r->n++];
        *t = (adamod__st_tensor){.name = e->name, .dtype = e->dtype, .ndim = e->ndim, .data = r->data[i]};
        memcpy(t->shape, e->shape, sizeof t->shape);
    }
}

static void write_all(const rewritten *r, const char *path) {
    if (!CHECK_INT(adamod__st_write(path, r->metadata, r->n_metadata, r->tensors, r->n), ADAMOD_OK)) {
        printf("  %s\n", adamod__last_message());
    }
}

static void forget(rewritten *r) {
    for (size_t i = 0; i < r->file.n_entries; i++) free(r->data[i]);
    adamod__st_close(&r->file);
}

static adamod__st_pair *pair_of(rewritten *r, const char *key) {
    for (size_t i = 0; i < r->n_metadata; i++) {
        if (!strcmp(r->metadata[i].key, key)) return &r->metadata[i];
    }
    abort();
}

static adamod__st_tensor *tensor_of(rewritten *r, const char *name) {
    for (size_t i = 0; i < r->n; i++) {
        if (!strcmp(r->tensors[i].name, name)) return &r->tensors[i];
    }
    abort();
}

TEST(metadata_that_is_wrong) {
    enter_scratch(true);
    model m;
    rewritten r;
    model_make(&m, model_rule_of("sgd", ""), model_kinds[0]);
    model_updates(&m, 1, 5);
    CHECK_INT(adamod_save(m.opt, "good"), ADAMOD_OK);
    model_updates(&m, 6, 6);
    /* written as it was read, it is good */
    read_all(&r, "good");
    write_all(&r, FILE_NAME);
    CHECK_INT(adamod_load(m.opt, FILE_NAME), ADAMOD_OK);
    forget(&r);
    static const struct {
        const char *key, *value; /* NULL: without it */
        adamod_status status;
        const char *says;
    } cases[] = {
        {"format", NULL, ADAMOD_ERROR_MISMATCH, "format is ''"},
        {"format", "pt", ADAMOD_ERROR_MISMATCH, "format is 'pt', expected 'adamod optimizer state 1'"},
        {"format", "adamod optimizer state 2", ADAMOD_ERROR_MISMATCH, "expected 'adamod optimizer state 1'"},
        {"rule", NULL, ADAMOD_ERROR_MISMATCH, "state of rule '', expected 'sgd'"},
        {"rule", "sgdm", ADAMOD_ERROR_MISMATCH, "state of rule 'sgdm', expected 'sgd'"},
        {"steps", NULL, ADAMOD_ERROR_FORMAT, "steps"},
        {"steps", "", ADAMOD_ERROR_FORMAT, "steps"},
        {"steps", "five", ADAMOD_ERROR_FORMAT, "steps"},
        {"steps", "-1", ADAMOD_ERROR_FORMAT, "steps"},
        {"steps", "+1", ADAMOD_ERROR_FORMAT, "steps"},
        {"steps", " 1", ADAMOD_ERROR_FORMAT, "steps"},
        {"steps", "1 ", ADAMOD_ERROR_FORMAT, "steps"},
        {"steps", "1.0", ADAMOD_ERROR_FORMAT, "steps"},
        {"steps", "1e3", ADAMOD_ERROR_FORMAT, "steps"},
        {"steps", "0x10", ADAMOD_ERROR_FORMAT, "steps"},
        {"steps", "9223372036854775808", ADAMOD_ERROR_FORMAT, "steps"},
        {"steps", "99999999999999999999999999", ADAMOD_ERROR_FORMAT, "steps"},
        {"steps", "9223372036854775807", ADAMOD_ERROR_FORMAT, "steps"}, /* there is no next one */
        {"skipped", NULL, ADAMOD_ERROR_FORMAT, "skipped"},
        {"skipped", "-5", ADAMOD_ERROR_FORMAT, "skipped"},
        {"skipped", "4611686018427387904", ADAMOD_ERROR_FORMAT, "skipped"}, /* with steps it must stay below 2^63 */
        {"skipped", "none", ADAMOD_ERROR_FORMAT, "skipped"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        read_all(&r, "good");
        adamod__st_pair *pair = pair_of(&r, cases[i].key);
        if (cases[i].value) pair->value = cases[i].value;
        else pair->key = "something else";
        write_all(&r, FILE_NAME);
        if (!REFUSED(&m, FILE_NAME, cases[i].status, cases[i].says)) {
            printf("  %s = %s\n", cases[i].key, cases[i].value ? cases[i].value : "(none)");
            CHECK_INT(adamod_load(m.opt, "good"), ADAMOD_OK);
        }
        forget(&r);
    }
    /* none at all; and one more than is known, which does no harm */
    read_all(&r, "good");
    r.n_metadata = 0;
    write_all(&r, FILE_NAME);
    REFUSED(&m, FILE_NAME, ADAMOD_ERROR_MISMATCH, "format is ''");
    forget(&r);
    read_all(&r, "good");
    r.metadata[r.n_metadata++] = (adamod__st_pair){"author", "somebody"};
    write_all(&r, FILE_NAME);
    CHECK_INT(adamod_load(m.opt, FILE_NAME), ADAMOD_OK);
    forget(&r);
    adamod_free(m.opt);
}

TEST(tensors_that_are_wrong) {
    enter_scratch(true);
    model m;
    rewritten r;
    model_make(&m, 0, model_kinds[0]);
    model_updates(&m, 1, 5);
    CHECK_INT(adamod_save(m.opt, "good"), ADAMOD_OK);
    model_updates(&m, 6, 6);
    /* one missing, one too many, one in the place of another */
    read_all(&r, "good");
    r.n--;
    write_all(&r, FILE_NAME);
    REFUSED(&m, FILE_NAME, ADAMOD_ERROR_MISMATCH, "19 tensors, expected 20");
    forget(&r);
    read_all(&r, "good");
    r.tensors[r.n] = r.tensors[0];
    r.tensors[r.n++].name = "one.more";
    write_all(&r, FILE_NAME);
    REFUSED(&m, FILE_NAME, ADAMOD_ERROR_MISMATCH, "21 tensors, expected 20 for 5 parameters; it has 'one.more'");
    r.tensors[r.n - 1].name = "two\nlines";
    write_all(&r, FILE_NAME);
    REFUSED(&m, FILE_NAME, ADAMOD_ERROR_MISMATCH, "21 tensors, expected 20 for 5 parameters");
    CHECK(!strchr(model_message, '\n'));
    forget(&r);
    for (size_t i = 0; i < 20; i++) {
        read_all(&r, "good");
        r.tensors[i].name = "another";
        write_all(&r, FILE_NAME);
        REFUSED(&m, FILE_NAME, ADAMOD_ERROR_MISMATCH, "no tensor '");
        forget(&r);
    }
    /* other types of the same size */
    read_all(&r, "good");
    tensor_of(&r, "late.exp_avg")->dtype = ADAMOD__ST_I32;
    write_all(&r, FILE_NAME);
    REFUSED(&m, FILE_NAME, ADAMOD_ERROR_MISMATCH, "'late.exp_avg' is I32, expected F32");
    forget(&r);
    read_all(&r, "good");
    tensor_of(&r, "late.step")->dtype = ADAMOD__ST_F64;
    write_all(&r, FILE_NAME);
    REFUSED(&m, FILE_NAME, ADAMOD_ERROR_MISMATCH, "'late.step' is F64, expected I64");
    forget(&r);
    read_all(&r, "good");
    tensor_of(&r, "late.step")->ndim = 1;
    tensor_of(&r, "late.step")->shape[0] = 1;
    write_all(&r, FILE_NAME);
    REFUSED(&m, FILE_NAME, ADAMOD_ERROR_MISMATCH, "'late.step' has shape [1], expected []");
    forget(&r);
    /* counts that cannot be */
    const int64_t counts[] = {-1, INT64_MIN, INT64_MAX, INT64_C(1) << 62};
    for (int i = 0; i < 4; i++) {
        read_all(&r, "good");
        tensor_of(&r, "late.step")->data = &counts[i];
        write_all(&r, FILE_NAME);
        if (!REFUSED(&m, FILE_NAME, ADAMOD_ERROR_FORMAT, "'late.step' is "))
            CHECK_INT(adamod_load(m.opt, "good"), ADAMOD_OK);
        forget(&r);
    }
    adamod_free(m.opt);
}

/* ---- Saving that fails -------------------------------------------------------------------------------------------- */

TEST(saving_that_fails) {
    static unsigned char good[1 << 16], now[1 << 16];
    enter_scratch(true);
    model m;
    model_make(&m, 0, model_kinds[0]);
    model_updates(&m, 1, 5);
    CHECK_INT(adamod_save(m.opt, FILE_NAME), ADAMOD_OK);
    const size_t n = get_file(FILE_NAME, good, sizeof good);
    model_updates(&m, 6, 7);
    model_remember(&m);
    CHECK_INT(adamod_save(m.opt, "no/such/directory"), ADAMOD_ERROR_IO);
    CHECK_HAS(adamod_last_error(), "no/such/directory");
    CHECK_INT(adamod_save(m.opt, ""), ADAMOD_ERROR_IO);
    CHECK_HAS(adamod_last_error(), "save: the path is empty");
    CHECK(adamod_save(m.opt, ".") != ADAMOD_OK);
    CHECK(adamod_save(m.opt, FILE_NAME "/below") == ADAMOD_ERROR_IO);
    CHECK_INT(scratch_files(), 1);
    /* a disk that is full in the middle of the file */
    struct rlimit usual;
    getrlimit(RLIMIT_FSIZE, &usual);
    signal(SIGXFSZ, SIG_IGN);
    const struct rlimit limit = {n / 2, usual.rlim_max};
    if (setrlimit(RLIMIT_FSIZE, &limit) == 0) {
        CHECK_INT(adamod_save(m.opt, FILE_NAME), ADAMOD_ERROR_IO);
        CHECK_HAS(adamod_last_error(), FILE_NAME);
        CHECK_INT(adamod_save(m.opt, "new"), ADAMOD_ERROR_IO);
        setrlimit(RLIMIT_FSIZE, &usual);
    }
    CHECK_INT(scratch_files(), 1); /* nothing is left behind */
    CHECK_INT(get_file(FILE_NAME, now, sizeof now), n);
    CHECK(memcmp(good, now, n) == 0);
    CHECK(model_unchanged(&m));
    CHECK_INT(adamod_save(m.opt, FILE_NAME), ADAMOD_OK);
    CHECK_INT(scratch_files(), 1);
    adamod_free(m.opt);
}

TEST(unwritable_directory) {
    if (geteuid() == 0) SKIP("root may write anywhere");
    static unsigned char good[1 << 16], now[1 << 16];
    enter_scratch(true);
    model m;
    model_make(&m, 0, model_kinds[0]);
    CHECK_INT(adamod_save(m.opt, FILE_NAME), ADAMOD_OK);
    const size_t n = get_file(FILE_NAME, good, sizeof good);
    model_updates(&m, 1, 2);
    CHECK_INT(chmod(".", 0500), 0);
    CHECK_INT(adamod_save(m.opt, FILE_NAME), ADAMOD_ERROR_IO);
    CHECK_INT(scratch_files(), 1);
    CHECK_INT(chmod(".", 0700), 0);
    CHECK_INT(get_file(FILE_NAME, now, sizeof now), n);
    CHECK(memcmp(good, now, n) == 0);
    adamod_free(m.opt);
}

RUN_TESTS(ENTRY(no_file), ENTRY(truncated), ENTRY(flipped_bits), ENTRY(files_without_checksums),
          ENTRY(headers_that_are_too_long), ENTRY(headers_that_are_long), ENTRY(files_of_other_optimizers),
          ENTRY(other_shapes), ENTRY(metadata_that_is_wrong), ENTRY(tensors_that_are_wrong), ENTRY(saving_that_fails),
          ENTRY(unwritable_directory))
