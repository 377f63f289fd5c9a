/* standings_tables.c - the results of standings as cells, for a terminal and for files, and as JSON. */
#include "study/standings_parts.h"

#include "core/error.h"
#include "report/welch.h"
#include "support/json.h"
#include "support/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- cells ---- */

enum { CELL = 96 };

/* The columns of a group. */
typedef enum part { TUNED, NUMBER, STARTED, LARGEST, SENSITIVITY, PARTS } part;

/* Whether some group's values are numbers. */
static bool any_numbers(const standings *s) {
    for (int g = 0; s->o.tuned && g < s->n_groups; g++) {
        if (standings_has_numbers(s, g)) return true;
    }
    return false;
}

static bool has_part(const standings *s, part p) {
    if (p == NUMBER) return true;
    if (p == TUNED) return s->o.tuned != NULL;
    if (p == STARTED) return !isnan(s->o.started);
    return any_numbers(s) && (p == SENSITIVITY || !isnan(s->o.started));
}

static int parts(const standings *s) {
    int n = 0;
    for (int p = 0; p < PARTS; p++) n += has_part(s, (part)p);
    return n;
}

static void head_text(const standings *s, int group, part p, char out[CELL]) {
    char what[CELL];
    const char *name = s->group[group];
    if (p == TUNED) snprintf(what, sizeof what, "%s", standings_key(s));
    else if (p == STARTED) snprintf(what, sizeof what, s->o.tuned ? "started: values, runs" : "started");
    else if (p == LARGEST) snprintf(what, sizeof what, "largest %s", standings_key(s));
    else if (p == SENSITIVITY) snprintf(what, sizeof what, "sensitivity");
    else standings_metric_text(&s->metric[group], what, sizeof what);
    snprintf(out, CELL, "%.40s%s%.50s", name, *name ? ": " : "", what);
}

static void value_text(const standings *s, int group, const standing_value *v, char out[CELL]) {
    if (v->finished) report_spread_text(&v->spread, s->metric[group].decimals, 1, out, CELL);
    else snprintf(out, CELL, "%s", v->diverged ? "diverged" : "–");
}

static bool any_diverged(const standing *at) {
    for (int i = 0; i < at->n; i++) {
        if (at->value[i].diverged) return true;
    }
    return false;
}

static void started_text(const standings *s, const standing *at, char out[CELL]) {
    int values = 0, started = 0, runs = 0;
    for (int i = 0; i < at->n; i++) {
        const standing_value *v = &at->value[i];
        values += v->started > 0 && v->started == v->n;
        started += v->started;
        runs += v->finished + v->diverged;
    }
    if (s->o.tuned) snprintf(out, CELL, "%d of %d, %d of %d", values, at->n, started, runs);
    else snprintf(out, CELL, "%d of %d", started, runs);
}

/* The place of a value among those of its variant, as numbers: below 0 the smallest, above 0 the largest. */
static int end_of_list(const standing *at, int value) {
    const double x = standings_number(at->value[value].value);
    int below = 0, above = 0;
    for (int i = 0; i < at->n; i++) {
        below += standings_number(at->value[i].value) < x;
        above += standings_number(at->value[i].value) > x;
    }
    return below + above == 0 ? 0 : !below ? -1 : !above ? 1 : 0;
}

/* If the largest value of all trains, others beyond it may too. */
static void largest_text(const standing *at, char out[CELL]) {
    if (at->largest < 0) snprintf(out, CELL, "none");
    else snprintf(out, CELL, "%s%.80s", end_of_list(at, at->largest) > 0 ? "≥ " : "", at->value[at->largest].value);
}

/* Puts a number of runs, with what is to be said of their data. */
static void put_number(sheet *to, int row, int column, const char *text, const standing_value *v) {
    if (v && v->remarks.own) sheet_put_remark(to, row, column, text, REMARKS_OWN);
    else sheet_put(to, row, column, "%s", text);
    if (v) remarks_note(&v->remarks, to, row, column);
}

/* The best value of a variant; NULL: none. */
static const standing_value *best_of(const standing *at) { return at->best < 0 ? NULL : &at->value[at->best]; }

