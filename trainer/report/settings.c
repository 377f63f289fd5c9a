/* settings.c - differences of the variants, recipes, machines, and the commands that repeat the runs. */
#include "report/page.h"

#include <ctype.h>
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

/* Calls write for every key that not all recipes have with the same value, in the order of the recipes. Returns their number. */
typedef void key_writer(FILE *out, const report *r, const char *key, int variant);

static bool seen_before(const report *r, int run, size_t index) {
    const char *key = r->run[run].recipe.at[index].key;
    for (int i = 0; i < run; i++) {
        if (report_pairs_find(&r->run[i].recipe, key)) return true;
    }
    return false;
}

static int each_difference(FILE *out, const report *r, key_writer *write, int variant) {
    const char *const seed = "train.seed";
    int n = 0;
    for (int i = 0; i < r->n; i++) {
        for (size_t k = 0; k < r->run[i].recipe.n; k++) {
            const char *key = r->run[i].recipe.at[k].key;
            if (is_own(key) || seen_before(r, i, k) || page_common(r, key)) continue;
            if (write) write(out, r, key, variant);
            n++;
        }
    }
    if (n && write && !page_common(r, seed) && report_pairs_find(&r->run[0].recipe, seed)) write(out, r, seed, variant);
    return n;
}

/* Writes a variant's value, or "a / b" if its runs differ. */
static void write_values(FILE *out, const report_variant *v, const char *key) {
    for (int i = 0; i < v->n; i++) {
        const char *value = report_pairs_find(&v->run[i]->recipe, key);
        bool again = false;
        for (int k = 0; k < i && !again; k++) {
            const char *other = report_pairs_find(&v->run[k]->recipe, key);
            again = value == other || (value && other && strcmp(value, other) == 0);
        }
        if (again) continue;
        html(out, "%s%s", i ? " / " : "", !value ? "–" : *value ? value : "\"\"");
    }
}

static void write_value(FILE *out, const report *r, const char *key, int variant) {
    fputs("<td><code>", out);
    write_values(out, &r->variant[variant], key);
    fputs("</code></td>", out);
}

static void write_difference(FILE *out, const report *r, const char *key, int unused) {
    (void)unused;
    html(out, "<tr><th scope=\"row\"><code>%s</code></th>", key);
    for (int i = 0; i < r->n_variants; i++) write_value(out, r, key, i);
    fputs("</tr>\n", out);
}

static void write_key(FILE *out, const report *r, const char *key, int unused) {
    (void)r, (void)unused;
    html(out, "<th scope=\"col\"><code>%s</code></th>", key);
}

/* Has a row for each key, or if there are many variants, for each variant. */
static void write_differences(FILE *out, const report *r) {
    const bool turned = report_is_crowded(r);
    fputs("<p>The recipes differ in these keys alone:</p>\n"
          "<div class=\"scroll\"><table class=\"settings\" aria-label=\"How the recipes differ\">\n<thead><tr>",
          out);
    fprintf(out, "<th scope=\"col\">%s</th>", turned ? "variant" : "key");
    if (turned) (void)each_difference(out, r, write_key, 0);
    for (int i = 0; !turned && i < r->n_variants; i++) html_variant_head(out, r, i, "col");
    fputs("</tr></thead>\n<tbody>\n", out);
    if (!turned) (void)each_difference(out, r, write_difference, 0);
    for (int i = 0; turned && i < r->n_variants; i++) {
        fputs("<tr>", out);
        html_variant_head(out, r, i, "row");
        (void)each_difference(out, r, write_value, i);
        fputs("</tr>\n", out);
    }
    fputs("</tbody></table></div>\n", out);
}

void page_settings(FILE *out, const report *r) {
    page_section(out, r, "settings", "Settings");
    if (each_difference(out, r, NULL, 0)) write_differences(out, r);
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
