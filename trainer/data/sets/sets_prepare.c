/* Prepares data sets from downloads.
 *
 * All files are made in a new folder, which is renamed when it is complete. For a set of pairs it also has unpacked files
 * (in/) and tokens (tok.*), which are removed in the end. */
#include "support/text.h"
#include "support/writer.h"
#include "core/error.h"
#include "data/bpe.h"
#include "data/sets/archive_file.h"
#include "data/sets/data_sets.h"
#include "data/sets/folders.h"
#include "data/sets/set_lines.h"
#include "data/text_input.h"
#include "data/token_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct preparing {
    const data_set *set;
    const data_options *o;
    char downloads[DATA_SET_PATH], folder[DATA_SET_PATH]; /* input and output */
    data_downloads from;
} preparing;

enum { PATH = 2 * DATA_SET_PATH, MOST_FILES = 16 };

static const char *in_folder(const preparing *p, const char *name, const char *end, char out[PATH]) {
    snprintf(out, PATH, "%s/%s%s", p->folder, name, end);
    return out;
}

static void tell(const preparing *p, const char *what, int64_t done, int64_t total) {
    if (p->o->progress) p->o->progress(p->o->context, what, done, total);
}

/* Without a checksum, checks an amount against that of the published set. expected 0: not known. */
static int expect(const preparing *p, const char *what, int64_t found, int64_t expected, const char *unit) {
    if (!p->from.unsure || !expected || found == expected) return 0;
    return adamod__refuse(
        "%s: %lld %s, the published set has %lld; no checksum says that the files in %s are the published "
        "ones: delete what is not, to download it",
        what, (long long)found, unit, (long long)expected, p->downloads);
}

/* ---- files as they are ---- */

/* Copies bytes `begin` to `end` of a text, and counts its bytes and the lines of the copy. out NULL: only counts. */
typedef struct copying {
    writer *out;
    int64_t begin, end, most, bytes, lines;
    char last;
} copying;

static int copy_some(copying *c, text_slice some) {
    const int64_t at = c->bytes, to = c->end - at < (int64_t)some.n ? c->end - at : (int64_t)some.n;
    const int64_t from = c->begin > at ? c->begin - at : 0;
    c->bytes += (int64_t)some.n;
    if (from >= to) return 0;
    some = (text_slice){some.bytes + from, (size_t)(to - from)};
    for (const char *s = some.bytes, *end = s + some.n; (s = memchr(s, '\n', (size_t)(end - s))); s++) c->lines++;
    c->last = some.bytes[some.n - 1];
    return c->out ? writer_add(c->out, some.bytes, some.n) : 0;
}

static int copy_bytes(copying *c, const char *from) {
    text_input *in;
    text_slice some;
    int got, status = 0;
    if (text_input_open(&in, from)) return -1;
    while (!status && (got = text_input_bytes(in, &some)) != 0) {
        status = got < 0 ? got : copy_some(c, some);
        if (!status && c->bytes > c->most)
            status = adamod__refuse("%s: unpacks to more than the %lld bytes allowed", from, (long long)c->most);
    }
    text_input_close(in);
    if (!status && c->bytes == 0) status = adamod__refuse("%s: empty, expected text", from);
    c->lines += c->last && c->last != '\n';
    return status;
}

static int copy_text(const preparing *p, const data_copy *c, const char *from, const char *to, int64_t *lines) {
    struct stat st;
    if (stat(from, &st)) return adamod__fail(ADAMOD_ERROR_IO, "%s: cannot get its size: %s", from, strerror(errno));
    copying all = {.end = INT64_MAX, .most = archive_most((int64_t)st.st_size)};
    tell(p, c->to, 0, 0);
    if (c->end) { /* parts are counted first */
        if (copy_bytes(&all, from)) return -1;
        all = (copying){.begin = all.bytes * c->begin / 100, .end = all.bytes * c->end / 100, .most = all.most};
    }
    if (writer_open(&all.out, to)) return -1;
    const int status = copy_bytes(&all, from);
    *lines = all.lines;
    return writer_close(all.out, !status) || status ? -1 : 0;
}

