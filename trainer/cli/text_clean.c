/* adamod text clean: pairs of sentences of reasonable lengths, as Moses' clean-corpus-n.perl keeps them. */
#define _FILE_OFFSET_BITS 64 /* of files in large file systems */
#include "cli/cli.h"

#include "core/error.h"
#include "core/number.h"
#include "core/file.h"
#include "support/text.h"
#include "data/pair_limits.h"
#include "data/text_input.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char command[] = "text clean";
enum { FLAG_MIN, FLAG_MAX, FLAG_RATIO, FLAG_HELP };
static const cli_flag flags[] = {{"min", "N", "fewest words in a sentence (1)"},
                                 {"max", "N", "most words in a sentence (80)"},
                                 {"ratio", "X", "largest ratio of the two lengths (9)"},
                                 CLI_HELP_FLAG,
                                 {0}};

typedef struct side {
    text_input *in;
    adamod__output out;
    bool opened;
    char *line; /* words with one space between */
    size_t n, room;
    int64_t words;
} side;

typedef struct cleaner {
    pair_limits limits;
    int64_t read, kept;
    const char *paths[4]; /* in, in, out, out */
    int n_paths;
    side sides[2];
} cleaner;

static int parse(cleaner *c, int argc, char **argv) {
    cli_parser p = {.command = command, .flags = flags, .argc = argc, .argv = argv};
    for (int flag; (flag = cli_next(&p)) != CLI_END;) {
        char *end = NULL;
        if (flag == CLI_BAD) return CLI_USAGE;
        if (flag == FLAG_HELP) {
            fputs(
                "usage: adamod text clean [--min N] [--max N] [--ratio X] SOURCE TARGET CLEAN-SOURCE CLEAN-TARGET\n\n"
                "Copies the pairs of lines whose lengths in words are within bounds. Runs of spaces become one space.\n\n",
                stdout);
            cli_print_flags(stdout, flags);
            return 0;
        }
        if (flag == CLI_OPERAND) {
            if (c->n_paths == 4) return cli_usage(command, "unexpected argument '%.80s'", p.value);
            c->paths[c->n_paths++] = p.value;
        } else if (flag == FLAG_RATIO) {
            c->limits.ratio = adamod__read_number(p.value, &end);
            if (end == p.value || *end || !(c->limits.ratio >= 1))
                return cli_usage(command, "--ratio is '%.40s', expected a number from 1", p.value);
        } else if (!cli_parse_int(command, flag == FLAG_MIN ? "min" : "max", p.value, 1, INT32_MAX,
                                  flag == FLAG_MIN ? &c->limits.min : &c->limits.max)) {
            return CLI_USAGE;
        }
    }
    if (c->n_paths != 4) return cli_usage(command, "needs four files: SOURCE TARGET CLEAN-SOURCE CLEAN-TARGET");
    if (strcmp(c->paths[0], "-") == 0 && strcmp(c->paths[1], "-") == 0)
        return cli_usage(command, "standard input is named for both sides, expected a file for one of them");
    if (strcmp(c->paths[2], "-") == 0 || strcmp(c->paths[3], "-") == 0)
        return cli_usage(command, "'-' is named for a side to write, expected a file");
    return -1;
}

static int add_word(side *s, text_slice word) {
    if (s->room < s->n + word.n + 2) {
        const size_t room = (s->n + word.n) * 2 + 256;
        char *line = realloc(s->line, room);
        if (!line) return -1;
        s->line = line;
        s->room = room;
    }
    if (s->words++) s->line[s->n++] = ' ';
    memcpy(s->line + s->n, word.bytes, word.n);
    s->n += word.n;
    return 0;
}

/* The next line of one side, its words counted: 1, 0 at the end, -1. */
static int next_line(side *s) {
    text_slice line, word;
    const int got = text_input_line(s->in, &line);
    if (got <= 0) return got;
    s->n = 0;
    s->words = 0;
    for (size_t i = 0; i < line.n;) { /* tabs are spaces too */
        size_t end = i;
        while (end < line.n && line.bytes[end] != ' ' && line.bytes[end] != '\t') end++;
        word = (text_slice){line.bytes + i, end - i};
        if (word.n && add_word(s, word))
            return adamod__fail(ADAMOD_ERROR_MEMORY, "%s: out of memory", text_input_name(s->in));
        i = end + 1;
    }
    return 1;
}

static int write_line(side *s, const char *path) {
    char reason[256];
    if (!adamod__output_add(&s->out, s->line, s->n) && !adamod__output_add(&s->out, "\n", 1)) return 0;
    adamod__output_reason(&s->out, reason, sizeof reason);
    return adamod__refuse("%s: %s", path, reason);
}

static int copy_pairs(cleaner *c) {
    for (;;) {
        const int a = next_line(&c->sides[0]), b = a < 0 ? -1 : next_line(&c->sides[1]);
        if (a < 0 || b < 0) return -1;
        if (a != b)
            return adamod__refuse("%s has %lld lines and %s has %s, expected the same number", c->paths[a ? 1 : 0],
                                  (long long)c->read, c->paths[a ? 0 : 1], "more");
        if (!a) return 0;
        c->read++;
        if (!pair_limits_keep(&c->limits, c->sides[0].words, c->sides[1].words)) continue;
        c->kept++;
        for (int i = 0; i < 2; i++) {
            if (write_line(&c->sides[i], c->paths[2 + i])) return -1;
        }
    }
}

/* By whatever names and links. */
static bool is_one_file(const adamod__output *a, const adamod__output *b) {
    struct stat x, y;
    return strcmp(a->name, b->name) == 0 && fstat(a->directory, &x) == 0 && fstat(b->directory, &y) == 0 &&
           x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

static int open_sides(cleaner *c) {
    char reason[256];
    for (int i = 0; i < 2; i++) {
        side *s = &c->sides[i];
        if (text_input_open(&s->in, c->paths[i])) return -1;
        s->opened = true;
        if (!adamod__output_open(&s->out, c->paths[2 + i])) continue;
        adamod__output_reason(&s->out, reason, sizeof reason);
        return adamod__refuse("%s: %s", c->paths[2 + i], reason);
    }
    if (!is_one_file(&c->sides[0].out, &c->sides[1].out)) return 0;
    return adamod__refuse("both sides would be written to %.200s, expected two files", c->paths[3]);
}

static int commit(cleaner *c) {
    char reason[256];
    for (int i = 0; i < 2; i++) {
        if (!adamod__output_commit(&c->sides[i].out)) continue;
        adamod__output_reason(&c->sides[i].out, reason, sizeof reason);
        return adamod__refuse("%s: %s", c->paths[2 + i], reason);
    }
    return 0;
}

int cli_text_clean(int argc, char **argv) {
    cleaner c = {.limits = {.min = 1, .max = 80, .ratio = 9}};
    int status = parse(&c, argc, argv);
    if (status >= 0) return status;
    if (c.limits.min > c.limits.max)
        return cli_usage(command, "--min is %lld, expected at most --max, which is %lld", (long long)c.limits.min,
                         (long long)c.limits.max);
    status = open_sides(&c);
    if (!status) status = copy_pairs(&c);
    if (!status) status = commit(&c);
    for (int i = 0; i < 2; i++) {
        text_input_close(c.sides[i].in);
        if (c.sides[i].opened) adamod__output_discard(&c.sides[i].out);
        free(c.sides[i].line);
    }
    if (status) return cli_failed(command);
    fprintf(stderr, "adamod: %s: kept %lld of %lld pairs\n", command, (long long)c.kept, (long long)c.read);
    return 0;
}
