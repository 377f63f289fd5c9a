/* adamod text bpe learn, apply and vocab: see data/bpe.h. */
#include "cli/text_lines.h"
#include "core/error.h"

#include "core/number.h"
#include "data/bpe.h"
#include "data/text_input.h"

#include <stdlib.h>
#include <string.h>

/* ---- learn and vocab ---- */

typedef struct learning {
    const char *command, *out;
    cli_operands paths;
    int64_t merges, min_frequency;
} learning;

static const cli_flag learn_flags[] = {
    CLI_TEXT("out", "FILE", "file for the codes (standard output)", learning, out),
    CLI_WHOLE("merges", "N", "number of merges to learn (10000)", learning, merges, 1, INT32_MAX / 8),
    CLI_WHOLE("min-frequency", "F", "stop when no pair occurs at least F times (2)", learning, min_frequency, 1,
              INT64_MAX),
    CLI_HELP_FLAG,
    {0}};
static const cli_flag vocab_flags[] = {
    CLI_TEXT("out", "FILE", "file for the words (standard output)", learning, out), CLI_HELP_FLAG, {0}};

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

static int run_learning(cli_syntax syntax, bool codes, int argc, char **argv) {
    learning a = {.command = syntax.command, .merges = 10000, .min_frequency = 2};
    syntax.takes = CLI_OPERANDS;
    syntax.operands = offsetof(learning, paths);
    int status = cli_parse(&syntax, argc, argv, &a);
    if (status >= 0) return status;
    bpe_learner *l = bpe_learner_create();
    if (!l) return cli_fail(a.command, "out of memory");
    status = a.paths.n ? 0 : count_words(&a, l, NULL);
    for (int i = 0; i < a.paths.n && !status; i++) status = count_words(&a, l, a.paths.list[i]);
    if (!status) status = codes ? learn_codes(&a, l) : write_text(&a, bpe_learner_words(l));
    bpe_learner_free(l);
    return status;
}

int cli_text_bpe_learn(int argc, char **argv) {
    const cli_syntax syntax = {
        .command = "text bpe learn",
        .help = "usage: adamod text bpe learn [--merges N] [--min-frequency F] [FILE]...\n\n"
                "Learns BPE codes from the words of all files together. They are those that subword-nmt learns.\n\n",
        .flags = learn_flags};
    return run_learning(syntax, true, argc, argv);
}

int cli_text_bpe_vocab(int argc, char **argv) {
    const cli_syntax syntax = {.command = "text bpe vocab",
                               .help = "usage: adamod text bpe vocab [FILE]...\n\n"
                                       "Counts the words of a text, for `text bpe apply --vocabulary`.\n\n",
                               .flags = vocab_flags};
    return run_learning(syntax, false, argc, argv);
}

/* ---- apply ---- */

static const char command[] = "text bpe apply";

typedef struct arguments {
    text_lines lines;
    const char *codes, *vocabulary;
    int64_t threshold, merges, seed;
    bpe *b;
    bpe_options o;
} arguments;

static int read_dropout(void *to, const cli_flag *flag, const char *value) {
    arguments *a = to;
    char *end = NULL;
    a->o.dropout = adamod__read_number(value, &end);
    if (end != value && !*end && a->o.dropout >= 0 && a->o.dropout <= 1) return 0;
    return cli_usage(command, "--%s is '%.40s', expected a number from 0 to 1", flag->name, value);
}

static const cli_flag apply_flags[] = {
    TEXT_THREADS_FLAG,
    CLI_TEXT("codes", "FILE", "codes made by `text bpe learn` or subword-nmt", arguments, codes),
    CLI_TEXT("vocabulary", "FILE", "words counted by `text bpe vocab`: split subwords that it lacks", arguments,
             vocabulary),
    CLI_WHOLE("threshold", "N", "also split subwords that the vocabulary has fewer than N times (1)", arguments,
              threshold, 0, INT64_MAX),
    CLI_WHOLE("merges", "N", "use the first N codes (all)", arguments, merges, 0, INT32_MAX),
    CLI_TEXT("separator", "TEXT", "mark at the end of all subwords of a word but the last (@@)", arguments,
             o.separator),
    CLI_READ("dropout", "P", "skip merges with this probability, for training text; uses one thread (0)", read_dropout),
    CLI_WHOLE("seed", "N", "seed of --dropout (0)", arguments, seed, 0, UINT32_MAX),
    CLI_HELP_FLAG,
    {0}};

static void *open_worker(const void *options) {
    const arguments *a = options;
    return bpe_worker_create(a->b, &a->o);
}
static void close_worker(void *worker) { bpe_worker_free(worker); }
static char *apply_line(void *worker, text_slice line) { return bpe_apply(worker, line); }

static int parse_apply(arguments *a, int argc, char **argv) {
    const cli_syntax syntax = {.command = command,
                               .help = "usage: adamod text bpe apply --codes FILE [--vocabulary FILE] [FILE]...\n\n"
                                       "Splits words into subwords, as subword-nmt does.\n\n",
                               .flags = apply_flags,
                               .takes = CLI_OPERANDS,
                               .operands = offsetof(arguments, lines.paths)};
    const int status = cli_parse(&syntax, argc, argv, a);
    if (status >= 0) return status;
    if (a->o.separator && (!*a->o.separator || strlen(a->o.separator) > 31 || strpbrk(a->o.separator, " \r\n")))
        return cli_usage(command, "--separator is '%.40s', expected 1 to 31 bytes without a space", a->o.separator);
    if (a->threshold >= 0 && !a->vocabulary)
        return cli_usage(command, "--threshold is given without --vocabulary, whose counts it is compared with");
    return a->codes ? -1 : cli_usage(command, "needs --codes FILE");
}

/* Reads codes and vocabulary. */
static int read_files(arguments *a) {
    char *bytes;
    size_t n;
    if (text_input_read(a->codes, &bytes, &n)) return cli_failed(command);
    int failed = bpe_parse(&a->b, (text_slice){bytes, n}, a->merges, a->codes);
    free(bytes);
    if (!failed && a->merges != 0 && bpe_merges(a->b) == 0)
        text_line(stderr, "adamod: %s: %s: no merges: words are split into characters", command, a->codes);
    if (!failed && a->vocabulary) {
        failed = text_input_read(a->vocabulary, &bytes, &n);
        if (!failed)
            failed = bpe_restrict(a->b, (text_slice){bytes, n}, a->threshold < 0 ? 1 : a->threshold, a->o.separator,
                                  a->vocabulary);
        free(bytes);
        if (!failed && !bpe_is_restricted(a->b))
            text_line(stderr, "adamod: %s: %s: no subword is in it %lld times: none is split again", command,
                      a->vocabulary, (long long)(a->threshold < 0 ? 1 : a->threshold));
    }
    return failed ? cli_failed(command) : 0;
}

int cli_text_bpe_apply(int argc, char **argv) {
    arguments a = {.lines = {.run = apply_line, .open = open_worker, .close = close_worker, .options = &a},
                   .threshold = -1, /* not given */
                   .merges = -1};
    int status = parse_apply(&a, argc, argv);
    if (status < 0 && !(status = read_files(&a))) {
        a.o.seed = (uint32_t)a.seed;
        if (a.o.dropout > 0) a.lines.threads = 1; /* random numbers come in the order of the words */
        status = text_lines_run(command, &a.lines);
    }
    bpe_free(a.b);
    return status;
}
