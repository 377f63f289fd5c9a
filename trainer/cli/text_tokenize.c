/* adamod text tokenize and detokenize: see data/tokenizer.h. */
#include "support/text.h"
#include "cli/text_lines.h"
#include "data/tokenizer.h"

#include <string.h>

typedef struct arguments {
    text_lines lines;
    tokenizer_options o;
} arguments;

#define LANGUAGE_FLAG CLI_TEXT("lang", "CODE", "the language of the text: de, en, fr, ... (en)", arguments, o.language)

static const cli_flag split_flags[] = {
    LANGUAGE_FLAG,
    CLI_SWITCH("no-escape", "leave & | < > ' \" [ ] as they are, instead of writing them as XML entities", arguments,
               o.plain),
    TEXT_THREADS_FLAG,
    CLI_SWITCH("split-hyphens", "a-b becomes a @-@ b (Moses' -a)", arguments, o.split_hyphens),
    CLI_SWITCH("split-last", "the full stop at the end of a line is always a token (Moses since 2018)", arguments,
               o.split_last),
    CLI_HELP_FLAG,
    {0}};
static const cli_flag join_flags[] = {LANGUAGE_FLAG,
                                      CLI_SWITCH("no-unescape", "leave XML entities as they are", arguments, o.plain),
                                      TEXT_THREADS_FLAG,
                                      CLI_HELP_FLAG,
                                      {0}};

static void *open_worker(const void *options) { return tokenizer_create(options); }
static void close_worker(void *worker) { tokenizer_free(worker); }
static char *split_line(void *worker, text_slice line) { return tokenizer_split(worker, line); }
static char *join_line(void *worker, text_slice line) { return tokenizer_join(worker, line); }

static int check_language(const char *command, const char *language) {
    const size_t n = strspn(language, "abcdefghijklmnopqrstuvwxyz");
    if (n < 2 || n > 3 || language[n])
        return cli_usage(command, "--lang is '%.40s', expected a code of two or three small letters", language);
    if (!tokenizer_knows(language))
        text_line(stderr, "adamod: %s: no abbreviations of '%s': those of English are used", command, language);
    return 0;
}

static int run(cli_syntax syntax, char *(*line)(void *, text_slice), int argc, char **argv) {
    arguments a = {.lines = {.open = open_worker, .close = close_worker, .run = line}, .o = {.language = "en"}};
    syntax.takes = CLI_OPERANDS;
    syntax.operands = offsetof(arguments, lines.paths);
    int status = cli_parse(&syntax, argc, argv, &a);
    if (status >= 0 || (status = check_language(syntax.command, a.o.language))) return status;
    a.lines.options = &a.o;
    return text_lines_run(syntax.command, &a.lines);
}

int cli_text_tokenize(int argc, char **argv) {
    const cli_syntax syntax = {.command = "text tokenize",
                               .help = "usage: adamod text tokenize [--lang CODE] [FILE]...\n\n"
                                       "Splits lines into tokens by Moses' rules, as sacremoses does.\n\n",
                               .flags = split_flags};
    return run(syntax, split_line, argc, argv);
}

int cli_text_detokenize(int argc, char **argv) {
    const cli_syntax syntax = {.command = "text detokenize",
                               .help = "usage: adamod text detokenize [--lang CODE] [FILE]...\n\n"
                                       "Joins tokens into text by Moses' rules, as sacremoses does.\n\n",
                               .flags = join_flags};
    return run(syntax, join_line, argc, argv);
}
