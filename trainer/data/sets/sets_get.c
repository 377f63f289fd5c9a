/* Downloads files and verifies their checksums.
 *
 * A file from a network must have the published checksum. A file that users provide may be the published one compressed
 * again, with another checksum. Then its content is compared: by a checksum if one is known, otherwise by the names and sizes
 * of its members (sets_prepare.c). */
#include "core/file.h"
#include "core/error.h"
#include "support/array.h"
#include "support/text.h"
#include "data/sets/address.h"
#include "data/sets/archive_file.h"
#include "data/sets/data_sets.h"
#include "data/sets/download.h"
#include "data/sets/file_digest.h"
#include "data/sets/folders.h"
#include "data/text_input.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_ADDRESSES = 32 };

/* A file of a set and all that is known about it. */
typedef struct wanted {
    const data_set *set;
    const data_file *file;
    const data_options *o;
    char path[DATA_SET_PATH], part[DATA_SET_PATH + 8], bad[DATA_SET_PATH + 8], record[DATA_SET_PATH + 8];
    char urls[MOST_ADDRESSES][DATA_SET_URL];
    int n_urls;
    int64_t size;
    digest_kind kind;
    char checksum[DIGEST_HEX]; /* "": not known yet */
    bool recorded;             /* the checksum is that of an earlier download */
    bool own;                  /* the checksum, or that there is none, is given by the user */
    bool unsure;               /* the file may not be the published one */
    bool anew;                 /* it has not the published checksum, but members with the published names */
    char found[DIGEST_HEX];    /* the file's checksum; "": not computed */
    const char *doing;         /* for progress: "checking" or "fetching" */
} wanted;

static void note(const wanted *w, const char *line) {
    if (w->o->note) w->o->note(w->o->context, line);
}

static void add_url(wanted *w, const char *url) {
    if (w->n_urls < MOST_ADDRESSES) snprintf(w->urls[w->n_urls++], DATA_SET_URL, "%s", url);
}

/* Mirrors first, then addresses given by users, then the published one. */
static void find_addresses(wanted *w) {
    const data_sources *s = w->o->sources;
    char url[DATA_SET_URL];
    for (int i = 0; s && i < s->n; i++) {
        if (*s->list[i].set) continue;
        snprintf(url, sizeof url, "%.600s/%s/%s", s->list[i].url, w->set->name, w->file->name);
        add_url(w, url);
    }
    for (int i = 0; s && i < s->n; i++) {
        const data_source *x = &s->list[i];
        if (strcmp(x->set, w->set->name) != 0 || strcmp(x->file, w->file->name) != 0) continue;
        add_url(w, x->url);
        if (x->has_size) w->size = x->size;
        if (x->has_checksum) {
            w->kind = x->kind;
            snprintf(w->checksum, sizeof w->checksum, "%s", x->checksum);
        }
        w->own = w->own || x->has_checksum;
    }
    if (!w->own) add_url(w, w->file->url); /* another checksum means another file */
}

/* Reads the checksum of an earlier download, if none is published: "HEX  NAME", as sha256sum writes it. */
static void read_record(wanted *w) {
    char *bytes;
    size_t n;
    if (*w->checksum || text_read(w->record, &bytes, &n)) return;
    if (n >= 64) {
        snprintf(w->checksum, sizeof w->checksum, "%.64s", bytes);
        w->kind = DIGEST_SHA256;
        w->recorded = true;
    }
    free(bytes);
}

static int plan(wanted *w, const data_set *set, const data_file *file, const data_options *o) {
    char folder[DATA_SET_PATH];
    *w = (wanted){.set = set, .file = file, .o = o, .size = file->size, .kind = file->kind};
    if (file->checksum) snprintf(w->checksum, sizeof w->checksum, "%s", file->checksum);
    if (data_set_folder(set, "downloads", folder, sizeof folder)) return -1;
    if (folder_make(folder)) return -1;
    snprintf(w->path, sizeof w->path, "%s/%s", folder, file->name);
    snprintf(w->part, sizeof w->part, "%s.part", w->path);
    snprintf(w->bad, sizeof w->bad, "%s.bad", w->path);
    snprintf(w->record, sizeof w->record, "%s.sha256", w->path);
    find_addresses(w);
    read_record(w);
    return 0;
}

/* ---- checksums ---- */

static void show_progress(void *context, int64_t done, int64_t total) {
    const wanted *w = context;
    char what[96];
    snprintf(what, sizeof what, "%s %s", w->doing, w->file->name);
    if (w->o->progress) w->o->progress(w->o->context, what, done, total);
}

static int digest_of(wanted *w, const char *path, digest_kind kind, char hex[DIGEST_HEX]) {
    w->doing = "checking";
    return file_digest(path, kind, hex, show_progress, w);
}

