/* run_folders.c - see run_folders.h.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "run_folders.h"

#include "check.h"
#include "report/page.h"
#include "report/report.h"
#include "core/error.h"

#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const metric known[KNOWN_METRICS] = {
    {"loss", "loss", "loss", "", 1, 4, METRIC_LOWER, true, NULL},
    {"nll", "nll", "negative log-likelihood", "", 1, 4, METRIC_LOWER, false, NULL},
    {"exact", "exact", "exact translations", "%", 100, 1, METRIC_HIGHER, true, NULL},
    {"bleu", "BLEU", "BLEU", "", 1, 2, METRIC_HIGHER, true, NULL},
};

/* ---- files ---- */

FILE *create(const char *run, const char *name) {
    mkdir(run, 0777);
    char path[600];
    snprintf(path, sizeof path, "%s/%s", run, name);
    FILE *file = fopen(path, "w");
    if (!file) exit(1);
    return file;
}

void put(const char *run, const char *name, const char *text) {
    FILE *file = create(run, name);
    fputs(text, file);
    fclose(file);
}

/* A file's text, to be freed; "" if there is none. */
char *contents(const char *path) {
    FILE *file = fopen(path, "rb");
    char *text = calloc(1, 1 << 22);
    if (!text) exit(1);
    if (!file) return text;
    (void)!fread(text, 1, (1 << 22) - 1, file);
    fclose(file);
    return text;
}

void check_file(const char *path, const char *part) {
    char *text = contents(path);
    CHECK_HAS(text, part);
    free(text);
}

long size_of(const char *path) {
    struct stat st;
    return stat(path, &st) ? -1 : (long)st.st_size;
}

/* Sends one of the standard streams to a file, until restore(). */
int divert(int fd, const char *path) {
    fflush(stdout);
    const int kept = dup(fd), to = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    dup2(to, fd);
    close(to);
    return kept;
}

void restore(int fd, int kept) {
    fflush(stdout);
    dup2(kept, fd);
    close(kept);
}

/* ---- runs ---- */

static void make_metrics(const char *run, const made *m) {
    FILE *file = create(run, "metrics.jsonl");
    for (int i = 1; i <= m->steps; i++) {
        const double share = fmin(1, (i - 1) / (0.5 * m->steps)), loss = m->first + share * (m->last - m->first);
        fprintf(file,
                "{\"kind\":\"train\",\"step\":%d,\"time\":%g,\"loss\":%.9g,\"nll\":1,\"lr\":0.003,\"tokens\":%d,"
                "\"tokens_per_second\":999,\"grad_norm\":1}\n",
                i, 0.5 * i, loss, 1000 * i);
        if (i % 20 == 0) {
            fprintf(file,
                    "{\"kind\":\"valid\",\"step\":%d,\"time\":%g,\"loss\":%g,\"nll\":1,\"exact\":%g,\"bleu\":%g}\n", i,
                    0.5 * i, m->valid + 1.0 / i, m->exact, m->bleu);
        }
    }
    fclose(file);
}

/* Normal in log10; AdaMod's after the bound lies lower at first. */
static void write_counts(FILE *file, const char *name, double mean) {
    const int first = (int)((mean + 12) * 10) - 20;
    fprintf(file, ",\"%s_first\":%d,\"%s\":[", name, first, name);
    for (int i = 0; i < 41; i++) fprintf(file, "%s%d", i ? "," : "", (int)(10000 * exp(-(i - 20) * (i - 20) / 50.0)));
    fprintf(file, "]");
}

static void make_histograms(const char *run, const made *m, bool bounded) {
    FILE *file = create(run, "histograms.jsonl");
    for (int i = 1; i <= m->steps; i++) {
        fprintf(file,
                "{\"step\":%d,\"bounded\":%g,\"eta_median\":1,\"step_median\":1,\"low\":-12,\"high\":8,\"bins\":200", i,
                bounded ? 1.0 / i : 0.0);
        write_counts(file, "eta", 0.5);
        write_counts(file, "effective", bounded ? 0.5 - 3.0 / i : 0.5);
        fprintf(file, "}\n");
    }
    fclose(file);
}

static void make_recipe(const char *run, const made *m, bool bounded) {
    FILE *file = create(run, "recipe.yaml");
    fprintf(file,
            "name: %s\ndata:\n  task: numbers\n  source: \"\"\nmodel:\n  d: 128\noptimizer:\n  rule: %s\n  lr: 3e-3\n",
            m->name, bounded ? "adamod" : "adam");
    if (bounded) fprintf(file, "  beta3: 0.999\n");
    else fprintf(file, "  schedule:\n    lr: \"warmup(1e-7,300)\"\n");
    fprintf(file, "train:\n  steps: 100\n  seed: %d\n", m->seed);
    fclose(file);
}

