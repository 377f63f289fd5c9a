#include "report/reader_parts.h"

#include "core/error.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_DECIMALS = 9 };

/* Names are parts of file names: letters, digits and '_'. */
static bool is_name(const char *text) {
    size_t n = 0;
    while (text[n] == '_' || (text[n] >= '0' && text[n] <= '9') || (text[n] >= 'A' && text[n] <= 'Z') ||
           (text[n] >= 'a' && text[n] <= 'z')) {
        n++;
    }
    return n && n < READER_NAME && !text[n];
}

static void pull_name(json_input *in, char out[READER_NAME]) {
    char name[2 * READER_NAME];
    json_input_text(in, name, sizeof name);
    if (!is_name(name)) reader_expect(in, "a name of 1 to 31 letters, digits and '_'");
    snprintf(out, READER_NAME, "%s", in->expected ? "" : name);
}

/* Reads text for people, on one line. */
static void pull_words(json_input *in, char *out, size_t size) {
    json_input_text(in, out, size);
    text_plain(out);
}

static metric_better pull_better(json_input *in) {
    char word[16];
    json_input_text(in, word, sizeof word);
    if (strcmp(word, "lower") == 0) return METRIC_LOWER;
    if (strcmp(word, "higher") == 0) return METRIC_HIGHER;
    if (strcmp(word, "neither") != 0) reader_expect(in, "\"lower\", \"higher\" or \"neither\"");
    return METRIC_NEITHER;
}

static double pull_scale(json_input *in) {
    const double scale = json_input_number(in);
    if (!(scale > 0 && isfinite(scale))) reader_expect(in, "a finite scale above 0");
    return scale;
}

static int pull_decimals(json_input *in) {
    const double n = json_input_number(in);
    if (n >= 0 && n <= MOST_DECIMALS && n == floor(n)) return (int)n;
    reader_expect(in, "a whole number from 0 to 9");
    return 0;
}

/* Adds a copy whose strings are one allocation, which begins with the name. False: no memory. */
static bool add_metric(report_run *r, const metric *m) {
    metric *copy = &r->metric[r->n_metrics];
    char *text = NULL;
    const char *signature = m->signature ? m->signature : "";
    if (asprintf(&text, "%s%c%s%c%s%c%s%c%s", m->name, 0, m->label, 0, m->about, 0, m->unit, 0, signature) < 0)
        return false;
    *copy = *m;
    copy->name = text;
    copy->label = copy->name + strlen(copy->name) + 1;
    copy->about = copy->label + strlen(copy->label) + 1;
    copy->unit = copy->about + strlen(copy->about) + 1;
    copy->signature = *signature ? copy->unit + strlen(copy->unit) + 1 : NULL;
    r->n_metrics++;
    return true;
}

/* Defaults: label and description are the name, no unit, two decimals, no headline. False: no memory. */
static bool pull_metric(report_run *r, json_input *in) {
    char name[READER_NAME] = "", label[48] = "", about[96] = "", unit[16] = "", signature[128] = "";
    metric m = {.name = name, .label = label, .about = about, .unit = unit, .scale = 1, .decimals = 2};
    m.signature = signature;
    for (bool more = json_input_enter(in, '{'); more; more = json_input_next(in, '}')) {
        char key[32];
        json_input_key(in, key, sizeof key);
        if (strcmp(key, "name") == 0) pull_name(in, name);
        else if (strcmp(key, "label") == 0) pull_words(in, label, sizeof label);
        else if (strcmp(key, "about") == 0) pull_words(in, about, sizeof about);
        else if (strcmp(key, "unit") == 0) pull_words(in, unit, sizeof unit);
        else if (strcmp(key, "signature") == 0) pull_words(in, signature, sizeof signature);
        else if (strcmp(key, "scale") == 0) m.scale = pull_scale(in);
        else if (strcmp(key, "decimals") == 0) m.decimals = pull_decimals(in);
        else if (strcmp(key, "better") == 0) m.better = pull_better(in);
        else if (strcmp(key, "headline") == 0) m.headline = json_input_flag(in);
        else json_input_skip(in);
    }
    if (!*label) m.label = name;
    if (!*about) m.about = m.label;
    if (!*name) reader_expect(in, "a metric with a \"name\"");
    if (report_find_metric(r, name) >= 0) reader_expect(in, "a metric with a name of its own");
    if (r->n_metrics == REPORT_METRICS) reader_expect(in, "at most 16 metrics");
    return in->expected || add_metric(r, &m);
}

static void pull_subtitle(report_run *r, json_input *in) {
    r->n_subtitle = 0;
    for (bool more = json_input_enter(in, '['); more; more = json_input_next(in, ']')) {
        if (r->n_subtitle == REPORT_KEYS) reader_expect(in, "at most 16 keys");
        else json_input_text(in, r->subtitle[r->n_subtitle++], sizeof r->subtitle[0]);
    }
}

static const char *pull_task(report_run *r, json_input *in) {
    bool memory = true;
    for (bool more = json_input_enter(in, '{'); more && memory; more = json_input_next(in, '}')) {
        char key[32];
        json_input_key(in, key, sizeof key);
        if (strcmp(key, "task") == 0) pull_words(in, r->task, sizeof r->task);
        else if (strcmp(key, "about") == 0) pull_words(in, r->about, sizeof r->about);
        else if (strcmp(key, "items") == 0) pull_name(in, r->items);
        else if (strcmp(key, "samples") == 0) pull_words(in, r->samples, sizeof r->samples);
        else if (strcmp(key, "answers") == 0) pull_words(in, r->answers, sizeof r->answers);
        else if (strcmp(key, "limit") == 0) json_input_text(in, r->limit, sizeof r->limit);
        else if (strcmp(key, "subtitle") == 0) pull_subtitle(r, in);
        else if (strcmp(key, "metrics") == 0) {
            for (bool one = json_input_enter(in, '['); one && memory; one = json_input_next(in, ']')) {
                memory = pull_metric(r, in);
            }
        } else json_input_skip(in);
    }
    json_input_end(in);
    return memory ? NULL : reader_no_memory;
}

int reader_task(report_run *r, const metric *known, int n_known) {
    snprintf(r->items, sizeof r->items, "tokens");
    snprintf(r->samples, sizeof r->samples, "sentences");
    const int status = reader_value(r, "task.json", READER_BYTES, pull_task);
    const char *recipe = report_pairs_find(&r->recipe, "data.task");
    if (!*r->task && recipe) snprintf(r->task, sizeof r->task, "%s", recipe);
    text_plain(r->task);
    r->has_perplexity = status == 0 || report_find_metric(r, "ppl") >= 0 || report_find_metric(r, "perplexity") >= 0;
    if (status == 0) snprintf(r->limit, sizeof r->limit, "train.evaluate_pairs");
    for (int i = 0; status == 0 && i < n_known; i++) {
        if (!known[i].headline) continue;
        if (r->n_metrics == REPORT_METRICS) return adamod__refuse("more than %d known metrics", r->n_metrics);
        metric m = known[i];
        m.signature = NULL; /* it may have been another then */
        if (!add_metric(r, &m)) return adamod__fail(ADAMOD_ERROR_MEMORY, "%s: out of memory", r->directory);
    }
    return status < 0 ? -1 : 0;
}
