/* comparable.c - which runs may be averaged and which numbers ranked: runs with the same recipe and data are a variant, and
 * numbers compare if they measure the same thing. See variants.h. */
#include "report/variants.h"

#include "support/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static bool same_text(const char *a, const char *b) { return a == b || (a && b && strcmp(a, b) == 0); }

/* Writes words as a list: "a, b and c". */
static void list_words(const char *const *word, int n, char *out, size_t size) {
    if (out && size) *out = '\0';
    for (int i = 0; out && size && i < n; i++) text_join(out, size, i == n - 1 ? " and " : ", ", word[i]);
}

/* ---- Recipes ----------------------------------------------------------------------------------------------------- */

/* Whether a key changes neither training nor measurements. */
static bool only_records(const report_run *r, const char *key) {
    static const char *const keys[] = {"name",
                                       "train.seed",
                                       "train.threads",
                                       "train.log_every",
                                       "train.progress_every",
                                       "train.histogram_dense",
                                       "train.histogram_every",
                                       "train.keep_every",
                                       "train.keep_states",
                                       "decode.samples"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        if (strcmp(key, keys[i]) == 0) return true;
    }
    if (text_begins(key, "generate.")) return true;               /* text of a trained model */
    if (strcmp(key, "train.checkpoint_every") != 0) return false; /* an average is taken over checkpoints */
    const char *average = report_pairs_find(&r->recipe, "train.average");
    return !average || strcmp(average, "0") == 0;
}

/* Whether a key is off, or missing because it is newer. Options of an optimizer have defaults, so they count. */
static bool is_off(const char *key, const char *value) {
    if (!value) return true;
    if (text_begins(key, "optimizer.")) return false;
    return !*value || strcmp(value, "0") == 0 || strcmp(value, "false") == 0 || strcmp(value, "auto") == 0;
}

/* The fingerprint of the data that a key names, in any split; NULL: unknown. */
static const char *content_of(const report_run *r, const char *key) {
    for (size_t i = 0; i < r->data.n; i++) {
        const char *space = strchr(r->data.at[i].key, ' ');
        if (space && strcmp(space + 1, key) == 0) return r->data.at[i].value;
    }
    return NULL;
}

/* Paths may differ if the content is the same. */
static bool same_value(const report_run *a, const report_run *b, const char *key) {
    const char *x = report_pairs_find(&a->recipe, key), *y = report_pairs_find(&b->recipe, key);
    if (same_text(x, y) || (is_off(key, x) && is_off(key, y))) return true;
    const char *content = content_of(a, key);
    return content && same_text(content, content_of(b, key));
}

/* Counts as the same if a run does not tell. */
static bool same_content(const report_run *a, const report_run *b, const char *part) {
    const char *x = report_pairs_find(&a->data, part), *y = report_pairs_find(&b->data, part);
    return !x || !y || strcmp(x, y) == 0;
}

static bool same_recipe(const report_run *a, const report_run *b) {
    for (size_t i = 0; i < a->recipe.n; i++) {
        const char *key = a->recipe.at[i].key;
        if (!only_records(a, key) && !same_value(a, b, key)) return false;
    }
    return true;
}

bool report_same_variant(const report_run *a, const report_run *b) {
    for (size_t i = 0; i < a->data.n; i++) {
        if (!same_content(a, b, a->data.at[i].key)) return false;
    }
    return same_recipe(a, b) && same_recipe(b, a);
}

/* ---- Names ------------------------------------------------------------------------------------------------------- */

static const char *base_name(const report_run *r) { return report_pairs_find(&r->recipe, "name"); }

/* Whether another variant of the same name differs in a part of the data. */
static bool has_own_content(const report *r, int variant, const char *part) {
    const report_run *own = r->variant[variant].run[0];
    for (int i = 0; i < r->n_variants; i++) {
        const report_run *other = r->variant[i].run[0];
        if (i != variant && same_text(base_name(other), base_name(own)) && !same_content(own, other, part)) return true;
    }
    return false;
}

static bool told_apart(const report_run *a, const report_run *b, const report_keys *keys, int n) {
    for (int i = 0; i < n; i++) {
        if (!same_value(a, b, keys->at[i])) return true;
    }
    return false;
}

