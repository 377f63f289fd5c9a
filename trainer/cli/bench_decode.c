/* adamod bench decode: how fast beam search translates, and against CTranslate2.
 *
 * The model has random weights, except for those that make translations end, so it needs no data and no training.
 * Contestants take turns, and their translations are compared. */
#include "support/clock.h"
#include "core/error.h"
#include "support/random.h"
#include "core/safetensors.h"
#include "support/text.h"
#include "cli/bench.h"
#include "cli/bench_python.h"
#include "cli/cli.h"
#include "data/vocab.h"
#include "peers.h"
#include "tasks/decode.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COMMAND "bench decode"

enum { TINY, SMALL, BASE };
static const transformer_config shapes[] = {
    [TINY] = {2, 2, 64, 128, 4, false, false, false, 0, 0, 0, 200, 200},
    [SMALL] = {6, 6, 512, 1024, 4, false, false, false, 0, 0, 0, 10000, 10000},
    [BASE] = {6, 6, 512, 2048, 8, false, true, false, 0, 0, 0, 37000, 37000},
};

typedef struct request {
    const char *device, *python;
    int shape, precision;
    bool no_peer;
    int64_t sentences, beam, batch, threads, rounds;
} request;

/* ---- the request ---- */

static const char *const shape_names[] = {[TINY] = "tiny", [SMALL] = "small", [BASE] = "base", NULL};
static const char *const precisions[] = {[NN_FULL] = "full", [NN_TF32] = "tf32", [NN_MIXED] = "mixed", NULL};

static int refuse_operand(void *to, const char *value) {
    (void)to;
    return cli_unexpected(COMMAND, value);
}

static const cli_flag flags[] = {
    CLI_CHOICE("shape", "NAME", "size of the model: tiny, small (IWSLT'14's, the default) or base", request, shape,
               shape_names),
    CLI_TEXT("device", "DEVICE", "cpu (the default) or cuda", request, device),
    CLI_CHOICE("precision", "NAME", "on a GPU, as train.precision: full (f32, the default), tf32 or mixed (bf16)",
               request, precision, precisions),
    CLI_WHOLE("sentences", "N", "number of sentences (6750 on a GPU, 200 on a CPU)", request, sentences, 1, 1000000),
    CLI_WHOLE("beam", "N", "hypotheses of beam search (5)", request, beam, 1, 64),
    CLI_WHOLE("batch", "N", "most sentences at once (as translate)", request, batch, 1, 4096),
    CLI_WHOLE("threads", "N", "threads of each program; 0: one for each core (0)", request, threads, 0, 1024),
    CLI_WHOLE("rounds", "N", "number of rounds; the best time counts (3)", request, rounds, 1, 1000),
    CLI_TEXT("python", "PROGRAM", "a Python with ctranslate2 (default: python3, then /usr/bin/python3)", request,
             python),
    CLI_SWITCH("no-peer", "do not run CTranslate2", request, no_peer),
    CLI_HELP_FLAG,
    {0},
};

static const cli_syntax syntax = {
    .command = COMMAND,
    .help = "usage: adamod bench decode [--shape tiny|small|base] [--device cpu|cuda] [--beam N] ...\n\n"
            "Translates random sentences of about 25 tokens with a Transformer of random weights, whose translations\n"
            "are about as long, and prints sentences per second, the best of some rounds. If Python can import\n"
            "ctranslate2, CTranslate2 translates the same sentences in turns, in f32 with the same weights, beam and\n"
            "number of threads, and the share of equal translations is printed.\n\n",
    .flags = flags,
    .operand = refuse_operand};

/* ---- sentences ---- */

enum { SHORTEST = 3, LONGEST = 120, MOST_OUTPUT = 200 };

typedef struct text {
    int64_t n;
    int32_t *ids;
    int64_t *at; /* n + 1 places in ids */
} text;

static void free_text(text *t) {
    free(t->ids);
    free(t->at);
}

