/* What the commands share: flags, messages, JSON.
 *
 * A command is a row in main.c's table and a file of its own. It returns the program's exit status: 0, CLI_FAILURE (a
 * file, the system, the data) or CLI_USAGE (the command line itself), after one line on standard error.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef CLI_H
#define CLI_H

#include "adamod.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { CLI_FAILURE = 1, CLI_USAGE = 2 };

/* ---- flags ---- */

typedef struct cli_flag {
    const char *name;  /* without its dashes */
    const char *value; /* what stands for its value in help, "FILE"; NULL: it has none */
    const char *help;
} cli_flag;

/* Given by every command; parsed like any other flag. */
#define CLI_HELP_FLAG                                                                                                  \
    { "help", NULL, "show this and exit" }

/* Reads `--name value`, `--name=value`, `--name` and operands, in any order; all after `--` are operands. */
typedef struct cli_parser {
    const char *command;   /* for messages: "optim trace" */
    const cli_flag *flags; /* ends with a name that is NULL */
    int argc;
    char **argv;
    int at;            /* the next argument; starts at 0 */
    bool operands;     /* `--` was met */
    const char *value; /* of what cli_next returned; NULL where a flag has none */
} cli_parser;

enum { CLI_END = -1, CLI_OPERAND = -2, CLI_BAD = -3 };

/* The index of the next flag, or CLI_OPERAND, CLI_END, or CLI_BAD with the message printed. Dashes in a flag's name
 * count as underscores. */
int cli_next(cli_parser *parser);

/* The table of flags, as help shows it. */
void cli_print_flags(FILE *out, const cli_flag *flags);

/* ---- messages ---- */

/* Print "adamod: COMMAND: MESSAGE" (command may be NULL) and return CLI_FAILURE or CLI_USAGE. */
/* Called before each message from now on, by who draws a line over and over that it would be added to. */
void cli_before_messages(void (*clear)(void));
int cli_fail(const char *command, const char *format, ...) __attribute__((format(printf, 2, 3)));
int cli_usage(const char *command, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The same with the message of the last failure (core/error.h). */
int cli_failed(const char *command);
int cli_refused(const char *command);

/* From now on they keep their message there, the last one, without its beginning; NULL: they print again. */
void cli_keep(char *message, size_t size);

/* The same for the library's last failure: usage if it was about a name or a value, else failure. */
int cli_library(const char *command, adamod_status status);

/* The word of the list (ending with NULL) that is nearest to a mistyped one, or NULL if none is near. */
const char *cli_nearest(const char *word, const char *const *list);

/* ---- numbers ---- */

/* A whole number between min and max; false, with the message printed, if the text is anything else. The flag is named
   without its dashes. */
bool cli_parse_int(const char *command, const char *flag, const char *text, int64_t min, int64_t max, int64_t *out);

/* A number in the fewest digits that give it back exactly: "0.1", "1e-08", "inf". */
const char *cli_number(double x, char buffer[32]);

/* ---- JSON ---- */

/* A string with quotes and escapes; a number, where infinity and NaN become the strings "inf", "-inf" and "nan". */
void cli_json_string(FILE *out, const char *text);
void cli_json_number(FILE *out, double x);

/* ---- commands ---- */

typedef struct cli_command {
    const char *name;                  /* "optim trace" */
    const char *summary;               /* for the list of commands */
    int (*run)(int argc, char **argv); /* what follows the name */
    bool alone; /* it writes or takes long, and does not work together with others: see ranks.h */
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
/* Where the trainer is built. */
adamod_status cli_trainer_status(void); /* on CUDA: see experiment_cuda_status */
/* Note i on how CUDA runs an op: its name, its title and a line. False: there are no more. */
bool cli_trainer_note(int i, const char **op, const char **title, char *line, size_t size);
int cli_train(int argc, char **argv);
int cli_compare(int argc, char **argv);
int cli_report(int argc, char **argv);
int cli_evaluate(int argc, char **argv);
int cli_translate(int argc, char **argv);
int cli_predict(int argc, char **argv);
int cli_generate(int argc, char **argv);
int cli_bench_train(int argc, char **argv);
int cli_bench_comm(int argc, char **argv);
int cli_bench_decode(int argc, char **argv);
int cli_optim_list(int argc, char **argv);
int cli_optim_trace(int argc, char **argv);
int cli_optim_bench(int argc, char **argv);

#endif
