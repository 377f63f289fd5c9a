/* Tests of checkpoints where any call of the C library fails: see test_faults.c.
 *
 * SPDX-License-Identifier: MIT
 */
#include "faults.h"

#include "scratch.h"
#include "train/checkpoint.h"
#include "core/error.h"

#include <math.h>
#include <stdlib.h>

#define FILE_NAME "last.safetensors"

enum { ROOM = 1 << 16, COUNT = 48 };
static unsigned char old[ROOM], new[ROOM], now[ROOM];
static size_t n_old, n_new;

static const char *last_message(void) { return adamod__last_message(); }

/* ---- a model of two parameters, built by hand ---- */

static float data[COUNT], grad[COUNT];
static nn_param list[2] = {{.name = "w", .ndim = 2, .shape = {5, 7}, .count = 35},
                           {.name = "b", .ndim = 1, .shape = {3}, .count = 3, .offset = 40}};
static nn_params params = {.list = list, .n = 2, .count = COUNT, .data = data, .grad = grad};
static adamod_optimizer *opt;

static void make(void) {
    for (int i = 0; i < COUNT; i++) data[i] = sinf((float)i), grad[i] = cosf((float)i);
    CHECK_INT(adamod_create(&opt, "adamod"), ADAMOD_OK);
    CHECK_INT(adamod_set(opt, "threads", 1), ADAMOD_OK);
    for (int i = 0; i < 2; i++) {
        CHECK_INT(
            adamod_add(opt, list[i].name, data + list[i].offset, grad + list[i].offset, list[i].ndim, list[i].shape),
            ADAMOD_OK);
    }
    CHECK_INT(adamod_step(opt), ADAMOD_OK);
}

/* ---- saving ---- */

static int save(void) {
    const checkpoint_meta meta = {.step = 7};
    adamod__fail(ADAMOD_OK, "%s", "");
    return checkpoint_save(FILE_NAME, &params, opt, &meta);
}

static void check_saved(int status) {
    const size_t n = get_file(FILE_NAME, now, sizeof now);
    const bool is_old = n == n_old && memcmp(now, old, n) == 0, is_new = n == n_new && memcmp(now, new, n) == 0;
    CHECK(status && !strstr(adamod__last_message(), "written, but") ? is_old : is_new);
    if (status) CHECK(strncmp(adamod__last_message(), FILE_NAME ": ", strlen(FILE_NAME) + 2) == 0);
    if (!faults.for_good) CHECK_INT(scratch_files(), 1);
    put_file(FILE_NAME, old, n_old);
}

TEST(saving) {
    enter_scratch(true);
    make();
    CHECK_INT(save(), 0);
    n_old = get_file(FILE_NAME, old, sizeof old);
    CHECK_INT(adamod_step(opt), ADAMOD_OK);
    CHECK_INT(save(), 0);
    n_new = get_file(FILE_NAME, new, sizeof new);
    CHECK(n_new > 1000 && memcmp(old, new, n_new) != 0);
    put_file(FILE_NAME, old, n_old);
    fault_all(&(fault_act){save, last_message, check_saved}, "saving");
    CHECK_INT(save(), 0);
    CHECK_INT(scratch_files(), 1);
    adamod_free(opt);
}

/* ---- loading ---- */

static float before[COUNT], loaded[COUNT];

static int load(void) {
    checkpoint_meta meta = {0};
    adamod__fail(ADAMOD_OK, "%s", "");
    memcpy(before, data, sizeof data);
    const int status = checkpoint_load(FILE_NAME, &params, opt, &meta);
    CHECK_INT(meta.step, status ? 0 : 7);
    return status;
}

static void check_loaded(int status) {
    CHECK(memcmp(data, status ? before : loaded, sizeof data) == 0);
    CHECK_INT(adamod_steps(opt), status ? 3 : 1);
    if (status) CHECK(strncmp(adamod__last_message(), FILE_NAME ": ", strlen(FILE_NAME) + 2) == 0);
    while (adamod_steps(opt) < 3) CHECK_INT(adamod_step(opt), ADAMOD_OK); /* away from it again */
}

TEST(loading) {
    enter_scratch(true);
    make();
    CHECK_INT(save(), 0);
    memcpy(loaded, data, sizeof data);
    fault_all(&(fault_act){load, last_message, check_loaded}, "loading");
    adamod_free(opt);
}

/* ---- several names ---- */

#define LINK_NAME "best.safetensors"

static int save_both(void) {
    const checkpoint_meta meta = {.step = 7};
    const checkpoint_target targets[] = {{FILE_NAME, true}, {LINK_NAME, true}};
    adamod__fail(ADAMOD_OK, "%s", "");
    checkpoint_writer *w = checkpoint_begin(targets, 2, &params, opt, &meta);
    return w ? checkpoint_end(w) : -1;
}

/* 1: the old content, 2: the new. */
static int version_of(const char *name) {
    const size_t n = get_file(name, now, sizeof now);
    return n == n_old && memcmp(now, old, n) == 0 ? 1 : n == n_new && memcmp(now, new, n) == 0 ? 2 : 0;
}

/* If there are no links, or one fails, the file is written again: both names have it, or it is said that they have not. */
TEST(saving_under_two_names) {
    enter_scratch(true);
    make();
    CHECK_INT(save(), 0);
    n_old = get_file(FILE_NAME, old, sizeof old);
    CHECK_INT(adamod_step(opt), ADAMOD_OK);
    CHECK_INT(save(), 0);
    n_new = get_file(FILE_NAME, new, sizeof new);
    const long calls = fault_calls(save_both);
    int failed = 0, written = 0;
    for (long n = 1; n <= 2 * calls && check_failures < 10; n++) {
        const int descriptor = fault_descriptor();
        put_file(FILE_NAME, old, n_old);
        unlink(LINK_NAME);
        put_file(LINK_NAME, old, n_old);
        faults = (fault_plan){.on = true, .at = 1 + (n - 1) % calls, .error = EIO, .for_good = n > calls};
        const int status = save_both();
        faults.on = false;
        failed += status != 0;
        written += status == 0 && faults.last && strcmp(faults.last, "linkat") == 0;
        CHECK(version_of(FILE_NAME) && version_of(LINK_NAME));
        if (!status) CHECK(version_of(FILE_NAME) == 2 && version_of(LINK_NAME) == 2);
        if (status)
            CHECK(strstr(adamod__last_message(), FILE_NAME ": ") == adamod__last_message() ||
                  strstr(adamod__last_message(), LINK_NAME ": ") == adamod__last_message());
        if (!faults.for_good) CHECK_INT(scratch_files(), 2);
        CHECK_INT(fault_descriptor(), descriptor);
        if (check_failures) printf("  call %ld of %ld, %s\n", n, calls, faults.last ? faults.last : "none");
        unlink(".adamod-0.tmp");
        unlink(LINK_NAME ".tmp.link");
    }
    CHECK(failed > 10 && written == 1);
    adamod_free(opt);
}

RUN_TESTS(ENTRY(saving), ENTRY(loading), ENTRY(saving_under_two_names))
