/* adamod text normalize and lowercase: see data/normalizer.h. */
#include "cli/text_lines.h"
#include "data/normalizer.h"

#include <stdlib.h>

typedef struct arguments {
    text_lines lines;
    const char *language;
} arguments;

static const cli_flag normalize_flags[] = {
    TEXT_THREADS_FLAG,
    CLI_TEXT("lang", "CODE", "the language of the text (en)", arguments, language),
    CLI_HELP_FLAG,
    {0}};
static const cli_flag lower_flags[] = {TEXT_THREADS_FLAG, CLI_HELP_FLAG, {0}};

static void *open_worker(const void *language) {
    normalizer *n = calloc(1, sizeof *n);
    if (n) normalizer_start(n, language);
    return n;
}

static void close_worker(void *worker) {
    if (worker) normalizer_free(worker);
    free(worker);
}

static char *normalize_line(void *worker, text_slice line) { return normalizer_line(worker, line); }
static char *lower_line(void *worker, text_slice line) { return normalizer_lower(worker, line); }

static int run(cli_syntax syntax, char *(*line)(void *, text_slice), int argc, char **argv) {
    arguments a = {.lines = {.open = open_worker, .close = close_worker, .run = line}, .language = "en"};
    syntax.takes = CLI_OPERANDS;
    syntax.operands = offsetof(arguments, lines.paths);
    const int status = cli_parse(&syntax, argc, argv, &a);
    a.lines.options = a.language;
    return status < 0 ? text_lines_run(syntax.command, &a.lines) : status;
}

int cli_text_normalize(int argc, char **argv) {
    const cli_syntax syntax = {.command = "text normalize",
                               .help = "usage: adamod text normalize [--lang CODE] [FILE]...\n\n"
                                       "Makes punctuation uniform by Moses' rules, as sacremoses does.\n\n",
                               .flags = normalize_flags};
    return run(syntax, normalize_line, argc, argv);
}

int cli_text_lowercase(int argc, char **argv) {
    const cli_syntax syntax = {.command = "text lowercase",
                               .help = "usage: adamod text lowercase [FILE]...\n\n"
                                       "Lines in lower case.\n\n",
                               .flags = lower_flags};
    return run(syntax, lower_line, argc, argv);
}