/* The number of variants of a name that the keys tell apart. */
static int kinds(const report *r, const char *name, const report_keys *keys) {
    int n = 0;
    for (int i = 0; i < r->n_variants; i++) {
        const report_run *run = r->variant[i].run[0];
        bool is_new = same_text(base_name(run), name);
        for (int k = 0; k < i && is_new; k++) {
            const report_run *other = r->variant[k].run[0];
            is_new = !same_text(base_name(other), name) || told_apart(run, other, keys, keys->n);
        }
        n += is_new;
    }
    return n;
}

/* The next key, which together with those chosen tells the most variants apart; on ties the first of the recipe. NULL: none
 * tells more apart. */
static const char *next_key(const report *r, const char *name, const report_keys *keys) {
    const char *best = NULL;
    int most = kinds(r, name, keys);
    for (int i = 0; i < r->n_variants; i++) {
        const report_run *run = r->variant[i].run[0];
        for (size_t k = 0; same_text(base_name(run), name) && k < run->recipe.n; k++) {
            report_keys more = *keys;
            more.at[more.n++] = run->recipe.at[k].key;
            const int n = only_records(run, run->recipe.at[k].key) ? 0 : kinds(r, name, &more);
            if (n <= most) continue;
            most = n;
            best = run->recipe.at[k].key;
        }
    }
    return best;
}

static const char from_key[] = "train.init_from";

void report_telling_keys(const report *r, int variant, report_keys *out) {
    const char *name = base_name(r->variant[variant].run[0]), *key;
    *out = (report_keys){0};
    /* The rule and the initial weights say more than any number. */
    for (int i = 0; i < 2; i++) {
        const int before = kinds(r, name, out);
        out->at[out->n++] = i ? from_key : "optimizer.rule";
        if (kinds(r, name, out) == before) out->n--;
    }
    while (out->n < REPORT_TELLING - 1 && (key = next_key(r, name, out))) out->at[out->n++] = key;
}

/* How many of the first keys tell a variant apart from as many others as all keys do. */
static int enough_keys(const report *r, int variant, const report_keys *keys) {
    const report_run *own = r->variant[variant].run[0];
    int n = 0;
    for (int i = 0; i < r->n_variants; i++) {
        const report_run *other = r->variant[i].run[0];
        if (i == variant || !same_text(base_name(other), base_name(own))) continue;
        if (!told_apart(own, other, keys, keys->n)) continue;
        while (!told_apart(own, other, keys, n)) n++;
    }
    return n;
}

typedef struct words {
    char *out;
    size_t size;
    int n;
} words;

enum { NAMED = 5, VALUE = 40 }; /* most differences in a name, and bytes of a value */

/* Whether a path ends with these parts. */
static bool has_tail(const char *path, const char *tail) {
    const size_t n = strlen(path), m = strlen(tail);
    return n >= m && strcmp(path + n - m, tail) == 0 && (n == m || path[n - m - 1] == '/');
}

/* The value of a variant with the same name as this run, if it has another value for the key; or NULL. */
static const char *other_value(const report *r, int variant, const report_run *own, const char *key,
                               const char *value) {
    const report_run *run = r->variant[variant].run[0];
    const char *other = same_text(base_name(run), base_name(own)) ? report_pairs_find(&run->recipe, key) : NULL;
    return other && strcmp(other, value) != 0 ? other : NULL;
}

/* The shortest end of a path that differs from the paths of namesakes: "ok", or "b/ok" if another has "a/ok". */
static const char *telling_tail(const report *r, const report_run *own, const char *key, const char *value) {
    const char *slash = strrchr(value, '/'), *at = slash && slash[1] ? slash + 1 : value;
    for (int i = 0; i < r->n_variants; i++) {
        const char *other = other_value(r, i, own, key, value);
        while (other && at > value && has_tail(other, at)) {
            for (at--; at > value && at[-1] != '/';) at--;
        }
    }
    return at;
}

/* The length of "base" in "runs/base/checkpoints/best.safetensors", if no variant has other weights of that run. */
static int run_length(const report *r, const report_run *own, const char *value, const char *at) {
    const char *end = strstr(at, "/checkpoints/");
    const int n = end ? (int)(end - at) : (int)strlen(at);
    for (int i = 0; end && i < r->n_variants; i++) {
        const char *other = other_value(r, i, own, from_key, value);
        if (other && strncmp(other, value, (size_t)(end - value) + 1) == 0) return (int)strlen(at);
    }
    return n;
}

