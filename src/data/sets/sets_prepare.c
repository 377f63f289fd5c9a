/* sets_prepare.c - see data_sets.h: from downloads to what recipes name.
 *
 * All is made in a folder beside its place, which is renamed when it is whole. Of a set of pairs this folder has, on the
 * way, what was unpacked (in/) and tokens (tok.*), which go before the end.
 *
 * SPDX-License-Identifier: MIT
 */
#include "base/file.h"
#include "base/text.h"
#include "data/bpe.h"
#include "data/line_map.h"
#include "data/sets/archive_file.h"
#include "data/sets/data_sets.h"
#include "data/sets/folders.h"
#include "data/text_input.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct preparing {
    const data_set *set;
    const data_options *o;
    char downloads[DATA_SET_PATH], folder[DATA_SET_PATH]; /* where from, and where it is made */
    char *msg;
    size_t msg_size;
} preparing;

enum { PATH = 2 * DATA_SET_PATH };

static const char *in_folder(const preparing *p, const char *name, const char *end, char out[PATH]) {
    snprintf(out, PATH, "%s/%s%s", p->folder, name, end);
    return out;
}

static void tell(const preparing *p, const char *what, int64_t done, int64_t total) {
    if (p->o->progress) p->o->progress(p->o->context, what, done, total);
}

/* ---- files as they are ---- */

