/* adamod text bpe learn, apply and vocab: see data/bpe.h. */
#include "cli/text_lines.h"
#include "core/error.h"

#include "core/error.h"
#include "core/number.h"
#include "data/bpe.h"
#include "data/text_input.h"

#include <stdlib.h>
#include <string.h>

/* ---- learn and vocab ---- */

enum { LEARN_HELP, LEARN_OUT, LEARN_MERGES, LEARN_MIN };
static const cli_flag learn_flags[] = {CLI_HELP_FLAG,
                                       {"out", "FILE", "file for the codes (standard output)"},
                                       {"merges", "N", "number of merges to learn (10000)"},
                                       {"min-frequency", "F", "stop when no pair occurs at least F times (2)"},
                                       {0}};
static const cli_flag vocab_flags[] = {CLI_HELP_FLAG, {"out", "FILE", "file for the words (standard output)"}, {0}};

typedef struct learning {
    const char *command, *out;
    const char **paths;
    int n;
    int64_t merges, min_frequency;
} learning;

/* Exit status, or -1 to go on. */
static int parse_learning(learning *a, const cli_flag *flags, const char *help, int argc, char **argv) {
    cli_parser p = {.command = a->command, .flags = flags, .argc = argc, .argv = argv};
    for (int flag; (flag = cli_next(&p)) != CLI_END;) {
        bool good = true;
        if (flag == CLI_BAD) return CLI_USAGE;
        if (flag == LEARN_HELP) {
            fputs(help, stdout);
            cli_print_flags(stdout, flags);
            return 0;
        }
        if (flag == CLI_OPERAND) a->paths[a->n++] = p.value;
        else if (flag == LEARN_OUT) a->out = p.value;
        else if (flag == LEARN_MERGES)
            good = cli_parse_int(a->command, "merges", p.value, 1, INT32_MAX / 8, &a->merges);
        else good = cli_parse_int(a->command, "min-frequency", p.value, 1, INT64_MAX, &a->min_frequency);
        if (!good) return CLI_USAGE;
    }
    return -1;
}

static int count_words(const learning *a, bpe_learner *l, const char *path) {
    text_input *in;
    text_slice line;
    int got;
    if (text_input_open(&in, path)) return cli_failed(a->command);
    while ((got = text_input_line(in, &line)) > 0) {
        if (!bpe_learner_add(l, line)) continue;
        got = adamod__fail(ADAMOD_ERROR_MEMORY, "%s: out of memory", text_input_name(in));
        break;
    }
    text_input_close(in);
    return got < 0 ? cli_failed(a->command) : 0;
}

static int write_text(const learning *a, char *text) {
    int status = 0;
    if (!text) return cli_fail(a->command, "out of memory");
    if (!a->out) fputs(text, stdout);
    else if (text_write(a->out, text_of(text))) status = cli_failed(a->command);
    free(text);
    return status;
}

static int learn_codes(const learning *a, bpe_learner *l) {
    int64_t done;
    char *codes = bpe_learner_run(l, a->merges, a->min_frequency, &done);
    const int status = write_text(a, codes);
    if (!status && done < a->merges)
        fprintf(stderr, "adamod: %s: %lld merges: no other pair is seen %lld times\n", a->command, (long long)done,
                (long long)a->min_frequency);
    return status;
}

static int run_learning(learning *a, const cli_flag *flags, const char *help, int argc, char **argv, bool codes) {
    bpe_learner *l = bpe_learner_create();
    a->paths = calloc((size_t)argc + 1, sizeof *a->paths);
    int status = l && a->paths ? parse_learning(a, flags, help, argc, argv) : cli_fail(a->command, "out of memory");
    if (status < 0) {
        status = a->n ? 0 : count_words(a, l, NULL);
        for (int i = 0; i < a->n && !status; i++) status = count_words(a, l, a->paths[i]);
        if (!status) status = codes ? learn_codes(a, l) : write_text(a, bpe_learner_words(l));
    }
    free(a->paths);
    bpe_learner_free(l);
    return status;
}

int cli_text_bpe_learn(int argc, char **argv) {
    learning a = {.command = "text bpe learn", .merges = 10000, .min_frequency = 2};
    return run_learning(
        &a, learn_flags,
        "usage: adamod text bpe learn [--merges N] [--min-frequency F] [FILE]...\n\n"
        "Learns BPE codes from the words of all files together. They are those that subword-nmt learns.\n\n",
        argc, argv, true);
}

int cli_text_bpe_vocab(int argc, char **argv) {
    learning a = {.command = "text bpe vocab"};
    return run_learning(&a, vocab_flags,
                        "usage: adamod text bpe vocab [FILE]...\n\n"
                        "Counts the words of a text, for `text bpe apply --vocabulary`.\n\n",
                        argc, argv, false);
}

/* ---- apply ---- */

enum {
    APPLY_HELP,
    APPLY_THREADS,
    APPLY_CODES,
    APPLY_VOCABULARY,
    APPLY_THRESHOLD,
    APPLY_MERGES,
    APPLY_SEPARATOR,
    APPLY_DROPOUT,
    APPLY_SEED
};
static const cli_flag apply_flags[] = {
    CLI_HELP_FLAG,
    TEXT_THREADS_FLAG,
    {"codes", "FILE", "codes made by `text bpe learn` or subword-nmt"},
    {"vocabulary", "FILE", "words counted by `text bpe vocab`: split subwords that it lacks"},
    {"threshold", "N", "also split subwords that the vocabulary has fewer than N times (1)"},
    {"merges", "N", "use the first N codes (all)"},
    {"separator", "TEXT", "mark at the end of all subwords of a word but the last (@@)"},
    {"dropout", "P", "skip merges with this probability, for training text; uses one thread (0)"},
    {"seed", "N", "seed of --dropout (0)"},
    {0}};

