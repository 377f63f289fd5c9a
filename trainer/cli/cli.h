/* cli.h - what the commands share: flags, messages, JSON.
 *
 * A command is a row in main.c's table and a file of its own. It returns the program's exit status: 0, CLI_FAILURE (a
 * file, the system, the data) or CLI_USAGE (the command line itself), after one line on standard error. */
#pragma once

#include "adamod.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { CLI_FAILURE = 1, CLI_USAGE = 2 };

/* ---- flags ---- */

/* A command has a struct of arguments, and a table of flags that says which member each flag sets. */
typedef struct cli_flag {
    const char *name;  /* without its dashes; NULL ends the table */
    const char *value; /* placeholder for its value in help, "FILE"; NULL: the flag takes none */
    const char *help;
    enum { CLI_IS_SWITCH, CLI_IS_TEXT, CLI_IS_WHOLE, CLI_IS_CHOICE, CLI_IS_CHANGE, CLI_IS_READ, CLI_IS_HELP } kind;
    size_t member;            /* offset of what it sets */
    int64_t min, max;         /* of a whole number */
    const char *const *words; /* of a choice; ends with NULL */
    char letter;              /* short form: 'o' for -o; 0: none */
    const char *key;          /* of a change to a recipe; NULL: the value is KEY=VALUE */
    /* Returns 0, or the exit status after a message. */
    int (*read)(void *arguments, const struct cli_flag *flag, const char *value);
} cli_flag;

