/* page.h - the parts of the page, each written to a stream of HTML. */
#ifndef ADAMOD_PAGE_H
#define ADAMOD_PAGE_H

#include "report/figures.h"

/* Writes text for content and for attributes in double quotes; invalid UTF-8 becomes U+FFFD. */
void html_text(FILE *out, const char *text);
/* Writes like fprintf, but every %s as html_text does. Also knows %d, %lld, %.Nf and %%. */
void html(FILE *out, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Begins a section with a heading; the id is one of its own in the page. */
void page_section(FILE *out, const report *r, const char *id, const char *title);

/* Writes a name with spaces for underscores. */
void html_words(FILE *out, const char *name);

/* A variant's name with its colour before it; as a table's head of a row or a column ("row", "col"). */
void html_variant(FILE *out, const report *r, int variant);
void html_variant_head(FILE *out, const report *r, int variant, const char *scope);

/* A picture as the value of src: rows of pixels of one byte (grey) or three (red, green, blue). Without memory it is
 * empty. */
void html_picture(FILE *out, const unsigned char *pixels, int height, int width, int channels);

/* The metrics that there are numbers of, by what they are about or by their labels, as the beginning of a sentence:
 * "Accuracy and F1". False, and nothing is written: there are none. */
bool html_metrics(FILE *out, const report *r, bool about);

/* The page's script, which shows values under the pointer, switches variants off and on, and axes: the page is whole without
 * it. Its hash lets the page forbid any other. */
extern const char page_script[], page_script_hash[];

/* What came of it, in a paragraph of plain words. */
void page_summary(FILE *out, const report *r);
/* What a figure shows, what to see in it, and which of the paper's it repeats. */
void page_caption(FILE *out, const report *r, const report_figures *f, report_group group);

/* Translations, with what is wrong in them marked; nothing if there are none. */
void page_samples(FILE *out, const report *r);

/* Classes, where runs are of classifiers; nothing if there are none. */
void page_classes(FILE *out, const report *r);

/* How the variants differ, the recipes in full, machines, and how to do it again. */
void page_settings(FILE *out, const report *r);
void page_machines(FILE *out, const report *r);
void page_commands(FILE *out, const report *r);

/* Whether the runs have a key with one value; that value, or NULL. */
const char *page_common(const report *r, const char *key);

/* Whether evaluations on the way look at some of the validation samples alone, as all runs say; whether their loss does
 * too; and of how many: "Of the first 5 validation images at most. ". */
bool page_limits(const report *r);
bool page_limits_loss(const report *r);
void page_limit(FILE *out, const report *r, const char *of);

/* All of it, with the figures and the table of each report. -1: a message. */
int page_write(const char *path, const reports *all, const report_figures *f, const report_table *t);

#endif