/* Whether a file begins like a compressed file or an archive. */
static bool is_packed(const char *head, size_t n) {
    static const struct {
        const char *bytes;
        size_t n, at;
    } marks[] = {
        {"\x1f\x8b", 2, 0}, {"BZh", 3, 0}, {"\xfd\x37zXZ", 5, 0}, {"\x28\xb5\x2f\xfd", 4, 0}, {"ustar", 5, 257}};
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
        if (n >= marks[i].at + marks[i].n && memcmp(head + marks[i].at, marks[i].bytes, marks[i].n) == 0) return true;
    }
    return false;
}

/* Whether an archive can be unpacked and has the members; returns as verify does. */
static int look_through(wanted *w, const char *path) {
    const archive_options o = {
        .members = w->file->members, .most = w->file->unpacked, .progress = show_progress, .context = w};
    w->doing = "checking";
    return archive_check(path, w->path, &o);
}

/* Without a checksum: whether the file is a whole archive, not, for example, the login page of a network. Returns as verify
 * does. */
static int look_inside(wanted *w, const char *path) {
    char head[512];
    uint64_t got = 0;
    w->unsure = !w->own;
    if (!w->file->members) return 1;
    const int fd = adamod__file_open(path, O_RDONLY);
    const int error = fd < 0 ? errno : adamod__file_read(fd, 0, head, sizeof head, &got);
    if (fd >= 0) close(fd);
    if (error) return adamod__fail(ADAMOD_ERROR_IO, "%s: cannot read: %s", path, strerror(error));
    if (is_packed(head, (size_t)got)) return archive_missing() ? 1 : look_through(w, path);
    adamod__refuse("%s: what came is no archive%s", w->path, got && *head == '<' ? " but a web page" : "");
    return 0;
}

/* Whether the unpacked text of a file has the published checksum. */
static bool has_content(const wanted *w, const char *path, int64_t size) {
    const char *expected = w->file->content ? w->file->content : w->file->checksum;
    const int64_t most = archive_most(size);
    char *bytes, hex[DIGEST_HEX];
    size_t n;
    digest d;
    if (text_input_read_most(path, most > PTRDIFF_MAX ? PTRDIFF_MAX : (size_t)most, &bytes, &n)) return false;
    digest_start(&d, w->file->kind);
    digest_add(&d, bytes, n);
    digest_end(&d, hex);
    free(bytes);
    return strcmp(hex, expected) == 0;
}

/* Whether a file with another checksum is the published one, compressed again. Returns as verify does, without a message. A
 * file of the published size is damaged instead. */
static int packed_anew(wanted *w, const char *path) {
    char line[256];
    struct stat st;
    if (w->own || w->recorded || stat(path, &st) || st.st_size == w->file->size) return 0;
    if (w->file->members) {
        const int whole = archive_missing() ? 0 : look_through(w, path);
        if (whole <= 0) return whole;
        w->unsure = w->anew = true;
        snprintf(
            line, sizeof line,
            "%s: its %s is not the published one; in case it was packed anew, the names and sizes of its members are "
            "compared instead",
            w->file->name, digest_name(w->kind));
    } else {
        if (!has_content(w, path, (int64_t)st.st_size)) return 0;
        snprintf(line, sizeof line, "%s: packed anew; what it unpacks to has the published %s", w->file->name,
                 digest_name(w->kind));
    }
    note(w, line);
    return 1;
}

/* 1: the file is right. 0: it is not, with a message. -1: it cannot be read. here: it did not come over a network. */
static int verify(wanted *w, const char *path, bool here) {
    char *hex = w->found, record[DATA_SET_PATH + 160] = "";
    w->unsure = w->anew = false;
    *hex = 0;
    if (!*w->checksum) return look_inside(w, path);
    if (digest_of(w, path, w->kind, hex)) return -1;
    if (strcmp(hex, w->checksum) == 0) return 1;
    const int anew = here ? packed_anew(w, path) : 0;
    if (anew) return anew;
    if (w->recorded)
        snprintf(record, sizeof record,
                 ", that of an earlier download, as %s says; delete that record if the new file is right", w->record);
    adamod__refuse("%s: its %s is %s, expected %s%s", w->path, digest_name(w->kind), hex, w->checksum, record);
    return 0;
}

/* ---- one file ---- */

/* Downloads from one address to w->part. *wrong: it is complete, but not the right file. */
static download_result fetch(wanted *w, const char *url, int fd, bool *wrong) {
    const bool here = address_is_file(url);
    const download d = {.url = url,
                        .path = w->part,
                        .size = here && !w->own ? 0 : w->size,
                        .most = w->file->unpacked ? w->file->unpacked : 10 * w->file->size,
                        .timeout = w->o->timeout > 0 ? w->o->timeout : 30,
                        .progress = show_progress,
                        .context = w};
    for (int attempt = 0; attempt < 2; attempt++) {
        bool resumed;
        w->doing = "fetching";
        const download_result r = download_run(&d, fd, &resumed);
        if (r != DOWNLOAD_DONE) return r;
        const int right = verify(w, w->part, here);
        if (right > 0) return DOWNLOAD_DONE;
        if (right < 0) return DOWNLOAD_STOPPED;
        if (!resumed) {
            *wrong = true;
            break;
        }
        note(w, "the parts of a download that was continued do not fit; it is begun anew");
        (void)adamod__file_cut(fd, 0);
    }
    return DOWNLOAD_FAILED;
}

