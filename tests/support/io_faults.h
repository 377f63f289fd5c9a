/* io_faults.h - calls of the C library that write files, in their place: they fail, are interrupted or move less as they are
 * told to. Included by one file of a program, whose calls these then are; faults.h fails the n-th call instead.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef ADAMOD_TESTS_IO_FAULTS_H
#define ADAMOD_TESTS_IO_FAULTS_H

#include <errno.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

static struct {
    int interrupts;  /* the number of calls that fail with EINTR */
    size_t most;     /* bytes that one call moves; 0: all */
    int write_error; /* after write_room bytes */
    size_t write_room;
    int sync_error, sync_skip; /* sync_skip calls succeed before it */
    int rename_error;
} faults;

static int fault(int error) {
    errno = error;
    return -1;
}

static size_t at_most(size_t n) { return faults.most && n > faults.most ? faults.most : n; }

ssize_t pwrite(int fd, const void *data, size_t n, off_t offset) {
    if (faults.interrupts && faults.interrupts--) return fault(EINTR);
    n = at_most(n);
    if (faults.write_error && !faults.write_room) return fault(faults.write_error);
    if (faults.write_error && n > faults.write_room) n = faults.write_room;
    if (faults.write_error) faults.write_room -= n;
    return syscall(SYS_pwrite64, fd, data, n, offset);
}

int fsync(int fd) {
    if (faults.interrupts && faults.interrupts--) return fault(EINTR);
    if (faults.sync_error && !faults.sync_skip--) return fault(faults.sync_error);
    return (int)syscall(SYS_fsync, fd);
}

int renameat(int at, const char *from, int there, const char *to) {
    if (faults.interrupts && faults.interrupts--) return fault(EINTR);
    return faults.rename_error ? fault(faults.rename_error) : (int)syscall(SYS_renameat2, at, from, there, to, 0);
}

int openat(int directory, const char *name, int flags, ...) {
    if (faults.interrupts && faults.interrupts--) return fault(EINTR);
    return (int)syscall(SYS_openat, directory, name, flags | O_LARGEFILE, 0666);
}

#endif
