/* sets_origin.c - the record of where a prepared set came from, origin.json in its folder:
 *
 *   {"format":1,"set":"cifar100",
 *    "sources":[{"file":"cifar-100-binary.tar.gz","proof":"checksum","md5":"03b5dce01913d631647c71ecec9e9cb8"}],
 *    "files":[{"file":"cifar-100-binary/train.bin","bytes":153700000,"modified":"1763580000.123456789","sha256":"..."}]}
 *
 * proof: "checksum", "none published", "names only", "own"; see data_proof. */
#include "core/error.h"
#include "data/sets/data_sets.h"
#include "data/sets/file_digest.h"
#include "support/array.h"
#include "support/json.h"
#include "support/json_input.h"
#include "support/text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_BYTES = 1 << 20 };

static const char record_name[] = "origin.json";
static const char *const proofs[] = {[DATA_CHECKSUM] = "checksum",
                                     [DATA_NO_PROOF] = "none published",
                                     [DATA_NAMES_ONLY] = "names only",
                                     [DATA_OWN] = "own"};

/* When a file was changed last, in seconds. */
typedef struct moment {
    char text[40];
} moment;

static moment moment_of(const struct stat *st) {
    moment m;
    snprintf(m.text, sizeof m.text, "%lld.%09ld", (long long)st->st_mtim.tv_sec, (long)st->st_mtim.tv_nsec);
    return m;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

typedef struct writing {
    const char *folder;
    json j;
    int status;
} writing;

static bool add_file(void *to, const char *name) {
    writing *w = to;
    const path_text path = path_join(w->folder, name);
    struct stat st;
    char hex[DIGEST_HEX];
    w->status = stat(path.text, &st) ? adamod__fail(ADAMOD_ERROR_IO, "%s: %s", path.text, strerror(errno))
                                     : file_digest(path.text, DIGEST_SHA256, hex, NULL, NULL);
    if (w->status) return false;
    json_open(&w->j, '{');
    json_pair(&w->j, "file", name);
    json_pair_integer(&w->j, "bytes", (int64_t)st.st_size);
    json_pair(&w->j, "modified", moment_of(&st).text);
    json_pair(&w->j, "sha256", hex);
    json_close(&w->j, '}');
    return true;
}

static void add_source(json *j, const data_source_file *from) {
    json_open(j, '{');
    json_pair(j, "file", from->file->name);
    json_pair(j, "proof", proofs[from->proof]);
    if (*from->checksum) json_pair(j, from->kind == DIGEST_MD5 ? "md5" : "sha256", from->checksum);
    json_close(j, '}');
}

int data_set_write_origin(const data_set *s, const data_downloads *from, const char *folder) {
    writing w = {.folder = folder};
    json_open(&w.j, '{');
    json_pair_integer(&w.j, "format", 1);
    json_pair(&w.j, "set", s->name);
    json_pair_open(&w.j, "sources", '[');
    for (int i = 0; i < from->n; i++) add_source(&w.j, &from->list[i]);
    json_close(&w.j, ']');
    json_pair_open(&w.j, "files", '[');
    (void)data_set_files(s, add_file, &w);
    json_close(&w.j, ']');
    json_close(&w.j, '}');
    json_end_line(&w.j);
    if (!w.status) return json_save(&w.j, path_join(folder, record_name).text);
    json_free(&w.j);
    return -1;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

typedef struct recorded_file {
    char name[160];
    int64_t bytes;
    moment modified;
    char sha256[DIGEST_HEX];
} recorded_file;

typedef struct reading {
    const char *folder;
    recorded_file *list;
    int n;
    char own[80]; /* the first download that is not shown to be the published one; "": none */
    data_origin *out;
} reading;

static void read_source(json_input *in, reading *r) {
    char key[32], file[80] = "", proof[32] = "";
    for (bool more = json_input_enter(in, '{'); more; more = json_input_next(in, '}')) {
        json_input_key(in, key, sizeof key);
        if (strcmp(key, "file") == 0) json_input_text(in, file, sizeof file);
        else if (strcmp(key, "proof") == 0) json_input_text(in, proof, sizeof proof);
        else json_input_skip(in);
    }
    const bool published = strcmp(proof, proofs[DATA_CHECKSUM]) == 0 || strcmp(proof, proofs[DATA_NO_PROOF]) == 0;
    if (!published && !*r->own) snprintf(r->own, sizeof r->own, "%s", *file ? file : "a file without a name");
}

static bool read_file(json_input *in, reading *r) {
    char key[32];
    if (!ARRAY_EXTEND(r->list, r->n)) return false;
    recorded_file *f = &r->list[r->n++];
    *f = (recorded_file){.bytes = -1};
    for (bool more = json_input_enter(in, '{'); more; more = json_input_next(in, '}')) {
        json_input_key(in, key, sizeof key);
        if (strcmp(key, "file") == 0) json_input_text(in, f->name, sizeof f->name);
        else if (strcmp(key, "modified") == 0) json_input_text(in, f->modified.text, sizeof f->modified.text);
        else if (strcmp(key, "sha256") == 0) json_input_text(in, f->sha256, sizeof f->sha256);
        else if (strcmp(key, "bytes") == 0) {
            const double bytes = json_input_number(in);
            f->bytes = bytes >= 0 && bytes < 1e15 ? (int64_t)bytes : -1;
        } else json_input_skip(in);
    }
    return true;
}

/* Whether the text is a record. */
static bool read_record(json_input *in, reading *r) {
    char key[32];
    bool fits = true;
    for (bool more = json_input_enter(in, '{'); more && fits; more = json_input_next(in, '}')) {
        json_input_key(in, key, sizeof key);
        if (strcmp(key, "sources") == 0) {
            for (bool one = json_input_enter(in, '['); one; one = json_input_next(in, ']')) read_source(in, r);
        } else if (strcmp(key, "files") == 0) {
            for (bool one = json_input_enter(in, '['); one && fits; one = json_input_next(in, ']'))
                fits = read_file(in, r);
        } else json_input_skip(in);
    }
    json_input_end(in);
    return fits && !in->expected;
}

/* Looks at a file of the set. */
static bool is_unchanged(void *from, const char *name) {
    const reading *r = from;
    const path_text path = path_join(r->folder, name);
    char hex[DIGEST_HEX];
    struct stat st;
    int i = 0;
    while (i < r->n && strcmp(r->list[i].name, name) != 0) i++;
    const recorded_file *f = i < r->n ? &r->list[i] : NULL;
    if (f && stat(path.text, &st) == 0 && (int64_t)st.st_size == f->bytes &&
        (strcmp(moment_of(&st).text, f->modified.text) == 0 ||
         (file_digest(path.text, DIGEST_SHA256, hex, NULL, NULL) == 0 && strcmp(hex, f->sha256) == 0)))
        return true;
    r->out->kind = DATA_CHANGED;
    snprintf(r->out->why, sizeof r->out->why, "%.80s is not as it was prepared", name);
    return false;
}

static void judge(const data_set *s, reading *r) {
    data_origin *out = r->out;
    if (!data_set_files(s, is_unchanged, r)) return;
    if (!*r->own) return;
    out->kind = DATA_OF_OWN_FILES;
    snprintf(out->why, sizeof out->why, "prepared from a %.60s that is not shown to be the published one", r->own);
}

void data_set_origin(const data_set *s, data_origin *out) {
    char folder[DATA_SET_PATH], *text = NULL;
    size_t n = 0;
    reading r = {.folder = folder, .out = out};
    adamod__failure before;
    adamod__save_failure(&before);
    *out = (data_origin){DATA_UNRECORDED, "no record of how it was prepared"};
    if (data_set_folder(s, "prepared", folder, sizeof folder) == 0 &&
        text_read_small(path_join(folder, record_name).text, MOST_BYTES, &text, &n) == 0) {
        json_input in = json_input_of(text, n);
        if (read_record(&in, &r)) {
            *out = (data_origin){DATA_AS_PUBLISHED, ""};
            judge(s, &r);
        } else {
            snprintf(out->why, sizeof out->why, "its %s cannot be read", record_name);
        }
    }
    free(text);
    free(r.list);
    (void)adamod__fail_again(&before);
}
