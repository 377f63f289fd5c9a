/* adamod text tokens learn, encode, decode and pack: see data/byte_bpe.h and data/token_file.h. */
#include "cli/text_lines.h"
#include "core/error.h"

#include "core/buffer.h"
#include "data/byte_bpe.h"
#include "data/text_input.h"
#include "data/token_pack.h"
#include "support/array.h"
#include "support/text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MODEL_FLAG(type)                                                                                               \
    CLI_TEXT("model", "DIR", "folder of vocab.json and merges.txt, as Hugging Face has them", type, model)
#define MARKS_FLAG(type) CLI_SWITCH("special", "take " BYTE_BPE_END " in the text for that token", type, marks)

static int needs_model(const char *command, const char *model) {
    return model ? -1 : cli_usage(command, "needs --model DIR");
}

/* ---- learn ---- */

typedef struct learning {
    cli_operands paths;
    const char *model;
    int64_t vocab, min_frequency, threads;
} learning;

static const cli_flag learn_flags[] = {
    MODEL_FLAG(learning),
    CLI_WHOLE("vocab", "N", "number of tokens, with the 256 bytes and " BYTE_BPE_END " (50257)", learning, vocab, 257,
              INT32_MAX / 8),
    CLI_WHOLE("min-frequency", "F", "stop when no pair occurs at least F times (2)", learning, min_frequency, 1,
              INT64_MAX),
    CLI_WHOLE("threads", "N", "threads; 0: one for each core (0)", learning, threads, 0, 1024),
    CLI_HELP_FLAG,
    {0}};

/* Refuses to replace the vocabulary of a run, or of a folder with weights: nothing could read their ids any more. */
static int check_free(const char *directory) {
    static const char *const users[] = {"recipe.yaml", "config.json", "model.safetensors", NULL};
    const bool has = access(path_join(directory, "vocab.json").text, F_OK) == 0;
    for (int i = 0; has && users[i]; i++) {
        if (access(path_join(directory, users[i]).text, F_OK) == 0)
            return adamod__refuse("%s: its vocab.json belongs to %s: choose another --model", directory, users[i]);
    }
    return 0;
}

static int learn(const char *command, const learning *a, byte_bpe_learner *l) {
    byte_bpe *b = NULL;
    int failed = check_free(a->model);
    if (!failed)
        failed = byte_bpe_learner_add_files(l, a->paths.n, (const char *const *)a->paths.list, (int)a->threads);
    if (!failed) failed = byte_bpe_learn(&b, l, a->vocab, a->min_frequency);
    if (!failed) failed = byte_bpe_save(b, a->model);
    if (!failed && byte_bpe_size(b) < a->vocab)
        fprintf(stderr, "adamod: %s: %" PRId32 " tokens: no other pair is seen %lld times\n", command, byte_bpe_size(b),
                (long long)a->min_frequency);
    byte_bpe_free(b);
    return failed ? cli_failed(command) : 0;
}

int cli_text_tokens_learn(int argc, char **argv) {
    static const char command[] = "text tokens learn";
    const cli_syntax syntax = {.command = command,
                               .help = "usage: adamod text tokens learn --model DIR [--vocab N] [FILE]...\n\n"
                                       "Learns a byte-level BPE vocabulary from all files together, as Hugging Face's\n"
                                       "tokenizers do, and writes DIR/vocab.json and DIR/merges.txt.\n\n",
                               .flags = learn_flags,
                               .takes = CLI_OPERANDS,
                               .operands = offsetof(learning, paths)};
    learning a = {.vocab = 50257, .min_frequency = 2};
    int status = cli_parse(&syntax, argc, argv, &a);
    if (status < 0) status = needs_model(command, a.model);
    if (status >= 0) return status;
    byte_bpe_learner *l = byte_bpe_learner_create();
    if (!l) return cli_fail(command, "out of memory");
    status = learn(command, &a, l);
    byte_bpe_learner_free(l);
    return status;
}

/* ---- encode ---- */

typedef struct arguments {
    text_lines lines;
    const char *model;
    bool marks;
    byte_bpe *b;
} arguments;

/* An encoder with its list of ids. */
typedef struct worker {
    byte_bpe_encoder *encoder;
    byte_bpe_ids ids;
} worker;

static void close_worker(void *of) {
    worker *w = of;
    if (!w) return;
    byte_bpe_encoder_free(w->encoder);
    free(w->ids.list);
    free(w);
}