static void cell_text(const standings *s, int group, int variant, part p, char out[CELL]) {
    const standing *at = standings_at(s, group, variant);
    if (p == STARTED) started_text(s, at, out);
    else if (p == LARGEST) largest_text(at, out);
    else if (p == SENSITIVITY && isnan(at->sensitivity)) snprintf(out, CELL, "–");
    else if (p == SENSITIVITY) snprintf(out, CELL, "%.3f", at->sensitivity);
    else if (at->best < 0) snprintf(out, CELL, "%s", p == NUMBER && any_diverged(at) ? "diverged" : "–");
    else if (p == TUNED) snprintf(out, CELL, "%s", at->value[at->best].value);
    else value_text(s, group, &at->value[at->best], out);
}

/* A footnote on runs that the number leaves out. */
static void note_lacking(sheet *to, int row, int column, const standing_value *v) {
    const int lacking = v->n - v->finished - v->diverged;
    if (v->diverged) sheet_note(to, row, column, "%d of %d runs diverged", v->diverged, v->n);
    if (lacking) sheet_note(to, row, column, "%d of %d runs %s not over", lacking, v->n, lacking > 1 ? "are" : "is");
}

/* A footnote on a best value that says little: one at an end of its list, or one of several that are as good. */
static void note_choice(sheet *to, int row, int column, const standing *at) {
    const int end = end_of_list(at, at->best);
    const double best = at->value[at->best].choosing.mean;
    if (end)
        sheet_note(to, row, column, "the %s of its list: a %s one may be better", end < 0 ? "smallest" : "largest",
                   end < 0 ? "smaller" : "larger");
    for (int i = at->best + 1; i < at->n; i++) {
        const standing_value *v = &at->value[i];
        if (v->finished == v->n && v->choosing.n == v->n && v->choosing.mean == best)
            sheet_note(to, row, column, "%s is as good by what chooses; the first of equal ones counts", v->value);
    }
}

/* Explains when a run counts as started, and what the numbers over all values mean. */
static void values_text(const standings *s, char *out, size_t size) {
    size_t used = 0;
    *out = '\0';
    if (!isnan(s->o.started) && s->o.started_share)
        snprintf(out, size, "A run counts as started if it ends within %g %% of the best mean%s. ", 100 * s->o.started,
                 s->n_groups > 1 ? " of its recipe" : "");
    else if (!isnan(s->o.started))
        snprintf(out, size, "A run counts as started if it ends better than %g. ", s->o.started);
    used = strlen(out);
    if (has_part(s, LARGEST))
        snprintf(out + used, size - used, "Largest %s: all runs with it started. ", standings_key(s));
    used = strlen(out);
    if (has_part(s, SENSITIVITY))
        snprintf(
            out + used, size - used,
            "Sensitivity: the mean over the values of min(loss, loss at the start), less the least; compare it only "
            "between lists of the same width. ");
}

/* A sentence or more: what a number is, how values were chosen, what the seeds can tell. */
static void legend_text(const standings *s, char *out, size_t size) {
    int seeds = 0;
    bool by_loss = false;
    for (int i = 0; i < s->n_groups * s->n_variants; i++) {
        for (int k = 0; k < s->at[i].n; k++) seeds = s->at[i].value[k].n > seeds ? s->at[i].value[k].n : seeds;
    }
    for (int g = 0; g < s->n_groups; g++) by_loss |= s->metric[g].by_loss;
    *out = '\0';
    if (seeds > 1) snprintf(out, size, "Median (mean ± standard deviation) over %d seeds. ", seeds);
    size_t used = strlen(out);
    if (s->o.tuned)
        snprintf(
            out + used, size - used,
            "Each variant has the %s that is best on the validation data%s, of those with which all runs finished. ",
            standings_key(s), by_loss ? ", or by its training loss where no validation data were held out" : "");
    used = strlen(out);
    values_text(s, out + used, size - used);
    used = strlen(out);
    welch_power(seeds, out + used, size - used);
}

sheet *standings_results_sheet(const standings *s) {
    char text[CELL], legend[1600];
    legend_text(s, legend, sizeof legend);
    sheet *to = sheet_create(s->n_variants + 1, 1 + s->n_groups * parts(s), legend);
    if (!to) return NULL;
    sheet_put(to, 0, 0, "variant");
    for (int v = 0; v < s->n_variants; v++) sheet_put(to, v + 1, 0, "%s", s->variant[v]);
    for (int g = 0, column = 1; g < s->n_groups; g++) {
        for (int p = 0; p < PARTS; p++) {
            if (!has_part(s, (part)p)) continue;
            head_text(s, g, (part)p, text);
            sheet_put(to, 0, column, "%s", text);
            for (int v = 0; v < s->n_variants; v++) {
                const standing *at = standings_at(s, g, v);
                cell_text(s, g, v, (part)p, text);
                put_number(to, v + 1, column, text, p == NUMBER ? best_of(at) : NULL);
                if (p == NUMBER && at->best >= 0) note_lacking(to, v + 1, column, &at->value[at->best]);
                if (p == NUMBER && standings_wins(s, g, v)) sheet_bold(to, v + 1, column);
                if (p == TUNED && at->best >= 0) note_choice(to, v + 1, column, at);
            }
            column++;
        }
    }
    return to;
}

