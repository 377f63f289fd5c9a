/* Loading libraries: where they are looked for, and what is said if they cannot be had.
 *
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include "check.h"

#include "adamod.h"
#include "core/error.h"
#include "support/functions.h"
#include "core/library.h"

#include <fcntl.h>
#include <grp.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *const beside[] = {"", NULL}, *const nowhere[] = {NULL};

#define ABSENT "libadamod_absent.so"
#define VARIABLE "ADAMOD_TEST_LIBRARY"

TEST(functions_are_found_in_what_is_loaded) {
    const char *why = NULL;
    double (*down)(double);
    void *m = adamod__library_open("libm.so.6", NULL, nowhere, &why);
    if (!CHECK(m)) return;
    CHECK(!why && adamod__library_open("libm.so.6", NULL, nowhere, &why) == m);
    if (CHECK(adamod__library_function(m, "floor", &down))) CHECK(down(2.5) == 2);
    CHECK(!adamod__library_function(m, "adamod_absent", &down) && !down);
    int (*id)(void);
    if (CHECK(adamod__library_function(NULL, "getpid", &id))) CHECK_INT(id(), getpid());
    CHECK(!adamod__library_function(NULL, "adamod_absent", &id) && !id);
}

TEST(what_cannot_be_had_is_named) {
    const char *why = NULL;
    CHECK(!adamod__library_open(ABSENT, NULL, nowhere, &why));
    CHECK_HAS(why, ABSENT);
    why = NULL;
    CHECK(!adamod__library_open(ABSENT, VARIABLE, beside, &why));
    CHECK_HAS(why, ABSENT);
}

TEST(the_environment_decides_alone) {
    const char *why = NULL;
    setenv(VARIABLE, "/nonexistent/lib.so", 1);
    CHECK(!adamod__library_open("libm.so.6", VARIABLE, beside, &why));
    CHECK_HAS(why, "/nonexistent/lib.so");
    setenv(VARIABLE, "libm.so.6", 1);
    CHECK(adamod__library_open(ABSENT, VARIABLE, beside, &why));
    setenv(VARIABLE, "", 1); /* as if it were not set */
    CHECK(!adamod__library_open(ABSENT, VARIABLE, beside, &why));
    CHECK_HAS(why, ABSENT);
    unsetenv(VARIABLE);
}

/* ---- places ---- */

/* This program's folder, with the slash. False: something else runs it, an emulator or the loader. */
static bool own_folder(char folder[4096]) {
    const ssize_t n = readlink("/proc/self/exe", folder, 4095);
    if (!CHECK(n > 0)) return false;
    folder[n] = '\0';
    if (!CHECK(strrchr(folder, '/'))) return false;
    strrchr(folder, '/')[1] = '\0';
    return strstr(folder, "/tests/") != NULL;
}

static void put_broken_library(const char *path) {
    FILE *file = fopen(path, "w");
    if (!CHECK(file)) return;
    fputs("no library", file);
    fclose(file);
}

/* A file beside the program is the one that is meant, even if it is broken: the message is about it. */
TEST(places_are_relative_to_the_program) {
    static const char *const places[] = {"../absent/", "../tests/", NULL};
    char folder[4096], path[4200];
    const char *why = NULL;
    if (getenv("ADAMOD_TEST_EMULATED") || !own_folder(folder)) SKIP("an emulator is the program");
    char name[64];
    snprintf(name, sizeof name, "libadamod_broken_%ld.so", (long)getpid());
    snprintf(path, sizeof path, "%s%s", folder, name);
    put_broken_library(path);
    CHECK(!adamod__library_open(name, NULL, places, &why));
    CHECK_HAS(why, "../tests/libadamod_broken_");
    CHECK(!strstr(why, "No such file"));
    why = NULL;
    CHECK(!adamod__library_open(name, NULL, nowhere, &why));
    CHECK_HAS(why, "No such file");
    remove(path);
}

/* ---- a program whose caller wants it to load what it should not ----
 *
 * A copy of this one, which is linked with libadamod.a, in a folder that anyone may enter. Files that are no libraries are
 * where the caller would put one of theirs; to load one fails with a message that names it. */

#define PLANTED "libadamod_planted.so"

static int run_as_copy(void) {
    static const char *const names[] = {"libm.so.6", NULL};
    double (*down)(double) = NULL;
    const function_place one[] = {{"floor", &down}, {NULL, NULL}};
    const char *why = "it was", *named = NULL;
    adamod_optimizer *opt = NULL;
    (void)adamod__library_open(PLANTED, VARIABLE, beside, &why);
    printf("secure: %d\nloaded: %s\n", getauxval(AT_SECURE) != 0, why);
    if (!functions_load(names, VARIABLE, one, &named)) named = adamod__last_message();
    printf("table: %s\n", named);
    printf("created: %s\n", adamod_create(&opt, "adamod") ? adamod_last_error() : "yes");
    adamod_free(opt);
    fflush(stdout);
    _exit(0); /* a sanitizer would look for leaks, which it may not do with these rights */
}