/* Keeps a wrong file under another name. */
static void set_apart(const wanted *w, const char *path) {
    if (!rename(path, w->bad)) adamod__refuse("%s; kept as %s.bad", adamod__last_message(), w->file->name);
}

/* Downloads from one address to w->path. */
static download_result get_from(wanted *w, const char *url) {
    const int fd = folder_lock(w->part);
    char folder[DATA_SET_PATH];
    struct stat st;
    bool wrong = false;
    if (fd < 0) return DOWNLOAD_STOPPED;
    const int64_t have = fstat(fd, &st) == 0 ? (int64_t)st.st_size : 0;
    snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(w->path, '/') - w->path), w->path);
    download_result r = folder_space(folder, w->size - have) ? DOWNLOAD_STOPPED : fetch(w, url, fd, &wrong);
    if (r == DOWNLOAD_DONE && folder_rename(w->part, w->path)) r = DOWNLOAD_STOPPED;
    if (wrong) set_apart(w, w->part);
    else if (r != DOWNLOAD_DONE && fstat(fd, &st) == 0 && st.st_size == 0) (void)unlink(w->part);
    close(fd);
    return r;
}

static void warn_of(const wanted *w, const char *url) {
    char shown[DATA_SET_URL], line[DATA_SET_URL + 256];
    if (*w->checksum || !address_is_plain(url)) return;
    address_shown(url, shown, sizeof shown);
    snprintf(line, sizeof line,
             "%s: no checksum is known, and %s is not encrypted: whoever is on the way there can change the file",
             w->file->name, shown);
    note(w, line);
}

static int get_from_any(wanted *w) {
    for (int i = 0; i < w->n_urls; i++) {
        warn_of(w, w->urls[i]);
        const download_result r = get_from(w, w->urls[i]);
        if (r == DOWNLOAD_DONE) return 0;
        if (r == DOWNLOAD_STOPPED) return -1;
        if (i + 1 < w->n_urls) note(w, adamod__last_message());
    }
    return -1;
}

/* Checks a file that is already there: 1 if it is right, 0 if there is none. */
static int look_at(wanted *w) {
    if (access(w->path, F_OK) != 0) return 0;
    const int right = verify(w, w->path, true);
    if (right) return right;
    set_apart(w, w->path);
    note(w, adamod__last_message());
    return 0;
}

static int get_file(wanted *w) {
    const int here = look_at(w);
    return here ? here : get_from_any(w);
}

/* If no checksum is published, records that of the download from which the set was prepared, to verify later ones. */
static int record(wanted *w) {
    char hex[DIGEST_HEX], line[DIGEST_HEX + 128];
    if (*w->checksum) return 0;
    if (digest_of(w, w->path, DIGEST_SHA256, hex)) return -1;
    snprintf(line, sizeof line, "%s  %s\n", hex, w->file->name);
    if (text_write(w->record, text_of(line))) return -1;
    snprintf(line, sizeof line, "%s: no checksum is published; its SHA-256 is recorded", w->file->name);
    note(w, line);
    return 0;
}

/* ---- all files ---- */

/* Whether the user gave a checksum that is not the published one, or none. */
static bool is_own(const wanted *w) {
    const data_file *f = w->file;
    return w->own && !(f->checksum && f->kind == w->kind && strcmp(f->checksum, w->checksum) == 0);
}

static data_proof proof_of(const wanted *w) {
    return is_own(w) ? DATA_OWN : w->anew ? DATA_NAMES_ONLY : w->file->checksum ? DATA_CHECKSUM : DATA_NO_PROOF;
}

static int add_download(data_downloads *to, const wanted *w) {
    if (!ARRAY_EXTEND(to->list, to->n)) return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory");
    data_source_file *d = &to->list[to->n++];
    *d = (data_source_file){.file = w->file, .proof = proof_of(w), .kind = w->kind};
    snprintf(d->checksum, sizeof d->checksum, "%s", w->found);
    to->unsure = to->unsure || w->unsure;
    return 0;
}

/* Calls act for each file of a set, then lists it. out NULL: does not. */
static int with_each(const data_set *s, const data_options *o, int (*act)(wanted *w), data_downloads *out) {
    wanted *w = malloc(sizeof *w);
    int status = w ? 0 : adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory");
    for (const data_file *f = s->files; status >= 0 && f->name; f++) {
        status = plan(w, s, f, o);
        if (!status) status = act(w);
        if (status >= 0 && out && add_download(out, w)) status = -1;
    }
    free(w);
    return status < 0 ? -1 : 0;
}

int data_set_get(const data_set *s, const data_options *o, data_downloads *out) {
    *out = (data_downloads){0};
    return with_each(s, o, get_file, out);
}

void data_downloads_free(data_downloads *d) {
    free(d->list);
    *d = (data_downloads){0};
}

int data_set_record(const data_set *s, const data_options *o) { return with_each(s, o, record, NULL); }
