#include "cli/cli.h"
#include "core/edit_distance.h"
#include "core/error.h"
#include "core/number.h"
#include "support/json.h"
#include "support/text.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* ---- messages ---- */

static char *kept;
static size_t kept_size;

void cli_keep(char *message, size_t size) {
    kept = message;
    kept_size = size;
}

static void (*before_messages)(void);

void cli_before_messages(void (*clear)(void)) { before_messages = clear; }

static void print_message(const char *command, const char *format, va_list arguments) {
    if (kept) {
        vsnprintf(kept, kept_size, format, arguments);
        return;
    }
    char line[8192];
    vsnprintf(line, sizeof line, format, arguments);
    if (before_messages) before_messages();
    fflush(stdout); /* so that the message follows earlier output */
    text_line(stderr, "adamod: %s%s%s", command ? command : "", command ? ": " : "", line);
}

#define PRINT_MESSAGE                                                                                                  \
    va_list arguments;                                                                                                 \
    va_start(arguments, format);                                                                                       \
    print_message(command, format, arguments);                                                                         \
    va_end(arguments)

int cli_fail(const char *command, const char *format, ...) {
    PRINT_MESSAGE;
    return CLI_FAILURE;
}

static const char *parsed; /* the command whose flags are being read */

int cli_usage(const char *command, const char *format, ...) {
    if (!command) command = parsed;
    PRINT_MESSAGE;
    return CLI_USAGE;
}

int cli_failed(const char *command) { return cli_fail(command, "%s", adamod__last_message()); }

int cli_refused(const char *command) { return cli_usage(command, "%s", adamod__last_message()); }

int cli_library(const char *command, adamod_status status) {
    const bool usage = status == ADAMOD_ERROR_NAME || status == ADAMOD_ERROR_RANGE;
    return usage ? cli_refused(command) : cli_failed(command);
}

/* ---- names ---- */

/* Dashes and underscores are one character. */
static char plain_dash(char c) { return c == '-' ? '_' : c; }

/* Copies a word with its dashes as underscores, cut to size. */
static void plain_dashes(const char *word, char *out, size_t size) {
    size_t i = 0;
    for (; word[i] && i + 1 < size; i++) out[i] = plain_dash(word[i]);
    out[i] = '\0';
}

/* A near word has at most a third of its characters wrong; short words may have two, as when they changed places. */
static bool is_nearer(const char *word, const char *candidate, int *best) {
    char a[64], b[64];
    plain_dashes(word, a, sizeof a);
    plain_dashes(candidate, b, sizeof b);
    const int d = adamod__edit_distance(a, b), length = (int)strlen(word);
    if (d >= *best || d > (length < 4 ? 1 : length < 6 ? 2 : length / 3)) return false;
    *best = d;
    return true;
}

const char *cli_nearest(const char *word, const char *const *list) {
    const char *nearest = NULL;
    int best = 1000;
    for (; *list; list++) {
        if (is_nearer(word, *list, &best)) nearest = *list;
    }
    return nearest;
}

/* ---- flags ---- */

typedef struct parser {
    const cli_syntax *syntax;
    void *arguments;
    int argc;
    char **argv;
    int at; /* the next argument */
} parser;

static bool same_name(const char *flag, const char *name, size_t length) {
    for (size_t i = 0; i < length; i++) {
        if (!flag[i] || plain_dash(flag[i]) != plain_dash(name[i])) return false;
    }
    return !flag[length];
}

static int unknown_flag(const cli_syntax *s, const char *argument, size_t length) {
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)length, argument + 2);
    const char *nearest = NULL;
    int best = 1000;
    for (const cli_flag *f = s->flags; f->name; f++) {
        if (is_nearer(name, f->name, &best)) nearest = f->name;
    }
    if (nearest) return cli_usage(s->command, "unknown flag '--%s'; did you mean '--%s'?", name, nearest);
    return cli_usage(s->command, "unknown flag '--%s'; 'adamod help %s' lists them", name, s->command);
}

static int read_whole(const char *command, const cli_flag *f, const char *text, int64_t *out) {
    char *end;
    errno = 0;
    *out = strtoll(text, &end, 10);
    if (end != text && !*end && !errno && *out >= f->min && *out <= f->max) return -1;
    return cli_usage(command, "--%s is '%.40s', expected a whole number from %lld to %lld", f->name, text,
                     (long long)f->min, (long long)f->max);
}

static int read_choice(const char *command, const cli_flag *f, const char *text, int *out) {
    char known[128] = "";
    for (int i = 0; f->words[i]; i++) {
        if (strcmp(text, f->words[i]) == 0) return *out = i, -1;
        text_join(known, sizeof known, f->words[i + 1] ? ", " : " or ", f->words[i]);
    }
    return cli_usage(command, "--%s is '%.40s', expected %s", f->name, text, known);
}

static int keep_change(const parser *p, cli_changes *c, const cli_flag *f, const char *value) {
    if (!c->list) c->list = calloc((size_t)p->argc, sizeof *c->list);
    if (!c->list) return cli_fail(p->syntax->command, "out of memory");
    c->list[c->n++] = (struct cli_change){f, value};
    return -1;
}

