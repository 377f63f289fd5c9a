/* A directory for files: see scratch.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#define _FILE_OFFSET_BITS 64 /* nftw: of files over 2 GiB, too, where longs have 32 bits */
#include "scratch.h"

#include <dirent.h>
#include <ftw.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char scratch[512];

int scratch_files(void) {
    DIR *dir = opendir(scratch);
    int n = 0;
    for (struct dirent *e; dir && (e = readdir(dir));) n += strcmp(e->d_name, ".") && strcmp(e->d_name, "..");
    if (dir) closedir(dir);
    return n;
}

static int remove_one(const char *path, const struct stat *info, int type, struct FTW *at) {
    (void)info, (void)type;
    return at->level > 0 ? remove(path) : 0;
}

static void empty_scratch(void) { nftw(scratch, remove_one, 16, FTW_DEPTH | FTW_PHYS); }

static void leave_scratch(void) {
    empty_scratch();
    rmdir(scratch);
}

static void make_scratch(bool in_memory) {
    const char *tmp = getenv("TMPDIR");
    if (scratch[0]) return;
    tmp = in_memory && access("/dev/shm", W_OK) == 0 ? "/dev/shm" : tmp && *tmp == '/' ? tmp : "/tmp";
    snprintf(scratch, sizeof scratch, "%s/adamod_test_XXXXXX", tmp);
    if (!mkdtemp(scratch)) abort();
    atexit(leave_scratch);
}

void enter_scratch(bool in_memory) {
    static bool entered;
    make_scratch(in_memory);
    if (!entered && chdir(scratch)) abort();
    entered = true;
    empty_scratch();
}

const char *below(const char *format, ...) {
    static char paths[64][512];
    static int at;
    make_scratch(true);
    char *path = paths[at++ % 64];
    const int used = snprintf(path, sizeof paths[0], "%s/", scratch);
    va_list arguments;
    va_start(arguments, format);
    if (used < (int)sizeof paths[0]) vsnprintf(path + used, sizeof paths[0] - (size_t)used, format, arguments);
    va_end(arguments);
    return path;
}

size_t get_file(const char *name, void *bytes, size_t room) {
    FILE *f = fopen(name, "rb");
    if (!f) return 0;
    const size_t n = fread(bytes, 1, room, f);
    fclose(f);
    if (n == room) abort();
    return n;
}

void put_file(const char *name, const void *bytes, size_t n) {
    FILE *f = fopen(name, "wb");
    if (!f || fwrite(bytes, 1, n, f) != n || fclose(f)) abort();
}
