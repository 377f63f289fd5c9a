#include "data/sets/archive_file.h"

#include "core/file.h"
#include "support/functions.h"
#include "support/writer.h"
#include "core/error.h"
#include "data/sets/folders.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    MOST_MEMBERS = 64,     /* asked for */
    MOST_ENTRIES = 100000, /* of an archive */
    MOST_RATIO = 200,      /* of unpacked to packed bytes; text has 3 to 6 */
    RATIO_FROM = 16 << 20, /* bytes always allowed */
    LONGEST = 4096
};

int64_t archive_most(int64_t packed) {
    if (packed > INT64_MAX / MOST_RATIO) return INT64_MAX;
    return packed * MOST_RATIO > RATIO_FROM ? packed * MOST_RATIO : RATIO_FROM;
}

const char *archive_name_fault(const char *name) {
    if (!name || !*name) return "it has no name";
    if (*name == '/') return "its name is absolute";
    if (strlen(name) >= 1024) return "its name is too long";
    for (const char *part = name; *part;) {
        const size_t n = strcspn(part, "/");
        if (n == 2 && part[0] == '.' && part[1] == '.') return "its name leads out of the folder";
        part += n + (part[n] == '/');
    }
    for (const char *c = name; *c; c++) {
        if ((unsigned char)*c < ' ' || *c == 0x7f || *c == '\\')
            return "its name has a control character or a backslash";
    }
    return NULL;
}

#ifdef ADAMOD_ARCHIVE
#include <archive.h>
#include <archive_entry.h>

/* ---- libarchive ---- */

#define FUNCTIONS(F)                                                                                                   \
    F(create, archive_read_new)                                                                                        \
    F(tar, archive_read_support_format_tar)                                                                            \
    F(gzip, archive_read_support_filter_gzip)                                                                          \
    F(bzip2, archive_read_support_filter_bzip2)                                                                        \
    F(xz, archive_read_support_filter_xz)                                                                              \
    F(zstd, archive_read_support_filter_zstd)                                                                          \
    F(open_fd, archive_read_open_fd)                                                                                   \
    F(next, archive_read_next_header)                                                                                  \
    F(data, archive_read_data)                                                                                         \
    F(skip, archive_read_data_skip)                                                                                    \
    F(bytes, archive_filter_bytes)                                                                                     \
    F(filters, archive_filter_count)                                                                                   \
    F(name, archive_entry_pathname)                                                                                    \
    F(type, archive_entry_filetype)                                                                                    \
    F(hardlink, archive_entry_hardlink)                                                                                \
    F(size, archive_entry_size)                                                                                        \
    F(error, archive_error_string)                                                                                     \
    F(release, archive_read_free)

static struct {
    void *library;
    FUNCTIONS(FUNCTION_FIELD)
} lib;

int archive_missing(void) {
    static const char *const names[] = {"libarchive.so.13", NULL};
#define PLACE(field, name) {#name, &lib.field},
    const function_place functions[] = {FUNCTIONS(PLACE){NULL, NULL}};
    if (lib.library || (lib.library = functions_load(names, "ADAMOD_ARCHIVE_LIBRARY", functions, NULL))) return 0;
    return adamod__context("unpacking needs libarchive (Debian: libarchive13), which cannot be used: ");
}

/* ---- one archive ---- */

typedef struct unpacking {
    struct archive *a;
    const char *name, *directory; /* of the archive and the output; directory NULL: only check it */
    const archive_options *o;
    int64_t packed; /* size of the archive */
    bool taken[MOST_MEMBERS];
    bool not_its_fault; /* the failure is not the archive's */
    char *buffer;
} unpacking;
enum { BUFFER = 1 << 18 };

static int too_much(const unpacking *u) {
    return adamod__refuse("%s: unpacks to more than the %lld bytes allowed", u->name, (long long)u->o->most);
}

/* Refuses a decompression bomb, by the bytes so far and those of the next member. */
static int check_amount(unpacking *u, int64_t more) {
    const int64_t all = (int64_t)lib.bytes(u->a, 0), read = (int64_t)lib.bytes(u->a, -1);
    if (u->o->progress) u->o->progress(u->o->context, read, u->packed);
    if (more < 0 || all > u->o->most - more) return too_much(u);
    if (all <= archive_most(read)) return 0;
    return adamod__refuse("%s: unpacks to more than %d times its size", u->name, MOST_RATIO);
}

static int broken(unpacking *u) {
    const char *error = lib.error(u->a);
    return adamod__refuse("%s: not an archive that can be read: %s", u->name, error ? error : "it is damaged");
}

/* Writes the data of the current member to a file; path NULL: reads them to detect damage. */
static int read_member(unpacking *u, const char *path) {
    writer *out = NULL;
    if (path && writer_open(&out, path)) return -1;
    int failed = 0;
    int64_t all = 0;
    la_ssize_t got;
    while (!failed && (got = lib.data(u->a, u->buffer, BUFFER)) != 0) {
        if (got < 0) failed = broken(u);
        else if ((all += got) > u->o->most) failed = too_much(u); /* holes take no bytes in the archive */
        else if (check_amount(u, 0)) failed = -1;
        else if (out) failed = writer_add(out, u->buffer, (size_t)got);
    }
    return writer_close(out, !failed) || failed ? -1 : 0;
}

