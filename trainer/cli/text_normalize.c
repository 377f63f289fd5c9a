/* adamod text normalize and lowercase: see data/normalizer.h. */
#include "cli/text_lines.h"
#include "data/normalizer.h"

#include <stdlib.h>
#include <string.h>

enum { FLAG_THREADS, FLAG_HELP, FLAG_LANG };
static const cli_flag flags[] = {
    TEXT_THREADS_FLAG, CLI_HELP_FLAG, {"lang", "CODE", "the language of the text (en)"}, {0}};
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

/* The command line: exit status, or -1 to go on. */
static int parse(text_lines *t, const cli_flag *known, const char *help, int argc, char **argv) {
    cli_parser p = {.command = t->command, .flags = known, .argc = argc, .argv = argv};
    for (int flag; (flag = cli_next(&p)) != CLI_END;) {
        if (flag == CLI_BAD) return CLI_USAGE;
        if (flag == FLAG_HELP) {
            fputs(help, stdout);
            cli_print_flags(stdout, known);
            return 0;
        }
        if (flag == CLI_OPERAND) t->paths[t->n++] = (char *)(size_t)p.value;
        else if (flag == FLAG_LANG) t->options = p.value;
        else if (!cli_parse_int(t->command, "threads", p.value, 0, 1024, &t->threads)) return CLI_USAGE;
    }
    return -1;
}

static int run(text_lines *t, const cli_flag *known, const char *help, int argc, char **argv) {
    t->paths = calloc((size_t)argc + 1, sizeof *t->paths);
    t->options = "en";
    t->open = open_worker;
    t->close = close_worker;
    int status = t->paths ? parse(t, known, help, argc, argv) : cli_fail(t->command, "out of memory");
    if (status < 0) status = text_lines_run(t);
    free(t->paths);
    return status;
}

int cli_text_normalize(int argc, char **argv) {
    text_lines t = {.command = "text normalize", .run = normalize_line};
    return run(&t, flags,
               "usage: adamod text normalize [--lang CODE] [FILE]...\n\n"
               "Makes punctuation uniform by Moses' rules, as sacremoses does.\n\n",
               argc, argv);
}

int cli_text_lowercase(int argc, char **argv) {
    text_lines t = {.command = "text lowercase", .run = lower_line};
    return run(&t, lower_flags,
               "usage: adamod text lowercase [FILE]...\n\n"
               "Lines in lower case.\n\n",
               argc, argv);
}