/* The end of a long value from a little before the first difference to namesakes. */
static const char *telling_end(const report *r, const report_run *own, const char *key, const char *value) {
    enum { BEFORE = 20 };
    size_t latest = 0;
    for (int i = 0; i < r->n_variants; i++) {
        const char *other = other_value(r, i, own, key, value);
        size_t n = 0;
        while (other && value[n] && value[n] == other[n]) n++;
        if (value[n] && n > latest) latest = n;
    }
    if (latest < VALUE) return value;
    const char *at = value + latest - BEFORE;
    while (((unsigned char)*at & 0xc0) == 0x80) at++;
    return at;
}

static void add_words(words *w, const char *key, const char *value) {
    static const char part[] = "optimizer.";
    const bool from = strcmp(key, from_key) == 0;
    if (w->n++ > NAMED) return;
    if (w->n > NAMED) {
        text_add(w->out, w->size, ", …");
        return;
    }
    if (text_begins(key, part)) key += strlen(part);
    if (strcmp(key, "rule") == 0 || strcmp(key, "schedule.lr") == 0) key = ""; /* the value is clear without the key */
    if (from) key = *value ? "from " : "from scratch";
    text_add(w->out, w->size, "%s%s%s%s", w->n > 1 ? ", " : "", key, *key && !from ? "=" : "", value);
}

/* Adds the part of a value that differs from others. */
static void add_value(words *w, const report *r, const report_run *own, const char *key, const char *value) {
    char shown[VALUE + 16];
    const char *tail = telling_tail(r, own, key, value), *run = strstr(value, "/checkpoints/");
    if (strcmp(key, from_key) == 0 && run && tail > run) { /* weights by the name of their run */
        for (tail = run; tail > value && tail[-1] != '/';) tail--;
    }
    const char *at = strlen(tail) > VALUE ? telling_end(r, own, key, tail) : tail;
    const int whole = strcmp(key, from_key) == 0 ? run_length(r, own, value, at) : (int)strlen(at);
    int n = whole < VALUE ? whole : VALUE;
    while (n < whole && n > 0 && ((unsigned char)at[n] & 0xc0) == 0x80) n--;
    snprintf(shown, sizeof shown, "%s%.*s%s", at > tail ? "…" : "", n, at, n < whole ? "…" : "");
    add_words(w, key, shown);
}

/* Names options that the variant does not have only if nothing else differs. */
void report_difference(const report *r, int variant, const report_keys *keys, char *out, size_t size) {
    const report_run *own = r->variant[variant].run[0];
    const int n = enough_keys(r, variant, keys);
    words w = {.out = out, .size = size};
    *out = '\0';
    for (int i = 0; i < n; i++) {
        const char *value = report_pairs_find(&own->recipe, keys->at[i]);
        if (value) add_value(&w, r, own, keys->at[i], value);
    }
    if (!w.n && n > 0) add_words(&w, keys->at[0], "–");
    for (size_t k = 0; !w.n && k < own->data.n; k++) {
        const report_pair *part = &own->data.at[k];
        if (has_own_content(r, variant, part->key)) add_words(&w, part->key, part->value);
    }
}

/* ---- Ranking ----------------------------------------------------------------------------------------------------- */

/* A number may depend on these besides the quality of the model. */
typedef enum aspect { TASK, TRAIN_DATA, VALID_DATA, TEST_DATA, TOKENS, VOCABULARY, SMOOTHING, ASPECTS } aspect;

static const struct {
    const char *words;
    const char *part;    /* beginning of its keys in report_run.data */
    const char *keys[8]; /* recipe keys for runs without fingerprints */
} aspects[ASPECTS] = {
    [TASK] = {"task", NULL, {"data.task"}},
    [TRAIN_DATA] = {"training data", "train ", {"data.source", "data.target", "data.train", "data.seed"}},
    [VALID_DATA] = {"validation data", "valid ", {"data.valid", "data.valid_source", "data.valid_target"}},
    [TEST_DATA] = {"test data", "test ", {"data.test", "data.test_source", "data.test_target"}},
    [TOKENS] = {"the tokens of their text", NULL, {NULL}},
    [VOCABULARY] = {"vocabulary",
                    "vocabulary target",
                    {"data.tokens", "data.joint", "data.min_count", "data.max_vocab"}},
    [SMOOTHING] = {"label smoothing", NULL, {NULL}},
};

