/* settings.c - differences of the variants, recipes, machines, and the commands that repeat the runs. */
#include "report/page.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* Whether a key differs between the runs of a variant in any case. */
static bool is_own(const char *key) { return strcmp(key, "name") == 0 || strcmp(key, "train.seed") == 0; }

const char *page_common(const report *r, const char *key) {
    const char *value = report_pairs_find(&r->run[0].recipe, key);
    for (int i = 1; value && i < r->n; i++) {
        const char *other = report_pairs_find(&r->run[i].recipe, key);
        if (!other || strcmp(other, value) != 0) return NULL;
    }
    return value;
}

/* ---- Differences ------------------------------------------------------------------------------------------------- */

/* Whether an earlier run has the key. */
static bool seen_before(const report *r, int run, size_t index) {
    const char *key = r->run[run].recipe.at[index].key;
    for (int i = 0; i < run; i++) {
        if (report_pairs_find(&r->run[i].recipe, key)) return true;
    }
    return false;
}

/* Lists the keys that not all recipes have with the same value, in the order of the recipes, and then the seed if it differs
 * too. Returns their number; out NULL: only that. */
static int differences(const report *r, const char **out) {
    static const char seed[] = "train.seed";
    int n = 0;
    for (int i = 0; i < r->n; i++) {
        for (size_t k = 0; k < r->run[i].recipe.n; k++) {
            const char *key = r->run[i].recipe.at[k].key;
            if (is_own(key) || seen_before(r, i, k) || page_common(r, key)) continue;
            if (out) out[n] = key;
            n++;
        }
    }
    if (!n || page_common(r, seed) || !report_pairs_find(&r->run[0].recipe, seed)) return n;
    if (out) out[n] = seed;
    return n + 1;
}

/* A variant's value on the heap, or "a / b" if its runs differ. NULL: no memory. */
static char *values_of(const report_variant *v, const char *key) {
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    for (int i = 0; out && i < v->n; i++) {
        const char *value = report_pairs_find(&v->run[i]->recipe, key);
        bool again = false;
        for (int k = 0; k < i && !again; k++) {
            const char *other = report_pairs_find(&v->run[k]->recipe, key);
            again = value == other || (value && other && strcmp(value, other) == 0);
        }
        if (!again) fprintf(out, "%s%s", i ? " / " : "", !value ? "–" : *value ? value : "\"\"");
    }
    if (out && fclose(out) == 0) return text;
    free(text);
    return NULL;
}

/* The table of differences: a row for each key, a column for each variant. */
static sheet *differences_sheet(const report *r, const char *const *key, int n) {
    sheet *s = sheet_create(n + 1, r->n_variants + 1, "The keys in which the recipes differ.");
    if (s) sheet_put(s, 0, 0, "key");
    for (int i = 0; s && i < r->n_variants; i++) {
        sheet_put(s, 0, i + 1, "%s", r->variant[i].name);
        for (int k = 0; k < n; k++) {
            char *value = values_of(&r->variant[i], key[k]);
            sheet_put(s, k + 1, 0, "%s", key[k]);
            sheet_put(s, k + 1, i + 1, "%s", value ? value : "");
            free(value);
        }
    }
    return s;
}

/* variant, key, value. */
static sheet *differences_records(const report *r, const char *const *key, int n) {
    static const char *const heads[] = {"variant", "key", "value"};
    sheet *s = sheet_under(heads, 3, n * r->n_variants, NULL);
    for (int i = 0; s && i < n * r->n_variants; i++) {
        char *value = values_of(&r->variant[i / n], key[i % n]);
        sheet_put(s, 1 + i, 0, "%s", r->variant[i / n].name);
        sheet_put(s, 1 + i, 1, "%s", key[i % n]);
        sheet_put(s, 1 + i, 2, "%s", value ? value : "");
        free(value);
    }
    return s;
}

static void write_value(FILE *out, const report_variant *v, const char *key) {
    char *value = values_of(v, key);
    html(out, "<td><code>%s</code></td>", value ? value : "");
    free(value);
}

/* A row for each key. */
static void write_by_key(FILE *out, const report *r, const char *const *key, int n) {
    fputs("<th scope=\"col\">key</th>", out);
    for (int i = 0; i < r->n_variants; i++) html_variant_head(out, r, i, "col");
    fputs("</tr></thead>\n<tbody>\n", out);
    for (int k = 0; k < n; k++) {
        html(out, "<tr><th scope=\"row\"><code>%s</code></th>", key[k]);
        for (int i = 0; i < r->n_variants; i++) write_value(out, &r->variant[i], key[k]);
        fputs("</tr>\n", out);
    }
}

/* A row for each variant, if there are many. */
static void write_by_variant(FILE *out, const report *r, const char *const *key, int n) {
    fputs("<th scope=\"col\">variant</th>", out);
    for (int k = 0; k < n; k++) html(out, "<th scope=\"col\"><code>%s</code></th>", key[k]);
    fputs("</tr></thead>\n<tbody>\n", out);
    for (int i = 0; i < r->n_variants; i++) {
        fputs("<tr>", out);
        html_variant_head(out, r, i, "row");
        for (int k = 0; k < n; k++) write_value(out, &r->variant[i], key[k]);
        fputs("</tr>\n", out);
    }
}

