/* adamod text score: BLEU and chrF of translations, and whether two systems differ: see data/score.h. */
#include "support/text.h"
#include "core/error.h"
#include "cli/cli.h"

#include "data/score.h"
#include "data/text_input.h"

#include <stdlib.h>
#include <string.h>

static const char command[] = "text score";
enum {
    FLAG_METRIC,
    FLAG_TOKENIZE,
    FLAG_SMOOTH,
    FLAG_LOWERCASE,
    FLAG_CONFIDENCE,
    FLAG_SAMPLES,
    FLAG_WIDTH,
    FLAG_JSON,
    FLAG_HELP
};
static const cli_flag flags[] = {{"metric", "NAME,...", "what to compute: bleu, chrf, chrf++ (bleu)"},
                                 {"tokenize", "13a|none|char", "BLEU: how lines become tokens (13a)"},
                                 {"smooth", "exp|none", "BLEU: smoothing of n-gram orders without a match (exp)"},
                                 {"lowercase", NULL, "score in lower case"},
                                 {"confidence", NULL, "add the mean and the 95 % interval of resamples"},
                                 {"samples", "N", "number of resamples (1000)"},
                                 {"width", "N", "number of decimals (2)"},
                                 {"json", NULL, "print one JSON object"},
                                 CLI_HELP_FLAG,
                                 {0}};

enum { METRICS = 3 };
typedef struct scoring {
    bool metrics[METRICS], confidence, json;
    score_options o;
    int64_t samples, width;
    const char **paths; /* the reference, then systems */
    int n;
    score_text **scores; /* of each system, metric by metric; NULL: not asked for */
} scoring;

/* ---- command line ---- */

static int choose(const char *flag, const char *value, const char *const *names, int *out) {
    char known[64] = "";
    for (int i = 0; names[i]; i++) {
        if (strcmp(names[i], value) == 0) return *out = i, 0;
        const size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", names[i]);
    }
    return cli_usage(command, "--%s is '%.40s', expected one of %s", flag, value, known);
}

static int choose_metrics(scoring *s, const char *value) {
    static const char *const names[] = {"bleu", "chrf", "chrf++", NULL};
    memset(s->metrics, 0, sizeof s->metrics);
    for (const char *at = value;; at++) {
        char name[16];
        const size_t n = strcspn(at, ",");
        int metric = 0;
        snprintf(name, sizeof name, "%.*s", (int)(n < 15 ? n : 15), at);
        const int status = choose("metric", name, names, &metric);
        if (status) return status;
        s->metrics[metric] = true;
        at += n;
        if (!*at) return 0;
    }
}

static int read_flag(scoring *s, int flag, const char *value) {
    static const char *const tokens[] = {"13a", "none", "char", NULL}, *const smoothing[] = {"exp", "none", NULL};
    int choice = 0, status = 0;
    switch (flag) {
        case FLAG_METRIC: return choose_metrics(s, value);
        case FLAG_TOKENIZE:
            status = choose("tokenize", value, tokens, &choice);
            s->o.tokenize = (score_tokens)choice;
            return status;
        case FLAG_SMOOTH:
            status = choose("smooth", value, smoothing, &choice);
            s->o.plain = choice == 1;
            return status;
        case FLAG_LOWERCASE: s->o.lowercase = true; return 0;
        case FLAG_CONFIDENCE: s->confidence = true; return 0;
        case FLAG_JSON: s->json = true; return 0;
        case FLAG_SAMPLES: return cli_parse_int(command, "samples", value, 2, 1000000, &s->samples) ? 0 : CLI_USAGE;
        default: return cli_parse_int(command, "width", value, 0, 12, &s->width) ? 0 : CLI_USAGE;
    }
}

/* Exit status, or -1 to go on. */
static int parse(scoring *s, int argc, char **argv) {
    cli_parser p = {.command = command, .flags = flags, .argc = argc, .argv = argv};
    for (int flag; (flag = cli_next(&p)) != CLI_END;) {
        if (flag == CLI_BAD) return CLI_USAGE;
        if (flag == FLAG_HELP) {
            fputs("usage: adamod text score [--metric NAME,...] [--tokenize HOW] REFERENCE [SYSTEM]...\n\n"
                  "Scores translations, from files or standard input, with the numbers and signatures of sacreBLEU.\n"
                  "Of several systems, each is compared with the first by paired bootstrap resampling.\n\n",
                  stdout);
            cli_print_flags(stdout, flags);
            return 0;
        }
        if (flag == CLI_OPERAND) {
            s->paths[s->n++] = p.value;
            continue;
        }
        const int status = read_flag(s, flag, p.value);
        if (status) return status;
    }
    return s->n ? -1 : cli_usage(command, "needs a file of reference translations");
}

/* ---- scoring ---- */

static int systems_of(const scoring *s) { return s->n > 1 ? s->n - 1 : 1; }

/* Adds a pair of lines to all metrics of a system. */
static int add_pair(score_text **scores, text_slice hyp, text_slice ref) {
    for (int m = 0; m < METRICS; m++) {
        if (scores[m] && score_add(scores[m], hyp, ref)) return -1;
    }
    return 0;
}