static void *open_worker(const void *options) {
    const arguments *a = options;
    worker *w = calloc(1, sizeof *w);
    if (w && (w->encoder = byte_bpe_encoder_create(a->b, a->marks))) return w;
    free(w);
    return NULL;
}

/* As sprintf does, in a tenth of its time. */
static char *put_number(char *at, uint32_t x) {
    char digits[10];
    int n = 0;
    do digits[n++] = (char)('0' + x % 10);
    while (x /= 10);
    while (n) *at++ = digits[--n];
    return at;
}

static char *encode_line(void *of, text_slice line) {
    worker *w = of;
    w->ids.n = 0;
    if (byte_bpe_encode(w->encoder, line, &w->ids)) return NULL;
    char *text = malloc(w->ids.n * 12 + 1), *at = text;
    if (!text) return NULL;
    for (size_t i = 0; i < w->ids.n; i++) {
        if (i) *at++ = ' ';
        at = put_number(at, (uint32_t)w->ids.list[i]);
    }
    *at = '\0';
    return text;
}

static const cli_flag encode_flags[] = {
    MODEL_FLAG(arguments), MARKS_FLAG(arguments), TEXT_THREADS_FLAG, CLI_HELP_FLAG, {0}};

int cli_text_tokens_encode(int argc, char **argv) {
    static const char command[] = "text tokens encode";
    const cli_syntax syntax = {.command = command,
                               .help = "usage: adamod text tokens encode --model DIR [--special] [FILE]...\n\n"
                                       "Writes the ids of the tokens of each line, without its end, in a line.\n\n",
                               .flags = encode_flags,
                               .takes = CLI_OPERANDS,
                               .operands = offsetof(arguments, lines.paths)};
    arguments a = {
        .lines = {.run = encode_line, .open = open_worker, .close = close_worker, .options = &a, .any = true}};
    int status = cli_parse(&syntax, argc, argv, &a);
    if (status < 0) status = needs_model(command, a.model);
    if (status < 0) status = byte_bpe_load(&a.b, a.model) ? cli_failed(command) : text_lines_run(command, &a.lines);
    byte_bpe_free(a.b);
    return status;
}

/* ---- decode ---- */

typedef struct decoding {
    cli_operands paths;
    const char *model;
    byte_bpe *b;
    byte_bpe_ids ids;
    adamod__buffer text;
} decoding;

static const cli_flag decode_flags[] = {MODEL_FLAG(decoding), CLI_HELP_FLAG, {0}};

static bool is_blank(char c) { return c == ' ' || c == '\t'; }

/* Takes a run of digits from the front of a line; -1: it is not one, or too large. */
static int64_t next_id(text_slice *line, text_slice *word) {
    size_t n = 0;
    int64_t id = 0;
    while (n < line->n && !is_blank(line->bytes[n])) {
        const char c = line->bytes[n++];
        id = id < 0 || c < '0' || c > '9' || id > INT32_MAX ? -1 : id * 10 + (c - '0');
    }
    *word = (text_slice){line->bytes, n};
    *line = (text_slice){line->bytes + n, line->n - n};
    return id;
}

static int read_ids(decoding *d, const text_input *in, text_slice line) {
    d->ids.n = 0;
    for (text_slice word;;) {
        while (line.n && is_blank(*line.bytes)) line = (text_slice){line.bytes + 1, line.n - 1};
        if (!line.n) return 0;
        const int64_t id = next_id(&line, &word);
        if (id < 0 || id >= byte_bpe_size(d->b))
            return adamod__refuse("%s:%" PRId64 ": '%.*s' is no id, expected whole numbers from 0 to %" PRId32,
                                  text_input_name(in), text_input_number(in), (int)(word.n < 40 ? word.n : 40),
                                  word.bytes, byte_bpe_size(d->b) - 1);
        if (!ARRAY_RESERVE(d->ids.list, d->ids.n + 1, d->ids.room))
            return adamod__fail(ADAMOD_ERROR_MEMORY, "%s: out of memory", text_input_name(in));
        d->ids.list[d->ids.n++] = (int32_t)id;
    }
}

static int print_text(decoding *d, bool now) {
    d->text.n = 0;
    byte_bpe_decode(d->b, d->ids.list, d->ids.n, &d->text);
    adamod__buffer_text(&d->text, "\n");
    if (d->text.failed) return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory");
    if (fwrite(d->text.text, 1, d->text.n, stdout) == d->text.n && !(now && fflush(stdout))) return 0;
    return adamod__fail(ADAMOD_ERROR_IO, "cannot write to standard output: %s", strerror(errno));
}

