#include "report/sheet.h"

#include "core/error.h"
#include "report/page.h"
#include "support/array.h"
#include "support/directory.h"
#include "support/text.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

typedef struct cell {
    char *text; /* NULL: empty */
    char *own;  /* the text without its remark; NULL: there is none */
    bool bold;
} cell;

/* A note of a cell. */
typedef struct mark {
    int cell, note;
} mark;

struct sheet {
    int rows, columns;
    char *caption;
    cell *cell;
    char **note;
    mark *mark;
    size_t n_notes, note_room, n_marks, mark_room;
    bool failed;
};

/* ---- Cells ------------------------------------------------------------------------------------------------------- */

sheet *sheet_create(int rows, int columns, const char *caption) {
    sheet *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    s->rows = rows;
    s->columns = columns;
    s->caption = strdup(caption ? caption : "");
    s->cell = calloc((size_t)rows * (size_t)columns + 1, sizeof *s->cell);
    if (s->caption && s->cell) return s;
    sheet_free(s);
    return NULL;
}

sheet *sheet_under(const char *const *heads, int columns, int rows, const char *caption) {
    sheet *s = sheet_create(rows + 1, columns, caption);
    for (int k = 0; s && k < columns; k++) sheet_put(s, 0, k, "%s", heads[k]);
    return s;
}

void sheet_free(sheet *s) {
    if (!s) return;
    for (int i = 0; s->cell && i < s->rows * s->columns; i++) {
        free(s->cell[i].text);
        free(s->cell[i].own);
    }
    for (size_t i = 0; i < s->n_notes; i++) free(s->note[i]);
    free(s->cell);
    free(s->note);
    free(s->mark);
    free(s->caption);
    free(s);
}

static cell *cell_at(const sheet *s, int row, int column) { return &s->cell[row * s->columns + column]; }

static const char *text_at(const sheet *s, int row, int column) {
    const char *text = cell_at(s, row, column)->text;
    return text ? text : "";
}

/* Formats a text on the heap; NULL: no memory, which the sheet keeps. */
static char *format_text(sheet *s, const char *format, va_list arguments) {
    char *text;
    if (vasprintf(&text, format, arguments) >= 0) return text;
    s->failed = true;
    return NULL;
}

void sheet_put(sheet *s, int row, int column, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    char *text = format_text(s, format, arguments);
    va_end(arguments);
    free(cell_at(s, row, column)->text);
    cell_at(s, row, column)->text = text;
    free(cell_at(s, row, column)->own);
    cell_at(s, row, column)->own = NULL;
}

void sheet_put_remark(sheet *s, int row, int column, const char *text, const char *remark) {
    sheet_put(s, row, column, "%s; %s", text, remark);
    cell_at(s, row, column)->own = strdup(text);
    if (!cell_at(s, row, column)->own) s->failed = true;
}

/* NULL: none. */
static const char *remark_at(const sheet *s, int row, int column) {
    const cell *c = cell_at(s, row, column);
    return c->text && c->own ? c->text + strlen(c->own) + strlen("; ") : NULL;
}

static const char *own_text_at(const sheet *s, int row, int column) {
    return remark_at(s, row, column) ? cell_at(s, row, column)->own : text_at(s, row, column);
}

void sheet_bold(sheet *s, int row, int column) { cell_at(s, row, column)->bold = true; }

/* The number of a note, from 0 on; takes the text. -1: no memory. */
static int number_of(sheet *s, char *text) {
    for (size_t i = 0; i < s->n_notes; i++) {
        if (strcmp(s->note[i], text) != 0) continue;
        free(text);
        return (int)i;
    }
    if (!ARRAY_RESERVE(s->note, s->n_notes + 1, s->note_room)) {
        free(text);
        return -1;
    }
    s->note[s->n_notes] = text;
    return (int)s->n_notes++;
}

static void add_mark(sheet *s, mark m) {
    for (size_t i = 0; i < s->n_marks; i++) {
        if (s->mark[i].cell == m.cell && s->mark[i].note == m.note) return;
    }
    if (m.note < 0 || !ARRAY_RESERVE(s->mark, s->n_marks + 1, s->mark_room)) s->failed = true;
    else s->mark[s->n_marks++] = m;
}

