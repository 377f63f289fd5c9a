/* adamod translate: text through a trained model, line by line. */
#include "tasks/translation.h"
#include "cli/trained.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const cli_flag flags[] = {TRAINED_MODEL_FLAGS, {0}};

/* Lines of standard input, and how it goes on after them. */
typedef struct input {
    char *bytes[TRANSLATION_LINES];
    text_slice line[TRANSLATION_LINES]; /* without their ends */
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
    for (in->more = true; in->more && in->n < TRANSLATION_LINES;) {
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

static void warn_of_long(const experiment *e, const input *in) {
    const int most = translation_settings_of(&e->recipe)->data.max_length;
    for (int i = 0; i < in->n; i++) {
        const int64_t n = text_count_tokens(translation_of(e)->unit, in->line[i]), line = in->first + i;
        if (n <= most) continue;
        fprintf(stderr, "adamod: translate: standard input:%lld: %lld tokens, of which data.max_length %d are read\n",
                (long long)line, (long long)n, most);
    }
}

static int translate_all(experiment *e) {
    input in = {.first = 1};
    int status = 0;
    do {
        char *out[TRANSLATION_LINES] = {NULL}, message[1024];
        read_lines(&in);
        warn_of_long(e, &in);
        if (translation_translate(e, in.n, in.line, out, message, sizeof message)) {
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
    trained t = {.command = "translate",
                 .flags = flags,
                 .help = "usage: adamod translate RUN [--beam N] ... < text\n\n"
                         "Translates standard input line by line with a run's model.\n\n"};
    experiment e;
    int status = trained_open(&t, argc, argv, &e, TASK_APPLY);
    if (status >= 0) return status;
    if (e.task->open == task_bitext.open) status = translate_all(&e);
    else status = cli_fail("translate", "%s: data.task %s does not translate", t.run, e.task->name);
    experiment_close(&e);
    return status;
}
