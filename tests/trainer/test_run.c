/* Run directories: what is written, that a crash or a full disk leaves whole lines, and that a run can be cut back and
 * continued. TensorBoard's files are read by a decoder of this test's own.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "support/directory.h"
#include "check.h"
#include "child.h"
#include "scratch.h"
#include "small_recipe.h"
#include "values.h"
#include "support/json.h"
#include "tasks/tasks.h"
#include "train/run.h"
#include "train/tfevents.h"
#include "core/error.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <math.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- files ---- */

/* A file's bytes with a zero behind them, to be freed; NULL if there is none. */
static char *contents(const char *path, size_t *n) {
    FILE *file = fopen(path, "rb");
    if (!file) return NULL;
    char *text = calloc(1, 1 << 20);
    *n = text ? fread(text, 1, (1 << 20) - 1, file) : 0;
    fclose(file);
    return text;
}

static void check_contents(const char *path, const char *expected) {
    size_t n = 0;
    char *text = contents(path, &n);
    CHECK_STR(text, expected);
    free(text);
}

static int64_t size_of(const char *path) {
    struct stat st;
    return stat(path, &st) ? -1 : (int64_t)st.st_size;
}

static void add_to(const char *path, const char *text) {
    FILE *file = fopen(path, "ab");
    if (!CHECK(file != NULL)) return;
    fputs(text, file);
    fclose(file);
}

static const char *events_in(const char *directory) {
    static char path[512];
    char pattern[300];
    glob_t found;
    snprintf(pattern, sizeof pattern, "%s/events.out.tfevents.*", directory);
    *path = '\0';
    if (glob(pattern, 0, NULL, &found) == 0) {
        CHECK_INT(found.gl_pathc, 1);
        snprintf(path, sizeof path, "%s", found.gl_pathv[0]);
    }
    globfree(&found);
    return path;
}

/* The number of names in a directory; 0 if there is none. */
static int count_names(const char *directory) {
    int n = 0;
    DIR *d = opendir(directory);
    while (d && readdir(d)) n++;
    if (d) closedir(d);
    return d ? n - 2 : 0;
}

/* ---- runs ---- */

static recipe plain(void) {
    recipe r;
    recipe_defaults(&r, tasks_all);
    return r;
}

static run *open_run(const char *directory, bool resume) {
    OWNED_RECIPE r = plain();
    run *out = NULL;
    if (!CHECK_INT(run_open(&out, directory, &r, resume, 0), 0)) printf("%s\n", adamod__last_message());
    return out;
}

static const char *open_complaint(const char *directory, const recipe *r, bool resume) {
    run *out = NULL;
    if (run_open(&out, directory, r, resume, 0)) return adamod__last_message();
    run_close(out);
    return "(none)";
}

static run_metrics training(int64_t step) {
    run_metrics m = {.kind = "train", .step = step};
    run_counted(&m, "time", 0.125 * (double)step);
    run_measured(&m, "loss", 2.5);
    run_measured(&m, "nll", 0.1);
    run_measured(&m, "lr", 3e-3);
    run_counted(&m, "tokens", 12345);
    run_measured(&m, "tokens_per_second", 9000);
    run_measured(&m, "grad_norm", 1.25);
    return m;
}

static adamod_statistics statistics(void) {
    adamod_statistics s = {
        .elements = 10, .bounded = 0.5, .eta_min = 0.001, .eta_median = 0.01, .eta_max = 1e20, .nonfinite = 3};
    s.step_median = 0.002;
    s.step_max = 0.01;
    s.eta[90] = 3;
    s.eta[92] = 6;
    s.eta[199] = 1;
    s.step[0] = 10;
    s.idle_eta[199] = 1;
    s.idle_step[0] = 1;
    return s;
}

static int add_sample(run *r, int64_t step, const char *source, const char *reference, const char *output) {
    const task_text texts[] = {{"source", source}, {"reference", reference}, {"output", output}};
    return run_add_sample(r, step, 3, texts);
}

static void add_three(run *r) {
    run_metrics m = training(1);
    const adamod_statistics s = statistics();
    CHECK_INT(run_add_metrics(r, &m), 0);
    CHECK_INT(run_add_histogram(r, 1, &s), 0);
    CHECK_INT(add_sample(r, 1, "eins", "one", "on"), 0);
}

/* ---- JSON ---- */

/* The place behind a JSON value, or NULL: enough of a parser to find what is not JSON. */
static const char *json_value(const char *c) {
    if (*c == '{' || *c == '[') {
        const char open = *c++;
        if (*c == (open == '{' ? '}' : ']')) return c + 1;
        for (;; c++) {
            if (open == '{') {
                if (*c != '"' || !(c = json_value(c)) || *c++ != ':') return NULL;
            }
            if (!(c = json_value(c))) return NULL;
            if (*c == (open == '{' ? '}' : ']')) return c + 1;
            if (*c != ',') return NULL;
        }
    }
    if (*c == '"') {
        for (c++; *c != '"'; c++) {
            if ((unsigned char)*c < 0x20) return NULL;
            if (*c == '\\' && !strchr("\"\\u", *++c)) return NULL;
        }
        return c + 1;
    }
    const char *const words[] = {"null", "true", "false"};
    for (int i = 0; i < 3; i++) {
        if (strncmp(c, words[i], strlen(words[i])) == 0) return c + strlen(words[i]);
    }
    char *end;
    if (!strchr("-0123456789", *c) || !*c) return NULL;
    (void)strtod(c, &end);
    return end > c ? end : NULL;
}