/* The logarithm of the lengths is normal, as in speech. */
static bool make_text(text *t, int64_t n, int vocabulary) {
    enum { LENGTHS = 1, WORDS };
    *t = (text){.n = n};
    t->at = calloc((size_t)n + 1, sizeof *t->at);
    t->ids = calloc((size_t)n * (LONGEST + 1), sizeof *t->ids);
    if (!t->at || !t->ids) return false;
    for (int64_t i = 0; i < n; i++) {
        const double length = exp(log(20) + 0.6 * nn_normal(nn_key(1, 0, LENGTHS), (uint64_t)i));
        const int64_t words = length < SHORTEST ? SHORTEST : length > LONGEST ? LONGEST : (int64_t)length;
        for (int64_t k = 0; k < words; k++) {
            const uint64_t word =
                nn_below(nn_key(1, 0, WORDS), (uint64_t)(t->at[i] + k), (uint64_t)vocabulary - VOCAB_SPECIALS);
            t->ids[t->at[i] + k] = VOCAB_SPECIALS + (int32_t)word;
        }
        t->ids[t->at[i] + words] = VOCAB_END;
        t->at[i + 1] = t->at[i] + words + 1;
    }
    return true;
}

/* ---- the model ---- */

static double position(int64_t d, int64_t column, double at) {
    const int64_t half = d / 2;
    const double angle = at * exp(-log(10000) * (double)(column % half) / (double)(half - 1));
    return column < half ? sin(angle) : cos(angle);
}

/* With small block outputs, the position reaches the output layer. There the row of the end token points from position 0
 * to position 64, so its score rises with the length, and varies with the token before. */
static void make_it_end(nn_params *p, const transformer_config *c) {
    static const char *const blocks[] = {"self_out.weight", "cross_out.weight", "ffn_out.weight"};
    for (int i = 0; i < p->n; i++) {
        const nn_param *param = &p->list[i];
        for (int k = 0; k < 3; k++) {
            if (!text_ends(param->name, blocks[k])) continue;
            for (int64_t j = 0; j < param->count; j++) p->data[param->offset + j] *= 0.1f;
        }
    }
    const nn_param *output = nn_params_find(p, c->share_all ? "embedding.weight" : "decoder.output.weight");
    float *row = p->data + output->offset + (int64_t)VOCAB_END * c->d;
    const double scale = 0.115 * sqrt(512.0 / c->d);
    for (int64_t j = 0; j < c->d; j++) row[j] = (float)(scale * (position(c->d, j, 64) - position(c->d, j, 0)));
}

static nn_params *make_model(const transformer_config *c) {
    nn_params *p = nn_params_create();
    nn_graph *g = p ? nn_graph_create(p) : NULL;
    transformer_symbols symbols;
    bool done = g != NULL;
    if (g) transformer_training(g, c, &(transformer_sizes){1, 1, 1}, &symbols);
    done = done && nn_params_allocate(p, 1) == ADAMOD_OK;
    nn_graph_free(g);
    if (done) {
        make_it_end(p, c);
        return p;
    }
    nn_params_free(p);
    return NULL;
}

/* ---- a round ---- */

typedef struct answers {
    decoder *d;
    int32_t **tokens;
    int *length;
    int64_t words;
} answers;

static int take(void *context, int64_t i, int place) {
    answers *a = context;
    decode_result r;
    if (!decoder_result(a->d, place, 0, &r)) return 0;
    int32_t *tokens = realloc(a->tokens[i], (size_t)r.length * sizeof *tokens + 1);
    if (!tokens) return CLI_FAILURE;
    if (r.length) memcpy(tokens, r.tokens, (size_t)r.length * sizeof *tokens);
    a->tokens[i] = tokens;
    a->length[i] = r.length;
    a->words += r.length + 1;
    return 0;
}

/* Wall-clock and processor time. */
typedef struct seconds {
    double clock, processor;
} seconds;

static seconds now(void) { return (seconds){clock_seconds(), clock_read(CLOCK_PROCESS_CPUTIME_ID)}; }

static void keep_best(seconds *best, double clock, double processor) {
    if (best->clock == 0 || clock < best->clock) best->clock = clock;
    if (best->processor == 0 || processor < best->processor) best->processor = processor;
}

static int translate(const text *t, answers *a, seconds *best) {
    int taken = 0;
    const seconds start = now();
    a->words = 0;
    const adamod_status status = decoder_run_all(a->d, t->n, t->ids, t->at, take, a, &taken);
    if (status) return cli_library(COMMAND, status);
    keep_best(best, clock_seconds() - start.clock, now().processor - start.processor);
    return taken ? cli_fail(COMMAND, "out of memory") : 0;
}

/* ---- CTranslate2 ---- */

