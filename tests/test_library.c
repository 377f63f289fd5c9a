/* Loading libraries: where they are looked for, and what is said if they cannot be had.
 *
 * SPDX-License-Identifier: MIT
 */
#include "check.h"

#include "base/functions.h"
#include "base/library.h"

#include <stdlib.h>
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

/* A file beside the program is the one that is meant, even if it is broken: the message is about it. */
TEST(places_are_relative_to_the_program) {
    static const char *const places[] = {"../absent/", "../tests/", NULL};
    char folder[4096], path[4200];
    const char *why = NULL;
    const ssize_t n = readlink("/proc/self/exe", folder, sizeof folder - 1);
    if (!CHECK(n > 0)) return;
    folder[n] = '\0';
    if (!CHECK(strrchr(folder, '/'))) return;
    strrchr(folder, '/')[1] = '\0';
    if (!strstr(folder, "/tests/")) SKIP("an emulator is the program");
    char name[64];
    snprintf(name, sizeof name, "libadamod_broken_%ld.so", (long)getpid());
    snprintf(path, sizeof path, "%s%s", folder, name);
    FILE *file = fopen(path, "w");
    if (!CHECK(file)) return;
    fputs("no library", file);
    fclose(file);
    CHECK(!adamod__library_open(name, NULL, places, &why));
    CHECK_HAS(why, "../tests/libadamod_broken_");
    CHECK(!strstr(why, "No such file"));
    why = NULL;
    CHECK(!adamod__library_open(name, NULL, nowhere, &why));
    CHECK_HAS(why, "No such file");
    remove(path);
}

/* ---- tables of functions ---- */

TEST(a_table_is_filled_from_the_first_library_there_is) {
    static const char *const names[] = {ABSENT, "libm.so.6", "libadamod_other.so", NULL};
    double (*down)(double) = NULL, (*up)(double) = NULL;
    const function_place both[] = {{"floor", &down}, {"ceil", &up}, {NULL, NULL}};
    const char *named = NULL;
    char why[200];
    if (!CHECK(functions_load(names, VARIABLE, both, &named, why, sizeof why))) return;
    CHECK_STR(named, "libm.so.6");
    CHECK(down(2.5) == 2 && up(2.5) == 3);
    CHECK(functions_load(names, NULL, both, NULL, why, sizeof why));
}

TEST(a_table_says_which_function_is_missing_and_of_what) {
    static const char *const names[] = {"libm.so.6", NULL}, *const absent[] = {"libadamod_other.so", ABSENT, NULL};
    double (*down)(double) = NULL, (*none)(double) = NULL;
    const function_place both[] = {{"floor", &down}, {"adamod_absent", &none}, {NULL, NULL}};
    char why[200];
    CHECK(!functions_load(names, NULL, both, NULL, why, sizeof why));
    CHECK_STR(why, "libm.so.6 has no adamod_absent");
    CHECK(!functions_load(absent, NULL, both, NULL, why, sizeof why));
    CHECK_HAS(why, ABSENT);
}

TEST(a_variable_names_the_only_library_of_a_table) {
    static const char *const names[] = {"libm.so.6", NULL}, *const absent[] = {ABSENT, NULL};
    double (*down)(double) = NULL;
    const function_place one[] = {{"floor", &down}, {NULL, NULL}};
    const char *named = NULL;
    char why[200];
    setenv(VARIABLE, "/nonexistent/lib.so", 1);
    CHECK(!functions_load(names, VARIABLE, one, NULL, why, sizeof why));
    CHECK_HAS(why, "/nonexistent/lib.so");
    setenv(VARIABLE, "libm.so.6", 1);
    if (CHECK(functions_load(absent, VARIABLE, one, &named, why, sizeof why))) CHECK_STR(named, "libm.so.6");
    setenv(VARIABLE, "", 1);
    CHECK(functions_load(names, VARIABLE, one, NULL, why, sizeof why));
    unsetenv(VARIABLE);
}

RUN_TESTS(ENTRY(functions_are_found_in_what_is_loaded), ENTRY(what_cannot_be_had_is_named),
          ENTRY(the_environment_decides_alone), ENTRY(places_are_relative_to_the_program),
          ENTRY(a_table_is_filled_from_the_first_library_there_is),
          ENTRY(a_table_says_which_function_is_missing_and_of_what),
          ENTRY(a_variable_names_the_only_library_of_a_table))