const char *make_run(made m) {
    const char *run = below("%s", m.directory);
    const bool bounded = strstr(m.name, "AdaMod") != NULL;
    make_recipe(run, &m, bounded);
    make_metrics(run, &m);
    make_histograms(run, &m, bounded);
    FILE *file = create(run, "machine.json");
    fprintf(
        file,
        "{\"version\":\"0.1.0\",\"processor\":\"A <fast> one\",\"cores\":8,\"started\":\"2026-01-01T00:00:%02dZ\"}\n",
        m.seed);
    fclose(file);
    if (!m.status) return run;
    file = create(run, "result.json");
    fprintf(file, "{\"status\":\"%s\",\"step\":%d,\"seconds\":%g", m.status, m.steps, 0.5 * m.steps);
    if (strcmp(m.status, "finished") == 0) {
        fprintf(file, ",\"valid\":{\"kind\":\"valid\",\"step\":%d,\"loss\":%g}", m.steps, m.valid);
        fprintf(file, ",\"test\":{\"kind\":\"test\",\"step\":%d,\"exact\":%g,\"bleu\":%g}", m.steps, m.exact, m.bleu);
    }
    fprintf(file, "}\n");
    fclose(file);
    return run;
}

const char pictures[] =
    "{\"task\":\"images\",\"items\":\"images\",\"metrics\":[{\"name\":\"loss\",\"headline\":true},"
    "{\"name\":\"accuracy\",\"about\":\"accuracy\",\"unit\":\"%\",\"scale\":100,\"better\":\"higher\",\"headline\":true}]}";

const char *make_curves(const char *directory, const char *name, const char *task) {
    const char *run = below("%s", directory);
    char recipe[100];
    snprintf(recipe, sizeof recipe, "name: %s\n", name);
    put(run, "recipe.yaml", recipe);
    put(run, "task.json", task);
    FILE *file = create(run, "metrics.jsonl");
    for (int i = 1; i <= 40; i++) {
        fprintf(
            file,
            "{\"kind\":\"train\",\"step\":%d,\"epoch\":%g,\"time\":%g,\"loss\":3,\"nll\":2,\"lr\":%g,\"grad_norm\":5,"
            "\"accuracy\":0.25}\n",
            i, i / 20.0, i / 2.0, 1e-3 * pow(1000, i / 40.0));
        if (i % 20) continue;
        for (int k = 0; k < 2; k++)
            fprintf(file,
                    "{\"kind\":\"%s\",\"step\":%d,\"epoch\":%d,\"time\":%d,\"loss\":%d,\"nll\":1,\"accuracy\":0.5}\n",
                    k ? "test" : "valid", i, i / 20, i / 2, 4 + k);
    }
    fclose(file);
    put(run, "result.json", "{\"status\":\"finished\",\"step\":40,\"seconds\":20}");
    return run;
}

/* A directory with a recipe alone. */
const char *bare(const char *name) {
    const char *run = below("%s", name);
    put(run, "recipe.yaml", "name: bare\n");
    return run;
}

/* Takes the page's own script out of it. */
static bool cut_script(char *text) {
    char *from = strstr(text, "<script>");
    const size_t n = strlen(page_script);
    if (!from || strncmp(from + 8, page_script, n) != 0 || strncmp(from + 8 + n, "</script>\n", 10) != 0) return false;
    memmove(from, from + 18 + n, strlen(from + 18 + n) + 1);
    return true;
}

/* Writes the page of some runs, quietly, and gives its text. */
char *page_of(const char *const *runs, int n, const char *name) {
    char page[300];
    snprintf(page, sizeof page, "%s", below("%s", name));
    const int kept = divert(2, below("notes.txt"));
    const int status = report_write(runs, n, KNOWN, page);
    restore(2, kept);
    if (!CHECK_INT(status, 0)) printf("  %s\n", adamod__last_message());
    char *text = contents(page);
    CHECK(cut_script(text));
    return text;
}

/* The page as it is without gnuplot. */
char *plain_page_of(const char *const *runs, int n, const char *name) {
    char *path = strdup(getenv("PATH") ? getenv("PATH") : "");
    setenv("PATH", below("no-programs"), 1);
    char *text = page_of(runs, n, name);
    setenv("PATH", path, 1);
    free(path);
    return text;
}

bool have_gnuplot(void) { return system("gnuplot --version >/dev/null 2>&1") == 0; }
