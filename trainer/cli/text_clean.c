/* adamod text clean: pairs of sentences of reasonable lengths, as Moses' clean-corpus-n.perl keeps them. */
#include "cli/cli.h"

#include "core/buffer.h"
#include "core/error.h"
#include "core/number.h"
#include "core/file.h"
#include "support/text.h"
#include "data/pair_limits.h"
#include "data/text_input.h"

#include <string.h>
#include <sys/stat.h>

static const char command[] = "text clean";
typedef struct side {
    text_input *in;
    adamod__output out;
    bool opened;
    adamod__buffer line; /* words with one space between */
    int64_t words;
} side;

typedef struct cleaner {
    pair_limits limits;
    int64_t read, kept;
    const char *paths[4]; /* in, in, out, out */
    int n_paths;
    side sides[2];
} cleaner;

static int read_ratio(void *to, const cli_flag *flag, const char *value) {
    cleaner *c = to;
    char *end = NULL;
    c->limits.ratio = adamod__read_number(value, &end);
    if (end != value && !*end && c->limits.ratio >= 1) return 0;
    return cli_usage(command, "--%s is '%.40s', expected a number from 1", flag->name, value);
}

static const cli_flag flags[] = {
    CLI_WHOLE("min", "N", "fewest words in a sentence (1)", cleaner, limits.min, 1, INT32_MAX),
    CLI_WHOLE("max", "N", "most words in a sentence (80)", cleaner, limits.max, 1, INT32_MAX),
    CLI_READ("ratio", "X", "largest ratio of the two lengths (9)", read_ratio),
    CLI_HELP_FLAG,
    {0}};

static int take_path(void *to, const char *value) {
    cleaner *c = to;
    if (c->n_paths == 4) return cli_unexpected(command, value);
    c->paths[c->n_paths++] = value;
    return 0;
}

static int parse(cleaner *c, int argc, char **argv) {
    const cli_syntax syntax = {
        .command = command,
        .help =
            "usage: adamod text clean [--min N] [--max N] [--ratio X] SOURCE TARGET CLEAN-SOURCE CLEAN-TARGET\n\n"
            "Copies the pairs of lines whose lengths in words are within bounds. Runs of spaces become one space.\n\n",
        .flags = flags,
        .operand = take_path};
    const int status = cli_parse(&syntax, argc, argv, c);
    if (status >= 0) return status;
    if (c->n_paths != 4) return cli_usage(command, "needs four files: SOURCE TARGET CLEAN-SOURCE CLEAN-TARGET");
    if (strcmp(c->paths[0], "-") == 0 && strcmp(c->paths[1], "-") == 0)
        return cli_usage(command, "standard input is named for both sides, expected a file for one of them");
    if (strcmp(c->paths[2], "-") == 0 || strcmp(c->paths[3], "-") == 0)
        return cli_usage(command, "'-' is named for a side to write, expected a file");
    return -1;
}

/* Reads the next line of one side and counts its words. Returns 1, 0 at the end, or -1. */
static int next_line(side *s) {
    text_slice line;
    const int got = text_input_line(s->in, &line);
    if (got <= 0) return got;
    s->line.n = 0;
    s->words = 0;
    for (size_t i = 0; i < line.n;) { /* tabs are spaces too */
        size_t end = i;
        while (end < line.n && line.bytes[end] != ' ' && line.bytes[end] != '\t') end++;
        if (end > i && s->words++) adamod__buffer_add(&s->line, " ", 1);
        adamod__buffer_add(&s->line, line.bytes + i, end - i);
        i = end + 1;
    }
    adamod__buffer_add(&s->line, "\n", 1);
    return s->line.failed ? adamod__fail(ADAMOD_ERROR_MEMORY, "%s: out of memory", text_input_name(s->in)) : 1;
}

/* Fails with the reason why a side cannot be written. */
static int unwritten(const cleaner *c, int i) {
    char reason[256];
    adamod__output_reason(&c->sides[i].out, reason, sizeof reason);
    return adamod__refuse("%s: %s", c->paths[2 + i], reason);
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
            side *s = &c->sides[i];
            if (adamod__output_add(&s->out, s->line.text, s->line.n)) return unwritten(c, i);
        }
    }
}

/* Whether both are one file, by whatever names and links. */
static bool is_one_file(const adamod__output *a, const adamod__output *b) {
    struct stat x, y;
    return strcmp(a->name, b->name) == 0 && fstat(a->directory, &x) == 0 && fstat(b->directory, &y) == 0 &&
           x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

static int open_sides(cleaner *c) {
    for (int i = 0; i < 2; i++) {
        side *s = &c->sides[i];
        if (text_input_open(&s->in, c->paths[i])) return -1;
        s->opened = true;
        if (adamod__output_open(&s->out, c->paths[2 + i])) return unwritten(c, i);
    }
    if (!is_one_file(&c->sides[0].out, &c->sides[1].out)) return 0;
    return adamod__refuse("both sides would be written to %.200s, expected two files", c->paths[3]);
}

static int commit(cleaner *c) {
    for (int i = 0; i < 2; i++) {
        if (adamod__output_commit(&c->sides[i].out)) return unwritten(c, i);
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
        adamod__buffer_free(&c.sides[i].line);
    }
    if (status) return cli_failed(command);
    fprintf(stderr, "adamod: %s: kept %lld of %lld pairs\n", command, (long long)c.kept, (long long)c.read);
    return 0;
}
