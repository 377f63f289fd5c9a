/* run_about.c - recipe.yaml, machine.json, task.json, data.json. */
#include "train/run_parts.h"

#include "data/sets/data_sets.h"
#include "support/run_format.h"
#include "support/text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int write_whole(const run *r, const char *name, const char *text, size_t n) {
    return text_write(path_join(r->directory, name).text, (text_slice){text, n});
}

int run_write_json(const run *r, const char *name, json *j) {
    json_end_line(j);
    const int status = j->failed ? run_fail_at(r, name, "cannot write", ENOMEM) : write_whole(r, name, j->text, j->n);
    json_free(j);
    return status;
}

int run_write_recipe(const run *r) {
    char *text = NULL;
    size_t n = 0;
    FILE *file = open_memstream(&text, &n);
    int status = file ? recipe_write(&r->recipe, file) : -1;
    if (file && fclose(file)) status = -1;
    if (status) (void)run_fail_at(r, "recipe.yaml", "cannot write", ENOMEM);
    else status = write_whole(r, "recipe.yaml", text, n);
    free(text);
    return status;
}

/* Reads the value after ":" in the first line of a file that begins with key. */
static void read_system(const char *path, const char *key, char *out, size_t size) {
    char text[512];
    FILE *file = fopen(path, "re");
    *out = '\0';
    while (file && !*out && fgets(text, sizeof text, file)) {
        const char *colon = strchr(text, ':');
        if (strncmp(text, key, strlen(key)) != 0 || !colon) continue;
        colon += strspn(colon, ": \t");
        snprintf(out, size, "%.*s", (int)strcspn(colon, "\n"), colon);
    }
    if (file) fclose(file);
}

static void add_machine(const run *r, json *j) {
    char processor[128], host[128] = "", began[40] = "";
    adamod_optimizer *opt = NULL;
    const time_t seconds = (time_t)r->started;
    struct tm utc;
    read_system("/proc/cpuinfo", "model name", processor, sizeof processor);
    (void)gethostname(host, sizeof host - 1);
    if (gmtime_r(&seconds, &utc)) strftime(began, sizeof began, "%Y-%m-%dT%H:%M:%SZ", &utc);
    json_open(j, '{');
    json_pair(j, "version", adamod_version_string());
    if (*ADAMOD_COMMIT) json_pair(j, "commit", ADAMOD_COMMIT);
#ifdef __clang__
    json_pair(j, "compiler", "clang " __clang_version__);
#else
    json_pair(j, "compiler", "gcc " __VERSION__);
#endif
    json_pair(j, "started", began);
    json_pair(j, "host", host);
    json_pair(j, "processor", processor);
    json_pair_integer(j, "cores", sysconf(_SC_NPROCESSORS_ONLN));
    if (adamod_create(&opt, "adamod") == ADAMOD_OK) json_pair(j, "instruction_set", adamod_isa(opt));
    adamod_free(opt);
    for (int i = 0; i < r->n_descriptions; i++) json_pair(j, r->description[i][0], r->description[i][1]);
    json_close(j, '}');
}

int run_write_machine(run *r) {
    json j = {0};
    for (int i = 2; r->resume && !*r->machine; i++) { /* each process has its own file */
        char name[sizeof r->machine];
        snprintf(name, sizeof name, "machine.%d.json", i);
        if (access(path_join(r->directory, name).text, F_OK) != 0) snprintf(r->machine, sizeof r->machine, "%s", name);
    }
    if (!*r->machine) snprintf(r->machine, sizeof r->machine, "machine.json");
    add_machine(r, &j);
    return run_write_json(r, r->machine, &j);
}

static void add_metric(json *j, const metric *m) {
    static const char *const better[] = {"lower", "neither", "higher"};
    json_open(j, '{');
    json_pair(j, "name", m->name);
    json_pair(j, "label", m->label);
    json_pair(j, "about", m->about);
    json_pair(j, "unit", m->unit);
    json_pair_number(j, "scale", m->scale);
    json_pair_integer(j, "decimals", m->decimals);
    json_pair(j, "better", better[m->better - METRIC_LOWER]);
    json_pair_boolean(j, "headline", m->headline);
    if (m->signature) json_pair(j, "signature", m->signature);
    json_close(j, '}');
}

int run_write_task(const run *r) {
    const task *t = recipe_task(&r->recipe);
    json j = {0};
    json_open(&j, '{');
    json_pair_integer(&j, "format", RUN_FORMAT);
    json_pair(&j, "task", t->name);
    json_pair(&j, "about", t->about);
    json_pair(&j, "items", t->items);
    json_pair(&j, "samples", t->samples);
    if (t->answers) json_pair(&j, "answers", t->answers);
    if (t->limit) json_pair(&j, "limit", t->limit);
    json_pair_open(&j, "subtitle", '[');
    for (const char *const *key = t->subtitle; key && *key; key++) json_string(&j, *key);
    json_close(&j, ']');
    json_pair_open(&j, "metrics", '[');
    for (int i = 0; i < t->n_metrics; i++) {
        if (!t->measures || t->measures(&r->recipe, i)) add_metric(&j, &t->metrics[i]);
    }
    json_close(&j, ']');
    json_close(&j, '}');
    return run_write_json(r, "task.json", &j);
}

static void add_origin(json *j, const data_set *set) {
    data_origin origin;
    data_set_origin(set, &origin);
    json_pair(j, "set", set->name);
    json_pair_boolean(j, "published", origin.kind == DATA_AS_PUBLISHED);
    if (*origin.why) json_pair(j, "why", origin.why);
}

int run_add_data(run *r, int64_t train_samples, const data_set *set, int n, const task_part *parts) {
    json j = {0};
    json_open(&j, '{');
    json_pair_number(&j, "train_samples", (double)train_samples);
    if (set) add_origin(&j, set);
    json_pair_open(&j, "parts", '[');
    for (int i = 0; i < n; i++) {
        char fingerprint[24], text[24];
        snprintf(fingerprint, sizeof fingerprint, "%016" PRIx64, parts[i].fingerprint);
        snprintf(text, sizeof text, "%016" PRIx64, parts[i].text);
        json_open(&j, '{');
        json_pair(&j, "split", task_split_name(parts[i].split));
        json_pair(&j, "key", parts[i].key);
        json_pair(&j, "file", parts[i].file);
        json_pair(&j, "fingerprint", fingerprint);
        if (parts[i].text) json_pair(&j, "text", text);
        json_close(&j, '}');
    }
    json_close(&j, ']');
    json_close(&j, '}');
    return run_write_json(r, "data.json", &j);
}

int run_describe(run *r, int n, const char *const (*pairs)[2]) {
    for (int i = 0; i < n; i++) {
        if (r->n_descriptions == RUN_DESCRIPTIONS) return run_fail_at(r, "machine.json", pairs[i][0], E2BIG);
        char(*pair)[128] = r->description[r->n_descriptions++];
        snprintf(pair[0], sizeof pair[0], "%s", pairs[i][0]);
        snprintf(pair[1], sizeof pair[1], "%s", pairs[i][1]);
    }
    /* A resumed run writes machine.N.json only after run_rewind. */
    return *r->machine || !r->resume ? run_write_machine(r) : 0;
}
