/* sheet.h - a table as data: the same cells as CSV, Markdown, LaTeX and HTML. Row 0 has the heads, column 0 the names. */
#pragma once

#include <stdio.h>

typedef struct sheet sheet;

/* An empty table. NULL: no memory. caption NULL or "": none. */
sheet *sheet_create(int rows, int columns, const char *caption);
/* A table of this many rows below its heads. NULL: no memory. */
sheet *sheet_under(const char *const *heads, int columns, int rows, const char *caption);
void sheet_free(sheet *s); /* NULL is fine */

/* Sets the text of a cell, in UTF-8. A failure of memory is kept, and returned by every writer. */
void sheet_put(sheet *s, int row, int column, const char *format, ...) __attribute__((format(printf, 4, 5)));
/* The same with a remark, such as "1 of 3 seeds": behind "; " in CSV and Markdown, small and below in LaTeX and HTML. */
void sheet_put_remark(sheet *s, int row, int column, const char *text, const char *remark);
void sheet_bold(sheet *s, int row, int column);
/* Adds a footnote to a cell. Equal notes have one number, from 1 on, in the order of their first use. */
void sheet_note(sheet *s, int row, int column, const char *format, ...) __attribute__((format(printf, 4, 5)));

/* CSV (RFC 4180) has no notes and no bold. Markdown and LaTeX (booktabs) have caption and notes; all escape what their
 * language would read as its own. HTML is a <table> in the page's style, with its notes below. */
int sheet_csv(const sheet *s, FILE *out);
int sheet_markdown(const sheet *s, FILE *out);
int sheet_latex(const sheet *s, FILE *out);
int sheet_html(const sheet *s, FILE *out);

/* Writes DIRECTORY/NAME.md and NAME.tex of the sheet, and NAME.csv of records: one row a number, for programs; of the sheet
 * if records is NULL. Makes the directory. Each file replaces the old one only once it is whole. */
int sheet_save(const sheet *s, const sheet *records, const char *directory, const char *name);
