/* adamod text score: BLEU and chrF of translations, and whether two systems differ: see data/score.h. */
#include "support/json.h"
#include "support/text.h"
#include "core/error.h"
#include "cli/cli.h"

#include "data/score.h"
#include "data/text_input.h"

#include <stdlib.h>
#include <string.h>

static const char command[] = "text score";
enum { METRICS = 3 };
typedef struct scoring {
    bool metrics[METRICS], confidence, json;
    score_options o;
    int64_t samples, width;
    cli_operands paths;  /* the reference, then systems */
    score_text **scores; /* [system, metric]; NULL: not asked for */
} scoring;

/* ---- command line ---- */

static int choose(const char *flag, const char *value, const char *const *names, int *out) {
    char known[64] = "";
    for (int i = 0; names[i]; i++) {
        if (strcmp(names[i], value) == 0) return *out = i, 0;
        text_join(known, sizeof known, ", ", names[i]);
    }
    return cli_usage(command, "--%s is '%.40s', expected one of %s", flag, value, known);
}

static int read_metrics(void *to, const cli_flag *flag, const char *value) {
    static const char *const names[] = {"bleu", "chrf", "chrf++", NULL};
    scoring *s = to;
    memset(s->metrics, 0, sizeof s->metrics);
    for (const char *at = value;; at++) {
        char name[16];
        const size_t n = strcspn(at, ",");
        int metric = 0;
        snprintf(name, sizeof name, "%.*s", (int)(n < 15 ? n : 15), at);
        const int status = choose(flag->name, name, names, &metric);
        if (status) return status;
        s->metrics[metric] = true;
        at += n;
        if (!*at) return 0;
    }
}

static int read_tokenize(void *to, const cli_flag *flag, const char *value) {
    static const char *const names[] = {"13a", "none", "char", NULL};
    int choice = 0;
    const int status = choose(flag->name, value, names, &choice);
    ((scoring *)to)->o.tokenize = (score_tokens)choice;
    return status;
}

static int read_smooth(void *to, const cli_flag *flag, const char *value) {
    static const char *const names[] = {"exp", "none", NULL};
    int choice = 0;
    const int status = choose(flag->name, value, names, &choice);
    ((scoring *)to)->o.plain = choice == 1;
    return status;
}

static const cli_flag flags[] = {
    CLI_READ("metric", "NAME,...", "what to compute: bleu, chrf, chrf++ (bleu)", read_metrics),
    CLI_READ("tokenize", "13a|none|char", "BLEU: how lines become tokens (13a)", read_tokenize),
    CLI_READ("smooth", "exp|none", "BLEU: smoothing of n-gram orders without a match (exp)", read_smooth),
    CLI_SWITCH("lowercase", "score in lower case", scoring, o.lowercase),
    CLI_SWITCH("confidence", "add the mean and the 95 % interval of resamples", scoring, confidence),
    CLI_WHOLE("samples", "N", "number of resamples (1000)", scoring, samples, 2, 1000000),
    CLI_WHOLE("width", "N", "number of decimals (2)", scoring, width, 0, 12),
    CLI_SWITCH("json", "print one JSON object", scoring, json),
    CLI_HELP_FLAG,
    {0}};

/* ---- scoring ---- */

static int systems_of(const scoring *s) { return s->paths.n > 1 ? s->paths.n - 1 : 1; }

static int add_pair(score_text **scores, text_slice hyp, text_slice ref) {
    for (int m = 0; m < METRICS; m++) {
        if (scores[m] && score_add(scores[m], hyp, ref)) return -1;
    }
    return 0;
}

static int score_system(const scoring *s, int system) {
    text_input *ref = NULL, *hyp = NULL;
    int a = 1, b = 1, failed = text_input_open(&ref, s->paths.list[0]);
    if (!failed) failed = text_input_open(&hyp, s->paths.n > 1 ? s->paths.list[1 + system] : NULL);
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
    double score, p; /* p < 0: no comparison */
    score_interval interval;
    bool resampled;
    char signature[160], details[160];
} result;

static int compute(const scoring *s, int system, int metric, result *r) {
    const score_text *mine = s->scores[system * METRICS + metric], *first = s->scores[metric];
    score_options o = s->o;
    o.metric = (score_metric)metric;
    r->resampled = s->confidence || s->paths.n > 2;
    r->score = score_value(mine);
    r->p = -1;
    score_details(mine, r->details, sizeof r->details);
    score_signature(&o, r->resampled ? s->samples : 0, r->signature, sizeof r->signature);
    if (r->resampled && score_resample(mine, s->samples, &r->interval)) return -1;
    return system ? score_compare(first, mine, s->samples, &r->p) : 0;
}

static void print_text(const scoring *s, int system, const char *name, const result *r) {
    const int width = (int)s->width;
    if (s->paths.n > 2) text_print(stdout, s->paths.list[1 + system]), printf(": ");
    printf("%s|%s = %.*f", name, r->signature, width, r->score);
    if (r->resampled && r->interval.mean > 0) /* as sacreBLEU, which says nothing of zeros */
        printf(" (\u03bc = %.*f \u00b1 %.*f)", width, r->interval.mean, width, r->interval.half);
    if (*r->details) printf(" %s", r->details);
    if (r->p >= 0) printf(" (p = %.4f)", r->p);
    printf("\n");
}

static void add_real(json *j, const char *key, double x) {
    char number[32];
    snprintf(number, sizeof number, "%.17g", x);
    json_key(j, key);
    json_raw(j, number);
}

static void add_json(json *j, const scoring *s, int system, const char *name, const result *r) {
    json_open(j, '{');
    json_pair(j, "system", s->paths.n > 1 ? s->paths.list[1 + system] : "standard input");
    json_pair(j, "metric", name);
    cli_json_number(j, "score", r->score);
    json_pair(j, "signature", r->signature);
    if (r->resampled) add_real(j, "mean", r->interval.mean), add_real(j, "half_width", r->interval.half);
    if (*r->details) json_pair(j, "details", r->details);
    if (r->p >= 0) add_real(j, "p", r->p);
    json_close(j, '}');
}

static int print_all(const scoring *s) {
    json j = {.spaced = true};
    json_open(&j, '{');
    json_pair_open(&j, "scores", '[');
    for (int i = 0; i < systems_of(s) * METRICS; i++) {
        result r;
        score_options o = s->o;
        if (!s->metrics[i % METRICS]) continue;
        o.metric = (score_metric)(i % METRICS);
        if (compute(s, i / METRICS, i % METRICS, &r)) return json_free(&j), cli_fail(command, "out of memory");
        if (s->json) add_json(&j, s, i / METRICS, score_name(&o), &r);
        else print_text(s, i / METRICS, score_name(&o), &r);
    }
    json_close(&j, ']');
    json_close(&j, '}');
    if (s->json) return cli_print_json(command, &j, "\n");
    json_free(&j);
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
    const cli_syntax syntax = {
        .command = command,
        .help = "usage: adamod text score [--metric NAME,...] [--tokenize HOW] REFERENCE [SYSTEM]...\n\n"
                "Scores translations, from files or standard input, with the numbers and signatures of sacreBLEU.\n"
                "Of several systems, each is compared with the first by paired bootstrap resampling.\n\n",
        .flags = flags,
        .takes = CLI_OPERANDS,
        .operands = offsetof(scoring, paths)};
    scoring s = {.metrics = {true}, .samples = 1000, .width = 2};
    const int status = cli_parse(&syntax, argc, argv, &s);
    if (status >= 0) return status;
    return s.paths.n ? run(&s) : cli_usage(command, "needs a file of reference translations");
}