/* The value of a variant in a group, by its text; NULL: none. */
static const standing_value *find_value(const standings *s, int group, int variant, const char *value) {
    const standing *at = standings_at(s, group, variant);
    for (int i = 0; i < at->n; i++) {
        if (strcmp(at->value[i].value, value) == 0) return &at->value[i];
    }
    return NULL;
}

static int count_values(const standings *s) {
    int n = 0;
    for (int v = 0; v < s->n_variants; v++) n += standings_at(s, 0, v)->n;
    return n;
}

static void put_value(const standings *s, sheet *to, int row, int variant, const char *value) {
    char text[CELL];
    sheet_put(to, row, 0, "%s", s->variant[variant]);
    sheet_put(to, row, 1, "%s", value);
    for (int g = 0; g < s->n_groups; g++) {
        const standing_value *v = find_value(s, g, variant, value);
        if (!v) continue;
        value_text(s, g, v, text);
        put_number(to, row, 2 + g, text, v);
        note_lacking(to, row, 2 + g, v);
        if (!isnan(s->o.started) && v->started < v->n && v->started > 0)
            sheet_note(to, row, 2 + g, "%d of %d started", v->started, v->n);
    }
}

/* All groups have the same variants and values, since the command line gave them. */
sheet *standings_values_sheet(const standings *s) {
    char text[CELL];
    sheet *to = sheet_create(count_values(s) + 1, 2 + s->n_groups, "Every value of the tuned key.");
    if (!to) return NULL;
    sheet_put(to, 0, 0, "variant");
    sheet_put(to, 0, 1, "%s", standings_key(s));
    for (int g = 0; g < s->n_groups; g++) {
        head_text(s, g, NUMBER, text);
        sheet_put(to, 0, 2 + g, "%s", text);
    }
    for (int v = 0, row = 1; v < s->n_variants; v++) {
        const standing *at = standings_at(s, 0, v);
        for (int i = 0; i < at->n; i++) put_value(s, to, row++, v, at->value[i].value);
    }
    return to;
}

/* ---- the terminal ---- */

static void fill(const standings *s, report_table *t) {
    for (int k = 0; k < t->columns; k++) {
        char(*column)[CELL] = t->cell + k;
        const int g = (k - 1) / parts(s);
        int p = -1;
        for (int left = k ? (k - 1) % parts(s) : -1; left >= 0; left -= has_part(s, (part)p)) p++;
        t->of[k] = p == NUMBER ? 0 : -1;
        if (k == 0) snprintf(column[0], CELL, "variant");
        else head_text(s, g, (part)p, column[0]);
        for (int v = 0; v < s->n_variants; v++) {
            char *cell = column[(v + 1) * t->columns];
            if (k == 0) snprintf(cell, CELL, "%.90s", s->variant[v]);
            else cell_text(s, g, v, (part)p, cell);
            text_plain(cell);
        }
    }
}

/* Calls show with the remarks on the best values of all groups, and whose they are. */
static int with_remarks(const standings *s, void (*show)(FILE *out, const remarks *of, const char *const *name, int n),
                        FILE *out) {
    const int n = s->n_groups * s->n_variants;
    remarks *of = calloc((size_t)n + 1, sizeof *of);
    char(*text)[CELL] = calloc((size_t)n + 1, sizeof *text);
    const char **name = calloc((size_t)n + 1, sizeof *name);
    const bool whole = of && text && name;
    for (int i = 0; whole && i < n; i++) {
        const char *group = s->group[i / s->n_variants];
        const standing_value *best = best_of(&s->at[i]);
        if (best) of[i] = best->remarks; /* borrowed */
        snprintf(text[i], CELL, "%.40s%s%.50s", group, *group ? ": " : "", s->variant[i % s->n_variants]);
        name[i] = text[i];
    }
    if (whole) show(out, of, name, n);
    free(of);
    free(text);
    free(name);
    return whole ? 0 : adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory");
}

