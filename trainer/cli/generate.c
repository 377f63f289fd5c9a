/* adamod generate: text that a language model writes. */
#include "cli/trained.h"
#include "core/error.h"
#include "data/normalizer.h"
#include "tasks/language_writer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { FLAG_PROMPT = TRAINED_PLAIN_FLAGS, FLAG_TOKENS, FLAG_TEMPERATURE, FLAG_TOP_K, FLAG_TOP_P, FLAG_SEED, FLAGS };
static const cli_flag flags[] = {
    TRAINED_PLAIN_MODEL_FLAGS,
    {"prompt", "TEXT", "beginning of the text (default: a new line)"},
    {"tokens", "N", "tokens to write after the prompt (the recipe's, 80)"},
    {"temperature", "T", "divides log-probabilities; 0: always the likeliest token (the recipe's, 1)"},
    {"top-k", "K", "draw only from the K likeliest tokens; 0: all (the recipe's, 0)"},
    {"top-p", "P", "draw only from the likeliest tokens with total probability P (the recipe's, 1)"},
    {"seed", "S", "seed of the draws (the recipe's, 1)"},
    {0}};

/* The flags that are keys of the recipe. */
static const char *const keys[FLAGS][2] = {[FLAG_TOKENS] = {"--tokens", "generate.tokens"},
                                           [FLAG_TEMPERATURE] = {"--temperature", "generate.temperature"},
                                           [FLAG_TOP_K] = {"--top-k", "generate.top_k"},
                                           [FLAG_TOP_P] = {"--top-p", "generate.top_p"},
                                           [FLAG_SEED] = {"--seed", "generate.seed"}};

typedef struct arguments {
    const char *value[FLAGS];
} arguments;

static int read_flag(void *context, int flag, const char *value) {
    ((arguments *)context)->value[flag] = value;
    return 0;
}

/* Whoever reads should see each token at once. */
typedef struct shown {
    bool ended; /* with a line's end */
} shown;

static int show(void *context, text_slice piece) {
    shown *s = context;
    if (piece.n > 0) s->ended = piece.bytes[piece.n - 1] == '\n';
    if (fwrite(piece.bytes, 1, piece.n, stdout) == piece.n && fflush(stdout) == 0) return 0;
    return adamod__fail(ADAMOD_ERROR_IO, "cannot write to standard output: %s", strerror(errno));
}

/* Whether the model would see nothing of a prompt but that words and lines are there. */
static bool says_nothing(const int32_t *tokens, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        if (tokens[i] != LANGUAGE_UNK && tokens[i] != LANGUAGE_EOS) return false;
    }
    return true;
}

/* Whether all of it is in the vocabulary in lower case, which many texts are in. */
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

/* The prompt in tokens, to be freed; the exit status. */
static int read_prompt(const experiment *e, const char *text, int32_t **tokens, int64_t *n) {
    char unknown[512], line[1024];
    if (text_check(text_of(text), "--prompt", 1)) return cli_refused("generate");
    if (language_prompt(e, text_of(text), tokens, n, unknown, sizeof unknown))
        return cli_usage("generate", "--prompt: %s", adamod__last_message());
    if (!*unknown) return 0;
    const char *hint = known_in_lower_case(e, text) ? "; in lower case, all of it is" : "";
    if (says_nothing(*tokens, *n))
        return cli_usage("generate", "--prompt: nothing of it is in the run's vocabulary: %s%s", unknown, hint);
    snprintf(line, sizeof line, "generate: --prompt: not in the run's vocabulary, and read as <unk>: %s%s", unknown,
             hint);
    training_note(line);
    return 0;
}

static int generate(experiment *e, const char *prompt) {
    const language_settings *r = language_settings_of(&e->recipe);
    language_writer *w = NULL;
    int32_t *tokens = NULL;
    int64_t n;
    shown s = {.ended = true};
    int status = read_prompt(e, prompt, &tokens, &n);
    if (!status && (language_writer_create(&w, e) || language_writer_read(w, tokens, n, show, &s) ||
                    language_writer_write(w, r->generate.tokens, r->generate.seed, show, &s)))
        status = cli_failed("generate");
    if (!s.ended) printf("\n");
    language_writer_free(w);
    free(tokens);
    return status;
}

static int take_settings(const arguments *a, recipe *r) {
    for (int i = FLAG_TOKENS; i < FLAGS; i++) {
        if (a->value[i] && recipe_set_flag(r, keys[i][0], keys[i][1], a->value[i])) return cli_refused("generate");
    }
    return 0;
}

int cli_generate(int argc, char **argv) {
    arguments a = {{NULL}};
    trained t = {
        .command = "generate",
        .flags = flags,
        .help =
            "usage: adamod generate RUN [--prompt TEXT] [--tokens N] [--temperature T] [--top-k K] ...\n\n"
            "Writes text with the model of a run of data.task language: the prompt, then each token as it is drawn.\n"
            "The text is always computed on the CPU, whatever --device says, so it is the same on every machine.\n\n",
        .own = read_flag,
        .plain = true,
        .on_host = true,
        .context = &a};
    experiment e;
    int status = trained_open(&t, argc, argv, &e, TASK_APPLY);
    if (status >= 0) return status;
    if (e.task->answer != TASK_WRITES)
        status = cli_fail("generate", "%s: data.task %s writes no text", t.run, e.task->name);
    else if (!(status = take_settings(&a, &e.recipe)))
        status = generate(&e, a.value[FLAG_PROMPT] ? a.value[FLAG_PROMPT] : "");
    experiment_close(&e);
    return status;
}