void sheet_note(sheet *s, int row, int column, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    char *text = format_text(s, format, arguments);
    va_end(arguments);
    if (text) add_mark(s, (mark){row * s->columns + column, number_of(s, text)});
}

/* The result of a writer. */
static int written(const sheet *s, FILE *out) {
    if (s->failed) return adamod__fail(ADAMOD_ERROR_MEMORY, "a table: out of memory");
    return ferror(out) ? adamod__fail(ADAMOD_ERROR_IO, "a table: cannot write") : 0;
}

/* Writes the numbers of a cell's notes between two texts, such as "1,3"; nothing if it has none. */
static void write_marks(const sheet *s, FILE *out, int row, int column, const char *before, const char *after) {
    const char *comma = before;
    for (size_t i = 0; i < s->n_marks; i++) {
        if (s->mark[i].cell != row * s->columns + column) continue;
        fprintf(out, "%s%d", comma, s->mark[i].note + 1);
        comma = ",";
    }
    if (comma != before) fputs(after, out);
}

/* ---- CSV --------------------------------------------------------------------------------------------------------- */

static void write_field(FILE *out, const char *text) {
    if (!text[strcspn(text, ",\"\r\n")]) {
        fputs(text, out);
        return;
    }
    fputc('"', out);
    for (; *text; text++) fprintf(out, *text == '"' ? "\"\"" : "%c", *text);
    fputc('"', out);
}

int sheet_csv(const sheet *s, FILE *out) {
    for (int row = 0; row < s->rows; row++) {
        for (int column = 0; column < s->columns; column++) {
            if (column) fputc(',', out);
            write_field(out, text_at(s, row, column));
        }
        fputs("\r\n", out);
    }
    return written(s, out);
}

/* ---- Markdown ---------------------------------------------------------------------------------------------------- */

static bool is_word(char c) { return isalnum((unsigned char)c) || (unsigned char)c >= 0x80; }

/* Whether a character needs a backslash. Within a word an underscore has no meaning, nor has < before a number. */
static bool is_special(const char *text, const char *at) {
    if (*at == '_') return at == text || !is_word(at[-1]) || !is_word(at[1]);
    if (*at == '<') return isalpha((unsigned char)at[1]) || (at[1] && strchr("/!?", at[1])); /* a tag */
    return strchr("\\`*[]|~$#", *at);
}

static void markdown_text(FILE *out, const char *text) {
    for (const char *at = text; *at; at++) {
        if (*at == '&') fputs("&amp;", out);
        else if (*at == '\n' || *at == '\r') fputc(' ', out);
        else fprintf(out, is_special(text, at) ? "\\%c" : "%c", *at);
    }
}

static void markdown_row(const sheet *s, FILE *out, int row) {
    for (int column = 0; column < s->columns; column++) {
        const bool bold = cell_at(s, row, column)->bold && *text_at(s, row, column);
        fputs(bold ? "| **" : "| ", out);
        markdown_text(out, text_at(s, row, column));
        if (bold) fputs("**", out);
        write_marks(s, out, row, column, "<sup>", "</sup>");
        fputc(' ', out);
    }
    fputs("|\n", out);
}

int sheet_markdown(const sheet *s, FILE *out) {
    markdown_text(out, s->caption);
    if (*s->caption) fputs("\n\n", out);
    for (int row = 0; row < s->rows; row++) {
        markdown_row(s, out, row);
        for (int column = 0; !row && column < s->columns; column++) fputs(column ? "---:|" : "|---|", out);
        if (!row) fputc('\n', out);
    }
    for (size_t i = 0; i < s->n_notes; i++) {
        fprintf(out, "\n<sup>%zu</sup> ", i + 1);
        markdown_text(out, s->note[i]);
        fputc('\n', out);
    }
    return written(s, out);
}

/* ---- LaTeX ------------------------------------------------------------------------------------------------------- */

/* Characters that pdflatex with its standard fonts cannot take as they are. Brackets and stars would belong to the \\ before
 * them, and two hyphens would be a dash. */