/* Files of tokens are large and stay as they are: both names are of one file. Returns 1 if the file system has no such
 * links. */
static int link_tokens(const preparing *p, const char *from, const char *to) {
    token_set *tokens;
    if (token_set_open(&tokens, 1, &from, p->set->tokens)) return -1;
    token_set_close(tokens);
    return link(from, to) ? 1 : 0;
}

static int copy_file(const preparing *p, const data_copy *c, int64_t *lines) {
    char from[PATH], to[PATH];
    snprintf(from, sizeof from, "%s/%s", p->downloads, c->from);
    in_folder(p, c->to, "", to);
    if (!p->set->tokens) return copy_text(p, c, from, to, lines);
    const int linked = link_tokens(p, from, to);
    return linked > 0 ? copy_text(p, c, from, to, lines) : linked;
}

/* Files of pairs alternate between the two languages. */
static int copy_files(const preparing *p) {
    const data_copy *all = p->set->copies;
    for (int64_t i = 0, lines[2]; all[i].from; i++) {
        if (copy_file(p, &all[i], &lines[i % 2])) return -1;
        if (p->set->languages[0] && i % 2 && lines[0] != lines[1])
            return adamod__refuse("%s has %lld lines and %s has %lld, expected the same number", all[i - 1].from,
                                  (long long)lines[0], all[i].from, (long long)lines[1]);
    }
    return 0;
}

/* ---- archives ---- */

typedef struct unpack_progress {
    const preparing *p;
    const char *name;
} unpack_progress;

static void show_unpacking(void *context, int64_t done, int64_t total) {
    const unpack_progress *u = context;
    char what[96];
    snprintf(what, sizeof what, "unpacking %s", u->name);
    tell(u->p, what, done, total);
}

static int unpack_all(const preparing *p, const char *below) {
    char to[PATH];
    if (folder_make(in_folder(p, below, "", to))) return -1;
    for (const data_file *f = p->set->files; f->name; f++) {
        unpack_progress u = {p, f->name};
        const archive_options o = {
            .members = f->members, .most = f->unpacked, .progress = show_unpacking, .context = &u};
        if (f->unpacked && archive_unpack(path_join(p->downloads, f->name).text, to, &o)) return -1;
    }
    return 0;
}

static int check_amounts(const preparing *p) {
    for (const data_amount *a = p->set->amounts; a && a->file; a++) {
        char path[PATH];
        struct stat st;
        if (stat(in_folder(p, a->file, "", path), &st))
            return adamod__fail(ADAMOD_ERROR_IO, "%s: cannot get its size: %s", path, strerror(errno));
        if (expect(p, a->file, (int64_t)st.st_size, a->bytes, "bytes")) return -1;
    }
    return 0;
}

/* ---- lines to tokens ---- */

/* The output of a line_map; what: for progress. */
typedef struct target {
    const preparing *p;
    writer *file;
    const char *what;
    int64_t lines;
} target;

static int put_line(writer *w, text_slice line) {
    const int failed = writer_add(w, line.bytes, line.n);
    return failed ? failed : writer_add(w, "\n", 1);
}

static int take_lines(void *context, int n, char *const *lines) {
    target *t = context;
    for (int i = 0; i < n; i++, t->lines++) {
        if (put_line(t->file, text_of(lines[i]))) return -1;
    }
    tell(t->p, t->what, t->lines, 0);
    return 0;
}

/* Maps the lines of n files into one file. */
static int map_files(const preparing *p, const char *const *paths, int n, line_map map, const char *what,
                     const char *to, int64_t *lines) {
    target t = {.p = p, .what = what};
    if (writer_open(&t.file, to)) return -1;
    map.take = take_lines;
    map.context = &t;
    const int status = line_map_run(&map, n, paths);
    *lines = t.lines;
    return writer_close(t.file, !status) || status ? -1 : 0;
}

