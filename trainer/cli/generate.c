/* adamod generate: text that a language model writes. */
#include "cli/open_run.h"
#include "core/error.h"
#include "data/normalizer.h"
#include "tasks/language_writer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

typedef struct arguments {
    opened_run run;
    const char *prompt;
    bool ids;
    cli_changes settings;
} arguments;

#define SETTING(name, hint, key, text) CLI_CHANGE(name, hint, text, arguments, settings, "generate." key)

static const cli_flag flags[] = {
    OPEN_RUN_FLAGS,
    CLI_TEXT("prompt", "TEXT", "beginning of the text (default: a new line)", arguments, prompt),
    SETTING("tokens", "N", "tokens", "tokens to write after the prompt (the recipe's, 80)"),
    SETTING("temperature", "T", "temperature",
            "divides log-probabilities; 0: always the likeliest token (the recipe's, 1)"),
    SETTING("top-k", "K", "top_k", "draw only from the K likeliest tokens; 0: all (the recipe's, 0)"),
    SETTING("top-p", "P", "top_p", "draw only from the likeliest tokens with total probability P (the recipe's, 1)"),
    CLI_SWITCH("ids", "print the numbers of tokens instead of text, those of the prompt included", arguments, ids),
    SETTING("seed", "S", "seed", "seed of the draws (the recipe's, 1)"),
    {0}};

static const cli_syntax syntax = {
    .command = "generate",
    .help =
        "usage: adamod generate RUN [--prompt TEXT] [--tokens N] [--temperature T] [--top-k K] ...\n\n"
        "Writes text with the model of a run of data.task language, or of a folder of GPT-2 as transformers saves it:\n"
        "the prompt, then each token as it is drawn.\n"
        "An LSTM's text is computed on the CPU, whatever --device says, so it is the same on every machine.\n\n",
    .flags = flags,
    .takes = CLI_ONE_OPERAND,
    .operands = offsetof(arguments, run.directory)};

/* Prints each token at once. *context: whether the text so far ends with a line's end. */
static int show(void *context, text_slice piece) {
    bool *ended = context;
    if (piece.n > 0) *ended = piece.bytes[piece.n - 1] == '\n';
    if (fwrite(piece.bytes, 1, piece.n, stdout) == piece.n && fflush(stdout) == 0) return 0;
    return adamod__fail(ADAMOD_ERROR_IO, "cannot write to standard output: %s", strerror(errno));
}

/* Whether the prompt has only unknown words and ends of lines for the model. */
static bool says_nothing(const int32_t *tokens, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        if (tokens[i] != LANGUAGE_UNK && tokens[i] != LANGUAGE_EOS) return false;
    }
    return true;
}

/* Whether the prompt in lower case is all in the vocabulary: many training texts are in lower case. */
static bool known_in_lower_case(const experiment *e, const char *text) {
    char unknown[512] = "?";
    int32_t *tokens = NULL;
    int64_t n;
    normalizer of_case = {0};
    char *lower = normalizer_lower(&of_case, text_of(text));
    const bool known = lower && !language_prompt(e, text_of(lower), &tokens, &n, unknown, sizeof unknown);
    free(tokens);
    free(lower);
    normalizer_free(&of_case);
    return known && !*unknown;
}

/* Turns the prompt into tokens. Free them. Returns the exit status. */
static int read_prompt(const experiment *e, const char *text, int32_t **tokens, int64_t *n) {
    char unknown[512], line[1024];
    const bool any_bytes = language_of(e)->bytes != NULL;
    if (!any_bytes && text_check(text_of(text), "--prompt", 1)) return cli_refused("generate");
    if (language_prompt(e, text_of(text), tokens, n, unknown, sizeof unknown))
        return cli_usage("generate", "--prompt: %s", adamod__last_message());
    if (!*unknown) return 0;
    const char *hint = known_in_lower_case(e, text) ? "; in lower case, all of it is" : "";
    if (says_nothing(*tokens, *n))
        return cli_usage("generate", "--prompt: nothing of it is in the run's vocabulary: %s%s", unknown, hint);
    snprintf(line, sizeof line, "generate: --prompt: not in the run's vocabulary, and read as <unk>: %s%s", unknown,
             hint);
    run_recipe_note(line);
    return 0;
}

static int generate(experiment *e, const arguments *a) {
    const language_settings *r = language_settings_of(&e->recipe);
    language_writer *w = NULL;
    int32_t *tokens = NULL;
    int64_t n;
    bool ended = true;
    int status = read_prompt(e, a->prompt, &tokens, &n);
    if (!status && language_writer_create(&w, e)) status = cli_failed("generate");
    if (!status) language_writer_numbers(w, a->ids);
    if (!status && (language_writer_read(w, tokens, n, show, &ended) ||
                    language_writer_write(w, r->generate.tokens, r->generate.seed, show, &ended)))
        status = cli_failed("generate");
    if (!ended) printf("\n");
    language_writer_free(w);
    free(tokens);
    return status;
}

/* A recurrent network writes the same text on every device: language_predictor.h. */
static bool on_host(const recipe *r) { return recipe_model(r)->carries; }

int cli_generate(int argc, char **argv) {
    arguments a = {.run = {.on_host = on_host}, .prompt = ""};
    experiment e;
    int status = open_run(&syntax, argc, argv, &a.run, &e, TASK_APPLY);
    if (status < 0) {
        if (e.task->answer != TASK_WRITES)
            status = cli_fail("generate", "%s: data.task %s writes no text", a.run.directory, e.task->name);
        else if (recipe_change(&e.recipe, &a.settings)) status = cli_refused("generate");
        else status = generate(&e, &a);
        experiment_close(&e);
    }
    free(a.settings.list);
    return status;
}