typedef struct copied {
    char folder[64], program[96], theirs[96]; /* theirs: a path in the caller's folder, which is no file */
    char said[2000];
} copied;

static bool copy_file(const char *from_path, const char *to_path, mode_t mode) {
    struct stat st;
    const int from = open(from_path, O_RDONLY | O_CLOEXEC);
    const int to = open(to_path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0700);
    const bool both = CHECK(from >= 0 && to >= 0 && fstat(from, &st) == 0);
    off_t done = 0;
    while (both && done < st.st_size && sendfile(to, from, &done, (size_t)(st.st_size - done)) > 0) continue;
    const bool good = both && CHECK(done == st.st_size) && CHECK_INT(fchmod(to, mode), 0);
    close(from);
    close(to);
    return good;
}

static bool copy_program(copied *x, mode_t mode) {
    char path[128];
    *x = (copied){.folder = "/tmp/adamod-library-XXXXXX"};
    if (!CHECK(mkdtemp(x->folder))) return false;
    snprintf(x->program, sizeof x->program, "%s/program", x->folder);
    snprintf(path, sizeof path, "%s/theirs", x->folder);
    snprintf(x->theirs, sizeof x->theirs, "%s/program", path);
    const bool good = copy_file("/proc/self/exe", x->program, mode) && CHECK_INT(mkdir(path, 0755), 0) &&
                      CHECK_INT(chmod(x->folder, 0755), 0);
    snprintf(path, sizeof path, "%s/theirs/%s", x->folder, PLANTED);
    if (good) put_broken_library(path);
    return good;
}

/* Beside the program itself: a hard link in the caller's folder is the program, too. */
static void plant_beside(const copied *x) {
    char path[128];
    snprintf(path, sizeof path, "%s/%s", x->folder, PLANTED);
    put_broken_library(path);
}

static void remove_copy(const copied *x) {
    static const char *const files[] = {"/theirs/" PLANTED, "/theirs", "/" PLANTED, "/program", ""};
    char path[128];
    for (int i = 0; i < 5; i++) {
        snprintf(path, sizeof path, "%s%s", x->folder, files[i]);
        remove(path);
    }
}

/* Runs the copy, as user nobody if as_nobody, under another name and with the given environment. */
static void start_copy(copied *x, bool as_nobody, char *const *environment) {
    int ends[2], status = -1;
    if (!CHECK_INT(pipe(ends), 0)) return;
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        char *const arguments[] = {x->theirs, "--as-copy", NULL};
        if (dup2(ends[1], 1) < 0 || (as_nobody && (setgroups(0, NULL) || setgid(65534) || setuid(65534)))) _exit(99);
        close(ends[0]);
        execve(x->program, arguments, environment);
        _exit(98);
    }
    close(ends[1]);
    size_t n = 0;
    for (ssize_t got; n + 1 < sizeof x->said && (got = read(ends[0], x->said + n, sizeof x->said - 1 - n)) > 0;)
        n += (size_t)got;
    x->said[n] = '\0';
    close(ends[0]);
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status));
    if (!CHECK_INT(WEXITSTATUS(status), 0)) printf("%s\n", x->said);
}

/* A program's name decides nothing, whoever starts it. */
TEST(the_name_that_a_program_is_started_with_is_no_place) {
    char folder[4096];
    char *const nothing[] = {NULL};
    copied x;
    if (getenv("ADAMOD_TEST_EMULATED") || !own_folder(folder)) SKIP("an emulator is the program");
    if (copy_program(&x, 0755)) {
        start_copy(&x, false, nothing);
        CHECK_HAS(x.said, "secure: 0\nloaded: " PLANTED ": cannot open");
        plant_beside(&x);
        start_copy(&x, false, nothing);
        CHECK_HAS(x.said, "loaded: /tmp/");
        CHECK(!strstr(x.said, "theirs"));
    }
    remove_copy(&x);
}

TEST(a_set_user_id_program_loads_nothing_that_its_caller_chose) {
    char folder[4096], variable[160];
    if (getenv("ADAMOD_TEST_EMULATED") || !own_folder(folder)) SKIP("an emulator is the program");
    if (geteuid() != 0) SKIP("it takes root to make a program of root's");
    copied x;
    if (copy_program(&x, 04755)) {
        snprintf(variable, sizeof variable, VARIABLE "=%s/theirs/" PLANTED, x.folder);
        char *const environment[] = {variable, "ADAMOD_ISA=none", NULL};
        plant_beside(&x);
        start_copy(&x, true, environment);
        if (strstr(x.said, "secure: 0")) check_skipped = "set-user-ID has no effect in /tmp";
        else
            CHECK_STR(x.said,
                      "secure: 1\nloaded: " PLANTED ": cannot open shared object file: No such file or directory\n"
                      "table: libm.so.6\ncreated: yes\n");
        start_copy(&x, false, environment); /* the same without more rights than its caller has: all of it works */
        CHECK_HAS(x.said, "secure: 0\n");
        CHECK_HAS(x.said, "loaded: /tmp/");
        CHECK_HAS(x.said, "theirs/" PLANTED);
        CHECK_HAS(x.said, "ADAMOD_ISA");
    }
    remove_copy(&x);
}

