/* PyTorch as a contestant of `adamod bench train`: the task's script, torch_*.py, told which steps to take.
 *
 * SPDX-License-Identifier: MIT
 */
#include "cli/bench_train.h"
#include "core/error.h"
#include "cli/bench_python.h"
#include "peers.h"

#include <stdlib.h>
#include <string.h>

static int failed(const bench_train_peer *p) {
    return cli_fail(BENCH_TRAIN, "torch in %s: %s", bench_python_name(p->process), bench_python_error(p->process));
}

static double number(const bench_train_peer *p, const char *key) {
    char text[64] = "";
    bench_python_get(p->process, key, text, sizeof text);
    return strtod(text, NULL);
}

/* OpenBLAS takes a processor that is newer than itself for an old one without vectors to speak of, unless it is told. */
static const char *blas_kernels(void) {
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw")) return "OPENBLAS_CORETYPE=SkylakeX";
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return "OPENBLAS_CORETYPE=Haswell";
#endif
    return NULL;
}

/* The task's model in PyTorch, as it was when the program was built; NULL: there is none. */
static const char *script_of(const task *t) {
    for (size_t i = 0; t->bench && t->bench->peer && i < sizeof peer_models / sizeof *peer_models; i++) {
        if (strcmp(peer_models[i].name, t->bench->peer) == 0) return peer_models[i].text;
    }
    return NULL;
}

void bench_train_peer_start(bench_train_peer *p, const task *t, const char *python, int threads, bool device,
                            const char *file) {
    const char *script = script_of(t);
    if (!script) {
        adamod__refuse("data.task %s has no model in PyTorch", t->name);
        return;
    }
    const char *const here[BENCH_TRIALS] = {blas_kernels(),
                                            threads > 1 && !getenv("GOMP_SPINCOUNT") ? BENCH_WAIT_ASLEEP : NULL};
    const char *const there[BENCH_TRIALS] = {NULL};
    const char *const *trials = device ? there : here;
    p->process = bench_python_start(python, script, threads, file, trials);
    if (!p->process) return;
    bench_python_get(p->process, "version", p->version, sizeof p->version);
    bench_python_get(p->process, "optimizer", p->optimizer, sizeof p->optimizer);
    bench_python_get(p->process, "attention", p->attention, sizeof p->attention);
    bench_python_get(p->process, "layout", p->layout, sizeof p->layout);
    bench_python_get(p->process, "how", p->how, sizeof p->how);
    p->rows = number(p, "rows");
    p->loss = number(p, "loss");
}

void bench_train_peer_warn(const bench_train_peer *p) {
    if (p->process) bench_python_warn(p->process, BENCH_TRAIN, p->version);
}

int bench_train_peer_compile(bench_train_peer *p) {
    fprintf(bench_python_request(p->process), "{\"do\": \"compile\"}\n");
    if (!bench_python_answer(p->process)) return failed(p);
    bench_python_get(p->process, "how", p->how, sizeof p->how);
    return 0;
}

int bench_train_peer_run(bench_train_peer *p, int first, int steps, double *seconds) {
    char times[32 * BENCH_BATCHES] = "", *at = times;
    fprintf(bench_python_request(p->process), "{\"do\": \"train\", \"first\": %d, \"steps\": %d}\n", first, steps);
    if (!bench_python_answer(p->process)) return failed(p);
    bench_python_get(p->process, "seconds", times, sizeof times);
    for (int i = 0; i < steps; i++) seconds[i] = strtod(at, &at);
    return 0;
}

int bench_train_peer_burst(bench_train_peer *p, int first, int steps, double *seconds) {
    fprintf(bench_python_request(p->process), "{\"do\": \"burst\", \"first\": %d, \"steps\": %d}\n", first, steps);
    if (!bench_python_answer(p->process)) return failed(p);
    *seconds = number(p, "seconds");
    return 0;
}

int bench_train_peer_memory(bench_train_peer *p) {
    fprintf(bench_python_request(p->process), "{\"do\": \"memory\"}\n");
    if (!bench_python_answer(p->process)) return failed(p);
    p->base = number(p, "base");
    p->peak = number(p, "peak");
    p->reserved = number(p, "reserved");
    return 0;
}

int bench_train_peer_convolutions(bench_train_peer *p) {
    fprintf(bench_python_request(p->process), "{\"do\": \"convolutions\"}\n");
    if (!bench_python_answer(p->process)) return failed(p);
    const double seconds = number(p, "seconds");
    if (p->convolutions == 0 || seconds < p->convolutions) p->convolutions = seconds;
    return 0;
}

const char *bench_train_peer_python(const bench_train_peer *p) { return bench_python_name(p->process); }
const char *bench_train_peer_settings(const bench_train_peer *p) { return bench_python_settings(p->process); }

void bench_train_peer_stop(bench_train_peer *p) {
    bench_python_stop(p->process);
    p->process = NULL;
}
