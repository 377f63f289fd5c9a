/* recipe.c - see recipe.h. The table of keys below is all there is to know about them: defaults and values from a file
 * or --set go the same way into the struct, and help, messages and written recipes come from the same rows.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#define _FILE_OFFSET_BITS 64

#include "recipe.h"

#include "corpus.h"
#include "json.h"
#include "optim/file.h"
#include "text.h"
#include "vocab.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <yaml.h>

/* ---- The keys ---------------------------------------------------------------------------------------------------- */

typedef enum kind { TEXT, FILE_PATH, CHOICE, WHOLE, REAL, SWITCH } kind;

typedef struct key {
    const char *path;
    size_t offset, size;
    const char *standard; /* the default, as text */
    double low, high;     /* of numbers; none needs more than the 53 bits of a double */
    const char *help, *choices;
    kind kind;
    bool below;           /* high itself is too much */
    bool loose;           /* another value may continue a run */
    const char *expected; /* of many choices, in fewer words; NULL: all are named */
} key;

#define AT(field) offsetof(recipe, field), sizeof(((recipe *)0)->field)
#define STRICT false
#define LOOSE true
#define TEXT_KEY(field, standard, loose, help)                                                                         \
    { #field, AT(field), standard, 0, 0, help, NULL, TEXT, false, loose, NULL }
#define PATH_KEY(field, loose, help)                                                                                   \
    { #field, AT(field), "", 0, 0, help, NULL, FILE_PATH, false, loose, NULL }
#define CHOICE_KEY(field, standard, choices, loose, help)                                                              \
    { #field, AT(field), standard, 0, 0, help, choices, CHOICE, false, loose, NULL }
#define WHOLE_KEY(field, standard, low, high, loose, help)                                                             \
    { #field, AT(field), standard, low, high, help, NULL, WHOLE, false, loose, NULL }
#define REAL_KEY(field, standard, low, high, below, loose, help)                                                       \
    { #field, AT(field), standard, low, high, help, NULL, REAL, below, loose, NULL }
#define SWITCH_KEY(field, standard, loose, help)                                                                       \
    { #field, AT(field), standard, 0, 0, help, NULL, SWITCH, false, loose, NULL }
#define MOST 2147483647.0
#define MOST_STEPS 1e15
#define MOST_SEED 9007199254740991.0

/* Written in this order; a section's keys stand together. */
static const key keys[] = {
    TEXT_KEY(name, "numbers", LOOSE, "what runs are called"),
    CHOICE_KEY(data.task, "numbers", "numbers bitext", STRICT, "German number words to English, or files of your own"),
    WHOLE_KEY(data.train, "100000", 1, CORPUS_NUMBERS_TRAIN, STRICT, "numbers: pairs to train on"),
    WHOLE_KEY(data.valid, "500", 1, CORPUS_NUMBERS_HELD_OUT, STRICT, "numbers: pairs held out for validation"),
    WHOLE_KEY(data.test, "1000", 1, CORPUS_NUMBERS_HELD_OUT, STRICT, "numbers: pairs held out for the test"),
    WHOLE_KEY(data.seed, "1", 0, MOST_SEED, STRICT, "numbers: of the choice of training pairs"),
    PATH_KEY(data.source, STRICT, "bitext: a file with a source sentence in each line"),
    PATH_KEY(data.target, STRICT, "bitext: their translations"),
    PATH_KEY(data.valid_source, LOOSE, "bitext: the same for validation"),
    PATH_KEY(data.valid_target, LOOSE, "bitext: their translations"),
    PATH_KEY(data.test_source, LOOSE, "bitext: the same for the test, if there is one"),
    PATH_KEY(data.test_target, LOOSE, "bitext: their translations"),
    CHOICE_KEY(data.tokens, "characters", "words characters", STRICT, "what sentences are made of"),
    SWITCH_KEY(data.joint, "false", STRICT, "one vocabulary for both languages"),
    WHOLE_KEY(data.min_count, "1", 1, MOST, STRICT, "a token seen less often is unknown"),
    WHOLE_KEY(data.max_vocab, "0", 0, MOST, STRICT, "the most frequent tokens kept; 0: all"),
    WHOLE_KEY(data.max_length, "175", 1, 100000, STRICT, "tokens; longer training pairs are left out"),
    REAL_KEY(data.max_ratio, "0", 0, 1000, false, STRICT, "of lengths; other training pairs are left out; 0: none"),
    SWITCH_KEY(data.skip_empty, "true", STRICT,
               "leave out training pairs with an empty side, instead of refusing them"),
    WHOLE_KEY(data.sentences, "0", 0, 1000000, STRICT, "a batch; 0: by tokens"),
    WHOLE_KEY(data.max_tokens, "4000", 1, MOST, STRICT, "by tokens: sentences times the longest of a batch, at most"),

    CHOICE_KEY(model.kind, "transformer", "transformer", STRICT, "the architecture"),
    WHOLE_KEY(model.layers, "6", 1, 1000, STRICT, "of the encoder, and as many of the decoder"),
    WHOLE_KEY(model.d, "128", 2, 65536, STRICT, "numbers for each token"),
    WHOLE_KEY(model.ffn, "256", 1, 1048576, STRICT, "width of the feed-forward layers"),
    WHOLE_KEY(model.heads, "4", 1, 1024, STRICT, "of attention; they share d evenly"),
    SWITCH_KEY(model.pre_norm, "false", STRICT, "normalise before each sublayer instead of after it"),
    SWITCH_KEY(model.share_all, "false", STRICT, "one table for source, target and output; needs data.joint"),
    SWITCH_KEY(model.tie_output, "false", STRICT, "the output's matrix is the target's table"),
    REAL_KEY(model.dropout, "0.1", 0, 1, true, STRICT, "of embeddings and sublayers"),
    REAL_KEY(model.attention_dropout, "0", 0, 1, true, STRICT, "of attention weights"),
    REAL_KEY(model.smoothing, "0.1", 0, 1, true, STRICT, "of labels"),

    TEXT_KEY(optimizer.rule, "adamod", STRICT, "any that 'adamod optim list' names"),

    WHOLE_KEY(train.steps, "900", 1, MOST_STEPS, LOOSE, "updates"),
    WHOLE_KEY(train.accumulate, "1", 1, 1000000, STRICT, "batches for an update"),
    WHOLE_KEY(train.seed, "1", 0, MOST_SEED, STRICT, "of initial parameters, order of batches and dropout"),
    WHOLE_KEY(train.threads, "0", 0, 1024, LOOSE, "0: one for each core"),
    {"train.backend", AT(train.backend), "auto", 0, 0, "where to compute; auto: cuda if there is a GPU, else cpu",
     "auto ref cpu cuda cuda:0 cuda:1 cuda:2 cuda:3 cuda:4 cuda:5 cuda:6 cuda:7", CHOICE, false, LOOSE,
     "auto, ref, cpu, cuda or cuda:0 to cuda:7"},
    CHOICE_KEY(train.precision, "auto", "auto full tf32 mixed", LOOSE,
               "on a GPU: f32, f32 with tf32 products, or bf16 with f32 parameters; auto: mixed"),
    WHOLE_KEY(train.evaluate_every, "100", 0, MOST_STEPS, LOOSE, "updates; 0: at the end only"),
    WHOLE_KEY(train.evaluate_pairs, "64", 0, MOST_STEPS, LOOSE,
              "validation pairs translated at each evaluation, for exact and BLEU; 0: none"),
    WHOLE_KEY(train.checkpoint_every, "100", 0, MOST_STEPS, LOOSE, "updates; 0: at the end only"),
    WHOLE_KEY(train.log_every, "0", 0, MOST, LOOSE,
              "updates for a line of metrics; 0: each of the first 2000, then every 10th"),
    WHOLE_KEY(train.histogram_dense, "100", 0, MOST, LOOSE, "learning-rate histograms of so many first updates"),
    WHOLE_KEY(train.histogram_every, "100", 0, MOST, LOOSE, "and then of every so many; 0: of no more"),
    WHOLE_KEY(train.average, "0", 0, 1000, LOOSE, "at the end, the mean of so many last checkpoints; 0: none"),
    CHOICE_KEY(train.nonfinite, "stop", "stop skip", LOOSE, "what to do with a loss that is not finite"),

    WHOLE_KEY(decode.beam, "4", 1, 64, LOOSE, "hypotheses kept for each sentence; 1: greedy"),
    WHOLE_KEY(decode.max_length, "200", 1, 100000, LOOSE, "tokens of a translation"),
    REAL_KEY(decode.length_penalty, "1", 0, 100, false, LOOSE, "the power of its length that a score is divided by"),
    WHOLE_KEY(decode.samples, "20", 0, 1000000, LOOSE, "translations kept for the report"),
};
enum { KEYS = sizeof keys / sizeof *keys };
_Static_assert(sizeof keys / sizeof *keys <= RECIPE_MAX_KEYS, "recipe.line is too short");

static const char *const sections[] = {"data", "model", "optimizer", "optimizer.schedule", "train", "decode"};
enum { SECTIONS = sizeof sections / sizeof *sections };

static const char option_section[] = "optimizer.", schedule_section[] = "optimizer.schedule.";

static int find_key(const char *path) {
    for (int i = 0; i < KEYS; i++) {
        if (strcmp(keys[i].path, path) == 0) return i;
    }
    return -1;
}

static int find_section(const char *path) {
    for (int i = 0; i < SECTIONS; i++) {
        if (strcmp(sections[i], path) == 0) return i;
    }
    return -1;
}

/* ---- Messages ---------------------------------------------------------------------------------------------------- */

/* Where a value came from, and where to complain about it. */
typedef struct place {
    const char *flag; /* "--beam": a flag of its own that stands for the key; NULL: none */
    const char *file;
    int line;   /* as in recipe.line */
    int column; /* 0: not known */
    char *message;
    size_t size;
} place;

static int fail(const place *at, const char *format, ...) __attribute__((format(printf, 2, 3)));
static int fail(const place *at, const char *format, ...) {
    char line[2048];
    int used = 0;
    if (at->flag) used = 0;
    else if (at->column > 0) used = snprintf(line, sizeof line, "%.1000s:%d:%d: ", at->file, at->line, at->column);
    else if (at->line > 0) used = snprintf(line, sizeof line, "%.1000s:%d: ", at->file, at->line);
    else if (at->line < 0) used = snprintf(line, sizeof line, "--set: ");
    else if (at->file && *at->file) used = snprintf(line, sizeof line, "%.1000s: ", at->file);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line + used, sizeof line - (size_t)used, format, arguments);
    va_end(arguments);
    for (char *c = line; *c; c++) {
        if (iscntrl((unsigned char)*c)) *c = '?'; /* one line, whatever a file's name or a key holds */
    }
    return text_fail(at->message, at->size, "%s", line);
}

typedef struct shown {
    char text[48];
} shown;

/* The beginning of a text that came from outside. */
static shown show(const char *text) {
    shown out;
    size_t end = sizeof out.text - 4;
    if ((size_t)snprintf(out.text, sizeof out.text, "%s", text) < sizeof out.text) return out;
    while (end && ((unsigned char)out.text[end] & 0xc0) == 0x80) end--; /* not within a code point */
    memcpy(out.text + end, "...", 4);
    return out;
}

/* Edit distance; what is too long for a key is far from all. */
static int distance(const char *a, const char *b) {
    enum { LONGEST = 48 };
    int row[LONGEST + 1];
    const int n = (int)strlen(b);
    if (strlen(a) > LONGEST || n > LONGEST) return LONGEST;
    for (int j = 0; j <= n; j++) row[j] = j;
    for (int i = 1; a[i - 1]; i++) {
        int diagonal = row[0];
        row[0] = i;
        for (int j = 1; j <= n; j++) {
            const int change = diagonal + (tolower((unsigned char)a[i - 1]) != b[j - 1]);
            const int insert = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            diagonal = row[j];
            row[j] = change < insert ? change : insert;
        }
    }
    return row[n];
}

static const char *leaf(const char *path) {
    const char *dot = strrchr(path, '.');
    return dot ? dot + 1 : path;
}

/* The section, or with keys_too the key, that a mistyped path is nearest to: some third of it wrong. Or NULL. */
static const char *nearest(const char *path, bool keys_too) {
    const char *best = NULL;
    const int n = (int)strlen(path);
    int least = n >= 6 ? n / 3 : n >= 4 ? 2 : 1; /* two letters that changed places are two mistakes */
    for (int i = 0; i < SECTIONS + (keys_too ? KEYS : 0); i++) {
        const char *candidate = i < SECTIONS ? sections[i] : keys[i - SECTIONS].path;
        const int d = distance(path, candidate);
        if (d > least || (d == least && best)) continue;
        best = candidate;
        least = d;
    }
    return best;
}

/* The key or section that was meant: right but for its section, or mistyped. False if there is none. */
static bool suggest(const char *path, char *out, size_t size) {
    const char *dot = strrchr(path, '.'), *near = NULL;
    char section[64] = "";
    if (dot && (size_t)(dot - path) < sizeof section) memcpy(section, path, (size_t)(dot - path));
    for (int i = 0; !near && i < KEYS; i++) {
        if (strcmp(leaf(keys[i].path), leaf(path)) == 0) near = keys[i].path;
    }
    if (!near && *section && find_section(section) < 0) {
        const char *other = nearest(section, false);
        if (other && strncmp(other, option_section, strlen("optimizer")) == 0) { /* any leaf may be an option */
            return snprintf(out, size, "%s.%s", other, show(leaf(path)).text) > 0;
        }
    }
    if (!near) near = nearest(path, true);
    return near && snprintf(out, size, "%s", near) > 0;
}

/* The names that stand below a section ("": at the top), for a message. */
static const char *names_in(const char *section, char *out, size_t size) {
    const size_t length = strlen(section);
    size_t used = 0;
    *out = '\0';
    for (int i = 0; i < KEYS + SECTIONS; i++) {
        const char *path = i < KEYS ? keys[i].path : sections[i - KEYS];
        if (length && (strncmp(path, section, length) != 0 || path[length] != '.')) continue;
        const char *name = path + length + (length > 0);
        if (strchr(name, '.')) continue;
        used += (size_t)snprintf(out + used, size - used, "%s%s", used ? ", " : "", name);
        if (used >= size) break;
    }
    return out;
}

static int no_such_key(const place *at, const char *path) {
    char section[64] = "", text[512];
    const char *dot = strrchr(path, '.');
    if (suggest(path, text, sizeof text)) return fail(at, "%s: no such key; did you mean %s?", show(path).text, text);
    if (dot && (size_t)(dot - path) < sizeof section) memcpy(section, path, (size_t)(dot - path));
    if (find_section(section) < 0) *section = '\0';
    return fail(at, "%s: no such key; %s has %s", show(path).text, *section ? section : "a recipe",
                names_in(section, text, sizeof text));
}

/* "a whole number from 1 to 1000", "words or characters" */
static const char *expectation(const key *k, char *out, size_t size) {
    switch (k->kind) {
        case TEXT: snprintf(out, size, "a text of at most %zu bytes", k->size - 1); break;
        case FILE_PATH: snprintf(out, size, "the path of a file"); break;
        case WHOLE: snprintf(out, size, "a whole number from %.15g to %.16g", k->low, k->high); break;
        case REAL:
            snprintf(out, size, k->below ? "a number from %g to less than %g" : "a number from %g to %g", k->low,
                     k->high);
            break;
        case SWITCH: snprintf(out, size, "true or false"); break;
        case CHOICE: {
            if (k->expected) return snprintf(out, size, "%s", k->expected), out;
            const char *last = strrchr(k->choices, ' ');
            size_t used = 0;
            for (const char *c = k->choices; *c && used + 5 < size; c++) {
                if (*c != ' ') out[used++] = *c;
                else used += (size_t)snprintf(out + used, size - used, c == last ? " or " : ", ");
            }
            out[used] = '\0';
        }
    }
    return out;
}

static int wrong_value(const place *at, const key *k, const char *text) {
    char expected[128];
    expectation(k, expected, sizeof expected);
    const char *name = at->flag ? at->flag : k->path;
    if (!*text) return fail(at, "%s is empty, expected %s", name, expected);
    return fail(at, "%s is '%s', expected %s", name, show(text).text, expected);
}

/* ---- Values ------------------------------------------------------------------------------------------------------ */

/* Decimal, with a fraction and an exponent if wanted: no hexadecimal, no infinity, nothing before or after. */
static bool parse_number(const char *text, double *out) {
    const char *c = text + (*text == '-' || *text == '+');
    size_t digits = strspn(c, "0123456789");
    c += digits;
    if (*c == '.') {
        const size_t fraction = strspn(++c, "0123456789");
        c += fraction;
        digits += fraction;
    }
    if (!digits) return false;
    if (*c == 'e' || *c == 'E') {
        c++;
        c += *c == '-' || *c == '+';
        const size_t exponent = strspn(c, "0123456789");
        if (!exponent) return false;
        c += exponent;
    }
    *out = strtod(text, NULL);
    return !*c;
}

static bool is_choice(const char *choices, const char *text) {
    const size_t n = strlen(text);
    for (const char *c = choices; *c; c += *c == ' ') {
        const size_t length = strcspn(c, " ");
        if (length == n && memcmp(c, text, n) == 0) return true;
        c += length;
    }
    return false;
}

/* What a text key may hold: any UTF-8 without control characters, which fits into one line of YAML and of a message. */
static int check_text(const place *at, const char *path, const char *text, size_t room) {
    if (strlen(text) >= room) return fail(at, "%s is longer than %zu bytes", show(path).text, room - 1);
    for (text_slice rest = text_of(text); rest.n;) {
        const size_t n = text_code_point(rest);
        if (!n) return fail(at, "%s is not UTF-8", show(path).text);
        if (n == 1 && iscntrl((unsigned char)*rest.bytes)) {
            return fail(at, "%s holds a control character or a line's end", show(path).text);
        }
        rest.bytes += n;
        rest.n -= n;
    }
    return 0;
}

/* What is written into a run's directory must mean the same from there, so a path is made absolute at once. */
static int absolute_path(const place *at, const key *k, const char *text, char *out) {
    char here[RECIPE_PATH] = "";
    const char *slash = at->line > 0 ? strrchr(at->file, '/') : NULL;
    const int base = slash ? (int)(slash - at->file) : 0;
    if (*text && *text != '/' && !(slash && at->file[0] == '/') && !getcwd(here, sizeof here)) {
        return fail(at, "%s: cannot tell the current directory: %s", k->path, strerror(errno));
    }
    int n = snprintf(out, k->size, "%s", text);
    if (*text && *text != '/') {
        n = snprintf(out, k->size, "%s%s%.*s/%s", strcmp(here, "/") == 0 ? "" : here, *here && base ? "/" : "", base,
                     slash ? at->file : "", text);
    }
    return (size_t)n < k->size ? 0 : fail(at, "%s is longer than %zu bytes in full", k->path, k->size - 1);
}

static int set_text(const place *at, const key *k, const char *text, char *field) {
    char whole[RECIPE_PATH];
    if (k->kind == CHOICE && !is_choice(k->choices, text)) return wrong_value(at, k, text);
    if (check_text(at, k->path, text, k->size)) return -1;
    if (k->kind == FILE_PATH) {
        if (absolute_path(at, k, text, whole)) return -1;
        text = whole;
    }
    memset(field, 0, k->size); /* so that equal recipes have equal bytes */
    memcpy(field, text, strlen(text));
    return 0;
}

static int set_number(const place *at, const key *k, const char *text, char *field) {
    double x;
    if (!parse_number(text, &x) || !(x >= k->low && (k->below ? x < k->high : x <= k->high))) {
        return wrong_value(at, k, text);
    }
    if (k->kind == REAL) {
        memcpy(field, &x, sizeof x);
    } else {
        const int64_t whole = (int64_t)x;
        const int narrow = (int)(k->size == sizeof narrow ? whole : 0);
        if ((double)whole != x) return wrong_value(at, k, text);
        if (k->size == sizeof narrow) memcpy(field, &narrow, sizeof narrow);
        else memcpy(field, &whole, sizeof whole);
    }
    return 0;
}

static int set_value(recipe *r, const key *k, const char *text, const place *at) {
    char *field = (char *)r + k->offset;
    if (k->kind == WHOLE || k->kind == REAL) return set_number(at, k, text, field);
    if (k->kind != SWITCH) return set_text(at, k, text, field);
    const bool on = strcmp(text, "true") == 0;
    if (!on && strcmp(text, "false") != 0) return wrong_value(at, k, text);
    memcpy(field, &on, sizeof on);
    return 0;
}

/* The way back, for writing and comparing. Returns out, or the text itself. */
static const char *value_text(const recipe *r, const key *k, char out[32]) {
    const char *field = (const char *)r + k->offset;
    double x;
    int64_t whole;
    int narrow;
    switch (k->kind) {
        case TEXT:
        case FILE_PATH:
        case CHOICE: return field;
        case SWITCH: return *(const bool *)field ? "true" : "false";
        case REAL: memcpy(&x, field, sizeof x); return json_shortest(x, out);
        case WHOLE: break;
    }
    memcpy(&narrow, field, sizeof narrow);
    if (k->size == sizeof narrow) whole = narrow;
    else memcpy(&whole, field, sizeof whole);
    snprintf(out, 32, "%lld", (long long)whole);
    return out;
}

/* ---- Options and schedules of the optimizer ---------------------------------------------------------------------- */

typedef struct pair_list {
    recipe_pair *pairs;
    int *n, most;
} pair_list;

static recipe_pair *find_pair(const pair_list *list, const char *name) {
    for (int i = 0; i < *list->n; i++) {
        if (strcmp(list->pairs[i].key, name) == 0) return &list->pairs[i];
    }
    return NULL;
}

static void remove_pair(const pair_list *list, recipe_pair *pair) {
    recipe_pair *last = &list->pairs[--*list->n];
    memmove(pair, pair + 1, (size_t)(last - pair) * sizeof *pair);
    memset(last, 0, sizeof *last);
}

static int set_pair(const pair_list *list, const char *path, const char *text, const place *at) {
    const char *name = leaf(path);
    recipe_pair *pair = find_pair(list, name);
    if (pair && pair->line > 0 && at->line > 0) {
        return fail(at, "%s is given twice, first in line %d", show(path).text, pair->line);
    }
    if (!*text && at->line < 0) {
        if (!pair) return fail(at, "%s is not given, so it cannot be taken away", show(path).text);
        remove_pair(list, pair);
        return 0;
    }
    if (!*text) return fail(at, "%s is empty", show(path).text);
    if (check_text(at, path, text, sizeof pair->value)) return -1;
    if (!pair && *list->n == list->most)
        return fail(at, "%s is one too many: at most %d are possible", show(path).text, list->most);
    if (!pair) pair = &list->pairs[(*list->n)++];
    memset(pair, 0, sizeof *pair);
    memcpy(pair->key, name, strlen(name));
    memcpy(pair->value, text, strlen(text));
    pair->line = at->line;
    return 0;
}

/* Whether the library can be asked about it; it knows which exist. */
static bool is_option_name(const char *name) {
    const size_t n = strlen(name);
    if (!n || n >= sizeof((recipe_pair *)0)->key) return false;
    for (size_t i = 0; i < n; i++) {
        if (!isalnum((unsigned char)name[i]) && name[i] != '_' && name[i] != '-') return false;
    }
    return true;
}

/* Any key of any kind; the one way into a recipe. */
static int set_path(recipe *r, const char *path, const char *text, const place *at) {
    const int index = find_key(path);
    if (index >= 0) {
        if (r->line[index] > 0 && at->line > 0) {
            return fail(at, "%s is given twice, first in line %d", path, r->line[index]);
        }
        if (set_value(r, &keys[index], text, at)) return -1;
        r->line[index] = at->line;
        return 0;
    }
    if (find_section(path) >= 0) return fail(at, "%s is a section: its keys are set one by one", path);
    const bool schedule = strncmp(path, schedule_section, strlen(schedule_section)) == 0;
    const char *section = schedule ? schedule_section : option_section, *name = path + strlen(section);
    if (strncmp(path, section, strlen(section)) != 0 || !is_option_name(name)) return no_such_key(at, path);
    const pair_list options = {r->optimizer.option, &r->optimizer.n_options, RECIPE_MAX_OPTIONS};
    const pair_list schedules = {r->optimizer.schedule, &r->optimizer.n_schedules, RECIPE_MAX_SCHEDULES};
    return set_pair(schedule ? &schedules : &options, path, text, at);
}

void recipe_defaults(recipe *r) {
    char message[256];
    const place at = {.message = message, .size = sizeof message};
    memset(r, 0, sizeof *r);
    for (int i = 0; i < KEYS; i++) (void)set_value(r, &keys[i], keys[i].standard, &at);
}

int recipe_set(recipe *r, const char *assignment, char *message, size_t size) {
    const place at = {.line = -1, .message = message, .size = size};
    const char *equals = strchr(assignment, '=');
    char path[256];
    if (!equals || equals == assignment) return fail(&at, "'%s' is not KEY=VALUE", show(assignment).text);
    if ((size_t)(equals - assignment) >= sizeof path) return fail(&at, "%s: no such key", show(assignment).text);
    snprintf(path, sizeof path, "%.*s", (int)(equals - assignment), assignment);
    return set_path(r, path, equals + 1, &at);
}

int recipe_set_flag(recipe *r, const char *flag, const char *path, const char *value, char *message, size_t size) {
    const place at = {.flag = flag, .line = -1, .message = message, .size = size};
    return set_path(r, path, value, &at);
}

/* ---- Reading YAML ------------------------------------------------------------------------------------------------ */

enum { MOST_BYTES = 1 << 20 };

typedef struct reader {
    yaml_parser_t yaml;
    recipe *r;
    place at;
    const char *text;
    size_t n;
    int section_line[SECTIONS]; /* 0: not met yet */
} reader;

static int fail_yaml(const reader *in) {
    const yaml_parser_t *p = &in->yaml;
    const char *problem = p->problem ? p->problem : "unknown error", *context = p->context ? p->context : "";
    place at = in->at;
    if (p->error == YAML_MEMORY_ERROR) return fail(&at, "out of memory");
    if (p->error == YAML_READER_ERROR) { /* for these alone libyaml gives an offset, not a line */
        at.line = at.column = 1;
        for (size_t i = 0; i < p->problem_offset && i < in->n; i++) {
            at.column++;
            if (in->text[i] == '\n') at.line++, at.column = 1;
        }
    } else {
        at.line = (int)p->problem_mark.line + 1;
        at.column = (int)p->problem_mark.column + 1;
    }
    const bool tab = p->problem_mark.index < in->n && in->text[p->problem_mark.index] == '\t';
    if (p->error == YAML_SCANNER_ERROR && tab) return fail(&at, "not YAML: a tab; sections are indented with spaces");
    return fail(&at, "not YAML: %s%s%s", problem, *context ? ", " : "", context);
}

/* The next event, to be deleted; its line becomes the place of messages. What recipes have no use for is refused. */
static int next_event(reader *in, yaml_event_t *event) {
    if (!yaml_parser_parse(&in->yaml, event)) return fail_yaml(in);
    in->at.line = (int)event->start_mark.line + 1;
    const bool scalar = event->type == YAML_SCALAR_EVENT, map = event->type == YAML_MAPPING_START_EVENT;
    const void *anchor = scalar ? event->data.scalar.anchor : map ? event->data.mapping_start.anchor : NULL;
    const void *tag = scalar ? event->data.scalar.tag : map ? event->data.mapping_start.tag : NULL;
    if (event->type != YAML_ALIAS_EVENT && !anchor && !tag) return 0;
    yaml_event_delete(event);
    return fail(&in->at,
                "anchors (&), aliases (*) and tags (!) have no place in a recipe; quote a text that begins so");
}

static bool is_null(const yaml_event_t *event) {
    const char *text = (const char *)event->data.scalar.value;
    return event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
           (!*text || !strcmp(text, "~") || !strcmp(text, "null"));
}

/* The path of a key in a section. */
static int join_path(const reader *in, const char *section, const yaml_event_t *event, char *out, size_t size) {
    if (event->type != YAML_SCALAR_EVENT) {
        return fail(&in->at, "%s%sa key is a %s, expected a word", section, *section ? ": " : "",
                    event->type == YAML_SEQUENCE_START_EVENT ? "list" : "section");
    }
    const char *name = (const char *)event->data.scalar.value;
    if (strlen(name) != event->data.scalar.length || !*name)
        return fail(&in->at, "a key is empty or holds a zero byte");
    const int n = snprintf(out, size, "%s%s%s", section, *section ? "." : "", name);
    if ((size_t)n >= size) return fail(&in->at, "%s: no such key", show(name).text);
    const char *dot = strchr(name, '.');
    if (!dot) return 0;
    return fail(&in->at, "%s: sections are not written with dots in a file: put %s below %.*s:", show(name).text,
                show(dot + 1).text, (int)(dot - name < 40 ? dot - name : 40), name);
}

static int read_section(reader *in, const char *section);

static int read_subsection(reader *in, const char *path, int index) {
    if (in->section_line[index]) {
        return fail(&in->at, "%s is given twice, first in line %d", path, in->section_line[index]);
    }
    in->section_line[index] = in->at.line;
    return read_section(in, path);
}

static int read_value(reader *in, const char *path, const yaml_event_t *event) {
    const int section = find_section(path), index = find_key(path);
    const bool scalar = event->type == YAML_SCALAR_EVENT;
    char expected[128] = "a value";
    if (section >= 0 && event->type == YAML_MAPPING_START_EVENT) return read_subsection(in, path, section);
    if (section >= 0 && scalar && is_null(event)) return 0; /* all its keys are commented out */
    if (scalar && strlen((const char *)event->data.scalar.value) != event->data.scalar.length) {
        return fail(&in->at, "%s holds a zero byte", show(path).text);
    }
    if (scalar) return set_path(in->r, path, is_null(event) ? "" : (const char *)event->data.scalar.value, &in->at);
    if (section < 0 && index < 0 && strncmp(path, option_section, strlen(option_section)) != 0)
        return no_such_key(&in->at, path);
    if (index >= 0) expectation(&keys[index], expected, sizeof expected);
    return fail(&in->at, "%s is a %s, expected %s", show(path).text,
                event->type == YAML_SEQUENCE_START_EVENT ? "list" : "section",
                section >= 0 ? "a section: keys with values" : expected);
}

/* Up to the end of a mapping that has begun. It is no deeper than the sections are. */
static int read_section(reader *in, const char *section) {
    for (;;) {
        yaml_event_t event;
        char path[256];
        if (next_event(in, &event)) return -1;
        const bool end = event.type == YAML_MAPPING_END_EVENT;
        int status = end ? 0 : join_path(in, section, &event, path, sizeof path);
        const int line = in->at.line;
        yaml_event_delete(&event);
        if (end || status) return status;
        if (next_event(in, &event)) return -1;
        in->at.line = line; /* the key's: an empty value has none of its own */
        status = read_value(in, path, &event);
        yaml_event_delete(&event);
        if (status) return -1;
    }
}

/* A stream of one document that is a mapping. */
static int read_document(reader *in) {
    static const yaml_event_type_t expected[] = {YAML_STREAM_START_EVENT, YAML_DOCUMENT_START_EVENT,
                                                 YAML_MAPPING_START_EVENT, YAML_DOCUMENT_END_EVENT,
                                                 YAML_STREAM_END_EVENT};
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        yaml_event_t event;
        if (next_event(in, &event)) return -1;
        const yaml_event_type_t type = event.type;
        yaml_event_delete(&event);
        if (type == YAML_STREAM_END_EVENT && i == 1) return fail(&in->at, "it is empty, expected keys with values");
        if (type == YAML_DOCUMENT_START_EVENT && i == 4) return fail(&in->at, "a second document begins, expected one");
        if (type != expected[i]) return fail(&in->at, "expected keys with values ('name: ...')");
        if (i == 2 && read_section(in, "")) return -1;
    }
    return 0;
}

int recipe_parse(recipe *r, const char *text, size_t n, const char *name, char *message, size_t size) {
    recipe copy = *r;
    reader in = {.r = &copy, .at = {.file = name, .message = message, .size = size}, .text = text, .n = n};
    if (n > MOST_BYTES) return fail(&in.at, "it is larger than %d bytes, expected a recipe", MOST_BYTES);
    if (n && memchr(text, 0, n)) return fail(&in.at, "it holds a zero byte, expected text in UTF-8");
    snprintf(copy.file, sizeof copy.file, "%s", name);
    /* The lines of another file mean nothing here. */
    for (int i = 0; i < KEYS; i++) copy.line[i] = copy.line[i] > 0 ? 0 : copy.line[i];
    for (int i = 0; i < copy.optimizer.n_options; i++) copy.optimizer.option[i].line = 0;
    for (int i = 0; i < copy.optimizer.n_schedules; i++) copy.optimizer.schedule[i].line = 0;
    if (!yaml_parser_initialize(&in.yaml)) return fail(&in.at, "out of memory");
    yaml_parser_set_input_string(&in.yaml, (const unsigned char *)(n ? text : ""), n);
    const int status = read_document(&in);
    yaml_parser_delete(&in.yaml);
    if (status == 0) *r = copy;
    return status;
}

int recipe_load(recipe *r, const char *path, char *message, size_t size) {
    const place at = {.file = path, .message = message, .size = size};
    struct stat st;
    const int fd = adamod__file_open(path, O_RDONLY);
    if (fd < 0) return fail(&at, "%s", strerror(errno));
    if (fstat(fd, &st) == 0 && S_ISDIR(st.st_mode)) {
        close(fd);
        return fail(&at, "it is a directory, expected a YAML file");
    }
    char *text = malloc(MOST_BYTES + 1);
    size_t n = 0;
    ssize_t got = 1;
    while (text && got != 0 && n <= MOST_BYTES) { /* one byte more than allowed tells that there is more */
        got = read(fd, text + n, MOST_BYTES + 1 - n);
        if (got < 0 && errno != EINTR) break;
        if (got > 0) n += (size_t)got;
    }
    const int error = errno;
    close(fd);
    int status = -1;
    if (!text) (void)fail(&at, "out of memory");
    else if (got < 0) (void)fail(&at, "cannot read: %s", strerror(error));
    else status = recipe_parse(r, text, n, path, message, size);
    free(text);
    return status;
}

/* ---- Checking and comparing -------------------------------------------------------------------------------------- */

static place place_of(const recipe *r, int line, char *message, size_t size) {
    return (place){.file = r->file, .line = line, .message = message, .size = size};
}

static place place_of_key(const recipe *r, const char *path, char *message, size_t size) {
    return place_of(r, r->line[find_key(path)], message, size);
}

/* The library's last error without "adamod: " and the rule's name, which a message about a key need not say. */
static const char *library_words(const recipe *r) {
    const char *text = adamod_last_error();
    const char *const skip[] = {"adamod", r->optimizer.rule};
    for (int i = 0; i < 2; i++) {
        const size_t n = strlen(skip[i]);
        if (strncmp(text, skip[i], n) == 0 && strncmp(text + n, ": ", 2) == 0) text += n + 2;
    }
    return text;
}

static bool any_rule_has(const char *option) {
    adamod_option unused;
    for (int i = 0; adamod_rule_name(i); i++) {
        if (adamod_option_find(adamod_rule_name(i), option, &unused) == ADAMOD_OK) return true;
    }
    return false;
}

/* Another rule was chosen than the options are for: all that it has not, as flags that take them away. */
static int foreign_option(const recipe *r, const char *option, const place *at) {
    char flags[1024] = "";
    adamod_option unused;
    int n = 0;
    for (int i = 0; i < r->optimizer.n_options; i++) {
        const char *other = r->optimizer.option[i].key;
        const size_t used = strlen(flags);
        if (adamod_option_find(r->optimizer.rule, other, &unused) != ADAMOD_ERROR_NAME || !any_rule_has(other))
            continue;
        snprintf(flags + used, sizeof flags - used, "%s--set optimizer.%s=", n++ ? " " : "", other);
    }
    return fail(at, "optimizer.%s: %s has no such option; %s %s away", option, r->optimizer.rule, flags,
                n > 1 ? "take all of these" : "takes it");
}

static int set_option(const recipe *r, adamod_optimizer *opt, const recipe_pair *pair, const place *at) {
    adamod_option option;
    const char *text = pair->value;
    if (adamod_option_find(r->optimizer.rule, pair->key, &option)) {
        char words[512];
        snprintf(words, sizeof words, "%s", library_words(r));
        if (!any_rule_has(pair->key)) return fail(at, "optimizer.%s: %s", pair->key, words);
        return foreign_option(r, pair->key, at);
    }
    if (option.kind == ADAMOD_INTEGER && option.min == 0 && option.max == 1) { /* a switch: YAML has words for it */
        if (strcmp(text, "true") == 0) text = "1";
        if (strcmp(text, "false") == 0) text = "0";
    }
    if (adamod_set_text(opt, pair->key, text) == ADAMOD_OK) return 0;
    return fail(at, "optimizer.%s: %s", pair->key, library_words(r));
}

static int set_schedule(const recipe *r, adamod_optimizer *opt, const recipe_pair *pair, const place *at) {
    adamod_schedule *schedule = NULL;
    adamod_status status = adamod_schedule_parse(&schedule, pair->value);
    if (status == ADAMOD_OK) status = adamod_set_schedule(opt, -1, pair->key, schedule);
    adamod_schedule_free(schedule);
    return status ? fail(at, "optimizer.schedule.%s: %s", pair->key, library_words(r)) : 0;
}

int recipe_optimizer(const recipe *r, const char *device, adamod_optimizer **out, char *message, size_t size) {
    adamod_optimizer *opt;
    if (adamod_create_on(&opt, r->optimizer.rule, device)) {
        const place at = place_of_key(r, "optimizer.rule", message, size);
        return fail(&at, "optimizer.rule: %s", library_words(r));
    }
    int status = 0;
    for (int i = 0; !status && i < r->optimizer.n_options; i++) {
        const place at = place_of(r, r->optimizer.option[i].line, message, size);
        status = set_option(r, opt, &r->optimizer.option[i], &at);
    }
    for (int i = 0; !status && i < r->optimizer.n_schedules; i++) {
        const place at = place_of(r, r->optimizer.schedule[i].line, message, size);
        status = set_schedule(r, opt, &r->optimizer.schedule[i], &at);
    }
    if (status) adamod_free(opt);
    else *out = opt;
    return status;
}

/* Which files a task needs, and which it must not have. */
static int check_files(const recipe *r, char *message, size_t size) {
    const bool bitext = strcmp(r->data.task, "bitext") == 0;
    const bool test = *r->data.test_source || *r->data.test_target;
    for (int i = 0; i < KEYS; i++) {
        if (keys[i].kind != FILE_PATH) continue;
        const bool given = *((const char *)r + keys[i].offset) != '\0';
        const bool needed = bitext && (test || strncmp(keys[i].path, "data.test_", 10) != 0);
        const place at = place_of(r, r->line[i], message, size);
        if (needed && !given) {
            const bool other = strncmp(keys[i].path, "data.test_", 10) == 0;
            return fail(&at, "%s is not given; %s", keys[i].path,
                        other ? "the other half of the test is" : "data.task bitext needs it");
        }
        if (given && !bitext)
            return fail(&at, "%s is given, but data.task %s reads no files", keys[i].path, r->data.task);
    }
    return 0;
}

/* Generated text is as it is: what would cut it in other ways must not be taken and ignored. */
static int check_numbers(const recipe *r, char *message, size_t size) {
    const place tokens = place_of_key(r, "data.tokens", message, size);
    const place length = place_of_key(r, "data.max_length", message, size);
    if (strcmp(r->data.task, "numbers") != 0) return 0;
    if (strcmp(r->data.tokens, "characters") != 0) {
        return fail(&tokens, "data.tokens is %s, expected characters, which data.task numbers is made of",
                    r->data.tokens);
    }
    if (r->data.max_length >= CORPUS_NUMBERS_LONGEST) return 0;
    return fail(&length, "data.max_length is %d, expected at least %d: the longest of data.task numbers would be cut",
                r->data.max_length, CORPUS_NUMBERS_LONGEST);
}

static int check_vocabulary(const recipe *r, char *message, size_t size) {
    const place at = place_of_key(r, "data.max_vocab", message, size);
    if (r->data.max_vocab == 0 || r->data.max_vocab > VOCAB_SPECIALS) return 0;
    return fail(&at, "data.max_vocab is %d, expected 0 or more than the %d special tokens", r->data.max_vocab,
                VOCAB_SPECIALS);
}

static int check_batches(const recipe *r, char *message, size_t size) {
    const place ratio = place_of_key(r, "data.max_ratio", message, size);
    const place tokens = place_of_key(r, "data.max_tokens", message, size);
    if (r->data.max_ratio > 0 && r->data.max_ratio < 1) {
        return fail(&ratio, "data.max_ratio is %g, expected 0 or at least 1: no pair is below 1", r->data.max_ratio);
    }
    if (r->data.sentences > 0 || r->data.max_tokens > r->data.max_length) return 0;
    return fail(&tokens,
                "data.max_tokens is %d: a sentence of data.max_length %d, and its end, would fit into no batch",
                r->data.max_tokens, r->data.max_length);
}

static int check_model(const recipe *r, char *message, size_t size) {
    const place heads = place_of_key(r, "model.heads", message, size);
    const place share = place_of_key(r, "model.share_all", message, size);
    const place d = place_of_key(r, "model.d", message, size);
    if (r->model.d % r->model.heads) {
        return fail(&heads, "model.heads is %d, which does not divide model.d %d", r->model.heads, r->model.d);
    }
    /* Half of a position's numbers are sines, half cosines. */
    if (r->model.d % 2) return fail(&d, "model.d is %d, expected an even number", r->model.d);
    if (r->model.share_all && !r->data.joint) {
        return fail(&share, "model.share_all is true: one table needs one vocabulary, so data.joint must be true");
    }
    return 0;
}

int recipe_check(const recipe *r, char *message, size_t size) {
    adamod_optimizer *opt;
    const place name = place_of_key(r, "name", message, size);
    if (!*r->name || *r->name == '.' || strchr(r->name, '/')) { /* a directory may be called so */
        return fail(&name, "name is '%s', expected one without '/' that does not begin with '.'", show(r->name).text);
    }
    if (check_files(r, message, size) || check_numbers(r, message, size) || check_vocabulary(r, message, size))
        return -1;
    if (check_batches(r, message, size) || check_model(r, message, size)) return -1;
    const place at = place_of_key(r, "train.average", message, size);
    if (r->train.average > 0 && r->train.checkpoint_every == 0) {
        return fail(&at, "train.average is %d, but train.checkpoint_every 0 makes no checkpoints to average",
                    r->train.average);
    }
    if (recipe_optimizer(r, "cpu", &opt, message, size)) return -1;
    adamod_free(opt);
    return 0;
}

static const char *pair_value(const recipe_pair *pairs, int n, const char *name) {
    for (int i = 0; i < n; i++) {
        if (strcmp(pairs[i].key, name) == 0) return pairs[i].value;
    }
    return "constant";
}

/* Options by value, so that 3e-3 is 0.003 and a default is as good as the same number given. */
static int compare_options(const recipe *was, const recipe *is, const place *at) {
    adamod_optimizer *a = NULL, *b = NULL;
    adamod_option o;
    int status = recipe_optimizer(was, "cpu", &a, at->message, at->size) ||
                         recipe_optimizer(is, "cpu", &b, at->message, at->size)
                     ? -1
                     : 0;
    for (int i = 0; !status && adamod_option_at(is->optimizer.rule, i, &o) == ADAMOD_OK; i++) {
        double x = 0, y = 0;
        (void)adamod_get(a, o.name, &x), (void)adamod_get(b, o.name, &y);
        const char *s = pair_value(was->optimizer.schedule, was->optimizer.n_schedules, o.name);
        const char *t = pair_value(is->optimizer.schedule, is->optimizer.n_schedules, o.name);
        if (strcmp(s, t) != 0) status = fail(at, "optimizer.schedule.%s is %s, and was %s", o.name, t, s);
        if (x == y || strcmp(o.name, "threads") == 0) continue;
        if (o.choices)
            status = fail(at, "optimizer.%s is %s, and was %s", o.name, o.choices[(int)y], o.choices[(int)x]);
        else status = fail(at, "optimizer.%s is %.15g, and was %.15g", o.name, y, x);
    }
    adamod_free(a);
    adamod_free(b);
    return status;
}

int recipe_compare(const recipe *was, const recipe *is, char *message, size_t size) {
    const place at = {.message = message, .size = size};
    for (int i = 0; i < KEYS; i++) {
        char old[32], new[32];
        const char *before = value_text(was, &keys[i], old), *now = value_text(is, &keys[i], new);
        if (keys[i].loose || strcmp(before, now) == 0) continue;
        return fail(&at, "%s is %s, and was %s", keys[i].path, *now ? now : "empty", *before ? before : "empty");
    }
    return compare_options(was, is, &at);
}

/* ---- Writing ----------------------------------------------------------------------------------------------------- */

/* Not a word that some reader of YAML takes for something other than a text. */
static bool is_plain(const char *text) {
    static const char *const special[] = {"yes", "no", "on", "off", "null", "y", "n"};
    double number;
    if (parse_number(text, &number)) return true;
    if (!isalpha((unsigned char)*text) && *text != '/') return false;
    for (size_t i = 0; i < sizeof special / sizeof *special; i++) {
        if (strcasecmp(text, special[i]) == 0) return false;
    }
    for (; *text; text++) {
        if (!isalnum((unsigned char)*text) && !strchr("_./-", *text)) return false;
    }
    return true;
}

/* In double quotes, with escapes for what YAML would not take as it is, or would take for the end of a line. */
static void write_quoted(FILE *file, const char *text) {
    fputc('"', file);
    for (text_slice rest = text_of(text); rest.n;) {
        const unsigned char *c = (const unsigned char *)rest.bytes;
        const size_t n = text_code_point(rest) ? text_code_point(rest) : 1;
        unsigned code = n == 1 ? c[0] : n == 2 ? c[0] & 0x1fu : n == 3 ? c[0] & 0x0fu : c[0] & 0x07u;
        for (size_t i = 1; i < n; i++) code = code << 6 | (c[i] & 0x3fu);
        const bool odd = (code >= 0x7f && code < 0xa0) || code == 0x2028 || code == 0x2029 || code == 0xfeff ||
                         code == 0xfffe || code == 0xffff;
        if (odd) fprintf(file, "\\u%04x", code);
        else fprintf(file, "%s%.*s", code == '"' || code == '\\' ? "\\" : "", (int)n, rest.bytes);
        rest.bytes += n;
        rest.n -= n;
    }
    fputc('"', file);
}

static void write_scalar(FILE *file, const char *text) {
    if (is_plain(text)) fputs(text, file);
    else write_quoted(file, text);
    fputc('\n', file);
}

static void write_pairs(FILE *file, const char *indent, const recipe_pair *pairs, int n) {
    for (int i = 0; i < n; i++) {
        fprintf(file, "%s%s: ", indent, pairs[i].key);
        write_scalar(file, pairs[i].value);
    }
}

int recipe_write(const recipe *r, FILE *file) {
    const char *section = "";
    for (int i = 0; i < KEYS; i++) {
        const char *path = keys[i].path, *dot = strchr(path, '.');
        const size_t length = dot ? (size_t)(dot - path) : 0;
        char buffer[32];
        if (dot && strncmp(section, path, length + 1) != 0) fprintf(file, "%.*s:\n", (int)length, path);
        section = path;
        fprintf(file, "%s%s: ", dot ? "  " : "", leaf(path));
        write_scalar(file, value_text(r, &keys[i], buffer));
        if (strcmp(path, "optimizer.rule") != 0) continue;
        write_pairs(file, "  ", r->optimizer.option, r->optimizer.n_options);
        if (r->optimizer.n_schedules) fputs("  schedule:\n", file);
        write_pairs(file, "    ", r->optimizer.schedule, r->optimizer.n_schedules);
    }
    return fflush(file) || ferror(file) ? -1 : 0;
}

void recipe_describe(FILE *file) {
    char expected[128];
    for (int i = 0; i < KEYS; i++) {
        const key *k = &keys[i];
        expectation(k, expected, sizeof expected);
        fprintf(file, "%-25s %-46s %-12s %s\n", k->path, expected, *k->standard ? k->standard : "-", k->help);
    }
    fprintf(file, "%-25s %-46s %-12s %s\n", "optimizer.OPTION", "what the rule says", "the rule's",
            "any option of the rule: lr, beta1, ... ('adamod optim list RULE')");
    fprintf(file, "%-25s %-46s %-12s %s\n", "optimizer.schedule.OPTION", "a schedule", "constant",
            "of a real option: warmup(1e-7,4000), cosine(0,10000), ...");
}