static void write_caption(FILE *page, const remarks *of, const char *const *name, int n) {
    remarks_write(page, "", of, name, n);
}

int standings_write_remarks(const standings *s, FILE *page) { return with_remarks(s, write_caption, page); }

int standings_print(const standings *s) {
    report_table t = {.rows = s->n_variants + 1, .columns = 1 + s->n_groups * parts(s)};
    char legend[1600];
    if (t.columns > (int)(sizeof t.of / sizeof *t.of))
        return adamod__refuse("a table of %d recipes is too wide", s->n_groups);
    t.cell = calloc((size_t)t.rows * (size_t)t.columns, sizeof *t.cell);
    if (!t.cell) return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory");
    fill(s, &t);
    report_table_print(&t, stdout, report_width(), isatty(STDOUT_FILENO) != 0);
    legend_text(s, legend, sizeof legend);
    standings_print_tests(s, stdout);
    text_line(stdout, "%s", legend);
    report_table_free(&t);
    return with_remarks(s, remarks_print, stdout);
}

/* ---- files ---- */

enum { RECORD = 15 };

static void put_record(const standings *s, sheet *to, int row, int group, int variant, const standing_value *v) {
    const standing *at = standings_at(s, group, variant);
    const standing_metric *m = &s->metric[group];
    const double numbers[] = {v->spread.median, v->spread.mean, v->spread.std, v->spread.min, v->spread.max};
    char text[32];
    sheet_put(to, row, 0, "%s", s->group[group]);
    sheet_put(to, row, 1, "%s", s->variant[variant]);
    sheet_put(to, row, 2, "%s", v->value ? v->value : "");
    sheet_put(to, row, 3, "%d", at->best >= 0 && v == &at->value[at->best]);
    sheet_put(to, row, 4, "%s", m->name);
    sheet_put(to, row, 5, "%s", m->test || m->by_loss ? "test" : "valid");
    sheet_put(to, row, 6, "%s", m->unit);
    sheet_put(to, row, 7, "%d", v->finished);
    sheet_put(to, row, 8, "%d", v->diverged);
    for (int i = 0; i < 5; i++)
        sheet_put(to, row, 9 + i, "%s", isnan(numbers[i]) ? "" : json_shortest(numbers[i], text));
    remarks_put(&v->remarks, to, row, 14);
}

/* A number of a variant over all its values. */
static void put_whole(const standings *s, sheet *to, int row, int group, int variant, const char *name, double x) {
    const standing_metric *m = &s->metric[group];
    const int columns[] = {9, 10, 12, 13};
    sheet_put(to, row, 0, "%s", s->group[group]);
    sheet_put(to, row, 1, "%s", s->variant[variant]);
    sheet_put(to, row, 4, "%s", name);
    sheet_put(to, row, 5, "%s", m->test || m->by_loss ? "test" : "valid");
    for (int i = 0; i < 4; i++) sheet_put(to, row, columns[i], "%.10g", x);
}

/* "sensitivity" and "largest lr", if there are such numbers. Returns how many. to NULL: only counts. */
static int put_wholes(const standings *s, sheet *to, int row, int group, int variant) {
    const standing *at = standings_at(s, group, variant);
    char name[CELL];
    int n = 0;
    if (!isnan(at->sensitivity)) {
        if (to) put_whole(s, to, row, group, variant, "sensitivity", at->sensitivity);
        n++;
    }
    if (at->largest >= 0) {
        snprintf(name, sizeof name, "largest %.60s", standings_key(s));
        if (to) put_whole(s, to, row + n, group, variant, name, standings_number(at->value[at->largest].value));
        n++;
    }
    return n;
}

static sheet *records(const standings *s) {
    static const char *const heads[RECORD] = {"recipe",   "variant", "value", "best", "metric", "split", "unit", "runs",
                                              "diverged", "median",  "mean",  "std",  "min",    "max",   "notes"};
    int n = 1;
    for (int i = 0; i < s->n_groups * s->n_variants; i++)
        n += s->at[i].n + put_wholes(s, NULL, 0, i / s->n_variants, i % s->n_variants);
    sheet *to = sheet_create(n, RECORD, NULL);
    for (int k = 0; to && k < RECORD; k++) sheet_put(to, 0, k, "%s", heads[k]);
    int row = 1;
    for (int g = 0; to && g < s->n_groups; g++) {
        for (int v = 0; v < s->n_variants; v++) {
            const standing *at = standings_at(s, g, v);
            for (int i = 0; i < at->n; i++) put_record(s, to, row++, g, v, &at->value[i]);
            row += put_wholes(s, to, row, g, v);
        }
    }
    return to;
}