/* Whether a run has fingerprints of an aspect. */
static bool has_parts(const report_run *r, aspect a) {
    for (size_t i = 0; aspects[a].part && i < r->data.n; i++) {
        if (text_begins(r->data.at[i].key, aspects[a].part)) return true;
    }
    return false;
}

/* Codes decide what the tokens of a text are, not which text it is. */
static bool is_codes(const char *part) { return text_ends(part, " data.bpe"); }

/* Fingerprints of raw text do not depend on tokens. */
static const char text_part[] = "text ";

static bool same_raw(const report_run *x, const report_run *y, const char *part) {
    char key[128];
    snprintf(key, sizeof key, "%s%s", text_part, part);
    const char *raw = report_pairs_find(&x->data, key);
    return raw && same_text(raw, report_pairs_find(&y->data, key));
}

static bool same_parts(const report_run *x, const report_run *y, aspect a) {
    for (size_t i = 0; i < x->data.n; i++) {
        const report_pair *p = &x->data.at[i];
        if (!text_begins(p->key, aspects[a].part) || is_codes(p->key)) continue;
        if (same_text(p->value, report_pairs_find(&y->data, p->key))) continue;
        if (!same_raw(x, y, p->key)) return false;
    }
    return true;
}

static bool same_tokens(const report_run *x, const report_run *y) {
    for (size_t i = 0; i < x->data.n; i++) {
        const report_pair *p = &x->data.at[i];
        if (same_raw(x, y, p->key) && !same_text(p->value, report_pairs_find(&y->data, p->key))) return false;
    }
    return true;
}

static bool same_smoothing(const report_run *x, const report_run *y) {
    for (size_t i = 0; i < x->recipe.n; i++) {
        const char *key = x->recipe.at[i].key;
        if (text_ends(key, "smoothing") && !same_value(x, y, key)) return false;
    }
    return true;
}

static bool same_aspect(const report_run *x, const report_run *y, aspect a) {
    if (a == TOKENS) return same_tokens(x, y);
    if (a == SMOOTHING) return same_smoothing(x, y) && same_smoothing(y, x);
    if (has_parts(x, a) && has_parts(y, a)) return same_parts(x, y, a) && same_parts(y, x, a);
    for (const char *const *key = aspects[a].keys; *key; key++) {
        if (!same_value(x, y, *key)) return false;
    }
    return true;
}

static bool is_one_of(const char *name, const char *const *names) {
    while (*names && !same_text(name, *names)) names++;
    return *names;
}

/* Whether the number is a probability of tokens, which depends on the vocabulary. */
static bool is_of_tokens(const report *r, int column) {
    static const char *const names[] = {"loss", "nll", "ppl", "perplexity", "bits", NULL};
    return is_one_of(r->column[column].name, names);
}

/* Whether the number counts right tokens. */
static bool counts_tokens(const report *r, int column) {
    static const char *const names[] = {"accuracy", "exact", "bleu", NULL};
    return is_one_of(r->column[column].name, names);
}

static bool depends(const report *r, int column, aspect a) {
    const bool training = column == REPORT_LOSS, validation = column == REPORT_VALID;
    const bool test = column >= REPORT_FIRST_METRIC && column < REPORT_FIRST_VALID;
    switch (a) {
        case TASK: return true;
        case TRAIN_DATA: return training;
        case VALID_DATA: return validation || (column >= REPORT_FIRST_VALID && column < REPORT_UPDATES);
        case TEST_DATA: return test;
        case TOKENS: return counts_tokens(r, column);
        case VOCABULARY: return is_of_tokens(r, column);
        default: return training || validation;
    }
}

/* Whether all variants with a number in the column agree in an aspect. */
static bool is_shared(const report *r, int column, aspect a) {
    const report_run *first = NULL;
    for (int i = 0; i < r->n_variants; i++) {
        if (!r->variant[i].of[column].n) continue;
        if (!first) first = r->variant[i].run[0];
        if (!same_aspect(first, r->variant[i].run[0], a)) return false;
    }
    return true;
}