static int copy_files(const preparing *p) {
    for (const data_copy *c = p->set->copies; c->from; c++) {
        char from[PATH], to[PATH], *bytes;
        size_t n;
        snprintf(from, sizeof from, "%s/%s", p->downloads, c->from);
        tell(p, c->to, 0, 0);
        if (text_input_read(from, &bytes, &n, p->msg, p->msg_size)) return -1;
        const int failed = text_write(in_folder(p, c->to, "", to), (text_slice){bytes, n}, p->msg, p->msg_size);
        free(bytes);
        if (failed) return -1;
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
    char path[PATH], to[PATH];
    if (folder_make(in_folder(p, below, "", to), p->msg, p->msg_size)) return -1;
    for (const data_file *f = p->set->files; f->name; f++) {
        unpack_progress u = {p, f->name};
        const archive_options o = {
            .members = f->members, .most = f->unpacked, .progress = show_unpacking, .context = &u};
        snprintf(path, sizeof path, "%s/%s", p->downloads, f->name);
        if (f->unpacked && archive_unpack(path, to, &o, p->msg, p->msg_size)) return -1;
    }
    return 0;
}

/* ---- lines to tokens ---- */

static bool holds(text_slice line, const char *part) {
    const size_t n = strlen(part);
    for (size_t i = 0; i + n <= line.n; i++) {
        if (memcmp(line.bytes + i, part, n) == 0) return true;
    }
    return false;
}

/* fairseq's `grep -v`, of IWSLT's training text; no other has such lines. */
static bool is_sentence(text_slice line) {
    return !holds(line, "<url>") && !holds(line, "<talkid>") && !holds(line, "<keywords>");
}
static bool is_segment(text_slice line) { return holds(line, "<seg id"); }

/* Every `what` becomes `by`, which is not longer; in place. */
static void replace(char *line, const char *what, const char *by) {
    const size_t n = strlen(what), m = strlen(by);
    char *to = line;
    for (const char *at = line; *at;) {
        if (strncmp(at, what, n) != 0) {
            *to++ = *at++;
            continue;
        }
        memcpy(to, by, m);
        to += m;
        at += n;
    }
    *to = 0;
}

static bool is_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

/* Without <seg id="12">, </seg> and the spaces after the one and around the other, wherever they are. */
static void strip_segment(char *line) {
    char *to = line;
    for (const char *at = line; *at;) {
        static const char open[] = "<seg id=\"", close[] = "</seg>";
        if (strncmp(at, open, sizeof open - 1) == 0) {
            const size_t digits = strspn(at + sizeof open - 1, "0123456789");
            const char *end = at + sizeof open - 1 + digits;
            if (end[0] == '"' && end[1] == '>') {
                for (at = end + 2; is_blank(*at); at++) {}
                continue;
            }
        } else if (strncmp(at, close, sizeof close - 1) == 0) {
            while (to > line && is_blank(to[-1])) to--;
            for (at += sizeof close - 1; is_blank(*at); at++) {}
            continue;
        }
        *to++ = *at++;
    }
    *to = 0;
}

typedef struct line_options {
    text_chain_options chain;
    bool segment, tags, keep_raw;
} line_options;

typedef struct line_worker {
    line_options o;
    text_chain *chain;
} line_worker;

static void close_lines(void *worker) {
    line_worker *w = worker;
    if (w) text_chain_free(w->chain);
    free(w);
}

static void *open_lines(const void *options) {
    line_worker *w = calloc(1, sizeof *w);
    if (!w) return NULL;
    w->o = *(const line_options *)options;
    if ((w->chain = text_chain_create(&w->o.chain))) return w;
    free(w);
    return NULL;
}

static char *run_line(void *worker, text_slice line) {
    line_worker *w = worker;
    char *text = strndup(line.n ? line.bytes : "", line.n);
    if (!text) return NULL;
    if (w->o.segment) {
        strip_segment(text);
        if (!w->o.keep_raw) replace(text, "\xe2\x80\x99", "'"); /* a right quotation mark */
    }
    if (w->o.tags) {
        replace(text, "<title>", "");
        replace(text, "</title>", "");
        replace(text, "<description>", "");
        replace(text, "</description>", "");
    }
    if (w->o.keep_raw) {
        replace(text, "&lt;", "<");
        replace(text, "&gt;", ">");
        replace(text, "&quot;", "\"");
        replace(text, "&apos;", "'");
        replace(text, "&amp;", "&");
        return text;
    }
    char *tokens = text_chain_split(w->chain, text_of(text));
    free(text);
    return tokens;
}

/* ---- output ---- */

typedef struct line_file {
    adamod__output out;
    const preparing *p;
    const char *what;
    int64_t lines;
    char buffer[1 << 16];
    size_t n;
} line_file;

static int fail_output(const line_file *f, const char *path, char *msg, size_t msg_size) {
    char reason[256];
    adamod__output_reason(&f->out, reason, sizeof reason);
    return text_fail(msg, msg_size, "%s: %s", path, reason);
}

static int flush_file(line_file *f) {
    const size_t n = f->n;
    f->n = 0;
    return n ? adamod__output_add(&f->out, f->buffer, n) : 0;
}

static int put_line(line_file *f, text_slice line) {
    f->lines++;
    if (f->n + line.n + 1 > sizeof f->buffer && flush_file(f)) return -1;
    if (line.n + 1 > sizeof f->buffer)
        return adamod__output_add(&f->out, line.bytes, line.n) ? -1 : adamod__output_add(&f->out, "\n", 1);
    if (line.n) memcpy(f->buffer + f->n, line.bytes, line.n);
    f->n += line.n;
    f->buffer[f->n++] = '\n';
    return 0;
}

static int take_lines(void *context, int n, char *const *lines, char *msg, size_t msg_size) {
    line_file *f = context;
    for (int i = 0; i < n; i++) {
        if (put_line(f, text_of(lines[i]))) return fail_output(f, f->out.path ? f->out.path : "output", msg, msg_size);
    }
    tell(f->p, f->what, f->lines, 0);
    return 0;
}

static line_file *open_file(const preparing *p, const char *path, const char *what) {
    line_file *f = malloc(sizeof *f);
    if (!f) {
        text_fail(p->msg, p->msg_size, "out of memory");
        return NULL;
    }
    f->p = p;
    f->what = what;
    f->lines = 0;
    f->n = 0;
    if (adamod__output_open(&f->out, path) == 0) return f;
    fail_output(f, path, p->msg, p->msg_size);
    adamod__output_discard(&f->out);
    free(f);
    return NULL;
}

/* Commits unless something failed before. */
static int close_file(line_file *f, int status) {
    if (!f) return -1;
    if (!status && (flush_file(f) || adamod__output_commit(&f->out)))
        status = fail_output(f, f->out.path ? f->out.path : "output", f->p->msg, f->p->msg_size);
    adamod__output_discard(&f->out);
    free(f);
    return status;
}

/* One side of some files, one after the other, as lines of one file. */
static int map_files(const preparing *p, const data_pair *pairs, int side, const line_map *map, const char *to) {
    char paths[16][PATH];
    const char *list[16];
    int n = 0;
    for (; pairs[n].side[0] && n < 16; n++) {
        snprintf(paths[n], PATH, "%s/in/%s", p->folder, pairs[n].side[side]);
        list[n] = paths[n];
    }
    line_file *f = open_file(p, to, map->context);
    if (!f) return -1;
    line_map m = *map;
    m.context = f;
    m.take = take_lines;
    return close_file(f, line_map_run(&m, n, list, p->msg, p->msg_size));
}

static int tokenize(const preparing *p, int side) {
    const data_pairs *d = p->set->pairs;
    const char *language = d->sides[side].language;
    char path[PATH], what[64];
    snprintf(what, sizeof what, "lines tokenized (%s)", language);
    line_options o = {.chain = d->sides[side], .tags = true};
    line_map m = {.threads = p->o->threads,
                  .keeps = is_sentence,
                  .open = open_lines,
                  .close = close_lines,
                  .options = &o,
                  .run = run_line,
                  .context = what};
    if (map_files(p, d->train, side, &m, in_folder(p, "tok.all.", language, path))) return -1;
    o = (line_options){.chain = d->sides[side], .segment = true};
    o.chain.normalize = false; /* fairseq normalizes the training text alone */
    m.keeps = is_segment;
    if (map_files(p, d->test, side, &m, in_folder(p, "tok.test.", language, path))) return -1;
    o.keep_raw = true; /* the test as people write it */
    return map_files(p, d->test, side, &m, in_folder(p, "test.raw.", language, path));
}

/* ---- pairs of lines ---- */

typedef struct pair_files {
    const preparing *p;
    text_input *in[2];
    line_file *out[2][2]; /* training and validation, source and target */
    const char *names[2][2];
} pair_files;

static int next_pair(pair_files *f, text_slice line[2]) {
    const preparing *p = f->p;
    const int a = text_input_line(f->in[0], &line[0], p->msg, p->msg_size);
    const int b = a < 0 ? -1 : text_input_line(f->in[1], &line[1], p->msg, p->msg_size);
    if (a < 0 || b < 0) return -1;
    if (a != b)
        return text_fail(p->msg, p->msg_size, "%s: its texts differ in their numbers of lines: one has more than %lld",
                         p->set->name, (long long)text_input_number(f->in[a ? 1 : 0]));
    return a;
}

static void close_pairs(pair_files *f) {
    for (int i = 0; i < 2; i++) text_input_close(f->in[i]);
}

static int open_pairs(pair_files *f, const char *prefix) {
    const data_pairs *d = f->p->set->pairs;
    char path[PATH];
    for (int i = 0; i < 2; i++) {
        f->in[i] = NULL;
        if (text_input_open(&f->in[i], in_folder(f->p, prefix, d->sides[i].language, path), f->p->msg, f->p->msg_size))
            return -1;
    }
    return 0;
}

/* Copies pairs that are within limits (NULL: all) from prefix to prefix, or every hold_out-th of them (0: none) to another. */
static int copy_pairs(const preparing *p, const char *from, const pair_limits *limits, int hold_out, const char *train,
                      const char *valid) {
    const data_pairs *d = p->set->pairs;
    const char *prefixes[2] = {train, valid};
    pair_files f = {.p = p};
    text_slice line[2];
    char path[PATH];
    int got = open_pairs(&f, from);
    for (int k = 0; k < (valid ? 2 : 1); k++) {
        for (int i = 0; i < 2 && !got; i++) {
            f.out[k][i] = open_file(p, in_folder(p, prefixes[k], d->sides[i].language, path), "pairs");
            if (!f.out[k][i]) got = -1;
        }
    }
    for (int64_t kept = 0; !got && (got = next_pair(&f, line)) > 0;) {
        const int64_t a = text_count_tokens(TEXT_WORDS, line[0]), b = text_count_tokens(TEXT_WORDS, line[1]);
        got = 0;
        if (limits && !pair_limits_keep(limits, a, b)) continue;
        line_file **out = f.out[hold_out && ++kept % hold_out == 0 ? 1 : 0];
        for (int i = 0; i < 2 && !got; i++) {
            if (put_line(out[i], line[i])) got = fail_output(out[i], out[i]->out.path, p->msg, p->msg_size);
        }
        if (kept % 10000 == 0) tell(p, "pairs", kept, 0);
    }
    close_pairs(&f);
    for (int k = 0; k < (valid ? 2 : 1); k++) {
        for (int i = 0; i < 2; i++) got = close_file(f.out[k][i], got) || got ? -1 : 0;
    }
    return got;
}

/* ---- subwords ---- */

static int learn(const preparing *p, char **codes) {
    const data_pairs *d = p->set->pairs;
    bpe_learner *l = bpe_learner_create();
    char path[PATH];
    int64_t done = 0, lines = 0;
    int got = l ? 0 : text_fail(p->msg, p->msg_size, "out of memory");
    for (int i = 0; i < 2 && !got; i++) {
        text_input *in;
        text_slice line;
        if (text_input_open(&in, in_folder(p, "tok.train.", d->sides[i].language, path), p->msg, p->msg_size)) got = -1;
        while (!got && (got = text_input_line(in, &line, p->msg, p->msg_size)) > 0) {
            got = bpe_learner_add(l, line) ? text_fail(p->msg, p->msg_size, "%s: out of memory", path) : 0;
            if (++lines % 10000 == 0) tell(p, "lines counted for subwords", lines, 0);
        }
        text_input_close(in);
    }
    tell(p, "learning subwords", 0, 0);
    *codes = got ? NULL : bpe_learner_run(l, d->merges, 2, &done);
    bpe_learner_free(l);
    if (got || *codes) return got;
    return text_fail(p->msg, p->msg_size, "out of memory for learning subwords");
}

static void *open_subwords(const void *b) { return bpe_worker_create(b, &(bpe_options){0}); }
static void close_subwords(void *worker) { bpe_worker_free(worker); }
static char *run_subwords(void *worker, text_slice line) { return bpe_apply(worker, line); }

static int apply(const preparing *p, const bpe *b, const char *from, const char *to) {
    const data_pairs *d = p->set->pairs;
    for (int i = 0; i < 2; i++) {
        char in[PATH], out[PATH];
        const char *list[] = {in_folder(p, from, d->sides[i].language, in)};
        line_file *f = open_file(p, in_folder(p, to, d->sides[i].language, out), "lines split into subwords");
        if (!f) return -1;
        const line_map m = {.threads = p->o->threads,
                            .open = open_subwords,
                            .close = close_subwords,
                            .options = b,
                            .run = run_subwords,
                            .take = take_lines,
                            .context = f};
        if (close_file(f, line_map_run(&m, 1, list, p->msg, p->msg_size))) return -1;
    }
    return 0;
}

static int split_all(const preparing *p, const char *codes) {
    const data_pairs *d = p->set->pairs;
    bpe *b;
    if (bpe_parse(&b, text_of(codes), -1, "codes", p->msg, p->msg_size)) return -1;
    int failed = 0;
    if (d->limit_subwords) {
        failed = apply(p, b, "tok.train.", "bpe.train.") || apply(p, b, "tok.valid.", "bpe.valid.") ||
                 copy_pairs(p, "bpe.train.", &d->limits, 0, "train.", NULL) ||
                 copy_pairs(p, "bpe.valid.", &d->limits, 0, "valid.", NULL);
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
    if (folder_remove(in_folder(p, "in", "", path), p->msg, p->msg_size)) return -1;
    if (copy_pairs(p, "tok.all.", d->limit_subwords ? NULL : &d->limits, d->hold_out, "tok.train.", "tok.valid."))
        return -1;
    remove_prefix(p, "tok.all.");
    if (learn(p, &codes)) return -1;
    int failed = text_write(in_folder(p, "codes", "", path), text_of(codes), p->msg, p->msg_size);
    if (!failed) failed = split_all(p, codes);
    free(codes);
    static const char *const gone[] = {"tok.train.", "tok.valid.", "tok.test.", "bpe.train.", "bpe.valid."};
    for (size_t i = 0; i < sizeof gone / sizeof *gone; i++) remove_prefix(p, gone[i]);
    return failed ? -1 : 0;
}

/* ---- either ---- */

/* All but the last step; the folder is there, locked and empty. */
static int prepare_in(const preparing *p) {
    if (p->set->copies) return copy_files(p);
    return p->set->pairs ? prepare_pairs(p) : unpack_all(p, "");
}

static int prepare_locked(preparing *p, const char *place) {
    char old[PATH];
    if (folder_remove(p->folder, p->msg, p->msg_size) || folder_make(p->folder, p->msg, p->msg_size)) return -1;
    int status = prepare_in(p);
    if (!status && access(place, F_OK) == 0) {
        snprintf(old, sizeof old, "%s.old", place);
        status = folder_remove(old, p->msg, p->msg_size) || folder_rename(place, old, p->msg, p->msg_size);
    }
    if (!status) status = folder_rename(p->folder, place, p->msg, p->msg_size);
    if (!status) return folder_remove((snprintf(old, sizeof old, "%s.old", place), old), p->msg, p->msg_size);
    (void)folder_remove(p->folder, NULL, 0); /* it is made anew in any case */
    return -1;
}

int data_set_prepare(const data_set *s, const data_options *o, char *msg, size_t msg_size) {
    preparing p = {.set = s, .o = o, .msg = msg, .msg_size = msg_size};
    char place[DATA_SET_PATH], lock[PATH];
    if (data_set_folder(s, "prepared", place, sizeof place, msg, msg_size)) return -1;
    if (data_set_folder(s, "downloads", p.downloads, sizeof p.downloads, msg, msg_size)) return -1;
    if (!o->again && access(place, F_OK) == 0) return 0;
    if (data_set_get(s, o, msg, msg_size)) return -1;
    snprintf(lock, sizeof lock, "%.*s", (int)(strrchr(place, '/') - place), place);
    if (folder_make(lock, msg, msg_size)) return -1;
    snprintf(lock, sizeof lock, "%s.lock", place);
    snprintf(p.folder, sizeof p.folder, "%.500s.new", place);
    const int fd = folder_lock(lock, msg, msg_size);
    if (fd < 0) return -1;
    const int status = prepare_locked(&p, place);
    (void)unlink(lock);
    close(fd);
    return status ? -1 : 0;
}
