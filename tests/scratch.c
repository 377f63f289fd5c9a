/* A directory for files: see scratch.h. */
#include "scratch.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char scratch[512];

static int files(bool remove_them) {
    DIR *dir = opendir(scratch);
    int n = 0;
    for (struct dirent *e; dir && (e = readdir(dir));) {
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
        n++;
        if (remove_them && unlinkat(dirfd(dir), e->d_name, 0) < 0) unlinkat(dirfd(dir), e->d_name, AT_REMOVEDIR);
    }
    if (dir) closedir(dir);
    return n;
}

int scratch_files(void) { return files(false); }

static void leave_scratch(void) {
    files(true);
    rmdir(scratch);
}

void enter_scratch(bool in_memory) {
    if (!scratch[0]) {
        const char *tmp = getenv("TMPDIR");
        tmp = in_memory && access("/dev/shm", W_OK) == 0 ? "/dev/shm" : tmp && *tmp == '/' ? tmp : "/tmp";
        snprintf(scratch, sizeof scratch, "%s/adamod_test_XXXXXX", tmp);
        if (!mkdtemp(scratch) || chdir(scratch)) abort();
        atexit(leave_scratch);
    }
    files(true);
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