static void note_mended(const preparing *p, long long lines, const char *language) {
    char line[160];
    if (lines == 0 || !p->o->note) return;
    snprintf(line, sizeof line, "%s: %lld lines (%s) have bytes that are not UTF-8, which became spaces", p->set->name,
             lines, language);
    p->o->note(p->o->context, line);
}

/* Reads one side of pairs of files, which have `published` lines in all. */
static int read_side(const preparing *p, const data_pair *pairs, int64_t published, int side, set_lines_kind kind,
                     const char *to) {
    const text_chain_options *chain = &p->set->pairs->sides[side];
    char paths[MOST_FILES][PATH], place[PATH], what[64];
    const char *list[MOST_FILES];
    set_lines lines = {.kind = kind, .chain = *chain};
    int64_t found;
    int n = 0;
    if (kind != SET_LINES && kind != SET_TALKS) lines.chain.normalize = false; /* as in fairseq */
    for (; pairs[n].side[0] && n < MOST_FILES; n++) {
        snprintf(paths[n], PATH, "%s/in/%s", p->folder, pairs[n].side[side]);
        list[n] = paths[n];
    }
    snprintf(what, sizeof what, "lines tokenized (%s)", chain->language);
    in_folder(p, to, chain->language, place);
    if (map_files(p, list, n, set_lines_map(&lines, p->o->threads), what, place, &found)) return -1;
    note_mended(p, atomic_load(&lines.mended), chain->language);
    return expect(p, pairs[0].side[side], found, published, pairs[1].side[0] ? "lines with those after it" : "lines");
}

static int tokenize(const preparing *p, int side) {
    const data_pairs *d = p->set->pairs;
    return read_side(p, d->train, d->train_lines, side, d->talks ? SET_TALKS : SET_LINES, "tok.all.") ||
                   read_side(p, d->test, d->test_lines, side, SET_SEGMENTS, "tok.test.") ||
                   read_side(p, d->test, d->test_lines, side, SET_RAW, "test.raw.")
               ? -1
               : 0;
}

/* ---- pairs of lines ---- */

typedef struct pair_files {
    const preparing *p;
    text_input *in[2];
    writer *out[2][2]; /* training and validation, source and target */
} pair_files;

static int open_pairs(pair_files *f, const char *from, const char *const to[2]) {
    const data_pairs *d = f->p->set->pairs;
    char path[PATH];
    for (int i = 0; i < 2; i++) {
        const char *language = d->sides[i].language;
        if (text_input_open(&f->in[i], in_folder(f->p, from, language, path))) return -1;
        for (int k = 0; k < 2 && to[k]; k++) {
            if (writer_open(&f->out[k][i], in_folder(f->p, to[k], language, path))) return -1;
        }
    }
    return 0;
}

static int close_pairs(pair_files *f, int status) {
    for (int i = 0; i < 2; i++) {
        text_input_close(f->in[i]);
        for (int k = 0; k < 2; k++) {
            if (writer_close(f->out[k][i], !status)) status = -1;
        }
    }
    return status;
}

/* 1: the next pair; 0: there is none. */
static int next_pair(pair_files *f, text_slice line[2]) {
    const preparing *p = f->p;
    const int a = text_input_line(f->in[0], &line[0]);
    const int b = a < 0 ? -1 : text_input_line(f->in[1], &line[1]);
    if (a < 0 || b < 0) return -1;
    if (a != b)
        return adamod__refuse("%s: its texts differ in their numbers of lines: one has more than %lld", p->set->name,
                              (long long)text_input_number(f->in[a ? 1 : 0]));
    return a;
}

/* Copies pairs within limits (NULL: all) to the first of two prefixes, and every hold_out-th of them (0: none) to the
 * second. */
