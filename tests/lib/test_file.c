/* Tests of lib/core/file.c: files that are there whole or not at all, whoever is killed, and whoever else writes there.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#define _FILE_OFFSET_BITS 64

#include "core/file.h"
#include "check.h"
#include "scratch.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define FILE_NAME "file"

/* ---- calls that fail ---- */

static bool no_locks, late_rename, no_cut;

int flock(int fd, int operation) {
    if (!no_locks) return (int)syscall(SYS_flock, fd, operation);
    errno = ENOLCK;
    return -1;
}

/* Renames, but reports an interruption by a signal. */
int renameat(int at, const char *from, int there, const char *to) {
    const int result = (int)syscall(SYS_renameat2, at, from, there, to, 0);
    if (!late_rename || result) return result;
    late_rename = false;
    errno = EINTR;
    return -1;
}

int ftruncate(int fd, off_t size) {
    if (!no_cut) return (int)syscall(SYS_ftruncate, fd, size);
    no_cut = false;
    errno = EINTR;
    return -1;
}

/* ---- writing ---- */

enum { SIZE = 40000 }; /* in four pieces */
static char reason[300];

/* All bytes are those of one letter. */
static int write_file(const char *path, char letter) {
    char piece[SIZE / 4];
    adamod__output out;
    memset(piece, letter, sizeof piece);
    int status = adamod__output_open(&out, path);
    for (int i = 0; !status && i < 4; i++) status = adamod__output_add(&out, piece, sizeof piece);
    if (!status) status = adamod__output_commit(&out);
    if (status) adamod__output_reason(&out, reason, sizeof reason);
    adamod__output_discard(&out);
    return status;
}

/* The letter; 0 if the file is not whole. */
static char letter_of(const char *path) {
    static char bytes[SIZE + 2];
    if (get_file(path, bytes, sizeof bytes) != SIZE) return 0;
    for (int i = 1; i < SIZE; i++)
        if (bytes[i] != bytes[0]) return 0;
    return bytes[0];
}

/* ---- names ---- */

TEST(names_of_every_length) {
    static char name[258];
    enter_scratch(true);
    for (int n = 1; n <= 256; n += n < 200 ? 40 : 1) {
        memset(name, 'n', sizeof name);
        name[n] = '\0';
        if (n <= NAME_MAX) {
            if (!CHECK_INT(write_file(name, 'a'), 0)) printf("  %d bytes: %s\n", n, reason);
            CHECK_INT(letter_of(name), 'a');
            CHECK_INT(scratch_files(), 1);
            unlink(name);
        } else {
            CHECK_INT(write_file(name, 'a'), -1);
            CHECK_STR(reason, "cannot write: File name too long");
            CHECK_INT(scratch_files(), 0);
        }
    }
}

/* A path may be as long as the system allows, though the temporary name is longer than that of the file. */
TEST(paths_of_every_length) {
    char start[PATH_MAX], path[PATH_MAX + 16] = "";
    enter_scratch(true);
    if (!getcwd(start, sizeof start)) return;
    size_t n = 0;
    while (n + 202 < PATH_MAX - 1) { /* directories of 199 letters and a slash */
        memset(path + n, 'd', 199);
        path[n + 199] = '\0';
        if (mkdir(path, 0777)) SKIP("no deep directories here");
        path[n + 199] = '/';
        n += 200;
    }
    memset(path + n, 'f', PATH_MAX - 1 - n);
    path[PATH_MAX - 1] = '\0';
    CHECK_INT(strlen(path), PATH_MAX - 1);
    if (!CHECK_INT(write_file(path, 'x'), 0)) puts(reason);
    CHECK_INT(letter_of(path), 'x');
    unlink(path);
    for (; n; n -= 200) {
        path[n - 1] = '\0';
        CHECK_INT(rmdir(path), 0); /* so nothing else was there */
    }
}

TEST(places_that_are_no_files) {
    enter_scratch(true);
    CHECK_INT(write_file("", 'a'), -1);
    CHECK_STR(reason, "cannot write: No such file or directory");
    CHECK_INT(write_file("none/", 'a'), -1);
    CHECK_STR(reason, "cannot write: Is a directory");
    CHECK_INT(write_file("none/x", 'a'), -1);
    CHECK_STR(reason, "cannot create a temporary file beside it: No such file or directory");
    CHECK_INT(write_file(".", 'a'), -1);
    CHECK_STR(reason, "exists and is not a regular file");
    CHECK_INT(scratch_files(), 0);
}

/* ---- what others left ---- */

TEST(stale_files_are_removed) {
    enter_scratch(true);
    for (int i = 0; i < 5; i++) {
        char name[24];
        snprintf(name, sizeof name, ".adamod-%d.tmp", i);
        put_file(name, "stale", 5);
    }
    CHECK_INT(write_file(FILE_NAME, 'a'), 0);
    CHECK_INT(letter_of(FILE_NAME), 'a');
    CHECK_INT(scratch_files(), 1);
    put_file(".adamod-0.tmp", "stale", 5);
    adamod__file_clean(".");
    CHECK_INT(scratch_files(), 1);
    adamod__file_clean("none");
}

