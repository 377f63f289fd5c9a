/* libFuzzer target: trainer/data/sets/archive_file.c on the bytes of an archive, and sets_cache.c on a file of addresses.
 *
 * The first byte is odd for an archive. In either case nothing is written but the archive's two members, in the given
 * folder.
 *
 * SPDX-License-Identifier: MIT
 */
#include "fuzz.h"
#include "support/text.h"
#include "data/sets/archive_file.h"
#include "data/sets/data_sets.h"
#include "data/sets/folders.h"
#include "core/error.h"

#include <dirent.h>
#include <stdio.h>
#include <sys/stat.h>

static char root[64], folder[80];
static const char *const members[] = {"a", "d/b", NULL};
enum { MOST = 1 << 20 };

static void leave(void) { (void)folder_remove(root); }

/* Whether a directory has these entries (of which the last is NULL) and no others. */
static void check_entries(const char *path, const char *const *names, bool all) {
    DIR *d = opendir(path);
    int found = 0, known = 0;
    require(d != NULL);
    for (const struct dirent *e; (e = readdir(d));) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        int k = 0;
        while (names[k] && strcmp(names[k], e->d_name) != 0) k++;
        require(names[k] != NULL);
        found++;
    }
    while (names[known]) known++;
    require(!all || found == known);
    closedir(d);
}

static void check_file(const char *name) {
    char path[128];
    struct stat st;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    require(lstat(path, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0 && st.st_size <= MOST);
}

static void check_archive(const uint8_t *bytes, size_t n) {
    static const char *const top[] = {"a", "d", NULL}, *const below[] = {"b", NULL}, *const only[] = {"in", NULL};
    const archive_options o = {.members = members, .most = MOST};
    char path[128];
    require(folder_remove(folder) == 0 && folder_make(folder) == 0);
    snprintf(path, sizeof path, "%s.tar", root);
    require(text_write(path, (text_slice){(const char *)bytes, n}) == 0);
    const int failed = archive_unpack(path, folder, &o);
    unlink(path);
    check_entries(root, only, true);
    check_entries(folder, top, !failed);
    snprintf(path, sizeof path, "%s/d", folder);
    if (access(path, F_OK) == 0) check_entries(path, below, !failed);
    for (int i = 0; !failed && members[i]; i++) check_file(members[i]);
    require(!failed ||
            (strlen(adamod__last_message()) > 3 && *adamod__last_message() == '/' && is_line(adamod__last_message())) ||
            strstr(adamod__last_message(), "libarchive"));
}

static void check_sources(const uint8_t *bytes, size_t n) {
    char path[80];
    data_sources s = {0};
    snprintf(path, sizeof path, "%s/mirrors", folder);
    require(folder_make(folder) == 0);
    require(text_write(path, (text_slice){(const char *)bytes, n}) == 0);
    if (data_sources_read(&s, path, false)) require(strstr(adamod__last_message(), "mirrors") != NULL);
    for (int i = 0; i < s.n; i++) {
        require(strlen(s.list[i].url) > 6 && !strpbrk(s.list[i].url, " \n\t") && s.list[i].size >= 0);
        require(!*s.list[i].set || data_set_find(s.list[i].set));
    }
    data_sources_free(&s);
    unlink(path);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (!*root) {
        snprintf(root, sizeof root, "/dev/shm/adamod-fuzz-archive-%ld", (long)getpid());
        snprintf(folder, sizeof folder, "%s/in", root);
        atexit(leave);
    }
    if (size < 1) return 0;
    if (data[0] & 1) check_archive(data + 1, size - 1);
    else check_sources(data + 1, size - 1);
    return 0;
}