static void check_json_lines(const char *path, int lines) {
    size_t n = 0;
    char *text = contents(path, &n);
    const char *c = text;
    for (; c && *c; lines--) {
        c = *c == '{' ? json_value(c) : NULL;
        if (!CHECK(c && *c == '\n')) break;
        c++;
    }
    CHECK_INT(lines, 0);
    free(text);
}

TEST(json_escapes_and_separates) {
    json j = {0};
    json_open(&j, '{');
    json_key(&j, "a\"b");
    json_string(&j, "\x01\t\n\\ \xc3\xbc \xff \xf0\x9f\x98\x80 \xed\xa0\x80 \x7f");
    json_key(&j, "list");
    json_open(&j, '[');
    json_integer(&j, INT64_MIN);
    json_number(&j, NAN);
    json_number(&j, -INFINITY);
    json_string(&j, NULL);
    json_open(&j, '[');
    json_close(&j, ']');
    json_close(&j, ']');
    json_key(&j, "x");
    json_string(&j, "");
    json_close(&j, '}');
    CHECK(!j.failed);
    CHECK_STR(j.text, "{\"a\\\"b\":\"\\u0001\\u0009\\u000a\\\\ \xc3\xbc \\ufffd \xf0\x9f\x98\x80 \\ufffd\\ufffd\\ufffd "
                      "\\u007f\",\"list\":[-9223372036854775808,null,null,null,[]],\"x\":\"\"}");
    const char *end = json_value(j.text);
    CHECK(end && !*end);
    json_free(&j);
}

TEST(numbers_are_shortest_and_exact) {
    const double list[] = {
        0, -0.0, 1, 0.1, 0.3, 1e-9, 1.0 / 3, 1e300, 5e-324, 12345, 0.1 + 0.2, 1e15, 123456789012345678.0};
    char text[32];
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        CHECK(strtod(json_shortest(list[i], text), NULL) == list[i]);
        const char *end = json_value(text);
        CHECK(end && !*end);
    }
    CHECK_STR(json_shortest(0.1, text), "0.1");
    CHECK_STR(json_shortest(-9000, text), "-9000");
    CHECK_STR(json_shortest(1e-9, text), "1e-09");
    CHECK_STR(json_shortest(0.1 + 0.2, text), "0.30000000000000004");
}

/* ---- the decoder of event files ---- */

typedef struct slice {
    const unsigned char *at, *end;
} slice;

static uint64_t little(const unsigned char *p, int n) {
    uint64_t x = 0;
    while (n--) x = x << 8 | p[n];
    return x;
}

/* CRC-32C bit by bit, from its definition alone. */
static uint32_t masked_crc(const unsigned char *p, size_t n) {
    uint32_t crc = ~0u;
    for (size_t i = 0; i < n; i++) {
        crc ^= p[i];
        for (int b = 0; b < 8; b++) crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
    }
    crc = ~crc;
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

/* The next record's data; false at the end, and if a record is damaged. */
static bool next_record(slice *file, slice *data) {
    if (file->end - file->at < 16) return false;
    const uint64_t n = little(file->at, 8);
    if (!CHECK(little(file->at + 8, 4) == masked_crc(file->at, 8))) return false;
    if (!CHECK(n + 16 <= (uint64_t)(file->end - file->at))) return false;
    *data = (slice){file->at + 12, file->at + 12 + n};
    if (!CHECK(little(data->end, 4) == masked_crc(data->at, n))) return false;
    file->at = data->end + 4;
    return true;
}

typedef struct proto_field {
    int number, wire;
    uint64_t value; /* of a varint or a fixed number */
    slice bytes;
} proto_field;

static uint64_t varint(slice *in) {
    uint64_t x = 0;
    for (int shift = 0; in->at < in->end; shift += 7) {
        const unsigned char byte = *in->at++;
        x |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) break;
    }
    return x;
}

static bool next_field(slice *in, proto_field *f) {
    if (in->at >= in->end) return false;
    const uint64_t key = varint(in);
    *f = (proto_field){.number = (int)(key >> 3), .wire = (int)(key & 7)};
    if (f->wire == 0) f->value = varint(in);
    if (f->wire == 1) f->value = little(in->at, 8), in->at += 8;
    if (f->wire == 5) f->value = little(in->at, 4), in->at += 4;
    if (f->wire == 2) {
        const uint64_t n = varint(in);
        f->bytes = (slice){in->at, in->at + n};
        in->at += n;
    }
    CHECK(f->wire == 0 || f->wire == 1 || f->wire == 2 || f->wire == 5);
    return CHECK(in->at <= in->end);
}