static int decode_file(decoding *d, const char *path) {
    text_input *in;
    text_slice line;
    int got, status = 0;
    if (text_input_open(&in, path)) return -1;
    while (!status && (got = text_input_line(in, &line)) != 0) {
        status = got < 0 ? got : read_ids(d, in, line);
        if (!status) status = print_text(d, text_input_waits(in));
    }
    text_input_close(in);
    return status;
}

int cli_text_tokens_decode(int argc, char **argv) {
    static const char command[] = "text tokens decode";
    const cli_syntax syntax = {.command = command,
                               .help = "usage: adamod text tokens decode --model DIR [FILE]...\n\n"
                                       "Writes the text of each line of ids, and an end of line.\n\n",
                               .flags = decode_flags,
                               .takes = CLI_OPERANDS,
                               .operands = offsetof(decoding, paths)};
    decoding d = {0};
    int status = cli_parse(&syntax, argc, argv, &d);
    if (status < 0) status = needs_model(command, d.model);
    if (status >= 0) return status;
    int failed = byte_bpe_load(&d.b, d.model);
    if (!failed && d.paths.n == 0) failed = decode_file(&d, NULL);
    for (int i = 0; i < d.paths.n && !failed; i++) failed = decode_file(&d, d.paths.list[i]);
    byte_bpe_free(d.b);
    free(d.ids.list);
    adamod__buffer_free(&d.text);
    return failed ? cli_failed(command) : 0;
}

/* ---- pack ---- */

typedef struct packing {
    cli_operands paths;
    const char *model, *out;
    int document;
    bool marks;
} packing;

static const char *const documents[] = {"file", "blank", "line", NULL}; /* as token_document */
static const cli_flag pack_flags[] = {MODEL_FLAG(packing),
                                      CLI_TEXT("out", "FILE", "file for the tokens, such as train.bin", packing, out),
                                      CLI_CHOICE("document", "WHAT",
                                                 "what a document is: file, blank (up to a blank line) or line (file)",
                                                 packing, document, documents),
                                      MARKS_FLAG(packing),
                                      CLI_HELP_FLAG,
                                      {0}};

static int check_vocabulary(const packing *a, const byte_bpe *b) {
    if (byte_bpe_size(b) > TOKEN_FILE_IDS)
        return adamod__refuse("%s: %" PRId32 " tokens, expected at most %d: the file has 16 bits for each", a->model,
                              byte_bpe_size(b), TOKEN_FILE_IDS);
    if (byte_bpe_end(b) < 0)
        return adamod__refuse("%s/vocab.json: no token " BYTE_BPE_END ", which begins each document", a->model);
    return 0;
}

static int pack(const packing *a, const byte_bpe *b, int64_t *count) {
    const token_pack p = {.b = b, .document = (token_document)a->document, .marks = a->marks};
    token_writer *w;
    if (check_vocabulary(a, b) || token_writer_open(&w, a->out)) return -1;
    int failed = token_pack_run(&p, a->paths.n, (const char *const *)a->paths.list, w);
    if (!failed && !(*count = token_writer_count(w))) failed = adamod__refuse("no text to pack");
    adamod__failure why;
    if (failed) adamod__save_failure(&why);
    const int closed = token_writer_close(w, !failed);
    return failed ? adamod__fail_again(&why) : closed;
}

int cli_text_tokens_pack(int argc, char **argv) {
    static const char command[] = "text tokens pack";
    const cli_syntax syntax = {
        .command = command,
        .help = "usage: adamod text tokens pack --model DIR --out FILE [--document WHAT] [--special] [FILE]...\n\n"
                "Packs texts into a file of tokens of 16 bits, as llm.c reads it. " BYTE_BPE_END
                " begins each document.\n\n",
        .flags = pack_flags,
        .takes = CLI_OPERANDS,
        .operands = offsetof(packing, paths)};
    packing a = {0};
    byte_bpe *b;
    int64_t count = 0;
    int status = cli_parse(&syntax, argc, argv, &a);
    if (status < 0) status = needs_model(command, a.model);
    if (status < 0 && !a.out) status = cli_usage(command, "needs --out FILE");
    if (status >= 0) return status;
    if (byte_bpe_load(&b, a.model)) return cli_failed(command);
    const int failed = pack(&a, b, &count);
    byte_bpe_free(b);
    if (failed) return cli_failed(command);
    printf("%lld tokens\n", (long long)count);
    return 0;
}