TEST(a_file_in_use_is_left_alone) {
    char bytes[16];
    enter_scratch(true);
    put_file(".adamod-0.tmp", "used", 4);
    const int fd = open(".adamod-0.tmp", O_RDWR);
    CHECK_INT(flock(fd, LOCK_EX), 0);
    CHECK_INT(write_file(FILE_NAME, 'a'), 0);
    adamod__file_clean(".");
    CHECK_INT(scratch_files(), 2);
    CHECK_INT(get_file(".adamod-0.tmp", bytes, sizeof bytes), 4);
    close(fd);
    CHECK_INT(write_file(FILE_NAME, 'b'), 0);
    CHECK_INT(letter_of(FILE_NAME), 'b');
    CHECK_INT(scratch_files(), 1);
}

TEST(what_is_no_temporary_file_is_left_alone) {
    char bytes[16];
    enter_scratch(true);
    put_file("precious", "gold", 4);
    CHECK_INT(symlink("precious", ".adamod-0.tmp"), 0);
    CHECK_INT(mkdir(".adamod-1.tmp", 0777), 0);
    CHECK_INT(mkfifo(".adamod-2.tmp", 0666), 0);
    CHECK_INT(write_file(FILE_NAME, 'a'), 0);
    CHECK_INT(letter_of(FILE_NAME), 'a');
    CHECK_INT(get_file("precious", bytes, sizeof bytes), 4);
    CHECK_INT(scratch_files(), 5);
}

/* The target of a link in its place is not opened either: opening alone rewinds a tape, or takes a lock that another
 * process waits for. */
TEST(what_a_link_leads_to_is_not_opened) {
    char event[4096];
    enter_scratch(true);
    put_file("precious", "gold", 4);
    CHECK_INT(symlink("precious", ".adamod-0.tmp"), 0);
    const int watch = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    if (watch < 0) SKIP("inotify is not to be had");
    if (CHECK(inotify_add_watch(watch, "precious", IN_OPEN) >= 0)) {
        CHECK_INT(write_file(FILE_NAME, 'a'), 0);
        adamod__file_clean(".");
        CHECK_INT(read(watch, event, sizeof event), -1);
        close(open("precious", O_RDONLY)); /* and if it is, that shows */
        CHECK(read(watch, event, sizeof event) > 0);
    }
    close(watch);
}

TEST(names_that_are_all_taken) {
    enter_scratch(true);
    for (int i = 0; i < 1000; i++) {
        char name[24];
        snprintf(name, sizeof name, ".adamod-%d.tmp", i);
        CHECK_INT(mkdir(name, 0777), 0);
    }
    CHECK_INT(write_file(FILE_NAME, 'a'), -1);
    CHECK_STR(reason, "cannot create a temporary file beside it: Device or resource busy");
    CHECK_INT(scratch_files(), 1000);
    CHECK_INT(rmdir(".adamod-999.tmp"), 0);
    CHECK_INT(write_file(FILE_NAME, 'a'), 0);
    CHECK_INT(letter_of(FILE_NAME), 'a');
}

/* Without locks a stale file cannot be recognised. */
TEST(without_locks) {
    enter_scratch(true);
    no_locks = true;
    put_file(".adamod-0.tmp", "who knows", 9);
    for (int i = 0; i < 3; i++) CHECK_INT(write_file(FILE_NAME, (char)('a' + i)), 0);
    CHECK_INT(letter_of(FILE_NAME), 'c');
    CHECK_INT(scratch_files(), 2);
    no_locks = false;
}

/* Once a file is there, its temporary name is free, and another writer may have taken it. */
TEST(a_name_that_was_given_up_is_left_alone) {
    char name[sizeof((adamod__output *)NULL)->temp];
    adamod__output out;
    enter_scratch(true);
    CHECK_INT(adamod__output_open(&out, FILE_NAME), 0);
    CHECK_INT(adamod__output_add(&out, "x", 1), 0);
    snprintf(name, sizeof name, "%s", out.temp);
    CHECK_INT(adamod__output_commit(&out), 0);
    put_file(name, "another's", 9);
    adamod__output_discard(&out);
    CHECK_INT(scratch_files(), 2);
}

TEST(a_rename_that_was_interrupted_when_it_was_done) {
    enter_scratch(true);
    late_rename = true;
    CHECK_INT(write_file(FILE_NAME, 'a'), 0);
    CHECK(!late_rename);
    CHECK_INT(letter_of(FILE_NAME), 'a');
    CHECK_INT(scratch_files(), 1);
}

/* ---- many at once ---- */

