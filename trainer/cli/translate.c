/* adamod translate: translates text line by line with a trained model. */
#include "support/text.h"
#include "core/error.h"
#include "data/text_input.h"
#include "tasks/translation.h"
#include "cli/open_run.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_LINES = 8192 }; /* of a batch: those of similar lengths are translated together */

typedef struct arguments {
    opened_run run;
    const char *file;     /* NULL: standard input */
    int64_t nbest, batch; /* 0: not given */
    bool scores;
} arguments;

static const cli_flag flags[] = {
    OPEN_RUN_FLAGS,
    OPEN_RUN_BEAM_FLAGS,
    CLI_WHOLE("nbest", "N", "print the N best translations of each line, each after the line's number and a tab",
              arguments, nbest, 1, 64),
    CLI_SWITCH("scores", "print the score and a tab before each translation", arguments, scores),
    CLI_WHOLE("batch", "N",
              "lines read before they are translated, 1 to 8192 (8192 from a file; 1 from a pipe or a terminal)",
              arguments, batch, 1, MOST_LINES),
    {0}};

static int take_operand(void *to, const char *value) {
    arguments *a = to;
    if (!a->run.directory) return a->run.directory = value, 0;
    if (a->file) return cli_usage("translate", "unexpected argument '%.80s': one file at most", value);
    a->file = value;
    return 0;
}

static const cli_syntax syntax = {
    .command = "translate",
    .help = "usage: adamod translate RUN [FILE] [--beam N] [--nbest N] [--scores] ... < text\n\n"
            "Translates a file or standard input line by line with a run's model. Each line from a pipe\n"
            "or a terminal is answered before the next one is read. A score is the sum of log p over the\n"
            "tokens, divided by length^length-penalty.\n\n",
    .flags = flags,
    .operand = take_operand};

typedef struct lines {
    const char *from; /* for messages */
    char *bytes[MOST_LINES];
    text_slice line[MOST_LINES];
    int n;
    int64_t first; /* number of the first of them */
} lines;

static void free_lines(lines *l) {
    for (int i = 0; i < l->n; i++) free(l->bytes[i]);
    l->n = 0;
}

/* Stops at the first line that is not text, so that those before it are translated. Returns 1 if there may be more, 0 at the
 * end, or a negative status. */
static int read_lines(text_input *in, int most, lines *l) {
    l->first = text_input_number(in) + 1;
    while (l->n < most) {
        text_slice line;
        const int got = text_input_line(in, &line);
        if (got <= 0) return got;
        char *copy = malloc(line.n + 1);
        if (!copy)
            return adamod__fail(ADAMOD_ERROR_MEMORY, "%s:%lld: out of memory", l->from, (long long)l->first + l->n);
        if (line.n) memcpy(copy, line.bytes, line.n);
        l->bytes[l->n] = copy;
        l->line[l->n++] = (text_slice){copy, line.n};
    }
    return 1;
}

static void warn_of_long(const experiment *e, const lines *l, int nbest, const translation_answer *answers) {
    const int most = translation_settings_of(&e->recipe)->data.max_length;
    for (int i = 0; i < l->n; i++) {
        const long long n = answers[(size_t)i * (size_t)nbest].tokens;
        if (n <= most) continue;
        text_line(stderr, "adamod: translate: %s:%lld: %lld tokens, of which data.max_length %d are read", l->from,
                  (long long)l->first + i, n, most);
    }
}

static void print_answer(const arguments *a, int64_t line, const translation_answer *answer) {
    if (a->nbest) printf("%lld\t", (long long)line);
    if (a->scores) printf("%.6f\t", answer->score);
    printf("%s\n", answer->text);
}

static int translate_lines(experiment *e, const arguments *a, const lines *l) {
    const int nbest = a->nbest ? (int)a->nbest : 1;
    translation_answer *answers = calloc((size_t)l->n * (size_t)nbest, sizeof *answers);
    if (!answers) return cli_fail("translate", "out of memory");
    int status = translation_translate(e, l->n, l->line, nbest, answers);
    if (status) status = cli_fail("translate", "%s:%lld: %s", l->from, (long long)l->first, adamod__last_message());
    else warn_of_long(e, l, nbest, answers);
    for (int i = 0; !status && i < l->n * nbest; i++) {
        if (answers[i].text) print_answer(a, l->first + i / nbest, &answers[i]);
        free(answers[i].text);
    }
    free(answers);
    fflush(stdout);
    return status;
}

/* Many lines at once are faster, but the writer of a pipe may wait for the answer to a line. */
static int translate_all(experiment *e, const arguments *a) {
    static lines l;
    text_input *in;
    adamod__failure unread = {0};
    int status = 0, more = 1;
    if (text_input_open(&in, a->file)) return cli_failed("translate");
    l.from = text_input_name(in);
    const int at_once = a->batch ? (int)a->batch : text_input_is_file(in) ? MOST_LINES : 1;
    while (more > 0 && !status) {
        more = read_lines(in, at_once, &l);
        if (more < 0) adamod__save_failure(&unread);
        if (l.n) status = translate_lines(e, a, &l);
        free_lines(&l);
    }
    text_input_close(in);
    return !status && more < 0 ? cli_fail("translate", "%s", unread.message) : status;
}

static int check_nbest(const experiment *e, const arguments *a) {
    const int beam = translation_beam(e);
    if (a->nbest <= beam) return 0;
    return cli_usage("translate", "--nbest is %lld, expected at most --beam, which is %d", (long long)a->nbest, beam);
}

int cli_translate(int argc, char **argv) {
    arguments a = {.file = NULL};
    experiment e;
    int status = open_run(&syntax, argc, argv, &a.run, &e, TASK_APPLY);
    if (status >= 0) return status;
    if (e.task->answer != TASK_TRANSLATES)
        status = cli_fail("translate", "%s: data.task %s does not translate", a.run.directory, e.task->name);
    else if (!(status = check_nbest(&e, &a))) status = translate_all(&e, &a);
    experiment_close(&e);
    return status;
}