static int copy_pairs(const preparing *p, const char *from, const pair_limits *limits, int hold_out,
                      const char *const to[2]) {
    pair_files f = {.p = p};
    text_slice line[2];
    int64_t kept = 0;
    int got, status = open_pairs(&f, from, to);
    while (!status && (got = next_pair(&f, line))) {
        if (got < 0) status = -1;
        else if (!limits || pair_limits_keep(limits, text_count_tokens(TEXT_WORDS, line[0]),
                                             text_count_tokens(TEXT_WORDS, line[1]))) {
            writer **out = f.out[++kept && hold_out && kept % hold_out == 0];
            for (int i = 0; i < 2 && !status; i++) status = put_line(out[i], line[i]);
            if (kept % 10000 == 0) tell(p, "pairs", kept, 0);
        }
    }
    return close_pairs(&f, status);
}

/* ---- subwords ---- */

static int learn(const preparing *p, char **codes) {
    const data_pairs *d = p->set->pairs;
    bpe_learner *l = bpe_learner_create();
    char path[PATH];
    int64_t done = 0, lines = 0;
    int got = l ? 0 : adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory");
    for (int i = 0; i < 2 && !got; i++) {
        text_input *in;
        text_slice line;
        if (text_input_open(&in, in_folder(p, "tok.train.", d->sides[i].language, path))) got = -1;
        while (!got && (got = text_input_line(in, &line)) > 0) {
            got = bpe_learner_add(l, line) ? adamod__fail(ADAMOD_ERROR_MEMORY, "%s: out of memory", path) : 0;
            if (++lines % 10000 == 0) tell(p, "lines counted for subwords", lines, 0);
        }
        text_input_close(in);
    }
    tell(p, "learning subwords", 0, 0);
    *codes = got ? NULL : bpe_learner_run(l, d->merges, 2, &done);
    bpe_learner_free(l);
    if (got || *codes) return got;
    return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for learning subwords");
}

static void *open_subwords(const void *b) { return bpe_worker_create(b, &(bpe_options){0}); }
static void close_subwords(void *worker) { bpe_worker_free(worker); }
static char *run_subwords(void *worker, text_slice line) { return bpe_apply(worker, line); }

static int apply(const preparing *p, const bpe *b, const char *from, const char *to) {
    const data_pairs *d = p->set->pairs;
    const line_map m = {
        .threads = p->o->threads, .open = open_subwords, .close = close_subwords, .options = b, .run = run_subwords};
    for (int i = 0; i < 2; i++) {
        char in[PATH], out[PATH];
        int64_t lines;
        const char *paths[] = {in_folder(p, from, d->sides[i].language, in)};
        in_folder(p, to, d->sides[i].language, out);
        if (map_files(p, paths, 1, m, "lines split into subwords", out, &lines)) return -1;
    }
    return 0;
}

static int split_all(const preparing *p, const char *codes) {
    const data_pairs *d = p->set->pairs;
    bpe *b;
    if (bpe_parse(&b, text_of(codes), -1, "codes")) return -1;
    int failed = 0;
    if (d->limit_subwords) {
        failed = apply(p, b, "tok.train.", "bpe.train.") || apply(p, b, "tok.valid.", "bpe.valid.") ||
                 copy_pairs(p, "bpe.train.", &d->limits, 0, (const char *const[]){"train.", NULL}) ||
                 copy_pairs(p, "bpe.valid.", &d->limits, 0, (const char *const[]){"valid.", NULL});
    } else {
        failed = apply(p, b, "tok.train.", "train.") || apply(p, b, "tok.valid.", "valid.");
    }
    if (!failed) failed = apply(p, b, "tok.test.", "test.");
    bpe_free(b);
    return failed ? -1 : 0;
}

static void remove_prefix(const preparing *p, const char *prefix) {
    for (int i = 0; i < 2; i++) {
        char path[PATH];
        (void)unlink(in_folder(p, prefix, p->set->pairs->sides[i].language, path));
    }
}