/* libadamod.so loads libraries from its own folder, also broken ones; but not if it was itself found by a relative path,
 * which leads elsewhere once the working directory is another. */
TEST(a_shared_library_looks_beside_itself) {
    char folder[4096], shared[4200], back[4096], name[64], own[128], broken[128];
    const char *const paths[] = {own, "./relative.so"};
    if (getenv("ADAMOD_TEST_EMULATED") || !own_folder(folder)) SKIP("an emulator is the program");
    snprintf(shared, sizeof shared, "%s../libadamod.so.0", folder);
    if (access(shared, R_OK)) SKIP("there is no libadamod.so.0");
    unsetenv("ADAMOD_CUDA_LIBRARY");
    strcpy(name, "/tmp/adamod-library-XXXXXX");
    if (!CHECK(mkdtemp(name)) || !CHECK(getcwd(back, sizeof back)) || !CHECK_INT(chdir(name), 0)) return;
    snprintf(own, sizeof own, "%s/absolute.so", name);
    snprintf(broken, sizeof broken, "%s/libadamod_cuda.so.0", name);
    put_broken_library(broken);
    for (int i = 0; i < 2; i++) {
        adamod_status (*status)(void);
        const char *(*said)(void), *why;
        void *library = copy_file(shared, paths[i], 0755) ? adamod__library_open(paths[i], NULL, nowhere, &why) : NULL;
        if (!CHECK(library) || !CHECK(adamod__library_function(library, "adamod_cuda_status", &status)) ||
            !CHECK(adamod__library_function(library, "adamod_last_error", &said)))
            break;
        CHECK(status() != ADAMOD_OK || i == 1); /* elsewhere there may be one that works */
        if (!CHECK_INT(strstr(said(), "/libadamod_cuda.so.0: ") != NULL, i == 0)) printf("%s\n", said());
        remove(paths[i]);
    }
    remove(broken);
    CHECK_INT(chdir(back), 0);
    remove(name);
}

/* ---- tables of functions ---- */

TEST(a_table_is_filled_from_the_first_library_there_is) {
    static const char *const names[] = {ABSENT, "libm.so.6", "libadamod_other.so", NULL};
    double (*down)(double) = NULL, (*up)(double) = NULL;
    const function_place both[] = {{"floor", &down}, {"ceil", &up}, {NULL, NULL}};
    const char *named = NULL;
    if (!CHECK(functions_load(names, VARIABLE, both, &named))) return;
    CHECK_STR(named, "libm.so.6");
    CHECK(down(2.5) == 2 && up(2.5) == 3);
    CHECK(functions_load(names, NULL, both, NULL));
}

TEST(a_table_says_which_function_is_missing_and_of_what) {
    static const char *const names[] = {"libm.so.6", NULL}, *const absent[] = {"libadamod_other.so", ABSENT, NULL};
    double (*down)(double) = NULL, (*none)(double) = NULL;
    const function_place both[] = {{"floor", &down}, {"adamod_absent", &none}, {NULL, NULL}};
    CHECK(!functions_load(names, NULL, both, NULL));
    CHECK_STR(adamod__last_message(), "libm.so.6 has no adamod_absent");
    CHECK(!functions_load(absent, NULL, both, NULL));
    CHECK_HAS(adamod__last_message(), ABSENT);
}

TEST(a_variable_names_the_only_library_of_a_table) {
    static const char *const names[] = {"libm.so.6", NULL}, *const absent[] = {ABSENT, NULL};
    double (*down)(double) = NULL;
    const function_place one[] = {{"floor", &down}, {NULL, NULL}};
    const char *named = NULL;
    setenv(VARIABLE, "/nonexistent/lib.so", 1);
    CHECK(!functions_load(names, VARIABLE, one, NULL));
    CHECK_HAS(adamod__last_message(), "/nonexistent/lib.so");
    setenv(VARIABLE, "libm.so.6", 1);
    if (CHECK(functions_load(absent, VARIABLE, one, &named))) CHECK_STR(named, "libm.so.6");
    setenv(VARIABLE, "", 1);
    CHECK(functions_load(names, VARIABLE, one, NULL));
    unsetenv(VARIABLE);
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "--as-copy") == 0) return run_as_copy();
    static const check_test tests[] = {ENTRY(functions_are_found_in_what_is_loaded),
                                       ENTRY(what_cannot_be_had_is_named),
                                       ENTRY(the_environment_decides_alone),
                                       ENTRY(places_are_relative_to_the_program),
                                       ENTRY(the_name_that_a_program_is_started_with_is_no_place),
                                       ENTRY(a_set_user_id_program_loads_nothing_that_its_caller_chose),
                                       ENTRY(a_shared_library_looks_beside_itself),
                                       ENTRY(a_table_is_filled_from_the_first_library_there_is),
                                       ENTRY(a_table_says_which_function_is_missing_and_of_what),
                                       ENTRY(a_variable_names_the_only_library_of_a_table)};
    return check_run(tests, sizeof tests / sizeof *tests, argc > 1 ? argv[1] : "");
}