bool report_comparable(const report *r, int column, char *why, size_t size) {
    const char *differ[ASPECTS];
    int n = 0;
    for (int a = 0; a < ASPECTS; a++) {
        if (depends(r, column, (aspect)a) && !is_shared(r, column, (aspect)a)) differ[n++] = aspects[a].words;
    }
    list_words(differ, n, why, size);
    return n == 0;
}

/* ---- Times ------------------------------------------------------------------------------------------------------- */

/* Whether two runs have the same value on all their machines; a missing value counts as the same. */
static bool same_of_machine(const report_run *a, const report_run *b, const char *key) {
    for (int i = 0; i < a->n_machines; i++) {
        const char *x = report_pairs_find(&a->machine[i], key);
        for (int k = 0; k < b->n_machines; k++) {
            const char *y = report_pairs_find(&b->machine[k], key);
            if (x && y && strcmp(x, y) != 0) return false;
        }
    }
    return true;
}

/* Lists what differs between the machines of the runs and affects speed; returns how many. */
static int machine_differences(const report *r, char *out, size_t size) {
    static const struct {
        const char *key, *words;
    } facts[] = {{"host", "machine"},          {"processor", "processor"}, {"cores", "number of cores"},
                 {"device", "device"},         {"backend", "backend"},     {"threads", "number of threads"},
                 {"ranks", "number of ranks"}, {"precision", "precision"}};
    enum { FACTS = sizeof facts / sizeof *facts };
    const char *differ[FACTS];
    int n = 0;
    for (int k = 0; k < FACTS; k++) {
        bool same = true;
        for (int i = 0; i < r->n; i++) same &= same_of_machine(&r->run[0], &r->run[i], facts[k].key);
        if (!same) differ[n++] = facts[k].words;
    }
    list_words(differ, n, out, size);
    return n;
}

/* The largest and the least number of runs beside a run; -1: a run does not tell. */
static int most_beside(const report *r, int *least) {
    int most = 0;
    *least = 1 << 30;
    for (int i = 0; i < r->n; i++) {
        int own = -1;
        for (int k = 0; k < r->run[i].n_machines; k++) {
            const char *text = report_pairs_find(&r->run[i].machine[k], "beside");
            if (text && atoi(text) > own) own = atoi(text);
        }
        if (own < 0) return -1;
        if (own > most) most = own;
        if (own < *least) *least = own;
    }
    return most;
}

/* When a run was started, in seconds; NAN: unknown, or it was resumed. */
static double start_of(const report_run *r) {
    const char *text = r->n_machines == 1 ? report_pairs_find(&r->machine[0], "started") : NULL;
    struct tm t = {0};
    if (!text || !strptime(text, "%Y-%m-%dT%H:%M:%SZ", &t)) return NAN;
    return (double)timegm(&t);
}

/* Whether two runs certainly ran at the same time. Starts are rounded down to seconds. */
static bool overlap(const report *r) {
    for (int i = 0; i < r->n; i++) {
        for (int k = 0; k < r->n; k++) {
            const double first = start_of(&r->run[i]), second = start_of(&r->run[k]);
            if (i != k && second + 1 - first <= r->run[i].seconds && first + 1 - second <= r->run[k].seconds)
                return true;
        }
    }
    return false;
}

void report_times(const report *r, char *out, size_t size) {
    int least;
    char differ[120];
    const int most = most_beside(r, &least);
    const char *text =
        most == 0 ? "No other run of a comparison ran beside a run; other load of the machine is not recorded."
        : overlap(r)
            ? "Some of these runs ran at the same time on one machine: this load makes their times incomparable."
            : "Other load of the machine is not recorded: compare times only if it was the same.";
    if (most > 0 && most == least) {
        snprintf(out, size, "Up to %d other run%s of a comparison ran beside each run: times include that load.", most,
                 most == 1 ? "" : "s");
    } else if (most > 0) {
        snprintf(
            out, size,
            "Beside some runs up to %d other%s ran, beside others fewer: this load makes their times incomparable.",
            most, most == 1 ? "" : "s");
    } else if (r->n == 1) {
        *out = '\0';
    } else if (machine_differences(r, differ, sizeof differ)) {
        snprintf(out, size, "The runs differ in %s: their times cannot be compared.", differ);
    } else {
        snprintf(out, size, "%s", text);
    }
}
