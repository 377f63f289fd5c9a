/* page.h - writes the parts of the page as HTML. */
#pragma once

#include "report/figures.h"
#include "report/sheet.h"

/* Writes text for content and for attributes in double quotes; invalid UTF-8 becomes U+FFFD. */
void html_text(FILE *out, const char *text);
/* Writes like fprintf, but every %s as html_text does. Also knows %d, %lld, %.Nf and %%. */
void html(FILE *out, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Begins a page, up to its title. No script runs but that with the hash; NULL: none. */
void page_head(FILE *out, const char *script);
/* Writes the <style> of pages, with the colours of this many variants. */
void page_style(FILE *out, int variants);

/* Begins a section with a heading. Makes the id unique on the page. */
void page_section(FILE *out, const report *r, const char *id, const char *title);

/* Writes a name with spaces for underscores. */
void html_words(FILE *out, const char *name);

/* A variant's name with its colour before it; as a table's head of a row or a column ("row", "col"). */
void html_variant(FILE *out, const report *r, int variant);
void html_variant_head(FILE *out, const report *r, int variant, const char *scope);

/* Writes a picture as the value of src: rows of pixels of one byte (grey) or three (red, green, blue). Writes nothing if
 * memory is out. */
void html_picture(FILE *out, const unsigned char *pixels, int height, int width, int channels);

/* Lists the metrics that have numbers, by description or by label, for the beginning of a sentence: "Accuracy and F1".
 * False: there are none. */
bool html_metrics(FILE *out, const report *r, bool about);

/* The page's script: shows values under the pointer, hides variants, switches axes. The page works without it. Its hash
 * lets the page forbid all other scripts. */
extern const char *const page_script;

/* The results in a paragraph of plain words. */
void page_summary(FILE *out, const report *r);
/* Says what a figure shows and what to see in it. */
void page_caption(FILE *out, const report *r, const report_figures *f, report_group group);

/* Translations with their mistakes marked; nothing if there are none. */
void page_samples(FILE *out, const report *r);

/* PAGE-tables, the directory of the page's tables as CSV, Markdown and LaTeX. */
typedef struct page_tables {
    char directory[PATH_MAX];
    const char *link; /* the directory relative to the page */
    int failed;       /* one of them could not be written: see adamod__last_message */
} page_tables;

/* Writes the files of a table, and links to them. Frees both sheets. records: see sheet_save. */
void page_keep(FILE *out, page_tables *to, const report *r, const char *name, sheet *s, sheet *records);

/* Results class by class; nothing if no run is of a classifier. */
void page_classes(FILE *out, const report *r, page_tables *to);

/* Differences of the variants and recipes; machines; commands to repeat the runs. */
void page_settings(FILE *out, const report *r, page_tables *to);
void page_machines(FILE *out, const report *r);
void page_commands(FILE *out, const report *r);

/* The value of a key if all runs have the same one, or NULL. */
const char *page_common(const report *r, const char *key);

/* Whether evaluations during training use only some of the validation samples, in all runs; whether their loss does too;
 * and a sentence with the number: "Of the first 5 validation images at most. ". */
bool page_limits(const report *r);
bool page_limits_loss(const report *r);
void page_limit(FILE *out, const report *r, const char *of);

/* Writes the whole page, and its tables as files. f, t: the figures and the table of each report. */
int page_write(const char *path, const reports *all, const report_figures *f, const report_table *t);