static int prepare_pairs(const preparing *p) {
    const data_pairs *d = p->set->pairs;
    char path[PATH], *codes = NULL;
    if (unpack_all(p, "in")) return -1;
    for (int i = 0; i < 2; i++) {
        if (tokenize(p, i)) return -1;
    }
    if (folder_remove(in_folder(p, "in", "", path))) return -1;
    const char *const parts[] = {"tok.train.", "tok.valid."};
    if (copy_pairs(p, "tok.all.", d->limit_subwords ? NULL : &d->limits, d->hold_out, parts)) return -1;
    remove_prefix(p, "tok.all.");
    if (learn(p, &codes)) return -1;
    int failed = text_write(in_folder(p, "codes", "", path), text_of(codes));
    if (!failed) failed = split_all(p, codes);
    free(codes);
    static const char *const gone[] = {"tok.train.", "tok.valid.", "tok.test.", "bpe.train.", "bpe.valid."};
    for (size_t i = 0; i < sizeof gone / sizeof *gone; i++) remove_prefix(p, gone[i]);
    return failed ? -1 : 0;
}

/* ---- either ---- */

/* Fills the folder, which is empty and locked. */
static int prepare_in(const preparing *p) {
    const int failed = p->set->copies ? copy_files(p) : p->set->pairs ? prepare_pairs(p) : unpack_all(p, "");
    if (failed || check_amounts(p)) return -1;
    tell(p, "recording what was prepared", 0, 0);
    return data_set_write_origin(p->set, &p->from, p->folder);
}

static int prepare_locked(preparing *p, const char *place) {
    char old[PATH];
    if (folder_remove(p->folder) || folder_make(p->folder)) return -1;
    int status = prepare_in(p);
    if (!status && access(place, F_OK) == 0) {
        snprintf(old, sizeof old, "%s.old", place);
        status = folder_remove(old) || folder_rename(place, old);
    }
    if (!status) status = folder_rename(p->folder, place);
    if (!status) return folder_remove((snprintf(old, sizeof old, "%s.old", place), old));
    (void)folder_remove(p->folder); /* the next attempt removes it as well */
    return -1;
}

static int prepare_new(preparing *p, const char *place) {
    char lock[PATH];
    if (data_set_get(p->set, p->o, &p->from)) return -1;
    snprintf(lock, sizeof lock, "%.*s", (int)(strrchr(place, '/') - place), place);
    if (folder_make(lock)) return -1;
    snprintf(lock, sizeof lock, "%s.lock", place);
    snprintf(p->folder, sizeof p->folder, "%.500s.new", place);
    const int fd = folder_lock(lock);
    if (fd < 0) return -1;
    const int status = prepare_locked(p, place);
    (void)unlink(lock);
    close(fd);
    return status ? -1 : data_set_record(p->set, p->o);
}

/* Says so if nobody can know that a folder is as this program prepared it. */
static void note_origin(const data_set *s, const data_options *o) {
    data_origin origin;
    char line[320];
    data_set_origin(s, &origin);
    if (!o->note || (origin.kind != DATA_UNRECORDED && origin.kind != DATA_CHANGED)) return;
    snprintf(
        line, sizeof line,
        "%s: %s, so tables call these \"own files\"; adamod data prepare --again %s replaces them by the published ones",
        s->name, origin.why, s->name);
    o->note(o->context, line);
}

int data_set_prepare(const data_set *s, const data_options *o) {
    preparing p = {.set = s, .o = o};
    char place[DATA_SET_PATH];
    if (data_set_folder(s, "prepared", place, sizeof place)) return -1;
    if (data_set_folder(s, "downloads", p.downloads, sizeof p.downloads)) return -1;
    if (!o->again && data_set_state(s) == DATA_PREPARED) return note_origin(s, o), 0;
    const int status = prepare_new(&p, place);
    data_downloads_free(&p.from);
    return status;
}
