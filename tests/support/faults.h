/* faults.h - calls of the C library that fail when they are told to: those that save and load files. Included by one file
 * of a program, before everything else, whose calls these then are.
 *
 *     fault_calls(act)                     how many calls of these act makes
 *     faults = (fault_plan){.on = true, .at = 3, .error = EIO};      the third from here on fails
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef ADAMOD_TESTS_FAULTS_H
#define ADAMOD_TESTS_FAULTS_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#define _FILE_OFFSET_BITS 64 /* as the files whose calls these are */

#include "check.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef struct fault_plan {
    bool on;
    long at;          /* which call; 0: none */
    int error;        /* EINTR: only calls that a signal may interrupt, and only once; 0: half of it is done */
    bool for_good;    /* all from there on */
    long calls;       /* so far */
    const char *last; /* the one that failed */
} fault_plan;
static fault_plan faults;

/* Whether this call fails, with errno set. */
static bool fault_now(const char *name, bool interruptible) {
    if (!faults.on) return false;
    faults.calls++;
    if (faults.calls != faults.at && !(faults.for_good && faults.at && faults.calls > faults.at)) return false;
    if (faults.error == 0 || (faults.error == EINTR && !interruptible)) return false;
    faults.last = name;
    errno = faults.error;
    return true;
}

static size_t fault_length(size_t n) {
    return faults.on && faults.error == 0 && faults.calls == faults.at && n > 1 ? n / 2 : n;
}

int openat(int directory, const char *name, int flags, ...) {
    va_list args;
    va_start(args, flags);
    const mode_t mode = flags & O_CREAT ? va_arg(args, mode_t) : 0;
    va_end(args);
    return fault_now("openat", true) ? -1 : (int)syscall(SYS_openat, directory, name, flags, mode);
}

ssize_t pread(int fd, void *data, size_t n, off_t offset) {
    return fault_now("pread", true) ? -1 : syscall(SYS_pread64, fd, data, fault_length(n), offset);
}

ssize_t pwrite(int fd, const void *data, size_t n, off_t offset) {
    return fault_now("pwrite", true) ? -1 : syscall(SYS_pwrite64, fd, data, fault_length(n), offset);
}

ssize_t read(int fd, void *data, size_t n) {
    return fault_now("read", true) ? -1 : syscall(SYS_read, fd, data, fault_length(n));
}

int fsync(int fd) { return fault_now("fsync", true) ? -1 : (int)syscall(SYS_fsync, fd); }
int flock(int fd, int operation) { return fault_now("flock", false) ? -1 : (int)syscall(SYS_flock, fd, operation); }
int fchmod(int fd, mode_t mode) { return fault_now("fchmod", false) ? -1 : (int)syscall(SYS_fchmod, fd, mode); }

int renameat(int at, const char *from, int there, const char *to) {
    return fault_now("renameat", true) ? -1 : (int)syscall(SYS_renameat2, at, from, there, to, 0);
}

int linkat(int at, const char *from, int there, const char *to, int flags) {
    return fault_now("linkat", false) ? -1 : (int)syscall(SYS_linkat, at, from, there, to, flags);
}

int unlinkat(int directory, const char *name, int flags) {
    return fault_now("unlinkat", false) ? -1 : (int)syscall(SYS_unlinkat, directory, name, flags);
}

/* Closed it is in any case. */
int close(int fd) {
    const int result = (int)syscall(SYS_close, fd);
    return fault_now("close", true) ? -1 : result;
}

static int fault_stat(int directory, const char *name, struct stat *st, int flags) {
#ifdef SYS_newfstatat
    return (int)syscall(SYS_newfstatat, directory, name, st, flags);
#else
    return (int)syscall(SYS_fstatat64, directory, name, st, flags);
#endif
}

int fstat(int fd, struct stat *st) { return fault_now("fstat", false) ? -1 : fault_stat(fd, "", st, AT_EMPTY_PATH); }
int lstat(const char *path, struct stat *st) {
    return fault_now("lstat", false) ? -1 : fault_stat(AT_FDCWD, path, st, AT_SYMLINK_NOFOLLOW);
}
int fstatat(int directory, const char *name, struct stat *st, int flags) {
    return fault_now("fstatat", false) ? -1 : fault_stat(directory, name, st, flags);
}

/* ---- tests of all of them ---- */

/* Does something with a file, and tells what came of it: 0, or a failure that is described. */
typedef struct fault_act {
    int (*act)(void);
    const char *(*message)(void);
    void (*check)(int status); /* what must be, whether it failed or not; faults.last is what failed */
} fault_act;

static long fault_calls(int (*act)(void)) {
    faults = (fault_plan){.on = true};
    const int status = act();
    faults.on = false;
    CHECK_INT(status, 0);
    return faults.calls;
}

/* The lowest descriptor that is free: it rises where one is not closed. */
static int fault_descriptor(void) {
    const int fd = (int)syscall(SYS_dup, 0);
    syscall(SYS_close, fd);
    return fd;
}

/* Without these a file is not what it should be; a failure of another one may do no harm. */
static bool fault_matters(void) {
    static const char *const names[] = {"pread", "read", "pwrite", "fsync", "renameat"};
    for (size_t i = 0; faults.last && i < sizeof names / sizeof *names; i++)
        if (!strcmp(faults.last, names[i])) return true;
    return false;
}

/* Once for every call that it makes. Returns how many times it failed. */
static int fault_each(const fault_act *a, int error, bool for_good) {
    const long calls = fault_calls(a->act);
    int failed = 0;
    CHECK(calls > 3);
    a->check(0);
    for (long n = 1; n <= calls && check_failures < 10; n++) {
        const int descriptor = fault_descriptor(), failures = check_failures;
        faults = (fault_plan){.on = true, .at = n, .error = error, .for_good = for_good};
        const int status = a->act();
        faults.on = false;
        failed += status != 0;
        if (error == 0 || error == EINTR) CHECK_INT(status, 0);
        else if (fault_matters()) CHECK(status != 0);
        if (status) CHECK(*a->message() && !strchr(a->message(), '\n'));
        if (status && error) CHECK_HAS(a->message(), strerror(error));
        CHECK_INT(fault_descriptor(), descriptor);
        a->check(status);
        if (check_failures > failures)
            printf("  call %ld of %ld, %s: %s\n", n, calls, faults.last ? faults.last : "none", strerror(error));
    }
    return failed;
}

/* Any call fails, is interrupted, does half its work, or is the first of a device that is gone. */
static void fault_all(const fault_act *a, const char *what) {
    static const int errors[] = {EIO, ENOSPC, EACCES, EMFILE, ENOMEM};
    int failed = 0;
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        failed += fault_each(a, errors[i], false);
        failed += fault_each(a, errors[i], true);
    }
    fault_each(a, EINTR, false);
    fault_each(a, 0, false);
    if (!CHECK(failed > 30)) printf("  %s failed %d times\n", what, failed);
}

#endif