/* Rows of the table. Members: a bool; a const char *; an int64_t; an int, the index of a word; cli_changes. */
#define CLI_FLAG(is, flag, hint, text, ...)                                                                            \
    { .name = flag, .value = hint, .help = text, .kind = CLI_IS_##is, __VA_ARGS__ }
#define CLI_SWITCH(flag, text, type, to) CLI_FLAG(SWITCH, flag, NULL, text, .member = offsetof(type, to))
#define CLI_TEXT(flag, hint, text, type, to) CLI_FLAG(TEXT, flag, hint, text, .member = offsetof(type, to))
#define CLI_WHOLE(flag, hint, text, type, to, least, most)                                                             \
    CLI_FLAG(WHOLE, flag, hint, text, .member = offsetof(type, to), .min = least, .max = most)
#define CLI_CHOICE(flag, hint, text, type, to, list)                                                                   \
    CLI_FLAG(CHOICE, flag, hint, text, .member = offsetof(type, to), .words = list)
#define CLI_CHANGE(flag, hint, text, type, to, path)                                                                   \
    CLI_FLAG(CHANGE, flag, hint, text, .member = offsetof(type, to), .key = path)
#define CLI_READ(flag, hint, text, function) CLI_FLAG(READ, flag, hint, text, .read = function)
#define CLI_HELP_FLAG CLI_FLAG(HELP, "help", NULL, "show this and exit", .letter = 'h')

/* Values in the order given, each with its flag: changes to a recipe, kept until it is loaded. Free the list. */
typedef struct cli_changes {
    struct cli_change {
        const cli_flag *flag;
        const char *value;
    } * list;
    int n;
} cli_changes;

/* The operands: arguments that are no flags. */
typedef struct cli_operands {
    char **list; /* in argv */
    int n;
} cli_operands;

typedef struct cli_syntax {
    const char *command; /* for messages: "optim trace" */
    const char *help;    /* what --help prints before the table of flags */
    const cli_flag *flags;
    /* Called for each operand; returns 0, or the exit status after a message. NULL: see operands. */
    int (*operand)(void *arguments, const char *value);
    /* The member for operands: a const char * for at most one, or cli_operands for any number. */
    enum { CLI_NO_OPERAND, CLI_ONE_OPERAND, CLI_OPERANDS } takes;
    size_t operands;
} cli_syntax;

/* Reads `--name value`, `--name=value`, `--name` and operands, in any order; all after `--` are operands. Dashes in a
 * flag's name count as underscores. Returns the exit status, or -1 to go on. Operands move to the front of argv. */
int cli_parse(const cli_syntax *syntax, int argc, char **argv, void *arguments);

/* Prints the table of flags, as help shows it. */
void cli_print_flags(FILE *out, const cli_flag *flags);

/* Refuses an operand: "unexpected argument". */
int cli_unexpected(const char *command, const char *operand);

/* ---- messages ---- */

/* Print "adamod: COMMAND: MESSAGE" (command may be NULL) and return CLI_FAILURE or CLI_USAGE. */
int cli_fail(const char *command, const char *format, ...) __attribute__((format(printf, 2, 3)));
int cli_usage(const char *command, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Print the message of the last failure (core/error.h). */
int cli_failed(const char *command);
int cli_refused(const char *command);
/* Returns CLI_USAGE if the status is about a name or a value, else CLI_FAILURE. */
int cli_library(const char *command, adamod_status status);

/* Sets a function to call before each message, which clears a line that is drawn over and over. */
void cli_before_messages(void (*clear)(void));
/* Keeps the last message, without its prefix, in a buffer instead of printing it; NULL: print again. */
void cli_keep(char *message, size_t size);

/* The word of the list (ending with NULL) that is nearest to a mistyped one, or NULL if none is near. */
const char *cli_nearest(const char *word, const char *const *list);

/* ---- output ---- */

/* Writes a number in the fewest digits that read back as exactly x: "0.1", "1e-08", "inf". */
const char *cli_number(double x, char buffer[32]);

struct json;
/* Writes a number; infinity and NaN become the strings "inf", "-inf" and "nan". */
void cli_json_number(struct json *j, const char *key, double x);
/* Prints the text and frees it. Returns the exit status. */
int cli_print_json(const char *command, struct json *j, const char *end);

/* ---- commands ---- */

typedef struct cli_command {
    const char *name;                  /* "optim trace" */
    const char *summary;               /* for the list of commands */
    int (*run)(int argc, char **argv); /* with the arguments after the name */
    bool alone;                        /* it runs as one process, not on several ranks: see ranks.h */
} cli_command;

int cli_info(int argc, char **argv);
int cli_data_list(int argc, char **argv);
int cli_data_get(int argc, char **argv);
int cli_data_prepare(int argc, char **argv);
int cli_text_tokenize(int argc, char **argv);
int cli_text_detokenize(int argc, char **argv);
int cli_text_normalize(int argc, char **argv);
int cli_text_lowercase(int argc, char **argv);
int cli_text_clean(int argc, char **argv);
int cli_text_score(int argc, char **argv);
int cli_text_bpe_learn(int argc, char **argv);
int cli_text_bpe_apply(int argc, char **argv);
int cli_text_bpe_vocab(int argc, char **argv);
int cli_text_tokens_learn(int argc, char **argv);
int cli_text_tokens_encode(int argc, char **argv);
int cli_text_tokens_decode(int argc, char **argv);
int cli_text_tokens_pack(int argc, char **argv);
/* Only in a build with the trainer: */
int cli_train(int argc, char **argv);
int cli_compare(int argc, char **argv);
int cli_reproduce(int argc, char **argv);
int cli_report(int argc, char **argv);
/* Prints the table of n runs and writes their report; page NULL: only prints. Returns the exit status. */
int cli_write_report(const char *command, const char *const *runs, int n, const char *page);
int cli_evaluate(int argc, char **argv);
int cli_translate(int argc, char **argv);
int cli_predict(int argc, char **argv);
int cli_generate(int argc, char **argv);
int cli_export(int argc, char **argv);
int cli_bench_train(int argc, char **argv);
int cli_bench_comm(int argc, char **argv);
int cli_bench_decode(int argc, char **argv);
int cli_optim_list(int argc, char **argv);
int cli_optim_trace(int argc, char **argv);
int cli_optim_bench(int argc, char **argv);
