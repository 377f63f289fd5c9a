/* adamod evaluate, adamod translate: what a trained model does with text. */
#include "checkpoint.h"
#include "experiment.h"
#include "training.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { FLAG_CHECKPOINT, FLAG_BEAM, FLAG_LENGTH_PENALTY, FLAG_DEVICE, FLAG_SET, FLAG_SPLIT, FLAG_JSON };
#define MODEL_FLAGS                                                                                                    \
    {"checkpoint", "NAME", "averaged, best or last (the first there is)"},                                             \
        {"beam", "N", "hypotheses kept (the recipe's)"},                                                               \
        {"length-penalty", "X", "exponent of the length (the recipe's)"}, TRAINING_DEVICE_FLAG, {                      \
        "set", "KEY=VALUE", "override a key of the recipe; may be given again"                                         \
    }
static const cli_flag evaluate_flags[] = {MODEL_FLAGS,
                                          {"split", "valid|test", "what to evaluate on (test, if there is one)"},
                                          {"json", NULL, "print one JSON object"},
                                          CLI_HELP_FLAG,
                                          {0}};
static const cli_flag translate_flags[] = {MODEL_FLAGS, CLI_HELP_FLAG, {0}};

typedef struct arguments {
    const char *command, *run, *split;
    const char *checkpoint; /* "best"; once the run is open, the one that was read */
    bool json;
} arguments;

static void print_help(const arguments *a, const cli_flag *flags) {
    if (strcmp(a->command, "evaluate") == 0) {
        printf("usage: adamod evaluate RUN [--split valid|test] [--beam N] ...\n\n"
               "Loss, exact matches and BLEU of a run's model on held-out text.\n\n");
    } else {
        printf("usage: adamod translate RUN [--beam N] ... < text\n\n"
               "Translates standard input line by line with a run's model.\n\n");
    }
    cli_print_flags(stdout, flags);
}

/* Exit status, or -1 to go on. What overrides the run's recipe is for a second pass, once that is loaded. */
static int parse(int argc, char **argv, arguments *a, const cli_flag *flags, recipe *r) {
    cli_parser p = {.command = a->command, .flags = flags, .argc = argc, .argv = argv};
    char message[1024];
    int failed = 0;
    for (int flag; (flag = cli_next(&p)) != CLI_END;) {
        if (flag >= 0 && strcmp(flags[flag].name, "help") == 0) { /* last of both tables, so its index differs */
            print_help(a, flags);
            return 0;
        }
        switch (flag) {
            case CLI_BAD: return CLI_USAGE;
            case CLI_OPERAND:
                if (a->run && !r) return cli_usage(a->command, "unexpected argument '%.80s'", p.value);
                a->run = p.value;
                break;
            case FLAG_CHECKPOINT: a->checkpoint = p.value; break;
            case FLAG_BEAM:
                if (r) failed = recipe_set_flag(r, "--beam", "decode.beam", p.value, message, sizeof message);
                break;
            case FLAG_LENGTH_PENALTY:
                if (r)
                    failed = recipe_set_flag(r, "--length-penalty", "decode.length_penalty", p.value, message,
                                             sizeof message);
                break;
            case FLAG_DEVICE:
                if (r) failed = training_device(r, p.value, message, sizeof message);
                break;
            case FLAG_SET:
                if (r) failed = recipe_set(r, p.value, message, sizeof message);
                break;
            case FLAG_SPLIT: a->split = p.value; break;
            case FLAG_JSON: a->json = true; break;
            default: break;
        }
        if (failed) return cli_usage(a->command, "%s", message);
    }
    return a->run ? -1 : cli_usage(a->command, "needs a run directory");
}

/* Parses the command line and brings the run's model into memory: exit status, or -1 to go on. */
static int open_model(int argc, char **argv, arguments *a, const cli_flag *flags, experiment *s, int uses) {
    static recipe r;
    char checkpoint[1200], message[1024];
    int status = parse(argc, argv, a, flags, NULL);
    if (status >= 0) return status;
    if (a->split && strcmp(a->split, "valid") != 0 && strcmp(a->split, "test") != 0)
        return cli_usage(a->command, "--split is '%.40s', expected valid or test", a->split);
    if ((status = training_open_run(a->command, a->run, &a->checkpoint, &r, checkpoint, sizeof checkpoint)))
        return status;
    if ((status = parse(argc, argv, a, flags, &r)) >= 0) return status;
    if (recipe_check(&r, message, sizeof message)) return cli_usage(a->command, "%s", message);
    if (experiment_open_run(s, &r, a->run, uses, message, sizeof message)) return cli_fail(a->command, "%s", message);
    checkpoint_meta meta = {.fingerprint = experiment_fingerprint(s)};
    if (checkpoint_load(checkpoint, s->params, NULL, &meta, message, sizeof message)) {
        experiment_close(s);
        return cli_fail(a->command, "%s", message);
    }
    return -1;
}

