/* Flags, messages, JSON: what the commands share. */
#include "cli/cli.h"
#include "core/edit_distance.h"
#include "core/error.h"
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
    fflush(stdout); /* so that the message comes after what was printed before */
    text_line(stderr, "adamod: %s%s%s", command ? command : "", command ? ": " : "", line);
}

int cli_fail(const char *command, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    print_message(command, format, arguments);
    va_end(arguments);
    return CLI_FAILURE;
}

int cli_usage(const char *command, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    print_message(command, format, arguments);
    va_end(arguments);
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

/* Copies a word with its dashes as underscores, cut to the room there is. */
static void plain_dashes(const char *word, char *out, size_t size) {
    size_t i = 0;
    for (; word[i] && i + 1 < size; i++) out[i] = plain_dash(word[i]);
    out[i] = '\0';
}

/* Near is at most a third of the word wrong; two characters, as when they changed places, unless it is a short word. */
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

static bool same_name(const char *flag, const char *name, size_t length) {
    for (size_t i = 0; i < length; i++) {
        if (!flag[i] || plain_dash(flag[i]) != plain_dash(name[i])) return false;
    }
    return !flag[length];
}

static int unknown_flag(const cli_parser *parser, const char *argument, size_t length) {
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)length, argument + 2);
    const char *nearest = NULL;
    int best = 1000;
    for (const cli_flag *f = parser->flags; f->name; f++) {
        if (is_nearer(name, f->name, &best)) nearest = f->name;
    }
    if (nearest) cli_usage(parser->command, "unknown flag '--%s'; did you mean '--%s'?", name, nearest);
    else cli_usage(parser->command, "unknown flag '--%s'; 'adamod help %s' lists them", name, parser->command);
    return CLI_BAD;
}

static int read_flag(cli_parser *parser, const char *argument) {
    const char *name = argument + 2, *equals = strchr(name, '=');
    const size_t length = equals ? (size_t)(equals - name) : strlen(name);
    int i = 0;
    while (parser->flags[i].name && !same_name(parser->flags[i].name, name, length)) i++;
    const cli_flag *flag = &parser->flags[i];
    if (!flag->name) return unknown_flag(parser, argument, length);
    parser->value = NULL;
    if (!flag->value) {
        if (!equals) return i;
        cli_usage(parser->command, "flag '--%s' takes no value", flag->name);
        return CLI_BAD;
    }
    if (!equals && parser->at >= parser->argc) {
        cli_usage(parser->command, "flag '--%s' needs a value: --%s %s", flag->name, flag->name, flag->value);
        return CLI_BAD;
    }
    parser->value = equals ? equals + 1 : parser->argv[parser->at++];
    return i;
}

int cli_next(cli_parser *parser) {
    if (parser->at >= parser->argc) return CLI_END;
    const char *argument = parser->argv[parser->at++];
    if (!parser->operands && strcmp(argument, "--") == 0) {
        parser->operands = true;
        return cli_next(parser);
    }
    if (!parser->operands && strcmp(argument, "-h") == 0) argument = "--help";
    if (!parser->operands && strncmp(argument, "--", 2) == 0) return read_flag(parser, argument);
    if (!parser->operands && argument[0] == '-' && argument[1]) {
        cli_usage(parser->command, "unknown flag '%.40s'; flags begin with two dashes", argument);
        return CLI_BAD;
    }
    parser->value = argument;
    return CLI_OPERAND;
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

/* ---- numbers ---- */

bool cli_parse_int(const char *command, const char *flag, const char *text, int64_t min, int64_t max, int64_t *out) {
    char *end;
    errno = 0;
    const long long x = strtoll(text, &end, 10);
    if (end != text && !*end && !errno && x >= min && x <= max) {
        *out = x;
        return true;
    }
    cli_usage(command, "--%s is '%.40s', expected a whole number from %lld to %lld", flag, text, (long long)min,
              (long long)max);
    return false;
}

const char *cli_number(double x, char buffer[32]) {
    if (fabs(x) < 1e5 && x == rint(x)) { /* 10 and not 1e+01 */
        snprintf(buffer, 32, "%.0f", x);
        return buffer;
    }
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(buffer, 32, "%.*g", digits, x);
        if (!(strtod(buffer, NULL) != x)) break;
    }
    return buffer;
}

/* ---- JSON ---- */

void cli_json_string(FILE *out, const char *text) {
    fputc('"', out);
    for (size_t left = strlen(text), n; left; text += n, left -= n) {
        if (adamod__is_harmless(text, left, &n))
            fprintf(out, "%s%.*s", strchr("\"\\", *text) ? "\\" : "", (int)n, text);
        else if (text_code_point((text_slice){text, left})) fprintf(out, "\\u%04x", adamod__code_point(text, n));
        else fputs("\\ufffd", out);
    }
    fputc('"', out);
}

void cli_json_number(FILE *out, double x) {
    char buffer[32];
    if (isnan(x)) fputs("\"nan\"", out);
    else if (isinf(x)) fputs(x > 0 ? "\"inf\"" : "\"-inf\"", out);
    else fputs(cli_number(x, buffer), out);
}
