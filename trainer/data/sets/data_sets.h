/* data_sets.h - public data sets by name: where they are from, how they are fetched, and what they become.
 *
 *     const data_set *s = data_set_find("iwslt14-de-en");
 *     if (data_set_get(s, &options)) ...            // downloads: fetched, compared with their checksums
 *     if (data_set_prepare(s, &options)) ...        // ... and made into what recipes name
 *     if (data_set_path(s, path, sizeof path)) ...  // the folder that has it
 *
 * The cache is $ADAMOD_DATA, or adamod/data in $XDG_CACHE_HOME, or in ~/.cache. It has
 *
 *   downloads/SET/FILE       as they were fetched; FILE.part while a part is there, FILE.bad what was not the right one,
 *                            FILE.sha256 where nobody else has published a checksum, once the set was prepared from it.
 *                            A copy of this folder is a mirror.
 *   prepared/SET/            there whole or not at all
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef DATA_SETS_H
#define DATA_SETS_H

#include "support/digest.h"
#include "data/pair_limits.h"
#include "data/text_chain.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { DATA_SET_PATH = 512, DATA_SET_URL = 1024 };

/* ---- the table: sets_table.c ---- */

typedef struct data_file {
    const char *name; /* in the cache and on mirrors; the last ends with NULL */
    const char *url;
    int64_t size; /* bytes; 0: not published */
    digest_kind kind;
    const char *checksum;       /* NULL: not published */
    int64_t unpacked;           /* an archive: bytes that all in it may have; 0: it is none */
    const char *const *members; /* what is taken out of it; ends with NULL */
    const char *content;        /* checksum, of the same kind, of what a packed text unpacks to; NULL: not known */
} data_file;

/* What is known of a file that was prepared, however its download was packed. */
typedef struct data_amount {
    const char *file; /* the last has NULL */
    int64_t bytes;
} data_amount;

/* Files with the same sentences in the source's language and in the target's. */
typedef struct data_pair {
    const char *side[2];
} data_pair;

/* How text in two languages becomes subwords. */
typedef struct data_pairs {
    text_chain_options sides[2];   /* source, target */
    const data_pair *train, *test; /* members; the last has NULLs. Tests are XML of which segments are taken */
    bool talks;                    /* training text has the tags of IWSLT's talks */
    pair_limits limits;
    /* Limits are of subwords, and of validation text too; else of tokens, before that is set apart. */
    bool limit_subwords;
    int hold_out; /* every so many-th pair is for validation */
    int merges;
    int64_t train_lines, test_lines; /* of the published text, before any is left out; 0: not known */
} data_pairs;

typedef struct data_copy {
    const char *from, *to; /* a download, unpacked if it is packed, and its name then; the last has NULLs */
} data_copy;

typedef struct data_set {
    const char *name, *about, *task; /* data.task */
    const char *home, *licence;
    const data_file *files;
    /* What is prepared: subwords, or files as they are; neither: the members of archives. */
    const data_pairs *pairs;
    const data_copy *copies;
    const data_amount *amounts; /* NULL: none is known */
    const char *languages[2];   /* of pairs of either kind */
} data_set;

extern const data_set data_sets[];
extern const int data_sets_n;

const data_set *data_set_find(const char *name); /* NULL: there is none */

/* ---- the cache ---- */

/* "downloads" or "prepared" of a set. */
int data_set_folder(const data_set *s, const char *what, char *out, size_t size);
/* The folder of a set that was prepared; the message says how to prepare it. */
int data_set_path(const data_set *s, char *out, size_t size);

/* How much of what preparing makes is in the cache: who tidies up a cache may delete some of it. */
typedef enum data_state { DATA_MISSING, DATA_PARTLY, DATA_PREPARED } data_state;
data_state data_set_state(const data_set *s);
/* Adds to the message of a failure what helps where some of a set was deleted. Returns -1; s may be NULL. */
int data_set_explain(const data_set *s);

/* ---- other addresses ---- */

/* Of a mirror (file NULL), or of a file, whose size and checksum may be other ones, too. */
typedef struct data_source {
    char set[32], file[64]; /* "": any */
    char url[DATA_SET_URL];
    bool has_size, has_checksum;
    int64_t size;
    digest_kind kind;
    char checksum[DIGEST_HEX]; /* "": none is known */
} data_source;

typedef struct data_sources {
    data_source *list;
    int n;
} data_sources;

/* "URL": of all files, URL/SET/FILE. */
int data_sources_mirror(data_sources *s, const char *url);
/* A file of lines
 *
 *   mirror URL
 *   SET FILE URL [SIZE [CHECKSUM]]        CHECKSUM: sha256:HEX, md5:HEX or none; SIZE 0: any
 *
 * optional: it need not be there. */
int data_sources_read(data_sources *s, const char *path, bool optional);
/* The file that is read without being asked: adamod/mirrors in $XDG_CONFIG_HOME, or in ~/.config. "": there is no home. */
void data_sources_default(char *out, size_t size);
void data_sources_free(data_sources *s);

/* ---- doing it ---- */

typedef struct data_options {
    const data_sources *sources; /* NULL: none */
    double timeout;              /* seconds without data after which a server is given up; 0: 30 */
    int threads;                 /* 0: one for each core */
    bool again;                  /* prepare what is prepared already */
    /* How far something is, in bytes or lines; total 0: not known. And what else a person should know. Either may be NULL. */
    void (*progress)(void *context, const char *what, int64_t done, int64_t total);
    void (*note)(void *context, const char *line);
    void *context;
} data_options;

/* Fetches what is not there, and compares all with its checksum. What was fetched of a file before it failed is kept.
 * *unsure: of some file no checksum says that it is the published one, only the names of what is in it. */
int data_set_get(const data_set *s, const data_options *o, bool *unsure);
/* The checksums of files that nobody has published, which later ones are compared with. */
int data_set_record(const data_set *s, const data_options *o);
int data_set_prepare(const data_set *s, const data_options *o);

#endif