int cli_evaluate(int argc, char **argv) {
    static arguments a = {.command = "evaluate"};
    experiment s;
    char message[1024];
    int status = open_model(argc, argv, &a, evaluate_flags, &s, EXPERIMENT_SCORE | EXPERIMENT_DECODE);
    if (status >= 0) return status;
    status = 0;
    const bool test = a.split ? strcmp(a.split, "test") == 0 : s.text[SPLIT_TEST].n > 0;
    const int split = test ? SPLIT_TEST : SPLIT_VALID;
    if (experiment_text_note(&s, split, message, sizeof message)) training_note(message);
    experiment_score score;
    experiment_quality quality;
    if (s.text[split].n == 0) {
        status = cli_fail("evaluate", "%s: the recipe has no %s set", a.run, test ? "test" : "validation");
    } else if (experiment_score_split(&s, split, 0, &score, message, sizeof message) ||
               experiment_decode_split(&s, split, 0, NULL, NULL, &quality, message, sizeof message)) {
        status = cli_fail("evaluate", "%s", message);
    } else if (a.json) {
        printf("{\"split\":\"%s\",\"checkpoint\":\"%s\",\"sentences\":%lld,\"loss\":%.9g,\"nll\":%.9g,"
               "\"perplexity\":%.9g,\"accuracy\":%.9g,\"exact\":%.9g,\"bleu\":%.9g,\"seconds\":%.3f}\n",
               test ? "test" : "valid", a.checkpoint, (long long)quality.sentences, score.loss, score.nll,
               exp(score.nll), score.accuracy, quality.exact, quality.bleu, quality.seconds);
    } else {
        printf("%s set, %lld sentences, %s checkpoint: loss %.4f, perplexity %.3f, next token right %.1f %%\n"
               "decoded with beam %d in %.1f s: exact %.1f %%, BLEU %.2f\n",
               test ? "test" : "validation", (long long)quality.sentences, a.checkpoint, score.loss, exp(score.nll),
               100 * score.accuracy, s.recipe.decode.beam, quality.seconds, 100 * quality.exact, quality.bleu);
    }
    experiment_close(&s);
    return status;
}

/* Lines of standard input, and how it goes on after them. */
typedef struct input {
    char *bytes[EXPERIMENT_LINES];
    text_slice line[EXPERIMENT_LINES]; /* without their ends */
    int n;
    int64_t first; /* number of the first of them */
    bool more;
    char bad[256]; /* what is wrong with the line after them; "": nothing */
} input;

static void free_lines(input *in) {
    for (int i = 0; i < in->n; i++) free(in->bytes[i]);
    in->first += in->n;
    in->n = 0;
}

/* Up to the first line that is not text, so that those before it are translated. */
static void read_lines(input *in) {
    for (in->more = true; in->more && in->n < EXPERIMENT_LINES;) {
        char *bytes = NULL;
        size_t room = 0;
        const ssize_t length = getline(&bytes, &room, stdin);
        size_t n = length > 0 ? (size_t)length : 0;
        if (n && bytes[n - 1] == '\n') n--;
        if (n && bytes[n - 1] == '\r') n--;
        const text_slice line = {bytes, n};
        const bool bad = n && text_check(line, "standard input", in->first + in->n, in->bad, sizeof in->bad) != 0;
        if (length < 0 && ferror(stdin)) snprintf(in->bad, sizeof in->bad, "standard input: %s", strerror(errno));
        in->more = length >= 0 && !bad;
        in->bytes[in->n] = bytes;
        in->line[in->n] = line;
        if (in->more) in->n++;
        else free(bytes);
    }
}

static void warn_of_long(const experiment *s, const input *in) {
    for (int i = 0; i < in->n; i++) {
        const int64_t n = text_count_tokens(s->unit, in->line[i]), line = in->first + i;
        if (n <= s->recipe.data.max_length) continue;
        fprintf(stderr, "adamod: translate: standard input:%lld: %lld tokens, of which data.max_length %d are read\n",
                (long long)line, (long long)n, s->recipe.data.max_length);
    }
}

static int translate_all(experiment *s) {
    input in = {.first = 1};
    int status = 0;
    do {
        char *out[EXPERIMENT_LINES] = {NULL}, message[1024];
        read_lines(&in);
        warn_of_long(s, &in);
        if (experiment_translate(s, in.n, in.line, out, message, sizeof message)) {
            status = cli_fail("translate", "standard input:%lld: %s", (long long)in.first, message);
        }
        for (int i = 0; i < in.n; i++) {
            if (!status) printf("%s\n", out[i] ? out[i] : "");
            free(out[i]);
        }
        fflush(stdout);
        free_lines(&in);
    } while (in.more && !status);
    return !status && *in.bad ? cli_fail("translate", "%s", in.bad) : status;
}

int cli_translate(int argc, char **argv) {
    static arguments a = {.command = "translate"};
    experiment s;
    int status = open_model(argc, argv, &a, translate_flags, &s, EXPERIMENT_DECODE);
    if (status >= 0) return status;
    status = translate_all(&s);
    experiment_close(&s);
    return status;
}
