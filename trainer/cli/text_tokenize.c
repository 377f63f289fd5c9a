/* adamod text tokenize and detokenize: see data/tokenizer.h. */
#include "support/text.h"
#include "cli/text_lines.h"
#include "data/tokenizer.h"

#include <stdlib.h>
#include <string.h>

enum { FLAG_LANG, FLAG_PLAIN, FLAG_THREADS, FLAG_HELP, FLAG_HYPHENS, FLAG_LAST };

static const cli_flag split_flags[] = {
    {"lang", "CODE", "the language of the text: de, en, fr, ... (en)"},
    {"no-escape", NULL, "leave & | < > ' \" [ ] as they are, instead of writing them as XML entities"},
    TEXT_THREADS_FLAG,
    CLI_HELP_FLAG,
    {"split-hyphens", NULL, "a-b becomes a @-@ b (Moses' -a)"},
    {"split-last", NULL, "the full stop at the end of a line is always a token (Moses since 2018)"},
    {0}};
static const cli_flag join_flags[] = {{"lang", "CODE", "the language of the text: de, en, fr, ... (en)"},
                                      {"no-unescape", NULL, "leave XML entities as they are"},
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

/* The command line: exit status, or -1 to go on. */
static int parse(text_lines *t, tokenizer_options *o, const cli_flag *flags, const char *help, int argc, char **argv) {
    cli_parser p = {.command = t->command, .flags = flags, .argc = argc, .argv = argv};
    for (int flag; (flag = cli_next(&p)) != CLI_END;) {
        if (flag == CLI_BAD) return CLI_USAGE;
        if (flag == FLAG_HELP) {
            fputs(help, stdout);
            cli_print_flags(stdout, flags);
            return 0;
        }
        if (flag == CLI_OPERAND) t->paths[t->n++] = (char *)(size_t)p.value;
        else if (flag == FLAG_LANG) o->language = p.value;
        else if (flag == FLAG_PLAIN) o->plain = true;
        else if (flag == FLAG_HYPHENS) o->split_hyphens = true;
        else if (flag == FLAG_LAST) o->split_last = true;
        else if (!cli_parse_int(t->command, "threads", p.value, 0, 1024, &t->threads)) return CLI_USAGE;
    }
    const int status = check_language(t->command, o->language);
    return status ? status : -1;
}

static int run(text_lines t, const cli_flag *flags, const char *help, int argc, char **argv) {
    tokenizer_options o = {.language = "en"};
    t.paths = calloc((size_t)argc + 1, sizeof *t.paths);
    t.options = &o;
    t.open = open_worker;
    t.close = close_worker;
    int status = t.paths ? parse(&t, &o, flags, help, argc, argv) : cli_fail(t.command, "out of memory");
    if (status < 0) status = text_lines_run(&t);
    free(t.paths);
    return status;
}

int cli_text_tokenize(int argc, char **argv) {
    const text_lines t = {.command = "text tokenize", .run = split_line};
    return run(t, split_flags,
               "usage: adamod text tokenize [--lang CODE] [FILE]...\n\n"
               "Splits lines into tokens by Moses' rules, as sacremoses does.\n\n",
               argc, argv);
}

int cli_text_detokenize(int argc, char **argv) {
    const text_lines t = {.command = "text detokenize", .run = join_line};
    return run(t, join_flags,
               "usage: adamod text detokenize [--lang CODE] [FILE]...\n\n"
               "Joins tokens into text by Moses' rules, as sacremoses does.\n\n",
               argc, argv);
}