typedef struct applying {
    text_lines lines;
    const char *codes, *vocabulary;
    int64_t threshold, merges, seed;
    bpe *b;
    bpe_options o;
} applying;

static void *open_worker(const void *options) {
    const applying *a = options;
    return bpe_worker_create(a->b, &a->o);
}
static void close_worker(void *worker) { bpe_worker_free(worker); }
static char *apply_line(void *worker, text_slice line) { return bpe_apply(worker, line); }

static bool read_number(applying *a, int flag, const char *value) {
    const char *c = a->lines.command;
    switch (flag) {
        case APPLY_THREADS: return cli_parse_int(c, "threads", value, 0, 1024, &a->lines.threads);
        case APPLY_THRESHOLD: return cli_parse_int(c, "threshold", value, 0, INT64_MAX, &a->threshold);
        case APPLY_MERGES: return cli_parse_int(c, "merges", value, 0, INT32_MAX, &a->merges);
        default: return cli_parse_int(c, "seed", value, 0, UINT32_MAX, &a->seed);
    }
}

static int parse_apply(applying *a, int argc, char **argv) {
    cli_parser p = {.command = a->lines.command, .flags = apply_flags, .argc = argc, .argv = argv};
    for (int flag; (flag = cli_next(&p)) != CLI_END;) {
        char *end = NULL;
        if (flag == CLI_BAD) return CLI_USAGE;
        if (flag == APPLY_HELP) {
            fputs("usage: adamod text bpe apply --codes FILE [--vocabulary FILE] [FILE]...\n\n"
                  "Splits words into subwords, as subword-nmt does.\n\n",
                  stdout);
            cli_print_flags(stdout, apply_flags);
            return 0;
        }
        if (flag == CLI_OPERAND) a->lines.paths[a->lines.n++] = (char *)(size_t)p.value;
        else if (flag == APPLY_CODES) a->codes = p.value;
        else if (flag == APPLY_VOCABULARY) a->vocabulary = p.value;
        else if (flag == APPLY_SEPARATOR) a->o.separator = p.value;
        else if (flag == APPLY_DROPOUT) {
            a->o.dropout = adamod__read_number(p.value, &end);
            if (end == p.value || *end || !(a->o.dropout >= 0 && a->o.dropout <= 1))
                return cli_usage(a->lines.command, "--dropout is '%.40s', expected a number from 0 to 1", p.value);
        } else if (!read_number(a, flag, p.value)) {
            return CLI_USAGE;
        }
    }
    if (a->o.separator && (!*a->o.separator || strlen(a->o.separator) > 31 || strpbrk(a->o.separator, " \r\n")))
        return cli_usage(a->lines.command, "--separator is '%.40s', expected 1 to 31 bytes without a space",
                         a->o.separator);
    if (a->threshold >= 0 && !a->vocabulary)
        return cli_usage(a->lines.command,
                         "--threshold is given without --vocabulary, whose counts it is compared with");
    return a->codes ? -1 : cli_usage(a->lines.command, "needs --codes FILE");
}

/* Codes and vocabulary: exit status. */
static int read_files(applying *a) {
    char *bytes;
    size_t n;
    if (text_input_read(a->codes, &bytes, &n)) return cli_failed(a->lines.command);
    int failed = bpe_parse(&a->b, (text_slice){bytes, n}, a->merges, a->codes);
    free(bytes);
    if (!failed && a->merges != 0 && bpe_merges(a->b) == 0)
        text_line(stderr, "adamod: %s: %s: no merges: words are split into characters", a->lines.command, a->codes);
    if (!failed && a->vocabulary) {
        failed = text_input_read(a->vocabulary, &bytes, &n);
        if (!failed)
            failed = bpe_restrict(a->b, (text_slice){bytes, n}, a->threshold < 0 ? 1 : a->threshold, a->o.separator,
                                  a->vocabulary);
        free(bytes);
        if (!failed && !bpe_is_restricted(a->b))
            text_line(stderr, "adamod: %s: %s: no subword is in it %lld times: none is split again", a->lines.command,
                      a->vocabulary, (long long)(a->threshold < 0 ? 1 : a->threshold));
    }
    return failed ? cli_failed(a->lines.command) : 0;
}

int cli_text_bpe_apply(int argc, char **argv) {
    applying a = {.lines = {.command = "text bpe apply", .run = apply_line, .open = open_worker, .close = close_worker},
                  .threshold = -1, /* not given */
                  .merges = -1};
    a.lines.paths = calloc((size_t)argc + 1, sizeof *a.lines.paths);
    a.lines.options = &a;
    int status = a.lines.paths ? parse_apply(&a, argc, argv) : cli_fail(a.lines.command, "out of memory");
    if (status < 0 && !(status = read_files(&a))) {
        a.o.seed = (uint32_t)a.seed;
        if (a.o.dropout > 0) a.lines.threads = 1; /* random numbers come in the order of the words */
        status = text_lines_run(&a.lines);
    }
    bpe_free(a.b);
    free(a.lines.paths);
    return status;
}