static void add_remarks(json *j, const remarks *m) {
    json_pair_open(j, "notes", '[');
    for (int i = 0; i < m->n; i++) {
        char words[REMARK];
        remarks_words(m, i, words, sizeof words);
        json_string(j, words);
    }
    json_close(j, ']');
}

static void add_value(json *j, const standings *s, const standing_value *v) {
    json_open(j, '{');
    if (v->value) json_pair(j, "value", v->value);
    json_pair_integer(j, "runs", v->n);
    json_pair_integer(j, "finished", v->finished);
    json_pair_integer(j, "diverged", v->diverged);
    if (!isnan(s->o.started)) json_pair_integer(j, "started", v->started);
    json_pair_number(j, "median", v->spread.median);
    json_pair_number(j, "mean", v->spread.mean);
    json_pair_number(j, "std", v->spread.std);
    json_key(j, "results");
    json_open(j, '[');
    for (int i = 0; i < v->finished; i++) json_number(j, v->shown[i]);
    json_close(j, ']');
    if (v->remarks.n) add_remarks(j, &v->remarks);
    json_close(j, '}');
}

static void add_standing(json *j, const standings *s, int group, int variant) {
    const standing *at = standings_at(s, group, variant);
    const standing_metric *m = &s->metric[group];
    json_open(j, '{');
    json_pair(j, "recipe", s->group[group]);
    json_pair(j, "variant", s->variant[variant]);
    json_pair(j, "metric", m->name);
    json_pair(j, "label", m->label);
    json_pair_integer(j, "decimals", m->decimals);
    json_pair(j, "split", m->test || m->by_loss ? "test" : "valid");
    json_pair(j, "chosen_by", m->by_loss ? "training loss" : "validation");
    if (s->o.tuned) json_pair(j, "key", s->o.tuned);
    if (at->best >= 0) json_pair_integer(j, "best", at->best);
    json_pair_boolean(j, "wins", standings_wins(s, group, variant));
    if (!isnan(at->sensitivity)) json_pair_number(j, "sensitivity", at->sensitivity);
    if (at->largest >= 0) json_pair_integer(j, "largest", at->largest);
    if (!isnan(m->limit)) json_pair_number(j, "limit", m->limit);
    json_key(j, "values");
    json_open(j, '[');
    for (int i = 0; i < at->n; i++) add_value(j, s, &at->value[i]);
    json_close(j, ']');
    json_close(j, '}');
}

static int save_json(const standings *s, const char *directory) {
    char path[4096];
    json j = {.spaced = true};
    json_open(&j, '[');
    for (int i = 0; i < s->n_groups * s->n_variants; i++) add_standing(&j, s, i / s->n_variants, i % s->n_variants);
    json_close(&j, ']');
    json_end_line(&j);
    snprintf(path, sizeof path, "%s/%s.json", directory, standings_file_name(s, "results").text);
    const int status = j.failed ? adamod__fail(ADAMOD_ERROR_MEMORY, "%s: out of memory", path)
                                : text_write(path, (text_slice){j.text, j.n});
    json_free(&j);
    return status;
}

standings_name standings_file_name(const standings *s, const char *what) {
    standings_name name;
    const bool first = strcmp(what, "results") == 0;
    if (!s->o.name) snprintf(name.text, sizeof name.text, "%s", what);
    else snprintf(name.text, sizeof name.text, "%.100s%s%s", s->o.name, first ? "" : "-", first ? "" : what);
    return name;
}

/* Writes the files of a table and frees its sheets. A sheet that is NULL is out of memory. */
static int save(const standings *s, const char *directory, const char *what, sheet *of, sheet *records_of) {
    const int status = of && records_of ? sheet_save(of, records_of, directory, standings_file_name(s, what).text)
                                        : adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory");
    sheet_free(of);
    sheet_free(records_of);
    return status;
}

int standings_save(const standings *s, const char *directory) {
    int status = save(s, directory, "results", standings_results_sheet(s), records(s));
    if (!status && standings_count_tests(s))
        status = save(s, directory, "tests", standings_tests_sheet(s), standings_tests_records(s));
    if (!status && s->o.tuned)
        status = save(s, directory, "values", standings_values_sheet(s), standings_values_sheet(s));
    return status ? status : save_json(s, directory);
}
