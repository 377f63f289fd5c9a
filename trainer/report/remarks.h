/* remarks.h - what is to be said of runs besides their numbers, each text once: people's notes (note.txt), and data that are
 * not the published ones. Tables have them as footnotes, captions and the terminal as sentences.
 *
 *     remarks m = {0};
 *     for (...) if (remarks_add_run(&m, run)) ...
 *     for (int i = 0; i < m.n; i++) ... remarks_words(&m, i, out, sizeof out) ...
 *     remarks_free(&m); */
#pragma once

#include "report/sheet.h"
#include "report/variants.h"

/* What a cell says of runs with other data than the published ones. */
#define REMARKS_OWN "own files"

enum { REMARK = REPORT_NOTE + 64 }; /* bytes of the words of one */

typedef struct remarks {
    struct remark_text {
        char *text;
        int runs; /* that it is of */
    } * at;
    int n;
    int runs; /* that were added */
    bool own; /* some have data that are not the published ones */
} remarks;

/* Adds only what people noted, or that and whether the data are the published ones. -1: no memory, with a message. */
int remarks_add_note(remarks *m, const report_run *r);
int remarks_add_run(remarks *m, const report_run *r);
int remarks_add_variant(remarks *m, const report_variant *v);
void remarks_free(remarks *m);

/* The text; of several runs, of which not all have it, "1 of 3 runs: TEXT". */
void remarks_words(const remarks *m, int index, char *out, size_t size);
/* Puts all of them into a cell, with semicolons between. */
void remarks_put(const remarks *m, sheet *to, int row, int column);
/* Adds them to a cell as footnotes. */
void remarks_note(const remarks *m, sheet *to, int row, int column);

/* The number of a text among the different ones of the first variants, from 1 on; and these as footnotes on a page. */
int remarks_number(const remarks *of, int variant, int index);
void remarks_footnotes(FILE *page, const remarks *of, const char *const *name, int n);
/* Writes a sentence for each different text of the named ones: " Note on AdaMod, SGDM: TEXT."; of all of them " Note: TEXT.". With
 * the name of what they belong to: " Note on CIFAR-100 (AdaMod, SGDM): TEXT.", " Note on CIFAR-100: TEXT.". */
void remarks_write(FILE *page, const char *what, const remarks *of, const char *const *name, int n);
/* Prints these as lines: "AdaMod, SGDM: TEXT". */
void remarks_print(FILE *out, const remarks *of, const char *const *name, int n);

/* The remarks of each variant of a report, and their names; NULL: no memory, with a message. */
typedef struct report_remarks {
    remarks *of;
    const char **name;
    int n;
} report_remarks;
int report_remarks_make(report_remarks *out, const report *r);
void report_remarks_free(report_remarks *m);