static int set_flag(const parser *p, const cli_flag *f, const char *value) {
    const cli_syntax *s = p->syntax;
    void *member = (char *)p->arguments + f->member;
    switch (f->kind) {
        case CLI_IS_SWITCH: return *(bool *)member = true, -1;
        case CLI_IS_TEXT: return *(const char **)member = value, -1;
        case CLI_IS_WHOLE: return read_whole(s->command, f, value, member);
        case CLI_IS_CHOICE: return read_choice(s->command, f, value, member);
        case CLI_IS_CHANGE: return keep_change(p, member, f, value);
        case CLI_IS_HELP: return fputs(s->help, stdout), cli_print_flags(stdout, s->flags), 0;
        case CLI_IS_READ: break;
    }
    parsed = s->command;
    const int status = f->read(p->arguments, f, value);
    parsed = NULL;
    return status ? status : -1;
}

static int read_flag(parser *p, const char *argument) {
    const char *command = p->syntax->command, *name = argument + 2, *equals = strchr(name, '=');
    const size_t length = equals ? (size_t)(equals - name) : strlen(name);
    const cli_flag *f = p->syntax->flags;
    while (f->name && !same_name(f->name, name, length)) f++;
    if (!f->name) return unknown_flag(p->syntax, argument, length);
    if (!f->value && equals) return cli_usage(command, "flag '--%s' takes no value", f->name);
    if (!f->value) return set_flag(p, f, NULL);
    if (!equals && p->at >= p->argc)
        return cli_usage(command, "flag '--%s' needs a value: --%s %s", f->name, f->name, f->value);
    return set_flag(p, f, equals ? equals + 1 : p->argv[p->at++]);
}

/* Reads a flag of one dash. */
static int read_letter(parser *p, const char *argument) {
    char name[64];
    for (const cli_flag *f = p->syntax->flags; f->name; f++) {
        if (argument[1] != f->letter || argument[2]) continue;
        snprintf(name, sizeof name, "--%s", f->name);
        return read_flag(p, name);
    }
    return cli_usage(p->syntax->command, "unknown flag '%.40s'; flags begin with two dashes", argument);
}

static int take_operand(const parser *p, char *value) {
    const cli_syntax *s = p->syntax;
    void *member = (char *)p->arguments + s->operands;
    if (s->operand) {
        const int status = s->operand(p->arguments, value);
        return status ? status : -1;
    }
    if (s->takes == CLI_NO_OPERAND) return cli_usage(s->command, "unexpected argument '%.40s'", value);
    if (s->takes == CLI_OPERANDS) {
        cli_operands *all = member;
        all->list = p->argv;
        all->list[all->n++] = value;
        return -1;
    }
    if (*(const char **)member) return cli_unexpected(s->command, value);
    return *(const char **)member = value, -1;
}

int cli_unexpected(const char *command, const char *operand) {
    return cli_usage(command, "unexpected argument '%.80s'", operand);
}

int cli_parse(const cli_syntax *syntax, int argc, char **argv, void *arguments) {
    parser p = {.syntax = syntax, .arguments = arguments, .argc = argc, .argv = argv};
    bool only_operands = false;
    int status = -1;
    while (status < 0 && p.at < argc) {
        char *argument = argv[p.at++];
        if (only_operands || argument[0] != '-' || !argument[1]) status = take_operand(&p, argument);
        else if (strcmp(argument, "--") == 0) only_operands = true;
        else status = argument[1] == '-' ? read_flag(&p, argument) : read_letter(&p, argument);
    }
    return status;
}

void cli_print_flags(FILE *out, const cli_flag *flags) {
    int width = 0;
    for (const cli_flag *f = flags; f->name; f++) {
        const int w = (int)(strlen(f->name) + (f->value ? strlen(f->value) + 1 : 0));
        if (w > width) width = w;
    }
    for (int last = 0; last < 2; last++) { /* --help comes last, wherever it is in a table */
        for (const cli_flag *f = flags; f->name; f++) {
            char left[96];
            if ((strcmp(f->name, "help") == 0) != last) continue;
            snprintf(left, sizeof left, "%s%s%s", f->name, f->value ? " " : "", f->value ? f->value : "");
            fprintf(out, "  --%-*s  %s\n", width, left, f->help);
        }
    }
}

/* ---- output ---- */

const char *cli_number(double x, char buffer[32]) { return adamod__shortest(x, 1, 1e5, buffer); /* 10 and not 1e+01 */ }

void cli_json_number(json *j, const char *key, double x) {
    char buffer[32];
    json_key(j, key);
    if (isfinite(x)) json_raw(j, cli_number(x, buffer));
    else json_string(j, isnan(x) ? "nan" : x > 0 ? "inf" : "-inf");
}

int cli_print_json(const char *command, json *j, const char *end) {
    const int status = j->failed ? cli_fail(command, "out of memory") : 0;
    if (!status) printf("%s%s", j->text, end);
    json_free(j);
    return status;
}