typedef struct peer {
    bench_python *process;
    char folder[64], model[96], output[96], version[32];
    seconds best;
    double equal;
} peer;

static int write_model(const char *path, const request *ask, const nn_params *p, const text *t) {
    const transformer_config *c = &shapes[ask->shape];
    char numbers[5][24];
    const adamod__st_pair meta[] = {{"layers", numbers[0]},     {"heads", numbers[1]}, {"beam", numbers[2]},
                                    {"max_length", numbers[3]}, {"batch", numbers[4]}, {"device", "\"cpu\""},
                                    {"compute", "\"float32\""}};
    const int64_t values[] = {c->encoder_layers, c->heads, ask->beam, MOST_OUTPUT, 64};
    adamod__st_tensor *tensors = calloc((size_t)p->n + 2, sizeof *tensors);
    if (!tensors) return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory");
    for (int i = 0; i < 5; i++) snprintf(numbers[i], sizeof numbers[i], "%lld", (long long)values[i]);
    for (int i = 0; i < p->n; i++) {
        const nn_param *param = &p->list[i];
        tensors[i] = (adamod__st_tensor){param->name, ADAMOD__ST_F32, param->ndim, {0}, p->data + param->offset};
        memcpy(tensors[i].shape, param->shape, (size_t)param->ndim * sizeof *param->shape);
    }
    tensors[p->n] = (adamod__st_tensor){"bench/source", ADAMOD__ST_I32, 1, {t->at[t->n]}, t->ids};
    tensors[p->n + 1] = (adamod__st_tensor){"bench/at", ADAMOD__ST_I64, 1, {t->n + 1}, t->at};
    const adamod_status status = adamod__st_write(path, meta, sizeof meta / sizeof *meta, tensors, (size_t)p->n + 2);
    free(tensors);
    return status ? -1 : 0;
}

/* Says so if it cannot be started. */
static void start_peer(peer *x, const request *ask, const nn_params *p, const text *t, int threads) {
    static const char *const trials[BENCH_TRIALS] = {BENCH_WAIT_ASLEEP};
    snprintf(x->folder, sizeof x->folder, "/tmp/adamod-decode-XXXXXX");
    if (!mkdtemp(x->folder)) {
        x->folder[0] = '\0';
        return;
    }
    snprintf(x->model, sizeof x->model, "%s/model.safetensors", x->folder);
    snprintf(x->output, sizeof x->output, "%s/output", x->folder);
    if (write_model(x->model, ask, p, t) == 0)
        x->process = bench_python_start(ask->python, peer_ctranslate2, threads, x->model, trials);
    if (x->process) bench_python_get(x->process, "version", x->version, sizeof x->version);
    else printf("CTranslate2: not measured: %s\n", adamod__last_message());
}

static void stop_peer(peer *x) {
    bench_python_stop(x->process);
    if (!x->folder[0]) return;
    unlink(x->model);
    unlink(x->output);
    rmdir(x->folder);
}

/* The share of equal translations. */
static double compare(const char *path, const text *t, const answers *a) {
    FILE *file = fopen(path, "r");
    char *line = NULL;
    size_t room = 0;
    int64_t equal = 0;
    for (int64_t i = 0; file && i < t->n && getline(&line, &room, file) >= 0; i++) {
        char *at = line;
        int n = 0;
        bool same = true;
        for (char *end; same; at = end, n++) {
            const long token = strtol(at, &end, 10);
            if (end == at) break;
            same = n < a->length[i] && token == a->tokens[i][n];
        }
        equal += same && n == a->length[i];
    }
    free(line);
    if (file) fclose(file);
    return (double)equal / (double)t->n;
}

static int ask_peer(peer *x, const text *t, const answers *a) {
    if (!bench_python_ask(x->process, "{\"file\": \"%s\"}\n", x->output))
        return cli_fail(COMMAND, "CTranslate2 in %s: %s", bench_python_name(x->process),
                        bench_python_error(x->process));
    keep_best(&x->best, bench_python_number(x->process, "seconds"), bench_python_number(x->process, "processor"));
    x->equal = compare(x->output, t, a);
    return 0;
}

/* ---- the command ---- */

static void print_line(const char *name, const text *t, const seconds *s, int64_t words) {
    printf("%-12s %8.3f s  %8.1f sentences/s  %9.0f tokens/s  %8.3f s of processors", name, s->clock,
           (double)t->n / s->clock, (double)words / s->clock, s->processor);
}