static int score_system(const scoring *s, int system) {
    text_input *ref = NULL, *hyp = NULL;
    int a = 1, b = 1, failed = text_input_open(&ref, s->paths[0]);
    if (!failed) failed = text_input_open(&hyp, s->n > 1 ? s->paths[1 + system] : NULL);
    while (!failed && a > 0 && b > 0) {
        text_slice x, y;
        a = text_input_line(ref, &x);
        b = a < 0 ? a : text_input_line(hyp, &y);
        failed = a < 0 || b < 0;
        if (!failed && a != b)
            failed = adamod__refuse("%s has %lld lines and %s has more, expected the same number",
                                    text_input_name(a ? hyp : ref), (long long)text_input_number(a ? hyp : ref),
                                    text_input_name(a ? ref : hyp));
        if (!failed && a && add_pair(s->scores + system * METRICS, y, x))
            failed = adamod__fail(ADAMOD_ERROR_MEMORY, "%s: out of memory", text_input_name(hyp));
    }
    if (!failed && text_input_number(ref) == 0)
        failed = adamod__refuse("%s: no lines, expected sentences", text_input_name(ref));
    text_input_close(ref);
    text_input_close(hyp);
    return failed ? cli_failed(command) : 0;
}

/* ---- output ---- */

typedef struct result {
    double score, p; /* p < 0: there is nothing to compare with */
    score_interval interval;
    bool resampled;
    char signature[160], details[160];
} result;

static int compute(const scoring *s, int system, int metric, result *r) {
    const score_text *mine = s->scores[system * METRICS + metric], *first = s->scores[metric];
    score_options o = s->o;
    o.metric = (score_metric)metric;
    r->resampled = s->confidence || s->n > 2;
    r->score = score_value(mine);
    r->p = -1;
    score_details(mine, r->details, sizeof r->details);
    score_signature(&o, r->resampled ? s->samples : 0, r->signature, sizeof r->signature);
    if (r->resampled && score_resample(mine, s->samples, &r->interval)) return -1;
    return system ? score_compare(first, mine, s->samples, &r->p) : 0;
}

static void print_text(const scoring *s, int system, const char *name, const result *r) {
    const int width = (int)s->width;
    if (s->n > 2) text_print(stdout, s->paths[1 + system]), printf(": ");
    printf("%s|%s = %.*f", name, r->signature, width, r->score);
    if (r->resampled && r->interval.mean > 0) /* as sacreBLEU, which says nothing of zeros */
        printf(" (\u03bc = %.*f \u00b1 %.*f)", width, r->interval.mean, width, r->interval.half);
    if (*r->details) printf(" %s", r->details);
    if (r->p >= 0) printf(" (p = %.4f)", r->p);
    printf("\n");
}

static void print_json(const scoring *s, int system, const char *name, const result *r, bool first) {
    printf("%s{\"system\": ", first ? "" : ", ");
    cli_json_string(stdout, s->n > 1 ? s->paths[1 + system] : "standard input");
    printf(", \"metric\": \"%s\", \"score\": ", name);
    cli_json_number(stdout, r->score);
    printf(", \"signature\": \"%s\"", r->signature);
    if (r->resampled) printf(", \"mean\": %.17g, \"half_width\": %.17g", r->interval.mean, r->interval.half);
    if (*r->details) printf(", \"details\": \"%s\"", r->details);
    if (r->p >= 0) printf(", \"p\": %.17g", r->p);
    printf("}");
}

static int print_all(const scoring *s) {
    bool first = true;
    if (s->json) printf("{\"scores\": [");
    for (int i = 0; i < systems_of(s) * METRICS; i++) {
        result r;
        score_options o = s->o;
        if (!s->metrics[i % METRICS]) continue;
        o.metric = (score_metric)(i % METRICS);
        if (compute(s, i / METRICS, i % METRICS, &r)) return cli_fail(command, "out of memory");
        if (s->json) print_json(s, i / METRICS, score_name(&o), &r, first);
        else print_text(s, i / METRICS, score_name(&o), &r);
        first = false;
    }
    if (s->json) printf("]}\n");
    return 0;
}

static int run(scoring *s) {
    const int n = systems_of(s) * METRICS;
    s->scores = calloc((size_t)n, sizeof *s->scores);
    bool whole = s->scores != NULL;
    for (int i = 0; whole && i < n; i++) {
        score_options o = s->o;
        if (!s->metrics[i % METRICS]) continue;
        o.metric = (score_metric)(i % METRICS);
        whole = (s->scores[i] = score_create(&o)) != NULL;
    }
    int status = whole ? 0 : cli_fail(command, "out of memory");
    for (int i = 0; i < systems_of(s) && !status; i++) status = score_system(s, i);
    if (!status) status = print_all(s);
    for (int i = 0; s->scores && i < n; i++) score_free(s->scores[i]);
    free(s->scores);
    return status;
}

int cli_text_score(int argc, char **argv) {
    scoring s = {.metrics = {true}, .samples = 1000, .width = 2};
    s.paths = calloc((size_t)argc + 1, sizeof *s.paths);
    int status = s.paths ? parse(&s, argc, argv) : cli_fail(command, "out of memory");
    if (status < 0) status = run(&s);
    free(s.paths);
    return status;
}
