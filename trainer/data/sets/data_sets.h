/* data_sets.h - public data sets by name: downloads and prepares them.
 *
 *     const data_set *s = data_set_find("iwslt14-de-en");
 *     if (data_set_prepare(s, &options)) ...        // downloads, verifies and prepares it
 *     if (data_set_path(s, path, sizeof path)) ...  // the folder for recipes
 *
 * The cache is $ADAMOD_DATA, or adamod/data in $XDG_CACHE_HOME, or in ~/.cache. It has
 *
 *   downloads/SET/FILE       as downloaded. FILE.part: an incomplete download; FILE.bad: a wrong file; FILE.sha256: the
 *                            checksum of a file without a published one, once the set was prepared from it.
 *                            A copy of this folder is a mirror.
 *   prepared/SET/            complete or not there. Its origin.json records what it was prepared from, and its files */
#pragma once

#include "support/digest.h"
#include "data/pair_limits.h"
#include "data/text_chain.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { DATA_SET_PATH = 512, DATA_SET_URL = 1024 };

/* ---- the table: sets_table.c ---- */

typedef struct data_file {
    const char *name; /* in the cache and on mirrors; a list ends with NULL */
    const char *url;
    int64_t size; /* bytes; 0: not published */
    digest_kind kind;
    const char *checksum;       /* NULL: not published */
    int64_t unpacked;           /* most bytes in an archive; 0: not an archive */
    const char *const *members; /* files taken from the archive; ends with NULL */
    const char *content;        /* checksum of the unpacked text; NULL: not known */
} data_file;

/* The size of a prepared file, however its download was compressed. */
typedef struct data_amount {
    const char *file; /* the last has NULL */
    int64_t bytes;
} data_amount;

/* Two files with the same sentences in the source and target language. */
typedef struct data_pair {
    const char *side[2];
} data_pair;

/* How text in two languages becomes subwords. */
typedef struct data_pairs {
    text_chain_options sides[2];   /* source, target */
    const data_pair *train, *test; /* members; lists end with NULLs. Tests are XML with segments */
    bool talks;                    /* training text has IWSLT's tags */
    pair_limits limits;
    /* Limits count subwords and apply to validation text too; else they count tokens, before validation text is split off. */
    bool limit_subwords;
    int hold_out; /* each hold_out-th pair is for validation */
    int merges;
    int64_t train_lines, test_lines; /* of the published text, before limits; 0: not known */
} data_pairs;

typedef struct data_copy {
    const char *from, *to; /* a download, which is decompressed, and its new name; a list ends with NULLs */
    int begin, end;        /* takes its bytes from and up to these percents; 0, 0: all */
} data_copy;

typedef struct data_set {
    const char *name, *about, *task; /* data.task */
    const char *home, *licence;
    const data_file *files;
    /* Prepares subwords (pairs), or files (copies); if neither, the members of archives. */
    const data_pairs *pairs;
    const data_copy *copies;
    int32_t tokens; /* copies are files of tokens (token_file.h) of a vocabulary of this size; 0: they are text */
    const data_amount *amounts; /* NULL: not known */
    const char *languages[2];   /* of pairs or copies */
} data_set;

extern const data_set data_sets[];
extern const int data_sets_n;

const data_set *data_set_find(const char *name); /* NULL: there is none */

/* ---- the cache ---- */

/* The folder "downloads" or "prepared" of a set. */
int data_set_folder(const data_set *s, const char *what, char *out, size_t size);
/* The folder of a prepared set. If it is missing, the message says how to prepare it. */
int data_set_path(const data_set *s, char *out, size_t size);

/* Users who clean up the cache may delete some of a set. */
typedef enum data_state { DATA_MISSING, DATA_PARTLY, DATA_PREPARED } data_state;
data_state data_set_state(const data_set *s);
/* If some of a set was deleted, adds to the message of a failure how to prepare it again. s may be NULL. */
int data_set_explain(const data_set *s);