static void write_differences(FILE *out, const report *r, page_tables *to) {
    const int n = differences(r, NULL);
    const char **key = n ? calloc((size_t)n, sizeof *key) : NULL;
    if (!key) return;
    (void)differences(r, key);
    fputs("<p>The recipes differ in these keys alone:</p>\n"
          "<div class=\"scroll\"><table class=\"settings\" aria-label=\"How the recipes differ\">\n<thead><tr>",
          out);
    if (report_is_crowded(r)) write_by_variant(out, r, key, n);
    else write_by_key(out, r, key, n);
    fputs("</tbody></table></div>\n", out);
    page_keep(out, to, r, "settings", differences_sheet(r, key, n), differences_records(r, key, n));
    free(key);
}

void page_settings(FILE *out, const report *r, page_tables *to) {
    page_section(out, r, "settings", "Settings");
    write_differences(out, r, to);
    for (int i = 0; i < r->n_variants; i++)
        html(out, "<details><summary>Recipe of %s</summary>\n<pre><code>%s</code></pre></details>\n",
             r->variant[i].name, r->variant[i].run[0]->recipe_text);
    fputs("</section>\n", out);
}

/* ---- Machines ---------------------------------------------------------------------------------------------------- */

/* Ignores the time of the start. */
static bool same_machine(const report_pairs *a, const report_pairs *b) {
    if (a->n != b->n) return false;
    for (size_t i = 0; i < a->n; i++) {
        const char *other = report_pairs_find(b, a->at[i].key);
        if (strcmp(a->at[i].key, "started") != 0 && (!other || strcmp(other, a->at[i].value) != 0)) return false;
    }
    return true;
}

static bool machine_seen(const report *r, int run, int machine) {
    for (int i = 0; i <= run; i++) {
        for (int k = 0; k < (i < run ? r->run[i].n_machines : machine); k++) {
            if (same_machine(&r->run[i].machine[k], &r->run[run].machine[machine])) return true;
        }
    }
    return false;
}

static void write_machine(FILE *out, const report_pairs *m) {
    fputs("<dl>\n", out);
    for (size_t i = 0; i < m->n; i++) {
        fputs("<div><dt>", out);
        html_words(out, m->at[i].key);
        html(out, "</dt><dd>%s</dd></div>\n", m->at[i].value);
    }
    fputs("</dl>\n", out);
}

void page_machines(FILE *out, const report *r) {
    page_section(out, r, "machine", "Machine and build");
    int n = 0, resumed = 0;
    for (int i = 0; i < r->n; i++) {
        resumed += r->run[i].n_machines > 1;
        for (int k = 0; k < r->run[i].n_machines; k++) {
            if (machine_seen(r, i, k)) continue;
            write_machine(out, &r->run[i].machine[k]);
            n++;
        }
    }
    if (!n) fputs("<p>Not recorded.</p>\n", out);
    if (resumed)
        fprintf(out, "<p>%d run%s resumed after an interruption.</p>\n", resumed, resumed == 1 ? " was" : "s were");
    fputs("</section>\n", out);
}

/* ---- Commands ---------------------------------------------------------------------------------------------------- */

/* Writes a word of a shell command, quoted if needed. */
static void write_word(FILE *out, const char *word) {
    bool plain = *word != '\0';
    for (const char *c = word; *c; c++) plain &= isalnum((unsigned char)*c) || strchr("._-/=,:+@%", *c);
    if (plain) {
        html_text(out, word);
        return;
    }
    fputs("&#39;", out);
    for (const char *c = word; *c; c += strcspn(c, "'")) {
        char part[1024];
        if (*c == '\'') {
            fputs("&#39;\\&#39;&#39;", out);
            c++;
        }
        snprintf(part, sizeof part, "%.*s", (int)strcspn(c, "'"), c);
        html_text(out, part);
    }
    fputs("&#39;", out);
}

static void write_set(FILE *out, const char *key, const char *value) {
    char text[1024];
    snprintf(text, sizeof text, "%s=%s", key, value);
    fputs(" \\\n    --set ", out);
    write_word(out, text);
}

/* Writes the options that turn the first run's recipe into this one; an empty value removes an option. */
static void write_sets(FILE *out, const report_pairs *first, const report_pairs *own) {
    for (size_t i = 0; i < own->n; i++) {
        const char *base = report_pairs_find(first, own->at[i].key);
        if (!base || strcmp(base, own->at[i].value) != 0) write_set(out, own->at[i].key, own->at[i].value);
    }
    for (size_t i = 0; i < first->n; i++) {
        if (!report_pairs_find(own, first->at[i].key)) write_set(out, first->at[i].key, "");
    }
}

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

void page_commands(FILE *out, const report *r) {
    page_section(out, r, "again", "Do it again");
    html(out, "<p>With the recipe of %s from above as <code>recipe.yaml</code>:</p>\n<pre><code>", r->variant[0].name);
    for (int i = 0; i < r->n; i++) {
        char directory[300];
        snprintf(directory, sizeof directory, "runs/%s", base_name(r->run[i].directory));
        fputs("adamod train recipe.yaml --out ", out);
        write_word(out, directory);
        if (i) write_sets(out, &r->run[0].recipe, &r->run[i].recipe);
        fputc('\n', out);
    }
    fputs("adamod report runs -o report.html\n</code></pre>\n</section>\n", out);
}