static void print_results(const request *ask, const text *t, const answers *a, const peer *x, const seconds *best,
                          double start) {
    const double n = (double)t->n;
    printf("%lld sentences of %.1f tokens, beam %d, translations of %.1f tokens\n", (long long)t->n,
           (double)t->at[t->n] / n, (int)ask->beam, (double)a->words / n);
    print_line("adamod", t, best, a->words);
    printf("; making the decoder: %.2f s\n", start);
    if (!x->process) return;
    print_line("CTranslate2", t, &x->best, a->words);
    printf("; %s%s%s, f32, batches of 64; %.1f %% equal\n", x->version, *bench_python_settings(x->process) ? ", " : "",
           bench_python_settings(x->process), 100 * x->equal);
    printf("CTranslate2's time is %.2f of ours, that of processors %.2f\n", x->best.clock / best->clock,
           x->best.processor / best->processor);
}

static int measure(const request *ask, const text *t, nn_params *params, answers *a, double start, int threads) {
    peer x = {0};
    seconds best = {0};
    int status = 0;
    const bool cpu = strcmp(ask->device, "cpu") == 0;
    bench_warn_if_busy(COMMAND);
    if (!ask->no_peer && cpu) start_peer(&x, ask, params, t, threads);
    for (int64_t i = 0; !status && i < ask->rounds; i++) {
        if (x.process) bench_pause();
        status = translate(t, a, &best);
        if (!status && x.process) status = ask_peer(&x, t, a);
    }
    if (!status) print_results(ask, t, a, &x, &best, start);
    stop_peer(&x);
    return status;
}

static int run(const request *ask, const text *t, nn_params *params, adamod_pool *pool) {
    const transformer_config *c = &shapes[ask->shape];
    const double start = clock_seconds();
    adamod_status failed = nn_params_to_device(params, ask->device, (nn_precision)ask->precision);
    if (failed) return cli_library(COMMAND, failed);
    const int fit = decode_sentences(params, c, (int)ask->beam, MOST_OUTPUT);
    const int sentences = ask->batch ? (int)ask->batch : fit;
    const decode_options o = {.beam = (int)ask->beam,
                              .max_length = MOST_OUTPUT,
                              .length_penalty = 1,
                              .sentences = sentences,
                              .src_tokens = sentences * 64 > LONGEST + 1 ? sentences * 64 : LONGEST + 1,
                              .start = VOCAB_START,
                              .end = VOCAB_END,
                              .constant = true,
                              .pool = pool};
    answers a = {.tokens = calloc((size_t)t->n, sizeof *a.tokens), .length = calloc((size_t)t->n, sizeof *a.length)};
    int status = a.tokens && a.length ? 0 : cli_fail(COMMAND, "out of memory");
    if (!status && (failed = decoder_create(&a.d, params, c, &o))) status = cli_library(COMMAND, failed);
    if (!status) status = measure(ask, t, params, &a, clock_seconds() - start, adamod_pool_threads(pool));
    decoder_free(a.d);
    for (int64_t i = 0; a.tokens && i < t->n; i++) free(a.tokens[i]);
    free(a.tokens);
    free(a.length);
    return status;
}

int cli_bench_decode(int argc, char **argv) {
    request ask = {.shape = SMALL, .device = "cpu", .beam = 5, .rounds = 3};
    int status = cli_parse(&syntax, argc, argv, &ask);
    if (status >= 0) return status;
    if (!ask.sentences) ask.sentences = strcmp(ask.device, "cpu") == 0 ? 200 : 6750;
    text t = {0};
    adamod_pool *pool = NULL;
    nn_params *params = make_model(&shapes[ask.shape]);
    status = params && make_text(&t, ask.sentences, shapes[ask.shape].src_vocab)
                 ? 0
                 : cli_fail(COMMAND, "out of memory for a model of shape %s", shape_names[ask.shape]);
    if (!status && adamod_pool_create(&pool, (int)ask.threads)) status = cli_library(COMMAND, ADAMOD_ERROR_MEMORY);
    if (!status) status = run(&ask, &t, params, pool);
    nn_params_free(params);
    adamod_pool_free(pool);
    free_text(&t);
    return status;
}