/* Calls look for each file of the prepared set, by its name in the folder, until one returns false. Returns whether none did. */
bool data_set_files(const data_set *s, bool (*look)(void *context, const char *name), void *context);

/* ---- where a prepared set came from: sets_origin.c ---- */

/* What shows that a downloaded file is the published one. */
typedef enum data_proof {
    DATA_CHECKSUM,   /* its checksum is published, or that of its unpacked text */
    DATA_NO_PROOF,   /* nothing does: no checksum is published */
    DATA_NAMES_ONLY, /* nothing does: a checksum is published and differs, but names and sizes of members fit */
    DATA_OWN         /* the user gave another checksum, or none */
} data_proof;

typedef struct data_source_file {
    const data_file *file;
    data_proof proof;
    digest_kind kind;
    char checksum[DIGEST_HEX]; /* of the file; "": not known */
} data_source_file;

/* The downloads of a set, checked. */
typedef struct data_downloads {
    data_source_file *list;
    int n;
    bool unsure; /* some file is identified only by the names of its members, not by a checksum */
} data_downloads;

/* Writes the record of a set whose files are all in this folder. */
int data_set_write_origin(const data_set *s, const data_downloads *from, const char *folder);

typedef enum data_origin_kind {
    DATA_AS_PUBLISHED, /* prepared from the published files, as far as checksums are published, and not changed since */
    DATA_UNRECORDED,   /* made by hand, or by a version without records */
    DATA_CHANGED,      /* a file is not as it was prepared */
    DATA_OF_OWN_FILES  /* prepared from other files than the published ones */
} data_origin_kind;

typedef struct data_origin {
    data_origin_kind kind;
    char why[128]; /* in a few words, if it is not as published: "no record of how it was prepared" */
} data_origin;

/* Looks at the folder of a prepared set. A file counts as unchanged if its size and time are those of the record; else if its
 * SHA-256 is, which copies without their times need. */
void data_set_origin(const data_set *s, data_origin *out);

/* ---- other addresses ---- */

/* Another address of a file, with its size and checksum if they differ, or of a mirror of all sets. */
typedef struct data_source {
    char set[32], file[64]; /* "": a mirror */
    char url[DATA_SET_URL];
    bool has_size, has_checksum;
    int64_t size;
    digest_kind kind;
    char checksum[DIGEST_HEX]; /* "": not known */
} data_source;

typedef struct data_sources {
    data_source *list;
    int n;
} data_sources;

/* Adds a mirror, with files at URL/SET/FILE. */
int data_sources_mirror(data_sources *s, const char *url);
/* A file of lines
 *
 *   mirror URL
 *   SET FILE URL [SIZE [CHECKSUM]]        CHECKSUM: sha256:HEX, md5:HEX or none; SIZE 0: any
 *
 * optional: the file need not exist. */
int data_sources_read(data_sources *s, const char *path, bool optional);
/* The default file: adamod/mirrors in $XDG_CONFIG_HOME, or in ~/.config. "": there is no home directory. */
void data_sources_default(char *out, size_t size);
void data_sources_free(data_sources *s);

/* ---- doing it ---- */

typedef struct data_options {
    const data_sources *sources; /* may be NULL */
    double timeout;              /* seconds without data before a server is given up; 0: 30 */
    int threads;                 /* 0: one per core */
    bool again;                  /* prepare it even if it is prepared */
    /* Called with progress in bytes or lines (total 0: not known), and with notes for people. Either may be NULL. */
    void (*progress)(void *context, const char *what, int64_t done, int64_t total);
    void (*note)(void *context, const char *line);
    void *context;
} data_options;

/* Downloads missing files and verifies all. Parts of failed downloads are kept. out: to be freed, also after a failure. */
int data_set_get(const data_set *s, const data_options *o, data_downloads *out);
void data_downloads_free(data_downloads *d);
/* Records the checksums of files without a published one, to verify later downloads. */
int data_set_record(const data_set *s, const data_options *o);
/* Leaves a prepared set as it is, unless o->again; a note says if its folder has no record, or was changed since. */
int data_set_prepare(const data_set *s, const data_options *o);
