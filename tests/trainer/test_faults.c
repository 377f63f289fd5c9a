/* Tests of files where any call of the C library fails: saving leaves the file as it was, loading the optimizer, and
 * neither leaves anything else. That any allocation may fail is in test_memory.c.
 *
 * SPDX-License-Identifier: MIT
 */
#include "faults.h"

#include "data/npy.h"
#include "support/text.h"
#include "scratch.h"
#include "state_model.h"
#include "core/error.h"

enum { ROOM = 1 << 16 };
static unsigned char old[ROOM], new[ROOM], now[ROOM];
static size_t n_old, n_new;

static const char *last_message(void) { return adamod__last_message(); }

/* A file that is being written is the old one, or where that was said the new one; or the new one, if nothing was. */
static void check_written(int status) {
    const size_t n = get_file(FILE_NAME, now, sizeof now);
    const bool is_old = n == n_old && memcmp(now, old, n) == 0, is_new = n == n_new && memcmp(now, new, n) == 0;
    if (!status) CHECK(is_new);
    else if (strstr(adamod__last_message(), "written, but cannot sync its directory")) CHECK(is_new);
    else CHECK(is_old);
    if (status) CHECK_HAS(adamod__last_message(), FILE_NAME);
    CHECK_INT(scratch_files(), (n > 0) + faults.for_good * (scratch_files() > (n > 0)));
    if (n_old) put_file(FILE_NAME, old, n_old);
    else unlink(FILE_NAME);
}

/* Checks a writer over an old file, and where there was none. */
static void check_writer(const fault_act *a, const char *what) {
    for (int there = 0; there < 2; there++) {
        n_old = 0;
        unlink(FILE_NAME);
        CHECK_INT(a->act(), 0);
        n_new = get_file(FILE_NAME, new, sizeof new);
        CHECK(n_new > 3);
        unlink(FILE_NAME);
        if (there) put_file(FILE_NAME, memcpy(old, "old", n_old = 3), 3);
        fault_all(a, what);
        CHECK_INT(a->act(), 0); /* whatever a broken device kept is gone with the next one */
        CHECK_INT(scratch_files(), 1);
    }
}

/* ---- states ---- */

static model m;

static int report(adamod_status status) {
    if (status) CHECK(status == (faults.error == ENOMEM ? ADAMOD_ERROR_MEMORY : ADAMOD_ERROR_IO));
    return status != ADAMOD_OK;
}

static int save(void) { return report(adamod_save(m.opt, FILE_NAME)); }

static void check_saved(int status) {
    check_written(status);
    CHECK(model_unchanged(&m));
}

TEST(saving) {
    enter_scratch(true);
    model_make(&m, 0, model_kinds[0]);
    model_updates(&m, 1, 5);
    model_remember(&m);
    check_writer(&(fault_act){save, last_message, check_saved}, "saving");
    adamod_free(m.opt);
}

static model saved; /* what the file has */

static int load(void) { return report(adamod_load(m.opt, FILE_NAME)); }

static void check_loaded(int status) {
    if (status) {
        CHECK_HAS(adamod__last_message(), FILE_NAME);
        CHECK(model_unchanged(&m));
        return;
    }
    memcpy(m.p, saved.p, sizeof m.p);
    CHECK(model_same(&m, &saved));
    model_updates(&m, 6, 7); /* away from it again */
    model_remember(&m);
}

TEST(loading) {
    enter_scratch(true);
    model_make(&saved, 0, model_kinds[0]);
    model_make(&m, 0, model_kinds[0]);
    model_updates(&saved, 1, 5);
    model_updates(&m, 1, 7);
    CHECK_INT(adamod_save(saved.opt, FILE_NAME), ADAMOD_OK);
    model_remember(&m);
    fault_all(&(fault_act){load, last_message, check_loaded}, "loading");
    CHECK_INT(scratch_files(), 1);
    adamod_free(m.opt);
    adamod_free(saved.opt);
}

/* ---- other files ---- */

static int write_text(void) {
    adamod__fail(ADAMOD_OK, "%s", "");
    return text_write(FILE_NAME, text_of("a line\n"));
}

TEST(text) {
    enter_scratch(true);
    check_writer(&(fault_act){write_text, last_message, check_written}, "text");
}

static int write_array(void) {
    const float x[3] = {1, 2, 3};
    npy_writer *w;
    adamod__fail(ADAMOD_OK, "%s", "");
    if (npy_writer_open(&w, FILE_NAME, NPY_F32, 1, (int64_t[]){3})) return -1;
    if (npy_writer_append(w, x, sizeof x)) return npy_writer_abort(w), -1;
    return npy_writer_close(w);
}

TEST(arrays) {
    enter_scratch(true);
    check_writer(&(fault_act){write_array, last_message, check_written}, "arrays");
}

RUN_TESTS(ENTRY(saving), ENTRY(loading), ENTRY(text), ENTRY(arrays))