static const char *const latex[][2] = {
    {"\\", "\\textbackslash{}"},
    {"&", "\\&"},
    {"%", "\\%"},
    {"$", "\\$"},
    {"#", "\\#"},
    {"_", "\\_"},
    {"{", "\\{"},
    {"}", "\\}"},
    {"~", "\\textasciitilde{}"},
    {"^", "\\textasciicircum{}"},
    {"<", "\\textless{}"},
    {">", "\\textgreater{}"},
    {"|", "\\textbar{}"},
    {"\"", "''"},
    {"[", "{[}"},
    {"]", "{]}"},
    {"*", "{*}"},
    {"--", "-{}-"},
    {"\n", " "},
    {"\r", " "},
    {"±", "$\\pm$"},
    {"×", "$\\times$"},
    {"·", "$\\cdot$"},
    {"−", "$-$"},
    {"≤", "$\\le$"},
    {"≥", "$\\ge$"},
    {"≈", "$\\approx$"},
    {"≠", "$\\ne$"},
    {"∞", "$\\infty$"},
    {"→", "$\\to$"},
    {"←", "$\\leftarrow$"},
    {"°", "$^\\circ$"},
    {"–", "--"},
    {"—", "---"},
    {"…", "\\dots{}"},
    {"’", "'"},
    {"‘", "`"},
    {"“", "``"},
    {"”", "''"},
    {"\u00a0", "~"},
    {"\u2009", "\\,"},
    {"\u202f", "\\,"},
    {"α", "$\\alpha$"},
    {"β", "$\\beta$"},
    {"γ", "$\\gamma$"},
    {"δ", "$\\delta$"},
    {"ε", "$\\varepsilon$"},
    {"η", "$\\eta$"},
    {"θ", "$\\theta$"},
    {"κ", "$\\kappa$"},
    {"λ", "$\\lambda$"},
    {"μ", "$\\mu$"},
    {"µ", "$\\mu$"},
    {"ν", "$\\nu$"},
    {"ρ", "$\\rho$"},
    {"σ", "$\\sigma$"},
    {"τ", "$\\tau$"},
    {"φ", "$\\varphi$"},
    {"ω", "$\\omega$"},
    {"₁", "$_1$"},
    {"₂", "$_2$"},
    {"₃", "$_3$"},
    {"¹", "$^1$"},
    {"²", "$^2$"},
    {"³", "$^3$"},
};

/* Writes what stands for the beginning of the text. Returns the bytes that it stands for. */
static size_t latex_piece(FILE *out, const char *text) {
    for (size_t i = 0; i < sizeof latex / sizeof *latex; i++) {
        const size_t n = strlen(latex[i][0]);
        if (strncmp(text, latex[i][0], n) != 0) continue;
        fputs(latex[i][1], out);
        return n;
    }
    fputc(*text, out);
    return 1;
}

static void latex_text(FILE *out, const char *text) {
    if (*text == '-' && isdigit((unsigned char)text[1])) {
        fputs("$-$", out);
        text++;
    }
    while (*text) text += latex_piece(out, text);
}

/* Breaks a long head at spaces, so that a table of some columns fits on a page. */
static void latex_head(FILE *out, const char *text) {
    enum { MOST = 22 };
    size_t used = 0;
    if (strlen(text) <= MOST || !strchr(text, ' ')) {
        latex_text(out, text);
        return;
    }
    fputs("\\shortstack[r]{", out);
    while (*text) {
        const size_t word = strcspn(text, " ");
        const bool fits = used + 1 + word <= MOST;
        if (used) fputs(fits ? " " : "\\\\", out);
        used = used && fits ? used + 1 + word : word;
        for (const char *end = text + word; text < end;) text += latex_piece(out, text);
        text += strspn(text, " ");
    }
    fputc('}', out);
}

/* Each part of a remark below the last, so that the column is no wider than its numbers need. */
static void latex_remark(FILE *out, const char *text) {
    while (*text) {
        const char *end = strstr(text, "; ");
        const char *next = end ? end + strlen("; ") : text + strlen(text);
        fputs("\\\\{\\scriptsize ", out);
        for (end = end ? end : next; text < end;) text += latex_piece(out, text);
        fputc('}', out);
        text = next;
    }
    fputc('}', out);
}