/* Writes the same file for ever; never returns. */
static void write_for_ever(char letter) {
    alarm(60); /* in case the parent dies */
    for (;;)
        if (write_file(FILE_NAME, letter)) _exit(1);
}

/* Two processes are killed at any time, 60 times: never is more left than the two of them had, and a third that writes
 * removes it. */
TEST(killed_writers) {
    enter_scratch(true);
    CHECK_INT(write_file(FILE_NAME, 'a'), 0);
    int left = 0;
    for (int i = 0; i < 60; i++) {
        pid_t child[2];
        for (int k = 0; k < 2; k++)
            if ((child[k] = fork()) == 0) write_for_ever((char)('b' + k));
        usleep(1000 + (useconds_t)(i * 397 % 3000 + i * 100)); /* longer, should the machine be slow */
        for (int k = 0; k < 2; k++) {
            int status = 0;
            kill(child[k], SIGKILL);
            CHECK_INT(waitpid(child[k], &status, 0), child[k]);
            CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL); /* it had not failed before */
        }
        CHECK(letter_of(FILE_NAME) >= 'a');
        CHECK(scratch_files() <= 3);
        left += scratch_files() > 1;
    }
    CHECK(left > 0); /* or nothing was tested */
    CHECK_INT(write_file(FILE_NAME, 'z'), 0);
    CHECK_INT(letter_of(FILE_NAME), 'z');
    CHECK_INT(scratch_files(), 1);
}

enum { WRITERS = 6, TIMES = 60 };

static void *write_often(void *letter) {
    static _Thread_local char other[16];
    long failed = 0;
    snprintf(other, sizeof other, "other-%c", *(char *)letter);
    for (int i = 0; i < TIMES; i++) failed += write_file(i % 4 ? FILE_NAME : other, *(char *)letter) != 0;
    return (void *)failed;
}

static void check_after_many(void) {
    for (int k = 0; k < WRITERS; k++) {
        char other[16];
        snprintf(other, sizeof other, "other-%c", 'a' + k);
        CHECK_INT(letter_of(other), 'a' + k);
    }
    CHECK(letter_of(FILE_NAME) >= 'a');
    CHECK_INT(scratch_files(), WRITERS + 1);
}

TEST(processes_at_once) {
    static char letters[WRITERS];
    pid_t child[WRITERS];
    enter_scratch(true);
    CHECK_INT(write_file(FILE_NAME, 'a'), 0);
    fflush(stdout);
    for (int k = 0; k < WRITERS; k++) {
        letters[k] = (char)('a' + k);
        if ((child[k] = fork()) == 0) _exit(write_often(&letters[k]) ? 1 : 0);
    }
    int whole = 0;
    for (int i = 0; i < 200; i++) whole += letter_of(FILE_NAME) >= 'a';
    CHECK_INT(whole, 200); /* whenever it is read */
    for (int k = 0; k < WRITERS; k++) {
        int status = -1;
        CHECK_INT(waitpid(child[k], &status, 0), child[k]);
        CHECK_INT(status, 0);
    }
    check_after_many();
}

TEST(threads_at_once) {
    static char letters[WRITERS];
    pthread_t thread[WRITERS];
    enter_scratch(true);
    for (int k = 0; k < WRITERS; k++) {
        letters[k] = (char)('a' + k);
        CHECK_INT(pthread_create(&thread[k], NULL, write_often, &letters[k]), 0);
    }
    for (int k = 0; k < WRITERS; k++) {
        void *failed = NULL;
        pthread_join(thread[k], &failed);
        CHECK(!failed);
    }
    check_after_many();
}

TEST(cut) {
    enter_scratch(true);
    CHECK_INT(write_file(FILE_NAME, 'a'), 0);
    const int fd = adamod__file_open(FILE_NAME, O_RDWR);
    no_cut = true; /* once: a signal comes first */
    CHECK_INT(adamod__file_cut(fd, 7), 0);
    CHECK(!no_cut);
    char bytes[SIZE];
    CHECK_INT(get_file(FILE_NAME, bytes, sizeof bytes), 7);
    close(fd);
    CHECK_INT(adamod__file_cut(fd, 3), EBADF);
    CHECK_INT(get_file(FILE_NAME, bytes, sizeof bytes), 7);
}

RUN_TESTS(ENTRY(names_of_every_length), ENTRY(paths_of_every_length), ENTRY(places_that_are_no_files),
          ENTRY(stale_files_are_removed), ENTRY(a_file_in_use_is_left_alone),
          ENTRY(what_is_no_temporary_file_is_left_alone), ENTRY(what_a_link_leads_to_is_not_opened),
          ENTRY(names_that_are_all_taken), ENTRY(without_locks), ENTRY(a_name_that_was_given_up_is_left_alone),
          ENTRY(a_rename_that_was_interrupted_when_it_was_done), ENTRY(killed_writers), ENTRY(processes_at_once),
          ENTRY(threads_at_once), ENTRY(cut))
