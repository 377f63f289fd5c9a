/* libFuzzer target: trainer/report, on the files of a run directory.
 *
 * An input is the files in the order of `names`, with a byte 0xff between them; one that is empty is not there. Runs that can
 * be read are printed as a table, and some are drawn on a page; runs that cannot are refused with one line.
 *
 *     build-fuzz/fuzz/fuzz_report -close_fd_mask=3 DIRECTORY      (tables and notes are not for the fuzzer's output)
 *
 * SPDX-License-Identifier: MIT
 */
#include "fuzz.h"
#include "report/reader.h"
#include "report/report.h"
#include "core/error.h"

#include <ftw.h>
#include <sys/stat.h>

static const char *const names[] = {"recipe.yaml",   "task.json",    "metrics.jsonl", "histograms.jsonl",
                                    "samples.jsonl", "classes.json", "result.json",   "data.json",
                                    "machine.json",  "source.vocab", "target.vocab",  "machine.2.json"};
enum { NAMES = sizeof names / sizeof *names };

/* The metrics of runs without a task.json. */
static const metric known[] = {{"loss", "loss", "loss", "", 1, 4, METRIC_LOWER, true, NULL},
                               {"bleu", "BLEU", "BLEU", "", 1, 2, METRIC_HIGHER, true, NULL}};
enum { KNOWN = sizeof known / sizeof *known };

static char root[40], run[64], page[64];

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw) {
    (void)st, (void)flag, (void)ftw;
    return remove(path);
}
static void remove_root(void) { nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS); }

/* Without gnuplot, which has a parser of its own. */
static void make_root(void) {
    snprintf(root, sizeof root, "%s/fuzz_report.XXXXXX", fuzz_place());
    require(mkdtemp(root) != NULL && setenv("PATH", root, 1) == 0);
    snprintf(run, sizeof run, "%s/run", root);
    snprintf(page, sizeof page, "%s/page.html", root);
    require(mkdir(run, 0777) == 0);
    atexit(remove_root);
}

static void put_file(const char *name, const uint8_t *bytes, size_t n) {
    char path[128];
    snprintf(path, sizeof path, "%s/%s", run, name);
    if (n == 0) {
        unlink(path);
        return;
    }
    FILE *file = fopen(path, "wb");
    require(file && fwrite(bytes, 1, n, file) == n);
    require(fclose(file) == 0);
}

static void put_files(const uint8_t *data, size_t size) {
    for (int i = 0; i < NAMES; i++) {
        const uint8_t *end = size ? memchr(data, 0xff, size) : NULL;
        const size_t n = end ? (size_t)(end - data) : size;
        put_file(names[i], data, n);
        data += n + (end != NULL);
        size -= n + (end != NULL);
    }
}

static void check_line(const char *message) { require(is_line(message)); }

/* The reader's promises to the code that draws. */
static void check_run(const report_run *r) {
    require(r->n_metrics >= 0 && r->n_metrics <= REPORT_METRICS && r->n_subtitle <= REPORT_KEYS);
    for (size_t i = 1; i < r->train.n; i++) require(r->train.at[i - 1].step <= r->train.at[i].step);
    for (size_t i = 0; i < r->n_histograms; i++) {
        const report_histogram *h = &r->histogram[i];
        require(h->bins > 0 && h->low < h->high);
        for (int b = 0; b < h->bins; b++) require(h->eta[b] >= 0 && h->effective[b] >= 0);
    }
    for (size_t i = 0; i < r->n_samples; i++) require(r->sample[i].n <= REPORT_TEXTS);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    report_run r;
    const char *const runs[] = {run};
    if (!*root) make_root();
    put_files(data, size);
    if (report_run_read(&r, run, known, KNOWN)) {
        check_line(adamod__last_message());
        return 0;
    }
    check_run(&r);
    report_run_free(&r);
    if (report_print_table(runs, 1, known, KNOWN)) check_line(adamod__last_message());
    uint32_t hash = 2166136261u; /* a page takes as long as some fifty tables */
    for (size_t i = 0; i < size; i++) hash = (hash ^ data[i]) * 16777619u;
    if (hash >> 8 & 15) return 0;
    if (report_write(runs, 1, known, KNOWN, page)) check_line(adamod__last_message());
    return 0;
}