static void latex_row(const sheet *s, FILE *out, int row) {
    for (int column = 0; column < s->columns; column++) {
        const bool bold = cell_at(s, row, column)->bold;
        const char *remark = remark_at(s, row, column);
        fputs(column ? " & " : "    ", out);
        if (remark) fputs(column ? "\\shortstack[r]{" : "\\shortstack[l]{", out);
        if (bold) fputs("\\textbf{", out);
        if (row == 0 && column > 0) latex_head(out, text_at(s, row, column));
        else latex_text(out, own_text_at(s, row, column));
        if (bold) fputc('}', out);
        write_marks(s, out, row, column, "$^{", "}$");
        if (remark) latex_remark(out, remark);
    }
    fputs(" \\\\\n", out);
}

int sheet_latex(const sheet *s, FILE *out) {
    fputs("% in the preamble: \\usepackage{booktabs}\n\\begin{table}\n  \\centering\n", out);
    if (*s->caption) {
        fputs("  \\caption{", out);
        latex_text(out, s->caption);
        fputs("}\n", out);
    }
    fputs("  \\begin{tabular}{l", out);
    for (int column = 1; column < s->columns; column++) fputc('r', out);
    fputs("}\n    \\toprule\n", out);
    for (int row = 0; row < s->rows; row++) {
        latex_row(s, out, row);
        if (!row) fputs("    \\midrule\n", out);
    }
    fputs("    \\bottomrule\n  \\end{tabular}\n", out);
    for (size_t i = 0; i < s->n_notes; i++) {
        fprintf(out, "  \\par\\footnotesize $^{%zu}$ ", i + 1);
        latex_text(out, s->note[i]);
        fputc('\n', out);
    }
    fputs("\\end{table}\n", out);
    return written(s, out);
}

/* ---- HTML -------------------------------------------------------------------------------------------------------- */

static void html_cell(const sheet *s, FILE *out, int row, int column) {
    const bool bold = cell_at(s, row, column)->bold;
    const char *tag = !row || !column ? "th" : "td";
    fprintf(out, "<%s%s>%s", tag, !row ? " scope=\"col\"" : !column ? " scope=\"row\"" : "", bold ? "<b>" : "");
    html_text(out, own_text_at(s, row, column));
    if (bold) fputs("</b>", out);
    write_marks(s, out, row, column, "<sup>", "</sup>");
    if (remark_at(s, row, column)) html(out, "<small class=\"remark\">%s</small>", remark_at(s, row, column));
    fprintf(out, "</%s>", tag);
}

int sheet_html(const sheet *s, FILE *out) {
    if (*s->caption) html(out, "<p>%s</p>\n", s->caption);
    fputs("<div class=\"scroll\"><table class=\"results\">\n<thead>\n", out);
    for (int row = 0; row < s->rows; row++) {
        fputs("<tr>", out);
        for (int column = 0; column < s->columns; column++) html_cell(s, out, row, column);
        fputs(row ? "</tr>\n" : "</tr>\n</thead>\n<tbody>\n", out);
    }
    fputs("</tbody></table></div>\n", out);
    for (size_t i = 0; i < s->n_notes; i++)
        html(out, "<p class=\"legend\"><sup>%d</sup> %s</p>\n", (int)i + 1, s->note[i]);
    return written(s, out);
}

/* ---- Files ------------------------------------------------------------------------------------------------------- */

static int save_as(const sheet *s, int (*write)(const sheet *, FILE *), const char *directory, const char *name,
                   const char *ending) {
    char *path = NULL, *text = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);
    int status = out ? write(s, out) : -1;
    if (!out || fclose(out) || asprintf(&path, "%s/%s.%s", directory, name, ending) < 0) {
        path = NULL;
        status = adamod__fail(ADAMOD_ERROR_MEMORY, "%s/%s.%s: out of memory", directory, name, ending);
    }
    if (!status) status = text_write(path, (text_slice){text, n});
    free(path);
    free(text);
    return status;
}

int sheet_save(const sheet *s, const sheet *records, const char *directory, const char *name) {
    const int error = directory_make(directory, NULL);
    if (error) return adamod__fail(ADAMOD_ERROR_IO, "%s: cannot make the directory: %s", directory, strerror(error));
    if (save_as(records ? records : s, sheet_csv, directory, name, "csv")) return -1;
    if (save_as(s, sheet_markdown, directory, name, "md")) return -1;
    return save_as(s, sheet_latex, directory, name, "tex");
}
