#include "report/remarks.h"

#include "core/error.h"
#include "report/page.h"
#include "support/array.h"
#include "support/text.h"

#include <stdlib.h>
#include <string.h>

static int fail_memory(void) { return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory"); }

static int add(remarks *m, const char *text) {
    if (!*text) return 0;
    for (int i = 0; i < m->n; i++) {
        if (strcmp(m->at[i].text, text) == 0) return m->at[i].runs++, 0;
    }
    char *copy = ARRAY_EXTEND(m->at, m->n) ? strdup(text) : NULL;
    if (!copy) return fail_memory();
    m->at[m->n++] = (struct remark_text){copy, 1};
    return 0;
}

int remarks_add_note(remarks *m, const report_run *r) {
    m->runs++;
    return add(m, r->note);
}

int remarks_add_run(remarks *m, const report_run *r) {
    m->own |= *r->own != '\0';
    return remarks_add_note(m, r) || add(m, r->own) ? -1 : 0;
}

int remarks_add_variant(remarks *m, const report_variant *v) {
    for (int i = 0; i < v->n; i++) {
        if (remarks_add_run(m, v->run[i])) return -1;
    }
    return 0;
}

void remarks_free(remarks *m) {
    for (int i = 0; i < m->n; i++) free(m->at[i].text);
    free(m->at);
    *m = (remarks){0};
}

void remarks_words(const remarks *m, int index, char *out, size_t size) {
    const struct remark_text *t = &m->at[index];
    if (t->runs == m->runs) snprintf(out, size, "%s", t->text);
    else snprintf(out, size, "%d of %d runs: %s", t->runs, m->runs, t->text);
}

void remarks_put(const remarks *m, sheet *to, int row, int column) {
    char all[4096] = "";
    for (int i = 0; i < m->n; i++) {
        char words[REMARK];
        remarks_words(m, i, words, sizeof words);
        text_join(all, sizeof all, "; ", words);
    }
    sheet_put(to, row, column, "%s", all);
}

void remarks_note(const remarks *m, sheet *to, int row, int column) {
    for (int i = 0; i < m->n; i++) {
        char words[REMARK];
        remarks_words(m, i, words, sizeof words);
        sheet_note(to, row, column, "%s", words);
    }
}

/* ---- Sentences --------------------------------------------------------------------------------------------------- */

static bool has(const remarks *m, const char *words) {
    for (int i = 0; i < m->n; i++) {
        char own[REMARK];
        remarks_words(m, i, own, sizeof own);
        if (strcmp(own, words) == 0) return true;
    }
    return false;
}

static bool is_in(const remarks *of, int n, const char *words) {
    for (int i = 0; i < n; i++) {
        if (has(&of[i], words)) return true;
    }
    return false;
}

/* Writes one of the different texts: its number, and the names of those that have it. */
typedef void (*write_one)(FILE *out, const char *what, int number, const char *words, const char *names);

/* names is "" if it is all of them. what: handed on. */
static void write_each(FILE *out, const char *what, const remarks *of, const char *const *name, int n,
                       write_one write) {
    for (int i = 0, number = 0; i < n; i++) {
        for (int k = 0; k < of[i].n; k++) {
            char words[REMARK], names[600] = "";
            int with = 0;
            remarks_words(&of[i], k, words, sizeof words);
            if (is_in(of, i, words)) continue;
            for (int j = i; j < n; j++) {
                if (!has(&of[j], words)) continue;
                text_join(names, sizeof names, ", ", name[j]);
                with++;
            }
            write(out, what, ++number, words, what && with == n ? "" : names);
        }
    }
}

int remarks_number(const remarks *of, int variant, int index) {
    char wanted[REMARK], words[REMARK];
    int number = 0;
    remarks_words(&of[variant], index, wanted, sizeof wanted);
    for (int i = 0; i <= variant; i++) {
        for (int k = 0; k < of[i].n; k++) {
            remarks_words(&of[i], k, words, sizeof words);
            number += !is_in(of, i, words);
            if (strcmp(words, wanted) == 0) return number;
        }
    }
    return number;
}

static void write_footnote(FILE *page, const char *what, int number, const char *words, const char *names) {
    (void)what, (void)names;
    html(page, "<p class=\"legend\"><sup>%d</sup> %s</p>\n", number, words);
}

void remarks_footnotes(FILE *page, const remarks *of, const char *const *name, int n) {
    write_each(page, NULL, of, name, n, write_footnote);
}

static void write_sentence(FILE *page, const char *what, int number, const char *words, const char *names) {
    const bool both = *what && *names;
    (void)number;
    html(page, " Note%s%s%s%s%s: %s%s", *what || *names ? " on " : "", what, both ? " (" : "", names, both ? ")" : "",
         words, text_ends(words, ".") ? "" : ".");
}

void remarks_write(FILE *page, const char *what, const remarks *of, const char *const *name, int n) {
    write_each(page, what, of, name, n, write_sentence);
}

static void print_line(FILE *out, const char *what, int number, const char *words, const char *names) {
    (void)what, (void)number;
    text_line(out, "%s: %s", names, words);
}

void remarks_print(FILE *out, const remarks *of, const char *const *name, int n) {
    write_each(out, NULL, of, name, n, print_line);
}

/* ---- Of a report ------------------------------------------------------------------------------------------------- */

int report_remarks_make(report_remarks *out, const report *r) {
    *out = (report_remarks){.of = calloc((size_t)r->n_variants + 1, sizeof *out->of),
                            .name = calloc((size_t)r->n_variants + 1, sizeof *out->name)};
    int status = out->of && out->name ? 0 : fail_memory();
    for (; !status && out->n < r->n_variants; out->n++) {
        out->name[out->n] = r->variant[out->n].name;
        status = remarks_add_variant(&out->of[out->n], &r->variant[out->n]);
    }
    if (status) report_remarks_free(out);
    return status;
}

void report_remarks_free(report_remarks *m) {
    for (int i = 0; m->of && i < m->n; i++) remarks_free(&m->of[i]);
    free(m->of);
    free(m->name);
    *m = (report_remarks){0};
}