static int take_member(unpacking *u, int k, int64_t size) {
    char path[LONGEST];
    const char *member = u->o->members[k];
    if (u->taken[k]) return adamod__refuse("%s: '%s' is in it twice", u->name, member);
    if (size == 0) return adamod__refuse("%s: '%s' in it is empty", u->name, member);
    u->taken[k] = true;
    if (!u->directory) return read_member(u, NULL);
    snprintf(path, sizeof path, "%s/%s", u->directory, member);
    char *slash = strrchr(path, '/');
    *slash = 0;
    if (folder_make(path)) return -1;
    *slash = '/';
    return read_member(u, path);
}

static int look_at(unpacking *u, struct archive_entry *entry) {
    const char *name = lib.name(entry), *fault = archive_name_fault(name);
    const unsigned type = (unsigned)lib.type(entry);
    char shown[64];
    int k = 0;
    snprintf(shown, sizeof shown, "%s", name ? name : "");
    if (!fault && lib.hardlink(entry)) fault = "it is a hard link";
    if (!fault && type == AE_IFLNK) fault = "it is a symbolic link";
    if (!fault && type != AE_IFREG && type != AE_IFDIR) fault = "it is neither a file nor a folder";
    if (fault) return adamod__refuse("%s: refused for its member '%s': %s", u->name, shown, fault);
    const int64_t size = (int64_t)lib.size(entry);
    if (check_amount(u, size)) return -1;
    while (strncmp(name, "./", 2) == 0) name += 2;
    while (u->o->members[k] && strcmp(u->o->members[k], name) != 0) k++;
    if (u->o->members[k] && type == AE_IFREG) return take_member(u, k, size);
    return lib.skip(u->a) < ARCHIVE_WARN ? broken(u) : 0;
}

static int read_all(unpacking *u) {
    struct archive_entry *entry;
    int got = ARCHIVE_OK;
    for (int entries = 0; (got = lib.next(u->a, &entry)) != ARCHIVE_EOF; entries++) {
        if (got < ARCHIVE_WARN) return broken(u);
        if (entries == MOST_ENTRIES) return adamod__refuse("%s: has more than %d members", u->name, MOST_ENTRIES);
        if (lib.filters(u->a) > 2) return adamod__refuse("%s: compressed more than once", u->name);
        if (look_at(u, entry)) return -1;
    }
    for (int k = 0; u->o->members[k]; k++) {
        if (!u->taken[k]) return adamod__refuse("%s: has no '%s'", u->name, u->o->members[k]);
    }
    return 0;
}

static int unpack(unpacking *u, int fd) {
    int members = 0;
    while (u->o->members[members]) members++;
    if (members > MOST_MEMBERS) return adamod__refuse("%s: %d members are too many", u->name, members);
    u->a = lib.create();
    u->buffer = malloc(BUFFER);
    u->not_its_fault = !u->a || !u->buffer;
    int status = u->not_its_fault ? adamod__fail(ADAMOD_ERROR_MEMORY, "%s: out of memory", u->name) : 0;
    if (!status) {
        lib.tar(u->a);
        lib.gzip(u->a);
        lib.bzip2(u->a);
        lib.xz(u->a);
        lib.zstd(u->a);
        status = lib.open_fd(u->a, fd, BUFFER) < ARCHIVE_WARN ? broken(u) : read_all(u);
    }
    if (u->a) lib.release(u->a);
    free(u->buffer);
    return status;
}

static int unpack_file(unpacking *u, const char *path) {
    struct stat st;
    const int fd = adamod__file_open(path, O_RDONLY);
    if (fd < 0 || fstat(fd, &st)) {
        const int error = errno;
        if (fd >= 0) close(fd);
        u->not_its_fault = true;
        return adamod__fail(ADAMOD_ERROR_IO, "%s: cannot open: %s", path, strerror(error));
    }
    u->packed = (int64_t)st.st_size;
    const int status = unpack(u, fd);
    close(fd);
    return status;
}

int archive_unpack(const char *path, const char *directory, const archive_options *o) {
    unpacking u = {.name = path, .directory = directory, .o = o};
    return archive_missing() ? -1 : unpack_file(&u, path);
}

int archive_check(const char *path, const char *name, const archive_options *o) {
    unpacking u = {.name = name, .o = o};
    if (archive_missing()) return -1;
    if (unpack_file(&u, path) == 0) return 1;
    return u.not_its_fault ? -1 : 0;
}

#else

int archive_missing(void) {
    return adamod__refuse("unpacking needs libarchive, which this program was built without (Debian: libarchive-dev)");
}

int archive_unpack(const char *path, const char *directory, const archive_options *o) {
    (void)path, (void)directory, (void)o;
    return archive_missing();
}

int archive_check(const char *path, const char *name, const archive_options *o) {
    (void)path, (void)name, (void)o;
    return archive_missing();
}

#endif