static double as_double(uint64_t bits) {
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static float as_float(uint64_t bits) {
    const uint32_t narrow = (uint32_t)bits;
    float x;
    memcpy(&x, &narrow, sizeof x);
    return x;
}

/* All that a file holds, a line for each value: "1 train/loss 2.5", "1 tag min max num sum limits counts". */
static void describe_value(slice value, int64_t step, FILE *out) {
    for (proto_field f; next_field(&value, &f);) {
        if (f.number == 1) fprintf(out, "%lld %.*s", (long long)step, (int)(f.bytes.end - f.bytes.at), f.bytes.at);
        if (f.number == 2) fprintf(out, " %g", (double)as_float(f.value));
        if (f.number != 5) continue;
        for (proto_field h; next_field(&f.bytes, &h);) {
            if (h.number < 6) fprintf(out, " %.4g", as_double(h.value));
            if (h.number == 7) fprintf(out, " |");
            for (const unsigned char *p = h.bytes.at; h.number >= 6 && p < h.bytes.end; p += 8) {
                fprintf(out, " %.4g", as_double(little(p, 8)));
            }
        }
    }
    fprintf(out, "\n");
}

static char *describe_events(const char *path) {
    size_t n = 0, m = 0;
    char *bytes = contents(path, &n), *text = NULL;
    FILE *out = open_memstream(&text, &m);
    slice file = {(unsigned char *)bytes, (unsigned char *)bytes + n}, record;
    while (out && bytes && next_record(&file, &record)) {
        int64_t step = 0;
        for (proto_field f; next_field(&record, &f);) {
            if (f.number == 1) CHECK(as_double(f.value) > 1.6e9);
            if (f.number == 2) step = (int64_t)f.value;
            if (f.number == 3) fprintf(out, "%.*s\n", (int)(f.bytes.end - f.bytes.at), f.bytes.at);
            if (f.number != 5) continue;
            for (proto_field v; next_field(&f.bytes, &v);) describe_value(v.bytes, step, out);
        }
    }
    CHECK(file.at == file.end);
    fclose(out);
    free(bytes);
    return text;
}

static void check_events(const char *directory, const char *expected) {
    char *text = describe_events(events_in(directory));
    CHECK_STR(text, expected);
    free(text);
}

TEST(crc32c_is_castagnolis) {
    CHECK(tfevents_crc32c("123456789", 9) == 0xe3069283u); /* the usual test of the polynomial */
    CHECK(tfevents_crc32c("", 0) == 0);
    const unsigned char zeros[32] = {0};
    CHECK(tfevents_crc32c(zeros, 32) == 0x8a9136aau); /* RFC 3720, B.4 */
}

/* ---- what a run writes ---- */

TEST(a_new_run_says_what_it_is) {
    run *r = open_run(below("deep/er/new"), false);
    if (!r) return;
    CHECK_STR(run_directory(r), below("deep/er/new"));
    const char *const library[][2] = {{"matrix_library", "oneDNN \"3.1\""}};
    CHECK_INT(run_describe(r, 1, library), 0);
    OWNED_RECIPE again = {0};
    recipe_defaults(&again, tasks_all);
    CHECK_INT(recipe_load(&again, below("deep/er/new/recipe.yaml")), 0);
    size_t n = 0;
    char *machine = contents(below("deep/er/new/machine.json"), &n);
    CHECK_HAS(machine, "\"version\":\"");
    CHECK_HAS(machine, "\"instruction_set\":\"");
    CHECK_HAS(machine, "\"cores\":");
    CHECK_HAS(machine, "\"matrix_library\":\"oneDNN \\\"3.1\\\"\"}");
    free(machine);
    check_json_lines(below("deep/er/new/machine.json"), 1);
    check_contents(below("deep/er/new/metrics.jsonl"), "");
    check_events(below("deep/er/new"), "brain.Event:2\n");
    CHECK(size_of(below("deep/er/new/checkpoints")) >= 0);
    run_close(r);
    run_close(NULL);
}

TEST(metrics_are_lines_of_json_and_scalars) {
    run *r = open_run(below("metrics"), false);
    if (!r) return;
    run_metrics m = training(10);
    CHECK_INT(run_add_metrics(r, &m), 0);
    m = (run_metrics){.kind = "valid", .step = 100};
    run_counted(&m, "time", 1.5);
    run_measured(&m, "loss", INFINITY);
    run_measured(&m, "nll", 0);
    run_measured(&m, "ppl", 1);
    run_measured(&m, "missing", NAN);
    run_measured(&m, "exact", 0.5);
    run_measured(&m, "bleu", 33.25);
    CHECK_INT(run_add_metrics(r, &m), 0);
    check_contents(
        below("metrics/metrics.jsonl"),
        "{\"kind\":\"train\",\"step\":10,\"time\":1.25,\"loss\":2.5,\"nll\":0.1,\"lr\":0.003,\"tokens\":12345,"
        "\"tokens_per_second\":9000,\"grad_norm\":1.25}\n"
        "{\"kind\":\"valid\",\"step\":100,\"time\":1.5,\"loss\":null,\"nll\":0,\"ppl\":1,\"exact\":0.5,"
        "\"bleu\":33.25}\n");
    check_json_lines(below("metrics/metrics.jsonl"), 2);
    check_events(below("metrics"), "brain.Event:2\n10 train/loss 2.5\n10 train/nll 0.1\n10 train/lr 0.003\n"
                                   "10 train/tokens_per_second 9000\n10 train/grad_norm 1.25\n100 valid/nll 0\n"
                                   "100 valid/ppl 1\n100 valid/exact 0.5\n100 valid/bleu 33.25\n");
    run_close(r);
}

TEST(histograms_leave_out_zeros_at_both_ends) {
    run *r = open_run(below("histograms"), false);
    if (!r) return;
    adamod_statistics s = statistics();
    CHECK_INT(run_add_histogram(r, 7, &s), 0);
    s = (adamod_statistics){0};
    CHECK_INT(run_add_histogram(r, 8, &s), 0);
    size_t n = 0;
    char *text = contents(below("histograms/histograms.jsonl"), &n);
    CHECK_HAS(
        text,
        "{\"step\":7,\"bounded\":0.5,\"eta_min\":0.001,\"eta_median\":0.01,\"eta_max\":1e+20,\"step_min\":0,"
        "\"step_median\":0.002,\"step_max\":0.01,\"nonfinite\":3,\"low\":-12,\"high\":8,\"bins\":200,\"eta_first\":90,"
        "\"eta\":[3,0,6,0,");
    CHECK_HAS(
        text,
        ",0,1],\"effective_first\":0,\"effective\":[10],\"idle_eta_first\":199,\"idle_eta\":[1],\"idle_effective_first\":0,\"idle_effective\":[1]}\n{\"step\":8,");
    CHECK_HAS(
        text,
        "\"eta_first\":0,\"eta\":[],\"effective_first\":0,\"effective\":[],\"idle_eta_first\":0,\"idle_eta\":[],\"idle_effective_first\":0,\"idle_effective\":[]}\n");
    free(text);
    check_json_lines(below("histograms/histograms.jsonl"), 2);
    char *events = describe_events(events_in(below("histograms")));
    CHECK_HAS(events, "\n7 learning_rate/before_bound -3 8 10 -17.4 ");
    CHECK_HAS(events, " -2.9 -2.8 -2.7 ");
    CHECK_HAS(events, " 8 | 3 0 6 0 ");
    CHECK_HAS(events, "\n7 learning_rate/after_bound -12 -2 10 -119.5 1428 -11.9 | 10\n");
    free(events);
    run_close(r);
}

TEST(samples_are_escaped) {
    run *r = open_run(below("samples"), false);
    if (!r) return;
    CHECK_INT(add_sample(r, 900, "f\xc3\xbcnf \"5\"", "five\n", "\xff"), 0);
    check_contents(below("samples/samples.jsonl"), "{\"step\":900,\"source\":\"f\xc3\xbcnf \\\"5\\\"\",\"reference\":"
                                                   "\"five\\u000a\",\"output\":\"\\ufffd\"}\n");
    run_close(r);
}

TEST(the_result_is_written_at_the_end) {
    run *r = open_run(below("result"), false);
    if (!r) return;
    run_metrics valid = {.kind = "valid", .step = 900}, test = {.kind = "test", .step = 900};
    run_measured(&valid, "nll", 0);
    run_measured(&test, "bleu", 12.5);
    CHECK_INT(run_finish(r, &(run_result){"finished", 900, 61.5, &valid, &test, false}, &(double){0}), 0);
    check_contents(below("result/result.json"),
                   "{\"status\":\"finished\",\"step\":900,\"seconds\":61.5,\"valid\":{\"kind\":\"valid\",\"step\":900,"
                   "\"nll\":0},\"test\":{\"kind\":\"test\",\"step\":900,\"bleu\":12.5}}\n");
    CHECK_INT(run_finish(r, &(run_result){"interrupted", 3, 1, NULL, NULL, false}, &(double){0}), 0);
    check_contents(below("result/result.json"), "{\"status\":\"interrupted\",\"step\":3,\"seconds\":1}\n");
    run_close(r);
}

/* ---- directories that cannot be used ---- */

/* A new run there is refused, and changes nothing. */
static void check_kept(const char *directory, const char *name, const char *text) {
    OWNED_RECIPE r = plain();
    char expected[400], path[300];
    snprintf(expected, sizeof expected, "%s exists and is not empty: choose another --out, or --resume to continue it",
             directory);
    snprintf(path, sizeof path, "%s/%s", directory, name);
    const int before = count_names(directory);
    CHECK_STR(open_complaint(directory, &r, false), expected);
    check_contents(path, text);
    CHECK_INT(count_names(directory), before);
}

TEST(a_directory_with_something_in_it_is_refused) {
    OWNED_RECIPE r = plain();
    mkdir(below("notes"), 0777);
    add_to(below("notes/thesis.txt"), "years of work");
    check_kept(below("notes"), "thesis.txt", "years of work");
    /* with names that a run has, too: metrics.jsonl is the first that it makes */
    mkdir(below("own"), 0777);
    add_to(below("own/recipe.yaml"), "# by hand");
    check_kept(below("own"), "recipe.yaml", "# by hand");
    add_to(below("own/metrics.jsonl"), "{\"epoch\": 1}\n");
    check_kept(below("own"), "metrics.jsonl", "{\"epoch\": 1}\n");
    check_kept(below("own"), "recipe.yaml", "# by hand");
    mkdir(below("linked"), 0777);
    CHECK_STR(open_complaint(below("linked"), &r, false), "(none)");
    CHECK_INT(unlink(below("linked/recipe.yaml")), 0);
    CHECK_INT(symlink("../own/recipe.yaml", below("linked/recipe.yaml")), 0);
    check_kept(below("linked"), "recipe.yaml", "# by hand");
}

/* Files that come before a run's first checkpoint. */
static const char *const early[] = {"data.json",
                                    "machine.3.json",
                                    "source.vocab",
                                    "words.vocab",
                                    "classes.txt",
                                    ".ranks-0123456789abcdef",
                                    ".adamod-0.tmp",
                                    "checkpoints/.adamod-0.tmp",
                                    "checkpoints/best.safetensors.tmp.link"};

static void make_unbegun(const char *directory) {
    char path[300];
    run *r = open_run(directory, false);
    if (!r) return;
    CHECK(!run_begins_again(r));
    add_three(r);
    run_close(r);
    for (size_t i = 0; i < sizeof early / sizeof *early; i++) {
        snprintf(path, sizeof path, "%s/%s", directory, early[i]);
        add_to(path, "left");
    }
}

TEST(a_run_without_a_checkpoint_is_begun_again) {
    OWNED_RECIPE r = plain();
    char path[300];
    make_unbegun(below("unbegun"));
    add_to(below("unbegun/note.txt"), "people's own");
    CHECK(run_is_unbegun(below("unbegun"), &r));
    run *again = open_run(below("unbegun"), false);
    if (!again) return;
    CHECK(run_begins_again(again));
    for (size_t i = 0; i < sizeof early / sizeof *early; i++) {
        snprintf(path, sizeof path, "%s/%s", below("unbegun"), early[i]);
        CHECK_INT(size_of(path), -1);
    }
    check_contents(below("unbegun/metrics.jsonl"), "");
    check_events(below("unbegun"), "brain.Event:2\n");
    check_contents(below("unbegun/note.txt"), "people's own");
    run_discard(again); /* which does not take what was there before */
    CHECK(size_of(below("unbegun/recipe.yaml")) > 0);
    CHECK(run_is_unbegun(below("unbegun"), &r));
}

TEST(a_run_with_anything_to_lose_is_not_begun_again) {
    static const char *const more[] = {"checkpoints/best.safetensors",
                                       "checkpoints/step-5.safetensors",
                                       "result.json",
                                       "classes.json",
                                       "report.html",
                                       "checkpoints/notes"};
    OWNED_RECIPE r = plain();
    char path[300];
    for (size_t i = 0; i < sizeof more / sizeof *more; i++) {
        snprintf(path, sizeof path, "lose-%zu", i);
        const char *directory = below("%s", path);
        make_unbegun(directory);
        snprintf(path, sizeof path, "%s/%s", directory, more[i]);
        add_to(path, "{}");
        CHECK(!run_is_unbegun(directory, &r));
        check_kept(directory, more[i], "{}");
        check_kept(directory, "source.vocab", "left");
    }
}

TEST(a_directory_is_made_with_those_above_it) {
    bool made = false;
    CHECK_INT(directory_make(below("a//b/c/"), &made), 0);
    CHECK(made);
    CHECK_INT(directory_make(below("a/b/c"), &made), 0);
    CHECK(!made);
    add_to(below("a/file"), "x");
    CHECK_INT(directory_make(below("a/file"), NULL), ENOTDIR);
    CHECK_INT(directory_make(below("a/file/b/c"), &made), ENOTDIR);
    CHECK(!made);
    CHECK_INT(directory_make("/", NULL), 0);
    CHECK_INT(directory_make("", NULL), ENOENT);
}

TEST(a_directory_that_cannot_be_made_is_refused) {
    OWNED_RECIPE r = plain();
    add_to(below("file"), "x");
    CHECK_HAS(open_complaint(below("file/run"), &r, false), "file/run: cannot make the directory: Not a directory");
    CHECK_HAS(open_complaint(below("file"), &r, false), "file: cannot make the directory: Not a directory");
    CHECK_HAS(open_complaint("/proc/run", &r, false), "/proc/run: cannot make the directory: ");
    CHECK_HAS(open_complaint("", &r, false), "empty name");
    check_contents(below("file"), "x");
}

static const char *as_nobody(void) {
    OWNED_RECIPE r = plain();
    if (setgid(65534) || setuid(65534)) return "skip";
    return open_complaint(below("locked/run"), &r, false);
}

TEST(a_directory_without_permission_is_refused) {
    mkdir(below("locked"), 0755);
    if (geteuid() != 0) SKIP("only root can become someone who may not");
    chmod(below("."), 0755);
    const char *told = in_child(as_nobody);
    if (!CHECK(told)) return;
    if (strcmp(told, "skip") == 0) SKIP("cannot become nobody");
    CHECK_HAS(told, "locked/run: cannot make the directory: Permission denied");
}

/* ---- resuming ---- */

TEST(only_a_run_can_be_resumed_and_only_with_its_recipe) {
    OWNED_RECIPE r = plain();
    CHECK_HAS(open_complaint(below("nowhere"), &r, true), "nowhere: no run to resume: recipe.yaml: No such file");
    CHECK_INT(size_of(below("nowhere")), -1);
    CHECK_STR(open_complaint(below("mine"), &r, false), "(none)");
    CHECK_INT(recipe_set(&r, "train.steps=5000"), 0);
    CHECK_STR(open_complaint(below("mine"), &r, true), "(none)");
    CHECK_INT(recipe_set(&r, "model.d=256"), 0);
    CHECK_HAS(open_complaint(below("mine"), &r, true),
              "mine cannot be resumed with another recipe: model.d is 256, but was 128");
}

TEST(two_processes_cannot_have_the_same_run) {
    OWNED_RECIPE recipe_now = plain();
    run *r = open_run(below("shared"), false);
    if (!r) return;
    /* flock is held by the open file, so this process counts as another one too */
    CHECK_HAS(open_complaint(below("shared"), &recipe_now, true), "shared is in use by another process");
    run_close(r);
    CHECK_STR(open_complaint(below("shared"), &recipe_now, true), "(none)");
}

/* ---- several at once ---- */

enum { AT_ONCE = 3 };

/* Runs act in AT_ONCE processes that begin at the same moment and end together: the sum of what it returns. */
static int sum_at_once(int (*act)(const char *directory, int number), const char *directory) {
    int go[2], come[2], sum = 0;
    pid_t child[AT_ONCE];
    char byte;
    if (pipe(go) || pipe(come)) return -1;
    fflush(stdout);
    for (int i = 0; i < AT_ONCE; i++) {
        child[i] = fork();
        if (child[i] > 0) continue;
        close(go[1]);
        close(come[0]);
        (void)!read(go[0], &byte, 1); /* the end of it */
        const char answer = (char)act(directory, i);
        (void)!write(come[1], &answer, 1);
        close(come[1]);
        pause();
    }
    close(go[0]);
    close(go[1]);
    close(come[1]);
    while (read(come[0], &byte, 1) == 1) sum += byte;
    close(come[0]);
    for (int i = 0; i < AT_ONCE; i++) {
        kill(child[i], SIGKILL);
        waitpid(child[i], NULL, 0);
    }
    return sum;
}

/* 1: it has the run; 16: another has; 64: neither. It is held until the process ends. */
static int begin_one(const char *directory, int number) {
    OWNED_RECIPE r = plain();
    run *out = NULL;
    (void)number;
    if (run_open(&out, directory, &r, false, 0) == 0) return 1;
    return strstr(adamod__last_message(), "is in use by another process") && !strchr(adamod__last_message(), '\n') ? 16
                                                                                                                   : 64;
}

/* In a directory that is not there, is empty, or holds a run that was never saved. */
TEST(of_several_that_begin_a_run_at_once_one_does) {
    char name[32];
    for (int i = 0; i < (fast() ? 30 : 200) && check_failures == 0; i++) {
        snprintf(name, sizeof name, "race-%d", i);
        const char *directory = below("%s", name);
        if (i % 3 == 1) CHECK_INT(mkdir(directory, 0777), 0);
        if (i % 3 == 2) make_unbegun(directory);
        CHECK_INT(sum_at_once(begin_one, directory), 1 + 2 * 16);
        CHECK_INT(count_names(directory), 8);
        snprintf(name, sizeof name, "race-%d/task.json", i);
        check_json_lines(below("%s", name), 1);
        snprintf(name, sizeof name, "race-%d/machine.json", i);
        check_json_lines(below("%s", name), 1);
    }
}

/* Begins it and takes that back, again and again: while a process has the run, its files are there. */
static int begin_and_discard(const char *directory, int number) {
    OWNED_RECIPE r = plain();
    char path[300];
    int had = 0, wrong = 0;
    for (int i = 0; i < 1000000 && had < 40 && !wrong; i++) {
        run *out = NULL;
        if (run_open(&out, directory, &r, false, 0)) {
            wrong += !strstr(adamod__last_message(), "is in use by another process");
            continue;
        }
        had++;
        for (int k = 0; k < 3; k++) {
            static const char *const names[] = {"recipe.yaml", "metrics.jsonl", "task.json"};
            snprintf(path, sizeof path, "%s/%s", directory, names[(k + number) % 3]);
            wrong += size_of(path) < 0;
        }
        run_discard(out);
    }
    return wrong ? 64 : had == 40;
}

TEST(who_takes_back_a_run_takes_nobody_elses) {
    CHECK_INT(sum_at_once(begin_and_discard, below("come-and-go")), AT_ONCE);
    const int64_t left = size_of(below("come-and-go/metrics.jsonl")); /* one made it, another had it */
    CHECK(left <= 0);
    CHECK(count_names(below("come-and-go")) <= 1);
}

TEST(a_torn_line_is_cut_off) {
    run *r = open_run(below("torn"), false);
    if (!r) return;
    add_three(r);
    run_close(r);
    const int64_t metrics = size_of(below("torn/metrics.jsonl")), events = size_of(events_in(below("torn")));
    add_to(below("torn/metrics.jsonl"), "{\"kind\":\"tra");
    add_to(below("torn/samples.jsonl"), "{");
    char tail[10000];
    memset(tail, 'x', sizeof tail - 1);
    tail[sizeof tail - 1] = '\0';
    add_to(below("torn/histograms.jsonl"), tail);
    add_to(events_in(below("torn")), "half a record, as a power cut leaves it");
    r = open_run(below("torn"), true);
    if (!r) return;
    CHECK_INT(size_of(below("torn/metrics.jsonl")), metrics);
    CHECK_INT(size_of(events_in(below("torn"))), events);
    check_json_lines(below("torn/histograms.jsonl"), 1);
    check_json_lines(below("torn/samples.jsonl"), 1);
    add_three(r);
    check_json_lines(below("torn/metrics.jsonl"), 2);
    char *text = describe_events(events_in(below("torn")));
    CHECK_HAS(text, "1 train/loss 2.5\n");
    free(text);
    run_close(r);
}

TEST(a_damaged_record_ends_the_event_file) {
    run *r = open_run(below("damaged"), false);
    if (!r) return;
    const int64_t first = size_of(events_in(below("damaged")));
    add_three(r);
    run_close(r);
    const int fd = open(events_in(below("damaged")), O_RDWR);
    CHECK_INT(pwrite(fd, "!", 1, (off_t)first + 20), 1);
    int64_t version = 0;
    CHECK_INT(tfevents_whole(fd, &version), first);
    CHECK_INT(version, first);
    close(fd);
}

TEST(a_run_is_cut_back_to_a_mark) {
    char mark[RUN_MARK], tiny[8];
    run *r = open_run(below("mark"), false);
    if (!r) return;
    add_three(r);
    CHECK_INT(run_mark(r, mark, sizeof mark), 0);
    CHECK_INT(run_mark(r, tiny, sizeof tiny), ADAMOD_ERROR_IO);
    size_t n = 0;
    char *metrics = contents(below("mark/metrics.jsonl"), &n), *events = describe_events(events_in(below("mark")));
    add_three(r);
    add_three(r);
    CHECK_INT(run_finish(r, &(run_result){"interrupted", 3, 1, NULL, NULL, false}, &(double){0}), 0);
    run_close(r);

    OWNED_RECIPE longer = plain();
    CHECK_INT(recipe_set(&longer, "train.steps=1234"), 0);
    if (!CHECK_INT(run_open(&r, below("mark"), &longer, true, 0), 0)) return;
    const char *const library[][2] = {{"matrix_library", "none"}};
    CHECK_INT(run_describe(r, 1, library), 0);
    CHECK_INT(size_of(below("mark/machine.2.json")), -1);
    CHECK_INT(run_rewind(r, mark), 0);
    check_contents(below("mark/metrics.jsonl"), metrics);
    check_events(below("mark"), events);
    check_json_lines(below("mark/histograms.jsonl"), 1);
    check_json_lines(below("mark/samples.jsonl"), 1);
    CHECK_INT(size_of(below("mark/result.json")), -1);
    check_json_lines(below("mark/machine.2.json"), 1);
    CHECK_INT(size_of(below("mark/machine.3.json")), -1);
    char *text = contents(below("mark/recipe.yaml"), &n);
    CHECK_HAS(text, "steps: 1234\n");
    free(text);
    add_three(r);
    check_json_lines(below("mark/metrics.jsonl"), 2);

    CHECK_INT(run_rewind(r, NULL), 0);
    check_contents(below("mark/metrics.jsonl"), "");
    check_events(below("mark"), "brain.Event:2\n");
    run_close(r);
    free(metrics);
    free(events);
}

TEST(a_mark_that_does_not_fit_changes_nothing) {
    char mark[RUN_MARK];
    run *r = open_run(below("unfit"), false);
    if (!r) return;
    add_three(r);
    CHECK_INT(run_mark(r, mark, sizeof mark), 0);
    CHECK_INT(run_rewind(r, NULL), 0);
    add_three(r);
    add_three(r);
    const int64_t size = size_of(below("unfit/metrics.jsonl"));
    CHECK_INT(run_rewind(r, "metrics.jsonl 0 histograms.jsonl x"), -1);
    CHECK_HAS(adamod__last_message(), "is damaged");
    CHECK_INT(run_rewind(r, "metrics.jsonl 0"), -1);
    CHECK_HAS(adamod__last_message(), "the checkpoint's list of file sizes lacks histograms.jsonl");
    CHECK_INT(run_rewind(r, "metrics.jsonl 3 histograms.jsonl 0 samples.jsonl 0"), -1);
    CHECK_HAS(adamod__last_message(), "unfit/metrics.jsonl was changed since the checkpoint: it had 3 bytes, now ");
    CHECK_HAS(adamod__last_message(), "; restore it, or begin another run from these weights: --init-from ");
    CHECK_INT(run_rewind(r, "metrics.jsonl 0 histograms.jsonl 0 samples.jsonl 99999"), -1);
    CHECK_HAS(adamod__last_message(), "unfit/samples.jsonl was changed since the checkpoint: it had 99999 bytes, now ");
    CHECK_INT(size_of(below("unfit/metrics.jsonl")), size);
    /* TensorBoard's file may be another one: then it is begun anew */
    CHECK_INT(run_rewind(r, "metrics.jsonl 0 histograms.jsonl 0 samples.jsonl 0 events.out.tfevents.1.x 5"), 0);
    check_events(below("unfit"), "brain.Event:2\n");
    run_close(r);
}

/* ---- full disks ---- */

/* Adds lines until one fails; the message then. Every file holds whole lines and records. */
static const char *fill(const char *directory) {
    OWNED_RECIPE recipe_now = plain();
    static char result[1024];
    run *r = NULL;
    if (run_open(&r, directory, &recipe_now, false, 0)) return adamod__last_message();
    const adamod_statistics s = statistics();
    const run_metrics m = training(1);
    int lines = 0;
    while (lines < 100000 && run_add_metrics(r, &m) == 0 && run_add_histogram(r, 1, &s) == 0) {
        lines++;
    }
    snprintf(result, sizeof result, "%s", adamod__last_message());
    struct rlimit none = {RLIM_INFINITY, RLIM_INFINITY};
    (void)setrlimit(RLIMIT_FSIZE, &none);
    char path[300];
    snprintf(path, sizeof path, "%s/metrics.jsonl", directory);
    size_t n = 0;
    char *text = contents(path, &n);
    int found = 0;
    for (size_t i = 0; text && i < n; i++) found += text[i] == '\n';
    const char *last = text && n ? text + n - 1 : "";
    const int fd = open(events_in(directory), O_RDONLY);
    const bool whole = *last == '\n' && (found == lines || found == lines + 1) &&
                       tfevents_whole(fd, NULL) == size_of(events_in(directory));
    free(text);
    close(fd);
    run_close(r);
    return whole ? result : "a line or record is torn";
}

static const char *fill_to_a_limit(void) {
    if (!limit_files(20000)) return "skip";
    return fill(below("limit"));
}

TEST(a_file_that_may_not_grow_keeps_whole_lines) {
    const char *told = in_child(fill_to_a_limit);
    if (!CHECK(told)) return;
    if (strcmp(told, "skip") == 0) SKIP("no limit for files");
    CHECK_HAS(told, "limit/events.out.tfevents.");
    CHECK_HAS(told, ": cannot write: File too large");
}

static const char *fill_a_disk(void) {
    if (!mount_small_disk(below("disk"), "64k")) return "skip";
    return fill(below("disk/run"));
}

static const char *begin_on_a_full_disk(void) {
    if (!mount_small_disk(below("disk"), "8k")) return "skip";
    char block[8192] = "";
    FILE *file = fopen(below("disk/block"), "wb");
    if (!file || fwrite(block, 1, sizeof block, file) != sizeof block || fclose(file)) return "cannot fill the disk";
    OWNED_RECIPE r = plain();
    static char result[1024];
    snprintf(result, sizeof result, "%s", open_complaint(below("disk/run"), &r, false));
    return size_of(below("disk/run")) < 0 ? result : "the directory is still there";
}

TEST(a_full_disk_keeps_whole_lines) {
    mkdir(below("disk"), 0777);
    const char *told = in_child(fill_a_disk);
    if (!CHECK(told)) return;
    if (strcmp(told, "skip") == 0) SKIP("cannot mount a small disk");
    CHECK_HAS(told, "disk/run/");
    CHECK_HAS(told, ": cannot write: No space left on device");
    told = in_child(begin_on_a_full_disk);
    if (!CHECK(told)) return;
    CHECK_HAS(told, "disk/run/");
    CHECK_HAS(told, "No space left on device");
}

RUN_TESTS(ENTRY(json_escapes_and_separates), ENTRY(numbers_are_shortest_and_exact), ENTRY(crc32c_is_castagnolis),
          ENTRY(a_new_run_says_what_it_is), ENTRY(metrics_are_lines_of_json_and_scalars),
          ENTRY(histograms_leave_out_zeros_at_both_ends), ENTRY(samples_are_escaped),
          ENTRY(the_result_is_written_at_the_end), ENTRY(a_directory_with_something_in_it_is_refused),
          ENTRY(a_run_without_a_checkpoint_is_begun_again), ENTRY(a_run_with_anything_to_lose_is_not_begun_again),
          ENTRY(of_several_that_begin_a_run_at_once_one_does), ENTRY(who_takes_back_a_run_takes_nobody_elses),
          ENTRY(a_directory_is_made_with_those_above_it), ENTRY(a_directory_that_cannot_be_made_is_refused),
          ENTRY(a_directory_without_permission_is_refused), ENTRY(only_a_run_can_be_resumed_and_only_with_its_recipe),
          ENTRY(two_processes_cannot_have_the_same_run), ENTRY(a_torn_line_is_cut_off),
          ENTRY(a_damaged_record_ends_the_event_file), ENTRY(a_run_is_cut_back_to_a_mark),
          ENTRY(a_mark_that_does_not_fit_changes_nothing), ENTRY(a_file_that_may_not_grow_keeps_whole_lines),
          ENTRY(a_full_disk_keeps_whole_lines))
